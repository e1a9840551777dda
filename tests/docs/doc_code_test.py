#!/usr/bin/env python3
"""Code in a document that names a file stands in that file, line by line.

usage: doc_code_test.py ROOT_FILE DOCUMENT...

ROOT_FILE is any file in the root of the repository, below which FILE is looked for. A document says

    <!-- from: FILE -->

before a block of code.
"""

import os
import re
import sys

BLOCK = re.compile(r"^<!-- from: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main():
    root = os.path.dirname(os.path.realpath(sys.argv[1]))
    checked = wrong = 0
    for document in sys.argv[2:]:
        with open(document, encoding="utf-8") as f:
            blocks = BLOCK.findall(f.read())
        if not blocks:
            print(f"{document}: no code that names its file", file=sys.stderr)
            wrong += 1
        for path, code in blocks:
            checked += 1
            with open(os.path.join(root, path), encoding="utf-8") as f:
                source = f.read()
            if code not in source:
                print(f"{document}: this is not in {path}:\n{code}", file=sys.stderr)
                wrong += 1
    print(f"{checked} blocks of code, {wrong} out of date")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
