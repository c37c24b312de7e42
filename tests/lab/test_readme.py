# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the commands of README.md block by block, in an empty home directory, on minimal Debian 12 and 13 hosts, as a
user with a sudo password. Only the addresses are those of the lab."""

from __future__ import annotations

import hashlib
import http.server
import io
import re
import shutil
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import binaries
import yaml
from lab import enter_network
from support.controller import Controller
from support.documents import CHECKOUT, Document, Terminal

BLOCKS = [block for block in Document("README.md").blocks if block.heading == "First run"]
HOSTS = ("n1-c1", "n2-c1", "n3-c1")
GITHUB = "github.com"


def release() -> dict[str, bytes]:
    """Return GitHub's downloads of the default version, by path."""
    defaults = yaml.safe_load((CHECKOUT / "roles/nats_server/defaults/main.yml").read_text())
    version, url = defaults["nats_server_version"], defaults["nats_server_release_url"]
    name = f"nats-server-v{version}-linux-amd64"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        binary = binaries.nats_server(version).read_bytes()
        info = tarfile.TarInfo(f"{name}/nats-server")
        info.size, info.mode = len(binary), 0o755
        packed.addfile(info, io.BytesIO(binary))
    folder = f"{url.partition(GITHUB)[2]}/v{version}"
    digest = hashlib.sha256(archive.getvalue()).hexdigest()
    return {
        f"{folder}/{name}.tar.gz": archive.getvalue(),
        f"{folder}/SHA256SUMS": f"{digest}  {name}.tar.gz\n".encode(),
    }


class Proxy(http.server.BaseHTTPRequestHandler):
    """A proxy in the lab's network that replaces GitHub and serves these files."""

    tls: ssl.SSLContext
    files: Mapping[str, bytes]
    timeout = 30

    def do_CONNECT(self) -> None:
        if self.path != f"{GITHUB}:443":
            self.send_error(502, f"nothing but {GITHUB} is behind this proxy")
            return
        self.send_response(200)
        self.end_headers()
        self.request = self.tls.wrap_socket(self.connection, server_side=True)
        self.setup()
        self.handle_one_request()
        self.close_connection = True

    def do_GET(self) -> None:
        content = self.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def github(lab: str, folder: Path) -> Iterator[dict[str, str]]:
    """Make a stand-in for GitHub reachable from the lab's network; yield the shell variables for its use."""
    certificate, key = folder / "github.crt", folder / "github.key"
    subject = ["-subj", f"/CN={GITHUB}", "-addext", f"subjectAltName=DNS:{GITHUB}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
        check=True,
        capture_output=True,
    )
    Proxy.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Proxy.tls.load_cert_chain(certificate, key)
    Proxy.files = release()
    servers: list[http.server.HTTPServer] = []
    listens = threading.Event()

    def serve() -> None:
        # A network namespace belongs to a thread: the socket of this thread is in the lab.
        try:
            enter_network(lab)
            servers.append(http.server.HTTPServer(("127.0.0.1", 0), Proxy))
        finally:
            listens.set()
        servers[0].serve_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    listens.wait()
    try:
        proxy = f"http://127.0.0.1:{servers[0].server_port}"
        yield {"https_proxy": proxy, "SSL_CERT_FILE": str(certificate)}
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        thread.join()


def test_the_first_run_deploys_a_healthy_cluster_on_minimal_hosts(
    minimal_controller: Controller, home: Path, tmp_path: Path
) -> None:
    controller, lab = minimal_controller, minimal_controller.lab
    example = re.findall(r"ansible_host: ([\d.]+)", "".join(block.text for block in BLOCKS))
    assert len(example) == len(HOSTS)
    addresses = dict(zip(example, (controller.address(host) for host in HOSTS), strict=True))
    checkout = tmp_path / "checkout"
    if (settings := Path("~/.config/pip").expanduser()).is_dir():
        shutil.copytree(settings, home / ".config/pip")
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".cache", ".git", ".demo", "__pycache__"))
    ssh = controller.login(tmp_path)
    terminal = Terminal(home, checkout, ssh)
    printed: list[str] = []
    with github(lab.name, tmp_path) as internet:
        in_the_lab = lab.inside(["env", *(f"{name}={value}" for name, value in internet.items())])
        for block in BLOCKS:
            if block.file:
                text = re.sub(r"(?<=ansible_host: )[\d.]+", lambda found: addresses[found[0]], block.text)
                (terminal.folder / block.file).write_text(text)
                continue
            for command in block.commands if block.language == "sh" else ():
                # The lab cannot reach the package index, which only the preparation of the controller needs.
                inside = in_the_lab if command.text.startswith("ansible-playbook") else []
                printed.append(terminal.type(command.text, inside))
                print(command.text, printed[-1], sep="\n")
        deployed, report, diagnosis = printed[-3:]
        assert re.search(r"changed=[1-9]", deployed)
        assert all(host in report for host in HOSTS)
        assert "ok" in diagnosis.lower()
        again = terminal.type("ansible-playbook natsops.jetstream.deploy -i inventory.yml", in_the_lab)
    assert set(re.findall(r"changed=(\d+)", again)) == {"0"}, again
    passwords = [path.read_text().strip() for path in (home / ".nats-C1").iterdir()]
    assert len(passwords) == 2
    assert [password for password in passwords if password in "".join([*printed, again])] == []
