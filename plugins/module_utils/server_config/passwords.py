# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bcrypt hashes in the format that nats-server verifies (server/auth.go). Pure: no I/O.

The bcrypt library is called directly if it is installed, because its import takes 4 ms of CPU time instead of 90 ms, and
every host of a play hashes in its own process. Otherwise passlib's or libpass's API is used. One of the libraries is
enough.
"""

from __future__ import annotations

import functools
import logging
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .reload_rules import is_reloadable
from .syntax import ConfigError, Leaf, normalise, read_secrets, secret_name, transform

HASH = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_LOOKS_HASHED = re.compile(r"\$2[abxy]\$\d\d\$")
MIN_COST, MAX_COST, MAX_BYTES = 4, 31, 72


class _Backend(NamedTuple):
    hash: Callable[[str, int], str]
    verify: Callable[[str, str], bool]


class BcryptError(ValueError):
    """A password that cannot be converted to a bcrypt hash, or a missing library."""


def _passlib() -> _Backend:
    # passlib 1.7.4 logs a traceback if it cannot read the version of a newer bcrypt.
    logging.getLogger("passlib").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from passlib.hash import bcrypt

    return _Backend(
        lambda password, cost: str(bcrypt.using(rounds=cost, ident="2b").hash(password)),
        lambda password, hashed: bool(bcrypt.verify(password, _as_2b(hashed))),
    )


def _bcrypt() -> _Backend:
    import bcrypt

    return _Backend(
        lambda password, cost: bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode(),
        lambda password, hashed: bool(bcrypt.checkpw(password.encode(), _as_2b(hashed).encode())),
    )


def _as_2b(hashed: str) -> str:
    """Return the hash with the most widely supported prefix; all four prefixes are equivalent in nats-server's Go
    library."""
    return "$2b$" + hashed[4:]


@functools.lru_cache(maxsize=1)
def _backend() -> _Backend:
    """Return the first library that hashes and verifies a known password. Raises BcryptError if there is none."""
    tried = []
    for name, load in (("bcrypt", _bcrypt), ("passlib", _passlib)):
        try:
            backend = load()
            if backend.verify("probe", backend.hash("probe", MIN_COST)):
                return backend
            tried.append(f"{name}: its hash does not verify")
        except (
            Exception
        ) as error:  # a broken pair of libraries can fail in many ways: ImportError, AttributeError, ValueError
            tried.append(f"{name}: {error}")
    raise BcryptError(
        "no working bcrypt: install libpass and bcrypt on the controller ("
        + "; ".join(tried)
        + "), or give ready-made hashes"
    )


def is_hash(text: str) -> bool:
    """Return whether nats-server treats the text as a bcrypt hash that it can verify."""
    return bool(HASH.fullmatch(text))


def check_password(password: str) -> None:
    """Raise BcryptError for a plaintext password that bcrypt would truncate or that nats-server would misread."""
    if _LOOKS_HASHED.match(password):
        raise BcryptError("has the form of a bcrypt hash but is invalid: nats-server would reject every login")
    try:
        length = len(password.encode())
    except UnicodeEncodeError:
        raise BcryptError("is not valid Unicode text") from None
    if length > MAX_BYTES:
        raise BcryptError(
            f"has {length} bytes in UTF-8; bcrypt uses only the first {MAX_BYTES}: use a shorter password"
        )
    if "\0" in password:
        raise BcryptError("contains a NUL byte, where bcrypt would stop")


def hash_password(password: str, cost: int, previous: str | None = None) -> str:
    """Return a bcrypt hash of the password: the password itself if it is a hash, `previous` if it verifies at this
    cost, otherwise a new hash.

    Raises BcryptError.
    """
    if not MIN_COST <= cost <= MAX_COST:
        raise BcryptError(f"the bcrypt cost {cost} is outside {MIN_COST} to {MAX_COST}")
    if is_hash(password):
        return password
    check_password(password)
    kept = HASH.fullmatch(previous or "")
    if kept and int(kept[1]) == cost and verify_password(password, kept[0]):
        return kept[0]
    made = _backend().hash(password, cost)
    if not is_hash(made):
        raise BcryptError("the bcrypt library returned something that is not a hash")
    return made


def verify_password(password: str, hashed: str) -> bool:
    """Return whether the hash (any of $2a$, $2b$, $2x$, $2y$) belongs to the password. Raises BcryptError if no library
    is installed."""
    return _backend().verify(password, hashed)


def hash_passwords(
    config: Mapping[str, Any], previous: str = "", cost: int = 11, reloadable: str = ""
) -> dict[str, Any]:
    """Return the normalised configuration with a hash for every plaintext password that nats-server itself verifies.

    `previous` is the text of the secrets file on the host: a hash in it that verifies and has the same cost is kept, so
    a second run changes nothing. Credentials that a server must send (routes, gateways, remotes) stay unchanged.
    `reloadable` is the version of a server that must not be restarted: if such a server could load a hash only by a
    restart, the password stays plain. Raises ConfigError with the path of a password that cannot be hashed.
    """
    known = read_secrets(previous)

    def change(leaf: Leaf) -> Any:
        if leaf.key is None or not leaf.key.bcrypt:
            return leaf.value
        loaded = known.get(secret_name(leaf.path))
        if reloadable and not is_hash(loaded or "") and not is_reloadable(leaf, reloadable):
            return leaf.value
        try:
            return hash_password(leaf.value, cost, loaded)
        except BcryptError as error:
            raise ConfigError(leaf.path, str(error)) from None

    return transform(normalise(config), change)
