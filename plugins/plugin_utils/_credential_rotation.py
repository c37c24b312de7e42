# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert the configurations of a host for the rules of credential rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.server_config.credential_rotation import HostCredentials
from ..module_utils.server_config.passwords import is_hash, verify_password
from ..module_utils.server_config.syntax import normalise


def host_credentials(host: Mapping[str, Any]) -> HostCredentials:
    """Return the input of the rules for a host; the filter `nats_rotation_plan` describes the keys.

    Raises ValueError if a configuration has content that nats-server cannot read.
    """
    return HostCredentials(
        running=boolean(host["running"]),
        loaded=normalise(host["loaded"]) if host.get("loaded") else None,
        desired=normalise(host["desired"]),
        given=normalise(host["given"]),
        restart_pending=boolean(host.get("restart_pending", False)),
    )


def same_password(password: str, hashed: str) -> bool:
    """Return whether a password matches a bcrypt hash."""
    return is_hash(hashed) and not is_hash(password) and verify_password(password, hashed)
