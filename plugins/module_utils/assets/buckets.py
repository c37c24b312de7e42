# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Key-value and object buckets in terms of their streams. Pure: no I/O.

Sources: ADR-8 (key-value), ADR-20 (object store), and their implementations in nats.go and nats-py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from .config import DUPLICATE_WINDOW, STREAM_FIELDS, Config, ConfigKey, OptionError

MAX_HISTORY = 64

_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_STREAM_FIELD = {item.name: item for item in STREAM_FIELDS}

#: Option of a bucket → key of its stream. All other options have the same name as the key.
_KV_NAMES = {
    "history": "max_msgs_per_subject",
    "ttl": "max_age",
    "max_value_size": "max_msg_size",
    "limit_marker_ttl": "subject_delete_marker_ttl",
}


def _fields(*names: str) -> tuple[ConfigKey, ...]:
    return tuple(replace(_STREAM_FIELD[_KV_NAMES.get(name, name)], name=name) for name in names)


_SHARED = ("description", "ttl", "max_bytes", "storage", "num_replicas", "placement", "compression", "metadata")

KV_FIELDS = _fields(*_SHARED, "history", "max_value_size", "limit_marker_ttl", "republish", "mirror", "sources")
OBJECT_FIELDS = _fields(*_SHARED, "sealed")


def require_bucket(name: str) -> str:
    """Return the name of a bucket. Raises OptionError for a name that clients do not accept."""
    if not _BUCKET.fullmatch(name):
        raise OptionError(f"bucket: {name!r} is not the name of a bucket: letters, digits, '_' and '-' only")
    return name


def kv_stream(bucket: str) -> str:
    """Return the name of a key-value bucket's stream."""
    return f"KV_{bucket}"


def object_stream(bucket: str) -> str:
    """Return the name of an object bucket's stream."""
    return f"OBJ_{bucket}"


def kv_subject(bucket: str, keys: str = ">") -> str:
    """Return the subject of a key-value bucket's keys."""
    return f"$KV.{bucket}.{keys}"


def kv_selection(bucket: str, keys: str) -> dict[str, str]:
    """Return the purge request for these keys of the stream, or {} for all keys. Raises OptionError for an empty
    selection."""
    if not keys:
        raise OptionError("keys: '' selects nothing; '>' is every key")
    return {} if keys == ">" else {"filter": kv_subject(bucket, keys)}


def kv_desired(bucket: str, given: Config) -> dict[str, Any]:
    """Return the stream's settings for a bucket's options in normal form. Raises OptionError."""
    history = given.get("history", 1)
    if not 1 <= history <= MAX_HISTORY:
        raise OptionError(f"history: must be from 1 to {MAX_HISTORY}, not {history}")
    desired = _stream_desired(given)
    if "mirror" in desired and not desired["mirror"]:
        desired["subjects"] = [kv_subject(bucket)]
    if desired.get("mirror"):
        desired["mirror"] = {**desired["mirror"], "name": _prefixed(desired["mirror"]["name"])}
        if "external" in desired["mirror"]:
            desired["mirror_direct"] = True
    if "sources" in desired:
        desired["sources"] = sorted((_kv_source(bucket, source) for source in desired["sources"]), key=repr)
    return desired


def object_desired(given: Config) -> dict[str, Any]:
    """Return the stream's settings for a bucket's options in normal form."""
    return _stream_desired(given)


def kv_options(bucket: str, config: Config) -> dict[str, Any]:
    """Return a bucket's options from the configuration of its stream, both in normal form: the reverse of
    `kv_desired`."""
    options = _options(KV_FIELDS, config)
    if options["mirror"]:
        options["mirror"] = {**options["mirror"], "name": _short(options["mirror"]["name"])}
    options["sources"] = [_kv_origin(bucket, source) for source in options["sources"]]
    return options


def object_options(config: Config) -> dict[str, Any]:
    """Return a bucket's options from the configuration of its stream, both in normal form."""
    return _options(OBJECT_FIELDS, config)


def _options(fields: Iterable[ConfigKey], config: Config) -> dict[str, Any]:
    return {item.name: config[_KV_NAMES.get(item.name, item.name)] for item in fields}


def _stream_desired(given: Config) -> dict[str, Any]:
    desired = {_KV_NAMES.get(name, name): value for name, value in given.items()}
    if "max_age" in desired and not desired.get("mirror"):
        desired["duplicate_window"] = min(DUPLICATE_WINDOW, desired["max_age"] or DUPLICATE_WINDOW)
    return desired


def _prefixed(name: str) -> str:
    return name if name.startswith("KV_") else kv_stream(name)


def _kv_source(bucket: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a source of the stream; unless the options override the mapping, keys of its bucket are mapped to keys of
    this bucket."""
    name = _prefixed(source["name"])
    origin = name[len("KV_") :]
    mapped = {**source, "name": name}
    if "subject_transforms" in source or "filter_subject" in source or ("external" in source and origin == bucket):
        return mapped
    return {**mapped, "subject_transforms": [{"src": kv_subject(origin), "dest": kv_subject(bucket)}]}


def _short(name: str) -> str:
    """Return the bucket of a stream, from which `_prefixed` returns the stream."""
    bucket = name.removeprefix("KV_")
    return bucket if _prefixed(bucket) == name else name


def _kv_origin(bucket: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a source of a bucket from that of its stream, without the default mapping of keys."""
    short = {key: value for key, value in source.items() if key != "subject_transforms"}
    short["name"] = _short(source["name"])
    return short if _kv_source(bucket, short) == source else {**source, "name": short["name"]}


def kv_defaults(bucket: str, desired: Config) -> dict[str, Any]:
    """Return the default settings of a new bucket's stream."""
    made = {
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }
    return made if desired.get("mirror") else {**made, "subjects": [kv_subject(bucket)]}


def object_defaults(bucket: str) -> dict[str, Any]:
    """Return the default settings of a new bucket's stream."""
    subjects = [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"]
    return {"subjects": subjects, "discard": "new", "allow_rollup_hdrs": True, "allow_direct": True}


def is_kv(bucket: str, config: Config) -> bool:
    """Return whether a stream, in normal form, works as this key-value bucket."""
    return config["max_msgs_per_subject"] > 0 and bool(config["mirror"] or kv_subject(bucket) in config["subjects"])


def is_object(bucket: str, config: Config) -> bool:
    """Return whether a stream, in normal form, works as this object bucket."""
    return set(object_defaults(bucket)["subjects"]) <= set(config["subjects"])
