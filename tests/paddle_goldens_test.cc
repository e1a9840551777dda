// In the paddle dialect, grad_allreduce writes what Paddle's GradAllReduce wrote: for every model
// and every configuration for which there is a golden.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/archive.h"
#include "tests/models.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using ::weft::testing::Model;
using ::weft::testing::ReadModels;
using ::weft::testing::ReadTarXz;

// Bookkeeping that a rewrite does not promise.
bool IsExempt(const std::string& attr) {
  return attr == "op_callstack" || attr == "op_namescope" || attr == "op_device" ||
         attr == "with_quant_attr";
}

// Attributes by name, without the exempt ones.
void Normalize(pb::OpDesc* op) {
  auto* attrs = op->mutable_attrs();
  attrs->erase(std::remove_if(attrs->begin(), attrs->end(),
                              [](const auto& attr) { return IsExempt(attr.name()); }),
               attrs->end());
  std::sort(attrs->begin(), attrs->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
}

// Variables by name: a block is a set of them. A lod_level of 0 that is written is one that is not:
// Paddle writes it once an op has had its shapes inferred.
void Normalize(pb::BlockDesc* block) {
  for (pb::OpDesc& op : *block->mutable_ops()) Normalize(&op);
  std::sort(block->mutable_vars()->begin(), block->mutable_vars()->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  for (pb::VarDesc& var : *block->mutable_vars()) {
    auto* type = var.mutable_type();
    if (type->has_lod_tensor() && type->lod_tensor().lod_level() == 0) {
      type->mutable_lod_tensor()->clear_lod_level();
    }
  }
}

// The first things that differ between two lists of messages.
template <typename Messages>
void Compare(const std::string& where, const Messages& found, const Messages& expected,
             std::vector<std::string>* differences) {
  if (found.size() != expected.size()) {
    differences->push_back(
        absl::StrCat(where, ": found ", found.size(), ", expected ", expected.size()));
  }
  for (int i = 0; i < std::min(found.size(), expected.size()); ++i) {
    if (found[i].SerializeAsString() == expected[i].SerializeAsString()) continue;
    differences->push_back(absl::StrCat(where, " ", i, ": found\n", found[i].DebugString(),
                                        "expected\n", expected[i].DebugString()));
    return;
  }
}

// Compares the blocks only: the tables of op versions are of two builds of Paddle.
std::vector<std::string> Differences(const Program& found, const std::string& expected_bytes) {
  pb::ProgramDesc a = found.ToProto();
  pb::ProgramDesc b;
  if (!b.ParseFromString(expected_bytes)) return {"the golden is no program"};
  std::vector<std::string> differences;
  if (a.blocks_size() != b.blocks_size()) differences.push_back("number of blocks");
  for (int i = 0; i < std::min(a.blocks_size(), b.blocks_size()); ++i) {
    Normalize(a.mutable_blocks(i));
    Normalize(b.mutable_blocks(i));
    const std::string block = absl::StrCat("block ", i);
    Compare(block + " vars", a.blocks(i).vars(), b.blocks(i).vars(), &differences);
    Compare(block + " ops", a.blocks(i).ops(), b.blocks(i).ops(), &differences);
    for (pb::BlockDesc* desc : {a.mutable_blocks(i), b.mutable_blocks(i)}) {
      desc->clear_vars();
      desc->clear_ops();
    }
    if (a.blocks(i).SerializeAsString() != b.blocks(i).SerializeAsString()) {
      differences.push_back(block + " itself");
    }
  }
  return differences;
}

TranspileOptions OptionsOf(const Json& config) {
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.dialect = Dialect::kPaddle;
  options.mode_flags["nrings"] = absl::StrCat(config["constructor"]["nrings"].get<int>());
  const Json& call = config["transpile"];
  options.participants.rank = call["rank"].get<int>();
  options.participants.endpoints = call["endpoints"].get<std::vector<std::string>>();
  options.participants.current_endpoint = call["current_endpoint"].get<std::string>();
  for (const Json& param : config["distributed_params"]) {
    options.distributed_params.insert(param.get<std::string>());
  }
  return options;
}

TEST(PaddleGoldens, EveryGradAllReduceGoldenIsReproduced) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto goldens, ReadTarXz("tests/data/goldens.tar.xz"));
  const std::map<std::string, Model> models = ReadModels();
  int configurations = 0;
  for (const auto& [path, text] : goldens) {
    absl::string_view model = path;
    if (!absl::ConsumeSuffix(&model, "/goldens/manifest.json")) continue;
    const auto programs = models.find(std::string(model));
    ASSERT_NE(programs, models.end()) << model;
    const Json manifest = Json::parse(text);
    for (const Json& config : manifest["configs"]) {
      if (config["class"] != "GradAllReduce") continue;
      ++configurations;
      const std::string golden =
          absl::StrCat(model, "/goldens/", config["path"].get<std::string>());
      SCOPED_TRACE(golden);
      Model copy = programs->second;
      ProgramPair pair{&copy.main, &copy.startup};
      const auto result = Transpile(OptionsOf(config), pair);
      std::vector<std::string> differences;
      if (!result.ok()) {
        differences.push_back(result.status().ToString());
      } else {
        for (const auto& [name, program] :
             {std::make_pair("main", &copy.main), std::make_pair("startup", &copy.startup)}) {
          for (const std::string& difference :
               Differences(*program, goldens.at(absl::StrCat(golden, "/", name, ".pb")))) {
            differences.push_back(absl::StrCat(name, ", ", difference));
          }
        }
      }
      std::printf("%-22s %-56s %s\n", std::string(model).c_str(),
                  config["path"].get<std::string>().c_str(),
                  differences.empty() ? "equal" : "DIFFERENT");
      EXPECT_THAT(differences, ::testing::IsEmpty());
    }
  }
  EXPECT_EQ(configurations, 74);
}

}  // namespace
}  // namespace weft
