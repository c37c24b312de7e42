# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests of a configuration with `nats-server -t`, which also opens the TLS files that it names."""

from __future__ import annotations

import json
import re
from typing import Any, Callable


def run_trial(
    run_command: Callable[..., tuple[int, str, str]],
    binary: str,
    config: str,
    environment: dict[str, str],
    directory: str | None = None,
) -> tuple[bool, str]:
    """Return whether the executable accepts the configuration file, and its output. Raises OSError if it cannot be run."""
    command = [binary, "-t", "-c", config]
    status, out, err = run_command(command, handle_exceptions=False, environ_update=environment, cwd=directory)
    return not status, (err + out).strip()


def reported_digest(output: str) -> str:
    """Return the digest of the tested configuration; empty before nats-server 2.11, which does not print it."""
    digest = re.search(r"sha256:[0-9a-f]{64}", output)
    return digest.group(0) if digest else ""


def trial_environment(text: str | None, option: str) -> dict[str, str]:
    """Return the environment variables of a JSON object. Raises ValueError, which does not quote them, if they are
    invalid."""
    try:
        found: Any = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{option} is not a JSON object")
    for name in found:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{option}: {name!r} is not a variable name")
    return {name: str(value) for name, value in found.items()}
