#!/usr/bin/env python3
"""Checks what the READMEs and the pages beside them promise: check_readme.py [ROOT]. Prints each violation.

The first code block of README.md holds the two commands and nothing else, .ci/run calls the second one, every path
that a page names exists, and the page of each wing has a row for each of its rooms.
"""
import os
import re
import sys
from pathlib import Path

COMMANDS = ["./jobs/quickstart.sh", "./tests/run.sh"]
PAGES = ["README.md", "lib/README.md", "lib/NUMERICS.md", "apps/README.md", "jobs/README.md", "configs/ARRIVING.md", "tests/README.md",
         "tests/speed/README.md"]  # they must exist; other pages of these folders may
TOP = ("apps", "lib", "jobs", "configs", "data", "tests", ".ci")
SUFFIXES = (".md", ".h", ".cpp", ".py", ".sh", ".cmake", ".toml", ".txt")

BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")
PATH = re.compile(r"\.{0,2}/?[\w.-]+(/[\w.-]+)*/?")


def check_commands(root):
    block = BLOCK.search((root / "README.md").read_text())
    lines = [line.split("#")[0].strip() for line in block[1].splitlines()] if block else []
    found = [line for line in lines if line]
    violations = []
    if found != COMMANDS:
        violations.append(f"README.md: the first code block holds {found}, not {COMMANDS}")
    for command in COMMANDS:
        if not os.access(root / command, os.X_OK):
            violations.append(f"README.md: {command} cannot be executed")
    ci = root / ".ci/run"
    calls = ci.read_text().splitlines() if ci.exists() else []
    if not os.access(ci, os.X_OK) or "exec ./tests/run.sh" not in calls:
        violations.append(".ci/run: does not call ./tests/run.sh, or cannot be executed")
    return violations


def named_paths(text):
    """The words of code and links that look like paths of the repository."""
    blocks = [match[1] for match in BLOCK.finditer(text)]
    words = LINK.findall(text)
    for code in blocks + CODE.findall(BLOCK.sub("", text)):
        words += code.split()
    for word in words:
        if PATH.fullmatch(word) and (word.removeprefix("./").split("/")[0] in TOP or
                                     "/" in word and word.endswith(SUFFIXES)):
            yield word


def check_paths(root, page):
    """A path is relative to the repository's root or to the page's folder, or spelled as an include is."""
    path = root / page
    if not path.exists():
        return [f"{page}: does not exist"]
    bases = (root, path.parent, *(root / "lib").glob("*/"))
    return [f"{page}: names {word}, which does not exist" for word in dict.fromkeys(named_paths(path.read_text()))
            if not any((base / word).exists() for base in bases)]


def check_map(root):
    """The page of each wing has a row for each of its rooms."""
    violations = []
    layers = (root / "lib/LAYERS").read_text()
    for wing in dict.fromkeys(re.findall(r"^([a-z]+)/", layers, re.MULTILINE)):
        page = root / "lib" / wing / "README.md"
        rooms = re.findall(rf"^{wing}/([a-z0-9]+):", layers, re.MULTILINE)
        rows = re.findall(r"^\| `([a-z0-9]+)` \|", page.read_text() if page.exists() else "", re.MULTILINE)
        violations += [f"lib/{wing}/README.md: no row for the room {name}" for name in rooms if name not in rows]
        violations += [f"lib/{wing}/README.md: {name} is no room of lib/LAYERS" for name in rows if name not in rooms]
    return violations


def check(root):
    violations = check_commands(root)
    others = [path.relative_to(root).as_posix() for top in ("apps", "jobs", "configs", "tests/speed", "lib/*", "lib/*/*")
              for path in root.glob(f"{top}/*.md")]
    for page in dict.fromkeys(PAGES + sorted(others)):
        violations += check_paths(root, page)
    return violations + check_map(root)


def main():
    violations = check(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARGOSY_SOURCE"]))
    print("\n".join(violations) or "the READMEs keep their promises")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
