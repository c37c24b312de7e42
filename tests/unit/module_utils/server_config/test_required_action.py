# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.required_action import (
    config_to_reload_first,
    epoch,
    required_action,
    serves,
)

LOADED = "2026-11-21T07:00:00.123456789Z"
LOADED_AT = epoch(LOADED)
CONFIG = {"server_name": "n1", "port": 4222, "max_connections": 100}


def need(
    running: dict[str, Any] | None = None,
    varz: dict[str, Any] | None = None,
    recorded: dict[str, Any] | None = None,
    **desired: Any,
) -> dict[str, Any]:
    """Return required_action for a healthy process; each test changes one value."""
    process = {
        "running": True,
        "instance": "boot/7/100",
        "started": LOADED_AT,
        "binary": "/opt/2.10.27/nats-server",
        "unit_changed_after_start": False,
    }
    return required_action(
        {**process, **(running or {})},
        {"version": "2.10.27", "config_load_time": LOADED} if varz is None else varz,
        {"instance": "boot/7/100", "config": CONFIG} if recorded is None else recorded,
        {
            "version": "2.10.27",
            "binary": "/opt/2.10.27/nats-server",
            "config": CONFIG,
            "digest": "",
            "config_changed_at": LOADED_AT - 5,
            "tls_changed_at": 0,
            **desired,
        },
    )


def test_epoch_parses_server_times() -> None:
    moment = datetime(2026, 11, 21, 7, 0, 0, 123456, tzinfo=timezone.utc).timestamp()
    assert epoch("2026-11-21T07:00:00.123456789Z") == moment
    assert epoch("2026-11-21T08:00:00.123456+01:00") == moment
    assert epoch("2026-11-21T07:00:00.1Z") == moment - 0.023456
    with pytest.raises(ValueError):
        epoch("yesterday")


def test_no_action_is_required_without_changes() -> None:
    assert need() == {"action": "none", "reasons": [], "keys": []}


def test_a_stopped_server_is_started() -> None:
    assert need(running={"running": False})["action"] == "start"


@pytest.mark.parametrize(
    "running, desired, word",
    [
        ({}, {"version": "2.15.1"}, "version"),
        ({"binary": "/opt/other/nats-server"}, {}, "/opt/other"),
        ({"unit_changed_after_start": True}, {}, "service definition"),
        ({"raft_silent": True}, {}, "no part in Raft"),
    ],
)
def test_changed_binary_new_unit_or_raft_silence_need_a_restart(
    running: dict[str, Any], desired: dict[str, Any], word: str
) -> None:
    result = need(running=running, **desired)
    assert result["action"] == "restart"
    assert word in result["reasons"][0]


def test_a_file_newer_than_the_load_is_reloaded_when_its_keys_allow() -> None:
    result = need(config={**CONFIG, "max_connections": 200}, config_changed_at=LOADED_AT + 1)
    assert (result["action"], result["keys"]) == ("reload", ["max_connections"])


def test_a_key_that_cannot_be_reloaded_needs_a_restart() -> None:
    assert need(config={**CONFIG, "port": 5222}, config_changed_at=LOADED_AT + 1)["action"] == "restart"


def test_an_interrupted_run_is_finished_by_the_next() -> None:
    """The earlier run wrote the file but did not touch the process, and this run changes nothing else."""
    result = need(config={**CONFIG, "port": 5222}, config_changed_at=LOADED_AT + 600, config_differs=False)
    assert result["action"] == "restart"


def test_the_digest_counts_more_than_the_times() -> None:
    varz = {"version": "2.10.27", "config_load_time": LOADED, "config_digest": "sha256:aa"}
    assert need(varz=varz, digest="sha256:aa", config_changed_at=LOADED_AT + 9)["action"] == "none"
    changed = {**CONFIG, "max_connections": 5}
    assert need(varz=varz, digest="sha256:bb", config=changed)["action"] == "reload"


def test_without_a_record_the_process_is_restarted() -> None:
    result = need(recorded={}, config_changed_at=LOADED_AT + 1)
    assert result["action"] == "restart"
    assert "not recorded" in result["reasons"][0]


def test_a_renewed_certificate_is_reloaded() -> None:
    assert need(tls_changed_at=LOADED_AT + 1)["action"] == "reload"
    assert need(tls_changed_at=LOADED_AT - 1)["action"] == "none"


def test_without_varz_the_record_of_the_same_process_decides() -> None:
    assert need(varz={})["action"] == "none"
    assert need(varz={}, config={**CONFIG, "max_connections": 1})["action"] == "reload"
    assert need(varz={}, recorded={"instance": "boot/6/100", "config": CONFIG})["action"] == "reload"


def test_check_mode_counts_a_file_that_would_be_written() -> None:
    assert need(config={**CONFIG, "max_connections": 1}, config_differs=True)["action"] == "reload"


def test_gateway_gets_tls_by_a_reload_only_if_the_running_version_is_known() -> None:
    gateway = {"name": "east", "port": 7222}
    tls = {"cert_file": "/s.crt", "key_file": "/s.key"}
    old, new = {"gateway": gateway, "port": 4222}, {"gateway": {**gateway, "tls": tls}, "port": 4333}
    running = {"running": True, "instance": "boot/7/100"}
    recorded = {"instance": "boot/7/100", "config": old}
    first = config_to_reload_first(running, recorded, {"config": new})
    assert first["gateway"]["tls"] == tls
    assert first["port"] == 4222
    assert config_to_reload_first(running, recorded, {"config": old}) == {}
    assert config_to_reload_first(running, {**recorded, "instance": "boot/8/1"}, {"config": new}) == {}
    assert config_to_reload_first(running, {}, {"config": new}) == {}
    assert config_to_reload_first({"running": False}, recorded, {"config": new}) == {}


@pytest.mark.parametrize(
    "version, ports, served",
    [
        ("2.10.27", [4222, 6222], True),
        ("2.10.27", ["4222", 6222, 8222], True),
        ("2.10.27", [4222], False),
        ("2.10.26", [4222, 6222], False),
        ("", [4222, 6222], False),
    ],
)
def test_a_process_serves_with_the_desired_version_on_all_ports(version: str, ports: list[Any], served: bool) -> None:
    assert serves({"version": version, "ports": ports}, {"version": "2.10.27", "ports": ["4222", 6222]}) is served
