# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done of several tables at the same time.

A table of few rows is planned for longer than it is computed, and one plan is the work of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TypeVar

T = TypeVar("T")


def each(of: Iterable[T], do: Callable[[T], None], at_once: int) -> None:
    """Call `do` with each, for so many `at_once`, while the next one is made. Raises what `do` raises, after the calls that run
    have ended."""
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
    """Call `make` with each name, after those that it `needs`, for so many names `at_once`.

    The names stand in an order that is right for one at a time. Raises what `make` raises, after the calls that run have ended;
    no others begin then.
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
