#!/usr/bin/env python3
"""Writes outer.jsonl: LocalSGD with outer optimizers, by their formulas, in NumPy.

    make_outer_cases.py > outer.jsonl

BUILD describes the file.
"""
import json

import numpy as np

F = np.float32

CASES = [
    # name, ranks, k_steps, outer optimizer, its rate and momentum, factor of the inner rate a step;
    # then, if not 1, 0, 0 and fp32: fragments, delay, mix, what outer gradients travel in
    ('sgd', 2, 3, 'sgd', 0.5, 0, 1),
    ('sgd_every_step', 2, 1, 'sgd', 0.7, 0, 1),
    ('nesterov', 2, 2, 'nesterov', 0.7, 0.9, 1),
    ('nesterov_4_ranks', 4, 3, 'nesterov', 0.3, 0.5, 1),
    ('slowmo', 2, 2, 'slowmo', 1, 0.5, 1),
    ('slowmo_rate_decays', 2, 2, 'slowmo', 0.7, 0.6, 0.75),
    ('slowmo_4_ranks', 4, 3, 'slowmo', 1, 0.25, 0.5),
    ('mixed', 2, 2, 'nesterov', 0.7, 0.9, 1, 1, 0, 0.25),
    ('mixed_averages', 2, 2, 'sgd', 1, 0, 1, 1, 0, 0.5),
    ('delayed', 2, 3, 'nesterov', 0.7, 0.9, 1, 1, 2),
    ('delayed_sgd', 4, 2, 'sgd', 0.5, 0, 1, 1, 1, 0.5),
    ('delayed_slowmo', 2, 3, 'slowmo', 0.7, 0.6, 0.75, 1, 1),
    ('streaming', 2, 6, 'nesterov', 0.7, 0.9, 1, 2, 1, 0.5),
    ('streaming_3_ranks', 3, 4, 'nesterov', 0.3, 0.5, 1, 2, 1, 0.75),
    ('rounded', 2, 1, 'nesterov', 0.7, 0.9, 1, 1, 0, 0, 'bf16'),
    ('rounded_slowmo', 2, 2, 'slowmo', 0.7, 0.6, 0.75, 1, 0, 0, 'fp16'),
    ('rounded_streaming', 2, 4, 'nesterov', 0.7, 0.9, 1, 2, 1, 0.5, 'bf16'),
]
SIZES = [4, 3]
STEPS = 7


def bits(array):
    return ''.join('%08x' % word for word in array.view(np.uint32))


def rounded(values, sent):
    if sent == 'fp16':
        return values.astype(np.float16).astype(F)
    words = values.view(np.uint32)
    words = (words + np.uint32(0x7FFF) + ((words >> 16) & 1)) & np.uint32(0xFFFF0000)
    return words.view(F)


def rounded_gradient(state, locals_, sent):
    """The sum of the n-th parts as they travel; state['e'] keeps, by rank, what that takes."""
    total = None
    for rank, local in enumerate(locals_):
        part = (state['x'] - local) * F(1 / len(locals_)) + state['e'][rank]
        travels = rounded(part, sent)
        state['e'][rank] = part - travels
        total = travels if total is None else rounded(total + travels, sent)
    return total


def outer_gradient(state, locals_, is_delayed):
    """The mean over the ranks, which is divided first if it is on its way for several steps."""
    total = F(0)
    for local in locals_:
        change = state['x'] - local
        total = total + (change * F(1 / len(locals_)) if is_delayed else change)
    return total if is_delayed else total * F(1 / len(locals_))


def synchronize(state, d, rule, lr, momentum, rate):
    """What all ranks have then. `state`: x and the velocity; changes."""
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


def case(name, ranks, k_steps, rule, lr, momentum, decay, fragments=1, delay=0, mix=0,
         sent='fp32'):
    random = np.random.default_rng(len(name) + ranks)
    rate = F(0.125)
    params = [[np.zeros(size, F) for size in SIZES] for _ in range(ranks)]
    states = [{'x': np.zeros(size, F), 'v': np.zeros(size, F),
               'e': [np.zeros(size, F)] * ranks} for size in SIZES]  # yapf: disable
    grads, after = [], []
    for step in range(1, STEPS + 1):
        rate = rate * F(decay)
        grads.append([[random.standard_normal(size).astype(F) for size in SIZES]
                      for _ in range(ranks)])
        for rank in range(ranks):
            for i, grad in enumerate(grads[-1][rank]):
                params[rank][i] = params[rank][i] - rate * grad
        for i, state in enumerate(states):
            # Updates begin with the last parameter.
            turn = (len(SIZES) - i) * (k_steps // fragments) if fragments > 1 else 0
            locals_ = [params[rank][i] for rank in range(ranks)]
            if (step + delay) % k_steps == turn % k_steps:
                state['d'] = (outer_gradient(state, locals_, delay > 0) if sent == 'fp32' else
                              rounded_gradient(state, locals_, sent))
            if step % k_steps != turn % k_steps:
                continue
            new = synchronize(state, state['d'], rule, F(lr), F(momentum), rate)
            for rank in range(ranks):
                mixed = params[rank][i] * F(mix) + new * F(1 - mix)
                params[rank][i] = mixed if mix > 0 else new
        after.append([[bits(param) for param in of_rank] for of_rank in params])
    options = [f'lr={lr}'] + ([f'momentum={momentum}'] if momentum else [])
    return {
        'id': 'outer/' + name,
        'ranks': ranks,
        'sizes': SIZES,
        'k_steps': k_steps,
        'fragments': fragments,
        'delay': delay,
        'mix': mix,
        'comm_dtype': sent,
        'outer': rule + '{' + ','.join(options) + '}',
        'lr': 0.125,
        'lr_decay': float(decay),
        'begin': [[bits(np.zeros(size, F)) for size in SIZES]] * ranks,
        'grads': [[[bits(grad) for grad in of_rank] for of_rank in step] for step in grads],
        'after': after,
    }  # yapf: disable


for arguments in CASES:
    print(json.dumps(case(*arguments)))
