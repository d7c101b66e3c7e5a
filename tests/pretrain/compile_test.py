"""compile.enable: fused kernels and separate operations train with the same bits. debug.plain_operations, which uses
LibTorch's operations, trains alike with other bits."""
import run

STEPS = {"training__steps": 20, "training__global_batch_size": 4, "lr_scheduler__warmup_steps": 3}
BFLOAT16 = {"training__mixed_precision_param": "bfloat16"}
SEPARATE = {"compile__enable": False}
PLAIN = {"debug__plain_operations": True}


class Compile(run.PretrainTest):
    def train(self, num_ranks, dump, environment=None, **settings):
        """Loss and norm of each step, as printed, and the log."""
        done = self.run_ranks(num_ranks, *self.small(dump, **STEPS, **settings), environment=environment)
        self.assert_code(done, 0)
        return [(step["loss"], step["grad_norm"]) for step in self.steps(dump, parse_float=str)], done.stderr

    def assert_alike(self, num_ranks, tolerance, **settings):
        """Returns what the runs with the kernels, with separate operations and with LibTorch's left."""
        def train(dump, **path):
            return lambda: self.train(num_ranks, dump, **settings, **path)
        runs = run.at_once([train("own"), train("separate", **SEPARATE), train("plain", **PLAIN)], workers=2)
        own, separate, plain = (numbers for numbers, _ in runs)
        self.assertEqual(len(own), 20)
        self.assertLess(float(own[-1][0]), float(own[0][0]) - 1, "it learns nothing")
        self.assertEqual(own, separate)
        for step, (one, other) in enumerate(zip(own, plain), 1):
            self.assertLess(abs(float(one[0]) / float(other[0]) - 1), tolerance, f"loss of step {step}: {own} {plain}")
        self.assertNotEqual(own, plain, "the same bits: the same code?")
        return runs

    def test_float32_and_the_kernels_that_the_log_names(self):
        """Plain operations use no kernels: the digits show the kernels' instruction set if kernels are used."""
        portable = {"ARGOSY_CPU_KERNELS": "portable"}
        (own, log), (_, separate), (plain, plain_log) = self.assert_alike(1, 1e-5)
        (own_portable, portable_log), (plain_portable, neither) = run.at_once([
            lambda: self.train(1, "own_portable", portable),
            lambda: self.train(1, "plain_portable", portable, **PLAIN, **SEPARATE)], workers=2)
        self.assertEqual(plain, plain_portable)
        if "Argosy's kernels: portable" not in log:
            self.assertNotEqual(own, own_portable)
        self.assertIn("Argosy's kernels: portable", portable_log)
        self.assertIn(", not fused, because compile.enable is false", separate)
        self.assertIn("Argosy's kernels: none, because debug.plain_operations is true", plain_log)
        self.assertIn("compile.enable has no effect: debug.plain_operations is true", neither)

    def test_bfloat16_between_ranks(self):
        self.assert_alike(2, 5e-3, **BFLOAT16)

    def test_kernels_that_cannot_run_are_refused(self):
        done = self.run_ranks(1, *self.small(), environment={"ARGOSY_CPU_KERNELS": "abacus"})
        self.assert_one_error(done, 2, "ARGOSY_CPU_KERNELS is abacus", "portable")


if __name__ == "__main__":
    run.main()
