#!/usr/bin/env python3
"""What the documents of the repository name exists: files and headings that they link to, files and
folders in backticks, and Bazel's targets.

usage: doc_links_test.py ROOT_FILE

ROOT_FILE is any file in the root of the repository. A path begins with an entry of the root, or is the
name of a source file anywhere. In paths and targets, the words of PLACEHOLDERS stand for any name:
`ops/cpu/X.cc` exists if ops/cpu has a source file. A target is a `name` in a BUILD file. Targets without
a package are those of an embedding project. Targets in a change that a document shows (<!-- new: FILE -->)
do not count.
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
LABEL = re.compile(r"(?<![\w:/@])//(\w+(?:/\w+)*)(?::([\w{},]+(?:\.\w+)*)|/(\.\.\.))?")
PLACEHOLDERS = ("ID", "NAME", "TARGET", "X", "x", "y")
ANY_NAME = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(PLACEHOLDERS)})(?![A-Za-z0-9])")
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
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
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


class Rules(dict):
    """The globals of a BUILD file, which is Python too. Whatever it calls notes the `name` it is given."""

    def __init__(self, folder):
        self.folder = folder
        self.targets = []
        self.suffixes = {}  # of the names that a macro derives from its own

    def load(self, file, *macros):
        if file.startswith(":"):
            text = read(os.path.join(self.folder, file[1:]))
            self.suffixes.update(dict.fromkeys(macros, re.findall(r'name \+ "(\w+)"', text)))

    def __missing__(self, rule):
        def call(*_, name=None, **__):
            if name is not None:
                self.targets.extend([name] + [name + s for s in self.suffixes.get(rule, [])])
            return []  # what glob or select returns
        return self.load if rule == "load" else call


def targets_in(build_text, folder):
    rules = Rules(folder)
    exec(build_text, rules)
    return rules.targets


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
        """The names of a package's targets; none without a BUILD file."""
        folder = os.path.join(self.root, package)
        path = os.path.join(folder, "BUILD")
        return targets_in(read(path), folder) if os.path.exists(path) else []

    def has_target(self, package, name):
        if package not in self.targets:
            self.targets[package] = self.targets_of(package)
        return all(fnmatch.filter(self.targets[package], ANY_NAME.sub("*", n))
                   for n in alternatives(name))


def named(tree, document, text):
    """Yields what a document names, and whether it exists."""
    folder = os.path.dirname(document)
    prose = BLOCK.sub("", text)
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
