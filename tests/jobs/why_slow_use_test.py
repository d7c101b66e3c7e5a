"""why_slow.sh where no time is judged: failures, variables of a job, signals, wrong use. Mostly it waits for processes that start
or end, so three tests run at the same time. The first argument is the library of slow_parts.c."""
import os
import pathlib
import subprocess
import time

import why_slow_case
from why_slow_case import SOURCE, run


def command_lines():
    """Of all processes."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile


class WhySlowUse(why_slow_case.WhySlowTest):
    def test_an_experiment_that_fails_is_a_row(self):
        self.steps_of(1, training__steps=12)
        kept = self.steps()
        (self.bin / "prepare-data").unlink()
        said = self.script(self.folder / "run", "--local=1", "--rounds", 2, "--steps", 12, "--only", "small_data")
        self.assertRegex(said, r"\nsmall_data +- +- +- +failed with exit code 2: pretrain: error: .*tokens.h5")
        self.assertIn("\nNo factor: no experiment is faster than the baseline by more than noise", said)
        self.assertTrue(said.endswith(self.script(self.folder / "run", "--report")), said)
        self.assertEqual(self.steps(), kept)  # the run's own files stay

    def test_a_job_has_what_the_run_was_submitted_with(self):
        """Its variables and folder; relative names of this call stay those of the folder where it was called. And a job that
        Slurm refuses deletes no result."""
        self.steps_of(1, training__steps=2)
        here = self.folder / "run"
        said = self.script(here, "--nodes", 2, "--dry-run", ARGOSY_INTERFACE="", ARGOSY_HCA="")
        self.assertIn("\n  left out: fabric_without_infiniband: the profile infiniband sets nothing here\n", said)
        (self.folder / "elsewhere").mkdir()
        (here / "job.sbatch").write_text(f"#SBATCH --ntasks-per-node=1\n#SBATCH --chdir={self.folder}/elsewhere\n"
                                         "export ARGOSY_CPU_KERNELS=portable\nexport ARGOSY_RESTART=9\nexport NCCL_DEBUG=INFO\n")
        (self.folder / "own.conf").write_text(f"source {SOURCE}/jobs/site.conf\n")
        for words, site in ((("--site", "own.conf"), ""), ((), "own.conf")):
            said = self.script(here, *words, "--dry-run", cwd=self.folder, ARGOSY_BIN="programs", ARGOSY_SITE=site, NCCL_ALGO="Tree")
            for name, count in (("NCCL_DEBUG", 1), ("ARGOSY_CPU_KERNELS", 1), ("NCCL_ALGO", 0)):
                self.assertEqual(said.count(f"  without_{name}: -{name}\n"), count, said)
        old = here / "why_slow" / "round-1" / "baseline"
        old.mkdir(parents=True)
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in (("sbatch", "echo no such account >&2; exit 1"), ("srun", "echo pmix"), ("sinfo", "echo 'main*|up|1:00|idle'")):
            (tools / name).write_text(f"#!/bin/bash\n{text}\n")
            (tools / name).chmod(0o755)
        said = self.script(here, PATH=f"{tools}:{os.environ['PATH']}", code=2)
        self.assertIn("why_slow: Slurm cannot run this job: no such account", said)
        self.script(here, "--local", 1, "--only", "compile", code=2)
        self.assertTrue(old.is_dir())
        (here / "starts.jsonl").unlink()
        self.assertIn("run has not started yet: give --nodes N or --local N", self.script(here, code=2))

    def test_modules_and_container_of_the_site(self):
        """Ranks of this machine have the site's modules; where they would need its container, nothing starts."""
        self.steps_of(1, training__steps=2)
        here, words = self.folder / "run", ("--local", 1, "--rounds", 2, "--steps", 12, "--only", "compile_off")
        program = (self.bin / "pretrain").read_text()
        (self.bin / "pretrain").write_text(program.replace("\n", '\n[ "${LOADED-}" = hdf5 ] || exit 9\n', 1))
        module = {"BASH_FUNC_module%%": "() { export LOADED=$2; }"}
        said = self.script(here, *words, ARGOSY_MODULES="hdf5", **module)
        self.assertRegex(said, r"\ncompile_off +\d")
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "apptainer").write_text("#!/bin/bash\n")
        (tools / "apptainer").chmod(0o755)
        image = self.folder / "argosy.sif"
        image.touch()
        site = self.folder / "site.conf"
        site.write_text(f"ARGOSY_CONTAINER={image}\n")
        said = self.script(here, *words, "--site", site, PATH=f"{tools}:{os.environ['PATH']}", code=2)
        self.assertIn(f"--local starts programs of this machine, but {site} has ARGOSY_CONTAINER = {image}: leave out --local", said)

    def test_a_signal_ends_it_with_its_ranks(self):
        self.steps_of(1, training__steps=2)
        words = [SOURCE / "jobs" / "why_slow.sh", self.folder / "run", "--local", "1", "--steps", "900000", "--only", "small_data"]
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"ARGOSY_GPUS": "no"}) as script:
            metrics = self.folder / "run" / "why_slow" / "round-1" / "baseline" / "metrics.jsonl"
            self.wait_until(lambda: metrics.exists() or script.poll() is not None)
            self.assertEqual(self.script(self.folder / "run", "--local", 1, code=2).count("why_slow is in use ("), 1)
            script.terminate()
            self.assertEqual(script.wait(run.LIMIT_SECONDS), 143)
        dump = f"{metrics.parent}\0".encode()
        self.wait_until(lambda: not any(dump in words for words in command_lines()))

    def wait_until(self, condition):
        deadline = time.monotonic() + run.LIMIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def test_wrong_use(self):
        self.steps_of(1, training__steps=2)
        here = self.folder / "run"
        for words, part in (((), "the run is missing"), ((self.folder,), "has no effective.toml: give the folder of a run"),
                            ((here, "--local", 1, "--rounds", 1), "one round shows no noise"),
                            ((here, "--local", 1, "--steps", 11), "--steps 11: give 12 or more"),
                            ((here, "--local", 1, "--only", "compile"), "--only compile names no experiment; there are compile_off"),
                            ((here, "--local", 1, "--training.stepps", 3), "training.stepps"), ((here, "--fast", 1), "unknown option"),
                            ((here, "--report"), "has no result"), ((here, here), "give one run")):
            self.assertIn(part, self.script(*words, code=2))
        said = self.script(here, "--local", 1, "--dry-run", "--only", "one_rank", code=2)
        self.assertIn("why_slow: no experiment applies:\n  one_rank: the run has one rank\n", said)
        said = self.script(here, "--local", 1, "--dry-run", "--activation_checkpoint.mode", "full")
        self.assertIn("\n  recompute_none: --activation_checkpoint.mode none\n", said)
        self.assertIn("\n  left out: one_rank: the run has one rank\n", said)
        self.assertFalse(list(here.glob("why_slow/round-*")))
        said = self.script(here, "--local", 1, "--training.dataset_path", "/nowhere/t.h5", "--only", "compile_off", code=1)
        self.assertIn("why_slow: nothing was measured, because the baseline failed with exit code 2: pretrain: error: ", said)


if __name__ == "__main__":
    run.main(workers=3)
