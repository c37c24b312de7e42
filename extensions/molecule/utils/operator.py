# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a new operator with the accounts SYS and APP to a folder: operator.json has the JWTs, sys.creds and app.creds
the credentials of a user of each account."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from support.credentials import make_operator

folder = Path(sys.argv[1])
folder.mkdir(mode=0o700)
operator = make_operator(folder, "APP")
written = {"jwt": operator.jwt, "system_account": operator.system_account, "accounts": operator.accounts}
(folder / "operator.json").write_text(json.dumps(written))
