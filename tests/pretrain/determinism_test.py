"""A run is a function of its configuration: repeated, it prints the same digits."""
import os
import subprocess

import run


class Determinism(run.PretrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.float32 = cls.of_class().digits("float32")

    def digits(self, dump, **settings):
        self.steps_of(2, dump, **settings)
        return [(step["loss"], step["grad_norm"]) for step in self.steps(dump, parse_float=str)]

    def expect_repeated(self, **settings):
        """The defaults of recompute, number types and order of samples."""
        settings = {"training__mixed_precision_param": "bfloat16", "training__global_batch_size": 8} | settings
        first, second = run.at_once([lambda: self.digits("first", **settings), lambda: self.digits("second", **settings)])
        self.assertEqual(len(first), 4)
        self.assertEqual(first, second)

    def test_fsdp(self):
        self.expect_repeated()

    def test_tensor(self):
        self.expect_repeated(parallelism__tensor_parallel_degree=2)

    def test_pipeline(self):
        self.expect_repeated(parallelism__pipeline_parallel_degree=2)

    def digits_of_threads(self, dump, num_threads, **settings):
        """Options for a rank with several threads; mpirun.sh would set one."""
        subprocess.run([run.PRETRAIN, *self.small(dump, training__seq_len=96, **settings)], check=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=run.LIMIT_SECONDS,
                       env=os.environ | {"OMP_NUM_THREADS": str(num_threads)})
        return [(step["loss"], step["grad_norm"]) for step in self.steps(dump, parse_float=str)]

    def test_deterministic_repeats_with_several_threads(self):
        settings = {"training__mixed_precision_param": "bfloat16", "debug__deterministic": True}
        first, second = (self.digits_of_threads(name, 2, **settings) for name in "ab")
        self.assertEqual(len(first), 4)
        self.assertEqual(first, second)

    def test_deterministic_computes_the_same(self):
        """Fresh memory is filled with NaN, so reads of uninitialised memory show."""
        self.assertEqual(self.float32, self.digits("on", debug__deterministic=True))

    def test_deterministic_refuses_or_warns_of_settings_that_do_not_repeat(self):
        settings = self.small(debug__deterministic=True, training__max_time="1h")
        done = self.run_ranks(1, *settings, environment={"OMP_DYNAMIC": "true"})
        self.assert_one_error(done, 2, "debug.deterministic", "OMP_DYNAMIC=true", "unset")
        done = self.run_ranks(1, *settings)
        self.assert_code(done, 0)
        self.assertIn("deterministic: results repeat with 1 compute threads per rank", done.stderr)
        self.assertIn("the number of steps within training.max_time does not", done.stderr)

    def test_shuffle_and_the_seed_determine_the_order_of_samples(self):
        self.assertNotEqual(self.float32, self.digits("file", training__shuffle=False))
        for one, another in zip(self.float32, self.digits("other", debug__seed=1)):
            self.assertNotEqual(one, another, "another seed")


if __name__ == "__main__":
    run.main()
