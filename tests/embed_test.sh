#!/bin/bash
# Builds examples/embed as somebody outside would: as a workspace of its own, with a Bazel of its
# own, without a network. Runs its test, and its program on a real one.
#
# usage: embed_test.sh examples/embed/WORKSPACE MAIN.pb STARTUP.pb
set -euo pipefail
example=$(dirname "$(realpath "$1")")
main=$(realpath "$2")
startup=$(realpath "$3")

base=$TEST_TMPDIR/bazel
# Results are kept beside those of the Bazel that runs this test, so that only the first run is long.
outer=${TEST_SRCDIR%%/execroot/*}
cache=$TEST_TMPDIR/cache
if [ "$outer" != "$TEST_SRCDIR" ] && mkdir -p "$outer/embed_test_cache" 2>/dev/null; then
  cache=$outer/embed_test_cache
fi

cd "$example"
export HOME=$TEST_TMPDIR USER=${USER:-$(id -un)}
run_bazel() {
  local command=$1
  shift
  bazel --nohome_rc --output_user_root="$TEST_TMPDIR/user" --output_base="$base" \
    --host_jvm_args=-Xmx512m --max_idle_secs=60 "$command" "$@"
}
build_flags=(
  --disk_cache="$cache" --experimental_convenience_symlinks=ignore --curses=no
  --show_progress_rate_limit=30
)
trap 'run_bazel shutdown >/dev/null 2>&1 || true; chmod -R u+w "$base" || true' EXIT
trap 'exit 1' TERM INT

echo "== the pass's own test"
run_bazel test "${build_flags[@]}" //...

echo "== the program"
run_bazel run "${build_flags[@]}" //:embed -- "$main" "$startup"
