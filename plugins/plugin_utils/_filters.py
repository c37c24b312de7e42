# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the filters share: problems with a configuration become Ansible's own kind of error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ansible.errors import AnsibleFilterError

Function = TypeVar("Function", bound=Callable[..., Any])


def reports_problems(function: Function) -> Function:
    """The function, raising AnsibleFilterError with the filter's name where it raised ValueError."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            raise AnsibleFilterError(f"natsops.jetstream.{function.__name__}: {error}") from error

    return wrapper  # type: ignore[return-value]
