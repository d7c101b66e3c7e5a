"""Folders as runs leave them, for the tests of report.py and export_run.py, with the values that went into them."""
import json
import math

AXES = ("dp_shard", "pp", "tp")
NODES, RANKS = "gpu[09-11,7]", 32


def line_of(step, **more):
    """The values of a step, made from its number; each part of its time differs."""
    exposed = {axes: 10.0 + step % 7 + index for index, axes in enumerate(AXES)}
    times = {"data": 0.25, "compute": 100 + step % 5 / 3, "optimizer": 3.5, "checkpoint": 0.0, "validation": 0.0, "evaluation": 0.0,
             "other": 0.125}
    total = sum(times.values()) + sum(exposed.values())
    return {"step": step, "loss": 2 + 9 * math.exp(-step / 100), "grad_norm": 1 / (1 + step), "lr": 1e-3 * step, "finite": True,
            "counts_for_speed": step > 5, "tokens": 4096, "tokens_per_second": 4096e3 / total, "tokens_per_second_per_device": 4096e3 / total / RANKS,
            "model_tflops_per_device": 400.5, "mfu_causal": 0.4, "mfu_noncausal": 0.45, "peak_flops_source": "datasheet",
            "datasheet_tflops": 989.0, "measured_gemm_tflops": None, "memory_peak_gib": 50.25, "rss_gib": 8.5,
            "time_ms": {"total": total, "data": times["data"], "compute": times["compute"], "optimizer": times["optimizer"],
                        "exposed": exposed, "checkpoint": 0.0, "validation": 0.0, "evaluation": 0.0, "other": times["other"]},
            "checkpoint_stall_ms": 0.0, "skipped_updates": 0, "memory_reserved_gib": None,
            "memory_retries": 0, **more}


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def plain_run(folder, num_steps, **more):
    """A run without a job script: metrics only."""
    folder.mkdir(parents=True)
    lines = [line_of(step, **more) for step in range(1, num_steps + 1)]
    write_lines(folder / "metrics.jsonl", lines)
    return lines


def experts_of(layers, counts, **more):
    """The object `experts` of a step with these tokens of the experts of each layer."""
    return {"layers": layers, "load_max_over_mean": [max(row) * len(row) / sum(row) for row in counts],
            "entropy": [1.5 + layer / 100 for layer in layers], "unused": [row.count(0) for row in counts],
            "bias_min": [-0.1] * len(layers), "bias_max": [0.02 * layer for layer in layers], "step_loss": 0.01, "counts": counts, **more}


def sparse_run(folder, num_steps, layers, counts_of, log_freq=10, **more):
    """A run with experts: `counts_of(step)` are the tokens by layer; the lines of steps without a line in the log have no counts."""
    lines = plain_run(folder, num_steps)
    for line in lines:
        line["experts"] = experts_of(layers, counts_of(line["step"]), **more)
        if line["step"] != 1 and line["step"] % log_freq:
            del line["experts"]["counts"]
    write_lines(folder / "metrics.jsonl", lines)
    return lines


def long_run(folder, num_steps):
    """Many lines; only the loss differs. Step 700 is not finite, step 701 is an outlier. Returns the losses."""
    folder.mkdir(parents=True)
    losses = [1 + (step * 37 % 1000) / 1000 for step in range(1, num_steps + 1)]
    losses[699], losses[700] = None, 50.0
    before, after = json.dumps(line_of(1)).split(f'"step": 1, "loss": {line_of(1)["loss"]!r}')
    with open(folder / "metrics.jsonl", "w") as file:
        for step, loss in enumerate(losses, 1):
            tail = after.replace('"finite": true', '"finite": false') if loss is None else after
            file.write(f'{before}"step": {step}, "loss": {"null" if loss is None else loss}{tail}\n')
    return losses


CONFIG = f"""# pretrain 9.8.7 (abc)
[job]
dump_folder = "x"

[training]
steps = 1000
# max_tokens is unset: no limit

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
pipeline_parallel_degree = 2
"""
NEXT_CONFIG = CONFIG.replace("steps = 1000", "steps = 2_000").replace("# max_tokens is unset: no limit", "max_tokens = 7")


def started_run(folder):
    """A run without a job script that started twice: pretrain left its configurations and facts."""
    lines = plain_run(folder, 30)
    facts = {"version": "9.8.7 (abc)", "host": "gpu09", "ranks": RANKS, "mesh": {"pp": 2, "dp_shard": 4, "tp": 4}, "device": "H200",
             "model": "llama3 8B", "parameters": 8e9, "sequences_per_step": 8, "tokens_per_step": 4096}
    write_lines(folder / "starts.jsonl", [
        {"time": "2026-01-01T00:00:00Z", "first_step": 1, "last_step": 1000, **facts, "config": CONFIG},
        {"time": "2026-01-01T01:00:00Z", "first_step": 21, "last_step": 1500, **facts, "config": NEXT_CONFIG}])
    (folder / "effective.toml").write_text(NEXT_CONFIG)
    return lines


LOG = """0: 01:00:05 I [0] Argosy's kernels: cuda
17: 01:20:30 W [17] by step 77 the GPU's memory was full 3 times </script><script>alert(1)</script>
18: 01:20:31 W [18] by step 78 the GPU's memory was full 4 times </script><script>alert(1)</script>
0: 01:25:00 I [0] step  10/1000  loss  2.0
0: 01:25:01 I [0] step 10 is saved in a folder after 0.3 s
3: pretrain: error on rank 3 of 32: rank 19 is late
argosy: 03:03:00 warning: changed since the previous start or the submission: pretrain
"""


def job_run(folder):
    """A run of a Slurm job that was requeued after step 50, repeated steps 41 to 50, skipped updates, and is at step 120.
    Returns the lines that count."""
    lines = plain_run(folder, 120)
    for step in (61, 62):
        lines[step - 1].update(loss=None, grad_norm=None, finite=False)
    for line in lines[49::50]:
        line.update(validation_loss=line["loss"] + 0.5, validation_perplexity=math.exp(line["loss"] + 0.5), validation_tokens=512)
    for step in (63, 90):
        lines[step - 1]["time_ms"]["exposed"]["world"] = 0.5
    earlier = [{**line, "loss": 100.0} for line in lines[40:50]]
    write_lines(folder / "metrics.jsonl", lines[:40] + earlier + lines[40:])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step":121,"loss":2.')  # the process is writing this line
    write_lines(folder / "metrics.jsonl.aside", [{"step": 51}])
    write_lines(folder / "skipped_updates.jsonl", [
        {"step": step, "cause": "nonfinite", "loss": None, "grad_norm": None, "loss_zscore": None, "grad_norm_zscore": None,
         "samples_per_data_rank": 8, "samples": list(range(step, step + 16))} for step in (61, 62)])
    common = {"job": "4711", "nodes": NODES, "ranks": RANKS, "program": "0a"}
    write_lines(folder / "jobs.jsonl", [
        {"time": "2026-01-01T00:00:00Z", "event": "start", "exit_code": None, "outcome": None, "newest_step": 0, "restart": 0, **common},
        {"time": "2026-01-01T01:00:00Z", "event": "end", "exit_code": 76, "outcome": "requeued", "newest_step": 40, "restart": 0, **common},
        {"time": "2026-01-01T01:02:00Z", "event": "start", "exit_code": None, "outcome": None, "newest_step": 40, "restart": 1, **common}])
    for name, size in (("step-00000040", 1000), ("step-00000080", 2000), ("step-00000120.partial", 10)):
        (folder / "checkpoint" / name).mkdir(parents=True)
        (folder / "checkpoint" / name / "shard.h5").write_bytes(b"x" * size)
    (folder / "effective.toml").write_text(CONFIG)
    (folder / "logs").mkdir()
    (folder / "logs" / "4711.log").write_text(LOG)
    write_lines(folder / "preflight.json", [{"verdict": "WARN", "findings": [{"check": "products", "where": "gpu10"}],
                                            "ranks": [{"rank": rank, "mpi_library": "Open MPI", "nccl_version": ""} for rank in range(RANKS)],
                                            "nodes": [{"gpus": [{"name": "H200", "driver": "580"}] * 8}] * 4,
                                            "speeds": {"products": {"type": "bfloat16", "tera_flops": [700.0 + rank for rank in range(RANKS)]}}}])
    return lines


def write_trace(folder, rank, spans, num_ranks, name="7.5"):
    """A trace as profiling leaves it. `spans`: (begin, end, name) in us."""
    folder.mkdir(parents=True, exist_ok=True)
    events = [f'{{"ph":"M","name":"process_name","pid":{rank},"tid":0,"args":{{"name":"rank {rank}"}}}}']
    events += [f'{{"ph":"X","name":{json.dumps(words)},"pid":{rank},"tid":0,"ts":{begin:.3f},"dur":{end - begin:.3f}}}'
               for begin, end, words in sorted(spans, key=lambda span: span[1])]  # a span is written when it ends
    (folder / f"rank-{rank:05}.json").write_text(
        f'{{"displayTimeUnit":"ms","otherData":{{"id":"{name} of {num_ranks} ranks"}},"traceEvents":[\n' + ",\n".join(events) + "]}\n")


def stage_spans(stage, num_microbatches, begin=1000):
    """A GPipe step of two stages: a forward takes 100 us, a backward 100 us for inputs and 50 us for weights; a receive waits
    for the other stage. Everything lies in the phases of a step; nothing is recorded between them. Stage 1 ends first and waits
    in its update until stage 0 sends its part of the norm."""
    spans, now = [(begin - 60, begin - 20, "the reading of a step's data")], begin
    first = now

    def add(length, words):
        nonlocal now
        spans.append((now, now + length, words))
        now += length

    def receive(what, microbatch, length):
        if length > 0:
            spans.append((now, now + length, "wait pp"))
        add(length + 1, f"Receive{what} of stage {stage} microbatch {microbatch}")

    for microbatch in range(num_microbatches):
        if stage == 1:
            receive("Activation", microbatch, 100 if microbatch == 0 else 0)
        add(100, f"Forward of stage {stage} unit 0 microbatch {microbatch}")
    for microbatch in range(num_microbatches):
        if stage == 0:
            receive("Gradient", microbatch, 251 if microbatch == 0 else 49)
        add(100, f"BackwardInput of stage {stage} unit 0 microbatch {microbatch}")
        add(50, f"BackwardWeight of stage {stage} unit 0 microbatch {microbatch}")
    spans.append((first, now, "forward and backward, outside the units (recording graphs, or norms of gradients)"))
    begin_of_update, all_sent = now + 60, begin + 300 * num_microbatches + 202 + 60 + 15
    spans.append((begin_of_update, all_sent + 25, "the optimizer's update"))
    spans.append((begin_of_update + 5, begin_of_update + 15, "submit world all-reduce, 8e-06 MB"))
    if begin_of_update + 15 < all_sent:
        spans.append((begin_of_update + 15, all_sent, "wait world"))
    return spans


def rank_line(step, times, num_steps=10):
    """A line of ranks.jsonl: `times` is the compute time of each rank; the others follow from it."""
    longest = max(times)
    return {"step": step, "num_steps": num_steps, "total_ms": [longest + 20.0] * len(times), "compute_ms": times,
            "data_ms": [1.0 + rank % 3 for rank in range(len(times))],
            "exposed_ms": [longest + 15.0 - time for time in times]}
