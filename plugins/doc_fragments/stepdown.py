# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  away_from:
    description:
      - Names of servers that must not lead, matched exactly. By itself it selects every group led by one of them.
    type: list
    elements: str
    default: []
  preferred:
    description:
      - Name of the server that must lead.
    type: str
  placement:
    description:
      - Required location of the leader.
    type: dict
    suboptions:
      cluster:
        description: Name of its cluster.
        type: str
      tags:
        description: Tags (C(server_tags)) that it must have, all of them. They are compared in lower case, as in
          nats-server.
        type: list
        elements: str
  force:
    description:
      - Make the current leader step down, whichever server it is, even if no other option requires it. Each run
        changes the leader.
      - Without it, at least one of O(away_from), O(preferred) and O(placement) is required. They can be combined with
        it.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds within which everything must be done and verified.
    type: float
    default: 60
attributes:
  check_mode:
    support: full
    details:
      - Before nats-server 2.11 the next leader is random. If several servers are suitable, check mode then returns
        V(null) as the next leader, and C(candidates) lists the suitable servers.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - With O(force=true) each run changes the leader.
notes:
  - A leader gets the request to step down only if a suitable member is in step with it and an election can be won.
    Otherwise nothing is done, and the failure V(step_down_refused) gives the reason. V(unknown_name) names a server,
    cluster or tag that does not exist.
  - From nats-server 2.11 on, the request names the next leader. Older servers choose at random, and step down until
    the leader is suitable, at most ten times for each other member and not longer than O(wait_timeout).
  - The module succeeds when a suitable leader is observed afterwards, however it was elected. V(step_down_failed)
    reports the observed leader.
"""

    STREAMS_AND_CONSUMERS = r"""
options:
  all_accounts:
    description:
      - Selects every group led by a server in O(away_from), in every account of O(account_users).
    type: bool
    default: false
  concurrency:
    description:
      - How many groups may be without a leader at the same time.
    type: int
    default: 8
  r1:
    description:
      - The action for a stream or consumer with a single replica on an unsuitable server. No other server can lead it.
      - V(fail) fails without changes, V(skip) leaves it, with the reason in the result.
      - The default is V(fail) for a named stream or consumer, V(skip) otherwise.
    type: str
    choices: [skip, fail]
"""
