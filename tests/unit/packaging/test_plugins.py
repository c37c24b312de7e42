# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each plugin is named in a test, and is either for users or marked as internal; modules have the same shape."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from structure import worker_calls
from support.documents import CHECKOUT

PLUGINS = [
    *(
        path.stem
        for kind in ("action", "filter", "inventory", "lookup", "modules")
        for path in CHECKOUT.glob(f"plugins/{kind}/*.py")
    ),
    *(path.stem for path in CHECKOUT.glob("extensions/eda/plugins/event_source/*.py")),
]
#: Modules that only read, although they return no data for other tasks: their result is whether a check passes.
READING = {"nats_check", "nats_cluster_health"}


def worker_name(module: str) -> str:
    """Return the name of a module's worker function."""
    if module in READING or module.endswith(("_info", "_facts")):
        return "read"
    return "plan" if module.endswith("_plan") else "ensure"


def shape_problems(path: Path) -> list[str]:
    """Return the deviations of a module from the skeleton in CONTRIBUTING.md."""
    worker = worker_name(path.stem)
    functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    workers = [name for name in functions if name in ("read", "plan", "ensure")]
    problems = [] if workers == [worker] else [f"workers: {workers}, expected: {worker}"]
    calls = worker_calls(path)
    return problems if calls == [("run", worker)] else [*problems, f"main calls {calls}, expected: run with {worker}"]


def test_each_module_runs_one_worker_that_is_named_by_its_kind() -> None:
    """Modules without `main` document an action plugin."""
    paths = [path for path in CHECKOUT.glob("plugins/modules/*.py") if "def main(" in path.read_text()]
    assert len(paths) > 80
    assert {path.stem: problems for path in paths if (problems := shape_problems(path))} == {}
    assert sorted(READING - {path.stem for path in paths}) == []


@pytest.mark.parametrize(
    ("name", "functions", "call"),
    [
        ("nats_x", "read", "run(module, with_client, read)"),
        ("nats_x_info", "ensure", "run(module, with_client, ensure)"),
        ("nats_x_facts", "plan", "run(module, with_client, plan)"),
        ("nats_x_plan", "ensure", "run(module, with_client, lambda client: ensure(client))"),
        ("nats_x", "ensure read", "run(module, with_client, ensure)"),
        ("nats_x", "work", "run(module, with_client, work)"),
        ("nats_x", "ensure", "module.exit_json(**ensure(module))"),
        ("nats_x", "ensure", "run_alone(module, ensure)"),
        ("nats_x", "ensure other", "run(module, with_client, lambda client: other(client))"),
        ("nats_x", "ensure", "run(module, with_client, lambda client: {**ensure(client)})"),
        ("nats_x", "ensure", "run(module, with_client, ensure); run(module, with_options, ensure)"),
    ],
)
def test_modules_of_another_shape_are_found(tmp_path: Path, name: str, functions: str, call: str) -> None:
    path = tmp_path / f"{name}.py"
    workers = "".join(f"def {function}(): ...\n" for function in functions.split())
    path.write_text(f"{workers}def main():\n    {call}\n")
    assert len(shape_problems(path)) > 0
    right = worker_name(name)
    path.write_text(f"def {right}(): ...\ndef main():\n    run(module, with_client, lambda client: {right}(client))\n")
    assert shape_problems(path) == []


def test_no_module_logs_secrets() -> None:
    """Ansible's own class logs secrets in lists and dictionaries, see module_utils/collection_module.py."""
    assert [path for path in CHECKOUT.glob("plugins/mod*/**/*.py") if "AnsibleModule(" in path.read_text()] == []


def test_each_plugin_is_named_in_a_test() -> None:
    words = {
        word
        for path in (CHECKOUT / "tests").rglob("test_*.py")
        if path != Path(__file__)
        for word in re.findall(r"\bnats_\w+", path.read_text())
    }
    assert len(PLUGINS) > 50
    assert sorted(set(PLUGINS) - words) == []


def test_a_filter_without_a_guide_is_marked_as_internal() -> None:
    guides = " ".join(path.read_text() for path in CHECKOUT.glob("docs/*.md"))
    filters = list(CHECKOUT.glob("plugins/filter/*.py"))
    marked = {path.stem for path in filters if "may change in any release" in " ".join(path.read_text().split())}
    # This one is for templates of every configuration.
    named = {path.stem for path in filters if re.search(rf"\b{path.stem}\b", guides)} | {"nats_conf"}
    assert {"nats_lock_share", "nats_tls_use"} <= marked and "nats_accounts_document" in named
    assert sorted({path.stem for path in filters} - marked - named) == []
    assert sorted(marked & named) == []
