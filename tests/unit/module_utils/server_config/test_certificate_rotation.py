# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the steps and refusals of a certificate rotation, which are derived from the hosts' certificates."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.certificate_rotation import (
    Certificate,
    CertificateOptions,
    HostCertificates,
    certificate_rotation,
    files_after,
    remaining_steps,
)

OPTIONS = CertificateOptions(cluster="C1")
ALL = ["trust_new_ca", "new_certificates", "remove_old_ca"]
ISSUER = {"old": "o", "new": "n"}
AUTHORITIES = {"current": "o", "both": "on", "new": "n"}


def certificate(name: str) -> Certificate:
    return Certificate(f"CN={name}", "2027-01-01T00:00:00+00:00", name)


def host(trusted: str, presented: str, **changes: Any) -> HostCertificates:
    """`trusted` has a letter for each authority: o (old), n (new), or x (foreign)."""
    found = HostCertificates(
        trusted=[certificate(letter) for letter in trusted],
        presented=certificate(presented) if presented else None,
        current_ca=["o"],
        new_ca=["n"],
        new_certificate="new",
        rotating=True,
    )
    return replace(found, **changes)


def renewing(differs: bool = True, **changes: Any) -> HostCertificates:
    return host("o", "old", rotating=False, new_ca=["o"], new_certificate="old-2", differs=differs, **changes)


def supplied(**changes: Any) -> HostCertificates:
    return host("o", "old", source="files", certificate_path="/n1.crt", **changes)


def rotation(*hosts: HostCertificates, **options: Any) -> dict[str, Any]:
    return certificate_rotation({f"n{index}": each for index, each in enumerate(hosts, 1)}, replace(OPTIONS, **options))


@pytest.mark.parametrize(
    ("hosts", "left"),
    [
        ([("o", "old"), ("o", "old")], ALL),
        ([("on", "old"), ("o", "old")], ALL),
        ([("on", "old"), ("on", "old")], ALL[1:]),
        ([("on", "new"), ("on", "old")], ALL[1:]),
        ([("n", "new"), ("on", "old")], ALL),
        ([("on", "new"), ("on", "new")], ALL[2:]),
        ([("n", "new"), ("on", "new")], ALL[2:]),
        ([("n", "new"), ("n", "new")], []),
    ],
)
def test_the_steps_follow_from_the_files_of_the_hosts(hosts: list[tuple[str, str]], left: list[str]) -> None:
    assert remaining_steps([host(*state) for state in hosts]) == left


@pytest.mark.parametrize(
    ("hosts", "options", "steps"),
    [
        ([host("o", "old")], {}, ALL),
        ([host("o", "old")], {"stop_after": "trust_new_ca"}, ALL[:1]),
        ([host("o", "old")], {"stop_after": "new_certificates"}, ALL[:2]),
        ([host("on", "old")], {"stop_after": "trust_new_ca"}, []),
        ([host("on", "old", unloaded=True), host("on", "old")], {"stop_after": "trust_new_ca"}, ["reload"]),
        ([renewing(), renewing(False)], {}, ["renew"]),
        ([renewing()], {"stop_after": "trust_new_ca"}, ["renew"]),
        ([renewing(unloaded=True)], {"stop_after": "renew"}, ["reload", "renew"]),
        ([renewing(unloaded=True)], {}, ["reload", "renew"]),
        ([renewing(False)], {}, []),
    ],
)
def test_a_run_takes_the_steps_up_to_the_last_one(
    hosts: list[HostCertificates], options: dict[str, Any], steps: list[str]
) -> None:
    found = rotation(*hosts, **options)
    assert found["steps"] == steps
    assert found["refusals"] == []
    assert [line.partition(":")[0] for line in found["lines"]] == (steps or [found["lines"][0].partition(":")[0]])


@pytest.mark.parametrize("presented", ["old", "new"])
@pytest.mark.parametrize("trusted", ["o", "on", "n"])
@pytest.mark.parametrize("changes", [{}, {"unloaded": True}, {"source": "files"}], ids=str)
def test_renew_refuses_each_stage_of_a_change_of_authority(
    trusted: str, presented: str, changes: dict[str, Any]
) -> None:
    found = rotation(host(trusted, presented, **changes), stop_after="renew", clients_use_tls=True)
    assert {*found["steps"]} <= {"reload"}
    [refusal] = [text for text in found["refusals"] if "renew never changes the authority" in text]
    assert ("nats_server_tls_new_ca_src" if changes.get("source") else "nats_server_tls_new_ca_dir") in refusal


def test_each_step_changes_the_hosts_one_by_one_before_the_next_step() -> None:
    batches = rotation(host("o", "old"), host("o", "old"))["batches"]
    assert [(batch["step"], batch["hosts"]) for batch in batches] == [
        (step, [name]) for step in ALL for name in ("n1", "n2")
    ]
    assert {batch["entry_point"] for batch in batches} == {"install_certificates"}
    assert [batch["tls_step"] for batch in batches] == [batch["step"] for batch in batches]
    assert batches[2]["title"] == "step 2 of 3: new_certificates on n1"


def test_controller_gets_a_client_certificate_before_the_first_host_of_a_step_that_requires_it() -> None:
    batches = rotation(host("o", "old"), host("o", "old"))["batches"]
    assert [batch["issues_client_certificate"] for batch in batches] == [False, False, True, False, True, False]


def test_only_check_mode_predicts_a_change() -> None:
    assert rotation(renewing(), check_mode=True)["predicts_change"]
    assert not rotation(renewing())["predicts_change"]
    assert not rotation(renewing(False), check_mode=True)["predicts_change"]


def test_remaining_steps_are_reported() -> None:
    assert rotation(renewing(False))["lines"] == ["There is nothing to do."]
    assert rotation(host("on", "old"), stop_after="trust_new_ca")["lines"] == [
        "There is nothing to do up to nats_cluster_rotate_stop_after=trust_new_ca. Remaining: new_certificates, remove_old_ca."
    ]
    [done] = rotation(host("n", "new"))["lines"]
    assert "set nats_server_tls_ca_dir to the values of nats_server_tls_new_ca_dir" in done
    [done] = rotation(host("n", "new", source="files"))["lines"]
    assert "set nats_server_tls_ca_src, nats_server_tls_cert_src and nats_server_tls_key_src" in done


def test_expiry_names_each_certificate_and_each_authority_once() -> None:
    assert rotation(host("o", "old"), host("on", "new"), host("", ""))["expiry"] == [
        "n1: the certificate expires 2027-01-01T00:00:00+00:00",
        "n2: the certificate expires 2027-01-01T00:00:00+00:00",
        "CN=o (o) expires 2027-01-01T00:00:00+00:00; trusted by n1, n2",
        "CN=n (n) expires 2027-01-01T00:00:00+00:00; trusted by n2",
    ]
    with_own = rotation(host("o", "old"), controller_expires="2027-12-31T00:00:00+00:00")["expiry"]
    assert with_own[1] == "controller: the client certificate expires 2027-12-31T00:00:00+00:00"


def test_deploying_leaves_each_host_where_it_is() -> None:
    states = [host("o", "old"), host("on", "old"), host("on", "new"), host("n", "new")]
    kept = [files_after("keep", state, states) for state in states]
    assert [(files["ca"], files["certificate"]) for files in kept] == [
        ("current", "current"),
        ("both", "current"),
        ("both", "new"),
        ("new", "new"),
    ]
    assert [files_after("reload", state, states) for state in states] == kept


@pytest.mark.parametrize(
    ("others", "ca", "presented"),
    [
        ([host("o", "old")], "current", "current"),
        ([host("on", "old"), host("o", "old")], "both", "current"),
        ([host("on", "new")], "both", "new"),
        ([], "current", "current"),
    ],
)
def test_host_without_files_gets_a_certificate_that_all_others_accept(
    others: list[HostCertificates], ca: str, presented: str
) -> None:
    empty = host("", "")
    assert files_after("keep", empty, [empty, *others]) == {"ca": ca, "certificate": presented}


# --- Refusals ---------------------------------------------------------------------------------------------------------

START, DONE = host("o", "old"), host("n", "new")
FILES = supplied()

#: For each refusal: a case in which it fires, its wording, and the most similar case in which it does not.
REFUSALS: dict[str, tuple[list[HostCertificates], dict[str, Any], str, list[HostCertificates], dict[str, Any]]] = {
    "part of the cluster": (
        [START],
        {"missing_hosts": ["n2"]},
        "run without --limit and job slicing. Missing: n2",
        [START],
        {},
    ),
    "stopped": ([START, replace(START, running=False)], {}, "nats-server is not running on n2", [START, START], {}),
    "unknown": ([START, replace(START, recorded=False)], {}, "nats-server has loaded on n2", [START, START], {}),
    "no certificate": ([START, host("", "")], {}, "There is no certificate yet on n2", [START, START], {}),
    "foreign authority": (
        [START, host("x", "old")],
        {},
        "Neither the old nor the new authority of the inventory is trusted on n2",
        [START, host("xo", "old")],
        {},
    ),
    "unusable certificate": (
        [replace(FILES, problems=["it ended"])],
        {},
        "n1 cannot present /n1.crt: it ended.",
        [replace(DONE, source="files", problems=["it ended"])],
        {},
    ),
    "missing files": (
        [
            replace(
                FILES,
                missing={"nats_server_tls_new_key_src": "", "nats_server_tls_bundle_src": "/b.crt"},
                bundle_complete=False,
                issued_by_new_ca=False,
            )
        ],
        {},
        "These files are missing: nats_server_tls_bundle_src (/b.crt), nats_server_tls_new_key_src.",
        [FILES],
        {},
    ),
    "incomplete bundle": (
        [replace(FILES, bundle_complete=False)],
        {},
        "nats_server_tls_bundle_src does not contain",
        [FILES],
        {},
    ),
    "issued by another": (
        [replace(FILES, issued_by_new_ca=False)],
        {},
        "/n1.crt was not issued by an authority in nats_server_tls_new_ca_src",
        [FILES],
        {},
    ),
    "the playbook's own certificate": (
        [replace(START, api_certificate_trusted=False)],
        {},
        "which this playbook uses to connect",
        [replace(START, api_certificate_trusted=False)],
        {"stop_after": "new_certificates"},
    ),
    "clients with TLS": (
        [START],
        {"clients_use_tls": True},
        "Clients use TLS: they must trust the new authority",
        [START],
        {"clients_use_tls": True, "stop_after": "remove_old_ca"},
    ),
    "renewed by another authority": (
        [renewing(same_ca=False)],
        {},
        "The certificates for n1 come from an authority that the hosts do not trust",
        [renewing()],
        {},
    ),
    "renewed by another authority, with files": (
        [renewing(same_ca=False, source="files")],
        {"check_mode": True},
        "Rotate the authority with nats_server_tls_new_ca_src",
        [renewing(same_ca=False)],
        {"check_mode": True},
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_fires_and_does_not(case: str) -> None:
    hosts, options, words, good_hosts, good_options = REFUSALS[case]
    refusals = rotation(*hosts, **options)["refusals"]
    assert len(refusals) == 1 and words in refusals[0], refusals
    assert refusals[0].endswith("."), refusals
    assert rotation(*good_hosts, **good_options)["refusals"] == []


def test_all_reasons_come_at_once() -> None:
    bad = replace(
        FILES,
        running=False,
        problems=["it ended", "it is empty"],
        issued_by_new_ca=False,
        api_certificate_trusted=False,
    )
    assert len(rotation(bad, host("", ""), missing_hosts=["n3"], clients_use_tls=True)["refusals"]) == 8


def test_a_finished_rotation_needs_no_files_and_no_decision() -> None:
    done = replace(DONE, source="files", missing={"nats_server_tls_bundle_src": ""}, bundle_complete=False)
    assert rotation(done, clients_use_tls=True)["refusals"] == []


# --- Properties -------------------------------------------------------------------------------------------------------

Files = tuple[str, str]


def trust_each_other(hosts: Mapping[str, Files]) -> bool:
    """Return whether every host trusts the certificate of every other host."""
    return all(ISSUER[presented] in trusted for (trusted, _own), (_other, presented) in permutations(hosts.values(), 2))


def take(step: str, name: str, hosts: dict[str, Files]) -> None:
    found = certificate_rotation({each: host(*files) for each, files in hosts.items()}, OPTIONS)
    files = found["hosts"][name][step]
    hosts[name] = (AUTHORITIES[files["ca"]], "new" if files["certificate"] == "new" else "old")


@pytest.mark.parametrize("seed", range(100))
def test_from_any_mix_of_hosts_the_steps_end_with_the_new_authority_and_trust_never_breaks(seed: int) -> None:
    """The run starts from any state that an interrupted run, a deployment or an operator left, and handles the hosts
    one after another in any order."""
    dice = random.Random(seed)
    states = [(trusted, presented) for trusted in ("o", "on", "n") for presented in ("old", "new")]
    hosts = {f"n{index}": dice.choice(states) for index in range(dice.randint(1, 6))}
    trusting = trust_each_other(hosts)
    # The plan is made only once for the complete run.
    found = certificate_rotation({name: host(*files) for name, files in hosts.items()}, OPTIONS)
    for step in found["steps"]:
        for name in dice.sample(list(hosts), len(hosts)):
            files = found["hosts"][name][step]
            hosts[name] = (AUTHORITIES[files["ca"]], "new" if files["certificate"] == "new" else "old")
            trusting_now = trust_each_other(hosts)
            assert trusting_now or not trusting, (step, hosts)
            trusting = trusting_now
        if step == "trust_new_ca":
            assert trusting, hosts
    assert set(hosts.values()) == {("n", "new")}
    assert certificate_rotation({name: host(*files) for name, files in hosts.items()}, OPTIONS)["steps"] == []


@pytest.mark.parametrize("seed", range(100))
def test_interrupted_anywhere_and_started_again_trust_never_breaks(seed: int) -> None:
    dice = random.Random(seed)
    hosts = {f"n{index}": ("o", "old") for index in range(dice.randint(1, 5))}
    for _run in range(60):
        steps = remaining_steps([host(*files) for files in hosts.values()])
        if not steps:
            break
        for name in dice.sample(list(hosts), dice.randint(0, len(hosts))):  # the run ends before it reaches all hosts
            take(steps[0], name, hosts)
            assert trust_each_other(hosts), hosts
    assert set(hosts.values()) == {("n", "new")}
