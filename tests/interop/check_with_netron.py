#!/usr/bin/env python3
"""Netron opens everything that Weft writes, and draws every op.

usage: check_with_netron.py TRANSPILE PROGRAMS [NODE]

TRANSPILE is the tool; PROGRAMS a folder with <model>/main.pb and <model>/startup.pb, or a .tar.xz
of that; NODE the JavaScript runtime, version 20 or later (default: node). Needs Python with the
package netron, from which it takes Netron's own modules; no browser. Every program, in every mode
and both dialects, is opened as .pdmodel and as .pbtxt: Netron knows Paddle's programs by these
endings, and not by .pb.

Prints a table. Exit status 1 if anything failed.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

import written_programs


class Netron:
    """Netron's loader in a process of its own."""

    def __init__(self, node, netron_folder):
        script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "netron_ops.mjs")
        self._process = subprocess.Popen([node, script, netron_folder], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, universal_newlines=True)

    def open(self, path):
        """Returns {"format", "ops"} or {"error"}."""
        self._process.stdin.write(path + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit("check_with_netron.py: error: node ended while it opened %s" % path)
        return json.loads(answer)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def check(netron, path, op_types):
    """What is wrong with how Netron draws a program; empty: nothing."""
    found = netron.open(path)
    ending = os.path.splitext(path)[1]
    if "error" in found:
        return "%s: %s" % (ending, found["error"])
    if not found["format"].startswith("PaddlePaddle"):
        return "%s: taken for %s" % (ending, found["format"])
    if found["ops"] != op_types:
        return "%s: Netron draws other ops than there are" % ending
    return ""


def check_both(netron, transpile, written):
    """As check(), for the binary file and for its text."""
    problem = check(netron, written.path, written.op_types)
    if problem:
        return problem
    text = os.path.splitext(written.path)[0] + ".pbtxt"
    # What the paddle dialect wrote may be wrong, as Paddle's own.
    subprocess.run([transpile, "--mode", "none", "--no_verify", written.path, text], check=True)
    problem = check(netron, text, written.op_types)
    os.remove(text)
    return problem


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    transpile, programs = sys.argv[1:3]
    node = shutil.which(sys.argv[3] if len(sys.argv) == 4 else "node")
    if not node:
        sys.exit("check_with_netron.py: error: there is no node")
    package = importlib.util.find_spec("netron")
    if not package:
        sys.exit("check_with_netron.py: error: Netron is not there. Install it, for instance in a "
                 "virtual environment: pip install netron")
    table = written_programs.Table()
    netron = Netron(node, os.path.dirname(package.origin))
    with tempfile.TemporaryDirectory() as folder:
        models = written_programs.unpack(programs, folder + "/programs")
        for written in written_programs.write_all(transpile, models, folder + "/out", ".pdmodel"):
            table.add(written,
                      "" if written.refused else check_both(netron, transpile, written))
    netron.close()
    print("%d programs" % len(models))
    return table.print()


if __name__ == "__main__":
    sys.exit(main())
