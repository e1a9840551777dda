// In the paddle dialect, every mode writes what Paddle's transpiler wrote: for every model and
// every configuration for which there is a golden, of Paddle 2.6 and of Paddle 3.3 for the CPU.
// Where Paddle threw, Weft reports an error too.
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "nlohmann/json.hpp"
#include "proto/diff/program_diff.h"
#include "proto/testing/normalize.h"
#include "tests/goldens/golden_options.h"
#include "tests/support/models.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

using Files = std::map<std::string, std::string>;

// Everything but bookkeeping attributes, the order of attributes, the tables of op versions (which
// are of two builds of Paddle), and whether a flag is written that has its default.
std::string Differences(const Program& found, const std::string& golden_bytes) {
  absl::StatusOr<Program> golden = Program::Parse(golden_bytes);
  if (!golden.ok()) return golden.status().ToString();
  const auto normalized = [](const Program& program) {
    pb::ProgramDesc desc = program.ToProto();
    testing::RemoveBookkeeping(&desc);
    testing::SortAttributes(&desc);
    testing::ClearWrittenDefaults(&desc);
    desc.clear_op_version_map();
    return *Program::FromProto(desc);
  };
  return DifferencesText(DiffPrograms(normalized(*golden), normalized(found)));
}

// --- What came out -------------------------------------------------------------------------------

// The goldens of a version of Paddle.
struct Suite {
  const char* models;
  const char* goldens;
  TargetDevice device_kind;
  std::string sum_of_several;  // what Weft says of c_allreduce_xsum; empty: it writes it
  int configurations;
};
const Suite kPaddle2 = {testing::kPaddle2Models, "tests/data/goldens.tar.xz", TargetDevice::kCuda,
                        "", 369};
// A build for the CPU has no c_comm_init_all, and sets up no rings.
const Suite kPaddle3 = {testing::kPaddle3Models, "tests/data/paddle3_goldens.tar.xz",
                        TargetDevice::kCpu, "Paddle 3 has no op that reduces several variables",
                        229};

// What Paddle throws, and what Weft says. Empty: Weft does it.
std::string ExpectedError(const Suite& suite, const std::string& of_paddle) {
  const std::vector<std::pair<std::string, std::string>> errors = {
      {"The value of nranks should be >=2", "gathered from 2 ranks or more, found 1"},
      {"'NoneType' object has no attribute 'split'", "the devices of each trainer are not given"},
      {"Attribute lazy_mode is not found", "(lamb): lamb cannot update with gathered"},
      {"cannot access local variable 'param'", "no op of the root block updates a parameter"},
      {"The kernel `comm_init_all` is not registered",
       "Paddle has no kernel on the CPU for c_comm_init_all"},
      {"Operator \"c_allreduce_xsum\" has not been registered", suite.sum_of_several}};
  for (const auto& [paddle, weft] : errors) {
    if (absl::StrContains(of_paddle, paddle)) return weft;
  }
  return "an error of Paddle's that this test knows";
}

// What is wrong with Weft's result; empty: nothing.
std::string Check(const Suite& suite, const Json& config, const std::string& golden,
                  const Files& goldens, const Model& model) {
  Model copy = model;
  ProgramPair pair{&copy.main, &copy.startup};
  TranspileOptions options = GoldenOptions(config);
  options.device_kind = suite.device_kind;
  const auto result = Transpile(options, pair);
  if (!config["error"].is_null()) {
    const std::string expected =
        ExpectedError(suite, config["error"]["message"].get<std::string>());
    if (expected.empty()) return result.ok() ? "" : result.status().ToString();
    if (result.ok()) return "no error, although Paddle throws";
    return absl::StrContains(result.status().message(), expected) ? "" : result.status().ToString();
  }
  if (!result.ok()) return result.status().ToString();
  return Differences(copy.main, goldens.at(golden + "/main.pb")) +
         Differences(copy.startup, goldens.at(golden + "/startup.pb"));
}

// How many configurations of a mode and model are as they should be.
struct Count {
  int equal = 0;
  int total = 0;
};

// The modes of the table, with the choices that the manifest has.
std::string ColumnOf(const Json& config) {
  const std::string mode = GoldenOptions(config).mode;
  if (mode == "multi_thread") return config["constructor"]["trans_mode"].get<std::string>();
  if (mode != "single_process_multi_thread") return mode;
  return "fuse_" + config["env"]["PADDLE_FUSE_ALLREDUCE"].get<std::string>();
}

using Table = std::map<std::string, std::map<std::string, Count>>;  // model, mode

void Print(const Table& table) {
  std::set<std::string> columns;
  for (const auto& [model, row] : table) {
    for (const auto& [column, count] : row) columns.insert(column);
  }
  std::printf("%-22s", "equal/configurations");
  for (const std::string& column : columns) std::printf(" %15s", column.c_str());
  std::printf("\n");
  for (const auto& [model, row] : table) {
    std::printf("%-22s", model.c_str());
    for (const std::string& column : columns) {
      const auto found = row.find(column);
      const std::string cell =
          found == row.end() ? "-" : absl::StrCat(found->second.equal, "/", found->second.total);
      std::printf(" %15s", cell.c_str());
    }
    std::printf("\n");
  }
}

void ExpectEveryGolden(const Suite& suite) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Files goldens, ReadTarXz(suite.goldens));
  const std::map<std::string, Model> models = ReadModels(suite.models);
  Table table;
  Count sum;
  for (const auto& [path, text] : goldens) {
    absl::string_view model = path;
    if (!absl::ConsumeSuffix(&model, "/goldens/manifest.json")) continue;
    const auto programs = models.find(std::string(model));
    ASSERT_NE(programs, models.end()) << model;
    const Json manifest = Json::parse(text);
    for (const Json& config : manifest["configs"]) {
      const std::string golden =
          absl::StrCat(model, "/goldens/", config["path"].get<std::string>());
      const std::string wrong = Check(suite, config, golden, goldens, programs->second);
      EXPECT_EQ(wrong, "") << golden;
      for (Count* count : {&table[std::string(model)][ColumnOf(config)], &sum}) {
        ++count->total;
        if (wrong.empty()) ++count->equal;
      }
    }
  }
  Print(table);
  EXPECT_EQ(sum.total, suite.configurations);
  EXPECT_EQ(sum.equal, sum.total);
}

TEST(PaddleGoldens, EveryGoldenIsReproduced) { ExpectEveryGolden(kPaddle2); }

TEST(PaddleGoldens, EveryGoldenOfPaddle3IsReproduced) { ExpectEveryGolden(kPaddle3); }

TEST(PaddleGoldens, ComparisonSeesTheNumberOfRings) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Files goldens, ReadTarXz("tests/data/goldens.tar.xz"));
  const std::string dir = "fit_a_line/goldens/grad_allreduce/";
  WEFT_ASSERT_OK_AND_ASSIGN(const Program one_ring,
                            Program::Parse(goldens.at(dir + "nrings1_nranks2_rank0/main.pb")));
  EXPECT_THAT(Differences(one_ring, goldens.at(dir + "nrings2_nranks2_rank0/main.pb")),
              HasSubstr("attr ring_id"));
}

}  // namespace
}  // namespace weft::testing
