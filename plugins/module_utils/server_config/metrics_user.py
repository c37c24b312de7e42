# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user of the system account for the exporter and snapshots, which can change nothing. Pure: no I/O."""

from __future__ import annotations

from typing import Any

from ..nats.model import INBOX_PREFIX

#: The endpoints of each server, without those that change it (RELOAD, LDM, KICK) or return a profile (PROFILEZ).
ENDPOINTS = (
    "STATSZ", "VARZ", "JSZ", "HEALTHZ", "RAFTZ", "IPQUEUESZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ",
)  # fmt: skip

#: Its replies have inboxes of their own: those of the system user also receive the replies to changes.
METRICS_INBOX = f"{INBOX_PREFIX}.metrics"

METRICS_PERMISSIONS: dict[str, Any] = {
    "publish": {
        "allow": [
            *(f"$SYS.REQ.SERVER.*.{endpoint}" for endpoint in ENDPOINTS),
            "$SYS.REQ.ACCOUNT.PING.STATZ",
            "$SYS.REQ.USER.INFO",
        ]
    },
    "subscribe": {"allow": [f"{METRICS_INBOX}.>"]},
}
