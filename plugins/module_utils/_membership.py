# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the servers of a run, of the inventory and of the live cluster are the same. Pure."""

from __future__ import annotations

from typing import Any


def _names(names: list[str]) -> str:
    return ", ".join(sorted(names))


def membership_problems(facts: dict[str, Any]) -> list[dict[str, str]]:
    """Return ``[{severity, option, message}]``.

    Routes and quorum arithmetic come from the inventory's intended members. An inventory that was cut (an AWX job
    slice holds only its own hosts) would write too few routes; a new cluster started in parts never elects a meta
    leader (nats-server raft.go, ``bootstrap``: the expected size comes from the routes).

    :param facts: cluster (name), hosts (of this run), members (``[{host, server_name, jetstream}]``), running (a server of
        this run runs), live (servers of the running cluster: ``[{name, cluster}]``), live_error (why there is no answer),
        route_style (all or seeds)
    """
    members = {member["host"]: member["server_name"] for member in facts["members"]}
    outside = [name for host, name in members.items() if host not in facts["hosts"]]
    live = [server["name"] for server in facts.get("live") or [] if server.get("cluster") == facts["cluster"]]
    problems = []

    unknown = [name for name in live if name not in members.values()]
    if unknown:
        problems.append({
            "severity": "error",
            "option": "nats_server_cluster_members",
            "message": f"the running cluster {facts['cluster']} has servers that the inventory does not list: "
            f"{_names(unknown)}. Run with the whole inventory (no job slicing), or remove these servers first.",
        })
    if outside and not facts["running"] and not live:
        reason = f" ({facts['live_error']})" if facts.get("live_error") else ""
        problems.append({
            "severity": "error",
            "option": "nats_server_cluster_members",
            "message": f"no server of the cluster {facts['cluster']} answers{reason} and this run leaves out "
            f"{_names(outside)}. A new or stopped cluster needs its servers started in one run: "
            "drop --limit, serial and job slicing.",
        })
    if facts.get("route_style") == "seeds" and not facts["running"] and not live and any(
        member.get("jetstream") for member in facts["members"]
    ):
        problems.append({
            "severity": "error",
            "option": "nats_server_cluster_route_style",
            "message": f"the JetStream cluster {facts['cluster']} does not run yet: its servers take the size of the meta "
            "group from the routes, and with seeds alone they can elect two leaders. Deploy it once with the route style "
            "all; the change to seeds is a reload.",
        })
    return problems
