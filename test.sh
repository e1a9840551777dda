#!/bin/bash
# Builds everything and runs every test:
#
#   ./test.sh
#
# Installs what is missing of the Debian packages (as root or through sudo), builds all targets, the
# GPU libraries too where a CUDA toolkit is found, and runs all tests. The last line is
# "N passed, N failed, N skipped" (test cases); the exit status is 0 if nothing failed.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/common.sh
. scripts/packages.sh

[ $# -eq 0 ] || die "takes no arguments" "For single tests: bazel test //proto/..."

install_packages "${BUILD_PACKAGES[@]}" "${LIBRARY_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
say "building everything and running all tests"
exec tools/run_tests.py </dev/null
