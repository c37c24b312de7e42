# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resets the position of a consumer, and unpins its clients."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..problem import Danger
from ..waiting import wait_until
from . import change_rules
from . import config as rules
from .config import OptionError
from .positions import (
    RESET_SINCE,
    UNPIN_SINCE,
    is_reset,
    pinned_clients,
    position,
    position_before,
    reset_dangers,
    reset_target,
)
from .state import ConsumerAsset, Info, RunOptions, asset_result, ownership, refuse


def ensure_reset(
    asset: ConsumerAsset, given: Mapping[str, Any], desired: rules.Config, run_options: RunOptions
) -> dict[str, Any]:
    """Make a consumer deliver from `seq` on, or from its ack floor, and return the result. Raises NatsFailure:
    unsupported, not_found, invalid_option, dangerous, not_seen."""
    started = time.monotonic()
    _require_release(
        asset,
        RESET_SINCE,
        "state: reset",
        "on older servers, create a different consumer with deliver_policy by_start_sequence",
    )
    info = _existing(asset)
    last_seq = int(asset.api.stream(asset.stream)["state"]["last_seq"])
    try:
        target = reset_target(info, last_seq, given.get("seq"), given.get("expected_delivered"))
    except OptionError as problem:
        raise asset.failure("invalid_option", str(problem)) from problem
    config, old, new = rules.clean(info["config"]), position(info), position_before(target)
    if is_reset(info, target, given.get("seq")):
        return {**asset_result(False, config, config, {}, {}, started, []), "reset_seq": target}
    dangers = [*ownership(asset, asset.normal(info), desired), *reset_dangers(info, target)]
    refuse(asset, dangers, run_options)
    if not run_options.check_mode:
        seq = asset.api.reset_consumer(asset.stream, asset.name, target)
        if seq != target:
            raise asset.failure("not_seen", f"it was reset to {seq} instead of {target}")
    return {**asset_result(True, config, config, old, new, started, dangers), "reset_seq": target}


def ensure_unpinned(
    asset: ConsumerAsset, given: Mapping[str, Any], desired: rules.Config, run_options: RunOptions
) -> dict[str, Any]:
    """Unpin the clients of a consumer's priority groups, so a different client can be pinned, and return the result.
    Raises NatsFailure: unsupported, not_found, invalid_option, dangerous, not_seen."""
    started = time.monotonic()
    _require_release(asset, UNPIN_SINCE, "state: unpinned", "older servers do not pin clients")
    info = _existing(asset)
    try:
        pinned = pinned_clients(info, given.get("group"), given.get("client"))
    except OptionError as problem:
        raise asset.failure("invalid_option", str(problem)) from problem
    config = rules.clean(info["config"])
    if not pinned:
        return {**asset_result(False, config, config, {}, {}, started, []), "unpinned": {}}
    dangers = [
        *ownership(asset, asset.normal(info), desired),
        *(
            Danger(change_rules.IN_USE, f"client {client} is pinned to group {group}")
            for group, client in pinned.items()
        ),
    ]
    refuse(asset, dangers, run_options)
    if not run_options.check_mode:
        for group in pinned:
            asset.api.unpin_consumer(asset.stream, asset.name, group)
        _see_unpinned(asset, pinned, run_options)
    after = dict.fromkeys(pinned)
    return {**asset_result(True, config, config, pinned, after, started, dangers), "unpinned": pinned}


def _see_unpinned(asset: ConsumerAsset, pinned: Mapping[str, str], run_options: RunOptions) -> None:
    def still(info: Info) -> set[tuple[str, str]]:
        return set(pinned_clients(info, None, None).items()) & set(pinned.items())

    seen = wait_until(lambda: _existing(asset), lambda info: not still(info), run_options.wait_timeout)
    if not seen.done:
        clients = ", ".join(client for _group, client in sorted(still(seen.value)))
        raise asset.failure("not_seen", f"it was unpinned, but these clients are still pinned: {clients}")


def _require_release(asset: ConsumerAsset, since: rules.Release, what: str, remedy: str) -> None:
    if asset.release < since:
        running = ".".join(map(str, asset.release))
        needed = ".".join(map(str, since))
        raise asset.failure(
            "unsupported", f"{what} needs nats-server {needed}; the servers run release {running}; {remedy}"
        )


def _existing(asset: ConsumerAsset) -> Info:
    info = asset.find()
    if info is None:
        raise asset.failure("not_found", "it does not exist")
    return info
