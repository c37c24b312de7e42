# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  s3:
    description:
      - How to reach object storage, if the backups are in C(s3://BUCKET) or C(s3://BUCKET/PREFIX). Needs boto3.
    type: dict
    suboptions:
      endpoint_url:
        description: Address of a server other than AWS, such as V(https://s3.example.com).
        type: str
      region:
        description: Region of the bucket. Defaults to the region in boto3's configuration, or V(us-east-1).
        type: str
      access_key:
        description: Access key. By default, boto3 takes the credentials from the environment, C(~/.aws), or the host's
          role.
        type: str
      secret_key:
        description: Secret key that belongs to O(s3.access_key).
        type: str
      session_token:
        description: Session token of temporary credentials.
        type: str
      ca_file:
        description: CA certificates to verify the server's certificate. Defaults to the CA certificates of the system
          or of boto3.
        type: path
      addressing_style:
        description: Whether the bucket is in the path or in the host name. With V(auto), boto3 determines the style.
        type: str
        choices: [auto, path, virtual]
        default: auto
"""
