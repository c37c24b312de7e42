# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_conf
short_description: Write a structured configuration in nats-server's syntax
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns the text of a configuration, given as a dictionary with nats-server's own keys.
  - Nulls are dropped, keys are written with their main names and in a fixed order, and values are converted to the type
    that nats-server requires for their key. Strings are always quoted and escaped, so characters such as C($) and C(#)
    have no special meaning.
  - A value that nats-server's syntax or the key's type does not allow is an error. The error message includes the path
    of the value.
positional: _input
options:
  _input:
    description: The configuration, with nats-server's own keys.
    type: dict
    required: true
  path:
    description: Path of the dictionary in the complete configuration, for instance V(cluster). Empty for the top
      level.
    type: str
    default: ""
  secrets:
    description:
      - V(inline) writes passwords, tokens, keys and URLs with credentials in place.
      - V(reference) replaces these secrets with C($SECRET_...) variables.
      - V(definitions) writes only a line C(SECRET_...) for each of these variables, for a separate file that the main
        file includes.
      - Secrets are passwords, tokens, encryption keys, seeds and complete URLs with credentials.
    type: str
    choices: [inline, reference, definitions]
    default: inline
  indent:
    description: Number of spaces before each line.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Write a configuration file
  ansible.builtin.copy:
    content: "{{ config | natsops.jetstream.nats_conf }}"
    dest: /etc/nats-server/nats-server.conf
    mode: "0640"
  vars:
    config:
      port: 4222
      jetstream: {store_dir: /var/lib/nats, max_file_store: 100GB}

- name: Write its secrets into a separate file
  ansible.builtin.copy:
    content: "{{ config | natsops.jetstream.nats_conf(secrets='definitions') }}"
    dest: /etc/nats-server/secrets.conf
    mode: "0640"
  diff: false
  no_log: true
"""

RETURN = r"""
_value:
  description: The text, without a final newline. Empty for V(definitions) if there is no secret.
  type: str
  sample: |-
    port: 4222
    jetstream: {
      store_dir: "/var/lib/nats"
      max_file_store: 100GB
    }
"""

from typing import Any

from ..module_utils.server_config.syntax import write, write_secrets
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_conf(config: dict[str, Any], path: str = "", secrets: str = "inline", indent: int = 0) -> str:
    """Return the configuration's text; see DOCUMENTATION."""
    if secrets not in ("inline", "reference", "definitions"):
        raise ValueError(f"secrets: must be inline, reference or definitions, not {secrets!r}")
    if secrets == "definitions":
        return write_secrets(config)
    return write(config, tuple(path.split(".")) if path else (), secrets == "reference", int(indent))


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_conf": nats_conf}
