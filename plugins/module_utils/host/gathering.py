# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the subsets of nats_server_host_info.

The code of a subset is imported only if the subset is requested: importing all of it takes longer than reading a
process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..server_config.listeners import peer_ports
from .observation import HostCommands, ObservedServer, closed_ports, read_mark, read_process, unit_properties
from .process import ProcessError
from .server_log import LogOptions, last_lines, severe_lines
from .system import has_systemd


def gather(params: Mapping[str, Any], commands: HostCommands) -> dict[str, Any]:
    """Return the results of the requested subsets, as documented by nats_server_host_info. `params`: the parameters of
    the module. Raises ProcessError, OSError and ValueError."""
    subsets = frozenset(params["gather_subset"])
    found: dict[str, Any] = {}
    if subsets & {"process", "deployment", "rescue", "diagnosis"}:
        server = _observe(params, commands, is_tolerant=not subsets & {"deployment", "rescue"})
        found.update(_parts_of_server(subsets, params, server, commands))
    if "adoption" in subsets:
        from .discovery import discover

        found["adoption"] = discover(params["config"] or "", commands.run)
    if "unreported" in subsets:
        from .unreported import unreported

        host, problem = unreported(params["config"] or "", commands.run)
        found["unreported"] = {"host": host, "problem": problem}
    if "log" in subsets:
        found["log"] = {"lines": last_lines(_log_options(params), commands.run)}
    if "backup_files" in subsets:
        from .own_files import own_files

        texts, problems = own_files(params["config"])
        content = {params["prefix"] + name: text for name, text in texts.items()}
        found["backup_files"] = {"content": content, "problems": problems}
    return found


def _unit(params: Mapping[str, Any]) -> str:
    """Return the unit of the server; empty if systemd does not run it."""
    return params["unit"] if params["unit"] and has_systemd() else ""


def _log_options(params: Mapping[str, Any]) -> LogOptions:
    return LogOptions(_unit(params), params["log_file"] or "", params["output_file"] or "", params["log_utc"])


def _observe(params: Mapping[str, Any], commands: HostCommands, is_tolerant: bool) -> ObservedServer:
    """Return the process, its unit and its mark, which several subsets share. `is_tolerant`: whether the rest is read even
    if systemd does not respond, as for the diagnosis of a faulty host."""
    unit = _unit(params)
    try:
        properties = unit_properties(commands.run, unit) if unit else {}
    except ProcessError:
        if not is_tolerant:
            raise
        properties = {}
    process = read_process(
        properties,
        params["config"],
        [*filter(None, [params["secrets"]]), *params["includes"]],
        params["files"],
        params["ports"],
        params["timeout"],
    )
    return ObservedServer(unit, properties, process, read_mark(params["maintenance"]))


def _parts_of_server(
    subsets: frozenset[str], params: Mapping[str, Any], server: ObservedServer, commands: HostCommands
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "deployment" in subsets:
        from .deployment import read_deployment

        found.update(read_deployment(params, server, commands))
    if subsets & {"process", "deployment"}:
        found.update(process=server.process, maintenance=server.mark)
    if "process" in subsets:
        found["closed_ports"] = closed_ports(peer_ports(params["members"], params["server_name"]))
    if "diagnosis" in subsets:
        from .fault_signs import read_fault_signs

        lines = severe_lines(_log_options(params), params["log_since"], commands.run)
        found["diagnosis"] = read_fault_signs(server.process["instance"], params["store_dir"], lines, commands.run)
    if "rescue" in subsets:
        from .rescue_host import read_rescue_host

        found["rescue"] = read_rescue_host(params["config"], params["store_dir"], params["copy"], server)
    return found
