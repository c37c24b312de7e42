# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the same work for many assets at a time, each with connections that no other worker uses."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, TypeVar

from ..nats.accounts import Connections

Job = TypeVar("Job")
Done = TypeVar("Done")


class Workers:
    """Up to `count` threads. Each thread has its own connections to the accounts of `connections`, because a client may
    be used by only one thread."""

    def __init__(self, connections: Connections, count: int) -> None:
        self._count = count
        self._made = [connections.another() for _number in range(count - 1)]
        # Last in, first out, so unused connections are never opened.
        self._free: queue.LifoQueue[Connections] = queue.LifoQueue()
        for own in [*self._made, connections]:
            self._free.put(own)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.ExitStack() as stack:
            for own in self._made:
                stack.enter_context(own)

    def map(self, work: Callable[[Connections, Job], Done], jobs: Iterable[Job]) -> list[Done]:
        """Run the work for each job and return the results in the order of the jobs. After an exception, no further job
        starts; the exception is raised once the running jobs are done."""

        def one(job: Job) -> Done:
            own = self._free.get()
            try:
                return work(own, job)
            finally:
                self._free.put(own)

        pool = ThreadPoolExecutor(self._count)
        try:
            return [future.result() for future in [pool.submit(one, job) for job in jobs]]
        finally:
            pool.shutdown(cancel_futures=True)
