# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import (
    Catalogue,
    CatalogueError,
    backup_row,
    read_catalogue,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import read_manifest

FOLDER = Path(__file__).parent / "archives" / "backup-2.15.1"


def test_written_catalogue_is_read_back() -> None:
    manifest = read_manifest((FOLDER / "backup.json").read_text(), ["stream.tar.s2"])
    row = backup_row("APP/S@1", manifest)
    assert (row["stream"], row["messages"], row["first_seq"], row["last_seq"]) == ("S", 57, 2, 60)
    catalogue = (
        Catalogue("2026-11-23T02:00:00Z", (row,))
        .saved("APP/S", "2026-11-23T02:00:00Z")
        .failed("APP/T", "it has no leader")
        .proven("APP/S", {"time": "2026-11-23T03:00:00Z", "ok": True})
    )
    assert read_catalogue(catalogue.text()) == catalogue
    record = catalogue.streams["APP/S"]
    assert (record.current, record.problem, record.proof) == (
        "2026-11-23T02:00:00Z",
        "",
        {"time": "2026-11-23T03:00:00Z", "ok": True, "proven": "2026-11-23T03:00:00Z"},
    )
    # The last successful proof remains when a later run fails.
    assert catalogue.failed("APP/S", "gone").streams["APP/S"].proof == record.proof
    failing = {"time": "2026-11-24T03:00:00Z", "ok": False}
    again = catalogue.proven("APP/S", failing).proven("APP/S", failing).streams["APP/S"].proof
    assert again == {**failing, "proven": "2026-11-23T03:00:00Z"}
    assert catalogue.failed("APP/S", "gone").saved("APP/S", "later").streams["APP/S"].problem == ""


def catalogue(**changed: Any) -> str:
    return json.dumps({**json.loads(Catalogue("2026-11-23T02:00:00Z").text()), **changed})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON: it is nested too deeply"),
        ("[]", "not a JSON object"),
        ('{"schema": "other", "version": 1}', "this release reads natsops.backup_catalogue 1"),
        (catalogue(backups=None, streams=[]), "no valid backups, streams"),
        (catalogue(backups=[None]), "no valid backups"),
        (catalogue(streams={"A/S": {"proof": "x"}}), "no valid streams"),
        (catalogue(streams={"A/S": {"current": "yesterday"}}), "no valid streams"),
        (catalogue(streams={"A/S": {"proof": {"time": 5}}}), "no valid streams"),
        (catalogue(streams={"A/S": None}), "no valid streams"),
        (catalogue(cluster=[1]), "no valid cluster"),
        (catalogue(exclude="x"), "no valid exclude"),
        (catalogue(written=None), "no valid written"),
        (catalogue(streams={"A/S": {"x": 1}}), "the record of a stream has an unknown x"),
    ],
)
def test_invalid_catalogue_is_refused(text: str, reason: str) -> None:
    with pytest.raises(CatalogueError, match=reason):
        read_catalogue(text)
