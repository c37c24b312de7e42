# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the jobs of the insights like the entry point `run`, but without Ansible. The timer runs this program.

    python launch.pyz CONFIGURATION

The configuration is JSON: `command` and the additional `environment`. The command replaces this process, so systemd receives its
exit status (jetstream_insights/cli.py).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(path: str) -> None:
    configuration = json.loads(Path(path).read_text(encoding="utf-8"))
    command = configuration["command"]
    given = {name: value for name, value in configuration["environment"].items() if value}
    os.execve(command[0], command, {**os.environ, **given})


if __name__ == "__main__":
    main(sys.argv[1])
