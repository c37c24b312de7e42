#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_backup_drill
short_description: Test a backup by restoring it into a throw-away server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Starts a separate nats-server on loopback, restores a backup into it, and backs up the restored stream. Both
    archives are compared by the digest of all messages, the number of messages, the first and last sequence, and the
    position of every durable consumer. Then the module removes the server and all its files.
  - Measures how long the restore takes, and records the result as a proof in the catalogue next to the backups, even
    if the drill fails.
  - The stream is restored with one replica, on disk, and in isolation. The restored stream has no subjects, mirror,
    sources, republishing or placement, and no limits or retention policy that would remove messages.
  - Runs on the controller or on a spare host that can read the backups, and does not connect to any cluster.
  - The server stops when the module ends, even if the module is killed. The next run removes the files that a killed
    run left behind.
extends_documentation_fragment:
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_identity
attributes:
  check_mode:
    description: Can run in check mode, and returns which backup would be tested and how much disk space the drill
      needs.
    support: full
    details:
      - In check mode, the module verifies the archive but starts no server, and does not check whether another run
        holds the lock.
  diff_mode:
    description: The only change is the new proof in the catalogue; see RV(proof).
    support: none
options:
  directory:
    description:
      - Directory of the backups with their catalogue. No other run may write to it at the same time.
      - Alternatively, a location in object storage, C(s3://BUCKET/PREFIX); see O(s3).
    type: path
    required: true
  stream:
    description:
      - The stream whose newest backup is tested, as C(ACCOUNT/STREAM). C(ACCOUNT/STREAM@time) selects the newest
        backup taken up to that time.
      - Defaults to a stream without a proof or, if every stream has a proof, to the stream whose proof is the oldest.
    type: str
  binary:
    description:
      - Path of the nats-server executable to run. Defaults to the one in E(PATH), C(/usr/sbin) or C(/usr/local/bin).
        Archives from nats-server 2.15 or later require version 2.15 or later.
    type: path
  work_directory:
    description:
      - Directory below which the server stores its data, in a subdirectory that only the module's user can read. The
        directory must have room for the stream and for its archive; see RV(room).
      - Defaults to the parent of O(directory), and for object storage to the directory for temporary files.
    type: path
  finish_timeout:
    description:
      - Seconds that the server may take to complete the restore after it has received the last byte. Servers before
        2.12.15 and 2.14.5 do not start restoring until they have received this byte.
    type: float
    default: 3600
  wait_timeout:
    description:
      - Seconds to wait until every consumer exists.
    type: float
    default: 300
requirements:
  - nats-py >= 2.9
  - nats-server
notes:
  - "Failures before a server is started have the codes V(locked), V(invalid_option), V(damaged), V(unsupported) and
    V(disk_full). The failure V(not_started) includes the last lines of the server's log. The failure V(not_proven)
    lists the differences after the restore."
  - Failures of the backup itself are recorded as a failed proof, so the next run tests a different stream. Failures
    of the host, such as a full disk or a missing nats-server, are not recorded.
  - From nats-server 2.15 on, a restore omits messages whose individual time to live has expired since the backup. If a
    stream that allows such a time to live is restored with fewer messages, the drill compares the stream message by
    message.
seealso:
  - module: natsops.jetstream.nats_backup_info
  - module: natsops.jetstream.nats_backup
  - module: natsops.jetstream.nats_restore
"""

EXAMPLES = r"""
- name: Test the backup that is due
  natsops.jetstream.nats_backup_drill:
    directory: /srv/backup
  delegate_to: localhost

- name: Test last night's backup of a stream on a disk with enough space
  natsops.jetstream.nats_backup_drill:
    directory: /srv/backup
    stream: APP/ORDERS@2026-11-23
    binary: /opt/nats-server/2.15.1/bin/nats-server
    work_directory: /scratch
"""

RETURN = r"""
stream:
  description: The stream whose backup was tested or, in check mode, would be tested.
  returned: success
  type: str
  sample: APP/ORDERS
path:
  description: Directory of the backup.
  returned: success
  type: str
  sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
server_version:
  description: Version of the nats-server that runs the test.
  returned: success
  type: str
  sample: 2.15.1
bytes:
  description: Size of the stream in bytes.
  returned: success
  type: int
  sample: 1048576
room:
  description: Disk space in bytes that the drill needs.
  returned: success
  type: int
  sample: 1468006
seconds:
  description: Seconds until everything was restored, including the verification of the archive. Null in check mode.
  returned: success
  type: float
  sample: 2.5
bytes_per_second:
  description: Bytes restored per second. Null in check mode.
  returned: success
  type: int
  sample: 419430
proof:
  description: The record of the drill in the catalogue. Null in check mode. C(ok) is true if the backup is proven,
    C(reason) contains the reason if it is not, and C(proven) is the time of the last successful drill.
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
  description: The result as readable text.
  returned: success
  type: list
  elements: str
  sample: ["APP/ORDERS as of 2026-11-23T02:00:00.123456Z is proven: 1000 messages, restored in 2.5s"]
unreadable:
  description: Entries of the directory that resemble a backup but cannot be read.
  returned: success
  type: list
  elements: str
  sample: []
"""

from pathlib import Path
from typing import Any

from ..module_utils.backup.drill import BackupDrillOptions, drill
from ..module_utils.backup.target import READ_SPEC, requested_store
from ..module_utils.collection_module import CollectionModule, run
from ..module_utils.module import gc_paused, without_connection
from ..module_utils.screen import listing, printable
from ..module_utils.waiting import positive


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    params = module.params
    wanted = BackupDrillOptions(
        requested_store(params),
        params["stream"],
        params["binary"],
        Path(params["work_directory"]) if params["work_directory"] else None,
        positive(params["finish_timeout"], "finish_timeout"),
        positive(params["wait_timeout"], "wait_timeout"),
    )
    with gc_paused():
        result = drill(wanted, module.check_mode)
    unreadable = [f"a backup cannot be read: {reason}" for reason in result["unreadable"]]
    for warning in listing(unreadable, what="unreadable backup", most=3).screen:
        module.warn(printable(warning))
    return result


def main() -> None:
    module = CollectionModule(
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
    run(module, without_connection, ensure)


if __name__ == "__main__":
    main()
