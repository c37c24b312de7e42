# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JetStream API of an account as typed calls, by one of the account's users.

Source: server/jetstream_api.go."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ..screen import printable
from ..shapes import Shape, count, object_shape, optional, text, whole
from .api_requests import Answer, ApiRequests, Members
from .client import Call, Client, Download, NatsFailure, Reply, Upload
from .error_codes import CONSUMER_NOT_FOUND, MESSAGE_NOT_FOUND, NOT_ENABLED, STREAM_NOT_FOUND
from .info_shapes import CONSUMER_INFO, STREAM_CONFIG, STREAM_INFO, STREAM_STATE, asset_name
from .model import API_LEVELS, answered_by_leader

#: The replies that begin and end the transfer of an archive, and the reply to INFO.
_ARCHIVED: Members = {"config": STREAM_CONFIG, "state": optional(STREAM_STATE)}
_RESTORED: Members = {"config": optional(STREAM_CONFIG), "state": optional(STREAM_STATE)}
_ACCEPTED: Members = {"deliver_subject": text}
_MESSAGE: Members = {
    "message": object_shape(
        {"subject": text, "time": text, "seq": count, "data": optional(text), "hdrs": optional(text)},
    )
}
_SUBJECTS: Members = {
    "state": optional(object_shape({"subjects": optional(object_shape({}, count))})),
    "total": optional(count),
}
_ACCOUNT: Members = {"api": optional(object_shape({"level": optional(whole)}))}
#: The error of a server that cannot create a stream, and the text of the only cause that resolves itself.
_CREATION_FAILED, _NO_STORE = 10049, "error creating store for stream"
#: Seconds that a server may need to read the JWT of a new account. Until then, other requests find JetStream disabled
#: for the account (accounts.go registerAccount, then UpdateAccountClaims).
_ACCOUNT_SECONDS, _ACCOUNT_INTERVAL = 2.0, 0.1
#: How long to keep querying the leader of a group if a different member replies.
_LEADER_SECONDS, _LEADER_INTERVAL = 2.0, 0.1
#: Maximum number of rows in a listing; the minimum number of rows in a page while more follow (jetstream_api.go
#: JSApiListLimit); and seconds for the pages after the first.
_MOST_ROWS, _LEAST_PAGE, _LISTING_SECONDS = 250_000, 256, 300.0
_FORBIDDEN_IN_NAMES = re.compile(r"[\s.*>/\\]")


def require_name(option: str, value: str) -> str:
    """Return the name of one stream or consumer. Raises NatsFailure invalid_option if it contains wildcards or
    characters that are not allowed in names (jetstream_api.go isValidAssetName)."""
    if not value or _FORBIDDEN_IN_NAMES.search(value):
        raise NatsFailure(
            "invalid_option",
            f"{option}: {value!r} is not the name of one asset: it must not be empty or contain spaces, '.', '*', "
            "'>', '/' or '\\'",
        )
    return value


#: Bytes of an archive sent in one message.
CHUNK = 256 << 10


@dataclass(frozen=True)
class TransferPace:
    """How an archive is transferred. Seconds: `idle` without any progress, `finish` until the servers have carried out
    a restore, which before 2.15 begins only after the upload. `rate`: bytes per second, None for no limit. `consumers`:
    whether a snapshot contains the consumers."""

    idle: float
    finish: float = 3600.0
    rate: float | None = None
    consumers: bool = True


class RestoreFailed(NatsFailure):
    """A restore that the servers accepted but that failed later."""

    def __init__(self, cause: NatsFailure, account: str | None) -> None:
        super().__init__(
            cause.code,
            cause.description,
            subject=cause.subject,
            server=cause.server,
            account=account,
            err_code=cause.err_code,
        )


@dataclass(frozen=True)
class Listing:
    """The infos of a listing, and the names of existing assets whose leader did not report their state, with the
    reason."""

    rows: tuple[Any, ...]
    unknown: Mapping[str, str]


class JetStreamApi(ApiRequests):
    """The streams and consumers of the connected user's account. `account`: its identity, if known; `label`: its
    display name."""

    silence = (
        "JetStream has no leader to answer, or the user's account has no JetStream or no permission for this request"
    )

    def __init__(self, client: Client, account: str | None = None, label: str | None = None) -> None:
        super().__init__(client, account, label)
        domain = client.options.jetstream_domain
        if domain:
            # Every server maps this prefix to the API if the domain is its own.
            self._prefix = f"$JS.{require_name('jetstream_domain', domain)}.API"
            self.silence = (
                f"no JetStream of the domain {domain} answers, or the user's account has no permission to query it"
            )

    def call(self, subject: str, body: Mapping[str, Any] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Return the reply to one request; `subject` is without the API's prefix. Raises NatsFailure. For an account
        defined by a JWT, the call allows the time that servers need to read the JWT."""
        options = self._client.options
        end = time.monotonic() + (_ACCOUNT_SECONDS if options.credentials or options.minted else 0)
        while True:
            try:
                return super().call(subject, body, timeout)
            except NatsFailure as failure:
                if failure.err_code != NOT_ENABLED[0] or time.monotonic() >= end:
                    raise
            time.sleep(_ACCOUNT_INTERVAL)

    def info(self) -> dict[str, Any]:
        """Return the account's limits and usage (`$JS.API.INFO`), with `api.level` from 2.11."""
        return self._call_for("INFO", _ACCOUNT)

    def release(self) -> tuple[int, int]:
        """Return the release that introduced the servers' API level, at most (2, 15); (2, 10) if they report no level."""
        level = (self.info().get("api") or {}).get("level") or 0
        return max((since[:2] for since, needed in API_LEVELS if needed <= level), default=(2, 10))

    # --- streams ------------------------------------------------------------------------------------------------------

    def stream_names(self, subject: str | None = None) -> list[str]:
        """Return the names of all streams, or of those that store messages of the subject."""
        body = {"subject": subject} if subject else {}
        return self._names("STREAM.NAMES", "streams", body)

    def streams(self, subject: str | None = None) -> Listing:
        """Return the STREAM.INFO of every stream, or of those that store messages of the subject."""
        return self._list("STREAM.LIST", "streams", {"subject": subject} if subject else None)

    def stream(self, name: str) -> dict[str, Any]:
        """Return the STREAM.INFO of one stream: config, state, cluster, created, mirror, sources."""
        return self._call_leader(f"STREAM.INFO.{name}", STREAM_INFO)

    def find_stream(self, name: str) -> dict[str, Any] | None:
        """Return the STREAM.INFO of one stream, None if it does not exist."""
        return _unless_missing(lambda: self.stream(name), STREAM_NOT_FOUND)

    def deleted_sequences(self, name: str) -> list[int]:
        """Return the missing sequences between the first and the last message of a stream."""
        info = self._call_for(f"STREAM.INFO.{name}", STREAM_INFO, {"deleted_details": True})
        return list(info["state"].get("deleted") or ())

    def create_stream(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Create a stream and return its info.

        When a server deletes the last stream of an account, it removes the account's directories, perhaps while it is
        already creating the next stream in them: "error creating store for stream" (server/stream.go stop,
        newFileStore; observed on 2.10.27 and 2.15.1). The meta leader then drops the stream, and a second attempt
        succeeds.
        """
        attempts = 3
        while True:
            try:
                return self._call_for(f"STREAM.CREATE.{config['name']}", STREAM_INFO, config)
            except NatsFailure as failure:
                attempts -= 1
                if failure.err_code != _CREATION_FAILED or _NO_STORE not in failure.description or not attempts:
                    raise
            time.sleep(0.5)

    def update_stream(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the configuration of a stream and return its info."""
        return self._call_for(f"STREAM.UPDATE.{config['name']}", STREAM_INFO, config)

    def renew_assignment(self, config: Mapping[str, Any]) -> None:
        """Make the meta group write the assignment of a stream again, unchanged, before its replicas move.

        In 2.15 the assignment of a restored stream may keep the state of a restore in progress, and the server that
        restored it ignores all membership changes derived from it. An update replaces the assignment
        (server/jetstream_cluster.go streamAssignment.clone, processClusterCreateStream; observed on 2.15.1)."""
        self.update_stream(config)

    def delete_stream(self, name: str) -> None:
        """Delete a stream with its messages and consumers."""
        self.call(f"STREAM.DELETE.{name}")

    def purge_stream(self, name: str, body: Mapping[str, Any] | None = None) -> int:
        """Remove messages (all, or by `filter`, `seq`, `keep`) and return their number."""
        answer = self._call_for(f"STREAM.PURGE.{name}", {"purged": optional(count)}, body)
        return int(answer.get("purged") or 0)

    def store(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None, expected: int | None = None
    ) -> int:
        """Publish a message, and return its sequence once a stream has stored it. `expected`: the sequence of the last
        message of the subject, 0 for none. Raises NatsFailure WRONG_LAST_SEQUENCE if it is different."""
        if expected is not None:
            headers = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": str(expected)}
        domain = self._client.options.jetstream_domain
        if domain and subject.startswith("$KV."):
            # Every server maps this prefix to the keys if the domain is its own.
            subject = f"{self._prefix}.{subject}"
        return self.acknowledged(self._client.request_many([Call(subject, payload, headers)])[0])

    def acknowledged(self, outcome: Reply | NatsFailure) -> int:
        """Return the sequence in the reply to a published message. Raises NatsFailure if it was not stored."""
        answer = self._answer(outcome)
        if isinstance(answer, NatsFailure):
            if answer.code == "permission":
                answer.description += "; use a user of the account that may publish there (the role natsops may not)"
            raise answer
        self._require_members(answer, {"seq": count}, outcome.subject or "")
        return int(answer["seq"])

    def next_messages(self, stream: str, consumer: str, batch: int, seconds: float) -> Call:
        """Return the request for messages of a pull consumer, whose replies the client gathers."""
        body = {"batch": batch, "expires": int(seconds * 1e9)}
        return self._call(f"CONSUMER.MSG.NEXT.{stream}.{consumer}", body)

    def delete_message(self, name: str, seq: int) -> None:
        """Delete a message, and overwrite its data on the disk."""
        self.call(f"STREAM.MSG.DELETE.{name}", {"seq": seq})

    def last_message(self, name: str, subject: str = ">") -> dict[str, Any] | None:
        """Return the newest message of a subject, which may have wildcards (subject, seq, time; data and hdrs in
        base64), or None if the stream contains none."""
        body = {"last_by_subj": subject}
        message = _unless_missing(lambda: self._call_for(f"STREAM.MSG.GET.{name}", _MESSAGE, body), MESSAGE_NOT_FOUND)
        return None if message is None else message["message"]

    def first_message(self, name: str, subject: str = ">", seq: int = 1) -> dict[str, Any] | None:
        """Return the oldest message of a subject from this sequence on, in the format of `last_message`."""
        body = {"seq": seq, "next_by_subj": subject}
        message = _unless_missing(lambda: self._call_for(f"STREAM.MSG.GET.{name}", _MESSAGE, body), MESSAGE_NOT_FOUND)
        return None if message is None else message["message"]

    def subject_counts(self, name: str, subject: str = ">") -> dict[str, int]:
        """Return subject → number of messages, for the stream's subjects that match the given one, which may have
        wildcards."""
        counts: dict[str, int] = {}
        offset, total, deadline = 0, None, time.monotonic() + _LISTING_SECONDS
        while True:
            page = self._call_for(f"STREAM.INFO.{name}", _SUBJECTS, {"subjects_filter": subject, "offset": offset})
            found = (page.get("state") or {}).get("subjects") or {}
            counts.update(found)
            offset += len(found)
            # Subjects that appear during the listing are not part of it.
            total = page.get("total") or 0 if total is None else total
            if not found or offset >= total:
                return counts
            if time.monotonic() > deadline:
                reason = f"{offset} of {total} subjects in {_LISTING_SECONDS:g} s"
                raise NatsFailure("bad_reply", reason, subject=f"STREAM.INFO.{name}", account=self.account)

    def remove_stream_peer(self, name: str, server_name: str) -> None:
        """Take a server out of the stream's group. Up to 2.14, the group may have been reduced even if error 10075 is
        returned."""
        self.call(f"STREAM.PEER.REMOVE.{name}", {"peer": server_name})

    def evacuate_stream_peer(self, name: str, server_name: str) -> None:
        """Move a server's replica to another server, copying its data first (2.15)."""
        self.call(f"STREAM.PEER.EVACUATE.{name}", {"peer": server_name})

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot_stream(
        self,
        name: str,
        on_start: Callable[[dict[str, Any]], None],
        on_chunk: Callable[[bytes], None],
        pace: TransferPace,
    ) -> None:
        """Make the stream's leader send an archive of the stream: `on_start` receives the reply (config, state),
        `on_chunk` each chunk. Raises NatsFailure; `interrupted` if the leader gave up. Sources: server/jetstream_api.go
        streamSnapshot."""

        def request(inbox: str) -> Call:
            body = {"deliver_subject": inbox, "chunk_size": CHUNK, "no_consumers": not pace.consumers}
            return self._call(f"STREAM.SNAPSHOT.{name}", body)

        def started(reply: Reply) -> None:
            answer = self._snapshot_started(self._require(reply))
            self._require_members(answer, _ARCHIVED, reply.subject)
            on_start(answer)

        idle = pace.idle
        self._client.download(Download(request, started, on_chunk, timeout=idle, idle=idle, rate=pace.rate))

    def _snapshot_started(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return the stream in the reply to `snapshot_stream` (config, state)."""
        return reply

    def restore_stream(
        self, config: Mapping[str, Any], state: Mapping[str, Any], chunks: Iterable[bytes], pace: TransferPace
    ) -> dict[str, Any]:
        """Create a stream from the chunks of an archive and return the final reply (config, state).

        Raises NatsFailure. `RestoreFailed` means that the servers had accepted the request, so a partial stream may
        exist."""
        body = {"config": config, "state": state}
        subject = f"STREAM.RESTORE.{config['name']}"
        accepted = self.call(subject, body, pace.idle)
        upload = Upload(self._require_taken, idle=pace.idle, finish=pace.finish, rate=pace.rate)
        try:
            if "deliver_subject" not in accepted and "config" in accepted:
                # The server that the meta leader chose is down, and another one of the group created the stream and
                # replied so (server/jetstream_cluster.go processStreamLeaderChange; observed on 2.10.27).
                raise NatsFailure("interrupted", "a server created the stream but does not accept its archive")
            self._require_members(accepted, _ACCEPTED, f"{self._prefix}.{subject}")
            reply = self._client.upload(accepted["deliver_subject"], chunks, upload)
            answer = self._require(reply)
            self._require_members(answer, _RESTORED, reply.subject)
            return answer
        except NatsFailure as failure:
            raise RestoreFailed(failure, self.account) from failure

    def _require(self, reply: Reply) -> dict[str, Any]:
        answer = self._answer(reply)
        if isinstance(answer, NatsFailure):
            raise answer
        return answer

    def _require_taken(self, reply: Reply) -> None:
        """Raise NatsFailure for the reply to a chunk unless it is empty (2.10 sends some errors as plain text, such
        as a full disk)."""
        if not reply.body:
            return
        answer = self._answer(reply)
        if isinstance(answer, NatsFailure) and answer.code != "bad_reply":
            raise answer
        said = printable(" ".join(reply.body[:200].decode(errors="replace").split()))
        raise NatsFailure("bad_reply", f"the server rejected a chunk: {said}", subject=reply.subject)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def consumer_names(self, stream: str) -> list[str]:
        """Return the names of a stream's consumers."""
        return self._names(f"CONSUMER.NAMES.{stream}", "consumers", {})

    def consumers(self, stream: str) -> Listing:
        """Return the CONSUMER.INFO of every consumer of a stream."""
        return self._list(f"CONSUMER.LIST.{stream}", "consumers")

    def list_consumers(self, streams: Sequence[str]) -> list[Listing | NatsFailure]:
        """Return, in the same order, the CONSUMER.INFO of every consumer of each stream, or the failure of that
        listing."""
        return self._lists([f"CONSUMER.LIST.{stream}" for stream in streams], "consumers")

    def consumers_soon(self, stream: str, seconds: float) -> Listing:
        """Return the CONSUMER.INFO of those consumers of a stream whose leader responds within this many seconds. A
        listing takes 4 s while one of the consumers is electing a leader."""
        names = self.consumer_names(stream)
        rows, unknown = [], {}
        for name, answer in zip(
            names, self.call_many([(f"CONSUMER.INFO.{stream}.{name}", None) for name in names], seconds)
        ):
            if isinstance(answer, NatsFailure):
                unknown[name] = answer.description
            elif answered_by_leader(answer):
                rows.append(answer)
            else:
                unknown[name] = "it has no leader"
        return Listing(tuple(rows), unknown)

    def consumer(self, stream: str, name: str) -> dict[str, Any]:
        """Return the CONSUMER.INFO of one consumer: config, delivered, ack_floor, num_pending, cluster, ..."""
        return self._call_leader(f"CONSUMER.INFO.{stream}.{name}", CONSUMER_INFO)

    def find_consumer(self, stream: str, name: str) -> dict[str, Any] | None:
        """Return the CONSUMER.INFO of one consumer, or None if it does not exist."""
        return _unless_missing(lambda: self.consumer(stream, name), CONSUMER_NOT_FOUND)

    def save_consumer(self, stream: str, config: Mapping[str, Any], action: str) -> dict[str, Any]:
        """Save the complete configuration of a consumer and return its info. `action`: `create` is refused if the
        consumer exists with a different configuration (10148), `update` if it does not exist (10149)."""
        body = {"stream_name": stream, "config": config, "action": action}
        return self._call_for(f"CONSUMER.CREATE.{stream}.{config['name']}", CONSUMER_INFO, body)

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer with its position in the stream."""
        self.call(f"CONSUMER.DELETE.{stream}.{name}")

    def pause_consumer(self, stream: str, name: str, until: str | None) -> None:
        """Pause a consumer until a time (RFC 3339), or resume it with None (2.11)."""
        self.call(f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": until} if until else None)

    def reset_consumer(self, stream: str, name: str, seq: int) -> int:
        """Make a consumer deliver from a sequence on, and return that sequence (2.14, ADR-60).

        Pending and redelivered messages are forgotten. The server also accepts a sequence beyond the end of the
        stream."""
        answer = self._call_for(f"CONSUMER.RESET.{stream}.{name}", {"reset_seq": optional(count)}, {"seq": seq})
        return int(answer.get("reset_seq") or 0)

    def unpin_consumer(self, stream: str, name: str, group: str) -> None:
        """Make a consumer unpin the client of a priority group, so it pins the next client that requests messages
        (2.11)."""
        self.call(f"CONSUMER.UNPIN.{stream}.{name}", {"group": group})

    def _call_leader(self, subject: str, members: Members) -> dict[str, Any]:
        """Return the reply of a group's leader, or of a member if the group has no leader.

        The preferred member of the assignment also replies, perhaps first, when it has just started its replica. The
        reply contains the messages that this member has so far, and names no leader (jetstream_api.go
        jsStreamInfoRequest; observed on 2.10.27: 6 of 20 acknowledged messages)."""
        end = time.monotonic() + _LEADER_SECONDS
        while True:
            info = self._call_for(subject, members)
            if answered_by_leader(info) or time.monotonic() >= end:
                return info
            time.sleep(_LEADER_INTERVAL)

    def _names(self, subject: str, key: str, body: Mapping[str, Any]) -> list[str]:
        return [str(name) for name in self._list(subject, key, body).rows]

    def _list(self, subject: str, key: str, body: Mapping[str, Any] | None = None) -> Listing:
        listing = self._lists([subject], key, body)[0]
        if isinstance(listing, NatsFailure):
            raise listing
        return listing

    def _lists(
        self, subjects: Sequence[str], key: str, body: Mapping[str, Any] | None = None
    ) -> list[Listing | NatsFailure]:
        """Return complete listings, read page by page at the same time (jetstream_api.go: 1024 names or 256 infos per
        page), or their failures."""
        listings = [_Pages(subject, self.account) for subject in subjects]
        pending = dict.fromkeys(range(len(subjects)), 0)
        deadline = math.inf
        while pending:
            pages = self.call_many(
                [(subjects[which], {**(body or {}), "offset": seen}) for which, seen in pending.items()]
            )
            deadline = min(deadline, time.monotonic() + _LISTING_SECONDS)
            following = {which: listings[which].add(page, key, deadline) for which, page in zip(pending, pages)}
            pending = {which: offset for which, offset in following.items() if offset is not None}
        return [pages.result for pages in listings]


#: The rows of each listing.
_ROWS: dict[str, Shape] = {
    "STREAM.NAMES": asset_name,
    "CONSUMER.NAMES": asset_name,
    "STREAM.LIST": object_shape(STREAM_INFO),
    "CONSUMER.LIST": object_shape(CONSUMER_INFO),
}


class _Pages:
    """One listing, read page by page. Any client of the account may send pages instead of the server, so a page that a
    server would never send, or that is too large, is a bad_reply."""

    def __init__(self, subject: str, account: str | None) -> None:
        self._subject = subject
        self._account = account
        self._rows: list[Any] = []
        self._absent: dict[str, str] = {}
        self._failure: NatsFailure | None = None
        self._offset = 0
        self._total = 0

    @property
    def result(self) -> Listing | NatsFailure:
        """Return the complete listing, or its failure."""
        return self._failure or Listing(tuple(self._rows), self._absent)

    def add(self, page: Answer, key: str, deadline: float) -> int | None:
        """Add a page and return the offset of the next page, or None if there is none. `deadline`: a time of
        time.monotonic."""
        if isinstance(page, NatsFailure):
            self._failure = page
            return None
        try:
            return self._add(page, key, deadline)
        except (TypeError, ValueError, OverflowError) as error:
            self._failure = NatsFailure(
                "bad_reply", f"the page cannot be parsed: {error}", subject=self._subject, account=self._account
            )
            return None

    def _add(self, page: Mapping[str, Any], key: str, deadline: float) -> int | None:
        rows, missing, offline = page.get(key) or [], page.get("missing") or [], page.get("offline") or {}
        limit, total = int(page.get("limit", 0)), int(page.get("total", 0))
        if not isinstance(rows, list) or not isinstance(missing, list) or not isinstance(offline, dict):
            raise ValueError("it has rows of the wrong type")
        if not all(map(self._fits, rows)):
            raise ValueError("it has rows of the wrong type")
        self._rows += rows
        self._absent.update(dict.fromkeys(map(str, missing), "no leader reported its state"))
        self._absent.update({str(name): str(reason) for name, reason in offline.items()})
        if not self._offset:
            self._total = total
        # Assets created during the listing are not part of it.
        total = min(total, self._total)
        self._offset += max(limit, 1)
        if self._offset >= total:
            return None
        if total > _MOST_ROWS or limit < _LEAST_PAGE or not (rows or missing or offline):
            raise ValueError(f"a page of {len(rows)} rows (limit {limit}) of {total}, which no server sends")
        if time.monotonic() > deadline:
            raise ValueError(f"{self._offset} of {total} rows in {_LISTING_SECONDS:g} s")
        return self._offset

    def _fits(self, row: Any) -> bool:
        shape = next((fits for begin, fits in _ROWS.items() if self._subject.startswith(begin)), None)
        return shape is None or shape(row)


def _unless_missing(read: Callable[[], dict[str, Any]], err_code: int) -> dict[str, Any] | None:
    try:
        return read()
    except NatsFailure as failure:
        if failure.err_code == err_code:
            return None
        raise
