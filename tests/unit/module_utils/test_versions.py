# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions, as they are written and as servers report them."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import parse_version, reported_version


def test_a_version_has_three_numbers() -> None:
    assert parse_version("2.10.27") == (2, 10, 27)
    assert parse_version("v2.11.0-preview.1") == (2, 11, 0)
    for text in ("", "latest", "2.10"):
        with pytest.raises(ValueError, match="is not a nats-server version"):
            parse_version(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.10.27", (2, 10, 27)),
        ("2.12.0-RC.1", (2, 12, 0)),
        ("v2.9", (2, 9, 0)),
        ("2", (2, 0, 0)),
        ("", (0, 0, 0)),
        (None, (0, 0, 0)),
        ("dev", (0, 0, 0)),
    ],
)
def test_what_a_server_reports_can_always_be_compared(text: str | None, numbers: tuple[int, int, int]) -> None:
    assert reported_version(text) == numbers
