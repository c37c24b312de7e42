# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host needs the user or the desired version of nats-server. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

#: The user of the server, besides its group; as nats_server_host_info returns the user.
USER = {"comment": "NATS server", "home": "/nonexistent", "shell": "/usr/sbin/nologin"}


@dataclass(frozen=True)
class InstallOptions:
    """The role's variables of the installation."""

    install_method: str = "release"
    file_checksum: str = ""
    take_over: bool = True
    manage_user: bool = True
    become: bool = True
    group: str = ""


class Installation(TypedDict):
    """`due`: whether anything has to be installed; `installed`: whether the desired version is; `user_differs`: whether the
    user has to be created or changed. `accepted_sums`: the SHA-256 that the file of the method `file` may have: any, or
    only the configured one. `user`: the attributes of the user."""

    due: bool
    installed: bool
    user_differs: bool
    accepted_sums: list[str]
    user: dict[str, str]


def installation(options: InstallOptions, host: Mapping[str, Any]) -> Installation:
    """Return the needs of a host. `host`: the result of the module nats_server_host_info."""
    found = str(host.get("src_sha256") or "")
    given = options.file_checksum.lower()
    given = given[len("sha256:") :] if given.startswith("sha256:") else given
    accepted = [sum_ for sum_ in [given or found] if sum_]
    # The version of a package is known only after its installation.
    installed = bool(host["installed"]) and options.install_method != "package"
    if options.install_method == "file":
        installed = installed and found in accepted and found == host["installed_from"]
    differs = not host["group_exists"] or host["user"] != {"group": options.group, **USER}
    user_differs = differs and options.manage_user and options.become
    return {
        "due": options.take_over and (user_differs or not installed or not host["process"]["running"]),
        "installed": installed,
        "user_differs": user_differs,
        "accepted_sums": accepted,
        "user": dict(USER),
    }
