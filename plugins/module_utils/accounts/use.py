# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections and streams of accounts, which changes of their claims would affect. Pure.

A file of its own, because every module that connects imports the reader of the claims, but not the plans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LiveConnection:
    """A connection of an account. `user`: its public key. `issuer`: the key that signed its JWT. `issued_at` and `is_bearer`
    are None if the server hides the JWT (bearer JWTs since 2.14)."""

    account: str
    is_leaf: bool
    user: str
    issuer: str
    issued_at: int | None
    is_bearer: bool | None


@dataclass(frozen=True)
class AccountStream:
    """A stream of an account. `size`: bytes of one replica. `consumers`: their number."""

    account: str
    name: str
    replicas: int
    is_memory: bool
    size: int
    consumers: int


@dataclass(frozen=True)
class AccountUse:
    """The current use of the accounts. `unknown`: servers that did not report it, so the costs are lower bounds."""

    connections: tuple[LiveConnection, ...]
    streams: tuple[AccountStream, ...]
    unknown: tuple[str, ...] = ()
