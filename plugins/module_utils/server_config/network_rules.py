# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about listeners, routes, leafnodes and the limits of clients. Pure: no I/O."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from ..nats.account_names import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from ..problem import ConfigProblem
from ..units import counted, human_bytes
from ..versions import supports
from .account_admins import has_jetstream
from .case import LISTENERS, Case, blocks, bytes_or, error, listed_users, seconds_or, warning
from .listeners import bound, is_loopback
from .passwords import is_hash

DEFAULT_MAX_PAYLOAD = 1024 * 1024
DEFAULT_MAX_PENDING = 64 * 1024 * 1024
LARGE_PAYLOAD = 8 * 1024 * 1024
DEFAULT_LAME_DUCK, DEFAULT_GRACE, MIN_LAME_DUCK = 120.0, 10.0, 30.0
POOL_SIZES_MAY_DIFFER = ("2.11.2",)
MAX_RTT_THRESHOLDS = 4
COMPRESSION_MODES = (
    {"on", "enabled", "true", "off", "disabled", "false", "not supported", "not_supported", "accept"}
    | {"auto", "fast", "better", "best"}
    | {"s2_auto", "s2_fast", "s2_better", "s2_best"}
)
#: Headers of the WebSocket handshake (validateWebsocketOptions).
RESERVED_HEADERS = {"host", "content-length", "connection", "upgrade", "nats-no-masking"}


def lame_duck(case: Case) -> Iterator[ConfigProblem]:
    """The lame duck duration has a minimum, and must be longer than the grace period."""
    duration = seconds_or(case.config.get("lame_duck_duration"), DEFAULT_LAME_DUCK)
    grace = seconds_or(case.config.get("lame_duck_grace_period"), DEFAULT_GRACE)
    if duration < MIN_LAME_DUCK:
        yield error(
            "lame_duck_duration", f"{duration:g}s is less than the {MIN_LAME_DUCK:g}s that nats-server requires"
        )
    if grace >= duration:
        yield error("lame_duck_grace_period", f"{grace:g}s must be less than lame_duck_duration, {duration:g}s")


def payload(case: Case) -> Iterator[ConfigProblem]:
    """A message must fit into max_pending."""
    size = bytes_or(case.config.get("max_payload"), DEFAULT_MAX_PAYLOAD)
    pending = bytes_or(case.config.get("max_pending"), DEFAULT_MAX_PENDING)
    if size > pending:
        yield error("max_payload", f"{human_bytes(size)} exceed max_pending, {human_bytes(pending)}")
    elif size > LARGE_PAYLOAD:
        yield warning(
            "max_payload", "more than 8MB is discouraged by nats-server: large messages stall their connection"
        )


def monitoring(case: Case) -> Iterator[ConfigProblem]:
    """Monitoring uses either HTTP or HTTPS, not both; HTTPS uses the certificate of the client listener."""
    plain = case.config.get("http") or case.config.get("http_port")
    encrypted = case.config.get("https") or case.config.get("https_port")
    if plain and encrypted:
        yield error("https", "http and https cannot both be set")
    if encrypted and not case.config.get("tls"):
        yield error("https", "needs the top-level tls block, whose certificate it uses")


def certificates(case: Case) -> Iterator[ConfigProblem]:
    """A listener with TLS must present a certificate. nats-server accepts a block without one, but then no client can
    connect."""
    blocks = [("tls", case.config.get("tls"))]
    blocks += [(f"{name}.tls", (case.block(name) or {}).get("tls")) for name in LISTENERS]
    for option, block in blocks:
        if not isinstance(block, dict) or not block:
            continue
        if option == "leafnodes.tls" and not leafnodes_listen(case):
            continue
        if not (block.get("cert_file") and block.get("key_file")) and not block.get("certs"):
            yield error(
                option,
                "has no certificate (cert_file and key_file, or certs), so no connection could be made. Add one, or "
                "set "
                "nats_server_tls_source",
            )


def certificates_of_clients(case: Case) -> Iterator[ConfigProblem]:
    """Routes and gateways should not accept the certificates of clients: TLS only verifies the authority, so a program
    with a client's certificate could join as a server. Leafnodes log in as users of accounts."""
    clients = [case.config, *(case.block(name) or {} for name in ("websocket", "mqtt"))]
    listeners = [block["tls"] for block in clients if isinstance(block.get("tls"), dict)]
    authorities = {tls.get("ca_file") for tls in listeners if tls.get("verify") or tls.get("verify_and_map")}
    for where in ("cluster", "gateway"):
        block = case.block(where) or {}
        tls = block.get("tls")
        if not isinstance(tls, dict) or tls.get("ca_file") not in authorities:
            continue
        if block.get("authorization") or tls.get("pinned_certs") or tls.get("verify_cert_and_check_known_urls"):
            continue
        yield warning(
            f"{where}.authorization",
            "is not set, and the authority of the servers also signs the clients' certificates: a program with such a "
            f"certificate can join as a server and read all messages. Set nats_server_{where}_authorization, "
            f"{where}.tls.pinned_certs, or a different ca_file for {where}.tls",
        )


def leafnodes_listen(case: Case) -> bool:
    """Return whether leafnodes may connect: a block that only has remotes opens no port."""
    block = case.block("leafnodes") or {}
    return any(block.get(name) is not None for name in ("listen", "host", "port"))


def listeners(case: Case) -> Iterator[ConfigProblem]:
    """`listen` must not contradict host or port, because it would be arbitrary which of them applies."""
    blocks = [("", case.config), *((f"{name}.", case.block(name) or {}) for name in LISTENERS)]
    for prefix, block in blocks:
        if block.get("listen") is None:
            continue
        host, port = _host_port(block["listen"])
        if block.get("port") is not None and port != str(block["port"]):
            yield error(
                f"{prefix}listen", f"{block['listen']!r} and {prefix}port {block['port']} contradict each other"
            )
        if block.get("host") is not None and host != block["host"]:
            yield error(
                f"{prefix}listen", f"{block['listen']!r} and {prefix}host {block['host']!r} contradict each other"
            )


def cluster_on_loopback(case: Case) -> Iterator[ConfigProblem]:
    """The cluster listener must not be on loopback if other members are on other machines, because no route could
    connect."""
    cluster = case.block("cluster") or {}
    host = cluster.get("host") or (_host_port(cluster["listen"])[0] if cluster.get("listen") is not None else "")
    own = case.config.get("server_name")
    elsewhere = [
        m["server_name"] for m in case.members if m["server_name"] != own and not is_loopback(m["route_address"])
    ]
    if host and is_loopback(host) and elsewhere:
        option = "cluster.listen" if cluster.get("listen") is not None else "cluster.host"
        yield error(option, f"{host} is reachable from this host only, but {', '.join(elsewhere)} must connect to it")


def advertised(case: Case) -> Iterator[ConfigProblem]:
    """Clients must be able to learn the addresses of other servers."""
    if case.config.get("client_advertise") and (case.block("cluster") or {}).get("no_advertise"):
        yield warning(
            "client_advertise",
            f"{case.config['client_advertise']} reaches no client: cluster.no_advertise keeps servers from advertising",
        )


def port_collisions(case: Case) -> Iterator[ConfigProblem]:
    """Two members, or two listeners of one member, must not use the same address and port."""
    taken: dict[tuple[str, int], str] = {}
    listened = {"client_port": "address", "cluster_port": "route_address"}
    if case.supercluster:
        listened["gateway_port"] = "gateway_address"
    for member in case.supercluster or case.members:
        for kind, address in listened.items():
            place = (_one_spelling(str(member[address])), int(member[kind]))
            host = member.get("host", member["server_name"])
            named = "" if host == member["server_name"] else f" (host {host})"
            user = f"{kind.replace('_', ' ')} of {member['server_name']}{named}"
            if place in taken and place[1] > 0:
                yield error(
                    kind,
                    f"{place[0]}:{place[1]} is both the {taken[place]} and the {user}: remove one of two names for the same host "
                    "from the inventory, or give each server its own address or port",
                )
            taken.setdefault(place, user)
    yield from _shared_monitoring(case)
    yield from _own_collisions(case)


def _shared_monitoring(case: Case) -> Iterator[ConfigProblem]:
    """Servers without systemd may share a machine, and then need different monitoring ports. Those in containers may
    have the same address and port."""
    if case.service_backend != "process":
        return
    taken: dict[tuple[str, str], str] = {}
    for member in case.members:
        port = str(member.get("monitoring", "")).rpartition(":")[2]
        place = (_one_spelling(str(member["address"])), port)
        if port.strip("0") and place in taken:
            yield warning(
                "http",
                f"{taken[place]} and {member['server_name']} have the address {place[0]} and the monitoring port {port}: on one "
                "machine, the second server exits at its start. Set nats_server_http to a different port for each",
            )
        taken.setdefault(place, member["server_name"])


def _own_collisions(case: Case) -> Iterator[ConfigProblem]:
    try:
        own = bound(case.config)
    except ValueError:
        return
    for index, (name, host, port) in enumerate(own):
        for other, other_host, other_port in own[:index]:
            if port == other_port and (host == other_host or not host or not other_host):
                yield error(
                    f"{name}.port" if isinstance(case.config.get(name), dict) else name,
                    f"{port} is also the port of the listener {other}: nats-server would exit at its start",
                )


def _one_spelling(address: str) -> str:
    """Return the canonical form of an address: DNS ignores case and a final dot, and hosts may write the same address
    differently."""
    try:
        return ipaddress.ip_address(address.strip("[]")).compressed
    except ValueError:
        return address.lower().rstrip(".")


def compression(case: Case) -> Iterator[ConfigProblem]:
    """Compression modes and thresholds must be valid (validateAndNormalizeCompressionOption)."""
    leafnodes = case.block("leafnodes") or {}
    places = [("cluster", case.block("cluster") or {}), ("leafnodes", leafnodes)]
    places += [(f"leafnodes.remotes[{i}]", r) for i, r in enumerate(blocks(leafnodes.get("remotes")))]
    for where, block in places:
        value = block.get("compression")
        mode = value.get("mode", "") if isinstance(value, dict) else value
        if value is None:
            continue
        if str(mode).lower() not in COMPRESSION_MODES:
            known = "off, accept, s2_fast, s2_better, s2_best, s2_auto"
            yield error(f"{where}.compression", f"{mode!r} is not a supported mode ({known})")
        thresholds = [seconds_or(t, 0) for t in (value.get("rtt_thresholds") or [])] if isinstance(value, dict) else []
        used = [threshold for threshold in thresholds if threshold]
        if used != sorted(used):
            yield error(f"{where}.compression.rtt_thresholds", "must ascend")
        if thresholds and (not used or len(thresholds) > MAX_RTT_THRESHOLDS):
            yield error(
                f"{where}.compression.rtt_thresholds",
                f"must list 1 to {MAX_RTT_THRESHOLDS} durations, not all of them 0",
            )


def route_pool(case: Case) -> Iterator[ConfigProblem]:
    """Check the pool of routes and the pinned accounts."""
    cluster = case.block("cluster") or {}
    pinned = cluster.get("accounts") or []
    if pinned and int(cluster.get("pool_size") or 0) < 0:
        yield error("cluster.pool_size", "a negative value (no pooling) cannot be combined with cluster.accounts")
    for account, count in Counter(pinned).items():
        if count > 1:
            yield error("cluster.accounts", f"lists {account!r} twice")
    known = {*case.accounts, case.system_account, SYSTEM_ACCOUNT, GLOBAL_ACCOUNT}
    for account in sorted(set(pinned) - known):
        if "operator" not in case.config:
            yield error("cluster.accounts", f"pins the account {account!r}, which does not exist")
    sizes = {member.get("pool_size") for member in case.members}
    if len(sizes) > 1 and case.version and not supports(POOL_SIZES_MAY_DIFFER, case.version):
        yield error(
            "cluster.pool_size",
            f"differs between the members; up to nats-server 2.11.1 (here {case.version}) such servers drop their routes",
        )


def routes(case: Case) -> Iterator[ConfigProblem]:
    """At the first start, the number of routes determines the size of the meta group."""
    listed = (case.block("cluster") or {}).get("routes") or []
    servers = len(case.jetstream_members)
    linked = (case.block("leafnodes") or {}).get("remotes")
    if case.jetstream is not None and case.block("cluster") is not None and not listed and not linked:
        yield error("cluster.routes", "JetStream in a cluster needs a route, even if only to the server itself")
        return
    if case.jetstream is not None and not case.has_gateway and servers > max(2, len(listed)):
        yield warning(
            "cluster.routes",
            f"lists {len(listed)} of {servers} JetStream servers: at the first start the meta group assumes "
            f"{max(2, len(listed))} servers and may elect a leader without the others. Route style all avoids this",
        )


def route_credentials(case: Case) -> Iterator[ConfigProblem]:
    """Routes and gateways send their own credentials, and allow only one user."""
    for where in ("cluster", "gateway"):
        block = (case.block(where) or {}).get("authorization")
        if not isinstance(block, dict):
            continue
        for name in ("users", "token"):
            if name in block:
                yield error(
                    f"{where}.authorization.{name}",
                    "is rejected by nats-server: all routes share one user and password",
                )
        password = block.get("password")
        if not password or not is_hash(password):
            continue
        option = f"{where}.authorization.password"
        urls = (case.block("cluster") or {}).get("routes") or []
        sent = [unquote(urlsplit(url).password or "") for url in urls]
        if where == "gateway" or not sent or not all(sent) or password in sent:
            yield error(
                option, "is a bcrypt hash, but servers send this password to each other: use the plain password"
            )
        else:
            yield warning(
                option, "is a bcrypt hash: routes that servers learn from each other by gossip will be rejected"
            )


def mqtt_and_websocket(case: Case) -> Iterator[ConfigProblem]:
    """Check the requirements of MQTT and WebSocket."""
    mqtt, websocket = case.block("mqtt"), case.block("websocket")
    linked = any(case.block(name) is not None for name in ("cluster", "gateway", "leafnodes"))
    if mqtt is not None:
        if not case.config.get("server_name") and (
            case.block("cluster") is not None or case.block("gateway") is not None
        ):
            yield error("server_name", "is required for MQTT in a cluster")
        if case.jetstream is None and not linked:
            yield error("mqtt", "needs JetStream, on this server or on a connected server")
        yield from _mqtt_storage(case, mqtt)
    if websocket is not None:
        yield from _websocket(case, websocket)
    has_users = any(True for _user in listed_users(case))
    for name, block in (("mqtt", mqtt), ("websocket", websocket)):
        own = (block or {}).get("authorization")
        if has_users and isinstance(own, dict) and (own.get("user") or own.get("token")):
            yield error(f"{name}.authorization", "its own user or token cannot be combined with users elsewhere")


def _mqtt_storage(case: Case, block: dict[str, Any]) -> Iterator[ConfigProblem]:
    """nats-server stores MQTT sessions and messages in streams of the client's account, `$MQTT_sess` and others."""
    if case.jetstream is None or block.get("js_domain"):
        return
    others = [account for name, account in case.accounts.items() if name != case.system_account]
    if others and "operator" not in case.config and not any(map(has_jetstream, others)):
        yield error("mqtt", "needs an account with JetStream, which stores the sessions of its clients")
    cluster = case.block("cluster")
    needed, listed = min(3, len(case.jetstream_members)), len((cluster or {}).get("routes") or ())
    if cluster is not None and block.get("stream_replicas") is None and listed < needed:
        yield warning(
            "mqtt.stream_replicas",
            f"is not set, and nats-server takes the number of routes, {listed}: the sessions of MQTT clients would have "
            f"{counted(max(1, listed), 'replica')}. Set it to {needed}",
        )


def _is_web_address(value: Any) -> bool:
    url = urlsplit(str(value))
    return url.scheme in ("http", "https") and bool(url.hostname)


def _websocket(case: Case, block: dict[str, Any]) -> Iterator[ConfigProblem]:
    if not block.get("no_tls") and not block.get("tls"):
        yield error("websocket.tls", "is required, unless websocket.no_tls is true")
    origins = block.get("allowed_origins") or ()
    for origin in [origins] if isinstance(origins, str) else origins:
        if not _is_web_address(origin):
            yield error("websocket.allowed_origins", f"{origin!r} is not a URL such as https://www.example.com")
    if block.get("jwt_cookie") and not {"operator", "trusted_keys"} & set(case.config):
        yield error("websocket.jwt_cookie", "needs an operator, because the cookie holds a JWT")
    for name in block.get("headers") or ():
        if name.lower() in RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            yield error("websocket.headers", f"{name} belongs to the handshake, and nats-server rejects it")


def leafnodes(case: Case) -> Iterator[ConfigProblem]:
    """Accounts to which leafnodes bind must exist, and the listener has either one user or a list of users."""
    block = case.block("leafnodes")
    if block is None or "operator" in case.config:
        return
    known = {*case.accounts, GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, case.system_account}
    authorization: dict[str, Any] = block.get("authorization") or {}
    bound = [("leafnodes.authorization.account", authorization.get("account"))]
    bound += [
        (f"leafnodes.authorization.users[{user.get('user')}].account", user.get("account"))
        for user in blocks(authorization.get("users"))
    ]
    bound += [
        (f"leafnodes.remotes[{i}].account", remote.get("account"))
        for i, remote in enumerate(blocks(block.get("remotes")))
    ]
    for option, account in bound:
        if account and account not in known:
            yield error(option, f"the account {account!r} does not exist")
    if authorization.get("users") and (authorization.get("user") or authorization.get("nkey")):
        yield error("leafnodes.authorization", "has both a single user and a list of users")


def remotes(case: Case) -> Iterator[ConfigProblem]:
    """Check the URLs of leafnode remotes, and their HTTP proxies (validateLeafNode), which nats-server uses only for
    WebSocket."""
    for index, remote in enumerate(blocks((case.block("leafnodes") or {}).get("remotes"))):
        option = f"leafnodes.remotes[{index}]"
        urls = remote.get("urls") or ()
        urls = [urls] if isinstance(urls, str) else [*urls]
        schemes = [urlsplit(str(url)).scheme for url in [*urls, remote.get("url")] if url]
        web = [scheme for scheme in schemes if scheme in ("ws", "wss")]
        if web and len(web) < len(schemes):
            yield error(f"{option}.urls", "mix ws:// or wss:// with other URLs, which nats-server rejects")
        proxy = remote.get("proxy")
        if not isinstance(proxy, dict) or not proxy.get("url"):
            continue
        if not _is_web_address(proxy["url"]):
            yield error(f"{option}.proxy.url", "is not a URL such as http://proxy.example.com:3128")
        if bool(proxy.get("username")) != bool(proxy.get("password")):
            yield error(f"{option}.proxy", "needs both username and password, or neither")
        if schemes and not web:
            yield error(
                f"{option}.proxy", "is used only for ws:// and wss:// URLs: connect to the hub's WebSocket listener"
            )
        elif "wss" in web and not remote.get("tls"):
            yield error(f"{option}.tls", "is required for a wss:// URL behind a proxy, for instance with ca_file")


def hub(case: Case) -> Iterator[ConfigProblem]:
    """A leafnode must not be mistaken for a part of its hub: it needs a different cluster, different server names, and
    a different JetStream domain."""
    names = sorted({member["server_name"] for member in case.hub} & {member["server_name"] for member in case.members})
    if names:
        yield error(
            "nats_server_leafnode_hub_group", f"{', '.join(names)} would be leafnodes of a hub with the same names"
        )
    if case.cluster_name in {str(member["cluster"]) for member in case.hub}:
        yield error(
            "cluster.name", f"{case.cluster_name!r} is also the cluster of the hub: nats-server rejects such a leafnode"
        )
    if case.jetstream is None:
        return
    own = case.jetstream.get("domain")
    for server in (member for member in case.hub if member.get("jetstream")):
        if server.get("domain") == own:
            which = (
                f"{own!r} is also the domain of {server['server_name']}"
                if own
                else "neither this server nor the hub has one"
            )
            yield error(
                "jetstream.domain",
                f"{which}: both would form one JetStream, in which the leafnode is only an observer. Give each its "
                "own domain",
            )
            return


def _host_port(listen: Any) -> tuple[str, str]:
    host, _colon, port = str(listen).rpartition(":")
    return host.strip("[]"), port
