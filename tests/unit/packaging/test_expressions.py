# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML defines actions and where they run, Python defines conditions and reasons: Jinja expressions stay short, and
task files run once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task_include import TaskInclude

CHECKOUT = Path(__file__).resolve().parents[3]
FILES = sorted(path for folder in ("roles", "playbooks", "extensions") for path in (CHECKOUT / folder).rglob("*.yml"))
#: The maximum number of lines of an expression or a statement.
LONGEST = 3
#: Expressions that read the clock.
CLOCK = re.compile(r"\bnow\(|date_time\b")


def too_long(text: str) -> Iterator[tuple[int, int]]:
    """Return the line and the number of lines of each expression or statement that is too long."""
    for found in re.finditer(r"\{\{.*?\}\}|\{%.*?%\}", text, re.DOTALL):
        if (lines := found[0].count("\n") + 1) > LONGEST:
            yield text[: found.start()].count("\n") + 1, lines


def included(path: Path) -> set[Path]:
    """Return the task files that this file includes by name: files of its own role, and entry points of roles."""
    text = path.read_text()
    root = next((parent for parent in path.parents if parent.name == "tasks"), path.parent)
    names = re.findall(r"(?:include|import)_tasks:\s+(?:file:\s+)?([\w/.-]+\.yml)", text)
    entry_points = re.findall(
        r"(?:include|import)_role:\s+name: natsops\.jetstream\.(\w+)(?:\s+tasks_from: (\w+)\n)?", text
    )
    places = [folder / name for name in names for folder in (root, path.parent)]
    places += [CHECKOUT / "roles" / role / "tasks" / f"{name or 'main'}.yml" for role, name in entry_points]
    return {file for file in places if file.is_file()}


def content_text(value: Any) -> str:
    """Return all expressions in a value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return " ".join(map(content_text, value)) if isinstance(value, list) else str(value)


def clocks(variables: Mapping[str, str]) -> set[str]:
    """Return the variables that read the clock, directly or through another variable."""
    found: set[str] = set()
    while new := {name for name, text in variables.items() if asks_for_time(text, found)} - found:
        found |= new
    return found


def asks_for_time(text: str, clocks: set[str]) -> bool:
    return bool(CLOCK.search(text)) or not clocks.isdisjoint(re.findall(r"\w+", text))


def kept(document: Any) -> Iterator[tuple[str, str]]:
    """Return the facts that tasks set, each with the expressions that define it."""
    if isinstance(document, list):
        for item in document:
            yield from kept(item)
    elif isinstance(document, Mapping):
        for name, value in document.get("ansible.builtin.set_fact", {}).items():
            yield name, content_text([value, document.get("vars", {})])
        yield from kept(list(document.values()))


def time_or_count(document: Any, variables: Mapping[str, str]) -> list[str]:
    """Return the facts of a document that store a time or a count."""
    timed = clocks(variables)
    return [
        name
        for name, text in kept(document)
        if asks_for_time(text, timed) or re.search(rf"\b{name}\b[^}}]*[+-] *\d", text)
    ]


def test_no_expression_is_longer_than_three_lines() -> None:
    assert FILES
    found = [
        f"{path.relative_to(CHECKOUT)}:{line}: {lines} lines"
        for path in FILES
        for line, lines in too_long(path.read_text())
    ]
    assert found == [], "name parts of it as variables, or make it a function with a test"


def test_no_statement_is_there_for_its_side_effect() -> None:
    for path in FILES:
        assert not re.search(r"set\s+_\s*=", path.read_text()), path


def test_no_fact_keeps_a_time_or_a_count() -> None:
    """Modules measure their own durations, and loops have their own counters."""
    loaded = {path: DataLoader().load_from_file(str(path)) for path in FILES}
    variables = {
        name: content_text(value)
        for path, found in loaded.items()
        if {"vars", "defaults"} & set(path.parts)
        for name, value in found.items()
    }
    assert "nats_cluster__lock_due" in clocks(variables)
    assert "nats_cluster__state" in {name for found in loaded.values() for name, _text in kept(found)}
    assert [
        f"{path.relative_to(CHECKOUT)}: {name}" for path in FILES for name in time_or_count(loaded[path], variables)
    ] == []


def test_no_task_file_includes_itself_or_its_includer() -> None:
    calls = {path: included(path) for path in FILES if "tasks" in path.parts}
    roles = CHECKOUT / "roles"
    assert roles / "nats_server/tasks/restart_process.yml" in calls[roles / "nats_cluster/tasks/rolling/batch.yml"]
    assert roles / "nats_cluster/tasks/rolling/turn.yml" in calls[roles / "nats_cluster/tasks/roll.yml"]

    def reached(start: Path) -> set[Path]:
        seen: set[Path] = set()
        left = set(calls[start])
        while left:
            path = left.pop()
            seen.add(path)
            left |= calls.get(path, set()) - seen
        return seen

    assert [str(path.relative_to(CHECKOUT)) for path in calls if path in reached(path)] == []


def test_a_task_file_in_a_folder_imports_files_relative_to_its_folder() -> None:
    """ansible-core 2.16 fails for any other name if the importing file was included by an imported role."""
    imports = [
        (path, name)
        for path in (CHECKOUT / "roles").glob("*/tasks/*/**/*.yml")
        for name in re.findall(r"import_tasks: (\S+)", path.read_text())
    ]
    assert any(name.startswith("../") for _path, name in imports)
    assert [str(path.relative_to(CHECKOUT)) for path, name in imports if not (path.parent / name).is_file()] == []


@pytest.mark.parametrize("text, expected", [
    ("a: >-\n  {{ 1\n     + 2\n     + 3 }}\n", []),
    ("a: >-\n  {{ 1\n     + 2\n     + 3\n     + 4 }}\nb: '{{ 1 }}'\n", [(2, 4)]),
    ("a: |\n  {%- for x in\n  [1,\n  2,\n  3] %}\n", [(2, 4)]),
])  # fmt: skip
def test_long_expressions_are_found(text: str, expected: list[tuple[int, int]]) -> None:
    assert list(too_long(text)) == expected


@pytest.mark.parametrize("value, found", [
    ("{{ now().timestamp() }}", True),
    ("{{ ansible_facts.date_time.epoch }}", True),
    ({"ended": "{{ now(utc=true) }}"}, True),
    ("{{ later }}", True),
    ("{{ fact | int + 1 }}", True),
    ("{{ knowing }}", False),
    ("{{ other | int + 1 }}", False),
    ("{{ fact | combine(found) }}", False),
])  # fmt: skip
def test_a_fact_that_keeps_a_time_or_a_count_is_found(value: Any, found: bool) -> None:
    variables = {"later": "{{ soon + 60 }}", "soon": "{{ now().timestamp() }}", "knowing": "{{ known }}"}
    task = {"ansible.builtin.set_fact": {"fact": value}}
    assert time_or_count([{"block": [task]}], variables) == (["fact"] if found else [])
    hidden = {"ansible.builtin.set_fact": {"fact": "{{ made }}"}, "vars": {"made": value}}
    assert time_or_count([hidden], variables) == (["fact"] if found else [])


def test_no_task_has_the_environment_of_the_service() -> None:
    """Ansible writes a task's environment into the command line of its shell, and into the log with -vvv."""
    given = re.compile(r"^ *environment: .*service_environment", re.MULTILINE)
    found = [f"{path.relative_to(CHECKOUT)}: {line}" for path in FILES for line in given.findall(path.read_text())]
    assert [line for line in found if "to_json" not in line] == []


def test_result_of_a_task_is_read_only_in_its_own_file() -> None:
    """A `__result` is overwritten by the next task that registers one, so no other file may rely on it."""
    for path in FILES:
        text = path.read_text()
        for name in set(re.findall(r"\bnats_\w+__result\b", text)):
            assert f"register: {name}\n" in text, f"{path.relative_to(CHECKOUT)} reads {name}"


def test_result_of_a_task_is_not_read_after_included_tasks() -> None:
    """Included tasks may register a result as well."""
    for path in FILES:
        registered = False
        for task in re.split(r"^ *- name:", path.read_text(), flags=re.MULTILINE)[1:]:
            if re.search(r"(include|import)_(role|tasks):", task):
                registered = False
            elif re.search(r"register: nats_\w+__result\n", task):
                registered = True
            elif re.search(r"\bnats_\w+__result\b", task):
                assert registered, f"{path.relative_to(CHECKOUT)}: {task.splitlines()[0]}"


def nested_tasks(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all tasks of a file, including those in blocks."""
    for task in document if isinstance(document, list) else ():
        if isinstance(task, Mapping):
            yield task
            for section in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
                yield from nested_tasks(task.get(section))


def test_included_files_get_only_keywords_that_ansible_accepts() -> None:
    """Ansible rejects the other keywords only when it runs the task, and ansible-lint accepts them."""
    assert "any_errors_fatal" not in TaskInclude.VALID_INCLUDE_KEYWORDS
    accepted = {*TaskInclude.VALID_INCLUDE_KEYWORDS, "ansible.builtin.include_tasks"}
    found = [
        (path.relative_to(CHECKOUT).as_posix(), sorted(keywords))
        for path in FILES
        for task in nested_tasks(DataLoader().load(path.read_text()))
        if "ansible.builtin.include_tasks" in task and (keywords := set(map(str, task)) - accepted)
    ]
    assert found == []
