# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a snapshot like nats_snapshot, but without Ansible. The timer runs this program.

    python collect.pyz CONFIGURATION

The configuration is JSON: `connection` (options of the module's connection), `lake` (a directory or s3://BUCKET/PREFIX),
`lake_s3` (how to reach object storage), `fleet`, `endpoints`, `expected_servers`, `deadline`, `backups` (a directory,
empty for none), `drift` (a file, empty for none), `format`. Exit status: 0 complete; 1 nothing was written; 4 written, but
incomplete.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    MissingLibrary,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.object_storage import S3Options
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import (
    ENDPOINTS,
    CaptureOptions,
    collect,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.lake_store import requested_lake
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import JSON

COMPLETE, FAILED, INCOMPLETE = 0, 1, 4


def take(configuration: dict[str, Any]) -> dict[str, Any]:
    """Take the configured snapshot and return its manifest. Raises NatsFailure."""
    connection = {key: value for key, value in configuration["connection"].items() if value is not None}
    options = ConnectionOptions(**{**connection, "servers": tuple(connection["servers"])})
    s3 = S3Options(**configuration.get("lake_s3") or {}, option="lake_s3")
    lake = requested_lake(configuration["lake"], s3, configuration["deadline"])
    wanted = CaptureOptions(
        lake,
        configuration["fleet"],
        configuration["endpoints"] or list(ENDPOINTS),
        configuration["expected_servers"],
        configuration["deadline"],
        backups=DirectoryStore(Path(configuration["backups"])) if configuration.get("backups") else None,
        drift=Path(configuration["drift"]) if configuration.get("drift") else None,
        form=configuration.get("format", JSON),
    )
    lake.require()
    with Client(options) as client:
        return collect(client, wanted)[1]


def main(path: str) -> int:
    # Collect cyclic garbage as rarely as modules do (module.py gc_paused): there is none.
    gc.set_threshold(200_000, 20, 100)
    try:
        manifest = take(json.loads(Path(path).read_text(encoding="utf-8")))
    except NatsFailure as failure:
        print(f"no snapshot: {failure.description}", file=sys.stderr)
        return FAILED
    except MissingLibrary as missing:
        print(
            f"no snapshot: the Python library {missing.library} is not installed: install it with pip", file=sys.stderr
        )
        return FAILED
    rows = sum(table["rows"] for table in manifest["tables"].values())
    print(
        f"{manifest['snapshot']}: {manifest['servers']} servers, {rows} rows, {manifest['failures']} answers not given"
    )
    if not manifest["complete"]:
        silent = {*manifest["missing"], *(item["server"] for item in manifest["quoted_failures"])}
        print(f"incomplete: {', '.join(sorted(silent)) or 'servers that others know of'}", file=sys.stderr)
    return COMPLETE if manifest["complete"] else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
