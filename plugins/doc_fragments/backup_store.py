# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  s3:
    description:
      - How object storage is reached where the place of the backups is C(s3://BUCKET) or C(s3://BUCKET/PREFIX). Needs boto3.
    type: dict
    suboptions:
      endpoint_url:
        description: Address of a server other than AWS, such as V(https://s3.example.com).
        type: str
      region:
        description: Region of the bucket, by default the one of boto3's configuration, or V(us-east-1).
        type: str
      access_key:
        description: Access key. By default the credentials are those of boto3, from the environment, C(~/.aws), or the host's
          role.
        type: str
      secret_key:
        description: Secret key of O(s3.access_key).
        type: str
      session_token:
        description: Session token of temporary credentials.
        type: str
      ca_file:
        description: CA certificates that the server's is verified by, by default the system's or those of boto3.
        type: path
      addressing_style:
        description: Whether the bucket is in the path or in the host's name. V(auto) is for boto3 to decide.
        type: str
        choices: [auto, path, virtual]
        default: auto
"""
