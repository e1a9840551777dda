#!/usr/bin/env python3
"""A script builds a model in Paddle, exports it, and weft run trains it as Paddle does.

usage: export_in_paddle_test.py WEFT TRANSPILE

Needs Python with PaddlePaddle 2.6.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import paddle

import export_program

WEFT, TRANSPILE = sys.argv[1], sys.argv[2]
STEPS = 6


def build():
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [-1, 13], "float32")
        y = paddle.static.data("y", [-1, 1], "float32")
        hidden = paddle.static.nn.fc(x, 8, activation="relu")
        loss = paddle.mean(paddle.nn.functional.square_error_cost(
            paddle.static.nn.fc(hidden, 1), y))
        schedule = paddle.optimizer.lr.LinearWarmup(
            paddle.optimizer.lr.CosineAnnealingDecay(0.05, 8), 3, 0.01, 0.05)
        paddle.optimizer.Adam(schedule).minimize(loss)
    return main, startup, loss, schedule


def build_with_blocks():
    """A loop over data, and a branch that gradients go through."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [-1, 13], "float32")
        y = paddle.static.data("y", [-1, 1], "float32")
        count = paddle.full([1], 0, dtype="int64")
        _, factor = paddle.static.nn.while_loop(
            lambda count, factor: count < 3,
            lambda count, factor: [count + 1, factor * 0.5 + 0.1 * paddle.mean(x)],
            [count, paddle.full([1], 1.0)])
        prediction = paddle.static.nn.fc(x, 1)
        error = paddle.nn.functional.square_error_cost(prediction, y)
        loss = paddle.mean(paddle.static.nn.cond(
            paddle.mean(prediction) < 0, lambda: error * factor, lambda: error * error))
        paddle.optimizer.SGD(0.01).minimize(loss)
    return main, startup, loss


def losses_of_weft(command, directory):
    metrics = os.path.join(directory, "metrics.jsonl")
    subprocess.run([WEFT, *command[1:], "--metrics", metrics], check=True,
                   stdout=subprocess.DEVNULL)
    ranks = {}
    with open(metrics, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            ranks.setdefault(line["step"], []).append(*line["fetch"].values())
    return [numpy.mean(ranks[step]) for step in sorted(ranks)]


def main_test(directory):
    paddle.enable_static()
    main, startup, loss, schedule = build()
    rng = numpy.random.default_rng(0)
    # The last batch is smaller.
    sizes = [20] * (STEPS - 1) + [8]
    feeds = [{"x": rng.standard_normal((n, 13), dtype=numpy.float32),
              "y": rng.standard_normal((n, 1), dtype=numpy.float32)} for n in sizes]
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    exported = os.path.join(directory, "exported")
    command = export_program.export(exported, main, startup, feeds)
    combined = export_program.export(os.path.join(directory, "combined"), main, startup, feeds,
                                     params="combine")
    expected = []
    for feed in feeds:
        expected.append(exe.run(main, feed=feed, fetch_list=[loss])[0])
        schedule.step()

    numpy.testing.assert_allclose(losses_of_weft(command, directory), expected, rtol=1e-5)
    numpy.testing.assert_allclose(losses_of_weft(combined, directory), expected, rtol=1e-5)

    out = [os.path.join(directory, name) for name in ("main.pb", "startup.pb")]
    subprocess.run([TRANSPILE, "--mode", "grad_allreduce", "--startup_in", command[4],
                    "--startup_out", out[1], command[2], out[0]], check=True)
    two_ranks = [*command, "--ranks", "2"]
    two_ranks[2], two_ranks[4] = out
    numpy.testing.assert_allclose(losses_of_weft(two_ranks, directory), expected, rtol=1e-5)
    main, startup, loss = build_with_blocks()
    with paddle.static.scope_guard(paddle.static.Scope()):
        exe.run(startup)
        command = export_program.export(os.path.join(directory, "blocks"), main, startup, feeds)
        of_blocks = [exe.run(main, feed=feed, fetch_list=[loss])[0] for feed in feeds]
    numpy.testing.assert_allclose(
        losses_of_weft(command + ["--fetch", loss.name], directory), of_blocks, rtol=1e-5)

    print("losses of %d steps: %s" % (STEPS, numpy.array(expected)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main_test(folder)
