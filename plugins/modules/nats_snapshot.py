#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_snapshot
short_description: Write a snapshot of a fleet's telemetry into a lake
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads from every server the data that the insights need (JSZ with streams, consumers, configurations and Raft
    groups, RAFTZ, VARZ, HEALTHZ, IPQUEUESZ, ROUTEZ, GATEWAYZ, LEAFZ, CONNZ, usage and limits of accounts). The module
    writes the replies below C(bronze/) in O(lake). Needs a user of the system account.
  - Replies are written as they arrive, page by page. Passwords, tokens, JWTs and the users of connections are omitted.
    The table C(jwts) has the names, public keys and times of JWTs that expire.
  - The complete snapshot becomes visible when its manifest is written, so readers never see an interrupted run. For
    object storage, the snapshot is first written to a temporary directory on the host that runs the module.
  - For each server or endpoint that did not respond, a row records the missing reply, and RV(complete) is false.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.backup_store
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode, the module checks that object storage can be reached, discovers the servers, sends no other
        requests, and writes nothing.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - Every run takes a new snapshot. A snapshot of an O(archive) replaces an earlier snapshot of the same archive.
options:
  lake:
    description:
      - Directory of the lake on the host that runs the module. The directory is created if it does not exist.
      - C(s3://BUCKET) or C(s3://BUCKET/PREFIX) stores the lake in object storage; see O(lake_s3). The bucket must exist.
        Uploads that fail are repeated for at most O(deadline) seconds.
    type: path
    required: true
  lake_s3:
    description:
      - How to reach object storage, if O(lake) is in C(s3://BUCKET/PREFIX). Needs boto3. The user needs permission to
        list the bucket, and to read and write objects, but not to delete them.
    type: dict
    suboptions:
      endpoint_url:
        description: Address of a server other than AWS, such as V(https://s3.example.com).
        type: str
      region:
        description: Region of the bucket. Defaults to the region in boto3's configuration, or V(us-east-1).
        type: str
      access_key:
        description: Access key. By default, boto3 takes the credentials from the environment, C(~/.aws), or the host's
          role.
        type: str
      secret_key:
        description: Secret key that belongs to O(lake_s3.access_key).
        type: str
      session_token:
        description: Session token of temporary credentials.
        type: str
      ca_file:
        description: CA certificates to verify the server's certificate. Defaults to the CA certificates of the system
          or of boto3.
        type: path
      addressing_style:
        description: Whether the bucket is in the path or in the host name. With V(auto), boto3 determines the style.
        type: str
        choices: [auto, path, virtual]
        default: auto
  fleet:
    description:
      - Name for these servers, such as V(production), which distinguishes them from other servers in the same lake.
    type: str
    default: default
  endpoints:
    description:
      - Endpoints to read from each server. Without V(jsz), V(raftz) is read for the system account only.
    type: list
    elements: str
    choices: [jsz, raftz, varz, healthz, ipqueuesz, routez, gatewayz, leafz, accstatz, accountz, connz]
    default: [jsz, raftz, varz, healthz, ipqueuesz, routez, gatewayz, leafz, accstatz, accountz, connz]
  expected_servers:
    description:
      - Names of servers that must respond. A missing reply makes the snapshot incomplete.
    type: list
    elements: str
    default: []
  deadline:
    description:
      - Seconds after which no more requests are sent. Missing replies are recorded in the snapshot.
    type: float
    default: 60.0
  format:
    description:
      - V(json) writes the servers' replies as compressed JSON lines. If the Python library C(msgspec) is installed,
        writing takes less than half of the CPU time.
      - V(parquet) writes typed columns, which are smaller and speed up building the tables. Fields without a column are
        kept as JSON in the column C(extra). Needs the Python libraries C(msgspec) and C(pyarrow).
      - A lake may contain both formats.
    type: str
    choices: [json, parquet]
    default: json
  archive:
    description:
      - Path of an archive from C(nats audit gather). The archive is written as a snapshot with the time of the archive,
        and no server is queried.
    type: path
  logs:
    description:
      - Directory into which you have copied recent lines of the servers' logs. The directory contains one file for each
        server, named after it, such as C(n1-c1.jsonl), in the format of C(journalctl --output=json) or of the server's
        own log. The last 10,000 lines of each file are written as the table C(server_log).
    type: path
  backups:
    description:
      - Directory of backups of M(natsops.jetstream.nats_backup) on the machine where the module runs, or
        C(s3://BUCKET/PREFIX); see O(s3). The catalogue of the directory is written as the table C(backups), with a row
        for each stream of the fleet. An unreadable catalogue makes the snapshot incomplete; without a catalogue, no
        stream has a backup.
    type: path
  drift:
    description:
      - File that the playbook C(natsops.jetstream.assets_drift) writes on the machine where the module runs. Its content
        is written as the table C(drift), with a row for each document. An unreadable file makes the snapshot incomplete.
    type: path
  hosts:
    description:
      - Data that no server reports, which M(natsops.jetstream.nats_server_host_info) read on the hosts and returned in
        C(host) of RV(natsops.jetstream.nats_server_host_info#module:unreported). This data is written as the table
        C(hosts).
    type: list
    elements: dict
    default: []
    suboptions:
      server:
        description: Name of the server that runs on the host.
        type: str
        required: true
      config_digest:
        description: Digest of the configuration file on disk.
        type: str
      open_files:
        description: Maximum number of open files of the process.
        type: int
      plaintext_passwords:
        description: Number of passwords in the configuration that are not hashed.
        type: int
      disk_free:
        description: Free bytes on the file system of the store.
        type: int
  fail_on_incomplete:
    description:
      - Whether the task fails, after the snapshot is written, if anything is missing from it.
    type: bool
    default: false
seealso:
  - module: natsops.jetstream.nats_server_info
  - module: natsops.jetstream.nats_cluster_info
  - module: natsops.jetstream.nats_server_host_info
"""

EXAMPLES = r"""
- name: Take a snapshot
  natsops.jetstream.nats_snapshot:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    lake: /var/lib/nats-insights/lake
    fleet: production
    expected_servers: [n1-c1, n2-c1, n3-c1]
  register: snapshot

- name: Take a snapshot into object storage
  natsops.jetstream.nats_snapshot:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    lake: s3://insights/production
    lake_s3:
      endpoint_url: https://s3.example.com
      access_key: nats-insights
      secret_key: "{{ insights_secret_key }}"

- name: Import an archive gathered last week
  natsops.jetstream.nats_snapshot:
    archive: /home/ops/audit-archive-1763400000.zip
    lake: /var/lib/nats-insights/lake
    fleet: production
"""

RETURN = r"""
snapshot:
  description: Name of the snapshot, empty in check mode.
  returned: success
  type: str
  sample: 20261121T184100.123456Z-3f2a9c
manifest:
  description: Path or URL of the snapshot's manifest, empty in check mode.
  returned: success
  type: str
  sample: /var/lib/nats-insights/lake/bronze/manifest/date=2026-11-21/hour=18/20261121T184100.123456Z-3f2a9c.json
complete:
  description: Whether all known and expected servers responded to all requests.
  returned: success
  type: bool
  sample: true
answered:
  description: Number of servers that responded.
  returned: success
  type: int
  sample: 3
missing:
  description: Names from O(expected_servers) that did not respond.
  returned: success
  type: list
  elements: str
  sample: []
failures:
  description: The first 50 requests without a reply.
  returned: success
  type: list
  elements: dict
  sample:
    - {endpoint: jsz, server: n2-c1, code: timeout, description: no reply within 5 s, subject: $SYS.REQ.SERVER.ND.JSZ}
rows:
  description: Number of rows in each table of the snapshot.
  returned: success
  type: dict
  sample: {servers: 3, jsz: 3, jsz_streams: 9, varz: 3}
seconds:
  description: Seconds that reading each endpoint took. Empty for an O(archive).
  returned: success
  type: dict
  sample: {jsz: 0.041, varz: 0.006}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.target import PLACE_SPEC, requested_store
from ..module_utils.collection_module import run
from ..module_utils.module import fail, make_module, with_options
from ..module_utils.nats.client import Client, ConnectionOptions, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.object_storage import SCHEME, S3Options
from ..module_utils.telemetry.capture import ENDPOINTS, CaptureOptions, collect, import_archive
from ..module_utils.telemetry.lake_store import LakeStore, requested_lake
from ..module_utils.telemetry.snapshot import FORMATS, JSON, servers_summary
from ..module_utils.waiting import positive

_HOST = {
    "server": {"type": "str", "required": True},
    "config_digest": {"type": "str"},
    **{name: {"type": "int", "no_log": False} for name in ("open_files", "plaintext_passwords", "disk_free")},
}


def lake_store(module: AnsibleModule, seconds: float) -> LakeStore:
    """Return the lake. Files are uploaded from the module's temporary directory, which Ansible removes."""
    place, options = module.params["lake"], module.params["lake_s3"] or {}
    temporary = module.tmpdir if place.startswith(SCHEME) else None
    return requested_lake(place, S3Options(**options, option="lake_s3"), seconds, temporary)


def step_results(place: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the module's result from the snapshot's manifest."""
    return {
        "changed": True,
        "snapshot": manifest["snapshot"],
        "manifest": place,
        "complete": manifest["complete"],
        "answered": manifest["servers"],
        "missing": manifest["missing"],
        "failures": manifest["quoted_failures"],
        "rows": {name: table["rows"] for name, table in manifest["tables"].items()},
        "seconds": manifest.get("seconds", {}),
    }


def preview(client: Client, expected: list[str]) -> dict[str, Any]:
    """Return the result of check mode, based on discovery alone."""
    found = SystemApi(client).discover(expected)
    summary = servers_summary(list(found.servers), found.missing, 0)
    nothing: dict[str, Any] = {"snapshot": "", "failures": [], "quoted_failures": [], "tables": {}}
    return step_results("", {**nothing, **summary})


def refusal(result: dict[str, Any]) -> NatsFailure | None:
    """Return why an incomplete snapshot is a failure; None if it is complete."""
    if result["complete"]:
        return None
    reasons = [f"{name} did not answer" for name in result["missing"]]
    reasons += [
        f"{item['server']} did not return {item['endpoint']}: {item['description']}" for item in result["failures"]
    ]
    return NatsFailure("incomplete", "; ".join(reasons) or "servers that only other servers reported did not answer")


def ensure(options: ConnectionOptions, module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result. Ends the module with a failure if data is missing and the options do not allow
    this."""
    params = module.params
    deadline = positive(params["deadline"], "deadline")
    lake = lake_store(module, deadline)
    if params["archive"]:
        lake.require()
        if module.check_mode:
            return {"changed": True}
        result = step_results(*import_archive(Path(params["archive"]), lake, params["fleet"], params["format"]))
    else:
        logs = Path(params["logs"]) if params["logs"] else None
        if logs is not None and not logs.is_dir():
            raise NatsFailure("invalid_option", f"logs: {logs} is not a directory")
        backups = requested_store(params, "backups") if params["backups"] else None
        asked = (params["endpoints"], params["expected_servers"], deadline)
        drift = Path(params["drift"]) if params["drift"] else None
        wanted = CaptureOptions(lake, params["fleet"], *asked, logs, backups, params["format"], params["hosts"], drift)
        lake.require()
        with Client(options) as client:
            if module.check_mode:
                return preview(client, params["expected_servers"])
            result = step_results(*collect(client, wanted))
    failure = refusal(result) if params["fail_on_incomplete"] else None
    if failure is not None:
        fail(module, failure, **result)
    return result


def main() -> None:
    module: AnsibleModule = make_module(
        {
            "lake": {"type": "path", "required": True},
            "lake_s3": PLACE_SPEC["s3"],
            "fleet": {"type": "str", "default": "default"},
            "endpoints": {"type": "list", "elements": "str", "choices": list(ENDPOINTS), "default": list(ENDPOINTS)},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "deadline": {"type": "float", "default": 60.0},
            "format": {"type": "str", "choices": list(FORMATS), "default": JSON},
            "archive": {"type": "path"},
            "logs": {"type": "path"},
            "backups": {"type": "path"},
            "drift": {"type": "path"},
            "hosts": {"type": "list", "elements": "dict", "default": [], "options": _HOST},
            **PLACE_SPEC,
            "fail_on_incomplete": {"type": "bool", "default": False},
        },
        mutually_exclusive=[("archive", "logs"), ("archive", "backups"), ("archive", "drift")],
    )

    run(module, with_options, lambda options: ensure(options, module))


if __name__ == "__main__":
    main()
