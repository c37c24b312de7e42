# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The AnsibleModule of all modules of the collection, and the function that runs them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Callable, TypeVar

from ansible.module_utils.basic import AnsibleModule

from .screen import printable

M = TypeVar("M", bound=AnsibleModule)
T = TypeVar("T")


class CollectionModule(AnsibleModule):
    """An AnsibleModule that masks secrets in any form, and removes control characters from warnings, because names of
    streams may contain them."""

    def _log_invocation(self) -> None:
        # Ansible logs lists and dictionaries in Python's notation, which escapes line breaks, quotes and backslashes,
        # and searches this text for secrets as they are: the content of a file, for example, would never be found.
        self.no_log_values |= {repr(secret)[1:-1] for secret in self.no_log_values}
        super()._log_invocation()

    def warn(self, warning: str, **options: Any) -> None:
        super().warn(printable(warning), **options)


def run(module: M, frame: Callable[[M], AbstractContextManager[T]], work: Callable[[T], dict[str, Any]]) -> None:
    """Do the module's work in its frame, and exit with its result. The frame supplies the input of the work, and ends
    the module if the work fails: `failing_on`, or a frame of module_utils/module.py for NATS."""
    with frame(module) as given:
        result = work(given)
    module.exit_json(**result)


def failing_on(
    *errors: type[Exception], message: Callable[[Any], str] = str
) -> Callable[[M], AbstractContextManager[M]]:
    """Return the frame for work that needs only the module. These errors end the module with the message."""

    @contextlib.contextmanager
    def frame(module: M) -> Iterator[M]:
        try:
            yield module
        except errors as error:
            module.fail_json(msg=message(error))

    return frame
