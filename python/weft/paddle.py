"""Weft for scripts of Paddle: what it rewrites, the installed Paddle runs, and the other way round.

    job = weft.paddle.distribute(main, startup, mode="grad_allreduce")
    executor = paddle.static.Executor(paddle.CPUPlace())
    job.start(executor)                                # instead of executor.run(startup)
    for batch in batches:
        executor.run(job.main, feed=job.part(batch), fetch_list=job.fetch([loss]))

trains on as many ranks as the launcher starts: python -m paddle.distributed.launch --nproc_per_node 2.

    with weft.paddle.Trainer(main, startup, mode="grad_allreduce", ranks=2) as trainer:
        for batch in batches:
            loss, = trainer.step(batch)

trains in this process, and leaves the result in Paddle's scope.
"""
from __future__ import annotations

import hashlib
import json
import os
import re

from weft import _export_program, _native
from weft import _paddle as _programs_of_paddle
from weft import _program as programs
from weft._commands import Run, transpile
from weft._tensor import Bits

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence

__all__ = ["Job", "Trainer", "distribute", "load_state_dict", "state_dict"]

_BFLOAT16 = 22  # in Paddle's VarType


def _paddle():
    import paddle  # pylint: disable=import-outside-toplevel
    return paddle


def _check_program(main, name):
    if not hasattr(main, "global_block"):
        raise _error("%s: expected a static program of Paddle, found %s" % (name, type(main).__name__))


def _check_names(values, what):
    if not hasattr(values, "items"):
        raise _native.no_names(what, values)


def _error(message, code="INVALID_ARGUMENT"):
    return _native.Error(message, code)


def _scope_of(scope):
    if scope is None:
        return _paddle().static.global_scope()
    if not hasattr(scope, "find_var"):
        raise _error("scope: expected a scope of Paddle, found %s" % type(scope).__name__)
    return scope


def state_dict(main: Any, scope: Any = None) -> Dict[str, Any]:
    """Parameters and state of a static program of Paddle: name -> a copy of its array.

    scope   default: paddle.static.global_scope(). What has no value in it is left out.
    """
    _check_program(main, "main")
    try:
        state = _export_program.persistables(main, _scope_of(scope))
    except ValueError as error:
        raise _error(str(error)) from error
    return {name: Bits(array, "bfloat16") if number == _BFLOAT16 else array
            for name, (number, array) in state.items()}


def load_state_dict(state: Mapping[str, Any], main: Any, scope: Any = None,
                    strict: bool = True) -> None:
    """Sets parameters and state of a static program of Paddle in a scope.

    state    name -> array, such as those of weft.Run.state_dict. Those of variables that the
             program does not have are left out.
    strict   the state has all persistable variables of the program

    An array that is missing, or has another type or shape than its variable, is an error, and
    nothing is changed.
    """
    paddle = _paddle()
    _check_program(main, "main")
    _check_names(state, "state")
    scope = _scope_of(scope)
    declared = _export_program.declared_everywhere(main)
    arrays = {}
    for name, variable in sorted(declared.items()):
        if not variable.persistable:
            continue
        value = state.get(name)
        if value is None and strict:
            raise _error("%s: expected a value for each persistable variable of the program, found "
                         "none; strict=False leaves it as it is" % name)
        if value is None:
            continue
        array = _bits(value)
        found = str(getattr(value, "dtype", array.dtype)).rsplit(".", 1)[-1]
        if found != variable.dtype or not _fits(array.shape, variable.shape):
            raise _error("%s: the program declares %s%s, but the state has %s%s" % (
                name, variable.dtype, list(variable.shape), found, list(array.shape)))
        arrays[name] = array
    for name, array in arrays.items():
        held = scope.find_var(name)
        tensor = (held or scope.var(name)).get_tensor()
        place = tensor._place() if held and tensor._is_initialized() else None
        is_on_gpu = place is not None and place.is_gpu_place()
        tensor.set(array, paddle.CUDAPlace(place.gpu_device_id()) if is_on_gpu else
                   paddle.CPUPlace())


def _bits(value):
    """A NumPy array; of a type that NumPy lacks, of its bits."""
    import numpy  # pylint: disable=import-outside-toplevel
    return value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)


def _fits(shape, declared):
    return len(shape) == len(declared) and all(
        expected < 0 or found == expected for found, expected in zip(shape, declared))


# --- What Paddle runs -----------------------------------------------------------------------------


def _from_environment():
    """Rank and number of ranks, as paddle.distributed.launch says."""
    rank, count = (int(os.environ.get(name, default)) for name, default in (
        ("PADDLE_TRAINER_ID", "0"), ("PADDLE_TRAINERS_NUM", "1")))
    if not 0 <= rank < count:
        raise _error("PADDLE_TRAINER_ID: expected 0 to %d, as PADDLE_TRAINERS_NUM is %d, found %d" % (
            count - 1, count, rank))
    return rank, count


def distribute(main: Any, startup: Any, mode: str = "grad_allreduce", scope: Any = None,
               **options: Any) -> Job:
    """Rewrites programs of Paddle for the ranks of paddle.distributed.launch.

    main, startup   static programs of the Paddle that is installed, in either of its formats
    scope           may hold values, equal on all ranks, from which training goes on; default:
                    paddle.static.global_scope()
    options         of weft.transpile

    Returns a Job. Without a launcher, or with one process, its programs are `main` and `startup`.
    Ranks communicate by Gloo, on CPUs. Every rank calls this with equal programs.
    """
    paddle = _paddle()
    rank, count = _from_environment()
    if startup is None:
        raise _error("startup: expected the startup program, which makes values equal on all ranks, "
                     "found None")
    for name, program in (("main", main), ("startup", startup)):
        _check_program(program, name)
    if options.get("nranks", count) != count:
        raise _error("nranks: the launcher has started %d ranks, found %s" % (
            count, options["nranks"]))
    if paddle.is_compiled_with_cuda() and options.get("device_kind", "cpu") != "cpu":
        raise _error("device_kind: ranks communicate by Gloo on CPUs: expected cpu, found %s; "
                     "weft.transpile writes programs for others" % options["device_kind"],
                     "UNIMPLEMENTED")
    return Job(main, startup, mode, scope, rank, count, dict(options, device_kind="cpu"))


class Job:  # pylint: disable=too-many-instance-attributes
    """What a rank runs.

    main, startup   programs of Paddle
    rank, nranks    of this process
    out             what weft.transpile returned; None on one rank
    """

    def __init__(self, main, startup, mode, scope, rank, nranks, options):
        self.rank, self.nranks = rank, nranks
        self._original = main
        self._scope = _scope_of(scope)
        self.main, self.startup, self.out = main, startup, None
        self._store = None
        self._kept = state_dict(main, self._scope)
        if nranks == 1:
            return
        # The script calls the step of its scheduler.
        self._source = programs.Program(_programs_of_paddle.program_bytes(
            main, "main", with_schedule=not _export_program.follows_plateau(main)), "main")
        try:
            self.out = transpile(self._source, startup, mode=mode, nranks=nranks, **options)
        except _native.Error as error:
            if "device_kind" not in str(error):
                raise
            raise _error("mode %s: Paddle's ranks are on CPUs here, and communicate by Gloo: %s" % (
                mode, error), error.code) from error
        self.main, self.startup = self.out.main.to_paddle(), self.out.startup.to_paddle()
        self._keep_schedule()

    def _keep_schedule(self):
        """Paddle's executor sets the rate of a program before every step."""
        scheduler = getattr(self._original, "lr_scheduler", None)
        if scheduler is None:
            return
        self.main.lr_scheduler = scheduler
        if self.out.main.format == "pb":
            self.main.lr_var = self.main.global_block().var(scheduler._var_name)
        else:
            self.main.lr_name = self._original.lr_name

    def start(self, executor: Any) -> None:
        """Connects the ranks, and runs the startup program; every rank calls it, once.

        Variables that had a value in the scope when distribute was called have it again
        afterwards: training goes on from there. Values that differ between ranks are an error.
        """
        if self.nranks > 1:
            self._connect()
        paddle = _paddle()
        with paddle.static.scope_guard(self._scope):
            executor.run(self.startup)
            if self._kept:
                load_state_dict(self._kept, self._original, self._scope, strict=False)

    def _connect(self):
        paddle = _paddle()
        endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        if len(endpoints) != self.nranks:
            raise _error("PADDLE_TRAINER_ENDPOINTS: expected %d endpoints, found %s" % (
                self.nranks, os.environ.get("PADDLE_TRAINER_ENDPOINTS", "none")))
        core = getattr(paddle, "base", getattr(paddle, "fluid", None)).core
        if self.out.main.format == "pb":
            # Ranks communicate in the order of the program.
            paddle.set_flags({"FLAGS_new_executor_sequential_run": True})
        is_paddle3 = paddle.__version__.startswith("3.")
        if not is_paddle3:
            paddle.distributed.gloo_init_parallel_env(self.rank, self.nranks, endpoints[0])
        host, port = endpoints[-1].rsplit(":", 1)
        self._store = core.TCPStore(host, int(port), self.rank == self.nranks - 1, self.nranks, 900)
        for ring in _rings_of(self.out) if is_paddle3 else ():
            core.CommContextManager.create_gloo_comm_context(
                self._store, str(ring), self.rank, self.nranks)
        self._compare_values()

    def _compare_values(self):
        """Raises Error on all ranks if they begin with different values."""
        own = hashlib.sha256()
        for name in sorted(self._kept):
            own.update(name.encode() + b"\0" + _bits(self._kept[name]).tobytes())
        self._store.set("weft/values/%d" % self.rank, own.hexdigest())
        for rank in range(self.nranks):
            if self._store.get("weft/values/%d" % rank).decode() != own.hexdigest():
                raise _error(
                    "rank %d: other variables have a value in the scope, or they have other values "
                    "than on rank %d: load one file on all ranks, or call distribute before the "
                    "startup program has run" % (self.rank, rank), "FAILED_PRECONDITION")

    def part(self, batch: Mapping[str, Any], whole: Sequence[str] = ()) -> Dict[str, Any]:
        """The part of the batch that this rank takes: of every array, along its first axis.

        whole   names of arrays that every rank takes as they are.
        """
        _check_names(batch, "batch")
        whole = {whole} if isinstance(whole, str) else set(whole)
        for name in sorted(whole.difference(batch)):
            raise _error("whole: expected names of the batch (%s), found %s" % (
                ", ".join(batch), name))
        return {name: value if name in whole else self._part_of(name, value)
                for name, value in batch.items()}

    def _part_of(self, name, value):
        if not hasattr(value, "shape"):
            raise _error("feed %s: expected an array, found %s; numpy.asarray makes one of numbers" % (
                name, type(value).__name__))
        shape = tuple(value.shape)
        if not shape or shape[0] % self.nranks != 0:
            raise _error("feed %s: expected samples along axis 0 that divide by %d ranks, found "
                         "shape %s" % (name, self.nranks, list(shape)))
        size = shape[0] // self.nranks
        return value[self.rank * size:(self.rank + 1) * size]

    def fetch(self, values: Any) -> List[Any]:
        """What fetch_list takes of `main` for variables of the program that was given: a list."""
        if not isinstance(values, (list, tuple)):
            values = [values]
        return [value if self.out is None else self._of_rewritten(value) for value in values]

    def _of_rewritten(self, value):
        if isinstance(value, str):
            return value
        if not hasattr(type(value), "name"):  # of a value, asking may raise
            raise _error("fetch: expected variables of the program, or names, found %s" %
                         type(value).__name__)
        if self.out.main.format == "pb":
            return value.name
        return _find_result(self.main, self.out.main,
                            _id_of(self._original, self._source, value))

    def state_dict(self) -> Dict[str, Any]:
        """Parameters and state of the program that was given, as this rank has them."""
        return state_dict(self._original, self._scope)

    def __repr__(self):
        return "<weft.paddle.Job: rank %d of %d>" % (self.rank, self.nranks)


def _rings_of(out):
    """The rings that the programs use: ring_id in program text, where strings stand in quotes."""
    rings = set()
    for program in (out.main, out.startup):
        text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', str(program))
        rings.update(map(int, re.findall(r"\bring_id=(\d+)", text)))
    return sorted(rings)


def _results_in_file(program):
    """By op of the root block, the ids of its results."""
    ops = json.loads(program.to_bytes("json"))["program"]["regions"][0]["blocks"][0]["ops"]
    for op in ops:
        made = op.get("O", [])
        yield [one["%"] for one in (made if isinstance(made, list) else [made])]


def _id_of(paddle_program, source, value):
    """The id of a Value of PIR in the file of its program."""
    for op, ids in zip(paddle_program.global_block().ops, _results_in_file(source)):
        for result, number in zip(op.results(), ids):
            if result.is_same(value):
                return number
    raise _error("fetch: expected a value of the root block of the program, found %s" % value)


def _find_result(paddle_program, rewritten, number):
    """The Value that has the id: values keep theirs."""
    for op, ids in zip(paddle_program.global_block().ops, _results_in_file(rewritten)):
        if number in ids:
            return op.result(ids.index(number))
    raise _error("fetch: the rewritten program does not have the value %d" % number)


# --- What Weft runs -------------------------------------------------------------------------------


class Trainer(Run):
    """A weft.Run that begins with the values of Paddle's scope, and leaves the result there.

    main, startup   static programs of the Paddle that is installed
    mode, ranks     of weft.transpile; without a mode, several ranks have mode grad_allreduce, and
                    one has the program as it is
    scope           default: paddle.static.global_scope(). It need not have values: `startup` makes
                    those that it lacks
    transpile       more options of weft.transpile. In several processes of a launcher, nranks is
                    the number of all ranks: mode="grad_allreduce", transpile={"nranks": 2}
    plateau_steps   of a learning rate that follows ReduceOnPlateau: as of weft.Program
    options         of weft.Run

    With `with`, the scope has the result when the block ends without an error; else after
    to_scope(). The scheduler of the learning rate then stands where training does.
    """

    __slots__ = ("_of_paddle", "_scope", "_steps_in_scope", "_plateau_steps")

    def __init__(self, main: Any, startup: Any = None, *, mode: Optional[str] = None, ranks: int = 1,
                 scope: Any = None, transpile: Optional[Mapping[str, Any]] = None,
                 plateau_steps: Optional[int] = None, **options: Any) -> None:  # pylint: disable=redefined-outer-name, super-init-not-called
        _check_program(main, "main")
        self._of_paddle = main
        self._scope = _scope_of(scope)
        source = programs.Program(main, "main", plateau_steps)
        self._plateau_steps = None if plateau_steps is None else int(plateau_steps)
        begin = programs.optional(startup, "startup")
        if mode is not None or ranks > 1:
            out = globals()["transpile"](source, begin, mode=mode or "grad_allreduce",
                                         **{"nranks": ranks, **(transpile or {})})
            source, begin = out.main, out.startup
        elif transpile:
            raise _error("transpile: expected a mode, as there is one rank")
        params = {} if options.get("resume") is not None else state_dict(main, self._scope)
        super().__init__(source, begin, params=params or None, ranks=ranks, **options)
        self._steps_in_scope = self.next_step

    def to_scope(self) -> None:
        """Copies parameters and state to the scope, and advances the scheduler."""
        load_state_dict(self.state_dict(), self._of_paddle, self._scope)
        scheduler = getattr(self._of_paddle, "lr_scheduler", None)
        done, self._steps_in_scope = self._steps_in_scope, self.next_step
        if _export_program.follows_plateau(self._of_paddle):
            self._set_plateau(scheduler, done)
        elif scheduler is not None:
            for _ in range(self.next_step - done):
                scheduler.step()

    def _set_plateau(self, scheduler, done):
        found = _native.Plateau()
        if not _native.lib().weft_run_plateau(self._handle.value, found):
            return  # no step is done
        scheduler.last_lr = found.rate
        scheduler.best = None if found.best != found.best else found.best
        scheduler.num_bad_epochs = found.num_bad
        scheduler.cooldown_counter = found.cooldown_left
        scheduler.last_epoch += (self.next_step // self._plateau_steps) - done // self._plateau_steps

    def __exit__(self, kind: object = None, *_: object) -> None:
        try:
            if kind is None:
                self.to_scope()
        finally:
            self.close()
