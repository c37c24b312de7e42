# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the pictures in docs/images from a running demo: `make demo`, then ``pictures.py .demo/cluster``.

report.svg and plan.svg show the report and a planned restart in a terminal; insights*.png are tabs of the insights'
report.html in a browser, at 1,280 and 1,440 pixels. Nothing on the servers is changed. ``pictures.py REPORT.html``
makes only the pictures of a report; ``pictures.py REPORT.html FOLDER`` makes pictures of all its tabs, at both widths,
light and dark, in a folder.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

CHECKOUT = Path(__file__).resolve().parent.parent
IMAGES = CHECKOUT / "docs" / "images"
WIDTH = 154
LARGEST = 300_000
#: The tabs of report.html, and the widths at which it must show everything.
TABS = ("now", "hygiene", "capacity", "assets", "history")
WIDTHS = (1280, 1440)

#: The hosts of the demo, as an inventory file that an operator would have.
INVENTORY = """
- import_playbook: natsops.jetstream.demo_servers
- hosts: localhost
  gather_facts: false
  tasks:
    - copy:
        dest: "{{ demo_dir }}/inventory.json"
        mode: "0600"
        content: "{{ {'nats': {'hosts': dict(groups['nats'] | zip(described))}} | to_json }}"
      no_log: true
      vars:
        shown: "nats_server_|ansible_(connection|host|python_interpreter)$"
        described: >-
          {{ groups['nats'] | map('extract', hostvars) | map('dict2items') | map('selectattr', 'key', 'match', shown)
             | map('items2dict') }}
"""


def playbook(*arguments: str) -> str:
    """Return the output of ansible-playbook; raise CalledProcessError if it failed."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT).stdout


def plan(demo: Path) -> str:
    """Return the plan of a restart of all servers, line by line."""
    with tempfile.TemporaryDirectory() as folder:
        play = Path(folder, "inventory.yml")
        play.write_text(INVENTORY)
        playbook(str(play), "-e", f"demo_dir={demo}", "-e", "demo_topology=cluster")
    output = playbook("natsops.jetstream.restart", "-i", str(demo / "inventory.json"), "--check")
    (demo / "inventory.json").unlink()
    shown = re.search(r"TASK \[[^\]]*Show the plan\] \*+\n.*?=> (\{.*?\n\})", output, re.DOTALL)
    if shown is None:
        raise SystemExit(f"no plan was shown:\n{output}")
    lines: list[str] = json.loads(shown[1])["msg"]
    return "\n".join(lines)


def terminal(name: str, command: str, text: str) -> None:
    """Write the picture of a terminal in which this command printed this text."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ " + command, style="bold green"))
    colours = {
        "red": r"\b(CRITICAL|BROKEN|critical|error)\b",
        "yellow": r"\b(WARNING|warning)\b",
        "cyan": r"\bn\d-c1\b",
    }
    shown = Text(text.rstrip())
    for colour, pattern in colours.items():
        shown.highlight_regex(pattern, colour)
    console.print(shown)
    console.save_svg(str(IMAGES / name), title="natsops.jetstream", theme=MONOKAI, unique_id=Path(name).stem)


def browser(
    page: Path, image: Path, tab: str = "now", width: int = 1280, height: int = 1000, dark: bool = False
) -> None:
    """Write the picture of the top of a tab."""
    chromium = subprocess.check_output([str(CHECKOUT / "tools/chromium.sh")], text=True).strip()
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options += [f"--user-data-dir={profile}", "--virtual-time-budget=5000"]
        options += ["--blink-settings=preferredColorScheme=0"] if dark else []
        options += [f"--window-size={width},{height}", f"--screenshot={image}"]
        address = f"{page.resolve().as_uri()}#tab/{tab}"
        subprocess.run([chromium, *options, address], check=True, stderr=subprocess.DEVNULL)


def every_tab(page: Path, folder: Path) -> None:
    """Write the pictures of all tabs of a report, for a review before it is published."""
    folder.mkdir(parents=True, exist_ok=True)
    for tab in TABS:
        for width in WIDTHS:
            browser(page, folder / f"{tab}-{width}.png", tab, width, 1400)
    browser(page, folder / "now-dark.png", "now", WIDTHS[0], 1400, dark=True)


def published(page: Path) -> None:
    """Write the pictures of a report that the documents show."""
    browser(page, IMAGES / "insights.png")
    browser(page, IMAGES / "insights-dark.png", width=1440, dark=True)


def main(demo: Path) -> int:
    """Write the pictures; return 1 if one of them is too large for a repository."""
    IMAGES.mkdir(exist_ok=True)
    report = (demo / "report.txt").read_text().partition("\nThe cluster keeps running")[0]
    terminal("report.svg", "make demo", report)
    terminal("plan.svg", "ansible-playbook natsops.jetstream.restart -i inventory.yml --check", plan(demo))
    published(demo / "insights/fetched/report.html")
    large = [image.name for image in IMAGES.iterdir() if image.stat().st_size > LARGEST]
    if large:
        print(f"More than {LARGEST} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    given = Path(sys.argv[1]).resolve()
    if given.suffix == ".html" and len(sys.argv) > 2:
        every_tab(given, Path(sys.argv[2]))
    elif given.suffix == ".html":
        published(given)
    else:
        sys.exit(main(given))
