#!/usr/bin/env python3
"""Changes that a document shows fit the tree: they apply, their labels in BUILD files name targets and
files, and their sources compile without warnings.

The test neither compiles sources that include a changed header, nor links, nor runs anything.

usage: doc_diffs_test.py ROOT_FILE DOCUMENT...

ROOT_FILE is any file in the root of the repository. A document says

    <!-- new: FILE -->      before a block with a new file, and
    <!-- edit: FILE -->     before a block of lines that stay (" "), go ("-") and come ("+").

In an edit, a line "@@" separates places. The lines of a place occur once in the file. The changes of a
document are made in their order. C++ sources are parsed (-fsyntax-only); CUDA sources are compiled to PTX
where there is an nvcc, and skipped elsewhere. Each changed file is a case of the test's XML report.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

BLOCK = re.compile(r"^<!-- (new|edit): (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r'"([\w./]+\.(?:cc|cu|h))"')
LABEL = re.compile(r'"(//(?!visibility)[\w/]*)?:((?!__)\w+)"')


# As in .bazelrc.
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]


class Failure(Exception):
    pass


class Skipped(Exception):
    pass


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def edited(path, text, code):
    """The text after an edit."""
    for place in re.split(r"^@@\n", code, flags=re.MULTILINE):
        lines = place.splitlines(keepends=True)
        for line in lines:
            if line[0] not in " +-\n":
                raise Failure(f"{path}: expected a line that begins with ' ', + or -, found {line}")
        before = "".join(line[1:] or line for line in lines if line[0] != "+")
        after = "".join(line[1:] or line for line in lines if line[0] != "-")
        if text.count(before) != 1:
            raise Failure(f"{path}: expected these lines once, found them {text.count(before)} times:\n"
                          + before)
        text = text.replace(before, after)
    return text


class Tree:
    """The tree of the repository with changes on top, which are files in `top`."""

    def __init__(self, root, top):
        self.root, self.top = root, top
        self.changed = []

    def find(self, path):
        on_top = os.path.join(self.top, path)
        return on_top if os.path.exists(on_top) else os.path.join(self.root, path)

    def make(self, kind, path, code):
        if kind == "edit":
            code = edited(path, read(self.find(path)), code)
        elif os.path.exists(self.find(path)):
            raise Failure(f"{path}: a new file, but it exists")
        write(os.path.join(self.top, path), code)
        if path not in self.changed:
            self.changed.append(path)

    def check_build(self, path):
        """A changed BUILD file names sources and targets that exist."""
        package, text = os.path.dirname(path), read(self.find(path))
        for source in SOURCE.findall(text):
            if f'outs = ["{source}"]' in text:
                continue
            if not os.path.exists(self.find(os.path.join(package, source))):
                raise Failure(f"{path}: no file {source}")
        for other, target in LABEL.findall(text):
            if other == "//conditions":  # of select()
                continue
            build = self.find(os.path.join(other[2:], "BUILD")) if other else self.find(path)
            if f'"{target}"' not in read(build):
                raise Failure(f"{path}: no target {other}:{target}")

    def check_is_listed(self, path):
        """A source is in the BUILD file of its directory, by name or by a pattern of glob."""
        folder, name = os.path.split(path)
        build = os.path.join(folder, "BUILD")
        listed = re.findall(r'"(\S+)"', read(self.find(build)))
        if not any(fnmatch.fnmatch(name, pattern) for pattern in listed):
            raise Failure(f"{build}: expected {name} in a target")

    def check_file(self, path):
        """Checks a changed file."""
        if os.path.basename(path) == "BUILD":
            self.check_build(path)
        elif path.endswith((".cc", ".cu", ".h")):
            self.check_is_listed(path)
        if path.endswith((".cc", ".cu")):
            self.compile(path)

    def compile(self, path):
        """Compiles a source, without code."""
        compiler = ["g++", "-fsyntax-only"] + WARNINGS
        if path.endswith(".cu"):
            compiler = [find_nvcc(), "-ptx", "-arch=sm_90", "-o", os.devnull]
            if compiler[0] is None:
                raise Skipped("no nvcc")
        includes = [os.path.join(self.top, "generated"), self.top, self.root]
        found = subprocess.run(
            compiler + ["-std=c++17"] + [f"-I{folder}" for folder in includes] + [self.find(path)],
            stderr=subprocess.STDOUT, stdout=subprocess.PIPE, check=False, text=True)
        if found.returncode != 0:
            raise Failure(f"{path} does not compile:\n{found.stdout}")


def find_nvcc():
    roots = [os.environ.get(name) for name in ("WEFT_CUDA_PATH", "CUDA_HOME", "CUDA_PATH")]
    for root in roots + ["/usr/local/cuda"]:
        if root and os.path.exists(os.path.join(root, "bin/nvcc")):
            return os.path.join(root, "bin/nvcc")
    return None


def problem_of(check, *args):
    """What a check raises: a Failure, Skipped, or None."""
    try:
        check(*args)
    except (Failure, Skipped) as problem:
        return problem
    return None


def apply_changes(tree, document):
    blocks = BLOCK.findall(read(document))
    if not blocks:
        raise Failure("no changes that name their file")
    for kind, path, code in blocks:
        tree.make(kind, path, code)


def check(root, document):
    """Makes the changes of a document, and checks the result. Returns pairs of a file and its problem."""
    top = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    try:
        tree = Tree(root, top)
        problem = problem_of(apply_changes, tree, document)
        if problem is not None:
            return [(document, problem)]
        generated = os.path.join(top, "generated")
        os.mkdir(generated)
        subprocess.run(["protoc", f"-I{root}", f"--cpp_out={generated}", "proto/framework.proto"],
                       check=True)
        with ThreadPoolExecutor(2) as pool:
            problems = pool.map(lambda path: problem_of(tree.check_file, path), tree.changed)
            return list(zip(tree.changed, problems))
    finally:
        shutil.rmtree(top)


def write_report(path, results):
    """Writes results, as (document, file, problem), where Bazel expects a test's XML report."""
    suite = ElementTree.Element("testsuite", name="doc_diffs_test")
    for document, file, problem in results:
        case = ElementTree.SubElement(suite, "testcase", classname=document, name=file)
        if problem is not None:
            kind = "skipped" if isinstance(problem, Skipped) else "failure"
            ElementTree.SubElement(case, kind, message=str(problem))
    ElementTree.ElementTree(suite).write(path)


def main():
    root = os.path.dirname(os.path.realpath(sys.argv[1]))
    results = [(document, file, problem) for document in sys.argv[2:]
               for file, problem in check(root, document)]
    for document, file, problem in results:
        state = "skipped, " if isinstance(problem, Skipped) else ""
        print(f"{document}: {file}: {state}{problem or 'good'}")
    if "XML_OUTPUT_FILE" in os.environ:
        write_report(os.environ["XML_OUTPUT_FILE"], results)
    return 1 if any(isinstance(problem, Failure) for _, _, problem in results) else 0


if __name__ == "__main__":
    sys.exit(main())
