#!/usr/bin/env python3
"""Writes power_sgd.json (BUILD): PowerSGD in NumPy, in double precision.

    make_power_sgd.py power_sgd.json MODEL

MODEL is the folder of mlp_sgd of Paddle 3, with init.npz and feeds.npz.
"""

import json
import sys

import numpy as np

BATCH, STEPS, START, RANK, RATE = 8, 9, 4, 2, 0.25
SHAPES = {'w0': (6, 5), 'b0': (5,), 'w1': (5, 4)}


def gradients(params, x, y):
    """Of the mean of (tanh(x w0 + b0) w1 - y)^2."""
    hidden = np.tanh(x @ params['w0'] + params['b0'])
    of_out = 2 * (hidden @ params['w1'] - y) / y.size
    of_hidden = (of_out @ params['w1'].T) * (1 - hidden ** 2)
    return {'w0': x.T @ of_hidden, 'b0': of_hidden.sum(0), 'w1': hidden.T @ of_out}


def exchange(own, residuals, basis):
    """The approximation of the mean of what ranks have, and the next basis."""
    for residual, gradient in zip(residuals, own):
        residual += gradient
    basis, _ = np.linalg.qr(basis)
    left, _ = np.linalg.qr(np.mean([residual @ basis for residual in residuals], 0))
    right = np.mean([residual.T @ left for residual in residuals], 0)
    sent = left @ right.T
    for residual in residuals:
        residual -= sent
    return sent, right


def run(ranks):
    draw = np.random.default_rng(ranks)
    def numbers(*shape):
        return draw.standard_normal(shape).astype('float32').astype('float64')
    params = {name: numbers(*shape) for name, shape in SHAPES.items()}
    matrices = [name for name in params if params[name].ndim == 2]
    bases = {name: numbers(SHAPES[name][1], RANK) for name in matrices}
    residuals = {name: [np.zeros(SHAPES[name]) for _ in range(ranks)] for name in matrices}
    case = {'ranks': ranks, 'params': listed(params), 'bases': listed(bases), 'steps': []}
    for step in range(1, STEPS + 1):
        x, y = numbers(BATCH, 6), numbers(BATCH, 4)
        own = [gradients(params, *part) for part in zip(np.split(x, ranks), np.split(y, ranks))]
        for name in params:
            of_ranks = [gradient[name] for gradient in own]
            mean = np.mean(of_ranks, 0)
            if name in matrices and step >= START:
                mean, bases[name] = exchange(of_ranks, residuals[name], bases[name])
            params[name] = params[name] - RATE * mean
        case['steps'].append({'x': listed(x), 'y': listed(y), 'params': listed(params),
                              'residuals': {name: listed(of) for name, of in residuals.items()}})
    return case


def mlp_gradients(params, x, y):
    """The loss of three layers with softmax, and its gradients."""
    inputs, layers = [x], 3
    for layer in range(layers):
        out = inputs[-1] @ params[f'fc_{layer}.w_0'] + params[f'fc_{layer}.b_0']
        inputs.append(np.maximum(out, 0))
    exps = np.exp(out - out.max(1, keepdims=True))
    of_out = exps / exps.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(of_out[rows, y]).mean()
    of_out[rows, y] -= 1
    of_out /= len(y)
    gradients = {}
    for layer in reversed(range(layers)):
        gradients[f'fc_{layer}.w_0'] = inputs[layer].T @ of_out
        gradients[f'fc_{layer}.b_0'] = of_out.sum(0)
        of_out = (of_out @ params[f'fc_{layer}.w_0'].T) * (inputs[layer] > 0)
    return loss, gradients


def run_mlp(folder, ranks=2):
    init, feeds = (np.load(f'{folder}/{name}.npz') for name in ('init', 'feeds'))
    params = {name: init[name].astype('float64') for name in init}
    rate = float(params.pop('learning_rate_0'))
    matrices = [name for name in params if params[name].ndim == 2]
    bases, residuals = {}, {}
    for number, name in enumerate(matrices):
        rows, columns = params[name].shape
        elements = np.arange(columns * RANK, dtype='float64').reshape(columns, RANK)
        basis = np.sin(1 + 12.9898 * elements + 78.233 * number)
        bases[name] = basis.astype('float32').astype('float64')
        residuals[name] = [np.zeros((rows, columns)) for _ in range(ranks)]
    losses = []
    for step in range(1, STEPS + 1):
        batch = {name: np.split(feeds[f'{(step - 1) % 3}/{name}'], ranks) for name in 'xy'}
        own = [mlp_gradients(params, x.astype('float64'), y[:, 0]) for x, y in zip(*batch.values())]
        losses.append([loss for loss, _ in own])
        for name in params:
            of_ranks = [gradients[name] for _, gradients in own]
            mean = np.mean(of_ranks, 0)
            if name in matrices and step >= START:
                mean, bases[name] = exchange(of_ranks, residuals[name], bases[name])
            params[name] = params[name] - rate * mean
    heads = {name: value.ravel()[:16] for name, value in params.items()}
    return {'matrices': matrices, 'losses': listed(losses), 'heads': listed(heads)}


def listed(value):
    if isinstance(value, dict):
        return {name: listed(of) for name, of in value.items()}
    if isinstance(value, list):
        return [listed(of) for of in value]
    return [float(f'{number:.9g}') for number in np.ravel(value)]


def main():
    with open(sys.argv[1], 'w', encoding='utf-8') as file:
        json.dump({'start_step': START, 'rank': RANK, 'rate': RATE,
                   'cases': [run(ranks) for ranks in (1, 2, 4)],
                   'mlp_sgd': run_mlp(sys.argv[2])}, file, separators=(',', ':'))
        file.write('\n')


if __name__ == '__main__':
    main()
