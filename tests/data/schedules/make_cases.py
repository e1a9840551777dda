#!/usr/bin/env python3
"""Writes the files *.jsonl from a folder of conformance vectors.

    make_cases.py FOLDER    # with schedules.json

BUILD describes the files.
"""
import json
import sys


def bits(tensors):
    """Of nested lists of tensors."""
    if isinstance(tensors, list):
        return [bits(tensor) for tensor in tensors]
    assert tensors['dtype'] == 'float32'
    return ''.join(tensors['hex'])


def partial_update(case):
    params = case['params']
    assert params['optimizer']['class'] == 'SGD'
    return {
        'id': case['id'],
        'ranks': params['world'],
        'sizes': params['sizes'],
        'threshold': params['threshold'],
        'lr': params['optimizer']['lr'],
        'momentum': params['optimizer']['momentum'],
        'partitions': case['partitions'],
        'begin': [bits(case['init'])] * params['world'],
        'grads': bits(case['grads']),
        'after': bits(case['params_after_step']),
    }


def local_sgd(case):
    params = case['params']
    return {
        'id': case['id'],
        'ranks': params['world'],
        'sizes': case['init']['shape'],
        'k_steps': params['k_steps'],
        'begin_step': params['begin_step'],
        'lr': params['lr'],
        'averages': [step['sync'] for step in case['steps']],
        'begin': [[bits(case['init'])]] * params['world'],
        'grads': [[[bits(grad)] for grad in step] for step in case['grads']],
        'after': [[[bits(param)] for param in step['params']] for step in case['steps']],
    }  # yapf: disable


def megengine(case):
    params = case['params']
    return {
        'id': case['id'],
        'ranks': params['world'],
        'sizes': params['sizes'],
        'period': params['bcast_period'],
        'reduce_method': params['reduce_method'],
        'lr': params['lr'],
        'drift': params['drift_per_step_and_rank'],
        'broadcasts_at_construction': len(case['events_at_construction']),
        'begin': bits(case['params_after_construction']),
        'grads': micro_batches(bits(case['grads'])),
        'after': bits(case['params_after_step']),
    }


def micro_batches(grads):
    """By micro-batch, all those of a step one after the other, then rank and parameter."""
    return [[rank[micro] for rank in step] for step in grads for micro in range(len(step[0]))]


def packed(case):
    return {
        **megengine(case),
        'threshold_bytes': case['params']['param_pack_thd'],
        'elements_of_all_reduces': [[event['elements'] for event in step]
                                    for step in case['events_per_step']],
    }


def accumulated(case):
    return {
        **megengine(case),
        'micro_batches': case['params']['micro_batches'],
        'elements_of_all_reduces': [[event['elements'] for event in step]
                                    for step in case['events_per_step']],
    }


def server_rows(case):
    params = case['params']
    assert params['optimizer'] == 'lazy_adam'
    return {
        'id': case['id'],
        'params': params,
        'rtol': case['rtol'],
        'begin': case['init']['values'],
        'steps': [{
            'push': [{'rows': push['rows'], 'values': push['values']['values']}
                     for push in step['push']],
            'after': step['table']['values'],
        } for step in case['steps']],
    }  # yapf: disable


def server_dense(case):
    return {
        'id': case['id'],
        'params': case['params'],
        'rtol': case['rtol'],
        'begin': case['init']['values'],
        'steps': [{
            'push': [push['grad']['values'] for push in step['push']],
            'after': step['pull']['values'],
        } for step in case['steps']],
    }  # yapf: disable


def write(name, cases):
    with open(name, 'w') as out:
        for case in cases:
            out.write(json.dumps(case) + '\n')


def main():
    with open(sys.argv[1] + '/schedules.json') as file:
        cases = json.load(file)['cases']
    write('partial_update.jsonl',
          [partial_update(case) for case in cases if case['kind'] == 'partial_update'])
    write('local_sgd.jsonl', [local_sgd(case) for case in cases if case['kind'] == 'local_sgd'])
    write('bcast_period.jsonl',
          [megengine(case) for case in cases if case['id'].startswith('megengine/period_')])
    write('packed.jsonl',
          [packed(case) for case in cases if case['id'].startswith('megengine/packed')])
    write('micro_batches.jsonl',
          [accumulated(case) for case in cases if case['id'] == 'megengine/micro_batches'])
    write('server_rows.jsonl',
          [server_rows(case) for case in cases if case['kind'] == 'parameter_server_sparse'])
    write('server_dense.jsonl',
          [server_dense(case) for case in cases if case['kind'] == 'parameter_server_dense'])


main()
