# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that the table of versions is consistent, and that each of its warnings has a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.server_versions import (
    DEFECTS,
    RAFT_SILENT,
    SERIES,
    Defect,
    end_of_life,
    index_writer,
    maintained,
    parse_series,
    unreadable_files,
    version_warnings,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import SCHEMA
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import parse_version

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("version", "has"),
    [("2.10.22", False), ("2.10.23", True), ("2.10.29", True), ("2.10.30", False), ("2.11.0", False), ("", False)],
)
def test_the_versions_that_start_raft_silent(version: str, has: bool) -> None:
    assert RAFT_SILENT.affects(version) == has


def test_series_are_in_their_order() -> None:
    assert [series.numbers for series in SERIES] == sorted(series.numbers for series in SERIES)
    assert [series.released for series in SERIES] == sorted(series.released for series in SERIES)
    assert parse_series("2.13.0") is None and parse_series("2.14.7") is SERIES[-2]


@pytest.mark.parametrize(
    ("index_format", "version", "damages"),
    [
        (0, "2.9.10", False),
        (1, "2.9.10", True),
        (4, "2.9.21", True),
        (9, "v2.9.21", True),
        (1, "2.9.22", False),
        (4, "2.10.0", False),
        (1, "", False),
    ],
)
def test_versions_that_damage_newer_files(index_format: int, version: str, damages: bool) -> None:
    assert bool(unreadable_files(index_format, version)) == damages


def test_the_format_of_an_index_names_its_first_series() -> None:
    names = [series.name if (series := index_writer(number)) else "" for number in range(6)]
    assert names == ["", "2.10", "2.11", "2.12", "2.14", ""]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_affects_no_version_from_its_fix_on(defect: Defect) -> None:
    for first, last in defect.affected:
        assert parse_version(first) <= parse_version(last)
        assert defect.affects(first) and defect.affects(last)
        assert defect.fixes([last]), f"{last} has no fixed version"
    assert not any(defect.affects(version) for version in defect.fixed)
    assert not any(defect.affects(later) for later in ("2.15.1", "2.16.0"))
    assert defect.source


@pytest.mark.parametrize("defect", [defect for defect in DEFECTS if defect.needs], ids=lambda defect: defect.name)
def test_required_setting_of_a_defect_is_a_configuration_key(defect: Defect) -> None:
    assert defect.needs in SCHEMA.children


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ("2.8.4", "2023-09"),
        ("2.9.10", "2025-03"),
        ("2.10.27", "2025-09"),
        ("2.11.17", "2026-04"),
        ("2.12.15", "2026-09"),
        ("2.14.7", ""),
        ("2.15.1", ""),
        ("2.16.0", ""),
        ("latest", ""),
        ("", ""),
    ],
)
def test_upstream_patches_the_two_newest_series(version: str, since: str) -> None:
    assert end_of_life(version) == since
    assert maintained() == ["2.15", "2.14"]


def test_each_defect_is_one_line_however_many_versions_have_it() -> None:
    assert version_warnings(["2.15.1", "2.15.1", "", "latest"]) == []
    lines = version_warnings(["2.15.1", "2.10.26", "2.10.27", "2.10.26"])
    assert lines[0] == "nats-server 2.10.26 and 2.10.27: end-of-life since 2025-09; upstream maintains 2.15 and 2.14"
    assert sum("raft-silent" in line for line in lines) == 1
    assert len(lines) == len(set(lines)) == 1 + sum(not defect.needs for defect in DEFECTS)
    for line in lines[1:]:
        assert line.startswith("nats-server 2.10.26 and 2.10.27: ")
        assert "fixed in 2." in line
    assert all(len(line) <= 240 for line in lines), lines


def test_the_fixed_version_is_newer_than_the_running_one() -> None:
    (line,) = [line for line in version_warnings(["2.12.1"]) if "backed up" in line]
    assert line.endswith("fixed in 2.12.3")
    (line,) = [line for line in version_warnings(["2.11.1", "2.12.1"]) if "backed up" in line]
    assert line.endswith("fixed in 2.11.12 and 2.12.3")


@pytest.mark.parametrize("key", ["leafnodes", "no_auth_user"])
def test_a_defect_that_the_configuration_rules_out_is_not_named(key: str) -> None:
    without = version_warnings(["2.12.1"], {"port": 4222})
    assert without == version_warnings(["2.12.1"])
    assert len(version_warnings(["2.12.1"], {key: {"port": 7422}})) == len(without) + 1


def test_the_default_is_maintained_and_has_no_known_defect() -> None:
    defaults = yaml.safe_load((ROOT / "roles/nats_server/defaults/main.yml").read_text(encoding="utf-8"))
    every_key = {defect.needs: True for defect in DEFECTS}
    assert version_warnings([defaults["nats_server_version"]], every_key) == []
