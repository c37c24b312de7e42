# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_file_sha256
short_description: Return the SHA-256 of a file on the controller
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads a file of any size on the controller, without a module.
positional: _input
options:
  _input:
    description: Path of the file.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Show the sum
  ansible.builtin.debug:
    msg: "{{ '/srv/nats-server-v2.10.27-linux-amd64.tar.gz' | natsops.jetstream.nats_file_sha256 }}"
"""

RETURN = r"""
_value:
  description: The sum in hexadecimal digits. Empty when there is no such file.
  type: str
"""

import hashlib
import os
from typing import Any

from ansible.utils.hashing import secure_hash


def nats_file_sha256(path: str | None) -> str:
    """Return the sum; see DOCUMENTATION."""
    found = os.path.expanduser(str(path or ""))
    return secure_hash(found, hashlib.sha256) or "" if os.path.isfile(found) else ""


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_file_sha256": nats_file_sha256}
