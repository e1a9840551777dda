#!/usr/bin/env python3
"""Checks a certificate, by docs/certificate.md: weft_check.py DIR ORIGINAL RESULT [ORIGINAL_STARTUP STARTUP]

Needs the standard library only, and shares nothing with the checker in C++ but that page. Exit status 0:
certified; 1: not; 2: wrong usage.
"""

import copy
import hashlib
import itertools
import json
import math
import os
import re
import struct
import sys

DENSE, ROWS, SCOPES, ARRAY, RAW = 7, 8, 11, 13, 17
FLOAT_BYTES = {4: 2, 5: 4, 6: 8, 22: 2}
INT, FLOAT, STRING, INTS, STRINGS, BOOL, BLOCK, LONG, BLOCKS, LONGS = 0, 1, 2, 3, 5, 6, 8, 9, 10, 11
VALUE_FIELD = {INT: 3, FLOAT: 4, STRING: 5, INTS: 6, STRINGS: 8, BOOL: 10, BLOCK: 12, LONG: 13, BLOCKS: 14, LONGS: 15}
LISTS = (INTS, STRINGS, BLOCKS, LONGS)

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
CONSTANT = {"fill_constant", "assign_value", "fill", "full", "full_int_array", "arange"}
LINEAR = {"sum", "scale", "cast", "assign", "concat", "elementwise_add", "elementwise_sub"}
ORIGIN = ("op_callstack", "op_namescope")
NO_RULE = (  # what a setting says of results that no rule makes
    (b'distributed_params"', "no rule is for parameters of which the user gives each rank a part"),
    (b'groups"', "no rule reduces gradients over some of the ranks"),
    (b'ordered_by_data"', "no rule orders ops by their data alone"),
    (b'assumptions"', "no rule is for ops of which only the user knows what they do"),
    (b"\\", "its setting has a backslash"),
)

# The rules for new ops: where (m: main, s: startup; where states are shared out, also d and e; where parameters are
# averaged, a and t; its role in main programs is backward, or optimize where parameters are averaged; *: any; f: where
# states are shared out, forward, too), types, slots of inputs and outputs, attributes, and the method that does the
# rest. Of attributes: i integer, b boolean, f float, s text, S texts, I integers, B block, n the number of ranks,
# 0 nothing (zero, false, or empty), * anything.
RULES = """
msat* c_wait_compute,c_wait_comm,c_sync_calc_stream,c_sync_comm_stream X Out ring_id:i wait
mst* c_broadcast,broadcast X Out ring_id:i,use_calc_stream:b,root:0 broadcast
ma c_allreduce_sum,c_allreduce_avg X Out ring_id:i,use_calc_stream:b,accumulate_type:* all_reduce
ma all_reduce X Out ring_id:i,use_calc_stream:b,accumulate_type:*,reduce_type:i all_reduce
d c_allreduce_max X Out ring_id:i,use_calc_stream:b all_reduce
mda scale X Out scale:f,bias:0,bias_after_scale:*,nranks:n scale
ma cast X Out in_dtype:i,out_dtype:i cast
mdeaf coalesce_tensor Input Output,FusedOutput align_size:i,concated_ranks:I,concated_shapes:I,constant:*,copy_data:b,\
dtype:i,persist_output:0,set_constant:0,use_align:b,user_defined_size_of_dtype:i coalesce
mdf c_allgather,all_gather X Out ring_id:i,nranks:n,use_calc_stream:b gather
m split X Out axis:0,num:n,sections:0 split
m sum X Out - sum_parts
st c_comm_init_all,comm_init_all - - ring_id:i,nranks:n,devices:I set_up_ring
st c_gen_nccl_id - Out rank:i,endpoint:s,other_endpoints:S,ring_id:i make_id
st c_comm_init X - ring_id:i,nranks:n,rank:i,device_id:*,endpoints:0 init
d c_reducescatter,reduce_scatter X Out ring_id:i,nranks:n,use_calc_stream:b scatter
de fill_constant - Out dtype:i,shape:I,value:f,str_value:s fill_new
e alltoall,all_to_all X Out ring_id:i,use_calc_stream:b send_parts
e slice Input Out axes:I,starts:I,ends:I slice_share
a assign X Out - compute
a elementwise_add,elementwise_sub,elementwise_mul,elementwise_div,elementwise_mod,equal,less_than,greater_equal,\
logical_and,logical_or X,Y Out axis:i compute
a increment X Out step:f count
a fill_constant - Out dtype:i,shape:I,value:f,str_value:s fill
a conditional_block Cond,Input Out,Scope sub_block:B,is_scalar_condition:b run_branch
t assign X Out - begin_state
t fill_constant - Out dtype:i,shape:I,value:f,str_value:s begin_state
"""
RULES = [row.split() for row in RULES.strip().split("\n")]
OF_ALL = ("op_role:i,op_role_var:*,op_callstack:*,op_namescope:*,op_device:0,with_quant_attr:0,use_mkldnn:0,"
          "use_model_parallel:0")
KINDS = {"i": (INT, LONG), "n": (INT, LONG), "b": (BOOL,), "f": (FLOAT,), "s": (STRING,), "S": (STRINGS,),
         "I": (INTS, LONGS), "B": (BLOCK,), "0": tuple(VALUE_FIELD), "*": None}

SAME, SCALED, SUM, LOST, OLD = "same", "scaled", "sum", "lost", "old"  # Var.kind
WHOLE, GATHERED = "whole", "gathered"  # Var.form; of rank i: i
COMPUTE, HOST = "compute", "host"  # streams; others are those of rings, by their number

# Averaging: ops of two inputs, the sign in formulas, and element types of inputs and outputs.
BOOLEAN, INT64, FLOATS = 0, 3, -1
BINARY = {"elementwise_add": ("+", FLOATS, FLOATS), "elementwise_sub": ("-", FLOATS, FLOATS),
          "elementwise_mul": ("*", FLOATS, FLOATS), "elementwise_div": ("/", FLOATS, FLOATS),
          "elementwise_mod": ("mod", INT64, INT64), "equal": ("=", INT64, BOOLEAN), "less_than": ("<", INT64, BOOLEAN),
          "greater_equal": (">=", INT64, BOOLEAN), "logical_and": ("and", BOOLEAN, BOOLEAN),
          "logical_or": ("or", BOOLEAN, BOOLEAN)}
# Shares: ops that compute each element of what they write from the elements at its place, and from numbers; and the
# outputs that are numbers, of numbers alone, but for NORM.
ELEMENTWISE = dict.fromkeys("""sgd momentum adagrad decayed_adagrad rmsprop adadelta ftrl scale sum cast clip assign sign
abs square sqrt elementwise_add elementwise_sub elementwise_mul elementwise_div""".split(), ())
ELEMENTWISE.update(dict.fromkeys(("adam", "adamw"), ("Beta1PowOut", "Beta2PowOut")), squared_l2_norm=("Out",))
ELEMENTWISE.update(lamb=ELEMENTWISE["adam"], lars_momentum=(), clip_by_norm=())
WHOLE_ONLY = ("lamb", "lars_momentum", "clip_by_norm")  # of whole tensors, of which each rank has one
NUMBERS = """LearningRate Beta1Pow Beta2Pow Beta1Tensor Beta2Tensor EpsilonTensor SkipUpdate Min Max ScaleTensor
BiasTensor""".split()  # inputs of which ops read the first element
# Of lists of tensors, in slots X and Out.
OF_LISTS = ("check_finite_and_unscale", "update_loss_scaling")
ELEMENTWISE.update(dict.fromkeys(OF_LISTS, ("FoundInfinite", "LossScaling", "OutGoodSteps", "OutBadSteps")))
NORM = "squared_l2_norm"  # the sum of the squares of all elements
TYPE_NAMES = {4: "fp16", 5: "fp32", 6: "fp64", 22: "bf16"}


class Failure(Exception):
    pass


def expect(condition, why):
    if not condition:
        raise Failure(why)


def text(data):
    return data.decode("utf-8", "backslashreplace")


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


class Field:
    __slots__ = ("number", "wire", "value", "place")

    def __init__(self, number, wire, value, place):
        self.number, self.wire, self.value, self.place = number, wire, value, place

    def whole(self):
        data, begin, end = self.place
        return data[begin:end]

    def of(self, wire):
        expect(self.wire == wire, "field %d has another wire type than in the format" % self.number)
        return self.value

    def bytes(self):
        return self.of(2)

    def int(self):
        value = self.of(0)
        return value - (1 << 64) if value >> 63 else value

    def float(self):
        return struct.unpack("<f", self.of(5))[0]

    def is_zero(self):
        return not (any(self.value) if self.wire in (1, 5) else self.value)


def fields(data, wanted=None):
    at, end = 0, len(data)
    while at < end:
        begin = at
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        expect(number > 0, "a message has a field 0")
        expect(wire in (0, 1, 2, 5), "a field has an unknown wire type")
        value, at = (8, at) if wire == 1 else (4, at) if wire == 5 else varint(data, at, end)
        if wire != 0:
            size = value
            expect(size <= end - at, "a message is cut off")
            value = data[at:at + size]
            at += size
        if wanted is None or number == wanted:
            yield Field(number, wire, value, (data, begin, at))


def only(data, number):
    """The field of that number, or None. Readers differ in which one counts if there are two."""
    found = list(fields(data, number))
    expect(len(found) <= 1, "a field is there twice")
    return found[0] if found else None


def bytes_of(data, number):
    field = only(data, number)
    return b"" if field is None else field.bytes()


def int_of(data, number):
    field = only(data, number)
    return 0 if field is None else field.int()


class Attr:
    def __init__(self, data):
        self.data, self.name, self.type = data, text(bytes_of(data, 1)), int_of(data, 2)

    def values(self):
        """The fields that hold the value: those that belong to the type."""
        found = list(fields(self.data, VALUE_FIELD[self.type])) if self.type in VALUE_FIELD else []
        expect(len(found) <= (1 << 20 if self.type in LISTS else 1), "attribute %s has more values" % self.name)
        return found

    def ints(self):
        return [field.int() for field in self.values()]

    def texts(self):
        return [field.bytes() for field in self.values()]

    def is_zero(self):
        return self.type in VALUE_FIELD and all(field.is_zero() for field in self.values())


class Op:
    def __init__(self, data):
        data = bytes(data)
        self.data, self.attrs, self.slots, types = data, {}, {}, []
        self.places = []  # of each argument: whether it is an output, its slot, its place there, its name
        count = 0
        for field in fields(data):
            if field.number in (1, 2):
                names = [arg.bytes() for arg in fields(field.bytes(), 2)]
                slot = field.number == 2, bytes_of(field.value, 1).decode("latin-1")
                expect(slot not in self.slots, "an %s slot is there twice" % ("output" if slot[0] else "input"))
                self.slots[slot] = [name for name in names if name not in (b"", b"@EMPTY@")]
                self.places += [(*slot, i, name) for i, name in enumerate(names) if name not in (b"", b"@EMPTY@")]
            elif field.number == 3:
                types.append(field.bytes())
            elif field.number == 4:
                attr = Attr(field.bytes())
                # Paddle writes some attributes twice, with one value.
                expect(self.attrs.setdefault(attr.name, attr).data == attr.data,
                       "attribute %s is there twice" % attr.name)
            count += field.number in (1, 2, 4)
        expect(count <= 256, "it has too many slots or attributes")
        expect(len(types) <= 1, "its type is there twice")
        self.type = text(types[0]) if types else ""

    def args(self, is_output):
        return [name for (is_it, _), names in self.slots.items() if is_it == is_output for name in names]

    def ints(self, name):
        return self.attrs[name].ints() if name in self.attrs else []

    def number(self, name, absent):
        return (self.ints(name) or [0])[0] if name in self.attrs else absent

    def essence(self, first=1, but=ORIGIN):
        """The fields of that number and higher ones, in an order of their own."""
        kept = sorted(field.whole() for field in fields(self.data)
                      if field.number != 4 or text(bytes_of(field.bytes(), 1)) not in but)
        expect(len(kept) <= 512, "it has too many fields")
        return [field for field in kept if next(fields(field)).number >= first]

    def is_same(self, other, first=1):
        return self.data == other.data or self.essence(first) == other.essence(first)

    def slots_of(self):
        return [place[:3] for place in self.places]

    def attributes(self):
        return self.essence(4, ORIGIN + ("op_role_var",))


class Var:
    """A declaration, and what the variable holds in the course of the walk."""

    # At first. parts: pairs of a part and where it begins, or None. accesses: a stream each: [stream, last read, last write]. late: the
    # stream on which it may travel when a step begins. block: of the result. formula: what it holds where parameters are
    # averaged; "": lost. changed_by: conditions of branches.
    # Where states are shared out: is_elsewhere: a state that is in shares, or in another variable. Which values are equal
    # numbers, of the value, and of the one that it is OLD with; what each rank has a part of; what makes it a constant; the
    # numbers of which it is the sum: on this rank, a part of it, or on all.
    FIRST = dict(
        dict.fromkeys("""in_buffer in_result is_own equal has_value read_first read_since is_gradient is_reduced is_parameter
                         is_frozen is_rounded is_elsewhere""".split(), False),
        of=None, of_version=0, version=0, kind=LOST, form=WHOLE, parts=(), accesses=(), late=None, block=0, formula=None,
        changed_by=(), number=None, old_number=None, share=None, constant=None, total=None)
    __slots__ = (*FIRST, "data", "name", "persistable", "is_data", "type", "elements", "dtype", "dims", "is_state",
                 "float_size", "is_floats")

    def __init__(self, data):
        data = bytes(data)
        for name, value in Var.FIRST.items():
            setattr(self, name, value)
        self.data, self.name, described = data, bytes_of(data, 1), bytes_of(data, 2)
        self.persistable, self.is_data = int_of(data, 3) != 0, int_of(data, 4) != 0
        self.type = int_of(described, 1)
        # The tensor of rows is there itself, others in a message of their own.
        inner = described if self.type == ROWS else bytes_of(described, 4 if self.type == ARRAY else 3)
        tensor = only(inner, 2 if self.type == ROWS else 1)
        self.elements = -1 if tensor is None else 1
        tensor = b"" if tensor is None else tensor.bytes()
        self.dtype = int_of(tensor, 1)
        self.dims = tuple(field.int() for field in fields(tensor, 2))
        expect(len(self.dims) <= 64, "too many dimensions")
        for dim in self.dims:
            is_known = dim > 0 and self.elements > 0 and self.elements * dim < 1 << 63
            self.elements = self.elements * dim if is_known else -1
        self.is_state = self.persistable and self.type in (DENSE, ROWS, ARRAY)
        self.float_size = FLOAT_BYTES.get(self.dtype, 0)
        self.is_floats = self.type == DENSE and not self.persistable and self.elements >= 0 and self.float_size > 0

    def __str__(self):
        return text(self.name)


def parts_of(var):
    return [part for part, _ in var.parts] or [var]


def expect_printable(var):
    """States are named in the claim, of which names must not make lines."""
    expect(not var.persistable or all(byte > 32 and byte != 127 for byte in var.name),
           "%s is a state whose name has blanks or control characters" % var)


def expect_no_attrs(var):
    """By an attribute, a declaration says that the host sets the variable before each step."""
    expect(not any(fields(var.data, 7)), "%s is new, or shared out, and its declaration has an attribute" % var)


def current(var, is_whole=True):
    expect(var.of is not None and (var.of is var or var.of_version == var.of.version) and var.kind not in (LOST, OLD)
           and (not is_whole or var.form == WHOLE), "%s holds no current value" % var)
    return var


def hold(value, form, var):
    var.of, var.of_version, var.kind, var.equal, var.form = value.of, value.of.version, value.kind, value.equal, form


def new(var):
    expect(var.of is not var and not var.in_buffer and not var.parts, "it may not use %s" % var)
    return var


def one(variables):
    expect(len(variables) == 1, "expected one X, and one Out")
    return variables[0]


class Share:
    def __init__(self, parts, kind=SAME, is_zero=False, has_zeros=False):
        self.parts, self.kind, self.is_of_ranks, self.is_zero = parts, kind, False, is_zero
        self.has_zeros = has_zeros  # its padding is 0
        self.any = None  # LOST: says whether elements may be other ones


class Sum:
    def __init__(self, of, is_whole=False, is_any=False):
        self.of, self.is_whole, self.is_any = of, is_whole, is_any  # any: whether any element is infinite


def in_list(place):
    return place[1] == ("Out" if place[0] else "X")


def expect_free(var):
    expect((var.of is None or var.of is var) and not var.persistable and not var.parts and not var.in_buffer
           and var.share is None, "%s is no variable for sums" % var)


def hold_number(made, var):
    """A variable holds a number that all ranks have found."""
    # Else the parts would be of different tensors.
    expect(made[0].equal, "%s may differ between ranks" % made[0])
    var.of, var.of_version, var.kind, var.form, var.equal = *made[:2], SAME, WHOLE, True
    var.total = None


def is_number(var, like):
    return var.type == DENSE and var.elements == 1 and var.float_size > 0 and var.dtype == like.dtype


def is_tensor(var):
    return var.type == DENSE and var.elements > 1


def is_current(part):
    return part[1] == part[0].version


def are_equal(a, b):
    """Parts: a variable of the original, its version, its number."""
    return a[:2] == b[:2] or (a[2] is not None and a[2] == b[2])


def held(var):
    expect(var.of is var and var.kind in (SAME, OLD), "%s holds no value of the original" % var)
    return (var, var.version, var.number) if var.kind == SAME else (var, var.of_version, var.old_number)


def is_times(whole, part, times):
    return times and 0 < part.elements <= 1 << 40 and part.elements * times == whole.elements and part.dtype == whole.dtype


def packed(buffer, other, times):
    """What a buffer holds one after the other, before padding."""
    expect(buffer.parts and is_times(buffer, other, times), "expected a buffer of tensors, and another variable for its parts")
    end, found = 0, []
    for part, offset in buffer.parts:
        expect(offset == end, "%s begins elsewhere in the buffer" % part)
        end += part.elements
        found += [part] if part.of is not None else []
    expect(found == [part for part, _ in buffer.parts[:len(found)]], "padding comes before another part")
    return found


def hold_share(variables, buffer, kind, out):
    for var in variables:
        expect(is_tensor(var.of) and (var.dtype, var.dims) == (var.of.dtype, var.of.dims),
               "%s is no tensor of several elements" % var)
    expect(variables, "the buffer holds nothing")
    for padding, _ in buffer.parts[len(variables):]:
        expect(padding.constant and padding.constant[1], "%s is padding, and does not hold 0" % padding)
    set_share(out, Share([(var.of, var.of.version, None) for var in variables], kind, has_zeros=True))


def set_share(var, share):
    expect(var.of is None and var.type == DENSE and not var.parts and not var.in_buffer, "%s is no variable for shares" % var)
    var.share, var.total = share, None


def setting_of(data):
    raw = data.decode("latin-1")
    check_depth(raw)
    try:
        json.loads(raw, parse_int=str)  # of any length
    except (ValueError, RecursionError) as error:
        raise Failure("setting of the result: %s" % error) from None
    return members(raw)


def check_depth(data):
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', data):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        expect(depth <= 64, "the JSON has too many values inside one another")


# --- The walk --------------------------------------------------------------------------------------


def blocks_of(data):
    blocks = [field.bytes() for field in fields(data, 1)]
    expect(blocks, "the file has no block: it is no program")
    expect(len(blocks) <= 1 << 16 and all(int_of(block, 1) == i for i, block in enumerate(blocks)),
           "there are too many blocks, or they are not in order")
    return blocks


def without(data, *numbers):
    others = [field.whole() for field in fields(data) if field.number not in numbers]
    expect(len(others) <= 512, "the file, or block 0, has too many fields")
    return others


class Walk:
    def __init__(self, original, result, nranks, by, main):
        self.blocks, blocks = blocks_of(original), blocks_of(result)
        self.result, self.nranks, self.sums, self.main = blocks[0], nranks, by == "sum", main
        self.averages, self.has_ended = by == "own", False
        self.block, self.condition, self.counter, self.rates = 0, "", None, {}
        self.reads, self.writes, self.changed, self.branches, self.walked = set(), set(), {}, [], set()
        self.first, self.changes, self.synchronized, self.late = {}, "", set(), []
        self.layout, self.common, self.elsewhere, self.left_out, self.num_numbers, self.num_sums = {}, {}, set(), {}, 0, 0
        if main is not None:
            self.layout, self.common, self.elsewhere = main.layout, main.common, main.elsewhere
        is_more = self.averages and main is None
        self.new_blocks = blocks[len(self.blocks):] if is_more else []
        self.version = int_of(bytes_of(original, 4), 1)
        self.vars = {}
        self.clocks = {COMPUTE: {}, HOST: {}}  # of each stream: of others, the last op that has ended for sure
        self.set_up, self.endpoints, self.rank = set(), [], 0
        self.rings, self.schedule, self.all_compute = set(), [], True
        self.num_gradients = self.num_rounded = self.num_others = self.num_parameters = 0
        self.work = 1000 + 16 * len(result)
        self.check_setting(bytes(byte for byte in bytes_of(result, 1001) if byte > 32))
        for block in self.new_blocks:
            expect(len(without(block, 3, 4)) <= 2 and int_of(block, 2) == 0,
                   "a new block has another field, or is in another block than block 0")
        expect(without(original, 1, 1001) == without(result, 1, 1001)
               and len(blocks) == len(self.blocks) + len(self.new_blocks)
               and without(blocks[0], 3, 4) == without(self.blocks[0], 3, 4)
               and blocks[1:len(self.blocks)] == self.blocks[1:], "the result has another version or other blocks")
        self.declare()

    def check_setting(self, setting):
        for part, why in NO_RULE:
            expect(part not in setting, why)
        expect(self.averages or b'averaging"' not in setting, "no rule averages parameters where gradients are reduced")
        self.setting = setting
        if b'shares"' in setting or b'common"' in setting:
            self.read_shares(setting)
        for key, value in (("nranks", str(self.nranks)), ("reduction", '"sum"' if self.sums else '"mean"')):
            for rest in setting.split(b'"%s":' % key.encode())[1:]:
                expect(re.match(re.escape(value.encode()) + b"[,}]", rest),
                       "setting of the result: %s: expected %s" % (key, value))

    def declare(self):
        self.locals = [set()]
        for i, block in enumerate(self.blocks[1:]):
            decls = [Var(field.bytes()) for field in fields(block, 3)]
            expect(not any(decl.persistable for decl in decls), "block %d has a state" % (i + 1))
            self.locals.append({decl.name for decl in decls})
        for field in fields(self.blocks[0], 3):
            var = Var(field.bytes())
            expect(var.name not in self.vars, "%s is declared twice" % var)
            self.vars[var.name] = var.of = var
            expect_printable(var)
            var.kind, var.equal = SAME, self.main is None and var.is_state
        for field in fields(self.result, 3):
            declared = Var(field.bytes())
            var = self.vars.setdefault(declared.name, declared)
            expect(not var.in_result, "%s is declared twice" % var)
            is_elsewhere = var.name in self.elsewhere
            expect(not declared.persistable and without(var.data, 3, 5) == without(declared.data, 3, 5) if is_elsewhere
                   else var.data == declared.data, "%s is not declared as in the original" % var)
            is_ring = self.main is not None and var.type == RAW
            is_scope = self.averages and var.type == SCOPES and not var.persistable
            is_known = var.name in self.layout or (self.averages and (self.main is None or var.name in self.main.first))
            expect(var.of is var or is_ring or is_scope or (var.type == DENSE and (not var.persistable or is_known)),
                   "the new variable %s is a state, or no tensor" % var)
            known = self.main.vars.get(var.name) if is_known and self.main is not None and var.of is None else None
            expect(known is None or known.data == var.data, "%s is declared otherwise in the main program" % var)
            var.in_result = True
            if var.of is None:
                expect_printable(var)
                expect_no_attrs(var)
                var.equal = self.main is None and var.persistable
        for i, block in enumerate(self.new_blocks):
            for field in fields(block, 3):
                var = Var(field.bytes())
                expect(var.name not in self.vars, "%s is declared twice" % var)
                expect(var.type == DENSE and not var.persistable, "the new variable %s is a state, or no tensor" % var)
                self.vars[var.name] = var
                var.in_result, var.block = True, len(self.blocks) + i
        leaves_out = self.main is None and self.layout  # what ops used that are left out need not be declared
        for var in self.vars.values():
            var.is_elsewhere = var.name in self.elsewhere
            expect(var.in_result or var.is_elsewhere or (leaves_out and not var.persistable),
                   "a variable of the original is not declared")
            if not var.in_result:
                var.kind = LOST
        if leaves_out:
            self.begin_shares()

    def var(self, name):
        expect(name in self.vars, "%s is not declared" % text(name))
        return self.vars[name]

    def spend(self, steps=1):
        self.work -= steps
        expect(self.work >= 0, "following the programs takes too much time")

    def run(self, words):
        """Follows the steps, to their end, or to "startup": True."""
        was, now = fields(self.blocks[0], 4), fields(self.result, 4)
        index, is_main_end = 0, False
        for word in words:
            is_main_end = self.main is None and word == b"startup"
            if is_main_end:
                break
            expect(re.fullmatch(b"[=+-][0-9]{1,18}", word), "proof.txt: expected a step")
            is_new, is_left_out = word[:1] == b"+", word[:1] == b"-"
            for _ in range(int(word[1:])):
                data = None if is_left_out else next(now, None)
                expect(data is not None or is_left_out, "proof.txt: the result has no further op")
                before = data if is_new else next(was, None)
                expect(before is not None, "proof.txt: the original has no further op")
                self.op = None
                try:
                    self.op = Op((data or before).bytes())
                    if is_new:
                        self.insert()
                    elif is_left_out or self.op.data == before.bytes():
                        self.keep(self.op, is_left_out)
                    else:
                        op = Op(before.bytes())
                        expect(self.op.is_same(op, 1) or (self.layout and self.op.is_same(op, 2)),
                               "the op of the original is another one")
                        self.keep(op, False)
                except Failure as failure:
                    raise Failure("%s%s %d (%s): %s" % ("" if self.main is None else "startup: ",
                                                        "left out before op" if is_left_out else "op", index,
                                                        self.op.type if self.op else "?", failure)) from None
                index += not is_left_out
        expect(next(was, None) is None, "proof.txt: it leaves out the last ops of the original")
        expect(next(now, None) is None, "proof.txt: it leaves out the last ops of the result")
        self.check_end()
        return is_main_end

    # Streams: clocks are dictionaries; a stream that is missing counts as 0.

    def stream(self, ring):
        expect(ring in self.clocks or len(self.clocks) < 18, "more than 16 rings")
        self.clocks.setdefault(ring, {})
        return ring

    def join(self, source, target):
        for stream, time in self.clocks[source].items():
            self.clocks[target][stream] = max(self.clocks[target].get(stream, 0), time)

    def launch(self, stream=COMPUTE):
        self.join(HOST, stream)
        self.clocks[stream][stream] = self.clocks[stream].get(stream, 0) + 1
        return stream

    def touch(self, stream, var, writes):
        """An access to a buffer is one to all of its parts."""
        clock = self.clocks[stream]
        expect(var.in_result, "%s is not declared in the result" % var)
        for part in [part for part, _ in var.parts] + [var]:
            self.spend()
            own = None
            for access in part.accesses:
                other, read, written = access
                known = clock.get(other, 0)
                expect(other == stream or (written <= known and (not writes or read <= known)),
                       "nothing orders its access to %s after an earlier one" % part)
                own = access if other == stream else own
            if own is None:
                own = [stream, 0, 0]
                part.accesses += (own,)
            own[1 + writes] = clock[stream]

    # Kept ops.

    def has_value(self, var):
        return var.has_value or (self.main is None and var.persistable)

    def check_plain(self, op):
        """An op of the original neither communicates nor shares memory. Returns whether it draws."""
        is_plain = op.type not in NOT_PLAIN and not op.type.startswith(("c_", "mp_", "ps_"))
        # Before Paddle 2, what print gives has the memory of what it prints.
        inputs, outputs = op.args(False), op.args(True)
        is_plain = is_plain and (op.type != "print" or self.version >= 2000000 or len(set(inputs + outputs)) <= 1)
        is_plain = is_plain and "ring_ids" not in op.attrs and all(ring < 0 for ring in op.ints("ring_id"))
        if "execution_stream" in op.attrs:
            is_plain = is_plain and all(s in (b"", b"DefaultStream") for s in op.attrs["execution_stream"].texts())
        expect(all(attr.type not in (13, 14) for attr in op.attrs.values()), "an attribute names a variable")
        expect(is_plain, "no certificate for originals that communicate or share memory")
        names = list(op.attrs) + [slot for is_output, slot in op.slots if not is_output]
        return (op.type in DRAW or any("seed" in name or "Seed" in name for name in names)
                or (op.type not in CONSTANT and not inputs))

    def add_uses(self, op, path, reads, writes):
        """Adds what an op in blocks `path`, and its blocks, may use of block 0. Returns whether it draws, and
        whether it has blocks."""
        draws, has_blocks = self.check_plain(op), False
        for is_output, to in ((False, reads), (True, writes)):
            for name in op.args(is_output):
                if len(path) > 1:
                    self.spend()
                expect(name in self.vars or any(name in self.locals[i] for i in path),
                       "%s is not declared" % text(name))
                to += [self.vars[name]] if name in self.vars else []
        for attr in op.attrs.values():
            for block in attr.ints() if attr.type in (BLOCK, BLOCKS) else ():
                expect(path[-1] < block < len(self.blocks) and len(path) < 64, "there is no such block")
                has_blocks = True
                for field in fields(self.blocks[block], 4):
                    draws |= self.add_uses(Op(field.bytes()), path + [block], reads, writes)[0]
        return draws, has_blocks

    def keep(self, op, is_left_out):
        """An op of the original, for which the result has self.op, or nothing."""
        reads, writes = [], []
        draws, has_blocks = self.add_uses(op, [0], reads, writes)
        is_backward = self.main is None and op.number("op_role", 0) & 15 == 1
        if is_backward and "op_role_var" in op.attrs:
            for i, name in enumerate(op.attrs["op_role_var"].texts()):
                setattr(self.var(name), "is_gradient" if i % 2 else "is_parameter", True)
        expect(not self.has_ended, "an op of the original comes after averaging began")
        params, rates = op.slots.get((False, "Param")), op.slots.get((False, "LearningRate"))
        if params and rates:
            self.rates[self.var(params[-1])] = self.var(rates[-1])
        is_equal, is_scaled, before = not draws, False, []
        if is_left_out:
            expect(not is_backward and not draws and not has_blocks, "no rule leaves out such an op")
            for var in (self.var(place[3]) for place in op.places):
                before.append((var, var.version, var.number))
        else:
            self.launch()
        # What holds the values in the result.
        copies = reads if self.op is op else self.find_copies(op, reads, has_blocks)
        for var, copy in zip(reads, copies):
            expect(copy is not var or (var.of is var and (is_left_out or var.kind in (SAME, SCALED))),
                   "it reads %s, which does not have the value that it has in the original" % var)
            is_equal = is_equal and var.equal and self.has_value(var)
            var.read_first |= not var.has_value
            var.read_since = True
            if not is_left_out:
                expect(not var.is_frozen, "it reads %s after its broadcast" % var)
                is_scaled |= copy.kind == SCALED
                self.touch(COMPUTE, copy, False)
        if is_scaled:
            self.check_scaled(op, has_blocks)
        for var in writes:
            expect(var.of is var and not var.is_frozen,
                   "it writes %s, which is new, or after its broadcast" % var)
            expect(not var.is_reduced or not is_backward, "it writes the gradient %s again" % var)
            expect(not has_blocks or var.kind == SAME,
                   "it may leave %s, which does not have the value that it has in the original" % var)
            # Nor may a value be left that comes from outside, and that each rank has to itself.
            was_equal = var.equal if self.has_value(var) else not var.is_data and not var.read_first
            var.equal = is_equal and (not has_blocks or was_equal)
            var.read_first |= has_blocks and not var.has_value
            # An op of another role that writes a gradient again uses what is there.
            var.read_since = has_blocks or (not is_backward and self.main is None and var.has_value)
            if not is_left_out:
                var.kind = SCALED if is_scaled else SAME
                self.touch(COMPUTE, var, True)
            elif var.kind == SAME:
                var.kind, var.of_version, var.old_number = OLD, var.version, var.number
            elif var.kind != OLD:
                var.kind = LOST
            var.has_value, var.is_rounded = True, False
            var.number = var.constant = var.total = None
            var.version += 1
        if self.main is not None and op.type == "fill_constant" and len(op.places) == 1 and writes:
            writes[0].constant = (op.attributes(), self.is_zero(op))
        if is_left_out:
            self.leave_out(op, before)

    def find_copies(self, op, reads, has_blocks):
        """Inputs may be other copies of what the original reads there."""
        expect(self.op.slots_of() == op.slots_of(), "the op of the original has other slots")
        copies = [self.var(name) for is_output, _, _, name in self.op.places if not is_output] + reads[len(op.args(False)):]
        written = {name for is_output, _, _, name in op.places if is_output}
        for var, copy in zip(reads, copies):
            expect(copy is var or (not has_blocks and not copy.is_rounded and var.name not in written
                                   and copy.of is var and copy.of_version == var.version
                                   and copy.kind == SAME and copy.form == WHOLE
                                   and (copy.type, copy.dtype, copy.dims) == (var.type, var.dtype, var.dims)),
                   "it reads %s, which does not have the value of %s" % (copy, var))
        return copies

    def check_scaled(self, op, has_blocks):
        is_gradient = op.type.endswith("_grad") and not op.type.endswith(("_grad_grad", "_double_grad", "_triple_grad"))
        bias = op.attrs.get("bias") if op.type == "scale" else None
        expect(not has_blocks and (is_gradient or op.type in LINEAR) and (bias is None or bias.is_zero()),
               "it reads a value / n, and is not known to be linear")
        for (is_output, slot), names in op.slots.items():
            is_divided = slot.endswith("@GRAD") if is_gradient else slot not in ("ScaleTensor", "BiasTensor")
            for var in map(self.var, names):
                expect(not is_output or is_divided, "its output %s is no gradient" % slot)
                expect(is_output or (var.kind == SCALED) == is_divided, "it reads %s, which is %sdivided by n"
                       % (var, "not " if is_divided else ""))
                expect(not is_divided or var.float_size, "%s, which is divided by n, is not declared as floats" % var)

    # New ops.

    def insert(self):
        op, is_main = self.op, self.main is None
        if self.updates_shares():
            self.update_shares()
            return
        programs = ("a" if is_main else "t") if self.averages else ("dm" if is_main else "es")[not self.layout:]
        rows = [row for row in RULES if set(programs) & set(row[0]) and op.type in row[1].split(",")]
        expect(rows and "," not in op.type, "no rule inserts such an op")
        where, _, inputs, outputs, attrs, rule = rows[0]
        known = dict(spec.split(":") for spec in (attrs + "," + OF_ALL).split(",") if spec != "-")
        for attr in op.attrs.values():
            expect(attr.name in known, "no rule allows attribute " + attr.name)
            what = known[attr.name]
            expect((KINDS[what] is None or attr.type in KINDS[what])
                   and (what != "n" or attr.ints() == [self.nranks]) and (what != "0" or attr.is_zero()),
                   "attribute %s has another type or value than the rule says" % attr.name)
        first, _, second = outputs.partition(",")
        inputs, _, also = inputs.partition(",")
        self.inputs, self.outputs, self.more = self.slot(False, inputs), self.slot(True, first), self.slot(True, second)
        self.also = self.slot(False, also)
        expect(len(op.args(False) + op.args(True)) == len(self.inputs + self.outputs + self.more + self.also),
               "it has another variable")
        adds_up = bool(self.inputs) and self.inputs[0].total is not None
        roles = (2,) if self.averages or adds_up else (0, 1) if "f" in where and self.layout else (1,)
        expect(not is_main or "*" in where or op.number("op_role", 0 if self.averages else 1) & ~256 in roles,
               "attribute op_role: expected " + " or ".join(("forward", "backward", "optimize")[role] for role in roles))
        for var in () if set(where) & set("de*") else self.outputs:
            expect(var.share is None and (adds_up or var.total is None), "%s is a share, or the sum of shares" % var)
        self.has_ended |= is_main and self.averages and "*" not in where
        stream = getattr(self, rule)()
        for var in self.inputs + self.also if stream is not None else ():
            self.touch(stream, var, False)
        for var in self.outputs + self.more if stream is not None else ():
            self.touch(stream, var, True)

    def slot(self, is_output, name):
        found = [names for (is_it, slot), names in self.op.slots.items()
                 if is_it == is_output and name and slot in (name, name[0].lower() + name[1:])]
        expect(len(found) <= 1, "slot %s is there twice" % name)
        variables = [self.var(arg) for arg in found[0]] if found else []
        for var in variables:
            expect(var.block == self.block or (var.block == 0 and var in (self.writes if is_output else self.reads)),
                   "%s is not named by the op that runs the block, or is in another one" % var)
        return variables

    def in_place(self):
        expect(one(self.inputs) is one(self.outputs), "expected Out to be X")
        return self.inputs[0]

    def use_ring(self, computes):
        ring = self.op.number("ring_id", 0)
        expect(0 <= ring < 1 << 31, "attribute ring_id: expected a ring")
        expect(self.main is None or ring in self.set_up or (computes and not self.set_up),
               "its ring is not set up")
        self.rings.add(ring)
        self.all_compute &= computes
        return ring

    def note(self, call, name):
        """What all ranks must do in one order. Ranks run one main program, but startup programs of their own."""
        self.schedule.append(call.encode() + (b"\n" if self.main is None else b" " + name + b"\n"))

    def call(self, kind, var):
        computes = self.op.number("use_calc_stream", 0) != 0
        ring = self.use_ring(computes)
        self.note("%d %s %d %d" % (ring, kind, var.dtype, var.elements), var.name)
        return self.launch(COMPUTE if computes else self.stream(ring))

    # Rules. They return the stream that reads the inputs and writes the outputs, if one does.

    def wait(self):
        expect(self.inputs == self.outputs, "expected X and the same Out")
        ring = COMPUTE if self.op.type == "c_sync_calc_stream" else self.stream(self.use_ring(False))
        self.join(COMPUTE if self.op.type == "c_wait_compute" else ring,
                  {"c_wait_compute": ring, "c_wait_comm": COMPUTE}.get(self.op.type, HOST))

    def all_reduce(self):
        if self.averages:
            return self.exchange()
        reduction, x = self.op.number("reduce_type", 0), self.in_place()
        is_max = self.op.type == "c_allreduce_max" or reduction == 1
        if x.total is not None and x.total.is_any:
            expect(is_max, "expected a maximum")
            expect(x.dtype == 2, "%s is no whole number" % x)
            x.total.is_whole = True
            return self.call("max", x)
        expect(self.op.type != "c_allreduce_max" and reduction in (0, 4), "attribute reduce_type: expected 0 or 4")
        averages = self.op.type == "c_allreduce_avg" or reduction == 4
        if x.total is not None:
            expect(not averages, "expected a sum")
            self.add_up(x)
            return self.call("sum", x)
        for part in parts_of(x):
            self.reduce(part, averages)
        return self.call("mean" if averages else "sum", x)

    def reduce(self, var, averages):
        gradient, is_scaled = current(var).of, var.kind == SCALED
        expect(gradient.is_gradient, "%s is no gradient of a parameter" % gradient)
        expect(not gradient.is_reduced, "%s is reduced twice" % gradient)
        expect(not gradient.read_since, "an op uses %s before its reduction" % gradient)
        expect(gradient.has_value and gradient.is_floats,
               "%s is no tensor of a known size that this step computes" % gradient)
        expect(var.kind != SUM and (not is_scaled or (not averages and not self.sums)),
               "%s is divided by n or reduced already" % var)
        expect(not averages or not self.sums, "expected a sum, as the claim says")
        gradient.version += 1
        gradient.number = None
        gradient.is_reduced = True
        self.num_gradients += 1
        if gradient is not var:
            gradient.kind = LOST
        var.of_version = gradient.version
        var.kind = SAME if is_scaled or averages or self.sums else SUM
        var.equal = True

    def scale(self):
        if self.averages:
            return self.compute()
        factor = [field.float() for field in self.op.attrs["scale"].values()] if "scale" in self.op.attrs else []
        expect(self.nranks and len(factor) == 1 and struct.pack("<f", factor[0]) == struct.pack("<f", 1 / self.nranks),
               "attribute scale: expected 1 / ranks")
        if self.in_place().share is not None:
            self.divide_share(self.inputs[0])
            return self.launch()
        for part in parts_of(self.in_place()):
            expect(not self.sums and current(part).kind != SCALED and part.float_size,
                   "%s is not to be divided" % part)
            part.kind = SAME if part.kind == SUM else SCALED
        return self.launch()

    def cast(self):
        if self.averages:
            return self.compute()
        x, out = one(self.inputs), one(self.outputs)
        places, is_any = [at for _, at in x.parts], x.total is not None and x.total.is_any
        expect(self.op.number("in_dtype", -1) == x.dtype and self.op.number("out_dtype", -1) == out.dtype
               and bool(x.float_size and out.float_size) != is_any and places == [at for _, at in out.parts] and None not in places,
               "the attributes or parts do not fit the variables")
        if is_any:
            self.cast_any(x, out)
            return self.launch()
        for a, b in zip(parts_of(x), parts_of(out)):
            is_original = b.of is b
            expect(current(a).dims == b.dims and (not is_original or (a.of is b and b.is_gradient)),
                   "%s cannot hold %s" % (b, a))
            hold(a, WHOLE, b)
            b.is_rounded = a.is_rounded or out.float_size < x.float_size or out.float_size == 2
            self.num_rounded += is_original and b.is_rounded
        return self.launch()

    def coalesce(self):
        expect(self.inputs == self.outputs and len(self.more) == 1,
               "expected Input, the same Output, and FusedOutput")
        fused, number = new(self.more[0]), self.op.number
        # In the next step, it is a buffer from the start.
        expect(not fused.accesses, "%s is used before it is a buffer" % fused)
        size, copies = fused.float_size, number("copy_data", 0) != 0
        align = number("align_size", -1) if number("use_align", 1) else 1
        expect(size and number("dtype", -1) == fused.dtype and align <= 1 << 20
               and number("user_defined_size_of_dtype", -1) in (-1, size)
               and (align <= 1 or align % size == 0) and not fused.persistable and fused.block == self.block,
               "expected FusedOutput of floats, and attributes with its type and size")
        unit = max(1, align // size)
        end, parts, shapes, ranks = 0, [], [], []
        for var in self.inputs:
            is_state = (self.averages or var.is_elsewhere) and var.is_state and var.elements >= 0
            expect((is_state or var.is_floats) and var.share is None and var.total is None and var.dtype == fused.dtype and var.elements <= 1 << 40 and end < 1 << 60,
                   "%s is no tensor of a known size and of this type" % var)
            expect(not var.in_buffer and not var.parts and var is not fused, "%s is in a buffer already" % var)
            var.in_buffer = True
            parts.append((var, end if align > 0 else None))  # None: the device decides
            end += (var.elements + unit - 1) // unit * unit
            shapes += var.dims
            ranks.append(len(var.dims))
            if self.averages:
                self.value(var) if copies else self.set_value(var, "", False)
            elif copies:
                var.read_first |= not var.has_value
            else:
                var.kind, var.constant = LOST, None
        fused.parts = parts
        expect((self.op.ints("concated_shapes"), self.op.ints("concated_ranks")) in (([], []), (shapes, ranks)),
               "its attributes have other shapes than the variables")
        expect(self.inputs and (align <= 0 or fused.elements == end),
               "FusedOutput is not declared with %d elements" % end)
        return self.launch()

    def broadcast(self):
        var = self.in_place()
        expect(var.of is var and var.kind == SAME and self.has_value(var) and (self.main is not None or var.equal),
               "%s has no value, or not an equal one on all ranks" % var)
        var.is_frozen = self.main is not None
        var.equal = True
        return self.call("broadcast", var)

    def gather(self):
        if one(self.inputs).share is not None:
            expect("nranks" in self.op.attrs, "expected a number of ranks")
            self.gather_share(self.inputs[0], one(self.outputs))
            return self.call("gather", self.inputs[0])
        x, out = one(self.inputs), new(one(self.outputs))
        dims = (x.dims[0] * self.nranks, *x.dims[1:]) if x.dims else (self.nranks,)
        expect(self.nranks and "nranks" in self.op.attrs and x.of is x and x.kind in (SAME, SCALED) and out.share is None
               and out.total is None and 0 <= x.elements <= 1 << 40 and out.elements >= 0 and out.dims == dims and out.dtype == x.dtype,
               "expected a number of ranks, and Out declared for the values of all")
        hold(x, GATHERED, out)
        return self.call("gather", x)

    def split(self):
        x = current(one(self.inputs), False)
        expect(x.form == GATHERED and len(self.outputs) == self.nranks and "num" in self.op.attrs,
               "expected the values of all ranks, and a part for each")
        for i, part in enumerate(self.outputs):
            expect(new(part) is not x and part.elements == x.of.elements and part.dtype == x.dtype,
                   "%s is not declared for the value of a rank" % part)
            hold(x, i, part)
        return self.launch()

    def sum_parts(self):
        if self.inputs and self.inputs[0].total is not None:
            return self.join_sums()
        total = one(self.outputs)
        expect(0 < self.nranks == len(self.inputs), "expected a part for each rank")
        found = set()
        for part in self.inputs:
            expect(current(part, False).form not in (WHOLE, GATHERED) and part.kind == self.inputs[0].kind
                   and part.of is total and part.form not in found, "%s is not the value of another rank" % part)
            found.add(part.form)
        total.kind = self.inputs[0].kind
        self.reduce(total, False)
        return self.launch()

    def set_up_ring(self):
        ring = self.op.number("ring_id", 0)
        expect(len(self.op.ints("devices")) in (0, self.nranks) and ring not in self.set_up and ring not in self.rings,
               "the ring does not have all ranks, is set up twice, or after its use")
        self.set_up.add(ring)
        self.note("%d %s" % (ring, self.op.type), self.inputs[0].name if self.inputs else b"")
        self.join(COMPUTE, HOST)

    def make_id(self):
        attrs, rank = self.op.attrs, self.op.number("rank", 0)
        expect(len(self.outputs) == 1 and "endpoint" in attrs and "other_endpoints" in attrs and self.nranks,
               "expected Out, endpoints, and a known number of ranks")
        endpoints, own = attrs["other_endpoints"].texts(), attrs["endpoint"].texts()
        expect(0 <= rank <= len(endpoints) and len(own) == 1, "expected a rank and its endpoint")
        endpoints.insert(rank, own[0])
        expect(all(0x20 < c < 0x7f for endpoint in endpoints for c in endpoint), "expected printable endpoints")
        expect(len(endpoints) == len(set(endpoints)) == self.nranks
               and (not self.endpoints or (endpoints == self.endpoints and rank == self.rank)),
               "expected an endpoint for each rank, the same for all rings")
        self.endpoints, self.rank = endpoints, rank
        var = new(self.outputs[0])
        expect(var.type == RAW and not var.has_value, "%s is no new id" % var)
        var.has_value = True
        self.note("id", var.name)
        self.join(COMPUTE, HOST)

    def init(self):
        var = new(one(self.inputs))
        expect(var.has_value and not var.is_frozen, "%s is no unused id" % var)
        var.is_frozen = True
        expect("nranks" in self.op.attrs and self.op.number("rank", -1) == self.rank,
               "the ring does not have all ranks, or this one has another number")
        self.set_up_ring()

    def check_streams(self):
        """Calls that go on when the program ends are of states that may travel when a step begins."""
        for stream, clock in self.clocks.items():
            known = max(self.clocks[COMPUTE].get(stream, 0), self.clocks[HOST].get(stream, 0))
            if known == clock.get(stream, 0):
                continue
            travel = [var for var in self.vars.values()
                      if any(access[0] == stream and max(access[1:]) > known for access in var.accesses)]
            expect(self.averages and self.main is None
                   and all(var.of is None and var.is_state and var.late == stream for var in travel),
                   "the program ends while communication goes on")

    def check_end(self):
        self.check_streams()
        if self.averages:
            self.check_averaging()
        if self.layout:
            self.check_shares()
        for ring in self.main.rings if self.main is not None else ():
            is_outside = not self.set_up and self.main.all_compute and self.all_compute
            expect(ring in self.set_up or is_outside, "ring %d is not set up" % ring)
        differing = []
        for var in self.vars.values():
            if var.of is not var:
                continue
            expect(not var.is_gradient or var.is_reduced or self.averages, "the gradient %s is not reduced" % var)
            expect(not var.is_parameter or (var.is_state and (not var.is_own or self.averages)),
                   "%s is no state of all ranks" % var)
            if var.is_elsewhere:
                self.num_parameters += var.is_parameter
                continue
            expect(var.kind == SAME or (not var.persistable and not var.read_first),
                   "the step leaves %s with another value than the original does" % var)
            self.num_others += var.kind != SAME
            self.num_parameters += var.is_parameter
            state = var if self.main is None else self.main.vars.get(var.name) if var.has_value else None
            is_common = state is not None and state.is_state and (
                not state.is_own or (state.is_parameter and self.main is not None))
            if is_common and not var.equal:
                differing.append(var)
        expect(self.main is not None or self.num_gradients > 0 or self.averages, "no gradient is reduced")
        expect(not differing, "%s may differ between ranks" % (differing and differing[0]))

    # Shares: states of which each rank has a part, and ops that each rank runs on its parts.

    def read_shares(self, setting):
        expect(self.nranks and not self.averages and self.main is None,
               "setting of the result: shares need a number of ranks, and gradients that are reduced")
        found = setting_of(setting)
        for share, listed in members(found.get("shares", "{}")).items():
            self.layout[share.encode("latin-1")] = of = []
            for named in map(elements, elements(listed)):
                expect(len(named) == 2, "setting of the result: shares: expected a name and dimensions")
                of.append((string(named[0]).encode("latin-1"), tuple(map(integer, elements(named[1])))))
        for name, listed in members(found.get("common", "{}")).items():
            self.common[name.encode("latin-1")] = [string(other).encode("latin-1") for other in elements(listed)]
        expect(self.layout, "setting of the result: expected shares")
        self.elsewhere = ({name for of in self.layout.values() for name, _ in of if name}
                          | {other for name, others in self.common.items() for other in others if other != name})

    def begin_shares(self):
        taken = set()

        def take(name, is_kept):
            var = self.var(name)
            expect(var.of is var and var.is_state and var.type == DENSE and name not in taken and b";" not in name
                   and name != b"=", "setting of the result: %s is no state, or is there twice" % var)
            taken.add(name)
            expect_no_attrs(var)
            var.is_elsewhere, var.kind = not is_kept, SAME if is_kept else LOST
            return var

        for name, of in self.layout.items():
            var, end, parts = self.var(name), 0, []
            expect(var.of is None and var.persistable and var.type == DENSE and var.elements > 0 and b";" not in name,
                   "%s is no new state, or its size is unknown" % var)
            for i, (state, dims) in enumerate(of):
                if not state:
                    expect(i == len(of) - 1 and len(dims) == 1 and dims[0] > 0,
                           "setting of the result: %s: expected padding at the end alone" % var)
                    end += min(dims[0], 1 << 40)
                    continue
                part = take(state, False)
                expect(is_tensor(part) and part.dims == dims and part.dtype == var.dtype and part.elements <= 1 << 40
                       and end < 1 << 60, "setting of the result: %s is declared otherwise" % part)
                parts.append((part, 0, None))
                end += part.elements
            expect(parts and var.elements <= 1 << 40 and var.elements * self.nranks == end,
                   "%s is no part of a rank: expected %d elements over ranks" % (var, end))
            var.share = Share(parts)
        for name, others in self.common.items():
            self.num_numbers += 1
            variables = [take(other, other == name) for other in others]
            for var in variables:
                expect(var.elements == 1 and (var.dtype, var.dims) == (variables[0].dtype, variables[0].dims),
                       "setting of the result: %s is no number like %s" % (var, variables[0]))
                var.number = self.num_numbers
            expect(name in others, "setting of the result: %s does not stand for itself" % text(name))

    def is_zero(self, op):
        """Of fill_constant: 0 in each element."""
        return (all(attr.is_zero() for attr in op.attrs.values() if attr.name[:5] == "value")
                and not ("str_value" in op.attrs and b"".join(op.attrs["str_value"].texts()).strip(b"0.")))

    def leave_out(self, op, before):
        expect(self.layout and (op.type in ELEMENTWISE if self.main is None else op.type == "fill_constant"),
               "no rule leaves out such an op")
        args, outputs, first = [], set(), None
        for place, part in zip(op.places, before):
            if place[0]:
                expect(part[0] not in outputs, "it writes %s twice" % part[0])
                outputs.add(part[0])
                part = (part[0], part[0].version, None)
            elif first is None or (not is_tensor(first) and is_tensor(part[0])):
                first = part[0]
            args.append(part)
        if self.main is None:
            expect(first is not None, "it has no input")
            self.left_out.setdefault(first, []).append((op.data, args))

    def updates_shares(self):
        shares = [self.vars[name].share for name in self.op.args(False) if name in self.vars]
        return (self.main is None and not self.op.type.startswith("c_") and self.op.type != "all_gather"
                and any(share and share.kind != SUM for share in shares))

    def does_same(self, was, args, i):
        """Whether op i of the shares computes what this one does, which the result has not."""
        op, like = self.op, None  # all tensors have its dimensions
        if ((was.type, was.attributes()) != (op.type, op.attributes())
                or was.slots_of() != op.slots_of()):
            return False
        for (is_output, slot, _, name), part in zip(op.places, args):
            var = self.vars[name]
            # What is written is what the other one writes in place, and nothing else.
            if is_output and any((name == place[3]) != (part[0] is other[0]) for place, other in zip(op.places, args)):
                return False
            is_number_there = slot in ELEMENTWISE[op.type] if is_output else var.share is None
            if not is_number_there and slot in NUMBERS:
                return False
            if is_output and is_number_there and op.type != NORM and not any(
                    not place[0] and place[3] == name and place[1] + "Out" == slot for place in op.places):
                return False
            if is_number_there:
                if part[0].elements != 1 or (not is_output and not are_equal(held(var), part)):
                    return False
                continue
            if not is_tensor(part[0]) or part[0].dtype != var.dtype or (like and like.dims != part[0].dims):
                return False
            like = part[0]
            if not is_output and not are_equal(var.share.parts[i], part):
                return False
        return like is not None

    def does_same_to_all(self, was, args, parts):
        """Whether an op of lists has the values of which the shares are, and these numbers."""
        op = self.op
        read, written = [], []
        for place, part in zip(was.places, args):
            if in_list(place):
                (written if place[0] else read).append(part)
        now = [place for place in op.places if not in_list(place)]
        before = [(place, part) for place, part in zip(was.places, args) if not in_list(place)]
        if ((was.type, was.attributes()) != (op.type, op.attributes())
                or [place[:3] for place in now] != [place[:3] for place, _ in before]
                or sorted((part[0].name, part[1]) for part in read) != sorted((part[0].name, part[1]) for part in parts)
                or [part[0] for part in read] != [part[0] for part in written]):
            return False
        for place, (_, part) in zip(now, before):
            is_output, slot, _, name = place
            var = self.var(name)
            if part[0].elements != 1 or (part[0] is not var if is_output else not are_equal(held(var), part)):
                return False
            its = [other[3] == name for other in now]
            if its != [other[0] is part[0] for _, other in before]:
                return False
            if is_output and slot != "FoundInfinite" and not any(it and not other[0] for it, other in zip(its, now)):
                return False
        return True

    def update_lists(self):
        """One op for one that is left out, of all of whose tensors the shares have parts."""
        variables = [(place, self.var(place[3])) for place in self.op.places]
        for place, var in variables:
            expect(not in_list(place) or (var.share and not var.share.is_of_ranks), "%s is no share" % var)
        lists = [[var for place, var in variables if in_list(place) and place[0] == is_output] for is_output in (False, True)]
        parts = []
        for var in lists[0]:
            expect(var.share.kind == (LOST if self.op.type == OF_LISTS[1] else SAME), "%s holds another value" % var)
            self.expect_zeros(var.share, var.elements)
            parts += var.share.parts
        expect(lists[0] == lists[1], "expected X and the same Out")
        found = next(((part[0], one) for part in parts for one in self.left_out.get(part[0], ())
                      if self.does_same_to_all(Op(one[0]), one[1], parts)), None)
        expect(found is not None, "no op that is left out does the same with these")
        self.left_out[found[0]].remove(found[1])
        args = list(zip(Op(found[1][0]).places, found[1][1]))
        written = {part[0]: part for place, part in args if place[0]}
        found_infinite = next(part[:2] for place, part in args if place[1] == "FoundInfinite")
        for var in lists[0]:
            expect(self.op.type != OF_LISTS[1] or var.share.any == found_infinite,
                   "it does not read whether any element of %s is infinite" % var)
            var.share.any = found_infinite
        self.launch()
        for place, var in variables:
            self.touch(COMPUTE, var, place[0])
            if place[0] and in_list(place):
                # If any is infinite, elements are the original's after the last op only.
                var.share.kind = SAME if self.op.type == OF_LISTS[1] else LOST
                var.share.parts = [written[part[0]] for part in var.share.parts]
            elif place[0] and place[1] == "FoundInfinite":
                expect_free(var)
                var.kind, var.total = LOST, Sum([written[var]], is_any=True)
            elif place[0]:
                expect(is_current(written[var]), "%s has no number of its own there" % var)
                self.num_numbers += 1
                var.number, var.kind = self.num_numbers, SAME

    def cast_any(self, x, out):
        made = x.total.of[0]
        expect_free(out)
        expect(out.type == DENSE and out.elements == 1 and out.dtype in (0, 2), "%s is no number" % out)
        out.kind, out.total = LOST, copy.copy(x.total)
        if out.total.is_whole and out is made[0] and is_current(made):
            hold_number(made, out)

    def expect_zeros(self, share, elements):
        has_none = sum(part[0].elements for part in share.parts) == elements * self.nranks
        expect(share.has_zeros or has_none, "padding may be other than 0")

    def update_shares(self):
        if self.op.type in OF_LISTS:
            self.update_lists()
            return
        expect(self.op.type in ELEMENTWISE, "no rule lets each rank run such an op on its part")
        variables = [self.var(place[3]) for place in self.op.places]
        inputs = [var for var, place in zip(variables, self.op.places) if not place[0] and var.share]
        elements, count = inputs[0].elements, len(inputs[0].share.parts)
        for var in inputs:
            expect(var.elements == elements and len(var.share.parts) == count,
                   "%s has other parts than the shares before it" % var)
            expect(var.share.kind == SAME, "%s holds sums, where means are claimed, or what may be infinite" % var)
        expect(count, "its shares hold nothing")
        keeps_zeros = inputs[0].share.has_zeros and self.op.type in ("cast", "assign")
        values = []
        for first, _, _ in inputs[0].share.parts:
            candidates = self.left_out.get(first, [])
            same = next((i for i, (data, args) in enumerate(candidates)
                         if self.does_same(Op(data), args, len(values))), None)
            expect(self.op.type not in WHOLE_ONLY or first.elements == elements,
                   "it needs whole tensors, and no rank has all of %s" % first)
            expect(same is not None, "no op that is left out does the same with %s" % first)
            values.append(candidates.pop(same)[1])
        self.launch()
        for i, (var, (is_output, slot, _, _)) in enumerate(zip(variables, self.op.places)):
            self.touch(COMPUTE, var, is_output)
            parts = [args[i] for args in values]
            if is_output and slot not in ELEMENTWISE[self.op.type]:
                expect(var.elements == elements, "%s has other elements than the share" % var)
                set_share(var, Share(parts, has_zeros=keeps_zeros))
            elif is_output and self.op.type == NORM:
                self.expect_zeros(inputs[0].share, elements)
                expect(var.of is None and not var.parts and not var.in_buffer and is_number(var, parts[0][0])
                       and var.share is None, "%s is no new number" % var)
                var.constant = None
                var.total = Sum(parts)
            elif is_output:
                # All are the same function of equal numbers.
                self.num_numbers += 1
                for part in filter(is_current, parts):
                    part[0].number = self.num_numbers
                expect(any(part[0] is var and is_current(part) for part in parts), "%s has no number of its own there" % var)
                var.kind, var.total = SAME, None

    def find_sum(self, var):
        """A variable that is the sum of the same numbers as one that an op left out has made holds that."""
        def ordered(parts):
            return sorted((part[0].name, part[1]) for part in parts)

        of = ordered(var.total.of)
        for first in var.total.of:
            for found in self.left_out.get(first[0], []):
                op = Op(found[0])
                made = [part for place, part in zip(op.places, found[1]) if place[0]]
                terms = [part for place, part in zip(op.places, found[1]) if not place[0]]
                if (op.type != "sum" or len(made) != 1 or ordered(terms) != of or (var.of is var and var is not made[0][0])
                        or not is_current(made[0]) or not is_number(var, made[0][0])):
                    continue
                hold_number(made[0], var)
                self.left_out[first[0]].remove(found)
                self.num_sums += 1
                return

    def join_sums(self):
        out, of = one(self.outputs), []
        is_whole = any(var.total is None or var.total.is_whole for var in self.inputs)
        for var in self.inputs:
            expect(is_number(var, out), "%s is no number like %s" % (var, out))
            if var.total is None:
                expect(var.kind == SAME, "%s holds no current value" % var)
                of.append(held(var))
                continue
            expect(var.total.is_whole == is_whole, "%s is a part of this rank" % var)
            of += var.total.of
        expect_free(out)
        out.kind, out.total = LOST, Sum(of, is_whole)
        if is_whole:
            self.find_sum(out)
        return self.launch()

    def add_up(self, var):
        expect(not var.total.is_whole, "%s is added up already" % var)
        var.total.is_whole, var.kind = True, LOST
        self.find_sum(var)

    def scatter(self):
        """Each rank gets its part of the sums."""
        x, out = one(self.inputs), one(self.outputs)
        variables = packed(x, out, self.nranks)
        for var in variables:
            expect(var.of is var, "%s is a copy" % var)
            self.reduce(var, False)
        expect("nranks" in self.op.attrs and len({var.kind for var in variables}) <= 1,
               "expected a number of ranks, and sums of one kind")
        hold_share(variables, x, variables[0].kind if variables else LOST, out)
        for var in variables:
            var.kind = LOST  # as it was before, of this rank
        return self.call("scatter", x)

    def divide_share(self, var):
        expect(var.share.kind == SUM and not var.share.is_of_ranks, "%s is not to be divided" % var)
        var.share.kind = SAME

    def gather_share(self, var, buffer):
        share = var.share
        packed(buffer, var, self.nranks)
        expect(share.kind == SAME and not share.is_of_ranks and len(buffer.parts) >= len(share.parts),
               "%s has too few parts" % buffer)
        for i, (target, _) in enumerate(buffer.parts):
            target.kind, target.constant = LOST, None
            if i >= len(share.parts):
                continue
            state, version, _ = part = share.parts[i]
            expect(is_current(part) and state.equal, "%s has another value by now, or may differ between ranks" % state)
            expect((target.of is not target or target is state) and (target.dtype, target.dims) == (state.dtype, state.dims),
                   "%s cannot hold %s" % (target, state))
            target.of, target.of_version, target.kind, target.form, target.equal = state, version, SAME, WHOLE, True

    def send_parts(self):
        """Each rank gets a part from each rank."""
        x, out = one(self.inputs), one(self.outputs)
        variables = packed(x, out, 1)
        for var in variables:
            expect(var.of is var and var.kind == SAME and self.has_value(var), "%s has no value" % var)
        expect(not out.persistable, "%s is a state" % out)
        hold_share(variables, x, SAME, out)
        out.share.is_of_ranks = True
        return self.call("all-to-all", x)

    def slice_share(self):
        x, part, ints = one(self.inputs), one(self.outputs), self.op.ints
        expect(x is not part and x.share and x.share.is_of_ranks and is_times(x, part, self.nranks) and len(part.dims) == 1
               and (ints("axes"), ints("starts"), ints("ends")) == ([0], [0], [part.elements]),
               "expected the first part of what all ranks sent")
        set_share(part, Share(x.share.parts))
        return self.launch()

    def fill_new(self):
        var = one(self.outputs)
        expect(var.of is not var and var.type == DENSE and not var.parts and "shape" in self.op.attrs
               and self.op.ints("shape") == list(var.dims) and self.op.number("dtype", -1) == var.dtype,
               "%s is declared otherwise, or is no new variable" % var)
        var.kind, var.share, var.total, var.constant = LOST, None, None, (None, self.is_zero(self.op))
        if var.persistable:
            set_share(var, Share([], is_zero=self.is_zero(self.op)))
        return self.launch()

    def check_shares(self):
        for name, of in self.layout.items():
            var = self.var(name)
            share = var.share
            expect(var.data == (self.main or self).var(name).data, "%s is declared otherwise in the main program" % var)
            expect(var.persistable and share and share.kind == SAME and not share.is_of_ranks, "%s does not hold the parts of its states" % var)
            states = [self.var(state) for state, _ in of if state]
            if share.is_zero:
                for state in states:
                    expect(state.constant and state.constant[1], "%s does not begin with 0, as %s does" % (state, var))
                continue
            expect([part[0] for part in share.parts] == states, "%s holds other parts" % var)
            for part in share.parts:
                expect(is_current(part), "%s does not hold the part of %s" % (var, part[0]))
                expect(self.main is not None or part[0].equal, "%s may differ between ranks" % part[0])
        for name, others in self.common.items():
            kept = self.var(name)
            for var in map(self.var, others):
                are_equal = (kept.number is not None and kept.number == var.number if self.main is None
                             else kept.constant and var.constant and kept.constant[0] == var.constant[0])
                expect(are_equal and kept.kind == SAME, "%s does not hold the value of %s" % (kept, var))
                expect(self.main is not None or var.equal, "%s may differ between ranks" % var)

    # Averaging: new ops that change states when a step of the original has ended, by formulas: a name, a number,
    # name(formula), number*formula, or two in parentheses.

    def expect_not_changed(self, var):
        expect(len(var.changed_by) <= 8, "%s is changed by too many blocks" % var)
        for condition in var.changed_by:
            expect(exclude_each_other(condition, self.condition), "%s may have been changed by an earlier block" % var)

    def value(self, var):
        if var.formula is not None:
            expect(var.formula, "%s holds nothing" % var)
            return var.formula
        is_there = var.kind == SAME and self.has_value(var) if var.of is var else var.of is None and var.is_state
        expect(is_there and var.type == DENSE, "%s has no value, or is no dense tensor" % var)
        name = var.name.decode("latin-1")
        # No name may look like another formula.
        expect(not set(" ()*") & set(name) and name not in ("", "s", "n") and name[0] not in "0123456789.-+",
               "%s has a name that formulas cannot have" % var)
        self.expect_not_changed(var)
        return name

    def set_value(self, var, formula, equal):
        expect(var.type == DENSE and (var.persistable or (var.of is None and var.block == self.block)),
               "%s is not to be written" % var)
        expect(len(formula) <= 4096, "its formula is too long")
        if var.is_state and var not in self.changed:
            self.changed[var] = var.equal
            self.expect_not_changed(var)
        self.spend(1 + len(formula) // 8)
        var.formula, var.equal = formula, equal

    def end_branch(self, condition):
        self.branches.append((condition, {var: var.formula for var in self.changed}))
        for var, was_equal in self.changed.items():
            if var.of is var and var.equal:
                self.synchronized.add(var.name)
            var.equal &= was_equal or not condition  # the branch may not run
            var.formula, var.changed_by = None, var.changed_by + (condition,)
        self.changed = {}

    def has_type(self, var, kind):
        return var.float_size > 0 if kind == FLOATS else var.dtype == kind and var.elements == 1

    def float_of(self, name):
        found = [field.float() for field in self.op.attrs[name].values()] if name in self.op.attrs else []
        expect(len(found) == 1, "expected attribute " + name)
        return found[0]

    def constant(self, out):
        """What fill_constant gives, if it is a whole number: attribute str_value counts before value."""
        words = self.op.attrs["str_value"].texts() if "str_value" in self.op.attrs else []
        word = words[0] if words and words[0] else b"0"
        value = self.float_of("value")
        expect(re.fullmatch(b"0|[1-9][0-9]{0,16}", word) and rounded(int(word)) == value
               and self.op.number("dtype", -1) == out.dtype and self.op.ints("shape") == list(out.dims),
               "expected a whole number, and attributes as %s is declared" % out)
        return text(word)

    def count(self):
        step = one(self.inputs)
        expect(step is one(self.outputs) and step.of is None and step.is_state and self.block == 0
               and self.has_type(step, INT64) and self.counter is None and step.equal and self.float_of("step") == 1,
               "expected a new state that counts steps")
        self.counter, step.formula = step, "s"
        return self.launch()

    def fill(self):
        out = one(self.outputs)
        expect(not out.persistable and self.has_type(out, INT64), "expected a new whole number")
        self.set_value(out, self.constant(out), True)
        return self.launch()

    def compute(self):
        op, x, out = self.op, one(self.inputs), one(self.outputs)
        y = one(self.also) if self.also else None
        sign, before, after = BINARY.get(op.type, (None, FLOATS, FLOATS))
        expect((sign is not None) == (y is not None) and op.number("axis", -1) == -1 and self.has_type(x, before)
               and self.has_type(out, after) and (before != FLOATS or op.type == "cast" or x.dtype == out.dtype),
               "expected inputs and outputs of one type, and no axis")
        expect(op.type != "cast" or (op.number("in_dtype", -1), op.number("out_dtype", -1)) == (x.dtype, out.dtype),
               "expected attributes with the types of the variables")
        expect_aligned(x, out)
        is_scalar = y is not None and not y.parts and y.elements == 1 and len(y.dims) <= len(x.dims)
        expect(y is None or (self.has_type(y, before) and y.dtype == x.dtype), "expected X and Y of one type")
        if y is not None and not is_scalar:
            expect_aligned(x, y)
        others = [y] * len(parts_of(x)) if is_scalar else parts_of(y or x)
        for a, b, to in zip(parts_of(x), others, parts_of(out)):
            formula = self.value(a)
            if sign is not None:
                formula = pair(formula, sign, self.value(b))
            elif op.type == "cast":
                formula = of(TYPE_NAMES[out.dtype], formula)
            elif op.type == "scale":
                factor = self.float_of("scale")
                divides = "nranks" in op.attrs
                expect(not divides or (self.nranks and factor == rounded(1 / self.nranks)),
                       "attribute scale: expected 1 / ranks")
                formula = (times(factor, formula) if not divides
                           else "mean" + formula[3:] if formula.startswith("sum(") else pair(formula, "/", "n"))
            self.set_value(to, formula, a.equal and (sign is None or b.equal))
        return self.launch()

    def exchange(self):
        reduction = self.op.number("reduce_type", 0)
        expect(reduction in (0, 4), "attribute reduce_type: expected 0 or 4")
        kind = "mean" if self.op.type == "c_allreduce_avg" or reduction == 4 else "sum"
        x = self.in_place()
        expect(self.has_type(x, FLOATS), "expected floats")
        for part in parts_of(x):
            self.set_value(part, of(kind, self.value(part)), True)
        return self.call(kind, x)

    def run_branch(self):
        run, number, first = one(self.inputs), self.op.number("sub_block", 0), len(self.blocks)
        expect(self.block == 0 and self.op.number("is_scalar_condition", 0) == 1 and self.has_type(run, BOOLEAN)
               and run.equal and first <= number < first + len(self.new_blocks) and number not in self.walked
               and not self.changed,
               "expected a new block of its own, and a condition that is equal on all ranks")
        self.walked.add(number)
        self.condition = self.value(run)
        self.touch(self.launch(), run, False)
        self.block, self.reads, self.writes = number, set(self.also), set(self.outputs)
        before = {stream: dict(clock) for stream, clock in self.clocks.items()}
        branch = self.op
        for index, field in enumerate(fields(self.new_blocks[number - first], 4)):
            self.op = None
            try:
                self.op = Op(field.bytes())
                self.insert()
            except Failure as failure:
                why = "block %d, op %d (%s): %s" % (number, index, self.op.type if self.op else "?", failure)
                self.op = branch
                raise Failure(why) from None
        self.op = branch
        # If the block does not run, nothing has waited in it for what was launched before.
        for stream, clock in before.items():
            for who in self.clocks:
                known = before.get(who, {}).get(stream, 0)
                if known < clock.get(stream, 0):
                    self.clocks[who][stream] = known
        for field in fields(self.new_blocks[number - first], 3):
            var = self.vars[bytes_of(field.bytes(), 1)]
            var.formula = None
            if var.parts:
                var.accesses = ()  # its memory is that of its parts
            for part, _ in var.parts:
                part.in_buffer = False
            var.parts = ()
        self.end_branch(self.condition)
        self.block, self.condition, self.reads, self.writes = 0, "", set(), set()

    def begin_state(self):
        out = one(self.outputs)
        expect(out.of is None and out.is_state and not out.has_value, "%s is no new state" % out)
        if self.inputs:
            x = one(self.inputs)
            expect(x.of is x and x.is_frozen and x.equal and x.dims == out.dims and x.dtype == out.dtype,
                   "%s is no state that all ranks have from rank 0" % x)
            out.formula = x.name.decode("latin-1")
        else:
            out.formula = self.constant(out)
        out.has_value = out.equal = True
        return self.launch()

    def check_averaging(self):
        if self.main is not None:
            for name, formula in self.main.first.items():
                var = self.var(name)
                expect(var.of is None and var.formula == formula, "%s does not begin with %s" % (var, formula))
            return
        if self.changed:
            self.end_branch("")
        expect(len(self.walked) == len(self.new_blocks), "a new block is not used")
        schedule = Schedule(self.setting)
        if schedule.in_turn:
            schedule.period = schedule.fragments = len(self.branches)
        turn = 2 if schedule.delay else 1
        expect(self.branches and len(self.branches) == schedule.fragments * turn,
               "other blocks change states than the setting says")
        done, claimed = set(), {}
        for i in range(schedule.fragments):
            branch, period = self.branches[i * turn], schedule.period
            phase = (i + 1) * (period // schedule.fragments) % period
            is_plain = schedule.fragments == 1 and not schedule.delay
            self.compare(schedule, branch, branch, schedule.condition() if is_plain else due(period, phase), False, done,
                         claimed)
            if schedule.delay:
                self.compare(schedule, self.branches[i * turn + 1], branch, due(period, (phase - schedule.delay) % period),
                             True, done, claimed)
        for var in self.vars.values():
            if var.of is None and var.is_state:
                expect(var is self.counter or var.name in self.first, "%s, which is new, is no state of averaging" % var)
            else:
                expect(not var.is_parameter or var in done, "%s is not averaged" % var)
        if self.counter is not None:
            self.first[self.counter.name] = "0"
        self.changes = "".join("  - %s:\n%s" % (words, lines) for lines, words in sorted(claimed.items()))

    def compare(self, schedule, branch, synchronizing, condition, launches, done, claimed):
        expect(branch[0] == condition, "states change %s, and by the setting %s" % (when(branch[0]), when(condition)))
        expected, counts = 0, {}
        for var in sorted(synchronizing[1], key=lambda var: var.name):
            if var.of is not var or (launches and not var.is_parameter):
                continue
            outer = schedule.outer if var.is_parameter else ""  # else a state that is averaged besides
            name, rate = var.name.decode("latin-1"), ""
            if outer == "slowmo":
                expect(var in self.rates, "%s has no learning rate" % var)
                rate = self.rates[var].name.decode("latin-1")
                rate = rate if self.rates[var].dtype == var.dtype else of(TYPE_NAMES[var.dtype], rate)
            sent = schedule.sent if var.dtype == 5 else ""
            divides = self.nranks > 0 and (schedule.delay > 0 or bool(sent))
            for changed, formula in sorted(schedule.formulas(name, rate, outer, sent, divides, launches).items()):
                state = self.var(changed.encode("latin-1"))
                found = branch[1].get(state)
                expect(found is not None, "%s does not change, and should become %s" % (state, formula))
                expect(found == formula, "%s becomes %s, and should become %s" % (state, found, formula))
                expected += 1
                if state is var:
                    continue
                expect(state.of is None and (changed == name + "_outer_error" or not state.is_own),
                       "%s is no new state that is equal on all ranks" % state)
                self.first[state.name] = name if changed == name + "_outer_param" else "0"
            expect(launches or var not in done, "%s is averaged twice" % var)
            done.add(var)
            mixes = schedule.mix > 0 and outer
            expect(mixes or launches or var.name in self.synchronized, "%s is not equal on all ranks" % var)
            lines = "".join("    %s = %s\n" % (changed, inside(formula)) for changed, formula in
                            sorted(schedule.formulas("p", "rate", outer, sent, divides, launches).items()))
            counts[lines] = counts.get(lines, 0) + 1
        expect(expected == len(branch[1]), "a block changes other states than the setting says")
        for lines, count in counts.items():
            words = "%s, of %d state%s p" % (when(condition), count, "" if count == 1 else "s")
            claimed[lines] = claimed[lines] + "; " + words if lines in claimed else words


def pair(a, sign, b):
    return "(%s %s %s)" % (a, sign, b)


def of(name, formula):
    return name + formula if formula[0] == "(" else "%s(%s)" % (name, formula)


def inside(formula):
    return formula[1:-1] if formula[0] == "(" else formula


def when(condition):
    return "if " + inside(condition) if condition else "always"


def rounded(number):
    """To fp32."""
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def times(factor, formula):
    expect(math.isfinite(factor), "a factor is no number")
    if factor == 1:
        return formula
    words = ["%.*g" % (digits, factor) for digits in range(1, 10)]
    return "%s*%s" % (next((word for word in words if rounded(float(word)) == factor), words[-1]), formula)


def due(period, step):
    return pair(pair("s", "mod", period), "=", step)


def exclude_each_other(a, b):
    """Conditions "((s mod 4) = 1)" and "((s mod 4) = 2)"."""
    are = [re.fullmatch(r"(\(\(s mod [^=]* = )[0-9]+\)", condition) for condition in (a, b)]
    return a != b and None not in are and are[0].group(1) == are[1].group(1)


def expect_aligned(a, b):
    expect(a.dims == b.dims and len(a.parts) == len(b.parts)
           and all(i == j is not None and p.dims == q.dims for (p, i), (q, j) in zip(a.parts, b.parts)),
           "%s has other elements than %s" % (b, a))


class Schedule:
    """What the setting says of averaging."""

    def __init__(self, setting):
        expect(setting.count(b'averaging"') == 1, "its setting does not say, or not once, how parameters are averaged")
        averaging = setting_of(setting).get("averaging", "")
        self.in_turn = averaging == '"in_turn"'
        values = {} if self.in_turn else {
            key: string(value) if value[0] == '"' else value for key, value in members(averaging).items()}
        steps = [values.pop(key, absent) for key, absent in (("period", "1"), ("first_step", "1"), ("begin_step", "1"),
                                                             ("fragments", "1"), ("delay", "0"))]
        expect(all(re.fullmatch("0|[1-9][0-9]{0,10}", word) for word in steps), "its setting: expected a number of steps")
        self.period, self.first, self.begin, self.fragments, self.delay = map(int, steps)
        mix = self.number(values.pop("mix", "0"))
        self.mix, self.rest = rounded(mix), rounded(1 - mix)
        self.sent, outer = values.pop("sent", ""), values.pop("outer", "")
        form = re.fullmatch(r"(?:sgd\{lr=([^,}]*)|(nesterov|slowmo)\{lr=([^,}]*),momentum=([^,}]*))\}", outer)
        expect(form or not outer, "its setting: no rule for the outer optimizer " + outer)
        self.outer = "" if not outer else form.group(2) or "sgd"
        self.lr = rounded(self.number(form.group(1) or form.group(3))) if outer else 1
        self.momentum = rounded(self.number(form.group(4))) if outer and form.group(4) is not None else 0
        expect(not values, "its setting: no rule averages by " + min(values, default=""))
        turn = self.period // self.fragments if self.fragments else 0
        expect(turn * self.fragments == self.period > 0 and self.delay < turn and 0 <= self.mix < 1
               and (outer or (not self.delay and not self.mix and not self.sent)) and self.sent in ("", "bf16", "fp16"),
               "its setting says what cannot be")

    def number(self, word):
        expect(re.fullmatch(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?", word or ""),
               "its setting has no number where one belongs: %s" % word)
        return float(word)

    def condition(self):
        """When all parameters are averaged; empty: in every step."""
        if self.period == self.first == 1:
            return ""
        condition, begins_apart = due(self.period, 0), self.begin > self.first
        if begins_apart:
            condition = pair(condition, "or", pair("s", "<", self.begin))
        elif self.first <= self.period:
            return condition
        return condition if self.first == 1 else pair(condition, "and", pair("s", ">=", self.first))

    def formulas(self, p, rate, outer, sent_type, divides, launches):
        """What a synchronization gives; with `launches`, what is sent before, for a delayed one."""
        if not outer:
            return {p: of("mean", p)}
        x, v, g, e = (p + "_outer_" + name for name in ("param", "velocity", "gradient", "error"))
        sent, found = pair(x, "-", p), {}
        if divides:
            sent = pair(sent, "/", "n")
        if sent_type:
            everything = pair(sent, "+", e)
            sent = of(sent_type, everything)
            if launches or not self.delay:
                found[e] = pair(everything, "-", of("fp32", sent))
        mean = of("sum" if divides else "mean", sent)
        if launches:
            return {**found, g: mean}
        d = g if self.delay else mean
        d = of("fp32", d) if sent_type else d
        change = times(self.lr, d)
        if outer == "nesterov":
            found[v] = times(self.momentum, pair(v, "+", d))
            change = times(self.lr, pair(d, "+", found[v]))
        elif outer == "slowmo":
            found[v] = pair(times(self.momentum, v), "+", pair(d, "/", rate))
            change = pair(times(self.lr, found[v]), "*", rate)
        found[x] = pair(x, "-", change)
        found[p] = pair(times(self.mix, p), "+", times(self.rest, found[x])) if self.mix else found[x]
        return found


# --- Programs of Paddle 3 (PIR) ---------------------------------------------------------------------

WS = re.compile(r"[ \t\n\r]*")
BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
DTYPES = {"0.t_bool": 0, "0.t_i16": 1, "0.t_i32": 2, "0.t_i64": 3, "0.t_f16": 4, "0.t_f32": 5, "0.t_f64": 6,
          "0.t_ui8": 20, "0.t_i8": 21, "0.t_bf16": 22}
DTYPE_NAMES = {"float16": 4, "float32": 5, "float64": 6, "bfloat16": 22}
CONSTANT_OPS = ("1.full", "1.full_int_array")
# Sums and copies: of gradients, they are gradients.
SUMS = ("1.add_n", "1.add", "1.cast", "1.scale", "1.assign", "1.concat", "1.stack", "1.flip", "0.combine", "0.split")
WIRE_TYPES = {"share_data": "assign", "add_n": "sum", "add": "elementwise_add", "subtract": "elementwise_sub"}
BINDERS = {"0.set_parameter": "parameter_name", "0.shadow_output": "output_name"}
# Of each op in place, for each result the operand whose memory it has; -: memory of its own.
IN_PLACE = {row.split()[0]: row.split()[1:] for row in """
adadelta 0 2 3 5
adagrad 0 2 4
adam 0 3 4 5 6 7 8
adamax 0 3 4 6
adamw 0 3 4 5 6 7 8
asgd 0 3 4 6
assign_out 1
assign_value 0
average_accumulates 1 2 3 4 5 6
batch_norm - 1 2 - - -
check_finite_and_unscale 0 -
increment 0
lamb 0 3 4 5 6 7
lars_momentum 0 2 4
momentum 0 2 4
nadam 0 3 4 5 6 7 8
radam 0 3 4 5 6 7 8
rmsprop 0 3 1 5 6
rprop 0 2 3 4
scale 0
set_value 0
set_value_with_tensor 0
sgd 0 3
share_data 0
update_loss_scaling 0 2 3 4
""".strip().split("\n")}


def parts_of_json(raw):
    """The members of an object, or elements of a list (without a name), each as it stands."""
    decoder = json.JSONDecoder(parse_constant=lambda name: expect(False, name + " is not JSON"), parse_int=str)
    is_object, at = raw[:1] == "{", WS.match(raw, 1).end()
    expect(raw[:1] in ("{", "["), "expected an object or a list, found " + raw[:20])
    found = []
    while raw[at] != ("}" if is_object else "]"):
        if found:
            expect(raw[at] == ",", "expected a comma in the JSON")
            at = WS.match(raw, at + 1).end()
        name = None
        if is_object:
            end = decoder.raw_decode(raw, at)[1]
            name, at = string(raw[at:end]), WS.match(raw, end).end()
            expect(raw[at] == ":", "expected a colon in the JSON")
            at = WS.match(raw, at + 1).end()
        end = decoder.raw_decode(raw, at)[1]
        found.append((name, raw[at:end]))
        at = WS.match(raw, end).end()
    expect(at == len(raw) - 1, "something follows the JSON")
    return found


def plain(raw):
    """A value without the blanks between its parts, which make no other value."""
    return BLANKS.sub(r"\1", raw)


def members(raw, *names):
    """Of an object. Of a list, None is the only name. With names: these, and no other."""
    found = parts_of_json(raw)
    expect(raw[:1] == "{", "expected an object, found " + raw[:20])
    expect(len({name for name, _ in found}) == len(found), "an object has two members of a name")
    expect(not names or {name for name, _ in found} == set(names),
           "an object has another member than " + ", ".join(names))
    return dict(found)


def elements(raw):
    expect(raw[:1] == "[", "expected a list, found " + raw[:20])
    return [element for _, element in parts_of_json(raw)]


def string(raw):
    expect(len(raw) > 1 and raw[0] == '"' and "\\" not in raw, "expected a text without escapes, found " + raw[:20])
    return raw[1:-1]


def integer(raw):
    expect(INTEGER.fullmatch(raw), "expected an integer, found " + raw[:20])
    return int(raw)


class Tensor:
    """The type of a value; dims is None if it is no dense tensor."""

    def __init__(self, raw):
        self.raw, self.dims, found = plain(raw), None, members(raw)
        self.kind = string(found["#"])
        if self.kind == "0.t_dtensor":
            dtype, dims, *self.rest = elements(plain(found["D"]))
            self.dtype, self.dims = DTYPES.get(string(members(dtype, "#")["#"]), 99), list(map(integer, elements(dims)))
        elif self.kind == "0.t_vec":
            self.of = list(map(Tensor, elements(found["D"])))

    def size(self):
        expect(self.dims is not None, "expected known dimensions")
        size = 1
        for dim in self.dims:
            size *= dim
            expect(0 < size <= 1 << 40, "expected known dimensions")
        return size

    def is_floats(self):
        return self.dims is not None and self.dtype in FLOAT_BYTES

    def is_like(self, other, dims):
        """With the same dimensions or the same type of elements."""
        return (self.dims is not None is not other.dims and self.rest == other.rest
                and (self.dims == other.dims if dims else self.dtype == other.dtype))


class Cell:
    """A variable that the translation has for a value of PIR, and for what is made of it in place."""

    def __init__(self, name, tensor, persistable):
        self.name, self.tensor, self.persistable = name.encode("latin-1"), tensor, persistable
        self.age, self.home, self.parts, self.is_parameter = 0, None, [], False


class Ref:
    """A value: its variable, when that was young. `twin`: of a value of the original, its number; None: new."""

    def __init__(self, cell, tensor, twin=None):
        self.cell, self.tensor, self.twin, self.age = cell, tensor, twin, cell.age


class PirOp:
    def __init__(self, raw):
        found = members(raw)
        expect("#" in found and "O" in found, "an op lacks its name or its results")
        expect("" not in found, "a member of an op has no name")
        self.type = string(found["#"])
        self.is_parameter = self.type == "p"
        self.operands = [integer(members(operand, "%")["%"]) for operand in elements(found.get("I", "[]"))]
        results = [found["O"]] if self.is_parameter else elements(found["O"])
        results = [members(result, "%", "TT") for result in results]
        self.results = [(integer(result["%"]), Tensor(result["TT"])) for result in results]
        self.rest = [(name, plain(raw)) for name, raw in found.items() if name not in ("I", "O")]
        self.rest.append(("types", [tensor.raw for _, tensor in self.results]))
        self.attrs, self.persistable = {}, []
        self.regions = elements(found.get("regions", "[]"))
        if self.is_parameter:
            self.name, flags = elements(found["A"]), elements(found["OA"])
            expect(len(self.name) == 4 and self.name[0] == "0" and len(flags) == 3,
                   "a parameter is distributed, or not as Paddle writes it")
            self.name, self.is_trained, self.persistable = string(self.name[3]), flags[2] == "1", [flags[0] == "1"]
            return
        for attr in elements(found.get("A", "[]")):
            attr = members(attr, "N", "AT")
            name = string(attr["N"])
            expect(name not in self.attrs, "an attribute is there twice")
            self.attrs[name] = attr["AT"]
            expect(len(self.attrs) <= 256, "it has too many attributes")
        for attr in elements(found.get("OA", "[]")):
            attr = members(attr, "N", "AT")
            if string(attr["N"]) == "persistable":
                self.persistable = [members(flag)["D"] == "true" for flag in elements(members(attr["AT"])["D"])]
        self.persistable += [False] * (len(self.results) - len(self.persistable))
        self.only = set(found) <= {"#", "A", "I", "O", "OA"}

    def base(self):
        return self.type[2:-1] if self.type.endswith("_") else self.type[2:]

    def value(self, attr, kind):
        expect(attr in self.attrs, "attribute %s is missing" % attr)
        found = members(self.attrs[attr], "#", "D")
        expect(string(found["#"]) == kind, "attribute %s has another type" % attr)
        return found["D"]


def put(number, value):
    """A field."""
    def varint(value):
        value &= (1 << 64) - 1
        data = b""
        while value > 127:
            data, value = data + bytes([value & 127 | 128]), value >> 7
        return data + bytes([value])
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", rounded(value))
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def op_bytes(kind, inputs, outputs, attrs):
    slots = [put(number, put(1, slot.encode()) + b"".join(put(2, name) for name in names))
             for number, given in ((1, inputs), (2, outputs)) for slot, names in given]
    values = [put(4, put(1, name.encode("latin-1")) + put(2, kind) + b"".join(
        put(VALUE_FIELD[kind], value) for value in (value if kind in LISTS else [value])))
        for name, kind, value in attrs]
    return put(4, b"".join(slots) + put(3, kind.encode("latin-1")) + b"".join(values))


class Pir:
    """An original and its result, as programs in the old format."""

    def __init__(self, original, result, steps, is_startup):
        self.is_startup, self.serial, self.in_block = is_startup, 0, False
        self.was, self.now = {}, {}  # refs, by id: a list, or the only one in a tuple
        self.constants, self.lists = {}, set()  # of new ones: values; ids of lists
        self.makers, self.gradients = {}, {}  # of values of the original: the op, and whether they are gradients
        self.parameters, self.todo = set(), []  # that ops write, and what these ops read
        self.decls, self.new_decls, self.ops, self.new_ops, self.steps = [], [], [], [], []
        kept, (ops, setting) = self.read(original)[0], self.read(result, original)
        self.names = {op.operands[0]: self.bound_name(op) for op in kept if op.type in BINDERS}
        bound = [{self.bound_name(op): op for op in of if op.type in BINDERS} for of in (kept, ops)]
        expect(len(self.names) == len(bound[0]) == sum(op.type in BINDERS for op in kept)
               and len(bound[1]) == sum(op.type in BINDERS for op in ops), "a state is set twice")
        for of in (kept, ops):
            made = set()
            for op in of:
                expect(op.type not in BINDERS or op.operands[0] in made, "a state is set before its value is made")
                made.update(number for number, _ in op.results)
        kept, ops = ([op for op in of if op.type not in BINDERS] for of in (kept, ops))
        was, now = iter(kept), iter(ops)
        for index, is_new in enumerate(steps):
            op = next(now, None)
            before = None if is_new else next(was, None)
            expect(op is not None and (is_new or before is not None), "proof.txt: a program has no further op")
            try:
                self.add_new(op) if is_new else self.keep(before, op)
            except Failure as failure:
                raise Failure("op %d (%s): %s" % (index, op.type, failure)) from None
        expect(next(was, None) is None and next(now, None) is None, "proof.txt: it leaves out the last ops")
        expect(bound[0].keys() == bound[1].keys(), "the result sets other states")
        for name, op in bound[1].items():
            ref = self.one(self.now, op.operands[0])
            expect(op.rest == bound[0][name].rest and self.is_current(ref) and ref.cell.name == name.encode("latin-1")
                   and self.one(self.was, bound[0][name].operands[0]).cell is ref.cell,
                   "the result sets %s to another value" % name)
        if not is_startup:
            self.find_gradients()
        block = put(1, 0) + put(2, -1)
        self.original = put(1, block + b"".join(self.decls) + b"".join(self.ops)) + put(4, put(1, 3000000))
        self.result = put(1, block + b"".join(self.decls + self.new_decls) + b"".join(self.new_ops)) + \
            put(4, put(1, 3000000)) + put(1001, setting)

    def bound_name(self, op):
        expect(self.is_startup and len(op.operands) == 1 and not op.results, "expected it in startup programs only")
        name = string(op.value(BINDERS[op.type], "0.a_str"))
        expect(name and not name.startswith("%"), "the name of a state begins with %")
        return name

    @staticmethod
    def read(data, original=None):
        found = members(data)
        expect(set(found) <= {"base_code", "program", "weft_setting"} and "program" in found,
               "the file has another member")
        code = members(found.get("base_code", "{}"))
        expect(code.get("magic") == '"pir"' and code.get("trainable") == "true"
               and code.get("version") in ("1", "2", "3", "4"), "expected PIR of versions 1 to 4, for training")
        expect(original is None or plain(found["base_code"]) == plain(members(original)["base_code"]),
               "the result has another version")
        regions = elements(members(found["program"], "regions")["regions"])
        blocks = [elements(members(region, "#", "blocks")["blocks"]) for region in regions]
        expect(len(blocks) == 1 and len(blocks[0]) == 1, "expected one block")
        block = members(blocks[0][0], "#", "args", "ops")
        expect(not elements(block["args"]), "expected a block without arguments")
        return list(map(PirOp, elements(block["ops"]))), found.get("weft_setting", "").encode("latin-1")

    # Values.

    def is_current(self, ref):
        return ref.age == ref.cell.age

    @staticmethod
    def refs(values, number):
        expect(number in values, "no op before it makes %%%d" % number)
        return values[number]

    def one(self, values, number):
        refs = self.refs(values, number)
        expect(isinstance(refs, tuple), "%%%d is a list" % number)
        return refs[0]

    def define(self, values, number, refs):
        expect((number > 0 or (number < 0 and self.in_block)) and number not in values, "%%%d is made twice" % number)
        values[number] = refs

    def cell(self, name, tensor, persistable, is_data, decls):
        expect(not persistable or tensor.dims is not None, "a state is no dense tensor")
        cell = Cell(name, tensor, persistable)
        described = put(1, 9) if tensor.dims is None else put(1, DENSE) + put(
            3, put(1, put(1, tensor.dtype) + b"".join(put(2, dim) for dim in tensor.dims)))
        decls.append(put(3, put(1, cell.name) + put(2, described) + put(3, int(persistable)) + put(4, int(is_data))))
        return cell

    # Ops of the original.

    def keep(self, before, op):
        expect(before.rest == op.rest and len(before.operands) == len(op.operands),
               "the op of the original is another one")
        if op.is_parameter or op.type == "1.data":
            return self.keep_data(before, op)
        expect(not op.regions or op.type in ("1.if", "1.while"), "no certificate for such ops with blocks")
        if op.type in ("0.combine", "0.split"):
            expect(op.operands and (op.type == "0.combine" or len(op.operands) == 1), "a list lacks elements")
            for values, of in ((self.was, before), (self.now, op)):
                refs = [ref for operand in of.operands for ref in (
                    [self.one(values, operand)] if op.type == "0.combine" else self.refs(values, operand))]
                self.define_list(values, of, refs)
            return self.note(before)
        expect(op.type[:2] == "1.", "no certificate for such ops")
        inputs = [self.read_operand(a, b) for a, b in zip(before.operands, op.operands)]
        for region in op.regions:
            inputs.append([(Ref(cell, cell.tensor), None) for cell in self.keep_block(region, before, inputs)])
        places = IN_PLACE.get(op.base()) if op.type.endswith("_") else []
        expect(not self.in_block or not op.type.endswith("_"), "an op in a block writes in place")
        expect(places is not None, "it is not known what this op does in place")
        expect(not op.type.endswith("_") or len(places) == len(op.results), "it has other results than known")
        outputs = []
        for j, (number, tensor) in enumerate(before.results):
            if tensor.kind == "NULL":
                continue
            if j < len(places) and places[j] != "-":
                place = int(places[j])
                expect(place < len(inputs) and inputs[place], "it writes in place what it does not have")
                cells = [was.cell for was, _ in inputs[place]]
                expect(len(cells) == (len(tensor.of) if tensor.kind == "0.t_vec" else 1),
                       "it writes in place a list of another length")
                if any(cell.is_parameter for cell in cells):
                    self.parameters.update(cell.name for cell in cells if cell.is_parameter)
                    self.todo += before.operands
            elif tensor.kind == "0.t_vec":
                cells = [self.cell("%%%d.%d" % (number, i), of, False, False, self.decls)
                         for i, of in enumerate(tensor.of)]
            else:
                name = self.names.get(number, "%%%d" % number)
                cells = [self.cell(name, tensor, op.persistable[j], False, self.decls)]
            outputs.append((j, [cell.name for cell in cells]))
            self.define_kept(number, op.results[j][0], tensor, cells)
        self.note(before)
        self.emit_kept(before, inputs, outputs)

    def keep_block(self, region, op, inputs):
        """Ops in blocks, which are the same text, as if each ran once: what an op with blocks does is a function of
        what they read. Returns what they give back."""
        was_in_block, self.in_block, given = self.in_block, True, []
        blocks = elements(members(region, "#", "blocks")["blocks"])
        expect(len(blocks) == 1, "expected one block")
        block = members(blocks[0], "#", "args", "ops")
        for arg in elements(block["args"]):
            arg = members(arg, "#", "TT")
            number, tensor = integer(arg["#"]), Tensor(arg["TT"])
            expect(tensor.kind != "0.t_vec", "an argument of a block is a list")
            given.append(self.cell("%%%d" % number, tensor, False, False, self.decls))
            self.define_kept(number, number, tensor, [given[-1]])
            self.makers[number], self.gradients[number] = op, False
        if given:
            self.emit_kept(op, inputs, [("", [cell.name for cell in given])])
        for inner in map(PirOp, elements(block["ops"])):
            if inner.type == "2.yield":
                given += [was.cell for number in inner.operands for was, _ in self.read_operand(number, number)]
            else:
                self.keep(inner, inner)
        self.in_block = was_in_block
        return given

    def keep_data(self, before, op):
        expect(not self.in_block, "a state is made in a block")
        is_state = before.persistable[0]
        name = before.name if op.is_parameter else string(before.value("name", "0.a_str"))
        expect(name and not name.startswith("%") and len(before.results) == 1 and not before.operands,
               "a state has no proper name, or no value")
        number, tensor = before.results[0]
        expect(tensor.kind != "0.t_vec", "a state is a list")
        cell = self.cell(name, tensor, is_state, not is_state, self.decls)
        cell.is_parameter = op.is_parameter and op.is_trained
        self.define_kept(number, op.results[0][0], tensor, [cell])
        self.note(before)

    def define_kept(self, number, new_number, tensor, cells):
        was, now = [], []
        for cell, of in zip(cells, tensor.of if tensor.kind == "0.t_vec" else [tensor]):
            self.serial += 1
            was.append(Ref(cell, of, self.serial))
            now.append(Ref(cell, of, self.serial))
        for values, at, refs in ((self.was, number, was), (self.now, new_number, now)):
            self.define(values, at, refs if tensor.kind == "0.t_vec" else tuple(refs))

    def define_list(self, values, op, refs):
        results = op.results
        types = [tensor for _, tensor in results]
        if op.type == "0.combine":
            expect(len(types) == 1 and types[0].kind == "0.t_vec", "a list lacks elements")
            types = types[0].of
        expect(len(types) == len(refs), "a list has another length")
        expect(all(of.kind == "NULL" or of.raw == ref.tensor.raw for of, ref in zip(types, refs)),
               "a list has other types than its elements")
        for i, (number, tensor) in enumerate(results):
            if tensor.kind != "NULL":
                self.define(values, number, refs if op.type == "0.combine" else (refs[i],))

    def read_operand(self, a, b):
        """Pairs of a value of the original and one of the result that is the same."""
        if a == 0 or b == 0:
            expect(a == b, "an operand is missing")
            return []
        refs, found = self.refs(self.was, a), self.refs(self.now, b)
        expect(refs, "it reads an empty list")
        expect(type(refs) is type(found) and len(refs) == len(found), "a list has other elements")
        for was, now in zip(refs, found):
            expect(self.is_current(now), "it reads %%%d, which a new op has used" % b)
            # From now on, a new value stands for the one of the original that it is read for first. What an op in
            # place made later of the same variable is that variable, too, with more order.
            now.twin = now.twin or was.twin
            expect(was.cell is now.cell and now.twin >= was.twin and was.tensor.raw == now.tensor.raw,
                   "it reads %%%d, and not what the original reads" % b)
        return list(zip(refs, found))

    def emit_kept(self, op, inputs, outputs):
        kind = WIRE_TYPES.get(op.base(), op.base())
        is_gradient = kind.endswith("_grad")
        given = [k for k, number in enumerate(op.operands) if self.makers.get(number, op).type not in CONSTANT_OPS
                 and any(was.cell.tensor.is_floats() for was, _ in inputs[k])]
        slots = []
        for k, refs in enumerate(inputs):
            slot = "Out@GRAD" if is_gradient and k in given[-1:] else "I%d" % k
            slot = "ScaleTensor" if k == 1 and kind in ("scale", "concat") else slot
            slots.append((slot, [was.cell.name for was, _ in refs]))
        attrs = []
        for name in op.attrs:
            if "seed" in name or "Seed" in name:
                attrs.append((name, INT, 0))
            elif name == "ring_id":
                attrs.append((name, LONG, integer(members(op.attrs[name]).get("D", ""))))
            elif name == "ring_ids":
                attrs.append((name, INTS, []))
            elif name == "execution_stream":
                attrs.append((name, STRING, string(members(op.attrs[name]).get("D", "")).encode("latin-1")))
            elif name == "bias" and kind == "scale":
                attrs.append((name, FLOAT, float(members(op.attrs[name]).get("D", ""))))
        data = op_bytes(kind, slots, [("O%s%s" % (j, "@GRAD" if is_gradient else ""), names) for j, names in outputs],
                        attrs)
        self.ops.append(data)
        self.new_ops.append(data)
        self.steps.append(b"=1")

    # Gradients.

    def note(self, op):
        """Which values are gradients: results of gradient ops, and sums of such results alone."""
        given = [number for number in op.operands if number and self.makers[number].type not in CONSTANT_OPS]
        is_gradient = op.base().endswith("_grad") or (op.type in SUMS and given and all(
            self.gradients[number] for number in given))
        for number, tensor in op.results:
            if tensor.kind != "NULL":
                self.makers[number], self.gradients[number] = op, bool(is_gradient)

    def find_gradients(self):
        """Of each parameter that an op writes: the gradients that its operands come from, without others between."""
        todo, seen, found = self.todo, set(), set()
        while todo:
            number = todo.pop()
            if number in seen or number == 0:
                continue
            seen.add(number)
            if self.gradients[number]:
                found.update(ref.cell.name for ref in self.was[number])
            else:
                todo += self.makers[number].operands
        expect(self.parameters and found, "no op writes a parameter by a gradient")
        pairs = itertools.zip_longest(sorted(self.parameters), sorted(found))
        last = max(self.parameters), max(found)
        names = [name or other for pair in pairs for name, other in zip(pair, last)]
        data = op_bytes("gradients", [], [], [("op_role", INT, 1), ("op_role_var", STRINGS, names)])
        self.ops.insert(0, data)
        self.new_ops.insert(0, data)
        self.steps.insert(0, b"=1")

    # New ops. Each uses up what it reads: its result takes over the variable.

    def take(self, ref):
        expect(self.is_current(ref), "it reads %s, which a new op has used" % text(ref.cell.name))
        ref.cell.age += 1
        return ref

    def give(self, op, cell):
        number, tensor = op.results[0]
        self.define(self.now, number, (Ref(cell, tensor),))

    def constant(self, number):
        expect(number in self.constants, "%%%d is no new constant" % number)
        return self.constants[number]

    def emit_new(self, kind, inputs, outputs, attrs):
        self.new_ops.append(op_bytes(kind, [(slot, [cell.name for cell in cells]) for slot, cells in inputs],
                                     [(slot, [cell.name for cell in cells]) for slot, cells in outputs], attrs))
        self.steps.append(b"+1")

    @staticmethod
    def attrs_of(op):
        """The data orders the ops: it does not matter on which stream they are."""
        attrs = [("use_calc_stream", BOOL, 1)] if "ring_id" in op.attrs else []
        for name, raw in op.attrs.items():
            found = members(raw, "#", "D")
            kind, value = string(found["#"]), found["D"]
            expect(kind in ("0.a_i32", "0.a_i64", "0.a_f32", "0.a_f64", "0.a_bool", "0.a_str"),
                   "no rule allows attribute " + name)
            if name in ("execution_stream", "scheduling_priority"):
                continue
            attrs.append((name, BOOL, int(value == "true")) if kind == "0.a_bool" else
                         (name, STRING, string(value).encode("latin-1")) if kind == "0.a_str" else
                         (name, FLOAT, float(value)) if kind[:5] == "0.a_f" else (name, LONG, integer(value)))
        return attrs

    def add_new(self, op):
        expect(not op.is_parameter and op.only and len(op.results) > 0, "no rule inserts such an op")
        rules = {"1.full": self.new_full, "1.full_int_array": self.new_full, "0.combine": self.new_list,
                 "0.split": self.new_list, "1.cast": self.new_cast, "1.reshape": self.new_reshape,
                 "1.concat": self.new_concat, "1.split": self.new_split, "1.all_gather": self.new_gather,
                 "1.split_with_num": self.new_parts, "1.add_n": self.new_sum}
        in_place = ("1.all_reduce", "1.all_reduce_", "1.broadcast", "1.broadcast_", "1.scale", "1.scale_")
        expect(op.type in rules or op.type in in_place, "no rule inserts such an op")
        rules.get(op.type, self.new_in_place)(op)

    def new_full(self, op):
        number, tensor = op.results[0]
        expect(not op.operands and len(op.results) == 1, "expected a constant")
        if op.type == "1.full":
            expect(set(op.attrs) == {"shape", "value", "dtype", "place"} and tensor.dims == [1]
                   and elements(op.value("shape", "1.a_intarray")) == ["1"], "expected a constant of one element")
            value = string(op.value("dtype", "1.a_dtype")), float(op.value("value", "0.a_f64"))
        else:
            expect(set(op.attrs) == {"value", "dtype", "place"} and op.value("dtype", "1.a_dtype") == '"int64"',
                   "expected whole numbers")
            value = []
            for element in elements(op.value("value", "0.a_array")):
                element = members(element, "#", "D")
                expect(element["#"] == '"0.a_i64"', "expected whole numbers")
                value.append(integer(element["D"]))
        self.define(self.now, number, [])
        self.constants[number] = value

    def new_list(self, op):
        expect(op.operands and not op.attrs and (op.type == "0.combine" or len(op.operands) == 1),
               "a list lacks elements")
        refs = [ref for operand in op.operands for ref in (
            [self.one(self.now, operand)] if op.type == "0.combine" else self.refs(self.now, operand))]
        self.define_list(self.now, op, refs)
        if op.type == "0.combine":
            self.lists.add(op.results[0][0])

    def take_list(self, op, operands):
        expect(len(op.operands) == operands and len(op.results) == 1 and not op.attrs,
               "it has other operands, results or attributes")
        expect(op.operands[0] in self.lists, "its operand is no new list")
        return [self.take(ref) for ref in self.now[op.operands[0]]]

    def x_of(self, op, operands):
        expect(len(op.operands) == operands and len(op.results) == 1, "it has other operands or results")
        return self.take(self.one(self.now, op.operands[0]))

    def new_in_place(self, op):
        base = op.base()
        x = self.x_of(op, 2 if base == "scale" else 1)
        cell, attrs = x.cell, self.attrs_of(op)
        expect(x.tensor.raw == op.results[0][1].raw, "its result has another type")
        expect(not cell.persistable or (op.persistable[0] and (self.is_startup or op.type.endswith("_"))),
               "%s is a state, and its result is not" % text(cell.name))
        if base == "scale":
            factor = self.constant(op.operands[1])
            expect(isinstance(factor, tuple) and factor[0] == "float32", "expected a constant to scale by")
            attrs.append(("scale", FLOAT, factor[1]))
        self.emit_new(base, [("X", [cell])], [("Out", [cell])], attrs)
        self.give(op, cell)

    def new_cell(self, op, tensor, home):
        cell = self.cell("%%new.%d" % len(self.new_decls), tensor, False, False, self.new_decls)
        cell.home = home
        return cell

    def coalesce(self, cell, parts, copies):
        cell.parts = parts
        self.emit_new("coalesce_tensor", [("Input", parts)], [("Output", parts), ("FusedOutput", [cell])],
                      [("copy_data", BOOL, int(copies)), ("use_align", BOOL, 0), ("dtype", INT, cell.tensor.dtype)])

    def new_cast(self, op):
        x = self.x_of(op, 1)
        tensor = op.results[0][1]
        expect(set(op.attrs) == {"dtype"} and x.tensor.is_like(tensor, dims=True), "its result has another type")
        cell, home = x.cell, x.cell.home
        if home is None or home.tensor.dtype != tensor.dtype:
            home = self.like(op, cell, tensor)
            if cell.parts:
                self.coalesce(home, [self.like(op, part, tensor) for part in cell.parts], False)
        self.emit_new("cast", [("X", [cell])], [("Out", [home])], [
            ("in_dtype", INT, x.tensor.dtype),
            ("out_dtype", INT, DTYPE_NAMES.get(string(op.value("dtype", "1.a_dtype")), -1))])
        self.give(op, home)

    def like(self, op, cell, tensor):
        """A new variable for a cast of another one."""
        other = copy.copy(cell.tensor)
        other.dtype = tensor.dtype
        return self.new_cell(op, other, cell.home or cell)

    def new_reshape(self, op):
        x = self.x_of(op, 2)
        tensor = op.results[0][1]
        expect(not op.attrs and x.tensor.is_like(tensor, dims=False) and x.tensor.size() == tensor.size()
               and self.constant(op.operands[1]) == tensor.dims and not x.cell.parts, "it is no reshape")
        self.give(op, x.cell)

    def axis(self, number):
        expect(self.constant(number) == ("int32", 0), "expected axis 0")

    def new_concat(self, op):
        refs, tensor = self.take_list(op, 2), op.results[0][1]
        self.axis(op.operands[1])
        expect(all(ref.tensor.is_like(tensor, dims=False) and len(ref.tensor.dims) == 1 for ref in refs)
               and tensor.dims == [sum(ref.tensor.size() for ref in refs)] and not any(ref.cell.parts for ref in refs),
               "its result has another type")
        cell = self.new_cell(op, tensor, None)
        self.coalesce(cell, [ref.cell for ref in refs], True)
        self.give(op, cell)

    def new_split(self, op):
        x = self.x_of(op, 3)
        self.axis(op.operands[2])
        number, tensor = op.results[0]
        sizes = [part.tensor.size() for part in x.cell.parts]
        expect(sizes and not op.attrs and self.constant(op.operands[1]) == sizes and tensor.kind == "0.t_vec"
               and [of.dims for of in tensor.of] == [[size] for size in sizes]
               and all(of.is_like(x.tensor, dims=False) for of in tensor.of), "it takes apart what no concat made")
        self.define(self.now, number, [Ref(part, of) for part, of in zip(x.cell.parts, tensor.of)])

    def new_gather(self, op):
        x = self.x_of(op, 1)
        expect(x.cell.home is None and x.tensor.raw == x.cell.tensor.raw
               and x.tensor.dims is not None is not op.results[0][1].dims and x.tensor.rest == op.results[0][1].rest,
               "it gathers another value than a gradient")
        cell = self.new_cell(op, op.results[0][1], x.cell)
        self.emit_new("all_gather", [("X", [x.cell])], [("Out", [cell])], self.attrs_of(op))
        self.give(op, cell)

    def new_parts(self, op):
        x = self.x_of(op, 2)
        self.axis(op.operands[1])
        number, tensor = op.results[0]
        home = x.cell.home
        expect(home is not None and x.tensor.raw == x.cell.tensor.raw and tensor.kind == "0.t_vec" and all(of.raw == home.tensor.raw for of in tensor.of),
               "it takes apart what was not gathered")
        cells = [self.new_cell(op, of, home) for of in tensor.of]
        self.emit_new("split", [("X", [x.cell])], [("Out", cells)], self.attrs_of(op))
        self.define(self.now, number, [Ref(cell, of) for cell, of in zip(cells, tensor.of)])

    def new_sum(self, op):
        refs = self.take_list(op, 1)
        home = refs[0].cell.home
        expect(home is not None and all(of.raw == home.tensor.raw for of in [op.results[0][1]] + [
            ref.tensor for ref in refs]), "it sums other values than gathered ones")
        self.emit_new("sum", [("X", [ref.cell for ref in refs])], [("Out", [home])], [])
        self.give(op, home)


def from_pir(words, files):
    """The steps and the files, in the old format."""
    words = list(words)
    at = next((i for i in range(0, len(words), 2) if words[i] != b"own"), len(words))
    expect(words[at:at + 1] == [b"main"], "proof.txt: expected the steps of the main program")
    middle = words.index(b"startup", at) if b"startup" in words[at:] else len(words)
    expect((middle < len(words)) == (len(files) == 4), "proof.txt: it is for other files")
    files = [str(file, "latin-1").strip(" \t\n\r") for file in files]
    translated, new_words = [], words[:at]
    for i, steps in enumerate((words[at + 1:middle], words[middle + 1:])[:len(files) // 2]):
        expect(all(re.fullmatch(b"[=+][0-9]{1,18}", step) for step in steps), "proof.txt: expected a step")
        many = (step[:1] == b"+" for step in steps for _ in range(int(step[1:])))
        try:
            for file in files[2 * i:2 * i + 2]:
                check_depth(file)
            pir = Pir(files[2 * i], files[2 * i + 1], many, i == 1)
        except (ValueError, IndexError, KeyError, RecursionError, OverflowError) as error:
            raise Failure("the file is no PIR: %s" % error) from None
        translated += [pir.original, pir.result]
        new_words += [(b"main", b"startup")[i]] + pir.steps
    return iter(new_words), translated


# --- The certificate -------------------------------------------------------------------------------


CLAIM = """Weft certificate 1
original: %s
result: %s
original startup: %s
result startup: %s
startup of rank: %s
ranks: %s
gradients: %s
schedule: %s, %s calls on %s rings

Checked:
- On each rank, the result computes what the original computes on the data of this rank,
%s- States that are equal on all ranks before a step are equal after it.
- No result depends on the timing of streams; all ranks make the same calls in one order.
- %s
Exceptions:
- states of which each rank has its own: %s
%s- gradients that are rounded to fewer bits on their way: %s
- variables that are not the original's when the step ends, but 1/n of them or unset: %s
Assumed:
- Every rank runs this program, and a startup program that is certified for it.
- Kept ops compute the same from the same values, and write only their outputs, in place.
- Gradient ops (..._grad) are linear in their inputs ...@GRAD.
- Sums and quotients are rounded; states that no startup program sets are set equally.
%sAsserted by Weft, not checked:
- How this relates to one device with the batch of all ranks (weft verify).
"""
REPLACED = """  with gradients (%s of %s parameters) replaced by their %s over the ranks.
- Each gradient is replaced once, when it is complete and before its first use.
"""
CHANGED = """  but when step s ends (s = 1, 2, ...), states change, by what they were before:
"""
SYNCHRONIZED = """- states that are equal on all ranks after their change: %s
- states that may travel when a step ends: %s
"""
SHARES = """- states of which each rank has a part, in order of ranks: %s
- states that are equal, of which one is kept: %s
"""
UPDATED = "- Each rank's ops on its parts compute each element as ops on whole states do.\n"
ADDED = "- Sums of squares are rounded, which ranks add up (%d).\n"
PIR_CLAIM = """Assumed of Paddle 3:
- Ops that use one variable, and calls on rings, run in the order of the file.
- Ops whose names end in _ overwrite what is known of them, and other ops overwrite nothing.
- Gradient ops are linear in their last operand of floats; the process has set up the rings.
"""
STARTUP = ("Not checked, as no startup programs were given: that states are equal at first.",
           "After the startup program, states are equal: what the original's leaves on rank 0.",
           "After the startup program, states are what the original's leaves on rank 0; new ones are 0,\n"
           "  but p_outer_param is p.",
           "After the startup program, states, and parts of states, are what the original's leaves on rank 0.")


def fingerprint(calls):
    return hashlib.sha256(b"".join(calls)).hexdigest()[:16]


def quoted(line):
    return "no line" if line is None else '"%s"' % text(line)


def value_of(key, claim):
    for line in claim.split(b"\n"):
        if line.startswith(key):
            return text(line[len(key):])
    raise Failure("claim.txt: no line begins with " + text(key))


def check(claim, proof, files):
    expect(all(files[2:]), "a startup program is empty")
    ranks, by = value_of(b"ranks: ", claim), value_of(b"gradients: ", claim)
    nranks = int(ranks) if re.fullmatch("[0-9]{1,18}", ranks) else 0
    expect(by in ("sum", "mean", "own") and nranks <= 1 << 20,
           "claim.txt: expected at most 2^20 ranks, and sum, mean or own")
    words = iter(proof.split())
    expect((next(words, None), next(words, None)) == (b"weft-proof", b"1"), "proof.txt: unknown version")
    programs = files
    if re.match(rb"[ \t\n\r]*\{", files[0]):
        expect(by != "own", "no rule averages parameters of PIR")
        words, programs = from_pir(words, files)
        expect(b'shares"' not in bytes_of(programs[1], 1001), "no rule shares out states of PIR")
    main = Walk(programs[0], programs[1], nranks, by, None)
    own, word = set(), next(words, None)
    while word == b"late":
        ring, var = next(words, b""), main.var(next(words, b""))
        expect(re.fullmatch(b"[0-9]{1,9}", ring) and var.of is None and var.is_state and var.late is None,
               "proof.txt: %s is no new state, or is named twice" % var)
        stream = var.late = main.stream(int(ring))
        main.clocks[stream][stream] = 1
        var.accesses = ([stream, 1, 1],)
        main.late.append(var.name)
        word = next(words, None)

    def name_own(var, is_own):
        expect(var.is_state and var.name != b"none" and (var.of is var or main.averages)
               and not (is_own and var.is_elsewhere), "proof.txt: %s is no state, or named none, or shared out" % var)
        var.is_own, var.equal = is_own, not is_own
        (own.add if is_own else own.discard)(var.name)

    if word == b"all":
        for var in main.vars.values():
            if var.of is var and var.is_state and not var.is_elsewhere:
                name_own(var, True)
        word = next(words, None)
    while word in (b"own", b"common"):
        name_own(main.var(next(words, b"")), word == b"own")
        word = next(words, None)
    expect(word == b"main", "proof.txt: expected the steps of the main program")
    expect(main.run(words) == (len(files) == 4), "proof.txt: it is for other files")
    expect(len(files) == 4 or not main.layout, "shares need the startup programs, which make them")
    rank = "all"
    if len(files) == 4:
        startup = Walk(programs[2], programs[3], nranks, by, main)
        startup.run(words)
        rank = "%s, calls %s" % (startup.rank if startup.endpoints else rank, fingerprint(startup.schedule))
        if startup.endpoints:
            rank += ", endpoints " + b" ".join(startup.endpoints).decode()
    hashes = [hashlib.sha256(file).hexdigest() for file in files] + ["none"] * (4 - len(files))
    schedule = fingerprint(main.schedule)
    states = b" ".join(sorted(own)).decode("latin-1") or "none"
    statement, changed = REPLACED % (main.num_gradients, main.num_parameters, by), ""
    if main.averages:
        statement = CHANGED + main.changes
        changed = SYNCHRONIZED % tuple(b" ".join(names).decode("latin-1") or "none"
                                       for names in (sorted(main.synchronized), main.late))
    if main.layout:
        shares = [b" ".join([name, b"="] + [state for state, _ in of if state]) for name, of in sorted(main.layout.items())]
        common = [b" ".join([name, b"="] + others) for name, others in sorted(main.common.items())]
        changed = SHARES % tuple(b"; ".join(names).decode("latin-1") or "none" for names in (shares, common))
    begun = 2 if main.averages else 3 if main.layout else 1
    right = CLAIM % (*hashes, rank, nranks or "any", by, schedule, len(main.schedule), len(main.rings), statement,
                     STARTUP[begun if len(files) == 4 else 0], states, changed, main.num_rounded, main.num_others,
                     (UPDATED if main.layout else "") + (ADDED % main.num_sums if main.num_sums else ""))
    right += PIR_CLAIM if programs is not files else ""
    lines = itertools.zip_longest(right.encode("latin-1").split(b"\n"), claim.split(b"\n"))
    for i, (expected, found) in enumerate(lines):
        expect(expected == found, "claim.txt, line %d: expected %s, found %s" % (i + 1, quoted(expected), quoted(found)))


def main(argv):
    if len(argv) not in (4, 6):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        content = []
        for path in [argv[1] + "/claim.txt", argv[1] + "/proof.txt"] + argv[2:]:
            with open(path, "rb") as file:
                content.append(file.read())
        check(content[0], content[1], list(map(memoryview, content[2:])))  # of which parts are no copies
        status, verdict = 0, "certified: %s\n\n%s" % (argv[3], content[0].decode("latin-1"))
    except (Failure, OSError, MemoryError) as failure:
        status, verdict = 1, "not certified: %s\n" % (str(failure) or "out of memory")
    try:
        sys.stdout.buffer.write(verdict.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads the verdict
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
