# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module and prints a progress line every ten seconds while it waits."""

from __future__ import annotations

from ..plugin_utils.waiting import WaitingAction as ActionModule

__all__ = ["ActionModule"]
