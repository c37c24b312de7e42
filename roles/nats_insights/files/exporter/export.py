# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serve the metrics of a fleet to Prometheus. The unit nats-exporter runs this program.

    python program.pyz SETTINGS

The settings are JSON: `connection` (options of the module's connection), `listen` (ADDRESS:PORT), `users` (names and passwords
of authorized users, empty for anonymous access), `tls` (`cert_file`, `key_file`, `client_ca_file`), and those of
`telemetry.exporting.sweep_options`. Exit status 2 for invalid settings; otherwise only a signal ends the program.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Callable, Optional
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions, MissingLibrary
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.exporting import Sweeper, sweep_options
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.metrics import COUNTER
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

#: Seconds that a client may take to send its request, and to read the answer.
CLIENT_TIMEOUT = 20

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class FleetCollector(Collector):
    """The results of the last sweep, for prometheus_client."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper

    def collect(self) -> Iterable[Metric]:
        found = self._sweeper.current()
        for metric, samples in found.families():
            labels = ("fleet", *metric.labels)
            family: CounterMetricFamily | GaugeMetricFamily
            if metric.kind == COUNTER:
                family = CounterMetricFamily(metric.name, metric.about, labels=labels)
            else:
                family = GaugeMetricFamily(metric.name, metric.about, labels=labels)
            for values, value in samples:
                family.add_metric((found.fleet, *values), value)
            yield family


def application(sweeper: Sweeper, users: Mapping[str, str]) -> Application:
    """Return the WSGI application: only /metrics, for authorized users."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(sweeper))
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if users and not authorized(environ.get("HTTP_AUTHORIZATION", ""), users):
            headers = [("WWW-Authenticate", 'Basic realm="natsops"'), ("Content-Type", "text/plain")]
            return _refuse(start_response, "401 Unauthorized", headers)
        if environ.get("PATH_INFO") != "/metrics":
            return _refuse(start_response, "404 Not Found", [("Content-Type", "text/plain")])
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _refuse(start_response, "405 Method Not Allowed", [("Content-Type", "text/plain")])
        return metrics(environ, start_response)

    return serve


def _refuse(start_response: Callable[..., Any], status: str, headers: list[tuple[str, str]]) -> Iterable[bytes]:
    start_response(status, headers)
    return [f"{status}\n".encode()]


def authorized(header: str, users: Mapping[str, str]) -> bool:
    """Return whether an Authorization header has the name and password of a user, in the same time for an unknown name."""
    scheme, _space, encoded = header.partition(" ")
    try:
        given = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return False
    if scheme.lower() != "basic":
        return False
    same = [hmac.compare_digest(f"{name}:{password}".encode(), given) for name, password in users.items()]
    return any(same)


class ListenerTls:
    """The TLS of the listener. A renewed certificate is loaded from its files for the next connection."""

    def __init__(self, tls: Mapping[str, Any]) -> None:
        """Raises OSError, ssl.SSLError, KeyError."""
        self._files = (tls["cert_file"], tls["key_file"])
        self._read: tuple[int, ...] = ()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()
        if tls.get("client_ca_file"):
            self.context.load_verify_locations(tls["client_ca_file"])
            self.context.verify_mode = ssl.CERT_REQUIRED

    def _load(self) -> None:
        written = tuple(os.stat(path).st_mtime_ns for path in self._files)
        if written != self._read:
            self.context.load_cert_chain(*self._files)
            self._read = written

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Return the connection with TLS. The connection's own thread performs the handshake with its first read."""
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            say(f"the renewed certificate cannot be used: {error!r}")
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)


class ExporterServer(ThreadingMixIn, WSGIServer):
    """A server with a thread for each connection, so an idle client does not block others."""

    daemon_threads = True
    certificate: Optional[ListenerTls] = None

    def server_bind(self) -> None:
        """Bind like TCPServer, without resolving this host's name: that is slow if no name server has it."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        return (self.certificate.wrap(connection) if self.certificate else connection), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client's error in one line, without a traceback."""
        print(f"request of {client_address[0]}: {sys.exc_info()[1]!r}", file=sys.stderr, flush=True)


class Server6(ExporterServer):
    address_family = socket.AF_INET6


class Handler(WSGIRequestHandler):
    """One connection."""

    timeout = CLIENT_TIMEOUT

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log scrapes."""

    def address_string(self) -> str:
        return str(self.client_address[0])


def parse_address(listen: str) -> tuple[str, int]:
    """Return host and port of ADDRESS:PORT, with IPv6 addresses in brackets. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host:
        raise ValueError(f"listen: {listen!r} is not ADDRESS:PORT")
    return host.strip("[]"), int(port)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(path: str) -> int:
    try:
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
        given = {key: value for key, value in settings["connection"].items() if value is not None}
        options = ConnectionOptions(**{**given, "servers": tuple(given["servers"])})
        sweeper = Sweeper(options, sweep_options(settings), say)
        host, port = parse_address(settings["listen"])
        family = Server6 if ":" in host else ExporterServer
        server = make_server(host, port, application(sweeper, settings.get("users") or {}), family, Handler)
        server.certificate = ListenerTls(settings["tls"]) if settings.get("tls") else None
    except (OSError, KeyError, TypeError, ValueError, MissingLibrary) as error:
        say(f"the settings cannot be used: {error!r}")
        return 2
    threading.Thread(target=sweeper.run, name="sweep", daemon=True).start()
    say(f"serving /metrics on {host} port {server.server_port}{' with TLS' if server.certificate else ''}")
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
