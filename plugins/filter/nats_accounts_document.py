# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_accounts_document
short_description: Convert the accounts of a server's configuration to a document of accounts
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Converts accounts declared in the configuration of the servers, such as C(nats_server_accounts), to the format of
    the document of accounts for operator mode (see C(docs/accounts.md)).
  - Users are not converted. In operator mode, each user needs a JWT instead of a password.
positional: _input
options:
  _input:
    description: The accounts by name, with nats-server's own keys, as in C(nats_server_accounts).
    type: dict
    required: true
  system_account:
    description: The system account.
    type: str
    default: $SYS
"""

EXAMPLES = r"""
- name: Write the accounts of the configuration as a document
  ansible.builtin.copy:
    content: "{{ (nats_server_accounts | natsops.jetstream.nats_accounts_document).document | to_nice_yaml }}"
    dest: accounts.yml
    mode: "0644"
"""

RETURN = r"""
_value:
  description: C(document), and C(notes) on the parts of the accounts that the document does not declare.
  type: dict
  sample:
    document:
      accounts:
        APP: {limits: {connections: 100}}
    notes: ["account APP: 2 users; in operator mode each needs a JWT"]
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.accounts.document import read_document
from ..module_utils.accounts.static import document_from_static
from ..module_utils.nats.account_names import SYSTEM_ACCOUNT


def nats_accounts_document(accounts: Mapping[str, Any], system_account: str = SYSTEM_ACCOUNT) -> dict[str, Any]:
    """Return the document and the notes; see DOCUMENTATION."""
    try:
        document, notes = document_from_static(accounts, system_account)
        read_document(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise AnsibleFilterError(f"nats_accounts_document: {reason}") from error
    return {"document": document, "notes": notes}


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_accounts_document": nats_accounts_document}
