# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the execution environments: ansible-builder accepts their definitions, and their package lists suffice to run
every playbook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rootfs import bare, inside
from support.nats_processes import ROOT, binary
from support.role_cluster import RoleCluster

NAMES = ("execution-environment", "insights", "decision-environment")
DEFINITIONS = ROOT / "extensions/execution-environment"
#: Debian releases by their Python version. The packages of the environments are downloaded or built on this machine.
RELEASES = {(3, 11): "bookworm", (3, 13): "trixie"}
OLD, NEW = "2.10.27", "2.15.1"

pytestmark = [
    pytest.mark.playbook,
    pytest.mark.skipif(not list(ROOT.glob(".cache/dist/*.tar.gz")), reason="there is no artifact: make build"),
]


def tool(*command: str, **options: Any) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).with_name(command[0])), *command[1:]],
        check=False,
        capture_output=True,
        text=True,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_environments_can_be_built_from_an_installed_collection(tmp_path: Path) -> None:
    """The user copies the artifact next to the definitions, as docs/awx.md describes."""
    [artifact] = ROOT.glob(".cache/dist/*.tar.gz")
    tool(
        "ansible-galaxy",
        "collection",
        "install",
        "--offline",
        "--force",
        "--no-deps",
        str(artifact),
        "-p",
        str(tmp_path),
    )
    definitions = tmp_path / "ansible_collections/natsops/jetstream/extensions/execution-environment"
    # The installed artifact can be older than this checkout.
    shutil.copytree(DEFINITIONS, definitions, dirs_exist_ok=True)
    shutil.copy(artifact, definitions)
    for name in NAMES:
        tool("ansible-builder", "create", "-f", str(definitions / f"{name}.yml"), "-c", str(tmp_path / name))
    assert (tmp_path / "execution-environment/_build/collections" / artifact.name).is_file()
    assert "pyspark" in (tmp_path / "insights/_build/requirements.txt").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build contexts, and the lists of packages that ansible-builder finds in them in its second stage."""
    folder = tmp_path_factory.mktemp("ee")
    for name in NAMES:
        tool(
            "ansible-builder",
            "create",
            "-f",
            str(DEFINITIONS / f"{name}.yml"),
            "-c",
            str(folder / name),
            "--output-filename",
            "Containerfile",
        )
    context = folder / "execution-environment/_build"
    tool(
        "ansible-galaxy",
        "collection",
        "install",
        "--offline",
        "--force",
        "-r",
        "requirements.yml",
        "-p",
        str(folder / "collections"),
        cwd=context,
    )
    for name in NAMES:
        given = [
            f"--user-{kind}={folder}/{name}/_build/{file}"
            for kind, file in (("pip", "requirements.txt"), ("bindep", "bindep.txt"))
            if (folder / name / "_build" / file).is_file()
        ]
        tool(
            "ansible-builder",
            "introspect",
            str(folder / "collections"),
            *given,
            "--write-pip",
            f"{folder}/{name}.pip",
            "--write-bindep",
            f"{folder}/{name}.bindep",
        )
    return folder


def test_ansible_builder_takes_the_definitions_and_finds_the_lists(built: Path) -> None:
    for name in NAMES:
        assert "FROM base AS final" in (built / name / "Containerfile").read_text()
    lists = {path.name: path.read_text() for path in built.iterdir() if path.is_file()}
    assert all(package in lists["execution-environment.pip"] for package in ("nats-py", "boto3", "pyrage"))
    assert "pyspark" not in lists["execution-environment.pip"]
    assert "openssh-clients [platform:rpm]" in lists["execution-environment.bindep"]
    assert "java" not in lists["execution-environment.bindep"]
    assert "pyspark" in lists["insights.pip"]
    assert "java-21-openjdk-headless [platform:rpm]" in lists["insights.bindep"]
    assert "ansible-rulebook" in lists["decision-environment.pip"]
    assert "java-21-openjdk-headless [platform:rpm]" in lists["decision-environment.bindep"]


class Environment:
    """A root file system with nothing but Python and the content of an execution environment.

    `seen`: folders of this machine that are mounted at the same path inside.
    """

    def __init__(self, folder: Path, built: Path, seen: list[Path]) -> None:
        self.root, self.wheels, self.built = folder / "root", folder / "wheels", built
        self.wheels.mkdir()
        subprocess.run(["cp", "-a", str(bare(RELEASES[sys.version_info[:2]])), str(self.root)], check=True)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", self.root / "etc" / name)
        # All commands share the same mounts, because the path of a running program can only be read by processes with
        # the same mounts.
        held = inside(self.root, [*seen, self.wheels], "sh", "-c", "echo mounted; exec sleep infinity")
        self.holder = subprocess.Popen(held, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None and self.holder.stdout.readline() == "mounted\n"

    def prepare(self) -> None:
        """Create the virtual environment into which the lists are installed."""
        self.call("python3", "-m", "venv", "/opt/ee")
        self.call("apt-get", "update")
        shutil.copytree(self.built / "collections", self.root / "usr/share/ansible/collections")

    def command(self, *command: str) -> list[str]:
        """Return the command that runs another one in this environment."""
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "--root", "--wd", *command]

    def close(self) -> None:
        """End the process that keeps the mounts; they disappear with the last process."""
        self.holder.kill()
        self.holder.wait()

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": "/opt/ee/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }

    def call(self, *command: str, **variables: str) -> str:
        done = subprocess.run(
            self.command(*command), check=False, capture_output=True, text=True, env={**self.variables, **variables}
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-5000:]}{done.stderr[-3000:]}"
        return done.stdout

    def install(self, name: str, *packages: str) -> None:
        """Install the packages listed for this environment; the Python packages are built on this machine."""
        lists = ["-r", str(self.built / f"{name}.pip"), *packages]
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(self.wheels), *lists, "bindep"],
            check=True,
        )
        for kind in ("pip", "bindep"):
            shutil.copy(self.built / f"{name}.{kind}", self.root / f"opt/{name}.{kind}")
        pip = ["/opt/ee/bin/pip", "install", "--quiet", "--no-index", f"--find-links={self.wheels}"]
        self.call(*pip, "-r", f"/opt/{name}.pip", *packages)
        # bindep gets its own virtual environment, because the image does not keep it.
        self.call("python3", "-m", "venv", "/opt/bindep")
        self.call(*[word.replace("/opt/ee", "/opt/bindep") for word in pip], "bindep")
        missing = subprocess.run(
            self.command("/opt/bindep/bin/bindep", "-b", "-l", "newline", "-f", f"/opt/{name}.bindep"),
            check=False,
            capture_output=True,
            text=True,
            env=self.variables,
        ).stdout.split()
        if missing:
            self.call("apt-get", "install", "-y", "--no-install-recommends", *missing)


class Inside(RoleCluster):
    """Servers whose playbooks run in this environment. The hosts also run inside it and use its programs, but their own
    Python."""

    def __init__(self, environment: Environment, root: Path, names: list[str]) -> None:
        super().__init__(root, names, OLD)
        self.environment = environment
        self.variables["ansible_python_interpreter"] = "/usr/bin/python3"

    def controller(self) -> tuple[list[str], dict[str, str]]:
        return self.environment.command("ansible-playbook"), self.environment.variables


class Alone(Inside):
    """An environment without servers: the demo brings its own inventory."""

    def inventory(self) -> Path:
        path = self.root / "inventory.json"
        path.write_text(json.dumps({"all": {}}))
        return path


@pytest.fixture
def environment(tmp_path: Path, built: Path) -> Iterator[Environment]:
    servers = Path(binary(OLD)).parents[1]
    (tmp_path / "site").mkdir()
    (tmp_path / "demo").mkdir()
    binary(NEW)
    environment = Environment(tmp_path, built, [tmp_path / "site", tmp_path / "demo", servers])
    try:
        environment.prepare()
        yield environment
    finally:
        environment.close()


@pytest.mark.chaos
@pytest.mark.skipif(
    os.geteuid() != 0 or sys.version_info[:2] not in RELEASES, reason="needs root, and the Python of a Debian release"
)
def test_the_lists_are_enough_for_every_playbook(environment: Environment, tmp_path: Path) -> None:
    definition = yaml.safe_load((DEFINITIONS / "execution-environment.yml").read_text())["dependencies"]
    environment.install(
        "execution-environment", definition["ansible_core"]["package_pip"], definition["ansible_runner"]["package_pip"]
    )
    site = Inside(environment, tmp_path / "site", ["n1", "n2", "n3"])
    site.variables.update(nats_server_tls_source="ca", nats_server_tls_ca_dir=str(tmp_path / "site/ca"))
    alone = Alone(environment, tmp_path / "demo", [])
    ran = []

    def run(name: str, *arguments: str, **extra: Any) -> None:
        (alone if name.startswith("demo") else site).playbook(name, *arguments, **extra)
        ran.append(name)

    try:
        lake = {"nats_insights_lake": str(tmp_path / "site/lake")}
        run("deploy")
        run("report", report="all")
        run("diagnose")
        run("snapshot", **lake)
        run("restart", nats_cluster_batch="quorum")
        run("reload")
        site.variables["nats_server_accounts"]["APP"]["users"].append({"user": "app-2", "password": "app-2-pass"})
        run("rotate_credentials")
        run("rotate_certificates", nats_server_tls_renew_before_days=1000, nats_server_tls_cert_days=1500)
        run("capture_advisories", nats_insights_capture_max_bytes="16MiB")
        site.variables.update(site.running(NEW))
        run("upgrade", nats_server_allow_skipped_minors=True)
        site.add("n4")
        run("scale_out")
        run("rebalance")
        run("replica_count", nats_cluster_streams=[{"account": "APP", "stream": "ADVISORIES", "num_replicas": 1}])
        run("replica_count", nats_cluster_streams=[{"account": "APP", "stream": "ADVISORIES", "num_replicas": 3}])
        run("scale_in", nats_server_cluster_leaving=["n4"])
        site.hosts.pop("n4")
        site.kill("n3")
        shutil.rmtree(tmp_path / "site/n3/store")
        run("replace", nats_cluster_replace="n3")
    finally:
        site.kill()
    demo = {"demo_dir": str(tmp_path / "demo"), "demo_binary": binary(OLD), "demo_version": OLD}
    site.hosts.clear()
    try:
        run("demo_supercluster", **demo, demo_topology="supercluster")
        run("demo_remove", **demo, demo_topology="supercluster")
        (tmp_path / "demo/ports.json").unlink()
        run("demo", **demo)
        environment.install("insights")
        spark = {"nats_insights_venv": "/opt/ee", "nats_insights_master": "local[2]", "nats_insights_memory": "1g"}
        run("demo_insights", **demo, **spark)
        run(
            "insights",
            **lake,
            **spark,
            nats_insights_collect=False,
            nats_insights_dir=str(tmp_path / "site/insights"),
            nats_insights_become=False,
            nats_insights_report_fetch=str(tmp_path / "site/report"),
        )
        assert (tmp_path / "site/report/report.html").is_file()
    finally:
        run("demo_remove", **demo)
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert playbooks - set(ran) == {"demo_servers"}, json.dumps(ran)
