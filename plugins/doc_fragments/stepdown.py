# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  away_from:
    description:
      - Names of servers that must not lead, matched exactly. If no other option selects the groups, every group led by
        one of these servers is selected.
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
        description: Name of the leader's cluster.
        type: str
      tags:
        description: Tags (C(server_tags)). The leader must have every listed tag. Tags are compared in lower case, as
          in nats-server.
        type: list
        elements: str
  force:
    description:
      - Whether the current leader must step down even if it satisfies the other options. Each run then changes the leader.
      - Without O(force), at least one of O(away_from), O(preferred) and O(placement) is required. These options can
        also be combined with O(force).
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds within which all changes must be made and verified.
    type: float
    default: 60
attributes:
  check_mode:
    support: full
    details:
      - Before nats-server 2.11, the next leader is chosen at random. If several servers are suitable, check mode
        therefore returns V(null) as the next leader, and C(candidates) lists the suitable servers.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - With O(force=true), each run changes the leader.
notes:
  - The module sends a leader the request to step down only if a suitable member is in step with the leader and can win
    an election. Otherwise, nothing is changed, and the failure V(step_down_refused) contains the reason. The failure
    V(unknown_name) reports a server, cluster or tag that does not exist.
  - From nats-server 2.11 on, the request names the next leader. Older servers choose the next leader at random, so the
    module repeats the step-down until the leader is suitable, at most ten times for each other member and not longer
    than O(wait_timeout).
  - The module succeeds if it then observes a suitable leader, no matter how that leader was elected. The failure
    V(step_down_failed) reports the observed leader.
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
      - Maximum number of groups that may be without a leader at the same time.
    type: int
    default: 8
  r1:
    description:
      - The action for a stream or consumer with a single replica on an unsuitable server. No other server can lead it.
      - V(fail) makes the task fail without changes. V(skip) leaves the asset unchanged and returns the reason.
      - Defaults to V(fail) for streams and consumers selected by name, and to V(skip) otherwise.
    type: str
    choices: [skip, fail]
"""
