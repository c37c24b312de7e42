# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a cluster and what to do next, from what the info modules and the hosts say. Pure.

`diagnose` returns checks, findings and a verdict as plain data, `diagnosis_text` writes them on one page. A check that
could not be made says so: unknown is never ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._mesh import (
    expected_routes,
    gateway_problems,
    route_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils._model import certificate_ends, parse_time
from ansible_collections.natsops.jetstream.plugins.module_utils._table import human_bytes, human_seconds, table

SCHEMA = 1
CRITICAL, WARNING, NOTE = "critical", "warning", "note"
_ORDER = (CRITICAL, WARNING, NOTE)

OK, FOUND, SKIPPED = "ok", "found", "skipped"

#: From here on it is a finding: seconds of round trip (nats server check connection), seconds between two clocks,
#: percent of a limit (nats server check jetstream), days until a certificate expires (jsm.go audit SERVER_008).
MAX_RTT = 0.5
MAX_CLOCK_SPREAD = 0.5
STORAGE_WARNING, STORAGE_CRITICAL = 75, 90
CERTIFICATE_WARNING, CERTIFICATE_CRITICAL = 30, 7

#: What VARZ tells of options that should be equal on all servers of a cluster.
_CLUSTER_OPTIONS = (
    "max_payload", "max_pending", "max_control_line", "max_connections", "max_subscriptions", "ping_interval", "ping_max",
    "write_deadline", "auth_required", "auth_timeout", "tls_required", "tls_verify", "cluster.pool_size",
    "cluster.tls_required", "cluster.tls_verify", "gateway.gateways", "jetstream.config.sync_interval",
    "jetstream.config.strict", "jetstream.limits", "feature_flags",
)  # fmt: skip
#: And on all servers of a supercluster.
_SHARED_OPTIONS = ("system_account", "jetstream.config.unique_tag")
#: Those that only change where data is placed.
_SIZE_OPTIONS = ("jetstream.config.max_storage", "jetstream.config.max_memory")

#: What to do next, by the beginning of a finding's code; the first match counts.
_NEXT = (
    ("unreachable", "Look at the hosts (systemctl status nats-server), the client port, TLS and the system user's password."),
    ("server_missing", "Look at these hosts (systemctl status, journalctl -u nats-server) and start what should run with "
                       "natsops.jetstream.deploy. For a server that never comes back: nats_meta_peer state=absent."),
    ("server_unexpected", "Put the server into the inventory, or find out whose it is."),
    ("server_unhealthy", "natsops.jetstream.nats_cluster_health waits until it is well; the health report names every asset."),
    ("meta_no_leader", "Bring members of the meta group back under their own names; without a majority nothing else helps."),
    ("meta_", "If it does not pass by itself: nats_meta_stepdown, and nats_meta_peer state=absent for members that are gone."),
    ("stream_no_quorum", "Bring the servers with its replicas back; if they are lost, restore the stream."),
    ("stream_", "If it does not pass by itself: nats_stream_stepdown, or nats_stream_peer for a replica that is lost."),
    ("consumer_", "If it does not pass by itself: nats_consumer_stepdown."),
    ("routes_", "Check that every server reaches the cluster port of every other (firewall, advertise, TLS names), and that "
                "routes, pool_size and accounts are the same; natsops.jetstream.deploy makes them so."),
    ("gateway_", "Check that every server reaches the gateway ports of the other cluster, and the gateway's TLS names."),
    ("logs", "Read them in full on the host: journalctl -u nats-server --since -1h."),
    ("config_not_loaded", "Run natsops.jetstream.deploy: it reloads or restarts what differs from its file."),
    ("config_differs", "Make the options equal with natsops.jetstream.deploy."),
    ("versions_differ", "Finish the upgrade: natsops.jetstream.deploy with one nats_server_version."),
    ("clocks_differ", "Synchronise the clocks (chrony); nats_server_time_sync makes the role see to it."),
    ("rtt", "Look at the network and the load of these servers (natsops.jetstream.report -e report=cpu)."),
    ("slow_consumers", "Find the clients with natsops.jetstream.report -e report=connections (and nats_connection_kick); raise "
                       "max_pending or write_deadline only when they are known."),
    ("storage", "Free or add space, lower limits of streams, or move streams with nats_stream_peer or nats_server_evacuate."),
    ("disk", "Free space on the file system of the store directory."),
    ("certificate", "Renew the certificates: natsops.jetstream.deploy takes them over by reload."),
)  # fmt: skip

#: Problems of nats_cluster_health that stop work now. All others are warnings.
_CRITICAL_PROBLEMS = ("_no_leader", "_no_quorum", "_leader_disputed", "server_missing", "server_duplicate", "jetstream_disabled")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: `code` for programs, `message` for people."""

    code: str
    severity: str
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "severity": self.severity, "message": self.message, "next": next_step(self.code)}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it is ok, found wanting or could not be looked at, and a short summary."""

    name: str
    summary: str
    findings: Sequence[Finding] = ()
    skipped: bool = False

    def as_dict(self) -> dict[str, Any]:
        status = SKIPPED if self.skipped else FOUND if self.findings else OK
        return {"check": self.name, "status": status, "summary": self.summary}


@dataclass(frozen=True)
class Evidence:
    """What was read. `servers`: rows of nats_server_info with varz, routez, gatewayz and statsz. `hosts`: what the managed
    hosts say, empty without any."""

    info: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]] = ()
    hosts: Sequence[Mapping[str, Any]] = ()
    pinned_accounts: Sequence[str] = ()

    def with_endpoint(self, endpoint: str) -> list[Mapping[str, Any]]:
        return [server for server in self.servers if endpoint in server]

    def silent(self, endpoint: str) -> list[str]:
        return [server["name"] for server in self.servers if endpoint not in server]


def next_step(code: str) -> str:
    """Return what to do about a finding."""
    return next((step for start, step in _NEXT if code.startswith(start)), "")


def diagnose(
    info: Mapping[str, Any],
    server_info: Mapping[str, Any] | None = None,
    hosts: Sequence[Mapping[str, Any]] = (),
    pinned_accounts: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the diagnosis: schema, verdict, checks, findings (worst first), next_steps, servers, logs.

    `info` and `server_info` are results of nats_cluster_info and nats_server_info, also failed ones. `hosts`: for each
    managed host server_name, unreachable, running, log_lines (None: not read), digest, disk_percent, disk_mount.
    """
    evidence = Evidence(
        info=info,
        servers=(server_info or {}).get("servers") or (),
        hosts=hosts,
        pinned_accounts=pinned_accounts,
    )
    if "servers" not in info:
        checks = [_unreachable(evidence), _logs(evidence), _disks(evidence)]
    else:
        checks = [check(evidence) for check in _CHECKS]
    findings = [finding for check in checks for finding in check.findings]
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    steps = [finding.as_dict()["next"] for finding in findings if finding.severity != NOTE]
    return {
        "schema": SCHEMA,
        "verdict": _verdict(findings, checks),
        "checks": [check.as_dict() for check in checks],
        "findings": [finding.as_dict() for finding in findings],
        "next_steps": list(dict.fromkeys(step for step in steps if step)),
        "servers": [_server_row(server) for server in info.get("servers") or ()],
        "logs": {host["server_name"]: list(host["log_lines"]) for host in hosts if host.get("log_lines")},
    }


def _verdict(findings: Sequence[Finding], checks: Sequence[Check]) -> dict[str, str]:
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in _ORDER}
    skipped = [check.name for check in checks if check.skipped]
    blind = f" Not looked at: {', '.join(skipped)}." if skipped else ""
    if counts[CRITICAL]:
        return {"status": CRITICAL, "text": f"BROKEN: {counts[CRITICAL]} critical, {counts[WARNING]} warnings.{blind}"}
    if counts[WARNING]:
        return {"status": WARNING, "text": f"WORKING, with {counts[WARNING]} warnings.{blind}"}
    return {"status": OK, "text": f"HEALTHY: nothing wrong was found.{blind}"}


def _server_row(server: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("name", "cluster", "version", "uptime", "rtt", "clock_offset", "cpu", "mem", "connections", "slow_consumers")
    health = server.get("health") or {}
    return {**{key: server.get(key) for key in keys}, "health": health.get("status") or "unknown"}


# --- the checks -------------------------------------------------------------------------------------------------------


def _unreachable(evidence: Evidence) -> Check:
    why = evidence.info.get("msg") or "no answer"
    found = [Finding("unreachable", CRITICAL, f"the cluster cannot be asked: {why}")]
    for host in evidence.hosts:
        if host.get("unreachable") or host.get("running") is False:
            found.append(Finding("unreachable_host", CRITICAL, f"{host['server_name']}: {_host_state(host)}"))
    return Check("servers", "no server answers", found)


def _host_state(host: Mapping[str, Any]) -> str:
    if host.get("unreachable"):
        return "its host cannot be reached either"
    if host.get("running") is False:
        return "its host is up, nats-server does not run there"
    return "nats-server runs on its host" if host.get("running") else "its host was not looked at"


def _servers(evidence: Evidence) -> Check:
    answering = [server["name"] for server in evidence.info["servers"]]
    problems = list(_problems(evidence, "server_missing", "server_unexpected", "server_duplicate", "server_wrong_cluster"))
    states = {host["server_name"]: _host_state(host) for host in evidence.hosts}
    found = [
        Finding(one.code, one.severity, f"{one.message} ({states[name]})" if name in states else one.message)
        for one, name in problems
    ]
    away = _absent_members(evidence.info)
    found += [
        Finding("server_missing", CRITICAL, f"{name} is a member of the meta group and did not answer")
        for name in away
        if name not in [name for _one, name in problems]
    ]
    return Check("servers", f"{len(answering)} answer", found)


def _absent_members(info: Mapping[str, Any]) -> list[str]:
    answering = {server["name"] for server in info["servers"]}
    return sorted(set((info.get("meta") or {}).get("members") or ()) - answering)


def _problems(evidence: Evidence, *starts: str) -> Iterable[tuple[Finding, str]]:
    """Yield the problems of nats_cluster_info whose code starts so, with their subject."""
    for one in evidence.info.get("problems") or ():
        if one["code"].startswith(starts):
            severe = one["severity"] == "error" and one["code"].endswith(_CRITICAL_PROBLEMS)
            yield Finding(one["code"], CRITICAL if severe else WARNING, one["message"]), one["subject"]


def _ping(evidence: Evidence) -> Check:
    times = {server["name"]: server["rtt"] for server in evidence.info["servers"]}
    slow = {name: rtt for name, rtt in times.items() if rtt > MAX_RTT}
    found = [Finding("rtt", WARNING, f"{name} took {human_seconds(rtt)} to answer") for name, rtt in slow.items()]
    return Check("ping", f"slowest {human_seconds(max(times.values(), default=0))}", found)


def _health(evidence: Evidence) -> Check:
    ok = sum((server.get("health") or {}).get("status") == "ok" for server in evidence.info["servers"])
    found = [one for one, _subject in _problems(evidence, "server_unhealthy", "server_silent", "jetstream_disabled")]
    return Check("health", f"{ok} of {len(evidence.info['servers'])} say ok", found)


def _meta(evidence: Evidence) -> Check:
    meta = evidence.info.get("meta")
    found = [one for one, _subject in _problems(evidence, "meta_")]
    if not meta:
        return Check("meta group", "none", found)
    return Check("meta group", f"{meta['leader'] or 'nobody'} leads {meta['size']}, {meta['quorum']} are a quorum", found)


def _assets(evidence: Evidence) -> Check:
    streams = evidence.info.get("streams") or ()
    consumers = sum(len(stream["consumers"]) for stream in streams)
    found = [one for one, _subject in _problems(evidence, "stream_", "consumer_")]
    return Check("streams and consumers", f"{len(streams)} streams, {consumers} consumers", found)


def _routes(evidence: Evidence) -> Check:
    servers = [server for server in evidence.with_endpoint("varz") if "routez" in server]
    unknown = [Finding("routes_unknown", WARNING, f"{name} did not tell its routes") for name in evidence.silent("routez")]
    # VARZ does not tell the pinned accounts.
    pinned = {
        server["name"]: {
            **server["varz"],
            "cluster": {**(server["varz"].get("cluster") or {}), "accounts": list(evidence.pinned_accounts)},
        }
        for server in servers
    }
    wanted = sum(
        expected_routes(pinned[one["name"]], pinned[other["name"]])
        for one in servers
        for other in servers
        if one["name"] != other["name"] and one["cluster"] == other["cluster"]
    )
    missing = route_problems([dict(server) for server in servers], list(evidence.pinned_accounts))
    have = sum(len(server["routez"].get("routes") or ()) for server in servers)
    found = [Finding("routes_missing", WARNING, message) for message in missing] + unknown
    return Check("routes", f"{have} of {wanted} for a full mesh", found)


def _gateways(evidence: Evidence) -> Check:
    clusters = sorted({server["cluster"] for server in evidence.servers})
    with_gateway = [server for server in evidence.with_endpoint("gatewayz") if server["gatewayz"].get("name")]
    if not with_gateway:
        return Check("gateways", "none: not a supercluster")
    found = [Finding("gateway_unknown", WARNING, f"{name} did not tell its gateways") for name in evidence.silent("gatewayz")]
    missing = gateway_problems([dict(server) for server in with_gateway], clusters)
    found += [Finding("gateway_missing", CRITICAL, text) for text in missing]
    return Check("gateways", f"{len(with_gateway)} servers, {len(clusters)} clusters", found)


def _logs(evidence: Evidence) -> Check:
    read = [host for host in evidence.hosts if host.get("log_lines") is not None]
    if not read:
        return Check("logs", "no managed host could be read" if evidence.hosts else "no managed hosts", skipped=True)
    found = []
    for host in read:
        errors = [line for line in host["log_lines"] if "[ERR]" in line or "[FTL]" in line]
        if host["log_lines"]:
            message = f"{host['server_name']} logged {len(errors)} errors and {len(host['log_lines']) - len(errors)} warnings"
            found.append(Finding("logs", WARNING if errors else NOTE, f"{message} in the last hour; see below"))
    return Check("logs", f"last hour of {len(read)} of {len(evidence.hosts)} hosts", found)


def _loaded(evidence: Evidence) -> Check:
    """Whether each server runs the configuration that its file holds (config_digest, 2.11 and later)."""
    digests = {host["server_name"]: host["digest"] for host in evidence.hosts if host.get("digest")}
    running = {server["name"]: server["varz"].get("config_digest") for server in evidence.with_endpoint("varz")}
    both = [name for name in digests if running.get(name)]
    if not both:
        why = "needs the managed hosts" if not evidence.hosts else "needs nats-server 2.11 and its file on the host"
        return Check("configuration loaded", why, skipped=True)
    found = [
        Finding("config_not_loaded", WARNING, f"{name} does not run what its configuration file holds")
        for name in both
        if digests[name] != running[name]
    ]
    return Check("configuration loaded", f"{len(both)} of {len(evidence.servers)} compared with their file", found)


def _options(evidence: Evidence) -> Check:
    servers = evidence.with_endpoint("varz")
    if len(servers) < 2:
        return Check("configuration equal", "fewer than two servers to compare", skipped=True)
    found: list[Finding] = []
    for cluster in sorted({server["cluster"] for server in servers}):
        group = [server for server in servers if server["cluster"] == cluster]
        found += _differences(group, _CLUSTER_OPTIONS, WARNING)
        found += _differences([server for server in group if _option(server, "jetstream.config")], _SIZE_OPTIONS, NOTE)
    found += _differences(servers, _SHARED_OPTIONS, WARNING)
    return Check("configuration equal", f"{len(servers)} servers compared", found)


def _differences(servers: Sequence[Mapping[str, Any]], options: Sequence[str], severity: str) -> Iterable[Finding]:
    """Yield a finding for each option whose values differ. Servers without JetStream are not compared in its options,
    and of different versions only what both tell."""
    for option in options:
        values: dict[str, list[str]] = {}
        for server in servers:
            value = _option(server, option)
            if option.startswith("jetstream.") and not _option(server, "jetstream.config"):
                continue
            if option == "gateway.gateways":
                value = sorted(one.get("name", "") for one in value or ())
            values.setdefault(str(value), []).append(server["name"])
        if len({server["version"] for server in servers}) > 1:
            values.pop("None", None)
        if len(values) > 1:
            told = [f"{value if value != 'None' else 'not set'} on {', '.join(names)}" for value, names in values.items()]
            yield Finding("config_differs", severity, f"{option} is {'; '.join(told)}")


def _option(server: Mapping[str, Any], option: str) -> Any:
    value: Any = server["varz"]
    for part in option.split("."):
        value = (value or {}).get(part)
    return value


def _versions(evidence: Evidence) -> Check:
    versions: dict[str, list[str]] = {}
    for server in evidence.info["servers"]:
        versions.setdefault(server["version"], []).append(server["name"])
    told = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(versions.items()))
    found = [Finding("versions_differ", WARNING, f"versions differ: {told}")] if len(versions) > 1 else []
    return Check("versions", ", ".join(sorted(versions)), found)


def _clocks(evidence: Evidence) -> Check:
    """Whether the servers' clocks agree. Half of each round trip is the error of a measurement."""
    servers = evidence.info["servers"]
    if not servers:
        return Check("clocks", "no server to compare", skipped=True)
    first = min(servers, key=lambda one: one["clock_offset"])
    last = max(servers, key=lambda one: one["clock_offset"])
    spread = last["clock_offset"] - first["clock_offset"]
    summary = f"{human_seconds(spread)} apart at most"
    if spread <= MAX_CLOCK_SPREAD + (first["rtt"] + last["rtt"]) / 2:
        return Check("clocks", summary)
    told = f"{last['name']} is {human_seconds(spread)} ahead of {first['name']}"
    return Check("clocks", summary, [Finding("clocks_differ", WARNING, told)])


def _slow_consumers(evidence: Evidence) -> Check:
    detail = {server["name"]: server["statsz"].get("slow_consumer_stats") for server in evidence.with_endpoint("statsz")}
    found = []
    for server in evidence.info["servers"]:
        if server["slow_consumers"]:
            kinds = [f"{count} {kind}" for kind, count in (detail.get(server["name"]) or {}).items() if count]
            told = f" ({', '.join(kinds)})" if kinds else ""
            message = f"{server['name']} has cut off {server['slow_consumers']} slow consumers since it started{told}"
            found.append(Finding("slow_consumers", WARNING, message))
    return Check("slow consumers", str(sum(server["slow_consumers"] for server in evidence.info["servers"])), found)


def _storage(evidence: Evidence) -> Check:
    found, most = [], 0.0
    for server in evidence.info["servers"]:
        js = server.get("js") or {}
        for used, limit, what in (("storage", "max_storage", "file storage"), ("memory", "max_memory", "memory storage")):
            if not js.get(limit):
                continue
            percent = 100 * js[used] / js[limit]
            most = max(most, percent)
            if percent >= STORAGE_WARNING:
                sizes = f"{human_bytes(js[used])} of {human_bytes(js[limit])}"
                told = f"{server['name']} uses {percent:.0f} % of its {what} ({sizes})"
                found.append(Finding("storage", CRITICAL if percent >= STORAGE_CRITICAL else WARNING, told))
    return Check("storage", f"{most:.0f} % of a limit at most", found)


def _disks(evidence: Evidence) -> Check:
    read = [host for host in evidence.hosts if host.get("disk_percent") is not None]
    if not read:
        return Check("disks", "no managed host could be read" if evidence.hosts else "no managed hosts", skipped=True)
    found = [
        Finding("disk", CRITICAL if host["disk_percent"] >= STORAGE_CRITICAL else WARNING,
                f"{host['server_name']}: {host.get('disk_mount', 'its disk')} is {host['disk_percent']} % full")
        for host in read
        if host["disk_percent"] >= STORAGE_WARNING
    ]  # fmt: skip
    return Check("disks", f"{max(host['disk_percent'] for host in read)} % full at most", found)


def _certificates(evidence: Evidence) -> Check:
    """How long the certificates are good for, by each server's own clock (VARZ tls_cert_not_after, 2.11.12 and 2.12.4)."""
    days: dict[str, float] = {}
    for server in evidence.with_endpoint("varz"):
        varz = server["varz"]
        ends = [parse_time(end) for end in certificate_ends(varz).values()]
        if ends:
            days[server["name"]] = (min(ends) - parse_time(str(varz["now"]))).total_seconds() / 86400
    if not days:
        return Check("certificates", "no server tells their end", skipped=True)
    found = [
        Finding("certificate", CRITICAL if left <= CERTIFICATE_CRITICAL else WARNING,
                f"a certificate of {name} " + (f"expires in {left:.0f} days" if left > 0 else "has expired"))
        for name, left in days.items()
        if left <= CERTIFICATE_WARNING
    ]  # fmt: skip
    return Check("certificates", f"{min(days.values()):.0f} days at least", found)


_CHECKS: tuple[Callable[[Evidence], Check], ...] = (
    _servers, _ping, _health, _meta, _assets, _routes, _gateways, _logs, _loaded, _options, _versions, _clocks,
    _slow_consumers, _storage, _disks, _certificates,
)  # fmt: skip


# --- writing ----------------------------------------------------------------------------------------------------------

_LINES_SHOWN = 10


def diagnosis_text(data: Mapping[str, Any]) -> str:
    """Return one page: verdict, checks, servers, findings, last log lines, next steps."""
    marks = {OK: "ok", FOUND: "FOUND", SKIPPED: "skipped"}
    parts = [
        data["verdict"]["text"],
        table("Checks", ("Check", "Result", "Summary"),
              [(check["check"], marks[check["status"]], check["summary"]) for check in data["checks"]]),
    ]  # fmt: skip
    if data["servers"]:
        parts.append(_servers_table(data["servers"]))
    if data["findings"]:
        parts.append("\n".join(["Findings:", *(f"  {one['severity']}: {one['message']}" for one in data["findings"])]))
    for name, lines in data["logs"].items():
        parts.append("\n".join([f"Last warnings and errors of {name}:", *(f"  {line}" for line in lines[-_LINES_SHOWN:])]))
    if data["next_steps"]:
        parts.append("\n".join(["Next steps:", *(f"  {number}. {step}" for number, step in enumerate(data["next_steps"], 1))]))
    return "\n\n".join(parts)


def _servers_table(servers: Sequence[Mapping[str, Any]]) -> str:
    columns = ("Name", "Cluster", "Version", "Uptime", "RTT", "Clock", "CPU %", "Mem", "Conns", "Slow", "Health")
    rows = [
        (one["name"], one["cluster"], one["version"], human_seconds(one["uptime"]), human_seconds(one["rtt"]),
         f"{one['clock_offset'] * 1000:+.0f}ms", f"{one['cpu']:.0f}", human_bytes(one["mem"]), one["connections"],
         one["slow_consumers"], one["health"])
        for one in servers
    ]  # fmt: skip
    return table("Servers", columns, rows)
