#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_host_lock
short_description: Acquire or release a lock on a host
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Acquires a lock on the host for this run of Ansible, or releases it. A run that holds the lock on more than half
    of a cluster's hosts may operate the cluster. The lock does not depend on JetStream, which may itself be broken.
  - The task does not fail if another owner holds the lock; see RV(acquired) and RV(holder). A lock is taken over if it
    was left behind by a process on this controller that has ended, or by an earlier run with the same O(name).
  - Runs on the managed host and needs no connection to NATS. The identity of the owner is read from C(/proc) on the
    controller.
  - Only the roles of this collection need this module; its options may change in any release.
options:
  path:
    description:
      - Lock file. Its directory must exist. In C(/run), the lock disappears on reboot, together with the operation
        that it protected.
      - Required unless O(state=held).
    type: path
  name:
    description:
      - Name of the scheduler that starts this operation and never starts it twice at the same time, such as a job
        template of AWX. A lock under the same name counts as left behind by a run that has ended, unless the process
        that holds the lock is known to be running.
    type: str
    default: ''
  purpose:
    description: Reason for the lock, shown to others.
    type: str
    default: ''
  resume:
    description: Variable with which the same command resumes this run, shown to others if the run has ended.
    type: str
    default: ''
  ttl:
    description: Seconds after which the lock expires, by the host's clock.
    type: int
    default: 3600
  break_foreign:
    description: Take or remove the lock even if another owner holds it.
    type: bool
    default: false
  owner:
    description:
      - Owner of the lock, with the keys C(name), C(user), C(controller), C(boot), C(pid_namespace), C(pid) and
        C(started). Defaults to this run. If the same owner acquires the lock again, the lock is renewed.
    type: dict
  take_over_from:
    description: An owner whose run is known to have ended. Defaults to an owner whose process has ended on this
      controller.
    type: raw
  maintenance:
    description:
      - File that marks the host as in maintenance, as in M(natsops.jetstream.nats_server_host_info). The module only
        reads this file, so no separate task is needed to find the hosts in maintenance.
    type: path
  state:
    description:
      - V(present) acquires the lock, V(absent) releases it.
      - V(held) does not contact any host. The task fails unless this run holds the lock on more than half of
        O(members) according to O(locks); the error message names the current owner, its purpose and the expiry.
    type: str
    choices: [present, absent, held]
    default: present
  locks:
    description:
      - Results of this module, each with the name of its host as C(item). Unreachable hosts count as not locked. If a
        host has several results, the latest one is used.
    type: list
    elements: dict
    default: []
  members:
    description: The hosts of the cluster. Required with O(state=held).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Can run in check mode, and returns who would hold the lock.
    support: full
  diff_mode:
    description: Returns the old and the new owner of the lock, in diff mode.
    support: full
  idempotent:
    description: Whether a second run changes nothing.
    support: partial
    details:
      - Acquiring a lock again extends it.
"""

EXAMPLES = r"""
- name: Take the lock of the cluster on this host
  natsops.jetstream.nats_host_lock:
    path: /run/lock/natsops-C1.json
    purpose: rolling restart
    ttl: 1800
  become: true
  register: lock

- name: Take the lock on all hosts of a cluster
  natsops.jetstream.nats_host_lock:
    path: /run/lock/natsops-C1.json
  become: true
  delegate_to: "{{ item }}"
  loop: "{{ groups['nats'] }}"
  register: locks
  failed_when: false
  run_once: true

- name: Refuse a second operation at the same time
  natsops.jetstream.nats_host_lock:
    state: held
    locks: "{{ locks.results }}"
    members: "{{ groups['nats'] }}"
  run_once: true

- name: Release the lock
  natsops.jetstream.nats_host_lock:
    path: /run/lock/natsops-C1.json
    state: absent
  become: true
"""

RETURN = r"""
acquired:
  description: Whether this run, or O(owner), holds the lock now. In check mode, whether this run or O(owner) would hold
    the lock.
  type: bool
  returned: success
hosts:
  description: The O(members) on which this run holds the lock.
  type: list
  elements: str
  returned: when state is held
  sample: [n1, n2, n3]
holder:
  description: The current holder of the lock, with C(owner), C(purpose), C(since) and C(expires) (epoch seconds).
    Null if the lock is free.
  type: dict
  returned: success
  sample:
    owner:
      name: ""
      user: ops
      controller: ctl-1
      boot: 2c1f9f2e-8a1b-4c55-9d07-5a0f6a6d9b11
      pid_namespace: "pid:[4026531836]"
      pid: 4711
      started: 83511
    purpose: rolling restart
    since: 1795254000
    expires: 1795255800
broken:
  description: The former holder, if its lock was taken over because of O(break_foreign) or because the holder had
    ended. Null otherwise.
  type: dict
  returned: success
maintenance:
  description:
    - Who took the host out of service, with C(server), C(by), C(since) and C(until) (epoch seconds), C(reason), and
      C(held), which is true if the server is prevented from starting. Null if the host is not in maintenance, or if
      O(maintenance) is not set.
  type: dict
  returned: success
  sample:
    server: n3-c1
    by: ops@ctl-1
    since: 1795529600.0
    until: 1795544000.0
    reason: new disk
    held: true
valid_until:
  description: When an acquired lock expires, by the controller's clock (epoch seconds).
  type: float
  returned: when the host could be reached
  sample: 1795255799.6
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.observation import read_mark
from ..module_utils.roll.lock_rules import Holder, LockRequest, resolve_holder


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open the file and lock it against other processes until the context ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def read_holder(descriptor: int, now: float) -> Holder:
    """Return the holder; None when the lock is free, has expired, or the file is truncated after a crash."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        holder = json.loads(os.read(descriptor, 65536))
        return holder if holder["expires"] > now else None
    except (ValueError, KeyError, TypeError):
        return None


def write(descriptor: int, holder: Holder) -> None:
    """Write the holder. The file is never deleted, because waiting processes have it open."""
    os.ftruncate(descriptor, 0)
    if holder is not None:
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    os.fsync(descriptor)


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result."""
    params = module.params
    request = LockRequest(
        owner=params["owner"],
        purpose=params["purpose"],
        resume=params["resume"],
        ttl=params["ttl"],
        release=params["state"] == "absent",
        break_foreign=params["break_foreign"],
        take_over_from=params["take_over_from"],
    )
    if module.check_mode and not os.path.exists(params["path"]):
        before: Holder = None
        after = resolve_holder(before, request, time.time())
    else:
        with opened(params["path"]) as descriptor:
            now = time.time()
            before = read_holder(descriptor, now)
            after = resolve_holder(before, request, now)
            if before != after and not module.check_mode:
                write(descriptor, after)
    mine = after is not None and after["owner"] == params["owner"]
    foreign = before is not None and before["owner"] != params["owner"]
    result = {
        "changed": before != after,
        "acquired": mine,
        "holder": after,
        "broken": before if foreign and before != after else None,
        "maintenance": read_mark(params["maintenance"]),
    }
    if module._diff:  # pylint: disable=protected-access  # ansible-core offers no other way to read it
        result["diff"] = {"before": before or {}, "after": after or {}}
    return result


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "path": {"type": "path"},
            "name": {"type": "str", "default": ""},
            "owner": {"type": "dict"},
            "take_over_from": {"type": "raw"},
            "purpose": {"type": "str", "default": ""},
            "resume": {"type": "str", "default": ""},
            "ttl": {"type": "int", "default": 3600},
            "break_foreign": {"type": "bool", "default": False},
            "maintenance": {"type": "path"},
            "state": {"type": "str", "choices": ["present", "absent", "held"], "default": "present"},
            "locks": {"type": "list", "elements": "dict", "default": []},
            "members": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "present", ["path"]), ("state", "absent", ["path"]), ("state", "held", ["members"])],
        supports_check_mode=True,
    )
    if not module.params["owner"]:
        module.fail_json(msg="owner: missing, because the module was run without its action plugin, which sets it")
    if module.params["ttl"] < 1:
        module.fail_json(msg=f"ttl: must be at least 1 second, not {module.params['ttl']}")
    frame = failing_on(
        OSError, message=lambda error: f"the lock {module.params['path']} cannot be used: {error.strerror}"
    )
    run(module, frame, ensure)


if __name__ == "__main__":
    main()
