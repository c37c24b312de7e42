# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module of assets in check mode and for real, and compares the results. `run` takes the module's name without
`nats_`, `check_mode`, and options."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, Callable

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until

Run = Callable[..., dict[str, Any]]


def changed(run: Run, name: str, /, **options: Any) -> dict[str, Any]:
    """Run a module in check mode, for real, and again: the prediction matches the change, which is made only once."""
    predicted = run(name, check_mode=True, **options)
    assert predicted["changed"], predicted
    real = run(name, **options)
    assert real["changed"], real
    assert real["diff"] == predicted["diff"]
    assert real["before"] == predicted["before"]
    again = run(name, **options)
    assert again["changed"] is False, again
    assert again["diff"] == {"before": {}, "after": {}}
    assert again["after"] == again["before"] == real["after"]
    return real


def refusal(run: Run, name: str, code: str, /, **options: Any) -> dict[str, Any]:
    """Run a module in check mode and for real, and return the failure with which both runs refuse."""
    results = [run(name, check_mode=check_mode, **options) for check_mode in (True, False)]
    for result in results:
        assert result.get("failed"), result
        assert result["failure"]["code"] == code, result
    assert results[0]["msg"] == results[1]["msg"]
    return results[1]


def publish(api: JetStreamApi, subject: str, count: int = 1) -> None:
    """Store messages, each only once. Retry, because the interest of a new stream may not have reached all servers."""
    for _number in range(count):
        call = Call(subject, b"x" * 100, {"Nats-Msg-Id": uuid.uuid4().hex})
        assert wait_until(partial(api._client.request, call), lambda reply: b'"seq"' in reply.body, 60).done
