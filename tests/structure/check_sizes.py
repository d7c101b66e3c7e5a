#!/usr/bin/env python3
"""Prints the sizes of files and functions in lib/ and apps/, and holds them to limits: check_sizes.py [ROOT]."""
import os
import re
import sys
from pathlib import Path

from check_layers import SOURCES, includes

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Limits on the whole tree. A change that stays below the printed figures may lower them.
MAX_FILES = 648
MAX_P90_FILE_LINES = 260
MAX_P90_FUNCTION_LINES = 20
FEW_LINES = 30
LONG_ON_PURPOSE = {"lib/trainer/config/fields.cpp"}  # a table: one line for each key

# clang-format puts the head of a function outside a class at the left margin, and its last brace as well.
NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|using|template|#|//|\}|.* = \{$)")


def function_lengths(lines):
    """Yields (line of the head, number of lines) of each function outside a class."""
    head = None
    for number, line in enumerate(lines, 1):
        if head is None and line[:1].strip() and not NOT_A_FUNCTION.match(line):
            head = number
        if head is not None and line.startswith("}"):
            if any("(" in text for text in lines[head - 1:number]):
                yield head, number - head + 1
            head = None
        elif head is not None and line.endswith(";") and not any("{" in text for text in lines[head - 1:number]):
            head = None  # a declaration
        elif head is not None and (line.endswith(";") or line.endswith("}")) and not line.startswith(" "):
            if line.endswith("}"):
                yield head, number - head + 1
            head = None


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def single_user_headers(root, texts):
    """Headers of lib/ that no file includes besides their own source and at most one other, and no test."""
    users = {}
    for top in ("lib", "apps", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                for header in {own for _, own, _ in includes(path) if own}:
                    users.setdefault(header, set()).add(path.relative_to(root).with_suffix("").as_posix())
    found = []
    for path in texts:
        if path.suffix == ".h" and root / "lib" in path.parents:
            header = "/".join(path.relative_to(root / "lib").parts[1:])
            others = users.get(header, set()) - {path.relative_to(root).with_suffix("").as_posix()}
            if len(others) <= 1 and not any(user.startswith("tests/") for user in others):
                found.append(header)
    return found


def measure(root):
    """Returns (the report's lines, the violations)."""
    texts = {path: path.read_text() for top in ("lib", "apps") for path in sorted((root / top).rglob("*"))
             if path.suffix in SOURCES}
    files = {path.relative_to(root).as_posix(): text.count("\n") for path, text in texts.items()}
    functions = {f"{path.relative_to(root).as_posix()}:{head}": length for path, text in texts.items()
                 for head, length in function_lengths(text.split("\n"))}
    file_p90, function_p90 = percentile(files.values(), 0.9), percentile(functions.values(), 0.9)
    small = sum(lines < FEW_LINES for lines in files.values())
    headers = [name for name in files if name.startswith("lib/") and name.endswith(".h")]
    single = single_user_headers(root, texts)
    report = [f"files: {len(files)}, lines p50 {percentile(files.values(), 0.5)}, p90 {file_p90}, "
              f"max {max(files.values(), default=0)}; {small} under {FEW_LINES} lines",
              f"functions: {len(functions)}, lines p50 {percentile(functions.values(), 0.5)}, p90 {function_p90}, "
              f"max {max(functions.values(), default=0)}",
              f"headers of lib/: {len(headers)}, of which {len(single)} have at most one user and no test"]
    violations = [f"{name}: {lines} lines; split it before {MAX_FILE_LINES}" for name, lines in files.items()
                  if lines > MAX_FILE_LINES]
    violations += [f"{place}: a function of {length} lines; split it before {MAX_FUNCTION_LINES}"
                   for place, length in functions.items()
                   if length > MAX_FUNCTION_LINES and place.split(":")[0] not in LONG_ON_PURPOSE]
    for what, value, limit in (("files in lib/ and apps/", len(files), MAX_FILES),
                               ("lines in the 90th percentile of files", file_p90, MAX_P90_FILE_LINES),
                               ("lines in the 90th percentile of functions", function_p90, MAX_P90_FUNCTION_LINES)):
        if value > limit:
            violations.append(f"{value} {what}; the limit is {limit}")
    return report, violations


def check(root):
    return measure(root)[1]


def main():
    report, violations = measure(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARGOSY_SOURCE"]))
    print("\n".join(report + violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
