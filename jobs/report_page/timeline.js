// The timeline of a traced step: a row for each rank, a bar for each stretch of one kind of work. Python has reduced the
// bars (jobs/python/step_traces.py); a row's bars are [begin, length, kind, name] in us, one after another, and a negative name
// is the number of spans in the bar.
const ROW_FIELDS = 4;
const TIMELINE_LEFT = 66, TIMELINE_BOTTOM = 24;

const kindColour = (kind) => `var(--k${kind})`;
const msText = (us) => `${numberText(us / 1000)} ms`;

// The index in `bars` of the last bar that begins at or before `us`; -1 if there is none.
function barBefore(bars, us) {
    let low = -1, high = bars.length / ROW_FIELDS;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (bars[middle * ROW_FIELDS] <= us) low = middle;
        else high = middle;
    }
    return low;
}

function barAt({bars}, index) {
    const [begin, length, kind, name] = bars.slice(index * ROW_FIELDS, (index + 1) * ROW_FIELDS);
    return {begin, length, kind, name};
}

// The paths of all bars, one for each kind: thousands of shapes would be slow.
function barPaths(traces, [first, last], xAt, rowHeight) {
    const paths = traces.kinds.map(() => []);
    traces.rows.forEach(({bars}, r) => {
        const y = r * rowHeight + 1, height = rowHeight - 2;
        for (let i = 0; i < bars.length; i += ROW_FIELDS) {
            const begin = Math.max(bars[i], first), end = Math.min(bars[i] + bars[i + 1], last);
            if (begin > last || end < first) continue;
            const x = xAt(begin), width = Math.max(0.4, xAt(end) - x);
            paths[bars[i + 2]].push(`M${x.toFixed(2)} ${y}h${width.toFixed(2)}v${height}h-${width.toFixed(2)}z`);
        }
    });
    return joined(paths, (path, kind) => path.length ? `<path class="bar" fill="${kindColour(kind)}" d="${path.join("")}"/>` : "");
}

function drawTimeline(timeline) {
    const {traces, plot, view: steps} = timeline, width = Math.max(200, plot.clientWidth);
    const rowHeight = traces.rows.length > 16 ? 12 : 24, height = traces.rows.length * rowHeight + TIMELINE_BOTTOM;
    const [first, last] = steps, xAt = linear(first, last, TIMELINE_LEFT, width - RIGHT), bottom = height - TIMELINE_BOTTOM;
    const unit = last - first < 2000 ? 1 : 1000, name = unit === 1 ? "us" : "ms";
    const size = rowHeight > 12 ? "" : ' style="font-size:10px"';
    const labels = joined(traces.rows, ({rank}, r) =>
        `<text x="${TIMELINE_LEFT - 6}" y="${(r + 0.5) * rowHeight + 4}" text-anchor="end"${size}>rank ${rank}</text>`);
    const marks = joined(ticks(first / unit, last / unit, width < 500 ? 3 : 8), (tick) => {
        const x = place(xAt(tick * unit));
        return `<path class="axis" d="M${x} 0V${bottom}"/>` +
            `<text x="${x}" y="${height - 7}" text-anchor="middle">${numberText(tick, 6)} ${name}</text>`;
    });
    const svg = plot.querySelector("svg");
    svg.style.height = `${height}px`;
    svg.innerHTML = `${marks}${labels}${barPaths(traces, steps, xAt, rowHeight)}<path class="cross"/><rect class="zoom"/>`;
    Object.assign(timeline, {xAt, rowHeight, width, usAt: linear(TIMELINE_LEFT, width - RIGHT, first, last)});
    hideBar(timeline);
}

function hideBar(timeline) {
    timeline.tip.hidden = true;
    timeline.plot.querySelector(".cross")?.setAttribute("d", "");
}

// Says what a rank does at a moment.
function showBar(timeline, r, us) {
    const {traces, tip, plot, xAt, rowHeight, width} = timeline, row = traces.rows[r];
    if (!row) return hideBar(timeline);
    timeline.cursor = {r, us};
    const index = barBefore(row.bars, us), bar = index >= 0 ? barAt(row, index) : null;
    const lines = [`<b>rank ${row.rank}</b>, ${msText(us)} after the step's begin`];
    if (bar && us <= bar.begin + Math.max(bar.length, 1)) {
        lines.push(bar.name < 0 ? `${-bar.name} short spans, mostly:` : escaped(traces.names[bar.name]));
        lines.push(`<span class="swatch" style="background:${kindColour(bar.kind)}"></span>${escaped(traces.words[bar.kind])}, ${msText(bar.length)}`);
    } else {
        lines.push("nothing recorded: idle");
    }
    tip.innerHTML = joined(lines, (line) => `<div>${line}</div>`);
    tip.hidden = false;
    const x = xAt(us), onLeft = x > width / 2, y = (r + 1) * rowHeight + 4;
    tip.style.left = onLeft ? "" : `${x + 10}px`;
    tip.style.right = onLeft ? `${width - x + 10}px` : "";
    tip.style.top = `${y}px`;
    plot.querySelector(".cross").setAttribute("d", `M${place(x)} ${r * rowHeight}v${rowHeight}`);
}

function zoomTimeline(timeline, first, last) {
    const whole = timeline.traces.length_us;
    const from = Math.max(0, first), to = Math.min(whole, last);
    timeline.view = to - from < 5 ? [0, whole] : [from, to];
    drawTimeline(timeline);
}

function listenToTimeline(timeline) {
    const {plot} = timeline;
    let start = null;
    const at = (event) => {
        const box = plot.getBoundingClientRect();
        return [event.clientX - box.left, Math.floor((event.clientY - box.top) / timeline.rowHeight)];
    };
    plot.addEventListener("pointerdown", (event) => {
        start = at(event)[0];
        plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
        const [x, r] = at(event);
        if (x < TIMELINE_LEFT) hideBar(timeline);
        else showBar(timeline, r, Math.round(timeline.usAt(x)));
        if (start === null) return;
        const [left, right] = [start, x].sort((a, b) => a - b), zoom = plot.querySelector(".zoom");
        const area = {x: left, width: right - left, y: 0, height: timeline.traces.rows.length * timeline.rowHeight};
        for (const [name, value] of Object.entries(area)) zoom.setAttribute(name, value);
    });
    plot.addEventListener("pointerup", (event) => {
        const [left, right] = [start ?? at(event)[0], at(event)[0]].sort((a, b) => a - b);
        start = null;
        if (right - left > 6) zoomTimeline(timeline, timeline.usAt(left), timeline.usAt(right));
        else plot.querySelector(".zoom").removeAttribute("width");
    });
    plot.addEventListener("pointercancel", () => {
        start = null;
        drawTimeline(timeline);
    });
    for (const name of ["pointerleave", "blur"]) plot.addEventListener(name, () => hideBar(timeline));
    plot.addEventListener("dblclick", () => zoomTimeline(timeline, 0, Infinity));
    plot.addEventListener("keydown", (event) => useTimelineKey(timeline, event));
}

// Shows a bar that a key went to; the picture moves there if it does not have it.
function goToBar(timeline, r, us) {
    const {view: [first, last], traces: {length_us: whole}} = timeline;
    if (us < first || us > last) {
        const from = Math.max(0, Math.min(whole - (last - first), us - (last - first) / 2));
        zoomTimeline(timeline, from, from + last - first);
    }
    showBar(timeline, r, us);
}

function useTimelineKey(timeline, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const {traces, view: [first, last]} = timeline, {r, us} = timeline.cursor || {r: 0, us: first};
    const row = traces.rows[r], index = barBefore(row.bars, us), middle = timeline.cursor ? us : (first + last) / 2;
    const beginOf = (number) => row.bars[Math.max(0, Math.min(row.bars.length / ROW_FIELDS - 1, number)) * ROW_FIELDS] ?? 0;
    const moves = {ArrowRight: [r, beginOf(index + 1)], ArrowLeft: [r, beginOf(index - 1)], Home: [r, beginOf(0)],
                   End: [r, beginOf(Infinity)], ArrowUp: [Math.max(0, r - 1), us],
                   ArrowDown: [Math.min(traces.rows.length - 1, r + 1), us]};
    if (event.key in moves) {
        const isFirstArrow = !timeline.cursor && event.key.startsWith("Arrow");  // it shows where the picture begins
        goToBar(timeline, ...(isFirstArrow ? [0, Math.max(first, beginOf(0))] : moves[event.key]));
    } else if (event.key === "+" || event.key === "-") {
        const half = (last - first) * (event.key === "+" ? 0.25 : 1);
        zoomTimeline(timeline, middle - half, middle + half);
    } else if (event.key === "Escape") {
        zoomTimeline(timeline, 0, Infinity);
    } else {
        return;
    }
    event.preventDefault();
}

const hasBubble = ({rows}) => rows.some(({bubble}) => bubble !== null);

function timelineTable(traces) {
    const {rows, length_us} = traces, bubbles = hasBubble(traces);
    const share = (ms) => `${numberText(ms, 4)} ms, ${(100000 * ms / length_us).toFixed(1)} %`;
    const sum = (times, ...kinds) => kinds.reduce((total, kind) => total + (times[kind] || 0), 0);
    const heads = ["rank", "stages", "idle", ...(bubbles ? ["bubble"] : []), "forward", "backward", "optimizer", "transfers", "waits by axes"];
    return table(heads, rows.map(({rank, stages, times_ms, waits_ms, idle_ms, bubble}) => [
        rank, stages.join(", "), share(idle_ms),
        ...(bubbles ? [bubble === null ? "none" : `${(100 * bubble).toFixed(1)} %`] : []),
        share(sum(times_ms, "forward", "recompute")), share(sum(times_ms, "loss", "backward", "weights")),
        share(sum(times_ms, "optimizer")), share(sum(times_ms, "transfer")),
        Object.entries(waits_ms).map(([group, ms]) => `${group} ${numberText(ms)} ms`).join(", ")]));
}

function timelineWords(traces) {
    const {num_ranks, num_stages, rows} = traces;
    const which = num_stages > 1 ? `The first rank of each pipeline stage, of ${num_ranks} ranks`
        : rows.length < num_ranks ? `${rows.length} of ${num_ranks} ranks, evenly spread` : `All ${num_ranks} ranks`;
    const spans = rows.reduce((sum, row) => sum + row.num_spans, 0), bars = rows.reduce((sum, row) => sum + row.bars.length / ROW_FIELDS, 0);
    const gpu = traces.on_gpus ? " On GPUs a bar is the time in which the host queued the work, so the bubble is not known." : "";
    const bubble = hasBubble(traces) ? " Bubble: the share of the time from the first to the last operation on a microbatch in which " +
        "the rank waits for other stages or records nothing; after its own last microbatch all its waits count." : "";
    return `${which}; ${bars < spans ? `${bars} bars for ${spans} spans` : `${spans} spans`}. Idle: waits, and time without a span.${bubble}${gpu} ` +
        "Drag to zoom; double-click for the whole step. Keys: arrows go from bar to bar, + and - zoom, Escape shows all.";
}

function addTimeline(parent, traces) {
    if (!traces.step) return;
    const section = document.createElement("section");
    section.className = "card wide";
    section.innerHTML = `<h3>Timeline of step ${traces.step}</h3>`;
    parent.append(section);
    if (traces.error) {
        section.insertAdjacentHTML("beforeend", about(traces.error));
        return;
    }
    const used = traces.words.map((words, kind) => [words, kind])
        .filter(([, kind]) => traces.rows.some(({times_ms}) => times_ms[traces.kinds[kind]] > 1e-6 * traces.length_us));
    const legend = joined(used, ([words, kind]) => `<li><span class="swatch" style="background:${kindColour(kind)}"></span>${words}</li>`);
    const idle = traces.rows.map(({rank, idle_ms}) => `rank ${rank} is idle for ${numberText(idle_ms)} ms`).join("; ");
    section.innerHTML += '<div class="plot timeline" tabindex="0" role="group"><svg aria-hidden="true"></svg>' +
        `<div class="tip" role="status" hidden></div></div><ul class="legend">${legend}</ul>${about(timelineWords(traces))}${timelineTable(traces)}`;
    const plot = section.querySelector(".plot");
    plot.setAttribute("aria-label", `Timeline of step ${traces.step}, ${msText(traces.length_us)}. ${idle}. Arrow keys read the bars.`);
    const timeline = {traces, plot, tip: section.querySelector(".tip"), view: [0, traces.length_us], cursor: null};
    listenToTimeline(timeline);
    pictures.push(() => drawTimeline(timeline));
    drawTimeline(timeline);
}
