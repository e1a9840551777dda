#include "transpiler/passes/support/fused_buffer.h"

#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

const FusedTensors kTensors = {DType::kFloat32, {"a", "b"}, {{3}, {65, 2}}};

std::string Text(const pb::OpDesc& op) {
  pb::ProgramDesc program;
  *program.add_blocks()->add_ops() = op;
  const std::string text = testing::MessageText(program, PrintOptions::Short());
  return text.substr(text.find("FusedOutput"), text.rfind(')') - text.find("FusedOutput"));
}

const pb::OpDesc::Attr* FindAttr(const pb::OpDesc& op, const std::string& name) {
  for (const pb::OpDesc::Attr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

TEST(FusedBuffer, EverySliceIsPaddedTo256Bytes) {
  const pb::VarDesc buffer = FusedBuffer("buffer", kTensors);
  EXPECT_EQ(buffer.name(), "buffer");
  EXPECT_FALSE(buffer.persistable());
  const auto& tensor = buffer.type().lod_tensor().tensor();
  ASSERT_EQ(tensor.dims_size(), 1);
  EXPECT_EQ(tensor.dims(0), 64 + 192);  // of 4 bytes
  EXPECT_EQ(tensor.data_type(), pb::VarType::FP32);
  EXPECT_EQ(
      FusedBuffer("half", {DType::kFloat16, {"a"}, {{3}}}).type().lod_tensor().tensor().dims(0),
      128);
}

TEST(FusedBuffer, ValuesMoveAlongOrShapesAreGiven) {
  const pb::OpDesc copied = Coalesce(kTensors, "buffer", FusedValues::kCopied, kRoleBackward);
  EXPECT_TRUE(FindAttr(copied, "copy_data")->b());
  EXPECT_EQ(FindAttr(copied, "align_size")->i(), 256);
  EXPECT_EQ(FindAttr(copied, "concated_shapes"), nullptr);
  const pb::OpDesc discarded = Coalesce(kTensors, "buffer", FusedValues::kDiscarded, kRoleBackward);
  EXPECT_FALSE(FindAttr(discarded, "copy_data")->b());
  const auto& shapes = FindAttr(discarded, "concated_shapes")->longs();
  EXPECT_EQ(std::vector<int64_t>(shapes.begin(), shapes.end()), (std::vector<int64_t>{3, 65, 2}));
  const auto& ranks = FindAttr(discarded, "concated_ranks")->longs();
  EXPECT_EQ(std::vector<int64_t>(ranks.begin(), ranks.end()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Text(copied), "FusedOutput=[buffer], Output=[a, b] = coalesce_tensor(Input=[a, b]");
}

TEST(FusedBuffer, PaddleCopiesAndKeepsTheAlignmentOfTheOp) {
  const pb::OpDesc op = PaddleCoalesce({"a"}, pb::VarType::FP16, "buffer", kRoleForward);
  EXPECT_TRUE(FindAttr(op, "copy_data")->b());
  EXPECT_EQ(FindAttr(op, "dtype")->i(), pb::VarType::FP16);
  EXPECT_EQ(FindAttr(op, "align_size")->i(), -1);
  EXPECT_EQ(FindAttr(op, "op_role")->i(), kRoleForward);
}

}  // namespace
}  // namespace weft
