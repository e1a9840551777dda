#!/usr/bin/env python3
"""What export_program.py does without Paddle: files that weft run takes, checks, schedules.

usage: export_program_test.py WEFT DIRECTORY

DIRECTORY holds main.pb and startup.pb of the model fit_a_line.
"""
import array
import collections
import math
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile

import export_program

WEFT, MODEL = sys.argv[1], sys.argv[2]


class Floats:
    """As much of a NumPy array as the files need."""

    dtype = collections.namedtuple("DType", "str name")("<f4", "float32")

    def __init__(self, *shape):
        self.shape = shape
        self.values = array.array("f", (math.sin(i) for i in range(math.prod(shape))))

    def tobytes(self):
        return self.values.tobytes()


def weft_run(*args):
    return subprocess.run([WEFT, "run", os.path.join(MODEL, "main.pb"), "--startup",
                           os.path.join(MODEL, "startup.pb"), *args],
                          check=True, capture_output=True, text=True).stdout


class FilesTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = lambda name: os.path.join(directory.name, name)

    def test_weft_reads_feeds(self):
        export_program.write_npz(self.path("feeds.npz"), {
            "0/x": Floats(4, 13), "0/y": Floats(4, 1), "1/x": Floats(2, 13), "1/y": Floats(2, 1)})
        out = weft_run("--feeds", self.path("feeds.npz"))
        self.assertIn("2 steps on 1 rank", out)

    def test_weft_reads_parameters_in_both_formats(self):
        state = {"fc_0.w_0": Floats(13, 1), "fc_0.b_0": Floats(1), "learning_rate_0": Floats()}
        export_program.write_npz(self.path("in.npz"), state)
        export_program.write_combine(self.path("in.combine"),
                                     {name: (5, value) for name, value in state.items()})
        export_program.write_file(self.path("in.names"), "\n".join(sorted(state)).encode())
        for number, params in enumerate([
                ["--params", self.path("in.npz")],
                ["--params", self.path("in.combine"), "--params_names", self.path("in.names")]]):
            saved = self.path("%d.npz" % number)
            export_program.write_npz(self.path("feeds.npz"),
                                     {"0/x": Floats(4, 13), "0/y": Floats(4, 1)})
            weft_run(*params, "--feeds", self.path("feeds.npz"), "--steps", "0", "--save", saved)
            with zipfile.ZipFile(saved) as archive:
                for name, value in state.items():
                    self.assertEqual(archive.read(name + ".npy"), export_program.npy_bytes(value))

    def test_equal_arrays_are_equal_files_and_nothing_else_is_left(self):
        for name in ("a.npz", "b.npz"):
            export_program.write_npz(self.path(name), {"v": Floats(3)})
        with open(self.path("a.npz"), "rb") as a, open(self.path("b.npz"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.assertEqual(sorted(os.listdir(self.path(""))), ["a.npz", "b.npz"])

    def test_failed_write_keeps_what_was_there(self):
        export_program.write_file(self.path("f"), b"old")
        with self.assertRaises(AttributeError):
            export_program.write_npz(self.path("f"), {"v": 1})
        with open(self.path("f"), "rb") as file:
            self.assertEqual(file.read(), b"old")
        self.assertEqual(os.listdir(self.path("")), ["f"])


class FeedsTest(unittest.TestCase):
    def check(self, message, function, *args):
        with self.assertRaises(ValueError) as caught:
            function(*args)
        self.assertEqual(str(caught.exception), message)

    def test_shapes_and_types(self):
        export_program.check_feed(0, "x", "float32", (7, 13), "float32", (-1, 13))
        self.check("step 2: feed x: expected float32[-1, 13], found float64[7, 13]",
                   export_program.check_feed, 2, "x", "float64", (7, 13), "float32", (-1, 13))
        self.check("step 2: feed x: expected float32[-1, 13], found float32[7]",
                   export_program.check_feed, 2, "x", "float32", (7,), "float32", (-1, 13))

    def test_names(self):
        export_program.check_feed_names([{"x": 0, "lr": 0}, {"x": 0, "lr": 0}], ["x"])
        self.check("step 0: feed y: missing", export_program.check_feed_names, [{"x": 0}],
                   ["x", "y"])
        self.check("step 1: feed y: missing", export_program.check_feed_names,
                   [{"x": 0, "y": 0}, {"x": 0}], ["x"])
        self.check("step 1: feed z: step 0 does not have it", export_program.check_feed_names,
                   [{"x": 0}, {"x": 0, "z": 0}], ["x"])

    def test_tensors_of_sequences(self):
        def tensor(lengths):
            return type("LoDTensor", (), {"recursive_sequence_lengths": lambda self: lengths})()
        export_program.check_has_no_lengths(1, "x", tensor([]))
        export_program.check_has_no_lengths(1, "x", [1.0, 2.0])
        self.check("step 1: feed x: expected an array, found a LoDTensor of sequences of lengths "
                   "[[2, 3]]; pad the sequences", export_program.check_has_no_lengths, 1, "x",
                   tensor([[2, 3]]))


class ScheduleTest(unittest.TestCase):
    @staticmethod
    def scheduler(class_name, **attributes):
        return type(class_name, (), attributes)()

    def test_options_are_those_of_weft_run(self):
        cosine = self.scheduler("CosineAnnealingDecay", base_lr=0.5, T_max=10, eta_min=0.0)
        self.assertEqual(export_program.lr_schedule(cosine),
                         "cosine{learning_rate=0.5,T_max=10,eta_min=0.0}")
        steps = self.scheduler("PiecewiseDecay", boundaries=[3, 7], values=[0.1, 0.05, 0.01])
        self.assertEqual(export_program.lr_schedule(steps),
                         "piecewise{boundaries=3:7,values=0.1:0.05:0.01}")
        warm_up = {"warmup_steps": 5, "start_lr": 0.0, "end_lr": 0.5}
        self.assertEqual(
            export_program.lr_schedule(
                self.scheduler("LinearWarmup", learning_rate=cosine, **warm_up)),
            "linear_warmup{warmup_steps=5,start_lr=0.0,end_lr=0.5},"
            "cosine{learning_rate=0.5,T_max=10,eta_min=0.0}")
        self.assertEqual(
            export_program.lr_schedule(
                self.scheduler("LinearWarmup", learning_rate=0.2, **warm_up)),
            "linear_warmup{warmup_steps=5,start_lr=0.0,end_lr=0.5,learning_rate=0.2}")

    def test_cycles_have_their_mode_unless_a_function_scales_them(self):
        def cyclic(scale):
            return self.scheduler("CyclicLR", base_lr=0.1, max_lr=0.5, cycle_size=8.0,
                                  step_up_pct=0.375, mode="triangular", gamma=1.0,
                                  scale_fn=staticmethod(scale), __call__=lambda self: 0.25,
                                  step=lambda self: None)

        def _triangular_scale_fn(_):
            return 1.0

        self.assertEqual(export_program.lr_schedule(cyclic(_triangular_scale_fn)),
                         "cyclic{base_learning_rate=0.1,max_learning_rate=0.5,step_size_up=3,"
                         "step_size_down=5,mode=triangular,exp_gamma=1.0}")
        self.assertEqual(export_program.lr_schedule(cyclic(lambda cycle: 1 / cycle), 2),
                         "table{values=0.25:0.25}")

    def test_numbers_of_numpy_are_written_as_numbers(self):
        class Of(float):
            """As np.float64 of NumPy 2 and an array: their repr names the type."""

            def __repr__(self):
                return "np.float64(%s)" % float(self)

            def tolist(self):
                return float(self)

        steps = self.scheduler("PiecewiseDecay", boundaries=[3], values=[Of(0.1), Of(0.05)])
        self.assertEqual(export_program.lr_schedule(steps),
                         "piecewise{boundaries=3,values=0.1:0.05}")

    def test_training_goes_on_where_it_stands(self):
        decay = self.scheduler("ExponentialDecay", base_lr=0.5, gamma=0.9, last_epoch=100)
        self.assertEqual(export_program.lr_schedule(decay),
                         "start_at{step=100},exponential{learning_rate=0.5,gamma=0.9}")

    def test_python_functions_become_tables(self):
        class Doubling:  # pylint: disable=too-few-public-methods
            rate = 0.5

            def __call__(self):
                return self.rate

            def step(self):
                if self.rate == 4:
                    raise ValueError("the end")
                self.rate *= 2

        scheduler = Doubling()
        self.assertEqual(export_program.lr_schedule(scheduler, 3), "table{values=0.5:1.0:2.0}")
        self.assertEqual(export_program.lr_schedule(scheduler), "table{values=0.5:1.0:2.0:4.0}")
        self.assertEqual(scheduler.rate, 0.5)

    def test_rates_that_depend_on_losses_take_the_steps_between_two_looks(self):
        scheduler = self.scheduler(
            "ReduceOnPlateau", last_lr=0.05, mode="min", factor=0.5, patience=3, threshold=0.01,
            threshold_mode="rel", cooldown=2, min_lr=0.001, epsilon=1e-08, best=None,
            num_bad_epochs=0, cooldown_counter=0)
        with self.assertRaisesRegex(ValueError, "ReduceOnPlateau: .* expected plateau_steps=N"):
            export_program.lr_schedule(scheduler)
        text = ("reduce_on_plateau{learning_rate=0.05,every=100,mode=min,factor=0.5,patience=3,"
                "threshold=0.01,threshold_mode=rel,cooldown=2,min_lr=0.001,epsilon=1e-08,%s"
                "num_bad=%d,cooldown_left=%d}")
        self.assertEqual(export_program.lr_schedule(scheduler, plateau_steps=100),
                         text % ("", 0, 0))
        scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter = 1.25, 2, 1
        self.assertEqual(export_program.lr_schedule(scheduler, plateau_steps=100),
                         text % ("best=1.25,", 2, 1))
        for wrong in (0, True, 2.0, "2"):
            with self.assertRaisesRegex(ValueError, "plateau_steps: expected a number of steps"):
                export_program.lr_schedule(scheduler, plateau_steps=wrong)

    def test_steps_between_two_looks_are_of_such_rates_alone(self):
        program = collections.namedtuple("Program", "desc lr_scheduler")
        for scheduler, found in ((None, "no scheduler"), (self.scheduler("StepDecay"), "StepDecay")):
            with self.assertRaisesRegex(ValueError, "plateau_steps: expected a program .* "
                                                    "ReduceOnPlateau, found " + found):
                export_program.program_bytes(program(None, scheduler), plateau_steps=2)


class JsonTest(unittest.TestCase):
    """Paddle 3's own format."""

    def note(self, name):
        parameter = '{"#":"p","A":[0,1,0,"rate"],"DA":[],"O":{"%":2,"TT":{}},"OA":[1,1,1],"QA":[]}'
        text = ('{"program":{"regions":[{"blocks":[{"ops":[' + parameter +
                ',{"#":"1.exp","A":[],"I":[{"%":1}]},{"#":"1.sgd_","A":[@],"I":[{"%":1},{"%":2}]},'
                '{"#":"1.sgd_","A":[],"I":[{"%":3},{"%":2}]}]}]}]}}')
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "main.json")
            export_program.write_file(path, text.replace("@", "").encode())
            is_noted = export_program._note_in_json(path, name, "step{gamma=0.1}")
            with open(path, encoding="utf-8") as file:
                return is_noted, file.read(), text

    def test_the_first_reader_of_a_rate_has_its_schedule(self):
        is_noted, found, text = self.note("rate")
        self.assertTrue(is_noted)
        self.assertEqual(found, text.replace("@", '{"AT":{"#":"0.a_str","D":"rate=step{gamma=0.1}"},'
                                                  '"N":"lr_schedule"}'))

    def test_a_rate_that_is_no_parameter_is_not_noted(self):
        is_noted, found, text = self.note("another")
        self.assertFalse(is_noted)
        self.assertEqual(found, text.replace("@", ""))


    def test_a_version_that_weft_does_not_read_is_warned_of(self):
        class Pir:
            global_block = None

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "main.json")

            def say(version):
                export_program.write_file(
                    path, b'{"base_code":{"magic":"pir","trainable":true,"version":%d},"program":{}}'
                    % version)
                export_program._say_what_is_written(Pir(), path, directory, ["main"], [])

            with self.assertWarnsRegex(UserWarning, "has version 5 of Paddle 3's format"):
                say(5)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                say(1)
                say(4)


class ProgramTest(unittest.TestCase):
    def test_what_is_no_program_is_refused(self):
        with self.assertRaisesRegex(ValueError, r"main: expected a static program "
                                    r"\(paddle.static.Program\), found builtins.object"):
            export_program.export("unused", object(), object())
        # Only a test program may be missing.
        program = type("Program", (), {"desc": None})()
        with self.assertRaisesRegex(ValueError, "startup: expected a static program .*, found None"):
            export_program.export("unused", program, None)

    def test_gradients_of_loops_and_branches_of_pir_are_refused(self):
        class Op:
            def __init__(self, name, *blocks):
                self.name, self.blocks = lambda: name, lambda: blocks

        class Block:
            def __init__(self, *ops):
                self.ops = ops

        def export(op):
            program = type("Pir", (), {"global_block": lambda self: Block(op)})()
            export_program.export("unused", program, None)

        gradient = Block(Op("cf.tuple_pop"), Op("cf.yield"))
        with self.assertRaisesRegex(ValueError, "main: pd_op.while computes a gradient, .*"
                                    "FLAGS_enable_pir_api=0"):
            export(Op("pd_op.while", gradient))
        with self.assertRaisesRegex(ValueError, "main: pd_op.if computes a gradient, .*paddle.where"):
            export(Op("pd_op.while", Block(Op("pd_op.if", Block(Op("cf.yield")), gradient))))
        # The forward pass can be saved.
        with self.assertRaisesRegex(ValueError, "startup: expected a static program"):
            export(Op("pd_op.while", Block(Op("cf.yield"))))

    def test_element_types_have_the_names_of_numpy(self):
        for found, expected in (("paddle.float32", "float32"), ("VarType.FP32", "float32"),
                                ("VarType.BF16", "bfloat16"), ("paddle.int64", "int64")):
            self.assertEqual(export_program.dtype_name(found), expected)

    def test_parameters_of_another_type_than_declared_are_refused(self):
        export_program.check_param("w", "float16", "float16")
        with self.assertRaisesRegex(ValueError, "params: variable w: the program declares float16, "
                                    r"but the scope holds float32; .* optimizer.amp_init\(place\)"):
            export_program.check_param("w", "float32", "float16")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
