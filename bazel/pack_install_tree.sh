#!/bin/bash
# Packs what bazel/install_tree.bzl lists.
#
# usage: pack_install_tree.sh FILES VERSION_H LICENSE OUT.tar
#
# FILES has lines "archive LIBRARY PATH", "flag LIBRARY LINKER_FLAG", "header PATH NAME",
# "c_header PATH" and "c_library PATH". The libraries are weft, weft_executor and weft_testing, of
# which the last two need the first.
set -euo pipefail
files=$1 version_h=$2 license=$3 out=$4
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' "$version_h")
[ -n "$version" ]
mkdir -p "$tree"/{include/weft/c,lib/cmake/weft,lib/pkgconfig,share/doc/weft}
cp "$license" "$tree/share/doc/weft/"

# An embedder's own headers may be called proto/... too.
while read -r kind path name; do
  [ "$kind" = header ] || continue
  mkdir -p "$tree/include/weft/$(dirname "$name")"
  sed -E 's|^#include "(base\|executor\|ops\|proto\|transpiler)/|#include "weft/\1/|' "$path" \
    > "$tree/include/weft/$name"
done < "$files"

flags_of() { sed -n "s/^flag $1 //p" "$files" | paste -sd' '; }
for library in weft weft_executor weft_testing; do
  {
    echo "create $tree/lib/lib$library.a"
    sed -n "s/^archive $library /addlib /p" "$files"
    echo save
    echo end
  } | ar -M
done

# Under the name that programs that are linked with it look for.
install -m 644 "$(sed -n 's/^c_header //p' "$files")" "$tree/include/weft/c/"
install -m 755 "$(sed -n 's/^c_library //p' "$files")" "$tree/lib/libweft_c.so.1"
strip --strip-unneeded "$tree/lib/libweft_c.so.1"
ln -s libweft_c.so.1 "$tree/lib/libweft_c.so"
cat > "$tree/lib/pkgconfig/weft_c.pc" <<EOF
prefix=\${pcfiledir}/../..
Name: weft_c
Description: Rewrites, verifies and runs static training programs; the interface for C
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -lweft_c
EOF

# NAME DESCRIPTION REQUIRES
pkgconfig() {
  cat > "$tree/lib/pkgconfig/$1.pc" <<EOF
prefix=\${pcfiledir}/../..
Name: $1
Description: $2
Version: $version
Requires: $3
Cflags: -I\${prefix}/include
Libs: \${prefix}/lib/lib$1.a $(flags_of "$1")
EOF
}
pkgconfig weft "Rewrites and verifies static training programs" ""
pkgconfig weft_executor "Runs static training programs on ranks of one process" weft
pkgconfig weft_testing "Tests of passes and of what they rewrite, with GoogleTest" weft

cat > "$tree/lib/cmake/weft/weftConfig.cmake" <<EOF
# find_package(weft) defines the targets weft::weft, which rewrites, weft::weft_executor, which runs,
# weft::weft_testing, with matchers for GoogleTest, and for C weft::weft_c, which does all.
get_filename_component(_weft_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET weft::weft)
  add_library(weft::weft STATIC IMPORTED)
  set_target_properties(weft::weft PROPERTIES
    IMPORTED_LOCATION "\${_weft_prefix}/lib/libweft.a"
    INTERFACE_INCLUDE_DIRECTORIES "\${_weft_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES "$(flags_of weft)")
  add_library(weft::weft_executor STATIC IMPORTED)
  set_target_properties(weft::weft_executor PROPERTIES
    IMPORTED_LOCATION "\${_weft_prefix}/lib/libweft_executor.a"
    INTERFACE_LINK_LIBRARIES "weft::weft;$(flags_of weft_executor)")
  add_library(weft::weft_testing STATIC IMPORTED)
  set_target_properties(weft::weft_testing PROPERTIES
    IMPORTED_LOCATION "\${_weft_prefix}/lib/libweft_testing.a"
    INTERFACE_LINK_LIBRARIES "weft::weft;$(flags_of weft_testing)")
  add_library(weft::weft_c SHARED IMPORTED)
  set_target_properties(weft::weft_c PROPERTIES
    IMPORTED_LOCATION "\${_weft_prefix}/lib/libweft_c.so.1"
    IMPORTED_SONAME libweft_c.so.1
    INTERFACE_INCLUDE_DIRECTORIES "\${_weft_prefix}/include")
endif()
EOF
cat > "$tree/lib/cmake/weft/weftConfigVersion.cmake" <<EOF
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
EOF
# Equal files give equal bytes.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$out" -C "$tree" .
