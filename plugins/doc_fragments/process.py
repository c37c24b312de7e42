# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  config:
    description: Path of the configuration file on the server's command line. This path identifies the server.
    type: path
    required: true
  unit:
    description: Name of the systemd unit that should run the server. Omit it if the host does not use systemd.
    type: str
  files:
    description:
      - Files that the process reads only at startup, such as its environment file.
      - With O(unit), the list also includes the unit, its drop-ins and its environment files.
    type: list
    elements: path
    default: []
  maintenance:
    description:
      - File that marks the host as in maintenance. While the server must not be started, an empty file with the
        additional suffix C(.hold) exists next to this file.
    type: path
"""
