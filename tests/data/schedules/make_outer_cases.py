#!/usr/bin/env python3
"""Writes outer.jsonl: LocalSGD with outer optimizers, by their formulas, in NumPy.

    make_outer_cases.py > outer.jsonl

BUILD describes the file.
"""
import json

import numpy as np

F = np.float32

CASES = [
    # name, ranks, k_steps, outer optimizer, its rate and momentum, factor of the inner rate a step
    ('sgd', 2, 3, 'sgd', 0.5, 0, 1),
    ('sgd_every_step', 2, 1, 'sgd', 0.7, 0, 1),
    ('nesterov', 2, 2, 'nesterov', 0.7, 0.9, 1),
    ('nesterov_4_ranks', 4, 3, 'nesterov', 0.3, 0.5, 1),
    ('slowmo', 2, 2, 'slowmo', 1, 0.5, 1),
    ('slowmo_rate_decays', 2, 2, 'slowmo', 0.7, 0.6, 0.75),
    ('slowmo_4_ranks', 4, 3, 'slowmo', 1, 0.25, 0.5),
]
SIZES = [4, 3]
STEPS = 7


def bits(array):
    return ''.join('%08x' % word for word in array.view(np.uint32))


def synchronize(state, locals_, rule, lr, momentum, rate):
    """What all ranks have then. `state`: x and the velocity; changes."""
    total = F(0)
    for local in locals_:
        total = total + (state['x'] - local)
    d = total * F(1 / len(locals_))
    if rule == 'sgd':
        move = d * lr
    elif rule == 'nesterov':
        state['v'] = momentum * state['v'] + d
        move = (d + momentum * state['v']) * lr
    else:
        state['v'] = momentum * state['v'] + d / rate
        move = (state['v'] * lr) * rate
    state['x'] = state['x'] - move
    return state['x']


def case(name, ranks, k_steps, rule, lr, momentum, decay):
    random = np.random.default_rng(len(name) + ranks)
    rate = F(0.125)
    params = [[np.zeros(size, F) for size in SIZES] for _ in range(ranks)]
    states = [{'x': np.zeros(size, F), 'v': np.zeros(size, F)} for size in SIZES]
    grads, after = [], []
    for step in range(1, STEPS + 1):
        rate = rate * F(decay)
        grads.append([[random.standard_normal(size).astype(F) for size in SIZES]
                      for _ in range(ranks)])
        for rank in range(ranks):
            for i, grad in enumerate(grads[-1][rank]):
                params[rank][i] = params[rank][i] - rate * grad
        if step % k_steps == 0:
            for i, state in enumerate(states):
                new = synchronize(state, [params[rank][i] for rank in range(ranks)], rule, F(lr),
                                  F(momentum), rate)
                for rank in range(ranks):
                    params[rank][i] = new
        after.append([[bits(param) for param in of_rank] for of_rank in params])
    options = [f'lr={lr}'] + ([f'momentum={momentum}'] if momentum else [])
    return {
        'id': 'outer/' + name,
        'ranks': ranks,
        'sizes': SIZES,
        'k_steps': k_steps,
        'outer': rule + '{' + ','.join(options) + '}',
        'lr': 0.125,
        'lr_decay': float(decay),
        'begin': [[bits(np.zeros(size, F)) for size in SIZES]] * ranks,
        'grads': [[[bits(grad) for grad in of_rank] for of_rank in step] for step in grads],
        'after': after,
    }  # yapf: disable


for arguments in CASES:
    print(json.dumps(case(*arguments)))
