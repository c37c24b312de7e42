# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Encrypted archives can only be opened by their identities, and are never accepted if they are incomplete."""

from __future__ import annotations

import io
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyrage
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive_contents import sha256_of
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import backup_row
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.encryption import (
    Keys,
    decrypted,
    encrypted,
    only_passing,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.files import (
    Backup,
    format_of_backup,
    read_backup,
    require_opened,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import ENCRYPTED_ARCHIVE
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.verify import CHECKSUM, CONTENTS, verify
from ansible_collections.natsops.jetstream.plugins.module_utils.host.s2 import ArchiveError
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import MissingLibrary, NatsFailure
from ansible_collections.natsops.jetstream.plugins.modules.nats_backup_info import read
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.manifests import change_manifest

ARCHIVES = Path(__file__).parents[1] / "backup" / "archives"


@pytest.fixture
def identity() -> Any:
    return pyrage.x25519.Identity.generate()


def identity_file(directory: Path, *identities: Any) -> Path:
    path = directory / f"identity-{len(list(directory.iterdir()))}.txt"
    path.write_text("# created: 2026-11-24\n" + "".join(f"{identity}\n" for identity in identities))
    return path


def seal(data: bytes, keys: Keys) -> bytes:
    sealed = io.BytesIO()
    with encrypted(sealed, keys) as file:
        for start in range(0, len(data), 100_000):
            file.write(data[start : start + 100_000])
    return sealed.getvalue()


def unseal(data: bytes, keys: Keys) -> bytes:
    with decrypted(io.BytesIO(data), keys, keys.recipients, "the archive") as file:
        return file.read()


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_there_and_back(identity: Any, tmp_path: Path, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    other = pyrage.x25519.Identity.generate()
    keys = Keys((str(other.to_public()), str(identity.to_public())), identity_file(tmp_path, identity))
    sealed = seal(data, keys)
    assert sealed.startswith(b"age-encryption.org/v1\n")
    assert size < 16 or data[:16] not in sealed
    assert unseal(sealed, keys) == data
    assert (
        unseal(sealed, replace(keys, identity_file=identity_file(tmp_path, pyrage.x25519.Identity.generate(), other)))
        == data
    )
    assert pyrage.decrypt(sealed, [identity]) == data  # as any other age program would


def test_archive_with_an_ephemeral_key_is_read_by_this_process(identity: Any, tmp_path: Path) -> None:
    keys = Keys((str(identity.to_public()),)).with_passing()
    sealed = seal(b"data", keys)
    assert unseal(sealed, keys) == b"data"
    with pytest.raises(NatsFailure):
        unseal(sealed, only_passing())
    assert unseal(sealed, Keys(keys.recipients, identity_file(tmp_path, identity))) == b"data"


def test_without_recipients_nothing_is_encrypted() -> None:
    assert not Keys().encrypt
    assert Keys().with_passing() == Keys()
    assert seal(b"data", Keys()) == b"data"


def test_ssh_keys(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    encoding, kind = serialization.Encoding, serialization.PublicFormat
    public = key.public_key().public_bytes(encoding.OpenSSH, kind.OpenSSH).decode()
    path = tmp_path / "id_ed25519"
    path.write_bytes(key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()))
    assert unseal(seal(b"data", Keys((public,))), Keys(identity_file=path)) == b"data"
    path.write_bytes(
        key.private_bytes(
            encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.BestAvailableEncryption(b"passphrase")
        )
    )
    with pytest.raises(NatsFailure):
        unseal(seal(b"data", Keys((public,))), Keys(identity_file=path))


def test_wrong_or_missing_identity(identity: Any, tmp_path: Path) -> None:
    recipient = str(identity.to_public())
    sealed = seal(b"data", Keys((recipient,)))
    wrong = Keys((recipient,), identity_file(tmp_path, pyrage.x25519.Identity.generate()))
    with pytest.raises(NatsFailure, match="has no matching identity: use another `identity_file`") as caught:
        unseal(sealed, wrong)
    assert caught.value.code == "no_identity"
    assert recipient in caught.value.description and str(wrong.identity_file) in caught.value.description
    with pytest.raises(NatsFailure, match="set `identity_file` to the file with its identity") as caught:
        unseal(sealed, Keys((recipient,)))
    assert caught.value.code == "no_identity"


@pytest.mark.parametrize("end", [10, 50, 200, 65_536, 70_000, -1])
def test_a_truncated_one(identity: Any, tmp_path: Path, end: int) -> None:
    keys = Keys((str(identity.to_public()),), identity_file(tmp_path, identity))
    with pytest.raises(ArchiveError, match="it is truncated or altered"):
        unseal(seal(b"data" * 50_000, keys)[:end], keys)


@pytest.mark.parametrize("at", [65_000, 150_000])
def test_an_altered_one(identity: Any, tmp_path: Path, at: int) -> None:
    keys = Keys((str(identity.to_public()),), identity_file(tmp_path, identity))
    sealed = bytearray(seal(b"data" * 50_000, keys))
    sealed[at] ^= 1
    with pytest.raises(ArchiveError, match="it is truncated or altered"):
        unseal(bytes(sealed), keys)


def test_a_secret_key_as_recipient_is_not_shown(identity: Any) -> None:
    with pytest.raises(NatsFailure, match="one entry is a secret key") as caught:
        Keys((str(identity),)).require()
    assert str(identity)[20:] not in caught.value.description


@pytest.mark.parametrize("text", ["", "age1nothing", "ssh-ed25519 AAAA", "me@example.com"])
def test_invalid_recipient_is_refused(text: str) -> None:
    with pytest.raises(NatsFailure, match="is not an age recipient") as caught:
        Keys((text,)).require()
    assert caught.value.code == "invalid_option"


@pytest.mark.parametrize("content", [b"", b"# only words\n", b"AGE-SECRET-KEY-1SECRETWORDS\n", b"\xff\xfe", None])
def test_a_file_without_identities(identity: Any, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "identity"
    if content is not None:
        path.write_bytes(content)
    sealed = seal(b"data", Keys((str(identity.to_public()),)))
    with pytest.raises(NatsFailure, match="identity_file: ") as caught:
        unseal(sealed, Keys(identity_file=path))
    assert caught.value.code == "invalid_option"
    assert "SECRETWORDS" not in caught.value.description


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    with pytest.raises(MissingLibrary, match="pyrage"):
        Keys(("age1x",)).require()
    Keys().require()


class Full(io.BytesIO):
    """A disk that accepts 200 KB."""

    def write(self, data: Any) -> int:
        if self.tell() > 200_000:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_full_disk_is_reported_as_such(identity: Any) -> None:
    before = threading.active_count()
    with (
        pytest.raises(OSError, match="No space left on device"),
        encrypted(Full(), Keys((str(identity.to_public()),))) as file,
    ):
        for _part in range(100):
            file.write(bytes(100_000))
    assert threading.active_count() == before


def test_reader_of_the_beginning_only(identity: Any, tmp_path: Path) -> None:
    before = threading.active_count()
    keys = Keys((str(identity.to_public()),), identity_file(tmp_path, identity))
    with decrypted(io.BytesIO(seal(bytes(3_000_000), keys)), keys, (), "it") as file:
        assert file.read(10) == bytes(10)
    assert threading.active_count() == before


# --- backups ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["2.10.27", "2.15.1"])
def backup(request: pytest.FixtureRequest, identity: Any, tmp_path: Path) -> Backup:
    """An encrypted backup, as `nats_backup` makes one."""
    path = tmp_path / "APP" / "S@then"
    shutil.copytree(ARCHIVES / f"backup-{request.param}", path)
    recipient = str(identity.to_public())
    (path / ENCRYPTED_ARCHIVE).write_bytes(seal((path / "stream.tar.s2").read_bytes(), Keys((recipient,))))
    (path / "stream.tar.s2").unlink()
    with (path / ENCRYPTED_ARCHIVE).open("rb") as file:
        sha256 = sha256_of(file)
    change_manifest(
        path,
        sha256=sha256,
        size=(path / ENCRYPTED_ARCHIVE).stat().st_size,
        archive=ENCRYPTED_ARCHIVE,
        encryption={"method": "age", "recipients": [recipient]},
    )
    return read_backup(DirectoryStore(path, Keys(identity_file=identity_file(tmp_path, identity))))


def test_an_encrypted_backup_is_verified(backup: Backup) -> None:
    contents = verify(backup, CONTENTS)
    assert contents is not None
    assert contents.as_dict() == backup.manifest.contents
    assert format_of_backup(backup) == backup.manifest.format
    assert backup_row("APP/S@then", backup.manifest)["encryption"] == backup.manifest.encryption


def test_its_checksum_needs_no_identity(backup: Backup) -> None:
    store = backup.store.with_keys(Keys())
    assert verify(replace(backup, store=store), CHECKSUM) is None
    (row,) = read(store, None, CHECKSUM)["backups"]
    assert row["problem"] == ""
    (row,) = read(store, None, CONTENTS)["backups"]
    assert "to the file with its identity" in row["problem"]
    with pytest.raises(NatsFailure) as caught:
        require_opened(replace(backup, store=store))
    assert caught.value.code == "no_identity"


def test_an_encrypted_backup_that_is_damaged(backup: Backup) -> None:
    path = Path(backup.archive)
    path.write_bytes(path.read_bytes()[:-1])
    for level in (CHECKSUM, CONTENTS):
        with pytest.raises(NatsFailure) as caught:
            verify(backup, level)
        assert caught.value.code == "damaged"
    # The archive is also refused if the manifest has neither size nor checksum.
    unknown = replace(backup, manifest=replace(backup.manifest, size=None, sha256=None))
    with pytest.raises(NatsFailure, match="cannot be decrypted") as caught:
        verify(unknown, CONTENTS)
    assert caught.value.code == "damaged"


def test_a_plain_archive_in_place_of_an_encrypted_one(backup: Backup) -> None:
    change_manifest(Path(backup.path), archive="stream.tar.s2")
    with pytest.raises(NatsFailure, match="recorded as encrypted") as caught:
        read_backup(backup.store)
    assert caught.value.code == "damaged"
