# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Encrypts stored archives in the age format (age-encryption.org/v1), with pyrage.

Encryption and decryption use a pipe to a thread, so at most about 100 KB of an archive are in memory. The library is
imported only when keys are used.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Optional, cast

from ..host.s2 import ArchiveError
from ..nats.failures import MissingLibrary, NatsFailure

METHOD = "age"
_SECRET = "AGE-SECRET-KEY-"
#: pyrage's error if no identity can decrypt the header.
_NO_MATCH = "No matching keys"


def _library() -> Any:
    try:
        import pyrage
        import pyrage.ssh
        import pyrage.x25519
    except ImportError as error:
        raise MissingLibrary("pyrage", traceback.format_exc()) from error
    return pyrage


@dataclass(frozen=True)
class Keys:
    """The recipients to encrypt archives to (empty for unencrypted archives), and the file with identities that decrypt
    them. `passing`: an identity that exists only in this process, with which the process can read back its own archives
    without an identity file."""

    recipients: tuple[str, ...] = ()
    identity_file: Optional[Path] = None
    passing: Any = None

    @property
    def encrypt(self) -> bool:
        return bool(self.recipients) or self.passing is not None

    def require(self) -> None:
        """Raise NatsFailure invalid_option for an invalid recipient, and MissingLibrary."""
        _recipients(self.recipients)

    def with_passing(self) -> Keys:
        """Return the keys with which an archive is written, whether encrypted or not."""
        return replace(self, passing=_library().x25519.Identity.generate()) if self.encrypt else self


#: For unencrypted archives.
NO_KEYS = Keys()


def only_passing() -> Keys:
    """Return keys for data that only this process reads."""
    return Keys(passing=_library().x25519.Identity.generate())


def _recipients(texts: Sequence[str]) -> list[Any]:
    return [_recipient(text.strip()) for text in texts]


def is_secret(text: str) -> bool:
    """Return whether a text is a secret key."""
    return _SECRET in text.upper() or "PRIVATE KEY" in text


def _recipient(text: str) -> Any:
    if is_secret(text):
        raise NatsFailure("invalid_option", "encrypt_to: one entry is a secret key; use its public recipient instead")
    library = _library()
    try:
        if text.startswith("ssh-"):
            return library.ssh.Recipient.from_str(text)
        return library.x25519.Recipient.from_str(text)
    except library.RecipientError as error:
        reason = f"encrypt_to: {text!r} is not an age recipient ({error}): use age1..., ssh-ed25519 ... or ssh-rsa ..."
        raise NatsFailure("invalid_option", reason) from error


def _identities(path: Path) -> list[Any]:
    """Return the identities in a file written by `age-keygen` or `ssh-keygen`. Raises NatsFailure that does not quote
    the file's contents."""
    library = _library()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NatsFailure("invalid_option", f"identity_file: cannot read {path}: {error.strerror}") from error
    try:
        if b"PRIVATE KEY-----" in data:
            return [library.ssh.Identity.from_buffer(data)]
        lines = [line.strip() for line in data.decode().splitlines()]
        found = [library.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (library.IdentityError, UnicodeDecodeError):
        found = []
    if not found:
        # The library's message may quote the line.
        reason = (
            f"identity_file: {path} does not contain a readable identity: use age-keygen, or ssh-keygen without a "
            "passphrase"
        )
        raise NatsFailure("invalid_option", reason)
    return found


class _Pump:
    """A thread that encrypts or decrypts at the other end of a pipe, and keeps the exception that it raised."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join()


class _Remembering:
    """A file that remembers the exception that it raised, because the library replaces the message."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: Optional[BaseException] = None

    def read(self, size: int) -> bytes:
        return self._kept(lambda: self._file.read(size))

    def write(self, data: bytes) -> int:
        return self._kept(lambda: self._file.write(data))

    def flush(self) -> None:
        self._kept(self._file.flush)

    def _kept(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BaseException as error:
            self.error = error
            raise


class _Encrypting:
    """Encrypts everything written to it and writes the result to a different file."""

    def __init__(self, file: BinaryIO, keys: Keys) -> None:
        library, recipients = _library(), _recipients(keys.recipients)
        recipients += [keys.passing.to_public()] if keys.passing is not None else []
        source, sink = os.pipe()
        self._sink = os.fdopen(sink, "wb")
        self._file = _Remembering(file)

        def encrypt() -> None:
            with open(source, "rb") as plain:
                library.encrypt_io(plain, self._file, recipients)

        self._pump = _Pump(encrypt)

    def write(self, data: bytes) -> int:
        try:
            return self._sink.write(data)
        except BrokenPipeError:
            self._finish()
            raise

    def close(self) -> None:
        """Encrypt the remaining data. Raises the exception of the underlying file, if any."""
        with contextlib.suppress(BrokenPipeError):
            self._sink.close()
        self._finish()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._sink.close()
        self._pump.join()

    def _finish(self) -> None:
        self._pump.join()
        error = self._file.error or self._pump.error
        if error is not None:
            raise error


@contextlib.contextmanager
def encrypted(file: BinaryIO, keys: Keys) -> Iterator[BinaryIO]:
    """Yield a file that writes to `file`, and encrypts the data if there are recipients. Raises the exceptions of
    `file`."""
    if not keys.encrypt:
        yield file
        return
    writer = _Encrypting(file, keys)
    try:
        yield cast(BinaryIO, writer)
    except BaseException:
        writer.abandon()
        raise
    writer.close()


class _Decrypting:
    """Decrypts the contents of an encrypted file."""

    def __init__(self, file: BinaryIO, identities: Sequence[Any], hint: str) -> None:
        library = _library()
        self._library, self._hint = library, hint
        source, sink = os.pipe()
        self._source = os.fdopen(source, "rb")
        self._file = _Remembering(file)

        def decrypt() -> None:
            with open(sink, "wb") as plain:
                library.decrypt_io(self._file, plain, identities)

        self._pump = _Pump(decrypt)

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        if size < 0 or len(data) < size:
            self._pump.join()
            self._require_whole()
        return data

    def close(self) -> None:
        # This ends a thread that still has data to write.
        self._source.close()
        self._pump.join()

    def _require_whole(self) -> None:
        error = self._file.error or self._pump.error
        if isinstance(error, self._library.DecryptError) and _NO_MATCH in str(error):
            raise NatsFailure("no_identity", self._hint) from error
        if isinstance(error, self._library.DecryptError) or (error is self._pump.error and isinstance(error, OSError)):
            raise ArchiveError(f"it cannot be decrypted: it is truncated or altered ({error})") from error
        if error is not None:
            raise error


@contextlib.contextmanager
def decrypted(file: BinaryIO, keys: Keys, encrypted_to: Sequence[str], where: str) -> Iterator[BinaryIO]:
    """Yield a file with the decrypted contents of `file`. `encrypted_to` and `where` are for messages.

    Raises NatsFailure, with code no_identity if no identity fits; while reading, also ArchiveError for altered or
    truncated data.
    """
    identities = [keys.passing] if keys.passing is not None else []
    names = ", ".join(text.split(" ")[-1] if text.startswith("ssh-") else text for text in encrypted_to)
    if not identities:
        if keys.identity_file is None:
            reason = f"{where} is encrypted to {names}: set `identity_file` to the file with its identity"
            raise NatsFailure("no_identity", reason)
        identities = _identities(keys.identity_file)
    hint = (
        f"{where} is encrypted to {names}, but {keys.identity_file} has no matching identity: use another "
        "`identity_file`"
    )
    reader = _Decrypting(file, identities, hint)
    try:
        yield cast(BinaryIO, reader)
    finally:
        reader.close()
