# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of JetStream's errors that several files handle (server/errors.json). Pure: no I/O."""

from __future__ import annotations

STREAM_NOT_FOUND, CONSUMER_NOT_FOUND, MESSAGE_NOT_FOUND = 10059, 10014, 10037
STREAM_EXISTS, CONSUMER_EXISTS, RESTORED_NAME_EXISTS = 10058, 10148, 10130
#: The last message of a subject is not the expected one.
WRONG_LAST_SEQUENCE = 10071
#: JetStream is disabled for the user's account, or on the servers.
NOT_ENABLED = (10039, 10076)
MEMBER_CHANGE_IN_FLIGHT = 10202
