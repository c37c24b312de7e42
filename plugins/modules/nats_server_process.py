# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_process
short_description: Start, stop and reload a nats-server without a service manager
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Starts nats-server detached from the session that starts it, and stops it through lame duck mode.
  - For laptops, containers and tests. Nothing starts the server again after a crash or a reboot; use systemd for that.
  - The server is recognised by its configuration file, so a stale pid file or a reused process id does no harm.
options:
  state:
    description:
      - V(started) starts the server unless it runs. It returns once the process exists, before it is ready.
      - V(stopped) asks for lame duck mode and waits until the process is gone.
      - V(reloaded) has the running server read its configuration again, with the signal that carries no answer. Read
        C(config_load_time) afterwards to know whether it did, or use M(natsops.jetstream.nats_server_reload).
    type: str
    choices: [started, stopped, reloaded]
    default: started
  config:
    description: Path of the configuration file. It identifies the server.
    type: path
    required: true
  binary:
    description: The executable. Required to start.
    type: path
  pid_file:
    description: The pid file named in the configuration. A stale one is removed before the start.
    type: path
  log:
    description: File for standard output and standard error, appended to.
    type: path
    default: /dev/null
  environment_file:
    description: File with lines C(NAME="value"). Apart from them the server gets E(PATH), E(LANG) and E(TZ) only.
    type: path
  user:
    description: The user to run as. Only root can choose another than itself.
    type: str
  group:
    description: The group to run as.
    type: str
  limit_nofile:
    description: Open files to allow. Without root it cannot go beyond what the user may have.
    type: int
  stop_timeout:
    description: Seconds to wait for the process to end in lame duck mode before it is killed.
    type: int
    default: 150
attributes:
  check_mode:
    description: Can run in check mode and return the changed status prediction without touching the server.
    support: full
  diff_mode:
    description: Returns no diff.
    support: none
"""

EXAMPLES = r"""
- name: Start a server
  natsops.jetstream.nats_server_process:
    config: "{{ playbook_dir }}/n1/nats-server.conf"
    binary: /usr/local/bin/nats-server
    log: "{{ playbook_dir }}/n1/nats-server.out"

- name: Stop it through lame duck mode
  natsops.jetstream.nats_server_process:
    config: "{{ playbook_dir }}/n1/nats-server.conf"
    state: stopped
    stop_timeout: 90
"""

RETURN = r"""
pid:
  description: The process that was started, found running or stopped. 0 when there was none.
  type: int
  returned: always
killed:
  description: Whether the process had to be killed because it outlived O(stop_timeout).
  type: bool
  returned: when state is stopped
"""

import grp
import os
import pwd
import resource
import shlex
import signal
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import (
    ProcessError,
    ServerProcess,
    find_server,
    launch,
    wait_exit,
)


def environment(path: str | None) -> dict[str, str]:
    """Return the assignments of an environment file, added to the few variables that a service manager would pass too.

    Raises ProcessError when a line is no assignment.
    """
    result = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    if not path or not os.path.exists(path):
        return result
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            name, equals, value = line.strip().partition("=")
            if not name or name.startswith("#"):
                continue
            if not equals:
                raise ProcessError(f"{path}, line {number}: expected NAME=value")
            result[name] = "".join(shlex.split(value))
    return result


def identity(user: str | None, group: str | None) -> dict[str, Any]:
    """Return the arguments for Popen that change the user; empty when the server runs as whoever runs this module."""
    if not user or pwd.getpwuid(os.geteuid()).pw_name == user:
        return {}
    if os.geteuid() != 0:
        raise ProcessError(
            f"only root can start a server as {user}: set nats_server_user to the user who runs the play"
        )
    entry = pwd.getpwnam(user)
    gid = grp.getgrnam(group).gr_gid if group else entry.pw_gid
    return {"user": entry.pw_uid, "group": gid, "extra_groups": []}


def raise_open_files(wanted: int | None) -> None:
    """Raise the limit of open files for this process, and with it for the server, as far as it is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not wanted or soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    enough = hard == resource.RLIM_INFINITY or hard >= wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard if enough else wanted))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def start(module: AnsibleModule) -> dict[str, Any]:
    """Start the server unless it runs."""
    parameters = module.params
    running = find_server(parameters["config"])
    if running:
        return {"changed": False, "pid": running.pid}
    if module.check_mode:
        return {"changed": True, "pid": 0}
    if parameters["pid_file"] and os.path.exists(parameters["pid_file"]):
        os.unlink(parameters["pid_file"])
    raise_open_files(parameters["limit_nofile"])
    who = identity(parameters["user"], parameters["group"])
    with open(parameters["log"], "ab") as log:
        if who and parameters["log"] != os.devnull:
            os.fchown(log.fileno(), who["user"], who["group"])
            os.fchmod(log.fileno(), 0o640)
        command = [parameters["binary"], "-c", parameters["config"]]
        pid = launch(command, log, environment(parameters["environment_file"]), **who)
    return {"changed": True, "pid": pid}


def stop(module: AnsibleModule) -> dict[str, Any]:
    """Stop the server through lame duck mode, or kill it when it does not end in time."""
    running = find_server(module.params["config"])
    if not running:
        return {"changed": False, "pid": 0, "killed": False}
    if module.check_mode:
        return {"changed": True, "pid": running.pid, "killed": False}
    ask_for_lame_duck(module, running)
    killed = not wait_exit(running, module.params["stop_timeout"])
    if killed:
        os.kill(running.pid, signal.SIGKILL)
        module.warn(
            f"nats-server {running.pid} was killed {module.params['stop_timeout']} s after lame duck mode was asked for"
        )
        if not wait_exit(running, 10):
            raise ProcessError(
                f"nats-server {running.pid} does not end, not even when killed: look for hanging disk I/O"
            )
    return {"changed": True, "pid": running.pid, "killed": killed}


def ask_for_lame_duck(module: AnsibleModule, server: ServerProcess) -> None:
    """`nats-server --signal ldm=PID` with the executable that runs, which exists even when its file was replaced."""
    module.run_command([f"/proc/{server.pid}/exe", "--signal", f"ldm={server.pid}"], check_rc=True)


def reload(module: AnsibleModule) -> dict[str, Any]:
    """Send SIGHUP to the running server.

    Raises ProcessError when none runs.
    """
    running = find_server(module.params["config"])
    if not running:
        raise ProcessError("no such server runs, so there is nothing to reload")
    if not module.check_mode:
        os.kill(running.pid, signal.SIGHUP)
    return {"changed": True, "pid": running.pid}


STATES = {"started": start, "stopped": stop, "reloaded": reload}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": list(STATES), "default": "started"},
            "config": {"type": "path", "required": True},
            "binary": {"type": "path"},
            "pid_file": {"type": "path"},
            "log": {"type": "path", "default": "/dev/null"},
            "environment_file": {"type": "path"},
            "user": {"type": "str"},
            "group": {"type": "str"},
            "limit_nofile": {"type": "int"},
            "stop_timeout": {"type": "int", "default": 150},
        },
        required_if=[("state", "started", ["binary"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**STATES[module.params["state"]](module))
    except (ProcessError, OSError, KeyError) as error:
        module.fail_json(msg=f"nats-server with {module.params['config']}: {error}")


if __name__ == "__main__":
    main()
