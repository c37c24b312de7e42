# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import json
import os
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.redaction import Redactor
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting import bundle
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.bundle_archive import (
    INDEX,
    SMALLEST,
    BundleWriter,
    component,
    server_folder,
)

TAKEN = datetime(2026, 11, 25, 7, 0, tzinfo=timezone.utc)
TAGS = {"cluster": "C1", "server": "n1", "artifact_type": "variables"}
METADATA = {"capture_timestamp": "2026-11-25T07:00:00.000000Z"}


def writer(path: Path, *secrets: str, max_size: int = SMALLEST) -> BundleWriter:
    return BundleWriter(path, Redactor(secrets), max_size, TAKEN)


def test_the_layout_is_that_of_natscli() -> None:
    assert server_folder(TAGS) == "capture/clusters/C1/n1/variables"
    account = {**TAGS, "account": "APP", "artifact_type": "account_raftz"}
    assert server_folder(account) == "capture/accounts/APP/servers/C1__n1/account_raftz"
    stream = {**account, "stream": "ORDERS", "artifact_type": "stream_info"}
    assert server_folder(stream) == "capture/accounts/APP/streams/ORDERS/replicas/C1__n1/stream_info"


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "../../etc", "a\\b", "a\0b"])
def test_a_name_never_leaves_its_folder(value: str) -> None:
    part = component(value)
    assert part not in ("", ".", "..")
    assert not set(part) & {"/", "\\", "\0"}


def test_it_appears_at_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bundle.zip"
    with pytest.raises(RuntimeError), writer(path) as broken:
        broken.page(TAGS, {})
        raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with writer(path) as whole:
        whole.page(TAGS, {"data": {}})
        assert not path.exists()
        whole.publish(METADATA, {})
    assert [item.name for item in path.parent.iterdir()] == ["bundle.zip"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_pages_are_numbered_for_each_artifact(tmp_path: Path) -> None:
    with writer(tmp_path / "b.zip") as one:
        for server in ("n1", "n2", "n1"):
            one.page({**TAGS, "server": server}, {"of": server})
        index = one.publish(METADATA, {})
    pages = [path for path in index["files"] if "/variables/" in path]
    assert pages == [
        "capture/clusters/C1/n1/variables/0001.json",
        "capture/clusters/C1/n1/variables/0002.json",
        "capture/clusters/C1/n2/variables/0001.json",
    ]


def test_no_bundle_is_larger_than_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with writer(path) as one:
        for number in range(2000):
            one.page({**TAGS, "server": f"n{number}"}, {"data": os.urandom(2000).hex()})
        # The compressed file would fit if the bundle had any space left.
        one.text("host/n1/zeros.txt", "0" * (SMALLEST // 4), "zeros")
        index = one.publish(METADATA, {})
    assert SMALLEST // 3 < path.stat().st_size <= SMALLEST
    assert len(index["files"]) + len(index["cut"]) - 2 == 2001
    assert {row["reason"] for row in index["cut"]} == {"it was left out because the bundle would exceed 1.0 MiB"}


def test_compressible_content_fits(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with writer(path) as one:
        one.text("host/n1/zeros.txt", "0" * SMALLEST * 20, "zeros")
        assert one.publish(METADATA, {})["cut"] == []
    assert path.stat().st_size < SMALLEST


def test_a_bundle_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NatsFailure, match="at least"):
        writer(tmp_path / "b.zip", max_size=SMALLEST - 1)


def test_a_secret_in_a_compressed_profile_keeps_it_out(tmp_path: Path) -> None:
    profile = {"cluster": "C1", "server": "n1", "profile_name": "heap"}
    with writer(tmp_path / "b.zip", "hunter22") as one:
        one.profile(profile, gzip.compress(b"label hunter22"))
        one.profile({**profile, "server": "n2"}, gzip.compress(b"label"))
        one.profile({**profile, "profile_name": "goroutine_1"}, b"goroutine of hunter22")
        index = one.publish(METADATA, {})
    assert index["missing"] == [
        {"server": "n1", "item": "profile heap", "reason": "it was left out because it still contains a secret"}
    ]
    with zipfile.ZipFile(tmp_path / "b.zip") as zipped:
        assert "capture/profiles/C1/n2__heap.prof" in zipped.namelist()
        assert zipped.read("capture/profiles/C1/n1__goroutine_1.prof") == b"goroutine of [redacted]"


def test_a_secret_in_a_name_keeps_the_file_out(tmp_path: Path) -> None:
    with writer(tmp_path / "b.zip", "hunter22") as one:
        one.page({**TAGS, "server": "hunter22"}, {})
        one.miss("host", "hunter22 refused the login", "hunter22")
        index = one.publish(METADATA, {})
    assert not any("hunter22" in path for path in index["files"])
    with zipfile.ZipFile(tmp_path / "b.zip") as zipped:
        assert not any(b"hunter22" in zipped.read(name) for name in zipped.namelist())


def test_a_secret_that_is_a_word_of_the_layout_is_a_failure_and_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(NatsFailure, match="nothing was written"), writer(tmp_path / "b.zip", "special") as one:
        one.publish(METADATA, {})
    assert list(tmp_path.iterdir()) == []


def test_names_are_not_redacted_as_keys() -> None:
    raft = {"TOKENS": {"S-R3F-secrets": {"id": "x", "password": "y"}}}
    assert bundle._cleaned("account_raftz", raft) == {"TOKENS": {"S-R3F-secrets": {"id": "x"}}}
    assert bundle._cleaned("account_ipqueues", {"jwt queue": {"pending": 1}}) == {"jwt queue": {"pending": 1}}
    gateways = {"name": "C1", "outbound_gateways": {"token-ring": {"connection": {"jwt": "z", "ip": "1"}}}}
    assert bundle._cleaned("gateways", gateways)["outbound_gateways"] == {"token-ring": {"connection": {"ip": "1"}}}
    expvars: dict[str, Any] = {"cmdline": ["nats-server", "--pass", "x"], "memstats": {"Alloc": 1}}
    assert bundle._cleaned("exp_variables", expvars) == {"memstats": {"Alloc": 1}}


def test_the_summary_fits_on_a_screen(tmp_path: Path) -> None:
    with writer(tmp_path / "b.zip") as one:
        one.miss("host", "the host cannot be reached", "n9")
        for number in range(40):
            for server in ("n1", "n2"):
                one.miss(f"file {number:02d}", "smartctl is not installed", server)
                one.note_cut(f"log {number:02d}", "the last 1.0 MiB of 2.0 MiB are kept", server)
        index = one.publish(
            METADATA, {"servers": ["n1", "n2"], "expected": ["n1", "n2", "n9"], "hosts": ["n1", "n2", "n9"]}
        )
    lines = bundle.summary(index, tmp_path / "b.zip", 2048)
    assert len(lines) <= 22
    assert lines[1] == "2 of 3 servers answered; 2 of 3 hosts did"
    assert lines[2] == "missing: host of n9: the host cannot be reached"
    assert lines[3] == "missing: file 00 of n1, n2: smartctl is not installed"
    assert json.loads(zipfile.ZipFile(tmp_path / "b.zip").read(INDEX))["missing"] == index["missing"]
