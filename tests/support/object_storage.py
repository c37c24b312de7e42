# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An S3-compatible server (moto) on loopback, which verifies signatures and the permissions of its only user."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from support.nats_processes import free_ports

BUCKET = "backups"
#: The unsigned requests that create the user.
_BEFORE = 3
_LIMIT = 1 << 20


class ObjectStorage:
    """One server with one bucket. Objects are kept in memory; with `full`, those of 1 MB or more go to a full disk."""

    def __init__(self, directory: Path, full: bool = False) -> None:
        self.directory = directory
        self.full = full
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.options: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_BEFORE)}
        if self.full:
            environment.update(MOTO_S3_DEFAULT_KEY_BUFFER_SIZE="1024", TMPDIR=str(self.directory))
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        with (self.directory / "moto.log").open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5).close()
                break
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        self._make_user()
        self.client.create_bucket(Bucket=BUCKET)
        if self.full:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (_LIMIT, _LIMIT))

    def _make_user(self) -> None:
        iam = boto3.client(
            "iam", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        iam.create_user(UserName="backup")
        rule = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]})
        iam.put_user_policy(UserName="backup", PolicyName="all", PolicyDocument=policy)
        key = iam.create_access_key(UserName="backup")["AccessKey"]
        self.options = {
            "endpoint_url": self.url,
            "access_key": key["AccessKeyId"],
            "secret_key": key["SecretAccessKey"],
        }

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.options["access_key"],
            aws_secret_access_key=self.options["secret_key"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def names(self, prefix: str = "") -> list[str]:
        answer = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for entry in answer.get("Contents", ())]

    def uploads(self) -> list[str]:
        return [entry["Key"] for entry in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def clear(self) -> None:
        client = self.client
        for key in self.names():
            client.delete_object(Bucket=BUCKET, Key=key)
        for upload in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()):
            client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])

    def log(self) -> str:
        return (self.directory / "moto.log").read_text()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
