# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  away_from:
    description:
      - Names of servers that must not lead, matched exactly.
    type: list
    elements: str
    default: []
  preferred:
    description:
      - Name of the server that must lead.
    type: str
  placement:
    description:
      - Where the server that leads must be.
    type: dict
    suboptions:
      cluster:
        description: Name of its cluster.
        type: str
      tags:
        description: Tags (C(server_tags)) all of which it must have, compared in lower case as the servers do.
        type: list
        elements: str
  force:
    description:
      - The present leader must step down, whichever server it is and although nothing else may be asked for. Each run changes
        the leader.
      - Without it at least one of O(away_from), O(preferred) and O(placement) is required. It may be combined with them.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds within which everything must be done and seen.
    type: float
    default: 60
attributes:
  check_mode:
    support: full
    details:
      - Before nats-server 2.11 chance decides who leads next. Where more than one server fits, check mode then returns V(null)
        as the leader to come, and C(candidates) names the servers that fit.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - With O(force=true) each run changes the leader.
notes:
  - A leader is asked to step down only when a member that fits is in step with it and an election can be won. Otherwise nothing
    is done, and the failure V(step_down_refused) says why. V(unknown_name) says which server, cluster or tag does not exist.
  - From nats-server 2.11 the request names the server that is to lead next. Older servers choose by chance, and step
    down until one
    fits, at most ten times for each other member and not longer than O(wait_timeout).
  - Success is a leader that fits, as seen afterwards, whoever made it the leader. V(step_down_failed) says what is seen instead.
"""

    STREAMS_AND_CONSUMERS = r"""
options:
  all_accounts:
    description:
      - Everything that the servers in O(away_from) lead is meant, in every account of O(account_users).
    type: bool
    default: false
  concurrency:
    description:
      - How many groups may be without a leader at the same time.
    type: int
    default: 8
  r1:
    description:
      - What to do about a single replica on a server that does not fit. It cannot be led by another one.
      - V(fail) refuses to do anything, V(skip) leaves it, with the reason in the result.
      - By default V(fail) for what is named, V(skip) otherwise.
    type: str
    choices: [skip, fail]
"""
