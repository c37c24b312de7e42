#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_nsc_store_info
short_description: Read an nsc store as a document of accounts
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the JWTs of an operator, its accounts and their users from the directory in which nsc stores them, and returns
    them as a document of accounts (see C(docs/accounts.md)). The module verifies the signature of each JWT.
  - The module reads only JWTs. It opens no file with a seed, connects to no server and changes nothing.
  - RV(notes) lists everything in the JWTs that the document does not declare. If files cannot be read or are not
    valid JWTs, the module fails and reports their paths.
  - Run the module on the host that has the store, usually the controller.
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
requirements:
  - nkeys
options:
  path:
    description:
      - Directory of one operator in the store, which contains the file C(.nsc), such as
        C(~/.local/share/nats/nsc/stores/ACME). C(nsc env) shows the directory that contains the stores.
    type: path
    required: true
seealso:
  - module: natsops.jetstream.nats_accounts_plan
  - plugin: natsops.jetstream.nats_accounts_document
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the store
  natsops.jetstream.nats_nsc_store_info:
    path: ~/.local/share/nats/nsc/stores/ACME
  delegate_to: localhost
  register: store

- name: Show the claims and users that the document does not declare
  ansible.builtin.debug:
    var: store.notes

- name: Write the document
  ansible.builtin.copy:
    content: "{{ store.document | to_nice_yaml }}"
    dest: accounts.yml
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
document:
  description:
    - The document of accounts. Each account has its public key as C(id), and every limit. A signing key is named after
      its role, or after the first characters of its public key if the role is missing or not unique. C(expires) of a
      user is the lifetime of its JWT.
  returned: success
  type: dict
  sample:
    operator: {name: ACME, id: OCGDSY6P5UEB4RIVFHYVGYQ4DHVNVWDYHGGRAKOG4FUL3BQNJBMIAQNW}
    system_account: SYS
    accounts:
      ORDERS:
        id: ACD6RSYQSFDB3BN7QGHKUDESMOUH3NIYFWBOH5V6WIC4YNLSRBANTXFW
        limits: {connections: 500}
    users:
      ORDERS/shop: {key: app, tags: [team:shop], expires: 30d}
notes:
  description: Parts of the JWTs that the document does not declare, and users that it leaves out, with the reasons.
  returned: success
  type: list
  elements: str
  sample: ["account ORDERS: the document does not declare the expiry at 2026-12-27T12:00:00Z"]
users:
  description:
    - All users in the store, including those that the document leaves out. C(key) is the name of the signing key in the
      document, null for other signers. C(expires) is null for a user without expiry.
  returned: success
  type: list
  elements: dict
  sample:
    - account: ORDERS
      name: shop
      public_key: UB7UDGJH7ZYKWWNSXXSRJN2I5ETPSXLQ6H7QYRVWEULWHPY3AFICK4NF
      key: app
      tags: [team:shop]
      issued: "2026-11-27T12:00:00Z"
      expires: "2026-12-27T12:00:00Z"
"""

import time
from typing import Any

from ..module_utils.accounts.nsc import document_from_store
from ..module_utils.accounts.nsc_store import UnreadableStore, read_store
from ..module_utils.collection_module import CollectionModule, run
from ..module_utils.documents import InvalidDocument
from ..module_utils.module import without_connection
from ..module_utils.nats.failures import NatsFailure
from ..module_utils.screen import MAX_LINES, cut, printable


def read(path: str, now: float) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_store or invalid_document."""
    try:
        store, file_notes = read_store(path)
        found = document_from_store(store, now)
    except UnreadableStore as error:
        raise _failure("invalid_store", "The nsc store cannot be read", error.problems) from error
    except InvalidDocument as error:
        reason = f"{path}: the accounts of this store are not a valid document"
        raise _failure("invalid_document", reason, error.problems) from error
    except ValueError as error:
        raise NatsFailure("invalid_document", f"{path}: {error}") from error
    return {
        "changed": False,
        "document": found.document,
        "notes": [printable(note) for note in (*file_notes, *found.notes)],
        "users": found.users,
    }


def _failure(code: str, reason: str, problems: object) -> NatsFailure:
    lines = [cut(str(one), 400) for one in problems] if isinstance(problems, (list, tuple)) else []
    more = [f"{len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return NatsFailure(code, "\n".join([f"{reason}:", *lines[:MAX_LINES], *more]))


def main() -> None:
    module = CollectionModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    run(module, without_connection, lambda module: read(module.params["path"], time.time()))


if __name__ == "__main__":
    main()
