#!/usr/bin/env python3
"""Checks a certificate, by docs/certificate.md: weft_check.py DIR ORIGINAL RESULT [ORIGINAL_STARTUP STARTUP]

Needs the standard library only, and shares nothing with the checker in C++ but that page. Exit status 0:
certified; 1: not; 2: wrong usage.
"""

import hashlib
import re
import struct
import sys

DENSE, ROWS, ARRAY, RAW = 7, 8, 13, 17
FLOAT_BYTES = {4: 2, 5: 4, 6: 8, 22: 2}
INT, BOOL, BLOCK, LONG, BLOCKS = 0, 6, 8, 9, 10

NOT_PLAIN = set("""
all_gather all_reduce all_to_all allreduce alltoall as_strided barrier broadcast coalesce_tensor comm_init_all
dist_concat fetch_barrier global_gather global_scatter inplace_abn inplace_abn_grad listen_and_serv memcpy_d2h
memcpy_h2d p_recv p_send partial_allgather partial_allreduce partial_recv partial_send recv recv_v2 reduce
reduce_scatter rnn_memory_helper send send_and_recv send_barrier send_v2 share_buffer share_data stream_wait
sync_batch_norm sync_batch_norm_grad tensor_unfold view_dtype view_shape view_slice
""".split())
DRAW = set("""
bernoulli binomial class_center_sample cudnn_lstm dirichlet dpsgd dropout dropout_nd exponential feed flash_attn
flash_attn_qkvpacked flash_attn_unpadded flash_attn_varlen_qkvpacked flashmask_attention fractional_max_pool2d
fractional_max_pool3d fused_attention fused_bias_dropout_residual_layer_norm fused_dot_product_attention
fused_dropout_add fused_feedforward gaussian gaussian_inplace gaussian_random gaussian_random_batch_size_like
generate_proposal_labels graph_khop_sampler graph_sample_neighbors gumbel_softmax load load_combine
memory_efficient_attention multinomial nce poisson py_func pyramid_hash randint random random_crop randperm read
retinanet_target_assign rnn rpn_target_assign rrelu run_program sample_logits sampling_id seed shuffle_batch
standard_gamma tdm_sampler top_p_sampling truncated_gaussian_random truncated_gaussian_random_inplace uniform
uniform_inplace uniform_random uniform_random_batch_size_like uniform_random_inplace weighted_sample_neighbors
""".split())
CONSTANT = {"fill_constant", "assign_value", "fill", "full", "arange"}
LINEAR = {"sum", "scale", "cast", "assign", "concat", "elementwise_add", "elementwise_sub"}
ORIGIN = {"op_callstack", "op_namescope"}

SAME, SCALED, SUM, LOST = "same", "scaled", "sum", "lost"


class Failure(Exception):
    pass


def expect(condition, why):
    if not condition:
        raise Failure(why)


# --- Protobuf --------------------------------------------------------------------------------------


def varint(data, at, end):
    value = shift = 0
    while True:
        expect(at < end and shift < 70, "a message is cut off, or a number is too long")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            expect(value < 1 << 64, "a number is longer than 64 bits")
            return value, at
        shift += 7


def fields(data):
    """Yields number, wire type, payload and the whole field."""
    at, end = 0, len(data)
    while at < end:
        begin = at
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        expect(number > 0, "a message has a field 0")
        if wire == 0:
            value, at = varint(data, at, end)
        else:
            expect(wire in (1, 2, 5), "a field has an unknown wire type")
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, at = varint(data, at, end)
            expect(size <= end - at, "a message is cut off")
            value = data[at:at + size]
            at += size
        yield number, wire, value, data[begin:at]


def typed(value, wire, expected):
    expect(wire == expected, "a field has another wire type than in the format")
    return value


def signed(value):
    return value - (1 << 64) if value >> 63 else value


class Decl:
    def __init__(self, data):
        self.name, kind, self.persistable, self.marks = b"", b"", False, [False, False]
        self.type = self.dtype = self.elements = -1
        self.dims = []
        seen = set()
        for number, wire, value, _ in fields(data):
            if number > 5:
                continue
            expect(number not in seen, "a field is there twice")
            seen.add(number)
            typed(value, wire, 0 if number >= 3 else 2)
            if number == 1:
                self.name = value
            elif number == 2:
                kind = value
            elif number == 3:
                self.persistable = value != 0
            else:
                self.marks[number - 4] = value != 0
        for number, wire, value, _ in fields(kind):
            if number == 1:
                self.type = typed(value, wire, 0)
        # Where the tensor is: {field: whether it is in a message of its own}.
        place = {ROWS: (2, False), ARRAY: (4, True)}.get(self.type, (3, True))
        tensors = [typed(value, wire, 2) for number, wire, value, _ in fields(kind) if number == place[0]]
        if place[1]:
            tensors = [typed(value, wire, 2) for outer in tensors
                       for number, wire, value, _ in fields(outer) if number == 1]
        expect(len(tensors) <= 1, "a field is there twice")
        for tensor in tensors:
            self.read_tensor(tensor)

    def read_tensor(self, data):
        self.elements = 1
        for number, wire, value, _ in fields(data):
            if number == 1:
                self.dtype = typed(value, wire, 0)
            elif number == 2:
                dim = signed(typed(value, wire, 0))
                self.dims.append(dim)
                is_known = dim > 0 and self.elements > 0 and self.elements * dim < 1 << 63
                self.elements = self.elements * dim if is_known else -1

    def declares(self):
        return self.type, self.dtype, self.dims, self.persistable, self.marks

    def is_state(self):
        return self.persistable and self.type in (DENSE, ROWS, ARRAY)


class Attr:
    def __init__(self, data):
        self.name, self.type, self.number, self.real, self.text = b"", -1, 0, 0.0, b""
        self.texts, self.numbers = [], []
        values, seen = [], set()
        for number, wire, value, _ in fields(data):
            if number in (1, 2):
                expect(number not in seen, "a field is there twice")
                seen.add(number)
            if number == 1:
                self.name = typed(value, wire, 2)
            elif number == 2:
                self.type = typed(value, wire, 0)
            else:
                values.append((number, wire, value))
        # A value counts only in the field that belongs to the type.
        field = {INT: 3, 1: 4, 2: 5, 3: 6, 5: 8, BOOL: 10, BLOCK: 12, LONG: 13, BLOCKS: 14, 11: 15}.get(self.type)
        for number, wire, value in values:
            if number != field:
                continue
            if number in (3, 10, 12, 13):
                self.number = signed(typed(value, wire, 0))
            elif number == 4:
                self.real = struct.unpack("<f", typed(value, wire, 5))[0]
            elif number == 5:
                self.text = typed(value, wire, 2)
            elif number == 8:
                self.texts.append(typed(value, wire, 2))
            else:
                self.numbers.append(signed(typed(value, wire, 0)))


class Op:
    def __init__(self, data):
        self.type, self.inputs, self.outputs, self.attrs = b"", [], [], []
        has_type, values = False, {}
        for number, wire, value, _ in fields(data):
            if number == 3:
                expect(not has_type, "a field is there twice")
                has_type, self.type = True, typed(value, wire, 2)
            elif number == 4:
                attr = Attr(typed(value, wire, 2))
                self.attrs.append(attr)
                # Paddle writes some attributes twice, with one value.
                expect(values.setdefault(attr.name, value) == value,
                       "attribute %s is there twice" % attr.name.decode("utf-8", "replace"))
            elif number in (1, 2):
                name, args = None, []
                for inner, inner_wire, text, _ in fields(typed(value, wire, 2)):
                    if inner == 1:
                        expect(name is None, "a field is there twice")
                        name = typed(text, inner_wire, 2)
                    elif inner == 2:
                        args.append(typed(text, inner_wire, 2))
                (self.inputs if number == 1 else self.outputs).append((name or b"", args))
        self.name = self.type.decode("utf-8", "replace")
        for kind, slots in (("input", self.inputs), ("output", self.outputs)):
            expect(len({slot for slot, _ in slots}) == len(slots), "an %s slot is there twice" % kind)

    def find(self, name):
        return next((attr for attr in self.attrs if attr.name == name), None)

    def num_args(self):
        return sum(len(args) for _, args in self.inputs + self.outputs)


class Block:
    def __init__(self, data):
        self.data, self.decls, self.ops, self.rest, self.idx = data, [], [], [], 0
        for number, wire, value, whole in fields(data):
            if number == 3:
                self.decls.append(typed(value, wire, 2))
            elif number == 4:
                self.ops.append(typed(value, wire, 2))
            else:
                self.rest.append(whole)
                if number in (1, 2):
                    typed(value, wire, 0)
                if number == 1:
                    self.idx = value


class Program:
    def __init__(self, data):
        self.blocks, self.others, self.setting, self.version = [], [], b"", 0
        for number, wire, value, whole in fields(data):
            if number == 1:
                self.blocks.append(Block(typed(value, wire, 2)))
                expect(self.blocks[-1].idx == len(self.blocks) - 1, "blocks are not in order")
            elif number == 1001:
                self.setting = typed(value, wire, 2)
            else:
                self.others.append(whole)
                if number == 4:
                    self.version = 0
                    for inner, inner_wire, version, _ in fields(typed(value, wire, 2)):
                        if inner == 1:
                            self.version = typed(version, inner_wire, 0)
        expect(self.blocks, "the file has no block: it is no program")


def is_same_op(a, b):
    def essence(op):
        return sorted(whole for number, _, value, whole in fields(op)
                      if number != 4 or Attr(value).name.decode("utf-8", "replace") not in ORIGIN)

    return a == b or essence(a) == essence(b)


# --- The walk --------------------------------------------------------------------------------------


class Var:
    def __init__(self, name):
        self.name, self.decl = name, None
        self.in_original = self.in_root = self.is_declared = False
        self.kind, self.divided, self.part = SAME, False, None  # divided, part: of gathered values
        self.of, self.of_version, self.version = None, 0, 0
        self.buffer, self.is_buffer = None, False
        self.accesses = {}  # by stream: [last read, last write]
        self.equal = self.has_value = self.read_first = self.read_since = False
        self.is_gradient = self.is_reduced = self.is_parameter = False
        self.is_frozen = self.is_rounded = False

    def __str__(self):
        return self.name.decode("utf-8", "replace")


class Buffer:
    def __init__(self, parts, offsets):
        self.parts, self.offsets = parts, offsets


class Uses:
    def __init__(self):
        self.reads, self.writes, self.draws = [], [], False


class Walk:
    def __init__(self, original, result, nranks, sums, own, main):
        self.original, self.result = Program(original), Program(result)
        self.nranks, self.sums, self.own, self.main = nranks, sums, own, main
        self.vars = {}
        self.clocks, self.host, self.streams = {None: {}}, {}, {}  # stream None computes
        self.set_up, self.endpoints, self.rank = set(), None, None
        self.rings, self.states, self.schedule = set(), set(), []
        self.all_compute = True
        self.num_gradients = self.num_rounded = self.num_others = self.num_parameters = 0
        self.work = 1000 + 16 * len(result)
        self.compare_rest()
        self.declare()
        self.read_blocks()

    def spend(self, work):
        self.work -= work
        expect(self.work >= 0, "following the programs takes too much time")

    def compare_rest(self):
        was, now = self.original, self.result
        expect(was.others == now.others and len(was.blocks) == len(now.blocks)
               and was.blocks[0].rest == now.blocks[0].rest,
               "the result has another version or other blocks")
        for i in range(1, len(was.blocks)):
            expect(was.blocks[i].data == now.blocks[i].data, "block %d is another one" % i)
        setting = now.setting
        for key in ("ordered_by_data", "averaging", "groups", "common", "distributed_params", "shares",
                    "assumptions"):
            expect(key.encode() + b'"' not in setting, "setting of the result: found " + key)
        expect(b"\\" not in setting, "setting of the result: found a backslash")
        for outside in setting.split(b'"')[::2]:
            expect(all(byte > 32 for byte in outside), "setting of the result: found a blank between its parts")
        for key, value in (("nranks", str(self.nranks)), ("reduction", '"sum"' if self.sums else '"mean"')):
            for rest in setting.split(b'"%s":' % key.encode())[1:]:
                expect(re.match(re.escape(value.encode()) + b"[,}]", rest),
                       "setting of the result: %s: expected %s" % (key, value))

    def var(self, name):
        if name not in self.vars:
            self.vars[name] = Var(name)
        return self.vars[name]

    def declare(self):
        missing = 0
        for block in self.original.blocks:
            is_root = block is self.original.blocks[0]
            for data in block.decls:
                decl = Decl(data)
                var = self.var(decl.name)
                expect(not is_root or var.decl is None, "%s is declared twice" % var)
                missing += is_root
                var.in_root |= is_root
                if var.decl is None:
                    var.decl, var.in_original = decl, True
                var.decl.persistable |= decl.persistable
        for data in self.result.blocks[0].decls:
            decl = Decl(data)
            var = self.var(decl.name)
            expect(not var.is_declared, "%s is declared twice" % var)
            var.is_declared = True
            if var.in_original:
                expect(var.in_root, "%s is declared in an inner block" % var)
                # A mark that a block inside adds is none of the declaration in block 0.
                is_same = var.decl.declares() == decl.declares() or data in self.root_decls()
                expect(is_same, "%s is not declared as in the original" % var)
                missing -= 1
            else:
                is_id = self.main is not None and decl.type == RAW
                expect(is_id or (decl.type == DENSE and not decl.persistable),
                       "the new variable %s is a state, or no tensor" % var)
                var.decl, var.kind = decl, LOST
        expect(missing == 0, "a variable of the original is not declared")
        for var in self.vars.values():
            if var.in_original and var.decl.is_state():
                self.states.add(var.name)
                var.equal = self.main is None and var.name not in self.own

    def root_decls(self):
        if not hasattr(self, "root"):
            self.root = set(self.original.blocks[0].decls)
        return self.root

    def known(self, names):
        found = []
        for name in names:
            if name in (b"", b"@EMPTY@"):
                continue
            var = self.vars.get(name)
            expect(var is not None and var.decl is not None,
                   "%s is not declared" % name.decode("utf-8", "replace"))
            found.append(var)
        return found

    def args(self, slots):
        return [var for _, names in slots for var in self.known(names)]

    def check_plain(self, op):
        """Returns whether the op draws."""
        ring, stream = op.find(b"ring_id"), op.find(b"execution_stream")
        expect((ring is None or ring.number < 0) and op.find(b"ring_ids") is None
               and not op.type.startswith((b"c_", b"mp_", b"ps_")) and op.name not in NOT_PLAIN,
               "no certificate for originals that communicate or share memory")
        # Before Paddle 2, what print gives has the memory of what it prints.
        args = {name for _, names in op.inputs + op.outputs for name in names}
        expect(op.type != b"print" or self.original.version >= 2000000 or len(args) <= 1,
               "no certificate for originals that communicate or share memory")
        expect(stream is None or stream.text in (b"", b"DefaultStream"),
               "no certificate for originals on several streams")
        names = [attr.name for attr in op.attrs] + [slot for slot, _ in op.inputs]
        return (op.name in DRAW or any(b"seed" in name.lower() for name in names)
                or (op.name not in CONSTANT and not any(names for _, names in op.inputs)))

    def blocks_of(self, op, above):
        uses = Uses()
        for attr in op.attrs:
            if attr.type not in (BLOCK, BLOCKS):
                continue
            for block in [attr.number] if attr.type == BLOCK else attr.numbers:
                expect(block is not None and above < block < len(self.uses), "there is no such block")
                inner = self.uses[block]
                self.spend(len(inner.reads) + len(inner.writes))
                uses.reads += inner.reads
                uses.writes += inner.writes
                uses.draws |= inner.draws
        return uses

    def read_blocks(self):
        self.uses = [Uses() for _ in self.original.blocks]
        for i in range(len(self.uses) - 1, 0, -1):
            reads, writes, surely = {}, {}, set()
            for data in self.original.blocks[i].ops:
                op = Op(data)
                draws = self.check_plain(op)
                inner = self.blocks_of(op, i)
                for var in inner.reads + self.args(op.inputs):
                    if var not in surely:
                        reads[var] = True
                for var in inner.writes:
                    writes[var] = True
                surely.update(self.args(op.outputs))
                self.uses[i].draws |= draws or inner.draws
            writes.update((var, True) for var in surely)
            self.uses[i].reads, self.uses[i].writes = list(reads), list(writes)

    def run(self, steps):
        was, now = iter(self.original.blocks[0].ops), iter(self.result.blocks[0].ops)
        index = 0
        for step, count in steps:
            for _ in range(count):
                data = next(now, None)
                expect(data is not None, "proof.txt: the result has no further op")
                before = next(was, None) if step == "=" else data
                expect(before is not None, "proof.txt: the original has no further op")
                op = None
                try:
                    op = Op(data)
                    expect(is_same_op(data, before), "the op of the original is another one")
                    if step == "=":
                        self.keep(op)
                    else:
                        self.insert(op)
                except Failure as failure:
                    where = "startup: " if self.main is not None else ""
                    raise Failure("%sop %d (%s): %s" % (where, index, op.name if op else "?", failure)) from None
                index += 1
        expect(next(was, None) is None, "proof.txt: it leaves out the last ops of the original")
        expect(next(now, None) is None, "proof.txt: it leaves out the last ops of the result")
        self.check_end()

    # Streams: clocks are dictionaries; a stream that is missing counts as 0.

    def stream(self, ring):
        if ring not in self.clocks:
            expect(len(self.clocks) <= 16, "more than 16 rings")
            self.clocks[ring] = {}
        return ring

    @staticmethod
    def join(source, target):
        for stream, time in source.items():
            target[stream] = max(target.get(stream, 0), time)

    def launch(self, stream=None):
        clock = self.clocks[stream]
        self.join(self.host, clock)
        clock[stream] = clock.get(stream, 0) + 1
        return stream

    def touch(self, stream, var, writes):
        self.spend(1)
        clock = self.clocks[stream]
        for other, (read, written) in var.accesses.items():
            known = clock.get(other, 0)
            expect(other == stream or (written <= known and (not writes or read <= known)),
                   "nothing orders its access to %s after an earlier one" % var)
        var.accesses.setdefault(stream, [0, 0])[writes] = clock[stream]

    # Kept ops.

    def has_value(self, var):
        return var.has_value or (self.main is None and var.decl.persistable)

    def keep(self, op):
        draws = self.check_plain(op)
        uses = self.blocks_of(op, 0)
        has_blocks = bool(uses.reads or uses.writes)
        is_equal, is_scaled = not draws and not uses.draws, False
        role = op.find(b"op_role")
        is_backward = self.main is None and role is not None and role.number & 15 == 1
        pairs = op.find(b"op_role_var") if is_backward else None
        if pairs is not None:
            expect(len(pairs.texts) % 2 == 0, "op_role_var is no list of pairs")
            for parameter, gradient in zip(pairs.texts[::2], pairs.texts[1::2]):
                self.var(parameter).is_parameter = True
                self.var(gradient).is_gradient = True
        self.launch()
        for var in self.args(op.inputs) + uses.reads:
            expect(var.in_original, "%s is not declared in the original" % var)
            expect(var.kind in (SAME, SCALED),
                   "it reads %s, which does not have the value that it has in the original" % var)
            expect(not var.is_frozen, "it reads %s after its broadcast" % var)
            is_scaled |= var.kind == SCALED
            is_equal = is_equal and var.equal and self.has_value(var)
            var.read_first |= not var.has_value
            var.read_since = True
            self.touch(None, var, False)
        if is_scaled:
            self.check_scaled(op, has_blocks)
        for var in uses.writes + self.args(op.outputs):
            expect(var.in_original, "%s is not declared in the original" % var)
            expect(not var.is_frozen, "it writes %s after its broadcast" % var)
            expect(not var.is_reduced or not is_backward, "it writes the gradient %s again" % var)
            expect(not has_blocks or var.kind == SAME,
                   "it may leave %s, which does not have the value that it has in the original" % var)
            # Nor may a value be left that comes from outside, and that each rank has to itself.
            may_be_fed = var.decl.marks[0] or var.read_first
            was_equal = var.equal if self.has_value(var) else not may_be_fed
            var.equal = is_equal and (not has_blocks or was_equal)
            var.read_first |= has_blocks and not var.has_value
            var.read_since = has_blocks
            var.kind = SCALED if is_scaled else SAME
            var.has_value, var.is_rounded = True, False
            var.version += 1
            self.touch(None, var, True)

    def check_scaled(self, op, has_blocks):
        is_gradient = op.type.endswith(b"_grad") and not op.type.endswith(b"_grad_grad")
        bias = op.find(b"bias") if op.type == b"scale" else None
        expect(not has_blocks and (is_gradient or op.name in LINEAR) and (bias is None or (bias.type == 1 and bias.real == 0)),
               "it reads a value / n, and is not known to be linear")
        for slot, names in op.inputs:
            is_divided = not is_gradient or slot.endswith(b"@GRAD")
            for var in self.known(names):
                expect((var.kind == SCALED) == is_divided, "it reads %s, which is %sdivided by n"
                       % (var, "not " if is_divided else ""))
                self.expect_floats(var, is_divided)
        for slot, names in op.outputs:
            expect(not is_gradient or not names or slot.endswith(b"@GRAD"),
                   "its output %s is no gradient" % slot.decode("utf-8", "replace"))
            for var in self.known(names):
                self.expect_floats(var, True)

    @staticmethod
    def expect_floats(var, is_divided):
        expect(not is_divided or var.decl.dtype in FLOAT_BYTES,
               "%s, which is divided by n, is not declared as floats" % var)

    # New ops.

    def insert(self, op):
        self.op, self.attrs = op, {}
        rule = {"c_wait_compute": self.wait, "c_wait_comm": self.wait, "c_sync_calc_stream": self.wait,
                "c_sync_comm_stream": self.wait, "c_broadcast": self.broadcast, "broadcast": self.broadcast}
        if self.main is None:
            rule.update({"c_allreduce_sum": self.all_reduce, "c_allreduce_avg": self.all_reduce,
                         "all_reduce": self.all_reduce, "scale": self.scale, "cast": self.cast,
                         "coalesce_tensor": self.coalesce, "c_allgather": self.gather,
                         "all_gather": self.gather, "split": self.split, "sum": self.sum_parts})
        else:
            rule.update({"c_comm_init_all": self.init_all, "comm_init_all": self.init_all,
                         "c_gen_nccl_id": self.make_id, "c_comm_init": self.init})
        expect(op.name in rule, "no rule inserts such an op")
        rule[op.name]()
        role = op.find(b"op_role")
        goes_anywhere = rule[op.name] in (self.wait, self.broadcast)
        if self.main is None and not goes_anywhere:
            expect(role is None or role.number & 15 == 1, "attribute op_role: expected backward")

    def read_attrs(self, *known):
        expect(len(self.op.attrs) <= 64, "it has more than 64 attributes")
        for attr in self.op.attrs:
            name = attr.name.decode("utf-8", "replace")
            is_off = not attr.text and attr.number == 0
            expect(name in known or name in ORIGIN or name in ("op_role", "op_role_var")
                   or (name in ("op_device", "with_quant_attr", "use_mkldnn", "use_model_parallel") and is_off),
                   "no rule allows attribute " + name)
            expect(name not in self.attrs, "attribute %s is there twice" % name)
            self.attrs[name] = attr

    def number(self, name, absent):
        if name not in self.attrs:
            return absent
        expect(self.attrs[name].type in (INT, LONG), "attribute %s is no integer" % name)
        return self.attrs[name].number

    def flag(self, name, absent=False):
        attr = self.attrs.get(name)
        expect(attr is None or attr.type == BOOL, "attribute %s is no boolean" % name)
        return absent if attr is None else attr.number != 0

    def require(self, name, value):
        expect(self.number(name, value) == value, "attribute %s: expected %d" % (name, value))

    def is_list(self, name, numbers):
        return name not in self.attrs or self.attrs[name].numbers in ([], numbers)

    def slot(self, slots, name):
        found = None
        for slot, names in slots:
            if slot.decode("latin-1") not in (name, name[0].lower() + name[1:]):
                continue
            expect(found is None, "slot %s is there twice" % name)
            found = self.known(names)
        return found or []

    def in_out(self):
        x, out = self.slot(self.op.inputs, "X"), self.slot(self.op.outputs, "Out")
        expect(self.op.num_args() == 2 and len(x) == len(out) == 1, "expected X, Out, and no other variable")
        return x[0], out[0]

    def in_place(self):
        x, out = self.in_out()
        expect(x is out, "expected Out to be X")
        return x

    def current(self, var):
        expect(var.in_original or (var.of is not None and var.of_version == var.of.version),
               "%s holds no current value" % var)
        return var

    def new(self, var):
        expect(not var.in_original and var.buffer is None, "it writes %s" % var)
        return var

    def parts(self, var):
        if not var.is_buffer:
            return [var]
        self.spend(len(var.buffer.parts))
        return var.buffer.parts

    def use_ring(self, computes):
        ring = self.number("ring_id", 0)
        expect(0 <= ring < 1 << 31, "attribute ring_id: expected a ring")
        expect(self.main is None or ring in self.set_up or (computes and not self.set_up),
               "its ring is not set up")
        self.rings.add(ring)
        self.all_compute &= computes
        return ring

    def call(self, kind, var):
        computes = self.flag("use_calc_stream")
        ring = self.use_ring(computes)
        self.schedule.append("%d %s %d %d\n" % (ring, kind, var.decl.dtype, var.decl.elements))
        return self.launch(None if computes else self.stream(ring))

    def wait(self):
        self.read_attrs("ring_id")
        x, out = self.slot(self.op.inputs, "X"), self.slot(self.op.outputs, "Out")
        expect(x == out and self.op.num_args() == 2 * len(x), "expected X and the same Out")
        compute = self.clocks[None]
        if self.op.name == "c_sync_calc_stream":
            self.join(compute, self.host)
            return
        ring = self.clocks[self.stream(self.use_ring(False))]
        if self.op.name == "c_sync_comm_stream":
            self.join(ring, self.host)
        elif self.op.name == "c_wait_compute":
            self.join(compute, ring)
        else:
            self.join(ring, compute)

    def all_reduce(self):
        self.read_attrs("ring_id", "use_calc_stream", "accumulate_type", "reduce_type")
        reduction = self.number("reduce_type", 0)
        averages = self.op.name == "c_allreduce_avg" or reduction == 4
        expect("reduce_type" not in self.attrs or (self.op.name == "all_reduce" and reduction in (0, 4)),
               "attribute reduce_type: expected 0 or 4")
        x = self.in_place()
        stream = self.call("mean" if averages else "sum", x)
        for part in self.parts(x):
            self.reduce(part, averages)
            self.touch(stream, part, True)
        self.touch(stream, x, True)

    def reduce(self, var, averages):
        self.current(var)
        gradient = var if var.in_original else var.of
        decl, is_scaled = gradient.decl, var.kind == SCALED
        expect(gradient.is_gradient, "%s is no gradient of a parameter" % gradient)
        expect(not gradient.is_reduced, "%s is reduced twice" % gradient)
        expect(not gradient.read_since, "an op uses %s before its reduction" % gradient)
        expect(gradient.has_value and not decl.persistable and decl.type == DENSE and decl.elements >= 0
               and decl.dtype in FLOAT_BYTES,
               "%s is no tensor of a known size that this step computes" % gradient)
        expect(var.kind in (SAME, SCALED), "%s does not hold the value of a rank" % var)
        expect(not is_scaled or (not averages and not self.sums), "%s is divided by n already" % var)
        expect(not averages or not self.sums, "expected a sum, as the claim says")
        gradient.version += 1
        gradient.is_reduced = True
        self.num_gradients += 1
        if gradient is not var:
            gradient.kind = LOST
        var.of, var.of_version = gradient, gradient.version
        var.kind = SAME if is_scaled or averages or self.sums else SUM
        var.equal = True

    def scale(self):
        self.read_attrs("scale", "bias", "bias_after_scale", "nranks")
        x = self.in_place()
        factor, bias = self.attrs.get("scale"), self.attrs.get("bias")
        is_right = False
        if self.nranks and factor is not None and factor.type == 1:
            is_right = struct.pack("<f", factor.real) == struct.pack("<f", 1 / self.nranks)
        expect(is_right, "attribute scale: expected 1 / ranks")
        expect(bias is None or (bias.type == 1 and bias.real == 0), "it has a bias")
        self.require("nranks", self.nranks)
        self.launch()
        for part in self.parts(x):
            self.current(part)
            expect(not self.sums and part.kind in (SAME, SUM) and part.decl.dtype in FLOAT_BYTES,
                   "%s is not to be divided" % part)
            part.kind = SAME if part.kind == SUM else SCALED
            self.touch(None, part, True)
        self.touch(None, x, True)

    def cast(self):
        self.read_attrs("in_dtype", "out_dtype")
        x, out = self.in_out()
        source, target = x.decl.dtype, out.decl.dtype
        expect(self.number("in_dtype", -1) == source and self.number("out_dtype", -1) == target
               and source in FLOAT_BYTES and target in FLOAT_BYTES,
               "the attributes are not the types of the variables")
        expect(x.is_buffer == out.is_buffer, "the buffers have other parts")
        if x.is_buffer:
            expect(x.buffer.offsets and x.buffer.offsets == out.buffer.offsets, "the buffers have other parts")
        narrows = FLOAT_BYTES[target] < FLOAT_BYTES[source] or FLOAT_BYTES[target] == 2
        self.launch()
        for a, b in zip(self.parts(x), self.parts(out)):
            self.current(a)
            of = a if a.in_original else a.of
            expect(a.kind in (SAME, SCALED, SUM) and a.decl.dims == b.decl.dims
                   and (not b.in_original or (of is b and b.is_gradient)), "%s cannot hold %s" % (b, a))
            b.of, b.of_version, b.kind, b.equal = of, of.version, a.kind, a.equal
            b.is_rounded = a.is_rounded or narrows
            self.num_rounded += b.in_original and b.is_rounded
            self.touch(None, a, False)
            self.touch(None, b, True)
        self.touch(None, x, False)
        self.touch(None, out, True)

    def coalesce(self):
        self.read_attrs("align_size", "concated_ranks", "concated_shapes", "constant", "copy_data", "dtype",
                        "persist_output", "set_constant", "use_align", "user_defined_size_of_dtype")
        expect(not self.flag("persist_output") and not self.flag("set_constant"),
               "it fills the buffer, or keeps what is in it")
        parts = self.slot(self.op.inputs, "Input")
        fused = self.slot(self.op.outputs, "FusedOutput")
        expect(parts and parts == self.slot(self.op.outputs, "Output") and len(fused) == 1
               and self.op.num_args() == 2 * len(parts) + 1, "expected Input, the same Output, and FusedOutput")
        dtype = self.number("dtype", -1)
        size, align = FLOAT_BYTES.get(dtype), self.number("align_size", -1)
        copies, aligns = self.flag("copy_data"), self.flag("use_align", True)
        expect(size is not None and align <= 1 << 20
               and self.number("user_defined_size_of_dtype", -1) in (-1, size), "expected a type of floats")
        unit = max(1, align // size) if aligns and align > 0 else 1
        buffer, end, shapes, ranks = Buffer(parts, []), 0, [], []
        self.launch()
        for var in parts:
            decl = var.decl
            expect(decl.type == DENSE and decl.dtype == dtype and 0 <= decl.elements <= 1 << 40
                   and not decl.persistable and end < 1 << 60,
                   "%s is no tensor of a known size and of this type" % var)
            expect(var.buffer is None, "%s is in a buffer already" % var)
            var.buffer = buffer
            buffer.offsets.append(end)
            end += (decl.elements + unit - 1) // unit * unit
            shapes += decl.dims
            ranks.append(len(decl.dims))
            if copies:
                var.read_first |= not var.has_value
            else:
                var.kind = LOST
            self.touch(None, var, True)
        expect(self.is_list("concated_shapes", shapes) and self.is_list("concated_ranks", ranks),
               "its attributes have other shapes than the variables")
        var = self.new(fused[0])
        is_known = not aligns or align > 0
        expect(var.decl.dtype == dtype and (not is_known or var.decl.elements == end),
               "FusedOutput is not declared with %d elements of this type" % end)
        if not is_known:
            buffer.offsets = []
        var.buffer, var.is_buffer = buffer, True
        self.touch(None, var, True)

    def broadcast(self):
        self.read_attrs("ring_id", "root", "use_calc_stream")
        self.require("root", 0)
        var = self.in_place()
        expect(var.in_original and var.kind == SAME and self.has_value(var)
               and (self.main is not None or var.equal),
               "%s has no value, or not an equal one on all ranks" % var)
        var.is_frozen = self.main is not None
        var.equal = True
        self.touch(self.call("broadcast", var), var, True)

    def gather(self):
        self.read_attrs("ring_id", "nranks", "use_calc_stream")
        expect(self.nranks and "nranks" in self.attrs, "expected a number of ranks")
        self.require("nranks", self.nranks)
        x, out = self.in_out()
        self.new(out)
        dims = list(x.decl.dims) or [1]
        dims[0] *= self.nranks
        expect(x.in_original and x.kind in (SAME, SCALED) and x.decl.elements >= 0
               and out.decl.elements >= 0 and out.decl.dims == dims and out.decl.dtype == x.decl.dtype,
               "Out is not declared for the values of all ranks")
        out.of, out.of_version, out.kind, out.divided = x, x.version, "gathered", x.kind == SCALED
        stream = self.call("gather", x)
        self.touch(stream, x, False)
        self.touch(stream, out, True)

    def split(self):
        self.read_attrs("axis", "num", "sections")
        x, out = self.slot(self.op.inputs, "X"), self.slot(self.op.outputs, "Out")
        expect(len(x) == 1 and len(out) == self.nranks and self.op.num_args() == len(out) + 1
               and self.number("num", 0) == len(out) and self.is_list("sections", []),
               "expected a part for each rank")
        self.require("axis", 0)
        source = self.current(x[0])
        expect(source.kind == "gathered", "%s has not the values of all" % source)
        self.launch()
        self.touch(None, source, False)
        for i, part in enumerate(out):
            self.new(part)
            expect(part is not source and part.decl.elements == source.of.decl.elements
                   and part.decl.dtype == source.decl.dtype,
                   "%s is not declared for the value of a rank" % part)
            part.of, part.of_version = source.of, source.of_version
            part.kind, part.divided, part.part = "part", source.divided, i
            self.touch(None, part, True)

    def sum_parts(self):
        self.read_attrs()
        x, out = self.slot(self.op.inputs, "X"), self.slot(self.op.outputs, "Out")
        expect(len(out) == 1 and len(x) == self.nranks and self.op.num_args() == len(x) + 1,
               "expected a part for each rank")
        self.launch()
        found = set()
        for part in x:
            self.current(part)
            expect(part.kind == "part" and part.divided == x[0].divided and part.of is out[0]
                   and part.part not in found, "%s is not the value of another rank" % part)
            found.add(part.part)
            self.touch(None, part, False)
        out[0].kind = SCALED if x[0].divided else SAME
        self.reduce(out[0], False)
        self.touch(None, out[0], True)

    # Rings.

    def finish_set_up(self):
        ring = self.number("ring_id", 0)
        expect(ring not in self.set_up and ring not in self.rings, "the ring is set up twice, or after its use")
        self.set_up.add(ring)
        self.join(self.clocks[None], self.host)

    def init_all(self):
        self.read_attrs("ring_id", "nranks", "devices")
        self.require("nranks", self.nranks)
        devices = self.attrs["devices"].numbers if "devices" in self.attrs else []
        expect(self.op.num_args() == 0 and (not devices or len(devices) == self.nranks),
               "the ring does not have all ranks")
        self.finish_set_up()

    def make_id(self):
        self.read_attrs("rank", "endpoint", "other_endpoints", "ring_id")
        out, rank = self.slot(self.op.outputs, "Out"), self.number("rank", 0)
        expect(len(out) == 1 and self.op.num_args() == 1 and self.nranks and "endpoint" in self.attrs
               and "other_endpoints" in self.attrs and 0 <= rank <= len(self.attrs["other_endpoints"].texts),
               "expected Out, endpoints, a rank, and a known number of ranks")
        all_of = list(self.attrs["other_endpoints"].texts)
        all_of.insert(rank, self.attrs["endpoint"].text)
        expect(len(all_of) == len(set(all_of)) == self.nranks
               and (self.rank is None or (all_of == self.endpoints and rank == self.rank)),
               "expected an endpoint for each rank, the same for all rings")
        self.endpoints, self.rank = all_of, rank
        var = self.new(out[0])
        expect(var.decl.type == RAW and not var.has_value, "%s is no new id" % var)
        var.has_value = True
        self.join(self.clocks[None], self.host)

    def init(self):
        self.read_attrs("ring_id", "nranks", "rank", "device_id", "endpoints")
        x = self.slot(self.op.inputs, "X")
        expect(len(x) == 1 and self.op.num_args() == 1, "expected X")
        expect(not x[0].in_original and x[0].has_value and not x[0].is_frozen, "%s is the id of no ring" % x[0])
        x[0].is_frozen = True
        expect(self.number("nranks", 0) == self.nranks and self.rank is not None
               and self.number("rank", -1) == self.rank
               and ("endpoints" not in self.attrs or not self.attrs["endpoints"].text),
               "the ring does not have all ranks, or this one has another number")
        self.finish_set_up()

    def check_end(self):
        known = dict(self.clocks[None])
        self.join(self.host, known)
        for stream, clock in self.clocks.items():
            expect(known.get(stream, 0) == clock.get(stream, 0), "the program ends while communication goes on")
        differing = []
        for var in self.vars.values():
            if not var.in_original:
                continue
            is_own = var.name in self.own
            expect(not var.is_gradient or var.is_reduced, "the gradient %s is not reduced" % var)
            expect(not var.is_parameter or (var.decl.is_state() and not is_own),
                   "%s is no state of all ranks" % var)
            expect(var.kind == SAME or (not var.decl.persistable and not var.read_first),
                   "the step leaves %s with another value than the original does" % var)
            self.num_others += var.kind != SAME
            self.num_parameters += var.is_parameter
            is_shared = (var.decl.is_state() if self.main is None
                         else var.has_value and var.name in self.main.states)
            if is_shared and not is_own and not var.equal:
                differing.append(var)
        expect(self.main is not None or self.own <= self.states, "proof.txt: an own variable is no state")
        expect(not differing, "%s may differ between ranks" % (differing and differing[0]))
        expect(self.main is not None or self.num_gradients > 0, "no gradient is reduced")
        for ring in self.main.rings if self.main is not None else ():
            is_outside = not self.set_up and self.main.all_compute and self.all_compute
            expect(ring in self.set_up or is_outside, "ring %d is not set up" % ring)


# --- The certificate -------------------------------------------------------------------------------


def number_in(text, where):
    expect(re.fullmatch(b"[0-9]{1,18}", text) and int(text) > 0, where + ": expected a number")
    return int(text)


def parse_proof(text):
    lines = text.split(b"\n")
    expect(lines[0] == b"weft-proof 1", "proof.txt: unknown version")
    if lines[-1] == b"":
        lines.pop()
    own, steps, at = set(), {"main": [], "startup": []}, None
    for line in lines[1:]:
        if line in (b"main", b"startup"):
            at = line.decode()
        elif line.startswith(b"own "):
            own.add(line[4:])
        else:
            expect(at is not None and line[:1] in (b"=", b"+"), "proof.txt: unknown line")
            steps[at].append((line[:1].decode(), number_in(line[1:], "proof.txt")))
    return own, steps


def value_of(key, claim):
    for line in claim.split(b"\n"):
        if line.startswith(key):
            return line[len(key):]
    raise Failure("claim.txt: no line begins with " + key.decode())


def claim_text(main, startup, files, nranks, by, own):
    hashes = [hashlib.sha256(file).hexdigest() for file in files] + ["none"] * (4 - len(files))
    rank = b"all"
    if startup is not None and startup.rank is not None:
        rank = b" ".join([b"%d, endpoints" % startup.rank] + startup.endpoints)
    schedule = hashlib.sha256("".join(main.schedule).encode()).hexdigest()[:16]
    head = b"""Weft certificate 1
original: %s
result: %s
original startup: %s
result startup: %s
startup of rank: %s
ranks: %s
gradients: %s
schedule: %s, %d calls on %d rings

Checked:
- On each rank, the result computes what the original computes on the data of this rank,
  with gradients (%d of %d parameters) replaced by their %s over the ranks.
- Each gradient is replaced once, when it is complete and before its first use.
- States that are equal on all ranks before a step are equal after it.
- No result depends on the timing of streams; all ranks make the same calls in one order.
""" % (*(text.encode() for text in hashes), rank, b"%d" % nranks if nranks else b"any", by, schedule.encode(),
       len(main.schedule), len(main.rings), main.num_gradients, main.num_parameters, by)
    begin = ("- Not checked, as no startup programs were given: that states are equal at first.\n"
             if startup is None else
             "- After the startup program, states are equal: what the original's leaves on rank 0.\n")
    names = b" ".join(sorted(own)) or b"none"
    return head + begin.encode() + b"""Exceptions:
- states of which each rank has its own: """ + names + ("""
- gradients that are rounded to fewer bits on their way: %d
- variables that are not the original's when the step ends, but 1/n of them or unset: %d
Assumed:
- Every rank runs this program, and a startup program that is certified for it.
- Kept ops compute the same from the same values, and write only their outputs, in place.
- Gradient ops (..._grad) are linear in their inputs ...@GRAD.
- Sums and quotients are rounded; states that no startup program sets are set equally.
Asserted by Weft, not checked:
- How this relates to one device with the batch of all ranks (weft verify).
""" % (main.num_rounded, main.num_others)).encode()


def check(claim, proof, files):
    ranks, by = value_of(b"ranks: ", claim), value_of(b"gradients: ", claim)
    nranks = 0 if ranks == b"any" else number_in(ranks, "claim.txt: ranks")
    expect(nranks <= 1 << 20, "claim.txt: too many ranks")
    expect(by in (b"mean", b"sum"), "claim.txt: gradients: expected mean or sum")
    own, steps = parse_proof(proof)
    main = Walk(files[0], files[1], nranks, by == b"sum", own, None)
    main.run(steps["main"])
    startup = None
    if len(files) == 4:
        startup = Walk(files[2], files[3], nranks, by == b"sum", own, main)
        startup.run(steps["startup"])
    right = claim_text(main, startup, files, nranks, by, own).split(b"\n")
    for i, line in enumerate(claim.split(b"\n")):
        expected = right[i] if i < len(right) else b"no such line"
        expect(line == expected, "claim.txt: expected %s, found %s"
               % (expected.decode("utf-8", "replace"), line.decode("utf-8", "replace")))
    expect(claim.count(b"\n") == len(right) - 1, "claim.txt: it is cut off")


def main(argv):
    if len(argv) not in (4, 6):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        content = []
        for path in [argv[1] + "/claim.txt", argv[1] + "/proof.txt"] + argv[2:]:
            with open(path, "rb") as file:
                content.append(file.read())
        check(content[0], content[1], content[2:])
    except (Failure, OSError) as failure:
        print("not certified: %s" % failure)
        return 1
    print("certified: %s\n" % argv[3])
    sys.stdout.flush()
    sys.stdout.buffer.write(content[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
