# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The size and the figures of a benchmark. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..units import human_bytes, parse_duration, size_bytes

#: The largest number of messages, and of bytes on all replicas together.
MOST_MESSAGES, MOST_BYTES = 1_000_000, 4 << 30
#: Bytes that a server stores for each message in addition to its payload, at most (filestore.go).
_OVERHEAD = 256


@dataclass(frozen=True)
class Load:
    """The load: number and size of the messages, how many are published before the acknowledgement of the first, and the
    maximum duration of each of the two phases in seconds."""

    messages: int
    size: int
    window: int
    seconds: float
    replicas: int
    storage: str

    @property
    def max_bytes(self) -> int:
        """Return the maximum size of the stream."""
        return self.messages * (self.size + _OVERHEAD)


def read_load(params: Mapping[str, Any]) -> Load:
    """Return the load for the module's options. Raises ValueError that names the option."""
    try:
        option = "message_size"
        size = size_bytes(params[option])
        option = "max_duration"
        seconds = parse_duration(params[option])
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
    load = Load(params["messages"], size, params["window"], seconds, params["replicas"], params["storage"])
    if not 1 <= load.messages <= MOST_MESSAGES:
        raise ValueError(f"messages: must be from 1 to {MOST_MESSAGES}, not {load.messages}")
    if load.window < 1 or load.seconds <= 0:
        raise ValueError("window and max_duration: must be more than 0")
    total = load.max_bytes * load.replicas
    if total > MOST_BYTES:
        raise ValueError(
            f"messages: {load.messages} messages of {human_bytes(size)} may occupy {human_bytes(total)} on "
            f"{load.replicas} replicas; the limit is {human_bytes(MOST_BYTES)}"
        )
    return load


def figures(number: int, size: int, seconds: float, latencies: Sequence[float] = ()) -> dict[str, Any]:
    """Return the rates of a phase and, in milliseconds, percentiles of the latencies."""
    rate = number / seconds if seconds > 0 else 0.0
    found: dict[str, Any] = {
        "messages": number,
        "seconds": round(seconds, 3),
        "messages_per_second": round(rate, 1),
        "bytes_per_second": round(rate * size),
    }
    if latencies:
        ordered = sorted(latencies)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            found[f"{name}_ms"] = round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2)
    return found
