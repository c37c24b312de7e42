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
  - Reads one host, in a single run. O(gather_subset) selects the data, and the description of each option lists the
    subsets that use or require it. An option that no requested subset uses is refused.
  - Runs on the managed host and needs no connection to NATS. The module changes nothing.
  - Reading the executable, the sockets and the store of another user's process needs root.
  - The results of V(deployment) and V(adoption) contain passwords, so Ansible never prints them, not even with C(-vvv).
    A failure is printed, so the task does not need C(no_log).
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  gather_subset:
    description:
      - >-
        V(process): The nats-server that runs with O(config), from C(/proc) and, if O(unit) is set, from systemd. Can
        wait until the process listens on O(ports).
      - >-
        V(deployment): The state on which a deployment is based: the process, its unit, its C(/varz), the record of its
        loaded configuration, the installed version, and the host's memory, file systems and settings.
      - >-
        V(adoption): The data of a nats-server that was not deployed by this collection, for
        M(natsops.jetstream.nats_adoption). The configuration is read in the same way as by nats-server, with includes,
        variables, and the flags of the command line. From nats-server 2.11 on, the digest of the configuration must
        match the one that the process reports. On older servers, no configuration file may have changed since the
        process loaded it.
      - >-
        V(rescue): The last sequence of each stream from the files of the store, whether or not the server is running,
        and whether a server that is down could be started again. A server can be started if its configuration file and
        its unit exist, the unit is not masked, and no maintenance prevents the start. From an encrypted store, only the
        names of the streams are returned.
      - >-
        V(diagnosis): The server's recent warnings and errors, the digest of its configuration file, and the usage of
        its disk, for P(natsops.jetstream.nats_diagnosis#filter) together with V(process).
      - >-
        V(log): The last lines of the log that show why the server ended or did not load its configuration.
      - >-
        V(unreported): Data that the checks of the insights need but that the server's endpoints do not report, without
        secrets. O(natsops.jetstream.nats_snapshot#module:hosts) adds this data to a snapshot.
      - >-
        V(backup_files): The files of the host that belong in a backup of its cluster: the configuration with its
        includes as one text, the certificates of the configured authorities, and the JWTs of its resolver. The text
        contains no secrets, no matter how the files were written. Each secret is replaced by a variable; the keys of
        the parsed configuration determine which values are secrets.
    type: list
    elements: str
    choices: [process, deployment, adoption, rescue, diagnosis, log, unreported, backup_files]
    default: [process]
  config:
    description:
      - Path of the configuration file on the server's command line. This path identifies the server.
      - Required by V(process), V(deployment), V(rescue), V(diagnosis) and V(backup_files). For V(adoption) and
        V(unreported), it selects the server if several are running.
    type: path
  unit:
    description:
      - Name of the systemd unit that should run the server. Ignored on a host without systemd.
      - Used by V(process), V(deployment), V(rescue), V(diagnosis) and V(log).
    type: str
  files:
    description:
      - Files that the process reads only at startup, such as its environment file.
      - With O(unit), the list also includes the unit, its drop-ins and its environment files.
      - Used by V(process) and V(deployment).
    type: list
    elements: path
    default: []
  maintenance:
    description:
      - File that marks the host as in maintenance. While the server must not be started, an empty file with the
        additional suffix C(.hold) exists next to this file.
      - Used by V(process), V(deployment) and V(rescue).
    type: path
  server_name:
    description: Name of this host's server. Used by V(process) with O(members), and by V(deployment) for
      RV(version_change).
    type: str
    default: ''
  store_dir:
    description:
      - Directory of the store, as in C(jetstream.store_dir) of the configuration.
      - Required by V(rescue), used by V(deployment) and V(diagnosis).
    type: path
  includes:
    description: The other configuration files, which O(config) includes. Used by V(process).
    type: list
    elements: path
    default: []
  ports:
    description: TCP ports to wait for. The module waits until the process listens on all of them or has exited. Used by
      V(process).
    type: list
    elements: int
    default: []
  timeout:
    description: Seconds to wait for O(ports). If the ports are not open within this time, the task does not fail; see
      C(missing_ports) of RV(process). Used by V(process).
    type: float
    default: 0
  members:
    description:
      - The servers of the inventory, as returned by P(natsops.jetstream.nats_topology#filter). The host tries to
        connect to the cluster ports of its own cluster and to the gateway ports of the other clusters; see
        RV(closed_ports).
      - Used by V(process).
    type: list
    elements: dict
    default: []
  secrets:
    description: Path of the file with the secrets, which O(config) includes. Required by V(deployment).
    type: path
  record:
    description: Path of the record of the loaded configuration, a JSON file with C(config). Required by V(deployment).
    type: path
  tls_files:
    description: Certificates, keys and C(.creds) files that the server reads. Used by V(deployment).
    type: list
    elements: path
    default: []
  certificate_files:
    description: >-
      TLS files that are managed on the host, with C(cert_file), C(key_file) and C(ca_file). The files are checked on
      the host; the private key is not returned. Used by V(deployment).
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
      - Used by V(deployment).
    type: dict
    default: {}
  install_dir:
    description: Directory of the installed versions. Required by V(deployment).
    type: path
  binary:
    description: The executable that the service starts. Used by V(deployment).
    type: path
  version:
    description: The version to look up in O(install_dir). Required by V(deployment).
    type: str
  jetstream:
    description: Whether the server should have JetStream, for RV(version_change). Used by V(deployment).
    type: bool
    default: false
  src:
    description: A file on the controller from which O(version) is installed. The checksum of this file is returned.
      Used by V(deployment).
    type: path
  user:
    description: Name of the user that should run the server. Required by V(deployment).
    type: str
  group:
    description: Name of the group that should run the server. Required by V(deployment).
    type: str
  paths:
    description: Directories whose file systems are returned. The directories need not exist yet. Used by V(deployment).
    type: list
    elements: path
    default: []
  tunings:
    description: Which settings of the host to check. Used by V(deployment).
    type: list
    elements: str
    choices: [mount_options, scheduler, sysctl, transparent_hugepages, time_sync]
    default: []
  tuned_path:
    description: Path of the store, for O(tunings). Used by V(deployment).
    type: path
    default: /
  sysctls:
    description: Kernel parameters and their expected values, for V(sysctl) of O(tunings). Used by V(deployment).
    type: dict
    default: {}
  firewall:
    description: The record of M(natsops.jetstream.nats_server_firewall). Used by V(deployment).
    type: path
  smoke_test:
    description: File that exists while the smoke test of a deployment is due. Used by V(deployment).
    type: path
  managed:
    description:
      - The files and directories whose state is returned as RV(managed), for
        O(natsops.jetstream.nats_server_files#module:observed).
      - While the server is running, O(config) is also tested with C(nats-server -t).
      - Used by V(deployment).
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
  log_since:
    description: How many seconds back the log is read. Required by V(diagnosis).
    type: int
  log_file:
    description: The log file of the server, if its configuration sets one. Otherwise, the journal of O(unit) is read.
      V(log) reads both. Used by V(diagnosis) and V(log).
    type: path
  output_file:
    description: File with the output of a server without a unit. V(diagnosis) reads this file only if O(log_file) is
      not set. Used by V(diagnosis) and V(log).
    type: path
  log_utc:
    description: Whether the times in O(log_file) are in UTC. Used by V(diagnosis).
    type: bool
    default: false
  copy:
    description: Directory of a copy of the store, as created by M(natsops.jetstream.nats_store_copy). Used by
      V(rescue).
    type: path
  prefix:
    description: Prefix of the names in C(content) of RV(backup_files), such as the name of the host. Used by
      V(backup_files).
    type: str
    default: ""
seealso:
  - module: natsops.jetstream.nats_adoption
  - module: natsops.jetstream.nats_backup
  - module: natsops.jetstream.nats_rescue
  - module: natsops.jetstream.nats_snapshot
  - plugin: natsops.jetstream.nats_diagnosis
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the process
  natsops.jetstream.nats_server_host_info:
    config: /etc/nats-server/nats-server.conf
    unit: nats-server
  become: true
  register: result

- name: Read the state on which a deployment is based
  natsops.jetstream.nats_server_host_info:
    gather_subset: [deployment]
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

- name: Read a server that was not deployed by this collection
  natsops.jetstream.nats_server_host_info:
    gather_subset: [adoption]
  become: true
  register: result

- name: Read the streams on the disk of a host whose server is down
  natsops.jetstream.nats_server_host_info:
    gather_subset: [rescue]
    config: /etc/nats-server/nats-server.conf
    unit: nats-server
    maintenance: /etc/nats-server/maintenance.json
    store_dir: /var/lib/nats
  become: true
  register: result

- name: Read the data that no server reports, and the files for a backup of the cluster
  natsops.jetstream.nats_server_host_info:
    gather_subset: [unreported, backup_files]
    config: /etc/nats-server/nats-server.conf
  become: true
  register: result
"""

RETURN = r"""
process:
  description: The process.
  type: dict
  returned: if C(process) or C(deployment) is in gather_subset
  contains:
    running:
      description: Whether a nats-server is running with this configuration file.
      type: bool
      returned: always
    pid:
      description: Process id of the server. 0 if no server is running.
      type: int
      returned: always
    binary:
      description: The executable of the process with all links resolved, followed by C( (deleted\)) if the file has been
        replaced since the start.
      type: str
      returned: always
      sample: /opt/nats-server/2.10.27/bin/nats-server
    version:
      description: Version of the running executable. Empty if the version cannot be read.
      type: str
      returned: always
      sample: 2.10.27
    started:
      description: When the process was started, in epoch seconds by the host's clock.
      type: float
      returned: always
    instance:
      description: Identifier of this process, unique among all processes of this host, even across reboots. Empty if no
        server is running.
      type: str
      returned: always
      sample: 2f0c9f3e-6a0f-4f0e-9a34-5a2b8c5c7d11/4711/90210
    config_changed:
      description: Latest modification time of O(config), O(includes) and O(secrets), in epoch seconds by the host's
        clock. 0 if there are none.
      type: float
      returned: always
    ports:
      description: TCP ports on which the process listens.
      type: list
      elements: int
      returned: always
    missing_ports:
      description: The entries of O(ports) on which the process does not listen.
      type: list
      elements: int
      returned: always
    active_state:
      description: State of the unit in systemd's terms. Empty if O(unit) is not set.
      type: str
      returned: always
      sample: active
    unit_changed_after_start:
      description: Whether a file that is read only at startup is newer than the process.
      type: bool
      returned: always
maintenance:
  description:
    - Who took the host out of service, with C(server), C(by), C(since) and C(until) (epoch seconds), C(reason), and
      C(held), which is whether the server is kept from starting. Null if the host is not in maintenance or
      O(maintenance) is not set.
  type: dict
  returned: if C(process) or C(deployment) is in gather_subset
  sample:
    server: n3-c1
    by: ops@ctl-1
    since: 1795529600.0
    until: 1795544000.0
    reason: new disk
    held: true
closed_ports:
  description: >-
    Ports of O(members) to which this host cannot connect, each with C(server_name), C(listener) (V(cluster) or
    V(gateway)), C(host), C(port) and C(error).
  type: list
  elements: dict
  returned: if C(process) is in gather_subset
  sample: [{server_name: n2, listener: cluster, host: 10.0.0.2, port: 6222, error: timed out}]
monitor_url:
  description: Base URL of the monitoring endpoint, as reached from the host itself. Empty if the endpoint is disabled.
  type: str
  returned: if C(deployment) is in gather_subset
  sample: http://127.0.0.1:8222
varz:
  description: The server's own C(/varz). Empty if no server is running or its monitoring port does not respond.
  type: dict
  returned: if C(deployment) is in gather_subset
record:
  description: The content of O(record). Empty if the file does not exist.
  type: dict
  returned: if C(deployment) is in gather_subset
loaded:
  description: >-
    The configuration that the process has loaded, as far as its files prove it, with C(instance), C(config_changed) and
    C(config); returned only if O(record) does not exist. Empty if the loaded configuration cannot be proven or the
    record exists.
  type: dict
  returned: if C(deployment) is in gather_subset
secrets:
  description: The text of O(secrets). Empty if the file does not exist.
  type: str
  returned: if C(deployment) is in gather_subset
feature_flags:
  description: >-
    The C(feature_flags) of the recorded or proven configuration. If neither is known, for example after maintenance,
    the C(feature_flags) of O(config).
  type: dict
  returned: if C(deployment) is in gather_subset
  sample: {js_raft_delete_range: false}
tls_changed:
  description: Latest modification time of O(tls_files), in epoch seconds by the host's clock. 0 if there are none.
  type: float
  returned: if C(deployment) is in gather_subset
installed:
  description: Whether O(install_dir) contains O(version), and its binary runs and reports that version.
  type: bool
  returned: if C(deployment) is in gather_subset
stopped_version:
  description: >-
    Version of O(binary) if the server is not running. Empty if the server is running, or if O(binary) is not an
    executable of nats-server.
  type: str
  returned: if C(deployment) is in gather_subset
version_change:
  description:
    - The change from the running or installed version to O(version), with C(name), C(jetstream), C(running),
      C(version), C(target), and C(changes), which is whether the two versions differ. A stopped server without streams
      counts as new, so its C(version) is empty.
    - C(streams) and C(groups) are those of RV(store). C(in_meta_group) is whether the store belongs to a meta group.
  type: dict
  returned: if C(deployment) is in gather_subset
installed_from:
  description: SHA-256 of the file from which the version was installed. Empty if it was not recorded.
  type: str
  returned: if C(deployment) is in gather_subset
src_sha256:
  description: SHA-256 of O(src) on the controller. Empty if the file does not exist.
  type: str
  returned: if C(deployment) is in gather_subset
smoke_test_due:
  description: Whether O(smoke_test) exists.
  type: bool
  returned: if C(deployment) is in gather_subset
service_manager:
  description: V(systemd), or empty on a host without systemd.
  type: str
  returned: if C(deployment) is in gather_subset
unit_enabled:
  description: Whether O(unit) starts at boot.
  type: bool
  returned: if C(deployment) is in gather_subset
daemon_reload_needed:
  description: Whether the files of O(unit) are newer than the version that systemd has loaded.
  type: bool
  returned: if C(deployment) is in gather_subset
drop_ins:
  description: The drop-ins of O(unit), each with its C(path) and the names of the C(options) that it sets.
  type: list
  elements: dict
  returned: if C(deployment) is in gather_subset
  sample: [{path: /etc/systemd/system/nats-server.service.d/limits.conf, options: [LimitNOFILE]}]
architecture:
  description: The machine's architecture, as named by the kernel.
  type: str
  returned: if C(deployment) is in gather_subset
  sample: x86_64
memory_mb:
  description: Memory in MiB.
  type: int
  returned: if C(deployment) is in gather_subset
user:
  description: The C(group), C(comment), C(home) and C(shell) of O(user). Empty if the user does not exist.
  type: dict
  returned: if C(deployment) is in gather_subset
group_exists:
  description: Whether O(group) exists.
  type: bool
  returned: if C(deployment) is in gather_subset
filesystems:
  description: >-
    The file systems of O(paths), each with C(mount), C(fstype), and in bytes C(size_total) and C(size_available) (null
    if unknown). C(rotating_disks) lists the underlying disks that the kernel reports as rotating.
  type: list
  elements: dict
  returned: if C(deployment) is in gather_subset
store:
  description:
    - The content of O(store_dir); null if that option is not set. C(streams) is the number of streams, C(accounts) the
      number of streams in each account, and C(peers) the Raft ids of the meta group's members (null for the store of a
      standalone server).
    - C(system_accounts) are the accounts that contain a meta group.
    - C(clusters) are the clusters to which the meta group has assigned streams; empty if unknown.
    - C(groups) lists up to 50 Raft groups of streams and consumers in the store.
    - C(index_format) is the newest format of the C(index.db) files; 0 if there are none, as before nats-server 2.10.
  type: dict
  returned: if C(deployment) is in gather_subset
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
    Null if that directory is O(store_dir) or unknown.
  type: dict
  returned: if C(deployment) is in gather_subset
certificate:
  description:
    - The certificate in O(certificate_files); null if that option is not set. C(certificate) is the PEM text, and
      C(missing) lists the files that do not exist.
    - C(reasons) lists why nats-server cannot use the files, for example because the key belongs to another certificate.
  type: dict
  returned: if C(deployment) is in gather_subset
  sample: {missing: [], certificate: "-----BEGIN CERTIFICATE-----...", reasons: []}
selinux:
  description:
    - C(mode) is SELinux's mode, V(enforcing) or V(permissive); empty without SELinux.
    - C(binary_type) is the type that the SELinux policy gives to the executable of O(version) in O(install_dir).
      C(install_dir) is the value of O(install_dir).
  type: dict
  returned: if C(deployment) is in gather_subset
  sample: {mode: enforcing, binary_type: bin_t, install_dir: /opt/nats-server}
firewall:
  description: Whether O(firewall) exists, so M(natsops.jetstream.nats_server_firewall) has rules on the host.
  type: bool
  returned: if C(deployment) is in gather_subset
managed:
  description:
    - The state of O(managed.paths); null if that option is not set. Each path in C(paths) has its C(kind) (V(file),
      V(directory), V(absent) or V(other)), C(mode), C(owner), C(group), and the C(sha256) of a file's content.
    - C(leftovers) lists temporary files of a killed run. C(trial) has the C(binary), C(config), C(environment_sha256)
      and C(digest) of a successful test; null without one.
  type: dict
  returned: if C(deployment) is in gather_subset
tunings:
  description: >-
    For each of O(tunings), the C(findings) (texts on possible improvements), C(settable) (whether the setting can be
    changed from this host), and the requirements of the change.
  type: dict
  returned: if C(deployment) is in gather_subset
adoption:
  description: The server that was found. This data contains passwords.
  type: dict
  returned: if C(adoption) is in gather_subset
  contains:
    found:
      description: Whether a server was found. If none was found, only C(problem) and C(contained) are returned.
      type: bool
      returned: always
    problem:
      description: Why no server was found. Empty if a server was found.
      type: str
      returned: always
    contained:
      description: Processes of nats-server that run in containers.
      type: list
      elements: int
      returned: always
    process:
      description: >-
        The process, with C(pid), C(binary), C(version), C(started) (epoch seconds), C(instance), C(user) and C(group).
      type: dict
      returned: when found
    unit:
      description: >-
        The systemd unit of the process, with C(name), C(fragment), C(enabled), C(settings), C(drop_ins) and C(environment).
        C(settings) are those in the unit's own file, each with its C(section), C(option) and C(value). Each of C(drop_ins)
        has its C(path) and the names of its C(options). C(environment) contains the variables that the unit gives to the
        process beyond those of the configuration. Empty if the process has no unit.
      type: dict
      returned: when found
    config_path:
      description: The configuration file as specified on the command line. Empty if none is specified.
      type: str
      returned: when found
      sample: /etc/nats-server.conf
    loaded:
      description: >-
        How the configuration was determined, with its C(files), the variables of the C(environment) and the C(flags) that
        it uses, the C(monitor_url), and C(proof). C(proof) is V(digest) or V(time), or empty if the loaded configuration is
        unknown; C(problem) then contains the reason.
      type: dict
      returned: when found
    config:
      description: The loaded configuration, with nats-server's own keys. This configuration contains passwords.
      type: dict
      returned: when found
    varz:
      description: The server's own C(/varz). Empty if its monitoring port does not respond.
      type: dict
      returned: when found
    routes:
      description: Names of the servers at the other ends of the server's routes. Null if the monitoring port does not
        respond.
      type: list
      elements: str
      returned: when found
    store:
      description: >-
        The store, with the configured C(path), the path C(reported) by the server, and whether the host sees the C(same)
        directory as the process. The two directories differ if the process has a private C(/tmp).
      type: dict
      returned: when found
      sample: {path: /var/lib/nats, reported: /var/lib/nats/jetstream, same: true}
    tls_files:
      description: Certificates and keys to which the configuration refers, each with C(option), C(path) and C(exists).
      type: list
      elements: dict
      returned: when found
    binary_link_free:
      description: Whether C(/usr/local/bin/nats-server) either is a link or does not exist.
      type: bool
      returned: when found
rescue:
  description: The server, its store, and whether the server could start.
  type: dict
  returned: if C(rescue) is in gather_subset
  contains:
    running:
      description: Whether a nats-server is running with this configuration file.
      type: bool
      returned: always
    fenced:
      description: Why the server cannot start. Empty if the server could start.
      type: str
      returned: always
      sample: its unit nats-server is masked
    copied:
      description: Whether the copy exists.
      type: bool
      returned: always
    aside:
      description: Whether a rescue has renamed the store to C(jetstream.rescued). There may be a new store next to the
        renamed one.
      type: bool
      returned: always
    streams:
      description:
        - The streams. If the files cannot be read, as in an encrypted store (C(encrypted) is true), C(num_replicas) is 0,
          and C(first_seq), C(last_seq) and C(messages) are null. C(messages) is also null if the index is not up to date,
          for instance after a crash.
      type: list
      elements: dict
      returned: always
      sample:
        - {account: APP, name: ORDERS, num_replicas: 3, first_seq: 1, last_seq: 1200, messages: 1200, encrypted: false}
diagnosis:
  description: Signs of faults.
  type: dict
  returned: if C(diagnosis) is in gather_subset
  contains:
    digest:
      description: Digest of the configuration file, from C(nats-server -t) of the running executable. Empty before
        nats-server 2.11, if the file is not valid, or if no server is running.
      type: str
      returned: always
      sample: sha256:4f6f0a1d2c
    log_lines:
      description: Up to 1,000 of the latest warnings and errors in the log. Null if the log cannot be read.
      type: list
      elements: str
      returned: always
    disk_percent:
      description: Used space of the file system of O(store_dir), in percent. Null if unknown.
      type: int
      returned: always
      sample: 40
    disk_mount:
      description: Where this file system is mounted. Empty if unknown.
      type: str
      returned: always
      sample: /var/lib/nats
log:
  description: The last lines of the log.
  type: dict
  returned: if C(log) is in gather_subset
  contains:
    lines:
      description: Up to eight lines. Informational lines only if there are no others, and the reason of a crash instead of
        its stack traces. Empty if the log cannot be read.
      type: list
      elements: str
      returned: always
      sample: ["[4711] 2026/11/30 11:00:00.000000 [FTL] Can't start JetStream: insufficient resources"]
unreported:
  description: Data that the server's endpoints do not report.
  type: dict
  returned: if C(unreported) is in gather_subset
  contains:
    host:
      description: The data. Null if no server is running, or if several are running and O(config) does not select one.
      returned: always
      type: dict
      contains:
        server:
          description: Name of the server. Empty if neither its configuration file nor its monitoring port provides the
            name.
          type: str
          sample: n1-c1
        config_digest:
          description: >-
            Digest of the current configuration file on disk, from C(nats-server -t) of the running executable. Null before
            nats-server 2.11 or if the file is not valid.
          type: str
          sample: sha256:4f6f0a1d2c
        open_files:
          description: Maximum number of open files of the process. Null if there is no limit.
          type: int
          sample: 1048576
        plaintext_passwords:
          description: >-
            Number of passwords and tokens in the configuration that could be hashes but are not, except those that come
            from the environment. Null if the file cannot be read.
          type: int
          sample: 0
        disk_free:
          description: Free bytes on the file system of the store. Null if the server has no store.
          type: int
          sample: 912680550400
    problem:
      description: Why C(host) is null. Empty if it is not.
      returned: always
      type: str
      sample: no nats-server is running with /etc/nats-server/nats-server.conf
backup_files:
  description: The files for a backup of the cluster.
  type: dict
  returned: if C(backup_files) is in gather_subset
  contains:
    content:
      description: The text of each file, by the name of the file. Files with the same name are listed with their paths.
      type: dict
      returned: always
      sample:
        nats-server.conf: "server_name: n1\n"
        ca.crt: "-----BEGIN CERTIFICATE-----\n"
    problems:
      description: The files missing from C(content), such as a file that cannot be parsed, with the reasons.
      type: list
      elements: str
      returned: always
"""

from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.gathering import gather
from ..module_utils.host.observation import HostCommands
from ..module_utils.host.process import ProcessError
from ..module_utils.host.subsets import DEFAULT, SUBSETS, given_options, option_problems
from ..module_utils.host.tunings import PARTS

_PATHS: dict[str, Any] = {"type": "list", "elements": "path", "default": []}

#: The options of all subsets.
SPEC: dict[str, dict[str, Any]] = {
    "config": {"type": "path"},
    "unit": {"type": "str"},
    "files": _PATHS,
    "maintenance": {"type": "path"},
    "server_name": {"type": "str", "default": ""},
    "store_dir": {"type": "path"},
    "includes": _PATHS,
    "ports": {"type": "list", "elements": "int", "default": []},
    "timeout": {"type": "float", "default": 0},
    "members": {"type": "list", "elements": "dict", "default": []},
    "secrets": {"type": "path", "no_log": False},
    "record": {"type": "path"},
    "tls_files": _PATHS,
    "certificate_files": {
        "type": "dict",
        "options": {name: {"type": "path", "required": True} for name in ("cert_file", "key_file", "ca_file")},
    },
    "monitoring": {"type": "dict", "default": {}},
    "install_dir": {"type": "path"},
    "binary": {"type": "path"},
    "version": {"type": "str"},
    "jetstream": {"type": "bool", "default": False},
    "src": {"type": "path"},
    "user": {"type": "str"},
    "group": {"type": "str"},
    "paths": _PATHS,
    "tunings": {"type": "list", "elements": "str", "choices": list(PARTS), "default": []},
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
    "log_since": {"type": "int"},
    "log_file": {"type": "path"},
    "output_file": {"type": "path"},
    "log_utc": {"type": "bool", "default": False},
    "copy": {"type": "path"},
    "prefix": {"type": "str", "default": ""},
}


def read(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises ProcessError, OSError and ValueError."""
    commands = HostCommands(module.run_command, module.selinux_default_context)
    return {"changed": False, **gather(module.params, commands)}


def main() -> None:
    subsets = {"type": "list", "elements": "str", "choices": list(SUBSETS), "default": [DEFAULT]}
    module = CollectionModule(argument_spec={"gather_subset": subsets, **SPEC}, supports_check_mode=True)
    if problems := option_problems(module.params["gather_subset"], given_options(module.params, SPEC)):
        module.fail_json(msg="; ".join(problems))
    frame = failing_on(ProcessError, OSError, ValueError, message=lambda error: f"The host cannot be read: {error}")
    run(module, frame, read)


if __name__ == "__main__":
    main()
