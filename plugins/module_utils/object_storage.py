# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One bucket of S3-compatible object storage, accessed with boto3, which is imported only when used. Backups and the
lake of the insights are stored in buckets."""

from __future__ import annotations

import base64
import hashlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, TypeVar

from .nats.failures import MissingLibrary, NatsFailure
from .screen import printable

T = TypeVar("T")

SCHEME = "s3://"
#: Number of times that a request is sent until the storage responds.
RETRIES = 4
#: Seconds without a byte of a response: until the endpoint has responded for the first time, and afterwards, when it
#: may be assembling parts.
_FIRST_SECONDS, _SECONDS = 10.0, 60.0

_NOT_FOUND = ("404", "NoSuchKey", "NoSuchUpload", "NotFound")
#: HTTP statuses from which on a request may be repeated, and of a throttled request.
_SERVER_ERROR, _TOO_MANY = 500, 429
_NO_BUCKET = ("NoSuchBucket", "InvalidBucketName")
#: The codes of failures of a conditional write: another writer was faster, and the storage does not support conditions.
_LOST_RACE = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_UNKNOWN_HEADER = ("NotImplemented", "501")


@dataclass(frozen=True)
class S3Options:
    """How the object storage is reached. If `access_key` and `secret_key` are not set, boto3 finds the credentials: in
    the environment, in ~/.aws, or from the host's role. `option`: the name of the module's option, for messages."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    addressing_style: str = "auto"
    option: str = "s3"


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """Return the bucket of `s3://BUCKET/PREFIX`, and the prefix with a slash at its end unless it is empty. Raises
    NatsFailure invalid_option."""
    bucket, _slash, prefix = url[len(SCHEME) :].partition("/")
    if not bucket:
        raise NatsFailure("invalid_option", f"{url}: the bucket is missing: write s3://BUCKET or s3://BUCKET/PREFIX")
    prefix = prefix.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


class S3Reply(dict[str, Any]):
    """A response that must contain the members that S3 returns."""

    def __init__(self, found: Mapping[str, Any], where: str, option: str) -> None:
        super().__init__(found)
        self._where = where
        self._option = option

    def __missing__(self, key: str) -> Any:
        reason = (
            f"{self._where} does not answer like S3: the reply has no {key}. It may be the address of another service "
            "or a proxy"
        )
        raise NatsFailure("bad_reply", f"{self._option}.endpoint_url: {reason}")


class S3Bucket:
    """One bucket. Its errors are converted to messages. Its calls are those of boto3's client, without `Bucket`.
    `patient`: whether requests without a response are repeated, and responses may take a minute."""

    def __init__(self, name: str, options: S3Options, patient: bool = True) -> None:
        try:
            import boto3
            import botocore.config
            import botocore.exceptions
        except ImportError as error:
            raise MissingLibrary("boto3", traceback.format_exc()) from error
        self.name = name
        self.errors = botocore.exceptions
        self.where = options.endpoint_url or "AWS"
        self._option = options.option
        try:
            session = boto3.session.Session(
                options.access_key, options.secret_key, options.session_token, options.region or None
            )

            def client(seconds: float, attempts: int) -> Any:
                return session.client(
                    "s3",
                    endpoint_url=options.endpoint_url or None,
                    # A server that has no regions accepts any region.
                    region_name=session.region_name or "us-east-1",
                    verify=options.ca_file or None,
                    config=botocore.config.Config(
                        connect_timeout=_FIRST_SECONDS,
                        read_timeout=seconds,
                        retries={"mode": "standard", "total_max_attempts": attempts},
                        max_pool_connections=8,
                        s3={"addressing_style": options.addressing_style},
                        # Many servers do not support the newer checksums. Uploads have the older MD5, and are read back
                        # in any case.
                        request_checksum_calculation="when_required",
                        response_checksum_validation="when_required",
                    ),
                )

            self._first = client(_FIRST_SECONDS, 2 if patient else 1)
            self._client = client(_SECONDS, RETRIES) if patient else self._first
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise NatsFailure("invalid_option", f"{options.option}: {error}") from error

    @property
    def client(self) -> Any:
        """Return boto3's client, with a short timeout until the endpoint has responded once."""
        return self._first or self._client

    def call(self, method: str, **arguments: Any) -> S3Reply:
        """Return the response to a request. Raises FileNotFoundError, NatsFailure."""
        what = f"s3://{self.name}/{arguments.get('Key') or arguments.get('Prefix') or ''}"
        found = self.translated(what, lambda: getattr(self.client, method)(Bucket=self.name, **arguments))
        return S3Reply(found, self.where, self._option)

    def put(self, key: str, data: bytes, method: str = "put_object", **arguments: Any) -> S3Reply:
        """Write an object, with the checksum that a bucket with Object Lock requires. Raises NatsFailure."""
        checksum = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        return self.call(method, Key=key, Body=data, ContentMD5=checksum, **arguments)

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        """Write an object if its ETag is still `tag`, or, if `tag` is empty, unless the object exists; return whether
        it was written. Storage without conditional writes always writes it. Raises NatsFailure."""
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        try:
            self.put(key, data, **condition)
        except NatsFailure as failure:
            if failure.code in _LOST_RACE:
                return False
            if failure.code not in _UNKNOWN_HEADER:
                raise
            self.put(key, data)
        return True

    def is_transient(self, failure: NatsFailure) -> bool:
        """Return whether a request that failed may succeed if it is repeated."""
        cause = failure.__cause__
        if isinstance(cause, self.errors.ClientError):
            status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0
            code = cause.response.get("Error", {}).get("Code")
            return bool(status >= _SERVER_ERROR or status == _TOO_MANY or code == "RequestTimeout")
        return isinstance(cause, (self.errors.HTTPClientError, self.errors.ConnectionError)) and failure.code != "tls"

    def entries(self, method: str, key: str, **arguments: Any) -> Iterator[S3Reply]:
        """Yield the entries of a listing, from all of its pages. Raises NatsFailure."""
        pages = iter(self.client.get_paginator(method).paginate(Bucket=self.name, **arguments))
        begins: set[tuple[Any, Any]] = set()
        while True:
            page = self.translated(f"s3://{self.name}/{arguments.get('Prefix', '')}", lambda: next(pages, None))
            if page is None:
                return
            entries = [S3Reply(entry, self.where, self._option) for entry in page.get(key, ())]
            if entries:
                begin = (entries[0]["Key"], entries[0].get("UploadId"))
                if begin in begins:
                    reason = f"its listing of s3://{self.name} never ends: a second page begins with {begin[0]}"
                    raise NatsFailure("bad_reply", f"{self.where} does not answer as S3 does: {printable(reason)}")
                begins.add(begin)
            yield from entries

    def translated(self, what: str, work: Callable[[], T]) -> T:
        try:
            found = work()
            self._first = None
            return found
        except self.errors.ClientError as error:
            self._first = None
            code = str(error.response.get("Error", {}).get("Code", ""))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if code in _NOT_FOUND:
                raise FileNotFoundError(2, "No such object", what) from error
            raise self._failure(what, code, status, error) from error
        except (self.errors.NoCredentialsError, self.errors.PartialCredentialsError) as error:
            keys = f"`{self._option}.access_key` and `{self._option}.secret_key`"
            reason = f"{what}: no credentials for it: set {keys}, or configure boto3"
            raise NatsFailure("authorization", reason) from error
        except self.errors.SSLError as error:
            raise NatsFailure("tls", f"{what}: {error} (see `{self._option}.ca_file`)") from error
        except self.errors.BotoCoreError as error:
            raise NatsFailure("unreachable", f"{what}: no answer from {self.where}: {error}") from error
        except (ValueError, TypeError, LookupError) as error:
            # boto3 raises these exceptions for a time or number that it cannot parse.
            raise NatsFailure("bad_reply", f"{what}: {self.where} does not answer as S3 does: {error}") from error

    def _failure(self, what: str, code: str, status: int | None, error: Exception) -> NatsFailure:
        if code in _NO_BUCKET:
            return NatsFailure("invalid_option", f"{what}: {self.where} has no bucket {self.name} ({code}); create it")
        if code in _LOST_RACE or code in _UNKNOWN_HEADER:
            return NatsFailure(code, f"{what}: {error}")
        if code == "RequestTimeTooSkewed":
            return NatsFailure(
                "authorization",
                f"{what}: the clock of this host differs from the one of {self.where}: synchronize it ({error})",
            )
        if status in (401, 403):
            reason = (
                f"{what}: {self.where} rejects the credentials, or they lack permission ({error}); see `{self._option}`"
            )
            return NatsFailure("authorization", reason)
        return NatsFailure("write_failed", f"{what}: {error}")
