# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files and directories that the role nats_server has on a host. Pure.

An owner or a group of None is not changed, which a user without privileges could not do.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional, TypedDict

from ..server_config.topology import boolean

UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class LayoutState:
    """`systemd`: whether systemd manages the server. `with_service`: whether the files of the service are written as well.
    `unrecorded`: whether the running server has files from outside the role, which may contain secrets, so no diff shows
    them."""

    systemd: bool
    with_service: bool = False
    unrecorded: bool = False


class HostFile(TypedDict):
    """A file whose content is a `template` of the role."""

    path: str
    template: str
    owner: Optional[str]
    group: Optional[str]
    mode: str


class HostLayout(TypedDict):
    """`directories`, `absent`, `secret_files` and `files`: as options of the module nats_server_files; the last two also
    without the configuration, as `service_secret_files` and `service_files`. `paths`: every path that the role may manage
    on this host, including those of the service. `store`, `log` and other directories to which the server writes:
    `writable`. `runtime_directory`: the directory that systemd creates, below /run. `watches_tls`: whether a path unit
    starts a service that checks the TLS files and reloads the server. `tls_unit`, `tls_unit_paths`: its name and the files
    of both units. The link that enables the path unit comes first, because a link to a missing file cannot be removed as
    a file."""

    directories: list[dict[str, Any]]
    absent: list[str]
    secret_files: list[HostFile]
    files: list[HostFile]
    service_secret_files: list[HostFile]
    service_files: list[HostFile]
    paths: list[str]
    writable: list[str]
    runtime_directory: str
    watches_tls: bool
    tls_unit: str
    tls_unit_paths: list[str]


class _Layout:
    def __init__(self, options: Mapping[str, Any], paths: Mapping[str, str], state: LayoutState) -> None:
        self._options = options
        self._paths = paths
        self._state = state
        become = boolean(options["become"])
        self._root = "root" if become else None
        self._group = options["group"] if become else None
        self._user = options["user"] if become else None
        #: A unit that has not been taken over is left unchanged.
        self._owns_unit = boolean(options["take_over"])
        self._systemd = state.systemd and self._owns_unit
        run_dir = str(options["run_dir"])
        self.runtime_directory = run_dir[len("/run/") :] if run_dir.startswith("/run/") else ""
        self.watches_tls = options["tls_source"] == "host" and self._systemd
        self.tls_unit = f"{options['service_name']}-tls"
        self.tls_unit_paths = [
            f"{UNITS}/multi-user.target.wants/{self.tls_unit}.path",
            f"{UNITS}/{self.tls_unit}.service",
            f"{UNITS}/{self.tls_unit}.path",
        ]

    def writable(self) -> dict[str, str]:
        """Return the directories to which the server writes, empty if there is none."""
        options = self._options
        log_file = str(options.get("log_file") or "")
        resolver = (options.get("config") or {}).get("resolver")
        return {
            "store": str(options["jetstream_store_dir"]) if boolean(options["jetstream"]) else "",
            "log": posixpath.dirname(log_file) if log_file.startswith("/") else "",
            "resolver": str(resolver.get("dir") or "") if isinstance(resolver, Mapping) else "",
        }

    def directories(self) -> list[dict[str, Any]]:
        config = {"path": self._options["config_dir"], "owner": self._root, "group": self._group, "mode": "0750"}
        if not self._owns_unit:
            return [config]
        own = {"owner": self._user, "group": self._group, "mode": "0750"}
        places = self.writable()
        # Otherwise the configuration test, which runs as root, would create the directory of the resolver.
        written = [
            {**own, "path": places["store"]},
            {**own, "path": places["log"], "leave_foreign": True},
            {**own, "path": "" if self._state.systemd and self.runtime_directory else self._options["run_dir"]},
            {**own, "path": places["resolver"]},
        ]
        unit = {"path": self._paths["drop_ins"], "owner": "root", "group": "root", "mode": "0755"}
        overrides = self._state.systemd and self._options.get("service_overrides")
        return [
            {"path": self._options["install_dir"], "owner": self._root, "mode": "0755"},
            config,
            *(one for one in written if one["path"]),
            *([unit] if overrides else []),
        ]

    def config_files(self) -> tuple[HostFile, HostFile]:
        """Return the file with the secrets and the configuration."""
        return (
            self._file(self._options["secrets_file"], "secrets.conf.j2"),
            self._file(self._options["config_file"], "nats-server.conf.j2"),
        )

    def service_files(self) -> tuple[list[HostFile], list[HostFile]]:
        """Return the files with secrets, and the others. The environment from the inventory may contain secrets."""
        if not self._owns_unit:
            return [], []
        environment = [self._file(self._paths["environment"], "environment.j2")]
        units = self._units() if self._state.systemd else []
        return (environment, units) if self._options.get("service_environment") else ([], [*environment, *units])

    def absent(self) -> list[str]:
        if not self._systemd:
            return []
        overrides = [] if self._options.get("service_overrides") else [self._paths["overrides"]]
        return [*overrides, *([] if self.watches_tls else self.tls_unit_paths)]

    def paths(self) -> list[str]:
        files = [*self.config_files(), *(file for group in self.service_files() for file in group)]
        paths = [one["path"] for one in [*self.directories(), *files]]
        return sorted({*paths, *self.absent(), str(self._options["run_dir"])})

    def _units(self) -> list[HostFile]:
        units = [(self._paths["unit"], "nats-server.service.j2")]
        if self._options.get("service_overrides"):
            units.append((self._paths["overrides"], "overrides.conf.j2"))
        if self.watches_tls:
            templates = ("nats-server-tls.service.j2", "nats-server-tls.path.j2")
            units += zip(self.tls_unit_paths[1:], templates)
        return [
            {"path": path, "template": template, "owner": "root", "group": "root", "mode": "0644"}
            for path, template in units
        ]

    def _file(self, path: str, template: str) -> HostFile:
        return {"path": path, "template": template, "owner": self._root, "group": self._group, "mode": "0640"}


def host_layout(options: Mapping[str, Any], paths: Mapping[str, str], state: LayoutState) -> HostLayout:
    """Return the files of a host. `options`: the role's variables; `paths`: the role's own files."""
    layout = _Layout(options, paths, state)
    secrets, config = layout.config_files()
    service_secrets, service = layout.service_files()
    with_service = state.with_service
    return {
        "directories": layout.directories() if with_service else [],
        "absent": layout.absent() if with_service else [],
        "secret_files": [
            secrets,
            *([config] if state.unrecorded else []),
            *(service_secrets if with_service else []),
        ],
        "files": [*([] if state.unrecorded else [config]), *(service if with_service else [])],
        "service_secret_files": service_secrets,
        "service_files": service,
        "paths": layout.paths(),
        "writable": [path for path in layout.writable().values() if path],
        "runtime_directory": layout.runtime_directory,
        "watches_tls": layout.watches_tls,
        "tls_unit": layout.tls_unit,
        "tls_unit_paths": layout.tls_unit_paths,
    }
