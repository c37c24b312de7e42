# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The public variables of the roles that the inputs of filters and modules consist of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .compose import OPTIONS


def _server(*names: str) -> dict[str, str]:
    return {name: f"nats_server_{name}" for name in names}


def _part(prefix: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"nats_server_{prefix}_{name}" for name in names}


#: For each input, the name of an option → the public variable with its value.
ROLE_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # compose.compose: the options of the complete configuration, of its gateways, or of its monitoring endpoint.
    # Composing less takes less time.
    "config": _server(*OPTIONS, "run_dir", "config", "config_host"),
    "gateways": _server("cluster_name", "supercluster_groups", "gateway"),
    "monitoring": _server("http", "https", "tls_source", "tls_for_monitoring"),
    # topology.supercluster_hosts
    "membership": _server("supercluster_groups", "cluster_members", "cluster_leaving"),
    # topology.topology, `seen`
    "member": {
        "server_name": "nats_server_name",
        "cluster": "nats_server_cluster_name",
        "route_address": "nats_server_cluster_route_address",
        "client_port": "nats_server_port",
        "monitoring": "nats_server_http",
        "pool_size": "nats_server_cluster_pool_size",
        **_server("supercluster_groups", "address", "zone", "cluster_port", "gateway_address", "gateway_port"),
        **_server("jetstream", "arbiter"),
    },
    # connection.connection, without the options that other variables determine
    "connection": {
        "account_key": "nats_server_system_account",
        "nkey_seed": "nats_server_api_nkey",
        **_part("api", ("servers", "timeout", "delegate_to", "account_seed", "credentials", "user", "password")),
        **_part("api", ("tls_ca_file", "tls_cert_file", "tls_key_file")),
        **_server("metrics_user", "metrics_password", "operator"),
    },
    # connection.SystemLogins
    "system_logins": _server(
        *("api_user", "api_password", "system_user", "system_password"),
        *("system_previous_user", "system_previous_password"),
    ),
    # client_contexts.client_contexts
    "contexts": _server(
        *("contexts", "cluster_name", "accounts", "system_account", "system_user", "system_password"),
        *("api_delegate_to", "api_servers", "api_credentials", "api_nkey"),
        *("tls_dir", "tls_ca_file", "tls_verify_clients"),
    ),
    # tls_sources.TlsSourceOptions
    "tls_sources": _part(
        "tls",
        (
            *("source", "ca_dir", "ca_key_file", "new_ca_dir", "ca_src", "cert_src", "key_src"),
            *("new_ca_src", "new_cert_src", "new_key_src", "bundle_src"),
        ),
    ),
    # host/release.ReleaseOptions, without the facts of the host
    "release": {
        "version": "nats_server_version",
        "base_url": "nats_server_release_url",
        "archive_format": "nats_server_release_format",
        **_part("release", ("checksum", "unpinned")),
    },
    # host/installation.InstallOptions
    "install": _server("install_method", "file_checksum", "take_over", "manage_user", "become", "group"),
    # host/layout.host_layout
    "layout": _server(
        *("take_over", "become", "user", "group"),
        *("install_dir", "config_dir", "config_file", "secrets_file", "run_dir", "log_file"),
        *("jetstream", "jetstream_store_dir", "config", "config_host", "tls_source"),
        *("service_name", "service_environment", "service_overrides"),
    ),
    # tls_use.tls_use
    "tls_use": _server(
        *("address", "port", "tls", "tls_for_clients"),
        *("clustered", "cluster_tls", "tls_for_cluster", "cluster_route_address", "cluster_port"),
        *("supercluster_groups", "gateway", "gateway_address", "leafnodes", "leafnode_address"),
    ),
}
