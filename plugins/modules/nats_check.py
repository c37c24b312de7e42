#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_check
short_description: Check NATS servers, streams, consumers, messages and services against thresholds
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Runs any number of the checks of C(nats server check) in one task, over one connection for each user.
  - Each check returns a status, its reasons, its figures (perfdata), and the line that a Nagios plugin prints. Names,
    units and rules are those of the nats CLI, except where the CLI misses a fault or is wrong; C(docs/checks.md) in
    the collection lists every difference.
  - A value that cannot be determined results in V(UNKNOWN), never in V(OK). A threshold that every value reaches, and
    a warning threshold that is worse than its critical threshold, are rejected before any request is sent.
  - O(checks[].meta) and O(checks[].server) need a user of the system account. O(checks[].jetstream),
    O(checks[].stream), O(checks[].consumer), O(checks[].last_message) and O(checks[].kv) need a user of the account
    that owns the asset. O(checks[].connection) and O(checks[].request) work with any user, and also test that user's
    permissions. O(checks[].credential) and O(checks[].backup) read a file on the machine where the module runs and
    need no connection.
  - The task's own user must therefore belong either to the account or to the system account. With a user of the system
    account, set O(account_users) and the C(account) of the check.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
attributes:
  check_mode:
    details:
      - O(checks[].request) sends its request even in check mode, because the reply is the result.
options:
  checks:
    description:
      - The checks, each an item with exactly one key that names it.
      - Durations are written like V(500ms), V(5s), V(1h30m) or V(30d); a bare number is in seconds. Sizes are written
        like V(64MB).
      - An omitted threshold is disabled unless it has a default. Either threshold of a pair can be set alone.
    type: list
    elements: dict
    required: true
    suboptions:
      connection:
        description:
          - Opens a new connection, pings the server, and sends a message to itself. Thresholds are inclusive.
          - The status is V(UNKNOWN) if the user is not permitted to publish to its own inbox.
        type: dict
        suboptions:
          account:
            description: Account whose user in O(account_users) connects instead of the task's own user.
            type: str
          connect_warn:
            description: Warning threshold for the time to connect and log in.
            type: str
            default: 500ms
          connect_critical:
            description: Critical threshold for the time to connect and log in.
            type: str
            default: 1s
          rtt_warn:
            description: Warning threshold for the round trip of a ping.
            type: str
            default: 500ms
          rtt_critical:
            description: Critical threshold for the round trip of a ping.
            type: str
            default: 1s
          req_warn:
            description: Warning threshold for the round trip of the message that the check sends to itself.
            type: str
            default: 500ms
          req_critical:
            description: Critical threshold for the round trip of the message that the check sends to itself.
            type: str
            default: 1s
      meta:
        description:
          - Checks the meta group as reported by every server. A missing leader, servers that report different
            leaders, a wrong number of members, and members that are offline or not in step are critical.
        type: dict
        suboptions:
          expect:
            description: Expected number of members of the meta group.
            type: int
            required: true
          lag_critical:
            description: Maximum number of Raft entries that a member may be behind.
            type: int
            default: 200
          seen_critical:
            description: Maximum time since the leader last received data from a member.
            type: str
            default: 5s
      jetstream:
        description:
          - Checks an account's usage as a percentage of its limits, and whether all its streams have all their
            replicas.
          - The usage is 0 % if the account has no limit. If the account has tiers (R1, R3), each tier is checked.
            More than 100 % is always critical.
        type: dict
        suboptions:
          account:
            description: Account to check, using its user in O(account_users). Defaults to the account of the task's
              own user.
            type: str
          mem_warn:
            description: Warning above this percentage of the memory limit.
            type: int
            default: 75
          mem_critical:
            description: Critical above this percentage of the memory limit.
            type: int
            default: 90
          store_warn:
            description: Warning above this percentage of the file storage limit.
            type: int
            default: 75
          store_critical:
            description: Critical above this percentage of the file storage limit.
            type: int
            default: 90
          streams_warn:
            description: Warning above this percentage of the maximum number of streams.
            type: int
          streams_critical:
            description: Critical above this percentage of the maximum number of streams.
            type: int
          consumers_warn:
            description: Warning above this percentage of the maximum number of consumers.
            type: int
          consumers_critical:
            description: Critical above this percentage of the maximum number of consumers.
            type: int
          replicas:
            description: Whether a stream without a leader, or with replicas that are missing or not in step, is critical.
            type: bool
            default: true
          replica_seen_critical:
            description: Maximum time since a stream's leader last received data from a replica.
            type: str
            default: 5s
          replica_lag_critical:
            description: Maximum number of Raft entries that a replica may be behind.
            type: int
            default: 200
      stream:
        description:
          - Checks one stream. A missing leader, a wrong number of replicas, replicas that are offline or not in step,
            and a mirror or source that reports an error are always critical.
        type: dict
        suboptions:
          stream:
            description: Name of the stream.
            type: str
            required: true
          account:
            description: Account that owns the stream; its user in O(account_users) sends the requests. Defaults to
              the account of the task's own user.
            type: str
          metadata:
            description:
              - Whether thresholds in the stream's own metadata are used instead of these options.
              - The keys are C(io.nats.monitor.) followed by V(lag-critical), V(seen-critical), V(min-sources),
                V(max-sources), V(peer-expect), V(peer-lag-critical), V(peer-seen-critical), V(msgs-warn),
                V(msgs-critical), V(subjects-warn) or V(subjects-critical). The value V(0) disables a threshold.
                V(enabled) must be a boolean but has no effect here, because it is intended for tools that select the
                streams to check.
              - A value that cannot be parsed results in V(UNKNOWN). Any other key under C(io.nats.monitor.) results
                in V(WARNING).
            type: bool
            default: true
          lag_critical:
            description: Critical when the mirror or a source is at least this many messages behind.
            type: int
          seen_critical:
            description: Critical when the mirror or a source has received nothing for this long, or has never
              received anything.
            type: str
          min_sources:
            description: Minimum number of sources.
            type: int
          max_sources:
            description: Maximum number of sources.
            type: int
          peer_expect:
            description: Expected number of replicas. Defaults to the stream's C(num_replicas).
            type: int
          peer_lag_critical:
            description: Maximum number of Raft entries that a replica may be behind.
            type: int
            default: 200
          peer_seen_critical:
            description: Maximum time since the leader last received data from a replica.
            type: str
            default: 5s
          msgs_warn:
            description: Warning when the stream contains this many messages or fewer.
            type: int
          msgs_critical:
            description: Critical when the stream contains this many messages or fewer.
            type: int
          subjects_warn:
            description:
              - Warning when there are this many subjects or more. If O(checks[].stream.subjects_critical) is lower than
                this threshold, warning when there are this many or fewer.
            type: int
          subjects_critical:
            description:
              - Critical when there are this many subjects or more. If this threshold is lower than
                O(checks[].stream.subjects_warn), critical when there are this many or fewer.
            type: int
      consumer:
        description:
          - Checks one consumer. The consumer's replicas are checked in the same way as those of a stream.
          - When the leader's server restarts, the times of the last delivery and acknowledgement are lost. Until the
            next delivery or acknowledgement, the corresponding check is V(UNKNOWN).
        type: dict
        suboptions:
          stream:
            description: Name of the stream.
            type: str
            required: true
          consumer:
            description: Name of the consumer.
            type: str
            required: true
          account:
            description: Account that owns the stream; its user in O(account_users) sends the requests. Defaults to
              the account of the task's own user.
            type: str
          metadata:
            description:
              - Whether thresholds in the consumer's own metadata are used instead of these options, as with streams.
              - The keys are C(io.nats.monitor.) followed by V(outstanding-ack-critical), V(waiting-critical),
                V(unprocessed-critical), V(last-delivery-critical), V(last-ack-critical), V(redelivery-critical), V(pinned) or
                V(enabled).
            type: bool
            default: true
          outstanding_ack_critical:
            description: Critical when this many delivered messages or more are not acknowledged.
            type: int
          waiting_critical:
            description: Critical when this many pull requests or more are waiting.
            type: int
          unprocessed_critical:
            description: Critical when this many messages or more have not been delivered yet.
            type: int
          last_delivery_critical:
            description: Critical when nothing has been delivered for this long, or nothing has ever been delivered.
            type: str
          last_ack_critical:
            description: Critical when nothing has been acknowledged for this long, or nothing has ever been
              acknowledged.
            type: str
          redelivery_critical:
            description: Critical when this many messages or more are being redelivered.
            type: int
          pinned:
            description: Whether every priority group must have a pinned client.
            type: bool
            default: false
          peer_lag_critical:
            description: Maximum number of Raft entries that a replica may be behind.
            type: int
            default: 200
          peer_seen_critical:
            description: Maximum time since the leader last received data from a replica.
            type: str
            default: 5s
      last_message:
        description:
          - Checks the newest message on a subject. A missing message is critical.
        type: dict
        suboptions:
          stream:
            description: Name of the stream.
            type: str
            required: true
          account:
            description: Account that owns the stream; its user in O(account_users) sends the requests. Defaults to
              the account of the task's own user.
            type: str
          subject:
            description: Subject of the message, which may contain wildcards.
            type: str
            default: '>'
          age_warn:
            description: Warning when the message is older than this.
            type: str
          age_critical:
            description: Critical when the message is older than this.
            type: str
          content:
            description: Python regular expression that must match some part of the message.
            type: str
          body_timestamp:
            description:
              - Whether to compute the age from the content of the message instead of the time when the message was
                stored. The content must then be a number of seconds since 1970.
            type: bool
            default: false
      server:
        description:
          - Checks one server. If no server has this name, the check is critical.
        type: dict
        suboptions:
          server_name:
            description: Exact name of the server.
            type: str
            required: true
          cpu_warn:
            description: Warning at or above this CPU usage, in percent of one core.
            type: int
          cpu_critical:
            description: Critical at or above this CPU usage, in percent of one core.
            type: int
          mem_warn:
            description: Warning at or above this memory usage.
            type: str
          mem_critical:
            description: Critical at or above this memory usage.
            type: str
          conn_warn:
            description:
              - Warning when there are this many connections or more. If O(checks[].server.conn_critical) is lower than
                this threshold, warning when there are this many or fewer.
            type: int
          conn_critical:
            description: Critical when there are this many connections or more. If this threshold is lower than
              O(checks[].server.conn_warn), critical when there are this many or fewer.
            type: int
          subs_warn:
            description:
              - Warning when there are this many subscriptions or more. If O(checks[].server.subs_critical) is lower
                than this threshold, warning when there are this many or fewer.
            type: int
          subs_critical:
            description: Critical when there are this many subscriptions or more. If this threshold is lower than
              O(checks[].server.subs_warn), critical when there are this many or fewer.
            type: int
          uptime_warn:
            description: Warning when the server has been running for this long or less.
            type: str
          uptime_critical:
            description: Critical when the server has been running for this long or less.
            type: str
          auth_required:
            description: Whether the server must require clients to authenticate.
            type: bool
            default: false
          tls_required:
            description: Whether the server must require clients to use TLS.
            type: bool
            default: false
          js_required:
            description: Whether JetStream must be running.
            type: bool
            default: false
          tls_cert_warn:
            description:
              - Warning when a certificate of one of the server's listeners expires within this time. Servers report
                the expiry from 2.12.4 on; for older servers the status is V(UNKNOWN).
            type: str
          tls_cert_critical:
            description: Critical when a certificate of one of the server's listeners expires within this time.
            type: str
      kv:
        description:
          - Checks a key-value bucket. A missing bucket is critical.
        type: dict
        suboptions:
          bucket:
            description: Name of the bucket.
            type: str
            required: true
          account:
            description: Account that owns the bucket; its user in O(account_users) sends the requests. Defaults to
              the account of the task's own user.
            type: str
          values_warn:
            description:
              - Warning when there are this many values or more. If O(checks[].kv.values_critical) is lower than this
                threshold, warning when there are this many or fewer.
              - Old revisions and delete markers are counted as well, as in the nats CLI.
            type: int
          values_critical:
            description: Critical when there are this many values or more. If this threshold is lower than
              O(checks[].kv.values_warn), critical when there are this many or fewer.
            type: int
          key:
            description: Key that must have a value.
            type: str
      request:
        description:
          - Sends a request to a service. A missing reply is critical.
          - Use only requests that are safe at any time, because the request is sent even in check mode.
        type: dict
        suboptions:
          subject:
            description: Subject of the request.
            type: str
            required: true
          account:
            description: Account whose user in O(account_users) sends the request instead of the task's own user.
            type: str
          payload:
            description: Content of the request.
            type: str
            default: ''
          headers:
            description: Headers of the request.
            type: dict
          match_payload:
            description: Python regular expression that must match some part of the reply.
            type: str
          match_headers:
            description: Headers that the reply must contain, with their values.
            type: dict
          response_warn:
            description: Warning when the reply takes longer than this.
            type: str
          response_critical:
            description: Critical when the reply takes longer than this. A reply that arrives after O(timeout) counts
              as missing.
            type: str
      credential:
        description:
          - Checks the validity period of the JWT in a C(.creds) file. The signature is not verified. A JWT that has
            expired or is not valid yet is critical.
        type: dict
        suboptions:
          credential:
            description: Path of the file on the machine where the module runs.
            type: path
            required: true
          validity_warn:
            description: Warning when the JWT expires within this time.
            type: str
          validity_critical:
            description: Critical when the JWT expires within this time.
            type: str
          require_expiry:
            description: Whether a credential that never expires is critical.
            type: bool
            default: true
      expiry:
        description:
          - Checks the expiry of JWTs in operator mode and reports its effects. The JWTs are those of operators, accounts,
            activations and connected users, and of the files in O(credentials) and O(account_users).
          - Warning from 30 days before the expiry on, critical from 7 days on. For a JWT with a short lifetime, warning
            during the last fifth, and critical during the last twentieth of its lifetime. Users that are valid for less
            than a day are disregarded.
          - Needs a user of the system account.
        type: dict
        suboptions:
          accounts:
            description: Names of accounts, with C(*) and C(?). An operator belongs to all accounts.
            type: list
            elements: str
            default: ["*"]
      backup:
        description:
          - Checks the catalogue of a backup directory; see M(natsops.jetstream.nats_backup). A stream that the last
            run could not save, a stream whose last drill failed, and a directory without a catalogue are critical.
        type: dict
        suboptions:
          directory:
            description: The directory on the machine where the module runs, or C(s3://BUCKET/PREFIX).
            type: path
            required: true
          s3:
            description: How to reach object storage; see the same option of M(natsops.jetstream.nats_backup).
            type: dict
            suboptions:
              endpoint_url:
                description: Address of an object storage server other than AWS.
                type: str
              region:
                description: Region of the bucket.
                type: str
              access_key:
                description: Access key. Defaults to the credentials that boto3 finds.
                type: str
              secret_key:
                description: Secret key.
                type: str
              session_token:
                description: Session token of temporary credentials.
                type: str
              ca_file:
                description: CA certificates to verify the server's certificate.
                type: path
              addressing_style:
                description: Whether the bucket name is part of the path or of the host name in the URL.
                type: str
                choices: [auto, path, virtual]
                default: auto
          streams:
            description:
              - Streams to check, each as C(ACCOUNT), C(ACCOUNT/STREAM) or C(*), where C(*) matches any characters and
                C(?) matches exactly one character.
            type: list
            elements: str
            default: ["*"]
          age_warn:
            description: Warning when more than this time has passed since a stream was last saved or was last found to
              match its newest backup.
            type: str
            default: 26h
          age_critical:
            description: Critical when more than this time has passed since a stream was last saved or was last found to
              match its newest backup.
            type: str
            default: 50h
          proof_warn:
            description: Warning when the last proven restore of a stream is older than this, or no restore has been
              proven.
            type: str
          proof_critical:
            description: Critical when the last proven restore of a stream is older than this, or no restore has been
              proven.
            type: str
  fail_on:
    description:
      - The task fails when a check has this status or a worse one, in the order V(OK), V(WARNING), V(UNKNOWN),
        V(CRITICAL).
      - With V(never), the task only reports the status. Invalid options always make the task fail.
    type: str
    choices: [warning, unknown, critical, never]
    default: unknown
seealso:
  - module: natsops.jetstream.nats_cluster_health
"""

EXAMPLES = r"""
- name: Check the cluster and the assets of account APP in one go
  natsops.jetstream.nats_check:
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    account_users:
      - account: APP
        user: app
        password: "{{ nats_app_password }}"
    checks:
      - connection: {}
      - meta:
          expect: 3
      - jetstream:
          account: APP
          store_warn: 60
          store_critical: 80
      - stream:
          account: APP
          stream: ORDERS
          peer_expect: 3
      - consumer:
          account: APP
          stream: ORDERS
          consumer: worker
          unprocessed_critical: 10000
          last_ack_critical: 10m

- name: Report only, and show the lines that a Nagios plugin would print
  natsops.jetstream.nats_check:
    context: c1-app
    fail_on: never
    checks:
      - last_message:
          stream: BACKUPS
          subject: backup.*.done
          age_warn: 25h
          age_critical: 2d
      - kv:
          bucket: CONFIG
          key: current
  register: report

- name: Show them
  ansible.builtin.debug:
    msg: "{{ report.results | map(attribute='nagios') }}"

- name: Check a service, a server, and how long the controller's own credential is valid
  natsops.jetstream.nats_check:
    context: c1-sys
    fail_on: warning
    checks:
      - request:
          subject: $SRV.PING
          match_payload: '"name":"billing"'
          response_critical: 500ms
          account: APP
      - server:
          server_name: n1-c1
          js_required: true
          mem_warn: 4GB
          mem_critical: 8GB
          tls_cert_warn: 30d
          tls_cert_critical: 7d
      - credential:
          credential: ~/.nats/sys.creds
          validity_warn: 30d
          validity_critical: 7d
    account_users:
      - account: APP
        credentials: ~/.nats/app.creds
"""

RETURN = r"""
status:
  description: The worst status of all checks, V(OK), V(WARNING), V(UNKNOWN) or V(CRITICAL).
  returned: always
  type: str
  sample: CRITICAL
results:
  description: The results of the checks, in the order of O(checks).
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: The kind of check.
      type: str
      sample: stream
    name:
      description: The checked object, as named by the nats CLI.
      type: str
      sample: ORDERS
    account:
      description: Account named in the check. Null for the account of the task's own user.
      type: str
      sample: APP
    status:
      description: Status of the check, V(OK), V(WARNING), V(UNKNOWN) or V(CRITICAL).
      type: str
      sample: CRITICAL
    reasons:
      description: The findings, grouped by severity.
      type: dict
      contains:
        critical:
          description: Critical findings.
          type: list
          elements: str
        unknown:
          description: Values that could not be determined.
          type: list
          elements: str
        warning:
          description: Warnings.
          type: list
          elements: str
        ok:
          description: Results without a problem.
          type: list
          elements: str
      sample:
        critical: ['stream ORDERS (R3, S-R3F-vJPJ0ZU5): replica n3-c1 is offline (leader n1-c1)']
        unknown: []
        warning: []
        ok: [120 messages]
    perfdata:
      description:
        - The figures. The unit is V(s), V(B), V(%) or empty. Thresholds that are not set are null.
      type: list
      elements: dict
      sample:
        - name: messages
          value: 120
          unit: ''
          warning: 50
          critical: 10
    nagios:
      description: The line that a Nagios plugin would print.
      type: str
      sample: >-
        CRITICAL ORDERS Crit:stream ORDERS (R3, S-R3F-vJPJ0ZU5): replica n3-c1 is offline (leader n1-c1) OK:120 messages
        | peers=3;3;3 messages=120;50;10
"""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounts.expiry import evaluate
from ..module_utils.accounts.run_expiry import read_logins
from ..module_utils.assets.entries import subject_prefix
from ..module_utils.backup.catalogue import FILE as CATALOGUE
from ..module_utils.backup.catalogue import CatalogueError, read_catalogue
from ..module_utils.backup.target import PLACE_SPEC, requested_store
from ..module_utils.collection_module import run
from ..module_utils.health import asset_checks, check_result, checks
from ..module_utils.health.check_result import CRITICAL, STATUSES, UNKNOWN, Result
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import Call, NatsFailure
from ..module_utils.nats.jetstream_api import JetStreamApi, require_name
from ..module_utils.nats.replies import build_cluster
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.thresholds import BACKUP_HOURS, MAX_ACTIVE, MAX_LAG, STORAGE_PERCENT

#: Failure codes of a connection. After one of them, every other check of the same user also fails.
_NO_CONNECTION = ("unreachable", "authorization", "tls")
#: JetStream errors that prove a broken asset: not found, offline, offline with a reason (2.11.9).
_BAD_ASSET = (10014, 10059, 10118, 10119, 10194, 10195)
_NO_META_LEADER = 10008
_NAMES = ("stream", "consumer", "bucket")

Options = Mapping[str, Any]


class Checker:
    """Reads the data for each check and evaluates it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._dead: dict[str | None, NatsFailure] = {}
        self._checks: dict[str, Callable[[Options], Result]] = {
            "connection": self._connection,
            "meta": self._meta,
            "jetstream": self._jetstream,
            "stream": self._stream,
            "consumer": self._consumer,
            "last_message": self._message,
            "server": self._server,
            "kv": self._kv,
            "request": self._request,
            "credential": self._credential,
            "expiry": self._expiry,
            "backup": self._backup,
        }

    def run(self, check: str, options: Options) -> dict[str, Any]:
        """Return the result of one check. Raises NatsFailure for inconsistent options."""
        account = options.get("account")
        try:
            if account in self._dead and check not in ("credential", "backup"):
                raise self._dead[account]
            result = self._checks[check](options)
        except NatsFailure as failure:
            if failure.code == "invalid_option":
                raise
            if failure.code in _NO_CONNECTION:
                self._dead[account] = failure
            result = Result(check, check_result.result_name(check, options))
            result.add(CRITICAL if self._is_critical(check, failure) else UNKNOWN, failure.description)
        return {**result.as_dict(), "account": account}

    @staticmethod
    def _is_critical(check: str, failure: NatsFailure) -> bool:
        """Return whether the failure is the fault that the check tests for, rather than an obstacle to testing."""
        if check == "connection":
            return failure.code != "permission"
        if check == "request":
            return failure.code in ("no_responders", "timeout")
        if check == "jetstream" and failure.err_code == _NO_META_LEADER:
            return True
        return failure.err_code in _BAD_ASSET or failure.code in ("server_missing", "no_leader")

    def _connection(self, options: Options) -> Result:
        latency = self._connections.client(options["account"]).latency()
        return checks.check_connection(options, latency.connect, latency.rtt, latency.round_trip)

    def _meta(self, options: Options) -> Result:
        api = SystemApi(self._connections.own)
        servers = api.discover().servers
        answers = api.ask(servers, "JSZ")
        answered = {key: answer for key, answer in answers.items() if not isinstance(answer, NatsFailure)}
        if not answered:
            raise NatsFailure("timeout", "no server answered JSZ: the meta group is unknown")
        return checks.check_meta(options, build_cluster(servers, answered, {}))

    def _jetstream(self, options: Options) -> Result:
        api = self._connections.account(options["account"])
        account = api.info()
        if not options["replicas"]:
            return checks.check_jetstream(options, account, (), {})
        listing = api.streams()
        return checks.check_jetstream(options, account, listing.rows, listing.unknown)

    def _stream(self, options: Options) -> Result:
        return asset_checks.check_stream(
            options, _stream_info(self._connections.account(options["account"]), options["stream"])
        )

    def _consumer(self, options: Options) -> Result:
        api = self._connections.account(options["account"])
        stream, consumer = options["stream"], options["consumer"]
        config = _stream_info(api, stream)["config"]
        info = _info(lambda: api.consumer(stream, consumer), lambda: api.consumer_names(stream), f"consumer {consumer}")
        return asset_checks.check_consumer(options, info, config, _now())

    def _message(self, options: Options) -> Result:
        api = self._connections.account(options["account"])
        message = api.last_message(options["stream"], options["subject"])
        info = _stream_info(api, options["stream"])  # read after the message, so its timestamp is not older
        return asset_checks.check_message(options, message, asset_checks.info_time(info, _now()))

    def _server(self, options: Options) -> Result:
        api = SystemApi(self._connections.own)
        server = api.discover({options["server_name"]}).named(options["server_name"])
        return checks.check_server(options, api.ask_one(server, "VARZ"))

    def _kv(self, options: Options) -> Result:
        api = self._connections.account(options["account"])
        stream = f"KV_{options['bucket']}"
        info = _stream_info(api, stream)
        message = None
        if options["key"] is not None:
            subject = f"{subject_prefix(options['bucket'], info['config'])}{options['key']}"
            message = api.last_message(stream, subject)
        return asset_checks.check_kv(options, info, message)

    def _request(self, options: Options) -> Result:
        headers = {name: str(value) for name, value in (options["headers"] or {}).items()}
        call = Call(options["subject"], options["payload"].encode(), headers)
        reply = self._connections.client(options["account"]).request(call)
        return checks.check_request(options, reply.body, reply.headers, reply.seconds)

    def _credential(self, options: Options) -> Result:
        result = Result("credential", check_result.result_name("credential", options))
        try:
            with open(options["credential"], encoding="utf-8") as file:
                claims = checks.credential_claims(file.read())
        except OSError as error:
            missing = isinstance(error, (FileNotFoundError, IsADirectoryError))
            result.add(CRITICAL if missing else UNKNOWN, f"credential not accessible: {error.strerror}")
            return result
        except ValueError as error:
            result.add(CRITICAL, f"invalid credential: {error}")
            return result
        return checks.check_credential(options, claims, _now())

    def _expiry(self, options: Options) -> Result:
        api = SystemApi(self._connections.own)
        logins = read_logins(api, api.discover().servers, self._connections.credential_files)
        if logins is None:
            return checks.check_expiry(options, (), (), operator_mode=False)
        rows = evaluate(logins, _now().timestamp())
        return checks.check_expiry(options, rows, logins.unknown, operator_mode=True)

    def _backup(self, options: Options) -> Result:
        store = requested_store(options)
        path = store.place(CATALOGUE)
        result = Result("backup", check_result.result_name("backup", options))
        try:
            catalogue = read_catalogue(store.read(CATALOGUE))
        except FileNotFoundError:
            result.add(CRITICAL, f"{path} does not exist: there has never been a backup")
            return result
        except (OSError, UnicodeDecodeError, CatalogueError) as error:
            result.add(UNKNOWN, f"{path} cannot be read: {error}")
            return result
        except NatsFailure as failure:
            result.add(UNKNOWN, f"{path} cannot be read: {failure.description}")
            return result
        return checks.check_backup(options, catalogue, _now())


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _stream_info(api: JetStreamApi, stream: str) -> dict[str, Any]:
    return _info(lambda: api.stream(stream), api.stream_names, f"stream {stream}")


def _info(read: Callable[[], dict[str, Any]], names: Callable[[], list[str]], what: str) -> dict[str, Any]:
    """Return an asset's info, which the asset's leader sends. A missing reply could also mean that the account is
    wrong, so the function then searches the list of names, which the meta leader sends, for the asset. Raises
    NatsFailure no_leader when the asset is listed but its leader does not reply."""
    try:
        return read()
    except NatsFailure as silence:
        if silence.code != "timeout":
            raise
        if what.partition(" ")[2] not in names():
            raise
        raise NatsFailure("no_leader", f"{what} exists, but no leader answered for it") from silence


def prepare(items: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the options of each check. Raises NatsFailure invalid_option."""
    prepared = []
    for number, item in enumerate(items):
        check, given = next((check, given) for check, given in item.items() if given is not None)
        where = f"checks[{number}].{check}"
        try:
            options = check_result.prepare(check, given)
        except ValueError as error:
            raise NatsFailure("invalid_option", f"{where}.{error}") from error
        for option in _NAMES:
            if option in options:
                require_name(f"{where}.{option}", options[option])
        prepared.append((check, options))
    if not prepared:
        raise NatsFailure("invalid_option", "checks: the list is empty")
    return prepared


def _pair(stem: str, kind: str, warn: Any = None, critical: Any = None) -> dict[str, dict[str, Any]]:
    return {
        f"{stem}_{end}": {"type": kind, **({} if default is None else {"default": default})}
        for end, default in (("warn", warn), ("critical", critical))
    }


_NAME: dict[str, Any] = {"type": "str", "required": True}
_ACCOUNT: dict[str, dict[str, Any]] = {"account": {"type": "str"}}
_PEERS: dict[str, dict[str, Any]] = {
    "peer_lag_critical": {"type": "int", "default": MAX_LAG},
    "peer_seen_critical": {"type": "str", "default": f"{MAX_ACTIVE}s"},
}
_METADATA: dict[str, dict[str, Any]] = {"metadata": {"type": "bool", "default": True}}

SPECS: dict[str, dict[str, dict[str, Any]]] = {
    "connection": {
        **_ACCOUNT,
        **_pair("connect", "str", "500ms", "1s"),
        **_pair("rtt", "str", "500ms", "1s"),
        **_pair("req", "str", "500ms", "1s"),
    },
    "meta": {
        "expect": {"type": "int", "required": True},
        "lag_critical": {"type": "int", "default": MAX_LAG},
        "seen_critical": {"type": "str", "default": f"{MAX_ACTIVE}s"},
    },
    "jetstream": {
        **_ACCOUNT,
        **_pair("mem", "int", *STORAGE_PERCENT),
        **_pair("store", "int", *STORAGE_PERCENT),
        **_pair("streams", "int"),
        **_pair("consumers", "int"),
        "replicas": {"type": "bool", "default": True},
        "replica_seen_critical": {"type": "str", "default": f"{MAX_ACTIVE}s"},
        "replica_lag_critical": {"type": "int", "default": MAX_LAG},
    },
    "stream": {
        "stream": _NAME,
        **_ACCOUNT,
        **_METADATA,
        "lag_critical": {"type": "int"},
        "seen_critical": {"type": "str"},
        "min_sources": {"type": "int"},
        "max_sources": {"type": "int"},
        "peer_expect": {"type": "int"},
        **_PEERS,
        **_pair("msgs", "int"),
        **_pair("subjects", "int"),
    },
    "consumer": {
        "stream": _NAME,
        "consumer": _NAME,
        **_ACCOUNT,
        **_METADATA,
        "outstanding_ack_critical": {"type": "int"},
        "waiting_critical": {"type": "int"},
        "unprocessed_critical": {"type": "int"},
        "last_delivery_critical": {"type": "str"},
        "last_ack_critical": {"type": "str"},
        "redelivery_critical": {"type": "int"},
        "pinned": {"type": "bool", "default": False},
        **_PEERS,
    },
    "last_message": {
        "stream": _NAME,
        **_ACCOUNT,
        "subject": {"type": "str", "default": ">"},
        **_pair("age", "str"),
        "content": {"type": "str"},
        "body_timestamp": {"type": "bool", "default": False},
    },
    "server": {
        "server_name": _NAME,
        **_pair("cpu", "int"),
        **_pair("mem", "str"),
        **_pair("conn", "int"),
        **_pair("subs", "int"),
        **_pair("uptime", "str"),
        "auth_required": {"type": "bool", "default": False},
        "tls_required": {"type": "bool", "default": False},
        "js_required": {"type": "bool", "default": False},
        **_pair("tls_cert", "str"),
    },
    "kv": {"bucket": _NAME, **_ACCOUNT, **_pair("values", "int"), "key": {"type": "str", "no_log": False}},
    "request": {
        "subject": _NAME,
        **_ACCOUNT,
        "payload": {"type": "str", "default": ""},
        "headers": {"type": "dict"},
        "match_payload": {"type": "str"},
        "match_headers": {"type": "dict"},
        **_pair("response", "str"),
    },
    "credential": {
        "credential": {"type": "path", "required": True},
        **_pair("validity", "str"),
        "require_expiry": {"type": "bool", "default": True},
    },
    "expiry": {"accounts": {"type": "list", "elements": "str", "default": ["*"]}},
    "backup": {
        "directory": {"type": "path", "required": True},
        **PLACE_SPEC,
        "streams": {"type": "list", "elements": "str", "default": ["*"]},
        **_pair("age", "str", f"{BACKUP_HOURS.warning}h", f"{BACKUP_HOURS.critical}h"),
        **_pair("proof", "str"),
    },
}


def read(connections: Connections, module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result."""
    prepared = prepare(module.params["checks"])
    for _check, options in prepared:
        # Reject an account without a user before the first request.
        connections.client(options.get("account"))
    checker = Checker(connections)
    results = [checker.run(check, options) for check, options in prepared]
    outcome = {"status": check_result.worst([result["status"] for result in results]), "results": results}
    limit = module.params["fail_on"].upper()
    bad = [item for item in results if limit != "NEVER" and STATUSES.index(item["status"]) >= STATUSES.index(limit)]
    if bad:
        lines = "\n".join(f"- {item['check']}: {item['nagios'].partition(' | ')[0]}" for item in bad)
        fail(module, NatsFailure("check_failed", f"{len(bad)} of {len(results)} checks failed:\n{lines}"), **outcome)
    return {"changed": False, **outcome}


def main() -> None:
    module: AnsibleModule = make_module(
        {
            "checks": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {check: {"type": "dict", "options": options} for check, options in SPECS.items()},
                "mutually_exclusive": [tuple(SPECS)],
                "required_one_of": [tuple(SPECS)],
            },
            **ACCOUNT_USERS_SPEC,
            "fail_on": {"type": "str", "choices": ["warning", "unknown", "critical", "never"], "default": "unknown"},
        }
    )

    run(module, with_accounts, lambda connections: read(connections, module))


if __name__ == "__main__":
    main()
