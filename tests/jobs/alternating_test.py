"""What why_slow.sh and fabric_ab.sh share: changes against noise. And which experiments a run gets, on made-up runs."""
import contextlib
import io
import json
import math
import os
import pathlib
import random
import re
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path.insert(0, str(SOURCE / "jobs/python"))
import alternating  # noqa: E402
import made_up_runs  # noqa: E402
import slow_variants  # noqa: E402
import why_slow  # noqa: E402


def made_up(random_numbers, factors, num_rounds, deviation, drift=0.0):
    """Rounds of the baseline, twice in each, and of variants whose true factors these are."""
    def value(factor, number):
        return 100 * factor * (1 + drift * number) * random_numbers.lognormvariate(0, deviation)
    return {"baseline": [[value(1, number), value(1, number)] for number in range(num_rounds)],
            **{name: [[value(factor, number)] for number in range(num_rounds)] for name, factor in factors.items()}}


class Changes(unittest.TestCase):
    def test_exact_values(self):
        rounds = {"baseline": [[100, 100], [200, 200]], "half": [[50], [100]], "same": [[100.5], [201]]}
        changes = alternating.compare(rounds, "baseline")
        self.assertAlmostEqual(changes["half"].percent, -50)
        self.assertTrue(changes["half"].differs)
        self.assertAlmostEqual(changes["same"].percent, 0.5)
        self.assertFalse(changes["same"].differs)  # below 1 %
        self.assertAlmostEqual(alternating.noise_of(rounds, "baseline"), 100 * math.expm1(0.01))

    def test_noise_is_rarely_taken_for_a_change(self):
        """Variants without effect: of eight, less than 1 % of the comparisons are wrong, of two with three rounds, less than 3 %."""
        for num_variants, num_rounds, share in ((8, 3, 0.01), (8, 4, 0.008), (2, 3, 0.03)):
            random_numbers, wrong = random.Random(1), 0
            for trial in range(500):
                names = {f"v{number}": 1 for number in range(num_variants)}
                changes = alternating.compare(made_up(random_numbers, names, num_rounds, 0.1, drift=0.2), "baseline")
                wrong += sum(change.differs for change in changes.values())
            self.assertLess(wrong, share * 500 * num_variants)

    def test_changes_beyond_noise_are_found(self):
        """A drift of 20 % a round hides nothing."""
        random_numbers = random.Random(2)
        for trial in range(200):
            rounds = made_up(random_numbers, {"faster": 0.8, "slower": 1.3, "a": 1, "b": 1}, 3, 0.02, drift=0.2)
            changes = alternating.compare(rounds, "baseline")
            self.assertTrue(changes["faster"].differs and changes["slower"].differs, trial)
            self.assertLess(abs(changes["faster"].percent + 20), 8)
            self.assertLess(abs(changes["slower"].percent - 30), 12)
            self.assertLess(changes["faster"].noise, 15)

    def test_a_disturbed_run_hides_only_its_own_variant(self):
        """One run of the baseline or of a variant took three times as long."""
        for name in ("baseline", "disturbed"):
            rounds = made_up(random.Random(3), {"faster": 0.8, "disturbed": 1, "a": 1, "b": 1}, 3, 0.01)
            rounds[name][1][0] *= 3
            changes = alternating.compare(rounds, "baseline")
            self.assertFalse(any(changes[one].differs for one in ("disturbed", "a", "b")), name)
            self.assertEqual(changes["faster"].differs, name == "disturbed")

    def test_noise_is_towards_no_change(self):
        """So a change counts exactly if its percentage is larger than its noise."""
        random_numbers = random.Random(4)
        for trial in range(300):
            rounds = made_up(random_numbers, {"a": random_numbers.lognormvariate(0, 0.5), "b": 1}, 3, 0.3)
            for change in alternating.compare(rounds, "baseline").values():
                self.assertEqual(change.differs, abs(change.percent) > change.noise)

    def test_an_unsteady_variant_has_its_own_noise(self):
        rounds = {"baseline": [[100, 100]] * 4, **{f"v{number}": [[100]] * 4 for number in range(20)},
                  "unsteady": [[100], [120], [160], [90]]}
        change = alternating.compare(rounds, "baseline")["unsteady"]
        self.assertFalse(change.differs)
        self.assertGreater(change.noise, 25)

    def test_rounds_that_failed_do_not_count(self):
        changes = alternating.compare({"baseline": [[100, 100], [100, 101]], "one": [[50], []], "none": [[], []]}, "baseline")
        self.assertAlmostEqual(changes["one"].percent, -50)
        self.assertIsNone(changes["none"].percent)
        self.assertEqual(alternating.outcome(changes["none"], False, "did not run", True), ["-", "-", "did not run"])

    def test_a_reference_that_ran_once_a_round_has_more_noise(self):
        """A ratio to it has twice the variance of a run, a ratio to the mean of two 1.5 times that variance."""
        rounds = {"twice": [[100, 110]], "once": [[100]]}
        self.assertAlmostEqual(alternating.deviation(rounds, "once") / alternating.deviation(rounds, "twice"), math.sqrt(2 / 1.5))

    def test_without_repetition_nothing_is_compared(self):
        self.assertIsNone(alternating.compare({"baseline": [[100]], "one": [[50]]}, "baseline")["one"].percent)


CONFIG = {"parallelism.tensor_parallel_degree": "1", "parallelism.pipeline_parallel_degree": "1",
          "parallelism.context_parallel_degree": "1", "parallelism.data_parallel_replicate_degree": "1",
          "parallelism.data_parallel_shard_degree": "-1", "compile.enable": "true", "activation_checkpoint.mode": "full",
          "training.global_batch_size": "64", "training.dataset_path": "t.h5"}


def variants(nodes=2, ranks_per_node=8, fabric=(), environment=None, **settings):
    config = CONFIG | {key.replace("__", "."): str(value) for key, value in settings.items()}
    found, left_out = slow_variants.variants_of(
        slow_variants.Job(config, nodes, ranks_per_node, "/run/why_slow", fabric, environment or {}))
    return {one.name: one for one in found}, dict(left_out)


class Experiments(unittest.TestCase):
    def mesh(self, variant):
        options = dict(zip(variant.options[::2], variant.options[1::2]))
        return int(options["--" + slow_variants.REPLICAS]), int(options["--" + slow_variants.SHARDS])

    def test_each_mesh_but_the_own_one(self):
        found, left_out = variants()
        self.assertIn("already", left_out["fsdp"])
        self.assertEqual((self.mesh(found["hsdp"]), self.mesh(found["ddp"])), ((2, 8), (16, 1)))
        found, left_out = variants(parallelism__data_parallel_replicate_degree=2)
        self.assertIn("already", left_out["hsdp"])
        self.assertEqual(self.mesh(found["fsdp"]), (1, 16))
        found, left_out = variants(nodes=1)
        self.assertIn("one node", left_out["hsdp"])
        found, left_out = variants(parallelism__tensor_parallel_degree=4)
        self.assertEqual((self.mesh(found["hsdp"]), self.mesh(found["ddp"])), ((2, 2), (4, 1)))
        found, left_out = variants(parallelism__tensor_parallel_degree=16)
        self.assertEqual({"fsdp", "ddp", "hsdp"} - left_out.keys(), set())

    def test_fewer_ranks_have_the_same_work(self):
        found, _ = variants()
        self.assertEqual((found["one_node"].ranks, self.mesh(found["one_node"])), (8, (1, 8)))
        self.assertEqual(found["one_node"].options[-2:], ["--training.global_batch_size", "32"])
        found, _ = variants(parallelism__data_parallel_replicate_degree=16, parallelism__data_parallel_shard_degree=1)
        self.assertEqual(self.mesh(found["one_node"]), (8, 1))
        found, _ = variants(parallelism__data_parallel_replicate_degree=4, parallelism__data_parallel_shard_degree=4)
        self.assertEqual(self.mesh(found["one_node"]), (2, 4))
        found, left_out = variants(nodes=1, parallelism__tensor_parallel_degree=2)
        self.assertIn("need 2 ranks", left_out["one_rank"])
        self.assertIn("one rank", variants(nodes=1, ranks_per_node=1)[1]["one_rank"])

    def test_recomputation_and_compile_change_to_the_other_values(self):
        found, _ = variants()
        self.assertEqual({"recompute_none", "recompute_selective", "compile_off"} - found.keys(), set())
        found, left_out = variants(compile__enable="false", activation_checkpoint__mode="none")
        self.assertIn("compile_on", found)
        self.assertIn("nothing is recomputed", left_out["recompute_none"])

    def test_profiles_in_use_are_left_out_and_others_added(self):
        found, left_out = variants(fabric=[("infiniband", "without", "NCCL_IB_HCA==mlx5_0", "OMPI_MCA_x=ib0"),
                                           ("h200-rescue", "with", "NCCL_ALGO=NVLSTREE"), ("roce", "without")])
        self.assertEqual(found["fabric_without_infiniband"].environment, ["-NCCL_IB_HCA", "-OMPI_MCA_x"])
        self.assertEqual(found["fabric_with_h200-rescue"].environment, ["NCCL_ALGO=NVLSTREE"])
        self.assertIn("sets nothing", left_out["fabric_without_roce"])

    def test_each_variable_that_slows_runs_down_is_unset(self):
        found, left_out = variants(environment={"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1", "HOME": "/root", "NCCL_ALGO": ""})
        self.assertEqual([one.environment for name, one in found.items() if name.startswith("without_")],
                         [["-CUDA_LAUNCH_BLOCKING"], ["-NCCL_DEBUG"]])
        self.assertIn("debug_variables", variants()[1])

    def test_harmless_values_have_no_experiment(self):
        set_here = {"NCCL_DEBUG": "warn", "CUDA_LAUNCH_BLOCKING": "0", "NCCL_P2P_DISABLE": "1", "PYTORCH_ALLOC_CONF":
                    "expandable_segments:True", "ARGOSY_SYNCHRONOUS_SENDS": "0", "NCCL_ALGO": "0"}
        found, left_out = variants(environment=set_here, fabric=[("one", "with", "NCCL_DEBUG=WARN"),
                                                                 ("two", "with", "NCCL_DEBUG=WARN", "NCCL_MIN_CTAS=0"),
                                                                 ("three", "with", "NCCL_P2P_DISABLE=")])
        self.assertEqual({name for name in found if name.startswith("without_")}, {"without_NCCL_P2P_DISABLE", "without_NCCL_ALGO"})
        self.assertEqual(left_out["without_NCCL_DEBUG"], "NCCL_DEBUG=warn slows nothing down")
        self.assertEqual(left_out["fabric_with_one"], "the profile one changes nothing here")
        self.assertIn("fabric_with_two", found)
        self.assertIn("fabric_with_three", left_out)

    def test_the_program_does_not_warn_of_harmless_values(self):
        """The condition with which SlowSetting's table warns of a variable says which of its values are harmless."""
        harmless = {"is_on": ("0",), "is_off": ("1",), "is_pinned": ("-1",), "prints_much": ("VERSION", "WARN"),
                    "disables_expandable_segments": ("EXPANDABLE_SEGMENTS:TRUE",)}
        table = (SOURCE / "lib/ground/base/environment.cpp").read_text().partition("kSettings[] = {")[2].partition("\n};")[0]
        for name, condition in re.findall(r'^    \{"(\w+)", (\w+)', table, re.MULTILINE):
            self.assertEqual(slow_variants.HARMLESS.get(name), harmless.get(condition), name)

    def test_the_variables_are_those_that_the_program_warns_of(self):
        table = (SOURCE / "lib/ground/base/environment.cpp").read_text().partition("kSettings[] = {")[2].partition("\n};")[0]
        self.assertEqual(re.findall(r'^    \{"(\w+)"', table, re.MULTILINE), list(slow_variants.DEBUG_VARIABLES))


    def test_the_page_has_every_cause_and_experiment(self):
        page = (SOURCE / "jobs/WHY_SLOW.md").read_text()
        rows = page.partition("| cause |")[2].partition("\n\n")[0].splitlines()[2:]
        causes = {name for row in rows for name in row.split("|")[1].strip().split(", ")}
        rules = re.findall(r'^    \{"([^"]+)", \[\]', (SOURCE / "lib/trainer/observe/diagnosis.cpp").read_text(), re.MULTILINE)
        self.assertGreater(len(rules), 10)
        self.assertEqual(causes, {*rules, "settings", "slow ranks", "mesh", "between nodes", "between ranks", "fabric with",
                                  "fabric without", "compile", "recomputation"})
        self.assertEqual(causes, set(slow_variants.remedies()) - {"cause", "---"})
        found = variants(activation_checkpoint__mode="full", environment={"NCCL_ALGO": "Tree"}, fabric=[("one", "with", "A=1"), ("one", "without", "A=1")])
        self.assertLessEqual({one.cause for one in found[0].values()}, causes)
        for name in (name for names in found for name in names):
            self.assertIn(f"`{name.replace('NCCL_ALGO', 'VARIABLE').replace('_one', '_PROFILE') if name != 'one_node' else name}`", page)


class Report(unittest.TestCase):
    def test_a_variant_that_failed_once_is_no_factor(self):
        """Of two variants that need half the time, one fails in the second round, which says so, and one is cut off in the third."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            for number in (1, 2, 3):
                for name, ms in (("baseline", 100.0), ("baseline-again", 100.0), ("steady", 80.0), ("fails", 50.0), ("cut_off", 50.0)):
                    here = folder / f"round-{number}" / name
                    made_up_runs.plain_run(here, 12, time_ms=made_up_runs.line_of(1)["time_ms"] | {"total": ms})
                    (here / "log").write_text("pretrain: error: no memory\n")
                    if (name, number) != ("cut_off", 3):
                        (here / "code").write_text("1\n" if (name, number) == ("fails", 2) else "0\n")
            (folder / "facts.json").write_text(json.dumps({
                "run": scratch, "ranks": 1, "steps": 12, "left_out": [], "variants": [
                    vars(slow_variants.Variant(name, "mesh", name, ["--a", "1"])) for name in ("steady", "fails", "cut_off")]}))
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(why_slow.report(folder), 0)
        self.assertRegex(said.getvalue(), r"\nfails .* -50\.0 .* failed with exit code 1: pretrain: error: no memory\n")
        self.assertRegex(said.getvalue(), r"\ncut_off .* -50\.0 .* was cut off \(time limit or signal\)\n")
        self.assertRegex(said.getvalue(), r"\nFactor: steady\. It takes 20 % of a step .*\nTo change it: --a 1: these degrees of ")
        self.assertNotIn("\nAlso: ", said.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
