# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the wording of everything that users and contributors read.

    python3 tools/words.py                 check; exit status 1 if something must be fixed
    python3 tools/words.py --list RULE     print every place that breaks a rule
    python3 tools/words.py --record        store the counts, where they have fallen

There are two checks. A word for which docs/glossary.md has the field's own term is rejected, even as part of an
identifier. The rules below find habits that make sentences hard to read. tools/words.json has the number of places for
each folder and rule; the check fails if a number has risen. Recently changed places are printed first.

The rules apply to docstrings, comments and texts in Python, to YAML, to Markdown and templates except their code, and
to the names of tests; tools/commit_message.py applies them to commit messages. `identifier` is the only rule for other
names.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs/glossary.md"
RECORD = ROOT / "tools/words.json"
PUBLISHED = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".github",
    "docs",
    "extensions",
    "playbooks",
    "plugins",
    "roles",
)
#: Only contributors read these files, so the glossary does not apply.
INTERNAL = ("tests", "tools", "changelogs/fragments", "Makefile")
#: The rules and their tests, third-party files, and files generated from other files, which are checked themselves.
GENERATED = (
    "docs/glossary.md",
    "docs/reference/",
    "extensions/prometheus/natsops.rules.yml",
    "tools/words.py",
    "tests/unit/packaging/test_words.py",
    "tests/support/replies/",
)
#: The kinds of files to which the rules apply.
KINDS = (".py", ".md", ".yml", ".yaml", ".j2", ".sh", ".toml", "Makefile")
#: Maximum number of places printed for a folder and a rule.
SHOWN = 3


@dataclass(frozen=True)
class Rule:
    """A habit, the pattern that finds it, and the remedy. `names`: whether the rule applies to identifiers instead of
    prose."""

    name: str
    pattern: str
    remedy: str
    names: bool = False


@dataclass(frozen=True)
class Place:
    """A place that breaks a rule."""

    path: str
    line: int
    text: str


RULES = (
    Rule(
        "return-what",
        r"\bReturns? (?:what|how(?! (?:many|much|long|often|far))|by which|of which)\b|^Be the\b",
        "name the value",
    ),
    Rule("what", r"\bwhat(?:ever)?\b(?![^.?!]*\?)(?! if\b)", "name the thing: 'the samples of an hour'"),
    Rule(
        "machine-verb",
        # A capital begins an imperative to a person.
        r"\b(?!(?-i:Say|Tell|Ask)\b)(?:tell|told|say|said|saying|ask|asked|asking|speak|spoke|hear|heard|know|knew|think|thought)s?\b",
        "a program reports, returns, queries, reads, rejects",
    ),
    Rule("nobody", r"\b(?:no|some|any|every)body\b|\b(?:who|whom)(?:so)?ever\b", "name the actor, or use the passive"),
    Rule(
        "of-which",
        r"\bof (?:which|whom|what|whose)\b|(?-i:(?:^|[.:!?] )Of )(?!course)",
        "put the noun first, with one 'of'",
    ),
    # The pattern excludes 'There is no stream', the set phrase for something that does not exist.
    Rule("is-no", r"(?<!there )\b(?:is|are|was|were) no\b(?! longer| more|$)", "write 'is not a'"),
    Rule(
        "connective",
        r"\b(?:meanwhile|beside|(?<!times )as long as|by then|in place of|so that|for that reason)\b",
        "while, until, next to, instead of, so",
    ),
    Rule(
        "cousin",
        r"\b(?:whole|shall|fitting|cure[sd]?|stands? (?:below|above|in|there))\b",
        "complete, must, suitable, fix, is listed",
    ),
    Rule("goes-on", r"\b(?:go|goes|going|went) on\b", "continue, resume"),
    Rule("look", r"\b(?:look|looks|looked|looking)\b(?! ?up)", "read, check, sample; 'looks like' is 'resembles'"),
    Rule("meant", r"\bmeant\b", "planned, selected, intended"),
    Rule("wanted", r"\b(?:want|wants|wanted|unwanted)\b", "desired, requested, expected, needed"),
    Rule("away", r"\b(?:is|are|was|were|be) away\b", "unavailable, stopped, unreachable"),
    Rule(
        "test-name",
        r"\btest_(?:(?:what|who|whom|that|whether|how|nobody|somebody|whoever|of)_\w+"
        r"|\w+_(?:no|some)body\w*|\w+_(?:what(?:ever)?|whoever|knows?|tells?|told|says?|said|asks?|asked|meanwhile|(?:is|are)_no)(?:_\w+)?)$",
        "name the subject first, then the behaviour in the terms of the field",
        True,
    ),
    Rule(
        "identifier",
        r"\b_*of_[a-z]\w*|\b_*[a-z]\w*[a-z]_of\b|\b_of\b|\b(?:Scene|Streaks|Patience|Trouble|Looks|Wanted[A-Z]\w*|give_back\w*)\b",
        "hourly_rows instead of of_hours, source_path instead of path_of, RestoreRequest instead of WantedRestore",
        True,
    ),
)

#: Correct wording that matches a pattern: the text, and the reason why it is correct.
EXCEPTIONS = {
    r"user(?:s)? nobody|nobody:nogroup|`nobody`": "the system's user",
    r"what-if|What's [Nn]ew": "set terms",
    r"WantedBy|Wants=|^Wants$|\.wants/|known_hosts|part_of|out_of|one_of|instance_of": "names of other programs",
    r"no_body|look ?up|looks? up": "a lookup",
    r"--ask-[a-z-]+": "options of ansible-playbook",
    r"whole-stage": "Spark's term for its code generation",
    r"slowest_rtt double, asked|asked boolean|array_contains\(asked|coalesce\(asked,|(?:hours|before)\.looks": "stored columns",
    r"^Spoke$|is_spoke": "the role of a leaf node",
}
_EXCEPTION = re.compile("|".join(EXCEPTIONS))
#: Most lines break no rule, and one combined search is cheaper than a search for each rule.
_ANY = {
    names: re.compile("|".join(f"(?:{rule.pattern})" for rule in RULES if rule.names == names), re.IGNORECASE)
    for names in (False, True)
}


def replaced_words(glossary: str) -> dict[str, str]:
    """Return the term for each word, from the rows `| concept | term | not |`."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in glossary.splitlines() if line.startswith("| ")
    ]
    return {word: row[1] for row in rows if len(row) == 3 for word in re.findall(r"`([^`]+)`", row[2])}


def found_in(text: str, terms: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Return the line number and the word for each use of one of the words."""
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, terms))})(?![a-z])", re.IGNORECASE)
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            yield number, match[0].lower()


def python_parts(source: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return the prose of a Python file (its comments and texts) and its identifiers, each with line numbers."""
    prose: list[tuple[int, str]] = []
    names: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            prose.append((token.start[0], re.sub(r"`[^`]*`", "``", token.string.lstrip("#: "))))
        elif token.type == tokenize.STRING:
            text = re.sub(r"""^[a-zA-Z]*("{3}|'{3}|"|')|("{3}|'{3}|"|')$""", "", token.string)
            if re.fullmatch(r"-{0,2}[a-z_]+", text):
                continue  # a name, such as that of a column or an option
            # The expressions in an f-string are code.
            if re.match("[rR]?[fF]", token.string):
                text = re.sub(r"{[^{}]*}", "{}", text)
            text = re.sub(r"`[^`\n]*`", "``", text)
            prose += [(number, line.strip()) for number, line in enumerate(text.splitlines(), token.start[0])]
        elif token.type == tokenize.NAME and ("_" in token.string or token.string[0].isupper()):
            names.append((token.start[0], token.string))
    return prose, names


def text_parts(path: str, source: str) -> list[tuple[int, str]]:
    """Return the prose of any other file with line numbers, without code, link targets and Jinja expressions. The prose
    of a shell script is its comments and quoted texts."""
    if path.endswith(".md"):
        source = re.sub(
            r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), source, flags=re.DOTALL | re.MULTILINE
        )
        source = re.sub(r"`[^`\n]*`", "``", source)
        source = re.sub(r"\]\([^)\s]*\)", "]()", source)
        # A heading may be an indirect question, such as "What a failure shows".
        source = re.sub(r"^(#+) What\b", r"\1", source, flags=re.MULTILINE)
    if path.endswith(".sh"):
        lines = source.splitlines()
        lines = [line if line.startswith("#") else " ".join(re.findall(r'"[^"]*"', line)) for line in lines]
        source = "\n".join(lines)
    source = re.sub(r"{[{%].*?[%}]}", lambda code: "\n" * code[0].count("\n"), source, flags=re.DOTALL)
    return [(number, line.strip().lstrip("#- ")) for number, line in enumerate(source.splitlines(), 1)]


def broken_in_message(message: str) -> list[str]:
    """Return the wording problems of a commit message: the rule, the line and the remedy."""
    found = [
        one for line in message.splitlines() for one in _in_line("", 0, re.sub("`[^`]*`", "``", line), names=False)
    ]
    return [f"rule {rule.name}: {place.text.strip()!r}: {rule.remedy}" for rule, place in found]


def broken_rules(path: str, source: str) -> Iterator[tuple[Rule, Place]]:
    """Return every place in a file that breaks a rule."""
    prose, names = python_parts(source) if path.endswith(".py") else (text_parts(path, source), [])
    for number, line in prose:
        yield from _in_line(path, number, line, names=False)
    for number, name in names:
        yield from _in_line(path, number, name, names=True)


def _in_line(path: str, number: int, line: str, *, names: bool) -> Iterator[tuple[Rule, Place]]:
    if not _ANY[names].search(line):
        return
    text = _EXCEPTION.sub("", line)
    for rule in RULES:
        if rule.names == names:
            for _match in re.finditer(rule.pattern, text, re.IGNORECASE):
                yield rule, Place(path, number, line)


def server_folder(path: str) -> str:
    """Return the folder for which places are counted: two levels, and one more below plugins/module_utils."""
    parts = path.split("/")[:-1]
    return "/".join(parts[: 3 if parts[:2] == ["plugins", "module_utils"] else 2]) or "."


def files(*folders: str) -> dict[str, str]:
    """Return the text of every file below these folders that git tracks or does not ignore, by path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    found = {}
    for name in sorted(filter(None, listed)):
        if not name.startswith(GENERATED) and (ROOT / name).is_file():
            try:
                found[name] = (ROOT / name).read_text()
            except UnicodeDecodeError:  # a picture
                continue
    return found


def counted(places: Sequence[tuple[Rule, Place]]) -> dict[str, dict[str, int]]:
    """Return the number of places by folder and rule."""
    numbers = Counter((server_folder(place.path), rule.name) for rule, place in places)
    result: dict[str, dict[str, int]] = {}
    for (folder, name), number in sorted(numbers.items()):
        result.setdefault(folder, {})[name] = number
    return result


def risen(
    now: Mapping[str, Mapping[str, int]], recorded: Mapping[str, Mapping[str, int]]
) -> list[tuple[str, str, int, int]]:
    """Return folder, rule, the recorded and the current number, for each number that has risen."""
    return [
        (folder, name, recorded.get(folder, {}).get(name, 0), number)
        for folder, numbers in now.items()
        for name, number in numbers.items()
        if number > recorded.get(folder, {}).get(name, 0)
    ]


def changed_lines() -> dict[str, set[int]]:
    """Return the lines of each file that the last commit or an uncommitted change has written, where new findings are
    most likely."""
    command = ["git", "diff", "--unified=0", "--no-color", "HEAD~1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines: dict[str, set[int]] = {}
    path = ""
    for line in done.stdout.splitlines():
        if line.startswith("+++ b/"):
            path = line[6:]
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, number = int(match[1]), int(match[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + number))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the wording of the project.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--list", metavar="RULE", choices=[rule.name for rule in RULES])
    choice.add_argument("--record", action="store_true")
    options = parser.parse_args(arguments)
    published = files(*PUBLISHED)
    checked = {path: text for path, text in {**published, **files(*INTERNAL)}.items() if path.endswith(KINDS)}
    places = [found for path, text in checked.items() for found in broken_rules(path, text)]
    if options.list:
        for rule, place in places:
            if rule.name == options.list:
                print(f"{place.path}:{place.line}: {place.text}")
        return 0
    now = counted(places)
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else now
    more = risen(now, recorded)
    if options.record and not more:
        RECORD.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        recorded = now
    failed = bool(more)
    remedies = {rule.name: rule.remedy for rule in RULES}
    lines = changed_lines() if more else {}
    for folder, name, before, number in more:
        print(
            f"{folder}: {number} places break the rule {name}, {number - before} more than recorded: {remedies[name]}"
        )
        broken = [place for rule, place in places if rule.name == name and server_folder(place.path) == folder]
        broken.sort(key=lambda place: place.line not in lines.get(place.path, set()))
        for place in broken[:SHOWN]:
            print(f"  {place.path}:{place.line}: {place.text}")
    terms = replaced_words(GLOSSARY.read_text())
    for path, text in published.items():
        for number, word in found_in(text, terms):
            print(f"{path}:{number}: '{word}': say {terms[word]} (docs/glossary.md)")
            failed = True
    total, limit = (sum(sum(numbers.values()) for numbers in counts.values()) for counts in (now, recorded))
    print(f"{total} places break a rule, {limit} are recorded; {len(EXCEPTIONS)} exceptions")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
