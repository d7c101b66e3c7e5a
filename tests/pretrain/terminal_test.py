"""A run's output on a terminal, and that a log contains none of the live line."""
import re
import signal

import run
from terminal import Screen, Terminal

FOREVER = {"training__steps": 1000000, "lr_scheduler__warmup_steps": 0, "optimizer__lr": 1e-4, "metrics__log_freq": 50}
LIVE = re.compile(r"\r(step[^\r\n\x1b]*)\x1b\[K")
ETA = r"ETA (?:\d:\d\d:\d\d|\d\dh \d\dm)"
TEXT = re.compile(rf"step +(\d+)/(\d+) +([\d.]+)%  {ETA}  loss +\d\.\d{{4}}  +[\d.]+[ kM] tok/s"
                  r"  (?:of GEMM +[\d.]+%| *[\d.]+(?:e-\d+)? TFLOP/s)  +\d\.\d{3} GiB")
MESSAGE = re.compile(r"\d\d:\d\d:\d\d [IW] (?:\[\d\] )?(?P<text>.*)")
PLAIN = re.compile(rf"step +(\d+)/\d+  loss .* {ETA}")


class OnATerminal(run.PretrainTest):
    def open(self, *command, columns=100, **environment):
        terminal = Terminal(command, columns, **environment)
        self.addCleanup(terminal.end)
        return terminal

    def lines(self, screen):
        """The lines of the screen at the end: the cursor is at the beginning of an empty line, after whole lines."""
        lines = screen.lines()
        self.assertEqual((lines[-1], screen.column), ("", 0), lines)
        return lines[:-1]

    def logged_steps(self, lines):
        """The steps of the log's lines, each of which is whole. Nothing else appears between the messages."""
        texts = [MESSAGE.fullmatch(line) for line in lines]
        self.assertTrue(all(texts), lines)
        steps = [match["text"] for match in texts if match["text"].startswith("step")]
        self.assertLessEqual(max(len(match[0]) for match in texts if match["text"] in steps), 120, lines)
        self.assertTrue(all(map(PLAIN.fullmatch, steps)), lines)
        return [int(PLAIN.fullmatch(text)[1]) for text in steps]

    def assert_live(self, terminal, num_steps, num_messages):
        """The live lines that were shown and erased: their steps increase, and they do not appear too often."""
        shown = LIVE.findall(terminal.text)
        matches = [TEXT.fullmatch(text) for text in shown]
        self.assertTrue(all(matches), shown)
        steps = [int(match[1]) for match in matches]
        self.assertEqual(steps, sorted(steps))
        self.assertGreaterEqual(len(set(steps)), 2, shown)
        self.assertLessEqual(len(shown), 5 * terminal.seconds + 1 + num_messages)
        for match in matches:
            self.assertEqual(int(match[2]), num_steps)
            self.assertAlmostEqual(float(match[3]), 100 * int(match[1]) / num_steps, delta=0.051)

    def test_a_line_that_is_rewritten_below_the_log(self):
        settings = {"training__steps": 120, "metrics__log_freq": 50, "metrics__measure_gemm_peak": True}
        terminal = self.open(run.PRETRAIN, *self.small(**settings)).finish()
        self.assertEqual(terminal.code, 0, terminal.text)
        lines = self.lines(terminal.screen)
        self.assertEqual(self.logged_steps(lines), [1, 50, 100, 120])
        self.assert_live(terminal, 120, len(lines))

    def test_live_line_behind_mpirun_on_request(self):
        """stderr is a pipe; the ranks still inherit mpirun's terminal, which has a width."""
        settings = {"training__steps": 120, "metrics__log_freq": 50, "metrics__live_line": "always"}
        terminal = self.open(run.MPIRUN, 2, run.PRETRAIN, *self.small(**settings), columns=90).finish()
        self.assertEqual(terminal.code, 0, terminal.text)
        lines = self.lines(terminal.screen)
        self.assertEqual(self.logged_steps(lines), [1, 50, 100, 120])
        self.assert_live(terminal, 120, len(lines))
        narrow = self.open(run.MPIRUN, 2, run.PRETRAIN, *self.small(**settings), columns=40).finish()
        self.assertEqual(self.logged_steps(self.lines(narrow.screen)), [1, 50, 100, 120])
        self.assertEqual({len(text) for text in LIVE.findall(narrow.text)}, {39})

    def test_it_follows_the_width_and_makes_room_for_an_error(self):
        terminal = self.open(run.PRETRAIN, *self.small(**FOREVER), columns=60)
        terminal.wait_for("\rstep")
        terminal.resize(33)
        terminal.wait_for("(?s)(\rstep[^\r\n\x1b]{28}\x1b.*){4}")
        terminal.process.terminate()
        terminal.finish()
        self.assertEqual(terminal.code, 1, terminal.text)
        shown = list(LIVE.finditer(terminal.text))
        widths = [len(match[1]) for match in shown]
        first_narrow = widths.index(32)
        self.assertEqual(set(widths[:first_narrow]), {59})
        self.assertEqual(set(widths[first_narrow:]), {32})
        screen = Screen(33)  # a wide line already sent when the terminal shrank is not the program's fault
        screen.feed(terminal.text[shown[first_narrow].start():])
        lines = self.lines(screen)
        self.assertRegex(lines[-1], r"^pretrain: error: stopped by a signal after step \d+ of 1000000; .*$")
        self.logged_steps(lines[:-1])

    def test_an_error_of_the_job(self):
        settings = {"optimizer__lr": 1e30, "lr_scheduler__warmup_steps": 0, "training__steps": 50,
                    "metrics__live_line": "always"}
        for terminal in [self.open(run.MPIRUN, num_ranks, run.PRETRAIN, *self.small(f"run{num_ranks}", **settings))
                         for num_ranks in (1, 2)]:
            terminal.finish()
            self.assertEqual(terminal.code, 1, terminal.text)
            self.assertIn("\rstep", terminal.text)
            errors = [line for line in self.lines(terminal.screen) if "error" in line]
            self.assertRegex(errors[0], "^pretrain: error: step 6: ")

    def test_an_interrupt_keeps_the_line_and_ends_it(self):
        for key, number in ((b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)):
            terminal = self.open(run.PRETRAIN, *self.small(number.name, **FOREVER))
            terminal.wait_for("(?s)(\rstep.*){3}")  # the first is erased at once, for the log's line of the first step
            terminal.press(key)
            terminal.finish()
            self.assertEqual(terminal.code, -number, terminal.text)
            self.assertIn("step", self.lines(terminal.screen)[-1])

    def test_plain_lines_if_lines_cannot_be_rewritten(self):
        """The output contains no control characters either: a log is text."""
        terminals = [self.open(run.PRETRAIN, *self.small("dumb"), TERM="dumb"),
                     self.open(run.PRETRAIN, *self.small("unknown"), TERM=""),
                     self.open(run.PRETRAIN, *self.small("never", metrics__live_line="never"))]
        jobs = [self.start(num_ranks, *self.small(f"run{num_ranks}"), environment={"TERM": "xterm"})
                for num_ranks in (1, 2)]
        texts = [(terminal.finish().code, terminal.text.replace("\r\n", "\n")) for terminal in terminals]
        texts += [(done.code, done.stderr) for done in [job.finish() for job in jobs]]
        for code, text in texts:
            self.assertEqual(code, 0, text)
            self.assertTrue(all(letter.isprintable() or letter == "\n" for letter in text), repr(text))
            self.assertEqual(self.logged_steps(text.splitlines()), [1, 4], text)

    def test_a_quiet_log_is_quiet(self):
        terminal = self.open(run.PRETRAIN, *self.small(), ARGOSY_LOG="warn").finish()
        self.assertEqual((terminal.code, terminal.text), (0, ""))


if __name__ == "__main__":
    run.main()
