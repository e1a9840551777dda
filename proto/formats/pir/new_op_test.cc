// Attributes of inserted ops, and ops without a form.
#include "proto/formats/pir/new_op.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/exporter.h"
#include "proto/formats/pir/exporter_testing.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::ProgramBuilder;

// An attribute that the op of PIR does not have says nothing, or is refused.
TEST(ExporterTest, NoAttributeIsLost) {
  const auto insert = [](const std::string& type, absl::string_view name, auto set) {
    pb::OpDesc op = InPlace(type, "fc_0.w_0@GRAD");
    pb::OpDesc::Attr* const attr = op.add_attrs();
    attr->set_name(std::string(name));
    set(attr);
    return Edit("fit_a_line/main.json").InsertAfter(10, {op});
  };
  const auto integer = [](int value) {
    return [value](pb::OpDesc::Attr* attr) {
      attr->set_type(pb::INT);
      attr->set_i(value);
    };
  };
  const auto group = [](pb::OpDesc::Attr* attr) {
    attr->set_type(pb::INTS);
    attr->add_ints(0);
    attr->add_ints(2);
  };
  EXPECT_THAT(std::string(insert("all_reduce", "rings", group).status().message()),
              HasSubstr("op 11 (all_reduce): attribute rings: the op has none in PIR, found "
                        "ints[0, 2]"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string in_group, insert("all_reduce", "group_ranks", group));
  EXPECT_THAT(in_group, HasSubstr(R"({"AT":{"#":"0.a_array","D":[{"#":"0.a_i64","D":0},)"
                                  R"({"#":"0.a_i64","D":2}]},"N":"group_ranks"})"));
  EXPECT_THAT(std::string(insert("square", "axis", integer(0)).status().message()),
              HasSubstr("op 11 (square): attribute axis: the op has none in PIR, found 0"));
  WEFT_EXPECT_OK(insert("square", "axis", integer(-1)).status());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, insert("square", "nranks", integer(4)));
  EXPECT_THAT(text, HasSubstr(R"("A":[{"AT":{"#":"0.a_i32","D":4},"N":"nranks"}])"));
}

TEST(ExporterTest, ClipsHaveTheirBounds) {
  pb::OpDesc op = InPlace("clip", "fc_0.w_0@GRAD");
  for (const auto& [name, value] : {std::pair<const char*, float>{"min", -2}, {"max", 3}}) {
    pb::OpDesc::Attr* const attr = op.add_attrs();
    attr->set_name(name);
    attr->set_type(pb::FLOAT);
    attr->set_f(value);
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Edit("fit_a_line/main.json").InsertAfter(10, {op}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(text));
  const auto ops = program.block(0).ops();
  const auto clip = std::find_if(ops.begin(), ops.end(),
                                 [&](OpId id) { return program.op(id).type() == "clip"; });
  ASSERT_TRUE(clip != ops.end());
  EXPECT_EQ(program.op(*clip).FloatAttr("min"), -2);
  EXPECT_EQ(program.op(*clip).FloatAttr("max"), 3);
}

TEST(ExporterTest, NumbersThatJsonLacksAreTexts) {
  pb::OpDesc op = InPlace("scale", "fc_0.w_0@GRAD");
  for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
    if (attr.name() == "scale") attr.set_f(-std::numeric_limits<float>::infinity());
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text,
                            Edit("fit_a_line/main.json").InsertAfter(10, {op}));
  EXPECT_THAT(text, HasSubstr(R"({"AT":{"#":"0.a_f64","VD":"-INF"},"N":"value"})"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(text));
  int count = 0;
  for (OpId id : program.block(0).ops()) {
    const Op scale = program.op(id);
    if (scale.type() != "scale") continue;
    EXPECT_EQ(scale.FloatAttr("scale"), -std::numeric_limits<double>::infinity());
    ++count;
  }
  EXPECT_EQ(count, 1);
  EXPECT_THAT(
      std::string(ImportBytes(absl::StrReplaceAll(text, {{"-INF", "1.0"}})).status().message()),
      HasSubstr("INF, -INF or NaN (VD)"));
}

// Its gradient op does not read the running statistics.
TEST(ExporterTest, BatchNormMayBecomeSynchronized) {
  const std::string& file = Files().at("resnet18_cifar/main.json");
  WEFT_ASSERT_OK_AND_ASSIGN(Program program, ImportBytes(file));
  Rewriter rewriter(&program);
  int num_changed = 0;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() != "batch_norm" && op.type() != "batch_norm_grad") continue;
    pb::OpDesc desc = op.ToProto();
    desc.set_type(absl::StrCat("sync_", op.type()));
    rewriter.Replace(id, desc);
    ++num_changed;
  }
  ASSERT_GT(num_changed, 0);
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(program));
  const std::vector<std::string> before = Lines(file), after = Lines(text);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    std::vector<std::string> words = absl::StrSplit(before[i], ' ');
    if (words[0] == "1.batch_norm_") words[0] = "1.sync_batch_norm_";
    if (words[0] == "1.batch_norm_grad") {
      // Name, three results, the arrow, x, scale and bias.
      words[0] = "1.sync_batch_norm_grad";
      words.erase(words.begin() + 8, words.begin() + 10);
    }
    EXPECT_EQ(after[i], absl::StrJoin(words, " "));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Program read, ImportBytes(text));
  ASSERT_EQ(read.block(0).ops().size(), program.block(0).ops().size());
  for (size_t i = 0; i < read.block(0).ops().size(); ++i) {
    const Op now = read.op(read.block(0).ops()[i]), was = program.op(program.block(0).ops()[i]);
    EXPECT_EQ(now.type(), was.type());
    const size_t dropped = now.type() == "sync_batch_norm_grad" ? 2 : 0;
    EXPECT_EQ(now.args().size() + dropped, was.args().size()) << now.DebugName();
  }
}

// As gradient ops of gathered samples do: what is inserted makes the old variable.
TEST(ExporterTest, OpsMayWriteOtherVariables) {
  Edit edit("fit_a_line/main.json");
  const std::vector<std::string> before = Lines(Files().at("fit_a_line/main.json"));
  const Op square = edit.program().op(edit.op(3));
  ASSERT_EQ(square.type(), "square");
  const std::string old(edit.program().name(square.output_args()[0]));
  pb::OpDesc other = square.ToProto();
  other.mutable_outputs(0)->set_arguments(0, "whole");
  pb::OpDesc part = InPlace("scale", old);
  part.mutable_inputs(0)->set_arguments(0, "whole");
  pb::VarDesc var =
      edit.program().var(edit.program().block(0).FindVar(square.output_args()[0])).ToProto();
  var.set_name("whole");
  Rewriter rewriter(&edit.program());
  rewriter.AddVar(0, var);
  rewriter.Replace(square.id(), other);
  rewriter.InsertAfter(square.id(), part);
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string text, ExportProgram(edit.program()));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program read, ImportBytes(text));
  // The square, the scale of its result, and the mean of that.
  const auto ops = read.block(0).ops();
  const auto scale =
      std::find_if(ops.begin(), ops.end(), [&](OpId id) { return read.op(id).type() == "scale"; });
  ASSERT_TRUE(scale != ops.end() && scale != ops.begin());
  EXPECT_EQ(read.op(*scale).input_args()[0], read.op(*(scale - 1)).output_args()[0]);
  EXPECT_EQ(read.op(*(scale - 1)).type(), "square");
  EXPECT_EQ(read.op(*(scale + 1)).input_args()[0], read.op(*scale).output_args()[0]);
  EXPECT_NE(read.op(*scale).input_args()[0], read.op(*scale).output_args()[0]);
}

TEST(ExporterTest, RefusesWhatHasNoForm) {
  const auto error = [](const pb::OpDesc& op) {
    return std::string(Edit("fit_a_line/main.json").InsertAfter(10, {op}).status().message());
  };
  EXPECT_THAT(error(InPlace("c_allgather", "fc_0.w_0@GRAD")),
              HasSubstr("op 11 (c_allgather): a pass has inserted this op, which Paddle 3 does not "
                        "have; a file .pb holds it"));
  EXPECT_THAT(error(InPlace("memcpy_h2d", "fc_0.w_0@GRAD")),
              HasSubstr("op 11 (memcpy_h2d): a pass has inserted this op, and it has no form"));
  {
    Edit edit("fit_a_line/main.json");
    pb::OpDesc square = edit.program().op(edit.op(3)).ToProto();
    square.set_type("relu");
    Rewriter rewriter(&edit.program());
    rewriter.Replace(edit.op(3), square);
    WEFT_ASSERT_OK(rewriter.Commit());
    EXPECT_THAT(std::string(ExportProgram(edit.program()).status().message()),
                AllOf(HasSubstr("op 3 (relu): a pass has changed this op"),
                      HasSubstr("; write a .pb file")));
  }
  const Program other = ProgramBuilder().Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  EXPECT_THAT(std::string(ExportProgram(other).status().message()),
              HasSubstr("expected a program that was read from a .json file"));
}

}  // namespace
}  // namespace weft::pir
