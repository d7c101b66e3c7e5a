"""Training as it runs on GPUs: their kernels emulated, NCCL, cuBLASLt and graphs by stand-ins. Beside what gpu_run.py
says, losses do not depend on the layout. usage: gpu_test.py PRETRAIN_WITH_STAND_INS"""
import pathlib
import sys

import gpu_run
import run

GPU = pathlib.Path(sys.argv.pop())


class Gpu(gpu_run.OnGpu, run.PretrainTest):
    cpu, gpu, device_name = ((run.PRETRAIN,), {}), ((GPU,), {}), "Fake GPU"

    def test_losses_do_not_depend_on_the_layout(self):
        self.assert_layouts_do_not_matter()

    def test_through_the_host_they_are_those_of_nccl(self):
        runs = [self.train(self.gpu, 2, path, comm__gpu_path=path) for path in ("nccl", "host")]
        self.assert_alike(*runs, self.fp32_tolerance)

    def test_a_graph_changes_no_bit_between_ranks(self):
        for name in ("fsdp2", "ddp2", "hsdp2x2"):  # with gathers, sums over replicas, both in the graph
            with self.subTest(name):
                num_ranks, layout = gpu_run.LAYOUTS[name]
                graphs = self.train(self.gpu, num_ranks, f"graphs{name}", **layout)
                plain = self.train(self.gpu, num_ranks, f"none{name}", compile__graphs=False, **layout)
                self.assertEqual(graphs, plain)

    def test_a_loss_scale_comes_down(self):
        cpu, gpu = self.on_both("half", training__loss_scale_init=2**24, **gpu_run.FLOAT16)
        scales = [[step["loss_scale"] for step in self.steps(f"half{i}")] for i in range(2)]
        self.assertEqual(scales[0], scales[1])
        self.assertLess(scales[1][-1], 2**24, "the first gradients overflow")
        applied = [i for i, (_, norm) in enumerate(cpu) if norm is not None]
        self.assertGreater(len(applied), 1, cpu)
        self.assert_alike([gpu[i] for i in applied], [cpu[i] for i in applied], 5e-3)

    def test_slow_settings_are_named(self):
        environment = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1",
                       "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "MALLOC_CHECK_": "0"}
        words = self.small(**gpu_run.SMALL, training__steps=1)
        done = self.run_ranks(1, *words, ":", "-n", 1, "-x", "NCCL_ALGO=Ring", GPU, *words, program=(GPU,),
                              environment=environment)
        self.assert_code(done, 0)
        warnings = [line.partition("[0] ")[2] for line in done.stderr.splitlines() if " W [0]" in line]
        self.assertEqual([warning.partition(": ")[0] for warning in warnings],
                         ["CUDA_LAUNCH_BLOCKING=1 on all ranks", "NCCL_DEBUG=INFO on all ranks",
                          "NCCL_P2P_DISABLE=1 on all ranks", "NCCL_ALGO on rank 1",
                          "PYTORCH_NO_CUDA_MEMORY_CACHING=1 on all ranks"], done)
        self.assertNotIn(" W [1]", done.stderr)
        for warning in warnings[0], warnings[-1]:
            self.assertIn("many times slower; unset it", warning)
        alone = self.run_ranks(1, *self.small("cpu", training__steps=1), environment=environment)
        self.assert_code(alone, 0)
        self.assertNotIn("CUDA_LAUNCH_BLOCKING", alone.stderr)


if __name__ == "__main__":
    run.main()
