#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_rescue
short_description: Bring JetStream back after the majority of its servers was lost for good
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reports which servers count as members of the meta group, which of them respond over NATS, and which only over SSH.
    For each stream, the report shows the last sequence on each server and disk, whether the stream can be recovered,
    and with how many replicas. The report also lists the lost assets. The report does not need a meta leader.
  - In check mode, the module also returns the planned steps and the reasons that prevent them. Otherwise, the module
    makes the remaining servers elect a meta leader with fewer votes (C($JS.API.META.RESCUE)), removes the dead servers
    from the meta group and from every stream, and waits until all remaining streams and consumers have leaders again,
    with all messages that are stored on these servers.
  - The module refuses the rescue if a member of the meta group does not respond and is not listed in O(dead_servers),
    if no group has lost its majority, if a readable disk of a dead server has later messages than the remaining
    servers, or if anything would be lost that is not listed in O(lost). The module also refuses the rescue if a server
    in O(dead_servers) could come back or may be running. This is the case if the server responds, if its process runs,
    if its ports accept connections, or if its host responds over SSH and the server could start.
  - Which data existed only on the dead servers is known only after a meta leader has been elected. The rescue stops at
    that point, before anything is removed, unless O(lost) lists that data. When the dead servers are removed, streams
    that had replicas only on these servers are recreated empty; a stream that no remaining server may host is left
    without members.
  - The rescue request cannot be addressed to individual servers, so every server of the system account that receives it
    acts on it. The run stops if the request was carried out by a server that the module had not seen before.
  - Needs nats-server 2.15 on all servers that respond, a user of the system account, and O(account_users) with a user
    of each account.
  - Data on older servers is recovered in a fresh cluster of the remaining servers. Once no server responds any more,
    the module plans this recovery from the data in O(hosts) and returns the commands of each step; the playbook
    C(rescue) runs them.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
options:
  dead_servers:
    description:
      - Names of the servers that will never come back. Verify this outside NATS, for example by their power state.
    type: list
    elements: str
    default: []
  lost:
    description:
      - Patterns of the assets that may be lost, as C(ACCOUNT/STREAM) or C(ACCOUNT/STREAM/CONSUMER), where V(*)
        matches any characters and V(?) exactly one.
    type: list
    elements: str
    default: []
  hosts:
    description:
      - Information from the hosts whose servers do not respond over NATS, such as the value of
        RV(natsops.jetstream.nats_server_host_info#module:rescue). A server that is not listed is treated as if its host
        were unreachable.
    type: list
    elements: dict
    default: []
    suboptions:
      server:
        description: Name of the server.
        type: str
        required: true
      reached:
        description: Whether the host responded over SSH.
        type: bool
        default: false
      running:
        description: Whether a server runs on the host.
        type: bool
        default: false
      fenced:
        description: Why the server cannot start. Empty if the server could start.
        type: str
        default: ""
      failure:
        description: Why a host that responded over SSH could not be read.
        type: str
        default: ""
      addresses:
        description: The server's ports as C(ADDRESS:PORT). The module tries to connect to these ports.
        type: list
        elements: str
        default: []
      copied:
        description: Whether the server's store has been copied.
        type: bool
        default: false
      aside:
        description: Whether the server's old store has been renamed to C(jetstream.rescued).
        type: bool
        default: false
      host:
        description: Inventory name of the host, used in the returned commands. Defaults to the server's name.
        type: str
        default: ""
      unit:
        description: The server's systemd unit. Empty if the server runs without a unit.
        type: str
        default: ""
      config:
        description: Path of the server's configuration file.
        type: str
        default: /etc/nats-server/nats-server.conf
      store_dir:
        description: Directory of the server's store.
        type: str
        default: /var/lib/nats
      copy:
        description: Directory on the host for the copy of the server's store.
        type: str
        default: /var/lib/nats-rescue
      streams:
        description: The streams on the server's disk.
        type: list
        elements: dict
        default: []
        suboptions:
          account:
            description: Account that owns the stream.
            type: str
            required: true
          name:
            description: Name of the stream.
            type: str
            required: true
          last_seq:
            description: The stream's last sequence on that disk. Omit this key if the sequence is unknown.
            type: int
          first_seq:
            description: The stream's first sequence on that disk.
            type: int
          messages:
            description: Number of messages of the stream on that disk.
            type: int
          num_replicas:
            description: Number of replicas in the stream's configuration.
            type: int
          encrypted:
            description: Whether the stream's files are encrypted.
            type: bool
  expected_servers:
    description:
      - Names of all servers of the cluster, including the dead servers.
    type: list
    elements: str
    default: []
  copies:
    description:
      - Directory into which the stores of servers older than 2.15 are copied.
    type: str
    default: /srv/nats-rescue
  observe:
    description:
      - Seconds between the two samples that must agree on the leaders.
    type: float
    default: 10
  wait_timeout:
    description:
      - Seconds within which each step must take effect.
    type: float
    default: 120
  records_dir:
    description:
      - Directory of the file that records the data on the servers, from the first step to the last. Defaults to the
        directory C(natsops) in Ansible's home directory.
    type: path
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: natsops.jetstream.nats_server_host_info
  - module: natsops.jetstream.nats_repair
  - module: natsops.jetstream.nats_meta_peer
"""

EXAMPLES = r"""
- name: Report the remains of a cluster of five that lost three servers
  natsops.jetstream.nats_rescue:
    dead_servers: [n3-c1, n4-c1, n5-c1]
    expected_servers: [n1-c1, n2-c1, n3-c1, n4-c1, n5-c1]
    lost: [APP/SCRATCH]
    account_users:
      - {account: APP, user: ops, password: "{{ app_ops_password }}"}
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
  check_mode: true
  register: rescue
"""

RETURN = r"""
lines:
  description: Remaining servers, recovered and lost assets, steps and refusals, as human-readable lines.
  returned: success, and on failures of a step
  type: list
  elements: str
  sample:
    - "Meta group: 5 members, 3 of them must be up; 2 answer (n1-c1, n2-c1)"
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success, and on failures of a step
  type: list
  elements: str
survivors:
  description: The members of the meta group that respond.
  returned: success, and on failures of a step
  type: list
  elements: str
  sample: [n1-c1, n2-c1]
streams:
  description:
    - The streams on the servers that respond. C(holders) contains the last sequence on each server, C(last_seq) is the
      last sequence after the rescue, and C(stalled) is whether the stream has lost its majority.
  returned: success, and on failures of a step
  type: list
  elements: dict
  sample:
    - account: APP
      stream: ORDERS
      num_replicas: 3
      holders: {n1-c1: 1200}
      messages: 1200
      last_seq: 1200
      dead: [n3-c1, n4-c1]
      stalled: true
lost:
  description: Streams and consumers with replicas only on dead servers, as far as known.
  returned: success, and on failures of a step
  type: list
  elements: str
  sample: [APP/SCRATCH]
refused:
  description: Reasons that prevent the rescue. If there are any, nothing is changed.
  returned: success, and on failures of a step
  type: list
  elements: str
  sample: []
refusal:
  description: The content of RV(refused) as human-readable text, limited to one screen.
  returned: success, and on failures of a step
  type: str
  sample: ""
fresh:
  description: Whether the steps build a fresh cluster, because the remaining servers are older than 2.15.
  returned: success, and on failures of a step
  type: bool
copies:
  description: With RV(fresh), the directory below O(copies) with the copy of each remaining server's store.
  returned: success, and on failures of a step
  type: dict
  sample: {n1-c1: /srv/nats-rescue/n1-c1, n2-c1: /srv/nats-rescue/n2-c1}
batches:
  description:
    - The completed or planned steps in order, each in the form of C(batches) of
      M(natsops.jetstream.nats_roll_plan). C(action) is the step, and C(title) describes it.
    - With RV(fresh), the C(hosts) take part in the step, which the C(commands) perform by hand.
  returned: success, and on failures of a step
  type: list
  elements: dict
  sample:
    - number: 2
      action: remove
      hosts: []
      servers: [n3-c1]
      title: remove n3-c1 from the meta group and from every stream
      remaining: []
      gates: {}
      progress: {title: remove n3-c1 from the meta group and from every stream, step: 2, steps: 3, began: 0}
      commands: []
next_step:
  description: The operator's next action after the rescue.
  returned: success, and on failures of a step
  type: str
done:
  description: The completed steps, each as in RV(batches) with its observed result (C(seen)). Empty in check mode.
  returned: success, and on failures of a step
  type: list
  elements: dict
  sample:
    - number: 2
      action: remove
      servers: [n3-c1]
      title: remove n3-c1 from the meta group and from every stream
      seen: n3-c1 is no longer a member
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.placement.known_servers import unknown_servers
from ..module_utils.rescue.rescue_plan import copy_paths, going_on
from ..module_utils.rescue.rescue_state import RescueHost, RescueOptions, RescuePlan, Stored
from ..module_utils.rescue.run_rescue import Rescue, RescueFailed, RescueSettings, probe
from ..module_utils.screen import listed
from ..module_utils.waiting import positive

STREAM_SPEC = {
    "account": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "last_seq": {"type": "int"},
    "first_seq": {"type": "int"},
    "messages": {"type": "int"},
    "num_replicas": {"type": "int"},
    "encrypted": {"type": "bool"},
}
_BY_PLAYBOOK = (
    "servers before 2.15 are stopped and copied on their hosts: by the playbook rescue, or by the listed commands"
)
HOST_SPEC = {
    "server": {"type": "str", "required": True},
    "reached": {"type": "bool", "default": False},
    "running": {"type": "bool", "default": False},
    "fenced": {"type": "str", "default": ""},
    "failure": {"type": "str", "default": ""},
    "addresses": {"type": "list", "elements": "str", "default": []},
    "copied": {"type": "bool", "default": False},
    "aside": {"type": "bool", "default": False},
    "host": {"type": "str", "default": ""},
    "unit": {"type": "str", "default": ""},
    "config": {"type": "str", "default": "/etc/nats-server/nats-server.conf"},
    "store_dir": {"type": "str", "default": "/var/lib/nats"},
    "copy": {"type": "str", "default": "/var/lib/nats-rescue"},
    "streams": {"type": "list", "elements": "dict", "default": [], "options": STREAM_SPEC},
}


def parse_address(text: str) -> tuple[str, int]:
    """Return the address and the port of ADDRESS:PORT. Raises NatsFailure invalid_option."""
    address, _colon, port = text.rpartition(":")
    if not address or not port.isdecimal():
        raise NatsFailure("invalid_option", f"hosts: {text!r} is not ADDRESS:PORT")
    return address.strip("[]"), int(port)


def parse_hosts(entries: Sequence[Mapping[str, Any]], dead: frozenset[str]) -> dict[str, RescueHost]:
    """Return the state of each server's host, after probing the ports of the dead servers."""
    listening = probe(
        {
            entry["server"]: [parse_address(item) for item in entry["addresses"]]
            for entry in entries
            if entry["server"] in dead
        }
    )
    return {
        entry["server"]: RescueHost(
            server=entry["server"],
            reached=entry["reached"],
            running=entry["running"],
            fenced=entry["fenced"],
            failure=entry["failure"],
            listening=listening.get(entry["server"], ()),
            streams={
                (item["account"], item["name"]): Stored(item["messages"], item["last_seq"], bool(item["encrypted"]))
                for item in entry["streams"]
            },
            **{key: entry[key] for key in ("copied", "aside", "host", "unit", "config", "store_dir", "copy")},
        )
        for entry in entries
    }


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result once every step is confirmed. The result of a failure lists the completed steps."""
    params = module.params
    dead = frozenset(params["dead_servers"])
    settings = RescueSettings(
        frozenset(params["expected_servers"]),
        positive(params["observe"], "observe"),
        positive(params["wait_timeout"], "wait_timeout"),
        params["records_dir"],
    )
    request = RescueOptions(dead, params["lost"], copies=params["copies"])
    hosts = parse_hosts(params["hosts"], dead)
    begun = going_on(hosts, settings.expected, request)
    if begun is None or (not begun.refusals and all(hosts[name].running for name in begun.survivors)):
        rescue = Rescue(connections, request, hosts, settings)
        plan = rescue.plan()
        # The remaining servers already form a fresh cluster, whose streams may not all be restored yet.
        if begun is not None and not plan.steps and not plan.refusals:
            plan = begun
    else:
        plan = begun
    known = settings.expected | hosts.keys() | {*plan.survivors, *plan.removals}
    unknown = unknown_servers(dead, known) if known else ""
    if unknown:
        raise NatsFailure("invalid_option", f"dead_servers: {unknown}")
    result = step_results(plan, request)
    refusals = (*plan.refusals, *([_BY_PLAYBOOK] if plan.fresh else ()))
    if refusals and not module.check_mode:
        refusal = NatsFailure("rescue_refused", "; ".join((*refusals, "nothing was changed")) + ".")
        fail(module, refusal, **{**result, "changed": False})
    if module.check_mode or not plan.due:
        return result
    try:
        result["done"] = rescue.carry_out(plan)
    except RescueFailed as failure:
        fail(module, failure, **{**result, "done": failure.done, "changed": True})
    return result


def step_results(plan: RescuePlan, request: RescueOptions) -> dict[str, Any]:
    """Return the part of the result that every run returns; in check mode, it is the complete result."""
    return {
        "changed": plan.due,
        **plan.page.as_dict(),
        "survivors": list(plan.survivors),
        "streams": [fate.as_dict() for fate in plan.fates],
        "lost": list(plan.lost),
        "refused": list(plan.refusals),
        "refusal": listed(plan.refusals),
        "fresh": plan.fresh,
        "copies": copy_paths(plan.survivors, request) if plan.fresh else {},
        "batches": plan.batches,
        "next_step": plan.next_step,
        "done": [],
        "diff": {
            "before": {"members": sorted({*plan.survivors, *plan.removals})},
            "after": {"members": sorted({*plan.survivors} | ({*plan.removals} if plan.refusals else set()))},
        },
    }


def main() -> None:
    module = make_module(
        {
            "dead_servers": {"type": "list", "elements": "str", "default": []},
            "lost": {"type": "list", "elements": "str", "default": []},
            "hosts": {"type": "list", "elements": "dict", "default": [], "options": HOST_SPEC},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "copies": {"type": "str", "default": "/srv/nats-rescue"},
            "observe": {"type": "float", "default": 10},
            "wait_timeout": {"type": "float", "default": 120},
            "records_dir": {"type": "path"},
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
