# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that keeps a lake small: it joins minutes into hours and hours into days, and removes expired and replaced files.

Each step writes new files next to the old ones and then switches one small pointer file: the job may be killed at any time,
tables stay intact, and the next run continues. A later run removes the old files, when no reader can still be using them.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import TABLES

from jetstream_insights.fields import bronze_schema
from jetstream_insights.lake import APART, COLUMNS, FACTS, JUDGED, PACK, Lake, home_folder, new_run, place
from jetstream_insights.silver_job import Say

#: Bytes of a pack's file, compressed, after which a new one begins: two tasks cannot share one gzip file.
_PACKED = 32 << 20
#: Snapshots that are removed within this number of days are not packed: rewriting them costs more than it saves.
_BRIEF = 7
#: Bytes of a silver file beyond which joining it with others gains nothing.
_LARGE = 128 << 20

#: The layers with pointers of silver hours.
_LAYERS = ("silver", *(f"silver/{table}" for table in APART))
#: The file with the paths of unreferenced files and folders, each with the time since when it is unreferenced.
_UNUSED = "_unused.json"


@dataclass(frozen=True)
class RetentionTimes:
    """Retention times. `bronze`, `silver` and `gold` (which includes the findings): days, 0 for ever; `unused`: how long a
    reader may still use replaced files, or a job or a collector may be writing incomplete ones."""

    bronze: int = 0
    silver: int = 0
    gold: int = 0
    unused: timedelta = timedelta(days=1)


@dataclass
class Maintained:
    """The result: hours packed, days compacted, expired days of bronze, hours of silver and days of gold and findings,
    unreferenced folders and files that were removed, and expired days of bronze that were kept because silver was not made
    from them."""

    packed: int = 0
    compacted: int = 0
    bronze_days: int = 0
    silver_hours: int = 0
    gold_days: int = 0
    unused: int = 0
    unmade: int = 0


def maintain(lake: Lake, now: datetime, keep: RetentionTimes, say: Say) -> Maintained:
    """Run the steps that are due at `now`."""
    done = Maintained()
    # This step is first because readers may still be using the files that the other steps replace.
    _remove_unused(lake, now, keep, done)
    _expire(lake, now, keep, done, say)
    _pack(lake, now, keep, done, say)
    _compact(lake, now, keep, done, say)
    return done


def _hours(lake: Lake, folder: str) -> list[tuple[datetime, str]]:
    """Return the hours of a folder with their names in it, such as date=2026-11-21/hour=18."""
    return [hour for day in lake.days(folder) for hour in _list_day_hours(lake, folder, day)]


def _list_day_hours(lake: Lake, folder: str, day: datetime) -> list[tuple[datetime, str]]:
    name = f"date={day:%Y-%m-%d}"
    hours = (child for child in lake.files.names(f"{folder}/{name}") if child.startswith("hour="))
    return [(day + timedelta(hours=int(child[5:7])), f"{name}/{child}") for child in hours]


# --- expiry -------------------------------------------------------------------------------------------------------------


def _expire(lake: Lake, now: datetime, keep: RetentionTimes, done: Maintained, say: Say) -> None:
    """Remove references to expired days of bronze and gold and hours of silver.

    Bronze expires only if silver has it or expired, too.
    """
    lake.files.delete("bronze/_expired")  # of a run that was killed
    silver_end = now - timedelta(days=keep.silver) if keep.silver else datetime.min.replace(tzinfo=timezone.utc)
    for day in lake.days("bronze/manifest") if keep.bronze else ():
        if day + timedelta(days=1 + keep.bronze) > now:
            continue
        name = f"date={day:%Y-%m-%d}"
        hours = _list_day_hours(lake, "bronze/manifest", day)
        judged = {f"{of}/{file}" for _hour, of in hours for file in lake.files.names(f"bronze/manifest/{of}")}
        if not all(_made(lake, hour) or hour < silver_end for hour, _name in hours):
            say(f"{name} of bronze is kept: silver does not have all its snapshots")
            done.unmade += 1
            continue
        # A partly removed folder must not appear as a day with fewer snapshots.
        expired = f"bronze/_expired/{secrets.token_hex(4)}"
        lake.files.move(f"bronze/manifest/{name}", f"{expired}/{name}")
        # Restore files that arrived after the decision, such as an archive that was just imported.
        for _hour, of in _list_day_hours(lake, expired, day):
            for file in lake.files.names(f"{expired}/{of}"):
                if f"{of}/{file}" not in judged:
                    lake.files.move(f"{expired}/{of}/{file}", f"bronze/manifest/{of}/{file}")
        lake.files.delete("bronze/_expired")
        done.bronze_days += 1
    for layer in _LAYERS if keep.silver else ():
        for hour, name in _hours(lake, f"{layer}/_published"):
            if hour + timedelta(hours=1) <= silver_end:
                lake.files.delete(f"{layer}/_published/{name}")
                done.silver_hours += layer == "silver"
    for file in lake.files.names("silver/_compacted") if keep.silver else ():
        if _date(file) + timedelta(days=1) <= silver_end:
            lake.files.delete(f"silver/_compacted/{file}")
    # A day without silver cannot be made again; on a day with some silver, the facts are the only data of the other hours.
    for layer in (FACTS, JUDGED) if keep.silver else ():
        for day in lake.days(f"{layer}/_published"):
            if day + timedelta(days=1) <= silver_end:
                lake.files.delete(f"{layer}/_published/{place(day.date())}")
    if keep.gold:
        _expire_gold(lake, now - timedelta(days=keep.gold), done)


def _expire_gold(lake: Lake, end: datetime, done: Maintained) -> None:
    """Remove references to the histories and findings of days before `end`, with the hourly data from which they were made."""
    for layer in ("gold", "findings"):
        files = [file for file in lake.files.names(f"{layer}/_published") if file.endswith(".json")]
        expired = {file: _date(file) for file in files if _date(file) + timedelta(days=1) <= end}
        if expired:
            # The snapshots of these days have been read, even if no table of them is left.
            lake.record_read(max(expired.values()).date())
        for file in expired:
            lake.files.delete(f"{layer}/_published/{file}")
            done.gold_days += layer == "gold"
    for layer in (FACTS, JUDGED):
        for day in lake.days(f"{layer}/_published"):
            if day + timedelta(days=1) <= end:
                lake.files.delete(f"{layer}/_published/{place(day.date())}")


def _date(file: str) -> datetime:
    """Return the day in the name of a file, such as date=2026-11-21.json."""
    return datetime.fromisoformat(file.removeprefix("date=").removesuffix(".json")).replace(tzinfo=timezone.utc)


def _made(lake: Lake, hour: datetime) -> bool:
    """Return whether silver has all snapshots of an hour."""
    return set(lake.snapshots(hour)) <= set(lake.pointer("silver", hour).get("inputs", ()))


# --- bronze: minutes into hours -----------------------------------------------------------------------------------------


def _pack(lake: Lake, now: datetime, keep: RetentionTimes, done: Maintained, say: Say) -> None:
    """Join the files of an hour's snapshots, unless they expire soon, after silver was made from them, because they are rarely
    read again. An hour with quarantined data is left unchanged: a torn file would make the files joined after it unreadable."""
    for hour, name in _hours(lake, "bronze/manifest") if not 0 < keep.bronze <= _BRIEF else ():
        few = len(lake.files.names(f"bronze/manifest/{name}")) < 2
        if hour + timedelta(hours=1) + keep.unused > now or few or not _made(lake, hour):
            continue
        if lake.pointer("silver", hour)["quarantined"]:
            continue
        manifests = _readable(lake, hour, lake.manifest_files(hour))
        if len({file for file, _manifest in manifests}) > 1:
            _write_pack(lake, hour, name, [manifest for _file, manifest in manifests])
            done.packed += 1
            say(f"{name} of bronze: {len(manifests)} snapshots packed")


def _readable(lake: Lake, hour: datetime, manifests: Mapping[str, tuple[str, str]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the readable manifests of an hour's snapshots, each with its file."""
    found = []
    for snapshot, (file, packed) in sorted(manifests.items()):
        try:
            found.append((file, lake.manifest(hour, snapshot, packed)))
        except ValueError:
            continue
    return found


def _write_pack(lake: Lake, hour: datetime, name: str, manifests: Sequence[dict[str, Any]]) -> None:
    """Write the files of each table into few files, then the manifests with their new paths."""
    pack = f"{new_run()}-pack"
    new_paths: dict[str, str] = {}
    for table in sorted({table for manifest in manifests for table in manifest["tables"]}):
        files = [file["path"] for manifest in manifests for file in manifest["tables"].get(table, {}).get("files", ())]
        there = set(lake.files.names(f"bronze/{table}/{name}"))
        found = [path for path in files if path.rpartition("/")[2] in there]
        for suffix in (".jsonl.gz", COLUMNS):
            for number, group in enumerate(_groups(lake, [path for path in found if path.endswith(suffix)])):
                target = f"{table}/{name}/{pack}-{number}{suffix}"
                sources = [f"bronze/{path}" for path in group]
                if suffix == COLUMNS:
                    columns = bronze_schema(TABLES[table])
                    lake.join_columns(sources, f"bronze/{target}", columns, f"bronze/_incoming/{pack}")
                else:
                    lake.files.concatenate(sources, f"bronze/{target}")
                new_paths.update(dict.fromkeys(group, target))
    for manifest in manifests:
        for reported in manifest["tables"].values():
            for file in reported["files"]:
                file["path"] = new_paths.get(file["path"], file["path"])
    text = "".join(json.dumps(manifest, separators=(",", ":")) + "\n" for manifest in manifests)
    lake.files.replace_text(f"bronze/manifest/{name}/{pack}{PACK}", text)


def _groups(lake: Lake, paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield groups of files to join."""
    group: list[str] = []
    size = 0
    for path in dict.fromkeys(paths):
        bytes_ = lake.files.size(f"bronze/{path}")[1]
        if group and size + bytes_ > _PACKED:
            yield group
            group, size = [], 0
        group.append(path)
        size += bytes_
    if group:
        yield group


# --- silver: hours into days --------------------------------------------------------------------------------------------


def _compact(lake: Lake, now: datetime, keep: RetentionTimes, done: Maintained, say: Say) -> None:
    """Write the tables of a day whose hours were made separately into a folder of the day."""
    days: dict[datetime, list[datetime]] = defaultdict(list)
    for hour, _name in _hours(lake, "silver/_published"):
        days[datetime.combine(hour.date(), time(), timezone.utc)].append(hour)
    for day, hours in sorted(days.items()):
        if day + timedelta(days=1) + keep.unused > now:
            continue
        pointers = {hour: lake.pointer("silver", hour) for hour in hours}
        compacted = lake.compacted(day)
        homes = {hour: home_folder(hour, pointer, compacted) for hour, pointer in pointers.items()}
        apart = [hour for hour, home in homes.items() if home.endswith(place(hour))]
        if not apart or len(hours) == 1 or not _small(lake, apart, pointers):
            continue
        run = new_run()
        for table in lake.silver_tables():
            frame = lake.read("silver", table, hours, as_written=True)
            if frame is not None:
                lake.write_whole_day(table, run, day, frame, _LARGE)
        lake.repoint_day(day, run, {f"{hour:%H}": pointer["run"] for hour, pointer in pointers.items()})
        done.compacted += 1
        say(f"{day:%Y-%m-%d} of silver: {len(apart)} of {len(hours)} hours compacted")


def _small(lake: Lake, hours: Sequence[datetime], pointers: dict[datetime, dict[str, Any]]) -> bool:
    """Return whether the files of these hours are small on average: joining large ones gains nothing."""
    count = bytes_ = 0
    for hour in hours:
        for table in lake.silver_tables():
            name = f"silver/{table}/run={pointers[hour]['run']}/{place(hour)}"
            if lake.files.exists(name):
                files, size = lake.files.size(name)
                count, bytes_ = count + files, bytes_ + size
    return bytes_ < count * _LARGE


# --- unreferenced files -------------------------------------------------------------------------------------------------


def _remove_unused(lake: Lake, now: datetime, keep: RetentionTimes, done: Maintained) -> None:
    """Remove files that have been unreferenced for long enough: replaced ones, and those of killed jobs.

    A job that replaces files need not record this: they count as unreferenced from the first run that finds them so. If two runs
    overlap, one may overwrite the record of the other; the files then stay for longer.
    """
    limit = now - keep.unused
    known = _since(lake)
    since = {path: min(known.get(path, now), now) for path in _unused(lake, limit)}
    for path in [path for path, moment in since.items() if moment <= limit]:
        lake.files.delete(path)
        del since[path]
        done.unused += 1
    if since != known:
        lake.files.replace_text(_UNUSED, json.dumps({path: moment.isoformat() for path, moment in since.items()}))
    for snapshot in lake.files.names("bronze/_incoming"):
        if begun(snapshot) < limit:
            lake.files.delete(f"bronze/_incoming/{snapshot}")
            done.unused += 1


def _since(lake: Lake) -> dict[str, datetime]:
    """Return the files that earlier runs found unreferenced, with the time."""
    if not lake.files.exists(_UNUSED):
        return {}
    return {path: datetime.fromisoformat(text) for path, text in json.loads(lake.files.read_text(_UNUSED)).items()}


def _unused(lake: Lake, limit: datetime) -> Iterator[str]:
    """Yield the files and folders that are unreferenced, and that no job started after `limit` is about to reference."""
    daily_layers = [(layer, used_days(lake, layer)) for layer in ("gold", "findings")]
    hourly_layers = (
        ("silver", used_hours(lake, *_LAYERS)),
        *((layer, used_hours(lake, layer)) for layer in (FACTS, JUDGED)),
    )
    for layer, used in (*hourly_layers, *daily_layers):
        for table in lake.files.names(layer):
            for run in lake.files.names(f"{layer}/{table}"):
                if run.startswith("run=") and begun(run.removeprefix("run=")) < limit:
                    yield from _unused_of_run(lake, f"{layer}/{table}", run, used)
    yield from _unused_of_bronze(lake, limit)


def used_hours(lake: Lake, *layers: str) -> set[str]:
    """Return the folders of runs that the hours of these layers point to."""
    files = lake.files.names("silver/_compacted") if "silver" in layers else ()
    compacted = {_date(file).date(): lake.compacted(_date(file)) for file in files}
    return {
        home_folder(hour, lake.pointer(layer, hour), compacted.get(hour.date(), {}))
        for layer in layers
        for hour, _name in _hours(lake, f"{layer}/_published")
    }


def used_days(lake: Lake, layer: str) -> set[str]:
    """Return the folders of runs that the days of a layer point to."""
    folder, suffix = f"{layer}/_published", ".json"
    names = [name for name in lake.files.names(folder) if name.endswith(suffix)]
    return {
        f"run={json.loads(lake.files.read_text(f'{folder}/{name}'))['run']}/{name.removesuffix(suffix)}"
        for name in names
    }


def begun(name: str) -> datetime:
    """Return the start of a run or a snapshot from its name; a name of another form counts as new."""
    for form in ("%Y%m%dT%H%M%S.%fZ", "%Y%m%dT%H%M%SZ"):
        try:
            return datetime.strptime(name.partition("-")[0], form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
    return datetime.max.replace(tzinfo=timezone.utc)


def _unused_of_run(lake: Lake, folder: str, run: str, used: set[str]) -> Iterator[str]:
    """Yield the unreferenced parts of a run: all of it, days, or hours."""
    unused, is_used = [], False
    for day in lake.files.names(f"{folder}/{run}"):
        if f"{run}/{day}" in used:
            is_used = True
        elif day.startswith("date="):
            hours = [name for name in lake.files.names(f"{folder}/{run}/{day}") if name.startswith("hour=")]
            free = [f"{day}/{hour}" for hour in hours if f"{run}/{day}/{hour}" not in used]
            is_used |= len(free) < len(hours)
            unused += free if len(free) < len(hours) else [day]
    yield from (f"{folder}/{run}/{name}" for name in unused) if is_used else [f"{folder}/{run}"]


def _unused_of_bronze(lake: Lake, limit: datetime) -> Iterator[str]:
    """Yield bronze files that no manifest names, manifests that a pack has replaced, and days and hours without any
    manifest."""
    tables = [table for table in lake.files.names("bronze") if table != "manifest" and not table.startswith("_")]
    known = set(lake.days("bronze/manifest"))
    with_manifests = _hours(lake, "bronze/manifest")
    for table in tables:
        for day in lake.days(f"bronze/{table}"):
            if day not in known and day + timedelta(days=1) <= limit:
                yield f"bronze/{table}/{place(day.date())}"
            elif day in known:
                for hour, name in set(_list_day_hours(lake, f"bronze/{table}", day)).difference(with_manifests):
                    # Files, not the folder: another snapshot of this hour may arrive before they are deleted.
                    files = lake.files.names(f"bronze/{table}/{name}") if hour + timedelta(hours=1) <= limit else ()
                    yield from (f"bronze/{table}/{name}/{file}" for file in files)
    for hour, name in with_manifests:
        if hour + timedelta(hours=1) > limit:
            continue
        manifests = lake.manifest_files(hour)
        readable = _readable(lake, hour, manifests)
        if len(readable) < len(manifests):
            continue  # the unreadable manifests may name any file
        in_files = {file for file, _manifest in readable}
        named = {
            file["path"]
            for _file, manifest in readable
            for table in manifest["tables"].values()
            for file in table["files"]
        }
        for file in lake.files.names(f"bronze/manifest/{name}"):
            if file not in in_files:
                yield f"bronze/manifest/{name}/{file}"
        for table in tables:
            for file in lake.files.names(f"bronze/{table}/{name}"):
                if f"{table}/{name}/{file}" not in named:
                    yield f"bronze/{table}/{name}/{file}"
