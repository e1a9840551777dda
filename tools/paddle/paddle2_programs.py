"""Writes programs of tests/data/paddle2_6_programs.tar.xz: small models of Paddle 2.6 with loops.

    PYTHON paddle2_programs.py DIRECTORY [NAME...]

needs Paddle 2.6.2. DIRECTORY/NAME gets main.pb and startup.pb, without the places in this script that
ops come from, init.npz, feeds.npz and paddle.npz (program_files.train), four steps of eight rows.
tests/training/trained_programs_test.cc runs them.
"""
import os
import sys

import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import paddle.static as static

from program_files import ROWS, Models, floats, integers, save_pair, steps, train

WORDS = 20
model = MODELS = Models()


def classify(hidden, y):
    return paddle.mean(F.softmax_with_cross_entropy(static.nn.fc(hidden, 5), y))


def repeat(times, body, *carried):
    """What body(*carried) carries after so many iterations."""
    i, last = paddle.zeros([1], "int64"), paddle.full([1], times, "int64")
    return static.nn.while_loop(lambda i, *_: i < last, lambda i, *now: [i + 1, *body(*now)],
                                [i, *carried])[1:]


@model
def sums_in_loops():
    """Paddle gives the first sums, which are zeros, no gradient; what the loop adds to them has one."""
    x = static.data("x", [None, 8], "float32")
    y = static.data("y", [None, 1], "int64")
    layer, h = nn.Linear(8, 8), static.nn.fc(x, 8)
    h, sums = repeat(3, lambda h, sums: [paddle.tanh(layer(h) + layer(sums)), sums + h * h], h,
                     paddle.zeros_like(h))
    paddle.optimizer.SGD(0.1).minimize(classify(h + sums, y))
    return steps(x=lambda: floats(8), y=lambda: integers(0, 5, 1))


class Teacher(nn.decode.Decoder):
    """Reads the words of the target, whatever the scores are."""

    tracks_own_finished = False

    def __init__(self, cell, scores, words):
        self.cell, self.scores, self.words = cell, scores, words

    def initialize(self, inits):
        return self.words[:, 0], inits, paddle.zeros_like(self.words[:, 0, 0]).astype("bool")

    def step(self, time, inputs, states, **kwargs):
        hidden, states = self.cell(inputs, states)
        time = time + 1
        word = paddle.squeeze(paddle.slice(self.words, [1], [time], [time + 1]), 1)
        is_last = time >= self.words.shape[1] - 1
        return self.scores(hidden), states, word, paddle.zeros_like(word[:, 0]).astype("bool") | is_last


class Attention(nn.Layer):
    def __init__(self, cell, encoded):
        super().__init__()
        self.cell, self.encoded, self.joined = cell, encoded, nn.Linear(16, 8)

    def forward(self, inputs, states):
        hidden, states = self.cell(inputs, states)
        weights = F.softmax(paddle.matmul(hidden.unsqueeze(1), self.encoded, transpose_y=True))
        context = paddle.squeeze(paddle.matmul(weights, self.encoded), 1)
        return paddle.tanh(self.joined(paddle.concat([context, hidden], 1))), states


def translate(has_attention):
    source = static.data("source", [None, 6], "int64")
    target = static.data("target", [None, 5], "int64")
    table = nn.Embedding(WORDS, 8)
    encoded, states = nn.LSTM(8, 8)(table(source))
    cell = nn.LSTMCell(8, 8)
    cell = Attention(cell, encoded) if has_attention else cell
    decoder = Teacher(cell, nn.Linear(8, WORDS), table(target))
    scores, _ = nn.dynamic_decode(decoder, inits=[paddle.squeeze(state, 0) for state in states])
    loss = F.softmax_with_cross_entropy(scores, paddle.unsqueeze(target[:, 1:], [2]))
    paddle.optimizer.Adam(0.01).minimize(paddle.mean(loss))
    return steps(source=lambda: integers(0, WORDS, 6), target=lambda: integers(0, WORDS, 5))


@model
def decoder():
    return translate(has_attention=False)


@model
def attention():
    return translate(has_attention=True)


@model
def picked_columns():
    """Paddle's CPU kernel gives all rows the gradient of the first one."""
    x = static.data("x", [None, 6, 8], "float32")
    y = static.data("y", [None, 1], "int64")
    hidden = static.nn.fc(x, 8, num_flatten_dims=2, activation="tanh")
    picked = paddle.gather(hidden, paddle.to_tensor([4, 1, 4], "int64"), axis=1)
    paddle.optimizer.SGD(0.1).minimize(classify(paddle.flatten(picked, 1), y))
    return steps(x=lambda: floats(6, 8), y=lambda: integers(0, 5, 1))


def write(name, directory):
    main, startup = static.Program(), static.Program()
    startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        feeds = MODELS[name]()
    save_pair(main, startup, directory)
    train(main, startup, feeds, directory)


if __name__ == "__main__":
    paddle.enable_static()
    for chosen in sys.argv[2:] or MODELS:
        write(chosen, os.path.join(sys.argv[1], chosen))
