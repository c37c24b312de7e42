# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that users write in YAML. Pure. All errors are reported at once, each with the path of its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

#: The marks of a document of assets in the metadata of its streams and consumers.
MANAGER, MARK_MANAGER = "natsops", "managed-by"
MARK_DOCUMENT, MARK_HASH = "natsops.document", "natsops.hash"
MARKS = (MARK_MANAGER, MARK_DOCUMENT, MARK_HASH)


class InvalidDocument(ValueError):
    """A document with errors. `problems`: the errors, each with the path of its key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))


def load_yaml(text: str) -> Any:
    """Return a parsed YAML text. Raises InvalidDocument, also for a duplicate key, because YAML would silently use its
    last value."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Rejects a mapping with two equal keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _value in node.value:
                key = self.construct_object(key_node, deep=True)
                if isinstance(key, (str, int, float, bool)):
                    if key in seen:
                        raise InvalidDocument([f"line {key_node.start_mark.line + 1}: {str(key)[:60]} is given twice"])
                    seen.add(key)
            return super().construct_mapping(node, deep)

    try:
        # The loader is a SafeLoader.
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise InvalidDocument([f"{place}not YAML: {getattr(error, 'problem', None) or error}"]) from error


def dump_yaml(content: Mapping[str, Any]) -> str:
    """Return a document as YAML that `load_yaml` reads as the same content. Innermost lists and mappings take one line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Repeats equal values instead of using YAML aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        # PyYAML reads these line breaks as a space unless they are escaped.
        style = '"' if any(one in value for one in "\x85\u2028\u2029") else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return str(yaml.dump(dict(content), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))


def unknown_key(where: str, key: str, known: Iterable[str]) -> str:
    """Return the problem of a key that the document does not support, with the most similar key that it does."""
    similar = get_close_matches(key, list(known), 1)
    return f"{where}: unknown key" + (f"; did you mean {similar[0]}?" if similar else "")


def owning_document(metadata: Mapping[str, str]) -> str:
    """Return the document that owns an asset with this metadata, or "" if no document owns it."""
    return metadata.get(MARK_DOCUMENT, "") if metadata.get(MARK_MANAGER) == MANAGER else ""


def unmarked(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of an asset without the marks of its document."""
    return {key: value for key, value in metadata.items() if key not in MARKS}
