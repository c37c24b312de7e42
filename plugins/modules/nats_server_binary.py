# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_binary
short_description: Keep versions of nats-server side by side
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Installs the executable of nats-server as C(<install_dir>/<version>/bin/nats-server), so a rollback is instant.
  - Before the executable is installed, it is run with C(--version), and is refused if it reports a different version.
  - Needs only Python on the host.
options:
  state:
    description:
      - V(present) installs O(version) from O(src). Without O(src), the module only returns whether the version is
        installed.
      - V(absent) removes all versions that are not running.
    type: str
    choices: [present, absent]
    default: present
  install_dir:
    description: The directory that contains a subdirectory for each version.
    type: path
    required: true
  version:
    description: The version to install. Defaults to the version of O(src).
    type: str
  src:
    description: A file on this host, which is either the executable itself or a .tar.gz, .zip or .deb file that
      contains it.
    type: path
  checksum:
    description:
      - SHA-256 of the source in hexadecimal digits, with or without a leading C(sha256:).
      - A version that was installed from a source with a different checksum counts as not installed.
    type: str
  keep:
    description: Number of installed versions to keep; older installations are removed. Without this option, nothing is
      removed.
    type: int
  link:
    description: The link that selects a version. The selected version and all running versions are never removed.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and return the changed status prediction. In check mode, a missing O(src) is not
      an error.
    support: full
  diff_mode:
    description: Returns the versions that are added and removed.
    support: full
"""

EXAMPLES = r"""
- name: Install from a release archive that was copied to the host
  natsops.jetstream.nats_server_binary:
    install_dir: /opt/nats-server
    version: 2.10.27
    src: /var/tmp/nats-server-v2.10.27-linux-amd64.tar.gz

- name: Keep the last three versions
  natsops.jetstream.nats_server_binary:
    install_dir: /opt/nats-server
    version: 2.10.27
    keep: 3
    link: /usr/local/bin/nats-server
"""

RETURN = r"""
installed:
  description: Whether the version is installed now or, in check mode, was installed before the run.
  type: bool
  returned: when state is present
version:
  description: The version. Empty if it is not known yet, which only happens in check mode.
  type: str
  returned: when state is present
path:
  description: The executable of that version.
  type: str
  returned: when state is present
  sample: /opt/nats-server/2.10.27/bin/nats-server
versions:
  description: All versions in O(install_dir) after this task, starting with the one installed last.
  type: list
  elements: str
  returned: always
removed:
  description: Versions that were removed.
  type: list
  elements: str
  returned: always
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.install import (
    InstallError,
    binary_path,
    installed_versions,
    is_installed,
    sha256,
    store,
    superfluous,
    unpack,
    version_dir,
    versions,
)
from ..module_utils.host.process import ProcessError, read_version, running_binaries


def install(module: CollectionModule, digest: str) -> dict[str, Any]:
    """Install the executable from the source unless the same one is already installed; `digest` is its expected
    SHA-256, or empty."""
    source, install_dir, version = (module.params[name] for name in ("src", "install_dir", "version"))
    if module.check_mode and not os.path.exists(source):
        return result(install_dir, version or "", changed=True, installed=False)
    actual = sha256(source)
    if digest and actual != digest:
        raise InstallError(f"{source} has the SHA-256 {actual}, expected {digest}")
    for candidate in [version] if version else versions(install_dir):
        if is_installed(install_dir, candidate, actual):
            return result(install_dir, candidate, changed=False, installed=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=existing_parent(install_dir)) as work:
        staged = os.path.join(work, "nats-server")
        with open(staged, "wb") as target:
            unpack(source, target)
        os.chmod(staged, 0o700)
        found = read_version(staged)
        if version and found != version:
            raise InstallError(f"{source} is nats-server {found}, but nats_server_version is {version}")
        if not module.check_mode:
            store(staged, install_dir, found, actual)
            # The file was staged in a different directory and still has the SELinux type of that directory.
            module.set_default_selinux_context(str(binary_path(install_dir, found)), False)
    return result(install_dir, found, changed=True, installed=not module.check_mode)


def existing_parent(path: str) -> str:
    """Return the directory, or the default temporary directory if it does not exist yet, as in check mode."""
    return path if os.path.isdir(path) else tempfile.gettempdir()


def result(install_dir: str, version: str, changed: bool, installed: bool) -> dict[str, Any]:
    """Return the module's result for a version."""
    return {
        "changed": changed,
        "installed": installed,
        "version": version,
        "path": str(binary_path(install_dir, version)) if version else "",
        "versions": versions(install_dir),
        "removed": [],
    }


def remove(module: CollectionModule, names: list[str]) -> None:
    """Remove these versions' directories."""
    for name in names if not module.check_mode else []:
        shutil.rmtree(version_dir(module.params["install_dir"], name))


def remove_all(module: CollectionModule) -> dict[str, Any]:
    """Remove every version that is not running, and then the directory if it is empty."""
    install_dir = module.params["install_dir"]
    running = installed_versions(install_dir, running_binaries())
    names = [name for name in versions(install_dir) if name not in running]
    empty = os.path.isdir(install_dir) and set(os.listdir(install_dir)) <= set(names)
    remove(module, names)
    if empty and not module.check_mode:
        os.rmdir(install_dir)
    return {"changed": bool(names) or empty, "versions": sorted(running), "removed": names}


def carry_out(module: CollectionModule) -> dict[str, Any]:
    """Install or remove versions, and return the module's result without its diff."""
    parameters = module.params
    if parameters["state"] == "absent":
        return remove_all(module)
    digest = (parameters["checksum"] or "").rpartition(":")[2].lower()
    if parameters["src"]:
        done = install(module, digest)
    else:
        there = is_installed(parameters["install_dir"], parameters["version"], digest)
        done = result(parameters["install_dir"], parameters["version"], changed=False, installed=there)
    if parameters["keep"] is not None:
        used = running_binaries() | ({str(Path(parameters["link"]).resolve())} if parameters["link"] else set())
        needed = installed_versions(parameters["install_dir"], used) | {done["version"]}
        # In check mode this version is not installed yet.
        after = [name for name in (done["version"],) if name not in done["versions"]] + done["versions"]
        done["removed"] = superfluous(after, parameters["keep"], needed)
        remove(module, done["removed"])
        done["changed"] = done["changed"] or bool(done["removed"])
    return done


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises InstallError, ProcessError and OSError."""
    install_dir = module.params["install_dir"]
    before = versions(install_dir)
    done = carry_out(module)
    if not module.check_mode:
        done["versions"] = versions(install_dir)
    new = [done["version"]] if done["changed"] and done.get("version") and module.params["src"] else []
    after = [name for name in {*before, *new} if name not in done["removed"]]
    listing = ["".join(f"{name}\n" for name in sorted(names)) for names in (before, after)]
    return {**done, "diff": {"before": listing[0], "after": listing[1]}}


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "install_dir": {"type": "path", "required": True},
            "version": {"type": "str"},
            "src": {"type": "path"},
            "checksum": {"type": "str"},
            "keep": {"type": "int"},
            "link": {"type": "path"},
        },
        required_if=[("state", "present", ["version", "src"], True)],
        supports_check_mode=True,
    )
    frame = failing_on(
        InstallError,
        ProcessError,
        OSError,
        message=lambda error: f"Installing nats-server in {module.params['install_dir']}: {error}",
    )
    run(module, frame, ensure)


if __name__ == "__main__":
    main()
