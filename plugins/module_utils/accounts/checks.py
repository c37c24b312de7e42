# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that a server applies to claims, made here before the claims are pushed to it. Pure.

A full resolver stores even claims that it does not trust and replies `jwt updated`; after its next restart, the account
is locked out. Sources: Validate of each kind in jwt/v2; server/server.go verifyAccountClaims, processTrustedKeys;
server/auth.go processUserPermissionsTemplate; signingkeys.go ValidateScopedSigner.

Every function returns problems as sentences for operators; no problem means that a server accepts the claims."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..subjects import subject_matches
from .claims import Claims, decode_claims, import_key
from .fields import EVERYBODY, FLAT, TEMPLATE, is_tier, moment_words
from .keys import ACCOUNT, CURVE, OPERATOR, USER, key_kind
from .token import InvalidToken

#: Bytes of a description and of an info URL (types.go MaxInfoLength).
_LONGEST_INFO = 8 * 1024
_OPERATION = re.compile(r"\{\{([^}]+)\}\}")
_TAG = re.compile(r"(account-)?tag\((.*)\)", re.IGNORECASE)
_PLAIN_OPERATIONS = ("name()", "subject()", "account-name()", "account-subject()")
_PERMISSIONS = ("allow.pub", "allow.sub", "deny.pub", "deny.sub")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def trusted_keys(operators: Iterable[Claims]) -> set[str]:
    """Return the keys whose accounts servers accept. Under strict signing, an operator's identity key is not among
    them."""
    found: set[str] = set()
    for operator in operators:
        found.update(operator.fields["signing_keys"])
        if not operator.fields["strict_signing_keys"]:
            found.add(operator.subject)
    return found


def signer_problem(account: Claims, operators: Sequence[Claims]) -> str:
    """Return why servers with these operators do not trust the signer of an account, or an empty text if they do."""
    if account.issuer in trusted_keys(operators):
        return ""
    if any(account.issuer == operator.subject for operator in operators):
        return "signed with the operator's identity key, which servers refuse under strict_signing_keys"
    return f"signed by {account.issuer}, which is not a key of the servers' operator"


def operator_problems(operator: Claims, now: float) -> list[str]:
    """Return the problems of an operator's claims."""
    fields = operator.fields
    found = time_problems(operator, now)
    if operator.issuer and operator.issuer not in (operator.subject, *fields["signing_keys"]):
        found.append(f"signed by {operator.issuer}, which is not a key of this operator")
    found += [
        f"signing_keys: {key} is not the public key of an operator" for key in _others(fields["signing_keys"], OPERATOR)
    ]
    if fields["system_account"] and key_kind(fields["system_account"]) != ACCOUNT:
        found.append("system_account: not the public key of an account")
    if fields["assert_server_version"] and not _VERSION.fullmatch(fields["assert_server_version"]):
        found.append("assert_server_version: not a version such as 2.10.0")
    if any(not _is_service_url(url) for url in fields["service_urls"]):
        found.append("service_urls: an address is not nats, tls, ws or wss://HOST:PORT")
    return found


def _is_service_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme.lower() in ("nats", "tls", "ws", "wss") and not parts.path and not parts.username


def account_problems(account: Claims, operators: Sequence[Claims], now: float) -> list[str]:
    """Return the problems of an account's claims on servers with these operators."""
    untrusted = signer_problem(account, operators)
    return [*([untrusted] if untrusted else []), *time_problems(account, now), *content_problems(account)]


def content_problems(account: Claims) -> list[str]:
    """Return the problems of an account's claims that do not depend on the signer."""
    fields = account.fields
    return [
        *_limit_problems(fields),
        *_export_problems(fields["exports"]),
        *_import_problems(account),
        *_signing_key_problems(fields),
        *_subject_problems("default_permissions", fields, "default_permissions."),
        *_mapping_problems(fields["mappings"]),
        *_external_problems(fields),
        *_info_problems("", fields),
        *[
            f"revoke: {key} is not the public key of a user, or *"
            for key in fields["revoke"]
            if key != EVERYBODY and key_kind(key) != USER
        ],
        *([] if fields["cluster_traffic"] in ("system", "owner") else ["cluster_traffic: must be system or owner"]),
        *_trace_problems(fields["trace"]),
    ]


def user_problems(user: Claims, account: Claims, is_strict: bool, now: float) -> list[str]:
    """Return why a server would not let this user log in to its account. `is_strict`: whether the operator requires
    signing keys."""
    found = time_problems(user, now)
    keys, fields = account.fields["signing_keys"], user.fields
    scope = next((key for key in keys.values() if key["key"] == user.issuer), None)
    if user.issuer == account.subject:
        if is_strict:
            found.append("signed with the account's identity key, which servers refuse under strict_signing_keys")
    elif scope is None:
        found.append(f"signed by {user.issuer}, which is not a signing key of the account")
    elif fields["issuer_account"] != account.subject:
        found.append("issuer_account: must be the account's public key if a signing key signed the JWT")
    revoked = max(account.fields["revoke"].get(key, 0) for key in (user.subject, EVERYBODY))
    if revoked and revoked >= user.issued_at:
        found.append(f"revoked: the account accepts only JWTs issued after {moment_words(revoked)}")
    if scope is not None and scope["role"]:
        found += scoped_user_problems(user, scope, account)
    else:
        found += [
            f"limits.{name}: 0, so the user can do nothing; write unlimited"
            for name in ("subscriptions", "payload")
            if fields[f"limits.{name}"] == 0
        ]
        found += _subject_problems("", fields, "")
        found += _network_problems("", fields)
    bearer = scope["bearer"] if scope is not None and scope["role"] else fields["bearer"]
    if bearer and account.fields["limits.disallow_bearer"]:
        found.append("bearer: the account does not allow it")
    return found


def scoped_user_problems(user: Claims, scope: Mapping[str, Any], account: Claims) -> list[str]:
    """Return why a user of a signing key with a role could not log in, or would silently have fewer subjects than the
    role names."""
    own = {one.name for one in TEMPLATE if user.fields[one.name] not in (0, "", None, False, [])}
    found = (
        [f"{', '.join(sorted(own))}: a user of role {scope['role']} must have no permissions or limits"] if own else []
    )
    return found + missing_tags(scope, user.fields["tags"], account.fields["tags"])


def missing_tags(scope: Mapping[str, Any], user_tags: Sequence[str], account_tags: Sequence[str]) -> list[str]:
    """Return the tags that occur in a role's subjects but that the user or account does not have.

    A server drops such a subject from an allow list without a message, and refuses the login if such a subject is in a
    deny list.
    """
    found = []
    for kind, tag in sorted(template_tags(scope)):
        tags = account_tags if kind == ACCOUNT else user_tags
        if not any(one.startswith(f"{tag}:") for one in tags):
            found.append(f"role {scope['role']} needs a tag {tag}:VALUE of the {kind}")
    return found


def template_tags(scope: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the tags that occur in a role's subjects, each with the owner of the tag: user or account."""
    return {
        (ACCOUNT if match[1] else USER, match[2].lower())
        for operation in _operations(scope)
        if (match := _TAG.fullmatch(operation)) is not None
    }


def activation_problems(token: str, item: Mapping[str, Any], importer: str, now: float) -> list[str]:
    """Return why an import's activation does not permit the import."""
    try:
        activation = decode_claims(token)
    except InvalidToken as error:
        return [f"the activation is invalid: {error}"]
    fields = activation.fields
    found = time_problems(activation, now)
    if activation.kind != "activation":
        return [f"the activation is a JWT of type {activation.kind}"]
    if item["account"] not in (activation.issuer, fields["issuer_account"]):
        found.append("the activation is not from the exporting account")
    if activation.subject != importer:
        found.append("the activation is for a different account")
    if fields["type"] != item["type"] or not subject_matches(fields["subject"], item["subject"]):
        found.append(f"the activation permits {fields['type']} {fields['subject']}")
    return found


def time_problems(claims: Claims, now: float) -> list[str]:
    """Return whether the claims are expired or not valid yet."""
    if 0 < claims.expires < now:
        return [f"expired at {moment_words(claims.expires)}"]
    return [f"not valid before {moment_words(claims.not_before)}"] if claims.not_before > now else []


# --- Parts of an account ----------------------------------------------------------------------------------------------


def _limit_problems(fields: Mapping[str, Any]) -> list[str]:
    found = [
        f"{name}: {value} is not a limit"
        for name, value in fields.items()
        if name.startswith("limits.") and isinstance(value, int) and value < -1
    ]
    tiers = fields["limits.jetstream"]
    if FLAT in tiers and len(tiers) > 1:
        found.append("limits.jetstream: tiers and limits of all replicas exclude each other")
    found += [
        f"limits.jetstream.{name}: not a tier from R1 to R5" for name in tiers if name != FLAT and not is_tier(name)
    ]
    for direction in ("imports", "exports"):
        most = fields[f"limits.{direction}"]
        if 0 <= most < len(fields[direction]):
            found.append(f"{direction}: {len(fields[direction])}, and limits.{direction} allows {most or 'none'}")
    if not fields["limits.wildcard_exports"] and fields["limits.exports"] != -1:
        found += [
            f"exports: {one['subject']}: limits.wildcard_exports is false"
            for one in fields["exports"]
            if has_wildcards(one["subject"])
        ]
    return found


def _export_problems(exports: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for index, one in enumerate(exports):
        where = f"exports: {one['subject']}"
        found += [f"{where}: {problem}" for problem in _named_subject_problems(one["subject"])]
        found += _info_problems(f"{where}: ", one)
        if one["type"] not in ("stream", "service"):
            found.append(f"{where}: its type is not stream or service")
        if one["type"] == "stream":
            unfit = [
                name
                for name, default in (("response_threshold", 0), ("latency.subject", ""), ("allow_trace", False))
                if one[name] != default
            ]
            unfit += ["response_type"] if one["response_type"] != "Singleton" else []
            found += [f"{where}: {name} is only for services" for name in unfit]
        elif one["response_type"] not in ("Singleton", "Stream", "Chunked"):
            found.append(f"{where}: response_type is not Singleton, Stream or Chunked")
        if one["latency.subject"] and has_wildcards(one["latency.subject"]):
            found.append(f"{where}: latency.subject has wildcards")
        position, tokens = one["account_token_position"], one["subject"].split(".")
        if position and (position > len(tokens) or tokens[position - 1] != "*"):
            found.append(f"{where}: account_token_position {position} is not the place of a *")
        found += [
            f"{where}: {one['type']} export {other['subject']} overlaps it"
            for place, other in enumerate(exports)
            if place != index and other["type"] == one["type"] and subject_matches(one["subject"], other["subject"])
        ]
    return found


def _import_problems(account: Claims) -> list[str]:
    found = []
    services: list[tuple[str, str]] = []
    for one in account.fields["imports"]:
        where = f"imports: {one['subject']}"
        subject, local = one["subject"], one["local"]
        found += [f"{where}: {problem}" for problem in _named_subject_problems(subject)]
        if one["type"] not in ("stream", "service"):
            found.append(f"{where}: its type is not stream or service")
        if key_kind(one["account"]) != ACCOUNT:
            found.append(f"{where}: its account is not the public key of an account")
        if local:
            found += [f"{where}: {problem}" for problem in _local_problems(local, subject)]
        if one["share"] and one["type"] != "service":
            found.append(f"{where}: share is only for services")
        if one["allow_trace"] and one["type"] != "stream":
            found.append(f"{where}: allow_trace is only for streams")
        if one["type"] == "service":
            own = re.sub(r"\$\d+", "*", local) or subject
            found += [
                f"{where}: overlaps the import of {other}"
                for exporter, other in services
                if exporter == one["account"] and (subject_matches(other, own) or subject_matches(own, other))
            ]
            services.append((one["account"], own))
        token = account.activations.get(import_key(one))
        # A server accepts an expired activation in an account's claims; the import then does not work.
        found += [
            f"{where}: {problem}" for problem in (activation_problems(token, one, account.subject, 0) if token else [])
        ]
    return found


def _local_problems(local: str, subject: str) -> list[str]:
    """Return the problems of an import's local subject (types.go RenamingSubject)."""
    found = _named_subject_problems(local)
    if _is_open(local) != _is_open(subject):
        found.append("local must end in > if, and only if, the subject does")
    wildcards = subject.split(".").count("*")
    references = [int(token[1:]) for token in local.split(".") if re.fullmatch(r"\$\d+", token)]
    if any(number > wildcards for number in references):
        found.append("local refers to a * that the subject does not have")
    elif local.split(".").count("*") + len(references) != wildcards:
        found.append("local must have a * or $1, $2, … for each * of the subject")
    return found


def _signing_key_problems(fields: Mapping[str, Any]) -> list[str]:
    found = []
    for name, key in fields["signing_keys"].items():
        where = f"signing_keys: {name}"
        if key["key"] and key_kind(key["key"]) != ACCOUNT:
            found.append(f"{where}: not the public key of an account")
        if key["role"]:
            found += _subject_problems(where, key, "")
            found += _network_problems(where, key)
            found += [f"{where}: {{{{{one}}}}} is not an operation of templates" for one in _unknown_operations(key)]
            tags_of_users = [f"{tag}:" for _kind, tag in template_tags(key)]
            found += [f"{where}: {problem}" for problem in missing_tags(key, tags_of_users, fields["tags"])]
    return found


def _operations(scope: Mapping[str, Any]) -> list[str]:
    """Return the operations that a role's subjects contain between double braces."""
    return [
        operation.strip()
        for name in _PERMISSIONS
        for subject in scope[name]
        for operation in _OPERATION.findall(subject)
    ]


def _unknown_operations(scope: Mapping[str, Any]) -> list[str]:
    return [one for one in _operations(scope) if one.lower() not in _PLAIN_OPERATIONS and not _TAG.fullmatch(one)]


def _subject_problems(where: str, fields: Mapping[str, Any], prefix: str) -> list[str]:
    """Return the problems of subjects in permissions. The subject of a subscription may be followed by the name of a
    queue."""
    found = []
    for name in _PERMISSIONS:
        for subject in fields[f"{prefix}{name}"]:
            plain = _OPERATION.sub("x", subject)
            parts = plain.split(" ")
            if len(parts) > (2 if name.endswith("sub") else 1):
                found.append(f"{where}: {name}: {subject!r} has too many spaces".removeprefix(": "))
            else:
                found += [
                    f"{where}: {name}: {problem}".removeprefix(": ")
                    for part in parts
                    for problem in _named_subject_problems(part)
                ]
    return found


def _network_problems(where: str, fields: Mapping[str, Any]) -> list[str]:
    found = []
    for network in fields["source_addresses"]:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            found.append(f"{where}: source_addresses: {network!r} is not a network such as 10.0.0.0/8")
    for times in fields["times"]:
        if not all(re.fullmatch(r"([01]\d|2[0-3])(:[0-5]\d){2}", times[end]) for end in ("start", "end")):
            found.append(f"{where}: times: not times such as 08:00:00")
    return [one.removeprefix(": ") for one in found]


def _mapping_problems(mappings: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    found = []
    for subject, targets in mappings.items():
        found += [f"mappings: {problem}" for problem in _named_subject_problems(subject)]
        sums: dict[str, int] = {}
        for target in targets:
            found += [f"mappings: {subject}: {problem}" for problem in _named_subject_problems(target["subject"])]
            sums[target["cluster"]] = sums.get(target["cluster"], 0) + target["weight"]
        found += [
            f"mappings: {subject}: the weights{f' in cluster {cluster}' if cluster else ''} sum to {total}, more than 100"
            for cluster, total in sums.items()
            if total > 100
        ]
    return found


def _external_problems(fields: Mapping[str, Any]) -> list[str]:
    users = fields["external_authorization.users"]
    accounts = fields["external_authorization.accounts"]
    xkey = fields["external_authorization.xkey"]
    where = "external_authorization"
    found = [f"{where}.users: {key} is not the public key of a user" for key in _others(users, USER)]
    if accounts and not users:
        found.append(f"{where}.accounts: needs users")
    if "*" in accounts and len(accounts) > 1:
        found.append(f"{where}.accounts: * stands alone")
    found += [
        f"{where}.accounts: {key} is not the public key of an account"
        for key in _others(accounts, ACCOUNT)
        if key != "*"
    ]
    return found + ([f"{where}.xkey: not a public curve key"] if xkey and key_kind(xkey) != CURVE else [])


def _trace_problems(trace: Mapping[str, Any] | None) -> list[str]:
    if trace is None:
        return []
    found = [f"trace: {problem}" for problem in _named_subject_problems(trace["subject"])]
    if has_wildcards(trace["subject"]):
        found.append("trace: the subject has wildcards")
    return found + ([] if 0 < trace["sampling"] <= 100 else ["trace: sampling is not a percentage from 1 to 100"])


def _info_problems(where: str, fields: Mapping[str, Any]) -> list[str]:
    found = [
        f"{where}{name}: longer than 8 KiB"
        for name in ("description", "info_url")
        if len(fields[name].encode(errors="replace")) > _LONGEST_INFO
    ]
    if fields["info_url"] and not _has_host(fields["info_url"]):
        found.append(f"{where}info_url: not an address such as https://example.com")
    return found


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.scheme and parts.hostname)


def _others(keys: Iterable[str], kind: str) -> list[str]:
    return [key for key in keys if key_kind(key) != kind]


# --- Subjects (types.go) ----------------------------------------------------------------------------------------------


def _named_subject_problems(subject: str) -> list[str]:
    """Return the problem of a subject, if any."""
    if not subject:
        return ["the subject is empty"]
    if " " in subject:
        return [f"subject {subject!r} has a space"]
    if subject[0] == "." or subject[-1] == "." or ".." in subject:
        return [f"subject {subject!r} has an empty token"]
    return []


def has_wildcards(subject: str) -> bool:
    return _is_open(subject) or "*" in subject.split(".")


def _is_open(subject: str) -> bool:
    return subject == ">" or subject.endswith(".>")
