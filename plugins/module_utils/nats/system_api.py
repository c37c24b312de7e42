# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers' monitoring and operations API as typed calls.

`$SYS.REQ.*` needs a user of the system account. Servers are found by one request to all of them and then queried by
their ID, because up to 2.11 the servers' name filter matches substrings (n1 also matches n10)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Union

from ..screen import printable
from .account_names import account_id, is_account_key, one_account
from .client import Call, Client, NatsFailure, Progress, Reply, refuse_constant
from .model import UNREADABLE, Cluster, Server, for_domain
from .replies import build_cluster, parse_server

_COMPRESSED = {"Accept-Encoding": "gzip"}

#: Endpoints that perform an action; all others only read.
_ACTIONS = ("KICK", "LDM")

#: Rows per page: connections for CONNZ, accounts for JSZ.
_CONNECTIONS_PER_PAGE = 1024
_ACCOUNTS_PER_PAGE = 256

#: Maximum number of rows in all pages of one server: a reply that claims more is a bad_reply.
_MOST_ROWS = 1_000_000

#: SUBSZ lists subscriptions in no stable order, so its pages cannot be joined: all rows are requested as one page.
_ALL_SUBSCRIPTIONS = 10_000_000

Answer = Union[dict[str, Any], NatsFailure]

#: Parses the document of an endpoint's reply (VARZ, JSZ, …). Raises ValueError if it is not JSON.
Decode = Callable[[bytes, str], Any]


def _plain(body: bytes, _endpoint: str) -> Any:
    return json.loads(body, parse_constant=refuse_constant)


@dataclass(frozen=True)
class Discovery:
    """The servers that responded, and the expected names that did not."""

    servers: tuple[Server, ...]
    missing: tuple[str, ...]

    def named(self, name: str) -> Server:
        """Return the one server with exactly this name. Raises NatsFailure server_missing or server_ambiguous."""
        found = [server for server in self.servers if server.name == name]
        if not found:
            others = ", ".join(server.name for server in self.servers)
            raise NatsFailure("server_missing", f"no server named {name} answered; there are: {others}", server=name)
        if len(found) > 1:
            ids = ", ".join(server.id for server in found)
            raise NatsFailure("server_ambiguous", f"{len(found)} servers are named {name}: {ids}", server=name)
        return found[0]


class SystemApi:
    """Requests to the servers over the system account. `page_size` overrides the rows per page. After `deadline` (a
    time of time.monotonic), no request is sent, not even for a further page; the reply is then a NatsFailure with code
    deadline.

    `arrived`: the arrival time of each server's last reply, by server ID."""

    def __init__(
        self, client: Client, page_size: int | None = None, deadline: float | None = None, decode: Decode = _plain
    ) -> None:
        self._client = client
        self._page_size = page_size
        self._deadline = deadline
        self._decode = decode
        self.arrived: dict[str, datetime] = {}
        self._account_ids: dict[str, str] = {}

    @property
    def client(self) -> Client:
        """Return the connection in use."""
        return self._client

    def discover(self, expected: Collection[str] = ()) -> Discovery:
        """Return all servers of the (super)cluster with their statistics, waiting for the expected names.

        The call ends when all expected servers, and as many servers as the servers themselves count (STATSZ
        `active_servers`), have responded. Otherwise it ends when no more replies arrive or, if an expected name is
        missing, at the connection's timeout. Raises NatsFailure wrong_account if there is no reply, because the user is
        not in the system account.
        """
        servers: dict[str, Server] = {}
        awaited = set(expected)

        def on_repeat() -> None:
            servers.clear()
            awaited.update(expected)

        def on_reply(reply: Reply) -> Progress:
            server = _parse_statsz(reply)
            servers[server.id] = server
            awaited.discard(server.name)
            if awaited:
                return False
            return True if len(servers) >= max(item.known_servers for item in servers.values()) else None

        call = Call("$SYS.REQ.SERVER.PING.STATSZ", idempotent=True)
        try:
            self._client.gather(call, on_reply, on_repeat=on_repeat)
        except NatsFailure as failure:
            if failure.code in ("no_responders", "permission"):
                raise self._wrong_account(failure) from failure
            raise
        found = tuple(sorted(servers.values(), key=lambda server: (server.name, server.id)))
        return Discovery(found, tuple(sorted(awaited)))

    def ask(
        self, servers: Sequence[Server], endpoint: str, options: Mapping[str, Any] | None = None
    ) -> dict[str, Answer]:
        """Return each server's reply to one endpoint (VARZ, JSZ, ...) by server ID: its data, or the failure.

        Long lists are read page by page and returned complete; callers must not set offset and limit."""
        answers: dict[str, Answer] = {}
        for server, page in self.pages(servers, endpoint, options):
            answers[server.id] = _joined(answers.get(server.id), page)
        return answers

    def pages(
        self, servers: Sequence[Server], endpoint: str, options: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Server, Answer]]:
        """Yield each server's reply to one endpoint. Long lists are yielded page by page, so at most one page of each
        server is in memory. Each page has the figures of the complete server and only rows that no earlier page had;
        after a failure, no more pages follow."""
        request = dict(options or {})
        if endpoint == "JSZ" and not request.get("account"):
            yield from self._account_pages(servers, request)
        elif endpoint == "CONNZ":
            yield from self._connection_pages(servers, request)
        else:
            if endpoint == "SUBSZ":
                request["limit"] = _ALL_SUBSCRIPTIONS
            answers = self._ask_once(servers, endpoint, request)
            for server in servers:
                answer = answers.pop(server.id)
                yield server, _only_account(answer, request["account"]) if endpoint == "JSZ" else answer

    def account_id(self, servers: Sequence[Server], account: str) -> str:
        """Return the identity of the account that a user selects by identity or name, to which endpoints limit their
        replies.

        The identity is the name itself, unless accounts are JWTs. Raises NatsFailure account_ambiguous, and the failure
        of a server to list its accounts."""
        if is_account_key(account):
            return account
        if account not in self._account_ids:
            self._account_ids[account] = one_account(self._account_names(servers, account), account)
        return self._account_ids[account]

    def _account_names(self, servers: Sequence[Server], account: str) -> dict[str, str]:
        """Return identity → name of the accounts that are JWTs; empty if `account` is already the identity of an
        account."""
        listing: dict[str, Server] = {}
        for server, answer in zip(servers, self.ask(servers, "ACCOUNTZ").values()):
            if not isinstance(answer, NatsFailure):
                listing.update(dict.fromkeys(map(str, answer.get("accounts") or ()), server))
        if account in listing:
            return {}
        keys = [key for key in listing if is_account_key(key)]
        calls = [
            Call(
                f"$SYS.REQ.SERVER.{listing[key].id}.ACCOUNTZ", json.dumps({"account": key}).encode(), _COMPRESSED, True
            )
            for key in keys
        ]
        names = {}
        for key, outcome in zip(keys, self._client.request_many(calls, self._timeout())):
            answer = outcome if isinstance(outcome, NatsFailure) else _data(outcome)
            if isinstance(answer, NatsFailure):
                raise answer
            names[key] = str((answer.get("account_detail") or {}).get("name_tag", ""))
        return names

    def stored_accounts(self, servers: Sequence[Server]) -> dict[str, Answer | tuple[str, ...]]:
        """Return the public keys of the accounts whose claims each server stores, by server ID, or the failure.

        Servers whose resolver is not a directory do not reply and are omitted (accounts.go: only full and cache
        resolvers reply).
        """
        stored: dict[str, Answer | tuple[str, ...]] = {}
        known = {server.id: server for server in servers}

        def on_reply(reply: Reply) -> Progress:
            server = known.get(str((_document(reply).get("server") or {}).get("id")))
            if server is not None:
                stored[server.id] = _stored_keys(reply, server)
            return True if len(stored) == len(known) else None

        try:
            self._client.gather(Call("$SYS.REQ.CLAIMS.LIST", idempotent=True), on_reply, on_repeat=stored.clear)
        except NatsFailure as failure:
            if failure.code not in ("no_responders", "timeout"):
                raise
        return stored

    def stored_claims(self, account: str, most: int) -> list[str]:
        """Return the JWT of an account from each server with a full resolver; an empty text from a server that does not
        store it.

        The replies do not name their server. Returns once there are `most` replies, or no more arrive.
        """
        found: list[str] = []

        def on_reply(reply: Reply) -> Progress:
            found.append(reply.body.decode("utf-8", errors="replace"))
            return True if len(found) == most else None

        call = Call(f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP", idempotent=True)
        try:
            self._client.gather(call, on_reply, on_repeat=found.clear)
        except NatsFailure as failure:
            if failure.code not in ("no_responders", "timeout"):
                raise
        return found

    def loaded_claims(self, servers: Sequence[Server], account: str) -> dict[str, Answer | str]:
        """Return the JWT of an account that is in force on each of these servers, by server ID, or the failure. A
        server loads an account on its first use, and then reports it in ACCOUNTZ."""
        answers = self.ask(servers, "ACCOUNTZ", {"account": account})
        return {
            key: answer
            if isinstance(answer, NatsFailure)
            else str((answer.get("account_detail") or {}).get("jwt") or "")
            for key, answer in answers.items()
        }

    def push_claims(self, servers: Sequence[Server], token: str) -> dict[str, Answer]:
        """Send an account's JWT to all servers and return the reply of each, by server ID: its data, or the failure.

        A server confirms that it has stored the JWT, which does not prove that it trusts the signer. Only servers that
        store JWTs reply to this subject (accounts.go DirAccResolver).
        """
        return self._change_claims(servers, "$SYS.REQ.CLAIMS.UPDATE", token)

    def delete_claims(self, servers: Sequence[Server], token: str) -> dict[str, Answer]:
        """Send a request to delete accounts, a JWT signed by an operator, to all servers and return the reply of each,
        as `push_claims` does."""
        return self._change_claims(servers, "$SYS.REQ.CLAIMS.DELETE", token)

    def _change_claims(self, servers: Sequence[Server], subject: str, token: str) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        known = {server.id: server for server in servers}

        def on_reply(reply: Reply) -> Progress:
            server = known.get(str((_document(reply).get("server") or {}).get("id")))
            if server is not None:
                answers[server.id] = _data(reply)
            return len(answers) == len(known)

        try:
            # The same JWT again has no effect, so the request may be repeated.
            self._client.gather(Call(subject, token.encode(), idempotent=True), on_reply, on_repeat=answers.clear)
        except NatsFailure as failure:
            if failure.code not in ("no_responders", "timeout"):
                raise
        for server in servers:
            answers.setdefault(server.id, NatsFailure("timeout", "no reply", subject=subject, server=server.name))
        return answers

    def ask_one(self, server: Server, endpoint: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return one server's reply to one endpoint. Raises NatsFailure if there is none."""
        answer = self.ask([server], endpoint, options)[server.id]
        if isinstance(answer, NatsFailure):
            raise answer
        return answer

    def account_statistics(self, servers: Sequence[Server], account: str | None = None) -> dict[str, Answer]:
        """Return each server's figures for its accounts, or for one account, by server ID: `account_statz` (monitor.go
        AccountStat)."""
        answers: dict[str, Answer] = {}
        self.gather_account_statistics(servers, lambda server, answer: answers.update({server.id: answer}), account)
        return {server.id: answers[server.id] for server in servers}

    def gather_account_statistics(
        self, servers: Sequence[Server], on_answer: Callable[[Server, Answer], None], account: str | None = None
    ) -> None:
        """Send the request of `account_statistics`, but pass on each server's reply as it arrives and, at the end, a
        failure for each server that did not reply.

        No subject addresses a single server, so all servers are queried at once.
        """
        awaited = {server.id: server for server in servers}
        timeout = self._timeout()

        def on_reply(reply: Reply) -> Progress:
            server = awaited.pop((_document(reply).get("server") or {}).get("id", ""), None)
            if server is not None:
                self.arrived[server.id] = datetime.now(timezone.utc)
                on_answer(server, _data(reply))
            return not awaited

        body = {"include_unused": True, **({"accounts": [account]} if account else {})}
        call = Call("$SYS.REQ.ACCOUNT.PING.STATZ", json.dumps(body).encode(), _COMPRESSED, idempotent=True)
        if timeout is not None and timeout <= 0:
            for server in servers:
                on_answer(server, _too_late(call.subject, server))
            return
        try:
            self._client.gather(call, on_reply, timeout)
        except NatsFailure as failure:
            if failure.code != "timeout":
                raise
        for server in awaited.values():
            on_answer(server, NatsFailure("timeout", "no reply", subject=call.subject, server=server.name))

    def reload(self, server: Server) -> None:
        """Request a reload of a server's configuration file and wait for its confirmation (2.10+).

        Raises NatsFailure reload_rejected with the server's reason. For some options, the reason quotes their old and
        new values, which may be secrets (jetstream.key, gateway passwords): everything after `old=` is masked."""
        subject = f"$SYS.REQ.SERVER.{server.id}.RELOAD"
        try:
            answer = _data(self._client.request(Call(subject)))
        except NatsFailure as failure:
            failure.server = server.name
            raise
        if isinstance(answer, NatsFailure):
            reason = mask_values(answer.description).strip()
            raise NatsFailure("reload_rejected", reason, subject=subject, server=server.name)

    def kick(self, server: Server, cid: int) -> bool:
        """Close a client's or leafnode's connection (2.10); return whether it still existed. Raises NatsFailure."""
        return self._to_connection(server, "KICK", cid, "close a connection")

    def announce_lame_duck(self, server: Server, cid: int) -> bool:
        """Notify a client that its server is entering lame duck mode (2.10); return whether such a client is connected.
        Raises NatsFailure."""
        return self._to_connection(server, "LDM", cid, "notify a client of lame duck mode")

    def _to_connection(self, server: Server, verb: str, cid: int, purpose: str) -> bool:
        answer = self._ask_once([server], verb, {"cid": cid})[server.id]
        if not isinstance(answer, NatsFailure):
            return True
        if answer.code == "server_error" and (
            "no such client" in answer.description or "not support" in answer.description
        ):
            return False
        if answer.code == "no_responders":
            raise NatsFailure(
                "unsupported",
                f"{server.name} runs nats-server {server.version}, which cannot {purpose} over NATS; that needs 2.10",
                server=server.name,
            )
        raise answer

    def own_account(self) -> str | None:
        """Return the identity of the connected user's account (2.10+), or None if the server does not report it."""
        return next(iter(self.own_account_name()), None)

    def own_account_name(self) -> dict[str, str]:
        """Return the identity and name of the connected user's account as a mapping; empty before 2.10. 2.10.27 does
        not report the name in an account's JWT and returns the identity instead; 2.15.1 reports the name."""
        try:
            answer = _data(self._client.request(Call("$SYS.REQ.USER.INFO", idempotent=True), timeout=1))
        except NatsFailure:
            return {}
        if isinstance(answer, NatsFailure) or not answer.get("account"):
            return {}
        return {str(answer["account"]): str(answer.get("account_name") or answer["account"])}

    def read_cluster(
        self,
        awaited: Collection[str] = (),
        known_names: Collection[str] = (),
        assets: bool = True,
        account: str | None = None,
        consumers: bool = True,
        health: bool = True,
    ) -> Cluster:
        """Return the state of the (super)cluster. `assets` adds every stream (of `account`, if given by identity or
        name), `consumers` their consumers, and `health` each server's own health.

        `awaited`: names to wait for until the timeout; `known_names`: names of servers that may be down. Servers of
        another JetStream domain, behind leafnodes, are excluded: only the domain of these names is included or, if none
        are given, that of the connected server."""
        found = self.discover(awaited).servers
        servers = for_domain(found, self._domain(found, {*awaited, *known_names}))
        options: dict[str, Any] = {"config": True}
        if assets:
            options.update({"accounts": True, "streams": True, "consumer": consumers, "raft": True})
            if account is not None:
                options["account"] = self.account_id(servers, account)
        jsz = self.ask(servers, "JSZ", options)
        healthz = self.ask(servers, "HEALTHZ", {"details": True}) if health else {}
        denied = {"JSZ": _denied(jsz), "HEALTHZ": _denied(healthz)}
        servers = tuple(
            replace(server, denied=tuple(name for name, keys in denied.items() if server.id in keys))
            for server in servers
        )
        try:
            return build_cluster(servers, _only_data(jsz), _only_data(healthz), known_names)
        except ValueError as error:
            raise NatsFailure("bad_reply", printable(str(error))) from error

    def _domain(self, servers: Sequence[Server], names: Collection[str]) -> str | None:
        """Return the domain of the servers with these names, or of the connected server; None if they do not have
        exactly one domain."""
        named = {server.domain for server in servers if server.jetstream and server.name in names}
        if named:
            return named.pop() if len(named) == 1 else None
        if len({server.domain for server in servers if server.jetstream}) < 2:
            return None
        connected, _cid = self._client.identity
        return next((server.domain for server in servers if server.id == connected and server.jetstream), None)

    def _connection_pages(self, servers: Sequence[Server], options: dict[str, Any]) -> Iterator[tuple[Server, Answer]]:
        size = self._page_size or _CONNECTIONS_PER_PAGE
        pending, offset = list(servers), 0
        totals: dict[str, int] = {}
        while pending:
            pages = self._ask_once(pending, "CONNZ", {**options, "offset": offset, "limit": size})
            full = _with_more(pending, pages, ("connections", "total"), offset, size, totals)
            for server in pending:
                yield server, pages.pop(server.id)
            pending, offset = full, offset + size

    def _account_pages(self, servers: Sequence[Server], options: dict[str, Any]) -> Iterator[tuple[Server, Answer]]:
        """Yield the JSZ replies with the details of all accounts.

        Up to 2.10, the page at offset 0 contains accounts in random order, and only the later pages are sorted by name.
        So the pages after the first start at 1, and accounts that may then be missing are requested by name."""
        size = self._page_size or _ACCOUNTS_PER_PAGE
        seen: dict[str, set[str]] = {server.id: set() for server in servers}
        pending, offset = list(servers), 0
        totals: dict[str, int] = {}
        while pending:
            pages = self._ask_once(pending, "JSZ", {**options, "offset": offset, "limit": size})
            full = _with_more(pending, pages, ("account_details", "accounts"), offset, size, totals)
            last = {server.id for server in pending} - {server.id for server in full}
            for server in pending:
                page = new_accounts(pages.pop(server.id), seen[server.id])
                yield server, page
                if server.id in last and not isinstance(page, NatsFailure):
                    yield from self._missed_accounts(server, page.get("accounts", 0), seen[server.id], options)
            pending, offset = full, offset + size if offset else 1

    def _missed_accounts(
        self, server: Server, count: int, seen: set[str], options: dict[str, Any]
    ) -> Iterator[tuple[Server, Answer]]:
        """Yield the accounts of a server that its pages omitted."""
        if not seen or len(seen) >= count:
            return
        known = self._ask_once([server], "JSZ", {"accounts": True, "limit": count})[server.id]
        if isinstance(known, NatsFailure):
            yield server, known
            return
        for account in known.get("account_details") or ():
            if account_id(account) not in seen:
                yield from self.pages([server], "JSZ", {**options, "account": account_id(account)})

    def _ask_once(self, servers: Sequence[Server], endpoint: str, options: dict[str, Any]) -> dict[str, Answer]:
        payload = json.dumps(options).encode() if options else b""
        idempotent = endpoint not in _ACTIONS
        calls = [
            Call(f"$SYS.REQ.SERVER.{server.id}.{endpoint}", payload, _COMPRESSED, idempotent) for server in servers
        ]
        answers: dict[str, Answer] = {}
        timeout = self._timeout()
        if timeout is not None and timeout <= 0:
            return {server.id: _too_late(call.subject, server) for server, call in zip(servers, calls)}
        asked = datetime.now(timezone.utc)
        for server, outcome in zip(servers, self._client.request_many(calls, timeout)):
            if isinstance(outcome, NatsFailure):
                answer: Answer = outcome
            else:
                answer = _data(outcome, self._decode, endpoint)
                self.arrived[server.id] = asked + timedelta(seconds=outcome.seconds)
            if isinstance(answer, NatsFailure):
                answer.server = server.name
            answers[server.id] = answer
        return answers

    def _timeout(self) -> float | None:
        """Return how many seconds a request may take: None for no limit, 0 or less if no time is left."""
        if self._deadline is None:
            return None
        return min(self._deadline - time.monotonic(), self._client.options.timeout)

    def _wrong_account(self, failure: NatsFailure) -> NatsFailure:
        """Return the failure of a user who queries the servers but is not in the system account, or is in it without
        the permission."""
        account = self.own_account()
        where = f" (this user is in account {account})" if account else ""
        return NatsFailure(
            "wrong_account" if failure.code != "permission" else "permission",
            f"no server answers system requests from this user{where}: {failure.description}. "
            "Use the credentials of a user of the system account.",
            subject=failure.subject,
            account=account,
        )


def read_servers(client: Client) -> tuple[Server, ...]:
    """Return the servers as a user of any account sees them, with name, cluster, version and tags, without statistics.

    Every account imports `$SYS.REQ.ACCOUNT.PING.STATZ` (events.go registerSystemImports), and every server replies with
    its identity, even a server without users of that account. Through a server that has reloaded its configuration
    since its start, only one reply arrives, usually its own (2.10.27 and 2.15.1). Raises NatsFailure, including for a
    missing permission.
    """
    servers: dict[str, Server] = {}

    def on_reply(reply: Reply) -> Progress:
        server = _parse_statsz(reply)
        servers[server.id] = server
        return None

    call = Call("$SYS.REQ.ACCOUNT.PING.STATZ", b'{"include_unused": true}', idempotent=True)
    client.gather(call, on_reply, on_repeat=servers.clear)
    return tuple(sorted(servers.values(), key=lambda server: (server.name, server.id)))


def _parse_statsz(reply: Reply) -> Server:
    """Return the server that sent a STATSZ reply; if its figures cannot be read, only its identity. Raises NatsFailure
    bad_reply."""
    document = _document(reply)
    try:
        info, statsz = document.get("server") or {}, document.get("statsz") or {}
        try:
            return parse_server(info, statsz, reply.seconds, datetime.now(timezone.utc))
        except UNREADABLE as error:
            known = {key: info[key] for key in ("name", "id", "cluster", "host", "ver", "domain") if key in info}
            return replace(parse_server(known, {}, reply.seconds), unreadable=f"STATSZ: {printable(str(error))[:200]}")
    except UNREADABLE as error:
        description = f"a server sent a reply that cannot be parsed: {printable(str(error))[:200]}"
        raise NatsFailure("bad_reply", description, subject=reply.subject) from error


def mask_values(message: str) -> str:
    """Return a server's message without the text after the first `old=`, because it may quote secrets."""
    return re.sub(r"old=.*", "old=(hidden)", message, flags=re.DOTALL)


def _stored_keys(reply: Reply, server: Server) -> Answer | tuple[str, ...]:
    document = _document(reply)
    keys = document.get("data")
    if not isinstance(keys, list):
        description = printable(str(document.get("error") or "the reply has no list of accounts"))[:200]
        return NatsFailure("server_error", description, subject=reply.subject, server=server.name)
    return tuple(sorted(key for key in map(str, keys) if is_account_key(key)))


def _too_late(subject: str, server: Server) -> NatsFailure:
    return NatsFailure(
        "deadline", "not queried: the time limit for all requests was reached", subject=subject, server=server.name
    )


def _denied(answers: Mapping[str, Answer]) -> set[str]:
    return {key for key, answer in answers.items() if isinstance(answer, NatsFailure) and answer.code == "permission"}


def _only_data(answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    return {key: answer for key, answer in answers.items() if not isinstance(answer, NatsFailure)}


def _with_more(
    servers: Sequence[Server],
    pages: dict[str, Answer],
    keys: tuple[str, str],
    offset: int,
    size: int,
    totals: dict[str, int],
) -> list[Server]:
    """Return the servers whose first page was full and announced more rows; an impossible page becomes a failure in
    `pages`. `keys`: the keys of the rows and of their number. `totals`: the numbers in the first pages."""
    found = []
    for server in servers:
        page = pages[server.id]
        if isinstance(page, NatsFailure):
            continue
        rows, total = page.get(keys[0]) or [], page.get(keys[1]) or 0
        if not isinstance(rows, list) or not isinstance(total, int) or max(total, len(rows)) > _MOST_ROWS:
            description = f"a page with {keys[1]} {str(total)[:20]}, which no server would send"
            pages[server.id] = NatsFailure("bad_reply", description, server=server.name)
        elif len(rows) >= size and offset + size <= totals.setdefault(server.id, total):
            found.append(server)
    return found


def _only_account(answer: Answer, account: str) -> Answer:
    if not isinstance(answer, NatsFailure) and "account_details" in answer:
        answer["account_details"] = [item for item in answer["account_details"] if account_id(item) == account]
    return answer


def new_accounts(page: Answer, seen: set[str]) -> Answer:
    """Return the page without the accounts whose identity is in `seen`, and add the accounts of the page to `seen`. Up
    to 2.10, the first page contains accounts in random order, which a later page may repeat."""
    if not isinstance(page, NatsFailure) and page.get("account_details"):
        page["account_details"] = [item for item in page["account_details"] if account_id(item) not in seen]
        seen.update(map(account_id, page["account_details"]))
    return page


def _joined(whole: Answer | None, page: Answer) -> Answer:
    """Return the reply with a page's rows added; if a page failed, the complete reply is a failure."""
    if whole is None or isinstance(whole, NatsFailure) or isinstance(page, NatsFailure):
        return page if whole is None or isinstance(page, NatsFailure) else whole
    for key in ("account_details", "connections"):
        if page.get(key):
            whole[key] = whole.get(key) or []
            whole[key] += page[key]
    if "num_connections" in whole:
        whole["num_connections"] = len(whole["connections"])
    return whole


def _document(reply: Reply, decode: Decode = _plain, endpoint: str = "") -> dict[str, Any]:
    try:
        document = decode(reply.body, endpoint)
    except (ValueError, RecursionError) as error:
        raise NatsFailure("bad_reply", f"the reply is not JSON: {error}", subject=reply.subject) from error
    if not isinstance(document, dict):
        raise NatsFailure("bad_reply", "the reply is not a JSON object", subject=reply.subject)
    return document


def _data(reply: Reply, decode: Decode = _plain, endpoint: str = "") -> Answer:
    """Return the data of a server's reply (events.go ServerAPIResponse), or the error it reports.

    The key of the data of STATSZ is `statsz`; IDZ replies have no envelope.
    """
    try:
        document = _document(reply, decode, endpoint)
    except NatsFailure as failure:
        return failure
    error = document.get("error")
    if error and "data" not in document:
        description = str(error.get("description", "") if isinstance(error, dict) else error)
        return NatsFailure("server_error", printable(" ".join(description.split())), subject=reply.subject)
    if "statsz" in document:
        return document["statsz"]
    if "server" in document:
        return document.get("data") or {}
    return document
