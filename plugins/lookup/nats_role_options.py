# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_role_options
short_description: Read the public variables of the roles that an input consists of
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the roles of this collection need this lookup; its inputs may change in any release.
  - Returns the values of variables by the name of the option that each one sets, so no role has to list them again.
options:
  _terms:
    description: The names of the inputs, such as C(config) for P(natsops.jetstream.nats_composed_config#filter).
    type: list
    elements: str
    required: true
seealso:
  - plugin: natsops.jetstream.nats_composed_config
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the options of gateways
  ansible.builtin.debug:
    msg: "{{ lookup('natsops.jetstream.nats_role_options', 'gateways') }}"
"""

RETURN = r"""
_value:
  description: For each input, the values of its variables by the names of the options.
  type: list
  elements: dict
  sample: [{cluster_name: C1, supercluster_groups: [], gateway: null}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase

from ..module_utils.server_config.role_options import ROLE_OPTIONS


class LookupModule(LookupBase):
    """Reads the variables like the lookup `ansible.builtin.vars`."""

    def run(
        self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """Return the values; see DOCUMENTATION."""
        reader = lookup_loader.get("vars", loader=self._loader, templar=self._templar)
        found = []
        for term in terms:
            if term not in ROLE_OPTIONS:
                raise AnsibleLookupError(f"nats_role_options: {term!r} is not one of {', '.join(sorted(ROLE_OPTIONS))}")
            names = ROLE_OPTIONS[term]
            found.append(dict(zip(names, reader.run(list(names.values()), variables))))
        return found
