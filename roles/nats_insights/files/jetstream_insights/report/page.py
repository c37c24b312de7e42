# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.html: one file with its content, a script that shows it, and the library of its charts. It loads no
resources and runs no content of the lake: names are text in the page, and packed data in the file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from importlib.resources import files

from jetstream_insights.report.shape import BY_NAME, HYGIENE, Content


def packed(content: Content) -> str:
    """Return the content in the form of the page: JSON with the first rows of each table, compressed with gzip, in Base64."""
    tables = {
        name: {
            **table,
            "rows": table["rows"][: BY_NAME[name].most],
            "beyond": f"{name}.csv" if BY_NAME[name].whole else "the lake",
        }
        for name, table in content["tables"].items()
    }
    shown = {**content, "tables": tables, "hygiene": sorted(HYGIENE)}
    text = json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


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
        "@DATA@": packed(content),
    }
    made = _part("page.html")
    # Insert the data last, so its content is not scanned for placeholders.
    for mark, text in filled.items():
        made = made.replace(mark, text)
    return made


def _part(name: str) -> str:
    return files("jetstream_insights.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash of a script in the form of a Content-Security-Policy."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
