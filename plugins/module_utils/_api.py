# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's operational API as typed calls. PRIVATE to the collection.

`$SYS.REQ.*` needs a user of the system account. Servers are found by one scatter-gather and from then on asked by
their id: the server's own name filter matches substrings (n1 also hits n10) up to 2.11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Union

from ansible_collections.natsops.jetstream.plugins.module_utils._client import (
    Call,
    Client,
    NatsFailure,
    Progress,
    Reply,
)
from ansible_collections.natsops.jetstream.plugins.module_utils._model import (
    Cluster,
    Server,
    build_cluster,
    parse_server,
)

_COMPRESSED = {"Accept-Encoding": "gzip"}

#: Rows per page: connections for CONNZ, accounts for JSZ.
_CONNECTIONS_PER_PAGE = 1024
_ACCOUNTS_PER_PAGE = 256

#: SUBSZ lists subscriptions in no stable order, so that its pages cannot be put together: one page for all.
_ALL_SUBSCRIPTIONS = 10_000_000

Answer = Union[dict[str, Any], NatsFailure]


@dataclass(frozen=True)
class Discovery:
    """The servers that answered, and the names that were expected and did not."""

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
    """Questions to the servers over the system account. `page_size` overrides the rows per page."""

    def __init__(self, client: Client, page_size: int | None = None) -> None:
        self._client = client
        self._page_size = page_size

    def discover(self, expected: Collection[str] = ()) -> Discovery:
        """Return all servers of the (super)cluster with their statistics, waiting for the expected names.

        Ends when all expected servers answered and as many as the servers themselves know of (STATSZ
        `active_servers`), otherwise when it stays quiet or, with a name missing, at the connection's timeout.
        Raises NatsFailure wrong_account when nobody answers: the user is not in the system account.
        """
        servers: dict[str, Server] = {}
        awaited = set(expected)

        def on_reply(reply: Reply) -> Progress:
            document = _document(reply)
            server = parse_server(
                document.get("server") or {}, document.get("statsz") or {}, reply.seconds, datetime.now(timezone.utc)
            )
            servers[server.id] = server
            awaited.discard(server.name)
            if awaited:
                return False
            return True if len(servers) >= max(item.known_servers for item in servers.values()) else None

        call = Call("$SYS.REQ.SERVER.PING.STATSZ")
        try:
            self._client.gather(call, on_reply)
        except NatsFailure as failure:
            if failure.code in ("no_responders", "permission"):
                raise self._wrong_account(failure) from failure
            raise
        found = tuple(sorted(servers.values(), key=lambda server: (server.name, server.id)))
        return Discovery(found, tuple(sorted(awaited)))

    def ask(
        self, servers: Sequence[Server], endpoint: str, options: Mapping[str, Any] | None = None
    ) -> dict[str, Answer]:
        """Return each server's answer to one endpoint (VARZ, JSZ, ...) by server id: its data, or why there is none.

        Long lists are read page by page and returned whole; offset and limit are not for the caller.
        """
        request = dict(options or {})
        if endpoint == "JSZ":
            return self._ask_accounts(servers, request)
        if endpoint == "CONNZ":
            return self._ask_connections(servers, request)
        if endpoint == "SUBSZ":
            request["limit"] = _ALL_SUBSCRIPTIONS
        return self._ask_once(servers, endpoint, request)

    def ask_one(self, server: Server, endpoint: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return one server's answer to one endpoint. Raises NatsFailure when there is none."""
        answer = self.ask([server], endpoint, options)[server.id]
        if isinstance(answer, NatsFailure):
            raise answer
        return answer

    def account_statistics(self, servers: Sequence[Server], account: str | None = None) -> dict[str, Answer]:
        """Return each server's figures of its accounts (or of one) by server id: `account_statz` (monitor.go AccountStat).

        There is no subject for one server, so all are asked at once.
        """
        answers: dict[str, Answer] = {}
        awaited = {server.id for server in servers}

        def on_reply(reply: Reply) -> Progress:
            server_id = (_document(reply).get("server") or {}).get("id", "")
            answers[server_id] = _data(reply)
            awaited.discard(server_id)
            return not awaited

        body = {"include_unused": True, **({"accounts": [account]} if account else {})}
        call = Call("$SYS.REQ.ACCOUNT.PING.STATZ", json.dumps(body).encode(), _COMPRESSED)
        try:
            self._client.gather(call, on_reply)
        except NatsFailure as failure:
            if failure.code != "timeout":
                raise
        silent = {
            server.id: NatsFailure("timeout", "no reply", subject=call.subject, server=server.name)
            for server in servers
            if server.id in awaited
        }
        return {server.id: silent.get(server.id) or answers[server.id] for server in servers}

    def reload(self, server: Server) -> None:
        """Ask a server to read its configuration file again; returns when it says it did (2.10+).

        Raises NatsFailure reload_rejected with the server's reason. The reason of some options quotes their old
        and new values, which may be secrets (jetstream.key, gateway passwords): everything after `old=` is masked.
        """
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
        """Close a client's or leafnode's connection (2.10); return whether there still was one. Raises NatsFailure."""
        answer = self._ask_once([server], "KICK", {"cid": cid})[server.id]
        if not isinstance(answer, NatsFailure):
            return True
        if answer.code == "server_error" and "no such client" in answer.description:
            return False
        if answer.code == "no_responders":
            raise NatsFailure(
                "unsupported",
                f"{server.name} runs nats-server {server.version}, which cannot close a connection over NATS; that needs 2.10",
                server=server.name,
            )
        raise answer

    def own_account(self) -> str | None:
        """Return the account of the connected user (2.10+; of any account), None when the server does not tell."""
        try:
            answer = _data(self._client.request(Call("$SYS.REQ.USER.INFO"), timeout=1))
        except NatsFailure:
            return None
        return None if isinstance(answer, NatsFailure) else answer.get("account")

    def read_cluster(
        self,
        awaited: Collection[str] = (),
        known_names: Collection[str] = (),
        assets: bool = True,
        account: str | None = None,
        consumers: bool = True,
        health: bool = True,
    ) -> Cluster:
        """Return the state of the (super)cluster; `assets` adds every stream (of `account`, if given), with `consumers` their
        consumers, `health` what each server says of its own.

        `awaited`: names to wait for until the timeout; `known_names`: names of servers that may be down.
        """
        servers = self.discover(awaited).servers
        options: dict[str, Any] = {"config": True}
        if assets:
            options.update({"accounts": True, "streams": True, "consumer": consumers, "raft": True})
            if account is not None:
                options["account"] = account
        jsz = self.ask(servers, "JSZ", options)
        healthz = self.ask(servers, "HEALTHZ", {"details": True}) if health else {}
        return build_cluster(servers, _only_data(jsz), _only_data(healthz), known_names)

    def _ask_connections(self, servers: Sequence[Server], options: dict[str, Any]) -> dict[str, Answer]:
        size = self._page_size or _CONNECTIONS_PER_PAGE
        answers: dict[str, Answer] = {}
        pending, offset = list(servers), 0
        while pending:
            pages = self._ask_once(pending, "CONNZ", {**options, "offset": offset, "limit": size})
            for key, page in pages.items():
                whole = answers.get(key)
                if isinstance(page, NatsFailure) or not isinstance(whole, dict):
                    answers[key] = page
                else:
                    whole["connections"] += page["connections"]
                    whole["num_connections"] = len(whole["connections"])
            pending = [server for server in pending if _rows(pages[server.id], "connections") >= size]
            offset += size
        return answers

    def _ask_accounts(self, servers: Sequence[Server], options: dict[str, Any]) -> dict[str, Answer]:
        """Return the JSZ answers with the details of all accounts, or of exactly the one that is asked for.

        Up to 2.10 the page at offset 0 holds accounts in random order, and only the later pages are in the order of
        their names. So the pages after the first start at 1, and what may then be missing is asked for by its name.
        For an unknown account the server returns all of them.
        """
        if options.get("account"):
            return {
                key: _only_account(answer, options["account"])
                for key, answer in self._ask_once(servers, "JSZ", options).items()
            }
        size = self._page_size or _ACCOUNTS_PER_PAGE
        answers: dict[str, Answer] = {}
        pending, offset = list(servers), 0
        while pending:
            pages = self._ask_once(pending, "JSZ", {**options, "offset": offset, "limit": size})
            for key, page in pages.items():
                answers[key] = _with_accounts(answers.get(key), page)
            pending = [server for server in pending if _rows(pages[server.id], "account_details") >= size]
            offset = offset + size if offset else 1
        for server in servers:
            answers[server.id] = self._fill_accounts(server, answers[server.id], options)
        return answers

    def _fill_accounts(self, server: Server, answer: Answer, options: dict[str, Any]) -> Answer:
        """Return the answer with the accounts that its pages left out."""
        if isinstance(answer, NatsFailure) or not answer.get("account_details"):
            return answer
        names = {account["name"] for account in answer["account_details"]}
        if len(names) >= answer.get("accounts", 0):
            return answer
        listing = {"accounts": True, "limit": answer["accounts"]}
        known = self._ask_once([server], "JSZ", listing)[server.id]
        if isinstance(known, NatsFailure):
            return known
        for account in known.get("account_details") or ():
            if account["name"] not in names:
                one = self._ask_accounts([server], {**options, "account": account["name"]})[server.id]
                answer = _with_accounts(answer, one)
        return answer

    def _ask_once(self, servers: Sequence[Server], endpoint: str, options: dict[str, Any]) -> dict[str, Answer]:
        payload = json.dumps(options).encode() if options else b""
        calls = [Call(f"$SYS.REQ.SERVER.{server.id}.{endpoint}", payload, _COMPRESSED) for server in servers]
        answers: dict[str, Answer] = {}
        for server, outcome in zip(servers, self._client.request_many(calls)):
            answer = outcome if isinstance(outcome, NatsFailure) else _data(outcome)
            if isinstance(answer, NatsFailure):
                answer.server = server.name
            answers[server.id] = answer
        return answers

    def _wrong_account(self, failure: NatsFailure) -> NatsFailure:
        """Return the failure of a user who asks the servers without being in the system account."""
        account = self.own_account()
        where = f" (this user is in account {account})" if account else ""
        return NatsFailure(
            "wrong_account" if failure.code != "permission" else "permission",
            f"no server answers system requests from this user{where}: {failure.description}. "
            "Use the credentials of a user of the system account.",
            subject=failure.subject,
            account=account,
        )


def servers_of(client: Client) -> tuple[Server, ...]:
    """Return the servers as any account's user may see them, with name, cluster, version and tags, without statistics.

    Each account imports `$SYS.REQ.ACCOUNT.PING.STATZ` for itself (events.go registerSystemImports), and every server answers
    with who it is, also one without users of that account. Over a server that has reloaded its configuration since its start
    only one answer arrives, mostly its own (2.10.27 and 2.15.1). Raises NatsFailure, also when the user may not ask this.
    """
    servers: dict[str, Server] = {}

    def on_reply(reply: Reply) -> Progress:
        server = parse_server(_document(reply).get("server") or {}, {}, reply.seconds)
        servers[server.id] = server
        return None

    client.gather(Call("$SYS.REQ.ACCOUNT.PING.STATZ", b'{"include_unused": true}'), on_reply)
    return tuple(sorted(servers.values(), key=lambda server: (server.name, server.id)))


def mask_values(message: str) -> str:
    """Return a server's message without what follows the first `old=`, where it may quote secrets."""
    return re.sub(r"old=.*", "old=(hidden)", message, flags=re.DOTALL)


def _only_data(answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    return {key: answer for key, answer in answers.items() if not isinstance(answer, NatsFailure)}


def _rows(page: Answer, key: str) -> int:
    return 0 if isinstance(page, NatsFailure) else len(page.get(key) or ())


def _only_account(answer: Answer, account: str) -> Answer:
    if not isinstance(answer, NatsFailure) and "account_details" in answer:
        answer["account_details"] = [item for item in answer["account_details"] if item["name"] == account]
    return answer


def _with_accounts(whole: Answer | None, page: Answer) -> Answer:
    """Return the answer with a page's accounts added once each; a failed page fails the whole answer."""
    if whole is None or isinstance(whole, NatsFailure) or isinstance(page, NatsFailure):
        return page if whole is None or isinstance(page, NatsFailure) else whole
    details = whole.get("account_details") or []
    names = {account["name"] for account in details}
    details += [account for account in page.get("account_details") or () if account["name"] not in names]
    whole["account_details"] = details
    return whole


def _document(reply: Reply) -> dict[str, Any]:
    try:
        document = json.loads(reply.body)
    except ValueError as error:
        raise NatsFailure("bad_reply", f"the reply is not JSON: {error}", subject=reply.subject) from error
    if not isinstance(document, dict):
        raise NatsFailure("bad_reply", "the reply is not a JSON object", subject=reply.subject)
    return document


def _data(reply: Reply) -> Answer:
    """Return the data of a server's reply (events.go ServerAPIResponse), or the error it reports.

    STATSZ calls its data `statsz`, IDZ replies without an envelope.
    """
    try:
        document = _document(reply)
    except NatsFailure as failure:
        return failure
    error = document.get("error")
    if error and "data" not in document:
        description = error.get("description", "") if isinstance(error, dict) else str(error)
        return NatsFailure("server_error", description, subject=reply.subject)
    if "statsz" in document:
        return document["statsz"]
    if "server" in document:
        return document.get("data") or {}
    return document
