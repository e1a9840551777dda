#!/usr/bin/env python3
"""Both checkers certify what modes write, and say the same of damaged programs and certificates.

usage: checkers_test.py TRANSPILE WEFT WEFT_CHECK WEFT_CHECK_PY PROGRAMS_TAR [DAMAGES]

Damages one of the files of each certificate DAMAGES times (default 40), in a few bytes. No damaged program or claim
may be certified, but for claims of a program for any number of ranks, which names another one; and no input
may end a checker otherwise than by its verdict.
"""

import importlib.util
import os
import random
import subprocess
import sys
import tarfile
import tempfile

MODELS = ("fit_a_line", "mlp_adam", "lenet_momentum", "mlp_amp")
MODES = (
    "--mode grad_allreduce",
    "--mode grad_allreduce --nranks 2 --buckets none --nrings 2",
    "--mode grad_allreduce --nranks 2 --device_kind cpu",
    "--mode grad_allreduce --nranks 2 --paddle_version 3",
    "--mode grad_allreduce --dialect paddle --endpoints 10.0.0.1:6170,10.0.0.2:6170",
    "--mode multi_thread --trans_mode all_gather --nranks 3",
    "--mode mindspore_reducer --nranks 4",
    "--mode mindspore_reducer --reduce_method mean --nranks 4",
    "--mode singa_plain --nranks 4",
    "--mode singa_half --nranks 4",
    "--mode megengine --reduce_method mean --bcast_period 1 --nranks 4",
)
# Refused by transpile: half precision on the CPU, and gradients that are no fp32.
REFUSED = {("mlp_amp", MODES[2]), ("mlp_amp", MODES[9])}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


class Checkers:
    def __init__(self, binary, script):
        self.binary = binary
        spec = importlib.util.spec_from_file_location("weft_check", script)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def in_cpp(self, files):
        done = subprocess.run([self.binary, *files], capture_output=True, timeout=60)
        assert done.returncode in (0, 1) and not done.stderr, done
        return b"" if done.returncode == 0 else done.stdout

    def in_python(self, files):
        content = [read(files[0] + "/claim.txt"), read(files[0] + "/proof.txt")] + [read(f) for f in files[1:]]
        try:
            self.module.check(content[0], content[1], content[2:])
        except self.module.Failure as failure:
            return ("not certified: %s\n" % failure).encode()
        return b""

    def agree(self, files):
        """The common verdict; empty: certified."""
        cpp, python = self.in_cpp(files), self.in_python(files)
        assert bool(cpp) == bool(python), "%s\nC++: %s\nPython: %s" % (files, cpp, python)
        return cpp


def damaged(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at:at + rng.choice((1, 4, 100))]
        else:
            data[at:at] = data[at:at + rng.choice((1, 30))]
        if not data:
            return b""
    return bytes(data)


def main(transpile, weft, weft_check, script, programs, damages="40"):
    checkers, rng = Checkers(weft_check, script), random.Random(1)
    tried = certified = 0
    with tempfile.TemporaryDirectory() as tmp:
        with tarfile.open(programs) as tar:
            tar.extractall(tmp)
        for model in MODELS:
            original, startup = ("%s/%s/%s.pb" % (tmp, model, part) for part in ("main", "startup"))
            for mode in MODES:
                if (model, mode) in REFUSED:
                    continue
                result, new_startup, cert = tmp + "/out.pb", tmp + "/out_startup.pb", tmp + "/cert"
                done = subprocess.run([transpile, *mode.split(), "--certificate", cert, "--startup_in", startup,
                                       "--startup_out", new_startup, original, result], capture_output=True)
                assert done.returncode == 0, (model, mode, done)
                files = [cert, original, result, startup, new_startup]
                assert checkers.agree(files) == b"", (model, mode, checkers.agree(files))
                claim, proof = read(cert + "/claim.txt"), read(cert + "/proof.txt")
                assert claim.count(b"\n") <= 40, claim
                if model == MODELS[0] and "--dialect" not in mode:
                    # weft verify writes the same.
                    again = tmp + "/again"
                    done = subprocess.run([weft, "verify", result, "--startup", new_startup, "--original", original,
                                           "--original_startup", startup, "--certificate", again],
                                          capture_output=True)
                    assert done.returncode == 0, (mode, done)
                    assert read(again + "/claim.txt") == claim and read(again + "/proof.txt") == proof, mode
                for i in range(int(damages)):
                    at = rng.randrange(6)
                    path = [cert + "/claim.txt", cert + "/proof.txt", *files[1:]][at]
                    before = read(path)
                    write(path, damaged(before, rng))
                    tried += 1
                    is_certified = checkers.agree(files) == b""
                    # Hashes of programs are in the claim; the claim is compared as a whole.
                    if at != 1 and read(path) != before and is_certified:
                        assert at == 0 and b"ranks: any" not in read(path), (model, mode, path, i)
                    certified += is_certified
                    write(path, before)
    print("%d damaged: both checkers say the same, %d certified" % (tried, certified))
    assert tried > 100
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
