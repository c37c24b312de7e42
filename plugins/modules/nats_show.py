#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_show
short_description: Print a result on one screen and write all of it to a file
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Prints as many lines of a plan, a report or a result as fit on one screen. If there are more lines, it writes all of
    them to a file on the controller that only its owner may read, and prints the path of the file.
  - With C(-v), all lines are printed.
  - The file replaces that of the previous run with the same O(name). The file is part of the output, like Ansible's own
    log, and is also written in check mode, because most plans are printed in check mode.
options:
  name:
    description: Name of the file, without C(.txt). Characters that are not allowed in a file name become C(_).
    type: str
    required: true
  lines:
    description: All lines.
    type: list
    elements: str
    required: true
  screen:
    description:
      - The lines to print. By default, up to 20 lines are printed completely; if there are more, only the first ten
        lines are printed.
      - Modules that return more RV(ignore:lines) for a larger cluster also return RV(ignore:screen).
    type: list
    elements: str
  notes:
    description: Lines that are always printed, below the others.
    type: list
    elements: str
    default: []
  problems:
    description:
      - Problems of a configuration that has not been applied yet, from P(natsops.jetstream.nats_config_problems#filter).
      - Warnings are printed like O(notes). If there are errors, the task fails with all errors instead.
    type: list
    elements: dict
    default: []
  directory:
    description: Directory of the file on the controller. Defaults to the directory V(natsops) in Ansible's home
      directory (E(ANSIBLE_HOME), V(~/.ansible)).
    type: path
attributes:
  action:
    description: Runs only on the controller.
    support: full
  check_mode:
    description: Can run in check mode, where it behaves in the same way.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
seealso:
  - plugin: natsops.jetstream.nats_report
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Save all streams of an account
  natsops.jetstream.nats_backup:
    user: app
    password: "{{ nats_app_password }}"
    directory: /srv/backup
  register: backup

- name: Show the backups
  natsops.jetstream.nats_show:
    name: backup
    lines: "{{ backup.lines }}"
    screen: "{{ backup.screen }}"
"""

RETURN = r"""
msg:
  description: The printed lines.
  returned: success
  type: list
  elements: str
  sample: ["1,005 streams saved to /srv/backup", "All 1,010 lines: /home/ops/.ansible/natsops/backup.txt"]
file:
  description: File with all lines. Null if all lines were printed.
  returned: success
  type: str
  sample: /home/ops/.ansible/natsops/backup.txt
"""
