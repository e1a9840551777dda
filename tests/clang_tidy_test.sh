#!/bin/bash
# clang-tidy finds nothing in base, proto and transpiler/pipeline. Looks at the real files. Most of
# its time goes into the headers of libraries, so all sources are one translation unit, but for those
# that define names which others have, too.
#
# usage: clang_tidy_test.sh .clang-tidy
set -euo pipefail
root=$(dirname "$(realpath "$1")")
generated=$TEST_TMPDIR
apart=(proto/program_indexer.cc)

if ! command -v clang-tidy-14 >/dev/null; then
  echo "clang-tidy-14 is not installed: apt-get install clang-tidy-14" >&2
  exit 1
fi

# Checks a source that includes those given.
check() {
  local name=$1
  shift
  printf '#include "%s"\n' "$@" >"$TEST_TMPDIR/$name.cc"
  clang-tidy-14 --quiet --config-file="$root/.clang-tidy" "$TEST_TMPDIR/$name.cc" -- \
    -std=c++17 -I"$root" -isystem "$generated" -Wno-pragma-once-outside-header
}

cd "$root"
protoc --cpp_out="$generated" proto/framework.proto
mapfile -t sources < <(find base proto transpiler/pipeline -name '*.cc' ! -name '*_test.cc' ! -path '*/testing/*' |
  grep -vxF -f <(printf '%s\n' "${apart[@]}") | LC_ALL=C sort)
[ ${#sources[@]} -gt 20 ]
status=0
check together "${sources[@]}" || status=1
check apart "${apart[@]}" || status=1
if [ $status -eq 0 ]; then echo "$((${#sources[@]} + ${#apart[@]})) sources are clean"; fi
exit $status
