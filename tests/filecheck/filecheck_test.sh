#!/bin/bash
# Transpiles a program with the real binary and lets FileCheck look at the text of the result.
#
# usage: filecheck_test.sh TRANSPILE CHECKS MAIN.pb STARTUP.pb FLAG...
#
# Lines `# MAIN: ...` of CHECKS are about the main program, `# STARTUP: ...` about the startup
# program, `# ERROR: ...` about what transpile says when it refuses. Either the first two or the
# last stand in one file.
set -euo pipefail
transpile=$1 checks=$2 main=$3 startup=$4
shift 4

filecheck=$(command -v FileCheck-14 FileCheck /usr/lib/llvm-14/bin/FileCheck | head -n 1) || true
if [ -z "$filecheck" ]; then
  echo "FileCheck is not installed: apt-get install llvm-14-tools" >&2
  exit 1
fi

status=0
"$transpile" "$@" "$main" "$TEST_TMPDIR/main.prog" \
  --startup_in "$startup" --startup_out "$TEST_TMPDIR/startup.prog" \
  2>"$TEST_TMPDIR/error" || status=$?
cat "$TEST_TMPDIR/error" >&2

# check PREFIX FILE
check() {
  "$filecheck" --check-prefix="$1" --input-file="$2" --dump-input=fail "$checks"
}

if grep -q '^# ERROR' "$checks"; then
  [ $status -eq 1 ] || { echo "expected exit status 1, found $status" >&2; exit 1; }
  check ERROR "$TEST_TMPDIR/error"
  [ ! -e "$TEST_TMPDIR/main.prog" ] && [ ! -e "$TEST_TMPDIR/startup.prog" ]
  exit
fi
[ $status -eq 0 ] || exit $status
check MAIN "$TEST_TMPDIR/main.prog"
check STARTUP "$TEST_TMPDIR/startup.prog"
