"""run.sh without a GPU, and the report of run_parts.py over programs that only print: the report's form and results,
that no part stops another, and that the sections of parts that are not run again stay."""
import importlib.util
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA Paper-1, 580.1, 100 MiB, 700.00 W, 1980 MHz, 3201 MHz'\n"
PROGRAMS = {
    "test_kernels_gpu_device": "echo '[  PASSED  ] 12 tests.'",
    "test_cublas_library": "echo '[  FAILED  ] 1 test, listed below:'; echo what was wrong; exit 1",
    "test_nccl_libraries": "sleep 60",
    "kernel_bandwidth": "echo words; echo '| kernel | percent |'; echo '| --- | --- |'; echo '| cast | 70 |'; exit 3",
    "gemm_speed": "echo 'skipped: for this test'; exit 77",
}


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        executable(self.folder / "path" / "nvidia-smi", NVIDIA_SMI)
        for name, text in PROGRAMS.items():
            executable(self.folder / "build" / "tests" / name, f"#!/bin/sh\n{text}\n")
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ |= {"ARGOSY_BUILD": str(self.folder / "build"), "PATH": f"{self.folder}/path:{os.environ['PATH']}"}
        found = importlib.util.spec_from_file_location("run_parts", SOURCE / "tests/gpu/run_parts.py")
        self.parts = importlib.util.module_from_spec(found)
        found.loader.exec_module(self.parts)

    def run_parts(self, *names):
        report = self.parts.Report(self.folder)
        good = [self.parts.run_part(report, name, self.parts.PARTS[name], quick=False) for name in names]
        return good, report.path.read_text()

    def test_without_a_gpu_it_says_so(self):
        executable(self.folder / "path" / "nvidia-smi", "#!/bin/sh\nexit 9\n")
        done = subprocess.run([SOURCE / "tests/gpu/run.sh"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout + done.stderr, "run: there is no GPU here (nvidia-smi names none)\n")

    def test_parts_name_their_build_targets(self):
        done = subprocess.run(["python3", SOURCE / "tests/gpu/run_parts.py", "--targets", "--only", "throughput", "gemm"],
                              capture_output=True, text=True)
        self.assertEqual(done.stdout, "gemm_speed pretrain prepare-data\n")

    def test_a_report_has_every_result(self):
        self.parts.PARTS["nccl"].limit = 1
        self.parts.PARTS["memcheck"].commands = [("no-such-program",)]
        good, text = self.run_parts("kernels", "cublas", "nccl", "bandwidth", "gemm", "memcheck")
        self.assertEqual(good, [True, False, False, False, True, False])
        self.assertTrue(text.startswith("# NVIDIA Paper-1, 20"), text)
        for line in ("| driver | 580.1 |", "| power limit | 700.00 W |", "## kernels: passed, 0 s", "- PASSED: 12 tests",
                     "## cublas: failed (1), 0 s", "what was wrong", "## nccl: over its limit of 1 s, 1 s",
                     "## bandwidth: below its target, 0 s", "| kernel | percent |\n| --- | --- |\n| cast | 70 |",
                     "## gemm: skipped, 0 s", "## memcheck: failed (127)", "| kernels | passed, 0 s |"):
            self.assertIn(line, text)

    def test_sections_of_other_parts_stay(self):
        _, first = self.run_parts("bandwidth")
        _, second = self.run_parts("kernels")
        self.assertIn("## kernels: passed", second)
        self.assertEqual(first.partition("## bandwidth")[2], second.partition("## bandwidth")[2])
        self.assertEqual(self.run_parts("kernels")[1], second)


if __name__ == "__main__":
    unittest.main(verbosity=2)
