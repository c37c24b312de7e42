# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New certificates and a new authority on three servers with clients all the time. The tests build on one another."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from rotation_site import NAMES, Site, Watch, changed, load, login

ROTATE = "rotate_certificates"

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    found = Site(
        root,
        "2.15.1",
        nats_server_tls_source="ca",
        nats_server_tls_ca_dir=str(root / "ca"),
        nats_server_tls_cert_days=100,
        nats_server_tls_verify_clients=True,
    )
    try:
        found.play("deploy")
        yield found
    finally:
        found.stop()


def client(*authorities: Path) -> ssl.SSLContext:
    """A client that trusts these authorities and has a certificate of the first one."""
    context = ssl.create_default_context(cadata="".join((folder / "ca.crt").read_text() for folder in authorities))
    context.load_cert_chain(authorities[0] / "client.crt", authorities[0] / "client.key")
    return context


def presented(site: Site) -> dict[str, bytes]:
    return {name: (site.root / name / "etc/tls/server.crt").read_bytes() for name in NAMES}


def test_certificates_are_renewed_by_a_reload(site: Site) -> None:
    before, pids = presented(site), site.pids()
    site.variables.update(nats_server_tls_cert_days=397)
    assert "There is nothing to do" in site.play(ROTATE)
    with Watch(site, {"app": "app-old"}, client(site.root / "ca")) as watch:
        output = site.play(ROTATE, "-e", "nats_server_tls_renew_before_days=200")
    assert "renew: new certificates of the same authority" in output
    assert watch.refusals == [] and site.pids() == pids
    assert all(old != new for old, new in zip(before.values(), presented(site).values(), strict=True))


def test_another_authority_is_trusted_first_and_the_old_one_forgotten_last(site: Site) -> None:
    pids, old, new = site.pids(), site.root / "ca", site.root / "ca-2"
    site.variables["nats_server_tls_new_ca_dir"] = str(new)
    before = site.contents()
    assert "Clients use TLS: they have to trust" in site.play(ROTATE, fails=True)
    assert site.contents() == before

    with load(site, "app", "app-old", tls=client(old, new)) as reports:
        with Watch(site, {"app": "app-old"}, client(old)) as watch:
            output = site.play(ROTATE, "-e", "nats_server_rotate_until=trust")
        assert "Left: leaves, drop" in output and watch.refusals == []
        with Watch(site, {"app": "app-old"}, client(old, new)) as watch:
            site.play(ROTATE, "-e", "nats_server_rotate_until=leaves")
            assert changed(site.play(ROTATE, "-e", "nats_server_rotate_until=leaves")) == 0
        assert watch.refusals == []
    with Watch(site, {"app": "app-old"}, client(new)) as watch:
        site.play(ROTATE, "-e", "nats_server_rotate_until=drop")
    assert watch.refusals == []
    assert reports[0].longest_gap < 3 and site.pids() == pids
    assert "CERTIFICATE_VERIFY_FAILED" in login(site.ports["n1"], "app", "app-old", client(old))


def test_the_new_authority_becomes_the_one_of_the_inventory(site: Site) -> None:
    shutil.rmtree(site.root / "ca")
    del site.variables["nats_server_tls_new_ca_dir"]
    site.variables["nats_server_tls_ca_dir"] = str(site.root / "ca-2")
    assert "There is nothing to do" in site.play(ROTATE)
