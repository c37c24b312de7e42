# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Selects the files that pip needs to install a lock on a host without a package index.

The name of a file has the package, the version and the tags of the Python versions that can use it:
https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

#: pip itself, which installs the packages, and the package that pip builds packages without a wheel with.
TOOLS = ("pip", "setuptools")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
_WHEEL = re.compile(r"([^-]+)-([^-]+)(?:-\d[^-]*)?-([^-]+)-([^-]+)-[^-]+\.whl")
_SOURCE = re.compile(r"(.+)-([^-]+)\.tar\.gz")


def needed_files(paths: Sequence[str], lock: str, python: str) -> list[str]:
    """Return the paths among `paths` that pip needs to install the lock with this Python version, such as 3.11; pip's
    own wheel comes first. Raises ValueError if the wheel of pip or any file of a tool is missing."""
    pinned = {(_normalised(name), version) for name, version in _PINNED.findall(lock)}
    found = [path for path in sorted(paths) if _is_needed(PurePath(path).name, pinned, python)]
    missing = [tool for tool in TOOLS if not any(PurePath(path).name.startswith(f"{tool}-") for path in found)]
    if missing:
        raise ValueError(
            f"no wheel of {' and '.join(missing)} among {len(paths)} files: nats_download_wheels must be the folder "
            "wheels of an offline bundle (make offline)"
        )
    return sorted(found, key=lambda path: (not PurePath(path).name.startswith("pip-"), path))


def _is_needed(name: str, pinned: set[tuple[str, str]], python: str) -> bool:
    wheel, source = _WHEEL.fullmatch(name), _SOURCE.fullmatch(name)
    if wheel:
        package, version, pythons, abis = wheel.groups()
        if not any(_fits(tag, "abi3" in abis.split("."), python) for tag in pythons.split(".")):
            return False
    elif source:
        package, version = source.groups()
    else:
        return False
    return _normalised(package) in TOOLS or (_normalised(package), version) in pinned


def _fits(tag: str, stable: bool, python: str) -> bool:
    """Return whether a wheel with this Python tag works with this Python version; `stable`: it uses only the stable
    ABI, which newer versions also have."""
    if tag.startswith("py"):
        return tag in ("py3", "py" + python.replace(".", ""))
    wanted = tuple(map(int, python.split(".")))
    own = (3, int(tag[3:])) if re.fullmatch(r"cp3\d+", tag) else (0, 0)
    return own == wanted or (stable and (3, 0) < own <= wanted)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
