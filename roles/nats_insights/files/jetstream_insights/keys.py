# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identifying columns of all tables, defined only here. Needs no Spark.

Each JetStream domain has its own meta group, accounts' assets, streams and consumers, and their names may be equal to those of
another domain. The domain is empty for none, never null, so it can be joined and grouped by. The names of servers are unique in
the fleet.
"""

from __future__ import annotations

#: Microseconds by which two reports of the same creation may differ.
SAME = 1_000_000

#: A snapshot, in every table.
SNAPSHOT = ("fleet", "snapshot", "taken")

#: Within a snapshot or a fleet: a JetStream domain with its meta group, a cluster's part of it, an account in it, its assets.
DOMAIN = ("domain",)
CLUSTER = (*DOMAIN, "cluster")
ACCOUNT = (*DOMAIN, "account")
STREAM = (*ACCOUNT, "stream")
CONSUMER = (*STREAM, "consumer")
