#!/usr/bin/env python3
"""weft run trains what ordinary training scripts export, as Paddle does.

usage: sweep_in_paddle_test.py [--keep FOLDER] WEFT TRANSPILE [SCRIPT...]
       sweep_in_paddle_test.py --record FOLDER WEFT TRANSPILE SCRIPT...

Each function of the table below is a training script in the small. Of every one:

  steps       Paddle and `weft run` train it from the same parameters and batches; the losses (and
              what else is fetched) of every step and all parameters and state after the last are
              compared. Dropout does not drop there.
  for test    the clone for tests gives the same in both, from Paddle's final parameters.
  transpile   grad_allreduce, multi_thread, single_process_multi_thread and local_sgd accept it,
              and the verifier has no complaint.
  2 ranks     with gradients reduced, the mean loss is that of one rank, if the script's loss is a
              mean over its batch without statistics of the batch; otherwise it is finite.
  dropout     with dropout, losses are finite.

With --record, programs, parameters, batches and Paddle's results are written as
tests/training/train_references_test.cc takes them, and nothing is checked.

Prints a table; the exit status is 1 if anything failed. Without PaddlePaddle there is nothing to
do: the status is 0.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

try:
    import numpy as np
    import paddle
except ImportError:
    print("skipped: no PaddlePaddle")
    sys.exit(0)

import paddle.nn as nn
import paddle.nn.functional as F
import paddle.vision.models as vision

import export_program

SCRIPTS = {}

# What must fail, and what the failure names. See docs/interop.md.
KNOWN = {}


MODES = ("grad_allreduce", "multi_thread", "single_process_multi_thread", "local_sgd")


class Script:
    """What a script declares: its data, its optimizer, and what is expected of it."""

    def __init__(self, name, build, batch=4, steps=3, mean=True, tolerance=1e-5, state=1e-5,
                 skip=(), outliers=0, noise=1e-7, compare=True, quirks=False,
                 modes=MODES):
        self.name, self.build = name, build
        self.batch, self.steps = batch, steps
        self.mean = mean            # is the loss on 2 ranks that on 1?
        self.tolerance = tolerance  # of losses, relative
        self.state = state          # of parameters, relative to the largest of a tensor
        self.outliers = outliers    # a part of the elements that may differ by 100 times that
        self.skip = skip            # parameters that are not compared
        self.noise = noise          # what is less, of a parameter, counts as none
        self.compare = compare      # with Paddle?
        self.quirks = quirks        # of Paddle's kernels, asked of weft
        self.modes = modes          # of transpile, that accept it

    def begin(self):
        self.draws, self.fetches, self.test, self.schedule = {}, [], None, None
        self.drops, self.rounding = False, []

    def _data(self, name, shape, dtype, draw):
        self.draws[name] = draw
        return paddle.static.data(name, [-1] + list(shape), dtype)

    def floats(self, name, *shape, low=-1.0, high=1.0):
        return self._data(name, shape, "float32", lambda rng, n: rng.uniform(
            low, high, (n,) + shape).astype("float32"))

    def ints(self, name, *shape, low=0, high=2, dtype="int64"):
        return self._data(name, shape, dtype, lambda rng, n: rng.integers(
            low, high, (n,) + shape).astype(dtype))

    def bits(self, name, *shape):
        return self._data(name, shape, "float32", lambda rng, n: rng.integers(
            0, 2, (n,) + shape).astype("float32"))

    def feeds(self):
        rng = np.random.default_rng(1)
        return [{name: draw(rng, self.batch) for name, draw in self.draws.items()}
                for _ in range(self.steps)]

    def fetch(self, *variables):
        self.fetches += variables

    def before_minimize(self, loss):
        """A script that does not call minimize() here calls this before its optimizer."""
        self.loss = loss
        program = paddle.static.default_main_program()
        for op in program.global_block().ops:
            if op.type == "dropout" and op.attr("dropout_prob") > 0:
                self.drops = True
                if self.without_dropout:
                    op._set_attr("dropout_prob", 0.0)
            if op.type == "rnn" and op.attr("dropout_prob") > 0:
                self.drops = True
                if self.without_dropout:
                    op._set_attr("dropout_prob", 0.0)
        if self.test is None:
            self.test = program.clone(for_test=True)

    def minimize(self, loss, optimizer=None, **options):
        self.before_minimize(loss)
        optimizer = optimizer or paddle.optimizer.SGD(0.1)
        optimizer.minimize(loss, **options)
        lr = getattr(optimizer, "_learning_rate", None)
        if isinstance(lr, paddle.optimizer.lr.LRScheduler):
            self.schedule = lr


def script(**options):
    def add(build):
        SCRIPTS[build.__name__] = Script(build.__name__, build, **options)
        return build
    return add


# --- Vision ---------------------------------------------------------------------------------------


def classify(s, logits, classes=10, optimizer=None):
    label = s.ints("label", 1, high=classes)
    s.fetch(paddle.static.accuracy(F.softmax(logits), label))
    rate = 1e-5 if s.state == 1 else 1e-3
    s.minimize(F.cross_entropy(logits, label),
               optimizer or paddle.optimizer.Momentum(rate, weight_decay=1e-4))


# Statistics of few samples divide the rounding of the first step, and so its gradients: steps are
# small here, and parameters are compared by their size only.
DEEP = dict(batch=8, mean=False, tolerance=1e-3, state=1, noise=1e-5)
HEAVY = dict(DEEP, batch=4, steps=2)


@script()
def lenet(s):
    classify(s, vision.LeNet()(s.floats("image", 1, 28, 28)))


@script(batch=2, steps=2, tolerance=1e-4)
def alexnet(s):
    x = vision.AlexNet(num_classes=-1)(s.floats("image", 3, 96, 96))
    classify(s, nn.Linear(256, 10)(F.adaptive_avg_pool2d(x, 1).flatten(1)))


@script(mean=False, tolerance=1e-4, state=1e-4, noise=1e-6)
def vgg_bn(s):
    from paddle.vision.models.vgg import make_layers
    features = make_layers([8, "M", 16, "M", 16, 16, "M"], batch_norm=True)
    x = vision.VGG(features, num_classes=-1, with_pool=True)(s.floats("image", 3, 32, 32))
    x = nn.Dropout(0.5)(nn.ReLU()(nn.Linear(16 * 49, 32)(x.flatten(1))))
    classify(s, nn.Linear(32, 10)(x))


@script(**DEEP)
def mobilenet_v1(s):
    classify(s, vision.mobilenet_v1(scale=0.25, num_classes=10)(s.floats("image", 3, 64, 64)))


@script(**DEEP)
def mobilenet_v2(s):
    classify(s, vision.mobilenet_v2(scale=0.25, num_classes=10)(s.floats("image", 3, 64, 64)))


@script(**DEEP)
def mobilenet_v3_small(s):
    classify(s, vision.mobilenet_v3_small(scale=0.35, num_classes=10)(
        s.floats("image", 3, 64, 64)))


@script(**DEEP)
def mobilenet_v3_large(s):
    classify(s, vision.mobilenet_v3_large(scale=0.35, num_classes=10)(
        s.floats("image", 3, 64, 64)))


@script(**DEEP)
def resnet18(s):
    schedule = paddle.optimizer.lr.PiecewiseDecay([1, 2], [1e-5, 5e-6, 1e-6])
    classify(s, vision.resnet18(num_classes=10)(s.floats("image", 3, 64, 64)),
             optimizer=paddle.optimizer.Momentum(schedule, weight_decay=paddle.regularizer.L2Decay(
                 1e-4)))


@script(**HEAVY)
def resnet50(s):
    classify(s, vision.resnet50(num_classes=10)(s.floats("image", 3, 64, 64)))


@script(**HEAVY)
def resnext50(s):
    classify(s, vision.resnext50_32x4d(num_classes=10)(s.floats("image", 3, 64, 64)))


@script(**HEAVY)
def wide_resnet(s):
    from paddle.vision.models.resnet import BottleneckBlock
    classify(s, vision.ResNet(BottleneckBlock, 50, width=128, num_classes=10)(
        s.floats("image", 3, 64, 64)))


@script(**HEAVY)
def densenet121(s):
    classify(s, vision.densenet121(num_classes=10)(s.floats("image", 3, 32, 32)))


@script(**dict(HEAVY, batch=2))
def googlenet(s):
    out, aux1, aux2 = vision.googlenet(num_classes=10)(s.floats("image", 3, 224, 224))
    label = s.ints("label", 1, high=10)
    s.minimize(F.cross_entropy(out, label) + 0.3 * F.cross_entropy(aux1, label) +
               0.3 * F.cross_entropy(aux2, label), paddle.optimizer.Momentum(1e-5))


@script(**HEAVY)
def inception_v3(s):
    classify(s, vision.inception_v3(num_classes=10)(s.floats("image", 3, 139, 139)))


@script(tolerance=1e-4)
def squeezenet(s):
    classify(s, vision.squeezenet1_1(num_classes=10)(s.floats("image", 3, 64, 64)))


@script(**DEEP)
def shufflenet_v2(s):
    classify(s, vision.shufflenet_v2_x0_25(num_classes=10)(s.floats("image", 3, 64, 64)))


@script(**DEEP)
def shufflenet_v2_swish(s):
    from paddle.vision.models.shufflenetv2 import ShuffleNetV2
    classify(s, ShuffleNetV2(scale=0.25, act="swish", num_classes=10)(s.floats("image", 3, 64, 64)))


@script()
def vit(s):
    x = nn.Conv2D(3, 16, 8, stride=8)(s.floats("image", 3, 32, 32)).flatten(2).transpose([0, 2, 1])
    cls = paddle.static.create_parameter([1, 1, 16], "float32", name="cls")
    position = paddle.static.create_parameter([1, 17, 16], "float32", name="position")
    x = paddle.concat([cls.expand([paddle.shape(x)[0], -1, -1]), x], axis=1) + position
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, activation="gelu",
                                       normalize_before=True)
    x = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16))(x)
    classify(s, nn.Linear(16, 10)(x[:, 0]), optimizer=paddle.optimizer.AdamW(
        0.001, weight_decay=0.05, grad_clip=nn.ClipGradByGlobalNorm(1.0)))


@script()
def swin_block(s):
    """Windows of attention, shifted, with a table of relative positions."""
    x = nn.Conv2D(3, 16, 4, stride=4)(s.floats("image", 3, 32, 32)).transpose([0, 2, 3, 1])
    x = paddle.roll(nn.LayerNorm(16)(x), shifts=(-2, -2), axis=(1, 2))
    windows = x.reshape([-1, 2, 4, 2, 4, 16]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 16, 16])
    qkv = nn.Linear(16, 48)(windows).reshape([-1, 16, 3, 2, 8]).transpose([2, 0, 3, 1, 4])
    q, k, v = qkv[0], qkv[1], qkv[2]
    table = paddle.static.create_parameter([49, 2], "float32", name="table")
    coords = np.stack(np.meshgrid(np.arange(4), np.arange(4), indexing="ij")).reshape(2, -1)
    relative = coords[:, :, None] - coords[:, None, :] + 3
    index = paddle.assign((relative[0] * 7 + relative[1]).reshape(-1).astype("int64"))
    bias = paddle.index_select(table, index).reshape([16, 16, 2]).transpose([2, 0, 1])
    attention = F.softmax(paddle.matmul(q * 8**-0.5, k, transpose_y=True) + bias.unsqueeze(0))
    out = paddle.matmul(attention, v).transpose([0, 2, 1, 3]).reshape([-1, 16, 16])
    out = out.reshape([-1, 2, 2, 4, 4, 16]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 8, 8, 16])
    out = paddle.roll(out, shifts=(2, 2), axis=(1, 2))
    merged = paddle.concat([out[:, 0::2, 0::2], out[:, 1::2, 0::2], out[:, 0::2, 1::2],
                            out[:, 1::2, 1::2]], -1)
    classify(s, nn.Linear(64, 10)(merged.mean(axis=[1, 2])))


@script()
def unet(s):
    image, mask = s.floats("image", 3, 16, 16), s.ints("mask", 16, 16, 1, high=2)
    def block(x, n):
        for _ in range(2):
            x = F.relu(nn.GroupNorm(2, n)(nn.Conv2D(x.shape[1], n, 3, padding=1)(x)))
        return x
    a = block(image, 4)
    b = block(F.max_pool2d(a, 2), 8)
    c = block(F.max_pool2d(b, 2), 8)
    up = nn.Conv2DTranspose(8, 8, 2, stride=2)(c)
    d = block(paddle.concat([up, b], 1), 8)
    up = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=True)
    e = block(paddle.concat([up, a], 1), 4)
    logits = nn.Conv2D(4, 2, 1)(e).transpose([0, 2, 3, 1])
    s.minimize(F.dice_loss(F.softmax(logits), mask) + F.cross_entropy(logits, mask),
               paddle.optimizer.Adam(0.001))


@script(mean=False)
def deeplab(s):
    """Atrous pyramid, pooled branch blown up to the size of another tensor, ignored pixels."""
    x = F.relu(nn.BatchNorm2D(8)(nn.Conv2D(3, 8, 3, stride=2, padding=1)(
        s.floats("image", 3, 33, 33))))
    branches = [nn.Conv2D(8, 4, 1)(x)] + [
        nn.Conv2D(8, 4, 3, padding=rate, dilation=rate)(x) for rate in (2, 3)]
    pooled = nn.Conv2D(8, 4, 1)(F.adaptive_avg_pool2d(x, 1))
    branches.append(F.interpolate(pooled, size=paddle.shape(x)[2:], mode="bilinear"))
    x = F.interpolate(paddle.concat(branches, 1), size=[33, 33], mode="bilinear", align_mode=0)
    logits = nn.Conv2D(16, 5, 1)(x)
    label = s.ints("label", 33, 33, high=6)  # 5: ignored
    s.minimize(F.cross_entropy(logits, label, axis=1, ignore_index=5),
               paddle.optimizer.Momentum(paddle.optimizer.lr.PolynomialDecay(0.01, 10, power=0.9)))


def resize(mode, **options):
    def build(s):
        image = s.floats("image", 2, 5, 7)
        x = nn.Conv2D(2, 3, 3, padding=1)(image)
        up = F.interpolate(x, mode=mode, **options)
        s.fetch(paddle.mean(up * up))
        s.minimize(paddle.mean(paddle.square(nn.Conv2D(3, 1, 3)(up))))
    return build


for _name, _options in {
        "nearest": dict(mode="nearest", scale_factor=2),
        "nearest_down": dict(mode="nearest", size=[3, 4]),
        "bilinear_0": dict(mode="bilinear", size=[9, 10], align_mode=0),
        "bilinear_1": dict(mode="bilinear", size=[9, 10], align_mode=1),
        "bilinear_align": dict(mode="bilinear", size=[9, 10], align_corners=True),
        "bilinear_down": dict(mode="bilinear", size=[3, 3], align_mode=1),
        "bilinear_scales": dict(mode="bilinear", scale_factor=[1.5, 2.0]),
        "bicubic": dict(mode="bicubic", size=[9, 10]),
        "bicubic_align": dict(mode="bicubic", size=[9, 10], align_corners=True),
        "area": dict(mode="area", size=[3, 4]),
}.items():
    SCRIPTS["resize_" + _name] = Script("resize_" + _name, resize(**_options))


@script()
def resize_1d(s):
    x = nn.Conv1D(3, 4, 3, padding="SAME")(s.floats("x", 3, 6))
    up = F.interpolate(x, scale_factor=2, mode="linear", data_format="NCW")
    s.minimize(paddle.mean(paddle.square(up)))


@script()
def resize_3d(s):
    x = nn.Conv3D(1, 2, 3, padding=1)(s.floats("x", 1, 4, 4, 4))
    up = F.interpolate(x, scale_factor=2, mode="trilinear", data_format="NCDHW")
    up = F.interpolate(up, size=[5, 5, 5], mode="nearest", data_format="NCDHW")
    s.minimize(paddle.mean(paddle.square(nn.Conv3DTranspose(2, 1, 2, stride=2)(up))))


def warp(**options):
    def build(s):
        image = nn.Conv2D(2, 2, 3, padding=1)(s.floats("image", 2, 6, 5))
        theta = nn.Linear(4, 6)(s.floats("z", 4)).reshape([-1, 2, 3])
        grid = F.affine_grid(theta, [4, 2, 7, 6], align_corners=options.get("align_corners", True))
        s.minimize(paddle.mean(paddle.square(F.grid_sample(image, grid, **options))))
    return build


for _mode in ("bilinear", "nearest"):
    for _padding in ("zeros", "border", "reflection"):
        for _align in (True, False):
            _name = "grid_%s_%s_%d" % (_mode, _padding, _align)
            SCRIPTS[_name] = Script(_name, warp(mode=_mode, padding_mode=_padding,
                                                align_corners=_align), mean=False)


@script()
def super_resolution(s):
    x = nn.Conv2D(1, 8, 5, padding=2)(s.floats("low", 1, 8, 8))
    y = F.pixel_shuffle(nn.Conv2D(8, 4, 3, padding=1)(F.relu(x)), 2)
    down = F.pixel_unshuffle(y, 2)
    s.minimize(F.mse_loss(y, s.floats("high", 1, 16, 16)) + 0.1 * F.l1_loss(
        F.channel_shuffle(down, 2), paddle.zeros_like(down)), paddle.optimizer.Adam(0.001))


@script()
def detection(s):
    """A head of anchors: focal loss, smooth L1, IoU of boxes."""
    x = F.relu(nn.Conv2D(3, 8, 3, stride=4, padding=1)(s.floats("image", 3, 16, 16)))
    scores = nn.Conv2D(8, 3, 1)(x).transpose([0, 2, 3, 1]).reshape([-1, 16, 3])
    boxes = nn.Conv2D(8, 4, 1)(x).transpose([0, 2, 3, 1]).reshape([-1, 16, 4])
    label, target = s.bits("label", 16, 3), s.floats("target", 16, 4, low=0.2, high=0.8)
    def corners(b):
        xy, wh = b[:, :, :2], paddle.clip(b[:, :, 2:], 0.01, 4.0)
        return xy - wh / 2, xy + wh / 2
    (a0, a1), (b0, b1) = corners(F.sigmoid(boxes)), corners(target)
    area = lambda size: size[:, :, 0] * size[:, :, 1]
    inter = area(F.relu(paddle.minimum(a1, b1) - paddle.maximum(a0, b0)))
    union = area(a1 - a0) + area(b1 - b0) - inter
    hull = area(paddle.maximum(a1, b1) - paddle.minimum(a0, b0))
    giou = inter / union - (hull - union) / hull
    focal = F.sigmoid_focal_loss(scores, label, reduction="mean")
    s.minimize(focal + F.smooth_l1_loss(boxes, target) + paddle.mean(1 - giou))


@script(mean=False, quirks=True)
def yolo(s):
    x = nn.Conv2D(3, 18, 3, stride=4, padding=1)(s.floats("image", 3, 16, 16))
    boxes = s.floats("boxes", 5, 4, low=0.2, high=0.6)
    label = s.ints("label", 5, high=4, dtype="int32")
    loss = paddle.vision.ops.yolo_loss(x, boxes, label, anchors=[10, 13, 16, 30], anchor_mask=[0, 1],
                                       class_num=4, ignore_thresh=0.5, downsample_ratio=4)
    size = s.ints("size", 2, low=16, high=24, dtype="int32")
    boxes, scores = paddle.vision.ops.yolo_box(x, size, [10, 13, 16, 30], 4, 0.01, 4)
    s.fetch(paddle.mean(boxes), paddle.mean(scores))
    s.minimize(paddle.mean(loss))


@script(mean=False)
def hard_examples(s):
    """The worst half of the losses, chosen by topk; others masked."""
    logits = nn.Linear(8, 4)(s.floats("x", 6, 8))
    losses = F.cross_entropy(logits, s.ints("label", 6, 1, high=4), reduction="none").squeeze(-1)
    worst, index = paddle.topk(losses, 3, axis=1)
    picked = paddle.take_along_axis(losses, index, 1)
    chosen = paddle.masked_select(losses, losses > 1.0)
    s.minimize(paddle.mean(worst) + paddle.mean(picked) + paddle.sum(chosen) / 24)


@script(mean=False)
def gan(s):
    """Two optimizers in one program, each of its own part."""
    real, z = s.floats("real", 8), s.floats("z", 4)
    def parts(prefix, sizes):
        return [nn.Linear(a, b, weight_attr=paddle.ParamAttr(name="%s%d.w" % (prefix, i)),
                          bias_attr=paddle.ParamAttr(name="%s%d.b" % (prefix, i)))
                for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    g, d = parts("g", [4, 16, 8]), parts("d", [8, 16, 1])
    run = lambda layers, x: layers[1](F.leaky_relu(layers[0](x), 0.2))
    fake = run(g, z)
    ones, zeros = paddle.ones_like(z[:, :1]), paddle.zeros_like(z[:, :1])
    bce = F.binary_cross_entropy_with_logits
    d_loss = bce(run(d, real), ones) + bce(run(d, fake.detach()), zeros)
    g_loss = bce(run(d, fake), ones)
    s.before_minimize(d_loss)
    paddle.optimizer.Adam(0.001, beta1=0.5).minimize(
        d_loss, parameters=[p.name for layer in d for p in layer.parameters()])
    paddle.optimizer.Adam(0.001, beta1=0.5).minimize(
        g_loss, parameters=[p.name for layer in g for p in layer.parameters()])
    s.fetch(g_loss)


def penalized(features, *shape):
    """A critic with a penalty on its slope: gradients of gradients."""
    def build(s):
        x = s.floats("x", *shape)
        x.stop_gradient = False
        h = features(x)
        score = nn.Linear(h.shape[1], 1)(h)
        slope = paddle.static.gradients([score], [x])[0]
        slope = paddle.reshape(slope, [-1, int(np.prod(shape))])
        norm = paddle.sqrt(paddle.sum(paddle.square(slope), axis=1) + 1e-12)
        s.minimize(paddle.mean(score) + 10 * paddle.mean(paddle.square(norm - 1)),
                   paddle.optimizer.Adam(0.001, beta1=0.5, beta2=0.9))
    return build


def dense_critic(activation):
    def features(x):
        return activation(nn.Linear(8, 8)(activation(paddle.static.nn.fc(x, 8))))
    return features


def conv_critic(x):
    h = F.leaky_relu(nn.Conv2D(2, 4, 3, stride=2, padding=1)(x), 0.2)
    h = F.leaky_relu(nn.Conv2D(4, 8, 3, stride=2, padding=1, bias_attr=False)(h), 0.2)
    return paddle.reshape(h, [-1, 32])


for _name, _activation in {
        "elu": F.elu, "leaky": F.leaky_relu, "relu": F.relu, "sigmoid": F.sigmoid,
        "softplus": F.softplus, "square": paddle.square, "tanh": paddle.tanh,
        "quotient": lambda x: x / (1 + paddle.square(x)),
        "root": lambda x: paddle.sqrt(1 + x * x) - paddle.rsqrt(1 + x * x),
        "logarithm": lambda x: paddle.log(2 + paddle.sin(x)) + paddle.pow(x, 3.0)}.items():
    SCRIPTS["critic_" + _name] = Script("critic_" + _name, penalized(dense_critic(_activation), 8))
SCRIPTS["critic_conv"] = Script("critic_conv", penalized(conv_critic, 2, 8, 8))


@script()
def autoencoder(s):
    x = s.floats("x", 1, 8, 8, low=0.0, high=1.0)
    h = F.elu(nn.Conv2D(1, 4, 3, stride=2, padding=1)(x))
    mu, logvar = nn.Linear(64, 4)(h.flatten(1)), nn.Linear(64, 4)(h.flatten(1))
    z = mu + paddle.exp(0.5 * logvar) * s.floats("noise", 4)
    y = nn.Linear(4, 64)(z).reshape([-1, 4, 4, 4])
    y = F.sigmoid(nn.Conv2DTranspose(4, 1, 3, stride=2, padding=1, output_padding=1)(y))
    kl = -0.5 * paddle.mean(paddle.sum(1 + logvar - mu.pow(2) - logvar.exp(), axis=1))
    s.minimize(F.binary_cross_entropy(y, x) + 0.1 * kl, paddle.optimizer.Adamax(0.01))


@script()
def normalized_weights(s):
    """Weight normalization, written out: nn.utils.weight_norm does not work in static programs."""
    x = s.floats("x", 3, 8, 8)
    v = paddle.static.create_parameter([4, 3, 3, 3], "float32", name="v")
    g = paddle.static.create_parameter([4, 1, 1, 1], "float32", name="g")
    norm = paddle.sqrt(paddle.sum(paddle.square(v), axis=[1, 2, 3], keepdim=True))
    y = F.conv2d(x, v * (g / norm))
    s.minimize(paddle.mean(paddle.square(nn.Linear(144, 6)(F.relu(y).flatten(1)))))


@script(quirks=True)
def spectral_normalized(s):
    layer = nn.Linear(6, 5)
    weight = nn.SpectralNorm(layer.weight.shape, dim=1, power_iters=2)(layer.weight)
    other = paddle.static.nn.spectral_norm(paddle.static.create_parameter(
        [5, 3], "float32", name="sn"), dim=0)
    s.minimize(paddle.mean(paddle.square(paddle.matmul(F.relu(paddle.matmul(
        s.floats("x", 6), weight)), other))))


@script(mean=False)
def video_3d(s):
    x = F.relu(nn.BatchNorm3D(4)(nn.Conv3D(2, 4, 3, padding=1)(s.floats("x", 2, 4, 6, 6))))
    x = F.max_pool3d(x, 2)
    x = nn.InstanceNorm3D(4)(nn.Conv3D(4, 4, (1, 3, 3), padding="SAME", groups=2)(x))
    x = F.relu(x)
    classify(s, nn.Linear(4, 10)(F.adaptive_avg_pool3d(x, 1).flatten(1)))


@script()
def padding_and_pools(s):
    x = s.floats("x", 2, 9, 9)
    x = nn.Conv2D(2, 4, 3, padding=[1, 2, 0, 1], padding_mode="zeros")(x)
    x = nn.Conv2D(4, 4, 3, padding=1, padding_mode="reflect")(x)
    x = nn.Conv2D(4, 4, 3, padding="SAME", stride=2)(nn.ZeroPad2D(1)(x))
    x = nn.Conv2D(4, 4, 3, padding=1, padding_mode="replicate")(x)
    x = nn.Conv2D(4, 4, 3, padding=1, padding_mode="circular")(x)
    a = F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, exclusive=False)
    m, index = F.max_pool2d(x, 3, stride=2, padding=1, return_mask=True)
    b = F.adaptive_max_pool2d(x, 2)
    s.minimize(paddle.mean(a) + paddle.mean(paddle.square(m)) + paddle.mean(paddle.square(b)),
               paddle.optimizer.SGD(0.01))


@script()
def unpool(s):
    x = nn.Conv2D(1, 2, 3, padding=1)(s.floats("x", 1, 8, 8))
    m, index = F.max_pool2d(x, 2, stride=2, return_mask=True)
    s.minimize(paddle.mean(paddle.square(nn.Conv2D(2, 1, 3)(F.max_unpool2d(m, index, 2)))))


@script()
def conv_channels_last(s):
    x = nn.Conv2D(3, 4, 3, data_format="NHWC")(s.floats("x", 8, 8, 3))
    x = nn.BatchNorm2D(4, data_format="NHWC", use_global_stats=True)(x)
    x = F.max_pool2d(F.relu(x), 2, data_format="NHWC")
    s.minimize(paddle.mean(paddle.square(F.adaptive_avg_pool2d(x, 1, data_format="NHWC"))))


@script()
def fold_unfold(s):
    x = nn.Conv2D(2, 2, 3, padding=1)(s.floats("x", 2, 6, 6))
    patches = F.unfold(x, 2, strides=2)
    s.minimize(paddle.mean(paddle.square(F.fold(nn.Linear(9, 9)(patches), [6, 6], 2, strides=2))))


@script()
def deformable(s):
    x = s.floats("x", 2, 6, 6)
    offset = nn.Conv2D(2, 18, 3, padding=1)(x)
    mask = F.sigmoid(nn.Conv2D(2, 9, 3, padding=1)(x))
    y = paddle.vision.ops.DeformConv2D(2, 3, 3, padding=1)(x, offset, mask)
    y = paddle.vision.ops.DeformConv2D(3, 4, 3, padding=1)(y, offset)
    s.minimize(paddle.mean(paddle.square(y)))


@script()
def regions(s):
    x = nn.Conv2D(2, 3, 3, padding=1)(s.floats("x", 2, 8, 8))
    corners = [s.floats("corners", 2, 2, high=3), s.floats("ends", 2, 2, low=3, high=8)]
    boxes = paddle.concat(corners, axis=-1).reshape([-1, 4])
    per_image = s.ints("regions", low=2, high=3, dtype="int32")
    aligned = paddle.vision.ops.roi_align(x, boxes, per_image, 3)
    pooled = paddle.vision.ops.roi_pool(x, boxes, per_image, 2)
    s.minimize(paddle.mean(paddle.square(aligned)) + paddle.mean(paddle.square(pooled)))


# --- Text -----------------------------------------------------------------------------------------


@script(state=2e-5)
def lstm_classifier(s):
    x = nn.Embedding(50, 8, padding_idx=0)(s.ints("ids", 7, high=50))
    length = s.ints("length", low=1, high=8)
    out, (h, _) = nn.LSTM(8, 6, num_layers=2, dropout=0.2)(x, sequence_length=length)
    classify(s, nn.Linear(6, 3)(h[-1]), 3, paddle.optimizer.Adam(0.01))


@script()
def bi_lstm_pooled(s):
    x = nn.Embedding(50, 8, sparse=True)(s.ints("ids", 7, high=50))
    length = s.ints("length", low=1, high=8)
    out, _ = nn.LSTM(8, 6, direction="bidirect")(x, sequence_length=length)
    mask = F.sequence_mask(length, 7, "float32").unsqueeze(-1)
    pooled = paddle.sum(out * mask, 1) / paddle.sum(mask, 1)
    strongest = paddle.max(out + (mask - 1) * 1e4, axis=1)
    classify(s, nn.Linear(24, 3)(paddle.concat([pooled, strongest], 1)), 3,
             paddle.optimizer.Adagrad(0.01))


@script(mean=False)
def gru_tagger(s):
    ids = s.ints("ids", 7, high=50)
    x = nn.Embedding(50, 8)(ids)
    out, _ = nn.GRU(8, 6, direction="bidirect")(x)
    logits = nn.Linear(12, 4)(out)
    s.minimize(F.cross_entropy(logits, s.ints("tags", 7, high=5), ignore_index=4),
               paddle.optimizer.SGD(0.1, grad_clip=nn.ClipGradByGlobalNorm(0.5)))


@script()
def simple_rnn_lm(s):
    ids = s.ints("ids", 8, high=30)
    out, _ = nn.SimpleRNN(8, 8, time_major=True)(
        nn.Embedding(30, 8)(ids[:, :-1]).transpose([1, 0, 2]))
    s.minimize(F.cross_entropy(nn.Linear(8, 30)(out.transpose([1, 0, 2])), ids[:, 1:].unsqueeze(-1)),
               paddle.optimizer.SGD(paddle.optimizer.lr.ExponentialDecay(0.5, 0.9)))


@script()
def text_cnn(s):
    x = nn.Embedding(50, 8)(s.ints("ids", 9, high=50)).transpose([0, 2, 1])
    features = [F.relu(nn.Conv1D(8, 4, k)(x)).max(axis=-1) for k in (2, 3)]
    features.append(F.max_pool1d(nn.Conv1D(8, 4, 3, padding=1)(x), 3, stride=3).flatten(1))
    x = F.dropout(paddle.concat(features, 1), 0.5)
    classify(s, nn.Linear(20, 3)(x), 3, paddle.optimizer.Adadelta(0.5))


@script()
def static_sentiment(s):
    """paddle.static.nn alone."""
    ids = s.ints("ids", 9, high=50)
    x = paddle.static.nn.embedding(ids, [50, 8], is_sparse=False, padding_idx=0)
    x = paddle.static.nn.conv2d(paddle.unsqueeze(x, 1), 4, [3, 8], act="tanh")
    x = paddle.static.nn.fc(paddle.max(x, axis=[2, 3]), 16, activation="relu",
                            weight_attr=paddle.ParamAttr(learning_rate=0.5,
                                regularizer=paddle.regularizer.L1Decay(0.001)))
    x = paddle.static.nn.layer_norm(paddle.static.nn.prelu(x, "all"))
    classify(s, paddle.static.nn.fc(x, 3), 3, paddle.optimizer.Momentum(
        0.05, use_nesterov=True, weight_decay=paddle.regularizer.L2Decay(0.01)))


def transformer_layer(dropout=0.1):
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, activation="gelu")


@script(state=1e-4, tolerance=1e-4)
def bert(s):
    """Masked words and next sentence, warm-up of the learning rate, no decay of some."""
    ids, kinds = s.ints("ids", 8, high=60), s.ints("kinds", 8, high=2)
    length = s.ints("length", low=3, high=9)
    where, words = s.ints("where", 2, high=3), s.ints("words", 2, 1, high=60)
    table = nn.Embedding(60, 16)
    positions = paddle.arange(0, 8, dtype="int64").unsqueeze(0)
    x = table(ids) + nn.Embedding(8, 16)(positions) + nn.Embedding(2, 16)(kinds)
    x = nn.Dropout(0.1)(nn.LayerNorm(16)(x))
    mask = (1 - F.sequence_mask(length, 8, "float32")).unsqueeze([1, 2]) * -1e4
    x = nn.TransformerEncoder(transformer_layer(), 2)(x, mask)
    flat = where + paddle.arange(0, paddle.shape(ids)[0], dtype="int64").unsqueeze(1) * 8
    picked = paddle.gather(x.reshape([-1, 16]), flat.reshape([-1]))
    picked = nn.LayerNorm(16)(F.gelu(nn.Linear(16, 16)(picked)))
    bias = paddle.static.create_parameter([60], "float32", name="head_bias", is_bias=True)
    logits = paddle.matmul(picked, table.weight, transpose_y=True) + bias
    masked = F.cross_entropy(logits, words.reshape([-1, 1]))
    pooled = paddle.tanh(nn.Linear(16, 16)(x[:, 0]))
    following = F.cross_entropy(nn.Linear(16, 2)(pooled), s.ints("next", 1))
    schedule = paddle.optimizer.lr.LinearWarmup(paddle.optimizer.lr.PolynomialDecay(
        1e-3, 100, end_lr=0.0), 2, 0.0, 1e-3)
    s.minimize(masked + following, paddle.optimizer.AdamW(
        schedule, weight_decay=0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0),
        apply_decay_param_fun=lambda name: ".b_" not in name and "norm" not in name))


# The part of the biases that belongs to the keys has gradient 0.
@script(mean=False, state=1e-4, tolerance=1e-4, skip=["linear_0.b_0", "linear_8.b_0"])
def gpt(s):
    """Causal mask, tied embedding, loss over the shifted words with a mask."""
    ids, keep = s.ints("ids", 9, high=40), s.bits("keep", 8)
    words, labels = ids[:, :-1], ids[:, 1:]
    table = nn.Embedding(40, 16)
    x = table(words) + nn.Embedding(8, 16)(paddle.arange(8, dtype="int64"))
    for _ in range(2):
        h = nn.LayerNorm(16)(x)
        qkv = nn.Linear(16, 48)(h).reshape([0, 0, 3, 2, 8]).transpose([2, 0, 3, 1, 4])
        q, k, v = paddle.unbind(qkv, axis=0)
        scores = paddle.matmul(q, k, transpose_y=True) / 8**0.5
        causal = paddle.triu(paddle.full([8, 8], -1e9), diagonal=1)
        a = F.softmax(scores + causal)
        x = x + nn.Linear(16, 16)(paddle.matmul(F.dropout(a, 0.1), v).transpose(
            [0, 2, 1, 3]).flatten(2))
        h = nn.LayerNorm(16)(x)
        x = x + nn.Linear(32, 16)(F.gelu(nn.Linear(16, 32)(h), approximate=True))
    logits = paddle.matmul(nn.LayerNorm(16)(x), table.weight, transpose_y=True)
    losses = F.cross_entropy(logits, labels.unsqueeze(-1), reduction="none").squeeze(-1)
    s.minimize(paddle.sum(losses * keep) / 32, paddle.optimizer.Adam(
        paddle.optimizer.lr.CosineAnnealingDecay(1e-3, 10)))


@script(mean=False, state=1e-4, tolerance=1e-4)
def llama(s):
    """RMS norm, rotary positions, gated linear units."""
    ids = s.ints("ids", 9, high=40)
    x = nn.Embedding(40, 16)(ids[:, :-1])
    angles = np.outer(np.arange(8), 10000.0 ** (-np.arange(0, 8, 2) / 8))
    cos = paddle.assign(np.cos(np.concatenate([angles, angles], 1)).astype("float32"))
    sin = paddle.assign(np.sin(np.concatenate([angles, angles], 1)).astype("float32"))
    def rms(x, name):
        weight = paddle.static.create_parameter([16], "float32", name=name,
            default_initializer=nn.initializer.Constant(1.0))
        return x * paddle.rsqrt(paddle.mean(paddle.square(x), -1, keepdim=True) + 1e-6) * weight
    def rotate(x):
        half = paddle.concat([-x[..., 4:], x[..., :4]], -1)
        return x * cos.unsqueeze([0, 2]) + half * sin.unsqueeze([0, 2])
    h = rms(x, "n1")
    split = lambda y: y.reshape([0, 0, 2, 8])
    q, k, v = (split(nn.Linear(16, 16, bias_attr=False)(h)) for _ in range(3))
    causal = paddle.triu(paddle.full([1, 1, 8, 8], -1e9), diagonal=1)
    q, k, v = (y.transpose([0, 2, 1, 3]) for y in (rotate(q), rotate(k), v))
    a = paddle.matmul(F.softmax(paddle.matmul(q, k, transpose_y=True) / 8**0.5 + causal), v)
    x = x + nn.Linear(16, 16, bias_attr=False)(a.transpose([0, 2, 1, 3]).flatten(2))
    h = rms(x, "n2")
    x = x + nn.Linear(24, 16, bias_attr=False)(F.silu(nn.Linear(16, 24)(h)) * nn.Linear(16, 24)(h))
    s.minimize(F.cross_entropy(nn.Linear(16, 40)(rms(x, "n3")), ids[:, 1:].unsqueeze(-1)),
               paddle.optimizer.AdamW(1e-3, beta2=0.95, weight_decay=0.1))


@script(state=1e-4, tolerance=1e-4)
def transformer_translation(s):
    source, target = s.ints("source", 6, low=1, high=30), s.ints("target", 6, high=30)
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1)
    mask = model.generate_square_subsequent_mask(5)
    pad = paddle.cast(source == 3, "float32").unsqueeze([1, 2]) * -1e9
    out = model(nn.Embedding(30, 16)(source) * 4.0, nn.Embedding(30, 16)(target[:, :-1]) * 4.0,
                src_mask=pad, tgt_mask=mask, memory_mask=pad)
    logits = nn.Linear(16, 30)(out)
    smooth = F.label_smooth(F.one_hot(target[:, 1:], 30), epsilon=0.1)
    schedule = paddle.optimizer.lr.NoamDecay(16, 4, 2.0)
    s.minimize(F.cross_entropy(logits, smooth, soft_label=True),
               paddle.optimizer.Adam(schedule, beta2=0.98, epsilon=1e-9))


@script()
def seq2seq_attention(s):
    """Cells, unrolled by the script; attention over the encoder."""
    source, target = s.ints("source", 5, high=30), s.ints("target", 5, high=30)
    encoded, h = nn.GRU(8, 8)(nn.Embedding(30, 8)(source))
    h = h[0]
    words, cell, query = nn.Embedding(30, 8)(target), nn.GRUCell(16, 8), nn.Linear(8, 8)
    outs = []
    for t in range(4):
        scores = paddle.matmul(encoded, query(h).unsqueeze(-1))
        context = paddle.sum(F.softmax(scores, axis=1) * encoded, axis=1)
        out, h = cell(paddle.concat([words[:, t], context], -1), h)
        outs.append(out)
    logits = nn.Linear(8, 30)(paddle.stack(outs, axis=1))
    s.minimize(F.cross_entropy(logits, target[:, 1:].unsqueeze(-1)), paddle.optimizer.Adam(0.01))


@script()
def lstm_cells(s):
    x = s.floats("x", 4, 6)
    cell, state = nn.LSTMCell(6, 5), None
    for t in range(4):
        out, state = cell(x[:, t], state)
    simple = nn.SimpleRNNCell(6, 5)
    other, _ = simple(x[:, 0])
    s.minimize(paddle.mean(paddle.square(out)) + paddle.mean(paddle.square(other)))


@script(mean=False)
def rnn_of_cell(s):
    """nn.RNN around a cell: a loop in the program."""
    out, _ = nn.RNN(nn.GRUCell(6, 5))(s.floats("x", 4, 6))
    s.minimize(paddle.mean(paddle.square(out)))


@script()
def ctc(s):
    logits = nn.Linear(6, 5)(nn.LSTM(6, 6)(s.floats("x", 8, 6))[0]).transpose([1, 0, 2])
    s.minimize(F.ctc_loss(logits, s.ints("label", 3, low=1, high=5, dtype="int32"),
                          s.ints("time", low=7, high=9), s.ints("length", low=1, high=4)))


@script(mean=False)
def word2vec_nce(s):
    hidden = paddle.mean(nn.Embedding(40, 8)(s.ints("context", 4, high=40)), axis=1)
    s.minimize(paddle.mean(paddle.static.nn.nce(hidden, s.ints("word", 1, high=40), 40,
                                                num_neg_samples=5, seed=3)))


@script(mean=False)
def word2vec_nce_sparse(s):
    hidden = paddle.mean(nn.Embedding(40, 8, sparse=True)(s.ints("context", 4, high=40)), axis=1)
    word = s.ints("word", 1, high=40)
    options = dict(num_neg_samples=5, is_sparse=True)
    frequency = np.arange(1, 41) / sum(range(1, 41))
    s.minimize(paddle.mean(paddle.static.nn.nce(hidden, word, 40, seed=4, sampler="log_uniform",
                                                sample_weight=s.floats("weight", 1), **options)) +
               paddle.mean(paddle.static.nn.nce(hidden, word, 40, seed=5, sampler="custom_dist",
                                                custom_dist=list(frequency), **options)))


@script(quirks=True)
def word2vec_hsigmoid(s):
    hidden = paddle.mean(nn.Embedding(40, 8)(s.ints("context", 4, high=40)), axis=1)
    s.minimize(paddle.mean(nn.HSigmoidLoss(8, 40)(hidden, s.ints("word", 1, high=40))))


@script(quirks=True)
def word2vec_own_tree(s):
    """A sparse gradient of the nodes on paths that the reader gives."""
    hidden = paddle.mean(nn.Embedding(40, 8)(s.ints("context", 4, high=40)), axis=1)
    paths, sides = s.ints("paths", 3, low=-1, high=39), s.ints("sides", 3, high=2)
    layer = nn.HSigmoidLoss(8, 40, is_custom=True, is_sparse=True)
    s.minimize(paddle.mean(layer(hidden, s.ints("word", 1, high=40), paths, sides)))


@script(quirks=True)
def skip_gram(s):
    """Negative samples from the reader."""
    table = nn.Embedding(40, 8, sparse=True)
    center, context = table(s.ints("center", 1, high=40)), nn.Embedding(40, 8)(
        s.ints("context", 6, high=40))
    logits = paddle.matmul(center, context, transpose_y=True).squeeze(1)
    label = paddle.concat([paddle.ones_like(logits[:, :1]), paddle.zeros_like(logits[:, 1:])], 1)
    s.minimize(F.binary_cross_entropy_with_logits(logits, label),
               paddle.optimizer.Adam(0.01, lazy_mode=True))


@script(mean=False)
def sentence_pairs(s):
    """Contrastive: in-batch negatives, triplets, cosine embedding, margins."""
    a, b = (F.normalize(nn.Linear(6, 4)(s.floats(name, 6)), axis=-1) for name in ("a", "b"))
    logits = paddle.matmul(a, b, transpose_y=True) / 0.05
    labels = paddle.arange(0, paddle.shape(a)[0], dtype="int64")
    loss = F.cross_entropy(logits, labels) + F.triplet_margin_loss(a, b, paddle.flip(b, [0]))
    sign = s.ints("sign", high=1) * 2 - 1
    loss += F.cosine_embedding_loss(a, b, sign)
    loss += F.margin_ranking_loss(a[:, 0], b[:, 0], paddle.cast(sign, "float32"))
    s.minimize(loss + F.pairwise_distance(a, b).mean() * 0.1)


@script(mean=False)
def class_weights(s):
    logits = nn.Linear(6, 4)(s.floats("x", 6))
    weight = paddle.assign(np.array([1, 2, 0.5, 1], "float32"))
    label = s.ints("label", 1, high=4)
    flat = label.reshape([-1])
    nll = F.nll_loss(F.log_softmax(logits), flat, reduction="sum") / 8
    kl = F.kl_div(F.log_softmax(logits), F.softmax(s.floats("teacher", 4)), reduction="batchmean")
    weighted = paddle.sum(F.cross_entropy(logits, label, weight=weight, reduction="none")) / 8
    s.minimize(nll + kl + weighted)


@script(mean=False)
def weighted_mean(s):
    """Losses whose mean is over weights or over what is not ignored."""
    logits = nn.Linear(6, 4)(s.floats("x", 6))
    weight = paddle.assign(np.array([1, 2, 0.5, 1], "float32"))
    label = s.ints("label", 1, high=4)
    s.minimize(F.cross_entropy(logits, label, weight=weight, ignore_index=3) +
               F.nll_loss(F.log_softmax(logits), label.reshape([-1]), weight=weight))


def clipped_rows(clip, optimizer):
    """A table with sparse gradients among those that are clipped."""
    def build(s):
        table = paddle.static.nn.embedding(
            s.ints("ids", 4, high=12), [12, 6], is_sparse=True, param_attr=paddle.ParamAttr(name="t"))
        h = F.relu(nn.Linear(24, 8)(paddle.reshape(table, [-1, 24])))
        loss = F.cross_entropy(nn.Linear(8, 3)(h), s.ints("label", 1, high=3))
        s.minimize(loss, optimizer(clip))
    return build


# Paddle's own ClipGradByValue fails on rows.
for _name, _clip in {"norm": nn.ClipGradByNorm(0.05),
                     "global_norm": nn.ClipGradByGlobalNorm(0.05)}.items():
    SCRIPTS["clipped_rows_" + _name] = Script("clipped_rows_" + _name, clipped_rows(
        _clip, lambda clip: paddle.optimizer.SGD(0.1, grad_clip=clip)))
SCRIPTS["clipped_rows_adam"] = Script("clipped_rows_adam", clipped_rows(
    nn.ClipGradByGlobalNorm(0.05), lambda clip: paddle.optimizer.Adam(0.01, grad_clip=clip)),
    quirks=True)


@script()
def many_losses(s):
    x, y = nn.Linear(6, 4)(s.floats("x", 6)), s.floats("y", 4)
    sign, one = paddle.sign(y), s.bits("one", 4)
    p = F.sigmoid(x)
    loss = F.smooth_l1_loss(x, y, delta=0.5) + F.l1_loss(x, y) + F.mse_loss(x, y)
    loss += F.log_loss(p[:, :1], one[:, :1]).mean() + F.binary_cross_entropy(p, one, weight=p.detach())
    loss += F.hinge_embedding_loss(x, sign) + F.soft_margin_loss(x, sign)
    loss += F.multi_label_soft_margin_loss(x, one) + F.poisson_nll_loss(x, one)
    loss += F.gaussian_nll_loss(x, y, p) + F.binary_cross_entropy_with_logits(x, one)
    loss += F.multi_margin_loss(x, paddle.argmax(y, axis=1)) + F.square_error_cost(x, y).mean()
    s.minimize(loss / 10)


@script(quirks=True)
def weighted_positives(s):
    x = nn.Linear(6, 4)(s.floats("x", 6))
    s.minimize(F.binary_cross_entropy_with_logits(
        x, s.bits("one", 4), pos_weight=paddle.assign(np.array([1, 2, 3, 4], "float32"))))


@script()
def many_activations(s):
    x = nn.Linear(6, 8)(s.floats("x", 6))
    y = sum(f(x) for f in (
        F.celu, F.elu, F.gelu, F.hardshrink, F.hardsigmoid, F.hardswish, F.hardtanh, F.leaky_relu,
        F.log_sigmoid, F.log_softmax, F.mish, F.relu, F.relu6, F.selu, F.sigmoid, F.silu, F.softmax,
        F.softplus, F.softshrink, F.softsign, F.swish, F.tanh, F.tanhshrink, F.thresholded_relu,
        nn.PReLU(num_parameters=8)))
    y = paddle.concat([F.glu(y), F.maxout(y.unsqueeze([2, 3]), 2).flatten(1)], 1)
    s.minimize(paddle.mean(y))


# --- Recommendation -------------------------------------------------------------------------------


def click(s, logit, optimizer=None, fetch_auc=True):
    label = s.ints("click", 1)
    p = F.sigmoid(logit)
    if fetch_auc:
        auc, batch_auc, _ = paddle.static.auc(paddle.concat([1 - p, p], 1), label,
                                              num_thresholds=2**7, slide_steps=2)
        s.fetch(auc, batch_auc)
    loss = F.log_loss(p, paddle.cast(label, "float32"))
    s.minimize(paddle.mean(loss), optimizer)


def fields(s, count=5, rows=30, dim=4, **options):
    ids = s.ints("ids", count, high=rows)
    return ids, paddle.static.nn.embedding(ids, [rows, dim], **options)


@script(quirks=True)
def wide_and_deep(s):
    ids, e = fields(s, is_sparse=True)
    dense = s.floats("dense", 3)
    deep = paddle.concat([e.flatten(1), dense], 1)
    for n in (16, 8):
        deep = paddle.static.nn.fc(deep, n, activation="relu")
    wide = paddle.sum(paddle.static.nn.embedding(ids, [30, 1], is_sparse=True), axis=1)
    click(s, wide + paddle.static.nn.fc(deep, 1) + paddle.static.nn.fc(dense, 1),
          paddle.optimizer.Adam(0.01, lazy_mode=True))


@script()
def deep_fm(s):
    ids, e = fields(s, is_sparse=True)
    values = s.floats("values", 5, 1)
    e = e * values
    first = paddle.sum(paddle.static.nn.embedding(ids, [30, 1], is_sparse=True) * values, axis=1)
    second = 0.5 * paddle.sum(paddle.square(paddle.sum(e, 1)) - paddle.sum(paddle.square(e), 1), 1,
                              keepdim=True)
    deep = paddle.static.nn.fc(e, 8, num_flatten_dims=1, activation="relu")
    click(s, first + second + paddle.static.nn.fc(deep, 1), paddle.optimizer.Adagrad(0.05))


@script()
def deep_cross(s):
    _, e = fields(s)
    x0 = x = e.flatten(1)
    for i in range(2):
        w = paddle.static.create_parameter([20, 1], "float32", name="cross%d.w" % i)
        b = paddle.static.create_parameter([20], "float32", name="cross%d.b" % i, is_bias=True)
        x = x0 * paddle.matmul(x, w) + b + x
    click(s, paddle.static.nn.fc(x, 1, weight_attr=paddle.ParamAttr(
        regularizer=paddle.regularizer.L2Decay(0.01))), paddle.optimizer.RMSProp(
            0.01, centered=True, momentum=0.9))


@script()
def deep_interest(s):
    """Attention of an item over a history, with Dice and a softmax over what is there."""
    history, item = s.ints("history", 6, low=1, high=30), s.ints("item", 1, low=1, high=30)
    length = s.ints("length", low=1, high=7)
    table = nn.Embedding(30, 4, padding_idx=0)
    h, q = table(history), paddle.expand(table(item), [-1, 6, -1])
    scores = nn.Linear(16, 1)(F.sigmoid(nn.Linear(16, 16)(
        paddle.concat([h, q, h - q, h * q], -1)))).squeeze(-1)
    mask = F.sequence_mask(length, 6, "float32")
    scores = paddle.where(mask > 0, scores, paddle.full_like(scores, -2.0**32 + 1))
    interest = paddle.matmul(F.softmax(scores / 2.0).unsqueeze(1), h).squeeze(1)
    x = nn.PReLU()(nn.Linear(8, 8)(paddle.concat([interest, table(item).squeeze(1)], -1)))
    click(s, nn.Linear(8, 1)(x), paddle.optimizer.SGD(0.1, grad_clip=nn.ClipGradByNorm(0.5)))


@script()
def dssm(s):
    query, title, other = (s.bits(name, 12) for name in ("query", "title", "other"))
    tower = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh())
    near = F.cosine_similarity(tower(query), tower(title), axis=1)
    far = F.cosine_similarity(tower(query), tower(other), axis=1)
    s.minimize(paddle.mean(F.relu(0.5 - near + far)), paddle.optimizer.Adam(0.01))


@script(mean=False)
def two_towers(s):
    user = nn.Linear(4, 4)(nn.Embedding(30, 4)(s.ints("user", high=30)))
    item = nn.Linear(4, 4)(nn.Embedding(30, 4)(s.ints("item", high=30)))
    logits = paddle.matmul(user, item, transpose_y=True)
    own = F.one_hot(paddle.arange(0, paddle.shape(user)[0], dtype="int64"), 64)
    own = own[:, :paddle.shape(user)[0]]
    s.minimize(paddle.mean(-paddle.sum(F.log_softmax(logits) * own, axis=1)),
               paddle.optimizer.Lamb(0.01))


@script()
def neural_cf(s):
    user, item = s.ints("user", 1, high=20), s.ints("item", 1, high=20)
    init = nn.initializer
    def part(ids, initializer):
        return paddle.static.nn.embedding(ids, [20, 4], param_attr=paddle.ParamAttr(
            initializer=initializer)).squeeze(1)
    gmf = part(user, init.Normal(0, 0.1)) * part(item, init.XavierNormal())
    mlp = paddle.concat([part(user, init.Uniform(-0.1, 0.1)), part(item, init.TruncatedNormal())], 1)
    mlp = paddle.static.nn.fc(mlp, 4, activation="tanh", weight_attr=paddle.ParamAttr(
        initializer=init.KaimingNormal()))
    click(s, paddle.static.nn.fc(paddle.concat([gmf, mlp], 1), 1), paddle.optimizer.Adam(0.01))


@script()
def matrix_factorization(s):
    p = nn.Embedding(20, 4)(s.ints("user", high=20))
    q = nn.Embedding(20, 4)(s.ints("item", high=20))
    bias = nn.Embedding(20, 1)(s.ints("item2", high=20))
    rating = paddle.dot(p, q).reshape([-1, 1]) + bias
    s.minimize(F.mse_loss(rating, s.floats("rating", 1, low=1, high=5)), paddle.optimizer.SGD(
        0.1, weight_decay=paddle.regularizer.L2Decay(0.01)))


@script()
def mixture_of_experts(s):
    x = s.floats("x", 8)
    experts = paddle.stack([F.relu(nn.Linear(8, 4)(x)) for _ in range(3)], axis=1)
    losses = []
    for name in ("ctr", "cvr"):
        gate = F.softmax(nn.Linear(8, 3)(x)).unsqueeze(-1)
        p = F.sigmoid(nn.Linear(4, 1)(paddle.sum(experts * gate, axis=1)))
        losses.append(F.binary_cross_entropy(p, s.bits(name, 1)))
    s.minimize(paddle.add_n(losses), paddle.optimizer.Adam(0.01))


@script()
def x_deep_fm(s):
    _, x = fields(s)
    state, outs = x, []
    for _ in range(2):
        z = paddle.einsum("bhd,bmd->bhmd", state, x)
        z = z.reshape([-1, z.shape[1] * 5, 4])
        state = F.relu(nn.Conv1D(z.shape[1], 3, 1)(z))
        outs.append(paddle.sum(state, axis=2))
    click(s, nn.Linear(6, 1)(paddle.concat(outs, 1)), paddle.optimizer.Adam(0.01))


@script()
def product_network(s):
    _, e = fields(s)
    rows, cols = zip(*[(i, j) for i in range(5) for j in range(i + 1, 5)])
    p = paddle.index_select(e, paddle.assign(np.array(rows)), axis=1)
    q = paddle.index_select(e, paddle.assign(np.array(cols)), axis=1)
    bilinear = paddle.static.nn.bilinear_tensor_product(e[:, 0], e[:, 1], 3)
    click(s, nn.Linear(13, 1)(paddle.concat([paddle.sum(p * q, -1), bilinear], 1)),
          paddle.optimizer.Momentum(0.05))


@script(mean=False, modes=("local_sgd",))
def normalized_data(s):
    """Counts must be added up over the ranks, not averaged."""
    x = paddle.static.nn.data_norm(s.floats("x", 8), name="norm")
    click(s, paddle.static.nn.fc(x, 1))


@script()
def counted_shows(s):
    x = s.floats("x", 6, low=0.0, high=9.0)
    counts = s.floats("counts", 2, low=0.0, high=9.0)
    parts = [paddle.static.nn.continuous_value_model(x, counts, use) for use in (True, False)]
    click(s, paddle.static.nn.fc(paddle.concat(parts, axis=1), 1))


@script()
def looks_ahead(s):
    x = paddle.static.nn.row_conv(nn.Embedding(30, 4)(s.ints("items", 5, high=30)), 2)
    x = paddle.static.Print(x, first_n=1, message="looks ahead", summarize=4)
    classify(s, nn.Linear(4, 3)(paddle.mean(x, axis=1)), 3)


@script()
def session_gru(s):
    x, _ = nn.GRU(4, 4)(nn.Embedding(30, 4)(s.ints("items", 5, high=30)),
                        sequence_length=s.ints("length", low=1, high=6))
    scores = paddle.matmul(x[:, -1], nn.Embedding(30, 4).weight, transpose_y=True)
    s.minimize(F.softmax_with_cross_entropy(scores, s.ints("next", 1, high=30)).mean())


@script()
def tensor_ops(s):
    """What scripts do to tensors on the way."""
    x = nn.Linear(6, 8)(s.floats("x", 6))
    a, b, c = paddle.split(x, [2, 2, -1], axis=1)
    y = paddle.concat([paddle.tile(a, [1, 2]), paddle.flip(c, [1]), paddle.chunk(x, 2, axis=1)[0]], 1)
    y = y + paddle.put_along_axis(y, paddle.assign(np.array([[0, 1]], "int64")), paddle.ones([1, 1]), 1)
    y = y + paddle.cumsum(y, axis=1) + paddle.clip(y, -0.5, 0.5) + paddle.abs(y)
    y = paddle.where(y > 0, y, 0.1 * y) + paddle.maximum(y, paddle.zeros_like(y))
    v, i = paddle.sort(y, axis=1), paddle.argsort(y, axis=1, descending=True)
    y = y + v + paddle.index_sample(y, i) + paddle.std(y, axis=1, keepdim=True)
    y = y + paddle.logsumexp(y, 1, keepdim=True) + paddle.norm(y, p=2, axis=1, keepdim=True)
    y = y + paddle.var(y) + paddle.median(y, axis=1, keepdim=True) + paddle.kron(
        paddle.ones([1, 1]), y)
    y = y + paddle.squeeze(paddle.unsqueeze(y, [1]), [1]) + paddle.roll(y, 1, 1)
    y = y.reshape([-1, 3, 4]).transpose([0, 2, 1]).flatten(1).reshape([-1, 12])
    y = y + paddle.pow(paddle.exp(-paddle.abs(y)), 1.5) + paddle.outer(y[:, 0], y[0]) * 0.1
    y = y + paddle.addmm(y, x, nn.Linear(8, 12).weight)
    y = y + paddle.repeat_interleave(x[:, :6], 2, axis=1)
    y = y + paddle.gather_nd(y, paddle.assign(np.array([[0, 1]], "int64")))
    s.minimize(paddle.mean(paddle.tanh(y)))


@script()
def small_mathematics(s):
    x, y = nn.Linear(6, 6)(s.floats("x", 6)), s.floats("y", 6)
    z = paddle.atan2(x, y + 2) + paddle.trunc(3 * x) * y + F.rrelu(x, training=False)
    # Paddle crashes where only one of the two has a gradient.
    a, b = x.reshape([-1, 2, 3]), paddle.exp(x).reshape([-1, 2, 3])
    z = z + paddle.cross(a, b).flatten(1) + paddle.diag_embed(y, offset=1).sum(-1)[:, :6]
    levels = paddle.assign(np.array([-0.5, 0, 0.25, 2], "float32"))
    places = paddle.searchsorted(levels, y, right=True)
    flags = paddle.bitwise_xor(paddle.bitwise_and(places, places - 1), paddle.bitwise_not(places))
    near = paddle.bitwise_or(paddle.isclose(y, y.round(), atol=0.2), y > 0.5)
    z = z * paddle.cast(flags, "float32") + z * paddle.cast(near, "float32")
    count = paddle.bincount(places.flatten(), minlength=5)
    s.fetch(count)
    s.minimize(paddle.mean(z))


@script(mean=False)
def distances_and_segments(s):
    x, y = nn.Linear(6, 6)(s.floats("x", 6)), s.floats("y", 6)
    d = sum(paddle.dist(x, y, p) for p in (1, 2, 3, float("inf")))
    z = paddle.renorm(x, 2.0, 0, 0.5)
    ids = paddle.cumsum(s.ints("begins", high=3))
    pooled = [f(z, ids) for f in (paddle.incubate.segment_sum, paddle.incubate.segment_mean,
                                  paddle.incubate.segment_max, paddle.incubate.segment_min)]
    s.minimize(d + sum(paddle.sum(paddle.square(p)) for p in pooled))


@script()
def ordered(s):
    x = nn.Linear(6, 8)(s.floats("x", 6))
    z = paddle.cummax(x, 1)[0] + paddle.cummin(x, 1)[0] * 0.5
    z = z + paddle.unsqueeze(paddle.kthvalue(x, 3, axis=1)[0] + paddle.mode(x, 1)[0], 1)
    names = paddle.unique(s.ints("word", 3, high=4))
    s.fetch(names)
    s.minimize(paddle.mean(z))


@script(tolerance=1e-4, state=1e-4)
def dense_algebra(s):
    x = nn.Linear(6, 9)(s.floats("x", 6)).reshape([-1, 3, 3]) * 0.3 + paddle.eye(3) * 2
    y = nn.Linear(6, 6)(s.floats("y", 6)).reshape([-1, 3, 2])  # Paddle crashes without a gradient
    square = paddle.matmul(x, x, transpose_y=True)
    factor = paddle.linalg.cholesky(square)
    z = paddle.linalg.solve(x, y) + paddle.linalg.cholesky_solve(y, factor)
    z = z + paddle.linalg.triangular_solve(factor, y, upper=False) + paddle.matmul(
        paddle.inverse(x), y)
    weights = [nn.Linear(6, 4).weight, nn.Linear(4, 5).weight, nn.Linear(5, 2).weight]
    chain = paddle.linalg.multi_dot(weights)
    size = paddle.mean(paddle.linalg.det(x)) + paddle.mean(paddle.linalg.slogdet(square)[1])
    s.minimize(paddle.mean(z) + size * 0.1 + paddle.mean(chain))


@script(compare=False, mean=False)
def noisy(s):
    """What draws while training."""
    x = nn.Linear(6, 8)(s.floats("x", 6))
    z = F.rrelu(x) + F.gumbel_softmax(x, 0.5) + F.gumbel_softmax(x, hard=True)
    z = z * paddle.poisson(paddle.exp(x))
    s.minimize(paddle.mean(z))


# --- Optimizers, and what is put around them ------------------------------------------------------


def regression(s, optimizer=None, **options):
    x, y = s.floats("x", 6), s.floats("y", 1)
    h = F.relu(nn.Linear(6, 8)(x))
    loss = F.mse_loss(nn.Linear(8, 1)(h), y)
    if optimizer:
        s.minimize(loss, optimizer(), **options)
    return loss


O, LR = paddle.optimizer, paddle.optimizer.lr
for _name, _make in {
        "sgd": lambda: O.SGD(0.1, weight_decay=0.01),
        "momentum_l1": lambda: O.Momentum(0.1, weight_decay=paddle.regularizer.L1Decay(0.01)),
        "nesterov": lambda: O.Momentum(0.1, use_nesterov=True),
        "multi_tensor_momentum": lambda: O.Momentum(0.1, use_multi_tensor=True),
        "adam": lambda: O.Adam(0.01, weight_decay=0.01, grad_clip=nn.ClipGradByValue(0.05)),
        "multi_tensor_adam": lambda: O.Adam(0.01, use_multi_tensor=True),
        "adamw": lambda: O.AdamW(0.01, lr_ratio=None, weight_decay=0.1),
        "adamax": lambda: O.Adamax(0.01),
        "adagrad": lambda: O.Adagrad(0.05, initial_accumulator_value=0.1),
        "adadelta": lambda: O.Adadelta(0.5, rho=0.9),
        "rmsprop": lambda: O.RMSProp(0.01, rho=0.9),
        "rmsprop_centered": lambda: O.RMSProp(0.01, centered=True, momentum=0.5),
        "lamb": lambda: O.Lamb(0.01, exclude_from_weight_decay_fn=lambda p: "b_0" in p.name),
        "clip_norm": lambda: O.SGD(0.1, grad_clip=nn.ClipGradByNorm(0.1)),
        "clip_global": lambda: O.Adam(0.01, grad_clip=nn.ClipGradByGlobalNorm(0.1)),
        "lars": lambda: paddle.incubate.optimizer.LarsMomentumOptimizer(
            0.1, 0.9, lars_weight_decay=0.01),
        "natural_exp": lambda: O.SGD(LR.NaturalExpDecay(0.1, 0.1)),
        "inverse_time": lambda: O.SGD(LR.InverseTimeDecay(0.1, 0.1)),
        "step_decay": lambda: O.SGD(LR.StepDecay(0.1, 2)),
        "multi_step": lambda: O.SGD(LR.MultiStepDecay(0.1, [1, 2])),
        "lambda_decay": lambda: O.SGD(LR.LambdaDecay(0.1, lambda t: 0.95**t)),
        "one_cycle": lambda: O.SGD(LR.OneCycleLR(0.1, 10)),
        "cyclic": lambda: O.SGD(LR.CyclicLR(0.01, 0.1, 2)),
        "linear_lr": lambda: O.SGD(LR.LinearLR(0.1, 5)),
        "warm_restarts": lambda: O.SGD(LR.CosineAnnealingWarmRestarts(0.1, 2)),
        "multiplicative": lambda: O.SGD(LR.MultiplicativeDecay(0.1, lambda t: 0.9)),
}.items():
    SCRIPTS["optimizer_" + _name] = Script(
        "optimizer_" + _name, lambda s, make=_make: regression(s, make), steps=5)


@script(steps=4)
def old_schedule(s):
    """A learning rate that the program computes."""
    from paddle.static.nn import control_flow  # noqa
    step = paddle.static.create_global_var([1], 0.0, "float32", persistable=True, name="step")
    loss = regression(s)
    s.before_minimize(loss)
    paddle.increment(step)
    O.SGD(0.1).minimize(loss)


@script(steps=6)
def gradient_merge(s):
    loss = regression(s)
    s.before_minimize(loss)
    paddle.incubate.optimizer.GradientMergeOptimizer(O.Momentum(0.1), k_steps=2).minimize(loss)


@script()
def recompute(s):
    x = s.floats("x", 6)
    a = F.relu(nn.Linear(6, 8)(x))
    b = F.dropout(F.relu(nn.Linear(8, 8)(a)), 0.3)
    loss = F.mse_loss(nn.Linear(8, 1)(b), s.floats("y", 1))
    s.before_minimize(loss)
    optimizer = paddle.incubate.optimizer.RecomputeOptimizer(O.Adam(0.01))
    optimizer._set_checkpoints([a, b])
    optimizer.minimize(loss)


@script(steps=4)
def moving_average(s):
    loss = regression(s)
    s.minimize(loss, O.SGD(0.1))
    ema = paddle.static.ExponentialMovingAverage(0.9)
    ema.update()


@script(steps=4)
def model_average(s):
    s.minimize(regression(s), O.SGD(0.1))
    paddle.incubate.ModelAverage(0.15, min_average_window=2, max_average_window=4)


@script(steps=6)
def look_ahead(s):
    loss = regression(s)
    s.before_minimize(loss)
    paddle.incubate.LookAhead(O.SGD(0.1), alpha=0.5, k=2).minimize(loss)


@script()
def frozen_layers(s):
    x = s.floats("x", 6)
    frozen = nn.Linear(6, 8, weight_attr=paddle.ParamAttr(trainable=False))
    h = F.relu(frozen(x))
    h.stop_gradient = True
    out = nn.Linear(8, 4, weight_attr=paddle.ParamAttr(learning_rate=0.1),
                    bias_attr=paddle.ParamAttr(need_clip=False, learning_rate=2.0))(h)
    s.minimize(paddle.mean(paddle.square(out)), O.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(.1)))


def amp(level, dtype="float16", **options):
    def build(s):
        x = F.relu(nn.BatchNorm2D(4)(nn.Conv2D(3, 4, 3)(s.floats("x", 3, 8, 8))))
        x = nn.LayerNorm(8)(nn.Linear(144, 8)(x.flatten(1)))
        loss = F.cross_entropy(nn.Linear(8, 4)(x), s.ints("label", 1, high=4))
        s.before_minimize(loss)
        optimizer = paddle.static.amp.decorate(
            O.Momentum(0.01, multi_precision=level != "O1", grad_clip=nn.ClipGradByGlobalNorm(1.0)),
            level=level, dtype=dtype, **options)
        optimizer.minimize(loss)
        if level != "O1":
            s.amp_init = optimizer
    return build


for _name, _build in {
        "amp_o1": amp("O1", init_loss_scaling=128.0, use_dynamic_loss_scaling=True),
        "amp_o1_bf16": amp("O1", "bfloat16"),
        "amp_o2": amp("O2", init_loss_scaling=128.0, use_dynamic_loss_scaling=True),
        "amp_o2_bf16": amp("O2", "bfloat16"),
        "amp_o1_static": amp("O1", init_loss_scaling=8.0, use_dynamic_loss_scaling=False),
}.items():
    SCRIPTS[_name] = Script(_name, _build, compare=False, mean=False, steps=4)


# --- Running them ---------------------------------------------------------------------------------


class Failure(Exception):
    """What to put into the table."""


class Runner:
    def __init__(self, weft, transpile, folder):
        self.weft, self.transpile, self.folder = weft, transpile, folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *arguments):
        done = subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              check=False, text=True, timeout=600)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise Failure("\n".join(lines[:6])[:600] or "status %d" % done.returncode)

    def build(self, script, without_dropout):
        script.begin()
        script.without_dropout = without_dropout
        main, startup = paddle.static.Program(), paddle.static.Program()
        paddle.seed(7)
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
            script.build(script)
        return main, startup

    def weft_run(self, command, *more):
        out = self.path("fetched.npz")
        self.run(self.weft, *command[1:], "--fetch_npz", out, "--timeout_s", "60", *more)
        return dict(np.load(out))

    def check(self, script):
        """Yields name and result of every check; a result of None: good."""
        main, startup = self.build(script, True)
        names = [script.loss.name] + [variable.name for variable in script.fetches]
        feeds = script.feeds()
        exe = paddle.static.Executor(paddle.CPUPlace())
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            exe.run(startup)
            if getattr(script, "amp_init", None) is not None:
                script.amp_init.amp_init(paddle.CPUPlace(), scope=scope)
            params = "combine" if not script.compare else "npz"
            command = self.export(script, main, startup, feeds, params)
            expected = []
            if script.compare:
                for feed in feeds:
                    gradients = [] if expected else gradients_of(main)
                    values = exe.run(main, feed=feed,
                                     fetch_list=names + [g for _, g in gradients])
                    expected.append(values[:len(names)])
                    if gradients:
                        script.rounding = rounding_alone(gradients, values[len(names):])
                    if script.schedule is not None:
                        script.schedule.step()
            read = {name for op in main.global_block().ops for name in op.input_arg_names}
            state = {n: a for n, (_, a) in export_program.persistables(main, None).items()
                     if n in read}
            test = script.test
            test_expected = None
            if script.compare and test is not None:
                block = test.global_block()
                test_names = [n for n in names if block.has_var(n)]
                test_expected = exe.run(test, feed=feeds[0], fetch_list=test_names)

        fetch = ["--fetch", ",".join(names)]
        quirks = ["--paddle_cpu_quirks"] if script.quirks else []
        try:
            found = self.weft_run(command, *fetch, *quirks, "--save", self.path(
                "final.npz" if script.compare else "final.combine"))
            if script.compare:
                self.compare_fetched(script, found, expected, names)
                self.compare_state(script, state)
            yield "steps", None
        except Failure as failure:
            yield "steps", failure
        if test_expected is not None:
            try:
                test_dir = self.path("test")
                export_program.export(test_dir, test, startup, feeds[:1], params=None)
                export_program.write_npz(os.path.join(test_dir, "params.npz"), {
                    name: array for name, array in state.items()
                    if test.global_block().has_var(name)})
                found = self.weft_run(
                    ["weft", "run", os.path.join(test_dir, "main.pb"), "--params",
                     os.path.join(test_dir, "params.npz"), "--feeds",
                     os.path.join(test_dir, "feeds.npz")], "--fetch", ",".join(test_names), *quirks)
                self.compare_fetched(script, found, [test_expected], test_names)
                yield "for test", None
            except Failure as failure:
                yield "for test", failure
        for mode in script.modes:
            try:
                two_ranks = self.rewrite(command, mode)
                yield mode, None
            except Failure as failure:
                yield mode, failure
                continue
            if mode == "multi_thread":
                continue
            try:
                found = self.weft_run(two_ranks, *fetch, *quirks, "--ranks", "2")
                for key, value in found.items():
                    if not np.all(np.isfinite(value)):
                        raise Failure("%s is not finite" % key)
                if mode == "grad_allreduce" and script.mean and script.compare:
                    for step, values in enumerate(expected):
                        both = [float(found["%d/%d/%s" % (step, r, names[0])]) for r in (0, 1)]
                        close("loss of 2 ranks, step %d" % step, np.mean(both), values[0],
                              script.tolerance)
                yield mode + ", 2 ranks", None
            except Failure as failure:
                yield mode + ", 2 ranks", failure
        if script.drops:
            try:
                main, startup = self.build(script, False)
                with paddle.static.scope_guard(paddle.static.Scope()):
                    exe.run(startup)
                    command = self.export(script, main, startup, feeds, "npz")
                found = self.weft_run(command, "--fetch", ",".join(names))
                if not all(np.all(np.isfinite(value)) for value in found.values()):
                    raise Failure("not finite")
                yield "dropout", None
            except Failure as failure:
                yield "dropout", failure

    def record(self, script):
        """What tests/training/train_references_test.cc reads."""
        main, startup = self.build(script, True)
        feeds = script.feeds()
        exe = paddle.static.Executor(paddle.CPUPlace())
        with paddle.static.scope_guard(paddle.static.Scope()):
            exe.run(startup)
            read = {name for op in main.global_block().ops for name in op.input_arg_names}
            persistables = lambda: {
                name: value for name, value in export_program.persistables(main, None).items()
                if name in read}
            for program in (main, startup):
                for op in (op for block in program.blocks for op in block.ops):
                    op.desc.remove_attr("op_callstack")  # paths of this machine
            self.export(script, main, startup, feeds, None)
            os.replace(self.path("exported/main.pb"), self.path("main.pb"))
            os.replace(self.path("exported/startup.pb"), self.path("startup.pb"))
            os.replace(self.path("exported/feeds.npz"), self.path("feeds.npz"))
            os.rmdir(self.path("exported"))
            state = persistables()
            export_program.write_combine(self.path("init.params"), state)
            export_program.write_file(self.path("persistables.txt"), "".join(
                name + "\n" for name in sorted(state)).encode())
            losses = {"single/loss": []}
            for feed in feeds:
                for rank in (0, 1) if script.mean else ():
                    half = {name: np.split(array, 2)[rank] for name, array in feed.items()}
                    losses.setdefault("dp2/loss_rank%d" % rank, []).append(
                        exe.run(script.test, feed=half, fetch_list=[script.loss.name])[0])
                losses["single/loss"].append(exe.run(main, feed=feed, fetch_list=[script.loss])[0])
            reference = {name: np.array(values, "float32").reshape(-1)
                         for name, values in losses.items()}
            for name, (_, array) in persistables().items():
                for run in ("single", "dp2_rank0") if script.mean else ("single",):
                    reference["%s/final_head/%s" % (run, name)] = array.reshape(-1)[:16]
            export_program.write_npz(self.path("reference.npz"), reference)

    def export(self, script, main, startup, feeds, params):
        directory = self.path("exported")
        try:
            return export_program.export(directory, main, startup, feeds, params=params)
        except ValueError as error:
            if "no such schedule" not in str(error):
                raise
        # The script feeds the learning rate.
        schedule, main.lr_scheduler = main.lr_scheduler, None
        command = export_program.export(directory, main, startup, feeds, params=params)
        main.lr_scheduler = schedule
        rates = []
        import copy
        copied = copy.deepcopy(schedule)
        for _ in feeds:
            rates.append(copied())
            copied.step()
        arrays = {"%d/%s" % (t, name): array for t, feed in enumerate(feeds)
                  for name, array in feed.items()}
        name = main.lr_var.name
        arrays.update({"%d/%s" % (t, name): np.array(rate, "float32").reshape(
            [d for d in main.lr_var.shape]) for t, rate in enumerate(rates)})
        export_program.write_npz(os.path.join(directory, "feeds.npz"), arrays)
        return command

    def rewrite(self, command, mode):
        out = [self.path("ranks_main.pb"), self.path("ranks_startup.pb")]
        self.run(self.transpile, "--mode", mode, "--nranks", "2", "--startup_in", command[4],
                 "--startup_out", out[1], command[2], out[0])
        two_ranks = list(command)
        two_ranks[2], two_ranks[4] = out
        return two_ranks

    def compare_fetched(self, script, found, expected, names):
        for step, values in enumerate(expected):
            for name, value in zip(names, values):
                close("%s, step %d" % (name, step), found["%d/0/%s" % (step, name)], value,
                      script.tolerance)

    def compare_state(self, script, expected):
        found = dict(np.load(self.path("final.npz")))
        for name, value in sorted(expected.items()):
            if any(name.startswith(parameter) for parameter in (*script.rounding, *script.skip)):
                continue
            if name not in found:
                raise Failure("%s: not saved" % name)
            if found[name].shape != value.shape or found[name].dtype != value.dtype:
                raise Failure("%s: expected %s%s, found %s%s" % (
                    name, value.dtype, value.shape, found[name].dtype, found[name].shape))
            largest = max(np.abs(value).max(initial=0), 1e-30)
            error = np.abs(found[name].astype("float64") - value)
            error = np.where(error < script.noise, 0, error) / largest
            if not error.max(initial=0) < script.state * (100 if script.outliers else 1) or \
                    np.mean(error > script.state) > script.outliers:
                raise Failure("%s: differs by %.1e of its largest element, %.1f%% of the elements by "
                              "more than %.0e" % (name, error.max(), 100 * np.mean(
                                  error > script.state), script.state))


def gradients_of(program):
    """(parameter, gradient) of all that are dense."""
    block = program.global_block()
    pairs = [(p.name, p.name + "@GRAD") for p in program.all_parameters() if p.trainable]
    return [(p, g) for p, g in pairs
            if block.has_var(g) and block.var(g).type == paddle.base.core.VarDesc.VarType.LOD_TENSOR]


def rounding_alone(gradients, values):
    """Parameters whose gradient is 0, but for rounding: biases before a normalization, and of the
    keys of attention. Optimizers that divide by its size make something large of it."""
    sizes = [np.abs(value).max(initial=0) for value in values]
    return [p for (p, _), size in zip(gradients, sizes) if size < 1e-6 * max(sizes)]


def close(name, found, expected, tolerance):
    found, expected = np.asarray(found, "float64"), np.asarray(expected, "float64")
    if found.size != expected.size:
        raise Failure("%s: expected %s, found %s" % (name, expected.shape, found.shape))
    found = found.reshape(expected.shape)
    if not np.all(np.isfinite(found)):
        raise Failure("%s is not finite" % name)
    worst = np.abs(found - expected).max(initial=0)
    if worst > tolerance * max(np.abs(expected).max(initial=0), 1e-6):
        raise Failure("%s: expected %s, found %s" % (
            name, expected.reshape(-1)[:4], found.reshape(-1)[:4]))


def check_in_child(weft, transpile, script, folder):
    """Rows of the table. In a process of its own, since Paddle may abort."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as out:
            try:
                for name, failure in Runner(weft, transpile, folder).check(script):
                    out.write("%s\t%s\n" % (name, "" if failure is None else repr(str(failure))))
            except BaseException as error:  # pylint: disable=broad-except
                text = traceback.format_exc().strip().splitlines()
                out.write("script\t%r\n" % " | ".join(text[-6:])[-900:])
            out.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as rows:
        results = [line.rstrip("\n").split("\t") for line in rows]
    _, status = os.waitpid(child, 0)
    if status != 0:
        results.append(["process", "status %d" % status])
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("transpile")
    parser.add_argument("scripts", nargs="*")
    parser.add_argument("--keep", help="a folder for what is exported, by script")
    parser.add_argument("--record", help="a folder for references, by script")
    arguments = parser.parse_args()
    paddle.enable_static()
    if arguments.record:
        for name in arguments.scripts:
            folder = os.path.join(arguments.record, "script_" + name)
            os.makedirs(folder, exist_ok=True)
            Runner(None, None, folder).record(SCRIPTS[name])
        return
    chosen = arguments.scripts or list(SCRIPTS)
    failed = []
    for name in chosen:
        folder = os.path.join(arguments.keep, name) if arguments.keep else tempfile.mkdtemp()
        os.makedirs(folder, exist_ok=True)
        results = check_in_child(arguments.weft, arguments.transpile, SCRIPTS[name], folder)
        if not arguments.keep:
            shutil.rmtree(folder)
        bad = [(check, text) for check, text in results if text]
        known = KNOWN.get(name)
        if known is not None and bad and all(known in text for check, text in bad
                                             if check == "steps"):
            print("%-28s known: no %s" % (name, known), flush=True)
            continue
        if known is not None and not bad:
            bad = [("all", "good, although %s is known to be missing" % known)]
        print("%-28s %s" % (name, "good: %d checks" % len(results) if not bad else "FAILED"),
              flush=True)
        by_text = {}
        for check, text in bad:
            text = text.replace(folder, "").strip("'\"")
            by_text.setdefault(text, []).append(check)
        for text, checks in by_text.items():
            print("    %s: %s" % (", ".join(checks), text), flush=True)
        failed += [name] if bad else []
    print("%d scripts, %d failed: %s" % (len(chosen), len(failed), " ".join(failed)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
