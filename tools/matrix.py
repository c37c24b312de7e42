# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the supported versions, slice by slice, and writes docs/compatibility.md from the results (`make test-matrix`).

    python tools/matrix.py [SLICE[:COLUMN]…]     by default all of them, see SLICES
    python tools/matrix.py document              runs nothing: only writes the tables of SUPPORT again

The table keeps the results of other slices, so it can be completed in several runs. The table also lists the slices
that have not run. An ansible-core that needs a newer Python than this machine has runs on a newer Debian release, in a
separate root file system with fresh environments (root only).
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/lab"))

import rootfs  # noqa: E402
from binaries import cache_dir  # noqa: E402
from run_parts import read_counts  # noqa: E402

TABLE = ROOT / "docs/compatibility.md"
COUNTS = ROOT / ".cache/matrix/junit.xml"
#: The tests of Ansible itself, of the inventory plugin, of roles on hosts and of complete playbooks, some with real
#: servers.
CHOSEN = ("ansible", "assets", "demo", "host_role", "inventory", "playbook_report", "waiting")
INTEGRATION = " ".join(f"tests/integration/test_{name}.py" for name in CHOSEN)
RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13"}


@dataclass(frozen=True)
class Slice:
    """The tests for one set of versions: make targets with their variables."""

    name: str
    columns: tuple[str, ...]
    targets: Mapping[str, Sequence[str]]
    release: str = ""
    """The Debian in whose root file system it runs; empty: this machine."""
    environment: Mapping[str, str] = field(default_factory=dict)


def core(version: str, release: str = "") -> Slice:
    targets = {
        "units": ["test-unit", f"CORE={version}"],
        "sanity": [f"sanity-{version}"],
        "integration": ["test-integration", f"CORE={version}", f"INTEGRATION={INTEGRATION}"],
    }
    return Slice(f"core-{version}", (f"ansible-core {version}",), targets, release)


def hosts(release: str, server: str) -> Slice:
    environment = {"MATRIX_RELEASE": release, "MATRIX_NATS_SERVER": server}
    columns = (RELEASES[release], f"nats-server {server}")
    return Slice(f"{release}-{server}", columns, {"deployment": ["test-molecule-systemd"]}, environment=environment)


def scenario(name: str, hosts_used: str) -> Slice:
    """Return the slice of a molecule scenario, which selects its own version of nats-server."""
    return Slice(f"scenario-{name}", (f"`{name}`", hosts_used), {"scenario": [f"test-molecule-{name}"]})


SLICES = [
    *map(core, ("2.16", "2.17", "2.18", "2.19")),
    core("2.21", release="trixie"),
    *(hosts(release, server) for release in RELEASES for server in ("2.10.27", "2.15.1")),
    *(scenario(name, "processes") for name in ("default", "leafnode", "operator", "supercluster", "upgrade")),
    *(scenario(name, "systemd hosts") for name in ("sudo", "tls")),
]

RAN, WRITTEN, NOT_SUPPORTED = "ran", "written, not run", "not supported"


class Row(NamedTuple):
    """A row of the support tables: a platform or a capability, its state, and the tests or the reason."""

    name: str
    state: str
    note: str


#: Platforms and capabilities beyond the slices. `written, not run`: the code is based on the programs' documentation
#: and has unit tests, but has never run on such a host. Append rows to a table; test_matrix.py checks their states and
#: tests.
SUPPORT: Mapping[str, Sequence[Row]] = {
    "platform": (
        Row("Debian 12, amd64", RAN, "all suites"),
        Row("Debian 13, amd64", RAN, "`make test-matrix`, see above"),
        Row("Debian 12 and 13, minimal installation", RAN, "systemd, SSH, sudo, Python: `tests/lab/test_readme.py`"),
        Row("Ubuntu 22.04, 24.04", WRITTEN, "uses apt, like Debian"),
        Row("EL 9: RHEL, Rocky, AlmaLinux", WRITTEN, "dnf and SELinux"),
        Row("arm64", WRITTEN, "the release is selected by architecture, with its checksum"),
        Row("SLES, openSUSE", WRITTEN, "`nats_server_install_method` `release` or `file` only"),
        Row(
            "EL 8, Ubuntu 20.04, Debian 10",
            NOT_SUPPORTED,
            "Python is older than 3.9, unless a newer version is installed",
        ),
        Row(
            "Hosts without systemd", RAN, "`nats_server_service_backend=process`: `tests/integration/test_host_role.py`"
        ),
        Row("Docker and Podman, as molecule drivers", WRITTEN, "`tests/unit/roles/test_molecule_drivers.py`"),
        Row("Windows, macOS, BSD hosts", NOT_SUPPORTED, "modules read `/proc`"),
    ),
    "capability": (
        Row("Login as an ordinary user with a sudo password", RAN, "`make test-lab`; as root in the nightly tests"),
        Row(
            "Rotations, `replace`, `rescue` and other operations as that user",
            RAN,
            "`tests/lab/test_operations.py`, nightly",
        ),
        Row("The minimal sudo rules of [security](security.md)", RAN, "`make test-lab`"),
        Row("Backups as a separate user, with and without pipelining", RAN, "`tests/lab/test_backup.py`"),
        Row("Python older than 3.9 on a host is refused", RAN, "`tests/unit/plugin_utils/test_host_python.py`"),
        Row("Updates with apt, `maintenance_patch`", RAN, "`tests/lab/test_patch.py`"),
        Row("Updates with dnf, `maintenance_patch`", WRITTEN, "`tests/unit/module_utils/host/test_packages.py`"),
        Row("Java and venv packages of EL and SLES", WRITTEN, "`tests/unit/module_utils/host/test_packages.py`"),
        Row(
            "Downloads through a proxy",
            RAN,
            "releases: `tests/integration/test_host_role.py`; pip, apt and dnf read the same variables",
        ),
        Row("Firewall with nftables", RAN, "`tests/lab/test_firewall.py`, Debian 12"),
        Row(
            "Firewall with firewalld",
            WRITTEN,
            "run by hand on Debian 12 with firewalld 1.3; no test of this project runs it",
        ),
        Row("SELinux: preflight and contexts", WRITTEN, "`tests/unit/module_utils/server_config/test_validation.py`"),
        Row("Certificates that hosts renew", RAN, "`tests/lab/test_host_certificates.py`"),
        Row(
            "AWX 24 and its jobs",
            WRITTEN,
            "a stand-in for AWX's API, and jobs with AWX's variables: `tests/integration/test_awx_configure.py`, "
            "`tests/integration/test_awx_jobs.py`",
        ),
        Row(
            "Images of the execution environments",
            WRITTEN,
            "ansible-builder wrote the build contexts; their packages ran without a container: "
            "`tests/integration/test_execution_environment.py`",
        ),
    ),
}


class Here:
    """Runs make targets on this machine."""

    python = f"{sys.version_info.major}.{sys.version_info.minor}"

    def make(self, words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, Path]:
        """Run make targets; return the exit status, and the path of pytest's counts, if there are any."""
        COUNTS.parent.mkdir(parents=True, exist_ok=True)
        COUNTS.unlink(missing_ok=True)
        # The variables of the make process that runs this program are removed.
        own = {
            name: value
            for name, value in os.environ.items()
            if name not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
        }
        command = ["make", "--no-print-directory", *words, f"JUNIT={COUNTS}"]
        return subprocess.call(command, cwd=ROOT, env={**own, **environment}), COUNTS

    def close(self) -> None:
        """Do nothing, because nothing was created."""


class Debian:
    """A root file system with a different release, a copy of the sources, and the caches and package index of this
    machine."""

    def __init__(self, release: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="natsops-matrix-", dir="/var/tmp"))
        subprocess.run(["cp", "-a", f"{rootfs.controller(release)}/.", str(self.root)], check=True)
        for name in ("etc/resolv.conf", "etc/hosts", "etc/pip.conf"):
            if Path("/", name).exists():
                shutil.copy(Path("/", name), self.root / name)
        self.seen = list(dict.fromkeys([cache_dir(), *self._pip_folders()]))
        self._copy_sources()
        version = "import sys; print('%d.%d' % sys.version_info[:2])"
        self.python = subprocess.check_output(rootfs.inside(self.root, [], "python3", "-c", version), text=True).strip()

    def close(self) -> None:
        shutil.rmtree(self.root)

    @staticmethod
    def _pip_folders() -> Iterator[Path]:
        """Yield the folders of this machine from which pip takes packages or certificates."""
        listed = subprocess.check_output([sys.executable, "-m", "pip", "config", "list"], text=True)
        for line in listed.splitlines():
            for word in str(ast.literal_eval(line.partition("=")[2])).split():
                path = Path(word.removeprefix("file://"))
                if path.is_absolute() and path.exists():
                    yield path if path.is_dir() else path.parent

    def _copy_sources(self) -> None:
        names = subprocess.check_output(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
        )
        known = b"\0".join(name for name in names.split(b"\0") if name and os.path.lexists(ROOT / os.fsdecode(name)))
        pack = ["tar", "--create", "--null", "--files-from=-"]
        packed = subprocess.run(pack, cwd=ROOT, check=True, capture_output=True, input=known).stdout
        (self.root / "checkout").mkdir()
        subprocess.run(["tar", "--extract"], cwd=self.root / "checkout", check=True, input=packed)
        self._call("git", "init", "--quiet")
        self._call("git", "add", "--all")

    def _call(self, *command: str, environment: Mapping[str, str] | None = None) -> int:
        words = rootfs.inside(self.root, self.seen, "sh", "-c", 'cd /checkout && exec "$@"', "sh", *command)
        own = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
        }
        passed = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "http", "HTTP"))
        }
        return subprocess.call(words, env={**passed, **own, "NATSOPS_CACHE": str(cache_dir()), **(environment or {})})

    def make(self, words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, Path]:
        """Run make targets in the root file system; the arguments and the result are those of Here.make."""
        report = self.root / "tmp/junit.xml"
        report.unlink(missing_ok=True)
        return self._call(
            "make", "--no-print-directory", *words, "JUNIT=/tmp/junit.xml", environment=environment
        ), report


def outcome(status: int, report: Path) -> str:
    """Return the table cell for an outcome."""
    if not report.is_file():
        return "failed" if status else "passed"
    passed, failed, skipped, _reason = read_counts(report)
    parts = [f"{passed} passed"] + [f"{failed} failed"] * bool(failed) + [f"{skipped} skipped"] * bool(skipped)
    return ", ".join(parts) if failed or not status else "failed"


def results(one: Slice) -> dict[str, str]:
    """Return a slice's row of the table: its Python version and its cells."""
    told = TABLE.read_text() if TABLE.is_file() else ""
    for line in told.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "units" in one.targets and cells[:1] == [one.columns[0].removeprefix("ansible-core ")]:
            return {"python": cells[1].partition(",")[0], **dict(zip(one.targets, cells[2:]))}
        if tuple(cells[:2]) == one.columns:
            return dict(zip(one.targets, cells[2:]))
    return {}


def run(one: Slice, columns: Iterable[str]) -> bool:
    """Run these columns of a slice, store the results, and return whether all of them passed."""
    where = Debian(one.release) if one.release else Here()
    passed = True
    try:
        for column in columns:
            print(f"\n=== {one.name}: make {' '.join(one.targets[column])}", flush=True)
            cell = outcome(*where.make(one.targets[column], one.environment))
            write({one.name: {**results(one), "python": where.python, column: cell}})
            passed = passed and "failed" not in cell
    finally:
        where.close()
    return passed


def rows(kind: str, told: Mapping[str, Mapping[str, str]], *first_columns: str) -> Iterator[str]:
    """Yield the lines of the table of the slices that have this kind of target."""
    slices = [one for one in SLICES if kind in one.targets]
    columns = list(slices[0].targets)
    head = [*first_columns, *columns]
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    for one in slices:
        result = told[one.name]
        first = list(one.columns)
        if "Python" in first_columns:
            system = f", {RELEASES[one.release]}" if one.release else ""
            first = [one.columns[0].removeprefix("ansible-core "), result.get("python", "") + system]
        yield f"| {' | '.join([*first, *(result.get(column, 'not run') for column in columns)])} |"


def document(told: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of docs/compatibility.md from the results of all slices by name."""
    yield "<!-- Written by `make test-matrix` from its own results. -->"
    yield ""
    yield "# Tested versions"
    yield ""
    yield "On each controller, the matrix runs the unit tests, `ansible-test sanity`, and the tests with real servers that"
    yield "exercise Ansible most."
    yield ""
    yield from rows("units", told, "ansible-core", "Python")
    yield ""
    yield "Molecule's scenario `systemd` deploys three systemd hosts twice, applies a change by restarts as check mode predicted,"
    yield "and verifies the cluster."
    yield ""
    yield from rows("deployment", told, "hosts", "servers")
    yield ""
    yield "Other scenarios:"
    yield ""
    yield from rows("scenario", told, "name", "hosts")
    yield ""
    yield "Every `make test` runs ansible-core 2.16 and 2.19 and both versions of nats-server. `make test-chaos` also runs"
    yield "nats-server 2.9.10, from which upgrades may start."
    yield ""
    yield "## Platforms and capabilities"
    yield ""
    yield "*Ran*: a test of this project ran it. *Written, not run*: the code follows the documentation of the programs that it"
    yield "uses and has unit tests, but no such host was available; please report your results. The roles' `meta/main.yml` lists"
    yield "only platforms on which the tests ran."
    for kind, support in SUPPORT.items():
        yield ""
        yield f"| {kind} | state | tests, or the reason |"
        yield "| --- | --- | --- |"
        for row in support:
            yield f"| {row.name} | {row.state} | {row.note} |"


def write(now: Mapping[str, Mapping[str, str]]) -> None:
    """Write docs/compatibility.md with these results and the recorded results of the other slices."""
    told = {each.name: results(each) for each in SLICES}
    TABLE.write_text("\n".join(document({**told, **now})) + "\n")


def main(wanted: Sequence[str]) -> int:
    if wanted == ["document"]:
        write({})
        return 0
    known = {f"{one.name}:{column}": one for one in SLICES for column in one.targets}
    chosen = [key for key in known if not wanted or key in wanted or known[key].name in wanted]
    if unknown := set(wanted) - set(known) - {one.name for one in SLICES}:
        raise SystemExit(f"not known: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    passed = [
        run(one, [key.partition(":")[2] for key in chosen if known[key] is one])
        for one in SLICES
        if any(known[key] is one for key in chosen)
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
