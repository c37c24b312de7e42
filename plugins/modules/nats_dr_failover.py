#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_dr_failover
short_description: Fail over streams to their copies at a second site
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Fences the origin, waits until the site has all its messages, promotes the copy, and creates its consumers at
    their ack floors. Nothing is changed unless all streams can fail over, and nothing is promoted while the origin
    may accept messages.
  - From nats-server 2.12 on, the mirror becomes the stream. On older servers, a mirror cannot be promoted, so a new
    stream takes over its messages; see O(streams[].promoted).
  - Progress is recorded at the site. A further run resumes from there, and changes nothing once the last step is
    done.
  - No message that reached the site is lost. If the origin is dead, acknowledgements since the last
    M(natsops.jetstream.nats_dr_checkpoint) are lost; RV(streams[].consumers) returns how many messages may be
    delivered again.
  - The module does not move clients. Configure the clients with the addresses of the site.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.dr
options:
  fence:
    description:
      - How the origin is prevented from accepting messages.
      - V(subjects) removes the subjects from the origin's stream, so publishers there get no acknowledgements.
      - V(sealed) requires that the origin's stream is sealed.
      - V(permissions) means that the origin's clients are no longer permitted to publish. The stream is watched for
        O(watch) seconds, and must not accept a message in that time.
      - V(dead) means that the origin is gone and must not come back by itself. The failover is refused while the
        origin still answers.
    type: str
    choices: [subjects, sealed, permissions, dead]
    required: true
  dead:
    description:
      - Name of the origin, for O(fence=dead). Make sure that the network is not merely partitioned; the module cannot
        detect this.
    type: str
  allow_loss:
    description:
      - Promote even if the site does not catch up with the fenced origin within O(wait_timeout). With V(false), the
        origin gets its subjects back instead.
    type: bool
    default: false
  max_loss_messages:
    description:
      - Refuse the failover if the minimum loss exceeds this many messages. By default, any loss is allowed.
    type: int
  consumers:
    description:
      - Whether durable consumers are created at the site.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds for the site to catch up, and for a new stream to take over the messages of a mirror.
    type: float
    default: 60
  watch:
    description:
      - Seconds for which the origin is watched with O(fence=permissions).
    type: float
    default: 10
attributes:
  check_mode:
    support: full
  diff_mode:
    description: Returns no diff. Check mode returns the plan.
    support: none
  idempotent:
    support: full
seealso:
  - module: natsops.jetstream.nats_dr_info
  - module: natsops.jetstream.nats_dr_checkpoint
"""

EXAMPLES = r"""
- name: Fail over to west while both sites are up
  natsops.jetstream.nats_dr_failover:
    origin: {name: east, servers: [nats://n1.east.example.com:4222]}
    site: {name: west, servers: [nats://n1.west.example.com:4222]}
    streams:
      - {account: APP, stream: ORDERS}
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    fence: subjects

- name: Fail over to west after east was lost
  natsops.jetstream.nats_dr_failover:
    origin: {name: east, servers: [nats://n1.east.example.com:4222]}
    site: {name: west, servers: [nats://n1.west.example.com:4222]}
    streams:
      - {account: APP, stream: ORDERS}
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    fence: dead
    dead: east
"""

RETURN = r"""
lines:
  description: The expected and the actual result or, in check mode, the plan, as readable text.
  returned: success
  type: list
  elements: str
  sample:
    - "APP/ORDERS: promised: lost would be at most 12 messages, of the last 35ms"
    - "APP/ORDERS: consumer worker: ack floor 1850, at the origin 1850, gets up to 3 messages again"
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
streams:
  description: The streams that the site now serves. Empty in check mode.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Account and name of the stream at the origin.
      type: str
      sample: APP/ORDERS
    stream:
      description: Name of the stream at the site that replaces the origin's stream.
      type: str
      sample: ORDERS
    changed:
      description: Whether this run changed anything.
      type: bool
      sample: true
    steps:
      description: The steps that this run carried out.
      type: list
      elements: str
      sample: ["fenced (subjects)", "promoted (end mirror)", "3 consumers"]
    fence:
      description: How the origin was fenced.
      type: str
      sample: subjects
    method:
      description: How the copy was promoted, C(end mirror), C(end sources), or C(take over) (by a new stream).
      type: str
      sample: end mirror
    subjects:
      description: Subjects of the stream at the site.
      type: list
      elements: str
      sample: ["orders.>"]
    promised:
      description: The expected loss when the failover began, in the form of C(loss) of
        M(natsops.jetstream.nats_dr_info).
      type: dict
    complete:
      description: Whether the site was observed to have all messages of its fenced origin.
      type: bool
      sample: true
    position:
      description: Sequence of the origin up to which the stream is complete.
      type: int
      sample: 2000
    last_copied:
      description: The sequence at the site of the last message copied from the origin. Later messages were written at
        the site.
      type: int
      sample: 2000
    messages:
      description: Number of messages in the stream at the site.
      type: int
      sample: 2000
    first_seq:
      description: First sequence of the stream at the site.
      type: int
      sample: 1
    last_seq:
      description: Last sequence of the stream at the site.
      type: int
      sample: 2000
    consumers:
      description: The durable consumers, with their ack floors at the origin and at the site, and how many messages
        each may receive again.
      type: list
      elements: dict
      sample: [{name: worker, origin_floor: 1850, floor: 1850, again: 3}]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.dr.failover import FENCES, FailoverOptions
from ..module_utils.dr.reader import DR_SPEC, connected, protected_streams
from ..module_utils.dr.run_failover import FailoverTimeouts, done_page, fail_over, plan_work, planned_page
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_options
from ..module_utils.nats.client import ConnectionOptions, NatsFailure
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, options: ConnectionOptions) -> dict[str, Any]:
    """Return the module's result after the site serves every stream."""
    params = module.params
    wanted = FailoverOptions(
        params["fence"], params["dead"] or "", params["allow_loss"], params["max_loss_messages"], params["consumers"]
    )
    timeouts = FailoverTimeouts(positive(params["wait_timeout"], "wait_timeout"), positive(params["watch"], "watch"))
    with connected(options, params) as pair:
        found = plan_work(pair, protected_streams(params), wanted)
        if module.check_mode:
            planned = planned_page(pair, found)
            return {"changed": any(not one.done for one in found), **planned.as_dict(), "streams": []}
        rows: list[dict[str, Any]] = []
        for one in found:
            try:
                rows.append(fail_over(pair, one, wanted, timeouts))
            except NatsFailure as failure:
                fail(module, failure, changed=True, **done_page(rows).as_dict(), streams=rows)
    return {"changed": any(row["changed"] for row in rows), **done_page(rows).as_dict(), "streams": rows}


def main() -> None:
    module = make_module(
        {
            **ACCOUNT_USERS_SPEC,
            **DR_SPEC,
            "fence": {"type": "str", "choices": list(FENCES), "required": True},
            "dead": {"type": "str"},
            "allow_loss": {"type": "bool", "default": False},
            "max_loss_messages": {"type": "int"},
            "consumers": {"type": "bool", "default": True},
            "wait_timeout": {"type": "float", "default": 60},
            "watch": {"type": "float", "default": 10},
        },
        required_if=[("fence", "dead", ("dead",))],
    )
    run(module, with_options, lambda options: ensure(module, options))


if __name__ == "__main__":
    main()
