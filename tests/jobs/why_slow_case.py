"""What the tests of why_slow.sh share: its call, over a pretrain with planted slowness. The first argument of the script is the
library of slow_parts.c."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests" / "pretrain"), str(SOURCE / "tests" / "jobs")]
import run  # noqa: E402

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
REAL = pathlib.Path(os.environ["ARGOSY_BIN"])
# The slow rank is rank 1, also of a job of one node. Programs start with the library, and the sanitizers' comes after it.
PRETRAIN = """#!/bin/bash
export LD_PRELOAD={library} ASAN_OPTIONS=verify_asan_link_order=0
[ "${{SLOW_RANK-}}" != "${{OMPI_COMM_WORLD_RANK-}}" ] || export ARGOSY_CPU_KERNELS=portable
exec {real}/pretrain "$@"
"""


class WhySlowTest(run.PretrainTest):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "programs"
        self.bin.mkdir()
        (self.bin / "pretrain").write_text(PRETRAIN.format(library=LIBRARY, real=REAL))
        (self.bin / "pretrain").chmod(0o755)
        (self.bin / "prepare-data").symlink_to(REAL / "prepare-data")

    def script(self, *words, code=0, cwd=None, **environment):
        """Output of why_slow.sh, which it also checks for the exit code."""
        done = subprocess.run([SOURCE / "jobs" / "why_slow.sh", *map(str, words)], text=True, timeout=300, cwd=cwd,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"ARGOSY_BIN": str(self.bin), "ARGOSY_GPUS": "no"} | environment)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout
