#!/usr/bin/env python3
"""Both checkers certify what modes write, and say the same of damaged programs and certificates.

usage: checkers_test.py TRANSPILE WEFT WEFT_CHECK WEFT_CHECK_PY PROGRAMS_TAR PIR_TAR [DAMAGES]

Damages one of the files of each certificate DAMAGES times (default 40), in a few bytes. No damaged program or claim
may be certified, but for claims of a program for any number of ranks, which names another one; and no input
may end a checker otherwise than by its verdict. Both refuse for one reason what no damage makes.
"""

import importlib.util
import os
import random
import resource
import struct
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
    "--mode local_sgd",
    "--mode local_sgd --k_steps 4 --begin_step 3 --state average --nranks 2",
    "--mode local_sgd --k_steps 4 --outer slowmo --mix 0.25 --paddle_version 3",
    "--mode local_sgd --k_steps 4 --outer nesterov --fragments 2 --delay 1 --comm_dtype bf16 --nranks 2",
    "--mode singa_partial --threshold 300 --nranks 2",
    "--mode zero --nranks 2",
    "--mode zero --stage 2 --scale avg --buckets count{count=2} --nrings 2 --nranks 3",
    "--mode zero --stage 3 --buckets count{count=2} --nranks 3",
    "--mode zero --nranks 2 --paddle_version 3",
)
# Of programs of Paddle 3.
PIR_MODELS = ("fit_a_line", "mlp_adam", "two_losses", "wide_deep")
PIR_MODES = (
    "--mode grad_allreduce",
    "--mode grad_allreduce --nranks 2 --buckets none --device_kind cpu",
    "--mode multi_thread --trans_mode all_gather --nranks 3",
    "--mode mindspore_reducer --nranks 4",
    "--mode mindspore_reducer --reduce_method mean --comm_dtype fp16 --nranks 4",
    "--mode singa_plain --nranks 4",
    "--mode singa_half --nranks 4",
    "--mode megengine --reduce_method mean --bcast_period 1 --nranks 4",
)
# Refused by transpile: half precision on the CPU, and gradients that are no fp32.
REFUSED = {("mlp_amp", MODES[i]) for i in (2, 9)}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


class Checkers:
    def __init__(self, binary, script):
        self.binary, self.script = binary, script
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


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def field(number, value):
    """A field of a message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def decl(name, dtype=5, more=b""):
    tensor = field(1, dtype) + field(2, 4)
    return field(3, field(1, name) + field(2, field(1, 7) + field(3, field(1, tensor))) + more)


def op(kind, inputs, outputs, *attrs):
    def slots(number, of):
        return b"".join(field(number, field(1, slot) + field(2, name)) for slot, name in of.items())
    return field(4, slots(1, inputs) + slots(2, outputs) + field(3, kind) + b"".join(attrs))


def attr(name, kind, value):
    return field(4, field(1, name) + field(2, kind) + value)


def scale(name, *factors):
    attrs = [attr(b"scale", 1, b"\x25" + struct.pack("<f", factor)) for factor in factors]
    return op(b"scale", {b"X": name}, {b"Out": name}, *attrs)


def program(ops, inner, others):
    states = [decl(name, more=field(3, 1)) for name in (b"s", b"w")]
    values = [decl(b"w@GRAD"), decl(b"f"), decl(b"i", dtype=3), decl(b"d", dtype=6), decl(b"v", more=field(4, 1))]
    blocks = [states + values + ops, inner]
    return b"".join(field(1, field(1, i) + field(2, max(0, i - 1)) + b"".join(parts))
                    for i, parts in enumerate(blocks)) + others


CERTIFIED = b'claim.txt, line 1: expected "Weft certificate 1", found "ranks: '  # nothing else is wrong


def crafted():
    """Yields what the checkers say, ops of the original, ops of the result, steps, and other fields of both; then,
    perhaps, an op that both have after the gradient, before it is reduced."""
    def same(why, *ops, others=(b"", b"")):
        return why, list(ops), list(ops), "=%d\n" % len(ops) if ops else "", others

    yield same(CERTIFIED)
    yield same(CERTIFIED, scale(b"s", 3, 3))
    yield b"attribute scale is there twice", [scale(b"s", 0.5, 3)], [scale(b"s", 3, 0.5)], "=1\n", (b"", b"")
    yield same(b"s may differ between ranks", op(b"dropout", {b"X": b"s"}, {b"Out": b"s"}))
    for kind in (b"view_shape", b"as_strided", b"mp_allreduce_sum", b"print"):
        yield same(b"originals that communicate or share memory", op(kind, {b"X": b"s"}, {b"Out": b"f"}))
    version = field(4, field(1, 2000000))
    yield same(CERTIFIED, op(b"print", {b"In": b"s"}, {b"Out": b"f"}), others=(version, version))
    fill = op(b"fill_constant", {}, {b"Out": b"f"})
    for name, why in ((b"i", b"i, which is divided by n, is not declared as floats"), (b"d", CERTIFIED)):
        casts = [op(b"cast", {b"X": b"f"}, {b"Out": name}), op(b"cast", {b"X": name}, {b"Out": b"f"})]
        yield why, [fill, *casts], [fill, scale(b"f", 0.5), *casts], "=1\n+1\n=2\n", (b"", b"")
    bilinear = op(b"scale", {b"X": b"f", b"ScaleTensor": b"f"}, {b"Out": b"f"})
    second = op(b"sin_double_grad", {b"X@GRAD": b"f"}, {b"Out@GRAD": b"f"})
    for product, why in ((bilinear, b"f, which is divided by n"), (second, b"is not known to be linear")):
        yield why, [fill, product], [fill, scale(b"f", 0.5), product], "=1\n+1\n=1\n", (b"", b"")
    more = [op(b"relu", {b"X": b"s"}, {b"Out": b"f"}, b"".join(fields))
            for fields in ([field(15, 0)] * 512 + [field(16, 0)], [field(16, 0)] + [field(15, 0)] * 512)]
    yield b"it has too many fields", more[:1], more[1:], "=1\n", (b"", b"")
    yield same(b"names a variable", op(b"relu", {b"X": b"s"}, {b"Out": b"f"}, attr(b"by", 13, b"")))
    clip = op(b"clip", {b"X": b"w@GRAD"}, {b"Out": b"w@GRAD"}, attr(b"op_role", 0, field(3, 2)))
    yield (*same(b"w@GRAD before its reduction"), clip)
    may_run = op(b"conditional_block", {b"Cond": b"w"}, {b"Out": b"v"}, attr(b"sub_block", 8, field(12, 1)))
    yield same(b"s may differ between ranks", may_run, op(b"relu", {b"X": b"v"}, {b"Out": b"s"}))
    yield same(CERTIFIED, others=(b"", field(1001, b'{"nranks":2}')))
    for setting in (b'{"nranks" :3}', b'{"nranks": 3}', b'{"nranks"\n:3}', b'{"nranks":23}', b'{"nranks":2,"nranks":3}'):
        yield same(b"setting of the result", others=(b"", field(1001, setting)))


def check_python_alone(script, files):
    """It prints one verdict, whatever it cannot print and whoever does not read it."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, script, *files]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 1 and not done.stderr and done.stdout.startswith(b"not certified: "), done
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 1 and not done.stderr, done


def check_memory(checkers, files, inner, gradient, mean):
    """The checker in C++ takes no more memory than the page says, whatever the files are made of."""
    write(files[0] + "/claim.txt", b"ranks: 2\ngradients: mean\n")
    many = field(4, field(3, b"relu") + field(1, field(1, b"X") + field(2, b"s") * (4 << 20)))
    decls = b"".join(decl(b"t%d" % i) for i in range(100000))  # which belong to no op
    memory = b"it takes more memory than files of this size may"
    for more, steps, why in ((field(15, 0) * (5 << 20), 1, b"too many fields"), (many, 2, memory), (decls, 1, memory)):
        write(files[0] + "/proof.txt", b"weft-proof 1\nmain\n=%d\n+1\n" % steps)
        write(files[1], program([more, gradient], inner, b""))
        write(files[2], program([more, gradient, mean], inner, b""))
        # 64 MB are for the program itself: it has to find out before the system does.
        limit = (68 << 20) + 3 * sum(map(os.path.getsize, files[1:]))
        done = subprocess.run([checkers.binary, *files], capture_output=True, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        assert done.returncode == 1 and why in done.stdout, done


def check_crafted(checkers, tmp):
    files = [tmp + "/crafted", tmp + "/original.pb", tmp + "/result.pb"]
    os.mkdir(files[0])
    role = attr(b"op_role", 0, field(3, 1))
    pair = attr(b"op_role_var", 5, field(8, b"w") + field(8, b"w@GRAD"))
    gradient = op(b"mul_grad", {b"X": b"s", b"Y": b"w"}, {b"Y@GRAD": b"w@GRAD"}, role, pair)
    mean = op(b"c_allreduce_avg", {b"X": b"w@GRAD"}, {b"Out": b"w@GRAD"}, attr(b"use_calc_stream", 6, field(10, 1)))
    inner = [op(b"fill_constant", {}, {b"Out": b"v"})]
    for why, original, result, steps, others, *between in crafted():
        write(files[0] + "/claim.txt", b"ranks: 2\ngradients: mean\n")
        write(files[0] + "/proof.txt", ("weft-proof 1\nmain\n%s=%d\n+1\n" % (steps, 1 + len(between))).encode())
        write(files[1], program(original + [gradient, *between], inner, others[0]))
        write(files[2], program(result + [gradient, *between, mean], inner, others[1]))
        for verdict in (checkers.in_cpp(files), checkers.in_python(files)):
            assert why in verdict, (why, verdict, original)
    check_memory(checkers, files, inner, gradient, mean)
    # No parts, of no known number of ranks.
    write(files[0] + "/claim.txt", b"ranks: any\ngradients: mean\n")
    write(files[0] + "/proof.txt", b"weft-proof 1\nmain\n=1\n+1\n")
    write(files[1], program([gradient], inner, b""))
    write(files[2], program([gradient, op(b"sum", {}, {b"Out": b"w@GRAD"})], inner, b""))
    for verdict in (checkers.in_cpp(files), checkers.in_python(files)):
        assert b"expected a part for each rank" in verdict, verdict
    write(files[0] + "/claim.txt", b"ranks: 2\ngradients: mean\n\xe9")
    write(files[0] + "/proof.txt", "weft-proof 1\nown \u00e9\n".encode())
    assert checkers.agree(files)
    check_python_alone(checkers.script, files)


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


def main(transpile, weft, weft_check, script, programs, pir, damages="40"):
    checkers, rng = Checkers(weft_check, script), random.Random(1)
    tried = certified = 0
    with tempfile.TemporaryDirectory() as tmp:
        check_crafted(checkers, tmp)
        for archive, to in ((programs, ""), (pir, "/pir")):
            with tarfile.open(archive) as tar:
                tar.extractall(tmp + to)
        cases = [("/" + model, ".pb", mode) for model in MODELS for mode in MODES if (model, mode) not in REFUSED]
        cases += [("/pir/" + model, ".json", mode) for model in PIR_MODELS for mode in PIR_MODES]
        for model, ending, mode in cases:
            original, startup = ("%s%s/%s%s" % (tmp, model, part, ending) for part in ("main", "startup"))
            result, new_startup, cert = tmp + "/out" + ending, tmp + "/out_startup" + ending, tmp + "/cert"
            done = subprocess.run([transpile, *mode.split(), "--certificate", cert, "--startup_in", startup,
                                   "--startup_out", new_startup, original, result], capture_output=True)
            assert done.returncode == 0, (model, mode, done)
            files = [cert, original, result, startup, new_startup]
            assert checkers.agree(files) == b"", (model, mode, checkers.agree(files))
            claim, proof = read(cert + "/claim.txt"), read(cert + "/proof.txt")
            assert claim.count(b"\n") <= 40, claim
            write(cert + "/claim.txt", claim + b"- And more.\n" * 40)
            last = b'claim.txt, line %d: expected "", found "- And more."\n' % (claim.count(b"\n") + 1)
            for verdict in (checkers.in_cpp(files), checkers.in_python(files)):
                assert verdict == b"not certified: " + last, verdict
            write(cert + "/claim.txt", claim)
            schedule = next(line for line in claim.split(b"\n") if line.startswith(b"schedule: "))
            assert cert.encode() + b": " + schedule in done.stderr, done.stderr
            if model.endswith(MODELS[0]) and "--dialect" not in mode:
                # weft verify writes the same.
                again = tmp + "/again"
                done = subprocess.run([weft, "verify", result, "--startup", new_startup, "--original", original,
                                       "--original_startup", startup, "--certificate", again],
                                      capture_output=True)
                assert done.returncode == 0, (mode, done)
                assert read(again + "/claim.txt") == claim and read(again + "/proof.txt") == proof, mode
            # Python takes long for JSON.
            for i in range(int(damages) // (1 if ending == ".pb" else 4)):
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
