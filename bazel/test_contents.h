// Headers that most tests include: bazel/precompiled.bzl.

#include "bazel/library_contents.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/framework.pb.h"
