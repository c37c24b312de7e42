# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_process
short_description: Start, stop and reload the nats-server of a host
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Starts nats-server and waits until it is listening, or stops it through lame duck mode and waits until it has
    exited.
  - With O(unit), systemd starts and stops the server. Without O(unit), the server is detached from the session that
    starts it, and is not restarted after a crash or a reboot. Omit O(unit) on laptops, in containers and in tests.
  - The server is recognised by its configuration file, so a stale pid file or a reused process id causes no harm.
options:
  state:
    description:
      - V(started) starts the server unless it is running, and waits for O(ports). Without ports, the module returns
        once the process exists.
      - V(stopped) requests lame duck mode and waits until the process has exited. With O(unit), the module stops the
        unit, whose C(KillSignal) must request lame duck mode, and then any process that was started outside the unit.
      - V(reloaded) sends the running server the signal to reload its configuration. The signal returns no result, so
        check C(config_load_time) afterwards, or use M(natsops.jetstream.nats_server_reload).
    type: str
    choices: [started, stopped, reloaded]
    default: started
  config:
    description: Path of the configuration file. This path identifies the server.
    type: path
    required: true
  unit:
    description: Name of the systemd unit that runs the server. If the unit does not exist, it counts as stopped.
    type: str
  ports:
    description: TCP ports on which a started server must listen. The task fails if the server does not listen on all of
      them in time, or exits first.
    type: list
    elements: int
    default: []
  start_timeout:
    description: Seconds to wait for O(ports).
    type: float
    default: 0
  includes:
    description: The other configuration files, which O(config) includes. These files are used for RV(process).
    type: list
    elements: path
    default: []
  files:
    description:
      - Files that the process reads only at startup, such as its environment file. These files are used for
        RV(process).
      - With O(unit), the list also includes the unit, its drop-ins and its environment files.
    type: list
    elements: path
    default: []
  binary:
    description: The executable. Required to start a server without O(unit).
    type: path
  store:
    description:
      - The store directory of the server. The server is not started if the version of O(binary) would damage the files that a
        newer version has written there.
      - Check mode checks O(binary) even if the server is running.
    type: path
  pid_file:
    description: The pid file named in the configuration. A stale file is removed before the start.
    type: path
  log:
    description: File to which standard output and standard error are appended.
    type: path
    default: /dev/null
  environment_file:
    description: File with lines of the form C(NAME="value"). The server's environment consists only of these variables
      and E(PATH), E(LANG) and E(TZ).
    type: path
  user:
    description: The user that runs the server. Only root can choose a different user.
    type: str
  group:
    description: The group that runs the server.
    type: str
  limit_nofile:
    description: Maximum number of open files. Without root, this number cannot exceed the user's limit.
    type: int
  stop_timeout:
    description: Seconds to wait for the process to exit in lame duck mode before it is killed. With O(unit), systemd
      applies its own limit.
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

- name: Start the server of a unit and wait until it listens
  natsops.jetstream.nats_server_process:
    config: /etc/nats-server/nats-server.conf
    unit: nats-server
    ports: [4222, 6222]
    start_timeout: 300
  become: true
"""

RETURN = r"""
pid:
  description: Id of the process that the module started, stopped or found running. 0 if there was none.
  type: int
  returned: success
process:
  description:
    - The process after the run, in the form of RV(natsops.jetstream.nats_server_host_info#module:process). In check
      mode, a server that would be started is returned as not running.
  type: dict
  returned: unless O(state=reloaded)
seconds:
  description: Seconds that the start or the stop took.
  type: float
  returned: unless O(state=reloaded)
  sample: 1.317
ended:
  description: When the process was found to have exited, in epoch seconds by the host's clock.
  type: float
  returned: when state is stopped
  sample: 1795254003.2
killed:
  description: Whether the process had to be killed because it had not exited after O(stop_timeout).
  type: bool
  returned: when state is stopped
"""

import grp
import os
import pwd
import resource
import shlex
import signal
import time
from collections.abc import Sequence
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.observation import NO_PROCESS, read_process, unit_properties
from ..module_utils.host.process import (
    ProcessError,
    ServerProcess,
    executable_version,
    find_server,
    launch,
    wait_exit,
    wait_start,
)
from ..module_utils.host.store import index_format
from ..module_utils.nats.server_versions import unreadable_files

#: Maximum seconds until a started process has its command line; systemd and the kernel report the process earlier.
_APPEARS = 2.0
#: States in which a unit need not be started, and states in which it need not be stopped. A unit that is being stopped
#: is in neither.
_UP = ("active", "activating", "reloading")
_DOWN = ("inactive", "failed", "")


def environment(path: str | None) -> dict[str, str]:
    """Return the assignments of an environment file, in addition to the few variables that a service manager would also
    pass.

    Raises ProcessError for a line that is not an assignment.
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
    """Return the arguments for Popen that change the user; empty if the server runs as the user of this module."""
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
    """Raise the limit of open files for this process, and thereby for the server, as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not wanted or soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    enough = hard == resource.RLIM_INFINITY or hard >= wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard if enough else wanted))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def start(module: CollectionModule) -> dict[str, Any]:
    """Start the server unless it is running, and wait until it listens; fail the module if it does not."""
    began, params = time.monotonic(), module.params
    needed = unit_state(module) not in _UP if params["unit"] else find_server(params["config"]) is None
    if params["store"] and (needed or module.check_mode):
        version = executable_version(params["binary"] or "")
        damage = unreadable_files(index_format(params["store"]), version)
        if damage:
            raise ProcessError(f"{version} is not started with the newer files in {params['store']}: {damage}")
    if needed and not module.check_mode:
        if params["unit"]:
            control(module, "daemon-reload")
            control(module, "start", params["unit"])
        else:
            launch_server(module)
        wait_start(params["config"], _APPEARS)
    awaited = [] if module.check_mode else params["ports"]
    process = observe(module, awaited)
    seconds = round(time.monotonic() - began, 3)
    result = {"changed": needed, "pid": process["pid"], "process": process, "seconds": seconds}
    if awaited and not process["running"]:
        module.fail_json(msg=f"nats-server with {params['config']} exited right after its start", **result)
    if process["missing_ports"]:
        ports = ", ".join(map(str, process["missing_ports"]))
        module.fail_json(
            msg=f"nats-server with {params['config']} (pid {process['pid']}) is not listening on {ports} after "
            f"{params['start_timeout']:g} s: if it is still recovering its streams, wait, or raise "
            "nats_server_start_timeout",
            **result,
        )
    return result


def launch_server(module: CollectionModule) -> None:
    """Start the server without systemd."""
    params = module.params
    if params["pid_file"] and os.path.exists(params["pid_file"]):
        os.unlink(params["pid_file"])
    raise_open_files(params["limit_nofile"])
    who = identity(params["user"], params["group"])
    with open(params["log"], "ab") as log:
        if who and params["log"] != os.devnull:
            os.fchown(log.fileno(), who["user"], who["group"])
            os.fchmod(log.fileno(), 0o640)
        command = [params["binary"], "-c", params["config"]]
        launch(command, log, environment(params["environment_file"]), **who)


def stop(module: CollectionModule) -> dict[str, Any]:
    """Stop the server through lame duck mode, or kill it if it does not exit in time."""
    began, params = time.monotonic(), module.params
    running = find_server(params["config"])
    up = bool(params["unit"]) and unit_state(module) not in _DOWN
    killed = False
    if not module.check_mode:
        if up:
            control(module, "stop", params["unit"])
        beside = find_server(params["config"]) if up else running
        killed = beside is not None and not end(module, beside)
    return {
        "changed": up or running is not None,
        "pid": running.pid if running else 0,
        "killed": killed,
        "process": NO_PROCESS if module.check_mode else observe(module),
        "ended": round(time.time(), 3),
        "seconds": round(time.monotonic() - began, 3),
    }


def end(module: CollectionModule, server: ServerProcess) -> bool:
    """End a server through lame duck mode; return False if it had to be killed. Raises ProcessError if even killing it
    fails."""
    ask_for_lame_duck(module, server)
    timeout = module.params["stop_timeout"]
    if wait_exit(server, timeout):
        return True
    os.kill(server.pid, signal.SIGKILL)
    module.warn(f"nats-server {server.pid} was killed {timeout} s after the request for lame duck mode")
    if not wait_exit(server, 10):
        raise ProcessError(f"nats-server {server.pid} does not exit even when killed: check for hanging disk I/O")
    return False


def observe(module: CollectionModule, ports: Sequence[int] = ()) -> dict[str, Any]:
    """Return the state of the process once it listens on these ports, has exited, or `start_timeout` has passed."""
    params = module.params
    properties = unit_properties(module.run_command, params["unit"]) if params["unit"] else {}
    return read_process(
        properties, params["config"], params["includes"], params["files"], ports, params["start_timeout"]
    )


def unit_state(module: CollectionModule) -> str:
    """Return the state of the unit in systemd's terms; a unit that does not exist is inactive."""
    return unit_properties(module.run_command, module.params["unit"]).get("ActiveState", "")


def control(module: CollectionModule, *command: str) -> None:
    """Run systemctl. Raises ProcessError with its error output."""
    status, _out, error = module.run_command(["systemctl", *command])
    if status:
        raise ProcessError(f"systemctl {' '.join(command)}: {error.strip()}")


def ask_for_lame_duck(module: CollectionModule, server: ServerProcess) -> None:
    """Run `nats-server --signal ldm=PID` with the running executable, which exists even if its file was replaced."""
    module.run_command([f"/proc/{server.pid}/exe", "--signal", f"ldm={server.pid}"], check_rc=True)


def reload(module: CollectionModule) -> dict[str, Any]:
    """Send SIGHUP to the running server.

    Raises ProcessError if no server is running.
    """
    running = find_server(module.params["config"])
    if not running:
        raise ProcessError("the server is not running, so there is nothing to reload")
    if not module.check_mode:
        os.kill(running.pid, signal.SIGHUP)
    return {"changed": True, "pid": running.pid}


STATES = {"started": start, "stopped": stop, "reloaded": reload}


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises ProcessError, OSError, and KeyError for an unknown user or group."""
    return STATES[module.params["state"]](module)


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "state": {"type": "str", "choices": list(STATES), "default": "started"},
            "config": {"type": "path", "required": True},
            "unit": {"type": "str"},
            "ports": {"type": "list", "elements": "int", "default": []},
            "start_timeout": {"type": "float", "default": 0},
            "includes": {"type": "list", "elements": "path", "default": []},
            "files": {"type": "list", "elements": "path", "default": []},
            "binary": {"type": "path"},
            "store": {"type": "path"},
            "pid_file": {"type": "path"},
            "log": {"type": "path", "default": "/dev/null"},
            "environment_file": {"type": "path"},
            "user": {"type": "str"},
            "group": {"type": "str"},
            "limit_nofile": {"type": "int"},
            "stop_timeout": {"type": "int", "default": 150},
        },
        required_if=[("state", "started", ["binary", "unit"], True)],
        supports_check_mode=True,
    )
    frame = failing_on(
        ProcessError,
        OSError,
        KeyError,
        message=lambda error: f"nats-server with {module.params['config']}: {error}",
    )
    run(module, frame, ensure)


if __name__ == "__main__":
    main()
