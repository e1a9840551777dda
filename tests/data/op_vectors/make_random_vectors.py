#!/usr/bin/env python3
"""Prints cases of random.jsonl: what the ops that draw whole numbers and categories draw on the CPU
with PaddlePaddle 2.6 after paddle.seed.

    make_random_vectors.py >> random.jsonl

The form is that of random.jsonl, which BUILD describes. Needs paddle and numpy.
"""
import json

import numpy as np
import paddle

from make_program_vectors import attributes, tensor

RNG = np.random.default_rng(5)


def given(array):
    return paddle.assign(np.asarray(array, 'float32'))


def weights(rows, categories):
    """Some are 0."""
    return given(RNG.uniform(0, 2, (rows, categories)) * (RNG.uniform(0, 1, (rows, categories)) > .2))


CASES = {
    'randint': [
        lambda: paddle.randint(0, 1000, [5, 7]),
        lambda: paddle.randint(-5, 5, [40], dtype='int32'),
    ],
    'randperm': [
        lambda: paddle.randperm(50),
        lambda: paddle.randperm(11, dtype='int32'),
        lambda: paddle.randperm(9, dtype='float32'),
    ],
    'bernoulli': [
        lambda: paddle.bernoulli(given(RNG.uniform(0, 1, (6, 8)))),
        lambda: paddle.bernoulli(given([0, 1] * 20)),
    ],
    'multinomial': [
        lambda: paddle.multinomial(weights(5, 12), 6),
        lambda: paddle.multinomial(weights(3, 4), 30, replacement=True),
        lambda: paddle.multinomial(given([.1, .2, .3, .4]), 4),
        lambda: paddle.multinomial(given(RNG.uniform(0, 1, 300)), 200),
    ],
}  # yapf: disable


def case(op_type, number, build):
    main, startup = paddle.static.Program(), paddle.static.Program()
    seed = 100 + number
    paddle.seed(seed)
    with paddle.static.program_guard(main, startup):
        build()
    op = next(op for op in main.global_block().ops if op.type == op_type)
    reads = [name for slot in op.input_names for name in op.input(slot)]
    out, *x = paddle.static.Executor(paddle.CPUPlace()).run(main,
                                                            fetch_list=op.output('Out') + reads)
    step = {'op': op_type, 'attrs': attributes(op), 'Out': tensor(out)}
    if x:
        step['X'] = tensor(x[0])
    return {'id': '%s/%d' % (op_type, number), 'generator_seed': seed, 'ops': [step]}


def main():
    paddle.enable_static()
    for op_type, builds in CASES.items():
        for number, build in enumerate(builds):
            print(json.dumps(case(op_type, number, build), separators=(',', ':')))


if __name__ == '__main__':
    main()
