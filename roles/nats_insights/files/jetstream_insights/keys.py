# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What identifies things in all tables: the only place that spells it out. Needs no Spark.

Each JetStream domain has a meta group, accounts' assets, streams and consumers of its own, which may be called as those of
another one. It is empty for none, never null, so that it can be joined and grouped by. Servers are known by their names in
the whole fleet.
"""

from __future__ import annotations

#: Microseconds by which two reports of one creation may differ.
SAME = 1_000_000

#: A snapshot, in every table.
SNAPSHOT = ("fleet", "snapshot", "taken")

#: Within a snapshot, or a fleet: a JetStream with its meta group, a cluster's part of it, what an account has in it, its assets.
DOMAIN = ("domain",)
CLUSTER = (*DOMAIN, "cluster")
ACCOUNT = (*DOMAIN, "account")
STREAM = (*ACCOUNT, "stream")
CONSUMER = (*STREAM, "consumer")
