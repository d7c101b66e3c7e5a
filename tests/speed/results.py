"""Output of results: Markdown tables, and their positions in README.md beside this file."""
import os
import re

from runs import HERE

README = HERE / "README.md"


def markdown(rows):
    """The first row is the header."""
    header, *body = [[str(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in (header, *body)) for i in range(len(header))]

    def line(row):
        return "| " + " | ".join(value.ljust(width) for value, width in zip(row, widths)) + " |"

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, body)])


def cell(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def publish(place, text):
    """Replaces the text between README.md's marks `results: <place>` and `end of results`."""
    start, end = f"<!-- results: {place} -->\n", "<!-- end of results -->"
    old = README.read_text()
    new, count = re.subn(re.escape(start) + ".*?" + re.escape(end), lambda _: f"{start}\n{text}\n\n{end}", old,
                         flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{README} has {count} places for the results of {place}")
    partial = README.with_suffix(".partial")
    partial.write_text(new)
    os.replace(partial, README)
