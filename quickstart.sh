#!/bin/bash
# From a bare Debian 12 to a training program that runs on many ranks:
#
#   ./quickstart.sh
#
# Installs what is missing of the Debian packages (as root or through sudo), builds the command line
# tools, rewrites a real Paddle program for data parallel training, trains it on 1, 2 and 4 ranks and
# compares the losses. What it writes goes to quickstart_out/. A second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/common.sh
. scripts/packages.sh

[ $# -eq 0 ] || die "takes no arguments"

model=tests/data/fit_a_line
out=quickstart_out
build_options=(-c opt --config=nocuda)

# Prints a command, with the paths that a reader can repeat, and runs it.
run() {
  printf '\n$ %s\n' "$*"
  "$@" || die "this command failed: $*"
}

install_packages "${BUILD_PACKAGES[@]}" "${LIBRARY_PACKAGES[@]}"

say "building the command line tools (the first time takes some minutes)"
bazel_terse build "${build_options[@]}" //tools:transpile //tools:weft </dev/null ||
  die "the build failed; its messages are above"
mkdir -p "$out"
install -m 755 bazel-bin/tools/transpile bazel-bin/tools/weft "$out"

echo
say "rewriting $model, a linear regression that Paddle 2.6.2 wrote, so that any number of ranks"
say "can train it together"
run "$out/transpile" --mode grad_allreduce \
  --startup_in "$model/startup.pb" --startup_out "$out/startup.pb" "$model/main.pb" "$out/main.pb"

echo
say "what changed: + stands in the rewritten program only"
diff_status=0
printf '\n$ %s\n' "$out/weft diff $model/main.pb $out/main.pb"
"$out/weft" diff "$model/main.pb" "$out/main.pb" || diff_status=$?
[ "$diff_status" -eq 1 ] || die "weft diff ended with status $diff_status; expected 1: they differ"

train() {
  local ranks=$1 main=$2 startup=$3
  run "$out/weft" run "$main" --startup "$startup" --feeds "$model/feeds.npz" \
    --params "$model/init.params" --params_names "$model/persistables.txt" \
    --ranks "$ranks" --metrics "$out/losses_$ranks.jsonl" --save "$out/final_$ranks.npz"
}

echo
say "training: the original program on 1 rank, the rewritten one on 2 and on 4 (each rank takes its"
say "share of every batch), all from the same parameters"
train 1 "$model/main.pb" "$model/startup.pb"
train 2 "$out/main.pb" "$out/startup.pb"
train 4 "$out/main.pb" "$out/startup.pb"

echo
say "the loss of each step (mean over the ranks)"
python3 scripts/compare_losses.py "1 rank=$out/losses_1.jsonl" "2 ranks=$out/losses_2.jsonl" \
  "4 ranks=$out/losses_4.jsonl" || die "the losses differ by more than rounding does"

cat <<END

Done. Where to look next:
  README.md                            what the tools do, by examples
  $out/weft show $out/main.pb   the rewritten program as text
  $out/transpile --list_modes  the ways to rewrite
  ./test.sh                            all tests
END
