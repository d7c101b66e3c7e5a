"""Reads what a run leaves in its folder: metrics, starts and ends, checkpoints, log, configuration (jobs/FAILURES.md,
lib/trainer/observe/FORMAT.md, lib/trainer/setup/FORMAT.md).

A file may be absent, and its last line may be incomplete, because the run goes on or was killed. Needs Python 3.9.
"""
import dataclasses
import decimal
import json
import os
import pathlib
import re
import sys
import time

AXES = {  # of the mesh, the outermost first (lib/ground/layout/mesh_shape.h), and their keys in [parallelism]
    "pp": "pipeline_parallel_degree", "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree", "cp": "context_parallel_degree", "tp": "tensor_parallel_degree"}
LOG_HEAD_BYTES, LOG_TAIL_BYTES = 1 << 16, 1 << 23  # what is read of each log
MAX_RUNS = 24  # of a page or a table
MAX_LOGS, MAX_ENVIRONMENT_LINES, MAX_WARNING_CHARACTERS = 4, 12, 600
STALE_SECONDS, STALE_STEPS = 600, 20  # a run that shows no new step for longer than both has stopped

# srun puts the rank before a line (`3: `), the log of several ranks has it in brackets.
LOG_LINE = re.compile(r"(?:\s*(\d+): )?(?:(\d\d:\d\d:\d\d) ([A-Z]) (?:\[(\d+)\] )?|argosy: (\d\d:\d\d:\d\d) (?=warning)|"
                      r"pretrain: (?=error))(.*)")
STEP_IN_LOG = re.compile(r"step +\d+/(\d+) ")
MESH_IN_LOG = re.compile(r"parameters on (\d+) ranks? \(([a-z_]+ \d+(?: x [a-z_]+ \d+)*(?:, ep \d+)?)\)")

PAIR = re.compile(r"""\s*(\w+)\s*=((?:"(?:[^"\\]|\\.)*"|'[^']*'|[^"'#])*)""")  # key and value in TOML, without a comment


@dataclasses.dataclass
class Run:
    folder: pathlib.Path
    name: str
    config: dict  # "section.key": text of the value
    config_file: str  # where it is from; empty: none found
    version: str
    starts: list  # lines of starts.jsonl
    jobs: list
    log: dict
    preflight: dict

    def total_steps(self):
        return total_steps(self.config, self.starts, self.log["total"])

    def newest_start(self):
        return self.starts[-1] if self.starts else {}

    def restarts(self):
        """The steps after which the run started again."""
        first = [start["first_step"] for start in self.starts if is_number(start.get("first_step"))]
        if self.starts:
            return [step - 1 for step in first if step > 1]
        return [job["newest_step"] for job in self.jobs if job.get("event") == "start" and job.get("newest_step")]

    def config_changes(self):
        """{step, key, before, now} for each key that a start changed; `step` is the first one with the new value."""
        changes, before = [], None
        for start in self.starts:
            now, _ = read_config(str(start.get("config", "")))
            if before is not None:
                changes += [{"step": start.get("first_step"), "key": key, "before": before.get(key, "unset"),
                             "now": now.get(key, "unset")}
                            for key in {**before, **now} if before.get(key) != now.get(key)]
            before = now
        return changes


def total_steps(config, starts, total_in_log=None):
    """The last step of the newest start, which training.max_tokens may put before training.steps. A start that left no record has
    it in the log; else it is training.steps. None if nothing tells it."""
    steps = config.get("training.steps", "").replace("_", "")
    return (starts[-1].get("last_step") if starts else None) or total_in_log or (int(steps) if steps.isdigit() else None)


DECODER = json.JSONDecoder(parse_constant=lambda name: None)  # NaN and infinity, which JSON lacks, are unknown values


def parsed(line):
    """The JSON object of a line; None if it is none."""
    try:
        value = DECODER.decode(line.decode())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_number(value):
    """Neither null, nor NaN, nor infinite."""
    return type(value) in (int, float) and value - value == 0


def objects(path):
    """Yields the JSON objects of a file, one per line; lines that are incomplete are left out."""
    try:
        with open(path, "rb") as file:
            for line in file:
                value = parsed(line)
                if value is not None:
                    yield value
    except FileNotFoundError:
        return


def plain(value, digits=4):
    """A number of this many digits: 123456.7 as 123500, 0.00012 as 0.00012. Beyond 1e-6 to 1e15 it has an exponent."""
    if value and not 1e-6 <= abs(value) < 1e15:
        return f"{value:.{digits}g}"
    return f"{decimal.Decimal(f'{value:.{digits}g}'):f}"


def newest_lines(path, num_bytes=1 << 20):
    """The objects at the end of a file of JSON lines that have a step."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - num_bytes))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    values = [parsed(line) for line in lines]
    return [value for value in values if value is not None and type(value.get("step")) is int]


def read_config(text):
    """The keys of TOML with a line for each, as `pretrain --print-config` prints it, and its first comment."""
    keys, section, comment = {}, "", ""
    for line in text.splitlines():
        heading, pair = re.match(r"\s*\[+([\w.]+)\]+\s*(#|$)", line), PAIR.match(line)
        if heading:
            section = heading[1]
        elif pair:
            keys[f"{section}.{pair[1]}"] = re.sub(r"""^(["'])(.*)\1$""", r"\2", pair[2].strip())
        elif line.startswith("# ") and not section and not comment:
            comment = line[2:]
    return keys, comment


def parts_of_log(path):
    """The beginning and the end of a log as two texts."""
    with open(path, "rb") as file:
        head = file.read(LOG_HEAD_BYTES)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(len(head), size - LOG_TAIL_BYTES))
        return head.decode(errors="replace"), file.read().decode(errors="replace")


def read_logs(paths):
    """The warnings and errors of the logs, equal ones together (numbers may differ), and the lines before step 1."""
    warnings, environment, mesh, total, done = {}, [], None, None, ""
    for path in paths:
        head, tail = parts_of_log(path)
        mesh = next((match for match in MESH_IN_LOG.finditer(head + tail)), mesh)
        started, done = False, ""
        for text in (head + tail).splitlines():
            match = LOG_LINE.match(text)
            if not match:
                continue
            label, clock, level, rank, clock_of_script, words = match.groups()
            step = STEP_IN_LOG.match(words)
            started, total = started or step is not None, int(step[1]) if step else total
            done = words if words.startswith("done after step") else "" if step else done
            if level in ("I", "D", "T"):
                if not started and len(environment) < MAX_ENVIRONMENT_LINES and words not in environment:
                    environment.append(words)
                continue
            one = warnings.setdefault(re.sub(r"\d+", "#", words), {"count": 0, "ranks": []})
            rank = rank or label
            if rank is not None and int(rank) not in one["ranks"] and len(one["ranks"]) < 64:
                one["ranks"].append(int(rank))
            one.update(level="warning" if level == "W" or clock_of_script else "error", count=one["count"] + 1,
                       time=clock or clock_of_script or "", log=path.name, text=words[:MAX_WARNING_CHARACTERS])
    shape = {axis: int(degree) for axis, degree in re.findall(r"([a-z_]+) (\d+)", mesh[2])} if mesh else {}
    return {"warnings": list(warnings.values()), "environment": environment, "mesh": shape,
            "ranks": int(mesh[1]) if mesh else None, "total": total, "done": done, "files": [str(path) for path in paths]}


def config_text(folder, starts):
    """The configuration of the newest start that has one, and its file. A start that was refused may have replaced
    effective.toml."""
    texts = [start["config"] for start in starts if start.get("config") and isinstance(start["config"], str)]
    file = folder / "effective.toml"
    if texts:
        return texts[-1], folder / "starts.jsonl"
    return file.read_text(errors="replace") if file.is_file() else "", file


def read_run(folder, name, log=None):
    """`log` replaces the logs of the run's folder: a run without a job script may have its log elsewhere."""
    folder = pathlib.Path(folder)
    starts = list(objects(folder / "starts.jsonl"))
    text, config = config_text(folder, starts)
    keys, comment = read_config(text)
    logs = [pathlib.Path(log)] if log else sorted(folder.glob("logs/*.log"), key=lambda path: path.stat().st_mtime)
    preflight = folder / "preflight.json"
    return Run(folder, name, keys, str(config) if keys else "", comment, starts, list(objects(folder / "jobs.jsonl")), read_logs(logs[-MAX_LOGS:]),
               (parsed(preflight.read_bytes()) or {}) if preflight.is_file() else {})


def node_names(text):
    """The nodes of Slurm's list: "n[01-03,7],gpu4" are n01, n02, n03, n7 and gpu4."""
    return [name for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text or "") for name in expanded(part)]


def expanded(part):
    """The names that one part of Slurm's list stands for; the last of several brackets counts fastest."""
    ranges = re.match(r"([^\[]*)\[([^\]]*)\](.*)$", part)
    if not ranges:
        return [part]
    names = []
    for piece in ranges[2].split(","):
        low, _, high = piece.partition("-")
        if low.isdigit() and (high or low).isdigit():
            numbers = range(int(low), int(high or low) + 1)
            names += [f"{ranges[1]}{number:0{len(low)}d}{rest}" for number in numbers for rest in expanded(ranges[3])]
    return names


def mesh_of(run):
    """The degrees by axis, the outermost first, the number of ranks that divide experts, of all ranks, and the nodes; {} if
    nothing tells the ranks."""
    starts = [job for job in run.jobs if job.get("event") == "start"]
    newest = run.newest_start()
    ranks = newest.get("ranks") or (starts[-1].get("ranks") if starts else run.log["ranks"])
    if not isinstance(ranks, int) or ranks < 1:
        return {}
    degrees = newest["mesh"] if isinstance(newest.get("mesh"), dict) else run.log["mesh"]
    if not degrees:
        texts = {axis: run.config.get("parallelism." + key, "1") for axis, key in AXES.items()}
        degrees = {axis: int(text) for axis, text in texts.items() if text.isdigit()}
        if texts["dp_shard"] == "-1":
            degrees["dp_shard"] = ranks // max(1, product(degrees.values()))
    experts = degrees.get("ep", 1)
    degrees = {axis: degrees[axis] for axis in AXES if degrees.get(axis, 1) > 1}
    if product(degrees.values()) != ranks:
        degrees = {}
    products = ((run.preflight.get("speeds") or {}).get("products") or {}).get("tera_flops") or []
    return {"ranks": ranks, "degrees": degrees, "experts": experts, "nodes": node_names(starts[-1].get("nodes") if starts else ""),
            "tera_flops": products if len(products) == ranks and all(map(is_number, products)) else []}


def product(factors):
    result = 1
    for factor in factors:
        result *= factor
    return result


def checkpoints_of(folder, config, max_listed=20):
    """The newest checkpoints of a run, whole and partial, by step: {step, whole, time, bytes}."""
    found = []
    for path in (folder / config.get("checkpoint.folder", "checkpoint")).glob("step-*"):
        match = re.fullmatch(r"step-(\d+)(\.partial)?", path.name)
        if match:
            found.append((int(match[1]), match[2] is None, path))
    listed = []
    for step, whole, path in sorted(found, key=lambda one: one[:2])[-max_listed:]:
        try:
            size = sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
            listed.append({"step": step, "whole": whole, "time": path.stat().st_mtime, "bytes": size})
        except OSError:  # a checkpoint that the run has just removed
            continue
    return {"number": len(found), "listed": listed}


def state_of(run, newest_step, step_seconds):
    """How the run stands: (one of new, running, stopped, finished, failed; a sentence)."""
    total, path = run.total_steps(), run.folder / "metrics.jsonl"
    if total is not None and newest_step >= total:
        return "finished", f"step {newest_step} is the last of {total}"
    newest = run.jobs[-1] if run.jobs else {}
    if newest.get("event") == "end":
        outcome, code = newest.get("outcome"), newest.get("exit_code")
        if outcome in ("done", "failed", "cancelled"):
            return ("finished" if outcome == "done" else "failed"), f"{outcome}, exit code {code}"
        return "running", f"{outcome}: the job is to start again"
    if run.log["done"]:
        return "finished", run.log["done"]
    age = time.time() - path.stat().st_mtime if path.exists() else None
    if age is None:
        return "new", "no step yet"
    if age > max(STALE_SECONDS, STALE_STEPS * step_seconds):  # a job that has not ended may wait, load or save
        return ("running" if newest else "stopped"), f"no new step for {age / 60:.0f} min"
    return "running", "the newest step is recent"


def fail(message):
    print(f"{pathlib.Path(sys.argv[0]).stem}: {message}", file=sys.stderr)
    sys.exit(2)


def fail_to_read(error):
    """For an OSError that ends a script: a file of a run is a folder, or may not be read. Silent if the reader of the output has
    gone, as in `status.sh RUN | head`."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest of the output at its end
        sys.exit(1)
    fail(f"cannot read {error.filename}: {error.strerror}" if error.filename else str(error))


def folders_of(names):
    """The folders of the runs; of a sweep (submit.sh --sweep) those of its points."""
    folders = []
    for name in names:
        folder = pathlib.Path(name)
        if not folder.is_dir():
            fail(f"there is no folder {name}")
        is_sweep = (folder / "points").is_file()
        folders += sorted(path for path in folder.glob("point-*") if path.is_dir()) if is_sweep else [folder]
    if not folders:
        fail("no point of the sweep has started")
    if len(folders) > MAX_RUNS:
        fail(f"{len(folders)} runs are too many for one page; name at most {MAX_RUNS}")
    return folders


def names_of(folders):
    """The last part of each path that tells the runs apart."""
    paths = [folder.resolve() for folder in folders]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    fail("a run is named twice")
