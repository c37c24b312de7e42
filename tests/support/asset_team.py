# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user of the system account who plans and applies documents of assets on running servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from support.module_runs import Runner
from support.nats_processes import NatsProcesses

HEAD = {"document": "team", "cluster": "C1", "account": "APP"}
Document = dict[str, Any]
Result = dict[str, Any]


class Team:
    """Plans and applies documents of the account APP."""

    def __init__(self, servers: NatsProcesses, run_module: Runner) -> None:
        self.connection = {**servers.sys_connection(), "account_users": servers.account_users()}
        self._run_module = run_module

    def plan(self, *documents: Document, **options: Any) -> Result:
        found = self._run_module("nats_assets_plan", self.connection, documents=_headed(documents), **options)
        assert not found.get("failed"), found
        return dict(found["plan"])

    def apply(self, plan: Result, *documents: Document, **options: Any) -> Result:
        return self._run_module(
            "nats_assets_apply", self.connection, documents=_headed(documents), plan=plan, wait_timeout=30, **options
        )

    def done(self, plan: Result, *documents: Document, **options: Any) -> Result:
        found = self.apply(plan, *documents, **options)
        assert not found.get("failed"), found["msg"]
        return found

    def make(self, *documents: Document) -> Result:
        """Create the assets of documents."""
        return self.done(self.plan(*documents), *documents)

    def refused(self, code: str, plan: Result, *documents: Document, **options: Any) -> str:
        found = self.apply(plan, *documents, **options)
        assert found.get("failed") and found["failure"]["code"] == code, found
        return str(found["msg"])


def _headed(documents: Iterable[Document]) -> list[Document]:
    return [{**HEAD, **one} for one in documents]


def states(plan: Result) -> dict[str, str]:
    return {f"{row['kind']} {row['name']}": row["state"] for row in plan["assets"]}


def actions(found: Result) -> list[str]:
    return [f"{step['action']} {step['kind']} {step['name']}" for step in found["steps"]]
