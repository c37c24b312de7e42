# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The firewall rules of a server, as a table of nftables and as settings of firewalld. Pure.

nftables: one separate table, which filters only the first packet of connections to the server's ports. Other tables,
other ports and existing connections are not affected, and the kernel does not have to track connections for this table.
firewalld: one ipset and one rich rule for each port and address family, in one zone.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
#: The maximum length of an ipset's name in the kernel.
_MAX_NAME = 31
_HEADER = "# Managed by Ansible: the ports of nats-server. Other ports and existing connections are not filtered.\n"


@dataclass(frozen=True)
class PortRule:
    """A filtered port, and the networks that may connect to it."""

    listener: str
    port: int
    networks: tuple[Network, ...]

    def addresses(self, version: int) -> list[str]:
        """Return the networks of IP version 4 or 6; single addresses have no prefix length."""
        return [
            str(one.network_address) if one.prefixlen == one.max_prefixlen else str(one)
            for one in self.networks
            if one.version == version
        ]


def port_rules(rules: Iterable[Mapping[str, Any]], resolve: Callable[[str], Iterable[str]]) -> list[PortRule]:
    """Return the rules with networks instead of names, sorted and without overlaps. Raises ValueError for a network
    with host bits or a name without addresses."""
    return [
        PortRule(rule["listener"], rule["port"], _networks(rule["sources"], resolve))
        for rule in sorted(rules, key=lambda rule: int(rule["port"]))
    ]


def _networks(sources: Iterable[str], resolve: Callable[[str], Iterable[str]]) -> tuple[Network, ...]:
    found: list[Network] = []
    for source in sources:
        texts = [source] if _is_address(source) else resolve(source)
        found += [ipaddress.ip_network(text.partition("%")[0]) for text in texts]
    found = [
        *ipaddress.collapse_addresses(one for one in found if isinstance(one, ipaddress.IPv4Network)),
        *ipaddress.collapse_addresses(one for one in found if isinstance(one, ipaddress.IPv6Network)),
    ]
    # Sets of the kernel reject a network that contains every address.
    return tuple(half for one in found for half in ((one,) if one.prefixlen else one.subnets()))


def _is_address(source: str) -> bool:
    try:
        ipaddress.ip_network(source)
    except ValueError:
        if "/" in source:
            raise
        return False
    return True


def rejected_ports(rules: Iterable[PortRule], ports: Iterable[int], address: str) -> list[int]:
    """Return the given ports to which the rules do not let this address connect."""
    one = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(one, "ipv4_mapped", None) or one
    by_port = {rule.port: rule.networks for rule in rules}
    return [port for port in ports if port in by_port and not any(mapped in network for network in by_port[port])]


# --- nftables ---------------------------------------------------------------------------------------------------------


def table_name(service: str) -> str:
    """Return the name of the role's table."""
    return re.sub(r"\W", "_", service)


def nft_ruleset(service: str, rules: Sequence[PortRule]) -> str:
    """Return a file for `nft -f`, which replaces the role's table in one transaction. The file can be loaded any number
    of times, and other rulesets may include it."""
    name = table_name(service)
    table = "\n".join(_nft_table(rules, nft_mark(service, rules)))
    # A table that does not exist cannot be deleted, so it is created first.
    return f"{_HEADER}table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n{table}\n}}\n"


def nft_mark(service: str, rules: Sequence[PortRule]) -> str:
    """Return the name of an empty chain that identifies these rules; a run uses it to detect that the table is not
    loaded."""
    text = "\n".join([service, *_nft_table(rules, "")])
    return "rules_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _nft_table(rules: Sequence[PortRule], mark: str) -> Iterator[str]:
    yield f"  chain {mark} {{ }}"
    yield "  chain listeners {"
    for rule in rules:
        for version, family in ((4, "ip"), (6, "ip6")):
            if networks := rule.addresses(version):
                yield f'    tcp dport {rule.port} {family} saddr {{ {", ".join(networks)} }} accept comment "{rule.listener}"'
    yield "    counter reject with icmpx type admin-prohibited"
    yield "  }"
    yield "  chain input {"
    yield "    type filter hook input priority 10; policy accept;"
    if rules:
        ports = ", ".join(str(rule.port) for rule in rules)
        yield '    iifname "lo" accept'
        yield f"    tcp dport {{ {ports} }} tcp flags & (fin | syn | rst | ack) == syn jump listeners"
    yield "  }"


def nft_unit(service: str, file: str, nft: str) -> str:
    """Return the systemd unit that loads the role's table at boot, before the network is up, and again whenever
    nftables.service is restarted or reloaded, which flushes all tables."""
    load = f"{nft} -f {file}"
    return f"""\
# Managed by Ansible.
[Unit]
Description=Firewall of {service}
DefaultDependencies=no
Wants=network-pre.target
After=nftables.service
Before=network-pre.target shutdown.target
Conflicts=shutdown.target
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service

[Service]
Type=oneshot
RemainAfterExit=yes
StandardInput=null
ProtectSystem=full
ProtectHome=true
ExecStart={load}
ExecReload={load}
ExecStop=-{nft} delete table inet {table_name(service)}

[Install]
WantedBy=sysinit.target nftables.service
"""


def dropping_chains(chains: Mapping[str, Any], service: str) -> list[str]:
    """Return other tables that drop incoming packets by default, from `nft --json list chains`. The role's rules cannot
    open a port in such a table: a packet must be accepted by every table."""
    found = []
    for item in chains.get("nftables", ()):
        chain = item.get("chain", {})
        if chain.get("hook") == "input" and chain.get("policy") == "drop" and chain.get("table") != table_name(service):
            found.append(f"{chain.get('family')} {chain.get('table')}")
    return list(dict.fromkeys(found))


# --- firewalld --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Firewalld:
    """The role's part of firewalld's permanent settings: the entries of its ipsets by name, and its rich rules by zone."""

    sets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rules: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the settings for a diff."""
        lines = [f"{name}: {', '.join(sorted(entries))}" for name, entries in sorted(self.sets.items())]
        lines += [f"{zone}: {rule}" for zone, rules in sorted(self.rules.items()) for rule in sorted(rules)]
        return "".join(f"{line}\n" for line in lines)


def desired_firewalld(service: str, zone: str, rules: Iterable[PortRule]) -> Firewalld:
    """Return the settings for these rules. Raises ValueError if the service's name is too long for the names of the
    sets."""
    sets = {
        _set_name(service, rule.port, version): rule.addresses(version)
        for rule in rules
        for version in (4, 6)
        if rule.addresses(version)
    }
    rich = [_rich_rule(name) for name in sets]
    return Firewalld(sets, {zone: rich} if rich else {})


def own_set(service: str, name: str) -> bool:
    """Return whether an ipset is one of the role's."""
    return re.fullmatch(rf"{re.escape(service)}-\d+-ip[46]", name) is not None


def current_rules(service: str, zones: str) -> dict[str, list[str]]:
    """Return the role's rich rules by zone, from `firewall-cmd --permanent --list-all-zones`."""
    found: dict[str, list[str]] = {}
    zone = ""
    for line in zones.splitlines():
        if line[:1].strip():
            zone = line.split()[0]
        elif (match := re.search(r'^\s+(rule .*\bipset="([^"]*)".*)$', line)) and own_set(service, match[2]):
            found.setdefault(zone, []).append(match[1].strip())
    return found


def firewalld_commands(current: Firewalld, desired: Firewalld) -> list[list[str]]:
    """Return the arguments of firewall-cmd, except for `--permanent`, that lead from the current to the desired settings. Rules
    are removed before their sets, and added after them."""
    commands = []
    for zone, rules in sorted(current.rules.items()):
        commands += _each(f"--zone={zone}", "--remove-rich-rule", rules, desired.rules.get(zone, ()))
    commands += [[f"--delete-ipset={name}"] for name in sorted(set(current.sets) - set(desired.sets))]
    for name, entries in sorted(desired.sets.items()):
        there = current.sets.get(name)
        if there is None:
            family = "inet6" if name.endswith("6") else "inet"
            commands.append([f"--new-ipset={name}", "--type=hash:net", f"--option=family={family}"])
        # A set rejects an entry that overlaps another one, so old entries are removed first.
        commands += _each(f"--ipset={name}", "--remove-entry", there or (), entries)
        commands += _each(f"--ipset={name}", "--add-entry", entries, there or ())
    for zone, rules in sorted(desired.rules.items()):
        commands += _each(f"--zone={zone}", "--add-rich-rule", rules, current.rules.get(zone, ()))
    return commands


def _each(place: str, option: str, values: Iterable[str], others: Iterable[str]) -> list[list[str]]:
    """Return one command for the values that `others` lacks; no command if there are no such values."""
    left_out = set(others)
    chosen = [f"{option}={value}" for value in values if value not in left_out]
    return [[place, *chosen]] if chosen else []


def _set_name(service: str, port: int, version: int) -> str:
    name = f"{service}-{port}-ip{version}"
    if len(name) > _MAX_NAME:
        raise ValueError(
            f"{name}, named after nats_server_service_name, is longer than the {_MAX_NAME} characters of an ipset"
        )
    return name


def _rich_rule(name: str) -> str:
    port = name.split("-")[-2]
    family = f"ipv{name[-1]}"
    return f'rule family="{family}" source ipset="{name}" port port="{port}" protocol="tcp" accept'
