"""A run's output on a terminal: whole lines of text that fit it."""
import re

import run
from terminal import Terminal

MESSAGE = re.compile(r"\d\d:\d\d:\d\d [IW] (?:\[\d\] )?(?P<text>.*)")
STEP = re.compile(r"step +(\d+)/\d+  loss .* ETA (?:\d:\d\d:\d\d|\d\dh \d\dm)")


class OnATerminal(run.PretrainTest):
    def open(self, *command, **environment):
        terminal = Terminal(command, **environment)
        self.addCleanup(terminal.end)
        return terminal

    def logged_steps(self, lines):
        """The steps of the log's lines, each of which is whole. Nothing else appears between the messages."""
        texts = [MESSAGE.fullmatch(line) for line in lines]
        self.assertTrue(all(texts), lines)
        steps = [match["text"] for match in texts if match["text"].startswith("step")]
        self.assertLessEqual(max(len(match[0]) for match in texts if match["text"] in steps), 120, lines)
        self.assertTrue(all(map(STEP.fullmatch, steps)), lines)
        return [int(STEP.fullmatch(text)[1]) for text in steps]

    def test_lines_are_text(self):
        """The output contains no control characters: a log is text, also on a terminal."""
        terminals = [self.open(run.PRETRAIN, *self.small("terminal")),
                     self.open(run.MPIRUN, 2, run.PRETRAIN, *self.small("ranks"))]
        job = self.start(2, *self.small("pipe"))
        texts = [(terminal.finish().code, terminal.text.replace("\r\n", "\n")) for terminal in terminals]
        done = job.finish()
        for code, text in [*texts, (done.code, done.stderr)]:
            self.assertEqual(code, 0, text)
            self.assertTrue(all(letter.isprintable() or letter == "\n" for letter in text), repr(text))
            self.assertEqual(self.logged_steps(text.splitlines()), [1, 4], text)

    def test_a_quiet_log_is_quiet(self):
        terminal = self.open(run.PRETRAIN, *self.small(), ARGOSY_LOG="warn").finish()
        self.assertEqual((terminal.code, terminal.text), (0, ""))


if __name__ == "__main__":
    run.main()
