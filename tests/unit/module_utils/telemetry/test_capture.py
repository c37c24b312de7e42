# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests archives of `nats audit gather` with replies that no server sends."""

from __future__ import annotations

import copy
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry import capture
from support.hostile import mutated

REPLIES = Path(__file__).parents[3] / "support" / "replies"


def answers(version: str) -> dict[str, Any]:
    """Return the artifacts of an archive by endpoint; each artifact is a reply in its envelope."""
    recorded = json.loads((REPLIES / f"{version}.json").read_text())
    server = {**recorded["statsz"][0]["server"], "time": "2026-11-27T19:00:00.0Z"}
    return {
        "jsz": {"server": server, "data": recorded["jsz"][server["id"]]},
        "healthz": {"server": server, "data": recorded["healthz"][server["id"]]},
    }


def write_archive(path: Path, found: dict[str, Any]) -> None:
    kinds = {endpoint: kind for kind, endpoint in capture._ARTIFACTS.items()}
    manifest = {
        f"capture/{endpoint}/0001.json": [
            {"Name": name, "Value": value}
            for name, value in (("artifact_type", kinds[endpoint]), ("server", "n1"), ("cluster", "C1"))
        ]
        for endpoint in found
    }
    with zipfile.ZipFile(path, "w") as zipped:
        for endpoint, answer in found.items():
            zipped.writestr(f"capture/{endpoint}/0001.json", json.dumps(answer))
        zipped.writestr(capture._METADATA, json.dumps({"capture_timestamp": "2026-11-27T19:00:00.000000Z"}))
        zipped.writestr(capture._MANIFEST, json.dumps(manifest))


def test_an_answer_of_wrong_types_is_a_failure_of_the_snapshot(tmp_path: Path) -> None:
    archive, chance, failed = tmp_path / "audit.zip", random.Random(3), 0
    sound = answers("2.15.1")
    write_archive(archive, sound)
    assert capture.import_archive(archive, tmp_path / "sound", "f")[1]["failures"] == 0
    for number in range(150):
        found = copy.deepcopy(sound)
        endpoint = chance.choice(list(found))
        found[endpoint] = mutated(found[endpoint], chance, [number])
        write_archive(archive, found)
        failed += capture.import_archive(archive, tmp_path / str(number), "f")[1]["failures"]
    assert failed


def test_invalid_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "audit.zip"
    archive.write_bytes(b"PK")
    with pytest.raises(NatsFailure) as refused:
        capture.import_archive(archive, tmp_path / "lake", "f")
    assert refused.value.code == "invalid_option"
