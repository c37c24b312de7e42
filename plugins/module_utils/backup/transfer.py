# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that transfer an archive; see doc_fragments/transfer.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..nats.client import NatsFailure
from ..nats.jetstream_api import CHUNK, TransferPace
from ..units import size_bytes
from ..waiting import positive

IDLE_TIMEOUT = 30.0

TRANSFER_SPEC: dict[str, dict[str, Any]] = {
    "idle_timeout": {"type": "float", "default": IDLE_TIMEOUT},
    "rate_limit": {"type": "str"},
}

#: A server before 2.12.5 gives up after 2 s without an acknowledgement, and a rate limit delays the acknowledgement of
#: each chunk.
_SLOWEST = 2 * CHUNK


def requested_pace(params: Mapping[str, Any]) -> TransferPace:
    """Return the transfer options of an archive. Raises NatsFailure invalid_option."""
    rate = None
    if params["rate_limit"]:
        try:
            rate = size_bytes(params["rate_limit"])
        except ValueError as error:
            raise NatsFailure("invalid_option", f"rate_limit: {error}") from error
        if rate < _SLOWEST:
            raise NatsFailure("invalid_option", f"rate_limit: must be at least {_SLOWEST} bytes per second, not {rate}")
    finish = params.get("finish_timeout")
    return TransferPace(
        positive(params["idle_timeout"], "idle_timeout"),
        positive(finish, "finish_timeout") if finish is not None else TransferPace.finish,
        rate,
        params["consumers"],
    )
