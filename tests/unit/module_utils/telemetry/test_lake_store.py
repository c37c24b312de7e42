# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which lakes are accepted before anything is contacted. tests/integration/test_snapshot_s3.py uses a server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.failures import MissingLibrary, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.object_storage import S3Options
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.lake_store import requested_lake

OPTIONS = S3Options(access_key="key", secret_key="hidden", option="lake_s3")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("s3://", "s3://: the bucket is missing: write s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3:///prefix", "the bucket is missing"),
        ("s3://no/bucket", "lake: s3://no/bucket: no is not a valid name of a bucket"),
        ("s3://key:secret@bucket/x", "key:secret@bucket is not a valid name of a bucket"),
        ("s3://bucket/a//b", "the prefix has an empty part, '.' or '..'"),
        ("s3://bucket/a/../b", "the prefix has an empty part, '.' or '..'"),
        ("s3a://bucket/a", "lake: s3a://bucket/a: snapshots can be written to a directory or to s3://BUCKET/PREFIX"),
        ("hdfs://name/a", "snapshots can be written to a directory or to s3://BUCKET/PREFIX"),
    ],
)
def test_invalid_lake_is_refused_with_the_valid_forms(place: str, reason: str) -> None:
    with pytest.raises(NatsFailure) as refused:
        requested_lake(place, OPTIONS, 60.0)
    assert refused.value.code == "invalid_option"
    assert reason in refused.value.description


@pytest.mark.parametrize(
    ("place", "manifest"),
    [
        ("s3://bucket", "s3://bucket/bronze/manifest"),
        ("s3://bucket/", "s3://bucket/bronze/manifest"),
        ("s3://bucket/a/b/", "s3://bucket/a/b/bronze/manifest"),
    ],
)
def test_lake_names_its_files(place: str, manifest: str) -> None:
    pytest.importorskip("boto3")
    assert requested_lake(place, OPTIONS, 60.0).place("manifest") == manifest


def test_object_storage_needs_boto3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingLibrary) as missing:
        requested_lake("s3://bucket/x", OPTIONS, 60.0)
    assert missing.value.library == "boto3"
    assert requested_lake(str(tmp_path), S3Options(option="lake_s3"), 60.0).local == tmp_path / "bronze"


def test_options_of_object_storage_are_refused_for_a_directory(tmp_path: Path) -> None:
    with pytest.raises(NatsFailure, match="is a directory: lake_s3 requires s3://BUCKET/PREFIX"):
        requested_lake(str(tmp_path), OPTIONS, 60.0)
