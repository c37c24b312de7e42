# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/network.md lists every task that can connect to the outside, with the variable that defines its target."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.documents import CHECKOUT, role_options

ROWS = re.findall(
    r"^\| ([^|`]+) \| `([^`]+)` \| `(\w+)` \| [^|]+ \|$", (CHECKOUT / "docs/network.md").read_text(), re.MULTILINE
)
MODULES = {
    "apt",
    "dnf",
    "dnf5",
    "gem",
    "get_url",
    "git",
    "npm",
    "package",
    "pip",
    "subversion",
    "unarchive",
    "uri",
    "yum",
}
PROGRAMS = re.compile(
    r"(?<!\w)(apt-get|binaries\.py|curl|dnf|git|lab\.py|npm|pip|pip3|wget)\b|molecule__driver, 'build'"
)
LIBRARIES = {"http.client", "requests", "urllib.request", "urllib3", "aiohttp", "httpx", "ansible.module_utils.urls"}


class _Loader(yaml.SafeLoader):
    """Reads strings that are marked as not being templates, as Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]


def tasks(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the tasks of plays and blocks."""
    for entry in content if isinstance(content, list) else []:
        if isinstance(entry, dict):
            yield entry
            for name in ("pre_tasks", "tasks", "post_tasks", "handlers", "block", "rescue", "always"):
                yield from tasks(entry.get(name))


def reaches_out(task: dict[str, Any]) -> bool:
    """Return whether a task can connect to anything outside the host on which it runs."""
    for key, value in task.items():
        module = str(key).rpartition(".")[2]
        command = value.get("argv", value.get("cmd", "")) if isinstance(value, dict) else value
        # These commands print apt's configuration, remove a lab, or install without an index.
        local = re.search(r"indextargets|'down'|'--no-index'|'--without-pip'", str(command))
        if module in MODULES or (
            module in ("command", "shell", "script") and PROGRAMS.search(str(command)) and not local
        ):
            return True
    return False


def found() -> set[tuple[str, str]]:
    return {
        (task["name"], str(path.relative_to(CHECKOUT)))
        for folder in ("roles", "playbooks", "extensions/eda")
        for path in sorted((CHECKOUT / folder).rglob("*.yml"))
        for task in tasks(yaml.load(path.read_text(), Loader=_Loader))
        if reaches_out(task)
    }


def test_the_table_has_every_task_that_reaches_out() -> None:
    assert found() == {(task, path) for task, path, _variable in ROWS}


@pytest.mark.parametrize(("task", "path", "variable"), ROWS, ids=[path + ": " + task for task, path, _variable in ROWS])
def test_documented_variable_exists(task: str, path: str, variable: str) -> None:
    guides = "".join((CHECKOUT / "docs" / name).read_text() for name in ("awx.md", "molecule.md"))
    assert variable in role_options() or f"`{variable}`" in guides


@pytest.mark.parametrize(
    ("task", "out"),
    [
        ({"ansible.builtin.get_url": {"url": "x"}}, True),
        ({"ansible.builtin.command": {"argv": ["python", "-m", "pip", "install", "x"]}}, True),
        ({"ansible.builtin.command": {"argv": ["python", "pip.whl/pip", "install", "--no-index", "x"]}}, False),
        ({"ansible.builtin.shell": "curl x | sh"}, True),
        ({"ansible.builtin.command": {"argv": ["{{ venv }}/bin/python"], "creates": "bin/pip"}}, False),
        ({"ansible.builtin.package_facts": {}}, False),
    ],
)
def test_network_access_is_found(task: dict[str, Any], out: bool) -> None:
    assert reaches_out(task) is out


def test_python_uses_http_only_where_documented() -> None:
    """Plugins use only the NATS protocol, except for their own host's monitoring port and the report's webhook
    (docs/network.md)."""
    speaking = set()
    for folder in ("plugins", "roles", "playbooks", "extensions/eda"):
        for path in (CHECKOUT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if LIBRARIES & set(names):
                    speaking.add(str(path.relative_to(CHECKOUT)))
    assert speaking == {
        "plugins/module_utils/host/observation.py",
        "roles/nats_insights/files/jetstream_insights/report/webhook.py",
    }


def test_nothing_is_looked_up_by_url() -> None:
    files = [path for folder in ("roles", "playbooks", "extensions/eda") for path in (CHECKOUT / folder).rglob("*.yml")]
    assert [path for path in files if re.search(r"(lookup|query)\('(ansible\.builtin\.)?url'", path.read_text())] == []
