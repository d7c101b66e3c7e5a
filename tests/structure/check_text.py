#!/usr/bin/env python3
"""Checks every text file of the project: check_text.py [ROOT]. Prints each violation.

No path of somebody's machine, no trailing whitespace, no note to do later, and a newline at the end. JSON has one reader.
"""
import os
import re
import sys
from pathlib import Path

TOP = ("apps", "lib", "jobs", "configs", "tests", "README.md", "CMakeLists.txt", "CMakePresets.json")
FAULTS = {
    "a path of somebody's machine": re.compile(r"""(?:^|[\s"'=:(`])/(?:work|root|home|tmp/w)/"""),
    "trailing whitespace": re.compile(r"[ \t\r]$"),
    "a note to do later": re.compile(r"\b(?:TO" r"DO|FIX" r"ME)\b"),
}
JSON_READER = "lib/ground/base/strict_json.cpp"
OTHER_JSON_READER = re.compile(r"\b\w*[jJ]son::(?:parse|sax_parse|accept)\(")


def text_files(root):
    for top in TOP:
        start = root / top
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and b"\0" not in path.read_bytes()[:4096]:
                yield path


def check(root):
    violations = []
    for path in text_files(root):
        text, place = path.read_text(errors="replace"), path.relative_to(root).as_posix()
        if text and not text.endswith("\n"):
            violations.append(f"{place}: no newline at the end")
        source = place.startswith(("lib/", "apps/")) and place != JSON_READER
        for number, line in enumerate(text.split("\n"), 1):
            if source and OTHER_JSON_READER.search(line):
                violations.append(f"{place}:{number}: JSON that is not read through base/strict_json.h")
            violations += [f"{place}:{number}: {fault}" for fault, pattern in FAULTS.items() if pattern.search(line)]
    return violations


def main():
    violations = check(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARGOSY_SOURCE"]))
    print("\n".join(violations) or "every text file is clean")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
