#!/usr/bin/env python3
"""Trains in Weft, loads the parameters into Paddle, and compares the next losses of both.

usage: params_in_paddle.py WEFT MODEL

MODEL is a directory with main.pb, startup.pb and feeds.npz, such as tests/data/fit_a_line. Needs
PaddlePaddle 2.6.2.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import paddle

WEFT, MODEL = sys.argv[1], sys.argv[2]
STEPS = 5
paddle.enable_static()


def path(name):
    return os.path.join(MODEL, name)


def program(name):
    with open(path(name), "rb") as file:
        return paddle.static.Program.parse_from_string(file.read())


def weft(*args):
    subprocess.run([WEFT, "run", path("main.pb"), "--feeds", path("feeds.npz"), *args], check=True,
                   stdout=subprocess.DEVNULL)


def losses_of_paddle(load):
    """The losses of the steps after the first STEPS, from what `load(main, exe)` loads."""
    main, startup = program("main.pb"), program("startup.pb")
    for var in main.list_vars():
        var.desc.set_is_parameter(var.name.endswith((".w_0", ".b_0")))
    batches = numpy.load(path("feeds.npz"))
    names = sorted({name.split("/", 1)[1] for name in batches.files})
    loss = [op for op in main.global_block().ops if op.attr("op_role") == 256][0]
    with paddle.static.scope_guard(paddle.static.Scope()):
        exe = paddle.static.Executor(paddle.CPUPlace())
        exe.run(startup)
        load(main, exe)
        return [float(exe.run(main, feed={n: batches["%d/%s" % (step, n)] for n in names},
                              fetch_list=[loss.output("Out")[0]])[0])
                for step in range(STEPS, 2 * STEPS)]


def main():
    with tempfile.TemporaryDirectory() as directory:
        file = lambda name: os.path.join(directory, name)
        start = ["--startup", path("startup.pb"), "--seed", "7"]
        weft(*start, "--steps", str(2 * STEPS), "--metrics", file("metrics.jsonl"))
        with open(file("metrics.jsonl")) as lines:
            expected = [next(iter(json.loads(line)["fetch"].values()))[0] for line in lines][STEPS:]
        for name in ("w.pdparams", "w.npz", "w.combine"):
            weft(*start, "--steps", str(STEPS), "--save", file(name))
        ways = {
            "static.load": lambda main, exe: paddle.static.load(main, file("w"), exe),
            "set_program_state, .pdparams": lambda main, exe: paddle.static.set_program_state(
                main, paddle.static.load_program_state(file("w"))),
            "set_program_state, .npz": lambda main, exe: paddle.static.set_program_state(
                main, dict(numpy.load(file("w.npz")))),
            "load_vars, save_combine": lambda main, exe: paddle.static.load_vars(
                exe, directory, main, filename="w.combine",
                vars=[var for var in main.list_vars() if var.persistable]),
        }
        failed = False
        for way, load in ways.items():
            found = losses_of_paddle(load)
            worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
            failed = failed or worst > 1e-5
            print("%-32s %s, largest relative difference %.1e" % (
                way, "failed" if worst > 1e-5 else "passed", worst))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
