# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the filters' own decisions; the rules that they apply have separate tests."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.natsops.jetstream.plugins.filter.nats_account_admins import nats_account_admins
from ansible_collections.natsops.jetstream.plugins.filter.nats_certificates import nats_certificates
from ansible_collections.natsops.jetstream.plugins.filter.nats_composed_config import nats_composed_config
from ansible_collections.natsops.jetstream.plugins.filter.nats_conf import nats_conf
from ansible_collections.natsops.jetstream.plugins.filter.nats_config_problems import nats_config_problems
from ansible_collections.natsops.jetstream.plugins.filter.nats_connection import nats_connection
from ansible_collections.natsops.jetstream.plugins.filter.nats_duration_seconds import nats_duration_seconds
from ansible_collections.natsops.jetstream.plugins.filter.nats_firewall_rules import nats_firewall_rules
from ansible_collections.natsops.jetstream.plugins.filter.nats_has_login import nats_has_login
from ansible_collections.natsops.jetstream.plugins.filter.nats_listeners import nats_listeners
from ansible_collections.natsops.jetstream.plugins.filter.nats_operation_logins import nats_operation_logins
from ansible_collections.natsops.jetstream.plugins.filter.nats_packages import nats_packages
from ansible_collections.natsops.jetstream.plugins.filter.nats_release import nats_release
from ansible_collections.natsops.jetstream.plugins.filter.nats_report import nats_report
from ansible_collections.natsops.jetstream.plugins.filter.nats_required_action import nats_required_action
from ansible_collections.natsops.jetstream.plugins.filter.nats_rescue_host import nats_rescue_host
from ansible_collections.natsops.jetstream.plugins.filter.nats_rotation_plan import nats_rotation_plan
from ansible_collections.natsops.jetstream.plugins.filter.nats_rotation_refusal import nats_rotation_refusal
from ansible_collections.natsops.jetstream.plugins.filter.nats_supercluster_hosts import nats_supercluster_hosts
from ansible_collections.natsops.jetstream.plugins.filter.nats_tls_sources import nats_tls_sources
from ansible_collections.natsops.jetstream.plugins.filter.nats_topology import nats_topology
from ansible_collections.natsops.jetstream.plugins.filter.nats_wheels import nats_wheels
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.credential_rotation import (
    CredentialOptions,
)
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import typed
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(*names: str) -> tuple[str, str]:
    """Return a certificate with these names, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), written.decode()


def test_a_certificate_is_judged_with_its_key_only() -> None:
    pem, key = certificate("n1.example.com")
    assert "problems" not in nats_certificates(pem)[0]
    assert nats_certificates(pem, key=key, names=["n1.example.com"])[0]["problems"] == []
    assert nats_certificates(pem, key=key, names=["n2"])[0]["problems"] == ["it lacks the name n2"]
    assert nats_certificates(pem, key="")[0]["problems"][0].startswith("the key cannot be read")
    assert nats_certificates("") == []
    with pytest.raises(AnsibleFilterError, match="nats_certificates: the text contains no certificate"):
        nats_certificates("", key=key)
    with pytest.raises(AnsibleFilterError, match="the certificates include a private key"):
        nats_certificates(pem + key)


def test_files_of_a_certificate_that_cannot_be_presented_are_problems_of_the_configuration() -> None:
    pem, key = certificate("n1.example.com")
    given = {
        "host": "n1",
        "path": "/n1.crt",
        "missing": [],
        "certificate": pem,
        "key": key,
        "names": ["n1.example.com"],
    }

    def messages(**different: Any) -> list[tuple[str, str]]:
        found = nats_config_problems({"port": 4222}, {"tls_files": {**given, "mutual": False, **different}})
        return [
            (problem["option"], problem["message"])
            for problem in found
            if problem["option"].startswith("nats_server_tls")
        ]

    assert messages() == []
    cannot = "n1 cannot present /n1.crt: "
    assert messages(names=["n1.example.com", "n2"]) == [("nats_server_tls_cert_src", f"{cannot}it lacks the name n2")]
    assert messages(certificate=pem + key) == [
        ("nats_server_tls_cert_src", f"{cannot}the certificates include a private key")
    ]
    assert messages(certificate="", key="", missing=["/ca.crt", "/n1.key"]) == [
        ("nats_server_tls_source", "/ca.crt does not exist on the controller"),
        ("nats_server_tls_source", "/n1.key does not exist on the controller"),
    ]


def test_only_a_rotation_replaces_the_authority_of_a_running_server() -> None:
    own, _key = certificate("n1.example.com")  # self-signed: its own authority
    other, _other_key = certificate("n1.example.com")
    given = {"host": "n1", "source": "ca", "path": "/pki/ca.crt", "running": True, "presented": own}

    def messages(**different: Any) -> list[tuple[str, str]]:
        context = {"tls_authority": {**given, "authorities": own, **different}}
        found = nats_config_problems({"port": 4222}, context)
        return [(one["option"], one["message"]) for one in found if one["option"].startswith("nats_server_tls")]

    assert messages() == messages(authorities=other + own) == []
    assert messages(authorities="", presented="") == messages(authorities=other, running=False) == []
    for source, option in (("ca", "nats_server_tls_ca_dir"), ("files", "nats_server_tls_ca_src")):
        ((where, message),) = messages(authorities=other, source=source)
        assert where == option and message.startswith("/pki/ca.crt did not issue the certificate that n1 presents;")
        assert option.replace("tls_ca", "tls_new_ca") in message
    ((_where, message),) = messages(authorities="")
    assert message.startswith("/pki/ca.crt does not exist, but n1 presents a certificate;")
    ((where, message),) = messages(authorities="-----BEGIN PRIVATE KEY-----")
    assert (where, message) == ("nats_server_tls_source", "/pki/ca.crt: the certificates include a private key")


def test_secrets_are_referred_to_and_defined_by_the_same_names() -> None:
    config = {"authorization": {"user": "u", "password": "s3cret"}}
    assert "s3cret" in nats_conf(config)
    reference, definitions = nats_conf(config, secrets="reference"), nats_conf(config, secrets="definitions")
    name = definitions.partition(":")[0]
    assert f"${name}" in reference
    assert "s3cret" not in reference
    assert "s3cret" in definitions
    with pytest.raises(AnsibleFilterError, match="secrets: must be inline, reference or definitions, not 'none'"):
        nats_conf(config, secrets="none")


def test_the_users_are_those_that_the_accounts_got() -> None:
    made = nats_account_admins({"APP": {"jetstream": True}, "$SYS": {"jetstream": True}}, "pw", without="$SYS")
    assert made["users"] == [{"account": "APP", "user": "operator-APP", "password": "pw"}]
    assert [user["user"] for user in made["accounts"]["APP"]["users"]] == ["operator-APP"]
    three = {name: {"jetstream": True} for name in ("APP", "BILLING", "$SYS")}
    assert [one["account"] for one in nats_account_admins(three, "pw", without=["$SYS", "BILLING"])["users"]] == ["APP"]
    assert nats_account_admins({"APP": {"jetstream": True}}, None) == {
        "accounts": {"APP": {"jetstream": True}},
        "users": [],
        "clients": [],
    }


def test_a_run_that_starts_a_cluster_in_parts_is_a_problem_of_the_configuration() -> None:
    names = ["n1", "n2", "n3"]
    members = nats_topology(names, {name: {} for name in names}, "n1")["servers"]
    run: dict[str, Any] = {"cluster": "C1", "hosts": ["n1"], "running": False, "live": [], "live_error": "refused"}
    config = {"server_name": "n1", "port": 4222}

    def messages(context: dict[str, Any]) -> list[str]:
        return [problem["message"] for problem in nats_config_problems(config, context)]

    without = messages({"members": members})
    assert messages({"members": members, "run": {**run, "running": True}}) == without
    assert "this run leaves out" in messages({"members": members, "run": run})[-1]


def test_versions_with_defects_cause_warnings() -> None:
    found = nats_config_problems({"port": 4222}, {"versions": ["2.15.1", "2.12.9"]})
    warnings = [problem for problem in found if problem["option"] == "nats_server_version"]
    assert [problem["severity"] for problem in warnings] == ["warning"] * 4
    assert warnings[0]["message"].startswith("nats-server 2.12.9: end-of-life since 2026-09")
    assert nats_config_problems({"port": 4222}, {"versions": ["2.15.1"]}) == nats_config_problems({"port": 4222})


@pytest.mark.parametrize("version", ["v2.15.1", "2.15.1+git", "٢.١٥.١", "latest", 2.10, None])
def test_a_version_that_no_server_reports_is_refused(version: object) -> None:
    server = {"name": "n1", "version": "2.12.9", "target": version, "running": True}
    run = {"cluster": "C1", "hosts": ["n1"], "running": True, "versions": [server]}
    found = nats_config_problems({"port": 4222}, {"version": version, "versions": [version], "run": run})
    assert (found[0]["severity"], found[0]["option"]) == ("error", "nats_server_version")
    assert found[0]["message"].startswith(f"{version!r} is ")


def test_logins_come_from_options_and_the_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = nats_tls_sources({"source": "ca", "ca_dir": str(tmp_path)}, "n1")
    options = {"user": "sys", "password": "secret", "uses_tls": "True", "shows_certificate": "no", "timeout": 5}
    login = {"servers": ["tls://n1:4222"], "timeout": 5, "user": "sys", "password": "secret"}
    assert nats_connection(options, ["tls://n1:4222"], sources) == login
    (tmp_path / "ca.crt").touch()
    trusted = {"tls_ca_file": str(tmp_path / "ca.crt")}
    assert nats_connection(options, ["tls://n1:4222"], sources) == {**login, **trusted}
    with pytest.raises(
        AnsibleFilterError, match="nats_connection: nats_server_api_account_seed: the modules would run on"
    ):
        nats_connection({"account_seed": "SA", "delegate_to": "jump"}, [], sources)
    for name in [name for name in os.environ if name.startswith("NATS_")]:
        monkeypatch.delenv(name)
    assert (nats_has_login(options), nats_has_login({"user": "sys"})) == (True, False)
    monkeypatch.setenv("NATS_CREDS", "/sys.creds")
    assert nats_has_login({})


def test_topology_lists_become_links() -> None:
    hostvars = {"n1": {"ansible_host": "10.0.0.1"}, "h1": {}}
    topology = nats_topology(["n1"], hostvars, "n1", groups={"hub": ["h1"]}, hub_name="hub")
    options = {"clustered": True, "leafnode_hub_group": "hub", "leafnode_remotes": [{"account": "A"}]}
    composed = nats_composed_config(options, topology)
    assert composed["cluster"]["routes"] == ["nats-route://10.0.0.1:6222"]
    assert composed["leafnodes"]["remotes"] == [{"account": "A", "urls": ["nats-leaf://h1:7422"]}]
    with pytest.raises(AnsibleFilterError, match="nats_composed_config: nats_server_cluster_route_style is seeds, but"):
        nats_composed_config({"clustered": True, "cluster_route_style": "seeds"}, topology)
    with pytest.raises(AnsibleFilterError, match="nats_topology: nats_server_cluster_members lists n2, which"):
        nats_topology(["n1", "n2"], hostvars, "n1")
    composed = nats_composed_config(
        {
            "name": "n1",
            "take_over": True,
            "run_dir": "/run",
            "config": {"port": 1},
            "config_host": {"jetstream": {"x": 1}},
        },
        {},
        {"feature_flags": {"js_raft_delete_range": False}, "version_change": {"changes": False}},
        live={"common_flags": []},
    )
    assert (composed["pid_file"], composed["port"], composed["jetstream"]) == ("/run/nats-server.pid", 1, {"x": 1})
    assert composed["feature_flags"] == {"js_raft_delete_range": False}
    groups = {"all": ["h1", "n1"], "east": ["n1"], "west": ["h1"]}
    membership = {"supercluster_groups": ["east", "west"], "cluster_members": [], "cluster_leaving": ["n1"]}
    assert nats_supercluster_hosts(membership, groups) == ["h1"]
    seen = {"supercluster_groups": ["east", "west"], "cluster": "nats"}
    found = nats_topology(["n1"], hostvars, "n1", seen=seen, supercluster=["n1", "h1"], groups=groups)["clusters"]
    assert [(one["group"], [server["host"] for server in one["servers"]]) for one in found] == [
        ("east", ["n1"]),
        ("west", ["h1"]),
    ]
    # `-e nats_server_cluster_leaving=n1` is a string, and Jinja's `in` matches any part of a string.
    with pytest.raises(AnsibleFilterError, match=r"nats_server_cluster_leaving is a string, not a list: -e .*n31.*n32"):
        nats_topology(["n1"], hostvars, "n1", leaving="n31,n32")
    assert nats_topology(["n1"], hostvars, "n1", leaving="")["servers"]
    with pytest.raises(AnsibleFilterError, match="nats_server_cluster_members is a string"):
        nats_topology("n1", hostvars, "n1")
    with pytest.raises(AnsibleFilterError, match="nats_server_supercluster_groups is a string"):
        nats_topology(["n1"], hostvars, "n1", seen={"supercluster_groups": "east"})


def test_a_host_where_nothing_runs_has_nothing_to_reload_first() -> None:
    assert nats_required_action({"running": False}, desired={"version": "2.10.27"}) == {
        "required_action": {"action": "start", "reasons": ["no nats-server process is running"], "keys": []},
        "untouched": False,
        "gateway_tls_first": False,
    }


def test_options_of_a_rotation_get_their_types_and_wrong_names_are_refused() -> None:
    texts = {"window": None, "disconnect_clients": "yes", "missing_hosts": ["n9"], "routes": "open"}
    options = typed(CredentialOptions, {"cluster": "C1", **texts})
    assert options == CredentialOptions("C1", missing_hosts=["n9"], disconnect_clients=True, routes="open")
    with pytest.raises(AnsibleFilterError, match="nats_rotation_plan: stop_after: unknown option"):
        nats_rotation_plan({}, "credentials", stop_after="auto")
    with pytest.raises(AnsibleFilterError, match="subject: must be credentials or certificates, not 'keys'"):
        nats_rotation_plan({}, "keys")


def test_signing_key_that_would_leave_the_controller_is_an_error_of_the_filter() -> None:
    accounts = {"APP": {"jetstream": True}}
    assert nats_operation_logins([], "all", accounts, password="p")[0]["user"] == "operator-APP"
    with pytest.raises(AnsibleFilterError, match="no seed may leave the controller"):
        nats_operation_logins([], "all", accounts, key_directory="/keys", runs_on=["n1"])


def test_failed_read_of_a_host_is_a_failure_and_an_unreachable_host_is_not() -> None:
    assert nats_rescue_host({"failed": True, "msg": "no such file"})["failure"] == "no such file"
    assert nats_rescue_host({"unreachable": True, "msg": "timed out"})["failure"] == ""


def test_arguments_of_a_rotation_refusal_are_checked() -> None:
    listed = {"missing": [], "incomplete": [], "connections": [{"name": "a", "user": "app", "lang": "go"}]}
    assert nats_rotation_refusal([listed], "connections", disconnect_clients="yes") == ""
    with pytest.raises(AnsibleFilterError, match="reports: must be logins or connections, not 'keys'"):
        nats_rotation_refusal([], "keys")
    with pytest.raises(AnsibleFilterError, match="expected: required for logins"):
        nats_rotation_refusal([], "logins")


def test_a_report_is_data_or_text_and_its_data_become_text() -> None:
    info: dict[str, Any] = {"servers": [], "streams": [], "problems": [], "missing_servers": []}
    data = nats_report(info, output="data")
    assert isinstance(data, dict)
    assert nats_report(data) == nats_report(info)
    page = nats_report(data, output="page")
    assert isinstance(page, dict) and "\n".join(page["lines"]) == nats_report(info) and page["screen"] == page["lines"]
    with pytest.raises(AnsibleFilterError, match="nats_report: output: must be text, page or data, not 'html'"):
        nats_report(info, output="html")


def test_a_duration_that_is_none_is_refused_with_the_name_of_the_filter() -> None:
    assert nats_duration_seconds("2m30s") == 150
    with pytest.raises(AnsibleFilterError, match="nats_duration_seconds: 'soon' is not a duration"):
        nats_duration_seconds("soon")


def test_listeners_are_those_that_the_configuration_names() -> None:
    found = nats_listeners({"port": 4222, "http": "127.0.0.1:8222", "cluster": {"port": 6222}})
    assert sorted(listener["port"] for listener in found) == [4222, 6222, 8222]


@pytest.mark.parametrize(("record", "untouched"), [({"instance": "1", "config": {}}, True), ({"instance": "2"}, False)])
def test_a_host_whose_record_is_to_be_written_is_not_untouched(record: dict[str, Any], untouched: bool) -> None:
    running = {"running": True, "version": "2.15.1", "instance": "1", "started": 100.0}
    desired = {"version": "2.15.1", "config": {}, "record": record}
    decided = nats_required_action(running, {}, {"instance": "1", "config": {}}, desired)
    assert decided["required_action"]["action"] == "none", decided
    assert decided["untouched"] == untouched


def test_a_server_that_is_not_listening_yet_is_not_untouched() -> None:
    running = {"running": True, "version": "2.15.1", "instance": "1", "started": 100.0, "ports": [4222]}
    desired = {"version": "2.15.1", "config": {}, "ports": [4222]}
    recorded = {"instance": "1", "config": {}}
    assert nats_required_action(running, {}, recorded, desired)["untouched"]
    desired["ports"] = [4222, 6222]
    decided = nats_required_action(running, {}, recorded, desired)
    assert (decided["required_action"]["action"], decided["untouched"]) == ("none", False)


def test_a_server_that_is_held_needs_no_start() -> None:
    mark = {"server": "n3", "by": "ops", "since": 1.0, "until": 2.0}
    held, loose = (
        nats_required_action(
            {"running": False, "maintenance": {**mark, "held": kept}}, desired={"record": {"instance": ""}}
        )
        for kept in (True, False)
    )
    assert (held["required_action"]["action"], held["untouched"]) == ("none", True)
    assert held["required_action"]["reasons"][0].startswith("n3 is in maintenance since ")
    assert (loose["required_action"]["action"], loose["untouched"]) == ("start", False)


def test_firewall_rules_follow_the_inventory() -> None:
    hostvars = {"n1": {"ansible_host": "10.0.0.1"}, "n2": {"ansible_host": "10.0.0.2"}}
    servers = nats_topology(["n1", "n2"], hostvars, host="n1")
    (client, cluster) = nats_firewall_rules({"cluster": {"port": 6222}}, servers, hostvars, host="n1", leaving="")
    assert (client["port"], cluster["port"]) == (4222, 6222)
    assert cluster["sources"] == ["10.0.0.1", "10.0.0.2"]
    with pytest.raises(AnsibleFilterError, match="nats_firewall_rules: nats_server_firewall_ports: 'x' is not a port"):
        nats_firewall_rules({}, servers, hostvars, host="n1", ports={"x": []})


def test_packages_of_a_package_manager() -> None:
    found = nats_packages("apt", "Inst nats-server [1] (2 x)\n", "nats-server")
    assert (found["updates_package"], found["hold"]) == (True, "apt-mark hold nats-server")
    with pytest.raises(AnsibleFilterError, match="nats_packages: the names of packages are unknown for pacman"):
        nats_packages("pacman")


def test_folder_of_wheels_without_pip_is_an_error_of_the_filter() -> None:
    with pytest.raises(AnsibleFilterError, match=r"natsops\.jetstream\.nats_wheels: no wheel of pip and setuptools"):
        nats_wheels([], "nats-py==2.16.0", "3.11")


def test_release_without_a_checksum_is_refused_by_the_filter() -> None:
    """An undefined checksum, as the role passes it, counts as none."""
    found = nats_release(
        {}, version="2.10.27", machine="x86_64", base_url="x", origin="x", checksum=None, unpinned="refuse"
    )
    assert (found["url"], found["problems"][0]["severity"]) == ("", "error")
    with pytest.raises(AnsibleFilterError, match=r"natsops\.jetstream\.nats_release: format: unknown option"):
        nats_release({}, format="zip")
