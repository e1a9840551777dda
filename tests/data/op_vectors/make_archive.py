#!/usr/bin/env python3
"""Writes op_vectors.tar.xz from a folder of conformance vectors.

    make_archive.py FOLDER op_vectors.tar.xz

FOLDER has ops.json with ops/*.npz, and optimizers.json, of which the cases of kind paddle_op count.
The archive has ops.jsonl and optimizers.jsonl, in the form that BUILD describes.
"""
import ast
import io
import json
import lzma
import struct
import sys
import tarfile
import zipfile

DTYPES = {
    '|b1': 'bool', '|u1': 'uint8', '|i1': 'int8', '<i2': 'int16', '<i4': 'int32', '<i8': 'int64',
    '<f2': 'fp16', '<f4': 'fp32', '<f8': 'fp64',
}  # yapf: disable
DTYPES_BY_NAME = {
    'bool': 'bool', 'int32': 'int32', 'int64': 'int64',
    'float16': 'fp16', 'float32': 'fp32', 'float64': 'fp64',
}  # yapf: disable


def read_npz(path):
    """Arrays by name: (dtype, shape, little-endian bytes)."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            wide = data[6] > 1  # version of the format
            begin = 12 if wide else 10
            length = struct.unpack('<I' if wide else '<H', data[8:begin])[0]
            header = ast.literal_eval(data[begin:begin + length].decode())
            assert not header['fortran_order'], name
            arrays[name[:-len('.npy')]] = (DTYPES[header['descr']], list(header['shape']),
                                           data[begin + length:])
    return arrays


WIDTHS = {'bool': 1, 'uint8': 1, 'int8': 1, 'int16': 2, 'fp16': 2, 'int32': 4, 'fp32': 4}


def tensor(array):
    dtype, shape, data = array
    width = WIDTHS.get(dtype, 8)
    elements = (data[i:i + width][::-1].hex() for i in range(0, len(data), width))
    return {'dtype': dtype, 'shape': shape, 'hex': ''.join(elements)}


def int64s(array):
    return list(struct.unpack('<%dq' % (len(array[2]) // 8), array[2]))


def slots(by_slot, arrays):
    """Tensors for names of arrays; null for an argument that stands for no variable."""

    def read(ref):
        if isinstance(ref, str):
            return tensor(arrays[ref])
        if ref is None:
            return None
        name = ref['selected_rows']
        rows = tensor(arrays[name + '.value'])
        return dict(rows, rows=int64s(arrays[name + '.rows']), height=ref['height'])

    return {slot: [read(ref) for ref in refs] for slot, refs in by_slot.items()}


def vector(case_id, op, attrs, case, arrays):
    result = {
        'id': case_id,
        'op': op,
        'attrs': attrs,
        'inputs': slots(case['inputs'], arrays),
        'outputs': slots(case['outputs'], arrays),
    }
    like = next(t for ts in result['outputs'].values() for t in ts if t)
    for slot, shape in case.get('shape_only', {}).items():
        result['inputs'][slot] = [{'dtype': like['dtype'], 'shape': shape, 'hex': ''}]
    if 'in_place' in case:
        result['in_place'] = case['in_place']
    if 'upstream_defect' in case:
        result['paddle_cpu_quirks'] = slots(case['upstream_defect']['outputs'], arrays)
    return result


# Paddle 2.6.2 fills the parts with consecutive elements, whatever the axis.
WRONG = {'split/03'}


def op_vectors(folder):
    with open(folder + '/ops.json') as file:
        ops = json.load(file)['ops']
    for op in ops:
        arrays = read_npz(folder + '/' + op['file'])
        for case in op['cases']:
            if case['id'] not in WRONG:
                yield vector(case['id'], op['op'], case['attrs'], case, arrays)
            for i, grad in enumerate(case.get('grad', [])):
                attrs = case['attrs'] if grad['attrs'] == 'same' else grad['attrs']
                suffix = '/gradient' + (str(i) if i else '')
                yield vector(case['id'] + suffix, grad['type'], attrs, grad, arrays)


def json_tensor(array):
    if 'rows' in array:
        return dict(json_tensor(array['value']), rows=array['rows'], height=array['height'])
    bits = array.get('hex') or ['%02x' % value for value in array['values']]
    return {'dtype': DTYPES_BY_NAME[array['dtype']], 'shape': array['shape'], 'hex': ''.join(bits)}


def json_tensors(arrays):
    return {name: json_tensor(array) for name, array in arrays.items()}


def optimizer_vectors(folder):
    with open(folder + '/optimizers.json') as file:
        cases = json.load(file)['cases']
    for case in cases:
        if case['kind'] != 'paddle_op':
            continue
        steps = []
        for step in case['steps']:
            inputs = {k: v for k, v in step.items() if k in ('Grad', 'LearningRate')}
            steps.append(dict(json_tensors(inputs), after=json_tensors(step['after'])))
        result = {
            'id': case['id'],
            'op': case['op'],
            'attrs': case['attrs'],
            'in_place': case['in_place'],
            'inputs': json_tensors(case.get('extra_inputs', {})),
            'init': json_tensors(case['init']),
            'steps': steps,
        }
        if 'upstream_defect' in case:
            after = case['upstream_defect']['after_each_step']
            result['paddle_cpu_quirks'] = [json_tensors(states) for states in after]
        yield result


def add(archive, name, cases):
    text = ''.join(json.dumps(case, separators=(',', ':')) + '\n' for case in cases).encode()
    info = tarfile.TarInfo(name)
    info.size = len(text)
    archive.addfile(info, io.BytesIO(text))


def main():
    folder, out = sys.argv[1:]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode='w') as archive:
        add(archive, 'ops.jsonl', op_vectors(folder))
        add(archive, 'optimizers.jsonl', optimizer_vectors(folder))
    with open(out, 'wb') as file:
        file.write(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == '__main__':
    main()
