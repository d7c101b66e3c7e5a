#!/usr/bin/env python3
"""Checks that every header of lib/ compiles alone: check_headers.py BUILD [ROOT], BUILD with compile_commands.json.

A header is compiled with the flags of a source of its own folder, two at a time; one of a folder `with_cuda` of which this
build compiles nothing, for want of the library, is left out. Prints the slowest: what a header costs, each file that
includes it pays.
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path


def flags_of(command):
    """The compiler and its flags from a compile command, without launcher, output and source."""
    words = shlex.split(command)
    compiler = next(index for index, word in enumerate(words) if Path(word).name != "ccache")
    flags, skip = [words[compiler]], False
    for word in words[compiler + 1:]:
        if skip or word == "-c":
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif not word.startswith("-M") and not word.endswith((".cpp", ".cxx", ".cu")):
            flags.append(word)
    return flags


def folder_of(entry, root):
    """The folder of lib/ that a command compiles a source of; with unity builds, several sources."""
    path = Path(entry["directory"], entry["file"]).resolve()
    if root / "lib" in path.parents:
        return path.parent.relative_to(root / "lib")
    together = re.search(r"/lib/CMakeFiles/argosy_([a-z0-9]+)\.dir/Unity/", path.as_posix())
    return Path(together[1]) if together else None


def flags_by_folder(build, root):
    """{folder of lib/: the longest flags of its sources}, and the longest of all under None, for folders with only
    headers."""
    result = {None: []}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        flags = flags_of(entry["command"])
        for folder in {None, folder_of(entry, root)}:
            if len(flags) > len(result.get(folder, [])):
                result[folder] = flags
    return result


def compile_alone(header, flags):
    """Returns (seconds, the compiler's message, empty if it compiled). The header is included twice to test its guard.
    """
    start = time.monotonic()
    done = subprocess.run(flags + ["-fsyntax-only", "-x", "c++", "-"], input=f'#include "{header}"\n' * 2,
                          capture_output=True, text=True, check=False)
    return time.monotonic() - start, done.stderr if done.returncode else ""


def check(build, root):
    """Returns [(seconds, header, message)], slowest first."""
    by_folder = flags_by_folder(build, root)
    paths = [path.relative_to(root / "lib") for path in (root / "lib").rglob("*.h")]
    headers = sorted(path.as_posix() for path in paths if path.parent.name != "with_cuda" or path.parent in by_folder)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda header: compile_alone(
            header, by_folder.get(Path(header).parent, by_folder[None])), headers)
    return sorted(((seconds, header, message) for header, (seconds, message) in zip(headers, results)), reverse=True)


def main():
    build = Path(sys.argv[1])
    root = Path(sys.argv[2] if len(sys.argv) > 2 else os.environ["ARGOSY_SOURCE"]).resolve()
    results = check(build, root)
    failures = [(header, message) for _, header, message in results if message]
    for header, message in failures:
        print(f"lib/{header} does not compile alone:\n{message}")
    print("the slowest of", len(results), "headers:")
    for seconds, header, _ in results[:5]:
        print(f"{seconds:6.2f} s  lib/{header}")
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main())
