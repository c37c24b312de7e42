# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of assets: normal form, errors with their paths, and conflicts."""

from __future__ import annotations

import time

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import (
    ABSENT,
    OWN,
    SEED,
    AssetsDocument,
    collisions,
    parse_document,
    read_document,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.documents import InvalidDocument
from support.documents import CHECKOUT

EXAMPLE = (CHECKOUT / "docs" / "examples" / "assets.yml").read_text()
SECOND = 1_000_000_000


def document(body: str, identity: str = "d", account: str = "A") -> AssetsDocument:
    return parse_document(f"document: {identity}\ncluster: C1\naccount: {account}\n{body}")


def problems(body: str) -> list[str]:
    with pytest.raises(InvalidDocument) as caught:
        document(body)
    return list(caught.value.problems)


def test_example_in_normal_form() -> None:
    found = parse_document(EXAMPLE)
    assert (found.id, found.cluster, found.account, found.prune) == ("orders", "C1", "APP", "owned")
    assert set(found.streams) == {"ORDERS", "LEGACY", "ORDERS_DR", "KV_settings", "OBJ_reports"}
    orders = found.streams["ORDERS"]
    assert orders.config["max_age"] == 7 * 86400 * SECOND
    assert (orders.config["max_bytes"], orders.config["num_replicas"]) == (50 << 30, 3)
    assert orders.config["max_msgs"] == -1
    billing = orders.consumers["billing"].config
    assert (billing["ack_wait"], billing["filter_subjects"], billing["ack_policy"]) == (
        30 * SECOND,
        ["orders.created"],
        "explicit",
    )
    assert found.streams["ORDERS_DR"].config["mirror"] == {"name": "ORDERS"}
    assert found.streams["ORDERS_DR"].config["subjects"] == []
    settings = found.streams["KV_settings"]
    assert (settings.config["subjects"], settings.config["max_msgs_per_subject"]) == (["$KV.settings.>"], 5)
    modes = {key: (entry.mode, entry.value) for key, entry in settings.entries.items()}
    assert modes == {"rate": (OWN, "10"), "motd": (SEED, "Hello"), "old_rate": (ABSENT, None)}
    assert found.streams["OBJ_reports"].config["max_age"] == 30 * 86400 * SECOND


def test_digest_depends_on_content_and_not_on_comments() -> None:
    assert parse_document(EXAMPLE).digest == parse_document("# a comment\n" + EXAMPLE).digest
    assert parse_document(EXAMPLE).digest != parse_document(EXAMPLE.replace("7d", "8d")).digest


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", '""'])
def test_empty_rendering_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocument, match="the document is empty; if it is a template"):
        parse_document(text)


def test_document_without_assets_is_refused() -> None:
    assert problems("prune: all") == [
        "the document declares no assets: streams, mirrors, kv, objects are missing or empty"
    ]
    assert problems("streams: {}")[0].startswith("the document declares no assets")


def test_all_errors_are_reported_at_once_with_their_paths() -> None:
    found = problems(
        "prune: some\nowner: me\n"
        "streams:\n"
        "  S: {max_age: 5 bananas, num_replicas: 3, storage: disk, subjects: s, placement: {tag: [a]}, sealed: 1}\n"
        "  T: {consumers: {C: {ack_wait: [], max_deliver: x}}}\n"
        "kv: {b: {history: 65}, c: {entries: {a..b: {value: x}, k: {value: 5}, m: {}, n: {value: x, mode: absent}}}}\n"
    )
    assert found == [
        "owner: unknown key",
        "prune: 'some' is not one of never, owned, all",
        "streams.S.max_age: '5 bananas' is not a duration such as 500ms, 30s, 1h30m or 2d",
        "streams.S.num_replicas: unknown key; did you mean replicas?",
        "streams.S.storage: 'disk' is not one of file, memory",
        "streams.S.subjects: 's' is not a list of texts",
        "streams.S.placement.tag: unknown key; did you mean tags?",
        "streams.S.sealed: '1' is not true or false",
        "streams.T.consumers.C.ack_wait: '[]' is not a duration such as 7d or 30s",
        "streams.T.consumers.C.max_deliver: 'x' is not an integer",
        "kv.b.history: must be from 1 to 64, not 65",
        "kv.c.entries.a..b: not a key: letters, digits, '-', '_', '=', '/' and single dots only",
        "kv.c.entries.k.value: '5' is not a text; quote it",
        "kv.c.entries.k.value: missing for mode: seed",
        "kv.c.entries.m.value: missing for mode: seed",
        "kv.c.entries.n.value: must not be given with mode: absent",
    ]


def test_document_must_name_itself_its_cluster_and_its_account() -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_document("document: a b\nstreams: {S: {}}")
    assert caught.value.problems == (
        "document: 'a b' may contain letters, digits, '.', '_' and '-' only",
        "cluster: missing, or not a text",
        "account: missing, or not a text",
    )


def test_duplicate_key_is_refused() -> None:
    assert problems("streams:\n  S: {}\n  S: {}\n") == ["line 6: S is given twice"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("streams: {KV_a: {}}", "streams.KV_a: streams that begin with KV_ are reserved; declare the bucket under kv"),
        (
            "streams: {$MQTT_out: {}}",
            "streams.$MQTT_out: streams that begin with $MQTT_ are reserved; servers manage it",
        ),
        (
            "mirrors: {M: {of: S, subjects: [a]}}",
            "mirrors.M.subjects: a mirror cannot have subjects; its origin determines them",
        ),
        ("mirrors: {M: {}}", "mirrors.M.of: missing"),
        ("streams: {S: {replicas: 7}}", "streams.S.replicas: 7 is more than 5"),
        (
            "streams: {S: {max_consumers: 1, consumers: {a: {}, b: {}}}}",
            "streams.S.max_consumers: 1, but the document declares 2 consumers",
        ),
        (
            "streams: {S: {consumers: {c: {replicas: 3}}}}",
            "streams.S.consumers.c.replicas: more than its stream has (1)",
        ),
        (
            "streams: {S: {retention: workqueue, consumers: {a: {}, b: {filter_subjects: [S.x]}}}}",
            "streams.S.consumers: the filters of a and b overlap, which retention workqueue does not permit",
        ),
        (
            "streams: {S: {retention: workqueue, consumers: {a: {ack_policy: none}}}}",
            "streams.S.consumers.a.ack_policy: a stream with retention workqueue needs explicit",
        ),
        (
            "streams: {A: {subjects: [a.>]}, B: {subjects: [a.*.c]}}",
            "streams.A.subjects: a.> overlaps a.*.c of streams.B (JetStream error 10065)",
        ),
        (
            "streams: {A: {subjects: [a.b]}, B: {subjects: ['*.b']}}",
            "streams.A.subjects: a.b overlaps *.b of streams.B (JetStream error 10065)",
        ),
        (
            "streams: {A: {sources: [B]}, B: {sources: [{name: C}]}, C: {sources: [A]}}",
            "sources form a cycle: A → B → C → A",
        ),
        ("streams: {S: {}}\nmirrors: {S: {of: T}}", "mirrors.S: the stream S is also streams.S"),
        ("streams: {S: {}}\nadopt: [T]", "adopt: T is not in the document"),
        (
            "streams: {S: {metadata: {_nats.x: y}}}",
            "streams.S.metadata: _nats.x: keys that begin with _nats. are reserved",
        ),
        ("kv: {b: {mirror: a, entries: {k: {value: v}}}}", "kv.b.entries: a mirror is read-only; declare the entries"),
    ],
)
def test_conflicts_inside_a_document_are_refused(body: str, expected: str) -> None:
    found = problems(body)
    assert len(found) == 1, found
    assert found[0].startswith(expected)


def test_two_documents_cannot_claim_one_asset_or_one_identity() -> None:
    one, other = document("streams: {S: {}}"), document("streams: {S: {}}", "e")
    assert collisions([one, other]) == ["streams.S: documents d and e both declare S"]
    assert collisions([one, document("streams: {T: {}}")]) == ["document d of account A is given twice"]
    assert collisions([one, document("streams: {S: {}}", "d", "B")]) == []


def test_documents_of_one_account_cannot_overlap() -> None:
    found = collisions([document("streams: {S: {subjects: [a.*]}}"), document("streams: {T: {subjects: [a.b]}}", "e")])
    assert found == ["streams.S.subjects: a.* overlaps a.b of streams.T (JetStream error 10065)"]


def test_filter_subject_of_the_server_is_accepted() -> None:
    found = document("streams: {S: {consumers: {c: {filter_subject: S.a}}}}")
    assert found.streams["S"].consumers["c"].given == {"filter_subjects": ["S.a"]}


def test_large_documents_are_read_quickly() -> None:
    given = {
        "document": "d",
        "cluster": "C1",
        "account": "A",
        "streams": {
            f"S{number}": {
                "subjects": [f"s{number}.>", f"all.{number}"],
                "consumers": {f"c{one}": {} for one in range(3)},
            }
            for number in range(300)
        },
    }
    started = time.process_time()
    assert len(read_document(given).streams) == 300
    assert time.process_time() - started < 2


def test_empty_value_of_an_entry_is_a_value() -> None:
    found = document('kv: {b: {entries: {x: {value: ""}}}}').streams["KV_b"].entries["x"]
    assert (found.mode, found.value) == (SEED, "")
    assert problems("kv: {b: {entries: {x: {mode: own}}}}") == ["kv.b.entries.x.value: missing for mode: own"]
