# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expiry of JWTs of operators, accounts, activations and users, and its effects. Pure.

Every report, check, metric and event uses `evaluate`. The JWTs themselves are read and dropped here: only public
keys, names, roles and times leave this file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..problem import ERROR, WARNING, Problem
from ..thresholds import EXPIRY_DAYS
from ..units import counted, human_seconds
from .fields import moment_words
from .token import InvalidToken, read_payload

OPERATOR, ACCOUNT, ACTIVATION, USER, CREDENTIALS = "operator", "account", "activation", "user", "credentials"

DAY = 86400
#: Shares of its lifetime, for a JWT whose lifetime is short: nats_user_credentials renews JWTs of 30 days 7 days before
#: their expiry, so a JWT with less than a fifth of its lifetime left has not been renewed.
_WARNING_SHARE, _CRITICAL_SHARE = 1 / 5, 1 / 20
#: Logins that are valid for less than this number of seconds are made for one task and end with it.
TEMPORARY = DAY

#: Maximum number of characters of a name or a subject, because both are free text.
_LONGEST = 128


@dataclass(frozen=True)
class Expiring:
    """A JWT that expires. Times are seconds since 1970. `account`: the public key of the account to which it applies, empty
    for an operator. `subject`: its own public key; for an activation, the imported subject. `issuer`: the key that signed
    it. `connections`: the open connections that use it."""

    kind: str
    account: str
    subject: str
    name: str
    issuer: str
    issued_at: int
    expires: int
    connections: int = 0


@dataclass(frozen=True)
class AccountNames:
    """An account's name, and the role of each of its signing keys."""

    name: str
    roles: Mapping[str, str]


@dataclass
class Logins:
    """The JWTs found in the replies of servers. `accounts`: by public key. `connections`: open connections of each account.
    `unknown`: a line for each part that could not be read."""

    tokens: dict[tuple[str, str, str], Expiring] = field(default_factory=dict)
    accounts: dict[str, AccountNames] = field(default_factory=dict)
    connections: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def add_operator(self, token: str) -> None:
        """Add the JWT of an operator (VARZ trusted_operators_jwt)."""
        self._add(OPERATOR, "", token)

    def add_account(self, key: str, token: str) -> None:
        """Add the JWT of an account (ACCOUNTZ jwt), with the activations of its imports."""
        try:
            payload = read_payload(token)
        except InvalidToken as error:
            self.unknown.append(f"account {key}: its JWT cannot be read: {error}")
            return
        claims = _object(payload.get("nats"))
        roles = {
            str(one.get("key")): _text(one.get("role"))
            for one in claims.get("signing_keys") or ()
            if isinstance(one, dict)
        }
        self.accounts[key] = AccountNames(_text(payload.get("name")), roles)
        self._add(ACCOUNT, key, token)
        for item in claims.get("imports") or ():
            if isinstance(item, dict) and item.get("token"):
                self._add(ACTIVATION, key, str(item["token"]), _text(item.get("subject")))

    def add_connection(self, item: Mapping[str, Any]) -> None:
        """Add the JWT of a connection of CONNZ, requested with `auth`. From 2.14 on, servers remove the signature of a
        bearer JWT; its claims, which the server has verified, can still be read.

        A connection without an account is ignored: it has not logged in yet, and the server may still refuse its JWT."""
        account, token = str(item.get("account") or ""), str(item.get("jwt") or "")
        if not account:
            return
        self.connections[account] = self.connections.get(account, 0) + 1
        if token:
            self._add(USER, account, token, connections=1)

    def add_credentials(self, token: str) -> None:
        """Add the JWT of a file with credentials."""
        self._add(CREDENTIALS, "", token)

    def _add(self, kind: str, account: str, token: str, subject: str = "", connections: int = 0) -> None:
        try:
            payload = read_payload(token)
        except InvalidToken as error:
            line = f"{kind} {account}".strip() + f": a JWT cannot be read: {error}"
            if line not in self.unknown:
                self.unknown.append(line)
            return
        expires, issued_at = _moment(payload.get("exp")), _moment(payload.get("iat"))
        if not expires:
            return
        issuer = _text(payload.get("iss"))
        if kind == CREDENTIALS:
            account = _text(_object(payload.get("nats")).get("issuer_account")) or issuer
        subject = subject or _text(payload.get("sub"))
        key = (kind, account, f"{subject} {expires}")
        before = self.tokens[key].connections if key in self.tokens else 0
        self.tokens[key] = Expiring(
            kind, account, subject, _text(payload.get("name")), issuer, issued_at, expires, before + connections
        )


@dataclass(frozen=True)
class Expiry:
    """An expiry and its effect. Users of one role of an account are one row, with the earliest expiry.

    `expires`: seconds since 1970. `severity`: WARNING, ERROR, or empty while the expiry is far away. `connections`: those
    that will be closed. `text`: the effect in one sentence."""

    kind: str
    account: str
    account_name: str
    role: str
    subject: str
    name: str
    expires: int
    connections: int
    severity: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Return the row as modules return it."""
        return {**asdict(self), "expires_at": moment_words(self.expires)}

    @property
    def label(self) -> str:
        """Return the identity for people, stable while the same JWTs are in use."""
        return " ".join(part for part in (self.kind, self.account_name, self.role or self.subject) if part)

    def problem(self) -> Problem:
        """Return the row as a problem."""
        return Problem("jwt_expiring", self.severity or WARNING, self.label, self.text)


def evaluate(
    logins: Logins, now: float, warning: float = EXPIRY_DAYS.warning, critical: float = EXPIRY_DAYS.critical
) -> list[Expiry]:
    """Return everything that expires, the earliest first. `warning`, `critical`: days before the expiry.

    A JWT with a short lifetime is reported later, and a login of less than a day is not reported at all: it is made for one
    task. A file with credentials that has expired is reported.
    """
    groups: dict[tuple[str, ...], list[Expiring]] = {}
    for one in logins.tokens.values():
        if one.kind in (USER, CREDENTIALS) and one.issued_at and one.expires - one.issued_at < TEMPORARY:
            continue
        role = _role(one, logins.accounts)
        key = (one.kind, one.account, role) if one.kind == USER else (one.kind, one.account, role, one.subject)
        groups.setdefault(key, []).append(one)
    rows = [_row(key[2], group, logins, now, warning, critical) for key, group in groups.items()]
    return sorted(rows, key=lambda row: (row.expires, row.kind, row.account_name, row.role, row.subject))


def due(rows: Iterable[Expiry]) -> list[Expiry]:
    """Return the rows that need action."""
    return [row for row in rows if row.severity]


def _row(role: str, group: list[Expiring], logins: Logins, now: float, warning: float, critical: float) -> Expiry:
    first = min(group, key=lambda one: (one.expires, one.subject))
    severities = [_severity(one, now, warning, critical) for one in group]
    severity = ERROR if ERROR in severities else WARNING if WARNING in severities else ""
    if first.kind == ACCOUNT:
        connections = logins.connections.get(first.account, 0)
    elif severity:
        connections = sum(one.connections for one, found in zip(group, severities) if found)
    else:
        connections = sum(one.connections for one in group if one.expires == first.expires)
    known = logins.accounts.get(first.account)
    account = known.name or first.account if known else first.account
    text = f"{_effect(first, account, role, connections)} ({_when(first.expires, now)})"
    return Expiry(
        first.kind, first.account, account, role, first.subject, first.name, first.expires, connections, severity, text
    )


def _severity(one: Expiring, now: float, warning: float, critical: float) -> str:
    left = one.expires - now
    lifetime = one.expires - one.issued_at if one.issued_at else float("inf")
    if left <= min(critical * DAY, lifetime * _CRITICAL_SHARE):
        return ERROR
    return WARNING if left <= min(warning * DAY, lifetime * _WARNING_SHARE) else ""


def _effect(one: Expiring, account: str, role: str, connections: int) -> str:
    """Return the effect of the expiry. Servers close the connections of an expired user or account by a timer."""
    if one.kind == OPERATOR:
        return f"operator {one.name or one.subject}: servers may reject its JWT at their next start"
    if one.kind == ACCOUNT:
        return (
            f"account {account}: {counted(connections, 'open connection')} will be closed, all logins fail, and full "
            "resolvers delete the account's JWT"
        )
    if one.kind == ACTIVATION:
        return f"account {account}: the import of {one.subject} may stop working"
    if one.kind == CREDENTIALS:
        return f"credentials {one.name or one.subject}: logins with this file fail"
    owner = f"role {role}" if role else f"user {one.name or one.subject}"
    return (
        f"account {account}: {counted(connections, 'connection')} of {owner} will be closed; logins with the same "
        "credentials fail"
    )


def _when(expires: int, now: float) -> str:
    left = expires - now
    how = f"in {human_seconds(left)}" if left > 0 else f"{human_seconds(-left)} ago"
    return f"{'expires' if left > 0 else 'expired'} {how}, {moment_words(expires)}"


def _role(one: Expiring, accounts: Mapping[str, AccountNames]) -> str:
    known = accounts.get(one.account)
    return known.roles.get(one.issuer, "") if known and one.kind in (USER, CREDENTIALS) else ""


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _moment(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1 << 40 else 0
