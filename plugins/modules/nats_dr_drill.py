#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_dr_drill
short_description: Rehearse the failover to a second site
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Rehearses M(natsops.jetstream.nats_dr_failover) as if the origin were gone, with a throw-away copy of the site's
    stream. The copy is promoted, receives the durable consumers at the ack floors of the last checkpoint, and must
    accept a message.
  - The throw-away copy is then compared with the site's copy by the number of messages, the contents of O(compare)
    messages, and the ack floor of each consumer, and is removed afterwards.
  - The origin is not queried, and neither it nor the site's copy is changed. The throw-away copy
    C(NATS_DR_DRILL_<stream>) has an unused subject, no republishing and no subject transform, and its consumers do
    not deliver to any clients.
  - The result of the drill is recorded at the site, and M(natsops.jetstream.nats_dr_info) reports it. A failed drill
    is also recorded, even if the failover itself would be refused.
  - The next run removes a throw-away copy that a killed run left behind. Run only one drill at a time.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.dr
options:
  only:
    description:
      - Names of the O(streams) to rehearse, each as C(ACCOUNT/STREAM), or C(STREAM) if it has no account. Defaults to
        all.
    type: list
    elements: str
  compare:
    description:
      - Number of messages of each stream, evenly spread, whose contents are compared.
    type: int
    default: 1000
  consumers:
    description:
      - Whether to create durable consumers, like the option of the same name in
        M(natsops.jetstream.nats_dr_failover).
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait until a throw-away copy has all messages of the site's copy.
    type: float
    default: 600
attributes:
  check_mode:
    description: Can run in check mode, and returns how much room the drill needs, and whether the failover would be
      refused.
    support: full
  diff_mode:
    description: The only lasting change is the record of the drill.
    support: none
  idempotent:
    support: none
    details:
      - Each run is a new drill.
notes:
  - During the drill, the throw-away copy needs as much room at the site as the site's copy. The drill is refused if
    the account's limits leave less room. The free space of the disks is not checked.
seealso:
  - module: natsops.jetstream.nats_dr_info
  - module: natsops.jetstream.nats_dr_failover
  - module: natsops.jetstream.nats_dr_checkpoint
"""

EXAMPLES = r"""
- name: Rehearse the failover to west
  natsops.jetstream.nats_dr_drill:
    origin: {name: east, servers: [nats://n1.east.example.com:4222]}
    site: {name: west, servers: [nats://n1.west.example.com:4222]}
    streams:
      - {account: APP, stream: ORDERS}
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
"""

RETURN = r"""
lines:
  description: The result of the drill or, in check mode, the plan, as readable text.
  returned: success, and where a drill failed
  type: list
  elements: str
  sample: ["APP/ORDERS: west can take over: served 0.4s after the promotion (end mirror), with 3 consumers at their floors"]
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success, and where a drill failed
  type: list
  elements: str
streams:
  description: The streams, in the order of O(streams). Empty in check mode.
  returned: success, and where a drill failed
  type: list
  elements: dict
  contains:
    name:
      description: Account and name of the stream at the origin.
      type: str
      sample: APP/ORDERS
    stream:
      description: Name of the stream.
      type: str
      sample: ORDERS
    copy:
      description: Name of the stream's copy at the site.
      type: str
      sample: ORDERS
    compared:
      description: Number of messages whose contents were compared.
      type: int
      sample: 1000
    drill:
      description: The record of the drill. C(copied) is the number of seconds that it took to fill the throw-away
        copy. C(seconds) is the number of seconds from the promotion of that copy until it was serving and its
        consumers were ready. C(position) is the sequence of the origin up to which the site had all messages.
        C(proven) is when a drill last succeeded.
      type: dict
      sample: {time: "2026-11-24T03:00:00.123456Z", ok: true, reason: "", method: end mirror, messages: 2000, position: 2000,
               consumers: 3, copied: 1.2, seconds: 0.4, proven: "2026-11-24T03:00:00.123456Z"}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.throwaway_server import ended_by_signals
from ..module_utils.collection_module import run
from ..module_utils.dr.reader import DR_SPEC, connected, protected_streams
from ..module_utils.dr.run_drill import SiteDrillOptions, plan_drills, planned_page, rehearse
from ..module_utils.dr.status import Protected
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_options
from ..module_utils.nats.client import ConnectionOptions, NatsFailure
from ..module_utils.screen import blocks
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, options: ConnectionOptions) -> dict[str, Any]:
    """Return the module's result after every stream has been rehearsed."""
    params = module.params
    if params["compare"] < 0:
        raise NatsFailure("invalid_option", f"compare: must not be negative, not {params['compare']}")
    wanted = SiteDrillOptions(positive(params["wait_timeout"], "wait_timeout"), params["compare"], params["consumers"])
    rows: list[dict[str, Any]] = []
    with connected(options, params) as pair, ended_by_signals():
        found = plan_drills(pair, _chosen(params), wanted)
        if module.check_mode:
            return {"changed": True, **planned_page(pair, found).as_dict(), "streams": []}
        for one in found:
            try:
                rows.append(rehearse(pair, one, wanted))
            except NatsFailure as failure:
                fail(module, failure, changed=True, **_result(rows))
    result = _result(rows)
    failed = [f"{row['name']}: {row['drill']['reason']}" for row in rows if not row["drill"]["ok"]]
    if failed:
        message = "\n".join([f"{len(failed)} of {len(rows)} streams could not fail over:", *failed])
        fail(module, NatsFailure("not_proven", message), changed=True, **result)
    return {"changed": True, **result}


def _chosen(params: dict[str, Any]) -> list[Protected]:
    streams = protected_streams(params)
    if params["only"] is None:
        return streams
    unknown = sorted(set(params["only"]) - {one.name for one in streams})
    if unknown:
        raise NatsFailure("invalid_option", f"only: not among the streams: {', '.join(unknown)}")
    return [one for one in streams if one.name in params["only"]]


def _result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    streams = [{key: value for key, value in row.items() if key != "lines"} for row in rows]
    failed = {place for place, row in enumerate(rows) if not row["drill"]["ok"]}
    return {**blocks([row["lines"] for row in rows], failed).as_dict(), "streams": streams}


def main() -> None:
    module = make_module(
        {
            **ACCOUNT_USERS_SPEC,
            **DR_SPEC,
            "only": {"type": "list", "elements": "str"},
            "compare": {"type": "int", "default": 1000},
            "consumers": {"type": "bool", "default": True},
            "wait_timeout": {"type": "float", "default": 600},
        }
    )
    run(module, with_options, lambda options: ensure(module, options))


if __name__ == "__main__":
    main()
