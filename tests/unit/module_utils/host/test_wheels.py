# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.wheels import needed_files

LOCK = """\
# made by make lock
cffi==2.1.1 ; platform_python_implementation != 'PyPy' \\
    --hash=sha256:00
nkeys==0.2.1 \\
    --hash=sha256:01
nats-py[nkeys]==2.16.0 \\
    --hash=sha256:02
pynacl==1.6.2 \\
    --hash=sha256:03
"""
TOOLS = ["pip-25.3-py3-none-any.whl", "setuptools-82.0.1-py3-none-any.whl"]
CFFI = [f"cffi-2.1.1-cp{tag}-cp{tag}-manylinux2014_x86_64.manylinux_2_17_x86_64.whl" for tag in ("39", "311", "313")]
ABI3 = ["PyNaCl-1.6.2-cp38-abi3-manylinux_2_34_x86_64.whl", "PyNaCl-1.6.2-cp314-abi3-manylinux_2_34_x86_64.whl"]
OTHERS = ["boto3-1.42.0-py3-none-any.whl", "nats_py-2.10.0-py3-none-any.whl", "SHA256SUMS"]
NEEDED = ["nkeys-0.2.1.tar.gz", "nats_py-2.16.0-py2.py3-none-any.whl", *TOOLS]


@pytest.mark.parametrize(
    "python, binaries", [("3.9", [CFFI[0], ABI3[0]]), ("3.11", [CFFI[1], ABI3[0]]), ("3.14", [*ABI3])]
)
def test_files_of_the_lock_and_of_the_python_version_are_selected(python: str, binaries: list[str]) -> None:
    paths = [f"/srv/wheels/{name}" for name in [*OTHERS, *CFFI, *ABI3, *NEEDED]]
    found = needed_files(paths, LOCK, python)
    assert set(found) == {f"/srv/wheels/{name}" for name in [*NEEDED, *binaries]}
    assert found[0] == f"/srv/wheels/{TOOLS[0]}"


def test_folder_without_pip_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no wheel of pip among 2 files: nats_download_wheels must be .*make offline"):
        needed_files([TOOLS[1], NEEDED[0]], LOCK, "3.11")
