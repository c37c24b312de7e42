#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_dr_checkpoint
short_description: Save the positions of consumers at a second site
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - A mirror copies messages, but neither consumers nor the configuration on which clients rely. This module saves the
    consumers and this configuration at the site, for a failover after the loss of the origin. Run this module about
    once a minute, because after a failover, every message acknowledged since the last run is delivered again.
  - The checkpoint is stored in compressed form in the metadata of the stream C(NATS_DR_<site>) in the streams'
    account. This stream contains no messages.
  - A stream whose origin does not answer keeps its checkpoint, and the module fails at the end.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.dr
attributes:
  check_mode:
    support: full
  diff_mode:
    description: Shows the time of each checkpoint.
    support: full
  idempotent:
    support: partial
    details:
      - If nothing has changed at the origin, a checkpoint that is newer than O(fresh) seconds is kept.
options:
  fresh:
    description:
      - Seconds during which a checkpoint with the same positions is not saved again.
    type: float
    default: 60
seealso:
  - module: natsops.jetstream.nats_dr_info
  - module: natsops.jetstream.nats_dr_failover
"""

EXAMPLES = r"""
- name: Save the consumers' positions
  natsops.jetstream.nats_dr_checkpoint:
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
streams:
  description: The streams, in the order of O(streams).
  returned: success, and where some streams could not be saved
  type: list
  elements: dict
  sample: [{name: APP/ORDERS, changed: true, consumers: 3, last_seq: 2000, taken: "2026-11-24T11:05:27.6151Z", problem: ""}]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.dr.reader import DR_SPEC, connected, protected_streams
from ..module_utils.dr.run_status import read_status, save_checkpoint
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_options
from ..module_utils.nats.client import ConnectionOptions, NatsFailure


def ensure(module: AnsibleModule, options: ConnectionOptions) -> dict[str, Any]:
    """Return the module's result."""
    with connected(options, module.params) as pair:
        found = read_status(pair, protected_streams(module.params))
        rows = [save_checkpoint(row, module.params["fresh"], module.check_mode) for row in found]
    result = {"changed": any(row["changed"] for row in rows), "streams": rows}
    if module._diff and result["changed"]:
        result["diff"] = {
            "before": {row["name"]: row["before"] for row in rows if row["changed"]},
            "after": {row["name"]: row["taken"] for row in rows if row["changed"]},
        }
    for row in rows:
        del row["before"]
    failed = [f"{row['name']}: {row['problem']}" for row in rows if row["problem"]]
    if failed:
        message = "\n".join([f"{len(failed)} of {len(rows)} streams have no new checkpoint:", *failed])
        fail(module, NatsFailure("not_saved", message), **result)
    return result


def main() -> None:
    module = make_module({**ACCOUNT_USERS_SPEC, **DR_SPEC, "fresh": {"type": "float", "default": 60}})
    run(module, with_options, lambda options: ensure(module, options))


if __name__ == "__main__":
    main()
