# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of the live assets of an account. Pure.

A document states only values that differ from the defaults of a new asset. Before it is returned, it is planned against the
assets that it was made from: everything that the plan would change, except for the marks of ownership, is left out and
reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ..documents import InvalidDocument, dump_yaml, owning_document, unmarked
from ..screen import Page, fitting, page, printable
from ..table import table_page
from ..units import counted
from . import config as rules
from .buckets import kv_options, kv_subject, object_options
from .change_rows import in_words
from .document import (
    CONSUMER_DOCUMENT,
    KV,
    KV_DOCUMENT,
    MIRROR_DOCUMENT,
    OBJECT_DOCUMENT,
    OBJECTS,
    OWN,
    RENAMED,
    RESERVED,
    SEED,
    STREAM,
    STREAM_DOCUMENT,
    parse_document,
    read_document,
)
from .order import CONSUMER, ENTRY
from .ownership import only_marks, own_changes
from .plan import EXTRA, FOREIGN, SAME, LiveAssets, is_ephemeral, make_plan
from .plan_page import change_text

#: The first line of an exported document, which editors read.
SCHEMA_LINE = (
    "# yaml-language-server: $schema=https://github.com/natsops/ansible-jetstream/raw/main/docs/reference/"
    "assets.schema.json"
)

_STREAMS, _MIRRORS, _KV, _OBJECTS = "streams", "mirrors", "kv", "objects"
_SECTIONS = {
    _STREAMS: (STREAM, STREAM_DOCUMENT),
    _MIRRORS: (STREAM, MIRROR_DOCUMENT),
    _KV: (KV, KV_DOCUMENT),
    _OBJECTS: (OBJECTS, OBJECT_DOCUMENT),
}
_SOURCES = ("of", "mirror", "sources")

Body = dict[str, Any]


@dataclass(frozen=True)
class ExportRequest:
    """The assets to export. `document`: the name of the new document; `streams`: patterns of streams; `seed`, `own`:
    patterns of buckets with entries of this mode."""

    document: str
    account: str
    streams: Sequence[str] = ("*",)
    seed: Sequence[str] = ()
    own: Sequence[str] = ()

    def mode(self, bucket: str) -> str:
        """Return the mode of a bucket's entries, "" if they are not exported."""
        return OWN if _matches(bucket, self.own) else SEED if _matches(bucket, self.seed) else ""


@dataclass(frozen=True)
class Omission:
    """An asset that the document does not declare, and the reason."""

    kind: str
    name: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "name": printable(self.name), "reason": printable(self.reason)}


@dataclass(frozen=True)
class Export:
    """The document as content and as text, and the assets that it does not declare. `unmarked`: the number of assets that
    no document owned, which the new document adopts."""

    content: Mapping[str, Any]
    text: str
    omitted: Sequence[Omission]
    unmarked: int

    def counts(self) -> dict[str, int]:
        """Return the number of declared assets by section of the document, and of consumers and entries."""
        items = {section: self.content.get(section, {}) for section in _SECTIONS}
        bodies = [body for section in items.values() for body in section.values()]
        inner = {part: sum(len(body.get(part, ())) for body in bodies) for part in ("consumers", "entries")}
        return {**{section: len(found) for section, found in items.items()}, **inner}


@dataclass
class _ExportItem:
    """A stream or bucket of the document. `adopt`: the unmarked asset and consumers."""

    section: str
    label: str
    body: Body
    consumers: dict[str, Body] = field(default_factory=dict)
    entries: dict[str, Body] = field(default_factory=dict)
    adopt: set[str] = field(default_factory=set)


def selected(stream: str, request: ExportRequest) -> bool:
    """Return whether a stream is exported."""
    return _matches(stream, request.streams)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    # `[` is taken literally: a stream's name may contain it.
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


def export_document(request: ExportRequest, live: LiveAssets, omitted: Sequence[Omission] = ()) -> Export:
    """Return the document of an account's live assets. `omitted`: entries that the reader has left out.

    Raises InvalidDocument if the state of an asset is unknown, or if there is nothing to export."""
    exporter = _Exporter(request, live)
    unknown = exporter.unknown()
    if unknown:
        raise InvalidDocument(unknown)
    items = exporter.items()
    while items:
        text, content = exporter.document(items)
        refused = exporter.refused(text)
        if not refused:
            found = [*exporter.omitted, *omitted]
            adopted = sum(len(item.adopt) for item in items)
            return Export(content, text, sorted(found, key=lambda one: (one.kind, one.name)), adopted)
        before = len(exporter.omitted)
        items = exporter.without(items, refused)
        if len(exporter.omitted) == before:
            raise InvalidDocument([f"{kind} {name}: {reason}" for (kind, name), reason in refused.items()])
    reasons = [f"{one.kind} {one.name}: {one.reason}" for one in exporter.omitted]
    raise InvalidDocument([f"account {request.account} has no assets that the document could declare", *reasons])


class _Exporter:
    """Makes the document of one account. `omitted`: the assets that it does not declare."""

    def __init__(self, request: ExportRequest, live: LiveAssets) -> None:
        self._request = request
        self._live = live
        self._head = {"document": request.document, "cluster": live.cluster, "account": request.account}
        self.omitted: list[Omission] = []

    def unknown(self) -> list[str]:
        """Return the assets whose state no server reported."""
        reasons = {**self._live.unknown, **self._live.unknown_consumers}
        return [
            f"{name}: its state is unknown: {reason}; export when it has a leader, or select other streams"
            for name, reason in sorted(reasons.items())
            if selected(name.split("/")[0], self._request)
        ]

    def items(self) -> list[_ExportItem]:
        """Return the assets that a document can declare."""
        found = []
        for name in sorted(self._live.streams):
            if selected(name, self._request):
                item = self._item(name)
                if item is not None:
                    found.append(item)
        return found

    def _item(self, name: str) -> _ExportItem | None:
        old = _normal(rules.STREAM_FIELDS, self._live.streams[name])
        section, label = _place(name, old)
        kind = _SECTIONS[section][0]
        if name.startswith("$MQTT_"):
            self._omit(kind, label, "servers manage it")
            return None
        try:
            body = self._stream_body(section, label, name, old)
        except InvalidDocument as error:
            self._omit(kind, label, "; ".join(error.problems))
            return None
        item = _ExportItem(section, label, body)
        if not self._is_own(self._live.streams[name]):
            item.adopt.add(label)
        if kind == KV:
            item.entries = self._entries(name, label)
        for consumer, info in sorted(self._live.consumers.get(name, {}).items()):
            if is_ephemeral(info):
                continue
            full_name = f"{name}/{consumer}"
            if kind != STREAM:
                self._omit(CONSUMER, full_name, "a document cannot declare consumers of buckets")
                continue
            try:
                item.consumers[consumer] = self._consumer_body(label, consumer, info, old)
            except InvalidDocument as error:
                self._omit(CONSUMER, full_name, "; ".join(error.problems))
                continue
            if not self._is_own(info):
                item.adopt.add(full_name)
        return item

    def _omit(self, kind: str, name: str, reason: str) -> None:
        self.omitted.append(Omission(kind, name, reason))

    def _is_own(self, info: Mapping[str, Any]) -> bool:
        return owning_document(info["config"].get("metadata") or {}) == self._request.document

    def _stream_body(self, section: str, label: str, name: str, old: rules.Config) -> Body:
        """Return the settings of a stream or bucket. Raises InvalidDocument."""
        origin = self._live.streams.get(rules.origin(old))
        origin_direct = bool(origin["config"].get("allow_direct")) if origin else None

        def differing(body: Body) -> list[str]:
            stream = read_document({**self._head, section: {label: body}}).streams[name]
            new = stream.effective(old, self._live.release, origin_direct)
            return rules.changed_keys(old, {**new, "metadata": unmarked(new["metadata"])})

        fields = _SECTIONS[section][1]
        options = {_KV: lambda: kv_options(label, old), _OBJECTS: lambda: object_options(old)}
        return _shortest(fields, options.get(section, lambda: old)(), differing)

    def _consumer_body(self, stream: str, name: str, info: Mapping[str, Any], stream_config: rules.Config) -> Body:
        """Return the settings of a consumer. A pause is an operation and not part of them. Raises InvalidDocument."""
        old = {**_normal(rules.CONSUMER_FIELDS, info), "pause_until": None}

        def differing(body: Body) -> list[str]:
            parent = {"replicas": stream_config["num_replicas"], "consumers": {name: body}}
            consumer = read_document({**self._head, _STREAMS: {stream: parent}}).streams[stream].consumers[name]
            return rules.changed_keys(old, rules.expected_consumer(consumer.config, consumer.given, stream_config))

        return _shortest(CONSUMER_DOCUMENT, old, differing)

    def _entries(self, stream: str, bucket: str) -> dict[str, Body]:
        mode = self._request.mode(bucket)
        found: dict[str, Body] = {}
        for (owner, key), entry in sorted(self._live.entries.items()):
            if owner == stream and entry.value is not None and mode:
                found[key] = {"value": entry.value.decode(), **({"mode": mode} if mode != SEED else {})}
        return found

    # --- The document and its plan ------------------------------------------------------------------------------------

    def document(self, items: Sequence[_ExportItem]) -> tuple[str, dict[str, Any]]:
        """Return the document as text and as content."""
        content: dict[str, Any] = dict(self._head)
        for section in _SECTIONS:
            bodies = {item.label: _whole(item) for item in items if item.section == section}
            if bodies:
                content[section] = bodies
        adopt = sorted({name for item in items for name in _adopted(item)})
        if adopt:
            content["adopt"] = adopt
        return f"{SCHEMA_LINE}\n---\n{dump_yaml(content)}", content

    def refused(self, text: str) -> dict[tuple[str, str], str]:
        """Return the assets that a plan of the document would change or leave alone, by kind and name, and the reason."""
        plan = make_plan([parse_document(text)], {self._request.account: self._live}, (), ())
        found = {}
        for row in plan["assets"]:
            if row["document"] != self._request.document or row["state"] in (SAME, EXTRA) or only_marks(row):
                continue
            changes = ", ".join(change_text(one) for one in own_changes(row))
            reasons = row["notes"] if row["state"] == FOREIGN else row["problems"]
            found[row["kind"], row["name"]] = "; ".join(reasons) or f"a document would change it: {changes}"
        return found

    def without(self, items: Sequence[_ExportItem], refused: Mapping[tuple[str, str], str]) -> list[_ExportItem]:
        """Return the document's assets without the refused ones."""
        left = []
        for item in items:
            kind = _SECTIONS[item.section][0]
            reason = refused.get((kind, printable(item.label)))
            if reason is not None:
                self._omit(kind, item.label, reason)
                continue
            for name in list(item.consumers):
                full_name = f"{item.label}/{name}"
                reason = refused.get((CONSUMER, printable(full_name)))
                if reason is not None:
                    self._omit(CONSUMER, full_name, reason)
                    del item.consumers[name]
                    item.adopt.discard(full_name)
            for key in list(item.entries):
                reason = refused.get((ENTRY, printable(f"{item.label}/{key}")))
                if reason is not None:
                    self._omit(ENTRY, f"{item.label}/{key}", reason)
                    del item.entries[key]
            left.append(item)
        return left


def _normal(fields: Sequence[rules.ConfigKey], info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a live configuration in normal form, without the marks of a document."""
    config = rules.normal_config(fields, info["config"])
    return {**config, "metadata": unmarked(config["metadata"])}


def _place(name: str, config: rules.Config) -> tuple[str, str]:
    """Return the section of a document for a stream, and its name there."""
    for prefix, section in RESERVED.items():
        if section and name.startswith(prefix):
            return section, name.removeprefix(prefix)
    return (_MIRRORS if config["mirror"] else _STREAMS), name


def _shortest(fields: Sequence[rules.ConfigKey], values: rules.Config, differing: Callable[[Body], list[str]]) -> Body:
    """Return the fewest fields of an asset with which its document plans no change. `values`: in normal form, by their
    names in the tables; `differing`: returns the fields in which a plan for the given ones differs from the asset.

    Raises InvalidDocument if no document can declare the asset."""

    def tries(body: Body) -> bool:
        try:
            return not differing(body)
        except (InvalidDocument, rules.OptionError):
            return False

    by_wire = {RENAMED.get(one.name, "mirror" if one.name == "of" else one.name): one for one in fields}
    shown = [wire for wire, one in by_wire.items() if values[wire] != rules.normal(one, None)]
    body = _words(by_wire, values, shown)
    try:
        # Fields that have the server's default, but not that of a document.
        body = _words(by_wire, values, [*shown, *(wire for wire in differing(body) if wire in by_wire)])
    except rules.OptionError as error:
        raise InvalidDocument([str(error)]) from error
    if tries(body):
        for name in list(body):
            shorter = {key: value for key, value in body.items() if key != name}
            body = shorter if tries(shorter) else body
    return body


def _words(fields: Mapping[str, rules.ConfigKey], values: rules.Config, wires: Iterable[str]) -> Body:
    chosen = set(wires)
    return {
        one.name: _short_sources(one, in_words(one, values[wire])) for wire, one in fields.items() if wire in chosen
    }


def _short_sources(one: rules.ConfigKey, value: Any) -> Any:
    """Return each source that has only a name as this name."""
    if one.name not in _SOURCES or not value:
        return value
    if isinstance(value, list):
        return [_short_sources(one, source) for source in value]
    return value["name"] if set(value) == {"name"} else value


def _whole(item: _ExportItem) -> Body:
    parts = {"consumers": item.consumers, "entries": item.entries}
    return {**item.body, **{name: part for name, part in parts.items() if part}}


def _adopted(item: _ExportItem) -> Iterator[str]:
    """Yield the names for `adopt`; that of a stream includes its consumers."""
    yield from [item.label] if item.label in item.adopt else item.adopt


# --- Entries ----------------------------------------------------------------------------------------------------------


def buckets_with_entries(request: ExportRequest, live: LiveAssets, most: int) -> tuple[dict[str, str], list[Omission]]:
    """Return the buckets whose entries are exported, by stream, and those whose entries are left out. `most`: the largest
    number of keys."""
    found: dict[str, str] = {}
    omitted = []
    for name, info in sorted(live.streams.items()):
        section, bucket = _place(name, _normal(rules.STREAM_FIELDS, info))
        if section != _KV or not selected(name, request) or not request.mode(bucket):
            continue
        keys = (info.get("state") or {}).get("num_subjects", 0)
        if info["config"].get("mirror"):
            omitted.append(Omission(ENTRY, f"{bucket}/>", "a mirror is read-only; export the entries of its origin"))
        elif keys > most:
            omitted.append(Omission(ENTRY, f"{bucket}/>", f"it has {counted(keys, 'key')}, more than {most}"))
        else:
            found[name] = bucket
    return found, omitted


def entry_problem(value: bytes, most: int) -> str:
    """Return why a document cannot contain a value, "" if it can. `most`: its largest size in bytes."""
    if len(value) > most:
        return f"it has {counted(len(value), 'byte')}, more than {most}"
    try:
        value.decode()
    except UnicodeDecodeError:
        return "its value is not text"
    return ""


def entry_key(bucket: str, subject: str) -> str:
    """Return the key of a bucket's subject."""
    return subject.removeprefix(kv_subject(bucket, ""))


# --- For people -------------------------------------------------------------------------------------------------------


def export_summary(export: Export) -> str:
    """Return an export as one line."""
    counts = ", ".join(f"{count} {what}" for what, count in export.counts().items() if count)
    rest = [f"{export.unmarked} to adopt"] if export.unmarked else []
    return "; ".join([counts, *rest, *([f"{len(export.omitted)} left out"] if export.omitted else [])])


def export_page(export: Export) -> Page:
    """Return the assets that the document does not declare, with the reasons."""
    return fitting(lambda most: _page(export, most))


def _page(export: Export, most: int) -> Page:
    rows = [tuple(one.as_dict().values()) for one in export.omitted]
    if not rows:
        return page("The document declares every asset.")
    title = "Assets that the document does not declare"
    return table_page(title, ("kind", "name", "reason"), rows, most=most)
