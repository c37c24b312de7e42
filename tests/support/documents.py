# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the commands that readers run from the fenced blocks of the documents at the root and of the guides in docs.
Also returns the variables that the roles accept."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from support.clean_output import clean

CHECKOUT = Path(__file__).resolve().parents[2]
#: The documents exclude docs/reference, which is generated from the code.
PATHS = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((CHECKOUT / "docs").glob("*.md")),
    *sorted((CHECKOUT / "docs/internals").glob("*.md")),
]


@cache
def role_specs(role: Path) -> dict[str, Any]:
    """Return the argument specs of a role by entry point. The specs are parsed only once, because the largest takes a
    second."""
    return dict(yaml.load((role / "meta/argument_specs.yml").read_text(), Loader=yaml.CSafeLoader)["argument_specs"])


@cache
def role_options() -> dict[str, dict[str, Any]]:
    """Return the specification of each variable of the roles."""
    return {
        name: option
        for specs in sorted((CHECKOUT / "roles").glob("*/meta/argument_specs.yml"))
        for entry in role_specs(specs.parents[1]).values()
        for name, option in entry.get("options", {}).items()
    }


@dataclass(frozen=True)
class Command:
    """One command as a shell reads it, with its continuation lines and without comments on their own line."""

    where: str
    """File and line."""
    text: str


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    path: str
    """The document's path in the checkout."""
    line: int
    """The number of the block's first line."""
    language: str
    """The word after the fence: sh, yaml, …; empty for a picture."""
    heading: str
    file: str
    """The name of the file that it is, where the sentence before it ends with it: "`inventory.yml`:"."""
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """The commands in a shell block; a loop, or any other indented line, belongs to the line before it."""
        found: list[Command] = []
        goes_on = False
        for number, line in enumerate(self.text.splitlines(), self.line):
            if goes_on or line.startswith((" ", "done")):
                last = found.pop()
                found.append(Command(last.where, f"{last.text}\n{line}"))
            elif line.strip() and not line.startswith("#"):
                found.append(Command(f"{self.path}:{number}", line))
            goes_on = line.endswith("\\")
        return found


@dataclass(frozen=True)
class Document:
    """One of the documents, by its path in the checkout."""

    path: str

    @cached_property
    def text(self) -> str:
        return (CHECKOUT / self.path).read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        """The fenced blocks of the document, in order."""
        found: list[Block] = []
        heading, before, start, language = "", "", 0, ""
        inside: list[str] | None = None
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.startswith("```") and inside is None:
                inside, start, language = [], number + 1, line[3:].strip()
            elif line.startswith("```") and inside is not None:
                named = re.search(r"`([\w./-]+\.\w+)`[^`]*:$", before)
                text = "".join(f"{one}\n" for one in inside)
                found.append(Block(self.path, start, language, heading, named[1] if named else "", text))
                inside, before = None, ""
            elif inside is not None:
                inside.append(line)
            elif line.startswith("#"):
                heading, before = line.lstrip("# "), ""
            elif line.strip():
                before = line
        if inside is not None:
            raise ValueError(f"{self.path}:{start - 1}: a block is not closed")
        return found

    def of(self, *languages: str) -> list[Block]:
        """The blocks of the document in these languages."""
        return [block for block in self.blocks if block.language in languages]


DOCUMENTS = [Document(str(path.relative_to(CHECKOUT))) for path in PATHS]


def typed(text: str, inside: Sequence[str] = (), **where: Any) -> str:
    """Run the text in a shell, through the command `inside`, and return its output. `where`: cwd and env, as in
    subprocess.

    Fails if the shell fails.
    """
    done = subprocess.run(
        [*inside, "bash", "-c", text],
        **where,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}"
    return clean(done.stdout)


class Terminal:
    """One shell of a user: its working directory and exported variables persist from block to block."""

    def __init__(self, home: Path, folder: Path, environment: dict[str, str]) -> None:
        self._state = home / ".state"
        self._state.write_text(f"cd {folder}\n")
        # Only the variables that locate pip's packages and save CPU time are copied from the tests' environment.
        self._environment = {
            key: value for key, value in os.environ.items() if key.startswith("PIP_") or key == "PYTHONPATH"
        }
        self._environment |= {
            "HOME": str(home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **environment,
        }

    def type(self, text: str, inside: Sequence[str] = ()) -> str:
        """Run the text, through the command `inside`, and return its output. Fails if any command fails."""
        script = (
            f'. {self._state}\nset -eo pipefail\n{text}\n{{ export -p; printf "cd %q\\n" "$PWD"; }} > {self._state}\n'
        )
        return typed(script, inside, env=self._environment)

    @property
    def folder(self) -> Path:
        return Path(self.type("pwd").strip())
