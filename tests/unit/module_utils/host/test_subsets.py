# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each option of nats_server_host_info is used by a requested subset, and the documentation lists the same subsets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.host import gathering, observation
from ansible_collections.natsops.jetstream.plugins.module_utils.host.subsets import (
    SUBSETS,
    given_options,
    option_problems,
    requested_subsets,
)
from ansible_collections.natsops.jetstream.plugins.modules import nats_server_host_info as module
from support.module_runs import run_in_process


def read(**options: Any) -> dict[str, Any]:
    return run_in_process("nats_server_host_info", {}, **options)


def subsets_in(text: Any, verb: str) -> set[str]:
    """Return the subsets in the sentences that begin with the verb."""
    sentences = re.split(r"(?<=[.)]) (?=[A-Z])|, (?=used by)", text if isinstance(text, str) else " ".join(text))
    found = " ".join(sentence for sentence in sentences if sentence.lower().startswith(verb))
    return set(re.findall(r"V\((\w+)\)", found)) & SUBSETS.keys()


def test_the_documentation_of_each_option_lists_its_subsets() -> None:
    options = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert options.pop("gather_subset")["choices"] == list(SUBSETS)
    assert options.keys() == module.SPEC.keys()
    for name, option in options.items():
        required = {subset for subset, one in SUBSETS.items() if name in one.required}
        optional = {subset for subset, one in SUBSETS.items() if name in one.optional}
        text = option["description"]
        assert subsets_in(text, "required by") == required, name
        assert subsets_in(text, "used by") | subsets_in(text, "for v(") == optional, name


def test_each_result_is_documented_with_its_subset() -> None:
    documented: dict[str, set[str]] = {}
    for key, value in yaml.safe_load(module.RETURN).items():
        assert re.fullmatch(r"if C\(\w+\)( or C\(\w+\))? is in gather_subset", value["returned"]), key
        documented[key] = set(re.findall(r"C\((\w+)\)", value["returned"]))
    assert set().union(*documented.values()) == SUBSETS.keys()
    assert all(name in documented[one.key] for name, one in SUBSETS.items())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "process in gather_subset requires config: set config, or remove process from gather_subset"),
        ({"gather_subset": []}, "gather_subset is empty: list at least one of process, deployment, adoption, rescue"),
        (
            {"gather_subset": ["rescue"], "config": "/c"},
            "rescue in gather_subset requires store_dir: set store_dir, or remove rescue from gather_subset",
        ),
        (
            {"gather_subset": ["adoption"], "ports": [1]},
            "ports has no effect without process in gather_subset: add it, or remove ports",
        ),
        (
            {"gather_subset": ["unreported"], "unit": "nats"},
            "unit has no effect without process or deployment or rescue or diagnosis or log in gather_subset",
        ),
        ({"gather_subset": ["disks"]}, "value of gather_subset must be one or more of: process, deployment"),
    ],
)
def test_missing_and_superfluous_options_are_refused(options: dict[str, Any], problem: str) -> None:
    result = read(**options)
    assert result["failed"] and problem in result["msg"], result


def test_all_problems_are_reported_at_once() -> None:
    problems = option_problems(["deployment", "rescue"], ["config", "secrets", "prefix", "ports"])
    assert [problem.partition(":")[0] for problem in problems] == [
        "deployment in gather_subset requires record",
        "deployment in gather_subset requires install_dir",
        "deployment in gather_subset requires version",
        "deployment in gather_subset requires user",
        "deployment in gather_subset requires group",
        "rescue in gather_subset requires store_dir",
        "prefix has no effect without backup_files in gather_subset",
        "ports has no effect without process in gather_subset",
    ]


def test_an_option_with_its_default_is_not_set() -> None:
    spec: dict[str, dict[str, Any]] = {"a": {"default": []}, "b": {"default": "/"}, "c": {}, "d": {"default": 0}}
    assert given_options({"a": [], "b": "/", "c": None, "d": 0.0}, spec) == []
    assert given_options({"a": [1], "b": "/x", "c": "", "d": 1}, spec) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ["process"]),
        ("rescue", ["rescue"]),
        ("rescue, adoption", ["rescue", "adoption"]),
        (["adoption"], ["adoption"]),
        (5, ["5"]),
    ],
)
def test_requested_subsets_are_read_as_ansible_converts_them(value: Any, names: list[str]) -> None:
    assert requested_subsets(value) == names


def test_several_subsets_share_one_read_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def read_process(*given: Any, **named: Any) -> dict[str, Any]:
        reads.append(given)
        return original(*given, **named)

    original = observation.read_process
    monkeypatch.setattr(gathering, "read_process", read_process)
    config = str(tmp_path / "nats-server.conf")
    found = read(gather_subset=["process", "rescue", "unreported"], config=config, store_dir=str(tmp_path))
    assert set(found) == {"changed", "invocation", "process", "maintenance", "closed_ports", "rescue", "unreported"}
    assert len(reads) == 1
    assert found["rescue"]["running"] is found["process"]["running"] is False
    assert found["rescue"]["fenced"] == "it has no configuration file"
    assert found["unreported"] == {"host": None, "problem": f"no nats-server is running with {config}"}


def test_the_failure_of_a_read_names_the_cause(tmp_path: Path) -> None:
    (tmp_path / "running.json").write_text("{half")
    paths = {name: str(tmp_path / name) for name in ("config", "secrets", "install_dir")}
    names = dict.fromkeys(("user", "group"), "root")
    failed = read(
        gather_subset=["deployment"], record=str(tmp_path / "running.json"), version="2.15.1", **paths, **names
    )
    assert failed["msg"].startswith("The host cannot be read: ")
