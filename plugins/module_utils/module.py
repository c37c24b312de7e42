# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code that all modules share.

The code defines the connection arguments and their sources, the format of a failure, and the frames in which modules
run.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, NoReturn, TypeVar

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from .accounts.minted_logins import account_logins, system_login
from .collection_module import CollectionModule
from .nats.accounts import CREDENTIAL_KINDS, MINTING_OPTIONS, Connections, read_nkey
from .nats.client import Client, ConnectionOptions, MissingLibrary, NatsFailure
from .screen import counted_warnings, printable
from .waiting import positive

M = TypeVar("M", bound=AnsibleModule)
T = TypeVar("T")

# At exit, Python traverses all objects to find cycles; in a short run, this takes a quarter of the time.
atexit.register(gc.freeze)

DEFAULT_SERVER = "nats://127.0.0.1:4222"

CREDENTIAL_SPEC: dict[str, dict[str, Any]] = {
    "user": {"type": "str"},
    "password": {"type": "str", "no_log": True},
    "token": {"type": "str", "no_log": True},
    "nkey_seed": {"type": "str", "no_log": True},
    "credentials": {"type": "path"},
}
ONE_KIND_OF_CREDENTIALS = ("credentials", "nkey_seed", "user", "token")
#: A .creds file and a user with a password may be combined, because a server accepts only one of the two.
EXCLUSIVE_CREDENTIALS: tuple[tuple[str, ...], ...] = (
    ("credentials", "nkey_seed", "token"),
    ("nkey_seed", "user", "token"),
)

#: For modules that manage the assets of accounts; see doc_fragments/accounts.py.
ACCOUNT_USERS_SPEC: dict[str, dict[str, Any]] = {
    "account_users": {
        "type": "list",
        "elements": "dict",
        "options": {
            "account": {"type": "str", "required": True},
            **CREDENTIAL_SPEC,
            "account_seed": {"type": "str", "no_log": True},
            "key_directory": {"type": "path", "no_log": False},
            "inbox_prefix": {"type": "str"},
        },
        "mutually_exclusive": [(*kinds, *MINTING_OPTIONS) for kinds in EXCLUSIVE_CREDENTIALS],
        "required_one_of": [(*ONE_KIND_OF_CREDENTIALS, *MINTING_OPTIONS)],
    },
}
ACCOUNT_SPEC: dict[str, dict[str, Any]] = {"account": {"type": "str"}, **ACCOUNT_USERS_SPEC}

CONNECTION_SPEC: dict[str, dict[str, Any]] = {
    "servers": {"type": "list", "elements": "str"},
    **CREDENTIAL_SPEC,
    "account_seed": {"type": "str", "no_log": True},
    "account_key": {"type": "str", "no_log": False},
    "tls_ca_file": {"type": "path"},
    "tls_cert_file": {"type": "path"},
    "tls_key_file": {"type": "path"},
    "tls_server_name": {"type": "str"},
    "validate_certs": {"type": "bool", "default": True},
    "tls_first": {"type": "bool"},
    "timeout": {"type": "float", "default": 5.0},
    "inbox_prefix": {"type": "str"},
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


#: Keys of a context that affect the connection but are not supported here.
_UNSUPPORTED_IN_CONTEXT = ("nsc", "socks_proxy", "user_jwt", "user_seed", "windows_cert_store")


def make_module(own: Mapping[str, Mapping[str, Any]], **arguments: Any) -> AnsibleModule:
    """Return the AnsibleModule with the connection options and the module's `own`; check mode is supported."""
    return CollectionModule(
        argument_spec={**CONNECTION_SPEC, **own}, supports_check_mode=True, **with_connection_rules(arguments)
    )


def with_connection_rules(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an AnsibleModule or an ArgumentSpecValidator with the rules for the connection options."""
    return {
        **arguments,
        "mutually_exclusive": [
            *((*kinds, "account_seed") for kinds in EXCLUSIVE_CREDENTIALS),
            ("nkey_seed", "password", "token", "account_seed"),
            *arguments.get("mutually_exclusive", ()),
        ],
        "required_together": [
            ("tls_cert_file", "tls_key_file"),
            ("account_seed", "account_key"),
            *arguments.get("required_together", ()),
        ],
    }


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Make the garbage collector run less often in this context.

    A cluster's state is millions of values without cycles. By default Python traverses them repeatedly during reading,
    which doubles the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def without_connection(module: M) -> Iterator[M]:
    """The frame of `run` for work that needs no connection; as in all frames of this file, a NatsFailure and a missing
    library end the module with a failure in the common format."""
    try:
        yield module
    except MissingLibrary as missing:
        module.fail_json(msg=missing_required_lib(missing.library), exception=missing.trace)
    except NatsFailure as failure:
        fail(module, failure)


@contextlib.contextmanager
def with_options(module: AnsibleModule) -> Iterator[ConnectionOptions]:
    """The frame of `run` for work that tests the connection itself, opens several, or continues without one."""
    with without_connection(module):
        options = resolve_connection(module.params, os.environ)
        module.no_log_values.update(known_secrets(options))
        with gc_paused():
            yield options


@contextlib.contextmanager
def with_client(module: AnsibleModule) -> Iterator[Client]:
    """The frame of `run` for work that uses one connection."""
    with with_options(module) as options, Client(options) as client:
        yield client


@contextlib.contextmanager
def with_accounts(module: AnsibleModule) -> Iterator[Connections]:
    """The frame of `run` for work that uses the connections of `account_users`."""
    with with_options(module) as own, _account_connections(module, own) as connections:
        yield connections


class ClientAndAccounts(NamedTuple):
    """A connection, and a function that returns the connections of the accounts' users. Its first call mints users."""

    client: Client
    accounts: Callable[[], Connections]


@contextlib.contextmanager
def with_client_and_accounts(module: AnsibleModule) -> Iterator[ClientAndAccounts]:
    """The frame of `run` for work that uses one connection, and rarely those of `account_users`."""
    with with_options(module) as own, contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(own))
        yield ClientAndAccounts(client, lru_cache(lambda: stack.enter_context(_account_connections(module, own))))


def read_if_possible(options: ConnectionOptions, read: Callable[[Client], T]) -> tuple[T | None, str]:
    """Return the result of `read`, or None and the reason why it could not be read."""
    try:
        with Client(options) as client:
            return read(client), ""
    except NatsFailure as failure:
        return None, failure.description
    except MissingLibrary as missing:
        return None, missing_required_lib(missing.library)


def _account_connections(module: AnsibleModule, own: ConnectionOptions) -> Connections:
    """Return the connections of `account_users`, and mask their secrets in the module's output. Raises NatsFailure."""
    logins = account_logins(own, module.params.get("account_users") or ())
    for user in logins.users.values():
        module.no_log_values.update(known_secrets(user.options))
    return Connections(own, logins.users, logins.unusable)


def fail(module: AnsibleModule, failure: NatsFailure, **result: Any) -> NoReturn:
    """End the module with `msg` for operators, `failure` for programs, and the result's other keys."""
    module.fail_json(msg=printable(failure.description), failure=failure.as_dict(), **result)
    raise AssertionError("fail_json leaves the module")  # older releases of ansible-core do not declare it as NoReturn


def warn_of_caveats(module: AnsibleModule, rows: Iterable[Mapping[str, Any]], name: str = "label") -> None:
    """Warn of the `caveats` of streams, once for each text. `name`: the key of a stream's name."""
    for warning in counted_warnings((row[name], caveat) for row in rows for caveat in row["caveats"]):
        module.warn(warning)


def resolve_connection(params: Mapping[str, Any], environ: Mapping[str, str]) -> ConnectionOptions:
    """Return the connection options. Each value comes from the first source that has it, in the order option,
    environment, nats CLI context.

    Credentials of different sources are never mixed: the first source with any credentials determines the kind
    (password, token, nkey, .creds file), so an option is not combined with a remnant of the environment. A source may
    combine a .creds file and a user with a password. Raises NatsFailure with code invalid_option if a context is
    unreadable or requires an unsupported feature. With `account_seed`, which only an option can set, the login is a
    user of the system account that is minted here.
    """
    sources: list[dict[str, Any]] = [
        {option: params.get(option) for option, _env, _key in _SOURCES if params.get(option) not in (None, [])},
        {option: environ[env] for option, env, _key in _SOURCES if env and environ.get(env)},
        _read_context(params.get("context") or environ.get("NATS_CONTEXT"), environ),
    ]
    seed = params.get("account_seed")
    kind = () if seed else _credential_kind(sources)
    values: dict[str, Any] = {}
    for option, _env, _key in _SOURCES:
        if option in kind or not any(option in names for names in CREDENTIAL_KINDS):
            found = [source[option] for source in sources if option in source]
            values.update({option: found[0]} if found else {})
    own = ConnectionOptions(
        servers=_server_list(values.pop("servers", DEFAULT_SERVER)),
        nkey_seed=read_nkey(values.pop("nkey_seed", None)),
        tls_server_name=params.get("tls_server_name"),
        validate_certs=params["validate_certs"],
        tls_first=bool(values.pop("tls_first", False)),
        timeout=positive(params["timeout"], "timeout"),
        **{option: _expand(option, value) for option, value in values.items()},
    )
    return system_login(own, seed, params.get("account_key")) if seed else own


def known_secrets(options: ConnectionOptions) -> set[str]:
    """Return every secret of the connection, from any source, for masking in the module's output."""
    found = {str(getattr(options, name)) for name in _SECRETS if getattr(options, name)}
    for server in options.servers:
        credentials = server.rpartition("@")[0].rpartition("//")[2]
        if credentials:
            found.add(credentials.partition(":")[2] or credentials)
    return found


def _credential_kind(sources: list[dict[str, Any]]) -> tuple[str, ...]:
    for source in sources:
        for kind in CREDENTIAL_KINDS:
            if any(option in source for option in kind):
                both = kind == ("credentials",) and "user" in source and "password" in source
                return (*kind, "user", "password") if both else kind
    return ()


def _server_list(value: Any) -> tuple[str, ...]:
    servers = value.split(",") if isinstance(value, str) else [part for item in value for part in str(item).split(",")]
    found = tuple(server.strip() for server in servers if server.strip())
    if not found:
        raise NatsFailure("invalid_option", "servers: the list has no address")
    return found


def _expand(option: str, value: Any) -> Any:
    """Return the value, with ~ expanded in file options: Ansible's path type does not see values from the environment
    and context files."""
    if option == "credentials" or option.endswith("_file"):
        return os.path.expanduser(os.path.expandvars(str(value)))
    return value


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
