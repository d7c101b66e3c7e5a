"""jobs/plot_bandwidth.py: what it draws of results, and what it refuses."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

BIN, SOURCE = pathlib.Path(os.environ["ARGOSY_BIN"]), pathlib.Path(os.environ["ARGOSY_SOURCE"])


def results(axes=("all",), types=("float",), bandwidth=1.5):
    def side(size):
        return {"bus_bw": bandwidth * size}

    return {"format": "argosy nccl-bench", "version": 3, "collective": "all_reduce", "backend": "mpi",
            "axes": [{"axis": axis, "num_groups": 1, "group_size": 2} for axis in axes],
            "results": [{"axis": axis, "size": size, "type": type_, "redop": "sum", "root": None,
                         "out_of_place": side(size), "in_place": side(size)}
                        for axis in axes for type_ in types for size in (8, 64, 512)]}


class PlotBandwidth(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.figure = self.folder / "x.svg"

    def plot(self, *found, code=0):
        paths = []
        for index, one in enumerate(found):
            paths.append(self.folder / f"run{index}.json")
            paths[-1].write_text(one if isinstance(one, str) else json.dumps(one))
        done = subprocess.run([sys.executable, SOURCE / "jobs/plot_bandwidth.py", *paths, "--output", self.figure],
                              capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def words_and_curves(self):
        elements = list(ElementTree.parse(self.figure).iter())
        words = [element.text for element in elements if element.tag.endswith("text")]
        return words, [element for element in elements if element.tag.endswith("circle")]

    def test_an_axis_is_a_panel_and_a_placement_a_line(self):
        self.plot(results(axes=("within", "all")))
        words, marks = self.words_and_curves()
        self.assertEqual(len(marks), 2 * 2 * 3)
        self.assertIn("size, bytes (within: 1 x 2 ranks)", words)
        self.assertEqual(words.count("in place"), 2)
        self.assertIn("512", words)

    def test_files_are_compared_by_name(self):
        self.plot(results(), results(bandwidth=2))
        words, marks = self.words_and_curves()
        self.assertEqual(len(marks), 2 * 3)
        self.assertTrue({"run0", "run1"} <= set(words))

    def test_types_are_lines(self):
        self.plot(results(types=("float", "half")))
        self.assertTrue({"in place float sum", "out of place half sum"} <= set(self.words_and_curves()[0]))

    def test_what_is_no_result_is_refused(self):
        self.assertIn("not results that nccl-bench wrote", self.plot({"version": 4}, code=2))
        self.assertIn("run0.json", self.plot("{", code=2))
        self.assertIn("on one rank", self.plot(results(bandwidth=0), code=2))
        self.assertIn("can be told apart", self.plot(results(types=("float", "half", "double")), code=2))
        self.assertFalse(self.figure.exists())

    def test_it_draws_what_nccl_bench_writes(self):
        path = self.folder / "run.json"
        subprocess.run([SOURCE / "jobs/mpirun.sh", "2", BIN / "nccl-bench", "alltoall", "-b", "1K", "-e", "16K", "-f",
                        "4", "-n", "3", "--json", path], check=True, capture_output=True, timeout=60)
        self.plot(path.read_text())
        words, marks = self.words_and_curves()
        self.assertEqual(len(marks), 2 * 3)
        self.assertTrue({"1K", "4K", "16K", "alltoall over mpi"} <= set(words))


if __name__ == "__main__":
    unittest.main()
