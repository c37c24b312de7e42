# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims to the normal form of their fields, and back. Pure: no I/O.

Sources: jwt/v2 account_claims.go, user_claims.go, operator_claims.go, exports.go, imports.go, types.go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import shapes
from .fields import TEMPLATE, ClaimField, Malformed, Normal, Tree, ordered, short, tree


def from_claims(fields: Iterable[ClaimField], given: Mapping[str, Any], unknown: list[str], where: str = "") -> Normal:
    """Return claims in normal form. The paths of fields that are in no table are added to `unknown`. Raises
    Malformed."""
    fields = tuple(one for one in fields if one.wire)
    normal = {one.name: _from_wire(one, None, unknown, one.wire) for one in fields}

    def walk(level: Tree, value: Any, where: str) -> None:
        if value is None:
            return
        if not isinstance(value, Mapping):
            raise Malformed(f"{where.rstrip('.')}: not an object")
        for key, item in value.items():
            node = level.get(key)
            if node is None:
                unknown.append(f"{where}{key}")
            elif isinstance(node, ClaimField):
                normal[node.name] = _from_wire(node, item, unknown, f"{where}{key}")
            else:
                walk(node, item, f"{where}{key}.")

    walk(tree(fields, by_wire=True), given, where)
    return normal


def _from_wire(one: ClaimField, value: Any, unknown: list[str], where: str) -> Any:
    kind = one.kind
    if kind in ("limit", "size_limit", "number", "duration"):
        if value is not None and not shapes.whole(value):
            raise Malformed(f"{where}: {short(value)} is not a number")
        return value or one.zero
    if kind == "flag":
        # An activation is a JWT; only its presence matters here.
        return bool(value)
    if value is None:
        return one.zero if kind == "choice" and one.choices and isinstance(one.zero, str) else _absent(one)
    fits = _WIRE_SHAPES.get(kind, shapes.text)
    if not fits(value):
        raise Malformed(f"{where}: {short(value)} is not of the expected type")
    if kind in ("names", "tags", "keys"):
        return sorted({item.lower() for item in value} if kind == "tags" else set(value))
    if kind == "moments":
        return dict(value)
    if kind == "object":
        return from_claims(one.fields, value, unknown, f"{where}.")
    if kind == "objects":
        return ordered(from_claims(one.fields, item, unknown, f"{where}[{index}].") for index, item in enumerate(value))
    if kind == "maps":
        return {
            key: ordered(from_claims(one.fields, item, unknown, f"{where}.{key}.") for item in items)
            for key, items in value.items()
        }
    if kind == "tiers":
        return {key: from_claims(one.fields, item, unknown, f"{where}.{key}.") for key, item in value.items()}
    if kind == "sampling":
        return "headers" if value in (0, "headers") else str(value)
    if kind == "signing_keys":
        return {
            scope["key"]: scope
            for scope in (_signing_key(one, item, unknown, f"{where}[{index}].") for index, item in enumerate(value))
        }
    return value or one.empty


def _absent(one: ClaimField) -> Any:
    """Return the normal value of a field that is absent from the claims."""
    return "" if one.kind in ("choice", "sampling") else False if one.kind == "flag" else one.empty


def _signing_key(one: ClaimField, item: Any, unknown: list[str], where: str) -> Normal:
    """Return a signing key: a text, or an object with a role and the template of its users."""
    if isinstance(item, str):
        return from_claims(one.fields, {"key": item}, unknown)
    template = item.get("template")
    if item.get("kind") != "user_scope" or not isinstance(template, (dict, type(None))):
        raise Malformed(f"{where}kind: {short(item.get('kind'))} is not user_scope")
    own = {key: value for key, value in item.items() if key not in ("kind", "template")}
    scope = from_claims(one.fields, {**own, **(template or {})}, unknown, where)
    if not scope["key"]:
        raise Malformed(f"{where}key: missing")
    # A scope without a name still limits its users.
    return {**scope, "role": scope["role"] or NAMELESS}


#: The role name for a scope without a name.
NAMELESS = "(nameless)"
_OBJECT = shapes.object_shape({})
_TEXTS = shapes.list_shape(shapes.text)
_WIRE_SHAPES: Mapping[str, shapes.Shape] = {
    **dict.fromkeys(("names", "tags", "keys"), _TEXTS),
    "moments": shapes.object_shape({}, shapes.whole),
    "object": _OBJECT,
    "objects": shapes.list_shape(_OBJECT),
    "maps": shapes.object_shape({}, shapes.list_shape(_OBJECT)),
    "tiers": shapes.object_shape({}, _OBJECT),
    "sampling": lambda value: value == "headers" or shapes.count(value),
    "signing_keys": shapes.list_shape(lambda value: isinstance(value, (str, dict))),
}


def to_claims(fields: Iterable[ClaimField], normal: Mapping[str, Any]) -> dict[str, Any]:
    """Return a normal form as claims. Empty values are omitted, as with Go's `omitempty`, and so are default choices,
    because older versions of nsc and servers do not support all of them."""
    claims: dict[str, Any] = {}
    for one in fields:
        if not one.wire:
            continue
        value = _to_wire(one, normal[one.name])
        if value in (None, "", [], {}, 0, False) or (one.kind == "choice" and value == one.zero):
            continue
        *parents, last = one.wire.split(".")
        level = claims
        for parent in parents:
            level = level.setdefault(parent, {})
        level[last] = value
    return claims


def _to_wire(one: ClaimField, value: Any) -> Any:
    if one.kind == "object":
        return None if value is None else to_claims(one.fields, value)
    if one.kind == "objects":
        return [to_claims(one.fields, item) for item in value]
    if one.kind in ("maps", "tiers"):
        return {
            key: [to_claims(one.fields, item) for item in items] if one.kind == "maps" else to_claims(one.fields, items)
            for key, items in value.items()
        }
    if one.kind == "sampling":
        return value if value in ("", "headers") else int(value)
    if one.kind == "signing_keys":
        return [_wire_signing_key(scope) for _name, scope in sorted(value.items(), key=lambda item: item[1]["key"])]
    return value


def _wire_signing_key(scope: Mapping[str, Any]) -> Any:
    if not scope["role"]:
        return scope["key"]
    return {
        "kind": "user_scope",
        "key": scope["key"],
        "role": "" if scope["role"] == NAMELESS else scope["role"],
        "template": to_claims(TEMPLATE, scope),
        "description": scope["description"],
    }
