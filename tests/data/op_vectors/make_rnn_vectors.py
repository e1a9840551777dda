#!/usr/bin/env python3
"""Writes rnn.jsonl: what PaddlePaddle 2.6 computes on a CPU for op rnn and its gradient.

    make_rnn_vectors.py rnn.jsonl

The form is that of ops.jsonl, which BUILD describes. Needs paddle and numpy.
"""
import json
import sys

import numpy as np
import paddle

TIME, BATCH, INPUT, HIDDEN = 4, 3, 3, 2
LENGTHS = [4, 1, 3]

LAYERS = {'LSTM': paddle.nn.LSTM, 'GRU': paddle.nn.GRU}


def make_layer(mode, num_layers, bidirectional):
    options = {
        'num_layers': num_layers,
        'direction': 'bidirect' if bidirectional else 'forward',
        'time_major': True,
    }
    if mode in LAYERS:
        return LAYERS[mode](INPUT, HIDDEN, **options)
    activation = mode[len('RNN_'):].lower()
    return paddle.nn.SimpleRNN(INPUT, HIDDEN, activation=activation, **options)


def tensor(array):
    array = np.ascontiguousarray(array)
    dtype = {'float32': 'fp32', 'int32': 'int32'}[array.dtype.name]
    big_endian = array.astype(array.dtype.newbyteorder('>'))
    return {'dtype': dtype, 'shape': list(array.shape), 'hex': big_endian.tobytes().hex()}


def tensors(values):
    return [tensor(value.numpy() if hasattr(value, 'numpy') else value) for value in values]


def case(name, mode, num_layers=1, bidirectional=False, lengths=None):
    rng = np.random.default_rng(len(name))

    def draw(*shape):
        values = rng.uniform(-1, 1, shape).astype(np.float32)
        return paddle.to_tensor(values, stop_gradient=False)

    layer = make_layer(mode, num_layers, bidirectional)
    for param in layer.parameters():
        param.set_value(draw(*param.shape).numpy())
    directions = 2 if bidirectional else 1
    states = [draw(num_layers * directions, BATCH, HIDDEN) for _ in range(1 + (mode == 'LSTM'))]
    x = draw(TIME, BATCH, INPUT)
    # Weights of all layers and directions, then their biases.
    params = layer.parameters()
    weights = [p for i, p in enumerate(params) if i % 4 < 2]
    weights += [p for i, p in enumerate(params) if i % 4 >= 2]
    sequence_length = None if lengths is None else paddle.to_tensor(np.array(lengths, np.int32))
    out, last = layer(x, tuple(states) if len(states) > 1 else states[0], sequence_length)
    last = list(last) if isinstance(last, (list, tuple)) else [last]
    out_grad = draw(*out.shape)
    last_grads = [draw(*state.shape) for state in last]
    paddle.autograd.backward([out] + last, [out_grad] + last_grads)

    attrs = {
        'mode': mode,
        'num_layers': num_layers,
        'is_bidirec': bidirectional,
        'input_size': INPUT,
        'hidden_size': HIDDEN,
        'dropout_prob': 0.0,
        'is_test': False,
    }
    inputs = {'Input': tensors([x]), 'PreState': tensors(states), 'WeightList': tensors(weights)}
    if lengths is not None:
        inputs['SequenceLength'] = tensors([sequence_length])
    result = {
        'id': 'rnn/' + name,
        'op': 'rnn',
        'attrs': attrs,
        'inputs': inputs,
        'outputs': {'Out': tensors([out]), 'State': tensors(last)},
    }
    # Where sequences are shorter, central differences show that gradients through the backward
    # direction are wrong.
    if not bidirectional or lengths is None:
        result['gradient'] = {
            'inputs': {'Out@GRAD': tensors([out_grad]), 'State@GRAD': tensors(last_grads)},
            'outputs': {
                'Input@GRAD': tensors([x.grad]),
                'PreState@GRAD': tensors([state.grad for state in states]),
                'WeightList@GRAD': tensors([weight.grad for weight in weights]),
            },
        }
    return result


def all_cases():
    yield case('lstm', 'LSTM')
    yield case('lstm_two_layers', 'LSTM', num_layers=2)
    yield case('lstm_bidirectional', 'LSTM', 2, True)
    yield case('lstm_bidirectional_lengths', 'LSTM', 2, True, LENGTHS)
    yield case('lstm_lengths', 'LSTM', 2, False, LENGTHS)
    yield case('gru', 'GRU')
    yield case('gru_bidirectional', 'GRU', 2, True)
    yield case('gru_bidirectional_lengths', 'GRU', 2, True, LENGTHS)
    yield case('tanh', 'RNN_TANH', 2, False, LENGTHS)
    yield case('relu_bidirectional', 'RNN_RELU', 1, True)


def main():
    with open(sys.argv[1], 'w') as file:
        for vector in all_cases():
            file.write(json.dumps(vector, separators=(',', ':')) + '\n')


if __name__ == '__main__':
    main()
