# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints measures of the code's structure from the tree, as a table: ``python3 tools/structure.py``. Needs PyYAML.

Counted are plugins, the roles' programs and extensions; in roles: variables with `__`, whether defined, set or
registered."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
#: Maximum lines of a function, and of a file that is not only data.
LONG_FUNCTION, LONG_FILE = 60, 700
_PRIVATE = re.compile(r"\bnats_(?:server|cluster|insights|program)__\w+")
_OPERATOR = re.compile(r"\b(?:and|or)\b")


def sources() -> list[Path]:
    """Return the Python files of the collection itself."""
    return sorted(path for folder in ("plugins", "roles", "extensions") for path in (ROOT / folder).rglob("*.py"))


def packages() -> dict[str, int]:
    """Return the lines of each package of module_utils, the largest first, and as "" those of the other files."""
    folder = ROOT / "plugins" / "module_utils"
    lines: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        lines["/".join(path.relative_to(folder).parts[:-1])] += length(path)
    return dict(lines.most_common())


def length(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function and its lines, without its docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            text = (first.end_lineno or 0) - first.lineno + 1 if is_text else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - text


def code_lines(path: Path) -> int:
    """Return the lines of a file without those of the documentation that Ansible reads from strings."""
    text = path.read_text()
    documented = 0
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in {"DOCUMENTATION", "EXAMPLES", "RETURN"}:
            documented += (node.end_lineno or 0) - node.lineno + 1
    return len(text.splitlines()) - documented


def is_data(path: Path) -> bool:
    """Return whether a file is only data, as the declarations of a table's columns: at most a twentieth of its lines
    belongs to functions and classes."""
    text = path.read_text()
    body = ast.parse(text).body
    named = [node for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in named) * 20 <= len(text.splitlines())


def repeated_classes() -> dict[str, int]:
    """Return the names of classes that several files define, with the number of definitions."""
    found = Counter(
        node.name for path in sources() for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    )
    return {name: times for name, times in found.most_common() if times > 1}


def worker_calls(path: Path) -> list[tuple[str, str]]:
    """Return each call in a module's `main` that does the module's work: the called function, and the worker that is
    passed to it by name or in a lambda. The first is empty for a worker that is called directly, the second for a
    lambda that calls no function of the file."""
    body = ast.parse(path.read_text()).body
    mains = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    nodes = [node for main in mains for node in ast.walk(main)]
    own = {node.name for node in (*body, *nodes) if isinstance(node, ast.FunctionDef)}
    in_lambdas = {id(part) for node in nodes if isinstance(node, ast.Lambda) for part in ast.walk(node)}
    found = []
    for call in nodes:
        if not isinstance(call, ast.Call) or id(call) in in_lambdas:
            continue
        if not call.args or ast.unparse(call.args[0]) != "module":
            continue
        if (called := ast.unparse(call.func)) in own:
            found.append(("", called))
        for work in call.args[1:]:
            inner = work.body if isinstance(work, ast.Lambda) else work
            name = ast.unparse(inner.func if isinstance(inner, ast.Call) else inner)
            if name in own or isinstance(work, ast.Lambda):
                found.append((called, name if name in own else ""))
    return found


def role_files() -> list[Path]:
    return sorted(
        path for part in ("tasks", "vars", "defaults", "handlers") for path in ROOT.glob(f"roles/*/{part}/**/*.yml")
    )


def private_variables() -> set[str]:
    """Return the private names of roles: variables, facts and registers."""
    return {name for path in role_files() for name in _PRIVATE.findall(path.read_text())}


def chain() -> list[str]:
    """Return the longest chain of role variables: each reads the next one."""
    reads: dict[str, set[str]] = {}
    for path in role_files():
        document = yaml.safe_load(path.read_text())
        for name, value in document.items() if path.parts[-2] != "tasks" and isinstance(document, Mapping) else ():
            reads.setdefault(str(name), set()).update(set(re.findall(r"\bnats_\w+", str(value))) - {str(name)})
    known: dict[str, list[str]] = {}

    def longest(name: str, above: frozenset[str]) -> list[str]:
        if name not in known:
            below = [longest(one, above | {name}) for one in sorted(reads[name] & reads.keys() - above)]
            known[name] = [name, *max(below, key=len, default=[])]
        return known[name]

    return max((longest(name, frozenset([name])) for name in sorted(reads)), key=len, default=[])


def conditionals() -> int:
    """Return the number of conditions of tasks that combine several with `and` or `or`."""

    def of(value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, one in value.items():
                if "." in key:  # arguments of a module, such as `until`
                    continue
                if key in {"when", "failed_when", "changed_when", "until"}:
                    yield from map(str, one if isinstance(one, list) else [one])
                else:
                    yield from of(one)
        elif isinstance(value, list):
            for one in value:
                yield from of(one)

    return sum(
        bool(_OPERATOR.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", text)))
        for path in role_files()
        for text in of(yaml.safe_load(path.read_text()))
    )


@dataclass(frozen=True)
class Measure:
    """A figure and its limit. `detail`: its place."""

    name: str
    value: int
    limit: int
    detail: str = ""


def measures() -> Iterator[Measure]:
    """Yield all measures with the limits of CONTRIBUTING and DESIGN; tests/unit/packaging/test_structure.py checks them."""
    sizes = packages()
    inner = {name: lines for name, lines in sizes.items() if name}
    largest = max(inner, key=lambda name: inner[name])
    yield Measure("packages of `module_utils`", len(inner), 14)
    yield Measure(
        "percent of its lines in the largest package", round(100 * inner[largest] / sum(sizes.values())), 15, largest
    )
    yield Measure("private variables of roles", len(private_variables()), 250)
    longest = chain()
    yield Measure("longest chain of variables", len(longest), 6, longest[0])
    yield Measure("conditions with `and` or `or`", conditionals(), 15)
    yield Measure("class names defined several times", len(repeated_classes()), 8)
    combinations = {call for path in ROOT.glob("plugins/modules/*.py") for call in worker_calls(path)}
    yield Measure("combinations of runners and workers in modules", len(combinations), 3)
    long = [name for path in sources() for name, size in functions(path) if size > LONG_FUNCTION]
    yield Measure(f"functions over {LONG_FUNCTION} lines", len(long), 0, ", ".join(long))
    long_files = [
        str(path.relative_to(ROOT)) for path in sources() if code_lines(path) > LONG_FILE and not is_data(path)
    ]
    yield Measure(f"files over {LONG_FILE} lines", len(long_files), 0, ", ".join(long_files))


def main() -> None:
    print("| measure | value | limit |\n|---|---:|---:|")
    for one in measures():
        print(f"| {one.name} | {one.value}{f' (`{one.detail}`)' if one.detail else ''} | {one.limit} |")


if __name__ == "__main__":
    main()
