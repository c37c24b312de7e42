# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The credential types and job templates of playbooks/awx as Ansible would pass them to awx.awx, rendered without an
AWX server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.nats_processes import ROOT, run_playbook

VARS = [str(ROOT / f"playbooks/awx/vars/{name}.yml") for name in ("settings", "objects")]
TEMPLATES = "nats_awx__template_objects.templates"
SHOWN = {
    "credential_types": "{{ nats_awx__credential_types }}",
    "job_templates": f"{{{{ [nats_awx__job_template] | product({TEMPLATES}) | map('combine', recursive=true) }}}}",
}

Object = dict[str, Any]


def objects(folder: Path, **settings: Any) -> dict[str, list[Object]]:
    """Return the objects by kind; job templates have an `id`, as in AWX. Fail if an omitted setting is written."""
    found, playbook = folder / "objects.json", folder / "objects.yml"
    written = {"dest": str(found), "content": "{{ shown | to_json }}", "mode": "0600"}
    task = {"ansible.builtin.copy": written, "vars": {"shown": SHOWN}}
    playbook.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars_files": VARS, "tasks": [task]}])
    )
    # Without notifications, an option would be omitted.
    done = run_playbook(str(playbook), "-e", json.dumps({"nats_awx_notifications": [{"name": "on call"}], **settings}))
    assert done.returncode == 0, done.stdout + done.stderr
    made: dict[str, list[Object]] = json.loads(found.read_text())
    for number, template in enumerate(made["job_templates"]):
        template["id"] = number
    return made
