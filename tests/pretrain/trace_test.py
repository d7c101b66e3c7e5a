"""Traces of steps, and what jobs/merge_traces.py finds in broken ones."""
import copy
import json
import re
import subprocess
import sys
import unittest

import run

sys.path.insert(0, str(run.SOURCE / "jobs"))
import merge_traces  # noqa: E402

MESHES = {"dp_shard": {}, "tp": {"parallelism__tensor_parallel_degree": 2}, "pp": {"parallelism__pipeline_parallel_degree": 2}}


class TraceTest(run.PretrainTest):
    def trained(self, name, **settings):
        """The steps of a run, and its log."""
        done = self.run_ranks(2, *self.small(name, training__seq_len=64, **settings))
        self.assert_code(done, 0)
        return self.steps(name), done.stderr

    def traces(self, name, step):
        return merge_traces.read(self.folder / name / "profile_traces" / f"step-{step:08}")

    def test_traces_of_real_steps(self):
        for axis, settings in MESHES.items():
            with self.subTest(axis):
                traced, log = self.trained(axis, profiling__enable_profiling=True, profiling__profile_freq=2, **settings)
                if axis != "dp_shard":
                    plain, _ = self.trained(f"plain_{axis}", **settings)
                    self.assertEqual([step["loss"] for step in traced], [step["loss"] for step in plain])
                folders = sorted(path.name for path in (self.folder / axis / "profile_traces").iterdir())
                self.assertEqual(folders, ["step-00000002", "step-00000004"])
                traces = self.traces(axis, 4)
                self.assertEqual(sorted(traces), ["rank-00000.json", "rank-00001.json"])
                self.assertEqual(list(merge_traces.faults_of(traces)), [])
                self.check_names(axis, traces)
                self.check_clock(traces)
                self.check_memory(traces["rank-00000.json"], traced[3])
                if axis == "tp":
                    self.check_exposed(traced[1], log)
                if axis == "dp_shard":
                    self.check_merged(axis)

    def check_exposed(self, step, log):
        """The log has the exposed time of each collective."""
        text = re.search(r"exposed in step 2 on rank 0: (.*)", log)
        self.assertIsNotNone(text, log)
        rows = {name: (float(ms), int(number)) for name, ms, number
                in re.findall(r"([^;]+?) ([\d.e-]+) ms \((\d+)\)", text[1].replace("; ", ";"))}
        # Each of 4 layers, with a gather for the weights' gradients of the first products.
        numbers = {"tp all-gather of wq, wk, wv": 8, "tp reduce-scatter of wq, wk, wv": 4, "tp reduce-scatter of wo": 4,
                   "tp all-gather of wo": 4, "tp reduce-scatter of tok_embeddings": 1}
        self.assertEqual({name: rows[name][1] for name in numbers}, numbers, text[1])
        exposed = step["time_ms"]["exposed"]
        for group in ("tp", "world"):
            found = sum(ms for name, (ms, _) in rows.items() if name.startswith(group + " "))
            self.assertTrue(0 < found < step["time_ms"]["total"], (found, exposed, text[1]))

    def check_names(self, axis, traces):
        for events in traces.values():
            names = [event["name"] for event in events if event["ph"] == "X"]
            for beginning in ("Forward of stage", "BackwardInput of stage", "the optimizer's update", f"submit {axis} ",
                              f"wait {axis}", "submit world all-reduce"):
                self.assertTrue(any(name.startswith(beginning) for name in names), beginning)
            flights = [event for event in events if event["ph"] == "b"]
            self.assertEqual(len([name for name in names if name.startswith("submit ")]), len(flights))

    def check_clock(self, traces):
        """The total of a step is summed over all ranks: no rank ends its wait before the last one has submitted."""
        def times(events, beginning):
            return [(event["ts"], event["ts"] + event["dur"]) for event in events
                    if event["ph"] == "X" and event["name"].startswith(beginning)]
        submitted = max(times(events, "submit world all-reduce")[0][0] for events in traces.values())
        for events in traces.values():
            waited = [end for begin, end in times(events, "wait world") if begin >= 0][0]
            self.assertGreater(waited, submitted - 2000, "clocks differ by more than 2 ms")

    def check_memory(self, events, step):
        """The curve keeps below the step's peak and, where activations pile up, comes near it."""
        curve = [event["args"]["bytes"] / 2**30 for event in events if event["ph"] == "C"]
        operations = [event for event in events if event["ph"] == "X" and " of stage " in event["name"]]
        self.assertEqual(len(curve), len(operations))
        self.assertLessEqual(max(curve), step["memory_peak_gib"])
        self.assertGreater(max(curve), 0.6 * step["memory_peak_gib"])
        self.assertLess(min(curve), max(curve))

    def check_merged(self, name):
        folder = self.folder / name / "profile_traces/step-00000004"
        done = subprocess.run([run.SOURCE / "jobs/merge_traces.py", folder], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        merged = json.loads((folder / "merged.json").read_text())["traceEvents"]
        self.assertEqual({event["pid"] for event in merged}, {0, 1})
        self.assertEqual(len(merged), sum(map(len, self.traces(name, 4).values())))
        self.check_faults(self.traces(name, 4))
        other = folder / "rank-00001.json"
        other.write_text(other.read_text().replace('"otherData":{"id":"', '"otherData":{"id":"9'))
        done = subprocess.run([run.SOURCE / "jobs/merge_traces.py", folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds the traces of 2 runs", done.stderr)
        (folder / "rank-00001.json").write_text("{")
        done = subprocess.run([run.SOURCE / "jobs/merge_traces.py", folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(subprocess.run([run.SOURCE / "jobs/merge_traces.py", self.folder], capture_output=True).returncode, 2)

    def check_faults(self, good):
        """Each broken trace has the fault that was planted."""
        def first(events, phase):
            return next(event for event in events if event["ph"] == phase)

        def overlapping(events):
            spans = [event for event in events if event["ph"] == "X"]
            outer, inner = next((outer, inner) for outer in spans for inner in spans if outer["tid"] == inner["tid"] and inner["dur"] > 0 and
                                outer["ts"] < inner["ts"] and inner["ts"] + inner["dur"] < outer["ts"] + outer["dur"])
            outer["dur"] = inner["ts"] + inner["dur"] / 2 - outer["ts"]

        for fault, spoil in (
                ("ends after the span around it", overlapping),
                ("ends before it begins", lambda events: first(events, "X").update(dur=-1)),
                ("never ends", lambda events: events.remove(first(events, "e"))),
                ("begins twice", lambda events: events.insert(events.index(first(events, "b")), dict(first(events, "b")))),
                ("-5 bytes", lambda events: first(events, "C")["args"].update(bytes=-5)),
                ("goes back in time", lambda events: first(events, "C").update(ts=1e18)),
                ("has the events of 2 ranks", lambda events: first(events, "X").update(pid=7))):
            with self.subTest(fault):
                spoiled = copy.deepcopy(good)
                spoil(spoiled["rank-00000.json"])
                self.assertTrue(any(fault in found for found in merge_traces.faults_of(spoiled)), list(merge_traces.faults_of(spoiled)))
        twice = copy.deepcopy(good)
        twice["rank-00001.json"] = copy.deepcopy(good["rank-00000.json"])
        self.assertTrue(any("are both of rank 0" in found for found in merge_traces.faults_of(twice)))


if __name__ == "__main__":
    unittest.main()
