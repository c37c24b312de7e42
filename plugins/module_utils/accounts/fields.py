# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of claims, under their names in the document of accounts and in a JWT. Pure.

Each table serves four conversions: document to normal form and back, claims to normal form and back. A *normal form*
has every field of its table by dotted name, with defaults filled in, lists sorted, and numbers in bytes, nanoseconds
and seconds since 1970, so two configurations with the same meaning are equal. In a normal form, -1 means unlimited and
0 means none.

In claims, an absent number is 0. For most limits, 0 means none, for others unlimited (`zero`). Sources: jwt/v2
account_claims.go, user_claims.go, operator_claims.go, exports.go, imports.go, types.go; server/accounts.go
updateAccountClaimsWithRefresh."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Union

from .. import shapes
from ..documents import unknown_key
from ..screen import cut
from ..times import parse_time
from ..units import exact_duration, exact_size, parse_duration, size_bytes
from .keys import ACCOUNT, CURVE, OPERATOR, USER, key_kind

Normal = dict[str, Any]
UNLIMITED, NONE = "unlimited", "none"
#: The document's words for unlimited and none, with their values in a normal form.
_WORDS = {UNLIMITED: -1, NONE: 0}
#: The key that stands for all users in revocations.
EVERYBODY = "*"
#: The defaults: at most one response, within two minutes (server/const.go DEFAULT_ALLOW_RESPONSE_…).
_RESPONSES, _RESPONSE_TIME = 1, 120_000_000_000


@dataclass(frozen=True)
class ClaimField:
    """One field. `name`: dotted, in the document. `wire`: dotted, in claims. `kind`: a key of _KINDS.

    `default`: the value if the document omits the field. `zero`: the value for a number that is absent or 0 in claims.
    `shown`: whether the document has the field; otherwise its value follows from other fields."""

    name: str
    wire: str
    kind: str
    default: Any = None
    zero: Any = 0
    choices: tuple[str, ...] = ()
    fields: tuple[ClaimField, ...] = ()
    required: bool = False
    shown: bool = True
    description: str = ""

    @property
    def empty(self) -> Any:
        """Return the value in normal form for a field that the document omits."""
        if self.default is not None:
            return self.default
        return {"flag": False, "names": [], "tags": [], "keys": [], "objects": [], "maps": {}, "moments": {}}.get(
            self.kind, {} if self.kind == "tiers" else None if self.kind == "object" else ""
        )


class Malformed(ValueError):
    """Claims whose field has an unexpected type; the message names the field."""


def _limit(name: str, wire: str, kind: str = "limit", default: int = -1, zero: int = 0, **more: Any) -> ClaimField:
    return ClaimField(name, wire, kind, default, zero, **more)


def _text(name: str, wire: str = "", **more: Any) -> ClaimField:
    return ClaimField(name, wire or name, "text", "", **more)


def _flag(name: str, wire: str = "", **more: Any) -> ClaimField:
    return ClaimField(name, wire or name, "flag", False, **more)


def _names(name: str, wire: str = "", kind: str = "names", **more: Any) -> ClaimField:
    return ClaimField(name, wire or name, kind, **more)


def _permissions(prefix: str = "", wire: str = "") -> tuple[ClaimField, ...]:
    """Return the permissions of a user, a template or an account."""
    return (
        _names(f"{prefix}allow.pub", f"{wire}pub.allow", description="subjects that may be published to"),
        _names(f"{prefix}allow.sub", f"{wire}sub.allow", description="subjects that may be subscribed to"),
        _names(f"{prefix}deny.pub", f"{wire}pub.deny", description="subjects that must not be published to"),
        _names(f"{prefix}deny.sub", f"{wire}sub.deny", description="subjects that must not be subscribed to"),
        ClaimField(
            f"{prefix}responses",
            f"{wire}resp",
            "object",
            fields=(
                _limit("max", "max", default=_RESPONSES, zero=_RESPONSES),
                ClaimField("ttl", "ttl", "duration", _RESPONSE_TIME, _RESPONSE_TIME),
            ),
            description="messages that may be published to the reply subject of a received request",
        ),
    )


def _user_limits(zero: int) -> tuple[ClaimField, ...]:
    """Return the fields of a template or user, including permissions. `zero`: the meaning of an absent limit in claims."""
    return (
        *_permissions(),
        _limit("limits.subscriptions", "subs", zero=zero),
        _limit("limits.data", "data", "size_limit", zero=zero),
        _limit("limits.payload", "payload", "size_limit", zero=zero),
        _names("source_addresses", "src", description="networks (CIDR) from which the user may connect"),
        ClaimField("times", "times", "objects", fields=(_text("start", required=True), _text("end", required=True))),
        _text("time_zone", "times_location"),
        _flag("bearer", "bearer_token", description="log in with the JWT alone, without the key"),
        _flag("proxy_required"),
        _names("connection_types", "allowed_connection_types"),
    )


JETSTREAM: tuple[ClaimField, ...] = (
    _limit("disk", "disk_storage", "size_limit", default=0),
    _limit("memory", "mem_storage", "size_limit", default=0),
    _limit("streams", "streams", zero=-1),
    _limit("consumers", "consumer", zero=-1),
    _limit("max_ack_pending", "max_ack_pending", zero=-1),
    _limit("disk_max_stream_bytes", "disk_max_stream_bytes", "size_limit", zero=-1),
    _limit("memory_max_stream_bytes", "mem_max_stream_bytes", "size_limit", zero=-1),
    _flag("require_max_bytes", "max_bytes_required"),
)
LIMITS: tuple[ClaimField, ...] = (
    _limit("connections", "conn"),
    _limit("leaf", "leaf", description="leaf node connections"),
    _limit("subscriptions", "subs"),
    _limit("payload", "payload", "size_limit"),
    _limit("data", "data", "size_limit"),
    _limit("imports", "imports"),
    _limit("exports", "exports"),
    ClaimField("wildcard_exports", "wildcards", "flag", True),
    _flag("disallow_bearer"),
    ClaimField("jetstream", "tiered_limits", "tiers", fields=JETSTREAM),
)
EXPORT: tuple[ClaimField, ...] = (
    _text("subject", required=True),
    ClaimField("type", "type", "choice", choices=("stream", "service"), required=True),
    _text("name"),
    _flag("private", "token_req", description="importers need an activation"),
    ClaimField("to", "", "names", description="accounts of the document that may import; implies private"),
    ClaimField("revoked", "revocations", "moments", description="accounts whose activations up to a time are revoked"),
    ClaimField(
        "response_type", "response_type", "choice", "Singleton", "Singleton", ("Singleton", "Stream", "Chunked")
    ),
    ClaimField("response_threshold", "response_threshold", "duration", 0),
    ClaimField("latency.sampling", "service_latency.sampling", "sampling", ""),
    _text("latency.subject", "service_latency.results"),
    ClaimField("account_token_position", "account_token_position", "number", 0),
    _flag("advertise"),
    _flag("allow_trace"),
    _text("description"),
    _text("info_url"),
)
IMPORT: tuple[ClaimField, ...] = (
    _text("account", required=True, description="name of the exporting account, or its public key"),
    _text("subject", required=True),
    ClaimField("type", "type", "choice", choices=("stream", "service"), required=True),
    _text("name"),
    _text("local", "local_subject", description="subject in the importing account, if it differs"),
    _flag("share"),
    _flag("allow_trace"),
    _flag("activation", "token", shown=False),
)
TEMPLATE: tuple[ClaimField, ...] = _user_limits(zero=-1)
SIGNING_KEY: tuple[ClaimField, ...] = (
    ClaimField("key", "key", f"key_{ACCOUNT}", description="public key; without it the key has yet to be created"),
    _text("role", description="name of the role; with it, users of this key get the permissions given here"),
    ClaimField(
        "builtin",
        "",
        "choice",
        "",
        choices=("natsops",),
        description="the role and permissions of this collection's own users; only key may be set next to it",
    ),
    _text("description"),
    *TEMPLATE,
)
ACCOUNT_FIELDS: tuple[ClaimField, ...] = (
    _text("description"),
    _text("info_url"),
    _names("tags", kind="tags"),
    *(ClaimField(**{**vars(one), "name": f"limits.{one.name}", "wire": f"limits.{one.wire}"}) for one in LIMITS),
    ClaimField("signing_keys", "signing_keys", "signing_keys", default={}, fields=SIGNING_KEY),
    ClaimField("exports", "exports", "objects", fields=EXPORT),
    ClaimField("imports", "imports", "objects", fields=IMPORT),
    ClaimField("revoke", "revocations", "moments", description="users whose JWTs up to a time are revoked; * for all"),
    *_permissions("default_permissions.", "default_permissions."),
    ClaimField(
        "mappings",
        "mappings",
        "maps",
        fields=(
            _text("subject", required=True),
            ClaimField("weight", "weight", "number", 100, 100),
            _text("cluster"),
        ),
    ),
    _names("external_authorization.users", "authorization.auth_users", "keys"),
    _names("external_authorization.accounts", "authorization.allowed_accounts"),
    ClaimField("external_authorization.xkey", "authorization.xkey", f"key_{CURVE}"),
    ClaimField(
        "trace",
        "trace",
        "object",
        fields=(_text("subject", "dest", required=True), ClaimField("sampling", "sampling", "number", 100, 100)),
    ),
    ClaimField("cluster_traffic", "cluster_traffic", "choice", "system", "system", ("system", "owner")),
)
OPERATOR_FIELDS: tuple[ClaimField, ...] = (
    ClaimField("id", "", f"key_{OPERATOR}"),
    _names("signing_keys", kind="keys"),
    _flag("strict_signing_keys", "strict_signing_key_usage"),
    _names("service_urls", "operator_service_urls"),
    _text("account_server_url"),
    _text("assert_server_version"),
    ClaimField("system_account", "system_account", f"key_{ACCOUNT}", shown=False),
    _names("tags", kind="tags"),
)
USER_FIELDS: tuple[ClaimField, ...] = (
    *_user_limits(zero=0),
    ClaimField("issuer_account", "issuer_account", f"key_{ACCOUNT}"),
    _names("tags", kind="tags"),
)
ACTIVATION_FIELDS: tuple[ClaimField, ...] = (
    _text("subject", required=True),
    ClaimField("type", "kind", "choice", choices=("stream", "service"), required=True),
    ClaimField("issuer_account", "issuer_account", f"key_{ACCOUNT}"),
    _names("tags", kind="tags"),
)
#: The flat JetStream limits of claims, next to the tiers.
FLAT = ""
Tree = dict[str, Union[ClaimField, "Tree"]]


def tree(fields: Iterable[ClaimField], by_wire: bool = False) -> Tree:
    """Return the fields as a tree of the keys of the document, or of claims."""
    root: Tree = {}
    for one in fields:
        path = one.wire if by_wire else one.name if one.shown else ""
        if not path:
            continue
        *parents, last = path.split(".")
        level = root
        for parent in parents:
            below = level.setdefault(parent, {})
            if not isinstance(below, dict):
                raise TypeError(f"{path}: a field has the name of a group of fields")
            level = below
        level[last] = one
    return root


def read(fields: Iterable[ClaimField], given: Any, where: str, problems: list[str]) -> Normal:
    """Return a mapping of the document in normal form. Each error is added to `problems` with the path of its key."""
    fields = tuple(fields)
    normal = {one.name: one.empty for one in fields if one.wire or one.shown}

    def walk(level: Tree, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            problems.append(f"{where}: {short(value)} is not a mapping")
            return
        for key, item in value.items():
            node = level.get(key) if isinstance(key, str) else None
            if node is None:
                problems.append(unknown_key(f"{where}.{key}", str(key), level))
            elif isinstance(node, ClaimField):
                normal[node.name] = _read_value(node, item, f"{where}.{key}", problems)
            else:
                walk(node, item, f"{where}.{key}")

    walk(tree(fields), given, where)
    problems += [f"{where}.{one.name}: missing" for one in fields if one.required and normal[one.name] in ("", None)]
    return normal


def _read_value(one: ClaimField, given: Any, where: str, problems: list[str]) -> Any:
    try:
        return _READERS[one.kind](one, given, where, problems)
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return one.empty


def _read_text(one: ClaimField, given: Any, where: str, problems: list[str]) -> str:
    if not isinstance(given, str) or not given.strip() or not shapes.encodable(given):
        raise ValueError(f"{short(given)} is not a text")
    return given


def _read_key(one: ClaimField, given: Any, where: str, problems: list[str]) -> str:
    kind = one.kind.removeprefix("key_")
    if key_kind(given) != kind:
        raise ValueError(f"{short(given)} is not the public key of an {kind}".replace("an curve", "a curve"))
    return str(given)


def _read_flag(one: ClaimField, given: Any, where: str, problems: list[str]) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"{short(given)} is not true or false")
    return given


def _read_choice(one: ClaimField, given: Any, where: str, problems: list[str]) -> str:
    if given not in one.choices:
        raise ValueError(f"{short(given)} is not one of {', '.join(one.choices)}")
    return str(given)


def _read_number(one: ClaimField, given: Any, where: str, problems: list[str]) -> int:
    if not shapes.count(given) or given > 2**31 - 1:
        raise ValueError(f"{short(given)} is not a number of 0 or more")
    return int(given)


def _read_limit(one: ClaimField, given: Any, where: str, problems: list[str]) -> int:
    if isinstance(given, str) and given in _WORDS:
        return _zero_allowed(one, _WORDS[given])
    if one.kind == "size_limit" and isinstance(given, str):
        value = size_bytes(given)
    elif shapes.whole(given):
        value = int(given)
    else:
        unit = " or a size such as 10GiB" if one.kind == "size_limit" else ""
        raise ValueError(f"{short(given)} is not a number{unit}, unlimited or none")
    if value < 0:
        raise ValueError(f"{value} is not a limit; write unlimited")
    if value >= 1 << 63:
        raise ValueError(f"{value} exceeds 8 EiB; write unlimited")
    return _zero_allowed(one, value)


def _zero_allowed(one: ClaimField, value: int) -> int:
    """Return the limit unchanged. Raises ValueError for 0 where servers read 0 as a different value."""
    if value == 0 and one.zero != 0:
        raise ValueError("none is not possible: servers read 0 as " + (UNLIMITED if one.zero < 0 else str(one.zero)))
    return value


def _read_duration(one: ClaimField, given: Any, where: str, problems: list[str]) -> int:
    if not isinstance(given, str):
        raise ValueError(f"{short(given)} is not a duration such as 2m")
    return round(parse_duration(given, bare=False) * 10**9)


def _read_moment(given: Any) -> int:
    if isinstance(given, datetime):  # YAML parses an unquoted time as a datetime
        return int((given if given.tzinfo else given.replace(tzinfo=timezone.utc)).timestamp())
    if not shapes.moment(given) or not isinstance(given, str):
        raise ValueError(f"{short(given)} is not a time such as 2026-11-27T12:00:00Z")
    return int(parse_time(given).timestamp())


def _read_moments(one: ClaimField, given: Any, where: str, problems: list[str]) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{short(given)} is not a mapping of public keys to times")
    found = {}
    for key, moment in given.items():
        wanted = USER if one.name == "revoke" else ACCOUNT
        if key != EVERYBODY and key_kind(key) != wanted:
            problems.append(f"{where}.{short(key)}: not the public key of an account or user, or *")
            continue
        try:
            found[str(key)] = _read_moment(moment)
        except ValueError as error:
            problems.append(f"{where}.{key}: {error}")
    return found


def _read_names(one: ClaimField, given: Any, where: str, problems: list[str]) -> list[str]:
    if not isinstance(given, (list, tuple)) or not all(isinstance(item, str) and item for item in given):
        raise ValueError(f"{short(given)} is not a list of texts")
    if one.kind == "keys":
        wrong = [item for item in given if key_kind(item) is None]
        if wrong:
            raise ValueError(f"{short(wrong[0])} is not a public key")
    return sorted({item.strip().lower() for item in given} if one.kind == "tags" else set(given))


def _read_object(one: ClaimField, given: Any, where: str, problems: list[str]) -> Normal:
    return read(one.fields, given, where, problems)


def _read_objects(one: ClaimField, given: Any, where: str, problems: list[str]) -> list[Normal]:
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"{short(given)} is not a list")
    return ordered(read(one.fields, item, f"{where}[{index}]", problems) for index, item in enumerate(given))


def _read_maps(one: ClaimField, given: Any, where: str, problems: list[str]) -> dict[str, list[Normal]]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{short(given)} is not a mapping of subjects to lists")
    return {str(key): _read_objects(one, item, f"{where}.{key}", problems) for key, item in given.items()}


def _read_sampling(one: ClaimField, given: Any, where: str, problems: list[str]) -> str:
    if given == "headers" or (shapes.whole(given) and 1 <= given <= 100):
        return str(given)
    raise ValueError(f"{short(given)} is not headers or a percentage from 1 to 100")


def _read_tiers(one: ClaimField, given: Any, where: str, problems: list[str]) -> dict[str, Normal]:
    if given == NONE:
        return {}
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f"{short(given)} is not none, limits, or tiers such as R1 and R3 with limits")
    tiers = [key for key in given if is_tier(key)]
    if not tiers:
        return _without_storage({FLAT: read(one.fields, given, where, problems)})
    mixed = [str(key) for key in given if key not in tiers]
    if mixed:
        raise ValueError(
            f"tiers ({', '.join(sorted(tiers))}) and limits of all replicas ({', '.join(mixed)}) exclude each other"
        )
    return {str(key): read(one.fields, given[key], f"{where}.{key}", problems) for key in sorted(tiers)}


def is_tier(key: object) -> bool:
    """Return whether this is the name of a tier, R1 to R5 (server/jetstream.go tierName)."""
    return isinstance(key, str) and key in ("R1", "R2", "R3", "R4", "R5")


def _without_storage(tiers: dict[str, Normal]) -> dict[str, Normal]:
    """Return no tiers if none of them has storage, because JetStream is then off (account_claims.go IsJSEnabled)."""
    return tiers if any(one["disk"] or one["memory"] for one in tiers.values()) else {}


def _read_signing_keys(one: ClaimField, given: Any, where: str, problems: list[str]) -> dict[str, Normal]:
    """Return the signing keys by their name in the document."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{short(given)} is not a mapping of names to keys")
    found = {}
    for name, item in given.items():
        entry = read(one.fields, item, f"{where}.{name}", problems)
        if entry["builtin"]:
            rest = sorted(set(item) - {"key", "builtin"})
            problems += [f"{where}.{name}.{key}: with builtin, only key may be set" for key in rest]
        if not entry["role"] and isinstance(item, Mapping) and set(item) - {"key", "role", "description"}:
            entry["role"] = str(name)
        if entry["description"] and not entry["role"]:
            problems.append(f"{where}.{name}.description: only a key with a role has a description")
        found[str(name)] = entry
    return found


_READERS = {
    "text": _read_text,
    **dict.fromkeys((f"key_{kind}" for kind in (OPERATOR, ACCOUNT, CURVE)), _read_key),
    "flag": _read_flag,
    "choice": _read_choice,
    "number": _read_number,
    **dict.fromkeys(("limit", "size_limit"), _read_limit),
    "duration": _read_duration,
    "moments": _read_moments,
    **dict.fromkeys(("names", "tags", "keys"), _read_names),
    "object": _read_object,
    "objects": _read_objects,
    "maps": _read_maps,
    "sampling": _read_sampling,
    "tiers": _read_tiers,
    "signing_keys": _read_signing_keys,
}


def ordered(items: Iterable[Normal]) -> list[Normal]:
    """Return objects in an order that depends only on their content."""
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def words(fields: Iterable[ClaimField], normal: Mapping[str, Any]) -> dict[str, Any]:
    """Return a normal form in the words of the document: every limit, and every other value that differs from the
    default."""
    found: dict[str, Any] = {}
    for one in fields:
        value = normal.get(one.name, one.empty)
        if value == one.empty and one.kind not in ("limit", "size_limit", "tiers"):
            continue
        *parents, last = one.name.split(".")
        level = found
        for parent in parents:
            level = level.setdefault(parent, {})
        level[last] = in_words(one, value)
    return found


def in_words(one: ClaimField, value: Any) -> Any:
    """Return a value in the words of the document."""
    if one.kind in ("limit", "size_limit"):
        if value in (-1, 0):
            return UNLIMITED if value else NONE
        return exact_size(value) if one.kind == "size_limit" else value
    if one.kind == "duration":
        return exact_duration(value)
    if one.kind == "moments":
        return {key: moment_words(moment) for key, moment in sorted(value.items())}
    if one.kind == "object":
        return None if value is None else words(one.fields, value)
    if one.kind == "objects":
        return [words(one.fields, item) for item in value]
    if one.kind == "maps":
        return {key: [words(one.fields, item) for item in items] for key, items in sorted(value.items())}
    if one.kind == "tiers":
        if not value:
            return NONE
        if FLAT in value:
            return words(one.fields, value[FLAT])
        return {key: words(one.fields, item) for key, item in sorted(value.items())}
    if one.kind == "signing_keys":
        return {key: _key_words(item) for key, item in sorted(value.items())}
    if one.kind == "sampling" and value.isdigit():
        return int(value)
    return value


def _key_words(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return a signing key in the words of the document; a key without a role has no limits."""
    return words(SIGNING_KEY if scope["role"] else SIGNING_KEY[:1], scope)


def moment_words(moment: int) -> str:
    """Return seconds since 1970 as a UTC time, or as a number if the time is out of range."""
    try:
        return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{moment} s since 1970"


def short(value: object) -> str:
    return cut(repr(value), 60)
