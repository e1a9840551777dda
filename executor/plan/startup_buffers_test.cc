#include "executor/plan/startup_buffers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/memory.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

Tensor Of(const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

std::vector<float> ValuesOf(const Tensor& tensor) {
  return std::vector<float>(tensor.data<float>(), tensor.data<float>() + tensor.size());
}

FindTensor In(Tensors* tensors) {
  return [tensors](const std::string& name) {
    const auto found = tensors->find(name);
    return found == tensors->end() ? nullptr : &found->second;
  };
}

// With an element of padding.
StartupBuffer Flat() { return {"flat", 4, {{"a", 0, 2}, {"b", 3, 1}}}; }

TEST(StartupBufferTest, ValuesAreCopiedInBothDirections) {
  Tensors tensors = {{"flat", Of({1, 2, 3, 4})}, {"a", Of({5, 6})}, {"b", Of({7})}};
  WEFT_ASSERT_OK(CopyStartupBuffer(Flat(), /*from_buffer=*/false, In(&tensors)));
  EXPECT_THAT(ValuesOf(tensors["flat"]), ElementsAre(5, 6, 3, 7));
  tensors["flat"].data<float>()[3] = 8;
  WEFT_ASSERT_OK(CopyStartupBuffer(Flat(), /*from_buffer=*/true, In(&tensors)));
  EXPECT_THAT(ValuesOf(tensors["b"]), ElementsAre(8));
}

TEST(StartupBufferTest, WhatHasNoValueStays) {
  Tensors tensors = {{"flat", Of({1, 2, 3, 4})}, {"a", Tensor()}, {"b", Of({7})}};
  WEFT_ASSERT_OK(CopyStartupBuffer(Flat(), /*from_buffer=*/false, In(&tensors)));
  EXPECT_THAT(ValuesOf(tensors["flat"]), ElementsAre(1, 2, 3, 7));
  tensors.erase("flat");
  WEFT_EXPECT_OK(CopyStartupBuffer(Flat(), /*from_buffer=*/false, In(&tensors)));
}

TEST(StartupBufferTest, OneMemoryIsSharedAgain) {
  const Tensors values = {{"flat", Of({1, 2, 3, 4})}, {"a", Of({5, 6})}, {"b", Of({7})}};
  const auto value = [&](const std::string& name) { return &values.at(name); };
  Tensors tensors = {{"flat", Tensor()}, {"a", Tensor()}, {"b", Tensor()}};
  WEFT_ASSERT_OK(LayOutStartupBuffer(Flat(), value, HostMemory(), In(&tensors)));
  for (auto& [name, tensor] : tensors) WEFT_ASSERT_OK(tensor.CopyFrom(values.at(name)));
  tensors["b"].data<float>()[0] = 9;
  EXPECT_EQ(tensors["flat"].data<float>()[3], 9);
}

TEST(StartupBufferTest, OtherPartsShareMemoryWithoutOneThatIsMissing) {
  const Tensors values = {{"flat", Of({1, 2, 3, 4})}, {"b", Of({7})}};
  const auto value = [&](const std::string& name) -> const Tensor* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : &found->second;
  };
  Tensors tensors = {{"flat", Tensor()}, {"a", Tensor()}, {"b", Tensor()}};
  WEFT_ASSERT_OK(LayOutStartupBuffer(Flat(), value, HostMemory(), In(&tensors)));
  EXPECT_FALSE(tensors["a"].allocated());
  WEFT_ASSERT_OK(tensors["flat"].CopyFrom(values.at("flat")));
  tensors["b"].data<float>()[0] = 9;
  EXPECT_EQ(tensors["flat"].data<float>()[3], 9);
}

TEST(StartupBufferTest, BuffersHaveTheValuesOfPartsThatAFileLacks) {
  const std::vector<StartupBuffer> buffers = {Flat()};
  WEFT_ASSERT_OK_AND_ASSIGN(
      const auto parts, PartsOfGivenBuffers(buffers, {{"flat", Of({1, 2, 3, 4})}, {"b", Of({7})}}));
  ASSERT_EQ(parts.size(), 1);
  EXPECT_THAT(ValuesOf(parts.at("a")), ElementsAre(1, 2));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto none, PartsOfGivenBuffers(buffers, {{"b", Of({7})}}));
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(PartsOfGivenBuffers(buffers, {{"flat", Of({1})}}).status(),
              IsFailedPrecondition("variable flat: expected 4 elements"));
}

TEST(StartupBufferTest, PartsOfAnotherSizeAreNamed) {
  Tensors tensors = {{"flat", Of({1, 2, 3, 4})}, {"a", Of({5})}, {"b", Of({7})}};
  EXPECT_THAT(CopyStartupBuffer(Flat(), /*from_buffer=*/false, In(&tensors)),
              IsFailedPrecondition(
                  "variable a: expected 2 elements, as the startup program gives it, found 1"));
  tensors["a"] = Of({5, 6});
  StartupBuffer buffer = Flat();
  buffer.parts[1].begin = 4;
  EXPECT_THAT(
      CopyStartupBuffer(buffer, /*from_buffer=*/false, In(&tensors)),
      IsFailedPrecondition(
          "variable b: expected a part of flat of fp32[4], found fp32 elements 4 to 5 of it"));
  buffer.size = 5;
  EXPECT_THAT(CopyStartupBuffer(buffer, /*from_buffer=*/false, In(&tensors)),
              IsFailedPrecondition("variable flat: expected 5 elements"));
}

}  // namespace
}  // namespace weft::testing
