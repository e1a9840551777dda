"""Runs with many batches: where they come from, validation, checkpoints and logs."""
from __future__ import annotations

import itertools
import os
import struct

from weft import _native, _options, _tensor
from weft import _program as programs
from weft._results import Note, warn

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from weft._run import Fetched, Run


def _error(message):
    return _native.Error(message, "INVALID_ARGUMENT")


# --- Batches --------------------------------------------------------------------------------------


class Batches:
    """Batches of files, as weft.batches makes them: every iteration is an epoch."""

    def __init__(self, files, batch_size, seed, drop_last):
        self._parts = [_open(path) for path in files]
        self._seed, self._epoch = seed, 0
        first = self._parts[0]
        if batch_size is None:
            self._items = [(part, step) for part in self._parts for step in part.steps()]
        else:
            counts = [part.num_samples() for part in self._parts]
            ends = list(itertools.accumulate(counts))
            self._offsets = [end - count for end, count in zip(ends, counts)]
            self._items = range(0, ends[-1], batch_size)
            if drop_last and ends[-1] % batch_size:
                self._items = self._items[:-1]
        for part in self._parts:
            if part.variables() != first.variables():
                raise _error("%s: expected arrays of %s, as in %s, found %s" % (
                    part.path, ", ".join(first.variables()), first.path,
                    ", ".join(part.variables())))
        self._batch_size = batch_size

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self):
        epoch, self._epoch = self._epoch, self._epoch + 1
        if self._batch_size is None:
            order = self._order(len(self._items), epoch)
            return (self._items[i][0].batch(self._items[i][1]) for i in order)
        total = self._offsets[-1] + self._parts[-1].num_samples()
        order = self._order(total, epoch)
        return (self._samples(order[begin:begin + self._batch_size]) for begin in self._items)

    def _order(self, count, epoch):
        import random  # pylint: disable=import-outside-toplevel

        order = list(range(count))
        if self._seed is not None:
            random.Random("%d/%d" % (self._seed, epoch)).shuffle(order)
        return order

    def _samples(self, numbers):
        import bisect  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel

        where = [bisect.bisect_right(self._offsets, number) - 1 for number in numbers]
        return {name: numpy.stack([self._parts[part].array(name)[number - self._offsets[part]]
                                   for part, number in zip(where, numbers)])
                for name in self._parts[0].variables()}


class _Npz:
    """Arrays of a .npz file, each read when it is first needed."""

    def __init__(self, path):
        import numpy  # pylint: disable=import-outside-toplevel
        try:
            self._file = numpy.load(path)
        except (OSError, ValueError) as error:
            raise _error("%s: %s" % (path, error)) from error
        self.path = path
        self.names = list(self._file.files)
        self._read = {}

    def read(self, name):
        return self._file[name]

    def _indexed(self):
        if all(name.partition("/")[0].isdigit() and "/" in name for name in self.names):
            return sorted({int(name.partition("/")[0]) for name in self.names})
        return None

    def steps(self):
        """The numbers of the batches."""
        steps = self._indexed()
        if not steps:
            raise _error("%s: expected arrays named <step>/<variable>, found %s; batch_size=N makes "
                         "batches of the samples of arrays" % (
                             self.path, self.names[0] if self.names else "none"))
        return steps

    def variables(self):
        """Sorted names."""
        if self._indexed() is None:
            return sorted(self.names)
        return sorted({name.partition("/")[2] for name in self.names})

    def batch(self, step):
        """Variable -> array."""
        prefix = "%d/" % step
        return {name[len(prefix):]: self.read(name) for name in self.names
                if name.startswith(prefix)}

    def array(self, name):
        """The samples of a variable."""
        if name not in self._read:
            self._read[name] = self.read(name)
        return self._read[name]

    def num_samples(self):
        """Of all arrays."""
        counts = {name: len(self.array(name)) for name in self.variables()}
        if len(set(counts.values())) != 1:
            raise _error("%s: expected as many samples in each array, found %s" % (
                self.path, ", ".join("%d of %s" % (n, name) for name, n in sorted(counts.items()))
                or "none"))
        return next(iter(counts.values()))


class _Safetensors(_Npz):
    """Arrays of a .safetensors file, in mapped memory."""

    def __init__(self, path):  # pylint: disable=super-init-not-called
        import json  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel
        try:
            self._bytes = numpy.memmap(path, dtype="u1", mode="r")
            size, = struct.unpack("<Q", self._bytes[:8].tobytes())
            self._header = json.loads(self._bytes[8:8 + size].tobytes())
        except (OSError, ValueError, struct.error) as error:
            raise _error("%s: %s" % (path, error)) from error
        self._header.pop("__metadata__", None)
        self._begin = 8 + size
        self.path = path
        self.names = sorted(self._header)
        self._read = {}

    _TYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
              "F16": "<f2", "F32": "<f4", "F64": "<f8", "U16": "<u2", "U32": "<u4", "U64": "<u8"}

    def read(self, name):
        entry = self._header[name]
        if entry["dtype"] not in self._TYPES:
            raise _error("%s: %s: NumPy has no element type %s" % (self.path, name, entry["dtype"]))
        begin, end = entry["data_offsets"]
        part = self._bytes[self._begin + begin:self._begin + end]
        return part.view(self._TYPES[entry["dtype"]]).reshape(entry["shape"])


def _open(path):
    path = os.fspath(path)
    if path.endswith(".npz"):
        return _Npz(path)
    if path.endswith(".safetensors"):
        return _Safetensors(path)
    raise _error("%s: expected a .npz or .safetensors file" % path)


def batches_of(files, batch_size, seed, drop_last):
    """weft.batches."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    if not files:
        raise _error("expected a file, found none")
    if batch_size is not None and batch_size < 1:
        raise _error("batch_size: expected 1 or more, found %s" % batch_size)
    return Batches(list(files), batch_size, seed, drop_last)


def named(batch, names):
    """A batch by name: tuples and lists take `names`."""
    if hasattr(batch, "keys"):
        return batch
    if names is None:
        raise _error("batch: expected name -> array, found %s; names=[...] names its parts" %
                     type(batch).__name__)
    if len(batch) != len(names):
        raise _error("batch: expected %d parts (%s), found %d" % (
            len(names), ", ".join(names), len(batch)))
    return dict(zip(names, batch))


# --- Evaluation -----------------------------------------------------------------------------------


class Evaluated(dict):
    """Metrics of a test program: name -> number.

    batches, samples   how many they are of
    """

    def __init__(self, text):
        import json  # pylint: disable=import-outside-toplevel
        data = json.loads(text)
        super().__init__({name: float("nan") if value is None else float(value)
                          for name, value in data["metrics"].items()})
        self.batches, self.samples = data["batches"], data["samples"]


class Evaluator:
    """A test program, which is evaluated again and again."""

    def __init__(self, program, startup, params, options):
        test, begin = programs.program(program, "test"), programs.program(startup, "startup")
        made = _options.make("eval", options)
        names, values, _kept = _tensor.fill_all(params)
        self._handle = _native.Handle(
            _native.new("weft_evaluation_new", made.value, programs.handle_of(test),
                        programs.handle_of(begin), names, values, len(params)), "weft_run_free")
        self._is_new = True

    def notes(self):
        """What is said of the program, since the last call."""
        raw = _native.POINTER(_native.Message)()
        count = _native.lib().weft_run_take_messages(self._handle.value, _native.byref(raw))
        return [Note.of(raw[i]) for i in range(count)]

    def restart(self, params):
        """Begins anew, with other values."""
        if not self._is_new:
            names, values, _kept = _tensor.fill_all(params)
            _native.check(_native.lib().weft_evaluation_restart(
                self._handle.value, names, values, len(params)))
        self._is_new = False

    def run(self, batches, names):
        """The metrics of the batches."""
        library = _native.lib()
        for batch in batches:
            feeds = named(batch, names)
            feed_names, values, _kept = _tensor.fill_all(feeds)
            _native.check(library.weft_run_step(self._handle.value, feed_names, values, len(feeds)))
        return Evaluated(_native.text("weft_evaluation_totals", self._handle.value))


def evaluate(program, batches, params, startup, names, options):
    """weft.evaluate."""
    if hasattr(params, "state_dict"):
        params = params.state_dict()
    evaluator = Evaluator(program, startup, dict(params or {}), options)
    warn(evaluator.notes(), stacklevel=3)
    return evaluator.run(batches, names)


# --- Logs -----------------------------------------------------------------------------------------


class _Jsonl:
    def __init__(self, path):
        import json  # pylint: disable=import-outside-toplevel
        self._dumps = json.dumps
        self._file = open(path, "w", encoding="utf-8")

    def __call__(self, step, numbers):
        self._file.write(self._dumps(dict(numbers, step=step)) + "\n")
        self._file.flush()

    def close(self):
        self._file.close()


class _Csv:
    """One line for each step, and none for validations, which have other columns."""

    def __init__(self, path):
        import csv  # pylint: disable=import-outside-toplevel
        self._file = open(path, "w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._names = None

    def __call__(self, step, numbers):
        if any(name.startswith("valid/") for name in numbers):
            return
        if self._names is None:
            self._names = list(numbers)
            self._writer.writerow(["step"] + self._names)
        self._writer.writerow([step] + [numbers[name] for name in self._names])
        self._file.flush()

    def close(self):
        self._file.close()


class _Board:
    def __init__(self, folder):
        try:
            from tensorboardX import SummaryWriter  # pylint: disable=import-outside-toplevel
        except ImportError:
            try:
                from torch.utils.tensorboard import SummaryWriter  # pylint: disable=import-outside-toplevel
            except ImportError as error:
                raise _native.Error(
                    "log: %s: files for TensorBoard need tensorboardX, or PyTorch with tensorboard; "
                    "pip install tensorboardX" % folder, "FAILED_PRECONDITION") from error
        self._writer = SummaryWriter(folder)

    def __call__(self, step, numbers):
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
        self._writer.flush()

    def close(self):
        self._writer.close()


def _logger(log):
    """(function of (step, numbers), function that ends it)."""
    if log is None:
        return None, lambda: None
    if callable(log):
        return log, lambda: None
    path = os.fspath(log)
    kinds = {".jsonl": _Jsonl, ".csv": _Csv, "": _Board}
    ending = os.path.splitext(path)[1]
    if ending not in kinds:
        raise _error("log: %s: expected a function, a .jsonl or .csv file, or a folder" % path)
    made = kinds[ending](path)
    return made, made.close


class _Bar:
    """A progress bar: tqdm's, or a line on standard error."""

    def __init__(self, total):
        try:
            import tqdm  # pylint: disable=import-outside-toplevel
            self._bar = tqdm.tqdm(total=total)
        except ImportError:
            self._bar = None
        self._done, self._total = 0, total

    def step(self, what):
        self._done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update()
            return
        import sys  # pylint: disable=import-outside-toplevel
        of = "" if self._total is None else "/%d" % self._total
        sys.stderr.write("\rstep %d%s  %s\x1b[K" % (self._done, of, what))

    def close(self):
        if self._bar is not None:
            self._bar.close()
        elif self._done:
            import sys  # pylint: disable=import-outside-toplevel
            sys.stderr.write("\n")


# --- Fit ------------------------------------------------------------------------------------------


class Fitted:
    """What Run.fit has done.

    steps       how many steps
    losses      name -> number, of the last step
    valid       [(number of steps done, name -> number)], of the validations
    best        that of keep_best, or None
    """

    steps: int
    losses: Dict[str, float]
    valid: List[Tuple[int, Dict[str, float]]]
    best: Optional[Tuple[int, Dict[str, float]]]

    def __init__(self):
        self.steps, self.losses, self.valid, self.best = 0, {}, [], None

    def __repr__(self):
        numbers = ", ".join("%s %.7g" % one for one in self.losses.items())
        return "<weft.Fitted: %d steps%s%s>" % (self.steps, ": " if numbers else "", numbers)


class _Best:
    def __init__(self, choice):
        self.choice, self._best = choice, None
        self._is_max = choice.startswith("max:")
        self._name = choice[4:] if self._is_max else choice

    def add(self, numbers):
        """Whether these are the best so far."""
        name = self._name
        if name == "loss" and name not in numbers:
            name = next(iter(numbers))
        if name not in numbers:
            raise _error("keep_best %s: expected loss, or one of the metrics %s" % (
                self.choice, ", ".join(numbers)))
        value = numbers[name]
        is_best = value == value and (self._best is None or (
            value > self._best if self._is_max else value < self._best))
        if is_best:
            self._best = value
        return is_best


def _validation(valid, names, ema):
    """A function that takes the run."""
    if callable(valid):
        return valid
    program, batches = valid
    made = []

    def validate(run):
        state = run.state_dict()
        if not made:
            made.append(Evaluator(program, None, state, {"ema": True} if ema else {}))
            warn(made[0].notes(), stacklevel=5)
        made[0].restart(state)
        try:
            return made[0].run(batches, names)
        except _native.Error as error:
            if error.code == "FAILED_PRECONDITION" and iter(batches) is batches:
                raise _error("valid: expected batches that can be gone through again, found %s" %
                             type(batches).__name__) from error
            raise
    return validate


def _all(batches, epochs):
    for epoch in range(epochs):
        if epoch and iter(batches) is batches:
            raise _error("batches: expected some that can be gone through %d times, found %s" % (
                epochs, type(batches).__name__))
        yield from batches


def fit(run, batches, *, names=None, steps=None, epochs=1, valid=None, every=None, ema=False,
        checkpoint=None, save_every=None, keep_best=None, log=None, log_every=1, progress=False):
    """weft.Run.fit."""
    # pylint: disable=too-many-locals
    if keep_best is not None and (checkpoint is None or valid is None):
        raise _error("keep_best: expected valid=, and checkpoint=FILE, beside which it keeps "
                     "FILE.best")
    if (every is not None or ema) and valid is None:
        raise _error("%s: expected valid=" % ("every" if every is not None else "ema"))
    if save_every is not None and checkpoint is None:
        raise _error("save_every: expected checkpoint=FILE")
    for name, number in (("every", every), ("save_every", save_every), ("log_every", log_every)):
        if number is not None and number < 1:
            raise _error("%s: expected 1 or more, found %s" % (name, number))
    validate = None if valid is None else _validation(valid, names, ema)
    best = None if keep_best is None else _Best(keep_best)
    write, end = _logger(log)
    total = steps
    if total is None and hasattr(batches, "__len__"):
        total = len(batches) * epochs
    bar = _Bar(total) if progress else None
    fitted = Fitted()
    validated = None

    def check(step):
        numbers = dict(validate(run))
        fitted.valid.append((step, numbers))
        if write is not None:
            write(step - 1, {"valid/" + name: number for name, number in numbers.items()})
        if best is not None and best.add(numbers):
            fitted.best = step, numbers
            run.checkpoint(os.fspath(checkpoint) + ".best")

    try:
        source = _all(batches, epochs)
        for batch in source if steps is None else itertools.islice(source, steps):
            fetched = run.step(named(batch, names))
            fitted.steps += 1
            fitted.losses = {one.name: float(one) for one in fetched}
            done = run.next_step
            if write is not None and (done - 1) % log_every == 0:
                write(done - 1, fitted.losses)
            if bar is not None:
                bar.step(", ".join("%s %.5g" % one for one in fitted.losses.items()))
            if every is not None and done % every == 0:
                check(done)
                validated = done
            if save_every is not None and done % save_every == 0:
                run.checkpoint(checkpoint)
        if validate is not None and validated != run.next_step:
            check(run.next_step)
    except KeyboardInterrupt:
        if checkpoint is not None:
            run.checkpoint(checkpoint)
        raise
    finally:
        end()
        if bar is not None:
            bar.close()
    if checkpoint is not None and not (save_every and run.next_step % save_every == 0):
        run.checkpoint(checkpoint)
    return fitted


class Turns:
    """Runs that train in turn, with common variables: the two programs of a GAN.

        with weft.Run(d) as critic, weft.Run(g) as maker:
            turns = weft.Turns(critic, maker)
            for real, noise in batches:
                turns.step(critic, {"real": real, "noise": noise})
                turns.step(maker, {"noise": noise})

    Before a step of a run, it gets the values that the run before has left of the variables that
    both have; the others are its own. Common variables begin as the first run has them. This copies
    the state of a run at each turn.
    """

    def __init__(self, *runs):
        if len(runs) < 2:
            raise _error("Turns: expected two runs or more, found %d" % len(runs))
        self._runs = runs
        self._names = [set(run.state_dict()) for run in runs]
        self._last = 0

    def _give(self, to):
        """Gives a run the newest values."""
        if self._last == to:
            return
        state = self._runs[self._last].state_dict()
        for i, run in enumerate(self._runs):
            common = {name: value for name, value in state.items() if name in self._names[i]}
            if i != self._last and common:
                run.load_state_dict(common, strict=False)
        self._last = to

    def step(self, run: Run, feeds: Optional[Mapping[str, Any]] = None) -> List[Fetched]:
        """A step of one of the runs; returns what Run.step does."""
        index = next((i for i, one in enumerate(self._runs) if one is run), None)
        if index is None:
            raise _error("Turns: expected one of its runs, found %r" % run)
        self._give(index)
        return run.step(feeds)

    def state_dict(self) -> Dict[str, Any]:
        """Parameters and state of all runs."""
        self._give((self._last + 1) % len(self._runs))
        state = {}
        for run in self._runs:
            state.update(run.state_dict())
        return state
