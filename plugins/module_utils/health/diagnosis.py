# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The problems of a cluster and the next steps, from the results of the info modules and the hosts. Pure.

`diagnose` returns root causes, checks, findings and a verdict as plain data; `diagnosis_page` formats them as one page.
The causes explain the problems found by the health rules; findings are all other deviations. A check that could not run
is reported as such: unknown is never ok."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..maintenance import IN_MAINTENANCE, Mark, known_problems, mark_texts, parse_mark
from ..nats.server_versions import version_warnings
from ..problem import ERROR, Problem
from ..screen import some_names
from ..thresholds import EXPIRY_DAYS, MAX_CLOCK_SPREAD, MAX_RTT, STORAGE_PERCENT
from ..times import certificate_days, certificate_ends, parse_time
from ..units import counted, human_bytes, human_seconds
from .cause import RootCause, inventory_sources, scene_of_info
from .causes import parse_problem, root_causes
from .log_kinds import log_kinds, log_text
from .routes import expected_routes, gateway_problems, route_problems
from .rules import split_tolerated
from .verdict import CRITICAL, NOTE, OK, OUTAGES, SEVERITIES, WARNING, extent, verdict

SCHEMA = 1
FOUND, SKIPPED = "found", "skipped"
#: Options in VARZ that should be equal on all servers of a cluster.
_CLUSTER_OPTIONS = (
    "max_payload",
    "max_pending",
    "max_control_line",
    "max_connections",
    "max_subscriptions",
    "ping_interval",
    "ping_max",
    "write_deadline",
    "auth_required",
    "auth_timeout",
    "tls_required",
    "tls_verify",
    "cluster.pool_size",
    "cluster.tls_required",
    "cluster.tls_verify",
    "gateway.gateways",
    "jetstream.config.sync_interval",
    "jetstream.config.strict",
    "jetstream.limits",
    "feature_flags",
)
#: Options that should be equal on all servers of a supercluster.
_SHARED_OPTIONS = ("system_account", "jetstream.config.unique_tag")
#: Options that affect only the placement of data.
_SIZE_OPTIONS = ("jetstream.config.max_storage", "jetstream.config.max_memory")
#: The next step for findings whose code begins with this text; the first match counts.
_NEXT = (
    (
        "routes_",
        "Check that every server can reach the cluster port of every other server (firewall, advertise, TLS names) "
        "and that routes, pool_size and accounts are identical; natsops.jetstream.deploy applies the same values to "
        "all.",
    ),
    (
        "gateway_",
        "Check that every server can reach the gateway ports of the other cluster, and check the gateway's TLS names.",
    ),
    (
        "port_closed",
        "Open the port on the host of the server and in the network between them; nats_server_firewall writes the rules "
        "for the hosts, see docs/security.md.",
    ),
    ("logs", "Read the complete log on the host: journalctl -u nats-server --since -1h."),
    ("config_not_loaded", "Run natsops.jetstream.deploy: it reloads or restarts these servers."),
    ("config_differs", "Apply the same options everywhere with natsops.jetstream.deploy."),
    ("versions_differ", "Finish the upgrade: natsops.jetstream.deploy with one nats_server_version."),
    ("version_warning", "Upgrade with natsops.jetstream.upgrade, following docs/reference/server_versions.md."),
    ("clocks_differ", "Synchronise the clocks (chrony); the role does so with nats_server_tuning_time_sync=apply."),
    ("rtt", "Check the network and the load of these servers (natsops.jetstream.report -e report=cpu)."),
    (
        "slow_consumers",
        "Find the clients with natsops.jetstream.report -e report=connections (and nats_connection_kick); raise "
        "max_pending or write_deadline only after identifying them.",
    ),
    (
        "storage",
        "Free or add space, lower limits of streams, or move streams with nats_stream_peer or nats_server_evacuate.",
    ),
    ("disk", "Free space on the file system of the store directory."),
    (
        "maintenance_overdue",
        "Finish the work and run natsops.jetstream.maintenance_leave, or extend the maintenance with "
        "natsops.jetstream.maintenance_enter -e nats_cluster_maintenance_until=TIME.",
    ),
    ("jwt_unknown", "Check the servers and files that are named; without them an expiry can be missed."),
    (
        "jwt",
        "Renew the credentials of users with nats_user_credentials; sign accounts and operators again without an expiry.",
    ),
    ("certificate", "Renew the certificates: natsops.jetstream.deploy loads them with a reload."),
)
#: Problems of nats_cluster_health that interrupt service now. All other problems are warnings.
_CRITICAL_PROBLEMS = (
    *OUTAGES,
    "server_missing",
    "server_duplicate",
    "server_isolated",
    "jetstream_disabled",
    "meta_outsider",
    "meta_group_foreign",
)
#: Problems of expected servers that are not in the cluster.
_NOT_THERE = ("server_missing", "server_isolated")


@dataclass(frozen=True)
class Finding:
    """A problem. `code` is for programs, `message` for operators."""

    code: str
    severity: str
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "severity": self.severity, "message": self.message, "next": next_step(self.code)}


@dataclass(frozen=True)
class DiagnosisCheck:
    """One check: its status (ok, failed or skipped) and a short summary. `explained`: the root causes explain its
    failure."""

    name: str
    summary: str
    findings: Sequence[Finding] = ()
    skipped: bool = False
    explained: bool = False

    def as_dict(self) -> dict[str, Any]:
        status = SKIPPED if self.skipped else FOUND if self.findings or self.explained else OK
        return {"check": self.name, "status": status, "summary": self.summary}


@dataclass(frozen=True)
class DiagnosisEvidence:
    """The data that was collected. `servers`: rows of nats_server_info with varz, routez, gatewayz and statsz. `hosts`:
    results of the managed hosts, empty if there are none. `marks`: the servers in maintenance; problems that only those
    servers cause are not in `info`. `inventory`: the sources that commands name."""

    info: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]] = ()
    hosts: Sequence[Mapping[str, Any]] = ()
    pinned_accounts: Sequence[str] = ()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    inventory: tuple[str, ...] = ()

    def with_endpoint(self, endpoint: str) -> list[Mapping[str, Any]]:
        return [server for server in self.servers if endpoint in server]

    def silent(self, endpoint: str) -> list[str]:
        return [server["name"] for server in self.servers if endpoint not in server]


def next_step(code: str) -> str:
    """Return the next step for a finding."""
    return next((step for start, step in _NEXT if code.startswith(start)), "")


def host_evidence(server_name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a managed host in `hosts` of `diagnose`. `found`: the result of nats_server_host_info with the
    subsets `process` and `diagnosis`, even if it failed."""
    process, signs = found.get("process") or {}, found.get("diagnosis") or {}
    return {
        "server_name": server_name,
        "unreachable": bool(found.get("unreachable")),
        "error": "" if process else str(found.get("msg") or ""),
        "running": process.get("running"),
        "pid": process.get("pid"),
        "configured": process.get("config_changed", 1) > 0,
        "maintenance": found.get("maintenance"),
        "closed_ports": found.get("closed_ports"),
        "digest": signs.get("digest") or "",
        "log_lines": signs.get("log_lines"),
        "disk_percent": signs.get("disk_percent"),
        "disk_mount": signs.get("disk_mount") or "",
    }


def diagnose(
    info: Mapping[str, Any],
    server_info: Mapping[str, Any] | None = None,
    hosts: Sequence[Mapping[str, Any]] = (),
    pinned_accounts: Sequence[str] = (),
    inventory: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the diagnosis with the keys schema, verdict, causes and findings (worst first), checks, next_steps,
    servers and logs.

    `info` and `server_info` are results of nats_cluster_info and nats_server_info, including failed ones. `hosts`: for
    each managed host server_name, unreachable, running, pid, log_lines (None: not read), digest, disk_percent,
    disk_mount, maintenance (None: not in maintenance), closed_ports (None: not read), configured. `inventory`: the sources that
    the printed commands name.
    """
    marks = {host["server_name"]: parse_mark(host["maintenance"]) for host in hosts if host.get("maintenance")}
    if marks and info.get("problems"):
        left, _excused = split_tolerated([parse_problem(one) for one in info["problems"]], marks)
        info = {**info, "problems": [problem.as_dict() for problem in left]}
    evidence = DiagnosisEvidence(
        info=info,
        marks=marks,
        servers=(server_info or {}).get("servers") or (),
        hosts=hosts,
        pinned_accounts=pinned_accounts,
        inventory=inventory_sources(inventory),
    )
    if "servers" not in info:
        checks = [_unreachable(evidence), _maintenance(evidence), _ports(evidence), _logs(evidence), _disks(evidence)]
    else:
        checks = [check(evidence) for check in _CHECKS]
    logs = {
        host["server_name"]: log_kinds(host["log_lines"], host.get("pid")) for host in hosts if host.get("log_lines")
    }
    known_causes = _causes(evidence)
    causes = [_cause_row(cause, evidence, logs) for cause in known_causes]
    causes.sort(key=lambda cause: SEVERITIES.index(cause["severity"]))
    findings = [finding for check in checks for finding in check.findings]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    rows = [finding.as_dict() for finding in findings]
    steps = [command for cause in causes for command in cause["commands"]]
    steps += [row["next"] for row in rows if row["severity"] != NOTE]
    return {
        "schema": SCHEMA,
        "verdict": verdict(
            [one["severity"] for one in (*causes, *rows)],
            [check.name for check in checks if check.skipped],
            sorted(marks),
            extent([problem for cause in known_causes for problem in cause.problems], info),
        ),
        "causes": causes,
        "checks": [check.as_dict() for check in checks],
        "findings": rows,
        "next_steps": list(dict.fromkeys(step for step in steps if step)),
        "servers": [_server_row(server) for server in info.get("servers") or ()],
        "logs": logs,
    }


def _causes(evidence: DiagnosisEvidence) -> list[RootCause]:
    """Return the root causes of the problems found by the health rules, of missing members of the meta group, and of a
    cluster that cannot be queried."""
    info = evidence.info
    problems = [parse_problem(one) for one in info.get("problems") or ()]
    if "servers" not in info:
        problems = [Problem("unreachable", ERROR, "cluster", info.get("msg") or "no answer")]
    missing = {name for problem in problems if problem.code in _NOT_THERE for name in problem.servers}
    problems += [
        Problem("server_missing", ERROR, name, f"{name} is a member of the meta group but did not answer", (name,))
        for name in _absent_members(evidence)
        if name not in missing
    ]
    states = {host["server_name"]: _host_state(host) for host in evidence.hosts}
    disks = {
        host["server_name"]: host["disk_percent"] for host in evidence.hosts if host.get("disk_percent") is not None
    }
    away = mark_texts(evidence.marks, time.time())
    context = scene_of_info(info, hosts=states, disks=disks, maintenance=away, inventory=evidence.inventory)
    return root_causes(problems, context)


def _cause_row(
    cause: RootCause, evidence: DiagnosisEvidence, logs: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return the row of a cause, including the results from the hosts of its servers."""
    codes = {problem.code for problem in cause.problems if problem.severity == ERROR}
    severe = cause.kind == "cluster_unreachable" or any(code.endswith(_CRITICAL_PROBLEMS) for code in codes)
    row = cause.as_dict()
    everybody = cause.kind == "cluster_unreachable"
    # The title contains the addresses that did not answer.
    row["evidence"] = [] if everybody else row["evidence"]
    for host in evidence.hosts:
        name = host["server_name"]
        if name not in cause.servers and not everybody:
            continue
        if host.get("unreachable") or host.get("error") or host.get("running") is False:
            row["evidence"].append(f"{name}: {_host_state(host)}")
        last = sorted(logs.get(name, ()), key=lambda kind: str(kind["last"]))[-1:]
        row["evidence"] += [f"{name} logged last: {log_text(kind)}" for kind in last]
    return {**row, "severity": CRITICAL if severe else WARNING}


def _server_row(server: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        "name",
        "cluster",
        "version",
        "uptime",
        "rtt",
        "clock_offset",
        "cpu",
        "mem",
        "connections",
        "slow_consumers",
    )
    health = server.get("health") or {}
    return {**{key: server.get(key) for key in keys}, "health": health.get("status") or "unknown"}


def _unreachable(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    return DiagnosisCheck("servers", "no server answers", explained=True)


def _host_state(host: Mapping[str, Any]) -> str:
    if host.get("unreachable"):
        return "its host is also unreachable"
    if host.get("running") is False:
        state = "running" if host.get("configured", True) else "deployed"
        return f"its host is up, but nats-server is not {state} there"
    if host.get("running"):
        return "nats-server runs on its host"
    return f"its host could not be read: {host['error']}" if host.get("error") else "its host was not checked"


def _servers(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    starts = (*_NOT_THERE, "server_unexpected", "server_duplicate", "server_wrong_cluster")
    explained = _explained(evidence, *starts) or bool(_absent_members(evidence))
    return DiagnosisCheck("servers", f"{len(evidence.info['servers'])} answer", explained=explained)


def _absent_members(evidence: DiagnosisEvidence) -> list[str]:
    answering = {server["name"] for server in evidence.info.get("servers") or ()}
    members = set((evidence.info.get("meta") or {}).get("members") or ())
    return sorted(members - answering - evidence.marks.keys() - set(evidence.info.get("nameless") or ()))


def _maintenance(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    if not evidence.hosts:
        return DiagnosisCheck("maintenance", "no managed hosts", skipped=True)
    answering = {server["name"] for server in evidence.info.get("servers") or ()}
    found = [
        Finding(problem.code, NOTE if problem.code == IN_MAINTENANCE else WARNING, problem.message)
        for problem in known_problems(evidence.marks.values(), time.time(), answering)
    ]
    return DiagnosisCheck("maintenance", f"{len(found)} of {len(evidence.hosts)} hosts", found)


def _explained(evidence: DiagnosisEvidence, *starts: str) -> bool:
    """Return whether nats_cluster_info has a problem whose code begins with one of these texts, so the root causes
    explain the finding."""
    return any(one["code"].startswith(starts) for one in evidence.info.get("problems") or ())


def _ping(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    times = {server["name"]: server["rtt"] for server in evidence.info["servers"]}
    slow = {name: rtt for name, rtt in times.items() if rtt > MAX_RTT}
    found = [Finding("rtt", WARNING, f"{name} answered after {human_seconds(rtt)}") for name, rtt in slow.items()]
    return DiagnosisCheck("ping", f"slowest {human_seconds(max(times.values(), default=0))}", found)


def _health(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    ok = sum((server.get("health") or {}).get("status") == "ok" for server in evidence.info["servers"])
    explained = _explained(evidence, "server_unhealthy", "server_silent", "jetstream_disabled")
    return DiagnosisCheck("health", f"{ok} of {len(evidence.info['servers'])} report ok", explained=explained)


def _meta(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    meta = evidence.info.get("meta")
    explained = _explained(evidence, "meta_")
    if not meta:
        return DiagnosisCheck("meta group", "none", explained=explained)
    text = f"{meta['leader'] or 'no server'} leads {meta['size']}, {meta['quorum']} are a quorum"
    return DiagnosisCheck("meta group", text, explained=explained)


def _assets(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    streams = evidence.info.get("streams") or ()
    consumers = sum(len(stream["consumers"]) for stream in streams)
    explained = _explained(evidence, "stream_", "consumer_")
    return DiagnosisCheck(
        "streams and consumers",
        f"{counted(len(streams), 'stream')}, {counted(consumers, 'consumer')}",
        explained=explained,
    )


def _routes(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    servers = [server for server in evidence.with_endpoint("varz") if "routez" in server]
    unknown = [
        Finding("routes_unknown", WARNING, f"{name} did not return ROUTEZ") for name in evidence.silent("routez")
    ]
    # VARZ does not contain the pinned accounts.
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
    return DiagnosisCheck("routes", f"{have} of {wanted} routes of a full mesh", found)


def _gateways(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    clusters = sorted({server["cluster"] for server in evidence.servers})
    with_gateway = [server for server in evidence.with_endpoint("gatewayz") if server["gatewayz"].get("name")]
    if not with_gateway:
        return DiagnosisCheck("gateways", "none: not a supercluster")
    found = [
        Finding("gateway_unknown", WARNING, f"{name} did not return GATEWAYZ") for name in evidence.silent("gatewayz")
    ]
    missing = gateway_problems([dict(server) for server in with_gateway], clusters)
    found += [Finding("gateway_missing", CRITICAL, text) for text in missing]
    return DiagnosisCheck(
        "gateways", f"{counted(len(with_gateway), 'server')}, {counted(len(clusters), 'cluster')}", found
    )


def _logs(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    read = [host for host in evidence.hosts if host.get("log_lines") is not None]
    if not read:
        return DiagnosisCheck(
            "logs", "no managed host could be read" if evidence.hosts else "no managed hosts", skipped=True
        )
    found = []
    for host in read:
        kinds = log_kinds(host["log_lines"], host.get("pid"))
        errors = sum(kind["count"] for kind in kinds if kind["level"] != "WRN")
        if kinds:
            warnings = sum(kind["count"] for kind in kinds) - errors
            message = f"{host['server_name']} logged {errors} errors and {warnings} warnings since its last start"
            found.append(Finding("logs", WARNING if errors else NOTE, f"{message}, {len(kinds)} different; see below"))
    return DiagnosisCheck("logs", f"{len(read)} of {len(evidence.hosts)} hosts", found)


def _loaded(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    """Check whether each server runs the configuration that is in its file (config_digest, 2.11 and later)."""
    digests = {host["server_name"]: host["digest"] for host in evidence.hosts if host.get("digest")}
    running = {server["name"]: server["varz"].get("config_digest") for server in evidence.with_endpoint("varz")}
    both = [name for name in digests if running.get(name)]
    if not both:
        why = (
            "requires nats-server 2.11 or later and its configuration file on the host"
            if evidence.hosts
            else "requires managed hosts"
        )
        return DiagnosisCheck("configuration loaded", why, skipped=True)
    found = [
        Finding("config_not_loaded", WARNING, f"{name} is not running the content of its configuration file")
        for name in both
        if digests[name] != running[name]
    ]
    return DiagnosisCheck(
        "configuration loaded", f"{len(both)} of {len(evidence.servers)} compared with their files", found
    )


def _options(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    servers = evidence.with_endpoint("varz")
    if len(servers) < 2:
        return DiagnosisCheck("configuration equal", "fewer than two servers to compare", skipped=True)
    found: list[Finding] = []
    for cluster in sorted({server["cluster"] for server in servers}):
        group = [server for server in servers if server["cluster"] == cluster]
        found += _differences(group, _CLUSTER_OPTIONS, WARNING)
        found += _differences([server for server in group if _option(server, "jetstream.config")], _SIZE_OPTIONS, NOTE)
    found += _differences(servers, _SHARED_OPTIONS, WARNING)
    return DiagnosisCheck("configuration equal", f"{counted(len(servers), 'server')} compared", found)


def _differences(servers: Sequence[Mapping[str, Any]], options: Sequence[str], severity: str) -> Iterable[Finding]:
    """Yield a finding for each option with different values. JetStream options are compared only on servers with
    JetStream, and servers of different versions only by the options that both report."""
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
            text = [
                f"{value if value != 'None' else 'not set'} on {', '.join(names)}" for value, names in values.items()
            ]
            yield Finding("config_differs", severity, f"{option} is {'; '.join(text)}")


def _option(server: Mapping[str, Any], option: str) -> Any:
    value: Any = server["varz"]
    for part in option.split("."):
        value = (value or {}).get(part)
    return value


def _versions(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    versions: dict[str, list[str]] = {}
    for server in evidence.info["servers"]:
        versions.setdefault(server["version"], []).append(server["name"])
    text = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(versions.items()))
    found = [Finding("versions_differ", WARNING, f"versions differ: {text}")] if len(versions) > 1 else []
    found += [Finding("version_warning", NOTE, line) for line in version_warnings(versions)]
    return DiagnosisCheck("versions", ", ".join(sorted(versions)), found)


def _clocks(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    """Check whether the servers' clocks agree. Half of each round trip is the error of a measurement."""
    servers = evidence.info["servers"]
    if not servers:
        return DiagnosisCheck("clocks", "no server to compare", skipped=True)
    first = min(servers, key=lambda one: one["clock_offset"])
    last = max(servers, key=lambda one: one["clock_offset"])
    spread = last["clock_offset"] - first["clock_offset"]
    summary = f"at most {human_seconds(spread)} apart"
    if spread <= MAX_CLOCK_SPREAD + (first["rtt"] + last["rtt"]) / 2:
        return DiagnosisCheck("clocks", summary)
    text = f"{last['name']} is {human_seconds(spread)} ahead of {first['name']}"
    return DiagnosisCheck("clocks", summary, [Finding("clocks_differ", WARNING, text)])


def _slow_consumers(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    detail = {
        server["name"]: server["statsz"].get("slow_consumer_stats") for server in evidence.with_endpoint("statsz")
    }
    found = []
    for server in evidence.info["servers"]:
        if server["slow_consumers"]:
            kinds = [f"{count} {kind}" for kind, count in (detail.get(server["name"]) or {}).items() if count]
            text = f" ({', '.join(kinds)})" if kinds else ""
            message = (
                f"{server['name']} has disconnected {server['slow_consumers']} slow consumers since it started{text}"
            )
            found.append(Finding("slow_consumers", WARNING, message))
    return DiagnosisCheck(
        "slow consumers", str(sum(server["slow_consumers"] for server in evidence.info["servers"])), found
    )


def _storage(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    """Check how much of each server's limits is used or reserved, whichever is more: a stream with max_bytes reserves
    that many bytes, and a server without enough free space gets no replica of the stream."""
    found, most = [], 0.0
    for server in evidence.info["servers"]:
        js = server.get("js") or {}
        for kind, what in (("storage", "file storage"), ("memory", "memory storage")):
            used, reserved, limit = js.get(kind, 0), js.get(f"reserved_{kind}", 0), js.get(f"max_{kind}", 0)
            if limit <= 0:
                continue
            percent = 100 * max(used, reserved) / limit
            most = max(most, percent)
            if percent >= STORAGE_PERCENT.warning:
                sizes = f"{human_bytes(used)} used, {human_bytes(reserved)} reserved, limit {human_bytes(limit)}"
                text = f"{server['name']} uses {percent:.0f} % of its {what} ({sizes})"
                if reserved > used:
                    text = f"{server['name']} has reserved {percent:.0f} % of its {what} ({sizes})"
                critical = percent >= STORAGE_PERCENT.critical and used >= reserved
                found.append(Finding("storage", CRITICAL if critical else WARNING, text))
    return DiagnosisCheck("storage", f"at most {most:.0f} % of a limit used or reserved", found)


def _ports(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    """Check the ports of running servers that other hosts must be able to reach."""
    read = [host for host in evidence.hosts if host.get("closed_ports") is not None]
    if not read:
        return DiagnosisCheck(
            "ports", "no managed host could be read" if evidence.hosts else "no managed hosts", skipped=True
        )
    up = {server["name"] for server in evidence.info.get("servers") or ()}
    up |= {host["server_name"] for host in evidence.hosts if host.get("running")}
    closed: dict[str, list[str]] = {}
    for host in read:
        for port in host["closed_ports"]:
            if port["server_name"] in up:
                where = f"the {port['listener']} port of {port['server_name']} ({port['host']}:{port['port']})"
                closed.setdefault(f"{where}: {port['error']}", []).append(host["server_name"])
    found = [
        Finding("port_closed", WARNING, f"{some_names(sorted(names))} cannot reach {where}")
        for where, names in sorted(closed.items())
    ]
    return DiagnosisCheck("ports", f"{len(read)} of {len(evidence.hosts)} hosts", found)


def _disks(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    read = [host for host in evidence.hosts if host.get("disk_percent") is not None]
    if not read:
        return DiagnosisCheck(
            "disks", "no managed host could be read" if evidence.hosts else "no managed hosts", skipped=True
        )
    found = [
        Finding(
            "disk",
            CRITICAL if host["disk_percent"] >= STORAGE_PERCENT.critical else WARNING,
            f"{host['server_name']}: {host.get('disk_mount', 'its disk')} is {host['disk_percent']} % full",
        )
        for host in read
        if host["disk_percent"] >= STORAGE_PERCENT.warning
    ]
    return DiagnosisCheck("disks", f"at most {max(host['disk_percent'] for host in read)} % full", found)


def _certificates(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    """The remaining validity of the certificates, by each server's own clock (VARZ tls_cert_not_after, 2.11.12 and
    2.12.4)."""
    days: dict[str, float] = {}
    ends_on: dict[str, str] = {}
    for server in evidence.with_endpoint("varz"):
        varz = server["varz"]
        left_days = certificate_days(varz)
        if left_days:
            first = min(left_days, key=left_days.__getitem__)
            days[server["name"]] = left_days[first]
            ends_on[server["name"]] = f"{parse_time(certificate_ends(varz)[first]):%Y-%m-%d}"
    if not days:
        return DiagnosisCheck("certificates", "no server reports an expiry date", skipped=True)
    found = [
        Finding(
            "certificate",
            CRITICAL if left <= EXPIRY_DAYS.critical else WARNING,
            f"a certificate of {name} " + (f"expires in {left:.0f} days" if left > 0 else "has expired"),
        )
        for name, left in days.items()
        if left <= EXPIRY_DAYS.warning
    ]
    name, left = min(days.items(), key=lambda item: item[1])
    return DiagnosisCheck("certificates", f"the first expires in {left:.0f} days ({name}, {ends_on[name]})", found)


def _jwts(evidence: DiagnosisEvidence) -> DiagnosisCheck:
    """The remaining validity of the JWTs in operator mode, by the rule of accounts/expiry.py."""
    jwts = evidence.info.get("jwts")
    if not jwts or not jwts["operator_mode"]:
        return DiagnosisCheck("JWTs", "not in operator mode" if jwts else "the JWTs were not read", skipped=True)
    rows = jwts["expiring"]
    found = [
        Finding("jwt", CRITICAL if row["severity"] == ERROR else WARNING, row["text"])
        for row in rows
        if row["severity"]
    ]
    found += [Finding("jwt_unknown", WARNING, line) for line in jwts["unknown"]]
    return DiagnosisCheck("JWTs", f"the first expires at {rows[0]['expires_at']}" if rows else "no JWT expires", found)


_CHECKS: tuple[Callable[[DiagnosisEvidence], DiagnosisCheck], ...] = (
    _servers,
    _maintenance,
    _ping,
    _health,
    _meta,
    _assets,
    _routes,
    _gateways,
    _ports,
    _logs,
    _loaded,
    _options,
    _versions,
    _clocks,
    _slow_consumers,
    _storage,
    _disks,
    _certificates,
    _jwts,
)
#: Checks that need only VARZ, and whose findings end as soon as the fault is fixed.
_SERVER_CHECKS: tuple[Callable[[DiagnosisEvidence], DiagnosisCheck], ...] = (
    _ping,
    _options,
    _versions,
    _clocks,
    _storage,
    _certificates,
)


def server_findings(servers: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the findings about individual servers in addition to the health rules. `servers`: rows of
    nats_server_info, with varz if the server responded."""
    evidence = DiagnosisEvidence({"servers": servers}, servers)
    return [finding for check in _SERVER_CHECKS for finding in check(evidence).findings]
