# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Permission violations are assigned to the request, the message or the subscription that the server denied."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.denials import Denials

PUBLISH = 'nats: permissions violation for publish to "$sys.req.server.na.raftz"'
SUBSCRIBE = 'nats: permissions violation for subscription to "_inbox.natsops.x1.*"'


def test_other_errors_are_not_denials() -> None:
    denials = Denials()
    assert not denials.add("nats: maximum connections exceeded")
    assert denials.count == 0 and denials.find(["a"]) is None


def test_each_subject_has_its_own_denial() -> None:
    denials = Denials()
    assert denials.add(PUBLISH) and denials.add('nats: permissions violation for publish to "b"')
    found = denials.find(["$SYS.REQ.SERVER.NA.RAFTZ"])
    assert found is not None and found.code == "permission" and found.subject == "$SYS.REQ.SERVER.NA.RAFTZ"
    assert found.description == "permission denied: the user may not publish to $SYS.REQ.SERVER.NA.RAFTZ"
    # A subject that is part of a denied one was not denied itself.
    assert denials.find(["$SYS.REQ.SERVER.NA"]) is None


def test_only_denials_since_the_request_count() -> None:
    denials = Denials()
    denials.add(PUBLISH)
    since = denials.count
    assert denials.find(["$SYS.REQ.SERVER.NA.RAFTZ"], since) is None
    denials.add(PUBLISH)
    assert denials.find(["other", "$SYS.REQ.SERVER.NA.RAFTZ"], since) is not None


def test_denied_inbox_affects_every_request_and_names_the_remedy() -> None:
    denials = Denials()
    denials.add(PUBLISH)
    assert denials.inbox_denial("_INBOX.natsops", "$JS.API.INFO") is None
    denials.add(SUBSCRIBE)
    found = denials.inbox_denial("_INBOX.natsops", "$JS.API.INFO")
    assert found is not None and (found.code, found.subject) == ("permission", "$JS.API.INFO")
    assert "may not subscribe to _INBOX.natsops.>" in found.description and "inbox_prefix" in found.description
    assert denials.inbox_denial("_INBOX.other", "$JS.API.INFO") is None
    subscription = denials.find(["_INBOX.natsops.x1.*"])
    assert subscription is not None and "may not subscribe to" in subscription.description
