#!/usr/bin/env python3
"""Prints the sizes of files and functions in lib/ and apps/, and holds them to limits: check_sizes.py [ROOT]."""
import os
import re
import sys
from pathlib import Path

from check_layers import SOURCES, includes

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_P90_FUNCTION_LINES = 20
FEW_LINES = 30
LONG_ON_PURPOSE = {"lib/trainer/config/fields.cpp"}  # a table: one line for each key

# clang-format puts the head of a function at the margin of its class or file, and its last brace as well.
NOT_A_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|using|template|friend|#|//|\}|.* = \{$)")
CLASS = re.compile(r"(?:template .*>\s)?(class|struct|union) [^;]*$")


def function_lengths(lines, before=0):
    """Yields (line of the head, number of lines) of each function, `lines` being those of a file after the first `before`, or
    of a class's body at the margin."""
    head, end_of_class = None, 0
    lines = [re.sub(r"\s*//.*", "", line) for line in lines]
    for number, line in enumerate(lines, 1):
        if number <= end_of_class:
            continue
        if head is None and CLASS.match(line):
            begin = next((i for i in range(number, len(lines) + 1) if lines[i - 1].endswith("{")), len(lines))
            end_of_class = next((i for i in range(begin, len(lines) + 1) if lines[i - 1].startswith("}")), begin)
            body = [text[4:] if text.startswith("    ") else "" for text in lines[begin:end_of_class - 1]]
            yield from function_lengths(body, before + begin)
            continue
        if head is None and line[:1].strip() and not NOT_A_FUNCTION.match(line):
            head = number
        if head is not None and line.startswith("}"):
            if any("(" in text for text in lines[head - 1:number]):
                yield before + head, number - head + 1
            head = None
        elif head is not None and line.endswith(";") and not any("{" in text for text in lines[head - 1:number]):
            head = None  # a declaration
        elif head is not None and (line.endswith(";") or line.endswith("}")) and not line.startswith(" "):
            if line.endswith("}"):
                yield before + head, number - head + 1
            head = None


def budgets(page=Path(__file__).with_name("BUDGETS.md")):
    """{wing: its lines}, from the headings of the page."""
    return {wing: int(lines) for wing, lines in re.findall(r"^## (\S+): (\d+) lines$", page.read_text(), re.MULTILINE)}


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
    if function_p90 > MAX_P90_FUNCTION_LINES:
        violations.append(f"{function_p90} lines in the 90th percentile of functions; the limit is {MAX_P90_FUNCTION_LINES}")
    of_wings = budgets()
    for wing, budget in of_wings.items():
        used = [lines for name, lines in files.items() if name.startswith(wing + "/")]
        report.append(f"{wing}: {sum(used)} lines in {len(used)} files, of {budget} lines")
        if sum(used) > budget:
            violations.append(f"{wing}: {sum(used)} lines; its budget is {budget}: remove some, or give the reason in BUDGETS.md")
    wings = tuple(f"{wing}/" for wing in of_wings)
    violations += [f"{name}: not in a wing that BUDGETS.md names" for name in files if not name.startswith(wings)]
    return report, violations


def check(root):
    return measure(root)[1]


def main():
    report, violations = measure(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARGOSY_SOURCE"]))
    print("\n".join(report + violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
