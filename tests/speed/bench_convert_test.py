"""The benchmark of convert-checkpoint at a tiny size: it runs, verifies the converted model, and compares times with
its targets."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bench_convert  # noqa: E402

try:
    import h5py  # noqa: F401
    import safetensors  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the peer")
    sys.exit(77)


class TableTest(unittest.TestCase):
    def judge(self, cp, peer):
        times = {"full -> hf": {"ours": [2.0, 1.0], "cp, then sync": [cp], "cp": [0.1], "peer": [peer]}}
        return bench_convert.table(times, 3e9)

    def test_targets_apply_to_the_best_rounds(self):
        text, missed = self.judge(cp=0.7, peer=2.0)
        self.assertEqual(missed, [])
        self.assertIn("| 3 ", text)
        self.assertIn("0.70 x", text)
        self.assertEqual(len(self.judge(cp=0.69, peer=1.9)[1]), 2)


class PeerTest(unittest.TestCase):
    def test_without_its_packages_it_ends_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            python.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")  # it sees no packages
            python.chmod(0o755)
            for peer in (python, pathlib.Path(folder) / "none"):
                done = subprocess.run([sys.executable, HERE / "bench_convert.py", "--bin", "/nowhere",
                                       "--peer-python", peer], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                for part in ("h5py and safetensors", str(peer), "jobs/setup.sh --tests"):
                    self.assertIn(part, done.stderr)

    def test_it_is_found_by_itself(self):
        self.assertEqual(bench_convert.find_peer(None)[0], sys.executable)
        packages = bench_convert.with_packages()["PYTHONPATH"].split(os.pathsep)
        self.assertEqual(packages[0], str(bench_convert.ROOT / ".deps" / "tests"))


class RunTest(unittest.TestCase):
    def test_it_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = pathlib.Path(folder) / "figures.json"
            done = subprocess.run([sys.executable, HERE / "bench_convert.py", "--bin", os.environ["ARGOSY_BIN"],
                                   "--folder", folder, "--layers=1", "--dim=128", "--vocab=200", "--rounds=1",
                                   "--json", figures], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("4 shards -> hf", done.stdout)
            seconds = json.loads(figures.read_text())["seconds"]
            self.assertEqual([len(contenders) for contenders in seconds.values()], [4, 4, 3])


if __name__ == "__main__":
    unittest.main(verbosity=2)
