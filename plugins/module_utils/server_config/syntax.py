# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a structured configuration in nats-server's own syntax. Pure: no I/O.

The syntax is defined by nats-server's conf/lex.go and conf/parse.go. Three rules determine the output: an unquoted word
may be a variable, a number with a suffix, a date or a boolean, so every string is quoted; inside double quotes only
`\\\\ \\" \\n \\r \\t \\xNN` are escapes; a quoted *key* has no escapes at all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from ..units import duration_seconds, size_bytes
from .schema import SCHEMA, Key

Path = tuple[str, ...]  # an element of a list is written "[identity]"

LINE_LENGTH = 100
_KNOWN_NAMES = {key.name for _path, key in SCHEMA.walk()}
_PLAIN_KEY = re.compile(r"[$A-Za-z0-9_][A-Za-z0-9_.-]*")
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SECRET_NAME = re.compile(r"pass(word)?$|token$|secret|seed$|credential|(^|_)e?key$")
_URL_WITH_CREDENTIALS = re.compile(r"[^/]*://[^/]*@")


class ConfigError(ValueError):
    """A value that nats-server's configuration cannot contain; `path` is its location."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = show(path)
        super().__init__(f"{self.path or 'configuration'}: {problem}")


class _Bare(str):
    """Text to write without quotes, such as a size or a variable reference."""


class Leaf(NamedTuple):
    """A scalar of a configuration: its path, its key in the schema (None if unknown), and its value."""

    path: Path
    key: Key | None
    value: Any


def show(path: Path) -> str:
    """Return a path for operators: `accounts.APP.users[alice].password`."""
    return "".join(part if part.startswith("[") else f".{part}" for part in path).lstrip(".")


# --- Values ---------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is a boolean where text is expected: quote it")
    return str(value)


def _secret_text(value: Any) -> str:
    if isinstance(value, float):
        raise ValueError("a number with a fraction or an exponent does not keep its notation: quote it")
    return _text(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not _INTEGER.fullmatch(str(value).strip()):
        raise ValueError(f"{value!r} is not an integer")
    return int(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = _WORDS.get(str(value).strip().lower())
    if word is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return word


def _number(value: Any) -> float:
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value).strip()):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _duration(value: Any) -> str:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a duration such as 30s")
    text = str(value).strip()
    duration_seconds(text)
    return f"{text}s" if _NUMBER.fullmatch(text) else text


def _in_seconds(value: Any) -> int | float:
    seconds = duration_seconds(value if isinstance(value, (int, float)) else str(value).strip())
    return int(seconds) if seconds == int(seconds) else seconds


def _size(value: Any) -> int | str:
    text = str(value).strip()
    if isinstance(value, bool):
        raise ValueError("a boolean is not a size such as 10GB")
    size_bytes(text)
    return int(text) if _INTEGER.fullmatch(text) else text.replace(" ", "")


def _integer_or_text(value: Any) -> int | str:
    text = _text(value)
    return int(text) if _INTEGER.fullmatch(text) else text


def _switch(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _anything(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    return str(value)


_COERCE: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "strings": _text,
    "int": _integer,
    "bool": _boolean,
    "float": _number,
    "duration": _duration,
    "durations": _duration,
    "seconds": _in_seconds,
    "size": _size,
    "intstr": _integer_or_text,
    "switch": _switch,
    "any": _anything,
}
_LISTS = {"strings", "durations"}
_TEXT = {"string", "any", "intstr"}


# --- From user input to one canonical form ---------------------------------------------------------------------------


class Note(NamedTuple):
    """A note about a configuration: an error, or the interpretation of a value."""

    path: Path
    is_error: bool
    text: str


def normalise(config: Mapping[str, Any], path: Path = ()) -> dict[str, Any]:
    """Return the configuration with canonical key names in schema order, nulls dropped, and values of the schema's
    types.

    `path` is the location of the mapping in the complete configuration. An empty string as the value of a named key is
    dropped like a null: nats-server treats the key as absent, and older versions of Ansible convert a null to an empty
    string. Raises ConfigError.
    """
    normal, notes = examine(config, path)
    for note in notes:
        if note.is_error:
            raise ConfigError(note.path, note.text)
    return normal


def examine(config: Mapping[str, Any], path: Path = ()) -> tuple[dict[str, Any], list[Note]]:
    """Like normalise, but return a note for every error, whose value is omitted, and for each assumed unit."""
    if not isinstance(config, Mapping):
        return {}, [Note(path, True, "a mapping is expected")]
    normaliser = _Normaliser()
    return normaliser.mapping(config, key_at(path), path), normaliser.notes


def key_at(path: Path) -> Key | None:
    """Return the schema's key for a path, or None if any part of it is unknown."""
    key: Key | None = SCHEMA
    for part in path:
        if key is not None and not part.startswith("["):
            key = key.child(key.canonical(part))
    return key


def identity(item: Any, index: int, key: Key | None) -> str:
    """Return the identity of a list's element for use in a path: its user or name, which reordering does not change,
    otherwise its index."""
    if isinstance(item, Mapping) and key:
        by_name = {key.canonical(str(name)): value for name, value in item.items()}
        for name in ("user", "nkey", "name"):
            if name in key.children and not key.children[name].secret and by_name.get(name):
                return f"[{by_name[name]}]"
    return f"[{index}]"


class _Normaliser:
    def __init__(self) -> None:
        self.notes: list[Note] = []

    def mapping(self, value: Mapping[Any, Any], key: Key | None, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        given_as: dict[str, str] = {}
        for raw_name, item in value.items():
            written = str(raw_name)
            name = key.canonical(written) if key else written
            here = (*path, name)
            normal = self._value(item, key.child(name) if key else None, here)
            if normal is None or (normal == "" and key is not None and name in key.children):
                continue
            if name in found:
                self._error(here, f"is set twice, as {given_as[name]!r} and as {written!r}")
            found[name], given_as[name] = normal, written
        if key is None:
            return found
        order = {name: number for number, name in enumerate(key.children)}
        return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))

    def _value(self, value: Any, key: Key | None, path: Path) -> Any:
        if value is None:
            return None
        if isinstance(value, Mapping):
            if key and not {"block", "map", "any"} & set(key.types):
                return self._error(path, f"expected {_expected(key)}, not a mapping")
            return self.mapping(value, key if key and key.children else None, path)
        if isinstance(value, (list, tuple, set)):
            return self._list(list(value), key, path)
        if key is None:
            return _anything(value)
        if key.types[0] in _LISTS and value != "":
            value = self._scalar(value, key, path)
            return None if value is None else [value]
        return self._scalar(value, key, path)

    def _list(self, value: list[Any], key: Key | None, path: Path) -> Any:
        if key and not ({"block", "any"} | _LISTS) & set(key.types):
            return self._error(path, f"expected {_expected(key)}, not a list")
        items = []
        for index, item in enumerate(value):
            here = (*path, identity(item, index, key))
            if isinstance(item, Mapping) or key is None:
                items.append(self._value(item, key, here))
            elif isinstance(item, (list, tuple)):
                self._error(here, "a list is not allowed inside this list")
            elif item is not None:
                items.append(self._scalar(item, key, here, in_list=True))
        return [item for item in items if item is not None]

    def _scalar(self, value: Any, key: Key, path: Path, in_list: bool = False) -> Any:
        types = [kind for kind in key.types if kind in _COERCE] or (["string"] if in_list else [])
        if value == "" and not in_list:
            return "" if _TEXT & set(types) else None
        problem = f"{_expected(key)} is expected"
        for kind in types:
            try:
                normal = _secret_text(value) if key.secret else _COERCE[kind](value)
            except ValueError as error:
                problem = str(error)
                continue
            if kind == "duration" and normal != str(value).strip():
                self.notes.append(Note(path, False, f"{value!r} has no unit: seconds are assumed, as in {normal!r}"))
            return normal
        return self._error(path, problem)

    def _error(self, path: Path, problem: str) -> None:
        self.notes.append(Note(path, True, problem))


def _expected(key: Key) -> str:
    return " or ".join(
        "a block of keys" if kind in ("block", "map") else f"a value of type {kind}" for kind in key.types
    )


# --- Scalars, secrets -----------------------------------------------------------------------------------------------


def transform(config: Mapping[str, Any], change: Callable[[Leaf], Any], path: Path = ()) -> dict[str, Any]:
    """Return a copy of a normalised configuration with every scalar replaced by the result of `change`."""

    def walk(value: Any, key: Key | None, here: Path) -> Any:
        if isinstance(value, Mapping):
            inner = key if key and key.children else None
            return {
                name: walk(item, inner.child(name) if inner else None, (*here, name)) for name, item in value.items()
            }
        if isinstance(value, list):
            return [walk(item, key, (*here, identity(item, index, key))) for index, item in enumerate(value)]
        return change(Leaf(here, key, value))

    return walk(config, key_at(path), path)


def leaves(config: Mapping[str, Any], path: Path = ()) -> list[Leaf]:
    """Return every scalar of a normalised configuration."""
    found: list[Leaf] = []
    transform(config, found.append, path)
    return found


def is_secret(leaf: Leaf) -> bool:
    """Return whether a scalar must not be shown: if the schema marks it as secret, if it is a URL with credentials, or
    if it is an unknown key whose name indicates a secret."""
    if not isinstance(leaf.value, str):
        return False
    if leaf.key is None:
        name = next((part for part in reversed(leaf.path) if not part.startswith("[")), "")
        return bool(_SECRET_NAME.search(name.lower()) or _URL_WITH_CREDENTIALS.match(leaf.value))
    return leaf.key.secret or (leaf.key.url and bool(_URL_WITH_CREDENTIALS.match(leaf.value)))


def secret_name(path: Path) -> str:
    """Return the name of the variable for the secret at that path. The name depends only on the path, and no two paths
    share a name.

    The name has only letters, digits and underscores; if this removed characters of the path, a part of the path's hash
    is appended.
    """
    parts = [part.strip("[]") if part.startswith("[") else part for part in path]
    name = "SECRET_" + "_".join(re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_") for part in parts)
    if all(part in _KNOWN_NAMES or re.fullmatch(r"[A-Za-z0-9]+", part) for part in parts):
        return name
    return f"{name}_{hashlib.sha256(show(path).encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def secrets(config: Mapping[str, Any], path: Path = ()) -> dict[str, str]:
    """Return every secret of the configuration, by the name of its variable. Raises ConfigError."""
    found: dict[str, str] = {}
    for leaf in leaves(normalise(config, path), path):
        if is_secret(leaf):
            name = secret_name(leaf.path)
            if found.setdefault(name, leaf.value) != leaf.value:
                raise ConfigError(leaf.path, "is set twice with different values")
    return found


# --- To text --------------------------------------------------------------------------------------------------------


def write(config: Mapping[str, Any], path: Path = (), reference: bool = False, indent: int = 0) -> str:
    """Return the configuration's text, without a final newline; if `reference` is set, secrets are written as
    variables. Raises ConfigError."""

    def bare(leaf: Leaf) -> Any:
        if reference and is_secret(leaf):
            return _Bare("$" + secret_name(leaf.path))
        if leaf.key and "size" in leaf.key.types and isinstance(leaf.value, str):
            return _Bare(leaf.value)
        return leaf.value

    return "\n".join(_lines(transform(normalise(config, path), bare, path), " " * indent, path))


def write_secrets(config: Mapping[str, Any], path: Path = ()) -> str:
    """Return the lines that define the variables to which `write(…, reference=True)` refers."""
    return "\n".join(f"{name}: {quote(value, (name,))}" for name, value in secrets(config, path).items())


def read_secrets(text: str) -> dict[str, str]:
    """Return the variables in a text that write_secrets wrote; lines of any other format are skipped."""
    found = {}
    for line in text.split("\n"):
        match = re.fullmatch(r'(SECRET_\w+): "((?:[^"\\]|\\.)*)"', line)
        if match:
            found[match[1]] = _unquote(match[2])
    return found


def quote(text: str, path: Path = ()) -> str:
    """Return a string in double quotes, with nats-server's escapes."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(path, "is not valid Unicode text") from None
    return (
        '"' + "".join(escapes.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c) for c in text) + '"'
    )


def _unquote(text: str) -> str:
    plain = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(
        r"\\(x[0-9a-f]{2}|.)", lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 3 else plain.get(m[1], m[1]), text
    )


def write_key(name: str, path: Path = ()) -> str:
    """Return a key in nats-server's syntax: bare if that is safe, otherwise in quotes of a kind that the key does not
    contain."""
    if _PLAIN_KEY.fullmatch(name):
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(path, "the key is not valid Unicode text") from None
    if "\0" not in name:
        for mark in "\"'":
            if mark not in name:
                return f"{mark}{name}{mark}"
        if not re.search(r"[\s=:]", name) and name[0] not in "\"'#/{}[]":
            return name
    raise ConfigError(path, "nats-server's syntax has no way to write this key: use another name")


def _scalar_text(value: Any, path: Path) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ConfigError(path, f"{value} is beyond 64 bits")
        return str(value)
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        if not _NUMBER.fullmatch(text):
            raise ConfigError(path, f"{value} is not a number that nats-server supports")
        return text
    return str(value) if isinstance(value, _Bare) else quote(value, path)


def _inline(value: Any, path: Path) -> str | None:
    """Return a scalar, a list of strings or a small map on one line, or None for a value that needs several lines.

    Numbers never precede a closing bracket: nats-server's lexer would read the bracket as part of the number.
    """
    if isinstance(value, Mapping):
        if any(isinstance(item, (Mapping, list)) for item in value.values()):
            return None
        pairs = (f"{write_key(name, path)}: {_scalar_text(item, (*path, name))}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            return None
        return "[" + ", ".join(_scalar_text(item, path) for item in value) + "]"
    return _scalar_text(value, path)


def _lines(config: Mapping[str, Any], pad: str, path: Path) -> list[str]:
    lines = []
    for name, value in config.items():
        here = (*path, name)
        head = f"{pad}{write_key(name, here)}: "
        one_line = _inline(value, here) if not isinstance(value, Mapping) or not value else None
        if one_line is not None and (len(head + one_line) <= LINE_LENGTH or not isinstance(value, list) or not value):
            lines.append(head + one_line)
        elif isinstance(value, Mapping):
            lines += [head + "{", *_lines(value, pad + "  ", here), pad + "}"]
        else:
            lines += [head + "[", *_elements(value, pad + "  ", here), pad + "]"]
    return lines


def _elements(values: list[Any], pad: str, path: Path) -> list[str]:
    lines = []
    for value in values:
        one_line = _inline(value, path)
        if one_line is not None and (len(pad + one_line) <= LINE_LENGTH or not isinstance(value, (Mapping, list))):
            lines.append(pad + one_line)
        elif isinstance(value, Mapping):
            lines += [pad + "{", *_lines(value, pad + "  ", path), pad + "}"]
        else:
            lines += [pad + "[", *_elements(value, pad + "  ", path), pad + "]"]
    return lines
