"""Writes a run as MLflow's file store has it: DIR/EXPERIMENT/RUN with meta.yaml, and a file for each parameter, metric and tag.

A metric's file has a line `milliseconds value step` for each value. A name with `/` is a path.
"""
import hashlib
import itertools
import json
import os
import re
import shutil

STATUS = {"running": 1, "new": 1, "finished": 3, "failed": 4, "stopped": 5}  # RunStatus: RUNNING, FINISHED, FAILED, KILLED
SOURCE_LOCAL = 4
LINES_AT_ONCE = 5000  # of metrics.jsonl, which are written together
NAME = re.compile(r"^name: (.*)$", re.M)


def yaml(values):
    """JSON's texts and numbers are YAML's."""
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())


class Files:
    """The files of the names in a folder, each with its own. Names that would have the same file are numbered."""

    def __init__(self, folder):
        self.folder, self.files, self.folders, self.paths = folder, set(), set(), {}

    def path(self, name):
        """MLflow allows letters, digits, and _ - . : / and blanks; a name with `/` is a path, which must stay in the folder."""
        if name not in self.paths:
            *parents, last = [re.sub(r"[^\w\-. :]", "_", part) if part.strip(".") else "_" for part in name.split("/")]
            path = ""
            for part in parents:
                path = unlike(path + part, self.files) + "/"
                self.folders.add(path[:-1])
            self.paths[name] = unlike(path + last, self.files | self.folders)
            self.files.add(self.paths[name])
            (self.folder / path).mkdir(parents=True, exist_ok=True)
        return self.folder / self.paths[name]

    def write(self, name, text):
        self.path(name).write_text(text, encoding="utf-8", errors="replace")


def unlike(path, taken):
    """`path`, or if it is taken the first free of path_2, path_3, ..."""
    numbered = itertools.chain([path], (f"{path}_{number}" for number in itertools.count(2)))
    return next(one for one in numbered if one not in taken)


def write_meta(folder, values):
    """A reader sees the folder from now on."""
    new = folder / "meta.new"
    new.write_text(yaml(values), encoding="utf-8", errors="replace")
    os.replace(new, folder / "meta.yaml")


def named_experiment(target, name):
    """The number of the experiment of this name; None if there is none."""
    for path in target.glob("*/meta.yaml"):
        found = NAME.search(path.read_text(encoding="utf-8", errors="replace"))
        if found and found[1].strip().strip("'\"") == name:
            return path.parent.name
    return None


def place_of(run, target):
    """The folder of the run. Makes the experiment if there is none of this name."""
    number = named_experiment(target, run.project)
    if number is None:
        number = str(int(hashlib.sha256(run.project.encode()).hexdigest(), 16) % 10**18)
        folder = target / number
        folder.mkdir(parents=True, exist_ok=True)
        made = round(1000 * run.begin)
        write_meta(folder, {
            "artifact_location": folder.resolve().as_uri(), "creation_time": made, "experiment_id": number,
            "last_update_time": made, "lifecycle_stage": "active", "name": run.project})
    return target / number / run.digest[:32]


def write(run, made, folder):
    """`made`: the empty folder to fill; `folder`: where it will be."""
    for name in ("metrics", "params", "tags", "artifacts"):
        (made / name).mkdir()
    params, all_tags = Files(made / "params"), Files(made / "tags")
    for name, value in run.config.items():
        params.write(name, value)
    tags = {"mlflow.runName": run.name, "mlflow.source.name": "pretrain", "mlflow.source.type": "LOCAL",
            "mlflow.note.content": run.config.get("job.description", "")}
    facts = {f"argosy.{name}": value if isinstance(value, str) else json.dumps(value) for name, value in run.facts.items()}
    for name, value in {**tags, **facts}.items():
        all_tags.write(name, value)
    write_metrics(run, Files(made / "metrics"))
    if (run.folder / "effective.toml").is_file():
        shutil.copy(run.folder / "effective.toml", made / "artifacts")
    write_meta(made, {
        "artifact_uri": folder.resolve().as_uri() + "/artifacts", "end_time": None if STATUS[run.state] == 1 else round(1000 * run.end),
        "entry_point_name": "", "experiment_id": folder.parent.name, "lifecycle_stage": "active", "run_id": folder.name,
        "run_name": run.name, "run_uuid": folder.name, "source_name": "", "source_type": SOURCE_LOCAL, "source_version": "",
        "start_time": round(1000 * run.begin), "status": STATUS[run.state], "tags": [], "user_id": ""})


def write_metrics(run, metrics):
    waiting, number = {}, 0
    for step, seconds, values in run.steps():
        for name, value in values.items():
            waiting.setdefault(name, []).append(f"{round(1000 * seconds)} {value!r} {step}\n")
        number += 1
        if number % LINES_AT_ONCE == 0:
            append(metrics, waiting)
    append(metrics, waiting)


def append(metrics, waiting):
    for name, lines in waiting.items():
        with open(metrics.path(name), "a", encoding="utf-8") as file:
            file.writelines(lines)
    waiting.clear()
