# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.html: one file with its content as JSON, a script that shows it, and the library of its charts. It loads nothing, and
nothing in it is run that the lake tells: names are text, in the JSON and in the page."""

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
    script, library = _part("page.js"), _part("uplot/uPlot.iife.min.js")
    filled = {
        "@LIBRARY_HASH@": _hash(library),
        "@SCRIPT_HASH@": _hash(script),
        "@LIBRARY_STYLE@": _part("uplot/uPlot.min.css"),
        "@STYLE@": _part("page.css"),
        "@TITLE@": html.escape(str(content["title"])),
        "@LIBRARY_LICENCE@": _part("uplot/LICENSE"),
        "@LIBRARY@": library,
        "@SCRIPT@": script,
        "@DATA@": as_json(content),
    }
    made = _part("page.html")
    # The data comes last: what it holds is not looked at again.
    for mark, text in filled.items():
        made = made.replace(mark, text)
    return made


def _part(name: str) -> str:
    return files("jetstream_insights.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash of a script as a Content-Security-Policy has it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
