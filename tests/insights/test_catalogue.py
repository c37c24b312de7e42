# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jetstream_insights.catalogue import declared_tables
from jetstream_insights.cli import DONE, main
from jetstream_insights.lake import columns
from pyspark.sql import SparkSession


def write(lake: str, folder: Path, output: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["catalogue", "--lake", lake, "--output", str(folder)]) == DONE
    result: dict[str, Any] = json.loads(output.readouterr().out)
    return result


def test_files_describe_every_table_and_readable_column(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "it's"
    for name in ("silver/streams", "gold/capacity"):
        (lake / name / "_delta_log").mkdir(parents=True)
    result = write(str(lake), tmp_path / "out", capsys)
    tables = declared_tables()
    assert (result["tables"], result["columns"]) == (len(tables), sum(len(one.columns) for one in tables))
    assert result["registered"] == 2
    for table in tables:
        readable = [
            one.name for one in columns(table.layer, table.name) if "variant" not in one.dataType.simpleString()
        ]
        assert [column.name for column in table.columns] == [*readable, "date"], table.name
        assert table.description and "`" not in table.description

    *statements, rest = (tmp_path / "out" / "catalogue.sql").read_text().split(";\n")
    assert (len(statements), rest) == (2 + 2, "")
    parser = spark._jsparkSession.sessionState().sqlParser()
    plans = [str(parser.parsePlan(statement).toString()) for statement in statements]
    assert any("nats_insights_gold, capacity" in plan and "it's/gold/capacity" in plan for plan in plans)

    dbt = yaml.safe_load((tmp_path / "out" / "sources.yml").read_text())
    named = {(source["schema"], table["name"]): table for source in dbt["sources"] for table in source["tables"]}
    assert set(named) == {(f"nats_insights_{table.layer}", table.name) for table in tables}
    slope = next(one for one in named["nats_insights_gold", "capacity"]["columns"] if one["name"] == "slope")
    assert slope["data_type"] == "double" and "day" in slope["description"]

    contract = yaml.safe_load((tmp_path / "out" / "contract.odcs.yaml").read_text())
    assert [one["physicalName"] for one in contract["schema"]] == [f"{table.layer}/{table.name}" for table in tables]
    assert {one["logicalType"] for table in contract["schema"] for one in table["properties"]} == {
        *("array", "boolean", "date", "integer", "number", "object", "string", "timestamp")
    }


def test_catalogue_needs_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["catalogue", "--lake", "/lake"])
    assert "the jobs report and catalogue require --output" in capsys.readouterr().err
