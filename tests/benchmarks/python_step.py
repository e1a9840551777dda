#!/usr/bin/env python3
"""What a step from Python takes more than one of weft run, in microseconds.

    PYTHONPATH=python WEFT_C_LIBRARY=bazel-bin/c/libweft_c.so \\
        PYTHON tests/benchmarks/python_step.py bazel-bin/tools/weft [RANKS]

PYTHON has NumPy. Both train the linear regression of tests/data/fit_a_line with the same three batches,
in turn, in rounds; the smallest time of all rounds counts, as other work on the machine only adds. A step
of weft run is what a run of many steps takes more than one of few, without lines of steps (--quiet). A
step from Python is `run.step` with NumPy arrays, and `float` of the loss.
"""
import os
import subprocess
import sys
import tempfile
import time

import numpy
import weft

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "fit_a_line")
ROUNDS = 12
FEW, MANY = 500, 10500
STEPS = 2000  # of Python, of which the fastest of several counts


def seconds_of_command(command):
    """What a command takes."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main():
    """Measures, and prints."""
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    feeds = numpy.load(os.path.join(DATA, "feeds.npz"))
    batches = [{name: feeds["%d/%s" % (i, name)] for name in ("x", "y")} for i in range(3)]
    out = weft.transpile(os.path.join(DATA, "main.pb"), os.path.join(DATA, "startup.pb"),
                         mode="grad_allreduce")
    commands, python = {FEW: [], MANY: []}, []
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("main.pb", "startup.pb")]
        out.main.save(paths[0])
        out.startup.save(paths[1])
        command = [sys.argv[1], "run", paths[0], "--startup", paths[1], "--feeds",
                   os.path.join(DATA, "feeds.npz"), "--ranks", str(ranks), "--quiet", "--steps"]
        for _ in range(ROUNDS):
            for steps, times in commands.items():
                times.append(seconds_of_command(command + [str(steps)]))
            with weft.Run(out, ranks=ranks) as run:
                for i in range(MANY):
                    if i % STEPS == 0:
                        begun = time.perf_counter()
                    loss, = run.step(batches[i % 3])
                    float(loss)
                    if i % STEPS == STEPS - 1:
                        python.append((time.perf_counter() - begun) / STEPS)
    command_us = (min(commands[MANY]) - min(commands[FEW])) / (MANY - FEW) * 1e6
    python_us = min(python) * 1e6
    print("%d ranks: weft run %.1f us, Python %.1f us: %.1f us more" % (
        ranks, command_us, python_us, python_us - command_us))


if __name__ == "__main__":
    main()
