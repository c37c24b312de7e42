# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes one aggregate from bronze as each engine's manual would: the replicas that each server reported, their bytes
and their highest sequence. ``plain.py spark|duckdb|pandas LAKE [MASTER MEMORY]`` prints it as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

FILES = "bronze/jsz_streams/*/*/*.jsonl.gz"


def spark(lake: str, master: str, memory: str) -> list[list[object]]:
    from jetstream_insights.session import session
    from pyspark.sql import functions as F

    schema = "server string, data struct<state: struct<bytes: bigint, last_seq: bigint>>"
    lines = session(master, memory).read.schema(schema).json(f"{lake}/{FILES}")
    sums = lines.groupBy("server").agg(F.count("*"), F.sum("data.state.bytes"), F.max("data.state.last_seq"))
    return [list(row) for row in sums.collect()]


def duckdb(lake: str) -> list[list[object]]:
    import duckdb as engine  # type: ignore[import-not-found]

    columns = "{server: 'VARCHAR', data: 'STRUCT(state STRUCT(bytes BIGINT, last_seq BIGINT))'}"
    lines = f"read_json('{lake}/{FILES}', format = 'newline_delimited', columns = {columns})"
    sums = (
        f"SELECT server, count(*), sum(data.state.bytes)::BIGINT, max(data.state.last_seq) FROM {lines} GROUP BY server"
    )
    return [list(row) for row in engine.sql(sums).fetchall()]


def pandas(lake: str) -> list[list[object]]:
    import pandas as engine  # type: ignore[import-untyped]

    frames = []
    for path in sorted(Path(lake).glob(FILES)):
        frame = engine.read_json(path, lines=True)
        state = engine.json_normalize([data["state"] for data in frame["data"]])
        frames.append(
            engine.DataFrame({"server": frame["server"], "bytes": state["bytes"], "last_seq": state["last_seq"]})
        )
    grouped = engine.concat(frames).groupby("server")
    sums = grouped.agg(rows=("bytes", "size"), bytes=("bytes", "sum"), last=("last_seq", "max"))
    return [[name, *map(int, row)] for name, row in zip(sums.index, sums.to_numpy())]


ENGINES: dict[str, Callable[..., list[list[object]]]] = {"spark": spark, "duckdb": duckdb, "pandas": pandas}

if __name__ == "__main__":
    print(json.dumps(sorted(ENGINES[sys.argv[1]](*sys.argv[2:]), key=str)))
