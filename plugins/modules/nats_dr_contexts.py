#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_dr_contexts
short_description: Point contexts of the nats command at the serving side
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - After M(natsops.jetstream.nats_dr_failover), changes contexts of the origin to the addresses of the site, and
    restores them after M(natsops.jetstream.nats_dr_failback).
  - The original context is saved in the file C(<name>.json.before_failover) in the same directory, from which the
    context can be restored. Users, passwords and certificates of a context are kept, and must be valid on both sides.
  - Only the roles of this collection need this module; its options may change in any release.
attributes:
  check_mode:
    description: Can run in check mode, and returns which contexts would change.
    support: full
  diff_mode:
    description: Returns the addresses of each context that changes.
    support: full
  idempotent:
    description: A second run with the same options changes nothing.
    support: full
  platform:
    description: Operating systems on which the module runs.
    platforms: posix
    support: full
options:
  directory:
    description:
      - Directory of the contexts, such as C(~/.config/nats/context). If it does not exist, nothing is done.
    type: path
    required: true
  origin:
    description:
      - The side on which the streams are written.
    type: dict
    required: true
    suboptions: &side
      name:
        description: Name of the side.
        type: str
        required: true
      servers:
        description: Addresses of the side's servers.
        type: list
        elements: str
        required: true
      jetstream_domain:
        description: The side's JetStream domain.
        type: str
  site:
    description:
      - The side with the copies.
    type: dict
    required: true
    suboptions: *side
  serving:
    description:
      - The side that serves the streams.
    type: str
    choices: [origin, site]
    required: true
  contexts:
    description:
      - Names of the contexts to change. Defaults to all contexts that contain only addresses of the origin.
    type: list
    elements: str
  left_alone:
    description:
      - Users whose contexts are left unchanged, such as the system user, unless O(contexts) names these contexts. A
        context with an nkey or credentials has no user; such a context is left unchanged if its name ends with one of
        these users, as in C(c1-sys).
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_dr_failover
  - module: natsops.jetstream.nats_dr_failback
"""

EXAMPLES = r"""
- name: Point the contexts at west
  natsops.jetstream.nats_dr_contexts:
    directory: ~/.config/nats/context
    origin: {name: east, servers: [nats://n1.east.example.com:4222]}
    site: {name: west, servers: [nats://n1.west.example.com:4222]}
    serving: site
    left_alone: [sys]
  delegate_to: localhost
"""

RETURN = r"""
contexts:
  description: The names of the contexts that changed.
  returned: success
  type: list
  elements: str
  sample: [east-app]
"""

import json
from pathlib import Path
from typing import Any, Optional

from ..module_utils.collection_module import CollectionModule, run
from ..module_utils.host.contexts import (
    SAVED,
    ContextSide,
    Switch,
    content_text,
    may_follow,
    points_at,
    to_origin,
    to_site,
)
from ..module_utils.host.files import FilesError, ManagedFile, replace_all
from ..module_utils.module import without_connection
from ..module_utils.nats.client import NatsFailure

_SIDE_SPEC: dict[str, Any] = {
    "type": "dict",
    "required": True,
    "options": {
        "name": {"type": "str", "required": True},
        "servers": {"type": "list", "elements": "str", "required": True},
        "jetstream_domain": {"type": "str"},
    },
}


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option, write_failed."""
    params = module.params
    origin, site = (
        ContextSide(one["name"], tuple(one["servers"]), one["jetstream_domain"] or None)
        for one in (params["origin"], params["site"])
    )
    if not origin.servers or not site.servers:
        raise NatsFailure("invalid_option", "servers: each side needs its own addresses")
    changed, before, after, files = [], {}, {}, []
    for path in _paths(Path(params["directory"]), params["contexts"]):
        context, saved = _read(path), _read(_saved(path), missing=True)
        if context is None:
            continue
        if params["contexts"] is None:
            if not may_follow(path.stem, context, saved, origin, params["left_alone"]):
                continue
        elif saved is None and not points_at(context, origin) and params["serving"] == "site":
            raise NatsFailure(
                "invalid_option", f"contexts: {path.stem} does not point at {origin.name}, but at {_url(context)}"
            )
        made = to_site(context, saved, origin, site) if params["serving"] == "site" else to_origin(context, saved, site)
        if (made.context, made.saved) == (context, saved):
            continue
        files += _files(path, made)
        changed.append(path.stem)
        before[path.stem], after[path.stem] = _url(context), _url(made.context)
    if not module.check_mode:
        try:
            replace_all(files)
        except FilesError as error:
            raise NatsFailure("write_failed", str(error)) from error
    result: dict[str, Any] = {"changed": bool(changed), "contexts": changed}
    return {**result, "diff": {"before": before, "after": after}} if module._diff else result


def _paths(directory: Path, names: Optional[list[str]]) -> list[Path]:
    if names is None:
        return sorted(directory.glob("*.json"))
    paths = [directory / f"{name}.json" for name in names]
    missing = [path.stem for path in paths if not path.is_file()]
    if missing:
        raise NatsFailure("invalid_option", f"contexts: not in {directory}: {', '.join(missing)}")
    return paths


def _saved(path: Path) -> Path:
    return path.with_name(path.name + SAVED)


def _read(path: Path, missing: bool = False) -> Optional[dict[str, Any]]:
    """Return the JSON object in a file. Returns None if the file is missing, or if a context's file contains anything
    else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NatsFailure("invalid_option", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        if not missing:
            return None  # not a context of the nats command
        raise NatsFailure("invalid_option", f"{path} is not JSON: {error}") from error
    return found if isinstance(found, dict) else None


def _url(context: dict[str, Any]) -> str:
    """Return the addresses of a context without credentials."""
    urls = str(context.get("url") or "").split(",")
    return ",".join(
        f"{url.rpartition('://')[0] or 'nats'}://{url.rpartition('://')[2].rpartition('@')[2]}" for url in urls
    )


def _files(path: Path, made: Switch) -> list[ManagedFile]:
    """Return the context and its saved copy in the order of writing: the copy first when switching to the site, last
    when switching back."""
    context = ManagedFile(str(path), 0o600, content=content_text(made.context).encode())
    if made.saved is not None:
        return [ManagedFile(str(_saved(path)), 0o600, content=content_text(made.saved).encode()), context]
    return [context, ManagedFile(str(_saved(path)), 0, content=None)] if _saved(path).exists() else [context]


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "origin": _SIDE_SPEC,
            "site": _SIDE_SPEC,
            "serving": {"type": "str", "choices": ["origin", "site"], "required": True},
            "contexts": {"type": "list", "elements": "str"},
            "left_alone": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    run(module, without_connection, ensure)


if __name__ == "__main__":
    main()
