# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables that a person likes to read, from the model that nats_cluster_info returns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(size: float) -> str:
    """Bytes in the largest binary unit that leaves at least one, such as ``1.5 GiB``."""
    value, unit = float(size), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def human_seconds(seconds: float) -> str:
    """Seconds in the two largest units, such as ``3d4h``, ``12m5s`` or ``35ms``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    rest, parts = int(seconds), []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], totals: Sequence[Any] = ()) -> str:
    """A framed table under a centred title. Columns whose cells are all numbers or sizes stand on the right.

    :param totals: a last row below a line; empty for none
    """
    body = [[_cell(value) for value in row] for row in rows]
    foot = [[_cell(value) for value in totals]] if totals else []
    widths = [max(len(line[index]) for line in [list(columns), *body, *foot]) for index in range(len(columns))]
    # A title that is wider than its columns widens the last of them.
    widths[-1] += max(0, len(title) - (sum(widths) + 3 * (len(widths) - 1)))
    right = [all(_numeric(row[index]) for row in rows) and bool(rows) for index in range(len(columns))]

    def rule(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(cells, widths, right)
        )
        return "│ " + " │ ".join(aligned) + " │"

    inner = sum(widths) + 3 * (len(widths) - 1)
    lines = [rule("╭", "─", "╮"), "│ " + title.center(inner) + " │", rule("├", "┬", "┤"), line(columns), rule("├", "┼", "┤")]
    lines += [line(cells) for cells in body]
    if foot:
        lines += [rule("├", "┼", "┤"), line(foot[0])]
    return "\n".join([*lines, rule("╰", "┴", "╯")])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _numeric(value: Any) -> bool:
    text = _cell(value)
    return not isinstance(value, bool) and (text == "" or (text[0].isdigit() and text.count(".") <= 1))


def servers_table(info: dict[str, Any]) -> str:
    """The servers, with the columns of ``nats server ls``."""
    servers = info["servers"]
    rows = [
        (
            server["name"], server["cluster"], server["host"], server["version"], server["jetstream"],
            server["connections"], server["subscriptions"], server["routes"], server["gateways"],
            human_bytes(server["mem"]), f"{server['cpu']:.0f}", server["cores"], server["slow_consumers"],
            human_seconds(server["uptime"]), human_seconds(server["rtt"]),
        )
        for server in servers
    ]
    totals = (
        "", len({server["cluster"] for server in servers}), len(servers), "",
        sum(server["jetstream"] for server in servers), sum(server["connections"] for server in servers),
        sum(server["subscriptions"] for server in servers), "", "",
        human_bytes(sum(server["mem"] for server in servers)), "", "",
        sum(server["slow_consumers"] for server in servers), "", "",
    )
    columns = ("Name", "Cluster", "Host", "Version", "JS", "Conns", "Subs", "Routes", "GWs", "Mem", "CPU %", "Cores", "Slow",
               "Uptime", "RTT")
    return table("Server Overview", columns, rows, totals)


def jetstream_table(info: dict[str, Any]) -> str:
    """What each server holds, with the columns of ``nats server report jetstream``; ``*`` marks the meta leader.

    Every server counts its own replicas, so that the totals count an R3 stream three times.
    """
    leader = (info.get("meta") or {}).get("leader")
    servers = [server for server in info["servers"] if server.get("js")]
    fields = ("streams", "consumers", "messages", "bytes", "memory", "storage", "api_total", "api_errors")
    sizes = {"bytes", "memory", "storage"}

    def cells(numbers: dict[str, int]) -> list[Any]:
        return [human_bytes(numbers[field]) if field in sizes else numbers[field] for field in fields]

    rows = [
        [server["name"] + ("*" if server["name"] == leader else ""), server["cluster"], *cells(server["js"])]
        for server in servers
    ]
    totals = ["", "", *cells({field: sum(server["js"][field] for server in servers) for field in fields})]
    columns = ("Server", "Cluster", "Streams", "Consumers", "Messages", "Bytes", "Memory", "File", "API Req", "API Err")
    return table("JetStream Summary, replicas counted on each server", columns, rows, totals)


def meta_table(info: dict[str, Any]) -> str:
    """The members of the meta group as its leader sees them."""
    meta = info.get("meta")
    if not meta:
        return "No JetStream meta group was found."
    rows = [
        (
            peer["name"], peer["id"], "yes" if peer["leader"] else "", peer["current"], peer["online"],
            human_seconds(peer["active"]), peer["lag"],
        )
        for peer in meta["replicas"]
    ]
    title = f"RAFT Meta Group, {meta['quorum']} of {meta['size']} make a quorum"
    return table(title, ("Name", "ID", "Leader", "Current", "Online", "Active", "Lag"), rows)


def report(info: dict[str, Any]) -> str:
    """The cluster report: servers, JetStream summary, meta group, and whatever is wrong.

    :param info: what nats_cluster_info returns
    """
    parts = [servers_table(info), jetstream_table(info), meta_table(info)]
    problems = info.get("problems") or []
    parts.append("\n".join(["Problems:", *(f"  {one['severity']}: {one['message']}" for one in problems)])
                 if problems else "No problems found.")
    return "\n\n".join(parts)
