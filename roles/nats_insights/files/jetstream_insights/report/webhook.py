# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Posting of a report's verdict and first steps to a webhook."""

from __future__ import annotations

import html
import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jetstream_insights.collection import module_util
from jetstream_insights.report.shape import FORMAT, Content, first_steps, step_title, verdict

#: Maximum seconds, name resolution included.
TIMEOUT = 10.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so the content is sent only to the configured address."""

    def redirect_request(self, *_request: Any, **_more: Any) -> None:
        return None


def summary(content: Content) -> dict[str, Any]:
    """Return the JSON object to post. Chat programs show `text`, a summary in words. Its `&`, `<` and `>` are escaped: a name or
    a line of a log must not mention a channel or link to a page."""
    said, counted = verdict(content), module_util("units").counted
    steps = [{key: row[key] for key in ("fleet", "severity", "title", "commands")} for row in first_steps(content)]
    counts = ", ".join(f"{said[severity]} {severity}" for severity in ("critical", "warning", "info"))
    lines = [f"{content['title']}, {content['day']}: {counts}; {counted(said['unknown'], 'unknown result')}"]
    for step in steps:
        lines += [f"{step['severity']}: {step_title(content, step)}", *(f"- {command}" for command in step["commands"])]
    made = {name: content[name] for name in ("title", "day", "generated")}
    return {
        "format": FORMAT,
        "text": html.escape("\n".join(lines), quote=False),
        **made,
        "verdict": said,
        "first_steps": steps,
    }


def post(file: Path, content: Content) -> str | None:
    """Post the summary to the address in a file; return the reason for a failure, None if it was accepted. The reason never
    contains the address, which often includes a secret."""
    try:
        address = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        return f"the file with the address cannot be read: {getattr(error, 'strerror', None) or 'no text'}"
    if urlsplit(address).scheme not in ("http", "https"):
        return "the file does not hold one address that begins with https:// or http://"
    body = json.dumps(summary(content), ensure_ascii=False).encode()
    problems: list[str | None] = []
    # Name resolution, and an answer that arrives byte by byte, have no timeout of their own.
    sender = threading.Thread(target=lambda: problems.append(_send(address, body)), daemon=True)
    sender.start()
    sender.join(TIMEOUT)
    return problems[0] if problems else f"no answer in {TIMEOUT:g} s"


def _send(address: str, body: bytes) -> str | None:
    try:
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT):
            return None
    except urllib.error.HTTPError as error:
        return f"the answer was {error.code} {error.reason}"
    except urllib.error.URLError as error:
        return f"no answer: {error.reason}"
    except Exception as error:
        return f"no answer: {type(error).__name__}"
