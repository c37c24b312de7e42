# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a host's nats-server: the process, its unit, its `/varz`, and the record of its loaded configuration."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable
from urllib.parse import urlsplit

from ..maintenance import parse_mark
from .process import ProcessError, ServerProcess, find_server, listening_ports, running_version

#: Seconds: long enough for a lost packet and a slow network.
_CONNECT_TIMEOUT = 4.0

#: The type of `AnsibleModule.run_command`.
RunCommand = Callable[..., "tuple[int, str, str]"]


@dataclass(frozen=True)
class HostCommands:
    """The methods of an AnsibleModule that readers call. `run`: its `run_command`; `default_context`: its
    `selinux_default_context`."""

    run: RunCommand
    default_context: Callable[[str], Sequence[Any]]


@dataclass(frozen=True)
class ObservedServer:
    """A host's server, as several subsets need it. `unit`: empty if systemd does not run the server; `properties`: those
    of the unit. `process`: the result of `read_process`. `mark`: the maintenance mark."""

    unit: str
    properties: Mapping[str, str]
    process: Mapping[str, Any]
    mark: Mapping[str, Any] | None


_SECTION = re.compile(r"\[(\w+)\]")
_OPTION = re.compile(r"([A-Z]\w*)\s*=\s*(.*)")

#: The values for a server that is not running, as documented by nats_server_host_info.
NO_PROCESS: Mapping[str, Any] = {
    "running": False,
    "pid": 0,
    "binary": "",
    "version": "",
    "started": 0.0,
    "instance": "",
    "config_changed": 0.0,
    "ports": [],
    "missing_ports": [],
    "active_state": "",
    "unit_changed_after_start": False,
}

_PROPERTIES = ("ActiveState", "UnitFileState", "NeedDaemonReload", "FragmentPath", "DropInPaths", "EnvironmentFiles")


def unit_properties(run_command: RunCommand, unit: str) -> dict[str, str]:
    """Return systemd's properties of the unit; empty values for a unit that does not exist. Raises ProcessError."""
    wanted = ",".join(_PROPERTIES)
    status, out, err = run_command(["systemctl", "show", f"--property={wanted}", f"{unit}.service"])
    if status:
        raise ProcessError(f"systemctl show {unit}.service failed: {err.strip()}")
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def fenced(unit: str, properties: Mapping[str, str], configured: bool, mark: Mapping[str, Any] | None) -> str:
    """Return why the server of a host cannot start, or an empty text if it could. `configured`: whether its
    configuration file exists.

    `unit`: empty if systemd does not run the server. A unit that is merely disabled is started by the next deployment.
    """
    if mark and mark["held"]:
        return "it is in maintenance and must not start"
    if unit and properties.get("UnitFileState") == "masked":
        return f"its unit {unit} is masked"
    if unit and not properties.get("FragmentPath"):
        return f"it has no unit {unit}"
    return "" if configured else "it has no configuration file"


def closed_ports(peers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the peers (with `host` and `port`) to which this host cannot connect within some seconds, with the reason
    as `error`."""

    def reason(peer: Mapping[str, Any]) -> str:
        try:
            with socket.create_connection((peer["host"], peer["port"]), timeout=_CONNECT_TIMEOUT):
                return ""
        except OSError as error:
            return error.strerror or str(error)

    with ThreadPoolExecutor(max_workers=64) as pool:
        reasons = list(pool.map(reason, peers))
    return [{**peer, "error": error} for peer, error in zip(peers, reasons) if error]


def newest(files: Sequence[str]) -> float:
    """Return the newest modification time of the files that exist, in epoch seconds; 0 if none does."""
    return max((os.stat(path).st_mtime for path in files if os.path.exists(path)), default=0.0)


def unit_files(properties: Mapping[str, str]) -> list[str]:
    """Return the files that systemd read for the unit. The property EnvironmentFiles has the form `PATH
    (ignore_errors=yes)`."""
    environment = properties.get("EnvironmentFiles", "").partition(" (")[0]
    paths = [properties.get("FragmentPath", ""), environment, *properties.get("DropInPaths", "").split()]
    return [path for path in paths if path]


def read_drop_ins(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the drop-ins of the unit by C(path), each with the names of the C(options) that it sets, without their
    values."""
    return [
        {"path": path, "options": sorted({one["option"] for one in read_settings(path)})}
        for path in properties.get("DropInPaths", "").split()
    ]


def read_settings(path: str) -> list[dict[str, str]]:
    """Return the lines of a unit's file in order, each as C(section), C(option) and C(value); empty if the file does
    not exist. Comments and continued lines follow systemd.syntax(7)."""
    found = []
    section = ""
    # A comment inside a continued value does not end the value.
    lines = (line.strip() for line in read_text(path).splitlines())
    text = "\n".join(line for line in lines if not line.startswith(("#", ";"))).replace("\\\n", " ")
    for line in text.splitlines():
        if named := _SECTION.fullmatch(line.strip()):
            section = named[1]
        elif setting := _OPTION.fullmatch(line.strip()):
            found.append({"section": section, "option": setting[1], "value": setting[2]})
    return found


def wait(config: str, wanted: Sequence[int], timeout: float) -> tuple[ServerProcess | None, list[int]]:
    """Return the server and its open ports: as soon as all expected ports are open, when the server has exited, or
    after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        server = find_server(config)
        ports = listening_ports(server.pid) if server else []
        if not server or set(wanted) <= set(ports) or time.monotonic() >= deadline:
            return server, ports
        time.sleep(0.2)


def read_process(
    properties: Mapping[str, str],
    config: str,
    includes: Sequence[str] = (),
    files: Sequence[str] = (),
    ports: Sequence[int] = (),
    timeout: float = 0,
) -> dict[str, Any]:
    """Return the state of the process, as documented by nats_server_host_info. `properties`: the properties of its
    unit."""
    server, listening = wait(config, ports, timeout)
    host_values = {
        **NO_PROCESS,
        "config_changed": newest([config, *includes]),
        "missing_ports": sorted(set(ports) - set(listening)),
        "active_state": properties.get("ActiveState", ""),
    }
    if server is None:
        return host_values
    return {
        **host_values,
        "running": True,
        "pid": server.pid,
        "binary": server.binary,
        "version": running_version(server),
        "started": server.started,
        "instance": server.instance,
        "ports": listening,
        "unit_changed_after_start": newest([*files, *unit_files(properties)]) > server.started,
    }


def version_change(
    process: Mapping[str, Any], stopped_version: str, target: str, store: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the change from the running or installed version to `target`, as documented by nats_server_host_info.

    A stopped server without streams counts as new. `store`: the content of the store directory."""
    streams = store.get("streams") or 0
    version = process["version"] if process["running"] else stopped_version if streams else ""
    return {
        "running": process["running"],
        "version": version,
        "target": target,
        "changes": version != target,
        "streams": streams,
        "groups": store.get("groups") or [],
        "in_meta_group": store.get("peers") is not None,
    }


def read_record(path: str) -> dict[str, Any]:
    """Return the record of the loaded configuration; empty if there is none."""
    text = read_text(path)
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def read_mark(path: str | None) -> dict[str, Any] | None:
    """Return the host's maintenance mark, including whether its hold exists (`held`); None if the host is not in
    maintenance.

    An unreadable mark needs attention, so it counts as overdue, and as set when its file was last modified."""
    if not path:
        return None
    hold = os.path.splitext(path)[0] + ".hold"
    text, held = read_text(path), os.path.exists(hold)
    if not (os.path.exists(path) or held):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        written = newest([path, hold])
        found = {"since": written, "until": written, "reason": f"{path} cannot be parsed"}
    return parse_mark({**found, "held": held}).as_dict()


def read_text(path: str) -> str:
    """Return the text of a file; empty if it does not exist."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def read_varz(url: str, timeout: float = 5) -> dict[str, Any]:
    """Return the server's own `/varz`, which needs no credentials; empty if the server does not respond."""
    return read_endpoint(url, "varz", timeout)


def read_endpoint(url: str, endpoint: str, timeout: float = 5) -> dict[str, Any]:
    """Return the reply of an endpoint of the host's own monitoring port; empty if the port does not respond."""
    if not url:
        return {}
    # Ansible's open_url is not used: its imports are so slow that they would double the module's run time.
    import http.client
    import ssl

    try:
        address = urlsplit(url)
        host = address.hostname or ""
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            # Any certificate is accepted, because the request goes to this host.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(host, address.port, timeout=timeout, context=context)
        else:
            connection = http.client.HTTPConnection(host, address.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("GET", f"{address.path}/{endpoint}")
            reply = connection.getresponse()
            found = json.load(reply) if reply.status == 200 else {}
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return found if isinstance(found, dict) else {}
