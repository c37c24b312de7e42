# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema that editors use for the document of accounts accepts and refuses the same documents as the collection."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import InvalidDocument, parse_document
from support.documents import CHECKOUT

SCHEMA = CHECKOUT / "docs" / "reference" / "accounts.schema.json"
EXAMPLE = CHECKOUT / "docs" / "examples" / "accounts.yml"
REFUSED = (
    "accounts: {}",
    "account: {A: {}}",
    "accounts: {A: {limit: {}}}",
    "accounts: {A: {limits: {connections: -1}}}",
    "accounts: {A: {limits: {connections: many}}}",
    "accounts: {A: {limits: {payload: 5x}}}",
    "accounts: {A: {limits: {jetstream: {}}}}",
    "accounts: {A: {limits: {jetstream: {R1: {disk: 1}, disk: 5}}}}",
    "accounts: {A: {exports: [{subject: a}]}}",
    "accounts: {A: {signing_keys: {x: {builtin: y}}}}",
    "accounts: {A: {trace: {sampling: 5}}}",
    "{accounts: {A: {}}, users: {A/u: {tags: []}}}",
)


def check(*files: Path) -> subprocess.CompletedProcess[str]:
    command = ["check-jsonschema", "--schemafile", str(SCHEMA), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_schema_accepts_the_example() -> None:
    assert parse_document(EXAMPLE.read_text())
    assert EXAMPLE.read_text().startswith("# yaml-language-server: $schema=../reference/accounts.schema.json\n")
    found = check(EXAMPLE)
    assert found.returncode == 0, found.stdout


def test_schema_refuses_documents_that_the_reader_refuses(tmp_path: Path) -> None:
    files = []
    for number, text in enumerate(REFUSED):
        files.append(tmp_path / f"{number:02}.yml")
        files[-1].write_text(text)
        try:
            parse_document(text)
        except InvalidDocument:
            continue
        raise AssertionError(text)
    found = check(*files)
    assert [text for file, text in zip(files, REFUSED) if str(file) not in found.stdout] == []
