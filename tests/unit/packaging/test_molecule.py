# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/molecule.md shows the project that `make test-molecule-consumer` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import CHECKOUT, Document, role_options, role_specs

PREFIX = "natsops.jetstream."
PROJECT = CHECKOUT / "tests/consumer/orders"
#: Ansible checks any other key of a role against the role's own specification, which has no variables of other roles.
KEYWORDS = {"role", "vars", "tags", "when", "become", "become_user"}


@pytest.mark.parametrize("path", sorted(PROJECT.rglob("*.yml")), ids=lambda path: str(path.relative_to(PROJECT)))
def test_the_guide_shows_the_example(path: Path) -> None:
    guide = (CHECKOUT / "docs/molecule.md").read_text()
    assert f"`{path.relative_to(PROJECT)}`" in guide or path.name == "destroy.yml"
    # destroy.yml differs from create.yml only in names.
    content = path.read_text().replace("Destroy", "Create").replace("destroy\n", "create\n")
    assert f"```yaml\n{content.removeprefix('---' + chr(10))}```" in guide


def used_roles() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each use of a role of this collection in the fenced blocks of a document, with the place."""
    for path in [CHECKOUT / "docs/molecule.md", *sorted((CHECKOUT / "roles").glob("*/README.md"))]:
        document = Document(str(path.relative_to(CHECKOUT)))
        for block in document.of("yaml"):
            data = yaml.safe_load(block.text)
            plays = data if isinstance(data, list) else [data]
            for play in plays:
                for use in [*play.get("dependencies", []), *play.get("roles", [])]:
                    if use["role"].startswith(PREFIX):
                        yield block.where, use


def check_role(use: Mapping[str, Any]) -> None:
    spec = role_specs(CHECKOUT / "roles" / use["role"].removeprefix(PREFIX))["main"]["options"]
    assert set(use) - KEYWORDS - set(spec) == set(), f"{use['role']} refuses these: put them below vars"
    assert set(use.get("vars", {})) - set(role_options()) == set()


@pytest.mark.parametrize("use", [pytest.param(use, id=where) for where, use in used_roles()])
def test_role_of_example_gets_variables_that_it_accepts(use: dict[str, Any]) -> None:
    check_role(use)


@pytest.mark.parametrize("given", [{"nats_server_port": 1}, {"vars": {"nats_server_no_such": 1}}])
def test_variable_that_a_role_refuses_is_found(given: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check_role({"role": "natsops.jetstream.nats_cluster", **given})
