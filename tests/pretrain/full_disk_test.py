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


class FullDisk(saved.SavedTest):
    def disk(self, options):
        """The folder of steps as a file system of its own."""
        disk = self.folder_of()
        disk.mkdir(parents=True)
        self.assertTrue(mount(disk, options))
        self.addCleanup(unmount, disk)
        return disk

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
