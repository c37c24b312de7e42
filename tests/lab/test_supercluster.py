# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supercluster of three clusters with three hosts each, every cluster in its own site, 20 to 80 ms from the others;
every test leaves it healthy. A fourth site is added and removed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import nats.js.errors
import pytest
from nats.js.api import StreamConfig, StreamInfo
from support.controller import Controller, Run, file_install
from support.lab_cluster import Cluster
from support.load import Load, patiently
from support.quorum_watch import META, watching

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("intact_cluster")]

SITES = ["east", "central", "west"]
MIRROR = Path(__file__).parents[2] / "docs" / "examples" / "mirror.yml"
#: The one-way delay of each link, in seconds.
DELAYS = {
    ("east", "central"): 0.02,
    ("central", "west"): 0.04,
    ("east", "west"): 0.08,
    ("east", "north"): 0.03,
    ("central", "north"): 0.03,
    ("west", "north"): 0.05,
}


def password(site: str) -> str:
    """Return the password of the user of a site's account; user and site have the same name."""
    return f"{site} pass"


class Supercluster(Cluster):
    """The supercluster; each site has an account with the same name, which has a stream of three replicas."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.host_variables = {}
        for site in SITES:
            self.add(site)
        del self.variables["nats_server_cluster_name"]
        self.variables["nats_server_gateway_authorization"] = {"user": "gateway", "password": "p@ss#1"}
        self.variables["nats_server_accounts"] = {
            site: {"jetstream": True, "users": [{"user": site, "password": password(site)}]}
            for site in controller.lab.sites
        }

    def add(self, site: str) -> None:
        """Add a site's hosts to the inventory."""
        self.groups[site] = self.controller.lab.sites[site]
        self.host_variables |= {host: {} for host in self.groups[site]}
        self.variables["nats_server_supercluster_groups"] = list(self.groups)

    def remove(self, site: str) -> None:
        """Remove a site's hosts from the inventory."""
        for host in self.groups.pop(site):
            del self.host_variables[host]
        self.variables["nats_server_supercluster_groups"] = list(self.groups)

    def restore(self) -> None:
        for pair, delay in DELAYS.items():
            self.controller.lab.link(*pair, delay)
        super().restore()

    @contextmanager
    def loads(self, *sites: str) -> Iterator[dict[str, Load]]:
        """Run a load on the stream of each of these sites, from clients in the same site."""
        with ExitStack() as stack:
            yield {
                site: stack.enter_context(
                    self.load(*self.groups[site], user=site, password=password(site), streams=[site.upper()])
                )
                for site in sites
            }

    async def store(self, site: str, stream: str, near: str, replicas: int) -> StreamInfo:
        """Store a message in a stream of a site's account, as a client of a server in the site ``near``; the stream is
        created if it is missing. Return the stream."""
        async with self.client(*self.groups[near], user=site, password=password(site)) as client:
            jetstream = client.jetstream(timeout=5)
            config = StreamConfig(name=stream, subjects=[f"{stream.lower()}.>"], num_replicas=replicas)

            async def make() -> None:
                try:
                    await jetstream.stream_info(stream)
                except nats.js.errors.NotFoundError:
                    await jetstream.add_stream(config)

            await patiently(make)
            await patiently(lambda: jetstream.publish(f"{stream.lower()}.x", b"stored"))
            return await patiently(lambda: jetstream.stream_info(stream))

    def stored(self, site: str, stream: str, near: str, replicas: int = 3) -> StreamInfo:
        return self.controller.run(self.store(site, stream, near, replicas), timeout=120)

    def mirror(self) -> dict[str, Any]:
        """Return the mirror from the guide's example, as its clients in west see it."""

        async def ask() -> dict[str, Any]:
            async with self.client(*self.groups["west"], user="east", password=password("east")) as client:
                reply = await client.request("$JS.API.STREAM.INFO.ORDERS_WEST", b"", timeout=5)
                return dict(json.loads(reply.data))

        return self.controller.run(ask())

    def watch(self, folder: Path) -> AbstractContextManager[list[dict[str, Any]]]:
        """Watch the quorums inside the context; afterwards the list contains the samples."""
        servers = {host: self.urls(host)[0] for host in self.hosts}
        return watching(
            servers, "sys", self.variables["nats_server_system_password"], folder, self.controller.lab.inside
        )


def until(holds: Callable[[], bool], otherwise: str, deadline: float = 60) -> None:
    end = time.monotonic() + deadline
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(1)


def members(info: StreamInfo) -> set[str]:
    """Return the servers that have a replica of a stream."""
    assert info.cluster
    return {str(info.cluster.leader), *(str(peer.name) for peer in info.cluster.replicas or ())}


def most_away(samples: list[dict[str, Any]], group: str) -> int:
    """Return how many members of a group were unavailable at the same time."""
    return max(len(sample["away"].get(group, ())) for sample in samples)


def told(run: Run) -> str:
    """Return a run's output without its line breaks."""
    return re.sub(r"\s+", " ", run.output)


@pytest.fixture(scope="module")
def cluster(site_controller: Controller) -> Iterator[Supercluster]:
    """The deployed supercluster."""
    lab = site_controller.lab
    lab.renew()
    assert {frozenset(pair) for pair in DELAYS} == {frozenset(pair) for pair in combinations(lab.sites, 2)}
    for pair, delay in DELAYS.items():
        lab.link(*pair, delay)
    made = Supercluster(site_controller)
    run = made.deploy()
    assert run.status == 0, run.output
    yield made


def test_deployed_from_nothing(cluster: Supercluster) -> None:
    """The nine servers form one meta group; each stream is in the cluster to which its client is connected."""
    run = cluster.deploy()
    assert (run.status, run.changed) == (0, []), run.output
    for site in SITES:
        assert members(cluster.stored(site, f"{site.upper()}_FIRST", near=site)) == set(cluster.groups[site])
    report = told(cluster.play("report"))
    assert "5 of 9 make a quorum" in report
    assert "No problems found." in report


def test_an_upgrade_in_batches_leaves_every_quorum_alone(cluster: Supercluster, tmp_path: Path) -> None:
    """Several servers restart at once: at most one member of each stream, and at most three of the nine members of the
    meta group, which could lose four."""
    before = cluster.pids()
    cluster.variables.update(file_install("2.15.1"))
    with cluster.watch(tmp_path) as samples, cluster.loads(*SITES):
        began = time.monotonic()
        run = cluster.play(
            "upgrade",
            nats_server_allow_skipped_minors=True,
            nats_cluster_batch="quorum",
            nats_cluster_max_parallel=0,
        )
        took = time.monotonic() - began
    assert run.status == 0, run.output
    assert cluster.restarted(before) == set(cluster.hosts)
    assert {cluster.varz(host)["version"] for host in cluster.hosts} == {"2.15.1"}
    batches = {int(number) for number, _all in re.findall(r"batch (\d+) of (\d+)", told(run))}
    assert len(batches) < len(cluster.hosts)
    streams = set(samples[-1]["away"]) - {META}
    assert streams >= {f"{site}/{site.upper()}" for site in SITES}
    assert {most_away(samples, stream) for stream in streams} == {1}
    assert 1 < most_away(samples, META) <= 3
    assert len(samples) > 2 * took
    print(f"{len(batches)} batches in {took:.0f} s, {len(samples)} samples")


def test_lost_site_is_named_and_the_others_continue(cluster: Supercluster, tmp_path: Path) -> None:
    """The lost site leads the meta group. The data of a lost site is available again when the site returns."""
    lost = host_site(cluster, meta_leader(cluster))
    left = [site for site in SITES if site != lost]
    first = {site: cluster.stored(site, f"{site.upper()}_FIRST", near=site).state.messages for site in SITES}
    with cluster.watch(tmp_path) as samples, cluster.loads(*left) as loads:
        for host in cluster.groups[lost]:
            cluster.controller.lab.kill(host)
        made = cluster.stored(left[0], f"WITHOUT_{lost.upper()}", near=left[1])
        assert members(made) == set(cluster.groups[left[1]])
        stored = {site: load.report().acknowledged for site, load in loads.items()}

        until(
            lambda: meta_leader(cluster) not in cluster.groups[lost],
            "the meta leader is still reported in the lost cluster",
        )
        gate = "\n".join(cluster.health().errors)
        report = told(cluster.play("report"))
        restart = cluster.play("restart", limit=cluster.groups[left[0]][0], nats_cluster_gate_timeout=15)
        assert restart.status != 0
        for host in cluster.groups[lost]:
            for text in (gate, report, told(restart)):
                assert host in text, text
        assert not [site for site in left if f"{site}/{site.upper()}" in gate], gate
        assert all(load.report().acknowledged > stored[site] for site, load in loads.items())
    assert most_away(samples, f"{lost}/{lost.upper()}") == 3
    assert samples[-1]["away"][META] == cluster.groups[lost]
    assert {most_away(samples, f"{site}/{site.upper()}") for site in left} == {0}

    cluster.restore()
    for site in SITES:
        assert cluster.stored(site, f"{site.upper()}_FIRST", near=left[0]).state.messages == first[site] + 1


def meta_leader(cluster: Supercluster) -> str:
    """Return the leader of the meta group as reported by a running server."""
    running = next(host for host in cluster.hosts if cluster.controller.lab.is_running(host))
    return str(cluster.varz(running)["jetstream"]["meta"].get("leader", ""))


def host_site(cluster: Supercluster, host: str) -> str:
    return next(site for site, hosts in cluster.groups.items() if host in hosts)


def test_two_sites_that_do_not_reach_each_other(cluster: Supercluster) -> None:
    """Each cluster continues, and the meta group elects a leader that all members can reach, no matter which server led
    it before.

    The gate reports the fault from both sites; from the third site it reports the servers without a gateway connection.
    """
    connection = {"servers": cluster.urls(*cluster.groups["east"]), "user": "east", "password": password("east")}
    run = cluster.controller.playbook(MIRROR, extra_vars={"nats_connection": connection})
    assert run.status == 0, run.output
    system = {"servers": cluster.urls(), "user": "sys", "password": cluster.variables["nats_server_system_password"]}
    run = cluster.controller.module("nats_meta_stepdown", {**system, "placement": {"cluster": "east"}})
    assert run.status == 0, run.output

    def missing_from(site: str) -> set[str]:
        errors = "\n".join(cluster.health(f"servers={','.join(cluster.urls(*cluster.groups[site]))}").errors)
        return {host for host in cluster.hosts if host in errors}

    with cluster.loads(*SITES):
        cluster.controller.lab.link("east", "west", None)
        until(
            lambda: meta_leader(cluster) in cluster.groups["central"],
            "not all servers report the same meta leader",
            120,
        )
        for site in SITES:
            assert members(cluster.stored(site, f"{site.upper()}_ALONE", near=site)) == set(cluster.groups[site])
        before = cluster.mirror()["state"]["messages"]
        origin = cluster.stored("east", "ORDERS", near="east").state.messages
        for site, other in (("east", "west"), ("west", "east")):
            assert missing_from(site) >= set(cluster.groups[other])
        cut_off = {*cluster.groups["east"], *cluster.groups["west"]}
        until(lambda: missing_from("central") == cut_off, "central's gate does not report the servers cut off from it")
        assert cluster.mirror()["state"]["messages"] == before < origin
        central = {**system, "servers": cluster.urls(*cluster.groups["central"])}
        diagnosis = told(cluster.play("diagnose", extra_vars={"nats_connection": central}))
        for site, other in (("east", "west"), ("west", "east")):
            assert all(f"{host} has no gateway connection to {other}" in diagnosis for host in cluster.groups[site]), (
                diagnosis
            )

        cluster.restore()
        until(lambda: cluster.mirror()["state"]["messages"] == origin, "the mirror does not catch up")
    assert cluster.mirror()["mirror"]["lag"] == 0


def test_fourth_site_is_added_and_removed(cluster: Supercluster) -> None:
    """The site has one server, whose clients have a stream near them. The other sites get new gateways, on several
    servers at the same time."""
    batches: dict[str, Any] = {"nats_cluster_batch": "quorum", "nats_cluster_max_parallel": 0}
    cluster.add("north")
    with cluster.loads(*SITES):
        run = cluster.play("scale_out", **batches)
        assert run.status == 0, run.output
        assert "10 JetStream servers need 6 for a quorum" in told(run)
        cluster.wait_until_healthy()
        assert members(cluster.stored("north", "NORTH", near="north", replicas=1)) == {"n1"}

        leaving: dict[str, Any] = {"nats_server_cluster_leaving": ["n1"], "nats_server_remove_data": True}
        refused = cluster.play("scale_in", **leaving)
        assert refused.status != 0
        assert "stream north/NORTH on n1 (R1 on n1)" in told(refused)
        application = {"servers": cluster.urls(), "user": "north", "password": password("north")}
        moved = cluster.controller.module(
            "nats_stream", {**application, "stream": "NORTH", "placement": {"cluster": "east"}}
        )
        assert moved.status == 0, moved.output
        run = cluster.play("scale_in", **leaving, **batches)
        assert run.status == 0, run.output
    cluster.remove("north")
    cluster.wait_until_healthy()
    assert cluster.stored("north", "NORTH", near="west").state.messages == 2
