#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_bundle
short_description: Write an incident support bundle without secrets
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Queries all monitoring endpoints and profiles of every server that answers (VARZ, HEALTHZ, JSZ with streams,
    consumers and Raft groups, STATSZ, ROUTEZ, GATEWAYZ, LEAFZ, ACCOUNTZ, CONNZ, SUBSZ, EXPVARZ; RAFTZ for each
    account, IPQUEUESZ). Adds the archives of O(hosts), the findings of the health gate and the roll journal, and
    writes a ZIP file that only its owner can read. Needs a user of the system account.
  - The ZIP has the layout of C(nats audit gather), so C(nats audit analyze) and
    O(natsops.jetstream.nats_snapshot#module:archive) can read it. C(capture/misc/bundle.json) contains checksums, and
    lists the missing parts with the reasons.
  - The module changes nothing on the cluster, takes no lock, and works even if servers, hosts or the entire cluster
    are down.
  - Passwords, tokens, JWTs, nkeys, command lines, the users of connections and the values of O(secrets) are left out.
    As a final check, any file that still contains one of these secrets, in plain text, Base64, a URL or compressed
    data, is excluded and listed in RV(missing).
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    description: Discovers the servers, sends no other requests, and writes nothing.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  idempotent:
    description: Every run writes a new bundle.
    support: none
options:
  path:
    description: Path of the ZIP file on the machine where the module runs. An existing file is replaced.
    type: path
    required: true
  expected_servers:
    description: Names of servers that should answer. Servers that do not answer are listed as missing.
    type: list
    elements: str
    default: []
  profiles:
    description:
      - Profiles to read from each server. V(goroutine) produces two text files with the stacks.
      - V(cpu) is measured for 15 seconds, or for O(timeout) minus 2 seconds if that is shorter. V(block) is empty
        unless C(prof_block_rate) is set.
    type: list
    elements: str
    choices: [goroutine, heap, allocs, mutex, block, threadcreate, cpu]
    default: [goroutine, heap, allocs, mutex, block, threadcreate]
  deadline:
    description: Seconds after which no more requests are sent. Data not received in this time is listed as missing.
    type: float
    default: 120.0
  max_size:
    description: Maximum size of the ZIP file in bytes, at least V(1MiB). Parts that do not fit are listed in RV(cut).
    type: str
    default: 200MB
  hosts:
    description: The hosts from which M(natsops.jetstream.nats_host_bundle) collected data.
    type: list
    elements: dict
    default: []
    suboptions:
      server:
        description: Name of the host's server. The host's archive is C(SERVER.tar.gz) in O(work_directory), where
          C(SERVER) is this name.
        type: str
        required: true
      failure:
        description: Why the host has no archive.
        type: str
        default: ""
  work_directory:
    description: Directory with the archives of O(hosts) on the machine where the module runs.
    type: path
  journal:
    description: Path of the roll journal on the machine where the module runs. Only the end of the journal is
      included.
    type: path
  secrets:
    description:
      - Secrets to keep out of the bundle. A string is itself a secret. In a dictionary of variables or configuration, a
        value at any depth is a secret if its key ends in C(password), C(pass), C(token), C(secret), C(seed), C(jwt),
        C(key) or C(ek). Passwords and tokens in URLs are secrets, too.
      - The secrets of the connection are always added.
    type: list
    elements: raw
    default: []
  versions:
    description: Versions to record, such as the version of the collection.
    type: dict
    default: {}
seealso:
  - module: natsops.jetstream.nats_host_bundle
  - module: natsops.jetstream.nats_snapshot
"""

EXAMPLES = r"""
- name: Write a bundle from the servers
  natsops.jetstream.nats_bundle:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    path: /home/ops/incident.zip
    expected_servers: [n1-c1, n2-c1, n3-c1]
    secrets: ["{{ app_password }}", "{{ nats_server_accounts }}"]
  register: bundle

- name: Analyze the bundle with the insights
  natsops.jetstream.nats_snapshot:
    archive: /home/ops/incident.zip
    lake: /var/lib/nats-insights/lake
    fleet: incident
"""

RETURN = r"""
path:
  description: Path of the ZIP file. Empty in check mode.
  returned: success
  type: str
  sample: /home/ops/incident.zip
size:
  description: Size of the ZIP file in bytes.
  returned: success
  type: int
  sample: 1843022
sha256:
  description: SHA-256 digest of the ZIP file.
  returned: success
  type: str
  sample: 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
answered:
  description: Names of the servers that answered.
  returned: success
  type: list
  elements: str
  sample: [n1-c1, n3-c1]
missing:
  description: The missing parts, with the server and the reason.
  returned: success
  type: list
  elements: dict
  sample:
    - {server: n2-c1, item: host, reason: the host cannot be reached}
    - {server: n2-c1, item: server, reason: it did not answer}
cut:
  description: The parts that did not fit or are only partly included.
  returned: success
  type: list
  elements: dict
  sample:
    - {server: n1-c1, item: journal.log, reason: the last 32.0 MiB of 210.4 MiB are kept}
lines:
  description: The result as readable text.
  returned: success
  type: list
  elements: str
  sample:
    - "/home/ops/incident.zip: 1.8 MiB, 214 files"
    - 2 of 3 servers answered; 2 of 3 hosts did
    - "missing: host of n2-c1: the host cannot be reached"
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.archive_contents import sha256_of
from ..module_utils.collection_module import run
from ..module_utils.module import known_secrets, make_module, with_options
from ..module_utils.nats.client import Client, ConnectionOptions, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.redaction import Redactor, secrets_in
from ..module_utils.reporting.bundle import PROFILES, BundleContents, HostPart, bundle, summary
from ..module_utils.reporting.bundle_archive import SMALLEST
from ..module_utils.units import size_bytes
from ..module_utils.waiting import positive


def folder_contents(params: dict[str, Any]) -> BundleContents:
    """Return the requested contents of the bundle. Raises NatsFailure invalid_option."""
    for host in params["hosts"]:
        if "/" in host["server"] or host["server"] in ("", ".", ".."):
            raise NatsFailure("invalid_option", f"hosts: {host['server']!r} is not a server name")
    return BundleContents(
        expected=params["expected_servers"],
        profiles=params["profiles"],
        deadline=positive(params["deadline"], "deadline"),
        hosts=[HostPart(host["server"], host["failure"]) for host in params["hosts"]],
        work=Path(params["work_directory"]) if params["work_directory"] else None,
        journal=Path(params["journal"]) if params["journal"] else None,
        versions=params["versions"],
    )


def requested_limit(params: dict[str, Any]) -> int:
    """Return the maximum size of the ZIP file in bytes. Raises NatsFailure invalid_option."""
    try:
        size = size_bytes(params["max_size"])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"max_size: {error}") from error
    if size < SMALLEST:
        raise NatsFailure("invalid_option", "max_size: a bundle needs at least 1MiB")
    return size


def preview(options: ConnectionOptions, contents: BundleContents, path: Path) -> dict[str, Any]:
    """Return the result of check mode, based on discovery alone."""
    answered: list[str] = []
    reason = ""
    try:
        with Client(options) as client:
            answered = [server.name for server in SystemApi(client).discover(contents.expected).servers]
    except NatsFailure as failure:
        reason = failure.description
    expected = sorted({*contents.expected, *answered})
    lines = [
        f"would write {path}",
        f"{len(answered)} of {len(expected)} servers and {len(contents.hosts)} hosts would be queried",
        f"profiles: {', '.join(contents.profiles) or 'none'}",
    ]
    lines += [f"the cluster cannot be queried: {reason}"] if reason else []
    lines += [f"would be missing: {name}: it did not answer" for name in expected if name not in answered][:10]
    nothing = {"path": "", "size": 0, "sha256": "", "missing": [], "cut": []}
    return {"changed": True, **nothing, "answered": answered, "lines": lines}


def ensure(options: ConnectionOptions, module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result."""
    params = module.params
    contents, path, limit = folder_contents(params), Path(params["path"]), requested_limit(params)
    if module.check_mode:
        return preview(options, contents, path)
    redactor = Redactor([*secrets_in(params["secrets"], "secret"), *known_secrets(options)])
    index = bundle(options, path, contents, redactor, limit)
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = sha256_of(file)
    return {
        "changed": True,
        "path": str(path),
        "size": size,
        "sha256": digest,
        "answered": index["servers"],
        "missing": index["missing"],
        "cut": index["cut"],
        "lines": summary(index, path, size),
    }


def main() -> None:
    module: AnsibleModule = make_module(
        {
            "path": {"type": "path", "required": True},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "profiles": {
                "type": "list",
                "elements": "str",
                "choices": list(PROFILES),
                "default": [name for name in PROFILES if name != "cpu"],
            },
            "deadline": {"type": "float", "default": 120.0},
            "max_size": {"type": "str", "default": "200MB"},
            "hosts": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "server": {"type": "str", "required": True},
                    "failure": {"type": "str", "default": ""},
                },
            },
            "work_directory": {"type": "path"},
            "journal": {"type": "path"},
            "secrets": {"type": "list", "elements": "raw", "default": [], "no_log": True},
            "versions": {"type": "dict", "default": {}},
        }
    )
    run(module, with_options, lambda options: ensure(options, module))


if __name__ == "__main__":
    main()
