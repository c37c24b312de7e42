# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JWT files of an nsc store: OPERATOR/.nsc, OPERATOR/OPERATOR.jwt, OPERATOR/accounts/A/A.jwt and
OPERATOR/accounts/A/users/U.jwt (nsc/cmd/store/store.go). The files are read only, and no file with a seed is opened.

The content of the files is not trusted: their number and size are limited, symbolic links are not followed, and a name
in a file becomes part of a path only if it is a plain file name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ..shapes import flag, misshapen, optional, read_json, text
from .claims import Claims, decode_claims
from .keys import ACCOUNT, OPERATOR, USER
from .nsc import NscStore
from .token import LONGEST, InvalidToken

#: Maximum number of files and directories of a store, and of bytes of its JWTs.
MAX_ENTRIES, MAX_BYTES = 100_000, 256 << 20

_INFO = ".nsc"
_VERSION = "1"


class UnreadableStore(ValueError):
    """A store that cannot be imported completely. `problems`: the reasons, each with the path of a file."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def read_store(path: str) -> tuple[NscStore, list[str]]:
    """Return the JWTs of the store in this directory, and notes on its files. Raises UnreadableStore with all problems,
    because an incomplete document would not show its gaps."""
    return _StoreReader(path).read()


class _StoreReader:
    """One pass over the files of a store."""

    def __init__(self, path: str) -> None:
        self._root = path
        self._entries = 0
        self._bytes = 0
        self._problems: list[str] = []
        self._notes: list[str] = []

    def read(self) -> tuple[NscStore, list[str]]:
        name = self._operator_name()
        operator = self._claims(os.path.join(self._root, f"{name}.jwt"), OPERATOR)
        accounts = []
        for entry in self._list(os.path.join(self._root, "accounts")):
            if not entry.is_dir(follow_symlinks=False):
                self._problems.append(f"{entry.path}: not a directory of an account")
                continue
            account = self._claims(os.path.join(entry.path, f"{entry.name}.jwt"), ACCOUNT)
            users = list(self._users(entry))
            if account is not None:
                accounts.append((account, users))
        if self._problems or operator is None:
            raise UnreadableStore(self._problems)
        return NscStore(operator, accounts), self._notes

    def _operator_name(self) -> str:
        path = os.path.join(self._root, _INFO)
        if os.path.isdir(self._root) and not os.path.lexists(path):
            stores = [one.name for one in self._list(self._root) if os.path.lexists(os.path.join(one.path, _INFO))]
            found = f"; give the directory of one operator: {', '.join(stores[:5])}" if stores else ""
            raise UnreadableStore([f"{self._root}: not the store of an operator: {_INFO} is missing{found}"])
        source = self._text(path)
        try:
            info = read_json(source or "")
            shape = {"name": _is_file_name, "version": lambda value: value == _VERSION}
            wrong = misshapen(info, {**shape, "kind": lambda value: value == OPERATOR, "managed": optional(flag)})
        except (ValueError, AttributeError):
            wrong = ["JSON"]
        if self._problems:
            raise UnreadableStore(self._problems)
        if wrong:
            raise UnreadableStore([f"{path}: not the description of an operator's store: {', '.join(wrong)}"])
        if info.get("managed"):
            self._notes.append(f"operator {info['name']}: managed: the key of the operator is not in this store")
        return str(info["name"])

    def _users(self, account: os.DirEntry[str]) -> Iterator[Claims]:
        folder = os.path.join(account.path, "users")
        for entry in self._list(folder) if os.path.lexists(folder) else ():
            if not entry.name.endswith(".jwt"):
                self._problems.append(f"{entry.path}: not a JWT of a user")
                continue
            user = self._claims(entry.path, USER)
            if user is not None:
                yield user

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        """Return the entries of a directory, without hidden files. A directory that cannot be read is a problem."""
        try:
            if os.path.islink(folder) and folder != self._root:
                raise OSError(None, "a symbolic link, which is not followed")
            with os.scandir(folder) as entries:
                found = []
                for entry in entries:
                    self._entries += 1
                    if self._entries > MAX_ENTRIES:
                        raise UnreadableStore([f"{self._root}: more than {MAX_ENTRIES:,} files and directories"])
                    if not entry.name.startswith("."):
                        found.append(entry)
        except OSError as error:
            self._problems.append(f"{folder}: {error.strerror}")
            return []
        return sorted(found, key=lambda entry: entry.name)

    def _claims(self, path: str, kind: str) -> Claims | None:
        token = self._text(path)
        if token is None:
            return None
        try:
            claims = decode_claims(token.strip())
            if claims.kind != kind:
                raise InvalidToken(f"it is the JWT of {claims.kind} {claims.name}, not of an {kind}")
        except InvalidToken as error:
            self._problems.append(f"{path}: not a valid JWT: {error}")
            return None
        return claims

    def _text(self, path: str) -> str | None:
        """Return the content of a regular file of limited size. Other files are problems."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            with open(descriptor, "rb") as source:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    self._problems.append(f"{path}: not a regular file")
                    return None
                content = source.read(LONGEST + 2)
        except OSError as error:
            is_link = os.path.islink(path)
            self._problems.append(f"{path}: {'a symbolic link, which is not followed' if is_link else error.strerror}")
            return None
        self._bytes += len(content)
        if len(content) > LONGEST + 1:
            self._problems.append(f"{path}: larger than the {LONGEST:,} bytes of a JWT")
            return None
        if self._bytes > MAX_BYTES:
            raise UnreadableStore([f"{self._root}: the JWTs have more than {MAX_BYTES:,} bytes"])
        return content.decode("utf-8", errors="replace")


def _is_file_name(value: object) -> bool:
    return text(value) and value not in ("", ".", "..") and not set(str(value)) & {"/", "\0"}
