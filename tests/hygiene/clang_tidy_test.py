#!/usr/bin/env python3
"""clang-tidy finds nothing in the sources of some directories, tests and their support aside.

usage: clang_tidy_test.py .clang-tidy [--all|DIRECTORY|SOURCE...]

Looks at the real files of the repository that .clang-tidy lies in. Without arguments, checks the
sources that recent commits or the working tree changed; with --all, which takes minutes, all of
DIRECTORIES. Neither looks at what is SLOW.

Most of the time goes into headers, so each run of clang-tidy takes many sources as one translation
unit. Sources that define one name each for themselves are in different units. If clang-tidy finds
something in a unit, it checks its halves; what it finds in a single source counts.
"""

import functools
import os
import re
import subprocess
import sys
import tempfile

DIRECTORIES = ("base", "executor", "ops", "proto", "transpiler")
# Fewer sources than these in DIRECTORIES: the search for sources is wrong.
MIN_SOURCES = 120
KERNELS = ("ops/cpu/", "ops/op_kernel.cc")
SCHEMAS = ("ops/schema/",)
SLOW = KERNELS + SCHEMAS
RECENT_COMMITS = 50
# The builder of a schema returns itself: std::move(schema).Attr("axis", 1) leaves it as it should be.
UNCHECKED = {SCHEMAS: "-bugprone-use-after-move"}
# Needs a CUDA toolkit; replaces gpu_kernels_nocuda.cc. The second replaces a source that needs Gloo.
SKIPPED = (
    "ops/gpu/gpu_kernels.cc",
    "executor/communicators/gloo_communicator_nogloo.cc",
    "transpiler/verifier/rules/rule_text.cc",  # includes texts that the build generates
    "ops/half_arrays.cc",  # asks for f16c, which __builtin_cpu_supports of clang 14 does not know
)
# A name that a line without indentation defines: a type, an alias, a function or a variable.
DEFINITION = re.compile(
    r"^(?:template <[^>]*>\s*)?(?:"
    r"(?:struct|class|enum class|enum|union)\s+(\w+)\b[^;(]*(?:[{:]|$)|using (\w+) =|"
    r"(?!using|return|namespace|#|//|template|  )[\w:<>,&* ]*?[ &*](\w+)(?:\(|\[| = |\{|;))"
)


def defined_names(path, in_anonymous_namespace):
    names = set()
    is_inside = False
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("namespace {"):
                is_inside = True
            elif line.startswith("}  // namespace"):
                is_inside = False
            found = DEFINITION.match(line)
            if found is None:
                continue
            name = next(group for group in found.groups() if group)
            if is_inside == in_anonymous_namespace or name == "main":
                names.add(name)
    return names


@functools.lru_cache(None)
def included_names(path):
    """The names that the headers of a file define."""
    names = set() if path.endswith(".cc") else defined_names(path, False)
    with open(path, encoding="utf-8") as file:
        for header in re.findall(r'^#include "([^"]+)"', file.read(), re.MULTILINE):
            if os.path.exists(header):
                names |= included_names(header)
    return names


class Unit:
    """Sources that compile as one."""

    def __init__(self):
        self.sources, self.private, self.included = [], set(), set()

    def accepts(self, private, included):
        return not (private & self.private or private & self.included or included & self.private)

    def add(self, source, private, included):
        self.sources.append(source)
        self.private |= private
        self.included |= included


def group_of(source):
    return next((group for group in (KERNELS, SCHEMAS) if source.startswith(group)), ())


def units_of(sources):
    units = []
    # Headers of kernels and of schemas define the same names differently.
    for group in (KERNELS, SCHEMAS, ()):
        room = []
        for source in sources:
            if group_of(source) != group:
                continue
            names = defined_names(source, True), included_names(source)
            unit = next((unit for unit in room if unit.accepts(*names)), None)
            if unit is None:
                unit = Unit()
                room.append(unit)
            unit.add(source, *names)
        units += room
    return units


def sources_in(places):
    sources = []
    for place in places:
        paths = [place] if os.path.isfile(place) else []
        for folder, _, files in os.walk(place):
            paths += [os.path.join(folder, file) for file in files]
        found = [
            path
            for path in paths
            if path.endswith(".cc") and not path.endswith("_test.cc") and "/testing/" not in path
        ]
        if not found:
            sys.exit(f"{place}: expected a source or a directory with sources")
        sources += found
    return sorted(set(sources) - set(SKIPPED))


def changed_since(commits):
    """The sources that these last commits or the working tree changed; all without a history."""
    count = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if count.returncode != 0 or int(count.stdout) <= commits:
        return sources_in(DIRECTORIES)
    command = ["git", "diff", "--name-only", "--diff-filter=d", f"HEAD~{commits}"]
    changed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return sorted(set(changed.split()).intersection(sources_in(DIRECTORIES)))


def check(sources, scratch):
    """Returns how many of the sources are not clean, and prints what is found in them."""
    path = os.path.join(scratch, "unit.cc")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{source}"\n' for source in sources)
    command = ["clang-tidy-14", "--quiet", "--config-file=.clang-tidy", path, "--", "-std=c++17"]
    command += ["-I.", "-isystem", scratch, "-Wno-pragma-once-outside-header"]
    command.insert(1, "--checks=" + UNCHECKED.get(group_of(sources[0]), ""))
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode == 0:
        return 0
    if len(sources) > 1:
        half = len(sources) // 2
        return check(sources[:half], scratch) + check(sources[half:], scratch)
    print(result.stdout, result.stderr, sep="\n")
    return 1


def main():
    os.chdir(os.path.dirname(os.path.realpath(sys.argv[1])))
    everything = [s for s in sources_in(DIRECTORIES) if not s.startswith(SLOW)]
    if len(everything) < MIN_SOURCES:
        sys.exit(f"expected {MIN_SOURCES} sources or more, found {len(everything)}")
    if sys.argv[2:] == ["--all"]:
        sources = everything
    elif len(sys.argv) > 2:
        sources = sources_in(sys.argv[2:])
    else:
        sources = [s for s in changed_since(RECENT_COMMITS) if not s.startswith(SLOW)]
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["protoc", "--cpp_out=" + scratch, "proto/framework.proto"], check=True)
        try:
            wrong = sum(check(unit.sources, scratch) for unit in units_of(sources))
        except FileNotFoundError:
            sys.exit("clang-tidy-14 is not installed: apt-get install clang-tidy-14")
    if wrong > 0:
        sys.exit(f"{wrong} of {len(sources)} sources are not clean")
    print(len(sources), "sources are clean")


if __name__ == "__main__":
    main()
