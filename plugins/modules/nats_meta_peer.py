#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_meta_peer
short_description: Remove a server that is gone for good from the JetStream meta group
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - A stopped server that does not come back counts towards the quorum of the meta group until it is removed. This
    module removes it, and waits until the leader and a majority of the members report one member fewer.
  - The module refuses to remove a server that answers or that streams or consumers still list as a member, and refuses
    any removal that would leave the meta group without a quorum. The refusal because of the quorum cannot be
    overridden.
  - If the remaining group cannot tolerate any further failure, the module only warns, because removing a server that
    is down does not reduce the tolerance. A group of 3 members and a group of 2 members both have a quorum of 2.
  - A server that is still running under the removed name rejoins by itself 5 minutes after the removal (2.10.28,
    2.11.2 and later). Stop such a server first, and do not start it again.
  - Streams and consumers with a single replica on a server that is down have no leader, and no server reports them to
    the system account. Check the accounts for streams without a leader before you remove the server.
  - Connect as a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - With V(absent), the server is not a member of the meta group afterwards.
    type: str
    choices: [absent]
    default: absent
  server_name:
    description:
      - Name of the server, matched exactly.
    type: str
  peer_id:
    description:
      - Id of the server in the meta group, 8 characters, as in RV(before) and M(natsops.jetstream.nats_cluster_info).
        Use this option for a member whose name is no longer known to any server.
    type: str
  force:
    description:
      - Also remove a server that answers. JetStream is disabled on the server until it rejoins.
    type: bool
    default: false
  force_assets:
    description:
      - Also remove a server that is still listed as a member by streams or consumers. The meta leader then replaces the
        server in all these streams and consumers at once, where possible. Streams and consumers whose only replica is
        on the server are lost.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait until the removal is visible, and until any other membership change has ended.
    type: float
    default: 60
seealso:
  - module: natsops.jetstream.nats_stream_peer
  - module: natsops.jetstream.nats_cluster_info
"""

EXAMPLES = r"""
- name: Remove n3-c1, which was stopped for good and hosts nothing anymore
  natsops.jetstream.nats_meta_peer:
    server_name: n3-c1
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Remove a member known only by its id
  natsops.jetstream.nats_meta_peer:
    peer_id: S1Nunr6R
"""

RETURN = r"""
before:
  description: The meta group before the removal, as reported by its leader. C(quorum) is the number of members that
    must be up.
  returned: success
  type: dict
  sample: {leader: n1, cluster_size: 4, quorum: 3, members: {fjFyEjc1: n1, 44jzkV9D: n2, BXScrY9i: n3, C7B8kAbl: n4}}
after:
  description: The meta group after the removal, in the same form.
  returned: success
  type: dict
  sample: {leader: n1, cluster_size: 3, quorum: 2, members: {fjFyEjc1: n1, 44jzkV9D: n2, C7B8kAbl: n4}}
agree:
  description: The servers that report the same number of members as the meta leader.
  returned: success
  type: list
  elements: str
  sample: [n1, n2, n4]
waited:
  description: Seconds that the removal took.
  returned: success
  type: float
  sample: 0.3
"""

import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.health.rules import Limits
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.error_codes import MEMBER_CHANGE_IN_FLIGHT
from ..module_utils.nats.meta_api import MetaApi
from ..module_utils.nats.model import Cluster, MetaGroup, peer_id
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.roll.leadership import LeaderConstraints
from ..module_utils.roll.step_down_meta import move_meta_leader
from ..module_utils.screen import some_names
from ..module_utils.waiting import is_transient, positive, wait_until

#: Error code of SERVER.REMOVE for a server outside the meta group (server/errors.json JSClusterServerNotMemberErr).
NOT_A_MEMBER = 10044
#: A peer id: its length is idLen in server/raft.go, its characters are the digits of getHash.
_PEER_ID = re.compile("[0-9A-Za-z]{8}")


def require_meta(cluster: Cluster) -> MetaGroup:
    """Return the meta group. Raises NatsFailure when no server leads it, because nothing can be changed then."""
    meta = cluster.meta
    if meta is None or meta.group.leader is None:
        answered = ", ".join(sorted(cluster.names)) or "no server"
        needed = f"{meta.quorum} of {meta.group.size} members must be up" if meta else "no server is in a meta group"
        raise NatsFailure(
            "meta_no_leader",
            f"the meta group has no leader, so its members cannot be changed: {needed}; {answered} answered",
        )
    return meta


def read_meta(system: SystemApi) -> MetaGroup | None:
    """Return the current meta group."""
    return system.read_cluster(assets=False, health=False).meta


def member_names(meta: MetaGroup) -> dict[str, str]:
    """Return the members by peer id, with the names that the leader reports; the id replaces an unknown name."""
    leader = meta.group.leader or ""
    return {peer_id(leader): leader, **{peer.id: peer.name for peer in meta.group.peers}}


def to_dict(meta: MetaGroup) -> dict[str, Any]:
    """Return the meta group for the module's result."""
    members = dict(sorted(member_names(meta).items(), key=lambda item: item[1]))
    return {"leader": meta.group.leader, "cluster_size": meta.group.size, "quorum": meta.quorum, "members": members}


def refuse(cluster: Cluster, meta: MetaGroup, peer: str, force: bool, force_assets: bool) -> list[str]:
    """Raise NatsFailure when the member must not be removed; return the warnings otherwise. `peer`: its id."""
    name = member_names(meta)[peer]
    if name in cluster.names and not force:
        raise NatsFailure(
            "server_online",
            f"{name} answers, so it is not dead. Stop it first; a running server rejoins the meta group after 5 "
            "minutes. "
            "Nothing was changed.",
            server=name,
        )
    assets = [group.subject for group in cluster.groups() if name in group.members]
    if assets and not force_assets:
        raise NatsFailure(
            "server_has_assets",
            f"{name} is still a member of {some_names(assets)}. Remove it from them with nats_stream_peer first. "
            "Nothing was changed.",
            server=name,
        )
    limits = Limits()
    in_step = {item.name for item in meta.group.peers if item.name in cluster.names and limits.in_step(item)}
    left = sorted(({meta.group.leader or ""} | in_step) - {name})
    size = meta.size - 1
    quorum = size // 2 + 1
    count = (
        f"{size} members would remain, {quorum} of them must be up, but {len(left)} are ({', '.join(left) or 'none'})"
    )
    if len(left) < quorum:
        raise NatsFailure(
            "meta_quorum_lost",
            f"without {name} the meta group has no quorum: {count}. Nothing was changed.",
            server=name,
        )
    return [f"without {name} the meta group stops at the next failure: {count}"] if len(left) == quorum else []


def remove(client: Client, meta: MetaGroup, peer: str, timeout: float) -> None:
    """Remove the member once no other membership change is in progress. Raises NatsFailure."""
    name = member_names(meta)[peer]
    if name == meta.group.leader:
        move_meta_leader(client, LeaderConstraints(away_from=frozenset([name])), timeout)
    api = MetaApi(client)

    def ask() -> bool:
        try:
            api.remove_server(name, peer)
        except NatsFailure as failure:
            if failure.err_code == MEMBER_CHANGE_IN_FLIGHT:
                return False
            if failure.err_code != NOT_A_MEMBER:
                raise
        return True

    try:
        seen_free = wait_until(ask, bool, timeout)
    except NatsFailure as failure:
        if is_transient(failure):
            return
        raise
    if not seen_free.done:
        raise NatsFailure(
            "member_change_in_flight",
            f"another membership change of the meta group was in progress for {timeout:g} s; {name} was not removed",
            server=name,
            err_code=MEMBER_CHANGE_IN_FLIGHT,
        )


def agreeing(meta: MetaGroup) -> list[str]:
    """Return the members that report the same number of members as the leader."""
    members = set(member_names(meta).values())
    return sorted(name for name, size in meta.sizes.items() if name in members and size == meta.group.size)


def wanted_peer(params: Mapping[str, Any]) -> str:
    """Return the peer id of the member to remove. Raises NatsFailure invalid_option for an impossible name or id."""
    if params["server_name"] is not None:
        if not params["server_name"].strip():
            raise NatsFailure("invalid_option", "server_name is empty")
        return peer_id(params["server_name"])
    if not _PEER_ID.fullmatch(params["peer_id"]):
        raise NatsFailure(
            "invalid_option", f"peer_id: {params['peer_id']!r} is not a peer id, which has 8 letters and digits"
        )
    return str(params["peer_id"])


def ensure(module: AnsibleModule, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the member if it exists, and return the module's result."""
    timeout = positive(params["wait_timeout"], "wait_timeout")
    system = SystemApi(client)
    peer = wanted_peer(params)
    known = [params["server_name"]] if params["server_name"] else []
    cluster = system.read_cluster(known_names=known, health=False)
    meta = require_meta(cluster)
    before = to_dict(meta)
    result = {"before": before, "after": before, "agree": agreeing(meta), "waited": 0.0, "changed": False}
    if peer in before["members"]:
        for warning in refuse(cluster, meta, peer, params["force"], params["force_assets"]):
            module.warn(warning)
        result["changed"] = True
        size = meta.size - 1
        if module.check_mode:
            members = {key: name for key, name in before["members"].items() if key != peer}
            result["after"] = {**before, "cluster_size": size, "quorum": size // 2 + 1, "members": members}
        else:
            result.update(_removed(client, meta, peer, timeout))
    else:
        named = params["server_name"] or peer
        there = ", ".join(before["members"].values())
        module.warn(
            f"{named} is not a member of the meta group, so there was nothing to remove; its members are {there}"
        )
    result["diff"] = {"before": result["before"], "after": result["after"]}
    return result


def _removed(client: Client, meta: MetaGroup, peer: str, timeout: float) -> dict[str, Any]:
    """Remove the member and return the resulting group. Raises NatsFailure when the removal does not become visible in
    time."""
    name, wanted = member_names(meta)[peer], meta.size - 1
    system = SystemApi(client)
    remove(client, meta, peer, timeout)

    def gone(now: MetaGroup | None) -> bool:
        if now is None or now.group.leader is None or peer in member_names(now):
            return False
        return now.group.size <= wanted and len(agreeing(now)) >= now.group.quorum

    seen = wait_until(lambda: read_meta(system), gone, timeout)
    now = seen.value or meta
    if not seen.done:
        raise NatsFailure(
            "removal_not_seen",
            f"{name} was to be removed from the meta group, but after {timeout:g} s its leader {now.group.leader} has "
            f"{now.group.size} members ({', '.join(member_names(now).values())}), {wanted} were expected; "
            f"{', '.join(agreeing(now)) or 'no server'} agree(s)",
            server=name,
        )
    return {"after": to_dict(now), "agree": agreeing(now), "waited": seen.waited}


def main() -> None:
    module = make_module(
        {
            "state": {"type": "str", "choices": ["absent"], "default": "absent"},
            "server_name": {"type": "str"},
            "peer_id": {"type": "str"},
            "force": {"type": "bool", "default": False},
            "force_assets": {"type": "bool", "default": False},
            "wait_timeout": {"type": "float", "default": 60},
        },
        required_one_of=[("server_name", "peer_id")],
        mutually_exclusive=[("server_name", "peer_id")],
    )
    run(module, with_client, lambda client: ensure(module, client, module.params))


if __name__ == "__main__":
    main()
