#!/usr/bin/env python3
"""Mistakes in rewritten programs of Paddle 3 (PIR): what the checkers certify, the verifier finds right.

usage: pir_attack_test.py TRANSPILE WEFT WEFT_CHECK WEFT_CHECK_PY CHECKERS_TEST_PY PIR_TAR [MUTANTS]

Makes MUTANTS mistakes (default 40) in the result of each mode. Each mutant meets the certificate of the program, the
same one with the hashes of the mutant, the steps that fit it, and two random edits of these.
"""

import copy
import hashlib
import importlib.util
import json
import random
import subprocess
import sys
import tarfile
import tempfile

OTHER_OPS = ("1.all_reduce_", "1.all_reduce", "1.broadcast", "1.broadcast_", "1.scale", "1.cast", "1.reshape")
BINDERS = ("0.set_parameter", "0.shadow_output")


def load(path):
    spec = importlib.util.spec_from_file_location("checkers_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ops_of(file):
    return file["program"]["regions"][0]["blocks"][0]["ops"]


def results_of(op):
    return op["O"] if isinstance(op["O"], list) else [op["O"]]


def numbers_of(op):
    return [result["%"] for result in results_of(op)]


def steps(original, result):
    """By the numbers of results, which Weft leaves as they are."""
    original, result = ([op for op in ops_of(file) if op["#"] not in BINDERS] for file in (original, result))
    found, at = [], 0
    for op in result:
        kept = at < len(original) and (original[at]["#"], numbers_of(original[at])) == (op["#"], numbers_of(op))
        at += kept
        found.append("=1\n" if kept else "+1\n")
    return "".join(found)


def use_instead(ops, values):
    for op in ops:
        for operand in op.get("I", []):
            operand["%"] = values.get(operand["%"], operand["%"])


def change_attribute(op, rng):
    attr = rng.choice(op["A"])
    value = attr["AT"].get("D")
    if attr["N"] == "accumulate_type":  # only Weft knows what it means
        return
    if isinstance(value, bool):
        attr["AT"]["D"] = not value
    elif isinstance(value, (int, float)):
        attr["AT"]["D"] = rng.choice((0, 1, 2, 4, value * 2, value + 1, -1))
    elif isinstance(value, list) and value:
        rng.choice((rng.shuffle, list.pop))(value)
    elif isinstance(value, str):
        attr["AT"]["D"] = rng.choice(("float16", "float32", "float64", value + "x"))


def mutate(file, new, rng):
    """Makes a mistake, mostly in new ops."""
    ops = ops_of(file)
    suspects = [i for i, op in enumerate(ops) if op["#"] in BINDERS or new & set(numbers_of(op))]
    i = rng.choice(suspects) if suspects and rng.random() < 0.7 else rng.randrange(len(ops))
    op, kind = ops[i], rng.randrange(9)
    types = {result["%"]: json.dumps(result["TT"]) for other in ops for result in results_of(other)}
    if kind == 0 and op.get("I"):
        operand = rng.choice(op["I"])
        alike = [number for number, known in types.items() if known == types.get(operand["%"])]
        operand["%"] = rng.choice(alike if alike and rng.random() < 0.8 else list(types))
    elif kind == 1 and op.get("I"):
        del ops[i]
        use_instead(ops, dict.fromkeys(numbers_of(op), op["I"][0]["%"]))
    elif kind == 2:
        del ops[i]
    elif kind == 3:
        ops.insert(rng.randrange(len(ops)), ops.pop(i))
    elif kind == 4 and op["#"] != "p" and op["A"]:
        change_attribute(op, rng)
    elif kind == 5 and op.get("I"):
        rng.shuffle(op["I"])
    elif kind == 6 and op["#"] != "p":
        op["#"] = rng.choice(OTHER_OPS + (op["#"] + "_", op["#"].rstrip("_")))
    elif kind == 7 and op["#"] not in BINDERS:
        again = copy.deepcopy(op)
        for result in results_of(again):
            result["%"] = max(types) + 1 + result["%"]
        ops.insert(i + 1, again)
        if rng.random() < 0.7:
            use_instead(ops[i + 2:], dict(zip(numbers_of(op), numbers_of(again))))
    elif kind == 8 and len(results_of(op)) > 1:
        a, b = rng.sample(op["O"], 2)
        a["%"], b["%"] = b["%"], a["%"]


def with_hashes(claim, files):
    lines = claim.split(b"\n")
    for at, path in ((2, files[2]), (4, files[4])):
        with open(path, "rb") as file:
            lines[at] = lines[at].split(b": ")[0] + b": " + hashlib.sha256(file.read()).hexdigest().encode()
    return b"\n".join(lines)


def edited(proof, rng):
    lines = proof.split("\n")
    at = rng.randrange(len(lines))
    lines[at:at + 1] = rng.choice(([], [lines[at]] * 2, ["=%d" % rng.randrange(9)], ["+%d" % rng.randrange(9)]))
    return "\n".join(lines)


class Attack:
    def __init__(self, base, checkers, weft, files):
        self.base, self.checkers, self.weft, self.files = base, checkers, weft, files
        self.claim, self.proof = (base.read(files[0] + name) for name in ("/claim.txt", "/proof.txt"))
        self.header = b"".join(line + b"\n" for line in self.claim.split(b"\n") if line[:6] in (b"ranks:", b"gradie"))
        self.programs = [json.loads(base.read(path)) for path in files[1:]]
        self.attempts = 0

    def is_certified(self, claim, proof, both=False):
        """Or all but the claim is right, of which the checker needs the header only."""
        self.attempts += 1
        self.base.write(self.files[0] + "/claim.txt", claim)
        self.base.write(self.files[0] + "/proof.txt", proof)
        verdict = self.checkers.in_cpp(self.files)
        if both:
            other = self.checkers.in_python(self.files)
            assert (self.base.CERTIFIED in verdict) == (self.base.CERTIFIED in other), (self.files, verdict, other)
        return verdict == b"" or self.base.CERTIFIED in verdict

    def try_one(self, rng):
        """What is wrong with a mutant that is certified; None: it is not certified; empty: nothing."""
        which = rng.choice((1, 1, 1, 3))
        mutant = copy.deepcopy(self.programs[which])
        old = {number for op in ops_of(self.programs[which - 1]) for number in numbers_of(op)}
        new = {number for op in ops_of(mutant) for number in numbers_of(op)} - old
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutate(mutant, new, rng)
        if mutant == self.programs[which]:
            return None
        path = self.files[1 + which]
        before = self.base.read(path)
        self.base.write(path, json.dumps(mutant, separators=(",", ":")).encode())
        programs = [*self.programs[:which], mutant, *self.programs[which + 1:]]
        proof = "weft-proof 1\n" + "".join("own %s\n" % name for name in self.own()) + "main\n" + steps(
            *programs[:2]) + "startup\n" + steps(*programs[2:])
        accepted = [self.is_certified(self.claim, self.proof), self.is_certified(with_hashes(self.claim, self.files), self.proof),
                    self.is_certified(self.header, proof.encode(), both=True)]
        accepted += [self.is_certified(self.header, edited(proof, rng).encode()) for _ in range(2)]
        wrong = None
        if any(accepted):
            done = subprocess.run([self.weft, "verify", self.files[2], "--startup", self.files[4], "--original",
                                   self.files[1], "--original_startup", self.files[3]], capture_output=True)
            wrong = b"" if done.returncode == 0 else done.stdout + done.stderr + self.base.read(path)
        self.base.write(path, before)
        return wrong

    def own(self):
        words = self.proof.decode().split()
        return [name for word, name in zip(words, words[1:]) if word == "own"]


def main(transpile, weft, weft_check, script, checkers_test, archive, mutants="40"):
    base = load(checkers_test)
    checkers, rng = base.Checkers(weft_check, script), random.Random(1)
    attempts = accepted = 0
    with tempfile.TemporaryDirectory() as tmp:
        with tarfile.open(archive) as tar:
            tar.extractall(tmp)
        for model in ("fit_a_line", "two_losses"):
            for mode in base.PIR_MODES:
                original, startup = ("%s/%s/%s.json" % (tmp, model, part) for part in ("main", "startup"))
                files = [tmp + "/cert", original, tmp + "/out.json", startup, tmp + "/out_startup.json"]
                done = subprocess.run([transpile, *mode.split(), "--certificate", files[0], "--startup_in", startup,
                                       "--startup_out", files[4], original, files[2]], capture_output=True)
                assert done.returncode == 0, (model, mode, done)
                attack = Attack(base, checkers, weft, files)
                assert attack.is_certified(attack.claim, attack.proof)
                for i in range(int(mutants)):
                    wrong = attack.try_one(rng)
                    assert not wrong, (model, mode, i, wrong)
                    accepted += wrong is not None
                attempts += attack.attempts
    print("%d attempts; %d mutants are certified, and right" % (attempts, accepted))
    assert accepted > 10
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
