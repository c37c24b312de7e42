# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  servers:
    description:
      - Addresses of NATS servers, such as V(nats://n1.example.com:4222). The addresses are tried in the listed order.
      - With V(tls://), a server that does not offer TLS is refused.
      - Environment variable E(NATS_URL) (with commas between addresses), context key C(url). Defaults to
        V(nats://127.0.0.1:4222).
    type: list
    elements: str
  user:
    description:
      - User name. Environment variable E(NATS_USER), context key C(user).
    type: str
  password:
    description:
      - Password of O(user). Environment variable E(NATS_PASSWORD), context key C(password).
    type: str
  token:
    description:
      - Token, for servers that use one. Environment variable E(NATS_TOKEN), context key C(token).
    type: str
  nkey_seed:
    description:
      - Seed of the user's nkey (V(SU...)), or the path of a file that contains it.
      - Needs the Python library C(nkeys). Environment variable E(NATS_NKEY), context key C(nkey).
    type: str
  credentials:
    description:
      - Path of a C(.creds) file with the user's JWT and seed.
      - With O(user) and O(password), servers without an operator get the password, as during a migration.
      - Needs the Python library C(nkeys). Environment variable E(NATS_CREDS), context key C(creds).
    type: path
  account_seed:
    description:
      - Seed of the signing key with the role C(natsops) of the system account (V(SA...)), or the path of a file that
        contains it. In operator mode, the module logs in with a user that it mints with this key, and that exists only
        in memory. The login expires after 15 minutes, and the module renews it while it runs.
      - The seed must not leave the controller, so run the module there. Needs the Python library C(nkeys) and
        O(account_key).
    type: str
  account_key:
    description:
      - Public key (V(A...)) of the account of O(account_seed).
    type: str
  tls_ca_file:
    description:
      - Path of the certificates (PEM) of the authorities trusted to sign the servers' certificates.
      - Defaults to the system's authorities. Environment variable E(NATS_CA), context key C(ca).
      - If this option, O(tls_cert_file), O(tls_server_name) or O(tls_first) is set, a server that does not offer TLS is
        refused.
    type: path
  tls_cert_file:
    description:
      - Path of the client certificate (PEM), for servers that verify clients. Environment variable E(NATS_CERT),
        context key C(cert).
    type: path
  tls_key_file:
    description:
      - Path of the private key (PEM) of O(tls_cert_file). Environment variable E(NATS_KEY), context key C(key).
    type: path
  tls_server_name:
    description:
      - Name expected in the servers' certificates, instead of the host name in the address.
    type: str
  validate_certs:
    description:
      - Whether the servers' certificates are verified. Turn this off only for tests.
    type: bool
    default: true
  tls_first:
    description:
      - Whether to start TLS before the server's greeting, for servers with C(handshake_first) (2.10.4 and later).
        Context key C(tls_first).
    type: bool
  timeout:
    description:
      - Seconds after which a connection attempt, or a request without a reply, times out.
    type: float
    default: 5
  inbox_prefix:
    description:
      - Prefix of the subjects for replies, for a user without permission to subscribe to V(_INBOX.natsops.>). Context
        key C(inbox_prefix).
      - Defaults to V(_INBOX.natsops), or, with a C(.creds) file, to a prefix that the permissions in its JWT allow. If
        the JWT has no permissions, because its signing key has a role, the default is V(_INBOX.natsops.) and the public
        key of the user.
    type: str
  jetstream_domain:
    description:
      - JetStream domain of the streams and consumers, if leafnodes connect several domains. Defaults to the server's
        domain.
      - To query the servers and the meta group of another domain, use a user of that domain's system account. Context
        key C(jetstream_domain).
    type: str
  context:
    description:
      - Name of a context of the nats CLI (C(~/.config/nats/context/NAME.json)), or the path of such a file.
      - The context supplies the values that are set neither by options nor in the environment. Environment variable
        E(NATS_CONTEXT).
    type: str
requirements:
  - nats-py >= 2.9
  - nkeys, for O(nkey_seed), O(credentials) and O(account_seed)
notes:
  - The options of the connection come from the task, from C(module_defaults) of the group C(natsops.jetstream.nats),
    from the environment variables of the nats CLI, and from a nats CLI context, in this order.
  - Credentials of different sources are not combined. The first of these sources that has credentials determines the
    kind of credentials.
  - Run the module on a host that can reach the servers' client port, usually with C(delegate_to=localhost).
  - "A failed task returns RV(ignore:failure) with the keys C(code) (stable and machine-readable), C(description),
    C(subject), C(server), C(account) and C(err_code), the error number of the JetStream API, if any (code
    V(api_error)). Connection errors have the codes V(unreachable), V(authorization), V(tls), V(wrong_account),
    V(permission), V(timeout), V(connection_lost), V(bad_reply) and V(invalid_option)."
"""
