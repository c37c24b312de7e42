# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_users
short_description: Plan the change from old users to new ones
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the users that a server has loaded with those of the inventory, and returns the configuration with the users of
    both sides, and the one without the old ones.
  - A server knows one password for each name, so a password is changed without a refused login by a second user of the same
    account. The result holds secrets.
positional: _input, loaded, plain
options:
  _input:
    description: The structured configuration of the inventory, with hashed passwords.
    type: dict
    required: true
  loaded:
    description: The structured configuration that the server has loaded.
    type: dict
    required: true
  plain:
    description: The same as the input, with the passwords as they were given.
    type: dict
    required: true
  retire:
    description: Names of users that go although the inventory still has them.
    type: list
    elements: str
    default: []
requirements:
  - libpass, or passlib, or bcrypt on the controller
"""

EXAMPLES = r"""
- name: Plan
  ansible.builtin.set_fact:
    plan: "{{ settled | natsops.jetstream.nats_rotation_users(loaded, plain, retire=['app']) }}"
  no_log: true
"""

RETURN = r"""
_value:
  description:
    - C(added), C(removed) and C(changed) users, C(other) paths that differ, the configurations C(add) and C(drop), the names
      C(loaded), C(during) and C(after), and the C(known) passwords.
  type: dict
"""

from collections.abc import Sequence
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._bcrypt import is_hash, verify_password
from ansible_collections.natsops.jetstream.plugins.module_utils._conf import normalise
from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import user_plan
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_rotation_users(
    wanted: dict[str, Any], loaded: dict[str, Any], plain: dict[str, Any], retire: Sequence[str] = ()
) -> dict[str, Any]:
    """The plan; see DOCUMENTATION."""

    def same(password: str, hashed: str) -> bool:
        return is_hash(hashed) and not is_hash(password) and verify_password(password, hashed)

    return user_plan(normalise(loaded), normalise(wanted), normalise(plain), [str(name) for name in retire], same)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_users": nats_rotation_users}
