# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of streams and consumers: desired values in human units, the server's view, and their
comparison.

PRIVATE to the collection. Pure: no I/O. A configuration in *normal form* has every field of its table, in the server's
words and units (bytes, nanoseconds), with defaults filled in, so two configurations with the same meaning are equal.
Sources: server/stream.go (StreamConfig, checkStreamCfg, configUpdateCheck), server/consumer.go (ConsumerConfig,
setConsumerConfigDefaults, checkNewConsumerConfig), each in versions 2.10 and 2.15."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from ..nats.info_shapes import SERVER_METADATA
from ..times import parse_time
from ..units import parse_duration, size_bytes

Config = Mapping[str, Any]
Release = tuple[int, int]
OLDEST: Release = (2, 10)
SECOND = 1_000_000_000
DUPLICATE_WINDOW = 120 * SECOND


class OptionError(ValueError):
    """An invalid value of an option; the message names the option."""


@dataclass(frozen=True)
class ConfigKey:
    """One key of a configuration. `kind` is one of the keys of _TYPES.

    `default`: the server's default. `since`: the first release with the field, `choices_since`: the first releases with
    a choice. `unlimited`: whether -1 differs from 0. `required`: whether an object that is not empty must have the key.
    """

    name: str
    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()
    fields: tuple[ConfigKey, ...] = ()
    since: Release = OLDEST
    choices_since: Mapping[str, Release] = field(default_factory=dict)
    unlimited: bool = False
    required: bool = False
    aliases: tuple[str, ...] = ()


def _text(name: str, **more: Any) -> ConfigKey:
    return ConfigKey(name, "text", "", **more)


def _flag(name: str, **more: Any) -> ConfigKey:
    return ConfigKey(name, "flag", False, **more)


def _limit(name: str, kind: str = "number") -> ConfigKey:
    return ConfigKey(name, kind, -1)


def _number(name: str, kind: str = "number", default: int = 0, **more: Any) -> ConfigKey:
    return ConfigKey(name, kind, default, **more)


def _choice(name: str, *choices: str, **more: Any) -> ConfigKey:
    return ConfigKey(name, "choice", choices[0], choices, **more)


_TRANSFORM = (_text("src"), _text("dest", required=True))
_SOURCE = (
    _text("name", required=True),
    _number("opt_start_seq"),
    ConfigKey("opt_start_time", "time"),
    _text("filter_subject"),
    ConfigKey("subject_transforms", "objects", fields=_TRANSFORM),
    ConfigKey("external", "object", fields=(_text("api", required=True), _text("deliver"))),
    ConfigKey(
        "consumer",
        "object",
        fields=(_text("name", required=True), _text("deliver_subject", required=True)),
        since=(2, 14),
    ),
)
STREAM_FIELDS: tuple[ConfigKey, ...] = (
    _text("description"),
    ConfigKey("subjects", "names"),
    _choice("retention", "limits", "interest", "workqueue"),
    _limit("max_consumers"),
    _limit("max_msgs"),
    _limit("max_bytes", "size"),
    _number("max_age", "duration"),
    _limit("max_msgs_per_subject"),
    _limit("max_msg_size", "size"),
    _choice("discard", "old", "new"),
    _flag("discard_new_per_subject"),
    _choice("storage", "file", "memory"),
    _number("num_replicas", default=1),
    _flag("no_ack"),
    _number("duplicate_window", "duration"),
    ConfigKey("placement", "object", fields=(_text("cluster"), ConfigKey("tags", "names"))),
    ConfigKey("mirror", "object", fields=_SOURCE),
    ConfigKey("sources", "objects", fields=_SOURCE),
    _choice("compression", "none", "s2"),
    _number("first_seq"),
    ConfigKey("subject_transform", "object", fields=_TRANSFORM),
    ConfigKey(
        "republish",
        "object",
        fields=(ConfigKey("src", "text", ">"), _text("dest", required=True), _flag("headers_only")),
    ),
    _flag("allow_direct"),
    _flag("mirror_direct"),
    _flag("sealed"),
    _flag("deny_delete"),
    _flag("deny_purge"),
    _flag("allow_rollup_hdrs"),
    ConfigKey(
        "consumer_limits",
        "object",
        fields=(_number("inactive_threshold", "duration"), _number("max_ack_pending")),
    ),
    _flag("allow_msg_ttl", since=(2, 11)),
    _number("subject_delete_marker_ttl", "duration", since=(2, 11)),
    _flag("allow_msg_counter", since=(2, 12)),
    _flag("allow_atomic", since=(2, 12)),
    _flag("allow_msg_schedules", since=(2, 12)),
    _choice("persist_mode", "default", "async", since=(2, 12)),
    _flag("allow_batched", since=(2, 14)),
    ConfigKey("metadata", "map"),
)
CONSUMER_FIELDS: tuple[ConfigKey, ...] = (
    _text("description"),
    _choice("deliver_policy", "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"),
    _number("opt_start_seq"),
    ConfigKey("opt_start_time", "time"),
    _choice("ack_policy", "none", "all", "explicit", "flow_control", choices_since={"flow_control": (2, 14)}),
    _number("ack_wait", "duration"),
    _limit("max_deliver"),
    ConfigKey("backoff", "durations"),
    ConfigKey("filter_subjects", "names", aliases=("filter_subject",)),
    _choice("replay_policy", "instant", "original"),
    _number("rate_limit_bps"),
    ConfigKey("sample_freq", "percent", ""),
    _number("max_waiting"),
    _number("max_ack_pending", unlimited=True),
    _flag("flow_control"),
    _flag("headers_only"),
    _number("max_batch"),
    _number("max_expires", "duration"),
    _number("max_bytes", "size"),
    _text("deliver_subject"),
    _text("deliver_group"),
    _number("idle_heartbeat", "duration"),
    _number("inactive_threshold", "duration"),
    _number("num_replicas"),
    _flag("mem_storage"),
    ConfigKey("pause_until", "time", since=(2, 11)),
    ConfigKey("priority_groups", "names", since=(2, 11)),
    _choice(
        "priority_policy",
        "none",
        "overflow",
        "pinned_client",
        "prioritized",
        since=(2, 11),
        choices_since={"prioritized": (2, 12)},
    ),
    _number("priority_timeout", "duration", since=(2, 11)),
    ConfigKey("metadata", "map"),
)
#: How Ansible parses each kind of field.
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "str"},
    "percent": {"type": "str"},
    "choice": {"type": "str"},
    "number": {"type": "int"},
    "size": {"type": "str"},
    "duration": {"type": "str"},
    "durations": {"type": "list", "elements": "str"},
    "time": {"type": "str"},
    "flag": {"type": "bool"},
    "names": {"type": "list", "elements": "str"},
    "map": {"type": "dict"},
    "object": {"type": "dict"},
    "objects": {"type": "list", "elements": "dict"},
}


def argument_spec(fields: Iterable[ConfigKey]) -> dict[str, dict[str, Any]]:
    """Return the module options of these fields, under the same names."""
    spec: dict[str, dict[str, Any]] = {}
    for item in fields:
        own = dict(_TYPES[item.kind])
        if item.choices:
            own["choices"] = list(item.choices)
        if item.aliases:
            own["aliases"] = list(item.aliases)
        if item.fields:
            own["options"] = argument_spec(item.fields)
        spec[item.name] = own
    return spec


def desired_fields(fields: Iterable[ConfigKey], params: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the options that are set (not null), in normal form. Raises OptionError."""
    return {
        item.name: normal(item, _read(item, params[item.name], where + item.name))
        for item in fields
        if params.get(item.name) is not None
    }


def _read(item: ConfigKey, given: Any, where: str) -> Any:
    """Return an option's value in the server's units."""
    try:
        if item.kind == "size":
            return size_bytes(given)
        if item.kind == "duration":
            return _nanoseconds(given)
        if item.kind == "durations":
            return [_nanoseconds(one) for one in given]
        if item.kind == "time":
            return given and _moment(given)
    except ValueError as error:
        raise OptionError(f"{where}: {error}") from error
    if item.kind == "map":
        return _read_map(given, where)
    if item.kind == "object":
        return _read_object(item, given, where) if any(value is not None for value in given.values()) else {}
    if item.kind == "objects":
        return [_read_object(item, one, f"{where}[{index}]") for index, one in enumerate(given)]
    return given


def _read_object(item: ConfigKey, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    absent = [part.name for part in item.fields if part.required and not given.get(part.name)]
    if absent:
        raise OptionError(f"{where}: {', '.join(absent)} must be given")
    return desired_fields(item.fields, given, where + ".")


def _read_map(given: Mapping[str, Any], where: str) -> dict[str, str]:
    reserved = [str(key) for key in given if str(key).startswith(SERVER_METADATA)]
    if reserved:
        raise OptionError(
            f"{where}: {', '.join(reserved)}: keys that begin with {SERVER_METADATA} are reserved for the server"
        )
    return {str(key): _map_text(value) for key, value in given.items()}


def _map_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nanoseconds(text: Any) -> int:
    written = str(text).strip()
    return 0 if written == "-1" else round(parse_duration(written) * SECOND)


def _moment(text: str) -> str:
    """Return a timestamp as RFC 3339 in UTC, with microseconds if it has any. A timestamp without a zone is taken as
    UTC."""
    try:
        moment = parse_time(text.strip().replace(" ", "T", 1))
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-01-31T08:00:00Z") from None
    if moment.year == 1:
        return ""
    return moment.replace(tzinfo=None).isoformat() + "Z"


def normal(item: ConfigKey, value: Any) -> Any:
    """Return a field's value, which comes from a server or from `desired_fields`, in normal form."""
    if item.kind in ("number", "size", "duration"):
        number = int(value or 0)
        return number if number > 0 else -1 if item.unlimited and number < 0 else item.default
    if item.kind == "flag":
        return bool(value)
    if item.kind == "names":
        return sorted(set(value or ()))
    if item.kind == "durations":
        return list(value or ())
    if item.kind == "time":
        return (_moment(str(value)) if value else "") or None
    if item.kind == "map":
        return {key: one for key, one in sorted((value or {}).items()) if not key.startswith(SERVER_METADATA)}
    if item.kind == "object":
        return _normal_object(item, value) or None
    if item.kind == "objects":
        return sorted((_normal_object(item, one) for one in value or ()), key=repr)
    if item.kind == "percent":
        return str(value or "").rstrip("%").strip()
    return value or item.default


def _normal_object(item: ConfigKey, value: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an object with only the values that differ from the default, so an absent value equals the default."""
    whole = {part.name: normal(part, (value or {}).get(part.name)) for part in item.fields}
    empty = {part.name: normal(part, None) for part in item.fields}
    return {name: one for name, one in whole.items() if one != empty[name]}


def normal_config(fields: Iterable[ConfigKey], config: Config) -> dict[str, Any]:
    """Return the complete configuration of a stream or consumer, as a server reports it, in normal form."""
    known = dict(config)
    if known.get("filter_subject"):
        known["filter_subjects"] = [known["filter_subject"]]
    return {item.name: normal(item, known.get(item.name)) for item in fields}


def shown(fields: Iterable[ConfigKey], config: Config) -> dict[str, Any]:
    """Return the values of a configuration in normal form that differ from the server's defaults."""
    return {item.name: config[item.name] for item in fields if config[item.name] != normal(item, None)}


def clean(config: Config) -> dict[str, Any]:
    """Return the configuration of a stream or consumer without the metadata that servers write themselves."""
    result = dict(config)
    metadata = {
        key: value for key, value in (result.pop("metadata", None) or {}).items() if not key.startswith(SERVER_METADATA)
    }
    return {**result, "metadata": metadata} if metadata else result


def changed_keys(old: Config, new: Config) -> list[str]:
    """Return the names of the fields that differ between two configurations in normal form."""
    return [name for name in new if old[name] != new[name]]


def request(
    fields: Iterable[ConfigKey], raw: Config, target: Config, keys: Iterable[str], release: Release
) -> dict[str, Any]:
    """Return the configuration to send: the server's own (`raw`) with the new values of `keys`.

    Unchanged values are sent exactly as the server wrote them, because the server compares some fields literally
    (mirror). A field that the server does not support is omitted if it has its default: 2.12 and later refuse unknown
    fields."""
    config = {key: value for key, value in raw.items() if key != "metadata"}
    metadata = dict(raw.get("metadata") or {})
    wanted = set(keys)
    for item in fields:
        if item.name not in wanted:
            continue
        value = target[item.name]
        if item.kind == "map":
            kept = {key: one for key, one in metadata.items() if key.startswith(SERVER_METADATA)}
            metadata = {**kept, **value}
        elif value is None or (release < item.since and value == normal(item, None)):
            config.pop(item.name, None)
        else:
            config[item.name] = value
    if "filter_subjects" in wanted:
        config.pop("filter_subject", None)
        if len(config["filter_subjects"]) == 1:
            config["filter_subject"] = config.pop("filter_subjects")[0]
    return {**config, "metadata": metadata} if metadata or raw.get("metadata") else config


def too_new(fields: Iterable[ConfigKey], config: Config, release: Release, where: str = "") -> list[str]:
    """Return the parts of a configuration that servers of `release` do not support, each with the option and the
    required version."""
    found: list[str] = []
    for item in fields:
        value = config.get(item.name)
        if value is None or value == normal(item, None):
            continue
        name = where + item.name
        needed = item.choices_since.get(value, item.since) if item.kind == "choice" else item.since
        if needed > release:
            choice = f"={value}" if item.kind == "choice" else ""
            found.append(f"{name}{choice} needs nats-server {needed[0]}.{needed[1]}")
        if item.kind == "object":
            found += too_new(item.fields, value, release, name + ".")
        if item.kind == "objects":
            for one in value:
                found += too_new(item.fields, one, release, name + ".")
    return found


def merge(old: Config, desired: Config) -> dict[str, Any]:
    """Return the desired configuration: the old one with the requested values."""
    return {**old, **desired}


def origin(config: Config) -> str:
    """Return the name of the stream in the same account that this stream mirrors, or "" if there is none."""
    mirror = config["mirror"] or {}
    return "" if mirror.get("external") else str(mirror.get("name", ""))


def expected_stream(
    name: str, config: Config, desired: Config, release: Release, origin_direct: bool | None = None
) -> dict[str, Any]:
    """Return the effective configuration of a stream on the server (checkStreamCfg, configUpdateCheck).

    `origin_direct`: whether the mirrored stream allows direct reads, None if the stream is not a mirror. Raises
    OptionError if the server would override a requested value."""
    made = dict(config)
    reasons: dict[str, str] = {}

    def imply(because: str, **values: Any) -> None:
        made.update(values)
        reasons.update(dict.fromkeys(values, because))

    if made["subject_delete_marker_ttl"]:
        imply("subject_delete_marker_ttl", allow_msg_ttl=True, allow_rollup_hdrs=True, deny_purge=False)
    if made["allow_msg_schedules"]:
        imply("allow_msg_schedules", allow_rollup_hdrs=True, deny_purge=False)
    if made["sealed"]:
        imply("sealed", max_age=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False)
    if origin_direct is not None:
        imply(f"the origin's allow_direct={origin_direct}", mirror_direct=origin_direct)
    for key, because in reasons.items():
        if key in desired and desired[key] != made[key]:
            raise OptionError(f"{key}: with {because} the server sets it to {made[key]}, not {desired[key]}")
    if not (made["subjects"] or made["mirror"] or made["sources"]):
        made["subjects"] = [name]
    window = made["duplicate_window"]
    default_window = not made["mirror"] and (not made["sources"] or release < (2, 14))
    if not window and default_window:
        window = min(DUPLICATE_WINDOW, made["max_age"] or DUPLICATE_WINDOW)
    if made["max_age"] and window > made["max_age"]:
        if desired.get("duplicate_window"):
            raise OptionError("duplicate_window: must not exceed max_age")
        window = made["max_age"]
    made["duplicate_window"] = window
    return made


def expected_consumer(config: Config, desired: Config, stream: Config) -> dict[str, Any]:
    """Return the effective configuration of a consumer on the server (setConsumerConfigDefaults); `stream`: the
    stream's configuration in normal form. Raises OptionError if the server would override a requested value."""
    made = dict(config)
    limits = stream["consumer_limits"] or {}
    if made["ack_policy"] == "flow_control":
        for key, value in (("flow_control", True), ("idle_heartbeat", SECOND)):
            if key in desired and desired[key] != value:
                raise OptionError(
                    f"{key}: with ack_policy=flow_control the server sets it to {value}, not {desired[key]}"
                )
            made[key] = value
    if not made["deliver_subject"] and not made["max_waiting"]:
        made["max_waiting"] = 512
    if not made["ack_wait"] and made["ack_policy"] in ("explicit", "all"):
        made["ack_wait"] = 30 * SECOND
    if made["backoff"]:
        if desired.get("ack_wait", made["backoff"][0]) != made["backoff"][0]:
            raise OptionError("ack_wait: with backoff the server uses the first value of backoff; omit it")
        made["ack_wait"] = made["backoff"][0]
    if not made["max_ack_pending"]:
        default = 0 if made["ack_policy"] == "none" else 1000
        made["max_ack_pending"] = limits.get("max_ack_pending") or default
    if not made["inactive_threshold"]:
        made["inactive_threshold"] = limits.get("inactive_threshold", 0)
    if made["priority_policy"] == "pinned_client" and not made["priority_timeout"]:
        made["priority_timeout"] = DUPLICATE_WINDOW
    return made


def without_past_pause(config: Config, now: str) -> dict[str, Any]:
    """Return a consumer's configuration without a pause that has ended. `now`: the server's time."""
    until = config["pause_until"]
    return {**config, "pause_until": None} if until and parse_time(until) <= parse_time(now) else dict(config)
