# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the files of a release, from `make release` or from a download; exits with 1 if any is missing or differs.

    python tools/release_verify.py FOLDER

It compares the files with SHA256SUMS, the provenance and the bill of materials, installs the artifact in a temporary
folder for `ansible-galaxy collection verify`, compares the files of the wheel with its record, and checks that the
site has a page for each module and that the execution environment contains this artifact. gpgv checks the signatures.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

#: The folders of the environments' definitions, each with a Containerfile.
ENVIRONMENTS = ("decision-environment", "execution-environment", "insights")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the release except SHA256SUMS and the signatures."""
    files = [path for path in folder.iterdir() if path.suffix != ".asc" and path.name != "SHA256SUMS"]
    return {path.name: digest(path.read_bytes()) for path in files}


def members(archive: Path) -> dict[str, bytes]:
    """Return the content of each file of a .tar.gz."""
    with tarfile.open(archive) as opened:
        files = {member.name: opened.extractfile(member) for member in opened.getmembers() if member.isfile()}
        return {name: file.read() for name, file in files.items() if file}


def checksum_problems(folder: Path) -> Iterator[str]:
    """Yield the differences between the files and SHA256SUMS."""
    sums = {name: value for value, name in map(str.split, (folder / "SHA256SUMS").read_text().splitlines())}
    found = checksums(folder)
    for name in sorted(sums.keys() ^ found.keys()):
        yield f"{name} is {'not in SHA256SUMS' if name in found else 'missing, but listed in SHA256SUMS'}"
    for name in sorted(sums.keys() & found.keys()):
        if sums[name] != found[name]:
            yield f"{name} has the SHA-256 {found[name]}, but SHA256SUMS lists {sums[name]}"


def statement_problems(folder: Path, stem: str) -> Iterator[str]:
    """Yield the differences between the files, their provenance and the bill of materials."""
    found = checksums(folder)
    statement = f"{stem}.provenance.json"
    subjects = json.loads((folder / statement).read_text())["subject"]
    if {one["name"]: one["digest"]["sha256"] for one in subjects} != {
        name: value for name, value in found.items() if name != statement
    }:
        yield f"{statement} does not list exactly the files of this folder with their checksums"
    component = json.loads((folder / f"{stem}.cdx.json").read_text())["metadata"]["component"]
    if component["hashes"][0]["content"] != found[f"{stem}.tar.gz"]:
        yield f"{stem}.cdx.json is the bill of materials of another artifact"


def collection_problems(artifact: Path) -> Iterator[str]:
    """Yield the output of ansible-galaxy if the artifact cannot be installed and verified."""
    galaxy = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection"]
    with tempfile.TemporaryDirectory() as work:
        environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": work}
        for command in (
            ["install", "--offline", "-p", work, str(artifact)],
            ["verify", "--offline", "natsops.jetstream"],
        ):
            done = subprocess.run([*galaxy, *command], env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                yield f"`ansible-galaxy collection {command[0]}` refuses {artifact.name}: {done.stdout}{done.stderr}"
                return


def wheel_problems(wheel: Path) -> Iterator[str]:
    """Yield the files of the wheel that differ from its record:
    https://packaging.python.org/en/latest/specifications/recording-installed-packages/"""
    with zipfile.ZipFile(wheel) as opened:
        content = {name: opened.read(name) for name in opened.namelist()}
    (record,) = (name for name in content if name.endswith(".dist-info/RECORD"))
    listed = {name: value for name, value, _size in csv.reader(io.StringIO(content[record].decode()))}
    for name in sorted(listed.keys() | content.keys()):
        value = base64.urlsafe_b64encode(hashlib.sha256(content.get(name, b"")).digest()).rstrip(b"=").decode()
        if name != record and listed.get(name) != f"sha256={value}":
            yield f"{wheel.name}: {name} differs from the wheel's RECORD"


def tree_problems(folder: Path, stem: str) -> Iterator[str]:
    """Yield missing pages of the site, missing environments, and another collection in the execution environment."""
    modules = re.findall(r"plugins/modules/(nats_\w+)\.py", "\n".join(members(folder / f"{stem}.tar.gz")))
    pages = members(folder / f"{stem}-site.tar.gz")
    for page in ("index.html", *(f"collection/{module}_module.html" for module in modules)):
        if page not in pages:
            yield f"{stem}-site.tar.gz has no page {page}"
    defined = members(folder / f"{stem}-environments.tar.gz")
    for name in ENVIRONMENTS:
        if f"{name}/Containerfile" not in defined:
            yield f"{stem}-environments.tar.gz has no Containerfile of {name}"
    wanted = defined.get("execution-environment/_build/requirements.yml", b"").decode()
    if f"collections/{stem}.tar.gz" not in wanted:
        yield f"extensions/execution-environment/execution-environment.yml does not install collections/{stem}.tar.gz"
    packed = {name: content for name, content in defined.items() if name.endswith(".tar.gz")}
    expected = {f"execution-environment/_build/collections/{stem}.tar.gz": (folder / f"{stem}.tar.gz").read_bytes()}
    if packed != expected:
        yield f"{stem}-environments.tar.gz contains {', '.join(packed) or 'no collection'} instead of this artifact"


def problems(folder: Path) -> Iterator[str]:
    """Yield the reasons why these files are not a complete release. A file is opened only if nothing is missing or
    damaged."""
    artifacts = list(folder.glob("natsops-jetstream-*[0-9].tar.gz"))
    if len(artifacts) != 1:
        yield f"{folder} has {len(artifacts)} artifacts natsops-jetstream-VERSION.tar.gz instead of 1"
        return
    artifact = artifacts[0]
    stem = artifact.name.removesuffix(".tar.gz")
    version = stem.rpartition("-")[2]
    wheel = folder / f"jetstream_insights-{version}-py3-none-any.whl"
    needed = [folder / "SHA256SUMS", wheel]
    needed += [
        folder / f"{stem}{end}" for end in (".cdx.json", ".provenance.json", "-site.tar.gz", "-environments.tar.gz")
    ]
    missing = [path.name for path in needed if not path.is_file()]
    if missing:
        yield f"{folder} lacks {', '.join(missing)}"
        return
    damaged = list(checksum_problems(folder))
    yield from damaged
    if damaged:
        return
    built = json.loads(members(artifact)["MANIFEST.json"])["collection_info"]["version"]
    if built != version:
        yield f"{artifact.name} contains version {built}"
    yield from statement_problems(folder, stem)
    yield from collection_problems(artifact)
    yield from wheel_problems(wheel)
    yield from tree_problems(folder, stem)


def main(folder: Path) -> int:
    found = list(problems(folder))
    print("\n".join(found or [f"{folder}: all files of the release are complete and match their checksums"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
