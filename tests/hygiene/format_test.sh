#!/bin/bash
# Every C++ and CUDA source of the repository is formatted as .clang-format says. Looks at the real
# files, not at copies, so that a file which no target names is seen too.
#
# usage: format_test.sh .clang-format
set -euo pipefail
root=$(dirname "$(realpath "$1")")

if ! command -v clang-format-14 >/dev/null; then
  echo "clang-format-14 is not installed: apt-get install clang-format-14" >&2
  exit 1
fi

cd "$root"
# Directories that begin with a dot and Bazel's links are no sources; find follows no links.
mapfile -d '' files < <(find . -path './.*' -prune -o -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 | LC_ALL=C sort -z)
if [ ${#files[@]} -lt 50 ]; then
  echo "found ${#files[@]} source files under $root; expected more" >&2
  exit 1
fi
if ! printf '%s\0' "${files[@]}" |
    xargs -0 -n 50 -P 2 clang-format-14 --style=file --dry-run -Werror; then
  echo "to repair: clang-format-14 -i FILE" >&2
  exit 1
fi
echo "${#files[@]} files are formatted"
