# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the log lines and the warnings of the collection's AnsibleModule, and the function that runs modules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common.text.converters import to_bytes
from ansible_collections.natsops.jetstream.plugins.module_utils.collection_module import (
    CollectionModule,
    failing_on,
    run,
)

SPEC: dict[str, Any] = {
    "name": {"type": "str"},
    "secret": {"type": "str", "no_log": True},
    "files": {"type": "list", "elements": "dict", "options": {"content": {"type": "str", "no_log": True}}},
    "login": {"type": "dict", "options": {"token": {"type": "raw", "no_log": True}}},
}


def logged(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> str:
    """Return the log lines of a module with these arguments."""
    lines: list[str] = []
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": arguments})))
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    monkeypatch.setattr(
        basic.AnsibleModule, "log", lambda _module, message, log_args: lines.extend([message, str(log_args)])
    )
    CollectionModule(argument_spec=SPEC)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "secret",
    [
        "plain-secret",
        "first line\nthe-secret",
        "it's-secret",
        "both'\"-secret",
        "back\\slash-secret",
        "tab\t-secret",
        "\x7f-secret",
        "ß\u200b-secret",
    ],
)
def test_no_secret_is_logged(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    text = logged(monkeypatch, name="n1", secret=secret, files=[{"content": secret}], login={"token": [secret]})
    assert "name=n1" in text
    assert "secret" not in text.replace("secret=", "").replace("'secret':", "")


def test_a_warning_has_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may have control characters in its name."""
    warnings: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, warning: warnings.append(warning))
    CollectionModule.__new__(CollectionModule).warn("stream X\x1b[31m lags")
    assert warnings == ["stream X\ufffd[31m lags"]


def exited(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> Any:
    """Return the result of a module, after a worker that raises this error."""
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": {"name": "n1"}})))
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)

    def ensure(module: CollectionModule) -> dict[str, Any]:
        if error is not None:
            raise error
        return {"changed": True, "name": module.params["name"]}

    with pytest.raises(SystemExit):
        run(
            CollectionModule(argument_spec=SPEC),
            failing_on(OSError, KeyError, message=lambda error: f"not done: {error}"),
            ensure,
        )
    return json.loads(capsys.readouterr().out)


def test_the_result_of_a_worker_ends_the_module(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = exited(capsys, monkeypatch, None)
    assert (result["changed"], result["name"], result.get("failed")) == (True, "n1", None)


@pytest.mark.parametrize("error", [OSError("disk full"), PermissionError("disk full")])
def test_an_expected_error_is_the_message_of_the_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    result = exited(capsys, monkeypatch, error)
    assert (result["failed"], result["msg"]) == (True, "not done: disk full")


def test_an_unexpected_error_is_raised(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        exited(capsys, monkeypatch, ZeroDivisionError())
