# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The offline bundle contains only verified files; tests/lab/test_offline.py installs from a bundle."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import ansible
import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
PYTHON = CHECKOUT / ".cache/venv-release/bin/python"
KNOWN = json.loads((CHECKOUT / "roles/nats_server/files/release_sums.json").read_text())
#: Calls a function of the tool in its own environment, and prints the result as JSON or the refusal.
CALL = """
import json, sys
from pathlib import Path
sys.path.insert(0, "tools/offline")
import build
arguments = json.loads(sys.argv[1])
try:
    print(json.dumps(eval(sys.argv[2], {**vars(build), **arguments}), default=str))
except (build.ReleaseError, build.argparse.ArgumentTypeError) as error:
    print(json.dumps(f"refused: {error}"))
"""

pytestmark = pytest.mark.skipif(not ansible.__version__.startswith("2.19"), reason="the same with each ansible-core")


def call(expression: str, **arguments: str) -> Any:
    command = [str(PYTHON), "-c", CALL, json.dumps(arguments), expression]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder like GitHub's, with a release that nats-io did not build."""
    folder = tmp_path / "releases/v2.10.27"
    folder.mkdir(parents=True)
    (folder / "nats-server-v2.10.27-linux-amd64.tar.gz").write_bytes(b"not the release")
    return folder.parent


def add(server: str, target: Path, releases: Path) -> Any:
    call_it = 'add_server(parsed_server(server), "amd64", Path(target), releases)'
    return call(call_it, server=server, target=str(target), releases=releases.as_uri())


def test_download_with_another_checksum_is_refused(release: Path, tmp_path: Path) -> None:
    refusal = add("2.10.27", tmp_path, release)
    assert refusal.startswith(f"refused: {release.as_uri()} has nats-server 2.10.27 with the SHA-256 ")
    assert f"but {KNOWN['2.10.27']['amd64']} is expected" in refusal


def test_file_needs_a_known_or_given_checksum(release: Path, tmp_path: Path) -> None:
    assert "2.15.1" not in KNOWN, "use another version without a known checksum"
    for server in ("2.15.1", f"2.10.27={tmp_path}/nats-server.deb"):
        assert "Verify the file yourself and pass 2.1" in add(server, tmp_path, release)
    package = tmp_path / "nats-server.deb"
    package.write_bytes(b"a package")
    other = hashlib.sha256(b"another package").hexdigest()
    assert "do not use the file" in add(f"2.15.1={package}@{other}", tmp_path, release)
    own = hashlib.sha256(package.read_bytes()).hexdigest()
    added = Path(add(f"2.15.1={package}@{own}", tmp_path, release))
    assert added.read_bytes() == package.read_bytes()
    assert "not VERSION, VERSION=FILE" in add("latest", tmp_path, release)


def test_entries_of_a_lock_depend_on_the_python_version(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(
        "# made by make lock\nold==1.0 ; python_full_version < '3.10' \\\n    --hash=sha256:00\n    # via other\n"
        "other[extra]==2.0 \\\n    --hash=sha256:01 \\\n    --hash=sha256:02\n"
    )
    both = 'list(lock_entries(Path(lock), python, "x86_64"))'
    assert call(both, lock=str(lock), python="3.11") == [
        "other[extra]==2.0 \\\n    --hash=sha256:01 \\\n    --hash=sha256:02\n"
    ]
    assert [entry.partition(" ")[0] for entry in call(both, lock=str(lock), python="3.9")] == [
        "old==1.0",
        "other[extra]==2.0",
    ]


def test_bundle_without_a_server_is_refused(tmp_path: Path) -> None:
    command = [str(PYTHON), "tools/offline/build.py", str(tmp_path / "out"), "artifact.tar.gz"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a bundle needs nats-server: make offline SERVERS=" in done.stderr
    assert not (tmp_path / "out").exists()
