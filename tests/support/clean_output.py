# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that a playbook run printed no deprecation of Ansible and no warning about a host's Python."""

from __future__ import annotations

FORBIDDEN = ("[DEPRECATION WARNING]", "is using the discovered Python interpreter")


def clean(output: str) -> str:
    """Check the warnings in the output of ansible-playbook, and return the output."""
    # Up to ansible-core 2.18 a warning is wrapped like a paragraph.
    text = " ".join(output.split())
    found = [text[max(0, place - 100) : place + 1000] for one in FORBIDDEN if (place := text.find(one)) >= 0]
    assert not found, "\n\n".join(found)
    return output
