#!/usr/bin/env python3
"""Documents, and messages of the tools, use no word that the glossary replaces.

usage: glossary_test.py ROOT_FILE

ROOT_FILE is any file in the root of the repository. Looks at the prose of its documents, at string literals of
its C++ sources, tests aside, and at the texts of the verifier's rules. Code in documents does not count, nor
does the last column of the glossary, which lists the words.
"""

import os
import re
import sys

AVOIDED = {
    re.compile(r"\b(?:that|those) of\b", re.IGNORECASE): "name what: the value of, the gradients of, the reference value",
    re.compile(r"\bfor ever\b"): "forever",
    re.compile(r"\bbehind\b"): "after, or late",
    re.compile(r"\b(?:at|by|in|of) (?:an?|the|this|that|its|their|some|another|one|two) places?\b"):
        "position",
}
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
BLOCK = re.compile(r"^ *```.*?^ *```$|^    .*?$|`[^`\n]+`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
GLOSSARY = "docs/glossary.md"


def kept_lines(pattern, text):
    """The text without what matches; lines keep their numbers."""
    return pattern.sub(lambda found: re.sub(r"[^\n]+", " ", found[0]), text)


def prose_of_document(path, text):
    text = kept_lines(BLOCK, text)
    return re.sub(r"\|[^|\n]*\|$", "", text, flags=re.MULTILINE) if path == GLOSSARY else text


def literals_of_source(text):
    """Literals, each on its first line; adjacent ones are one."""
    text = re.sub(r"^#include.*$|^ *//.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r'"(\s*\n\s*)"', lambda gap: "\0" * gap[0].count("\n"), text)
    lines = []
    for line in text.split("\n"):
        lines.append(" ".join(LITERAL.findall(line)).replace("\0", ""))
        lines += [""] * line.count("\0")
    return "\n".join(lines)


def head_of_rule(text):
    return re.sub(r"^#? ?", "", text.split("\nprogram")[0], flags=re.MULTILINE)


def found_in(prose):
    """Yields (line, words, advice). Words may stand on two lines."""
    for pattern, advice in AVOIDED.items():
        for found in re.finditer(pattern.pattern.replace(" ", r"\s+"), prose, pattern.flags):
            yield prose.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), advice


def prose_of(path, text):
    if path.endswith(".md"):
        return prose_of_document(path, text)
    return head_of_rule(text) if path.endswith(".prog") else literals_of_source(text)


def is_checked(path):
    if path.startswith(("tests/", "third_party/")) or path.endswith(("_test.cc", "_testing.cc")):
        return False
    return (path.endswith((".md", ".cc", ".cu", ".h")) or
            path.startswith("transpiler/verifier/rules/") and path.endswith(".prog"))


def files_below(root):
    for folder, folders, files in os.walk(root):  # Bazel's links are not followed
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in files)


def check_the_test():
    source = 'Add("waits for " // comment\n    "ever");\n// behind\nF("a", "b");\n'
    assert not list(found_in(literals_of_source("// behind a comment\n")))
    assert [w for _, w, _ in found_in(literals_of_source('"waits for "\n  "ever"'))] == ["for ever"]
    assert [w for _, w, _ in found_in(literals_of_source(source))] == ["for ever"]
    assert [line for line, _, _ in found_in("a\nb that\nof one device")] == [2]
    assert not list(found_in(prose_of_document("docs/x.md", "`behind` and [x](behind.md)\n\n    behind\n")))
    assert list(found_in(prose_of_document("docs/x.md", "the one behind\n")))
    assert not list(found_in(prose_of_document(GLOSSARY, "| later | after | behind |\n")))
    assert [w for _, w, _ in found_in("an op at this place, in place")] == ["at this place"]


def main():
    check_the_test()
    root = os.path.dirname(os.path.realpath(sys.argv[1]))
    paths = sorted(filter(is_checked, files_below(root)))
    wrong = 0
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            prose = prose_of(path, file.read())
        for line, words, advice in found_in(prose):
            print(f"{path}:{line}: '{words}': {advice} (docs/glossary.md)", file=sys.stderr)
            wrong += 1
    assert len(paths) > 500, f"{len(paths)} files under {root}"
    print(f"{len(paths)} files, {wrong} words that the glossary replaces")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
