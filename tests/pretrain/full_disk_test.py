"""A disk without room for the next save: the run ends with an error that says so, and goes on where there is room."""
import pathlib
import subprocess
import sys
import tempfile

import run
import saved


def mount(disk, options):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk], capture_output=True).returncode == 0


def unmount(disk):
    subprocess.run(["umount", "--lazy", disk], check=True)


class FullDisk(saved.SavedTest):
    def test_a_disk_without_room_ends_the_run_and_loses_nothing(self):
        """Room for two steps of 10 MiB, and not for a third; then for more."""
        disk = self.folder_of()
        disk.mkdir(parents=True)
        self.assertTrue(mount(disk, "size=25m"))
        self.addCleanup(unmount, disk)
        done = self.run_ranks(2, *self.saving())
        self.assert_one_error(done, 1, "the checkpoint of step 6 was not written: rank ", "step-00000006.partial",
                              "No space left on device", "Earlier ones are as they were")
        subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
        self.train(2, "whole", checkpoint__enable=False)
        self.assert_goes_on_from_step_4()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        if not mount(pathlib.Path(scratch), "size=1m"):
            print("skipped: this process may not mount a file system")
            sys.exit(77)
        unmount(scratch)
    run.main()
