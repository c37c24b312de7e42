#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_restore
short_description: Restore a stream with its consumers from a backup
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Restores a backup of M(natsops.jetstream.nats_stream_backup) or C(nats stream backup), under the same or a
    different name, with different subjects, replicas or placement, into any account or cluster.
  - The archive is verified first. The restore is refused before anything is created if the archive is truncated,
    altered, from a different backup or not readable by the servers, or if an existing stream has the same name or
    subjects.
  - Consumers are restored at their ack floors. Consumers that the archive lacks are recreated at their ack floors, with
    a delivery policy by start sequence if they had acknowledged anything. A consumer with more replicas than its stream
    gets as many as the stream, because a server would otherwise refuse the complete archive.
  - The module waits until every replica is in step and every durable consumer exists, and compares messages, sequences
    and ack floors with the backup.
  - After a failed restore, the module removes everything that was created, because servers leave a partial stream
    behind. On 2.15 and later, such a stream accepts messages.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
    The user must be allowed to publish to C($JS.API.STREAM.NAMES), C($JS.API.STREAM.{INFO,RESTORE,DELETE}.*),
    C($JS.API.CONSUMER.{LIST,INFO,CREATE}.>) and C($JS.SNAPSHOT.RESTORE.>), and to subscribe to the user's inbox.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_identity
  - natsops.jetstream.transfer
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Verifies the archive and checks for conflicts. Limits and available servers are checked only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the configuration, messages, sequences and consumers after the restore.
  idempotent:
    support: full
    details:
      - The module never restores into an existing stream. A stream that is identical to the backup remains unchanged,
        so an interrupted run over many streams can be repeated. Any other existing stream makes the module fail with
        V(exists).
options:
  path:
    description:
      - Directory of the backup, on the host that runs the module.
      - Alternatively, a location in object storage (C(s3://BUCKET/PREFIX)); see O(s3).
    type: path
    required: true
  stream:
    description:
      - A different name for the stream. Archives from servers before 2.15 can only be restored under their original
        name.
    type: str
  subjects:
    description:
      - Subjects to use instead of the original ones, for example to restore a copy next to the existing stream. They
        apply to new messages only; the restored messages keep their subjects.
    type: list
    elements: str
  num_replicas:
    description:
      - Number of replicas to use instead of the original number.
    type: int
  placement:
    description:
      - Placement to use instead of the original one; an empty dictionary removes the placement.
    type: dict
    suboptions:
      cluster:
        description: Name of the cluster.
        type: str
      tags:
        description: Tags that every server must have.
        type: list
        elements: str
  consumers:
    description:
      - Whether the consumers of the stream are restored as well.
    type: bool
    default: true
  verify:
    description:
      - How the archive is verified before anything is created.
      - V(checksum) compares the size and SHA-256 of the archive with those recorded in the backup. An archive that has
        never been read back is read, as with V(contents).
      - V(contents) reads the complete archive, and V(records) also verifies the checksum of each message; see
        M(natsops.jetstream.nats_stream_backup).
    type: str
    choices: [checksum, contents, records]
    default: checksum
  finish_timeout:
    description:
      - Seconds that the servers may take to finish the restore after receiving the last byte. Servers before 2.12.15
        and 2.14.5 do not start restoring until they have received this byte.
    type: float
    default: 3600
  wait_timeout:
    description:
      - Seconds to wait until every replica is in step, every consumer exists, recreated consumers start at their
        positions, and all of them report their pending messages. After a failure, seconds to wait until the partially
        restored stream has been removed.
    type: float
    default: 300
notes:
  - "Failures before anything is created are V(damaged), V(exists), V(overlap), V(unfinished) (a stream of that name
    ends at a lower sequence than the backup, as after an interrupted restore) and V(unsupported). V(incomplete) and
    V(not_seen) mean that the stream exists; the message lists its missing parts."
  - On 2.15 and later, a restored stream no longer has the message ids of its duplicate window, and messages that were
    delivered but not acknowledged are delivered again. RV(caveats) lists both effects.
seealso:
  - module: natsops.jetstream.nats_stream_backup
  - module: natsops.jetstream.nats_backup_info
"""

EXAMPLES = r"""
- name: Restore a stream
  natsops.jetstream.nats_stream_restore:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    path: /srv/backup/APP/ORDERS@20261123T020000.123456Z

- name: Restore a copy next to the stream, to inspect it
  natsops.jetstream.nats_stream_restore:
    path: /srv/backup/APP/ORDERS@20261123T020000.123456Z
    stream: ORDERS_LAST_NIGHT
    subjects: [last-night.>]
    num_replicas: 1
    consumers: false
"""

RETURN = r"""
stream:
  description: Name of the restored stream.
  returned: success
  type: str
  sample: ORDERS
bytes:
  description: Number of bytes of the archive that were, or would be, sent to the server.
  returned: success
  type: int
  sample: 1048576
messages:
  description: Number of messages in the backup.
  returned: success
  type: int
  sample: 1000
first_seq:
  description: First sequence of the stream in the backup.
  returned: success
  type: int
  sample: 1
last_seq:
  description: Last sequence of the stream in the backup.
  returned: success
  type: int
  sample: 1000
consumers:
  description: Names of the consumers in the backup.
  returned: success
  type: list
  elements: str
  sample: [billing, shipping]
recreated:
  description: Consumers that the archive lacks and that were, or would be, created at their ack floors.
  returned: success
  type: list
  elements: str
  sample: [billing]
fewer_replicas:
  description: Consumers whose number of replicas is reduced to that of the stream.
  returned: success
  type: list
  elements: str
  sample: []
caveats:
  description: Information that the restored stream has lost, and deliveries that it repeats.
  returned: success
  type: list
  elements: str
  sample: ["messages that were delivered but not acknowledged are delivered again: billing (6)"]
state:
  description: State of the stream as reported by the servers after the restore. Null in check mode.
  returned: success
  type: dict
  sample: {messages: 1000, bytes: 152000, first_seq: 1, last_seq: 1000, consumer_count: 2}
seconds:
  description: Seconds that the restore took.
  returned: success
  type: float
  sample: 2.5
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.files import read_backup
from ..module_utils.backup.restore_rules import RestoreChanges
from ..module_utils.backup.stream_restore import StreamRestoreRequest, require_replicas, restore
from ..module_utils.backup.target import READ_SPEC, requested_store
from ..module_utils.backup.transfer import TRANSFER_SPEC, requested_pace
from ..module_utils.backup.verify import CHECKSUM, LEVELS
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.jetstream_api import require_name
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    params = module.params
    if params["stream"] is not None:
        require_name("stream", params["stream"])
    own = ("stream", "subjects", "num_replicas", "placement", "consumers")
    changes = RestoreChanges(**{name: params[name] for name in own})
    require_replicas(changes)
    request = StreamRestoreRequest(
        changes, params["verify"], requested_pace(params), positive(params["wait_timeout"], "wait_timeout")
    )
    backup = read_backup(requested_store(params, "path"))
    client = connections.client(params["account"])
    result = restore(client, connections.account(params["account"]), backup, request, module.check_mode)
    for caveat in result["caveats"]:
        module.warn(f"stream {result['stream']}: {caveat}")
    return result


def main() -> None:
    placement = {"cluster": {"type": "str"}, "tags": {"type": "list", "elements": "str"}}
    module = make_module(
        {
            "path": {"type": "path", "required": True},
            "stream": {"type": "str"},
            "subjects": {"type": "list", "elements": "str"},
            "num_replicas": {"type": "int"},
            "placement": {"type": "dict", "options": placement},
            "consumers": {"type": "bool", "default": True},
            "verify": {"type": "str", "choices": list(LEVELS), "default": CHECKSUM},
            "finish_timeout": {"type": "float", "default": 3600.0},
            "wait_timeout": {"type": "float", "default": 300.0},
            **READ_SPEC,
            **TRANSFER_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
