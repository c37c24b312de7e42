# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a host's files as a value, so the controller can compare it with the desired files without another
module run. The comparison is strict: a difference that a module would accept only makes the module run."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Callable, Optional, TypedDict

from .files import leftovers
from .install import sha256
from .system import group_name, user_name

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory"}


class PathState(TypedDict):
    """`kind`: file, directory, absent, or other for anything else, such as a dangling link or an unreadable path. `mode`: the
    permissions, such as 0640. `owner`, `group`: names, or numbers without a name. `sha256`: of a file's content, otherwise
    empty."""

    kind: str
    mode: str
    owner: str
    group: str
    sha256: str


class ObservedFiles(TypedDict):
    """`paths`: the state of each path. `leftovers`: temporary files of a killed transaction. `trial`: the `binary`, the
    `config` file and the `environment_sha256` of a successful test, with its `digest`; None if the configuration was not
    accepted."""

    paths: dict[str, PathState]
    leftovers: list[str]
    trial: Optional[dict[str, str]]


def observe(path: str) -> PathState:
    """Return the state of a path; links are followed."""
    unknown = PathState(kind="other", mode="", owner="", group="", sha256="")
    try:
        found = os.stat(path)
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
        digest = sha256(path) if kind == "file" else ""
    except (FileNotFoundError, NotADirectoryError):
        return unknown if os.path.lexists(path) else PathState(**{**unknown, "kind": "absent"})
    except OSError:  # A directory on a faulty disk does not prevent the host from being read.
        return unknown
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    return PathState(kind=kind, mode=mode, owner=user_name(found.st_uid), group=group_name(found.st_gid), sha256=digest)


def observe_files(paths: Sequence[str], trial: dict[str, str] | None) -> ObservedFiles:
    """Return the state of all paths."""
    return ObservedFiles(paths={path: observe(path) for path in paths}, leftovers=leftovers(paths), trial=trial)


def is_as_desired(observed: ObservedFiles, options: Mapping[str, Any]) -> bool:
    """Return whether the module nats_server_files with these options would change nothing and accept the configuration.
    Invalid options are left to the module."""
    try:
        return _is_as_desired(observed, options)
    except (KeyError, TypeError, AttributeError):
        return False


def text_digest(text: str | None) -> str:
    """Return the SHA-256 of a text; None is an empty text."""
    return hashlib.sha256((text or "").encode()).hexdigest()


def _is_as_desired(observed: ObservedFiles, options: Mapping[str, Any]) -> bool:
    paths = observed["paths"]
    trial = options.get("trial")
    files = [*(options.get("secret_files") or []), *(options.get("files") or [])]
    desired: list[tuple[str, Callable[[PathState], bool]]] = [
        *((path, _is_absent) for path in options.get("absent") or []),
        *((one["path"], partial(_is_directory, desired=one)) for one in options.get("directories") or []),
        *((one["path"], partial(_is_file, desired=one)) for one in files),
    ]
    return (
        not observed["leftovers"]
        and (not trial or _is_tested(observed["trial"], trial))
        and all(path in paths and fits(paths[path]) for path, fits in desired)
    )


def _is_tested(observed: Mapping[str, str] | None, trial: Mapping[str, Any]) -> bool:
    return (
        observed is not None
        and observed["environment_sha256"] == text_digest(trial.get("environment"))
        and all(observed[name] == trial[name] for name in ("binary", "config"))
    )


def _is_absent(found: PathState) -> bool:
    return found["kind"] == "absent"


def _is_directory(found: PathState, desired: Mapping[str, Any]) -> bool:
    owner = desired.get("owner")
    is_foreign = bool(desired.get("leave_foreign")) and bool(owner) and found["owner"] != owner
    return found["kind"] == "directory" and (is_foreign or _is_granted(found, desired))


def _is_file(found: PathState, desired: Mapping[str, Any]) -> bool:
    content = desired["content"]
    return isinstance(content, str) and found["sha256"] == text_digest(content) and _is_granted(found, desired)


def _is_granted(found: PathState, desired: Mapping[str, Any]) -> bool:
    return found["mode"] == desired["mode"] and all(
        not desired.get(name) or found[name] == desired[name] for name in ("owner", "group")
    )
