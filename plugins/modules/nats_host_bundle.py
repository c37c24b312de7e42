#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_host_bundle
short_description: Collect incident data of a host into an archive without secrets
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Collects the journal of the unit, the kernel log, the disks with their SMART values and latencies, the limits,
    sockets, unit, clock and kernel parameters, the configuration without secrets, and a list of the store's files. The
    module writes this data into a compressed tar archive on the host.
  - Runs on the managed host and needs no connection to NATS. Most of the data can only be read by root. The module
    writes only the archive and changes nothing else.
  - Each command and the complete run have a time limit and a size limit. Data that cannot be collected is returned
    with the reason and does not fail the task. Only the end of an oversized log is kept.
  - The secrets of the secrets file, private keys, seeds, JWTs, bcrypt hashes, users in URLs and the values of
    password-like keys are left out. Message contents are never read.
options:
  config:
    description: Path of the configuration file on the server's command line. This path identifies the server.
    type: path
    required: true
  unit:
    description: Name of the systemd unit that runs the server. Omit it if the host does not use systemd.
    type: str
  secrets:
    description: File next to O(config) that contains the secrets to which the configuration refers. The values of these
      secrets are removed from all collected files.
    type: path
  files:
    description: Further configuration files. Secrets are removed from these files in the same way as from O(config).
    type: list
    elements: path
    default: []
  log_file:
    description:
      - The server's own log file. The end of this file is kept, regardless of O(since). The file is optional if
        systemd runs the server.
    type: path
  store_dir:
    description: Directory of the store. The archive contains a list of the store's files.
    type: path
  since:
    description: How far back to read logs, such as V(2h).
    type: str
    default: 2h
  directory:
    description: Directory on the host for the archive.
    type: path
    default: /var/tmp
  max_size:
    description: Maximum size of the host's data before compression, such as V(64MB).
    type: str
    default: 64MB
  command_timeout:
    description: Seconds after which a command is stopped.
    type: float
    default: 20
  timeout:
    description: Seconds after which no more commands are started.
    type: float
    default: 120
extends_documentation_fragment:
  - natsops.jetstream.attributes
attributes:
  check_mode:
    description: Returns the files that would be collected, and writes nothing.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  idempotent:
    description: Every run writes a new archive.
    support: none
seealso:
  - module: natsops.jetstream.nats_bundle
"""

EXAMPLES = r"""
- name: Collect the host's data
  natsops.jetstream.nats_host_bundle:
    config: /etc/nats-server/nats-server.conf
    secrets: /etc/nats-server/secrets.conf
    unit: nats-server
    store_dir: /var/lib/nats
    since: 6h
  become: true
  register: evidence

- name: Fetch the archive
  ansible.builtin.fetch:
    src: "{{ evidence.path }}"
    dest: "/tmp/{{ inventory_hostname }}.tar.gz"
    flat: true
  become: true
"""

RETURN = r"""
path:
  description: Path of the archive. Empty in check mode.
  returned: success
  type: str
  sample: /var/tmp/nats-bundle-1x2y3z.tar.gz
size:
  description: Size of the archive in bytes.
  returned: success
  type: int
  sample: 183402
files:
  description: The files in the archive or, in check mode, the files that the module would try to collect.
  returned: success
  type: list
  elements: str
  sample: [configuration/nats-server.conf, journal.log, kernel.log, store.txt]
missing:
  description: The missing files, with the reasons.
  returned: success
  type: list
  elements: dict
  sample:
    - {item: disks/smart-sda.txt, reason: smartctl is not installed}
cut:
  description: The incomplete files, with the reasons.
  returned: success
  type: list
  elements: dict
  sample:
    - {item: journal.log, reason: the last 32.0 MiB of 210.4 MiB are kept}
"""

import os
import tarfile
import tempfile
from dataclasses import replace
from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.evidence import CollectionBounds, Collector, Subject, find_disks, probes
from ..module_utils.host.observation import read_text
from ..module_utils.host.own_files import own_config
from ..module_utils.host.process import ProcessError, find_server
from ..module_utils.host.system import has_systemd
from ..module_utils.redaction import Redactor
from ..module_utils.server_config.reading import ConfigSyntaxError
from ..module_utils.server_config.syntax import read_secrets
from ..module_utils.units import parse_duration, size_bytes


def make_subject(given: dict[str, Any]) -> Subject:
    """Return the server's unit, process and files to collect from. Raises ValueError and ProcessError."""
    server = find_server(given["config"])
    unit = given["unit"] if given["unit"] and has_systemd() else ""
    log_file = given["log_file"] or ""
    return Subject(
        unit=unit,
        pid=server.pid if server else 0,
        store_dir=given["store_dir"] or "",
        since=int(parse_duration(given["since"])),
        log_file=log_file if not unit or os.path.exists(log_file) else "",
        files=(given["config"], *given["files"]),
    )


def read_bounds(given: dict[str, Any]) -> CollectionBounds:
    """Return the limits. Raises ValueError for a limit that would exclude everything."""
    bounds = CollectionBounds(given["command_timeout"], given["timeout"], size_bytes(given["max_size"]))
    for name, value in (
        ("command_timeout", bounds.command),
        ("timeout", bounds.total),
        ("max_size", bounds.size),
    ):
        if value <= 0:
            raise ValueError(f"{name} must be positive")
    return bounds


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises ValueError, ProcessError and OSError."""
    given = module.params
    subject, bounds = make_subject(given), read_bounds(given)
    if module.check_mode:
        wanted = [probe.name for probe in probes(subject, find_disks(subject.store_dir), bounds.size)]
        return {"changed": True, "path": "", "size": 0, "files": wanted, "missing": [], "cut": []}
    known = set(read_secrets(read_text(given["secrets"])).values() if given["secrets"] else ())
    try:
        known |= own_config(given["config"]).secrets
    except ConfigSyntaxError as error:
        reason = f"{error}; its secrets are unknown unless it can be parsed"
        subject = replace(subject, left_out={given["config"]: reason})
    descriptor, path = tempfile.mkstemp(prefix="nats-bundle-", suffix=".tar.gz", dir=given["directory"])
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            evidence = Collector(archive, Redactor(known), bounds).collect(subject)
    except BaseException:
        os.unlink(path)
        raise
    return {"changed": True, "path": path, "size": os.path.getsize(path), **evidence.as_dict()}


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "config": {"type": "path", "required": True},
            "unit": {"type": "str"},
            # This is a path, not a secret.
            "secrets": {"type": "path", "no_log": False},
            "files": {"type": "list", "elements": "path", "default": []},
            "log_file": {"type": "path"},
            "store_dir": {"type": "path"},
            "since": {"type": "str", "default": "2h"},
            "directory": {"type": "path", "default": "/var/tmp"},
            "max_size": {"type": "str", "default": "64MB"},
            "command_timeout": {"type": "float", "default": 20},
            "timeout": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    frame = failing_on(
        ValueError,
        ProcessError,
        OSError,
        message=lambda error: f"The host's part of the bundle cannot be collected: {error}",
    )
    run(module, frame, ensure)


if __name__ == "__main__":
    main()
