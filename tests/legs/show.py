"""What a person sees of a run: a line for each leg that ended, and on a terminal a line for each that runs."""

import os
import sys
import time


class Screen:
    def __init__(self, count):
        self.count, self.done, self.drawn = count, 0, 0
        self.terminal = sys.stdout.isatty()

    def ended(self, name, passed, seconds, text):
        """A leg ended: its line, and whatever is to be read of its output below."""
        self.clear()
        self.done += 1
        print(f"{'✔' if passed else '✘'} {name} ({seconds:.0f} s)", flush=True)
        if text:
            print(text.rstrip("\n"), flush=True)

    def redraw(self, running):
        """The legs that run: (name, when it began, the file with its output)."""
        if not self.terminal:
            return
        self.clear()
        width = os.get_terminal_size().columns
        lines = [f"… {name} ({time.monotonic() - began:.0f} s) {last_line(path)}" for name, began, path in running]
        lines.append(f"{self.done} of {self.count} done")
        sys.stdout.write("".join(f"{line[: width - 1]}\n" for line in lines))
        sys.stdout.flush()
        self.drawn = len(lines)

    def clear(self):
        """Takes back the lines of the legs that run."""
        if self.drawn:
            sys.stdout.write(f"\x1b[{self.drawn}F\x1b[J")
            self.drawn = 0


def last_line(path):
    """The last line of a file, from its last kilobyte."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.path.getsize(path) - 1024, 0))
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
