# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three servers in operator mode, whose accounts tests change, and users who are logged in to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from nats.aio.client import Client as NatsClient
from support.credentials import Key, make_jwt, make_operator, new_user, write_creds
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

NAMES = ["n1", "n2", "n3"]


class Site:
    """Three servers in operator mode."""

    def __init__(
        self, version: str, directory: Path, resolver: str, resolver_options: str = "", strict: bool = False
    ) -> None:
        self.operator = make_operator(directory, "APP", "OTHER", strict=strict)
        self.servers = NatsProcesses(
            version, directory, NAMES, operator=self.operator, resolver=resolver, resolver_options=resolver_options
        )
        self.servers.start()

    async def _push(self, token: str) -> list[dict[str, Any]]:
        running = list(self.servers.processes)
        connection = await nats.connect(self.servers.url(running[0]), user_credentials=str(self.operator.creds["SYS"]))
        try:
            inbox = connection.new_inbox()
            subscription = await connection.subscribe(inbox)
            await connection.publish("$SYS.REQ.CLAIMS.UPDATE", token.encode(), reply=inbox)
            return [json.loads((await subscription.next_msg(5)).data) for _name in running]
        finally:
            await connection.close()

    def push(self, token: str) -> None:
        """Send an account's JWT to the running servers, and check that all of them confirm the update."""
        replies = asyncio.run(self._push(token))
        assert {reply["data"]["code"] for reply in replies} == {200}, replies

    def use(self, account: str) -> None:
        """Make a user of the account log in to each server, which makes the server load the account."""

        async def log_in(name: str) -> None:
            creds = str(self.operator.creds[account])
            await (await nats.connect(self.servers.url(name), user_credentials=creds)).close()

        for name in self.servers.processes:
            asyncio.run(log_in(name))

    def account(self, name: str, signer: Key | None = None, **nats: Any) -> str:
        """Return a JWT of the account."""
        free = {
            **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
            "wildcards": True,
        }
        claims = {"type": "account", "limits": free, **nats}
        return make_jwt(signer or self.operator.key, self.operator.keys[name], name, claims)

    def read(self, run_module: Runner, **options: Any) -> dict[str, Any]:
        connection = {**self.servers.sys_connection(), "timeout": 2}
        found = run_module("nats_account_claims_info", connection, **{"expected_servers": NAMES, **options})
        assert not found.get("failed"), found
        assert not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", json.dumps(found))
        return found

    def form(self, run_module: Runner) -> None:
        """Wait until the cluster is healthy, all servers have answered each request, and full resolvers have returned all
        copies."""
        form(self.servers, run_module)
        copies = {len(NAMES)} if self.servers.resolver == "full" else {0}

        def is_formed(found: dict[str, Any]) -> bool:
            stored = {copy["stored"] for row in found["accounts"] for copy in row["copies"]}
            return not found["missing"] and not found["incomplete"] and stored <= copies

        formed = wait_until(lambda: self.read(run_module), is_formed, 30)
        assert formed.done, formed.value

    def row(self, run_module: Runner, account: str) -> dict[str, Any]:
        (found,) = self.read(run_module, account=account)["accounts"]
        return found


class Users:
    """Users of the account APP who are logged in and do not reconnect."""

    def __init__(self, site: Site, directory: Path) -> None:
        self._site = site
        self._directory = directory
        self._clients: list[NatsClient] = []

    async def log_in(self, signer: Key, **nats_claims: Any) -> str:
        """Log in to a server as a user whose JWT was signed with this key; return the user's public key."""
        user = new_user()
        claims = {"type": "user", "issuer_account": self._site.operator.keys["APP"], **nats_claims}
        path = self._directory / f"{user.public}.creds"
        write_creds(path, make_jwt(signer, user.public, "user", claims), user)
        await self.use(str(path))
        return user.public

    async def use(self, creds: str) -> None:
        async def ignore(_error: Exception) -> None:
            """The server closes the connection."""

        url = self._site.servers.url(NAMES[len(self._clients) % len(NAMES)])
        client = await nats.connect(url, user_credentials=creds, allow_reconnect=False, error_cb=ignore)
        self._clients.append(client)

    async def left(self) -> int:
        """Return the number of users who are still logged in, after each of them has sent a ping."""
        for client in self._clients:
            if not client.is_closed:
                with contextlib.suppress(nats.errors.Error):
                    await client.flush(2)
        self._clients = [client for client in self._clients if not client.is_closed]
        return len(self._clients)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


_ROLE: dict[str, Any] = {"app": {"allow": {"pub": ["orders.{{tag(team)}}"], "sub": ["_INBOX.>"]}}}


class Issuer:
    """Issues credentials to users of the account SHOP, which has the role app. `keys`: the directory with the seed of the
    role's key."""

    def __init__(self, site: Site, run_module: Runner, directory: Path) -> None:
        self.site = site
        self.keys = directory / "keys"
        self._runner = run_module

    def change(self, **fields: Any) -> dict[str, Any]:
        """Give the account the role and these fields."""
        found = self.run_module(
            "nats_account_claims",
            account="SHOP",
            document={"accounts": {"SHOP": {"signing_keys": _ROLE, **fields}}},
            signing_seed=self.site.operator.signing_key.seed,
            sync_interval=0,
        )
        assert not found.get("failed"), found
        return found

    def run(self, **options: Any) -> dict[str, Any]:
        given = {"account": "SHOP", "name": "till", "role": "app", "tags": ["team:berlin"], **options}
        return self.run_module("nats_user_credentials", **given)

    def ok(self, **options: Any) -> dict[str, Any]:
        found = self.run(**options)
        assert not found.get("failed"), found
        return found

    def refused(self, code: str, **options: Any) -> str:
        found = self.run(**options)
        assert found.get("failed") and found["failure"]["code"] == code, found
        return str(found["msg"])

    def denied(self, creds: str, server: str, *subjects: str) -> list[str]:
        """Log in and publish to these subjects; return those that the server rejected."""

        async def publish() -> list[str]:
            errors: list[str] = []

            async def note(error: Exception) -> None:
                errors.append(str(error))

            url = self.site.servers.url(server)
            client = await nats.connect(url, user_credentials=creds, error_cb=note, allow_reconnect=False)
            try:
                for subject in subjects:
                    await client.publish(subject)
                    # nats-py may write the first PING before the message (client.py _send_ping, _flusher).
                    await client.flush(5)
                    await client.flush(5)
            finally:
                await client.close()
            return [subject for subject in subjects if any(f'"{subject}"' in error.lower() for error in errors)]

        return asyncio.run(publish())

    def run_module(self, module: str, **options: Any) -> dict[str, Any]:
        """Run a module, and check that only its `credentials` contain secrets."""
        connection = {**self.site.servers.sys_connection(), "timeout": 2}
        given = {"expected_servers": NAMES, "key_directory": str(self.keys), **options}
        found = self._runner(module, connection, **given)
        public = {key: value for key, value in found.items() if key != "credentials"}
        assert not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", json.dumps(public)), public
        return found


@contextlib.contextmanager
def issuing(version: str, directory: Path, run_module: Runner) -> Iterator[Issuer]:
    """Start servers whose account SHOP has the role app, and kill them at the end."""
    site = Site(version, directory, "full", 'interval: "1s"')
    try:
        site.form(run_module)
        found = Issuer(site, run_module, directory)
        found.change()
        yield found
    finally:
        site.servers.kill()
