// Charts over steps as SVG text: curves with bands from minimum to maximum, and stacked areas. All charts show the same
// steps. A chart is {spec, run (of a stack), plot, tip, cursor}; `spec` says which series it draws (page.js).
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const HEIGHT = 230, LEFT = 58, RIGHT = 22, TOP = 12, BOTTOM = 24;
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const NUM_COLOURS = 12;
const charts = [];
const pictures = [];  // functions that draw the timelines and heat maps, which do not follow the steps of the charts
let view = null;  // first and last step that the charts show; null: all
const settings = {log: false, share: false};

const ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};
const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => ESCAPES[sign]);
const colour = (index) => `var(--c${index % NUM_COLOURS})`;
const place = (value) => value.toFixed(1);
const joined = (list, write) => list.map(write).join("");

// 12345678 as 12.35M, 0.00012345 as 0.0001235, 0.00000012 as 1.2e-7; a null as "none".
function numberText(value, digits = 4) {
    if (value === null || value === undefined) return "none";
    const size = Math.abs(value);
    for (const [limit, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
        if (size >= limit) return `${Number((value / (limit === 1e4 ? 1e3 : limit)).toPrecision(digits))}${suffix}`;
    }
    if (size !== 0 && size < 1e-6) return value.toExponential(2).replace(/\.?0+e/, "e");
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
        const under = below;
        below = above;
        return {label, run, colour: colour(s), x: middles(run.points), mean: own, below: under, above, totals, known};
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
    const isShown = (value, i) => value !== null && x[i] >= first && x[i] <= last;
    return columns.flatMap((values) => values ? values.filter(isShown) : []);
}

function yAxis(chart) {
    const {spec, curves} = chart, isLog = spec.log && settings.log, steps = stepsOf(chart);
    let values = [];
    if (spec.stack) {  // a few long steps (the first one, a save) would flatten all others, and are cut off
        const totals = curves.length ? visible(steps, curves[0].x, curves.at(-1).above).sort((a, b) => a - b) : [];
        const typical = totals[Math.floor(0.97 * (totals.length - 1))] || 1;
        values = [0, settings.share ? 100 : Math.min(totals.at(-1) || 1, 1.2 * typical)];
    } else {
        values = curves.flatMap((curve) => visible(steps, curve.x, curve.mean, curve.min, curve.max));
    }
    if (isLog) values = values.filter((value) => value > 0);
    if (spec.zero) values.push(0);
    let [low, high] = range(values, [isLog ? 0.1 : 0, 1]);
    if (low === high) {
        const half = Math.abs(low) / 2 || 0.5;
        [low, high] = isLog ? [low / 2, high * 2] : [low - half, high + half];
    }
    if (isLog) {
        const at = linear(Math.log10(low) - 0.02, Math.log10(high) + 0.02, HEIGHT - BOTTOM, TOP);
        return {at: (value) => value > 0 ? at(Math.log10(value)) : null, ticks: logTicks(low, high)};
    }
    const room = 0.04 * (high - low), below = spec.stack || spec.zero ? 0 : room, above = spec.stack ? 0 : room;
    return {at: linear(low - below, high + above, HEIGHT - BOTTOM, TOP), ticks: ticks(low, high, 5)};
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
    const mean = on(curve.mean), min = on(curve.min), max = on(curve.max);
    const style = `stroke="${curve.colour}" stroke-dasharray="${curve.dash}"`;
    stretches(mean, spec.sparse, (own) => {
        const xs = own.map((i) => xAt(curve.x[i])), ys = own.map((i) => mean[i]);
        if (min && !spec.sparse && own.length > 1) {
            const low = own.map((i) => min[i] ?? HEIGHT - BOTTOM);
            shapes += `<path class="band" fill="${curve.colour}" d="${pathOf(xs, own.map((i) => max[i]))}` +
                `${pathOf(xs.slice().reverse(), low.reverse()).replace("M", "L")}Z"/>`;
        }
        if (own.length > 1) shapes += `<path class="curve" ${style} d="${pathOf(xs, ys)}"/>`;
        if (own.length === 1 || spec.sparse && own.length < 60) {
            shapes += joined(xs, (x, k) => `<circle cx="${place(x)}" cy="${place(ys[k])}" r="3" fill="${curve.colour}"/>`);
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
    const isInside = ([, y]) => y !== null && y >= TOP - 1 && y <= HEIGHT - BOTTOM + 1;
    const rows = yTicks.map((tick) => [tick, yAt(tick)]).filter(isInside);
    const label = (x, y, anchor, text) => `<text x="${place(x)}" y="${place(y)}" text-anchor="${anchor}">${text}</text>`;
    return joined(rows, ([tick, y]) => `<path class="axis" d="M${LEFT} ${place(y)}H${width - RIGHT}"/>` +
                  label(LEFT - 6, y + 4, "end", numberText(tick) + unit)) +
        label(4, HEIGHT - 7, "start", "step") +
        joined(xTicks, (tick) => label(xAt(tick), HEIGHT - 7, "middle", numberText(tick, 6)));
}

const restartColour = (run) => data.runs.length > 1 ? colour(data.runs.indexOf(run)) : "var(--faint)";

// Starts of the run, skipped updates (below), and steps that were not finite (above).
function markShapes(spec, runs, xAt, width) {
    const inside = (step) => xAt(step) >= LEFT && xAt(step) <= width - RIGHT;
    const triangle = (x, y, height) => `<path class="mark" d="M${place(x)} ${y}l-4 ${height}h8z"/>`;
    const marks = (steps, write) => joined(steps.filter(inside), (step) => write(xAt(step)));
    return joined(runs, (run) => {
        const style = `style="stroke:${restartColour(run)}"`;
        const path = (x) => `d="M${place(x)} ${TOP}V${HEIGHT - BOTTOM}"`;
        const lines = marks(run.restarts, (x) => `<path class="restart" ${style} ${path(x)}/>`);
        if (!spec.marks) return lines;
        return lines + marks(run.skipped.steps, (x) => triangle(x, HEIGHT - BOTTOM - 8, 8)) +
            marks(run.nonfinite, (x) => triangle(x, TOP + 8, -8));
    });
}

// A piece of the curve, for legends.
function keyShape({colour: stroke, dash = ""}) {
    const line = `<path d="M0 5H24" stroke="${stroke}" stroke-width="4" stroke-dasharray="${dash}"/>`;
    return `<svg class="key" aria-hidden="true">${line}</svg>`;
}

function draw(chart) {
    const {spec, plot} = chart, width = Math.max(200, plot.clientWidth);
    chart.curves = spec.stack ? layersOf(chart.run, spec.series) : curvesOf(spec);
    if (!chart.curves.length) return;
    let [first, last] = stepsOf(chart);
    if (first === last) [first, last] = [first - 1, last + 1];
    const xAt = linear(first, last, LEFT, width - RIGHT), {at, ticks: yTicks} = yAxis(chart);
    const xTicks = ticks(first, last, width < 420 ? 4 : 7).filter(Number.isInteger);
    const shapesOf = (curve) => spec.stack ? layerShapes(curve, xAt, at) : curveShapes(curve, spec, xAt, at);
    const shapes = joined(chart.curves, shapesOf);
    const clip = `clip-${charts.indexOf(chart)}`, unit = spec.stack && settings.share ? " %" : "";
    const area = `x="${LEFT}" y="${TOP}" width="${width - RIGHT - LEFT}" height="${HEIGHT - TOP - BOTTOM}"`;
    plot.querySelector("svg").innerHTML = `<defs><clipPath id="${clip}"><rect ${area}/></clipPath></defs>` +
        axisShapes(yTicks, unit, at, xTicks, xAt, width) + `<g clip-path="url(#${clip})">${shapes}</g>` +
        markShapes(spec, spec.stack ? [chart.run] : data.runs, xAt, width) + '<path class="cross"/><rect class="zoom"/>';
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
    const lines = joined(curves, (curve) => {
        const i = nearest(curve.x, step), value = curve.mean[i];
        const text = [`${escaped(curve.label)} ${numberText(value, 6)}`];
        if (value !== null && spec.unit) text.push(` ${spec.unit}`);
        if (spec.stack && curve.totals[i]) text.push(`, ${(100 * (value || 0) / curve.totals[i]).toFixed(1)} %`);
        if (curve.min && value !== null) text.push(` (${numberText(curve.min[i])} to ${numberText(curve.max[i])})`);
        return `<div>${keyShape(curve)}${text.join("")}</div>`;
    });
    const {points} = curves[0].run, i = nearest(curves[0].x, step), x = chart.xAt(curves[0].x[i]);
    const first = points.first[i], last = points.last[i];
    chart.tip.innerHTML = `<div><b>${first === last ? `step ${first}` : `steps ${first} to ${last}, means`}</b></div>${lines}`;
    chart.tip.hidden = false;
    const onLeft = x > chart.width / 2;
    chart.tip.style.left = onLeft ? "" : `${x + 10}px`;
    chart.tip.style.right = onLeft ? `${chart.width - x + 10}px` : "";
    chart.plot.querySelector(".cross").setAttribute("d", `M${place(x)} ${TOP}V${HEIGHT - BOTTOM}`);
}
