# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all checks, docs/reference/insights_checks.md, from the registry. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import MARGIN, MONITOR_METADATA, SKIP_METADATA, Check, Threshold
from jetstream_insights.findings.subjects import VIEWS

_ROOMS = {
    "FLEET": "Snapshots of a fleet",
    "SERVER": "Servers",
    "HOST": "Hosts",
    "CLUSTER": "Clusters",
    "META": "The meta group",
    "RAFT": "Raft groups",
    "JETSTREAM": "Streams and consumers, as `nats audit` checks them",
    "STREAM": "Streams",
    "CONSUMER": "Consumers",
    "BACKUP": "Backups",
    "ASSETS": "Documents of assets",
    "ACCOUNTS": "Accounts",
    "CONN": "Clients",
    "ROUTE": "Routes",
    "GATEWAY": "Gateways",
    "LEAF": "Leafnodes",
    "CAPACITY": "Capacity",
}

_HEAD = f"""# Checks of the fleet insights

[Fleet insights](../insights.md#findings) describes how to run the checks, and their results.

A check tests the rows of a *view*: its rule is a Spark SQL expression over the view's columns, shown here as it is applied.
`:name` is a threshold. Rows outside the check's *scope* have no result; a row without a column that the check *needs* is
`unknown`, which is never a pass. Codes below 100 are those of `nats audit`, with the same meaning.

Thresholds are set by name in the file of `--thresholds`. A stream or consumer can override them in its metadata:
`natsops.insights.NAME`, or the key of `nats server check` if one is given below (`{MONITOR_METADATA}…`, where `0` is
ignored). `{SKIP_METADATA}` lists checks to skip for the asset, separated by commas.

"""


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD + f"There are {len(REGISTRY.checks)} checks.\n"
    yield "| check | severity | finding |"
    yield "| --- | --- | --- |"
    checks = sorted(
        REGISTRY.checks.values(), key=lambda check: (list(_ROOMS).index(check.code.split("_")[0]), check.code)
    )
    for check in checks:
        yield f"| [{check.code}](#{check.code.lower()}) | {check.severity} | {_cell(check.title)} |"
    room = ""
    for check in checks:
        mine = check.code.split("_")[0]
        if mine != room:
            room = mine
            yield from ("", f"## {_ROOMS[room]}")
        yield from _section(check)


def _section(check: Check) -> Iterator[str]:
    view = VIEWS[check.view]
    what = "over the evaluated period" if view.period else "in one snapshot"
    tables = ", ".join(f"`{name}`" for name in view.tables)
    yield from ("", f"### {check.code}", "", f"**{check.title}** ({check.severity}). {check.rationale}", "")
    yield f"- about: {view.kind}, {what}; view `{view.name}` of {tables}"
    if check.applies != "true":
        yield f"- scope: {_code(check.applies)}"
    needs = [f"`{name}`" for name in check.needs] + ([f"`{check.knows}`"] if check.knows else [])
    if needs:
        yield f"- needs: {', '.join(needs)}"
    yield f"- fails: {_code(check.fails)}"
    if check.worse:
        yield f"- critical when: {_code(check.worse)}"
    if check.measured_in:
        yield f"- value: in {check.measured_in}"
    for threshold in check.thresholds:
        yield f"- threshold {_threshold(check, threshold)}"
    if check.steady:
        yield f"- ends: when it is {MARGIN:.0%} away from the threshold".replace("%", " %")
    yield f"- remedy: {check.remedy}"
    yield f"- source: {check.source}"


def _threshold(check: Check, threshold: Threshold) -> str:
    unit = f" {threshold.unit}" if threshold.unit else ""
    shared = f" (`{MONITOR_METADATA}{threshold.monitor}`)" if threshold.monitor else ""
    return f"`{check.name(threshold.key)}`: {threshold.meaning}, by default {threshold.default:.15g}{unit}{shared}"


def _code(text: str) -> str:
    """Return code in Markdown; a backtick of its own needs a longer fence."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_VIEWS_HEAD = """<!-- Written by `make views`; edit the views instead. -->

# Views of the fleet insights

An [own check](../insights.md#own-checks) names its view as `subject`; its expressions may use the view's columns, listed here
with their types in Spark SQL. Rows of a view *of one snapshot* are judged for the last snapshot of each hour, rows of a view
*of a day* once.

Durations and ages are in seconds, sizes in bytes, rates per second, and `cpu` is in percent of one core. A column that has the
name of a server's field has that field's meaning; the columns of the [tables](insights_tables.md) are described there.
"""


def views_page(columns: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Return the page of all views, docs/reference/insights_views.md, from their columns, as Spark reports them."""
    lines = [_VIEWS_HEAD, "| view | a row for each | of | made from |", "| --- | --- | --- | --- |"]
    lines += [
        f"| [{view.name}](#{view.name}) | {view.kind} | {'a day' if view.period else 'one snapshot'} | {', '.join(view.tables)} |"
        for view in VIEWS.values()
    ]
    for view in VIEWS.values():
        named = sorted(columns[view.name])
        lines += ["", f"## {view.name}", "", ", ".join(f"`{name}` {_cell(type_)}" for name, type_ in named)]
    return "\n".join(lines) + "\n"
