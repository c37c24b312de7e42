#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_cluster_smoke_test
short_description: Send messages between all servers of a NATS cluster, and write and read a stream, as clients do
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Connects to each of O(servers), and to each further address that the servers advertise to clients
    (C(client_advertise), C(connect_urls)). Then each of these connections publishes a message, and each connection
    must receive the messages of all others.
  - In an account with JetStream, the module also creates a stream, writes a message to it, reads the message back and
    deletes the stream.
  - The test runs as the first user in O(account_users) that is permitted to publish and subscribe below O(subject). If
    no such user exists, the test runs as the task's own user, such as a user of the system account; RV(not_tested) then
    contains the reason, and the task does not fail.
  - The test opens one connection to each server and one to each further address. Nothing is left behind, even after a
    failure.
  - If a server listens on all its interfaces, an address that cannot be reached from the module's host only causes a
    warning. A configured address (C(client_advertise) or the host to listen on) must lead to a server of the cluster.
  - Every user in O(required_users) must be able to log in.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
options:
  account_users:
    description:
      - Users that can run the test, in the order in which they are tried. An account may have several users, such as
        one that publishes and one that manages streams.
      - All other connection options are those of the task.
    type: list
    elements: dict
    default: []
    suboptions: &user
      account:
        description: Name of the account.
        type: str
        required: true
      user:
        description: User name.
        type: str
      password:
        description: Password of the user.
        type: str
      token:
        description: Token.
        type: str
      nkey_seed:
        description: Seed of the user's nkey, or the path of a file that contains it.
        type: str
      credentials:
        description: Path of a C(.creds) file with the user's JWT and seed.
        type: path
      key_directory:
        description: Directory on the controller with the seeds of signing keys, from which the module mints a user with
          the role C(natsops) of the account. The account V(*) stands for all accounts with JetStream.
        type: path
      account_seed:
        description: Seed of a signing key of the account, or the path of a file that contains it, from which the module
          mints a user.
        type: str
      inbox_prefix:
        description: Prefix of the subjects for replies, if different from that of the task.
        type: str
  required_users:
    description:
      - Users that must be able to log in, each to its account. The test fails if one of them is rejected.
    type: list
    elements: dict
    default: []
    suboptions: *user
  expected_servers:
    description:
      - Names of the expected servers. The test fails if one of these servers cannot be reached at any address.
    type: list
    elements: str
    default: []
  subject:
    description:
      - Prefix of the subjects to which the test sends messages. Users with restricted permissions need permission to
        publish and subscribe to this prefix with C(.>) appended.
    type: str
    default: natsops.smoke_test
  stream:
    description:
      - Whether to write and read a stream as well.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for the messages to arrive, and for each step of the stream test. A subscription takes a
        moment to reach the other servers.
    type: float
    default: 10
attributes:
  check_mode:
    support: full
    details:
      - In check mode, the module connects to all servers and addresses but sends no messages.
  diff_mode:
    support: N/A
    details:
      - The module leaves everything unchanged.
  idempotent:
    support: full
    details:
      - The module leaves everything unchanged.
seealso:
  - module: natsops.jetstream.nats_cluster_health
"""

EXAMPLES = r"""
- name: Send messages between all servers, and write and read a stream
  natsops.jetstream.nats_cluster_smoke_test:
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222, nats://n3.example.com:4222]
    user: app
    password: "{{ app_password }}"
    expected_servers: [n1, n2, n3]
  delegate_to: localhost

- name: Run the test as the first permitted of two users
  natsops.jetstream.nats_cluster_smoke_test:
    context: c1-sys
    account_users:
      - {account: APP, user: app, password: "{{ app_password }}"}
      - {account: ORDERS, credentials: ~/orders.creds}
  register: smoke_test
  delegate_to: localhost
"""

RETURN = r"""
ok:
  description: Whether all tests passed.
  returned: when a server answered
  type: bool
  sample: true
summary:
  description: The tests that ran, as readable text.
  returned: when a server answered
  type: str
  sample: 6 pairs of 3 servers carry messages (app of account APP); a stream of 3 replica(s) was written, read and deleted
account:
  description: The account of the user that ran the test. Null for the task's own user.
  returned: when a server answered
  type: str
  sample: APP
servers:
  description: Names of the servers that were reached.
  returned: when a server answered
  type: list
  elements: str
  sample: [n1, n2, n3]
pairs:
  description: Number of connection pairs, and the first pairs whose message did not arrive.
  returned: when a server answered
  type: dict
  sample: {tested: 6, broken: []}
addresses:
  description:
    - The addresses advertised to clients beyond those of O(servers), each with the C(server) that the module reached
      through it. If the module reached no server, C(server) is empty and C(reason) contains the reason.
  returned: when a server answered
  type: list
  elements: dict
  sample: [{address: "10.0.0.1:4222", server: n1, reason: ""}]
stream:
  description: C(replicas) is the number of replicas of the stream that was written and read. C(replicas) is 0 if no
    stream was tested, and C(reason) then contains the reason.
  returned: when a server answered
  type: dict
  sample: {replicas: 3, reason: ""}
not_tested:
  description: The skipped tests and users, with the reasons.
  returned: when a server answered
  type: list
  elements: str
  sample: []
rejected:
  description: The entries of RV(failures) that concern O(required_users).
  returned: when a server answered
  type: list
  elements: str
  sample: ["app of account APP: every server rejects this login"]
failures:
  description: The failures, the most fundamental first, limited to one screen.
  returned: when a server answered
  type: list
  elements: str
  sample: []
"""

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accounts.minted_logins import account_logins
from ..module_utils.collection_module import run
from ..module_utils.health.message_flow import Flow, StreamTest, flow_failures, flow_warnings
from ..module_utils.health.smoke_test import Choice, User, choose_users, exchange, login_failures, try_stream
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, known_secrets, make_module, with_options
from ..module_utils.nats.accounts import MINTING_OPTIONS, as_user
from ..module_utils.nats.client import Client, ConnectionOptions, NatsFailure
from ..module_utils.waiting import positive

#: Maximum number of broken pairs in the result; a few hundred servers have a very large number of pairs.
MOST_PAIRS = 20
#: Remedies for messages that do not arrive, and for rejected users.
_ROUTES = "$ ansible-playbook natsops.jetstream.diagnose  # lists every missing route and gateway connection"
_LOGINS = "correct these users; operations require them: required_users (nats_cluster_account_users of the role)"
_ADDRESSES = (
    "client_advertise selects the address that a server advertises to clients (nats_server_client_advertise of the "
    "role)"
)


def named_users(own: ConnectionOptions, entries: Iterable[Mapping[str, Any]]) -> list[User]:
    """Return the users of accounts, each with the connection options of the task. Raises NatsFailure."""
    listed = list(entries)
    plain = [entry for entry in listed if not any(entry[option] for option in MINTING_OPTIONS)]
    minted = account_logins(own, [entry for entry in listed if entry not in plain]).users.values()
    return [
        *(User(entry["account"], as_user(own, entry)) for entry in plain),
        *(User(user.account_name, user.options) for user in minted),
    ]


def candidates(own: ConnectionOptions, params: Mapping[str, Any]) -> list[User]:
    """Return the users to try: those of the accounts, then the task's own user."""
    return [*named_users(own, params["account_users"]), User("", own)]


def smoke_test(users: list[User], required: list[User], params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result: the tests that were run and their failures. Raises NatsFailure when no user can log
    in."""
    timeout = positive(params["wait_timeout"], "wait_timeout")
    suffix = secrets.token_hex(6)
    subject = f"{params['subject']}.{suffix}"
    choice = Choice(reasons=("check mode: nothing was sent",)) if check_mode else choose_users(users, subject)
    # Logins can be tested even if no user is permitted to send messages.
    sender = choice.sender or users[-1]
    if choice.sender is None:
        with Client(sender.options) as client:
            client.connect()
    expected = frozenset(params["expected_servers"])
    flow = asyncio.run(exchange(sender.options, expected, subject if choice.sender else "", timeout))
    if choice.sender:
        flow = replace(flow, stream=write_and_read(choice, flow, params, suffix, timeout))
    return result(flow, sender, choice, len(users), login_failures(required))


def write_and_read(choice: Choice, flow: Flow, params: Mapping[str, Any], suffix: str, timeout: float) -> StreamTest:
    """Return the result of the stream test; it is skipped when it is not requested or no user can create a stream."""
    if not params["stream"]:
        return StreamTest(reason="not requested")
    sender, manager = choice.sender, choice.manager
    if sender is None or manager is None:
        return StreamTest(reason="no account has both a user for managing streams and a user for sending messages")
    replicas = 3 if sum(one.jetstream for one in flow.announced) >= 3 else 1
    name, subject = f"SMOKE_TEST_{suffix}", f"{params['subject']}.{suffix}.stream"
    with Client(sender.options) as publisher, Client(manager.options) as api:
        return try_stream(api, publisher, sender.account, name, subject, replicas, timeout)


def result(flow: Flow, sender: User, choice: Choice, users: int, rejected: Sequence[str]) -> dict[str, Any]:
    """Return the module's result; `users`: the number of users to choose from; `rejected`: the failures of required users."""
    sent = choice.sender is not None
    not_tested = list(choice.reasons)
    if sent and not sender.account and users > 1:
        not_tested.append("no user of an account may send messages: the task's own user sent them")
    if sent and not flow.stream.replicas:
        not_tested.append(f"no stream was tested: {flow.stream.reason}")
    failures = [*flow_failures(flow), *rejected]
    return {
        "rejected": list(rejected),
        "changed": False,
        "ok": not failures,
        "summary": failures[0] if failures else summary(flow, sender, sent),
        "account": sender.account or None,
        "servers": sorted(flow.names),
        "pairs": {
            "tested": len(flow.pairs) if sent else 0,
            "broken": [{"from": source, "to": target} for source, target in flow.broken_pairs[:MOST_PAIRS]],
        },
        "addresses": [one.__dict__ for one in flow.addresses],
        "stream": {"replicas": flow.stream.replicas, "reason": flow.stream.reason},
        "not_tested": not_tested,
        "failures": failures,
        "warnings": flow_warnings(flow),
    }


def summary(flow: Flow, sender: User, sent: bool) -> str:
    """Return a one-line summary of the tests."""
    who = f"{sender.name} of account {sender.account}" if sender.account else sender.name
    ways = f"{len(flow.names)} servers" + (f" and {len(flow.addresses)} further addresses" if flow.addresses else "")
    if not sent:
        return f"{ways} let {who} in"
    done = f"{len(flow.pairs)} pairs of {ways} carry messages ({who})"
    if not flow.stream.replicas:
        return done
    return f"{done}; a stream of {flow.stream.replicas} replica(s) was written, read and deleted"


def ensure(module: AnsibleModule, own: ConnectionOptions) -> dict[str, Any]:
    """Return the module's result. Ends the module with a failure if the cluster does not serve its clients."""
    users = candidates(own, module.params)
    required = named_users(own, module.params["required_users"])
    for user in [*users, *required]:
        module.no_log_values.update(known_secrets(user.options))
    found = smoke_test(users, required, module.params, module.check_mode)
    for text in found.pop("warnings"):
        module.warn(text)
    if not found["ok"]:
        hints = [_ROUTES] if found["pairs"]["broken"] else []
        hints += [_ADDRESSES] if any(not one["server"] for one in found["addresses"]) else []
        hints += [_LOGINS] if found["rejected"] else []
        lines = ["The cluster does not serve its clients correctly:", *found["failures"], *hints]
        fail(module, NatsFailure("smoke_test_failed", "\n".join(lines)), **found)
    return found


def main() -> None:
    spec = ACCOUNT_USERS_SPEC["account_users"]
    module: AnsibleModule = make_module(
        {
            "account_users": {**spec, "default": []},
            "required_users": {**spec, "default": []},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "subject": {"type": "str", "default": "natsops.smoke_test"},
            "stream": {"type": "bool", "default": True},
            "wait_timeout": {"type": "float", "default": 10},
        }
    )
    run(module, with_options, lambda own: ensure(module, own))


if __name__ == "__main__":
    main()
