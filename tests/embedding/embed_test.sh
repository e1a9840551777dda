#!/bin/bash
# examples/embed as somebody outside has it: a workspace of its own, with a Bazel of its own, without
# a network. All of it is analyzed, all sources that Weft generates are made, and the example's own
# sources compiled. Everything else would be compiled with the same flags as in this workspace, whose
# //examples/embed:embed runs on a real program; its //examples/embed:drop_attr_test is a test beside
# this one.
#
# usage: embed_test.sh [--full] examples/embed/WORKSPACE EMBED DEPS MAIN.pb STARTUP.pb
#
# DEPS lists what //transpiler depends on, one label a line.
# --full: builds and runs all of it outside; takes as long as building Weft.
set -euo pipefail
full=0
if [ "$1" = --full ]; then
  full=1
  shift
fi
example=$(dirname "$(realpath "$1")")
embed=$(realpath "$2")
deps=$(realpath "$3")
main=$(realpath "$4")
startup=$(realpath "$5")

cd "$example"
base=$TEST_TMPDIR/bazel
export HOME=$TEST_TMPDIR USER=${USER:-$(id -un)}
run_bazel() {
  local command=$1
  shift
  bazel --nohome_rc --output_user_root="$TEST_TMPDIR/user" --output_base="$base" \
    --host_jvm_args=-Xmx512m --max_idle_secs=60 "$command" "$@"
}
build_flags=(--experimental_convenience_symlinks=ignore --curses=no --show_progress_rate_limit=30)
trap 'run_bazel shutdown >/dev/null 2>&1 || true; chmod -R u+w "$base" || true' EXIT
trap 'exit 1' TERM INT

if [ $full -eq 1 ]; then
  echo "== the pass's own test"
  run_bazel test "${build_flags[@]}" //...
  echo "== the program"
  run_bazel run "${build_flags[@]}" //:embed -- "$main" "$startup"
  exit
fi

echo "== the sources that Weft generates"
mapfile -t targets < <(grep '^//' "$deps" | sed 's/^/@weft/')
[ ${#targets[@]} -gt 20 ]
run_bazel build "${build_flags[@]}" --output_groups=compilation_prerequisites_INTERNAL_ \
  "${targets[@]}"

echo "== the example's own sources"
run_bazel build "${build_flags[@]}" --output_groups=compilation_outputs //...

echo "== the program"
"$embed" "$main" "$startup"
