"""Weft: rewrites static training programs for many ranks, proves the rewrite, and runs the result.

    import weft

    out = weft.transpile(main, startup, mode="grad_allreduce")
    weft.verify(out, original=main).raise_if_wrong()
    with weft.Run(out, ranks=2) as run:
        for x, y in batches:
            loss, = run.step({"x": x, "y": y})
        run.save("model.pdparams")

Names, defaults and errors are those of the commands transpile and weft.
"""
from __future__ import annotations

from weft import _fit, _native
from weft._commands import Run, evaluate, plan, stats, transpile, verify
from weft._fit import Evaluated, Fitted, Turns
from weft._native import Error
from weft._program import Diff, Program
from weft._results import Finding, Note, Report, Transpiled, Warning  # pylint: disable=redefined-builtin
from weft._run import Fetched
from weft._tensor import Tensor

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    import os
    from typing import Any, Iterable, Optional, Sequence, Union

    __version__: str

__all__ = [
    "Diff", "Error", "Evaluated", "Fetched", "Finding", "Fitted", "Note", "Program", "Report",
    "Run", "Tensor", "Transpiled", "Turns", "Warning", "batches", "diff", "evaluate", "plan",
    "stats", "transpile", "verify", "version",
]


for _name in __all__:  # as messages and help show them
    if isinstance(globals().get(_name), type):
        globals()[_name].__module__ = "weft"


def diff(a: Any, b: Any) -> Diff:
    """The differences of two programs, as weft diff prints them; false if there are none."""
    return Diff(Program(a, "a"), Program(b, "b"))


def batches(files: Union[str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]],
            batch_size: Optional[int] = None, shuffle: Optional[int] = None,
            drop_last: bool = False) -> Iterable[Any]:
    """Batches of .npz and .safetensors files: iterate over them once for each epoch, or use Run.fit.

    files       a path, or several
    batch_size  None: arrays are named <step>/<variable>, a batch each. A number: arrays are named
                as variables, with samples along their first axis, as many in each array of a file
    shuffle     a seed: another order in each epoch, of batches or of samples. It depends on seed
                and epoch alone, and not on ranks or processes
    drop_last   leaves a last batch out that has fewer samples

    Needs NumPy.
    """
    return _fit.batches_of(files, batch_size, shuffle, drop_last)


def version() -> str:
    """The version of Weft."""
    return _native.lib().weft_version().decode()


if not TYPE_CHECKING:  # for which each name would then be one of the package
    def __getattr__(name):
        """__version__, for which the library is loaded."""
        if name == "__version__":
            return version()
        raise AttributeError("module 'weft' has no attribute %r" % name)
