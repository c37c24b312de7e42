# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rendered_files
short_description: Render the templates of files
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Only the roles of this collection need this lookup.
  - Returns each file with the rendered C(content) of its C(template), for M(natsops.jetstream.nats_server_files).
options:
  _terms:
    description: The files, as returned by P(natsops.jetstream.nats_host_layout#filter).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show a rendered template
  ansible.builtin.debug:
    msg: "{{ lookup('natsops.jetstream.nats_rendered_files', {'path': '/etc/motd', 'template': 'motd.j2'}).content }}"
"""

RETURN = r"""
_value:
  description: The files with their content instead of the name of their template.
  type: list
  elements: dict
  sample: [{path: /etc/motd, content: Welcome}]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase


class _ShallowVariables(dict[str, Any]):
    """Variables that are copied without their values.

    For each file, the lookup `template` copies all variables deeply, the facts of the host included, to add its own.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)


class LookupModule(LookupBase):
    """Renders templates like the lookup `ansible.builtin.template`."""

    def run(
        self, terms: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """Return the files; see DOCUMENTATION."""
        renderer = lookup_loader.get("template", loader=self._loader, templar=self._templar)
        known = _ShallowVariables(variables or {})
        return [
            {
                **{name: value for name, value in term.items() if name != "template"},
                "content": renderer.run([term["template"]], known)[0],
            }
            for term in terms
        ]
