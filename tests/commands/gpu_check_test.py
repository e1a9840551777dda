#!/usr/bin/env python3
"""scripts/gpu_check.py on fakes of its programs, and on the CPU.

usage: gpu_check_test.py SCRIPT WEFT TRANSPILE ARCHIVE...
"""
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
SCRIPT, WEFT, TRANSPILE, *ARCHIVES = [os.path.realpath(path) for path in sys.argv[1:]]
del sys.argv[1:]
sys.path.insert(0, os.path.abspath(os.path.dirname(SCRIPT)))
import gpu_check  # pylint: disable=wrong-import-position

# Trains at once, unless the file `faults` says what goes wrong: {program: what}.
FAKE_WEFT = """#!%s -SE
import json, os, sys, time
args = sys.argv[1:]
program = os.path.basename(os.path.dirname(args[1]))
here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
fault = json.load(open(here + "/faults")).get(program, "")
flag = lambda name, other="": args[args.index(name) + 1] if name in args else other
on_gpu = flag("--device") == "gpu"
if "bad_label" in flag("--feeds"):
    sys.exit("error: step 0, rank 0: op 8 (softmax_with_cross_entropy): 10 is not in [0, 10)"
             if fault != "silent" else "error: unspecified launch failure")
if fault == "fails" and on_gpu:
    sys.exit("weft run: error: op 3 (mul): broken")
if fault == "hangs" and on_gpu:
    open(here + "/pid", "w").write(str(os.getpid()))
    print("begun", flush=True)
    time.sleep(600)
if "--metrics" in args:
    with open(flag("--metrics"), "w") as file:
        for step in range(20):
            loss = 1 - step / 40
            if step == 7 and on_gpu:
                loss += {"differs": 0.009, "nan": float("nan")}.get(fault, 0)
            if fault == "graphs" and flag("--cuda_graph", "off") != "off":
                loss += 1e-7
            record = {"step": step, "rank": 0, "fetch": {"loss": [loss]}, "ms": 0.5}
            file.write(json.dumps(record) + "\\n")
if "--profile" in args:
    ops = [{"op": "op %%d (x)" %% i, "seconds": 0.001} for i in range(9)]
    json.dump({"ops": ops}, open(flag("--profile"), "w"))
""" % sys.executable
FAKE_TEST = "#!/bin/sh\necho '[  PASSED  ] 3 tests.'\n"
SOME_SKIPPED_TEST = FAKE_TEST + """echo '[  SKIPPED ] 2 tests, listed below:'
echo '[  SKIPPED ] NcclLibraryTest.InterfaceIsThatOfTheHeader'
echo '[  SKIPPED ] %s'
"""
SKIPPED_TEST = "#!/bin/sh\necho '[  PASSED  ] 0 tests.'\necho '[  SKIPPED ] 3 tests, listed below:'\n"
# PyTorch, which has one time when it is cut off.
FAKE_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
echo '{"precision": "bf16", "how": "compiled", "ms": 12.5}' > "$4"
sleep 600
"""
GPU = {"name": "NVIDIA H200", "driver_cuda": "13.0"}


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.json = self.path("out.json")
        for name in ("unpacked/bin", "unpacked/programs", "libs", "commands"):
            os.makedirs(self.path(name))
        self.write("unpacked/manifest.json", '{"cuda": "13", "build": "some"}')
        for name in ("libcublasLt.so.13", "libnccl.so.2"):
            self.write("libs/" + name, "")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def with_fakes(self, **faults):
        self.write("unpacked/bin/weft", FAKE_WEFT)
        self.write("unpacked/faults", json.dumps(faults))
        for test in gpu_check.TESTS:
            self.write("unpacked/bin/" + test, FAKE_TEST)
        self.write("commands/compute-sanitizer", "#!/bin/sh\necho '===== ERROR SUMMARY: 0 errors'\n")
        self.write("commands/python3", "#!/bin/sh\nexit 1\n")
        path = {"PATH": self.path("commands") + ":" + os.environ["PATH"]}
        for patch in (mock.patch.object(gpu_check, "find_gpu", lambda: GPU),
                      mock.patch.object(gpu_check, "library_folders", lambda: []),
                      mock.patch.dict(os.environ, path)):
            patch.start()
            self.addCleanup(patch.stop)

    def check(self, *flags, only=None, limits=None):
        """Runs the parts, or some; returns status, table and {part: result}. Waits for busy machines."""
        all_parts = gpu_check.parts

        def some_parts(device):
            for name, seconds, needed, function in all_parts(device):
                if only is None or name in only:
                    yield name, (limits or {}).get(name, seconds), needed, function

        argv = ["gpu_check.py", "--json", self.json, "--minutes", "90", *flags]
        with contextlib.redirect_stdout(io.StringIO()) as table, mock.patch.object(
                sys, "argv", argv), mock.patch.object(gpu_check, "parts", some_parts):
            status = gpu_check.main(self.folder)
        with open(self.json, encoding="utf-8") as file:
            self.report = json.load(file)
        return status, table.getvalue(), {p["part"]: p for p in self.report["parts"]}

    def libs(self):
        return ["--lib_dir", self.path("libs")]

    def test_all_parts_pass_and_are_listed(self):
        self.with_fakes()
        status, table, results = self.check(*self.libs())
        self.assertEqual(status, 0, table)
        skipped = {name for name, part in results.items() if part["result"] != "passed"}
        self.assertEqual(skipped, {"PyTorch resnet50", "PyTorch bert_base"}, table)
        self.assertIn("%d passed, 0 failed, 2 skipped" % (len(results) - 2), table)
        self.assertEqual(self.report["gpu"], GPU)
        self.assertEqual(results["test cuda_stream_test"]["passed"], 3)
        self.assertEqual(results["step bert_base bf16"]["ms"], 0.5)
        for name in results:
            self.assertIn(name, table)
        # 26 bits of floats, read and written in 1 ms, on a card of 4.8 TB/s.
        copy, adam = results["ops: memory"]["ops"][:2]
        self.assertAlmostEqual(copy["bytes_per_s"], 8 * 2**26 * 1e3)
        self.assertAlmostEqual(copy["share_of_peak"], 8 * 2**26 * 1e3 / 4.8e12)
        self.assertAlmostEqual(adam["share_of_copy"], 28 * 2**24 / (8 * 2**26))
        product = results["ops: products"]["ops"][2]
        self.assertAlmostEqual(product["share_of_peak"], 2 * 4096**3 * 1e3 / 989e12)

    def test_a_failing_part_leaves_the_rest_running(self):
        self.with_fakes(lenet_momentum="fails")
        status, _, results = self.check(*self.libs())
        self.assertEqual(status, 1)
        failed = {name for name, part in results.items() if part["result"] == "failed"}
        self.assertEqual(failed, {"losses lenet_momentum", "graphs lenet_momentum"})
        self.assertEqual(results["losses lenet_momentum"]["text"],
                         "weft run: error: op 3 (mul): broken")
        self.assertEqual(results["losses bert_tiny"]["result"], "passed")

    def test_a_hanging_part_is_cut_off(self):
        self.with_fakes(lenet_momentum="hangs")
        begun = time.monotonic()
        status, _, results = self.check(
            *self.libs(), only=["losses lenet_momentum", "NCCL, one rank"],
            limits={"losses lenet_momentum": 0.5})
        self.assertLess(time.monotonic() - begun, 60)
        self.assertEqual(status, 1)
        self.assertRegex(results["losses lenet_momentum"]["text"], "cut off after 5 s: begun")
        self.assertEqual(results["NCCL, one rank"]["result"], "passed")
        with open(self.path("unpacked/pid"), encoding="utf-8") as file:
            self.assertRaises(ProcessLookupError, os.kill, int(file.read()), 0)

    def test_no_part_starts_after_the_last_minute(self):
        self.with_fakes()
        status, _, results = self.check(*self.libs(), "--minutes", "0")
        self.assertEqual(status, 2)
        self.assertEqual({p["text"] for p in results.values()}, {"no time left"})

    def test_a_part_that_the_time_of_all_cuts_off_is_skipped(self):
        self.with_fakes(lenet_momentum="hangs")
        status, _, results = self.check(
            *self.libs(), "--minutes", "0.05", only=["losses lenet_momentum"],
            limits={"losses lenet_momentum": 5400})
        self.assertEqual((status, results["losses lenet_momentum"]["text"]), (2, "no time left"))

    def test_a_part_without_its_library_is_skipped(self):
        self.with_fakes()
        os.remove(self.path("libs/libnccl.so.2"))
        status, table, results = self.check(*self.libs())
        self.assertEqual(status, 0)
        self.assertEqual(results["NCCL, one rank"]["text"], "no NCCL")
        self.assertEqual(results["test nccl_communicator_test"]["text"], "no NCCL")
        self.assertEqual(results["ops: products"]["result"], "passed")
        self.assertIn("NCCL missing", table)
        # cuBLASLt of another toolkit is none.
        os.rename(self.path("libs/libcublasLt.so.13"), self.path("libs/libcublasLt.so.12"))
        _, _, results = self.check(*self.libs(), only=["losses mlp_adam", "ops: memory"])
        self.assertEqual(results["losses mlp_adam"]["text"], "no cuBLASLt")
        self.assertEqual(results["ops: memory"]["result"], "passed")

    def test_libraries_are_found_in_the_wheels_of_pytorch(self):
        os.makedirs(self.path("site/nvidia/nccl/lib"))
        wheel = self.path("site/nvidia/nccl/lib/libnccl.so.2")
        self.write("site/nvidia/nccl/lib/libnccl.so.2", "")
        with mock.patch.dict(os.environ, {"CUDA_HOME": "", "CUDA_PATH": ""}), mock.patch.object(
                gpu_check.glob, "glob", lambda p, glob=gpu_check.glob.glob: glob(p) if p.startswith(
                    self.folder) else []), mock.patch.object(sys, "path", [self.path("site")]):
            self.assertEqual(gpu_check.find_libraries(None, "13").get("NCCL"), wheel)
            other = gpu_check.find_libraries(self.path("libs"), "13")["NCCL"]
            self.assertEqual(other, self.path("libs/libnccl.so.2"))  # --lib_dir comes first

    def test_losses_that_differ_fail(self):
        self.with_fakes(mlp_adam="differs", bert_tiny="nan", resnet18_cifar="differs")
        status, _, results = self.check(*self.libs(), only=[
            "losses mlp_adam", "losses bert_tiny", "losses resnet18_cifar"])
        self.assertEqual(status, 1)
        self.assertRegex(results["losses mlp_adam"]["text"],
                         r"step 7: loss 0\.834, the CPU's is 0\.825; expected .* at most 0\.0001")
        self.assertRegex(results["losses bert_tiny"]["text"], "step 7: loss nan")
        self.assertEqual(results["losses resnet18_cifar"]["result"], "passed")  # at most 0.01

    def test_graphs_that_change_bits_fail(self):
        self.with_fakes(mlp_adam="graphs")
        _, _, results = self.check(*self.libs(), only=["graphs mlp_adam", "graphs lenet_momentum"])
        self.assertEqual(results["graphs mlp_adam"]["text"],
                         "--cuda_graph auto: the losses are not those of off")
        self.assertEqual(results["graphs lenet_momentum"]["result"], "passed")

    def test_an_error_that_does_not_say_where_fails(self):
        self.with_fakes(mlp_adam="silent")
        _, _, results = self.check(*self.libs(), only=["bad label"])
        self.assertRegex(results["bad label"]["text"], "names no rank, op and label: .*launch failure")

    def test_a_test_that_skips_all_fails(self):
        self.with_fakes()
        self.write("unpacked/bin/cuda_stream_test", SKIPPED_TEST)
        status, _, results = self.check(*self.libs(), only=["test cuda_stream_test"])
        self.assertEqual((status, results["test cuda_stream_test"]["text"]),
                         (1, "all 3 tests skipped themselves"))

    def test_a_test_that_skips_some_on_the_gpu_fails(self):
        self.with_fakes()
        part = "test nccl_communicator_test"
        for name, expected in (("NcclLibraryTest.InterfaceIsThatOfTheHeader", "3 passed, 2 skipped"),
                               ("Nccl/Ranks.Reduce/0 (1 ms)", "skipped on this GPU: Nccl/Ranks.Reduce/0")):
            self.write("unpacked/bin/nccl_communicator_test", SOME_SKIPPED_TEST % name)
            _, _, results = self.check(*self.libs(), only=[part])
            self.assertEqual(results[part]["text"], expected)

    def test_the_sanitizer_has_to_say_that_there_are_no_errors(self):
        self.with_fakes()
        for said in ("===== ERROR SUMMARY: 10 errors", ""):
            self.write("commands/compute-sanitizer", "#!/bin/sh\necho '%s'\n" % said)
            _, _, results = self.check(*self.libs(), only=["compute-sanitizer"])
            self.assertEqual((results["compute-sanitizer"]["result"],
                              results["compute-sanitizer"]["text"]), ("failed", said or "no summary"))

    def test_pytorch_runs_without_what_is_packed(self):
        self.with_fakes()
        self.write("commands/python3", "#!/bin/sh\n"
                   '[ "$LD_LIBRARY_PATH" = /mine ] && [ "$1" != -c ] && echo broken\n'
                   '[ "$LD_LIBRARY_PATH" = /mine ] && [ "$1" = -c ]\n')
        with mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/mine"}):
            _, _, results = self.check(*self.libs(), only=["PyTorch resnet50"])
        self.assertEqual((results["PyTorch resnet50"]["result"], results["PyTorch resnet50"]["text"]),
                         ("failed", "broken"))

    def test_pytorch_without_a_time_when_cut_off_is_skipped(self):
        self.with_fakes()
        self.write("commands/python3", '#!/bin/sh\n[ "$1" = -c ] || sleep 600\n')
        _, _, results = self.check(*self.libs(), only=["PyTorch resnet50"],
                                   limits={"PyTorch resnet50": 0.1})
        self.assertEqual(results["PyTorch resnet50"]["result"], "skipped")
        self.assertRegex(results["PyTorch resnet50"]["text"], "cut off after 1 s")

    def test_times_of_pytorch_count_as_far_as_they_came(self):
        self.with_fakes()
        self.write("commands/python3", FAKE_PYTHON)
        status, _, results = self.check(*self.libs(), only=["PyTorch resnet50"],
                                        limits={"PyTorch resnet50": 0.5})
        self.assertEqual((status, results["PyTorch resnet50"]["text"]), (0, "bf16 compiled 12.50 ms"))

    def test_without_a_driver_or_files_there_is_nothing_to_check(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            with mock.patch.object(gpu_check.ctypes, "CDLL", side_effect=OSError("no libcuda.so.1")):
                self.assertRaisesRegex(SystemExit, "2", self.check)
            os.rename(self.path("unpacked"), self.path("other"))
            with mock.patch.object(sys, "argv", ["gpu_check.py"]):
                self.assertEqual(gpu_check.main(self.folder), 2)
        self.assertIn("error: no driver: no libcuda.so.1", errors.getvalue())
        self.assertIn("scripts/pack_gpu_check.sh FOLDER makes a folder", errors.getvalue())

    def test_the_cpu_passes_as_the_device(self):
        for archive in ARCHIVES:
            with tarfile.open(archive) as files:
                files.extractall(self.path("unpacked/programs"))
        os.symlink(WEFT, self.path("unpacked/bin/weft"))
        programs = self.path("unpacked/programs/")
        os.mkdir(programs + "mlp_adam_ranks")
        subprocess.run([TRANSPILE, programs + "mlp_adam/main.pb", programs + "mlp_adam_ranks/main.pb",
                        "--mode", "grad_allreduce", "--startup_in", programs + "mlp_adam/startup.pb",
                        "--startup_out", programs + "mlp_adam_ranks/startup.pb"], check=True)
        status, table, results = self.check("--device", "cpu", only=[
            "losses mlp_adam", "ranks 2 on one device", "AMP conv_amp_bf16", "bad label",
            "ops: memory", "ops: products", "ops: images, attention"])
        self.assertEqual(status, 0, table)
        self.assertEqual(len(results), 7)
        self.assertEqual(len(results["losses mlp_adam"]["losses"]), 20)
        timed = [op["name"] for name in results for op in results[name].get("ops", [])]
        self.assertEqual(timed, [
            "copy", "adam", "embedding", "embedding_grad", "product fp32", "product tf32",
            "product bf16", "convolution", "convolution_grad", "batch_norm", "batch_norm_grad",
            "attention"])


if __name__ == "__main__":
    unittest.main()
