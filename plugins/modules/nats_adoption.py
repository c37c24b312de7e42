# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_adoption
short_description: Write the inventory of an existing cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Converts the data that M(natsops.jetstream.nats_server_host_info) read on each host into an inventory from which the
    roles deploy the same configuration, value by value, without a restart.
  - Writes C(inventory.yml), the variables of the group C(nats) and of each host, and C(vault.yml) files with the
    secrets. The C(vault.yml) files are readable only by their owner; encrypt them with C(ansible-vault).
  - Fails with all reasons, and writes nothing, if a server would be renamed, a store would be moved, or a
    configuration cannot be interpreted.
  - Existing files with different contents are overwritten only if O(force) is true.
  - Runs on the controller and does not connect to any server.
  - Only the roles of this collection need this module; its options may change in any release.
options:
  servers:
    description: >-
      The value of RV(natsops.jetstream.nats_server_host_info#module:adoption) for each host, by host name. The data
      contains passwords, so set C(no_log) for the task.
    type: dict
    required: true
  addresses:
    description: The address at which the other hosts reach each host, by host name. Defaults to the host name.
    type: dict
    default: {}
  path:
    description: Directory to write to.
    type: path
    required: true
  group:
    description:
      - The cluster's inventory group. With a group other than V(nats), several clusters can share one directory.
        C(inventory.yml) and C(report.txt) are then named after the group, and the group is a child of C(nats).
    type: str
    default: nats
  force:
    description: Overwrite files with different contents.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode, and returns the files that would be written.
    support: full
  diff_mode:
    description: The files contain secrets, so no diff is shown.
    support: none
seealso:
  - module: natsops.jetstream.nats_server_host_info
"""

EXAMPLES = r"""
- name: Write the inventory
  natsops.jetstream.nats_adoption:
    servers: >-
      {{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, ['found', 'adoption']))) }}
    path: "{{ playbook_dir }}/adopted"
  delegate_to: localhost
  run_once: true
  register: result
  no_log: true
"""

RETURN = r"""
lines:
  description: The report, which contains no secrets.
  type: list
  elements: str
  returned: when the cluster can be adopted
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: when the cluster can be adopted
  type: list
  elements: str
refusals:
  description: Why the cluster cannot be adopted.
  type: list
  elements: str
  returned: always
changed_paths:
  description: The files that were written or, in check mode, would be written, because their contents differed.
  type: list
  elements: str
  returned: when the cluster can be adopted
first_deploy:
  description: Effect of the first deployment on the server process of each host. C(action) is V(reload) or
    V(restart); C(reasons) lists the reasons for the action.
  type: dict
  returned: when the cluster can be adopted
  sample: {n1: {action: reload, reasons: []}}
"""

import os
import re
from pathlib import Path
from typing import Any

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

from ansible.module_utils.basic import missing_required_lib

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.files import Directory, FilesError, ManagedFile, replace_all
from ..module_utils.server_config.adoption import Adoption, Secret, adopt

#: The group of all servers.
ALL = "nats"
INVENTORY = "The hosts of the cluster. Use it together with the inventory that has their connection settings."
VARIABLES = "The current configuration, as read by nats_adoption. Every value is kept: see docs/adopt.md."
VAULT = "Secrets: encrypt this file with ansible-vault before you copy or commit it."


def content_text(values: dict[str, Any], title: str) -> bytes:
    """Return variables as YAML: references to the vault as templates, and all other text as literal text."""

    class Dumper(yaml.SafeDumper):
        """Writes vault references as tags and repeats equal values instead of using YAML aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def secret(dumper: Any, value: Secret) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", f"{{{{ {value} }}}}", style='"')

    def text(dumper: Any, value: str) -> Any:
        if "{{" in value or "{%" in value or "{#" in value:
            return dumper.represent_scalar("!unsafe", value, style='"')
        return yaml.SafeDumper.represent_str(dumper, value)

    Dumper.add_representer(Secret, secret)
    Dumper.add_representer(str, text)
    body = yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n# {title}\n{body}".encode("utf-8", "surrogateescape")


def report_name(group: str) -> str:
    """Return the name of the report's file."""
    return "report.txt" if group == ALL else f"{group}.txt"


def inventory_files(adoption: Adoption, root: str, group: str = ALL) -> list[ManagedFile]:
    """Return the files of the inventory. `group`: see DOCUMENTATION."""
    hosts: dict[str, Any] = {server.host: None for server in adoption.servers}
    members = {ALL: {"hosts": hosts} if group == ALL else {"children": {group: {"hosts": hosts}}}}
    own = {} if group == ALL else {"nats_server_cluster_group": group}
    found = [
        ("inventory.yml" if group == ALL else f"{group}.yml", members, INVENTORY),
        (f"group_vars/{group}/vars.yml", {**own, **adoption.group}, VARIABLES),
        (f"group_vars/{group}/vault.yml", adoption.group_vault, VAULT),
    ]
    for host in hosts:
        found.append((f"host_vars/{host}/vars.yml", adoption.hosts[host], VARIABLES))
        found.append((f"host_vars/{host}/vault.yml", adoption.host_vaults[host], VAULT))
    files = [
        ManagedFile(os.path.join(root, name), 0o600, content=content_text(values, title), secret=True)
        for name, values, title in found
        if values
    ]
    report = "".join(f"{line}\n" for line in adoption.page.lines).encode("utf-8", "surrogateescape")
    return [*files, ManagedFile(os.path.join(root, report_name(group)), 0o644, content=report)]


def write(module: CollectionModule, adoption: Adoption) -> list[str]:
    """Write the files that differ and return their paths. Raises FilesError."""
    root, group = module.params["path"], module.params["group"]
    files = [file for file in inventory_files(adoption, root, group) if file.differs()]
    report = os.path.join(root, report_name(group))
    edited = [file.path for file in files if os.path.exists(file.path) and file.path != report]
    if edited and not module.params["force"]:
        raise FilesError(
            f"{', '.join(edited)} would be overwritten: nothing was written. Use another directory, or set force to "
            "true"
        )
    if not module.check_mode:
        for folder in sorted({str(Path(file.path).parent) for file in files}):
            if not os.path.isdir(folder):
                Directory(folder, 0o700).make()
        replace_all(files)
    return [file.path for file in files]


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. A cluster that cannot be adopted ends the module with the reasons."""
    if not re.fullmatch(r"[a-zA-Z_]\w*", module.params["group"], re.ASCII):
        module.fail_json(
            msg=f"group: {module.params['group']} is not a name of an inventory group, which has letters, digits and _",
            refusals=[],
        )
    found = module.params["servers"]
    adoption = adopt(found, {host: str(module.params["addresses"].get(host, host)) for host in found})
    if adoption.refusals:
        module.fail_json(
            msg="The cluster cannot be adopted, and nothing was written:\n" + "\n".join(adoption.refusals),
            refusals=adoption.refusals,
        )
    try:
        changed = write(module, adoption)
    except (FilesError, OSError) as error:
        module.fail_json(msg=str(error), refusals=[])
    return {
        "changed": bool(changed),
        "changed_paths": changed,
        **adoption.page.as_dict(),
        "refusals": [],
        "first_deploy": {
            server.host: {"action": server.action, "reasons": server.reasons} for server in adoption.servers
        },
    }


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "servers": {"type": "dict", "required": True, "no_log": False},
            "addresses": {"type": "dict", "default": {}},
            "path": {"type": "path", "required": True},
            "group": {"type": "str", "default": ALL},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if yaml is None:
        module.fail_json(msg=missing_required_lib("PyYAML"))
    run(module, failing_on(), ensure)


if __name__ == "__main__":
    main()
