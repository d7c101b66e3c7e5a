#!/usr/bin/env python3
"""Tests what report.py shows of all ranks over made-up runs: the timeline of a traced step."""
import resource
import unittest

from made_up_runs import plain_run, stage_spans, write_lines, write_trace
from page_case import PageTest

import step_traces

MAX_SECONDS = 5


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
        # waits; stage 1 takes 853, 100 of them waits, and records nothing until stage 0 has ended.
        self.assertEqual([row["waits_ms"] for row in traces["rows"]], [{"pp": 0.349}, {"pp": 0.1}])
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


if __name__ == "__main__":
    unittest.main()
