#!/bin/bash
# Brings the generated sections of the documentation up to date: what stands between the lines
#
#   <!-- generated: SECTION -->
#   <!-- end of generated -->
#
# is replaced by what `generate_docs SECTION` prints.
#
# usage: docs/generate.sh                        rewrites the files
#        docs/generate.sh --check TOOL FILE...   changes nothing; fails if a file is out of date
set -euo pipefail

# Prints FILE with its sections as TOOL prints them now.
regenerate() {
  local tool=$1 file=$2 line copying=1 sections=0
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ ^'<!-- generated: '([a-z_]+)' -->'$ ]]; then
      printf '%s\n\n' "$line"
      "$tool" "${BASH_REMATCH[1]}" || return 1  # -e does not hold here
      copying=0
      sections=$((sections + 1))
    elif [ "$line" = '<!-- end of generated -->' ]; then
      printf '\n%s\n' "$line"
      copying=1
    elif [ $copying -eq 1 ]; then
      printf '%s\n' "$line"
    fi
  done <"$file"
  if [ $copying -eq 0 ] || [ $sections -eq 0 ]; then
    echo "$file: expected sections between '<!-- generated: SECTION -->' and" \
      "'<!-- end of generated -->'" >&2
    return 1
  fi
}

if [ "${1:-}" = --check ]; then
  tool=$2
  shift 2
  [ $# -gt 0 ]
  for file in "$@"; do
    fresh=$(regenerate "$tool" "$file" && echo .)
    if ! diff -u "$file" <(printf '%s' "${fresh%.}"); then
      echo "$file is out of date; run docs/generate.sh" >&2
      exit 1
    fi
  done
  echo "$# files are up to date"
  exit
fi

cd "$(dirname "$0")/.."
bazel build //tests/docs:generate_docs //c:libweft_c.so
tool=$(bazel info bazel-bin)/tests/docs/generate_docs
for file in README.md docs/modes.md docs/reference/*.md; do
  fresh=$(regenerate "$tool" "$file" && echo .)
  printf '%s' "${fresh%.}" >"$file"
done
WEFT_C_LIBRARY=$(bazel info bazel-bin)/c/libweft_c.so python/generate_commands.py
