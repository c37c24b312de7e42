# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Issues new certificates and a new authority on three servers while clients connect continuously.

Each test leaves servers and inventory in agreement; `authority` determines which authority is current.
"""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import Runner
from support.role_cluster import load, words
from support.rotation_site import NAMES, Site, Watch, changed, login

pytestmark = pytest.mark.playbook

ROTATE = "rotate_certificates"
LOGIN = {"app": "app-old"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    tls = {"source": "ca", "ca_dir": str(root / "ca"), "verify_clients": True}
    options: dict[str, Any] = {f"nats_server_tls_{key}": value for key, value in tls.items()}
    routes = {"user": "route", "password": "route-old"}
    with Site(root, "2.15.1", nats_server_cluster_authorization=routes, **options).deployed() as found:
        yield found


def authority(site: Site) -> Path:
    """The folder of the authority that the servers trust."""
    return Path(site.variables["nats_server_tls_ca_dir"])


def client(*authorities: Path) -> ssl.SSLContext:
    """A client that trusts these authorities and has a certificate from the first one."""
    context = ssl.create_default_context(cadata="".join((folder / "ca.crt").read_text() for folder in authorities))
    context.load_cert_chain(authorities[0] / "client.crt", authorities[0] / "client.key")
    return context


def presented(site: Site) -> dict[str, bytes]:
    return {name: site.file(name, "tls/server.crt") for name in NAMES}


def adopt(site: Site, new: Path) -> None:
    """Make the new authority that of the inventory, following the playbook's final instructions."""
    del site.variables["nats_server_tls_new_ca_dir"]
    shutil.rmtree(authority(site))
    site.variables["nats_server_tls_ca_dir"] = str(new)


def _only_renewed(site: Site) -> str:
    """Return the output of the run that the schedule of AWX starts, which fails."""
    return site.playbook(ROTATE, fails=True, nats_cluster_rotate_stop_after="renew").output


@pytest.mark.chaos
def test_new_authority_is_trusted_first_and_the_old_one_removed_last(site: Site) -> None:
    pids, old, new = site.pids(), authority(site), site.root / "ca-2"
    site.variables["nats_server_tls_new_ca_dir"] = str(new)
    before = site.contents()
    assert "renew never changes the authority" in _only_renewed(site)
    assert site.contents() == before and not new.exists()
    assert "Clients use TLS: they must trust" in site.playbook(ROTATE, fails=True).output
    assert site.contents() == before

    with Watch(site, LOGIN, client(old)) as watch:
        output = site.playbook(ROTATE, nats_cluster_rotate_stop_after="trust_new_ca").output
    trusting = site.contents()
    assert "renew never changes the authority" in _only_renewed(site)
    assert site.contents() == trusting
    assert "Remaining: new_certificates, remove_old_ca" in output and watch.refusals == []
    with load(site, *LOGIN.popitem(), tls=client(old, new)) as reports, Watch(site, LOGIN, client(old, new)) as watch:
        site.playbook(ROTATE, nats_cluster_rotate_stop_after="new_certificates")
    assert watch.refusals == [] and reports[0].longest_gap < 5
    with Watch(site, LOGIN, client(new)) as watch:
        output = site.playbook(ROTATE, nats_cluster_rotate_stop_after="remove_old_ca").output
    assert "Make it the authority of the inventory: set nats_server_tls_ca_dir" in output
    assert watch.refusals == [] and site.pids() == pids
    assert all("CERTIFICATE_VERIFY_FAILED" in login(site.port(name), "app", "app-old", client(old)) for name in NAMES)
    adopt(site, new)
    output = site.playbook(ROTATE).output
    assert "There is nothing to do" in output and changed(output) == 0


def test_a_deployment_does_not_replace_the_authority(site: Site) -> None:
    """A controller without the directory would create another authority, which no client trusts."""
    before, empty = site.contents(), site.root / "colleague"
    for arguments in (["--check"], []):
        output = words(site.playbook("deploy", *arguments, fails=True, nats_server_tls_ca_dir=str(empty)).output)
        assert "colleague/ca.crt does not exist, but n1 presents a certificate" in output
    assert site.contents() == before and not empty.exists()


def test_harmful_credentials_are_refused_with_all_their_reasons(site: Site) -> None:
    """test_rotate_credentials.py has the rotations of credentials."""
    before = site.contents()
    changes: dict[str, Any] = {
        "nats_server_config": {"debug": True},
        "nats_server_accounts": {"APP": {"jetstream": True, "users": [{"user": "app", "password": "app-typo"}]}},
        "nats_server_cluster_authorization": {"user": "route", "password": "route-new"},
    }
    output = site.playbook("rotate_credentials", fails=True, **changes).output
    for reason in (
        "changes more than users",
        "The inventory and the servers have different passwords for app",
        "Rotate one of them",
    ):
        assert reason in output
    assert "app-typo" not in output and "route-new" not in output
    assert site.contents() == before


@pytest.mark.chaos
def test_a_lost_authority_is_replaced_with_the_files_of_the_hosts(site: Site) -> None:
    """The key of the authority is gone; docs/security.md has the procedure."""
    pids, old, kept, new = site.pids(), authority(site), site.root / "kept", site.root / "ca-found"
    kept.mkdir()
    (kept / "ca.crt").write_bytes(site.file("n1", "tls/ca.crt"))
    for name in NAMES:
        (kept / f"{name}.crt").write_bytes(site.file(name, "tls/server.crt"))
        (kept / f"{name}.key").write_bytes(site.file(name, "tls/server.key"))
    application = site.root / "application"
    shutil.move(old, application)
    site.variables.update(nats_server_tls_ca_dir=str(kept), nats_server_tls_new_ca_dir=str(new))
    connect_with(site, application)
    site.playbook(ROTATE, nats_cluster_rotate_stop_after="new_certificates")
    connect_with(site, new)
    site.playbook(ROTATE, nats_cluster_rotate_stop_after="remove_old_ca")
    adopt(site, new)
    for key in ("cert", "key"):
        del site.variables[f"nats_server_api_tls_{key}_file"]
    assert "There is nothing to do" in site.playbook(ROTATE).output and site.pids() == pids
    site.deploy_changes_nothing()


def test_certificates_are_renewed_by_a_reload(site: Site) -> None:
    before, pids = presented(site), site.pids()
    with Watch(site, LOGIN, client(authority(site))) as watch:
        output = site.playbook(
            ROTATE,
            nats_server_tls_cert_days=800,
            nats_server_tls_renew_before_days=500,
            nats_cluster_rotate_stop_after="renew",
        ).output
    assert "renew: install new certificates from the same authority" in output
    assert watch.refusals == [] and site.pids() == pids
    assert all(old != new for old, new in zip(before.values(), presented(site).values(), strict=True))


@pytest.mark.chaos
def test_a_run_that_was_cut_short_is_finished_by_the_next(site: Site) -> None:
    """The runs are interrupted after the first host of a step, after files have been written but not loaded, and before
    the run is recorded."""
    pids, old, new = site.pids(), authority(site), site.root / "ca-cut"
    site.variables["nats_server_tls_new_ca_dir"] = str(new)
    site.playbook(ROTATE, "--check", nats_cluster_rotate_stop_after="remove_old_ca")
    assert not new.exists()
    with Watch(site, LOGIN, client(old)) as watch:
        site.cut_short(ROTATE, "Install the TLS files", 2, nats_cluster_rotate_stop_after="trust_new_ca")
        site.cut_short(ROTATE, "Request a reload of the configuration", nats_cluster_rotate_stop_after="trust_new_ca")
        site.playbook(ROTATE, nats_cluster_rotate_stop_after="trust_new_ca")
    assert watch.refusals == []
    with Watch(site, LOGIN, client(old, new)) as watch:
        site.cut_short(
            ROTATE, "Request a reload of the configuration", nats_cluster_rotate_stop_after="new_certificates"
        )
        site.playbook(ROTATE, nats_cluster_rotate_stop_after="new_certificates")
    assert watch.refusals == []
    with Watch(site, LOGIN, client(new)) as watch:
        site.cut_short(ROTATE, "Record the loaded configuration", nats_cluster_rotate_stop_after="remove_old_ca")
        site.playbook(ROTATE, nats_cluster_rotate_stop_after="remove_old_ca")
    assert watch.refusals == [] and site.pids() == pids
    adopt(site, new)
    assert "There is nothing to do" in site.playbook(ROTATE).output


def issue(run_module: Runner, folder: Path) -> None:
    """Create an authority with the files that an operator would supply, for each host and for a client."""
    own = {"path": f"{folder}/ca.crt", "key_path": f"{folder}/ca.key", "common_name": "other", "valid_days": 400}
    assert run_module("nats_certificate", {}, purpose="ca", **own)["changed"]
    signed = {"ca_path": f"{folder}/ca.crt", "ca_key_path": f"{folder}/ca.key", "valid_days": 300}
    for name in (*NAMES, "client"):
        files = {"path": f"{folder}/{name}.crt", "key_path": f"{folder}/{name}.key", "common_name": name}
        kind: dict[str, Any] = (
            {"purpose": "client"}
            if name == "client"
            else {"purpose": "server", "subject_alt_names": [name, "127.0.0.1"]}
        )
        assert run_module("nats_certificate", {}, **files, **signed, **kind)["changed"]


def connect_with(site: Site, folder: Path) -> None:
    """Configure the playbooks to use the client certificate of an authority."""
    site.variables["nats_server_api_tls_cert_file"] = f"{folder}/client.crt"
    site.variables["nats_server_api_tls_key_file"] = f"{folder}/client.key"


@pytest.mark.chaos
def test_operators_files_rotate_the_authority_and_bad_ones_change_nothing(site: Site, run_module: Runner) -> None:
    pids, old, new = site.pids(), authority(site), site.root / "given"
    issue(run_module, new)
    bundle = site.root / "bundle.crt"
    bundle.write_text((new / "ca.crt").read_text())
    host = "{{ inventory_hostname }}"
    files = {"ca": f"{old}/ca.crt", "cert": f"{old}/{host}.crt", "key": f"{old}/{host}.key"}
    site.variables["nats_server_tls_source"] = "files"
    site.variables.update({f"nats_server_tls_{key}_src": path for key, path in files.items()})
    site.variables.update(
        {f"nats_server_tls_new_{key}_src": path.replace(str(old), str(new)) for key, path in files.items()}
    )
    connect_with(site, old)
    before = site.contents()
    until: dict[str, Any] = {"nats_cluster_rotate_stop_after": "remove_old_ca"}
    good = {name: (new / name).read_bytes() for name in ("n1.key", "n2.crt")}
    (new / "n1.key").write_bytes((new / "n3.key").read_bytes())
    shutil.copy(old / "n2.crt", new / "n2.crt")
    output = site.playbook(ROTATE, fails=True, **until).output
    for reason in (
        "nats_server_tls_bundle_src (",
        "the key does not match the certificate",
        f"{new}/n2.crt was not issued by",
        "which this playbook uses to connect",
    ):
        assert reason in output
    assert site.contents() == before
    for name, content in good.items():
        (new / name).write_bytes(content)
    bundle.write_text((old / "ca.crt").read_text() + (new / "ca.crt").read_text())
    site.variables["nats_server_tls_bundle_src"] = str(bundle)

    with Watch(site, LOGIN, client(old, new)) as watch:
        site.playbook(ROTATE, nats_cluster_rotate_stop_after="new_certificates")
    connect_with(site, new)
    with Watch(site, LOGIN, client(new)) as second:
        site.playbook(ROTATE, **until)
    assert watch.refusals == second.refusals == [] and site.pids() == pids
    site.variables.update(
        {f"nats_server_tls_{key}_src": path.replace(str(old), str(new)) for key, path in files.items()}
    )
    for key in ("new_ca_src", "new_cert_src", "new_key_src", "bundle_src"):
        del site.variables[f"nats_server_tls_{key}"]
    assert "There is nothing to do" in site.playbook(ROTATE).output


@pytest.mark.chaos
def test_a_dead_host_stops_it_before_the_first_change(site: Site) -> None:
    before = site.contents()
    site.kill("n3")
    output = site.playbook(ROTATE, fails=True, nats_server_tls_renew_before_days=3000).output
    assert "nats-server is not running on n3" in output
    assert site.contents() == before
