"""A run is a function of its configuration: repeated, it prints the same digits."""
import run


class Determinism(run.PretrainTest):
    def digits(self, dump, **settings):
        self.steps_of(2, dump, **settings)
        return [(step["loss"], step["grad_norm"]) for step in self.steps(dump, parse_float=str)]

    def expect_repeated(self, **settings):
        """With the defaults of recompute, number types and order of samples."""
        settings = {"training__mixed_precision_param": "bfloat16", "training__global_batch_size": 8} | settings
        first, second, other = run.at_once([lambda: self.digits("first", **settings),
                                            lambda: self.digits("second", **settings),
                                            lambda: self.digits("other", debug__seed=1, **settings)])
        self.assertEqual(len(first), 4)
        self.assertEqual(first, second)
        for one, another in zip(first, other):
            self.assertNotEqual(one, another, "another seed")

    def test_fsdp(self):
        self.expect_repeated()

    def test_tensor(self):
        self.expect_repeated(parallelism__tensor_parallel_degree=2)

    def test_pipeline(self):
        self.expect_repeated(parallelism__pipeline_parallel_degree=2)

    def test_the_order_of_samples_is_what_shuffle_says(self):
        self.assertNotEqual(self.digits("random"), self.digits("file", training__shuffle=False))


if __name__ == "__main__":
    run.main()
