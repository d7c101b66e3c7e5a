// The load of all experts as a heat map (jobs/python/expert_loads.py): a row for each layer, a column for each expert, and a slider
// over stretches of steps. The middle of the cells is the mean of the layer; they end at 2^-octaves and 2^octaves times the mean.
const stepsOfStretch = ({first, last, steps}) => first === last ? `step ${first}` : `steps ${first} to ${last} (${steps} of them have counts)`;

function loadText(byte, octaves) {
    if (byte === 0) return "no tokens";
    const levels = byte - 1 - LEVELS, load = Number((2 ** (octaves * levels / LEVELS)).toPrecision(2));
    return `${levels === LEVELS ? "at least " : levels === -LEVELS ? "at most " : ""}${load} times the mean of the layer`;
}

// The figures of a stretch in words.
function loadWords({layers, num_experts, octaves}, cells) {
    const largest = cells.reduce((most, byte, i) => byte > cells[most] ? i : most, 0), unused = cells.filter((byte) => byte === 0).length;
    const layer = layers[Math.floor(largest / num_experts)];
    return `Layer ${layer}, expert ${largest % num_experts} has the largest load: ${loadText(cells[largest], octaves)}. ` +
        `${unused} of ${cells.length} experts have no tokens.`;
}

function addExperts(parent, experts) {
    if (!experts.stretches) return;
    const {layers, num_experts, octaves, stretches, forced} = experts, section = document.createElement("section");
    const bound = 2 ** octaves, newest = stretches.length - 1;
    section.className = "card wide";
    section.innerHTML = `<h3>Load of the experts by layer${forced ? ": FORCED BALANCE, experts take turns, whatever the routers say" : ""}</h3>` +
        `<p class="tools"><label>steps <input type="range" min="0" max="${newest}" value="${newest}"></label><output></output></p>${HEAT_PLOT}` +
        `<p class="scale"><span>1/${bound} of the mean, or less</span><span class="ramp"></span><span>${bound} times the mean, or more</span>` +
        '<span><span class="swatch unknown"></span>no tokens</span></p><p class="about"></p>' +
        about(`A row is a layer, a column an expert (of ${num_experts}): its tokens over the mean of the layer. Arrow keys read the cells.`);
    parent.append(section);
    const plot = section.querySelector(".plot"), slider = section.querySelector("input"), bytes = [];
    let shown = newest;
    const cells = () => bytes[shown] ??= bytesOf(stretches[shown].cells);
    const map = {rows: layers.length, columns: num_experts, names: layers.map((layer) => `layer ${layer}`), ends: [0, num_experts - 1], plot,
                 tip: section.querySelector(".tip"), cursor: [0, 0], cells, colours: () => coloursOf({limit: octaves, scale: octaves}),
                 words: (row, column) => [`<b>layer ${layers[row]}, expert ${column}</b>`, stepsOfStretch(stretches[shown]),
                                          loadText(cells()[row * num_experts + column], octaves)]};
    const show = (index) => {
        shown = index;
        section.querySelector("output").textContent = stepsOfStretch(stretches[index]);
        section.querySelector(".scale + .about").textContent = loadWords(experts, cells());
        plot.setAttribute("aria-label", `Load of ${num_experts} experts in ${layers.length} layers. ${loadWords(experts, cells())}`);
        drawMap(map);
    };
    slider.addEventListener("input", () => show(Number(slider.value)));
    startMap(map);
    show(newest);
}
