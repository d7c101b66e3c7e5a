"""A figure of log-log panels side by side, as SVG text. No dependency: a panel is axes, ticks, lines and a legend."""
import dataclasses
import math
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT = 330, 250  # of the area with the lines
LEFT, RIGHT, TOP, BOTTOM = 74, 22, 78, 56
INK, GRID = "#222222", "#e3e3e3"
COLOURS = ("#1f6fb4", "#c4501b", "#2e8b57", "#7a4fa3")
MIN_TICKS = 3


@dataclasses.dataclass(frozen=True)
class Line:
    label: str
    points: list  # (x, y), both above 0
    theory: bool = False  # dashed, without marks


@dataclasses.dataclass(frozen=True)
class Panel:
    x_label: str
    y_label: str
    lines: list
    x_number: object = None  # how an x tick is written; default: as `number` does


def number(value):
    """12000 as 12k, 0.5 as 0.5."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.3g}{suffix}"
    return f"{value:.4g}"


class Axis:
    """Maps values to places along `length`, with a margin at both ends."""

    def __init__(self, values, length, margin=0.06):
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(high - low, 0.3) * margin
        middle, half = (low + high) / 2, max(high - low, 0.3) / 2 + room
        self.low, self.high, self.length = middle - half, middle + half, length

    def place(self, value):
        return (math.log10(value) - self.low) / (self.high - self.low) * self.length

    def ticks(self):
        """Powers of ten; with multiples of them if there are fewer than MIN_TICKS."""
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            ticks = [step * 10.0**decade for decade in decades for step in steps
                     if self.low <= math.log10(step * 10.0**decade) <= self.high]
            if len(ticks) >= MIN_TICKS:
                break
        return ticks


def text(x, y, words, anchor="middle", size=12, more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{INK}"{more}>'
            f"{escape(words)}</text>")


def straight(x1, y1, x2, y2, colour, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def frame(panel, x_axis, y_axis):
    """Grid, ticks and labels; x ticks stand at the measured points."""
    shapes = []
    for tick in y_axis.ticks():
        y = PANEL_HEIGHT - y_axis.place(tick)
        shapes += [straight(0, y, PANEL_WIDTH, y, GRID), text(-8, y + 4, number(tick), "end")]
    for tick in sorted({x for line in panel.lines for x, _ in line.points}):
        x = x_axis.place(tick)
        shapes += [straight(x, 0, x, PANEL_HEIGHT, GRID), text(x, PANEL_HEIGHT + 18, (panel.x_number or number)(tick))]
    return shapes + [
        f'<rect width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="{INK}"/>',
        text(PANEL_WIDTH / 2, PANEL_HEIGHT + 40, panel.x_label, size=13),
        text(0, 0, panel.y_label, size=13, more=f' transform="translate(-56 {PANEL_HEIGHT / 2}) rotate(-90)"')]


def stroke(line, colour):
    style = 'stroke-width="1.3" stroke-dasharray="5 4"' if line.theory else 'stroke-width="2.2"'
    return f'fill="none" stroke="{colour}" {style}'


def curve(line, colour, x_axis, y_axis):
    places = [(x_axis.place(x), PANEL_HEIGHT - y_axis.place(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [] if line.theory else [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{path}" {stroke(line, colour)}/>', *marks]


def legend(line, colour, x):
    """One entry above the panel, starting at x; returns (shapes, where the next one starts)."""
    shapes = [f'<polyline points="{x:.1f},-14 {x + 24:.1f},-14" {stroke(line, colour)}/>',
              text(x + 30, -10, line.label, "start")]
    return shapes, x + 30 + 7 * len(line.label) + 14


def draw(panel):
    x_axis = Axis([x for line in panel.lines for x, _ in line.points], PANEL_WIDTH)
    y_axis = Axis([y for line in panel.lines for _, y in line.points], PANEL_HEIGHT)
    shapes, x, colours = frame(panel, x_axis, y_axis), 0, iter(COLOURS)
    for line in sorted(panel.lines, key=lambda line: line.theory):  # theory over what is measured
        colour = INK if line.theory else next(colours)
        entry, x = legend(line, colour, x)
        shapes += curve(line, colour, x_axis, y_axis) + entry
    return shapes


def svg(title, panels):
    width = len(panels) * (LEFT + PANEL_WIDTH + RIGHT)
    height = TOP + PANEL_HEIGHT + BOTTOM
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             text(LEFT, 30, title, "start", 16, ' font-weight="bold"')]
    for index, panel in enumerate(panels):
        x = LEFT + index * (LEFT + PANEL_WIDTH + RIGHT)
        lines += [f'<g transform="translate({x} {TOP})">', *draw(panel), "</g>"]
    return "\n".join([*lines, "</svg>"]) + "\n"
