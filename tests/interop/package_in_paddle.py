#!/usr/bin/env python3
"""The Python package in one process with Paddle: programs come from Paddle, and go back.

usage: WEFT_C_LIBRARY=libweft_c.so package_in_paddle.py
"""
import os
import sys

import numpy as np
import paddle

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import weft  # pylint: disable=wrong-import-position

STEPS = 5


def build():
    """A linear regression with a schedule."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [-1, 13], "float32")
        y = paddle.static.data("y", [-1, 1], "float32")
        prediction = paddle.static.nn.fc(paddle.static.nn.fc(x, 8, activation="relu"), 1)
        loss = paddle.mean(paddle.nn.functional.square_error_cost(prediction, y))
        paddle.optimizer.SGD(paddle.optimizer.lr.StepDecay(0.01, 100)).minimize(loss)
    return main, startup, loss


def losses_in_paddle(main, startup, loss, batches):
    """Of so many steps; and the parameters with which they began."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(startup)
    scope = paddle.static.global_scope()
    names = [one.name for one in main.all_parameters()] if hasattr(main, "all_parameters") else [
        one.name for one in main.global_block().all_parameters()]
    begin = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    return [float(np.mean(executor.run(main, feed=batch, fetch_list=[loss])[0]))
            for batch in batches], begin


def main():
    """Compares what Paddle and Weft train, and loads what Weft has rewritten."""
    paddle.enable_static()
    program, startup, loss = build()
    generator = np.random.default_rng(0)
    batches = [{"x": generator.standard_normal((20, 13), dtype=np.float32),
                "y": generator.standard_normal((20, 1), dtype=np.float32)} for _ in range(STEPS)]
    out = weft.transpile(program, startup, mode="grad_allreduce")
    weft.verify(out, original=program).raise_if_wrong()
    expected, begin = losses_in_paddle(program, startup, loss, batches)
    for ranks in (1, 2):
        with weft.Run(out, ranks=ranks, params=begin) as run:
            found = [float(run.step(batch)[0]) for batch in batches]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    back = out.main.to_paddle()
    weft.verify(back).raise_if_wrong()  # without the schedule of the rate, which PIR does not keep
    print("Paddle %s, %s: losses of %d steps on 1 and 2 ranks are Paddle's; the rewritten program that Paddle loaded is verified" % (
        paddle.__version__, out.main.format, STEPS))


if __name__ == "__main__":
    main()
