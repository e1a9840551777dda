#include "ops/analysis/values/flat_buffers.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr char kOps[] =
    "    var share : fp32[5] persistable\n"
    "    var whole : fp32[10]\n"
    "    var sent : fp32[10]\n"
    "    var flat : fp32[6]\n"
    "    var w_flat : fp32[6]\n"
    "    var b : fp32[4]\n"
    "    var b_grad : fp32[4]\n"
    "    var w : fp32[2, 3]\n"
    "    var w_grad : fp32[2, 3]\n"
    "    var mine : fp32[5]\n"
    "    Out=[whole] = c_allgather(X=[share]) {nranks=2, ring_id=0}\n"
    "    Out=[flat, b] = split(X=[whole]) {axis=0, sections=ints[6, 4]}\n"
    "    Out=[w] = reshape2(X=[flat]) {shape=ints[2, 3]}\n"
    "    Out=[w_grad] = scale(X=[w]) {scale=2.0}\n"
    "    Out=[b_grad] = scale(X=[b]) {scale=2.0}\n"
    "    Out=[w_flat] = reshape2(X=[w_grad]) {shape=ints[6]}\n"
    "    Out=[sent] = concat(X=[w_flat, b_grad]) {axis=0}\n"
    "    Out=[mine] = c_reducescatter(X=[sent]) {nranks=2, ring_id=0}\n";

struct Found {
  std::vector<std::string> made, taken;  // names: "flat(other)"; empty: no such buffer
  std::vector<int64_t> elements;         // of made
};

Found Find(const std::string& ops) {
  const absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(ops, ""));
  WEFT_EXPECT_OK(program.status());
  Found found;
  if (!program.ok()) return found;
  const FlatBuffers buffers(*program);
  const auto names = [&](const FlatBuffer* buffer) {
    std::vector<std::string> all;
    if (buffer == nullptr) return all;
    for (const FlatBuffer::Part& part : buffer->parts) {
      all.emplace_back(program->var(part.flat).name());
      for (VarId other : part.others) {
        absl::StrAppend(&all.back(), "(", program->var(other).name(), ")");
      }
    }
    return all;
  };
  const FlatBuffer* const made = buffers.MadeOf(program->block(0).FindVar("sent"));
  found.made = names(made);
  for (size_t i = 0; i < found.made.size(); ++i) {
    found.elements.push_back(made->parts[i].elements);
  }
  for (const FlatBuffer& taken : buffers.TakenApart(program->block(0).FindVar("whole"))) {
    const std::vector<std::string> all = names(&taken);
    found.taken.insert(found.taken.end(), all.begin(), all.end());
  }
  return found;
}

Found FindAfter(const std::string& old, const std::string& changed) {
  const std::string ops = absl::StrReplaceAll(kOps, {{old, changed}});
  EXPECT_NE(ops, kOps);
  return Find(ops);
}

TEST(FlatBuffers, AreConcatsAndSplitsOfFlatTensors) {
  const Found found = Find(kOps);
  EXPECT_THAT(found.made, ElementsAre("w_flat(w_grad)", "b_grad"));
  EXPECT_THAT(found.elements, ElementsAre(6, 4));
  EXPECT_THAT(found.taken, ElementsAre("flat(w)", "b"));
}

TEST(FlatBuffers, HaveOneWriterBeforeTheirReader) {
  const std::string again = "    Out=[sent] = scale(X=[sent]) {scale=2.0}\n    Out=[mine]";
  EXPECT_TRUE(FindAfter("    Out=[mine]", again).made.empty());
  // What is reshaped changes afterwards: only the copy of it counts.
  const std::string changes = "    Out=[w_grad] = scale(X=[w_grad]) {scale=2.0}\n    Out=[sent]";
  EXPECT_THAT(FindAfter("    Out=[sent]", changes).made, ElementsAre("w_flat", "b_grad"));
  const std::string writes = "    Out=[b] = scale(X=[b]) {scale=2.0}\n    Out=[w_grad]";
  EXPECT_TRUE(FindAfter("    Out=[w_grad]", writes).taken.empty());
}

TEST(FlatBuffers, HaveAnyNumberOfReaders) {
  const std::string reads =
      "    Out=[w_grad] = scale(X=[w]) {scale=2.0}\n"
      "    Out=[mine] = slice(Input=[whole]) {axes=ints[0], starts=ints[0], "
      "ends=ints[5]}\n";
  EXPECT_THAT(FindAfter("    Out=[w_grad] = scale(X=[w]) {scale=2.0}\n", reads).taken,
              ElementsAre("flat(w)", "b"));
  const std::string again =
      "    var v : fp32[3, 2]\n"
      "    var v_flat : fp32[6]\n"
      "    var c : fp32[4]\n"
      "    Out=[v] = reshape2(X=[flat]) {shape=ints[3, 2]}\n"
      "    Out=[v_flat, c] = split(X=[whole]) {axis=0, sections=ints[6, 4]}\n"
      "    Out=[w_grad] = scale(X=[w])";
  EXPECT_THAT(FindAfter("    Out=[w_grad] = scale(X=[w])", again).taken,
              ElementsAre("flat(w)(v)", "b", "v_flat", "c"));
}

TEST(FlatBuffers, HaveKnownSizes) {
  EXPECT_TRUE(FindAfter("sections=ints[6, 4]", "axis=1").taken.empty());
  EXPECT_TRUE(FindAfter("{axis=0}\n    Out=[mine]", "{axis=1}\n    Out=[mine]").made.empty());
  const Found unknown = FindAfter("flat : fp32[6]", "flat : fp32[-1]");
  EXPECT_TRUE(unknown.made.empty());
  EXPECT_TRUE(unknown.taken.empty());
}

}  // namespace
}  // namespace weft
