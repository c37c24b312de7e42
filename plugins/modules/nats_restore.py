#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_restore
short_description: Restore streams from a directory of backups
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Restores one stream, some, or all streams of accounts from the backups that M(natsops.jetstream.nats_backup) saved, as
    M(natsops.jetstream.nats_stream_restore) restores one.
  - Every archive is verified and everything that is in the way is seen before the first stream is created. When one
    stream cannot be restored, none is. A damaged backup fails its own stream only, after the others are restored.
  - Sixteen streams are restored at a time, each over its own connection, and one with O(rate_limit). Streams that copy
    others (mirrors, sources) come last. Each restored stream is compared with its backup.
  - A stream that exists is never written to. One that is just what was saved is left as it is.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_identity
  - natsops.jetstream.transfer
  - natsops.jetstream.progress
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Verifies the archives and what they would meet. The servers' limits and free servers show only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the configuration, messages, sequences and consumers that there would be.
  idempotent:
    support: full
options:
  directory:
    description:
      - Directory of the backups, on the host that runs the module.
      - Or a place in object storage, C(s3://BUCKET/PREFIX), see O(s3).
    type: path
    required: true
  streams:
    description:
      - What is restored, each as C(ACCOUNT/STREAM@time), C(ACCOUNT/STREAM), C(ACCOUNT) or C(*), with C(*) and C(?) for
        any characters and any one. An account is specified by name or, in operator mode, by public key, which wildcards
        match.
      - Of each stream that is the newest backup, with a time the newest one that was taken by then, such as
        C(APP/ORDERS@2026-11-23T02:00:00Z) or C(APP/ORDERS@20261123T020000.123456Z), as its directory is called. A day
        such as C(2026-11-23) means its end.
    type: list
    elements: str
    required: true
  at:
    description:
      - A time for those that have none of their own.
    type: str
  account:
    description:
      - Account to restore into, one of O(account_users), by default the one that each stream was saved from.
    type: str
  name:
    description:
      - Another name, for one stream. Archives of servers before 2.15 can be restored under their own name only.
    type: str
  subjects:
    description:
      - Other subjects, for one stream.
    type: list
    elements: str
  num_replicas:
    description:
      - Another number of replicas.
    type: int
  max_replicas:
    description:
      - The most replicas that a stream gets, such as the number of servers that are left. Streams with fewer keep theirs.
    type: int
  placement:
    description:
      - Another placement; an empty one removes it.
    type: dict
    suboptions:
      cluster:
        description: Name of the cluster.
        type: str
      tags:
        description: Tags that every server must have.
        type: list
        elements: str
  existing:
    description:
      - What is done about a stream that exists and is not what was saved. V(refuse) fails before anything is created,
        V(skip) leaves that stream as it is, for a run that continues after clients have gone on.
      - A stream that ends below its backup, as an interrupted restore leaves it, fails with V(unfinished) in either case.
    type: str
    choices: [refuse, skip]
    default: refuse
  consumers:
    description:
      - Whether consumers are restored too.
    type: bool
    default: true
  compare:
    description:
      - How each restored stream is compared. V(state) compares messages, sequences and ack floors as the servers report
        them. V(contents) also reads the stream back and compares the digest of all its messages, unless clients have
        changed it by then; it takes room for the archive in O(directory) meanwhile, and with object storage in the directory for
        temporary files.
    type: str
    choices: [state, contents]
    default: contents
  verify:
    description:
      - How archives are verified before anything is created, see M(natsops.jetstream.nats_stream_restore).
    type: str
    choices: [checksum, contents, records]
    default: checksum
  finish_timeout:
    description:
      - Seconds that the servers may take after the last byte of a stream.
    type: float
    default: 3600
  wait_timeout:
    description:
      - Seconds to wait until every replica of a stream is in step and every consumer is there.
    type: float
    default: 300
seealso:
  - module: natsops.jetstream.nats_backup
  - module: natsops.jetstream.nats_stream_restore
  - module: natsops.jetstream.nats_backup_info
"""

EXAMPLES = r"""
- name: Restore a stream as it was on a day
  natsops.jetstream.nats_restore:
    servers: [nats://n1.example.com:4222]
    account_users:
      - {account: APP, user: operator-APP, password: "{{ nats_operator_password }}"}
    directory: /srv/backup
    streams: [APP/ORDERS@2026-11-23]

- name: Show what restoring everything would do
  natsops.jetstream.nats_restore:
    directory: /srv/backup
    streams: ["*"]
  check_mode: true
"""

RETURN = r"""
streams:
  description: The streams, in the order in which they are restored.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: C(ACCOUNT/STREAM), where it is restored, with the identity of the account (in operator mode its public key).
      type: str
      sample: APP/ORDERS
    label:
      description: How the stream is displayed, with the account's name.
      type: str
      sample: APP/ORDERS
    account:
      description: Identity of the account, null for that of the task's own user.
      type: str
    stream:
      description: Name of the stream.
      type: str
    path:
      description: Directory of the backup.
      type: str
      sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
    taken:
      description: When the backup was begun.
      type: str
      sample: "2026-11-23T02:00:00.123456Z"
    changed:
      description: Whether it was, or would be, created.
      type: bool
    skipped:
      description: Whether it was left as it is, by O(existing=skip).
      type: bool
    messages:
      description: How many messages the backup has.
      type: int
    bytes:
      description: Bytes of the archive.
      type: int
    seconds:
      description: How long it took, where it was restored.
      type: float
    compared:
      description:
        - What the backup has and what the restored stream has of C(messages), C(first_seq), C(last_seq), C(gaps) and
          C(ack_floors), each as a pair, and C(digest), V(same) or V(not compared).
      type: dict
      sample: {messages: [10, 10], first_seq: [1, 1], last_seq: [12, 12], gaps: [2, 2], ack_floors: {w: [4, 4]}, digest: same}
    caveats:
      description: What the restored stream does not know or does again.
      type: list
      elements: str
    diff:
      description: What there would be.
      type: dict
lines:
  description: The same for people.
  returned: success
  type: list
  elements: str
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.restore_rules import Changes
from ansible_collections.natsops.jetstream.plugins.module_utils.module import (
    ACCOUNT_USERS_SPEC,
    fail,
    make_module,
    run_connected,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import require_name
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.backup_files import CHECKSUM, LEVELS
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.backup_target import READ_SPEC, store_of
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.restore_run import (
    COMPARISONS,
    EXISTING,
    READ_BACK,
    REFUSE,
    WantedRestores,
    restore_streams,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.stream_restore import WantedRestore
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.transfer import TRANSFER_SPEC, pace_of
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import PROGRESS_SPEC, Progress
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import counted_warnings
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import positive


def main() -> None:
    placement = {"cluster": {"type": "str"}, "tags": {"type": "list", "elements": "str"}}
    module = make_module(
        {
            "directory": {"type": "path", "required": True},
            "streams": {"type": "list", "elements": "str", "required": True},
            "at": {"type": "str"},
            "account": {"type": "str"},
            "name": {"type": "str"},
            "subjects": {"type": "list", "elements": "str"},
            "num_replicas": {"type": "int"},
            "max_replicas": {"type": "int"},
            "placement": {"type": "dict", "options": placement},
            "existing": {"type": "str", "choices": list(EXISTING), "default": REFUSE},
            "consumers": {"type": "bool", "default": True},
            "compare": {"type": "str", "choices": list(COMPARISONS), "default": READ_BACK},
            "verify": {"type": "str", "choices": list(LEVELS), "default": CHECKSUM},
            "finish_timeout": {"type": "float", "default": 3600.0},
            "wait_timeout": {"type": "float", "default": 300.0},
            **READ_SPEC,
            **TRANSFER_SPEC,
            **PROGRESS_SPEC,
            **ACCOUNT_USERS_SPEC,
        }
    )
    params = module.params

    def work(connections: Any) -> dict[str, Any]:
        if params["name"] is not None:
            require_name("stream", params["name"])
        changes = Changes(
            params["name"],
            params["subjects"],
            params["num_replicas"],
            params["placement"],
            params["consumers"],
            max_replicas=params["max_replicas"],
        )
        if params["max_replicas"] is not None and params["max_replicas"] < 1:
            raise NatsFailure("invalid_option", f"max_replicas: at least 1, not {params['max_replicas']}")
        wait_timeout = positive(params["wait_timeout"], "wait_timeout")
        wanted = WantedRestores(
            store_of(params),
            params["streams"],
            params["at"],
            params["account"],
            bool(connections.accounts),
            WantedRestore(changes, params["verify"], pace_of(params), wait_timeout),
            params["compare"],
            params["existing"],
        )
        outcome = restore_streams(connections, wanted, Progress(params["progress"], None), module.check_mode)
        found = [(row["label"], caveat) for row in outcome.result["streams"] for caveat in row["caveats"]]
        for warning in counted_warnings(found):
            module.warn(warning)
        if outcome.failure is not None:
            fail(module, outcome.failure, changed=outcome.result["changed"])
        return outcome.result

    run_connected(module, work)


if __name__ == "__main__":
    main()
