"""A pseudo-terminal for running programs, and the text that it shows."""
import fcntl
import os
import pty
import re
import resource
import select
import struct
import subprocess
import termios
import time

import run


def own_terminal():
    """Runs in the child: its stdin sends the interrupts. There is no core dump, which SIGQUIT would leave."""
    fcntl.ioctl(0, termios.TIOCSCTTY)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Terminal:
    """A command that runs on its own terminal: `text` is all its output so far."""

    def __init__(self, command, **environment):
        self.master, slave = pty.openpty()
        # Keys are not echoed: an echo could appear in the middle of the program's output or after its end.
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.text, self.started = "", time.monotonic()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("TERM", "COLUMNS")}
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=own_terminal,
            env=inherited | {"OMP_NUM_THREADS": "1", "TERM": "xterm"} | environment)
        os.close(slave)

    def press(self, key):
        os.write(self.master, key)

    def read(self):
        """Reads more output; False when no process can write any more."""
        assert time.monotonic() - self.started < run.LIMIT_SECONDS, f"takes too long; it said {self.text!r}"
        if not select.select([self.master], [], [], 0.1)[0]:
            return True
        try:
            more = os.read(self.master, 1 << 16)
        except OSError:  # Linux reports the closed terminal like this
            more = b""
        self.text += more.decode()
        return bool(more)

    def wait_for(self, pattern, since=0):
        while not re.search(pattern, self.text[since:]):
            assert self.read(), f"ended without {pattern!r}: {self.text!r}"

    def finish(self):
        while self.read():
            pass
        self.code = self.process.wait(run.LIMIT_SECONDS)
        return self

    def close(self):
        """Closes the terminal's window: the foreground process group gets SIGHUP."""
        if self.master is not None:
            os.close(self.master)
        self.master = None

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.close()
