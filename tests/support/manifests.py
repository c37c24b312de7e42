# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes the manifest of a backup and seals it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import FILE, sealed_text


def change_manifest(folder: Path, **changes: Any) -> dict[str, Any]:
    """Change fields of a backup's manifest, seal it again, and return the previous manifest."""
    before = json.loads((folder / FILE).read_text())
    unsealed = {key: value for key, value in before.items() if key != "seal"}
    (folder / FILE).write_text(sealed_text({**unsealed, **changes}))
    return unsealed
