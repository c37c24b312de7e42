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
  - C(nats_server_config) and C(nats_server_config_host), which take precedence over the result, are not applied.
positional: _input
options:
  _input:
    description: Values of the role's variables by name, without the prefix C(nats_server_). A missing or empty value has
      no key in the configuration.
    type: dict
    required: true
  topology:
    description: The servers, as returned by P(natsops.jetstream.nats_topology#filter). No URLs are created for a
      missing key.
    type: dict
    default: {}
  leaving:
    description: Whether the server is about to leave its cluster, so it gets the tag C(!jetstream).
    type: bool
    default: false
  pid_file:
    description: The PID file of the role's own unit, which is used if C(take_over) is true.
    type: str
  loaded_flags:
    description: The feature flags that the server has loaded. A flag that the role turned off stays off until the next
      change of the version, because no reload changes it.
    type: dict
    default: {}
  common_flags:
    description: The feature flags that are on on most servers of the cluster. The server turns them on as well.
    type: list
    elements: str
    default: []
  changes_version:
    description: Whether this run changes the version of the server.
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

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.server_config.compose import HostInputs, compose
from ..module_utils.server_config.topology import boolean
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_composed_config(
    options: Mapping[str, Any],
    topology: Mapping[str, Any] | None = None,
    leaving: bool = False,
    pid_file: str | None = None,
    loaded_flags: Mapping[str, Any] | None = None,
    common_flags: Sequence[str] = (),
    changes_version: bool = False,
) -> dict[str, Any]:
    """Return the configuration; see DOCUMENTATION."""
    host = HostInputs(boolean(leaving), pid_file, loaded_flags or {}, list(common_flags), boolean(changes_version))
    return compose(options, topology or {}, host)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_composed_config": nats_composed_config}
