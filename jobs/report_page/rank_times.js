// The times of all ranks over the steps as a heat map (jobs/python/rank_times.py): a row for each rank, a column for one or
// several windows of steps. The middle of the cells is the median.
const MEASURES = {
    compute: {title: "compute", of: "the median compute time", sign: "%", slowest: "The slowest ranks"},
    data: {title: "waits for data", of: "the median step", sign: "% of the median step", slowest: "The ranks that wait most for their data"},
    exposed: {title: "exposed communication", of: "the median step", sign: "% of the median step",
              slowest: "The ranks with the least exposed communication, which the others wait for"}};

const percentText = (value) => value === null ? "unknown" : `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))} %`;

// The difference of a cell's byte from the median in words; a byte at the end may stand for more if values were cut off.
function differenceText(byte, {limit, is_cut}, sign) {
    const levels = byte - 1 - LEVELS, size = Number((limit * Math.abs(levels) / LEVELS).toPrecision(3));
    if (levels === 0) return "as the median";
    return `${is_cut && Math.abs(levels) === LEVELS ? "at least " : ""}${size} ${sign} ${levels > 0 ? "more" : "less"} than the median`;
}

const stepsOfColumn = ({first_step, steps_of_column}, column) =>
    [first_step + column * steps_of_column, first_step + (column + 1) * steps_of_column - 1];

// The lines on a cell, whose byte is `byte`.
function wordsOfRank(times, measure, byte, row, column) {
    const own = times.measures[measure], [first, last] = stepsOfColumn(times, column);
    const isRank = times.num_rows === times.num_ranks, host = escaped(times.hosts[row]), lines = [];
    const stage = Math.floor(row * times.num_stages / times.num_rows), median = own.medians[stage][column];
    const words = byte === 0 ? "unknown" : differenceText(byte, own, MEASURES[measure].sign);
    const ofEarlier = column < times.own_column ? `${isRank ? `rank ${row}` : `the ranks of ${host}`} in a start on other hosts or stages` : "";
    lines.push(`<b>${ofEarlier || (isRank ? `rank ${row} on ${host}` : host)}</b>`, first === last ? `step ${first}` : `steps ${first} to ${last}`);
    lines.push(words + (isRank || byte === 0 ? "" : measure === "exposed" ? ": its rank with the least" : ": its slowest rank"));
    if (isRank && median !== null) lines.push(`median of ${times.num_stages > 1 ? `stage ${stage}` : "the ranks"}: ${numberText(median)} ms a step`);
    return lines;
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

function addRankTimes(parent, times) {
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
        `</p>${HEAT_PLOT}<div class="legend"></div>${about(words)}<div></div>`;
    parent.append(section);
    const plot = section.querySelector(".plot"), buttons = [...section.querySelectorAll("button")], bytes = {};
    let measure = names[0];
    const cells = () => bytes[measure] ??= bytesOf(times.measures[measure].cells);
    const map = {rows: times.num_rows, columns: times.num_columns, names: times.hosts, plot, tip: section.querySelector(".tip"), cursor: [0, 0],
                 ends: [stepsOfColumn(times, 0)[0], stepsOfColumn(times, times.num_columns - 1)[1]], cells,
                 colours: () => coloursOf(times.measures[measure]),
                 words: (row, column) => wordsOfRank(times, measure, cells()[row * times.num_columns + column], row, column)};
    const show = (name) => {
        measure = name;
        const {slowest: [worst], ...own} = times.measures[name];
        section.querySelector(".legend").innerHTML = scaleOf(own);
        section.lastElementChild.innerHTML = slowestTable(name, times.measures[name], times);
        plot.setAttribute("aria-label", `${MEASURES[name].title} of ${times.num_ranks} ranks. ` +
            (worst ? `Rank ${worst.rank} on ${worst.host} differs most: ${percentText(worst.mean)}.` : ""));
        buttons.forEach((one) => one.setAttribute("aria-pressed", one.dataset.measure === name));
        drawMap(map);
    };
    buttons.forEach((one) => one.addEventListener("click", () => show(one.dataset.measure)));
    startMap(map);
    show(names[0]);
}
