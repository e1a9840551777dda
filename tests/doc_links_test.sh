#!/bin/bash
# Every file that a document of the repository links to exists. Looks at the real files.
#
# usage: doc_links_test.sh README.md
set -euo pipefail
root=$(dirname "$(realpath "$1")")
cd "$root"
checked=0
broken=0
while IFS= read -r document; do
  while IFS= read -r target; do
    checked=$((checked + 1))
    if [ ! -e "$(dirname "$document")/$target" ]; then
      echo "$document: link to $target, which does not exist" >&2
      broken=$((broken + 1))
    fi
  done < <(awk '/^ *```/ { is_code = !is_code } !is_code' "$document" |
    grep -oE '\]\([^)#:]+(#[^)]*)?\)' | sed -E 's/^\]\(//; s/(#.*)?\)$//')
done < <(find . -path './.*' -prune -o -type f -name '*.md' -print | LC_ALL=C sort)
[ "$checked" -gt 0 ]
[ "$broken" -eq 0 ]
echo "$checked links lead somewhere"
