#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_operator
short_description: Create an operator and its system account
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Creates the keys and JWTs with which a cluster begins in operator mode, and returns the role's variables for it. The
    operator is strict, so accounts are signed by its signing key only.
  - Files that exist are kept, so an interrupted run can be repeated. The module never replaces an operator.
  - Writes C(operator.nk) (the seed of the identity key, which is only needed to change the operator), C(operator-signing.nk)
    (the seed that signs accounts), C(operator.jwt) and C(system_account.jwt), and the seeds of the system account in the
    layout of nsc's key store. Seeds have mode 0600. The module does not return them.
  - Runs on the controller and connects to no server.
extends_documentation_fragment:
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - No key is created, so RV(variables) is empty if the operator does not exist yet.
  diff_mode:
    support: none
    details:
      - RV(created) lists the files.
  idempotent:
    support: full
requirements:
  - nkeys
options:
  name:
    description: Name of the operator.
    type: str
    required: true
  system_account:
    description: Name of the system account.
    type: str
    default: SYS
  directory:
    description: Directory for the files, with mode 0700. Store a copy of it in a safe place.
    type: path
    required: true
  resolver_dir:
    description: Directory of the servers for the JWTs of accounts.
    type: path
    default: /var/lib/nats/jwt
seealso:
  - module: natsops.jetstream.nats_accounts_plan
  - module: natsops.jetstream.nats_operator_key
"""

EXAMPLES = r"""
- name: Create the operator of a new cluster
  natsops.jetstream.nats_operator:
    name: ACME
    directory: ~/nats-operator
  register: operator

- name: Store the variables of the cluster
  ansible.builtin.copy:
    content: "{{ operator.variables | to_nice_yaml(width=10000) }}"
    dest: group_vars/nats/operator.yml
    mode: "0600"
"""

RETURN = r"""
created:
  description: The files that were created, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/home/ops/nats-operator/operator.nk, /home/ops/nats-operator/operator.jwt]
variables:
  description: The variables of the roles P(natsops.jetstream.nats_server#role) and
    P(natsops.jetstream.nats_cluster#role). They contain no seeds, only paths of their files.
  returned: success
  type: dict
  sample:
    nats_server_operator: eyJ0eXAiOiJKV1Q…
    nats_server_system_account: AAEXAMPLE
    nats_server_config:
      resolver: {type: full, dir: /var/lib/nats/jwt}
      resolver_preload: {AAEXAMPLE: eyJ0eXAiOiJKV1Q…}
    nats_server_api_account_seed: /home/ops/nats-operator/keys/A/BC/ABCEXAMPLE.nk
    nats_cluster_key_directory: /home/ops/nats-operator
    nats_cluster_accounts_seed_file: /home/ops/nats-operator/operator-signing.nk
    nats_cluster_accounts_key_directory: /home/ops/nats-operator
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..module_utils.accounts.builtin import role_keys
from ..module_utils.accounts.claims import Claims, decode_claims
from ..module_utils.accounts.key_directory import KeyDirectory, seed_in_file
from ..module_utils.accounts.keys import ACCOUNT, OPERATOR
from ..module_utils.accounts.operator import OperatorKeys, begin
from ..module_utils.accounts.seeds import SeedKey, new_key
from ..module_utils.accounts.token import InvalidToken
from ..module_utils.collection_module import CollectionModule, run
from ..module_utils.documents import InvalidDocument
from ..module_utils.host.files import FilesError, ManagedFile, replace_all
from ..module_utils.module import without_connection
from ..module_utils.nats.failures import NatsFailure


class OperatorFiles:
    """The files of an operator. `created`: those that did not exist."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.keys = KeyDirectory(str(directory))
        self.seeds = [str(directory / name) for name in ("operator.nk", "operator-signing.nk")]
        self._jwts = [str(directory / name) for name in ("operator.jwt", "system_account.jwt")]
        self._exists = any(os.path.exists(path) for path in self._jwts)
        # The seeds of an existing operator may be elsewhere, in a safe place.
        self.created = [] if self._exists else [p for p in (*self.seeds, *self._jwts) if not os.path.exists(p)]

    def complete(self, name: str, system_account: str) -> tuple[str, str, Claims]:
        """Create the missing files. Return the JWTs of the operator and of its system account, and the account's claims.
        Raises NatsFailure."""
        if self._exists:
            return self._read(name, system_account)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity, signing = (self._seed(path) for path in self.seeds)
        system, role = new_key(ACCOUNT), new_key(ACCOUNT)
        keys = OperatorKeys(identity, signing, system.public, role.public)
        jwts = begin(name, system_account, keys, int(time.time()))
        self.keys.save(system)
        self.keys.save(role)
        # Both files or none: without the account's JWT, no server could start with the operator.
        replace_all([ManagedFile(path, 0o644, content=f"{jwt}\n".encode()) for path, jwt in zip(self._jwts, jwts)])
        return self._read(name, system_account)

    def _seed(self, path: str) -> SeedKey:
        if not os.path.exists(path):
            replace_all([ManagedFile(path, 0o600, content=f"{new_key(OPERATOR).seed}\n".encode(), secret=True)])
        return seed_in_file(path, [OPERATOR], "directory")

    def _read(self, name: str, system_account: str) -> tuple[str, str, Claims]:
        """Return the same from existing files. Raises NatsFailure invalid_option if they are not those of this
        operator."""
        try:
            operator_jwt, account_jwt = (Path(path).read_text(encoding="ascii").strip() for path in self._jwts)
            operator, account = decode_claims(operator_jwt), decode_claims(account_jwt)
        except (InvalidToken, OSError, UnicodeDecodeError) as error:
            raise NatsFailure("invalid_option", f"directory: {self._directory}: {error}") from error
        if operator.kind != OPERATOR or operator.fields["system_account"] != account.subject:
            raise NatsFailure(
                "invalid_option",
                f"directory: the JWTs in {self._directory} are not those of an operator and its system account",
            )
        for option, given, found in (("name", name, operator.name), ("system_account", system_account, account.name)):
            if given != found:
                raise NatsFailure(
                    "invalid_option", f"{option}: {self._directory} has {found!r}; use another directory for {given!r}"
                )
        return operator_jwt, account_jwt, account


def ensure(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option."""
    directory = Path(os.path.abspath(params["directory"]))
    files = OperatorFiles(directory)
    if check_mode and files.created:
        return {"changed": True, "created": files.created, "variables": {}}
    try:
        operator_jwt, account_jwt, account = files.complete(params["name"], params["system_account"])
    except (FilesError, OSError) as error:
        raise NatsFailure("invalid_option", f"directory: {error}") from error
    except InvalidDocument as error:
        raise NatsFailure("invalid_option", f"name, system_account: {error}") from error
    (role,) = role_keys(account)
    variables = {
        "nats_server_operator": operator_jwt,
        "nats_server_system_account": account.subject,
        "nats_server_config": {
            "resolver": {"type": "full", "dir": params["resolver_dir"]},
            "resolver_preload": {account.subject: account_jwt},
        },
        "nats_server_api_account_seed": str(files.keys.seed_path(role)),
        "nats_cluster_key_directory": str(directory),
        "nats_cluster_accounts_seed_file": files.seeds[1],
        "nats_cluster_accounts_key_directory": str(directory),
    }
    return {"changed": bool(files.created), "created": files.created, "variables": variables}


def main() -> None:
    module = CollectionModule(
        {
            "name": {"type": "str", "required": True},
            "system_account": {"type": "str", "default": "SYS"},
            "directory": {"type": "path", "required": True},
            "resolver_dir": {"type": "path", "default": "/var/lib/nats/jwt"},
        },
        supports_check_mode=True,
    )
    run(module, without_connection, lambda module: ensure(module.params, module.check_mode))


if __name__ == "__main__":
    main()
