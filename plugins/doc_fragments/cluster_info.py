# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  detail:
    description:
      - V(servers) reads only the servers and the meta group; V(assets) also reads every stream and consumer.
    type: str
    choices: [servers, assets]
    default: assets
  expected_servers:
    description:
      - Names of all expected servers. A missing or unexpected server is a problem.
    type: list
    elements: str
  cluster:
    description:
      - Return only the servers and streams of the cluster with exactly this name.
    type: str
  account:
    description:
      - Return only the streams of this account, by name or, in operator mode, by public key. A name shared by several
        accounts is refused with a list of their keys.
    type: str
  stream:
    description:
      - Return only the streams with exactly this name.
    type: str
  jwts:
    description:
      - Whether to read the JWTs that expire. In operator mode, this reads the connections of all servers.
    type: bool
    default: false
"""
