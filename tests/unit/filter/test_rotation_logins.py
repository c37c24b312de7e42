# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests with which user a rotation of credentials logs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.natsops.jetstream.plugins.filter.nats_rotation_logins import nats_rotation_logins

NEW, OLD, OWN = (
    {"user": "sys2", "password": "new"},
    {"user": "sys", "password": "old"},
    {"user": "ops", "password": "own"},
)
RENEWED = {**OLD, "password": "new"}


def variables(
    api: Mapping[str, str | None], system: Mapping[str, str | None], previous: Mapping[str, str | None] | None = None
) -> dict[str, str | None]:
    """Return the role's variables; a variable that is not set is null."""
    users = {"api": api, "system": system, "system_previous": previous or {}}
    return {f"{name}_{key}": user.get(key) for name, user in users.items() for key in ("user", "password")}


def attempts(*servers: Sequence[bool]) -> list[dict[str, bool]]:
    """Return whether each server accepted each candidate."""
    return [{"accepted": accepted} for server in servers for accepted in server]


@pytest.mark.parametrize(
    ("given", "candidates"),
    [
        (variables(NEW, NEW, OLD), [NEW, OLD]),
        (variables(OWN, NEW, OLD), [OWN, NEW, OLD]),
        (variables(OLD, RENEWED), [OLD, RENEWED]),
        (variables({"user": "sys"}, {"user": "sys"}), []),
        (variables({}, NEW, {"password": "old"}), [NEW]),
    ],
)
def test_candidates_are_distinct_users_with_a_password(
    given: dict[str, str | None], candidates: list[dict[str, str]]
) -> None:
    assert nats_rotation_logins(given) == {"candidates": candidates, "login": {}}


@pytest.mark.parametrize(
    ("given", "tried", "login"),
    [
        (variables(NEW, NEW, OLD), attempts([True, True], [True, True]), NEW),
        # Before the new user is loaded, and while only one of the servers has it.
        (variables(NEW, NEW, OLD), attempts([False, True], [False, True]), OLD),
        (variables(NEW, NEW, OLD), attempts([True, True], [False, True]), OLD),
        (variables(NEW, NEW, OLD), attempts([True, False], [False, True]), {}),
        (variables(OWN, NEW, OLD), attempts([False, True, True]), NEW),
        # The passwords of one user are separate candidates.
        (variables(OLD, RENEWED), attempts([True, False], [True, False]), OLD),
        (variables(OLD, RENEWED), attempts([False, True], [False, True]), RENEWED),
    ],
)
def test_first_user_accepted_by_every_server_is_chosen(
    given: dict[str, str | None], tried: list[dict[str, bool]], login: dict[str, str]
) -> None:
    assert nats_rotation_logins(given, attempts=tried)["login"] == login


@pytest.mark.parametrize(
    ("given", "removed", "login"),
    [
        (variables(OLD, NEW, OLD), ["app", "sys"], NEW),
        (variables(OLD, NEW, OLD), ["app"], {}),
        (variables(NEW, NEW), ["sys"], {}),
        (variables(OWN, {"user": "sys2"}), ["ops"], {}),
    ],
)
def test_desired_user_replaces_a_removed_one(
    given: dict[str, str | None], removed: list[str], login: dict[str, str]
) -> None:
    assert nats_rotation_logins(given, removed=removed)["login"] == login


def test_unknown_variable_is_rejected() -> None:
    given: dict[str, Any] = {"api_token": "t"}
    with pytest.raises(AnsibleFilterError, match="api_token: unknown option"):
        nats_rotation_logins(given)
