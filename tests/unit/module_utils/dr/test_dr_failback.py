# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how the result of a failback is displayed; tests/integration/test_dr.py tests the failback itself."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.dr.run_failback import done_page


def test_the_ids_that_are_not_listed_are_counted() -> None:
    row = {
        "name": "APP/ORDERS",
        "stream": "ORDERS",
        "returned": 9,
        "messages": 9,
        "stranded": 0,
        "consumers": [],
        "twice": [f"m-{number}" for number in range(3105)],
    }
    assert done_page([row]).lines[-1].endswith("m-18, m-19 and 3,085 more")
    assert done_page([{**row, "twice": ["m-1", "m-2"]}]).lines[-1].endswith("ids m-1, m-2")
