"""pretrain --plan: its answers, its exit codes, and its memory against runs."""
import functools
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "tests" / "pretrain"))
import run  # noqa: E402

# (ranks, settings): each axis, a pair of axes, recomputation, types. plan.ranks compares every layout and schedule.
CONFIGURATIONS = [
    (1, {}),
    (1, {"training.dtype": "bfloat16", "training.mixed_precision_param": "bfloat16", "optimizer.state_dtype": "bfloat16"}),
    (1, {"training.global_batch_size": 16, "training.mixed_precision_param": "bfloat16",
         "training.gradient_accumulation_dtype": "bfloat16"}),
    (1, {"training.attend_across_documents": False}),
    (2, {"parallelism.fsdp_reshard_after_forward": "never"}),
    (2, {"activation_checkpoint.mode": "full", "training.mixed_precision_param": "bfloat16"}),
    (2, {"parallelism.data_parallel_replicate_degree": 2}),
    (2, {"parallelism.tensor_parallel_degree": 2, "parallelism.enable_async_tensor_parallel": True}),
    (2, {"parallelism.pipeline_parallel_degree": 2, "parallelism.pipeline_parallel_schedule": "ZBVZeroBubble"}),
    (2, {"parallelism.context_parallel_degree": 2}),
    (2, {"parallelism.context_parallel_degree": 2, "parallelism.context_parallel_rotate_method": "ring"}),
    (4, {"parallelism.tensor_parallel_degree": 2, "parallelism.pipeline_parallel_degree": 2}),
]


class PlanTest(run.PretrainTest):
    def ask(self, *options, **settings):
        return subprocess.run([run.PRETRAIN, "--plan", *map(str, options), *run.words(settings)], capture_output=True,
                              text=True, timeout=run.LIMIT_SECONDS)

    def plan(self, *options, **settings):
        done = self.ask("--json", *options, **settings)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return json.loads(done.stdout)

    def test_utilisation_compares_types(self):
        """The faster type has the higher utilisation, because the peak is that of bfloat16 for both."""
        shares = {}
        for compute in ("float32", "bfloat16"):
            plan = self.plan("--gpus", 8, "--gpu", "h100", "--model.flavor", "1B", training__mixed_precision_param=compute)
            shares[compute] = plan["mfu_causal"] / plan["tokens_per_second"]
        self.assertAlmostEqual(shares["float32"], shares["bfloat16"], delta=1e-9 * shares["bfloat16"])

    def test_plans_of_a_search_have_their_collectives(self):
        def used():
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime

        before = used()
        done = self.ask("--json", "--gpus", 32, "--gpu", "h200", "--search", "--model.flavor", "70B",
                        training__global_batch_size=32, training__seq_len=8192)
        searched = used() - before
        # The same in units of one plan, which costs as much more when the machine is busy: 20 when it is not.
        costs = []
        for _ in range(3):
            before = used()
            self.plan("--gpus", 32, "--gpu", "h200", "--model.flavor", "70B", "--parallelism.tensor_parallel_degree", 8,
                      training__global_batch_size=32, training__local_batch_size=8, training__seq_len=8192)
            costs.append(used() - before)
        self.assertLess(searched / max(costs), 50)
        plans = [each["plan"] for each in json.loads(done.stdout)["best"]]
        rows = {plan["mesh"]: plan["ranks"][0]["tensor_collectives"] for plan in plans}
        self.assertTrue(any(" tp " in f" {mesh}" for mesh in rows), rows.keys())
        for mesh, found in rows.items():
            self.assertEqual("tp " in mesh, found != [], mesh)

    def test_tables_of_expected_speeds(self):
        """The committed tables are those that the planner of today writes."""
        configs = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "configs"
        copy = self.folder / "configs"
        shutil.copytree(configs, copy)
        subprocess.run([sys.executable, copy / "expected/plan_expected.py", run.PRETRAIN], check=True, timeout=run.LIMIT_SECONDS)
        for written in sorted((copy / "expected").glob("*.*")):
            self.assertEqual((configs / "expected" / written.name).read_text(), written.read_text(),
                             "configs/expected/plan_expected.py build/bin/pretrain writes them anew")

    def compare_with_a_run(self, number, ranks, settings):
        settings = {"training.seq_len": 128, "training.local_batch_size": 4, "training.steps": 2, **settings}
        steps = self.steps_of(ranks, f"run{number}", **settings)
        planned = self.plan("--gpus", ranks, *self.small(**settings))["ranks"][0]["memory"]
        measured = steps[-1]["memory_peak_gib"] * 2**30
        self.assertAlmostEqual(planned["peak_bytes"] / measured, 1, delta=0.03, msg=planned)
        parts = ("weights", "copies", "gradients", "moments", "gathered", "other")
        self.assertEqual(sum(planned[part] for part in parts), planned["peak_bytes"])

    def test_memory_is_that_of_runs(self):
        def compare(number):
            with self.subTest(CONFIGURATIONS[number]):
                self.compare_with_a_run(number, *CONFIGURATIONS[number])

        run.at_once([functools.partial(compare, number) for number in range(len(CONFIGURATIONS))])

    def test_says_whether_a_run_fits(self):
        big = ["--model.name", "llama3", "--model.flavor", "70B", "--gpu", "h100"]
        done = self.ask(*big, "--gpus", 8)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("DOES NOT FIT: a device has 79.1 GiB", done.stdout)
        done = self.ask(*big, "--gpus", 256, "--parallelism.tensor_parallel_degree", 8)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fits: a device has 79.1 GiB", done.stdout)
        self.assertIn("llama3 70B on 256 x h100 (dp_shard 32 x tp 8), 8 on a node", done.stdout)

    def test_knows_the_nodes(self):
        """Shards over nodes with one adapter for each GPU take longer than inside of a node."""
        job = ["--model.name", "llama3", "--model.flavor", "8B", "--gpus", 8, "--gpu", "h100"]
        one, many = (self.plan(*job, "--gpus-per-node", number) for number in (8, 1))
        self.assertEqual(one["ranks"][0]["moved_bytes"], many["ranks"][0]["moved_bytes"])
        self.assertGreater(many["step_seconds"], one["step_seconds"])

    def test_links_are_those_of_a_report(self):
        """The bandwidth is at least the median bus bandwidth of the largest sizes, which includes the latency."""
        report = self.folder / "links.json"
        bench = [run.MPIRUN, 2, run.PRETRAIN.with_name("nccl-bench"), "all_gather", "-b", "256", "-e", "32M", "-f", "2",
                 "-n", 5, "--backend", "mpi", "--json", report]
        subprocess.run(list(map(str, bench)), check=True, timeout=run.LIMIT_SECONDS, stdout=subprocess.DEVNULL)
        speeds = sorted(row["out_of_place"]["bus_bw"] for row in json.loads(report.read_text())["results"][-3:])
        job = ["--gpus", 2, "--links", report, "--training.seq_len", 64]
        collective, others = self.plan(*job)["links"]["in_node"]
        self.assertEqual((collective["collective"], others["collective"]), ("all-gather", None))
        self.assertEqual(collective["source"], f"all_gather over 2 ranks, {report}")
        self.assertGreater(collective["bytes_per_second"], 0.999e9 * speeds[1])
        self.assertLess(collective["bytes_per_second"], 1e13)
        self.assertTrue(0 <= collective["latency_seconds"] < 1, collective)
        self.assertEqual(others["bytes_per_second"], collective["bytes_per_second"])
        self.assertRegex(self.ask(*job).stdout,
                         rf"links     all-gather in a node .*\(all_gather over 2 ranks, {report}\)")
        done = self.ask(*job, "--gpus", 4)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("another number of ranks: 2 on a node, and the plan has 4", done.stderr)

    def test_lists_the_collectives_of_tensor_parallelism(self):
        job = ["--gpus", 4, "--gpu", "h100", "--parallelism.tensor_parallel_degree", 4]
        text = self.ask(*job).stdout
        self.assertRegex(text, r"tp +forward +tok_embeddings +reduce-scatter +1 .* no: no product before it\n")
        self.assertRegex(text, r"tp +forward +wq, wk, wv +all-gather .* no: enable_async_tensor_parallel is off\n")
        self.assertNotIn("collectives of tensor and expert parallelism", self.ask("--gpus", 4, "--gpu", "h100").stdout)
        text = self.ask(*job, "--parallelism.enable_async_tensor_parallel", "true").stdout
        self.assertRegex(text, r"tp +forward +wq, wk, wv +all-gather in parts .* yes\n")
        rank = self.plan(*job)["ranks"][0]
        rows = rank["tensor_collectives"]
        for way in ("sent", "received"):
            self.assertEqual(sum(row[way] for row in rows if row["group"] == "tp"), rank["moved_bytes"]["tp"][way])

    def test_says_its_choice_of_overlap(self):
        job = ["--gpus", 4, "--gpu", "h100", "--parallelism.tensor_parallel_degree", 4]
        chosen = self.ask(*job, "--parallelism.enable_async_tensor_parallel", "auto")
        said = re.search(r"async tensor parallelism (on|off): the plan for h100 predicts that a step takes [\d.]+ % "
                         r"(more|less) time with it", chosen.stderr)
        self.assertIsNotNone(said, chosen.stderr)
        same = self.ask(*job, "--parallelism.enable_async_tensor_parallel", "true" if said[1] == "on" else "false")
        self.assertEqual(chosen.stdout, same.stdout)

    def test_an_h200_is_as_fast_as_measured(self):
        """tests/gpu/results/; nothing was fitted to the last two. That of float8 is the sum of the kernels' times."""
        float8 = {"model__converters": "quantize.linear.float8", "quantize__linear__float8__enable_fsdp_float8_all_gather": "true"}
        for flavor, microbatch, batch, gradients, more, measured, tolerance in (
                ("0.5B", 64, 128, "float32", {}, 166965, 0.03), ("1.5B", 32, 128, "float32", {}, 61062, 0.03),
                ("3B", 16, 128, "float32", {}, 31590, 0.03), ("7B", 8, 32, "bfloat16", {}, 13996, 0.03),
                ("7B", 8, 512, "float32", {}, 14187, 0.06), ("7B", 8, 8, "float32", float8, 19934, 0.06)):
            with self.subTest(flavor, **more):
                plan = self.plan("--gpus", 1, "--gpu", "h200", model__name="qwen2", model__flavor=flavor, training__seq_len=1024,
                                 training__local_batch_size=microbatch, training__global_batch_size=batch,
                                 training__dtype="bfloat16", training__gradient_accumulation_dtype=gradients,
                                 optimizer__state_dtype="bfloat16", activation_checkpoint__mode="none", **more)
                self.assertLess(abs(plan["tokens_per_second"] / measured - 1), tolerance, plan["tokens_per_second"])

    def test_the_share_of_products_can_be_given(self):
        seconds = [self.plan("--gpus", 1, "--gpu", "h100", "--product-share", share, model__flavor="1B", training__seq_len=4096)["step_seconds"]
                   for share in (0.2, 0.4)]
        self.assertGreater(seconds[0], 1.5 * seconds[1])

    def test_search_casts_products_where_they_fit(self):
        """Weights kept in float8 fit only with the recomputation that is given, which number 1 leaves out."""
        config = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "configs/qwen2.5_7b_1gpu.toml"
        done = subprocess.run([run.PRETRAIN, "--search", "--json", "--gpus", "1", "--gpu", "h100", "--config", config],
                              capture_output=True, text=True, check=True, timeout=run.LIMIT_SECONDS)
        found = json.loads(done.stdout)
        fastest = found["narrower"][0]["changes"]
        self.assertEqual(fastest["quantize.linear.float8.enable_fsdp_float8_all_gather"], "true")
        self.assertNotIn("activation_checkpoint.mode", fastest)
        self.assertEqual(found["best"][0]["changes"], {"activation_checkpoint.mode": '"none"'})

    def test_search_prints_keys_that_run(self):
        job = ["--search", "--gpus", 2, "--gpu", "h100", "--training.seq_len", 64]
        done = subprocess.run([run.PRETRAIN, *map(str, job)], capture_output=True, text=True, timeout=run.LIMIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        keys = self.folder / "keys.toml"
        keys.write_text(done.stdout.partition("# Number 1 is the given configuration with these keys:\n")[2])
        found = subprocess.run([run.PRETRAIN, *map(str, job), "--json"], capture_output=True, text=True, check=True)
        best = json.loads(found.stdout)["best"][0]["plan"]
        self.assertEqual(self.plan("--gpus", 2, "--gpu", "h100", "--config", keys, training__seq_len=64), best)

    def test_takes_machines_and_links_in_words(self):
        def machine(*words):
            plan = self.plan("--gpus", 16, *words, "--model.flavor", "1B", "--training.seq_len", 64)
            speeds = [plan["links"][where][0]["bytes_per_second"] for where in ("in_node", "between_nodes")]
            return plan["memory_room_bytes"] / 2**30, *(speed / 0.8e9 for speed in speeds)

        self.assertEqual(machine("--gpu", "H100"), machine("--gpu", "h100"))
        room, nvlink, network = machine("--gpu", "a100-40GB", "--nvlink", "none", "--network", "100Gb/s")
        beside = 1.5 + 2 * 0.234375  # CUDA, and two communicators: of gathers, of reductions
        self.assertAlmostEqual(room, 40 * 0.98 - beside)
        self.assertAlmostEqual(nvlink, 32)
        self.assertAlmostEqual(network, 12.5)
        self.assertAlmostEqual(machine("--gpu", "h100", "--gpu-memory", 90)[0], 90 - beside)
        self.assertEqual(machine("--gpu", "l40s:48")[0], machine("--gpu", "l40s")[0])
        self.assertAlmostEqual(machine("--gpu", "RTX4090", "--network", "1.5GB/s")[2], 1.5)

    def test_leaves_memory_to_the_communicators_that_a_run_opens(self):
        job = ["--gpus", 8, "--gpu", "h100", "--model.flavor", "1B", "--training.seq_len", 64]
        muon = [*job, "--optimizer.name", "Muon", "--parallelism.data_parallel_replicate_degree", 2]
        stages = [*job, "--parallelism.pipeline_parallel_degree", 4]
        few = ["--comm.collective_channels", 8, "--comm.message_channels", 4]
        for words, collectives, messages, said in (
                (["--gpu", "h100", "--model.flavor", "1B"], 0, 0, "1.5 GiB for CUDA\n"),
                (job, 2, 0, "0.4688 GiB for 2 NCCL communicators of 24 channels\n"),
                (muon, 4, 0, "0.9375 GiB for 4 NCCL communicators of 24 channels\n"),
                (stages, 2, 2, "0.9375 GiB for 6 NCCL communicators of 24 channels\n"),
                ([*stages, *few], 2, 2, "0.2344 GiB for 6 NCCL communicators of 8 channels, 4 for messages\n")):
            with self.subTest(words=words):
                rank = self.plan(*words)["ranks"][0]
                channels = (8, 4) if words[-4:] == few else (24, 24)
                self.assertEqual(rank["communicators"], collectives + 2 * messages)
                self.assertEqual(rank["communicator_bytes"], (collectives * channels[0] + messages * channels[1]) * 10 * 2**20)
                self.assertIn(said, self.ask(*words).stdout)

    def test_leaves_memory_to_the_rings_that_copy(self):
        job = ["--gpus", 16, "--gpu", "h100", "--model.name", "llama3", "--model.flavor", "8B", "--training.seq_len", 8192,
               "--training.local_batch_size", 1, "--compile.graphs", "false", "--parallelism.enable_async_tensor_parallel", "true",
               "--parallelism.tensor_parallel_degree"]
        messages, copies = (self.plan(*job, 8, "--comm.peer_copies", value)["ranks"][0] for value in ("false", "true"))
        # gathered matrices of 8192 rows and 4096 columns in bf16 have 64 MiB
        self.assertGreaterEqual(copies["peer_bytes"], 64 * 2**20)
        self.assertEqual(messages["peer_bytes"], 0)
        self.assertLess(copies["memory"]["peak_bytes"], messages["memory"]["peak_bytes"])
        self.assertEqual(messages["communicators"] - copies["communicators"], 4)
        self.assertEqual(messages["seconds"], copies["seconds"])
        self.assertEqual(messages["moved_bytes"], copies["moved_bytes"])
        copied = [*job[:-1], "--comm.peer_copies", "true", job[-1]]
        self.assertRegex(self.ask(*copied, 8).stdout, r"assumed beside tensors: .*, [\d.]+ GiB that neighbours write to")
        self.assertEqual(self.plan(*copied, 16)["ranks"][0]["peer_bytes"], 0, "ranks on two nodes")

    def test_graphs_that_the_user_demands_exclude_an_overlap_by_copies(self):
        job = ["--gpus", 8, "--gpu", "h100", "--model.flavor", "1B", "--compile.graphs", "true", "--comm.peer_copies", "true",
               "--parallelism.tensor_parallel_degree", 2]
        done = self.ask(*job, "--parallelism.enable_async_tensor_parallel", "auto")
        self.assertIn(done.returncode, (0, 3), done.stderr)
        self.assertIn("async tensor parallelism off: comm.peer_copies", done.stderr)

    def test_collectives_of_few_channels_leave_multiprocessors_to_products(self):
        job = ["--model.name", "llama3", "--model.flavor", "8B", "--gpus", 8, "--gpu", "h100"]
        many, as_many, few = (self.plan(*job, "--comm.collective_channels", limit)["ranks"][0]["seconds"]["compute"]
                              for limit in (0, 32, 8))
        self.assertEqual(many, as_many, "NCCL chooses 24 below the limit")
        self.assertLess(few, 0.995 * many)

    def test_says_how_far_plans_were_from_published_runs(self):
        """The differences that the text says for a kind are those of its held-out rows in configs/scaling/README.md."""
        page = (pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "configs/scaling/README.md").read_text()
        rows = re.findall(r"^\| (.*?) \| \w+ \| \d+ (\w+) \| .* ([+-]\d+) % \|$", page, re.MULTILINE)
        for kind in ("A100", "H100", "H200", "B200"):
            # TorchTitan's 405B rows do not say how many microbatches there were.
            known = [int(percent) for name, gpu, percent in rows if gpu == kind and "fitted" not in name and
                     not (name.startswith("405B") and " of " in name)]
            number, least, most = len(known), min(known), max(known)
            if least < 0:
                said = f"plans of {number} published runs of dense models on {kind} are {-least} % slower to {most} % faster"
            else:
                said = (f"plans of {number} published runs of dense models on {kind} are {least} to {most} % faster" if number > 1 else
                        f"the plan of 1 published run of dense models on {kind} is {most} % faster")
            self.assertIn(f"with the shares of other programs, {said}", self.ask("--gpus", 8, "--gpu", kind).stdout)
        self.assertNotIn("published", self.ask("--gpu", "h100", "--product-share", 0.5).stdout)

    def test_launches_bound_small_steps_without_graphs(self):
        job = ["--gpu", "h100", "--gpus", 1, "--config", pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "configs/small_256x6x16.toml"]
        launches = {(batch, graphs): self.plan(*job, "--training.local_batch_size", batch, "--compile.graphs", graphs)["ranks"][0]["seconds"]["launches"]
                    for batch in (1, 64) for graphs in ("true", "false")}
        self.assertGreater(launches[1, "false"], 1e-4)
        self.assertEqual({launches[1, "true"], launches[64, "true"], launches[64, "false"]}, {0})
        # Runs on several nodes record no graphs unless they are told to.
        job = ["--gpu", "h100", "--gpus", 16, "--model.flavor", "debugmodel", "--training.seq_len", 256, "--training.local_batch_size", 1,
               "--parallelism.data_parallel_replicate_degree", 16]
        many = {graphs: self.plan(*job, "--compile.graphs", graphs)["step_seconds"] for graphs in ("auto", "true", "false")}
        self.assertEqual(many["auto"], many["false"])
        self.assertLess(many["true"], many["auto"])

    def test_names_float32_and_its_factor(self):
        job = ["--gpu", "h100", "--model.flavor", "1B", "--training.mixed_precision_param"]
        self.assertIn("computes in float32, whose peak is 14.8 times lower", self.ask(*job, "float32").stdout)
        self.assertNotIn("computes in", self.ask(*job, "bfloat16").stdout)

    def test_finds_what_made_published_runs_slow(self):
        """Llama 3 70B on 4 nodes of 8 H200 over a bad network, sharded over all: an eighth of its speed with shards inside
        the nodes. 1.5B on two nodes: 26 s a step, 0.7 s on one. Both are planned as slow, for the same reason."""
        configs = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "configs"

        def plan(config, *words):
            found = self.plan("--gpu", "h200", "--config", configs / config, *words)
            exposed = found["ranks"][0]["seconds"]["exposed"]
            return found["tokens_per_second"], found["step_seconds"], max(exposed, key=exposed.get)

        slow = ["--network", "1GB/s", "--gpus", 32]
        in_nodes = plan("llama3_70b_4x8.toml", *slow)
        over_all = plan("llama3_70b_4x8.toml", *slow, "--parallelism.data_parallel_replicate_degree", 1,
                        "--parallelism.data_parallel_shard_degree", 32)
        self.assertLess(over_all[0], 0.3 * in_nodes[0])
        self.assertEqual(over_all[2], "dp_shard")
        two = plan("qwen2.5_1.5b_2nodes.toml", "--gpus", 16, "--network", "0.1GB/s")
        one = plan("qwen2.5_1.5b_2nodes.toml", "--gpus", 8, "--parallelism.data_parallel_replicate_degree", 1)
        self.assertGreater(two[1], 20 * one[1])
        self.assertEqual(two[2], "dp_replicate")

    def test_errors(self):
        for options, code, message in (
                (["--gpu", "h1000"], 2, "--gpu h1000 is unknown; known are a100, h100, h200, b200, l40s, rtx4090 and cpu"),
                (["--gpu", "MI300X"], 2, "--gpu mi300x: GPUs of AMD cannot run this program"),
                (["--gpus", "4096"], 2, "--gpus 4096 without --gpu would plan 4096 ranks on this processor"),
                (["--gpu", "h100", "--network", "25"], 2, "--network must be a GPU's speed in one direction, as 25GB/s"),
                (["--gpu", "h100", "--gpus", "16", "--network", "none"], 2, "16 GPUs with 8 on a node need one"),
                (["--gpu", "h100:96", "--gpu-memory", "90"], 2, "--gpu h100:96 has a memory, and --gpu-memory is another"),
                (["--gpu", "h100:1.5"], 2, "a memory of 1.47 GiB; it must be above 1.5 GiB"),
                (["--gpu", "h100:inf"], 2, "--gpu h100:inf is unknown"),
                (["--nvlink", "none"], 2, "--nvlink is for a GPU (--gpu)"),
                (["--gpu", "h100", "--program", "nemo"], 2, "--program nemo is unknown; known are argosy, torchtitan and megatron"),
                (["--gpu", "a100", "--power", "500"], 2, "--power 500: a100 has at most 400 W"),
                (["--gpu", "a100", "--power", "300", "--product-share", "0.5"], 2, "--product-share is the share at any power"),
                (["--power", "500"], 2, "--power is for a GPU (--gpu)"),
                # An error while the options of a converter are in use.
                (["--gpus", "64", "--gpu", "h100", "--model.flavor", "70B", "--training.local_batch_size", "8",
                  "--parallelism.pipeline_parallel_degree", "8", "--parallelism.pipeline_parallel_layers_per_stage", "2",
                  "--model.converters", "quantize.linear.float8", "--quantize.linear.float8.filter_fqns", "output"], 2,
                 "makes 41 stages of 82 layers"),
                (["--gpus", "none"], 2, "--gpus must be an integer in [1, 1048576], but is 'none'"),
                (["--gpus", "3", "--parallelism.tensor_parallel_degree", "2"], 2, "tp 2 takes a multiple of 2 ranks"),
                (["--gpu", "h100", "--product-share", "1.2"], 2, "--product-share must be above 0 and at most 1, but is '1.2'"),
                (["--product-share", "0.5"], 2, "--product-share is for a GPU (--gpu): this processor is measured"),
                (["--json=yes"], 2, "--json takes no value, but got 'yes'")):
            with self.subTest(options=options):
                done = self.ask(*options)
                self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
                self.assertIn(message, done.stderr)
        done = subprocess.run([run.PRETRAIN, "--gpus", "8"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--gpus is an option of --plan; add --plan", done.stderr)


if __name__ == "__main__":
    unittest.main()
