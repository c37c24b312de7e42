# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of playbooks/awx as Ansible makes them of the definitions, without an AWX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nats_processes import ROOT, run_playbook

VARS = ROOT / "playbooks/awx/vars"
FILES = [str(VARS / f"{name}.yml") for name in ("settings", "surveys", "definitions", "objects")]
KINDS = (
    "credential_types",
    "execution_environments",
    "projects",
    "inventories",
    "inventory_sources",
    "job_templates",
    "workflow_job_templates",
    "workflow_job_template_nodes",
    "schedules",
    "approval",
)
#: What has surveys, and the definitions that name them.
OWNERS = {"job_templates": "templates", "workflow_job_templates": "workflows"}

Object = dict[str, Any]


def objects(folder: Path, **settings: Any) -> dict[str, list[Object]]:
    """Return the bodies by kind; job templates and workflows with their `survey` and an `id`."""
    found = folder / "objects.json"
    named = {
        kind: f"{{{{ dict(nats_awx__{kind} | map(attribute='name') | zip(range(10, 99))) }}}}" for kind in KINDS[1:4]
    }
    # What has the id 0 is not there yet, so that its survey is not looked for.
    for kind, source in OWNERS.items():
        named[kind] = (
            f"{{{{ dict(nats_awx__{source} | map(attribute='name') | map('regex_replace', '^', 'NATS ') | zip([0] * 99)) }}}}"
        )
    shown = {kind: f"{{{{ nats_awx__{kind} }}}}" for kind in KINDS}
    tasks: list[Object] = [
        {"ansible.builtin.set_fact": {"nats_awx__ids": {"organizations": {"Default": 1}, "credentials": {"sys": 2}}}}
    ]
    for kind, names in named.items():
        combined = f"{{{{ nats_awx__ids | combine({{'{kind}': names}}) }}}}"
        tasks.append({"ansible.builtin.set_fact": {"nats_awx__ids": combined}, "vars": {"names": names}})
    for kind, source in OWNERS.items():
        owners = {"nats_awx__owners": f"{{{{ nats_awx__{source} }}}}", "nats_awx__kind": kind, "nats_awx__found": []}
        tasks.append({"ansible.builtin.set_fact": {f"parts_{kind}": "{{ nats_awx__parts }}"}, "vars": owners})
        shown[f"parts_{kind}"] = f"{{{{ parts_{kind} }}}}"
    workflow = {"name": "rolling restart", "rolls": "restart"}
    written = {"dest": str(found), "content": "{{ shown | to_json }}", "mode": "0600"}
    tasks.append({"ansible.builtin.copy": written, "vars": {"nats_awx__workflow": workflow, "shown": shown}})
    playbook = folder / "objects.yml"
    playbook.write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars_files": FILES, "tasks": tasks}])
    )
    done = run_playbook(str(playbook), "-e", json.dumps({"nats_awx_image": "ee:1", **settings}))
    assert done.returncode == 0, done.stdout + done.stderr
    made: dict[str, Any] = json.loads(found.read_text())
    for kind in OWNERS:
        surveys = {part["what"]: part["body"] for part in made.pop(f"parts_{kind}")}
        for number, item in enumerate(made[kind]):
            item.update(id=number, survey=surveys.get(f"{item['name']}: survey", {}))
    return {kind: item if isinstance(item, list) else [item] for kind, item in made.items()}
