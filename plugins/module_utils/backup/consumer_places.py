# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates consumers that continue at a given position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..nats.jetstream_api import JetStreamApi
from ..waiting import wait_until
from .restore_rules import begins_early, has_delivered


def place_consumers(
    api: JetStreamApi,
    stream: str,
    configs: Mapping[str, Mapping[str, Any]],
    last_seq: int,
    retention: str,
    timeout: float,
) -> list[str]:
    """Wait until new consumers with these configurations begin at their positions, and return why some do not.

    A consumer that begins earlier is recreated, because its stream's leader or replica may have changed. A consumer
    that has delivered messages is kept, because clients use it. If acknowledgements remove messages from the stream,
    all consumers are kept, because deleting one may also remove messages. `retention`: the retention of the stream;
    `last_seq`: its last sequence when the consumers were created.
    """

    def again() -> list[str]:
        listing = api.consumers(stream)
        rows = {row["name"]: row for row in listing.rows}
        left = []
        for name, config in configs.items():
            row = rows.get(name)
            if row is None:
                if name not in listing.unknown:
                    # An interrupted attempt may have deleted the consumer without recreating it.
                    api.save_consumer(stream, config, "create")
                left.append(f"no leader answers for consumer {name}")
            elif begins_early(row, last_seq):
                if retention == "limits" and not has_delivered(row):
                    api.delete_consumer(stream, name)
                    api.save_consumer(stream, config, "create")
                left.append(f"consumer {name} would start before its position")
        return left

    if not configs:
        return []
    return wait_until(again, lambda left: not left, timeout, 1.0).value
