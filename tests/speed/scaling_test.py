"""The scaling of cost: its theory, its figures, and two of its sweeps at their smallest points."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "jobs/python")]
import plot  # noqa: E402
import results  # noqa: E402
import scaling  # noqa: E402
import theory  # noqa: E402
from runs import Sizes  # noqa: E402

SIZES = Sizes(dim=10, layers=2, heads=1, hidden=20, vocab=100, seq=8, batch=3)
PARAMETERS = 100 * 10 + 2 * (4 * 100 + 3 * 200 + 20) + 100 * 10 + 10


class TheoryTest(unittest.TestCase):
    def test_exponents_are_those_of_powers(self):
        xs = [1, 2, 8, 10]
        for power in (-1, 0, 1.5):
            for found in theory.exponents(xs, [3 * x**power for x in xs])[1:]:
                self.assertAlmostEqual(found, power)

    def test_states_are_16_bytes_per_parameter_and_18_in_bf16_divided_by_the_ranks(self):
        self.assertEqual(theory.state_bytes(SIZES, 1, "fp32"), 16 * PARAMETERS)
        self.assertEqual(theory.state_bytes(SIZES, 4, "bf16"), 18 * PARAMETERS / 4)

    def test_recompute_keeps_the_activations_of_its_mode(self):
        tokens = 2 * 8 * 3
        self.assertEqual(theory.activation_bytes(SIZES, "fp32", "none"), 4 * tokens * (80 + 60))
        self.assertEqual(theory.activation_bytes(SIZES, "bf16", "selective"), 2 * tokens * (60 + 40))
        self.assertEqual(theory.activation_bytes(SIZES, "bf16", "full"), 2 * tokens * 10)

    def test_growth_above_the_theory_is_named(self):
        sweep = scaling.Sweep("layers", "Layers", "layers", [scaling.Point(x, SIZES) for x in (1, 2, 4)])
        linear = scaling.Quantity("step", "ms", [1, 2.1, 4.3], [1, 2, 4], 0.15)
        self.assertEqual(scaling.faster(sweep, [linear]), [])
        sentence, = scaling.faster(sweep, [scaling.Quantity("step", "ms", [1, 2, 8], [1, 2, 4], 0.15)])
        self.assertIn("step from 2 to 4 grows by an exponent 1.00 above", sentence)

    def test_memory_that_falls_slower_than_the_theory_is_named(self):
        sweep = scaling.Sweep("ranks", "Ranks", "ranks", [scaling.Point(x, SIZES, x) for x in (1, 2)])
        self.assertEqual(len(scaling.faster(sweep, [scaling.Quantity("tensors", "MiB", [8, 8], [8, 4], 0.05)])), 1)


class PlotTest(unittest.TestCase):
    def test_a_power_is_a_straight_line_within_the_panel(self):
        line = plot.Line("a < b", [(x, x**2) for x in (1, 10, 100)])
        root = ElementTree.fromstring(plot.svg("title", [plot.Panel("x", "y", [line])]))
        name = "{http://www.w3.org/2000/svg}"
        (x1, y1), (x2, y2), (x3, y3) = [(float(mark.get("cx")), float(mark.get("cy")))
                                        for mark in root.iter(name + "circle")]
        self.assertAlmostEqual(x2, (x1 + x3) / 2, delta=0.11)
        self.assertAlmostEqual(y2, (y1 + y3) / 2, delta=0.11)
        self.assertTrue(0 < x1 < x3 < plot.PANEL_WIDTH and 0 < y3 < y1 < plot.PANEL_HEIGHT)
        self.assertIn("a < b", [text.text for text in root.iter(name + "text")])

    def test_numbers_are_short(self):
        self.assertEqual([plot.number(value) for value in (0.5, 128, 2048, 20000, 3e6)],
                         ["0.5", "128", "2048", "20k", "3M"])


class PublishTest(unittest.TestCase):
    def test_every_place_is_there_once(self):
        text = "".join(page.read_text() for page in results.FOLDER.glob("*.md"))
        for place in ("comparison", "scaling", "convert-disk", "convert-memory", "harness", "scale"):
            self.assertEqual(text.count(f"<!-- results: {place} -->"), 1)

    def test_only_the_named_place_changes(self):
        text = "a\n<!-- results: {0} -->\n{1}\n<!-- end of results -->\n"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "PAGE.md"
            file.write_text(text.format("one", "old") + text.format("two", "old"))
            with mock.patch.object(results, "FOLDER", pathlib.Path(folder)):
                results.publish("two", "new")
                self.assertEqual(file.read_text(), text.format("one", "old") + text.format("two", "\nnew\n"))
                with self.assertRaises(ValueError):
                    results.publish("three", "new")


class WholeTest(unittest.TestCase):
    def test_two_sweeps(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, HERE / "scaling.py", "--quick", "--sweep=sequence", "--sweep=ranks",
                       "--dtype=fp32", "--output", folder]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            table = (pathlib.Path(folder) / "table.md").read_text()
            for name in ("sequence", "ranks"):
                ElementTree.parse(pathlib.Path(folder) / f"{name}.svg")
        self.check_rows([line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")])

    def check_rows(self, rows):
        """Tensors take as much as the theory says, or less."""
        rows = [[cell.strip() for cell in row] for row in rows]
        column = rows[0].index("tensors MiB")
        numbers = [row for row in rows if row[0].isdigit()]
        self.assertEqual([row[0] for row in numbers], ["128", "256", "1", "2"])
        for row in numbers:
            measured, right = float(row[column]), float(row[column + 1])
            self.assertLess(measured, 1.05 * right)
            self.assertGreater(measured, 0.6 * right)


if __name__ == "__main__":
    unittest.main()
