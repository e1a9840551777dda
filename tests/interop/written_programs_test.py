#!/usr/bin/env python3
"""The configurations of written_programs.py are what `transpile` has now, on one small program.

usage: written_programs_test.py TRANSPILE PROGRAMS/MODEL/main.pb
"""
import os
import sys
import tempfile

import written_programs


def main():
    transpile, main_program = sys.argv[1:]
    programs = os.path.dirname(os.path.dirname(main_program))
    wrong = []
    new_ops = {c.name: set(c.new_ops) for c in written_programs.CONFIGURATIONS}
    seen = {name: set() for name in new_ops}
    with tempfile.TemporaryDirectory() as folder:
        models = written_programs.unpack(programs, folder)
        before = {(model, part): written_programs.op_types(os.path.join(path, part + ".pb"))
                  for model, path in models.items() for part in ("main", "startup")}
        for written in written_programs.write_all(transpile, models, folder):
            name = written.configuration.name
            if written.refused:
                wrong.append("%s: refused: %s" % (name, written.refused))
                continue
            old = before[written.model, written.part]
            if "none" in written.configuration.flags and written.op_types != old:
                wrong.append("%s: other ops than before" % name)
            seen[name].update(op for block in written.op_types for op in block)
    if before["fit_a_line", "startup"] != [["uniform_random", "fill_constant", "fill_constant"]]:
        wrong.append("read from startup.pb: %s" % before["fit_a_line", "startup"])
    for name, ops in new_ops.items():
        if name == "embedding_offload":
            continue  # fit_a_line has no table
        if not ops <= seen[name]:
            wrong.append("%s: no longer writes %s" % (name, ", ".join(sorted(ops - seen[name]))))
    for line in wrong:
        print(line, file=sys.stderr)
    print("%d configurations, %d problems" % (len(new_ops), len(wrong)))
    return 1 if wrong or not new_ops else 0


if __name__ == "__main__":
    sys.exit(main())
