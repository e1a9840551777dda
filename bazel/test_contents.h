// Headers that most tests include: bazel/precompiled.bzl. Only what Debian installs, so that no
// change of this repository compiles everything again.

#include "gmock/gmock.h"
#include "google/protobuf/arenastring.h"
#include "google/protobuf/extension_set.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "google/protobuf/generated_message_reflection.h"
#include "google/protobuf/message.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
