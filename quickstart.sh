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
exec 3>&1  # where commands are shown even if their output goes elsewhere

model=tests/data/fit_a_line
out=quickstart_out
build_options=(-c opt --config=nocuda)

# Prints a command, as the reader can repeat it, and runs it.
run() {
  printf '\n$ %s\n' "$*" >&3
  "$@" || die "this command failed: $*"
}

refuse_other_distributions
install_packages "${BUILD_PACKAGES[@]}" "${LIBRARY_PACKAGES[@]}"

say "building the command line tools (the first time takes some minutes)"
bazel_terse build "${build_options[@]}" //tools:transpile //tools:weft </dev/null ||
  die "the build failed; its messages are above"
mkdir -p "$out"
install -m 755 bazel-bin/tools/transpile bazel-bin/tools/weft "$out"

echo
say "rewriting a program that Paddle 2.6.2 wrote, so that any number of ranks can train it"
run "$out/transpile" --mode grad_allreduce \
  --startup_in "$model/startup.pb" --startup_out "$out/startup.pb" "$model/main.pb" "$out/main.pb"

echo
say "the ops that it inserted"
diff_status=0
printf '\n$ %s\n' "$out/weft diff $model/main.pb $out/main.pb"
"$out/weft" diff "$model/main.pb" "$out/main.pb" || diff_status=$?
[ "$diff_status" -eq 1 ] || die "weft diff ended with status $diff_status; expected 1: they differ"

train() {
  local ranks=$1 main=$2 startup=$3
  run "$out/weft" run "$main" --startup "$startup" --feeds "$model/feeds.npz" \
    --params "$model/init.params" --params_names "$model/persistables.txt" \
    --ranks "$ranks" --metrics "$out/losses_$ranks.jsonl" >"$out/run_$ranks.txt"
  grep " steps on " "$out/run_$ranks.txt"
}

echo
say "training the original on 1 rank, the rewritten program on 2 and 4, from the same parameters"
train 1 "$model/main.pb" "$model/startup.pb"
train 2 "$out/main.pb" "$out/startup.pb"
train 4 "$out/main.pb" "$out/startup.pb"

echo
say "the loss of each step (mean over the ranks)"
python3 scripts/compare_losses.py "1 rank=$out/losses_1.jsonl" "2 ranks=$out/losses_2.jsonl" \
  "4 ranks=$out/losses_4.jsonl" || die "the losses differ by more than rounding does"

cat <<END

Done. Where to look next:
  README.md                     the tools, by examples
  $out/weft show $out/main.pb
                                the rewritten program as text
  $out/transpile --list_modes
                                the ways to rewrite a program
  ./test.sh                     all tests
END
