"""compile.enable: fused kernels and separate operations train with the same bits. debug.plain_operations, which uses
LibTorch's operations, trains alike with other bits."""
import run

STEPS = {"training__steps": 20, "training__global_batch_size": 4, "lr_scheduler__warmup_steps": 3}
BFLOAT16 = {"training__mixed_precision_param": "bfloat16"}
SEPARATE = {"compile__enable": False}
PLAIN = {"debug__plain_operations": True}


class Compile(run.PretrainTest):
    def train(self, num_ranks, dump, environment=None, **settings):
        """Loss and norm of each step, as printed."""
        self.steps_of(num_ranks, dump, environment, **STEPS, **settings)
        return [(step["loss"], step["grad_norm"]) for step in self.steps(dump, parse_float=str)]

    def assert_alike(self, num_ranks, tolerance, **settings):
        def train(dump, **path):
            return lambda: self.train(num_ranks, f"{dump}{num_ranks}", **settings, **path)
        own, separate, plain = run.at_once([train("own"), train("separate", **SEPARATE), train("plain", **PLAIN)], workers=2)
        self.assertEqual(len(own), 20)
        self.assertLess(float(own[-1][0]), float(own[0][0]) - 1, "it learns nothing")
        self.assertEqual(own, separate)
        for step, (one, other) in enumerate(zip(own, plain), 1):
            self.assertLess(abs(float(one[0]) / float(other[0]) - 1), tolerance, f"loss of step {step}: {own} {plain}")
        self.assertNotEqual(own, plain, "the same bits: the same code?")

    def test_float32(self):
        self.assert_alike(1, 1e-5)
        self.assert_alike(2, 1e-5)

    def test_bfloat16(self):
        self.assert_alike(1, 5e-3, **BFLOAT16)
        self.assert_alike(2, 5e-3, **BFLOAT16)

    def test_plain_operations_use_no_kernels(self):
        """The digits show the kernels' instruction set if kernels are used."""
        best, portable = {}, {"ARGOSY_CPU_KERNELS": "portable"}
        own, own_portable, plain, plain_portable = run.at_once([
            lambda: self.train(1, "own", best), lambda: self.train(1, "own_portable", portable),
            lambda: self.train(1, "plain", best, **PLAIN), lambda: self.train(1, "plain_portable", portable, **PLAIN)],
            workers=2)
        self.assertEqual(plain, plain_portable)
        if "Argosy's kernels: portable" not in self.log(best):
            self.assertNotEqual(own, own_portable)

    def log(self, environment):
        return self.run_ranks(1, *self.small("log", training__steps=1), environment=environment).stderr

    def test_the_log_names_the_kernels(self):
        self.assertIn("Argosy's kernels: portable", self.log({"ARGOSY_CPU_KERNELS": "portable"}))
        for settings, words in ((SEPARATE, ", not fused, because compile.enable is false"),
                                (PLAIN, "Argosy's kernels: none, because debug.plain_operations is true"),
                                (PLAIN | SEPARATE, "compile.enable has no effect: debug.plain_operations is true")):
            with self.subTest(**settings):
                self.assertIn(words, self.run_ranks(1, *self.small("none", training__steps=1, **settings)).stderr)

    def test_kernels_that_cannot_run_are_refused(self):
        done = self.run_ranks(1, *self.small(), environment={"ARGOSY_CPU_KERNELS": "abacus"})
        self.assert_one_error(done, 2, "ARGOSY_CPU_KERNELS is abacus", "portable")


if __name__ == "__main__":
    run.main()
