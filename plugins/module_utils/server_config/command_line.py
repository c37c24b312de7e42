# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration that a nats-server has loaded: its file, overridden by its command-line flags. Pure: no I/O.

A flag overrides the file, even at every reload (server/opts.go MergeOptions), and is not part of the configuration's
digest. Some values have a special form in a file (server/opts.go): a quoted size of JetStream's own limits is binary, a
list of accounts names accounts without users, and the store may be outside the jetstream block. These values are
returned in the schema's usual format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .reading import Block
from .schema import SCHEMA, Key
from .syntax import Note, Path, examine

# The flags that set one key, by all of their names.
_KEYS: dict[str, Path] = {
    **dict.fromkeys(("a", "addr", "net"), ("host",)),
    **dict.fromkeys(("p", "port"), ("port",)),
    **dict.fromkeys(("n", "name", "server_name"), ("server_name",)),
    **dict.fromkeys(("P", "pid"), ("pid_file",)),
    **dict.fromkeys(("m", "http_port"), ("http_port",)),
    **dict.fromkeys(("ms", "https_port"), ("https_port",)),
    **dict.fromkeys(("l", "log"), ("log_file",)),
    **dict.fromkeys(("r", "remote_syslog"), ("remote_syslog",)),
    **dict.fromkeys(("sd", "store_dir"), ("jetstream", "store_dir")),
    "client_advertise": ("client_advertise",),
    "cluster_name": ("cluster", "name"),
    "cluster_advertise": ("cluster", "advertise"),
    "ports_file_dir": ("ports_file_dir",),
}
_SWITCHES: dict[str, tuple[Path, ...]] = {
    **dict.fromkeys(("D", "debug"), (("debug",),)),
    **dict.fromkeys(("V", "trace"), (("trace",),)),
    "VV": (("trace",), ("trace_verbose",)),
    "DV": (("debug",), ("trace",)),
    "DVV": (("debug",), ("trace",), ("trace_verbose",)),
    **dict.fromkeys(("T", "logtime"), (("logtime",),)),
    **dict.fromkeys(("s", "syslog"), (("syslog",),)),
    **dict.fromkeys(("js", "jetstream"), (("jetstream", "enabled"),)),
}
# Keys of the file that a flag replaces.
_INSTEAD: dict[Path, tuple[str, ...]] = {
    ("host",): ("listen",),
    ("port",): ("listen",),
    ("http_port",): ("http", "https", "https_port"),
    ("https_port",): ("http", "https", "http_port"),
}
_ACCOUNTS = SCHEMA.children["accounts"]
_JETSTREAM = SCHEMA.children["jetstream"]
_STORAGE_SIZE = re.compile(r"([+-]?\d+)([KMGT])", re.ASCII)
_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}


class Loaded(NamedTuple):
    """The loaded configuration of a process, in the schema's format, and notes on the parts that could not be read."""

    config: dict[str, Any]
    notes: list[Note]
    flags: list[str]
    unknown_flags: list[str]


def loaded_config(config: Block, argv: Sequence[str]) -> Loaded:
    """Return the loaded configuration of a process with this command line, given its file as `config`."""
    normal, notes = examine(_in_usual_form(_without_variables(config, SCHEMA)))
    flags, unknown = _flags(argv)
    for path, value in flags:
        for instead in _INSTEAD.get(path, ()):
            _replace(normal, instead, path)
        block = normal
        for part in path[:-1]:
            inner = block.get(part)
            if not isinstance(inner, dict):
                inner = block[part] = {}
            block = inner
        block[path[-1]] = value
    if isinstance(normal.get("jetstream"), dict) and any(path == ("jetstream", "enabled") for path, _value in flags):
        normal["jetstream"].pop("disabled", None)
    normal, more = examine(normal)
    return Loaded(normal, [*notes, *more], [".".join(path) for path, _value in flags], unknown)


def _replace(config: dict[str, Any], key: str, path: Path) -> None:
    """Remove a key that a flag replaces; if it is one half of an address, the other half stays."""
    value = config.pop(key, None)
    if key == "listen" and value is not None:
        host, _colon, port = str(value).rpartition(":")
        config.setdefault("host", host.strip("[]") or None)
        config.setdefault("port", int(port) if port.isdigit() else None)


def _flags(argv: Sequence[str]) -> tuple[list[tuple[Path, Any]], list[str]]:
    found: list[tuple[Path, Any]] = []
    unknown = []
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            unknown.append("an argument without a flag")
        elif name in ("c", "config"):
            if not equals and words:
                words.pop(0)
        elif name in _SWITCHES:
            found += [(path, value.lower() not in ("false", "0", "f") if equals else True) for path in _SWITCHES[name]]
        elif name in _KEYS:
            found.append((_KEYS[name], value if equals else words.pop(0) if words else ""))
        else:
            # The flag's value may be a secret.
            unknown.append(f"-{name}")
            if not equals and words and not words[0].startswith("-"):
                words.pop(0)
    return found, unknown


def _without_variables(value: Any, key: Key | None) -> Any:
    """Return the value without keys that only define a variable: keys unknown to nats-server and, in the accounts
    block, all such keys."""
    if isinstance(value, list):
        return [_without_variables(item, key) for item in value]
    if not isinstance(value, Block):
        return value
    found = {}
    for name, item in value.items():
        child = key.child(key.canonical(name)) if key else None
        is_key = child is not None and key is not _ACCOUNTS
        if is_key or name not in value.variables:
            found[name] = _without_variables(item, child)
    return found


def _in_usual_form(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with binary sizes as numbers, accounts as blocks, and the store inside the jetstream
    block."""
    found = dict(config)
    for name, value in config.items():
        key = SCHEMA.canonical(name)
        if key == "accounts" and isinstance(value, list) and all(isinstance(item, str) for item in value):
            found[name] = {item: {} for item in value}
        elif key == "jetstream" and isinstance(value, Mapping):
            found[name] = {option: _storage_size(option, item) for option, item in value.items()}
    store = next((name for name in found if SCHEMA.canonical(name) == "store_dir"), None)
    jetstream = next((name for name in found if SCHEMA.canonical(name) == "jetstream"), None)
    if store and jetstream:
        block = found[jetstream]
        if isinstance(block, Mapping):
            found[jetstream] = {**block, "store_dir": found.pop(store)}
        elif block is True or str(block).lower() in ("enabled", "enable"):
            found[jetstream] = {"store_dir": found.pop(store)}
    return found


def _storage_size(option: str, value: Any) -> Any:
    """Return a quoted size in bytes, as nats-server's getStorageSize computes it; return any other value unchanged."""
    key = _JETSTREAM.child(_JETSTREAM.canonical(option))
    match = _STORAGE_SIZE.fullmatch(value) if isinstance(value, str) and key and "size" in key.types else None
    return int(match[1]) << _SHIFTS[match[2]] if match else value
