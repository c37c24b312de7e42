# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host import evidence
from ansible_collections.natsops.jetstream.plugins.module_utils.host.evidence import (
    INDEX,
    CollectionBounds,
    Collector,
    HostEvidence,
    Probe,
    Subject,
    probes,
    run,
    store_listing,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.redaction import Redactor


def test_a_command_that_does_not_end_is_ended_with_its_children() -> None:
    started = time.monotonic()
    output = run(["sh", "-c", "sleep 60 & echo $!; wait"], 0.3, 1000)
    assert time.monotonic() - started < 5
    assert output.reason == "sh was ended after 0.3 s"
    child = int(output.text)
    # A child whose parent does not wait for it remains a zombie until init reaps it.
    stat, end = Path(f"/proc/{child}/stat"), time.monotonic() + 5
    # A signal is delivered only when the process next runs on a CPU.
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_command_that_prints_for_ever_is_bounded_in_bytes_and_seconds() -> None:
    output = run(["yes"], 0.3, 1000)
    assert len(output.text) == 1000
    assert output.dropped > 10_000
    assert output.reason.startswith("yes was ended")


def test_failed_command_reports_its_reason() -> None:
    assert run(["no-such-program"], 1, 10).reason == "no-such-program is not installed"
    assert run(["sh", "-c", "echo denied; exit 3"], 5, 100) == evidence.Output(b"denied\n", "sh ended with status 3")
    assert run(["sh", "-c", "echo inactive; exit 3"], 5, 100, (0, 3)) == evidence.Output(b"inactive\n")
    assert run(["echo", "hello"], 5, 100) == evidence.Output(b"hello\n")


def test_status_of_a_stopped_unit_is_complete() -> None:
    wanted = {probe.name: probe for probe in probes(Subject(unit="nats-server"), ["sda"], 1000)}
    assert 3 in wanted["unit/status.txt"].statuses and 3 not in wanted["unit/show.txt"].statuses
    # Bit 6 of smartctl's status: the disk's log contains errors. Bit 1: the disk could not be opened.
    assert 64 in wanted["disks/smart-sda.txt"].statuses and 2 not in wanted["disks/smart-sda.txt"].statuses


def collected(
    monkeypatch: pytest.MonkeyPatch,
    wanted: list[Probe],
    bounds: CollectionBounds,
    subject: Subject | None = None,
    secrets: tuple[str, ...] = (),
) -> tuple[HostEvidence, dict[str, str]]:
    """Collect evidence with only these commands, and also return the content of the archive."""
    monkeypatch.setattr(evidence, "probes", lambda *_arguments: wanted)
    monkeypatch.setattr(evidence, "_SYSTEM_FILES", ())
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        found = Collector(archive, Redactor(secrets), bounds).collect(subject or Subject())
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        return found, {name: content.read().decode() for name, content in members.items() if content}


def test_total_time_is_bounded_and_omissions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    slow = [Probe(f"{number}.txt", ("sleep", "30")) for number in range(20)]
    found, files = collected(monkeypatch, slow, CollectionBounds(command=0.2, total=0.5))
    assert time.monotonic() - started < 5
    reasons = {row["item"]: row["reason"] for row in found.missing}
    assert reasons["0.txt"] == "sleep was ended after 0.2 s"
    assert reasons["19.txt"] == "the host's 0.5 s limit was reached"
    assert json.loads(files[INDEX]) == found.as_dict()


def test_total_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Probe(f"{number}.txt", ("sh", "-c", "seq 1 100000")) for number in range(4)]
    found, files = collected(monkeypatch, many, CollectionBounds(size=600_000))
    assert sum(len(text) for name, text in files.items() if name != INDEX) <= 600_000
    assert {"0.txt", "1.txt"} <= {*found.files} | {row["item"] for row in found.cut + found.missing}
    assert "3.txt" in {row["item"] for row in found.missing + found.cut}


def test_end_of_a_log_is_kept_in_complete_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("".join(f"line {number} password=hunter22\n" for number in range(1000)))
    found, files = collected(monkeypatch, [], CollectionBounds(size=8000), Subject(log_file=str(log)))
    lines = files["server.log"].splitlines()
    assert lines[-1] == "line 999 password=[redacted]"
    assert all(line.endswith("password=[redacted]") for line in lines)
    assert [row["item"] for row in found.cut] == ["server.log"]


def test_known_secrets_are_redacted_in_all_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "nats-server.conf"
    config.write_text('port: 4222\nmystery: "top-secret-thing"\njetstream { key: plain-key }\n')
    wanted = [Probe("journal.log", ("echo", "saw top-secret-thing"))]
    _found, files = collected(
        monkeypatch, wanted, CollectionBounds(), Subject(files=(str(config),)), secrets=("top-secret-thing",)
    )
    assert "top-secret-thing" not in str(files)
    assert "plain-key" not in str(files)
    assert "port: 4222" in files["configuration/nats-server.conf"]


def test_configuration_with_unknown_secrets_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "hand.conf"
    config.write_text("X = not-to-be-seen\nauthorization { token: $X")
    subject = Subject(files=(str(config),), left_out={str(config): "line 2: a block is not closed"})
    found, files = collected(monkeypatch, [], CollectionBounds(), subject)
    assert "not-to-be-seen" not in str(files)
    assert {"item": "configuration/hand.conf", "reason": "line 2: a block is not closed"} in found.missing


def test_the_store_is_listed_and_not_read(tmp_path: Path) -> None:
    block = tmp_path / "jetstream" / "APP" / "1.blk"
    block.parent.mkdir(parents=True)
    block.write_bytes(b"message")
    os.utime(block, (0, 0))
    assert list(store_listing(str(tmp_path))) == ["           7 1970-01-01T00:00:00Z jetstream/APP/1.blk\n"]


def test_probes_depend_on_systemd_and_the_disks() -> None:
    with_unit = {
        probe.name: probe.argv for probe in probes(Subject(unit="nats-server", since=60), ["sda", "nvme0n1"], 10)
    }
    assert with_unit["journal.log"][:3] == ("journalctl", "--unit=nats-server.service", "--since=-60s")
    assert with_unit["disks/smart-nvme0n1.txt"] == ("smartctl", "--xall", "/dev/nvme0n1")
    without = {probe.name: probe.argv for probe in probes(Subject(), [], 10)}
    assert "journal.log" not in without
    assert without["kernel.log"][0] == "dmesg"
