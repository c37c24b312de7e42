# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws a random sample of 200 sentences for a reader to grade.

    python tools/sample_prose.py              a new sample; its seed is printed first
    python tools/sample_prose.py --seed 37    the same sample again

Each line has the kind, the file and the sentence, separated by tabs: 50 messages and titles, 50 sentences of module
pages, 50 of guides, and 50 docstrings and comments. ‹…› stands for a value. The texts of the Spark pipeline are
excluded.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import words
import yaml

EACH = 50
PIPELINE = "roles/nats_insights/files/"
#: Texts with fewer words are names.
FEWEST_WORDS = 4


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence of a paragraph on one line, except those that are too short."""
    for sentence in re.split(r"(?<=[.!?]) (?=[A-Z`*])", " ".join(text.split())):
        if sum(bool(re.search("[A-Za-z]{2}", word)) for word in sentence.split()) >= FEWEST_WORDS:
            yield sentence


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value


def _pages(tree: ast.Module, *left_out: str) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if names and names[0].isupper() and names[0] not in left_out and "\n" in node.value.value:
                yield node.value


def messages(source: str) -> Iterator[str]:
    """Yield the texts that a program shows; ‹…› stands for a value."""
    tree = ast.parse(source)
    skipped = {id(node) for node in (*_docstrings(tree), *_pages(tree))}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for value in node.values for part in ast.walk(value))
            parts = [str(value.value) if isinstance(value, ast.Constant) else "‹…›" for value in node.values]
            yield from sentences("".join(parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield from sentences(node.value)


def titles(source: str) -> Iterator[str]:
    """Yield the names of tasks and plays."""
    for title in re.findall(r"^ *- name: (.+)$", source, re.MULTILINE):
        yield from sentences(re.sub(r"{{.*?}}", "‹…›", title.split(" # noqa")[0].strip('"')))


def descriptions(found: Any) -> Iterator[str]:
    """Yield the sentences of every description in an Ansible document."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key in ("description", "short_description", "notes") and isinstance(value, (str, list)):
                for text in [value] if isinstance(value, str) else value:
                    yield from sentences(str(text))
            else:
                yield from descriptions(value)
    elif isinstance(found, list):
        for item in found:
            yield from descriptions(item)


def pages(source: str) -> Iterator[str]:
    """Yield the sentences of a plugin's page, or of a documentation fragment."""
    for text in _pages(ast.parse(source), "EXAMPLES"):
        yield from descriptions(yaml.safe_load(str(text.value)))


def guide(source: str) -> Iterator[str]:
    """Yield the sentences of a document, except code, headings and tables."""
    source = re.sub(r"^( *)```.*?^\1```", "", source, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", source):
        if not paragraph.lstrip().startswith(("|", "#", "<", "!", "[")):
            yield from sentences(re.sub(r"^ *(?:[-*]|\d+\.) ", "", paragraph))


def comments(source: str) -> Iterator[str]:
    """Yield the sentences of docstrings and comments. Consecutive comment lines form one text."""
    for docstring in _docstrings(ast.parse(source)):
        for paragraph in re.split(r"\n\s*\n", str(docstring.value)):
            yield from sentences(paragraph)
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield from sentences(" ".join(block))
                block = []
            block.append(token.string.lstrip("#: "))
            last = token.start[0]
    yield from sentences(" ".join(block))


def texts() -> dict[str, list[tuple[str, str]]]:
    """Return the file and text of everything that may be drawn, by kind."""
    found: dict[str, list[tuple[str, str]]] = {"message": [], "page": [], "guide": [], "docstring": []}

    def add(kind: str, path: str, drawn: Iterable[str]) -> None:
        found[kind] += [(path, text) for text in drawn if "SPDX" not in text and "Copyright" not in text]

    for path, source in words.files("README.md", "docs", "plugins", "roles", "playbooks", "tests", "tools").items():
        if path.startswith(PIPELINE):
            continue
        if path.endswith(".md"):
            add("guide", path, guide(source))
        elif path.endswith((".yml", ".yaml")) and path.startswith(("roles/", "playbooks/")):
            add("message", path, titles(source))
        elif path.endswith(".py"):
            add("docstring", path, comments(source))
            if re.match(r"plugins/(modules|filter|inventory|lookup|doc_fragments)/", path):
                add("page", path, pages(source))
            if path.startswith("plugins/"):
                add("message", path, messages(source))
    return found


def sample(seed: int, each: int = EACH) -> list[tuple[str, str, str]]:
    """Return kind, file and sentence of `each` texts of each kind; the sample is the same for the same seed and files."""
    chosen = random.Random(seed)
    return [(kind, *one) for kind, found in texts().items() for one in chosen.sample(sorted(set(found)), each)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw a random sample of 200 sentences for a reader to grade.")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args(arguments)
    print(f"# seed {options.seed}")
    for row in sample(options.seed):
        print("\t".join(row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
