# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the Debian mirrors and keyrings that this machine's own apt configuration names.

No mirror is hard-coded: a site that has its own mirror names it in its apt sources. ``NATSOPS_DEBIAN_MIRROR`` (a URI)
sets a mirror on machines whose apt sources are not Debian's.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ARCHIVE_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_RELEASES = {
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "sid",
    "unstable",
}


class MirrorError(Exception):
    """This machine's apt configuration names no Debian mirror, or no keyring with which to verify it."""


@dataclass(frozen=True)
class Mirror:
    """One Debian mirror: the URI in a sources list, and the key that signs it."""

    uri: str
    signed_by: str
    """A keyring's path, or an ASCII-armoured key block."""

    def http_uri(self) -> str:
        """Return the mirror as a plain URI; for a ``mirror+file:`` list, which only apt reads, return its first
        entry."""
        found = re.match(r"mirror\+file:(?://)?(/.*)", self.uri)
        if not found:
            return self.uri
        for line in Path(found.group(1)).read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                return line.split()[0]
        raise MirrorError(f"the mirror list {found.group(1)} is empty")


@dataclass(frozen=True)
class _Entry:
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str


def _one_line_entries(text: str) -> Iterator[_Entry]:
    """Return the entries of a ``.list`` file (sources.list(5), one-line style)."""
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?([^#]+)", line)
        if not found:
            continue
        options = dict(word.split("=", 1) for word in shlex.split(found.group(1) or "") if "=" in word)
        words = found.group(2).split()
        if len(words) >= 2:
            yield _Entry((words[0],), (words[1],), tuple(words[2:]), options.get("signed-by", ""))


def _deb822_entries(text: str) -> Iterator[_Entry]:
    """Return the entries of a ``.sources`` file (sources.list(5), deb822 style)."""
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, list[str]] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in " \t" and name:
                fields[name].append(line.strip())
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = [value.strip()]
        words = {key: " ".join(lines).split() for key, lines in fields.items()}
        if "deb" not in words.get("types", []) or words.get("enabled", ["yes"])[0].lower() in ("no", "false", "0"):
            continue
        # In an armoured key, a single dot replaces the empty line.
        key = "\n".join("" if line == "." else line for line in fields.get("signed-by", [])).strip()
        yield _Entry(
            tuple(words.get("uris", [])), tuple(words.get("suites", [])), tuple(words.get("components", [])), key
        )


def _entries(apt_dir: Path) -> Iterator[_Entry]:
    for path in [apt_dir / "sources.list", *sorted((apt_dir / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        if path.suffix == ".list":
            yield from _one_line_entries(text)
        elif path.suffix == ".sources":
            yield from _deb822_entries(text)


def mirrors(apt_dir: Path = Path("/etc/apt")) -> list[Mirror]:
    """Return this machine's Debian mirrors, the most likely first; raise MirrorError if there is none.

    An entry counts as a mirror if its suite is a Debian release and its component is ``main``. Third parties also name
    their suites after Debian releases, so entries that are signed by Debian's archive keyring or end in ``/debian``
    come first.
    """
    own = os.environ.get("NATSOPS_DEBIAN_MIRROR")
    if own:
        return [Mirror(own, _keyring(""))]
    found: list[tuple[int, Mirror]] = []
    for entry in _entries(apt_dir):
        if "main" not in entry.components or not _RELEASES.intersection(entry.suites):
            continue
        for uri in entry.uris:
            if "debian-security" in uri:
                continue
            rank = 2 * ("debian-archive" not in entry.signed_by) + (not uri.rstrip("/").endswith("/debian"))
            mirror = Mirror(uri, _keyring(entry.signed_by))
            if mirror not in (known for _rank, known in found):
                found.append((rank, mirror))
    if not found:
        raise MirrorError(
            f"no Debian mirror in {apt_dir}/sources.list and {apt_dir}/sources.list.d: "
            "add one there, or set NATSOPS_DEBIAN_MIRROR to its URI"
        )
    return [mirror for _rank, mirror in sorted(found, key=lambda pair: pair[0])]


def _keyring(signed_by: str) -> str:
    if signed_by:
        return signed_by
    if ARCHIVE_KEYRING.exists():
        return str(ARCHIVE_KEYRING)
    raise MirrorError(f"{ARCHIVE_KEYRING} is missing: install the package debian-archive-keyring")
