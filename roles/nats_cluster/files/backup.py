# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backs up streams as nats_backup does, but without Ansible; the backup timer runs this program.

    python program.pyz SETTINGS

The settings are JSON: `connection` (options of the module's connection), `account_users`, `directory`, `streams`,
`exclude`, `keep`, `rate_limit`, `verify`, `encrypt_to`. Exit status: 0 if everything was saved, 1 if nothing was saved,
4 if some streams could not be saved.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.retention import Retention
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.run_backup import (
    BackupOutcome,
    BackupRequest,
    save_streams,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.target import requested_store
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.transfer import IDLE_TIMEOUT, requested_pace
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections, account_users
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    ConnectionOptions,
    MissingLibrary,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import Progress

COMPLETE, FAILED, INCOMPLETE = 0, 1, 4


def save(settings: dict[str, Any]) -> BackupOutcome:
    """Back up the requested streams. Raises NatsFailure."""
    given = {key: value for key, value in settings["connection"].items() if value is not None}
    own = ConnectionOptions(**{**given, "servers": tuple(given["servers"])})
    users = account_users(own, settings["account_users"])
    pace = {"idle_timeout": IDLE_TIMEOUT, "rate_limit": settings["rate_limit"], "consumers": True}
    request = BackupRequest(
        requested_store(settings),
        tuple(users),
        settings["streams"],
        settings["exclude"],
        settings["verify"],
        requested_pace(pace),
        Retention(**settings["keep"]),
    )
    with Connections(own, users) as connections:
        return save_streams(connections, request, Progress(None, None), check_mode=False)


def main(path: str) -> int:
    try:
        outcome = save(json.loads(Path(path).read_text(encoding="utf-8")))
    except MissingLibrary as missing:
        print(f"nothing was saved: {missing.library} is not installed", file=sys.stderr)
        return FAILED
    except NatsFailure as failure:
        print(f"nothing was saved: {failure.description}", file=sys.stderr)
        return FAILED
    # The catalogue lists every stream, so the host's journal does not have to.
    print("\n".join(outcome.result["screen"]))
    if outcome.failure is not None:
        print(outcome.failure.description, file=sys.stderr)
    return COMPLETE if outcome.failure is None else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
