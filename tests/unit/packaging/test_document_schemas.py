# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schemas that editors use for the documents of accounts and of assets accept and refuse the same documents as the
collection."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import parse_document
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import document as assets
from ansible_collections.natsops.jetstream.plugins.module_utils.documents import InvalidDocument
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

ASSETS_SCHEMA = CHECKOUT / "docs" / "reference" / "assets.schema.json"
ASSETS_EXAMPLE = CHECKOUT / "docs" / "examples" / "assets.yml"
ASSETS_HEAD = "document: d\ncluster: C1\naccount: A\n"
ASSETS_REFUSED = (
    "",
    "stream: {S: {}}",
    "prune: some\nstreams: {S: {}}",
    "adopt: S\nstreams: {S: {}}",
    "streams: {S.a: {}}",
    "streams: {S: {num_replicas: 3}}",
    "streams: {S: {max_age: 5 bananas}}",
    "streams: {S: {max_bytes: 5x}}",
    "streams: {S: {max_msgs: many}}",
    "streams: {S: {storage: disk}}",
    "streams: {S: {sealed: 1}}",
    "streams: {S: {subjects: a}}",
    "streams: {S: {consumers: {C: {ack: none}}}}",
    "mirrors: {M: {}}",
    "mirrors: {M: {of: S, subjects: [a]}}",
    "kv: {a.b: {}}",
    "kv: {b: {entries: {k: {value: 5}}}}",
    "kv: {b: {entries: {k: {value: a, mode: keep}}}}",
    "objects: {b: {history: 5}}",
)


def check(*files: Path, schema: Path = SCHEMA) -> subprocess.CompletedProcess[str]:
    command = ["check-jsonschema", "--schemafile", str(schema), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(texts: Sequence[str], parse: Callable[[str], object], schema: Path, folder: Path) -> list[str]:
    """Return the texts that the schema accepts; the parser must refuse all of them."""
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{number:02}.yml")
        files[-1].write_text(text)
        with pytest.raises(InvalidDocument):
            parse(text)
    found = check(*files, schema=schema)
    return [text for file, text in zip(files, texts) if str(file) not in found.stdout]


def test_schema_accepts_the_example() -> None:
    assert parse_document(EXAMPLE.read_text())
    assert EXAMPLE.read_text().startswith("# yaml-language-server: $schema=../reference/accounts.schema.json\n")
    found = check(EXAMPLE)
    assert found.returncode == 0, found.stdout


def test_schema_refuses_documents_that_the_reader_refuses(tmp_path: Path) -> None:
    assert refused(REFUSED, parse_document, SCHEMA, tmp_path) == []


def test_schema_of_assets_accepts_the_example() -> None:
    text = ASSETS_EXAMPLE.read_text()
    assert assets.parse_document(text)
    assert text.startswith("# yaml-language-server: $schema=../reference/assets.schema.json\n")
    found = check(ASSETS_EXAMPLE, schema=ASSETS_SCHEMA)
    assert found.returncode == 0, found.stdout


def test_schema_of_assets_refuses_documents_that_the_reader_refuses(tmp_path: Path) -> None:
    texts = [f"{ASSETS_HEAD}{body}" for body in ASSETS_REFUSED]
    assert refused(texts, assets.parse_document, ASSETS_SCHEMA, tmp_path) == []
