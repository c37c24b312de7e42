# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expressions that read a column from bronze: from lines of JSON and from typed columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import add

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import (
    CONFIG_FIELDS,
    CONFIG_HASH,
    DURATION,
    EFFECTIVE_HASH,
    ENVELOPE,
    FAILURE,
    FAILURE_TYPE,
    IDLE_FIELDS,
    NANOSECONDS,
    Field,
    Reported,
    Tree,
    config_type,
    field_tree,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

#: Regular expressions of the units, and their seconds.
_UNITS = {
    "y": 365 * 86400.0,
    "d": 86400.0,
    "h": 3600.0,
    "m(?!s)": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "[µu]s": 1e-6,
    "ns": 1e-9,
}


def go_seconds(text: Column) -> Column:
    """Return the seconds of a duration in the form of Go and of the server's uptime (2d3h4m5s, 350µs), null for null."""
    parts = [
        F.coalesce(F.regexp_extract(text, rf"([\d.]+){unit}", 1).try_cast("double"), F.lit(0.0)) * F.lit(factor)
        for unit, factor in _UNITS.items()
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return F.when(text.isNotNull(), total)


def in_document(document: Column, field: Field) -> Column:
    """Return a field's value in a VARIANT document, null if it is missing or has another type."""
    return F.try_variant_get(document, field.json_path, field.type)


def converted(found: Column, field: Field) -> Column:
    """Return a field's final value from the parsed one: durations in seconds, and null for Go's zero time."""
    if field.reported == NANOSECONDS:
        return found.cast("double") / F.lit(1e9)
    if field.reported == DURATION:
        return go_seconds(found)
    if "variant" in field.type:
        return F.try_variant_get(F.try_parse_json(found), "$", field.type)
    if "duration" in field.type:
        return _with_seconds(found, field)
    if field.type == "timestamp":
        return F.when(found > F.lit("0001-01-02").cast("timestamp"), found)
    return found


def _with_seconds(found: Column, field: Field) -> Column:
    """Return a map of structs with their durations in seconds."""
    inner = _parsed(field.type.replace(":duration", ":interval"))
    assert isinstance(inner, MapType) and isinstance(inner.valueType, StructType)
    names = [member.name for member in inner.valueType if isinstance(member.dataType, CalendarIntervalType)]
    return F.transform_values(
        found,
        lambda _key, value: reduce(lambda done, name: done.withField(name, go_seconds(value[name])), names, value),
    )


def rest(document: Column, fields: Sequence[Field], reported: Callable[[Field], Column]) -> Column:
    """Return the parts of a VARIANT document that no field has read: unknown keys, values with another type than their field, and
    fields that were read only in part. `reported`: the value that was read for a field, null for none."""
    paths = [F.when(_is_whole(document, field, reported(field)), field.json_path) for field in fields]
    return _without(document, paths) if paths else document


def _without(document: Column, paths: Sequence[Column]) -> Column:
    """Return the document without the values at these paths. A null path, or one without a value, has no effect."""
    if hasattr(F, "variant_delete"):
        return F.variant_delete(document, *paths)
    # PySpark before 4.3: each row passes through a Python worker, nearly all of them with null.
    return F.try_parse_json(F.udf(_delete_paths)(F.to_json(document), F.array(*paths)))


def _delete_paths(text: str | None, paths: Sequence[str | None]) -> str | None:
    """Return a JSON text without the values at paths such as $.a.b."""
    if text is None:
        return None
    document = json.loads(text)
    for path in filter(None, paths):
        *parents, last = path.removeprefix("$.").split(".")
        found = document
        for key in parents:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            found.pop(last, None)
    return json.dumps(document)


def _is_whole(document: Column, field: Field, value: Column) -> Column:
    """Return whether a field's value was read from a document with all its keys."""
    keys = [] if field.is_text else [*_keys_of_type(value, _type(field))]
    if not keys:
        return value.isNotNull()
    text = F.to_json(F.try_variant_get(document, field.json_path, "variant"))
    return value.isNotNull() & (_keys_in(text) == _sum(keys))


# --- lines of bronze -----------------------------------------------------------------------------------------------------
#
# Nearly all lines have only known fields. Reading these with a schema takes a tenth of the time of VARIANT, but ignores unknown
# fields. So the keys in a line's text are compared with the keys that were read: if the numbers differ, or a value has another
# type, the line is parsed as VARIANT, too.

_TORN = "_torn"


def taken(snapshot: Column) -> Column:
    """Return the start of a snapshot, from its name; null if this is not the name of a snapshot."""
    date = [F.substring(snapshot, start, length) for start, length in ((1, 4), (5, 2), (7, 2))]
    time = [F.substring(snapshot, start, length) for start, length in ((10, 2), (12, 2), (14, 9))]
    moment = F.concat(F.concat_ws("-", *date), F.substring(snapshot, 9, 1), F.concat_ws(":", *time))
    return moment.try_cast("timestamp")


def _matches_file(snapshot: Column, file: Column) -> Column:
    """Return whether a snapshot began in the hour of the file's directories."""
    year, month, day, hour = (
        F.substring(snapshot, start, length) for start, length in ((1, 4), (5, 2), (7, 2), (10, 2))
    )
    folder = F.concat(F.lit("/date="), F.concat_ws("-", year, month, day), F.lit("/hour="), hour, F.lit("/"))
    return F.contains(F.replace(file, F.lit("%3D"), F.lit("=")), folder)


def is_line(file: Column, text: Column) -> Column:
    """Return whether this is a line of a snapshot from its file's hour."""
    snapshot = F.try_variant_get(F.try_parse_json(text), "$.snapshot", "string")
    return F.coalesce(taken(snapshot).isNotNull() & _matches_file(snapshot, file), F.lit(False))


def _type(field: Field) -> DataType:
    """Return the type in which a field is read."""
    if field.reported == NANOSECONDS:
        return LongType()
    text = field.is_text or field.reported == DURATION
    return StringType() if text else _parsed(field.type.replace(":duration", ":string"))


@cache
def _parsed(type_: str) -> DataType:
    """Return the type of a SQL type expression; Spark's own parser is called only once for each."""
    return DataType.fromDDL(type_)


def _schema(tree: Tree) -> StructType:
    """Return the type in which a document with these fields is read."""
    types = {name: _schema(node) if isinstance(node, dict) else _type(node) for name, node in tree.items()}
    return StructType([StructField(name, type_) for name, type_ in types.items()])


def _keys_in(text: Column) -> Column:
    """Return the number of keys in the text of a JSON value without spaces. A string in it that resembles a key is counted,
    too."""
    return F.octet_length(text) - F.octet_length(F.replace(text, F.lit('":'), F.lit('"')))


def _keys_reported(value: Column, node: Field | Tree) -> Iterator[Column]:
    """Yield numbers that add up to the number of keys read from a value, null for parts that were not read."""
    if isinstance(node, dict):
        for name, below in node.items():
            yield F.when(value[name].isNotNull(), 1)
            yield from _keys_reported(value[name], below)
    elif node.is_text:
        yield _keys_in(value)
    else:
        yield from _keys_of_type(value, _type(node))


def _keys_of_type(value: Column, type_: DataType) -> Iterator[Column]:
    if isinstance(type_, StructType):
        for field in type_.fields:
            yield F.when(value[field.name].isNotNull(), 1)
            yield from _keys_of_type(value[field.name], field.dataType)
    elif isinstance(type_, MapType):
        yield F.size(value)
        yield from _keys_of_type(F.map_values(value), ArrayType(type_.valueType))
    elif isinstance(type_, ArrayType) and isinstance(type_.elementType, (StructType, MapType)):
        yield F.aggregate(value, F.lit(0), lambda sum_, element: sum_ + _sum(_keys_of_type(element, type_.elementType)))


def _sum(numbers: Iterable[Column]) -> Column:
    return reduce(add, (F.coalesce(number, F.lit(0)) for number in numbers), F.lit(0))


def _found(document: Column, field: Field) -> Column:
    """Return a field's value in a document that was read with `_schema`."""
    return reduce(lambda value, key: value[key], field.keys, document)


def with_fields(frame: DataFrame, text: str | Column, fields: Sequence[Field]) -> DataFrame:
    """Add the fields of a JSON document, given as text."""
    read = frame.withColumn("_read", F.from_json(text, _schema(field_tree(fields))))
    found = {field.name: converted(_found(F.col("_read"), field), field) for field in fields}
    return read.withColumns(found).drop("_read")


@dataclass(frozen=True)
class Bronze:
    """Files of bronze: `lines` of JSON (`file`, and the line as `value`), and rows of `columns` (`file` and the columns from
    `bronze_schema`); None if there are none."""

    lines: DataFrame | None = None
    columns: DataFrame | None = None


def bronze_schema(table: Reported) -> StructType:
    """Return the columns of a table's files in bronze."""
    plain = ((field.name, field.stored) for field in (*ENVELOPE, *table.keys, *table.fields))
    types = [*plain, ("taken", "timestamp"), ("extra", "string"), (FAILURE.name, FAILURE_TYPE)]
    types += [(CONFIG_FIELDS, config_type(table.config))] if table.config else []
    return StructType([StructField(name, _parsed(type_)) for name, type_ in types])


def rows(
    bronze: Bronze,
    keys: Sequence[Field],
    fields: Sequence[Field],
    also: Sequence[str] = (),
    config: Sequence[Field] = (),
) -> DataFrame:
    """Return the rows of a table: envelope, keys, the files' own columns named in `also`, fields, and in `extra` everything else
    that the server reported; with `config`, these fields of the field `config`, and `config_hash`. Lines that do not belong to a
    snapshot of the file's hour are left out. A line that reports a failure becomes a row without fields, and only if the failure
    is one of the keys."""
    found = []
    if bronze.lines is not None:
        lines = _rows_of_lines(bronze.lines, keys, fields, also)
        found.append(_with_config(lines, F.col("config"), config) if config else lines)
    if bronze.columns is not None:
        columns = _rows_of_columns(bronze.columns, keys, fields, (*also, CONFIG_FIELDS) if config else also)
        found.append(_with_known_config(columns, config) if config else columns)
    return reduce(DataFrame.unionByName, found)


def _with_config(reported: DataFrame, text: Column, config: Sequence[Field]) -> DataFrame:
    """Add the fields of configurations, read from their text."""
    return with_fields(reported, text, config).withColumn(CONFIG_HASH, F.sha2(effective(text), 256))


def effective(text: Column) -> Column:
    """Return the effective texts of configurations, see telemetry.effective."""
    for pattern, kept in IDLE_FIELDS:
        text = F.regexp_replace(text, pattern, "$1" if kept else "")
    return text


def _with_known_config(reported: DataFrame, config: Sequence[Field]) -> DataFrame:
    """Add the fields of configurations that were parsed at capture, and parse the others from their text."""
    known = F.col(CONFIG_FIELDS)
    hashed = known[EFFECTIVE_HASH]
    read = with_fields(reported, F.when(known.isNull(), F.col("config")), config)
    found = {name: F.coalesce(known[name], name) for name in (field.name for field in config)}
    found[CONFIG_HASH] = F.coalesce(hashed, F.sha2(effective(F.when(hashed.isNull(), F.col("config"))), 256))
    return read.withColumns(found).drop(CONFIG_FIELDS)


def _rows_of_columns(
    columns: DataFrame, keys: Sequence[Field], fields: Sequence[Field], also: Sequence[str]
) -> DataFrame:
    asks = any(field.name == FAILURE.name for field in keys)
    return (columns if asks else columns.where(F.col(FAILURE.name).isNull())).select(
        *(_stored(field) for field in (*ENVELOPE, *keys)),
        "taken",
        *also,
        *(_stored(field) for field in fields),
        F.try_parse_json("extra").alias("extra"),
    )


def _stored(field: Field) -> Column:
    """Return a field of rows of columns."""
    if field == FAILURE:
        return F.to_json(FAILURE.name).alias(FAILURE.name)
    if "variant" in field.type:
        return F.try_variant_get(F.try_parse_json(field.name), "$", field.type).alias(field.name)
    return F.col(field.name)


def _rows_of_lines(lines: DataFrame, keys: Sequence[Field], fields: Sequence[Field], also: Sequence[str]) -> DataFrame:
    asks = any(field.name == FAILURE.name for field in keys)
    line_fields = (*ENVELOPE, *keys) if asks else (*ENVELOPE, *keys, FAILURE)
    in_data = field_tree(fields)
    schema = _schema({**field_tree(line_fields), "data": in_data, _TORN: Field(_TORN, "string")})
    reported, data = F.col("reported"), F.col("reported.data")
    read = lines.select(
        "file", "value", F.from_json("value", schema, {"columnNameOfCorruptRecord": _TORN}).alias("reported")
    )
    # substring_index finds the prefix at once; cutting off the rest would walk through all its characters.
    before = F.substring_index("value", '"data":', 1)
    unknown = _keys_in(F.col("value")) - _keys_in(before) != F.lit(1) + _sum(_keys_reported(data, in_data))
    odd = reported[_TORN].isNotNull() | F.coalesce(unknown, F.lit(True))
    document = F.when(F.col("odd"), F.try_parse_json("value"))
    checked = read.select("file", "reported", "value", odd.alias("odd"))
    checked = checked.select("file", "reported", "odd", document.alias("document"))
    # Without the number, Spark would move a condition on parsed values before the parsing, and parse twice.
    numbered = checked.select(
        "*", taken(reported["snapshot"]).alias("taken"), F.monotonically_increasing_id().alias("number")
    )
    wanted = F.col("taken").isNotNull() & _matches_file(reported["snapshot"], F.col("file"))
    whole = ~F.col("odd") | F.col("document").isNotNull()
    good = numbered.where(
        (F.col("number") >= 0) & whole & (wanted if asks else wanted & reported[FAILURE.name].isNull())
    )
    left = rest(F.try_variant_get("document", "$.data", "variant"), fields, lambda field: _found(data, field))
    return good.select(
        *(converted(_found(reported, field), field).alias(field.name) for field in (*ENVELOPE, *keys)),
        "taken",
        *also,
        *(converted(_found(data, field), field).alias(field.name) for field in fields),
        F.when(F.col("odd"), left).alias("extra"),
    )
