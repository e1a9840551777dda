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
from weft._commands import Run, plan, stats, transpile, verify
from weft._native import Error
from weft._program import Diff, Program
from weft._results import Finding, Note, Report, Transpiled, Warning  # pylint: disable=redefined-builtin
from weft._run import Fetched
from weft._tensor import Tensor

__all__ = [
    "Diff", "Error", "Fetched", "Finding", "Note", "Program", "Report", "Run", "Tensor",
    "Transpiled", "Warning", "diff", "plan", "stats", "transpile", "verify", "version",
]


for _name in __all__:  # as messages and help show them
    if isinstance(globals().get(_name), type):
        globals()[_name].__module__ = "weft"


def diff(a, b) -> Diff:
    """The differences of two programs, as weft diff prints them; false if there are none."""
    return Diff(Program(a, "a"), Program(b, "b"))


def version() -> str:
    """The version of Weft."""
    from weft import _native  # pylint: disable=import-outside-toplevel
    return _native.lib().weft_version().decode()
