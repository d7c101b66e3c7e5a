"""Output of results: Markdown tables, and their places in the pages beside this file."""
import os
import re

from runs import HERE

FOLDER = HERE  # of the pages


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
    """Replaces the text between the marks `results: <place>` and `end of results` of the page that has them."""
    start, end = f"<!-- results: {place} -->\n", "<!-- end of results -->"
    pages = [page for page in FOLDER.glob("*.md") if start in page.read_text()]
    if len(pages) != 1:
        raise ValueError(f"{len(pages)} pages of {FOLDER} have a place for the results of {place}")
    old = pages[0].read_text()
    new, count = re.subn(re.escape(start) + ".*?" + re.escape(end), lambda _: f"{start}\n{text}\n\n{end}", old,
                         flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{pages[0]} has {count} places for the results of {place}")
    partial = pages[0].with_suffix(".partial")
    partial.write_text(new)
    os.replace(partial, pages[0])
