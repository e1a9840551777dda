#!/usr/bin/env python3
"""What a document shows as the output of commands is what they print.

usage: doc_output_test.py ROOT_FILE TRANSPILE WEFT DOCUMENT...

ROOT_FILE is any file in the root of the repository; TRANSPILE and WEFT are the built tools. A document
says

    <!-- output: DATA -->

before an indented block of commands, each with what it prints:

    $ COMMAND
    OUTPUT

DATA is a directory or an archive (.tar.xz) below tests/data. The commands run in a copy, which the blocks
of a document with the same DATA share. Standard output and standard error count alike. What varies:

    ...                             any lines
    <!-- output: DATA; times vary -->   before " s" and " ms", any number stands for any other
    10.63908                        a number with a decimal point, to five digits: processors differ

A block with a command and its output that does not say so is an error.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

BLOCK = re.compile(r"(?:^<!-- output: ([\w./]+)(; times vary)? -->\n\n?)?((?:^ {4}.*\n)+)", re.MULTILINE)
TIME = re.compile(r"\d[\d.e+-]*(?= m?s\b)")
FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def commands_of(code):
    """The commands of a block with their lines of output."""
    commands = []
    for line in code.splitlines():
        line = line[4:]
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and commands[-1][0].endswith("\\"):
            commands[-1] = (commands[-1][0] + "\n" + line, [])
        elif commands:
            commands[-1][1].append(line)
    return commands


def are_alike(expected, found, times_vary):
    if times_vary:
        expected, found = TIME.sub("TIME", expected), TIME.sub("TIME", found)
    if FLOAT.sub("NUMBER", expected) != FLOAT.sub("NUMBER", found):
        return False
    pairs = zip(map(float, FLOAT.findall(expected)), map(float, FLOAT.findall(found)))
    return all(abs(a - b) <= 1e-5 * abs(a) for a, b in pairs)


def match(expected, found, times_vary):
    if not expected:
        return not found
    if expected[0] == "...":
        return any(match(expected[1:], found[i:], times_vary) for i in range(len(found) + 1))
    return (bool(found) and are_alike(expected[0], found[0], times_vary) and
            match(expected[1:], found[1:], times_vary))


def copy_data(root, data, parent):
    """A directory with a copy of the data."""
    source = os.path.join(root, "tests/data", data)
    target = os.path.join(parent, data.replace("/", "_"))
    is_archive = not os.path.isdir(source)
    if not os.path.exists(target) and is_archive:
        with tarfile.open(source) as archive:
            archive.extractall(target)
    elif not os.path.exists(target):
        shutil.copytree(source, target)
    inside = os.listdir(target)
    return os.path.join(target, inside[0]) if is_archive and len(inside) == 1 else target


def check_block(code, directory, bin_directory, times_vary):
    """The differences."""
    environment = dict(os.environ, PATH=bin_directory + ":" + os.environ["PATH"])
    wrong = []
    for command, expected in commands_of(code):
        run = subprocess.run(["bash", "-c", command], cwd=directory, env=environment, check=False,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, encoding="utf-8")
        found = run.stdout.splitlines()
        if match(expected, found, times_vary):
            continue
        wrong.append(f"$ {command}\nexpected:\n" + "\n".join(expected) +
                     f"\nfound (status {run.returncode}):\n" + "\n".join(found))
    return wrong


def main():
    root = os.path.dirname(os.path.realpath(sys.argv[1]))
    checked, wrong = 0, []
    with tempfile.TemporaryDirectory() as parent:
        bin_directory = os.path.join(parent, "bin")
        os.mkdir(bin_directory)
        for name, tool in zip(["transpile", "weft"], sys.argv[2:4]):
            os.symlink(os.path.abspath(tool), os.path.join(bin_directory, name))
        for number, document in enumerate(sys.argv[4:]):
            with open(document, encoding="utf-8") as f:
                blocks = BLOCK.findall(f.read())
            directory = os.path.join(parent, str(number))
            os.mkdir(directory)
            for data, times_vary, code in blocks:
                if not data:
                    if any(output for _, output in commands_of(code)):
                        wrong.append(f"{document}: output without a mark:\n{code}")
                    continue
                checked += 1
                for difference in check_block(code, copy_data(root, data, directory), bin_directory,
                                              bool(times_vary)):
                    wrong.append(f"{document}: {difference}")
    for text in wrong:
        print(text, end="\n\n", file=sys.stderr)
    print(f"{checked} blocks with output, {len(wrong)} differences")
    return 1 if wrong or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
