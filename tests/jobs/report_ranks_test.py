#!/usr/bin/env python3
"""Tests what report.py shows of all ranks over made-up runs: the timeline of a traced step, and the heat map of ranks.jsonl."""
import base64
import os
import pathlib
import resource
import statistics
import subprocess
import unittest

from made_up_runs import plain_run, rank_line, stage_spans, write_lines, write_trace
from page_case import CHROMIUM, PageTest

import rank_times
import step_traces

MAX_SECONDS = 5

PROBE = """<script>
setTimeout(() => {
    const press = (plot, key) => plot.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    const [timeline] = document.querySelectorAll(".timeline"), [heat] = document.querySelectorAll(".heat"), found = {};
    const tipOf = (plot) => plot.querySelector(".tip").textContent, canvas = heat.querySelector("canvas");
    found.paths = timeline.querySelectorAll("path.bar").length;
    press(timeline, "End");
    found.firstKey = tipOf(timeline);
    press(timeline, "Home");
    press(timeline, "ArrowRight");
    found.bar = tipOf(timeline);
    press(timeline, "ArrowDown");
    press(timeline, "End");
    found.last = tipOf(timeline);
    const labels = () => [...timeline.querySelectorAll("text")].map((one) => one.textContent).join();
    const before = labels();
    press(timeline, "+");
    found.zooms = labels() !== before;
    press(timeline, "Home");
    const inside = () => {
        const x = Number(/M([-\\d.]+)/.exec(timeline.querySelector(".cross").getAttribute("d"))[1]);
        return x >= TIMELINE_LEFT - 1 && x <= timeline.clientWidth - RIGHT + 1;
    };
    found.inside = [inside()];
    press(timeline, "End");
    found.inside.push(inside());
    press(timeline, "Escape");
    found.returns = labels() === before;
    const box = timeline.getBoundingClientRect(), at = (x) => ({clientX: box.left + x, clientY: box.top + 5, pointerId: 1, bubbles: true});
    timeline.setPointerCapture = () => {};
    for (const [name, x] of [["pointerdown", 100], ["pointermove", 104], ["pointerup", 104]]) timeline.dispatchEvent(new PointerEvent(name, at(x)));
    found.rectangle = timeline.querySelector(".zoom").getAttribute("width");
    const pixel = (x, y) => [...canvas.getContext("2d").getImageData(x, y, 1, 1).data];
    found.size = [canvas.width, canvas.height];
    found.colours = [pixel(0, 0), pixel(0, 5), pixel(3, 0)];
    press(heat, "End");
    for (let i = 0; i < 5; ++i) press(heat, "ArrowDown");
    found.cell = tipOf(heat);
    press(heat, "Home");
    found.earlier = tipOf(heat);
    found.words = [differenceText(255, {limit: 100, is_cut: true}, "%"), differenceText(1, {limit: 100, is_cut: false}, "% of the median step"),
                   differenceText(128, {limit: 100, is_cut: true}, "%")];
    document.querySelector('button[data-measure="exposed"]').click();
    found.since = heat.parentElement.textContent;
    press(heat, "End");
    found.exposed = tipOf(heat);
    found.table = heat.parentElement.querySelector("tbody tr").textContent;
    found.nan = [...document.querySelectorAll("svg, .tip, dd, td, p")].some((one) => /NaN|undefined|Infinity/.test(one.outerHTML));
    document.title = JSON.stringify(found);
}, 200);
</script></body>"""


def painted(spans, begin, end):
    """What the innermost span is in each microsecond, found in another way: longer spans are painted first."""
    kinds = [None] * (end - begin)
    for first, last, name in sorted(spans, key=lambda span: span[0] - span[1]):
        first, last = max(first, begin), min(last, end)
        if first < last:
            kinds[first - begin:last - begin] = [step_traces.kind_of(name)] * (last - first)
    return kinds


class Timeline(PageTest):
    def traces(self):
        return self.page(self.folder / "run")["runs"][0]["traces"]

    def pipeline_run(self):
        """Four ranks, two stages; ranks 0 and 2 are the first of their stages. Step 12 is not whole yet."""
        plain_run(self.folder / "run", 12)
        (self.folder / "run/effective.toml").write_text("[parallelism]\npipeline_parallel_degree = 2\n")
        write_lines(self.folder / "run/starts.jsonl", [{"ranks": 4, "mesh": {"pp": 2, "dp_shard": 2}, "first_step": 1, "last_step": 20}])
        for step in (6, 12):
            for rank in range(4 if step == 6 else 2):
                write_trace(self.folder / f"run/profile_traces/step-{step:08}", rank, stage_spans(rank // 2, 3), 4)

    def test_rows_of_a_pipeline(self):
        self.pipeline_run()
        traces = self.traces()
        self.assertEqual((traces["step"], traces["num_ranks"], traces["num_stages"]), (6, 4, 2))
        self.assertEqual([(row["rank"], row["stages"]) for row in traces["rows"]], [(0, [0]), (2, [1])])
        every = [stage_spans(stage, 3) for stage in (0, 1)]
        begin, end = min(span[0] for spans in every for span in spans), max(span[1] for spans in every for span in spans)
        self.assertEqual(traces["length_us"], end - begin)
        for row, spans in zip(traces["rows"], every):
            kinds = painted(spans, begin, end)
            self.assertEqual(row["times_ms"], {kind: kinds.count(kind) / 1000 for kind in set(kinds) - {None}})
            self.assertAlmostEqual(row["idle_ms"], (kinds.count(None) + kinds.count("wait")) / 1000)
            bars = self.bars_of(row)
            for at, kind in enumerate(kinds):
                own = [bar for bar in bars if bar[0] <= at < bar[0] + bar[1]]
                self.assertEqual([traces["kinds"][bar[2]] for bar in own], [kind] if kind else [])
        names = [traces["names"][bar[3]] for bar in self.bars_of(traces["rows"][1])]
        self.assertIn("wait pp, in ReceiveActivation of stage 1 microbatch 0", names)
        self.assertIn("BackwardWeight of stage 1 unit 0 microbatch 2", names)
        # Both stages: 3 * 250 us of work. Stage 0 takes 1102 us from the step's first operation to its last one, 349 of them
        # waits; stage 1 takes 853, 100 of them waits, and then records nothing or waits in its update until stage 0 has ended.
        self.assertEqual([row["waits_ms"] for row in traces["rows"]], [{"pp": 0.349}, {"pp": 0.1, "world": 0.249}])
        self.assertEqual([row["bubble"] for row in traces["rows"]], [round(349 / 1102, 4), self.bubble_of_stage_1(every[1])])

    def bubble_of_stage_1(self, spans):
        kinds = painted(spans, 1000, 2102)
        return round((kinds.count(None) + kinds.count("wait")) / 1102, 4)

    @staticmethod
    def bars_of(row):
        return [row["bars"][at:at + 4] for at in range(0, len(row["bars"]), 4)]

    def test_many_spans(self):
        """100 of 256 ranks would be too many rows, 5000 spans of a rank too many bars; the page stays fast and small."""
        plain_run(self.folder / "run", 1)
        folder = self.folder / "run/profile_traces/step-00000001"
        for rank in range(4):
            spans = [(7 * at, 7 * at + (5 if at % 500 else 7), f"Forward of stage 0 unit {at % 80} microbatch {at // 80}") for at in range(5000)]
            write_trace(folder, rank, [*spans, (40000, 50000, "the optimizer's update")], 4)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        traces = self.traces()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, MAX_SECONDS)
        for row in traces["rows"]:
            bars = self.bars_of(row)
            self.assertEqual(row["num_spans"], 5001)
            self.assertTrue(100 < len(bars) <= step_traces.MAX_BARS_OF_ROW, len(bars))
            self.assertEqual(sum(-name for *_, name in bars if name < 0) + sum(name >= 0 for *_, name in bars), 5001)
            self.assertEqual(bars[-1][:3], [40000, 10000, step_traces.KIND_NUMBERS["optimizer"]])
            for (begin, length, *_), (following, *_) in zip(bars, bars[1:]):
                self.assertLessEqual(begin + length, following + 1)
        self.assertEqual(step_traces.shown_ranks(256, 1), [4 * row for row in range(64)])
        self.assertEqual(step_traces.shown_ranks(100, 1)[:4], [0, 1, 3, 4])

    def test_traces_that_do_not_belong_together(self):
        """A rank's trace of an earlier start hides the step; a broken trace is named."""
        self.pipeline_run()
        folder = self.folder / "run/profile_traces/step-00000006"
        write_trace(folder, 2, stage_spans(1, 3), 4, name="3.5")
        self.assertEqual(self.traces(), {})
        (folder / "rank-00002.json").write_text((folder / "rank-00000.json").read_text()[:-30])
        self.assertIn("cannot read the traces of step 6", self.traces()["error"])
        (folder / "rank-00002.json").write_text((folder / "rank-00000.json").read_text().replace('"dur":100.000', '"dur":1e999'))
        self.assertIn("cannot read the traces of step 6", self.traces()["error"])

    def test_merge_traces_names_the_steps_that_exist(self):
        self.pipeline_run()
        merge = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs/merge_traces.py"
        done = subprocess.run([merge, self.folder / "run/profile_traces/step-6"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"name the folder of a step: {self.folder}/run/profile_traces/step-00000006", done.stderr)

    def test_kinds_of_operations(self):
        for kind, names in {"other": ("Release of stage 0 unit 1", "TakeActivation of stage 1 microbatch 0", "MoveGradient of stage 0 microbatch 2",
                                      "AddTable of stage 1 unit 0"),
                            "transfer": ("Gather of stage 0 unit 1", "SendGradient of stage 1 microbatch 0", "submit tp all-reduce, 1 MB"),
                            "graph": ("launch the graph of forward and backward",),
                            "wait": ("wait pp",), "gpu": ("wait for the GPU",)}.items():
            self.assertEqual({name: step_traces.kind_of(name) for name in names}, dict.fromkeys(names, kind))


class HeatMap(PageTest):
    HOSTS = {"hosts": ["n1", "n2"], "host_of_rank": [0, 0, 0, 0, 1, 1, 1, 1]}

    def rank_times(self, lines):
        (self.folder / "run").mkdir(exist_ok=True)
        write_lines(self.folder / "run/ranks.jsonl", lines)
        return self.page(self.folder / "run")["runs"][0]["rank_times"]

    @staticmethod
    def percents(times, measure):
        """The cells as rows of percents; None: unknown."""
        own = times["measures"][measure]
        data = base64.b64decode(own["cells"], b"+-")
        values = [None if byte == 0 else own["limit"] * (byte - 128) / 127 for byte in data]
        columns = times["num_columns"]
        return [values[row * columns:(row + 1) * columns] for row in range(times["num_rows"])]

    def assert_close(self, times, measure, expected):
        """The cells are `expected`, cut off at the limit, as exactly as a byte can be."""
        limit = times["measures"][measure]["limit"]
        for row, (found, own) in enumerate(zip(self.percents(times, measure), expected)):
            for column, (value, wanted) in enumerate(zip(found, own)):
                place = f"{measure} of row {row} in column {column}"
                self.assertEqual(value is None, wanted is None, place)
                if wanted is not None:
                    self.assertLessEqual(abs(value - max(-limit, min(limit, wanted))), limit / 254 + 1e-9, place)
        self.assertEqual(len(expected), times["num_rows"])

    @staticmethod
    def compute(rank, step):
        return 100.0 + rank % 4 * 0.5 + step % 7 * 0.25 + (12 if rank == 5 else 0)

    def test_cells_and_slowest(self):
        """Rank 5 is slow; the window of step 30 is missing; steps 41 to 60 are trained twice."""
        steps = [10, 20, 40, 50, 60]
        line = {step: rank_line(step, [self.compute(rank, step) for rank in range(8)]) for step in steps}
        again = [rank_line(step, [self.compute(rank, step) + rank for rank in range(8)]) for step in (50, 60)]
        times = self.rank_times([self.HOSTS, *line.values(), {"hosts": ["n3", "n2"], "host_of_rank": self.HOSTS["host_of_rank"]}, *again])
        self.assertEqual((times["first_step"], times["steps_of_column"], times["num_columns"], times["num_rows"]), (1, 10, 6, 8))
        self.assertEqual(times["hosts"], ["n3"] * 4 + ["n2"] * 4)
        shown = [line[10], line[20], None, line[40], *again]
        for measure in ("compute", "data", "exposed"):
            key, expected = measure + "_ms", [[] for _ in range(8)]
            for one in shown:
                middle = statistics.median(one[key]) if one else 0
                whole = (middle if measure == "compute" else statistics.median(one["total_ms"])) if one else 1
                for rank in range(8):
                    expected[rank].append(100 * (one[key][rank] - middle) / whole if one else None)
            self.assert_close(times, measure, expected)
            [medians] = times["measures"][measure]["medians"]
            self.assertEqual([value is None for value in medians], [False, False, True, False, False, False])
            self.assertAlmostEqual(medians[0], statistics.median(line[10][key]), places=2)
        slowest = times["measures"]["compute"]["slowest"]
        self.assertEqual((slowest[0]["rank"], slowest[0]["host"], slowest[0]["share"]), (5, "n2", 100.0))
        self.assertTrue(11 < slowest[0]["mean"] < 14)
        self.assertEqual(times["measures"]["exposed"]["slowest"][0]["rank"], 5)
        self.assertLess(times["measures"]["exposed"]["slowest"][0]["mean"], 0)

    def test_starts_on_other_hosts(self):
        """Rank 0 was slow on n1; since step 31 on other hosts, rank 5. A start with equal hosts goes on."""
        early = [rank_line(step, [150.0, *[100.0] * 7]) for step in (10, 20, 30)]
        late = [rank_line(step, [100.0] * 5 + [120.0, 100.0, 100.0]) for step in (40, 50, 60)]
        stages = self.HOSTS | {"hosts": ["n3", "n4"], "mesh": {"pp": 4}}
        times = self.rank_times([self.HOSTS, *early, stages, late[0], stages, *late[1:]])
        slowest = times["measures"]["compute"]["slowest"]
        self.assertEqual([(one["rank"], one["host"], one["share"]) for one in slowest[:1]], [(5, "n4", 100.0)])
        self.assertEqual([one["mean"] for one in slowest if one["rank"] in (0, 1)], [0, 0])
        self.assertEqual((times["own_column"], times["own_step"], times["num_stages"]), (3, 31, 4))
        # Each stage of the late start has two ranks: 120 and 100 differ by 10/110 from their median.
        expected = [[0.0] * 6 for _ in range(8)]
        expected[0][:3], expected[5][3:], expected[4][3:] = [50] * 3, [100 / 11] * 3, [-100 / 11] * 3
        self.assert_close(times, "compute", expected)
        self.assertEqual(times["measures"]["compute"]["medians"][2], [None, None, None, 110, 110, 110])
        times = self.rank_times([self.HOSTS, *early, stages, *late, stages, rank_line(20, [100.0] * 8)])  # it resumes from an earlier step
        self.assertEqual((times["own_column"], times["own_step"], times["num_columns"]), (1, 11, 2))
        times = self.rank_times([self.HOSTS, *early, stages])
        self.assertEqual((times["own_column"], times["measures"]["compute"]["slowest"]), (3, []))

    def test_unknown_and_equal_times(self):
        """An unknown value, and a line without the key, leave their windows out; equal ranks are not first."""
        lines = [rank_line(step, [100.0] * 5 + [120.0, 100.0, 100.0]) for step in (10, 20, 30)]
        lines[0]["compute_ms"][5] = None
        del lines[1]["compute_ms"]
        slowest = self.rank_times([self.HOSTS, *lines])["measures"]["compute"]["slowest"]
        self.assertEqual((slowest[0]["rank"], slowest[0]["mean"], slowest[0]["share"], len(slowest)), (5, 20.0, 50.0, 8))
        slowest = self.rank_times([self.HOSTS, rank_line(10, [100.0] * 8)])["measures"]["compute"]["slowest"]
        self.assertEqual([one["share"] for one in slowest], [0.0] * 8)

    def test_where_values_are_cut_off(self):
        for time, limit, is_cut in ((150.0, 50, False), (200.0, 100, False), (250.0, 100, True)):
            own = self.rank_times([self.HOSTS, rank_line(10, [time, *[100.0] * 7])])["measures"]["compute"]
            self.assertEqual((own["limit"], own["is_cut"]), (limit, is_cut))

    def test_long_runs(self):
        """1000 windows have at most 200 columns, whose cells are means over their steps."""
        lines = [rank_line(2 * window, [self.compute(rank, window) for rank in range(8)], num_steps=2) for window in range(1, 1001)]
        times = self.rank_times([self.HOSTS, *lines])
        width = times["steps_of_column"]
        self.assertEqual((width, times["num_columns"], times["num_windows"]), (16, 125, 1000))
        expected = [[] for _ in range(8)]
        for column in range(125):
            own = [line["compute_ms"] for line in lines if (line["step"] - 1) // width == column]
            means = [statistics.fmean(values) for values in zip(*own)]
            middle = statistics.median(means)
            for rank in range(8):
                expected[rank].append(100 * (means[rank] - middle) / middle)
            self.assertAlmostEqual(times["measures"]["compute"]["medians"][0][column], middle, delta=0.01)
        self.assert_close(times, "compute", expected)

    def test_windows_as_pretrain_writes_them(self):
        """The first step of a start is a window of its own; a pipeline's stages are compared with themselves."""
        header = self.HOSTS | {"gpu_of_rank": [0, 1, 2, 3] * 2, "mesh": {"pp": 2, "dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 1}}
        times = [self.compute(rank, 1) + (50 if rank < 4 else 0) for rank in range(8)]  # the first stage has more work
        windows = [(1, 1), (10, 9), (20, 10), (30, 10), (31, 1), (40, 9), (50, 10), (60, 10)]
        found = self.rank_times([header, *(rank_line(step, times, num_steps=number) for step, number in windows)])
        self.assertEqual((found["steps_of_column"], found["num_columns"], found["num_windows"], found["num_stages"]), (10, 6, 8, 2))
        middles = [statistics.median(times[:4]), statistics.median(times[4:])]
        self.assert_close(found, "compute", [[100 * (time / middles[rank // 4] - 1)] * 6 for rank, time in enumerate(times)])
        worst = found["measures"]["compute"]["slowest"][0]
        self.assertEqual((worst["rank"], worst["gpu"], worst["host"]), (5, 1, "n2"))
        sparse = self.rank_times([header, *(rank_line(step, times) for step in range(40, 400, 40))])  # every fourth window
        self.assertEqual((sparse["steps_of_column"], sparse["num_columns"]), (40, 9))
        self.assertNotIn(None, self.percents(sparse, "compute")[0])

    def test_many_ranks(self):
        """Beyond 512 rows, a row is a host, or several, and shows its slowest rank."""
        for num_hosts, ranks_per_host, rows in ((64, 8, 512), (100, 8, 100), (600, 2, 300)):
            header = {"hosts": [f"n{host}" for host in range(num_hosts)],
                      "host_of_rank": [host for host in range(num_hosts) for _ in range(ranks_per_host)]}
            times = [100.0] * (num_hosts * ranks_per_host)
            times[33] = 110.0
            found = self.rank_times([header, rank_line(10, times)])
            self.assertEqual((found["num_rows"], found["num_ranks"]), (rows, len(times)))
            row = 33 * rows // len(times)
            percents = self.percents(found, "compute")
            self.assertEqual([at for at, values in enumerate(percents) if abs(values[0]) > 5], [row])
            self.assertAlmostEqual(percents[row][0], 10, places=3)
            self.assertEqual(found["measures"]["compute"]["slowest"][0]["rank"], 33)
        self.assertEqual(found["hosts"][:2], ["n0 to n1", "n2 to n3"])

    def test_broken_lines_and_other_numbers_of_ranks(self):
        """Lines of a start with other ranks are left out; so is what is no number."""
        first = {"hosts": ["n1"], "host_of_rank": [0, 0]}
        broken = rank_line(30, [100.0] * 8) | {"compute_ms": [None, *[100.0] * 7], "data_ms": None}
        times = self.rank_times([rank_line(10, [1.0, 2.0]), first, rank_line(10, [1.0, 2.0]), self.HOSTS, rank_line(20, [100.0] * 8),
                                 broken, {"step": None, "num_steps": 3}])
        self.assertEqual((times["num_ranks"], times["num_windows"], times["first_step"]), (8, 2, 11))
        self.assertEqual(self.percents(times, "compute")[0], [0, None])
        self.assertEqual(self.percents(times, "data")[7][1], None)
        self.assertEqual(self.rank_times([first | {"host_of_rank": [0]}, rank_line(10, [1.0])]), {})
        self.assertEqual(self.rank_times([{"hosts": [], "host_of_rank": [3, 3]}, rank_line(10, [1.0, 2.0])])["hosts"], ["unknown host"] * 2)


@unittest.skipUnless(CHROMIUM, "there is no Chromium to run the page's script")
class Script(PageTest):
    def test_timeline_and_heat_map(self):
        Timeline.pipeline_run(self)
        header = {"hosts": ["gpu-node-with-a-long-name-01", "<b>"], "host_of_rank": [0] * 4 + [1] * 4}
        lines = [rank_line(step, [HeatMap.compute(rank, step) for rank in range(8)]) for step in (10, 20, 30, 50)]
        write_lines(self.folder / "run/ranks.jsonl", [HeatMap.HOSTS, lines[0], header, *lines[1:]])
        found = self.probe(self.folder / "run", script=PROBE)
        self.assertEqual((found["paths"], found["nan"], found["zooms"], found["returns"]), (7, False, True, True))
        self.assertIn("Forward of stage 0 unit 0 microbatch 0", found["bar"])
        self.assertIn("rank 0", found["firstKey"])
        self.assertIn("the optimizer's update", found["firstKey"])
        self.assertEqual((found["inside"], found["rectangle"]), ([True, True], None))
        self.assertIn("rank 2", found["last"])
        self.assertIn("optimizer", found["last"])
        self.assertEqual(found["size"], [5, 8])
        usual, slow, unknown = found["colours"]
        self.assertEqual((usual[3], slow[3], unknown), (255, 255, [0, 0, 0, 0]))
        self.assertGreater(sum(abs(one - other) for one, other in zip(usual, slow)), 150)
        self.assertIn("rank 5 on <b>", found["cell"])
        self.assertIn("steps 41 to 50", found["cell"])
        self.assertRegex(found["cell"], r"steps 41 to 5011\.\d % more than the median")
        self.assertIn("rank 5 in a start on other hosts", found["earlier"])
        self.assertEqual(found["words"], ["at least 100 % more than the median", "100 % of the median step less than the median",
                                          "as the median"])
        self.assertIn("since step 11", found["since"])
        self.assertRegex(found["exposed"], r"\d % of the median step less than the median")
        self.assertTrue(found["table"].startswith("5<b>-"), found["table"])


if __name__ == "__main__":
    unittest.main()
