# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seeds in files on the controller, in the layout of nsc's key store: keys/A/CX/ACX….nk (nsc/cmd/store/keys.go)."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ..host.files import to_disk
from ..nats.failures import NatsFailure
from .keys import ACCOUNT
from .seeds import InvalidSeed, SeedKey, read_seed

#: A file with one seed has fewer bytes.
_LARGEST = 64 * 1024


class KeyDirectory:
    """The directory `path` with the seeds of accounts. Files have mode 0600, and folders 0700."""

    def __init__(self, path: str) -> None:
        self.path = Path(os.path.expanduser(path))

    def find(self, public: str) -> SeedKey | None:
        """Return the key with this public key, or None if the directory does not have it. Raises NatsFailure
        invalid_option for a file that is not this key's."""
        file = self.seed_path(public)
        if not file.exists():
            return None
        key = seed_in_file(str(file), [ACCOUNT], "key_directory")
        if key.public != public:
            raise NatsFailure("invalid_option", f"key_directory: {file} has the seed of {key.public}")
        return key

    def save(self, key: SeedKey) -> None:
        """Write a new key to its file. Raises NatsFailure invalid_option if the directory cannot be written."""
        file = self.seed_path(key.public)
        try:
            for folder in (self.path, self.path / "keys", file.parent.parent, file.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as output:
                # nsc refuses to import a key whose file has any other content (keys.go StoreKey).
                output.write(key.seed)
                output.flush()
                os.fsync(output.fileno())
            to_disk(file.parent)
        except OSError as error:
            raise NatsFailure(
                "invalid_option", f"key_directory: cannot write {file}: {error.strerror}; nothing was changed"
            ) from error

    def seed_path(self, public: str) -> Path:
        """Return the path of the file for the seed of this public key."""
        return self.path / "keys" / public[0] / public[1:3] / f"{public}.nk"


def seed_in_file(path: str, kinds: Collection[str], option: str) -> SeedKey:
    """Return the key of the seed in a file. Raises NatsFailure invalid_option with the name of the option."""
    file = Path(os.path.expanduser(path))
    try:
        with open(file, "rb") as source:
            text = source.read(_LARGEST).decode("utf-8", errors="replace")
    except OSError as error:
        raise NatsFailure("invalid_option", f"{option}: cannot read {file}: {error.strerror}") from error
    try:
        return read_seed(text, kinds)
    except InvalidSeed as error:
        raise NatsFailure("invalid_option", f"{option}: {file}: {error}") from error


def given_seed(seed: str | None, file: str | None, kinds: Collection[str], option: str) -> SeedKey:
    """Return the key of an option with a seed, or of the option with the path of its file (`OPTION_file`). Raises
    NatsFailure invalid_option."""
    if seed is None:
        return seed_in_file(str(file), kinds, f"{option}_file")
    try:
        return read_seed(seed, kinds)
    except InvalidSeed as error:
        raise NatsFailure("invalid_option", f"{option}: {error}") from error
