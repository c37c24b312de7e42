# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients of a running cluster move to TLS in the steps of docs/security.md, and none is refused."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest
import yaml
from support.documents import CHECKOUT
from support.role_cluster import words
from support.rotation_site import Site, Watch, login

pytestmark = [pytest.mark.playbook, pytest.mark.chaos]

LOGIN = {"app": "app-old"}


def refused_logins(watch: Watch) -> list[str]:
    """Return the refusals of servers that ran: a restart stops one server at a time."""
    return [why for _time, why in watch.refusals if why and "Connection re" not in why]


def test_clients_of_a_running_cluster_move_to_tls(tmp_path: Path) -> None:
    (block,) = re.findall(
        r"move the clients:\n\n +```yaml\n(.*?)```", (CHECKOUT / "docs/security.md").read_text(), re.DOTALL
    )
    offered = yaml.safe_load(block)
    with Site(tmp_path, "2.15.1").deployed() as site:
        site.variables.update(nats_server_tls_source="ca", nats_server_tls_ca_dir=str(tmp_path / "ca"))
        with Watch(site, LOGIN) as watch:
            refused = words(site.playbook("deploy", fails=True).output)
            assert "does not offer it" in refused and "TLS for the clients of a running cluster" in refused
            site.variables["nats_server_tls_for_clients"] = False
            site.playbook("deploy")
            site.variables.update(offered)
            site.playbook("deploy")
        assert refused_logins(watch) == []
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.crt"))
        with Watch(site, LOGIN, trusting) as watch:
            for name in ("nats_server_tls_for_clients", *offered):
                del site.variables[name]
            site.playbook("deploy")
        assert refused_logins(watch) == []
        assert login(site.port("n1"), "app", "app-old") != "PONG"
        site.deploy_changes_nothing()
