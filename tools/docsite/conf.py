# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sphinx settings for the site that `make docs` builds: the guides in docs/, unchanged, and the reference by
antsibull-docs.

The guides link to files in the repository. On the site, links to roles and plugins lead to the pages that
antsibull-docs generates for them, and links to files without a page lead to the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.application import Sphinx

CHECKOUT = Path(__file__).resolve().parents[2]
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())

project = "natsops.jetstream"
author = "natsops maintainers"
copyright = "2026, natsops maintainers"
version = release = GALAXY["version"]

extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme = "sphinx_ansible_theme"
html_title = html_short_title = "natsops.jetstream"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"display_version": True, "topbar_links": {"Repository": GALAXY["repository"]}}
pygments_style = "ansible"
default_role = "any"
highlight_language = "yaml"
nitpicky = True
ANSIBLE = "https://docs.ansible.com/ansible/latest/reference_appendices"
#: Pages of Ansible's documentation that are referenced by label.
APPENDICES = {
    "common_return_values": "common_return_values",
    "ansible_configuration_settings": "config",
    "action_plugins": "../plugins/action",
}
#: Pages of the reference in the repository, and the corresponding pages of the site.
PAGES = {
    **{
        f"reference/{name}.md": f"collection/{name}_role.rst"
        for name in ("nats_server", "nats_cluster", "nats_insights", "nats_program")
    },
    **{f"reference/{name}.md": "collection/index.rst" for name in ("modules", "filters", "lookups")},
    "reference/inventory.md": "collection/nats_cluster_inventory.rst",
    "reference/": "collection/index.rst",
    "README.md": "index.md",
}


def target(link: str, folder: str) -> str:
    """Return the target on the site for a link in a guide that is in this folder of docs/."""
    path, _hash, anchor = link.partition("#")
    if not path or "://" in path:
        return link
    # The path as seen from docs/; the site's guides are in its root.
    seen = str((Path("/docs") / folder / path).resolve()) + ("/" if path.endswith("/") else "")
    if not seen.startswith("/docs/"):
        return f"{GALAXY['repository']}/tree/main{seen}"
    inner = seen.removeprefix("/docs/")
    if not inner.endswith((".md", "/", ".svg", ".png")):
        return f"{GALAXY['repository']}/tree/main{seen}"
    if inner.startswith("reference/modules/"):
        return f"/collection/{Path(inner).stem}_module.rst"
    if inner in PAGES:
        return f"/{PAGES[inner]}"
    return f"/{inner}" + (f"#{anchor}" if anchor else "")


def lead(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change the links of a guide while it is read; code blocks have no links."""
    if docname.startswith("collection/"):
        return
    folder = str(Path(docname).parent)
    source[0] = re.sub(r"(?<=\]\()([^)\s]+)(?=\))", lambda found: target(found[1], folder), source[0])


def link_to_ansible(app: Sphinx, env: object, node: nodes.Element, content: nodes.Node) -> nodes.Node | None:
    """Resolve antsibull-docs' references to Ansible's own documentation, so the build needs no network."""
    kind, name = node["reftype"], node["reftarget"]
    if kind == "ref" and name in APPENDICES:
        return nodes.reference("", "", content, refuri=f"{ANSIBLE}/{APPENDICES[name]}.html", internal=False)
    if kind == "envvar" and name.startswith("ANSIBLE_"):
        return nodes.reference("", "", content, refuri=f"{ANSIBLE}/config.html#envvar-{name}", internal=False)
    return None


def setup(app: Sphinx) -> None:
    app.connect("source-read", lead)
    app.connect("missing-reference", link_to_ansible)
