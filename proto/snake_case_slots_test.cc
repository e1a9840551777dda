#include "proto/snake_case_slots.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

pb::OpDesc Rprop(const std::string& param, const std::string& etas, const std::string& out) {
  pb::OpDesc op;
  op.set_type("rprop");
  const auto add = [](const std::string& slot, const std::string& var, auto* slots) {
    auto* const added = slots->Add();
    added->set_parameter(slot);
    added->add_arguments(var);
  };
  add(param, "w", op.mutable_inputs());
  add(etas, "e", op.mutable_inputs());
  add("Unknown", "u", op.mutable_inputs());
  add(out, "w", op.mutable_outputs());
  return op;
}

pb::ProgramDesc With(const pb::OpDesc& op) {
  pb::ProgramDesc desc;
  pb::BlockDesc* const block = desc.add_blocks();
  block->set_idx(0);
  block->set_parent_idx(-1);
  for (const char* const name : {"w", "e", "u"}) {
    pb::VarDesc* const var = block->add_vars();
    var->set_name(name);
    var->mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  }
  *block->add_ops() = op;
  return desc;
}

const pb::OpDesc& InFile() {
  static const auto* const op = new pb::OpDesc(Rprop("param", "etas", "param_out"));
  return *op;
}

TEST(SnakeCaseSlotsTest, AreReadAsTheSchemaNamesThem) {
  const std::string bytes = With(InFile()).SerializeAsString();
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::Parse(bytes));
  const Op op = program.op(program.block(0).ops()[0]);
  ASSERT_EQ(op.Input("Param").size(), 1);
  EXPECT_EQ(program.name(op.Input("Etas")[0]), "e");
  EXPECT_TRUE(op.HasInputSlot("Unknown"));
  EXPECT_EQ(op.Output("ParamOut").size(), 1);
  EXPECT_FALSE(op.HasInputSlot("param"));
  EXPECT_EQ(op.ToProto().SerializeAsString(),
            Rprop("Param", "Etas", "ParamOut").SerializeAsString());
  EXPECT_EQ(program.Serialize(), bytes);
}

TEST(SnakeCaseSlotsTest, AreWrittenForRewrittenOpsAndMessages) {
  const pb::OpDesc camel = Rprop("Param", "Etas", "ParamOut");
  const std::string expected = InFile().SerializeAsString();
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, Program::FromProto(With(camel)));
  EXPECT_EQ(program.ToProto().blocks(0).ops(0).SerializeAsString(), expected);
  Rewriter rewriter(&program);
  rewriter.Append(0, camel);
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_EQ(program.ToProto().blocks(0).ops(1).SerializeAsString(), expected);
  EXPECT_EQ(program.op(program.block(0).ops()[1]).Input("Param").size(), 1);
}

TEST(SnakeCaseSlotsTest, OtherOpsKeepTheirNames) {
  pb::OpDesc op = InFile();
  op.set_type("sgd");
  ToCamelCaseSlots(&op);
  EXPECT_THAT(op.inputs(0).parameter(), "param");
  ToSnakeCaseSlots(&op);
  EXPECT_THAT(op.outputs(0).parameter(), HasSubstr("param_out"));
}

}  // namespace
}  // namespace weft
