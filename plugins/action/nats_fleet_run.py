# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a playbook for each cluster of the inventory, with the options of this run."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.fleet.clusters import (
    BECOME,
    CONNECTION,
    FleetCluster,
    answered,
    cluster_command,
    fleet_clusters,
    fleet_page,
    limit_refusal,
    prompts,
    refusal,
    vault_password,
)
from ..module_utils.fleet.run_fleet import password_files, run_fleet
from ..module_utils.health.problem_file import problem_folder
from ..module_utils.screen import cut
from ..module_utils.units import human_seconds

ARGUMENTS: dict[str, dict[str, Any]] = {
    "playbook": {"type": "str", "required": True},
    "clusters": {"type": "list", "elements": "str", "default": []},
    "hosts": {"type": "list", "elements": "str", "required": True},
    "parallel": {"type": "int", "default": 4},
    "stop_after": {"type": "int", "default": 0},
    "directory": {"type": "path"},
}
VARIABLES = ("nats_server_cluster_group", "nats_server_supercluster_groups")


class ActionModule(ActionBase):
    """See modules/nats_fleet_run.py."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the outcomes, after a line of progress for each."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(ARGUMENTS)
        if options["parallel"] < 1:
            raise AnsibleActionFail(f"parallel: {options['parallel']} must be at least 1")
        if limited := limit_refusal(context.CLIARGS):
            raise AnsibleActionFail(limited)
        variables = (task_vars or {})["hostvars"]
        name = os.path.splitext(os.path.basename(options["playbook"]))[0]

        def log(cluster: FleetCluster) -> str:
            return os.path.join(problem_folder(options["directory"]), f"fleet-{name}-{cluster.name}.txt")

        outcomes = []
        with tempfile.TemporaryDirectory(prefix="natsops-fleet-") as folder:
            try:
                clusters = fleet_clusters(
                    {host: {name: variables[host].get(name) for name in VARIABLES} for host in options["hosts"]},
                    options["clusters"],
                )
                command = answered(sys.argv, password_files(self._passwords(), folder))
                commands = {cluster: self._command(command, cluster, options["playbook"]) for cluster in clusters}
            except ValueError as error:
                raise AnsibleActionFail(str(error)) from error
            for one in run_fleet(clusters, commands.__getitem__, log, options["parallel"], options["stop_after"]):
                outcomes.append(one)
                after = f" after {human_seconds(one.seconds)}" if one.log else ""
                text = f"{len(outcomes)} of {len(clusters)}: {one.cluster.name} {one.status}{after}"
                Display().display(cut(f"{text}: {one.cause}" if one.cause else text))
        outcomes.sort(key=lambda one: clusters.index(one.cluster))
        return {
            **result,
            "changed": any(one.changed for one in outcomes),
            "clusters": [
                {
                    "cluster": one.cluster.name,
                    "status": one.status,
                    "seconds": round(one.seconds, 1),
                    "hosts": list(one.cluster.hosts),
                    "changed": one.changed,
                    "cause": one.cause,
                    "log": one.log,
                }
                for one in outcomes
            ],
            "refusal": refusal(outcomes),
            **fleet_page(outcomes, name).as_dict(),
        }

    @staticmethod
    def _command(command: Sequence[str], cluster: FleetCluster, playbook: str) -> list[str]:
        return [sys.executable, *cluster_command(command, context.CLIARGS["args"][0], playbook, cluster)]

    def _passwords(self) -> dict[str, str]:
        """Return the passwords for which this run has prompted. Raises ValueError if one is empty."""
        known = {CONNECTION: self._play_context.password, BECOME: self._play_context.become_pass}
        for identity, secret in self._loader._vault.secrets or ():
            known[vault_password(identity)] = secret.bytes.decode()
        asked = {password: known.get(password) or "" for password in prompts(context.CLIARGS)}
        if empty := [password for password, value in asked.items() if not value]:
            raise ValueError(f"the password is empty: {', '.join(empty)}")
        return asked
