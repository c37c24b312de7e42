# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user for the exporter and snapshots, which can change nothing. Pure: no I/O.

The user is not in the system account: servers do not check the permission to publish to the subject of a reply, so any
request there can have its reply sent to a subject that changes the cluster, such as `$JS.API.ACCOUNT.PURGE.<account>`.
The user's own account imports the requests instead, and their replies do not leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..nats.model import INBOX_PREFIX

METRICS_ACCOUNT = "NATSOPS_METRICS"

#: The endpoints of each server, without those that change it (RELOAD, LDM, KICK) or return a profile (PROFILEZ).
ENDPOINTS = (
    "STATSZ", "VARZ", "JSZ", "HEALTHZ", "RAFTZ", "IPQUEUESZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ",
)  # fmt: skip
#: The requests that the account imports.
REQUESTS = (*(f"$SYS.REQ.SERVER.*.{endpoint}" for endpoint in ENDPOINTS), "$SYS.REQ.ACCOUNT.PING.STATZ")

METRICS_INBOX = f"{INBOX_PREFIX}.metrics"

METRICS_PERMISSIONS: dict[str, Any] = {
    "publish": {"allow": [*REQUESTS, "$SYS.REQ.USER.INFO"]},
    "subscribe": {"allow": [f"{METRICS_INBOX}.>"]},
}


def with_metrics_user(
    accounts: Mapping[str, Mapping[str, Any]], system: str, user: str, password: str
) -> dict[str, Mapping[str, Any]]:
    """Return the accounts with the user in an account of its own, which imports the requests from the system account."""
    exports = [
        # Every server replies, and a reply may have several parts.
        {"service": subject, "response_type": "Stream", "accounts": [METRICS_ACCOUNT]}
        for subject in REQUESTS
    ]
    imports = [{"service": {"account": system, "subject": subject}} for subject in REQUESTS]
    login = {"user": user, "password": password, "permissions": METRICS_PERMISSIONS}
    result = dict(accounts)
    for name, key, added in (
        (system, "exports", exports),
        (METRICS_ACCOUNT, "imports", imports),
        (METRICS_ACCOUNT, "users", [login]),
    ):
        block = result.get(name) or {}
        result[name] = {**block, key: [*(block.get(key) or ()), *added]}
    return result
