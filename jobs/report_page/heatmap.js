// Heat maps of cells in rows and columns. A cell is one byte: 0 is unknown, 1 + LEVELS is the middle, 1 and 1 + 2 * LEVELS are the
// limits. A map is {rows, columns, names (of the rows), ends (the x axis at the centres of the first and the last column), cells() (their bytes),
// colours() (of all bytes), words(row, column) (lines on a cell, as HTML), plot, tip, cursor (row and column)}.
const LEVELS = 127;
const MAP_BOTTOM = 22, MIN_ROW_PIXELS = 1.4, MAX_ROW_PIXELS = 18, MAX_MAP_PIXELS = 520;
const HEAT_PLOT = '<div class="plot heat" tabindex="0" role="group"><canvas aria-hidden="true"></canvas><svg aria-hidden="true"></svg>' +
    '<div class="tip" role="status" hidden></div></div>';

const bytesOf = (base64) => Uint8Array.from(atob(base64.replaceAll("-", "/")), (sign) => sign.charCodeAt(0));

function rgbOf(name) {
    const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

// The colour of each byte, from the middle to the end of the colours in equal steps; 0 is transparent. The bytes end at `limit`, the
// colours at `scale`.
function coloursOf({limit, scale}) {
    const low = rgbOf("--low"), middle = rgbOf("--median"), high = rgbOf("--high");
    return Array.from({length: 2 * LEVELS + 2}, (_, byte) => {
        if (byte === 0) return [0, 0, 0, 0];
        const value = limit * (byte - 1 - LEVELS) / LEVELS, part = Math.min(1, Math.abs(value) / scale);
        const end = value < 0 ? low : high;
        return [...middle.map((own, i) => Math.round(own + part * (end[i] - own))), 255];
    });
}

function paintCells(canvas, cells, colours, columns, rows) {
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let i = 0; i < cells.length; ++i) image.data.set(colours[cells[i]], 4 * i);
    context.putImageData(image, 0, 0);
}

// Names beside their rows; those that would overlap are left out.
function rowLabels(names, rowPixels, left) {
    let shapes = "", lowest = -Infinity;
    names.forEach((text, row) => {
        if (row > 0 && names[row - 1] === text) return;
        const end = names.findIndex((other, at) => at > row && other !== text);
        const middle = Math.max(8, ((row + (end < 0 ? names.length : end)) / 2) * rowPixels);
        if (middle - lowest < 13) return;
        lowest = middle;
        const name = text.length > 10 ? `...${text.slice(-8)}` : text;
        shapes += `<text x="${left - 6}" y="${place(middle + 4)}" text-anchor="end">${escaped(name)}</text>`;
    });
    return shapes;
}

function drawMap(map) {
    const {rows, columns, plot, ends: [first, last]} = map, width = Math.max(200, plot.clientWidth);
    const rowPixels = Math.max(MIN_ROW_PIXELS, Math.min(MAX_ROW_PIXELS, MAX_MAP_PIXELS / rows)), height = Math.round(rows * rowPixels);
    const left = 82, cellPixels = (width - left - RIGHT) / columns, canvas = plot.querySelector("canvas"), svg = plot.querySelector("svg");
    const xAt = linear(first - 0.5, last + 0.5, left, width - RIGHT);
    Object.assign(canvas.style, {left: `${left}px`, width: `${width - left - RIGHT}px`, height: `${height}px`});
    paintCells(canvas, map.cells(), map.colours(), columns, rows);
    svg.style.height = `${height + MAP_BOTTOM}px`;
    svg.innerHTML = rowLabels(map.names, rowPixels, left) + joined(ticks(first, last, width < 500 ? 3 : 7).filter(Number.isInteger), (tick) =>
        `<text x="${place(xAt(tick))}" y="${height + 16}" text-anchor="middle">${numberText(tick, 6)}</text>`) + '<rect class="chosen"/>';
    Object.assign(map, {rowPixels, cellPixels, left, width});
    map.tip.hidden = true;
}

function showCell(map, row, column) {
    const {rows, columns, tip, plot, rowPixels, cellPixels, left, width} = map;
    if (row < 0 || row >= rows || column < 0 || column >= columns) {
        tip.hidden = true;
        return;
    }
    map.cursor = [row, column];
    tip.innerHTML = joined(map.words(row, column), (line) => `<div>${line}</div>`);
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
    const {rows, columns, cursor: [row, column]} = map;
    const moves = {ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowUp: [row - 1, column],
                   ArrowDown: [row + 1, column], Home: [row, 0], End: [row, columns - 1]};
    if (!(event.key in moves)) return;
    const [to, at] = moves[event.key];
    showCell(map, Math.max(0, Math.min(rows - 1, to)), Math.max(0, Math.min(columns - 1, at)));
    event.preventDefault();
}

// Makes the map draw itself, now and when the page's width or colours change, and answer the pointer and keys.
function startMap(map) {
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
    pictures.push(() => drawMap(map));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawMap(map));
}
