# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parallel execution of steps for several tables.

Planning a table of few rows takes longer than computing it, and a plan is made by a single thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TypeVar

T = TypeVar("T")


def each(of: Iterable[T], do: Callable[[T], None], at_once: int) -> None:
    """Call `do` with each item, `at_once` at a time, while the next item is produced. Raises the error of a call after the
    running calls have ended."""
    if at_once == 1:
        for one in of:
            do(one)
        return
    with ThreadPoolExecutor(at_once) as pool:
        try:
            running = [pool.submit(do, one) for one in of]
            for ended in running:
                ended.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def make_all(needs: Mapping[str, Iterable[str]], make: Callable[[str], None], at_once: int) -> None:
    """Call `make` with each name after the names that it `needs`, `at_once` at a time.

    The order of the names must be valid for one at a time. Raises the error of a call after the running calls have ended; no
    further call is started.
    """
    if at_once == 1:
        each(needs, make, at_once)
        return
    order = TopologicalSorter({name: [other for other in of if other in needs] for name, of in needs.items()})
    order.prepare()
    running: dict[Future[None], str] = {}
    with ThreadPoolExecutor(at_once) as pool:
        try:
            while order.is_active():
                running |= {pool.submit(make, name): name for name in order.get_ready()}
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    done.result()
                    order.done(running.pop(done))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
