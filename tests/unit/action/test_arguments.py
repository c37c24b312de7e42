# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the controller side of the actions nats_bundle, nats_server_files and nats_server_host_info; a plain function
replaces the module."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible_collections.natsops.jetstream.plugins.action import nats_bundle, nats_server_files, nats_server_host_info


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the arguments that the module would receive, updated with its option `result`. `private`: whether Ansible would
    hide the result from -vvv, and the options from the host's log."""

    def run_module(action: Any, *_arguments: Any) -> dict[str, Any]:
        arguments = action._task.args
        private = {action._task.no_log, action._connection._play_context.no_log} == {True}
        return {"given": arguments, "private": private, **arguments.get("result", {"process": {}})}

    monkeypatch.setattr(NormalAction, "run", run_module)


def run(kind: Any, **arguments: Any) -> dict[str, Any]:
    action = kind.__new__(kind)
    action._task, context = SimpleNamespace(args=arguments, no_log=False), SimpleNamespace(no_log=False)
    action._connection = SimpleNamespace(_play_context=context)
    result: dict[str, Any] = action.run(task_vars={})
    assert action._task.args == arguments
    # Ansible would hide a failure, too.
    assert not action._task.no_log and not context.no_log
    return result


def read_host(subset: Any, **arguments: Any) -> dict[str, Any]:
    return run(nats_server_host_info.ActionModule, gather_subset=subset, **arguments)


def test_bundle_gets_only_the_secrets_of_the_variables() -> None:
    users = [{"user": "app", "password": "app-pass"}, {"user": "other", "password": "app-pass"}]
    config = {"accounts": {"APP": {"users": users}}, "token": "t0k3n", "server_name": "n1", "url": "nats://n1"}
    given = run(nats_bundle.ActionModule, path="/x.zip", secrets=["s3cret", config, None])["given"]
    assert given == {"path": "/x.zip", "secrets": ["app-pass", "s3cret", "t0k3n"]}
    assert run(nats_bundle.ActionModule, path="/x.zip")["given"]["secrets"] == []


def test_a_file_on_the_controller_has_a_sum_and_none_has_none(tmp_path: Path) -> None:
    file = tmp_path / "archive"
    file.write_bytes(b"nats")
    found = read_host(["deployment"], src=str(file))
    assert found["src_sha256"] == hashlib.sha256(b"nats").hexdigest()
    for source in (None, "", str(tmp_path), f"{file}.gone"):
        assert read_host(["deployment"], src=source)["src_sha256"] == ""
    assert read_host(["deployment"])["src_sha256"] == ""


@pytest.mark.parametrize(
    "subset", [["deployment"], "adoption", "rescue, adoption", ("process", "deployment"), ["adoption", "deployment"]]
)
def test_result_with_secrets_is_not_printed_and_its_failure_has_only_a_message(subset: Any) -> None:
    found = read_host(subset, result={"process": {}, "adoption": {}})
    assert found["private"] and found["_ansible_no_log"]
    for result, message in (
        ({"msg": "no permission", "secrets": "s3cret"}, "no permission"),
        ({"module_stderr": "killed"}, "killed"),
        ({}, nats_server_host_info.NO_MESSAGE),
    ):
        assert read_host(subset, result=result) == {"failed": True, "changed": False, "msg": message}


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            {"gather_subset": [name]}
            for name in ("process", "rescue", "diagnosis", "unreported", "backup_files", "other")
        ),
    ],
)
def test_result_without_secrets_is_printed_unchanged(options: dict[str, Any]) -> None:
    results: tuple[dict[str, Any], ...] = ({"process": {}, "rescue": {}}, {"msg": "no permission"}, {})
    for result in results:
        found = run(nats_server_host_info.ActionModule, result=result, **options)
        assert {name: value for name, value in found.items() if name not in ("given", "private")} == result
        assert not found["private"]


def test_files_that_are_as_desired_need_no_module_run() -> None:
    tested = {"binary": "b", "config": "c", "environment_sha256": hashlib.sha256(b"").hexdigest(), "digest": "d"}
    observed = {"paths": {"/a": {"kind": "absent"}}, "leftovers": [], "trial": tested}
    trial = {"binary": "b", "config": "c"}
    unchanged = {"changed": False, "changed_paths": [], "unit_changed": False}
    action = nats_server_files.ActionModule
    assert run(action, observed=observed, absent=["/a"], trial=trial) == {**unchanged, "tried": True, "digest": "d"}
    assert run(action, observed=observed, absent=["/a"]) == {**unchanged, "tried": False, "digest": ""}
    given = run(action, observed=observed, absent=["/a", "/b"])["given"]
    assert given == {"absent": ["/a", "/b"]}
    assert "given" in run(action, absent=["/a"], trial=trial)
