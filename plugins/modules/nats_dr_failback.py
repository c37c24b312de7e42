#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_dr_failback
short_description: Bring streams back to their origin after a failover
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Copies to the origin only the messages that were written at the site since M(natsops.jetstream.nats_dr_failover),
    while the site continues to serve. Then the module fences the site, waits for the remaining messages, moves the
    consumers, and lets the origin serve again.
  - The origin receives the messages through C(sources), with a duplicate window so short that no message is dropped
    because of its message id. Message ids that both sides stored are reported; messages with these ids exist twice.
    The module verifies that all messages have arrived before the site stops serving.
  - Messages that exist only at the origin, because they were lost in the failover, remain in the stream before the
    messages copied from the site.
  - Afterwards, the sequences at the origin differ from those at the site. Each consumer is recreated at the position
    that corresponds to its position at the site.
  - The site keeps its stream, but on unused subjects. Delete the site's stream and recreate the mirror there.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.dr
options:
  wait_timeout:
    description:
      - Seconds that the origin may take to catch up, once before and once after the site is fenced. If the origin does
        not catch up in this time, the site serves again.
    type: float
    default: 60
attributes:
  check_mode:
    support: full
  diff_mode:
    description: Returns no diff. Check mode returns the plan.
    support: none
  idempotent:
    support: none
    details:
      - The module refuses a stream that has already been brought back, or that never failed over.
seealso:
  - module: natsops.jetstream.nats_dr_failover
"""

EXAMPLES = r"""
- name: Bring the streams back to east
  natsops.jetstream.nats_dr_failback:
    origin: {name: east, servers: [nats://n1.east.example.com:4222], jetstream_domain: east}
    site: {name: west, servers: [nats://n1.west.example.com:4222], jetstream_domain: west}
    streams:
      - {account: APP, stream: ORDERS}
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
"""

RETURN = r"""
lines:
  description: The messages that were brought back or, in check mode, the plan, as readable text.
  returned: success
  type: list
  elements: str
  sample: ["APP/ORDERS: messages that came back: 340; ORDERS serves with 2352"]
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
streams:
  description: The streams that were brought back. Empty in check mode. C(returned) is the number of messages written at
    the site, and C(stranded) is the maximum number of messages that exist only at the origin. C(twice) lists the
    message ids stored on both sides. The comparison of ids covers the first 20000 messages after the failover and, at
    the origin, also the last 1000 messages before the failover.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: APP/ORDERS, stream: ORDERS, returned: 340, stranded: 12, twice: [o-17], messages: 2352, last_seq: 2352,
       consumers: [{name: worker, site_floor: 2100, floor: 2112, again: 0}]}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.dr.reader import DR_SPEC, connected, protected_streams
from ..module_utils.dr.run_failback import done_page, fail_back, plan_failback, planned_page
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_options
from ..module_utils.nats.client import ConnectionOptions, NatsFailure
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, options: ConnectionOptions) -> dict[str, Any]:
    """Return the module's result after the origin serves every stream again."""
    wait = positive(module.params["wait_timeout"], "wait_timeout")
    with connected(options, module.params) as pair:
        found = plan_failback(pair, protected_streams(module.params))
        if module.check_mode:
            return {"changed": True, **planned_page(pair, found).as_dict(), "streams": []}
        rows: list[dict[str, Any]] = []
        for row in found:
            try:
                rows.append(fail_back(pair, row, wait))
            except NatsFailure as failure:
                fail(module, failure, changed=True, **done_page(rows).as_dict(), streams=rows)
    return {"changed": True, **done_page(rows).as_dict(), "streams": rows}


def main() -> None:
    module = make_module({**ACCOUNT_USERS_SPEC, **DR_SPEC, "wait_timeout": {"type": "float", "default": 60}})
    run(module, with_options, lambda options: ensure(module, options))


if __name__ == "__main__":
    main()
