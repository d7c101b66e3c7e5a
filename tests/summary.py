#!/usr/bin/env python3
"""Sums up a CTest run: summary.py RESULTS.xml [AGAIN.xml] (from ctest --output-junit). Exits with 1 when a test failed.
AGAIN.xml: failed tests that ran again, alone; those that passed then are named and do not count as failed.
summary.py --failed RESULTS.xml prints the names of the failed tests alone.

A whole entry is skipped when it exits with 77 (its last line says why) or prints what CMake was told to look for (its
first skipped case says why), a case within a suite by GTEST_SKIP.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

MAX_LINES = 30  # of a failed test's output
SKIPPED_CASE = re.compile(r": Skipped\n(?P<reason>.*?)\n?\[  SKIPPED \] (?P<case>[\w/.]+)", re.DOTALL)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def why_failed(output):
    """The first lines of the output that say why: GoogleTest's failures, else what came last before the end."""
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if line.endswith(": Failure")), len(lines) - MAX_LINES)
    return lines[max(0, first):][:MAX_LINES]


def message_of_skip(entry):
    """An entry that could not be started has another message, and counts as failed."""
    skip = entry.find("skipped")
    return "" if skip is None else skip.get("message", "")


def summarise(root):
    """Returns (number passed, {name of a failed test: why}, [(name, reason)] skipped)."""
    passed, failed, skipped = 0, {}, []
    for entry in root.iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        output = entry.findtext("system-out") or ""
        cases = [(f"{name}: {match['case']}", " ".join(match["reason"].split()) or "no reason given")
                 for match in SKIPPED_CASE.finditer(output)]
        if status == "run":
            passed += 1
            skipped += cases
        elif status == "disabled":
            skipped.append((name, "disabled"))
        elif message_of_skip(entry).startswith("SKIP_RETURN_CODE"):
            skipped.append((name, last_line(output).removeprefix("skipped: ")))
        elif message_of_skip(entry).startswith("SKIP_REGULAR_EXPRESSION"):
            skipped.append((name, cases[0][1] if cases else last_line(output)))
        else:
            failed[name] = why_failed(output)
    return passed, failed, list(dict.fromkeys(skipped))


def passed_again(failed, root):
    """Those of the failed tests that passed in a second run."""
    passed = {entry.get("name") for entry in root.iter("testcase") if entry.get("status") == "run"}
    return [name for name in failed if name in passed]


def main():
    only_failed = sys.argv[1] == "--failed"
    first, *again = (ElementTree.parse(path).getroot() for path in sys.argv[1 + only_failed:])
    passed, failed, skipped = summarise(first)
    if only_failed:
        print(*failed, sep="\n", end="\n" if failed else "")
        return 0
    print()
    alone = passed_again(failed, again[0]) if again else []
    for name in alone:
        print(f"failed beside other tests, passed alone: {name}")
    if again:
        failed = {name: why for name, why in failed.items() if name not in alone}
        skipped += summarise(again[0])[2]
    for name, reason in skipped:
        print(f"skipped  {name}: {reason}")
    for name, why in failed.items():
        print(f"failed   {name}", *why, sep="\n    ")
    print(f"{passed + len(alone)} passed{f' ({len(alone)} of them alone)' if alone else ''}, {len(failed)} failed, "
          f"{len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
