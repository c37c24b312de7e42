# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of accounts: the desired operator, accounts and users. Pure; the document contains no secret.

All errors are reported at once, each with the path of its key. Unknown keys are errors."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import InvalidDocument, load_yaml, unknown_key
from ..subjects import subject_matches
from .builtin import builtin_scope
from .checks import content_problems, missing_tags, operator_problems
from .claims import Claims
from .credentials import lifetime
from .fields import ACCOUNT_FIELDS, JETSTREAM, NONE, OPERATOR_FIELDS, UNLIMITED, ClaimField, Normal, Tree, read, tree
from .keys import ACCOUNT, OPERATOR, key_kind

PRESENT, ABSENT = "present", "absent"
#: The controller, as a host of the inventory.
CONTROLLER = "localhost"

_EXPIRES, _LONGEST_RENEWAL = "30d", 7 * 86400
#: The permissions of a file with credentials, the default first.
_MODES = ("0600", "0400", "0640", "0440")

_NAME = ClaimField("name", "", "text", "", required=True)
OPERATOR_DOCUMENT: tuple[ClaimField, ...] = (_NAME, *OPERATOR_FIELDS)
USER_DOCUMENT: tuple[ClaimField, ...] = (
    ClaimField("key", "", "text", "", required=True, description="name of the signing key in the account"),
    ClaimField("tags", "", "tags"),
    ClaimField("expires", "", "text", _EXPIRES, description="time after which new credentials expire, or never"),
    ClaimField(
        "renew_before",
        "",
        "text",
        "",
        description="time before the expiry at which credentials are renewed; by default a quarter of expires, at most 7d",
    ),
    ClaimField(
        "deliver",
        "",
        "object",
        fields=(
            ClaimField("file", "", "text", "", required=True, description="path of the .creds file"),
            ClaimField("host", "", "text", "", description="host of the inventory; the controller by default"),
            ClaimField("owner", "", "text", ""),
            ClaimField("group", "", "text", ""),
            ClaimField("mode", "", "choice", _MODES[0], choices=_MODES),
        ),
        description="file in which user_credentials keeps the credentials",
    ),
)
ACCOUNT_DOCUMENT: tuple[ClaimField, ...] = (
    ClaimField("id", "", f"key_{ACCOUNT}", "", description="public key; without it the account is found by its name"),
    ClaimField("state", "", "choice", PRESENT, choices=(PRESENT, ABSENT)),
    *ACCOUNT_FIELDS,
)
_DEFAULTS = tuple(one for one in ACCOUNT_FIELDS if one.name.startswith("limits."))
_TOP = ("operator", "system_account", "defaults", "accounts", "users")


@dataclass(frozen=True)
class DesiredAccount:
    """An account of the document. `id`: its public key, empty if the document does not give the key. The imports in
    `fields` refer to their account by its name in the document."""

    name: str
    id: str
    is_present: bool
    fields: Normal


@dataclass(frozen=True)
class Delivery:
    """The file with the credentials of a user. `owner` and `group` are empty if they stay unchanged."""

    host: str
    path: str
    owner: str
    group: str
    mode: str


@dataclass(frozen=True)
class DesiredUser:
    """A user of the document. `account`: the name of its account. `key`: the name of a signing key of that account.
    `expires`: seconds until new credentials expire, 0 for never. `renew_before`: seconds before the expiry at which
    credentials are renewed. `deliver`: None if the document does not name a file."""

    account: str
    name: str
    key: str
    tags: tuple[str, ...]
    expires: float = 0
    renew_before: float = 0
    deliver: Delivery | None = None

    @property
    def label(self) -> str:
        return f"{self.account}/{self.name}"


@dataclass(frozen=True)
class AccountsDocument:
    """A document without errors. `operator`: its normal form, including the name, or None if the document has no
    operator."""

    operator: Normal | None
    system_account: str
    accounts: Mapping[str, DesiredAccount]
    users: tuple[DesiredUser, ...]


def parse_document(text: str) -> AccountsDocument:
    """Return the text of a document as desired accounts. Raises InvalidDocument."""
    return read_document(load_yaml(text))


def read_document(given: Any) -> AccountsDocument:
    """Return a parsed YAML document as desired accounts. Raises InvalidDocument with all errors."""
    problems: list[str] = []
    if not isinstance(given, Mapping):
        raise InvalidDocument(["the document is not a mapping with the key accounts"])
    problems += [unknown_key(str(key), str(key), _TOP) for key in given if key not in _TOP]
    operator = None
    if given.get("operator") is not None:
        operator = read(OPERATOR_DOCUMENT, given["operator"], "operator", problems)
        claims = Claims(OPERATOR, operator["id"], operator["name"], {**operator, "system_account": ""})
        problems += [f"operator.{problem}" for problem in operator_problems(claims, 0)]
    accounts = _read_accounts(given, problems)
    users = tuple(_read_users(given.get("users"), accounts, problems))
    system = given.get("system_account", "")
    if system and system not in accounts and key_kind(system) != ACCOUNT:
        problems.append(f"system_account: {str(system)[:60]!r} is not an account of the document or a public key")
    if isinstance(system, str) and system in accounts and accounts[system].fields["limits.jetstream"]:
        problems.append(f"accounts.{system}.limits.jetstream: the system account cannot have JetStream")
    if not problems:
        problems += _cross_problems(accounts)
    if problems:
        raise InvalidDocument(problems)
    return AccountsDocument(operator, str(system), accounts, users)


def _read_accounts(given: Mapping[str, Any], problems: list[str]) -> dict[str, DesiredAccount]:
    defaults = given.get("defaults", {})
    if defaults:
        read(_DEFAULTS, defaults, "defaults", problems)
    listed = given.get("accounts")
    if not isinstance(listed, Mapping) or not listed:
        problems.append("accounts: missing, or not a mapping of names to accounts")
        return {}
    default_limits = defaults.get("limits", {}) if isinstance(defaults, Mapping) else {}
    accounts: dict[str, DesiredAccount] = {}
    for name, item in listed.items():
        where = f"accounts.{name}"
        if not isinstance(name, str) or not name or key_kind(name):
            problems.append(f"{where}: the name of an account is a text that is not a public key")
            continue
        fields = read(ACCOUNT_DOCUMENT, _with_defaults(item, default_limits), where, problems)
        is_system = given.get("system_account") in (name, fields["id"] or name)
        fields["signing_keys"] = {
            label: _with_builtin(entry, is_system) for label, entry in fields["signing_keys"].items()
        }
        is_present = fields.pop("state") == PRESENT
        if not is_present and isinstance(item, Mapping):
            rest = [str(key) for key in item if key not in ("id", "state")]
            problems += [f"{where}.{key}: with state: absent, only id may be set" for key in rest]
        for export in fields["exports"]:
            export["private"] = export["private"] or bool(export["to"])
        accounts[name] = DesiredAccount(name, fields.pop("id"), is_present, fields)
    return accounts


def _with_builtin(entry: Normal, is_system: bool) -> Normal:
    """Return a signing key with the permissions of its builtin role, if it has one."""
    plain = {name: value for name, value in entry.items() if name != "builtin"}
    return builtin_scope(entry["key"], is_system) if entry["builtin"] else plain


def _with_defaults(item: Any, limits: Any) -> Any:
    """Return an account in which unset limits have their default values."""
    own = {} if item is None else item
    if not limits or not isinstance(limits, Mapping) or not isinstance(own, Mapping):
        return own
    mine = own.get("limits", {})
    return {**own, "limits": {**limits, **mine}} if isinstance(mine, Mapping) else own


def _read_users(given: Any, accounts: Mapping[str, DesiredAccount], problems: list[str]) -> Iterable[DesiredUser]:
    if given is None:
        return
    if not isinstance(given, Mapping):
        problems.append("users: not a mapping of ACCOUNT/NAME to users")
        return
    files: dict[tuple[str, str], str] = {}
    for label, item in given.items():
        where = f"users.{label}"
        account, slash, name = str(label).partition("/")
        found = read(USER_DOCUMENT, item, where, problems)
        if not slash or not name or account not in accounts:
            problems.append(f"{where}: the name of a user is ACCOUNT/NAME with an account of the document")
            continue
        home = accounts[account].fields
        scope = home["signing_keys"].get(found["key"])
        if scope is None:
            if found["key"]:
                keys = ", ".join(home["signing_keys"]) or "none"
                problems.append(f"{where}.key: account {account} has no signing key {found['key']} (it has: {keys})")
        elif scope["role"]:
            problems += [f"{where}.tags: {problem}" for problem in missing_tags(scope, found["tags"], home["tags"])]
        expires = _seconds(found["expires"], f"{where}.expires", problems)
        renew_before = min(_LONGEST_RENEWAL, expires / 4)
        if found["renew_before"]:
            renew_before = _seconds(found["renew_before"], f"{where}.renew_before", problems)
            if expires and renew_before >= expires:
                problems.append(f"{where}.renew_before: must be shorter than expires")
        deliver = None if found["deliver"] is None else _delivery(found["deliver"], f"{where}.deliver", problems)
        if deliver is not None:
            same = files.setdefault((deliver.host, deliver.path), str(label))
            if same != label:
                problems.append(f"{where}.deliver: also the file of user {same}")
        yield DesiredUser(account, name, found["key"], tuple(found["tags"]), expires, renew_before, deliver)


def _seconds(text: str, where: str, problems: list[str]) -> float:
    """Return the seconds of a duration, 0 for never."""
    try:
        return lifetime(text)
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return 0


def _delivery(found: Normal, where: str, problems: list[str]) -> Delivery:
    host, path = found["host"] or CONTROLLER, found["file"]
    if host != CONTROLLER and not path.startswith("/"):
        problems.append(f"{where}.file: the path of a file on {host} must be absolute")
    return Delivery(host, path, found["owner"], found["group"], found["mode"])


def _cross_problems(accounts: Mapping[str, DesiredAccount]) -> list[str]:
    """Return the problems of accounts that were read without errors: the problems that a server would find in each
    account, and the conflicts between accounts."""
    problems = []
    owners: dict[str, str] = {}
    for account in accounts.values():
        where = f"accounts.{account.name}"
        if account.id and account.id in owners:
            problems.append(f"{where}.id: also the id of account {owners[account.id]}")
        owners[account.id] = account.name
        if not account.is_present:
            continue
        claims = desired_claims(account, accounts, {})
        problems += [f"{where}.{problem}" for problem in content_problems(claims)]
        keys = [key["key"] for key in account.fields["signing_keys"].values() if key["key"]]
        problems += [
            f"{where}.signing_keys: {key} is listed twice" for key in {one for one in keys if keys.count(one) > 1}
        ]
        roles = [key["role"] for key in account.fields["signing_keys"].values() if not key["key"]]
        problems += [
            f"{where}.signing_keys: {roles.count(role)} keys {f'with role {role}' if role else 'without a role'} have no "
            "public key, so only their role could distinguish them"
            for role in sorted({one for one in roles if roles.count(one) > 1})
        ]
        for index, item in enumerate(account.fields["imports"]):
            problems += _import_problems(f"{where}.imports[{index}]", item, account, accounts)
        for export in account.fields["exports"]:
            problems += [
                f"{where}.exports: {export['subject']}: to: {name} is not an account of the document"
                for name in export["to"]
                if name not in accounts
            ]
    return problems


def _import_problems(
    where: str, item: Mapping[str, Any], account: DesiredAccount, accounts: Mapping[str, DesiredAccount]
) -> list[str]:
    exporter = accounts.get(item["account"])
    if exporter is None:
        if key_kind(item["account"]) == ACCOUNT:
            return []
        return [f"{where}.account: {item['account']} is not an account of the document or a public key"]
    export = matching_export(item, exporter)
    if export is None:
        return [f"{where}: account {exporter.name} does not export {item['type']} {item['subject']}"]
    if export["to"] and account.name not in export["to"]:
        return [f"{where}: account {exporter.name} exports {export['subject']} only to {', '.join(export['to'])}"]
    return []


def matching_export(item: Mapping[str, Any], exporter: DesiredAccount) -> Normal | None:
    """Return the export that an import uses, or None if there is no such export or the exporting account will be
    absent."""
    return next(
        (
            export
            for export in (exporter.fields["exports"] if exporter.is_present else ())
            if export["type"] == item["type"] and subject_matches(export["subject"], item["subject"])
        ),
        None,
    )


def desired_claims(account: DesiredAccount, accounts: Mapping[str, DesiredAccount], ids: Mapping[str, str]) -> Claims:
    """Return the desired claims of an account. `ids`: the public keys of accounts by name, as far as they are known; an
    account without a known key gets a placeholder."""

    def resolved_key(name: str) -> str:
        other = accounts.get(name)
        return name if other is None else other.id or ids.get(name) or placeholder_key(name)

    def resolved(item: Normal) -> Normal:
        exporter = accounts.get(item["account"])
        export = matching_export(item, exporter) if exporter is not None else None
        local = "" if item["local"] == item["subject"] else item["local"]
        return {
            **item,
            "account": resolved_key(item["account"]),
            "local": local,
            "activation": bool(export and export["private"]),
        }

    fields = {
        **account.fields,
        "exports": [
            {key: value for key, value in export.items() if key != "to"} for export in account.fields["exports"]
        ],
        "imports": [resolved(item) for item in account.fields["imports"]],
    }
    return Claims(ACCOUNT, resolved_key(account.name), account.name, fields)


def placeholder_key(name: str) -> str:
    """Return a well-formed public key for an account that does not exist yet; its seed does not exist."""
    body = b"\x00" + hashlib.sha256(f"natsops placeholder {name}".encode()).digest()
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode()


# --- Schema for editors -----------------------------------------------------------------------------------------------

_LIMIT = {"oneOf": [{"type": "integer", "minimum": 0}, {"enum": [UNLIMITED, NONE]}]}
_SIZE = {
    "oneOf": [
        {"type": "integer", "minimum": 0},
        {"enum": [UNLIMITED, NONE]},
        {"type": "string", "pattern": r"^\d+\s*([KMGTPE](I?B|I|i?B|i)?)?$"},
    ]
}
_MOMENT = {"type": "string", "format": "date-time"}
_TEXTS = {"type": "array", "items": {"type": "string"}}


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the document, generated from the tables that parse it."""
    account = _build_schema(ACCOUNT_DOCUMENT)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Accounts of NATS in operator mode (natsops.jetstream)",
        "type": "object",
        "additionalProperties": False,
        "required": ["accounts"],
        "properties": {
            "operator": _build_schema(OPERATOR_DOCUMENT),
            "system_account": {"type": "string", "description": "name of an account, or its public key"},
            "defaults": _build_schema(_DEFAULTS),
            "accounts": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"oneOf": [account, {"type": "null"}]},
            },
            "users": {
                "type": "object",
                "propertyNames": {"pattern": "^[^/]+/.+$"},
                "additionalProperties": _build_schema(USER_DOCUMENT),
            },
        },
    }


def _build_schema(fields: Iterable[ClaimField]) -> dict[str, Any]:
    fields = tuple(fields)
    required = [one.name for one in fields if one.required]
    return {**_branch(tree(fields)), **({"required": required} if required else {})}


def _branch(level: Tree) -> dict[str, Any]:
    properties = {
        key: _value_schema(node) if isinstance(node, ClaimField) else _branch(node)
        for key, node in sorted(level.items())
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value_schema(one: ClaimField) -> dict[str, Any]:
    schema = _kind_schema(one)
    return {**schema, **({"description": one.description} if one.description else {})}


def _kind_schema(one: ClaimField) -> dict[str, Any]:
    if one.kind == "limit":
        return _LIMIT
    if one.kind == "size_limit":
        return _SIZE
    if one.kind == "choice":
        return {"enum": list(one.choices)}
    if one.kind == "object":
        return _build_schema(one.fields)
    if one.kind == "objects":
        return {"type": "array", "items": _build_schema(one.fields)}
    if one.kind == "maps":
        return {"type": "object", "additionalProperties": {"type": "array", "items": _build_schema(one.fields)}}
    if one.kind == "signing_keys":
        return {"type": "object", "additionalProperties": _build_schema(one.fields)}
    if one.kind == "tiers":
        flat = _build_schema(JETSTREAM)
        tiers = {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "patternProperties": {"^R[1-5]$": flat},
        }
        return {"oneOf": [{"const": NONE}, {**flat, "minProperties": 1}, tiers]}
    plain: dict[str, dict[str, Any]] = {
        "flag": {"type": "boolean"},
        "number": {"type": "integer", "minimum": 0},
        "duration": {"type": "string"},
        "sampling": {"oneOf": [{"const": "headers"}, {"type": "integer", "minimum": 1, "maximum": 100}]},
        "moments": {"type": "object", "additionalProperties": _MOMENT},
        "names": _TEXTS,
        "tags": _TEXTS,
        "keys": _TEXTS,
    }
    return plain.get(one.kind, {"type": "string", "minLength": 1})
