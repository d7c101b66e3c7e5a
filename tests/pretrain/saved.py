"""Runs that save: the shared parts of the scripts about checkpoints."""
import json
import pathlib
import re

import run

TOTAL = 12  # steps of the whole run, in however many parts


class SavedTest(run.PretrainTest):
    def saving(self, dump="run", **settings):
        """The words of a run of TOTAL steps that saves every second one."""
        return self.small(dump, **({"training__steps": TOTAL, "lr_scheduler__total_steps": TOTAL,
                                    "checkpoint__enable": True, "checkpoint__interval": 2} | settings))

    def train(self, num_ranks, dump="run", code=0, **settings):
        done = self.run_ranks(num_ranks, *self.saving(dump, **settings))
        self.assert_code(done, code)
        return done

    def folder_of(self, dump="run"):
        return self.folder / dump / "checkpoint"

    def step_folder(self, step, dump="run"):
        return self.folder_of(dump) / f"step-{step:08}"

    def names(self, dump="run"):
        """Of steps; a killed run also leaves run.lock, and one that is stopped before it saves may leave no folder."""
        return sorted(path.name for path in self.folder_of(dump).glob("*") if path.name != "run.lock")

    def whole_steps(self, dump="run"):
        return [int(name[5:]) for name in self.names(dump) if re.fullmatch(r"step-\d{8}", name)]

    def assert_nothing_partial(self, dump="run"):
        self.assertEqual([name for name in self.names(dump) if "partial" in name], [])

    def state(self, step, dump="run"):
        """A field of the run's manifest."""
        return manifest(self.step_folder(step, dump))["state"]

    def numbers(self, dump="run", parse_float=float):
        """Loss and norm of each step, to the last digit; every step must have one line, in order."""
        steps = self.steps(dump, parse_float)
        self.assertEqual([step["step"] for step in steps], list(range(1, len(steps) + 1)), dump)
        return [(step["loss"], step["grad_norm"]) for step in steps]

    def assert_close(self, numbers, expected, tolerance=1e-5):
        self.assertEqual(len(numbers), len(expected))
        for step, ((loss, norm), (other_loss, other_norm)) in enumerate(zip(numbers, expected), 1):
            self.assertAlmostEqual(loss / other_loss, 1, delta=tolerance, msg=f"loss of step {step}")
            self.assertAlmostEqual(norm / other_norm, 1, delta=100 * tolerance, msg=f"norm of step {step}")

    def assert_goes_on_from_step_4(self):
        """The folder holds exactly steps 2 and 4, and both are intact."""
        self.assertEqual(self.names(), ["step-00000002", "step-00000004"])
        done = self.train(2)
        self.assertNotIn("is not intact", done.stderr)
        self.assertIn("4 steps are done", done.stderr)
        self.assert_close(self.numbers(), self.numbers("whole"))

    def flip(self, step, file, dump="run", at=None):
        """Flips one bit of a file of a step, by default in its middle."""
        path = self.step_folder(step, dump) / file
        data = bytearray(path.read_bytes())
        data[len(data) // 2 if at is None else at] ^= 4
        path.write_bytes(data)
        return path


def manifest(step_folder):
    """The manifest's table, found as lib/files/checkpoint/FORMAT.md specifies."""
    data = (pathlib.Path(step_folder) / "checkpoint.h5").read_bytes()
    lines = data[:512].decode().splitlines()
    _, offset, length, _ = next(line for line in lines if line.startswith("table ")).split()
    return json.loads(data[int(offset):int(offset) + int(length)])
