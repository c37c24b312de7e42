# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters of an inventory with many clusters, and the outcome of a playbook for each of them. Pure.

Ansible ends a play for all of its hosts if `any_errors_fatal` or a `run_once` task stops one host, and it ends a run if
all hosts of a play failed. Therefore each cluster needs its own run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..screen import MAX_NAMES, Page, cut, listing, one_line
from ..table import table_page
from ..units import human_seconds

SUCCEEDED, FAILED, NOT_STARTED = "succeeded", "failed", "not started"
#: The passwords for which Ansible prompts.
CONNECTION, BECOME = "connection", "become"
#: By key in Ansible's `context.CLIARGS`: the options that prompt, the password, and the option that reads it from a file.
_PROMPTS = {
    "ask_pass": (("-k", "--ask-pass"), CONNECTION, "--connection-password-file"),
    "become_ask_pass": (("-K", "--ask-become-pass"), BECOME, "--become-password-file"),
    "ask_vault_pass": (("-J", "--ask-vault-pass", "--ask-vault-password"), "vault default", "--vault-password-file"),
}
_VAULT_PROMPT = re.compile(r"(?:(?P<identity>.*)@)?prompt")

_RECAP = re.compile(r"^(\S+)\s+:\s+ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_FAILURE = re.compile(r"^(?:fatal|failed): \[([^\]\s]+)[^\]]*\].*?=> (?=\{)", re.MULTILINE)


@dataclass(frozen=True)
class FleetCluster:
    """A cluster or a supercluster. `pattern`: the hosts, for `nats_server_hosts`."""

    name: str
    pattern: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class ClusterOutcome:
    """The result of a run. `cause`: the first failure, with its host. `log`: path of the output; empty if not
    started."""

    cluster: FleetCluster
    status: str
    seconds: float = 0
    changed: int = 0
    cause: str = ""
    log: str = ""


def fleet_clusters(hosts: Mapping[str, Mapping[str, Any]], chosen: Sequence[str] = ()) -> list[FleetCluster]:
    """Return the clusters in the order of the inventory. `hosts`: `nats_server_cluster_group` and
    `nats_server_supercluster_groups` of each host, if set. `chosen`: names of clusters; empty for all.

    Raises ValueError if the cluster of a host is not set although the inventory has several clusters, or if no cluster
    has a chosen name.
    """
    found: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        groups = variables.get("nats_server_supercluster_groups") or ()
        found.setdefault(":".join(groups) or variables.get("nats_server_cluster_group") or "", []).append(host)
    without = found.pop("", [])
    if without and found:
        more = f" and {len(without) - MAX_NAMES} more" if len(without) > MAX_NAMES else ""
        raise ValueError(
            f"{', '.join(without[:MAX_NAMES])}{more}: nats_server_cluster_group is not set, so the cluster of these "
            "hosts is unknown. Set it to the inventory group of their cluster"
        )
    if without:
        found["nats"] = without
    clusters = [FleetCluster(pattern.replace(":", "-"), pattern, tuple(names)) for pattern, names in found.items()]
    if missing := set(chosen) - {cluster.name for cluster in clusters}:
        raise ValueError(
            f"The inventory has no cluster {', '.join(sorted(missing))}. Its clusters: "
            f"{', '.join(cluster.name for cluster in clusters)}"
        )
    return [cluster for cluster in clusters if not chosen or cluster.name in chosen]


def vault_password(identity: str) -> str:
    """Return the name of a vault's password in `prompts` and `answered`."""
    return f"vault {identity}"


def prompts(arguments: Mapping[str, Any]) -> list[str]:
    """Return the passwords for which this run prompts: `connection`, `become`, and `vault` with the identity of each
    vault. `arguments`: Ansible's command line (`CLIARGS`)."""
    found = [password for key, (_options, password, _file) in _PROMPTS.items() if arguments.get(key)]
    return [*found, *filter(None, (_prompted(str(source)) for source in arguments.get("vault_ids") or ()))]


def _prompted(source: str) -> str:
    """Return the name of the password for which a value of --vault-id prompts; empty if it names a file."""
    found = _VAULT_PROMPT.match(source)
    return vault_password(found["identity"] or "default") if found else ""


def answered(command: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """Return a command that reads the passwords of `prompts` from these files instead of prompting.

    Raises ValueError if an option that prompts is combined with others (-bK) or set in ansible.cfg.
    """
    asking = {option: (password, file) for options, password, file in _PROMPTS.values() for option in options}
    changed: list[str] = []
    used = set()
    words = iter(command)
    for word in words:
        option, equals, value = word.partition("=")
        if word in asking:
            password, file_option = asking[word]
            changed += [file_option, files[password]]
        elif option == "--vault-id":
            source = value if equals else next(words, "")
            password = _prompted(source)
            changed += [option, f"{password.partition(' ')[2]}@{files[password]}" if password else source]
        else:
            changed.append(word)
            continue
        used.add(password)
    if missing := [password for password in files if password not in used]:
        raise ValueError(
            f"{', '.join(missing)}: the option that prompts for this password cannot be combined with others (-bK) or "
            "set in ansible.cfg: use --ask-become-pass or --vault-id NAME@prompt"
        )
    return changed


def limit_refusal(arguments: Mapping[str, Any]) -> str:
    """Return why this run is refused because of its limit; empty if it has none."""
    if not arguments.get("subset"):
        return ""
    return f"--limit {arguments['subset']}: the run of each cluster would have no hosts. Select clusters instead"


def cluster_command(command: Sequence[str], own: str, playbook: str, cluster: FleetCluster) -> list[str]:
    """Return the command of this run with another playbook, for the hosts of one cluster. `own`: the playbook of this
    run. Raises ValueError if the command does not contain it exactly once."""
    places = [place for place, part in enumerate(command) if place and part == own]
    if len(places) != 1:
        raise ValueError(f"{own}: the command of this run must contain its playbook exactly once: {len(places)} found")
    changed = [*command]
    changed[places[0]] = playbook if re.search(r"[./]", playbook) else f"natsops.jetstream.{playbook}"
    return [*changed, "-e", json.dumps({"nats_server_hosts": cluster.pattern})]


def outcome(cluster: FleetCluster, status: int, output: str, seconds: float, log: str) -> ClusterOutcome:
    """Return the outcome of a run from its exit status and output."""
    changed = sum(int(count) for _host, _ok, count, _unreachable, _failed in _RECAP.findall(output))
    cause = "" if status == 0 else next(_causes(output), f"exit status {status}")
    return ClusterOutcome(cluster, SUCCEEDED if status == 0 else FAILED, seconds, changed, cut(cause), log)


def fleet_page(outcomes: Sequence[ClusterOutcome], playbook: str) -> Page:
    """Return the table of the outcomes, the failed clusters first."""
    order = {FAILED: 0, NOT_STARTED: 1, SUCCEEDED: 2}
    ordered = sorted(outcomes, key=lambda one: order[one.status])
    rows = [
        (
            one.cluster.name,
            one.status,
            human_seconds(one.seconds) if one.log else "",
            len(one.cluster.hosts),
            one.changed,
        )
        for one in ordered
    ]
    table = table_page(f"{playbook} on each cluster", ("cluster", "result", "time", "hosts", "changes"), rows)
    return table + listing([f"{one.cluster.name}: {one.cause} (output: {one.log})" for one in ordered if one.cause])


def refusal(outcomes: Sequence[ClusterOutcome]) -> str:
    """Return why the fleet's run is not a success; empty if every cluster succeeded."""
    failed = [one.cluster.name for one in outcomes if one.status == FAILED]
    waiting = sum(one.status == NOT_STARTED for one in outcomes)
    if not failed:
        return ""
    more = f" and {len(failed) - MAX_NAMES} more" if len(failed) > MAX_NAMES else ""
    rest = f"{len(outcomes) - len(failed) - waiting} finished{f', {waiting} not started' if waiting else ''}"
    return (
        f"{len(failed)} of {len(outcomes)} clusters failed: {', '.join(failed[:MAX_NAMES])}{more}; {rest}. Fix the causes "
        "above and run the playbook again."
    )


def _causes(output: str) -> Iterator[str]:
    """Yield the failures in the output of Ansible's default callback that were not ignored, in their order; at the end
    an error outside of tasks."""
    for found in _FAILURE.finditer(output):
        try:
            result, end = json.JSONDecoder().raw_decode(output, found.end())
        except ValueError:
            continue
        if "skip_reason" in result or output[end:].lstrip().startswith("...ignoring"):
            continue
        message = result.get("msg") or "no message"
        text = "\n".join(map(str, message)) if isinstance(message, list) else str(message)
        yield f"{found.group(1)}: {one_line(text)}"
    for line in output.splitlines():
        if re.match(r"ERROR!|\[ERROR\]:", line):
            yield line
