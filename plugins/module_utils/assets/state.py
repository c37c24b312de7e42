# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes streams and consumers to a desired state: read, compare, refuse or act, and read again.

The rules of a change are in `assets.config`; this module communicates with the servers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Callable

from ..nats.client import NatsFailure
from ..nats.error_codes import CONSUMER_EXISTS, STREAM_EXISTS, STREAM_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.model import RaftGroup
from ..nats.replies import consumer_group, stream_group
from ..problem import Danger, refused_dangers
from ..times import parse_time
from ..waiting import positive, wait_until
from . import change_rules
from . import config as rules
from .config import OptionError

Info = Mapping[str, Any]

#: Maximum number of comparisons if other clients keep changing the asset.
ATTEMPTS = 3

#: Maximum number of subjects that are counted individually to predict the effect of a limit.
COUNTED_SUBJECTS = 200_000


#: Options of every module of this kind.
COMMON_SPEC: dict[str, dict[str, Any]] = {
    "allow": {"type": "list", "elements": "str", "choices": list(change_rules.DANGERS), "default": []},
    "wait_timeout": {"type": "float", "default": 300},
}


@dataclass(frozen=True)
class RunOptions:
    """The options of a run: whether it makes changes, the allowed dangers, and how many seconds it waits for success."""

    check_mode: bool
    allow: frozenset[str]
    wait_timeout: float

    @classmethod
    def of(cls, params: Mapping[str, Any], check_mode: bool) -> RunOptions:
        return cls(check_mode, frozenset(params["allow"]), positive(params["wait_timeout"], "wait_timeout"))


def require_state(params: Mapping[str, Any], **states: str) -> None:
    """Raise NatsFailure invalid_option if an option is given that only one state uses. `states`: the state by option."""
    for option, state in states.items():
        if params[option] is not None and params["state"] != state:
            raise NatsFailure(
                "invalid_option", f"{option} has no effect with state {params['state']}: set state to {state}"
            )


class Asset(ABC):
    """A stream or a consumer of one account, identified by its name."""

    fields: tuple[rules.ConfigKey, ...]
    #: Keys that require a separate update, in this order, after all others.
    own_steps: tuple[str, ...]
    #: The asset's name if the name may show which tool owns the asset, otherwise empty.
    reserved_name = ""

    def __init__(self, api: JetStreamApi, name: str, label: str) -> None:
        self.api = api
        self.name = name
        self.label = label
        self.release = api.release()

    @abstractmethod
    def find(self) -> Info | None:
        """Return the asset's INFO, or None if it does not exist."""

    @abstractmethod
    def listed(self, info: Info) -> bool:
        """Return whether the meta leader lists the asset with this INFO. It may apply a creation after the asset's own
        leader has confirmed it; until then, it answers INFO with "not found", and the next run would create the asset
        again."""

    @abstractmethod
    def expected(self, config: rules.Config, desired: rules.Config) -> dict[str, Any]:
        """Return the effective configuration that the server will derive from `config`. Raises OptionError."""

    @abstractmethod
    def creation(self, desired: rules.Config) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return, for a new asset, the server's keys that are not fields, and the desired configuration with the
        collection's defaults."""

    @abstractmethod
    def fixed(self, old: rules.Config, new: rules.Config) -> list[str]:
        """Return the changes that no server can make."""

    @abstractmethod
    def dangers(self, info: Info, old: rules.Config, new: rules.Config) -> list[Danger]:
        """Return the dangers of a change."""

    @abstractmethod
    def deletion_dangers(self, info: Info) -> list[Danger]:
        """Return the dangers of deleting the asset."""

    @abstractmethod
    def group(self, info: Info) -> RaftGroup:
        """Return the asset's group, as its leader reports it."""

    def incomplete(self, info: Info) -> str:
        """Return the conditions still missing until the asset's group is complete and in step, or "" if none are."""
        return change_rules.unsettled(self.group(info))

    @abstractmethod
    def create(self, config: rules.Config) -> None:
        """Create the asset, and refuse if it exists with a different configuration."""

    @abstractmethod
    def update(self, config: rules.Config, keys: Sequence[str]) -> None:
        """Change these keys of the asset; `config` is its complete new configuration."""

    @abstractmethod
    def delete(self) -> None:
        """Delete the asset."""

    def normal(self, info: Info) -> dict[str, Any]:
        """Return the asset's configuration in normal form."""
        return rules.normal_config(self.fields, info["config"])

    def failure(self, code: str, description: str) -> NatsFailure:
        return NatsFailure(code, f"{self.label}: {description}", account=self.api.account)


class StreamAsset(Asset):
    """A stream.

    `bucket`: its name as a bucket; only the bucket modules may change streams with bucket names. `defaults`: values of
    a new stream in addition to the requested ones. `fits`: whether a configuration in normal form works as such a
    bucket."""

    fields = rules.STREAM_FIELDS
    #: A stream cannot be moved and scaled at the same time (10123).
    own_steps = ("placement", "num_replicas")

    def __init__(
        self,
        api: JetStreamApi,
        name: str,
        bucket: str | None = None,
        defaults: rules.Config | None = None,
        fits: Callable[[rules.Config], bool] = lambda config: True,
    ) -> None:
        super().__init__(api, name, bucket or f"stream {name}")
        self.defaults = defaults or {}
        self.fits = fits
        self.reserved_name = "" if bucket else name
        self._origins: dict[str, Info | None] = {}

    def find(self) -> Info | None:
        info = self.api.find_stream(self.name)
        if info is not None and not self.fits(self.normal(info)):
            raise self.failure(
                "not_a_bucket", f"stream {self.name} exists, but its subjects and limits are not those of such a bucket"
            )
        return info

    def listed(self, info: Info) -> bool:
        # With a subject, one page contains the name, however many streams there are.
        subjects = info["config"].get("subjects") or [None]
        return self.name in self.api.stream_names(subjects[0])

    def expected(self, config: rules.Config, desired: rules.Config) -> dict[str, Any]:
        return rules.expected_stream(
            self.name, config, desired, self.release, self._origin_direct(rules.origin(config))
        )

    def _origin_direct(self, origin: str) -> bool | None:
        """Return whether the stream that this one mirrors allows direct reads, or None if there is no such stream."""
        if origin and origin not in self._origins:
            self._origins[origin] = self.api.find_stream(origin)
        info = self._origins.get(origin)
        return bool(info["config"].get("allow_direct")) if info else None

    def creation(self, desired: rules.Config) -> tuple[dict[str, Any], dict[str, Any]]:
        if desired.get("sealed"):
            raise OptionError("sealed: a new stream cannot be sealed, because it could not store any messages")
        return {"name": self.name}, {**self.defaults, **desired}

    def fixed(self, old: rules.Config, new: rules.Config) -> list[str]:
        return change_rules.fixed_in_stream(old, new, self.release)

    def dangers(self, info: Info, old: rules.Config, new: rules.Config) -> list[Danger]:
        state = info.get("state") or {}
        subjects: Mapping[str, int] | None = None
        if state.get("messages") and change_rules.asks_for_subjects(old, new):
            few = state.get("num_subjects", 0) <= COUNTED_SUBJECTS
            subjects = self.api.subject_counts(self.name) if few else None
        return change_rules.stream_dangers(old, new, state, _age(info), subjects)

    def deletion_dangers(self, info: Info) -> list[Danger]:
        messages = (info.get("state") or {}).get("messages", 0)
        consumers = self.api.consumers(self.name)
        streams = self.api.streams()
        dependents = change_rules.dependents(self.name, (row["config"] for row in streams.rows))
        found = change_rules.deletion_dangers(info["config"], messages, consumers.rows, dependents)
        unknown = sorted({*consumers.unknown, *streams.unknown} - {self.name})
        if unknown:
            found.append(
                Danger(change_rules.IN_USE, f"it may be in use by assets without a leader: {', '.join(unknown)}")
            )
        return found

    def group(self, info: Info) -> RaftGroup:
        return replace(stream_group("", info), subject=self.label)

    def incomplete(self, info: Info) -> str:
        reason = super().incomplete(info)
        if reason or not info["state"].get("consumer_count"):
            return reason
        # Consumers are moved and scaled with their stream.
        listing = self.api.consumers(self.name)
        reasons = [f"consumer {name}: {why}" for name, why in listing.unknown.items()]
        groups = [consumer_group("", row, info["config"]) for row in listing.rows]
        return "; ".join([*reasons, *filter(None, map(change_rules.unsettled, groups))])

    def create(self, config: rules.Config) -> None:
        self.api.create_stream(config)

    def update(self, config: rules.Config, keys: Sequence[str]) -> None:
        self.api.update_stream(config)

    def delete(self) -> None:
        self.api.delete_stream(self.name)


class ConsumerAsset(Asset):
    """A durable consumer of a stream."""

    fields = rules.CONSUMER_FIELDS
    own_steps = ("num_replicas", "pause_until")

    def __init__(self, api: JetStreamApi, stream: str, name: str) -> None:
        super().__init__(api, name, f"consumer {name} of stream {stream}")
        self.stream = stream
        self._stream_raw: Info | None = None
        #: The time that the server reports, if any; it determines whether a pause is over.
        self._now = datetime.now(timezone.utc).isoformat()

    @property
    def stream_config(self) -> Info:
        """Return the configuration of the consumer's stream. Raises NatsFailure if the stream does not exist."""
        if self._stream_raw is None:
            self._stream_raw = self.api.stream(self.stream)["config"]
        return self._stream_raw

    def find(self) -> Info | None:
        try:
            return self.api.find_consumer(self.stream, self.name)
        except NatsFailure as failure:
            if failure.err_code == STREAM_NOT_FOUND:
                return None
            raise

    def listed(self, info: Info) -> bool:
        return self.name in self.api.consumer_names(self.stream)

    def normal(self, info: Info) -> dict[str, Any]:
        self._now = info.get("ts") or self._now
        return rules.without_past_pause(super().normal(info), self._now)

    def expected(self, config: rules.Config, desired: rules.Config) -> dict[str, Any]:
        stream = rules.normal_config(rules.STREAM_FIELDS, self.stream_config)
        return rules.without_past_pause(rules.expected_consumer(config, desired, stream), self._now)

    def creation(self, desired: rules.Config) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"name": self.name, "durable_name": self.name}, {"ack_policy": "explicit", **desired}

    def fixed(self, old: rules.Config, new: rules.Config) -> list[str]:
        return change_rules.fixed_in_consumer(old, new)

    def dangers(self, info: Info, old: rules.Config, new: rules.Config) -> list[Danger]:
        return change_rules.replica_dangers(old, new, int(self.stream_config.get("num_replicas") or 1))

    def deletion_dangers(self, info: Info) -> list[Danger]:
        return change_rules.consumer_deletion_dangers(
            info, rules.normal_config(rules.STREAM_FIELDS, self.stream_config)
        )

    def group(self, info: Info) -> RaftGroup:
        return replace(consumer_group("", info, self.stream_config), subject=self.label)

    def create(self, config: rules.Config) -> None:
        self.api.save_consumer(self.stream, config, "create")

    def update(self, config: rules.Config, keys: Sequence[str]) -> None:
        if "pause_until" in keys:
            self.api.pause_consumer(self.stream, self.name, config.get("pause_until"))
        else:
            self.api.save_consumer(self.stream, config, "update")

    def delete(self) -> None:
        self.api.delete_consumer(self.stream, self.name)


def desired_config(fields: Iterable[rules.ConfigKey], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set, in normal form. Raises NatsFailure invalid_option."""
    try:
        return rules.desired_fields(fields, params)
    except OptionError as problem:
        raise NatsFailure("invalid_option", str(problem)) from problem


# --- present ----------------------------------------------------------------------------------------------------------


def _accept(_info: Info | None) -> None:
    """Accept any state of an asset."""


@dataclass(frozen=True)
class AssetPlan:
    """The planned change: the asset's current and future configuration, the keys that change, and the dangers."""

    old: dict[str, Any] | None
    new: dict[str, Any]
    keys: list[str]
    desired: Mapping[str, Any]
    dangers: list[Danger]


def ensure_present(
    asset: Asset, desired: rules.Config, run_options: RunOptions, require: Callable[[Info | None], None] = _accept
) -> dict[str, Any]:
    """Give an asset the desired configuration, creating it if needed, and return the result. `require`: raises
    NatsFailure if the asset's INFO is not as expected. Raises NatsFailure: unsupported, immutable, dangerous,
    not_settled (nothing was done), conflict, not_seen."""
    started = time.monotonic()
    info = asset.find()
    for _attempt in range(ATTEMPTS):
        require(info)
        plan = _plan(asset, info, desired)
        if not plan.keys and info is not None:
            if not run_options.check_mode and change_rules.in_progress(asset.group(info)):
                info = _see(asset, plan.new, desired, run_options, group_too=True)
            config = rules.clean(info["config"])
            return asset_result(False, config, config, {}, {}, started, [])
        refuse(asset, plan.dangers, run_options)
        if run_options.check_mode:
            return _predicted(asset, info, plan, started)
        latest = asset.find()
        if _same(info, latest):
            break
        info = latest
    else:
        raise asset.failure(
            "conflict", f"another client is changing it too; it was compared {ATTEMPTS} times, and nothing was changed"
        )
    after = _create(asset, plan, run_options) if info is None else _update(asset, info, plan, run_options)
    return _done(asset, info, after, plan, started)


def _plan(asset: Asset, info: Info | None, desired: rules.Config) -> AssetPlan:
    try:
        if info is None:
            _raw, desired = asset.creation(desired)
            old, base = None, rules.normal_config(asset.fields, {})
        else:
            old = asset.normal(info)
            base = asset.expected(old, {})
        new = asset.expected(rules.merge(old or base, desired), desired)
    except OptionError as problem:
        raise asset.failure("invalid_option", str(problem)) from problem
    require_known(asset, asset.fields, {key: new[key] for key in desired})
    if old is None or info is None:
        keys = list(dict.fromkeys([*desired, *rules.changed_keys(base, new)]))
        return AssetPlan(None, new, keys, desired, ownership(asset, {}, desired))
    keys = [key for key in new if old[key] != new[key] and (key in desired or base[key] != new[key])]
    new = {**old, **{key: new[key] for key in keys}}
    if not keys:
        return AssetPlan(old, new, keys, desired, [])
    refused = asset.fixed(old, new)
    if refused:
        reasons = "; ".join(refused)
        raise asset.failure("immutable", f"these changes require a new asset under a different name: {reasons}")
    if set(keys) & {"num_replicas", "placement"}:
        reason = change_rules.unsettled(asset.group(info), short=True)
        if reason:
            raise asset.failure("not_settled", f"it cannot be scaled or moved now: {reason}")
        # A standalone server of 2.10 accepts any number of replicas, but never creates them.
        if new["num_replicas"] > 1 and not (info.get("cluster") or {}).get("name"):
            raise asset.failure("unsupported", "num_replicas: the server is not part of a cluster")
    return AssetPlan(old, new, keys, desired, [*ownership(asset, old, desired), *asset.dangers(info, old, new)])


def require_known(asset: Asset, fields: Iterable[rules.ConfigKey], desired: rules.Config) -> None:
    """Raise NatsFailure unsupported for settings that the servers do not support."""
    missing = rules.too_new(fields, desired, asset.release)
    if missing:
        raise asset.failure(
            "unsupported", f"{', '.join(missing)}; the servers run release {asset.release[0]}.{asset.release[1]}"
        )


def ownership(asset: Asset, old: rules.Config, desired: rules.Config) -> list[Danger]:
    """Return a danger if a different tool owns the asset."""
    whose = change_rules.owner(asset.reserved_name, old, desired)
    return [Danger(change_rules.FOREIGN, f"it belongs to {whose}")] if whose else []


def refuse(asset: Asset, dangers: Iterable[Danger], run_options: RunOptions) -> None:
    """Raise NatsFailure dangerous for dangers that `allow` does not contain."""
    refused = refused_dangers(dangers, run_options.allow)
    if refused:
        raise asset.failure("dangerous", refused)


def _same(one: Info | None, other: Info | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one["config"] == other["config"] and one["created"] == other["created"])


def _create(asset: Asset, plan: AssetPlan, run_options: RunOptions) -> Info:
    raw, _desired = asset.creation(plan.desired)
    config = rules.request(asset.fields, raw, plan.new, plan.desired, asset.release)
    try:
        asset.create(config)
    except NatsFailure as failure:
        if failure.err_code in (STREAM_EXISTS, CONSUMER_EXISTS):
            raise asset.failure(
                "conflict", "another client has since created it with a different configuration"
            ) from failure
        raise
    info = _see(asset, plan.new, plan.desired, run_options, group_too=True)
    if not wait_until(lambda: asset.listed(info), bool, run_options.wait_timeout).done:
        raise asset.failure(
            "not_seen", f"it was created, but the meta leader does not list it after {run_options.wait_timeout:g} s"
        )
    return info


def _update(asset: Asset, info: Info, plan: AssetPlan, run_options: RunOptions) -> Info:
    together = [key for key in plan.keys if key not in asset.own_steps]
    steps = [together, *([key] for key in asset.own_steps if key in plan.keys)]
    done: list[str] = []
    for keys in filter(None, steps):
        try:
            asset.update(rules.request(asset.fields, info["config"], plan.new, keys, asset.release), keys)
        except NatsFailure as failure:
            if done:
                failure.description += f" (already changed: {', '.join(done)})"
            raise
        done += keys
        info = _see(asset, plan.new, done, run_options, group_too=bool(set(keys) & set(asset.own_steps)))
    return info


def _see(asset: Asset, new: rules.Config, keys: Iterable[str], run_options: RunOptions, group_too: bool) -> Info:
    """Return the asset's INFO once these `keys` have the new values and, with `group_too`, its group is complete and in
    step.

    Raises NatsFailure conflict or not_seen.
    """
    wanted = list(keys)

    def differing(info: Info | None) -> list[str]:
        if info is None:
            return ["it does not exist"]
        seen = asset.normal(info)
        return [f"{key} is {seen[key]}, not {new[key]}" for key in wanted if seen[key] != new[key]]

    def done(info: Info | None) -> bool:
        return info is not None and not differing(info) and not (group_too and asset.incomplete(info))

    seen = wait_until(asset.find, done, run_options.wait_timeout)
    if seen.done and seen.value is not None:
        return seen.value
    wrong = differing(seen.value)
    if wrong:
        cause = "another client changed it too, or the server overrides the value"
        raise asset.failure("conflict", f"the change was accepted, but {'; '.join(wrong)}: {cause}")
    reason = asset.incomplete(seen.value or {})
    raise asset.failure(
        "not_seen", f"it is configured as requested, but not complete after {run_options.wait_timeout:g} s: {reason}"
    )


# --- absent -----------------------------------------------------------------------------------------------------------


def ensure_absent(
    asset: Asset, desired: rules.Config, run_options: RunOptions, require: Callable[[Info | None], None] = _accept
) -> dict[str, Any]:
    """Delete an asset if it exists, and return the result. `require`: as for `ensure_present`. Raises NatsFailure:
    dangerous, conflict, not_seen."""
    started = time.monotonic()
    info = asset.find()
    for _attempt in range(ATTEMPTS):
        require(info)
        if info is None:
            return asset_result(False, None, None, {}, {}, started, [])
        old = asset.normal(info)
        dangers = [*ownership(asset, old, desired), *asset.deletion_dangers(info)]
        refuse(asset, dangers, run_options)
        config = rules.clean(info["config"])
        result = asset_result(
            True, config, None, {"name": asset.name, **rules.shown(asset.fields, old)}, {}, started, dangers
        )
        if run_options.check_mode:
            return result
        latest = asset.find()
        if _same(info, latest) and _messages(latest) <= _messages(info):
            break
        info = latest
    else:
        raise asset.failure("conflict", "another client is changing it, or messages keep arriving; nothing was changed")
    asset.delete()
    gone = wait_until(
        asset.find, lambda found: found is None or found["created"] != info["created"], run_options.wait_timeout
    )
    if not gone.done:
        raise asset.failure(
            "not_seen", f"its deletion was accepted, but it still exists after {run_options.wait_timeout:g} s"
        )
    return {**result, "waited": round(time.monotonic() - started, 3)}


def _messages(info: Info | None) -> int:
    """Return 1 if there are messages, otherwise 0: the exact number changes while messages arrive."""
    return int(bool(((info or {}).get("state") or {}).get("messages")))


# --- results ----------------------------------------------------------------------------------------------------------


def _predicted(asset: Asset, info: Info | None, plan: AssetPlan, started: float) -> dict[str, Any]:
    if info is None:
        raw, _desired = asset.creation(plan.desired)
        after = {**raw, **{key: value for key, value in plan.new.items() if value not in (None, {}, [])}}
    else:
        changes = {key: plan.new[key] for key in plan.keys}
        kept = {key: value for key, value in rules.clean(info["config"]).items() if key not in changes}
        after = {**kept, **{key: value for key, value in changes.items() if value is not None}}
    return _changed(asset, info, after, plan, plan.new, started)


def _done(asset: Asset, info: Info | None, after: Info, plan: AssetPlan, started: float) -> dict[str, Any]:
    return _changed(asset, info, rules.clean(after["config"]), plan, asset.normal(after), started)


def _changed(
    asset: Asset, info: Info | None, after: Mapping[str, Any], plan: AssetPlan, new: rules.Config, started: float
) -> dict[str, Any]:
    if info is None:
        difference: tuple[dict[str, Any], dict[str, Any]] = ({}, {"name": asset.name, **rules.shown(asset.fields, new)})
    else:
        old = plan.old or {}
        difference = {key: old[key] for key in plan.keys}, {key: new[key] for key in plan.keys}
    before = None if info is None else rules.clean(info["config"])
    return asset_result(True, before, after, *difference, started, plan.dangers)


def asset_result(
    changed: bool,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    started: float,
    dangers: Sequence[Danger],
) -> dict[str, Any]:
    """Return the result of a module; `before` and `after`: configurations, `old` and `new`: the diff."""
    return {
        "changed": changed,
        "before": before,
        "after": after,
        "dangers": [danger.as_dict() for danger in dangers],
        "waited": round(time.monotonic() - started, 3),
        "diff": {"before": old, "after": new},
    }


def _age(info: Info) -> float:
    """Return the seconds since the stream's oldest message was stored."""
    first, now = (info.get("state") or {}).get("first_ts"), info.get("ts")
    if not first or not now or not (info.get("state") or {}).get("messages"):
        return 0.0
    return max(0.0, (parse_time(now) - parse_time(first)).total_seconds())
