# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a nats-server has loaded: its configuration file, under the flags of its command line. Pure: no I/O.

A flag overrides the file, also at every reload (server/opts.go MergeOptions), and is in no digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import SCHEMA, Key
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import Note, Path, examine

# The flags that mean one key, by any of their names.
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
# What a flag takes the place of, in the file.
_INSTEAD: dict[Path, tuple[str, ...]] = {
    ("host",): ("listen",),
    ("port",): ("listen",),
    ("http_port",): ("http", "https", "https_port"),
    ("https_port",): ("http", "https", "http_port"),
}


class Loaded(NamedTuple):
    """What a process has loaded, in the schema's form, and what of it was not understood."""

    config: dict[str, Any]
    notes: list[Note]
    flags: list[str]
    unknown_flags: list[str]


def loaded_config(config: Mapping[str, Any], variables: Sequence[str], argv: Sequence[str]) -> Loaded:
    """Return what a process with this command line has loaded of a file.

    `variables`: the names that the file itself refers to, which nats-server takes for no keys where it does not know them.
    """
    known = _without_variables(config, SCHEMA, frozenset(variables))
    normal, notes = examine(known)
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
    """Remove a key for which a flag stands in; of an address the other half stays."""
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
            # Its value may be a secret.
            unknown.append(f"-{name}")
            if not equals and words and not words[0].startswith("-"):
                words.pop(0)
    return found, unknown


def _without_variables(value: Any, key: Key | None, names: frozenset[str]) -> Any:
    if isinstance(value, list):
        return [_without_variables(item, key, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, item in value.items():
        child = key.child(key.canonical(str(name))) if key else None
        if child is not None or name not in names:
            found[name] = _without_variables(item, child, names)
    return found
