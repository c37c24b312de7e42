# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The permission violations that a server reports on a connection. Pure.

A server sends them next to the replies: the denied request itself receives no reply (client.go pubPermissionViolation,
subPermissionViolation)."""

from __future__ import annotations

from collections.abc import Sequence

from .failures import NatsFailure

_VIOLATION, _SUBSCRIPTION = "permissions violation", 'subscription to "'


class Denials:
    """The permission violations of one connection. `count`: their number up to now, which callers pass as `since`."""

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[str, int] = {}

    def add(self, text: str) -> bool:
        """Record the server's message. Return whether it is a permission violation. nats-py writes it in lower case."""
        if _VIOLATION not in text.lower():
            return False
        self.count += 1
        self._last[text.lower()] = self.count
        return True

    def find(self, subjects: Sequence[str], since: int = 0) -> NatsFailure | None:
        """Return the failure for the first of these subjects that the server has denied after the first `since`
        violations, otherwise None."""
        for subject in subjects:
            quoted = f'"{subject.lower()}"'
            texts = [text for text, number in self._last.items() if number > since and quoted in text]
            if texts:
                action = "subscribe" if _SUBSCRIPTION in texts[-1] else "publish"
                return NatsFailure(
                    "permission", f"permission denied: the user may not {action} to {subject}", subject=subject
                )
        return None

    def inbox_denial(self, prefix: str, subject: str | None) -> NatsFailure | None:
        """Return the failure of a request whose replies cannot arrive, because the server has denied a subscription
        below the prefix of inboxes, otherwise None. `subject`: that of the request."""
        if not any(f"{_SUBSCRIPTION}{prefix.lower()}." in text for text in self._last):
            return None
        return NatsFailure(
            "permission",
            f"permission denied: the user may not subscribe to {prefix}.>, so it cannot receive the reply. Permit this "
            "subject, or set inbox_prefix to a permitted one",
            subject=subject,
        )
