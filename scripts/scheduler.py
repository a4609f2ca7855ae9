"""Runs steps in parallel with a limited number of commands, and prints a summary."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

# Timeout of a command; the longest takes a tenth of it on two cores.
TIMEOUT = 40 * 60

# List of failed tests at the end of libtest's output.
FAILURES = re.compile(r"^failures:\n((?: {4}\S.*\n)+)", re.MULTILINE)


class Command:
    """A program and its outcome."""

    def __init__(self, name, arguments, cwd=".", **variables):
        self.name, self.arguments, self.cwd = name, [str(argument) for argument in arguments], cwd
        self.variables = {key: str(value) for key, value in variables.items()}
        self.process = self.log = self.outcome = None
        self.started = self.seconds = 0.0

    def start(self, log):
        self.log, self.started = log, time.monotonic()
        with open(log, "wb") as file:
            # A separate session, so that its children can be killed with it.
            try:
                self.process = subprocess.Popen(
                    self.arguments, cwd=self.cwd, env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL,
                    stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            except OSError as error:
                self.outcome = f"cannot start: {error}"

    def is_finished(self):
        if self.process is None:
            return True
        status = self.process.poll()
        self.seconds = time.monotonic() - self.started
        if status is None and self.seconds < TIMEOUT:
            return False
        if status is None:
            self.kill()
        self.outcome = {None: f"timed out after {TIMEOUT // 60} minutes", 0: ""}.get(status, f"exited with {status}")
        return True

    def kill(self):
        if self.process is None:
            return
        for kind, timeout in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            try:
                os.killpg(self.process.pid, kind)
                self.process.wait(timeout)
                return
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue

    def output(self):
        return Path(self.log).read_text(encoding="utf-8", errors="replace")

    def failures(self):
        """Returns the failed tests, or the outcome of the command if it lists none."""
        if not self.outcome:
            return []
        listed = [name.strip() for block in FAILURES.findall(self.output()) for name in block.splitlines()]
        return list(dict.fromkeys(listed)) or [self.outcome]


class Step:
    """Commands under one title; a function creates them once the steps it depends on are finished.

    Steps with the same `exclusive` value run one command at a time.
    """

    def __init__(self, title, commands, needs=(), exclusive=None):
        self.title, self.make, self.needs, self.exclusive = title, commands, needs, exclusive
        self.waiting, self.running, self.finished = None, [], []
        self.skip_reason = None

    def is_finished(self):
        return self.skip_reason is not None or (self.waiting == [] and not self.running)

    def failed(self):
        return self.skip_reason is not None or any(command.outcome for command in self.finished)

    def prepare(self, done):
        """Creates the commands once all dependencies are finished."""
        if self.waiting is not None or self.skip_reason is not None:
            return
        needed = [done[title] for title in self.needs]
        if all(step.is_finished() for step in needed):
            missing = [step.title for step in needed if step.failed()]
            if missing:
                self.skip_reason = f"depends on {', '.join(missing)}"
            else:
                self.waiting = list(self.make() if callable(self.make) else self.make)

    def summary(self):
        if self.skip_reason is not None:
            return f"skipped         {self.title}: {self.skip_reason}"
        seconds = sum(command.seconds for command in self.finished)
        bad = sum(bool(command.outcome) for command in self.finished)
        of = f": {bad} of {len(self.finished)} programs" if bad and len(self.finished) > 1 else ""
        return f"{'FAILED' if bad else 'ok':7} {seconds:6.0f} s  {self.title}{of}"


def print_result(command, step):
    title = step.title if command.name == step.title else f"{step.title}: {command.name}"
    print(f"\n── {title}: {command.outcome or 'ok'}, {command.seconds:.0f} s", flush=True)
    output = command.output().strip("\n")
    if output:
        print(output, flush=True)


def run(steps, jobs, folder):
    """Runs all steps, also after a failure, with at most `jobs` commands at a time; earlier steps have priority."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {step.title: step for step in steps}
    started = 0
    try:
        while not all(step.is_finished() for step in steps):
            for step in steps:
                step.prepare(done)
            running = [(step, command) for step in steps for command in step.running]
            for step, command in running:
                if command.is_finished():
                    step.running.remove(command)
                    step.finished.append(command)
                    print_result(command, step)
            for step in steps:
                busy = [other for other in steps if other.running]
                while step.waiting and sum(len(other.running) for other in busy) < jobs:
                    if step.exclusive and any(other.exclusive == step.exclusive for other in busy):
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
                command.kill()


def summarize(steps, name, seconds):
    """Prints all outcomes, failures last; returns true if there are none."""
    print(f"\n── summary of {name}, {seconds:.0f} s (the time of a step is the sum of its commands)")
    for step in steps:
        print(step.summary())
    slow = sorted(((command.seconds, command.name) for step in steps for command in step.finished), reverse=True)
    print("slowest:", ", ".join(f"{name} {seconds:.0f} s" for seconds, name in slow[:8]))
    failed = [step for step in steps if step.failed()]
    if failed:
        print("\n── failed")
    for step in failed:
        for command in step.finished:
            name = "" if command.name == step.title else f" {command.name}:"
            for failure in command.failures():
                print(f"{step.title}:{name} {failure}")
    if failed:
        print(f"\n{len(failed)} of {len(steps)} steps failed")
    return not failed
