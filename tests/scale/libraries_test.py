#!/usr/bin/env python3
"""Where the dynamic loader looks for the libraries of the programs (LD_DEBUG=libs).
libraries_test.py [FOLDER]: prints the table of README.md for the programs of another folder, without judging them.

A job's nodes share the trees of the program, so that each search outside of the machine's own folders is an operation on a shared file
system, which every rank repeats. A run path without an element names the working folder.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["ARGOSY_BIN"])
MACHINE = re.compile(r"/(usr/)?lib(32|64)?/")
MAX_SEARCHES = 40  # in one folder: the libraries that the program names, and ten folders below for kinds of processors


def folders_searched(program, folder):
    """{folder: searches} of a start from the empty working folder `folder`; "" is that folder."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    subprocess.run([program, "--version"], check=True, capture_output=True, cwd=folder, timeout=60,
                   env=environment | {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": f"{folder}/searches"})
    searched = {}
    for path in folder.glob("searches.*"):
        for file in re.findall(r"trying file=(.*)", path.read_text()):
            place = os.path.normpath(os.path.dirname(re.sub(r"/(glibc-hwcaps|tls|x86_64)/.*", "/x", file))) if file.startswith("/") else ""
            searched[place] = searched.get(place, 0) + 1
        path.unlink()
    return searched


def run_path(program):
    """The folders of a program's run path, with $ORIGIN replaced."""
    said = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\(R(?:UN)?PATH\).*\[(.*)\]", said)
    return [place.replace("$ORIGIN", str(program.parent)) for place in found[1].split(":")] if found else []


def needed(program):
    said = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", said)


def judge(program, searched):
    """What is wrong, a line each."""
    places = run_path(program)
    if "" in searched:
        yield f"{program.name} looks for libraries in the working folder: {searched['']} times"
    for place in places:
        if not any((pathlib.Path(place) / name).exists() for name in needed(program)):
            yield f"the run path of {program.name} has the folder '{place}', which holds none of its libraries"
    for place in map(os.path.normpath, places):
        if searched.get(place, 0) > MAX_SEARCHES:
            yield f"{program.name} looks for libraries in {place}: {searched[place]} times"


def main():
    programs = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else BIN
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for program in sorted(programs.iterdir()):
            searched = folders_searched(program, pathlib.Path(folder))
            shared = {place: count for place, count in searched.items() if place and not MACHINE.match(place + "/")}
            print(f"{program.name}: {searched.get('', 0)} searches in the working folder, {sum(shared.values())} in {len(shared)} other "
                  f"folders that are not the machine's")
            for place, count in sorted(shared.items(), key=lambda item: -item[1]):
                print(f"  {count:3} in {place}")
            wrong += judge(program, searched)
    if wrong and len(sys.argv) == 1:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
