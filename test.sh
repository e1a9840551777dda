#!/bin/bash
# Builds everything and runs every test:
#
#   ./test.sh
#
# Installs what is missing of the Debian packages (as root or through sudo), builds all targets, the
# GPU libraries too where a CUDA toolkit is found, and runs all tests; then some of them once more, with
# AddressSanitizer and UndefinedBehaviorSanitizer, and those of streams and communicators, which are
# threads, with ThreadSanitizer. The last line is "N passed, N failed, N skipped" (test cases of all
# runs); the exit status is 0 if nothing failed.
#
#   ./test.sh --fuzz [SECONDS]
#
# Runs libFuzzer on every target of tests/fuzz, a minute each unless said otherwise. Installs clang
# besides. What is found goes to fuzz_out/. The last line counts targets. docs/testing.md.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/common.sh
. scripts/packages.sh

# What runs with sanitizers, too: the most for a few minutes. What reads files, what edits programs, and
# ranks that meet.
SANITIZED_OPTIONS=(
  --config=asan --config=ubsan --config=nocuda --experimental_convenience_symlinks=ignore
)
SANITIZED_TESTS=(
  //base/... //proto/... //executor/communicators:communicators_test //executor/jobs:jobs_test
  //executor/streams:streams_test
  //tests/fuzz/... -//tests/fuzz:pipeline_text_fuzz_corpus_test
  -//tests/fuzz:transpile_fuzz_corpus_test  # all of the transpiler
)
THREADS_OPTIONS=(--config=tsan --config=nocuda --experimental_convenience_symlinks=ignore)
THREADS_TESTS=(//executor/streams:streams_test //executor/communicators:communicators_test)

# Inputs that reach new code are kept in fuzz_out/TARGET, where the next run begins.
fuzz() {
  local seconds=$1 labels label target bin passed=0 failed=0
  say "building the fuzz targets"
  mapfile -t labels < <(bazel query --noshow_progress 'kind(cc_binary, //tests/fuzz:all)')
  [ ${#labels[@]} -gt 0 ] || die "there are no fuzz targets"
  bazel_terse build --config=fuzz "${labels[@]}" </dev/null
  bin=$(bazel info --noshow_progress --config=fuzz bazel-bin)/tests/fuzz
  for label in "${labels[@]}"; do
    target=${label#*:}
    say "$target: $seconds s"
    mkdir -p "fuzz_out/$target"
    if "$bin/$target" -max_total_time="$seconds" -timeout=10 -verbosity=0 \
      -artifact_prefix="fuzz_out/$target-" "fuzz_out/$target" "tests/fuzz/corpus/$target"; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "FAILED: $target; the input is fuzz_out/$target-*" >&2
    fi
  done
  echo "$passed passed, $failed failed, 0 skipped"
  [ "$failed" -eq 0 ]
}

if [ "${1:-}" = --fuzz ] && [ $# -le 2 ] && [[ ${2:-60} =~ ^[1-9][0-9]*$ ]]; then
  install_packages "${BUILD_PACKAGES[@]}" "${LIBRARY_PACKAGES[@]}" "${FUZZ_PACKAGES[@]}"
  fuzz "${2:-60}"
  exit
fi
[ $# -eq 0 ] || die "takes no arguments but --fuzz [SECONDS]" \
  "For single tests: bazel test //proto/..."

install_packages "${BUILD_PACKAGES[@]}" "${LIBRARY_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
say "building everything and running all tests"
exec tools/run_tests.py --then "${SANITIZED_OPTIONS[@]}" -- "${SANITIZED_TESTS[@]}" \
  --then "${THREADS_OPTIONS[@]}" -- "${THREADS_TESTS[@]}" </dev/null
