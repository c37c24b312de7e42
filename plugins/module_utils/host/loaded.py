# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loaded configuration of a running nats-server, read from its files and verified by the server's own reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..server_config.command_line import loaded_config
from ..server_config.listeners import monitor_url
from ..server_config.reading import Block, ConfigSyntaxError, ParsedConfig, config_digest, read_config
from ..server_config.required_action import epoch
from ..server_config.syntax import show
from ..versions import supports
from .observation import RunCommand, newest, read_varz
from .process import RunningServer, parse_environment
from .trial import reported_digest, run_trial

_REPORTS_A_DIGEST = ("2.11.0",)
#: Accuracy, in seconds, of the start time of a process: the kernel counts it in ticks, and rounds down.
_TICKS = 0.02


@dataclass
class LoadedConfig:
    """The configuration that a process has loaded, in the schema's format; it contains secrets.

    `proof` is C(digest) if the process, or its executable, reports the digest of this configuration, and C(time) if
    none of the files has changed since they were loaded. Otherwise `proof` is empty, and `problem` contains the reason.
    """

    config: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    monitor_url: str = ""
    varz: dict[str, Any] = field(default_factory=dict)
    proof: str = ""
    problem: str = ""

    @property
    def store_path(self) -> str:
        """Return the store's path in the configuration; empty if the configuration has none."""
        return store_path(self.config)

    @property
    def store_reported(self) -> str:
        """The store's path as reported by the monitoring port; empty if it reports none."""
        return str(((self.varz.get("jetstream") or {}).get("config") or {}).get("store_dir") or "")


def store_path(config: Mapping[str, Any]) -> str:
    """Return the store directory of a loaded configuration; empty if it has none."""
    block = config.get("jetstream")
    return str(block.get("store_dir") or "") if isinstance(block, Mapping) else ""


class _AnyVariable(dict[str, str]):
    """An environment in which every variable is set, for callers to whom the values do not matter."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "0"


def config_flags(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the feature flags of a configuration."""
    flags = (config or {}).get("feature_flags")
    return dict(flags) if isinstance(flags, Mapping) else {}


def file_flags(path: str) -> dict[str, Any]:
    """Return the feature flags in a configuration file; empty if the file cannot be read."""
    try:
        return config_flags(read_config(path, _text, _AnyVariable()).config)
    except (OSError, ConfigSyntaxError):
        return {}


def read_loaded(server: RunningServer, version: str, run_command: RunCommand) -> LoadedConfig:
    """Return the configuration that the process has loaded. `version`: the version of the process."""
    reading = ParsedConfig(Block())
    if server.config:
        try:
            reading = read_config(server.config, _text, parse_environment(server.process.pid))
        except ConfigSyntaxError as error:
            return LoadedConfig(problem=str(error))
    loaded = loaded_config(reading.config, server.argv)
    url = monitor_url(loaded.config)
    varz = read_varz(url)
    found = LoadedConfig(loaded.config, reading.files, reading.environment, loaded.flags, monitor_url=url, varz=varz)
    errors = [f"{show(note.path)}: {note.text}" for note in loaded.notes if note.is_error]
    if errors:
        found.problem = f"{server.config}: {'; '.join(errors)}"
    elif loaded.unknown_flags:
        found.problem = f"it runs with {', '.join(loaded.unknown_flags)}, which a configuration file must set instead"
    else:
        _prove(found, server, reading, version, run_command)
    return found


def _prove(
    found: LoadedConfig, server: RunningServer, reading: ParsedConfig, version: str, run_command: RunCommand
) -> None:
    reported = str(found.varz.get("config_digest") or "")
    ours = config_digest(reading.config)
    if reported and reported != ours:
        files = " and ".join(found.files)
        found.problem = (
            f"{files} differ from the configuration that the process has loaded: reload the server, or restore the "
            "files"
        )
        return
    if not reported and supports(_REPORTS_A_DIGEST, version) and server.config:
        reported = file_digest(server, run_command)
        if reported != ours:
            found.problem = f"{server.config} was not parsed correctly: nats-server -t reports a different digest of it"
            return
    if found.varz.get("config_digest"):
        found.proof = "digest"
        return
    loaded_at = found.varz.get("config_load_time")
    when = epoch(loaded_at) if loaded_at else server.process.started + _TICKS
    # VARZ reports the time at which the files were read.
    if newest(found.files) > when:
        found.problem = (
            f"{' or '.join(found.files)} changed after the process loaded it: reload the server, or restore the file"
        )
        return
    found.proof = "time"


def file_digest(server: RunningServer, run_command: RunCommand) -> str:
    """Return the digest of the configuration file that the process's executable reports, run in the environment of the
    process; empty if the process has just exited."""
    binary, environment = f"/proc/{server.process.pid}/exe", parse_environment(server.process.pid)
    try:
        _accepted, output = run_trial(run_command, binary, server.config, environment, server.directory)
    except OSError:
        return ""
    return reported_digest(output)


def _text(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8", "surrogateescape")
