# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's JWT in a .creds file, which the server verifies at login, and options that contain either a path or the
content of the file."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_USER_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+([\w.=-]+)\s+-+END NATS USER JWT-+")


class FileContent(str):
    """The content of a file, for an option that is otherwise a path: another host may not have the file."""

    def __repr__(self) -> str:
        return "<content of a file>"


def jwt_of_credentials(text: str) -> str:
    """Return the JWT in the text of a .creds file, an empty text if there is none."""
    found = _USER_JWT.search(text)
    return found[1] if found else ""


def is_seed(text: str, kind: str = "") -> bool:
    """Return whether an option contains the seed of an nkey, not the path of its file. `kind`: the second letter, such as U.

    A seed has 58 characters. A longer one counts as a seed, too: the library then reports that it is invalid, whereas an
    unreadable path would be shown."""
    return text.startswith(f"S{kind}") and len(text) >= 58 and text.isalnum()


def read_user_claims(path: str | None) -> Mapping[str, Any]:
    """Return the payload of the JWT in a .creds file, or in its content, without verifying it; empty if the file cannot
    be read, which is then reported when connecting."""
    try:
        text = path or ""
        if text and not isinstance(path, FileContent):
            text = Path(os.path.expanduser(text)).read_text(encoding="utf-8")
        token = jwt_of_credentials(text)
        payload = token.split(".")[1] if token else ""
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))) if payload else {}
    except (OSError, ValueError, IndexError):
        return {}
    return claims if isinstance(claims, Mapping) else {}
