// The page: which charts there are, how people use them, and what is known of each run.
const CURVES = [
    {title: "Loss", unit: "nats", log: true, marks: true,
     series: [{key: "loss", label: "training"}], about: "mean over the step's valid tokens"},
    {title: "Validation loss", unit: "nats", log: true, sparse: true, none: "no step was validated (validation.enable)", series: [{key: "validation_loss", label: "held-out samples"}]},
    {title: "Gradient norm", log: true, marks: true, series: [{key: "grad_norm", label: "before clipping"}]},
    {title: "Learning rate", zero: true, series: [{key: "lr", label: "learning rate"}]},
    {title: "Throughput", unit: "tokens/s", zero: true, series: [{key: "tokens_per_second", label: "whole job"}]},
    {title: "Speed of a device", unit: "TFLOP/s", zero: true,
     series: [{key: "model_tflops_per_device", label: "model FLOP/s, causal formula"}]},
    {title: "MFU", unit: "%", zero: true, about: "model FLOP/s of a device over its peak", none: "no peak of this device is known",
     series: [{key: "mfu_causal", label: "causal formula", factor: 100}, {key: "mfu_noncausal", label: "non-causal formula", factor: 100}]},
    {title: "Memory of rank 0", unit: "GiB", zero: true,
     series: [{key: "memory_peak_gib", label: "peak of tensors"}, {key: "memory_reserved_gib", label: "reserved on the GPU"},
              {key: "rss_gib", label: "resident set of the process"}]},
    {title: "Skipped updates", zero: true, quiet: true, series: [{key: "skipped_updates", label: "since the run began"}]},
    {title: "Loss scale", log: true, quiet: true, series: [{key: "loss_scale", label: "loss scale"}]},
    {title: "Allocator retries", zero: true, quiet: true, series: [{key: "memory_retries", label: "since the process began"}]},
];
const PARTS = ["compute", "data", "optimizer", "checkpoint", "validation", "other"];
const AXES_SHOWN = 512;  // ranks in the picture of the mesh
const byId = (id) => document.getElementById(id);

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
    const zoom = () => plot.querySelector(".zoom");
    plot.addEventListener("pointerdown", (event) => {
        start = xOf(event);
        plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
        if (!chart.stepAt) return;
        showTip(chart, chart.stepAt(xOf(event)));
        if (start === null) return;
        const [left, right] = [start, xOf(event)].sort((a, b) => a - b);
        for (const [name, value] of Object.entries({x: left, width: right - left, y: TOP, height: HEIGHT - TOP - BOTTOM})) {
            zoom().setAttribute(name, value);
        }
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
    const moves = {ArrowRight: now === null ? nearest(x, first) : now + 1, ArrowLeft: now === null ? nearest(x, last) : now - 1,
                   Home: nearest(x, first), End: nearest(x, last)};
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
    return `${spec.title}. ` + curves.map(({label, mean, run}) => {
        const known = mean.map((value, i) => [value, i]).filter(([value]) => value !== null);
        if (!known.length) return `${label}: no values`;
        const [value, i] = known.at(-1);
        return `${label}: ${numberText(known[0][0])} at step ${run.points.first[known[0][1]]}, ${numberText(value)} at step ${run.points.last[i]}`;
    }).join("; ") + ". Arrow keys read values.";
}

function legendOf(spec, curves, runs) {
    const marks = [];
    if (spec.marks && runs.some((run) => run.skipped.number)) marks.push("triangles below: skipped updates");
    if (spec.marks && runs.some((run) => run.num_nonfinite)) marks.push("triangles above: loss or norm not finite");
    return curves.map((curve) => `<li>${keyShape(curve)}${escaped(curve.label)}</li>`).join("") + marks.map((text) => `<li>${text}</li>`).join("");
}

function addChart(parent, spec, run) {
    const curves = spec.stack ? layersOf(run, spec.series) : curvesOf(spec);
    if (spec.quiet && curves.every(({mean}) => mean.every((value) => !value))) return;
    const card = document.createElement("div");
    card.className = spec.wide ? "card wide" : "card";
    const unit = spec.unit ? ` (${spec.unit})` : "";
    card.innerHTML = `<h3>${escaped(spec.title)}${unit}</h3>` + (curves.length
        ? `<div class="plot" tabindex="0" role="group"><svg role="img"></svg><div class="tip" role="status" hidden></div></div>` +
          `<ul class="legend">${legendOf(spec, curves, spec.stack ? [run] : data.runs)}</ul>`
        : `<p class="notice">no values${spec.none ? `: ${spec.none}` : ""}</p>`) + (spec.about ? `<p class="about">${spec.about}</p>` : "");
    parent.append(card);
    if (!curves.length) return;
    const plot = card.querySelector(".plot"), chart = {spec, run, plot, tip: card.querySelector(".tip"), cursor: null, curves};
    plot.setAttribute("aria-label", inWords(spec, curves));
    plot.querySelector("svg").setAttribute("aria-label", spec.title);
    charts.push(chart);
    listen(chart);
}

function table(heads, rows) {
    if (!rows.length) return "";
    const cells = (row) => row.map((cell) => `<td${String(cell).length > 40 ? ' class="long"' : ""}>${cell?.html ?? escaped(cell ?? "")}</td>`).join("");
    return `<div class="scroll" tabindex="0"><table><thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join("")}</tr></thead>` +
        `<tbody>${rows.map((row) => `<tr>${cells(row)}</tr>`).join("")}</tbody></table></div>`;
}

function card(title, content, isWide = false) {
    return content ? `<section class="card${isWide ? " wide" : ""}"><h3>${title}</h3>${content}</section>` : "";
}

function pairs(rows) {
    return rows.length ? `<dl>${rows.map(([name, text]) => `<div><dt>${escaped(name)}</dt><dd>${escaped(text)}</dd></div>`).join("")}</dl>` : "";
}

function jobsCard(run) {
    const more = run.num_jobs > run.jobs.length ? `<p class="about">the newest ${run.jobs.length} of ${run.num_jobs}</p>` : "";
    const aside = run.num_aside ? `<p>${run.num_aside} lines of steps that were trained again are in metrics.jsonl.aside.</p>` : "";
    const rows = run.jobs.slice().reverse().map((job) => [job.time, job.event, job.outcome, job.exit_code, job.newest_step, job.job,
        job.restart_inside ? `${job.restart}, ${job.restart_inside} inside` : job.restart, job.ranks, job.nodes]);
    const starts = table(["time", "event", "outcome", "exit code", "newest saved step", "job", "restart", "ranks", "nodes"], rows);
    return card("Starts and ends", more + aside + (starts || "<p class='about'>no jobs.jsonl: the run was not started by a job script</p>"), true);
}

function checkpointsCard({checkpoints: {number, listed}}) {
    const rows = listed.slice().reverse().map(({step, whole, time, bytes}) =>
        [step, whole ? "whole" : "partial", new Date(time * 1000).toISOString().slice(0, 19).replace("T", " "), `${numberText(bytes)}B`]);
    const more = number > listed.length ? `<p class="about">the newest ${listed.length} of ${number}</p>` : "";
    return card("Checkpoints", rows.length ? more + table(["step", "state", "time (UTC)", "size"], rows) : '<p class="about">none</p>');
}

function skippedCard({skipped: {number, newest}, num_nonfinite}) {
    const score = (value) => value === null ? "none" : numberText(value, 3);
    const rows = newest.slice().reverse().map((one) => [one.step, one.cause, numberText(one.loss), numberText(one.grad_norm),
        score(one.loss_zscore), score(one.grad_norm_zscore), `${one.samples.join(", ")}${one.num_samples > one.samples.length ? ", ..." : ""}`]);
    const words = `<p class="about">${number} skipped updates; ${num_nonfinite} steps whose loss or norm was not finite</p>`;
    return card("Skipped updates", words + table(["step", "cause", "loss", "norm", "z of loss", "z of norm", "samples"], rows), number > 0);
}

function warningsCard({warnings, logs}) {
    const rows = warnings.slice().reverse().map((one) => [one.time, {html: `<span class="${one.level}">${one.level}</span>`}, one.count,
                                                       one.ranks.join(", "), one.text]);
    const none = logs.length ? "none in the log" : "no log in the run's folder; name it with --log";
    return card("Warnings and errors of the log", table(["newest", "level", "times", "ranks", "text of the newest"], rows) ||
                `<p class="about">${none}</p>`, rows.length > 0);
}

function configCard({config, config_file}) {
    const lines = Object.entries(config).map(([key, value]) => `${key} = ${value}`);
    return card("Configuration", lines.length
        ? `<p class="about">${escaped(config_file)}</p><details><summary>${lines.length} keys</summary><pre>${escaped(lines.join("\n"))}</pre></details>`
        : '<p class="about">no effective.toml in the run\'s folder (job scripts write it); name one with --config</p>');
}

function differencesCard() {
    const runs = data.runs.filter(({config_file}) => config_file);
    const keys = [...new Set(runs.flatMap(({config}) => Object.keys(config)))];
    const rows = keys.map((key) => [key, ...runs.map(({config}) => config[key] ?? "unset")])
        .filter(([key, ...values]) => new Set(values).size > 1 && key !== "job.dump_folder");
    return rows.length
        ? card("Keys of the configuration that differ", table(["key", ...runs.map(({name}) => escaped(name))], rows), true) : "";
}

// The coordinates of a rank: the last axis varies fastest.
function coordinates(rank, degrees) {
    const at = {};
    for (const [axis, degree] of Object.entries(degrees).reverse()) {
        at[axis] = rank % degree;
        rank = Math.floor(rank / degree);
    }
    return at;
}

// A row for each node, with its ranks coloured by their coordinate on `axis`, or by their speed in the pre-flight.
function meshPicture({ranks, degrees, nodes, tera_flops}, axis) {
    const shown = Math.min(ranks, AXES_SHOWN), known = nodes.length > 0 && ranks % nodes.length === 0;
    const perRow = known ? ranks / nodes.length : Math.min(ranks, 8), cell = 34, left = known ? 92 : 8;
    const [slowest, fastest] = range(tera_flops, [0, 1]);
    let shapes = "";
    for (let rank = 0; rank < shown; ++rank) {
        const at = coordinates(rank, degrees), x = left + rank % perRow * cell, y = Math.floor(rank / perRow) * cell;
        const speed = tera_flops.length ? tera_flops[rank] : null;
        const strength = fastest > slowest && speed !== null ? (speed - slowest) / (fastest - slowest) : 1;
        const fill = axis === "" ? `hsl(${Math.round(120 * strength)} 60% 62%)` : `hsl(${Math.round(at[axis] * 360 / degrees[axis] + 205) % 360} 60% 70%)`;
        const words = `rank ${rank}` + Object.entries(at).map(([name, index]) => `, ${name} ${index}`).join("") +
            (known ? `, ${nodes[Math.floor(rank / perRow)]}` : "") + (speed === null ? "" : `, ${numberText(speed)} TFLOP/s in the pre-flight`);
        if (known && rank % perRow === 0) shapes += `<text x="${left - 8}" y="${y + 21}" text-anchor="end">${escaped(nodes[rank / perRow].slice(-12))}</text>`;
        shapes += `<g><title>${escaped(words)}</title><rect class="cell" x="${x}" y="${y}" width="${cell - 2}" height="${cell - 2}" rx="4" style="fill:${fill}"/>` +
            `<text class="number" x="${x + 16}" y="${y + 20}" text-anchor="middle">${rank}</text></g>`;
    }
    const width = left + perRow * cell, height = Math.ceil(shown / perRow) * cell;
    return `<div class="scroll" tabindex="0"><svg class="mesh" role="img" aria-label="ranks of the mesh" width="${width}" height="${height}">${shapes}</svg></div>` +
        (shown < ranks ? `<p class="about">the first ${shown} of ${ranks} ranks</p>` : "");
}

function addMesh(parent, mesh) {
    if (!mesh.ranks) return;
    const axes = Object.keys(mesh.degrees), section = document.createElement("section");
    const names = [...axes, ...(mesh.tera_flops.length ? [""] : [])];
    const words = axes.map((axis) => `${axis} ${mesh.degrees[axis]}`).join(" x ") || "no axis of more than one rank is known";
    section.className = "card";
    section.innerHTML = `<h3>Mesh</h3><p class="about">${mesh.ranks} ranks: ${words}</p><p class="tools">` +
        names.map((axis) => `<button type="button" data-axis="${axis}">${axis || "speed in the pre-flight"}</button>`).join("") + "</p><div></div>";
    parent.append(section);
    const buttons = [...section.querySelectorAll("button")];
    const show = (axis) => {
        section.lastElementChild.innerHTML = meshPicture(axes.length || axis === "" ? mesh : {...mesh, degrees: {all: 1}}, axis);
        buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.axis === axis));
    };
    buttons.forEach((button) => button.addEventListener("click", () => show(button.dataset.axis)));
    show(names[0] ?? "all");
}

function addRun(run) {
    const section = document.createElement("section");
    section.className = "run";
    section.innerHTML = `<h2>${escaped(data.runs.length > 1 ? run.name : "Details")}</h2><div class="grid"></div>`;
    byId("details").append(section);
    const grid = section.lastElementChild;
    const axes = Object.keys(run.points.series).filter((key) => key.startsWith("time_ms.exposed.")).sort();
    const [compute, ...rest] = PARTS.map((name) => ({key: `time_ms.${name}`, label: name}));
    const exposed = axes.map((key) => ({key, label: `exposed ${key.slice(16)}`}));
    if (run.num_steps) addChart(grid, {title: "Time of a step on rank 0", unit: "ms", stack: true, wide: true, series: [compute, ...exposed, ...rest],
                    about: "exposed: waits for, and transfers with, the ranks of these axes. Single long steps are cut off above."}, run);
    addMesh(grid, run.mesh);
    grid.insertAdjacentHTML("beforeend", checkpointsCard(run) + card("Environment", pairs(run.environment)) + configCard(run) +
        skippedCard(run) + warningsCard(run) + jobsCard(run));
}

function start() {
    byId("made").textContent = `made ${data.generated}` +
        (document.querySelector('meta[http-equiv="refresh"]') ? "; reloads itself, because a run goes on" : "");
    byId("runs").className = "grid";
    byId("runs").innerHTML = data.runs.map((run, r) => `<section class="${data.runs.length > 1 ? "card" : "card wide"}"><h3>${data.runs.length > 1
        ? keyShape({colour: colour(r)}) : ""}${escaped(run.folder)}</h3>${pairs(run.overview)}</section>`).join("") +
        differencesCard();
    if (data.runs.every(({num_steps}) => num_steps === 0)) byId("charts").innerHTML = '<p class="notice">no step yet</p>';
    else CURVES.forEach((spec) => addChart(byId("charts"), spec));
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
        if (width !== document.body.clientWidth) drawAll();
        width = document.body.clientWidth;
    }).observe(document.body);
    drawAll();
}
start();
