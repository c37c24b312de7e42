# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a playbook for each cluster, several at a time, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Callable

from .clusters import FAILED, NOT_STARTED, ClusterOutcome, FleetCluster, outcome

#: Changes of the environment that make the output readable for `outcome`, also below AWX's own callback.
OUTPUT = {
    "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    "ANSIBLE_DISPLAY_FAILED_STDERR": "false",
    "ANSIBLE_FORCE_COLOR": "false",
    "ANSIBLE_NOCOLOR": "true",
}


def run_fleet(
    clusters: Sequence[FleetCluster],
    command: Callable[[FleetCluster], list[str]],
    log: Callable[[FleetCluster], str],
    parallel: int,
    stop_after: int,
) -> Iterator[ClusterOutcome]:
    """Yield the outcome of each cluster as soon as its run has ended; at the end, those that were not started.

    `log`: path of the file for a cluster's output. `stop_after`: start no further cluster after so many have failed; 0
    starts all.
    """
    lock, failed = threading.Lock(), 0

    def run(cluster: FleetCluster) -> ClusterOutcome:
        nonlocal failed
        with lock:
            if stop_after and failed >= stop_after:
                return ClusterOutcome(cluster, NOT_STARTED)
        result = run_cluster(cluster, command(cluster), log(cluster))
        with lock:
            failed += result.status == FAILED
        return result

    with ThreadPoolExecutor(parallel) as pool:
        for done in as_completed([pool.submit(run, cluster) for cluster in clusters]):
            yield done.result()


def run_cluster(cluster: FleetCluster, command: Sequence[str], log: str) -> ClusterOutcome:
    """Run the command to its end. The log is readable only by its owner and replaces an earlier one."""
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    began = time.monotonic()
    with open(os.open(log, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600), "r+", errors="backslashreplace") as file:
        os.fchmod(file.fileno(), 0o600)
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **OUTPUT}
        )
        file.seek(0)
        return outcome(cluster, done.returncode, file.read(), time.monotonic() - began, log)


def password_files(passwords: Mapping[str, str], folder: str) -> dict[str, str]:
    """Write each password to a file in this folder that only its owner may read; return the paths by password."""
    files = {}
    for number, (password, value) in enumerate(passwords.items()):
        files[password] = os.path.join(folder, str(number))
        with open(os.open(files[password], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(value)
    return files
