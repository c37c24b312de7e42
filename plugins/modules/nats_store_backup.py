#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_store_backup
short_description: Back up the streams that copies of server stores contain
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads copies of the stores of stopped servers, made by M(natsops.jetstream.nats_store_copy), and saves each stream
    into C(<directory>/<account>/<stream>@<time>), from which M(natsops.jetstream.nats_restore) restores it. The source
    is the copy with the highest last sequence. Among copies with the same last sequence, the module prefers a copy from
    a server that was stopped properly, and then the copy with the most messages.
  - For each stream, it duplicates the copy of this stream, and starts a separate nats-server on loopback that loads
    only the duplicate and is isolated from any cluster. This server adds no messages, expires none and sends none
    elsewhere, and the copies remain unchanged.
  - Compares the loaded stream with its files, saves it with all consumers at their ack floors, and reads the archive
    back. The backup contains the original configuration of the stream. Consumers get as many replicas as their stream,
    or a single replica if they had only one. A consumer found only in another copy is added, and the restore recreates
    it at its ack floor.
  - A stream that is unchanged since its newest backup is not saved again, so the next run continues an interrupted run.
    If a stream cannot be saved, all other streams are still saved. The module then fails and names the failed stream.
  - Runs on the controller or on a spare host that can read the copies, and connects to no cluster. The server stops
    when the module ends, even if the module is killed. The next run removes files left by a killed run.
extends_documentation_fragment:
  - natsops.jetstream.stream_selection
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_encryption
  - natsops.jetstream.transfer
  - natsops.jetstream.progress
attributes:
  check_mode:
    description: Can run in check mode. Loads the streams and reports which of them would be saved.
    support: full
    details:
      - Check mode does not detect whether another run holds the lock.
  diff_mode:
    description: Shows the messages, sequences and consumers of the newest existing backup and of the new backup of each
      stream.
    support: full
  idempotent:
    description: Whether a second run changes nothing.
    support: full
options:
  copies:
    description:
      - Directory of each copy, by the name of its server.
    type: dict
    required: true
  directory:
    description:
      - Directory of the backups, preferably a dedicated one. No other run may write to it at the same time.
      - Alternatively, a location in object storage (C(s3://BUCKET/PREFIX)); see O(s3).
    type: path
    required: true
  damaged:
    description:
      - Streams to save even if nats-server loads fewer messages than their files contain, in the form of O(streams).
    type: list
    elements: str
    default: []
  undeleted:
    description:
      - Streams to save although deleted messages are present again, in the form of O(streams). A server that crashed
        may not have written its last deletions to disk. If the index in the copy, or the store of another server,
        contains these deletions, the stream is refused with V(undeleted); otherwise RV(streams[].caveats) warns of the
        possibility.
    type: list
    elements: str
    default: []
  held:
    description:
      - Streams in the stores, as returned by M(natsops.jetstream.nats_store_copy) on their hosts. The task fails with
        V(incomplete) if one of these streams is missing from all O(copies), or ends at a lower sequence in every copy
        that contains it.
    type: list
    elements: dict
    default: []
  binary:
    description:
      - Path of the nats-server to run. Defaults to the nats-server found in E(PATH), C(/usr/sbin) or C(/usr/local/bin).
        The version of this nats-server must be the one that wrote the stores, the version of the cluster into which the
        streams will be restored, or a version in between.
    type: path
  work_directory:
    description:
      - Directory below which the server stores its data, in a subdirectory that only the module's user can read. The
        directory must have room for the largest stream.
      - Defaults to the parent of O(directory) or, with object storage, to the directory for temporary files.
    type: path
  verify:
    description:
      - How each archive is verified before it is accepted as a backup. The choices are explained in
        M(natsops.jetstream.nats_backup).
    type: str
    choices: [contents, records]
    default: contents
requirements:
  - nats-py >= 2.9
  - nats-server
notes:
  - "The following failures end the module before anything is saved: V(locked), V(invalid_option), V(incomplete),
    V(disk_full), and V(unsupported) for an encrypted store. V(damaged) means that a stream's files cannot be read, or
    that fewer messages were loaded than the files contain; see O(damaged). For V(undeleted), see O(undeleted)."
  - Memory streams are not saved, because they are not on disk.
seealso:
  - module: natsops.jetstream.nats_store_copy
  - module: natsops.jetstream.nats_restore
  - module: natsops.jetstream.nats_rescue
"""

EXAMPLES = r"""
- name: Save the streams of the two remaining servers of five
  natsops.jetstream.nats_store_backup:
    copies:
      n1-c1: /srv/rescue/n1-c1
      n2-c1: /srv/rescue/n2-c1
    directory: /srv/rescue/backup
    binary: /opt/nats-server/2.10.27/bin/nats-server
  delegate_to: localhost
"""

RETURN = r"""
streams:
  description: The streams, in the order in which they were saved.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: C(ACCOUNT/STREAM).
      type: str
      sample: APP/ORDERS
    account:
      description: Name of the account.
      type: str
    stream:
      description: Name of the stream.
      type: str
    server:
      description: The server whose copy is the source.
      type: str
      sample: n1-c1
    others:
      description: The last sequences in the copies of other servers.
      type: dict
      sample: {n2-c1: 1180}
    num_replicas:
      description: Number of replicas that the stream had.
      type: int
    messages:
      description: Number of messages loaded.
      type: int
    first_seq:
      description: The first sequence.
      type: int
    last_seq:
      description: The last sequence.
      type: int
    consumers:
      description: The consumers, each with C(name), C(ack_floor) (a sequence of the stream) and C(server), the server
        from whose copy the consumer was taken.
      type: list
      elements: dict
      sample: [{name: worker, ack_floor: 1180, server: n1-c1}]
    digest:
      description: SHA-256 of all messages. Null in check mode if the stream would be saved.
      type: str
    path:
      description: Directory of the backup. Null in check mode if the stream would be saved.
      type: str
      sample: /srv/rescue/backup/APP/ORDERS@20261123T020000.123456Z
    changed:
      description: Whether the stream was, or would be, saved.
      type: bool
    reason:
      description: Why the stream was saved.
      type: str
      sample: there is none yet
    caveats:
      description:
        - Missing messages (with O(damaged)) and deleted messages that are present again (with O(undeleted)) or that may
          be present again after a crash.
      type: list
      elements: str
    diff:
      description: Messages, sequences and consumers before and after the run.
      type: dict
lines:
  description: The results as human-readable lines.
  returned: success
  type: list
  elements: str
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
"""

from pathlib import Path
from typing import Any

from ..module_utils.backup.selection import SELECTION_SPEC
from ..module_utils.backup.target import WRITE_SPEC, misplaced_secrets, requested_store
from ..module_utils.backup.transfer import TRANSFER_SPEC, requested_pace
from ..module_utils.backup.verify import CONTENTS, RECORDS
from ..module_utils.collection_module import CollectionModule, run
from ..module_utils.module import fail, gc_paused, warn_of_caveats, without_connection
from ..module_utils.progress import PROGRESS_SPEC, Progress
from ..module_utils.rescue.offline_backup import StoreBackupRequest, save_copied_streams


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. A backup that fails ends the module with its failure. Raises NatsFailure."""
    params = module.params
    request = StoreBackupRequest(
        {str(server): str(copy) for server, copy in params["copies"].items()},
        requested_store(params),
        params["streams"],
        params["exclude"],
        params["damaged"],
        params["undeleted"],
        params["held"],
        params["binary"],
        Path(params["work_directory"]) if params["work_directory"] else None,
        params["verify"],
        requested_pace({**params, "consumers": True}),
    )
    with gc_paused():
        outcome = save_copied_streams(request, Progress(params["progress"], None), module.check_mode)
    warn_of_caveats(module, outcome.result["streams"], "name")
    if outcome.failure is not None:
        fail(module, outcome.failure, **outcome.result)
    return outcome.result


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "copies": {"type": "dict", "required": True},
            "directory": {"type": "path", "required": True},
            **SELECTION_SPEC,
            "damaged": {"type": "list", "elements": "str", "default": []},
            "undeleted": {"type": "list", "elements": "str", "default": []},
            "held": {"type": "list", "elements": "dict", "default": []},
            "binary": {"type": "path"},
            "work_directory": {"type": "path"},
            "verify": {"type": "str", "choices": [CONTENTS, RECORDS], "default": CONTENTS},
            **WRITE_SPEC,
            **TRANSFER_SPEC,
            **PROGRESS_SPEC,
        },
        supports_check_mode=True,
    )
    module.no_log_values.update(misplaced_secrets(module.params))
    run(module, without_connection, ensure)


if __name__ == "__main__":
    main()
