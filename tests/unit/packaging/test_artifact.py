# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that the built artifact contains the files that users need and nothing else."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import CHECKOUT, role_specs

INSTALLED = Path(
    os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep)[0], "ansible_collections/natsops/jetstream"
)

needs_artifact = pytest.mark.skipif(
    not (INSTALLED / "FILES.json").is_file(), reason="not run against the installed artifact (make test-unit does)"
)

DEVELOPMENT = {
    ".cache",
    ".ci",
    ".github",
    ".demo",
    ".git",
    ".venv",
    ".ansible",
    "__pycache__",
    "output",
    "tools",
    "requirements",
    "images",
}
PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/]{40}|\bS[UAONCX][A-Z2-7]{56}\b")


def files() -> list[str]:
    listed = json.loads((INSTALLED / "FILES.json").read_text())["files"]
    return [entry["name"] for entry in listed if entry["ftype"] == "file"]


def documented(module: Path) -> dict[str, Any]:
    """Return the DOCUMENTATION of a module without importing it."""
    found = re.search(r'^DOCUMENTATION = r?"""(.*?)"""', module.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"{module.name} has no DOCUMENTATION"
    return dict(yaml.safe_load(found[1]))


@needs_artifact
def test_nothing_of_the_development_is_in_it() -> None:
    assert [name for name in files() if DEVELOPMENT & set(Path(name).parts[:-1]) or "_cache/" in name] == []


@needs_artifact
def test_every_file_is_text_of_a_sensible_size_without_private_keys() -> None:
    for name in files():
        content = (INSTALLED / name).read_text(encoding="utf-8")
        assert len(content) < 500_000, name
        assert not PRIVATE.search(content), name


@needs_artifact
@pytest.mark.parametrize("folder", ["plugins", "extensions/eda", "roles", "playbooks", "docs", "meta"])
def test_everything_a_user_needs_is_in_it(folder: str) -> None:
    wanted = {
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and "_cache" not in str(path.parent)
        and path.parent.name != "images"
    }
    assert wanted
    assert wanted - set(files()) == set()


def test_the_action_group_has_exactly_the_modules_with_connection_options() -> None:
    runtime = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text())
    connecting = [
        module.stem
        for module in sorted((CHECKOUT / "plugins/modules").glob("*.py"))
        if "natsops.jetstream.connection" in documented(module).get("extends_documentation_fragment", [])
    ]
    assert sorted(runtime["action_groups"]["nats"]) == connecting


def test_every_plugin_has_its_licence_and_is_python_3_9() -> None:
    for plugin in sorted([*(CHECKOUT / "plugins").rglob("*.py"), *(CHECKOUT / "extensions/eda").rglob("*.py")]):
        content = plugin.read_text()
        assert "License-Identifier: GPL-3.0-or-later" in "".join(content.splitlines(True)[:5]), plugin
        assert "from __future__ import annotations\n" in content, plugin


# Installation requirements are ranges, because they share an environment with other packages.
LOCKS = [
    *(
        f"requirements/{path.stem}.txt"
        for path in sorted((CHECKOUT / "requirements").glob("*.in"))
        if path.stem != "test"
    ),
    *(str(path.relative_to(CHECKOUT).with_suffix(".txt")) for path in sorted((CHECKOUT / "roles").rglob("*.in"))),
    *(str(path.relative_to(CHECKOUT)) for path in sorted((CHECKOUT / "roles").rglob("*-locked.txt"))),
]


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_every_package_by_hash_and_name_no_index(lock: str) -> None:
    content = (CHECKOUT / lock).read_text()
    packages = re.split(r"\n(?=[a-z0-9])", "\n" + re.sub(r"^#.*\n", "", content, flags=re.MULTILINE))
    assert packages
    for package in filter(str.strip, packages):
        assert re.match(r"\s*[a-z0-9.-]+(\[[a-z]+\])?==\S+", package), package
        assert "--hash=sha256:" in package, package
    assert "://" not in content
    assert "index-url" not in content


@pytest.mark.parametrize("role", sorted(path.name for path in (CHECKOUT / "roles").iterdir() if path.is_dir()))
def test_every_role_variable_and_entry_point_is_described(role: str) -> None:
    folder = CHECKOUT / "roles" / role
    specs = role_specs(folder)
    described = {name for spec in specs.values() for name in spec.get("options", {})}
    assert set(yaml.safe_load((folder / "defaults/main.yml").read_text())) - described == set()
    assert [name for name in specs if not (folder / f"tasks/{name}.yml").is_file()] == []
