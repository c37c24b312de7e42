# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  idle_timeout:
    description:
      - Seconds without any progress after which the transfer fails. The total duration of the transfer is not limited.
    type: float
    default: 30
  rate_limit:
    description:
      - Maximum number of bytes per second, such as V(20MB), and at least V(512KB). By default, the rate is not limited.
        A bare number is in bytes.
    type: str
"""
