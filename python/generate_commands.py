#!/usr/bin/env python3
"""Writes python/weft/_commands.py: what has the options of the commands, with their help.

usage: WEFT_C_LIBRARY=libweft_c.so generate_commands.py [--check]

--check changes nothing, and fails if the file is out of date.
"""
import difflib
import keyword
import os
import sys
import textwrap
import types

HERE = os.path.dirname(os.path.abspath(__file__))
# Without __init__.py, which imports the file that this writes.
sys.modules["weft"] = types.ModuleType("weft")
sys.modules["weft"].__path__ = [os.path.join(HERE, "weft")]

from weft._options import options_of  # pylint: disable=wrong-import-position

HEAD = '''"""What has the options of the commands. python/generate_commands.py writes this file."""
# pylint: disable=too-many-lines, too-many-locals, too-many-arguments, redefined-builtin
# pylint: disable=redefined-outer-name
from __future__ import annotations

from weft import _fit, _results, _run
from weft._results import Report, Transpiled

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    import os
    from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Union

    from weft._program import Program

    Source = Union[Program, str, os.PathLike[str], bytes, Any]
'''

# What a value may be, by what help shows as its type.
TYPES = {"": "bool", "N": "int", "NUMBER": "float", "BOOL": "bool", "BYTES": "int", "S": "float",
         "BYTES_PER_S": "float", "FLOAT": "float", "INT": "int", "UINT": "int"}

FUNCTIONS = {
    "transpile": (
        "def transpile(\n    main: Source, startup: Optional[Source] = None, *,",
        "    progress: Optional[Callable[[str], None]] = None,\n) -> Transpiled:",
        """Rewrites programs, and verifies the result, as the command transpile does.

main, startup: a path, bytes, a Program, or a static program of Paddle.
progress: called with the name of each pass that has run.

Returns a Transpiled, with the programs main, startup and server, and notes.

>>> out = transpile("main.pb", "startup.pb", mode="grad_allreduce")
>>> out.main.save("out.pb")""",
        "    return _results.transpile(main, startup, _given(locals()), progress)",
        ("main", "startup", "progress")),
    "verify": (
        "def verify(\n    main: Union[Transpiled, Source, Sequence[Source]],\n"
        "    startup: Union[Source, Sequence[Source], None] = None,\n"
        "    original: Optional[Source] = None,\n"
        "    original_startup: Optional[Source] = None,\n"
        "    server: Optional[Source] = None, *,",
        ") -> Report:",
        """Proves that a program is correct on many ranks, as weft verify does.

main: the program that all ranks run, a list with one for each rank, or what transpile returns.
original: the program before the rewrite: does the other compute the same?

Returns a Report: true if nothing is wrong.

>>> verify("out.pb", "out_startup.pb", original="main.pb").ok
True""",
        "    return _results.verify(main, startup, original, original_startup, server,\n"
        "                           _given(locals()))",
        ("main", "startup", "original", "original_startup", "server")),
    "evaluate": (
        "def evaluate(\n    program: Source, batches: Iterable[Any],\n"
        "    params: Union[_run.Run, Mapping[str, Any], None] = None,\n"
        "    startup: Optional[Source] = None, *,\n    names: Optional[Sequence[str]] = None,",
        ") -> _fit.Evaluated:",
        """Evaluates a test program on all batches, as weft eval does.

batches: an iterable of name -> array, of which arrays that the program does not have are left out;
    of batches that are tuples or lists, `names` are the names.
params: a Run, whose parameters are taken as they are now, or name -> array, as state_dict returns;
    without any, `startup` makes them.

Returns an Evaluated: name -> number, of the metrics.

>>> evaluate("test.pb", batches("feeds.npz"), startup="startup.pb")  # doctest: +ELLIPSIS
{'loss': 8.605...}""",
        "    return _fit.evaluate(program, batches, params, startup, names, _given(locals()))",
        ("batches", "params", "startup", "names")),
    "stats": (
        "def stats(\n    program: Source, *,", ") -> str:",
        """What weft stats prints: ops, parameters, bytes communicated, memory.""",
        '    return _results.text_of("weft_stats", "stats", program, _given(locals()))',
        ("program",)),
    "plan": (
        "def plan(\n    program: Source, *,", ") -> str:",
        """What weft plan prints: which gradients travel together, and what is exposed of that.""",
        '    return _results.text_of("weft_plan", "plan", program, _given(locals()))',
        ("program",)),
}
COMMANDS = {"evaluate": "eval"}  # of functions of another name
RUN = (
    '''class Run(_run.Run):
@@DOC@@

    def __init__(
        self, main: Union[Transpiled, Source], startup: Optional[Source] = None, *,
        params: Union[Mapping[str, Any], str, os.PathLike[str], None] = None,
        progress: bool = False,''',
    '''    ) -> None:
        options = _given(locals())
        del options["self"]
        self._begin(main, startup, params, progress, options)''',
    """Trains a program, step by step, on ranks that are threads of this process.

main, startup: a path, bytes, a Program, a static program of Paddle, or what transpile returns.
params: parameters and state, set after the startup program: name -> array, or a file, of which
    weft run --params says more.
progress: step shows a progress bar, with tqdm if it is there.

`notes` has what weft run says before and while it runs.

>>> with Run("main.pb", "startup.pb") as run:
...     loss, = run.step({"x": x, "y": y})""")


def type_of(option):
    """What a value may be, as an annotation."""
    kind = TYPES.get(option.type, "str")
    if option.is_flag:
        kind = "bool"
    if option.name == "set":
        return "Union[Mapping[str, float], Sequence[str], str, None]"
    if option.is_list or option.name in ("feed_layout",):
        kind = "Union[Sequence[str], Mapping[str, str], str]" if option.name == "feed_layout" else (
            "Union[Sequence[str], str]")
    if option.name == "rank":
        kind = "Union[int, str]"
    if option.type.startswith("FILE") or option.type in ("F", "DIR"):
        kind = 'Union[str, os.PathLike[str]]'
    return "Optional[%s]" % kind


def name_of(option):
    """The keyword argument; words of the language have an underscore at their end."""
    return option.name + "_" * keyword.iskeyword(option.name)


def parameters(options, indent):
    """The keyword arguments, one a line."""
    return "".join("%s%s: %s = None,\n" % (indent, name_of(option), type_of(option))
                   for option in options)


def documentation(summary, options, indent):
    """The docstring."""
    lines = [summary, "", "Options, as of the command, where None stands for its default:", ""]
    for option in options:
        default = "" if option.default in ("", "{}") or option.is_flag else (
            " (default %s)" % option.default)
        shown = "bool" if option.is_flag else option.type
        lines += textwrap.wrap("%s: %s. %s%s" % (name_of(option), shown, option.help, default), 92,
                               subsequent_indent="    ", break_long_words=False,
                               break_on_hyphens=False)
    text = "\n".join(lines).replace("\\", "\\\\")
    return '%s"""%s\n%s"""' % (indent, textwrap.indent(text, indent).strip(), indent)


def main_text():
    """The file."""
    parts = [HEAD]
    for command, (head, tail, summary, body, given) in FUNCTIONS.items():
        options = [option for option in options_of(COMMANDS.get(command, command))
                   if option.name not in given]
        doc = documentation(summary, options, "    ")
        parts.append("%s\n%s%s\n%s\n%s\n" % (head, parameters(options, "    "), tail, doc, body))
    head, tail, summary = RUN
    options = [option for option in options_of("run") if option.name != "params"]
    doc = documentation(summary, options, "    ")
    parts.append("%s\n%s%s\n" % (head.replace("@@DOC@@", doc), parameters(options, " " * 8), tail))
    parts.append('''def _given(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """The options among the arguments of a function."""
    return {name.rstrip("_"): value for name, value in arguments.items() if name not in _OTHERS}


_OTHERS = {"main", "startup", "original", "original_startup", "server", "program", "params",
           "progress", "batches", "names"}
''')
    return "\n\n".join(parts)


def main():
    """Writes or checks the file."""
    path = os.path.join(HERE, "weft", "_commands.py")
    fresh = main_text()
    if sys.argv[1:] != ["--check"]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(fresh)
        return 0
    with open(path, encoding="utf-8") as file:
        found = file.read()
    if found == fresh:
        return 0
    sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), fresh.splitlines(True),
                                               path, "generated"))
    print("python/weft/_commands.py is out of date; run docs/generate.sh")
    return 1


if __name__ == "__main__":
    sys.exit(main())
