// The times of all ranks over the steps as a heat map (jobs/python/rank_times.py): a row for each rank, a column for one or
// several windows of steps. A cell is one byte: 0 is unknown, 1 + LEVELS is the median, 1 and 1 + 2 * LEVELS are the limits.
const LEVELS = 127;
const MEASURES = {
    compute: {title: "compute", of: "the median compute time", sign: "%", slowest: "The slowest ranks"},
    data: {title: "waits for data", of: "the median step", sign: "% of the median step", slowest: "The ranks that wait most for their data"},
    exposed: {title: "exposed communication", of: "the median step", sign: "% of the median step",
              slowest: "The ranks with the least exposed communication, which the others wait for"}};
const MAP_BOTTOM = 22, MIN_ROW_PIXELS = 1.4, MAX_ROW_PIXELS = 18, MAX_MAP_PIXELS = 520;

const percentText = (value) => value === null ? "unknown" : `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))} %`;

// The difference of a cell's byte from the median in words; a byte at the end may stand for more if values were cut off.
function differenceText(byte, {limit, is_cut}, sign) {
    const levels = byte - 1 - LEVELS, size = Number((limit * Math.abs(levels) / LEVELS).toPrecision(3));
    if (levels === 0) return "as the median";
    return `${is_cut && Math.abs(levels) === LEVELS ? "at least " : ""}${size} ${sign} ${levels > 0 ? "more" : "less"} than the median`;
}

function rgbOf(name) {
    const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

// The colour of each byte: from the median to the end of the colours in equal steps of percent; 0 is transparent.
function coloursOf({limit, scale}) {
    const low = rgbOf("--low"), middle = rgbOf("--median"), high = rgbOf("--high");
    return Array.from({length: 2 * LEVELS + 2}, (_, byte) => {
        if (byte === 0) return [0, 0, 0, 0];
        const percent = limit * (byte - 1 - LEVELS) / LEVELS, part = Math.min(1, Math.abs(percent) / scale);
        const end = percent < 0 ? low : high;
        return [...middle.map((value, i) => Math.round(value + part * (end[i] - value))), 255];
    });
}

function paintCells(canvas, cells, colours, columns, rows) {
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let i = 0; i < cells.length; ++i) image.data.set(colours[cells[i]], 4 * i);
    context.putImageData(image, 0, 0);
}

// Names of hosts beside their rows; those that would overlap are left out.
function hostLabels({hosts}, rowPixels, left) {
    let shapes = "", lowest = -Infinity;
    hosts.forEach((host, row) => {
        if (row > 0 && hosts[row - 1] === host) return;
        const end = hosts.findIndex((other, at) => at > row && other !== host);
        const middle = Math.max(8, ((row + (end < 0 ? hosts.length : end)) / 2) * rowPixels);
        if (middle - lowest < 13) return;
        lowest = middle;
        const name = host.length > 10 ? `...${host.slice(-8)}` : host;
        shapes += `<text x="${left - 6}" y="${place(middle + 4)}" text-anchor="end">${escaped(name)}</text>`;
    });
    return shapes;
}

const stepsOfColumn = ({first_step, steps_of_column}, column) =>
    [first_step + column * steps_of_column, first_step + (column + 1) * steps_of_column - 1];

function drawMap(map) {
    const {times, plot, measure} = map, {num_rows: rows, num_columns: columns} = times, width = Math.max(200, plot.clientWidth);
    const rowPixels = Math.max(MIN_ROW_PIXELS, Math.min(MAX_ROW_PIXELS, MAX_MAP_PIXELS / rows)), height = Math.round(rows * rowPixels);
    const left = 82, cellPixels = (width - left - RIGHT) / columns, canvas = plot.querySelector("canvas"), svg = plot.querySelector("svg");
    const [first] = stepsOfColumn(times, 0), [, last] = stepsOfColumn(times, columns - 1);
    const xAt = linear(first - 0.5, last + 0.5, left, width - RIGHT);
    Object.assign(canvas.style, {left: `${left}px`, width: `${width - left - RIGHT}px`, height: `${height}px`});
    const own = times.measures[measure];
    map.cells ??= {};
    map.cells[measure] ??= Uint8Array.from(atob(own.cells.replaceAll("-", "/")), (sign) => sign.charCodeAt(0));
    paintCells(canvas, map.cells[measure], coloursOf(own), columns, rows);
    svg.style.height = `${height + MAP_BOTTOM}px`;
    svg.innerHTML = hostLabels(times, rowPixels, left) + joined(ticks(first, last, width < 500 ? 3 : 7).filter(Number.isInteger), (tick) =>
        `<text x="${place(xAt(tick))}" y="${height + 16}" text-anchor="middle">${numberText(tick, 6)}</text>`) + '<rect class="chosen"/>';
    Object.assign(map, {rowPixels, cellPixels, left, width});
    map.tip.hidden = true;
}

function showCell(map, row, column) {
    const {times, measure, tip, plot, rowPixels, cellPixels, left, width} = map, own = times.measures[measure];
    if (row < 0 || row >= times.num_rows || column < 0 || column >= times.num_columns) {
        tip.hidden = true;
        return;
    }
    map.cursor = [row, column];
    const byte = map.cells[measure][row * times.num_columns + column], [first, last] = stepsOfColumn(times, column);
    const isRank = times.num_rows === times.num_ranks, host = escaped(times.hosts[row]), lines = [];
    const stage = Math.floor(row * times.num_stages / times.num_rows), median = own.medians[stage][column];
    const words = byte === 0 ? "unknown" : differenceText(byte, own, MEASURES[measure].sign);
    const ofEarlier = column < times.own_column ? `${isRank ? `rank ${row}` : `the ranks of ${host}`} in a start on other hosts or stages` : "";
    lines.push(`<b>${ofEarlier || (isRank ? `rank ${row} on ${host}` : host)}</b>`, first === last ? `step ${first}` : `steps ${first} to ${last}`);
    lines.push(words + (isRank || byte === 0 ? "" : measure === "exposed" ? ": its rank with the least" : ": its slowest rank"));
    if (isRank && median !== null) lines.push(`median of ${times.num_stages > 1 ? `stage ${stage}` : "the ranks"}: ${numberText(median)} ms a step`);
    tip.innerHTML = joined(lines, (line) => `<div>${line}</div>`);
    tip.hidden = false;
    const x = left + column * cellPixels, y = row * rowPixels, onLeft = x > width / 2;
    tip.style.left = onLeft ? "" : `${x + cellPixels + 8}px`;
    tip.style.right = onLeft ? `${width - x + 8}px` : "";
    tip.style.top = `${y + rowPixels + 4}px`;
    const area = {x: x - 1, y: y - 1, width: cellPixels + 2, height: rowPixels + 2};
    for (const [name, value] of Object.entries(area)) plot.querySelector(".chosen").setAttribute(name, value);
}

function useMapKey(map, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const {num_rows: rows, num_columns: columns} = map.times, [row, column] = map.cursor;
    const moves = {ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowUp: [row - 1, column],
                   ArrowDown: [row + 1, column], Home: [row, 0], End: [row, columns - 1]};
    if (!(event.key in moves)) return;
    const [to, at] = moves[event.key];
    showCell(map, Math.max(0, Math.min(rows - 1, to)), Math.max(0, Math.min(columns - 1, at)));
    event.preventDefault();
}

function listenToMap(map) {
    const {plot} = map;
    const hide = () => {
        map.tip.hidden = true;
        plot.querySelector(".chosen").removeAttribute("width");
    };
    plot.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect();
        showCell(map, Math.floor((event.clientY - box.top) / map.rowPixels),
                 Math.floor((event.clientX - box.left - map.left) / map.cellPixels));
    });
    for (const name of ["pointerleave", "blur"]) plot.addEventListener(name, hide);
    plot.addEventListener("keydown", (event) => useMapKey(map, event));
}

function scaleOf({scale, limit, is_cut}) {
    const end = `${numberText(scale, 3)} %${limit > scale || is_cut ? " or more" : ""}`;
    return `<p class="scale"><span>${end} below</span><span class="ramp"></span><span>${end} above</span>` +
        '<span><span class="swatch unknown"></span>unknown</span></p>';
}

function slowestTable(measure, {slowest}, {own_step: since}) {
    if (!slowest.length) return about("No window of the newest start is known yet.");
    const onGpus = slowest.some(({gpu}) => gpu !== null);
    const rows = slowest.map(({rank, host, gpu, mean, newest, share}) =>
        [rank, host, ...(onGpus ? [gpu] : []), percentText(mean), percentText(newest), `${share} % of steps`]);
    return about(`${MEASURES[measure].slowest}${since > 1 ? `, since step ${since}` : ""}, in percent of ${MEASURES[measure].of}:`) +
        table(["rank", "host", ...(onGpus ? ["GPU"] : []), since > 1 ? "these steps" : "all steps", "newest steps", "first in"], rows);
}

function addHeatMap(parent, times) {
    const names = Object.keys(MEASURES).filter((name) => times.measures?.[name]);
    if (!names.length) return;
    const section = document.createElement("section"), grouped = times.num_rows < times.num_ranks;
    section.className = "card wide";
    const equals = times.num_stages > 1 ? "ranks of its pipeline stage, which have the same work," : `${times.num_ranks} ranks`;
    const words = `Difference of each rank from the median of the ${equals} in the same steps. ` +
        (grouped ? `A row is a host${times.hosts[0].includes(" to ") ? " or several" : ""} and shows its slowest rank, or the one with the least exposed communication. ` : "") +
        `${times.num_windows} windows; a column is ${times.steps_of_column} step${times.steps_of_column === 1 ? "" : "s"}. Arrow keys read the cells.`;
    section.innerHTML = `<h3>Times of the ranks</h3><p class="tools">` +
        joined(names, (name) => `<button type="button" data-measure="${name}">${MEASURES[name].title}</button>`) +
        '</p><div class="plot heat" tabindex="0" role="group"><canvas aria-hidden="true"></canvas><svg aria-hidden="true"></svg>' +
        `<div class="tip" role="status" hidden></div></div><div class="legend"></div>${about(words)}<div></div>`;
    parent.append(section);
    const plot = section.querySelector(".plot"), buttons = [...section.querySelectorAll("button")];
    const map = {times, plot, tip: section.querySelector(".tip"), measure: names[0], cursor: [0, 0]};
    const show = (name) => {
        map.measure = name;
        const {slowest: [worst], ...own} = times.measures[name];
        section.querySelector(".legend").innerHTML = scaleOf(own);
        section.lastElementChild.innerHTML = slowestTable(name, times.measures[name], times);
        plot.setAttribute("aria-label", `${MEASURES[name].title} of ${times.num_ranks} ranks. ` +
            (worst ? `Rank ${worst.rank} on ${worst.host} differs most: ${percentText(worst.mean)}.` : ""));
        buttons.forEach((one) => one.setAttribute("aria-pressed", one.dataset.measure === name));
        drawMap(map);
    };
    buttons.forEach((one) => one.addEventListener("click", () => show(one.dataset.measure)));
    listenToMap(map);
    pictures.push(() => drawMap(map));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawMap(map));
    show(names[0]);
}
