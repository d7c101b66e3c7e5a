"""Properties of training on a GPU, on a real one (tests/gpu/train_test.py) or on stand-ins (gpu_test.py): losses and
initial weights equal the CPU's, and neither graphs nor a repetition change a bit. A script derives its tests from OnGpu
and defines how the two programs are started."""
import json
import pathlib
import signal
import time

import run

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

SMALL = {"training__global_batch_size": 4, "training__local_batch_size": 1, "training__seq_len": 16}
STEPS = {"training__steps": 3}  # the second one is the first that runs as a graph
CONFIG = {"vocab_size": 260, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 80, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu"}
FAMILIES = {"llama": ("LlamaForCausalLM", False), "qwen2": ("Qwen2ForCausalLM", True), "qwen3": ("Qwen3ForCausalLM", True)}
EXPERTS = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "tie_word_embeddings": False, "num_experts": 6,
           "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1,
           "mlp_only_layers": []}
BFLOAT16 = {"training__mixed_precision_param": "bfloat16"}
BFLOAT16_STATES = BFLOAT16 | {"training__dtype": "bfloat16", "optimizer__state_dtype": "bfloat16"}
BFLOAT16_GRADIENTS = BFLOAT16 | {"training__gradient_accumulation_dtype": "bfloat16"}
RECIPE, GATHER = ("quantize__linear__float8__" + key for key in ("recipe_name", "enable_fsdp_float8_all_gather"))
# At a multiple of 128 tokens cuDNN computes attention on a GPU (lib/platform/gpu/with_cuda/attention.cpp). Its backward pass does not
# repeat its bits.
CUDNN = BFLOAT16_STATES | {"training__seq_len": 128, "training__global_batch_size": 2, "training__local_batch_size": 1}
DETERMINISTIC = {"debug__deterministic": True}
# Samples so long that some have parts of several documents.
DOCUMENTS = BFLOAT16 | {"training__attend_across_documents": False, "training__seq_len": 128,
                        "training__global_batch_size": 2, "training__local_batch_size": 1}
REPLICATE, SHARD = "parallelism__data_parallel_replicate_degree", "parallelism__data_parallel_shard_degree"
TENSOR, PIPELINE = "parallelism__tensor_parallel_degree", "parallelism__pipeline_parallel_degree"
CONTEXT, ROTATE = "parallelism__context_parallel_degree", "parallelism__context_parallel_rotate_method"
LAYOUTS = {"fsdp2": (2, {SHARD: 2}), "ddp2": (2, {REPLICATE: 2}), "tp2": (2, {TENSOR: 2}), "pp2": (2, {PIPELINE: 2}),
           "hsdp2x2": (4, {REPLICATE: 2}), "cp2": (2, {CONTEXT: 2}), "ring2": (2, {CONTEXT: 2, ROTATE: "ring"}),
           "tp2_async": (2, {TENSOR: 2, "parallelism__enable_async_tensor_parallel": True,
                             "parallelism__disable_loss_parallel": True})}


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def losses(steps):
    """(loss, norm) of each step."""
    return [(step["loss"], step["grad_norm"]) for step in steps]


def bits(path):
    """{name: bytes} of every tensor of the model in a checkpoint, read through its views; HDF5 converts nothing."""
    found = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            elements = numpy.empty(item.shape, f"V{item.id.get_type().get_size()}")
            item.id.read(h5py.h5s.ALL, h5py.h5s.ALL, elements, mtype=item.id.get_type())
            found[name] = elements.tobytes()

    with h5py.File(path) as file:
        file["model"].visititems(add)
    return found


class Places:
    # (words of the program, environment) of each program, and the log's text about the device.
    cpu = gpu = None
    device_name = ""
    fp32_tolerance = 1e-5

    def run_on(self, place, num_ranks, dump, **settings):
        program, environment = place
        done = self.run_ranks(num_ranks, *self.small(dump, **(SMALL | STEPS | settings)), program=program, limit=300,
                              environment=environment)
        self.assert_code(done, 0)
        self.assertEqual(f"computes on {self.device_name}" in done.stderr, place is self.gpu, done)
        self.assertNotIn("computed in another way", done.stderr)  # cuBLASLt has every product
        return done.stderr

    def train(self, place, num_ranks, dump, **settings):
        """(loss, norm) of each step."""
        self.run_on(place, num_ranks, dump, **settings)
        return losses(self.steps(dump))

    def once(self, place, num_ranks, **settings):
        """The steps of such a run, which the tests of a class make once."""
        known = type(self).__dict__.get("made")
        if known is None:
            known = type(self).made = {}
        key = (place is self.gpu, num_ranks, json.dumps(settings, sort_keys=True, default=str))
        if key not in known:
            dump = f"once{len(known)}"
            self.run_on(place, num_ranks, dump, **settings)
            known[key] = self.steps(dump)
        return known[key]

    def assert_alike(self, one, other, tolerance):
        self.assertEqual(len(one), len(other))
        for (loss, norm), (other_loss, other_norm) in zip(one, other):
            self.assertLess(abs(loss / other_loss - 1), tolerance, f"{one} and {other}")
            self.assertLess(abs(norm / other_norm - 1), 100 * tolerance, f"{one} and {other}")

    def on_both(self, dump, **settings):
        return [self.train(place, 1, f"{dump}{i}", **settings) for i, place in enumerate((self.cpu, self.gpu))]

    def assert_layouts_do_not_matter(self, **settings):
        """The losses of one rank equal those of each layout."""
        expected = losses(self.once(self.gpu, 1, **settings))
        for name, (num_ranks, layout) in LAYOUTS.items():
            with self.subTest(name):
                found = losses(self.once(self.gpu, num_ranks, **layout, **settings))
                self.assert_alike(found, expected, self.fp32_tolerance)

    def experts(self):
        """The settings of a model with experts. A multiple of 8 elements, as a GPU's products of groups want them."""
        assets = self.folder / "experts"
        assets.mkdir(exist_ok=True)
        (assets / "config.json").write_text(json.dumps(CONFIG | EXPERTS))
        return {"model__hf_assets_path": assets}

    def float8(self, converter="quantize.linear.float8", unit=32):
        """The settings of two steps of a model whose matrices have sides that products of eight bits take. A multiple of
        `unit` elements."""
        assets = self.folder / f"float8_{unit}"
        assets.mkdir(exist_ok=True)
        (assets / "config.json").write_text(json.dumps(CONFIG | {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False,
            "vocab_size": 272 if unit == 32 else 3 * unit,
            "hidden_size": 2 * unit, "head_dim": unit // 2, "intermediate_size": 3 * unit, "num_hidden_layers": 1}))
        return BFLOAT16 | {"model__converters": converter, "model__hf_assets_path": assets, "training__steps": 2,
                           "training__global_batch_size": 4, "training__local_batch_size": 2}


class OnGpu(Places):
    """The losses of one rank."""

    def test_losses_equal_the_cpus(self):
        for family, (architecture, tied) in FAMILIES.items():
            with self.subTest(family):
                assets = self.folder / family
                assets.mkdir()
                (assets / "config.json").write_text(json.dumps(CONFIG | {
                    "model_type": family, "architectures": [architecture], "tie_word_embeddings": tied}))
                cpu, gpu = self.on_both(family, model__hf_assets_path=assets)
                self.assert_alike(gpu, cpu, self.fp32_tolerance)

    def test_bfloat16_stays_within_tolerance(self):
        for name, settings in (("mixed", BFLOAT16), ("states", BFLOAT16_STATES), ("gradients", BFLOAT16_GRADIENTS)):
            with self.subTest(name):
                cpu, gpu = self.on_both(name, **settings)
                self.assert_alike(gpu, cpu, 5e-3)

    def test_experts_have_the_cpus_losses(self):
        for name, settings, tolerance in (("float32", {}, self.fp32_tolerance), ("gradients", BFLOAT16_GRADIENTS, 5e-3)):
            with self.subTest(name):
                cpu, gpu = self.on_both(name, **self.experts(), **settings)
                self.assert_alike(gpu, cpu, tolerance)

    def test_float8_stays_within_tolerance_and_a_graph_changes_no_bit(self):
        blockwise = {RECIPE: "blockwise", "training__seq_len": 64}
        for name, unit, more in (("tensorwise", 32, {GATHER: True}), ("rowwise", 32, {RECIPE: "rowwise"}),
                                 ("blockwise", 128, blockwise)):
            with self.subTest(name):
                settings = self.float8(unit=unit) | DETERMINISTIC | more
                cpu, gpu = self.on_both(name, **settings)
                self.assert_alike(gpu, cpu, 5e-3)
                self.assertEqual(gpu, self.train(self.gpu, 1, f"none{name}", compile__graphs=False, **settings))

    def test_a_graph_changes_no_bit(self):
        for name, settings in (("float32", {}), ("gradients", BFLOAT16_GRADIENTS | DETERMINISTIC)):
            with self.subTest(name):
                graphs = losses(self.once(self.gpu, 1, **settings))
                self.assertEqual(graphs, losses(self.once(self.gpu, 1, compile__graphs=False, **settings)))
                self.assertEqual(graphs, self.train(self.gpu, 1, f"separate{name}", compile__enable=False, **settings))

    def test_computing_has_kinds(self):
        for name, settings in (("graphs", {}), ("none", {"compile__graphs": False})):
            with self.subTest(name):
                for step in self.once(self.gpu, 1, **settings):
                    kinds, compute = step["compute_kinds_ms"], step["time_ms"]["compute"]
                    self.assertAlmostEqual(sum(kinds.values()) / compute, 1, delta=0.05, msg=step)  # of two clocks
                    for kind in ("forward", "head", "backward", "weights"):
                        self.assertGreater(kinds[kind], 0, step)

    def test_a_graph_reads_the_documents_of_each_step(self):
        cpu, graphs = self.on_both("run", **DOCUMENTS, **DETERMINISTIC)
        self.assert_alike(graphs, cpu, 5e-3)
        self.assertEqual(graphs, self.train(self.gpu, 1, "none", compile__graphs=False, **DOCUMENTS, **DETERMINISTIC))

    def test_cudnn_computes_the_attention_of_documents(self):
        cudnn = {"compile__masked_attention": "cudnn"}
        flash = losses(self.once(self.gpu, 1, **DOCUMENTS))
        found = self.train(self.gpu, 1, "cudnn", **DOCUMENTS, **cudnn)
        self.assert_alike(found, flash, 5e-3)
        self.assertNotEqual(found, flash)  # FlashAttention rounds elsewhere
        first, again = (self.train(self.gpu, 1, name, **DOCUMENTS, **DETERMINISTIC, **cudnn) for name in ("first", "again"))
        self.assertEqual(first, again)

    def test_a_graph_changes_no_loss_with_the_attention_of_long_samples(self):
        cpu, graphs = self.on_both("run", **CUDNN)
        self.assert_alike(graphs, cpu, 5e-3)
        self.assert_alike(graphs, self.train(self.gpu, 1, "none", compile__graphs=False, **CUDNN), 5e-3)

    def test_deterministic_runs_repeat_every_bit(self):
        for name, settings in (("float32", {}), ("plain", {"debug__plain_operations": True}),
                               ("gradients", BFLOAT16_GRADIENTS)):
            with self.subTest(name):
                again = self.train(self.gpu, 1, name, **DETERMINISTIC, **settings)
                self.assertEqual(losses(self.once(self.gpu, 1, **settings, **DETERMINISTIC)), again)

    def test_initial_weights_equal_the_cpus_bit_for_bit(self):
        if h5py is None:
            self.skipTest("no h5py and numpy here")
        for name, settings in (("float32", {}), ("bfloat16", BFLOAT16_STATES)):
            with self.subTest(name):
                weights = []
                for i, place in enumerate((self.cpu, self.gpu)):
                    # The learning rate is 0, so the step saves the initial weights.
                    self.run_on(place, 1, f"{name}{i}", optimizer__lr=0, training__steps=1, checkpoint__enable=True,
                                lr_scheduler__warmup_steps=0, **settings)
                    folder = self.folder / f"{name}{i}" / "checkpoint" / "step-00000001"
                    weights.append(bits(folder / "checkpoint.h5"))
                self.assertGreater(len(weights[0]), 10)
                self.assertEqual(*weights)

    def test_recompute_changes_no_loss(self):
        expected = self.train(self.gpu, 1, "plain")
        again = self.train(self.gpu, 1, "full", activation_checkpoint__mode="full")
        self.assert_alike(again, expected, self.fp32_tolerance)


class BetweenRanks(Places):
    """The losses of several ranks."""

    def test_a_graph_changes_no_bit_between_ranks(self):
        narrow = {"training__gradient_accumulation_dtype": "bfloat16"}
        for name, gradients in (("fsdp2", {}), ("ddp2", narrow), ("pp2", {})):
            with self.subTest(name, **gradients):  # gathers, sums over replicas, messages in the graph
                num_ranks, layout = LAYOUTS[name]
                settings = layout | gradients | {"compile__graphs": True}
                graphs = losses(self.once(self.gpu, num_ranks, **settings))
                plain = self.train(self.gpu, num_ranks, f"none{name}", **(settings | {"compile__graphs": False}))
                self.assertEqual(graphs, plain)

    def test_registered_memory_and_products_that_leave_channels_between_ranks(self):
        num_ranks, layout = LAYOUTS["fsdp2"]
        layout = layout | {"comm__gpu_path": "nccl"}
        usual = losses(self.once(self.gpu, num_ranks, **layout))
        log = self.run_on(self.gpu, num_ranks, "registered", **layout, comm__registered_memory=True,
                          comm__collective_channels=16, comm__products_leave_channels=True)
        self.assert_alike(losses(self.steps("registered")), usual, self.fp32_tolerance)
        self.assertRegex(log, r"products leave the multiprocessors of NCCL's channels under way, of \d+ in all")
        self.assertRegex(log, r"NCCL registered [\d.]+ GiB of the memory for gathers and reductions; it left [\d.]+ GiB alone")

    def test_peer_copies_change_no_bit(self):
        num_ranks, layout = LAYOUTS["tp2_async"]
        layout = layout | DETERMINISTIC | {"comm__gpu_path": "nccl"}
        usual = self.train(self.gpu, num_ranks, "messages", **layout, compile__graphs=False)
        log = self.run_on(self.gpu, num_ranks, "copies", **layout, comm__peer_copies=True)
        self.assertEqual(losses(self.steps("copies")), usual)
        self.assertIn("the exchanges of tp are copies to the memory of the next rank's GPU", log)
        self.assertRegex(log, r"exchanges along a ring have [\d.]+ GiB of GPU memory to which neighbours write")
        self.assertIn("no CUDA graphs: comm.peer_copies numbers the exchanges", log)

    def test_experts_between_ranks(self):
        expected = self.train(self.gpu, 1, "one", **self.experts())
        num_ranks, layout = LAYOUTS["fsdp2"]
        found = self.train(self.gpu, num_ranks, "two", parallelism__expert_parallel_degree=2, **layout, **self.experts())
        self.assert_alike(found, expected, self.fp32_tolerance)

    def test_a_killed_rank_ends_the_job(self):
        """Ranks that wait for it end, too, and the job says which one was killed."""
        num_ranks, layout = LAYOUTS["fsdp2"]
        job = self.start(num_ranks, *self.small("killed", **(SMALL | layout | {"training__steps": 100000})), program=self.gpu[0],
                         environment=self.gpu[1])
        metrics = self.folder / "killed" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < 3:
            self.assertIsNone(job.mpirun.poll(), "the job ended early")
            self.assertLess(time.monotonic() - job.started, 120, "it never began")
            time.sleep(0.02)
        killed, ranks = time.monotonic(), job.rank_pids()
        run.send(ranks[1], signal.SIGKILL)
        done = job.finish(60)
        self.assertNotIn(done.code, (0, None), done)
        self.assertFalse(done.hung, done)
        self.assertLess(time.monotonic() - killed, 30)
        self.assertRegex(done.stderr + done.stdout, r"rank 1\b.*exited on signal 9")
        while left := [rank for rank, pid in ranks.items() if is_alive(pid)]:
            self.assertLess(time.monotonic() - killed, 40, f"ranks {left} have not ended")
            time.sleep(0.05)

    def test_float8_between_ranks(self):
        settings = self.float8()
        expected = self.train(self.gpu, 1, "one", **settings)
        for name in ("fsdp2", "tp2"):
            with self.subTest(name):
                num_ranks, layout = LAYOUTS[name]
                found = self.train(self.gpu, num_ranks, name, **layout, **settings, **{GATHER: True})
                self.assert_alike(found, expected, 5e-3)
