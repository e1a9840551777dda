#!/usr/bin/env python3
"""Writes programs.jsonl: what PaddlePaddle 2.6 computes on a CPU for ops of small programs, and for
their gradient ops.

    make_program_vectors.py programs.jsonl

The form is that of ops.jsonl, which BUILD describes. Needs paddle and numpy.
"""
import json
import sys

import numpy as np
import paddle
import paddle.nn.functional as F

# Slots that hold what a kernel keeps for its gradient as it likes.
OWN = {'InnerCache', 'XShape', 'x_shape'}
TYPES = {'float32': 'fp32', 'float64': 'fp64', 'int32': 'int32', 'int64': 'int64', 'bool': 'bool'}


def draw(*shape):
    """Of a parameter, so that gradients are computed."""
    value = np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype('float32')
    return paddle.static.create_parameter(
        list(shape), 'float32', default_initializer=paddle.nn.initializer.Assign(value))


def resize(rank, **options):
    def build():
        spaces = {3: [5], 4: [4, 5], 5: [3, 4, 3]}[rank]
        layout = {3: 'NCW', 4: 'NCHW', 5: 'NCDHW'}[rank]
        return F.interpolate(draw(2, 2, *spaces), data_format=layout, **options)
    return build


def size_of(other):
    """A size that the program computes."""
    return paddle.shape(other)[2:]


def einsum(equation, *shapes):
    return lambda: paddle.einsum(equation, *[draw(*shape) for shape in shapes])


def warp(align_corners, mode, padding_mode):
    def build():
        grid = F.affine_grid(draw(2, 2, 3), [2, 2, 3, 3], align_corners=align_corners)
        return F.grid_sample(draw(2, 2, 4, 3), grid * 1.4 + 0.05, align_corners=align_corners,
                             mode=mode, padding_mode=padding_mode)
    return build


def ctc(norm_by_times):
    def build():
        labels = paddle.assign(np.array([[1, 1, 2], [3, 0, 0], [2, 1, 2]], 'int32'))
        return F.ctc_loss(draw(6, 3, 4), labels, paddle.assign(np.array([6, 4, 5], 'int64')),
                          paddle.assign(np.array([3, 1, 3], 'int64')), reduction='none',
                          norm_by_times=norm_by_times)
    return build


def unpool():
    x = draw(2, 2, 4, 6)
    pooled, index = F.max_pool2d(x, 2, stride=2, return_mask=True)
    return F.max_unpool2d(pooled, index, 2)


def spectral(dim, power_iters):
    return lambda: paddle.nn.SpectralNorm([3, 4, 2], dim=dim, power_iters=power_iters)(draw(3, 4, 2))


def computed():
    """Shapes and bounds that come from other tensors."""
    x, n = draw(3, 4), paddle.shape(draw(2, 4))
    rows = n[0]
    a = paddle.reshape(x, [rows, -1])
    b = paddle.expand(draw(1, 4), [rows, -1])
    c = paddle.slice(x, [0, 1], [0, rows], [rows, 4])
    d = paddle.tile(x, [rows, 1])
    e = paddle.strided_slice(x, [1], [0], [n[1]], [2])
    f = paddle.full([rows, 3], 2.5)
    return sum(paddle.sum(t * t) for t in (a, b, c, d, e, f))


def spectral_gradient(dim, power_iters, weight, u, v, grad):
    """By the formula, which Paddle's kernel does not compute."""
    order = [dim] + [i for i in range(weight.ndim) if i != dim]
    matrix, along = (a.transpose(order).astype('float64').reshape(weight.shape[dim], -1)
                     for a in (weight, grad))
    for _ in range(power_iters):
        v = matrix.T @ u / np.linalg.norm(matrix.T @ u)
        u = matrix @ v / np.linalg.norm(matrix @ v)
    sigma = u @ matrix @ v
    result = (along - np.sum(along * matrix) / sigma * np.outer(u, v)) / sigma
    shape = [weight.shape[i] for i in order]
    return result.reshape(shape).transpose(np.argsort(order)).astype('float32')


def number(values, dtype='int64'):
    return paddle.assign(np.array(values, dtype))


def scatter(overwrite):
    return lambda: paddle.scatter(number([[1, 2], [3, 4], [5, 6]]), number([2, 0, 2]),
                                  number([[7, 8], [9, 10], [11, 12]]), overwrite)


def weighted_loss():
    labels = number([[1, 0, 1], [0, 1, 0]], 'float32')
    return F.binary_cross_entropy_with_logits(
        draw(2, 3) * 3, labels, reduction='none', pos_weight=number([2, 0.5, 3], 'float32'))


def gather_tree():
    ids = [[[2, 2], [6, 1]], [[3, 9], [6, 1]], [[0, 1], [9, 0]]]
    parents = [[[0, 0], [1, 1]], [[1, 0], [0, 0]], [[0, 0], [0, 1]]]
    return F.gather_tree(number(ids), number(parents))


def weighted_loss_by_formula(slot, label, weight, x, grad=None):
    """By the formula, which Paddle's kernels do not compute where X < 0 and the weight is not 1."""
    if slot == 'Out':
        return (1 - label) * x + weight * np.logaddexp(0, -x)
    return (1 - label - weight / (1 + np.exp(x))) * grad


CASES = {
    'bicubic_interp_v2': [
        resize(4, mode='bicubic', size=[7, 3]),
        resize(4, mode='bicubic', size=[6, 8], align_corners=True),
        resize(4, mode='bicubic', scale_factor=[1.5, 2.0]),
    ],
    'linear_interp_v2': [
        resize(3, mode='linear', size=[8]),
        resize(3, mode='linear', size=[3], align_mode=1),
        resize(3, mode='linear', size=[9], align_corners=True),
    ],
    'trilinear_interp_v2': [
        resize(5, mode='trilinear', size=[5, 2, 4]),
        resize(5, mode='trilinear', scale_factor=2, align_mode=1),
        resize(5, mode='trilinear', size=[4, 5, 6], align_corners=True),
    ],
    'nearest_interp_v2': [resize(5, mode='nearest', size=[5, 2, 4])],
    'bilinear_interp_v2': [
        lambda: F.interpolate(draw(2, 2, 3, 3), size=size_of(draw(1, 1, 5, 4)), mode='bilinear'),
        lambda: F.interpolate(draw(2, 2, 3, 3), size=[paddle.shape(draw(5, 2))[0], 4],
                              mode='bilinear', align_corners=True),
    ],
    'einsum': [
        einsum('ij,jk->ik', (2, 3), (3, 4)),
        einsum('bhqd,bhkd->bhqk', (2, 2, 3, 4), (2, 2, 5, 4)),
        einsum('bhd,bmd->bhmd', (2, 3, 4), (2, 2, 4)),
        einsum('...ij,...jk->...ik', (2, 3, 4), (2, 4, 5)),
        einsum('ijk->kj', (2, 3, 4)),
        einsum('i,j->ij', (3, ), (4, )),
        einsum('ij,ij->', (3, 4), (3, 4)),
    ],
    'affine_grid': [warp(True, 'bilinear', 'zeros'), warp(False, 'bilinear', 'zeros')],
    'grid_sampler': [warp(align, mode, padding) for align in (True, False)
                     for mode in ('bilinear', 'nearest')
                     for padding in ('zeros', 'border', 'reflection')],
    'warpctc': [ctc(False), ctc(True)],
    'unpool': [unpool],
    'fold': [
        lambda: F.fold(draw(2, 8, 9), [6, 6], 2, strides=2),
        lambda: F.fold(draw(2, 6, 25), [4, 5], [2, 3], paddings=1),
    ],
    'spectral_norm': [spectral(0, 1), spectral(1, 3)],
    'pixel_unshuffle': [
        lambda: F.pixel_unshuffle(draw(2, 2, 4, 6), 2),
        lambda: F.pixel_unshuffle(draw(2, 4, 6, 2), 2, data_format='NHWC'),
    ],
    'channel_shuffle': [
        lambda: F.channel_shuffle(draw(2, 6, 2, 3), 3),
        lambda: F.channel_shuffle(draw(2, 2, 3, 6), 2, data_format='NHWC'),
    ],
    'reduce_amax': [
        lambda: paddle.amax(number([[1, 5, 5], [2, 2, 2]], 'float32') + 0 * draw(2, 3), axis=1),
        lambda: paddle.amax(draw(2, 3, 4), axis=[0, 2], keepdim=True),
        lambda: paddle.amax(draw(2, 3)),
    ],
    'reduce_amin': [
        lambda: paddle.amin(number([[1, 5, 1], [2, 2, 2]], 'float32') + 0 * draw(2, 3), axis=1),
        lambda: paddle.amin(draw(2, 3, 4), axis=[0, 2]),
    ],
    'elementwise_fmax': [
        lambda: paddle.fmax(draw(3, 4), draw(4)),
        lambda: paddle.fmax(number([1, 2, np.nan, 3, np.nan], 'float32') + 0 * draw(5),
                            number([1, 3, 2, np.nan, np.nan], 'float32') + 0 * draw(5)),
    ],
    'elementwise_fmin': [
        lambda: paddle.fmin(draw(4), draw(3, 4)),
        lambda: paddle.fmin(number([1, 2, np.nan, 3, np.nan], 'float32') + 0 * draw(5),
                            number([1, 3, 2, np.nan, np.nan], 'float32') + 0 * draw(5)),
    ],
    'lerp': [
        lambda: paddle.lerp(draw(3, 4), draw(2, 3, 4), draw(3, 1)),
        lambda: paddle.lerp(draw(4), draw(3, 1), 0.25),
        lambda: paddle.lerp(draw(4), draw(4), draw(2, 4)),
    ],
    'diagonal': [
        lambda: paddle.diagonal(draw(3, 4, 5), offset=1, axis1=2, axis2=0),
        lambda: paddle.diagonal(draw(3, 4), offset=-1),
        lambda: paddle.diagonal(draw(3, 4, 5), offset=2, axis1=-2, axis2=-1),
    ],
    'scatter': [scatter(True), scatter(False)],
    'sigmoid_cross_entropy_with_logits': [weighted_loss],
    'gather_tree': [gather_tree],
    'index_put': [
        lambda: paddle.index_put(draw(3, 4), (number([0, 2]), number([1, -1])), draw(2)),
        lambda: paddle.index_put(draw(3, 4), (number([2, 0]), ), draw(1), accumulate=True),
        lambda: paddle.index_put(draw(3, 4, 2), (number([[0], [1]]), number([0, 3, 2])),
                                 draw(3, 2)),
        lambda: paddle.index_put(draw(3, 2), (number([1, 1, 0], 'int32'), ), draw(3, 2), True),
    ],
    'reshape2': [computed], 'expand_v2': [computed], 'slice': [computed], 'tile': [computed],
    'strided_slice': [computed], 'fill_constant': [computed],
}  # yapf: disable


def tensor(array):
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    big_endian = array.astype(array.dtype.newbyteorder('>'))
    return {'dtype': TYPES[array.dtype.name], 'shape': list(array.shape),
            'hex': big_endian.tobytes().hex()}  # yapf: disable


def slots(op, names, of_slot, values):
    result = {}
    for slot in names:
        arguments = of_slot(slot)
        if slot not in OWN and any(name in values for name in arguments):
            result[slot] = [tensor(values[n]) if n in values else None for n in arguments]
    return result


def attributes(op):
    own = ('op_', 'use_', 'with_', 'mkldnn')
    return {name: op.attr(name) for name in op.attr_names
            if not name.startswith(own) or name == 'use_label_smooth'}


def computed_slots(op):
    return [slot for slot in op.input_names
            if ('Tensor' in slot or 'tensor' in slot or slot in ('Shape', 'RepeatTimes', 'OutSize'))
            and op.input(slot)]  # yapf: disable


def scalar(out):
    """A loss of which every element has a gradient of its own."""
    if not out.shape or -1 in out.shape:
        return paddle.sum(paddle.square(out))
    weights = paddle.sin(paddle.arange(0, 1 + max(1, int(np.prod(out.shape))), dtype='float32'))
    return paddle.sum(out.flatten() * weights[:-1])


def cases(op_type, build):
    """The op of that type, and its gradient op."""
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        out = build()
        if out.dtype != paddle.int64:
            paddle.static.append_backward(scalar(out))
    exe = paddle.static.Executor(paddle.CPUPlace())
    block = main.global_block()
    wanted = [op for op in block.ops if op.type in (op_type, op_type + '_grad')]
    if build is computed:
        wanted = [op for op in wanted if computed_slots(op)]
    names = []
    for op in wanted:
        for name in op.input_arg_names + op.output_arg_names:
            if block.has_var(name) and name not in names:
                names.append(name)
    own = {n for op in wanted for slot in op.output_names if slot in OWN for n in op.output(slot)}
    names = [name for name in names if name not in own]
    with paddle.static.scope_guard(paddle.static.Scope()):
        exe.run(startup)
        values = dict(zip(names, exe.run(main, fetch_list=names)))
    values = {name: value for name, value in values.items() if value is not None}  # not written
    operands = {}
    for op in wanted:
        inputs = slots(op, op.input_names, op.input, values)
        if op.type == 'einsum':
            operands = inputs['Operands']
        if op.type == 'einsum_grad':
            inputs['InnerCache'] = operands
        case = {'op': op.type, 'attrs': attributes(op), 'inputs': inputs,
                'outputs': slots(op, op.output_names, op.output, values)}  # yapf: disable
        if op.type == 'spectral_norm_grad':
            case['paddle_cpu_quirks'] = case['outputs']
            case['outputs'] = {'Weight@GRAD': [tensor(spectral_gradient(
                op.attr('dim'), op.attr('power_iters'),
                *[values[op.input(slot)[0]] for slot in ('Weight', 'U', 'V', 'Out@GRAD')]))]}
        if op.type.startswith('sigmoid_cross_entropy'):
            slot = 'X@GRAD' if op.type.endswith('_grad') else 'Out'
            read = [name for name in ('Label', 'pos_weight', 'X', 'Out@GRAD') if name in op.input_names]
            right = weighted_loss_by_formula(slot, *[values[op.input(n)[0]] for n in read])
            case['paddle_cpu_quirks'] = case['outputs']
            case['outputs'] = {slot: [tensor(right)]}
        yield case


def main():
    paddle.enable_static()
    paddle.seed(1)
    with open(sys.argv[1], 'w') as out:
        for op_type, builds in CASES.items():
            for i, build in enumerate(builds):
                seen = {}
                for case in cases(op_type, build):
                    number = seen[case['op']] = seen.get(case['op'], -1) + 1
                    name = '%s/%d%s' % (case['op'], i, '.%d' % number if number else '')
                    out.write(json.dumps({'id': name, **case}, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
