# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.html: one file with its content as JSON, and a script that shows it. It loads nothing, and nothing in it is run that
the lake tells: names are text, in the JSON and in the page."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

from jetstream_insights.report.shape import Content

#: What could end the script element, or is no character of a script before ES2019.
_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def as_json(content: Any) -> str:
    """Return content as JSON that may stand in a script element of a page."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE)


def page(content: Content) -> str:
    """Return the page of a report."""
    parts = files("jetstream_insights.report")
    script = parts.joinpath("page.js").read_text(encoding="utf-8")
    filled = {
        "@SCRIPT_HASH@": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "@STYLE@": parts.joinpath("page.css").read_text(encoding="utf-8"),
        "@TITLE@": html.escape(str(content["title"])),
        "@SCRIPT@": script,
        "@DATA@": as_json(content),
    }
    made = parts.joinpath("page.html").read_text(encoding="utf-8")
    # The data comes last: what it holds is not looked at again.
    for mark, text in filled.items():
        made = made.replace(mark, text)
    return made
