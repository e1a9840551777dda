#!/usr/bin/env python3
"""The package, over the library of this build.

usage: python_test.py LIBRARY PACKAGE_FILE MAIN.pb WEFT TRANSPILE SYMBOLS CHECKER STEPS.tar.xz
"""
import array
import ast
import contextlib
import copy
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock
import warnings
import zipfile

import numpy as np

LIBRARY, PACKAGE, MAIN, WEFT, TRANSPILE, SYMBOLS, CHECKER, STEPS = map(os.path.abspath,
                                                                       sys.argv[1:])
os.environ["WEFT_C_LIBRARY"] = LIBRARY
sys.path.insert(0, os.path.dirname(os.path.dirname(PACKAGE)))

import weft  # pylint: disable=wrong-import-position
from weft import _fit, _native, _options, _tensor  # pylint: disable=wrong-import-position

STARTUP = os.path.join(os.path.dirname(MAIN), "startup.pb")
FEEDS = os.path.join(os.path.dirname(MAIN), "feeds.npz")


def batches():
    """Those of the file, which weft run takes."""
    with np.load(FEEDS) as file:
        steps = len({name.split("/")[0] for name in file.files})
        return [{"x": file["%d/x" % step], "y": file["%d/y" % step]} for step in range(steps)]


SPARSE = """program {
  block 0 parent=-1 {
    var ids : int64[-1, 1] need_check_feed
    var w : fp32[10, 4] parameter persistable
    var w@GRAD : selected_rows<fp32[10, 4]>
    var e : fp32[-1, 1, 4]
    var e@GRAD : fp32[-1, 1, 4]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) role=forward {padding_idx=-1, is_sparse=true}
    Out=[loss] = reduce_mean(X=[e]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward {dtype=5, shape=longs[], value=1.0}
    X@GRAD=[e@GRAD] = reduce_mean_grad(Out@GRAD=[loss@GRAD], X=[e]) role=backward {dim=ints[], reduce_all=true}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward {padding_idx=-1, is_sparse=true}
  }
}"""


class ProgramTest(unittest.TestCase):
    def test_comes_from_a_path_bytes_or_text(self):
        program = weft.Program(MAIN)
        with open(MAIN, "rb") as file:
            data = file.read()
        self.assertEqual(program.to_bytes(), data)
        self.assertEqual(weft.Program(data), program)
        self.assertFalse(weft.diff(weft.Program.from_text(str(program)), MAIN))
        self.assertIn("sgd", str(program))
        self.assertEqual(program.format, "pb")
        self.assertIn("ops", repr(program))

    def test_saves_by_extension(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "main.prog")
            weft.Program(MAIN).save(path)
            self.assertFalse(weft.diff(path, MAIN))
            with self.assertRaisesRegex(weft.Error, "unknown kind of program file"):
                weft.Program(MAIN).save(os.path.join(folder, "main.txt"))

    def test_stays_when_its_file_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "main.pb")
            weft.Program(MAIN).save(path)
            program = weft.Program(path)
            with open(path, "r+b") as file:
                file.write(b"\0" * os.path.getsize(path))
                file.flush()
                self.assertEqual(program, weft.Program(MAIN))
                file.truncate(0)
            self.assertEqual(program, weft.Program(MAIN))

    def test_is_pickled_and_copied(self):
        program = weft.Program(MAIN)
        for other in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program)):
            self.assertEqual(other, program)
            self.assertEqual(other.name, MAIN)

    def test_none_is_no_program(self):
        for call in (lambda: weft.transpile(None, mode="grad_allreduce"), lambda: weft.Run(None),
                     lambda: weft.stats(None), lambda: weft.plan(None), lambda: weft.verify([None]),
                     lambda: weft.evaluate(None, [], {}), lambda: weft.diff(None, MAIN)):
            with self.assertRaisesRegex(weft.Error, "expected a program, found None"):
                call()

    def test_a_nul_ends_no_text(self):
        for call in (lambda: weft.Program(MAIN + "\0x"),
                     lambda: weft.transpile(MAIN, mode="grad_allreduce\0x"),
                     lambda: weft.Program(MAIN).save("/tmp\0x")):
            with self.assertRaisesRegex(weft.Error, "expected no character NUL"):
                call()

    def test_errors_say_what_was_expected(self):
        with self.assertRaisesRegex(weft.Error, "^missing.pb: ") as raised:
            weft.Program("missing.pb")
        self.assertEqual(raised.exception.code, "NOT_FOUND")
        with self.assertRaisesRegex(weft.Error, "expected a path, bytes, a weft.Program or"):
            weft.Program(3)
        for source in (MAIN, weft.Program(MAIN), weft.Program(MAIN).to_bytes()):
            with self.assertRaisesRegex(weft.Error, "plateau_steps: expected a program of Paddle whose "
                                                    "learning rate follows ReduceOnPlateau, found "):
                weft.Program(source, plateau_steps=2)
        with self.assertRaisesRegex(weft.Error, "main: expected program text, a str, found bytes"):
            weft.Program.from_text(b"program {}")
        with self.assertRaisesRegex(weft.Error, "expected a path, found int"):
            weft.Program(MAIN).save(3)
        with self.assertRaisesRegex(weft.Error, "found Transpiled; its .main is one"):
            weft.stats(weft.transpile(MAIN, mode="grad_allreduce"))
        with self.assertRaisesRegex(weft.Error, "expected a program, or one for each rank, found none"):
            weft.verify([])
        with self.assertRaisesRegex(weft.Error, "progress: expected a function"):
            weft.transpile(MAIN, mode="grad_allreduce", progress=3)

    def test_comes_from_a_program_of_paddle(self):
        with open(MAIN, "rb") as file:
            paddle = Paddle(file.read())
        self.assertEqual(weft.Program(paddle), weft.Program(MAIN))
        self.assertEqual(weft.transpile(paddle, mode="grad_allreduce").main,
                         weft.transpile(MAIN, mode="grad_allreduce").main)

    def test_shows_itself_in_a_notebook(self):
        self.assertIn("<iframe srcdoc=", weft.Program(MAIN)._repr_html_())
        out = weft.transpile(MAIN, mode="grad_allreduce", nranks=2)
        self.assertIn("<iframe srcdoc=", out._repr_html_())
        self.assertIn("<iframe srcdoc=", out.diff()._repr_html_())
        self.assertIn("<summary>verified: ", weft.verify(out, original=MAIN)._repr_html_())


class TranspileTest(unittest.TestCase):
    def test_makes_what_the_command_makes(self):
        with tempfile.TemporaryDirectory() as folder:
            out, startup = (os.path.join(folder, name) for name in ("out.pb", "startup.pb"))
            subprocess.run([TRANSPILE, "--mode", "grad_allreduce", "--nranks", "4", "--exact_loss",
                            "--startup_in", STARTUP, "--startup_out", startup, MAIN, out], check=True)
            here = weft.transpile(MAIN, STARTUP, mode="grad_allreduce", nranks=4, exact_loss=True)
            self.assertEqual(here.main, weft.Program(out))
            self.assertEqual(here.startup, weft.Program(startup))

    def test_errors_are_those_of_the_command(self):
        for options in ({}, {"mode": "grad_alreduce"}, {"mode": "grad_allreduce", "nranks": 0},
                        {"mode": "grad_allreduce", "k_steps": 2}, {"mode": "zero", "passes": "a"}):
            command = [TRANSPILE]
            for name, value in options.items():
                command += ["--" + name, str(value)]
            found = subprocess.run(command + [MAIN, "/tmp/not_written.pb"], stderr=subprocess.PIPE,
                                   check=False)
            self.assertNotEqual(found.returncode, 0)
            expected = found.stderr.decode().strip().split("error: ", 1)[1]
            with self.assertRaises(weft.Error) as raised:
                weft.transpile(MAIN, **options)
            said = str(raised.exception).replace("main.pb", "")
            expected = expected.replace(" (see transpile --help)", "").replace("main.pb", "")
            expected = re.sub(r"--(\w+):", r"\1:", expected)
            self.assertEqual(said, re.sub(r"--(\w+)", r"option \1", expected))

    def test_says_what_a_step_takes_of_the_memory_of_a_rank(self):
        for options, startup, said in (
                ({}, None, "rank_memory is 10; option mode zero shares the training state out; it needs startup$"),
                ({"nranks": 2}, STARTUP, "rank_memory is 10; no stage of option mode zero"),
                ({"rank_memory": 1 << 30}, None, None)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                weft.transpile(MAIN, startup, **{"mode": "grad_allreduce", "rank_memory": 10, **options})
            self.assertEqual(len(caught), 0 if said is None else 1)
            if said is not None:
                self.assertRegex(str(caught[0].message), said)

    def test_messages_name_no_flags(self):
        feeds = batches()[0]
        uneven = {name: value[:3] for name, value in feeds.items()}
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")

        def step(programs, batch):
            with weft.Run(programs, ranks=2, seed=1) as run:
                run.step(batch)

        said = []
        for call, name in (
                (lambda: weft.transpile(MAIN), "option passes"),
                (lambda: weft.transpile(MAIN, mode="zero", nranks=2), "startup"),
                (lambda: weft.transpile(MAIN, mode="grad_allreduce", k_steps=2), "k_steps"),
                (lambda: weft.transpile(MAIN, mode="grad_allreduce", op_times="x.json"), "option buckets"),
                (lambda: weft.transpile(MAIN, mode="grad_allreduce", rank="all"), "option endpoints"),
                (lambda: weft.verify(out, in_turn=True, k_steps=2), "option k_steps"),
                (lambda: weft.verify(out, original=MAIN, assume="x"), "assume"),
                (lambda: step(MAIN, feeds), "transpile option mode grad_allreduce"),
                (lambda: weft.Run(MAIN, backend="mpi"), "option backend mpi"),
                (lambda: step(out, uneven), "option feed_layout")):
            with self.assertRaises(weft.Error) as raised:
                call()
            said.append(str(raised.exception))
            self.assertIn(name, said[-1])
        report = weft.verify(out, original=MAIN)
        self.assertIn("(original_startup checks it)", str(report))
        said += [str(report), json.dumps(report.data), weft.plan(MAIN)]
        said += weft.transpile(MAIN, mode="grad_allreduce", nranks=2, device_kind="cpu").notes
        self.assertIn("a startup program (startup)", "".join(said))
        for text in said:
            self.assertNotIn("--", text)
        # What a shell runs stays.
        self.assertIn("see weft verify --explain W310", str(weft.verify(MAIN, nranks=2)))
        summed = weft.transpile(MAIN, STARTUP, mode="grad_allreduce", nranks=2, scale="none")
        lines = [line for line in str(summed.main).splitlines(True) if "  setting {" not in line]
        with self.assertWarnsRegex(weft.Warning, "weft verify --original decides$"):
            weft.Run(weft.Program.from_text("".join(lines), "summed"), summed.startup, ranks=2)
        averaged = weft.transpile(MAIN, STARTUP, mode="local_sgd", k_steps=4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "attrs.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"fc_0.w_0": {"parameter_server": True}}, file)
            served = weft.transpile(MAIN, mode="parameter_server", nranks=2, param_attrs=path)
            for program in (served.main, served.server):
                with self.assertRaisesRegex(weft.Error, "weft run --server trains both$"):
                    weft.Run(program, ranks=2)
            # What another call has as an option.
            path = os.path.join(folder, "c.weft")
            with weft.Run(averaged, ranks=2) as run:
                run.step(feeds)
                run.checkpoint(path)
            with self.assertRaisesRegex(weft.Error, "resume with 2 ranks, steps 0 and save, and start from "
                                        r"what that writes \(params, option resume_step\)$"):
                weft.Run(averaged, ranks=1, resume=path).step(feeds)

    def test_has_a_server_notes_remarks_and_progress(self):
        passes = []
        out = weft.transpile(MAIN, mode="grad_allreduce", nranks=2, progress=passes.append)
        self.assertIn("grad-all-reduce", passes)
        self.assertIsNone(out.server)
        self.assertIsNone(out.startup)
        self.assertIn("passes", out.remarks)
        self.assertTrue(out.diff())

    def test_an_error_of_progress_comes_out(self):
        def stop(_):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            weft.transpile(MAIN, STARTUP, mode="grad_allreduce", progress=stop)

    def test_warnings_are_pythons(self):
        # Without the wait for the ring, a race.
        text = str(weft.transpile(MAIN, mode="grad_allreduce", nranks=2).main)
        racy = "".join(line for line in text.splitlines(True) if "c_wait_comm" not in line)
        self.assertNotEqual(racy, text)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = weft.transpile(weft.Program.from_text(racy, "racy"), mode="none")
        said = [note for note in out.notes if note.severity == "warning"]
        self.assertRegex(said[0], "^racy: W4")
        self.assertEqual([str(one.message) for one in caught], said)
        self.assertEqual({one.category for one in caught}, {weft.Warning})
        self.assertEqual({one.filename for one in caught}, {__file__})


class StepOfPyTorchTest(unittest.TestCase):
    """A .pt2 archive is a program, and the values that it begins with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.step = os.path.join(folder.name, "step.pt2")
        with tarfile.open(STEPS) as steps:
            with open(self.step, "wb") as file:
                file.write(steps.extractfile("pt2/mlp_adamw.pt2").read())
            with np.load(io.BytesIO(steps.extractfile("pt2/mlp_adamw_feeds.npz").read())) as feeds:
                self.batches = [{name[2:]: feeds[name] for name in feeds.files
                                 if name.startswith("%d/" % step)} for step in range(3)]
            reference = steps.extractfile("pt2/mlp_adamw_reference.npz").read()
        with np.load(io.BytesIO(reference)) as file:
            self.losses = file["losses"].ravel()[:3]

    def train(self, *programs, **options):
        with weft.Run(*programs, **options) as run:
            found = [float(run.step(batch)[0]) for batch in self.batches]
        np.testing.assert_allclose(found, self.losses, rtol=1e-5)

    def test_trains_as_pytorch_from_its_values(self):
        self.train(self.step)
        self.train(self.step, self.step)
        self.train(self.step, params=self.step)
        with open(self.step, "rb") as file:
            self.train(file.read())
        self.train(weft.transpile(self.step, mode="grad_allreduce"), ranks=2)

    def test_keeps_its_values_when_pickled_or_copied(self):
        step = weft.Program(self.step)
        for other in (pickle.loads(pickle.dumps(step)), copy.copy(step), copy.deepcopy(step)):
            self.assertEqual((other, other.name), (step, self.step))
            self.assertEqual(other.to_bytes("pt2"), step.to_bytes("pt2"))
            self.train(other)
            self.train(other, other)
        with open(self.step, "rb") as file:
            self.assertEqual(step.to_bytes("pt2"), file.read())
        with self.assertRaisesRegex(weft.Error, "expected a program that was read from a .pt2 file"):
            weft.Program(MAIN).to_bytes("pt2")

    def test_keeps_its_values_when_it_is_pickled_rewritten(self):
        for mode in ({"mode": "grad_allreduce"}, {"mode": "zero", "stage": 3}):
            out = weft.transpile(self.step, self.step, nranks=2, **mode)
            main, startup = pickle.loads(pickle.dumps((out.main, out.startup)))
            self.assertEqual((main, startup), (out.main, out.startup))
            self.train(main, startup, ranks=2)
        main = weft.transpile(self.step, mode="grad_allreduce", nranks=2).main
        self.train(copy.deepcopy(main), ranks=2)
        again = pickle.loads(pickle.dumps(main))
        self.assertEqual((again, again.name), (main, "main"))
        self.train(again, ranks=2)
        self.train(again, self.step, ranks=2)

    def test_is_equal_to_one_with_the_same_values(self):
        step, other = weft.Program(self.step), os.path.join(os.path.dirname(self.step), "other.pt2")
        with zipfile.ZipFile(self.step) as file, zipfile.ZipFile(other, "w") as changed:
            names = file.namelist()
            values = next(name for name in names if "/data/weights/" in name)
            for name in names:
                data = file.read(name)
                changed.writestr(name, data[::-1] if name == values else data)
        other, ops = weft.Program(other), weft.Program(step.to_bytes())
        self.assertEqual(step, weft.Program(self.step))
        self.assertEqual(hash(step), hash(weft.Program(self.step)))
        self.assertEqual(other.to_bytes(), step.to_bytes())
        self.assertEqual(len({step, weft.Program(self.step), other, ops}), 3)
        rewritten = [weft.transpile(one, mode="grad_allreduce", nranks=2).main
                     for one in (step, step, other)]
        self.assertEqual(rewritten[0], rewritten[1])
        self.assertNotEqual(rewritten[0], rewritten[2])

    def test_is_a_startup_program(self):
        self.train(weft.transpile(self.step, self.step, mode="none"))
        out = weft.transpile(self.step, self.step, mode="zero", stage=3, nranks=2)
        self.train(out, ranks=2)
        self.assertTrue(weft.verify(out, original=self.step, original_startup=self.step))
        self.assertIn("<iframe", out._repr_html_())
        out = weft.transpile(self.step, self.step, mode="local_sgd", k_steps=2, nranks=2)
        self.assertTrue(weft.verify(out, original=self.step, original_startup=self.step))

    def test_makes_the_parameters_of_an_evaluation(self):
        text = str(weft.Program(self.step)).splitlines(True)
        last = next(i for i, line in enumerate(text) if "role=loss" in line)
        forward = "".join(line for i, line in enumerate(text)
                          if i <= last or line.strip() == "}")
        found = weft.evaluate(weft.Program.from_text(forward), self.batches[:1], startup=self.step)
        self.assertAlmostEqual(found["loss"], float(self.losses[0]), places=5)


class VerifyTest(unittest.TestCase):
    def test_right_programs_are_true(self):
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
        report = weft.verify(out, original=MAIN)
        self.assertTrue(report)
        self.assertTrue(report.ok)
        report.raise_if_wrong()
        self.assertIn("verified: any number of ranks", str(report))
        self.assertTrue(any("each rank gets a part of x" in note for note in report.notes))

    def test_findings_are_data(self):
        report = weft.verify(MAIN, nranks=2)
        self.assertFalse(report)
        finding = next(one for one in report.findings if one.severity == "error")
        self.assertRegex(finding.rule, "^W[0-9]+$")
        self.assertIsNone(finding.rank)
        self.assertIn(finding.op_type, finding.message)
        with self.assertRaisesRegex(weft.Error, "^" + finding.rule):
            report.raise_if_wrong()

    def test_programs_of_ranks_are_a_list(self):
        program = weft.transpile(MAIN, mode="grad_allreduce", nranks=2).main
        self.assertTrue(weft.verify([program, program], original=MAIN))


class CertificateTest(unittest.TestCase):
    def check(self, folder, *programs):
        """What the checker, which has no code of the package, says of programs that are saved."""
        paths = [os.path.join(folder, "%d.pb" % i) for i in range(len(programs))]
        for program, path in zip(programs, paths):
            weft.Program(program).save(path)
        return subprocess.run([sys.executable, CHECKER, os.path.join(folder, "cert"), *paths],
                              stdout=subprocess.PIPE, check=False).stdout.decode()

    def test_is_of_the_programs_that_are_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            cert = os.path.join(folder, "cert")
            out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce", nranks=2, certificate=cert)
            self.assertRegex(out.notes[-1], "^.*cert: schedule: ")
            programs = MAIN, out.main, STARTUP, out.startup
            self.assertRegex(self.check(folder, *programs), "^certified: ")
            with open(os.path.join(cert, "claim.txt"), encoding="utf-8") as file:
                claim = file.read()
            report = weft.verify(out, original=MAIN, original_startup=STARTUP, nranks=2,
                                 certificate=os.path.join(folder, "again"))
            self.assertTrue(report)
            with open(os.path.join(folder, "again", "claim.txt"), encoding="utf-8") as file:
                self.assertEqual(file.read(), claim)
            of_four = weft.transpile(MAIN, STARTUP, mode="grad_allreduce", nranks=4)
            self.assertRegex(self.check(folder, MAIN, of_four.main, STARTUP, of_four.startup),
                             "^not certified: ")

    def test_is_of_text_as_the_binary_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = weft.Program.from_text(str(weft.Program(MAIN)))
            out = weft.transpile(program, mode="grad_allreduce",
                                 certificate=os.path.join(folder, "cert"))
            self.assertRegex(self.check(folder, program, out.main), "^certified: ")

    def test_is_written_for_each_trainer(self):
        with tempfile.TemporaryDirectory() as folder:
            cert = os.path.join(folder, "cert{rank}")
            endpoints = "a:1,b:1"
            weft.transpile(MAIN, STARTUP, mode="grad_allreduce", endpoints=endpoints, rank="all",
                           certificate=cert)
            self.assertEqual(sorted(os.listdir(folder)), ["cert0", "cert1"])
            with self.assertRaisesRegex(weft.Error, "only option rank all replaces it"):
                weft.transpile(MAIN, mode="grad_allreduce", certificate=cert)

    def test_that_cannot_be_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            cert = os.path.join(folder, "cert")
            with self.assertRaisesRegex(weft.Error, "^main: no certificate: "):
                weft.transpile(weft.Program.from_text(str(weft.Program(MAIN))), STARTUP,
                               mode="singa_sparse_topk", nranks=2, certificate=cert)
            with self.assertRaisesRegex(weft.Error, "expected a mode that rewrites the program"):
                weft.transpile(MAIN, mode="none", certificate=cert)
            out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
            with self.assertRaisesRegex(weft.Error, "expected both startup programs, or none"):
                weft.verify(out, original=MAIN, certificate=cert)
            self.assertFalse(weft.verify(MAIN, original=MAIN, nranks=2, certificate=cert))
            self.assertEqual(os.listdir(folder), [])


class RunTest(unittest.TestCase):
    def test_programs_that_do_not_belong_together_are_errors(self):
        text = weft.Program(STARTUP).to_bytes("prog").decode()
        other, part = (weft.Program.from_text(text.replace(name, "other"), "other.prog")
                       for name in ("fc_0", "fc_0.b_0"))

        def step(*programs):
            with weft.Run(*programs) as run:
                run.step(batches()[0])

        for programs, said in (
                ((STARTUP, MAIN), "main.pb: expected a startup program, but op 11 .sgd. updates a parameter"),
                ((MAIN, MAIN), "the startup program is the one that initializes parameters"),
                ((MAIN,), "pass a startup program or parameters that have it"),
                ((STARTUP,), "is it a startup program"),
                ((MAIN, other), "other.prog: declares no parameter of .*main.pb, such as fc_0.b_0"),
                ((MAIN, part), "reads variable fc_0.b_0, .*pass a startup program or parameters that have it")):
            with self.assertRaisesRegex(weft.Error, said):
                step(*programs)

    def test_trains_as_weft_run_does(self):
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
        for ranks in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                here, there = (os.path.join(folder, name) for name in ("here.npz", "there.npz"))
                paths = [os.path.join(folder, name) for name in ("out.pb", "startup.pb")]
                out.main.save(paths[0])
                out.startup.save(paths[1])
                printed = subprocess.run(
                    [WEFT, "run", paths[0], "--startup", paths[1], "--feeds", FEEDS, "--ranks",
                     str(ranks), "--save", there], check=True, stdout=subprocess.PIPE)
                with weft.Run(out, ranks=ranks) as run:
                    lines = []
                    for step, batch in enumerate(batches()):
                        loss, = run.step(batch)
                        lines.append("step %d: %s %.7g" % (step, loss.name, loss))
                    run.save(here)
                    state = run.state_dict()
                found = printed.stdout.decode().splitlines()
                self.assertEqual(lines, [line.split(" (")[0] for line in found[:len(lines)]])
                with np.load(here) as a, np.load(there) as b:
                    self.assertEqual(sorted(a.files), sorted(b.files))
                    self.assertEqual(sorted(a.files), sorted(state))
                    for name in a.files:
                        np.testing.assert_array_equal(a[name], b[name])
                        np.testing.assert_array_equal(a[name], state[name])

    def test_goes_on_from_its_own_checkpoint_and_that_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "c.weft")
            with weft.Run(MAIN, STARTUP) as whole:
                for step, batch in enumerate(batches() + batches()):
                    if step == 5:
                        whole.checkpoint(path)
                    loss, = whole.step(batch)
                steps = whole.next_step
                with weft.Run(MAIN, STARTUP, resume=path) as rest:
                    self.assertEqual(rest.next_step, 5)
                    for batch in (batches() + batches())[5:]:
                        again, = rest.step(batch)
                    self.assertEqual(float(again), float(loss))
                    self.assertEqual(rest.next_step, steps)
                saved = os.path.join(folder, "saved.npz")
                subprocess.run([WEFT, "run", MAIN, "--resume", path, "--feeds", FEEDS, "--steps",
                                str(steps - 5), "--save", saved], check=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                with np.load(saved) as file:
                    for name, value in whole.state_dict().items():
                        np.testing.assert_array_equal(file[name], value)

    def test_takes_arrays_of_all_kinds(self):
        batch = batches()[0]
        losses = []
        x, y = batch["x"], batch["y"]
        view = memoryview(array.array("f", x.ravel().tolist())).cast("B").cast("f", x.shape)
        for fed in (x, np.asfortranarray(x), view, Dlpack(x), np.repeat(x, 2, axis=0)[::2],
                    x.astype(">f4"), np.asfortranarray(x.astype(">f4")), np.ma.masked_array(x)):
            with weft.Run(MAIN, STARTUP) as run:
                losses.append(float(run.step({"y": y, "x": fed})[0]))
        self.assertEqual(len(set(losses)), 1, losses)

    def test_takes_tensors_of_pytorch(self):
        try:
            import torch  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("no PyTorch")
        batch = batches()[0]
        x, y = torch.from_numpy(batch["x"]), torch.from_numpy(batch["y"])

        def loss(fed, **options):
            with weft.Run(MAIN, STARTUP, **options) as run:
                return float(run.step({"x": fed, "y": y})[0])

        expected = loss(batch["x"])
        permuted = x.t().contiguous().t()
        self.assertFalse(permuted.is_contiguous())
        self.assertEqual(loss(permuted), expected)
        self.assertEqual(loss(torch.cat([x, x], 1)[:, :13]), expected)
        self.assertEqual(loss(x.clone().requires_grad_()), expected)
        self.assertEqual(loss(torch._neg_view(-x)), expected)
        self.assertEqual(loss(torch.complex(x, -x).conj().imag), expected)
        self.assertEqual(loss(torch.nn.Parameter(x)), expected)
        self.assertEqual(loss(Pinned(x)), expected)
        with self.assertRaisesRegex(weft.Error, "feed x: expected rows without gaps"):
            loss(Pinned(permuted))
        for wrong in (x.to_sparse(), x.to("meta")):
            with self.assertRaisesRegex(weft.Error, "feed x: expected a tensor that DLPack takes, "):
                loss(wrong)
        with weft.Run(MAIN, STARTUP) as run:
            weight = run.state_dict()["fc_0.w_0"]
            self.assertEqual(torch.from_dlpack(weight).data_ptr(), weight._data)
            copied = torch.from_dlpack(weight, copy=True)
            self.assertNotEqual(copied.data_ptr(), weight._data)
            self.assertEqual(copied.tolist(), weight.tolist())
        for name in ("float8_e4m3fn", "float8_e5m2", "bfloat16"):
            tensor = torch.tensor([[1.5, -2.0]]).to(getattr(torch, name))
            filled = _native.Array()
            _kept = _tensor.fill(filled, tensor, "x")
            again = weft.Tensor(_kept, filled)
            self.assertEqual((again.dtype, again.shape), (name, (1, 2)))
            self.assertEqual(torch.from_dlpack(again).float().tolist(), [[1.5, -2.0]])

    def test_takes_tensors_of_paddle_while_it_makes_static_programs(self):
        class Static:
            def __init__(self, value):
                self._value = value

            def __array__(self, dtype=None, copy=None):
                return self._value

            def __dlpack__(self):
                raise AssertionError("dynamic graph mode only")

            __dlpack_device__ = __dlpack__

        with weft.Run(MAIN, STARTUP) as run, weft.Run(MAIN, STARTUP) as other:
            batch = batches()[0]
            self.assertEqual(run.step({"x": Static(batch["x"]), "y": batch["y"]})[0],
                             other.step(batch)[0])

    def test_one_row_for_several_is_a_warning(self):
        x, y = (batches()[0][name] for name in "xy")
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
        with weft.Run(out, ranks=2) as run:
            run.step({"x": x[:4], "y": y[:4]})
            with self.assertWarnsRegex(weft.Warning, "step 1: each rank gets 1 row of y, and 2 of x") as warned:
                run.step({"x": x[:4], "y": y[:2]})  # the last batch of an epoch is often short
            self.assertEqual(warned.filename, __file__)
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertRaisesRegex(weft.Error, "expected dimensions that broadcast"):
                run.step({"x": x[:4], "y": y[:2]})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (2, 4):
                with weft.Run(out, ranks=2) as run:
                    run.step({"x": x[:rows], "y": y[:rows]})

    def test_what_is_not_by_name_is_an_error(self):
        for call, message in (
                (lambda: weft.Run(MAIN, params=[1]), "params: expected name -> array, or a path, found list$"),
                (lambda: weft.Run(MAIN, STARTUP).step([1]), "feeds: expected name -> array, found list; dict"),
                (lambda: weft.Run(MAIN, STARTUP).fit([[1]]),
                 r"batch: expected name -> array, found list; names=\[...\] names its parts$")):
            with self.assertRaisesRegex(weft.Error, message):
                call()

    def test_wrong_arrays_are_errors(self):
        batch = batches()[0]
        for fed, message in ((batch["x"].astype("float64"), "expected fp32.*astype"),
                             ([1, 2], "expected an array .NumPy, DLPack or a buffer., found list"),
                             (batch["x"].astype("O"), "no element type object; with NumPy: array.astype makes another$"),
                             (np.ma.masked_less(batch["x"], 0), "expected an array without a mask"),
                             (batch["x"][:3], "op 2 .elementwise_sub.: input Y")):
            with weft.Run(MAIN, STARTUP) as run, self.assertRaisesRegex(weft.Error, message):
                run.step({"x": fed, "y": batch["y"]})

    def test_a_step_may_come_while_a_batch_is_read(self):
        first, second = batches()[:2]
        with weft.Run(MAIN, STARTUP) as run:
            within = []

            class Reading(dict):
                """Runs a step with another batch between its two arrays."""

                def __getitem__(self, name):
                    if name == "y":
                        within.extend(run.step({name: value.copy() for name, value in first.items()}))
                    return super().__getitem__(name)

            found = [run.step(second)[0], run.step(Reading(second))[0]]
        with weft.Run(MAIN, STARTUP) as run:
            expected = [run.step(batch)[0] for batch in (second, first, second)]
        self.assertEqual([found[0], within[0], found[1]], expected)

    def test_no_step_comes_before_the_results_are_taken(self):
        first, second = batches()[:2]
        with weft.Run(MAIN, STARTUP) as run:
            said = []

            def interrupts(stacklevel):
                del stacklevel
                with self.assertRaises(weft.Error) as raised:
                    run.step(second)
                said.append((raised.exception.code, str(raised.exception)))

            with unittest.mock.patch.object(weft.Run, "_take_notes", side_effect=interrupts):
                found = [run.step(first)[0]]
            found.append(run.step(second)[0])
        self.assertEqual(said, [(
            "FAILED_PRECONDITION", "step: expected a call after the step that runs, found one within it")])
        with weft.Run(MAIN, STARTUP) as run:
            self.assertEqual(found, [run.step(batch)[0] for batch in (first, second)])

    def test_the_first_step_may_come_while_a_batch_is_read(self):
        first, second, third = batches()[:3]
        with weft.Run(MAIN, STARTUP) as run:
            found = []

            class Reading(dict):
                """Runs the first step, with the names in the other order."""

                def __getitem__(self, name):
                    if name == "y":
                        found.append(run.step({name: first[name] for name in reversed(list(self))})[0])
                    return super().__getitem__(name)

            found += [run.step(Reading(second))[0], run.step(third)[0], run.step(first)[0]]
            for batch in (second, dict(reversed(list(third.items())))):
                found.append(run.step(batch)[0])
        with weft.Run(MAIN, STARTUP) as run:
            expected = [run.step(batch)[0] for batch in (first, second, third, first, second, third)]
        self.assertEqual(found, expected)

    def test_a_batch_that_cannot_be_read_leaves_the_run_as_it_is(self):
        first, second = batches()[:2]
        with weft.Run(MAIN, STARTUP) as run:
            found = [run.step(first)[0]]
            with self.assertRaisesRegex(weft.Error, "feed z: expected an array"):
                run.step({"x": second["x"], "z": [1]})
            found.append(run.step(second)[0])
        with weft.Run(MAIN, STARTUP) as run:
            self.assertEqual(found, [run.step(batch)[0] for batch in (first, second)])

    def test_stays_in_its_process(self):
        with weft.Run(MAIN, STARTUP) as run:
            for call in (pickle.dumps, copy.copy):
                with self.assertRaisesRegex(TypeError, "a run is in the memory of this process: checkpoint"):
                    call(run)

    def test_results_keep_their_values_without_copies(self):
        with weft.Run(MAIN, STARTUP, fetch=["fc_0.tmp_1", "mean_0.tmp_0"]) as run:
            prediction, loss = run.step(batches()[0])
            kept = prediction.numpy()
            first = kept.copy()
            self.assertEqual(kept.ctypes.data, prediction.ranks[0]._data)
            run.step(batches()[1])
            again = np.from_dlpack(prediction.ranks[0])
        del prediction
        np.testing.assert_array_equal(kept, first)
        np.testing.assert_array_equal(again, first)
        self.assertEqual(first.shape, (20, 1))
        self.assertAlmostEqual(float(loss.ranks[0]), float(loss), places=5)

    def test_results_are_numbers(self):
        with weft.Run(MAIN, STARTUP) as run:
            loss, = run.step(batches()[0])
            self.assertLess(loss, 11)
            self.assertEqual(loss + 1, float(loss) + 1)
            self.assertEqual(np.mean([loss, loss]), float(loss))
            self.assertEqual(pickle.loads(pickle.dumps(loss)), float(loss))
            self.assertIsNone(loss.rows)

    def test_sparse_gradients_do_not_move_other_results(self):
        program = weft.Program.from_text(SPARSE)
        w = np.arange(40, dtype="f4").reshape(10, 4)
        with weft.Run(program, params={"w": w}, fetch=["w@GRAD", "loss", "e"]) as run:
            gradient, loss, e = run.step({"ids": np.array([[1], [7]])})
            self.assertEqual(gradient.ranks[0].shape, (2, 4))
            self.assertEqual(gradient.rows[0].tolist(), [1, 7])
            self.assertEqual(float(loss.ranks[0]), w[[1, 7]].mean())
            np.testing.assert_array_equal(e.ranks[0], w[[[1], [7]]])

    def test_threads_take_turns(self):
        with weft.Run(MAIN, STARTUP) as run:
            batch = batches()[0]
            seen, ends = [], threading.Event()

            def watch():
                while not ends.is_set():
                    seen.append(sorted(run.state_dict()))

            def train():
                for _ in range(50):
                    run.step(batch)

            watcher = threading.Thread(target=watch)
            threads = [threading.Thread(target=train) for _ in range(2)]
            for thread in [watcher] + threads:
                thread.start()
            for thread in threads:
                thread.join()
            ends.set()
            watcher.join()
            self.assertEqual(run.next_step, 100)
            self.assertTrue(seen)

    def test_options_are_text_numbers_and_paths(self):
        for ranks in (np.int64(1), np.array(1)):
            with weft.Run(MAIN, STARTUP, ranks=ranks, check_nan=np.bool_(True), fetch=["x"]) as run:
                self.assertIn("1 ranks", repr(run))
        for wrong in ({"a"}, iter(["a"]), object(), [Value([])], Value(()), np.array(object()),
                      np.array([1])):
            with self.assertRaisesRegex(weft.Error, "fetch: expected text, a number, a path, or a list"):
                weft.Run(MAIN, STARTUP, fetch=wrong)
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertRaisesRegex(weft.Error, "found Run; its .state_dict.. has them"):
                weft.Run(MAIN, STARTUP, params=run)
        with self.assertRaisesRegex(weft.Error, "startup: .*found Transpiled; its .startup is one"):
            weft.Run(MAIN, weft.transpile(MAIN, STARTUP, mode="grad_allreduce"))
        with tempfile.TemporaryDirectory() as folder:
            for name in (b"\xff.weft", "\u6570 \u00e9.weft".encode()):  # not all paths are UTF-8
                path = os.path.join(os.fsencode(folder), name)
                with weft.Run(MAIN, STARTUP) as run:
                    run.step(batches()[0])
                    run.checkpoint(os.fsdecode(path))
                for given in (path, os.fsdecode(path)):
                    with weft.Run(MAIN, STARTUP, resume=given) as run:
                        self.assertEqual(run.next_step, 1)

    def test_parameters_are_arrays_or_a_file(self):
        with tempfile.TemporaryDirectory() as folder, weft.Run(MAIN, STARTUP) as run:
            run.step(batches()[0])
            state = run.state_dict()
            path = os.path.join(folder, "state.safetensors")
            run.save(path)
            for params in (state, path, {name: np.asarray(one) for name, one in state.items()}):
                with weft.Run(MAIN, STARTUP, params=params) as other:
                    for name, value in other.state_dict().items():
                        np.testing.assert_array_equal(value, state[name])

    def test_an_error_stays(self):
        with weft.Run(MAIN, STARTUP) as run:
            batch = dict(batches()[0], y=np.full((20, 1), np.inf, "float32"))
            with self.assertRaisesRegex(weft.Error, "step 0, rank 0: loss .* is "):
                run.step(batch)
            with self.assertRaisesRegex(weft.Error, "step 0, rank 0: loss .* is "):
                run.state_dict()
        with self.assertRaisesRegex(weft.Error, "step 0, rank 0: loss"):
            run.step(batches()[0])

    def test_a_run_that_is_closed_says_so(self):
        run = weft.Run(MAIN, STARTUP)
        run.step(batches()[0])
        run.close()
        with self.assertRaisesRegex(weft.Error, "the run has ended"):
            run.step(batches()[0])

    def test_a_run_that_is_closed_before_it_begins_says_so(self):
        run = weft.Run(MAIN, STARTUP)
        run.close()
        run.close()
        for call in (run.state_dict, lambda: run.step(batches()[0]),
                     lambda: run.save("closed.npz"), lambda: run.checkpoint("closed.weft")):
            with self.assertRaisesRegex(weft.Error, "the run has ended"):
                call()

    def test_an_interrupt_comes_after_the_step(self):
        run = weft.Run(MAIN, STARTUP)
        batch = batches()[0]
        run.step(batch)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        kept = []
        with self.assertRaises(KeyboardInterrupt):
            while True:
                kept.append(run.step(batch))
        done = run.next_step
        run.step(batch)
        self.assertEqual(run.next_step, done + 1)

    def test_an_interrupt_while_results_are_freed_comes_with_the_next_step(self):
        def interrupt(value):
            free(value)
            raise KeyboardInterrupt
        with weft.Run(MAIN, STARTUP) as run:
            result, = run.step(batches()[0])
            arrays = result._arrays  # pylint: disable=protected-access
            free, arrays._free = arrays._free, interrupt  # pylint: disable=protected-access
            del arrays
            del result
            with self.assertRaises(KeyboardInterrupt):
                run.step(batches()[0])
            self.assertEqual(run.next_step, 1)
            run.step(batches()[0])

    def test_progress_is_shown_when_asked(self):
        shown = io.StringIO()
        with unittest.mock.patch.dict(sys.modules, {"tqdm": None}):  # as if it were not there
            with contextlib.redirect_stderr(shown), weft.Run(MAIN, STARTUP, progress=True) as run:
                run.step(batches()[0])
                run.fit(batches()[:1], progress=True)  # one bar shows both
        self.assertRegex(shown.getvalue(),
                         r"^\rstep 1  mean_0.tmp_0 [0-9.]+\x1b\[K\rstep 2  mean_0.tmp_0 [0-9.]+\x1b\[K\n$")

    def test_processes_of_a_launcher_train_together(self):
        def train(processes, folder, first="", before="", after=""):
            path = os.path.join(folder, "train.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(JOB % (first, before, after))
            command = [sys.executable, path, MAIN, STARTUP, FEEDS, folder, str(processes)]
            if processes > 1:
                command = [WEFT, "launch", "-n", str(processes), "--"] + command
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=100, env=dict(
                                      os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(PACKAGE))))
            lines = done.stdout.decode().splitlines()
            if processes == 1 or done.returncode != 0:
                return done, lines
            self.assertEqual(sorted({line.split(" ", 1)[0] for line in lines}), ["[0]", "[1]"],
                             done.stderr.decode())
            of_each = [[line[4:] for line in lines if line.startswith("[%d]" % i)] for i in (0, 1)]
            self.assertEqual(of_each[0], of_each[1])
            return done, of_each[0]

        with tempfile.TemporaryDirectory() as threads, tempfile.TemporaryDirectory() as processes:
            _, expected = train(1, threads)
            done, found = train(2, processes)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertGreater(len(expected), 10)
            self.assertEqual(found, expected)
            for name in ("saved.npz", "c.weft", "c.weft.best", "log.csv"):
                with open(os.path.join(threads, name), "rb") as one, open(
                        os.path.join(processes, name), "rb") as other:
                    self.assertEqual(one.read(), other.read(), name)
            # An error in one process ends all.
            done, _ = train(2, processes, after="if run.process == 1: run.step({'x': 1})")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"[1] weft.Error: ", done.stderr)
            done, _ = train(2, processes, before="if run.process == 1: raise KeyError('own')")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"[1] KeyError: 'own'", done.stderr)
            # All processes have the same batches.
            done, _ = train(2, processes, after="run.step(batches[run.process])")
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.decode(), r"\[1\] weft.Error: .*step 4: expected the batch of all ranks, as "
                             r"process 0 has it \(x: fp32\[\d+, 13\] with hash \w+\), found x: fp32\[\d+, 13\] with hash ")
            done, _ = train(2, processes, after="run.step({'y': batches[0]['y'], 'x': batches[0]['x'][:2 - run.process]})")
            self.assertIn("found x: fp32[1, 13]", done.stderr.decode())
            done, _ = train(2, processes, after="weft.Run(out)")
            self.assertIn(b"one run can join the others, and has", done.stderr)
            # One that has not joined them leaves it to the next.
            done, _ = train(2, processes, first="try: weft.Run(out, backend='nccl')\nexcept weft.Error as e: print(e)")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            done, _ = train(2, processes, after="weft.Run(out, ranks=2, backend='local').step(batches[0])")
            self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_a_fork_after_a_step_is_an_error_that_says_so(self):
        run = weft.Run(MAIN, STARTUP)
        run.step(batches()[0])
        child = os.fork()
        if child == 0:
            try:
                weft.Run(MAIN, STARTUP).step(batches()[0])
            except weft.Error as error:
                os._exit(0 if "was forked from process" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_learning_rates_follow_schedules(self):
        def losses(**options):
            with weft.Run(MAIN, STARTUP, **options) as run:
                return [float(run.step(batch)[0]) for batch in batches()]
        rate = next(var for var in str(weft.Program(MAIN)).split() if var.startswith("learning_rate"))
        self.assertNotEqual(losses(set={rate: 0.001}), losses())
        table = "table{values=0.1:0.01}"
        with self.assertRaisesRegex(weft.Error, "no value for step 2"):
            losses(lr_schedule=table)

    def test_a_rate_that_follows_the_loss_says_where_it_stands(self):
        found = _native.Plateau()
        schedule = "reduce_on_plateau{learning_rate=0.01,every=2,patience=0,factor=0.5,threshold=10}"
        with weft.Run(MAIN, STARTUP, lr_schedule=schedule, ranks=2, allow_unsynchronized=True) as run:
            handle = run._handle.value
            self.assertEqual(_native.lib().weft_run_plateau(handle, found), 0)
            rate, best, losses = 0.01, None, []
            for batch in batches() * 2:
                losses.append(float(run.step(batch)[0]))
                self.assertEqual(_native.lib().weft_run_plateau(handle, found), 1)
                if len(losses) == 2:  # the first is the best, as no loss is below -9 times that
                    rate = rate if best is None else rate / 2
                    best = best or sum(losses) / 2
                    losses = []
                self.assertEqual(found.rate, rate)
                if best is not None:
                    self.assertAlmostEqual(found.best, best, places=4)
        self.assertLess(rate, 0.001)
        with weft.Run(MAIN, STARTUP) as run:
            run.step(batches()[0])
            self.assertEqual(_native.lib().weft_run_plateau(run._handle.value, found), 0)


TEST_PROGRAM = """program {
  block 0 parent=-1 {
    var fc_0.b_0 : fp32[1] parameter persistable
    var fc_0.w_0 : fp32[13, 1] parameter persistable
    var product : fp32[-1, 1]
    var prediction : fp32[-1, 1]
    var error : fp32[-1, 1]
    var square : fp32[-1, 1]
    var loss : fp32[]
    var x : fp32[-1, 13] need_check_feed
    var y : fp32[-1, 1] need_check_feed
    Out=[product] = mul(X=[x], Y=[fc_0.w_0]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[prediction] = elementwise_add(X=[product], Y=[fc_0.b_0]) role=forward {axis=1}
    Out=[error] = elementwise_sub(X=[prediction], Y=[y]) role=forward {axis=-1}
    Out=[square] = square(X=[error]) role=forward
    Out=[loss] = reduce_mean(X=[square]) role=forward {dim=ints[], keep_dim=false, reduce_all=true}
  }
}
"""


def loss_of(state, data):
    """What the test program computes, by NumPy."""
    x, y = (np.concatenate([batch[name] for batch in data]) for name in "xy")
    return float(np.mean((x @ np.asarray(state["fc_0.w_0"]) + np.asarray(state["fc_0.b_0"]) - y) ** 2))


class EvaluateTest(unittest.TestCase):
    def test_gives_the_metrics_of_all_batches(self):
        test = weft.Program.from_text(TEST_PROGRAM)
        data = batches()
        data[-1] = {name: value[:7] for name, value in data[-1].items()}  # weighs less
        with weft.Run(MAIN, STARTUP) as run:
            for batch in batches():
                run.step(batch)
            found = weft.evaluate(test, data, run)
            self.assertEqual(found, weft.evaluate(test, [dict(batch, more=batch["y"]) for batch in data],
                                                  run.state_dict()))
            self.assertAlmostEqual(found["loss"], loss_of(run.state_dict(), data), places=4)
            self.assertEqual(found.batches, len(data))
            self.assertEqual(found.samples, 20 * (len(data) - 1) + 7)
            pairs = [(batch["x"], batch["y"]) for batch in data]
            self.assertEqual(found, weft.evaluate(test, pairs, run, names=["x", "y"]))

    def test_takes_moving_averages(self):
        test = weft.Program.from_text(TEST_PROGRAM)
        with weft.Run(MAIN, STARTUP) as run:
            state = {name: np.asarray(value) for name, value in run.state_dict().items()}
        average = {name: np.random.default_rng(1).standard_normal(state[name].shape, "float32")
                   for name in ("fc_0.w_0", "fc_0.b_0")}
        state.update({name + "_ema_0": value for name, value in average.items()})
        state["scheduled_ema_decay_rate"] = np.array([0.9], "float32")
        state["@EMA_STEP_COUNTER@"] = np.array([3], "int64")
        expected = {name: value / (1 - 0.9 ** 3) for name, value in average.items()}
        found = weft.evaluate(test, batches(), state, ema=True)["loss"]
        self.assertAlmostEqual(found / loss_of(expected, batches()), 1, places=4)

    def test_wrong_values_are_errors(self):
        test = weft.Program.from_text(TEST_PROGRAM)
        with self.assertRaisesRegex(weft.Error, "expected all parameters of the program, found 1 of 2"):
            weft.evaluate(test, batches(), {"fc_0.b_0": np.zeros(1, "float32")})
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertRaisesRegex(weft.Error, "expected a batch, found none"):
                weft.evaluate(test, [], run)
            with self.assertRaisesRegex(weft.Error, "updates"):
                weft.evaluate(MAIN, batches(), run)


    def test_a_loss_that_is_not_finite_is_a_result(self):
        test = weft.Program.from_text(TEST_PROGRAM.replace("(X=[square]) role=forward",
                                                           "(X=[square]) role=loss"))
        state = {"fc_0.w_0": np.full((13, 1), np.nan, "float32"), "fc_0.b_0": np.zeros(1, "float32")}
        self.assertTrue(np.isnan(weft.evaluate(test, batches(), state)["loss"]))

    def test_begins_anew_with_the_startup_program(self):
        test = weft.Program.from_text(TEST_PROGRAM)
        other = {"fc_0.w_0": np.ones((13, 1), "float32"), "fc_0.b_0": np.ones(1, "float32")}
        evaluator = _fit.Evaluator(test, STARTUP, other, {})
        with_other = evaluator.run(batches(), None)
        evaluator.restart({})
        begun = evaluator.run(batches(), None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nobody gave parameters that lack some
            self.assertEqual(begun, weft.evaluate(test, batches(), startup=STARTUP))
        self.assertNotEqual(begun, with_other)
        evaluator.restart(other)
        self.assertEqual(evaluator.run(batches(), None), with_other)

    def test_wrong_arguments_are_errors(self):
        test = weft.Program.from_text(TEST_PROGRAM)
        with self.assertRaisesRegex(weft.Error, "params: expected a weft.Run, or name -> array"):
            weft.evaluate(test, batches(), "model.npz")
        with self.assertRaisesRegex(weft.Error, "expected names that are str, found 1"):
            weft.evaluate(test, [{1: np.zeros(1)}], startup=STARTUP)
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertRaisesRegex(weft.Error, "expected names that are str, found 1"):
                run.step({1: np.zeros(1)})


# Ranks have running statistics of their own.
NORMALIZED = """program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var scale : fp32[4] parameter persistable
    var bias : fp32[4] parameter persistable
    var mean : fp32[4] persistable
    var variance : fp32[4] persistable
    var y : fp32[-1, 4]
    var saved_mean : fp32[4]
    var saved_variance : fp32[4]
    var loss : fp32[]
    MeanOut=[mean], SavedMean=[saved_mean], SavedVariance=[saved_variance], VarianceOut=[variance], Y=[y] = batch_norm(Bias=[bias], Mean=[mean], Scale=[scale], Variance=[variance], X=[x]) role=forward {momentum=0.9, epsilon=1e-05, is_test=false, data_layout="NCHW"}
    Out=[loss] = reduce_mean(X=[y]) role=loss {dim=ints[], reduce_all=true}
  }
}"""


# Trains on two ranks, of one or of two processes.
JOB = """import os, sys, numpy as np, weft
from weft import _native
main, startup, feeds, folder, processes = sys.argv[1:]
at = lambda name: os.path.join(folder, name)
feeds = np.load(feeds)
batches = [{"x": feeds["%%d/x" %% i], "y": feeds["%%d/y" %% i]} for i in range(4)]
out = weft.transpile(main, startup, mode="grad_allreduce", nranks=2)
%s
plateau, found = "learning_rate=0.01,every=2,patience=0,factor=0.5,threshold=10", _native.Plateau()
with weft.Run(out, ranks=2 // int(processes), lr_schedule="reduce_on_plateau{%%s}" %% plateau) as run:
    print(run.num_ranks, run.next_step)
    %s
    begin = run.state_dict()
    for batch in batches:
        loss, = run.step(batch)
        print("%%.9g" %% loss, [rank.tolist() for rank in loss.ranks])
        assert _native.lib().weft_run_plateau(run._handle.value, found) == 1
        print(found.rate, found.best, found.num_bad)
    assert found.rate == 0.005, found.rate
    %s
    run.load_state_dict(begin)
    fitted = run.fit(batches, epochs=2, log=at("log.csv"), valid=(
        lambda run: {"loss": float(np.abs(run.state_dict()["fc_0.b_0"].numpy()).sum())}), every=3,
        checkpoint=at("c.weft"), keep_best="max:loss")
    print(fitted.valid, fitted.best, fitted.losses)
    run.save(at("saved.npz"))
    print(sorted((name, value.tolist()) for name, value in run.state_dict().items()))
    for _ in range(8):
        print("%%.9g" %% run.step(batches[0])[0])
"""


class StateTest(unittest.TestCase):
    def test_of_ranks_with_their_own_is_not_replaced(self):
        out = weft.transpile(MAIN, STARTUP, mode="local_sgd", k_steps=100, nranks=2)
        with weft.Run(out, ranks=2) as run:
            begin = run.state_dict()
            run.load_state_dict(begin)
            run.step(batches()[0])
            with self.assertRaisesRegex(weft.Error, "fc_0.*ranks have values of their own"):
                run.load_state_dict(begin)
            run.step(batches()[1])  # it is as it was

    def test_of_running_statistics_is_replaced(self):
        ones = {name: np.ones(4, "float32") for name in ("scale", "bias", "mean", "variance")}
        x = np.arange(16, dtype="float32").reshape(4, 4)

        def means(run):
            return [rank.tolist() for rank in run.step({"x": x})[0].ranks]

        with weft.Run(weft.Program.from_text(NORMALIZED), params=ones, ranks=2, fetch="mean") as run:
            begin = run.state_dict()
            first = means(run)
            self.assertNotEqual(first[0], first[1])
            run.load_state_dict(begin)
            self.assertEqual(means(run), first)

    def test_comes_in_during_a_run(self):
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
        with weft.Run(out, ranks=2) as run:
            begin = run.state_dict()
            first = [float(run.step(batch)[0]) for batch in batches()]
            run.load_state_dict(begin)
            self.assertEqual([float(run.step(batch)[0]) for batch in batches()], first)
            self.assertEqual(run.next_step, 2 * len(first))
            run.load_state_dict({"fc_0.b_0": np.array([7], "float32")}, strict=False)
            self.assertEqual(float(run.state_dict()["fc_0.b_0"]), 7)

    def test_that_is_none_is_an_error(self):
        with weft.Run(MAIN, STARTUP) as run:
            for wrong in (None, [1], 3):
                with self.assertRaisesRegex(weft.Error, "state: expected name -> array, found "):
                    run.load_state_dict(wrong)
        with self.assertRaisesRegex(weft.Error, "Turns: expected runs, found int"):
            weft.Turns(1, 2)

    def test_a_wrong_one_leaves_the_run_as_it_is(self):
        with weft.Run(MAIN, STARTUP) as run:
            state = dict(run.state_dict())
            wrong = dict(state, **{"fc_0.b_0": np.zeros(2, "float32")})
            with self.assertRaisesRegex(weft.Error, r"fc_0.b_0.*expected fp32\[1\], found fp32\[2\]"):
                run.load_state_dict(wrong)
            with self.assertRaisesRegex(weft.Error, "other: the run has no such variable"):
                run.load_state_dict(dict(state, other=state["fc_0.b_0"]))
            missing = {name: value for name, value in state.items() if name != "fc_0.b_0"}
            with self.assertRaisesRegex(weft.Error, "fc_0.b_0: expected a value for each"):
                run.load_state_dict(missing)
            run.load_state_dict(dict(missing, other=state["fc_0.b_0"]), strict=False)
            run.step(batches()[0])


class FitTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.test = weft.Program.from_text(TEST_PROGRAM)

    def path(self, name):
        return os.path.join(self._folder.name, name)

    def test_does_the_steps(self):
        with weft.Run(MAIN, STARTUP) as run:
            expected = [float(run.step(batch)[0]) for batch in batches() * 2]
        logged = []
        with weft.Run(MAIN, STARTUP) as run:
            fitted = run.fit(batches(), epochs=2, log=lambda step, numbers: logged.append(
                (step, numbers["mean_0.tmp_0"])))
            self.assertEqual(logged, list(enumerate(expected)))
            self.assertEqual(fitted.steps, len(expected))
            self.assertEqual(fitted.losses, {"mean_0.tmp_0": expected[-1]})
        pairs = ((batch["x"], batch["y"]) for batch in batches())
        with weft.Run(MAIN, STARTUP) as run:
            fitted = run.fit(pairs, names=["x", "y"], steps=2)
            self.assertEqual(fitted.losses, {"mean_0.tmp_0": expected[1]})

    def test_keeps_the_best_checkpoint(self):
        c = self.path("c.weft")
        rates = "piecewise{boundaries=4,values=0.01:2.0}"
        with weft.Run(MAIN, STARTUP, lr_schedule=rates) as run:
            fitted = run.fit(batches(), steps=7, valid=(self.test, batches()), every=2,
                             checkpoint=c, keep_best="loss")
        steps = [step for step, _ in fitted.valid]
        self.assertEqual(steps, [2, 4, 6, 7])
        numbers = dict(fitted.valid)
        self.assertLess(numbers[4]["loss"], min(numbers[2]["loss"], numbers[7]["loss"]))
        self.assertEqual(fitted.best, (4, numbers[4]))
        for path, step in ((c + ".best", 4), (c, 7)):
            with weft.Run(MAIN, STARTUP, resume=path, lr_schedule=rates) as run:
                self.assertEqual(run.next_step, step)
                self.assertEqual(weft.evaluate(self.test, batches(), run), numbers[step])
            # Which is known in a run that goes on, and in a later fit.
            with warnings.catch_warnings(), weft.Run(MAIN, STARTUP, resume=path, lr_schedule=rates) as run:
                warnings.simplefilter("error")
                for _ in range(2):
                    fitted = run.fit(batches(), steps=1, valid=lambda _: {"loss": 1e9},
                                     checkpoint=self.path("d.weft"), keep_best="loss")
                    self.assertIsNone(fitted.best)
                with self.assertWarnsRegex(weft.Warning, "was of another metric, loss="):
                    fitted = run.fit(batches(), steps=1, valid=lambda _: {"score": 1e9},
                                     checkpoint=self.path("d.weft"), keep_best="score")
                self.assertIsNotNone(fitted.best)
                os.remove(self.path("d.weft.best"))
        with weft.Run(MAIN, STARTUP, lr_schedule=rates) as run:
            values = iter([3.0, 5.0, float("nan"), 4.0])
            fitted = run.fit(batches(), steps=4, valid=lambda _: {"score": next(values)}, every=1,
                             checkpoint=c, keep_best="max:score")
            self.assertEqual(fitted.best, (2, {"score": 5.0}))

    def test_knows_which_metric_is_the_loss(self):
        # Where the model trains, `loss` is one; the first metric is none.
        text = TEST_PROGRAM.replace("    var loss", "    var b : fp32[]\n    var loss")
        text = text.replace("    Out=[loss]", "    Out=[b] = reduce_max(X=[y]) role=forward {dim=ints[], "
                            "keep_dim=false, reduce_all=true}\n    Out=[loss]")
        test = weft.Program.from_text(text.replace("loss :", "mean_0.tmp_0 :").replace(
            "Out=[loss]", "Out=[mean_0.tmp_0]"))
        with weft.Run(MAIN, STARTUP) as run:
            fitted = run.fit(batches(), steps=3, valid=(test, batches()), every=1,
                             checkpoint=self.path("c.weft"), keep_best="loss")
        self.assertEqual(list(fitted.valid[0][1]), ["b", "mean_0.tmp_0"])
        self.assertEqual(fitted.best, min(fitted.valid, key=lambda one: one[1]["mean_0.tmp_0"]))
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertRaisesRegex(weft.Error, "keep_best.*known as a loss.*accuracy, error"):
                run.fit(batches(), steps=1, valid=lambda _: {"accuracy": 1, "error": 2},
                        checkpoint=self.path("c.weft"), keep_best="loss")

    def test_a_validation_that_fails_leaves_a_checkpoint(self):
        c = self.path("c.weft")

        def fails(run):
            if run.next_step == 2:
                raise ValueError("fails")
            return {"loss": 1}
        with weft.Run(MAIN, STARTUP) as run, self.assertRaisesRegex(ValueError, "fails"):
            run.fit(batches(), valid=fails, every=1, checkpoint=c)
        with weft.Run(MAIN, STARTUP, resume=c) as run:
            self.assertEqual(run.next_step, 2)
        # What can be known is said after the first step.
        other = weft.Program.from_text(TEST_PROGRAM.replace("fc_0.w_0", "fc_1.w_0"))
        for test, options, message in (
                (other, {}, "expected all parameters of the program, found 1 of 2"),
                (self.test, {"ema": True}, "moving averages: expected"),
                (self.test, {"keep_best": "other"}, "keep_best other: expected loss, or one of")):
            with weft.Run(MAIN, STARTUP) as run:
                with self.assertRaisesRegex(weft.Error, message):
                    run.fit(batches(), valid=(test, batches()), checkpoint=c, **options)
                self.assertEqual(run.next_step, 1)

    def test_no_number_leaves_no_best(self):
        with open(self.path("c.weft.best"), "w", encoding="utf-8"):
            pass  # of another run
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertWarnsRegex(weft.Warning, "no validation has found a number"):
                run.fit(batches(), steps=2, valid=lambda _: {"a": float("nan")}, keep_best="a",
                        checkpoint=self.path("c.weft"), log=self.path("log.jsonl"))
        self.assertFalse(os.path.exists(self.path("c.weft.best")))
        with open(self.path("log.jsonl"), encoding="utf-8") as file:
            self.assertIn('{"valid/a": null, "step": 1}', file.read())

    def test_epochs_are_those_of_the_batches(self):
        np.savez(self.path("f.npz"), **{"x": np.concatenate([one["x"] for one in batches()]),
                                        "y": np.concatenate([one["y"] for one in batches()])})
        made = weft.batches(self.path("f.npz"), batch_size=20, shuffle=1)
        orders = [[batch["y"].tolist() for batch in made] for _ in range(3)]
        made = weft.batches(self.path("f.npz"), batch_size=20, shuffle=1)
        with weft.Run(MAIN, STARTUP) as run:
            run.fit(made, epochs=2)
        self.assertEqual([batch["y"].tolist() for batch in made], orders[2])

    def test_batches_of_files_go_on_where_the_run_is(self):
        data = weft.batches(FEEDS, shuffle=3)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "half.weft")
            with weft.Run(MAIN, STARTUP) as run:
                next(iter(data))  # does not matter
                run.fit(data, steps=len(data) - 2, checkpoint=path)
                run.fit(data, steps=4, epochs=2)
                state = {name: one.numpy().copy() for name, one in run.state_dict().items()}
            with weft.Run(MAIN, STARTUP, resume=path) as run:
                data = weft.batches(FEEDS, shuffle=3)
                self.assertEqual(run.fit(data, epochs=1).steps, 2)
                run.fit(data, steps=2)
                for name, one in run.state_dict().items():
                    np.testing.assert_array_equal(one, state[name])
                others = weft.batches(FEEDS)
                self.assertEqual(run.fit(others, steps=2).steps, 2)
                self.assertEqual(run.fit(others).steps, len(others) - 2)

    def test_a_checkpoint_that_cannot_be_written_is_an_error_first(self):
        with weft.Run(MAIN, STARTUP) as run:
            with self.assertRaisesRegex(weft.Error, "cannot create a file in /nowhere: No such"):
                run.fit(batches(), checkpoint="/nowhere/c.weft")
            self.assertEqual(run.next_step, 0)

    def test_logs_go_on(self):
        for name in ("log.jsonl", "log.csv"):
            with weft.Run(MAIN, STARTUP) as run:
                for _ in range(2):
                    run.fit(batches(), steps=2, log=self.path(name), checkpoint=self.path("c.weft"))
                run.fit(batches(), steps=2, log=self.path(name))
            with weft.Run(MAIN, STARTUP, resume=self.path("c.weft")) as run:  # before step 4
                run.fit(batches(), steps=1, log=self.path(name))
            with open(self.path(name), encoding="utf-8") as file:
                lines = file.read().splitlines()
            self.assertEqual(len(lines), 5 + name.endswith("csv"))
        with weft.Run(MAIN, STARTUP, resume=self.path("c.weft"), fetch="fc_0.b_0") as run:
            with self.assertRaisesRegex(weft.Error, "columns fc_0.b_0 of this run, found mean_0.tmp_0"):
                run.fit(batches(), steps=1, log=self.path("log.csv"))
        with weft.Run(MAIN, STARTUP) as run:
            run.fit(batches(), steps=1, log=self.path("log.csv"))
        with open(self.path("log.csv"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 2)

    def test_validation_changes_nothing(self):
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
        losses = []
        for valid in (None, (self.test, batches())):
            with weft.Run(out, ranks=2) as run:
                run.fit(batches(), valid=valid, every=1 if valid else None,
                        log=lambda step, numbers: losses.append(numbers.get("mean_0.tmp_0")))
        found = [loss for loss in losses if loss is not None]
        self.assertEqual(found[:len(found) // 2], found[len(found) // 2:])

    def test_writes_logs(self):
        with weft.Run(MAIN, STARTUP) as run:
            run.fit(batches(), steps=3, log=self.path("log.csv"), log_every=2)
        with open(self.path("log.csv"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual([line.split(",")[0] for line in lines], ["step", "0", "2"])
        self.assertEqual(lines[0], "step,mean_0.tmp_0")
        with weft.Run(MAIN, STARTUP) as run:
            run.fit(batches(), steps=1, valid=(self.test, batches()), log=self.path("log.jsonl"))
        with open(self.path("log.jsonl"), encoding="utf-8") as file:
            first, second = map(json.loads, file)
        self.assertEqual(sorted(first), ["mean_0.tmp_0", "step"])
        self.assertEqual(sorted(second), ["step", "valid/loss"])

    def test_validates_with_moving_averages(self):
        text = str(weft.Program(MAIN))
        place = text.index("    var fc_0.w_0 ")
        averages = {"fc_0.w_0_ema_0": np.full((13, 1), 0.25, "float32"),
                    "fc_0.b_0_ema_0": np.full(1, 0.5, "float32"),
                    "scheduled_ema_decay_rate": np.array([0.5], "float32"),
                    "@EMA_STEP_COUNTER@": np.array([2], "int64")}
        lines = ["    var %s : %s[%s] persistable\n" % (
            name, "fp32" if value.dtype == np.float32 else "int64",
            ", ".join(map(str, value.shape))) for name, value in averages.items()]
        main = weft.Program.from_text(text[:place] + "".join(lines) + text[place:])
        with weft.Run(main, STARTUP, params=averages) as run:
            fitted = run.fit(batches(), steps=1, valid=(self.test, batches()), ema=True)
        expected = loss_of({name: averages[name + "_ema_0"] / 0.75
                            for name in ("fc_0.w_0", "fc_0.b_0")}, batches())
        self.assertAlmostEqual(fitted.valid[0][1]["loss"] / expected, 1, places=4)

    def test_writes_a_checkpoint_after_so_many_steps(self):
        c = self.path("c.weft")
        there = []

        def watched():
            for batch in batches()[:5]:
                there.append(os.path.exists(c))
                yield batch
        with weft.Run(MAIN, STARTUP) as run:
            run.fit(watched(), checkpoint=c, save_every=3)
        self.assertEqual(there, [False, False, False, True, True])
        with weft.Run(MAIN, STARTUP, resume=c) as run:
            self.assertEqual(run.next_step, 5)

    def test_an_interrupt_leaves_a_checkpoint(self):
        def interrupted():
            yield from batches()[:2]
            raise KeyboardInterrupt
        with weft.Run(MAIN, STARTUP) as run, self.assertRaises(KeyboardInterrupt):
            run.fit(interrupted(), checkpoint=self.path("c.weft"))
        with weft.Run(MAIN, STARTUP, resume=self.path("c.weft")) as run:
            self.assertEqual(run.next_step, 2)

    def test_wrong_calls_are_errors(self):
        for options, message in (
                ({"keep_best": "loss"}, "keep_best: expected valid=, and checkpoint=FILE"),
                ({"every": 2}, "every: expected valid="),
                ({"valid": (self.test, batches()), "every": 0}, "every: expected 1 or more, found 0"),
                ({"log": "x.txt"}, "log: x.txt: expected a function, a .jsonl"),
                ({"log": self.path("none/x.csv")}, "log: .*No such file"),
                ({"steps": -1}, "steps: expected 0 or more, found -1"),
                ({"epochs": 0}, "epochs: expected 1 or more, found 0"),
                ({"log_every": 2}, "log_every: expected log="),
                ({"valid": lambda _: {}}, "valid: expected that the function returns name -> number"),
                ({"valid": lambda _: {"a": 1}, "ema": True}, "ema: expected valid=.test program"),
                ({"valid": 3}, "valid: expected .test program, batches., or a function, found int"),
                ({"valid": lambda _: {"a": "b"}}, "function returns name -> number: could not conv"),
                ({"valid": (self.test, None)}, "an iterable of batches, found NoneType"),
                ({"checkpoint": 3}, "expected a path, found int"),
                ({"checkpoint": self.path("")}, "expected a file, found a folder"),
                ({"valid": (self.test, iter(batches())), "every": 1}, "can be gone through again")):
            with weft.Run(MAIN, STARTUP) as run, self.assertRaisesRegex(weft.Error, message):
                run.fit(batches(), **options)
        with weft.Run(MAIN, STARTUP) as run:
            for wrong, message in (
                    ([], "expected a batch, found none"), (batches()[0], "found one, name -> array"),
                    (FEEDS, "found a path; weft.batches reads files"), (None, "found NoneType"),
                    (3, "found int")):
                with self.assertRaisesRegex(weft.Error, "batches: .*" + message):
                    run.fit(wrong)
            pairs = [(batch["x"], batch["y"]) for batch in batches()]
            with self.assertRaisesRegex(weft.Error, "batch: expected 1 parts .xy., found 2"):
                run.fit(pairs, names="xy")
            with self.assertRaisesRegex(weft.Error, "can be gone through 2 times, found list_iterator"):
                run.fit(iter(batches()), epochs=2)
            self.assertEqual(run.next_step, 0)
            self.assertEqual(run.fit(pairs[:2], names=(name for name in "xy")).steps, 2)
            with self.assertWarnsRegex(weft.Warning, "steps 3: the batches ended after 2"):
                run.fit(batches()[:2], steps=3)
        with weft.Run(MAIN, STARTUP) as run, self.assertRaisesRegex(weft.Error, r"names=\[...\] names its"):
            run.fit([(1, 2)])


class BatchesTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)

    def path(self, name):
        return os.path.join(self._folder.name, name)

    def test_are_those_of_all_files(self):
        np.savez(self.path("a.npz"), **{"0/x": np.zeros(2), "10/x": np.ones(3), "9/x": np.full(1, 5)})
        np.savez(self.path("b.npz"), **{"0/x": np.full(2, 7)})
        paths = [self.path("a.npz"), self.path("b.npz")]
        found = [float(batch["x"][0]) for batch in weft.batches(paths)]
        self.assertEqual(found, [0, 5, 1, 7])
        shuffled = weft.batches(paths, shuffle=3)
        epochs = [[float(batch["x"][0]) for batch in shuffled] for _ in range(4)]
        self.assertTrue(all(sorted(epoch) == sorted(found) for epoch in epochs))
        self.assertGreater(len(set(map(tuple, epochs))), 1)
        again = weft.batches(paths, shuffle=3)
        self.assertEqual([[float(batch["x"][0]) for batch in again] for _ in range(4)], epochs)
        self.assertEqual(len(again), 4)

    def test_are_samples_of_arrays(self):
        x, y = np.arange(22, dtype="float32").reshape(11, 2), np.arange(11)
        np.savez(self.path("a.npz"), x=x[:4], y=y[:4])
        header = json.dumps({"x": {"dtype": "F32", "shape": [7, 2], "data_offsets": [0, 56]},
                             "y": {"dtype": "I64", "shape": [7], "data_offsets": [56, 112]}}).encode()
        with open(self.path("b.safetensors"), "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + x[4:].tobytes() +
                       y[4:].astype("int64").tobytes())
        paths = [self.path("a.npz"), self.path("b.safetensors")]
        found = list(weft.batches(paths, batch_size=4))
        self.assertEqual([len(batch["y"]) for batch in found], [4, 4, 3])
        np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in found]), x)
        self.assertEqual(len(weft.batches(paths, batch_size=4, drop_last=True)), 2)
        np.testing.assert_array_equal(
            np.concatenate([batch["y"] for batch in weft.batches(paths, 4, shuffle=False)]), y)
        shuffled = list(weft.batches(paths, batch_size=4, shuffle=0))
        order = np.concatenate([batch["y"] for batch in shuffled])
        self.assertEqual(sorted(order), list(y))
        self.assertNotEqual(list(order), list(y))
        np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in shuffled]), x[order])

    def test_wrong_calls_are_errors(self):
        np.savez(self.path("a.npz"), x=np.zeros(2))
        for options, message in (({"drop_last": True}, "drop_last: expected batch_size=N"),
                                 ({"drop_last": True, "batch_size": 3}, "batch of 3 samples, found 2"),
                                 ({"shuffle": True, "batch_size": 1}, "shuffle: expected a seed"),
                                 ({"shuffle": "a", "batch_size": 1}, "a number, found 'a'"),
                                 ({"batch_size": "4"}, "batch_size: expected 1 or more, found '4'"),
                                 ({"batch_size": 1.5}, "batch_size: expected 1 or more, found 1.5")):
            with self.assertRaisesRegex(weft.Error, message):
                weft.batches(self.path("a.npz"), **options)
        with self.assertRaisesRegex(weft.Error, "the path of a file, or several, found int"):
            weft.batches(3)
        self.assertEqual(repr(weft.batches(FEEDS)), "<weft.batches: 10 of %s>" % FEEDS)

    def test_damaged_files_are_errors(self):
        np.savez(self.path("a.npz"), x=np.zeros((100, 100)))
        with open(self.path("a.npz"), "rb") as file:
            data = file.read()
        np.save(self.path("one"), np.zeros(2))
        os.rename(self.path("one.npy"), self.path("one.npz"))
        np.savez(self.path("number.npz"), x=np.float32(1))
        header = b'{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}'
        for name, content in (("cut.npz", data[:len(data) // 2]), ("empty.npz", b""), ("one.npz", None),
                              ("wrong.npz", data[:4000] + b"wrong" + data[4005:]), ("number.npz", None),
                              ("list.safetensors", (2).to_bytes(8, "little") + b"[]"),
                              ("short.safetensors", len(header).to_bytes(8, "little") + header + b"0" * 8),
                              ("entry.safetensors", (7).to_bytes(8, "little") + b'{"x":1}')):
            if content is not None:
                with open(self.path(name), "wb") as file:
                    file.write(content)
            with self.assertRaisesRegex(weft.Error, name + ": "):
                weft.batches(self.path(name), batch_size=1)

    def test_wrong_files_are_errors(self):
        np.savez(self.path("a.npz"), x=np.zeros(2), y=np.zeros(3))
        np.savez(self.path("b.npz"), x=np.zeros(2))
        for files, size, message in (
                ([self.path("a.npz")], None, "expected arrays named <step>/<variable>, found x"),
                ([self.path("a.npz")], 2, "as many samples in each array, found 2 of x, 3 of y"),
                ([self.path("b.npz")], 0, "batch_size: expected 1 or more"),
                ([self.path("c.npz")], 2, "c.npz: "),
                (["d.txt"], 2, "expected a .npz or .safetensors file"), ([], 2, "found none")):
            with self.assertRaisesRegex(weft.Error, message):
                weft.batches(files, batch_size=size)

    def test_files_need_numpy(self):
        np.savez(self.path("a.npz"), x=np.zeros(2))
        with unittest.mock.patch.dict(sys.modules, {"numpy": None}):
            with self.assertRaisesRegex(weft.Error, "a.npz: expected NumPy, .*pip install numpy"):
                weft.batches(self.path("a.npz"), batch_size=1)


class TurnsTest(unittest.TestCase):
    def test_runs_have_the_newest_values_of_common_variables(self):
        with weft.Run(MAIN, STARTUP, seed=1) as a, weft.Run(MAIN, STARTUP, seed=2) as b:
            turns = weft.Turns(a, b)
            begin = a.state_dict()
            found = [float(turns.step((a, b)[step % 2], batch)[0])
                     for step, batch in enumerate(batches())]
            state = turns.state_dict()
        with weft.Run(MAIN, STARTUP, params=begin) as one:
            expected = [float(one.step(batch)[0]) for batch in batches()]
            end = one.state_dict()
        self.assertEqual(found, expected)
        for name, value in end.items():
            np.testing.assert_array_equal(state[name], value)

    def test_runs_may_have_different_ranks(self):
        out = weft.transpile(MAIN, STARTUP, mode="grad_allreduce")
        with weft.Run(out, ranks=2) as a, weft.Run(MAIN, STARTUP, seed=2) as b:
            turns = weft.Turns(a, b)
            begin = a.state_dict()
            found = [float(turns.step((a, b)[step % 2], batch)[0])
                     for step, batch in enumerate(batches()[:4])]
        with weft.Run(MAIN, STARTUP, params=begin) as one:
            np.testing.assert_allclose(
                found, [float(one.step(batch)[0]) for batch in batches()[:4]], rtol=1e-5)

    def test_another_run_is_an_error(self):
        with weft.Run(MAIN, STARTUP) as a, weft.Run(MAIN, STARTUP) as b, weft.Run(MAIN, STARTUP) as c:
            with self.assertRaisesRegex(weft.Error, "expected one of its runs"):
                weft.Turns(a, b).step(c, batches()[0])
            with self.assertRaisesRegex(weft.Error, "two runs or more"):
                weft.Turns(a)


class TensorTest(unittest.TestCase):
    @staticmethod
    def tensor(name, values):
        """A weft.Tensor over a NumPy array, whose elements are the bits of type `name`."""
        array_ = _native.Array()
        keep = _tensor._set(array_, _tensor._BY_NAME[name], values.shape, values.ctypes.data, values)
        return weft.Tensor((keep, values), array_)

    def test_is_lent_or_copied_by_dlpack(self):
        values = np.arange(6, dtype="float32").reshape(2, 3)
        tensor = self.tensor("float32", values)
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        for copy_ in (None, False, True):
            # NumPy takes what has the method, and asks for no copy itself.
            taken = np.from_dlpack(Lender(tensor, copy_))
            self.assertEqual(taken.tolist(), values.tolist())
            address = taken.__array_interface__["data"][0]
            self.assertEqual(address == values.ctypes.data, not copy_)
            before = values[0, 0]
            values[0, 0] += 1
            self.assertEqual(taken[0, 0], before if copy_ else values[0, 0])
        lent = len(_tensor._lent)
        del taken
        self.assertEqual(len(_tensor._lent), lent - 1)  # the copy is gone
        tensor.__dlpack__(copy=True)  # nobody takes it
        self.assertEqual(len(_tensor._lent), lent - 1)
        with self.assertRaisesRegex(BufferError, "expected device type 1, the host, found 2"):
            tensor.__dlpack__(dl_device=(2, 0))

    def test_float_of_narrow_types_is_the_number(self):
        for name, bits, number in (
                ("bfloat16", 0x3f80, 1.0), ("bfloat16", 0xc020, -2.5), ("bfloat16", 0x0001, 2.0 ** -133),
                ("float16", 0x3c00, 1.0), ("float16", 0xc100, -2.5), ("float16", 0x0001, 2.0 ** -24)):
            self.assertEqual(float(self.tensor(name, np.array([[bits]], "uint16"))), number)
        for name, bits, number in (
                ("float8_e5m2", 0x3c, 1.0), ("float8_e5m2", 0xc1, -2.5), ("float8_e5m2", 0x01, 2.0 ** -16),
                ("float8_e4m3fn", 0x38, 1.0), ("float8_e4m3fn", 0xc2, -2.5),
                ("float8_e4m3fn", 0x01, 2.0 ** -9), ("float8_e4m3fn", 0x7e, 448.0)):
            self.assertEqual(float(self.tensor(name, np.array(bits, "uint8"))), number)
        for name, bits in (("bfloat16", 0x7fc0), ("float16", 0x7e00)):
            self.assertTrue(np.isnan(float(self.tensor(name, np.array(bits, "uint16")))))
        for name, bits in (("float8_e5m2", 0x7e), ("float8_e4m3fn", 0xff)):
            self.assertTrue(np.isnan(float(self.tensor(name, np.array(bits, "uint8")))))

    def test_equals_one_of_the_same_bits(self):
        with weft.Run(MAIN, STARTUP) as run:
            before = run.state_dict()
            self.assertEqual(run.state_dict(), before)
            run.step(batches()[0])
            self.assertNotEqual(run.state_dict(), before)
        values = np.zeros(2, "float32")
        tensor = self.tensor("float32", values)
        self.assertNotEqual(tensor, self.tensor("int32", values.astype("int32")))
        self.assertNotEqual(tensor, self.tensor("float32", np.zeros((1, 2), "float32")))
        self.assertEqual((tensor == values).tolist(), [True, True])

    def test_truth_is_that_of_one_element(self):
        self.assertFalse(self.tensor("float32", np.zeros((), "float32")))
        self.assertTrue(self.tensor("float32", np.ones((1, 1), "float32")))
        with self.assertRaisesRegex(TypeError, "expected one element"):
            bool(self.tensor("float32", np.zeros(2, "float32")))

    def test_keeps_its_type_as_an_argument(self):
        for name in ("bfloat16", "float8_e4m3fn", "float32"):
            values = np.zeros((2, 3), {"bfloat16": "uint16", "float32": "float32"}.get(name, "uint8"))
            found = _native.Array()
            _keep = _tensor.fill(found, self.tensor(name, values), "x")
            self.assertEqual((found.dtype, found.data), (_tensor._BY_NAME[name], values.ctypes.data))
        found = _native.Array()
        _keep = _tensor.fill(found, _tensor.Bits(np.zeros(3, "uint16"), "bfloat16"), "x")
        self.assertEqual(found.dtype, _tensor._BY_NAME["bfloat16"])

    def test_lists_are_those_of_numpy(self):
        for shape in ((), (0,), (3,), (2, 3), (2, 3, 0), (2, 0, 3), (0, 2, 3), (2, 3, 4), (2, 1, 0, 2)):
            for kind in ("float32", "int64", "complex64", "float16"):
                values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
                self.assertEqual(self.tensor(kind, values).tolist(), values.tolist(), (shape, kind))


class Paddle:
    """As much of a program of Paddle 2 as is asked."""

    def __init__(self, data):
        self.desc = self
        self._data = data

    def serialize_to_string(self):
        return self._data

    def global_block(self):
        return self


class Pinned:
    """A tensor that is said to be in pinned memory of the host."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return (3, 0)


class Value:
    """A variable of Paddle: a program has no number for it."""

    def __init__(self, shape):
        self.shape = shape  # a list in Paddle 3, a tuple in Paddle 2

    def item(self):
        return self

    def __float__(self):
        raise TypeError

    __index__ = __float__


class Lender:
    """What asks a tensor for a copy, or for none."""

    def __init__(self, tensor, copy_):
        self._tensor, self._copy = tensor, copy_

    def __dlpack__(self, **_):
        return self._tensor.__dlpack__(copy=self._copy)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


class Dlpack:
    """An array that has nothing but DLPack."""

    def __init__(self, value):
        self._value = value

    def __dlpack__(self, **options):
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._value.__dlpack_device__()


class PackageTest(unittest.TestCase):
    def test_help_has_every_option(self):
        for command, documented in (("transpile", weft.transpile), ("verify", weft.verify),
                                    ("stats", weft.stats), ("plan", weft.plan), ("run", weft.Run),
                                    ("eval", weft.evaluate)):
            for option in _options.options_of(command):
                self.assertIn("\n", documented.__doc__)
                self.assertRegex(documented.__doc__, r"\b%s_?: " % option.name)

    def test_attributes_have_types(self):
        classes = [one for one in vars(weft).values() if isinstance(one, type)]
        names = [(one, name) for one in classes
                 for name in (*vars(one).get("__slots__", ()), *getattr(one, "_fields", ()))
                 if not name.startswith("_")]
        self.assertIn((weft.Fetched, "name"), names)
        self.assertIn((weft.Finding, "op_type"), names)
        self.assertEqual([(one, name) for one, name in names
                          if name not in vars(one).get("__annotations__", {})], [])

    def test_functions_are_those_of_the_header(self):
        with open(SYMBOLS, encoding="utf-8") as file:
            self.assertEqual(sorted(_native._FUNCTIONS), file.read().split())

    def test_sources_are_python_3_8(self):
        folder = os.path.dirname(PACKAGE)
        names = [name for name in os.listdir(folder) if name.endswith(".py")]
        self.assertGreater(len(names), 5)
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                ast.parse(file.read(), name, feature_version=(3, 8))

    def test_nothing_heavy_is_imported(self):
        heavy = ("numpy", "paddle", "torch", "tqdm", "asyncio", "bisect", "dataclasses", "enum", "functools",
                 "hashlib", "html", "inspect", "json", "logging", "random", "re", "subprocess", "tempfile",
                 "threading", "typing", "weft.paddle", "weft._export_program", "zipfile")
        # Without site, which may import some of them.
        code = "import sys; import weft; print([name for name in %r if name in sys.modules])" % (heavy,)
        found = subprocess.run([sys.executable, "-S", "-c", code], check=True, stdout=subprocess.PIPE,
                               env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertEqual(found.stdout.decode().strip(), "[]")

    def test_a_missing_library_is_an_error_with_a_next_step(self):
        found = subprocess.run(
            [sys.executable, "-c", "import weft; weft.version()"], check=False, stderr=subprocess.PIPE,
            env=dict(os.environ, WEFT_C_LIBRARY="/nowhere/libweft_c.so",
                     PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertIn(b"WEFT_C_LIBRARY names another one", found.stderr)

    def test_statistics_and_plans_are_texts(self):
        self.assertIn("parameters", weft.stats(MAIN, batch=32))
        self.assertIn("by policy bytes", weft.plan(MAIN))
        self.assertRegex(weft.plan(MAIN)._repr_html_(), "^<pre>")  # pylint: disable=protected-access
        self.assertRegex(weft.version(), r"^\d+\.\d+")
        self.assertEqual(weft.__version__, weft.version())
        self.assertFalse(hasattr(weft, "versions"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
