"""The newest figures of runs in Prometheus's text format, for the textfile collector of its node_exporter.

Names end with the base unit, as Prometheus wants it: seconds, bytes, ratio (1 is 100 %); `_total` marks counters. A figure
that is null in metrics.jsonl has no line, so a loss that is not finite has none: alert on argosy_finite.
"""
from run_metrics import NEWEST_STEPS, Speed, part
from run_record import checkpoints_of, is_number, newest_lines

GIB, MS, TERA = 2.0**30, 1e-3, 1e12
NUM_BYTES = 1 << 22  # of the newest lines, some thousands, in which a validation and an evaluation are looked for

# name: (key of metrics.jsonl, factor, help)
OF_STEP = {
    "argosy_step": ("step", 1, "Newest step."),
    "argosy_loss": ("loss", 1, "Mean loss over the valid tokens of the newest step, in nats."),
    "argosy_finite": ("finite", 1, "1 if loss and gradient norm of the newest step are finite, else 0."),
    "argosy_gradient_norm": ("grad_norm", 1, "Gradient norm of the newest step, before clipping."),
    "argosy_learning_rate": ("lr", 1, "Learning rate of the newest step."),
    "argosy_step_tokens": ("tokens", 1, "Tokens of the newest step, over all ranks."),
    "argosy_tokens_per_second": ("tokens_per_second", 1, "Tokens of the whole job per second of the newest step."),
    "argosy_tokens_per_second_per_device": ("tokens_per_second_per_device", 1, "The same per device."),
    "argosy_model_flops_per_second_per_device": ("model_tflops_per_device", TERA, "Model FLOP/s of a device, causal."),
    "argosy_mfu_causal_ratio": ("mfu_causal", 1, "Model FLOP utilisation, causal formula."),
    "argosy_mfu_noncausal_ratio": ("mfu_noncausal", 1, "Model FLOP utilisation, non-causal formula."),
    "argosy_efficiency_ratio": ("efficiency", 1, "Tokens/s of the newest step over those of metrics.baseline."),
    "argosy_memory_peak_bytes": ("memory_peak_gib", GIB, "Peak of rank 0's tensors within the newest step."),
    "argosy_memory_reserved_bytes": ("memory_reserved_gib", GIB, "Peak of what rank 0's GPU allocator reserved."),
    "argosy_resident_bytes": ("rss_gib", GIB, "Resident set of rank 0 at the end of the newest step."),
    "argosy_memory_retries_total": ("memory_retries", 1, "Times that rank 0's GPU was full since the process began."),
    "argosy_skipped_updates_total": ("skipped_updates", 1, "Skipped updates since the run began."),
}
OF_VALIDATION = {
    "argosy_validation_loss": ("validation_loss", 1, "Loss of the newest validation, in nats."),
    "argosy_validation_perplexity": ("validation_perplexity", 1, "Perplexity of the newest validation."),
    "argosy_validation_step": ("step", 1, "Step of the newest validation."),
}
OF_EVALUATION = {"argosy_evaluation_step": ("step", 1, "Step of the newest evaluation of tasks.")}
OF_RUN = {
    "argosy_evaluation": "Metrics of the newest evaluation by task; metric=\"..._stderr\" is a standard error.",
    "argosy_step_seconds": "Time of the newest step by part, on rank 0; part=\"total\" is the whole.",
    "argosy_exposed_seconds": "Exposed communication of the newest step on rank 0, by mesh axes.",
    "argosy_median_step_seconds": f"Median time of the newest {NEWEST_STEPS} steps that count for the run's speed.",
    "argosy_planned_steps": "The run's last step: training.steps, or an earlier one with training.max_tokens.",
    "argosy_checkpoint_step": "Step of the newest whole checkpoint.",
    "argosy_starts_total": "Starts of the run by jobs.",
    "argosy_metrics_modified_timestamp_seconds": "Time of the newest write to metrics.jsonl, in seconds since 1970.",
}
HELP = {**{name: text for name, (_, _, text) in {**OF_STEP, **OF_VALIDATION, **OF_EVALUATION}.items()}, **OF_RUN}


def label_text(value):
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def figures_of_line(line, table):
    for name, (key, factor, _) in table.items():
        value = line.get(key)
        value = int(value) if isinstance(value, bool) else value
        if is_number(value):
            yield name, {}, value * factor


def figures_of_times(lines):
    times = part(lines[-1], "time_ms")
    for name, value in times.items():
        if is_number(value):
            yield "argosy_step_seconds", {"part": name}, value * MS
    for axes, value in part(times, "exposed").items():
        if is_number(value):
            yield "argosy_exposed_seconds", {"axes": axes}, value * MS
    speed = Speed(lines)
    if speed.num_steps and speed.step_ms is not None:
        yield "argosy_median_step_seconds", {}, speed.step_ms * MS


def figures_of_evaluation(line):
    yield from figures_of_line(line, OF_EVALUATION)
    for task in part(line, "evaluation"):
        for metric, value in part(line["evaluation"], task).items():
            if is_number(value):
                yield "argosy_evaluation", {"task": task, "metric": metric}, value


def figures_of(run):
    """Yields (name, labels, value)."""
    path = run.folder / "metrics.jsonl"
    lines = newest_lines(path, NUM_BYTES)
    if lines:
        yield from figures_of_line(lines[-1], OF_STEP)
        yield from figures_of_times(lines)
        yield "argosy_metrics_modified_timestamp_seconds", {}, path.stat().st_mtime
    validated = [line for line in lines if is_number(line.get("validation_loss"))]
    if validated:
        yield from figures_of_line(validated[-1], OF_VALIDATION)
    evaluated = [line for line in lines if part(line, "evaluation")]
    if evaluated:
        yield from figures_of_evaluation(evaluated[-1])
    if run.total_steps() is not None:
        yield "argosy_planned_steps", {}, run.total_steps()
    saved = [one["step"] for one in checkpoints_of(run.folder, run.config)["listed"] if one["whole"]]
    if saved:
        yield "argosy_checkpoint_step", {}, saved[-1]
    if run.jobs:
        yield "argosy_starts_total", {}, sum(job.get("event") == "start" for job in run.jobs)


def text_of(runs):
    """Samples grouped by name, as the format demands; each has the label `run`."""
    samples = {}
    for run in runs:
        for name, labels, value in figures_of(run):
            pairs = ",".join(f'{key}="{label_text(text)}"' for key, text in {"run": run.name, **labels}.items())
            samples.setdefault(name, []).append(f"{name}{{{pairs}}} {value!r}")
    lines = []
    for name, help_text in HELP.items():
        if name in samples:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *samples[name]]
    return "".join(line + "\n" for line in lines)
