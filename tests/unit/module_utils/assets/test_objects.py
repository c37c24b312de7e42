# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import OptionError
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.objects import (
    StoredObject,
    description_subject,
    read_description,
    write_description,
)


def message(data: bytes) -> dict[str, Any]:
    return {"data": base64.b64encode(data).decode(), "seq": 4, "time": "2026-11-29T12:00:00Z"}


def test_description_is_read_as_it_was_written() -> None:
    digest = hashlib.sha256(b"abc").hexdigest()
    item = StoredObject("a/ä", "NUID1", 3, 1, digest, "three letters", revision=4, time="2026-11-29T12:00:00Z")
    assert read_description(message(write_description("b", item))) == item


def test_link_is_read_with_its_target() -> None:
    content = {"name": "l", "options": {"link": {"bucket": "other", "name": "target"}}}
    assert read_description(message(json.dumps(content).encode())).link == "other/target"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"nuid": "a.>"}', b"\xff"])
def test_foreign_messages_are_not_descriptions(data: bytes) -> None:
    # The nuid becomes part of the subject of a purge, so it must not contain wildcards.
    with pytest.raises(ValueError):
        read_description(message(data))


def test_subject_contains_the_encoded_name() -> None:
    assert description_subject("b", "a.>*") == "$O.b.M.YS4-Kg=="
    with pytest.raises(OptionError, match="an object needs a name"):
        description_subject("b", "")
