# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of assets, and their assets on real servers."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.assets import config as rules
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.ownership import marks
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until

HEAD = {"document": "team", "cluster": "C1", "account": "APP"}
#: Every field that a stream and a consumer of 2.10 accept together.
ZOO: dict[str, Any] = {
    "streams": {
        "PLAIN": {
            "consumers": {
                "push": {
                    "deliver_subject": "to.push",
                    "deliver_group": "workers",
                    "idle_heartbeat": "5s",
                    "rate_limit_bps": 1000000,
                    "ack_policy": "none",
                    "replay_policy": "original",
                    "headers_only": True,
                },
            }
        },
        "FULL": {
            "description": "all fields",
            "subjects": ["full.>", "more.*"],
            "max_consumers": 9,
            "max_msgs": 5000,
            "max_bytes": "64MiB",
            "max_age": "7d",
            "max_msgs_per_subject": 100,
            "max_msg_size": "64KiB",
            "discard": "new",
            "discard_new_per_subject": True,
            "replicas": 3,
            "duplicate_window": "90s",
            "placement": {"cluster": "C1"},
            "compression": "s2",
            "first_seq": 10,
            "subject_transform": {"src": "more.*", "dest": "more.x.{{wildcard(1)}}"},
            "republish": {"src": "full.a", "dest": "copy.full.a", "headers_only": True},
            "allow_direct": True,
            "deny_delete": True,
            "deny_purge": True,
            "consumer_limits": {"inactive_threshold": "1h", "max_ack_pending": 500},
            "metadata": {"team": "orders"},
            "consumers": {
                "pull": {
                    "description": "pull",
                    "ack_wait": "45s",
                    "max_deliver": 7,
                    "filter_subjects": ["full.a", "full.b"],
                    "sample_freq": "50%",
                    "max_waiting": 64,
                    "max_ack_pending": 20,
                    "max_batch": 10,
                    "max_expires": "10s",
                    "max_bytes": "1MiB",
                    "inactive_threshold": "30m",
                    "replicas": 1,
                    "mem_storage": True,
                },
                "backing": {
                    "backoff": ["1s", "5s"],
                    "max_deliver": 3,
                    "deliver_policy": "last_per_subject",
                    "filter_subjects": ["full.c"],
                },
            },
        },
        "QUEUE": {"retention": "workqueue", "consumers": {"a": {"filter_subjects": ["QUEUE"]}}},
        "MEMORY": {"storage": "memory", "no_ack": True, "retention": "interest", "allow_rollup_hdrs": True},
        "SOURCED": {"sources": ["PLAIN", {"name": "FULL", "filter_subject": "full.a", "opt_start_seq": 10}]},
    },
    "mirrors": {"COPY": {"of": "PLAIN", "mirror_direct": False}},
    "kv": {
        "settings": {
            "history": 5,
            "ttl": "1h",
            "max_value_size": "1KiB",
            "entries": {"rate": {"value": "10", "mode": "own"}, "old": {"mode": "absent"}},
        }
    },
    "objects": {"reports": {"ttl": "30d", "max_bytes": "1MiB"}},
}
NEW_FIELDS = {
    "allow_msg_ttl": True,
    "subject_delete_marker_ttl": "1h",
    "allow_atomic": True,
    "consumers": {"prio": {"priority_groups": ["a"], "priority_policy": "pinned_client", "priority_timeout": "30s"}},
}


def zoo(version: str) -> dict[str, Any]:
    """Return a document with every field that servers of a version accept."""
    newer = {} if version.startswith("2.10") else {"NEWER": NEW_FIELDS}
    return {**ZOO, "streams": {**ZOO["streams"], **newer}}


def _contains(name: str, names: Collection[str]) -> bool:
    return name in names


def create(api: JetStreamApi, body: dict[str, Any], mark: bool = True) -> None:
    """Create the assets of a document, with its marks or without."""
    document = read_document({**HEAD, **body})
    release = api.release()
    for stream in document.streams.values():
        new = rules.expected_stream(stream.name, stream.config, stream.given, release)
        new["metadata"] = {**new["metadata"], **(marks(document, rules.STREAM_FIELDS, new) if mark else {})}
        api.create_stream(rules.request(rules.STREAM_FIELDS, {"name": stream.name}, new, new, release))
        assert wait_until(api.stream_names, partial(_contains, stream.name), 10).done
        for consumer in stream.consumers.values():
            wanted = rules.expected_consumer(consumer.config, consumer.given, new)
            wanted["metadata"] = {
                **wanted["metadata"],
                **(marks(document, rules.CONSUMER_FIELDS, wanted) if mark else {}),
            }
            raw = {"name": consumer.name, "durable_name": consumer.name}
            api.save_consumer(stream.name, rules.request(rules.CONSUMER_FIELDS, raw, wanted, wanted, release), "create")


def publish(api: JetStreamApi, subject: str, data: bytes = b"x" * 10) -> None:
    """Store a message, as soon as the stream's leader has subscribed to the subject."""

    def stored() -> bool:
        try:
            return b'"seq"' in api._client.request(Call(subject, data)).body
        except NatsFailure as failure:
            if failure.code != "no_responders":
                raise
            return False

    assert wait_until(stored, bool, 10).done, subject
