# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of a process and all of its children, such as the JVM and its workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Spent(NamedTuple):
    """CPU seconds of the process itself, and resident bytes."""

    cpu: float
    resident: int


def tree(root: int) -> dict[int, Spent]:
    """Return, by process id, the resources that a process and its descendants have used so far."""
    parents: dict[int, int] = {}
    found: dict[int, Spent] = {}
    memory: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                values = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry.name)] = int(values[1])
            memory[int(entry.name)] = values[23:26]  # the addresses of its code and stack, which each exec changes
            found[int(entry.name)] = Spent(sum(map(int, values[11:13])) / TICKS, int(values[21]) * PAGE)

    def below(process: int) -> bool:
        while process not in (0, root):
            process = parents.get(process, 0)
        return process == root

    def own(process: int, spent: Spent) -> Spent:
        # Between vfork and exec, a child shares the memory of its parent, which would be counted twice. The memory of a
        # child that was forked and never calls exec, such as a PySpark worker, is not counted either; the measured jobs
        # have no such child.
        return spent._replace(resident=0) if memory[process] == memory.get(parents[process]) else spent

    return {process: own(process, spent) for process, spent in found.items() if below(process)}
