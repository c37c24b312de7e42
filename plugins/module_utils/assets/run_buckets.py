# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes key-value and object buckets to a desired state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ..nats.client import NatsFailure
from ..nats.jetstream_api import JetStreamApi
from . import config as rules
from .buckets import require_bucket
from .config import OptionError
from .run_purge import ensure_purged
from .state import RunOptions, StreamAsset, desired_config, ensure_absent, ensure_present, require_known


def ensure_bucket(
    api: JetStreamApi,
    params: Mapping[str, Any],
    check_mode: bool,
    *,
    fields: Iterable[rules.ConfigKey],
    stream: str,
    label: str,
    make_desired: Callable[[rules.Config], dict[str, Any]],
    make_defaults: Callable[[rules.Config], dict[str, Any]],
    fits: Callable[[rules.Config], bool],
    select: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Return the result of a bucket's module. The arguments map the bucket and its options to its stream."""
    run_options = RunOptions.of(params, check_mode)
    given = desired_config(fields, params)
    try:
        require_bucket(params["bucket"])
        desired, selection = make_desired(given), select()
    except OptionError as problem:
        raise NatsFailure("invalid_option", str(problem)) from problem
    asset = StreamAsset(api, stream, label, make_defaults(desired), fits)
    if params["state"] == "absent":
        return ensure_absent(asset, desired, run_options)
    if params["state"] == "purged":
        return ensure_purged(asset, selection, desired, run_options)
    require_known(asset, fields, given)
    return ensure_present(asset, desired, run_options)
