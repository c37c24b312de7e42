# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The room that an account's limits leave for planned streams. Pure.

Flat limits count the bytes of every replica, the limits of a tier count the bytes of a stream once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..units import exact_size
from .config import Config

Info = Mapping[str, Any]


@dataclass(frozen=True)
class Need:
    """A stream that is created, or changed if it has an `old` configuration. Both are in normal form."""

    new: Config
    old: Config | None


def refusals(need: Need, usage: Info) -> Iterator[str]:
    """Yield why the account cannot have a stream at all (10113, 10120). `usage`: the reply to `$JS.API.INFO`."""
    tier, own = _tier(need, usage)
    if own is None:
        yield f"the account has no limits for {tier} (JetStream error 10120)"
    elif (own.get("limits") or {}).get("max_bytes_required") and need.new["max_bytes"] <= 0:
        yield "max_bytes: the account requires it (JetStream error 10113)"


def shortages(needs: Sequence[Need], usage: Info) -> Iterator[str]:
    """Yield the limits of the account that streams together exceed (10027, 10047)."""
    added: dict[tuple[str, str], int] = {}
    for need in needs:
        tier, own = _tier(need, usage)
        if own is None:
            continue
        new, old = need.new, need.old
        before = max(0, old["max_bytes"]) * (1 if tier else old["num_replicas"]) if old else 0
        after = max(0, new["max_bytes"]) * (1 if tier else new["num_replicas"])
        kind = "memory" if new["storage"] == "memory" else "storage"
        added[tier, kind] = added.get((tier, kind), 0) + after - before
        if old is None:
            added[tier, "streams"] = added.get((tier, "streams"), 0) + 1
    for (tier, what), amount in added.items():
        own = (usage.get("tiers") or {}).get(tier) or usage
        most = (own.get("limits") or {}).get(f"max_{what}")
        present = own.get("streams", 0) if what == "streams" else max(own.get(what, 0), own.get(f"reserved_{what}", 0))
        if most is not None and most >= 0 and amount > 0 and present + amount > most:
            numbers = [most, present, amount]
            text = [str(one) if what == "streams" else exact_size(one) for one in numbers]
            place = f" for {tier}" if tier else ""
            yield (
                f"the account's limit max_{what}{place} is {text[0]}: {text[1]} are used, and the plan adds {text[2]}"
            )


def _tier(need: Need, usage: Info) -> tuple[str, Info | None]:
    """Return the tier of a stream, empty if the account has none, and the use and limits that apply, None if the
    account has no such tier."""
    tiers = usage.get("tiers") or {}
    tier = f"R{need.new['num_replicas']}" if tiers else ""
    return tier, tiers.get(tier) if tiers else usage
