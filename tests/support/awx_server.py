# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of AWX that playbooks/awx/configure.yml uses through awx.awx: its REST API over a store in memory.

Each body is checked against the fields of awx_api.json and AWX's rules for surveys and credential types. Input that AWX
would ignore, such as an unknown field, is refused too, except for fields that the modules of awx.awx always send.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

KINDS: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("awx_api.json").read_text())["kinds"]
TYPES: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "id": (int, type(None)), "json": (str, dict)}
ANSWERS = {
    "text": str,
    "textarea": str,
    "password": str,
    "multiplechoice": str,
    "multiselect": str,
    "integer": int,
    "float": float,
}
QUESTION = {"question_name", "question_description", "variable", "type", "required", "default", "choices", "min", "max"}
#: Lists of other objects that an object is linked to.
LINKS = {
    "job_templates": {
        "credentials": "credentials",
        "labels": "labels",
        "notification_templates_error": "notification_templates",
    },
    "workflow_job_templates": {
        "labels": "labels",
        "notification_templates_error": "notification_templates",
        "notification_templates_approvals": "notification_templates",
    },
    "roles": {"teams": "teams"},
    "workflow_job_template_nodes": dict.fromkeys(("success_nodes", "failure_nodes"), "workflow_job_template_nodes"),
}
#: The roles of an object that teams may have.
ROLES = {
    "job_templates": ("admin", "execute", "read"),
    "workflow_job_templates": ("admin", "execute", "read", "approval"),
}
#: The settings of a notification that have no default, by type.
NOTIFICATION_SETTINGS = {
    "webhook": ("url", "headers"),
    "slack": ("token", "channels"),
    "email": ("host", "port", "username", "password", "use_tls", "use_ssl", "sender", "recipients"),
}
#: AWX's name for an object of a kind, if it is not the singular of the kind.
TYPE = {"inventories": "inventory"}
#: Fields that the modules send and AWX ignores.
IGNORED = {
    "credential_types": "managed",
    "inventories": "host_filter",
    "job_templates": "organization",
    "workflow_job_template_nodes": "type",
}
UNIFIED = ("projects", "inventory_sources", "job_templates", "workflow_job_templates")
TOKEN = "awx-token-1"
USER, PASSWORD = "admin", "awx-password-1"
BEARER, BASIC = f"Bearer {TOKEN}", "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

Object = dict[str, Any]


class Refused(Exception):
    """The HTTP status and the body of an error response."""

    def __init__(self, status: int, **body: Any) -> None:
        super().__init__(body)
        self.status, self.body = status, body


def check_fields(kind: str, body: Object, new: bool) -> None:
    """Raise Refused if AWX does not have one of the fields, or does not accept its value."""
    fields = KINDS[kind]
    for name, value in body.items():
        field = fields.get(name)
        if field is None:
            raise Refused(400, **{name: "there is no such field"})
        if not isinstance(value, TYPES[field["type"]]) or (isinstance(value, bool) and field["type"] != "boolean"):
            raise Refused(400, **{name: f"{field['type']} expected, not {value!r}"})
        if value not in field.get("choices", [value]) or len(str(value)) > field.get("max_length", 10**6):
            raise Refused(400, **{name: f"{value!r} is not a valid choice"})
    for name, field in fields.items():
        if new and field.get("required") and name not in body:
            raise Refused(400, **{name: "this field is required"})


def check_survey(survey: Object) -> None:
    """Raise Refused if AWX would not accept this survey."""
    if set(survey) != {"name", "description", "spec"} or not survey["spec"]:
        raise Refused(400, error="name, description and a spec with questions expected")
    variables = [question["variable"] for question in survey["spec"]]
    for question in survey["spec"]:
        kind = ANSWERS.get(question["type"])
        choices = question.get("choices", [])
        if not {"type", "question_name", "variable", "required"} <= set(question) <= QUESTION or kind is None:
            raise Refused(400, error=f"not a question: {question}")
        if not isinstance(question["required"], bool) or (
            ("choices" in question) != (question["type"].startswith("multi"))
        ):
            raise Refused(400, error=f"required is a boolean, and only choices have choices: {question}")
        default = question.get("default")
        if default is not None and (
            not isinstance(default, kind) or isinstance(default, bool) or (choices and default not in choices)
        ):
            raise Refused(400, error=f"no answer: {default!r} to {question}")
        if variables.count(question["variable"]) > 1 or not all(isinstance(choice, str) for choice in choices):
            raise Refused(400, error=f"duplicate variable, or choices that are not texts: {question}")


def check_credential_type(body: Object) -> None:
    """Raise Refused for inputs and injectors that AWX does not accept."""
    inputs, injectors = body.get("inputs", {}), body.get("injectors", {})
    allowed = {"id", "label", "type", "help_text", "multiline", "secret", "format", "choices", "default"}
    for field in inputs.get("fields", ()):
        if not {"id", "label", "type"} <= set(field) <= allowed or not re.fullmatch(r"[a-zA-Z_]\w*", field["id"]):
            raise Refused(400, inputs=f"not an input: {field}")
    if not set(inputs) <= {"fields", "required"} or not set(injectors) <= {"file", "env", "extra_vars"}:
        raise Refused(400, injectors="only file, env and extra_vars")
    if not all(re.fullmatch(r"template(\.[a-zA-Z_]\w*)?", name) for name in injectors.get("file", {})):
        raise Refused(400, injectors="not the name of a file")
    if any(not re.fullmatch(r"[a-zA-Z_]\w*", name) or name.startswith("ANSIBLE_") for name in injectors.get("env", {})):
        raise Refused(400, injectors="not a variable of the environment")
    check_variables(injectors.get("extra_vars", {}))
    check_templates([field["id"] for field in inputs.get("fields", ())], injectors)


def check_variables(variables: Object) -> None:
    """Raise Refused for names of variables that AWX does not accept. AWX does not check those within lists."""
    for name, value in variables.items():
        if not re.fullmatch(r"[a-zA-Z_{}]+[a-zA-Z0-9_{}]*", name) or not isinstance(value, (str, list, dict)):
            raise Refused(400, injectors=f"not a variable: {name}")
        if isinstance(value, dict):
            check_variables(value)


def check_templates(fields: list[str], injectors: Object) -> None:
    """Raise Refused if a template of the injectors uses a field or a file that does not exist."""
    files = injectors.get("file", {})
    if "template" in files and len(files) > 1:
        raise Refused(400, injectors="must use the syntax for several files")
    names = SimpleNamespace(**{name.partition(".")[2]: "/file" for name in files if "." in name})
    tower = SimpleNamespace(filename="/file" if "template" in files else names)
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    for text in texts_in(injectors):
        try:
            environment.from_string(text).render(tower=tower, **dict.fromkeys(fields, "EXAMPLE"))
        except TemplateError as error:
            raise Refused(400, injectors=f"{text}: {error}") from error


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts_in(part)


class AwxServer:
    """The store and its rules. `playbooks`: files of the fetched project. Without playbooks, fetching the project
    fails."""

    def __init__(self, playbooks: list[str]) -> None:
        self.playbooks = playbooks
        self.store: dict[str, list[Object]] = {kind: [] for kind in (*KINDS, "credentials", "tokens", "roles")}
        #: Method and path of each request that changes something.
        self.written: list[str] = []
        self.url = ""
        self._lock = threading.Lock()
        self.add("organizations", {"name": "Default"})

    def add(self, kind: str, body: Object) -> Object:
        """Put an object into the store, as if a user had created it."""
        number = 1 + sum(map(len, self.store.values()))
        url = f"/api/v2/{kind}/{number}/"
        made: Object = {
            "id": number,
            "url": url,
            "type": TYPE.get(kind, kind[:-1]),
            "related": {},
            "summary_fields": {},
            **body,
        }
        made.update({link: [] for link in LINKS.get(kind, ())})
        if "survey_enabled" in KINDS.get(kind, ()):
            made.update(related={"survey_spec": url + "survey_spec/"}, survey={})
        self.store[kind].append(made)
        roles = {f"{name}_role": self.add("roles", {"name": name}) for name in ROLES.get(kind, ())}
        made["summary_fields"] = {**made["summary_fields"], "object_roles": roles} if roles else made["summary_fields"]
        return made

    def named(self, kind: str, name: str) -> Object:
        return next(item for item in self.store[kind] if item.get("name") == name)

    def find(self, kind: str, number: int) -> Object:
        for item in self.store.get(kind, ()):
            if item["id"] == number:
                return item
        raise Refused(404, detail="Not found.")

    def answer(self, method: str, target: str, body: Object) -> tuple[int, Any]:
        """Return the status and the body of the response to a request below /api/v2/."""
        url = urlsplit(target)
        kind, *rest = url.path.strip("/").split("/")
        with self._lock:
            if kind == "tokens":
                return (201, {"id": 1, "token": TOKEN}) if method == "POST" else (204, None)
            if method != "GET":
                self.written.append(f"{method} {url.path}")
            if kind == "project_updates":
                return 200, {"status": "successful" if self.playbooks else "failed"}
            if not rest and method == "POST":
                return 201, self._create(kind, body)
            if not rest:
                return 200, self._list(
                    UNIFIED if kind == "unified_job_templates" else (kind,), dict(parse_qsl(url.query))
                )
            item = self.find(kind, int(rest[0]))
            if len(rest) > 1:
                return self._part(method, kind, item, rest[1], body)
            if method == "PATCH":
                item.update(self._checked(kind, body, new=False))
            return 200, item

    def _list(self, kinds: Sequence[str], query: dict[str, str]) -> Object:
        if not set(kinds) <= set(self.store):
            raise Refused(404, detail="Not found.")
        found = [item for kind in kinds for item in self.store[kind]]
        for name, value in query.items():
            field, _sep, operator = name.partition("__")
            wanted = value.split(",") if operator == "in" else [value]
            if operator == "name":
                found = [item for item in found if self.find(f"{field}s", item[field])["name"] in wanted]
            else:
                found = [item for item in found if str(item.get(field)) in wanted]
        return {"count": len(found), "next": None, "results": found}

    def _checked(self, kind: str, sent: Object, new: bool) -> Object:
        body = {name: value for name, value in sent.items() if name != IGNORED.get(kind)}
        check_fields(kind, body, new)
        if kind == "credential_types":
            check_credential_type(body)
        if kind == "notification_templates":
            missing = {*NOTIFICATION_SETTINGS[body["notification_type"]]} - {*body["notification_configuration"]}
            if missing:
                raise Refused(400, notification_configuration=f"Missing required fields: {sorted(missing)}.")
        if kind == "job_templates" and new and body["playbook"] not in self.playbooks:
            raise Refused(400, playbook=["Playbook not found for project."])
        if kind == "schedules" and not re.fullmatch(r"DTSTART:\d{8}T\d{6}Z RRULE:.*INTERVAL=\d+.*", body["rrule"]):
            raise Refused(400, rrule=["INTERVAL required in rrule."])
        if kind == "schedules" and new:
            self._check_answers(body)
        return body

    def _check_answers(self, schedule: Object) -> None:
        """Raise Refused if AWX could not launch the template with the answers of the schedule."""
        template = next(
            item for kind in UNIFIED for item in self.store[kind] if item["id"] == schedule["unified_job_template"]
        )
        asked = template["survey"].get("spec", []) if template["survey_enabled"] else []
        answers = schedule.get("extra_data", {})
        missing = [item["variable"] for item in asked if item["required"] and item["variable"] not in answers]
        if missing or not {*answers} <= {item["variable"] for item in asked}:
            raise Refused(400, variables_needed_to_start=missing, answers=answers)

    def _create(self, kind: str, body: Object) -> Object:
        made = self.add(kind, self._checked(kind, body, new=True))
        if kind == "projects":
            made.update(scm_revision="", summary_fields={"current_update": {"id": made["id"]}})
        if kind == "credential_types":
            made["managed"] = False
        if kind == "job_templates":
            made["organization"] = self.find("projects", body["project"])["organization"]
        return made

    def _part(self, method: str, kind: str, item: Object, part: str, body: Object) -> tuple[int, Any]:
        if part == "survey_spec" and "survey" in item:
            if method == "POST":
                check_survey(body)
                item["survey"] = body
            return 200, item["survey"]
        if part in LINKS.get(kind, ()):
            if method == "GET":
                linked = [self.find(LINKS[kind][part], number) for number in item[part]]
                return 200, {"count": len(linked), "next": None, "results": linked}
            self.find(LINKS[kind][part], body["id"])
            item[part] = [number for number in item[part] if number != body["id"]]
            item[part] += [] if body.get("disassociate") else [body["id"]]
            return 204, None
        if part == "create_approval_template" and "unified_job_template" not in item["related"]:
            check_fields("workflow_approval_templates", body, new=True)
            approval = self.add("workflow_approval_templates", body)
            item.update(unified_job_template=approval["id"], related={"unified_job_template": approval["url"]})
            return 201, approval
        raise Refused(404, detail="Not found.")


@contextmanager
def serve(awx: AwxServer) -> Iterator[AwxServer]:
    """Serve the API on loopback inside the context; `url` is its address."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                # Like the modules, use a password only to obtain a token.
                login = BASIC if self.path.startswith("/api/v2/tokens/") else BEARER
                if self.headers.get("Authorization") != login:
                    raise Refused(401, detail="Authentication credentials were not provided.")
                if not self.path.startswith("/api/v2/"):
                    raise Refused(404, detail="Not found.")
                status, body = awx.answer(self.command, self.path[len("/api/v2") :], json.loads(raw or b"{}"))
            except Refused as refused:
                status, body = refused.status, refused.body
            content = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing: the requests are in `written`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    awx.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield awx
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
