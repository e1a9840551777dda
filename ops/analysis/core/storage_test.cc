#include "ops/analysis/core/storage.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kVars[] = R"(
    var a : fp32[2, 3]
    var b : fp32[4]
    var c : fp32[-1]
    var f : fp32[16]
    var g : fp32[16]
)";

Program Parse(absl::string_view ops, absl::string_view more_blocks = "") {
  return testing::BlockProgram(absl::StrCat(kVars, ops), more_blocks);
}

bool ShareMemory(const Program& program, absl::string_view a, absl::string_view b) {
  const Storage storage(program);
  return storage.ClassOf(0, program.FindSymbol(a)) == storage.ClassOf(0, program.FindSymbol(b));
}

Storage::Layout LayoutOfFirst(const Program& program) {
  const Storage storage(program);
  return storage.LayoutOf(storage.buffers().at(0));
}

TEST(StorageTest, TheOpThatMakesABufferSaysWhatIsInIt) {
  const Program program = Parse(R"(
    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, c]) {copy_data=true, dtype=5, persist_output=true}
    Out=[a] = relu(X=[a])
  )");
  const Storage storage(program);
  ASSERT_THAT(storage.buffers(), SizeIs(1));
  const Storage::Buffer& buffer = storage.buffers()[0];
  EXPECT_EQ(program.var(buffer.var).name(), "f");
  EXPECT_EQ(program.name(buffer.name), "f");
  ASSERT_THAT(buffer.part_vars, SizeIs(2));
  EXPECT_EQ(program.var(buffer.part_vars[1]).name(), "b");
  EXPECT_EQ(program.name(buffer.sources[1]), "c");
  EXPECT_TRUE(buffer.copies);
  EXPECT_TRUE(buffer.keeps);
  EXPECT_FALSE(buffer.constant.has_value());
  EXPECT_EQ(storage.MadeBy(program.block(0).ops()[0]), &buffer);
  EXPECT_EQ(storage.MadeBy(program.block(0).ops()[1]), nullptr);
}

TEST(StorageTest, ABufferIsFilledUnlessItGetsCopies) {
  const auto constant = [](absl::string_view attrs) {
    const Program program =
        Parse(absl::StrCat("FusedOutput=[f], Output=[a] = coalesce_tensor(Input=[a]) {", attrs,
                           ", constant=2.5, dtype=5}"));
    return Storage(program).buffers().at(0).constant;
  };
  EXPECT_EQ(constant("set_constant=true"), 2.5);
  EXPECT_EQ(constant("set_constant=false"), absl::nullopt);
  EXPECT_EQ(constant("copy_data=true, set_constant=true"), absl::nullopt);
}

TEST(StorageTest, PartsAndBuffersThatEverMeetAreOneClass) {
  const Program program = Parse(R"(
    FusedOutput=[f], Output=[a] = coalesce_tensor(Input=[c]) {dtype=5}
    FusedOutput=[g], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5}
    Out=[d] = relu(X=[c])
  )");
  EXPECT_TRUE(ShareMemory(program, "a", "f"));
  EXPECT_TRUE(ShareMemory(program, "b", "f"));
  EXPECT_FALSE(ShareMemory(program, "a", "c"));  // it gives the values, not the memory
  EXPECT_FALSE(ShareMemory(program, "c", "d"));
}

TEST(StorageTest, NamesThatAreNotDeclaredCountAsVariables) {
  const Program program =
      Parse("FusedOutput=[x], Output=[y, @EMPTY@] = coalesce_tensor(Input=[y, b]) {dtype=5}");
  EXPECT_TRUE(ShareMemory(program, "x", "y"));
  EXPECT_FALSE(ShareMemory(program, "x", "@EMPTY@"));
  const Storage storage(program);
  CurrentBuffers current(storage);
  current.Pass(program.block(0).ops()[0]);
  EXPECT_EQ(current.Named(0, program.FindSymbol("x")), &storage.buffers()[0]);
}

TEST(StorageTest, AVariableOfThatNameInABlockIsAnother) {
  const Program program = Parse(R"(
    FusedOutput=[f], Output=[a] = coalesce_tensor(Input=[a]) {dtype=5}
  )",
                                R"(
  block 1 parent=0 {
    var a : fp32[6]
    Out=[b] = relu(X=[a])
  }
)");
  const Storage storage(program);
  const Symbol a = program.FindSymbol("a"), f = program.FindSymbol("f");
  EXPECT_EQ(storage.ClassOf(0, a), storage.ClassOf(1, f));
  EXPECT_NE(storage.ClassOf(1, a), storage.ClassOf(1, f));
}

TEST(StorageTest, PartsLieAtMultiplesOfTheAlignment) {
  const Program aligned = Parse(
      "FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {align_size=32, dtype=5}");
  EXPECT_THAT(LayoutOfFirst(aligned).offsets, ElementsAre(0, 8));
  EXPECT_THAT(LayoutOfFirst(aligned).counts, ElementsAre(6, 4));
  EXPECT_EQ(LayoutOfFirst(aligned).size, 16);
  const Program dense = Parse(
      "FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, use_align=false}");
  EXPECT_THAT(LayoutOfFirst(dense).offsets, ElementsAre(0, 6));
  EXPECT_EQ(LayoutOfFirst(dense).size, 10);
}

TEST(StorageTest, WhereAShapeIsNotKnownNoOffsetIs) {
  const Program program =
      Parse("FusedOutput=[f], Output=[a, c] = coalesce_tensor(Input=[a, c]) {dtype=5}");
  EXPECT_FALSE(LayoutOfFirst(program).is_known());
  EXPECT_THAT(LayoutOfFirst(program).offsets, IsEmpty());
  const Program contradicted = Parse(
      "FusedOutput=[f], Output=[b] = coalesce_tensor(Input=[b]) {concated_shapes=longs[5], "
      "dtype=5}");
  EXPECT_FALSE(LayoutOfFirst(contradicted).is_known());
}

TEST(CurrentBuffersTest, TheLastOpThatWasPassedCounts) {
  const Program program = Parse(R"(
    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5}
    FusedOutput=[g], Output=[a] = coalesce_tensor(Input=[a]) {dtype=5}
    FusedOutput=[f], Output=[b] = coalesce_tensor(Input=[b]) {dtype=5}
  )");
  const Storage storage(program);
  const auto buffers = storage.buffers();
  const auto ops = program.block(0).ops();
  const Symbol a = program.FindSymbol("a"), b = program.FindSymbol("b");
  const Symbol f = program.FindSymbol("f");
  CurrentBuffers current(storage);
  EXPECT_EQ(current.Named(0, f), nullptr);
  current.Pass(ops[0]);
  EXPECT_EQ(current.Named(0, f), &buffers[0]);
  EXPECT_EQ(current.WithPart(0, a), &buffers[0]);
  current.Pass(ops[1]);
  EXPECT_EQ(current.WithPart(0, a), &buffers[1]);
  EXPECT_EQ(current.WithPart(0, b), &buffers[0]);
  current.Pass(ops[2]);
  EXPECT_EQ(current.Named(program.block(0).FindVar("f")), &buffers[2]);
  EXPECT_EQ(current.WithPart(0, b), &buffers[2]);
}

}  // namespace
}  // namespace weft
