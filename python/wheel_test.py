#!/usr/bin/env python3
"""The wheel of `pip install .` has all that the package needs, and says the hashes of its files.

usage: wheel_test.py LIBRARY WEFT TRANSPILE BACKEND MAIN.pb
"""
import base64
import csv
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

LIBRARY, WEFT, TRANSPILE, BACKEND, MAIN = map(os.path.abspath, sys.argv[1:])


def searched_folders(path):
    """Where a binary's libraries are searched: with a CUDA toolkit, in its folders, too."""
    dynamic = subprocess.run(["readelf", "-d", path], check=True, stdout=subprocess.PIPE,
                             universal_newlines=True).stdout
    entry = re.search(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    return entry.group(1).split(":") if entry else []


def main():
    """Builds, unpacks and uses the wheel."""
    spec = importlib.util.spec_from_file_location("weft_build", BACKEND)
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    with tempfile.TemporaryDirectory() as folder:
        built = os.path.join(folder, "built")
        os.mkdir(built)
        for path in (LIBRARY, WEFT, TRANSPILE):
            shutil.copy(path, built)
        # The package may bring Gloo, which library and commands then load before that of the system.
        shutil.copy(LIBRARY, os.path.join(built, "libgloo.so.0"))
        for path in (LIBRARY, WEFT):
            assert "$ORIGIN/../weft" in searched_folders(path), path
        os.environ["WEFT_BUILT"] = built
        name = backend.build_wheel(folder)
        with zipfile.ZipFile(os.path.join(folder, name)) as wheel:
            record = next(one for one in wheel.namelist() if one.endswith("/RECORD"))
            rows = list(csv.reader(wheel.read(record).decode().splitlines()))
            assert "weft/libgloo.so.0" in wheel.namelist()
            assert sorted(row[0] for row in rows) == sorted(wheel.namelist())
            for path, digest, size in rows[:-1]:
                content = wheel.read(path)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                assert digest == "sha256=" + found.rstrip("=") and int(size) == len(content), path
            wheel.extractall(os.path.join(folder, "site"))
        scripts = os.path.join(folder, "site", "weft-%s.data" % backend.version(), "scripts")
        assert sorted(os.listdir(scripts)) == ["transpile", "weft"]
        environment = {key: value for key, value in os.environ.items() if key != "WEFT_C_LIBRARY"}
        environment["PYTHONPATH"] = os.path.join(folder, "site")
        found = subprocess.run(
            [sys.executable, "-c", "import sys, weft; print(weft.version(), weft.Program(sys.argv[1]))",
             MAIN], check=True, stdout=subprocess.PIPE, env=environment, cwd=folder)
        assert found.stdout.decode().startswith(backend.version() + " program "), found.stdout
        print("%s: %d files, %d bytes" % (name, len(rows),
                                          os.path.getsize(os.path.join(folder, name))))


if __name__ == "__main__":
    main()
