# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search for seeds where no seed may be: in the arguments and environments of processes, and in files."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import tarfile
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

SEED = re.compile(rb"S[OAU][A-Z2-7]{56}")


def forms(seed: str) -> list[bytes]:
    """Return the texts that disclose a seed: its private part in base32 and hexadecimal, and the seed in base64 at each
    of the three offsets."""
    raw = base64.b32decode(seed + "=" * (-len(seed) % 8))[2:34]
    encoded = [base64.b64encode(b"x" * offset + seed.encode())[4:-4] for offset in range(3)]
    # The first two characters are the kind of the key, and the last four contain the checksum.
    return [seed[4:52].encode(), raw.hex().encode(), raw, *encoded]


def disclosed(content: bytes, seeds: Collection[str]) -> list[str]:
    """Return the kinds of the seeds that a content discloses."""
    return sorted({seed[:2] for seed in seeds for form in forms(seed) if form in content})


def files_with_seeds(root: Path, seeds: Collection[str], allowed: Collection[Path]) -> list[str]:
    """Return the files below a directory that disclose a seed. `allowed`: files and directories that may. Archives are
    unpacked."""
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or any(path == one or one in path.parents for one in allowed):
            continue
        kinds = set(disclosed(path.read_bytes(), seeds))
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                for member in archive:
                    content = archive.extractfile(member)
                    kinds.update(disclosed(content.read(), seeds) if content is not None else [])
        found += [f"{path.relative_to(root)}: {', '.join(sorted(kinds))}"] if kinds else []
    return found


class Watch:
    """Samples all processes and a directory for temporary files, several times a second.

    `processes`: the arguments and environments with text that resembles a seed, by process. `readable`: temporary files
    with such a text that other users could read. `samples`: the number of samples; `private`: the number of temporary
    files with such a text that only their owner could read."""

    def __init__(self, directory: Path) -> None:
        self.processes: dict[str, bytes] = {}
        self.readable: dict[str, bytes] = {}
        self.private = 0
        self.samples = 0
        self._directory = directory
        self._done = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[Watch]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join()
            self._done.clear()

    def _run(self) -> None:
        while not self._done.wait(0.02):
            self._sample()
            self.samples += 1

    def _sample(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    content = (process / name).read_bytes()
                    if SEED.search(content):
                        self.processes[f"{process.name} {name}"] = content
        for folder, _folders, files in os.walk(self._directory):
            for name in files:
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    content = path.read_bytes()
                    if not SEED.search(content):
                        continue
                    if self._is_private(path):
                        self.private += 1
                    else:
                        self.readable[str(path)] = content

    def _is_private(self, path: Path) -> bool:
        """Return whether the mode of a file, or of a directory on its path, keeps other users out."""
        inside = [path, *(one for one in path.parents if self._directory in one.parents)]
        return any(not stat.S_IMODE(one.stat().st_mode) & 0o077 for one in inside)
