#!/usr/bin/env python3
"""Every conformance vector is read by a test, or listed here with the reason why not.

    conformance_cases_test.py IDS_TXT FILE...

IDS_TXT has the names of all vectors, each below the name of its file ('# errors'). A FILE is a
source that names vectors, lines of JSON with an id each, or an archive of such lines.
"""
import json
import re
import sys
import tarfile

PYTHON = 'a type of Python: options are text, or JSON'
CLASS = 'an error of a class of Python, of which a program has nothing'
CONTEXT = 'a context of MindSpore: a program has none'

# Patterns of names, and why no test reads the vectors.
LEFT_OUT = [
    (r'megengine/adadelta/default', 'set-optimizer has no Adadelta; vectors of Paddle have its op'),
    (r'megengine/adagrad/decay', 'lr / (1 + k d) is no exponential decay of set-optimizer'),
    (r'split/03', 'Paddle 2.6.2 gives a result of its own here: make_archive.py names it as wrong'),
    (r"mindspore/reducer/degree='2'", PYTHON),
    (r'mindspore/(reducer|pipeline_reducer)/(GRAPH|PYNATIVE)_.*', CONTEXT),
    (r'mindspore/context/.*', CONTEXT),
    (r'mindspore/comm_fusion/(68|7[09]|8\d)', CONTEXT),
    (r'mindspore/embedding_lookup/(vocab_cache_size|slice_mode|max_norm)=.*',
     'options of tables that are split over ranks, cached or clipped: no pass has them'),
    (r'mindspore/(lazyadam|adamoffload|adamweightdecay)/(beta1=1|learning_rate=0.1)', PYTHON),
    (r'mindspore/lazyadam/(use_nesterov|use_locking|loss_scale)=.*', PYTHON),
    (r'mindspore/optimizer/empty|megengine/(empty|not_iterable|not_parameter|frozen|missing_lr)',
     CLASS),
    (r'megengine/(record_twice|method_none)', CLASS + '; modes_test has the missing method'),
    (r'megengine113/allreduce_callback/.*', CLASS),
    (r'megengine113/adadelta/.*', 'set-optimizer has no Adadelta'),
    (r'singa/(sgd|rmsprop|adagrad|adam)/(lr|momentum|rho|beta_1)=0\.[19]', PYTHON),
    (r'singa/(schedule/abstract|apply/shape|sparse/corr_switched_on)', CLASS),
]


def read_ids(path):
    ids = {}
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            line = line.rstrip('\n')
            if line.startswith('# '):
                ids[line[2:]] = of_file = []
            else:
                of_file.append(line)
    return ids


def ids_of_lines(text):
    return {json.loads(line).get('id') for line in text.splitlines()}


def named_in(path):
    if path.endswith('.tar.xz'):
        with tarfile.open(path) as archive:
            members = [archive.extractfile(member) for member in archive.getmembers()]
            return set().union(*(ids_of_lines(m.read().decode()) for m in members if m))
    with open(path, encoding='utf-8') as source:
        text = source.read()
    if path.endswith('.jsonl'):
        return ids_of_lines(text)
    return set(re.findall(r'"([^"\n]+)"', text))


def main():
    named = set().union(*(named_in(path) for path in sys.argv[2:]))
    # One vector of gradients that travel in half precision is several cases, one a bucket.
    named |= {'/'.join(name.split('/')[:2]) for name in named if name and name.startswith('half/')}
    used, errors = set(), []
    for of_file, ids in read_ids(sys.argv[1]).items():
        for name in ids:
            reasons = [pattern for pattern, _ in LEFT_OUT if re.fullmatch(pattern, name)]
            if name in named and not reasons:
                continue
            used.update(reasons[:1])
            if not reasons:
                errors.append('%s: %s: no test reads it, and no reason is given' % (of_file, name))
    errors += ['no vector is left out for %s' % p for p, _ in LEFT_OUT if p not in used]
    print('\n'.join(errors))
    return 1 if errors else 0


if __name__ == '__main__':
    sys.exit(main())
