"""Writes programs of tests/data/paddle2_6_embeddings.tar.xz: small models whose tables
static.nn.sparse_embedding declares.

    PYTHON embedding_programs.py DIRECTORY [NAME...]

needs Paddle 2.6.2. DIRECTORY/NAME gets main.pb and startup.pb, without the places in this script that
ops come from, init.npz (variables before the first step), feeds.npz (four steps of eight rows) and
paddle.npz (variables after the last step). Paddle itself trains such tables on servers alone, so
paddle.npz is of the same model with static.nn.embedding, whose gradients have rows, too.
tests/training/embedding_programs_test.cc runs them.
"""
import os
import sys

import paddle

from program_files import Models, floats, integers, save_pair, steps, train

IDS = 40
model = MODELS = Models()


def dense_table(ids, name, size, padding=None, **_):
    rows = paddle.static.nn.embedding(ids, size, is_sparse=True, padding_idx=padding,
                                      param_attr=paddle.ParamAttr(name=name))
    return paddle.squeeze(rows, axis=[-2])  # the last dimension of ids


def sparse_table(ids, name, size, padding=None, **more):
    return paddle.static.nn.sparse_embedding(ids, size, padding_idx=padding,
                                             param_attr=paddle.ParamAttr(name=name), **more)


def classify(features, y):
    hidden = paddle.static.nn.fc(features, 8, activation="tanh")
    scores = paddle.static.nn.fc(hidden, 3)
    return paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(scores, y))


@model
def sgd(table):
    ids = paddle.static.data("ids", [None, 2, 1], "int64")
    y = paddle.static.data("y", [None, 1], "int64")
    rows = paddle.reshape(table(ids, "table", [IDS, 4]), [-1, 8])
    paddle.optimizer.SGD(0.1).minimize(classify(rows, y))
    return steps(ids=lambda: integers(0, IDS, 2, 1), y=lambda: integers(0, 3, 1))


@model
def adam_padding(table):
    ids = paddle.static.data("ids", [None, 3, 1], "int64")
    x = paddle.static.data("x", [None, 4], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    rows = paddle.sum(table(ids, "table", [IDS, 4], padding=0), axis=1)
    features = paddle.concat([rows, x], axis=1)
    paddle.optimizer.Adam(0.01).minimize(classify(features, y))
    return steps(ids=lambda: integers(0, IDS, 3, 1), x=lambda: floats(4), y=lambda: integers(0, 3, 1))


@model
def lazy_adam_entries(table):
    ids = paddle.static.data("ids", [None, 1], "int64")
    y = paddle.static.data("y", [None, 1], "int64")
    entry = paddle.distributed.CountFilterEntry(2)
    rows = paddle.concat([table(ids, "users", [IDS, 4], entry=entry),
                          table(y, "items", [3, 4])], axis=1)
    paddle.optimizer.Adam(0.01, lazy_mode=True).minimize(classify(rows, y))
    return steps(ids=lambda: integers(0, IDS, 1), y=lambda: integers(0, 3, 1))


def build(name, table):
    main, startup = paddle.static.Program(), paddle.static.Program()
    startup.random_seed = 1
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        feeds = MODELS[name](table)
    return main, startup, feeds


def write(name, directory):
    main, startup, _ = build(name, sparse_table)
    save_pair(main, startup, directory)
    main, startup, feeds = build(name, dense_table)
    train(main, startup, feeds, directory)


if __name__ == "__main__":
    paddle.enable_static()
    for chosen in sys.argv[2:] or MODELS:
        write(chosen, os.path.join(sys.argv[1], chosen))
