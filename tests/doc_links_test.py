#!/usr/bin/env python3
"""What the documents of the repository name exists: files and headings that they link to, files and
folders in backticks, and Bazel's targets.

usage: doc_links_test.py ROOT_FILE

ROOT_FILE is any file in the root of the repository. A path begins with an entry of the root, or is the
name of a source file anywhere. In paths and targets, `x`, `y`, `X` and words in capitals stand for any
name: `ops/cpu/X.cc` exists if ops/cpu has a source file. Targets without a package are those of an
embedding project. Files that a document shows and the tree does not have (<!-- new: FILE -->) do not count.
"""

import fnmatch
import glob
import itertools
import os
import re
import sys

LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(r"[\w.{},*-]+(?:/[\w.{},*-]+)*/?")
SOURCE = re.compile(r"[\w.{},*-]+\.(?:\{h,cc\}|cc|cu|h|py|sh|bzl|prog)")
LABEL = re.compile(r"(?<![\w:/@])//(\w+(?:/\w+)*)(?::([\w{},]+)|/(\.\.\.))?")
ANY_NAME = re.compile(r"(?<![A-Za-z0-9])(?:[xyX]|[A-Z]{2,})(?![A-Za-z0-9])")
CHANGE = re.compile(r"^<!-- (?:new|edit): .*?^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def alternatives(pattern):
    """`a{b,c}` as ab and ac."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def anchors(text):
    """The ids that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


class Tree:
    def __init__(self, root):
        self.root = root
        ignored = [line.strip("/") for line in read(os.path.join(root, ".gitignore")).splitlines()]
        self.entries = {entry for entry in os.listdir(root)
                        if not any(fnmatch.fnmatch(entry, pattern) for pattern in ignored)}
        self.names = set()
        self.documents = []
        for folder, folders, files in os.walk(root):  # Bazel's links are not followed
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            self.names.update(files)
            self.documents += [os.path.join(folder, f) for f in sorted(files) if f.endswith(".md")]
        self.targets = {}  # of a package

    def has_path(self, path):
        if "/" in path:
            return all(glob.glob(os.path.join(self.root, p)) or
                       glob.glob(os.path.join(self.root, ANY_NAME.sub("*", p)))
                       for p in alternatives(path))
        return all(p in self.names or fnmatch.filter(self.names, ANY_NAME.sub("*", p))
                   for p in alternatives(path))

    def targets_of(self, package):
        """The words of a BUILD file, and the names that its macros derive from them; None without one."""
        folder = os.path.join(self.root, package)
        if not os.path.exists(os.path.join(folder, "BUILD")):
            return None
        text = read(os.path.join(folder, "BUILD"))
        names = re.findall(r'"(\w+)"', text)
        macros = [read(os.path.join(folder, m)) for m in re.findall(r'load\(":(\S+\.bzl)"', text)]
        suffixes = [s for macro in macros for s in re.findall(r'name \+ "(\w+)"', macro)]
        return names + [name + suffix for name in names for suffix in suffixes]

    def has_target(self, package, name):
        if package not in self.targets:
            self.targets[package] = self.targets_of(package)
        targets = self.targets[package]
        return targets is not None and all(
            fnmatch.filter(targets, ANY_NAME.sub("*", n)) for n in alternatives(name))


def named(tree, document, text):
    """Yields what a document names, and whether it exists."""
    folder = os.path.dirname(document)
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for target, anchor in LINK.findall(prose):
        path = os.path.join(folder, target) if target else document
        exists = os.path.exists(path)
        yield f"link to {target}#{anchor}", exists and (not anchor or anchor in anchors(read(path)))
    for code in CODE.findall(prose):
        is_path = PATH.fullmatch(code) and code.split("/")[0] in tree.entries and "/" in code
        if is_path or SOURCE.fullmatch(code):
            yield f"path {code}", tree.has_path(code)
    for package, name, is_all in LABEL.findall(CHANGE.sub("", text)):
        if is_all:
            yield f"targets //{package}/...", os.path.isdir(os.path.join(tree.root, package))
        else:
            name = name or os.path.basename(package)
            yield f"target //{package}:{name}", tree.has_target(package, name)


def main():
    tree = Tree(os.path.dirname(os.path.realpath(sys.argv[1])))
    checked = wrong = 0
    for document in tree.documents:
        for what, exists in named(tree, document, read(document)):
            checked += 1
            if not exists:
                print(f"{os.path.relpath(document, tree.root)}: {what}, which does not exist",
                      file=sys.stderr)
                wrong += 1
    print(f"{checked} links, paths and targets in {len(tree.documents)} documents, {wrong} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
