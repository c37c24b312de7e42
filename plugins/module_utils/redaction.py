# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal of secrets from data that leaves a site: secrets with known values, and secrets recognised by their form.
Pure."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[redacted]"

#: A shorter secret would be found in half of all words, so it is neither replaced nor searched for.
SHORTEST = 4
#: Fewer characters of Base64 would match by chance.
_SHORTEST_BASE64 = 6

_SECRET_KEY = re.compile(
    r"jwt|passw|token|secret|nkey|seed|credential|authorized_user|issuer_key|operators_claim", re.IGNORECASE
)
_URL_USER = re.compile(r"(?<=://)[^/@\s\"']*@")

#: Keys of variables and configurations whose values are secrets. The values of keys with `_file` are paths.
_VALUE_KEY = re.compile(r"(pass|password|passwd|token|secret|secret_key|seed|jwt|(^|_)key|(^|_)ek)$", re.IGNORECASE)

_NAME = r"[\w.-]*(?:passw(?:or)?d|pass|token|secret|seed|jwt|secret_key|access_key)"
_VALUE = r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,;}\]\"']+"
#: Patterns of secrets in any place, each with its replacement.
_FORMS = (
    (re.compile(r"-----BEGIN [A-Z ]*(?:PRIVATE KEY|SEED|JWT)-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL), MARK),
    (re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"), MARK),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+"), MARK),
    (re.compile(r"\bS[ANOUCX][A-Z2-7]{56}\b"), MARK),
    (_URL_USER, ""),
    (re.compile(r"(?<!\S)(--?(?:pass|auth|user|token)[= ])\S+"), rf"\g<1>{MARK}"),
    # A reference to a variable of the configuration is not a secret.
    (re.compile(rf"(?i)(\b{_NAME}[\"']?\s*[=:]\s*)(?!\$\w)(?:{_VALUE})"), rf"\g<1>{MARK}"),
)
_CONFIG = re.compile(
    rf"(?im)((?:^[ \t]*|[{{,;\[][ \t]*)[\"']?(?:{_NAME}|(?:encryption_|prev_|prev_encryption_)?e?key|nkey|credentials)[\"']?"
    rf"(?:\s*[=:]\s*|[ \t]+))(?!\$\w|[{{\[])(?:{_VALUE})"
)
_ENVIRONMENT = re.compile(r"(?m)^(\s*Environment=)([\"']?\w+=).*$")


def without_secrets(value: Any) -> Any:
    """Return a value without the keys whose name indicates a secret and without users in URLs. The user of a connection
    counts as a secret, too: older servers report a token as the user."""
    if isinstance(value, dict):
        return {key: without_secrets(item) for key, item in value.items() if not _speaks_of_a_secret(key)}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    if isinstance(value, str) and "://" in value:
        return _URL_USER.sub("", value)
    return value


@lru_cache(maxsize=4096)
def _speaks_of_a_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def secrets_in(value: Any, key: str = "") -> set[str]:
    """Return the secrets among variables or in a configuration: the values of keys with such names, and the passwords
    or tokens in URLs."""
    if isinstance(value, Mapping):
        return set().union(*(secrets_in(item, str(name)) for name, item in value.items()))
    if isinstance(value, (list, tuple)):
        return set().union(*(secrets_in(item, key) for item in value))
    if value is None or isinstance(value, bool):
        return set()
    text = str(value)
    found = {text} if text and _VALUE_KEY.search(key) else set()
    for match in _URL_USER.finditer(text):
        user, colon, password = match[0][:-1].partition(":")
        found.add(password if colon else user)
    return found - {""}


def configuration(text: str) -> str:
    """Return the text of a nats-server configuration, or of a systemd unit, without the values whose keys indicate a
    secret."""
    return _ENVIRONMENT.sub(rf"\g<1>\g<2>{MARK}", _CONFIG.sub(rf"\g<1>{MARK}", text))


class Redactor:
    """Removes secrets from texts, by their known values and by their form.

    `too_short`: the number of secrets that are too short to be searched for.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        given = {secret for secret in secrets if secret}
        known = {secret for secret in given if len(secret) >= SHORTEST}
        self.too_short = len(given - known)
        # The longest secret comes first, because one secret may be a part of another.
        forms = sorted({form for secret in known for form in _written(secret)}, key=lambda form: (-len(form), form))
        pattern = "|".join(map(re.escape, forms)) or r"(?!)"
        self._known = re.compile(pattern)
        self._known_bytes = re.compile(pattern.encode())

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = self._known.sub(MARK, text)
        for pattern, kept in _FORMS:
            text = pattern.sub(kept, text)
        return text

    def tree(self, value: Any) -> Any:
        """Return a document without secrets in its texts."""
        if isinstance(value, dict):
            return {self._known.sub(MARK, key): self.tree(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def finds(self, content: bytes) -> bool:
        """Return whether the content contains a known secret, including in gzip-compressed form."""
        return any(self._known_bytes.search(part) is not None for part in _layers(content))


def _layers(content: bytes) -> Iterator[bytes]:
    yield content
    if content[:2] == b"\x1f\x8b":
        try:
            yield gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return


def _written(secret: str) -> set[str]:
    """Return the forms in which a secret may be written: unchanged, in JSON of Python and of Go, in URLs, and in Base64
    at any position of the encoded text."""
    quoted = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    for_html = {text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e") for text in quoted}
    found = {secret, *quoted, *for_html, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    content = secret.encode("utf-8", "surrogatepass")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            encoded = encode(b"\0" * before + content).decode()
            whole = (before + len(content)) * 8 // 6
            core = encoded[-(-before * 8 // 6) : whole]
            if len(core) >= _SHORTEST_BASE64:
                found.add(core)
    return found
