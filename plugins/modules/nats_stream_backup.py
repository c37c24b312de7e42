#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_backup
short_description: Save a stream with its consumers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Saves a stream, a key-value bucket or an object bucket with the servers' own snapshot function. Each backup has a
    separate directory, C(<directory>/<stream>@<time>), with the archive as sent by the servers (C(stream.tar.s2)) and
    C(backup.json), which contains the data that the archive lacks. C(nats stream restore) can read both files.
  - The archive is read back, which takes longer than the transfer, to determine its messages, their sequences and a
    digest. A backup is renamed into place only once it is complete. After a failure, such as a full disk, nothing is
    left behind.
  - Nothing is written if the newest backup is intact and the stream, its configuration and its consumers have not
    changed since that backup.
  - Servers before 2.15 omit consumers that have no replica on the stream's leader, such as a consumer with a single
    replica on another server. C(backup.json) contains the positions and configurations of all consumers, from which
    M(natsops.jetstream.nats_stream_restore) recreates them.
  - Archives are not encrypted, not even those of encrypted stores. Directories are created with mode 0700, files with
    mode 0600.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
    The minimum permissions are to publish to C($JS.API.STREAM.INFO.*), C($JS.API.STREAM.SNAPSHOT.*),
    C($JS.API.CONSUMER.LIST.*) and C($JS.SNAPSHOT.ACK.>), and to subscribe to the user's inbox.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_encryption
  - natsops.jetstream.transfer
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode, RV(bytes) is the size of the messages in the stream; a real archive is compressed.
  diff_mode:
    support: full
    details:
      - Shows the messages, sequences and consumers of the previous backup and of the new backup.
  idempotent:
    support: full
options:
  stream:
    description:
      - Name of the stream.
    type: str
    required: true
  directory:
    description:
      - Parent directory of the backup's directory, on the host that runs the module. Use a separate parent directory
        for each account.
      - Alternatively, a location in object storage (C(s3://BUCKET/PREFIX)); see O(s3).
    type: path
    required: true
  consumers:
    description:
      - Whether the consumers of the stream are saved as well.
    type: bool
    default: true
  verify:
    description:
      - How the archive is verified before it is accepted as a backup.
      - V(contents) reads the complete archive and verifies its structure, its sizes and the checksum of each chunk.
      - V(records) also verifies the checksum that a server before 2.15 added to each message when it was stored, at
        about 3 MB per second. From 2.15 on, servers verify this checksum themselves.
      - V(checksum) does not read the archive back; the restore reads it instead.
    type: str
    choices: [checksum, contents, records]
    default: contents
  force:
    description:
      - Whether to take a new backup even if nothing has changed.
    type: bool
    default: false
notes:
  - "Failures before anything is transferred are V(unsupported) (a memory stream before 2.15) and V(leaderless) (a
    consumer without a leader, whose position is unknown). Later failures are V(interrupted) (the server sent an error
    instead of the remaining data), V(idle), V(connection_lost), V(damaged) and V(write_failed)."
  - While a server before 2.15 writes a snapshot, messages of that stream cannot be deleted. Only one snapshot of a
    stream can be taken at a time.
seealso:
  - module: natsops.jetstream.nats_stream_restore
  - module: natsops.jetstream.nats_backup_info
"""

EXAMPLES = r"""
- name: Save a stream
  natsops.jetstream.nats_stream_backup:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    stream: ORDERS
    directory: /srv/backup/APP
  register: result

- name: Save it at night, slowly
  natsops.jetstream.nats_stream_backup:
    stream: ORDERS
    directory: /srv/backup/APP
    rate_limit: 50MB
"""

RETURN = r"""
path:
  description: Directory of the backup. Null in check mode if a new backup would be taken.
  returned: success
  type: str
  sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
reason:
  description: Why a new backup was taken. Empty if the newest backup is still up to date.
  returned: success
  type: str
  sample: messages were stored or removed since
bytes:
  description: Size of the archive in bytes. In check mode, the size of the messages in the stream.
  returned: success
  type: int
  sample: 1048576
caveats:
  description: Possible side effects of taking a snapshot with the servers' version of nats-server.
  returned: success
  type: list
  elements: str
  sample: []
backup:
  description: The content of C(backup.json). Null in check mode if a new backup would be taken.
  returned: success
  type: dict
  contains:
    stream:
      description: Name of the stream.
      type: str
    account:
      description: The value of O(account).
      type: str
    created:
      description: When the stream was created, which distinguishes streams of the same name.
      type: str
    taken:
      description: When the backup was started.
      type: str
      sample: "2026-11-23T02:00:00.123456Z"
    seconds:
      description: Seconds that the backup took, including reading it back.
      type: float
    server_version:
      description: Version of the server to which the module was connected.
      type: str
    config:
      description: The stream's configuration, with nats-server's own keys. Archives of 2.15 do not contain the
        configuration.
      type: dict
    state:
      description: The stream's state when the backup was started.
      type: dict
    archive:
      description: Name of the archive.
      type: str
    format:
      description: Format of the archive, V(tar) up to 2.14 and V(entries) from 2.15 on.
      type: str
    size:
      description: Size of the archive in bytes.
      type: int
    sha256:
      description: SHA-256 of the archive.
      type: str
    contents:
      description:
        - The contents of the archive. Null with O(verify=checksum).
        - RV(ignore:digest) is the SHA-256 over sequence, time, subject, headers and body of every message. The digest
          of a stream is the same in both archive formats.
      type: dict
      sample: {messages: 1000, bytes: 152000, largest: 100, first_seq: 1, last_seq: 1000, digest: 9228bdf7, exact: true}
    consumers:
      description: Configuration and position of each consumer, and whether the archive contains the consumer.
      type: list
      elements: dict
    changed_meanwhile:
      description: By how much the stream's messages and sequences changed during the backup.
      type: dict
      sample: {messages: 12, first_seq: 0, last_seq: 12, num_deleted: 0}
    caveats:
      description: The same list as RV(caveats).
      type: list
      elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.stream_backup import StreamBackupRequest, back_up
from ..module_utils.backup.target import WRITE_SPEC, misplaced_secrets, requested_store
from ..module_utils.backup.transfer import TRANSFER_SPEC, requested_pace
from ..module_utils.backup.verify import CONTENTS, LEVELS
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.jetstream_api import require_name


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    params = module.params
    stream = require_name("stream", params["stream"])
    request = StreamBackupRequest(
        stream, requested_store(params), params["verify"], requested_pace(params), params["force"]
    )
    client = connections.client(params["account"])
    result = back_up(client, connections.account(params["account"]), request, module.check_mode)
    for caveat in result["caveats"]:
        module.warn(f"stream {stream}: {caveat}")
    return result


def main() -> None:
    module = make_module(
        {
            "stream": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "consumers": {"type": "bool", "default": True},
            "verify": {"type": "str", "choices": list(LEVELS), "default": CONTENTS},
            "force": {"type": "bool", "default": False},
            **WRITE_SPEC,
            **TRANSFER_SPEC,
            **ACCOUNT_SPEC,
        }
    )
    module.no_log_values.update(misplaced_secrets(module.params))
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
