# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of a host's nats-server as one text without secrets, and the files that the configuration names.

The server may be managed by the role or not. Secrets are identified by the keys of the parsed configuration, so they
are found in every notation and every included file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..redaction import MARK, SHORTEST, Redactor
from ..server_config.command_line import loaded_config
from ..server_config.reading import ConfigSyntaxError, read_config
from ..server_config.syntax import ConfigError, Leaf, is_secret, leaves, show, transform, write
from .process import find_server, parse_environment


@dataclass(frozen=True)
class OwnConfig:
    """`text` has no comments, and a variable instead of each secret, so no server starts with it. `secrets` are the
    secret values. `unread`: keys whose values could not be parsed and are therefore missing from the text. `config` is
    in the schema's format and contains secrets. `directory`: the base of its relative paths."""

    text: str
    secrets: frozenset[str]
    unread: tuple[str, ...]
    config: dict[str, Any] = field(repr=False)
    directory: str


class _Environment(dict[str, str]):
    """The environment of the process. A reference to a variable outside it stays unchanged."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return f"'${name}'"


def own_config(path: str) -> OwnConfig:
    """Return the configuration in a file and its includes. Raises ConfigSyntaxError if it is invalid, or ProcessError."""
    server = find_server(path)
    environment = _Environment(parse_environment(server.pid) if server else {})
    reading = read_config(os.path.abspath(path), _text, environment)
    loaded = loaded_config(reading.config, [])
    secrets = frozenset(leaf.value for leaf in leaves(loaded.config) if is_secret(leaf))
    long = {secret for secret in secrets if len(secret) >= SHORTEST}

    def hidden(leaf: Leaf) -> Any:
        if isinstance(leaf.value, str) and not is_secret(leaf) and any(secret in leaf.value for secret in long):
            return MARK
        return leaf.value

    try:
        text = write(transform(loaded.config, hidden), reference=True) + "\n"
    except ConfigError as error:
        raise ConfigSyntaxError(f"{path}: {error}") from None
    unread = tuple(show(note.path) for note in loaded.notes if note.is_error)
    directory = os.path.realpath(f"/proc/{server.pid}/cwd") if server else os.path.dirname(os.path.abspath(path))
    return OwnConfig(text, secrets, unread, loaded.config, directory)


def own_files(path: str) -> tuple[dict[str, str], list[str]]:
    """Return a host's files for the backup of the cluster by name, and the reasons why other files are missing. The
    files are the configuration, the CA certificates that it names, and the JWTs of its resolver. Raises ProcessError.
    """
    if not os.path.exists(path):
        return {}, [f"{path} does not exist"]
    try:
        own = own_config(path)
    except ConfigSyntaxError as error:
        return {}, [f"{error}: its secrets are unknown, so it was left out"]
    problems = [f"{path}: {key} was not recognised and was left out" for key in own.unread]
    found = {os.path.basename(path): own.text}
    redactor = Redactor(own.secrets)
    for source in (*_authorities(own), *_jwts(own)):
        try:
            text = Path(source).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            problems.append(f"{source}: {error.strerror}")
            continue
        name = os.path.basename(source)
        # A bundle of certificates may contain a private key.
        found[name if name not in found else source.strip("/")] = text if name.endswith(".jwt") else redactor.text(text)
    return found, problems


def _authorities(own: OwnConfig) -> list[str]:
    named = [leaf.value for leaf in leaves(own.config) if leaf.path[-1] == "ca_file" and isinstance(leaf.value, str)]
    return list(dict.fromkeys(os.path.join(own.directory, path) for path in named))


def _jwts(own: OwnConfig) -> list[str]:
    resolver = own.config.get("resolver")
    directory = str(resolver.get("dir") or "") if isinstance(resolver, dict) else ""
    return sorted(map(str, Path(own.directory, directory).rglob("*.jwt"))) if directory else []


def _text(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8", "surrogateescape")
