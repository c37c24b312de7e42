# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every server's copy of each account's claims: whether the copies agree, and their problems. Pure.

Servers store a JWT without checking its signer, and use it only if they trust it. So the copy in force on a server may
differ from the copy that the server stores and would load after a restart."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..screen import printable
from ..units import counted
from .checks import account_problems, activation_problems, operator_problems, signer_problem
from .claims import Claims, decode_claims, import_key
from .fields import ACCOUNT_FIELDS, OPERATOR_FIELDS, moment_words, words
from .keys import ACCOUNT, OPERATOR
from .token import InvalidToken


@dataclass(frozen=True)
class Copies:
    """The copies of one account's claims. `account`: its public key.

    `stored`: the JWTs that full resolvers returned, without the names of the servers; an empty text for each resolver
    that has none. `listed`: whether each server with a directory stores the account. `loaded`: the JWT in force on each
    server that has loaded the account."""

    account: str
    stored: tuple[str, ...]
    listed: Mapping[str, bool]
    loaded: Mapping[str, str]


@dataclass(frozen=True)
class Trust:
    """The operators of the servers. `claims`: the distinct claims. `servers`: the names of the servers with each
    operator, by the digest of its JWT. `problems`: sentences for operators."""

    claims: tuple[Claims, ...]
    servers: Mapping[str, tuple[str, ...]]
    digests: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_strict(self) -> bool:
        """Return whether an operator requires signing keys."""
        return any(claims.fields["strict_signing_keys"] for claims in self.claims)

    @property
    def system_accounts(self) -> frozenset[str]:
        """Return the public keys of the operators' system accounts."""
        return frozenset(claims.fields["system_account"] for claims in self.claims)

    def as_rows(self) -> list[dict[str, Any]]:
        """Return the operators as the module returns them."""
        return [
            {
                "name": printable(claims.name),
                "id": claims.subject,
                "system_account": claims.fields["system_account"],
                **words(OPERATOR_FIELDS, {**claims.fields, "id": claims.subject, "system_account": ""}),
                "servers": list(self.servers[digest]),
            }
            for claims, digest in zip(self.claims, self.digests)
        ]


def digest(token: str) -> str:
    """Return an identifier of a JWT that does not disclose it."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def read_trust(operators: Mapping[str, Sequence[str]], now: float) -> Trust:
    """Return the operators that the servers trust. `operators`: the JWTs of each server's operators by the server's
    name."""
    servers: dict[str, list[str]] = {}
    tokens: dict[str, str] = {}
    for server, found in sorted(operators.items()):
        for token in found:
            servers.setdefault(digest(token), []).append(server)
            tokens[digest(token)] = token
    claims, digests, problems = [], [], []
    for key, token in tokens.items():
        try:
            decoded = decode_claims(token)
            if decoded.kind != OPERATOR:
                raise InvalidToken(f"its type is {decoded.kind}")
        except InvalidToken as error:
            problems.append(f"the operator of {', '.join(servers[key])} cannot be read: {error}")
            continue
        claims.append(decoded)
        digests.append(key)
        problems += [f"operator {printable(decoded.name)}: {problem}" for problem in operator_problems(decoded, now)]
    without = sorted(server for server, found in operators.items() if not found)
    if operators and len(without) == len(operators):
        problems.append("no server has an operator: accounts are in the servers' configuration")
    elif without:
        problems.append(f"{', '.join(without)}: no operator, although other servers have one")
    partial = [key for key in servers if len(servers[key]) < len(operators) - len(without)]
    if partial:
        problems.append(
            "the servers have different operator JWTs: " + "; ".join(", ".join(servers[key]) for key in servers)
        )
    return Trust(tuple(claims), {key: tuple(names) for key, names in servers.items()}, tuple(digests), tuple(problems))


@dataclass(frozen=True)
class Evaluation:
    """The copies of an account, compared. `claims`: the claims of the copy that the servers trust and most of them
    have, None if no copy can be read; `token`: this copy. `newest`: the latest issue time of all copies. `problems`:
    sentences for operators. `disagreements`: the problems that are differences between servers."""

    copies: Copies
    claims: Claims | None
    signer_problem: str
    disagreements: tuple[str, ...]
    problems: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    token: str = field(default="", repr=False)
    newest: int = 0

    @property
    def name(self) -> str | None:
        """Return the name in the claims."""
        return None if self.claims is None else printable(self.claims.name)

    @property
    def label(self) -> str:
        """Return the display name: the name in the claims, or the public key."""
        return self.name or self.copies.account

    @property
    def doubts(self) -> list[str]:
        """Return the problems for which the claims may not be those that every server uses."""
        return [*self.disagreements, *([self.signer_problem] if self.signer_problem else [])]


def evaluate(copies: Copies, trust: Trust, now: float) -> Evaluation:
    """Compare an account's copies and return the evaluation."""
    found = {digest(token): token for token in (*copies.stored, *copies.loaded.values()) if token}
    decoded: dict[str, Claims] = {}
    problems: list[str] = []
    for key, token in found.items():
        try:
            decoded[key] = _account_claims(token, copies.account)
        except InvalidToken as error:
            problems.append(f"copy {key} cannot be read: {error}")
    counts = Counter(digest(token) for token in copies.stored if token)
    in_force = {key: sorted(name for name, token in copies.loaded.items() if digest(token) == key) for key in found}
    if not found:
        problems.append("no server returned the claims: the account has not been used since the servers started")
    disagreements = _disagreements(copies, counts, in_force)
    if 0 < len(copies.stored) < len(copies.listed):
        disagreements.append(
            f"unknown: {len(copies.stored)} of {len(copies.listed)} servers returned the copy that they store"
        )
    problems += disagreements
    shown = _chosen(decoded, counts, in_force, trust)
    claims = decoded.get(shown)
    if claims is not None:
        problems += account_problems(claims, trust.claims, now)
        problems += _expiries(claims, now)
        problems += [f"{path}: unknown to this collection" for path in claims.unknown]
        if claims.flat_ignored:
            problems.append("limits: servers ignore JetStream limits of all replicas if there are tiers")
    problems += [
        f"copy {key}: {problem}"
        for key, other in decoded.items()
        if key != shown and (problem := signer_problem(other, trust.claims))
    ]
    rows = [
        {
            "digest": key,
            "issued": moment_words(decoded[key].issued_at) if key in decoded else None,
            "issuer": decoded[key].issuer if key in decoded else None,
            "stored": counts[key],
            "in_force": in_force[key],
        }
        for key in found
    ]
    untrusted = signer_problem(claims, trust.claims) if claims is not None else ""
    return Evaluation(
        copies,
        claims,
        untrusted,
        tuple(disagreements),
        tuple(printable(one) for one in problems),
        tuple(rows),
        found.get(shown, ""),
        max((one.issued_at for one in decoded.values()), default=0),
    )


def account_row(evaluation: Evaluation) -> dict[str, Any]:
    """Return an account as the module returns it: its claims in the document's words, its copies, and its problems."""
    claims = evaluation.claims
    return {
        "account": evaluation.copies.account,
        "name": evaluation.name,
        "agree": not evaluation.disagreements,
        "trusted": claims is not None and not evaluation.signer_problem,
        "issuer": claims.issuer if claims else None,
        "issued": moment_words(claims.issued_at) if claims else None,
        "expires": moment_words(claims.expires) if claims and claims.expires else None,
        "claims": words(ACCOUNT_FIELDS, claims.fields) if claims else None,
        "activations": _activations(claims) if claims else [],
        "copies": list(evaluation.rows),
        "problems": list(evaluation.problems),
    }


def _account_claims(token: str, account: str) -> Claims:
    claims = decode_claims(token)
    if claims.kind != ACCOUNT or claims.subject != account:
        raise InvalidToken(f"it is a JWT of {claims.kind} {claims.subject}")
    return claims


def _disagreements(copies: Copies, counts: Mapping[str, int], in_force: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the differences between the servers' copies."""
    found = []
    if len(counts) > 1:
        parts = (f"{key} on {counted(number, 'server')}" for key, number in counts.items())
        found.append(f"servers disagree: they store {len(counts)} different copies ({', '.join(parts)})")
    absent = sorted(name for name, stored in copies.listed.items() if not stored)
    if absent and len(absent) < len(copies.listed):
        found.append(f"servers disagree: the account is not stored on {', '.join(absent)}")
    active = {key: names for key, names in in_force.items() if names}
    if len(active) > 1:
        parts = (f"{key} on {', '.join(names)}" for key, names in active.items())
        found.append(f"servers disagree: different copies are in force ({'; '.join(parts)})")
    elif active and len(counts) == 1 and not set(active) & set(counts):
        ((key, names),) = active.items()
        found.append(f"{', '.join(names)}: copy {key} is in force, and a different one is stored for the next start")
    return found


def _chosen(
    decoded: Mapping[str, Claims], counts: Mapping[str, int], in_force: Mapping[str, Sequence[str]], trust: Trust
) -> str:
    """Return the copy whose claims are shown: the newest trusted copy among those in force or stored on most servers."""

    def rank(key: str) -> tuple[bool, int, int, str]:
        claims = decoded[key]
        return (not signer_problem(claims, trust.claims), len(in_force[key]) + counts[key], claims.issued_at, key)

    return max(decoded, key=rank, default="")


def _expiries(claims: Claims, now: float) -> list[str]:
    """Return the expiry of an account and of its activations."""
    found = []
    if claims.expires > now:
        found.append(
            f"expires at {moment_words(claims.expires)}: servers then close its connections, and full resolvers delete it"
        )
    for one in claims.fields["imports"]:
        token = claims.activations.get(import_key(one))
        if token and (late := activation_problems(token, one, claims.subject, now)):
            found += [f"imports: {one['subject']}: {problem}" for problem in late if problem.startswith("expired")]
    return found


def _activations(claims: Claims) -> list[dict[str, Any]]:
    """Return the activations of private imports, without their JWTs."""
    found = []
    for one in claims.fields["imports"]:
        token = claims.activations.get(import_key(one))
        if not token:
            continue
        try:
            activation = decode_claims(token)
        except InvalidToken:
            continue
        found.append(
            {
                "account": one["account"],
                "subject": one["subject"],
                "issuer": activation.issuer,
                "expires": moment_words(activation.expires) if activation.expires else None,
            }
        )
    return found
