# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows docs/internals/releasing.md in a copy: the changelog, a reproducible artifact with its bill of materials, and
the signed files of a release."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible
import pytest
import yaml
from support.documents import Document
from support.programs import tool

CHECKOUT = Path(__file__).resolve().parents[3]
#: The release tools are only in the development environment, which the Makefile puts last on the PATH.
TOOLS = CHECKOUT / ".cache/venv/bin"
#: Builds the wheel and writes the provenance.
RELEASE_PYTHON = CHECKOUT / ".cache/venv-release/bin/python"

pytestmark = pytest.mark.skipif(
    not ansible.__version__.startswith("2.19"), reason="runs the same tools on every ansible-core"
)

VERSION = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"]
STEM = f"natsops-jetstream-{VERSION}"
ARTIFACT = f"{STEM}.tar.gz"


def copy_to(folder: Path) -> None:
    """Copy the files that git tracks or does not ignore."""
    folder.mkdir(parents=True)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    names = "".join(f"{name}\n" for name in listed.splitlines() if os.path.lexists(CHECKOUT / name))
    pack = ["tar", "--create", "--files-from=-"]
    packed = subprocess.run(pack, cwd=CHECKOUT, check=True, capture_output=True, input=names.encode())
    subprocess.run(["tar", "--extract"], cwd=folder, check=True, input=packed.stdout)


def run(folder: Path, *command: str, umask: int = 0o022, **variables: str) -> str:
    """Run a tool of the development environment in a folder; return its output."""
    environment = {**os.environ, **variables, "PATH": f"{TOOLS}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, umask=umask, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path, **options: Any) -> Path:
    run(folder, "python", "tools/artifact.py", "dist", **options)
    return folder / "dist" / ARTIFACT


def validated(bill: Path) -> dict[str, Any]:
    """Return a bill of materials after validating it against its schema."""
    script = (
        "import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator as V;"
        "sys.exit(str(V(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()) or '') or 0)"
    )
    run(bill.parent, "python", "-c", script, str(bill))
    return dict(json.loads(bill.read_text()))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which the version has been released."""
    folder = tmp_path_factory.mktemp("release") / "checkout"
    copy_to(folder)
    (folder / "changelogs/fragments/test.yml").write_text("bugfixes:\n  - test - a line that must be documented.\n")
    run(folder, "antsibull-changelog", "release")
    return folder


def test_release_notes_contain_every_fragment(released: Path) -> None:
    guide = (CHECKOUT / "docs/internals/releasing.md").read_text()
    assert "\nantsibull-changelog release\n" in guide
    releases = yaml.safe_load((released / "changelogs/changelog.yaml").read_text())["releases"]
    assert list(releases)[-1] == VERSION
    assert list((released / "changelogs/fragments").iterdir()) == []
    assert "a line that must be documented" in (released / "CHANGELOG.md").read_text()
    documented = {plugin["name"] for plugin in releases[VERSION]["modules"]}
    assert documented == {path.stem for path in (CHECKOUT / "plugins/modules").glob("nats_*.py")}
    run(released, "antsibull-changelog", "lint")
    run(released, "antsibull-changelog", "lint-changelog-yaml", "changelogs/changelog.yaml")


def test_the_version_has_notes_of_its_own() -> None:
    """Unreleased changes are in the fragments of a version that has not been released."""
    changelog = CHECKOUT / "changelogs/changelog.yaml"
    releases = yaml.safe_load(changelog.read_text())["releases"] if changelog.is_file() else {}
    assert bool(list((CHECKOUT / "changelogs/fragments").glob("*.yml"))) == (VERSION not in releases)


def test_equal_sources_give_equal_artifacts(released: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere, and deeper/checkout"
    subprocess.run(
        ["cp", "--recursive", "--no-dereference", str(released), tmp_path / "moved"], check=True, umask=0o077
    )
    other.parent.mkdir()
    (tmp_path / "moved").rename(other)
    for path in sorted(other.rglob("*"), reverse=True):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    one, two = build(released), build(other, umask=0o077, TZ="Asia/Tokyo", LANG="C")
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(build(other, SOURCE_DATE_EPOCH="1700000000")) as artifact:
        assert {member.mtime for member in artifact.getmembers()} == {1_700_000_000}
    (other / "README.md").write_text("another one")
    assert one.read_bytes() != build(other).read_bytes()


def test_the_artifact_can_be_verified_once_installed(released: Path, tmp_path: Path) -> None:
    galaxy = ["ansible-galaxy", "collection"]
    place: dict[str, Any] = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    run(tmp_path, *galaxy, "install", "--offline", "-p", str(tmp_path), str(build(released)), **place)
    installed = tmp_path / "ansible_collections/natsops/jetstream"
    verify = [*galaxy, "verify", "--offline", "natsops.jetstream"]
    assert "Successfully verified" in run(tmp_path, *verify, **place)
    (installed / "README.md").write_text("another one")
    with pytest.raises(AssertionError, match="modified content"):
        run(tmp_path, *verify, **place)
    listed = json.loads((installed / "FILES.json").read_text())["files"]
    assert [entry["name"] for entry in listed] == sorted(entry["name"] for entry in listed)


def test_bill_of_materials_lists_the_shipped_packages(released: Path) -> None:
    artifact = build(released)
    run(released, "python", "tools/dependencies.py", "sbom", str(artifact))
    path = artifact.with_name(ARTIFACT.replace(".tar.gz", ".cdx.json"))
    bill = validated(path)
    subject = bill["metadata"]["component"]
    assert (subject["version"], subject["hashes"][0]["content"]) == (
        VERSION,
        hashlib.sha256(artifact.read_bytes()).hexdigest(),
    )
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    direct = {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in graph[subject["bom-ref"]]}
    assert direct == {
        "ansible-core",
        "bcrypt",
        "deltalake",
        "libpass",
        "nats-py",
        "nkeys",
        "pandas",
        "pyarrow",
        "pyspark",
        "pyyaml",
    }
    assert all(component["licenses"] for component in bill["components"])
    assert {component["bom-ref"] for component in bill["components"]} == set(graph) - {subject["bom-ref"]}
    bill["components"][0]["type"] = "no such type"
    path.write_text(json.dumps(bill))
    with pytest.raises(AssertionError, match="no such type"):
        validated(path)


def test_licences_are_listed_and_compatible(released: Path) -> None:
    check = ["python", "tools/dependencies.py", "licences", "--check"]
    run(CHECKOUT, *check)
    table = released / "docs/reference/licences.md"
    table.write_text(
        table.read_text().replace("| bcrypt | Apache-2.0 |", "| bcrypt | MIT AND (Apache-2.0 OR CDDL-1.0) |")
    )
    run(released, *check)
    table.write_text(table.read_text().replace("(Apache-2.0 OR CDDL-1.0)", "CDDL-1.0"))
    with pytest.raises(AssertionError, match=r"bcrypt is MIT AND CDDL-1\.0, which does not fit GPL-3"):
        run(released, *check)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository whose only commit has the files of this checkout, with the built artifact and its bill."""
    folder = tmp_path_factory.mktemp("repository") / "checkout"
    copy_to(folder)
    run(folder, "git", "init", "--quiet", "--initial-branch=main")
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    run(folder, "git", "add", "--all")
    run(folder, "git", *identity, "commit", "--quiet", "--message=Add everything")
    run(folder, "python", "tools/artifact.py", ".cache/dist")
    run(folder, "python", "tools/dependencies.py", "sbom", f".cache/dist/{ARTIFACT}")
    for path in (folder / "extensions/execution-environment").glob("*.yml"):
        context = f".cache/ee/{path.stem}"
        run(folder, "ansible-builder", "create", "-f", str(path), "-c", context, "--output-filename", "Containerfile")
    site = folder / ".cache/site"
    (site / "collection").mkdir(parents=True)
    for page in ("index", *(f"collection/{path.stem}_module" for path in folder.glob("plugins/modules/nats_*.py"))):
        (site / f"{page}.html").write_text("a page")
    return folder


@pytest.fixture(scope="module")
def key() -> Iterator[dict[str, Any]]:
    """The variables of a throwaway key: GNUPGHOME, KEY and KEYRING. A socket's path has at most 107 characters."""
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        variables: dict[str, Any] = {"GNUPGHOME": home, "KEY": "release@example.com", "KEYRING": f"{home}/public.kbx"}
        create = ["--batch", "--pinentry-mode=loopback", "--passphrase=", "--quick-generate-key", variables["KEY"]]
        run(Path(home), "gpg", *create, **variables)
        run(Path(home), "gpg", "--armor", "--export", "--output=key.asc", variables["KEY"], **variables)
        keyring = ["--no-default-keyring", f"--keyring={variables['KEYRING']}", "--import", "key.asc"]
        run(Path(home), "gpg", *keyring, **variables)
        yield variables
        run(Path(home), "gpgconf", "--kill", "all", **variables)


def collect(repository: Path, folder: Path, key: str = "", **variables: Any) -> str:
    """Collect the files of a release, with short pages instead of those by Sphinx, which `make lint-docs` builds."""
    dist = repository / ".cache/dist"
    files = [str(folder), str(dist / ARTIFACT), str(dist / ARTIFACT.replace(".tar.gz", ".cdx.json"))]
    trees = ["site=.cache/site", "environments=.cache/ee"]
    command = [str(RELEASE_PYTHON), "tools/release.py", "collect", f"--key={key}", *files, *trees]
    return run(repository, *command, **variables)


def verify(folder: Path) -> str:
    """Run the last step of `make release`."""
    return run(folder, "python", str(CHECKOUT / "tools/release_verify.py"), str(folder))


@pytest.fixture(scope="module")
def complete(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release that is not signed."""
    folder = tmp_path_factory.mktemp("complete") / "release"
    assert "not signed" in collect(repository, folder)
    return folder


def test_release_has_checksums_and_provenance_of_every_file(repository: Path, complete: Path, tmp_path: Path) -> None:
    one, two = complete, tmp_path / "two"
    wheel = f"jetstream_insights-{VERSION}-py3-none-any.whl"
    described = {ARTIFACT, wheel, f"{STEM}.cdx.json", f"{STEM}-site.tar.gz", f"{STEM}-environments.tar.gz"}
    assert {path.name for path in one.iterdir()} == described | {f"{STEM}.provenance.json", "SHA256SUMS"}
    run(one, "sha256sum", "--check", "--strict", "SHA256SUMS")
    assert len((one / "SHA256SUMS").read_text().splitlines()) == len(described) + 1
    statement = json.loads((one / f"{STEM}.provenance.json").read_text())
    assert {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]} == {
        name: hashlib.sha256((one / name).read_bytes()).hexdigest() for name in described
    }
    # https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    source = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert source["digest"]["gitCommit"] == run(repository, "git", "rev-parse", "HEAD").strip()
    collect(repository, two)
    assert {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in two.iterdir()
    }
    assert "are complete and match" in verify(one)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("notes.txt", "", "new", "notes.txt is not in SHA256SUMS"),
        (f"{STEM}-site.tar.gz", "", "", f"{STEM}-site.tar.gz is missing, but listed in SHA256SUMS"),
        ("SHA256SUMS", "  ", "0  ", "but SHA256SUMS lists"),
    ],
)
def test_verification_compares_all_checksums(
    complete: Path, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    folder = Path(shutil.copytree(complete, tmp_path / "release"))
    path = folder / name
    content = path.read_text().replace(old, new, 1) if old else new
    path.unlink(missing_ok=True)
    if content:
        path.write_text(content)
    program = tool("release_verify")
    found = [*program.checksum_problems(folder)] or [*program.statement_problems(folder, STEM)]
    assert any(message in problem for problem in found), found


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (f"{STEM}.provenance.json", '"name": "j', '"name": "k', "provenance.json does not list exactly the files"),
        (f"{STEM}.cdx.json", '"hashes"', '"hashes": [{"content": "0"}], "other"', "bill of materials of another"),
    ],
)
def test_verification_reads_the_statements(
    complete: Path, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    folder = Path(shutil.copytree(complete, tmp_path / "release"))
    program = tool("release_verify")
    assert list(program.statement_problems(folder, STEM)) == []
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace(old, new, 1))
    assert any(message in problem for problem in program.statement_problems(folder, STEM))


def test_verification_opens_the_archives(complete: Path, tmp_path: Path) -> None:
    """A page that the site lacks, an environment without this artifact, and a file that was added to the wheel."""
    folder = Path(shutil.copytree(complete, tmp_path / "release"))
    program = tool("release_verify")
    for name in ("site", "environments"):
        with tarfile.open(folder / f"{STEM}-{name}.tar.gz", "w:gz"):
            pass
    problems = "\n".join(program.tree_problems(folder, STEM))
    assert f"{STEM}-site.tar.gz has no page collection/nats_stream_module.html" in problems
    assert f"{STEM}-environments.tar.gz has no Containerfile of insights" in problems
    assert f"execution-environment.yml does not install collections/{ARTIFACT}" in problems
    assert f"{STEM}-environments.tar.gz contains no collection instead of this artifact" in problems
    path = folder / f"jetstream_insights-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr("jetstream_insights/added.py", "pass")
    (problem,) = program.wheel_problems(path)
    assert problem.endswith("jetstream_insights/added.py differs from the wheel's RECORD")
    (folder / ARTIFACT).write_bytes(b"damaged")
    (problem,) = program.collection_problems(folder / ARTIFACT)
    assert f"`ansible-galaxy collection install` refuses {ARTIFACT}" in problem


def test_verification_fails_for_an_incomplete_release(complete: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(complete, tmp_path / "release"))
    (folder / f"{STEM}.cdx.json").unlink()
    with pytest.raises(AssertionError, match=rf"release lacks {STEM}\.cdx\.json"):
        verify(folder)
    (folder / ARTIFACT).unlink()
    with pytest.raises(AssertionError, match="release has 0 artifacts"):
        verify(folder)


def test_documents_and_environments_name_the_version() -> None:
    """docs/internals/releasing.md lists the files in which a release sets the version."""
    guide = (CHECKOUT / "docs/internals/releasing.md").read_text()
    pattern = re.compile(r"(?:jetstream[-,]|^version: |^nats_awx_scm_branch: )(\d+\.\d+\.\d+)", re.MULTILINE)
    for name in (
        "galaxy.yml",
        "extensions/execution-environment/execution-environment.yml",
        "docs/installation.md",
        "playbooks/awx/vars/settings.yml",
    ):
        named = pattern.findall((CHECKOUT / name).read_text())
        assert set(named) == {VERSION}, name
        assert f"`{name}`" in guide


def test_release_refuses_changes_ignored_files_and_unknown_keys(
    repository: Path, tmp_path: Path, key: dict[str, Any]
) -> None:
    check = [str(RELEASE_PYTHON), "tools/release.py", "check"]
    run(repository, *check)
    with pytest.raises(AssertionError, match=r"gpg has no secret key 'missing@example\.com', so nothing was built"):
        run(repository, *check, "--key=missing@example.com", **key)
    (repository / "docs/draft.md").write_text("not committed")
    with pytest.raises(AssertionError, match=r"has changes, .*: docs/draft\.md\. Commit or remove them"):
        run(repository, *check)
    (repository / "docs/draft.md").unlink()
    # Git ignores this file, but the wheel contains it.
    ignored = repository / "roles/nats_insights/files/jetstream_insights/notes.txt"
    exclude = repository / ".git/info/exclude"
    before = exclude.read_text()
    exclude.write_text("notes.txt\n")
    ignored.write_text("ignored")
    try:
        dist = run(repository, "python", "tools/artifact.py", str(tmp_path / "dist")).strip()
        bill = repository / ".cache/dist" / ARTIFACT.replace(".tar.gz", ".cdx.json")
        with pytest.raises(AssertionError, match=rf"two builds of {ARTIFACT} differ: .*Ignored files"):
            run(repository, str(RELEASE_PYTHON), "tools/release.py", "collect", str(tmp_path / "out"), dist, str(bill))
    finally:
        ignored.unlink()
        exclude.write_text(before)


def test_signature_of_the_installed_collection_is_verified(
    repository: Path, tmp_path: Path, key: dict[str, Any]
) -> None:
    folder = tmp_path / "release"
    assert "not signed" not in collect(repository, folder, key["KEY"], **key)
    place: dict[str, Any] = {**key, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    galaxy = ["ansible-galaxy", "collection"]
    # With a tarball and a keyring, `ansible-galaxy collection install` ends with a TypeError.
    run(tmp_path, *galaxy, "install", "--offline", "-p", str(tmp_path), str(folder / ARTIFACT), **place)
    shutil.copy(key["KEYRING"], folder / "natsops.kbx")
    commands = [
        command.text
        for block in Document("docs/installation.md").blocks
        if block.heading == "Verify a release"
        for command in block.commands
        if not command.text.startswith("gh ")  # queries GitHub
    ]
    assert len(commands) == 3
    *_sums, verified = [run(folder, "sh", "-ec", command, **place) for command in commands]
    assert "Successfully verified" in verified
    # An attacker who replaces a file and all checksums still lacks the key.
    installed = tmp_path / "ansible_collections/natsops/jetstream"
    manifest = installed / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace("natsops maintainers", "attackers"))
    with pytest.raises(AssertionError, match=r"(?i)signature"):
        run(folder, "sh", "-ec", commands[-1], **place)


def test_collection_is_installed_from_a_git_url(repository: Path, tmp_path: Path) -> None:
    place: dict[str, Any] = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    run(
        tmp_path,
        "ansible-galaxy",
        "collection",
        "install",
        "-p",
        str(tmp_path),
        f"git+file://{repository},main",
        **place,
    )
    installed = tmp_path / "ansible_collections/natsops/jetstream"
    artifact = build(repository)
    with tarfile.open(artifact) as archive:
        expected = {member.name for member in archive.getmembers() if not member.isdir()}
    assert {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()} == expected
    assert "nats_cluster_health" in run(tmp_path, "ansible-doc", "--list", "natsops.jetstream", **place)
    # docs/insights.md: pip builds the wheel from the installed collection.
    pipeline = installed / "roles/nats_insights/files"
    run(pipeline, str(RELEASE_PYTHON), "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel"))
    assert [path.name for path in (tmp_path / "wheel").iterdir()] == [f"jetstream_insights-{VERSION}-py3-none-any.whl"]
