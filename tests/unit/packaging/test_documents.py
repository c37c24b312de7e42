# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/from-the-nats-docs.md names existing modules and options that a test runs against real servers;
docs/spark-source.md lists every option; all links have a target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.documents import CHECKOUT, PATHS, role_specs

DOCUMENT = (CHECKOUT / "docs/from-the-nats-docs.md").read_text()
TESTS = "\n".join(
    path.read_text() for folder in ("integration", "lab") for path in (CHECKOUT / "tests" / folder).glob("*.py")
)
#: The roles' tasks are run by the tests of the playbooks.
TASKS = "\n".join(path.read_text() for path in (CHECKOUT / "roles").glob("*/tasks/*.yml"))
VARIABLES = role_specs(CHECKOUT / "roles/nats_server")["main"]["options"]


def named(kind: str) -> list[str]:
    return sorted(set(re.findall(rf"\b{kind} `(\w+)`", DOCUMENT)))


@pytest.mark.parametrize("name", named("playbook"))
def test_each_playbook_exists_and_is_run_by_a_test(name: str) -> None:
    assert (CHECKOUT / f"playbooks/{name}.yml").is_file()
    assert f'"{name}"' in TESTS


@pytest.mark.parametrize("name", named("module"))
def test_each_module_exists_and_is_run_by_a_test(name: str) -> None:
    assert (CHECKOUT / f"plugins/modules/{name}.py").is_file()
    either = re.sub("stream_|consumer_", "{kind}_", name, count=1)
    assert f'"{name}"' in TESTS or f'f"{either}"' in TESTS or f"natsops.jetstream.{name}:" in TASKS


VARIABLE_NAMES = sorted(set(re.findall(r"`(nats_server_\w+)`", DOCUMENT)))


@pytest.mark.parametrize("name", VARIABLE_NAMES)
def test_each_variable_exists_and_is_used_by_the_role(name: str) -> None:
    assert name in VARIABLES
    used = [path for path in (CHECKOUT / "roles/nats_server").rglob("*.yml") if "meta" not in path.parts]
    assert any(name in path.read_text() for path in used)


def test_every_name_in_the_document_has_its_kind() -> None:
    known = {*named("playbook"), *named("module"), *VARIABLE_NAMES, "nats_server"}
    assert set(re.findall(r"`(nats_\w+)`", DOCUMENT)) - known == set()


def test_every_option_of_the_spark_source_is_described() -> None:
    source = (CHECKOUT / "roles/nats_insights/files/jetstream_insights/source.py").read_text()
    declared = re.search(r"^_OPTIONS.*?^}", source, re.DOTALL | re.MULTILINE)
    described = re.search(
        r"^\| option \|.*?\n\n", (CHECKOUT / "docs/spark-source.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert declared and described
    rows = [line.split("|")[1].strip() for line in described[0].splitlines()[2:] if line]
    assert sorted(name for row in rows for name in row.split(", ")) == sorted(
        re.findall(r'^    "(\w+)":', declared[0], re.MULTILINE)
    )


def anchors(path: Path) -> set[str]:
    """Return a document's anchors, as GitHub derives them from the headings."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        for title in titles
    }


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _hash, anchor = link.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link
