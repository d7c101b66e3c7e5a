"""The limits that end a run normally: steps, tokens or time, whichever comes first; and their effect on the schedule
and the progress line."""
import json
import re
import time

import run

FOREVER = {"training__steps": 1000000, "lr_scheduler__warmup_steps": 0, "optimizer__lr": 1e-4}
PROGRESS = re.compile(r"step +(\d+)/(\d+)  loss")


class Limits(run.PretrainTest):
    def ends(self, num_ranks, dump, text, **settings):
        """The steps of a run that ends normally and prints `text`, and its output."""
        done = self.run_ranks(num_ranks, *self.small(dump, **settings))
        self.assert_code(done, 0)
        self.assertEqual(len(re.findall("done after step", done.stderr)), 1, done)
        self.assertIn(text, done.stderr)
        return self.steps(dump), done

    def test_steps_before_tokens(self):
        steps, _ = self.ends(1, "run", "done after step 4: training.steps = 4", training__max_tokens=1000000)
        self.assertEqual(len(steps), 4)

    def test_tokens_are_the_jobs_and_rounded_up_to_a_step(self):
        """A step has 64 tokens on each data-parallel rank. A limit of 129 tokens is three steps of one rank, or two
        steps of two ranks."""
        for num_ranks, num_steps in ((1, 3), (2, 2)):
            text = f"done after step {num_steps}: training.max_tokens = 129 is reached with {num_steps * num_ranks * 64}"
            steps, done = self.ends(num_ranks, f"tokens{num_ranks}", text, training__max_tokens=129,
                                    training__steps=1000, lr_scheduler__warmup_steps=0)
            self.assertEqual(sum(step["tokens"] for step in steps), num_steps * num_ranks * 64)
            self.assertEqual(PROGRESS.findall(done.stderr)[-1], (str(num_steps), str(num_steps)))
        by_steps = self.steps_of(2, "steps", training__steps=2, lr_scheduler__warmup_steps=0)
        self.assertEqual([step["lr"] for step in steps], [step["lr"] for step in by_steps], "the schedule")
        self.assertEqual([step["loss"] for step in steps], [step["loss"] for step in by_steps])

    def test_steps_that_do_not_train_as_set_are_said_once(self):
        def schedule(**more):
            return {f"lr_scheduler__{key}": value for key, value in more.items()}
        zero, peak, cut, twice = ("have a learning rate of 0", "leaves no step at optimizer.lr", "the decay has", "more than once")
        rows = ((schedule(total_steps=3), [zero], "steps 4 to 4 have"), (schedule(total_steps=3, min_lr_factor=0.1), [], ""),
                (schedule(total_steps=3, decay_ratio=0), [], ""), (schedule(total_steps=9), [], ""),
                (schedule(warmup_steps=5), [peak], "step 4, whose learning rate is 0.008;"),
                (schedule(warmup_steps=5, total_steps=9), [], ""), (schedule(warmup_steps=4), [], ""),
                (schedule(decay_ratio=0.75), [cut], "2 steps and not the 3 of lr_scheduler.decay_ratio = 0.75"),
                ({"training__seq_len": 256, "training__global_batch_size": 80}, [twice], "80 samples and the data 74,"),
                ({"training__seq_len": 256, "training__global_batch_size": 74}, [], ""))
        for row, (settings, said, text) in enumerate(rows):
            done = self.run_ranks(2 if row == 0 else 1, *self.small(training__steps=4, training__local_batch_size=1, **settings))
            self.assert_code(done, 0)
            self.assertEqual([done.stderr.count(part) for part in (zero, peak, cut, twice)],
                             [int(part in said) for part in (zero, peak, cut, twice)], f"{settings}\n{done}")
            self.assertIn(text, done.stderr)

    def test_samples_beyond_the_positions_of_the_model_are_said_once(self):
        config = json.loads((run.SOURCE / "tests/reference/llama/config.json").read_text())
        tokens = self.tokens_below_128()
        for positions, count in ((31, 1), (32, 0)):
            (self.folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions}))
            done = self.run_ranks(1, *self.small(training__steps=1, lr_scheduler__warmup_steps=0, training__dataset_path=tokens,
                                                 model__hf_assets_path=self.folder))
            self.assert_code(done, 0)
            self.assertEqual(done.stderr.count("training.seq_len = 32 exceeds max_position_embeddings = 31 of"), count, done)

    def test_time_ends_all_ranks_at_the_same_step(self):
        began = time.monotonic()
        steps, _ = self.ends(2, "run", "s remain of training.max_time = 3s", **FOREVER, training__max_time="3s")
        self.assertEqual([step["step"] for step in steps], list(range(1, len(steps) + 1)))
        trained = sum(step["time_ms"]["total"] for step in steps) / 1000
        # The last step may take longer than all before it; half of the limit is reserve for a very busy machine.
        self.assertLess(trained, 4.5)
        self.assertGreater(time.monotonic() - began, 1.5, "it stopped long before its time")

    def test_a_time_limit_that_has_passed_gives_one_step(self):
        steps, done = self.ends(1, "run", "s remain of training.max_time = 1s", **FOREVER,
                                training__max_time=1, training__local_batch_size=64, training__seq_len=256)
        self.assertIn("done after step 1: ", done.stderr)
        self.assertEqual(len(steps), 1)

    def test_an_invalid_time_is_refused(self):
        for word, part in (("soon", "but is 'soon'"), ("1.5h", "as 90m, 11h30m"), ("0", "must be > 0")):
            self.assert_one_error(self.run_ranks(1, *self.small(training__max_time=word)), 2, "training.max_time", part)


if __name__ == "__main__":
    run.main()
