# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detection of unknown server names. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..nats.model import Cluster
from ..screen import some_names


def known_servers(cluster: Cluster) -> frozenset[str]:
    """Return the servers that responded, are members of the meta group, or have a replica."""
    groups = [group.members for group in cluster.groups()]
    meta = [cluster.meta.group.members] if cluster.meta else []
    return cluster.names.union(*groups, *meta)


def unknown_servers(names: Iterable[str], known: Iterable[str]) -> str:
    """Return an error for names that are not in the cluster, or an empty text. A mistyped name would be mistaken for a
    completed removal."""
    there = sorted(known)
    unknown = sorted({repr(name) for name in names if name not in there})
    if not unknown:
        return ""
    verb = "is not a server" if len(unknown) == 1 else "are not servers"
    return f"{', '.join(unknown)} {verb} of the cluster, which has {some_names(there, 20) or 'none'}"
