#!/usr/bin/env python3
"""Writes layers.jsonl: what PaddlePaddle 2.6 computes on a CPU for layers that large vocabularies
and detection need, and for their gradients.

    make_layer_vectors.py layers.jsonl

Works as make_program_vectors.py, and needs what that needs. Draws of nce have a seed, so that they
are the same everywhere.
"""
import json
import sys

import numpy as np
import paddle
import paddle.vision.ops as vision

from make_program_vectors import cases, draw, number, tensor


def nce(sampler, bias=True, weights=False, **options):
    def build():
        weight = number([[0.5], [2], [1]], 'float32') if weights else None
        return paddle.static.nn.nce(draw(3, 4), number([[3], [0], [9]]), 10, num_neg_samples=4,
                                    sampler=sampler, seed=7, sample_weight=weight,
                                    bias_attr=None if bias else False, **options)
    return build


def hsigmoid(custom, bias=True):
    def build():
        x = draw(4, 3) * 4
        label = number([[0], [3], [4], [2]])
        if not custom:
            layer = paddle.nn.HSigmoidLoss(3, 5, bias_attr=None if bias else False)
            return layer(x, label)
        table = number([[0, 2, -1], [0, 1, 3], [0, 1, -1], [4, -1, -1]])
        code = number([[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 0]])
        return paddle.nn.HSigmoidLoss(3, 5, is_custom=True)(x, label, table, code)
    return build


def data_norm(slot_dim=-1, affine=False):
    def build():
        x = draw(2, 6)
        if slot_dim > 0:  # the first slot of a row is empty
            x = x * number([[0, 1, 1, 1, 1, 1]] * 2, 'float32')
        initial = {'batch_size': 10, 'batch_sum': 3, 'batch_square': 20, 'scale_w': 1.5,
                   'bias': 0.25}  # yapf: disable
        return paddle.static.nn.data_norm(x, slot_dim=slot_dim, enable_scale_and_shift=affine,
                                          param_attr=initial)
    return build


BOXES = [[0, 0, 4.2, 5], [1.5, 2, 9, 6.5], [-3, -2, 2, 12], [6, 6, 5, 5], [2, 2, 2, 2]]


def boxes():
    return number(BOXES, 'float32'), number([3, 2], 'int32')


def deformable(groups=1, deformable_groups=1, mask=True, **options):
    def build():
        sizes = {'stride': 1, 'padding': 0, 'dilation': 1, **options}
        x, filters = draw(2, 4, 4, 4), draw(2, 4 // groups, 3, 2)
        out = [(n + 2 * sizes['padding'] - sizes['dilation'] * (k - 1) - 1) // sizes['stride'] + 1
               for n, k in ((4, 3), (4, 2))]
        offset = draw(2, deformable_groups * 12, *out) * 2
        weight = draw(2, deformable_groups * 6, *out) if mask else None
        return vision.deform_conv2d(x, offset, filters, groups=groups, mask=weight,
                                    deformable_groups=deformable_groups, **sizes)
    return build


def yolo_loss(score=False, **options):
    def build():
        # Boxes: two in one cell; one of no size; one of an anchor that the mask does not have.
        box = number([[[.99, .01, .2, .2], [.5, .5, .3, .2], [.2, .8, .1, .1], [0, 0, 0, 0]],
                      [[.3, .3, .3, .4], [.31, .32, .3, .38], [0, 0, 0, 0], [.9, .9, .9, .8]]],
                     'float32')
        label = number([[0, 2, 0, 1], [1, 1, 0, 0]], 'int32')
        scores = number([[1, .5, 1, 1], [.25, 1, 0, 1]], 'float32') if score else None
        return vision.yolo_loss(draw(2, 16, 3, 3) * 2, box, label, [10, 13, 16, 30, 33, 23, 60, 70],
                                [1, 2], 3, downsample_ratio=32, gt_score=scores, **options)
    return build


def yolo_box(anchors=2, iou_aware=False, **options):
    def build():
        channels = anchors * (8 + iou_aware)
        vision.yolo_box(draw(2, channels, 3, 2) * 3, number([[60, 50], [90, 70]], 'int32'),
                        [10, 13, 16, 30][:2 * anchors], 3, downsample_ratio=32, iou_aware=iou_aware,
                        **options)
        return number([0])  # there is no gradient
    return build


CASES = {
    'nce': [nce('uniform'), nce('log_uniform', bias=False),
            nce('custom_dist', weights=True,
                custom_dist=[.1, .05, .2, .1, .1, .05, .1, .1, .1, .1])],
    'hierarchical_sigmoid': [hsigmoid(False), hsigmoid(False, bias=False), hsigmoid(True)],
    'data_norm': [data_norm(), data_norm(affine=True), data_norm(3), data_norm(3, affine=True)],
    'row_conv': [lambda: paddle.static.nn.row_conv(draw(2, 5, 3), 2),
                 lambda: paddle.static.nn.row_conv(draw(2, 2, 3), 3)],
    'roi_align': [
        lambda: vision.roi_align(draw(2, 3, 7, 8), *boxes(), 3),
        lambda: vision.roi_align(draw(2, 3, 7, 8), *boxes(), (2, 3), aligned=False),
        lambda: vision.roi_align(draw(2, 3, 7, 8), *boxes(), 2, spatial_scale=.5, sampling_ratio=2),
    ],
    'roi_pool': [
        lambda: vision.roi_pool(draw(2, 3, 7, 8), *boxes(), 3),
        lambda: vision.roi_pool(draw(2, 3, 7, 8), *boxes(), (2, 4), spatial_scale=.5),
    ],
    'deformable_conv': [
        deformable(), deformable(padding=1, stride=2), deformable(groups=2, deformable_groups=2),
        deformable(padding=2, dilation=2, deformable_groups=2),
    ],
    'deformable_conv_v1': [
        deformable(mask=False, padding=1), deformable(mask=False, groups=2, deformable_groups=2),
    ],
    'yolov3_loss': [
        yolo_loss(ignore_thresh=.5),
        yolo_loss(score=True, ignore_thresh=.2, use_label_smooth=False),
        yolo_loss(ignore_thresh=.3, scale_x_y=1.2),
    ],
    'yolo_box': [
        yolo_box(conf_thresh=.3), yolo_box(conf_thresh=.01, clip_bbox=False, scale_x_y=1.1),
        yolo_box(conf_thresh=.1, iou_aware=True, iou_aware_factor=.4),
    ],
}  # yapf: disable


def values_of(case, slot, of='inputs'):
    t = case[of][slot][0]
    dtype = {'fp32': '>f4', 'int64': '>i8', 'int32': '>i4'}[t['dtype']]
    return np.frombuffer(bytes.fromhex(t['hex']), dtype).reshape(t['shape'])


def roi_align_gradient(case):
    """By Paddle's forward op, which is linear in X: what every element of X makes of Out."""
    x, dout = values_of(case, 'X'), values_of(case, 'Out@GRAD')
    names = ('pooled_height', 'pooled_width', 'spatial_scale', 'sampling_ratio', 'aligned')
    height, width, *options = [case['attrs'][name] for name in names]
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        image = paddle.static.data('x', x.shape)
        out = vision.roi_align(image, *boxes(), (height, width), *options)
    exe = paddle.static.Executor(paddle.CPUPlace())
    unit = np.eye(x.size, dtype='float32').reshape((x.size,) + x.shape)
    outs = [exe.run(main, feed={'x': one}, fetch_list=[out])[0] for one in unit]
    return np.array([np.sum(np.nan_to_num(o) * dout) for o in outs]).reshape(x.shape)


def yolo_gradient(case):
    """Of Paddle's own loss in double precision, by differences."""
    feed = {slot: values_of(case, slot) for slot in ('X', 'GTBox', 'GTLabel', 'GTScore')
            if slot in case['inputs']}
    feed = {slot: value.astype('int32' if slot == 'GTLabel' else 'float64')
            for slot, value in feed.items()}
    main, x = paddle.static.Program(), feed['X']
    attrs = {name: case['attrs'][name] for name in ('anchors', 'anchor_mask', 'class_num',
             'ignore_thresh', 'downsample_ratio', 'use_label_smooth', 'scale_x_y')}
    with paddle.static.program_guard(main):
        slots = {slot: paddle.static.data(slot, value.shape, value.dtype.name)
                 for slot, value in feed.items()}
        loss = vision.yolo_loss(slots['X'], slots['GTBox'], slots['GTLabel'],
                                gt_score=slots.get('GTScore'), **attrs)
    exe = paddle.static.Executor(paddle.CPUPlace())
    step, losses = 1e-6, []
    for i in range(x.size):
        for sign in (1, -1):
            moved = x.copy()
            moved.reshape(-1)[i] += sign * step
            losses.append(exe.run(main, feed={**feed, 'X': moved}, fetch_list=[loss])[0])
    losses = np.array(losses).reshape(x.size, 2, -1)
    slopes = (losses[:, 0] - losses[:, 1]) / (2 * step)
    return (slopes @ values_of(case, 'Loss@GRAD').astype('float64')).reshape(x.shape)


def make_right(case):
    """Where Paddle's kernel does not compute what the op is defined to."""
    outputs = dict(case['outputs'])
    if case['op'] == 'hierarchical_sigmoid':
        longest = values_of(case, 'PreOut', 'outputs').shape[1]
        if 'PathTable' in case['inputs']:
            length = (values_of(case, 'PathTable') >= 0).sum(1)
        else:
            leaf = values_of(case, 'Label').reshape(-1) + case['attrs']['num_classes']
            length = np.floor(np.log2(leaf)).astype(int)
        extra = np.log(2) * (longest - length)[:, None]
        outputs['Out'] = [tensor((values_of(case, 'Out', 'outputs') - extra).astype('float32'))]
    elif case['op'] == 'data_norm_grad' and case['attrs']['slot_dim'] > 0:
        slots = case['attrs']['slot_dim']
        full = np.repeat(values_of(case, 'X')[:, ::slots] != 0, slots, axis=1)
        outputs['X@GRAD'] = [tensor(np.where(full, values_of(case, 'X@GRAD', 'outputs'), 0)
                                    .astype('float32'))]
    elif case['op'] == 'roi_align':
        right = np.nan_to_num(values_of(case, 'Out', 'outputs'))
        outputs['Out'] = [tensor(right.astype('float32'))]
    elif case['op'] == 'roi_align_grad' and case['attrs']['aligned']:
        outputs['X@GRAD'] = [tensor(roi_align_gradient(case).astype('float32'))]
    elif case['op'] == 'yolov3_loss_grad':
        outputs['X@GRAD'] = [tensor(yolo_gradient(case).astype('float32'))]
    if outputs != case['outputs']:
        case['paddle_cpu_quirks'] = case['outputs']
        case['outputs'] = outputs


def main():
    paddle.enable_static()
    paddle.seed(1)
    with open(sys.argv[1], 'w') as out:
        for op_type, builds in CASES.items():
            for i, build in enumerate(builds):
                for case in cases(op_type, build):
                    # The summaries, which this gradient leaves as they are.
                    for slot in ('BatchSize', 'BatchSum', 'BatchSquareSum', 'W_Out'):
                        case['outputs'].pop(slot, None)
                    make_right(case)
                    case = {'id': '%s/%d' % (case['op'], i), **case}
                    out.write(json.dumps(case, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
