#!/bin/bash
# Packs what bazel/install_tree.bzl lists.
#
# usage: pack_install_tree.sh FILES VERSION_H LICENSE OUT.tar
#
# FILES has lines "archive PATH", "header PATH NAME" and "flag LINKER_FLAG".
set -euo pipefail
files=$1 version_h=$2 license=$3 out=$4
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' "$version_h")
[ -n "$version" ]
mkdir -p "$tree"/{include/weft,lib/cmake/weft,lib/pkgconfig,share/doc/weft}
cp "$license" "$tree/share/doc/weft/"

# An embedder's own headers may be called proto/... too.
while read -r kind path name; do
  [ "$kind" = header ] || continue
  mkdir -p "$tree/include/weft/$(dirname "$name")"
  sed -E 's|^#include "(base\|ops\|proto\|transpiler)/|#include "weft/\1/|' "$path" \
    > "$tree/include/weft/$name"
done < "$files"

{
  echo "create $tree/lib/libweft.a"
  sed -n 's/^archive /addlib /p' "$files"
  echo save
  echo end
} | ar -M

flags=$(sed -n 's/^flag //p' "$files" | tr '\n' ' ')
cat > "$tree/lib/pkgconfig/weft.pc" <<EOF
prefix=\${pcfiledir}/../..
Name: weft
Description: Rewrites and verifies static training programs
Version: $version
Cflags: -I\${prefix}/include
Libs: \${prefix}/lib/libweft.a $flags
EOF

cat > "$tree/lib/cmake/weft/weftConfig.cmake" <<EOF
# find_package(weft) defines the target weft::weft.
get_filename_component(_weft_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET weft::weft)
  add_library(weft::weft STATIC IMPORTED)
  set_target_properties(weft::weft PROPERTIES
    IMPORTED_LOCATION "\${_weft_prefix}/lib/libweft.a"
    INTERFACE_INCLUDE_DIRECTORIES "\${_weft_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES "$(sed -n 's/^flag //p' "$files" | paste -sd' ')")
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
