#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_host_lock
short_description: Take or give back a lock on a host
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Takes a named lock on the host, or gives it back. Whoever holds it on more than half of a cluster's hosts may operate the
    cluster; it needs no JetStream, which may be what is to be repaired.
  - A lock that somebody else holds is no failure, see RV(acquired) and RV(holder).
  - Runs on the managed host and needs no connection to NATS.
options:
  path:
    description: File of the lock. Its directory must exist; in C(/run) a lock ends with a reboot, as does what it stood for.
    type: path
    required: true
  owner:
    description: Who takes it. The same owner may take it again, which renews it.
    type: str
    required: true
  purpose:
    description: What it is taken for, to be shown to others.
    type: str
    default: ''
  ttl:
    description: Seconds after which the lock no longer counts, by the host's clock.
    type: int
    default: 3600
  break_foreign:
    description: Take or remove the lock although somebody else holds it.
    type: bool
    default: false
  state:
    description: V(present) takes it, V(absent) gives it back.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Can run in check mode and tells who would hold the lock.
    support: full
  diff_mode:
    description: Returns who held the lock and who does, when in diff mode.
    support: full
  idempotent:
    description: Whether a second run changes nothing.
    support: partial
    details:
      - Taking a lock again moves its expiry.
"""

EXAMPLES = r"""
- name: Take the lock of the cluster on this host
  natsops.jetstream.nats_host_lock:
    path: /run/lock/natsops-C1.json
    owner: "{{ lookup('ansible.builtin.env', 'USER') }}@{{ lookup('ansible.builtin.pipe', 'hostname') }}"
    purpose: rolling restart
    ttl: 1800
  become: true
  register: lock

- name: Give it back
  natsops.jetstream.nats_host_lock:
    path: /run/lock/natsops-C1.json
    owner: "{{ lookup('ansible.builtin.env', 'USER') }}@{{ lookup('ansible.builtin.pipe', 'hostname') }}"
    state: absent
  become: true
"""

RETURN = r"""
acquired:
  description: Whether O(owner) holds the lock now. In check mode, whether it would.
  type: bool
  returned: success
holder:
  description: Who holds the lock now, with C(owner), C(purpose), C(since) and C(expires) (epoch seconds); null for nobody.
  type: dict
  returned: success
  sample: {owner: ops@awx-1, purpose: rolling restart, since: 1795254000, expires: 1795255800}
broken:
  description: Whose lock was taken away with O(break_foreign), null otherwise.
  type: dict
  returned: success
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule

Holder = Optional[dict[str, Any]]


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open the file, so that no other process reads or writes the lock meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def read(descriptor: int, now: float) -> Holder:
    """Return who holds the lock; None when nobody does, its time is over, or the file is not a lock (cut off by a crash)."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        holder = json.loads(os.read(descriptor, 65536))
        return holder if holder["expires"] > now else None
    except (ValueError, KeyError, TypeError):
        return None


def write(descriptor: int, holder: Holder) -> None:
    """Write who holds the lock. The file stays when nobody does: whoever waits for it has it open."""
    os.ftruncate(descriptor, 0)
    if holder is not None:
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    os.fsync(descriptor)


def settle(params: dict[str, Any], held: Holder, now: float) -> Holder:
    """Return who holds the lock afterwards."""
    foreign = held is not None and held["owner"] != params["owner"]
    if foreign and not params["break_foreign"]:
        return held
    if params["state"] == "absent":
        return None
    since = held["since"] if held is not None and not foreign else int(now)
    return {
        "owner": params["owner"],
        "purpose": params["purpose"],
        "since": since,
        "expires": int(now) + params["ttl"],
    }


def lock(module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result."""
    params = module.params
    if module.check_mode and not os.path.exists(params["path"]):
        before: Holder = None
        after = settle(params, before, time.time())
    else:
        with opened(params["path"]) as descriptor:
            now = time.time()
            before = read(descriptor, now)
            after = settle(params, before, now)
            if before != after and not module.check_mode:
                write(descriptor, after)
    mine = after is not None and after["owner"] == params["owner"]
    foreign = before is not None and before["owner"] != params["owner"]
    result = {
        "changed": before != after,
        "acquired": mine,
        "holder": after,
        "broken": before if foreign and before != after else None,
    }
    if module._diff:  # pylint: disable=protected-access  # ansible-core offers no other way to ask
        result["diff"] = {"before": before or {}, "after": after or {}}
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "purpose": {"type": "str", "default": ""},
            "ttl": {"type": "int", "default": 3600},
            "break_foreign": {"type": "bool", "default": False},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    if module.params["ttl"] < 1:
        module.fail_json(msg=f"ttl: must be at least 1 second, not {module.params['ttl']}")
    try:
        module.exit_json(**lock(module))
    except OSError as error:
        module.fail_json(msg=f"the lock {module.params['path']} cannot be used: {error.strerror}")


if __name__ == "__main__":
    main()
