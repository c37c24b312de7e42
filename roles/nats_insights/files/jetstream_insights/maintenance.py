# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that keeps a lake small: minutes into hours and hours into days, and out what is too old or was replaced.

Each step writes the new beside the old, then lets one small file point to it, then removes the old: it may be killed anywhere,
tables stay as they are, and the next run goes on.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry import TABLES

from jetstream_insights.fields import columns_of
from jetstream_insights.jobs import Say
from jetstream_insights.lake import APART, COLUMNS, PACK, Lake, new_run, place

#: Bytes of a pack's file, compressed, after which the next one begins: gzip cannot be read by two tasks at once.
_PACKED = 32 << 20
#: Bytes of a table's file in silver that is worth reading alone.
_LARGE = 128 << 20

#: Where the pointers of the hours of silver are.
_LAYERS = ("silver", *(f"silver/{table}" for table in APART))


@dataclass(frozen=True)
class Keep:
    """How long things are kept. `bronze` and `silver`: days, 0 for ever; `unused`: for how long a reader may still be reading
    what was replaced, or a collector be writing what is not complete."""

    bronze: int = 0
    silver: int = 0
    unused: timedelta = timedelta(days=1)


@dataclass
class Maintained:
    """What was done: hours packed, days compacted, days of bronze and hours of silver removed as too old, folders and files
    removed that nothing pointed to, and days of bronze kept although too old, because silver was not made of them."""

    packed: int = 0
    compacted: int = 0
    bronze_days: int = 0
    silver_hours: int = 0
    unused: int = 0
    unmade: int = 0


def maintain(lake: Lake, now: datetime, keep: Keep, say: Say) -> Maintained:
    """Do what is due at a moment."""
    done = Maintained()
    _expire(lake, now, keep, done, say)
    _pack(lake, now, keep, done, say)
    _compact(lake, now, keep, done, say)
    _remove_unused(lake, now, keep, done)
    return done


def _hours(lake: Lake, folder: str) -> list[tuple[datetime, str]]:
    """Return the hours of a folder with their names in it, such as date=2026-11-21/hour=18."""
    return [hour for day in lake.days(folder) for hour in _hours_of(lake, folder, day)]


def _hours_of(lake: Lake, folder: str, day: datetime) -> list[tuple[datetime, str]]:
    name = f"date={day:%Y-%m-%d}"
    hours = (child for child in lake.names(f"{folder}/{name}") if child.startswith("hour="))
    return [(day + timedelta(hours=int(child[5:7])), f"{name}/{child}") for child in hours]


# --- what is too old ----------------------------------------------------------------------------------------------------


def _expire(lake: Lake, now: datetime, keep: Keep, done: Maintained, say: Say) -> None:
    """Remove days of bronze and hours of silver. Bronze goes only when silver was made of it, or would be too old as well."""
    lake.delete("bronze/_expired")  # of a run that was killed
    silver_end = now - timedelta(days=keep.silver) if keep.silver else datetime.min.replace(tzinfo=timezone.utc)
    for day in lake.days("bronze/manifest") if keep.bronze else ():
        if day + timedelta(days=1 + keep.bronze) > now:
            continue
        name = f"date={day:%Y-%m-%d}"
        hours = _hours_of(lake, "bronze/manifest", day)
        if not all(_made(lake, hour) or hour < silver_end for hour, _name in hours):
            say(f"{name} of bronze is kept: silver was not made of all its snapshots")
            done.unmade += 1
            continue
        # What no manifest names is not there. A half removed folder must not look like a day with fewer snapshots.
        lake.move(f"bronze/manifest/{name}", f"bronze/_expired/{secrets.token_hex(4)}")
        lake.delete("bronze/_expired")
        for table in lake.names("bronze"):
            lake.delete(f"bronze/{table}/{name}")
        done.bronze_days += 1
    for layer in _LAYERS if keep.silver else ():
        for hour, name in _hours(lake, f"{layer}/_published"):
            if hour + timedelta(hours=1) <= silver_end:
                lake.delete(f"{layer}/_published/{name}")
                done.silver_hours += layer == "silver"


def _made(lake: Lake, hour: datetime) -> bool:
    """Return whether silver holds all snapshots of an hour."""
    return set(lake.snapshots(hour)) <= set(lake.pointer("silver", hour).get("inputs", ()))


# --- bronze: minutes into hours -----------------------------------------------------------------------------------------


def _pack(lake: Lake, now: datetime, keep: Keep, done: Maintained, say: Say) -> None:
    """Join the files of an hour's snapshots, once silver was made of them: nobody reads them soon. An hour with something in
    quarantine is left as it is: a torn file would take those with it that come after."""
    for hour, name in _hours(lake, "bronze/manifest"):
        files = lake.names(f"bronze/manifest/{name}")
        if hour + timedelta(hours=1) + keep.unused > now or len(files) < 2 or not _made(lake, hour):
            continue
        if lake.pointer("silver", hour)["quarantined"]:
            continue
        manifests = dict(_readable(lake, hour))
        packs = {file for file in files if file.endswith(PACK)}
        loose = {f"{snapshot}.json" for snapshot, (_manifest, packed) in manifests.items() if not packed}
        held = {f"{snapshot}.json" for snapshot in manifests} - loose  # left by a run that was killed
        if len(packs) + len(loose) > 1:
            _write_pack(lake, hour, name, [manifest for manifest, _packed in manifests.values()])
            held |= packs | loose
            done.packed += 1
            say(f"{name} of bronze: {len(manifests)} snapshots packed")
        for file in held & set(files):
            lake.delete(f"bronze/manifest/{name}/{file}")


def _readable(lake: Lake, hour: datetime) -> Iterator[tuple[str, tuple[dict[str, Any], bool]]]:
    """Yield the manifests of an hour by their snapshots, and whether a pack holds them. Others stay where they are."""
    for snapshot, packed in sorted(lake.manifests(hour).items()):
        try:
            yield snapshot, (lake.manifest(hour, snapshot, packed), bool(packed))
        except ValueError:
            continue


def _write_pack(lake: Lake, hour: datetime, name: str, manifests: Sequence[dict[str, Any]]) -> None:
    """Write the files of each table into few, then the manifests that name them."""
    pack = f"{new_run()}-pack"
    new_paths: dict[str, str] = {}
    for table in sorted({table for manifest in manifests for table in manifest["tables"]}):
        files = [file["path"] for manifest in manifests for file in manifest["tables"].get(table, {}).get("files", ())]
        there = set(lake.names(f"bronze/{table}/{name}"))
        found = [path for path in files if path.rpartition("/")[2] in there]
        for suffix in (".jsonl.gz", COLUMNS):
            for number, group in enumerate(_groups(lake, [path for path in found if path.endswith(suffix)])):
                target = f"{table}/{name}/{pack}-{number}{suffix}"
                sources = [f"bronze/{path}" for path in group]
                if suffix == COLUMNS:
                    columns = columns_of(TABLES[table])
                    lake.join_columns(sources, f"bronze/{target}", columns, f"bronze/_incoming/{pack}")
                else:
                    lake.concatenate(sources, f"bronze/{target}")
                new_paths.update(dict.fromkeys(group, target))
    for manifest in manifests:
        for reported in manifest["tables"].values():
            for file in reported["files"]:
                file["path"] = new_paths.get(file["path"], file["path"])
    text = "".join(json.dumps(manifest, separators=(",", ":")) + "\n" for manifest in manifests)
    lake.replace_text(f"bronze/manifest/{name}/{pack}{PACK}", text)


def _groups(lake: Lake, paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield files that go into one file together."""
    group: list[str] = []
    size = 0
    for path in dict.fromkeys(paths):
        bytes_ = lake.size(f"bronze/{path}")[1]
        if group and size + bytes_ > _PACKED:
            yield group
            group, size = [], 0
        group.append(path)
        size += bytes_
    if group:
        yield group


# --- silver: hours into days --------------------------------------------------------------------------------------------


def _compact(lake: Lake, now: datetime, keep: Keep, done: Maintained, say: Say) -> None:
    """Write the tables of a day whose hours were made apart into a folder of the day."""
    days: dict[datetime, list[datetime]] = defaultdict(list)
    for hour, _name in _hours(lake, "silver/_published"):
        days[datetime.combine(hour.date(), time(), timezone.utc)].append(hour)
    for day, hours in sorted(days.items()):
        if day + timedelta(days=1) + keep.unused > now:
            continue
        pointers = {hour: lake.pointer("silver", hour) for hour in hours}
        apart = [hour for hour, pointer in pointers.items() if "day" not in pointer]
        if not apart or len(hours) == 1 or not _small(lake, apart, pointers):
            continue
        run = new_run()
        for table in lake.names("silver"):
            frame = None if table.startswith("_") or table in APART else lake.read("silver", table, hours)
            if frame is not None:
                lake.write_whole_day(table, run, day, frame, _LARGE)
        for hour, pointer in pointers.items():
            if lake.pointer("silver", hour) == pointer:  # it was not made again meanwhile
                lake.repoint("silver", hour, {**pointer, "day": run})
        done.compacted += 1
        say(f"{day:%Y-%m-%d} of silver: {len(apart)} of {len(hours)} hours compacted")


def _small(lake: Lake, hours: Sequence[datetime], pointers: dict[datetime, dict[str, Any]]) -> bool:
    """Return whether the files of these hours are small on average: large ones gain nothing."""
    count = bytes_ = 0
    for hour in hours:
        for table in lake.names("silver"):
            name = f"silver/{table}/run={pointers[hour]['run']}/{place(hour)}"
            if lake.exists(name):
                files, size = lake.size(name)
                count, bytes_ = count + files, bytes_ + size
    return bytes_ < count * _LARGE


# --- what nothing points to ---------------------------------------------------------------------------------------------


def _remove_unused(lake: Lake, now: datetime, keep: Keep, done: Maintained) -> None:
    """Remove what was replaced, and what was left by whoever was killed."""
    limit = now - keep.unused
    of_days = [(layer, _used_days(lake, layer)) for layer in ("gold", "findings")]
    for layer, used in (("silver", _used_hours(lake)), *of_days):
        for table in lake.names(layer):
            for run in lake.names(f"{layer}/{table}"):
                if run.startswith("run=") and begun(run.removeprefix("run=")) < limit:
                    done.unused += _remove_run(lake, f"{layer}/{table}", run, used)
    for snapshot in lake.names("bronze/_incoming"):
        if begun(snapshot) < limit:
            lake.delete(f"bronze/_incoming/{snapshot}")
            done.unused += 1
    _remove_unnamed(lake, limit, done)


def _used_hours(lake: Lake) -> set[str]:
    """Return the folders of runs that the hours of silver point to."""
    used = set()
    for layer in _LAYERS:
        for hour, _name in _hours(lake, f"{layer}/_published"):
            pointer = lake.pointer(layer, hour)
            used.add(
                f"run={pointer['day']}/date={hour:%Y-%m-%d}"
                if "day" in pointer
                else f"run={pointer['run']}/{place(hour)}"
            )
    return used


def _used_days(lake: Lake, layer: str) -> set[str]:
    """Return the folders of runs that the days of a layer point to."""
    folder, suffix = f"{layer}/_published", ".json"
    names = [name for name in lake.names(folder) if name.endswith(suffix)]
    return {
        f"run={json.loads(lake.read_text(f'{folder}/{name}'))['run']}/{name.removesuffix(suffix)}" for name in names
    }


def begun(name: str) -> datetime:
    """Return when a run or a snapshot of this name began; one that is called otherwise is taken for new."""
    for form in ("%Y%m%dT%H%M%S.%fZ", "%Y%m%dT%H%M%SZ"):
        try:
            return datetime.strptime(name.partition("-")[0], form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
    return datetime.max.replace(tzinfo=timezone.utc)


def _remove_run(lake: Lake, folder: str, run: str, used: set[str]) -> int:
    """Remove the hours of a run that nothing points to, and the run when none is left; return how many folders that were."""
    kept = removed = 0
    for day in lake.days(f"{folder}/{run}"):
        name = f"date={day:%Y-%m-%d}"
        if f"{run}/{name}" in used:
            kept += 1
            continue
        for hour in lake.names(f"{folder}/{run}/{name}"):
            if f"{run}/{name}/{hour}" in used:
                kept += 1
            else:
                lake.delete(f"{folder}/{run}/{name}/{hour}")
                removed += 1
    if not kept:
        lake.delete(f"{folder}/{run}")
        removed += not removed
    return removed


def _remove_unnamed(lake: Lake, limit: datetime, done: Maintained) -> None:
    """Remove files of bronze that no manifest names, and that no collector is about to name."""
    for hour, name in _hours(lake, "bronze/manifest"):
        if hour + timedelta(hours=1) > limit:
            continue
        manifests = lake.manifests(hour)
        readable = dict(_readable(lake, hour))
        if len(readable) < len(manifests):
            continue  # who knows what the others name
        tables = [table for manifest, _packed in readable.values() for table in manifest["tables"].values()]
        named = {file["path"] for table in tables for file in table["files"]}
        for table in lake.names("bronze"):
            files = [] if table == "manifest" or table.startswith("_") else lake.names(f"bronze/{table}/{name}")
            for file in files:
                path = f"{table}/{name}/{file}"
                if path not in named and lake.modified(f"bronze/{path}") < limit:
                    lake.delete(f"bronze/{path}")
                    done.unused += 1
