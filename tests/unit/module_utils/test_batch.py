# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the documents of batches: their numbers, remaining hosts and progress headers, and the arguments of a gate."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.batch import Batch, BatchGate, number_batches


def test_documents_count_the_batches_and_name_each_remaining_host_once() -> None:
    batches = [Batch("first", hosts=["a"]), Batch("second", hosts=["b", "c"]), Batch("third", hosts=["b"])]
    documents = number_batches(batches, began=1795254003)
    assert [(one["number"], one["title"], one["remaining"]) for one in documents] == [
        (1, "first", ["b", "c"]),
        (2, "second", ["b"]),
        (3, "third", []),
    ]
    assert documents[1]["progress"] == {"title": "second", "step": 2, "steps": 3, "began": 1795254003}
    assert number_batches([]) == []


def test_gate_leaves_unset_arguments_to_the_role() -> None:
    assert BatchGate().as_dict() == {
        "stop_servers": [],
        "stop_policy": "fail",
        "required": False,
        "previous_host": "",
        "shared": False,
        "reason": "",
    }
    # A span of 0 is a value.
    gate = BatchGate(stop_servers=("n1",), samples=1, span=0, tolerate=()).as_dict()
    assert (gate["stop_servers"], gate["samples"], gate["span"], gate["tolerate"]) == (["n1"], 1, 0, [])


def test_every_gate_of_a_batch_has_its_progress_header() -> None:
    (document,) = number_batches([Batch("only", gates={"after": BatchGate(reason="because")}, details={"step": "add"})])
    assert document["gates"]["after"]["progress"] == document["progress"]
    assert (document["gates"]["after"]["reason"], document["step"]) == ("because", "add")
