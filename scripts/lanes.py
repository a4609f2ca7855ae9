"""Steps that run side by side, a few commands at a time, and the sum of what became of them."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

# A command that runs longer than this hangs: the longest takes a tenth of it on two cores.
LIMIT = 40 * 60

# How libtest lists the names of the tests that failed, at the end of its words.
FAILURES = re.compile(r"^failures:\n((?: {4}\S.*\n)+)", re.MULTILINE)


class Command:
    """One program, and what became of it."""

    def __init__(self, name, words, place=".", **variables):
        self.name, self.words, self.place = name, [str(word) for word in words], place
        self.variables = {key: str(value) for key, value in variables.items()}
        self.process = self.words_file = self.outcome = None
        self.began = self.took = 0.0

    def start(self, words_file):
        self.words_file, self.began = words_file, time.monotonic()
        with open(words_file, "wb") as output:
            # In a session of its own, so that all it has started can be ended with it.
            try:
                self.process = subprocess.Popen(
                    self.words, cwd=self.place, env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            except OSError as error:
                self.outcome = f"cannot be started: {error}"

    def is_over(self):
        if self.process is None:
            return True
        status = self.process.poll()
        self.took = time.monotonic() - self.began
        if status is None and self.took < LIMIT:
            return False
        if status is None:
            self.end()
        self.outcome = {None: f"did not end in {LIMIT // 60} minutes", 0: ""}.get(status, f"ended with {status}")
        return True

    def end(self):
        if self.process is None:
            return
        for kind, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            try:
                os.killpg(self.process.pid, kind)
                self.process.wait(patience)
                return
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue

    def said(self):
        return Path(self.words_file).read_text(encoding="utf-8", errors="replace")

    def failures(self):
        """The tests that failed, or how the command failed where it names none."""
        if not self.outcome:
            return []
        listed = [name.strip() for block in FAILURES.findall(self.said()) for name in block.splitlines()]
        return list(dict.fromkeys(listed)) or [self.outcome]


class Step:
    """Commands under one title, known at the latest when the steps it needs are over.

    Of all steps with the same `alone` one command runs at a time, however many lanes there are.
    """

    def __init__(self, title, commands, needs=(), alone=None):
        self.title, self.make, self.needs, self.alone = title, commands, needs, alone
        self.waiting, self.running, self.over = None, [], []
        self.passed_over = None

    def is_over(self):
        return self.passed_over is not None or (self.waiting == [] and not self.running)

    def failed(self):
        return self.passed_over is not None or any(command.outcome for command in self.over)

    def prepare(self, done):
        """Makes the commands as soon as they can be known."""
        if self.waiting is not None or self.passed_over is not None:
            return
        needed = [done[title] for title in self.needs]
        if all(step.is_over() for step in needed):
            missing = [step.title for step in needed if step.failed()]
            if missing:
                self.passed_over = f"it needs {', '.join(missing)}"
            else:
                self.waiting = list(self.make() if callable(self.make) else self.make)

    def summary(self):
        if self.passed_over is not None:
            return f"not run         {self.title}: {self.passed_over}"
        seconds = sum(command.took for command in self.over)
        bad = sum(bool(command.outcome) for command in self.over)
        of = f": {bad} of {len(self.over)} programs" if bad and len(self.over) > 1 else ""
        return f"{'FAILED' if bad else 'ok':7} {seconds:6.0f} s  {self.title}{of}"


def tell(command, step):
    title = step.title if command.name == step.title else f"{step.title}: {command.name}"
    print(f"\n── {title}: {command.outcome or 'ok'}, {command.took:.0f} s", flush=True)
    said = command.said().strip("\n")
    if said:
        print(said, flush=True)


def run(steps, lanes, folder):
    """Runs all steps, also after a failure; earlier steps have the first choice of lanes."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {step.title: step for step in steps}
    started = 0
    try:
        while not all(step.is_over() for step in steps):
            for step in steps:
                step.prepare(done)
            running = [(step, command) for step in steps for command in step.running]
            for step, command in running:
                if command.is_over():
                    step.running.remove(command)
                    step.over.append(command)
                    tell(command, step)
            for step in steps:
                busy = [other for other in steps if other.running]
                while step.waiting and sum(len(other.running) for other in busy) < lanes:
                    if step.alone and any(other.alone == step.alone for other in busy):
                        break
                    command = step.waiting.pop(0)
                    started += 1
                    command.start(folder / f"{started:03}-{re.sub(r'[^A-Za-z0-9_.]+', '-', command.name)}.log")
                    step.running.append(command)
                    busy = [other for other in steps if other.running]
            time.sleep(0.05)
    finally:
        for step in steps:
            for command in step.running:
                command.end()


def sum_up(steps, what, seconds):
    """Prints what became of everything, and what failed last; whether nothing did."""
    print(f"\n── summary of {what}, {seconds:.0f} s (a step's seconds are those of its programs together)")
    for step in steps:
        print(step.summary())
    slow = sorted(((command.took, command.name) for step in steps for command in step.over), reverse=True)
    print("slowest:", ", ".join(f"{name} {took:.0f} s" for took, name in slow[:8]))
    failed = [step for step in steps if step.failed()]
    if failed:
        print("\n── failed")
    for step in failed:
        for command in step.over:
            name = "" if command.name == step.title else f" {command.name}:"
            for failure in command.failures():
                print(f"{step.title}:{name} {failure}")
    if failed:
        print(f"\n{len(failed)} of {len(steps)} steps failed")
    return not failed
