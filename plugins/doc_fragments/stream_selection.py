# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  streams:
    description:
      - Streams to save, each as C(ACCOUNT), C(ACCOUNT/STREAM) or C(*), where C(*) matches any characters and C(?)
        exactly one. The task fails if a pattern matches no stream. An account is specified by name or, in operator
        mode, by public key; in operator mode, wildcards match the public key.
    type: list
    elements: str
    default: ["*"]
  exclude:
    description:
      - Streams to exclude, in the form of O(streams).
    type: list
    elements: str
    default: []
"""
