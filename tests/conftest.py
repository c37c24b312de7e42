# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes `import ansible_collections.natsops.jetstream…` find the collection under test.

The collection under test is in the first entry of ANSIBLE_COLLECTIONS_PATH: the installed artifact in `make test`. If
the variable is not set, it is the checkout itself, through the link in .cache/dev.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from _pytest.junitxml import xml_key

_CHECKOUT = Path(__file__).resolve().parent.parent
_COLLECTIONS = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep)[0] or str(_CHECKOUT / ".cache" / "dev")

if not os.path.isdir(os.path.join(_COLLECTIONS, "ansible_collections", "natsops", "jetstream")):
    raise RuntimeError(
        f"The collection is not in {_COLLECTIONS}: run the tests by `make`, or make the link by `make dev`."
    )

sys.path.insert(0, _COLLECTIONS)

# A failed assertion in a helper shows its values, like an assertion in a test.
pytest.register_assert_rewrite("support")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the number of tests into the JUnit file, so tools/run_parts.py can check whether all tests ran."""
    report = session.config.stash.get(xml_key, None)
    if report:
        report.add_global_property("collected", session.testscollected)
