"""The base of tests of report.py: makes pages, checks their form, and runs their script in Chromium or in Node.js where these are
installed."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from report_parsers import Tags

JOBS = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs"
sys.path[:0] = [str(JOBS), str(JOBS / "python")]

MAX_BYTES = 3_000_000
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

NODE = shutil.which("node") or shutil.which("nodejs")

# As much of a browser as the page's figures need, and what they drew. A picture keeps its colours in `pixels`.
STUB = """
const made = {}, elements = [];
const element = () => {
    const one = {innerHTML: "", below: "", textContent: "", parts: {}, on: {}, attributes: {}, clientWidth: 800, dataset: {}, style: {}, append() {},
        setAttribute(name, value) { this.attributes[name] = value; }, removeAttribute(name) { delete this.attributes[name]; },
        addEventListener(name, call) { (this.on[name] ??= []).push(call); },
        send(name, event = {}) { this.on[name].forEach((call) => call({preventDefault() {}, ...event})); },
        insertAdjacentHTML(place, text) { this.below += text; },
        querySelector(name) { return this.parts[name] ??= element(); }, querySelectorAll: () => [],
        getContext() { return {createImageData: (width, height) => ({data: new Uint8ClampedArray(4 * width * height)}),
                               putImageData: ({data}) => { this.pixels = data; }}; },
        get lastElementChild() { return this.querySelector("last"); }};
    elements.push(one);
    return one;
};
globalThis.document = {body: element(), createElement: element, querySelector: () => null,
    getElementById: (id) => made[id] ??= Object.assign(element(), {textContent: id === "data" ? DATA : ""})};
globalThis.ResizeObserver = class { observe() {} };
globalThis.matchMedia = () => element();
globalThis.getComputedStyle = () => ({getPropertyValue: (name) => ({"--low": "#000000", "--median": "#808080", "--high": "#ffffff"})[name]});
"""

# Runs at the end of a page and leaves what it found in the page's title.
PROBE = """<script>
setTimeout(() => {
    const found = {charts: charts.length, rows: document.querySelectorAll("tbody tr").length, cells: document.querySelectorAll(".mesh rect").length,
                   injected: document.querySelectorAll("#details script").length, nan: [...document.querySelectorAll("svg, .tip, dd, td")].some((one) => /NaN|undefined|Infinity/.test(one.outerHTML))};
    found.curves = charts.map(({spec, plot}) => [spec.title, plot.querySelectorAll("path.curve, path.layer, circle").length]);
    const plot = charts[0].plot, press = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    press("End");
    found.tip = charts[0].tip.textContent;
    const box = plot.getBoundingClientRect(), at = (x) => ({clientX: box.left + x, clientY: box.top + 50, pointerId: 1, bubbles: true});
    plot.setPointerCapture = () => {};
    plot.dispatchEvent(new PointerEvent("pointerdown", at(100)));
    plot.dispatchEvent(new PointerEvent("pointerup", at(200)));
    found.zoomed = view;
    press("Escape");
    found.all = view;
    document.title = JSON.stringify(found);
}, 200);
</script></body>"""


class PageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *words, code=0):
        done = subprocess.run([sys.executable, JOBS / "report.py", *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def page(self, *words):
        """Makes a page, checks its form, and returns its data."""
        path = self.folder / "page.html"
        self.report(*words, "--html", path)
        text = path.read_text()
        self.assertLess(len(text), MAX_BYTES)
        tags = Tags()
        tags.feed(text)
        tags.close()
        self.assertEqual((tags.open, len(tags.scripts)), ([], 2))
        outside = re.search(r"https?:|//\w|\burl\((?!#)|@import|\bfetch\(|XMLHttp|WebSocket|\bimport\b", re.sub(r"^\s*//.*", "", text, flags=re.M))
        self.assertIsNone(outside)
        self.assertFalse([name for name, _ in tags.attributes if name in ("src", "href", "action")])
        self.assertEqual([path.name for path in self.folder.glob("*.new")], [])
        return json.loads(tags.scripts[0])

    def probe(self, *words, script=PROBE):
        """What the page's script has made in a browser, as `script` finds it."""
        self.page(*words)
        path = self.folder / "page.html"
        text = path.read_text()
        path.write_text(text.replace('<meta http-equiv="refresh"', '<meta name="no"').replace("</body>", script))
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/profile", "--window-size=800,900",
                   "--virtual-time-budget=3000", "--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
        title = re.search(r"<title>(.*?)</title>", done.stdout)
        self.assertTrue(title and title[1].startswith("{"), done.stdout[:300] + done.stderr[-300:])
        return json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))

    def drawn(self, *words, script):
        """What the page's script has made without a browser, as `script` prints it."""
        self.page(*words)
        text = (self.folder / "page.html").read_text()
        data = re.search(r'id="data">(.*?)</script>', text, re.S)[1]
        path = self.folder / "page.js"
        path.write_text("\n".join([f"const DATA = {json.dumps(data)};", STUB, text.split("<script>")[-1].split("</script>")[0], script]))
        done = subprocess.run([NODE, path], capture_output=True, text=True, timeout=50)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)
