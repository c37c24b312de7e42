# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provides real nats-server binaries for tests and the demo: ``binaries.py VERSION...|all`` prints their paths.

The binaries come from Debian packages. apt fetches them from the mirror in this machine's apt sources, with an apt
configuration separate from the machine's. The binaries are in
``${NATSOPS_CACHE:-~/.cache/natsops-jetstream}/nats-server/<version>/``, next to their package. Root is not needed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from debian_mirror import Mirror, MirrorError, mirrors

SUITES = {"2.9.10": "bookworm", "2.10.27": "trixie", "2.15.1": "testing"}
SHA256 = {
    ("2.9.10-1+b3", "amd64"): "9f69ebb6f612e652382fde175622160dcd81fd97f2356f5da80bb5c3f48513dd",
    ("2.10.27-1+b2", "amd64"): "6d913ac987b78734c08537c2adeb1526cf735f216173a9170d94b185fcfe6f8a",
    ("2.15.1-1", "amd64"): "31ef4ceaa84e8248d449e508472e3770c17c3695cb5cb0ee96e03912724ea884",
}
"""Package version and architecture to the package's sum. Others are trusted by apt's signature check alone."""


class FetchError(Exception):
    """A binary could not be fetched; the message contains the source and the reason."""


def cache_dir() -> Path:
    """Return the folder for everything that may be fetched or built again."""
    return Path(os.environ.get("NATSOPS_CACHE") or Path.home() / ".cache" / "natsops-jetstream")


def nats_server(version: str) -> Path:
    """Return the path of the nats-server binary of this version, fetching it if it is missing; raise FetchError if that
    fails."""
    if version not in SUITES:
        raise FetchError(f"nats-server {version} is not among the known versions: {', '.join(SUITES)}")
    store = cache_dir() / "nats-server"
    store.mkdir(parents=True, exist_ok=True)
    binary = store / version / "nats-server"
    with _locked(store / f".lock-{version}"):
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=store, prefix=f".{version}-") as work:
                _fetch(version, Path(work), store / version)
    return binary


def programs(package: str, suite: str) -> Path:
    """Return the folder that contains the unpacked newest version of a Debian package, fetching it if it is missing;
    raise FetchError if that fails.

    The package is not installed: its programs are run from the folder.
    """
    store = cache_dir() / "debian"
    store.mkdir(parents=True, exist_ok=True)
    folder = store / f"{package}-{suite}"
    with _locked(store / f".lock-{package}-{suite}"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=store, prefix=f".{package}-") as work:
                found = _download(suite, Path(work), lambda apt: apt.newest(package))
                _run(["dpkg-deb", "-x", str(found), str(Path(work) / "ready")])
                (Path(work) / "ready").rename(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(suite: str, work: Path, wanted: Callable[[_Apt], Path]) -> Path:
    """Return the result of the first mirror that has the package; raise FetchError if none has it."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise FetchError("apt-get and dpkg-deb are needed to fetch Debian's packages, and this machine has none")
    try:
        candidates = mirrors()
    except MirrorError as error:
        raise FetchError(str(error)) from error
    problems = []
    for number, mirror in enumerate(candidates):
        try:
            return wanted(_Apt(mirror, suite, work / f"apt{number}"))
        except FetchError as error:
            problems.append(f"{mirror.uri}: {error}")
    raise FetchError(f"{suite} could not be used:\n  " + "\n  ".join(problems))


def _fetch(version: str, work: Path, target: Path) -> None:
    """Fetch, check and unpack one version below ``work``, then move it to ``target`` in one step."""
    try:
        package = _download(SUITES[version], work, lambda apt: apt.download(version))
    except FetchError as error:
        raise FetchError(f"nats-server {version} could not be fetched: {error}") from error
    unpacked, ready = work / "unpacked", work / "ready"
    _run(["dpkg-deb", "-x", str(package), str(unpacked)])
    ready.mkdir()
    shutil.copy2(next(unpacked.glob("usr/*bin/nats-server")), ready / "nats-server")
    shutil.copyfile(package, ready / "nats-server.deb")
    said = _run([str(ready / "nats-server"), "--version"]).strip()
    if not said.endswith(f"v{version}"):
        raise FetchError(f"the binary in {package.name} calls itself {said!r}, not v{version}")
    if target.exists():
        shutil.rmtree(target)
    ready.rename(target)


class _Apt:
    """An apt with a separate configuration, lists and cache, for one suite of one mirror."""

    def __init__(self, mirror: Mirror, suite: str, work: Path) -> None:
        self.suite = suite
        self.work = work
        for folder in ("etc", "state/lists/partial", "cache/archives/partial", "packages"):
            (work / folder).mkdir(parents=True)
        (work / "status").touch()
        keyring = mirror.signed_by
        if not keyring.startswith("/"):
            keyring = str(work / "key.asc")
            Path(keyring).write_text(mirror.signed_by + "\n")
        (work / "etc/sources.list").write_text(f"deb [signed-by={keyring}] {mirror.uri} {suite} main\n")
        (work / "apt.conf").write_text(
            f'Dir::Etc "{work}/etc"; Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null";\n'
            f'Dir::State "{work}/state"; Dir::State::status "{work}/status"; Dir::Cache "{work}/cache";\n'
            'Acquire::Languages "none"; Acquire::Retries "3"; APT::Sandbox::User "";\n'
            'Acquire::Check-Valid-Until "true"; Acquire::AllowInsecureRepositories "false";\n' + _machine_proxies()
        )
        self.env = {**os.environ, "APT_CONFIG": str(work / "apt.conf"), "LC_ALL": "C"}
        self.architecture = _run(["dpkg", "--print-architecture"]).strip()

    def download(self, version: str) -> Path:
        """Download the package that holds this version; return its path; raise FetchError if that fails."""
        # A mirror's testing suite may be a frozen copy whose Release file has expired. The signature of this file is
        # still checked, and the package has a known checksum, so an old copy cannot introduce another package.
        pinned = self.suite == "testing" and any(
            package.split("-", maxsplit=1)[0] == version and architecture == self.architecture
            for package, architecture in SHA256
        )
        expired = ["-o", "Acquire::Check-Valid-Until=false"] if pinned else []
        self._apt("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any", *expired)
        offered = [line.split("|")[1].strip() for line in self._apt("apt-cache", "madison", "nats-server").splitlines()]
        wanted = [package for package in offered if package.split("-", maxsplit=1)[0] == version]
        if not wanted:
            raise FetchError(f"suite {self.suite} has nats-server {', '.join(offered) or 'not at all'}, not {version}")
        self._apt("apt-get", "download", "-q", f"nats-server={wanted[0]}", cwd=self.work / "packages")
        package = next((self.work / "packages").glob("*.deb"))
        sum_wanted = SHA256.get((wanted[0], self.architecture))
        if pinned and not sum_wanted:
            raise FetchError(f"no SHA-256 is known for nats-server {wanted[0]}, which {self.suite} offers now")
        sum_found = hashlib.sha256(package.read_bytes()).hexdigest()
        if sum_wanted and sum_found != sum_wanted:
            raise FetchError(f"{package.name} has the SHA-256 {sum_found}, expected {sum_wanted}")
        return package

    def newest(self, name: str) -> Path:
        """Download the newest version of the package; return its path; raise FetchError if that fails."""
        self._apt("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")
        self._apt("apt-get", "download", "-q", name, cwd=self.work / "packages")
        return next((self.work / "packages").glob("*.deb"))

    def _apt(self, *command: str, cwd: Path | None = None) -> str:
        return _run(list(command), env=self.env, cwd=cwd)


def _machine_proxies() -> str:
    """Return the proxy settings of the machine's own apt configuration: how to reach the mirror depends on the site."""
    lines = _run(["apt-config", "dump"]).splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith("Acquire::") and "proxy" in line.split()[0].lower())


def _run(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith(("E:", "W:"))]
        reason = "; ".join(said) or (done.stderr or done.stdout).strip()
        raise FetchError(f"`{' '.join(command[:2])}` failed: {reason}")
    return done.stdout


def main() -> int:
    """Print the path of each requested binary; return 1 with the reason on stderr if one cannot be fetched."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION|all", help=", ".join(SUITES))
    wanted = parser.parse_args().versions
    try:
        for version in SUITES if "all" in wanted else wanted:
            print(nats_server(version), flush=True)
    except FetchError as error:
        print(f"binaries.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
