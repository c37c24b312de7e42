# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of the event sources for ansible-rulebook: arguments, connection, events, and retries after
failures."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable, Mapping
from typing import Any, Callable

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils.module import CONNECTION_SPEC, resolve_connection, with_connection_rules
from ..module_utils.nats.client import ConnectionOptions, MissingLibrary, NatsFailure
from ..module_utils.waiting import positive

#: Arguments of every source.
SOURCE_SPEC: dict[str, dict[str, Any]] = {"feedback": {"type": "bool", "default": False}}
CONNECTED_SPEC: dict[str, dict[str, Any]] = {**SOURCE_SPEC, **CONNECTION_SPEC, "connection": {"type": "dict"}}

#: Options in seconds that must be greater than 0.
_POSITIVE = {"interval", "max_active"}

#: The argument in which ansible-rulebook passes the queue of event confirmations.
_CONFIRMATIONS = "eda_feedback_queue"

#: Failures that clear by themselves. After the first successful attempt, any other failure may come from a server that
#: is shutting down.
_TRANSIENT = ("unreachable", "timeout", "connection_lost", "no_responders", "bad_reply")

#: Seconds between two attempts, at first and at most.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

#: Maximum seconds until ansible-rulebook confirms an event.
CONFIRMED_WITHIN = 60.0


class ArgumentError(Exception):
    """An argument must be corrected before the source can work; the message contains the correction."""


def checked(arguments: Mapping[str, Any], spec: Mapping[str, Any], **rules: Any) -> dict[str, Any]:
    """Return a source's arguments with the defaults and types of an argument spec. Raises ArgumentError.

    Empty values count as not set, so a rulebook can pass on variables that are not set.
    """
    given = {name: value for name, value in _given(arguments).items() if name != _CONFIRMATIONS}
    unknown = sorted(set(given) - set(spec))
    if unknown:
        raise ArgumentError(f"{', '.join(unknown)}: unknown option; the options are {', '.join(sorted(spec))}")
    result = ArgumentSpecValidator(dict(spec), **rules).validate(given)
    if result.error_messages:
        raise ArgumentError("; ".join(result.error_messages))
    try:
        for name in _POSITIVE & set(spec):
            positive(result.validated_parameters[name], name)
    except NatsFailure as failure:
        raise ArgumentError(failure.description) from failure
    if result.validated_parameters["feedback"] and _CONFIRMATIONS not in arguments:
        raise ArgumentError(
            "feedback: this ansible-rulebook does not confirm events; use a newer release, or omit the option"
        )
    return dict(result.validated_parameters)


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value not in (None, "", [], {})}


def checked_with_connection(
    arguments: Mapping[str, Any], own: Mapping[str, Any], **rules: Any
) -> tuple[dict[str, Any], ConnectionOptions]:
    """Return a source's arguments and connection options. Raises ArgumentError.

    `connection` is a dictionary of connection options; the same options set directly take precedence.
    """
    connection = arguments.get("connection") or {}
    if not isinstance(connection, Mapping):
        raise ArgumentError(f"connection: must be a dictionary of options, not {type(connection).__name__}")
    unknown = sorted(set(connection) - set(CONNECTION_SPEC))
    if unknown:
        raise ArgumentError(
            f"connection: unknown option {', '.join(unknown)}; the options are {', '.join(sorted(CONNECTION_SPEC))}"
        )
    beside = {name: value for name, value in _given(arguments).items() if name != "connection"}
    params = checked({**connection, **beside}, {**CONNECTED_SPEC, **own}, **with_connection_rules(rules))
    try:
        return params, resolve_connection(params, os.environ)
    except NatsFailure as failure:
        raise ArgumentError(failure.description) from failure


class EventEmitter:
    """Puts events on the queue of ansible-rulebook and, with `feedback`, waits until each event has been processed by
    the rules."""

    def __init__(self, queue: Any, arguments: Mapping[str, Any]) -> None:
        self._queue = queue
        self._confirmations: asyncio.Queue[Any] | None = arguments.get(_CONFIRMATIONS)

    async def put(self, identity: str, content: Mapping[str, Any]) -> None:
        """Put an event with this content under the key `nats` on the queue; the same id always results in the same
        `meta.uuid`.

        Raises NatsFailure timeout if the event is not confirmed.
        """
        if self._confirmations is not None:
            while not self._confirmations.empty():  # a late confirmation of an event that has timed out
                self._confirmations.get_nowait()
        given = {name: value for name, value in content.items() if value is not None}
        unique = str(uuid.uuid5(uuid.NAMESPACE_URL, f"nats:{identity}"))
        await self._queue.put({"nats": {"id": identity, **given}, "meta": {"uuid": unique}})
        if self._confirmations is not None:
            try:
                await asyncio.wait_for(self._confirmations.get(), CONFIRMED_WITHIN)
            except asyncio.TimeoutError:
                reason = f"ansible-rulebook did not confirm event {identity} within {CONFIRMED_WITHIN:g} s"
                raise NatsFailure("timeout", reason) from None


async def keep_trying(logger: logging.Logger, attempt: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    """Run `attempt` repeatedly, with increasing pauses; `attempt` calls its argument whenever it succeeds.

    Raises ArgumentError for a problem that waiting cannot fix, unless an earlier attempt succeeded.
    """
    pause, worked, working = FIRST_PAUSE, False, False

    def connected() -> None:
        nonlocal pause, worked, working
        if not working:
            logger.log(logging.WARNING if worked else logging.INFO, "connected again" if worked else "connected")
        pause, worked, working = FIRST_PAUSE, True, True

    while True:
        try:
            await attempt(connected)
        except MissingLibrary as missing:
            raise ArgumentError(missing_library(missing)) from missing
        except NatsFailure as failure:
            if not worked and failure.code not in _TRANSIENT:
                raise ArgumentError(failure.description) from failure
            logger.warning("%s; trying again in %g s", failure.description, pause)
        working = False
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def missing_library(missing: MissingLibrary) -> str:
    """Return the remedy for a missing library."""
    return f"the Python library {missing.library} is missing: install it in the Python environment of ansible-rulebook"
