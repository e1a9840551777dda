#include "proto/formats/pt2/importer.h"

#include <zip.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "base/zip_archive.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft::pt2 {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

FileBytes FileOf(const std::string& bytes) {
  auto owner = std::make_shared<const std::string>(bytes);
  return {owner, *owner};
}

// An archive of tests/data/pt2.tar.xz.
const std::string& Archived(const std::string& name) {
  static const auto* const files =
      new std::map<std::string, std::string>(testing::ReadTarXz("tests/data/pt2.tar.xz").value());
  return files->at(absl::StrCat("pt2/", name, ".pt2"));
}

// The same archive, in whose entry `entry` (by its end) `from` is `to`. Without the entry, if
// `from` is empty.
std::string Edited(const std::string& name, const std::string& entry, const std::string& from,
                   const std::string& to, int compression = ZIP_CM_STORE) {
  const ZipArchive archive = ZipArchive::Open(FileOf(Archived(name))).value();
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = zip_source_buffer_create(nullptr, 0, 0, &error);
  zip_source_keep(source);
  zip_t* const edited = zip_open_from_source(source, ZIP_TRUNCATE, &error);
  std::map<std::string, std::string> entries;  // until the archive is closed
  for (uint64_t i = 0; i < archive.num_entries(); ++i) {
    const std::string path = archive.NameOf(i);
    const bool is_edited = absl::EndsWith(path, entry);
    if (is_edited && from.empty()) continue;
    std::string& bytes = entries[path];
    EXPECT_TRUE(archive
                    .Visit(i,
                           [&bytes](ZipEntry& open) {
                             bytes.resize(open.size());
                             return open.Read(bytes.data(), bytes.size());
                           })
                    .ok());
    if (is_edited) {
      EXPECT_TRUE(absl::StrContains(bytes, from)) << from;
      bytes = absl::StrReplaceAll(bytes, {{from, to}});
    }
    const zip_int64_t added = zip_file_add(
        edited, path.c_str(), zip_source_buffer(edited, bytes.data(), bytes.size(), 0), 0);
    zip_set_file_compression(edited, added, compression, 0);
  }
  EXPECT_EQ(zip_close(edited), 0);
  zip_source_open(source);
  zip_source_seek(source, 0, SEEK_END);
  std::string bytes(zip_source_tell(source), '\0');
  zip_source_seek(source, 0, SEEK_SET);
  zip_source_read(source, bytes.data(), bytes.size());
  zip_source_close(source);
  zip_source_free(source);
  return bytes;
}

std::string Refusal(const std::string& bytes) {
  return std::string(ReadStartValues(FileOf(bytes)).status().message());
}

const Op FindOp(const Program& program, absl::string_view type) {
  for (const Op& op : AllOps(program)) {
    if (op.type() == type) return op;
  }
  ADD_FAILURE() << "no " << type;
  return *AllOps(program).begin();
}

TEST(Pt2ImporterTest, RolesAndGradientsFollowFromTheData) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("lenet_adam"))));
  EXPECT_EQ(FindOp(program, "conv2d").role(), kRoleForward);
  EXPECT_EQ(FindOp(program, "nll_loss").role(), kRoleForward | kRoleLoss);
  EXPECT_EQ(FindOp(program, "fill_any_like").role(), kRoleBackward | kRoleLoss);
  EXPECT_EQ(FindOp(program, "relu_grad").role(), kRoleBackward);
  EXPECT_EQ(FindOp(program, "adam").role(), kRoleOptimize);
  std::map<std::string, std::string> pairs;
  for (const Op& op : AllOps(program)) {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto of_op, ParamGrads(op));
    for (const ParamGrad& pair : of_op) pairs[pair.param] = pair.grad;
  }
  EXPECT_EQ(pairs.size(), 8u);
  EXPECT_EQ(pairs["conv1.weight"], "conv1.weight@GRAD");
}

TEST(Pt2ImporterTest, SizesOfTheBatchAreUnknown) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("mlp_sgd"))));
  const Var input = program.var(program.block(0).FindVar("input"));
  EXPECT_TRUE(input.need_check_feed());
  EXPECT_EQ(input.Tensor()->dims(0), -1);
  EXPECT_EQ(input.Tensor()->dims(1), 6);
}

TEST(Pt2ImporterTest, DecayIsNoPartOfTheGradient) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("mlp_sgd"))));
  const Op sgd = FindOp(program, "sgd");
  EXPECT_NE(program.name(sgd.Input("Grad")[0]), "0.weight@GRAD");
  const Op decay = FindOp(program, "elementwise_add_grad");
  EXPECT_EQ(decay.role(), kRoleBackward);
}

TEST(Pt2ImporterTest, DecoupledDecayIsThatOfTheGroup) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("mlp_adamw"))));
  const Op decays = FindOp(program, "adamw"), others = FindOp(program, "adam");
  EXPECT_EQ(program.name(decays.Input("Param")[0]), "0.weight");
  EXPECT_NEAR(*decays.FloatAttr("coeff"), 0.1, 1e-6);
  EXPECT_EQ(program.name(others.Input("Param")[0]), "0.bias");
}

TEST(Pt2ImporterTest, StartValuesAreThoseOfTheArchiveAndTheRate) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto values, ReadStartValues(FileOf(Archived("mlp_momentum"))));
  EXPECT_EQ(values.size(), 9u);
  EXPECT_EQ(values.at("0.weight").bytes.size(), 8 * 6 * sizeof(float));
  EXPECT_EQ(*reinterpret_cast<const float*>(values.at("optimizer.lr").bytes.data()), 0.1f);
}

TEST(Pt2ImporterTest, MissingOperatorsAreNamedWithTheLineOfTheScript) {
  EXPECT_THAT(Refusal(Archived("operator")),
              AllOf(HasSubstr("no op of Weft computes aten.digamma.default, aten.lgamma.default"),
                    Not(HasSubstr("aten.mul.Scalar"))));
  const std::string bytes = Edited("lenet_nesterov", "model.json",
                                   "aten.max_pool2d_with_indices.default", "aten.pool.default");
  EXPECT_THAT(Refusal(bytes),
              AllOf(HasSubstr("node max_pool2d_with_indices (aten.pool.default): no op of Weft "
                              "computes aten.pool.default (2 nodes)"),
                    HasSubstr("File \"make_steps.py\", line "),
                    HasSubstr(", in forward: x = F.max_pool2d(")));
}

TEST(Pt2ImporterTest, OperatorsBecomeOpsThatThereAre) {
  const auto operators = ReadOperators();
  EXPECT_THAT(operators, Contains(Pair("aten.elu_backward.default", "elu_grad")));
  EXPECT_THAT(operators, Contains(Pair("aten.convolution.default", "")));
  for (const auto& [name, op] : operators) {
    EXPECT_TRUE(op.empty() || FindOpSchema(op) != nullptr) << name << ": " << op;
  }
}

TEST(Pt2ImporterTest, FactorsOfNoFunctionAreRefused) {
  EXPECT_THAT(ImportProgram(FileOf(Edited("mlp_units", "models/model.json", "1.0507009873554805",
                                          "-1.0507009873554805"))),
              testing::StatusIs(absl::StatusCode::kUnimplemented,
                                HasSubstr("expected elu, selu (a positive scale) or celu")));
}

TEST(Pt2ImporterTest, AnUpdateWithoutAGradientIsRefusedWithTheParameter) {
  EXPECT_THAT(Refusal(Archived("drift")),
              HasSubstr("parameter v: expected an update by one gradient, which is linear in the "
                        "gradient of the loss, found none"));
  // A gradient that is no longer linear in that of the loss.
  EXPECT_THAT(
      Refusal(Edited("mlp_sgd", "model.json", "aten.tanh_backward.default", "aten.atan2.default")),
      HasSubstr("no op of Weft computes aten.atan2.default"));
}

int CountOps(const Program& program, absl::string_view type) {
  int count = 0;
  for (const Op& op : AllOps(program)) count += op.type() == type ? 1 : 0;
  return count;
}

// What no op computes is computed as the nodes say: the first update of lenet_adam, if it divides
// by the second moment of another beta.
TEST(Pt2ImporterTest, UpdatesOfNoOptimizerAreComputed) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportProgram(FileOf(Edited("lenet_adam", "model.json", "\"as_float\": 0.0010000000000000009",
                                  "\"as_float\": 0.002"))));
  EXPECT_EQ(CountOps(program, "adam"), 0);
  const Op writer = FindOp(program, "assign");
  EXPECT_EQ(program.name(writer.Output("Out")[0]), "conv1.weight");
  EXPECT_EQ(writer.role(), kRoleOptimize);
}

// A factor after the update is no average of it if a moving average reads the product.
TEST(Pt2ImporterTest, ParametersThatOtherStatesReadAreComputed) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("average"))));
  EXPECT_EQ(CountOps(program, "sgd"), 0);
  std::vector<std::string> written;
  for (const Op& op : AllOps(program)) {
    if (op.type() == "assign") written.emplace_back(program.name(op.Output("Out")[0]));
  }
  EXPECT_THAT(written, UnorderedElementsAre("w", "average"));
}

// An update that is computed in half precision, and averaged so, is complete in fp32.
TEST(Pt2ImporterTest, AnOpWritesAParameterInItsType) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("half"))));
  const Op writer = FindOp(program, "assign");
  EXPECT_EQ(program.name(writer.Output("Out")[0]), "w");
  EXPECT_EQ(program.var(program.block(0).FindVar(program.name(writer.Input("X")[0])))
                .Tensor()
                ->data_type(),
            pb::VarType::FP32);
}

// The gradient is what is reduced over the ranks: before its sign is taken, or its norm.
TEST(Pt2ImporterTest, GradientsGoThroughDropout) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("dropout"))));
  const Op gradient = FindOp(program, "dropout_grad");
  EXPECT_EQ(gradient.Input("Mask")[0], FindOp(program, "dropout").Output("Mask")[0]);
}

TEST(Pt2ImporterTest, GradientsAreBeforeSignsAndClipping) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program sign, ImportProgram(FileOf(Archived("sign"))));
  const Op op = FindOp(sign, "sign");
  EXPECT_EQ(sign.name(op.Input("X")[0]), "w@GRAD");
  EXPECT_EQ(op.role(), kRoleOptimize);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program clip, ImportProgram(FileOf(Archived("mlp_clip"))));
  const Op square = FindOp(clip, "square");
  EXPECT_EQ(clip.name(square.Input("X")[0]), "0.weight@GRAD");
  EXPECT_EQ(square.role(), kRoleOptimize);
}

TEST(Pt2ImporterTest, RunningStatisticsAreWrittenInPlace) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportProgram(FileOf(Archived("resnet"))));
  const Op op = FindOp(program, "batch_norm");
  EXPECT_EQ(program.name(op.Output("MeanOut")[0]), "norm1.running_mean");
  EXPECT_EQ(program.name(op.Input("Variance")[0]), "norm1.running_var");
  EXPECT_NEAR(*op.FloatAttr("momentum"), 0.9, 1e-6);
}

TEST(Pt2ImporterTest, WhatAnOpKeepsInAnotherFormIsForItsGradientAlone) {
  // The inverse deviation of a layer_norm, of which Weft keeps the variance.
  EXPECT_THAT(Refusal(Edited("gpt", "model.json", "aten.native_layer_norm_backward.default",
                             "aten.native_batch_norm_backward.default")),
              HasSubstr("expected aten.native_layer_norm_backward.default alone to read output 1"));
}

TEST(Pt2ImporterTest, OutputsInAListAreMade) {
  const std::string from =
      "aten.tanh.default\", \"inputs\": [{\"name\": \"self\", \"arg\": {\"as_tensor\": {\"name\": "
      "\"addmm\"}}, \"kind\": 1}], \"outputs\": [{\"as_tensor\": {\"name\": \"tanh\"}}]";
  const std::string to = absl::StrReplaceAll(from, {{"tanh.default", "chunk.default"},
                                                    {"{\"as_tensor\": {\"name\": \"tanh\"}}",
                                                     "{\"as_tensors\": [{\"name\": \"tanh\"}]}"}});
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json", from, to)),
              HasSubstr("no op of Weft computes aten.chunk.default"));
}

TEST(Pt2ImporterTest, OperatorsInPlaceAreRefused) {
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json", "aten.tanh.default", "aten.tanh_.default")),
              HasSubstr("node tanh (aten.tanh_.default): expected an operator that makes new"));
}

TEST(Pt2ImporterTest, TheRateOfASubtractionIsTheFactorOfTheGradient) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto values,
                            ReadStartValues(FileOf(Edited("sign", "model.json", "aten.sign.default",
                                                          "aten.neg.default"))));
  EXPECT_EQ(*reinterpret_cast<const float*>(values.at("optimizer.lr").bytes.data()), 0.1f);
}

TEST(Pt2ImporterTest, NumbersKeepAllDigits) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Program program,
      ImportProgram(FileOf(Edited("lenet_adam", "model.json", "\"as_float\": 0.999}",
                                  "\"as_float\": 0.9989999999999}"))));
  std::vector<double> bases;
  for (const Op& op : AllOps(program)) {
    if (op.type() != "fill_constant") continue;
    bases.push_back(std::stod(*op.StringAttr("str_value")));
  }
  EXPECT_THAT(bases, AllOf(Contains(0.9), Contains(0.9989999999999), Not(Contains(0.999))));
}

TEST(Pt2ImporterTest, OtherVersionsAreRefusedWithBothNumbers) {
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json", "\"major\": 8", "\"major\": 9")),
              HasSubstr("expected schema version 8.0 to 8.20, found 9.20"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "archive_version", "0", "1")),
              HasSubstr("archive_version: expected 0, found 1"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "byteorder", "little", "big")),
              HasSubstr("byteorder: expected little, found big"));
}

TEST(Pt2ImporterTest, InputsDoNotChange) {
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json",
                             "{\"name\": \"clone_7\"}, \"parameter_name\": \"2.bias\"",
                             "{\"name\": \"clone_7\"}, \"parameter_name\": \"input\"")),
              HasSubstr("input is neither a parameter nor a buffer"));
}

TEST(Pt2ImporterTest, DamagedArchivesAreRefused) {
  const std::string& whole = Archived("mlp_sgd");
  EXPECT_THAT(Refusal(whole.substr(0, whole.size() / 2)),
              HasSubstr("not an archive of torch.export.save"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "models/model.json", "{\"graph_module\"",
                             std::string(1 << 20, ' ') + "{\"graph_module\"", ZIP_CM_DEFLATE)),
              HasSubstr("entry models/model.json: expected stored data, found deflated ones"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "models/model.json", "", "")),
              HasSubstr("expected an entry models/model.json, found none"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json", "{\"graph_module\"", "{{")),
              HasSubstr("entry models/model.json: not JSON"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json", "\"tensor_values\"", "\"values\"")),
              HasSubstr("key tensor_values: expected JSON of type object, found nothing"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "model.json", "{\"name\": \"mm\"}", "{\"name\": \"mmm\"}")),
              HasSubstr("value mmm has no type in tensor_values"));
}

TEST(Pt2ImporterTest, DamagedWeightsAreRefused) {
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "weights/weight_0", "", "")),
              HasSubstr("weight 0.weight: not an archive of torch.export.save: expected an entry "
                        "data/weights/weight_0, found none"));
  EXPECT_THAT(
      Refusal(Edited("mlp_sgd", "weights_config.json", "\"0.weight\"", "\"w\"")),
      HasSubstr("weight 0.weight: data/weights/model_weights_config.json does not have it"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "weights_config.json", "\"use_pickle\": false",
                             "\"use_pickle\": true")),
              HasSubstr("expected a plain tensor, found a pickle, which is not read"));
  EXPECT_THAT(Refusal(Edited("mlp_sgd", "weights_config.json", "\"as_int\": 6", "\"as_int\": 7")),
              HasSubstr("weight 0.weight: expected FP32[8, 6], found FP32[8, 7]"));
}

// Whatever is lost from the graph, the file is refused, or read as another program.
class LostKeyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LostKeyTest, IsRefused) {
  int refused = 0;
  for (const char* key : {"\"graph\"",        "\"signature\"",
                          "\"nodes\"",        "\"inputs\"",
                          "\"outputs\"",      "\"target\"",
                          "\"name\"",         "\"arg\"",
                          "\"as_tensor\"",    "\"sizes\"",
                          "\"dtype\"",        "\"input_specs\"",
                          "\"output_specs\"", "\"parameter_mutation\"",
                          "\"parameter\"",    "\"as_ints\"",
                          "\"as_float\"",     "\"schema_version\"",
                          "\"user_input\"",   "\"user_output\""}) {
    SCOPED_TRACE(key);
    const std::string message = Refusal(Edited(GetParam(), "model.json", key, "\"lost\""));
    refused += message.empty() ? 0 : 1;
  }
  EXPECT_EQ(refused, 20);
}

INSTANTIATE_TEST_SUITE_P(Models, LostKeyTest,
                         ::testing::Values("mlp_sgd", "resnet", "encoder", "lstm", "vae"));

}  // namespace
}  // namespace weft::pt2
