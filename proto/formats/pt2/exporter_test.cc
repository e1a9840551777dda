#include "proto/formats/pt2/exporter.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "proto/all_ops.h"
#include "proto/formats/pt2/graph.h"
#include "proto/formats/pt2/importer.h"
#include "proto/rewriter.h"

namespace weft::pt2 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

FileBytes FileOf(const std::string& bytes) {
  auto owner = std::make_shared<const std::string>(bytes);
  return {owner, *owner};
}

FileBytes Archived(const std::string& name) {
  static const auto* const files =
      new std::map<std::string, std::string>(testing::ReadTarXz("tests/data/pt2.tar.xz").value());
  return FileOf(files->at(absl::StrCat("pt2/", name, ".pt2")));
}

nlohmann::json GraphOf(const FileBytes& file) {
  const std::string text = Archive::Open(file)->ReadGraphText().value();
  return nlohmann::json::parse(text)["graph_module"];
}

// The last op of the type, or the one that writes a variable.
Op FindOp(const Program& program, absl::string_view type, absl::string_view output = "") {
  OpId found;
  for (const Op& op : AllOps(program)) {
    const bool writes = output.empty() || program.name(op.output_args()[0]) == output;
    if (op.type() == type && writes) found = op.id();
  }
  EXPECT_TRUE(found.valid()) << type;
  return program.op(found);
}

pb::OpDesc InPlace(const std::string& type, const std::string& in, const std::string& out,
                   const std::string& var) {
  pb::OpDesc op;
  op.set_type(type);
  for (auto [slots, name] :
       {std::make_pair(op.mutable_inputs(), in), {op.mutable_outputs(), out}}) {
    auto* const slot = slots->Add();
    slot->set_parameter(name);
    slot->add_arguments(var);
  }
  return op;
}

pb::OpDesc Scale(const std::string& var, float factor) {
  pb::OpDesc op = InPlace("scale", "X", "Out", var);
  auto* const attr = op.add_attrs();
  attr->set_name("scale");
  attr->set_type(pb::FLOAT);
  attr->set_f(factor);
  return op;
}

pb::OpDesc Cast(const std::string& from, int from_type, const std::string& to, int to_type) {
  pb::OpDesc op = InPlace("cast", "X", "Out", from);
  op.mutable_outputs(0)->set_arguments(0, to);
  for (const auto& [name, type] : {std::make_pair("in_dtype", from_type), {"out_dtype", to_type}}) {
    auto* const attr = op.add_attrs();
    attr->set_name(name);
    attr->set_type(pb::INT);
    attr->set_i(type);
  }
  return op;
}

pb::OpDesc AllReduce(const std::string& var) { return InPlace("all_reduce", "x", "out", var); }

class Pt2ExporterTest : public ::testing::Test {
 protected:
  Program program_ = ImportProgram(Archived("mlp_sgd")).value();

  void InsertAfter(const Op& op, const pb::OpDesc& inserted) {
    Rewriter rewriter(&program_);
    rewriter.InsertAfter(op.id(), inserted);
    WEFT_ASSERT_OK(rewriter.Commit());
  }
  std::string Refusal() { return std::string(ExportProgram(program_).status().message()); }
};

TEST_F(Pt2ExporterTest, WithoutEditsTheBytesAreThoseOfTheFile) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  EXPECT_TRUE(bytes == Archived("mlp_sgd").bytes);
}

TEST_F(Pt2ExporterTest, NodesKeepTheirBytesAndReadWhatInsertedOpsMake) {
  const FileBytes original = Archived("mlp_sgd");
  InsertAfter(FindOp(program_, "elementwise_add_grad", "0.bias@GRAD"), AllReduce("0.bias@GRAD"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(const Archive before, Archive::Open(original));
  WEFT_ASSERT_OK_AND_ASSIGN(const Archive after, Archive::Open(FileOf(bytes)));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string old_text, before.ReadGraphText());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string new_text, after.ReadGraphText());
  // Nodes are as they were, but for new ones, and the one that reads the gradient.
  std::set<std::string> changed;
  const nlohmann::json old_nodes = GraphOf(original)["graph"]["nodes"],
                       new_nodes = GraphOf(FileOf(bytes))["graph"]["nodes"];
  for (const auto& node : new_nodes) {
    if (std::find(old_nodes.begin(), old_nodes.end(), node) == old_nodes.end()) {
      changed.insert(node["target"]);
    }
  }
  EXPECT_EQ(changed, (std::set<std::string>{"torch.ops._c10d_functional.all_reduce.default",
                                            "torch.ops._c10d_functional.wait_tensor.default",
                                            "torch.ops.aten.add.Tensor"}));
  const size_t first = old_text.find("\"target\": \"torch.ops.aten.mm.default\"");
  EXPECT_TRUE(absl::StartsWith(new_text, old_text.substr(0, first)));
  // Read again, it is the same step.
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ImportProgram(FileOf(bytes)));
  const Op reduces = FindOp(again, "all_reduce");
  EXPECT_EQ(again.name(reduces.Output("out")[0]), "0.bias@GRAD");
  EXPECT_EQ(again.num_ops(), program_.num_ops());
}

// What comes after the updates is a new value of the parameter.
TEST_F(Pt2ExporterTest, OpsAfterAnUpdateMakeWhatTheStepLeaves) {
  InsertAfter(FindOp(program_, "sgd"), Scale("2.bias", 0.5));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  const nlohmann::json module = GraphOf(FileOf(bytes));
  const auto node = module["graph"]["nodes"].back();
  EXPECT_EQ(node["target"], "torch.ops.aten.mul.Scalar");
  EXPECT_EQ(node["inputs"][0]["arg"]["as_tensor"]["name"], "clone_7");
  const std::string made = node["outputs"][0]["as_tensor"]["name"];
  EXPECT_EQ(module["signature"]["output_specs"][3]["parameter_mutation"]["arg"]["name"], made);
  EXPECT_EQ(module["graph"]["outputs"][3]["as_tensor"]["name"], made);
}

// As LocalSGD averages. The update is found before what follows it.
TEST_F(Pt2ExporterTest, AveragesOfParametersComeAfterTheirUpdates) {
  InsertAfter(FindOp(program_, "sgd"), Scale("2.bias", 0.5));
  InsertAfter(FindOp(program_, "sgd"), AllReduce("2.bias"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(Program again, ImportProgram(FileOf(bytes)));
  EXPECT_EQ(again.num_ops(), program_.num_ops());
  const Op update = FindOp(again, "sgd", "2.bias"), sum = FindOp(again, "all_reduce", "2.bias"),
           mean = FindOp(again, "scale", "2.bias");
  EXPECT_LT(update.id().value(), sum.id().value());
  EXPECT_LT(sum.id().value(), mean.id().value());
  // What is inserted again comes after all of it, not between.
  WEFT_ASSERT_OK_AND_ASSIGN(Program between, ImportProgram(FileOf(bytes)));
  Rewriter rewriter(&between);
  rewriter.InsertAfter(update.id(), Scale("2.bias", 3));
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(std::string(ExportProgram(between).status().message()), HasSubstr("reads 2.bias"));
  Rewriter after(&again);
  after.InsertAfter(mean.id(), Scale("2.bias", 3));
  WEFT_ASSERT_OK(after.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string twice, ExportProgram(again));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program thrice, ImportProgram(FileOf(twice)));
  EXPECT_EQ(thrice.num_ops(), again.num_ops());
}

// The node of a cast to the same type has no op: the scale before it is the last that writes.
TEST_F(Pt2ExporterTest, CastsToTheSameTypeLeaveUpdatesFinished) {
  const Op update = FindOp(program_, "sgd");
  InsertAfter(update, Cast("2.bias", pb::VarType::FP32, "2.bias", pb::VarType::FP32));
  InsertAfter(update, Scale("2.bias", 0.5));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(program_, ImportProgram(FileOf(bytes)));
  InsertAfter(FindOp(program_, "scale", "2.bias"), AllReduce("2.bias"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string twice, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ImportProgram(FileOf(twice)));
  EXPECT_EQ(again.num_ops(), program_.num_ops());
}

// Weight decay is two ops, the second of which reads the gradient.
TEST_F(Pt2ExporterTest, OpsAmongThoseOfANodeComeBeforeIt) {
  OpId scale;
  for (const Op& op : AllOps(program_)) {
    if (op.type() == "scale" && program_.name(op.Input("X")[0]) == "0.bias") scale = op.id();
  }
  InsertAfter(program_.op(scale), AllReduce("0.bias@GRAD"));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ImportProgram(FileOf(bytes)));
  EXPECT_EQ(again.name(FindOp(again, "all_reduce").Output("out")[0]), "0.bias@GRAD");
  EXPECT_EQ(again.num_ops(), program_.num_ops());
}

// A transposed weight, which the forward pass reads, stands before the weight changes.
TEST_F(Pt2ExporterTest, NodesWithoutOpsAreThereOnceMore) {
  program_ = ImportProgram(Archived("mlp_sgd")).value();
  InsertAfter(FindOp(program_, "tanh"), Scale("2.weight", 2));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ImportProgram(FileOf(bytes)));
  const Op product = FindOp(again, "matmul_v2", "addmm_1@mm");
  EXPECT_EQ(again.name(product.Input("Y")[0]), "mul");
}

// aten._to_copy takes no dtype by position.
TEST_F(Pt2ExporterTest, CastsNameTheElementType) {
  InsertAfter(FindOp(program_, "sgd"),
              Cast("2.bias", pb::VarType::FP32, "2.bias", pb::VarType::FP32));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  const nlohmann::json module = GraphOf(FileOf(bytes));
  const auto node = module["graph"]["nodes"].back();
  EXPECT_EQ(node["target"], "torch.ops.aten._to_copy.default");
  EXPECT_EQ(node["inputs"][1]["arg"]["as_scalar_type"], 7);
  EXPECT_EQ(node["inputs"][1]["kind"], 2);
}

// Two layers have biases of one shape.
TEST_F(Pt2ExporterTest, GradientsThatAreCastBelongToTheirParameters) {
  program_ = ImportProgram(Archived("vit")).value();
  const std::string gradient = "block.fc2.bias@GRAD";
  const Op before = FindOp(program_, "elementwise_add_grad", gradient);
  const std::string bias(program_.name(before.Input("Y")[0]));
  Rewriter rewriter(&program_);
  pb::VarDesc half = program_.var(program_.block(0).FindVar(gradient)).ToProto();
  half.set_name("half");
  half.mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_data_type(pb::VarType::FP16);
  rewriter.AddVar(0, half);
  rewriter.InsertAfter(before.id(), Cast(gradient, pb::VarType::FP32, "half", pb::VarType::FP16));
  rewriter.InsertAfter(before.id(), Cast("half", pb::VarType::FP16, gradient, pb::VarType::FP32));
  WEFT_ASSERT_OK(rewriter.Commit());
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ExportProgram(program_));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program again, ImportProgram(FileOf(bytes)));
  int read = 0;
  for (const Op& op : AllOps(again)) {
    if (op.type() == "elementwise_add_grad" && again.name(op.Input("Y")[0]) == bias) ++read;
  }
  EXPECT_EQ(read, 1);
}

TEST_F(Pt2ExporterTest, ChangedOpsAreRefusedByName) {
  Rewriter rewriter(&program_);
  pb::OpDesc desc = FindOp(program_, "tanh").ToProto();
  desc.set_type("relu");
  rewriter.Replace(FindOp(program_, "tanh").id(), desc);
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Refusal(), HasSubstr("(relu)"));
}

TEST_F(Pt2ExporterTest, ErasedOpsAreRefused) {
  Rewriter rewriter(&program_);
  rewriter.Erase(FindOp(program_, "sgd").id());
  WEFT_ASSERT_OK(rewriter.Commit());
  EXPECT_THAT(Refusal(), HasSubstr("a pass has erased 1 ops of the step"));
}

TEST_F(Pt2ExporterTest, OpsWithoutAFormAreRefusedByName) {
  InsertAfter(FindOp(program_, "sgd"), InPlace("relu", "X", "Out", "2.bias"));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("(relu): a pass has inserted this op"),
                               HasSubstr("write .pb, .pbtxt or .prog")));
}

TEST_F(Pt2ExporterTest, OpsOnOtherVariablesAreRefusedByName) {
  InsertAfter(FindOp(program_, "tanh"), Scale("tanh", 2));
  EXPECT_THAT(Refusal(), HasSubstr("(scale): reads tanh: expected an input of the step"));
}

TEST(Pt2ExportProgramTest, OtherProgramsAreRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto([] {
                              pb::ProgramDesc desc;
                              desc.add_blocks()->set_idx(0);
                              desc.mutable_blocks(0)->set_parent_idx(-1);
                              return desc;
                            }()));
  EXPECT_THAT(std::string(ExportProgram(program).status().message()),
              HasSubstr("expected a program that was read from a .pt2 file"));
}

}  // namespace
}  // namespace weft::pt2
