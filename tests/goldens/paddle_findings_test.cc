// What the verifier finds in what Paddle's transpiler writes: its known defects
// (docs/paddle_dialect.md), and nothing else. One test walks all goldens, the programs before the
// rewrite as originals; tests/data/paddle_findings.txt says what is found in which.
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "nlohmann/json.hpp"
#include "tests/goldens/golden_options.h"
#include "tests/support/models.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// The programs of a version of Paddle, and what is found in its goldens.
struct Suite {
  const char* models;
  const char* goldens;
  const char* expected;
  // They are of a build for the CPU, which sets up no rings, as these would say how many ranks
  // there are.
  bool is_for_cpu;
};
constexpr Suite kPaddle2 = {testing::kPaddle2Models, "tests/data/goldens.tar.xz",
                            "tests/data/paddle_findings.txt", /*is_for_cpu=*/false};
constexpr Suite kPaddle3 = {testing::kPaddle3Models, "tests/data/paddle3_goldens.tar.xz",
                            "tests/data/paddle3_findings.txt", /*is_for_cpu=*/true};

std::string Found(const Suite& suite, const Program& main, const Program& startup,
                  const Json& config, const Model& model) {
  const TranspileOptions transpile = GoldenOptions(config);
  VerifyOptions options;
  const auto cluster = Cluster::Create(transpile.cluster, 1);
  // Unless devices are given, Paddle has defaults for them: what it wrote says for how many.
  if (transpile.cluster.devices.has_value() || suite.is_for_cpu) {
    options.setting.nranks = cluster->nranks();
  }
  options.setting.distributed_params = transpile.distributed_params;
  options.original = {&model.main, &model.startup};
  std::set<std::string> rules;
  const Findings findings = Verify({{&main, &startup}}, options);
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError) rules.insert(finding.rule);
  }
  return absl::StrJoin(rules, " ");
}

void ExpectProgramsAreClean(const Suite& suite) {
  for (const auto& [name, model] : ReadModels(suite.models)) {
    SCOPED_TRACE(name);
    VerifyOptions options;
    options.original = {&model.main, &model.startup};
    const Findings findings = Verify({{&model.main, &model.startup}}, options);
    WEFT_EXPECT_OK(ToStatus(findings));
    EXPECT_EQ(findings.all().size(), 0);
  }
}

// A program for one device communicates with nobody.
TEST(PaddleFindings, ProgramsBeforeTheRewriteAreClean) { ExpectProgramsAreClean(kPaddle2); }

TEST(PaddleFindings, ProgramsOfPaddle3BeforeTheRewriteAreClean) {
  ExpectProgramsAreClean(kPaddle3);
}

void ExpectTheKnownDefects(const Suite& suite) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto goldens, ReadTarXz(suite.goldens));
  const std::map<std::string, Model> models = ReadModels(suite.models);
  std::vector<std::string> found;
  int clean = 0;
  for (const auto& [path, text] : goldens) {
    absl::string_view model = path;
    if (!absl::ConsumeSuffix(&model, "/goldens/manifest.json")) continue;
    const Json manifest = Json::parse(text);
    for (const Json& config : manifest["configs"]) {
      if (!config["error"].is_null()) continue;
      const std::string name = absl::StrCat(model, "/", config["path"].get<std::string>());
      const std::string golden =
          absl::StrCat(model, "/goldens/", config["path"].get<std::string>());
      WEFT_ASSERT_OK_AND_ASSIGN(const Program main,
                                Program::Parse(goldens.at(golden + "/main.pb")));
      WEFT_ASSERT_OK_AND_ASSIGN(const Program startup,
                                Program::Parse(goldens.at(golden + "/startup.pb")));
      const std::string rules = Found(suite, main, startup, config, models.at(std::string(model)));
      if (rules.empty()) {
        ++clean;
      } else {
        found.push_back(absl::StrCat(name, ": ", rules));
      }
    }
  }
  std::ifstream file(suite.expected);
  std::stringstream expected;
  expected << file.rdbuf();
  const std::string text = absl::StrCat(absl::StrJoin(found, "\n"), "\n");
  EXPECT_EQ(expected.str(), text) << "to accept, write into " << suite.expected << ":\n" << text;
  std::cout << clean << " clean, " << found.size() << " with findings\n";
}

TEST(PaddleFindings, AreTheKnownDefectsAndNothingElse) { ExpectTheKnownDefects(kPaddle2); }

TEST(PaddleFindings, OfPaddle3AreTheKnownDefectsAndNothingElse) { ExpectTheKnownDefects(kPaddle3); }

}  // namespace
}  // namespace weft::testing
