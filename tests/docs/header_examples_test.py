#!/usr/bin/env python3
"""Examples in the comments of headers are those that header_examples_test.cc compiles.

usage: header_examples_test.py ROOT/.clang-format

An example is indented in a comment and has a statement that ends with ");". Looks at the real headers
of base, proto and transpiler, without those for tests. Blanks do not matter; "..." in a line of an
example stands for anything.
"""
import glob
import os
import re
import sys

LINE = re.compile(r"^ *//   (.*)$")
STATEMENT = re.compile(r"^ *//   .*\);$")
# Program text, rules of the verifier in parentheses, and what a class must have.
NO_CODE = re.compile(r"=\[|\(W\d|explicit ")


def examples(header):
    """The lines of examples, by example: runs of comment lines with a statement among them."""
    run = []
    with open(header, encoding="utf-8") as file:
        for line in list(file) + [""]:
            if LINE.match(line) or (run and line.strip() == "//"):
                run.append(line.rstrip("\n"))
                continue
            if any(STATEMENT.match(l) and not NO_CODE.search(l) for l in run):
                yield [LINE.match(l).group(1).strip() for l in run if LINE.match(l)]
            run = []


def without_blanks(text):
    return re.sub(r"\s", "", text)


def missing(example, compiled):
    """The first line of the example that does not follow in `compiled`; None: all do."""
    at = 0
    for line in example:
        pattern = ".*?".join(re.escape(part) for part in without_blanks(line).split("..."))
        found = re.compile(pattern).search(compiled, at)
        if found is None:
            return line
        at = found.end()
    return None


def main():
    root = os.path.dirname(os.path.realpath(sys.argv[1]))
    with open(os.path.join(root, "tests/docs/header_examples_test.cc"), encoding="utf-8") as file:
        sections = re.split(r"^// ((?:base|proto|transpiler)/\S+\.h)$", file.read(), flags=re.M)
    compiled = {name: without_blanks(text) for name, text in zip(sections[1::2], sections[2::2])}
    found = failed = 0
    # Not of the whole tree: bazel's links lead to all of the system.
    paths = [path for top in ("base", "proto", "transpiler")
             for path in glob.glob(os.path.join(root, top, "**", "*.h"), recursive=True)]
    for path in sorted(paths):
        header = os.path.relpath(path, root)
        if "testing" in header or header.endswith("matchers.h"):
            continue
        for example in examples(path):
            found += 1
            line = missing(example, compiled.get(header, ""))
            if line is not None:
                failed += 1
                print("%s: tests/docs/header_examples_test.cc does not have, in its section: %s"
                      % (header, line))
    print("%d examples, %d not compiled" % (found, failed))
    return 1 if failed or found < 8 else 0


if __name__ == "__main__":
    sys.exit(main())
