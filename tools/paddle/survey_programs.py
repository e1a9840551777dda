"""Writes the programs of tests/data/survey.tar.xz: small models, each with one thing that may make
ranks differ from one device, or that must not.

    python survey_programs.py DIRECTORY

needs Paddle 2.6. DIRECTORY/NAME gets main.pb, startup.pb and feeds.npz, three steps of eight rows.
tests/training/survey_test.cc runs them.
"""
import os
import sys

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import paddle.static as static

import export_program

STEPS, ROWS = 3, 8


def feed(name, shape, dtype="float32"):
    return static.data(name, shape, dtype)


def x(width=8):
    return feed("x", [-1, width])


def y(width=1):
    return feed("y", [-1, width])


def label():
    return feed("label", [-1, 1], "int64")


def state(name, shape, value=0.0, dtype="float32"):
    return static.create_global_var(shape, value, dtype, persistable=True, name=name)


def linear(value, width):
    return nn.Linear(value.shape[-1], width)(value)


def classes():
    return linear(x(), 4)


def squared_error(prediction):
    return F.mse_loss(prediction, y(prediction.shape[-1]))


# --- Losses -----------------------------------------------------------------------------------------


def sum_by_size():
    each = F.square_error_cost(linear(x(), 1), y())
    return paddle.sum(each) / paddle.cast(paddle.shape(each)[0], "float32")


def penalty_beside_sum():
    layer = nn.Linear(8, 1)
    error = F.mse_loss(layer(x()), y(), reduction="sum")
    return error + 0.01 * paddle.sum(paddle.square(layer.weight))


def contrastive():
    layer = nn.Linear(8, 4)
    a, b = F.normalize(layer(x())), F.normalize(layer(feed("other", [-1, 8])))
    size = paddle.shape(a)[0]
    own = paddle.unsqueeze(paddle.arange(0, size, 1, "int64"), 1)
    return F.cross_entropy(paddle.matmul(a, b, transpose_y=True) / 0.1, own)


def triplet():
    layer = nn.Linear(8, 4)
    return F.triplet_margin_loss(layer(x()), layer(feed("other", [-1, 8])),
                                 layer(feed("third", [-1, 8])))


def balanced_experts():
    data = x()
    gate = F.softmax(linear(data, 3))
    experts = paddle.stack([linear(data, 4) for _ in range(3)], 1)
    mixed = paddle.sum(paddle.unsqueeze(gate, -1) * experts, 1)
    share = paddle.mean(gate, 0)
    return F.cross_entropy(mixed, label()) + 0.1 * paddle.sum(share * share)


def centered():
    hidden = linear(x(), 8)
    return squared_error(linear(hidden - paddle.mean(hidden, axis=0, keepdim=True), 1))


def adversarial():
    generated = linear(F.relu(linear(feed("noise", [-1, 4]), 8)), 8)
    judge = nn.Linear(8, 1)
    real, fake, own = judge(x()), judge(generated.detach()), judge(generated)
    ones, zeros = paddle.ones_like(real), paddle.zeros_like(fake)
    loss = F.binary_cross_entropy_with_logits
    return loss(real, ones) + loss(fake, zeros) + loss(own, ones)


# --- States -----------------------------------------------------------------------------------------


def area_under_curve():
    score = F.sigmoid(linear(x(), 1))
    positive = feed("positive", [-1, 1], "int64")
    static.auc(paddle.concat([1 - score, score], 1), positive, num_thresholds=63)
    return F.binary_cross_entropy(score, paddle.cast(positive, "float32"))


def counts():
    logits, target = classes(), label()
    right = paddle.equal(paddle.argmax(logits, -1, keepdim=True), target)
    correct, total = state("correct", [1], 0, "int64"), state("total", [1], 0, "int64")
    paddle.assign(correct + paddle.sum(paddle.cast(right, "int64")), correct)
    paddle.assign(total + paddle.cast(paddle.shape(target)[0:1], "int64"), total)
    return F.cross_entropy(logits, target)


def mean_of_losses():
    loss = squared_error(linear(x(), 1))
    mean = state("mean", [1])
    paddle.assign(0.9 * mean + 0.1 * paddle.reshape(loss, [1]), mean)
    return loss


def running_center():
    hidden = linear(x(), 4)
    center = state("center", [4])
    loss = squared_error(linear(hidden - center, 1))
    paddle.assign(0.9 * center + 0.1 * paddle.mean(hidden, axis=0), center)
    return loss


def reward_normalization():
    reward = y()
    mean, variance = state("mean", [1]), state("variance", [1], 1.0)
    paddle.assign(0.9 * mean + 0.1 * paddle.mean(reward), mean)
    paddle.assign(0.9 * variance + 0.1 * paddle.var(reward), variance)
    return F.mse_loss(linear(x(), 1), (reward - mean) / paddle.sqrt(variance + 1e-5))


def codebook():
    hidden = linear(x(), 4)
    book, sizes = state("book", [4, 6]), state("sizes", [6], 1.0)
    distance = paddle.sum(hidden * hidden, 1, keepdim=True) - 2 * paddle.matmul(hidden, book)
    nearest = F.one_hot(paddle.argmin(distance, -1), 6)
    quantized = paddle.matmul(nearest, book, transpose_y=True)
    paddle.assign(0.9 * sizes + 0.1 * paddle.sum(nearest, 0), sizes)
    added = paddle.matmul(hidden.detach(), nearest, transpose_x=True)
    paddle.assign(0.9 * book + 0.1 * added, book)
    return squared_error(linear(hidden + (quantized - hidden).detach(), 1))


def queue():
    key = linear(feed("other", [-1, 8]), 4).detach()
    query = linear(x(), 4)
    keys = state("keys", [4, 16], 0.1)
    logits = paddle.concat([paddle.sum(query * key, 1, keepdim=True), paddle.matmul(query, keys)], 1)
    loss = F.cross_entropy(logits, paddle.zeros_like(label()))
    paddle.assign(paddle.concat([paddle.transpose(key, [1, 0]), keys], 1)[:, :16], keys)
    return loss


def weight_by_hand():
    data, weight = x(), state("weight", [8, 1], 0.1)
    weight.stop_gradient = False
    loss = squared_error(paddle.matmul(data, weight) + linear(data, 1))
    gradient, = static.gradients(loss, weight)
    paddle.assign(weight - 0.1 * gradient, weight)
    return loss


def target_network():
    data, layer, target = x(), nn.Linear(8, 1), state("target", [8, 1], 0.1)
    loss = F.mse_loss(layer(data), y() + 0.9 * paddle.matmul(data, target))
    paddle.assign(0.99 * target + 0.01 * layer.weight, target)
    return loss


# --- Branches and loops -----------------------------------------------------------------------------


def branch_on_batch():
    loss = squared_error(linear(x(), 1))
    other = paddle.mean(feed("other", [-1, 1]))
    return static.nn.cond(other > 0, lambda: loss * 2, lambda: loss)


def branch_on_step():
    hidden, step = linear(x(), 8), state("step", [1], 0, "int64")
    paddle.assign(step + 1, step)
    is_even = paddle.mod(step, paddle.full([1], 2, "int64")) == 0
    return squared_error(linear(static.nn.cond(is_even, lambda: F.relu(hidden), lambda: hidden), 1))


def recurrent():
    outputs, _ = nn.RNN(nn.LSTMCell(8, 8))(feed("sequence", [-1, 5, 8]))
    return squared_error(linear(paddle.mean(outputs, 1), 1))


def time_major():
    _, last = nn.SimpleRNN(6, 8, time_major=True)(feed("steps", [4, -1, 6]))
    return squared_error(linear(last[0], 1))


# --- Shapes -----------------------------------------------------------------------------------------


def attention():
    words = feed("words", [-1, -1], "int64")
    hidden = nn.Embedding(20, 8)(words)
    rows, length = paddle.shape(words)[0], paddle.shape(words)[1]

    def heads(value):
        return paddle.transpose(paddle.reshape(linear(value, 8), [rows, length, 2, 4]), [0, 2, 1, 3])

    scores = F.softmax(paddle.matmul(heads(hidden), heads(hidden), transpose_y=True))
    mixed = paddle.transpose(paddle.matmul(scores, heads(hidden)), [0, 2, 1, 3])
    return F.cross_entropy(linear(paddle.reshape(mixed, [rows, length, 8]), 20),
                           feed("next", [-1, -1, 1], "int64"))


def class_token():
    words = feed("sequence", [-1, 5, 8])
    token = paddle.create_parameter([1, 1, 8], "float32")
    token = paddle.expand(token, [paddle.shape(words)[0], 1, 8])
    return squared_error(linear(paddle.mean(paddle.concat([token, words], 1), 1), 1))


def smoothed():
    target = F.label_smooth(F.one_hot(paddle.reshape(label(), [-1]), 4))
    return F.cross_entropy(classes(), target, soft_label=True)


def weighted():
    return F.cross_entropy(classes(), label(),
                           weight=paddle.assign(np.array([1, 2, 3, 4], "float32")))


def masked():
    each = F.square_error_cost(linear(x(), 1), y())
    return paddle.mean(paddle.masked_select(each, feed("other", [-1, 1]) > 0))


def gradient_merge():
    return paddle.incubate.optimizer.GradientMergeOptimizer(paddle.optimizer.Momentum(0.1, 0.9), 2)


def cross_entropy(**options):
    return lambda: F.cross_entropy(classes(), label(), **options)


def error_of(prediction):
    return lambda: squared_error(prediction())


# name: loss, or loss and optimizer.
MODELS = {
    "adversarial": adversarial,
    "area_under_curve": area_under_curve,
    "attention": attention,
    "balanced_experts": balanced_experts,
    "batch_norm": lambda: F.cross_entropy(linear(nn.BatchNorm1D(8)(x()), 4), label()),
    "branch_on_batch": branch_on_batch,
    "branch_on_step": branch_on_step,
    "centered": centered,
    "class_token": class_token,
    "clipped": (cross_entropy(),
                lambda: paddle.optimizer.SGD(0.1, grad_clip=nn.ClipGradByGlobalNorm(0.1))),
    "codebook": codebook,
    "contrastive": contrastive,
    "counts": counts,
    "dropout": lambda: F.cross_entropy(linear(F.dropout(x(), 0.5), 4), label()),
    "huber_sum": lambda: F.smooth_l1_loss(linear(x(), 1), y(), reduction="sum"),
    "ignored_labels": cross_entropy(ignore_index=0),
    "largest_error": lambda: paddle.max(F.square_error_cost(linear(x(), 1), y())),
    "masked": masked,
    "mean": cross_entropy(),
    "mean_adam": (cross_entropy(), lambda: paddle.optimizer.Adam(0.01)),
    "mean_merged": (cross_entropy(), gradient_merge),
    "mean_of_losses": mean_of_losses,
    "noise": lambda: squared_error(linear(x() + 0.1 * paddle.uniform(paddle.shape(x_again())), 1)),
    "norm_of_errors": lambda: paddle.norm(linear(x(), 1) - y()),
    "penalty_beside_sum": penalty_beside_sum,
    "queue": queue,
    "recurrent": recurrent,
    "reward_normalization": reward_normalization,
    "root_of_mean": lambda: paddle.sqrt(squared_error(linear(x(), 1))),
    "running_center": running_center,
    "smoothed": smoothed,
    "sum": cross_entropy(reduction="sum"),
    "sum_by_size": sum_by_size,
    "sum_merged": (cross_entropy(reduction="sum"), gradient_merge),
    "target_network": target_network,
    "time_major": time_major,
    "triplet": triplet,
    "weight_by_hand": weight_by_hand,
    "weighted": weighted,
}


def x_again():
    return static.default_main_program().global_block().var("x")


def batch(main):
    """One feed for every data variable, the same for variables of one kind."""
    batches = []
    for step in range(STEPS):
        feeds = {}
        for var in main.global_block().vars.values():
            if not var.desc.need_check_feed():
                continue
            unknown = [ROWS, 6] if var.shape[0] == -1 else [ROWS]
            shape = [unknown.pop(0) if size == -1 else size for size in var.shape]
            random = np.random.default_rng(step)
            whole = {"positive": 2, "label": 4}.get(var.name, 20)
            feeds[var.name] = (random.integers(0, whole, shape) if var.dtype == paddle.int64 else
                               random.standard_normal(shape).astype("float32"))
        batches.append(feeds)
    return batches


def without_callstacks(program):
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("op_callstack"):
                op._remove_attr("op_callstack")
    return program


def main(directory):
    paddle.enable_static()
    for name, model in MODELS.items():
        loss, optimizer = model if isinstance(model, tuple) else (model, None)
        program, startup = static.Program(), static.Program()
        startup.random_seed = 7
        with paddle.utils.unique_name.guard(), static.program_guard(program, startup):
            made = (optimizer or (lambda: paddle.optimizer.SGD(0.1)))()
            made.minimize(loss(), startup)
        export_program.export(os.path.join(directory, name), without_callstacks(program),
                              without_callstacks(startup), feeds=batch(program), params=None)


if __name__ == "__main__":
    main(sys.argv[1])
