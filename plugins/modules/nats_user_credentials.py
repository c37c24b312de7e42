#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_user_credentials
short_description: Issue and renew the credentials of a user in operator mode
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Issues the C(.creds) file of a user with a role of an account, that is, with a signing key that has permissions. The
    user gets the permissions of the role.
  - Credentials that servers would still accept remain unchanged. The module issues new credentials if the name, the
    tags or the key of the role differ, if servers would no longer accept the existing credentials, and shortly before
    these expire. A renewal keeps the user's key. If the account has revoked this key, the module fails instead.
  - The module reads the account from the servers, so it needs a user of the system account. No server stores users, so
    the module changes nothing on the servers.
  - The module reads the seed of the role's key, so run it on the controller. To deliver credentials to a host, return
    them and copy them to the host.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - No credentials are issued.
  diff_mode:
    support: full
    details:
      - Shows the name, the role, the tags and whether the credentials expire, but no credentials.
  idempotent:
    support: full
requirements:
  - nkeys
options:
  account:
    description:
      - The user's account, by name or public key.
    type: str
    required: true
  name:
    description:
      - Name of the user.
    type: str
    required: true
  role:
    description:
      - Name of the role, or the public key of its signing key.
    type: str
    required: true
  tags:
    description:
      - Tags of the user, such as V(team:shop). The module fails if the role's subjects refer to a tag that the user
        does not have.
    type: list
    elements: str
    default: []
  expires:
    description:
      - Time after which new credentials expire, such as V(30d), or V(never). Servers then close the user's connections.
    type: str
    default: 30d
  renew_before:
    description:
      - Time before their expiry at which credentials are renewed.
    type: str
    default: 7d
  key_directory:
    description:
      - Directory with the seeds of the account's signing keys, in the layout of the key store of nsc, as
        M(natsops.jetstream.nats_account_claims) writes it.
    type: path
    required: true
  dest:
    description:
      - File for the credentials, with mode 0600. The directory of this file must exist.
    type: path
  current:
    description:
      - The current credentials, if they are not in O(dest). Set C(no_log) for the task.
    type: str
  expected_servers:
    description:
      - Names of servers that must answer.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_account_claims
"""

EXAMPLES = r"""
- name: Issue the credentials of a shop
  natsops.jetstream.nats_user_credentials:
    account: ORDERS
    name: shop
    role: app
    tags: [team:shop]
    key_directory: ~/nats-keys
    dest: ~/shop.creds
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
  delegate_to: localhost

- name: Read the credentials on the host
  ansible.builtin.slurp:
    src: /etc/shop/shop.creds
  register: present
  failed_when: false
  no_log: true

- name: Renew them on the controller
  natsops.jetstream.nats_user_credentials:
    account: ORDERS
    name: shop
    role: app
    tags: [team:shop]
    key_directory: ~/nats-keys
    current: "{{ present.content | default('') | b64decode }}"
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
  delegate_to: localhost
  register: shop
  no_log: true

- name: Copy them to the host
  ansible.builtin.copy:
    content: "{{ shop.credentials }}"
    dest: /etc/shop/shop.creds
    mode: "0600"
  no_log: true
  when: shop is changed
"""

RETURN = r"""
public_key:
  description: Public key of the user. Null in check mode, if credentials would be issued to a new key.
  returned: success
  type: str
  sample: UB7UDGJH7ZYKWWNSXXSRJN2I5ETPSXLQ6H7QYRVWEULWHPY3AFICK4NF
expires:
  description: Time at which the credentials expire, in UTC. Null if the credentials never expire, and for new
    credentials in check mode.
  returned: success
  type: str
  sample: "2026-12-27T12:00:00Z"
reasons:
  description: Why new credentials were issued.
  returned: success
  type: list
  elements: str
  sample: ["they expire at 2026-12-02T12:00:00Z"]
credentials:
  description: The content of the new C(.creds) file, which is secret. Null if the current credentials remain valid, and
    in check mode.
  returned: without O(dest)
  type: str
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from ..module_utils.accounts.claims import Claims
from ..module_utils.accounts.credentials import (
    DesiredCredentials,
    UserCredentials,
    issue_credentials,
    lifetime,
    read_credentials,
    renewal_reasons,
)
from ..module_utils.accounts.fields import moment_words
from ..module_utils.accounts.key_directory import KeyDirectory
from ..module_utils.accounts.keys import USER
from ..module_utils.accounts.run_claims import account_in_force
from ..module_utils.accounts.seeds import SeedKey, new_key
from ..module_utils.accounts.token import InvalidToken
from ..module_utils.collection_module import run
from ..module_utils.host.files import FilesError, ManagedFile, replace_all
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.screen import printable


def seconds(params: Mapping[str, Any], option: str) -> float:
    """Return the seconds of an option, 0 for never. Raises NatsFailure invalid_option."""
    try:
        return lifetime(params[option])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"{option}: {error}") from error


def role_key(account: Claims, role: str) -> str:
    """Return the public key of a role, given by its name or key. Raises NatsFailure invalid_option."""
    scopes = account.fields["signing_keys"]
    found = [key for key, scope in scopes.items() if scope["role"] and role in (key, scope["role"])]
    if len(found) == 1:
        return found[0]
    if found:
        reason = f"the account has {len(found)} keys with this role; give one of them: {', '.join(found)}"
    else:
        names = ", ".join(scope["role"] for scope in scopes.values() if scope["role"]) or "none"
        reason = f"account {printable(account.name)} does not have this role (it has: {names})"
    raise NatsFailure("invalid_option", f"role: {role}: {reason}")


def present(params: Mapping[str, Any]) -> UserCredentials | None:
    """Return the current credentials. Raises NatsFailure invalid_option."""
    if not params["dest"]:
        return read_credentials(params["current"] or "")
    try:
        content = ManagedFile(params["dest"], 0o600).before()
    except (FilesError, OSError) as error:
        raise NatsFailure("invalid_option", f"dest: {error}") from error
    return read_credentials((content or b"").decode("utf-8", errors="replace"))


def issued(
    desired: DesiredCredentials, account: Claims, signer: SeedKey, key: SeedKey, is_strict: bool, now: float
) -> UserCredentials:
    """Return new credentials. Raises NatsFailure refused_claims."""
    try:
        return issue_credentials(desired, account, signer, key, is_strict, now)
    except InvalidToken as error:
        raise NatsFailure("refused_claims", f"servers would refuse the user: {error}") from error


def write(path: str, content: str, check_mode: bool) -> bool:
    """Bring the file to the desired state and return whether it differed. Raises NatsFailure invalid_option."""
    file = ManagedFile(path, 0o600, content=content.encode(), secret=True)
    try:
        differs = file.differs()
        if differs and not check_mode:
            replace_all([file])
    except (FilesError, OSError) as error:
        raise NatsFailure("invalid_option", f"dest: {error}") from error
    return differs


def summary(found: UserCredentials | None, account: Claims) -> dict[str, Any]:
    """Return the facts about credentials that Ansible's diff shows."""
    if found is None:
        return {}
    scope = account.fields["signing_keys"].get(found.claims.issuer)
    return {
        "name": found.claims.name,
        "role": scope["role"] if scope else found.claims.issuer,
        "tags": found.claims.fields["tags"],
        "expires": bool(found.claims.expires),
    }


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    expires, renew_before, now = seconds(params, "expires"), seconds(params, "renew_before"), time.time()
    if expires and renew_before >= expires:
        raise NatsFailure("invalid_option", "renew_before: must be shorter than expires")
    account, is_strict = account_in_force(SystemApi(client), params["account"], params["expected_servers"])
    key = role_key(account, params["role"])
    desired = DesiredCredentials(params["name"], key, tuple(params["tags"]), expires, renew_before)
    signer = KeyDirectory(params["key_directory"]).find(key)
    if signer is None:
        raise NatsFailure(
            "invalid_option", f"key_directory: there is no seed of {key}, the key of role {params['role']}"
        )
    before = present(params)
    if before is not None and before.claims.subject in account.fields["revoke"]:
        raise NatsFailure(
            "revoked",
            f"account {printable(account.name)} has revoked the key {before.claims.subject} of user "
            f"{printable(before.claims.name)}. To let the user in again, delete the current credentials; the new ones have a "
            "different key",
        )
    reasons = renewal_reasons(before, desired, account, is_strict, now)
    after = before
    is_new = after is None or bool(reasons)
    if after is None or reasons:
        after = issued(desired, account, signer, new_key(USER) if before is None else before.key, is_strict, now)
    changed = write(params["dest"], after.text, check_mode) if params["dest"] else is_new
    unknown = check_mode and is_new
    result: dict[str, Any] = {
        "changed": changed,
        "public_key": None if unknown else after.claims.subject,
        "expires": None if unknown or not after.claims.expires else moment_words(after.claims.expires),
        "reasons": reasons,
        "diff": {"before": summary(before, account), "after": summary(after, account)},
    }
    return result if params["dest"] else {**result, "credentials": after.text if is_new and not check_mode else None}


def main() -> None:
    module = make_module(
        {
            "account": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "role": {"type": "str", "required": True},
            "tags": {"type": "list", "elements": "str", "default": []},
            "expires": {"type": "str", "default": "30d"},
            "renew_before": {"type": "str", "default": "7d"},
            "key_directory": {"type": "path", "required": True, "no_log": False},
            "dest": {"type": "path"},
            "current": {"type": "str", "no_log": True},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
        },
        mutually_exclusive=[("dest", "current")],
    )
    if module.params["dest"]:
        module.params["dest"] = os.path.abspath(module.params["dest"])
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
