# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  cluster:
    description: Name of the cluster, for messages.
    type: str
    default: ""
  missing_hosts:
    description: Hosts of the cluster that the run leaves out.
    type: list
    elements: str
    default: []
"""
