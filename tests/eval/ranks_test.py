"""eval on several ranks: the recorded results of lm-evaluation-harness, generated answers among them, those of one process for
every form of a checkpoint, and how it ends after a mistake, damage or a signal."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import harness_test
from harness_test import HARNESS, RECORDED
from run import BIN, SOURCE, EvalTest, favour, random_records, write_model

MPIRUN = SOURCE / "jobs" / "mpirun.sh"
MESHES = {"dp2": (2, []), "shard2": (2, ["--data-parallel-shard-degree", 2]), "tp2": (2, ["--tensor-parallel-degree", 2]),
          "pp2": (2, ["--pipeline-parallel-degree", 2]),
          "tp2_pp2": (4, ["--tensor-parallel-degree", 2, "--pipeline-parallel-degree", 2])}


class Recorded(harness_test.Harness):
    """Texts, choices, words, and public data sets, with samples."""
    launcher = (MPIRUN, "2")

    def test_all(self):
        self.compare(RECORDED["trained"]["fewshot_0"], "--tokenizer", HARNESS, "--tensor-parallel-degree", 2)


class Answers(harness_test.Harness):
    """Generated answers; three replicas divide 8 documents."""
    launcher = (MPIRUN, "3")
    degrees = ()

    def evaluate(self, tasks, *more, **others):
        return super().evaluate(tasks, *more, *self.degrees, **others)

    def test_all(self):
        self.assert_generated_answers()


class AnswersOfTensorRanks(Answers):
    """Two models of two ranks each."""
    launcher = (MPIRUN, "4")
    degrees = ("--tensor-parallel-degree", 2)


class AnswersOfShards(Answers):
    """Two ranks gather each unit's weights for each step, also while one of them has no text left."""
    launcher = (MPIRUN, "2")
    degrees = ("--data-parallel-shard-degree", 2)


class AnswersOfStages(Answers):
    launcher = (MPIRUN, "2")
    degrees = ("--pipeline-parallel-degree", 2)


class AnswersOfShardsAndStages(Answers):
    launcher = (MPIRUN, "4")
    degrees = ("--pipeline-parallel-degree", 2, "--data-parallel-shard-degree", 2)


for name in dir(harness_test.Harness):  # only test_all runs here
    if name.startswith("test_"):
        for suite in (Recorded, Answers):
            setattr(suite, name, None)


class Ranks(EvalTest):
    environment = {"CUDA_VISIBLE_DEVICES": ""}

    def setUp(self):
        super().setUp()
        write_model(self.model)
        self.records = random_records(33, 60)

    def on(self, num_ranks):
        self.launcher = (MPIRUN, str(num_ranks))

    def on_two_nodes(self):
        """Rank R works in folder/R."""
        for rank in range(2):
            (self.folder / str(rank)).mkdir()
        self.launcher = (MPIRUN, "2", "sh", "-c", 'cd "$0/$OMPI_COMM_WORLD_RANK" && exec "$@"', self.folder)

    def results(self, *arguments, model=None):
        return self.evaluate(self.task(self.records), *arguments, model=model)[0]["results"]["task"]

    def convert(self, form, *more):
        path = self.folder / form
        subprocess.run([BIN / "convert-checkpoint", self.model, path, "--to", form, *more], check=True, capture_output=True)
        return path

    def test_every_mesh_and_form_gives_the_results_of_one_process(self):
        expected = self.results()
        forms = [self.model, self.convert("full"), self.convert("sharded", "--shards", "3")]
        for i, (name, (num_ranks, degrees)) in enumerate(MESHES.items()):
            with self.subTest(name):
                self.on(num_ranks)
                found = self.results(*degrees, model=forms[i % 3])
                for key in ("token_perplexity,none", "token_accuracy,none"):
                    self.assertAlmostEqual(found[key] / expected[key], 1, delta=1e-6)

    def test_rank_0_alone_writes(self):
        self.on(2)
        done = self.run_program("--model", self.model, "--tasks", self.task([self.records[0], [1]]), "--output", "-")
        self.assertEqual(json.loads(done.stdout)["n-samples"]["task"], {"original": 2, "effective": 1})
        self.assertEqual(done.stderr.count("|task |"), 2)
        self.assertEqual(done.stderr.count("1 of 2 records are left out"), 1)

    def test_mistakes(self):
        good = ["--model", self.model, "--tasks", self.task(self.records)]
        self.expect_error(*good, "--output", self.output, "--tensor-parallel-degree", 2, parts=["2 ranks", "the 1 that were"])
        self.on(2)
        self.expect_error(*good, "--output", self.output, "--tensor-parallel-degree", 3, parts=["3 ranks", "the 2 that were"])
        self.expect_error(*good[:2], "--tasks", "-", "--output", self.output, parts=["stdin"])
        generate = ["--generate", "a", "--tokenizer", "bytes"]
        self.expect_error(*good[:2], *generate, parts=["1 of the 2 ranks would be copies", "--tensor-parallel-degree 2"])
        started = time.monotonic()
        self.expect_error(*good, "--output", self.folder / "none" / "results.json", parts=["rank 0 of 2", "none/results.json"])
        self.assertLess(time.monotonic() - started, 30)

    def test_damage(self):
        sharded = self.convert("sharded", "--shards", "2")
        shard = next(sharded.rglob("shard-00001*"))
        data = bytearray(shard.read_bytes())
        data[-100] ^= 1
        shard.write_bytes(data)
        self.on(2)
        self.expect_error("--model", sharded, "--tasks", self.task(self.records), "--output", self.output, code=3,
                          parts=[shard.name])

    def test_tasks_that_differ_between_ranks(self):
        self.on_two_nodes()
        for rank in range(2):
            self.task(self.records[rank:], f"{rank}/task")
        started = time.monotonic()
        self.expect_error("--model", self.model, "--tasks", "task.jsonl", "--output", self.output,
                          parts=["task.jsonl", "rank 0 has 33 records", "rank 1 has 32"])
        self.assertLess(time.monotonic() - started, 100, "no rank waits for the timeout of 300 s")

    def test_tokenizers_that_differ_between_ranks(self):
        self.on_two_nodes()
        tokenizer = json.loads((HARNESS / "tokenizer.json").read_text())
        for rank in range(2):
            (self.folder / str(rank) / "tokenizer.json").write_text(json.dumps(tokenizer))
            tokenizer["model"]["merges"] = []
        model = self.folder / "generates"
        write_model(model, **RECORDED["model"])
        started = time.monotonic()
        self.expect_error("--model", model, "--tokenizer", "tokenizer.json", "--generate", "The captain", "--tensor-parallel-degree", 2,
                          parts=["do not have the same requests of --generate: rank 0 has 1 records, digest ", "rank 1 has ", "the tokenizer"])
        self.assertLess(time.monotonic() - started, 100, "no rank waits for the timeout of 300 s")

    def test_generate_on_ranks_that_share_the_model(self):
        """Rank 0 prints what transformers generates."""
        model, case = self.folder / "generates", RECORDED["bytes"]["generated"][1]
        write_model(model, **RECORDED["model"])
        for name, (num_ranks, degrees) in MESHES.items():
            if degrees:
                with self.subTest(name):
                    self.on(num_ranks)
                    done = self.run_program("--model", model, "--tokenizer", "bytes", "--generate", case["prompt"], "--max-new-tokens",
                                            len(case["new_ids"]), *degrees)
                    self.assertEqual(done.stdout, case["text"] + "\n")

    def test_a_signal_to_one_rank_ends_all(self):
        self.expect_end_on_signal(self.model, "--output", self.output, "--tasks", self.task(random_records(40000, 60)), "--batch-tokens", "64")

    def test_a_signal_ends_generation(self):
        model, task = self.folder / "generates", self.folder / "long.jsonl"
        write_model(model, favour([65, 66]), vocabulary=257, positions=20000)  # without an end of text
        task.write_text(json.dumps({"question": "a", "answer": "#### 1"}) + "\n" + json.dumps({"question": "b", "answer": "#### 1"}))
        length = ["--tokenizer", "bytes", "--max-new-tokens", "19000"]
        self.expect_end_on_signal(model, "--output", self.output, "--tasks", f"gsm8k={task}", *length)
        self.expect_end_on_signal(model, "--generate", "a", "--tensor-parallel-degree", "2", *length)
        self.expect_end_on_signal(model, "--generate", "a", "--data-parallel-shard-degree", "2", *length)

    def expect_end_on_signal(self, model, *arguments):
        job = subprocess.Popen([MPIRUN, "2", BIN / "eval", "--model", model, *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | self.environment)
        lines = []
        for line in job.stderr:
            lines.append(line)
            if "computed in" in line:
                break
        children = (pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text()).split()
        os.kill(int(children[-1]), signal.SIGTERM)
        _, rest = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 1, rest)
        self.assertEqual("".join(lines + [rest]).count("eval: error: stopped by a signal"), 1, rest)
        self.assertFalse(self.output.exists())


if __name__ == "__main__":
    import unittest
    unittest.main(verbosity=2)
