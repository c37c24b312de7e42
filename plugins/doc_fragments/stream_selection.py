# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  streams:
    description:
      - Which streams are saved, each as C(ACCOUNT), C(ACCOUNT/STREAM) or C(*), with C(*) and C(?) for any characters and
        any one. A pattern that no stream matches fails. An account is specified by name or, in operator mode, by public key,
        which wildcards match.
    type: list
    elements: str
    default: ["*"]
  exclude:
    description:
      - Which of them are not, written likewise.
    type: list
    elements: str
    default: []
"""
