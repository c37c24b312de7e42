# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter's background work: sweeps the cluster periodically, and keeps the result of the last sweep.

A scrape reads that result without querying servers, so the servers are queried once per interval regardless of the
number of scrapes."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Generic, Optional, TypeVar

from ..accounts.expiry import Logins
from ..accounts.expiry import evaluate as evaluate_expiry
from ..accounts.run_expiry import read_logins
from ..assets.drift import read_drift
from ..backup.catalogue import FILE, read_catalogue
from ..backup.selection import SelectionError
from ..health.rules import Limits
from ..health.run_isolation import Isolation
from ..health.sampling import Earlier, Sample, evaluate, sorted_sample
from ..nats.client import Client, ConnectionOptions, NatsFailure
from ..nats.model import Cluster
from ..nats.system_api import SystemApi
from ..problem import ERROR, Problem
from ..roll.journal import Journal, read_journal
from .metrics import (
    REASONS,
    Exposition,
    FaultList,
    Sweep,
    backup_metrics,
    cause_metrics,
    cluster_metrics,
    drift_metrics,
    journal_metrics,
    jwt_metrics,
    report_metrics,
)

T = TypeVar("T")

#: Number of bytes to read from the end of a journal, enough for thousands of events.
JOURNAL_TAIL = 1 << 20

#: Seconds until the JWTs of all connections are read again.
JWT_INTERVAL = 600.0


@dataclass(frozen=True)
class SweepOptions:
    """The scope and rules of a sweep. `expected_servers`: None for all that respond. `selected`: streams with separate
    series. `journal`, `drift`, `report`: files; `backups`: a directory; None if not used. `interval` and `deadline` are in
    seconds."""

    fleet: str
    interval: float = 30.0
    deadline: float = 60.0
    expected_servers: Optional[tuple[str, ...]] = None
    expected_clusters: Mapping[str, str] = field(default_factory=dict)
    tolerate: tuple[str, ...] = ()
    selected: tuple[str, ...] = ()
    max_assets: int = 200
    journal: Optional[Path] = None
    backups: Optional[Path] = None
    drift: Optional[Path] = None
    report: Optional[Path] = None


class _ParsedFile(Generic[T]):
    """A file and its parsed content, read again whenever the file changes."""

    def __init__(self, path: Path, parse: Callable[[str], T], tail: int = 0) -> None:
        self._path = path
        self._parse = parse
        self._tail = tail
        self._known: Optional[tuple[tuple[int, int], T]] = None

    def read(self) -> T:
        """Return the parsed content. Raises OSError, ValueError."""
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            state = (size, self._path.stat().st_mtime_ns)
            if self._known is None or self._known[0] != state:
                file.seek(max(0, size - self._tail) if self._tail else 0)
                self._known = (state, self._parse(file.read().decode("utf-8", "replace")))
            return self._known[1]


class Sweeper:
    """Sweeps in a separate thread, and passes a line to `log` whenever an input starts or stops failing."""

    def __init__(self, options: ConnectionOptions, wanted: SweepOptions, log: Callable[[str], None]) -> None:
        self._options = options
        self._wanted = wanted
        self._log = log
        self._client: Optional[Client] = None
        self._isolation: Optional[Isolation] = None
        self._earlier = Earlier()
        self._logins: Optional[Logins] = None
        self._logins_read: Optional[float] = None
        self._faults = FaultList(wanted.max_assets)
        self._places: dict[str, str] = dict(wanted.expected_clusters)
        self._counts = {"success": 0, "failure": 0}
        self._failing: dict[str, str] = {}
        self._succeeded: Optional[float] = None
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._last: Optional[Exposition] = None
        self._ended = self._began
        self._journal = _ParsedFile(wanted.journal, _parse_journal, JOURNAL_TAIL) if wanted.journal else None
        self._catalogue = _ParsedFile(wanted.backups / FILE, read_catalogue) if wanted.backups else None
        self._drift = _ParsedFile(wanted.drift, read_drift) if wanted.drift else None
        self._report = _ParsedFile(wanted.report, json.loads) if wanted.report else None

    # --- the thread -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Sweep until stopped; each failure becomes a metric and a line in the log."""
        while not self._stop.is_set():
            begun = time.monotonic()
            self._last = self.sweep()
            self._ended = time.monotonic()
            self._stop.wait(max(0.0, begun + self._wanted.interval - self._ended))
        self._disconnect()

    def stop(self) -> None:
        self._stop.set()

    def current(self) -> Exposition:
        """Return the result of the last sweep. If it is missing or too old, return that fact instead, so a hanging
        sweep does not show a healthy cluster."""
        limit = 2 * self._wanted.interval + self._wanted.deadline
        if self._last is not None and time.monotonic() - self._ended <= limit:
            return self._last
        out = Exposition(self._wanted.fleet)
        self._about(out, "starting" if self._last is None else "deadline", time.monotonic() - self._ended)
        return out

    # --- one sweep ------------------------------------------------------------------------------------------------

    def sweep(self) -> Exposition:
        """Query the servers once, read the files, and return the metrics."""
        begun = time.monotonic()
        out = Exposition(self._wanted.fleet)
        journal = self._read(out, "journal", self._journal, lambda found: journal_metrics(out, found, time.time()))
        self._read(out, "backups", self._catalogue, lambda found: backup_metrics(out, found))
        self._read(out, "drift", self._drift, lambda found: drift_metrics(out, found))
        self._read(out, "report", self._report, lambda found: report_metrics(out, found))
        reason = self._sweep_cluster(out, journal or Journal(), begun)
        self._counts["failure" if reason else "success"] += 1
        if not reason:
            self._succeeded = time.time()
        out.add("natsops_sweep_timestamp_seconds", time.time())
        self._about(out, reason, time.monotonic() - begun)
        return out

    def _sweep_cluster(self, out: Exposition, journal: Journal, begun: float) -> str:
        """Add the servers' data; return why they cannot be queried, otherwise an empty text."""
        marks = [mark.as_dict() for mark in journal.marks.values()]
        params: dict[str, Any] = {
            "expected_servers": self._wanted.expected_servers,
            "expected_jetstream_servers": None,
            "expected_clusters": self._wanted.expected_clusters,
            "cluster": None,
            "assets": True,
            "max_lag": Limits().max_lag,
            "max_active": Limits().max_active,
            "tolerate": list(self._wanted.tolerate),
            "stop_servers": [],
            "r1_policy": "accept",
            "maintenance": marks,
        }
        known = set(self._wanted.expected_servers or ())
        try:
            cluster, varz = self._ask(known, known - journal.marks.keys() - set(self._wanted.tolerate), begun)
            sample = evaluate(cluster, params, older=self._earlier.swap(cluster))
            # The series of this part are added only if all of them could be computed.
            found = Exposition(self._wanted.fleet)
            cluster_metrics(found, self._reading(cluster, sample, varz, journal), self._faults, time.monotonic())
            cause_metrics(found, sample.causes)
        except NatsFailure as failure:
            reason, text = failure.code if failure.code in REASONS else "other", failure.description
        except Exception:
            # The exporter reports any invalid reply of a server, and continues.
            reason, text = "internal", traceback.format_exc()
        else:
            out.take(found)
            self._note("cluster", "")
            self._add_jwts(out, cluster, begun)
            return ""
        self._disconnect()
        problem = Problem("unreachable", ERROR, "cluster", text)
        cause_metrics(out, sorted_sample(None, [problem], params).causes)
        self._note("cluster", f"the cluster cannot be read: {text}")
        return reason

    def _add_jwts(self, out: Exposition, cluster: Cluster, begun: float) -> None:
        """Add the expiry of the JWTs in operator mode. They are read less often than the cluster, because the JWT of each
        connection is read. If they cannot be read, the metrics of the cluster are still exported."""
        found = Exposition(self._wanted.fleet)
        try:
            if self._logins_read is None or begun - self._logins_read >= JWT_INTERVAL:
                self._logins = self._read_logins(cluster, begun)
                self._logins_read = begun
            if self._logins is None:
                return
            jwt_metrics(found, evaluate_expiry(self._logins, time.time()))
            unknown = "; ".join(self._logins.unknown[:5])
        except NatsFailure as failure:
            unknown = f"the JWTs in use cannot be read: {failure.description}"
        except Exception:
            # As for the cluster: any invalid reply is reported, and the next sweep reads again.
            unknown = f"the JWTs in use cannot be read: {traceback.format_exc()}"
        else:
            out.take(found)
        out.add("natsops_input_readable", not unknown, input="jwts")
        self._note("jwts", unknown)

    def _read_logins(self, cluster: Cluster, begun: float) -> Optional[Logins]:
        if self._client is None:
            return None
        files = [self._options.credentials] if self._options.credentials else []
        api = SystemApi(self._client, deadline=begun + self._wanted.deadline)
        return read_logins(api, cluster.servers, files)

    def _ask(self, known: set[str], awaited: set[str], begun: float) -> tuple[Cluster, dict[str, Mapping[str, Any]]]:
        if self._client is None or self._isolation is None:
            self._client = Client(self._options)
            self._isolation = Isolation(self._client)
        api = SystemApi(self._client, deadline=begun + self._wanted.deadline)
        cluster = self._isolation.read(lambda: api.read_cluster(awaited=awaited, known_names=known), awaited)
        answers = api.ask(cluster.servers, "VARZ")
        return cluster, {key: answer for key, answer in answers.items() if not isinstance(answer, NatsFailure)}

    def _reading(
        self, cluster: Cluster, sample: Sample, varz: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> Sweep:
        self._places.update({server.name: server.cluster for server in cluster.servers})
        places = {server.cluster for server in cluster.servers}
        only = places.pop() if len(places) == 1 else ""
        # Even if there is no inventory, the missing members of the meta group are known.
        names = {*(self._wanted.expected_servers or ()), *(cluster.meta.group.members if cluster.meta else ())}
        return Sweep(
            cluster,
            (*sample.errors, *sample.warnings),
            sample.tolerated,
            {name: self._places.get(name) or only for name in names},
            journal.marks,
            varz,
            self._wanted.selected,
        )

    def _read(
        self, out: Exposition, name: str, document: Optional[_ParsedFile[T]], add: Callable[[T], None]
    ) -> Optional[T]:
        """Return the content of a file after adding its metrics, None if it is missing or unreadable."""
        if document is None:
            return None
        try:
            found = document.read()
            add(found)
        except (OSError, ValueError, KeyError, TypeError, SelectionError) as error:
            self._note(name, f"{name} cannot be read: {error!r}")
            out.add("natsops_input_readable", 0, input=name)
            return None
        self._note(name, "")
        out.add("natsops_input_readable", 1, input=name)
        return found

    def _about(self, out: Exposition, reason: str, seconds: float) -> None:
        out.add("natsops_up", not reason)
        for one in REASONS:
            out.add("natsops_failure", one == reason, reason=one)
        out.add("natsops_sweep_interval_seconds", self._wanted.interval)
        out.add("natsops_sweep_duration_seconds", seconds)
        out.add("natsops_sweep_success_timestamp_seconds", self._succeeded)
        for result, count in self._counts.items():
            out.add("natsops_sweeps_total", count, result=result)
        out.add("natsops_series", out.series + 1)

    def _note(self, what: str, text: str) -> None:
        """Report a failure when it starts or changes, and when it ends."""
        before = self._failing.get(what, "")
        if text and text != before:
            self._log(text)
        elif before and not text:
            self._log(f"{what}: works again")
        self._failing[what] = text

    def _disconnect(self) -> None:
        client, self._client, self._isolation = self._client, None, None
        if client is not None:
            try:
                client.close()
            except Exception:
                # Closing a broken connection may fail in any way; the next sweep establishes a new one.
                self._log(f"the connection could not be closed: {traceback.format_exc(limit=1)}")


def _parse_journal(text: str) -> Journal:
    return read_journal(text.splitlines())


def _path(text: Optional[str]) -> Optional[Path]:
    return Path(text) if text else None


def sweep_options(settings: Mapping[str, Any]) -> SweepOptions:
    """Return the options that the exporter's settings contain. Raises KeyError, ValueError."""
    names = settings.get("expected_servers")
    options = SweepOptions(
        fleet=str(settings["fleet"]),
        interval=float(settings["interval"]),
        deadline=float(settings["deadline"]),
        expected_servers=tuple(names) if names else None,
        expected_clusters=dict(settings.get("expected_clusters") or {}),
        tolerate=tuple(settings.get("tolerate") or ()),
        selected=tuple(settings.get("streams") or ()),
        max_assets=int(settings["max_assets"]),
        journal=_path(settings.get("journal")),
        backups=_path(settings.get("backups")),
        drift=_path(settings.get("drift")),
        report=_path(settings.get("report")),
    )
    if options.interval <= 0 or options.deadline <= 0 or options.max_assets < 0:
        raise ValueError("interval and deadline must be more than 0, max_assets at least 0")
    return options
