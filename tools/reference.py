# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes docs/reference from the declarations in the code, so the documents and the code cannot differ.

    python tools/reference.py           writes the files (`make docs`)
    python tools/reference.py --check   writes nothing; names the stale files and exits 1 if there are any

Role variables come from roles/*/meta/argument_specs.yml; their groups and defaults from defaults/main.yml. Plugins come
from ansible-doc, which reads the collection in ANSIBLE_COLLECTIONS_PATH. The schema of the document of accounts comes
from the tables that parse it, the insights checks from their registry, the insights tables from the declarations of the
pipeline, the metrics from the exporter's table, the objects in AWX from the variables of the playbook awx.configure,
and the versions of nats-server from the table that upgrades use.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from generated import ROOT, anchor

REFERENCE = ROOT / "docs" / "reference"
COLLECTION = "natsops.jetstream"
#: Written by tools/dependencies.py.
LICENCES = REFERENCE / "licences.md"
#: Written by `make views`, which needs Spark.
VIEWS = REFERENCE / "insights_views.md"
SPARK = ("pyspark", "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types")
#: A variable in a playbook's first comment: its name and its description, which further indented lines may continue.
PLAYBOOK_VARIABLE = re.compile(r"^#   (?P<name>\w+) {2,}(?P<text>.*(?:\n# {8,}.*)*)", re.MULTILINE)
#: The subjects of the list of modules, and their modules without the prefix `nats_`.
SUBJECTS = {
    "State and health": "cluster_info cluster_facts cluster_health check cluster_smoke_test server_info "
    "traffic_info meta_peer_info login_info connection_info message_trace_info listener_info "
    "stream_benchmark snapshot bundle host_bundle",
    "Streams, consumers and buckets": "stream stream_info stream_message_info consumer consumer_info kv_bucket kv_entry "
    "kv_entry_info object_bucket object object_info assets_plan assets_apply assets_info "
    "account_info account_purge",
    "Leaders, replicas and members": "meta_stepdown stream_stepdown server_evacuate stream_peer meta_peer "
    "replica_moves replica_count_plan rebalance_plan leader_rebalance membership_plan",
    "Restarts and maintenance": "roll_plan roll_event server_reload connection_kick maintenance_plan "
    "host_lock fleet_run show",
    "Accounts and users": "operator operator_key account_claims account_claims_info accounts_plan accounts_apply "
    "user_credentials document_credentials credential_files signing_key_rotation "
    "account_parity_info nsc_store_info",
    "Backup, restore and repair": "backup backup_info backup_drill restore store_backup repair rescue",
    "A second site": "dr_info dr_checkpoint dr_contexts dr_drill dr_failover dr_failback",
    "One host": "server_host_info server_binary server_files server_process server_firewall server_tuning store_copy "
    "adoption certificate",
}
#: The lines of README.md around the list of modules.
LIST_BEGINS, LIST_ENDS = "<!-- modules: written by `make docs` -->", "<!-- end of modules -->"
NOTICE = "<!-- Written by `make docs`; change its sources instead. -->"


def text(value: str | Sequence[str] | None) -> str:
    """Return Ansible's documentation markup (one paragraph or a list of them) as one line of Markdown."""
    joined = " ".join([value] if isinstance(value, str) else value or [])
    joined = re.sub(r"\bL\(([^,)]+),\s*([^)]+)\)", r"[\1](\2)", joined)
    joined = re.sub(r"\bR\(([^,)]+),[^)]*\)", r"\1", joined)
    joined = re.sub(r"\bU\(([^)]+)\)", r"<\1>", joined)
    joined = re.sub(
        r"\b(?:C|O|V|E|M|P|RV)\(((?:\\.|[^)\\])*)\)", lambda m: "`" + re.sub(r"\\(.)", r"\1", m[1]) + "`", joined
    )
    joined = re.sub(r"(`[\w.]+)#\w+`", r"\1`", joined)  # P(name#type)
    joined = re.sub(r"\bB\(([^)]+)\)", r"**\1**", joined)
    joined = re.sub(r"\bI\(([^)]+)\)", r"*\1*", joined)
    return " ".join(joined.split())


def cell(value: str) -> str:
    """Return text that is safe in a cell of a Markdown table."""
    return " ".join(value.split()).replace("|", "\\|")


def code(value: object) -> str:
    """Return a default or a choice as code, or an empty text if there is none."""
    if value is None:
        return ""
    return "`" + (value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)) + "`"


def kind(option: Mapping[str, Any]) -> str:
    """Return the type of an option in readable form: `list of str`."""
    name = str(option.get("type", "str"))
    return f"{name} of {option['elements']}" if option.get("elements") else name


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell(column) for column in row) + " |"


def option_rows(options: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, ...]]:
    """Yield (name, type, default, description) of each option and, after it, of the options inside it."""
    for name, option in options.items():
        full = prefix + name
        default = option.get("default", defaults.get(name) if not prefix else None)
        description = text(option.get("description"))
        if option.get("choices"):
            description += " One of " + ", ".join(code(choice) for choice in option["choices"]) + "."
        yield f"`{full}`", kind(option), "*required*" if option.get("required") else code(default), description
        inner = option.get("options") or option.get("suboptions")
        if inner:
            yield from option_rows(inner, {}, full + ("[]." if option.get("elements") else "."))


def return_rows(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, ...]]:
    """Yield (name, type, description) of each value of a result and, after it, of the values inside it."""
    for name, value in values.items():
        description = text(value.get("description"))
        if str(value.get("returned")).startswith("if C("):
            description += f" Returned {text(value['returned'])}."
        yield f"`{prefix}{name}`", kind(value), description
        if value.get("contains"):
            yield from return_rows(value["contains"], f"{prefix}{name}{'[]' if value.get('elements') else ''}.")


def variable_groups(defaults_file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (title, variable names) for each group of a defaults file; headings such as `# --- Title ---` separate the
    groups."""
    title = "General"
    names: list[str] = []
    for line in defaults_file.read_text(encoding="utf-8").splitlines():
        heading = re.match(r"# -+ (.+?) -+$", line)
        variable = re.match(r"([a-z]\w*):", line)
        if heading:
            if names:
                yield title, names
            title, names = heading[1], []
        elif variable:
            names.append(variable[1])
    if names:
        yield title, names


def role_page(role: Path) -> str:
    """Return the page of a role's entry points and variables."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    defaults_file = role / "defaults" / "main.yml"
    defaults = yaml.safe_load(defaults_file.read_text(encoding="utf-8"))
    options: dict[str, Any] = {}
    for spec in specs.values():
        options.update({name: option for name, option in (spec.get("options") or {}).items() if name not in options})

    lines = [NOTICE, "", f"# Role {COLLECTION}.{role.name}", "", "## Entry points", ""]
    lines += table(
        ("tasks_from", "effect"),
        ((f"`{name}`", text(spec.get("description") or spec.get("short_description"))) for name, spec in specs.items()),
    )
    lines += ["", "## Variables", ""]
    if playbook_rows := [*playbook_variable_rows(role.name, options)]:
        lines += ["### Only in playbooks", "", *table(("variable", "playbook", "description"), playbook_rows), ""]
    shown: set[str] = set()
    for title, names in [
        *variable_groups(defaults_file),
        ("Without a default", [n for n in options if n not in defaults]),
    ]:
        group = {name: options[name] for name in names if name in options}
        if group:
            lines += [
                f"### {title}",
                "",
                *table(("variable", "type", "default", "description"), option_rows(group, defaults)),
                "",
            ]
        shown.update(group)
    return "\n".join(lines).rstrip() + "\n"


def playbook_variable_rows(role: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, playbook, description) of each variable in a playbook's first comment that has the role's prefix but
    is not an option of the role."""
    for playbook in sorted(ROOT.glob("playbooks/*.yml")):
        head = playbook.read_text(encoding="utf-8").partition("\n- ")[0]
        for found in PLAYBOOK_VARIABLE.finditer(head):
            if found["name"].startswith(f"{role}_") and found["name"] not in options:
                yield f"`{found['name']}`", f"`{playbook.stem}`", " ".join(found["text"].replace("#", " ").split())


def plugin_docs(plugin_type: str) -> dict[str, Any]:
    """Return ansible-doc's description of every plugin of one type in the collection, by the plugin's short name."""
    folder = {"module": "modules"}.get(plugin_type, plugin_type)
    names = sorted(f"{COLLECTION}.{path.stem}" for path in (ROOT / "plugins" / folder).glob("*.py"))
    if not names:
        return {}
    command = ["ansible-doc", "--json", "--type", plugin_type, *names]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    missing = [name for name in names if "doc" not in found.get(name, {})]
    if missing:
        raise SystemExit(f"ansible-doc cannot read: {', '.join(missing)}")
    return {name.rsplit(".", maxsplit=1)[1]: found[name] for name in names}


def fragment_options(name: str) -> dict[str, Any]:
    """Return the options of a documentation fragment."""
    source = ROOT / "plugins" / "doc_fragments" / f"{name}.py"
    names: dict[str, Any] = {}
    exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), names)
    return dict(yaml.safe_load(names["ModuleDocFragment"].DOCUMENTATION)["options"])


def plugin_section(name: str, entry: Mapping[str, Any], shared: Mapping[str, Any], level: str = "##") -> Iterator[str]:
    """Yield the lines that describe one plugin, below a heading of this level."""
    doc = entry["doc"]
    yield from (f"{level} {name}", "", text(doc["description"]), "")
    support = [
        f"{attribute.replace('_', ' ')}: {doc['attributes'][attribute]['support']}"
        for attribute in ("check_mode", "diff_mode")
        if attribute in doc.get("attributes", {})
    ]
    if support:
        yield from (", ".join(support).capitalize() + ".", "")
    options = dict(doc.get("options") or {})
    connects = bool(shared) and set(shared) <= set(options)
    users = fragment_options("accounts")
    common = {**(shared if connects else {}), **(users if connects and set(users) <= set(options) else {})}
    own = {key: option for key, option in options.items() if key not in common}
    if own:
        yield from table(("option", "type", "default", "description"), option_rows(own, {}))
        yield ""
    if connects:
        also = " and [`account_users`](#account-users)" if set(users) <= set(common) else ""
        yield from (f"It takes the [connection options](#connection-options){also} as well.", "")
    if entry.get("return"):
        yield from table(("returns", "type", "description"), return_rows(entry["return"]))
        yield ""
    if entry.get("examples"):
        yield from ("```yaml", *entry["examples"].strip().splitlines(), "```", "")


def index(docs: Mapping[str, Any], target: str = "#{}") -> Iterator[str]:
    """Yield the table of these plugins; `target`: the link to a plugin's section or page."""
    rows = (
        (f"[{name}]({target.format(name)})", text(entry["doc"]["short_description"])) for name, entry in docs.items()
    )
    yield from (*table(("name", "description"), rows), "")


def plugin_page(title: str, plugin_type: str) -> str:
    """Return the page of all plugins of one type."""
    shared = fragment_options("connection") if plugin_type == "inventory" else {}
    docs = plugin_docs(plugin_type)
    lines = [NOTICE, "", f"# {title} of {COLLECTION}", "", *index(docs)]
    if shared:
        lines += shared_options("Connection options", shared)
    for name, entry in docs.items():
        lines += plugin_section(name, entry, shared)
    return "\n".join(lines).rstrip() + "\n"


def shared_options(title: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section of options that several plugins take."""
    yield from (f"## {title}", "", *table(("option", "type", "default", "description"), option_rows(options, {})), "")


def module_pages() -> dict[Path, str]:
    """Return the page of each module, and the list of all modules by subject."""
    docs = plugin_docs("module")
    subjects = {title: [f"nats_{name}" for name in names.split()] for title, names in SUBJECTS.items()}
    listed = [name for names in subjects.values() for name in names]
    if sorted(listed) != sorted(docs):
        wrong = sorted({*listed} ^ {*docs} | {name for name in listed if listed.count(name) > 1})
        raise SystemExit(f"SUBJECTS in tools/reference.py must list each module once: {', '.join(wrong)}")
    shared = fragment_options("connection")
    lines = [NOTICE, "", f"# Modules of {COLLECTION}", ""]
    for title, names in subjects.items():
        lines += [f"## {title}", "", *index({name: docs[name] for name in names}, "modules/{}.md")]
    lines += shared_options("Connection options", shared)
    lines += shared_options("Account users", fragment_options("accounts"))
    pages = {
        REFERENCE / "modules" / f"{name}.md": linked(
            [NOTICE, "", *plugin_section(name, entry, shared, "#")], "../modules.md"
        )
        for name, entry in docs.items()
    }
    return {REFERENCE / "modules.md": "\n".join(lines).rstrip() + "\n", ROOT / "README.md": readme(), **pages}


def readme() -> str:
    """Return README.md with the current list of modules by subject."""
    rows = (
        (f"[{title}](docs/reference/modules.md#{anchor(title)})", ", ".join(map(code, names.split())))
        for title, names in SUBJECTS.items()
    )
    before, _old, after = re.split(
        f"(?<={LIST_BEGINS}\n)(.*?)(?={LIST_ENDS})", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return before + "\n".join(table(("subject", "modules, without `nats_`"), rows)) + f"\n{after}"


def linked(lines: Iterable[str], page: str) -> str:
    """Return lines as a page whose links to shared options lead to another page."""
    joined = re.sub(r"\(#(connection-options|account-users)\)", rf"({page}#\1)", "\n".join(lines))
    return joined.rstrip() + "\n"


def event_source_docs() -> dict[str, Any]:
    """Return the description of every event source by name, in the format of ansible-doc, which does not support event
    sources."""
    found: dict[str, Any] = {}
    for path in sorted((ROOT / "extensions/eda/plugins/event_source").glob("*.py")):
        names = {
            name: re.search(rf'^{name} = r"""\n(.*?)"""', path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
            for name in ("DOCUMENTATION", "EXAMPLES", "RETURN")
        }
        described, examples, returned = names["DOCUMENTATION"], names["EXAMPLES"], names["RETURN"]
        if not described or not examples or not returned:
            raise SystemExit(f"{path.name} lacks DOCUMENTATION, EXAMPLES or RETURN")
        doc = yaml.safe_load(described[1])
        for fragment in doc.get("extends_documentation_fragment", ()):
            doc["options"].update(fragment_options(fragment.rpartition(".")[2]))
        found[path.stem] = {"doc": doc, "examples": examples[1], "return": yaml.safe_load(returned[1])}
    return found


def event_source_page() -> str:
    """Return the page of the event sources."""
    docs = event_source_docs()
    lines = [NOTICE, "", f"# Event sources of {COLLECTION}", ""]
    lines += [
        "[Event-driven](../event-driven.md) describes their use. If the value of a key is unknown, the event lacks the key.",
        "",
    ]
    lines += index(docs)
    for name, entry in docs.items():
        lines += plugin_section(name, entry, fragment_options("connection"))
    return linked(lines, "modules.md").replace("| returns |", "| key of `event.nats` |")


def insights_page(module: str, function: str = "page") -> str:
    """Return a page from the pipeline's own description. The pipeline's imports of Spark are not needed for this, and
    are replaced."""
    sys.path[:0] = [str(ROOT / "roles" / "nats_insights" / "files"), os.environ["ANSIBLE_COLLECTIONS_PATH"]]
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in SPARK}):
        made: str = getattr(importlib.import_module(f"jetstream_insights.{module}"), function)()
    return made if function != "page" else f"{NOTICE}\n\n{made}"


SERVER_VERSIONS = """\
The known defects of each version of nats-server. `deploy`, `upgrade` and `restart` warn of those in the running and the desired
versions; `diagnose` lists them as notes. Security fixes that are not listed: <https://advisories.nats.io>.
"""
UPGRADES = """\
An upgrade may skip patch releases, but no minor release: upgrade to the newest patch release of each one in turn. With
`-e nats_server_allow_skipped_minors=true` an upgrade may skip minor releases at your own risk. The tests upgrade under load from
2.9.10 to 2.10.27 and from there to 2.15.1, and lose no acknowledged message.
"""
DOWNGRADES = """\
Upstream supports going back one patch release. Any other downgrade needs `-e nats_server_allow_downgrade=true`. Two
downgrades are always refused: to a version older than the table permits, and to one that lacks a feature that a stream or a
consumer uses. The message names the stream or consumer.
"""


def server_versions_page() -> str:
    """Return the page of the versions of nats-server."""
    sys.path.insert(0, os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)[0])
    rooms = f"ansible_collections.{COLLECTION}.plugins.module_utils"
    known = importlib.import_module(f"{rooms}.nats.server_versions")
    rules = importlib.import_module(f"{rooms}.roll.version_rules")
    series, newest = known.SERIES, known.SERIES[-1]
    lines = [NOTICE, "", "# Versions of nats-server", "", SERVER_VERSIONS, "## Series", ""]
    lines += table(
        ("series", "released", "upstream", "JetStream API level"),
        (
            (
                one.name,
                one.released,
                f"end-of-life since {ended}" if (ended := known.end_of_life(f"{one.name}.0")) else "maintained",
                str(rules.api_level(f"{one.name}.0")),
            )
            for one in reversed(series)
        ),
    )
    lines += ["", "## Upgrades", "", UPGRADES]
    lines += table(("from", "steps"), ((one.name, " → ".join(upgrade_steps(one, series))) for one in series[:-1]))
    lines += ["", f"A step within {newest.name}, or from one series to the next, is one run of `upgrade`.", ""]
    lines += ["## Going back", "", DOWNGRADES]
    lines += table(
        ("from", "back to", "because"),
        (
            (
                one.name,
                f"{one.oldest_return} or later" if one.oldest_return else f"any {before.name}",
                one.because
                or (
                    "the first start reads all messages"
                    if one.index_format > before.index_format
                    else "nothing is known against it"
                ),
            )
            for before, one in zip(series, series[1:])
        ),
    )
    lines += ["", "## Known defects", ""]
    lines += table(
        ("affected", "effect", "fixed in", "source"),
        (
            (
                ", ".join(first if first == last else f"{first} to {last}" for first, last in defect.affected),
                defect.effect
                + (f" (with `{defect.needs}`)" if defect.needs and defect.needs not in defect.effect else ""),
                ", ".join(defect.fixed),
                defect.source,
            )
            for defect in known.DEFECTS
        ),
    )
    lines += ["", "Series before 2.9 were not checked. Series newer than the listed ones have the fix, too."]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def metrics_page() -> str:
    """Return the page of the exporter's metrics."""
    sys.path.insert(0, os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)[0])
    known = importlib.import_module(f"ansible_collections.{COLLECTION}.plugins.module_utils.telemetry.metrics")
    lines = [
        "# Metrics",
        "",
        NOTICE,
        "",
        "The metrics of the [exporter](../metrics.md). Each series also has the label `fleet`.",
        "",
    ]
    lines += table(
        ("metric", "labels", "description"),
        ((code(metric.name), ", ".join(map(code, metric.labels)), cell(metric.about)) for metric in known.METRICS),
    )
    states, reasons = (", ".join(map(code, names)) for names in (known.STATES, known.REASONS))
    lines += ["", f"`state` of streams and consumers, the worst first: {states}.", "", f"`reason`: {reasons}."]
    return "\n".join(lines).rstrip() + "\n"


class AwxLoader(yaml.SafeLoader):
    """Reads strings that are marked as not being templates, as Ansible does."""


AwxLoader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]

AWX = """\
The objects that [awx.configure](../awx.md) creates. Their names in AWX begin with `nats_awx_prefix`, as in
*NATS restart*.
"""
AWX_CREDENTIALS = """\
`machine` is AWX's own type *Machine* (SSH key, become password), `vault` its type *Vault*, and `other` any type. Every template
receives these three and `system`; the table of [job templates](#job-templates) lists the others. Required inputs are in bold.
"""
AWX_TEMPLATES = """\
Readers and operators may execute the templates in their rows, and approvers may read them. Only workflows and administrators
run a template without a team. `limit`: the launch prompts for a limit. Questions in bold have no default and need an answer. With
`nats_awx_cluster_groups`, surveys also begin with `nats_server_hosts`, except those of the fleet.
"""


def awx_objects() -> dict[str, Any]:
    """Return the declarations of the objects in AWX, with names without the prefix."""
    source = (ROOT / "playbooks/awx/vars/objects.yml").read_text(encoding="utf-8")
    bare = re.sub(r"\{\{ nats_awx_prefix \}\} |\{\{ nats_awx_playbooks \}\}", "", source)
    return dict(yaml.load(bare, Loader=AwxLoader))


def awx_credential_rows(types: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield (type, input, content, kind) of each input."""
    for credential in types:
        inputs = credential["inputs"]
        for number, field in enumerate(inputs["fields"]):
            name = code(field["id"])
            about = field["label"] + (f": {field['help_text']}" if field.get("help_text") else "")
            secret = ["secret"] if field.get("secret") else []
            choices = [", ".join(map(code, field["choices"]))] if field.get("choices") else []
            yield (
                code(credential["name"]) if not number else "",
                f"**{name}**" if field["id"] in inputs.get("required", ()) else name,
                about,
                ", ".join([*secret, *choices]),
            )


def awx_teams(objects: Mapping[str, Any], name: str) -> list[str]:
    """Return the teams with a role for a job template."""
    lists = {"reads": objects["nats_awx__reads"], "routine": objects["nats_awx__routine"]}
    found = []
    for row in objects["nats_awx__roles"]:
        expression = row.get("templates", "")
        named = {one for part in re.findall(r"nats_awx__(\w+)", expression) for one in lists.get(part, ())}
        named.update(re.findall(r"'([^']+)'", expression))
        if name in named or ("nats_awx__plans" in expression and name.startswith("plan ")):
            found.append(row["team"])
    return found


def awx_questions(template: Mapping[str, Any]) -> str:
    """Return the variables of a survey; those without a default are in bold if an answer is required."""
    questions = template.get("survey_spec", {}).get("spec", ())
    return ", ".join(
        f"**{code(one['variable'])}**" if one["required"] and "default" not in one else code(one["variable"])
        for one in questions
    )


def awx_template_rows(objects: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield (template, playbook, credentials, teams, limit, questions) of each job template."""
    kinds = objects["nats_awx__credential_playbooks"]
    for template in objects["nats_awx__job_templates"]:
        playbook = template["playbook"].removesuffix(".yml")
        yield (
            template["name"],
            code(playbook) + (", check mode" if template.get("job_type") == "check" else ""),
            ", ".join(code(kind) for kind, names in kinds.items() if names != "all" and playbook in names),
            ", ".join(awx_teams(objects, template["name"])),
            "yes" if template.get("ask_limit_on_launch") else "",
            awx_questions(template),
        )


def awx_workflow_rows(workflows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield (workflow, steps, after a failure, limit, questions) of each workflow."""
    for row in workflows:
        steps = [row["plan"], "**approval**", row["run"], *([row["success"]] if row.get("success") else [])]
        limit = "yes" if row.get("limit") else ""
        yield row["name"], " → ".join(steps), row.get("failure", ""), limit, awx_questions(row)


def awx_question_rows(questions: Sequence[Mapping[str, Any]], forms: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield (variable, question, answers, default, example) of each variable; some have several questions."""
    rows: dict[str, tuple[str, ...]] = {}
    for one in questions:
        about = one["question_name"] + (f": {one['question_description']}" if one.get("question_description") else "")
        answers = ", ".join(map(code, one["choices"])) if one.get("choices") else one["type"]
        example = forms.get(one["variable"], {}).get("example")
        rows.setdefault(
            one["variable"], (code(one["variable"]), about, answers, code(one.get("default")), code(str(example or "")))
        )
    yield from (tuple(column.replace('`""`', "") for column in rows[name]) for name in sorted(rows))


def awx_schedule_rows(schedules: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield (schedule, template, rule, answers, enabled) of each schedule."""
    for row in schedules:
        answers = {name: re.sub(r"\{\{ (\w+) \}\}", r"\1", value) for name, value in row.get("answers", {}).items()}
        setting = re.search(r"nats_awx_\w+", str(row["enabled"]))
        enabled = f"with {code(setting[0])}" if setting else "yes" if row["enabled"] else "no"
        answered = ", ".join(code(f"{name}: {value}") for name, value in answers.items())
        yield code(row["name"]), row["template"], code(row["rule"]), answered, enabled


def awx_results() -> set[str]:
    """Return the variables that jobs pass to later jobs of a workflow."""
    sources = [*(ROOT / "playbooks").glob("*.yml"), *ROOT.glob("roles/*/tasks/**/*.yml")]
    tasks = [
        task
        for path in sources
        for task in re.findall(r"set_stats:\n(.*?)(?=\n\s*- name|\Z)", path.read_text(encoding="utf-8"), re.DOTALL)
    ]
    names = {name for task in tasks for name in re.findall(r"\b(nats_\w+)['\"]?:", task)}
    return {name for name in names if "__" not in name}


def awx_page() -> str:
    """Return the page of the objects in AWX."""
    objects = awx_objects()
    text_forms = (ROOT / "playbooks/vars/answers.yml").read_text(encoding="utf-8")
    forms = yaml.load(text_forms, Loader=yaml.BaseLoader)["nats_survey_answers"]
    lines = [NOTICE, "", "# Objects in AWX", "", AWX, "## Credential types", "", AWX_CREDENTIALS]
    lines += table(("type", "input", "content", "kind"), awx_credential_rows(objects["nats_awx__credential_types"]))
    lines += ["", "## Job templates", "", AWX_TEMPLATES]
    lines += table(("template", "playbook", "credentials", "teams", "limit", "survey"), awx_template_rows(objects))
    lines += [
        "",
        "## Workflows",
        "",
        "Operators may execute, and approvers may approve, all workflows. An approval that expires changes nothing.",
        "",
    ]
    lines += table(
        ("workflow", "steps", "after a failure", "limit", "survey"), awx_workflow_rows(objects["nats_awx__workflows"])
    )
    lines += ["", "## Schedules", "", "Times are in UTC.", ""]
    lines += table(
        ("name", "template", "default rule", "answers", "enabled"), awx_schedule_rows(objects["nats_awx__schedules"])
    )
    lines += ["", "## Questions", "", "Jobs refuse answers that do not have the form of the example.", ""]
    lines += table(
        ("variable", "question", "answer", "default", "example"),
        awx_question_rows(objects["nats_awx__questions"], forms),
    )
    lines += ["", "## Results", "", ", ".join(map(code, sorted(awx_results()))) + "."]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def document_schema(package: str) -> str:
    """Return the JSON schema of the documents of a package, for editors."""
    sys.path.insert(0, os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)[0])
    document = importlib.import_module(f"ansible_collections.{COLLECTION}.plugins.module_utils.{package}.document")
    return json.dumps(document.json_schema(), indent=1, sort_keys=True) + "\n"


def upgrade_steps(start: Any, series: Sequence[Any]) -> list[str]:
    """Return the series that follow a series, each with the version from which the upgrade guide of the following
    series recommends to upgrade."""
    later = [one for one in series if one.numbers > start.numbers]
    follows = [*(one.best_start for one in later[1:]), ""]
    return [f"{one.name} ({best} or later)" if best else one.name for one, best in zip(later, follows)]


def pages() -> dict[Path, str]:
    """Return the text of every reference page, by path."""
    roles = sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
    return {
        **{REFERENCE / f"{role.name}.md": role_page(role) for role in roles},
        **module_pages(),
        REFERENCE / "filters.md": plugin_page("Filters", "filter"),
        REFERENCE / "inventory.md": plugin_page("Inventory plugins", "inventory"),
        REFERENCE / "lookups.md": plugin_page("Lookups", "lookup"),
        REFERENCE / "awx.md": awx_page(),
        REFERENCE / "event_sources.md": event_source_page(),
        REFERENCE / "insights_checks.md": insights_page("findings.document"),
        REFERENCE / "insights_checks.schema.json": insights_page("findings.checks_file", "schema_page"),
        REFERENCE / "insights_tables.md": insights_page("document"),
        REFERENCE / "metrics.md": metrics_page(),
        REFERENCE / "accounts.schema.json": document_schema("accounts"),
        REFERENCE / "assets.schema.json": document_schema("assets"),
        REFERENCE / "server_versions.md": server_versions_page(),
    }


def main(arguments: Sequence[str]) -> int:
    wanted = pages()
    stale = [
        path for path, content in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != content
    ]
    stale += [path for path in REFERENCE.rglob("*.md") if path not in wanted and path not in (LICENCES, VIEWS)]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make docs` and commit it.")
        return 1 if stale else 0
    for path in stale:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
