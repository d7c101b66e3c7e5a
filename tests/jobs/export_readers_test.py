#!/usr/bin/env python3
"""What MLflow's client finds in the files of jobs/export_run.py, and what `wandb sync` sends of them to a server, for which a
stand-in answers on this machine.

A test by hand: nothing else of the project needs the two packages, jobs/setup.sh does not install them, and so ctest skips
this test. Install them into a Python of your own and run it from the root of the project:
    python3 -m venv /tmp/readers && /tmp/readers/bin/pip install mlflow-skinny wandb
    ARGOSY_SOURCE=$PWD /tmp/readers/bin/python tests/jobs/export_readers_test.py
"""
import gzip
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # since 3.17 its client refuses file stores without it

try:
    import mlflow.tracking
    import wandb
except ImportError as missing:
    print(f"skipped: {missing}; run this test with a Python that has the packages mlflow-skinny and wandb")
    sys.exit(77)

from made_up_runs import started_run, write_lines

EXPORT = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs" / "export_run.py"
SYNC_SECONDS = 120


class Server(http.server.ThreadingHTTPServer):
    """Answers as W&B's server does to an upload, and keeps what comes: variables of GraphQL, and pieces of the run's files."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.variables, self.pieces = [], []

    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """wandb breaks connections off when it has finished."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_PUT(self):
        self.body()
        self.answer({})

    def do_POST(self):
        sent = json.loads(self.body())
        if self.path != "/graphql":
            self.server.pieces.append(sent)
            self.answer({"exitcode": None, "limits": {}})
            return
        variables = sent.get("variables") or {}
        self.server.variables.append(variables)
        project = {"id": "p", "name": "argosy", "entity": {"id": "e", "name": "me"}}
        run = {"id": "i", "name": variables.get("name") or "r", "displayName": "d", "config": "{}", "tags": [], "project": project}
        files = [{"name": name, "uploadUrl": f"{self.server.url()}/{name}"} for name in variables.get("files") or []]
        self.answer({"data": {"viewer": {"id": "v", "entity": "me", "username": "me"}, "entity": {"name": "me"}, "project": None,
                              "upsertBucket": {"bucket": run, "inserted": True}, "model": {"bucket": None},
                              "createRunFiles": {"runID": "i", "uploadHeaders": [], "files": files}}})


class Readers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.lines = started_run(self.folder / "run")
        (self.folder / "run/jobs.jsonl").write_text('{"event": "end", "outcome": "failed", "exit_code": 77}\n')

    def export(self, form):
        command = [sys.executable, EXPORT, form, self.folder / "exported", self.folder / "run"]
        return pathlib.Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())

    def test_mlflow(self):
        client = mlflow.tracking.MlflowClient(tracking_uri=str(self.export("--mlflow").parents[1]))
        [experiment] = [one for one in client.search_experiments() if one.name == "argosy"]
        [run] = client.search_runs([experiment.experiment_id])
        self.assertEqual((run.info.run_name, run.info.status), ("run", "FAILED"))
        self.assertEqual(run.data.params["training.steps"], "2_000")
        self.assertEqual(run.data.tags["argosy.device"], "H200")
        for name, value in (("loss", lambda line: line["loss"]), ("time_ms/exposed/tp", lambda line: line["time_ms"]["exposed"]["tp"])):
            history = client.get_metric_history(run.info.run_id, name)
            self.assertEqual([(one.step, one.value) for one in history], [(line["step"], value(line)) for line in self.lines])
            self.assertEqual(run.data.metrics[name], value(self.lines[-1]))
        self.assertEqual([one.path for one in client.list_artifacts(run.info.run_id)], ["effective.toml"])

    def test_wandb_sync(self):
        path = self.folder / "run/starts.jsonl"
        notes = "\u00e9" * 40_000  # a record that spans blocks of 32 KiB
        starts = [json.loads(line) for line in path.read_text().splitlines()]
        write_lines(path, [start | {"config": start["config"].replace("[job]", f'[job]\ndescription = "{notes}"')} for start in starts])
        folder = self.export("--wandb")
        server = Server()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for end in (server.server_close, thread.join, server.shutdown):  # the last one first
            self.addCleanup(end)
        environment = {**os.environ, "HOME": str(self.folder), "WANDB_BASE_URL": server.url(), "WANDB_API_KEY": "0" * 40,
                       "WANDB_ERROR_REPORTING": "false", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run([sys.executable, "-m", "wandb", "sync", folder], env=environment, capture_output=True, text=True,
                              cwd=self.folder, timeout=SYNC_SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        history = [json.loads(line) for piece in server.pieces
                   for line in piece.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])]
        self.assertEqual([values["_step"] for values in history], [line["step"] for line in self.lines])
        for values, line in zip(history, self.lines):
            self.assertEqual((values["loss"], values["time_ms/exposed/tp"]), (line["loss"], line["time_ms"]["exposed"]["tp"]))
        self.assertTrue(server.pieces[-1]["complete"])
        self.assertEqual(server.pieces[-1]["exitcode"], 77)
        first = next(variables for variables in server.variables if variables.get("config"))
        config = {name: one["value"] for name, one in json.loads(first["config"]).items()}
        self.assertEqual((first["project"], first["displayName"], first["name"]), ("argosy", "run", folder.name[-8:]))
        self.assertEqual((first["notes"], config["training"]["steps"], config["argosy"]["device"]), (notes, 2000, "H200"))


if __name__ == "__main__":
    print(f"mlflow {mlflow.__version__}, wandb {wandb.__version__}")
    unittest.main()
