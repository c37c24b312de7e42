# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the servers' JSON replies with msgspec if it is installed, otherwise with the slower standard library.

With msgspec, the most numerous parts (streams, consumers, Raft groups) stay unparsed, as a `Text`.
"""

from __future__ import annotations

import json
from typing import Any, Optional

try:
    import msgspec
except ImportError:
    msgspec = None

if msgspec is not None:

    class _Named(msgspec.Struct):
        name: Optional[str] = None

    class _Config(msgspec.Struct):
        num_replicas: Any = None
        retention: Any = None


#: The unparsed text of a value, see `is_text`.
Text = Any


def document(body: bytes, endpoint: str) -> Any:
    """Return the document of a server's reply, in which the `stream_detail` of JSZ and the groups of RAFTZ may be a
    Text. Raises ValueError if the reply is not JSON."""
    # A Text becomes a separate line.
    if msgspec is None or b"\n" in body:
        return json.loads(body)
    try:
        if endpoint == "JSZ":
            return _jsz(body)
        if endpoint == "RAFTZ":
            return {key: _raftz(value) if key == "data" else _read(value) for key, value in members(body).items()}
        return _read(body)
    except msgspec.ValidationError:
        return json.loads(body)  # the reply has an unexpected structure
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def _read(text: Any) -> Any:
    return msgspec.json.decode(text)


def _jsz(body: bytes) -> dict[str, Any]:
    whole = members(body)
    found = {key: _read(value) for key, value in whole.items() if key != "data"}
    if "data" in whole:
        data = members(whole["data"])
        found["data"] = {key: _read(value) for key, value in data.items() if key != "account_details"}
        if "account_details" in data:
            found["data"]["account_details"] = [
                {key: value if key == "stream_detail" else _read(value) for key, value in account.items()}
                for account in list_of_members(data["account_details"])
            ]
    return found


def _raftz(text: Text) -> dict[str, dict[str, Text]]:
    groups: dict[str, dict[str, Text]] = msgspec.json.decode(text, type=dict[str, dict[str, msgspec.Raw]])
    return groups


def is_text(value: Any) -> bool:
    """Return whether a value is a Text."""
    return msgspec is not None and isinstance(value, msgspec.Raw)


def members(text: bytes | Text) -> dict[str, Text]:
    """Return the members of an object, each as a Text. Raises msgspec.ValidationError for any other value, as do all
    functions below."""
    found: dict[str, Text] = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return found


def list_of_members(text: Text) -> list[dict[str, Text]]:
    """Return the members of each object of a list."""
    found: list[dict[str, Text]] = msgspec.json.decode(text, type=list[dict[str, msgspec.Raw]])
    return found


def items(text: Text) -> list[Text]:
    """Return the items of a list, each as a Text."""
    found: list[Text] = msgspec.json.decode(text, type=list[msgspec.Raw])
    return found


def read(text: Text) -> Any:
    """Return the value of a Text."""
    return _read(text)


def read_name(text: Text) -> str | None:
    """Return the `name` of an object, or None if it has none."""
    name: str | None = msgspec.json.decode(text, type=_Named).name
    return name


def replicas_and_retention(config: Text) -> tuple[Any, Any]:
    """Return num_replicas and retention from a stream's configuration; each is None if missing."""
    found = msgspec.json.decode(config, type=_Config)
    return found.num_replicas, found.retention


def joined(found: dict[str, Text]) -> Text:
    """Return the object with these members as a Text."""
    return msgspec.Raw(b"{%b}" % b",".join([b'"%b":%b' % (key.encode(), value) for key, value in found.items()]))


def encoded(value: Any) -> bytes:
    """Return a value as JSON in one line, without spaces."""
    if msgspec is not None:
        try:
            return bytes(msgspec.json.encode(value))
        except (OverflowError, TypeError):
            pass  # a number of more than 64 bits
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
