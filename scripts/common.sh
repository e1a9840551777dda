# Functions that quickstart.sh and test.sh share. Sourced, not run; needs the repository root as the
# current directory.

PROGRAM=$(basename "$0")

say() { printf '%s: %s\n' "$PROGRAM" "$*"; }

# One line that says what is wrong, then lines that say what to do about it.
die() {
  printf '%s: error: %s\n' "$PROGRAM" "$1" >&2
  shift
  [ $# -eq 0 ] || printf '%s\n' "$@" | sed 's/^/  /' >&2
  exit 1
}

# Runs bazel in its own way of talking: few lines where nobody watches.
bazel_terse() {
  local command=$1
  shift
  if [ -t 1 ]; then
    bazel "$command" "$@"
  else
    bazel "$command" --curses=no --color=no --show_progress_rate_limit=20 "$@"
  fi
}
