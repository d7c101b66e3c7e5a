"""loss_curves_test.py PRETRAIN_NO_SCALE: the judgement on made-up curves, and every run of the script for two steps."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import loss_curves  # noqa: E402

BIN = pathlib.Path(os.environ["ARGOSY_BIN"])
NO_SCALE = sys.argv.pop(1)


def made_up(**finals):
    """Right curves of two seeds, but with these final losses for runs that `finals` names: of both seeds, or of each."""
    ends = {run.name: 2.0 if run.right else 2.5 for run in [loss_curves.REFERENCE, *loss_curves.RUNS]}
    ends.update(finals)
    return {name: [[6.0] * 450 + [end] * 50 for end in (ends_of if isinstance(ends_of, tuple) else (ends_of, ends_of))]
            for name, ends_of in ends.items()}


class JudgementTest(unittest.TestCase):
    def test_right_curves_pass(self):
        rows, wrong = loss_curves.judge(made_up(tensorwise=2.019, rowwise=1.981))
        self.assertEqual(wrong, [])
        self.assertEqual(rows[1], "| tensorwise | 6.0000 | 2.0190 | +0.95 | 0.00 |\n")

    def test_the_mean_of_the_seeds_counts(self):
        rows, wrong = loss_curves.judge(made_up(tensorwise=(2.03, 2.002)))
        self.assertEqual((rows[1], wrong), ("| tensorwise | 6.0000 | 2.0160 | +0.80 | 0.70 |\n", []))

    def test_a_recipe_more_than_one_per_cent_away_is_named(self):
        for end in (2.021, 1.979, float("nan")):
            wrong = loss_curves.judge(made_up(mxfp8_cublas=end))[1]
            self.assertEqual([line.split(":")[0] for line in wrong], ["mxfp8_cublas"])

    def test_the_run_without_scales_must_differ(self):
        wrong = loss_curves.judge(made_up(**{"rowwise without scales": 2.01}))[1]
        self.assertEqual(wrong, ["rowwise without scales: the final loss differs by +0.50 % from bfloat16's, less than 1 %"])


class ScriptTest(unittest.TestCase):
    def test_the_script_trains_every_run_and_writes_the_page(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(HERE / "README.md", folder)
            command = [sys.executable, HERE / "loss_curves.py", BIN / "pretrain", NO_SCALE, folder / "runs",
                       "--steps", "2", "--seeds", "1", "--page", folder]
            first = subprocess.run(command, capture_output=True, text=True)
            curves = {run.name: [loss_curves.read_losses(loss_curves.folder_of(run, 0, folder / "runs") / "metrics.jsonl")]
                      for run in [loss_curves.REFERENCE, *loss_curves.RUNS]}
            self.assertEqual({len(curve) for curve, in curves.values()}, {2}, first.stderr)
            self.assertEqual(len({tuple(curve) for curve, in curves.values()}), len(curves))  # each computes in its own way
            rows, wrong = loss_curves.judge(curves)
            self.assertEqual(first.stdout, loss_curves.HEAD + "".join(rows) + "\n".join(wrong) + "\n")
            self.assertEqual(first.returncode, 1 if wrong else 0)
            self.assertIn(loss_curves.HEAD + "".join(rows) + "\n", (folder / "README.md").read_text())
            ElementTree.parse(folder / "loss_curves.svg")
            again = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(again.stdout, first.stdout)  # no run is repeated
            self.assertNotIn("step 1/2", again.stderr)


if __name__ == "__main__":
    unittest.main()
