# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a cluster renews its certificates or changes from one certificate authority to another. Pure: no I/O, no
cryptography.

First, every host must trust both authorities; only then may a host present a certificate of the new authority; and only
after all hosts do may the old authority be removed. The files of each host show its progress, so an interrupted
rotation resumes from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..batch import number_batches
from ..screen import listed
from .rotation_batches import RotationBatch

#: The steps that change files, in order.
ORDER = ("renew", "trust_new_ca", "new_certificates", "remove_old_ca")

_STEP_LINES = {
    "reload": "reload: load the files that an earlier run installed",
    "renew": "renew: install new certificates from the same authority",
    "trust_new_ca": "trust_new_ca: every host trusts the old authority and the new one",
    "new_certificates": "new_certificates: every host presents a certificate from the new authority",
    "remove_old_ca": "remove_old_ca: no host trusts the old authority any more",
}
_CURRENT_VARIABLES = {
    "ca": "nats_server_tls_ca_dir",
    "files": "nats_server_tls_ca_src, nats_server_tls_cert_src and nats_server_tls_key_src",
}
_NEW_VARIABLES = {
    "ca": "nats_server_tls_new_ca_dir",
    "files": "nats_server_tls_new_ca_src, nats_server_tls_new_cert_src, nats_server_tls_new_key_src and"
    " nats_server_tls_bundle_src",
}


@dataclass(frozen=True)
class Certificate:
    """A certificate: its subject, its expiry (ISO 8601) and its SHA-256 fingerprint."""

    subject: str
    not_after: str
    sha256: str


@dataclass(frozen=True)
class HostCertificates:
    """The current and the planned files of one host. Authorities are given as SHA-256 fingerprints.

    `trusted`: the authorities in ca.crt on the host.
    `presented`: the certificate in server.crt on the host.
    `current_ca`: the authorities of the inventory.
    `new_ca`: the authorities that replace them; empty until they are created.
    `new_certificate`: the certificate of the new authority; None until it is created.
    `source`: nats_server_tls_source.
    `rotating`: whether the inventory names a new authority.
    `running`: whether nats-server is running.
    `recorded`: whether there is a record of its loaded configuration.
    `unloaded`: whether the files are newer than those that the process loaded.
    `differs`: whether the files of the inventory differ from those on the host.
    `certificate_path`: the host's future certificate on the controller.
    `problems`: why the host cannot present that certificate.
    `missing`: files of the new authority that the controller does not have, by variable.
    `bundle_complete`: whether the bundle has all authorities, old and new.
    `issued_by_new_ca`: whether the new authority issued the new certificate.
    `same_ca`: whether the installed and the current files trust each other.
    `api_certificate_trusted`: whether the new authority trusts the certificate with which the playbook connects.
    """

    trusted: Sequence[Certificate]
    presented: Certificate | None
    current_ca: Sequence[str]
    new_ca: Sequence[str] = ()
    new_certificate: str | None = None
    source: str = "ca"
    rotating: bool = False
    running: bool = True
    recorded: bool = True
    unloaded: bool = False
    differs: bool = False
    certificate_path: str = ""
    problems: Sequence[str] = ()
    missing: Mapping[str, str] | None = None
    bundle_complete: bool = True
    issued_by_new_ca: bool = True
    same_ca: bool = True
    api_certificate_trusted: bool = True

    @property
    def has_files(self) -> bool:
        """Return whether the host has any certificates."""
        return bool(self.trusted) and self.presented is not None

    @property
    def _trusted(self) -> set[str]:
        return {certificate.sha256 for certificate in self.trusted}

    @property
    def trusts_current(self) -> bool:
        """Return whether the host trusts every authority that will be removed."""
        going = set(self.current_ca) - set(self.new_ca)
        return bool(going) and going <= self._trusted

    @property
    def trusts_new(self) -> bool:
        """Return whether the host trusts every new authority."""
        return bool(self.new_ca) and set(self.new_ca) <= self._trusted

    @property
    def trusts_neither(self) -> bool:
        """Return whether the host trusts only other authorities."""
        return bool(self.trusted) and not self._trusted & {*self.current_ca, *self.new_ca}

    @property
    def presents_new(self) -> bool:
        """Return whether the host presents the certificate of the new authority."""
        return self.presented is not None and self.presented.sha256 == self.new_certificate


@dataclass(frozen=True)
class CertificateOptions:
    """The operator's options.

    `cluster`: the cluster's name, for messages.
    `missing_hosts`: hosts of the cluster that are not part of the run.
    `stop_after`: the last step of this run, or `auto` for all. `renew` refuses a change of the authority.
    `clients_use_tls`: whether clients connect with TLS, and therefore must trust the servers' certificates.
    `check_mode`: whether the files that a real run would create do not exist yet.
    `controller_expires`: when the certificate with which the playbook connects expires; empty without one.
    """

    cluster: str = ""
    missing_hosts: Sequence[str] = ()
    stop_after: str = "auto"
    clients_use_tls: bool = False
    check_mode: bool = False
    controller_expires: str = ""


def certificate_rotation(hosts: Mapping[str, HostCertificates], options: CertificateOptions) -> dict[str, Any]:
    """Return the plan of a run for the certificates of a cluster.

    `refusals`: the reasons not to start. `refusal`: as many of these reasons as fit a screen. `steps`: the steps in
    order. `left`: all steps until the rotation is complete, even if this run stops earlier. `expiry`, `lines`: the
    certificates' expiry and the plan, for operators. `hosts`: for each host and step, the `ca` (`current`, `both` or
    `new`) and the `certificate` (`current` or `new`) of the host. The step `keep` leaves each host unchanged. `batches`:
    see `step_batches`. `predicts_change`: whether this is check mode and a real run would take a step.
    """
    left = remaining_steps(list(hosts.values()))
    last = ORDER[-1] if options.stop_after == "auto" else options.stop_after
    steps = ["reload"] if any(host.unloaded for host in hosts.values()) else []
    steps += [step for step in left if ORDER.index(step) <= ORDER.index(last)]
    refusals = list(_refusals(hosts, options, steps, left))
    return {
        "refusals": refusals,
        "refusal": listed(refusals),
        "steps": steps,
        "left": left,
        "expiry": _expiry(hosts, options.controller_expires),
        "lines": [_STEP_LINES[step] for step in steps] or [_nothing_to_do(hosts, options, left)],
        "hosts": {
            name: {step: files_after(step, host, list(hosts.values())) for step in ("keep", "reload", *ORDER[1:])}
            for name, host in hosts.items()
        },
        "batches": step_batches(steps, list(hosts)),
        "predicts_change": options.check_mode and bool(steps),
    }


def step_batches(steps: Sequence[str], hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the batches of a run as documents. Each step changes the hosts one by one, so every server trusts the new
    authority before any step after trust_new_ca begins."""
    return number_batches(
        [
            RotationBatch(
                step,
                [host],
                "install_certificates",
                tls_step=step,
                issues_client_certificate=step in ("new_certificates", "remove_old_ca") and host == hosts[0],
            ).numbered(number, len(steps))
            for number, step in enumerate(steps, 1)
            for host in hosts
        ]
    )


def remaining_steps(hosts: Sequence[HostCertificates]) -> list[str]:
    """Return the remaining steps of the hosts, in order; every host takes part in each step."""
    if not any(host.rotating for host in hosts):
        return ["renew"] if any(host.differs for host in hosts) else []
    steps = []
    old_certificates = not all(host.presents_new for host in hosts)
    if not all(host.trusts_new for host in hosts) or (
        old_certificates and not all(host.trusts_current for host in hosts)
    ):
        steps.append("trust_new_ca")
    if old_certificates:
        steps.append("new_certificates")
    if steps or any(host.trusts_current for host in hosts):
        steps.append("remove_old_ca")
    return steps


def files_after(step: str, host: HostCertificates, hosts: Sequence[HostCertificates]) -> dict[str, str]:
    """Return the authorities and the certificate of a host after a step.

    A step outside the rotation changes nothing; a host without files gets a certificate that all other hosts accept,
    and trusts the certificates of all other hosts.
    """
    if step == "trust_new_ca":
        return {"ca": "both", "certificate": "new" if host.presents_new else "current"}
    if step in ("new_certificates", "remove_old_ca"):
        return {"ca": "new" if step == "remove_old_ca" else "both", "certificate": "new"}
    if not host.has_files:
        others = [other for other in hosts if other.has_files]
        accepted = bool(others) and all(other.trusts_new for other in others)
        return {
            "ca": "both" if any(other.trusts_new for other in others) else "current",
            "certificate": "new" if accepted else "current",
        }
    ca = "both" if host.trusts_new and host.trusts_current else "new" if host.trusts_new else "current"
    return {"ca": ca, "certificate": "new" if host.presents_new else "current"}


# --- For people -------------------------------------------------------------------------------------------------------


def _expiry(hosts: Mapping[str, HostCertificates], controller_expires: str) -> list[str]:
    """Return the expiry of the certificates of each host and of the controller, and of each authority that a host
    trusts."""
    lines = [
        f"{name}: the certificate expires {host.presented.not_after}" for name, host in hosts.items() if host.presented
    ]
    if controller_expires:
        lines.append(f"controller: the client certificate expires {controller_expires}")
    for authority in dict.fromkeys(certificate for host in hosts.values() for certificate in host.trusted):
        names = ", ".join(name for name, host in hosts.items() if authority in host.trusted)
        lines.append(f"{authority.subject} ({authority.sha256[:8]}) expires {authority.not_after}; trusted by {names}")
    return lines


def _nothing_to_do(hosts: Mapping[str, HostCertificates], options: CertificateOptions, left: Sequence[str]) -> str:
    if left:
        return (
            f"There is nothing to do up to nats_cluster_rotate_stop_after={options.stop_after}. Remaining: "
            f"{', '.join(left)}."
        )
    source = next((host.source for host in hosts.values() if host.rotating), None)
    if source is None:
        return "There is nothing to do."
    return (
        f"There is nothing to do: every host has the new authority. Make it the authority of the inventory: set"
        f" {_CURRENT_VARIABLES[source]} to the values of {_NEW_VARIABLES[source]}, which you then remove."
    )


# --- Refusals ---------------------------------------------------------------------------------------------------------


def _refusals(
    hosts: Mapping[str, HostCertificates], options: CertificateOptions, steps: Sequence[str], left: Sequence[str]
) -> Iterator[str]:
    """Yield every reason not to start, as a complete sentence."""
    if options.missing_hosts:
        yield (
            f"All servers of {options.cluster} must take part: run without --limit and job slicing."
            f" Missing: {', '.join(options.missing_hosts)}."
        )
    yield from _state_refusals(hosts)
    if left:
        yield from _file_refusals(hosts)
    yield from _rotation_refusals(hosts, options, steps, left)
    foreign = [
        name
        for name, host in hosts.items()
        if "renew" in left
        and host.presented is not None
        and (host.source == "files" or not options.check_mode)
        and not host.same_ca
    ]
    if foreign:
        yield (
            f"The certificates for {', '.join(foreign)} come from an authority that the hosts do not trust, and would "
            "break the"
            f" routes. Rotate the authority with {_NEW_VARIABLES[hosts[foreign[0]].source]}, and keep the variables of "
            "the old"
            " one unchanged."
        )


def _state_refusals(hosts: Mapping[str, HostCertificates]) -> Iterator[str]:
    stopped = [name for name, host in hosts.items() if not host.running]
    if stopped:
        yield f"nats-server is not running on {', '.join(stopped)}: start it, or remove it from the cluster."
    unknown = [name for name, host in hosts.items() if host.running and not host.recorded]
    if unknown:
        yield (
            f"No record exists of the configuration that nats-server has loaded on {', '.join(unknown)}: run the "
            "playbook deploy"
            " first."
        )
    empty = [name for name, host in hosts.items() if host.presented is None]
    if empty:
        yield f"There is no certificate yet on {', '.join(empty)}: run the playbook deploy first."
    foreign = [
        name for name, host in hosts.items() if host.rotating and host.presented is not None and host.trusts_neither
    ]
    if foreign:
        yield f"Neither the old nor the new authority of the inventory is trusted on {', '.join(foreign)}."


def _file_refusals(hosts: Mapping[str, HostCertificates]) -> Iterator[str]:
    """Yield the problems of the files that the operator supplied."""
    supplied = {name: host for name, host in hosts.items() if host.source == "files"}
    for name, host in supplied.items():
        for problem in host.problems:
            yield f"{name} cannot present {host.certificate_path}: {problem}."
    rotating = {name: host for name, host in supplied.items() if host.rotating}
    missing = {
        f"{variable} ({path})" if path else variable
        for host in rotating.values()
        for variable, path in (host.missing or {}).items()
    }
    if missing:
        yield f"These files are missing: {', '.join(sorted(missing))}."
    complete = {name: host for name, host in rotating.items() if not host.missing}
    if not all(host.bundle_complete for host in complete.values()):
        yield (
            "The bundle nats_server_tls_bundle_src does not contain every certificate of nats_server_tls_ca_src and"
            " nats_server_tls_new_ca_src."
        )
    for host in complete.values():
        if not host.issued_by_new_ca:
            yield f"{host.certificate_path} was not issued by an authority in nats_server_tls_new_ca_src."


def _rotation_refusals(
    hosts: Mapping[str, HostCertificates], options: CertificateOptions, steps: Sequence[str], left: Sequence[str]
) -> Iterator[str]:
    if "remove_old_ca" in steps and not all(host.api_certificate_trusted for host in hosts.values()):
        yield (
            "Without the old authority the servers reject nats_server_api_tls_cert_file, which this playbook uses to "
            "connect."
            " Set it to a certificate from the new authority."
        )
    source = next((host.source for host in hosts.values() if host.rotating), None)
    if source is not None and options.stop_after == "renew":
        yield (
            f"The inventory names a new authority ({_NEW_VARIABLES[source]}), and nats_cluster_rotate_stop_after=renew"
            " never changes the authority. Complete the change with the steps trust_new_ca, new_certificates and"
            f" remove_old_ca, set {_CURRENT_VARIABLES[source]} to the new values, and unset the variables of the new"
            " authority. Until then no certificate is renewed."
        )
    if source is not None and left and options.clients_use_tls and options.stop_after == "auto":
        yield (
            "Clients use TLS: they must trust the new authority before the servers present its certificates. Run with"
            " nats_cluster_rotate_stop_after=trust_new_ca, give the new authority to the clients, run with"
            " nats_cluster_rotate_stop_after=new_certificates, and with nats_cluster_rotate_stop_after=remove_old_ca when no"
            " client presents a certificate from the old one. If the clients are ready for all steps, set"
            " nats_cluster_rotate_stop_after=remove_old_ca right away."
        )
