# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_tuning
short_description: Tune a host for a JetStream store on SSDs, or undo the tuning
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Changes settings for a store on SSDs, both in the running kernel and for the next boot, and records each previous
    value on the host.
  - With O(undo), restores the previous values. A setting that no longer has the value set by this module remains
    unchanged.
  - Runs on the managed host and needs no connection to NATS.
options:
  apply:
    description: Parts of the host to tune.
    type: list
    elements: str
    choices: &parts [mount_options, scheduler, sysctl, transparent_hugepages, time_sync]
    default: []
  undo:
    description: Parts of the host whose previous settings are restored.
    type: list
    elements: str
    choices: *parts
    default: []
  store:
    description: Directory of the JetStream store. The mount of this directory and the underlying disks are tuned.
    type: path
    default: /
  sysctls:
    description: Kernel parameters and their values. A parameter that is no longer listed is reset to its previous
      value.
    type: dict
    default: {}
  service:
    description: Name of the service. The files for the next boot are named after it.
    type: str
    default: nats-server
  record:
    description: File in which the previous values are recorded.
    type: path
    default: /etc/nats-server/tuning.json
attributes:
  check_mode:
    description: Can run in check mode and returns the changes that it would make.
    support: full
  diff_mode:
    description: Shows each setting with its previous and its new value.
    support: full
"""

EXAMPLES = r"""
- name: Do not let nats-server's memory be swapped
  natsops.jetstream.nats_server_tuning:
    apply: [sysctl]
    sysctls:
      vm.swappiness: 1
  become: true

- name: Restore the previous values
  natsops.jetstream.nats_server_tuning:
    undo: [sysctl]
  become: true
"""

RETURN = r"""
changes:
  description: The changed settings.
  type: list
  elements: dict
  returned: always
  contains:
    part:
      description: An element of O(apply) or O(undo).
      type: str
    setting:
      description: The kernel parameter, disk, mount point, service or file.
      type: str
    before:
      description: The value before the change, or V(absent). If the setting is a file, V(present) or V(absent).
      type: str
    after:
      description: The value after the change, or V(absent). If the setting is a file, V(present) or V(absent).
      type: str
  sample: [{part: sysctl, setting: vm.swappiness, before: "60", after: "1"}]
findings:
  description: Settings that could not be changed, for instance in a container.
  type: list
  elements: str
  returned: always
  sample: ["sysctl: vm.swappiness is 60, expected 1; the role cannot set it"]
"""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.files import Directory, FilesError, ManagedFile, replace_all
from ..module_utils.host.system import has_systemd
from ..module_utils.host.tuning_plan import (
    TunedHost,
    TuningStep,
    apply_steps,
    findings_left,
    is_settable,
    new_record,
    undo_steps,
)
from ..module_utils.host.tunings import ELSEWHERE, PARTS


def read_record(path: str) -> dict[str, Any]:
    """Return the record of the host; empty if there is none. Raises FilesError if the record cannot be read."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FilesError(f"{path}, which holds the previous values, cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise FilesError(f"{path}, which holds the previous values, is not a JSON object")
    return record


def carry_out(module: CollectionModule, host: TunedHost, step: TuningStep) -> str:
    """Change a switch or run a command; in check mode, only read the permissions. Returns the reason for a failure, or
    an empty string."""
    if module.check_mode:
        return "" if is_settable(host, step) else "the file is read-only"
    if step.switch:
        try:
            Path(step.switch).write_text(step.after or "", encoding="utf-8")
        except OSError as error:
            return error.strerror or str(error)
    if step.command:
        status, out, err = module.run_command(list(step.command))
        return (err or out).strip() or f"exit status {status}" if status else ""
    return ""


def desired_file(step: TuningStep) -> ManagedFile:
    """Return the desired file of a step. An existing file keeps its permissions."""
    mode = stat.S_IMODE(os.stat(step.file).st_mode) if os.path.exists(step.file) else 0o644
    return ManagedFile(step.file, mode, "root", "root", None if step.after is None else step.after.encode())


def change(step: TuningStep) -> dict[str, Any]:
    """Return an element of `changes`."""
    before, after = step.before, step.after
    if step.file:
        before, after = (None if text is None else "present" for text in (before, after))
    return {
        "part": step.part,
        "setting": step.setting,
        "before": "absent" if before is None else before,
        "after": "absent" if after is None else after,
    }


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the values of the module. Raises FilesError."""
    given = module.params
    host = TunedHost(
        root=Path("/"),
        store=given["store"],
        sysctls={name: str(value) for name, value in given["sysctls"].items()},
        service=given["service"],
        systemd=has_systemd(),
        run_command=module.run_command,
        record=read_record(given["record"]),
    )
    steps = undo_steps(host, given["undo"]) + apply_steps(host, given["apply"])
    done, findings = [], findings_left(host, given["apply"])
    if not module.check_mode:
        # Write the record before the first change, so the previous values survive if the run is killed.
        write_record(given["record"], host.record, new_record(host, steps, []))
        write_files([desired_file(step) for step in steps if step.file])
    for step in steps:
        failure = carry_out(module, host, step)
        if failure:
            findings.append(f"{step.finding}{ELSEWHERE}: {failure}")
        else:
            done.append(step)
    if not module.check_mode:
        write_record(given["record"], host.record, new_record(host, done, given["undo"]))
    changes = [change(step) for step in done]
    return {
        "changed": bool(changes),
        "changes": changes,
        "findings": findings,
        "diff": {side: "".join(f"{one['setting']} = {one[side]}\n" for one in changes) for side in ("before", "after")},
    }


def write_record(path: str, before: Mapping[str, Any], record: dict[str, Any]) -> None:
    """Replace the record if it differs; an empty record is removed. Raises FilesError."""
    if record or before:
        content = (json.dumps(record, indent=1, sort_keys=True) + "\n").encode() if record else None
        write_files([ManagedFile(path, 0o644, "root", "root", content)])


def write_files(files: list[ManagedFile]) -> None:
    """Replace the files that differ, and create missing directories. Raises FilesError."""
    for file in files:
        folder = Directory(os.path.dirname(file.path), 0o755)
        if file.content is not None and folder.missing():
            folder.make()
    replace_all([file for file in files if file.differs()])


def main() -> None:
    """Run the module."""
    part = {"type": "list", "elements": "str", "choices": list(PARTS), "default": []}
    module = CollectionModule(
        argument_spec={
            "apply": part,
            "undo": part,
            "store": {"type": "path", "default": "/"},
            "sysctls": {"type": "dict", "default": {}},
            "service": {"type": "str", "default": "nats-server"},
            "record": {"type": "path", "default": "/etc/nats-server/tuning.json"},
        },
        supports_check_mode=True,
    )
    both = sorted(set(module.params["apply"]) & set(module.params["undo"]))
    if both:
        module.fail_json(msg=f"apply and undo both list {', '.join(both)}: remove it from one of them")
    run(module, failing_on(FilesError), ensure)


if __name__ == "__main__":
    main()
