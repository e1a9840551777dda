#!/usr/bin/env python3
"""The examples of documents run, from top to bottom, in a copy of the data; and those of docstrings.

usage: tutorial_test.py LIBRARY PACKAGE_FILE MAIN.pb DOCUMENT...
"""
import doctest
import os
import shutil
import sys
import tempfile

LIBRARY, PACKAGE, MAIN, *DOCUMENTS = (os.path.abspath(path) for path in sys.argv[1:])
os.environ["WEFT_C_LIBRARY"] = LIBRARY
sys.path.insert(0, os.path.dirname(os.path.dirname(PACKAGE)))


def main():
    """Runs them."""
    import weft  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel

    failed = attempted = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.dirname(MAIN), os.path.join(folder, "data"))
        os.chdir(os.path.join(folder, "data"))
        for document in DOCUMENTS:
            found = doctest.testfile(document, module_relative=False)
            if found.attempted == 0:
                print("%s: no examples" % document)
                failed += 1
            failed, attempted = failed + found.failed, attempted + found.attempted
        weft.transpile("main.pb", "startup.pb", mode="grad_allreduce").startup.save("out_startup.pb")
        with numpy.load("feeds.npz") as feeds:
            names = dict(vars(weft), x=feeds["0/x"], y=feeds["0/y"])
        runner = doctest.DocTestRunner()
        for one in (weft.transpile, weft.verify, weft.evaluate, weft.Run):
            for test in doctest.DocTestFinder(recurse=False).find(one, one.__name__, globs=names):
                runner.run(test)
        found = runner.summarize()
        failed, attempted = failed + found.failed, attempted + found.attempted
    print("%d examples, %d failed" % (attempted, failed))
    return 1 if failed or attempted < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
