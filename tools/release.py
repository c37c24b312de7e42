# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects the files of a release from a checkout without changes, after building them twice: `make release`.

    python tools/release.py check [--key KEY]
    python tools/release.py collect [--key KEY] FOLDER ARTIFACT BILL [NAME=TREE …]

FOLDER then contains the artifact and its bill of materials, the wheel of the insights, one archive for each tree (the
site of the documents, the definitions of the environments), the provenance of these files (in-toto, SLSA 1.0), and
SHA256SUMS. With KEY, gpg signs SHA256SUMS and the manifest of the artifact, which `ansible-galaxy collection verify`
checks. The second build uses a copy of the commit in another folder: a file that git does not track, or a time or a
path in the output, makes the two builds differ.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from artifact import START_OF_1980
from google.protobuf.json_format import MessageToDict
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

ROOT = Path(__file__).resolve().parent.parent
PREDICATE = "https://slsa.dev/provenance/v1"
#: Locks of the environments that produce the files of a release.
BUILD_LOCKS = ("dev", "docs", "release")


class ReleaseError(Exception):
    """A release was refused; the message contains the cause, the place and the remedy."""


def run_command(*command: str, folder: Path = ROOT, **options: Any) -> str:
    """Return the output of a command. Raise ReleaseError if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed in {folder}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def clean_commit() -> str:
    """Return the commit of the checkout. Raise ReleaseError if files differ from it."""
    changed = run_command("git", "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(
            f"{ROOT} has changes, which the provenance would not name: {', '.join(line[3:] for line in changed[:5])}. "
            "Commit or remove them, then run `make release` again."
        )
    return run_command("git", "rev-parse", "HEAD").strip()


def check_key(key: str) -> None:
    """Raise ReleaseError unless gpg has the secret key."""
    done = subprocess.run(["gpg", "--batch", "--list-secret-keys", key], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(
            f"gpg has no secret key {key!r}, so nothing was built. Import the key or set GNUPGHOME; without KEY, the "
            "release is not signed."
        )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def built_twice(folder: Path, artifact: Path, copy: Path, again: Path) -> list[Path]:
    """Copy the artifact and build the wheel into the folder; return both. Raise ReleaseError if a build of the
    copy, in the folder `again`, differs from them."""
    for root, target in ((ROOT, folder), (copy, again)):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
        run_command(*build, folder=root / "roles/nats_insights/files")
    shutil.copy(artifact, folder)
    run_command("python", str(copy / "tools/artifact.py"), str(again))
    (wheel,) = folder.glob("*.whl")
    for path in (folder / artifact.name, wheel):
        if digest(path) != digest(again / path.name):
            raise ReleaseError(
                f"two builds of {path.name} differ: compare {artifact.parent / path.name} with a build of a fresh clone. "
                "Ignored files in the checkout are the usual reason: run `make clean`."
            )
    return [folder / artifact.name, wheel]


def packed(target: Path, tree: Path) -> Path:
    """Write the files of a folder to a .tar.gz without times and owners; equal files give equal bytes."""
    with (
        target.open("wb") as written,
        gzip.GzipFile(filename="", fileobj=written, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for path in sorted(path for path in tree.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(path.relative_to(tree)))
            member.size, member.mtime = path.stat().st_size, START_OF_1980
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                archive.addfile(member, file)
    return target


def provenance(files: Sequence[Path], commit: str) -> dict[str, Any]:
    """Return the in-toto statement that these files come from this commit and the locked packages."""
    repository = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    # GitHub sets these variables in its workflows.
    workflow, run = os.environ.get("GITHUB_WORKFLOW_REF"), os.environ.get("GITHUB_RUN_ID")
    locks = [Path("requirements", f"{name}.txt") for name in BUILD_LOCKS]
    predicate = {
        "buildDefinition": {
            "buildType": f"{repository}/blob/{commit}/docs/internals/releasing.md",
            "externalParameters": {"repository": repository, "commit": commit, "command": "make release"},
            "resolvedDependencies": [
                {"uri": f"git+{repository}@{commit}", "digest": {"gitCommit": commit}},
                *({"name": str(lock), "digest": {"sha256": digest(ROOT / lock)}} for lock in locks),
            ],
        },
        "runDetails": {
            "builder": {"id": f"https://github.com/{workflow}" if workflow else f"{repository}/blob/{commit}/Makefile"},
            **({"metadata": {"invocationId": f"{repository}/actions/runs/{run}"}} if run else {}),
        },
    }
    subjects = [ResourceDescriptor(name=path.name, digest={"sha256": digest(path)}) for path in files]
    for subject in subjects:
        subject.validate()
    statement = Statement([subject.pb for subject in subjects], PREDICATE, predicate)
    statement.validate()
    return dict(MessageToDict(statement.pb))


def manifest(artifact: Path) -> bytes:
    """Return the manifest of the artifact, which has the checksums of all its files."""
    with tarfile.open(artifact) as archive:
        member = archive.extractfile("MANIFEST.json")
        assert member, f"{artifact} has no MANIFEST.json"
        return member.read()


def sign(key: str, content: bytes, target: Path) -> Path:
    """Write the detached signature of the content."""
    command = ["gpg", "--batch", "--yes", "--armor", "--local-user", key, "--output", str(target), "--detach-sign"]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"gpg could not sign {target.stem} with {key}: {done.stderr.decode().strip()}")
    return target


def release(folder: Path, artifact: Path, bill: Path, trees: Sequence[str], key: str) -> list[Path]:
    """Write all files of the release; return their paths. Raise ReleaseError for a refusal."""
    commit = clean_commit()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work, "copy")
        run_command("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(copy))
        files = built_twice(folder, artifact, copy, Path(work, "dist"))
    files.append(Path(shutil.copy(bill, folder)))
    stem = artifact.name.removesuffix(".tar.gz")
    for tree in trees:
        name, _sign, source = tree.partition("=")
        files.append(packed(folder / f"{stem}-{name}.tar.gz", Path(source)))
    statement = folder / f"{stem}.provenance.json"
    statement.write_text(json.dumps(provenance(files, commit), indent=2, sort_keys=True) + "\n")
    files.append(statement)
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in sorted(files)))
    files.append(sums)
    if key:
        files.append(sign(key, sums.read_bytes(), folder / "SHA256SUMS.asc"))
        files.append(sign(key, manifest(artifact), folder / "MANIFEST.json.asc"))
    return files


def main() -> int:
    """Run the command line; return 1 for a refusal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    key = argparse.ArgumentParser(add_help=False)
    key.add_argument("--key", default="", help="the key that signs, in gpg's notation")
    verbs.add_parser("check", parents=[key], help="check the checkout and the key before anything is built")
    collect = verbs.add_parser("collect", parents=[key], help="write the files of the release")
    for name in ("folder", "artifact", "bill"):
        collect.add_argument(name, type=lambda value: Path(value).resolve())
    collect.add_argument("trees", nargs="*", metavar="NAME=TREE")
    arguments = parser.parse_args()
    try:
        if arguments.verb == "check":
            clean_commit()
            if arguments.key:
                check_key(arguments.key)
            return 0
        files = release(arguments.folder, arguments.artifact, arguments.bill, arguments.trees, arguments.key)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(map(str, files)))
    if not arguments.key:
        print("The release is not signed: KEY is not set (make release KEY=FINGERPRINT).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
