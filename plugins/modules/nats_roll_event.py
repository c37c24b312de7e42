#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_roll_event
short_description: Write an event of a running operation to a journal, and publish it
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Appends one line of JSON to the file O(journal), and publishes the same line to the NATS subjects O(subjects).
    Without either option, the module does nothing.
  - The task fails if the journal cannot be written. If an event cannot be published, the module only issues a warning,
    so the roll continues.
  - Several processes may write to the same journal. A line that was cut off by a crash does not damage the next one.
  - Any user of any account can publish. Subscribers in that user's account receive the events.
  - Only the roles of this collection need this module; its options may change in any release.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
options:
  event:
    description:
      - The event, in lower case, such as V(run_started), V(batch_started), V(waiting), V(batch_done),
        V(batch_failed), V(run_done) or V(run_failed).
    type: str
    required: true
  run:
    description:
      - Id of the run to which the event belongs. Defaults to a new id, composed of O(cluster) and the time.
    type: str
  cluster:
    description:
      - Name of the cluster on which the operation runs.
    type: str
    required: true
  batch:
    description:
      - Number of the batch, from 1.
    type: int
  of:
    description:
      - Number of batches of the run.
    type: int
  hosts:
    description:
      - Hosts or servers affected by the event.
    type: list
    elements: str
  steps:
    description:
      - Seconds that each step took, by the name of the step.
    type: dict
  reason:
    description:
      - Human-readable reason for the event.
    type: str
  data:
    description:
      - Any further data. The connection's secrets are masked in this data; it must not contain any other secrets.
    type: dict
  journal:
    description:
      - File to which the line is appended, on the host where the module runs, usually the controller. The file is
        created with mode C(0640), its directories with mode C(0750).
    type: path
  subjects:
    description:
      - Subjects to which the event is published, without wildcards. Subjects that begin with C($) belong to the
        servers and are refused.
    type: list
    elements: str
    default: []
  publish_timeout:
    description:
      - Maximum total number of seconds for connecting, divided equally among O(servers).
    type: float
    default: 2
attributes:
  check_mode:
    support: full
    details:
      - Nothing is written or published.
  diff_mode:
    support: full
    details:
      - Shows the line to be written.
  idempotent:
    support: none
    details:
      - Each run writes a separate event.
seealso:
  - module: natsops.jetstream.nats_roll_plan
"""

EXAMPLES = r"""
- name: Note that the second of five batches is done
  natsops.jetstream.nats_roll_event:
    event: batch_done
    run: 20261121T150405-ops
    cluster: C1
    batch: 2
    of: 5
    hosts: [n2-c1]
    steps: {gate: 0.4, drain: 3.1, stop: 1.3, change: 0.2, start: 0.9, catch_up: 4.0, settle: 10.2}
    journal: ~/natsops/C1.jsonl
    subjects: [ops.rolls.C1]
    servers: [nats://n1.example.com:4222, nats://n3.example.com:4222]
    user: ops
    password: "{{ nats_ops_password }}"
  delegate_to: localhost
"""

RETURN = r"""
event:
  description:
    - The event as written to the journal. Keys without a value are omitted.
  returned: success
  type: dict
  sample:
    version: 1
    time: "2026-11-21T15:04:05.123Z"
    run: 20261121T150405-ops
    cluster: C1
    event: batch_done
    batch: 2
    of: 5
    hosts: [n2-c1]
    steps: {drain: 3.1, stop: 1.3, start: 0.9}
  contains:
    version:
      description: Version of the schema. The version changes if the meaning of a key changes, but not if keys are
        added.
      returned: always
      type: int
      sample: 1
    time:
      description: Time of the event, in RFC 3339, UTC, with milliseconds.
      returned: always
      type: str
      sample: "2026-11-21T15:04:05.123Z"
    run:
      description: The value of O(run).
      returned: always
      type: str
    cluster:
      description: The value of O(cluster).
      returned: always
      type: str
    event:
      description: The value of O(event).
      returned: always
      type: str
    batch:
      description: The value of O(batch).
      returned: when given
      type: int
    of:
      description: The value of O(of).
      returned: when given
      type: int
    hosts:
      description: The value of O(hosts).
      returned: when given
      type: list
      elements: str
    steps:
      description: The value of O(steps), in seconds rounded to three decimal places.
      returned: when given
      type: dict
    reason:
      description: The value of O(reason).
      returned: when given
      type: str
    data:
      description: The value of O(data).
      returned: when given
      type: dict
published:
  description: The subjects for which a server accepted the message.
  returned: success
  type: list
  elements: str
  sample: [ops.rolls.C1]
unpublished:
  description: Reasons why the event could not be published, each with the keys of RV(ignore:failure). The module also
    issues each of them as a warning.
  returned: success
  type: list
  elements: dict
  sample: []
"""

import fcntl
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.parameters import remove_values

from ..module_utils.collection_module import run
from ..module_utils.module import known_secrets, make_module, resolve_connection, without_connection
from ..module_utils.nats.client import Call, Client, MissingLibrary, NatsFailure
from ..module_utils.waiting import positive

#: Version of the events' schema.
VERSION = 1

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SUBJECT = re.compile(r"[^\s.*>$][^\s.*>]*(\.[^\s.*>]+)*")


def make_event(params: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the event. Raises NatsFailure invalid_option for an invalid name, number or duration."""
    if not _NAME.fullmatch(params["event"]):
        raise NatsFailure(
            "invalid_option", f"event: must be a lower-case word such as batch_done, not {params['event']!r}"
        )
    for option in ("batch", "of"):
        if params[option] is not None and params[option] < 0:
            raise NatsFailure("invalid_option", f"{option}: must not be negative, not {params[option]}")
    event: dict[str, Any] = {
        "version": VERSION,
        "time": now.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": params["run"] or f"{params['cluster']}-{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}",
        "cluster": params["cluster"],
        "event": params["event"],
    }
    given = {key: params[key] for key in ("batch", "of", "hosts", "steps", "reason", "data") if params[key] is not None}
    if "steps" in given:
        given["steps"] = {name: _seconds(name, value) for name, value in given["steps"].items()}
    return {**event, **given}


def _seconds(step: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise NatsFailure("invalid_option", f"steps.{step}: must be a number of seconds, not {value!r}")
    return round(seconds, 3)


def check_subjects(subjects: Sequence[str]) -> None:
    """Raise NatsFailure invalid_option if a subject has wildcards or is invalid, or belongs to the servers."""
    for subject in subjects:
        if subject.startswith("$"):
            raise NatsFailure(
                "invalid_option", f"subjects: {subject!r} belongs to the servers: use one that does not begin with $"
            )
        if not _SUBJECT.fullmatch(subject):
            rule = "it must have no wildcards, no spaces and no empty parts"
            raise NatsFailure("invalid_option", f"subjects: {subject!r} is not a valid subject for publishing: {rule}")


def append(path: str, line: bytes) -> None:
    """Append a complete line, even after one that was cut off, and return once it is synced to disk. Raises OSError."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o750, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        rest = line + b"\n"
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            rest = b"\n" + rest
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(module: AnsibleModule, line: bytes) -> list[NatsFailure | None]:
    """Return, for each subject, None or the reason why publishing to it failed."""
    subjects = module.params["subjects"]
    calls = [Call(subject, line) for subject in subjects]
    try:
        options = resolve_connection(module.params, os.environ)
        share = module.params["publish_timeout"] / len(options.servers)
        with Client(replace(options, timeout=share)) as client:
            return client.publish(calls)
    except MissingLibrary as missing:
        failure = NatsFailure("missing_library", missing_required_lib(missing.library))
    except NatsFailure as caught:
        failure = caught
    return [failure for _subject in subjects]


def mask_secrets(module: AnsibleModule) -> None:
    """Mask the connection's secrets, whether they come from options, contexts or the environment. Does nothing if the
    connection is invalid."""
    try:
        module.no_log_values.update(known_secrets(resolve_connection(module.params, os.environ)))
    except NatsFailure:
        pass


def ensure(module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure for invalid options and for a journal that cannot be written."""
    params = module.params
    positive(params["publish_timeout"], "publish_timeout")
    check_subjects(params["subjects"])
    mask_secrets(module)
    event: dict[str, Any] = remove_values(make_event(params, datetime.now(timezone.utc)), module.no_log_values)
    line = json.dumps(event, ensure_ascii=False)
    outcomes: list[NatsFailure | None] = []
    if not module.check_mode:
        if params["journal"]:
            try:
                append(params["journal"], line.encode())
            except OSError as error:
                raise NatsFailure(
                    "journal", f"the journal {params['journal']} cannot be written: {error.strerror}"
                ) from error
        if params["subjects"]:
            outcomes = publish(module, line.encode())
    failed = [(subject, outcome) for subject, outcome in zip(params["subjects"], outcomes) if outcome is not None]
    for subject, failure in failed:
        module.warn(f"the event {event['event']} could not be published to {subject}: {failure.description}")
    published = [subject for subject, outcome in zip(params["subjects"], outcomes) if outcome is None]
    wanted = bool(params["journal"] or params["subjects"])
    result: dict[str, Any] = {
        "changed": wanted if module.check_mode else bool(params["journal"] or published),
        "event": event,
        "published": published,
        "unpublished": [{**failure.as_dict(), "subject": subject} for subject, failure in failed],
    }
    if module._diff and wanted:  # pylint: disable=protected-access  # ansible-core offers no other way to read it
        result["diff"] = {"before": "", "after": f"{line}\n"}
    return result


def main() -> None:
    module = make_module(
        {
            "event": {"type": "str", "required": True},
            "run": {"type": "str"},
            "cluster": {"type": "str", "required": True},
            "batch": {"type": "int"},
            "of": {"type": "int"},
            "hosts": {"type": "list", "elements": "str"},
            "steps": {"type": "dict"},
            "reason": {"type": "str"},
            "data": {"type": "dict"},
            "journal": {"type": "path"},
            "subjects": {"type": "list", "elements": "str", "default": []},
            "publish_timeout": {"type": "float", "default": 2.0},
        }
    )
    run(module, without_connection, ensure)


if __name__ == "__main__":
    main()
