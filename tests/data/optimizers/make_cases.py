#!/usr/bin/env python3
"""Writes singa.jsonl, megengine.jsonl, *_options.jsonl and lazy_adam.jsonl from a folder of conformance vectors.

    make_cases.py FOLDER    # with optimizers.json and errors.json

BUILD describes the files.
"""
import json
import struct
import sys

TYPES = {'SGD': 'sgd', 'RMSProp': 'rmsprop', 'AdaGrad': 'adagrad', 'Adam': 'adam'}


def bits(tensor):
    assert tensor['dtype'] == 'float32'
    return {'shape': tensor['shape'], 'hex': ''.join(tensor['hex'])}


def value(arg):
    """A value as text of an option; None for what has no text, such as the text of a number."""
    if isinstance(arg, dict):
        parts = [arg['init'], arg.get('decay_steps', 1), arg.get('decay_rate', 1)]
        stairs = ['staircase'] if arg.get('staircase') else []
        return 'exp(%s)' % ':'.join(str(part) for part in parts + stairs)
    if isinstance(arg, str):
        try:
            float(arg)
            return None
        except ValueError:
            return arg
    return str(arg).lower() if isinstance(arg, bool) else str(arg)


def options(type_name, args):
    texts = {name: value(arg) for name, arg in args.items()}
    if None in texts.values():
        return None
    quoted = ('%s="%s"' % item for item in texts.items())
    return '{%s}' % ','.join(['type=' + TYPES[type_name]] + list(quoted))


def step(case):
    return {
        'grad': bits(case['Grad']),
        'lr': bits(case['lr_used']),
        'after': {name: bits(tensor) for name, tensor in case['after'].items()},
        'step_counter': int(case['step_counter']),
    }  # yapf: disable


def vectors(cases):
    for case in cases:
        common = {'id': case['id'], 'rtol': case.get('rtol', 0), 'atol': case.get('atol', 0)}
        if case['kind'] == 'singa':
            yield dict(common, options=options(case['class'], case['args']),
                       param=bits(case['init']['Param']), steps=[step(s) for s in case['steps']])
        elif case['kind'] == 'schedule' and case['class'] in ('ExponentialDecay', 'Constant'):
            if 'decay_steps' in case['args']:
                lr = value(case['args'])
            else:
                lr = value(case['args']['init'])
            assert case['steps_at'] == list(range(len(case['steps_at'])))
            yield dict(common, options='{type=sgd,lr="%s"}' % lr, rates=bits(case['values']))


# What set-optimizer cannot be set to is left out: train_optimizers_test says why.
MEGENGINE = {
    'SGD': ('sgd', 0),
    'Adam': ('adam', 1e-8),
    'Adagrad': ('adagrad', 1e-10),
    'AdamW': ('adamw', 1e-8)
}


def megengine_cases(cases):
    for case in cases:
        if case['kind'] != 'megengine_optimizer' or case['class'] not in MEGENGINE:
            continue
        params = dict(case['params'])
        if 'lr_decay' in params:
            continue
        type_name, epsilon = MEGENGINE[case['class']]
        betas = dict(zip(('beta_1', 'beta_2'), params.pop('betas', ())))
        epsilons = {'epsilon': params.pop('eps', epsilon)} if epsilon else {}
        settings = {'type': type_name, **params, **betas, **epsilons}
        lr = {'shape': [1], 'hex': struct.pack('>f', params['lr']).hex()}
        yield {
            'id': case['id'],
            'rtol': case['rtol'],
            'atol': case['atol'],
            'options': '{%s}' % ','.join('%s=%s' % item for item in settings.items()),
            'param': bits(case['init']['Param']),
            'steps': [{'grad': bits(step['Grad']), 'lr': lr,
                       'after': {'Param': bits(step['after']['Param'])}}
                      for step in case['steps']],
        }  # yapf: disable


def accepted(case):
    verdict = case['required'] if 'required' in case else case['expect']
    return verdict is None or verdict['class'] is None


def option_cases(cases):
    for case in cases:
        if case['system'] != 'singa' or case['api'] not in TYPES:
            continue
        text = options(case['api'], case['args'])
        if text is not None:
            yield {'id': case['id'], 'options': text, 'accepted': accepted(case)}


def megengine_option_cases(cases):
    for case in cases:
        if not case['id'].startswith('megengine113/') or case['api'] not in MEGENGINE:
            continue
        args = dict(case['args'])
        args.update(zip(('beta_1', 'beta_2'), args.pop('betas', ())))
        given = ','.join('%s=%s' % (name, value(arg)) for name, arg in args.items())
        text = '{type=%s,%s}' % (MEGENGINE[case['api']][0], given)
        yield {'id': case['id'], 'options': text, 'accepted': accepted(case)}


# Arguments of MindSpore's classes, as attributes of op adamw.
ATTRIBUTES = {'learning_rate': 'lr', 'beta1': 'beta1', 'beta2': 'beta2', 'eps': 'epsilon',
              'weight_decay': 'coeff'}


def mindspore_option_cases(cases):
    for case in cases:
        if case['api'] not in ('LazyAdam', 'AdamOffload', 'AdamWeightDecay'):
            continue
        (name, number), = case['args'].items()
        if name in ATTRIBUTES and isinstance(number, float):
            yield {'id': case['id'], 'attribute': ATTRIBUTES[name], 'value': number,
                   'accepted': accepted(case)}


def lazy_adam_cases(cases):
    for case in cases:
        if case['kind'] != 'sparse_lazy_adam':
            continue
        yield {
            'id': case['id'],
            'params': case['params'],
            'rtol': case['rtol'],
            'atol': case['atol'],
            'init': case['init']['Param']['values'],
            'steps': [{
                'rows': step['Indices'],
                'grad': step['Values']['values'],
                'after': {name: tensor['values'] for name, tensor in step['after'].items()},
            } for step in case['steps']],
        }  # yapf: disable


def write(name, cases):
    with open(name, 'w', encoding='utf-8') as out:
        for case in cases:
            out.write(json.dumps(case) + '\n')


def read(folder, name):
    with open('%s/%s' % (folder, name), encoding='utf-8') as source:
        return json.load(source)['cases']


def main():
    folder = sys.argv[1]
    write('singa.jsonl', vectors(read(folder, 'optimizers.json')))
    write('megengine.jsonl', megengine_cases(read(folder, 'optimizers.json')))
    write('singa_options.jsonl', option_cases(read(folder, 'errors.json')))
    errors = read(folder, 'errors.json')
    write('megengine_options.jsonl', megengine_option_cases(errors))
    write('mindspore_options.jsonl', mindspore_option_cases(errors))
    write('lazy_adam.jsonl', lazy_adam_cases(read(folder, 'optimizers.json')))


if __name__ == '__main__':
    main()
