# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a column is told: its name, its type, and where it stands in what a server said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

#: How a value is converted: as it is; from nanoseconds; from text such as 1h2m3.5s.
AS_TOLD, NANOSECONDS, DURATION = "as told", "nanoseconds", "duration"

#: Regular expressions of the units, and their seconds.
_UNITS = {"y": 365 * 86400.0, "d": 86400.0, "h": 3600.0, "m(?!s)": 60.0, "s": 1.0, "ms": 1e-3, "[µu]s": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Field:
    """A column: its name, its Spark SQL type, its path below the document (when empty, its name), and how it becomes seconds."""

    name: str
    type: str
    path: str = ""
    told: str = AS_TOLD

    @property
    def json_path(self) -> str:
        """Return the path as VARIANT functions take it."""
        return f"$.{self.path or self.name}"


def go_seconds(text: Column) -> Column:
    """Return the seconds of a duration as Go and the server's uptime write it (2d3h4m5s, 350µs), null for null."""
    parts = [
        F.coalesce(F.regexp_extract(text, rf"([\d.]+){unit}", 1).try_cast("double"), F.lit(0.0)) * F.lit(factor)
        for unit, factor in _UNITS.items()
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return F.when(text.isNotNull(), total)


def value(document: Column, field: Field) -> Column:
    """Return a field's value in a VARIANT document; null when it is not there or of another type, or Go's time of never."""
    if field.told == NANOSECONDS:
        found = F.try_variant_get(document, field.json_path, "bigint").cast("double") / F.lit(1e9)
    elif field.told == DURATION:
        found = go_seconds(F.try_variant_get(document, field.json_path, "string"))
    else:
        found = F.try_variant_get(document, field.json_path, field.type)
        if field.type == "timestamp":
            found = F.when(found > F.lit("0001-01-02").cast("timestamp"), found)
    return found.alias(field.name)


def rest(document: Column, fields: Sequence[Field]) -> Column:
    """Return what of a document no field took, also what was of another type than its field."""
    paths = []
    for field in fields:
        type_ = field.type if field.told == AS_TOLD else "variant"
        paths.append(F.when(F.try_variant_get(document, field.json_path, type_).isNotNull(), field.json_path))
    return F.variant_delete(document, *paths) if paths else document


#: What every line says of itself; `taken` is in the name of the snapshot.
ENVELOPE = (
    Field("fleet", "string"),
    Field("snapshot", "string"),
    Field("server_id", "string"),
    Field("server", "string"),
    Field("cluster", "string"),
    Field("version", "string"),
    Field("received", "timestamp"),
)


def taken(snapshot: Column) -> Column:
    """Return when a snapshot began, which its name tells."""
    return F.try_to_timestamp(F.substring(snapshot, 1, 22), F.lit("yyyyMMdd'T'HHmmss.SSSSSS"))


def rows(lines: DataFrame, keys: Sequence[Field], fields: Sequence[Field], also: Sequence[str] = ()) -> DataFrame:
    """Return the rows of a table from lines: envelope, keys, what `also` names of the lines, fields, and in `extra` everything
    else that the server told. A line that tells a failure is a row without fields only where a key asks for it."""
    line = F.col("line")
    asks = any(field.name == "failure" for field in keys)
    told = lines if asks else lines.where(F.try_variant_get(line, "$.failure", "variant").isNull())
    cut = told.select(
        *(value(line, field) for field in (*ENVELOPE, *keys)),
        taken(F.try_variant_get(line, "$.snapshot", "string")).alias("taken"),
        *also,
        F.try_variant_get(line, "$.data", "variant").alias("data"),
    )
    return cut.select(
        *(name for name in cut.columns if name != "data"),
        *(value(F.col("data"), field) for field in fields),
        rest(F.col("data"), fields).alias("extra"),
    )
