# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deploys the configurations of docs/listeners.md with the role, and connects WebSocket clients, MQTT clients and
clients behind proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import re
import ssl
import stat
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import nats
import nats.errors
import nkeys
import paho.mqtt.client as mqtt
import pytest
import yaml
from nats.js.api import StreamConfig
from paho.mqtt.enums import CallbackAPIVersion
from support.credentials import Certificates, Key, make_certificates, make_jwt, new_key, new_user
from support.documents import Document
from support.module_runs import Runner
from support.nats_processes import ONE_VERSION, VERSIONS, free_ports
from support.role_cluster import APP_PASSWORD, APP_USER, RoleCluster

pytestmark = pytest.mark.playbook

GROUPS = {"hub": ["h1", "h2", "h3"], "branch1": ["b1"], "branch2": ["b2"], "edge": ["e1"]}
HUB = GROUPS["hub"]
#: The ports that the page uses; on this machine, each host of the hub needs separate ports.
WEBSOCKET, MQTT, LEAFNODES = "8443", "8883", "7422"
MESSAGE = b"confidential" * 20
#: Settings on the page that nats-server 2.10 lacks, with the first version that has each of them.
NEWER = {"proxy_protocol": "2.12.2", "proxies": "2.12.0", "proxy_required": "2.12.0", "proxy": "2.12.1"}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ListenerSite(RoleCluster):
    """The inventory of the page. The blocks of the page are merged as a reader would merge them, with this machine's
    addresses."""

    def __init__(self, root: Path, proxy_port: int, version: str) -> None:
        super().__init__(root, [name for names in GROUPS.values() for name in names], version)
        self.groups = GROUPS
        self.proxy_port = proxy_port
        self.trusted, self.issuer = new_user(), new_key(nkeys.PREFIX_BYTE_ACCOUNT)
        self.listener_ports = {
            name: dict(zip((WEBSOCKET, MQTT, LEAFNODES), free_ports(3), strict=True)) for name in HUB
        }
        del self.variables["nats_server_cluster_name"]
        self.variables.update(
            nats_server_tls_source="ca",
            nats_server_tls_ca_dir=str(root / "ca"),
            nats_server_tls_for_clients=False,
        )
        for name, own in self.hosts.items():
            own["nats_server_accounts"] = copy.deepcopy(self.variables["nats_server_accounts"])
            # If a service decides on logins, static users have no effect.
            if name in GROUPS["edge"]:
                del own["nats_server_accounts"]["APP"]["users"]
        document = Document("docs/listeners.md")
        for secret in set(re.findall(r"vault_\w+", document.text)):
            self.variables[secret] = f"secret of {secret}"
        # The password is part of a URL.
        self.variables["vault_branch2"] = "branch2-pass"
        self.public = self.new_websocket_certificate("first")
        self.rotation: dict[str, Any] = {}
        for block in document.of("yaml"):
            if "vault_encryption_key_2" in block.text:
                self.rotation = yaml.safe_load(block.text)["edge"]["vars"]
                continue
            for group in yaml.safe_load(block.text):
                for host in GROUPS[group]:
                    self.hosts[host] = merged(self.hosts[host], self.adapted(block.text, host)[group]["vars"])

    def adapted(self, text: str, host: str) -> dict[str, Any]:
        for port, number in self.listener_ports.get(host, self.listener_ports["h1"]).items():
            text = text.replace(port, str(number))
        for example, own in {
            "hub1.example.com": "127.0.0.1",
            "http://proxy.example.com:3128": f"http://127.0.0.1:{self.proxy_port}",
            "/etc/ssl/certs/ca-certificates.crt": str(self.public.ca),
            "UDEXAMPLE": self.trusted.public,
            "AAEXAMPLE": self.issuer.public,
        }.items():
            text = text.replace(example, own)
        found: dict[str, Any] = yaml.safe_load(text)
        return found

    def new_websocket_certificate(self, name: str) -> Certificates:
        """Put a certificate from a new CA into the vault."""
        (self.root / name).mkdir()
        files = make_certificates(self.root / name)
        self.variables.update(vault_websocket_crt=files.cert.read_text(), vault_websocket_key=files.key.read_text())
        return files

    def websocket(self, host: str) -> str:
        return f"wss://127.0.0.1:{self.listener_ports[host][WEBSOCKET]}"

    def store(self, host: str) -> bytes:
        """Return everything that the disk contains about streams."""
        folder = Path(self.hosts[host]["nats_server_jetstream_store_dir"])
        return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())

    def connections(self, host: str) -> list[dict[str, Any]]:
        """Return the connections that the server of a host reports."""
        with urllib.request.urlopen(f"http://{self.hosts[host]['nats_server_http']}/connz?auth=1", timeout=5) as reply:
            return list(json.load(reply)["connections"])


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return two mappings merged into one; lists are concatenated."""
    result = copy.deepcopy(base)
    for name, value in more.items():
        before = result.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            result[name] = merged(before, value)
        else:
            result[name] = before + value if isinstance(before, list) else value
    return result


def without(value: Any, names: Collection[str]) -> Any:
    """Return the data without keys of these names, at any depth."""
    if isinstance(value, dict):
        return {key: without(one, names) for key, one in value.items() if key not in names}
    return [without(one, names) for one in value] if isinstance(value, list) else value


def trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


# --- Proxies ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(handler: Handler, port: int = 0) -> Iterator[int]:
    """Serve connections in a thread, and yield the port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(handler, "127.0.0.1", port)

    async def end() -> None:
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def joined(one: Streams, other: Streams) -> None:
    """Forward data in both directions until one side closes the connection."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    directions = [asyncio.create_task(pump(one[0], other[1])), asyncio.create_task(pump(other[0], one[1]))]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        pass
    finally:
        for task in directions:
            task.cancel()
        for _reader, writer in (one, other):
            writer.close()


class HttpProxy:
    """An HTTP proxy for CONNECT that requires a password."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        """The target and the login of each request."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split()[1]
        login = re.search(r"(?i)proxy-authorization: basic (\S+)", head)
        self.requests.append((target, base64.b64decode(login[1]).decode() if login else ""))
        host, _colon, port = target.rpartition(":")
        try:
            server = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await joined((reader, writer), server)


def load_balancer(port: int) -> Handler:
    """Return a proxy to a client port that forwards a client's address with the PROXY protocol."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", port)
        server[1].write(f"PROXY TCP4 192.0.2.7 127.0.0.1 40000 {port}\r\n".encode())
        await joined((reader, writer), server)

    return handle


def signing_proxy(port: int, key: Key) -> Handler:
    """Return a proxy to a client port that signs each login."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", port)
        greeting = await server[0].readline()
        writer.write(greeting)
        login = json.loads((await reader.readline()).removeprefix(b"CONNECT "))
        signature = key.sign(json.loads(greeting.removeprefix(b"INFO "))["nonce"].encode())
        login["proxy_sig"] = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
        server[1].write(b"CONNECT " + json.dumps(login).encode() + b"\r\n")
        await joined((reader, writer), server)

    return handle


# --- The site -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def http_proxy() -> Iterator[tuple[HttpProxy, int]]:
    proxy = HttpProxy()
    with serving(proxy.handle) as port:
        yield proxy, port


# In each `make test`, test_config_real.py checks each setting with servers of both versions, and test_validation.py
# refuses the settings that the older version lacks.
@pytest.fixture(scope="session", params=[pytest.param(VERSIONS[0], marks=pytest.mark.chaos), VERSIONS[-1]])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def site(
    version: str, tmp_path_factory: pytest.TempPathFactory, http_proxy: tuple[HttpProxy, int]
) -> Iterator[ListenerSite]:
    made = ListenerSite(tmp_path_factory.mktemp("listeners"), http_proxy[1], version)
    if version == VERSIONS[0]:
        refused = made.playbook("deploy", "--check", fails=True).output
        for name, first in NEWER.items():
            assert re.search(rf"\b{name}:? needs nats-server {first} or newer, the version is {version}", refused), (
                refused
            )
        made.hosts = without(made.hosts, NEWER)
    with made.deployed():
        yield made


@contextlib.asynccontextmanager
async def client(url: str, user: str = APP_USER, password: str = APP_PASSWORD, **options: Any) -> Any:
    connection = await nats.connect(url, user=user, password=password, allow_reconnect=False, **options)
    try:
        yield connection
    finally:
        await connection.close()


def test_extra_files_are_readable_by_the_service_only(site: ListenerSite) -> None:
    for host in HUB:
        folder = Path(site.hosts[host]["nats_server_config_dir"])
        assert (folder / "websocket.key").read_text() == site.variables["vault_websocket_key"]
        assert stat.S_IMODE((folder / "websocket.key").stat().st_mode) == 0o640


def test_a_websocket_client_publishes_to_a_stream(site: ListenerSite) -> None:
    async def run() -> None:
        async with client(site.websocket("h1"), tls=trusting(site.public.ca)) as connection:
            js = connection.jetstream(domain="hub")
            await js.add_stream(StreamConfig(name="PAGES", subjects=["pages.>"], num_replicas=3))
            assert (await js.publish("pages.one", b"x")).seq == 1
        async with aiohttp.ClientSession() as browser:
            page: dict[str, Any] = {"ssl": trusting(site.public.ca), "origin": "https://www.example.com"}
            async with browser.ws_connect(site.websocket("h1"), **page) as connection:
                assert (await connection.receive()).data.startswith(b"INFO")
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await browser.ws_connect(site.websocket("h1"), **{**page, "origin": "https://evil.example.com"})

    asyncio.run(run())


def mqtt_client(
    site: ListenerSite, host: str, name: str, on_message: Callable[[bytes], None] = lambda payload: None
) -> mqtt.Client:
    """Return a connected client whose session the servers keep."""
    found = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    found.username_pw_set("sensor", site.variables["vault_sensor"])
    found.tls_set_context(trusting(site.root / "ca" / "ca.crt"))
    connected = threading.Event()
    found.on_connect = lambda *_arguments: connected.set()
    found.on_message = lambda _client, _data, message: on_message(bytes(message.payload))
    found.connect("127.0.0.1", site.listener_ports[host][MQTT])
    found.loop_start()
    assert connected.wait(30) and found.is_connected()
    return found


def end(found: mqtt.Client) -> None:
    found.disconnect()
    found.loop_stop()


def test_mqtt_sessions_survive_a_roll(site: ListenerSite, run_module: Runner) -> None:
    display = mqtt_client(site, "h1", "display")
    subscribed = threading.Event()
    display.on_subscribe = lambda *_arguments: subscribed.set()
    display.subscribe("plant/temperature", qos=1)
    assert subscribed.wait(30)
    end(display)

    async def publish_and_read() -> bytes:
        async with client(site.url("h2"), "plant", site.variables["vault_plant"]) as connection:
            subscription = await connection.subscribe("plant.temperature")
            await connection.flush()
            sensor = mqtt_client(site, "h3", "sensor")
            sensor.publish("plant/temperature", b"21", qos=1).wait_for_publish(30)
            end(sensor)
            return bytes((await subscription.next_msg(10)).data)

    assert asyncio.run(publish_and_read()) == b"21"

    before = site.pids()
    output = site.playbook("restart", nats_server_hosts="hub").output
    assert "batch 3 of 3" in output
    assert {name for name, pid in site.pids().items() if pid != before[name]} == set(HUB)
    login = {**site.system(), "servers": [site.url(name) for name in HUB]}
    info = run_module("nats_cluster_info", login, expected_servers=HUB)
    assert info["problems"] == []
    replicas = {stream["name"]: len(stream["replicas"]) for stream in info["streams"] if stream["account"] == "IOT"}
    assert {"$MQTT_sess", "$MQTT_msgs"} <= set(replicas) and set(replicas.values()) == {3}, replicas

    received: list[bytes] = []
    arrived = threading.Event()

    def take(payload: bytes) -> None:
        received.append(payload)
        arrived.set()

    display = mqtt_client(site, "h2", "display", take)
    assert arrived.wait(30)
    end(display)
    assert received == [b"21"]


async def eventually(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat an attempt until it succeeds, because a leafnode connects only after its server has started."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        try:
            return await attempt()
        except nats.errors.Error:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.2)


def test_branches_reach_the_hub(site: ListenerSite, http_proxy: tuple[HttpProxy, int], version: str) -> None:
    async def run() -> None:
        async with client(site.url("h3")) as connection:
            await connection.jetstream(domain="hub").add_stream(
                StreamConfig(name="BRANCHES", subjects=["branches.>"], num_replicas=3)
            )
        for host in ("b1", "b2"):
            async with client(site.url(host)) as connection:
                js = connection.jetstream(domain="hub", timeout=2)
                await eventually(partial(js.publish, f"branches.{host}", b"x"))
        async with client(site.url("b1")) as connection:
            await connection.jetstream(domain="branch1").add_stream(StreamConfig(name="LOCAL", subjects=["local.>"]))
        async with client(site.url("h3")) as connection:
            info = await connection.jetstream(domain="hub").stream_info("BRANCHES", subjects_filter=">")
            assert set(info.state.subjects or {}) == {"branches.b1", "branches.b2"}

    asyncio.run(run())
    hub = f"127.0.0.1:{site.listener_ports['h1'][WEBSOCKET]}"
    by_proxy = (hub, f"nats:{site.variables['vault_proxy']}") in http_proxy[0].requests
    assert by_proxy == (version != VERSIONS[0])


@ONE_VERSION
def test_clients_behind_proxies(site: ListenerSite) -> None:
    port = site.hosts["h1"]["nats_server_port"]
    web = ("web", site.variables["vault_web"])

    async def run(balanced: int, signed: int) -> None:
        async with client(f"nats://127.0.0.1:{balanced}"):
            assert "192.0.2.7" in {found["ip"] for found in site.connections("h1")}
        async with client(f"nats://127.0.0.1:{signed}", *web):
            (found,) = [one for one in site.connections("h1") if one.get("authorized_user") == "web"]
            assert found["proxy"]["key"] == site.trusted.public
        with pytest.raises(nats.errors.Error):
            async with client(site.url("h1"), *web):
                pass

    with serving(load_balancer(port)) as balanced, serving(signing_proxy(port, site.trusted)) as signed:
        asyncio.run(run(balanced, signed))


@contextlib.asynccontextmanager
async def callout_service(site: ListenerSite) -> Any:
    """A service that authorizes the user visitor for the account APP."""

    async def answer(message: Any) -> None:
        payload = message.data.decode().split(".")[1]
        request = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["nats"]
        key, login = request["user_nkey"], request["connect_opts"]
        claims: dict[str, Any] = {"type": "authorization_response"}
        if (login.get("user"), login.get("pass")) == ("visitor", "welcome"):
            user = {"type": "user", "subs": -1, "data": -1, "payload": -1}
            claims["jwt"] = make_jwt(site.issuer, key, "visitor", user, "APP")
        else:
            claims["error"] = "unknown"
        await message.respond(make_jwt(site.issuer, key, "", claims, request["server_id"]["id"]).encode())

    async with client(site.url("e1"), "auth", site.variables["vault_auth"]) as connection:
        await connection.subscribe("$SYS.REQ.USER.AUTH", cb=answer)
        await connection.flush()
        yield


def test_a_service_decides_on_logins(site: ListenerSite, run_module: Runner) -> None:
    async def run() -> None:
        async with callout_service(site):
            async with client(site.url("e1"), "visitor", "welcome") as visitor:
                await visitor.flush()
            with pytest.raises(nats.errors.Error):
                async with client(site.url("e1"), "visitor", "wrong"):
                    pass

    asyncio.run(run())
    # The playbooks log in without the service.
    login = {**site.system(), "servers": [site.url("e1")]}
    assert [server["name"] for server in run_module("nats_server_info", login)["servers"]] == ["e1"]


def test_new_keys_and_certificates(site: ListenerSite) -> None:
    """A new encryption key requires a restart of a server, a new certificate of the listener only a reload."""
    edge = site.hosts["e1"]

    async def stored(*publish: bytes) -> bytes:
        async with callout_service(site), client(site.url("e1"), "visitor", "welcome") as visitor:
            js = visitor.jetstream()
            for message in publish:
                await js.add_stream(StreamConfig(name="SECRETS", subjects=["secrets.>"]))
                await js.publish("secrets.one", message)
            return bytes((await js.get_last_msg("SECRETS", "secrets.one")).data or b"")

    assert asyncio.run(stored(MESSAGE)) == MESSAGE
    assert MESSAGE not in site.store("e1")

    pids = site.pids()
    edge.update(site.rotation)
    public = site.new_websocket_certificate("second")
    output = site.playbook("deploy", "--diff").output
    assert "PRIVATE KEY" not in output and "secret of" not in output
    assert {name for name, pid in site.pids().items() if pid != pids[name]} == {"e1"}
    assert asyncio.run(stored()) == MESSAGE

    async def connect() -> None:
        async with client(site.websocket("h3"), tls=trusting(public.ca)) as connection:
            await connection.flush()

    asyncio.run(connect())

    del edge["nats_server_jetstream_prev_encryption_key"]
    site.playbook("deploy", nats_server_hosts="edge")
    assert asyncio.run(stored()) == MESSAGE
    site.deploy_changes_nothing()
