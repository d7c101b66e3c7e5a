#!/usr/bin/env python3
"""Tests what report.py shows of the experts of made-up runs: curves, the heat map of experts by layer, and forced balance."""
import base64
import json
import random
import resource
import statistics
import unittest

from made_up_runs import plain_run, rank_line, sparse_run, write_lines
from page_case import NODE, PageTest

import expert_loads

MAX_SECONDS, MAX_MAP_BYTES = 10, 500_000

# Of each heat map, the texts of its cells as a key reads them, and what its slider says.
SHOW = """
const maps = elements.filter((one) => one.parts[".plot"]?.on.keydown && one.parts[".plot"].parts.canvas);
const press = (plot, key) => plot.send("keydown", {key});
const text = (plot) => plot.parts["svg"].innerHTML;
console.log(JSON.stringify({charts: charts.map(({spec}) => spec.title), maps: maps.map((section) => {
    const plot = section.parts[".plot"], tip = section.parts[".tip"], slider = section.parts.input, cells = [];
    for (const key of ["Home", "ArrowRight", "End", "ArrowDown"]) {
        press(plot, key);
        cells.push(tip.innerHTML.replace(/<[^>]*>/g, " ").trim().replace(/  +/g, "|"));
    }
    const found = {title: /<h3>(.*?)<\\/h3>/.exec(section.innerHTML)[1], cells, labels: text(plot).match(/<text[^>]*>[^<]*/g).map((one) => one.replace(/.*>/, "")),
                   pixels: [...plot.parts.canvas.pixels], chosen: plot.parts[".chosen"].attributes};
    if (slider) {
        found.newest = section.parts.output.textContent;
        slider.value = "0";
        slider.send("input");
        Object.assign(found, {oldest: section.parts.output.textContent, words: section.parts[".scale + .about"].textContent,
                              before: [...plot.parts.canvas.pixels]});
    }
    return found;
})}));
"""


class Experts(PageTest):
    def run_data(self):
        return self.page(self.folder / "run")["runs"][0]

    def loads(self, stretch, experts):
        """The loads over the mean that the bytes of a stretch stand for, by layer."""
        cells = base64.b64decode(stretch["cells"], b"+-")
        values = [2 ** (experts["octaves"] * (byte - 128) / 127) if byte else 0 for byte in cells]
        return [values[at:at + experts["num_experts"]] for at in range(0, len(values), experts["num_experts"])]

    def test_curves_and_cells(self):
        counts = [[40, 10, 20, 10], [0, 79, 1, 0]]
        lines = sparse_run(self.folder / "run", 25, [1, 3], lambda step: counts)
        run = self.run_data()
        series = {name: values["mean"] for name, values in run["points"]["series"].items() if name.startswith("experts.")}
        self.assertEqual(series, {name: [value] * 25 for name, value in {
            "experts.load.worst": 3.95, "experts.load.median": 2.975, "experts.entropy.lowest": 1.51, "experts.entropy.highest": 1.53,
            "experts.unused": 2, "experts.bias_range": 0.06 + 0.1, "experts.step_loss": 0.01}.items()})
        self.assertEqual(dict(run["overview"])["Experts"],
                         "largest load 3.95 times the mean (layer 3 of 2 with experts), 2 experts without tokens in the newest step")
        experts = run["experts"]
        self.assertEqual((experts["layers"], experts["num_experts"], experts["forced"]), ([1, 3], 4, False))
        self.assertEqual([(one["first"], one["last"], one["steps"]) for one in experts["stretches"]], [(1, 1, 1), (10, 10, 1), (20, 20, 1)])
        for row, found in zip([[2, 0.5, 1, 0.5], [0, 3.95, 1 / 8, 0]], self.loads(experts["stretches"][-1], experts)):
            for value, cell in zip(row, found):
                self.assertAlmostEqual(cell, value, delta=0.01 * value)
        self.assertEqual(len(lines), 25)

    def test_a_stretch_has_the_sums_of_its_steps(self):
        draw = random.Random(7)
        of_step = {step: [[draw.randrange(1, 50) for _ in range(8)] for _ in range(3)] for step in range(1, 1001)}
        sparse_run(self.folder / "run", 1000, [0, 1, 2], of_step.__getitem__, log_freq=5)
        experts = self.run_data()["experts"]
        stretches = experts["stretches"]
        self.assertTrue(expert_loads.MAX_STRETCHES / 2 <= len(stretches) <= expert_loads.MAX_STRETCHES)
        self.assertEqual(sum(one["steps"] for one in stretches), 201)
        for one in stretches:
            steps = [step for step in of_step if one["first"] <= step <= one["last"] and (step == 1 or step % 5 == 0)]
            self.assertEqual(len(steps), one["steps"])
            for layer, found in enumerate(self.loads(one, experts)):
                sums = [sum(of_step[step][layer][expert] for step in steps) for expert in range(8)]
                for value, cell in zip(sums, found):
                    self.assertAlmostEqual(cell, value / statistics.fmean(sums), delta=0.01 * cell)

    def test_a_large_model_stays_small(self):
        """94 layers of 128 experts."""
        draw = random.Random(3)
        tokens = [[draw.randrange(0, 900) for _ in range(128)] for _ in range(94)]
        sparse_run(self.folder / "run", 600, list(range(94)), lambda step: tokens)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        experts = self.run_data()["experts"]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, MAX_SECONDS)
        self.assertLess(len(json.dumps(experts)), MAX_MAP_BYTES)
        self.assertEqual((len(experts["stretches"]), experts["stretches"][-1]["last"]), (16, 600))

    def test_replaced_steps_do_not_count(self):
        """A run that repeats steps from 21 on, with other counts."""
        old = sparse_run(self.folder / "old", 40, [0], lambda step: [[9, 0, 0, 0]])
        new = sparse_run(self.folder / "run", 30, [0], lambda step: [[1, 1, 1, 1]])
        write_lines(self.folder / "run/metrics.jsonl", [*old[:40], *new[20:]])
        experts = self.run_data()["experts"]
        self.assertEqual([one["first"] for one in experts["stretches"]], [1, 10, 20, 30])
        self.assertEqual([[round(load) for load in self.loads(one, experts)[0]] for one in experts["stretches"][2:]], [[4, 0, 0, 0], [1, 1, 1, 1]])

    def test_damaged_lines(self):
        """Nulls and lists of other sizes: the rest of the page stays."""
        lines = plain_run(self.folder / "run", 8)
        for line, experts in zip(lines, (None, {}, {"layers": [0], "counts": [[1, None]]}, {"layers": [0, 1], "counts": [[1]], "entropy": [None]},
                                         {"layers": [0, 1], "counts": [[1, 2], [3]]},
                                         {"layers": [0], "counts": []}, {"layers": [0], "counts": [3]}, {"load_max_over_mean": [None], "unused": None})):
            line["experts"] = experts
        write_lines(self.folder / "run/metrics.jsonl", lines)
        run = self.run_data()
        self.assertEqual((run["experts"], run["num_steps"], dict(run["overview"])["Experts"]), ({}, 8, "unknown"))

    def test_forced_balance_is_in_the_title(self):
        sparse_run(self.folder / "run", 20, [0], lambda step: [[4, 4]], forced_balance=True)
        run = self.run_data()
        self.assertEqual((run["name"], run["experts"]["forced"]), ("run (FORCED BALANCE of experts)", True))
        self.assertIn("<title>run (FORCED BALANCE of experts)</title>", (self.folder / "page.html").read_text())
        self.assertTrue(dict(run["overview"])["Experts"].startswith("FORCED BALANCE: "))

    @unittest.skipUnless(NODE, "there is no Node.js to run the page's script")
    def test_heat_maps_without_a_browser(self):
        """Both heat maps of a page: of the ranks, and of the experts, whose slider shows the first stretch."""
        sparse_run(self.folder / "run", 20, [1, 3], lambda step: [[8, 8, 8, 8], [0, 64, 16, 16]] if step == 20 else [[1, 1, 0, 2], [3, 3, 3, 3]])
        write_lines(self.folder / "run/ranks.jsonl", [{"hosts": ["n1", "n2"], "host_of_rank": [0, 1], "mesh": {}}, rank_line(10, [100.0, 150.0]),
                                                      rank_line(20, [100.0, 100.0])])
        found = self.drawn(self.folder / "run", script=SHOW)
        self.assertIn("Largest load of an expert", found["charts"])
        self.assertIn("Experts without tokens", found["charts"])
        ranks, experts = found["maps"]
        self.assertEqual(ranks["title"], "Times of the ranks")
        self.assertEqual(ranks["cells"][0], "rank 0 on n1|steps 1 to 10|20 % less than the median|median of the ranks: 125 ms a step")
        self.assertEqual(ranks["labels"][:2], ["n1", "n2"])
        self.assertEqual(experts["title"], "Load of the experts by layer")
        self.assertEqual(experts["cells"], ["layer 1, expert 0|step 20|1 times the mean of the layer", "layer 1, expert 1|step 20|1 times the mean of the layer",
                                            "layer 1, expert 3|step 20|1 times the mean of the layer", "layer 3, expert 3|step 20|0.66 times the mean of the layer"])
        self.assertEqual(experts["labels"][:3], ["layer 1", "layer 3", "0"])
        self.assertEqual((experts["newest"], experts["oldest"]), ("step 20", "step 1"))
        self.assertEqual(experts["words"], "Layer 1, expert 3 has the largest load: 2 times the mean of the layer. 1 of 8 experts have no tokens.")
        middle, none = [128, 128, 128, 255], [0, 0, 0, 0]
        self.assertEqual(experts["pixels"][:20], [*middle * 4, *none])
        self.assertGreater(experts["pixels"][20], 180)  # 2.67 times the mean
        self.assertEqual(experts["before"][4:12], [*middle, *none])


if __name__ == "__main__":
    unittest.main()
