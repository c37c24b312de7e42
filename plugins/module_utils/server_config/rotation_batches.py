# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of a rotation, with everything that their tasks need. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..batch import Batch


@dataclass(frozen=True)
class RotationBatch:
    """A batch of a step of a rotation. After each batch, the tasks check routes, gateways and JetStream."""

    #: The name of the step.
    step: str
    #: The hosts that change at the same time.
    hosts: Sequence[str]
    #: The entry point of nats_server that these hosts run.
    entry_point: str
    #: The step of the certificates, an argument of the entry point; `keep` leaves the files unchanged.
    tls_step: str = "keep"
    #: Whether the controller first issues itself the client certificate of this step.
    issues_client_certificate: bool = False
    #: How long to wait before the batch.
    wait_seconds: int = 0
    #: The connections that the batch would close: `kind`, `user`, and `account` (empty if the query needs none).
    removed: Sequence[dict[str, str]] = ()
    #: Whether the batch changes the users that the hosts accept.
    checks_logins: bool = False

    def numbered(self, number: int, steps: int) -> Batch:
        """Return the batch of a plan that belongs to step `number`."""
        details = {**asdict(self), "removed": list(self.removed)}
        return Batch(
            title=f"step {number} of {steps}: {self.step} on {', '.join(self.hosts)}",
            hosts=details.pop("hosts"),
            details=details,
        )
