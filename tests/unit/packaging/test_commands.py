# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command and block of README.md and docs/*.md is correct. An unknown command is an error that names the file and
line.

Each rule uses the program's own definitions: ansible's parser, make's targets, the options of roles and modules. RUN_BY
names the test that runs the commands of a document.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.galaxy import GalaxyCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.natsops.jetstream.plugins.module_utils import module
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import document as assets_document
from support.documents import CHECKOUT, DOCUMENTS, Block, Command, role_options, role_specs

PREFIX = "natsops.jetstream."
#: The test that runs the commands of a document, and a text in the test that proves it: the name of the document, or
#: its commands.
GUIDES = ("tests/integration/test_guides.py", '"{path}"')
RUN_BY = {
    "docs/accounts.md": ("tests/integration/test_operator_mode.py", '"docs/accounts.md"'),
    "docs/adopt.md": ("tests/lab/test_adopt.py", 'self.play("adopt"'),
    "README.md": ("tests/lab/test_readme.py", '"{path}"'),
    "docs/administration.md": ("tests/integration/test_administration.py", '"{path}"'),
    "docs/awx.md": ("tests/integration/test_awx_configure.py", '"natsops.jetstream.awx.configure"'),
    "docs/assets.md": GUIDES,
    "docs/backup.md": ("tests/lab/test_backup.py", '"{path}"'),
    "docs/bundle.md": ("tests/integration/test_bundle.py", '"{path}"'),
    "docs/disaster_recovery.md": ("tests/integration/test_dr_guide.py", '"{path}"'),
    "docs/event-driven.md": ("tests/eda/test_rulebooks.py", "quorum_lost"),
    "docs/fleet.md": ("tests/integration/test_fleet.py", "docs/fleet.md"),
    "docs/getting-started.md": ("tests/lab/test_getting_started.py", '"{path}"'),
    "docs/health-gate.md": GUIDES,
    "docs/installation.md": ("tests/lab/test_offline.py", '"{path}"'),
    "docs/insights.md": ("tests/insights/test_cluster.py", "spark-submit"),
    "docs/metrics.md": ("tests/lab/test_deploy.py", "import_playbook: natsops.jetstream.exporter"),
    "docs/molecule.md": ("tests/lab/test_lab.py", 'lab.kill("'),
    "docs/operations.md": GUIDES,
    "docs/internals/releasing.md": ("tests/unit/packaging/test_release.py", '"antsibull-changelog", "release"'),
    "docs/rescue.md": GUIDES,
    "docs/roll-journal.md": GUIDES,
    "docs/security.md": GUIDES,
    "docs/sizing.md": GUIDES,
    "docs/spark-source.md": ("tests/insights/conftest.py", '"pip", "install"'),
    "docs/troubleshooting.md": GUIDES,
}
#: The sections of these documents that a test in tests/lab follows from block to block.
STEPS = {"README.md": "First run", "docs/installation.md": "Without a network", "docs/getting-started.md": r"\d"}
#: Documents whose YAML blocks must equal the files of a project; a test compares them.
SHOWN = {
    "docs/awx.md": "tests/integration/test_awx_configure.py",
    "docs/molecule.md": "tests/unit/packaging/test_molecule.py",
}
#: Documents whose commands are make targets; CI runs the recipes.
MAKE_DOCUMENTS = {"docs/internals/benchmarks.md", "CONTRIBUTING.md"}
INSTALLED = "~/.ansible/collections/ansible_collections/natsops/jetstream"
SHELLS, DATA = ("sh", "shell"), ("yaml", "json", "python", "text", "")
BLOCKS = [block for document in DOCUMENTS for block in document.blocks]
COMMANDS = [command for block in BLOCKS if block.language in SHELLS for command in block.commands]
#: Commands within a sentence or a table. Dots represent the reader's own values.
INLINE = [
    Command(f"{document.path}:{number}", found.replace("=…", "=x").replace(" …", " x"))
    for document in DOCUMENTS
    for number, line in enumerate(document.text.splitlines(), 1)
    for found in re.findall(r"`((?:ansible-playbook|ansible|make|python3? -m) [a-z-][^`]*)`", line)
    if PREFIX + "NAME" not in found
]
LOCKED = {
    line.partition("==")[0]
    for path in (CHECKOUT / "requirements").glob("*.txt")
    for line in path.read_text().splitlines()
    if "==" in line
}
#: The messages as written in the code; a sentence that continues in the next literal is joined.
SAID = " ".join(
    re.sub(r'"\s+f?"', "", path.read_text())
    for folder in ("plugins/module_utils", "plugins/modules", "roles")
    for path in sorted((CHECKOUT / folder).rglob("*"))
    if path.suffix in (".py", ".yml")
)
SAID = " ".join(SAID.split())
MAKEFILE = (CHECKOUT / "Makefile").read_text()


def identify(item: Block | Command) -> str:
    return item.where


# --- Existing names
# -----------------------------------------------------------------------------------------------------


@cache
def playbook_variables(path: Path) -> set[str]:
    """Return the variables that a playbook accepts in addition to those of roles; its first lines list them."""
    head = path.read_text().partition("\n- name:")[0]
    return {word for line in head.splitlines() if line.startswith("#") for word in re.findall(r"\b[a-z]\w+\b", line)}


@cache
def options_by_module(*names: str) -> dict[str, dict[str, Any]]:
    """Return the options of these modules from ansible-doc."""
    told = subprocess.run(["ansible-doc", "--json", *names], check=True, capture_output=True, text=True).stdout
    return {name: entry["doc"].get("options") or {} for name, entry in json.loads(told).items()}


def module_options(name: str) -> dict[str, Any]:
    """Return the options of a module; all modules of this collection are read in one call, because ansible-doc takes
    long to start."""
    own = sorted(PREFIX + path.stem for path in (CHECKOUT / "plugins/modules").glob("*.py"))
    return options_by_module(*(own if name in own else [name]))[name]


@cache
def source_options() -> dict[str, set[str]]:
    """Return the options of the event sources, as the reference shows them."""
    spec = importlib.util.spec_from_file_location("reference", CHECKOUT / "tools/reference.py")
    assert spec is not None and spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    return {name: set(entry["doc"]["options"]) for name, entry in reference.event_source_docs().items()}


def playbook_path(name: str) -> Path:
    assert name.startswith(PREFIX), f"{name}: not of this collection"
    path = CHECKOUT / "playbooks" / (name.removeprefix(PREFIX).replace(".", "/") + ".yml")
    assert path.is_file(), f"there is no playbook {name}"
    return path


# --- Commands -----------------------------------------------------------------------------------------------------------


def parsed(cli: type[Any], arguments: list[str]) -> argparse.Namespace:
    """Return the arguments as parsed by the program's own parser."""
    program = cli(arguments)
    program.init_parser()
    try:
        found: argparse.Namespace = program.parser.parse_args(arguments[1:])
    except SystemExit:
        raise AssertionError(f"{arguments[0]} does not take these arguments") from None
    return found


def extra_variables(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    for text in options.extra_vars or []:
        if text.startswith("{"):
            yield from json.loads(text).items()
        elif not text.startswith("@"):
            for pair in shlex.split(text):
                name, equals, value = pair.partition("=")
                assert equals, f"{pair}: no variable"
                yield name, value


def ansible_playbook(arguments: list[str]) -> None:
    options = parsed(PlaybookCLI, arguments)
    for name in options.args:
        path = playbook_path(name)
        for variable, value in extra_variables(options):
            if variable in role_options():
                check_value(variable, role_options()[variable], value)
            else:
                assert variable in playbook_variables(path), f"{name} takes no variable {variable}"


def ansible(arguments: list[str]) -> None:
    options = parsed(AdHocCLI, arguments)
    given = dict(pair.split("=", 1) for pair in shlex.split(options.module_args or ""))
    check_options(options.module_name, given)


def ansible_galaxy(arguments: list[str]) -> None:
    options = parsed(GalaxyCLI, arguments)
    for name in options.args:
        known = (".", "natsops.jetstream", "awx.awx:24.6.1")
        assert name in known or re.fullmatch(r"\S*natsops-jetstream-\S*\.tar\.gz", name), name


def make(arguments: list[str]) -> None:
    given = dict(item.split("=", 1) for item in arguments[1:] if "=" in item)
    targets = [item for item in arguments[1:] if "=" not in item and not item.startswith("-")]
    assert targets or not given
    for target in targets:
        scenario = CHECKOUT / "extensions/molecule" / target.removeprefix("test-molecule-") / "molecule.yml"
        listed = re.search(rf"^{re.escape(target)}:.* ## ", MAKEFILE, re.MULTILINE)
        assert listed or scenario.is_file(), f"make's list has no target {target}"
    for name in given:
        assert re.search(rf"^{name} \?=", MAKEFILE, re.M), f"make has no variable {name}"
    if "bench" in targets:
        bench = CHECKOUT / "tests/bench" / (given.get("BENCH", "assets") + ".py")
        text = bench.read_text()
        for option in re.findall(r"--[\w-]+", given.get("ARGS", "")):
            assert option == "--help" or f'"{option}"' in text, f"{bench.name} has no {option}"


def pip(arguments: list[str]) -> None:
    assert arguments[1] == "install"
    rest = iter(arguments[2:])
    for item in rest:
        if item == "-r":
            name = next(rest)
            path = Path(name).relative_to(INSTALLED) if name.startswith(INSTALLED) else name
            assert (CHECKOUT / path).is_file()
        elif item.startswith(INSTALLED):
            assert (CHECKOUT / Path(item).relative_to(INSTALLED) / "pyproject.toml").is_file()
        else:
            assert re.split(r"[<>=~]", item)[0] in LOCKED, f"{item} is in no lock file, so no test installs it"


def antsibull_changelog(arguments: list[str]) -> None:
    """Accept the command: test_release.py runs it."""
    assert arguments[1:] == ["release"]


def lab(arguments: list[str]) -> None:
    """Check `python3 lab.py VERB …`, which runs in a checkout."""
    script = "import sys; from lab import parser; parser().parse_args(sys.argv[1:])"
    command = [sys.executable, "-c", script, *arguments[2:]]
    done = subprocess.run(command, cwd=CHECKOUT / "tests/lab", capture_output=True, text=True, check=False)
    assert (arguments[1], done.returncode) == ("tests/lab/lab.py", 0), done.stderr


def cd(arguments: list[str]) -> None:
    assert arguments[1:] == [f"{INSTALLED}/tests/lab"]


def cp(arguments: list[str]) -> None:
    """Check the copy of the artifact that test_execution_environment.py makes, too."""
    assert arguments[1:] == ["natsops-jetstream-*.tar.gz", "$EE/"]


def verification(arguments: list[str]) -> None:
    """Accept the command: test_release.py runs it."""


def attestation(arguments: list[str]) -> None:
    """Check `gh attestation verify FILE …` against the comment of the workflow that attests the files."""
    workflow = (CHECKOUT / ".github/workflows/release.yml").read_text()
    documented = re.search(r"# (gh attestation verify FILE .*\n *#.*)", workflow)
    assert documented and [*arguments[:3], "FILE", *arguments[4:]] == documented[1].replace("#", "").split()


def ansible_rulebook(arguments: list[str]) -> None:
    given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    used = (CHECKOUT / "tests/support/rulebooks.py").read_text()
    assert [option for option in given if f'"{option}"' not in used] == []
    name = given["--rulebook"].removeprefix(PREFIX)
    assert (CHECKOUT / f"extensions/eda/rulebooks/{name}.yml").is_file(), f"there is no rulebook {name}"


def ansible_builder(arguments: list[str]) -> None:
    told = subprocess.run([*arguments[:2], "--help"], check=True, capture_output=True, text=True).stdout
    given = [item for item in arguments[2:] if item.startswith("-")]
    assert [option for option in given if not re.search(rf"(^|[ \[]){option}\b", told, re.MULTILINE)] == []
    path = arguments[arguments.index("-f") + 1].replace("$EE", "extensions/execution-environment")
    assert (CHECKOUT / path).is_file()


def insights(arguments: list[str]) -> None:
    """Check `python -m jetstream_insights JOB …`, `jetstream-insights JOB …` and `spark-submit … main.py JOB …`."""
    place = next(
        arguments.index(name) for name in ("jetstream_insights", "jetstream-insights", "main.py") if name in arguments
    )
    text = (CHECKOUT / "roles/nats_insights/files/jetstream_insights/cli.py").read_text()
    job, *options = arguments[place + 1 :]
    assert f'"{job}"' in text, f"there is no job {job}"
    assert [option for option in options if option.startswith("--") and f'"{option}"' not in text] == []
    started = re.findall(r"--[a-z-]+", (CHECKOUT / "roles/nats_insights/vars/main.yml").read_text())
    assert [option for option in arguments[1:place] if option.startswith("--") and option not in started] == []


def export(arguments: list[str]) -> None:
    """Check that the variables are read by the modules, or by awx.awx as documented in the playbook for AWX."""
    known = {variable for _option, variable, _key in module._SOURCES}
    known |= set(
        re.findall(r"CONTROLLER_\w+", "".join(path.read_text() for path in (CHECKOUT / "playbooks/awx").rglob("*.yml")))
    )
    assert [item for item in arguments[1:] if item.partition("=")[0] not in known] == []


def grep(arguments: list[str]) -> None:
    """Accept the command: tests/integration/test_guides.py runs it."""


RULES: dict[str, Callable[[list[str]], None]] = {
    "ansible": ansible,
    "ansible-builder": ansible_builder,
    "ansible-galaxy": ansible_galaxy,
    "ansible-playbook": ansible_playbook,
    "ansible-rulebook": ansible_rulebook,
    "antsibull-changelog": antsibull_changelog,
    "cd": cd,
    "cp": cp,
    "export": export,
    "gh": attestation,
    "gpgv": verification,
    "grep": grep,
    "jetstream-insights": insights,
    "make": make,
    "pip": pip,
    "python": insights,
    "python3": lab,
    "sha256sum": verification,
    "spark-submit": insights,
}


def is_step(command: Command) -> bool:
    """Return whether the command belongs to blocks that a test in tests/lab runs one after another."""
    return any(
        re.match(STEPS.get(block.path, "$^"), block.heading)
        for block in BLOCKS
        if block.language in SHELLS and command in block.commands
    )


@pytest.mark.parametrize("command", [*COMMANDS, *INLINE], ids=identify)
def test_each_command_is_valid_with_all_its_arguments(command: Command) -> None:
    arguments = shlex.split(command.text.replace("\\\n", " "), comments=True)
    if not is_step(command):
        assert arguments[0] in RULES, f"no rule for {arguments[0]}"
        RULES[arguments[0]](arguments)


@pytest.mark.parametrize("path", sorted({command.where.partition(":")[0] for command in COMMANDS}))
def test_some_test_runs_the_commands_of_each_document(path: str) -> None:
    if path in MAKE_DOCUMENTS:
        others = [one.text for one in COMMANDS if one.where.startswith(f"{path}:") and not one.text.startswith("make ")]
        assert others == []
    else:
        test, words = RUN_BY[path]
        assert words.format(path=path) in (CHECKOUT / test).read_text()


def test_each_playbook_is_one_for_ansible() -> None:
    names = {
        name
        for command in [*COMMANDS, *INLINE]
        for name in re.findall(rf"ansible-playbook ({PREFIX}[\w.]+)", command.text)
    }
    assert len(names) > 10
    # The playbook needs awx.awx; a separate test runs it with that collection.
    names.remove("natsops.jetstream.awx.configure")
    check = ["ansible-playbook", "--syntax-check", "-i", "localhost,", *sorted(names)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- Data ---------------------------------------------------------------------------------------------------------------


def check_value(name: str, spec: Mapping[str, Any], value: Any) -> None:
    """Assert that a variable may have this value; templates, which contain the reader's own values, are skipped."""
    if "{{" in json.dumps(value):
        value = json.loads(re.sub(r"\{\{.*?\}\}", "x", json.dumps(value)))
    if isinstance(value, str) and spec.get("type") not in ("str", "path", "raw", None) and value == "x":
        return
    result = ArgumentSpecValidator({name: dict(spec)}).validate({name: value})
    assert result.error_messages == [], f"{name}: {result.error_messages}"


def check_options(module: str, given: Mapping[str, Any]) -> None:
    """Assert that a module accepts these options; connection options may come from elsewhere."""
    options = module_options(module)
    names = {name for key, spec in options.items() for name in (key, *spec.get("aliases", []))}
    assert set(given) - names == set(), f"{module} takes no {sorted(set(given) - names)}"
    for name, value in given.items():
        if spec := options.get(name):
            check_value(name, {key: spec[key] for key in ("type", "elements", "choices") if key in spec}, value)
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict) and spec.get("suboptions"):
                    assert set(part) - set(spec["suboptions"]) == set(), f"{module}: {name}"
    missing = {name for name, spec in options.items() if spec.get("required")} - set(given)
    assert missing == set(), f"{module} needs {sorted(missing)}"


def actions(task: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if "." in name}


def check_task(task: Mapping[str, Any]) -> None:
    ((module, options),) = actions(task).items()
    if module.startswith(PREFIX):
        check_options(module, options or {})
    elif module.endswith("_role"):
        role = CHECKOUT / "roles" / options["name"].removeprefix(PREFIX)
        entry = options.get("tasks_from", "main")
        spec = role_specs(role)[entry]
        assert set(task.get("vars", {})) - set(spec["options"]) == set()
    else:
        module_options(module)


def check_play(play: Mapping[str, Any]) -> None:
    for group, options in play.get("module_defaults", {}).items():
        assert group == "group/natsops.jetstream.nats"
        assert set(options) <= set(module.CONNECTION_SPEC)
    for task in play["tasks"]:
        check_task(task)


def check_group(group: Mapping[str, Any]) -> None:
    assert set(group) <= {"hosts", "vars", "children"}
    for variables in [group.get("vars") or {}, *(group.get("hosts") or {}).values()]:
        check_variables(variables or {})


def check_variables(variables: Mapping[str, Any]) -> None:
    for name, value in variables.items():
        if name == "nats_connection":
            assert set(value) <= set(module.CONNECTION_SPEC)
        elif not name.startswith("ansible_"):
            assert name in role_options(), f"no role has the variable {name}"
            check_value(name, role_options()[name], value)


def check_source(source: Mapping[str, Any]) -> None:
    ((plugin, given),) = actions(source).items()
    assert set(given) <= set(source_options()[plugin.removeprefix(PREFIX)])


def check_yaml(data: Any) -> None:
    """Assert that the block is a valid play, task list, inventory, set of variables, source list of a rulebook, or
    document of accounts or assets."""
    if isinstance(data, list):
        assert data
        for item in data:
            check_play(item) if "hosts" in item else check_task(item)
    elif set(data) == {"sources"}:
        for source in data["sources"]:
            check_source(source)
    elif "document" in data:
        assets_document.read_document(data)
    elif "accounts" in data:
        assert read_document(data)
    elif all(
        isinstance(value, dict) and value and set(value) <= {"hosts", "vars", "children"} for value in data.values()
    ):
        for group in data.values():
            check_group(group)
    else:
        check_variables(data)


def check_message(message: str) -> None:
    """Assert that the code contains this message; dots represent names and numbers."""
    pattern = r"[^\"]{1,120}?".join(re.escape(part) for part in message.strip(" …").split("…"))
    assert re.search(pattern, SAID), f"no source has {message!r}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language not in SHELLS], ids=identify)
def test_each_block_of_data_is_right(block: Block) -> None:
    assert block.language in DATA, f"no rule for blocks in {block.language}"
    if block.language == "json":
        json.loads(block.text)
    elif block.language == "python":
        compile(block.text, block.where, "exec")
    elif block.language == "yaml" and block.path in SHOWN:
        assert block.path in (CHECKOUT / SHOWN[block.path]).read_text()
    elif block.language == "yaml":
        check_yaml(yaml.safe_load(block.text))
    elif block.language == "text":
        for message in block.text.splitlines():
            check_message(message)


# --- The rules themselves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "ansible-playbook natsops.jetstream.no_such -i inventory.yml",
        "ansible-playbook natsops.jetstream.deploy -e nats_server_no_such=1",
        "ansible-playbook natsops.jetstream.deploy --no-such",
        "ansible-playbook natsops.jetstream.report -e nats_cluster_batch=some",
        "ansible localhost -m natsops.jetstream.nats_stream -a 'stream=S no_such=1'",
        "ansible localhost -m natsops.jetstream.nats_cluster_health -a 'samples=many'",
        "make no-such",
        "make demo NOSUCH=1",
        "make bench ARGS='--no-such'",
        "pip install no-such",
        "ansible-galaxy collection install some.other",
        "ansible-rulebook --rulebook natsops.jetstream.no_such",
        "python -m jetstream_insights nothing --lake x",
        "python -m jetstream_insights gold --no-such x",
        "export NO_SUCH=1",
        "python3 tests/lab/lab.py kill --no-such n1",
        "rm -rf /",
    ],
)
def test_a_wrong_command_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        test_each_command_is_valid_with_all_its_arguments(Command("here:1", text))


@pytest.mark.parametrize(
    "text",
    [
        "nats_server_no_such: 1",
        "nats_server_port: no number",
        "nats: {hosts: {n1: {nats_server_no_such: 1}}}",
        "[{natsops.jetstream.nats_stream: {stream: S, no_such: 1}}]",
        "[{natsops.jetstream.nats_stream: {subjects: [s]}}]",
        "[{hosts: all, module_defaults: {group/natsops.jetstream.nats: {no_such: 1}}, tasks: []}]",
        "sources: [{natsops.jetstream.nats_advisories: {no_such: 1}}]",
        "nats_connection: {no_such: 1}",
    ],
)
def test_wrong_data_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check_yaml(yaml.safe_load(text))


def test_missing_message_is_found() -> None:
    with pytest.raises(AssertionError):
        check_message("the … is on fire")
