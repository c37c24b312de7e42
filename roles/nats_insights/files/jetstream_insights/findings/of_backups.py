# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what the catalogue of backups says of the streams.

What counts as saved and as proven is decided where the snapshot is taken (module_utils/backup/protection.py), for nats_check
as well; here ages are compared with thresholds. Streams that the backup is to leave out are not judged.
"""

from __future__ import annotations

from jetstream_insights.findings.registry import CRITICAL, WARNING, Check, Threshold

_BACK_UP = "playbook `backup` with `nats_cluster_backup_streams: [{account}/{stream}]`"
_DRILL = "playbook `backup_drill` with `nats_cluster_backup_drill_stream: {account}/{stream}`"
_SOURCE = "module_utils/backup/protection.py, as `nats_check` `backup`; docs/backup.md"

CHECKS = (
    Check(
        code="BACKUP_101",
        severity=CRITICAL,
        title="A stream has no backup",
        view="backups",
        fails="saved IS NULL",
        text="it was never saved{CASE WHEN problem <> '' THEN concat(': ', problem) ELSE '' END}",
        rationale="Replicas copy a delete, a purge and a bad migration as faithfully as everything else.",
        remedy=f"{_BACK_UP}; where it needs none, `nats_cluster_backup_exclude`",
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_102",
        severity=CRITICAL,
        title="The last backup of a stream failed",
        view="backups",
        applies="saved IS NOT NULL",
        needs=("problem",),
        fails="problem <> ''",
        value="saved_age",
        text="it was not saved again: {problem}; its last backup is {saved_age|seconds} old",
        rationale="The backup that is there becomes older with every run.",
        remedy=f"what the finding names, then {_BACK_UP}",
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_103",
        severity=WARNING,
        title="A backup is too old",
        view="backups",
        applies="saved IS NOT NULL",
        thresholds=(
            Threshold("age", 26 * 3600, "s", "since the stream was last seen to be as saved"),
            Threshold("critical", 50 * 3600, "s", "after which it is critical"),
        ),
        fails="saved_age > :age",
        worse="saved_age > :critical",
        value="saved_age",
        text="it was last saved {saved_age|seconds} ago",
        rationale="What was stored since then is lost with the stream. A stream that did not change counts as saved by each run.",
        remedy=f"`systemctl status nats-backup.timer` on the host of the backups; {_BACK_UP}",
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_104",
        severity=WARNING,
        title="A backup was not proven by a restore",
        view="backups",
        applies="saved IS NOT NULL",
        thresholds=(Threshold("age", 90 * 86400, "s", "since the last drill that succeeded"),),
        fails="proven IS NULL OR proven_age > :age",
        value="proven_age",
        text="{CASE WHEN proven IS NULL THEN 'no drill has ever restored it' ELSE 'the last proven restore is of ' END}"
        "{CASE WHEN proven IS NULL THEN '' ELSE date_format(proven, 'yyyy-MM-dd HH:mm') END}",
        rationale="A backup is one when it was restored once.",
        remedy=_DRILL,
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_105",
        severity=CRITICAL,
        title="A drill could not restore a backup",
        view="backups",
        applies="saved IS NOT NULL AND drilled IS NOT NULL",
        needs=("drill_problem",),
        fails="drill_problem <> ''",
        value="drilled_age",
        text="the drill {drilled_age|seconds} ago failed: {drill_problem}",
        rationale="There is an archive, and it does not bring the stream back.",
        remedy=f"{_BACK_UP}, then {_DRILL}",
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_106",
        severity=WARNING,
        title="A backup is dated in the future",
        view="backups",
        needs=("future_backup",),
        fails="future_backup <> ''",
        text="{future_backup} is dated in the future: the clock of the host that took it was ahead",
        rationale="Such a backup counts as no backup, is never removed by `keep`, and is restored only if it is named.",
        remedy=f"the clock of the host of the backups; then remove that backup, and {_BACK_UP}",
        source=_SOURCE,
    ),
)
