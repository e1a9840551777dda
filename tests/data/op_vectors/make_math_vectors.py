#!/usr/bin/env python3
"""Writes math.jsonl: what PaddlePaddle 2.6 computes on a CPU for mathematical ops of training
scripts, and for their gradients.

    make_math_vectors.py math.jsonl

Works as make_program_vectors.py, and needs what that needs. Of ops that draw there is the gradient
only, for what was drawn.
"""
import json
import sys

import numpy as np
import paddle
import paddle.nn.functional as F

from make_program_vectors import cases, draw, number, tensor


def other(*shape):
    """Other numbers than draw."""
    return paddle.cos(draw(*shape) * 9)


def without_gradient(build):
    def run():
        build()
        return number([0])
    return run


def bits(function):
    def of(*arguments):
        return without_gradient(lambda: function(*[number(*a) for a in arguments]))
    words = [[5, -3, 0], [12, -1, 7]], [7, -8, 2]
    truths = [[True, True, False, False], [True, False, True, False]]
    if function is paddle.bitwise_not:
        return [of((words[0],)), of((words[0], 'int32')), of((truths, 'bool'))]
    return [of((words[0],), (words[1],)), of((words[1], 'int32'), (words[0], 'int32')),
            of((truths[0], 'bool'), (truths[1], 'bool'))]


def close(function):
    def of(x, y, **options):
        return without_gradient(lambda: function(number(x, 'float32'), number(y, 'float32'),
                                                 **options))
    inf, nan = np.inf, np.nan
    x = [[1, 2, inf, nan, nan, inf, 1, -inf]]
    y = [[1.000001, 2.1, inf, nan, 1, 1, inf, inf]]
    return [of(x, y), of(x, y, equal_nan=True), of([1, 2.05], [1, 2], rtol=.1),
            of([1, 2.05], [1, 2], rtol=0., atol=.01)]


def search(sequence, values, dtype='float32', **options):
    return without_gradient(lambda: paddle.searchsorted(
        number(sequence, dtype), number(values, dtype), **options))


def count(x, weights=None, dtype='int64', **options):
    def build():
        w = None if weights is None else number(weights, 'float32')
        paddle.bincount(number(x, dtype), w, **options)
    return without_gradient(build)


def rrelu(training):
    return lambda: F.rrelu(draw(2, 3, 4), .1, .3, training=training)


def unique(values, dtype='float32', **options):
    return without_gradient(lambda: paddle.unique(number(values, dtype), True, True, True,
                                                  **options))


def segments(function, dtype='int64'):
    return lambda: function(draw(5, 2, 2), number([0, 0, 1, 3, 3], dtype))


def regular(*shape):
    """Matrices with an inverse."""
    return draw(*shape) + 1.5 * paddle.eye(shape[-1])


def positive(*shape):
    """Matrices with a Cholesky factor."""
    x = draw(*shape)
    return paddle.matmul(x, x, transpose_y=True) + .5 * paddle.eye(shape[-1])


def of_size(out, *shape):
    """Paddle declares other sizes for determinants than it computes."""
    out.desc.set_shape(shape)
    return out


def singular():
    return draw(2, 3, 3) * number([[[1]], [[0]]], 'float32') + number([[[0]], [[1]]], 'float32')


def triangular(matrix, right, **options):
    return lambda: paddle.linalg.triangular_solve(regular(*matrix), draw(*right), **options)


def put(reduce, include_self=True, axis=1, dtype='int64'):
    """With equal values, some at one place."""
    def build():
        x, values = paddle.round(draw(3, 4) * 2) + .5, paddle.round(other(3, 2) * 2) + .5
        if axis == 0:
            x, values = paddle.transpose(x, [1, 0]), paddle.transpose(values, [1, 0])
        indices = number([[1, 1], [0, 3], [2, 2]] if axis else [[1, 0, 2], [1, 3, 2]], dtype)
        return paddle.put_along_axis(x, indices, values, axis, reduce, include_self)
    return build


TWICE = [[3, 1, 2], [0, 2, 1], [3, 1, 2], [3, 0, 2]]
LEVELS = [1, 2, 2, 3.5, 7]
CASES = {
    'trunc': [lambda: paddle.trunc(draw(3, 4) * 3)],
    'atan2': [lambda: paddle.atan2(draw(3, 4), other(3, 4))],
    'bitwise_and': bits(paddle.bitwise_and), 'bitwise_or': bits(paddle.bitwise_or),
    'bitwise_xor': bits(paddle.bitwise_xor), 'bitwise_not': bits(paddle.bitwise_not),
    'isclose': close(paddle.isclose), 'allclose': close(paddle.allclose),
    'dist': [lambda p=p: paddle.dist(draw(3, 4), other(2, 3, 1), p)
             for p in (0, 1, 2, 3, .5, np.inf, -np.inf)],
    'cross': [lambda: paddle.cross(draw(2, 3, 4), other(2, 3, 4)),
              lambda: paddle.cross(draw(3, 3), other(3, 3), axis=1)],
    'diag_embed': [without_gradient(lambda: F.diag_embed(draw(2, 3))),
                   without_gradient(lambda: F.diag_embed(draw(2, 3), 1, 0, 2)),
                   without_gradient(lambda: F.diag_embed(draw(2, 3), -2, 2, 0))],
    'rrelu': [rrelu(False), rrelu(True)],
    'gumbel_softmax': [lambda: F.gumbel_softmax(draw(3, 4)),
                       lambda: F.gumbel_softmax(draw(2, 3, 4), .25, axis=1),
                       lambda: F.gumbel_softmax(draw(3, 4), hard=True)],
    'poisson': [lambda: paddle.poisson(draw(3, 4) + 2)],
    'searchsorted': [
        search(LEVELS, [[2, 0], [9, 3.5]]), search(LEVELS, [2, 7, 1], right=True, out_int32=True),
        search([LEVELS, [0, 4, 5, 6, 6]], [[2, 6], [4, 6]]),
        search([1, 2, 2], [2, -1], dtype='int64'),
        search(LEVELS, [-np.inf, np.inf, np.nan, 2]),
    ],
    'cummax': [lambda: paddle.cummax(draw(3, 4))[0],
               lambda: paddle.cummax(paddle.round(draw(3, 4) * 2), axis=0, dtype='int32')[0]],
    'cummin': [lambda: paddle.cummin(draw(2, 3, 4), axis=1)[0],
               lambda: paddle.cummin(paddle.round(draw(3, 4) * 2), axis=-1)[0]],
    'kthvalue': [lambda: paddle.kthvalue(draw(3, 4), 2)[0],
                 lambda: paddle.kthvalue(draw(2, 3, 4), 3, axis=1, keepdim=True)[0]],
    'mode': [lambda: paddle.mode(paddle.round(draw(3, 7) * 2))[0],
             lambda: paddle.mode(paddle.round(draw(2, 6, 4) * 2), axis=1, keepdim=True)[0]],
    'renorm': [lambda: paddle.renorm(draw(3, 4), 2., 1, .9),
               lambda: paddle.renorm(draw(2, 3, 4), 3., 0, .5),
               lambda: paddle.renorm(draw(2, 3, 4), 1., -1, .5)],
    'unique': [unique([3, 1, 2, 1, 3, 1]), unique(TWICE, dtype='int64'), unique(TWICE, axis=0),
               unique(TWICE, axis=1, dtype='int32'),
               unique([TWICE, TWICE], axis=1)],
    'segment_pool': [segments(paddle.incubate.segment_sum), segments(paddle.incubate.segment_mean),
                     segments(paddle.incubate.segment_max, 'int32'),
                     segments(paddle.incubate.segment_min)],
    'inverse': [lambda: paddle.inverse(regular(2, 3, 3)), lambda: paddle.inverse(regular(4, 4))],
    'cholesky': [lambda: paddle.linalg.cholesky(positive(2, 3, 3)),
                 lambda: paddle.linalg.cholesky(positive(4, 4), upper=True)],
    'determinant': [lambda: of_size(paddle.linalg.det(draw(2, 3, 3)), 2),
                    lambda: of_size(paddle.linalg.det(draw(4, 4))),
                    lambda: of_size(paddle.linalg.det(singular()), 2)],
    'slogdeterminant': [lambda: of_size(paddle.linalg.slogdet(draw(2, 3, 3)), 2, 2),
                        lambda: of_size(paddle.linalg.slogdet(draw(4, 4)), 2)],
    'multi_dot': [lambda: paddle.linalg.multi_dot([draw(2, 3), draw(3, 4)]),
                  lambda: paddle.linalg.multi_dot([draw(2, 3), draw(3, 4), draw(4, 2)]),
                  lambda: paddle.linalg.multi_dot([draw(2, 5), draw(5, 1), draw(1, 7), draw(7, 3)]),
                  lambda: paddle.linalg.multi_dot([draw(3), draw(3, 4), draw(4)])],
    'solve': [lambda: paddle.linalg.solve(regular(2, 3, 3), draw(2, 3, 2)),
              lambda: paddle.linalg.solve(regular(3, 3), draw(3)),
              lambda: paddle.linalg.solve(regular(2, 3, 3), draw(3)),
              lambda: paddle.linalg.solve(regular(3, 3), draw(2, 3, 2))],
    'triangular_solve': [
        triangular((2, 3, 3), (2, 3, 2)), triangular((2, 3, 3), (2, 3, 2), upper=False),
        triangular((3, 3), (3, 4), transpose=True),
        triangular((3, 3), (2, 3, 2), upper=False, transpose=True, unitriangular=True),
        triangular((2, 3, 3), (3, 2), unitriangular=True),
    ],
    'cholesky_solve': [
        lambda: paddle.linalg.cholesky_solve(draw(2, 3, 2), regular(2, 3, 3)),
        lambda: paddle.linalg.cholesky_solve(draw(4, 2), regular(4, 4), upper=True),
    ],
    **{name: [lambda function=function: function(draw(3, 4) * 25)]
       for name, function in (('i0', paddle.i0), ('i0e', paddle.i0e), ('i1', paddle.i1),
                              ('i1e', paddle.i1e))},
    'polygamma': [lambda n=n: paddle.polygamma(draw(3, 4) * 5, n) for n in (1, 2, 5)],
    'elementwise_heaviside': [lambda: paddle.heaviside(paddle.round(draw(3, 4)), other(4))],
    'put_along_axis': [
        *[put(reduce, include_self) for include_self in (True, False)
          for reduce in ('assign', 'add', 'mul', 'mean', 'amin', 'amax')],
        put('multiply', axis=0), put('amax', axis=0, dtype='int32'),
    ],
    'bincount': [count([3, 1, 3, 0]), count([3, 1], [.5, 2]),
                 count([1], minlength=4, dtype='int32')],
}  # yapf: disable


def values_of(case, slot, of='inputs'):
    t = case[of][slot][0]
    dtype = {'fp32': '>f4', 'int64': '>i8', 'int32': '>i4'}[t['dtype']]
    return np.frombuffer(bytes.fromhex(t['hex']), dtype).reshape(t['shape'])


def cofactors(matrices):
    """The derivatives of determinants."""
    minor = [[np.delete(np.delete(matrices.astype('float64'), i, 1), j, 2)
              for j in range(matrices.shape[2])] for i in range(matrices.shape[1])]
    signs = (-1) ** np.add.outer(np.arange(matrices.shape[1]), np.arange(matrices.shape[2]))
    return np.linalg.det(np.array(minor)).transpose(2, 0, 1) * signs


def factor_gradient(case):
    """By the formula, with the triangle of the factor alone."""
    upper = case['attrs']['upper']
    y, out, dout = (values_of(case, slot).astype('float64') for slot in ('Y', 'Out', 'Out@GRAD'))
    factor = np.triu(y) if upper else np.tril(y)
    turned = factor.swapaxes(-1, -2)
    system = turned @ factor if upper else factor @ turned
    grad = -np.linalg.solve(system, dout) @ out.swapaxes(-1, -2)
    both = grad + grad.swapaxes(-1, -2)
    return np.triu(factor @ both) if upper else np.tril(both @ factor)


def extremum_gradient(case):
    """Of the values alone, without those of Input that do not count."""
    out, dout, index = (values_of(case, slot) for slot in ('Result', 'Result@GRAD', 'Index'))
    chosen = values_of(case, 'Value') == np.take_along_axis(out, index, 1)
    shares = np.zeros(out.shape)
    for row, columns in enumerate(index):
        np.add.at(shares[row], columns, chosen[row])
    shares = np.where(chosen, np.take_along_axis(dout / np.maximum(shares, 1), index, 1), 0)
    return shares.astype('float32')


def make_right(case):
    """Where Paddle's kernel does not compute what the op is defined to."""
    outputs = dict(case['outputs'])
    if case['op'] == 'gumbel_softmax_grad':
        right = values_of(case, 'X@GRAD', 'outputs') / case['attrs']['temperature']
        outputs['X@GRAD'] = [tensor(right.astype('float32'))]
    elif case['op'] == 'searchsorted':
        lowest = values_of(case, 'Values') == -np.inf
        places = values_of(case, 'Out', 'outputs')
        right = np.where(lowest, 0, places)
        outputs['Out'] = [tensor(right.astype(places.dtype.newbyteorder('=')))]
    elif case['op'] == 'determinant_grad' and np.any(values_of(case, 'Out') == 0):
        right = cofactors(values_of(case, 'Input')) * values_of(case, 'Out@GRAD')[:, None, None]
        outputs['Input@GRAD'] = [tensor(right.astype('float32'))]
    elif case['op'] == 'put_along_axis_grad':
        attrs = case['attrs']
        if attrs['Reduce'] in ('amin', 'amax') and not attrs['Include_self']:
            outputs['Value@GRAD'] = [tensor(extremum_gradient(case))]
    elif case['op'] == 'cholesky_solve_grad':
        outputs['Y@GRAD'] = [tensor(factor_gradient(case).astype('float32'))]
    elif case['op'] == 'triangular_solve_grad':
        attrs, grad = case['attrs'], values_of(case, 'X@GRAD', 'outputs')
        if attrs['unitriangular'] and not attrs['upper']:
            outputs['X@GRAD'] = [tensor(np.tril(grad, -1).astype('float32'))]
    if outputs != case['outputs']:
        case['paddle_cpu_quirks'] = case['outputs']
        case['outputs'] = outputs


def is_drawn(case):
    trains = case['op'] == 'rrelu' and not case['attrs']['is_test']
    return trains or case['op'] in ('poisson', 'gumbel_softmax')


def main():
    paddle.enable_static()
    paddle.seed(1)
    with open(sys.argv[1], 'w') as out:
        for op_type, builds in CASES.items():
            for i, build in enumerate(builds):
                for case in cases(op_type, build):
                    if is_drawn(case):
                        continue
                    make_right(case)
                    for name, value in case['attrs'].items():
                        if isinstance(value, float) and np.isinf(value):
                            case['attrs'][name] = str(value)  # JSON has no such number
                    case = {'id': '%s/%d' % (case['op'], i), **case}
                    out.write(json.dumps(case, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
