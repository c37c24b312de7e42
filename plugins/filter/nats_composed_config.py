# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_composed_config
short_description: Compose the configuration of a nats-server from the variables of the role nats_server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns a structured configuration with nats-server's own keys, which P(natsops.jetstream.nats_conf#filter) renders.
    Routes, gateways and leafnode remotes come from the servers in O(topology); their credentials are percent-encoded
    into each URL.
  - C(config) and C(config_host) of the input take precedence over the composed keys.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, topology, host_state, live, leaving
options:
  _input:
    description: Values of the role's variables by name, without the prefix C(nats_server_). A missing or empty value has
      no key in the configuration. With C(run_dir), a server with C(take_over) has the PID file of the role's own unit.
    type: dict
    required: true
  topology:
    description: The servers, as returned by P(natsops.jetstream.nats_topology#filter). No URLs are created for a
      missing key.
    type: dict
    default: {}
  host_state:
    description:
      - The result of M(natsops.jetstream.nats_server_host_info). A feature flag that the role turned off stays off until
        the next change of the version, because no reload changes it.
    type: dict
    default: {}
  live:
    description: The result of M(natsops.jetstream.nats_cluster_info) for the servers of the cluster. The server turns on
      the feature flags that are on on most of them as well.
    type: dict
    default: {}
  leaving:
    description: Whether the server is about to leave its cluster, so it gets the tag C(!jetstream).
    type: bool
    default: false
seealso:
  - plugin: natsops.jetstream.nats_topology
    plugin_type: filter
  - plugin: natsops.jetstream.nats_conf
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Compose a server without a cluster
  ansible.builtin.debug:
    msg: "{{ {'name': 'n1', 'port': 4222, 'http': '127.0.0.1:8222'} | natsops.jetstream.nats_composed_config }}"
"""

RETURN = r"""
_value:
  description: The configuration, which contains secrets. An absent key is null.
  type: dict
  sample: {"server_name": "n1", "port": 4222, "http": "127.0.0.1:8222", "cluster": null}
"""

from collections.abc import Mapping
from typing import Any

from ansible.utils.vars import merge_hash

from ..module_utils.server_config.compose import HostInputs, compose
from ..module_utils.server_config.topology import boolean
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_composed_config(
    options: Mapping[str, Any],
    topology: Mapping[str, Any] | None = None,
    host_state: Mapping[str, Any] | None = None,
    live: Mapping[str, Any] | None = None,
    leaving: bool = False,
) -> dict[str, Any]:
    """Return the configuration; see DOCUMENTATION."""
    state = host_state or {}
    host = HostInputs(
        leaving=boolean(leaving),
        pid_file=f"{options['run_dir']}/nats-server.pid" if options.get("run_dir") else None,
        loaded_flags=state.get("feature_flags") or {},
        common_flags=(live or {}).get("common_flags") or (),
        changes_version=boolean((state.get("version_change") or {}).get("changes", False)),
    )
    composed = compose(options, topology or {}, host)
    for name in ("config", "config_host"):
        composed = merge_hash(composed, options.get(name) or {}, recursive=True)
    return composed


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_composed_config": nats_composed_config}
