# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The failures of NATS and of connections, for rules and for clients. Pure."""

from __future__ import annotations

from ..screen import printable


class NatsFailure(Exception):
    """A failure of NATS or of the connection. `code` is stable and intended for programs, `description` for operators.
    `err_code` is the error number of the JetStream API (server/errors.json), if the server sent one. `reasons`: the
    failure of each server, if several were tried."""

    def __init__(
        self,
        code: str,
        description: str,
        *,
        subject: str | None = None,
        server: str | None = None,
        account: str | None = None,
        err_code: int | None = None,
        reasons: tuple[NatsFailure, ...] = (),
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.subject = subject
        self.server = server
        self.account = account
        self.err_code = err_code
        self.reasons = reasons

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the failure as the modules return it: code, description, subject, server, account, err_code."""
        return {
            "code": self.code,
            "description": printable(self.description),
            "subject": self.subject,
            "server": self.server,
            "account": self.account,
            "err_code": self.err_code,
        }


class MissingLibrary(Exception):
    """A Python library that this connection needs is not installed; `trace` is the traceback of the import."""

    def __init__(self, library: str, trace: str) -> None:
        super().__init__(library)
        self.library = library
        self.trace = trace
