"""A run in several parts equals the uninterrupted run: bit for bit on the same mesh, within rounding on another, with
the same samples."""
import shutil

import run
import saved
from saved import TOTAL

FLOAT8 = {"model__converters": "quantize.linear.float8", "quantize__linear__float8__enable_fsdp_float8_all_gather": True}
# (parts, settings) of each type; tests/resume has the others.
NUMBER_TYPES = {"float32": (3, {}), "float8": (2, FLOAT8 | {"training__mixed_precision_param": "bfloat16"})}
MESHES = [(1, {}), (2, {"parallelism__data_parallel_replicate_degree": 2, "parallelism__data_parallel_shard_degree": 1}),
          (4, {"parallelism__tensor_parallel_degree": 2, "parallelism__pipeline_parallel_degree": 2})]


class Resume(saved.SavedTest):
    def test_a_run_in_parts_equals_the_whole_bit_for_bit(self):
        run.at_once([lambda name=name: self.in_parts(name, *NUMBER_TYPES[name]) for name in NUMBER_TYPES], workers=2)

    def in_parts(self, name, parts, settings):
        self.train(2, f"whole_{name}", checkpoint__enable=False, **settings)
        for part in range(parts):
            done = self.train(2, name, training__steps=(part + 1) * TOTAL // parts, **settings)
            self.assertIn(f"{part * TOTAL // parts} steps are done" if part else "starts afresh", done.stderr)
        self.assertEqual(self.numbers(name, str), self.numbers(f"whole_{name}", str))

    def test_a_run_resumes_on_any_mesh(self):
        """Each mesh saves once and loads once; tests/resume has all pairs. All meshes can divide a global batch of 8."""
        batch = {"training__global_batch_size": 8, "training__local_batch_size": 2}
        self.train(1, "whole", checkpoint__enable=False, **batch)
        run.at_once([lambda i=i, mesh=mesh: self.train(mesh[0], f"begun{i}", training__steps=6, **batch, **mesh[1])
                     for i, mesh in enumerate(MESHES)], workers=2)
        run.at_once([lambda i=i: self.go_on(i, (i + 1) % len(MESHES), batch) for i in range(len(MESHES))], workers=2)

    def go_on(self, begun, by, batch):
        dump = f"run{begun}{by}"
        shutil.copytree(self.folder / f"begun{begun}", self.folder / dump)
        num_ranks, mesh = MESHES[by]
        done = self.train(num_ranks, dump, **batch, **mesh)
        self.assertIn("6 steps are done, with 48 samples", done.stderr)
        self.assertRegex(done.stderr, "differs from when it was saved: mesh: .* then, .* now")
        self.assert_close(self.numbers(dump), self.numbers("whole"))

    def test_a_run_in_float8_resumes_on_another_mesh(self):
        settings = FLOAT8 | {"training__local_batch_size": 2, "training__global_batch_size": 8}
        self.train(1, "whole", checkpoint__enable=False, **settings)
        self.train(1, training__steps=6, **settings)
        done = self.train(4, **settings, **MESHES[2][1])
        self.assertIn("6 steps are done, with 48 samples", done.stderr)
        # Sums in another order make some operands other numbers of float8. The loss falls from 6.9 to 2.6.
        for (loss, _), (other, _) in zip(self.numbers(), self.numbers("whole"), strict=True):
            self.assertAlmostEqual(loss / other, 1, delta=0.01)

    def test_another_global_batch_resumes_at_the_next_sample(self):
        self.train(1, training__steps=6)  # of 2 samples each
        larger = {"training__global_batch_size": 8}
        for dump, num_ranks in (("two", 2), ("one", 1)):
            shutil.copytree(self.folder / "run", self.folder / dump)
            done = self.train(num_ranks, dump, **larger)
            self.assertIn("training.global_batch_size: -1 then, 8 now", done.stderr)
            self.assertEqual(self.state(TOTAL, dump)["samples"], 6 * 2 + 6 * 8)
            self.assertEqual(self.state(TOTAL, dump)["tokens"], 32 * (6 * 2 + 6 * 8))
        self.assert_close(self.numbers("two"), self.numbers("one"))

    def test_another_seq_len_resumes_after_as_many_tokens_and_warns_if_samples_are_shuffled(self):
        self.train(1, "shuffled", training__steps=4)  # of 2 samples of 32 tokens
        self.train(1, "in_order", training__steps=4, training__shuffle=False)
        warning = "NOT THE SAME PLACE IN THE DATA"
        for dump, more in (("shuffled", {}), ("in_order", {"training__shuffle": False})):
            done = self.train(1, dump, training__steps=5, training__seq_len=64, **more)
            self.assertIn("training.seq_len: 32 then, 64 now", done.stderr)
            self.assertIn("sample 8 there is sample 4 here", done.stderr)
            self.assertEqual(warning in done.stderr, dump == "shuffled", done)
            self.assertEqual(self.state(5, dump)["samples"], 4 + 2)
        self.assertNotIn(warning, self.train(1, "shuffled", training__steps=6, training__seq_len=64).stderr)

    def test_another_order_of_the_samples_warns_once(self):
        self.train(1, "shuffled", training__steps=2)
        self.train(1, "in_order", training__steps=2, training__shuffle=False)
        order = {"training__shuffle": False}
        for num_ranks, dump, more, said in (
                (2, "shuffled", {"debug__seed": 7}, "debug.seed: 0 then, 7 now"),
                (1, "shuffled", order, "training.shuffle: true then, false now"),
                (1, "in_order", {}, "training.shuffle: false then, true now"), (1, "in_order", order, None),
                (1, "in_order", order | {"debug__seed": 7}, None)):
            done = self.train(num_ranks, dump, checkpoint__load_only=True, training__steps=3, **more)
            warnings = [line for line in done.stderr.splitlines() if "NOT THE SAME PLACE IN THE DATA" in line]
            self.assertEqual(len(warnings), said is not None, done)
            self.assertTrue(said is None or said in warnings[0], done)

    def test_tokens_seen_count_towards_the_limit(self):
        """Steps have 128 tokens first, then 256: 768 + 3 x 256 reach 1500."""
        self.train(1, training__steps=6, training__global_batch_size=4, training__max_tokens=1500)
        done = self.train(1, training__global_batch_size=8, training__max_tokens=1500)
        self.assertIn("done after step 9: training.max_tokens = 1500 is reached with 1536 tokens", done.stderr)

    def test_a_finished_run_and_then_a_longer_one(self):
        """A finished run says so and changes nothing. A longer one lists the keys that changed, but no folders. The lines of
        steps after the saved one are moved aside, in metrics.jsonl and in skipped_updates.jsonl."""
        self.train(1, training__steps=4)
        before = self.numbers()
        done = self.train(1, training__steps=4)
        self.assertIn("done after step 4", done.stderr)
        self.assertEqual(self.numbers(), before)
        self.assertEqual(self.whole_steps(), [2, 4])

        metrics = self.folder / "run" / "metrics.jsonl"
        lines = metrics.read_text().splitlines()
        metrics.write_text("\n".join([*lines, lines[-1].replace('"step":4', '"step":5'), '{"step":6,"lo']))
        skipped = self.folder / "run" / "skipped_updates.jsonl"
        skipped.write_text('{"step":3}\n{"step":5}\n')
        done = self.train(1, optimizer__weight_decay=0.2, job__description="again")
        lines = [line.partition("differs from when it was saved: ")[2] for line in done.stderr.splitlines()
                 if "differs from" in line]
        self.assertEqual(lines, ["optimizer.weight_decay: 0.1 then, 0.2 now", f"training.steps: 4 then, {TOTAL} now"])
        self.assertEqual(len(self.numbers()), TOTAL)
        self.assertEqual(skipped.read_text(), '{"step":3}\n')


if __name__ == "__main__":
    run.main()
