# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the modules log in to the servers of the role nats_server. Pure: the caller provides the test for files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, TypedDict

from .metrics_user import METRICS_INBOX
from .topology import boolean

#: Values of nats_server_api_delegate_to with which the modules run on the controller.
_CONTROLLER = ("localhost", "127.0.0.1")
#: The files of a login, which are options of the modules.
_TLS_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file")
#: Options, and environment variables of the modules (AWX's credential sets them), that are credentials.
_CREDENTIALS = ("password", "credentials", "nkey_seed", "account_seed", "tls_cert_file")
_ENVIRONMENT = ("NATS_PASSWORD", "NATS_TOKEN", "NATS_NKEY", "NATS_CREDS", "NATS_CERT", "NATS_CONTEXT")


class UserLogin(TypedDict):
    """A user and its password."""

    user: str
    password: str


@dataclass(frozen=True)
class SystemLogins:
    """The users with which the playbooks may log in while the users of the system account are rotated, as the role's
    variables of the same names."""

    api_user: str = ""
    api_password: str = ""
    system_user: str = ""
    system_password: str = ""
    system_previous_user: str = ""
    system_previous_password: str = ""

    def candidates(self) -> list[UserLogin]:
        """Return the distinct users with a password: the modules' own, the desired and the previous one, in this
        order of preference."""
        users = [
            (self.api_user, self.api_password),
            (self.system_user, self.system_password),
            (self.system_previous_user, self.system_previous_password),
        ]
        known = dict.fromkeys((user, password) for user, password in users if user and password)
        return [UserLogin(user=user, password=password) for user, password in known]

    def accepted(self, attempts: Sequence[Mapping[str, Any]]) -> UserLogin | None:
        """Return the first candidate that every server accepted, None without one. `attempts`: the results of
        nats_login_info for the candidates, in the same order for each server; a user may be a candidate with two
        passwords, so its name does not identify it."""
        logins = self.candidates()
        for index, login in enumerate(logins):
            own = attempts[index :: len(logins)]
            if own and all(attempt["accepted"] for attempt in own):
                return login
        return None

    def remaining(self, removed: Collection[str]) -> UserLogin | None:
        """Return the desired user if the modules' own is among the removed ones, None if the modules keep theirs."""
        if self.api_user not in removed or not self.system_password:
            return None
        return UserLogin(user=self.system_user, password=self.system_password)


def has_login(options: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Return whether the modules have credentials. `options`: as for `connection`."""
    given = [options.get(name) for name in _CREDENTIALS] + [environment.get(name) for name in _ENVIRONMENT]
    return any(given) or boolean(options.get("shows_certificate", False))


def connection(
    options: Mapping[str, Any],
    client_urls: Sequence[str],
    sources: Mapping[str, Any],
    exists: Callable[[str], bool],
    only_reads: bool = False,
) -> dict[str, Any]:
    """Return the modules' connection options. Options that are not set are omitted, so environment variables and contexts
    still apply.

    `options`: as documented by the filter nats_connection; `client_urls`: the addresses of all servers; `sources`: the
    files on the controller, as returned by `tls_sources`; `exists`: whether the controller has a file; `only_reads`:
    whether to log in as the user of metrics, if there is one. Raises ValueError if a seed would leave the controller.
    """
    seed = options.get("account_seed")
    reads = only_reads and options.get("metrics_password") and not options.get("operator")
    if seed and not reads and options.get("delegate_to") not in _CONTROLLER:
        raise ValueError(
            f"nats_server_api_account_seed: the modules would run on {options.get('delegate_to')}, and no seed may leave "
            "the controller. Set nats_server_api_delegate_to to localhost, or log in with nats_server_api_credentials"
        )
    found = {
        "servers": options.get("servers") or list(client_urls),
        "timeout": options.get("timeout"),
        **(_metrics_login(options) if reads else _login(options)),
        **_tls_files(options, sources, exists),
        "tls_first": options.get("tls_first"),
    }
    return {name: value for name, value in found.items() if value}


def _metrics_login(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "user": options.get("metrics_user"),
        "password": options.get("metrics_password"),
        "inbox_prefix": METRICS_INBOX,
    }


def _login(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return one kind of login: the seed of the system account before .creds files and passwords, and those before the
    seed of a user."""
    if options.get("account_seed"):
        return {name: options.get(name) for name in ("account_seed", "account_key")}
    if options.get("nkey_seed") and not options.get("credentials"):
        return {"nkey_seed": options["nkey_seed"]}
    login = {name: options.get(name) for name in ("credentials", "password")}
    return {**login, "user": options.get("user") if login["password"] else None}


def _tls_files(
    options: Mapping[str, Any], sources: Mapping[str, Any], exists: Callable[[str], bool]
) -> dict[str, str | None]:
    """Return the files given by the operator, or those that the role has on the controller."""
    derived: dict[str, str | None] = {}
    if options.get("uses_tls") and sources["installed"]:
        both, current = sources["authorities"]["both"], sources["current"]["ca.crt"]
        trusted = both if sources["rotating"] and exists(both) else current
        # In check mode, the role does not create the private authority, so there may be no file.
        derived["tls_ca_file"] = trusted if exists(trusted) else None
    if options.get("shows_certificate"):
        # The new authority issues the controller's certificate only after all servers trust it.
        issued = sources["issuer"]["dir"]
        folder = issued if exists(f"{issued}/client.crt") else sources["authority"]["dir"]
        derived.update({"tls_cert_file": f"{folder}/client.crt", "tls_key_file": f"{folder}/client.key"})
    return {name: options.get(name) or derived.get(name) for name in _TLS_FILES}
