# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host renews its own certificate, as an ACME client does: the server presents the new one, and never a broken pair."""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.controller import Controller, file_install

HOST = "n1-c1"
FOLDER = "/etc/ssl/nats"


def issue(controller: Controller, name: str) -> str:
    """Create a key and a certificate with this name on the host; return the certificate's SHA-256."""
    names = f"subjectAltName=DNS:{HOST},IP:{controller.address(HOST)}"
    pem = controller.ssh(
        HOST,
        f"mkdir -p {FOLDER} && cd {FOLDER} && openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj /CN={name}"
        f" -addext {names} -keyout {name}.key -out {name}.crt && chmod 644 {name}.key && cat {name}.crt",
    ).stdout
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def install(controller: Controller, *files: str) -> None:
    """Rename files on the host to those that the server uses: ``first.key`` to ``server.key``."""
    for file in files:
        controller.ssh(HOST, f"cp {FOLDER}/{file} {FOLDER}/.new && mv {FOLDER}/.new {FOLDER}/server.{file[-3:]}")


async def presented(address: str) -> str:
    """Return the SHA-256 of the certificate that the server presents to clients."""
    with socket.create_connection((address, 4222), timeout=5) as connection:
        connection.recv(4096)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(connection) as tls:
            return hashlib.sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()


@pytest.mark.hosts(1)
def test_renewed_certificate_is_loaded_once_it_is_complete(controller: Controller, tmp_path: Path) -> None:
    ssh, address = controller.ssh, controller.address(HOST)
    first, second = issue(controller, "first"), issue(controller, "second")
    install(controller, "first.key", "first.crt")
    ssh(HOST, f"cat {FOLDER}/first.crt {FOLDER}/second.crt > {FOLDER}/ca.crt")
    authority = tmp_path / "ca.crt"
    authority.write_text(ssh(HOST, f"cat {FOLDER}/ca.crt").stdout)
    variables: dict[str, Any] = {
        **file_install("2.15.1"),
        "nats_server_jetstream_store_dir": "/nats/storage",
        "nats_server_clustered": False,
        "nats_server_system_password": "sys-pass",
        "nats_server_bcrypt_cost": 4,
        "nats_server_tls_source": "host",
        "nats_server_tls_cert_file": f"{FOLDER}/server.crt",
        "nats_server_tls_key_file": f"{FOLDER}/server.key",
        "nats_server_tls_ca_file": f"{FOLDER}/ca.crt",
        "nats_server_api_tls_ca_file": str(authority),
    }
    pid = "systemctl show -P MainPID nats-server"

    def deploy(**changes: Any) -> list[tuple[str, str]]:
        run = controller.playbook("deploy", hosts=[HOST], group_vars={**variables, **changes})
        assert run.status == 0, run.output
        return run.changed

    def now_presents(wanted: str) -> bool:
        def read() -> str:
            return controller.run(presented(address))

        return wait_until(read, wanted.__eq__, 20).done

    deploy()
    running = ssh(HOST, pid).stdout
    assert controller.run(presented(address)) == first
    assert deploy() == []

    # Between the writes of the two files the pair is broken, and the server keeps the old one.
    install(controller, "second.crt")

    def result() -> str:
        return ssh(HOST, "systemctl show -P Result nats-server-tls.service").stdout.strip()

    assert wait_until(result, "exit-code".__eq__, 20).done
    assert controller.run(presented(address)) == first
    install(controller, "second.key")
    assert now_presents(second)
    assert ssh(HOST, pid).stdout == running
    assert deploy() == []

    # Files that the server cannot read are refused before any change.
    ssh(HOST, f"chmod 600 {FOLDER}/server.key")
    run = controller.playbook("deploy", hosts=[HOST], group_vars=variables)
    assert run.status != 0 and "the user nats, who runs nats-server, cannot read " in run.output
    ssh(HOST, f"chmod 644 {FOLDER}/server.key")

    # Without TLS, the files are no longer watched.
    deploy(nats_server_tls_source="none", nats_server_api_tls_ca_file=None)
    watched = ssh(HOST, "systemctl is-active nats-server-tls.path", check=False).stdout.strip()
    assert watched == "inactive"
    assert ssh(HOST, "ls /etc/systemd/system/nats-server-tls.*", check=False).stdout == ""
    assert ssh(HOST, f"ls {FOLDER}/server.key").stdout.strip() == f"{FOLDER}/server.key"
