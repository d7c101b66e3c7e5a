"""Training as on GPUs, with emulated kernels, and stand-ins for NCCL, cuBLASLt and graphs: the tests of gpu_run.py, and
losses do not depend on the layout. usage: gpu_test.py PRETRAIN_WITH_STAND_INS"""
import itertools
import json
import os
import pathlib
import sys

import gpu_run
import run

GPU = pathlib.Path(sys.argv.pop())
SOON_SECONDS = 20


class Gpu(gpu_run.OnGpu, gpu_run.BetweenRanks, run.PretrainTest):
    cpu, gpu, device_name = ((run.PRETRAIN,), {}), ((GPU,), {}), "Fake GPU"

    def test_losses_do_not_depend_on_the_layout(self):
        self.assert_layouts_do_not_matter()

    def test_losses_do_not_depend_on_padding_between_matrices(self):
        """Two shards do not divide a layer's gate and up, but divide its q, k and v."""
        (self.folder / "config.json").write_text(json.dumps(gpu_run.CONFIG | {
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True,
            "intermediate_size": 79}))
        num_ranks, shards = gpu_run.LAYOUTS["fsdp2"]
        expected, found = (self.train(self.gpu, ranks, f"run{ranks}", model__hf_assets_path=self.folder, **layout)
                           for ranks, layout in ((1, {}), (num_ranks, shards)))
        self.assert_alike(found, expected, self.fp32_tolerance)

    def test_losses_of_the_host_backends_equal_those_through_nccl(self):
        """The stand-in's tensors are in the host's memory, where the usual backends reach them."""
        num_ranks, layout = gpu_run.LAYOUTS["fsdp2"]
        by_host, by_nccl = (gpu_run.losses(self.once(self.gpu, num_ranks, **layout, **path))
                            for path in ({}, {"comm__gpu_path": "nccl"}))
        self.assert_alike(by_host, by_nccl, self.fp32_tolerance)

    def test_plain_operations_emulate_float8(self):
        done = self.run_ranks(1, *self.small(**(gpu_run.SMALL | self.float8())), "--debug.plain_operations", "true",
                              program=(GPU,))
        self.assert_code(done, 0)
        self.assertIn("all emulated, because debug.plain_operations is true", done.stderr)

    def test_products_that_are_too_narrow_for_float8_are_named(self):
        key = "quantize__linear__float8__filter_fqns"
        for name, more in (("all", {}), ("wide", {key: '["auto_filter_small_kn"]'})):
            done = self.run_ranks(1, *self.small(name, **(gpu_run.SMALL | self.float8() | more)), program=(GPU,))
            self.assert_code(done, 0)
            self.assertEqual("of attention.wk, attention.wo, attention.wq, attention.wv, feed_forward.w1, feed_forward.w2, "
                             "feed_forward.w3, output are too narrow for float8" in done.stderr, name == "all", done.stderr)
            self.assertEqual("casts the products of no matrix: auto_filter_small_kn" in done.stderr, name == "wide", done.stderr)

    def test_mxfp8_runs_where_the_gpu_has_it(self):
        settings = self.float8("quantize.linear.mx")
        expected = self.train(self.cpu, 1, "cpu", **settings)
        for capability, way in ((90, "weight gradients emulated in bf16, because"), (100, "weight gradients in float8")):
            with self.subTest(capability=capability):
                environment = {"ARGOSY_FAKE_CAPABILITY": str(capability)}
                done = self.run_ranks(1, *self.small(f"run{capability}", **(gpu_run.SMALL | settings)), program=(GPU,),
                                      environment=environment)
                self.assert_code(done, 0)
                self.assertIn(way, done.stderr)
                self.assert_alike(gpu_run.losses(self.steps(f"run{capability}")), expected, 5e-3)

    def test_a_rank_without_a_gpu_ends_the_run_at_once(self):
        words = self.small(training__steps=1)
        for without in range(2):
            with self.subTest(rank=without):
                first, second = (["-x", "ARGOSY_FAKE_GPUS=0"] if rank == without else [] for rank in range(2))
                done = self.run_ranks(1, *first, GPU, *words, ":", "-n", 1, *second, GPU, *words, program=())
                self.assert_one_error(done, 2, f"rank {without} sees no GPU, but other ranks do", "CUDA_VISIBLE_DEVICES")
                self.assertLess(done.seconds, SOON_SECONDS, done)

    def test_the_log_names_the_device_and_keys_without_effect(self):
        none, disabled = {"compile__graphs": False}, {"compile__enable": False}
        plain = {"debug__plain_operations": True}
        for place, num_ranks, settings, kernels, idle in (
                (self.gpu, 1, {}, "CUDA", None),
                (self.gpu, 1, none | disabled, "CUDA", "compile.graphs has no effect: compile.enable is false"),
                (self.gpu, 1, plain, "none", None),
                (self.gpu, 1, plain | none, "none", "graphs has no effect: debug.plain_operations is true"),
                (self.cpu, 1, {}, "", None),
                (self.cpu, 1, none, "", "compile.graphs has no effect: no rank computes on a GPU")):
            with self.subTest(gpu=place is self.gpu, **settings):
                done = self.run_ranks(num_ranks, *self.small(**gpu_run.SMALL, training__steps=1, **settings),
                                      program=place[0])
                self.assert_code(done, 0)
                self.assertIn(f"Argosy's kernels: {kernels}", done.stderr)
                self.assertEqual("Argosy's kernels: CUDA" in done.stderr, kernels == "CUDA", done)
                self.assertEqual(done.stderr.count("no effect: "), int(idle is not None), done)
                self.assertIn(idle or "", done.stderr)

    def test_graphs_are_recorded_only_where_nccl_runs_them_at_once(self):
        """The stages of a pipeline wait for each other, and neighbours of a ring too."""
        pipeline, ring = (gpu_run.LAYOUTS[name][1] for name in ("pp2", "ring2"))
        on, untried = {"compile__graphs": True}, "no CUDA graphs: graphs were not tried between stages on several GPUs; "
        may_hang = "{} may hang under NCCL 2.27.2 and a driver for CUDA 13.0"
        refused = "compile.graphs = true: with parallelism.pipeline_parallel_degree = 2, graphs"
        rotation = "no CUDA graphs: with parallelism.context_parallel_rotate_method = ring, graphs"
        overlap = "async tensor parallelism off: with parallelism.enable_async_tensor_parallel = true, graphs"
        auto = gpu_run.LAYOUTS["tp2"][1] | {"parallelism__enable_async_tensor_parallel": "auto"}
        for version, settings, code, text in (
                (22703, pipeline, 0, untried + "compile.graphs = true turns them on"), (22703, pipeline | on, 0, ""),
                (22703, ring, 0, ""), (22702, ring, 0, may_hang.format(rotation)),
                (22702, gpu_run.LAYOUTS["fsdp2"][1] | on, 0, ""), (22702, auto | on, 0, may_hang.format(overlap)),
                (22702, pipeline | on, 2, may_hang.format(refused))):
            with self.subTest(version=version, **settings):
                done = self.run_ranks(2, *self.small(**gpu_run.SMALL, training__steps=2, **settings), program=(GPU,),
                                      environment={"ARGOSY_FAKE_NCCL_VERSION": str(version)})
                self.assert_code(done, code)
                self.assertEqual("no CUDA graphs: " in done.stderr, text.startswith("no CUDA graphs: "), done.stderr)
                self.assertIn(text, done.stderr)
                if code != 0:
                    self.assert_one_error(done, 2, "install NCCL 2.27.3 or newer and a driver for CUDA 12.9 or newer")

    def test_streams_have_all_queues_when_cuda_is_first_used(self):
        for given, expected in (({}, 32), ({"CUDA_DEVICE_MAX_CONNECTIONS": "16"}, 16)):
            with self.subTest(expected):
                done = self.run_ranks(1, *self.small(**gpu_run.SMALL, training__steps=1), program=(GPU,),
                                      environment=given | {"ARGOSY_FAKE_CONNECTIONS": str(expected)})
                self.assert_code(done, 0)

    def test_ranks_choose_the_same_algorithms_of_products(self):
        """Algorithms follow from cuBLASLt's version and the kind of GPU."""
        words = self.small(**gpu_run.SMALL, training__steps=2)
        done = self.run_ranks(1, GPU, *words, ":", "-n", 1, "-x", "ARGOSY_FAKE_CUBLAS_VERSION=130200", GPU, *words, program=())
        self.assert_one_error(done, 2, "cuBLASLt: 13.1.0 on rank 0; 13.2.0 on rank 1. Remedy: let all nodes load the libraries")
        differ = "algorithms of products of ranks differ, and so do the GPUs: Fake GPU on rank 0; Other GPU on rank 1."
        for name, expected in (("Other GPU", True), ("Fake GPU", False)):
            with self.subTest(name):
                done = self.run_ranks(1, GPU, *words, ":", "-n", 1, "-x", f"ARGOSY_FAKE_NAME={name}", GPU, *words, program=())
                self.assert_code(done, 0)
                self.assertEqual(differ in done.stderr, expected, done.stderr)

    def test_the_log_names_the_memory_of_communicators_and_their_channels_have_limits(self):
        """Two stages have two communicators for messages, and none for the loss; one is for values on the host, which the stand-in
        takes for the GPU's."""
        log = self.folder / "nccl"
        words = self.small(**gpu_run.SMALL, training__steps=2, comm__message_channels=4, comm__gpu_path="nccl",
                           **gpu_run.LAYOUTS["pp2"][1])
        done = self.run_ranks(1, GPU, *words, ":", "-n", 1, "-x", "NCCL_DEBUG=INFO", "-x", f"NCCL_DEBUG_FILE={log}", GPU, *words,
                              program=())
        self.assert_code(done, 0)
        self.assertIn("3 NCCL communicators took 0.1875 GiB of GPU memory when they were made; after the first step", done.stderr)
        channels = [line.partition("INFO ")[2].partition(" ")[0] for line in log.read_text().splitlines() if "coll channels" in line]
        self.assertEqual(sorted(channels), ["24", "4", "4"])

    def test_a_profiler_gets_the_phases_and_operations_of_every_step(self):
        log = self.folder / "ranges"
        done = self.run_ranks(1, *self.small(**gpu_run.SMALL, training__steps=3, compile__graphs=False), program=(GPU,),
                              environment={"NVTX_INJECTION64_PATH": os.environ["ARGOSY_RANGE_LOGGER"],
                                           "ARGOSY_RANGE_LOG": str(log)})
        self.assert_code(done, 0)
        lines = log.read_text().splitlines()
        depths = list(itertools.accumulate(1 if line.startswith("begin ") else -1 for line in lines))
        self.assertEqual((min(depths), max(depths), depths[-1]), (0, 2, 0))
        self.assertEqual(lines.count("begin the optimizer's update"), 3)
        operations = [line for line, depth in zip(lines, depths) if depth == 2]
        self.assertEqual(operations.count("begin Forward of stage 0 unit 1 microbatch 0"), 3)

    def test_slow_settings_are_named(self):
        environment = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1",
                       "PYTORCH_ALLOC_CONF": "expandable_segments:False", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                       "MALLOC_CHECK_": "0"}
        words = self.small(**gpu_run.SMALL, training__steps=10)  # a run of ten steps has a diagnosis
        done = self.run_ranks(1, *words, ":", "-n", 1, "-x", "NCCL_ALGO=Ring", "-x", "NCCL_DEBUG=TRACE", GPU, *words, program=(GPU,),
                              environment=environment)
        self.assert_code(done, 0)
        warnings = [line.partition("[0] ")[2] for line in done.stderr.splitlines() if " W [0]" in line]
        self.assertIn("float32 computes without this GPU's tensor cores", warnings.pop())  # this device's peaks are unknown
        self.assertEqual([warning.partition(": ")[0] for warning in warnings],
                         ["CUDA_LAUNCH_BLOCKING=1 on all ranks", "NCCL_DEBUG=INFO on rank 0", "NCCL_DEBUG=TRACE on rank 1",
                          "NCCL_P2P_DISABLE=1 on all ranks", "NCCL_ALGO=Ring on rank 1",
                          "PYTORCH_NO_CUDA_MEMORY_CACHING=1 on all ranks",
                          "PYTORCH_ALLOC_CONF=expandable_segments:False on all ranks"], done)
        self.assertNotIn(" W [1]", done.stderr)
        self.assertIn("diagnosis (settings): " + warnings[0], done.stderr)
        for warning in warnings[0], warnings[-2]:
            self.assertIn("many times slower; unset it", warning)
        alone = self.run_ranks(1, *self.small("cpu", training__steps=1), environment=environment)
        self.assert_code(alone, 0)
        self.assertNotIn("CUDA_LAUNCH_BLOCKING", alone.stderr)


if __name__ == "__main__":
    run.main()
