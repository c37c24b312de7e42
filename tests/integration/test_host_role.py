# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the host's part of the role through ansible-playbook, without root's directories and without systemd."""

from __future__ import annotations

import functools
import getpass
import grp
import hashlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.clean_output import clean
from support.nats_processes import binary, collections_path, free_ports
from support.role_cluster import TUNINGS

pytestmark = pytest.mark.playbook

PLAY = """
- name: Parts of the role
  hosts: all
  gather_facts: true
  gather_subset: [min, hardware]
  tasks:
    - name: Run the part
      ansible.builtin.include_role:
        name: natsops.jetstream.nats_server
        tasks_from: "{{ part }}"
      loop: "{{ parts }}"
      loop_control:
        loop_var: part
"""


class Host:
    """This machine as a managed host whose files are all in one directory."""

    def __init__(self, root: Path, facts: Path) -> None:
        self.root = root
        self.facts = facts
        self.port, monitoring = free_ports(2)
        self.config = root / "etc" / "nats-server.conf"
        self.variables: dict[str, Any] = {
            "nats_server_version": "2.10.27",
            "nats_server_become": False,
            "nats_server_user": getpass.getuser(),
            "nats_server_group": grp.getgrgid(os.getgid()).gr_name,
            "nats_server_service_backend": "process",
            "nats_server_install_dir": str(root / "opt"),
            "nats_server_binary_link": str(root / "bin" / "nats-server"),
            "nats_server_config_dir": str(root / "etc"),
            "nats_server_run_dir": str(root / "run"),
            "nats_server_jetstream_store_dir": str(root / "store"),
            "nats_server_host": "127.0.0.1",
            "nats_server_port": self.port,
            "nats_server_http": f"127.0.0.1:{monitoring}",
            "nats_server_lame_duck_duration": "30s",
            "nats_server_install_method": "file",
        }
        self.config.parent.mkdir(parents=True)
        self.config.parent.chmod(0o750)
        self.write_config()

    def write_config(self, extra: str = "") -> None:
        self.config.write_text(
            f'server_name: n1\nlisten: "127.0.0.1:{self.port}"\nhttp: "{self.variables["nats_server_http"]}"\n'
            f'pid_file: "{self.root}/run/nats-server.pid"\njetstream {{ store_dir: "{self.root}/store" }}\n'
            f'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n{extra}\n'
        )

    def play(
        self, *parts: str, check: bool = False, fails: bool = False, shows_all: bool = False, **variables: Any
    ) -> str:
        """Run parts of the role; return the output of ansible-playbook about changes and failures, with `shows_all`
        about all tasks."""
        return self._run(PLAY, self.variables | variables | {"parts": parts}, check, fails, shows_all)

    def refusals(self, *cases: tuple[str, dict[str, Any]]) -> list[str]:
        """Run parts of the role with these variables in one play, in which each part must be refused. Return the output
        of each part."""
        role = "natsops.jetstream.nats_server"
        blocks = []
        for number, (part, own) in enumerate(cases):
            include = {"name": "Run the part", "ansible.builtin.include_role": {"name": role, "tasks_from": part}}
            missed = {"name": "The part was not refused", "ansible.builtin.meta": "end_play"}
            ended = {"name": f"End of case {number}", "ansible.builtin.debug": {"msg": "refused"}}
            blocks.append({"block": [{**include, "vars": self.variables | own}, missed], "rescue": [ended]})
        play = {"hosts": "all", "gather_facts": True, "gather_subset": ["min", "hardware"], "tasks": blocks}
        output = " ".join(self._run(json.dumps([play]), {}, False, False, True).split())
        found = []
        for number in range(len(cases)):
            text, end, output = output.partition(f"TASK [End of case {number}]")
            assert end, f"case {number} was not refused: {text}"
            found.append(text)
        return found

    def _run(self, play: str, variables: dict[str, Any], check: bool, fails: bool, shows_all: bool) -> str:
        playbook = self.root / "play.yml"
        playbook.write_text(play)
        values = self.root / "variables.json"
        values.write_text(json.dumps(variables))
        inventory = self.root / "inventory.json"
        settings = {
            "ansible_host": "127.0.0.1",
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
        }
        inventory.write_text(json.dumps({"all": {"hosts": {"n1": settings}}}))
        command = ["-i", str(inventory), "-e", f"@{values}"]
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "ansible-playbook"),
                *command,
                *["--check"][: int(check)],
                str(playbook),
            ],
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": collections_path(),
                # Facts are gathered once for all tests, because gathering takes longer than most of these plays.
                "ANSIBLE_GATHERING": "smart",
                "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
                "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(self.facts),
                "ANSIBLE_DISPLAY_OK_HOSTS": str(shows_all),
                "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
                "ANSIBLE_NOCOLOR": "true",
                "XDG_CACHE_HOME": str(self.root / "cache"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return clean(done.stdout + done.stderr)

    def pid(self) -> int:
        """Return the server's process id, or 0 if it is not running."""
        found = subprocess.run(
            ["pgrep", "-f", "--", f"-c {self.config}"], capture_output=True, text=True, check=False
        ).stdout
        return int(found.split()[0]) if found else 0

    def kill(self) -> None:
        if pid := self.pid():
            os.kill(pid, signal.SIGKILL)


def changes(output: str) -> list[str]:
    """Return the names of the tasks that changed something, in order."""
    task = ""
    found: list[str] = []
    for line in output.splitlines():
        if match := re.match(r"TASK \[(.*)\] \*", line):
            task = match.group(1).rpartition(" : ")[2]
        elif line.startswith("changed:") and task not in found[-1:]:
            found.append(task)
    return found


@pytest.fixture
def host(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    found = Host(tmp_path / "host", tmp_path_factory.getbasetemp() / "facts")
    yield found
    found.kill()


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A web server with releases in upstream's format: archives and their checksums."""
    root = tmp_path_factory.mktemp("releases")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    for version in ("2.9.10", "2.10.27"):
        folder = root / f"v{version}"
        folder.mkdir()
        stem = f"nats-server-v{version}-linux-{arch}"
        with tarfile.open(folder / f"{stem}.tar.gz", "w:gz", compresslevel=1) as archive:
            archive.add(binary(version), f"{stem}/nats-server")
        with zipfile.ZipFile(folder / f"{stem}.zip", "w") as zipped:
            zipped.write(binary(version), f"{stem}/nats-server")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
        (folder / "SHA256SUMS").write_text("".join(sums))
    handler = functools.partial(QuietHandler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class ProxyHandler(QuietHandler):
    """A forward proxy for HTTP, which records the requested URLs."""

    requested: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requested.append(self.path)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.path) as reply:
            content = reply.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def proxy() -> Iterator[str]:
    ProxyHandler.requested.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ProxyHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_from_the_cradle_to_the_grave(host: Host) -> None:
    """The server is predicted, started, left unchanged by a second run, upgraded, and removed, all without root's
    directories."""
    old, new = binary("2.10.27"), binary("2.15.1")
    deploy = functools.partial(host.play, "install", "service", "start")
    predicted = changes(deploy(check=True, nats_server_file_src=old))
    assert not host.pid()
    assert changes(deploy(nats_server_file_src=old)) == predicted
    assert predicted[-1] == "Start the server"
    first = host.pid()
    assert first and os.readlink(f"/proc/{first}/exe") == str(host.root / "opt/2.10.27/bin/nats-server")
    assert os.getsid(first) == first, "it belongs to the session of the run that started it"
    assert changes(deploy(nats_server_file_src=old)) == []

    # A new version is installed next to the old one, and running servers keep the old one.
    upgrade: dict[str, Any] = {"nats_server_file_src": new, "nats_server_version": "2.15.1"}
    assert changes(host.play("install", "service", **upgrade)) == ["Install the version"]
    assert os.readlink(host.root / "bin/nats-server").endswith("/2.10.27/bin/nats-server")
    assert host.pid() == first

    restart = functools.partial(host.play, "install", "stop", "start", **upgrade)
    predicted = changes(restart(check=True))
    assert host.pid() == first
    assert changes(restart()) == predicted == ["Stop the server", "Point the link at the version", "Start the server"]
    assert "Entering lame duck mode" in (host.root / "run/nats-server.out").read_text()
    second = host.pid()
    assert os.readlink(f"/proc/{second}/exe") == str(host.root / "opt/2.15.1/bin/nats-server")

    assert changes(host.play("remove"))[0] == "Stop the server"
    assert not host.pid()
    assert (host.root / "store/jetstream").is_dir()
    assert not any((host.root / name).exists() for name in ("opt", "etc", "run", "bin/nats-server"))
    # The part has nothing else left to remove.
    assert changes(host.play("remove", nats_server_remove_data=True)) == ["Remove the data"]
    assert not (host.root / "store").exists()


def test_the_role_alone_restarts_a_single_server_and_no_member_of_a_cluster(host: Host) -> None:
    """Running only the role in a play is correct for a single host, and is refused if the cluster must be checked
    first."""
    host.config.unlink()
    host.variables |= {
        "nats_server_file_src": binary("2.15.1"),
        "nats_server_version": "2.15.1",
        "nats_server_manage_user": False,
        "nats_server_bcrypt_cost": 4,
        "nats_server_system_password": "a password",
        "nats_server_jetstream_max_file_store": "64MB",
        **{f"nats_server_tuning_{part}": "off" for part in TUNINGS},
    }
    assert "Start the server" in changes(host.play("main"))
    first = host.pid()
    assert first
    assert changes(host.play("main")) == []

    monitoring, route = free_ports(2)
    host.variables["nats_server_http"] = f"127.0.0.1:{monitoring}"
    assert "Stop the server" in changes(host.play("main"))
    second = host.pid()
    assert second not in (0, first)

    # A cluster member can be reloaded as well; a change to the cluster block needs a restart.
    member: dict[str, Any] = {
        "nats_server_clustered": True,
        "nats_server_cluster_port": route,
        "nats_server_cluster_host": "127.0.0.1",
    }
    refused = host.play("main", fails=True, **member)
    assert "n1 must be restarted (" in refused
    assert "Use the role natsops.jetstream.nats_cluster" in refused
    assert host.pid() == second


def test_a_stale_pid_file_with_a_reused_number_does_no_harm(host: Host) -> None:
    host.play("install", "service", nats_server_file_src=binary("2.10.27"))
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        (host.root / "run/nats-server.pid").write_text(str(bystander.pid))
        assert changes(host.play("stop")) == []
        assert changes(host.play("start")) == ["Start the server"]
        assert bystander.poll() is None
        assert (host.root / "run/nats-server.pid").read_text() == str(host.pid())
    finally:
        bystander.kill()
        bystander.wait()


def test_a_server_that_does_not_start_reports_the_reason(host: Host) -> None:
    host.write_config('no_such_option: "x"')
    output = host.play("install", "service", "start", nats_server_file_src=binary("2.10.27"), fails=True)
    assert "exited right after its start" in output
    assert 'unknown field \\"no_such_option\\"' in output
    host.write_config('include "X\x1b[31mRED"')
    output = host.play("start", fails=True)
    assert "X?[31mRED" in output and "\x1b" not in output


def test_a_server_that_ended_before_its_turn_reports_the_reason(host: Host) -> None:
    """The server may have panicked on an upgraded member's data: the next server may also panic, so the roll must
    stop."""
    host.play("install", "service", "start", nats_server_file_src=binary("2.10.27"))
    os.kill(host.pid(), signal.SIGABRT)
    state = {"running": {"running": True}, "required_action": {"action": "restart"}}
    output = host.play("stop", fails=True, nats_server_state=state)
    assert "nats-server had exited before this run stopped it. Its last log lines:" in output
    assert "SIGABRT" in output
    # A server that is not part of the restart may be down.
    state["required_action"] = {"action": "none"}
    assert changes(host.play("stop", nats_server_state=state)) == []


def test_a_server_that_hangs_in_lame_duck_mode_is_killed_in_time(host: Host) -> None:
    host.play("install", "service", "start", nats_server_file_src=binary("2.10.27"))
    pid = host.pid()
    os.kill(pid, signal.SIGSTOP)
    output = host.play("stop", nats_server_lame_duck_duration="1ms", nats_server_start_timeout=5)
    assert re.search(r"was killed 3[1-9] s after the request for lame duck mode", " ".join(output.split())), output
    assert not host.pid()


@pytest.mark.parametrize("where", ["controller", "host"])
def test_release(host: Host, releases: str, proxy: str, where: str) -> None:
    """The release is downloaded through a proxy."""
    variables: dict[str, Any] = {
        "nats_server_install_method": "release",
        "nats_server_release_url": releases,
        "nats_server_release_download_on": where,
        "nats_download_environment": {"http_proxy": proxy},
        "nats_server_release_format": "zip" if where == "host" else "tar.gz",
        "nats_server_version": "2.9.10",
    }
    predicted = changes(host.play("install", check=True, **variables))
    assert "Install the version" in predicted
    assert changes(host.play("install", **variables)) == predicted
    (*_others, archive) = sorted(set(ProxyHandler.requested))
    assert archive.startswith(f"{releases}/v2.9.10/nats-server-v2.9.10-linux-")
    if where == "host":
        return
    assert changes(host.play("install", **variables)) == []
    variables |= {"nats_server_version": "2.10.27", "nats_server_install_keep": 1}
    assert changes(host.play("install", **variables)) == ["Install the version", "Point the link at the version"]
    # The version that was selected during an installation is removed by the next installation.
    variables |= {"nats_server_version": "2.9.10"}
    (host.root / "opt/2.9.10/bin/nats-server").unlink()
    (host.root / "opt/2.8.4/bin").mkdir(parents=True)
    (host.root / "opt/2.8.4/bin/nats-server").touch()
    assert "Install the version" in changes(host.play("install", **variables))
    assert sorted(path.name for path in (host.root / "opt").iterdir()) == ["2.10.27", "2.9.10"]


def test_release_without_a_known_checksum_is_reported_or_refused(host: Host, releases: str) -> None:
    """The preflight lists it before any change; the installation alone refuses it as well."""
    release: dict[str, Any] = {"nats_server_install_method": "release", "nats_server_release_url": releases}
    reported = host.play("preflight", **release, check=True, shows_all=True)
    assert "nats_server_version: the collection has no checksum for " in reported
    assert "It is compared with SHA256SUMS of the same site" in reported
    unpinned = release | {"nats_server_release_unpinned": "refuse"}
    for refused in host.refusals(("preflight", unpinned), ("install", unpinned)):
        assert f"has no checksum for {releases}/v2.10.27/nats-server-v2.10.27-linux-" in refused
        assert "and nats_server_release_unpinned is refuse. Set nats_server_release_checksum" in refused
    assert not list((host.root / "opt").glob("*"))
    host.play("install", **release)
    assert "no checksum" not in host.play("preflight", **release, check=True, shows_all=True)


def test_other_releases_are_refused(host: Host, releases: str) -> None:
    release: dict[str, Any] = {"nats_server_install_method": "release", "nats_server_release_url": releases}
    altered, replaced, other, missing, wrong = host.refusals(
        ("install", release | {"nats_server_release_checksum": "0" * 64}),
        # The test's archive differs from the release whose checksum the collection contains.
        ("install", release | {"nats_server__release_origin": releases}),
        ("install", {"nats_server_file_src": binary("2.9.10")}),
        ("install", {"nats_server_file_src": "/no/such"}),
        ("install", {"nats_server_file_src": binary("2.10.27"), "nats_server_file_checksum": "ab" * 32}),
    )
    assert "checksum" in altered.partition("fatal:")[2]
    assert "checksum" in replaced.partition("fatal:")[2]
    assert "is nats-server 2.9.10, but nats_server_version is 2.10.27" in other
    assert "does not exist on the controller" in missing
    assert "but nats_server_file_checksum is abab" in wrong
    assert not list((host.root / "opt").iterdir())


def test_tls_files_and_contexts(host: Host, tmp_path: Path) -> None:
    users = [{"user": "app", "password": "a" * 20}, {"user": "b", "password": "$2a$11$" + "x" * 53}]
    variables: dict[str, Any] = {
        "nats_server_tls_source": "ca",
        "nats_server_tls_ca_dir": str(tmp_path / "pki"),
        "nats_server_tls_verify_clients": True,
        "nats_server_contexts_on": "controller",
        "nats_server_contexts_dir": str(tmp_path / "contexts"),
        "nats_server_cluster_name": "C1",
        "nats_server_system_password": 'sys"pass',
        "nats_server_accounts": {"APP": {"users": users}},
    }
    predicted = changes(host.play("tls", "contexts", check=True, **variables))
    assert not (tmp_path / "pki").exists()
    output = host.play("tls", "contexts", **variables)
    assert changes(output) == predicted
    assert "Copy the TLS files" in predicted and "Write the contexts" in predicted
    assert "PRIVATE KEY" not in output and "pass" not in output.replace("passwd", "")
    assert changes(host.play("tls", "contexts", **variables)) == []
    assert {path.name: path.stat().st_mode & 0o777 for path in (host.root / "etc/tls").iterdir()} == {
        "ca.crt": 0o644,
        "server.crt": 0o644,
        "server.key": 0o640,
    }
    context = json.loads((tmp_path / "contexts/C1-sys.json").read_text())
    assert context["user"] == "sys" and context["password"] == 'sys"pass' and context["url"].startswith("tls://")
    assert Path(context["ca"]).exists() and Path(context["cert"]).exists() and Path(context["key"]).exists()
    assert sorted(path.name for path in (tmp_path / "contexts").iterdir()) == ["C1-app.json", "C1-sys.json"]
    assert (tmp_path / "contexts/C1-sys.json").stat().st_mode & 0o777 == 0o600

    # The key of the authority may be elsewhere, as it is in AWX.
    (tmp_path / "pki/ca.key").rename(tmp_path / "authority.key")
    elsewhere = {**variables, "nats_server_tls_ca_key_file": str(tmp_path / "authority.key")}
    assert changes(host.play("tls", "contexts", **elsewhere)) == [] and not (tmp_path / "pki/ca.key").exists()
    (tmp_path / "authority.key").rename(tmp_path / "pki/ca.key")

    # While another site serves the streams, the context keeps that site's address, and its other settings are updated.
    app = tmp_path / "contexts/C1-app.json"
    app.write_text(app.read_text().replace(json.loads(app.read_text())["url"], "nats://west:4222"))
    (tmp_path / "contexts/C1-app.json.before_failover").write_text("{}")
    assert changes(host.play("contexts", **variables)) == []
    rotated = {"APP": {"users": [{"user": "app", "password": "c" * 20}]}}
    assert changes(host.play("contexts", **{**variables, "nats_server_accounts": rotated})) == ["Write the contexts"]
    written = json.loads(app.read_text())
    assert (written["url"], written["password"]) == ("nats://west:4222", "c" * 20)

    # For a user with an nkey or credentials, the file that the command reads is next to the context.
    credentials = tmp_path / "sys.creds"
    credentials.write_text("-----BEGIN NATS USER JWT-----\n")
    by_file = {**variables, "nats_server_system_password": "", "nats_server_api_credentials": str(credentials)}
    assert changes(host.play("contexts", **by_file)) == ["Write the key of the system user", "Write the contexts"]
    assert changes(host.play("contexts", **by_file)) == []
    context = json.loads((tmp_path / "contexts/C1-sys.json").read_text())
    assert "user" not in context and Path(context["creds"]).read_text() == credentials.read_text()
    assert Path(context["creds"]).stat().st_mode & 0o777 == 0o600

    own: dict[str, Any] = {
        "nats_server_tls_source": "files",
        "nats_server_tls_ca_src": str(tmp_path / "pki/ca.crt"),
        "nats_server_tls_cert_src": str(tmp_path / "pki/client.crt"),
        "nats_server_tls_key_src": str(tmp_path / "pki/client.key"),
    }
    assert changes(host.play("tls", **own)) == ["Copy the TLS files"]
    assert (host.root / "etc/tls/server.crt").read_text() == (tmp_path / "pki/client.crt").read_text()

    # Files that belong to the host are checked in place, and never installed.
    kept: dict[str, Any] = {
        "nats_server_tls_source": "host",
        "nats_server_tls_cert_file": str(tmp_path / "pki/n1.crt"),
        "nats_server_tls_key_file": str(tmp_path / "pki/n1.key"),
        "nats_server_tls_ca_file": str(tmp_path / "pki/ca.crt"),
        "nats_server_version": "2.10.27",
        "nats_server_cluster_name": "C1",
    }
    host.play("preflight", **kept)
    pki = tmp_path / "pki"
    reasons: dict[str, tuple[str, dict[str, Any]]] = {
        f"n1 cannot present {pki}/client.crt: its extended key usage lacks serverAuth": ("preflight", own),
        f"{pki}/none.key does not exist on the controller": (
            "preflight",
            {**own, "nats_server_tls_key_src": f"{pki}/none.key"},
        ),
        "must all be files": ("tls", {"nats_server_tls_source": "files"}),
        "client.key does not match the certificate": (
            "preflight",
            {**kept, "nats_server_tls_key_file": f"{pki}/client.key"},
        ),
        "ca.key does not contain a CA certificate": (
            "preflight",
            {**kept, "nats_server_tls_ca_file": f"{pki}/ca.key"},
        ),
        "none.crt does not exist on n1": (
            "preflight",
            {**kept, "nats_server_tls_cert_file": str(tmp_path / "none.crt")},
        ),
        "nats_server_tls_source is host": ("issue_certificates", kept),
    }
    for reason, refused in zip(reasons, host.refusals(*reasons.values()), strict=True):
        assert reason in refused
    # The role refuses an address that only its own task has.
    refused = " ".join(host.play("preflight", fails=True, **{**kept, "nats_server_address": "other.example"}).split())
    assert "it lacks the name other.example" in refused
