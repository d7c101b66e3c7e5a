"""A run has the requested number of ranks, and one job at a time writes its folder."""
import os
import signal

import run


class OneJob(run.PretrainTest):
    def test_two_jobs_on_one_folder(self):
        """The second job ends at once and does not affect the first; once the first has ended, the folder is free."""
        first = self.start(2, *self.small(training__steps=100000))
        self.wait_for_step(first, 2)
        second = self.run_ranks(2, *self.small())
        self.assert_one_error(second, 2, "job.dump_folder", "in use by another run", f" on {os.uname().nodename}")
        self.wait_for_step(first, len(self.steps()) + 2)
        for pid in first.rank_pids().values():
            run.send(pid, signal.SIGKILL)
        first.finish()
        self.assert_code(self.run_ranks(1, *self.small()), 0)

    def test_another_number_of_ranks_is_refused(self):
        """srun or the mpirun of another MPI starts several jobs of one rank, each of which would train everything."""
        cases = [{"ARGOSY_RANKS": "4"}, {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "4"}]
        for environment in cases:
            alone = self.run_ranks(1, *self.small(), environment=environment, program=self.without_mpirun())
            self.assert_one_error(alone, 2, "4 ranks were requested, but MPI_COMM_WORLD has 1", "srun --mpi=pmix", "mpirun")
        two = self.run_ranks(2, *self.small(), environment={"ARGOSY_RANKS": "4"})
        self.assert_one_error(two, 2, "4 ranks were requested, but MPI_COMM_WORLD has 2")
        self.assertFalse((self.folder / "run").exists())
        self.assert_code(self.run_ranks(2, *self.small(), environment={"ARGOSY_RANKS": "2"}), 0)
        self.assert_code(self.run_ranks(1, *self.small(), environment=cases[1]), 0)  # mpirun within a Slurm step

    @staticmethod
    def without_mpirun():
        """A program that removes the environment variables of the mpirun that started it."""
        script = ('for name in ${!OMPI_*} ${!PMIX_*}; do unset "$name"; done; '
                  f'export OMPI_MCA_ess_singleton_isolated=1; exec {run.PRETRAIN} "$@"')
        return ("bash", "-c", script, "-")


if __name__ == "__main__":
    run.main()
