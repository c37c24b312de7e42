#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_backup_drill
short_description: Prove a backup by restoring it into a throw-away server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Starts a nats-server of its own on loopback, restores a backup into it, saves the stream from there again and
    compares both archives, with the digest of all messages, their number, the first and last sequence, and the position
    of every durable consumer. Then it removes the server and all its files.
  - Measures how long the restore takes, and keeps the proof in the catalogue beside the backups, also one that failed.
  - The stream is restored with one replica, on disk, and in isolation. It has no subjects, mirror, sources, republish and
    placement, and no limits and retention that remove messages by themselves.
  - Runs on the controller or on a spare host that can read the backups, and needs no cluster and no connection to one.
  - The server ends with the module, also when that is killed. Files that a killed run left are removed by the next one.
extends_documentation_fragment:
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_identity
attributes:
  check_mode:
    description: Can run in check mode and says which backup it would prove and how much room on disk that needs.
    support: full
    details:
      - Verifies the archive and starts nothing. Does not see whether another run holds the lock.
  diff_mode:
    description: Only the proof in the catalogue is new, see RV(proof).
    support: none
options:
  directory:
    description:
      - Directory of the backups with their catalogue. No other run may write to it meanwhile.
      - Or a place in object storage, C(s3://BUCKET/PREFIX), see O(s3).
    type: path
    required: true
  stream:
    description:
      - The stream whose newest backup is proven, as C(ACCOUNT/STREAM), or with a time as C(ACCOUNT/STREAM@time) the
        newest one that was taken by then.
      - By default the stream whose turn it is, one that was never proven or the one whose last proof is the oldest.
    type: str
  binary:
    description:
      - Path of the nats-server to run, by default the one in E(PATH), C(/usr/sbin) or C(/usr/local/bin). Archives of
        nats-server 2.15 or later need one of 2.15 or later.
    type: path
  work_directory:
    description:
      - Directory below which the server stores, in one of its own that only the user of the module can read. It must
        have room for the stream and for its archive, see RV(room).
      - By default the one that holds O(directory), and for object storage the one for temporary files.
    type: path
  finish_timeout:
    description:
      - Seconds that the server may take after the last byte. Before 2.12.15 and 2.14.5 it begins only then.
    type: float
    default: 3600
  wait_timeout:
    description:
      - Seconds to wait until every consumer is there.
    type: float
    default: 300
requirements:
  - nats-py >= 2.9
  - nats-server
notes:
  - "Failures before a server is started: V(locked), V(invalid_option), V(damaged), V(unsupported) and V(disk_full).
    V(not_started) shows the last lines of the server's log. V(not_proven) says what came back different."
  - Failures of the backup itself are recorded as a proof that failed, so that the next run goes on with another stream.
    Those of the host, such as a full disk or a missing nats-server, are not recorded.
  - From 2.15 a restore leaves out messages whose own time to live has passed since the backup. A stream that
    allows these and comes back with fewer messages is compared message by message.
seealso:
  - module: natsops.jetstream.nats_backup_info
  - module: natsops.jetstream.nats_stream_backup
  - module: natsops.jetstream.nats_stream_restore
"""

EXAMPLES = r"""
- name: Prove the backup whose turn it is
  natsops.jetstream.nats_backup_drill:
    directory: /srv/backup
  delegate_to: localhost

- name: Prove last night's backup of a stream on a roomy disk
  natsops.jetstream.nats_backup_drill:
    directory: /srv/backup
    stream: APP/ORDERS@2026-11-23
    binary: /opt/nats-server/2.15.1/nats-server
    work_directory: /scratch
"""

RETURN = r"""
stream:
  description: The stream whose backup was proven, or would be.
  returned: success
  type: str
  sample: APP/ORDERS
path:
  description: Directory of the backup.
  returned: success
  type: str
  sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
server_version:
  description: Version of the nats-server that proves it.
  returned: success
  type: str
  sample: 2.15.1
bytes:
  description: Bytes of the stream.
  returned: success
  type: int
  sample: 1048576
room:
  description: Bytes on disk that the drill needs.
  returned: success
  type: int
  sample: 1468006
seconds:
  description: How long the restore took until all of it was there, with the verification of the archive; null in check mode.
  returned: success
  type: float
  sample: 2.5
bytes_per_second:
  description: Bytes of the stream that were restored in a second; null in check mode.
  returned: success
  type: int
  sample: 419430
proof:
  description: What the catalogue keeps, null in check mode. C(ok) is whether it is proven, C(reason) why not, C(proven) the
    time of the last drill that succeeded.
  returned: success
  type: dict
  sample:
    time: "2026-11-24T03:00:00.123456Z"
    ok: true
    reason: ""
    path: APP/ORDERS@20261123T020000.123456Z
    taken: "2026-11-23T02:00:00.123456Z"
    seconds: 2.5
    bytes: 1048576
    messages: 1000
    digest: 5f0c1d3a9be7c7d2a4f1f6a3c1f0c7d5e4b3a29187f6e5d4c3b2a190817263f4
    server_version: 2.15.1
    proven: "2026-11-24T03:00:00.123456Z"
lines:
  description: The same for people.
  returned: success
  type: list
  elements: str
  sample: ["APP/ORDERS as of 2026-11-23T02:00:00.123456Z is proven: 1000 messages, restored in 2.5s"]
unreadable:
  description: What looks like a backup in the directory and cannot be read.
  returned: success
  type: list
  elements: str
  sample: []
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.natsops.jetstream.plugins.module_utils.module import fail, gc_paused
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import MissingLibrary, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.backup_drill import WantedDrill, drill
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.backup_target import READ_SPEC, store_of
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import listing
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import positive


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "stream": {"type": "str"},
            "binary": {"type": "path"},
            "work_directory": {"type": "path"},
            "finish_timeout": {"type": "float", "default": 3600.0},
            "wait_timeout": {"type": "float", "default": 300.0},
            **READ_SPEC,
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        wanted = WantedDrill(
            store_of(params),
            params["stream"],
            params["binary"],
            Path(params["work_directory"]) if params["work_directory"] else None,
            positive(params["finish_timeout"], "finish_timeout"),
            positive(params["wait_timeout"], "wait_timeout"),
        )
        with gc_paused():
            result = drill(wanted, module.check_mode)
    except MissingLibrary as missing:
        module.fail_json(msg=missing_required_lib(missing.library), exception=missing.trace)
    except NatsFailure as failure:
        fail(module, failure)
    else:
        unreadable = [f"a backup cannot be read: {reason}" for reason in result["unreadable"]]
        for warning in listing(unreadable, what="unreadable backup", most=3).screen:
            module.warn(warning)
        module.exit_json(**result)


if __name__ == "__main__":
    main()
