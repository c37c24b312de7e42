# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failback of a stream: the configuration that copies only the site's own writes, and the consumers' positions.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from .failover import SHORTEST_WINDOW
from .record import Failover, fenced_subject


@dataclass(frozen=True)
class Floor:
    """A consumer's position at the origin, and the maximum number of messages that are delivered to it again."""

    floor: int
    again: int


def returning_config(
    config: Mapping[str, Any], stream: str, failover: Failover, domain: Optional[str]
) -> dict[str, Any]:
    """Return the configuration with which the origin copies the site's own writes: it excludes messages that came from
    the origin and rejects publishers. `domain`: the site's JetStream domain, None if both are in the same JetStream."""
    source: dict[str, Any] = {"name": failover.target, "opt_start_seq": failover.last_copied + 1}
    if domain:
        source["external"] = {"api": f"$JS.{domain}.API", "deliver": ""}
    return {
        **config,
        "subjects": [fenced_subject(stream)],
        "sources": [source],
        "duplicate_window": SHORTEST_WINDOW,
    }


def returned_config(config: Mapping[str, Any], failover: Failover) -> dict[str, Any]:
    """Return the configuration with which the origin accepts messages again, including its original sources."""
    result = {key: value for key, value in config.items() if key != "sources"}
    if failover.origin_config.get("sources"):
        result["sources"] = list(failover.origin_config["sources"])
    result["duplicate_window"] = failover.origin_config.get("duplicate_window", 120_000_000_000)
    result["subjects"] = list(failover.origin_config.get("subjects") or failover.subjects)
    return result


def has_source(config: Mapping[str, Any], name: str) -> bool:
    """Return whether a stream has a source of this name."""
    return any(entry.get("name") == name for entry in config.get("sources") or ())


def returning_floor(
    at_origin: int,
    at_site: int,
    failover: Failover,
    origin_last: int,
    find_copied: Callable[[int], int],
    find_written: Callable[[int], int],
) -> Floor:
    """Return a consumer's position at the origin. The origin's stream has three parts in order: messages that the site
    also has (up to `position`), messages that only the origin has (up to `origin_last`), and the site's writes.

    A consumer that has not acknowledged all of the second part receives the second and third parts again, so nothing is
    skipped. `find_copied(seq)`: the origin's sequence of a message that the site copied from it. `find_written(seq)`:
    the origin's sequence of a message written at the site.
    """
    if at_site <= failover.last_copied:
        return Floor(max(find_copied(at_site), at_origin), 0)
    reached = find_written(at_site)
    if origin_last <= failover.position or at_origin >= origin_last:
        return Floor(reached, 0)
    return Floor(max(failover.position, at_origin), reached - origin_last)
