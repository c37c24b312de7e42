# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module of the collection shares. PRIVATE to the collection.

The connection arguments and where their values come from, the one shape of a failure, and the frame in which a
module runs.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Generic, TypeVar

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.natsops.jetstream.plugins.module_utils._client import (
    Client,
    ConnectionOptions,
    MissingLibrary,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils._jetstream import JetStreamApi

T = TypeVar("T")

DEFAULT_SERVER = "nats://127.0.0.1:4222"

CREDENTIAL_SPEC: dict[str, dict[str, Any]] = {
    "user": {"type": "str"},
    "password": {"type": "str", "no_log": True},
    "token": {"type": "str", "no_log": True},
    "nkey_seed": {"type": "str", "no_log": True},
    "credentials": {"type": "path"},
}
ONE_KIND_OF_CREDENTIALS = ("credentials", "nkey_seed", "user", "token")

#: For modules that work on the assets of accounts; see doc_fragments/accounts.py.
ACCOUNT_USERS_SPEC: dict[str, dict[str, Any]] = {
    "account_users": {
        "type": "list",
        "elements": "dict",
        "options": {"account": {"type": "str", "required": True}, **CREDENTIAL_SPEC},
        "mutually_exclusive": [ONE_KIND_OF_CREDENTIALS],
        "required_one_of": [ONE_KIND_OF_CREDENTIALS],
    },
}
ACCOUNT_SPEC: dict[str, dict[str, Any]] = {"account": {"type": "str"}, **ACCOUNT_USERS_SPEC}

CONNECTION_SPEC: dict[str, dict[str, Any]] = {
    "servers": {"type": "list", "elements": "str"},
    **CREDENTIAL_SPEC,
    "tls_ca_file": {"type": "path"},
    "tls_cert_file": {"type": "path"},
    "tls_key_file": {"type": "path"},
    "tls_server_name": {"type": "str"},
    "validate_certs": {"type": "bool", "default": True},
    "tls_first": {"type": "bool"},
    "timeout": {"type": "float", "default": 5.0},
    "jetstream_domain": {"type": "str"},
    "context": {"type": "str"},
}

#: Option, the nats CLI's environment variable, the key in a nats CLI context file.
_SOURCES = (
    ("servers", "NATS_URL", "url"),
    ("user", "NATS_USER", "user"),
    ("password", "NATS_PASSWORD", "password"),
    ("token", "NATS_TOKEN", "token"),
    ("nkey_seed", "NATS_NKEY", "nkey"),
    ("credentials", "NATS_CREDS", "creds"),
    ("tls_ca_file", "NATS_CA", "ca"),
    ("tls_cert_file", "NATS_CERT", "cert"),
    ("tls_key_file", "NATS_KEY", "key"),
    ("tls_first", None, "tls_first"),
    ("inbox_prefix", None, "inbox_prefix"),
    ("jetstream_domain", None, "jetstream_domain"),
)
_SECRETS = ("password", "token", "nkey_seed")

#: The kinds of credentials, each with its options, in the order in which one is chosen within a source.
_CREDENTIAL_KINDS = (("credentials",), ("nkey_seed",), ("user", "password"), ("token",))

#: What a context may hold that changes who connects or how, and that is not supported here.
_UNSUPPORTED_IN_CONTEXT = ("nsc", "socks_proxy", "user_jwt", "user_seed", "windows_cert_store")


#: Failures that pass by themselves while a group elects a leader or a server goes away; 10008: temporarily unavailable.
_PASSING = ("timeout", "no_responders", "connection_lost", "unreachable")
_PASSING_ERR_CODES = (10008,)


def make_module(own: Mapping[str, Mapping[str, Any]], **arguments: Any) -> AnsibleModule:
    """Return the AnsibleModule with the connection options and the module's `own`; check mode is supported."""
    return AnsibleModule(
        argument_spec={**CONNECTION_SPEC, **own}, supports_check_mode=True, **with_connection_rules(arguments)
    )


def with_connection_rules(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an AnsibleModule or an ArgumentSpecValidator with the rules for the connection options."""
    return {
        **arguments,
        "mutually_exclusive": [
            ONE_KIND_OF_CREDENTIALS,
            ("credentials", "nkey_seed", "password", "token"),
            *arguments.get("mutually_exclusive", ()),
        ],
        "required_together": [("tls_cert_file", "tls_key_file"), *arguments.get("required_together", ())],
    }


def run(module: AnsibleModule, work: Callable[[Client], dict[str, Any]]) -> None:
    """Connect, do the module's work, and leave with its result or with the failure in the common shape."""

    def connected(options: ConnectionOptions) -> dict[str, Any]:
        with Client(options) as client:
            return work(client)

    _run(module, connected)


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collect cyclic garbage less often meanwhile.

    A cluster's state is millions of values without cycles, and by default Python walks them again and again while they are
    read, which takes as long as reading them.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _run(module: AnsibleModule, work: Callable[[ConnectionOptions], dict[str, Any]]) -> None:
    try:
        options = resolve_connection(module.params, os.environ)
        module.no_log_values.update(secrets_of(options))
        with rare_collections():
            result = work(options)
    except MissingLibrary as missing:
        module.fail_json(msg=missing_required_lib(missing.library), exception=missing.trace)
    except NatsFailure as failure:
        fail(module, failure)
    else:
        module.exit_json(**result)


class Connections:
    """The connections of one run: the task's own user, and a user of each account of `account_users`; made on first use."""

    def __init__(self, options: ConnectionOptions, users: Mapping[str, ConnectionOptions]) -> None:
        self._options = options
        self._users = users
        self._clients: dict[str | None, Client] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def own(self) -> Client:
        """Return the connection of the task's own user."""
        return self._client(None, self._options)

    @property
    def accounts(self) -> tuple[str, ...]:
        """Return the names of the accounts that have a user."""
        return tuple(self._users)

    def account(self, name: str | None) -> JetStreamApi:
        """Return the JetStream API of an account, over the connection that `client` returns. Raises NatsFailure likewise."""
        return JetStreamApi(self.client(name), name)

    def client(self, name: str | None) -> Client:
        """Return the connection of an account's user, or for None that of the task's own user.

        Raises NatsFailure invalid_option when `account_users` names no user for it.
        """
        if name is None:
            return self.own
        if name not in self._users:
            there = ", ".join(self._users) or "none"
            raise NatsFailure(
                "invalid_option",
                f"account_users: no user for account {name} (there are users for: {there}); "
                "its streams and consumers can only be managed by one of its own users",
                account=name,
            )
        return self._client(name, self._users[name])

    def _client(self, key: str | None, options: ConnectionOptions) -> Client:
        if key not in self._clients:
            self._clients[key] = Client(options)
        return self._clients[key]


def run_unconnected(module: AnsibleModule, work: Callable[[ConnectionOptions], dict[str, Any]]) -> None:
    """As `run`, for modules whose very subject is whether one can connect: `work` gets the options."""
    _run(module, work)


def run_connected(module: AnsibleModule, work: Callable[[Connections], dict[str, Any]]) -> None:
    """As `run`, for modules with `account_users`."""

    def connected(own: ConnectionOptions) -> dict[str, Any]:
        users = account_users(own, module.params.get("account_users") or ())
        for options in users.values():
            module.no_log_values.update(secrets_of(options))
        with Connections(own, users) as connections:
            return work(connections)

    _run(module, connected)


def account_users(own: ConnectionOptions, entries: Sequence[Mapping[str, Any]]) -> dict[str, ConnectionOptions]:
    """Return how each account's user connects: as the task's own user does, with other credentials."""
    users: dict[str, ConnectionOptions] = {}
    for entry in entries:
        if entry["account"] in users:
            raise NatsFailure("invalid_option", f"account_users: two users for account {entry['account']}")
        users[entry["account"]] = as_user(own, entry)
    return users


def as_user(own: ConnectionOptions, credentials: Mapping[str, Any]) -> ConnectionOptions:
    """Return the connection with these credentials in place of its own."""
    given: dict[str, Any] = {option: credentials.get(option) for kind in _CREDENTIAL_KINDS for option in kind}
    return replace(own, **{**given, "nkey_seed": _read_nkey(given["nkey_seed"])})


@dataclass(frozen=True)
class Seen(Generic[T]):
    """The last reading of a wait, whether it is what was waited for, and the seconds that the wait took."""

    value: T
    done: bool
    waited: float


def wait_until(read: Callable[[], T], done: Callable[[T], bool], timeout: float, interval: float = 0.2) -> Seen[T]:
    """Read until `done`, or until `timeout` seconds have passed; there is always at least one reading.

    A reading that fails because nobody leads or the connection broke is repeated: servers that change leaders are
    silent for a moment. Raises its NatsFailure when that is still so at the deadline.
    """
    started = time.monotonic()
    while True:
        failure: NatsFailure | None = None
        try:
            value = read()
            if done(value):
                return Seen(value, True, round(time.monotonic() - started, 3))
        except NatsFailure as caught:
            if not passes(caught):
                raise
            failure = caught
        if time.monotonic() - started >= timeout:
            if failure is not None:
                raise failure
            return Seen(value, False, round(time.monotonic() - started, 3))
        time.sleep(interval)


def passes(failure: NatsFailure) -> bool:
    """Return whether a failure goes away by itself once a leader is elected or another server is connected to."""
    return failure.code in _PASSING or failure.err_code in _PASSING_ERR_CODES


def fail(module: AnsibleModule, failure: NatsFailure, **result: Any) -> None:
    """Leave with `msg` for people, `failure` for programs, and whatever else the module has to tell."""
    module.fail_json(msg=failure.description, failure=failure.as_dict(), **result)


def resolve_connection(params: Mapping[str, Any], environ: Mapping[str, str]) -> ConnectionOptions:
    """Return how to connect, each value from the first source that has it: option, environment, nats CLI context.

    Credentials are taken as a whole: the first source with any of them decides the kind (password, token, nkey,
    .creds file), so that an option is never mixed with a leftover of the environment. Raises NatsFailure with code
    invalid_option for a context that cannot be read or asks for something unsupported.
    """
    sources: list[dict[str, Any]] = [
        {option: params.get(option) for option, _env, _key in _SOURCES if params.get(option) not in (None, [])},
        {option: environ[env] for option, env, _key in _SOURCES if env and environ.get(env)},
        _read_context(params.get("context") or environ.get("NATS_CONTEXT"), environ),
    ]
    kind = _credential_kind(sources)
    values: dict[str, Any] = {}
    for option, _env, _key in _SOURCES:
        if option in kind or not any(option in names for names in _CREDENTIAL_KINDS):
            found = [source[option] for source in sources if option in source]
            values.update({option: found[0]} if found else {})
    return ConnectionOptions(
        servers=_server_list(values.pop("servers", DEFAULT_SERVER)),
        nkey_seed=_read_nkey(values.pop("nkey_seed", None)),
        tls_server_name=params.get("tls_server_name"),
        validate_certs=params["validate_certs"],
        tls_first=bool(values.pop("tls_first", False)),
        timeout=positive(params["timeout"], "timeout"),
        **{option: _expand(option, value) for option, value in values.items()},
    )


def secrets_of(options: ConnectionOptions) -> set[str]:
    """Return every secret of the connection, from whatever source, for masking in the module's output."""
    found = {str(getattr(options, name)) for name in _SECRETS if getattr(options, name)}
    for server in options.servers:
        credentials = server.rpartition("@")[0].rpartition("//")[2]
        if credentials:
            found.add(credentials.partition(":")[2] or credentials)
    return found


def _credential_kind(sources: list[dict[str, Any]]) -> tuple[str, ...]:
    for source in sources:
        for kind in _CREDENTIAL_KINDS:
            if any(option in source for option in kind):
                return kind
    return ()


def _server_list(value: Any) -> tuple[str, ...]:
    servers = value.split(",") if isinstance(value, str) else [part for item in value for part in str(item).split(",")]
    found = tuple(server.strip() for server in servers if server.strip())
    if not found:
        raise NatsFailure("invalid_option", "servers: no address in it")
    return found


def positive(value: float, option: str) -> float:
    """Return a number of seconds. Raises NatsFailure invalid_option when it is not more than 0."""
    if value <= 0:
        raise NatsFailure("invalid_option", f"{option}: must be more than 0 seconds, not {value:g}")
    return value


def _expand(option: str, value: Any) -> Any:
    """Return file options with ~ expanded: the environment and context files are not seen by Ansible's path type."""
    if option == "credentials" or option.endswith("_file"):
        return os.path.expanduser(os.path.expandvars(str(value)))
    return value


def _read_nkey(value: str | None) -> str | None:
    """Return the nkey seed itself; the nats CLI passes the path of a file that holds it."""
    if value is None or (value.startswith("SU") and len(value) >= 58 and value.isalnum()):
        return value
    path = Path(os.path.expanduser(value))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NatsFailure(
            "invalid_option", "nkey_seed: neither the seed of a user (SU...) nor the path of a readable file with one"
        ) from error
    seeds = [line.strip() for line in text.splitlines() if line.strip().startswith("SU")]
    if not seeds:
        raise NatsFailure("invalid_option", f"nkey_seed: no seed of a user (SU...) in {path}")
    return seeds[0]


def _read_context(name: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that a nats CLI context sets: a name under $XDG_CONFIG_HOME/nats/context, or a path."""
    if not name:
        return {}
    if os.sep in name or name.endswith(".json"):
        path = Path(os.path.expanduser(name))
    else:
        base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", os.path.expanduser("~")), ".config")
        path = Path(base, "nats", "context", f"{name}.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NatsFailure("invalid_option", f"context {name}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise NatsFailure("invalid_option", f"context {name}: {path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise NatsFailure("invalid_option", f"context {name}: {path} is not a JSON object")
    unsupported = [key for key in _UNSUPPORTED_IN_CONTEXT if content.get(key)]
    if unsupported:
        raise NatsFailure("invalid_option", f"context {name}: {', '.join(unsupported)} in {path} is not supported")
    return {option: content[key] for option, _env, key in _SOURCES if content.get(key)}
