# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The properties of each configuration key of nats-server, as data. Pure: no I/O.

Source: server/opts.go (names, aliases, types), server/reload.go (keys that a reload accepts) and release tags (since), checked
by RELOAD against real servers in tests/integration/test_config_real.py.

A row of the table reads `name type reload since extras`; indentation nests; the order of rows is the order of output.

type
    `string int float bool duration seconds size strings durations any`; `intstr` is an integer if it resembles one
    and a string otherwise (`listen: 4222` or `"host:4222"`); `switch` is a string whose booleans mean on and off;
    `block` holds the rows beneath it (or a list of such blocks); `map` holds free names, described by its row `*`.
    `a|b` takes the first type that matches. `seconds` is a plain number, as servers before 2.11 accept nothing else there.
reload
    `Y` a reload applies it, `N` it needs a restart, `never` it must not change at all, `grow` a reload accepts an
    increase of a value that was set before, `>=V` a reload applies it from server version V on. For a block it is the
    class of adding or removing the complete block (for a list: an element); a change inside has the inner key's class.
since
    first release with the key; two values if it was backported. `-` is 2.2 or older.
extras
    `=a,b` other names of the key; `@x` the rows of the shared block x belong here; `secret` never shown; `bcrypt`
    the server compares it, so a hash may replace it; `url` secret when it carries credentials.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_TABLE = """
server_name                       string         never  -
server_tags                       strings        Y      -
server_metadata                   map            Y      2.12.0
  *                               string         Y      2.12.0
listen                            intstr         N      -
host                              string         N      -               =net
port                              int            N      -
client_advertise                  string         Y      -
tls                               block          N      -               @tls
allow_non_tls                     bool           N      -
ocsp                              block|bool     Y      2.3.0
  mode                            string         Y      2.3.0
  urls                            strings        Y      2.3.0
  url                             string         Y      2.3.0
ocsp_cache                        any            Y      2.9.21
proxy_protocol                    bool           N      2.12.2
proxies                           block          Y      2.12.0
  trusted                         block          Y      2.12.0
    key                           string         Y      2.12.0          =public_key
http                              intstr         N      -
https                             intstr         N      -
http_port                         int            N      -               =monitor_port
https_port                        int            N      -
http_base_path                    string         N      -
prof_port                         int            N      -
prof_block_rate                   int            Y      2.10.2
pid_file                          string         Y      -               =pidfile
ports_file_dir                    string         Y      -
debug                             bool           Y      -
trace                             bool           Y      -
trace_verbose                     bool           Y      -
trace_headers                     bool           Y      2.11.2
logtime                           bool           Y      -
logtime_utc                       bool           Y      2.9.21
log_file                          string         Y      -               =logfile
logfile_size_limit                size           N      -               =log_size_limit
logfile_max_num                   int            N      2.10.0          =log_max_num
syslog                            bool           Y      -
remote_syslog                     string         Y      -
max_connections                   int            Y      -               =max_conn
max_subscriptions                 int            N      -               =max_subs
max_sub_tokens                    int            N      2.6.4           =max_subscription_tokens
max_control_line                  size           Y      -
max_payload                       size           Y      -
max_pending                       size           N      -
max_traced_msg_len                int            Y      -
max_closed_clients                int            N      2.10.26
ping_interval                     duration       Y      -
ping_max                          int            Y      -
write_deadline                    duration       Y      -
write_timeout                     string         N      2.11.11,2.12.2
no_fast_producer_stall            bool           Y      2.10.26
connect_error_reports             int            Y      -
reconnect_error_reports           int            Y      -
lame_duck_duration                duration       N      -
lame_duck_grace_period            duration       N      -
disable_sublist_cache             bool           N      -               =no_sublist_cache
no_header_support                 bool           N      -
feature_flags                     map            N      2.14.0
  *                               bool           N      2.14.0
jetstream                         block|any      N      -
  enabled                         bool           N      -               =enable
  store_dir                       string         N      2.3.0           =store,storedir
  domain                          string         N      2.2.3
  max_memory_store                size           grow   -               =max_mem_store,max_mem
  max_file_store                  size           grow   -               =max_file
  sync_interval                   duration|string N     2.10.0          =sync
  strict                          bool           N      2.11.0
  unique_tag                      string         N      2.8.0
  cipher                          string         N      2.9.0
  encryption_key                  string         N      2.3.0           =key,ek secret
  prev_encryption_key             string         N      2.10.0          =prev_key,prev_ek secret
  tpm                             block          N      2.11.0
    keys_file                     string         N      2.11.0
    encryption_password           string         N      2.11.0          secret
    srk_password                  string         N      2.11.0          secret
    pcr                           int            N      2.11.0
    cipher                        string         N      2.11.0
  extension_hint                  string         N      2.7.0
  limits                          block          N      2.8.0
    max_ack_pending               int            N      2.8.0
    max_ha_assets                 int            >=2.15.1 2.8.0
    max_request_batch             int            N      2.8.0
    default_max_consumers         int            Y      2.15.0
    duplicate_window              duration       N      2.8.0
    batch                         block          N      2.12.0
      max_inflight_per_stream     int            N      2.12.0
      max_inflight_total          int            N      2.12.0
      max_msgs                    int            N      2.12.0
      timeout                     duration       N      2.12.0
  max_outstanding_catchup         size           N      2.9.0
  max_buffered_size               size           N      2.11.0
  max_buffered_msgs               int            N      2.11.0
  request_queue_limit             int            N      2.10.21
  info_queue_limit                int            N      2.14.0
  meta_compact                    int            Y      2.11.11,2.12.2
  meta_compact_size               size           Y      2.11.11,2.12.2
  meta_compact_sync               bool           Y      2.12.5
  max_concurrent_io               int            N      2.12.14,2.14.4
store_dir                         string         N      2.3.0           =storedir
default_js_domain                 map            N      2.7.0
  *                               string         N      2.7.0
cluster                           block|intstr   N      -
  name                            string         never  -
  listen                          intstr         N      -
  host                            string         N      -               =net
  port                            int            N      -
  advertise                       string         Y      -               =cluster_advertise
  no_advertise                    bool           Y      -
  authorization                   block          Y      -               @peer
  permissions                     block          Y      -               @route_permissions
  tls                             block          Y      -               @tls
  routes                          strings        Y      -               url
  connect_retries                 int            Y      -
  connect_backoff                 bool           Y      2.12.0
  pool_size                       int            Y      2.10.0
  accounts                        strings        Y      2.10.0
  compression                     block|switch   Y      2.10.0          @compression
  ping_interval                   duration       Y      2.10.10
  ping_max                        int            Y      2.10.10
  write_deadline                  duration       Y      2.11.11,2.12.1
  write_timeout                   string         Y      2.11.11,2.12.2
gateway                           block          N      -
  name                            string         N      -
  listen                          intstr         N      -
  host                            string         N      -               =net
  port                            int            N      -
  advertise                       string         N      -
  authorization                   block          N      -               @peer_restart
  tls                             block          N      -               @tls
  connect_retries                 int            N      -
  connect_backoff                 bool           N      2.12.0
  reject_unknown_cluster          bool           N      -               =reject_unknown
  write_deadline                  duration       N      2.11.11,2.12.1
  write_timeout                   string         N      2.11.11,2.12.2
  gateways                        block          N      -
    name                          string         N      -
    url                           string         N      -               url
    urls                          strings        N      -               url
    tls                           block          N      -               @tls
leafnodes                         block          N      -               =leaf
  listen                          intstr         N      -
  host                            string         N      -               =net
  port                            int            N      -
  advertise                       string         N      -               =leafnode_advertise
  no_advertise                    bool           N      -
  authorization                   block          N      -
    user                          string         N      -               =username
    password                      string         N      -               =pass secret bcrypt
    nkey                          string         N      2.10.8
    account                       string         N      -
    timeout                       seconds        N      -
    proxy_required                bool           N      2.12.0
    users                         block          N      -
      user                        string         N      -               =username
      password                    string         N      -               =pass secret bcrypt
      account                     string         N      -
      proxy_required              bool           N      2.12.0
  tls                             block          N      -               @tls_leaf
  reconnect                       duration       N      -               =reconnect_delay,reconnect_interval
  dial_timeout                    duration       N      2.14.5
  min_version                     string         N      2.8.0           =minimum_version
  compression                     block|switch   Y      2.10.0          @compression
  isolate_leafnode_interest       bool           N      2.12.0          =isolate
  write_deadline                  duration       N      2.11.11,2.12.1
  write_timeout                   string         N      2.11.11,2.12.2
  remotes                         block          >=2.14.0 -
    url                           string         >=2.14.0 -             url
    urls                          strings        >=2.14.0 -             url
    account                       string         >=2.14.0 -             =local
    credentials                   string         >=2.14.0 -             =creds
    nkey                          string         N      2.10.8          =seed secret
    tls                           block          Y      -               @tls
    hub                           bool           N      -
    deny_imports                  strings        N      -               =deny_import
    deny_exports                  strings        N      -               =deny_export
    no_randomize                  bool           N      2.2.3           =dont_randomize
    ws_compression                bool           N      -               =ws_compress,websocket_compress,websocket_compression
    ws_no_masking                 bool           N      -               =websocket_no_masking
    jetstream_cluster_migrate     block|bool     N      2.9.0           =js_cluster_migrate
      leader_migrate_delay        duration       N      2.11.0
    isolate_leafnode_interest     bool           N      2.12.0          =isolate
    request_isolation             bool           N      2.12.0
    compression                   block|switch   Y      2.10.0          @compression
    first_info_timeout            duration       N      2.10.26
    dial_timeout                  duration       N      2.14.5
    disabled                      bool           Y      2.12.0
    ignore_discovered_servers     bool           N      2.14.0
    proxy                         block          N      2.12.1
      url                         string         N      2.12.1          url
      username                    string         N      2.12.1
      password                    string         N      2.12.1          secret
      timeout                     duration       N      2.12.1
websocket                         block          N      -               =ws
  listen                          intstr         N      -
  host                            string         N      -               =net
  port                            int            N      -
  advertise                       string         N      -
  no_tls                          bool           N      -
  tls                             block          N      -               @tls
  same_origin                     bool           N      -
  allowed_origins                 strings        N      -               =allowed_origin,allow_origins,allow_origin,origins,origin
  handshake_timeout               duration       N      -
  compression                     bool           N      -               =compress
  authorization                   block          N      -               =authentication @simple
  jwt_cookie                      string         N      -
  user_cookie                     string         N      2.11.0
  pass_cookie                     string         N      2.11.0
  token_cookie                    string         N      2.11.0
  no_auth_user                    string         N      -
  headers                         map            N      2.11.0
    *                             string         N      2.11.0
  ping_interval                   duration       N      2.11.12,2.12.3
mqtt                              block          N      -
  listen                          intstr         N      -
  host                            string         N      -               =net
  port                            int            N      -
  tls                             block          N      -               @tls
  authorization                   block          N      -               =authentication @simple
  no_auth_user                    string         N      -
  ack_wait                        duration       Y      -               =ackwait
  js_api_timeout                  duration       N      2.11.3          =api_timeout
  max_ack_pending                 int            Y      -               =max_pending,max_inflight
  js_domain                       string         N      2.7.0
  stream_replicas                 int            Y      2.8.3
  consumer_replicas               int            Y      2.8.3
  consumer_memory_storage         bool           Y      2.8.3
  consumer_inactive_threshold     duration       Y      2.9.0           =consumer_auto_cleanup
  reject_qos2_publish             bool           N      2.10.4
  downgrade_qos2_subscribe        bool           N      2.10.4
system_account                    string         N      -               =system
no_system_account                 bool           N      -               =no_system,no_sys_acc
no_auth_user                      string         N      -
authorization                     block          Y      -
  user                            string         Y      -               =username
  password                        string         Y      -               =pass secret bcrypt
  token                           string         Y      -               secret bcrypt
  timeout                         seconds        Y      -
  default_permissions             block          Y      -               =default_permission,permissions @permissions
  auth_callout                    block          N      2.10.0          =auth_hook
    issuer                        string         N      2.10.0
    account                       string         N      2.10.0          =acc
    auth_users                    strings        N      2.10.0          =users
    xkey                          string         N      2.10.0          =key
    allowed_accounts              strings        N      2.11.0
  proxy_required                  bool           N      2.12.0
  users                           block          Y      -               @user
accounts                          map            Y      -
  *                               block          Y      -
    nkey                          string         Y      -
    jetstream                     block|any      Y      -
      max_memory                  size           Y      -               =max_mem,mem,memory
      max_store                   size           Y      -               =max_file,max_disk,store,disk
      max_streams                 int            Y      -               =streams
      max_consumers               int            Y      -               =consumers
      max_bytes_required          bool           Y      2.7.0           =max_stream_bytes,max_bytes
      mem_max_stream_bytes        size           Y      2.8.0           =memory_max_stream_bytes
      disk_max_stream_bytes       size           Y      2.8.0           =store_max_stream_bytes
      max_ack_pending             int            Y      2.8.0
      cluster_traffic             string         Y      2.11.0
    limits                        block          Y      2.7.0
      max_connections             int            Y      2.7.0           =max_conn
      max_subscriptions           int            Y      2.7.0           =max_subs
      max_payload                 size           Y      2.7.0           =max_pay
      max_leafnodes               int            Y      2.7.0           =max_leafs
    default_permissions           block          Y      -               @permissions
    users                         block          Y      -               @user
    exports                       block          Y      -
      stream                      string         Y      -
      service                     string         Y      -
      accounts                    strings        Y      -
      response_type               string         Y      -               =response
      threshold                   duration       Y      -               =response_threshold,response_max_time,response_time
      latency                     block|string   Y      -
        sampling                  intstr         Y      -
        subject                   string         Y      -
      account_token_position      int            Y      -
      allow_trace                 bool           Y      2.11.0
    imports                       block          Y      -
      stream                      block          Y      -               @source
      service                     block          Y      -               @source
      prefix                      string         Y      -
      to                          string         Y      -
      share                       bool           Y      -
      allow_trace                 bool           Y      2.11.0
    mappings                      map            Y      -               =maps @mappings
    msg_trace                     block|string   Y      2.11.0          =trace_dest
      dest                        string         Y      2.11.0
      sampling                    intstr         Y      2.11.0
mappings                          map            Y      -               =maps @mappings
operator                          any            N      -               =operators,roots,root,root_operators,root_operator
trusted_keys                      strings        N      -               =trusted
resolver                          block|string   N      -               =account_resolver,accounts_resolver
  type                            string         N      -
  dir                             string         N      -
  allow_delete                    bool           N      -
  hard_delete                     bool           N      2.9.20
  interval                        duration       N      -
  limit                           int            N      -
  timeout                         duration       N      -
  ttl                             duration       N      -
resolver_tls                      block          Y      -               @tls
resolver_preload                  map            Y      -
  *                               string         Y      -
resolver_pinned_accounts          strings        Y      2.4.0
default_sentinel                  string         Y      2.11.2
"""

_SHARED = """
peer
  user                            string         Y      -               =username
  password                        string         Y      -               =pass secret
  timeout                         seconds        Y      -
peer_restart
  user                            string         N      -               =username
  password                        string         N      -               =pass secret
  timeout                         seconds        N      -
simple
  user                            string         N      -               =username
  password                        string         N      -               =pass secret bcrypt
  token                           string         N      -               secret bcrypt
  timeout                         seconds        N      -
user
  user                            string         Y      -               =username
  password                        string         Y      -               =pass secret bcrypt
  nkey                            string         Y      -
  permissions                     block          Y      -               =permission,authorization @permissions
  allowed_connection_types        strings        Y      -               =connection_types,clients
  proxy_required                  bool           Y      2.12.0
permissions
  publish                         block|strings  Y      -               =pub,import @subjects
  subscribe                       block|strings  Y      -               =sub,export @subjects
  allow_responses                 block|bool     Y      -               =publish_allow_responses
    max                           int            Y      -               =max_msgs,max_messages,max_responses
    expires                       duration       Y      -               =expiration,ttl
route_permissions
  import                          block|strings  Y      -               =pub,publish @subjects
  export                          block|strings  Y      -               =sub,subscribe @subjects
subjects
  allow                           strings        Y      -
  deny                            strings        Y      -
source
  account                         string         Y      -
  subject                         string         Y      -
mappings
  *                               block|string   Y      -
    destination                   string         Y      -               =dest
    weight                        intstr         Y      -
    cluster                       string         Y      -
compression
  mode                            switch         Y      2.10.0
  rtt_thresholds                  durations      Y      2.10.0          =thresholds,rtts,rtt
tls
  cert_file                       string         Y      -
  key_file                        string         Y      -
  ca_file                         string         Y      -
  certs                           block          Y      2.10.8          =certificates
    cert_file                     string         Y      2.10.8
    key_file                      string         Y      2.10.8
  verify                          bool           Y      -
  verify_and_map                  bool           N      -
  verify_cert_and_check_known_urls bool          N      -
  insecure                        bool           Y      -
  timeout                         seconds        Y      -
  min_version                     string         Y      2.10.21
  cipher_suites                   strings        Y      -
  curve_preferences               strings        Y      -
  allow_insecure_cipher_suites    bool           N      2.12.0
  connection_rate_limit           int            N      2.7.0
  pinned_certs                    strings        Y      2.2.5
  handshake_first                 any            Y      2.10.0          =first,immediate
  ocsp_peer                       any            Y      2.9.21
  ca_certs_match                  strings        Y      2.10.23
"""


@dataclass(frozen=True)
class Key:
    """One configuration key; the module's docstring describes the fields."""

    name: str
    types: tuple[str, ...]
    reload: str = "N"
    since: tuple[str, ...] = ()
    secret: bool = False
    bcrypt: bool = False
    url: bool = False
    aliases: tuple[str, ...] = ()
    children: dict[str, Key] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def canonical(self, name: str) -> str:
        """Return the server's main name for a child key, which may be given by any of its names (nats-server ignores
        case)."""
        return self.names.get(name.lower(), name)

    def child(self, name: str) -> Key | None:
        """Return the child key of that canonical name, the description of a free name in a map, or None if it is
        unknown."""
        return self.children.get(name) or self.children.get("*")

    def walk(self, path: str = "") -> Iterator[tuple[str, Key]]:
        """Return every key below this one as (dotted path, key); the free names of maps are `*`."""
        for name, child in self.children.items():
            here = f"{path}.{name}" if path else name
            yield here, child
            yield from child.walk(here)


def _parse(table: str, shared: dict[str, Key]) -> Key:
    """Return the tree that an indented table describes."""
    lines = [line for line in table.splitlines() if line.strip()]
    position = 0

    def level(indent: int) -> dict[str, Key]:
        nonlocal position
        found: dict[str, Key] = {}
        while position < len(lines) and len(lines[position]) - len(lines[position].lstrip()) == indent:
            name, *columns = lines[position].split()
            position += 1
            children = level(indent + 2)
            types, reload, since, *extras = columns or ["block", "N", "-"]
            flags = {extra for extra in extras if extra[0] not in "=@"}
            aliases = tuple(alias for extra in extras if extra[0] == "=" for alias in extra[1:].split(","))
            for extra in extras:
                if extra[0] == "@":
                    children = {**shared[extra[1:]].children, **children}
            found[name] = Key(
                name,
                tuple(types.split("|")),
                reload,
                () if since == "-" else tuple(since.split(",")),
                "secret" in flags,
                "bcrypt" in flags,
                "url" in flags,
                aliases,
                children,
                _names(children),
            )
        return found

    children = level(0)
    return Key("", ("block",), children=children, names=_names(children))


def _names(children: dict[str, Key]) -> dict[str, str]:
    return {name: key.name for key in children.values() for name in (key.name, *key.aliases) if key.name != "*"}


def _shared_blocks() -> dict[str, Key]:
    """Return the shared blocks, which may refer to one another, and the TLS block for leafnodes, for which a reload
    rejects a new timeout."""
    shared: dict[str, Key] = {}
    for text in reversed(re.split(r"\n(?=\w)", _SHARED.strip("\n"))):
        shared.update(_parse(text, shared).children)
    tls = shared["tls"].children
    shared["tls_leaf"] = Key("tls", ("block",), children={**tls, "timeout": Key("timeout", ("seconds",))})
    return shared


SCHEMA = _parse(_TABLE, _shared_blocks())
"""The root of the configuration: its children are the top-level keys."""


def similar_key(name: str, names: Iterable[str]) -> str:
    """Return the most similar of these keys, an empty text if none is similar."""
    found = difflib.get_close_matches(name.lower(), sorted(names), 1)
    return found[0] if found else ""


def hints(text: str) -> list[str]:
    """Return the most similar key of any block for each unknown field in the output of `nats-server -t`, which names no
    block (conf.go unknownConfigFieldErr)."""
    known = {name for _path, key in SCHEMA.walk() for name in key.names} | set(SCHEMA.names)
    unknown = dict.fromkeys(re.findall(r'unknown field "([^"]+)"', text))
    similar = {name: similar_key(name, known) for name in unknown}
    return [f"{name}: the nearest known key is {key}" for name, key in similar.items() if key]
