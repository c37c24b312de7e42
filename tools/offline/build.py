# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds an offline bundle, which installs the collection on a controller without a network: `make offline`.

    python tools/offline/build.py FOLDER ARTIFACT --server VERSION[=FILE[@SHA256]] … [--python 3.11 …] [--insights]

The bundle has the artifact, nats-server, and the Python packages of the controller and of the programs on hosts, with
--insights also those of Spark. Packages are exactly those of the locks. A release of nats-server is downloaded and
compared with the checksum in the collection; a FILE (.tar.gz, .zip, .deb, or a binary) needs SHA256 if the collection
has no checksum for it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.markers import Marker

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

from release import ReleaseError, digest, packed  # noqa: E402  (tools is not a package)

RELEASES = "https://github.com/nats-io/nats-server/releases/download"
SUMS = json.loads((ROOT / "roles/nats_server/files/release_sums.json").read_text())
#: Python's name of each architecture.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
#: The oldest Python of a controller, for ansible-core 2.19, and of a job of the insights.
OLDEST = (3, 11)
#: Wheels for the glibc of Debian 12, Ubuntu 22.04, EL 9 and newer.
GLIBC_MINORS = range(5, 35)


@dataclass(frozen=True)
class Server:
    """A nats-server for the bundle: `file` is empty for a release that is downloaded, `checksum` if the collection has
    it."""

    version: str
    file: str = ""
    checksum: str = ""


def parsed_server(text: str) -> Server:
    """Return the server of an argument VERSION[=FILE[@SHA256]]."""
    found = re.fullmatch(r"(\d+\.\d+\.\d+)(?:=([^@]+)(?:@([0-9a-f]{64}))?)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not VERSION, VERSION=FILE or VERSION=FILE@SHA256")
    return Server(*(part or "" for part in found.groups()))


def lock_entries(lock: Path, python: str, machine: str) -> Iterator[str]:
    """Yield the entries of a lock that apply to this Python version and architecture, without their conditions."""
    environment = {
        "implementation_name": "cpython",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    for entry in re.split(r"\n(?=[a-z0-9])", lock.read_text()):
        head = re.match(r"([a-z0-9.-]+(?:\[[^]]*\])?==[^\s;]+)(?: ; (.+?))?( \\\n.*)", entry, re.DOTALL)
        if head and (not head[2] or Marker(head[2]).evaluate(environment)):
            yield head[1] + re.sub(r"\n *#.*", "", head[3])


def download_packages(lock: Path, pythons: Sequence[str], architecture: str, target: Path) -> None:
    """Download the packages of a lock for these Python versions. Raises ReleaseError if pip fails."""
    machine = MACHINES[architecture]
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    platforms += [f"--platform=manylinux2014_{machine}", f"--platform=linux_{machine}"]
    for python in pythons:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as selected:
            selected.write("\n".join(lock_entries(lock, python, machine)) + "\n")
            selected.flush()
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            command += ["--no-deps", "--require-hashes", f"--dest={target}", f"--python-version={python}", *platforms]
            done = subprocess.run(
                [*command, f"--requirement={selected.name}"], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise ReleaseError(
                f"the packages of {lock.name} for Python {python} were not downloaded: {done.stderr.strip()}"
            )


def add_server(server: Server, architecture: str, target: Path, releases: str = RELEASES) -> Path:
    """Copy or download nats-server into the folder; return its path. Raises ReleaseError unless the checksum is
    known and correct."""
    known = SUMS.get(server.version, {}).get(architecture, "")
    name = f"nats-server-v{server.version}-linux-{architecture}.tar.gz"
    expected = server.checksum or (known if not server.file or Path(server.file).name == name else "")
    if not expected:
        raise ReleaseError(
            f"nats-server {server.version} for {architecture}: the collection has no checksum for "
            f"{server.file or 'this release'}. Verify the file yourself and pass {server.version}=FILE@SHA256."
        )
    if server.file:
        path = Path(shutil.copyfile(server.file, target / f"{server.version}-{Path(server.file).name}"))
    else:
        path = target / name
        with (
            urllib.request.urlopen(f"{releases}/v{server.version}/{name}", timeout=60) as source,
            path.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
    if digest(path) != expected:
        raise ReleaseError(
            f"{server.file or releases} has nats-server {server.version} with the SHA-256 {digest(path)}, but {expected} is "
            "expected. Download it again; if the checksum stays, do not use the file."
        )
    return path


def variables(servers: dict[str, Path]) -> str:
    """Return the variables of the roles; @FOLDER@ represents the folder of the bundle."""
    names = {version: path.name for version, path in servers.items()}
    sums = {version: digest(path) for version, path in servers.items()}
    content = {
        "nats_server_version": list(servers)[-1],
        "nats_server_install_method": "file",
        "nats_server_file_src": f"@FOLDER@/nats-server/{{{{ {names}[nats_server_version] }}}}",
        "nats_server_file_checksum": f"{{{{ {sums}[nats_server_version] }}}}",
        "nats_download_wheels": "@FOLDER@/wheels",
    }
    return "---\n# Written by install.sh of the offline bundle.\n" + yaml.safe_dump(
        content, sort_keys=False, width=1000
    )


def build(folder: Path, artifact: Path, arguments: argparse.Namespace) -> Path:
    """Build the bundle in the folder; return the path of its archive."""
    architecture, pythons = arguments.architecture, arguments.python
    name = f"{artifact.name.removesuffix('.tar.gz')}-offline-linux-{architecture}"
    with tempfile.TemporaryDirectory(dir=folder) as work:
        bundle = Path(work, name)
        for part in ("wheels", "nats-server"):
            (bundle / part).mkdir(parents=True)
        shutil.copy(artifact, bundle)
        servers = {
            server.version: add_server(server, architecture, bundle / "nats-server") for server in arguments.server
        }
        (bundle / "variables.yml.in").write_text(variables(servers))
        new = [python for python in pythons if tuple(map(int, python.split("."))) >= OLDEST]
        shutil.copy(ROOT / "requirements/demo.txt", bundle / "controller.txt")
        text = (HERE / "install.sh").read_text().replace("@CONTROLLERS@", " ".join(new))
        (bundle / "install.sh").write_text(text)
        (bundle / "install.sh").chmod(0o755)
        locks = {ROOT / "requirements/demo.txt": new, ROOT / "requirements/offline.txt": pythons}
        locks |= dict.fromkeys(sorted((ROOT / "roles/nats_program/files/locks").glob("*.txt")), pythons)
        if arguments.insights:
            locks[ROOT / "roles/nats_insights/files/requirements-locked.txt"] = new
        for lock, versions in locks.items():
            download_packages(lock, versions, architecture, bundle / "wheels")
        files = sorted(path for path in bundle.rglob("*") if path.is_file())
        sums = "".join(f"{digest(path)}  {path.relative_to(bundle)}\n" for path in files)
        (bundle / "SHA256SUMS").write_text(sums)
        return packed(folder / f"{name}.tar.gz", Path(work))


def main() -> int:
    """Run the command line; return 1 for a refusal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--server", type=parsed_server, action="append", default=[])
    parser.add_argument("--python", nargs="+", default=["3.11", "3.13"], metavar="VERSION")
    parser.add_argument("--architecture", choices=MACHINES, default="amd64")
    parser.add_argument("--insights", action="store_true")
    arguments = parser.parse_args()
    if not arguments.server:
        print(
            "offline: a bundle needs nats-server: make offline SERVERS=2.12.15, or VERSION=FILE@SHA256", file=sys.stderr
        )
        return 1
    arguments.folder.mkdir(parents=True, exist_ok=True)
    try:
        print(build(arguments.folder.resolve(), arguments.artifact.resolve(), arguments))
    except (OSError, ReleaseError) as error:
        print(f"offline: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
