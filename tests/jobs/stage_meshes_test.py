#!/usr/bin/env python3
"""The stages of bringup.sh: stage_meshes.py reduces a mesh to fewer ranks, and bringup.sh --dry-run says which configuration
each stage runs."""
import math
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
PRETRAIN = pathlib.Path(os.environ["ARGOSY_BIN"]) / "pretrain"
JOBS, CONFIGS = SOURCE / "jobs", SOURCE / "configs"
sys.path.insert(0, str(JOBS / "python"))
import stage_meshes  # noqa: E402
from run_record import AXES  # noqa: E402

# Prints the options of a template: mesh_words TEMPLATE NODES RANKS_PER_NODE SETTINGS.
MESH_WORDS = 'fail() { echo "$*"; exit 2; }; source "$ARGOSY_JOBS/shell/fill.sh"; mesh_words "$@"'


def settings_of(**degrees):
    return "[parallelism]\n" + "".join(f"{key} = {degrees.get(axis, 1)}\n" for axis, key in AXES.items())


def template_words(template, nodes, here, **degrees):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", MESH_WORDS, "-", template, str(nodes), str(here), settings_of(**degrees)],
                          env=os.environ | {"ARGOSY_JOBS": str(JOBS)}, capture_output=True, text=True, check=True).stdout.split()


def meshes(nodes, here, template, *words, **degrees):
    """{ranks: (enough, mesh)} of the stages; `words` are the user's."""
    words = [*template_words(template, nodes, here, **degrees), *words]
    rows = [line.split("\t") for line in stage_meshes.lines(settings_of(**degrees), nodes, here, template, words)]
    return {int(ranks): (enough == "yes", mesh) for ranks, enough, _, mesh, _ in rows}


class StageMeshes(unittest.TestCase):
    def test_replicas_and_shards_go_first_then_the_pipeline_then_tensor_parallelism(self):
        self.assertEqual(meshes(16, 8, "3d", pp=4, tp=8, dp_shard=4), {
            1: (False, "one rank"), 2: (False, "tp 2"), 4: (False, "tp 4"), 8: (False, "tp 8"), 16: (False, "pp 2 x tp 8"),
            32: (False, "pp 4 x tp 8"), 64: (False, "pp 4 x dp_shard 2 x tp 8"), 128: (True, "pp 4 x dp_shard 4 x tp 8")})
        self.assertEqual(meshes(3, 6, "configured", dp_replicate=3, dp_shard=2, cp=3), {
            1: (False, "one rank"), 2: (False, "dp_shard 2"), 4: (False, "dp_replicate 2 x dp_shard 2"), 6: (True, "dp_shard 2 x cp 3"),
            12: (True, "dp_replicate 2 x dp_shard 2 x cp 3"), 18: (True, "dp_replicate 3 x dp_shard 2 x cp 3")})

    def test_what_fits_where_no_plan_says_it(self):
        enough = lambda *words, **degrees: [ranks for ranks, (fits, _) in meshes(*words, **degrees).items() if fits]
        self.assertEqual(enough(4, 8, "hsdp", dp_replicate=4, dp_shard=8), [8, 16, 32])
        self.assertEqual(enough(4, 8, "fsdp", dp_shard=-1), [8, 16, 32], "all ranks are at least those of a node")
        self.assertEqual(enough(2, 8, "fsdp"), [1, 2, 4, 8, 16])
        self.assertEqual(enough(1, 4, "fsdp", dp_shard=8), [4], "the last stage is tried in any case")

    def test_a_stage_has_a_mesh_of_its_ranks(self):
        for nodes in (1, 2, 3, 5, 8):
            for here in (1, 4, 6, 8):
                for degrees in ({"tp": 8, "pp": 4}, {"tp": 2, "cp": 3}, {"dp_shard": -1, "dp_replicate": 2}, {"dp_shard": 16}):
                    for line in stage_meshes.lines(settings_of(**degrees), nodes, here, "any", []):
                        ranks, options = int(line.split("\t")[0]), line.split("\t")[4].split()
                        self.assertEqual(math.prod(map(int, options[1::2])), ranks, line)

    def test_the_last_stage_has_the_mesh_that_the_template_makes(self):
        for template, nodes, degrees, expected in (
                ("single_node", 1, {"dp_shard": 4}, "dp_shard 8"), ("fsdp", 4, {"dp_shard": 8}, "dp_shard 32"),
                ("hsdp", 4, {"dp_shard": 8, "dp_replicate": 2}, "dp_replicate 4 x dp_shard 8"),
                ("3d", 8, {"tp": 8, "pp": 4}, "pp 4 x dp_shard 2 x tp 8"),
                ("4d", 8, {"tp": 8, "pp": 2, "dp_shard": 2, "cp": 1}, "pp 2 x dp_replicate 2 x dp_shard 2 x tp 8"),
                ("configured", 2, {"tp": 2, "dp_shard": -1, "dp_replicate": 2}, "dp_replicate 2 x dp_shard 4 x tp 2")):
            self.assertEqual(meshes(nodes, 8, template, **degrees)[nodes * 8], (True, expected), template)

    def test_degrees_of_the_command_line_override_the_template(self):
        found = meshes(2, 8, "fsdp", "--compile.enable", "--parallelism.data_parallel_replicate_degree", "2", dp_shard=8)
        self.assertEqual(found[16], (True, "dp_replicate 2 x dp_shard 8"))
        with self.assertRaisesRegex(SystemExit, "the mesh of the template 'fsdp' is dp_shard 3, which 2 nodes with 8 ranks cannot have"):
            meshes(2, 8, "fsdp", "--parallelism.data_parallel_shard_degree", "3")

    def test_a_mesh_that_the_nodes_cannot_have(self):
        with self.assertRaisesRegex(SystemExit, "is dp_replicate 2 x dp_shard 16, which 3 nodes with 8 ranks cannot have"):
            meshes(3, 8, "configured", dp_replicate=2, dp_shard=16)


class DryRun(unittest.TestCase):
    def stages(self, config, nodes, *words, code=0, **environment):
        environment = os.environ | {"ARGOSY_PLAN": "no", "ARGOSY_RANKS_PER_NODE": "8", "ARGOSY_SITE": str(JOBS / "site.conf")} | environment
        done = subprocess.run([JOBS / "bringup.sh", CONFIGS / config, "--nodes", str(nodes), "--dry-run", *words], env=environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else [line.replace(f"{CONFIGS}/", "").split(maxsplit=1) for line in done.stdout.splitlines()]

    def test_8b(self):
        skipped = "skipped: llama3_8b_multinode.toml does not fit"
        name = "llama3_8b_multinode.toml: "
        self.assertEqual(self.stages("llama3_8b_multinode.toml", 4), [
            ["ranks-1", skipped], ["ranks-2", skipped], ["ranks-4", skipped], ["nodes-1", name + "dp_shard 8"],
            ["nodes-2", name + "dp_replicate 2 x dp_shard 8"], ["nodes-4", name + "dp_replicate 4 x dp_shard 8"]])

    def test_405b_begins_with_the_proxy(self):
        stages = dict(self.stages("llama3_405b.toml", 64, "--proxy", CONFIGS / "llama3_8b_1node.toml"))
        self.assertEqual(list(stages), ["ranks-1", "ranks-2", "ranks-4", *(f"nodes-{1 << i}" for i in range(7))])
        self.assertEqual(stages["ranks-4"], "llama3_8b_1node.toml: dp_shard 4")
        self.assertEqual(stages["nodes-32"], "llama3_8b_1node.toml: dp_replicate 32 x dp_shard 8")
        self.assertEqual(stages["nodes-64"], "llama3_405b.toml: pp 8 x dp_shard 8 x tp 8")

    def test_the_plan_says_where_70b_begins(self):
        """70B has 16 bytes for a parameter: 1129 GB. 8 GPUs of 80 GB cannot hold them, 16 can."""
        stages = dict(self.stages("llama3_70b_3d.toml", 4, "--proxy", CONFIGS / "llama3_8b_1node.toml", ARGOSY_PLAN="h100"))
        self.assertEqual(stages["ranks-2"], "skipped: llama3_70b_3d.toml does not fit, nor does the proxy")
        self.assertEqual(stages["nodes-1"], "llama3_8b_1node.toml: dp_shard 8")
        self.assertEqual(stages["nodes-2"], "llama3_70b_3d.toml: pp 2 x tp 8")
        self.assertEqual(stages["nodes-4"], "llama3_70b_3d.toml: pp 4 x tp 8")

    def test_refused(self):
        self.assertIn("does not fit on 1 nodes of 1 GPUs (h100)", self.stages("llama3_8b_1node.toml", 1, "--ranks-per-node", "1", code=2,
                                                                             ARGOSY_PLAN="h100"))
        self.assertIn("is pp 4 x tp 8, which 1 nodes with 8 ranks cannot have", self.stages("llama3_70b_3d.toml", 1, code=2))
        self.assertIn("there is no template 'none'", self.stages("llama3_8b_1node.toml", 1, "--template", "none", code=2))
        self.assertIn("--ranks-per-node 0 is not", self.stages("llama3_8b_1node.toml", 1, "--ranks-per-node", "0", code=2))


if __name__ == "__main__":
    unittest.main()
