#!/usr/bin/env python3
"""Measures rounding: trains a model in Paddle, again with a weight one unit in the last place off.

    bazel build //tests/data:deep_models //tests/data:small_models
    python tools/paddle/rounding_in_paddle.py bazel-bin/tests/data/resnet18_cifar [weight...]

Prints, for each weight (default: all parameters), the differences of the losses and the largest
difference of the final state from the undisturbed run. Another implementation cannot be expected to
come closer. Needs paddlepaddle 2.6 (CPU).
"""

import os
import sys

import numpy
import paddle
from paddle import static


class Model:
    def __init__(self, directory):
        def path(name):
            return os.path.join(directory, name)

        with open(path("main.pb"), "rb") as file:
            self.program = static.Program.parse_from_string(file.read())
        with open(path("persistables.txt")) as file:
            self.names = file.read().split()
        self.feeds = [{}]
        with numpy.load(path("feeds.npz")) as arrays:
            for key in arrays.files:
                step, name = key.split("/", 1)
                while len(self.feeds) <= int(step):
                    self.feeds.append({})
                self.feeds[int(step)][name] = arrays[key]
        ops = self.program.global_block().ops
        # The loss is what the backward pass begins with: op_role Backward | Loss.
        self.loss = [op.output("Out")[0] for op in ops if op.attr("op_role") == 0x101][0]
        self.loss = self.loss[:-len("@GRAD")]
        self.parameters = sorted({op.input("Param")[0] for op in ops if "Param" in op.input_names})
        self.load = static.Program()
        block = self.load.global_block()
        outputs = []
        for name in self.names:
            var = self.program.global_block().var(name)
            outputs.append(block.create_var(
                name=name, shape=var.shape, dtype=var.dtype, persistable=True))
        block.append_op(type="load_combine", inputs={}, outputs={"Out": outputs},
                        attrs={"file_path": path("init.params")})

    def train(self, moved=None):
        """Losses by step, and the state after the last one."""
        executor = static.Executor(paddle.CPUPlace())
        scope = paddle.base.core.Scope()
        with static.scope_guard(scope):
            executor.run(self.load)
            if moved is not None:
                tensor = scope.find_var(moved).get_tensor()
                moved_values = numpy.nextafter(numpy.array(tensor), numpy.float32(numpy.inf))
                tensor.set(moved_values, paddle.CPUPlace())
            losses = []
            for feed in self.feeds:
                loss, = executor.run(self.program, feed=feed, fetch_list=[self.loss])
                losses.append(float(loss.reshape(-1)[0]))
            state = {name: numpy.array(scope.find_var(name).get_tensor()) for name in self.names}
        return numpy.array(losses), state


def worst(found, expected):
    """The largest difference, relative to the largest element of its tensor, and its variable."""
    differences = []
    for name, value in expected.items():
        largest = numpy.abs(value.astype("float64")).max(initial=0)
        if largest > 0:
            difference = numpy.abs(found[name].astype("float64") - value).max() / largest
            differences.append((difference, name))
    return max(differences)


def main(directory, *moved):
    paddle.enable_static()
    model = Model(directory)
    losses, state = model.train()
    for name in moved or model.parameters:
        other_losses, other_state = model.train(name)
        relative = numpy.abs(other_losses - losses) / numpy.abs(losses)
        difference, where = worst(other_state, state)
        print(f"{name}: losses", " ".join(f"{r:.0e}" for r in relative),
              f"state {difference:.0e} ({where})")


if __name__ == "__main__":
    main(*sys.argv[1:])
