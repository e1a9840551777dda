#!/usr/bin/env python3
"""Changes that a document shows can be made: they apply to the tree, BUILD files have what they name,
and the sources compile.

usage: doc_diffs_test.py ROOT_FILE DOCUMENT...

ROOT_FILE is any file in the root of the repository. A document says

    <!-- new: FILE -->      before a block with a new file, and
    <!-- edit: FILE -->     before a block of lines that stay (" "), go ("-") and come ("+").

In an edit, a line "@@" separates places. The lines of a place occur once in the file. The changes of a
document are made in their order. CUDA sources are compiled if there is an nvcc.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

BLOCK = re.compile(r"^<!-- (new|edit): (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r'"([\w./]+\.(?:cc|cu|h))"')
LABEL = re.compile(r'"(//(?!visibility)[\w/]*)?:((?!__)\w+)"')


class Failure(Exception):
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
            if not os.path.exists(self.find(os.path.join(package, source))):
                raise Failure(f"{path}: no file {source}")
        for other, target in LABEL.findall(text):
            build = self.find(os.path.join(other[2:], "BUILD")) if other else self.find(path)
            if f'"{target}"' not in read(build):
                raise Failure(f"{path}: no target {other}:{target}")

    def check_is_listed(self, path):
        """A source is in the BUILD file of its directory."""
        build = os.path.join(os.path.dirname(path), "BUILD")
        if f'"{os.path.basename(path)}"' not in read(self.find(build)):
            raise Failure(f"{build}: expected {os.path.basename(path)} in a target")

    def compile(self, path):
        """Compiles a source, without code. Returns a word on what it did."""
        if not path.endswith((".cc", ".cu")):
            return "checked"
        compiler = ["g++", "-Wall", "-Werror", "-fsyntax-only"]
        if path.endswith(".cu"):
            compiler = [find_nvcc(), "-ptx", "-arch=sm_90", "-o", os.devnull]
            if compiler[0] is None:
                return "not compiled, for want of an nvcc"
        includes = [os.path.join(self.top, "generated"), self.top, self.root]
        found = subprocess.run(
            compiler + ["-std=c++17"] + [f"-I{folder}" for folder in includes] + [self.find(path)],
            stderr=subprocess.STDOUT, stdout=subprocess.PIPE, check=False, text=True)
        if found.returncode != 0:
            raise Failure(f"{path} does not compile:\n{found.stdout}")
        return "compiled"


def find_nvcc():
    roots = [os.environ.get(name) for name in ("WEFT_CUDA_PATH", "CUDA_HOME", "CUDA_PATH")]
    for root in roots + ["/usr/local/cuda"]:
        if root and os.path.exists(os.path.join(root, "bin/nvcc")):
            return os.path.join(root, "bin/nvcc")
    return None


def check(root, document):
    """Makes the changes of a document, and checks the result. Returns the number of changed files."""
    blocks = BLOCK.findall(read(document))
    if not blocks:
        raise Failure("no changes that name their file")
    top = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    try:
        tree = Tree(root, top)
        for kind, path, code in blocks:
            tree.make(kind, path, code)
        generated = os.path.join(top, "generated")
        os.mkdir(generated)
        subprocess.run(["protoc", f"-I{root}", f"--cpp_out={generated}", "proto/framework.proto"],
                       check=True)
        for path in tree.changed:
            if os.path.basename(path) == "BUILD":
                tree.check_build(path)
            elif path.endswith((".cc", ".cu", ".h")):
                tree.check_is_listed(path)
        with ThreadPoolExecutor(2) as pool:
            for path, result in zip(tree.changed, pool.map(tree.compile, tree.changed)):
                print(f"{path}: {result}")
        return len(tree.changed)
    finally:
        shutil.rmtree(top)


def main():
    root = os.path.dirname(os.path.realpath(sys.argv[1]))
    wrong = 0
    for document in sys.argv[2:]:
        try:
            print(f"{document}: {check(root, document)} changed files")
        except Failure as failure:
            print(f"{document}: {failure}", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
