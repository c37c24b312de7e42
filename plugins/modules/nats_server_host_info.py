# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_host_info
short_description: Read the state of a host and of its nats-server
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads, in a single run, the state on which a deployment is based. This state consists of the process, its unit, its
    C(/varz), the record of its loaded configuration, the installed version, and the host's memory, file systems and
    settings.
  - Runs on the managed host and needs no connection to NATS. M(natsops.jetstream.nats_server_process_info) reads only
    the process, and can wait for its ports.
  - O(unit) is ignored on a host without systemd.
  - The result contains password hashes, so Ansible never prints it. A failure is printed.
extends_documentation_fragment:
  - natsops.jetstream.process
  - natsops.jetstream.attributes.plain_info_module
options:
  secrets:
    description: Path of the file with the secrets, which O(config) includes.
    type: path
    required: true
  record:
    description: Path of the record of the loaded configuration, a JSON file with C(config).
    type: path
    required: true
  tls_files:
    description: Certificates, keys and C(.creds) files that the server reads.
    type: list
    elements: path
    default: []
  certificate_files:
    description: >-
      TLS files that are managed on the host, with C(cert_file), C(key_file) and C(ca_file). The files are checked on
      the host; the private key is not returned.
    type: dict
    suboptions:
      cert_file:
        description: The certificate that nats-server presents, followed by the intermediate certificates.
        type: path
        required: true
      key_file:
        description: The private key of the certificate.
        type: path
        required: true
      ca_file:
        description: The CA certificates that nats-server trusts.
        type: path
        required: true
  monitoring:
    description:
      - The configuration keys that set the monitoring endpoint, such as C(http) and C(https_port). The keys of the
        recorded configuration take precedence.
    type: dict
    default: {}
  install_dir:
    description: Directory of the installed versions.
    type: path
    required: true
  binary:
    description: The executable that the service starts.
    type: path
  version:
    description: The version to look up in O(install_dir).
    type: str
    required: true
  server_name:
    description: Name of the server, for RV(version_change).
    type: str
    default: ''
  jetstream:
    description: Whether the server should have JetStream, for RV(version_change).
    type: bool
    default: false
  src:
    description: A file on the controller from which O(version) is installed. The checksum of this file is returned.
    type: path
  user:
    description: Name of the user that should run the server.
    type: str
    required: true
  group:
    description: Name of the group that should run the server.
    type: str
    required: true
  paths:
    description: Directories whose file systems are returned. The directories need not exist yet.
    type: list
    elements: path
    default: []
  store:
    description: The directory set as C(jetstream.store_dir) in the configuration.
    type: path
  tunings:
    description: Which settings of the host to check.
    type: list
    elements: str
    choices: [mount_options, scheduler, sysctl, transparent_hugepages, time_sync]
    default: []
  tuned_path:
    description: Path of the store, for O(tunings).
    type: path
    default: /
  sysctls:
    description: Kernel parameters and their expected values, for V(sysctl) of O(tunings).
    type: dict
    default: {}
  firewall:
    description: The record of M(natsops.jetstream.nats_server_firewall).
    type: path
  smoke_test:
    description: File that exists while the smoke test of a deployment is due.
    type: path
  managed:
    description:
      - The files and directories whose state is returned as RV(managed), for
        O(natsops.jetstream.nats_server_files#module:observed).
      - While the server is running, O(config) is also tested with C(nats-server -t).
    type: dict
    suboptions:
      paths:
        description: Absolute paths.
        type: list
        elements: path
        required: true
      take_over:
        description: Whether O(version) in O(install_dir) tests the configuration. Otherwise, the image of the running
          process does.
        type: bool
        default: true
      environment:
        description: The environment variables that the configuration uses, as the text of a JSON object.
        type: str
"""

EXAMPLES = r"""
- name: Read the host
  natsops.jetstream.nats_server_host_info:
    config: /etc/nats-server/nats-server.conf
    secrets: /etc/nats-server/secrets.conf
    record: /etc/nats-server/running.json
    unit: nats-server
    install_dir: /opt/nats-server
    version: 2.10.27
    user: nats
    group: nats
    paths: [/var/lib/nats]
  become: true
  register: result
"""

RETURN = r"""
process:
  description: The process, as returned by M(natsops.jetstream.nats_server_process_info).
  type: dict
  returned: always
monitor_url:
  description: Base URL of the monitoring endpoint, as reached from the host itself. Empty if the endpoint is disabled.
  type: str
  returned: always
  sample: http://127.0.0.1:8222
varz:
  description: The server's own C(/varz). Empty if no server is running or its monitoring port does not respond.
  type: dict
  returned: always
record:
  description: The content of O(record). Empty if the file does not exist.
  type: dict
  returned: always
loaded:
  description: >-
    The configuration that the process has loaded, as far as its files prove it, with C(instance), C(config_changed) and
    C(config); returned only if O(record) does not exist. Empty if the loaded configuration cannot be proven or the
    record exists.
  type: dict
  returned: always
secrets:
  description: The text of O(secrets). Empty if the file does not exist.
  type: str
  returned: always
feature_flags:
  description: >-
    The C(feature_flags) of the recorded or proven configuration. If neither is known, for example after maintenance,
    the C(feature_flags) of O(config).
  type: dict
  returned: always
  sample: {js_raft_delete_range: false}
tls_changed:
  description: Latest modification time of O(tls_files), in epoch seconds by the host's clock. 0 if there are none.
  type: float
  returned: always
installed:
  description: Whether O(install_dir) contains O(version), and its binary runs and reports that version.
  type: bool
  returned: always
stopped_version:
  description: >-
    Version of O(binary) if the server is not running. Empty if the server is running, or if O(binary) is not an
    executable of nats-server.
  type: str
  returned: always
version_change:
  description:
    - The change from the running or installed version to O(version), with C(name), C(jetstream), C(running),
      C(version), C(target), and C(changes), which is whether the two versions differ. A stopped server without streams
      counts as new, so its C(version) is empty.
    - C(streams) and C(groups) are those of RV(store). C(in_meta_group) is whether the store belongs to a meta group.
  type: dict
  returned: always
installed_from:
  description: SHA-256 of the file from which the version was installed. Empty if it was not recorded.
  type: str
  returned: always
src_sha256:
  description: SHA-256 of O(src) on the controller. Empty if the file does not exist.
  type: str
  returned: always
smoke_test_due:
  description: Whether O(smoke_test) exists.
  type: bool
  returned: always
maintenance:
  description:
    - Who took the host out of service, with C(server), C(by), C(since) and C(until) (epoch seconds), C(reason), and
      C(held), which is whether the server is kept from starting. Null if the host is not in maintenance or
      O(maintenance) is not set.
  type: dict
  returned: always
  sample:
    server: n3-c1
    by: ops@ctl-1
    since: 1795529600.0
    until: 1795544000.0
    reason: new disk
    held: true
service_manager:
  description: V(systemd), or empty on a host without systemd.
  type: str
  returned: always
unit_enabled:
  description: Whether O(unit) starts at boot.
  type: bool
  returned: always
daemon_reload_needed:
  description: Whether the files of O(unit) are newer than the version that systemd has loaded.
  type: bool
  returned: always
drop_ins:
  description: The drop-ins of O(unit), each with its C(path) and the names of the C(options) that it sets.
  type: list
  elements: dict
  returned: always
  sample: [{path: /etc/systemd/system/nats-server.service.d/limits.conf, options: [LimitNOFILE]}]
architecture:
  description: The machine's architecture, as named by the kernel.
  type: str
  returned: always
  sample: x86_64
memory_mb:
  description: Memory in MiB.
  type: int
  returned: always
user:
  description: The C(group), C(comment), C(home) and C(shell) of O(user). Empty if the user does not exist.
  type: dict
  returned: always
group_exists:
  description: Whether O(group) exists.
  type: bool
  returned: always
filesystems:
  description: >-
    The file systems of O(paths), each with C(mount), C(fstype), and in bytes C(size_total) and C(size_available) (null
    if unknown). C(rotating_disks) lists the underlying disks that the kernel reports as rotating.
  type: list
  elements: dict
  returned: always
store:
  description:
    - The content of O(store); null if that option is not set. C(streams) is the number of streams, C(accounts) the
      number of streams in each account, and C(peers) the Raft ids of the meta group's members (null for the store of a
      standalone server).
    - C(system_accounts) are the accounts that contain a meta group.
    - C(clusters) are the clusters to which the meta group has assigned streams; empty if unknown.
    - C(groups) lists up to 50 Raft groups of streams and consumers in the store.
    - C(index_format) is the newest format of the C(index.db) files; 0 if there are none, as before nats-server 2.10.
  type: dict
  returned: always
  sample:
    streams: 12
    accounts: {APP: 12}
    peers: [44jzkV9D, BXScrY9i, fjFyEjc1]
    system_accounts: [$SYS]
    clusters: [C1]
    groups: [S-R3F-lBXd4rn6]
    index_format: 4
loaded_store:
  description: >-
    The same information as in RV(store), with the C(path), about the store directory of the last loaded configuration.
    Null if that directory is O(store) or unknown.
  type: dict
  returned: always
certificate:
  description:
    - The certificate in O(certificate_files); null if that option is not set. C(certificate) is the PEM text, and
      C(missing) lists the files that do not exist.
    - C(reasons) lists why nats-server cannot use the files, for example because the key belongs to another certificate.
  type: dict
  returned: always
  sample: {missing: [], certificate: "-----BEGIN CERTIFICATE-----...", reasons: []}
selinux:
  description:
    - C(mode) is SELinux's mode, V(enforcing) or V(permissive); empty without SELinux.
    - C(binary_type) is the type that the SELinux policy gives to the executable of O(version) in O(install_dir).
      C(install_dir) is the value of O(install_dir).
  type: dict
  returned: always
  sample: {mode: enforcing, binary_type: bin_t, install_dir: /opt/nats-server}
firewall:
  description: Whether O(firewall) exists, so M(natsops.jetstream.nats_server_firewall) has rules on the host.
  type: bool
  returned: always
managed:
  description:
    - The state of O(managed.paths); null if that option is not set. Each path in C(paths) has its C(kind) (V(file),
      V(directory), V(absent) or V(other)), C(mode), C(owner), C(group), and the C(sha256) of a file's content.
    - C(leftovers) lists temporary files of a killed run. C(trial) has the C(binary), C(config) and C(digest) of a
      successful test; null without one.
  type: dict
  returned: always
tunings:
  description: >-
    For each of O(tunings), the C(findings) (texts on possible improvements), C(settable) (whether the setting can be
    changed from this host), and the requirements of the change.
  type: dict
  returned: always
"""

import os
from typing import Any

from ..module_utils.collection_module import CollectionModule
from ..module_utils.host import tunings
from ..module_utils.host.certificate import read_certificate
from ..module_utils.host.files import FilesError
from ..module_utils.host.install import binary_path, is_installed, source_digest
from ..module_utils.host.loaded import config_flags, file_flags, read_loaded, store_path
from ..module_utils.host.observation import (
    PROCESS_SPEC,
    newest,
    read_drop_ins,
    read_mark,
    read_process,
    read_record,
    read_text,
    read_varz,
    unit_properties,
    version_change,
)
from ..module_utils.host.observed_files import ObservedFiles, observe_files
from ..module_utils.host.process import ProcessError, executable_version, running_servers
from ..module_utils.host.store import store_owner
from ..module_utils.host.system import account, filesystems, has_systemd, memory_mb, selinux_mode
from ..module_utils.host.trial import config_digest, parse_environment, run_trial
from ..module_utils.server_config.listeners import monitor_url


def proven(module: CollectionModule, process: dict[str, Any]) -> dict[str, Any]:
    """Return the loaded configuration as a record; empty if the files do not prove it."""
    server = next((one for one in running_servers() if one.process.instance == process["instance"]), None)
    if not server:
        return {}
    found = read_loaded(server, process["version"], module.run_command)
    if not found.proof:
        return {}
    return {"instance": process["instance"], "config_changed": process["config_changed"], "config": found.config}


def other_store(config: dict[str, Any], store: str | None) -> dict[str, Any] | None:
    """Return the content of the store directory of a loaded configuration, None if that directory is `store`. Raises
    OSError."""
    path = store_path(config)
    if not path or (store and os.path.realpath(path) == os.path.realpath(store)):
        return None
    return {"path": path, **store_owner(path).as_dict()}


def read_selinux(module: CollectionModule) -> dict[str, str]:
    """Return the mode of SELinux, and the type that its policy gives to the executable, which need not exist."""
    install_dir = module.params["install_dir"]
    found = {"mode": selinux_mode(), "binary_type": "", "install_dir": install_dir}
    if found["mode"]:
        context = module.selinux_default_context(str(binary_path(install_dir, module.params["version"])))
        found["binary_type"] = context[2] if context and len(context) > 2 else ""
    return found


def read_managed(module: CollectionModule, process: dict[str, Any]) -> ObservedFiles | None:
    """Return the state of the managed files. Raises FilesError if the environment is invalid, OSError."""
    managed = module.params["managed"]
    if not managed:
        return None
    trial = None
    if process["running"]:
        desired = binary_path(module.params["install_dir"], module.params["version"])
        binary = str(desired) if managed["take_over"] else f"/proc/{process['pid']}/exe"
        environment = parse_environment(managed["environment"], "managed.environment")
        try:
            accepted, output = run_trial(module.run_command, binary, module.params["config"], environment)
        except OSError:
            accepted, output = False, ""
        if accepted:
            trial = {"binary": binary, "config": module.params["config"], "digest": config_digest(output)}
    return observe_files(managed["paths"], trial)


def read(module: CollectionModule) -> dict[str, Any]:
    """Return the values of the module."""
    given = module.params
    systemd = has_systemd()
    properties = unit_properties(module.run_command, given["unit"]) if systemd and given["unit"] else {}
    process = read_process(properties, given["config"], [given["secrets"]], given["files"])
    record = read_record(given["record"])
    loaded = {} if record or not process["running"] else proven(module, process)
    known = record or loaded
    url = monitor_url(known.get("config") or given["monitoring"])
    stopped_version = "" if process["running"] else executable_version(given["binary"] or "")
    store = store_owner(given["store"]).as_dict() if given["store"] else None
    return {
        "process": process,
        "monitor_url": url,
        "varz": read_varz(url) if process["running"] else {},
        "record": record,
        "loaded": loaded,
        # The file may be newer than the configuration that the process loaded, and reading it takes time.
        "feature_flags": config_flags(known["config"]) if "config" in known else file_flags(given["config"]),
        "secrets": read_text(given["secrets"]),
        "tls_changed": newest(given["tls_files"]),
        "certificate": read_certificate(files, given["user"]) if (files := given["certificate_files"]) else None,
        "installed": is_installed(given["install_dir"], given["version"]),
        "stopped_version": stopped_version,
        "version_change": {
            "name": given["server_name"],
            "jetstream": given["jetstream"],
            **version_change(process, stopped_version, given["version"], store or {}),
        },
        "installed_from": source_digest(given["install_dir"], given["version"]),
        "maintenance": read_mark(given["maintenance"]),
        "smoke_test_due": bool(given["smoke_test"]) and os.path.exists(given["smoke_test"]),
        "service_manager": "systemd" if systemd else "",
        "unit_enabled": properties.get("UnitFileState") == "enabled",
        "drop_ins": read_drop_ins(properties),
        "daemon_reload_needed": properties.get("NeedDaemonReload") == "yes",
        "architecture": os.uname().machine,
        "memory_mb": memory_mb(),
        **account(given["user"], given["group"]),
        "filesystems": filesystems(given["paths"]),
        "store": store,
        "loaded_store": other_store(known.get("config") or {}, given["store"]),
        "selinux": read_selinux(module),
        "managed": read_managed(module, process),
        "firewall": bool(given["firewall"]) and os.path.exists(given["firewall"]),
        "tunings": tunings.read(given["tunings"], given["tuned_path"], given["sysctls"], module.run_command),
    }


def main() -> None:
    paths = {"type": "list", "elements": "path", "default": []}
    module = CollectionModule(
        argument_spec={
            **PROCESS_SPEC,
            "secrets": {"type": "path", "required": True, "no_log": False},
            "record": {"type": "path", "required": True},
            "tls_files": paths,
            "certificate_files": {
                "type": "dict",
                "options": {name: {"type": "path", "required": True} for name in ("cert_file", "key_file", "ca_file")},
            },
            "monitoring": {"type": "dict", "default": {}},
            "install_dir": {"type": "path", "required": True},
            "binary": {"type": "path"},
            "version": {"type": "str", "required": True},
            "server_name": {"type": "str", "default": ""},
            "jetstream": {"type": "bool", "default": False},
            "src": {"type": "path"},
            "user": {"type": "str", "required": True},
            "group": {"type": "str", "required": True},
            "paths": paths,
            "store": {"type": "path"},
            "tunings": {
                "type": "list",
                "elements": "str",
                "choices": list(tunings.PARTS),
                "default": [],
            },
            "tuned_path": {"type": "path", "default": "/"},
            "sysctls": {"type": "dict", "default": {}},
            "firewall": {"type": "path"},
            "smoke_test": {"type": "path"},
            "managed": {
                "type": "dict",
                "options": {
                    "paths": {"type": "list", "elements": "path", "required": True},
                    "take_over": {"type": "bool", "default": True},
                    "environment": {"type": "str", "no_log": True},
                },
            },
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except (ProcessError, FilesError, OSError, ValueError) as error:
        module.fail_json(msg=f"The host cannot be read: {error}")


if __name__ == "__main__":
    main()
