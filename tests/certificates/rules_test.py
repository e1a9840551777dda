#!/usr/bin/env python3
"""Each rule of docs/certificate.md, by right programs and wrong ones: both checkers say what is expected. README
lists them.

usage: rules_test.py WEFT_CHECK WEFT_CHECK_PY CHECKERS_TEST_PY README
"""

import importlib.util
import struct
import sys
import tempfile


def load(path):
    spec = importlib.util.spec_from_file_location("checkers_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


base = load(sys.argv[3])
field = base.field

class BlockNumber(int):
    pass


class VarName(str):
    pass


# Types of attributes by type of their value: number, and how the value is written.
KINDS = {
    bool: (6, lambda v: field(10, int(v))),
    int: (0, lambda v: field(3, v)),
    float: (1, lambda v: b"\x25" + struct.pack("<f", v)),
    str: (2, lambda v: field(5, v.encode())),
    list: (5, lambda v: b"".join(field(8, s.encode()) for s in v)),
    tuple: (3, lambda v: b"".join(field(6, i) for i in v)),
    BlockNumber: (8, lambda v: field(12, v)),
    VarName: (13, lambda v: field(16, v.encode())),
}


def op(kind, inputs, outputs, **attrs):
    """Slots: "X=a,b Y=c"."""
    def slots(number, text):
        of = {slot: names.split(",") for slot, names in (word.split("=") for word in text.split())}
        return b"".join(field(number, field(1, slot.encode()) + b"".join(field(2, n.encode()) for n in names))
                        for slot, names in of.items())
    written = b"".join(field(4, field(1, name.encode()) + field(2, KINDS[type(v)][0]) + KINDS[type(v)][1](v))
                       for name, v in attrs.items())
    return field(4, slots(1, inputs) + slots(2, outputs) + field(3, kind.encode()) + written)


def in_place(kind, name, **attrs):
    return op(kind, "X=" + name, "Out=" + name, **attrs)


def decl(name, *dims, dtype=5, kind=7, persistable=False):
    tensor = field(1, dtype) + b"".join(field(2, dim) for dim in dims)
    described = field(1, kind) + (field(3, field(1, tensor)) if kind == 7 else b"")
    return field(3, field(1, name.encode()) + field(2, described) + (field(3, 1) if persistable else b""))


def program(decls, ops, *others, inner=(), more_blocks=()):
    blocks = [list(decls) + list(ops)] + ([list(inner)] if inner else []) + list(more_blocks)
    return b"".join([field(1, field(1, i) + b"".join(block)) for i, block in enumerate(blocks)] + list(others))


STATES = [decl("w", 4, 4, persistable=True), decl("lr", 1, persistable=True)]
DECLS = STATES + [decl("x", 4), decl("h", 4), decl("loss", 1), decl("loss@GRAD", 1), decl("h@GRAD", 4),
                  decl("w@GRAD", 4, 4)]
MORE = [decl("half", 4, 4, dtype=4), decl("other", 2, 2, dtype=4), decl("buffer", 64), decl("all", 8, 4),
        decl("p", 4, 4), decl("q", 4, 4)]
PAIR = {"op_role": 1, "op_role_var": ["w", "w@GRAD"]}
OPS = [
    op("mul", "X=x Y=w", "Out=h"),
    op("mean", "X=h", "Out=loss"),
    op("fill_constant", "", "Out=loss@GRAD", op_role=1),
    op("mean_grad", "Out@GRAD=loss@GRAD X=h", "X@GRAD=h@GRAD", op_role=1),
    op("mul_grad", "Out@GRAD=h@GRAD X=x Y=w", "Y@GRAD=w@GRAD", **PAIR),
    op("sgd", "Param=w Grad=w@GRAD LearningRate=lr", "ParamOut=w", op_role=2),
]
MEAN = in_place("c_allreduce_avg", "w@GRAD", use_calc_stream=True)
SUM = in_place("c_allreduce_sum", "w@GRAD", use_calc_stream=True)
ON_RING = in_place("c_allreduce_avg", "w@GRAD")
HALF = in_place("scale", "w@GRAD", scale=0.5)
DIVIDED = in_place("scale", "loss@GRAD", scale=0.5)
AFTER = in_place("c_wait_compute", "w@GRAD")
JOIN = in_place("c_wait_comm", "w@GRAD")
FILLS = [op("gaussian_random", "", "Out=w"), op("fill_constant", "", "Out=lr")]
BROADCASTS = [in_place("c_broadcast", "w", use_calc_stream=True), in_place("c_broadcast", "lr", use_calc_stream=True)]


def reduced(*new, **more):
    """New ops between the gradient and the update."""
    return dict(more, new={5: list(new)})


def started(*new, main=MEAN, **more):
    """New ops after what the startup program of the original does."""
    return dict(reduced(main), startup=list(new), **more)


def all_reduce(reduce_type):
    return in_place("all_reduce", "w@GRAD", reduce_type=reduce_type, use_calc_stream=True)


def ids(endpoints=("a:1", "b:1"), rank=0, joins=1):
    return ([op("c_gen_nccl_id", "", "Out=id", rank=0, endpoint=endpoints[0], other_endpoints=list(endpoints[1:]))]
            + [op("c_comm_init", "X=id", "", nranks=2, rank=rank, ring_id=i) for i in range(joins)])


def coalesced(parts="w@GRAD", buffer="buffer", outputs=None, **attrs):
    attrs = {"dtype": 5, "align_size": 256, "use_align": True, "copy_data": False, **attrs}
    fused = op("coalesce_tensor", "Input=" + parts, "Output=%s FusedOutput=%s" % (outputs or parts, buffer), **attrs)
    return {"new": {4: [fused], 5: [in_place("c_allreduce_avg", "buffer", use_calc_stream=True)]}}


def gathered(parts="p,q", nranks=2):
    return reduced(op("c_allgather", "X=w@GRAD", "Out=all", nranks=nranks, use_calc_stream=True),
                   op("split", "X=all", "Out=p,q", axis=0, num=2), op("sum", "X=" + parts, "Out=w@GRAD"), HALF)


def cast(source, target, before, after):
    return op("cast", "X=" + source, "Out=" + target, in_dtype=before, out_dtype=after)


def branch(*block):
    """An op that may run a block, while the loss's gradient is divided."""
    run = op("conditional_block", "Cond=lr", "Out=loss", sub_block=BlockNumber(1))
    return {"original": OPS[:3] + [run] + OPS[3:], "new": {3: [DIVIDED], 6: [SUM]}, "inner": block}


def with_decl(name, *dims, **more):
    """Declarations of which one is another."""
    return [decl(name, *dims, **more) if old == decl(name, *dims) else old for old in DECLS]


def with_op(index, new):
    return OPS[:index] + [new] + OPS[index + 1:]


def late(kind, inputs, outputs, **attrs):
    """An op of averaging."""
    return op(kind, inputs, outputs, **{"op_role": 2, **attrs})


def whole(name, number, text=None):
    return late("fill_constant", "", "Out=" + name, dtype=3, shape=(1,), value=float(number),
                str_value=str(number) if text is None else text)


def filled(name, value=0.0):
    return op("fill_constant", "", "Out=" + name, dtype=5, shape=(4, 4), value=value)


X, V, G, E = ("w_outer_" + name for name in ("param", "velocity", "gradient", "error"))
COUNT = late("increment", "X=step", "Out=step", step=1.0)
AVERAGE = late("c_allreduce_avg", "X=w", "Out=w", use_calc_stream=True)
NEW_STATES = [decl("step", 1, dtype=3, persistable=True)]
OUTER_STATES = [decl(name, 4, 4, persistable=True) for name in (X, V)]
TEMPORARY = [decl(name, 1, dtype=dtype) for name, dtype in
             (("k", 3), ("r", 3), ("z", 3), ("z1", 3), ("due", 0), ("due1", 0))] + [decl("scope", kind=11)]


def due(step=0, name="", period=4):
    """Whether the number of the step is due, after COUNT."""
    return [whole("k", period), late("elementwise_mod", "X=step Y=k", "Out=r"), whole("z" + name, step),
            late("equal", "X=r Y=z" + name, "Out=due" + name)]


def run(block=1, states="w", name="", reads=None):
    return late("conditional_block", "Cond=due%s Input=%s" % (name, reads or states), "Out=%s Scope=scope" % states,
                sub_block=BlockNumber(block), is_scalar_condition=True)


def averaged(*ops, blocks=(), keys='"period":1,"first_step":1', hints="own w\n", states=(), **more):
    """New ops at the end of the step, and new blocks."""
    setting = field(1001, ('{"nranks":2,"averaging":%s}' % ("{%s}" % keys if ":" in keys else '"in_turn"')).encode())
    return {"new": {6: list(ops)}, "claim": b"ranks: 2\ngradients: own\n", "others": [setting], "hints": hints,
            "more": NEW_STATES * any(name in str(ops) for name in ("step",)) + list(states) + TEMPORARY,
            "more_blocks": blocks, **more}


def in_some_steps(*block, condition=None, keys='"period":4,"first_step":1', changes="w", **more):
    return averaged(COUNT, *(condition or due()), run(states=changes), blocks=[block], keys=keys, **more)


def combine(kind, x, y, out):
    return late("elementwise_" + kind, "X=%s Y=%s" % (x, y), "Out=" + out)


def scaled(name, factor, **attrs):
    return late("scale", "X=" + name, "Out=" + name, scale=factor, **attrs)


NESTEROV = '"period":4,"first_step":1,"outer":"nesterov{lr=0.7,momentum=0.9}"'


def by_nesterov(*exchange, lr=0.7, new=None, **more):
    block = [combine("sub", X, "w", "w"), *(exchange or (AVERAGE,)), combine("add", V, "w", V), scaled(V, 0.9),
             combine("add", "w", V, "w"), scaled("w", lr), combine("sub", X, "w", X), late("assign", "X=" + X, "Out=w")]
    begins = [op("assign", "X=w", "Out=" + X), filled(V), op("fill_constant", "", "Out=step", dtype=3, shape=(1,),
                                                             value=0.0, str_value="0")]
    return in_some_steps(*block, changes="w,%s,%s" % (X, V),
                         **{"keys": NESTEROV, "hints": "own w\n", "states": OUTER_STATES,
                            "startup": BROADCASTS + (new or begins), **more})


def delayed(*waits, **more):
    """Outer gradients that travel for a step."""
    states = "w,%s,%s" % (X, G)
    wait, after = (late(kind, "X=" + G, "Out=" + G) for kind in ("c_wait_comm", "c_wait_compute"))
    send = [combine("sub", X, "w", G), scaled(G, 0.5, nranks=2), after, late("c_allreduce_sum", "X=" + G, "Out=" + G)]
    use = [combine("sub", X, G, X), late("assign", "X=" + X, "Out=w")]
    waits = waits or (wait, wait)
    return averaged(COUNT, *due(), run(states=states), *due(3, name="1"), run(2, states, name="1"),
                    **{"blocks": [[waits[0]] + use, [waits[1]] + send],
                       "keys": '"period":4,"first_step":1,"outer":"sgd{lr=1}","delay":1',
                       "states": [decl(name, 4, 4, persistable=True) for name in (X, G)],
                       "hints": "late 0 %s\nown w\n" % G, **more})


# Shares: of parameters w and b, states m and n are shares, too; of numbers p and q, one is kept.
SHARED = {"w": (4, 4), "b": (4,), "m": (4, 4), "n": (4,), "p": (1,), "q": (1,)}
SHARED_DECLS = DECLS[2:] + [decl("b@GRAD", 4)] + [decl(name, 1) for name in ("nw", "nb", "total", "root")]
SHARED_SETTING = ('{"nranks":2,"shares":{"ms":[["m",[4,4]],["n",[4]]],"ws":[["w",[4,4]],["b",[4]]]},'
                  '"common":{"p":["p","q"]}}')
PADDED_SETTING = SHARED_SETTING.replace("[4]]]", '[4]],["",[2]]]')


def adam(w="w", g="w@GRAD", m="m", p="p", out=None, beta=0.9):
    return op("adam", "Param=%s Grad=%s Moment1=%s Beta1Pow=%s LearningRate=lr" % (w, g, m, p),
              "ParamOut=%s Moment1Out=%s Beta1PowOut=%s" % (out or w, m, p), beta1=beta, op_role=2)


def gradient(name, read):
    return op("mul_grad", "Out@GRAD=h@GRAD X=x Y=" + read, "Y@GRAD=%s@GRAD" % name, op_role=1,
              op_role_var=[name, name + "@GRAD"])


def packed(parts, buffer, **attrs):
    return op("coalesce_tensor", "Input=" + parts, "Output=%s FusedOutput=%s" % (parts, buffer),
              **{"dtype": 5, "align_size": 4, "use_align": True, "copy_data": False, **attrs})


def gathering(parts="w,b", buffer="wf", role=0, **attrs):
    return [packed(parts, buffer, op_role=role, **attrs),
            op("c_allgather", "X=ws", "Out=" + buffer, nranks=2, use_calc_stream=True, op_role=role)]


def zeros(name, *dims, value=0.0):
    return op("fill_constant", "", "Out=" + name, dtype=5, shape=dims, value=value)


def sliced(source="ranks", start=0, size=10):
    return op("slice", "Input=" + source, "Out=ws", axes=(0,), starts=(start,), ends=(start + size,))


SHARED_OPS = OPS[:4] + [gradient("w", "w"), gradient("b", "b"), adam(), adam("b", "b@GRAD", "n", "q")]
PACK = packed("w@GRAD,b@GRAD", "gf")
SCATTER = op("c_reducescatter", "X=gf", "Out=gs", nranks=2, use_calc_stream=True)
HALF_SHARE = in_place("scale", "gs", scale=0.5)
UPDATE = adam("ws", "gs", "ms", "p")
SHARED_FILLS = [op("gaussian_random", "", "Out=w"), op("gaussian_random", "", "Out=b"), zeros("lr", 1, value=0.1),
                zeros("p", 1, value=0.5), zeros("m", 4, 4), zeros("n", 4), zeros("q", 1, value=0.5)]
SENT = [packed("w,b", "sf", copy_data=True), op("alltoall", "X=sf", "Out=ranks", use_calc_stream=True)]


def shared(gather=tuple(gathering()), pack=(DIVIDED, PACK), scatter=(SCATTER,), update=(UPDATE,), start=None, left=(6, 7),
           ops=SHARED_OPS, changed=None, fills=SHARED_FILLS, undeclared="mnq", no_states="wb", padding=0, setting=None, hints="",
           states=None, more=(), after=(), middle=(), middle_at=9, places=None, decls=(), ranks=2, reduction="mean",
           start_states=None):
    """Each rank has half of w and b, and of m and n, and updates them. `left`: the ops that the result has not.
    `middle`: new ops before op `middle_at`; `places`: all new ops. `after`: what the startup programs do at last."""
    size = (20 + padding) // ranks
    new = ([decl(name, 20 + padding) for name in ("wf", "af", "gf", "sf", "ranks")] + [decl("gs", size), decl("wa", 4, 4)]
           + [decl("ba", 4), decl("ns", 1), *more] + (states or [decl("ws", size, persistable=True), decl("ms", size, persistable=True)]))
    whole_states = [decl("lr", 1, persistable=True)] + [decl(n, *dims, persistable=True) for n, dims in SHARED.items()]
    parts = new + whole_states[:1] + [decl(n, *dims, persistable=n not in no_states) for n, dims in SHARED.items()
                                      if n not in undeclared]
    starts = (parts if start_states is None else
              [decl for decl in parts if decl not in new[-2:]] + start_states)
    places = places or {0: gather, 3: pack, 6: scatter, middle_at: middle, len(ops): update}
    main, proof = [], ["weft-proof 1", hints + "main"]
    for i in range(len(ops) + 1):
        main += places.get(i, ())
        proof.append("+%d" % len(places.get(i, ())))
        if i < len(ops):
            main += [] if i in left else [(changed or {}).get(i, ops[i])]
            proof.append("-1" if i in left else "=1")
    start = [*SENT, sliced(), zeros("ms", 10)] if start is None else start
    proof += ["startup", "=4", "-%d" % (len(fills) - 4), "+%d" % len(start), "=%d" % len(after), ""]
    claim, decls = "ranks: %d\ngradients: %s\n" % (ranks, reduction), SHARED_DECLS + list(decls)
    return {"files": [claim.encode(), "\n".join(proof).encode(), program(decls + whole_states, ops),
                      program(decls + parts, main, field(1001, (setting or SHARED_SETTING).encode())),
                      program(whole_states, fills + list(after)), program(starts, fills[:4] + list(start) + list(after))]}


def padded(*fills, **others):
    """With two elements more, which the op fills with 0."""
    pads = [decl("pad" + name, 2) for name in "wgs"] + others.pop("more", [])
    return shared(gather=gathering("w,b,padw"), pack=(DIVIDED, packed("w@GRAD,b@GRAD,padg", "gf"), *fills), padding=2,
                  setting=PADDED_SETTING, more=pads, start=[zeros("pads", 2), packed("w,b,pads", "sf", copy_data=True),
                                                            SENT[1], sliced(size=11), zeros("ms", 11)], **others)


def norm(g, to):
    return op("squared_l2_norm", "X=" + g, "Out=" + to, op_role=2)


def added(*names, to="total"):
    return op("sum", "X=" + ",".join(names), "Out=" + to, op_role=2)


def by_root(g):
    return op("elementwise_mul", "X=%s Y=root" % g, "Out=" + g, op_role=2)


NORMS = [norm("w@GRAD", "nw"), norm("b@GRAD", "nb"), added("nw", "nb"), op("sqrt", "X=total", "Out=root", op_role=2)]
NORM_OPS = SHARED_OPS[:6] + NORMS + [by_root("w@GRAD"), by_root("b@GRAD")] + SHARED_OPS[6:]
ADD_UP = in_place("c_allreduce_sum", "total", use_calc_stream=True, op_role=2)


NORMED = {"ops": NORM_OPS, "left": (6, 7, 8, 10, 11, 12, 13), "update": (by_root("gs"), UPDATE),
          "middle": (norm("gs", "ns"), added("ns"), ADD_UP)}
LAMB = "Param=%s Grad=%s Moment1=%s Beta1Pow=p LearningRate=lr", "ParamOut=%s Moment1Out=%s Beta1PowOut=p"


def lamb(w, g, m):
    return op("lamb", LAMB[0] % (w, g, m), LAMB[1] % (w, m), op_role=2)


def owned():
    """Rank 0 owns w, rank 1 nothing; both have b."""
    pads = [decl("pad" + name, 16) for name in "wgs"]
    return shared(ops=OPS[:4] + [gradient("w", "w"), op("relu", "X=x", "Out=h"), lamb("w", "w@GRAD", "m")], left=(6,),
                  update=(lamb("ws", "gs", "ms"),), gather=gathering("w,padw"), undeclared="m", no_states="w", padding=12,
                  pack=(DIVIDED, packed("w@GRAD,padg", "gf"), zeros("padg", 16)), more=pads, fills=SHARED_FILLS[:5],
                  setting='{"nranks":2,"shares":{"ms":[["m",[4,4]],["",[16]]],"ws":[["w",[4,4]],["",[16]]]}}',
                  start=[in_place("c_broadcast", "b", use_calc_stream=True), zeros("pads", 16),
                         packed("w,pads", "sf", copy_data=True), SENT[1], sliced(size=16), zeros("ms", 16)])


SIGNS = [op("sign", "X=" + g, "Out=" + g, op_role=2) for g in ("w@GRAD", "b@GRAD", "gs")]


def clipped(*middle, **more):
    """Gradients that are multiplied by a function of their norm."""
    return shared(**{**NORMED, "middle": middle, **more})


def decay(w, m):
    """Of weights, into a state, which has nothing to do with decay."""
    return op("scale", "X=" + w, "Out=" + m, scale=0.1, op_role=2)


def steps(original, new):
    found = []
    for i in range(len(original) + 1):
        found += ["+%d" % len(new[i])] if new.get(i) else []
        found += ["=1"] if i < len(original) else []
    return "\n".join(found) + "\n"


def with_new(original, new):
    return [op for i in range(len(original) + 1) for op in new.get(i, []) + original[i:i + 1]]


def files_of(case):
    """claim.txt, proof.txt, and the programs."""
    if "files" in case:
        return case["files"]
    original, new, inner = case.get("original", OPS), case["new"], case.get("inner", ())
    changed = [case.get("changed", {}).get(i, op) for i, op in enumerate(original)]
    claim = case.get("claim", b"ranks: 2\ngradients: mean\n")
    proof = "weft-proof 1\n%smain\n" % case.get("hints", "") + steps(original, new)
    result, decls = with_new(changed, new), case.get("decls", DECLS)
    programs = [program(decls, original, inner=inner),
                program(decls + MORE + case.get("more", []), result, *case.get("others", ()), inner=inner,
                       more_blocks=case.get("more_blocks", ()))]
    if "startup" in case:
        fills = FILLS + case.get("fills", [])
        new = {case.get("before", len(fills)): case["startup"]}
        proof += "startup\n" + steps(fills, new)
        new_states = [decl for decl in case.get("more", []) if decl in NEW_STATES + OUTER_STATES]
        programs += [program(STATES, fills),
                     program(STATES + new_states + [decl("id", kind=17)], with_new(fills, new))]
    return [claim, proof.encode()] + programs


def powers(w, g, m, power, to=None, **attrs):
    return op("adam", "Param=%s Grad=%s Moment1=%s Beta1Pow=%s LearningRate=lr" % (w, g, m, power),
              "ParamOut=%s Moment1Out=%s" % (w, m) + (" Beta1PowOut=" + to if to else ""), op_role=2, **attrs)


def times(x, number):
    return op("scale", "X=%s ScaleTensor=%s" % (x, number), "Out=" + x, op_role=2)


POWERS = {"decls": [decl("g2", 1), decl("q2", 1)], "scatter": (SCATTER,)}


def numbers_of_gradients():
    """A number that is a gradient, too, as an op says, is summed after an update made it."""
    also = op("mul_grad", "Out@GRAD=h@GRAD X=x Y=w", "X@GRAD=h", op_role=1, op_role_var=["lr", "g2"])
    return shared(ops=SHARED_OPS[:6] + [also, powers("w", "w@GRAD", "m", "p", "g2"), powers("b", "b@GRAD", "n", "q", "q2"),
                                        times("w", "q2"), times("b", "q2")],
                  left=(7, 8, 9, 10), pack=(PACK,), update=(times("ws", "g2"),), reduction="sum", **POWERS,
                  middle=(powers("ws", "gs", "ms", "p", "g2"),
                          in_place("c_allreduce_sum", "g2", use_calc_stream=True, op_role=1)))


def numbers_not_written():
    """Numbers that differ are in slots that this op does not write."""
    fill = [op("fill_constant", "", "Out=" + name, value=value, dtype=5, op_role=2) for name, value in (("g2", .5), ("q2", .25))]
    update = [powers(w, g, m, p, to, use_global_beta_pow=True) for w, g, m, p, to in
              (("w", "w@GRAD", "m", "p", "g2"), ("b", "b@GRAD", "n", "q", "q2"), ("ws", "gs", "ms", "p", "g2"))]
    return shared(ops=SHARED_OPS[:6] + fill + update[:2] + [times("w", "g2"), times("b", "q2")], left=(8, 9, 10, 11),
                  middle_at=10, middle=update[2:], update=(times("ws", "g2"),), **POWERS)


def printed():
    """Before Paddle 2, what print gives shares memory with what it prints, which is another variable here."""
    made = [op("scale", "X=" + x, "Out=" + to, scale=0.1, op_role=0) for x, to in (("w", "t"), ("b", "tb"), ("ws", "ts"))]
    gather = [made[2], packed("ta,tba", "tf", op_role=0),
              op("c_allgather", "X=ts", "Out=tf", nranks=2, use_calc_stream=True, op_role=0)]
    return shared(ops=made[:2] + [op("print", "In=t", "Out=t"), op("relu", "X=t", "Out=h")] + SHARED_OPS,
                  left=(0, 1, 10, 11), changed={2: op("print", "In=ta", "Out=t")}, decls=[decl("t", 4, 4), decl("tb", 4)],
                  places={2: gather, 3: [op("fill_constant", "", "Out=ta", dtype=5, shape=(4, 4), value=0.0, op_role=1)],
                          4: gathering(), 7: [DIVIDED, PACK], 10: [SCATTER], 12: [UPDATE]},
                  more=[decl("tf", 20), decl("ts", 10), decl("ta", 4, 4), decl("tba", 4)])


def of_one_rank():
    """What it gathers is as large as what it has."""
    gather = [packed("w,b", "wf", op_role=0), op("c_allgather", "X=ws", "Out=wf", nranks=1, use_calc_stream=True, op_role=0)]
    scatter = op("c_reducescatter", "X=gf", "Out=gs", nranks=1, use_calc_stream=True)
    over = op("c_allgather", "X=lr", "Out=ns", nranks=1, use_calc_stream=True, op_role=1)
    return clipped(norm("gs", "ns"), over, added("ns"), ADD_UP, ranks=1, gather=gather, pack=(PACK,),
                   scatter=(scatter, in_place("scale", "gs", scale=1.0)), setting=SHARED_SETTING.replace(":2", ":1"),
                   states=[decl(name, 20, persistable=True) for name in ("ws", "ms")],
                   start=[*SENT, sliced(size=20), zeros("ms", 20)])


def check_finite(x, to=None, scale="ls"):
    return op("check_finite_and_unscale", "X=%s Scale=%s" % (x, scale), "Out=%s FoundInfinite=bad" % (to or x), op_role=2)


def update_scale(x, found="bad"):
    return op("update_loss_scaling", "X=%s FoundInfinite=%s PrevLossScaling=ls InGoodSteps=steps" % (x, found),
              "Out=%s LossScaling=ls OutGoodSteps=steps" % x, op_role=2, incr_ratio=2.0)


def typed(source, target, before, after):
    return op("cast", "X=" + source, "Out=" + target, in_dtype=before, out_dtype=after, op_role=2)


MAXIMUM = in_place("c_allreduce_max", "any", use_calc_stream=True, op_role=2)
ANY = (typed("bad", "any", 0, 2), MAXIMUM, typed("any", "bad", 2, 0))
CHECKED, SCALED = check_finite("w@GRAD,b@GRAD"), update_scale("w@GRAD,b@GRAD")


def loss_scaling(*update, checked=CHECKED, scaled=SCALED, states=(), before=(), between=(), scatter=(SCATTER,), of=shared, **more):
    """Gradients of a loss that is scaled are divided by the scale, unless any element is infinite. `before`
    and `between`: ops of the original before that and meanwhile, which the result has not, too."""
    ops = SHARED_OPS[:6] + [*before, checked, *between, scaled] + SHARED_OPS[6:]
    return of(*more.pop("fills", ()), ops=ops, left=range(6, len(ops)), scatter=scatter, update=update + (UPDATE,),
              decls=[decl("ls", 1, persistable=True), decl("steps", 1, dtype=2, persistable=True), decl("bad", 1, dtype=0), *states],
              **{"more": [decl("any", 1, dtype=2)], **more})


def begun(velocity, fill):
    """The startup program declares and fills a new state otherwise than the main program."""
    case = by_nesterov()
    files = files_of(case)
    start = BROADCASTS + [op("assign", "X=w", "Out=" + X), fill, case["startup"][-1]]
    states = NEW_STATES + [decl(X, 4, 4, persistable=True), velocity]
    return {"files": files[:5] + [program(STATES + states + [decl("id", kind=17)], FILLS + start)]}


def cut_elsewhere():
    """The startup program has padding, and so shares of another size."""
    files = list(shared()["files"])
    more = [decl("pads", 4), decl("sf", 24), decl("ranks", 24)]
    states = [decl("ws", 12, persistable=True), decl("ms", 12, persistable=True)]
    start = [zeros("pads", 4), packed("w,b,pads", "sf", copy_data=True), SENT[1], sliced(size=12), zeros("ms", 12)]
    kept = [decl("lr", 1, persistable=True)] + [decl(name, *SHARED[name], persistable=name == "p") for name in "wbp"]
    files[5] = program(more + states + kept, SHARED_FILLS[:4] + start)
    files[1] = files[1].replace(b"+4\n=0\n", b"+5\n=0\n")
    return {"files": files}


def set_by_host(name, *dims):
    attr = field(1, b"lr_schedule") + field(2, 2) + field(4, b"step")
    return field(3, decl(name, *dims, persistable=True)[2:] + field(7, attr))


def clip_by(x, most):
    """By one element, if it is another variable."""
    return op("clip", "X=%s Max=%s" % (x, most), "Out=" + x, op_role=2, min=-1.0, max=1.0)


NOT_THE_SAME = "no op that is left out does the same with w"
RIGHT = None
# Rule, name: what the programs are, and why they are refused.
CASES = {
    ("Wait", "between streams"): (reduced(AFTER, ON_RING, JOIN), RIGHT),
    ("Wait", "of the host"): (reduced(in_place("c_sync_calc_stream", "w@GRAD"), ON_RING,
                                      in_place("c_sync_comm_stream", "w@GRAD")), RIGHT),
    ("Wait", "no wait before a call"): (reduced(ON_RING, JOIN), "nothing orders its access to w@GRAD"),
    ("Wait", "no wait after a call"): (reduced(AFTER, ON_RING), "nothing orders its access to w@GRAD"),
    ("Wait", "for another stream"): (reduced(in_place("c_sync_comm_stream", "w@GRAD"), ON_RING, JOIN),
                                     "nothing orders its access to w@GRAD"),
    ("Wait", "other variables"): (reduced(MEAN, op("c_wait_comm", "X=w@GRAD", "Out=w")), "expected X and the same Out"),
    ("Wait", "of too many rings"): (reduced(*[in_place("c_wait_comm", "w@GRAD", ring_id=i) for i in range(17)]),
                                    "more than 16 rings"),
    ("Streams", "a call that is waited for"): (
        dict(new={5: [MEAN], 6: [in_place("c_wait_compute", "w"), in_place("c_broadcast", "w"),
                                 in_place("c_wait_comm", "w")]}), RIGHT),
    ("Streams", "a call during the update"): (dict(new={5: [MEAN], 6: [in_place("c_broadcast", "w")]}),
                                        "nothing orders its access to w"),
    ("Streams", "a call nobody waits for"): (
        dict(new={5: [MEAN], 6: [in_place("c_wait_compute", "w"), in_place("c_broadcast", "w")]}),
        "the program ends while communication goes on"),
    ("Broadcast", "of a parameter"): (dict(new={5: [MEAN], 6: BROADCASTS}), RIGHT),
    ("Broadcast", "of another value on each rank"): (reduced(MEAN, in_place("c_broadcast", "h", use_calc_stream=True)),
                                                     "h has no value, or not an equal one on all ranks"),
    ("Broadcast", "from another rank"): (reduced(MEAN, in_place("c_broadcast", "w", root=1)),
                                         "attribute root has another type or value"),
    ("Broadcast", "at the start"): (started(*BROADCASTS), RIGHT),
    ("Broadcast", "not of all at the start"): (started(BROADCASTS[1]), "w may differ between ranks"),
    ("Broadcast", "before the value at the start"): (dict(started(*BROADCASTS), before=0),
                                                     "w has no value, or not an equal one on all ranks"),
    ("Broadcast", "before a read at the start"): (
        started(BROADCASTS[0], before=1, fills=[op("relu", "X=w", "Out=lr")]), "it reads w after its broadcast"),
    ("Broadcast", "before a write at the start"): (
        started(BROADCASTS[0], before=1, fills=[op("fill_constant", "", "Out=w")]),
        "it writes w, which is new, or after its broadcast"),
    ("Reduce", "mean"): (reduced(MEAN), RIGHT),
    ("Reduce", "sum, then a division"): (reduced(SUM, HALF), RIGHT),
    ("Reduce", "sum where sums are claimed"): (reduced(SUM, claim=b"ranks: 2\ngradients: sum\n"), RIGHT),
    ("Reduce", "mean as in Paddle 3"): (reduced(all_reduce(4)), RIGHT),
    ("Reduce", "maximum"): (reduced(all_reduce(1)), "attribute reduce_type: expected 0 or 4"),
    ("Reduce", "none"): (reduced(), "the gradient w@GRAD is not reduced"),
    ("Reduce", "twice"): (reduced(MEAN, MEAN), "w@GRAD is reduced twice"),
    ("Reduce", "sum where means are claimed"): (reduced(SUM), "it reads w@GRAD, which does not have the value"),
    ("Reduce", "mean where sums are claimed"): (reduced(MEAN, claim=b"ranks: 2\ngradients: sum\n"), "expected a sum"),
    ("Reduce", "after the update"): (dict(new={6: [MEAN]}), "an op uses w@GRAD before its reduction"),
    ("Reduce", "of no gradient"): (reduced(MEAN, in_place("c_allreduce_avg", "h@GRAD", use_calc_stream=True)),
                                   "h@GRAD is no gradient of a parameter"),
    ("Reduce", "not in place"): (reduced(op("c_allreduce_avg", "X=w@GRAD", "Out=p")), "expected Out to be X"),
    ("Reduce", "of two variables"): (reduced(op("c_allreduce_avg", "X=w@GRAD,h@GRAD", "Out=w@GRAD")),
                                     "expected one X, and one Out"),
    ("Reduce", "of a slot that is there twice"): (reduced(op("c_allreduce_avg", "X=w@GRAD x=w@GRAD", "Out=w@GRAD")),
                                                  "slot X is there twice"),
    ("Reduce", "of whole numbers"): (dict(reduced(MEAN), decls=with_decl("w@GRAD", 4, 4, dtype=3)),
                                     "w@GRAD is no tensor of a known size that this step computes"),
    ("Reduce", "mean of what is divided"): (dict(new={3: [DIVIDED], 5: [MEAN]}),
                                            "w@GRAD is divided by n or reduced already"),
    ("Reduce", "on no ring"): (reduced(in_place("c_allreduce_avg", "w@GRAD", ring_id=1 << 31)),
                               "attribute ring_id: expected a ring"),
    ("Scale", "before the sum"): (dict(new={3: [DIVIDED], 5: [SUM]}), RIGHT),
    ("Scale", "by another number"): (reduced(SUM, in_place("scale", "w@GRAD", scale=0.25)),
                                     "attribute scale: expected 1 / ranks"),
    ("Scale", "twice"): (dict(new={3: [DIVIDED, DIVIDED], 5: [SUM]}),
                         "loss@GRAD is not to be divided"),
    ("Cast", "to half precision and back"): (
        reduced(cast("w@GRAD", "half", 5, 4), in_place("c_allreduce_avg", "half", use_calc_stream=True),
                cast("half", "w@GRAD", 4, 5)), RIGHT),
    ("Cast", "not back"): (reduced(cast("w@GRAD", "half", 5, 4),
                                   in_place("c_allreduce_avg", "half", use_calc_stream=True)),
                           "it reads w@GRAD, which does not have the value"),
    ("Cast", "to other dimensions"): (reduced(cast("w@GRAD", "other", 5, 4)), "other cannot hold w@GRAD"),
    ("Cast", "from another type"): (reduced(cast("w@GRAD", "half", 6, 4)), "the attributes or parts do not fit"),
    ("Cast", "of an old value"): (
        dict(new={4: [cast("w@GRAD", "half", 5, 4)], 5: [in_place("c_allreduce_avg", "half", use_calc_stream=True)]}),
        "half holds no current value"),
    ("Coalesce", "over gathered values"): ({"new": {5: [
        op("c_allgather", "X=w@GRAD", "Out=all", nranks=2, use_calc_stream=True),
        op("coalesce_tensor", "Input=h@GRAD", "Output=h@GRAD FusedOutput=all", dtype=5, align_size=128, use_align=True,
           copy_data=True),
        op("split", "X=all", "Out=p,q", axis=0, num=2), op("sum", "X=p,q", "Out=w@GRAD"), HALF]}},
                                           "all is used before it is a buffer"),
    ("Coalesce", "over what is gathered before"): (
        {"original": OPS[:4] + [op("mul_grad", "Out@GRAD=loss@GRAD X=x Y=w", "Y@GRAD=w@GRAD", **PAIR),
                                op("relu", "X=h@GRAD", "Out=h", op_role=1), OPS[5]],
         "new": {**gathered()["new"], 6: [packed("h@GRAD", "all", align_size=128, copy_data=True)]}},
        "all is used before it is a buffer"),
    ("Coalesce", "one part"): (coalesced(), RIGHT),
    ("Coalesce", "a part twice"): (coalesced("w@GRAD,w@GRAD"), "w@GRAD is in a buffer already"),
    ("Coalesce", "too small"): (coalesced(align_size=512), "FusedOutput is not declared with 128 elements"),
    ("Coalesce", "parts that begin within elements"): (coalesced(align_size=258), "expected FusedOutput of floats"),
    ("Coalesce", "of another type"): (coalesced(dtype=6), "expected FusedOutput of floats"),
    ("Coalesce", "of a state"): (coalesced("w"), "w is no tensor of a known size and of this type"),
    ("Coalesce", "into a variable of the original"): (coalesced(buffer="h"), "it may not use h"),
    ("Coalesce", "other outputs"): (coalesced(outputs="h@GRAD"), "expected Input, the same Output, and FusedOutput"),
    ("Coalesce", "other shapes"): (coalesced(concated_shapes=(4, 5)), "its attributes have other shapes"),
    ("Coalesce", "shapes without their sizes"): (coalesced(concated_shapes=(4, 4)), "its attributes have other shapes"),
    ("Gather", "all parts"): (gathered(), RIGHT),
    ("Gather", "a part twice"): (gathered("p,p"), "p is not the value of another rank"),
    ("Gather", "too few parts"): (gathered("p"), "expected a part for each rank"),
    ("Gather", "of another number of ranks"): (gathered(nranks=3), "attribute nranks has another type or value"),
    ("Gather", "into too few elements"): (reduced(op("c_allgather", "X=w@GRAD", "Out=p", nranks=2)),
                                          "expected a number of ranks, and Out declared for the values of all"),
    ("Gather", "more than there can be"): (
        dict(gathered(), decls=[decl("w@GRAD", (1 << 62) + 1) if old == decl("w@GRAD", 4, 4) else old for old in DECLS]),
        "expected a number of ranks, and Out declared for the values of all"),
    ("Gather", "a split of one value"): (reduced(op("split", "X=w@GRAD", "Out=p,q", axis=0, num=2)),
                                         "expected the values of all ranks, and a part for each"),
    ("Gather", "a part of other dimensions"): (
        reduced(op("c_allgather", "X=w@GRAD", "Out=all", nranks=2, use_calc_stream=True),
                op("split", "X=all", "Out=p,buffer", axis=0, num=2)), "buffer is not declared for the value of a rank"),
    ("Rings", "of one process"): (started(op("c_comm_init_all", "", "", ring_id=0), *BROADCASTS), RIGHT),
    ("Rings", "by an id"): (started(*ids(), *BROADCASTS), RIGHT),
    ("Rings", "twice"): (started(op("c_comm_init_all", "", "", ring_id=0), op("c_comm_init_all", "", "", ring_id=0)),
                         "is set up twice"),
    ("Rings", "of another number of ranks"): (started(op("c_comm_init_all", "", "", ring_id=0, nranks=3)),
                                              "attribute nranks has another type or value"),
    ("Rings", "after their use"): (started(*BROADCASTS, op("c_comm_init_all", "", "", ring_id=0)), "or after its use"),
    ("Rings", "none, for the stream of one"): (started(*BROADCASTS, new={5: [AFTER, ON_RING, JOIN]}),
                                               "ring 0 is not set up"),
    ("Rings", "one endpoint twice"): (started(*ids(("a:1", "a:1"))), "expected an endpoint for each rank"),
    ("Rings", "another rank"): (started(*ids(rank=1)), "or this one has another number"),
    ("Rings", "an id used twice"): (started(*ids(joins=2)), "id is no unused id"),
    ("Rings", "not set up before a call"): (started(in_place("c_broadcast", "w")), "its ring is not set up"),
    ("Rings", "no endpoints"): (started(op("c_gen_nccl_id", "", "Out=id", rank=0)), "expected Out, endpoints"),
    ("Rings", "no such rank"): (
        started(op("c_gen_nccl_id", "", "Out=id", rank=3, endpoint="a:1", other_endpoints=["b:1"])),
        "expected a rank and its endpoint"),
    ("Rings", "an endpoint with a blank"): (started(*ids(("a 1", "b:1"))), "expected printable endpoints"),
    ("Rings", "an id made twice"): (started(*ids(joins=0), *ids(joins=0)), "id is no new id"),
    ("Keep", "another script"): (dict(reduced(MEAN), changed={0: op("mul", "X=x Y=w", "Out=h", op_callstack=["a.py"])}),
                                 RIGHT),
    ("Keep", "another op"): (dict(reduced(MEAN), changed={0: op("mul", "X=x Y=w", "Out=h", x_num_col_dims=2)}),
                             "the op of the original is another one"),
    ("Keep", "what was drawn"): (dict(reduced(MEAN), original=OPS + [op("dropout", "X=lr", "Out=lr")]),
                                 "lr may differ between ranks"),
    ("Keep", "what communicates"): (dict(reduced(MEAN), original=OPS + [in_place("c_allreduce_sum", "lr")]),
                                    "no certificate for originals that communicate"),
    ("Keep", "a gradient written again"): (
        dict(new={5: [MEAN]}, original=OPS[:5] + [op("sum", "X=w@GRAD", "Out=w@GRAD", op_role=1)] + OPS[5:]),
        "it writes the gradient w@GRAD again"),
    ("Keep", "a block of what is the same"): (branch(op("relu", "X=h", "Out=loss")), RIGHT),
    ("Keep", "a block that reads what is divided"): (branch(op("relu", "X=loss@GRAD", "Out=loss")),
                                                     "it reads a value / n, and is not known to be linear"),
    ("Keep", "a block that may write what is divided"): (branch(op("relu", "X=h", "Out=loss@GRAD")),
                                                         "it may leave loss@GRAD"),
    ("Keep", "what names a variable in an attribute"): (
        dict(reduced(MEAN), original=OPS + [op("relu", "X=h", "Out=loss", by=VarName("w"))]), "names a variable"),
    ("Keep", "what is not declared"): (dict(reduced(MEAN), original=OPS + [op("relu", "X=y", "Out=loss")]),
                                       "y is not declared"),
    ("Keep", "a block that is not there"): (
        dict(reduced(MEAN), original=OPS + [op("while", "X=h", "Out=loss", sub_block=BlockNumber(7))]),
        "there is no such block"),
    ("Keep, scaled", "linear"): (dict(new={3: [DIVIDED], 5: [SUM]}), RIGHT),
    ("Keep, scaled", "not linear"): (
        dict(new={3: [DIVIDED]},
             original=with_op(3, op("exp", "X=loss@GRAD", "Out=h@GRAD", op_role=1))),
        "it reads a value / n, and is not known to be linear"),
    ("Keep, scaled", "an output that is no gradient"): (
        dict(new={3: [DIVIDED]},
             original=with_op(3, op("mean_grad", "Out@GRAD=loss@GRAD X=h", "Out=h@GRAD", op_role=1))),
        "its output Out is no gradient"),
    ("Keep, scaled", "in another slot"): (
        dict(new={3: [DIVIDED]},
             original=with_op(3, op("mean_grad", "Out@GRAD=loss@GRAD X=loss@GRAD", "X@GRAD=h@GRAD", op_role=1))),
        "it reads loss@GRAD, which is divided by n"),
    ("Keep, scaled", "whole numbers"): (dict(new={3: [DIVIDED]}, decls=with_decl("h@GRAD", 4, dtype=3)),
                                        "h@GRAD, which is divided by n, is not declared as floats"),
    ("The end of a step", "what no step reads"): (dict(new={3: [DIVIDED], 5: [SUM]}), RIGHT),
    ("The end of a step", "what the next step reads"): (
        dict(new={4: [DIVIDED], 6: [SUM]}, original=[op("relu", "X=loss@GRAD", "Out=loss")] + OPS),
        "the step leaves loss@GRAD with another value"),
    ("What must be equal", "the setting of the claim"): (
        dict(reduced(MEAN), others=[field(1001, b'{"nranks":2}')]), RIGHT),
    ("What must be equal", "a name of several lines"): (
        dict(reduced(MEAN), decls=DECLS + [decl("s\n- none", 4, persistable=True)], hints="all common w common lr\n"),
        "is a state whose name has blanks or control characters"),
    ("What must be equal", "a new state"): (dict(reduced(MEAN), more=[decl("n", 1, persistable=True)]),
                                            "the new variable n is a state"),
    ("What must be equal", "another number of ranks in the setting"): (
        dict(reduced(MEAN), others=[field(1001, b'{"nranks":3}')]), "setting of the result"),
    ("What must be equal", "averages in the setting"): (
        dict(reduced(MEAN), others=[field(1001, b'{"nranks":2,"averaging":{}}')]), "no rule averages parameters"),
    ("Averaging", "in every step"): (averaged(AVERAGE, hints=""), RIGHT),
    ("Averaging", "in some steps"): (in_some_steps(AVERAGE), RIGHT),
    ("Averaging", "by a sum and a division"): (
        in_some_steps(late("c_allreduce_sum", "X=w", "Out=w", use_calc_stream=True), scaled("w", 0.5, nranks=2)), RIGHT),
    ("Averaging", "in turn"): (
        averaged(COUNT, *due(1, period=2), run(), *due(0, "1", period=2), run(2, "lr", "1"), keys="in_turn",
                 blocks=[[AVERAGE], [late("c_allreduce_avg", "X=lr", "Out=lr", use_calc_stream=True)]]), RIGHT),
    ("Averaging", "a sum"): (in_some_steps(late("c_allreduce_sum", "X=w", "Out=w", use_calc_stream=True)),
                             "w becomes sum(w), and should become mean(w)"),
    ("Averaging", "no exchange"): (in_some_steps(late("assign", "X=lr", "Out=lr"), changes="lr"),
                                   "lr becomes lr, and should become mean(lr)"),
    ("Averaging", "of another state only"): (averaged(late("c_allreduce_avg", "X=lr", "Out=lr", use_calc_stream=True)),
                                             "w is not averaged"),
    ("Averaging", "before the update"): (
        dict(averaged(), new={5: [AVERAGE]}), "an op of the original comes after averaging began"),
    ("Averaging", "where means of gradients are claimed"): (
        dict(averaged(AVERAGE), claim=b"ranks: 2\ngradients: mean\n"), "no rule averages parameters"),
    ("Averaging", "of gradients"): (averaged(late("c_allreduce_avg", "X=w@GRAD", "Out=w@GRAD", use_calc_stream=True)),
                                    "w@GRAD is not to be written"),
    ("Averaging", "of another role"): (
        averaged(late("c_allreduce_avg", "X=w", "Out=w", op_role=1, use_calc_stream=True)),
        "attribute op_role: expected optimize"),
    ("Averaging", "of a name like a formula"): (
        averaged(late("assign", "X=mean(w)", "Out=w"), states=[decl("mean(w)", 4, 4, persistable=True)]),
        "mean(w) has a name that formulas cannot have"),
    ("Averaging", "a call nobody waits for"): (
        averaged(late("c_wait_compute", "X=w", "Out=w"), late("c_allreduce_avg", "X=w", "Out=w")),
        "the program ends while communication goes on"),
    ("Averaging", "a wait in a block that may not run"): (
        averaged(COUNT, *due(), late("assign", "X=w", "Out=p"), late("c_wait_compute", "X=w", "Out=w"),
                 late("c_allreduce_avg", "X=p", "Out=p"), run(), blocks=[[late("c_wait_comm", "X=w", "Out=w")]]),
        "the program ends while communication goes on"),
    ("Averaging, conditions", "two of one period"): (delayed(), RIGHT),
    ("Averaging, conditions", "another period"): (in_some_steps(AVERAGE, condition=due(period=5)),
                                                  "states change if (s mod 5) = 0, and by the setting if"),
    ("Averaging, conditions", "another step"): (in_some_steps(AVERAGE, condition=due(1)),
                                                "states change if (s mod 4) = 1, and by the setting if"),
    ("Averaging, conditions", "in every step, too"): (
        averaged(COUNT, *due(), AVERAGE, run(), blocks=[[AVERAGE]]), "expected a new block of its own"),
    ("Averaging, conditions", "the same one twice"): (
        averaged(COUNT, *due(), run(), run(2), blocks=[[AVERAGE], [AVERAGE]], keys='"period":4,"first_step":1'),
        "w may have been changed by an earlier block"),
    ("Averaging, conditions", "a block that runs twice"): (
        averaged(COUNT, *due(), run(), run(), blocks=[[AVERAGE]]), "expected a new block of its own"),
    ("Averaging, conditions", "a block that does not run"): (averaged(AVERAGE, blocks=[[AVERAGE]]),
                                                             "a new block is not used"),
    ("Averaging, conditions", "of another count"): (
        in_some_steps(AVERAGE, condition=due()[:1] + [COUNT] + due()), "expected a new state that counts steps"),
    ("Averaging, conditions", "that ranks have to themselves"): (in_some_steps(AVERAGE, hints="own step\nown w\n"),
                                                               "expected a new state that counts steps"),
    ("Averaging, conditions", "a number in two ways"): (
        in_some_steps(AVERAGE, condition=[whole("k", 4, "5")] + due()[1:]), "expected a whole number"),
    ("Averaging, conditions", "a state that the op does not name"): (
        in_some_steps(AVERAGE, changes="lr"), "w is not named by the op that runs the block"),
    ("Averaging, conditions", "of no setting"): (dict(in_some_steps(AVERAGE), others=[]),
                                                 "its setting does not say, or not once"),
    ("Averaging, conditions", "of an unknown setting"): (
        in_some_steps(AVERAGE, keys='"period":4,"first_step":1,"rounds":2'), "no rule averages by rounds"),
    ("Averaging, formulas", "nesterov"): (by_nesterov(), RIGHT),
    ("Averaging, formulas", "another number"): (by_nesterov(lr=0.8), "becomes (w_outer_param - 0.8*"),
    ("Averaging, formulas", "of another optimizer"): (
        by_nesterov(keys=NESTEROV.replace("nesterov", "slowmo")), "w_outer_velocity + (mean(w_outer_param - w) / lr)"),
    ("Averaging, formulas", "no exchange"): (by_nesterov(late("assign", "X=w", "Out=w")),
                                            "becomes (w_outer_param - 0.7*((w_outer_param - w) + "),
    ("Averaging, formulas", "other elements"): (
        averaged(late("assign", "X=lr", "Out=w")), "w has other elements than lr"),
    ("Averaging, formulas", "of two types"): (
        averaged(late("assign", "X=w", "Out=y"), states=[decl("y", 4, 4, dtype=6, persistable=True)]),
        "expected inputs and outputs of one type"),
    ("Averaging, formulas", "a buffer that is a state"): (
        averaged(late("coalesce_tensor", "Input=w", "Output=w FusedOutput=y", dtype=5, align_size=256, use_align=True,
                      copy_data=True), states=[decl("y", 64, persistable=True)]), "expected FusedOutput of floats"),
    ("Averaging, formulas", "of what a buffer does not copy"): (
        averaged(late("coalesce_tensor", "Input=w", "Output=w FusedOutput=buffer", dtype=5, align_size=256,
                      use_align=True, copy_data=False), AVERAGE), "w holds nothing"),
    ("Averaging, states", "that travel between steps"): (delayed(), RIGHT),
    ("Averaging, states", "that travel, and are not named"): (delayed(hints="own w\n"),
                                                            "the program ends while communication goes on"),
    ("Averaging, states", "all their own but one"): (in_some_steps(AVERAGE, hints="all\ncommon lr\n"), RIGHT),
    ("Averaging, states", "a parameter that is not their own"): (
        in_some_steps(AVERAGE, hints="all\ncommon lr\ncommon w\n"), "w may differ between ranks"),
    ("Averaging, states", "that travel over another ring"): (
        delayed(hints="late 1 %s\nown w\n" % G), "nothing orders its access to w_outer_gradient"),
    ("Averaging, states", "of which the proof names another ring"): (
        averaged(COUNT, *due(), run(states=G, reads="w," + G), hints="late 1 %s\nown w\n" % G,
                 blocks=[[late("c_wait_comm", "X=" + G, "Out=" + G, ring_id=1), late("assign", "X=w", "Out=" + G),
                          late("c_wait_compute", "X=" + G, "Out=" + G), late("c_allreduce_avg", "X=" + G, "Out=" + G)]],
                 states=[decl(G, 4, 4, persistable=True)]), "the program ends while communication goes on"),
    ("Averaging, states", "used before they arrive"): (
        delayed(late("c_wait_compute", "X=w", "Out=w"), late("c_wait_comm", "X=w", "Out=w")),
        "nothing orders its access to w_outer_gradient"),
    ("Averaging, states", "sent before the last ones arrive"): (
        delayed(late("c_wait_comm", "X=w", "Out=w"), late("c_wait_compute", "X=w", "Out=w")),
        "nothing orders its access to w_outer_gradient"),
    ("Averaging, states", "of an optimizer, each rank its own"): (
        by_nesterov(hints="own w\nown %s\n" % X), "is no new state that is equal on all ranks"),
    ("Averaging, states", "of no rule"): (averaged(AVERAGE, states=[decl("y", 4, 4, persistable=True)]),
                                          "y, which is new, is no state of averaging"),
    ("Averaging, states", "that begin with 0, not the parameter"): (
        by_nesterov(new=[filled(X), filled(V), op("fill_constant", "", "Out=step", dtype=3, shape=(1,), value=0.0)]),
        "w_outer_param does not begin with w"),
    ("Averaging, states", "a count that begins with 1"): (
        by_nesterov(new=[op("assign", "X=w", "Out=" + X), filled(V),
                         op("fill_constant", "", "Out=step", dtype=3, shape=(1,), value=1.0, str_value="1")]),
        "step does not begin with 0"),
    ("Averaging, states", "that begin with other dimensions"): (
        begun(decl(V, 2, 2, persistable=True), op("fill_constant", "", "Out=" + V, dtype=5, shape=(2, 2), value=0.0)),
        V + " is declared otherwise in the main program"),
    ("Averaging, states", "that begin with another type"): (
        begun(decl(V, 4, 4, dtype=6, persistable=True), op("fill_constant", "", "Out=" + V, dtype=6, shape=(4, 4), value=0.0)),
        V + " is declared otherwise in the main program"),
    ("Averaging, states", "that begin before the broadcast"): (
        dict(by_nesterov(), startup=[op("assign", "X=w", "Out=" + X), *BROADCASTS]),
        "w is no state that all ranks have from rank 0"),
    ("Shares", "as in stage 1"): (shared(), RIGHT),
    ("Shares", "gathered again, as in stage 3"): (
        shared(gather=gathering() + gathering("wa,ba", "af", 1), changed={4: gradient("w", "wa"), 5: gradient("b", "ba")}),
        RIGHT),
    ("Shares", "a call that an op waits for"): (
        shared(scatter=(in_place("c_wait_compute", "gf"), op("c_reducescatter", "X=gf", "Out=gs", nranks=2),
                        in_place("c_wait_comm", "gs")),
               start=[op("c_comm_init_all", "", "", ring_id=0), *SENT, sliced(), zeros("ms", 10)]), RIGHT),
    ("Shares", "a sum, then a division"): (shared(pack=(PACK,), scatter=(SCATTER, HALF_SHARE)), RIGHT),
    ("Shares", "with padding"): (padded(zeros("padg", 2)), RIGHT),
    ("Shares", "weight decay"): (
        shared(ops=SHARED_OPS[:6] + [decay("w", "m"), decay("b", "n"), *SHARED_OPS[6:]], left=(6, 7, 8, 9),
               update=(decay("ws", "ms"), UPDATE)), RIGHT),
    ("Shares", "an owner of a whole tensor"): (owned(), RIGHT),
    ("Shares", "a whole tensor that no rank owns"): (
        shared(ops=SHARED_OPS[:6] + [lamb("w", "w@GRAD", "m"), lamb("b", "b@GRAD", "n")], update=(lamb("ws", "gs", "ms"),)),
        "it needs whole tensors, and no rank has all of w"),
    ("Shares", "a clip by elements of a share"): (
        shared(ops=SHARED_OPS[:6] + [clip_by("w", "m"), clip_by("b", "n"), *SHARED_OPS[6:]], left=(6, 7, 8, 9),
               update=(clip_by("ws", "ms"), UPDATE)), NOT_THE_SAME),
    ("Shares", "a power of each element"): (
        shared(ops=SHARED_OPS[:6] + [powers("w", "w@GRAD", "m", "m", use_global_beta_pow=True),
                                     powers("b", "b@GRAD", "n", "n", use_global_beta_pow=True)],
               update=(powers("ws", "gs", "ms", "ms", use_global_beta_pow=True),)), NOT_THE_SAME),
    ("Shares", "a number that ranks add up"): (numbers_of_gradients(), NOT_THE_SAME),
    ("Shares", "numbers that an op does not write"): (numbers_not_written(), NOT_THE_SAME),
    ("Shares", "what print shares memory with"): (printed(), "it reads ta, which does not have the value of t"),
    ("Shares", "that the host sets"): (
        shared(states=[set_by_host("ws", 10), decl("ms", 10, persistable=True)]), "ws is new, or shared out, and its declaration"),
    ("Shares", "a copy that is rounded"): (
        shared(gather=tuple(gathering()) + (op("cast", "X=w", "Out=w16", in_dtype=5, out_dtype=4, op_role=1),
                                            op("cast", "X=w16", "Out=wr", in_dtype=4, out_dtype=5, op_role=1)),
               changed={0: op("mul", "X=x Y=wr", "Out=h")}, more=[decl("w16", 4, 4, dtype=4), decl("wr", 4, 4)]),
        "it reads wr, which does not have the value of w"),
    ("Shares", "a norm over another variable"): (
        shared(ops=NORM_OPS + [op("relu", "X=loss", "Out=h", op_role=2)], left=NORMED["left"], update=NORMED["update"],
               middle=(packed("loss", "ns", copy_data=True, op_role=1), norm("gs", "ns"), added("ns"), ADD_UP)),
        "ns is no new number"),
    ("Shares", "padding that is not 0"): (padded(), "padg is padding, and does not hold 0"),
    ("Shares", "padding that is 1"): (padded(zeros("padg", 2, value=1.0)), "padg is padding, and does not hold 0"),
    ("Shares", "no gather"): (shared(gather=()), "it reads w, which does not have the value"),
    ("Shares", "a gather in another order"): (shared(gather=gathering("b,w")), "b cannot hold w"),
    ("Shares", "a gather at unknown places"): (shared(gather=gathering(align_size=0)), "w begins elsewhere in the buffer"),
    ("Shares", "a copy of another parameter"): (
        shared(gather=gathering() + gathering("wa,ba", "af", 1), changed={4: gradient("w", "ba")}),
        "it reads ba, which does not have the value of w"),
    ("Shares", "a copy that is not gathered"): (
        shared(gather=gathering() + gathering("wa,ba", "af", 1)[:1], changed={4: gradient("w", "wa")}),
        "it reads wa, which does not have the value of w"),
    ("Shares", "a gather of another role"): (shared(gather=gathering(role=2)), "expected forward or backward"),
    ("Shares", "gradients in another order"): (shared(pack=(DIVIDED, packed("b@GRAD,w@GRAD", "gf"))), NOT_THE_SAME),
    ("Shares", "a sum where means are claimed"): (shared(pack=(PACK,)), "gs holds sums, where means are claimed"),
    ("Shares", "divided twice"): (shared(scatter=(SCATTER, HALF_SHARE)), NOT_THE_SAME + "@GRAD"),
    ("Shares", "reduced twice"): (shared(scatter=(SCATTER, SCATTER)), "w@GRAD holds no current value"),
    ("Shares", "not reduced"): (shared(scatter=()), NOT_THE_SAME),
    ("Shares", "a call that nobody waits for"): (
        shared(scatter=(op("c_reducescatter", "X=gf", "Out=gs", nranks=2),)), "nothing orders its access to "),
    ("Shares", "no update"): (shared(update=()), "ms does not hold the part of m"),
    ("Shares", "the update twice"): (shared(update=(UPDATE, UPDATE)), NOT_THE_SAME),
    ("Shares", "an update that the original has not"): (shared(update=(adam("ws", "gs", "ms", beta=0.8),)), NOT_THE_SAME),
    ("Shares", "by another number"): (shared(update=(adam("ws", "gs", "ms", p="lr"),)), NOT_THE_SAME),
    ("Shares", "of another state"): (shared(update=(adam("ms", "gs", "ws"),)), "no op that is left out does the same with m"),
    ("Shares", "into another share"): (shared(update=(adam("ws", "gs", "ms", out="gs"),)), NOT_THE_SAME),
    ("Shares", "twice into one share"): (shared(update=(adam("ws", "gs", "ms", out="ms"),)), NOT_THE_SAME),
    ("Shares", "an op that is kept, too"): (shared(left=(6,)), "it reads b@GRAD, which does not have the value"),
    ("Shares", "read after the update"): (shared(ops=SHARED_OPS + [op("relu", "X=w", "Out=h")]),
                                          "it reads w, which does not have the value"),
    ("Shares", "what is no update left out"): (
        shared(ops=SHARED_OPS + [op("softmax", "X=w", "Out=h", op_role=2)], left=(6, 7, 8)), "no rule leaves out such an op"),
    ("Shares", "a gradient op left out"): (shared(left=(5, 6, 7)), "no rule leaves out such an op"),
    ("Shares", "an op that needs a whole tensor"): (
        shared(update=(op("softmax", "X=ws", "Out=ws", op_role=2), UPDATE)),
        "no rule lets each rank run such an op on its part"),
    ("Shares", "of another size"): (
        shared(states=[decl("ws", 12, persistable=True), decl("ms", 10, persistable=True)]), "ws is no part of a rank"),
    ("Shares", "of which ranks have their own"): (shared(hints="own m\n"), "m is no state, or named none, or shared out"),
    ("Shares", "from a learning rate of each rank"): (shared(hints="own lr\n"), "may differ between ranks"),
    ("Shares", "a state that is declared still"): (shared(undeclared="nq"), "m is not declared as in the original"),
    ("Shares", "a number that is declared, too"): (shared(undeclared="mn"), "q is not declared as in the original"),
    ("Shares", "a state in two"): (shared(setting=SHARED_SETTING.replace('["p","q"]', '["p","q","m"]')),
                                   "m is no state, or is there twice"),
    ("Shares", "of other dimensions"): (shared(setting=SHARED_SETTING.replace("[4,4]", "[2,8]")), "m is declared otherwise"),
    ("Shares", "in no setting"): (shared(setting='{"nranks":2}'), "the new variable ws is a state"),
    ("Shares, sums", "of all shares"): (shared(**NORMED), RIGHT),
    ("Shares, sums", "and of a whole number"): (
        clipped(norm("gs", "ns"), added("ns", to="part"), in_place("c_allreduce_sum", "part", use_calc_stream=True, op_role=2),
                added("part", "lr"), more=[decl("part", 1)],
                ops=NORM_OPS[:8] + [added("nw", "nb", "lr")] + NORM_OPS[9:]), RIGHT),
    ("Shares, sums", "with padding"): (padded(zeros("padg", 2), **NORMED), RIGHT),
    ("Shares, sums", "that no rank adds up"): (
        clipped(norm("gs", "ns"), added("ns")), "it reads total, which does not have the value"),
    ("Shares, sums", "added up twice"): (clipped(norm("gs", "ns"), added("ns"), ADD_UP, ADD_UP),
                                         "attribute op_role: expected backward"),
    ("Shares, sums", "that a gather overwrites"): (
        of_one_rank(), "expected a number of ranks, and Out declared for the values of all"),
    ("Shares, sums", "of a share twice"): (clipped(norm("gs", "ns"), added("ns", "ns"), ADD_UP),
                                           "it reads total, which does not have the value"),
    ("Shares, sums", "of a part of a rank, and a whole"): (
        clipped(norm("gs", "ns"), added("ns", "lr"), ADD_UP), "ns is a part of this rank"),
    ("Shares, sums", "of another share"): (clipped(norm("ws", "ns"), added("ns"), ADD_UP), NOT_THE_SAME),
    ("Shares, sums", "means"): (
        clipped(norm("gs", "ns"), added("ns"), in_place("c_allreduce_avg", "total", use_calc_stream=True, op_role=2)),
        "expected a sum"),
    ("Shares, sums", "of the role of gradients"): (
        clipped(norm("gs", "ns"), added("ns"), in_place("c_allreduce_sum", "total", use_calc_stream=True, op_role=1)),
        "attribute op_role: expected optimize"),
    ("Shares, sums", "of padding that may be other than 0"): (
        padded(zeros("padg", 2), **{**NORMED, "ops": NORM_OPS[:6] + SIGNS[:2] + NORM_OPS[6:], "middle_at": 11,
                                    "left": (6, 7, 8, 9, 10, 12, 13, 14, 15), "scatter": (SCATTER,),
                                    "middle": (SIGNS[2], *NORMED["middle"])}), "padding may be other than 0"),
    ("Shares, sums", "of values that differ between ranks"): (
        clipped(norm("gs", "ns"), added("ns", to="part"), in_place("c_allreduce_sum", "part", use_calc_stream=True, op_role=2),
                added("part", "loss"), more=[decl("part", 1)],
                ops=NORM_OPS[:8] + [added("nw", "nb", "loss")] + NORM_OPS[9:]), "total may differ between ranks"),
    ("Shares, loss scaling", "of all shares"): (loss_scaling(check_finite("gs"), *ANY, update_scale("gs")), RIGHT),
    ("Shares, loss scaling", "with padding"): (
        loss_scaling(check_finite("gs"), *ANY, update_scale("gs"), of=padded, fills=[zeros("padg", 2)]), RIGHT),
    ("Shares, loss scaling", "of each rank's own"): (
        loss_scaling(check_finite("gs"), update_scale("gs")), "bad holds no value of the original"),
    ("Shares, loss scaling", "of each rank's own, cast"): (
        loss_scaling(check_finite("gs"), ANY[0], ANY[2], update_scale("gs")), "bad holds no value of the original"),
    ("Shares, loss scaling", "a sum"): (
        loss_scaling(check_finite("gs"), ANY[0], in_place("c_allreduce_sum", "any", use_calc_stream=True, op_role=2), ANY[2],
                     update_scale("gs")), "expected a maximum"),
    ("Shares, loss scaling", "a maximum of a Boolean"): (
        loss_scaling(check_finite("gs"), in_place("c_allreduce_max", "bad", use_calc_stream=True, op_role=2),
                     update_scale("gs")), "bad is no whole number"),
    ("Shares, loss scaling", "a maximum of a gradient"): (
        loss_scaling(check_finite("gs"), *ANY, update_scale("gs"),
                     scatter=(in_place("c_allreduce_max", "w@GRAD", use_calc_stream=True), SCATTER)),
        "attribute reduce_type: expected 0 or 4"),
    ("Shares, loss scaling", "into another variable"): (
        loss_scaling(check_finite("gs"), ANY[0], MAXIMUM, typed("any", "other", 2, 0), update_scale("gs", "other"),
                     more=[decl("any", 1, dtype=2), decl("other", 1, dtype=0)]), "other holds no value of the original"),
    ("Shares, loss scaling", "of some of the gradients"): (
        loss_scaling(check_finite("gs"), *ANY, update_scale("gs"), checked=check_finite("w@GRAD")),
        "no op that is left out does the same with these"),
    ("Shares, loss scaling", "by another number"): (
        loss_scaling(check_finite("gs", scale="lr"), *ANY, update_scale("gs")),
        "no op that is left out does the same with these"),
    ("Shares, loss scaling", "by another flag"): (
        loss_scaling(check_finite("gs"), *ANY, update_scale("gs", "never"), scaled=update_scale("w@GRAD,b@GRAD", "never"),
                     states=[decl("never", 1, dtype=0, persistable=True)]),
        "it does not read whether any element of gs is infinite"),
    ("Shares, loss scaling", "into another share"): (
        loss_scaling(check_finite("gs", to="ms"), *ANY, update_scale("gs")), "expected X and the same Out"),
    ("Shares, loss scaling", "twice"): (
        loss_scaling(check_finite("gs"), check_finite("gs"), *ANY, update_scale("gs")), "gs holds another value"),
    ("Shares, loss scaling", "without the update of the scale"): (
        loss_scaling(check_finite("gs"), *ANY), "gs holds sums, where means are claimed, or what may be infinite"),
    ("Shares, loss scaling", "read before the scale is updated"): (
        loss_scaling(check_finite("gs"), *ANY, SIGNS[2], update_scale("gs"), between=SIGNS[:2]),
        "gs holds sums, where means are claimed, or what may be infinite"),
    ("Shares, loss scaling", "not checked"): (
        loss_scaling(*ANY, update_scale("gs")), "attribute op_role: expected backward"),
    ("Shares, loss scaling", "only the update of the scale"): (loss_scaling(update_scale("gs")), "gs holds another value"),
    ("Shares, loss scaling", "of sums"): (
        loss_scaling(check_finite("gs"), *ANY, update_scale("gs"), pack=(PACK,)), "no rule inserts such an op"),
    ("Shares, loss scaling", "of padding that may be other than 0"): (
        loss_scaling(SIGNS[2], check_finite("gs"), *ANY, update_scale("gs"), of=padded, fills=[zeros("padg", 2)],
                     before=SIGNS[:2]), "padding may be other than 0"),
    ("Shares, at the start", "of rank 0"): (shared(), RIGHT),
    ("Shares, at the start", "of another rank"): (shared(start=[*SENT, sliced(start=10), zeros("ms", 10)]),
                                                  "expected the first part of what all ranks sent"),
    ("Shares, at the start", "of each rank's own"): (shared(start=[SENT[0], sliced("sf"), zeros("ms", 10)]),
                                                     "expected the first part of what all ranks sent"),
    ("Shares, at the start", "in another order"): (
        shared(start=[packed("b,w", "sf", copy_data=True), SENT[1], sliced(), zeros("ms", 10)]),
        "ws holds other parts"),
    ("Shares, at the start", "of what a buffer does not copy"): (
        shared(start=[packed("w,b", "sf"), SENT[1], sliced(), zeros("ms", 10)]), "w has no value"),
    ("Shares, at the start", "before the parameter is complete"): (
        shared(after=[op("relu", "X=w", "Out=w")]), "ws does not hold the part of w"),
    ("Shares, at the start", "none"): (shared(start=[zeros("ms", 10)]), "ws does not hold the parts of its states"),
    ("Shares, at the start", "1 for 0"): (shared(start=[*SENT, sliced(), zeros("ms", 10, value=1.0)]),
                                          "ms holds other parts"),
    ("Shares, at the start", "0 for 1"): (shared(fills=SHARED_FILLS[:4] + [zeros("m", 4, 4, value=1.0), *SHARED_FILLS[5:]]),
                                          "m does not begin with 0, as ms does"),
    ("Shares, at the start", "of another size"): (cut_elsewhere(), "ws is declared otherwise in the main program"),
    ("Shares, at the start", "of another type"): (
        shared(start=[*SENT, sliced(), op("fill_constant", "", "Out=ms", dtype=6, shape=(10,), value=0.0)],
               start_states=[decl("ws", 10, persistable=True), decl("ms", 10, dtype=6, persistable=True)]),
        "ms is declared otherwise in the main program"),
    ("Shares, at the start", "numbers that are not equal"): (
        shared(fills=SHARED_FILLS[:6] + [zeros("q", 1, value=0.6)]), "p does not hold the value of q"),
    ("New ops", "of the role of gradients"): (
        reduced(in_place("c_allreduce_avg", "w@GRAD", op_role=1, use_calc_stream=True)), RIGHT),
    ("New ops", "of no rule"): (reduced(MEAN, in_place("relu", "w@GRAD")), "no rule inserts such an op"),
    ("New ops", "of another role"): (reduced(in_place("c_allreduce_avg", "w@GRAD", op_role=2, use_calc_stream=True)),
                                     "attribute op_role: expected backward"),
    ("New ops", "of two roles"): (reduced(in_place("c_allreduce_avg", "w@GRAD", op_role=17, use_calc_stream=True)),
                                  "attribute op_role: expected backward"),
    ("New ops", "another attribute"): (reduced(in_place("c_allreduce_avg", "w@GRAD", group=1)),
                                       "no rule allows attribute group"),
    ("New ops", "another variable"): (reduced(op("c_allreduce_avg", "X=w@GRAD Cond=lr", "Out=w@GRAD")),
                                      "it has another variable"),
}


def verdicts(checkers, files):
    """Of both checkers."""
    names = ("claim.txt", "proof.txt", "original", "result", "original_startup", "startup")
    with tempfile.TemporaryDirectory() as tmp:
        paths = ["%s/%s" % (tmp, name) for name, _ in zip(names, files)]
        for path, data in zip(paths, files):
            base.write(path, data)
        return [check([tmp] + paths[2:]) for check in (checkers.in_cpp, checkers.in_python)]


def check_order_at_the_start(checkers):
    """Each rank has a startup program of its own. Claims tell those apart that do not go together."""
    def line(*new):
        files = files_of(started(*new))
        lines, prefix = [], b""
        for _ in range(6):
            cpp, python = verdicts(checkers, [prefix + files[0]] + files[1:])
            assert cpp == python, (cpp, python)
            lines.append(cpp.split(b'expected "')[1].split(b'", found')[0])
            prefix += lines[-1] + b"\n"
        return lines[5]

    other = op("c_gen_nccl_id", "", "Out=id", rank=1, endpoint="b:1", other_endpoints=["a:1"])
    join = op("c_comm_init", "X=id", "", nranks=2, rank=1, ring_id=0)
    calls = [line(*new).split(b", ") for new in (
        ids() + BROADCASTS, [other, join] + BROADCASTS, ids() + BROADCASTS[::-1])]
    assert calls[0][0].endswith(b": 0") and calls[1][0].endswith(b": 1"), calls
    assert calls[0][1:] == calls[1][1:] and calls[0][2:] == calls[2][2:] and calls[0][1] != calls[2][1], calls


def main(weft_check, script, _, readme):
    checkers = base.Checkers(weft_check, script)
    check_order_at_the_start(checkers)
    for (rule, name), (case, why) in CASES.items():
        for verdict in verdicts(checkers, files_of(case)):
            expected = base.CERTIFIED if why is RIGHT else why.encode()
            assert expected in verdict, (rule, name, verdict)
    rules = {}
    for (rule, name), (_, why) in CASES.items():
        rules.setdefault(rule, ([], []))[why is not RIGHT].append(name)
    rows = ["| %s | %s | %s |\n" % (rule, "; ".join(right), "; ".join(wrong)) for rule, (right, wrong) in rules.items()]
    assert all(right and wrong for right, wrong in rules.values()), rules
    assert "".join(rows) in base.read(readme).decode(), "expected in README.md:\n" + "".join(rows)
    print("%d programs of %d rules" % (len(CASES), len(rules)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
