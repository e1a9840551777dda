#!/usr/bin/env python3
"""Op types, rule ids and flags stand as strings only where they are at home.

usage: op_type_strings_test.py OPS_MD

OPS_MD is docs/reference/ops.md, whose table lists the registered op types. Looks at the real C++ sources of
the repository that it lies in, tests aside. Op types are at home in schemas, kernel tables and the
passes that make the ops: code that needs to know what an op is asks for traits
(ops/schema/op_schema.h), its algebra (ops/schema/algebra.h), or what it communicates
(ops/schema/communication_ops.h). The slot that names a fused buffer is at home in the schema and where
such buffers are made: others ask ops/analysis/core/storage.h what shares memory. Rule ids are at home in
the verifier, to report by: code that acts on a finding asks for its kind
(transpiler/verifier/findings/rule.h). Flags
are at home in the tools, and in the C interface, which parses them: messages elsewhere name an option as
option:nrings (tools/flags/flag_names.h).
"""

import os
import re
import sys

# Where an op type is at home.
HOMES = (
    "checker/",  # shares no code with the rest
    "ops/schema/",  # what the op is
    "ops/formulas/",  # what it computes, if that is a row of a table for all devices
    "ops/cpu/",  # kernel tables, by type
    "ops/gpu/",
    "executor/plan/control_kernels.cc",  # the table of kernels that move values
    "proto/snake_case_slots.cc",  # whose slots Paddle 3 writes in snake case
    "proto/formats/pir/",  # which op an op of Paddle 3's own format is
    "proto/formats/pt2/",  # which op an operator of PyTorch is
    "transpiler/passes/",  # make ops; the Paddle dialect rewrites the ops that Paddle rewrites
)
# Op types that are words of other uses too (attributes, keys of JSON, values of --trans_mode): counted
# where the line speaks of types, builds an op or is a row of a table by them.
AMBIGUOUS = re.compile(r"([a-z]+|all_gather|all_reduce)$")
SPEAKS_OF_TYPES = re.compile(r'[tT]ype|\bOp\(|Schema|\{"[a-z]+", \w+::k')
# NumPy's name of int8.
NO_OP_TYPES = {"i1"}
BUFFER_SLOT = re.compile(r"\bFusedOutput\b")
# Where that slot is at home: what the op is, what it computes, and what makes it.
BUFFER_SLOT_HOMES = (
    "checker/",
    "ops/schema/",
    "ops/coalesce_tensor.cc",
    "ops/cpu/",
    "ops/gpu/",
    "transpiler/passes/support/fused_buffer.cc",
)
LITERAL = re.compile(r'"([A-Za-z0-9_]+)"')
HOME_OF_RULES = "transpiler/verifier/"
RULE = re.compile(r'"W[0-9]{3}"')
COMPARED_RULE = re.compile(r'[=!]= ("W[0-9]{3}")')
HOME_OF_FLAGS = ("tools/", "c/")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
FLAG = re.compile(r"(?<![\w-])--(?:[a-z]|$)")


def op_types(ops_md):
    with open(ops_md, encoding="utf-8") as f:
        return set(re.findall(r"^\| `([a-z0-9_]+)` \|", f.read(), re.MULTILINE)) - NO_OP_TYPES


def sources(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [d for d in sorted(folders) if d[0] != "." and not d.startswith("bazel-")]
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), root)
            is_test = re.search(r"^(tests|examples)/|_test\.cc$|testing\.(cc|h)$", path)
            if re.search(r"\.(cc|h|cu|cuh)$", name) and not is_test:
                yield path


def code_of(line):
    """The line without its comment; op types hold no slash."""
    return re.sub(r"(^|\s)//.*", "", line)


def misplaced(line, types):
    code = code_of(line)
    for word in LITERAL.findall(code):
        if word in types and (not AMBIGUOUS.match(word) or SPEAKS_OF_TYPES.search(code)):
            yield word


def misplaced_rules(line, is_at_home=False):
    return (COMPARED_RULE if is_at_home else RULE).findall(code_of(line))


def misplaced_flags(line):
    return [text for text in TEXT.findall(code_of(line)) if FLAG.search(text[1:-1])]


def main():
    root = os.path.realpath(sys.argv[1]).removesuffix("/docs/reference/ops.md")
    types = op_types(sys.argv[1])
    assert len(types) > 500 and "matmul_v2" in types, "no table of ops"
    assert list(misplaced('if (op.type() == "sum") {  // "cast"', types)) == ["sum"]
    assert list(misplaced('{"matmul_v2", kProduct},', types)) == ["matmul_v2"]
    assert list(misplaced('{"cast", Kind::kCopy},', types)) == ["cast"]
    assert not list(misplaced('NumberAttr(op, "scale", 1)', types))
    assert BUFFER_SLOT.findall(code_of('op.Output("FusedOutput")')) == ["FusedOutput"]
    assert misplaced_rules('if (finding.rule == "W412") {') and not misplaced_rules('// "W412"')
    assert misplaced_rules('if (finding.rule == "W412") {', is_at_home=True)
    assert not misplaced_rules('report.Add("W412", op)', is_at_home=True)
    assert misplaced_flags('return "; transpile --exact_loss does";')
    assert misplaced_flags('absl::StrCat("does not read --", flag)')
    assert not misplaced_flags('for (; --left > 0; Say("option:nrings")) {  // "--nrings"')
    count = wrong = 0
    for path in sources(root):
        count += 1
        with open(os.path.join(root, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                found = [] if path.startswith(HOMES) else [f"op type {w}" for w in misplaced(line, types)]
                if not path.startswith(BUFFER_SLOT_HOMES):
                    found += [f"slot {slot}" for slot in BUFFER_SLOT.findall(code_of(line))]
                is_at_home = path.startswith(HOME_OF_RULES)
                found += [f"rule {id}" for id in misplaced_rules(line, is_at_home)]
                if not path.startswith(HOME_OF_FLAGS):
                    found += [f"a flag in {text}" for text in misplaced_flags(line)]
                for what in found:
                    print(f"{path}:{number}: {what} stands as a string", file=sys.stderr)
                wrong += len(found)
    assert count > 200, f"{count} sources under {root}"
    print(f"{count} sources, {wrong} misplaced strings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
