// The page: which charts there are, how people use them, and what is known of each run.
const CURVES = [
    {title: "Loss", unit: "nats", log: true, marks: true,
     series: [{key: "loss", label: "training"}], about: "mean over the step's valid tokens"},
    {title: "Validation loss", unit: "nats", log: true, sparse: true, none: "no step was validated (validation.enable)",
     series: [{key: "validation_loss", label: "held-out samples"}]},
    {title: "Gradient norm", log: true, marks: true, series: [{key: "grad_norm", label: "before clipping"}]},
    {title: "Learning rate", zero: true, series: [{key: "lr", label: "learning rate"}]},
    {title: "Throughput", unit: "tokens/s", zero: true, series: [{key: "tokens_per_second", label: "whole job"}]},
    {title: "Speed of a device", unit: "TFLOP/s", zero: true,
     series: [{key: "model_tflops_per_device", label: "model FLOP/s, causal formula"}]},
    {title: "MFU", unit: "%", zero: true, about: "model FLOP/s of a device over its peak",
     none: "no peak of this device is known",
     series: [{key: "mfu_causal", label: "causal formula", factor: 100},
              {key: "mfu_noncausal", label: "non-causal formula", factor: 100}]},
    {title: "Efficiency", unit: "%", zero: true, quiet: true, about: "tokens/s in per cent of the run metrics.baseline",
     series: [{key: "efficiency", label: "of the baseline", factor: 100}]},
    {title: "Memory of rank 0", unit: "GiB", zero: true,
     series: [{key: "memory_peak_gib", label: "peak of tensors"},
              {key: "memory_reserved_gib", label: "reserved on the GPU"},
              {key: "rss_gib", label: "resident set of the process"}]},
    {title: "Largest load of an expert", unit: "times the mean", zero: true, quiet: true, about: "the tokens of the expert with most tokens in a layer, over the mean of its experts",
     series: [{key: "experts.load.worst", label: "worst layer"}, {key: "experts.load.median", label: "median layer"}]},
    {title: "Entropy of routers", unit: "nats", zero: true, quiet: true, about: "mean over tokens; at most ln(experts), and 0 if one expert has all of the score",
     series: [{key: "experts.entropy.highest", label: "highest layer"}, {key: "experts.entropy.lowest", label: "lowest layer"}]},
    {title: "Experts without tokens", zero: true, quiet: true, series: [{key: "experts.unused", label: "in all layers"}]},
    {title: "Range of the biases of experts", zero: true, quiet: true, about: "largest minus smallest; scores are at most 1",
     series: [{key: "experts.bias_range", label: "widest layer"}]},
    {title: "Losses that balance experts", zero: true, quiet: true, about: "with their coefficients; the loss does not have them",
     series: [{key: "experts.sequence_loss", label: "of sequences"}, {key: "experts.step_loss", label: "of steps"},
              {key: "experts.z_loss", label: "z"}]},
    {title: "Skipped updates", zero: true, quiet: true,
     series: [{key: "skipped_updates", label: "since the run began"}]},
    {title: "Allocator retries", zero: true, quiet: true,
     series: [{key: "memory_retries", label: "since the process began"}]},
];
const byId = (id) => document.getElementById(id);

const keysOf = (run, start) => Object.keys(run.points.series).filter((key) => key.startsWith(start));

// A chart for each metric of evaluated tasks, with a curve for each task. A key is evaluation.TASK.METRIC.
function evaluationCurves() {
    const keys = [...new Set(data.runs.flatMap((run) => keysOf(run, "evaluation.")))];
    const metricOf = (key) => key.slice(key.lastIndexOf(".") + 1);
    return [...new Set(keys.map(metricOf))].map((metric) => ({
        title: `Evaluation: ${metric}`, log: metric.includes("perplexity"), sparse: true,
        series: keys.filter((key) => metricOf(key) === metric)
            .map((key) => ({key, label: key.slice("evaluation.".length, key.lastIndexOf("."))}))}));
}

function zoomTo(first, last) {
    const [low, high] = allSteps();
    const whole = [Math.max(low, first), Math.min(high, last)];
    view = whole[1] - whole[0] < 1 || whole[0] <= low && whole[1] >= high ? null : whole;
    drawAll();
}

function listen(chart) {
    const {plot} = chart;
    let start = null;
    const xOf = (event) => event.clientX - plot.getBoundingClientRect().left;
    plot.addEventListener("pointerdown", (event) => {
        start = xOf(event);
        plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
        if (!chart.stepAt) return;
        showTip(chart, chart.stepAt(xOf(event)));
        if (start === null) return;
        const [left, right] = [start, xOf(event)].sort((a, b) => a - b);
        const area = {x: left, width: right - left, y: TOP, height: HEIGHT - TOP - BOTTOM};
        for (const [name, value] of Object.entries(area)) plot.querySelector(".zoom").setAttribute(name, value);
    });
    plot.addEventListener("pointerup", (event) => {
        const [left, right] = [start ?? xOf(event), xOf(event)].sort((a, b) => a - b);
        start = null;
        if (right - left > 6 && chart.stepAt) zoomTo(chart.stepAt(left), chart.stepAt(right));
    });
    plot.addEventListener("pointercancel", () => {
        start = null;
        draw(chart);
    });
    plot.addEventListener("pointerleave", () => hideTip(chart));
    plot.addEventListener("dblclick", () => zoomTo(-Infinity, Infinity));
    plot.addEventListener("blur", () => hideTip(chart));
    plot.addEventListener("keydown", (event) => useKey(chart, event));
}

function useKey(chart, event) {
    if (!chart.curves?.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const {x} = chart.curves[0], [first, last] = view || allSteps();
    const now = chart.cursor === null ? null : nearest(x, chart.cursor), middle = chart.cursor ?? (first + last) / 2;
    const ends = {Home: nearest(x, first), End: nearest(x, last)};
    const moves = {...ends, ArrowRight: now === null ? ends.Home : now + 1, ArrowLeft: now === null ? ends.End : now - 1};
    if (event.key in moves) {
        showTip(chart, x[Math.min(x.length - 1, Math.max(0, moves[event.key]))]);
    } else if (event.key === "+" || event.key === "-") {
        const half = (last - first) * (event.key === "+" ? 0.25 : 1);
        zoomTo(middle - half, middle + half);
        showTip(chart, middle);
    } else if (event.key === "Escape") {
        zoomTo(-Infinity, Infinity);
    } else {
        return;
    }
    event.preventDefault();
}

// A sentence for those who do not see the chart.
function inWords(spec, curves) {
    const texts = curves.map(({label, mean, run}) => {
        const known = mean.map((value, i) => [value, i]).filter(([value]) => value !== null);
        if (!known.length) return `${label}: no values`;
        const at = ([value, i]) => `${numberText(value)} at step ${run.points.last[i]}`;
        return `${label}: ${at(known[0])}, ${at(known.at(-1))}`;
    });
    return `${spec.title}. ${texts.join("; ")}. Arrow keys read values.`;
}

function legendOf(spec, curves, runs) {
    const marks = [];
    if (spec.marks && runs.some((run) => run.skipped.number)) marks.push("triangles below: skipped updates");
    if (spec.marks && runs.some((run) => run.num_nonfinite)) marks.push("triangles above: loss or norm not finite");
    return joined(curves, (curve) => `<li>${keyShape(curve)}${escaped(curve.label)}</li>`) +
        joined(marks, (text) => `<li>${text}</li>`);
}

// Adds no panel for a chart without values. Returns whether it added one.
function addChart(parent, spec, run) {
    const curves = spec.stack ? layersOf(run, spec.series) : curvesOf(spec);
    const isEmpty = spec.quiet ? (value) => !value : (value) => value === null;
    if (curves.every(({mean}) => mean.every(isEmpty))) return false;
    const card = document.createElement("div");
    card.className = spec.wide ? "card wide" : "card";
    const drawing = '<div class="plot" tabindex="0" role="group"><svg role="img"></svg>' +
        '<div class="tip" role="status" hidden></div></div>' +
        `<ul class="legend">${legendOf(spec, curves, spec.stack ? [run] : data.runs)}</ul>`;
    card.innerHTML = `<h3>${escaped(spec.title)}${spec.unit ? ` (${spec.unit})` : ""}</h3>${drawing}` +
        (spec.about ? `<p class="about">${spec.about}</p>` : "");
    parent.append(card);
    const plot = card.querySelector(".plot"), tip = card.querySelector(".tip");
    const chart = {spec, run, plot, tip, cursor: null, curves};
    plot.setAttribute("aria-label", inWords(spec, curves));
    plot.querySelector("svg").setAttribute("aria-label", spec.title);
    charts.push(chart);
    listen(chart);
    return true;
}

// A line that says which of the usual charts have no values, and why.
function addCurves(parent) {
    const without = [...CURVES, ...evaluationCurves()].filter((spec) => !addChart(parent, spec) && !spec.quiet);
    const text = without.map(({title, none}) => title + (none ? ` (${none})` : "")).join(", ");
    if (text) parent.insertAdjacentHTML("afterend", about(`No values: ${text}.`));
}

function addRun(run) {
    const section = document.createElement("section");
    section.className = "run";
    section.innerHTML = `<h2>${escaped(data.runs.length > 1 ? run.name : "Details")}</h2><div class="grid"></div>`;
    byId("details").append(section);
    const grid = section.lastElementChild;
    const isAxis = (key) => key.startsWith("time_ms.exposed."), times = keysOf(run, "time_ms.");
    const exposed = times.filter(isAxis).sort().map((key) => ({key, label: `exposed ${key.slice(16)}`}));
    const rest = times.filter((key) => !isAxis(key) && key !== "time_ms.total" && key !== "time_ms.compute")
        .map((key) => ({key, label: key.slice(8)}));
    const spec = {title: "Time of a step on rank 0", unit: "ms", stack: true, wide: true,
                  series: [{key: "time_ms.compute", label: "compute"}, ...exposed, ...rest],
                  about: "exposed: waits for, and transfers with, the ranks of these axes. " +
                         "Single long steps are cut off above."};
    const kinds = keysOf(run, "compute_kinds_ms.").map((key) => ({key, label: key.slice(17)}));
    const compute = {title: "Compute of a step on rank 0", unit: "ms", stack: true, wide: true, series: kinds,
                     about: "backward: gradients of the layers' inputs; weights: of their weights; head: with the loss."};
    if (run.num_steps) addChart(grid, spec, run);
    if (kinds.length) addChart(grid, compute, run);
    addTimeline(grid, run.traces);
    addRankTimes(grid, run.rank_times);
    addExperts(grid, run.experts);
    addMesh(grid, run.mesh);
    grid.insertAdjacentHTML("beforeend", cardsOf(run));
}

function start() {
    byId("made").textContent = `made ${data.generated}` +
        (document.querySelector('meta[http-equiv="refresh"]') ? "; reloads itself, because a run goes on" : "");
    byId("runs").className = "grid";
    const several = data.runs.length > 1;
    byId("runs").innerHTML = joined(data.runs, (run, r) => card(
        (several ? keyShape({colour: colour(r)}) : "") + escaped(run.folder), pairs(run.overview), !several)) + differencesCard();
    if (data.runs.every(({num_steps}) => num_steps === 0)) byId("charts").innerHTML = '<p class="notice">no step yet</p>';
    else addCurves(byId("charts"));
    data.runs.forEach(addRun);
    byId("reset").addEventListener("click", () => zoomTo(-Infinity, Infinity));
    for (const name of ["log", "share"]) {
        byId(name).addEventListener("change", (event) => {
            settings[name] = event.target.checked;
            drawAll();
        });
    }
    let width = 0;
    new ResizeObserver(() => {
        if (width !== document.body.clientWidth) {
            drawAll();
            pictures.forEach((drawAgain) => drawAgain());
        }
        width = document.body.clientWidth;
    }).observe(document.body);
    drawAll();
}
start();
