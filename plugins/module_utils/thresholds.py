# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default thresholds of measurements that several parts evaluate: the health gate, the diagnosis, nats_check, the
alerts for Prometheus (tools/alert_rules.py) and the insights. Pure.

A threshold that only one of them uses is defined there."""

from __future__ import annotations

from typing import NamedTuple


class Levels(NamedTuple):
    """The values from which a measurement is a warning, and from which it is critical."""

    warning: int
    critical: int


#: Days until the expiry of a certificate (jsm.go audit SERVER_008) or of a JWT.
EXPIRY_DAYS = Levels(30, 7)
#: Hours since a stream was last found equal to its backup, for a backup every night: one missed night is a warning.
BACKUP_HOURS = Levels(26, 50)
#: Hours since a document was last compared with its assets, for a comparison every night.
COMPARED_HOURS = 26
#: Percent of a limit of JetStream's storage (nats server check jetstream) or of a file system.
STORAGE_PERCENT = Levels(75, 90)
#: JetStream API requests that the meta leader may have waiting before it counts as overloaded.
MAX_META_PENDING = 100
#: Raft entries that a replica may be behind its leader, and seconds since the leader's last contact with it
#: (nats server check stream: --peer-lag-critical, --peer-seen-critical).
MAX_LAG, MAX_ACTIVE = 200, 5
#: Seconds of a round trip (nats server check connection), and between the clocks of two servers.
MAX_RTT, MAX_CLOCK_SPREAD = 0.5, 0.5
