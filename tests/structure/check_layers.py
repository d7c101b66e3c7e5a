#!/usr/bin/env python3
"""Checks every #include of lib/ and apps/ against lib/LAYERS: check_layers.py [ROOT]. Prints each violation.

A room includes itself and the rooms that its line names, each at least once; a foreign header only where the line names its library.
Apps include any room, and of foreign libraries those in APP_FOREIGN. A system header that is not known here is a
violation as well, so that a new foreign library cannot slip in: add it to FAMILIES, or to SYSTEM if it is the system's.
"""
import os
import re
import sys
from pathlib import Path

# {foreign library, as in foreign_<name> of lib/foreign.cmake: pattern of its headers' spellings}.
FAMILIES = {
    "arrow": r"(arrow|parquet)/",
    "bzip2": r"bzlib\.h$",
    "cli": r"CLI/",
    "cublas": r"cublas\w*\.h$",
    "cuda": r"(nvtx3/.*|cuda\w*)\.h$",
    "cudnn": r"cudnn\w*\.h$",
    "fmt": r"fmt/",
    "hdf5": r"(hdf5|H5\w+)\.h$",
    "json": r"nlohmann/",
    "lzma": r"lzma\.h$",
    "mpi": r"mpi(-ext)?\.h$",
    "nccl": r"nccl\w*\.h$",
    "sentencepiece": r"sentencepiece_processor\.h$",
    "spdlog": r"spdlog/",
    "toml": r"toml\+\+/",
    "torch": r"(ATen|c10|torch)/",
    "xxhash": r"xxhash\.h$",
    "zlib": r"zlib\.h$",
    "zstd": r"zstd\.h$",
}
APP_FOREIGN = {"cli", "fmt", "json", "spdlog"}
# Headers of the C++ standard library have no dot; these headers of C and POSIX are also allowed.
SYSTEM = re.compile(r"[a-z_]+$|(cpuid|dlfcn|fcntl|glob|ifaddrs|immintrin|malloc|poll|pthread|sched|signal|spawn|unistd)\.h$|"
                    r"(arpa|linux|net|netinet|sys)/\w+\.h$")
# Each of these headers takes ten seconds or more to compile; product code includes ATen/core/Tensor.h and
# ATen/ops/<op>.h.
HEAVY = {"torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h", "ATen/Functions.h", "ATen/Operators.h"}
SOURCES = {".h", ".cpp", ".cu", ".cuh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<own>[^"]+)"|<(?P<foreign>[^>]+)>)')


def read_layers(root):
    """Returns ({room: (rooms, foreign libraries)}, {room: wing}, violations) of lib/LAYERS."""
    layers, wings, violations = {}, {}, []
    for number, line in enumerate((root / "lib/LAYERS").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z]+)/([a-z0-9]+): *([^|]*)\|(.*)", line)
        if not match:
            violations.append(f"lib/LAYERS:{number}: not of the form `wing/room: rooms | foreign libraries`: {line}")
            continue
        wing, room, uses, foreign = match[1], match[2], match[3].split(), match[4].split()
        if room in layers:
            violations.append(f"lib/LAYERS:{number}: {room} is listed twice")
        if wing in wings.values() and wing != list(wings.values())[-1]:
            violations.append(f"lib/LAYERS:{number}: {room} is not among the rooms of its wing {wing}")
        violations += [f"lib/LAYERS:{number}: {room} uses {other}, which is not named above it"
                       for other in uses if other not in layers]
        violations += [f"lib/LAYERS:{number}: {room} names {name}, which is no family of headers in {__file__}"
                       for name in foreign if name not in FAMILIES]
        layers[room], wings[room] = (set(uses), set(foreign)), wing
    listed = {f"{wing}/{room}" for room, wing in wings.items()}
    folders = {path.parent.relative_to(root / "lib").as_posix() for path in (root / "lib").rglob("*") if path.suffix in SOURCES}
    rooms = {"/".join(folder.split("/")[:2]) for folder in folders}
    violations += [f"lib/{name}/: not listed in lib/LAYERS" for name in sorted(rooms - listed)]
    violations += [f"lib/LAYERS: {name} has no folder lib/{name}/" for name in sorted(listed - rooms)]
    return layers, wings, violations


def includes(path):
    """Yields (line number, own header or None, foreign header or None)."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match["own"], match["foreign"]


def check_own(header, user, layers, may_use):
    room = header.split("/")[0]
    if "/" not in header or room not in layers:
        return f'"{header}" is not spelled "room/file.h" with a room of lib/LAYERS'
    if room not in may_use:
        return f'{user} may not use {room} ("{header}")'
    return None


def check_foreign(header, user, may_use):
    if header in HEAVY:
        return f"<{header}> is too heavy for product code: include ATen/core/Tensor.h and ATen/ops/<op>.h"
    for family, pattern in FAMILIES.items():
        if re.match(pattern, header):
            return None if family in may_use else f"{user} may not use the foreign library {family} (<{header}>)"
    return None if SYSTEM.match(header) else f"<{header}> belongs to no known library"


def rules_for(path, root, layers):
    """Returns (the includer's name, the rooms it may use, the foreign libraries it may use)."""
    if root / "apps" in path.parents:
        return "apps", set(layers), APP_FOREIGN
    room = room_of(path, root)
    uses, foreign = layers.get(room, (set(), set()))
    return room, uses | {room}, foreign


def room_of(path, root):
    """The room of a source of lib/, "" if it lies in none."""
    return (*path.relative_to(root / "lib").parts[1:-1], "")[0]


def check_own_first(path, root):
    header = path.with_suffix(".h")
    if path.suffix == ".h" or root / "lib" not in path.parents or not header.exists():
        return None
    spelling = "/".join(header.relative_to(root / "lib").parts[1:])
    first = next(includes(path), None)
    return None if first and first[1] == spelling else f'its own header "{spelling}" is not its first include'


def check_file(path, root, layers):
    place = path.relative_to(root).as_posix()
    user, rooms, foreign = rules_for(path, root, layers)
    problem = check_own_first(path, root)
    violations = [f"{place}: {problem}"] if problem else []
    for number, own, other in includes(path):
        if user == "apps" and own and "/" not in own and (path.parent / own).exists():
            continue  # what the executables share
        problem = check_own(own, user, layers, rooms) if own else check_foreign(other, user, foreign)
        if problem:
            violations.append(f"{place}:{number}: {problem}")
    return violations


def unused(folder, uses):
    """Returns the rooms of `uses` that no source of the folder includes."""
    included = {own.split("/")[0] for path in folder.rglob("*") if path.suffix in SOURCES
                for _, own, _ in includes(path) if own}
    return sorted(uses - included)


def check(root):
    layers, wings, violations = read_layers(root)
    for top in ("lib", "apps"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                violations += check_file(path, root, layers)
    # After another violation, a room may seem unused that the corrected tree uses.
    return violations or [f"lib/LAYERS: {room} names {other}, but includes nothing of it"
                          for room, (uses, _) in layers.items() for other in unused(root / "lib" / wings[room] / room, uses)]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["ARGOSY_SOURCE"])
    violations = check(root)
    print("\n".join(violations) or "every include keeps to lib/LAYERS")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
