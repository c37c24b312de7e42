# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the packages that the collection and its development use.

    python tools/dependencies.py licences            writes docs/reference/licences.md (`make licences`)
    python tools/dependencies.py licences --check    reports whether it is current
    python tools/dependencies.py sbom ARTIFACT       writes the bill of materials ARTIFACT.cdx.json (`make build`)

Packages, versions and dependencies come from the locks in requirements/. Licences come from the metadata of the
packages that are installed in .cache; for environments that do not exist, the entries in docs/reference/licences.md are
kept.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import yaml
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from license_expression import ExpressionError, get_spdx_licensing
from packageurl import PackageURL
from packaging.markers import Marker

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/reference/licences.md"
SPDX = get_spdx_licensing()

#: Licences whose code may be used together with GPL-3.0-or-later: https://www.gnu.org/licenses/license-list.html
COMPATIBLE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-SA-4.0", "CC0-1.0", "GPL-2.0-or-later", "GPL-3.0-or-later",
    "ISC", "LGPL-3.0-only", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Python-2.0", "Zlib",
}  # fmt: skip
#: The licences of older packages without an SPDX expression, in order of preference.
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
#: Programs that `make lint` runs on the sources. The code of these programs is not combined with the collection's, so
#: the licences do not have to be compatible.
SEPARATE = {"codespell"}
#: Packages with missing or incomplete metadata, with the licence stated in their files.
LICENCES = {"parsley": "MIT", "protobuf": "BSD-3-Clause", "pyrage": "MIT"}

#: The locks by purpose. Development has several versions of ansible-core; the first purposes concern users.
LOCKS = {
    "plugins": "dev",
    "insights": "insights",
    "insights by Spark Connect": "connect",
    "event sources": "eda",
    "development": "dev",
    "Galaxy's importer": "galaxy",
    "site of the documents": "docs",
    "spelling": "spelling",
    "imports": "imports",
    "benchmarks": "bench",
    "modules for AWX": "awx",
    "releases": "release",
    "offline bundles": "offline",
}
#: The files with the direct requirements of a purpose that concerns users; None for the complete lock.
STARTS = {
    "plugins": "-r ../meta/ee-requirements.txt",
    "insights": "-r ../roles/nats_insights/files/requirements.txt",
    "insights by Spark Connect": "-r ../roles/nats_insights/files/requirements-connect.txt",
}


@dataclass(frozen=True)
class Package:
    """A pinned package. `via`: the packages and files that require it."""

    name: str
    version: str
    via: frozenset[str]


def read_lock(name: str) -> dict[str, Package]:
    """Return the packages that are installed on this kind of machine, by name."""
    found = {}
    text = (ROOT / f"requirements/{name}.txt").read_text()
    for entry in re.split(r"\n(?=[a-z0-9])", text):
        head = re.match(r"([a-z0-9.-]+)==([^\s;]+)(?: ; (.+?))? \\\n", entry)
        if head and (not head[3] or Marker(head[3]).evaluate()):
            via = re.sub(r"^.*# via", "", entry, flags=re.DOTALL).replace("#", "")
            found[head[1]] = Package(head[1], head[2], frozenset(filter(None, map(str.strip, via.splitlines()))))
    return found


def closure(lock: Mapping[str, Package], start: str) -> dict[str, Package]:
    """Return the packages of a requirements file, with their dependencies."""
    reached: dict[str, Package] = {}
    while more := {
        name: package for name, package in lock.items() if name not in reached and package.via & {start, *reached}
    }:
        reached.update(more)
    return reached


def used(purpose: str) -> dict[str, Package]:
    """Return the packages of this purpose."""
    lock = read_lock(LOCKS[purpose])
    for other in sorted((ROOT / "requirements").glob("core-*.txt")) if purpose == "development" else ():
        lock = {**read_lock(other.stem), **lock}
    return closure(lock, STARTS[purpose]) if purpose in STARTS else lock


def normal(name: str) -> str:
    """Return the name of a package in the spelling of the locks."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(metadata: importlib.metadata.PackageMetadata, name: str) -> str:
    """Return an SPDX expression, empty if the package has none in a known form."""
    for text in (LICENCES.get(name), metadata.json.get("license_expression"), metadata.json.get("license")):
        try:
            return str(SPDX.parse(text or "?", validate=True, strict=True))
        except ExpressionError:
            continue
    for classifier in metadata.get_all("Classifier") or []:
        known = CLASSIFIERS.get(classifier.rpartition(" :: ")[2])
        if known:
            return known
    return ""


def installed() -> dict[str, str]:
    """Return the licences of the packages in the environments of .cache."""
    found: dict[str, str] = {}
    for folder in sorted((ROOT / ".cache").glob("venv*/lib/python3.*/site-packages")):
        for distribution in importlib.metadata.distributions(path=[str(folder)]):
            name = normal(distribution.metadata["Name"])
            found[name] = found.get(name) or licence(distribution.metadata, name)
    return found


def written() -> dict[str, str]:
    """Return the licences in the document."""
    return dict(re.findall(r"^\| (\S+) \| ([^|]+) \|", TABLE.read_text(), re.MULTILINE)) if TABLE.is_file() else {}


def fits(terms: Any) -> bool:
    """Return whether the terms of this parsed SPDX expression are compatible with GPL-3.0-or-later."""
    if isinstance(terms, (SPDX.AND, SPDX.OR)):
        return (all if isinstance(terms, SPDX.AND) else any)(map(fits, terms.args))
    return terms.key in COMPATIBLE


def table() -> Iterator[str]:
    """Yield the lines of the document. Raise SystemExit for a licence that is missing or incompatible."""
    purposes = {purpose: used(purpose) for purpose in LOCKS}
    licences = {**written(), **installed()}
    yield "<!-- Written by `make licences` from the locks in requirements/ and the metadata of the packages. -->"
    yield ""
    yield "# Licences of dependencies"
    yield ""
    yield "natsops.jetstream is GPL-3.0-or-later. It contains uPlot (MIT), which draws the charts of the insights' report."
    yield "The packages with which it is used, developed and tested:"
    yield ""
    yield "| package | licence | used by |"
    yield "| --- | --- | --- |"
    for name in sorted({name for packages in purposes.values() for name in packages}):
        if not licences.get(name):
            raise SystemExit(
                f"The licence of {name} is not known. Run `make licences`; if that does not help, read its files, and add it "
                "to LICENCES in tools/dependencies.py."
            )
        if name not in SEPARATE and not fits(SPDX.parse(licences[name])):
            raise SystemExit(f"{name} is {licences[name]}, which does not fit GPL-3.0-or-later: do without it.")
        by = [purpose for purpose, packages in purposes.items() if name in packages]
        yield f"| {name} | {licences[name]} | {', '.join(by)} |"


def component(package: Package, licences: Mapping[str, str]) -> Component:
    """Return the bill's entry for a package. Raise KeyError for a package that docs/reference/licences.md does not
    have."""
    purl = PackageURL("pypi", None, package.name, package.version)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=[LicenseExpression(licences[package.name])],
    )


def bill_of_materials(artifact: Path) -> str:
    """Return a CycloneDX document (JSON, 1.6) of the artifact and the tested versions of its dependencies."""
    licences = written()
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    digest = hashlib.sha256(artifact.read_bytes()).hexdigest()
    name = f"{galaxy['namespace']}.{galaxy['name']}"
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"sha256:{digest}"))
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), timezone.utc)
    else:
        # The time of the run is left out, so equal artifacts have equal bills; the field is optional.
        bom.metadata.timestamp = None  # type: ignore[assignment]
    bom.metadata.component = root = Component(
        name=name,
        version=galaxy["version"],
        type=ComponentType.APPLICATION,
        bom_ref=name,
        purl=PackageURL("generic", galaxy["namespace"], galaxy["name"], galaxy["version"]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[LicenseExpression(galaxy["license"][0])],
    )
    # Two locks may contain the same version of a package, or different versions.
    for purpose, start in {**STARTS, "development": "ansible-core"}.items():
        lock = read_lock(LOCKS[purpose])
        packages = {name: lock[name] for name in (start,) if name in lock} | closure(lock, start)
        components = {package.name: component(package, licences) for package in packages.values()}
        bom.components.update(components.values())
        for package in packages.values():
            wanting = [components[name] for name in package.via & components.keys()]
            if package.name == start or (start not in lock and start in package.via):
                wanting.append(root)
            for other in wanting:
                bom.register_dependency(other, [components[package.name]])
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def main(arguments: Sequence[str]) -> int:
    if arguments[0] == "sbom":
        artifact = Path(arguments[1])
        target = artifact.with_name(artifact.name.removesuffix(".tar.gz") + ".cdx.json")
        target.write_text(bill_of_materials(artifact))
        print(target)
        return 0
    wanted = "\n".join(table()) + "\n"
    if "--check" in arguments:
        if not TABLE.is_file() or TABLE.read_text() != wanted:
            print("docs/reference/licences.md is not current: run `make licences`.")
            return 1
        return 0
    TABLE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
