"""Writes programs of tests/data/paddle1_more_programs.tar.xz: small models of Paddle 1.8, each with a
few ops, a loss and an optimizer.

    python3.7 paddle1_programs.py DIRECTORY [NAME...]

needs Paddle 1.8.5 with "protobuf<3.21" and "numpy<1.20". DIRECTORY/NAME gets main.pb and startup.pb,
without the places in this script that ops come from. What 1.8.5 runs on one CPU from arrays also gets
init.npz (variables before the first step), feeds.npz (four steps of eight rows) and paddle.npz
(variables after the last step). tests/training/trained_programs_test.cc runs them.
"""
import os
import sys

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.proto import framework_pb2

ROWS, STEPS = 8, 4
draw = np.random.RandomState(0)
optimizers, contrib = fluid.optimizer, fluid.contrib.layers
MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


def floats(*shape):
    return draw.randn(ROWS, *shape).astype("float32")


def integers(low, high, *shape):
    return draw.randint(low, high, (ROWS,) + shape).astype("int64")


def steps(**make):
    return [{name: of() for name, of in make.items()} for _ in range(STEPS)]


def x_and_y(*shape):
    shape = shape or (16,)
    x = fluid.data("x", [None] + list(shape), "float32")
    y = fluid.data("y", [None, 1], "int64")
    return x, y, steps(x=lambda: floats(*shape), y=lambda: integers(0, 5, 1))


def classify(hidden, y):
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 5), y))


def size(x):
    return layers.mean(layers.square(x))


def sgd(loss, rate=0.1):
    optimizers.SGD(rate).minimize(loss)


# --- Functions of one tensor ---------------------------------------------------------------------


def functions(names):
    x, y, feeds = x_and_y()
    sgd(classify(layers.concat([getattr(layers, f)(layers.fc(x, 4)) for f in names], axis=1), y))
    return feeds


@model
def activations():
    return functions(["sigmoid", "logsigmoid", "exp", "tanh", "tanh_shrink", "softshrink", "abs",
                      "cos", "sin", "softplus", "softsign", "relu", "relu6", "elu", "leaky_relu",
                      "gelu", "selu"])


@model
def more_activations():
    return functions(["hard_sigmoid", "hard_swish", "swish", "brelu", "hard_shrink", "soft_relu",
                      "stanh", "thresholded_relu", "atan", "erf", "square", "ceil", "floor",
                      "round"])


@model
def fused_activations():
    x, y, feeds = x_and_y()
    fuse = contrib.fused_elemwise_activation

    def row():
        return layers.create_parameter([6], "float32")

    parts = [fuse(layers.fc(x, 6), layers.fc(x, 6), ["elementwise_add", "relu"]),
             fuse(layers.fc(x, 6), row(), ["tanh", "elementwise_add"], axis=1),
             fuse(layers.fc(x, 6), row(), ["elementwise_mul", "scale"], scale=0.5),
             fuse(layers.fc(x, 6), layers.fc(x, 6), ["scale", "elementwise_add"], scale=-0.5,
                  save_intermediate_out=False)]
    sgd(classify(layers.concat(parts, axis=1), y))
    return feeds


# --- Losses --------------------------------------------------------------------------------------


@model
def losses():
    x = fluid.data("x", [None, 16], "float32")
    y = fluid.data("y", [None, 1], "float32")
    z = fluid.data("z", [None, 4], "float32")
    p, q, s = layers.fc(x, 1), layers.fc(x, 4), layers.sigmoid(layers.fc(x, 1))
    logarithms = layers.log(layers.softmax(q))
    means = [layers.square_error_cost(p, y), layers.huber_loss(p, y, 0.7), layers.smooth_l1(q, z),
             layers.log_loss(s, y), layers.sigmoid_cross_entropy_with_logits(p, y),
             layers.margin_rank_loss(y, p, s), layers.rank_loss(y, p, s),
             layers.teacher_student_sigmoid_loss(p, y)]
    loss = layers.mse_loss(p, y)
    for values in means:
        loss = loss + layers.mean(values)
    for reduction in ["batchmean", "mean"]:
        loss = loss + layers.kldiv_loss(logarithms, layers.softmax(z), reduction)
    sgd(loss, 0.02)
    return steps(x=lambda: floats(16), y=lambda: (draw.rand(ROWS, 1) > 0.5).astype("float32"),
                 z=lambda: floats(4))


@model
def row_statistics():
    """The optimizer changes the statistics by what the rows of the batch add to them."""
    x, y, feeds = x_and_y()
    known = layers.data_norm(x, param_attr={"batch_size": 10.0, "batch_sum": 0.5, "batch_square": 9.0})
    made = layers.data_norm(layers.fc(x, 6), name="made")
    sgd(classify(layers.concat([known, made], axis=1), y), 0.01)
    return feeds


@model
def class_losses():
    x, y, feeds = x_and_y()
    p = layers.softmax(layers.fc(x, 5))
    smooth = layers.label_smooth(layers.one_hot(y, 5), epsilon=0.1)
    loss = layers.mean(layers.cross_entropy(p, y, ignore_index=2)) + layers.mean(
        layers.bpr_loss(p, y)) + layers.dice_loss(p, y)
    loss = loss + layers.mean(layers.cross_entropy(p, smooth, soft_label=True)) + layers.mean(
        layers.softmax_with_cross_entropy(layers.fc(x, 5), smooth, soft_label=True))
    sgd(loss)
    return feeds


@model
def ignored_labels():
    x = fluid.data("x", [None, 4, 6, 6], "float32")
    y = fluid.data("y", [None, 1, 6, 6], "int64")
    loss = layers.softmax_with_cross_entropy(layers.conv2d(x, 5, 3, padding=1), y, axis=1,
                                             ignore_index=0)
    sgd(layers.mean(loss))
    return steps(x=lambda: floats(4, 6, 6), y=lambda: integers(0, 5, 1, 6, 6))


@model
def random_field():
    x = fluid.data("x", [None, 6, 16], "float32")
    tags = fluid.data("tags", [None, 6, 1], "int64")
    length = fluid.data("length", [None, 1], "int64")
    weights = fluid.ParamAttr("chain")
    scores = layers.fc(x, 5, num_flatten_dims=2)
    loss = layers.linear_chain_crf(scores, tags, param_attr=weights, length=length)
    layers.crf_decoding(scores, weights, length=length)
    sgd(layers.mean(loss))
    return steps(x=lambda: floats(6, 16), tags=lambda: integers(0, 5, 6, 1),
                 length=lambda: integers(1, 7, 1))


@model
def focal_loss():
    x = fluid.data("x", [None, 16], "float32")
    y = fluid.data("y", [None, 1], "int32")
    one = layers.fill_constant([1], "int32", 1)
    sgd(layers.mean(layers.sigmoid_focal_loss(layers.fc(x, 4), y, one, gamma=1.5, alpha=0.4)))
    return steps(x=lambda: floats(16), y=lambda: integers(-1, 5, 1).astype("int32"))


def center_loss(is_updated):
    x, y, feeds = x_and_y()
    h = layers.fc(x, 6)
    start = fluid.initializer.Uniform(-1, 1)
    loss = layers.center_loss(h, y, 5, 0.2, fluid.ParamAttr("centers", initializer=start),
                              is_updated)
    sgd(classify(h, y) + layers.mean(loss))
    return feeds


@model
def moving_centers():
    return center_loss(True)


@model
def fixed_centers():
    return center_loss(False)


@model
def given_samples():
    x, y, feeds = x_and_y()
    samples = fluid.data("samples", [None, 9], "int64")
    probabilities = fluid.data("probabilities", [None, 9], "float32")
    loss = layers.sampled_softmax_with_cross_entropy(
        layers.fc(x, 20), y, 8, use_customized_samples=True, customized_samples=samples,
        customized_probabilities=probabilities)
    sgd(layers.mean(loss))
    for step in feeds:
        step["samples"] = np.concatenate([step["y"], integers(0, 20, 8)], axis=1)
        step["probabilities"] = (0.1 + 0.5 * draw.rand(ROWS, 9)).astype("float32")
    return feeds


@model
def drawn_samples():
    x, y, feeds = x_and_y()
    sgd(layers.mean(layers.sampled_softmax_with_cross_entropy(layers.fc(x, 20), y, 8)))
    return feeds


# --- Tensors rearranged --------------------------------------------------------------------------


@model
def moves():
    x, y, feeds = x_and_y()
    h = layers.fc(x, 12)
    a = layers.transpose(layers.reshape(h, [-1, 3, 4]), [0, 2, 1])
    b = layers.unstack(layers.stack([a, a], axis=1), axis=1)[0]
    c = layers.expand(layers.squeeze(layers.unsqueeze(b, [1]), [1]), [1, 2, 1])
    d = layers.pad(layers.split(c, 2, dim=1)[0], [0, 0, 1, 0, 0, 1])
    m = layers.flatten(d, axis=1)
    s = layers.slice(m, [1], [1], [9])
    strided = layers.strided_slice(m, [1], [0], [10], [2])
    picked = layers.gather(layers.transpose(m, [1, 0]), layers.assign(np.array([1, 3], "int32")))
    top, _ = layers.topk(m, 3)
    wide = layers.expand(layers.fc(x, 1), [1, 12])
    parts = [s, strided, layers.reverse(s, axis=1), layers.transpose(picked, [1, 0]), top,
             layers.argsort(m)[0], layers.elementwise_max(h, wide), layers.elementwise_min(h, wide)]
    sgd(classify(layers.concat(parts, axis=1), y))
    return feeds


@model
def products():
    x, y, feeds = x_and_y()
    h = layers.fc(x, 12)
    table = layers.create_parameter([6, 4], "float32")
    parts = [layers.gather(table, layers.cast(layers.reshape(y, [-1]), "int32")),
             layers.matmul(h, layers.create_parameter([5, 12], "float32"), transpose_y=True),
             layers.bilinear_tensor_product(layers.fc(x, 3), layers.fc(x, 4), 5),
             layers.cos_sim(layers.fc(x, 4), layers.fc(x, 4))]
    sgd(classify(layers.concat(parts, axis=1), y))
    return feeds


@model
def partial_columns():
    x, y, feeds = x_and_y()
    a, b = layers.fc(x, 8), layers.fc(x, 8)
    parts = [contrib.partial_concat([a, b], 2, 3), contrib.partial_sum([a, b], 1, 4),
             contrib.partial_concat([a, b], -3, -1)]
    sgd(classify(layers.concat(parts, axis=1), y))
    return feeds


@model
def distinct_numbers():
    x, y, feeds = x_and_y()
    numbers = layers.reshape(y, [-1])
    for kept in [*layers.unique(numbers, "int64"), *layers.unique_with_counts(numbers, "int64")]:
        kept.persistable = True
    sgd(classify(x, y))
    return feeds


@model
def chosen_rows():
    x, y, feeds = x_and_y()
    which = layers.cast(layers.less_than(y, layers.fill_constant([1], "int64", 2)), "int32")
    table, rows = (layers.create_parameter([n, 4], "float32") for n in [10, 2])
    ids = layers.assign(np.array([2, 5], "int64"))
    table = layers.scatter(table, ids, rows) + layers.scatter(table, ids, rows, overwrite=False)
    chosen = layers.multiplex([layers.fc(x, 4), layers.fc(x, 4)], which)
    sgd(classify(layers.matmul(chosen, table, transpose_y=True), y))
    return feeds


@model
def reductions():
    x = fluid.data("x", [None, 16], "float32")
    h = layers.reshape(layers.fc(x, 12), [-1, 3, 4])
    loss = layers.reduce_sum(h) + layers.reduce_mean(h) + layers.reduce_max(h)
    loss = loss + layers.reduce_sum(layers.reduce_max(h, dim=1)) + layers.reduce_mean(
        layers.reduce_min(h, dim=[1, 2])) + layers.reduce_mean(layers.cumsum(h, axis=1))
    sgd(loss * 0.01)
    return steps(x=lambda: floats(16))


@model
def masked_mean():
    x, y, feeds = x_and_y()
    mask = fluid.data("mask", [None, 1], "float32")
    loss = layers.softmax_with_cross_entropy(layers.fc(x, 5), y)
    loss = layers.reduce_sum(loss * mask) / layers.reduce_sum(mask)
    optimizers.Adam(0.01).minimize(loss)
    for step in feeds:
        step["mask"] = np.array([[1], [0], [1], [1], [0], [1], [0], [0]], "float32")
    return feeds


# --- Images --------------------------------------------------------------------------------------


@model
def norms():
    x, y, feeds = x_and_y(4, 8, 8)
    h = layers.conv2d(x, 4, 3, padding=1)
    h = layers.group_norm(h, 2, param_attr="scale", bias_attr="bias")
    sgd(classify(layers.relu(layers.layer_norm(layers.instance_norm(h))), y))
    return feeds


@model
def padded_images():
    x = fluid.data("x", [None, 4, 8, 8], "float32")
    h = layers.conv2d(x, 4, 3, padding=1)
    loss = size(layers.pad2d(h, [1, 2, 0, 1], mode="reflect"))
    loss = loss + size(layers.pad2d(h, [1, 0, 2, 1], mode="edge"))
    loss = loss + size(layers.pixel_shuffle(h, 2)) + size(layers.unfold(h, [2, 2]))
    sgd(loss)
    return steps(x=lambda: floats(4, 8, 8))


@model
def windows_as_rows():
    x, _, feeds = x_and_y(2, 7, 6)
    h = layers.im2sequence(layers.conv2d(x, 3, 3, padding=1), filter_size=[3, 2], stride=[2, 3],
                           padding=[1, 0, 1, 1])
    sgd(size(layers.fc(h, 5)))
    return feeds


@model
def pooled_beyond_padding():
    x, y, feeds = x_and_y(3, 8, 8)
    h = layers.conv2d(x, 4, 3, padding=1)
    h = layers.pool2d(h, 3, "avg", 2, pool_padding=1, exclusive=False, ceil_mode=True)
    v = layers.reshape(layers.conv2d(x, 8, 3), [-1, 2, 4, 6, 6])
    v = layers.pool3d(v, 3, "avg", 2, pool_padding=1, exclusive=False, ceil_mode=True)
    sgd(classify(layers.concat([layers.flatten(h), layers.flatten(v)], axis=1), y))
    return feeds


@model
def resized_images():
    x = fluid.data("x", [None, 3, 8, 8], "float32")
    v = fluid.data("v", [None, 2, 4, 4, 4], "float32")
    h, g = layers.conv2d(x, 3, 3, padding=1), layers.conv3d(v, 2, 3, padding=1)
    loss = size(layers.resize_bilinear(h, out_shape=[12, 12])) + size(
        layers.resize_nearest(h, out_shape=[4, 4])) + size(
            layers.resize_bilinear(h, scale=0.3, align_corners=False, align_mode=0)) + size(
                layers.resize_nearest(h, scale=1.7, align_corners=False)) + size(
                    layers.resize_trilinear(g, out_shape=[5, 6, 3]))
    sgd(loss)
    return steps(x=lambda: floats(3, 8, 8), v=lambda: floats(2, 4, 4, 4))


@model
def sampled_images():
    x = fluid.data("x", [None, 4, 8, 8], "float32")
    h = layers.conv2d(x, 4, 3, padding=1)
    grid = layers.affine_grid(layers.reshape(layers.fc(x, 6), [-1, 2, 3]), [8, 4, 8, 8])
    sgd(size(layers.grid_sampler(h, grid)))
    return steps(x=lambda: floats(4, 8, 8))


@model
def image_parts():
    x, y, feeds = x_and_y(4, 8, 8)
    h, g = layers.conv2d(x, 4, 3, padding=1), layers.conv2d(x, 3, 3, padding=1)
    parts = [layers.space_to_depth(h, 2), layers.fsp_matrix(h, g),
             layers.crop(h, [-1, 2, 4, 4], [0, 1, 2, 2]),
             layers.adaptive_pool2d(h, 3, "max", require_index=True)[0]]
    sgd(classify(layers.concat([layers.flatten(part) for part in parts], axis=1), y), 0.01)
    return feeds


@model
def boxes():
    x = fluid.data("x", [None, 3, 16, 16], "float32")
    f = layers.conv2d(x, 4, 3, stride=2, padding=1, act="relu")
    g = layers.conv2d(f, 4, 3, stride=2, padding=1, act="relu")
    places, scores, prior, variances = layers.multi_box_head(
        [f, g], x, base_size=16, num_classes=3, min_sizes=[4.0, 8.0], max_sizes=[8.0, 12.0],
        aspect_ratios=[[2.0], [2.0, 3.0]], flip=True, clip=True)
    sgd(size((places - prior) / variances * 0.1) + size(scores))
    return steps(x=lambda: floats(3, 16, 16))


# --- Sequences -----------------------------------------------------------------------------------


@model
def static_rnn():
    x, y, feeds = x_and_y(6, 16)
    first, by_time = layers.fc(layers.reduce_mean(x, dim=1), 8), layers.transpose(x, [1, 0, 2])
    rnn = layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(by_time)
        before = rnn.memory(init=first)
        hidden = layers.fc([step, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
        rnn.step_output(layers.fc(hidden, 3))
    hidden, other = rnn()
    loss = classify(layers.reduce_mean(hidden, dim=0), y) + size(other)
    optimizers.Adam(0.01).minimize(loss)
    return feeds


@model
def lstm_lengths():
    x, y, feeds = x_and_y(6, 16)
    length = fluid.data("length", [None], "int64")
    outputs, states = layers.rnn(layers.LSTMCell(8), x, sequence_length=length)
    optimizers.Adam(0.01).minimize(classify(layers.reduce_mean(outputs, dim=1), y) + size(states[0]))
    for step in feeds:
        step["length"] = integers(1, 7)
    return feeds


@model
def both_directions():
    x, y, feeds = x_and_y(6, 16)
    outputs, _, _ = contrib.basic_lstm(x, None, None, 8, num_layers=2,
                                                    bidirectional=True)
    sgd(classify(layers.reduce_mean(outputs, dim=1), y))
    return feeds


@model
def attention():
    source = fluid.data("source", [None, 6], "int64")
    target = fluid.data("target", [None, 5], "int64")
    encoded, state = layers.rnn(layers.GRUCell(8), fluid.embedding(source, [20, 8]))
    decoded, _ = layers.rnn(layers.GRUCell(8, name="decoder"), fluid.embedding(target, [20, 8]),
                            initial_states=state)
    weights = layers.softmax(layers.matmul(decoded, encoded, transpose_y=True))
    joined = layers.concat([layers.matmul(weights, encoded), decoded], axis=2)
    scores = layers.fc(joined, 20, num_flatten_dims=2)
    loss = layers.softmax_with_cross_entropy(scores, layers.unsqueeze(target, [2]))
    optimizers.Adam(0.01).minimize(layers.mean(loss))
    return steps(source=lambda: integers(0, 20, 6), target=lambda: integers(0, 20, 5))


@model
def first_states():
    x = fluid.data("x", [None, 5], "int64")
    y = fluid.data("y", [None, 5, 1], "int64")
    hidden, cell = (fluid.data(name, [1, None, 6], "float32") for name in ["hidden", "cell"])
    outputs, _, _ = contrib.basic_lstm(fluid.embedding(x, [20, 6]), hidden, cell, 6)
    loss = layers.softmax_with_cross_entropy(layers.fc(outputs, 20, num_flatten_dims=2), y)
    sgd(layers.reduce_sum(layers.reduce_mean(loss, dim=[0])))
    feeds = steps(x=lambda: integers(0, 20, 5), y=lambda: integers(0, 20, 5, 1))
    for step in feeds:
        for name in ["hidden", "cell"]:
            step[name] = floats(1, 6).transpose(1, 0, 2)
    return feeds


@model
def positions():
    x, y, feeds = x_and_y(6, 8)
    h = layers.add_position_encoding(layers.fc(x, 8, num_flatten_dims=2), alpha=0.7, beta=1.3)
    sgd(classify(layers.relu(h), y))
    return feeds


# --- Loops and arrays ----------------------------------------------------------------------------


def number(value):
    return layers.fill_constant([1], "int64", value)


def array_of(values):
    array = layers.create_array("float32")
    for i, value in enumerate(values):
        layers.array_write(value, number(i), array)
    return array


def repeat(times, body):
    """Runs body(i) for i below the variable `times`."""
    i = number(0)
    going = layers.less_than(i, times)
    loop = layers.While(going)
    with loop.block():
        body(i)
        layers.less_than(i, times, cond=going)
    return i


@model
def translation():
    source = fluid.data("source", [None, 5], "int64")
    target = fluid.data("target", [None, 4], "int64")
    label = fluid.data("label", [None, 4, 1], "int64")
    encoded = layers.reduce_mean(fluid.embedding(source, [20, 8]), dim=1)
    words = array_of(layers.unstack(fluid.embedding(target, [20, 8]), axis=1))
    states = array_of([layers.fc(encoded, 8, act="tanh")])
    scores = layers.create_array("float32")

    def body(i):
        state = layers.array_read(states, i)
        state = layers.fc([state, layers.array_read(words, i)], 8, act="tanh")
        layers.array_write(layers.fc(state, 20), i, scores)
        layers.increment(i)
        layers.array_write(state, i, states)

    repeat(number(4), body)
    joined, _ = layers.tensor_array_to_tensor(scores, axis=1, use_stack=True)
    optimizers.Adam(0.01).minimize(layers.mean(layers.softmax_with_cross_entropy(joined, label)))
    return steps(source=lambda: integers(0, 20, 5), target=lambda: integers(0, 20, 4),
                 label=lambda: integers(0, 20, 4, 1))


@model
def loops_in_loops():
    x, y, feeds = x_and_y(8)
    outer = array_of([layers.fc(x, 6, act="tanh")])

    def body(i):
        inner = array_of([layers.array_read(outer, i)])

        def inner_body(j):
            h = layers.fc(layers.array_read(inner, j), 6, act="tanh")
            layers.increment(j)
            layers.array_write(h, j, inner)

        last = layers.array_read(inner, repeat(number(2), inner_body))
        layers.increment(i)
        layers.array_write(last, i, outer)

    sgd(classify(layers.array_read(outer, repeat(number(2), body)), y))
    return feeds


@model
def times_of_the_feed():
    x, y, feeds = x_and_y(8)
    times = fluid.data("times", [1], "int64")
    states = array_of([layers.fc(x, 6, act="tanh")])

    def body(i):
        h = layers.fc(layers.array_read(states, i), 6, act="tanh")
        layers.increment(i)
        layers.array_write(h, i, states)

    sgd(classify(layers.array_read(states, repeat(times, body)), y))
    for i, step in enumerate(feeds):
        step["times"] = np.array([i + 1], "int64")
    return feeds


@model
def carried():
    x, y, feeds = x_and_y(8)
    h, all_steps = layers.fc(x, 6), layers.fc(x, 6)

    def body(i):
        layers.assign(layers.fc(h + all_steps, 6, act="tanh"), h)
        layers.increment(i)

    repeat(number(3), body)
    other = layers.while_loop(lambda i, z: layers.less_than(i, number(3)),
                              lambda i, z: [i + 1, layers.fc(z, 6, act="tanh")],
                              [number(0), layers.fc(x, 6)])[1]
    sgd(classify(layers.concat([h, other], axis=1), y))
    return feeds


@model
def arrays():
    x, y, feeds = x_and_y(8)
    h = [layers.fc(x, 6)]
    for _ in range(2):
        h.append(layers.fc(h[-1], 6, act="tanh"))
    array = array_of(h)
    stacked, _ = layers.tensor_array_to_tensor(array, axis=1, use_stack=True)
    # Of one array that is joined twice, Paddle takes one gradient twice.
    joined, _ = layers.tensor_array_to_tensor(array_of(h), axis=1)
    loss = classify(layers.reshape(joined, [-1, 18]), y) + size(layers.reduce_sum(stacked, dim=1))
    sgd(loss * layers.cast(layers.array_length(array), "float32"))
    return feeds


@model
def switches():
    x, y, feeds = x_and_y()
    step = layers.autoincreased_step_counter()
    rate = layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    with layers.Switch() as switch:
        with switch.case(layers.less_than(step, number(2))):
            layers.assign(layers.fill_constant([1], "float32", 0.1), rate)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 0.01), rate)
    h = layers.fc(x, 8)
    which = layers.cast(layers.elementwise_mod(step, number(3)), "int32")
    out = layers.switch_case(which, {0: lambda: layers.fc(h, 6, act="tanh"),
                                     1: lambda: layers.fc(h, 6, act="relu")},
                             default=lambda: layers.fc(h, 6))
    optimizers.SGD(rate).minimize(classify(out, y))
    return feeds


@model
def units():
    x, y, feeds = x_and_y()
    hidden, cell = layers.fc(x, 8), layers.fc(x, 8)
    h, c = layers.lstm_unit(x, hidden, cell)
    g, _, _ = layers.gru_unit(layers.fc(x, 24), hidden, 24)
    sgd(classify(layers.concat([h, c, g], axis=1), y))
    return feeds


# --- Metrics, updates, other things --------------------------------------------------------------


@model
def metrics():
    x, y, feeds = x_and_y()
    p = layers.fc(x, 5, act="softmax")
    loss = layers.mean(layers.cross_entropy(p, y))
    layers.accuracy(p, y, k=2)
    layers.mean_iou(layers.argmax(p, axis=1), layers.reshape(y, [-1]), 5)
    layers.Print(layers.has_nan(p))
    sgd(loss)
    return feeds


@model
def label_metrics():
    x, y, feeds = x_and_y(6, 8)
    tags, found = (fluid.data(name, [None, 6], "int64") for name in ["tags", "found"])
    length, lengths = fluid.data("length", [None], "int64"), fluid.data("lengths", [None, 1], "int64")
    kept = []
    for scheme, excluded in [("IOB", None), ("IOE", [1]), ("IOBES", None), ("plain", [0])]:
        kept += layers.chunk_eval(found, tags, scheme, 3, excluded, length)
    p = layers.softmax(layers.fc(x, 5, num_flatten_dims=2))
    kept += layers.ctc_greedy_decoder(p, 0, lengths, padding_value=-1)
    kept += layers.edit_distance(found, tags, True, None, length, length)
    for variable in kept:
        variable.persistable = True
    sgd(classify(p, y))
    for step in feeds:
        step["tags"] = integers(0, 4, 6)
        step["found"] = np.where(draw.rand(ROWS, 6) > 0.3, step["tags"], integers(0, 4, 6))
        step["length"] = integers(1, 7)
        step["lengths"] = integers(1, 7, 1)
    return feeds


@model
def gradient_penalty():
    x = fluid.data("x", [None, 16], "float32")
    x.stop_gradient = False
    out = layers.fc(layers.fc(x, 8, act="tanh"), 1)
    gradient = fluid.gradients([out], [x])[0]
    norm = layers.sqrt(layers.reduce_sum(layers.square(gradient), dim=1) + 1e-6)
    sgd(layers.mean(layers.square(norm - 1.0)) + layers.mean(out))
    return steps(x=lambda: floats(16))


def updated(optimizer):
    x, y, feeds = x_and_y()
    optimizer.minimize(classify(layers.fc(x, 8, act="tanh"), y))
    return feeds


@model
def lamb():
    return updated(optimizers.Lamb(0.01))


@model
def lamb_without_decay():
    return updated(optimizers.Lamb(0.01, lamb_weight_decay=0.0))


@model
def adam_epsilon():
    return updated(optimizers.Adam(0.01, epsilon=1e-2))


# --- What Paddle runs from a reader, or with level-of-detail offsets ------------------------------


@model
def private():
    optimizer = optimizers.Dpsgd(0.01, clip=0.1, batch_size=16.0, sigma=1.5)
    optimizer._seed = 7
    return updated(optimizer)


@model
def reader():
    source = layers.py_reader(4, [(-1, 16), (-1, 1)], ["float32", "int64"], name="reader",
                              use_double_buffer=True)
    x, y = layers.read_file(source)
    sgd(classify(layers.fc(x, 8, act="tanh"), y))


@model
def data_loader():
    x, y, _ = x_and_y()
    fluid.io.DataLoader.from_generator([x, y], 4, iterable=False)
    sgd(classify(layers.fc(x, 8, act="tanh"), y))


def words():
    word = fluid.data("word", [None, 1], "int64", lod_level=1)
    y = fluid.data("y", [None, 1], "int64")
    return layers.embedding(word, [30, 8]), y


@model
def dynamic_gru():
    embedded, y = words()
    hidden = layers.dynamic_gru(layers.fc(embedded, 24), 8)
    sgd(classify(layers.sequence_pool(hidden, "max"), y))


@model
def dynamic_rnn():
    embedded, y = words()
    rnn = layers.DynamicRNN()
    with rnn.block():
        step, before = rnn.step_input(embedded), rnn.memory(shape=[8], value=0.0)
        hidden = layers.fc([step, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    sgd(classify(layers.sequence_last_step(rnn()), y))


@model
def reordered():
    embedded, y = words()
    first = layers.fc(layers.sequence_last_step(layers.sequence_reverse(embedded)), 8)
    rnn = layers.DynamicRNN()
    with rnn.block():
        step, before = rnn.step_input(embedded), rnn.memory(init=first, need_reorder=True)
        hidden = layers.fc([step, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    sgd(classify(layers.sequence_pool(rnn(), "max"), y))


@model
def sequences():
    embedded, y = words()
    hidden = layers.sequence_conv(embedded, 8, 3, act="tanh")
    last = layers.sequence_last_step(hidden)
    pooled = layers.sequence_pool(hidden, "sqrt")
    loss = classify(layers.concat([last, pooled], axis=1), y)
    sgd(loss + size(layers.row_conv(embedded, 2)) + size(layers.sequence_softmax(
        layers.fc(hidden, 1))))


@model
def tagger():
    word = fluid.data("word", [None, 1], "int64", lod_level=1)
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    weights = fluid.ParamAttr("chain")
    scores = layers.fc(layers.embedding(word, [30, 8]), 5)
    loss = layers.linear_chain_crf(scores, tags, param_attr=weights)
    layers.chunk_eval(layers.crf_decoding(scores, weights), tags, "IOB", 2)
    sgd(layers.mean(loss))


@model
def if_else():
    x, y, _ = x_and_y()
    two = layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 2.0)
    branches = layers.IfElse(layers.less_than(layers.cast(y, "float32"), two))
    hidden = layers.fc(x, 8)
    with branches.true_block():
        branches.output(layers.fc(branches.input(hidden), 8))
    with branches.false_block():
        branches.output(layers.fc(branches.input(hidden), 8, act="tanh"))
    sgd(classify(branches()[0], y))


@model
def regions():
    x = fluid.data("x", [None, 4, 8, 8], "float32")
    boxes = fluid.data("boxes", [None, 4], "float32", lod_level=1)
    h = layers.conv2d(x, 4, 3, padding=1)
    sgd(size(layers.roi_align(h, boxes, 2, 2)) + size(layers.roi_pool(h, boxes, 2, 2)))


@model
def mixed_precision():
    x, y, _ = x_and_y()
    optimizer = fluid.contrib.mixed_precision.decorate(optimizers.Momentum(0.1, 0.9))
    optimizer.minimize(classify(layers.fc(x, 8, act="relu"), y))


# --- Files ---------------------------------------------------------------------------------------


def bytes_of(program):
    desc = framework_pb2.ProgramDesc()
    desc.ParseFromString(program.desc.serialize_to_string())
    for block in desc.blocks:
        for op in block.ops:
            kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
            del op.attrs[:]
            op.attrs.extend(kept)
    return desc.SerializeToString()


def state_of(program, scope):
    state = {}
    for variable in program.list_vars():
        found = scope.find_var(variable.name) if variable.persistable else None
        if found is not None and variable.type == fluid.core.VarDesc.VarType.LOD_TENSOR:
            state[variable.name] = np.array(found.get_tensor())
    return state


def write(directory, name):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        feeds = MODELS[name]()
    path = os.path.join(directory, name)
    os.makedirs(path, exist_ok=True)
    for program, file in [(main, "main.pb"), (startup, "startup.pb")]:
        with open(os.path.join(path, file), "wb") as out:
            out.write(bytes_of(program))
    if feeds is None:
        return
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(startup)
        np.savez(os.path.join(path, "init.npz"), **state_of(main, scope))
        for step in feeds:
            executor.run(main, feed=step)
        np.savez(os.path.join(path, "paddle.npz"), **state_of(main, scope))
    arrays = {"%d/%s" % (i, n): v for i, step in enumerate(feeds) for n, v in step.items()}
    np.savez(os.path.join(path, "feeds.npz"), **arrays)


if __name__ == "__main__":
    for name in sys.argv[2:] or MODELS:
        write(sys.argv[1], name)
