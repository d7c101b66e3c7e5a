// Charts over steps as SVG text: curves with bands from minimum to maximum, and stacked areas. All charts show the same
// steps. A chart is {spec, run (of a stack), plot, tip, cursor}; `spec` says which series it draws (page.js).
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const HEIGHT = 230, LEFT = 58, RIGHT = 22, TOP = 12, BOTTOM = 24;
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const NUM_COLOURS = 12;
const charts = [];
let view = null;  // first and last step that the charts show; null: all
const settings = {log: false, share: false};

const ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};
const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => ESCAPES[sign]);
const colour = (index) => `var(--c${index % NUM_COLOURS})`;
const place = (value) => value.toFixed(1);

// 12345678 as 12.35M, 0.00012 as 1.2e-4; a null as "none".
function numberText(value, digits = 4) {
    if (value === null || value === undefined) return "none";
    const size = Math.abs(value);
    for (const [limit, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
        if (size >= limit) return `${Number((value / (limit === 1e4 ? 1e3 : limit)).toPrecision(digits))}${suffix}`;
    }
    if (size !== 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
    return String(Number(value.toPrecision(digits)));
}

function middles(points) {
    return points.first.map((first, i) => (first + points.last[i]) / 2);
}

function scaled(values, factor) {
    return values && (factor === 1 ? values : values.map((value) => value === null ? null : value * factor));
}

// The curves of a chart. One run: a colour for each series. Several: a colour for each run, a dash for each series.
function curvesOf(spec) {
    const curves = [], several = data.runs.length > 1;
    data.runs.forEach((run, r) => spec.series.forEach(({key, label, factor = 1}, s) => {
        const values = run.points.series[key];
        if (!values) return;
        const look = several ? r : s;
        curves.push({label: several ? `${run.name}${spec.series.length > 1 ? `, ${label}` : ""}` : label, run,
                     colour: colour(look), dash: several ? DASHES[s % 4] : DASHES[Math.floor(look / NUM_COLOURS) % 4],
                     x: middles(run.points), mean: scaled(values.mean, factor), min: scaled(values.min, factor),
                     max: scaled(values.max, factor)});
    }));
    return curves;
}

// The layers of a stack: each with its own values, and the sums below and above it. An unknown value counts as 0.
function layersOf(run, parts) {
    const present = parts.filter(({key}) => run.points.series[key]);
    const known = run.points.first.map((_, i) => present.some(({key}) => run.points.series[key].mean[i] !== null));
    let below = run.points.first.map(() => 0);
    const totals = below.map((_, i) => present.reduce((sum, {key}) => sum + (run.points.series[key].mean[i] || 0), 0));
    return present.map(({key, label}, s) => {
        const own = run.points.series[key].mean.map((value, i) => known[i] ? value || 0 : null);
        const shown = own.map((value, i) => settings.share ? 100 * (value || 0) / (totals[i] || 1) : value || 0);
        const above = below.map((value, i) => value + shown[i]);
        const layer = {label, run, colour: colour(s), x: middles(run.points), mean: own, shown, below, above, totals, known};
        below = above;
        return layer;
    });
}

function linear(low, high, from, to) {
    return (value) => from + (value - low) / (high - low || 1) * (to - from);
}

function ticks(low, high, number) {
    const rough = (high - low) / number, power = 10 ** Math.floor(Math.log10(rough || 1));
    const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) || 10);
    const found = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
        found.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
    }
    return found;
}

function logTicks(low, high) {
    if (high < 10 * low) return ticks(low, high, 5);
    const found = [], wide = high > 100 * low;
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
        for (const factor of wide ? [1] : [1, 2, 5]) {
            if (factor * power >= low && factor * power <= high) found.push(factor * power);
        }
    }
    return found;
}

function range(values, fallback) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
        if (value < low) low = value;
        if (value > high) high = value;
    }
    return low <= high ? [low, high] : fallback;
}

function allSteps(runs = data.runs) {
    return range(runs.flatMap(({points}) => points.first.length ? [points.first[0], points.last.at(-1)] : []), [0, 1]);
}

// The steps that a chart shows; a stack shows one run.
const stepsOf = (chart) => view || allSteps(chart.spec.stack ? [chart.run] : data.runs);

// The values within these steps, of which the y axis is made.
function visible([first, last], x, ...columns) {
    return columns.flatMap((values) => values ? values.filter((value, i) => value !== null && x[i] >= first && x[i] <= last) : []);
}

function yAxis(chart) {
    const {spec, curves} = chart, isLog = spec.log && settings.log, steps = stepsOf(chart);
    let values = curves.flatMap((curve) => visible(steps, curve.x, ...(spec.stack ? [] : [curve.mean, curve.min, curve.max])));
    if (spec.stack) {  // a few long steps (the first one, a save) would flatten all others, and are cut off
        const totals = curves.length ? visible(steps, curves[0].x, curves.at(-1).above).sort((a, b) => a - b) : [];
        const typical = totals[Math.floor(0.97 * (totals.length - 1))] || 1;
        values = [0, settings.share ? 100 : Math.min(totals.at(-1) || 1, 1.2 * typical)];
    }
    if (isLog) values = values.filter((value) => value > 0);
    if (spec.zero) values.push(0);
    let [low, high] = range(values, [isLog ? 0.1 : 0, 1]);
    if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    if (isLog) {
        const at = linear(Math.log10(low) - 0.02, Math.log10(high) + 0.02, HEIGHT - BOTTOM, TOP);
        return {at: (value) => value > 0 ? at(Math.log10(value)) : null, ticks: logTicks(low, high)};
    }
    const room = spec.stack || spec.zero ? 0 : 0.04 * (high - low);
    return {at: linear(low - room, high + (spec.stack ? 0 : 0.04 * (high - low)), HEIGHT - BOTTOM, TOP), ticks: ticks(low, high, 5)};
}

// Calls `draw` with the indices of each stretch of known values; a sparse curve has one stretch.
function stretches(values, isSparse, draw) {
    let open = [];
    values.forEach((value, i) => {
        if (value !== null) open.push(i);
        else if (!isSparse && open.length) {
            draw(open);
            open = [];
        }
    });
    if (open.length) draw(open);
}

function pathOf(xs, ys) {
    return xs.map((x, i) => `${i ? "L" : "M"}${place(x)} ${place(ys[i])}`).join("");
}

function curveShapes(curve, spec, xAt, yAt) {
    let shapes = "";
    const on = (values) => values && values.map((value) => value === null ? null : yAt(value));
    const mean = on(curve.mean), min = on(curve.min), max = on(curve.max), style = `stroke="${curve.colour}" stroke-dasharray="${curve.dash}"`;
    stretches(mean, spec.sparse, (own) => {
        const xs = own.map((i) => xAt(curve.x[i])), ys = own.map((i) => mean[i]);
        if (min && !spec.sparse && own.length > 1) {
            const low = own.map((i) => min[i] ?? HEIGHT - BOTTOM);
            shapes += `<path class="band" fill="${curve.colour}" d="${pathOf(xs, own.map((i) => max[i]))}` +
                `${pathOf(xs.slice().reverse(), low.reverse()).replace("M", "L")}Z"/>`;
        }
        if (own.length > 1) shapes += `<path class="curve" ${style} d="${pathOf(xs, ys)}"/>`;
        if (own.length === 1 || spec.sparse && own.length < 60) {
            shapes += own.map((_, k) => `<circle cx="${place(xs[k])}" cy="${place(ys[k])}" r="3" fill="${curve.colour}"/>`).join("");
        }
    });
    return shapes;
}

function layerShapes(layer, xAt, yAt) {
    let shapes = "";
    stretches(layer.known.map((is) => is ? 1 : null), false, (own) => {
        const ends = own.length > 1 ? own : [own[0], own[0]];
        const xs = ends.map((i, k) => xAt(layer.x[i]) + (own.length > 1 ? 0 : 6 * k - 3));
        const backwards = ends.map((i) => yAt(layer.below[i])).reverse();
        shapes += `<path class="layer" fill="${layer.colour}" d="${pathOf(xs, ends.map((i) => yAt(layer.above[i])))}` +
            `${pathOf(xs.slice().reverse(), backwards).replace("M", "L")}Z"/>`;
    });
    return shapes;
}

function axisShapes(yTicks, unit, yAt, xTicks, xAt, width) {
    const rows = yTicks.map((tick) => [tick, yAt(tick)]).filter(([, y]) => y !== null && y >= TOP - 1 && y <= HEIGHT - BOTTOM + 1);
    return rows.map(([tick, y]) => `<path class="axis" d="M${LEFT} ${place(y)}H${width - RIGHT}"/>` +
        `<text x="${LEFT - 6}" y="${place(y + 4)}" text-anchor="end">${numberText(tick)}${unit}</text>`).join("") +
        xTicks.map((tick) => `<text x="${place(xAt(tick))}" y="${HEIGHT - 7}" text-anchor="middle">${numberText(tick, 6)}</text>`).join("");
}

const restartColour = (run) => data.runs.length > 1 ? colour(data.runs.indexOf(run)) : "var(--faint)";

// Starts of the run, skipped updates (below), and steps that were not finite (above).
function markShapes(spec, runs, xAt, width) {
    const inside = (step) => xAt(step) >= LEFT && xAt(step) <= width - RIGHT;
    const triangle = (x, y, height) => `<path class="mark" d="M${place(x)} ${y}l-4 ${height}h8z"/>`;
    return runs.map((run) =>
        run.restarts.filter(inside).map((step) => `<path class="restart" style="stroke:${restartColour(run)}" d="M${place(xAt(step))} ${TOP}V${HEIGHT - BOTTOM}"/>`).join("") +
        (spec.marks ? run.skipped.steps.filter(inside).map((step) => triangle(xAt(step), HEIGHT - BOTTOM - 8, 8)).join("") +
                      run.nonfinite.filter(inside).map((step) => triangle(xAt(step), TOP + 8, -8)).join("") : "")).join("");
}

// A piece of the curve, for legends.
function keyShape({colour: stroke, dash = ""}) {
    return `<svg class="key" aria-hidden="true"><path d="M0 5H24" stroke="${stroke}" stroke-width="4" stroke-dasharray="${dash}"/></svg>`;
}

function draw(chart) {
    const {spec, plot} = chart, width = Math.max(200, plot.clientWidth);
    chart.curves = spec.stack ? layersOf(chart.run, spec.series) : curvesOf(spec);
    if (!chart.curves.length) return;
    let [first, last] = stepsOf(chart);
    if (first === last) [first, last] = [first - 1, last + 1];
    const xAt = linear(first, last, LEFT, width - RIGHT), {at, ticks: yTicks} = yAxis(chart);
    const xTicks = ticks(first, last, width < 420 ? 4 : 7).filter(Number.isInteger);
    const shapes = chart.curves.map((curve) => spec.stack ? layerShapes(curve, xAt, at) : curveShapes(curve, spec, xAt, at));
    const clip = `clip-${charts.indexOf(chart)}`;
    plot.querySelector("svg").innerHTML =
        `<defs><clipPath id="${clip}"><rect x="${LEFT}" y="${TOP}" width="${width - RIGHT - LEFT}" height="${HEIGHT - TOP - BOTTOM}"/></clipPath></defs>` +
        axisShapes(yTicks, spec.stack && settings.share ? " %" : "", at, xTicks, xAt, width) + `<g clip-path="url(#${clip})">${shapes.join("")}</g>` +
        markShapes(spec, spec.stack ? [chart.run] : data.runs, xAt, width) + '<path class="cross"/><rect class="zoom" y="0" height="0"/>';
    chart.xAt = xAt;
    chart.stepAt = linear(LEFT, width - RIGHT, first, last);
    chart.width = width;
}

function drawAll() {
    document.getElementById("reset").disabled = view === null;
    charts.forEach((chart) => {
        draw(chart);
        hideTip(chart);
    });
}

function nearest(x, step) {
    let low = 0, high = x.length - 1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (x[middle] < step) low = middle;
        else high = middle;
    }
    return high > 0 && Math.abs(x[high] - step) < Math.abs(x[low] - step) ? high : low;
}

function hideTip(chart) {
    chart.cursor = null;
    chart.tip.hidden = true;
    chart.plot.querySelector(".cross")?.setAttribute("d", "");
}

// The values at a step: of each curve those of its nearest point.
function showTip(chart, step) {
    const {spec, curves} = chart;
    if (!curves || !curves.length) return;
    chart.cursor = step;
    const lines = curves.map((curve) => {
        const i = nearest(curve.x, step), unit = spec.unit ? ` ${spec.unit}` : "";
        const spread = curve.min && curve.mean[i] !== null ? ` (${numberText(curve.min[i])} to ${numberText(curve.max[i])})` : "";
        const share = spec.stack && curve.totals[i] ? `, ${(100 * (curve.mean[i] || 0) / curve.totals[i]).toFixed(1)} %` : "";
        return `<div>${keyShape(curve)}${escaped(curve.label)} ` +
            `${numberText(curve.mean[i], 6)}${curve.mean[i] === null ? "" : unit}${share}${spread}</div>`;
    });
    const {points} = curves[0].run, i = nearest(curves[0].x, step), x = chart.xAt(curves[0].x[i]);
    const steps = points.first[i] === points.last[i] ? `step ${points.first[i]}` : `steps ${points.first[i]} to ${points.last[i]}, means`;
    chart.tip.innerHTML = `<div><b>${steps}</b></div>${lines.join("")}`;
    chart.tip.hidden = false;
    const onLeft = x > chart.width / 2;
    chart.tip.style.left = onLeft ? "" : `${x + 10}px`;
    chart.tip.style.right = onLeft ? `${chart.width - x + 10}px` : "";
    chart.plot.querySelector(".cross").setAttribute("d", `M${place(x)} ${TOP}V${HEIGHT - BOTTOM}`);
}
