# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the streams' entries in the backup catalogue.

The collector decides which streams count as saved and proven (module_utils/backup/protection.py), like nats_check;
the checks compare ages with thresholds. Streams excluded from the backup are skipped.
"""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.thresholds import BACKUP_HOURS

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
        text="it has never been saved{CASE WHEN problem <> '' THEN concat(': ', problem) ELSE '' END}",
        rationale="Replicas copy a delete, a purge and a bad migration as faithfully as everything else.",
        remedy=f"{_BACK_UP}; if it needs none, `nats_cluster_backup_exclude`",
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
        unit="s",
        text="the last run did not save it: {problem}; its last backup is {saved_age|seconds} old",
        rationale="The existing backup becomes older with every run.",
        remedy=f"fix the problem in the finding, then {_BACK_UP}",
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_103",
        severity=WARNING,
        title="A backup is too old",
        view="backups",
        applies="saved IS NOT NULL",
        thresholds=(
            Threshold("age", BACKUP_HOURS.warning * 3600, "s", "since the stream was last found equal to its backup"),
            Threshold("critical", BACKUP_HOURS.critical * 3600, "s", "at which it is critical"),
        ),
        fails="saved_age > :age",
        worse="saved_age > :critical",
        value="saved_age",
        text="it was last saved {saved_age|seconds} ago",
        rationale="Messages stored since then would be lost with the stream. Each run counts as a backup of an "
        "unchanged stream.",
        remedy=f"`systemctl status nats-backup.timer` on the host of the backups; {_BACK_UP}",
        source=_SOURCE,
    ),
    Check(
        code="BACKUP_104",
        severity=WARNING,
        title="A backup has not been proven by a restore",
        view="backups",
        applies="saved IS NOT NULL",
        thresholds=(Threshold("age", 90 * 86400, "s", "since the last drill that succeeded"),),
        fails="proven IS NULL OR proven_age > :age",
        value="proven_age",
        text="{CASE WHEN proven IS NULL THEN 'no drill has ever restored it' ELSE 'the last proven restore was on ' END}"
        "{CASE WHEN proven IS NULL THEN '' ELSE date_format(proven, 'yyyy-MM-dd HH:mm') END}",
        rationale="Only a restore proves that a backup works.",
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
        unit="s",
        text="the drill {drilled_age|seconds} ago failed: {drill_problem}",
        rationale="The archive exists but does not restore the stream.",
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
