# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs every module through ansible-playbook, with its connection from module_defaults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.clean_output import clean
from support.nats_processes import ONE_VERSION, NatsProcesses, collections_path

pytestmark = pytest.mark.playbook

PLAY = """
- name: Use every module
  hosts: localhost
  gather_facts: false
  module_defaults:
    group/natsops.jetstream.nats: "{{ connection }}"
  tasks:
    - name: Wait until the cluster is healthy
      natsops.jetstream.nats_cluster_health:
        expected_servers: "{{ names }}"
        samples: "{{ 1 }}"
        span: "{{ 0 }}"
      register: health
    - name: Read the cluster
      natsops.jetstream.nats_cluster_info:
        detail: servers
      register: cluster
    - name: Gather facts
      natsops.jetstream.nats_cluster_facts:
    - name: Read a server
      natsops.jetstream.nats_server_info:
        server_names: [n1]
        endpoints: [varz, jsz]
        options:
          jsz:
            streams: "{{ true }}"
      register: server
    - name: Predict a reload
      natsops.jetstream.nats_server_reload:
        server_name: n1
      check_mode: true
      register: predicted
    - name: Reload a server
      natsops.jetstream.nats_server_reload:
        server_name: n1
      register: reloaded
    - name: Predict another meta leader
      natsops.jetstream.nats_meta_stepdown:
        force: true
      check_mode: true
      register: elected
    - name: Request a stop that the gate refuses
      natsops.jetstream.nats_cluster_health:
        stop_servers: "{{ names }}"
        wait: false
      register: refused
      failed_when: refused is not failed
    - name: Report the problems without failing
      natsops.jetstream.nats_check:
        fail_on: never
        checks:
          - connection: {}
          - meta:
              expect: "{{ names | length + 2 }}"
          - server:
              server_name: n1
              js_required: true
      register: report
    - name: Fail on the same
      natsops.jetstream.nats_check:
        checks:
          - meta:
              expect: "{{ names | length + 2 }}"
      register: checked
      failed_when: checked is not failed
    - name: Judge
      ansible.builtin.assert:
        that:
          - health.healthy
          - health is not changed
          - cluster.servers | map(attribute='name') | sort == names | sort
          - ansible_facts['nats_cluster'].meta.leader == health.meta_leader
          - server.servers | length == 1
          - server.servers[0].jsz.account_details | length > 0
          - predicted is changed
          - predicted.after.config_load_time == predicted.before.config_load_time
          - reloaded is changed
          - reloaded.after.config_load_time != reloaded.before.config_load_time
          - elected is changed
          - elected.before.leader == health.meta_leader
          - elected.after.leader != health.meta_leader
          - report is not changed
          - report.status == 'CRITICAL'
          - report.results | map(attribute='check') | list == ['connection', 'meta', 'server']
          - report.results[1].nagios is match('CRITICAL JetStream Meta Cluster Crit:3 peers of expected 5 ')
          - report.results[2].status == 'OK'
          - checked.failure.code == 'check_failed'
          - checked.results[0].reasons.critical == ['3 peers of expected 5']
          - refused.failure.code == 'unhealthy'
          - refused.problems | map(attribute='code') | unique | list == ['stop_breaks_quorum']
"""


@ONE_VERSION
def test_every_module_in_a_playbook(healthy: NatsProcesses, tmp_path: Path) -> None:
    playbook, variables = tmp_path / "play.yml", tmp_path / "vars.json"
    playbook.write_text(PLAY)
    variables.write_text(json.dumps({"connection": healthy.sys_connection(), "names": healthy.names}))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(playbook), "-e", f"@{variables}"]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
    }
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    clean(result.stdout + result.stderr)
    assert "sys-pass" not in result.stdout
