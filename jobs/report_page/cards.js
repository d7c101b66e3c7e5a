// Cards: what is known of a run, as tables, and the picture of its mesh.
const MAX_RANKS_SHOWN = 512;  // in the picture of the mesh

function table(heads, rows) {
    if (!rows.length) return "";
    const look = (value) => String(value).length > 40 ? ' class="long"' : "";
    const cell = (value) => `<td${look(value)}>${value?.html ?? escaped(value ?? "")}</td>`;
    return '<div class="scroll" tabindex="0"><table>' +
        `<thead><tr>${joined(heads, (head) => `<th scope="col">${escaped(head)}</th>`)}</tr></thead>` +
        `<tbody>${joined(rows, (row) => `<tr>${joined(row, cell)}</tr>`)}</tbody></table></div>`;
}

const about = (text) => text ? `<p class="about">${escaped(text)}</p>` : "";
const newestOf = (listed, number) => number > listed.length ? about(`the newest ${listed.length} of ${number}`) : "";

function card(title, content, isWide = false) {
    return content ? `<section class="card${isWide ? " wide" : ""}"><h3>${title}</h3>${content}</section>` : "";
}

function pairs(rows) {
    const pair = ([name, text]) => `<div><dt>${escaped(name)}</dt><dd>${escaped(text)}</dd></div>`;
    return rows.length ? `<dl>${joined(rows, pair)}</dl>` : "";
}

// The facts that pretrain recorded at each of its starts (starts.jsonl).
function startsTable({starts, num_starts}) {
    const axes = (mesh) => Object.entries(mesh || {}).map(([axis, degree]) => `${axis} ${degree}`).join(" x ");
    const heads = ["start of training", "steps", "ranks", "mesh", "device", "host", "version"];
    const rows = starts.slice().reverse().map((one) => [
        one.time, `${one.first_step} to ${one.last_step}`, one.ranks, axes(one.mesh), one.device, one.host, one.version]);
    return newestOf(starts, num_starts) + table(heads, rows);
}

function jobsCard(run) {
    const {jobs, num_jobs, num_aside} = run;
    const heads = ["time", "event", "outcome", "exit code", "newest saved step", "job", "restart", "ranks", "nodes"];
    const rows = jobs.slice().reverse().map((job) => [
        job.time, job.event, job.outcome, job.exit_code, job.newest_step, job.job,
        job.restart_inside ? `${job.restart}, ${job.restart_inside} inside` : job.restart, job.ranks, job.nodes]);
    const aside = num_aside ? `${num_aside} lines of steps that were trained again are in metrics.jsonl.aside` : "";
    const none = about("no jobs.jsonl: the run was not started by a job script");
    return card("Starts and ends",
                newestOf(jobs, num_jobs) + about(aside) + (table(heads, rows) || none) + startsTable(run), true);
}

function checkpointsCard({checkpoints: {number, listed}}) {
    const timeText = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
    const rows = listed.slice().reverse().map(({step, whole, time, bytes}) =>
        [step, whole ? "whole" : "partial", timeText(time), `${numberText(bytes)}B`]);
    const text = table(["step", "state", "time (UTC)", "size"], rows) || about("none");
    return card("Checkpoints", newestOf(listed, number) + text);
}

function skippedCard({skipped: {number, newest}, num_nonfinite}) {
    const heads = ["step", "cause", "loss", "norm", "z of loss", "z of norm", "samples"];
    const rows = newest.slice().reverse().map((one) => [
        one.step, one.cause, numberText(one.loss), numberText(one.grad_norm), numberText(one.loss_zscore, 3),
        numberText(one.grad_norm_zscore, 3),
        one.samples.join(", ") + (one.num_samples > one.samples.length ? ", ..." : "")]);
    const words = about(`${number} skipped updates; ${num_nonfinite} steps whose loss or norm was not finite`);
    return card("Skipped updates", words + newestOf(newest, number) + table(heads, rows), number > 0);
}

function warningsCard({warnings, logs}) {
    const level = (name) => ({html: `<span class="${name}">${name}</span>`});
    const rows = warnings.slice().reverse().map((one) => [
        one.time, level(one.level), one.count, one.ranks.join(", "), one.text]);
    const none = logs.length ? "none in the log" : "no log in the run's folder; name it with --log";
    return card("Warnings and errors of the log",
                table(["newest", "level", "times", "ranks", "text of the newest"], rows) || about(none), rows.length > 0);
}

function configCard({config, config_file, config_changes}) {
    const lines = Object.entries(config).map(([key, value]) => `${key} = ${value}`);
    const text = `<details><summary>${lines.length} keys</summary><pre>${escaped(lines.join("\n"))}</pre></details>`;
    const none = about("no effective.toml in the run's folder: pretrain writes it when it starts to train");
    const rows = config_changes.slice().reverse().map(({step, key, before, now}) => [step, key, before, now]);
    const changes = rows.length ? about("changed between starts:") + table(["from step", "key", "before", "now"], rows) : "";
    return card("Configuration", (lines.length ? about(config_file) + text : none) + changes, rows.length > 0);
}

function cardsOf(run) {
    return checkpointsCard(run) + card("Environment", pairs(run.environment)) + configCard(run) + skippedCard(run) +
        warningsCard(run) + jobsCard(run);
}

function differencesCard() {
    const runs = data.runs.filter(({config_file}) => config_file);
    const keys = [...new Set(runs.flatMap(({config}) => Object.keys(config)))];
    const rows = keys.map((key) => [key, ...runs.map(({config}) => config[key] ?? "unset")])
        .filter(([key, ...values]) => new Set(values).size > 1 && key !== "job.dump_folder");
    return card("Keys of the configuration that differ", table(["key", ...runs.map(({name}) => name)], rows), true);
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

// A row for each node, with its ranks coloured by their coordinate on `axis`, or, if it is "", by their speed in the
// pre-flight: red is the slowest.
function meshPicture({ranks, degrees, nodes, tera_flops}, axis) {
    const shown = Math.min(ranks, MAX_RANKS_SHOWN), known = nodes.length > 0 && ranks % nodes.length === 0;
    const perRow = known ? ranks / nodes.length : Math.min(ranks, 8), size = 34, left = known ? 92 : 8;
    const [slowest, fastest] = range(tera_flops, [0, 1]);
    const fill = (rank, at) => {
        if (axis !== "") return `hsl(${Math.round(at[axis] * 360 / degrees[axis] + 205) % 360} 60% 70%)`;
        return `hsl(${Math.round(120 * (tera_flops[rank] - slowest) / (fastest - slowest || 1))} 60% 62%)`;
    };
    let shapes = "";
    for (let rank = 0; rank < shown; ++rank) {
        const at = coordinates(rank, degrees), row = Math.floor(rank / perRow);
        const x = left + rank % perRow * size, y = row * size;
        const words = [`rank ${rank}`, ...Object.entries(at).map(([name, index]) => `${name} ${index}`)];
        if (known) words.push(nodes[row]);
        if (tera_flops.length) words.push(`${numberText(tera_flops[rank])} TFLOP/s in the pre-flight`);
        if (known && rank % perRow === 0) {
            shapes += `<text x="${left - 8}" y="${y + 21}" text-anchor="end">${escaped(nodes[row].slice(-12))}</text>`;
        }
        const place = `x="${x}" y="${y}" width="${size - 2}" height="${size - 2}" rx="4"`;
        shapes += `<g><title>${escaped(words.join(", "))}</title>` +
            `<rect class="cell" ${place} style="fill:${fill(rank, at)}"/>` +
            `<text class="number" x="${x + 16}" y="${y + 20}" text-anchor="middle">${rank}</text></g>`;
    }
    const extent = `width="${left + perRow * size}" height="${Math.ceil(shown / perRow) * size}"`;
    const picture = `<svg class="mesh" role="img" aria-label="ranks of the mesh" ${extent}>${shapes}</svg>`;
    return `<div class="scroll" tabindex="0">${picture}</div>` +
        (shown < ranks ? about(`the first ${shown} of ${ranks} ranks`) : "");
}

function addMesh(parent, mesh) {
    if (!mesh.ranks) return;
    const degrees = Object.keys(mesh.degrees).length ? mesh.degrees : {rank: mesh.ranks};
    const names = [...Object.keys(degrees), ...(mesh.tera_flops.length ? [""] : [])];
    const experts = mesh.experts > 1 ? `, ep ${mesh.experts}` : "";
    const words = Object.entries(mesh.degrees).map(([axis, degree]) => `${axis} ${degree}`).join(" x ") + experts;
    const button = (axis) => `<button type="button" data-axis="${axis}">${axis || "speed in the pre-flight"}</button>`;
    const section = document.createElement("section");
    section.className = "card";
    section.innerHTML = `<h3>Mesh</h3>${about(`${mesh.ranks} ranks${words ? `: ${words}` : ""}`)}` +
        `<p class="tools">${joined(names, button)}</p><div></div>`;
    parent.append(section);
    const buttons = [...section.querySelectorAll("button")];
    const show = (axis) => {
        section.lastElementChild.innerHTML = meshPicture({...mesh, degrees}, axis);
        buttons.forEach((one) => one.setAttribute("aria-pressed", one.dataset.axis === axis));
    };
    buttons.forEach((one) => one.addEventListener("click", () => show(one.dataset.axis)));
    show(names[0]);
}
