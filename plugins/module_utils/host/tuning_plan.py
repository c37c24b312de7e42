# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that tune a host for a store on SSDs, and those that undo them.

Each part of `host.tunings` is set twice: in the running kernel, and in a file for the next boot. A record on the host
keeps the value that each setting had before the first run; undoing a part restores it. A setting that no longer has the
role's value was changed by the operator, so it is left unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import tunings
from .observation import RunCommand
from .system import Mount, mounts
from .tunings import HUGE_PAGES, PARTS

_TIME_SERVICE = "systemd-timesyncd"
_HEADER = "# Managed by Ansible: "
_FSTAB = "/etc/fstab"
_ACCESS_TIMES = ("relatime", "strictatime")


@dataclass(frozen=True)
class TuningStep:
    """One change: a value that is written to a file of the kernel (`switch`), a configuration file (`file`), or a `command`.

    `before` and `after` are the values, or the texts of a configuration file; None if the file does not exist.
    `finding` is reported if the step fails.
    """

    part: str
    setting: str
    before: str | None
    after: str | None
    switch: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    finding: str = ""


@dataclass(frozen=True)
class TunedHost:
    """The host: its file system below `root`, the path of the store, the desired kernel parameters, the name of the
    service, whether systemd is running, and the record: `{part: {setting: {"before": value, "after": value}}}`."""

    root: Path
    store: str
    sysctls: Mapping[str, str]
    service: str
    systemd: bool
    run_command: RunCommand
    record: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)

    def text(self, path: str) -> str | None:
        """Return the text of a file, or None if the file does not exist."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8")
        except OSError:
            return None

    def mount(self) -> Mount | None:
        """Return the mount of the store."""
        return tunings.store_mount(self.store, self.root / "proc")

    def recorded(self, part: str) -> Mapping[str, Mapping[str, str]]:
        """Return the recorded settings of a part."""
        return self.record.get(part) or {}


def apply_steps(host: TunedHost, parts: list[str]) -> list[TuningStep]:
    """Return the steps that tune the parts, in order."""
    return [step for part in PARTS if part in parts for step in _APPLY[part](host)]


def undo_steps(host: TunedHost, parts: list[str]) -> list[TuningStep]:
    """Return the steps that restore the recorded values of the parts, in order."""
    return [step for part in PARTS if part in parts and host.recorded(part) for step in _undo(host, part)]


def findings_left(host: TunedHost, parts: list[str]) -> list[str]:
    """Return the problems of the parts that no step solves: a mount that the store shares with the system, or a time service
    other than systemd's."""
    found = {
        "mount_options": tunings.mount_options(host.mount()) if "mount_options" in parts else {},
        "time_sync": tunings.time_sync(host.run_command) if "time_sync" in parts else {},
    }
    return [
        text
        for part, one in found.items()
        if one and not (one["settable"] and (part == "mount_options" or host.systemd))
        for text in one["findings"]
    ]


def new_record(host: TunedHost, done: list[TuningStep], undone: list[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the record after the steps: for each setting, its value before the role's first change and its value after
    the last change. For /etc/fstab, the values are the changed line."""
    record: dict[str, dict[str, dict[str, str]]] = {
        part: {name: dict(values) for name, values in settings.items()}
        for part, settings in host.record.items()
        if part not in undone
    }
    for step in done:
        if step.part in undone:
            continue
        settings = record.setdefault(step.part, {})
        before, after = step.before or "", step.after or ""
        if step.file == _FSTAB:
            lines = zip(before.splitlines(), after.splitlines())
            before, after = next((old, new) for old, new in lines if old != new)
        elif step.file:
            after = ""
        before = settings.get(step.setting, {}).get("before", before)
        settings[step.setting] = {"before": before, "after": after}
        if step.switch and before == after:
            del settings[step.setting]  # a parameter that was removed from the variables has its previous value again
    return {part: settings for part, settings in record.items() if settings}


def _mount_options(host: TunedHost) -> Iterator[TuningStep]:
    mount = host.mount()
    found = tunings.mount_options(mount)
    if not mount or not found["settable"]:
        return
    target = found["mount"]
    before = next((option for option in _ACCESS_TIMES if option in mount.options), "relatime")
    command = ("mount", "--options", "remount,noatime", target)
    yield TuningStep("mount_options", target, before, "noatime", command=command, finding=found["findings"][0])
    fstab = host.text(_FSTAB) or ""
    # relatime is the kernel's default and would override noatime, because the last option counts.
    line = re.compile(rf"^([^#\s]\S*\s+{_escaped(target)}\s+\S+\s+)(?!\S*\bnoatime\b)(\S+)", re.MULTILINE)
    if line.search(fstab):
        yield from _file(host, "mount_options", _FSTAB, line.sub(r"\1\2,noatime", fstab, count=1))


def _scheduler(host: TunedHost) -> Iterator[TuningStep]:
    found = tunings.scheduler(host.mount(), host.root / "sys")
    for disk in found["wrong"]:
        switch = f"/sys/block/{disk}/queue/scheduler"
        finding = f"scheduler: {disk}: neither none nor mq-deadline, which are suitable for SSDs"
        yield TuningStep("scheduler", disk, _chosen(host.text(switch)), "none", switch=switch, finding=finding)
    rules = "".join(
        f'ACTION=="add|change", KERNEL=="{disk}", ATTR{{queue/rotational}}=="0", ATTR{{queue/scheduler}}="none"\n'
        for disk in found["disks"]
    )
    if rules:
        text = f"{_HEADER}the disks under {host.store} are SSDs.\n{rules}"
        yield from _file(host, "scheduler", f"/etc/udev/rules.d/60-{host.service}-scheduler.rules", text)


def _sysctl(host: TunedHost) -> Iterator[TuningStep]:
    for wrong in tunings.sysctl(host.sysctls, host.root / "proc")["wrong"]:
        yield _parameter(host, wrong["name"], wrong["value"], wrong["finding"])
    for name, values in host.recorded("sysctl").items():
        if not name.startswith("/") and name not in host.sysctls:
            yield from _restore_switch(host, "sysctl", name, _parameter_path(name), values)
    lines = "".join(f"{name} = {value}\n" for name, value in sorted(host.sysctls.items()))
    text = f"{_HEADER}kernel parameters for nats-server.\n{lines}"
    yield from _file(host, "sysctl", f"/etc/sysctl.d/60-{host.service}.conf", text)


def _transparent_hugepages(host: TunedHost) -> Iterator[TuningStep]:
    found = tunings.transparent_hugepages(host.root / "sys")
    switch = f"/sys/{HUGE_PAGES}"
    if found["wrong"]:
        finding = found["findings"][0].partition(";")[0]
        yield TuningStep("transparent_hugepages", "enabled", "always", "madvise", switch=switch, finding=finding)
    if host.systemd and host.text(switch) is not None:
        text = f"{_HEADER}huge pages only for programs that request them.\nw {switch} - - - - madvise\n"
        yield from _file(host, "transparent_hugepages", f"/etc/tmpfiles.d/{host.service}-thp.conf", text)


def _time_sync(host: TunedHost) -> Iterator[TuningStep]:
    found = tunings.time_sync(host.run_command)
    # The operator may have chosen another time service; systemd's is already installed or available as a package.
    if found["settable"] and host.systemd:
        command = ("systemctl", "enable", "--now", _TIME_SERVICE)
        yield TuningStep("time_sync", _TIME_SERVICE, "off", "on", command=command, finding=found["findings"][0])


_APPLY: dict[str, Callable[[TunedHost], Iterator[TuningStep]]] = {
    "mount_options": _mount_options,
    "scheduler": _scheduler,
    "sysctl": _sysctl,
    "transparent_hugepages": _transparent_hugepages,
    "time_sync": _time_sync,
}


def _undo(host: TunedHost, part: str) -> Iterator[TuningStep]:
    for setting, values in host.recorded(part).items():
        if setting == _FSTAB:
            yield from _restore_fstab(host, values)
        elif part == "mount_options":
            yield from _restore_mount(host, setting, values)
        elif setting.startswith("/"):
            yield from _file(host, part, setting, values["before"] or None)
        elif part == "sysctl":
            yield from _restore_switch(host, part, setting, _parameter_path(setting), values)
        elif part == "scheduler":
            yield from _restore_switch(host, part, setting, f"/sys/block/{setting}/queue/scheduler", values)
        elif part == "transparent_hugepages":
            yield from _restore_switch(host, part, setting, f"/sys/{HUGE_PAGES}", values)
        else:
            command = ("systemctl", "disable", "--now", _TIME_SERVICE)
            yield TuningStep(part, setting, "on", "off", command=command)


def _restore_mount(host: TunedHost, target: str, values: Mapping[str, str]) -> Iterator[TuningStep]:
    every = mounts(host.text("/proc/self/mountinfo") or "")
    if any(mount.target == target and "noatime" in mount.options for mount in every):
        command = ("mount", "--options", f"remount,{values['before']}", target)
        yield TuningStep("mount_options", target, "noatime", values["before"], command=command)


def _restore_fstab(host: TunedHost, values: Mapping[str, str]) -> Iterator[TuningStep]:
    fstab = host.text(_FSTAB) or ""
    lines = [values["before"] if line == values["after"] else line for line in fstab.splitlines()]
    yield from _file(host, "mount_options", _FSTAB, "".join(f"{line}\n" for line in lines))


def _restore_switch(
    host: TunedHost, part: str, setting: str, switch: str, values: Mapping[str, str]
) -> Iterator[TuningStep]:
    now = _chosen(host.text(switch))
    if now.split() == values["after"].split() != values["before"].split():
        finding = f"{part}: {setting} is still {now}; it was {values['before']} before it was tuned"
        yield TuningStep(part, setting, now, values["before"], switch=switch, finding=finding)


def _parameter(host: TunedHost, name: str, value: str, finding: str) -> TuningStep:
    switch = _parameter_path(name)
    return TuningStep("sysctl", name, (host.text(switch) or "").strip(), value, switch=switch, finding=finding)


def _parameter_path(name: str) -> str:
    return "/proc/sys/" + name.replace(".", "/")


def _file(host: TunedHost, part: str, path: str, after: str | None) -> Iterator[TuningStep]:
    before = host.text(path)
    if before != after:
        yield TuningStep(part, path, before, after, file=path)


def _chosen(text: str | None) -> str:
    """Return the value of a switch. If the file lists choices, the value is in brackets."""
    found = re.search(r"\[([^]]+)]", text or "")
    return found[1] if found else (text or "").strip()


def _escaped(target: str) -> str:
    """Return a pattern that matches a mount point in fstab, which writes a space as \\040."""
    return re.escape(target.replace(" ", "\\040"))


def is_settable(host: TunedHost, step: TuningStep) -> bool:
    """Return whether a step can probably be carried out: the kernel's file must be writable."""
    return not step.switch or os.access(host.root / step.switch.lstrip("/"), os.W_OK)
