# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests from which sources the connection's values are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.natsops.jetstream.plugins.module_utils.module import (
    CONNECTION_SPEC,
    fail,
    known_secrets,
    read_if_possible,
    resolve_connection,
    with_options,
    without_connection,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    ConnectionOptions,
    MissingLibrary,
    NatsFailure,
)

SEED = "SU" + "A" * 56


def resolve(environ: dict[str, str] | None = None, **options: Any) -> ConnectionOptions:
    params = {name: spec.get("default") for name, spec in CONNECTION_SPEC.items()}
    return resolve_connection({**params, **options}, environ or {})


@pytest.fixture
def context(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a context `ops` in its configuration directory."""
    path = tmp_path / "nats" / "context" / "ops.json"
    path.parent.mkdir(parents=True)
    content = {"url": "nats://a:4222,nats://b:4222", "user": "ctx", "password": "ctx-pw", "ca": "~/ca.crt", "token": ""}
    path.write_text(json.dumps(content))
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_failures_have_no_control_characters() -> None:
    """A stream may have control characters in its name."""
    failure = NatsFailure("gone", "stream")
    failure.description += " X\x1b[31m is gone"
    failed: dict[str, Any] = {}
    with pytest.raises(AssertionError):
        fail(cast(AnsibleModule, SimpleNamespace(fail_json=failed.update)), failure)
    assert failed["msg"] == failed["failure"]["description"] == "stream X\ufffd[31m is gone"


class Failed(Exception):
    """Replaces the end of the process after a failure."""


def failing_module(**params: Any) -> tuple[AnsibleModule, dict[str, Any]]:
    """Return a module with the connection options, and a dictionary that receives its failure."""
    failed: dict[str, Any] = {}

    def fail_json(**values: Any) -> None:
        failed.update(values)
        raise Failed

    defaults = {name: spec.get("default") for name, spec in CONNECTION_SPEC.items()}
    module = SimpleNamespace(params={**defaults, **params}, no_log_values=set(), fail_json=fail_json)
    return cast(AnsibleModule, module), failed


@pytest.mark.parametrize("frame", [without_connection, with_options])
def test_frames_report_failures_of_workers(frame: Any) -> None:
    module, failed = failing_module()
    with pytest.raises(Failed), frame(module):
        raise NatsFailure("gone", "stream X is gone")
    assert (failed["msg"], failed["failure"]["code"]) == ("stream X is gone", "gone")
    with pytest.raises(Failed), frame(module):
        raise MissingLibrary("nkeys", "its traceback")
    assert "nkeys" in failed["msg"]
    assert failed["exception"] == "its traceback"
    with pytest.raises(ZeroDivisionError), frame(module):
        raise ZeroDivisionError


def test_invalid_connection_options_are_reported_and_secrets_are_masked() -> None:
    module, failed = failing_module(servers=[" "])
    with pytest.raises(Failed), with_options(module):
        raise AssertionError("the worker runs without options")
    assert failed["failure"]["code"] == "invalid_option"
    module, _failed = failing_module(user="u", password="own-pw")
    with with_options(module) as options:
        assert options.password == "own-pw"
        assert module.no_log_values == {"own-pw"}


def test_an_unreadable_cluster_has_a_reason() -> None:
    def read(_client: Any) -> str:
        raise NatsFailure("timeout", "n1 did not answer")

    options = ConnectionOptions(servers=("nats://127.0.0.1:1",))
    assert read_if_possible(options, read) == (None, "n1 did not answer")
    assert read_if_possible(options, lambda _client: "state") == ("state", "")


def test_nothing_given() -> None:
    assert resolve() == ConnectionOptions(servers=("nats://127.0.0.1:4222",))


def test_options_before_environment_before_context(context: dict[str, str]) -> None:
    options = resolve(context, context="ops")
    assert (options.servers, options.user, options.password) == (("nats://a:4222", "nats://b:4222"), "ctx", "ctx-pw")
    assert options.tls_ca_file == str(Path("~/ca.crt").expanduser())
    environ = {**context, "NATS_URL": "nats://c:4222", "NATS_CONTEXT": "ops", "NATS_CA": "/env/ca.crt"}
    options = resolve(environ)
    assert (options.servers, options.user, options.tls_ca_file) == (("nats://c:4222",), "ctx", "/env/ca.crt")
    options = resolve(environ, servers=["nats://d:4222"], tls_ca_file="/own/ca.crt")
    assert (options.servers, options.tls_ca_file) == (("nats://d:4222",), "/own/ca.crt")


def test_credentials_are_not_mixed(context: dict[str, str]) -> None:
    options = resolve({**context, "NATS_CREDS": "/env.creds", "NATS_TOKEN": "env-token"}, context="ops")
    assert (options.credentials, options.user, options.password, options.token) == ("/env.creds", None, None, None)
    options = resolve({"NATS_CREDS": "/env.creds", "NATS_PASSWORD": "env-pw"}, user="own")
    assert (options.user, options.password, options.credentials) == ("own", "env-pw", None)


def test_creds_file_and_password_of_one_source_are_combined() -> None:
    both = {"credentials": "/own.creds", "user": "own", "password": "own-pw"}
    options = resolve({"NATS_TOKEN": "t"}, **both)
    assert (options.credentials, options.user, options.password, options.token) == ("/own.creds", "own", "own-pw", None)
    environment = {"NATS_USER": "other", "NATS_PASSWORD": "other-pw"}
    options = resolve(environment, credentials="/own.creds")
    assert (options.credentials, options.user, options.password) == ("/own.creds", None, None)


def test_an_nkey_as_seed_or_file(tmp_path: Path) -> None:
    assert resolve(nkey_seed=SEED).nkey_seed == SEED
    seed_file = tmp_path / "user.nk"
    seed_file.write_text(f"# user\n{SEED}\n")
    assert resolve({"NATS_NKEY": str(seed_file)}).nkey_seed == SEED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": "none"}, ["context none", "cannot read"]),
        ({"nkey_seed": "SUAA-not-a-seed"}, ["nkey_seed"]),
        ({"timeout": 0.0}, ["timeout", "0 seconds"]),
        ({"servers": [" "]}, ["servers"]),
    ],
)
def test_bad_values_are_named(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(NatsFailure) as refused:
        resolve({"HOME": "/nowhere"}, **options)
    assert refused.value.code == "invalid_option"
    for word in words:
        assert word in refused.value.description


@pytest.mark.parametrize("content", ['{"nsc": "x"}', "[1]", "{"])
def test_contexts_that_cannot_be_followed(tmp_path: Path, content: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(NatsFailure) as refused:
        resolve(context=str(path))
    assert str(path) in refused.value.description


def test_the_domain_comes_from_the_option_or_the_context(tmp_path: Path) -> None:
    path = tmp_path / "leaf.json"
    path.write_text('{"jetstream_domain": "hub"}')
    assert resolve(context=str(path)).jetstream_domain == "hub"
    assert resolve(context=str(path), jetstream_domain="leaf").jetstream_domain == "leaf"
    assert resolve().jetstream_domain is None


def test_secrets_are_collected_from_every_source() -> None:
    options = resolve({"NATS_PASSWORD": "env-pw"}, user="own", servers=["nats://u:url-pw@h:4222", "nats://tok@h"])
    assert known_secrets(options) == {"env-pw", "url-pw", "tok"}
    for secret in ("env-pw",):
        assert secret not in repr(options)


def test_the_end_of_a_module_walks_through_no_objects() -> None:
    code = "import atexit, gc, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    code += "atexit.register(lambda: print(gc.get_freeze_count() > 1000)); "
    code += "import ansible_collections.natsops.jetstream.plugins.module_utils.module"
    # This runs without the tests' own speed-ups, see tests/lab/python/sitecustomize.py.
    command = [sys.executable, "-S", "-c", code, json.dumps(sys.path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"
