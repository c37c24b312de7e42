# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports an artifact as Galaxy does after an upload; exits with 1 if the importer rejects the artifact or logs a
warning.

    python tools/galaxy.py ARTIFACT

The importer's own runs of `ansible-test` (in a container) and of `ansible-lint` (ended after 180 seconds) are disabled,
because `make sanity` and `make lint-ansible` check more.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

from galaxy_importer.collection import CollectionFilename, import_collection
from galaxy_importer.config import Config
from galaxy_importer.exceptions import ImporterError


class Complaints(logging.Handler):
    """Keeps the importer's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


def complaints(artifact: Path) -> list[str]:
    """Return the importer's complaints about this artifact, one line each."""
    handler = Complaints()
    logging.getLogger().handlers = [handler]
    namespace, name, version = artifact.name.removesuffix(".tar.gz").split("-", 2)
    with tempfile.TemporaryDirectory() as work, artifact.open("rb") as file:
        config = Config({"ansible_local_tmp": work, "run_ansible_lint": False})
        try:
            import_collection(file, CollectionFilename(namespace, name, version), cfg=config)
        except ImporterError as error:
            handler.lines.append(f"REFUSED: {error}")
    return handler.lines


def main(artifact: Path) -> int:
    # The importer calls ansible-doc by name, so it must be on PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    lines = complaints(artifact)
    print("\n".join(lines or [f"{artifact.name} can be imported"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
