# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.benchmark import figures, read_load

OPTIONS: dict[str, Any] = {
    "messages": 1000,
    "message_size": "1KB",
    "max_duration": "30s",
    "window": 10,
    "replicas": 3,
    "storage": "file",
}


def test_stream_has_room_for_all_messages() -> None:
    load = read_load(OPTIONS)
    assert (load.size, load.seconds, load.max_bytes) == (1024, 30.0, 1000 * (1024 + 256))


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("message_size", "big", "message_size: 'big' is not a size"),
        ("max_duration", "soon", "max_duration: "),
        ("max_duration", "0s", "window and max_duration: must be more than 0"),
        ("window", 0, "window and max_duration: must be more than 0"),
        ("messages", 0, "messages: must be from 1 to 1000000, not 0"),
        ("messages", 2_000_000, "messages: must be from 1 to 1000000, not 2000000"),
        ("message_size", "64MB", "may occupy .* on 3 replicas; the limit is 4"),
    ],
)
def test_load_beyond_the_limits_is_refused(option: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_load({**OPTIONS, option: value})


def test_figures_contain_rates_and_percentiles() -> None:
    latencies = [number / 1000 for number in range(1, 101)]
    found = figures(100, 10, 2.0, latencies)
    assert (found["messages_per_second"], found["bytes_per_second"]) == (50.0, 500)
    assert (found["p50_ms"], found["p99_ms"], found["max_ms"]) == (51.0, 100.0, 100.0)
    assert figures(0, 10, 0.0)["messages_per_second"] == 0.0
