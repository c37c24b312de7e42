# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a snapshot as Parquet, with the columns from `telemetry`, using pyarrow and msgspec.

A row is decoded into objects with exactly the declared fields. A new key is learned. A row in which a value has an
unexpected type is split key by key. Values without a column are JSON in the column `extra`. A configuration is parsed
once for all rows that have it."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import IO, Any, Optional

from ..nats.failures import MissingLibrary
from ..times import EPOCH, epoch_nanoseconds
from . import json_text
from .schema import (
    CONFIG_FIELDS,
    DURATION,
    ENVELOPE,
    FAILURE,
    FAILURE_TYPE,
    NANOSECONDS,
    Field,
    Reported,
    Tree,
    Type,
    config_type,
    effective,
    field_tree,
    parse_type,
)
from .snapshot_files import Origin, SnapshotTable, close_durably

#: Number of rows kept as objects, and as columns, until they are written.
_ROWS, _GROUP = 4096, 65536

#: Maximum number of undeclared keys that a table learns; a row with any further key is split.
_MOST_LEARNED = 64

_UNITS = {
    "y": 365 * 86400.0,
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "us": 1e-6,
    "ns": 1e-9,
}
#: Fractions of a second, after which no further unit follows.
_SHORT = ("ms", "µs", "ns")
_DURATION = re.compile(r"([\d.]+)([a-zµ]+)")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`(?: - at `\$(.*)`)?$")
#: Go's zero time, which stands for never.
_NEVER = "0001-01-01"


def libraries() -> tuple[Any, Any]:
    """Return msgspec and pyarrow. Raises MissingLibrary."""
    try:
        import msgspec
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingLibrary(str(error.name or "pyarrow").partition(".")[0], traceback.format_exc()) from error
    return msgspec, pyarrow


def go_seconds(text: str) -> float:
    """Return the seconds of a duration in the notation of Go and of the server's uptime, as fields.go_seconds of the
    pipeline does."""
    if text[-2:] in _SHORT and text[:1].isdigit():
        try:
            return float(text[:-2]) * _UNITS[text[-2:]]
        except ValueError:
            pass
    found: dict[str, float] = {}
    for number, unit in _DURATION.findall(text):
        try:
            found.setdefault(unit, float(number) * _UNITS.get(unit, 0.0))
        except ValueError:
            continue
    return sum((found[unit] for unit in _UNITS if unit in found), 0.0)


def epoch_microseconds(text: str) -> int | None:
    """Return the microseconds since 1970 of a time in a server's notation, truncated; None for Go's zero time.
    Raises ValueError for anything else."""
    return None if text.startswith(_NEVER) else epoch_nanoseconds(text) // 1000


# --- Declared fields as classes for msgspec ---------------------------------------------------------------------------
# -------------------------------------------------------------------------------


class _Decoders:
    """The decoders of documents: one for documents with only declared keys, and one for all others. `others`: whether
    undeclared keys are stored."""

    def __init__(self, fields: Sequence[Field], others: bool = True) -> None:
        self._msgspec, _pyarrow = libraries()
        self._others = others
        self.tree = field_tree(fields)
        self._types = {field.name: parse_type(field.type) for field in fields}
        #: Undeclared keys, by the path of the object that contains them.
        self._learned: dict[tuple[str, ...], dict[str, str]] = {}
        self._build()

    def _build(self) -> None:
        self._empty: dict[type, Any] = {}
        whole = self._class(self.tree, ())
        self._decoder = self._msgspec.json.Decoder(whole)
        self._leftover = self._left(self.tree, self._empty[whole], ()) if self._learned else None

    def _class(self, members: Mapping[str, Any], path: tuple[str, ...]) -> Any:
        """Return the class of an object with these members."""
        learned = self._learned.get(path, {})
        found: list[tuple[str, Any, Any]] = []
        for key, member in members.items():
            if isinstance(member, dict):
                below = self._class(member, (*path, key))
                found.append((key, below, self._empty[below]))
            else:
                found.append((key, self._type(member, (*path, key)), None))
        found += [(attribute, self._msgspec.Raw, None) for attribute in learned.values()]
        options = {"frozen": True, "gc": False, "omit_defaults": True, "forbid_unknown_fields": self._others}
        rename = {attribute: key for key, attribute in learned.items()}
        made = self._msgspec.defstruct("_".join(("Reported", *path)), found, rename=rename, **options)
        self._empty[made] = made()
        return made

    def _type(self, member: Field | Type, path: tuple[str, ...]) -> Any:
        if isinstance(member, Field):
            if member.is_text:
                return self._msgspec.Raw
            if member.reported == NANOSECONDS:
                return self._integer(64)
            return str if member.reported == DURATION else self._type(self._types[member.name], path)
        if member.kind == "struct":
            return self._class(dict(member.members), path)
        if member.item is not None:
            inner = self._type(member.item, path)
            return list[inner] if member.kind == "array" else dict[str, inner]  # type: ignore[valid-type]
        simple = {"boolean": bool, "double": float, "int": self._integer(32), "bigint": self._integer(64)}
        return simple.get(member.kind, str)

    def _integer(self, bits: int) -> Any:
        from typing import Annotated

        return Annotated[int, self._msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]

    # --- reading ----------------------------------------------------------------------------------------------------------

    def read(self, data: Any) -> tuple[Any, bytes | None]:
        """Return a document as an object, and its values without a column as JSON, or None if there are none."""
        text = data if json_text.is_text(data) or isinstance(data, bytes) else json_text.encoded(data)
        while True:
            try:
                found = self._decoder.decode(text)
            except self._msgspec.ValidationError as error:
                if not self._learn(str(error)):
                    return self.apart(json_text.read(text))
            else:
                left, odd = self._leftover.of(found) if self._leftover else (None, False)
                return found, left if odd else None

    def _learn(self, message: str) -> bool:
        """Declare a new key; return whether there was one, and room for it."""
        match = _UNKNOWN.match(message)
        if match is None or sum(map(len, self._learned.values())) >= _MOST_LEARNED:
            return False
        path = tuple(part for part in re.sub(r"\[[^]]*\]", "", match[2] or "").split(".") if part)
        known = self._learned.setdefault(path, {})
        known[match[1]] = f"learned_{len(known)}"
        self._build()
        return True

    def apart(self, document: Any) -> tuple[Any, bytes | None]:
        """Return the same as `read`, for a document that was parsed as JSON and is processed key by key."""
        fitting, left, odd = self._split(self.tree, document)
        extra = json_text.encoded(left) if odd else None
        return self._decoder.decode(json_text.encoded(fitting)), extra

    def again(self, found: Any, extra: bytes | None) -> tuple[Any, bytes | None]:
        """Return the same as `read`, for an object with values of wrong types, such as a text that is not a time."""
        found, more = self.apart(self._msgspec.json.decode(self._msgspec.json.encode(found)))
        return found, more or extra

    def _left(self, tree: Tree, empty: Any, path: tuple[str, ...]) -> _Left:
        """Return the reader of those values of an object that have no column."""
        below, partly = [], []
        for key, member in tree.items():
            inside = (*path, key)
            if isinstance(member, dict):
                nothing = getattr(empty, key)
                below.append((_member(key), key, nothing, self._left(member, nothing, inside)))
            elif any(known[: len(inside)] == inside for known in self._learned):
                partly.append((_member(key), key, inside))
        learned = [(_member(key), attribute) for key, attribute in self._learned.get(path, {}).items()]
        return _Left(learned, below, partly, self._is_odd)

    def _is_odd(self, value: Any, path: tuple[str, ...]) -> bool:
        if isinstance(value, (list, dict)):
            return any(self._is_odd(item, path) for item in (value.values() if isinstance(value, dict) else value))
        if type(value) not in self._empty:
            return False
        learned = self._learned.get(path, {}).values()
        return any(getattr(value, attribute) is not None for attribute in learned) or any(
            self._is_odd(getattr(value, name), (*path, name)) for name in value.__struct_fields__ if name not in learned
        )

    def _split(self, tree: Tree, document: Any) -> tuple[dict[str, Any], Any, bool]:
        """Return the part of a document that fits into its columns, the rest, and whether there is a rest."""
        if not isinstance(document, dict):
            return {}, document, True
        fitting: dict[str, Any] = {}
        left: dict[str, Any] = {}
        odd = False
        for key, value in document.items():
            member = tree.get(key)
            if isinstance(member, dict):
                below, left[key], more = self._split(member, value)
                odd |= more
                if isinstance(value, dict):
                    fitting[key] = below
            elif member is None or value is None:
                left[key], odd = value, True
            else:
                took, whole = self._fit(member, value)
                if took is not None:
                    fitting[key] = took
                if not whole:
                    left[key], odd = value, True
        return fitting, left, odd

    def _fit(self, field: Field, value: Any) -> tuple[Any, bool]:
        """Return the part of a value that fits into a field, or None, and whether it is the complete value."""
        if field.is_text:
            return value, True
        if field.reported == NANOSECONDS:
            return _fitting(Type("bigint"), value)
        return _fitting(Type("string") if field.reported == DURATION else self._types[field.name], value)


class _Left:
    """Reads the values without a column from objects of a class. Each item of the arguments begins with the JSON before
    a member's value, and the member's attribute. `learned`: the learned members. `below`: the nested objects, each with
    the value that stands for a missing object, and the reader of its rest. `partly`: the fields with members that their
    types lack, each with its path."""

    def __init__(
        self,
        learned: Sequence[tuple[bytes, str]],
        below: Sequence[tuple[bytes, str, Any, _Left]],
        partly: Sequence[tuple[bytes, str, tuple[str, ...]]],
        is_odd: Callable[[Any, tuple[str, ...]], bool],
    ) -> None:
        self._learned = learned
        self._below = below
        self._partly = partly
        self._is_odd = is_odd

    def of(self, found: Any) -> tuple[bytes, bool]:
        """Return the rest of an object as JSON, and whether the rest contains any values (objects without members do
        not count)."""
        parts = []
        for name, attribute in self._learned:
            value = getattr(found, attribute)
            if value is not None:
                parts.append(b"%b%b" % (name, value))
        for name, attribute, path in self._partly:
            value = getattr(found, attribute)
            if value is not None and self._is_odd(value, path):
                parts.append(b"%b%b" % (name, json_text.encoded(value)))
        odd = bool(parts)
        for name, attribute, nothing, left in self._below:
            value = getattr(found, attribute)
            if value is not nothing:
                text, more = left.of(value)
                parts.append(b"%b%b" % (name, text))
                odd |= more
        return b"{%b}" % b",".join(parts), odd


def _member(key: str) -> bytes:
    return json_text.encoded(key) + b":"


def _fitting(type_: Type, value: Any) -> tuple[Any, bool]:
    """Return the part of a value that fits a type, or None, and whether it is the complete value."""
    if type_.kind == "struct":
        if not isinstance(value, dict):
            return None, False
        types = dict(type_.members)
        took = {key: _fitting(types[key], item) for key, item in value.items() if key in types and item is not None}
        if any(some is None for some, _whole in took.values()):
            return None, False
        whole = len(took) == len(value) and all(all_ for _some, all_ in took.values())
        return {key: some for key, (some, _all) in took.items()}, whole
    if type_.item is not None:
        if not isinstance(value, list if type_.kind == "array" else dict):
            return None, False
        items = value if isinstance(value, list) else value.values()
        fitted = [_fitting(type_.item, item) for item in items]
        if any(some is None for some, _whole in fitted):
            return None, False
        took_items = [some for some, _whole in fitted]
        return (
            took_items if isinstance(value, list) else dict(zip(value, took_items)),
            all(all_ for _some, all_ in fitted),
        )
    if type_.kind == "string":  # as Spark reads it: any other value becomes its JSON
        return value if isinstance(value, str) else json_text.encoded(value).decode(), True
    return (value, True) if _has_type(type_.kind, value) else (None, False)


def _has_type(kind: str, value: Any) -> bool:
    """Return whether a JSON value has this simple type."""
    if kind in ("int", "bigint"):
        bits = 31 if kind == "int" else 63
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if kind == "double":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "timestamp" and isinstance(value, str):
        try:
            epoch_microseconds(value)
        except ValueError:
            return False
    return isinstance(value, str)


# --- columns --------------------------------------------------------------------------------------------------------------


class _Columns:
    """Builds Arrow columns from the decoded rows."""

    def __init__(self) -> None:
        msgspec, self._pa = libraries()
        self._astuple = msgspec.structs.astuple
        self._moment = self._pa.timestamp("us", tz="UTC")

    def type(self, type_: Type) -> Any:
        """Return the corresponding Arrow type."""
        pa = self._pa
        if type_.kind == "struct":
            return pa.struct([(name, self.type(member)) for name, member in type_.members])
        if type_.item is not None:
            inner = self.type(type_.item)
            return pa.list_(inner) if type_.kind == "array" else pa.map_(pa.string(), inner)
        simple = {"boolean": pa.bool_(), "double": pa.float64(), "int": pa.int32(), "bigint": pa.int64()}
        return {**simple, "timestamp": self._moment, "duration": pa.float64()}.get(type_.kind, pa.string())

    def convert_field(self, field: Field, values: Sequence[Any]) -> Any:
        pa = self._pa
        if values.count(None) == len(values):
            return pa.nulls(len(values), self.type(parse_type(field.stored)))
        if field.is_text:
            return pa.array([None if value is None else _plain(value) for value in values], pa.string())
        if field.reported == NANOSECONDS:
            return pa.compute.divide(pa.array(values, pa.int64()).cast(pa.float64(), safe=False), 1e9)
        return self.convert_values(Type("duration") if field.reported == DURATION else parse_type(field.type), values)

    def convert_values(self, type_: Type, values: Sequence[Any]) -> Any:
        pa = self._pa
        if values.count(None) == len(values):
            return pa.nulls(len(values), self.type(type_))
        if type_.kind == "struct":
            missing = [value is None for value in values]
            there = [value for value in values if value is not None]
            members = []
            for (_name, member), found in zip(type_.members, self._transposed(there, len(type_.members))):
                each = iter(found)
                whole = [None if gone else next(each) for gone in missing] if len(there) < len(values) else found
                members.append(self.convert_values(member, whole))
            names = [name for name, _member in type_.members]
            return pa.StructArray.from_arrays(members, names, mask=pa.array(missing) if any(missing) else None)
        if type_.item is not None:
            offsets: list[Optional[int]] = []
            items: list[Any] = []
            keys: list[str] = []
            total = 0
            for value in values:
                offsets.append(None if value is None else total)
                if value:
                    items += value.values() if type_.kind == "map" else value
                    keys += value if type_.kind == "map" else ()
                    total = len(items)
            places = pa.array([*offsets, total], pa.int32())
            inner = self.convert_values(type_.item, items)
            if type_.kind == "map":
                return pa.MapArray.from_arrays(places, pa.array(keys, pa.string()), inner)
            return pa.ListArray.from_arrays(places, inner)
        if type_.kind == "timestamp":
            return self._moments(values)
        if type_.kind == "duration":
            return pa.array([None if value is None else go_seconds(value) for value in values], pa.float64())
        return pa.array(values, self.type(type_))

    def convert_tree(self, tree: Tree, found: Sequence[Any]) -> dict[str, Any]:
        """Return the columns of a tree's fields by name, built from this many objects."""
        columns = {}
        for member, values in zip(tree.values(), self._transposed(found, len(tree))):
            if isinstance(member, dict):
                columns.update(self.convert_tree(member, values))
            else:
                columns[member.name] = self.convert_field(member, values)
        return columns

    def _transposed(self, found: Sequence[Any], members: int) -> Iterable[Sequence[Any]]:
        """Return the values of each member of objects."""
        return zip(*map(self._astuple, found)) if found else [()] * members

    def _moments(self, values: Sequence[Any]) -> Any:
        """Return times in Spark's format. Raises ValueError if one is invalid."""
        pa = self._pa
        texts = pa.array(values, pa.string())
        known = pa.compute.if_else(pa.compute.starts_with(texts, _NEVER), pa.scalar(None, pa.string()), texts)
        try:
            return known.cast(pa.timestamp("ns", tz="UTC")).cast(self._moment, safe=False)
        except pa.ArrowInvalid:
            moments = [None if value is None else epoch_microseconds(value) for value in values]
            return pa.array(moments, pa.int64()).cast(self._moment)


class _Configurations:
    """Builds a column from the texts of configurations."""

    def __init__(self, fields: Sequence[Field], make: _Columns) -> None:
        _msgspec, self._pa = libraries()
        self._document = _Decoders(fields, others=False)
        self._make = make
        self.type = make.type(parse_type(config_type(fields)))

    def of(self, texts: Any) -> Any:
        encoded = texts.dictionary_encode()
        each = [text.encode() for text in encoded.dictionary.to_pylist()]
        hashed = (hashlib.sha256(effective(text.decode()).encode()).hexdigest() for text in each)
        hashes = self._pa.array(list(hashed), self._pa.string())
        read = self._make.convert_tree(self._document.tree, [self._document.read(text)[0] for text in each])
        members = [hashes, *(read[self.type[place].name] for place in range(1, self.type.num_fields))]
        return self._pa.StructArray.from_arrays(members, fields=[*self.type]).take(encoded.indices)


def _plain(text: Any) -> str | None:
    """Return the text of a JSON value as Spark writes it, without Go's HTML escapes; None for null."""
    content = bytes(text)
    if content == b"null":
        return None
    plain = content.replace(rb"\u003e", b">").replace(rb"\u003c", b"<").replace(rb"\u0026", b"&")
    return (json_text.encoded(json_text.read(content)) if b"\\" in plain else plain).decode()


# --- files ----------------------------------------------------------------------------------------------------------------


class TypedTable(SnapshotTable):
    """A table as one Parquet file. `moment`: when the snapshot began."""

    def __init__(self, envelope: Mapping[str, Any], moment: datetime, declared: Reported, *where: Any) -> None:
        super().__init__(*where)
        self.unknown: int = 0
        msgspec, self._pa = libraries()
        self._whole = envelope
        self._started = (moment - EPOCH) // timedelta(microseconds=1)
        self._declared = declared
        self._document = _Decoders(declared.fields)
        self._make = _Columns()
        self._configurations = _Configurations(declared.config, self._make) if declared.config else None
        self._failure = parse_type(FAILURE_TYPE)
        self._failed = msgspec.defstruct("Failure", [name for name, _type in self._failure.members])
        self._schema = self._pa.schema(
            [
                *((field.name, self._make.type(parse_type(field.stored))) for field in (*ENVELOPE, *declared.keys)),
                ("taken", self._make.type(Type("timestamp"))),
                *((field.name, self._make.type(parse_type(field.stored))) for field in declared.fields),
                ("extra", self._pa.string()),
                (FAILURE.name, self._make.type(self._failure)),
                *([(CONFIG_FIELDS, self._configurations.type)] if self._configurations else ()),
            ]
        )
        #: The origins of the rows, and the number of consecutive rows of each.
        self._origins: list[list[Any]] = []
        self._keys: list[Mapping[str, Any]] = []
        self._found: list[Any] = []
        self._extras: list[bytes | None] = []
        self._failures: list[Any] = []
        self._batches: list[Any] = []
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    def add(self, origin: Origin, keys: Mapping[str, Any], data: Any) -> None:
        found, extra = self._document.read(data)
        self._append(origin, keys, found, extra, None)
        self.rows += 1
        self.unknown += extra is not None

    def fail(self, origin: Origin, failure: Mapping[str, Any]) -> None:
        self._append(origin, {}, self._document.read(b"{}")[0], None, self._failed(**failure))
        self.failures += 1

    def _append(self, origin: Origin, keys: Mapping[str, Any], found: Any, extra: bytes | None, failure: Any) -> None:
        if self._origins and self._origins[-1][0] is origin:
            self._origins[-1][1] += 1
        else:
            self._origins.append([origin, 1])
        self._keys.append(keys)
        self._found.append(found)
        self._extras.append(extra)
        self._failures.append(failure)
        if len(self._found) >= _ROWS:
            self._to_columns()

    def _to_columns(self) -> None:
        """Convert the rows in memory to columns."""
        try:
            columns = self._columns()
        except (ValueError, OverflowError):
            pairs = [self._document.again(found, extra) for found, extra in zip(self._found, self._extras)]
            self._found, self._extras = [found for found, _extra in pairs], [extra for _found, extra in pairs]
            columns = self._columns()
        self._batches.append(self._pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._origins, self._keys, self._found, self._extras, self._failures = [], [], [], [], []
        if sum(batch.num_rows for batch in self._batches) >= _GROUP:
            self._write()

    def _columns(self) -> list[Any]:
        make, many = self._make, len(self._found)
        columns = []
        for field in ENVELOPE:
            if field.name in self._whole:
                values = [self._whole[field.name]] * many
            else:
                each = ((getattr(origin, field.name), rows) for origin, rows in self._origins)
                values = [item for value, rows in each for item in [value] * rows]
            columns.append(
                make.convert_field(field, [value or None for value in values] if field.name == "received" else values)
            )
        for field in self._declared.keys:
            (key,) = field.keys
            columns.append(make.convert_field(field, [keys.get(key) for keys in self._keys]))
        columns.append(self._pa.array([self._started] * many, self._pa.int64()).cast(make.type(Type("timestamp"))))
        found = make.convert_tree(self._document.tree, self._found)
        columns += [found[field.name] for field in self._declared.fields]
        extras = [None if extra is None else extra.decode() for extra in self._extras]
        columns += [self._pa.array(extras, self._pa.string()), make.convert_values(self._failure, self._failures)]
        return [*columns, self._configurations.of(found["config"])] if self._configurations else columns

    def _write(self) -> None:
        """Write the columns in memory as a row group."""
        if self._writer is None:
            self._file = self._new_file("parquet")
            self._writer = self._pa.parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        content = self._pa.Table.from_batches(self._batches, self._schema)
        self._batches = []
        self._writer.write_table(content, row_group_size=content.num_rows)

    def close(self) -> None:
        if self._found:
            self._to_columns()
        if self._batches:
            self._write()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.flush()
            self.files[-1].rows = self.rows + self.failures
            self.files[-1].size = self._file.tell()
            close_durably(self._file)
            self._writer = self._file = None
