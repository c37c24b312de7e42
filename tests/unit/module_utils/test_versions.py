# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the parsing of versions, as users write them and as servers report them."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import (
    parse_version,
    reported_version,
    supports,
)


def test_a_version_has_three_numbers() -> None:
    assert parse_version("2.10.27") == (2, 10, 27)
    assert parse_version("2.11.0-preview.1") == (2, 11, 0)


@pytest.mark.parametrize(
    "text",
    ["", "latest", "2.10", "v2.15.1", "2.15.1+git", "2.15.1-", "2.15.1 ", "2.15.1\n", "2.15.1.4", "٢.١٥.١", None, True],
)
def test_a_version_is_written_as_the_server_reports_it(text: object) -> None:
    with pytest.raises(ValueError, match="is not a nats-server version: write it as the server reports it"):
        parse_version(text)


def test_a_version_that_yaml_reads_as_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2\.1 is a number, not a nats-server version: quote all three numbers"):
        parse_version(2.10)


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
        ("٢.١٥.١", (0, 0, 0)),
        (2.10, (0, 0, 0)),
    ],
)
def test_reported_versions_can_always_be_compared(text: object, numbers: tuple[int, int, int]) -> None:
    assert reported_version(text) == numbers


@pytest.mark.parametrize(
    ("reported", "supported"),
    [("2.11.0", True), ("v2.15.1", True), ("2.15.1+fork", True), ("2.10.27", False), ("devel", False), ("", False)],
)
def test_a_feature_is_looked_up_for_every_reported_version(reported: str, supported: bool) -> None:
    assert supports(("2.11.0",), reported) is supported
