#!/usr/bin/env python3
"""Checks that every header of lib/ compiles alone: check_headers.py BUILD [ROOT], BUILD with compile_commands.json.

Headers are compiled in chains, two chains at a time. Each header of a chain includes all headers before it, so they add
nothing to what it includes itself: it compiles in the chain if it compiles alone. A chain has the flags of a source in the
folder of its last header. Headers in a folder `with_cuda` are left out if this build compiles no source there.

Headers that include LibTorch's tensors have chains of their own, with the longest flags and with that header precompiled: it
takes longer than all else.

A compiler cache that is installed serves these compilations as it does the build, so names and contents of what they read must
be the same in each call: chains follow from the names of headers alone, and lie in BUILD/headers.
"""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

TENSORS = "ATen/core/Tensor.h"


def flags_of(command):
    """The compiler and its flags from a compile command, without launcher, output and source."""
    words = shlex.split(command)
    compiler = max((index + 1 for index, word in enumerate(words) if Path(word).name == "ccache"), default=0)
    flags, skip = [words[compiler]], False
    for word in words[compiler + 1:]:
        if skip or word == "-c":
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif not word.startswith("-M") and not word.endswith((".cpp", ".cxx", ".cu")):
            flags.append(word)
    return flags


def spelling(path, root):
    """A file or folder of lib/<wing>/ as an include spells it."""
    return Path(*path.relative_to(root / "lib").parts[1:])


def folder_of(entry, root):
    """The folder of a wing that a command compiles a source of; with unity builds, several sources."""
    path = Path(entry["directory"], entry["file"]).resolve()
    if root / "lib" in path.parents:
        return spelling(path.parent, root)
    together = re.search(r"/lib/CMakeFiles/argosy_([a-z0-9]+)\.dir/Unity/", path.as_posix())
    return Path(together[1]) if together else None


def flags_by_folder(build, root):
    """{folder of a wing: the longest flags of its sources}, and the longest of all under None, for folders with only
    headers. Those of lib/ go before those of tests, which compile some sources once more."""
    result = {None: (False, [])}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        found = " -o lib/CMakeFiles/" in entry["command"], flags_of(entry["command"])
        for folder in {None, folder_of(entry, root)}:
            known = result.get(folder, (False, []))
            if (found[0], len(found[1])) > (known[0], len(known[1])):
                result[folder] = found
    return {folder: flags for folder, (_, flags) in result.items()}


def all_included(headers):
    """{header: the headers of lib/ that it includes, directly or not}, of {header: its file}."""
    direct = {header: set(re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)) & set(headers)
              for header, path in headers.items()}

    def add_included(header, found):
        for other in direct[header] - found:
            found.add(other)
            add_included(other, found)
        return found

    return {header: add_included(header, set()) for header in headers}


def chains(headers):
    """Divides the headers into lists, in which each header includes all before it."""
    included = all_included(headers)
    rest, result = sorted(headers, key=lambda header: -len(included[header])), []
    while rest:
        chain = [rest.pop(0)]
        for header in list(rest):
            if header in included[chain[0]]:
                chain.insert(0, header)
                rest.remove(header)
        result.append(chain)
    return result


def compiled(flags, language, source, output, **more):
    """Compiles a file of the current folder `cwd`, through the compiler cache if there is one."""
    cache = shutil.which("ccache")
    return subprocess.run([*([cache] if cache else []), *flags, "-x", language, "-c", source, "-o", output], text=True,
                          env=os.environ | {"CCACHE_SLOPPINESS": "pch_defines,time_macros"}, **more)


def compile_tensors(flags, folder):
    """Precompiles the header of tensors in the folder and returns the flags that read it first."""
    (folder / "tensors.h").write_text(f"#include <{TENSORS}>\n")
    compiled(flags, "c++-header", "tensors.h", "tensors.h.gch", cwd=folder, check=True)
    return flags + ["-include", "tensors.h"]


def compile_together(headers, flags, folder):
    """Returns the compiler's message, empty if it compiled. Each header is included twice to test its guard."""
    name = headers[-1].replace("/", "-")
    (folder / f"{name}.cpp").write_text("".join(f'#include "{header}"\n' * 2 for header in headers))
    done = compiled(flags, "c++", f"{name}.cpp", f"{name}.o", cwd=folder, capture_output=True, check=False)
    return done.stderr if done.returncode else ""


def check(build, root):
    """Returns (the number of headers, [(the last header of a chain, the compiler's message)])."""
    by_folder = flags_by_folder(build, root)
    files = {spelling(path, root): path for path in sorted((root / "lib").rglob("*.h"))}
    headers = {header.as_posix(): path for header, path in files.items()
               if header.parent.name != "with_cuda" or header.parent in by_folder}
    with_tensors = {header for header, path in headers.items() if f"#include <{TENSORS}>" in path.read_text()}
    with_tensors |= {header for header, others in all_included(headers).items() if others & with_tensors}

    def compile_chain(chain, flags):
        return chain[-1], compile_together(chain, flags or by_folder.get(Path(chain[-1]).parent, by_folder[None]), folder)
    folder = build / "headers"
    folder.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        checks = [pool.submit(compile_chain, chain, None)
                  for chain in chains({header: headers[header] for header in headers if header not in with_tensors})]
        if with_tensors:
            flags = compile_tensors(by_folder[None], folder)
            checks += [pool.submit(compile_chain, chain, flags)
                       for chain in chains({header: headers[header] for header in headers if header in with_tensors})]
        results = [each.result() for each in checks]
    return len(headers), [(header, message) for header, message in results if message]


def main():
    build = Path(sys.argv[1])
    root = Path(sys.argv[2] if len(sys.argv) > 2 else os.environ["ARGOSY_SOURCE"]).resolve()
    num_headers, failures = check(build, root)
    for header, message in failures:
        print(f"{header}, or a header that it includes, does not compile alone:\n{message}")
    return 1 if failures or not num_headers else 0


if __name__ == "__main__":
    sys.exit(main())
