"""Tasks evaluated inside of a run: the results of `eval` on the checkpoint of the same step, on every mesh, and a training
that they do not change."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

import run
from layouts_test import LAYOUTS, PIPELINE, SCHEDULE

EVAL = pathlib.Path(os.environ["ARGOSY_BIN"]) / "eval"
HARNESS = run.SOURCE / "tests" / "eval" / "harness"
TASKS = [HARNESS / f"{name}.jsonl" for name in ("choices", "texts", "words")]
LENGTH = 32  # training.seq_len: longer texts are cut
TOLERANCE = 1e-5  # relative, in float32

ZBV = {PIPELINE: 2, SCHEDULE: "ZBVZeroBubble"}
CHOSEN = {"fsdp2": LAYOUTS["fsdp2"], "cp2": LAYOUTS["cp2"], "tp2": LAYOUTS["tp2"], "pp2_zbv": (2, ZBV)}


class Evaluation(run.PretrainTest):
    def evaluated(self, num_ranks, dump, **settings):
        settings = {"evaluation__tasks": ",".join(map(str, TASKS)), "evaluation__freq": 2, "evaluation__limit": 12,
                    "evaluation__tokenizer": "bytes", "training__steps": 3, "training__global_batch_size": 8} | settings
        return self.steps_of(num_ranks, dump, **settings)

    def of_eval(self, model):
        output = self.folder / "results.json"
        subprocess.run([EVAL, "--model", model, "--tasks", ",".join(map(str, TASKS)), "--output", output, "--limit", "12",
                        "--tokenizer", "bytes", "--max-length", str(LENGTH)], check=True, capture_output=True)
        results = json.loads(output.read_text())["results"]
        return {task: {key.removesuffix(",none"): value for key, value in values.items() if key != "alias" and value != "N/A"}
                for task, values in results.items()}

    def assert_same(self, found, expected, message):
        self.assertEqual(list(found), list(expected), message)
        for task, values in expected.items():
            self.assertEqual(set(found[task]), set(values), message)
            for key, value in values.items():
                self.assertAlmostEqual(found[task][key], value, delta=TOLERANCE * abs(value), msg=f"{message} {task} {key}")

    def test_equals_eval_on_every_mesh_and_does_not_change_training(self):
        expected = self.evaluated(1, "one", checkpoint__enable=True, checkpoint__interval=1)
        self.assertEqual([step["step"] for step in expected if "evaluation" in step], [2, 3])
        self.assert_same(expected[2]["evaluation"], self.of_eval(self.folder / "one" / "checkpoint" / "step-00000003"), "eval")
        for step in expected[1:]:
            self.assertGreater(step["time_ms"]["evaluation"], 0)
        runs = run.at_once([lambda name=name: self.evaluated(CHOSEN[name][0], name, **CHOSEN[name][1]) for name in CHOSEN],
                           workers=2)
        for name, steps in zip(CHOSEN, runs):
            for one, other in zip(steps[1:], expected[1:]):
                self.assert_same(one["evaluation"], other["evaluation"], name)
        for name in ("fsdp2", "pp2_zbv"):
            without = self.evaluated(2, f"without_{name}", evaluation__tasks="", **CHOSEN[name][1])
            self.assertEqual([(step["loss"], step["grad_norm"]) for step in dict(zip(CHOSEN, runs))[name]],
                             [(step["loss"], step["grad_norm"]) for step in without], name)
            self.assertNotIn("evaluation", without[-1])

    def test_a_signal_ends_it(self):
        """The run ends with the step, which is saved, and without a result. The whole evaluation of records that all differ takes
        seconds."""
        texts = self.folder / "long.jsonl"
        texts.write_text("".join(json.dumps({"tokens": [n // 251] + [i % 251 for i in range(n, n + 32)]}) + "\n" for n in range(20_000)))
        job = self.start(2, *self.small(evaluation__tasks=texts, evaluation__freq=2, training__local_batch_size=1,
                                        training__seq_len=32, training__steps=9, checkpoint__enable=True))
        done = self.stop_in_step_2_of_9(job)
        self.assertEqual(done.stderr.count("a signal ends the evaluation of tasks, without a result"), 1, done)
        self.assertEqual(["evaluation" in step for step in self.steps()], [False, False])

    def test_a_signal_before_the_tasks_are_read(self):
        job = self.start(2, *self.small(evaluation__tasks=TASKS[0], evaluation__tokenizer="bytes", checkpoint__enable=True))
        while not (pid := job.rank_pids().get(1)) or not run.catches(pid, signal.SIGTERM):
            self.assertIsNone(job.mpirun.poll(), "the job ended early")
            time.sleep(0.01)
        run.send(pid, signal.SIGTERM)
        done = job.finish()
        self.assert_code(done, 75)
        self.assertIn("stopped by a signal before step 1 of 4", done.stderr)

    def test_mistakes(self):
        broken = self.folder / "broken.jsonl"
        broken.write_text('{"query": "a", "choices": ["b", "c"], "gold": 0}\n{"query": 1}\n')
        for parts, settings in (([f"{broken}:2"], {"evaluation__tasks": broken, "evaluation__tokenizer": "bytes"}),
                                (["evaluation.tokenizer", f"{TASKS[0]}:1"], {"evaluation__tasks": TASKS[0]}),
                                (["gsm8k.jsonl generates texts", "with eval"],
                                 {"evaluation__tasks": f"gsm8k={HARNESS}/gsm8k.jsonl", "evaluation__tokenizer": "bytes"}),
                                (["none.jsonl"], {"evaluation__tasks": self.folder / "none.jsonl"})):
            done = self.run_ranks(1, *self.small(**settings))
            self.assert_one_error(done, 2, *parts)
        done = self.run_ranks(1, *self.small(evaluation__freq=3, training__steps=1))
        self.assertIn("[evaluation] has no effect: evaluation.tasks is empty", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
