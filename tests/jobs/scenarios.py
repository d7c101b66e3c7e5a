"""What all scenarios of slurm_test.py share: the cluster, on which several run at the same time, and what they demand.

A scenario is a method of Scenarios' child that `scenario` marks; `add_tests` makes a test of each. They wait most of their
time, but with all of them at once no rank would answer in time. One that fails is tried again, once, by itself.
"""
import concurrent.futures
import os
import time
import traceback
import unittest

import slurm
from submitted import BIN, INTERVAL, JOBS, LIMIT_SECONDS, SITE, SOURCE, Run

SCENARIOS = []
AT_ONCE = 6


def scenario(function):
    """A test whose job runs at the same time as those of others."""
    SCENARIOS.append(function.__name__)
    return function


class Scenarios(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Each attempt loses one of the two nodes of its partition.
        cls.cluster = slurm.Cluster({"main": ["n1", "n2", "n3", "n4"], "fragile": ["f1", "f2", "f3", "f4"],
                                     "brittle": ["b1", "b2", "b3"], "few": ["w1", "w2"],
                                     "spares": ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"]})
        cls.addClassCleanup(cls.cluster.close)
        (cls.cluster.folder / "site.conf").write_text(SITE.format(bin=BIN, jobs=JOBS))
        cls.cluster.run(BIN / "prepare-data", "tokenize", "--input", SOURCE / "data" / "tiny.jsonl", "--output",
                        cls.cluster.folder / "tokens.h5", "--tokenizer", "bytes")
        pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        cls.addClassCleanup(pool.shutdown, cancel_futures=True)
        parts = os.environ.get("SCENARIO", "").split()
        wanted = [name for name in SCENARIOS if not parts or any(part in name for part in parts)]
        cls.results = {name: pool.submit(timed, getattr(cls(name), name)) for name in wanted}

    def outcome(self, name):
        if name not in self.results:
            self.skipTest("not asked for")
        try:
            self.results[name].result()
        except Exception:
            print(f"{name} failed beside the others and is tried again by itself:", flush=True)
            traceback.print_exc()
            concurrent.futures.wait(self.results.values())
            self.cluster.run("scancel", "--user", "root")
            again = type(self)(name)
            again.run_suffix = "-again"
            timed(getattr(again, name))

    run_suffix = ""

    def new_run(self):
        return Run(self.cluster, self._testMethodName + self.run_suffix)

    def assert_same_as_uninterrupted(self, run, num_ranks):
        """Every step has one line, and loss and norm equal those of one uninterrupted run."""
        losses = run.losses()
        self.assertEqual([step for step, *_ in losses], list(range(1, len(losses) + 1)))
        whole = Run(self.cluster, run.name + "-whole")
        done = self.cluster.run(JOBS / "mpirun.sh", num_ranks, BIN / "pretrain", "--config",
                                SOURCE / "configs" / "debug_cpu.toml", *whole.options(training__steps=len(losses)),
                                timeout=LIMIT_SECONDS, env=os.environ | {"OMPI_MCA_btl_tcp_if_include": "lo"})
        self.assertEqual(whole.losses(), losses, done.stderr)

    def assert_resumed(self, run, job, reached):
        """The run resumes from at most one interval back; then scancel ends it."""
        resumed = run.resumed_at(job)
        self.assertEqual(len(run.attempts("end")), len(run.attempts()) - 1)  # also if the shell of a start was killed
        run.wait_for_step(resumed + 3)
        self.cluster.run("scancel", job)
        run.wait(job)
        # A save in progress is lost, so the run resumes from the previous interval.
        self.assertGreater(resumed, reached - 2 * INTERVAL, run.tail())
        self.assert_same_as_uninterrupted(run, 2)

    def stand_ins(self, run, **scripts):
        """A folder of the real programs, in which some are replaced by shell scripts; unless replaced, pretrain is the
        real one."""
        folder = self.cluster.folder / f"bin-{run.name}"
        folder.mkdir()
        for program in BIN.iterdir():
            (folder / program.name).symlink_to(program)
        for name, script in scripts.items():
            path = folder / name.replace("_", "-")
            path.unlink(missing_ok=True)
            real = f'case "$*" in *--print-config) exec {BIN}/pretrain "$@" ;; esac\n' if name == "pretrain" else ""
            path.write_text(f"#!/bin/bash\n{real}{script}\n")
            path.chmod(0o755)
        return str(folder)

    def commands(self, run, **scripts):
        """An environment in which shell scripts replace these commands of the machine."""
        folder = self.cluster.folder / f"commands-{run.name}"
        folder.mkdir()
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/bash\n{script}\n")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}


def timed(call):
    started = time.monotonic()
    try:
        return call()
    finally:
        print(f"{call.__name__}: {time.monotonic() - started:.0f} s", flush=True)


def add_tests(case):
    for name in SCENARIOS:
        setattr(case, f"test_{name}", lambda self, name=name: self.outcome(name))
