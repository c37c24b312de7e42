# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents and live assets as values, for tests of plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import CONSUMER_FIELDS, STREAM_FIELDS
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import AssetsDocument, parse_document
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.ownership import marks
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.plan import LiveAssets

SECOND = 1_000_000_000
Info = dict[str, Any]


def document(body: str, identity: str = "d") -> AssetsDocument:
    return parse_document(f"document: {identity}\ncluster: C1\naccount: A\n{body}")


def live_stream(of: AssetsDocument, name: str, messages: int = 0, mark: bool = True, **config: Any) -> Info:
    """Return the STREAM.INFO of a stream as declared, with changes in the server's words."""
    stream = of.streams[name]
    own = {key: value for key, value in stream.config.items() if value is not None}
    own["metadata"] = {**own["metadata"], **(marks(of, STREAM_FIELDS, stream.config) if mark else {})}
    state = {"messages": messages, "bytes": messages * 100, "first_seq": 1, "last_seq": messages}
    return {"config": {**own, "name": name, **config}, "state": state, "created": "2026-01-01T00:00:00Z"}


def live_consumer(of: AssetsDocument, stream: str, name: str, mark: bool = True, **config: Any) -> Info:
    consumer = of.streams[stream].consumers[name].config
    own = {key: value for key, value in consumer.items() if value is not None}
    own = {**own, "ack_wait": 30 * SECOND, "max_waiting": 512, "max_ack_pending": 1000}
    own["metadata"] = {**own["metadata"], **(marks(of, CONSUMER_FIELDS, consumer) if mark else {})}
    return {"name": name, "stream_name": stream, "config": {**own, "durable_name": name, **config}}


def live(
    *infos: Info, consumers: Mapping[str, Mapping[str, Info]] | None = None, cluster: str = "C1", **more: Any
) -> LiveAssets:
    return LiveAssets(
        cluster=cluster,
        release=more.pop("release", (2, 15)),
        streams={info["config"]["name"]: info for info in infos},
        consumers=consumers or {},
        **more,
    )
