#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_operator_key
short_description: Replace the signing key of an operator
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Adds a new signing key to the operator JWT, signs all accounts with it, and removes the old key from the JWT. The
    steps that are already done are derived from O(jwt_file) and the servers, so an interrupted run can be repeated.
  - Servers use a new operator JWT after a restart only, so the module stops with RV(step=restart) after each change of
    the JWT. The playbook C(natsops.jetstream.operator_key) restarts the servers and runs the module again.
  - Accounts are pushed to all servers and verified as M(natsops.jetstream.nats_account_claims) does. The old key is
    removed only if no server has a copy that this key signed.
  - The module needs a user of the system account, and servers with the resolver type V(full).
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Returns the next step.
  diff_mode:
    support: none
    details:
      - RV(done) names the steps.
  idempotent:
    support: full
requirements:
  - nkeys
options:
  jwt_file:
    description:
      - File with the operator JWT, from which the inventory reads it.
    type: path
    required: true
  replaced_key:
    description:
      - Public key to replace, a signing key of the operator. If it is the operator's identity key, the accounts get the
        signatures of the new key, and the identity key remains.
    type: str
    required: true
  new_seed_file:
    description:
      - File for the seed of the new signing key. It is created with mode 0600 if it does not exist.
    type: path
    required: true
  identity_seed:
    description:
      - Seed of the operator's identity key, which signs the operator JWT.
    type: str
  identity_seed_file:
    description:
      - File with this seed.
    type: path
  expected_servers:
    description:
      - Names of all servers, which must answer.
    type: list
    elements: str
    default: []
  wait_timeout:
    description:
      - Seconds until all servers must have the new claims of an account.
    type: float
    default: 15
  sync_interval:
    description:
      - Seconds after the last account until the servers' copies are read once more. V(0) skips this check.
    type: float
    default: 65
seealso:
  - module: natsops.jetstream.nats_signing_key_rotation
"""

EXAMPLES = r"""
- name: Prepare the replacement of the operator's signing key
  natsops.jetstream.nats_operator_key:
    jwt_file: operator.jwt
    replaced_key: OD6ROJBYLKQMOW3E7N4M2YBPUHMZD7PL65VRHRMO24BOVSBV5H3BQRZI
    new_seed_file: ~/operator-signing-2.nk
    identity_seed: "{{ vault_operator_identity_seed }}"
    expected_servers: [n1-c1, n2-c1, n3-c1]
    servers: [nats://n1.example.com:4222]
    credentials: ~/sys.creds
"""

RETURN = r"""
step:
  description: The next step, V(restart) or V(done). In check mode also V(add the key), V(sign the accounts) or V(drop
    the key).
  returned: success
  type: str
  sample: restart
done:
  description: The steps that the module carried out, or in check mode would begin with.
  returned: success
  type: list
  elements: str
  sample: [add the key]
new_key:
  description: The new public key. Null in check mode, if the key has yet to be created.
  returned: success
  type: str
  sample: OCLS4AFS2RSG3VGLM3Q2LSMNUNAVIS3RHCMT6XTQEVR5TCEVXMYQQCSO
"""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..module_utils.accounts.change import next_issue_time
from ..module_utils.accounts.claims import Claims, decode_claims
from ..module_utils.accounts.key_directory import given_seed, seed_in_file
from ..module_utils.accounts.keys import OPERATOR
from ..module_utils.accounts.operator_key import (
    ADD,
    DONE,
    DROP,
    RESTART,
    SIGN,
    operator_step,
    signed_accounts,
    with_signing_keys,
)
from ..module_utils.accounts.run_claims import (
    AccountsState,
    Confirmation,
    read_accounts,
    require_full_resolvers,
    require_writable,
    sign_account_again,
)
from ..module_utils.accounts.seeds import SeedKey, new_key
from ..module_utils.accounts.token import InvalidToken
from ..module_utils.collection_module import run
from ..module_utils.host.files import FilesError, ManagedFile, replace_all
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi


class Replacement:
    """One run of the module."""

    def __init__(self, api: SystemApi, params: Mapping[str, Any]) -> None:
        self._api = api
        self._params = params
        self._identity = given_seed(params["identity_seed"], params["identity_seed_file"], [OPERATOR], "identity_seed")
        self._confirmation = Confirmation(params["expected_servers"], params["wait_timeout"], params["sync_interval"])
        self.new: SeedKey | None = None
        if os.path.exists(params["new_seed_file"]):
            self.new = seed_in_file(params["new_seed_file"], [OPERATOR], "new_seed_file")

    def read(self) -> tuple[AccountsState, Claims, str]:
        """Return the accounts, the operator JWT in the file, and the next step. Raises NatsFailure."""
        params, old = self._params, self._params["replaced_key"]
        jwt = self._file_claims()
        if self._identity.public != jwt.subject:
            raise NatsFailure(
                "invalid_option", f"identity_seed: it is the seed of {self._identity.public}, not of {jwt.subject}"
            )
        if self.new is not None and self.new.public in (old, jwt.subject):
            raise NatsFailure("invalid_option", "new_seed_file: it has the seed of the old key; name a new file")
        state = read_accounts(self._api, params["expected_servers"], time.time())
        if state.unread and self.new is not None and self.new.public in jwt.fields["signing_keys"]:
            # A run that was interrupted during the restart may have left a server stopped; the restart starts it.
            return state, jwt, RESTART
        if state.unread:
            names = ", ".join(state.unread)
            raise NatsFailure(
                "incomplete", f"{names}: no complete answer. Start the servers first; nothing was changed"
            )
        foreign = {one.subject for one in state.trust.claims} - {jwt.subject}
        if foreign or not state.trust.claims:
            found = ", ".join(sorted(foreign)) or "no operator"
            raise NatsFailure("operator", f"jwt_file: the servers have {found}, not the operator {jwt.subject}")
        signed = signed_accounts(state.evaluations, old)
        return state, jwt, operator_step(jwt, state.trust.claims, self.new.public if self.new else "", old, signed)

    def carry_out(self, step: str, state: AccountsState, jwt: Claims) -> None:
        """Carry out one step. Raises NatsFailure."""
        if step == ADD:
            if self.new is None:
                self.new = new_key(OPERATOR)
                self._write(self._params["new_seed_file"], f"{self.new.seed}\n", 0o600)
            self._change_jwt(jwt, self.new.public, "")
        elif step == SIGN:
            self._sign(state)
        elif step == DROP:
            for one in state.evaluations:
                require_full_resolvers(self._api, state, one.copies.account)
            self._change_jwt(jwt, "", self._params["replaced_key"])

    def _sign(self, state: AccountsState) -> None:
        if self.new is None:
            raise ValueError("the new key does not exist")
        require_writable(state, self.new.public)
        old = self._params["replaced_key"]
        at_once = replace(self._confirmation, sync_interval=0)
        accounts = signed_accounts(state.evaluations, old)
        unclear = [one.label for one in state.evaluations if one.copies.account in accounts and one.disagreements]
        if unclear:
            raise NatsFailure(
                "disagreement", f"the servers' copies differ: {', '.join(unclear)}; apply the accounts first"
            )
        for one in state.evaluations:
            if one.copies.account in accounts:
                sign_account_again(self._api, state, one, self.new, at_once)
        time.sleep(self._confirmation.sync_interval)
        left = signed_accounts(self.read()[0].evaluations, old)
        if left:
            raise NatsFailure("not_applied", f"still signed by {old}: {', '.join(left)}. Repeat the run")

    def _file_claims(self) -> Claims:
        try:
            claims = decode_claims(self._token())
        except InvalidToken as error:
            raise NatsFailure("invalid_option", f"jwt_file: {error}") from error
        if claims.kind != OPERATOR:
            raise NatsFailure("invalid_option", f"jwt_file: the JWT is that of an {claims.kind}, not of an operator")
        return claims

    def _token(self) -> str:
        try:
            return (
                (ManagedFile(self._params["jwt_file"], 0o644).before() or b"").decode("ascii", errors="replace").strip()
            )
        except (FilesError, OSError) as error:
            raise NatsFailure("invalid_option", f"jwt_file: {error}") from error

    def _change_jwt(self, jwt: Claims, added: str, dropped: str) -> None:
        issued_at = next_issue_time(jwt.issued_at, time.time())
        token = with_signing_keys(self._token(), self._identity, added, dropped, issued_at)
        self._write(self._params["jwt_file"], f"{token}\n", 0o644)

    @staticmethod
    def _write(path: str, content: str, mode: int) -> None:
        try:
            replace_all([ManagedFile(path, mode, content=content.encode(), secret=True)])
        except (FilesError, OSError) as error:
            raise NatsFailure("invalid_option", str(error)) from error


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    replacement = Replacement(SystemApi(client), params)
    done: list[str] = []
    state, jwt, step = replacement.read()
    while step not in (RESTART, DONE):
        if step in done:
            raise NatsFailure("not_applied", f"{step}: the servers do not show the result. Repeat the run")
        done.append(step)
        if check_mode:
            break
        replacement.carry_out(step, state, jwt)
        state, jwt, step = replacement.read()
    new = replacement.new
    return {"changed": bool(done), "step": step, "done": done, "new_key": new.public if new else None}


def main() -> None:
    module = make_module(
        {
            "jwt_file": {"type": "path", "required": True},
            "replaced_key": {"type": "str", "required": True, "no_log": False},
            "new_seed_file": {"type": "path", "required": True, "no_log": False},
            "identity_seed": {"type": "str", "no_log": True},
            "identity_seed_file": {"type": "path", "no_log": False},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "wait_timeout": {"type": "float", "default": 15},
            "sync_interval": {"type": "float", "default": 65},
        },
        mutually_exclusive=[("identity_seed", "identity_seed_file")],
        required_one_of=[("identity_seed", "identity_seed_file")],
    )
    module.params["jwt_file"] = os.path.abspath(module.params["jwt_file"])
    module.params["new_seed_file"] = os.path.abspath(module.params["new_seed_file"])
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
