"""eval on a GPU against eval on the CPU. With an executable over stand-ins the test also runs without a GPU, and tests
a GPU with too little memory; without one it uses this machine's GPU, or skips. usage: gpu_test.py [TEST ...]
[FOLDER/EVAL_WITH_STAND_INS]"""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from gpu_name import gpu_name  # noqa: E402
from run import BIN, EvalTest, random_records, write_model  # noqa: E402

STAND_INS = pathlib.Path(sys.argv.pop()).resolve() if len(sys.argv) > 1 and "/" in sys.argv[-1] else None
GPU_EVAL = STAND_INS or BIN / "eval"
GPU_NAME = "Fake GPU" if STAND_INS else gpu_name()
# Relative tolerance of perplexities. Products of float32 rounded to TF32 would differ by far more.
FP32_TOLERANCE = 1e-6 if STAND_INS else 1e-5
WORKSPACE_BYTES = 32 * 2**20  # of products


class GpuTest(EvalTest):
    def setUp(self):
        super().setUp()
        write_model(self.model)

    def score(self, place, records, *more):
        """(perplexity, accuracy): on "cpu" with the product's own executable, on "gpu" or "auto" with the tested one.
        """
        program = BIN / "eval" if place == "cpu" else GPU_EVAL
        done = self.run_program("--model", self.model, "--tasks", self.task(records), "--output", self.output,
                                "--device", place, *more, program=program)
        results = json.loads(self.output.read_text())
        self.assert_computed_on(place, results, done)
        return [results["results"]["task"][f"token_{what},none"] for what in ("perplexity", "accuracy")]

    def assert_computed_on(self, place, results, done):
        self.assertEqual(results["config"]["device"], "cpu" if place == "cpu" else "cuda:0")
        self.assertIn(" on the CPU with 1 threads" if place == "cpu" else f" on {GPU_NAME} (", done.stderr)
        self.stderr = done.stderr

    def assert_near(self, one, other, tolerance, accuracy_tolerance=0):
        self.assertAlmostEqual(one[0] / other[0], 1, delta=tolerance)
        self.assertAlmostEqual(one[1], other[1], delta=accuracy_tolerance)


class Gpu(GpuTest):
    def test_fp32_equals_the_cpus_results(self):
        for longest, more in ((30, ()), (60, ("--max-length", 17)), (5, ("--batch-tokens", 1))):
            with self.subTest(more):
                records = random_records(12, longest)
                self.assert_near(self.score("gpu", records, *more), self.score("cpu", records, *more), FP32_TOLERANCE)

    def test_choices_and_generation_equal_the_cpus(self):
        """On a CPU, windows are packed and share the context; on a GPU each is padded."""
        model, task, results, texts = self.folder / "bytes", self.folder / "choices.jsonl", [], []
        write_model(model, vocabulary=257)
        task.write_text("".join(json.dumps({"query": "a longer query " * n, "choices": ["one", "three", "a fifth"], "gold": n % 3})
                                + "\n" for n in range(1, 5)))
        for place, program in (("cpu", BIN / "eval"), ("gpu", GPU_EVAL)):
            more = ["--model", model, "--tokenizer", "bytes", "--device", place]
            self.run_program(*more, "--tasks", task, "--output", self.output, "--log-samples", program=program)
            lines = (self.folder / "samples_choices.jsonl").read_text().splitlines()
            results.append([float(answer[0]) for line in lines for answer in json.loads(line)["filtered_resps"]])
            texts.append(self.run_program(*more, "--generate", "a query", "--max-new-tokens", 20, program=program).stdout)
        for one, other in zip(*results):
            self.assertAlmostEqual(one / other, 1, delta=FP32_TOLERANCE)
        self.assertEqual(*texts)

    def test_bf16_stays_within_tolerance(self):
        records = random_records(12, 30)
        exact = self.score("cpu", records)
        found = self.score("gpu", records, "--dtype", "bf16")
        self.assert_near(found, self.score("cpu", records, "--dtype", "bf16"), 0.02, 0.02)
        self.assertNotEqual(found, exact)

    def test_auto_is_the_gpu_and_cpu_is_not(self):
        records = random_records(4, 20)
        self.assertEqual(self.score("auto", records), self.score("gpu", records))
        self.assertNotIn(" W ", self.stderr)
        # Kernels of the stand-ins do not compute, so the test only checks which device produced the results.
        done = self.run_program("--model", self.model, "--tasks", self.task(records), "--output", self.output,
                                "--device", "cpu", program=GPU_EVAL)
        self.assert_computed_on("cpu", json.loads(self.output.read_text()), done)

    def test_variables_that_slow_products_or_reduce_their_precision_are_named(self):
        self.environment = {"NVIDIA_TF32_OVERRIDE": "1", "NCCL_DEBUG": "INFO"}
        self.score("gpu", random_records(2, 5))
        self.assertIn("NVIDIA_TF32_OVERRIDE=1: it overrides the precision of all float32 products", self.stderr)
        self.assertNotIn("NCCL_DEBUG", self.stderr)


@unittest.skipUnless(STAND_INS, "a GPU has what it has")
class StandIns(GpuTest):
    def test_without_a_gpu(self):
        self.environment = {"ARGOSY_FAKE_GPUS": "0"}
        self.expect_error("--model", self.model, "--tasks", self.task(random_records(4, 20)), "--output", self.output,
                          "--device", "gpu", program=GPU_EVAL,
                          parts=["sees no GPU", "CUDA_VISIBLE_DEVICES", "--device cpu"])

    def test_mistakes_are_found_before_the_gpu(self):
        self.environment = {"ARGOSY_FAKE_GPUS": "0"}
        task, nothing, device = self.task([[1, 2]]), self.folder / "none", ["--device", "gpu"]
        for model, tasks, output, part in ((nothing, task, self.output, 'none" does not exist'),
                                           (self.model, nothing, self.output, "none"),
                                           (self.model, task, task, "is a task"),
                                           (self.model, task, nothing / "results.json", "none/results.json")):
            self.expect_error("--model", model, "--tasks", tasks, "--output", output, *device, program=GPU_EVAL,
                              parts=[part])

    def test_a_batch_that_does_not_fit(self):
        task = self.task(random_records(60, 50))
        arguments = ["--model", self.model, "--tasks", task, "--output", self.output]
        self.environment = {"ARGOSY_FAKE_GPU_BYTES": str(WORKSPACE_BYTES + 1_000_000)}
        self.expect_error(*arguments, program=GPU_EVAL, code=1, parts=[
            "out of memory: ", " requested; of the GPU's ", "tensors ", "free ",
            "What would need less: a smaller --batch-tokens or --max-length; --dtype bf16; --device cpu"])
        for way_out in ("--batch-tokens", 200), ("--dtype", "bf16"):
            self.run_program(*arguments, *way_out, program=GPU_EVAL)


if __name__ == "__main__":
    if GPU_NAME is None:
        print("skipped: there is no GPU here")
        sys.exit(77)
    unittest.main(verbosity=2)
