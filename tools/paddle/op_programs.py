"""Writes the programs of tests/data/paddle3_pir_more_ops.tar.xz: small models in Paddle 3's own
format, each with a few ops, a loss or an optimizer.

    FLAGS_enable_pir_api=1 python op_programs.py DIRECTORY [NAME...]

needs Paddle 3.3. DIRECTORY/NAME gets main.json, startup.json, params.npz, feeds.npz (a few steps
of eight rows) and loss: the loss of each step, as Paddle computes it. tests/training/small_programs_test.cc
runs them.

With FLAGS_enable_pir_api=0, it writes main.pb and startup.pb, those of
tests/data/paddle3_desc_ops.tar.xz, and names the models that Paddle 3.3 cannot build in that format.
nadam, radam and rprop are in tests/data/paddle3_optimizers.tar.xz, too.
"""
import os
import sys

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import paddle.static as static

import export_program

ROWS, COLUMNS = 8, 8


def batches(steps):
    draw = np.random.default_rng(0).random
    return [{"x": draw((ROWS, COLUMNS)).astype("float32"), "y": draw((ROWS, 1)).astype("float32")}
            for _ in range(steps)]


def constant(values, dtype):
    return paddle.assign(np.array(values, dtype))


def full(value, shape=(1,), dtype="float32"):
    return paddle.full(list(shape), value, dtype)


def parameter(*shape):
    return paddle.create_parameter(list(shape), "float32")


def image(h):
    return h.reshape([-1, 2, 2, 2])


def volume(h):
    return h.reshape([-1, 1, 2, 2, 2])


def channels(h):
    return h.reshape([-1, 4, 1, 2])


def rows(h):
    return h.reshape([-1, 2, 4])


def flat(h):
    return paddle.flatten(h, 1)


def columns(f):
    """f on the transposed tensor."""
    return lambda h: f(h.transpose([1, 0])).transpose([1, 0])


def times(h, number):
    return h * paddle.cast(number, "float32")


def blend(*functions):
    def apply(h):
        out = h
        for function in functions:
            out = out * 0.5 + function(h) * 0.3
        return out
    return apply


def set_item(item, value):
    def apply(h):
        return static.setitem(h * 2, item, value(h) if callable(value) else value)
    return apply


def assign_items(h):
    """In place, as the subscripts of a tensor write it."""
    g = h * 2
    g[:, ::2] = full(0.25, [4])
    g[1] = 1.5
    g[:, 1:3] = h[:, :2]
    g[:, 5] = h[:, 0]
    g[2] = h[3]
    g[:, -1:4:-2] = h[:, :2]
    return g


def put_reduced(h):
    """Two values in the place of one element."""
    order = paddle.argsort(h, axis=1)
    indices = paddle.concat([order[:, :2], order[:, :1]], 1)
    out = h
    for reduce in ["mul", "mean", "amin", "amax"]:
        out = out + paddle.put_along_axis(h, indices, h[:, :3] * 2 + 0.5, 1, reduce,
                                          broadcast=False)
    for reduce in ["add", "multiply", "mean", "amin", "amax"]:
        out = out + paddle.put_along_axis(h, indices, h[:, 3:6] * 2 + 0.5, 1, reduce,
                                          include_self=False, broadcast=False)
    return out * 0.05


def two_indices(h):
    return h * paddle.mean(h[constant([0, 2], "int64"), constant([1, 3], "int64")])


def classes(h):
    return paddle.argmax(h, 1)


def occurrences(h):
    """How often the class of each row occurs."""
    _, places, counts = paddle.unique(classes(h), return_inverse=True, return_counts=True)
    return times(h, paddle.unsqueeze(paddle.gather(counts, places), 1))


def segments():
    """Of eight rows."""
    return constant([0, 0, 1, 1, 1, 2, 3, 3], "int64")


def positive(matrix):
    return paddle.matmul(matrix, matrix, transpose_y=True) + paddle.eye(8)


def sequences(h):
    """Beside each other, of length 8, with a channel for each of two numbers."""
    return h.reshape([-1, 8, 1]).expand([-1, 8, 4]).transpose([1, 0, 2])


def printed(h):
    static.Print(paddle.mean(h), message="mean of h")
    return static.Print(h, summarize=2)


def checked(h):
    static.nn.control_flow.Assert(paddle.all(h > -100), [h])
    return h


def regions(h):
    images = image(h)
    boxes = constant([[0, 0, 1, 1], [0, 0.5, 1, 2]], "float32")
    numbers = constant([1, 0, 1, 0, 0, 0, 0, 0], "int32")
    aligned = paddle.vision.ops.roi_align(images, boxes, numbers, 2)
    pooled = paddle.vision.ops.roi_pool(images, boxes, numbers, 2)
    return h * paddle.mean(aligned) + h * paddle.mean(pooled)


def deformed(h):
    offsets, mask = h.reshape([-1, 8, 1, 1]), F.sigmoid(h[:, :4]).reshape([-1, 4, 1, 1])
    return flat(paddle.vision.ops.deform_conv2d(image(h), offsets, parameter(3, 2, 2, 2),
                                                mask=mask))


def attention(h):
    """Of queries, keys and values that are made together."""
    queries, keys, values = paddle.unbind(
        nn.Linear(4, 12)(rows(h)).reshape([-1, 2, 3, 2, 2]).transpose([2, 0, 3, 1, 4]))
    weights = F.softmax(paddle.matmul(queries, keys, transpose_y=True) * 0.7)
    return flat(paddle.matmul(weights, values))


def penalty(function):
    """The squares of a gradient, whose gradients are those of a gradient."""
    return lambda h: h * 0.1 * paddle.mean(
        static.gradients([paddle.sum(function(h))], [h])[0] ** 2)


def encoder(h):
    """The hidden layer of a variational autoencoder: a mean, and the logarithm of a variance."""
    mean, variance = h[:, :4], h[:, 4:]
    return mean + paddle.exp(0.5 * variance) * paddle.randn(paddle.shape(mean))


def auc(h):
    """Beside the loss: Paddle 3.3 gives the area a type that it does not have."""
    static.auc(F.softmax(h[:, :2]), paddle.cast(h[:, :1] > 0, "int64"))
    return h


# --- Values of the hidden layer -------------------------------------------------------------------

MODELS = {
    # Functions of one number.
    "unary": blend(paddle.sin, paddle.cos, paddle.tan, paddle.sinh, paddle.cosh, paddle.asinh,
                   paddle.atan, paddle.erf),
    "unary2": blend(paddle.expm1, paddle.sign, paddle.floor, paddle.ceil, paddle.round,
                    lambda h: paddle.reciprocal(h * h + 1), paddle.trunc,
                    lambda h: paddle.lgamma(h * h + 1)),
    "unary3": blend(lambda h: paddle.log1p(h * h), lambda h: paddle.log2(h * h + 1),
                    lambda h: paddle.log10(h * h + 1), lambda h: paddle.acos(paddle.tanh(h) * 0.5),
                    lambda h: paddle.asin(paddle.tanh(h) * 0.5),
                    lambda h: paddle.atanh(paddle.tanh(h) * 0.5),
                    lambda h: paddle.acosh(h * h + 1.5), lambda h: paddle.digamma(h * h + 1)),
    "acts": blend(F.log_sigmoid, F.selu, F.mish, F.softsign, F.tanhshrink, F.softshrink,
                  F.hardtanh, F.celu, F.thresholded_relu, F.hardshrink),
    "acts2": blend(paddle.stanh, lambda h: paddle.erfinv(paddle.tanh(h) * 0.5),
                   lambda h: paddle.logit(F.sigmoid(h))),
    "bessel": blend(paddle.i0, paddle.i0e, paddle.i1, paddle.i1e),
    "polygamma": blend(lambda h: paddle.polygamma(h * h + 0.5, 1),
                       lambda h: paddle.polygamma(h / (h * h + 1) * 0.6 - 1.5, 2),
                       lambda h: paddle.polygamma(h * h + 2, 4)),
    "nonfinite": lambda h: times(h, paddle.isfinite(h)) + times(h, paddle.isnan(h)) +
                 times(h, paddle.isinf(h)),
    # Of two or three.
    "compare": lambda h: times(h, paddle.logical_or(
        paddle.logical_and(h > 0, paddle.less_equal(h, full(0.5))),
        paddle.logical_not(paddle.not_equal(h, h * 2)))) + times(h, paddle.logical_xor(
            paddle.greater_equal(h, h * 0.5), paddle.equal(h, h))) * 0.3,
    "bitwise": lambda h: times(h, paddle.bitwise_and(paddle.argsort(h, 1), full(3, dtype="int64")) +
                               paddle.bitwise_or(paddle.argsort(h, 1), full(3, dtype="int64"))),
    "bitwise2": lambda h: times(h, paddle.bitwise_xor(
        paddle.argsort(h, 1), full(3, dtype="int64")) + paddle.bitwise_not(paddle.argsort(h, 1))),
    "mod": lambda h: h * paddle.remainder(h.detach(), full(0.3)) +
           paddle.floor_divide(h, full(0.3)) * h,
    "remainder": lambda h: paddle.remainder(h, full(0.3)) +
                 paddle.remainder(h + 3, h * 0.1 + 0.5) + paddle.remainder(full(-2.5), h + 2),
    "fmin": lambda h: paddle.fmin(h, h * h) + paddle.fmax(h, h * 2) + paddle.atan2(h, h + 2),
    "signs": lambda h: paddle.copysign(h, h[:1] - 0.1) +
             paddle.heaviside(F.relu(h), h[:, :1] * 0.5),
    "pow_t": lambda h: paddle.pow(h * h + 1, h * 0.1),
    "lerp": lambda h: paddle.lerp(h, h * h, full(0.3)),
    "dist": lambda h: h * paddle.dist(h, h * h, 2),
    "swiglu": lambda h: F.swiglu(h, h * 0.5) + F.swiglu(paddle.concat([h, h * 0.2], 1)),
    "close": lambda h: times(h, paddle.isclose(h, h * 1.2, rtol=0.1, atol=0.05)) +
             times(h, paddle.allclose(h, h)),
    # Constants.
    "empty": lambda h: h + 0.0 * paddle.cast(paddle.shape(paddle.empty([3, 8]))[0], "float32"),
    "sequence_mask": lambda h: h * F.sequence_mask(classes(h), 8, "float32") + h * paddle.mean(
        F.sequence_mask(classes(h), dtype="float32")),
    "inf_const": lambda h: F.softmax(paddle.where(
        paddle.arange(8).unsqueeze(0) > 3, paddle.full_like(h, float("-inf")), h)) +
                 paddle.clip(h, min=float("-inf"), max=1.0),
    "arange": lambda h: h * paddle.arange(0, 8, 1, dtype="float32") + paddle.linspace(0, 1, 8),
    "numel": lambda h: h * (paddle.cast(paddle.numel(h), "float32") * 0.1),
    "shape64": lambda h: h * paddle.cast(paddle.shape(h)[0], "float32") * 0.1,
    "assign_value": lambda h: h * constant(np.linspace(-1, 1, 8), "float32"),
    "batch_like": lambda h: 1.0 / (h * h + 1.0) - 2.0 / (h * h + 3.0),
    "eye": lambda h: paddle.matmul(h, paddle.eye(8)) + paddle.diag(full(2.0, [8]))[0],
    "meshgrid": lambda h: h * paddle.meshgrid(paddle.arange(8, dtype="float32"),
                                              paddle.arange(8, dtype="float32"))[1],
    # Shapes.
    "pad": lambda h: F.pad(h, [0, 0, 1, 2]),
    "pad3d": lambda h: flat(F.pad(image(h), [1, 0, 1, 1])),
    "pad_modes": lambda h: flat(F.pad(image(h), [1, 0, 0, 1], mode="reflect")) +
                 flat(F.pad(image(h), [1, 0, 0, 1], mode="replicate")),
    "expand_as": lambda h: paddle.expand_as(h[:, :1], h) * h,
    "expand_list": lambda h: paddle.expand(
        h.unsqueeze(1), [paddle.shape(h)[0], 3, 8]).reshape([-1, 24]),
    "expand_tensor": lambda h: paddle.expand(h[:, :1], paddle.shape(h)) * h,
    "reshape_list": lambda h: flat(paddle.reshape(h, [paddle.shape(h)[0], 2, 4])),
    "reshape_tensor": lambda h: paddle.reshape(rows(h * 2), paddle.shape(h)),
    "slice_list": lambda h: h[:, :4] * paddle.slice(
        h, [1], [paddle.shape(h)[1] - 4], [paddle.shape(h)[1]]),
    "slice_tensor": lambda h: h * paddle.mean(parameter(20, 8)[:paddle.shape(h)[0]]),
    "tile_list": lambda h: paddle.tile(h[:1], [paddle.shape(h)[0], 1]) * h,
    "zeros_of_shape": lambda h: h + paddle.zeros([paddle.shape(h)[0], 8]) * paddle.ones(
        paddle.shape(h)),
    "strided": lambda h: paddle.strided_slice(
        h, axes=[1], starts=[0], ends=[8], strides=[2]) + h[:, ::-2],
    "broadcast_tensors": lambda h: paddle.broadcast_tensors([h, h[:, :1]])[1] * h,
    "crop": lambda h: paddle.crop(h, [-1, 4], [0, 2]) * paddle.crop(h, [8, 4], [0, 1]),
    "meshgrid_grad": lambda h: h * paddle.meshgrid(h[0], h[1])[0],
    "unbind": lambda h: paddle.unbind(rows(h), 1)[0] * paddle.unbind(rows(h), 1)[1],
    "attention": attention,
    "unbind_tail": lambda h: paddle.unbind(paddle.tril(h.reshape([-1, 2, 2, 2])), 1)[1].transpose(
        [0, 2, 1]).reshape([-1, 4]),
    "unstack_transposed": lambda h: paddle.unstack(rows(h).transpose([0, 2, 1]), 1)[0] * 2 +
                          paddle.unstack(rows(h).transpose([0, 2, 1]), 1)[3],
    "flip_transposed": lambda h: flat(paddle.flip(rows(h).transpose([0, 2, 1]), [1])),
    "sgn": lambda h: flat(rows(h).transpose([0, 2, 1]) * paddle.sgn(rows(h).transpose([0, 2, 1]))),
    "unstack": lambda h: paddle.unstack(rows(h), 1)[0] * 2,
    "flip": lambda h: paddle.flip(h, [1]) * h,
    "roll": lambda h: paddle.roll(h, 3, 1) * h,
    "repeat": lambda h: paddle.repeat_interleave(h, 2, 1),
    "detach": lambda h: h * h.detach(),
    # Elements by their indices, and masks.
    "gather_nd": columns(lambda h: paddle.gather_nd(h, constant([[0], [3], [3]], "int64"))),
    "two_indices": two_indices,
    "segments": lambda h: h * (paddle.max(paddle.geometric.segment_sum(h, segments())) +
                               paddle.min(paddle.geometric.segment_mean(h, segments()))),
    "unique": occurrences,
    "multiplex": lambda h: paddle.multiplex(
        [h, h * h, h * 0.5], paddle.unsqueeze(paddle.cast(classes(h) % 3, "int32"), 1)),
    "frames": lambda h: flat(paddle.signal.frame(h, 4, 2)) + columns(lambda g: paddle.reshape(
        paddle.signal.frame(g, 3, 2, axis=0), [9, -1]))(h)[:, :1],
    "bincount": lambda h: times(h, paddle.bincount(classes(h), minlength=8)),
    "shard_index": lambda h: times(h, paddle.shard_index(
        paddle.unsqueeze(classes(h), 1), 8, 2, 0)),
    "index_select": lambda h: paddle.index_select(h, constant([0, 2, 2, 7], "int64"), axis=1),
    "index_sample": lambda h: paddle.index_sample(h, paddle.cast(paddle.argsort(h, axis=1),
                                                                 "int64")),
    "take_along": lambda h: paddle.take_along_axis(
        h, paddle.argsort(h, axis=1, descending=True)[:, :5], axis=1),
    "put_along": lambda h: paddle.put_along_axis(
        h, paddle.argsort(h, axis=1)[:, :2], h[:, :2] * 2, axis=1, broadcast=False),
    "put_add": lambda h: paddle.put_along_axis(
        h, paddle.argsort(h, axis=1)[:, :2], h[:, :2] * 2, axis=1, reduce="add", broadcast=False),
    "put_broadcast": lambda h: paddle.put_along_axis(
        h, paddle.argsort(h, axis=1)[:, :2], h[:, 2:3] * 2, axis=1, reduce="add"),
    "put_reduced": put_reduced,
    "scatter": columns(lambda h: paddle.scatter(h, constant([1, 4], "int64"), h[:2] * 3)),
    "scatter_add": columns(lambda h: paddle.scatter(
        h, constant([1, 1], "int64"), h[:2] * 3, overwrite=False)),
    "scatter_nd": columns(lambda h: paddle.scatter_nd_add(
        h, constant([[1], [4], [1]], "int64"), h[:3] * 3)),
    "index_add": lambda h: paddle.index_add(h, constant([1, 4], "int64"), 1, h[:, :2]),
    "index_put": columns(lambda h: paddle.index_put(
        h, (constant([1, 4], "int64"),), h[:2] * 2)),
    "set_value": set_item((slice(None), slice(1, 3)), lambda h: h[:, :2]),
    "set_number": set_item((slice(None), slice(1, 3)), 0.5),
    "set_items": assign_items,
    "masked": lambda h: paddle.masked_fill(h, h > 0.5, 0.1),
    # Of a constant: Paddle 3.3 on the CPU makes no right gradient of the value.
    "masked_tensor": lambda h: paddle.masked_fill(h, h > 0.5, paddle.mean(h.detach())),
    "masked_columns": lambda h: paddle.masked_fill(
        h, constant([True, False] * 4, "bool"), full(0.3)),
    "masked_select": lambda h: h * paddle.mean(paddle.masked_select(h, h > 0)),
    "where_idx": lambda h: h * paddle.cast(paddle.numel(paddle.nonzero(h > 0)), "float32") * 0.1,
    # Order.
    "argmax": lambda h: times(h, paddle.argmax(h, axis=1, keepdim=True)) * 0.1 +
              times(h, paddle.argmin(h, axis=-1, keepdim=True)) * 0.1,
    "argsort": lambda h: times(paddle.sort(h, axis=1, descending=True),
                               paddle.argsort(h.detach(), axis=1)),
    "sort_both": lambda h: times(paddle.sort(h, 1), paddle.argsort(h, 1)) +
                 times(paddle.sort(h, 0, descending=True), paddle.argsort(h, 0, descending=True)),
    "kth": lambda h: h * paddle.kthvalue(h, 3, 1, keepdim=True)[0] +
           h * paddle.mode(paddle.round(h), 1, keepdim=True)[0],
    "median": lambda h: h * paddle.median(h, 1, keepdim=True) + h * paddle.median(h),
    "median_odd": lambda h: h * paddle.median(h[:, :5], 1, keepdim=True),
    "median_min": lambda h: h * paddle.median(h, 1, keepdim=True, mode="min")[0] +
                  h * paddle.median(h, 0, mode="min")[0],
    "nanmedian": lambda h: h * paddle.nanmedian(h, 1, keepdim=True) + h * paddle.nanmedian(
        paddle.where(h > 0.3, paddle.full_like(h, float("nan")), h), 1, keepdim=True),
    "cummax": lambda h: paddle.cummax(h, 1)[0] + paddle.cummin(h, 1)[0],
    "sorted": lambda h: times(h, paddle.searchsorted(paddle.arange(8, dtype="float32"), h)),
    "onehot": lambda h: h * F.one_hot(paddle.argmax(h, axis=1), 8),
    # Along an axis.
    "reduce_any": lambda h: times(h, paddle.any(h > 0.3, 1, True)) +
                  times(h, paddle.all(h > -0.3, 1, True)),
    "amax": lambda h: h * paddle.amax(h, 1, keepdim=True) + h * paddle.amin(h, 1, keepdim=True),
    "fro": lambda h: h / paddle.linalg.norm(h, p="fro", axis=[0, 1]),
    "inf_norm": lambda h: h / (1 + paddle.norm(h, float("inf"), 1, True)),
    "cum": lambda h: paddle.cumprod(h, 1) + paddle.logcumsumexp(h, 1),
    "renorm": lambda h: paddle.renorm(h, 2.0, 0, 0.5),
    # Matrices.
    "einsum": lambda h: paddle.einsum("bi,bj->bij", h, h).reshape([-1, 64]),
    "einsum_matmul": lambda h: paddle.einsum("bi,ij->bj", h, parameter(8, 8)),
    "einsum_trace": lambda h: paddle.einsum("bij->bji", rows(h)).reshape([-1, 8]),
    "einsum_three": lambda h: paddle.einsum("bi,ij,bj->bi", h, parameter(8, 8), h),
    "kron": lambda h: paddle.kron(h[:, :2], full(2.0, [1, 4])),
    "dots": lambda h: h * paddle.dot(h, h).unsqueeze(-1) +
            paddle.mv(h, parameter(8)).unsqueeze(-1),
    "addmm": lambda h: paddle.addmm(h, h, parameter(8, 8), 0.5, 2.0),
    "bilinear": lambda h: nn.Bilinear(8, 8, 4)(h, h),
    "cross": lambda h: paddle.cross(h[:, :3], h[:, 3:6], axis=1),
    "multi_dot": lambda h: paddle.linalg.multi_dot([h, parameter(8, 4), parameter(4, 8)]),
    "inverse": lambda h: paddle.matmul(h, paddle.inverse(paddle.eye(8) * 2 +
                                                         parameter(8, 8) * 0.1)),
    "spectral": lambda h: paddle.matmul(h, nn.SpectralNorm([8, 8], power_iters=2)(
        parameter(8, 8))),
    "determinant": lambda h: h * paddle.linalg.det(parameter(3, 3)),
    "slogdet": lambda h: h * paddle.sum(paddle.linalg.slogdet(parameter(3, 3))),
    "cholesky": lambda h: paddle.matmul(h, paddle.linalg.cholesky(positive(parameter(8, 8)))),
    "solve": lambda h: columns(lambda g: paddle.linalg.solve(
        paddle.eye(8) * 2 + parameter(8, 8) * 0.1, g))(h) + columns(
            lambda g: paddle.linalg.triangular_solve(paddle.eye(8) * 2 + parameter(8, 8), g))(h),
    "cholesky_solve": columns(lambda g: paddle.linalg.cholesky_solve(
        g, paddle.eye(8) * 2 + paddle.tril(parameter(8, 8)))),
    "weight_norm": lambda h: nn.utils.weight_norm(nn.Linear(8, 4), dim=1)(h),
    "diag_embed": lambda h: h + paddle.diag_embed(h)[:, 2] + paddle.diag_embed(h, 1)[:, 0, :8],
    "diag_grad": lambda h: h + paddle.diag(h[0]) + paddle.diag(h)[0],
    "diag": lambda h: paddle.diagonal(rows(h), axis1=1, axis2=2) *
            paddle.trace(rows(h), axis1=1, axis2=2).unsqueeze(-1),
    # Images.
    "convt": lambda h: flat(nn.Conv2DTranspose(2, 3, 2, stride=2)(image(h))),
    "convt_dw": lambda h: flat(nn.Conv2DTranspose(2, 2, 3, stride=2, padding=1,
                                                  groups=2)(image(h))),
    "convt3d": lambda h: flat(nn.Conv3DTranspose(1, 2, 2)(volume(h))),
    "conv3d": lambda h: flat(nn.Conv3D(1, 2, 2, padding=1)(volume(h))),
    "interp": lambda h: flat(F.interpolate(image(h), scale_factor=2, mode="nearest")) +
              flat(F.interpolate(image(h), size=[4, 4], mode="bilinear")),
    "interp2": lambda h: flat(F.interpolate(image(h), size=[3, 5], mode="bicubic")) +
               flat(F.interpolate(image(h), size=[3, 5], mode="bilinear", align_corners=True)),
    "interp1": lambda h: flat(F.interpolate(rows(h), size=[7], mode="linear", data_format="NCW")),
    "interp3": lambda h: flat(F.interpolate(volume(h), size=[3, 3, 4], mode="trilinear",
                                            data_format="NCDHW")),
    "grid": lambda h: flat(F.grid_sample(image(h), paddle.tanh(image(h)))),
    "grid_border": lambda h: flat(F.grid_sample(
        image(h), paddle.tanh(image(h)) * 1.5, mode="nearest", padding_mode="border",
        align_corners=False)) + flat(F.grid_sample(
            image(h), paddle.tanh(image(h)) * 1.5, padding_mode="reflection")),
    "affine": lambda h: F.grid_sample(
        image(h)[:2], F.affine_grid(parameter(2, 2, 3), [2, 2, 3, 3])).reshape(
            [-1, 18]).sum(0) + h[:, :1],
    "pixel": lambda h: flat(F.pixel_unshuffle(F.pixel_shuffle(channels(h), 2), 2)),
    "channel_shuffle": lambda h: flat(F.channel_shuffle(channels(h), 2)),
    "unfold": lambda h: flat(F.unfold(image(h), 2)),
    "fold": lambda h: flat(F.fold(h.reshape([8, 8, 1]), [2, 2], 2)),
    "maxpool_mask": lambda h: flat(F.max_pool2d(image(h), 2, return_mask=True)[0]),
    "adaptive": lambda h: flat(F.adaptive_max_pool2d(image(h), 1)) +
                flat(F.adaptive_avg_pool2d(image(h), 1)),
    "pool3d": lambda h: flat(F.max_pool3d(volume(h), 2)),
    "norm_pool": lambda h: flat(F.lp_pool2d(image(h), 2, 2)) + flat(
        F.lp_pool2d(image(h * h + 0.1), 3, 2)) + flat(F.lp_pool2d(image(h), float("inf"), 2)),
    "fractional_pool": lambda h: flat(F.fractional_max_pool2d(
        h.reshape([-1, 1, 2, 4]), [1, 2], random_u=0.3)) + flat(F.fractional_max_pool2d(
            h.reshape([-1, 1, 1, 8]), [1, 2], [1, 3], random_u=0.7)) + flat(
                F.fractional_max_pool3d(h.reshape([-1, 1, 1, 2, 4]), [1, 1, 2], random_u=0.4)),
    "maxout": lambda h: F.maxout(h.reshape([-1, 4, 2, 1]), 2, 1).reshape([-1, 4]),
    "lrn": lambda h: flat(F.local_response_norm(channels(h), 3)),
    "temporal": lambda h: flat(F.temporal_shift(channels(h), 2, 0.25)),
    "maxpool3d_mask": lambda h: flat(F.max_pool3d(volume(h), 2, return_mask=True)[0]),
    "unpool": lambda h: flat(F.max_unpool2d(*F.max_pool2d(image(h), 2, return_mask=True), 2)),
    "regions": regions,
    "deformable": deformed,
    # Gradients of gradients.
    "penalty_elu": penalty(lambda h: F.elu(h) + F.celu(h) + F.leaky_relu(h) + paddle.abs(h)),
    "penalty_sin": penalty(lambda h: paddle.sin(h) + paddle.cos(h) + F.softplus(h) +
                           paddle.pow(h, 3)),
    "penalty_log": penalty(lambda h: paddle.log(h * h + 1) + paddle.sqrt(h * h + 1) +
                           paddle.rsqrt(h * h + 1)),
    "penalty_divide": penalty(lambda h: h / (h * h + 1)),
    "penalty_conv": penalty(lambda h: paddle.tanh(nn.Conv2D(2, 3, 2)(image(h)))),
    # Random numbers: the same in the first step, as both draw from the same seed.
    "draw_normal": lambda h: h + paddle.normal(0.5, 2.0, [8, 8]),
    "draw_normal_like": lambda h: h + paddle.randn(paddle.shape(h)),
    "draw_uniform_like": lambda h: h + paddle.rand([paddle.shape(h)[0], 8]),
    "draw_integers": lambda h: times(h, paddle.randint(0, 100, [8, 1])) +
                     times(h, paddle.randint(-5, 5, [paddle.shape(h)[0], 8], "int32")),
    "draw_order": lambda h: h + paddle.index_select(h, paddle.randperm(8), axis=1) * 0.5,
    "draw_vae": encoder,
    # Draws that have one outcome.
    "bernoulli": lambda h: h * paddle.bernoulli(paddle.cast(h > 0, "float32")),
    "multinomial": lambda h: times(h, paddle.multinomial(F.one_hot(classes(h), 8), 1)),
    "poisson": lambda h: h * (1 + paddle.poisson(F.relu(h) * 0)),
    "gumbel": lambda h: h * paddle.sum(F.gumbel_softmax(h, temperature=0.5), 1, keepdim=True) +
              h * paddle.sum(F.gumbel_softmax(h, hard=True), 1, keepdim=True),
    "rrelu": lambda h: F.rrelu(h, 0.25, 0.25),
    # Messages.
    "print": printed,
    "assert": checked,
    # Labels and metrics.
    "label_smooth": lambda h: h * F.label_smooth(F.softmax(h)),
    "auc": auc,
}


# --- Losses of the hidden layer and the labels ----------------------------------------------------

LOSSES = {
    "ce_weight": lambda h, y: F.cross_entropy(h, paddle.cast(y * 8, "int64"), weight=constant(
        np.linspace(0.5, 1, 8), "float32")),
    "ce_ignore": lambda h, y: F.cross_entropy(h, paddle.cast(y * 8, "int64"), ignore_index=3),
    "ce_soft": lambda h, y: F.cross_entropy(h, F.softmax(h * y), soft_label=True),
    "hinge": lambda h, y: paddle.mean(F.hinge_embedding_loss(h, paddle.sign(y - 0.5))),
    "mll": lambda h, y: F.multi_label_soft_margin_loss(h, paddle.cast(h > y, "float32")),
    "ctc": lambda h, y: F.ctc_loss(
        sequences(h) * parameter(4), paddle.cast(h[:, :2] > y, "int32") + 1,
        paddle.cast(y[:, 0] * 0 + 8, "int64"), paddle.cast(y[:, 0] * 0 + 2, "int64")),
    "hsigmoid": lambda h, y: paddle.mean(nn.HSigmoidLoss(8, 6)(h, paddle.cast(y * 6, "int64"))),
    "rowmean": lambda h, y: paddle.mean(h * y),
    # Of no batch mean, and with a gradient of zeros.
    "weighted": lambda h, y: paddle.sum(paddle.square(h - y) * y) /
                paddle.clip(paddle.sum(y), min=1.0),
    "topk_indices": lambda h, y: paddle.mean(h * y) +
                    0.0 * paddle.mean(paddle.cast(paddle.topk(h, 1)[1], "float32")),
}


# --- Optimizers -----------------------------------------------------------------------------------

OPTIMIZERS = {
    "l1_decay": lambda: paddle.optimizer.SGD(0.1, weight_decay=paddle.regularizer.L1Decay(0.01)),
    "asgd": lambda: paddle.optimizer.ASGD(0.1, batch_num=2),
    "nadam": lambda: paddle.optimizer.NAdam(0.1),
    "radam": lambda: paddle.optimizer.RAdam(0.1, beta2=0.5),
    "rprop": lambda: paddle.optimizer.Rprop(0.01),
    "lars": lambda: paddle.incubate.optimizer.LarsMomentumOptimizer(0.1, 0.9),
    "model_average": lambda: paddle.optimizer.SGD(0.1),
    "loss_scaling": lambda: static.amp.decorate(
        paddle.optimizer.Adam(0.1), use_dynamic_loss_scaling=True, dtype="float16"),
}


def loss_of(name, h, y):
    if name in LOSSES:
        return LOSSES[name](h, y)
    if name in MODELS:
        h = MODELS[name](h)
    return paddle.mean((nn.Linear(h.shape[-1], 1)(h) - y) * (y + 1))


def minimize_scaled(optimizer, loss, startup):
    """As for a program in half precision on a GPU: Paddle scales no other losses."""
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0, incr_every_n_steps=2)
    state = paddle.amp.auto_cast.__globals__["amp_global_state"]()
    dtype, state.amp_dtype = state.amp_dtype, "float16"
    scaled = scaler.scale(loss)
    state.amp_dtype = dtype
    scaler.minimize(optimizer, scaled, startup_program=startup)


def build(name):
    """Main program, startup program, loss."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, COLUMNS])
        y = static.data("y", [None, 1])
        loss = loss_of(name, nn.Linear(COLUMNS, COLUMNS)(x), y)
        optimizer = OPTIMIZERS.get(name, lambda: paddle.optimizer.SGD(0.1))()
        if name == "loss_scaling":
            minimize_scaled(optimizer, loss, startup)
        else:
            optimizer.minimize(loss)
        if name == "model_average":
            paddle.incubate.ModelAverage(0.15, min_average_window=2, max_average_window=4)
    return main, startup, loss


def leave_callstacks_out(program):
    """Those name files of the machine."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("op_callstack"):
                op._remove_attr("op_callstack")


def write(name, directory):
    paddle.utils.unique_name.switch()
    paddle.seed(7)
    main, startup, loss = build(name)
    if not paddle.framework.in_pir_mode():
        leave_callstacks_out(main)
        leave_callstacks_out(startup)
    scope = static.Scope()
    with static.scope_guard(scope):
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        feeds = batches(8 if name in OPTIMIZERS else 3)
        export_program.export(directory, main, startup, feeds=feeds, scope=scope)
        losses = [float(executor.run(main, feed=feed, fetch_list=[loss])[0]) for feed in feeds]
    with open(os.path.join(directory, "loss"), "w", encoding="utf-8") as file:
        file.write(" ".join(map(repr, losses)))


def main():
    paddle.enable_static()
    for name in sys.argv[2:] or [*MODELS, *LOSSES, *OPTIMIZERS]:
        try:
            write(name, os.path.join(sys.argv[1], name))
        except Exception as error:  # of many kinds; the last line says what Paddle misses
            if paddle.framework.in_pir_mode():
                raise
            print(f"{name}: not built: {str(error).strip().splitlines()[-1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
