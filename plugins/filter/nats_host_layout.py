# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_host_layout
short_description: List the files and directories that the role nats_server has on a host
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the role P(natsops.jetstream.nats_server#role) needs this filter; its input may change in any release.
positional: _input, paths, systemd
options:
  _input:
    description: The role's variables, as returned by P(natsops.jetstream.nats_role_options#lookup) for C(layout).
    type: dict
    required: true
  paths:
    description: The paths of the role's own files.
    type: dict
    required: true
  systemd:
    description: Whether systemd manages the server.
    type: bool
    required: true
  with_service:
    description: Whether the files of the service are written as well.
    type: bool
    default: false
  unrecorded:
    description: Whether the running server has files from outside the role, which may contain secrets, so no diff shows
      them.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: List the directories to which the server writes
  ansible.builtin.debug:
    msg: "{{ (lookup('natsops.jetstream.nats_role_options', 'layout')
             | natsops.jetstream.nats_host_layout({}, false)).writable }}"
"""

RETURN = r"""
_value:
  description:
    - C(directories), C(absent), C(secret_files) and C(files) for M(natsops.jetstream.nats_server_files). Instead of its
      content, each file has a C(template), which P(natsops.jetstream.nats_rendered_files#lookup) renders.
    - C(service_secret_files) and C(service_files) are those of the service only, and C(paths) are the paths of all of them,
      whether or not O(with_service) is set. The server writes to C(writable);
      systemd creates C(runtime_directory) below C(/run). C(watches_tls) is true if the unit C(tls_unit) reloads the server
      when its TLS files change; C(tls_unit_paths) are the files of this unit.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.utils.vars import merge_hash

from ..module_utils.host.layout import HostLayout, LayoutState, host_layout
from ..module_utils.server_config.topology import boolean
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_host_layout(
    options: Mapping[str, Any],
    paths: Mapping[str, str],
    systemd: bool,
    with_service: bool = False,
    unrecorded: bool = False,
) -> HostLayout:
    """Return the files and directories; see DOCUMENTATION."""
    state = LayoutState(boolean(systemd), boolean(with_service), boolean(unrecorded))
    config = merge_hash(options.get("config") or {}, options.get("config_host") or {}, recursive=True)
    return host_layout({**options, "config": config}, paths, state)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_host_layout": nats_host_layout}
