# Which Debian packages are needed, and how they get installed. Sourced after scripts/common.sh.

# Bazel 4.2.3 with the rule sets that it asks for, and the compiler.
BUILD_PACKAGES=(
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  build-essential python3
)
# What //tools:transpile and //tools:weft are made of.
LIBRARY_PACKAGES=(
  libabsl-dev libarchive-dev libasio-dev libcli11-dev libdnnl-dev libeigen3-dev libgloo-dev
  libprotobuf-dev libsodium-dev libxxhash-dev libzip-dev nlohmann-json3-dev protobuf-compiler
  zlib1g-dev
)
# What the tests need besides: libraries, and programs that tests call. Tests in a browser are skipped
# without chromium, which is 400 MB and not among these.
TEST_PACKAGES=(
  libgmock-dev libgtest-dev librapidcheck-dev
  clang-format-14 clang-tidy-14 cmake llvm-14-tools nodejs openmpi-bin pkg-config python3-numpy xz-utils
)
# What libFuzzer needs: ./test.sh --fuzz.
FUZZ_PACKAGES=(clang-14 libclang-rt-14-dev)

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Sets `missing` to those of the packages named that are not installed.
find_missing() {
  missing=()
  local package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
}

# Prints "Debian GNU/Linux 12 (bookworm)", or what the machine calls itself.
distribution_name() {
  (. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-${ID:-}}") || uname -sr
}

is_debian_12() {
  [ "$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}")" = "debian 12" ]
}

# The build uses what Debian 12 ships: Bazel 4.2.3, Abseil 20220623, protobuf 3.21, oneDNN 2.6.
# Other releases have other versions, in which headers and rules differ.
refuse_other_distributions() {
  is_debian_12 || die "unsupported distribution: $(distribution_name)" \
    "Weft builds with the packages of Debian 12 (bookworm). In a container:" \
    "docker run -it -v \"\$PWD:/weft\" -w /weft debian:12 ./$PROGRAM"
  [ "$(dpkg --print-architecture)" = amd64 ] ||
    die "unsupported architecture: $(dpkg --print-architecture)" \
      "Weft builds on amd64 (x86-64)."
}

# Runs a command as root.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif [ -t 0 ]; then
    sudo "$@"  # may ask for the password
  else
    sudo -n "$@"
  fi
}

require_root() {
  local by_hand="Or let root run: apt-get install $*"
  [ "$(id -u)" -eq 0 ] && return
  command -v sudo >/dev/null ||
    die "no permission to install packages: not root, and there is no sudo" "$by_hand"
  as_root true || die "no permission to install packages: sudo refused" "$by_hand"
}

# apt-get, quiet unless it fails; what it said is kept in $apt_log.
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" \
    >>"$apt_log" 2>&1 </dev/null
}

apt_words() {
  grep -E '^(E|W|Err):?' "$apt_log" | tail -n 5
}

# Makes sure that all packages named are installed. Asks nothing of the network, and needs no
# permission, where they are.
install_packages() {
  local missing unknown package
  command -v dpkg-query >/dev/null ||
    die "unsupported distribution: $(distribution_name)" "Weft builds on Debian 12 (bookworm)."
  find_missing "$@"
  if [ ${#missing[@]} -eq 0 ]; then
    say "all $# Debian packages are installed"
    return
  fi
  refuse_other_distributions
  require_root "${missing[*]}"
  say "installing ${#missing[@]} of $# Debian packages: ${missing[*]}"

  apt_log=$(mktemp)
  trap 'rm -f "$apt_log"' EXIT
  apt_get update || true  # one source that fails does not matter if the others have it all
  unknown=()
  for package in "${missing[@]}"; do
    [ -n "$(apt-cache --quiet=0 show "$package" 2>/dev/null)" ] || unknown+=("$package")
  done
  if [ ${#unknown[@]} -gt 0 ]; then
    die "apt does not know these packages: ${unknown[*]}" \
      "Is there a network, and a Debian 12 mirror in /etc/apt/sources.list*? apt-get update said:" \
      "$(apt_words)"
  fi
  apt_get install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed; is there a network, and space on the disk? It said:" \
      "$(apt_words)"
  find_missing "$@"
  [ ${#missing[@]} -eq 0 ] || die "apt-get left these packages out: ${missing[*]}"
  rm -f "$apt_log"
  trap - EXIT
  # A running Bazel server does not notice that libraries have come.
  bazel shutdown </dev/null >/dev/null 2>&1 || true
}
