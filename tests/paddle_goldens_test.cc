// In the paddle dialect, grad_allreduce writes what Paddle's GradAllReduce wrote: for every model
// and every configuration for which there is a golden.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/program_diff.h"
#include "tests/archive.h"
#include "tests/models.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::weft::testing::Model;
using ::weft::testing::ReadModels;
using ::weft::testing::ReadTarXz;

// Everything but bookkeeping attributes, the order of attributes, the tables of op versions (which
// are of two builds of Paddle), and whether a flag is written that has its default.
std::string Differences(const Program& found, const std::string& golden_bytes) {
  absl::StatusOr<Program> golden = Program::Parse(golden_bytes);
  if (!golden.ok()) return golden.status().ToString();
  DiffOptions options = DiffOptions::IgnoringBookkeeping();
  options.ignore_attr_order = true;
  options.ignore_written_defaults = true;
  options.ignore_op_versions = true;
  return DifferencesText(DiffPrograms(*golden, found, options));
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
      std::string differences;
      if (result.ok()) {
        differences = Differences(copy.main, goldens.at(golden + "/main.pb")) +
                      Differences(copy.startup, goldens.at(golden + "/startup.pb"));
      } else {
        differences = result.status().ToString();
      }
      std::printf("%-22s %-56s %s\n", std::string(model).c_str(),
                  config["path"].get<std::string>().c_str(),
                  differences.empty() ? "equal" : "DIFFERENT");
      EXPECT_EQ(differences, "");
    }
  }
  EXPECT_EQ(configurations, 74);
}

TEST(PaddleGoldens, ComparisonSeesTheNumberOfRings) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto goldens, ReadTarXz("tests/data/goldens.tar.xz"));
  const std::string dir = "fit_a_line/goldens/grad_allreduce/";
  WEFT_ASSERT_OK_AND_ASSIGN(const Program one_ring,
                            Program::Parse(goldens.at(dir + "nrings1_nranks2_rank0/main.pb")));
  EXPECT_THAT(Differences(one_ring, goldens.at(dir + "nrings2_nranks2_rank0/main.pb")),
              HasSubstr("attr ring_id"));
}

}  // namespace
}  // namespace weft
