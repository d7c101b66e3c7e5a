"""Scenarios of slurm_test.py for the scripts that try variants alternately in one job: why_slow.sh and fabric_ab.sh."""
from scenarios import Scenarios, scenario


class Experiments(Scenarios):
    @scenario
    def why_slow(self):
        """A submitted run says its nodes, ranks and variables itself. All experiments are in one job, also that on one node."""
        run = self.new_run()
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, environment={"NCCL_DEBUG": "INFO"})
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        said = run.call("why_slow.sh", run.folder, "--rounds", 2, "--steps", 12, "--only",
                        "one_node,hsdp,without_NCCL_DEBUG,fabric_without_ethernet", "--optimizer.lr", "1e-4", "--time", "10")
        self.assertRegex(said, r"\nbaseline +\d+\.\d +- +-\n")
        for name in ("one_node", "without_NCCL_DEBUG", "fabric_without_ethernet"):
            self.assertRegex(said, rf"\n{name} +\d+\.\d +[+-]\d+\.\d +\d+\.\d +(faster|slower|no difference)\n")
        self.assertIn("\nleft out: hsdp: the 2 data-parallel ranks do not split into shards within a node and replicas\n", said)
        self.assertRegex(said, r"\n(No factor|Factor): ")
        folder = run.folder / "why_slow"
        log, = (folder / "logs").glob("*.log")
        self.assertEqual(self.cluster.job(log.stem)["NumNodes"], "2")
        self.assertEqual(len([line for line in (folder / "round-1" / "one_node" / "log").read_text().splitlines()
                              if "parameters on one rank," in line]), 1)
        again = run.call("why_slow.sh", run.folder, "--report")
        self.assertTrue(said.endswith(again), again)
        self.assertEqual(run.losses()[-1][0], 12)  # the run's own files stay

    @scenario
    def fabric_ab(self):
        """The profile that the site already uses: it is unset for one variant."""
        run = self.new_run()
        said = run.call("fabric_ab.sh", "--nodes", 2, "--ranks-per-node", 1, "--profile", "ethernet", "--folder", run.folder,
                        "--rounds", 2, "--collectives", "all_reduce", "--time", "10")
        for name in ("with", "but_NCCL_SOCKET_IFNAME", "but_OMPI_MCA_btl_tcp_if_include"):
            self.assertRegex(said, rf"\n{name} +\S+ +[+-]\d+\.\d +\d+\.\d +(faster|slower|no difference)\n")
        environment = [(run.folder / "round-2" / name / "all_reduce.json").read_text() for name in ("without", "with")]
        self.assertEqual(["NCCL_SOCKET_IFNAME" in text for text in environment], [False, True])
