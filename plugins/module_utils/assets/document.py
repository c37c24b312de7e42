# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of assets: the desired streams, consumers, buckets and entries of an account. Pure.

All errors are reported at once, each with the path of its key. Unknown keys are errors. A field that a document omits
has the default of a new asset, so removing a field from the document is a change."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from ..documents import InvalidDocument, load_yaml, unknown_key
from ..nats.info_shapes import asset_name
from ..subjects import subjects_collide
from .buckets import (
    KV_FIELDS,
    OBJECT_FIELDS,
    kv_defaults,
    kv_desired,
    kv_stream,
    object_defaults,
    object_desired,
    object_stream,
    require_bucket,
)
from .config import (
    CONSUMER_FIELDS,
    DUPLICATE_WINDOW,
    STREAM_FIELDS,
    Config,
    ConfigKey,
    OptionError,
    Release,
    desired_fields,
    expected_stream,
    normal_config,
    origin,
)

NEVER, OWNED, ALL = PRUNE = ("never", "owned", "all")
STREAM, KV, OBJECTS = "stream", "key-value bucket", "object bucket"
SEED, OWN, ABSENT = MODES = ("seed", "own", "absent")
MAX_REPLICAS = 5

_TOP = ("document", "cluster", "account", "prune", "adopt", "streams", "mirrors", "kv", "objects")
_SECTIONS = ("streams", "mirrors", "kv", "objects")
#: Name in a document → name in the tables of fields.
RENAMED = {"replicas": "num_replicas"}
#: Prefixes of streams that belong to buckets or to servers, with the section of the document for them.
RESERVED = {"KV_": "kv", "OBJ_": "objects", "$MQTT_": ""}
_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_IDENTITY = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")
_BUCKET = r"^[a-zA-Z0-9_-]+$"


def _document_fields(fields: Iterable[ConfigKey], *without: str) -> tuple[ConfigKey, ...]:
    """Return fields under their names in a document."""
    names = {wire: name for name, wire in RENAMED.items()}
    return tuple(replace(one, name=names.get(one.name, one.name)) for one in fields if one.name not in without)


_SOURCE_FIELD = next(one for one in STREAM_FIELDS if one.name == "mirror")
STREAM_DOCUMENT = _document_fields(STREAM_FIELDS, "mirror")
MIRROR_DOCUMENT = (
    replace(_SOURCE_FIELD, name="of", required=True),
    *_document_fields(STREAM_FIELDS, "mirror", "subjects", "sources"),
)
CONSUMER_DOCUMENT = _document_fields(CONSUMER_FIELDS)
KV_DOCUMENT = _document_fields(KV_FIELDS)
OBJECT_DOCUMENT = _document_fields(OBJECT_FIELDS)
ENTRY_DOCUMENT = (
    ConfigKey("value", "text", ""),
    ConfigKey("mode", "choice", SEED, MODES),
)


@dataclass(frozen=True)
class DesiredEntry:
    """An entry of a key-value bucket. `value`: None if the entry must be absent."""

    key: str
    mode: str
    value: str | None


@dataclass(frozen=True)
class DesiredConsumer:
    """A consumer. `given`: the fields that the document sets; `config`: all fields. Both are in normal form."""

    name: str
    given: Mapping[str, Any]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class DesiredStream:
    """A stream or bucket. `label`: its name in the document; `name`: that of its stream; `where`: its path in the
    document. `given`, `config`: as for a consumer, in terms of the stream."""

    kind: str
    label: str
    name: str
    where: str
    given: Mapping[str, Any]
    config: Mapping[str, Any]
    consumers: Mapping[str, DesiredConsumer] = field(default_factory=dict)
    entries: Mapping[str, DesiredEntry] = field(default_factory=dict)

    def effective(self, old: Config | None, release: Release, origin_direct: bool | None) -> dict[str, Any]:
        """Return the configuration on the server, without marks. `old`: the current configuration, None if the stream is
        new; the other arguments: as for `expected_stream`. Raises OptionError if the server would override an option."""
        new = expected_stream(self.name, self.config, self.given, release, origin_direct)
        # Servers of different releases fill in different windows.
        windows = (0, min(DUPLICATE_WINDOW, new["max_age"] or DUPLICATE_WINDOW))
        if old and "duplicate_window" not in self.given and old["duplicate_window"] in windows:
            new["duplicate_window"] = old["duplicate_window"]
        return new


@dataclass(frozen=True)
class AssetsDocument:
    """A document without errors. `adopt`: the unmarked assets that it takes over, as STREAM or STREAM/CONSUMER.
    `streams`: by the name of their stream. `digest`: the hash of the document."""

    id: str
    cluster: str
    account: str
    prune: str
    adopt: frozenset[str]
    streams: Mapping[str, DesiredStream]
    digest: str


# --- Reading ----------------------------------------------------------------------------------------------------------


def parse_document(text: str) -> AssetsDocument:
    """Return the text of a document. Raises InvalidDocument, also for an empty text, which a failed template renders."""
    return read_document(load_yaml(text))


def read_document(given: Any) -> AssetsDocument:
    """Return a parsed YAML document. Raises InvalidDocument with all errors."""
    if given is None or given == "" or given == {}:
        raise InvalidDocument(["the document is empty; if it is a template, check its output"])
    if not isinstance(given, Mapping):
        raise InvalidDocument(["the document is not a mapping with the keys document, cluster and account"])
    problems = [unknown_key(str(key), str(key), _TOP) for key in given if key not in _TOP]
    identity = _word(given, "document", problems)
    if identity and not _IDENTITY.fullmatch(identity):
        problems.append(f"document: {identity[:60]!r} may contain letters, digits, '.', '_' and '-' only")
    cluster, account = _word(given, "cluster", problems), _word(given, "account", problems)
    prune = given.get("prune", NEVER)
    if prune not in PRUNE:
        problems.append(f"prune: {str(prune)[:60]!r} is not one of {', '.join(PRUNE)}")
    adopt = given.get("adopt") or []
    if not isinstance(adopt, Sequence) or isinstance(adopt, str) or not all(isinstance(one, str) for one in adopt):
        problems.append("adopt: not a list of names such as ORDERS or ORDERS/billing")
        adopt = []
    streams: dict[str, DesiredStream] = {}
    for stream in _read_sections(given, problems):
        if stream.name in streams:
            problems.append(f"{stream.where}: the stream {stream.name} is also {streams[stream.name].where}")
        streams[stream.name] = stream
    if not streams and not problems:
        problems.append(f"the document declares no assets: {', '.join(_SECTIONS)} are missing or empty")
    if problems:
        raise InvalidDocument(problems)
    digest = hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()
    document = AssetsDocument(identity, cluster, account, str(prune), frozenset(adopt), streams, digest)
    unclaimed = sorted(set(adopt) - set(_names(document)))
    problems += [f"adopt: {name} is not in the document" for name in unclaimed]
    problems += collisions([document])
    if problems:
        raise InvalidDocument(problems)
    return document


def _word(given: Mapping[str, Any], key: str, problems: list[str]) -> str:
    value = given.get(key)
    if isinstance(value, str) and value:
        return value
    problems.append(f"{key}: missing, or not a text")
    return ""


def _names(document: AssetsDocument) -> Iterator[str]:
    for stream in document.streams.values():
        yield from (stream.name, stream.label)
        for consumer in stream.consumers:
            yield f"{stream.name}/{consumer}"


def _read_sections(given: Mapping[str, Any], problems: list[str]) -> Iterator[DesiredStream]:
    for section in _SECTIONS:
        listed = given.get(section)
        if listed is None:
            continue
        if not isinstance(listed, Mapping):
            problems.append(f"{section}: not a mapping of names")
            continue
        for name, item in listed.items():
            where = f"{section}.{name}"
            content = {} if item is None else item
            if not isinstance(content, Mapping):
                problems.append(f"{where}: not a mapping of settings")
                continue
            before = len(problems)
            try:
                stream = _READERS[section](str(name), content, where, problems)
            except OptionError as error:
                problems.append(f"{where}.{error}" if not str(error).startswith("bucket:") else f"{where}: {error}")
                continue
            if len(problems) == before:
                problems += _stream_problems(stream)
                yield stream


def _read_stream(name: str, item: Mapping[str, Any], where: str, problems: list[str]) -> DesiredStream:
    _check_stream_name(name, where, problems)
    given = _with_named_sources(item, "sources")
    consumers = _read_consumers(item, where, problems)
    found = _read_fields(STREAM_DOCUMENT, given, where, problems, ("consumers",))
    return _stream(STREAM, name, name, where, {}, found, consumers)


def _read_mirror(name: str, item: Mapping[str, Any], where: str, problems: list[str]) -> DesiredStream:
    _check_stream_name(name, where, problems)
    for key in ("subjects", "sources"):
        if key in item:
            problems.append(f"{where}.{key}: a mirror cannot have {key}; its origin determines them")
    given = {key: value for key, value in item.items() if key not in ("subjects", "sources")}
    consumers = _read_consumers(item, where, problems)
    found = _read_fields(MIRROR_DOCUMENT, _with_named_sources(given, "of"), where, problems, ("consumers",))
    found["mirror"] = found.pop("of", None)
    return _stream(STREAM, name, name, where, {}, found, consumers)


def _read_kv(name: str, item: Mapping[str, Any], where: str, problems: list[str]) -> DesiredStream:
    require_bucket(name)
    given = _with_named_sources(_with_named_sources(item, "mirror"), "sources")
    found = _read_fields(KV_DOCUMENT, given, where, problems, ("entries",))
    entries = _read_entries(item.get("entries"), f"{where}.entries", problems)
    if entries and found.get("mirror"):
        problems.append(f"{where}.entries: a mirror is read-only; declare the entries of its origin")
    desired = kv_desired(name, found)
    defaults = kv_defaults(name, desired)
    return _stream(KV, name, kv_stream(name), where, defaults, desired, {}, entries)


def _read_object(name: str, item: Mapping[str, Any], where: str, problems: list[str]) -> DesiredStream:
    require_bucket(name)
    found = _read_fields(OBJECT_DOCUMENT, item, where, problems)
    return _stream(OBJECTS, name, object_stream(name), where, object_defaults(name), object_desired(found), {})


_READERS = {"streams": _read_stream, "mirrors": _read_mirror, "kv": _read_kv, "objects": _read_object}


def _stream(
    kind: str,
    label: str,
    name: str,
    where: str,
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    consumers: Mapping[str, DesiredConsumer],
    entries: Mapping[str, DesiredEntry] | None = None,
) -> DesiredStream:
    config = {**normal_config(STREAM_FIELDS, {}), **defaults, **given}
    if not (config["subjects"] or config["mirror"] or config["sources"]):
        config["subjects"] = [name]
    return DesiredStream(kind, label, name, where, given, config, consumers, entries or {})


def _check_stream_name(name: str, where: str, problems: list[str]) -> None:
    if not asset_name(name):
        problems.append(f"{where}: not the name of a stream: no spaces, '.', '*', '>', '/' or '\\'")
    for prefix, section in RESERVED.items():
        if name.startswith(prefix):
            remedy = f"declare the bucket under {section}" if section else "servers manage it"
            problems.append(f"{where}: streams that begin with {prefix} are reserved; {remedy}")


def _with_named_sources(item: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the settings with sources that are given only by name as mappings."""
    value = item.get(key)
    if isinstance(value, str):
        return {**item, key: {"name": value}}
    if isinstance(value, list):
        return {**item, key: [{"name": one} if isinstance(one, str) else one for one in value]}
    return dict(item)


def _read_consumers(item: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, DesiredConsumer]:
    consumers: dict[str, DesiredConsumer] = {}
    listed = item.get("consumers") or {}
    if not isinstance(listed, Mapping):
        problems.append(f"{where}.consumers: not a mapping of names to consumers")
        return consumers
    for name, settings in listed.items():
        path = f"{where}.consumers.{name}"
        if not asset_name(name):
            problems.append(f"{path}: not the name of a consumer: no spaces, '.', '*', '>', '/' or '\\'")
        given = _read_fields(CONSUMER_DOCUMENT, {} if settings is None else settings, path, problems)
        config = {**normal_config(CONSUMER_FIELDS, {}), "ack_policy": "explicit", **given}
        consumers[str(name)] = DesiredConsumer(str(name), given, config)
    return consumers


def is_key(text: str) -> bool:
    """Return whether a text is a key of a key-value bucket."""
    return bool(_KEY.fullmatch(text))


def _read_entries(given: Any, where: str, problems: list[str]) -> dict[str, DesiredEntry]:
    entries: dict[str, DesiredEntry] = {}
    if given is None:
        return entries
    if not isinstance(given, Mapping):
        problems.append(f"{where}: not a mapping of keys to entries")
        return entries
    for key, item in given.items():
        path = f"{where}.{key}"
        if not isinstance(key, str) or not is_key(key):
            problems.append(f"{path}: not a key: letters, digits, '-', '_', '=', '/' and single dots only")
            continue
        found = _read_fields(ENTRY_DOCUMENT, {} if item is None else item, path, problems)
        mode, value = found.get("mode", SEED), found.get("value")
        if (mode == ABSENT) != (value is None):
            problems.append(
                f"{path}.value: {'must not be given with' if mode == ABSENT else 'missing for'} mode: {mode}"
            )
        entries[key] = DesiredEntry(key, mode, value)
    return entries


_WRITTEN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text; quote it"),
    "percent": ((str, int), "a percentage such as 10%"),
    "choice": ((str,), "a text"),
    "number": ((int,), "an integer"),
    "size": ((str, int), "a size such as 64MiB"),
    "duration": ((str, int, float), "a duration such as 7d or 30s"),
    "time": ((str,), "a quoted time such as '2026-01-31T08:00:00Z'"),
    "flag": ((bool,), "true or false"),
    "durations": ((list,), "a list of durations"),
    "names": ((list,), "a list of texts"),
    "map": ((Mapping,), "a mapping of texts"),
    "object": ((Mapping,), "a mapping"),
    "objects": ((list,), "a list of mappings"),
}


def _read_fields(
    fields: Sequence[ConfigKey], given: Any, where: str, problems: list[str], others: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the given fields in normal form, under the names of the tables. `others`: keys that are read elsewhere."""
    if not isinstance(given, Mapping):
        problems.append(f"{where}: not a mapping of settings")
        return {}
    known = {name: one for one in fields for name in (one.name, *one.aliases)}
    found: dict[str, Any] = {}
    for key, value in given.items():
        path = f"{where}.{key}"
        if key in others:
            continue
        item = known.get(key)
        if item is None:
            problems.append(unknown_key(path, str(key), [*known, *others]))
            continue
        wrong = list(_wrong(item, value, path))
        if not wrong:
            complete = [value] if item.name != key and isinstance(value, str) else _complete(item, value)
            try:
                found.update(desired_fields([item], {item.name: complete}, f"{where}."))
            except OptionError as error:
                wrong.append(str(error))
        problems += wrong
    missing = [one.name for one in fields if one.required and not given.get(one.name)]
    problems += [f"{where}.{name}: missing" for name in missing]
    return {RENAMED.get(name, name): value for name, value in found.items()}


def _complete(item: ConfigKey, value: Any) -> Any:
    """Return a value in which objects have all keys."""
    if item.kind == "object":
        return {part.name: _complete(part, value[part.name]) if part.name in value else None for part in item.fields}
    if item.kind == "objects":
        return [_complete(replace(item, kind="object"), one) for one in value]
    return value


def _wrong(item: ConfigKey, value: Any, where: str) -> Iterator[str]:
    """Yield why a value does not have the type of its field."""
    types, text = _WRITTEN[item.kind]
    content: Any = value
    if item.kind == "names" and isinstance(value, str) and item.aliases and where.endswith(item.aliases):
        return
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield f"{where}: {str(value)[:60]!r} is not {text}"
    elif item.kind == "choice" and value not in item.choices:
        yield f"{where}: {content[:60]!r} is not one of {', '.join(item.choices)}"
    elif item.kind == "number" and content < -1:
        yield f"{where}: {value} is negative"
    elif item.kind in ("names", "durations"):
        if not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in content):
            yield f"{where}: not {text}"
    elif item.kind == "object":
        yield from _wrong_object(item, content, where)
    elif item.kind == "objects":
        for index, one in enumerate(content):
            if isinstance(one, Mapping):
                yield from _wrong_object(item, one, f"{where}[{index}]")
            else:
                yield f"{where}[{index}]: not a mapping"


def _wrong_object(item: ConfigKey, value: Mapping[str, Any], where: str) -> Iterator[str]:
    known = {part.name: part for part in item.fields}
    for key, one in value.items():
        if key in known:
            yield from _wrong(known[key], one, f"{where}.{key}")
        else:
            yield unknown_key(f"{where}.{key}", str(key), known)


# --- Conflicts --------------------------------------------------------------------------------------------------------


def _stream_problems(stream: DesiredStream) -> Iterator[str]:
    """Yield the settings of one stream that every server refuses."""
    config = stream.config
    if config["num_replicas"] > MAX_REPLICAS:
        yield f"{stream.where}.replicas: {config['num_replicas']} is more than {MAX_REPLICAS}"
    most = config["max_consumers"]
    if 0 < most < len(stream.consumers):
        yield f"{stream.where}.max_consumers: {most}, but the document declares {len(stream.consumers)} consumers"
    for consumer in stream.consumers.values():
        where = f"{stream.where}.consumers.{consumer.name}"
        if config["retention"] == "workqueue" and consumer.config["ack_policy"] not in ("explicit", "flow_control"):
            yield f"{where}.ack_policy: a stream with retention workqueue needs explicit"
        if consumer.config["num_replicas"] > config["num_replicas"]:
            yield f"{where}.replicas: more than its stream has ({config['num_replicas']})"
    if config["retention"] == "workqueue":
        for one, other in combinations(stream.consumers.values(), 2):
            mine, theirs = (item.config["filter_subjects"] or [">"] for item in (one, other))
            if any(subjects_collide(left, right) for left in mine for right in theirs):
                yield (
                    f"{stream.where}.consumers: the filters of {one.name} and {other.name} overlap, which retention "
                    "workqueue does not permit"
                )


def collisions(documents: Sequence[AssetsDocument]) -> list[str]:
    """Return the conflicts between the assets of documents: an asset or an identity that two documents claim, subjects
    that two streams of an account would store, and streams that source each other."""
    problems: list[str] = []
    identities: dict[tuple[str, str], str] = {}
    accounts: dict[str, dict[str, tuple[AssetsDocument, DesiredStream]]] = {}
    for document in documents:
        key = (document.account, document.id)
        if key in identities:
            problems.append(f"document {document.id} of account {document.account} is given twice")
        identities[key] = document.id
        claimed = accounts.setdefault(document.account, {})
        for name, stream in document.streams.items():
            if name in claimed and claimed[name][0] is not document:
                other = claimed[name][0]
                problems.append(f"{stream.where}: documents {other.id} and {document.id} both declare {name}")
            claimed[name] = (document, stream)
    for claimed in accounts.values():
        streams = [stream for _document, stream in claimed.values()]
        problems += overlaps(
            [(stream.where, subject) for stream in streams for subject in stream.config["subjects"]],
            [(stream.where, subject) for stream in streams for subject in stream.config["subjects"]],
        )
        problems += _cycles({stream.name: stream for stream in streams})
    return problems


def overlaps(some: Sequence[tuple[str, str]], others: Sequence[tuple[str, str]]) -> list[str]:
    """Return the pairs of overlapping subjects of two streams (10065). Both lists contain a stream and a subject."""
    found: dict[frozenset[str], str] = {}
    by_token: dict[str, list[tuple[str, str]]] = {}
    for other in others:
        by_token.setdefault(other[1].split(".")[0], []).append(other)
    wild = [*by_token.get("*", ()), *by_token.get(">", ())]
    for where, subject in some:
        token = subject.split(".")[0]
        for place, theirs in others if token in ("*", ">") else [*by_token.get(token, ()), *wild]:
            if place != where and subjects_collide(subject, theirs):
                text = f"{where}.subjects: {subject} overlaps {theirs} of {place} (JetStream error 10065)"
                found.setdefault(frozenset((where, place)), text)
    return list(found.values())


def _cycles(streams: Mapping[str, DesiredStream]) -> list[str]:
    """Return the cycles of mirrors and sources."""
    origins = {name: sorted(copied_streams(stream.config) & streams.keys()) for name, stream in streams.items()}
    found = []
    done: set[str] = set()
    for start in sorted(origins):
        path: list[str] = []
        name: str | None = start
        stack = [(start, iter(origins[start]))]
        path.append(start)
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.pop()
                done.add(name)
            elif following in path:
                found.append(f"sources form a cycle: {' → '.join([*path[path.index(following) :], following])}")
            elif following not in done:
                path.append(following)
                stack.append((following, iter(origins[following])))
    return found


def copied_streams(config: Mapping[str, Any]) -> set[str]:
    """Return the streams of the same account that a stream mirrors or sources. `config`: in normal form."""
    sources = (source for source in config["sources"] if not source.get("external"))
    mirrored = {origin(config)} - {""}
    return mirrored | {str(source["name"]) for source in sources}


# --- Schema for editors -----------------------------------------------------------------------------------------------

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_DURATION = {
    "oneOf": [
        {"type": "number", "minimum": -1},
        {"type": "string", "pattern": r"^(-1|[\d.]+|([\d.]+(ns|us|µs|μs|ms|[smhdDwWMyY]))+)$"},
    ]
}
_SIZE = {
    "oneOf": [
        {"type": "integer", "minimum": -1},
        {"type": "string", "pattern": r"^-?\d+\s*([KMGTPEkmgtpe]([Ii]?[Bb]|[Ii])?)?$"},
    ]
}
_PLAIN: Mapping[str, dict[str, Any]] = {
    "text": _TEXT,
    "percent": {"type": ["string", "integer"]},
    "number": {"type": "integer", "minimum": -1},
    "size": _SIZE,
    "duration": _DURATION,
    "durations": {"type": "array", "items": _DURATION},
    "time": {"type": "string"},
    "flag": {"type": "boolean"},
    "names": _TEXTS,
    "map": {"type": "object"},
}


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a document, generated from the tables that parse it."""
    consumer = {"oneOf": [_schema(CONSUMER_DOCUMENT), {"type": "null"}]}
    entry = _schema(ENTRY_DOCUMENT)
    consumers = {"consumers": {"type": "object", "additionalProperties": consumer}}
    entries = {"entries": {"type": "object", "additionalProperties": entry}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Streams, consumers and buckets of a NATS account (natsops.jetstream)",
        "type": "object",
        "additionalProperties": False,
        "required": ["document", "cluster", "account"],
        "anyOf": [{"required": [section]} for section in _SECTIONS],
        "properties": {
            "document": {"type": "string", "pattern": f"^{_IDENTITY.pattern}$"},
            "cluster": {"type": "string", "minLength": 1},
            "account": {"type": "string", "minLength": 1},
            "prune": {"enum": list(PRUNE)},
            "adopt": _TEXTS,
            "streams": _named(STREAM_DOCUMENT, consumers, r"^[^\s.*>/\\]+$"),
            "mirrors": _named(MIRROR_DOCUMENT, consumers, r"^[^\s.*>/\\]+$"),
            "kv": _named(KV_DOCUMENT, entries, _BUCKET),
            "objects": _named(OBJECT_DOCUMENT, {}, _BUCKET),
        },
    }


def _named(fields: Iterable[ConfigKey], more: Mapping[str, Any], names: str) -> dict[str, Any]:
    schema = _schema(fields)
    schema = {**schema, "properties": {**schema["properties"], **more}}
    return {
        "type": "object",
        "propertyNames": {"pattern": names},
        "additionalProperties": {"oneOf": [schema, {"type": "null"}]},
    }


def _schema(fields: Iterable[ConfigKey]) -> dict[str, Any]:
    fields = tuple(fields)
    properties = {name: _kind_schema(one, name) for one in fields for name in (one.name, *one.aliases)}
    required = [one.name for one in fields if one.required]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _kind_schema(one: ConfigKey, name: str) -> dict[str, Any]:
    since = "" if one.since == (2, 10) else f"nats-server {one.since[0]}.{one.since[1]} and later"
    schema = _value_schema(one, name)
    return {**schema, "description": since} if since else schema


def _value_schema(one: ConfigKey, name: str) -> dict[str, Any]:
    if name in one.aliases:
        return _TEXT
    if one.kind == "choice":
        return {"enum": list(one.choices)}
    if one.kind == "object":
        return _or_name(one)
    if one.kind == "objects":
        return {"type": "array", "items": _or_name(one)}
    return dict(_PLAIN[one.kind])


def _or_name(one: ConfigKey) -> dict[str, Any]:
    """Return the schema of an object, which may be given by its name if it is a source."""
    schema = _schema(one.fields)
    return {"oneOf": [schema, _TEXT]} if one.name in ("of", "mirror", "sources") else schema
