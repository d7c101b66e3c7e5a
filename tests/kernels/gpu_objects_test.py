#!/usr/bin/env python3
"""Checks nvcc's objects of lib/numerics/kernels/cuda: gpu_objects_test.py FOLDER CUOBJDUMP ARCHITECTURE...
Every source has an object with machine code for each architecture and PTX for the newest. No kernel uses local memory
(a stack, spilled registers), which lies in the device's memory, and none has a product and a sum that the assembler may
contract into one operation, because kernels promise each other's bits.
"""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

FOLDER, CUOBJDUMP, ARCHITECTURES = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
SOURCES = sorted((Path(os.environ["ARGOSY_SOURCE"]) / "lib/numerics/kernels/cuda").glob("*.cu"))


def kernels_of(account):
    """{(kernel, architecture): bytes of stack and spills}, from the output of ptxas -v."""
    found, name = {}, None
    for line in account.splitlines():
        if entry := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            name = entry.groups()
            found[name] = None
        elif sizes := re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", line):
            found[name] = sum(map(int, sizes))
    return found


def contractible(ptx):
    """The additions, subtractions and products that may be contracted: those that do not name their rounding."""
    return re.findall(r"\b(?:add|sub|mul)(?:\.ftz)?\.f(?:32|64)\b", ptx)


class Objects(unittest.TestCase):
    def test_there_are_sources(self):
        self.assertGreater(len(SOURCES), 5)

    def test_no_kernel_uses_local_memory(self):
        for source in SOURCES:
            kernels = kernels_of((FOLDER / f"{source.stem}.resources").read_text())
            self.assertEqual({architecture for _, architecture in kernels}, set(ARCHITECTURES), source.name)
            self.assertEqual({name: size for name, size in kernels.items() if size != 0}, {}, source.name)

    def test_a_stack_or_a_spill_is_found(self):
        account = ("ptxas info    : Compiling entry function '_Z1k' for 'sm_90'\n"
                   "    {} bytes stack frame, {} bytes spill stores, 0 bytes spill loads\n")
        self.assertEqual(kernels_of(account.format(0, 0)), {("_Z1k", "90"): 0})
        self.assertEqual(kernels_of(account.format(16, 8)), {("_Z1k", "90"): 24})

    def test_no_product_and_sum_may_be_contracted(self):
        if not Path(CUOBJDUMP).exists():
            self.skipTest("no cuobjdump (setup.sh --tests)")
        num_sums = 0
        for source in SOURCES:
            ptx = subprocess.run([CUOBJDUMP, "-ptx", FOLDER / f"{source.stem}.o"], capture_output=True, text=True,
                                 check=True).stdout
            self.assertEqual(contractible(ptx), [], source.name)
            num_sums += len(re.findall(r"\badd\.rn\.f32\b", ptx))
        self.assertGreater(num_sums, 100, "the listings have no sums")

    def test_a_contractible_sum_is_found(self):
        self.assertEqual(contractible("add.rn.f32 %f1, %f2, %f3;\nfma.rn.f32 %f1, %f2, %f3, %f4;\nadd.s32 %r1, %r2, 1;"), [])
        self.assertEqual(contractible("mul.f32 %f1, %f2, %f3;\nadd.ftz.f32 %f4, %f1, %f3;\nsub.f64 %fd1, %fd2, %fd3;"),
                         ["mul.f32", "add.ftz.f32", "sub.f64"])

    def test_objects_hold_machine_code_for_each_architecture(self):
        if not Path(CUOBJDUMP).exists():
            self.skipTest("no cuobjdump (setup.sh --tests)")
        for source in SOURCES:
            listing = subprocess.run([CUOBJDUMP, "-lelf", "-lptx", FOLDER / f"{source.stem}.o"],
                                     capture_output=True, text=True, check=True).stdout
            self.assertEqual(set(re.findall(r"sm_(\w+)\.cubin", listing)), set(ARCHITECTURES), source.name)
            self.assertEqual(set(re.findall(r"sm_(\w+)\.ptx", listing)), {ARCHITECTURES[-1]}, source.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
