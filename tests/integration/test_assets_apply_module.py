# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_assets_apply on real servers: plans are carried out, resumed, and refused after any change."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import run_apply
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.buckets import kv_subject
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.asset_team import Document, Team, actions, states
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.usefixtures("tidy")

#: Streams with everything whose order matters.
BEFORE: Document = {
    "prune": "owned",
    "streams": {
        "A": {"subjects": ["a.>", "shared.>"], "consumers": {"old": {}, "kept": {"ack_wait": "10s"}}},
        "B": {"subjects": ["b.>"]},
        "GONE": {"subjects": ["gone.>"]},
    },
    "mirrors": {"COPY": {"of": "A"}},
    "kv": {"settings": {"history": 2, "entries": {"rate": {"value": "10", "mode": "own"}, "first": {"value": "1"}}}},
    "objects": {"reports": {}},
}
AFTER: Document = {
    "prune": "owned",
    "streams": {
        "A": {"subjects": ["a.>"], "max_age": "7d", "consumers": {"kept": {"ack_wait": "20s"}, "new": {}}},
        "B": {"subjects": ["b.>", "shared.>"], "replicas": 3},
        "C": {"sources": ["B"], "consumers": {"c": {}}},
    },
    "mirrors": {"COPY": {"of": "A"}},
    "kv": {
        "settings": {
            "history": 3,
            "entries": {
                "rate": {"value": "20", "mode": "own"},
                "first": {"value": "2"},
                "second": {"value": "3"},
            },
        },
    },
    "objects": {"reports": {"description": "PDF files"}},
}


def test_plan_is_carried_out_once_and_as_check_mode_predicts(api: JetStreamApi, team: Team, tmp_path: Path) -> None:
    created = team.make(BEFORE)
    assert created["changed"] and len(created["steps"]) == 10
    assert set(states(team.plan(BEFORE)).values()) == {"same"}
    names = {"confirm": ["A", "A/kept", "settings"], "confirm_delete": ["A/old", "GONE"]}
    plan = team.plan(AFTER, **names)
    predicted = team.done(plan, AFTER, check_mode=True)
    assert states(team.plan(AFTER, **names)) == states(plan)
    real = team.done(plan, AFTER)
    for part in ("steps", "diff", "lines", "screen", "changed"):
        assert predicted[part] == real[part], part
    assert actions(real)[0] == "delete consumer A/old"
    assert actions(real)[-1] == "delete stream GONE"
    assert actions(real).index("change stream A") < actions(real).index("change stream B")
    assert set(states(team.plan(AFTER)).values()) == {"same"}
    again = team.done(plan, AFTER)
    assert (again["changed"], again["steps"], again["diff"]) == (False, [], {"before": {}, "after": {}})
    assert sorted(api.stream_names()) == ["A", "B", "C", "COPY", "KV_settings", "OBJ_reports"]
    assert api.stream("B")["config"]["num_replicas"] == 3
    marks = api.stream("A")["config"]["metadata"]
    assert (marks["managed-by"], marks["natsops.document"]) == ("natsops", "team")
    entry = api.last_message("KV_settings", kv_subject("settings", "first"))
    assert entry is not None and entry["data"] == "MQ=="  # seeded once with "1"


# --- Stale plans ------------------------------------------------------------------------------------------------------


def test_plan_is_refused_after_any_change(api: JetStreamApi, team: Team) -> None:
    base: Document = {
        "streams": {"S": {"consumers": {"c": {}}}},
        "kv": {"b": {"entries": {"k": {"value": "1", "mode": "own"}}}},
    }
    team.make(base)
    changed: Document = {
        "streams": {"S": {"description": "new", "consumers": {"c": {}}}},
        "kv": {"b": {"entries": {"k": {"value": "2", "mode": "own"}}}},
    }
    plan = team.plan(changed)
    assert "document team has changed" in team.refused("stale", plan, base)
    api.update_stream({**api.stream("S")["config"], "max_msgs": 7})
    assert "stream S of account APP: it has changed since" in team.refused("stale", plan, changed)
    api.update_stream({**api.stream("S")["config"], "max_msgs": -1})
    api.store("S", b"first")
    assert "stream S of account APP: it has changed since" in team.refused("stale", plan, changed)
    api.purge_stream("S")
    api.save_consumer("S", {**api.consumer("S", "c")["config"], "ack_wait": 5_000_000_000}, "update")
    assert "consumer S/c of account APP: the plan does not list" in team.refused("stale", plan, changed)
    api.save_consumer("S", {**api.consumer("S", "c")["config"], "ack_wait": 30_000_000_000}, "update")
    api.store(kv_subject("b", "k"), b"1")
    assert "entry b/k of account APP: it has changed since" in team.refused("stale", plan, changed)
    assert api.stream("S")["config"].get("description", "") == ""
    assert actions(team.done(team.plan(changed), changed)) == ["change stream S", "change entry b/k"]


def test_plan_is_refused_if_the_cluster_or_the_costs_differ(api: JetStreamApi, team: Team) -> None:
    team.make({"streams": {"S": {}}})
    for _number in range(2):
        api.store("S", b"x")
    limited: Document = {"streams": {"S": {"max_msgs": 3}}}
    plan = team.plan(limited)
    for _number in range(3):
        api.store("S", b"x")
    assert "the plan does not list that max_msgs: 3 deletes 2 of 5 messages" in team.refused("stale", plan, limited)
    assert api.stream("S")["state"]["messages"] == 5
    elsewhere = {**limited, "cluster": "C2"}
    assert "document team is for cluster C2" in team.refused("stale", team.plan(elsewhere), elsewhere)


# --- Failures and resumption ------------------------------------------------------------------------------------------


def before_step(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], Any]) -> None:
    """Act as another client immediately before the step of an asset."""
    take = run_apply._take

    def patched(run: Any, course: Any, step: Any) -> None:
        if step["name"] == name:
            act()
        take(run, course, step)

    monkeypatch.setattr(run_apply, "_take", patched)


CHAIN: Document = {
    "streams": {"A": {"consumers": {"a": {}}}, "B": {"consumers": {"b": {}}}, "D": {"sources": ["B"]}},
    "mirrors": {"COPY": {"of": "B"}},
}


def test_independent_assets_continue_after_a_failure(
    api: JetStreamApi, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = team.plan(CHAIN)
    with monkeypatch.context() as patch:
        before_step(patch, "B", lambda: api.create_stream({"name": "B", "subjects": ["elsewhere"]}))
        failed = team.apply(plan, CHAIN)
    assert failed["failure"]["code"] == "not_applied"
    results = {row["name"]: (row["result"], row["reason"]) for row in failed["results"]}
    skipped = ("skipped", "it needs stream B, which was not changed")
    assert results == {
        "A": ("done", ""),
        "A/a": ("done", ""),
        "B": ("failed", "another client has created it since"),
        "B/b": skipped,
        "D": skipped,
        "COPY": skipped,
    }
    assert failed["msg"].startswith("1 change failed, 3 were skipped, and 2 were made. Fix the causes")
    assert failed["changed"] and [name for name, (result, _why) in results.items() if result == "done"] == ["A", "A/a"]
    # Ansible prints a failed result in full.
    assert not {"steps", "lines", "screen", "diff"} & set(failed)
    assert "stream B of account APP: it exists, but no document owns it" in team.refused("stale", plan, CHAIN)
    api.delete_stream("B")
    assert wait_until(api.stream_names, lambda names: "B" not in names, 10).done
    assert len(team.done(plan, CHAIN)["steps"]) == 4
    assert team.done(plan, CHAIN)["changed"] is False
    assert set(states(team.plan(CHAIN)).values()) == {"same"}


class Killed(BaseException):
    """The end of a process in the middle of a run."""


@pytest.mark.parametrize("after", ["A/old", "A", "B", "C", "settings/rate"])
def test_killed_run_is_resumed(api: JetStreamApi, team: Team, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    team.make(BEFORE)
    plan = team.plan(AFTER, confirm=["A", "A/kept", "settings"], confirm_delete=["A/old", "GONE"])
    take = run_apply._AssetsRun.take

    def killed(self: Any, step: Any) -> None:
        take(self, step)
        if step["name"] == after:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(run_apply._AssetsRun, "take", killed)
        with pytest.raises(Killed):
            team.apply(plan, AFTER)
    resumed = team.done(plan, AFTER)
    assert 0 < len(resumed["steps"]) < len(plan["steps"])
    assert team.done(plan, AFTER)["changed"] is False
    assert set(states(team.plan(AFTER)).values()) == {"same"}


def test_run_without_servers_fails_once_and_is_resumed(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = form(make_cluster(["n1", "n2", "n3"]), run_module)
    team = Team(servers, run_module)
    body: Document = {"streams": {name: {"replicas": 3} for name in "ABCDEF"}}
    plan = team.plan(body)
    with monkeypatch.context() as patch:
        before_step(patch, "C", servers.kill)
        failed = team.apply(plan, body)
    assert failed["failure"]["code"] == "not_applied"
    results = [row["result"] for row in failed["results"]]
    assert results[:2] == ["done", "done"] and results[-1] == "skipped"
    assert failed["results"][-1]["reason"] == "the connection has failed"
    servers.start()
    form(servers, run_module)
    assert [step["name"] for step in team.done(plan, body)["steps"]] == list("CDEF")
    assert team.done(plan, body)["changed"] is False


def test_stream_that_was_moved_but_not_scaled_is_resumed(
    api: JetStreamApi, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.make({"streams": {"S": {"consumers": {"c": {}}}}})
    moved: Document = {
        "streams": {"S": {"placement": {"cluster": "C1"}, "replicas": 3, "description": "x", "consumers": {"c": {}}}}
    }
    plan = team.plan(moved)
    update = JetStreamApi.update_stream

    def killed(self: JetStreamApi, config: dict[str, Any]) -> dict[str, Any]:
        if config["num_replicas"] == 3:
            raise Killed
        return update(self, config)

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "update_stream", killed)
        with pytest.raises(Killed):
            team.apply(plan, moved)
    config = api.stream("S")["config"]
    assert (config["description"], config["placement"], config["num_replicas"]) == ("x", {"cluster": "C1"}, 1)
    resumed = team.done(plan, moved)
    assert [one["path"] for one in resumed["steps"][0]["changes"]] == ["replicas"]
    assert api.stream("S")["config"]["num_replicas"] == 3


def test_entry_that_another_client_writes_is_not_overwritten(
    api: JetStreamApi, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    body: Document = {
        "kv": {"b": {"entries": {name: {"value": "mine", "mode": "own"} for name in ("first", "second", "third")}}}
    }
    plan = team.plan(body)
    with monkeypatch.context() as patch:
        before_step(patch, "b/second", lambda: api.store(kv_subject("b", "second"), b"theirs"))
        failed = team.apply(plan, body)
    results = {row["name"]: (row["result"], row["reason"]) for row in failed["results"]}
    assert results["b/second"] == ("failed", "another client has written it since")
    assert {results[name][0] for name in ("b", "b/first", "b/third")} == {"done"}
    entry = api.last_message("KV_b", kv_subject("b", "second"))
    assert entry is not None and entry["data"] == "dGhlaXJz"
    assert "entry b/second of account APP: the action is now change" in team.refused("stale", plan, body)


def test_entry_is_deleted_with_a_marker(api: JetStreamApi, team: Team) -> None:
    team.make({"kv": {"b": {"history": 5, "entries": {"k": {"value": "1"}}}}})
    body: Document = {"kv": {"b": {"history": 5, "entries": {"k": {"mode": "absent"}}}}}
    assert actions(team.make(body)) == ["delete entry b/k"]
    assert states(team.plan(body))["entry b/k"] == "same"
    assert api.stream("KV_b")["state"]["messages"] == 2


# --- Deletions --------------------------------------------------------------------------------------------------------


def test_stream_with_messages_is_deleted_only_with_its_name_and_a_recent_backup(
    api: JetStreamApi, team: Team, run_module: Runner, tmp_path: Path
) -> None:
    team.make({"prune": "owned", "streams": {"OLD": {}, "KEPT": {}}})
    for _number in range(4):
        api.store("OLD", b"x")
    pruned: Document = {"prune": "owned", "streams": {"KEPT": {}}}
    plan = team.plan(pruned, confirm_delete=["OLD"])
    backups = {"backup_directory": str(tmp_path)}
    refused = team.refused("unconfirmed_deletion", plan, pruned, **backups)
    assert "stream OLD of account APP has 4 messages: list OLD in confirm_delete" in refused
    assert "stream OLD of account APP has no backup" in refused
    saved = run_module("nats_backup", team.connection, directory=str(tmp_path), streams=["APP/OLD"])
    assert not saved.get("failed"), saved
    catalogue = tmp_path / "catalogue.json"
    recent = catalogue.read_text()
    old = json.loads(recent)
    long_ago = (datetime.now(timezone.utc) - timedelta(hours=25)).isoformat()
    for row in old["backups"]:
        row["taken"] = long_ago
    for record in old["streams"].values():
        record["current"] = long_ago
    catalogue.write_text(json.dumps(old))
    names = {"confirm_delete": ["OLD"], **backups}
    assert "is older than 24 hours" in team.refused("unconfirmed_deletion", plan, pruned, **names)
    catalogue.write_text(recent)
    predicted = team.done(plan, pruned, check_mode=True, **names)
    assert "OLD" in api.stream_names()
    real = team.done(plan, pruned, **names)
    assert real["diff"] == predicted["diff"] == {"before": {"stream OLD of account APP": {}}, "after": {}}
    assert "OLD" not in api.stream_names()


def test_waiver_replaces_the_backup_and_new_messages_make_the_plan_stale(api: JetStreamApi, team: Team) -> None:
    team.make({"prune": "owned", "streams": {"OLD": {}, "KEPT": {}}})
    api.store("OLD", b"x")
    pruned: Document = {"prune": "owned", "streams": {"KEPT": {}}}
    names = {"confirm_delete": ["OLD"], "confirm_without_backup": ["OLD"]}
    plan = team.plan(pruned, confirm_delete=["OLD"])
    api.store("OLD", b"y")
    assert "it has 2 messages, and the plan lists 1" in team.refused("stale", plan, pruned, **names)
    team.done(team.plan(pruned, confirm_delete=["OLD"]), pruned, **names)
    assert wait_until(api.stream_names, lambda found: found == ["KEPT"], 10).done


# --- Check mode -------------------------------------------------------------------------------------------------------


def test_check_mode_sends_no_request_that_writes(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    subjects: list[str] = []
    send = Client.request_many

    def recorded(self: Client, calls: Any, *arguments: Any) -> Any:
        subjects.extend(call.subject for call in calls)
        return send(self, calls, *arguments)

    def writing() -> list[str]:
        return [one for one in subjects if any(word in one for word in ("CREATE", "UPDATE", "DELETE", "$KV", "PURGE"))]

    monkeypatch.setattr(Client, "request_many", recorded)
    plan = team.plan(BEFORE)
    team.done(plan, BEFORE, check_mode=True)
    assert subjects and not writing()
    team.done(plan, BEFORE)
    assert len(writing()) == len(plan["steps"])
