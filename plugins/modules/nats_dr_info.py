#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_dr_info
short_description: Read how far a second site is behind, and the loss that a failover would cause now
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads streams at their origin and their copies at a second site, which is another cluster of a supercluster, a
    JetStream domain behind leaf nodes, or a separate cluster with its own addresses.
  - Returns, for each stream, the loss that a failure of the origin would cause now. A mirror whose origin is gone
    continues to report a lag of 0, so the module returns its loss as unknown.
  - The task does not fail if a side does not answer.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.dr
  - natsops.jetstream.attributes.info_module
options:
  max_loss_messages:
    description:
      - The recovery point objective in messages. A larger loss is reported as a problem.
    type: int
  max_loss_seconds:
    description:
      - The recovery point objective in seconds. A larger loss is reported as a problem.
    type: float
  max_checkpoint_age:
    description:
      - Maximum age in seconds of the checkpoint of M(natsops.jetstream.nats_dr_checkpoint). An older checkpoint is
        reported as a problem.
    type: float
  max_drill_age:
    description:
      - Maximum age in seconds of the last successful drill of M(natsops.jetstream.nats_dr_drill). An older drill is
        reported as a problem. By default, drills may have any age or be missing. A failed drill is always reported.
    type: float
seealso:
  - module: natsops.jetstream.nats_dr_checkpoint
  - module: natsops.jetstream.nats_dr_drill
  - module: natsops.jetstream.nats_dr_failover
"""

EXAMPLES = r"""
- name: Read the loss of a failover now
  natsops.jetstream.nats_dr_info:
    origin: {name: east, servers: [nats://n1.east.example.com:4222], jetstream_domain: east}
    site: {name: west, servers: [nats://n1.west.example.com:4222], jetstream_domain: west}
    streams:
      - {account: APP, stream: ORDERS}
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    max_loss_seconds: 30
  register: result
  failed_when: not result.in_order
"""

RETURN = r"""
lines:
  description: The state as readable text.
  returned: success
  type: list
  elements: str
  sample:
    - "│ APP/ORDERS │ behind │ 12 (35ms) │ at most 12 messages, of the last 35ms │ 3         │ 41s old    │ 2d ago │"
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
in_order:
  description: Whether RV(streams[].in_order) is true for every stream.
  returned: success
  type: bool
  sample: true
problem:
  description: The first problems, and the number of further ones. Empty if there are none.
  returned: success
  type: str
  sample: "APP/ORDERS: RPO exceeded: 12 messages, the limit is 10"
streams:
  description: The streams, in the order of O(streams).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Account and name of the stream.
      type: str
      sample: APP/ORDERS
    account:
      description: Account of the stream. Null for the account of the task's own user.
      type: str
      sample: APP
    stream:
      description: Name of the stream at the origin.
      type: str
      sample: ORDERS
    copy:
      description: Name of the stream's copy at the site.
      type: str
      sample: ORDERS
    state:
      description:
        - One of the states C(following) (nothing is missing), C(behind), C(disconnected) (the site receives nothing
          from the origin, although the origin answers), C(origin silent), C(site silent), C(missing) (no copy),
          C(unrelated) (the site's stream copies a different stream), C(diverged) (the site has messages that the origin
          does not have), or C(promoted) (the site has taken over from the origin).
      type: str
      sample: behind
    position:
      description: Sequence of the origin up to which the site has all messages. Null if unknown.
      type: int
      sample: 1988
    behind:
      description: Maximum number of messages that the site lacks. Null unless both sides answer.
      type: int
      sample: 12
    seconds_behind:
      description: Seconds since the origin stored a message that the site still lacks. Null unless both sides answer.
      type: float
      sample: 0.035
    contact:
      description: Seconds since the site last received data from the origin. Null if the site has never received any
        data.
      type: float
      sample: 0.2
    loss:
      description:
        - The loss if the origin failed now. C(messages) is an upper bound if C(known) is true, and a lower bound
          otherwise. C(seconds) is null if unknown. C(since) is when the origin stored the newest message that the
          site has.
      type: dict
      sample: {known: true, messages: 12, seconds: 0.035, since: "2026-11-24T11:05:27.6151Z", text: "at most 12 messages"}
    consumers:
      description: The ack floor of each consumer at the origin (null if the origin does not answer), and the ack
        floor in the checkpoint.
      type: list
      elements: dict
      sample: [{name: worker, origin: 1900, saved: 1850}]
    checkpoint_age:
      description: Seconds since the consumers were saved. Null if there is no checkpoint.
      type: float
      sample: 41.2
    drill:
      description: The last drill, as M(natsops.jetstream.nats_dr_drill) returns it. Null if there was none.
      type: dict
      sample: {time: "2026-11-22T03:00:00.123456Z", ok: true, reason: "", method: end mirror, messages: 2000, position: 2000,
               consumers: 3, copied: 1.2, seconds: 0.4, proven: "2026-11-22T03:00:00.123456Z"}
    drill_age:
      description: Seconds since the last successful drill. Null if there was none.
      type: float
      sample: 172800.5
    problems:
      description: The stream's problems.
      type: list
      elements: str
      sample: ["RPO exceeded: 12 messages, the limit is 10"]
    in_order:
      description: Whether the state is C(following), C(behind) or C(promoted), and the stream has no problem.
      type: bool
      sample: true
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.dr.reader import DR_SPEC, connected, protected_streams
from ..module_utils.dr.run_status import read_status
from ..module_utils.dr.status import RecoveryLimits, status_page
from ..module_utils.module import ACCOUNT_USERS_SPEC, make_module, with_options
from ..module_utils.nats.client import ConnectionOptions
from ..module_utils.screen import some_names


def read(module: AnsibleModule, options: ConnectionOptions) -> dict[str, Any]:
    """Return the module's result."""
    params = module.params
    limits = RecoveryLimits(
        params["max_loss_messages"], params["max_loss_seconds"], params["max_checkpoint_age"], params["max_drill_age"]
    )
    with connected(options, params) as pair:
        rows = [row.status for row in read_status(pair, protected_streams(params), limits)]
        page = status_page(pair.origin.name, pair.site.name, rows)
    return {
        "changed": False,
        **page.as_dict(),
        "problem": some_names(
            [f"{row.protected.name}: {problem}" for row in rows for problem in row.problems], separator="; "
        ),
        "in_order": all(row.in_order for row in rows),
        "streams": [row.as_dict() for row in rows],
    }


def main() -> None:
    module = make_module(
        {
            **ACCOUNT_USERS_SPEC,
            **DR_SPEC,
            "max_loss_messages": {"type": "int"},
            "max_loss_seconds": {"type": "float"},
            "max_checkpoint_age": {"type": "float"},
            "max_drill_age": {"type": "float"},
        }
    )
    run(module, with_options, lambda options: read(module, options))


if __name__ == "__main__":
    main()
