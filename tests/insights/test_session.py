# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the JVM of a session is given."""

from __future__ import annotations

import os
import subprocess
import sys

ONE = "from jetstream_insights.session import session; session('local[1]', '512m', little=True); print('done')"
SUBMIT = "--conf spark.driver.extraJavaOptions=-XX:+PrintCodeCache pyspark-shell"


def test_what_the_jvm_says_is_not_among_the_results() -> None:
    """It tells at its end how full its cache of compiled code was, by the way that it warns of a full one."""
    own = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    done = subprocess.run(
        [sys.executable, "-c", ONE],
        capture_output=True,
        text=True,
        check=True,
        env={**own, "PYSPARK_SUBMIT_ARGS": SUBMIT},
    )
    assert done.stdout == "done\n"
    assert "CodeCache: size=245760Kb" in done.stderr
