# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that contexts of the nats command are switched to the site that serves the streams after a failover."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.contexts import ContextSide, address, points_at
from support.module_runs import run_in_process

EAST = {"name": "east", "servers": ["nats://e1:4222", "nats://e2"], "jetstream_domain": "east"}
WEST = {"name": "west", "servers": ["tls://w1:4223"], "jetstream_domain": "west"}
APP = {"description": "NATS cluster east", "password": "secret", "url": "nats://e1:4222,e2:4222", "user": "app"}


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    for name, content in {
        "east-app": APP,
        "east-sys": {**APP, "user": "sys"},
        "nkey-sys": {"url": APP["url"], "nkey": "/sys.nk"},
        "west-app": {**APP, "url": "tls://w1:4223"},
        "mixed": {**APP, "url": "nats://e1:4222,nats://other"},
        "domain": {"url": "nats://E2/", "jetstream_domain": "east", "creds": "/a.creds"},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    (tmp_path / "broken.json").write_text("{")
    return tmp_path


def run(folder: Path, serving: str, check_mode: bool = False, **options: Any) -> dict[str, Any]:
    given = {"directory": str(folder), "origin": EAST, "site": WEST, "serving": serving, "left_alone": ["sys"]}
    return run_in_process("nats_dr_contexts", {}, check_mode, **{**given, **options}, _ansible_diff=True)


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_contexts_go_with_the_streams_and_come_back_as_they_were(contexts: Path) -> None:
    before = files(contexts)
    predicted = run(contexts, "site", check_mode=True)
    assert files(contexts) == before
    done = run(contexts, "site")
    assert predicted["diff"] == done["diff"] and done["contexts"] == ["domain", "east-app"]
    assert done["diff"]["after"] == {"domain": "tls://w1:4223", "east-app": "tls://w1:4223"}
    assert "secret" not in str(done["diff"])
    app, domain = (json.loads((contexts / f"{name}.json").read_text()) for name in ("east-app", "domain"))
    assert app == {**APP, "url": "tls://w1:4223", "description": "NATS cluster east, failed over to west"}
    assert (domain["jetstream_domain"], domain["creds"]) == ("west", "/a.creds")
    assert (contexts / "east-app.json").stat().st_mode & 0o777 == 0o600
    same = set(before) - {"domain.json", "east-app.json"}
    assert {name: text for name, text in files(contexts).items() if name in same} == {
        name: text for name, text in before.items() if name in same
    }
    assert not run(contexts, "site")["changed"]

    # A password was rotated between the two calls.
    (contexts / "east-app.json").write_text(json.dumps({**app, "password": "rotated"}, indent=2) + "\n")
    assert not run(contexts, "site")["changed"]
    assert run(contexts, "origin")["contexts"] == ["domain", "east-app"]
    after = {name: json.loads(text) for name, text in files(contexts).items() if name != "broken.json"}
    assert after == {
        **{name: json.loads(text) for name, text in before.items() if name != "broken.json"},
        "east-app.json": {**APP, "password": "rotated"},
    }
    assert not run(contexts, "origin")["changed"]


def test_redirected_context_is_kept(contexts: Path) -> None:
    run(contexts, "site")
    (contexts / "east-app.json").write_text(json.dumps({**APP, "url": "nats://mine"}))
    run(contexts, "origin")
    assert json.loads((contexts / "east-app.json").read_text())["url"] == "nats://mine"
    assert not list(contexts.glob("*.before_failover"))


def test_run_killed_between_two_files_resumes(contexts: Path) -> None:
    saved = {"description": "NATS cluster east", "url": "nats://e1:4222,e2:4222"}
    (contexts / "east-app.json.before_failover").write_text(json.dumps(saved))
    assert "east-app" in run(contexts, "site")["contexts"]
    run(contexts, "origin")
    assert json.loads((contexts / "east-app.json").read_text()) == APP


def test_named_contexts_alone_are_taken_and_must_be_the_origins(contexts: Path) -> None:
    assert run(contexts, "site", contexts=["east-sys"])["contexts"] == ["east-sys"]
    refused = run(contexts, "site", contexts=["west-app"])
    assert refused["failure"]["code"] == "invalid_option" and "does not point at east" in refused["msg"]
    assert "not in" in run(contexts, "site", contexts=["none"])["msg"]
    assert run(contexts, "origin", contexts=["east-sys"])["contexts"] == ["east-sys"]
    assert not run(contexts / "nowhere", "site")["changed"]
    assert "addresses" in run(contexts, "site", origin={"name": "east", "servers": []})["msg"]


def test_addresses_are_compared_with_their_ports() -> None:
    assert [address(one) for one in ("nats://u:p@E1", "tls://[::1]", "[::1]:5", "e1:4222/")] == [
        *("e1:4222", "[::1]:4222"),
        *("[::1]:5", "e1:4222"),
    ]
    assert not points_at({"url": ""}, ContextSide("east", ("e1",)))
