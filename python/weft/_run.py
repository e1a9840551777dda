"""Runs."""
from __future__ import annotations

import os
from _thread import RLock
from ctypes import POINTER, byref, c_void_p

from weft import _native, _options, _tensor
from weft import _program as programs
from weft._results import Note, Transpiled, warn

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

    from typing_extensions import Self

    from weft._fit import Fitted


class Fetched(float):
    """What the ranks have of a variable after a step.

    As a number, it is what weft run prints: the mean over the ranks, or the sum if ranks have
    partial sums; of a tensor with several elements, of their means. `ranks` are the tensors, by
    rank.
    """

    __slots__ = ("name", "_arrays", "_first", "_count")

    name: str

    def __new__(cls, number, name, arrays, first, count):  # pylint: disable=too-many-arguments
        made = float.__new__(cls, number)
        made.name = name
        made._arrays, made._first, made._count = arrays, first, count
        return made

    def __reduce__(self):
        return float, (float(self),)

    @property
    def ranks(self) -> List[_tensor.Tensor]:
        """A Tensor for each rank. They keep their values. Of a sparse gradient, its rows."""
        get = _native.lib().weft_arrays_get
        return [_tensor.Tensor(self._arrays, get(self._arrays.value, self._first + rank))
                for rank in range(self._count)]

    @property
    def rows(self) -> Optional[List[_tensor.Tensor]]:
        """Of a sparse gradient, the indices of its rows: a Tensor for each rank. Else None."""
        library, arrays = _native.lib(), self._arrays.value
        name = self.name.encode() + b"/rows"
        found = [_tensor.Tensor(self._arrays, library.weft_arrays_get(arrays, i))
                 for i in range(library.weft_arrays_count(arrays))
                 if library.weft_arrays_name(arrays, i) == name]
        return found or None

    def numpy(self) -> Any:
        """Of a run on one rank, its tensor as a NumPy array; of others, use `ranks`."""
        if self._count != 1:
            raise _native.Error("%s: %d ranks have a tensor each: expected .ranks[i].numpy()" % (
                self.name, self._count), "FAILED_PRECONDITION")
        return self.ranks[0].numpy()

    def __repr__(self):
        return "<%s %.7g>" % (self.name, self)

    __str__ = float.__repr__


class Run:  # pylint: disable=too-many-instance-attributes
    __slots__ = ("_notes", "_said", "_handle", "_inputs", "_in_step", "_fetch", "_main", "_startup",
                 "_known", "_bar", "_lock", "_order", "_ranks")

    def _begin(self, main, startup, params, progress, options):  # pylint: disable=too-many-arguments
        if isinstance(main, Transpiled):
            startup = main.startup if startup is None else startup
            main = main.main
        self._main = programs.program(main, "main")
        self._startup = programs.optional(startup, "startup")
        self._lock = RLock()  # a signal's handler may come between
        self._notes = []
        self._said = POINTER(_native.Message)()
        self._inputs = None  # of the first step: names, the same for C, type of a batch
        self._in_step = False
        self._known = None
        self._bar = None
        self._order = None
        arrays = params if params is not None and not isinstance(params, (str, os.PathLike)) else {}
        if not hasattr(arrays, "items"):
            raise _native.no_names("params", params, ", or a path", "; its .state_dict() has them"
                                   if hasattr(params, "state_dict") else "")
        if not arrays and params is not None:
            options["params"] = params
        made = _options.make("run", options)
        names, values, _kept = _tensor.fill_all(arrays)
        self._handle = _native.Handle(
            _native.new("weft_run_new", made.value, programs.handle_of(self._main),
                        programs.handle_of(self._startup), names, values, len(arrays)),
            "weft_run_free")
        self._take_notes(stacklevel=4)
        if progress and self.process == 0:
            self._bar = True  # made with the first step

    def _take_notes(self, stacklevel):
        count = _native.lib().weft_run_take_messages(self._handle.value, byref(self._said))
        if count == 0:
            return
        notes = [Note.of(self._said[i]) for i in range(count)]
        self._notes += notes
        warn(notes, stacklevel)

    @property
    def notes(self) -> List[Note]:
        """What weft run says, so far: a list of Note."""
        with self._lock:
            self._take_notes(stacklevel=3)
        return self._notes

    def step(self, feeds: Optional[Mapping[str, Any]] = None) -> List[Fetched]:
        """Runs a step with the batch of all ranks, and returns a list of Fetched.

        feeds   variable -> array: NumPy's, one with DLPack (PyTorch, Paddle), or a buffer. Every
                step has the variables of the first. Arrays are read, not kept.

        KeyboardInterrupt comes after the step. The first error ends the run. Calls of other threads
        wait until it is done.
        """
        with self._lock:
            return self._step({} if feeds is None else feeds)

    def _step(self, feeds):
        _native.raise_late()
        if not hasattr(feeds, "keys"):
            raise _native.no_names("feeds", feeds, hint="; dict(zip(names, feeds)) names its parts"
                                   if isinstance(feeds, (list, tuple)) else "")
        known, names = self._inputs, tuple(feeds)
        if known is not None and names != known[0] and set(names) == set(known[0]):
            names = known[0]
        if known is None or names != known[0]:
            known = names, _tensor.names_of(names), _native.Array * len(names)
        names, c_names, batch_type = known
        library = _native.lib()
        # Of this call: asking for an array, or a signal's handler, may call step.
        handle, batch = self._handle.value, batch_type()
        kept = [_tensor.fill(batch[i], feeds[name], name) for i, name in enumerate(names)]
        # Another step would replace the results before they are taken.
        if self._in_step:
            raise _native.Error("step: expected a call after the step that runs, found one within it",
                                "FAILED_PRECONDITION")
        try:
            self._in_step = True
            status = library.weft_run_step(handle, c_names, batch, len(names))
            del kept
            self._take_notes(stacklevel=4)
            if status:
                _native.check(status)
            if self._inputs is None:
                self._ranks = library.weft_run_num_ranks(handle)
                self._fetch = [library.weft_run_fetched_name(handle, i).decode()
                               for i in range(library.weft_run_num_fetched(handle))]
            self._inputs = known
            taken = c_void_p()
            _native.check(library.weft_run_take_fetched(handle, byref(taken)))
            arrays = _native.Handle(taken.value, "weft_arrays_free")
            number, ranks = library.weft_run_fetched_number, self._ranks
            fetched = [Fetched(number(handle, i), name, arrays, i * ranks, ranks)
                       for i, name in enumerate(self._fetch)]
        finally:
            self._in_step = False
        if self._bar is not None:
            self._show(fetched)
        return fetched

    def _show(self, fetched):
        if self._bar is True:
            from weft import _fit  # pylint: disable=import-outside-toplevel
            self._bar = _fit.Bar(None)
        self._bar.step({one.name: float(one) for one in fetched})

    @property
    def next_step(self) -> int:
        """The number of the next step: so many are done, with those of the run before a resume."""
        return _native.lib().weft_run_next_step(self._handle.value)

    @property
    def process(self) -> int:
        """The number of this process among those of the run; 0 without a launcher."""
        return _native.lib().weft_run_process(self._handle.value)

    @property
    def num_processes(self) -> int:
        """The number of processes of the run."""
        return _native.lib().weft_run_num_processes(self._handle.value)

    @property
    def num_ranks(self) -> int:
        """The number of ranks, of all processes."""
        return _native.lib().weft_run_num_ranks(self._handle.value)

    def state_dict(self) -> Dict[str, _tensor.Tensor]:
        """Parameters and state of optimizers before the next step: a dictionary of Tensor.

        Where ranks have values of their own, those of the first.
        """
        with self._lock:
            handle = _native.new("weft_run_state", self._handle.value)
        arrays = _native.Handle(handle, "weft_arrays_free")
        library = _native.lib()
        return {library.weft_arrays_name(handle, i).decode():
                    _tensor.Tensor(arrays, library.weft_arrays_get(handle, i))
                for i in range(library.weft_arrays_count(handle))}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Sets parameters and state on all ranks, before the next step.

        state    name -> array, such as state_dict returns, of this run or another
        strict   it has what state_dict has, and nothing else; False: names that this run does not
                 have are left out, and what is missing stays as it is

        A variable of which ranks have values of their own, as between two averages of LocalSGD, is
        an error, but for the running statistics of batch_norm: all ranks would get one. An error
        leaves the run as it is.
        """
        if not hasattr(state, "items"):
            raise _native.no_names("state", state)
        if strict or any(name not in self._state_names() for name in state):
            known = self._state_names()
            different = sorted(known.symmetric_difference(state))
            if strict and different:
                raise _native.Error("%s: %s; strict=False takes what both have" % (
                    different[0], "the run has no such variable" if different[0] in state else
                    "expected a value for each variable of the run, found none"),
                    "INVALID_ARGUMENT")
            state = {name: value for name, value in state.items() if name in known}
        names, values, _kept = _tensor.fill_all(state)
        with self._lock:
            _native.check(_native.lib().weft_run_set_state(
                self._handle.value, names, values, len(state)))

    def _state_names(self):
        if self._known is None:
            self._known = set(self.state_dict())
        return self._known

    def fit(self, batches: Iterable[Any], *, names: Optional[Sequence[str]] = None,
            steps: Optional[int] = None, epochs: int = 1,
            valid: Union[Tuple[Any, Iterable[Any]], Callable[[Run], Mapping[str, float]], None] = None,
            every: Optional[int] = None, ema: bool = False,
            checkpoint: Union[str, os.PathLike[str], None] = None,
            save_every: Optional[int] = None, keep_best: Optional[str] = None,
            log: Union[Callable[[int, Dict[str, float]], Any], str, os.PathLike[str], None] = None,
            log_every: Optional[int] = None, progress: bool = False) -> Fitted:
        """Runs a step for each batch, validates, and keeps checkpoints; returns a Fitted.

        batches        an iterable of name -> array, for all ranks together: a list, a generator,
                       weft.batches, a DataLoader of Paddle or PyTorch. Of batches that are tuples
                       or lists, `names` are the names
        names          a sequence of str
        steps          ends after so many steps, or, with a warning, with the batches
        epochs         goes through the batches so many times (default 1). Batches of weft.batches
                       go on where the run is, as after a resume: step S gets the batch that it gets
                       in a run from the beginning, and the first of these times is the rest of its
                       epoch. Other such batches than those of the fit before begin anew
        valid          (test program, batches), or a function that takes the run and returns
                       name -> number. The batches are gone through again at each validation
        every          validates after so many steps; default: at the end alone
        ema            validates with the moving averages of Paddle's ExponentialMovingAverage
        checkpoint     a path: the checkpoint at the end, and after every `save_every` steps
        save_every     a number of steps
        keep_best      the name of a number of `valid`; the checkpoint with the smallest value so
                       far is kept as CHECKPOINT.best. "max:NAME": with the largest. "loss": where
                       no number has that name, the first loss, or the only number. A run that goes
                       on from a checkpoint, and a later fit, know what was the best
        log            called with (step, name -> number) after each step, and with names that begin
                       with "valid/" after each validation; or the path of a .jsonl or .csv file; or
                       a folder, for TensorBoard (with tensorboardX or PyTorch). A run that goes on
                       keeps the lines of earlier steps
        log_every      calls and writes `log` after so many steps (default 1)
        progress       True: a progress bar, with tqdm if it is there

        KeyboardInterrupt ends it after the step, with `checkpoint`; so does an error of batches or
        of a validation, so that what is trained stays. The test program is compared with the run
        after the first step.
        """
        from weft import _fit  # pylint: disable=import-outside-toplevel
        return _fit.fit(self, batches, names, steps, epochs, valid, every, ema, checkpoint,
                        save_every, keep_best, log, log_every, progress)

    def _first_step_of(self, batches: Any) -> int:
        """The step that gets the first batch: 0 for the first batches that `fit` gets; others begin anew."""
        if self._order is None or self._order[0] is not batches:
            self._order = batches, 0 if self._order is None else self.next_step
        return self._order[1]

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes parameters and state: .npz, .safetensors, .pdparams and .pdopt, or a save_combine
        stream (any other extension), as weft run --save does."""
        with self._lock:
            _native.check(_native.lib().weft_run_save(self._handle.value, _native.c_path(path)))

    def checkpoint(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the state of all ranks, with which option resume goes on, with the same bits."""
        with self._lock:
            _native.check(_native.lib().weft_run_checkpoint(
                self._handle.value, _native.c_path(path)))

    def close(self) -> None:
        """Ends the run. Later steps are errors, and so are state_dict, save and checkpoint."""
        with self._lock:
            _native.lib().weft_status_free(_native.lib().weft_run_end(self._handle.value))
        if self._bar not in (None, True):
            self._bar.close()
        self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self):
        raise TypeError("a run is in the memory of this process: checkpoint writes a file, with which "
                        "weft.Run(..., resume=FILE) goes on in another one")

    def __repr__(self):
        return "<weft.Run: %d ranks, before step %d>" % (self.num_ranks, self.next_step)
