# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the views that checks test, by the name of the view.

Every frame has fleet, the keys of its view, and the columns in the expressions of its checks. Large tables (streams, consumers,
their replicas) are shuffled at most once for a view.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from jetstream_insights.findings import moment_views, period_views
from jetstream_insights.findings.view_rows import Tables

MAKE: dict[str, Callable[[Tables], DataFrame]] = {
    made.__name__: made
    for made in (
        moment_views.snapshots,
        moment_views.servers,
        moment_views.hosts,
        moment_views.clusters,
        moment_views.meta,
        moment_views.meta_members,
        moment_views.raft_groups,
        moment_views.streams,
        moment_views.stream_leaders,
        moment_views.stream_copies,
        moment_views.consumers,
        moment_views.consumer_copies,
        moment_views.backups,
        moment_views.documents,
        moment_views.accounts,
        moment_views.jwts,
        moment_views.connections,
        moment_views.routes,
        moment_views.gateways,
        moment_views.leafnodes,
        period_views.server_periods,
        period_views.server_restarts,
        period_views.server_logs,
        period_views.advised,
        period_views.advised_servers,
        period_views.account_periods,
        period_views.client_periods,
        period_views.route_periods,
        period_views.gateway_periods,
        period_views.leafnode_periods,
        period_views.snapshot_periods,
        period_views.meta_periods,
        period_views.stream_periods,
        period_views.stream_edits,
        period_views.origin_periods,
        period_views.consumer_periods,
        period_views.raft_periods,
        period_views.leadership,
        period_views.outages,
        period_views.storms,
        period_views.divergence,
        period_views.consumer_lag,
        period_views.capacity,
        period_views.headroom,
    )
}
