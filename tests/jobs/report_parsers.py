"""Strict readers of the page and of the figures for Prometheus that report.py writes."""
import html.parser
import re

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Tags(html.parser.HTMLParser):
    """Holds that every tag is closed in order, and keeps the text of scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def figures_of(text):
    """Parses Prometheus's text format strictly: {(name, labels): value}; HELP and TYPE once, before the name's samples."""
    assert text.endswith("\n")
    found, kinds, helped = {}, {}, []
    for line in text.splitlines():
        comment = re.fullmatch(r"# (HELP|TYPE) (\w+) (.+)", line)
        if comment and comment[1] == "HELP":
            assert comment[2] not in helped, f"{comment[2]} comes twice"
            helped.append(comment[2])
        elif comment:
            assert comment[3] in ("gauge", "counter") and comment[2] == helped[-1] and comment[2] not in kinds
            kinds[comment[2]] = comment[3]
        else:
            sample = re.fullmatch(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\n"])*",?)+)\} (\S+)', line)
            assert sample and sample[1] == helped[-1] and sample[1] in kinds, line
            labels = tuple(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', sample[2]))
            assert (sample[1], labels) not in found, f"{line} comes twice"
            found[sample[1], labels] = float(sample[3])
    return found
