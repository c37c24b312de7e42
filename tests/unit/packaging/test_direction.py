# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls go in one direction: playbook, nats_cluster, nats_server; modules and event sources import module_utils
only."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
PLUGINS = "ansible_collections.natsops.jetstream.plugins"


def tasks(role: str) -> list[Path]:
    return sorted(
        path for part in ("tasks", "vars", "defaults") for path in (CHECKOUT / "roles" / role / part).rglob("*.yml")
    )


def test_no_role_reads_a_private_variable_of_a_different_one() -> None:
    for role, other in (
        ("nats_cluster", "nats_server"),
        ("nats_server", "nats_cluster"),
        ("nats_insights", "nats_cluster"),
    ):
        for path in tasks(role):
            assert f"{other}__" not in path.read_text(), path


def test_the_role_of_one_host_calls_no_other_role() -> None:
    for path in tasks("nats_server"):
        assert re.findall(r"_role:", path.read_text()) == [], path


def test_playbooks_act_through_the_role_of_the_cluster() -> None:
    """Only the role nats_cluster changes servers. The exceptions are `members`, which queries no server, and the demo,
    which stops a server and starts the one that it killed."""
    for path in (CHECKOUT / "playbooks").glob("*.yml"):
        assert "nats_server__" not in path.read_text(), path
        for play in yaml.safe_load(path.read_text()):
            assert "natsops.jetstream.nats_server" not in [role["role"] for role in play.get("roles", [])], path
        entries = re.findall(r"name: natsops\.jetstream\.nats_server\n +tasks_from: (\w+)", path.read_text())
        allowed = {"members", "remove", "start"} if path.name.startswith("demo") else {"members"}
        assert set(entries) <= allowed, path


def collection_imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield, for each import from plugins/, the path below it without suffix, and the imported names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        name = (node.module or "").replace(".", "/")
        if node.level:
            base = path.relative_to(CHECKOUT / "plugins").parents[node.level - 1]
            yield (base / name).as_posix(), [one.name for one in node.names]
        elif f"{node.module}.".startswith(f"{PLUGINS}."):
            yield name.removeprefix(PLUGINS.replace(".", "/")).lstrip("/"), [one.name for one in node.names]


def test_plugins_import_each_other_by_relative_names() -> None:
    for path in (CHECKOUT / "plugins").rglob("*.py"):
        assert f"from {PLUGINS}" not in path.read_text(), path


@pytest.mark.parametrize("folder", ["plugins/modules", "extensions/eda/plugins/event_source"])
def test_modules_and_event_sources_import_no_module(folder: str) -> None:
    for path in (CHECKOUT / folder).glob("*.py"):
        for name, _names in collection_imports(path):
            assert name.split("/")[0] in {"module_utils", "plugin_utils"}, path


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the absolute names of the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def test_only_the_package_nats_imports_nats_py() -> None:
    importing = {
        path.parent.relative_to(CHECKOUT).as_posix()
        for folder in ("plugins", "roles")
        for path in (CHECKOUT / folder).rglob("*.py")
        if any(name.split(".")[0] == "nats" for name in imported_modules(path))
    }
    assert importing == {"plugins/module_utils/nats"}


def test_the_pipeline_imports_the_documented_files_of_the_collection() -> None:
    text = (CHECKOUT / "docs" / "internals" / "architecture.md").read_text()
    (row,) = re.findall(r"^\| `roles/nats_insights/files` \|.* from the collection only (.*) \|$", text, re.MULTILINE)
    root, imported = f"{PLUGINS}.module_utils.", set()
    for path in (CHECKOUT / "roles" / "nats_insights" / "files" / "jetstream_insights").rglob("*.py"):
        imported |= {name.removeprefix(root) for name in imported_modules(path) if name.startswith(root)}
        imported |= set(re.findall(r'module_util\("([\w.]+)"\)', path.read_text()))
    assert {name.replace(".", "/") for name in imported} == set(re.findall(r"`([^`]+)`", row))


def behaviours() -> list[list[list[str]]]:
    """Return the names in each cell of the table "Where a behaviour is"."""
    text = (CHECKOUT / "docs" / "internals" / "architecture.md").read_text()
    section = text.partition("## Where a behaviour is")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("|")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|")] for row in rows[2:]]


#: Playbooks without a rule in module_utils: they set up demonstrations, programs and streams.
WITHOUT_RULES = {"capture_advisories", "exporter"}


def test_every_playbook_is_in_the_table_of_behaviours() -> None:
    playbooks = {path.stem for path in (CHECKOUT / "playbooks").glob("*.yml") if not path.stem.startswith("demo")}
    assert playbooks - WITHOUT_RULES == {name for row in behaviours() for name in row[1]}


def test_named_functions_of_behaviours_exist() -> None:
    text = (CHECKOUT / "docs" / "internals" / "architecture.md").read_text()
    named = re.findall(r"`(\w+/\w+)` \((\w+)\)", text)
    assert len(named) >= 8
    for rule, function in named:
        source = (CHECKOUT / "plugins" / "module_utils" / f"{rule}.py").read_text()
        assert f"\ndef {function}(" in source, (rule, function)


def paths() -> list[list[str]]:
    """Return the names of the files of each path in the architecture."""
    text = (CHECKOUT / "docs" / "internals" / "architecture.md").read_text()
    rows = [row for row in text.splitlines() if row.startswith("|") and " → " in row]
    return [re.findall(r"`([^`]+)`", row.split("|")[2]) for row in rows]


def named_files(name: str) -> list[Path]:
    """Return the files that a name in a path stands for: a playbook, a task file of a role, a plugin with its action, or a
    rule."""
    role, _slash, task = name.partition("/")
    candidates = [
        CHECKOUT / "playbooks" / f"{name}.yml",
        CHECKOUT / "roles" / role / "tasks" / f"{task}.yml",
        *(CHECKOUT / "plugins" / kind / f"{name}.py" for kind in ("action", "modules", "filter", "module_utils")),
    ]
    return [path for path in candidates if path.is_file()]


def calls(caller: Path, name: str) -> bool:
    """Return whether a file names the next file of a path."""
    if caller.suffix == ".py":
        return bool(imports(caller).intersection(named_files(name)))
    role, _slash, task = name.partition("/")
    text = caller.read_text()
    if not task:
        return f"natsops.jetstream.{name}" in text
    entry = f"name: natsops.jetstream.{role}\n" in text and f"tasks_from: {task}\n" in text
    return entry or (task == "main" and f"role: natsops.jetstream.{role}" in text) or f"{task}.yml" in text


def test_each_path_exists_and_is_short() -> None:
    assert len(paths()) == 8
    for path in paths():
        # The action plugin of a module counts as well.
        size = sum(len(named_files(name)) for name in path)
        assert all(named_files(name) for name in path), path
        assert size <= (9 if "nats_cluster/health/gate" in path else 7), (size, path)
        for caller, name in zip(path, path[1:]):
            assert any(calls(file, name) for file in named_files(caller)), (caller, name)


@functools.cache
def imports(path: Path) -> set[Path]:
    """Return the plugin files of the collection that this file imports."""
    found = [part for name, names in collection_imports(path) for part in (name, *(f"{name}/{one}" for one in names))]
    return {file for file in (CHECKOUT / "plugins" / f"{part}.py" for part in found) if file.is_file()}


def reached(starts: list[Path]) -> set[Path]:
    """Return these files and those that they import, directly or not."""
    seen: set[Path] = set()
    left = set(starts)
    while left:
        path = left.pop()
        seen.add(path)
        left |= imports(path) - seen
    return seen


def test_every_file_without_a_client_is_in_the_contract_that_keeps_it_so() -> None:
    """pyproject.toml names, above the hosts, each file that reaches no client and nothing that acts on a host."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]
    root = f"{PLUGINS}.module_utils."
    contract = next(one for one in settings["contracts"] if one["type"] == "forbidden")
    listed = {name.removeprefix(root) for name in contract["source_modules"]}
    forbidden = {name.removeprefix(root) for name in contract["forbidden_modules"]}
    folder = CHECKOUT / "plugins" / "module_utils"
    pure = set()
    for path in folder.glob("*/*.py"):
        found = {file.relative_to(folder).with_suffix("").as_posix().replace("/", ".") for file in reached([path])}
        if path.parent.name not in {"host", "nats"} and not found & forbidden:
            pure.add(f"{path.parent.name}.{path.stem}")
    assert listed == pure


@pytest.mark.parametrize("row", behaviours(), ids=lambda row: " ".join(row[2]))
def test_each_behaviour_is_in_its_documented_place(row: list[list[str]]) -> None:
    """The behaviour's playbooks exist, a role or playbook calls its modules and filters, and these import the rules."""
    _title, playbooks, plugins, rules = row
    for name in playbooks:
        assert (CHECKOUT / "playbooks" / f"{name}.yml").is_file(), name
    callers = [path for role in ("nats_cluster", "nats_server") for path in tasks(role)]
    callers += [*(CHECKOUT / "roles").glob("*/templates/*"), *(CHECKOUT / "playbooks").glob("*.yml")]
    written = "".join(path.read_text() for path in callers if path.is_file())
    files = []
    for name in plugins:
        assert f"natsops.jetstream.{name}" in written, name
        files += [
            path
            for kind in ("modules", "filter", "lookup", "action")
            for path in (CHECKOUT / "plugins" / kind).glob(f"{name}.py")
        ]
        assert files, name
    for rule in rules:
        assert CHECKOUT / "plugins" / "module_utils" / f"{rule}.py" in reached(files), rule
