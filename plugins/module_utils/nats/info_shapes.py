# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structure of STREAM.INFO and CONSUMER.INFO: all members that are used have the types that servers send. Pure.

Any client of an account may reply instead of the server, and manifests of backups contain the same configurations.
"""

from __future__ import annotations

import re
from typing import Any

from .. import shapes
from ..shapes import Shape, count, flag, list_shape, members, object_shape, optional, whole

#: Metadata that servers write themselves (jetstream_versioning.go).
SERVER_METADATA = "_nats."

#: Characters that are forbidden in names of streams and consumers (server/util.go isValidName). Path separators were
#: allowed in earlier versions, so existing names may contain them.
_FORBIDDEN = re.compile(r"[ \t\r\n\f.*>]")


def asset_name(value: Any) -> bool:
    """Accept the name of a stream or consumer."""
    return shapes.text(value) and bool(value) and not _FORBIDDEN.search(value) and shapes.encodable(value)


_METADATA = object_shape({}, shapes.text)
STREAM_CONFIG = object_shape(
    {
        "name": asset_name,
        "metadata": optional(_METADATA),
        **members(optional(list_shape(shapes.text)), "subjects"),
        **members(optional(shapes.text), "retention", "storage", "discard"),
        **members(optional(object_shape({})), "mirror", "placement", "republish", "subject_transform"),
        **members(optional(list_shape(object_shape({}))), "sources"),
        **members(optional(whole), "num_replicas", "max_age", "max_msgs", "max_bytes", "max_msgs_per_subject"),
        **members(optional(whole), "duplicate_window", "first_seq"),
    }
)
CONSUMER_CONFIG = object_shape(
    {
        "metadata": optional(_METADATA),
        **members(optional(shapes.text), "durable_name", "name", "deliver_policy", "filter_subject"),
        **members(optional(list_shape(shapes.text)), "filter_subjects"),
        **members(optional(whole), "num_replicas", "opt_start_seq"),
    }
)
#: Members of a stream's state that do not change if nothing is stored or removed.
STATE_COUNTS = ("messages", "bytes", "first_seq", "last_seq", "num_deleted")
STREAM_STATE = object_shape(
    {
        **members(optional(count), *STATE_COUNTS, "consumer_count", "num_subjects"),
        "deleted": optional(list_shape(count)),
    }
)

_CLUSTER = object_shape(
    {
        "leader": optional(shapes.text),
        "replicas": optional(
            list_shape(
                object_shape(
                    {
                        "name": shapes.text,
                        "peer": optional(shapes.text),
                        **members(optional(flag), "current", "offline"),
                        **members(optional(whole), "active", "lag"),
                    }
                )
            )
        ),
    }
)
_ORIGIN = object_shape({"name": optional(shapes.text), **members(optional(whole), "active", "lag")})
POSITION = object_shape(members(count, "consumer_seq", "stream_seq"))

STREAM_INFO: dict[str, Shape] = {
    "config": STREAM_CONFIG,
    "state": STREAM_STATE,
    "created": optional(shapes.text),
    "cluster": optional(_CLUSTER),
    "mirror": optional(_ORIGIN),
    "sources": optional(list_shape(_ORIGIN)),
}
CONSUMER_INFO: dict[str, Shape] = {
    "name": asset_name,
    "stream_name": optional(asset_name),
    "config": CONSUMER_CONFIG,
    "created": optional(shapes.text),
    **members(optional(POSITION), "delivered", "ack_floor"),
    **members(optional(count), "num_ack_pending", "num_redelivered", "num_waiting", "num_pending"),
    "cluster": optional(_CLUSTER),
}
