#!/usr/bin/env python3
"""Paddle reads everything that Weft writes.

usage: check_with_paddle.py TRANSPILE PROGRAMS

TRANSPILE is the tool; PROGRAMS a folder with <model>/main.pb and <model>/startup.pb, or a .tar.xz
of that. Needs Python with PaddlePaddle 2.6. Of every program, in every mode and both dialects:

- Paddle parses it, finds the ops that are in the file, and prints it;
- what Paddle writes again has every block, op, slot, attribute and variable that was read, and the
  setting of the program;
- Paddle knows the type of every op, but for those that the configuration names;
- Paddle makes an operator of every op: attributes have the type that its declaration wants, and
  all slots without which it does not work are there.

Prints a table. Exit status 1 if anything failed.
"""
import collections
import re
import sys
import tempfile

import written_programs

try:
    import paddle
    from paddle.base import core
    from paddle.base.proto import framework_pb2
except ImportError as error:
    sys.exit("check_with_paddle.py: error: PaddlePaddle 2.6 is not there (%s). Install it, for "
             "instance in a virtual environment: pip install paddlepaddle==2.6.2" % error)


def parse_message(data):
    message = framework_pb2.ProgramDesc()
    message.ParseFromString(data)
    return message


def var_fields(var):
    # Not stop_gradient: Paddle resets it when it parses parameters, those of its own files too.
    return (var.name, var.type, var.persistable, var.need_check_feed, var.is_parameter,
            list(var.attrs))


def unknown_fields(message):
    """The setting (Program::setting of proto/program.h), which Paddle does not know."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field in ("blocks", "version", "op_version_map"):
        rest.ClearField(field)
    return rest.SerializePartialToString()


def lost(before, after):
    """What a program has lost or changed in Paddle; empty: nothing. Paddle may add attributes: it
    writes defaults."""
    if len(before.blocks) != len(after.blocks):
        return "%d blocks became %d" % (len(before.blocks), len(after.blocks))
    if before.version != after.version:
        return "version %s became %s" % (before.version, after.version)
    if unknown_fields(before) != unknown_fields(after):
        return "the setting"
    for old_block, new_block in zip(before.blocks, after.blocks):
        where = "block %d " % old_block.idx
        for field in ("idx", "parent_idx", "forward_block_idx"):
            if getattr(old_block, field) != getattr(new_block, field):
                return where + field
        new_vars = {var.name: var for var in new_block.vars}
        if len(new_vars) != len(old_block.vars):
            return where + "%d variables became %d" % (len(old_block.vars), len(new_vars))
        for var in old_block.vars:
            if var.name not in new_vars or var_fields(var) != var_fields(new_vars[var.name]):
                return where + "variable " + var.name
        if len(old_block.ops) != len(new_block.ops):
            return where + "%d ops became %d" % (len(old_block.ops), len(new_block.ops))
        for i, (old, new) in enumerate(zip(old_block.ops, new_block.ops)):
            op = where + "op %d (%s) " % (i, old.type)
            if (old.type, old.is_target) != (new.type, new.is_target):
                return op + "became " + new.type
            for field in ("inputs", "outputs"):
                slots = [{v.parameter: list(v.arguments) for v in getattr(o, field)}
                         for o in (old, new)]
                if slots[0] != slots[1]:
                    return op + field + ": %s became %s" % tuple(slots)
            new_attrs = {attr.name: attr for attr in new.attrs}
            for attr in old.attrs:
                if new_attrs.get(attr.name) != attr:
                    return op + "attribute %s became %s" % (attr, new_attrs.get(attr.name))
    return ""


def message_of(error):
    """The line of Paddle's long messages that says what is wrong: "(NotFound) Operator ..."."""
    found = re.search(r"^\s*(\(\w+\) .*)$", str(error), re.MULTILINE)
    return found.group(1) if found else str(error).strip()[-300:]


class OpCheck:
    """Makes operators of ops. Remembers ops that it has seen: most are in many programs."""

    def __init__(self):
        self._seen = {}
        self.unknown = collections.defaultdict(set)  # types that Paddle lacks: in which modes

    def __call__(self, op, configuration):
        data = op.serialize_to_string()
        if data not in self._seen:
            self._seen[data] = self._check(op, data)
        problem = self._seen[data]
        if not problem or op.type() not in configuration.new_ops:
            return problem
        self.unknown[op.type()].add(configuration.name)
        return ""

    @staticmethod
    def _check(op, data):
        try:
            op.check_attrs()
            # Paddle makes no operator of an op with a sub-block outside of its program.
            if not any(op.attr_type(name) in (core.AttrType.BLOCK, core.AttrType.BLOCKS)
                       for name in op.attr_names()):
                core.Operator.create(data)
        except Exception as error:  # whatever Paddle throws
            return "%s: %s" % (op.type(), message_of(error))
        return ""


def check(written, check_op):
    """What is wrong with a program; empty: nothing."""
    with open(written.path, "rb") as file:
        data = file.read()
    try:
        program = paddle.static.Program.parse_from_string(data)
        text = str(program)
        again = program.desc.serialize_to_string()
    except Exception as error:  # whatever Paddle throws
        return message_of(error)
    found = [[op.type for op in block.ops] for block in program.blocks]
    if found != written.op_types:
        return "Paddle finds other ops than there are"
    if not all(op_type in text for types in found for op_type in types):
        return "Paddle does not print all ops"
    problem = lost(parse_message(data), parse_message(again))
    if problem:
        return "Paddle loses " + problem
    for block in program.blocks:
        for op in block.ops:
            problem = check_op(op.desc, written.configuration)
            if problem:
                return problem
    return ""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    paddle.enable_static()
    table, check_op = written_programs.Table(), OpCheck()
    with tempfile.TemporaryDirectory() as folder:
        models = written_programs.unpack(sys.argv[2], folder + "/programs")
        for written in written_programs.write_all(sys.argv[1], models, folder + "/out"):
            table.add(written, "" if written.refused else check(written, check_op))
    print("Paddle %s, %d programs" % (paddle.__version__, len(models)))
    status = table.print()
    for op_type, modes in sorted(check_op.unknown.items()):
        print("not in this Paddle: %s (%s)" % (op_type, ", ".join(sorted(modes))))
    return status


if __name__ == "__main__":
    sys.exit(main())
