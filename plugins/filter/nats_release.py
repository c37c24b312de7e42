# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_release
short_description: Find the archive of a nats-server release and its checksum
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the address of the archive for a host, and the checksum that it must have.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The checksums of the role's file C(release_sums.json), by version and architecture.
    type: dict
    required: true
  version:
    description: The version of nats-server.
    type: str
    required: true
  machine:
    description: The host's architecture, as in Ansible's fact C(architecture).
    type: str
    required: true
  base_url:
    description: The address of the releases.
    type: str
    required: true
  origin:
    description: The address to which the checksums of the collection apply. A mirror may have its own builds.
    type: str
    required: true
  archive_format:
    description: The format of the archive.
    type: str
    choices: [tar.gz, zip]
    default: tar.gz
  checksum:
    description: The archive's SHA-256 from a trusted source, instead of that of the collection.
    type: str
  unpinned:
    description: Effect of an archive without a known checksum.
    type: str
    choices: [warn, refuse]
    default: warn
"""

EXAMPLES = r"""
- name: Show the archive for an ARM host
  ansible.builtin.debug:
    msg: "{{ {} | natsops.jetstream.nats_release(version='2.15.1', machine='aarch64',
             base_url='https://mirror.example.com/nats-server', unpinned='refuse',
             origin='https://github.com/nats-io/nats-server/releases/download') }}"
"""

RETURN = r"""
_value:
  description:
    - The name of the archive C(file), its address C(url), the C(checksum) for C(ansible.builtin.get_url), and the
      C(problems). An error leaves the other values empty.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.host.release import ReleaseOptions, release_archive
from ..plugin_utils._filters import reports_problems, typed


@reports_problems
def nats_release(known: Mapping[str, Mapping[str, str]], **options: Any) -> dict[str, Any]:
    """Return the archive and its checksum; see DOCUMENTATION."""
    return dict(release_archive(typed(ReleaseOptions, options), known))


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_release": nats_release}
