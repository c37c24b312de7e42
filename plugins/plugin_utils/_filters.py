# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of the filters: configuration errors are converted to Ansible's errors, and arguments to their
types."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean

Options = TypeVar("Options")
Function = TypeVar("Function", bound=Callable[..., Any])


def reports_problems(function: Function) -> Function:
    """Return a function that raises AnsibleFilterError with the name of the filter instead of ValueError."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            raise AnsibleFilterError(f"natsops.jetstream.{function.__name__}: {error}") from error

    return wrapper  # type: ignore[return-value]


def typed(options: type[Options], given: Mapping[str, Any]) -> Options:
    """Return a dataclass of strings, booleans and lists of strings, converted from the types that Jinja returned. None
    selects the default.

    Raises ValueError for an unknown name.
    """
    fields = {field.name: field for field in dataclasses.fields(options)}  # type: ignore[arg-type]
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: unknown option; the options are {', '.join(sorted(fields))}")
    return options(
        **{name: _as_type(fields[name].default, value) for name, value in given.items() if value is not None}
    )


def _as_type(default: Any, value: Any) -> Any:
    if isinstance(default, bool):
        return boolean(value)
    return [str(item) for item in value] if isinstance(default, tuple) else str(value)
