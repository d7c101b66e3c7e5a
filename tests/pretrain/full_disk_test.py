"""A disk without room for the next save: the run ends with an error that says so, and resumes when there is room.
The test mounts the disk in its own namespace, which ends with its last process, however that exits.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import run
import saved

INSIDE = "ARGOSY_TEST_MOUNTS_ARE_OWN"

def mount(disk, options):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk], capture_output=True).returncode == 0


def unmount(disk):
    subprocess.run(["umount", "--lazy", disk], check=True)


class WithDisk(saved.SavedTest):
    def disk(self, options):
        """The folder of steps as a file system of its own."""
        disk = self.folder_of()
        disk.mkdir(parents=True)
        self.assertTrue(mount(disk, options))
        self.addCleanup(unmount, disk)
        return disk


class FullDisk(WithDisk):
    def test_a_disk_without_room_for_one_step_ends_the_run_before_it_trains(self):
        disk = self.disk("size=5m")
        done = self.run_ranks(2, *self.saving())
        self.assert_one_error(done, 1, "the next checkpoint of this run needs 10", "has 5", "free; make room on that file system")
        self.assertNotIn("step  1/", done.stderr)
        metrics = self.folder / "run" / "metrics.jsonl"
        self.assertFalse(metrics.exists() and metrics.read_text())

    def test_the_remains_of_a_killed_save_are_room_for_the_next(self):
        disk = self.disk("size=25m")
        self.train(2, training__steps=2)
        remains = disk / "step-00000004.partial"
        remains.mkdir()
        (remains / "shard").write_bytes(bytes(10 << 20))
        self.train(2, training__steps=4)
        self.assertEqual(self.names(), ["step-00000002", "step-00000004"])

    def test_a_disk_without_room_ends_the_run_and_loses_nothing(self):
        """Room for two steps of 10 MiB and not for a third; later for more."""
        disk = self.disk("size=25m")
        done = self.run_ranks(2, *self.saving())
        self.assert_one_error(done, 1, "the checkpoint of step 6 was not written: rank ", "step-00000006.partial",
                              "No space left on device", "Earlier checkpoints are unchanged")
        subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
        self.train(2, "whole", checkpoint__enable=False)
        self.assert_goes_on_from_step_4()


class NoRoomToStart(WithDisk):
    """What MPI and the libraries need before they start: room in the temporary folder, and addresses."""

    def alone(self, *command, environment=None):
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60,
                              env=os.environ | (environment or {}))

    def assert_refused(self, done, code, *parts):
        self.assertEqual((done.returncode, done.stderr.count("\n")), (code, 1), done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_a_temporary_folder_without_room_is_named_and_nothing_hangs(self):
        """Open MPI 4.1 needs 8 MiB and some pages. With less, mpirun hangs, or many lines name no folder."""
        config = ("--config", run.SOURCE / "configs/debug_cpu.toml")
        question = (*config, "--print-config")
        disk = self.disk("size=1m")
        environment = {"TMPDIR": str(disk / "absent" / "folder")}  # Open MPI makes it
        for megabytes in (1, 8):
            with self.subTest(megabytes=megabytes):
                subprocess.run(["mount", "-o", f"remount,size={megabytes}m", disk], check=True)
                for command in ((run.MPIRUN, 2, run.PRETRAIN, *question), (run.MPIRUN, 2, "true"), (run.PRETRAIN, *config)):
                    done = self.alone(*command, environment=environment)
                    self.assert_refused(done, 1, f"the temporary folder {disk}/absent/folder has no room for the 9216 KiB that MPI "
                                        "needs: No space left on device; make room there, or set TMPDIR")
        subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        for command in ((run.MPIRUN, 2, run.PRETRAIN), (run.PRETRAIN,)):
            done = self.alone(*command, *question, environment=environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([path.name for path in disk.glob("argosy-*")], [])

    def test_too_few_addresses_are_said_instead_of_a_crash(self):
        def limited(kib, *command):
            return self.alone("bash", "-c", f'ulimit -v {kib}; exec "$@"', "bash", *command)
        for kib in (300_000, 700_000):  # the libraries of the programs do not load with 300 MB
            done = limited(kib, run.MPIRUN, 2, run.PRETRAIN, "--version")
            self.assert_refused(done, 2, f"mpirun.sh: error: the limit on the address space, {kib // 1024} MiB (ulimit -v), is below "
                                "the 1024 MiB", "remove it in the shell that starts or submits the run: ulimit -v unlimited")
        for program, kib in (("pretrain", 700_000), ("prepare-data", 400_000)):
            done = limited(kib, run.PRETRAIN.parent / program, "--version")
            self.assert_refused(done, 2, f"{program}: error", f"the limit on the address space, {kib // 1024} MiB (ulimit -v), leaves "
                                "less than 512 MiB beside the libraries; remove it in the shell that starts or submits the run: ulimit -v unlimited")
        done = limited(1 << 20, run.MPIRUN, 2, run.PRETRAIN, "--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def enter_namespace():
    """Starts this script again in a mount namespace that only it and its children see."""
    unshare = ("unshare", "--mount", "--propagation", "private")
    try:
        allowed = subprocess.run([*unshare, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        skip("this process may not make a namespace for mounts (unshare --mount)")
    os.environ[INSIDE] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_namespace()
    with tempfile.TemporaryDirectory() as scratch:
        if not mount(pathlib.Path(scratch), "size=1m"):
            skip("this process may not mount a file system")
        unmount(scratch)
    run.main()
