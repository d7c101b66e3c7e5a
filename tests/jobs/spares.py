"""Scenarios of slurm_test.py with `submit.sh --spares`: ranks that start again inside their job."""
import os
import re
import signal
import time

import slurm
from scenarios import Scenarios, scenario
from submitted import FOREVER, INTERVAL, LIMIT_SECONDS

# Jobs do not share nodes, because each scenario loses nodes of its own job only.
SPARES = {"ARGOSY_PARTITION": "spares", "ARGOSY_SBATCH_OPTIONS": "--requeue --exclusive"}


class Spares(Scenarios):
    @scenario
    def killed_rank_inside(self):
        """Without spares, the ranks start again on the same nodes, also the second time: both starts had saved. Slurm does not
        restart the job."""
        run = self.new_run()
        job = self.train(run, "--nodes", 2, "--spares", 0)
        for kills, ranks in ((1, (0, 1)), (2, (1,))):  # srun's last lines are about the end of both, or it is killed itself
            now = slurm.ranks_of(job)
            for rank in ranks:
                os.kill(now[rank], signal.SIGKILL)
            reached = run.steps()[-1]["step"]
            self.wait_for_start_inside(run, kills)
            resumed = run.resumed_at(job)
            saved = max(run.saved())
            self.cluster.wait_until(lambda: max(run.saved()) > saved, "a checkpoint of the new start", LIMIT_SECONDS, run.tail)
            self.assertGreater(resumed, reached - 2 * INTERVAL)
            time.sleep(6)  # longer than srun may wait for ranks that it ended
        self.assertIn(f"running ({job}, restart 0, start 2 inside, 2 ranks on s", run.call("status.sh", run.folder), run.tail())
        self.assert_resumed(run, job, reached)
        self.assertEqual(run.restarts(job), 0)
        self.assertEqual([line["outcome"] for line in run.attempts("end")], ["continued", "continued", "cancelled"], run.tail())
        self.assertEqual({line["nodes"] for line in run.attempts()}, {run.attempts()[0]["nodes"]})

    @scenario
    def lost_node_replaced(self):
        """A node loses its slurmd, its slurmstepd and its ranks at once, and Slurm does not know yet. The other rank dies
        before it can name the node, which then does not answer: a spare takes its place."""
        run = self.new_run()
        job = self.train(run, "--nodes", 2, "--spares", 1)
        first, lost, spare = self.nodes_of(job)
        self.assertEqual(self.names(run.attempts()[0]["nodes"]), [first, lost])
        self.cluster.power_off(lost)
        os.kill(slurm.ranks_of(job)[0], signal.SIGKILL)
        reached = run.steps()[-1]["step"]
        self.wait_for_start_inside(run)
        self.assert_resumed(run, job, reached)
        self.assertEqual(run.restarts(job), 0)
        self.assertIn(f"nodes that start no process: {lost}\n", run.log(job))
        again = run.attempts()[1]
        self.assertEqual(self.names(again["nodes"]), [first, spare])
        self.assertEqual((again["spares"], again["restart_inside"]), (0, 1))
        self.cluster.start_node(lost)

    @scenario
    def lost_first_node(self):
        """The node that runs the batch script is lost: the job is requeued and continues without it. The line of the lost
        start has the newest step."""
        run = self.new_run()
        job = self.train(run, "--nodes", 2, "--spares", 1)
        first = self.nodes_of(job)[0]
        self.cluster.power_off(first)
        reached = run.steps()[-1]["step"]
        run.wait_for_restart(job)
        self.assertNotIn(first, self.nodes_of(job))
        self.assert_resumed(run, job, reached)
        self.assertEqual([line["outcome"] for line in run.attempts("end")], ["lost", "cancelled"])
        self.assertEqual(run.attempts("end")[0]["newest_step"], run.attempts()[1]["newest_step"])
        self.cluster.start_node(first)

    @scenario
    def too_few_nodes(self):
        """The pre-flight names the spare and then the other node of the partition, so that no third node is left: the next
        start has no spare, and the node that was named first comes back."""
        run = self.new_run()
        check = ("""[ $ARGOSY_RESTART = 0 ] || exit 0\n"""
                 """printf '{"verdict": "FAIL", "bad_nodes": ["%s"]}' "$SLURMD_NODENAME" >"${@: -1}"; exit 3""")
        job = run.submit("--ranks-per-node", 1, "--spares", 1,
                         environment=SPARES | {"ARGOSY_PARTITION": "few", "ARGOSY_PREFLIGHT": "yes",
                                               "ARGOSY_BIN": self.stand_ins(run, preflight=check)})
        self.cluster.wait_until(lambda: self.cluster.job(job)["NumNodes"] == "1", "a request without spares", LIMIT_SECONDS, run.tail)
        said = run.call("status.sh", run.folder)
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        self.assertIn("too few were usable at the last requeue; spares: 0 of 1; excluded nodes that may be used again: w2", said)
        self.assertEqual(self.cluster.job(job)["ExcNodeList"], "w1")
        self.assertEqual([(line["nodes"], line["spares"]) for line in run.attempts()], [("w1", 1), ("w1", 0), ("w2", 0)])
        self.assertEqual(run.restarts(job), 1)

    @scenario
    def too_many_starts_inside(self):
        """The cap on starts inside the job, and then, in the next start of Slurm, the limit on quick ends."""
        run = self.new_run()
        pretrain = ('echo "start $ARGOSY_RESTART $ARGOSY_RESTART_INSIDE."\n'
                    f"mkdir -p {run.folder}/checkpoint/step-0000000$((3 * ARGOSY_RESTART + ARGOSY_RESTART_INSIDE + 1))\n"
                    "[ $ARGOSY_RESTART = 0 ] || exit 2\nexit 1")
        job = run.submit("--ranks-per-node", 1, "--spares", 0,
                         environment=SPARES | {"ARGOSY_BIN": self.stand_ins(run, pretrain=pretrain),
                                               "ARGOSY_MAX_RESTARTS_INSIDE": "1"})
        self.assertEqual(run.wait(job), ("FAILED", 2))
        log = run.log(job)
        self.assertEqual(re.findall(r"start (\d \d)\.", log), ["0 0", "0 1", "1 0"], log)
        self.assertIn("no start inside the job: the job has started ARGOSY_MAX_RESTARTS_INSIDE = 1 times inside", log)
        self.assertEqual([line["outcome"] for line in run.attempts("end")], ["continued", "requeued", "failed"])

    @scenario
    def bad_node_replaced(self):
        """The pre-flight checks the spare first, and then names the node that should train: the spare trains, without
        another pre-flight, because it has passed."""
        run = self.new_run()
        checked = self.cluster.folder / f"checked-{run.name}"
        check = (f"echo $SLURMD_NODENAME >>{checked}\n"
                 f"[ $(wc -l <{checked}) = 2 ] || exit 0\n"
                 """printf '{"verdict": "FAIL", "bad_nodes": ["%s"]}' "$SLURMD_NODENAME" >"${@: -1}"; exit 3""")
        job = run.submit("--ranks-per-node", 1, "--spares", 1,
                         environment=SPARES | {"ARGOSY_PREFLIGHT": "yes",
                                               "ARGOSY_BIN": self.stand_ins(run, preflight=check)})
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        first, second = run.attempts()
        self.assertEqual(checked.read_text().split(), [second["nodes"], first["nodes"]])
        self.assertNotEqual(first["nodes"], second["nodes"])
        self.assertEqual(run.restarts(job), 0)
        self.assertEqual([line["outcome"] for line in run.attempts("end")], ["continued", "done"])

    @scenario
    def staged_with_lost_spare(self):
        """A spare leaves the job, and the programs go from the nodes that the job still has."""
        run = self.new_run()
        go_on = self.cluster.folder / f"go-on-{run.name}"
        job = run.submit("--ranks-per-node", 1, "--spares", 2, "--stage", self.cluster.disk,
                         environment=SPARES | {"ARGOSY_BIN": self.stand_ins(run, pretrain=f"until [ -e {go_on} ]; do sleep 0.2; done")})
        self.cluster.wait_until(lambda: "staged in" in run.log(job), f"programs of {run.name}", LIMIT_SECONDS, run.tail)
        lost = self.nodes_of(job)[1]
        self.cluster.run("scontrol", "update", f"nodename={lost}", "state=down", "reason=test")
        self.cluster.wait_until(lambda: lost not in self.nodes_of(job), "a job without its spare", LIMIT_SECONDS, run.tail)
        go_on.touch()
        self.assertEqual(run.wait(job), ("COMPLETED", 0), run.tail())
        self.assertEqual([path.parent.name for path in self.cluster.folder.glob(f"pmix-*/argosy.{job}.0")], [f"pmix-{lost}"], run.tail())
        self.assertIn(f"{self.cluster.disk}/argosy.{job}.0 may stay on {lost}\n", run.log(job))
        self.cluster.run("scontrol", "update", f"nodename={lost}", "state=resume", check=False)  # unless it came back by itself

    def train(self, run, *words):
        """Submits a run without end and returns when it has saved."""
        job = run.submit(*words, "--ranks-per-node", 1, environment=SPARES, training__steps=FOREVER,
                         comm__train_timeout_seconds=10)
        run.wait_for_step(INTERVAL + 2)
        self.cluster.wait_until(run.saved, f"a checkpoint of {run.name}", LIMIT_SECONDS, run.tail)
        return job

    def wait_for_start_inside(self, run, number=1):
        self.cluster.wait_until(lambda: len(run.attempts()) > number, f"start {number} inside the job of {run.name}",
                                LIMIT_SECONDS, run.tail)

    def names(self, nodes):
        return self.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split()

    def nodes_of(self, job):
        return self.names(self.cluster.job(job)["NodeList"])
