# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts an existing cluster into an inventory with which the roles deploy the same cluster. Pure: no I/O.

Every value of the current configuration is kept, and none is added: values with a role variable become that variable,
all others are stored in `nats_server_config`, where a null removes a value that the role would add. `composed` returns
the role's configuration for the variables; its difference from the running configuration has to be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..nats.account_names import SYSTEM_ACCOUNT
from ..screen import Page, blocks, listing, page
from .case import get_block, get_cluster_name, get_jetstream
from .compose import CLUSTER, JETSTREAM, PLAIN, HostInputs, compose, merged
from .foreign_unit import Carried, carry_over, may_be_secret, notes
from .host_rules import decided_by_the_unit
from .passwords import is_hash
from .reload_rules import canonical, config_change, is_reloadable
from .schema import SCHEMA, Key
from .syntax import ConfigError, Leaf, Path, is_secret, leaves, normalise, secret_name, show, transform
from .topology import routes
from .validation import config_problems

PREFIX = "nats_server_"
ZONE_PREFIX = "az:"
# Variables that correspond to one key of the configuration.
_KEYS = (*PLAIN, "tls", "https", "http", "leafnodes", "operator", "pid_file")
#: The role's defaults of the variables that an adopted server may leave out.
_DEFAULTS = {
    "port": 4222,
    "cluster_port": 6222,
    "cluster_route_style": "all",
    "http": "127.0.0.1:8222",
    "jetstream": True,
    "system_account": SYSTEM_ACCOUNT,
    "zone_tag_prefix": ZONE_PREFIX,
}


class Secret(str):
    """A placeholder for a secret value: the name of its vault variable."""


@dataclass
class AdoptedServer:
    """One server as a host of the inventory."""

    host: str
    variables: dict[str, Any]
    vault: dict[str, str]
    #: Keys that are not in the schema, and keys that have no variable in the inventory.
    unknown: list[str]
    extra: list[str]
    #: Options of the unit that have a variable in the inventory.
    unit_settings: list[str]
    action: str
    reasons: list[str]
    todo: list[str]


@dataclass
class Adoption:
    """The result of an adoption. If there are `refusals`, the other fields must not be used."""

    refusals: list[str] = field(default_factory=list)
    servers: list[AdoptedServer] = field(default_factory=list)
    group: dict[str, Any] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    group_vault: dict[str, str] = field(default_factory=dict)
    host_vaults: dict[str, dict[str, str]] = field(default_factory=dict)
    page: Page = field(default_factory=Page)


def adopt(found: Mapping[str, Mapping[str, Any]], addresses: Mapping[str, str]) -> Adoption:
    """Return the inventory of a cluster.

    `found`: host → C(adoption) of nats_server_host_info. `addresses`: host → the address at which the other hosts reach
    it."""
    refusals = [text for host, one in found.items() for text in (f"{host}: {why}" for why in _host_refusals(one))]
    refusals += _cluster_refusals({host: one for host, one in found.items() if one.get("config")})
    if refusals:
        return Adoption(refusals=refusals)
    members = [
        {"route_address": addresses[host], "cluster_port": _port(_block(one["config"], "cluster")) or 6222}
        for host, one in found.items()
    ]
    servers = []
    for host, one in found.items():
        try:
            servers.append(_server(host, one, members))
        except ConfigError as error:
            refusals.append(f"{host}: {error}")
    if refusals:
        return Adoption(refusals=refusals)
    adoption = Adoption(servers=servers)
    adoption.group, adoption.hosts = _shared({server.host: server.variables for server in servers})
    adoption.group_vault, adoption.host_vaults = _shared({server.host: dict(server.vault) for server in servers})
    adoption.page = _page(found, servers)
    return adoption


# --- Refusals ------------------------------------------------------------------------------------------------------


def _host_refusals(one: Mapping[str, Any]) -> Iterator[str]:
    if not one.get("found"):
        yield str(one.get("problem") or "its state is unknown")
        return
    loaded, config, varz = one["loaded"], one["config"], one["varz"]
    if not one["config_path"]:
        yield (
            "nats-server runs without a configuration file, by flags alone, so a reload cannot change anything: write "
            "a configuration file and restart it with -c"
        )
        return
    if not loaded["proof"]:
        yield loaded["problem"]
        return
    name = config.get("server_name")
    if not name:
        yield (
            "server_name is not set: the server gets a different name at each start, and setting a name renames the "
            "server, which its Raft peers then treat as a new server. Set it and restart the servers one by one, then "
            "adopt them"
        )
    elif varz.get("server_name") and varz["server_name"] != name:
        yield f"it would be renamed: it runs as {varz['server_name']}, but its configuration has {name}"
    if _block(config, "authorization").get("token"):
        yield (
            "authorization.token: nats-server accepts no token together with users of the system account, which the health "
            "gate needs. Create a user for the clients (authorization.users), reload the server, then adopt it"
        )
    yield from _store_refusals(one)
    if isinstance(config.get("cluster"), Mapping) and not get_cluster_name(config):
        yield "cluster.name is not set, and JetStream needs the same cluster name on all servers: set it, and restart the servers"
    for file in one["tls_files"]:
        if not file["path"].startswith("/"):
            yield (
                f"{file['option']}: {file['path']} is relative to the directory that the server was started in: write "
                "its absolute path and reload the server"
            )
        elif not file["exists"]:
            yield f"{file['option']}: {file['path']} no longer exists: the server would not start again"


def _store_refusals(one: Mapping[str, Any]) -> Iterator[str]:
    config, store = one["config"], one["store"]
    if get_jetstream(config) is None:
        return
    if not store["path"]:
        where = store["reported"] or "the directory for temporary files"
        yield (
            f"its store would be moved: jetstream.store_dir is not set, so the streams are in {where}. Stop the "
            "server, move them to a separate directory, set store_dir to it, and start the server"
        )
    elif not store["path"].startswith("/"):
        yield (
            f"its store would be moved: jetstream.store_dir {store['path']} is relative to the directory that the "
            "server was started in. Write its absolute path and restart the server"
        )
    elif not store["same"]:
        yield (
            f"its store would be moved: {store['path']} is a different directory for the process than for the host, as "
            "with PrivateTmp or in a container. Stop the server, move the streams to a directory that the host can "
            "access, and start it"
        )
    elif store["reported"] and store["reported"].rstrip("/") != store["path"].rstrip("/") + "/jetstream":
        yield f"its store would be moved: it is in {store['reported']}, but its configuration has {store['path']}"


def _cluster_refusals(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    names = Counter(one["config"].get("server_name") for one in found.values())
    for name, count in names.items():
        if name and count > 1:
            yield f"{count} servers are named {name}: names must be unique in a cluster"
    clusters = {get_cluster_name(one["config"]) for one in found.values()}
    if len(clusters) > 1:
        named = ", ".join(sorted(str(name) for name in clusters))
        yield (
            f"these are servers of several clusters ({named}): adopt each cluster separately, with --limit or its own "
            "inventory"
        )
    missing = {name for one in found.values() for name in one["routes"] or []} - set(names)
    if missing:
        yield (
            f"the cluster has servers that are not in the inventory: {', '.join(sorted(missing))}. Add their hosts, "
            "because quorums are counted by the inventory"
        )


# --- One server -----------------------------------------------------------------------------------------------------


def _server(host: str, one: Mapping[str, Any], members: list[dict[str, Any]]) -> AdoptedServer:
    vault: dict[str, str] = {}

    def hide(leaf: Leaf) -> Any:
        if not is_secret(leaf):
            return leaf.value
        name = secret_variable(leaf.path)
        vault[name] = leaf.value
        return Secret(name)

    running = normalise(one["config"])
    config = _with_users(running)
    hidden = transform(config, hide)
    variables = _variables(hidden, one, members)
    carried = carry_over(one["unit"]["settings"]) if one["unit"] else Carried()
    variables.update(_unit_variables(one["unit"], carried, vault))
    todo = _system_login(hidden, vault, variables)
    made = normalise(composed(variables, members))
    patch = difference(hidden, made)
    if patch:
        variables["config"] = patch
    again = normalise(merged(made, patch))
    if config_change(hidden, again, one["process"]["version"])["action"] != "none":
        raise ConfigError((), "the variables do not reproduce the configuration")
    action, reasons = _first_deploy(running, config, one["process"]["version"])
    return AdoptedServer(
        host=host,
        variables={PREFIX + name: value for name, value in variables.items()},
        vault=vault,
        unknown=[show(leaf.path) for leaf in leaves(hidden) if leaf.key is None],
        extra=sorted(name for name, value in patch.items() if value is not None),
        unit_settings=carried.names,
        action=action,
        reasons=reasons,
        todo=[*todo, *_todo(one, carried), *_problems(config, one)],
    )


def _variables(config: Mapping[str, Any], one: Mapping[str, Any], members: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the variables of a server, without their prefix."""
    process, unit = one["process"], one["unit"]
    found: dict[str, Any] = {
        "take_over": False,
        "name": config["server_name"],
        "version": process["version"],
        "install_method": "running",
        "config_file": one["config_path"],
        "user": process["user"],
        "group": process["group"],
        "manage_user": False,
        "jetstream": get_jetstream(config) is not None,
        "clustered": isinstance(config.get("cluster"), Mapping),
    }
    if unit:
        found["service_name"] = unit["name"]
    if not one["binary_link_free"]:
        found["binary_link"] = "/opt/nats-server/nats-server"
    # Variables whose default is not null.
    found.update({name: config.get(name) for name in ("http", "lame_duck_duration", "lame_duck_grace_period")})
    found.update({name: config[name] for name in _KEYS if config.get(name) is not None})
    _listeners(config, found)
    _tags(config, found)
    _jetstream(config, found)
    _cluster(config, found, members)
    if config.get("accounts"):
        found["accounts"] = config["accounts"]
    if config.get("system_account"):
        found["system_account"] = config["system_account"]
    if isinstance(config.get("gateway"), Mapping):
        found["gateway"] = config["gateway"]
        found.update({"gateway_port": port} if (port := _port(config["gateway"])) else {})
    return found


def _unit_variables(unit: Mapping[str, Any], carried: Carried, vault: dict[str, str]) -> dict[str, Any]:
    """Return the variables that carry the settings of the replaced unit over to the role's unit."""
    found: dict[str, Any] = {}
    if carried.overrides:
        found["service_overrides"] = carried.overrides
    if carried.files:
        found["service_limit_nofile"] = carried.files
    if unit and not unit["enabled"]:
        found["service_enabled"] = False
    environment: dict[str, str] = dict(unit["environment"]) if unit else {}
    for name in filter(may_be_secret, environment):
        vaulted = f"vault_nats_environment_{name}"
        vault[vaulted] = environment[name]
        environment[name] = Secret(vaulted)
    if environment:
        found["service_environment"] = environment
    return found


def _listeners(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    found.update({name: config[name] for name in ("listen", "host", "port") if config.get(name) is not None})
    if "listen" in found:
        found.pop("port", None)


def _tags(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Set the tags; the zone is the part after the prefix of JetStream's unique_tag, if exactly one tag has this
    prefix."""
    tags = list(config.get("server_tags") or [])
    block = _block(config, "jetstream")
    prefix = str(block.get("unique_tag") or "")
    zones = [tag for tag in tags if prefix and tag.startswith(prefix) and tag != prefix]
    if len(zones) == 1 and tags[-1] == zones[0]:
        tags.remove(zones[0])
        found["zone"] = zones[0][len(prefix) :]
        if prefix != ZONE_PREFIX:
            found["zone_tag_prefix"] = prefix
    if tags:
        found["tags"] = tags


def _jetstream(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    block = _block(config, "jetstream")
    for name in JETSTREAM:
        if block.get(name) is not None and not (name == "unique_tag" and "zone" in found):
            found[f"jetstream_{name}"] = block[name]


def _cluster(config: Mapping[str, Any], found: dict[str, Any], members: list[dict[str, Any]]) -> None:
    block = config.get("cluster")
    if not isinstance(block, Mapping):
        name = get_cluster_name(config)
        found.update({"cluster_name": name} if name else {})
        return
    found["cluster_name"] = get_cluster_name(config)
    for name in ("listen", "host", "port", *CLUSTER):
        if block.get(name) is not None:
            found[f"cluster_{name}"] = block[name]
    if "cluster_listen" in found:
        found.pop("cluster_port", None)
    # Routes that the role generates from the inventory are updated when servers are added.
    if found.get("cluster_routes") == routes(members) and "cluster_authorization" not in found:
        del found["cluster_routes"]
    elif "cluster_routes" not in found:
        found["cluster_routes"] = []


def _system_login(config: Mapping[str, Any], vault: dict[str, str], found: dict[str, Any]) -> list[str]:
    """Make the modules log in as the first user of the system account; return the steps that remain for the operator."""
    account = str(config.get("system_account") or SYSTEM_ACCOUNT)
    users = _block(_block(config, "accounts"), account).get("users") or []
    user = next((one for one in users if isinstance(one, Mapping) and one.get("user") and one.get("password")), None)
    if config.get("operator") is not None:
        return ["set nats_server_api_credentials to the .creds file of a user of the system account"]
    if user is None and any(isinstance(one, Mapping) and one.get("nkey") for one in users):
        return ["set nats_server_api_nkey to the seed of a user of the system account, or the path of its file"]
    name = "vault_nats_system_password"
    found["system_password"] = Secret(name)
    if user is None:
        vault[name] = ""
        return [
            f"no user can log in to the system account, which the health gate needs: set a password for {name}, and "
            "the first deploy adds the user sys with it by a reload"
        ]
    found["system_user"] = user["user"]
    password = vault.get(user["password"], "")
    vault[name] = "" if is_hash(password) else password
    return [f"{name}: set it to the password of {user['user']}; only its hash is known"] if is_hash(password) else []


def _todo(one: Mapping[str, Any], carried: Carried) -> Iterator[str]:
    unit = one["unit"]
    yield from notes(unit, carried) if unit else ()
    for drop_in in unit["drop_ins"] if unit else []:
        decided = decided_by_the_unit(drop_in)
        if decided:
            yield (
                f"{drop_in['path']} sets {', '.join(decided)}, which the role's unit also sets: before taking the "
                "server over, move the needed options to nats_server_service_overrides and remove the file"
            )
        else:
            options = ", ".join(drop_in["options"]) or "nothing"
            yield (
                f"{drop_in['path']} sets {options} and still overrides the role's unit: remove it if that is not "
                "intended"
            )
    if one["process"]["binary"].endswith(" (deleted)"):
        yield (
            "its binary has been replaced or removed since it started: until the takeover, a restart runs a different "
            "binary"
        )
    tls = _block(one["config"], "tls")
    if tls and not tls.get("insecure"):
        yield (
            "set nats_server_api_tls_ca_file to a file on the controller, unless authorities that the controller "
            "trusts signed the certificates"
        )
    if tls.get("verify") or tls.get("verify_and_map"):
        yield (
            "set nats_server_api_tls_cert_file and nats_server_api_tls_key_file to files on the controller: the "
            "servers require client certificates"
        )


def _problems(config: Mapping[str, Any], one: Mapping[str, Any]) -> Iterator[str]:
    """Return the reasons in the configuration itself for which the preflight would refuse the first deployment."""
    for problem in config_problems(config, {"version": one["process"]["version"], "service_backend": "systemd"}):
        if problem["severity"] == "error":
            yield f"the first deploy refuses {problem['option']}: {problem['message']}"


def _with_users(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with a single user converted to a list with one entry. Both forms are equivalent,
    because nats-server rejects a single user next to the users of accounts. The default permissions do not apply to a
    single user, so they are omitted."""
    block = _block(config, "authorization")
    if not block.get("user"):
        return config
    rest = {name: value for name, value in block.items() if name not in ("user", "password", "default_permissions")}
    user = {name: block[name] for name in ("user", "password") if name in block}
    return {**config, "authorization": {**rest, "users": [user]}}


def _first_deploy(running: Mapping[str, Any], config: Mapping[str, Any], version: str) -> tuple[str, list[str]]:
    """Return the effect of the first deployment on the process: the text of its files changes, and plain passwords
    become hashes where a reload can apply them (passwords.hash_passwords)."""
    reasons = []
    if config != running:
        reasons.append("authorization.user becomes the only entry of authorization.users")

    def hashed(leaf: Leaf) -> Any:
        if leaf.key is None or not leaf.key.bcrypt or not isinstance(leaf.value, str) or is_hash(leaf.value):
            return leaf.value
        if is_reloadable(leaf, version):
            reasons.append(f"{show(leaf.path)} becomes a hash")
            return "another"
        reasons.append(f"{show(leaf.path)} stays in plain text until the server is taken over: a hash needs a restart")
        return leaf.value

    change = config_change(running, transform(config, hashed), version)
    return ("restart" if change["action"] == "restart" else "reload"), reasons


# --- The role's configuration ----------------------------------------------------------------------------------------


def composed(variables: Mapping[str, Any], members: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the configuration that the role nats_server composes from these variables before it has taken over the
    server. A new user of the system account is not part of it: the first deploy adds the user."""
    zone_tag = variables.get("zone_tag_prefix", ZONE_PREFIX) if variables.get("zone") else None
    options = {**_DEFAULTS, "jetstream_unique_tag": zone_tag, **variables, "system_password": None}
    return compose(options, {"servers": members}, HostInputs())


def difference(desired: Mapping[str, Any], made: Mapping[str, Any], key: Key | None = SCHEMA) -> dict[str, Any]:
    """Return the dictionary that Ansible's recursive `combine` must add to `made` to produce `desired`: nulls remove keys."""
    patch: dict[str, Any] = {}
    for name, value in desired.items():
        child = key.child(name) if key else None
        if name not in made:
            patch[name] = value
        elif isinstance(value, Mapping) and isinstance(made[name], Mapping):
            inner = difference(value, made[name], child)
            if inner:
                patch[name] = inner
        elif canonical(value, child) != canonical(made[name], child):
            patch[name] = value
    patch.update({name: None for name in made if name not in desired})
    return patch


# --- The cluster ----------------------------------------------------------------------------------------------------


def _shared(by_host: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the values common to all hosts, and the remaining values of each host; `nats_server_config` is split by
    its keys."""
    own = {host: dict(values) for host, values in by_host.items()}
    extra = PREFIX + "config"
    parts = {host: values.pop(extra, {}) for host, values in own.items()}
    group, hosts = _alike(own)
    together, apart = _alike(parts)
    if together:
        group[extra] = together
    for host, values in apart.items():
        if values:
            hosts[host][extra + "_host"] = values
    return group, hosts


def _alike(by_host: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    values = list(by_host.values())
    first = values[0]
    # A name belongs to one host, even if there are no other hosts.
    shared = {
        name: value
        for name, value in first.items()
        if name != PREFIX + "name" and all(name in one and one[name] == value for one in values)
    }
    return shared, {host: {n: v for n, v in one.items() if n not in shared} for host, one in by_host.items()}


def _page(found: Mapping[str, Mapping[str, Any]], servers: Sequence[AdoptedServer]) -> Page:
    actions = Counter(server.action for server in servers)
    head = page(
        f"{len(servers)} {'server' if len(servers) == 1 else 'servers'} of the cluster "
        f"{get_cluster_name(found[servers[0].host]['config']) or '(none)'} can be adopted.",
        f"The first deploy: {actions['restart']} restarts, {actions['reload']} reloads, 0 units, 0 binaries.",
        f"Takeover: {len(servers)} units and binaries, one server after another behind the health gate.",
    )
    each = []
    for server in servers:
        one = found[server.host]
        unit = one["unit"].get("name", "") if one["unit"] else ""
        proof = {"digest": "by its reported digest", "time": "by the times of its files"}[one["loaded"]["proof"]]
        line = (
            f"{server.host}: {one['config']['server_name']}, nats-server {one['process']['version']}, "
            f"{'unit ' + unit if unit else 'started by hand'}, {one['config_path']}, verified {proof}"
        )
        each.append([line, *(f"  {server.action}: {reason}" for reason in server.reasons)])
    return (
        head
        + blocks(each, what="server")
        + _listed("Unknown to this collection, kept in nats_server_config", [s.unknown for s in servers])
        + _listed("Kept in nats_server_config", [s.extra for s in servers])
        + _listed("Kept from the unit in nats_server_service_overrides", [s.unit_settings for s in servers])
        + _listed("To do", [s.todo for s in servers])
    )


def _listed(title: str, texts: Sequence[Sequence[str]]) -> Page:
    every = list(dict.fromkeys(text for one in texts for text in one))
    return page(f"{title}:") + listing([f"  {text}" for text in every]) if every else Page()


def _block(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return get_block(config, name) or {}


def _port(block: Mapping[str, Any]) -> int | None:
    port = block.get("port") or str(block.get("listen") or "").rpartition(":")[2]
    return int(port) if str(port).isdigit() else None


def secret_variable(path: Path) -> str:
    """Return the name of the vault variable for the secret of that path."""
    return "vault_nats_" + secret_name(path).removeprefix("SECRET_")
