#!/usr/bin/env python3
"""Tests jobs/export_run.py over made-up runs with readers of its own; export_readers_test.py has those of MLflow and W&B."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zlib

from made_up_runs import job_run, plain_run, started_run

EXPORT = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs" / "export_run.py"
sys.path.insert(0, str(EXPORT.parent))
import export_run
import mlflow_files
import wandb_files
FIRST_START, SECOND_START = 1767225600, 1767229200  # of started_run: 2026-01-01, 0:00 and 1:00


def fields_of(data):
    """The fields of a message in the encoding of protocol buffers: {number: [integer or bytes]}."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        assert key & 7 in (0, 2), key
        value = varint()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
            assert at <= len(data)
        found.setdefault(key >> 3, []).append(value)
    return found


def records_of(path):
    """The records of a .wandb file: pieces of kind 1 (whole), 2, 3 and 4 (first, middle, last) in blocks of 32 KiB."""
    data = path.read_bytes()
    assert data[:7] == b":W&B\xe1\xbe\x00"
    at, record = 7, None
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            assert data[at:at + room] == bytes(room)
            at += room
            continue
        checksum, length, kind = struct.unpack("<IHB", data[at:at + 7])
        piece = data[at + 7:at + 7 + length]
        assert len(piece) == length <= room - 7 and zlib.crc32(bytes([kind]) + piece) == checksum
        assert kind in ((1, 2) if record is None else (3, 4)), kind
        record, at = (record or b"") + piece, at + 7 + length
        if kind in (1, 4):
            yield fields_of(record)
            record = None
    assert record is None


def items_of(message, number=1):
    """{key: value} of the items of a message."""
    items = [fields_of(item) for item in fields_of(message).get(number, [])]
    return {item[1][0].decode(): json.loads(item[16][0]) for item in items}


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, *words, code=0):
        done = subprocess.run([sys.executable, EXPORT, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertFalse([path for path in self.folder.rglob(".*") if path.suffix in (".new", ".old")])
        return [pathlib.Path(line) for line in done.stdout.splitlines()] if code == 0 else done.stderr

    def times_of(self, lines):
        """The end of each step of started_run, whose second start begins with step 21."""
        times, now = {}, FIRST_START
        for line in lines:
            now = (SECOND_START if line["step"] == 21 else now) + line["time_ms"]["total"] / 1000
            times[line["step"]] = now
        return times

    def test_mlflow(self):
        lines = started_run(self.folder / "my run")
        [run] = self.export("--mlflow", self.folder / "mlruns", self.folder / "my run")
        times = self.times_of(lines)
        for name, value in (("loss", lambda line: line["loss"]), ("finite", lambda line: 1),
                            ("time_ms/exposed/dp_shard", lambda line: line["time_ms"]["exposed"]["dp_shard"])):
            expected = [f"{round(1000 * times[line['step']])} {value(line)!r} {line['step']}" for line in lines]
            self.assertEqual((run / "metrics" / name).read_text().splitlines(), expected)
        self.assertFalse((run / "metrics/memory_reserved_gib").exists())  # null in every line
        self.assertEqual((run / "params/training.steps").read_text(), "2_000")
        self.assertEqual((run / "tags/mlflow.runName").read_text(), "my run")
        self.assertEqual(json.loads((run / "tags/argosy.mesh").read_text()), {"pp": 2, "dp_shard": 4, "tp": 4})
        self.assertEqual((run / "artifacts/effective.toml").read_text(), (self.folder / "my run/effective.toml").read_text())
        meta = dict(line.split(": ", 1) for line in (run / "meta.yaml").read_text().splitlines())
        self.assertEqual((meta["status"], meta["start_time"], meta["end_time"]), ("1", str(1000 * FIRST_START), "null"))
        self.assertEqual((meta["run_id"], meta["experiment_id"]), (f'"{run.name}"', f'"{run.parent.name}"'))
        self.assertIn('name: "argosy"\n', (run.parent / "meta.yaml").read_text())

    def test_a_second_export_replaces_the_first(self):
        """Also where the experiment was made by MLflow, which numbers it and writes its name without quotes."""
        plain_run(self.folder / "one", 3)
        plain_run(self.folder / "two", 2)
        (self.folder / "mlruns/123").mkdir(parents=True)
        (self.folder / "mlruns/123/meta.yaml").write_text("experiment_id: '123'\nname: argosy\n")
        words = ("--mlflow", self.folder / "mlruns", self.folder / "one", self.folder / "two")
        first, second = self.export(*words), self.export(*words)
        self.assertEqual((first, [path.parent.name for path in first]), (second, ["123", "123"]))
        self.assertEqual(len((first[0] / "metrics/loss").read_text().splitlines()), 3)
        (self.folder / "mlruns/124").mkdir()
        (self.folder / "mlruns/124/meta.yaml").write_text("experiment_id: '124'\nname: 'a: b'\n")
        [other] = self.export("--project", "a: b", *words[:3])
        self.assertEqual(other.parent.name, "124")
        [other] = self.export("--project", "new", *words[:3])
        self.assertNotIn(other.parent.name, ("123", "124"))
        words = ("--wandb", self.folder / "wandb", self.folder / "one")
        self.assertEqual(self.export(*words), self.export(*words))

    def test_wandb(self):
        """Records that span blocks, too: a description of 70 kB, and 120 steps."""
        lines = job_run(self.folder / "run")
        config = self.folder / "run/effective.toml"
        text = "\u00e9" * 35_000
        config.write_text(config.read_text().replace("[job]", f'[job]\ndescription = "{text}"'))
        [folder] = self.export("--wandb", self.folder / "wandb", self.folder / "run", "--project", "p")
        self.assertTrue((folder / "files").is_dir())
        [path] = folder.glob("run-*.wandb")
        records = list(records_of(path))
        self.assertEqual([record[1] for record in records], [[number] for number in range(1, len(records) + 1)])
        self.assertEqual([max(record) for record in records], [21, 17, *[2] * 120, 3])  # the run goes on: no end
        run = fields_of(records[1][17][0])
        self.assertEqual((run[1][0].decode(), run[3], run[8], run[9][0].decode()), (path.stem[4:], [b"p"], [b"run"], text))
        configured = items_of(run[4][0])
        self.assertEqual((configured["training"]["steps"], configured["parallelism"]["data_parallel_shard_degree"]), (1000, -1))
        for line, record in zip(lines, records[2:-1]):
            values = items_of(record[2][0])
            self.assertEqual(fields_of(fields_of(record[2][0])[2][0])[1], [line["step"]])
            self.assertEqual((values["_step"], values.get("loss"), values.get("validation_loss")),
                             (line["step"], line["loss"], line.get("validation_loss")))
            self.assertEqual(values["time_ms/exposed/tp"], line["time_ms"]["exposed"]["tp"])
        self.assertEqual(items_of(records[-1][3][0])["loss"], lines[-1]["loss"])

    def test_records_at_the_end_of_a_block(self):
        """A record's first piece may have no byte of its own, and a block's last bytes may be too few for a piece."""
        path = self.folder / "records"
        for left in range(20):
            with open(path, "wb") as file:
                records = wandb_files.RecordFile(file)
                records.write(2, bytes(32768 - 7 - 7 - 6 - left))  # 6: the number of the record, and the field's key and length
                records.write(3, bytes(range(100)))
                records.write(4, bytes(70_000))
            found = list(records_of(path))
            self.assertEqual([(record[1], sorted(record)[1]) for record in found], [([1], 2), ([2], 3), ([3], 4)])
            self.assertEqual((found[1][3], len(found[2][4][0])), ([bytes(range(100))], 70_000))

    def test_an_ended_run(self):
        for outcome, code in (("done", 0), ("failed", 77)):
            folder = self.folder / outcome
            plain_run(folder, 2)
            (folder / "jobs.jsonl").write_text(json.dumps({"event": "end", "outcome": outcome, "exit_code": code}) + "\n")
            [run] = self.export("--wandb", self.folder / "wandb", folder)
            newest = list(records_of(next(run.glob("*.wandb"))))[-1]
            self.assertEqual(fields_of(newest[18][0])[1], [code])
            [run] = self.export("--mlflow", self.folder / "mlruns", folder)
            self.assertIn(f"status: {3 if code == 0 else 4}\n", (run / "meta.yaml").read_text())

    def test_names_of_metrics(self):
        """Names keep their own files, which lie in the folder of the metrics."""
        names = ["../out", "a/../../b", "/c", "d//e", "..", "x?y", "x_y", "loss", "loss/part", "loss/other", "p/q", "p"]
        files = mlflow_files.Files(self.folder / "metrics")
        for _ in range(2):
            for name in names:
                with open(files.path(name), "a") as file:
                    file.write(name + "\n")
        found = {str(path.relative_to(self.folder)): path.read_text() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(sorted(found.values()), sorted(2 * (name + "\n") for name in names))
        self.assertTrue(all(path.startswith("metrics/") for path in found), found)
        self.assertEqual(found["metrics/x_y_2"], 2 * "x_y\n")

    def runs_of(self, experiment):
        """What MLflow takes for runs."""
        return [path for path in experiment.iterdir() if (path / "meta.yaml").exists()]

    def test_readers_see_one_run(self):
        """At each moment of a second export, which also fails at each of its renames."""
        plain_run(self.folder / "run", 3)
        (self.folder / "run/effective.toml").write_text("[training]\nsteps = 9\n")
        [run] = self.export("--mlflow", self.folder / "mlruns", self.folder / "run")
        usual, calls, fails_at = {name: getattr(os, name) for name in ("rename", "replace")}, 0, 1

        def step(name):
            def call(*paths):
                nonlocal calls
                calls += 1
                self.assertEqual(self.runs_of(run.parent), [run])
                if calls == fails_at:
                    raise OSError("made up")
                usual[name](*paths)
                self.assertEqual(self.runs_of(run.parent), [run])
            return call
        read = export_run.read(self.folder / "run", "argosy")
        with unittest.mock.patch.multiple(os, **{name: step(name) for name in usual}):
            while True:
                calls = 0
                try:
                    export_run.export(read, self.folder / "mlruns", mlflow_files)
                    break
                except OSError:
                    fails_at += 1
                    self.assertEqual(sorted(path.name for path in run.iterdir()), ["artifacts", "meta.yaml", "metrics", "params", "tags"])
                    self.assertEqual(len((run / "metrics/loss").read_text().splitlines()), 3)
        self.assertGreater(fails_at, 9)  # two for each folder and two for meta.yaml

    def test_a_killed_export(self):
        """What it left is no run, and the next export removes it."""
        plain_run(self.folder / "run", 3)
        program = ("import os, pathlib, sys, export_run, mlflow_files as form\nusual = form.write\n"
                   "form.write = lambda *words: (usual(*words), os.kill(os.getpid(), 9))\n"
                   "export_run.export(export_run.read(pathlib.Path(sys.argv[2]), 'argosy'), pathlib.Path(sys.argv[1]), form)")
        words = [self.folder / "mlruns", self.folder / "run"]
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", program, *words], cwd=EXPORT.parent)
            self.assertEqual(done.returncode, -9)
            [experiment] = words[0].iterdir()
            [left] = experiment.glob(".*.new")
            self.assertEqual(len(self.runs_of(experiment)), 0)
        [run] = self.export("--mlflow", *words)
        self.assertEqual((self.runs_of(experiment), left.exists()), ([run], False))

    def test_steps_before_the_first_known_start(self):
        lines = started_run(self.folder / "run")
        path = self.folder / "run/starts.jsonl"
        path.write_text(path.read_text().splitlines()[1] + "\n")
        [run] = self.export("--mlflow", self.folder / "mlruns", self.folder / "run")
        times = [int(line.split()[0]) for line in (run / "metrics/loss").read_text().splitlines()]
        totals = [line["time_ms"]["total"] for line in lines]
        for step, expected in ((1, -sum(totals[1:20])), (20, 0), (21, totals[20])):
            self.assertAlmostEqual(times[step - 1], 1000 * SECOND_START + expected, delta=1.01)
        self.assertIn(f"start_time: {round(1000 * SECOND_START - sum(totals[:20]))}\n", (run / "meta.yaml").read_text())

    def test_refusals(self):
        (self.folder / "empty").mkdir()
        (self.folder / "file").touch()
        plain_run(self.folder / "run", 1)
        for words, expected in (([self.folder / "none"], "there is no folder"), ([self.folder / "empty"], "holds no step"),
                                ([self.folder / "run", "--wandb", "x"], "not allowed with")):
            self.assertIn(expected, self.export("--mlflow", self.folder / "mlruns", *words, code=2))
        for words in (("--mlflow", "", self.folder / "run"), ("--wandb", "", self.folder / "run"), ("--wandb", self.folder / "w", "")):
            self.assertIn("a name is empty", self.export(*words, code=2))
        self.assertIn("error: ", self.export("--mlflow", self.folder / "file", self.folder / "run", code=2))


if __name__ == "__main__":
    unittest.main()
