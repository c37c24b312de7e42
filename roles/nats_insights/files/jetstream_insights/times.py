# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time between timestamps, as columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def seconds(begin: Column, end: Column) -> Column:
    """Return the seconds between two timestamps, with microseconds."""
    return (F.unix_micros(end) - F.unix_micros(begin)) / F.lit(1e6)
