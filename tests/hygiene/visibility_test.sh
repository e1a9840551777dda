#!/bin/bash
# In these directories package visibility says who may use a target: public are only the targets named
# here, which others build upon. Looks at the real BUILD files, so that a new package is seen too.
#
# usage: visibility_test.sh .clang-format
set -euo pipefail
cd "$(dirname "$(realpath "$1")")"

directories=(base executor ops proto tools transpiler)
allowed="
//base:status_macros
//base:status_matchers
//executor:executor
//ops/analysis/testing:compact_program
//proto/formats:program_file
//proto:framework_cc_proto
//proto:program
//proto:program_pair
//tools:transpile
//tools:weft
//transpiler/testing:expect_rewrite
//transpiler/testing:testing
//transpiler/verifier/testing:matchers
//transpiler/verifier:verify
//transpiler:transpiler
"

mapfile -d '' files < <(find "${directories[@]}" -name BUILD -print0 | LC_ALL=C sort -z)
if [ ${#files[@]} -lt 7 ]; then
  echo "found ${#files[@]} packages in ${directories[*]}; expected more" >&2
  exit 1
fi

# Prints the label of each target that is public, with :default_visibility for a whole package.
public_targets() {
  awk '
    FNR == 1 { package = FILENAME; sub(/\/BUILD$/, "", package) }
    /^[a-z_]+\(/ { target = "default_visibility" }
    match($0, /name = "[^"]+"/) { target = substr($0, RSTART + 8, RLENGTH - 9) }
    /\/\/visibility:public/ { print "//" package ":" target }
  ' "$@"
}

if ! diff <(sed '/^$/d' <<<"$allowed") <(public_targets "${files[@]}" | LC_ALL=C sort) >&2; then
  echo ">: public, but not in the list of this test. Name the packages that may use it." >&2
  exit 1
fi
echo "no other target of ${#files[@]} packages is public"
