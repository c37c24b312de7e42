# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options for the location and the keys of backups; see doc_fragments/backup_store.py, backup_encryption.py and
backup_identity.py. A location is either `directory`, with a catalogue, or `path`, without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..nats.failures import NatsFailure
from ..object_storage import SCHEME, S3Options
from .encryption import Keys, is_secret
from .s3_store import s3_store
from .store import BackupStore, DirectoryStore

#: Options for modules that only list a store.
PLACE_SPEC: dict[str, dict[str, Any]] = {
    "s3": {
        "type": "dict",
        "options": {
            "endpoint_url": {"type": "str"},
            "region": {"type": "str"},
            "access_key": {"type": "str", "no_log": False},
            "secret_key": {"type": "str", "no_log": True},
            "session_token": {"type": "str", "no_log": True},
            "ca_file": {"type": "path"},
            "addressing_style": {"type": "str", "choices": ["auto", "path", "virtual"], "default": "auto"},
        },
        "required_together": [("access_key", "secret_key")],
    }
}
#: Options for modules that read archives.
READ_SPEC: dict[str, dict[str, Any]] = {**PLACE_SPEC, "identity_file": {"type": "path"}}
#: Options for modules that write archives.
WRITE_SPEC: dict[str, dict[str, Any]] = {
    **PLACE_SPEC,
    "encrypt_to": {"type": "list", "elements": "str", "default": [], "no_log": False},
}
#: Options for runs over the streams of accounts, and for their catalogue.
_WITH_DIRECTORY = ("accounts", "exclude", "keep", "cluster_files")


def require_suitable(params: Mapping[str, Any]) -> None:
    """Raise NatsFailure invalid_option for options that do not belong to the location: those of a catalogue with
    `path`, and `force` with `directory`."""
    if params["path"] is None and params["force"]:
        raise NatsFailure(
            "invalid_option",
            "force: only with `path`, which saves one stream: remove `force`, or set `path` instead of `directory`",
        )
    unsuitable = [option for option in _WITH_DIRECTORY if params["path"] is not None and params[option]]
    if unsuitable:
        options = ", ".join(unsuitable)
        raise NatsFailure(
            "invalid_option",
            f"{options}: only with `directory`, because `path` saves one stream without a catalogue: remove {options}, "
            "or set `directory` instead of `path`",
        )


def misplaced_secrets(params: Mapping[str, Any]) -> set[str]:
    """Return the secret keys that were mistakenly given as recipients, so they can be masked in the module's output."""
    return {text for text in params["encrypt_to"] if is_secret(text)}


def requested_store(params: Mapping[str, Any], option: str = "directory") -> BackupStore:
    """Return the store that an option names, with its keys. Raises NatsFailure invalid_option, MissingLibrary."""
    identity_file = params.get("identity_file")
    keys = Keys(tuple(params.get("encrypt_to") or ()), Path(identity_file) if identity_file else None)
    keys.require()
    place = str(params[option])
    if place.startswith(SCHEME):
        return s3_store(place, S3Options(**(params.get("s3") or {})), keys)
    return DirectoryStore(Path(place), keys)
