#!/bin/bash
# The installed library, as a project outside has it: examples/cmake builds with CMake and with
# pkg-config, and rewrites a real program as transpile does; examples/c trains it.
#
# usage: install_test.sh INSTALL_TREE.tar CMakeLists.txt TRANSPILE MAIN.pb train.c
set -euo pipefail
tree=$(realpath "$1") example=$(dirname "$(realpath "$2")") transpile=$(realpath "$3") main=$(realpath "$4")
c_example=$(realpath "$5")
cd "$TEST_TMPDIR"
mkdir prefix
tar -xf "$tree" -C prefix
"$transpile" --mode grad_allreduce --nranks 4 "$main" expected.pb

echo "== no header includes another without weft/"
if grep -rnE '#include "(base|executor|ops|proto|transpiler)/' prefix/include; then exit 1; fi

echo "== CMake"
cmake -S "$example" -B build -DCMAKE_PREFIX_PATH="$PWD/prefix" > cmake.log || { cat cmake.log; exit 1; }
cmake --build build
build/rewrite "$main" cmake.pb
cmp cmake.pb expected.pb
build/rewrite_test
build/run cmake.pb "$(dirname "$main")/startup.pb" "$(dirname "$main")/feeds.npz" | tee run.txt
[ "$(grep -c '^step ' run.txt)" = 5 ]

echo "== CMake, in C"
mkdir c_example
cp "$c_example" c_example/
cat > c_example/CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(train C)
find_package(weft REQUIRED)
add_executable(train train.c)
target_link_libraries(train PRIVATE weft::weft_c)
EOF
cmake -S c_example -B c_build -DCMAKE_PREFIX_PATH="$PWD/prefix" > cmake.log || { cat cmake.log; exit 1; }
cmake --build c_build
c_build/train "$main" "$(dirname "$main")/startup.pb" cmake.npz | grep '^step 2: '

echo "== pkg-config"
export PKG_CONFIG_PATH=$PWD/prefix/lib/pkgconfig
[ "$(pkg-config --modversion weft)" = "$("$transpile" --version | cut -d' ' -f2)" ]
read -ra cflags <<< "$(pkg-config --cflags weft)"
read -ra libs <<< "$(pkg-config --libs weft)"
g++ -std=c++17 "${cflags[@]}" "$example/rewrite.cc" -o rewrite "${libs[@]}"
./rewrite "$main" pkgconfig.pb
cmp pkgconfig.pb expected.pb
read -ra cflags <<< "$(pkg-config --cflags weft_c)"
read -ra libs <<< "$(pkg-config --libs weft_c)"
gcc "${cflags[@]}" "$c_example" -o train "${libs[@]}"
LD_LIBRARY_PATH=prefix/lib ./train "$main" "$(dirname "$main")/startup.pb" pkgconfig.npz
cmp pkgconfig.npz cmake.npz
