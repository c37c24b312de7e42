# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses nats-server's own configuration text into a structured configuration, the inverse of `syntax.write`. Files are
read by a given function.

The rules are those of nats-server's conf/lex.go and conf/parse.go, including their pitfalls: an include is relative to
the directory of the including file, even if its path is absolute, and cannot use the variables of that file; the last
of two equal keys wins; a number before a closing bracket is text; `$2a$` is the only bcrypt prefix allowed without
quotes; a word that begins like a size (`5e7bc`) is text for nats-server 2.15 but an error for older versions. The
digest that nats-server 2.11 and newer report for the loaded configuration (`config_digest`) proves that a file was
parsed correctly.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_BLANK = " \t"
_NEWLINE = "\r\n"
_SEPARATORS = "=:"
_END_OF_WORD = _BLANK + _NEWLINE + ";,]}"
_END_OF_NUMBER = _BLANK + _NEWLINE + ";,}"
_END_OF_INCLUDE = _BLANK + _NEWLINE + ";}'"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SIZES = {letter: power for power, letter in enumerate("kmgtpe", start=1)}
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_ADDRESS = re.compile(r"\d+\.\d+\.[\d.:-]*", re.ASCII)
_FLOAT = re.compile(r"-?\d+\.\d+", re.ASCII)
_INTEGER = re.compile(r"(-?\d+)(?:([kmgtpeKMGTPE])([bBiI]*))?", re.ASCII)
_DEEPEST_INCLUDE = 32
#: Number of characters of the largest 64-bit number, with its sign and some leading zeros.
_LONGEST_INTEGER = 40
#: Maximum nesting of blocks and lists. A real configuration has fewer than ten levels.
_DEEPEST_VALUE = 100


class ConfigSyntaxError(ValueError):
    """A text that is not a valid configuration, or that this reader cannot parse as nats-server would."""


class Block(dict[str, Any]):
    """A block of a configuration. `variables`: the keys of the block that a `$reference` in the file uses."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: set[str] = set()


@dataclass
class ParsedConfig:
    """A configuration as nats-server parses it, its files, and the environment variables that they use."""

    config: Block
    files: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)


def read_config(path: str, read: Callable[[str], str], environment: Mapping[str, str]) -> ParsedConfig:
    """Return the configuration that nats-server loads from a file, with its includes and variables.

    `path`: the absolute path, as on the command line. `read`: returns the text of a file, and may raise OSError.
    `environment`: the environment of the process. Raises ConfigSyntaxError, whose message names the file and the line
    but no value.
    """
    reading = ParsedConfig(Block())
    reading.config = _File(path, reading, read, environment).whole()
    return reading


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the digest that nats-server 2.11 and newer report for a parsed configuration: the digest of its JSON as Go
    writes it, followed by a newline."""
    text = _go_json(config) + "\n"
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _go_json(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_go_json(str(key))}:{_go_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_go_json, value)) + "]"
    if isinstance(value, float):
        return _go_float(value)
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return text
    return re.sub("[&<>\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _go_float(value: float) -> str:
    if value and not 1e-6 <= math.fabs(value) < 1e21:
        mantissa, exponent = f"{value!r}".split("e")
        return (
            f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}" if exponent[0] in "+-" else f"{mantissa}e+{exponent}"
        )
    text = f"{value:.20f}".rstrip("0").rstrip(".") if "e" in repr(value) else repr(value)
    return text.removesuffix(".0")


class _File:
    """One file, or the text of one environment variable, and the current reading position."""

    def __init__(
        self,
        path: str,
        reading: ParsedConfig,
        read: Callable[[str], str],
        environment: Mapping[str, str],
        depth: int = 0,
    ) -> None:
        self.path = path
        self.reading = reading
        self.read = read
        self.environment = environment
        self.depth = depth
        self.at = 0
        self.text = ""
        self.blocks: list[Block] = []
        self.inside = 0
        self.asked: frozenset[str] = frozenset()

    # --- States of nats-server's lexer
    # ------------------------------------------------------------------------------------

    def whole(self) -> Block:
        """Return the top-level map of the file."""
        if self.depth > _DEEPEST_INCLUDE:
            raise ConfigSyntaxError(f"{self.path}: files include one another in a cycle")
        try:
            self.text = self.read(self.path)
        except OSError as error:
            raise ConfigSyntaxError(f"{self.path}: cannot be read: {error.strerror}") from error
        if self.path not in self.reading.files:
            self.reading.files.append(self.path)
        return self._top()

    def _top(self) -> Block:
        found = Block()
        self.blocks.append(found)
        while self._skip("{}"):
            self._entry(found, newlines_before_value=False)
            self._end_of_entry("}")
        self.blocks.pop()
        return found

    def _map(self) -> Block:
        found = Block()
        self.blocks.append(found)
        while True:
            if not self._skip(""):
                raise self._error("a block is not closed")
            if self._take("}"):
                break
            if self._peek() == "]":
                raise self._error("a list ends where a block is open")
            self._entry(found, newlines_before_value=True)
            if self._end_of_entry(""):
                break
        self.blocks.pop()
        return found

    def _entry(self, found: Block, newlines_before_value: bool) -> None:
        mark = self._peek()
        if mark in _SEPARATORS:
            raise self._error("a key is missing")
        if mark in "\"'":
            self.at += 1
            key = self._until(mark, "a key")
        else:
            start = self.at
            self.at += 1
            while self._peek() and not self._peek().isspace() and self._peek() not in _SEPARATORS:
                self.at += 1
            key = self.text[start : self.at]
            if key.lower() == "include" and self._peek().isspace():
                included = self._include()
                found.update(included)
                found.variables |= included.variables
                return
        while self._peek().isspace():
            self.at += 1
        if self._peek() and self._peek() in _SEPARATORS:
            self.at += 1
            while self._peek() and (self._peek().isspace() if newlines_before_value else self._peek() in _BLANK):
                self.at += 1
        if not self._peek():
            raise self._error("ends before a value")
        if newlines_before_value and self._peek() in ",}":
            raise self._error("a value is missing")
        found[key] = self._value()

    def _end_of_entry(self, also: str) -> bool:
        """Skip the separator between two entries; return whether the block ends there."""
        while self._peek() and self._peek() in _BLANK:
            self.at += 1
        if self._comment() or not self._peek():
            return False
        if self._peek() in _NEWLINE + ";," + also:
            self.at += 1
            return False
        if not also and self._take("}"):
            return True
        raise self._error("unexpected text after a value")

    def _include(self) -> Block:
        while self._peek() and self._peek() in _BLANK:
            self.at += 1
        mark = self._peek()
        if mark and mark in "\"'":
            self.at += 1
            name = self._until(mark, "the name of a file")
        else:
            start = self.at
            while self._peek() and self._peek() not in _END_OF_INCLUDE:
                self.at += 1
            name = self.text[start : self.at]
            self._take("'")
        path = os.path.normpath(os.path.join(os.path.dirname(self.path), name.lstrip("/")))
        return _File(path, self.reading, self.read, self.environment, self.depth + 1).whole()

    def _list(self) -> list[Any]:
        found: list[Any] = []
        while True:
            if not self._skip(""):
                raise self._error("a list is not closed")
            if self._take("]"):
                return found
            if self._peek() == ",":
                raise self._error("a value is missing in a list")
            found.append(self._value())
            while True:
                while self._peek() and self._peek() in _BLANK:
                    self.at += 1
                if not self._comment():
                    break
            if self._take("]"):
                return found
            if not self._peek() or self._peek() not in _NEWLINE + ",":
                raise self._error("a list is not closed")
            self.at += 1

    def _value(self) -> Any:
        mark = self._peek()
        if mark in ("[", "{"):
            if self.inside == _DEEPEST_VALUE:
                raise self._error(f"blocks and lists are nested more than {_DEEPEST_VALUE} levels deep")
            self.at += 1
            self.inside += 1
            found = self._list() if mark == "[" else self._map()
            self.inside -= 1
            return found
        if mark == "'":
            self.at += 1
            return self._until("'", "a text")
        if mark == '"':
            self.at += 1
            return self._quoted()
        if mark == "(":
            self.at += 1
            return self._parenthesised()
        if mark.isdigit() or mark == "-":
            return self._number()
        if mark == "." or mark in _NEWLINE:
            raise self._error("a value is expected")
        return self._word(self.at)

    def _number(self) -> Any:
        start = self.at
        for pattern, convert in ((_DATE, str), (_ADDRESS, str), (_FLOAT, float)):
            match = pattern.match(self.text, start)
            if match:
                self.at = match.end()
                return convert(match[0])
        match = _INTEGER.match(self.text, start)
        if not match:
            raise self._error("a number is expected")
        self.at = match.end()
        if len(match[1]) > _LONGEST_INTEGER:
            raise self._error("a number is beyond 64 bits")
        after = self._peek()
        if match[1][0] != "-" or match[2]:
            if after and after in "-." and not match[2]:
                raise self._error("a date or a fraction is expected")
            if after and after not in _END_OF_NUMBER and (match[2] or not after.isdigit()):
                # nats-server treats any character after the number as part of the text.
                if not match[2]:
                    self.at += 1
                return self._word(start)
        if not match[2]:
            return self._whole_number(int(match[1]))
        unit = match[3].lower()
        if unit not in ("", "b", "i", "ib"):
            raise self._error("a size is expected")
        return self._whole_number(int(match[1]) * (1024 if unit else 1000) ** _SIZES[match[2].lower()])

    def _whole_number(self, value: int) -> int:
        if not -(2**63) <= value < 2**63:
            raise self._error("a number is beyond 64 bits")
        return value

    def _word(self, start: int) -> Any:
        parts: list[str] = []
        begin = start
        while self._peek() and self._peek() not in _END_OF_WORD:
            if self._peek() == "'":
                parts.append(self.text[begin : self.at])
                self.at += 1
                return "".join(parts)
            if self._take("\\"):
                parts += [self.text[begin : self.at - 1], self._escape()]
                begin = self.at
            else:
                self.at += 1
        word = self.text[begin : self.at]
        if parts:
            return "".join([*parts, word])
        if word.lower() in _BOOLEANS:
            return _BOOLEANS[word.lower()]
        return self._variable(word[1:]) if word.startswith("$") else word

    def _variable(self, name: str) -> Any:
        if name.startswith("2a$"):
            return f"${name}"
        for found in reversed(self.blocks):
            if name in found:
                found.variables.add(name)
                return found[name]
        if name in self.asked or name not in self.environment:
            raise self._error(f"the variable {name} is not set, neither before this line nor in the environment")
        if name not in self.reading.environment:
            self.reading.environment.append(name)
        value = _File("", self.reading, self.read, self.environment)
        value.text, value.asked = f"pk={self.environment[name]}", self.asked | {name}
        try:
            found = value._top()
        except ConfigSyntaxError:
            found = Block()
        if "pk" not in found:
            raise self._error(f"the environment variable {name} is not a valid configuration value")
        return found["pk"]

    # --- Texts --------------------------------------------------------------------------------------------------------

    def _until(self, mark: str, what: str) -> str:
        end = self.text.find(mark, self.at)
        if end < 0:
            raise self._error(f"{what} is not terminated")
        found, self.at = self.text[self.at : end], end + 1
        return found

    def _quoted(self) -> str:
        parts: list[str] = []
        start = self.at
        while self._peek() != '"':
            if not self._peek():
                raise self._error("a string is not terminated")
            if self._take("\\"):
                parts += [self.text[start : self.at - 1], self._escape()]
                start = self.at
            else:
                self.at += 1
        parts.append(self.text[start : self.at])
        self.at += 1
        return "".join(parts)

    def _escape(self) -> str:
        mark = self._peek()
        self.at += 1
        if mark == "x":
            match = re.compile(r"[0-9a-fA-F]{2}").match(self.text, self.at)
            if match:
                self.at += 2
                return bytes([int(match[0], 16)]).decode("utf-8", "replace")
        elif mark and mark in _ESCAPES:
            return _ESCAPES[mark]
        raise self._error("unknown escape sequence")

    def _parenthesised(self) -> str:
        match = re.compile(r"(?<=\n)\)(?=\n|\Z)").search(self.text, self.at)
        if not match:
            raise self._error("a string in parentheses is not terminated")
        found, self.at = self.text[self.at : match.start()], match.end()
        return found

    # --- Characters ---------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        """Return the next character, empty at the end."""
        return self.text[self.at : self.at + 1]

    def _take(self, mark: str) -> bool:
        found = self._peek() == mark
        self.at += found
        return found

    def _skip(self, also: str) -> bool:
        """Skip blanks, newlines and comments; return whether any text follows."""
        while self._peek() and (self._peek().isspace() or self._peek() in also or self._comment()):
            if self._peek().isspace() or (self._peek() and self._peek() in also):
                self.at += 1
        return bool(self._peek())

    def _comment(self) -> bool:
        if self._peek() != "#" and not self.text.startswith("//", self.at):
            return False
        while self._peek() and self._peek() not in _NEWLINE:
            self.at += 1
        return True

    def _error(self, problem: str) -> ConfigSyntaxError:
        line = self.text.count("\n", 0, self.at) + 1
        return ConfigSyntaxError(f"{self.path or 'the environment'}, line {line}: {problem}")
