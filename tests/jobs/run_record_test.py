"""What jobs/python/run_record.py reads: a configuration that a user wrote, and Slurm's lists of nodes."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from made_up_runs import plain_run, started_run, write_lines

sys.path.insert(0, str(pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs/python"))
import run_record


class RunRecord(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_config_of_a_user(self):
        """Comments after values and headings, and strings with the sign of a comment."""
        text = ("# first\n[training] # of a test\nsteps = 1_000 # a hundred\n  dataset_path = 'a#b' # c\n[job]\n"
                        'description = "x # \\"y" # z\nlist = ["a#b", 2] # three\n')
        self.assertEqual(run_record.read_config(text), ({
            "training.steps": "1_000", "training.dataset_path": "a#b", "job.description": 'x # \\"y', "job.list": '["a#b", 2]'}, "first"))
        plain_run(self.folder / "run", 1)
        (self.folder / "run/effective.toml").write_text(text)
        self.assertEqual(run_record.read_run(self.folder / "run", "run").total_steps(), 1000)

    def test_config_of_the_newest_start(self):
        """Also if effective.toml is of a start that did not come so far."""
        started_run(self.folder / "run")
        (self.folder / "run/effective.toml").write_text("[training]\nsteps = 7\n")
        run = run_record.read_run(self.folder / "run", "run")
        self.assertEqual((run.config["training.steps"], run.version, run.config_file),
                         ("2_000", "pretrain 9.8.7 (abc)", str(self.folder / "run/starts.jsonl")))
        write_lines(self.folder / "run/starts.jsonl", [{"first_step": 1, "ranks": 2}])
        self.assertEqual(run_record.read_run(self.folder / "run", "run").config, {"training.steps": "7"})

    def test_mesh_of_a_log(self):
        """A log tells the mesh where no start is recorded, also the ranks that divide experts."""
        plain_run(self.folder / "run", 1)
        log = self.folder / "own.log"
        for words, experts in (("pp 2 x dp_shard 4, ep 4", 4), ("pp 2 x dp_shard 4", 1)):
            log.write_text(f"07:05:33 I [0] qwen3_moe: 8.7e+05 parameters on 8 ranks ({words}), 4 sequences of 32 tokens per step\n")
            mesh = run_record.mesh_of(run_record.read_run(self.folder / "run", "run", log))
            self.assertEqual((mesh["ranks"], mesh["degrees"], mesh["experts"]), (8, {"pp": 2, "dp_shard": 4}, experts))

    def test_names_of_nodes(self):
        for text, expected in (("n[01-03,7],gpu4", "n01 n02 n03 n7 gpu4"), ("rack[1-2]n[1-2]", "rack1n1 rack1n2 rack2n1 rack2n2"),
                               ("a[1,2]b[08-09]c,d", "a1b08c a1b09c a2b08c a2b09c d"), (None, "")):
            self.assertEqual(run_record.node_names(text), expected.split())

    def test_a_reader_that_has_gone_is_no_error(self):
        script = ("import run_record\ntry:\n    while True: print('a line')\n"
                  "except OSError as error: run_record.fail_to_read(error)\n")
        with subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "PYTHONPATH": os.path.dirname(run_record.__file__)}) as writer:
            writer.stdout.readline()
            writer.stdout.close()
            self.assertEqual(writer.stderr.read(), b"")


if __name__ == "__main__":
    unittest.main(verbosity=2)
