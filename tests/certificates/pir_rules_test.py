#!/usr/bin/env python3
"""What docs/certificate.md says of programs of Paddle 3 (PIR), by right programs and wrong ones: both checkers say
what is expected. README lists them.

usage: pir_rules_test.py WEFT_CHECK WEFT_CHECK_PY CHECKERS_TEST_PY README
"""

import copy
import importlib.util
import json
import sys
import tempfile


def load(path):
    spec = importlib.util.spec_from_file_location("checkers_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


base = load(sys.argv[3])
RIGHT = ""
NULL = {"#": "NULL"}


def dense(*dims, of="f32"):
    return {"#": "0.t_dtensor", "D": [{"#": "0.t_" + of}, list(dims), "NCHW", [], 0]}


def listed(*types):
    return {"#": "0.t_vec", "D": list(types)}


def typed(value):
    """An attribute's value, by its type in Python; others are given as they are."""
    kinds = {bool: "0.a_bool", int: "0.a_i32", float: "0.a_f64", str: "0.a_str"}
    return value if isinstance(value, dict) else {"#": kinds[type(value)], "D": value}


def op(kind, operands, results, persistable=None, **attrs):
    """Results: numbers to types."""
    flags = [] if persistable is None else [
        {"AT": {"#": "0.a_array", "D": [{"#": "0.a_bool", "D": persistable}]}, "N": "persistable"}]
    return {"#": kind, "A": [{"AT": typed(value), "N": key} for key, value in attrs.items()],
            "I": [{"%": number} for number in operands],
            "O": [{"%": number, "TT": made} for number, made in results.items()], "OA": flags}


def parameter(number, name, kind, trained=1, distributed=0):
    return {"#": "p", "A": [distributed, 1, 1, name], "DA": [], "O": {"%": number, "TT": kind}, "OA": [1, 0, trained],
            "QA": []}


def full(number, value, dtype="float32", of="f32"):
    return op("1.full", [], {number: dense(1, of=of)}, shape={"#": "1.a_intarray", "D": [1]}, value=value,
              dtype={"#": "1.a_dtype", "D": dtype}, place={"#": "1.a_place", "D": [1, 0, ""]})


def integers(number, *values):
    return op("1.full_int_array", [], {number: dense(len(values), of="i64")},
              value={"#": "0.a_array", "D": [{"#": "0.a_i64", "D": value} for value in values]},
              dtype={"#": "1.a_dtype", "D": "int64"}, place={"#": "1.a_place", "D": [1, 0, ""]})


def axis(number, value=0.0):
    return full(number, value, "int32", "i32")


def data(number, name, kind, persistable=None):
    return op("1.data", [], {number: kind}, persistable, name=name)


def sgd(parameter, rate, gradient, number, kind):
    return op("1.sgd_", [parameter, rate, gradient, 0], {number: kind, number + 1: NULL}, multi_precision=False)


W, B, V = dense(4, 4), dense(4), dense(16)
OPS = [
    data(1, "lr", dense(), True), parameter(2, "w", W), parameter(3, "b", B), data(4, "x", dense(-1, 4)),
    op("1.matmul", [4, 2], {5: dense(-1, 4)}),
    op("1.add", [5, 3], {6: dense(-1, 4)}),
    integers(7),
    op("1.mean", [6, 7], {8: dense()}),
    full(9, 1.0),
    op("1.full_like", [8, 9], {10: dense()}),
    op("1.mean_grad", [6, 10, 7], {11: dense(-1, 4)}),
    op("1.add_grad", [5, 3, 11], {12: dense(-1, 4), 13: B}),
    op("1.matmul_grad", [4, 2, 12], {14: NULL, 15: W}),
    sgd(3, 1, 13, 16, B),
    sgd(2, 1, 15, 18, W),
]
SEED, UPDATES = 10, 13  # after the gradient of the loss; before the updates
STARTUP = [
    integers(1, 4, 4), full(2, -1.0), full(3, 1.0), op("1.uniform", [1, 2, 3], {4: W}, True, seed=0),
    op("0.set_parameter", [4], {}, parameter_name="w"),
    op("1.full", [], {5: B}, True, value=0.0), op("0.set_parameter", [5], {}, parameter_name="b"),
    op("1.full", [], {6: dense()}, True, value=0.1), op("0.shadow_output", [6], {}, output_name="lr"),
]


def reads(ops, operands, first=UPDATES):
    """The ops from an index on read other values."""
    changed = copy.deepcopy(ops)
    for one in changed[first:]:
        for operand in one.get("I", []):
            operand["%"] = operands.get(operand["%"], operand["%"])
    return changed


def case(*new, at=UPDATES, use=None, ops=OPS, result=None, first=None, **more):
    """New ops at an index, of which later ones read the results."""
    kept = reads(ops if result is None else result, use or {}, at if first is None else first)
    return dict(more, original=ops, result=kept[:at] + list(new) + kept[at:],
                steps="=%d\n+%d\n=%d\n" % (at, len(new), len(ops) - at))


def reduce(number, of, kind, name="1.all_reduce_", **attrs):
    return op(name, [of], {number: kind}, **{"ring_id": 0, "reduce_type": 4, **attrs})


BIAS = reduce(30, 13, B)
WEIGHT = reduce(31, 15, W)
BOTH = {13: 30, 15: 31}


def reduced(*new, number=31, **more):
    """The gradient of b by a mean, that of w otherwise."""
    return case(BIAS, *new, use={13: 30, 15: number}, **more)


def scaled(factor, *constants, **more):
    """The gradient of the loss / 2, and sums."""
    scale = op("1.scale", [10, factor], {41: dense()}, bias=0.0, bias_after_scale=True, nranks=2)
    sums = [reduce(30, 13, B, reduce_type=0), reduce(31, 15, W, reduce_type=0)]
    kept = reads(reads(OPS, {10: 41}, SEED), BOTH)
    new = [*constants, scale]
    return dict(more, original=OPS, result=kept[:SEED] + new + kept[SEED:UPDATES] + sums + kept[UPDATES:],
                steps="=%d\n+%d\n=%d\n+2\n=2\n" % (SEED, len(new), UPDATES - SEED))


def half(kind="float16", back="float32", of="f16", mean=31, last=dense(4, 4)):
    return [op("1.cast", [15], {40: dense(4, 4, of=of)}, dtype={"#": "1.a_dtype", "D": kind}),
            reduce(41, 40, dense(4, 4, of=of)),
            op("1.cast", [41], {mean: last}, dtype={"#": "1.a_dtype", "D": back})]


def buffer(shape=(16,), flat=V, sizes=(4, 16), parts=(13, 41), at=0.0, taken=(50, 51), total=20, back=(4, 4)):
    """Both gradients in one buffer."""
    kinds = listed(*[dense(size) for size in sizes])
    return [
        integers(40, *shape), op("1.reshape", [15, 40], {41: flat}),
        op("0.combine", parts, {42: listed(*[B if part == 13 else flat for part in parts])}),
        axis(43, at), op("1.concat", [42, 43], {44: dense(total)}), reduce(45, 44, dense(total)),
        integers(46, *sizes), axis(47), op("1.split", [45, 46, 47], {48: kinds}),
        op("0.split", [48], {number: kind for number, kind in zip(taken, kinds["D"])}),
        integers(52, *back), op("1.reshape", [51, 52], {53: W})]


def gathered(parts=(44, 45), of=2, num=2, kind=W):
    """The gradient of w, as those of all ranks, and their sum; that of b as a sum."""
    sums = [reduce(30, 13, B, reduce_type=0)]
    return sums + [
        op("1.all_gather", [15], {40: dense(8, 4)}, ring_id=0, nranks=of), axis(41),
        op("1.split_with_num", [40, 41], {43: listed(W, W)}, num=num),
        op("0.split", [43], {44: W, 45: W}), op("0.combine", parts, {46: listed(*[W] * len(parts))}),
        op("1.add_n", [46], {31: kind})]


def summed(*new, **more):
    return case(*new, use=BOTH, claim=b"ranks: 2\ngradients: sum\n", **more)


def started(*new, sets=(10, 11, 6), moved=True, **more):
    """Broadcasts at the start; then states are set."""
    binders = copy.deepcopy([one for one in STARTUP if not one["O"]])
    for binder, number in zip(binders, sets):
        binder["I"][0]["%"] = number
    kept = [one for one in STARTUP if one["O"]]
    return case(BIAS, WEIGHT, use=BOTH, startup=kept + list(new) + binders if moved else binders + kept + list(new),
                startup_steps="=%d\n+%d\n" % (len(kept), len(new)), **more)


def broadcast(number, of, kind, name="1.broadcast", persistable=True, **attrs):
    return op(name, [of], {number: kind}, persistable, **{"ring_id": 0, "root": 0, **attrs})


def changed(index, function, ops=OPS):
    ops = copy.deepcopy(ops)
    function(ops[index])
    return ops


def both_changed(index, function):
    """The original and the result."""
    return case(BIAS, WEIGHT, use=BOTH, ops=changed(index, function))


MEANS = case(BIAS, WEIGHT, use=BOTH)
STARTS = [broadcast(10, 4, W), broadcast(11, 5, B)]
# An op that reads the gradient of b, before the update does.
CLIPPED = OPS[:UPDATES] + [full(20, 0.5), op("1.multiply", [13, 20], {21: B})] + reads(OPS[UPDATES:], {13: 21}, 0)
# The gradient of b is a sum of two.
TWICE = OPS[:UPDATES] + [op("0.combine", [13, 13], {20: listed(B, B)}), op("1.add_n", [20], {21: B})] + reads(
    OPS[UPDATES:], {13: 21}, 0)


def branching(inner="1.relu", changed=None, kind="1.if", reads=6, state=False, args=()):
    """The original ends with a branch on a state, in which an op runs; perhaps it sets a state."""
    def branch(inner):
        ops = [op(inner, [reads], {61: dense(-1, 4)}), op("2.yield", [61], {})]
        one = op(kind, [1], {62: dense(-1, 4)})
        one["regions"] = [{"#": "region_%d" % i, "blocks": [{"#": "block_0", "args": list(args), "ops": block}]}
                          for i, block in enumerate((ops, [op("2.yield", [5], {})]))]
        return [one] + ([op("1.assign_out_", [62, 3], {63: B})] if state else [])
    return case(BIAS, WEIGHT, use=BOTH, ops=OPS + branch(inner),
                result=OPS + branch(changed or inner))


def also(*ops, **more):
    """The original ends with other ops, too."""
    return case(BIAS, WEIGHT, use=BOTH, ops=OPS + list(ops), **more)


def wide(size):
    """w with many more elements, in one buffer with b."""
    flat = dense(4 * size)
    return case(*buffer((4 * size,), flat, (4, 4 * size), total=4 * size + 4, back=(4, size)), use={13: 50, 15: 53},
                texts={"[4,4]": "[4,%d]" % size})


def unnamed(one):
    """The type of the first result is in a member without a name."""
    one[""] = one["O"].pop(0)["TT"]


def renumbered():
    ops = copy.deepcopy(MEANS["result"])
    for one in ops:
        for value in one.get("I", []) + (one["O"] if isinstance(one["O"], list) else [one["O"]]):
            value["%"] *= 7
    return dict(MEANS, result=ops)


CASES = {
    ("Reduce", "in place"): (MEANS, RIGHT),
    ("Reduce", "out of place"): (reduced(reduce(31, 15, W, "1.all_reduce")), RIGHT),
    ("Reduce", "sums where sums are claimed"): (
        summed(*[reduce(n, of, kind, reduce_type=0) for n, of, kind in ((30, 13, B), (31, 15, W))]), RIGHT),
    ("Reduce", "the update reads what was there before"): (case(BIAS, WEIGHT, use={13: 30}),
                                                           "it reads %15, which a new op has used"),
    ("Reduce", "of one gradient only"): (case(BIAS, use={13: 30}), "the gradient %15 is not reduced"),
    ("Reduce", "twice"): (reduced(WEIGHT, reduce(32, 31, W), number=32), "%15 is reduced twice"),
    ("Reduce", "a sum where means are claimed"): (
        reduced(reduce(31, 15, W, reduce_type=0)), "it reads %15, which does not have the value"),
    ("Reduce", "maximum"): (reduced(reduce(31, 15, W, reduce_type=1)), "attribute reduce_type"),
    ("Reduce", "of no gradient of a parameter"): (case(reduce(30, 11, dense(-1, 4)), use={11: 30}, at=11),
                                                  "%11 is no gradient of a parameter"),
    ("Reduce", "of the other gradient"): (
        case(BIAS, WEIGHT, use=BOTH, result=reads(OPS, {3: 3, 13: 15, 15: 13})), "it reads %31"),
    ("Reduce", "with another type"): (reduced(reduce(31, 15, V)), "its result has another type"),
    ("Reduce", "of a list"): (reduced(op("0.combine", [15], {40: listed(W)}), reduce(31, 40, listed(W))),
                              "%40 is a list"),
    ("Reduce", "after an op has read it"): (case(reduce(30, 13, B), at=15, use={}, ops=CLIPPED),
                                            "an op uses %13 before its reduction"),
    ("Scale", "of the gradient of the loss"): (scaled(40, full(40, 0.5)), RIGHT),
    ("Scale", "by another number"): (scaled(40, full(40, 0.25)), "attribute scale"),
    ("Scale", "by a constant of another type"): (scaled(40, full(40, 0.5, "float64")), "expected a constant"),
    ("Scale", "by what the original computes"): (scaled(9), "is no new constant"),
    ("Cast", "to half precision and back"): (reduced(*half()), RIGHT),
    ("Cast", "not back"): (reduced(*half()[:2], number=41), "it reads %41, and not what the original reads"),
    ("Cast", "to another type than its result has"): (reduced(*half(kind="bfloat16")), "the attributes or parts"),
    ("Cast", "to other dimensions"): (reduced(*half(last=V)), "its result has another type"),
    ("Reshape", "into a buffer and back"): (case(*buffer(), use={13: 50, 15: 53}), RIGHT),
    ("Reshape", "of 2^32 elements"): (wide(1 << 30), RIGHT),
    ("Reshape", "of 2^41 elements"): (wide(1 << 39), "expected known dimensions"),
    ("Reshape", "to another number of elements"): (case(*buffer(shape=(8,), flat=dense(8)), use={13: 50, 15: 53}),
                                                   "it is no reshape"),
    ("Reshape", "by other dimensions"): (case(*buffer(back=(2, 8)), use={13: 50, 15: 53}), "it is no reshape"),
    ("Concat and split", "of both gradients"): (case(*buffer(), use={13: 50, 15: 53}), RIGHT),
    ("Concat and split", "of other sizes"): (case(*buffer(sizes=(16, 4)), use={13: 50, 15: 53}), "it takes apart"),
    ("Concat and split", "of another axis"): (case(*buffer(at=1.0), use={13: 50, 15: 53}), "expected axis 0"),
    ("Concat and split", "a part twice"): (case(*buffer(parts=(13, 13), sizes=(4, 4), total=8), use={13: 50}),
                                           "which a new op has used"),
    ("Concat and split", "of another size"): (case(*buffer(total=24), use={13: 50, 15: 53}), "another type"),
    ("Concat and split", "of what was not reshaped"): (case(*buffer(parts=(13, 15)), use={13: 50, 15: 53}),
                                               "other types"),
    ("Gather", "all parts"): (summed(*gathered()), RIGHT),
    ("Gather", "a part twice"): (summed(*gathered(parts=(44, 44))), "which a new op has used"),
    ("Gather", "into no tensor"): (
        summed(*gathered()[:1], op("1.all_gather", [15], {40: NULL}, ring_id=0, nranks=2), *gathered()[2:]),
        "it gathers another value than a gradient"),
    ("Gather", "one part"): (summed(*gathered(parts=(44,))), "expected a part for each rank"),
    ("Gather", "of another number of ranks"): (summed(*gathered(of=3)), "attribute nranks"),
    ("Gather", "in another number of parts"): (summed(*gathered(num=4)), "attribute num"),
    ("Gather", "a sum of another type"): (summed(*gathered(kind=V)), "it sums other values"),
    ("Broadcast", "at the start"): (started(*STARTS), RIGHT),
    ("Broadcast", "of a parameter"): (
        case(BIAS, WEIGHT, broadcast(32, 2, W, "1.broadcast_"), use={**BOTH, 2: 32}), RIGHT),
    ("Broadcast", "not of all at the start"): (started(STARTS[1], sets=(4, 11, 6)), "w may differ between ranks"),
    ("Broadcast", "of a parameter, out of place"): (
        case(BIAS, WEIGHT, broadcast(32, 2, W), use={**BOTH, 2: 32}), "w is a state, and its result is not"),
    ("Broadcast", "from another rank"): (started(broadcast(10, 4, W, root=1), STARTS[1]), "attribute root"),
    ("Broadcast", "of what goes away"): (started(broadcast(10, 4, W, persistable=False), STARTS[1]),
                                         "w is a state, and its result is not"),
    ("Setting states", "renamed"): (
        started(*STARTS, sets=(11, 10, 6)), "to another value"),
    ("Setting states", "to what was there before"): (started(*STARTS, sets=(4, 11, 6)), "to another value"),
    ("Setting states", "before they are made"): (started(*STARTS, moved=False), "before"),
    ("Setting states", "without a name"): (started(
        *STARTS, original_startup=changed(4, lambda one: one["A"][0]["AT"].update(D=""), STARTUP)),
        "the name of a state"),
    ("Keep", "other numbers of values"): (renumbered(), RIGHT),
    ("Keep", "a list that the original has, too"): (case(reduce(30, 21, B), WEIGHT, ops=TWICE, at=15, use={
        21: 30, 15: 31}), RIGHT),
    ("Keep", "another attribute"): (dict(MEANS, result=changed(-1, lambda one: one["A"][0]["AT"].update(D=True),
                                                               MEANS["result"])), "the op of the original is another"),
    ("Keep", "another operand"): (dict(MEANS, result=changed(4, lambda one: one["I"].reverse(), MEANS["result"])),
                                  "and not what the original reads"),
    ("Keep", "another type of a result"): (
        dict(MEANS, result=changed(4, lambda one: one["O"][0].update(TT=V), MEANS["result"])),
        "the op of the original is another one"),
    ("Keep", "a list instead of a value"): (
        case(BIAS, WEIGHT, op("0.combine", [31], {32: listed(W)}), use={13: 30, 15: 32}), "a list has other elements"),
    ("Keep", "a value that no op makes"): (case(BIAS, WEIGHT, use={13: 30, 15: 99}), "no op before it makes %99"),
    ("Keep", "a value that is made twice"): (case(BIAS, reduce(30, 15, W), use={13: 30, 15: 30}), "%30 is made twice"),
    ("Keep", "an unknown op in place"): (both_changed(4, lambda one: one.update({"#": "1.matmul_"})),
                                         "it is not known what this op does in place"),
    ("Keep", "what shares memory"): (both_changed(4, lambda one: one.update({"#": "1.view_shape"})), "share memory"),
    ("Keep", "what communicates"): (both_changed(4, lambda one: one.update({"#": "1.c_identity"})), "communicate"),
    ("Keep", "a branch"): (branching(), RIGHT),
    ("Keep", "a name for the same memory"): (both_changed(5, lambda one: one.update(
        {"#": "1.share_data_", "I": [{"%": 5}]})), RIGHT),
    ("Keep", "another branch"): (branching(changed="1.tanh"), "the op of the original is another one"),
    ("Keep", "a branch that writes"): (branching("1.scale_"), "an op in a block writes in place"),
    ("Keep", "a branch that draws"): (branching("1.uniform", state=True), "b may differ between ranks"),
    ("Keep", "a branch on what a new op has used"): (branching(reads=13), "it reads %13, which a new op has used"),
    ("Keep", "another op with blocks"): (branching(kind="1.py_layer"), "no certificate for such ops with blocks"),
    ("Keep", "an op of another dialect"): (both_changed(4, lambda one: one.update({"#": "3.mine"})), "no certificate for"),
    ("Keep", "a parameter that ranks share"): (both_changed(2, lambda one: one.update(A=[1, 1, 1, "b"])), "distributed"),
    ("Keep", "types of results in another member"): (
        dict(MEANS, result=changed(12, unnamed, MEANS["result"])), "a member of an op has no name"),
    ("Keep", "a list taken apart into more"): (
        case(reduce(30, 21, B), WEIGHT, at=15, use={21: 30, 15: 31}, ops=TWICE + [
            op("0.split", [20], {60: B, 61: B, 62: listed()})]), "a list has another length"),
    ("Keep", "a list as an argument of a block"): (branching(args=[{"#": -1, "TT": listed()}]),
                                                   "an argument of a block is a list"),
    ("Keep", "another empty list"): (
        case(BIAS, WEIGHT, integers(70), use={**BOTH, 60: 70}, at=14, ops=OPS[:UPDATES] + [
            op("1.relu", [6], {60: listed()})] + OPS[UPDATES:] + [op("1.relu", [60], {61: B})]),
        "it reads an empty list"),
    ("Keep", "no layout in a type"): (also(op("1.relu", [6], {60: {"#": "0.t_dtensor", "D": B["D"][:2]}})), RIGHT),
    ("Keep", "another member in a type"): (
        also(op("1.relu", [6], {60: {"#": "0.t_dtensor", "D": [{"#": "0.t_f32", "x": 1}] + B["D"][1:]}})),
        "an object has another member"),
    ("Keep", "a list of what is no type"): (
        also(op("0.combine", [6], {60: listed(dense(-1, 4))}), op("1.check_finite_and_unscale_", [60, 9], {
            61: listed(7), 62: B})), "expected an object"),
    ("Keep", "a name that is _"): (also(op("1._", [6], {60: B})), "it is not known what this op does in place"),
    ("Keep", "a name that is _grad"): (
        dict(MEANS, texts={"1.%s_grad" % name: "1._grad" for name in ("mean", "add", "matmul")}), RIGHT),
    ("Keep", "a bias beyond fp32"): (also(op("1.scale", [6, 9], {60: B}, bias=-1e39)), RIGHT),
    ("Keep", "a state that is a list"): (also(data(60, "list", listed(B))), "a state is a list"),
    ("Keep", "regions that are no list"): (also(dict(data(60, "more", B), regions=5)), "expected a list"),
    ("Keep", "too many attributes"): (also(op("1.relu", [6], {60: B}, **{"a%d" % i: i for i in range(257)})),
                                      "too many attributes"),
    ("Keep", "an attribute twice"): (also(dict(op("1.relu", [6], {60: B}), A=[{"N": "a", "AT": 1}] * 2)),
                                     "an attribute is there twice"),
    ("Gradients", "sums of gradients"): (case(reduce(30, 21, B), WEIGHT, ops=TWICE, at=15, use={21: 30, 15: 31}), RIGHT),
    ("Gradients", "before they are clipped"): (case(BIAS, WEIGHT, ops=CLIPPED, use=BOTH), RIGHT),
    ("Gradients", "after they are clipped"): (case(reduce(30, 21, B), WEIGHT, ops=CLIPPED, at=15, use={21: 30, 15: 31}),
                                              "%21 is no gradient of a parameter"),
    ("Gradients", "before they are summed"): (case(BIAS, WEIGHT, ops=TWICE, use=BOTH), "%13 is no gradient"),
    ("New ops", "no op"): (case(op("1.relu", [15], {30: W})), "no rule inserts such an op"),
    ("New ops", "another attribute"): (reduced(reduce(31, 15, W, group=1)), "no rule allows attribute group"),
    ("New ops", "another member"): (reduced(dict(WEIGHT, more=1)), "no rule inserts such an op"),
    ("New ops", "a number of two elements that no op reads"): (
        case(BIAS, WEIGHT, changed(0, lambda one: one["A"][0]["AT"].update(D=[2]), [full(40, 1.0)])[0], use=BOTH),
        "expected a constant of one element"),
    ("New ops", "numbers of another type that no op reads"): (
        case(BIAS, WEIGHT, changed(0, lambda one: one["A"][1]["AT"].update(D="int32"), [integers(40, 1)])[0],
             use=BOTH), "expected whole numbers"),
    ("New ops", "on a stream"): (reduced(reduce(31, 15, W, execution_stream="s", scheduling_priority=-1)), RIGHT),
    ("The file", "with blanks"): (dict(MEANS, blanks=True), RIGHT),
    ("The file", "with blanks in the original alone"): (dict(MEANS, blanks="original"), RIGHT),
    ("The file", "the setting of the claim"): (dict(MEANS, setting={"nranks": 2}), RIGHT),
    ("The file", "another setting"): (dict(MEANS, setting={"nranks": 3}), "setting of the result"),
    ("The file", "averages in the setting"): (dict(MEANS, setting={"averaging": {}}), "no rule averages parameters"),
    ("The file", "another version"): (dict(MEANS, version=5), "PIR of versions 1 to 4"),
    ("The file", "long numbers that nobody reads"): (
        dict(also(op("1.relu", [6], {60: B}, any={"#": "0.a_i64", "D": "LONG"})), setting={"nranks": 2, "x": "LONG"},
             texts={'"LONG"': "1" * 5000}), RIGHT),
    ("The file", "two members of a name"): (dict(MEANS, twice=True), "an object has two members"),
    ("The file", "cut off"): (dict(MEANS, cut=True), ""),
    ("The file", "too deep"): (dict(MEANS, deep=True), "too many values inside one another"),
    ("The proof", "startup steps of no programs"): (dict(MEANS, steps=MEANS["steps"] + "startup\n=1\n"),
                                                    "it is for other files"),
    ("The proof", "no startup steps"): (dict(started(*STARTS), startup_word="", startup_steps=""),
                                        "it is for other files"),
    ("The proof", "startup programs that are empty"): (dict(MEANS, no_startup=True), "a startup program is empty"),
    ("The proof", "states that are named otherwise"): (dict(MEANS, own="all\n"), "expected the steps of the main"),
}


def text(ops, has, is_result):
    program = {"regions": [{"#": "region_0", "blocks": [{"#": "block_0", "args": [], "ops": ops}]}]}
    version = has.get("version", 4) if is_result else 4
    file = {"base_code": {"magic": "pir", "trainable": True, "version": version}, "program": program}
    if is_result and "setting" in has:
        file["weft_setting"] = has["setting"]
    has_blanks = has.get("blanks") in (True, "result" if is_result else "original")
    written = json.dumps(file, indent=1) if has_blanks else json.dumps(file, separators=(",", ":"))
    if is_result and has.get("twice"):
        written = written[:-1] + ',"base_code":{}}'
    if is_result and has.get("deep"):
        written = written[:-1] + ',"weft_setting":' + "[" * 70 + "]" * 70 + "}"
    for old, new in has.get("texts", {}).items():
        written = written.replace(old, new)
    return (written[:-9] if is_result and has.get("cut") else written).encode()


def files_of(has):
    proof = "weft-proof 1\n%smain\n%s" % (has.get("own", ""), has["steps"])
    programs = [text(has["original"], has, False), text(has["result"], has, True)]
    if "startup" in has:
        proof += has.get("startup_word", "startup\n") + has["startup_steps"]
        programs += [text(has.get("original_startup", STARTUP), {}, False), text(has["startup"], {}, True)]
    elif "no_startup" in has:
        programs += [b"", b""]
    return [has.get("claim", b"ranks: 2\ngradients: mean\n"), proof.encode(), *programs]


def main(weft_check, script, _, readme):
    checkers = base.Checkers(weft_check, script)
    names = ("claim.txt", "proof.txt", "original", "result", "original_startup", "startup")
    with tempfile.TemporaryDirectory() as tmp:
        for (rule, name), (has, why) in CASES.items():
            contents = files_of(has)
            paths = ["%s/%s" % (tmp, name) for name, _ in zip(names, contents)]
            for path, content in zip(paths, contents):
                base.write(path, content)
            is_right = why is RIGHT and not has.get("cut")
            for verdict in (checkers.in_cpp([tmp] + paths[2:]), checkers.in_python([tmp] + paths[2:])):
                expected = base.CERTIFIED if is_right else why.encode()
                assert expected in verdict and (base.CERTIFIED in verdict) == is_right, (rule, name, verdict)
    rules = {}
    for (rule, name), (has, why) in CASES.items():
        rules.setdefault(rule, ([], []))[why is not RIGHT or bool(has.get("cut"))].append(name)
    rows = ["| %s | %s | %s |\n" % (rule, "; ".join(right), "; ".join(wrong)) for rule, (right, wrong) in rules.items()]
    assert "".join(rows) in base.read(readme).decode(), "expected in README.md:\n" + "".join(rows)
    print("%d programs of %d rules" % (len(CASES), len(rules)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
