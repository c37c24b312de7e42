# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that a playbook can read: those in its tasks, in the tasks of roles that they include, and in the
definitions of these variables. Conditions are not evaluated, so the result can contain too many variables.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.role_options import ROLE_OPTIONS
from support.documents import CHECKOUT

ROLES = CHECKOUT / "roles"
_TEMPLATED = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_NAME = re.compile(r"\bnats_\w+")
#: The inputs that a lookup of the roles' variables names.
_LOOKUP = re.compile(r"nats_role_options'((?:, *'\w+')+)")


class _Loader(yaml.CSafeLoader):
    """Reads strings that are marked as not being templates, as Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


@cache
def reads(playbook: Path) -> frozenset[str]:
    """Return the variables that a playbook can read."""
    text = "\n".join(path.read_text() for path in sorted(playbook_files(playbook)))
    found: set[str] = set()
    waiting = _names(_uncommented(text))
    while waiting:
        found |= waiting
        waiting = {name for known in waiting for name in _definitions().get(known, ())} - found
    return frozenset(found)


@cache
def playbook_files(playbook: Path) -> set[Path]:
    """Return the playbook and all task files and templates that it can use."""
    found: set[Path] = set()
    waiting = [playbook]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _included(path)
    return found


@cache
def _included(path: Path) -> tuple[Path, ...]:
    return tuple(_read_includes(path)) if path.suffix == ".yml" else ()


def _read_includes(path: Path) -> Iterator[Path]:
    for task in _tasks(yaml.load(path.read_text(), Loader=_Loader)):
        for key, value in task.items():
            kind = key.rpartition(".")[2]
            if kind == "import_playbook":
                yield path.parent / value
            elif kind in ("import_tasks", "include_tasks"):
                yield from _task_files(path, value)
            elif kind in ("import_role", "include_role"):
                yield from _entry_points(value["name"], value.get("tasks_from", "main"), task.get("loop"))
            elif key == "role" and value.startswith("natsops.jetstream."):
                yield from _entry_points(value, "main", None)
            elif kind == "template":
                yield from _role(path).glob("templates/" + _TEMPLATED.sub("*", value["src"]))


def _entry_points(role: str, name: str, loop: Any) -> Iterator[Path]:
    """Return the files of an entry point. A templated name is an item of the task's loop, or else any entry point."""
    names = loop if "{{" in name and isinstance(loop, list) else [_TEMPLATED.sub("*", name)]
    for one in names:
        found = list((ROLES / role.rpartition(".")[2] / "tasks").glob(f"{one}.yml"))
        assert found, f"{role}: {one}"
        yield from found


def _task_files(path: Path, name: str) -> Iterator[Path]:
    """Return the files that an include can name, relative to the including file or to the tasks of the role."""
    folders = [path.parent, *([_role(path) / "tasks"] if ROLES in path.parents else [])]
    variable = re.fullmatch(r"\{\{ (\w+)(?:\.\w+)? \}\}", name)
    for one in _values()[variable[1]] if variable else [_TEMPLATED.sub("*", name)]:
        for folder in folders:
            yield from folder.glob(one)


@cache
def _values() -> dict[str, set[str]]:
    """Return the task files that the roles assign to variables. A hook's file belongs to the operator."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in ROLES.glob("*/tasks/**/*.yml"):
        for name, value in re.findall(r"^ +(nats_\w+): ([\w/]+\.yml)$", path.read_text(), re.MULTILINE):
            found[name].add(value)
    return found


def _role(path: Path) -> Path:
    return ROLES / path.relative_to(ROLES).parts[0]


def _tasks(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings of nested plays, blocks and tasks."""
    if isinstance(node, dict):
        yield node
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _tasks(part)


def _uncommented(text: str) -> str:
    return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


@cache
def _definitions() -> dict[str, frozenset[str]]:
    """Return the variables in the definition of each variable of the roles."""
    found: dict[str, frozenset[str]] = {}
    for path in sorted([*ROLES.glob("*/defaults/*.yml"), *ROLES.glob("*/vars/**/*.yml")]):
        for name, value in (yaml.load(path.read_text(), Loader=_Loader) or {}).items():
            found[name] = found.get(name, frozenset()) | _names(str(value))
    return found


def _names(text: str) -> set[str]:
    """Return the variables in a text, with those that the lookup nats_role_options reads for the inputs in it."""
    inputs = [name for listed in _LOOKUP.findall(text) for name in re.findall(r"\w+", listed)]
    return {*_NAME.findall(text), *(name for one in inputs for name in ROLE_OPTIONS[one].values())}
