# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The AnsibleModule of all modules of the collection."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from .screen import printable


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
