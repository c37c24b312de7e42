# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_files
short_description: Write the files of a nats-server in one transaction
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Brings directories and files of a host to the desired state in one step. If one of them cannot be written, for
    instance because the disk is full, all of them remain unchanged.
  - Before anything is written, the new configuration is tested with the binary that will run it (O(trial)), and new
    units are tested with systemd (O(unit)).
  - Contents are written to temporary files next to their targets and renamed into place. If a run is killed, each
    file is still complete, and the next run finishes the job.
  - Runs on the managed host and needs no connection to NATS.
  - Only the roles of this collection need this module; its options may change in any release.
options:
  directories:
    description: Directories that must exist. Missing parents are created with the same settings.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      mode:
        description: Permissions, such as C("0640").
        type: str
        required: true
      owner:
        description: Name of the owning user. Unchanged by default.
        type: str
      group:
        description: Name of the owning group. Unchanged by default.
        type: str
      leave_foreign:
        description: Leave an existing directory unchanged if it belongs to a user other than O(directories[].owner),
          such as C(/var/log).
        type: bool
        default: false
  secret_files:
    description: Files with secrets, whose content is never shown. These files are replaced before O(files), in the
      listed order.
    type: list
    elements: dict
    default: []
    suboptions: &file
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The complete content of the file.
        type: str
        required: true
      mode:
        description: Permissions, such as C("0640").
        type: str
        required: true
      owner:
        description: Name of the owning user. Unchanged by default.
        type: str
      group:
        description: Name of the owning group. Unchanged by default.
        type: str
  files:
    description: Files whose changes the diff shows. These files are replaced in the listed order.
    type: list
    elements: dict
    default: []
    suboptions: *file
  absent:
    description: Files to remove.
    type: list
    elements: path
    default: []
  trial:
    description: Tests the new configuration with C(nats-server -t), even if nothing differs. If the test fails, the
      task fails and nothing is changed.
    type: dict
    suboptions:
      binary:
        description: The executable.
        type: path
        required: true
      config:
        description:
          - Path of the configuration file. The file is tested together with those of O(files) and O(secret_files) that
            are in the same directory. If the configuration itself is not one of them, the file on the host is tested.
        type: path
        required: true
      needs:
        description: Files on the host that the test needs.
        type: list
        elements: path
        default: []
      environment:
        description:
          - The environment variables that the configuration uses, as the text of a JSON object. The C(environment)
            keyword of a task would reveal their values in the arguments of a process and in the log.
        type: str
      optional:
        description: Whether to skip the test if the executable or one of O(trial.needs) is missing, as in check mode
          before the first run.
        type: bool
        default: false
  unit:
    description: Name of the systemd unit, without C(.service). If O(files) contains a change to the unit or to one of
      its drop-ins, the unit and its drop-ins are first tested with C(systemd-analyze verify).
    type: str
  observed:
    description:
      - RV(natsops.jetstream.nats_server_host_info#module:managed) of the host, read after its last change. If it proves
        that the files do not differ and that O(trial) would succeed, the action ends on the controller without running
        the module on the host.
    type: dict
attributes:
  check_mode:
    description: Can run in check mode. Tests the configuration and the units, and returns the pending changes.
    support: full
  diff_mode:
    description: Shows the changes of O(files).
    support: full
"""

EXAMPLES = r"""
- name: Write the configuration
  natsops.jetstream.nats_server_files:
    directories:
      - {path: /etc/nats-server, owner: root, group: nats, mode: "0750"}
    secret_files:
      - path: /etc/nats-server/secrets.conf
        content: "{{ lookup('ansible.builtin.template', 'secrets.conf.j2') }}"
        owner: root
        group: nats
        mode: "0640"
    files:
      - path: /etc/nats-server/nats-server.conf
        content: "{{ lookup('ansible.builtin.template', 'nats-server.conf.j2') }}"
        owner: root
        group: nats
        mode: "0640"
    trial:
      binary: /opt/nats-server/2.10.27/bin/nats-server
      config: /etc/nats-server/nats-server.conf
  become: true
"""

RETURN = r"""
changed_paths:
  description: The directories and files that differed.
  type: list
  elements: str
  returned: always
  sample: [/etc/nats-server/nats-server.conf]
unit_changed:
  description: Whether the file of O(unit) or one of its drop-ins differed, so systemd must reload the unit.
  type: bool
  returned: always
tried:
  description: Whether the configuration was tested.
  type: bool
  returned: always
digest:
  description: Digest of the tested configuration, as nats-server reports it. Empty if the configuration was not tested
    or nats-server is older than 2.11.
  type: str
  returned: always
  sample: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"""

import os
import tempfile
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.files import Directory, FilesError, ManagedFile, diff, leftovers, replace_all
from ..module_utils.host.process import executable_version
from ..module_utils.host.trial import reported_digest, run_trial, trial_environment
from ..module_utils.server_config.schema import hints


def requested_directories(module: CollectionModule) -> list[Directory]:
    """Return the desired directories."""
    return [
        Directory(one["path"], parse_mode(one), one["owner"], one["group"], one["leave_foreign"])
        for one in module.params["directories"]
    ]


def desired_files(module: CollectionModule) -> list[ManagedFile]:
    """Return the desired files in the order of their replacement."""
    found = [
        ManagedFile(
            one["path"],
            parse_mode(one),
            one["owner"],
            one["group"],
            one["content"].encode(),
            secret=option == "secret_files",
        )
        for option in ("secret_files", "files")
        for one in module.params[option]
    ]
    return found + [ManagedFile(path, 0, content=None) for path in module.params["absent"]]


def parse_mode(wanted: dict[str, Any]) -> int:
    """Return the permissions as a number. Raises FilesError unless they are an octal number."""
    try:
        return int(wanted["mode"], 8)
    except ValueError as error:
        raise FilesError(f"{wanted['path']}: mode {wanted['mode']!r} is not an octal number such as 0640") from error


def try_configuration(module: CollectionModule, files: list[ManagedFile]) -> tuple[bool, str]:
    """Return whether the configuration was tested, and its digest. Raises FilesError with the server's message if the
    server rejects the configuration."""
    trial = module.params["trial"]
    if not trial:
        return False, ""
    environment = trial_environment(trial["environment"], "trial.environment")
    missing = [path for path in [trial["binary"], *trial["needs"]] if not os.path.exists(path)]
    if missing and trial["optional"]:
        return False, ""
    folder = os.path.dirname(trial["config"])
    is_given = any(file.path == trial["config"] for file in files)
    with tempfile.TemporaryDirectory(prefix="nats-server-", dir=module.tmpdir) as work:
        for file in files:
            if file.content is not None and os.path.dirname(file.path) == folder:
                write(os.path.join(work, os.path.basename(file.path)), file.content)
        staged = os.path.join(work, os.path.basename(trial["config"])) if is_given else trial["config"]
        try:
            accepted, output = run_trial(module.run_command, trial["binary"], staged, environment)
        except OSError as error:
            raise FilesError(f"{trial['binary']} cannot be run: {error.strerror}; nothing was changed") from error
    output = output.replace(f"{work}/", "")
    if not accepted:
        version = executable_version(trial["binary"])
        lines = [f"nats-server {version} rejects the configuration; nothing was changed.", output, *hints(output)]
        raise FilesError("\n".join(lines))
    return True, reported_digest(output)


def unit_files(files: list[ManagedFile], unit: str | None) -> list[ManagedFile]:
    """Return the unit and its drop-ins among the files."""
    return [
        file
        for file in files
        if unit
        and (
            os.path.basename(file.path) == f"{unit}.service"
            or os.path.basename(os.path.dirname(file.path)) == f"{unit}.service.d"
        )
    ]


def try_units(module: CollectionModule, units: list[ManagedFile]) -> None:
    """Have systemd read the unit and its drop-ins under their real names. Raises FilesError with systemd's complaints,
    if any."""
    name = f"{module.params['unit']}.service"
    with tempfile.TemporaryDirectory(prefix="nats-server-", dir=module.tmpdir) as work:
        os.mkdir(os.path.join(work, f"{name}.d"))
        for file in units:
            if file.content is not None:
                inner = f"{name}.d" if os.path.basename(file.path) != name else ""
                write(os.path.join(work, inner, os.path.basename(file.path)), file.content)
        status, out, err = module.run_command(["systemd-analyze", "verify", "--man=no", os.path.join(work, name)])
        said = (out + err).strip()
        complaints = unit_complaints(said, work, name)
    # In a check run before the first deployment, the executable does not exist yet.
    if module.check_mode and "is not executable: No such file" in said:
        return
    if status or complaints:
        raise FilesError(f"systemd rejects {name}; nothing was changed.\n" + ("\n".join(complaints) or said))


def unit_complaints(said: str, folder: str, name: str) -> list[str]:
    """Return systemd-analyze's complaints about the files in the folder.

    A directive that an older systemd does not support is ignored in the unit itself, but reported in a drop-in, which
    belongs to the user.
    """
    found = [line for line in said.splitlines() if f"{folder}/" in line]
    return [line.replace(f"{folder}/", "") for line in found if f"{folder}/{name}.d/" in line or "Unknown" not in line]


def write(path: str, content: bytes) -> None:
    """Write a file into a private directory."""
    with open(path, "wb") as stream:
        stream.write(content)


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the values of the module."""
    directories = [one for one in requested_directories(module) if one.differs()]
    files = desired_files(module)
    changed = [file for file in files if file.differs()]
    tried, digest = try_configuration(module, files)
    units = unit_files(files, module.params["unit"])
    unit_changed = any(file in changed for file in units)
    if unit_changed and any(file.content is not None for file in units):
        try_units(module, units)
    before = {file.path: file.before() for file in changed}
    stale = leftovers([file.path for file in files])
    if not module.check_mode:
        for directory in directories:
            directory.make()
        for path in stale:
            os.unlink(path)
        replace_all(changed)
    return {
        "changed": bool(directories or changed or stale),
        "changed_paths": [one.path for one in (*directories, *changed)],
        "unit_changed": unit_changed,
        "tried": tried,
        "digest": digest,
        **({"diff": diff(changed, before)} if module._diff else {}),
    }


def main() -> None:
    owned = {
        "path": {"type": "path", "required": True},
        "mode": {"type": "str", "required": True},
        "owner": {"type": "str"},
        "group": {"type": "str"},
    }
    content = {"type": "str", "required": True}
    module = CollectionModule(
        argument_spec={
            "directories": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {**owned, "leave_foreign": {"type": "bool", "default": False}},
            },
            "secret_files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "no_log": False,
                "options": {**owned, "content": {**content, "no_log": True}},
            },
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {**owned, "content": content},
            },
            "absent": {"type": "list", "elements": "path", "default": []},
            "trial": {
                "type": "dict",
                "options": {
                    "binary": {"type": "path", "required": True},
                    "config": {"type": "path", "required": True},
                    "needs": {"type": "list", "elements": "path", "default": []},
                    "environment": {"type": "str", "no_log": True},
                    "optional": {"type": "bool", "default": False},
                },
            },
            "unit": {"type": "str"},
            "observed": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    run(module, failing_on(FilesError, OSError, ValueError), ensure)


if __name__ == "__main__":
    main()
