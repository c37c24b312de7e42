# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as AWX runs them (awx/main/tasks/jobs.py, RunJob).

ansible-runner transmits a private data directory to a worker, which runs the playbook and sends back a stream of
events.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from support.clean_output import clean
from support.nats_processes import ROOT, collections_path

Event = dict[str, Any]


class _Unsafe(yaml.SafeDumper):
    """Writes strings as AWX writes survey answers: never as templates."""


_Unsafe.add_representer(str, lambda dumper, text: dumper.represent_scalar("!unsafe", text))


@dataclass
class Job:
    """The result of a job."""

    status: str = "unstarted"
    events: list[Event] = field(default_factory=list)

    @property
    def artifacts(self) -> dict[str, Any]:
        """Return the set_stats data, which AWX passes as variables to the next nodes of a workflow."""
        stats = [event["event_data"] for event in self.events if event["event"] == "playbook_on_stats"]
        return dict(stats[-1].get("artifact_data") or {}) if stats else {}

    @property
    def output(self) -> str:
        return clean("\n".join(event.get("stdout", "") for event in self.events))

    @property
    def failures(self) -> list[str]:
        return [
            event["event_data"]["res"].get("msg", "") for event in self.events if event["event"] == "runner_on_failed"
        ]


class Controller:
    """Launches job templates of playbooks/awx on an inventory.

    `credentials` are credential types with their inputs.
    With `pods` each job has its own host name, as in a container; this requires root.
    """

    def __init__(
        self,
        folder: Path,
        inventory: Mapping[str, Any],
        credentials: list[tuple[Event, dict[str, str]]],
        pods: bool = False,
    ) -> None:
        self.folder = folder
        self.inventory = inventory
        self.credentials = credentials
        self.pods = pods
        self.jobs = 0

    def read_inventory(self, source: str) -> dict[str, Any]:
        """Return the content of an inventory source of the project, read as AWX updates it."""
        data = self.folder / "update"
        (data / "env").mkdir(parents=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
            "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        }
        for kind, inputs in self.credentials:
            self._inject(data, data, {"env": {}, **kind["injectors"], "extra_vars": {}}, inputs, environment)
        project = ROOT / source
        command = ["ansible-inventory", "--list", "--export", "-i", str(project), "--playbook-dir", str(project.parent)]
        done = subprocess.run(command, env=environment, cwd="/", check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def launch(
        self,
        template: Event,
        answers: Mapping[str, Any] | None = None,
        limit: str = "",
        stop_at: Callable[[Event], bool] | None = None,
        **meta: Any,
    ) -> Job:
        """Run a job to its end, or cancel it at the first event that `stop_at` accepts."""
        self.jobs += 1
        data, worker = self.folder / f"awx_{self.jobs}", self.folder / f"runner_{self.jobs}"
        arguments, environment = self._private_data(data, worker, template, limit, dict(answers or {}), meta)
        (data / "env/cmdline").write_text(" ".join(arguments))
        (data / "env/settings").write_text(json.dumps({"suppress_ansible_output": True, "suppress_output_file": True}))
        parameters: dict[str, Any] = {"private_data_dir": str(data), "ident": self.jobs}
        sent = self.folder / f"sent_{self.jobs}"
        with sent.open("wb") as output:
            ansible_runner.interface.run(
                streamer="transmit",
                _output=output,
                playbook=template["playbook"],
                inventory=str(data / "inventory/hosts"),
                envvars=environment,
                suppress_env_files=True,
                fact_cache_type="",
                **parameters,
            )
        return self._run(sent, worker, parameters, stop_at)

    def _run(
        self, sent: Path, worker: Path, parameters: dict[str, Any], stop_at: Callable[[Event], bool] | None
    ) -> Job:
        job = Job()
        command = [str(Path(sys.executable).with_name("ansible-runner")), "worker", f"--private-data-dir={worker}"]
        pod = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"pod-{self.jobs}"] if self.pods else []
        with sent.open("rb") as stream:
            process = subprocess.Popen(
                [*pod, *command],
                stdin=stream,
                stdout=subprocess.PIPE,
                # These are the variables of an execution environment image, plus the variable that saves CPU time.
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"}
                | {name: value for name, value in os.environ.items() if name == "PYTHONPATH"},
                cwd="/",
                start_new_session=True,
            )

        stopping = False

        def handle(event: Event) -> bool:
            nonlocal stopping
            job.events.append(event)
            # Send the signal once: a second one that interrupts ansible-runner's handler deadlocks, because the handler
            # holds the lock.
            if stop_at is not None and not stopping and stop_at(event):
                stopping = True
                process.send_signal(signal.SIGTERM)
            return False

        def note(status: Event, runner_config: Any = None) -> None:
            job.status = status["status"]

        try:
            ansible_runner.interface.run(
                streamer="process",
                quiet=True,
                _input=process.stdout,
                event_handler=handle,
                status_handler=note,
                **parameters,
            )
        finally:
            process.wait(60)
        return job

    def _private_data(
        self, data: Path, worker: Path, template: Event, limit: str, answers: dict[str, Any], meta: dict[str, Any]
    ) -> tuple[list[str], dict[str, str]]:
        for name in ("inventory", "env"):
            (data / name).mkdir(parents=True)
        # Copy the repository without untracked files.
        shutil.copytree(ROOT / "playbooks", data / "project/playbooks")
        hosts = data / "inventory/hosts"
        hosts.write_text(f"#!/usr/bin/env python3\nprint({json.dumps(self.inventory)!r})\n")
        hosts.chmod(stat.S_IRWXU)
        self._extra_vars(data / "env/extravars", template, answers, meta)
        arguments = ["-u", "root"]
        arguments += ["--check"] if template["job_type"] == "check" else []
        arguments += ["--diff"] if template["diff_mode"] else []
        arguments += ["-l", limit] if limit else []
        environment = {
            "JOB_ID": str(self.jobs),
            "INVENTORY_ID": "1",
            "AWX_HOST": "https://awx.example.com",
            "AWX_PRIVATE_DATA_DIR": str(data),
            "MAX_EVENT_RES": "700000",
            "ANSIBLE_FORCE_COLOR": "True",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_COLLECTIONS_PATH": f"{worker}/requirements_collections:{collections_path()}",
        }
        for kind, inputs in self.credentials:
            arguments += self._inject(data, worker, kind["injectors"], inputs, environment)
        return arguments, environment

    def _extra_vars(self, target: Path, template: Event, answers: dict[str, Any], meta: dict[str, Any]) -> None:
        """Return the extra variables. Variables of the job template may be templates; survey answers, their defaults
        and AWX's own variables never are."""
        questions = template.get("survey_spec", {}).get("spec", [])
        unknown = set(answers) - {question["variable"] for question in questions}
        assert not unknown, f"AWX ignores {unknown}"
        # The web page sends an empty string for an unanswered question.
        blank = {question["variable"]: "" for question in questions if question["type"] == "text"}
        defaults = {question["variable"]: question["default"] for question in questions if "default" in question}
        told = {
            "awx_job_id": self.jobs,
            "awx_job_template_id": template["id"],
            "awx_job_template_name": template["name"],
            **meta,
        }
        rest = {**blank, **defaults, **answers, **told}
        target.write_text(yaml.safe_dump(template["extra_vars"]) + yaml.dump(rest, Dumper=_Unsafe))

    @staticmethod
    def _inject(
        data: Path, worker: Path, injectors: dict[str, Any], inputs: dict[str, str], environment: dict[str, str]
    ) -> list[str]:
        sandbox = ImmutableSandboxedEnvironment()
        files: dict[str, str] = {}
        names = {"tower": {"filename": files}, **{name: value for name, value in inputs.items() if value}}

        def render(node: Any) -> Any:
            if isinstance(node, dict):
                return {render(name): render(value) for name, value in node.items()}
            return (
                [render(item) for item in node] if isinstance(node, list) else sandbox.from_string(node).render(**names)
            )

        def keep(name: str, content: str) -> str:
            number = len(list((data / "env").iterdir()))
            target = data / f"env/tmp{number}{name}"
            target.write_text(content)
            target.chmod(0o600)
            return f"{worker}/env/{target.name}"

        for name, template in injectors.get("file", {}).items():
            files[name.partition(".")[2]] = keep(name.partition(".")[2], render(template))
        environment.update(render(injectors.get("env", {})))
        extra = render(injectors.get("extra_vars", {}))
        return ["-e", "@" + keep("extra", yaml.dump(extra, Dumper=_Unsafe))] if extra else []
