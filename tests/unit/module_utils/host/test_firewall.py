# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.firewall import (
    Firewalld,
    PortRule,
    current_rules,
    desired_firewalld,
    dropping_chains,
    firewalld_commands,
    nft_mark,
    nft_ruleset,
    nft_unit,
    port_rules,
    rejected_ports,
)

NAMES = {"n1": ["10.0.0.1", "fd00::1"], "n2": ["10.0.0.2"]}


def rules(**ports: list[str]) -> list[PortRule]:
    given = [{"listener": "x", "port": int(port[1:]), "sources": sources} for port, sources in ports.items()]
    return port_rules(given, NAMES.__getitem__)


def families(*sources: str) -> tuple[list[str], list[str]]:
    (rule,) = rules(p1=list(sources))
    return rule.addresses(4), rule.addresses(6)


def test_sources_become_networks_without_overlaps() -> None:
    assert families("n1", "10.0.0.0/24", "10.0.1.0/24", "n2", "192.0.2.1") == (
        ["10.0.0.0/23", "192.0.2.1"],
        ["fd00::1"],
    )
    assert families("0.0.0.0/0", "10.0.0.1") == (["0.0.0.0/1", "128.0.0.0/1"], [])
    assert families() == ([], [])
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/24 has host bits set"):
        families("10.0.0.1/24")


def test_ports_that_reject_an_address_are_found() -> None:
    found = rules(p4222=["10.0.0.0/24", "fd00::/64"], p6222=["n2"])
    assert rejected_ports(found, [4222, 6222, 1], "10.0.0.9") == [6222]
    assert rejected_ports(found, [4222], "::ffff:10.0.0.9") == []
    assert rejected_ports(found, [4222, 6222], "fe80::1%eth0") == [4222, 6222]


@pytest.mark.skipif(not shutil.which("nft") or os.geteuid() != 0, reason="needs root and nft")
@pytest.mark.parametrize("ports", [{}, {"p6222": []}, {"p4222": ["n1", "0.0.0.0/0", "::/0"], "p6222": ["n1", "n2"]}])
def test_nft_accepts_the_ruleset_twice_and_keeps_other_tables(ports: dict[str, list[str]]) -> None:
    """The test runs nft in a separate network namespace."""
    found = rules(**ports)
    script = "nft add table inet filter && nft -f /dev/fd/3 && nft -f /dev/fd/4 && nft list ruleset"
    text = nft_ruleset("nats-server", found)
    wrapped = f"exec 3<<'E' 4<<'E2'\n{text}E\n{text}E2\n{script}"
    done = subprocess.run(["unshare", "--net", "sh", "-ec", wrapped], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "table inet filter" in done.stdout
    assert done.stdout.count("table inet nats_server") == 1
    assert nft_mark("nats-server", found) in done.stdout
    assert ("jump listeners" in done.stdout) == bool(ports)


def test_only_first_packets_to_the_ports_are_filtered() -> None:
    """Neither SSH nor an existing connection ever reaches a reject rule."""
    text = nft_ruleset("nats-server", rules(p4222=["n2"], p6222=[]))
    jumps = [line.strip() for line in text.splitlines() if "jump" in line]
    assert jumps == ["tcp dport { 4222, 6222 } tcp flags & (fin | syn | rst | ack) == syn jump listeners"]
    assert text.count("reject") == 1
    assert "flush" not in text


def test_the_mark_follows_the_rules() -> None:
    one, other = rules(p1=["n1"]), rules(p1=["n2"])
    assert nft_mark("a", one) != nft_mark("a", other) != nft_mark("b", other)


def test_the_unit_is_loaded_again_after_nftables() -> None:
    lines = nft_unit("nats-server", "/etc/nftables.d/nats-server.nft", "/usr/sbin/nft").splitlines()
    assert {"After=nftables.service", "PartOf=nftables.service", "ReloadPropagatedFrom=nftables.service"} <= set(lines)


def test_tables_of_others_that_drop_are_found() -> None:
    def chain(**keys: str) -> dict[str, Any]:
        return {"chain": {"family": "inet", "hook": "input", "policy": "drop", **keys}}

    chains = [
        {"metainfo": {}},
        chain(table="filter"),
        chain(table="filter"),
        chain(table="nats_server"),
        chain(table="nat", policy="accept"),
        chain(table="fwd", hook="forward"),
    ]
    assert dropping_chains({"nftables": chains}, "nats-server") == ["inet filter"]


ZONES = """\
public (active)
  target: default
  services: ssh
  rich rules:
\trule family="ipv4" source ipset="nats-server-6222-ip4" port port="6222" protocol="tcp" accept
\trule family="ipv4" source ipset="blocked-1-ip4" drop
\trule family="ipv4" source address="10.0.0.9" accept

work
  rich rules:
\trule family="ipv4" source ipset="nats-server-1-ip4" port port="1" protocol="tcp" accept
"""


def test_firewalld_changes_only_our_rules_and_sets() -> None:
    desired = desired_firewalld("nats-server", "public", rules(p4222=["n1"], p6222=["n2", "192.0.2.0/24"], p7222=[]))
    found = current_rules("nats-server", ZONES)
    assert {zone: len(rich) for zone, rich in found.items()} == {"public": 1, "work": 1}
    current = Firewalld({"nats-server-1-ip4": [], "nats-server-6222-ip4": ["10.0.0.2", "10.0.0.7"]}, found)
    assert firewalld_commands(current, desired) == [
        ["--zone=work", f"--remove-rich-rule={found['work'][0]}"],
        ["--delete-ipset=nats-server-1-ip4"],
        ["--new-ipset=nats-server-4222-ip4", "--type=hash:net", "--option=family=inet"],
        ["--ipset=nats-server-4222-ip4", "--add-entry=10.0.0.1"],
        ["--new-ipset=nats-server-4222-ip6", "--type=hash:net", "--option=family=inet6"],
        ["--ipset=nats-server-4222-ip6", "--add-entry=fd00::1"],
        ["--ipset=nats-server-6222-ip4", "--remove-entry=10.0.0.7"],
        ["--ipset=nats-server-6222-ip4", "--add-entry=192.0.2.0/24"],
        ["--zone=public", *[f"--add-rich-rule={rule}" for rule in desired.rules["public"][:2]]],
    ]
    assert firewalld_commands(desired, desired) == []
    assert "nats-server-6222-ip4: 10.0.0.2, 192.0.2.0/24\n" in desired.text()


def test_a_long_service_name_has_no_sets() -> None:
    with pytest.raises(ValueError, match="longer than the 31 characters of an ipset"):
        desired_firewalld("a" * 30, "public", [PortRule("x", 4222, (ipaddress.ip_network("10.0.0.0/8"),))])
