#!/usr/bin/env python3
"""Checks the objects of lib/numerics/kernels/cpu: check_kernels.py BUILD. A function that is compiled for AVX-512 and that the linker
may share (a weak symbol) must lie in the namespace of its instruction set: shared with the rest of the program, it
would crash older processors.
"""
import re
import subprocess
import sys
from pathlib import Path


def check(build):
    objects = sorted(Path(build, "lib/CMakeFiles").glob("argosy_kernels_*.dir/numerics/kernels/cpu/*.o"))
    if not objects:
        return [f"{build} has no objects of lib/numerics/kernels/cpu"]
    violations = []
    for path in objects:
        variant = re.search(r"argosy_kernels_(\w+)\.dir", str(path))[1]
        listing = subprocess.run(["nm", "--demangle", path], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            symbol = re.fullmatch(r"[0-9a-f]+ ([WVu]) (.*)", line)
            if symbol and f"argosy::kernels::{variant}::" not in symbol[2]:
                violations.append(f"{path.name} for {variant}: {symbol[2]} may be shared with other code")
    return violations


if __name__ == "__main__":
    found = check(sys.argv[1])
    print("\n".join(found))
    sys.exit(1 if found else 0)
