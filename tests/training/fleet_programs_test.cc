// What fleet of Paddle 2.6.2 makes of a small model, by strategy (tools/paddle/fleet_programs.py):
// `weft verify --order events` says what the table says, and programs that are right train on two
// ranks to the states to which grad_allreduce trains the model without fleet.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "ops/tensor.h"
#include "tests/support/rounding.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

using Args = std::vector<std::string>;

constexpr int kSteps = 6;

enum class Runs {
  kOnAllRanks,  // one program
  kByRank,      // a program for each, in a process of its own
  kNot,
};

struct Strategy {
  const char* name;
  const char* wrong;  // the rules of errors; empty: verified
  Runs runs;
  const char* why = "";
};

// Of states in fp32: grad_allreduce and fleet add up in other orders.
constexpr double kTolerance = 1e-5;
// Ranks that draw different variables do not draw those of one device.
const std::vector<std::pair<const char*, std::vector<int64_t>>> kParams = {
    {"fc_0.w_0", {8, 16}}, {"fc_0.b_0", {16}},    {"fc_1.w_0", {16, 16}},
    {"fc_1.b_0", {16}},    {"fc_2.w_0", {16, 5}}, {"fc_2.b_0", {5}}};

const Strategy kStrategies[] = {
    {"raw", "", Runs::kOnAllRanks},
    {"raw_fused", "", Runs::kOnAllRanks},
    {"raw_small_groups", "", Runs::kOnAllRanks},
    {"raw_same_stream", "", Runs::kOnAllRanks},
    {"raw_clip", "", Runs::kOnAllRanks},
    {"merge", "", Runs::kOnAllRanks},
    {"merge_sum", "", Runs::kOnAllRanks},
    {"amp_o1", "", Runs::kOnAllRanks},
    {"amp_o2_seeded", "", Runs::kOnAllRanks},
    {"amp_o2", "W317 W510 W604", Runs::kNot, "each rank draws master weights of its own"},
    {"recompute", "", Runs::kOnAllRanks},
    {"recompute_amp", "", Runs::kOnAllRanks},
    {"lars", "", Runs::kOnAllRanks},
    {"lamb", "", Runs::kOnAllRanks},
    {"local_sgd", "", Runs::kOnAllRanks},
    {"adaptive_local_sgd", "W601", Runs::kNot, "parameters are averaged, and not as often as said"},
    {"dgc", "W601 W603", Runs::kNot, "the compressed gradients are not one device's"},
    {"fp16_all_reduce", "W310 W601 W602", Runs::kNot, "fleet writes no all-reduce"},
    {"sharding", "", Runs::kByRank},
    {"sharding_adam", "", Runs::kByRank},
    {"sharding_clip", "", Runs::kByRank},
    {"sharding_lamb", "", Runs::kByRank},
    {"sharding_amp", "", Runs::kByRank},
    {"sharding_amp_recompute", "", Runs::kByRank},
    {"sharding_merge", "", Runs::kByRank},
    {"sharding_merge_clip", "", Runs::kByRank},
    {"sharding_merge_recompute", "", Runs::kByRank},
    {"sharding_merge_amp", "W601 W602 W603", Runs::kNot, "gradients are added up in fp16"},
    {"sharding_offload", "W601 W602 W603", Runs::kNot, "not followed: states have other names"},
};

class FleetProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto files = ReadTarXz("tests/data/paddle2_6_fleet.tar.xz");
    WEFT_ASSERT_OK(files.status());
    for (const auto& [name, bytes] : *files) {
      if (!absl::EndsWith(name, ".pb")) continue;
      WEFT_ASSERT_OK(WriteFile(Path(name), bytes));
    }
    std::mt19937 random(1);
    WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter feeds, NpzWriter::Create(Path("feeds.npz")));
    for (int step = 0; step < kSteps; ++step) {
      Tensor x, y;
      x.Resize(DType::kFloat32, {8, 8});
      std::generate_n(x.data<float>(), x.size(),
                      [&] { return static_cast<float>(random() % 2001) / 1000 - 1; });
      y.Resize(DType::kInt64, {8, 1});
      std::generate_n(y.data<int64_t>(), y.size(), [&] { return random() % 5; });
      WEFT_ASSERT_OK(feeds.Add(absl::StrCat(step, "/x"), x));
      WEFT_ASSERT_OK(feeds.Add(absl::StrCat(step, "/y"), y));
    }
    WEFT_ASSERT_OK(feeds.Finish());
    WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter params, NpzWriter::Create(Path("params.npz")));
    for (const auto& [name, dims] : kParams) {
      Tensor value;
      value.Resize(DType::kFloat32, Dims(dims.begin(), dims.end()));
      std::generate_n(value.data<float>(), value.size(),
                      [&] { return static_cast<float>(random() % 2001) / 4000 - 0.25F; });
      WEFT_ASSERT_OK(params.Add(name, value));
    }
    WEFT_ASSERT_OK(params.Finish());
  }

  static std::string Path(absl::string_view name) {
    return absl::StrCat(::testing::TempDir(), "/", absl::StrReplaceAll(name, {{"/", "_"}}));
  }
  static std::string File(const Strategy& of, absl::string_view name) {
    return Path(absl::StrCat(of.name, "/", name));
  }

  // The rules of errors, each once; "verified" without any.
  static std::string Verdict(const Strategy& of, const Args& more) {
    Args args = {"tools/weft",
                 "verify",
                 File(of, "main.0.pb"),
                 File(of, "main.1.pb"),
                 "--startup",
                 File(of, "startup.0.pb"),
                 File(of, "startup.1.pb"),
                 "--original",
                 File(of, "original.pb"),
                 "--short"};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult result = RunProcess(args);
    if (absl::StrContains(result.out, "\nverified: 2 ranks")) return "verified";
    std::set<std::string> rules;
    for (absl::string_view line : absl::StrSplit(result.out, '\n')) {
      if (absl::ConsumePrefix(&line, "error: ")) rules.emplace(line.substr(0, 4));
    }
    return rules.empty() ? absl::StrCat(result.out, result.err) : absl::StrJoin(rules, " ");
  }

  static std::map<std::string, Tensor> Run(const Args& args, const std::string& save) {
    const ProcessResult result = RunProcess(args);
    EXPECT_EQ(result.status, 0) << absl::StrJoin(args, " ") << "\n" << result.err;
    EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.err;
    auto states = ReadNpz(save);
    EXPECT_TRUE(states.ok()) << states.status();
    return states.ok() ? *std::move(states) : std::map<std::string, Tensor>();
  }

  // By grad_allreduce of what fleet was given.
  static std::map<std::string, Tensor> TrainedByWeft(const Strategy& of) {
    const std::string main = File(of, "out.pb"), startup = File(of, "out_startup.pb");
    const ProcessResult made = RunProcess(
        {"tools/transpile", "--mode", "grad_allreduce", "--nranks", "2", "--startup_in",
         File(of, "original_startup.pb"), "--startup_out", startup, File(of, "original.pb"), main});
    EXPECT_EQ(made.status, 0) << made.err;
    const std::string save = File(of, "weft.npz");
    Args args = {"tools/weft",      "run",     main, "--startup", startup, "--feeds",
                 Path("feeds.npz"), "--ranks", "2",  "--save",    save};
    if (of.runs == Runs::kByRank) args.insert(args.end(), {"--params", Path("params.npz")});
    return Run(args, save);
  }

  static std::map<std::string, Tensor> TrainedByFleet(const Strategy& of) {
    const std::string save = File(of, "fleet.npz");
    if (of.runs == Runs::kOnAllRanks) {
      return Run(
          {"tools/weft", "run", File(of, "main.0.pb"), "--startup", File(of, "startup.0.pb"),
           "--feeds", Path("feeds.npz"), "--ranks", "2", "--order", "events", "--save", save},
          save);
    }
    const std::string command =
        absl::StrCat("exec tools/weft run ", Path(absl::StrCat(of.name, "/main.")),
                     "$WEFT_JOB_RANK.pb --startup ", Path(absl::StrCat(of.name, "/startup.")),
                     "$WEFT_JOB_RANK.pb --feeds ", Path("feeds.npz"), " --params ",
                     Path("params.npz"), " --order events --save ", save);
    return Run({"tools/weft", "launch", "-n", "2", "--", "sh", "-c", command}, save);
  }
};

TEST_F(FleetProgramsTest, VerdictsAreThoseOfTheTable) {
  for (const Strategy& strategy : kStrategies) {
    SCOPED_TRACE(absl::StrCat(strategy.name, ": ", strategy.why));
    const std::string expected = strategy.wrong[0] == '\0' ? "verified" : strategy.wrong;
    EXPECT_EQ(Verdict(strategy, {"--order", "events"}), expected);
  }
}

TEST_F(FleetProgramsTest, RightOnesTrainAsByGradAllReduce) {
  for (const Strategy& strategy : kStrategies) {
    if (strategy.runs == Runs::kNot) continue;
    SCOPED_TRACE(strategy.name);
    const auto expected = TrainedByWeft(strategy), found = TrainedByFleet(strategy);
    int compared = 0;
    for (const auto& [name, value] : expected) {
      ASSERT_TRUE(found.count(name) > 0) << name;
      const std::vector<double> a = AsDoubles(value), b = AsDoubles(found.at(name));
      ASSERT_EQ(a.size(), b.size()) << name;
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(a[i], b[i], kTolerance * std::max(1.0, std::abs(a[i]))) << name << " " << i;
      }
      ++compared;
    }
    EXPECT_GE(compared, 6);
  }
}

// What fleet writes, and a mistake in it.
TEST_F(FleetProgramsTest, WrongOnesAreFound) {
  const Strategy fused = {"raw_fused", "", Runs::kNot};
  const std::string text = Path("raw_fused.prog");
  ASSERT_EQ(
      RunProcess({"tools/transpile", "--mode", "none", File(fused, "main.0.pb"), text}).status, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes right, ReadFile(text));
  const std::vector<std::string> lines = absl::StrSplit(right.bytes, '\n');
  const auto reduction = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return absl::StrContains(line, "c_allreduce_sum(");
  });
  ASSERT_NE(reduction, lines.end());
  const auto verdict = [&](const std::vector<std::string>& changed) {
    EXPECT_TRUE(WriteFile(text, absl::StrJoin(changed, "\n")).ok());
    return RunProcess({"tools/weft", "verify", text, "--nranks", "2", "--original",
                       File(fused, "original.pb"), "--order", "events", "--short"})
        .out;
  };
  EXPECT_THAT(verdict(lines), HasSubstr("\nverified: 2 ranks"));
  std::vector<std::string> unreduced = lines;
  unreduced.erase(unreduced.begin() + (reduction - lines.begin()));
  EXPECT_THAT(verdict(unreduced), HasSubstr("error: W310"));
  // All that depends on it before it.
  std::vector<std::string> late = lines;
  const auto at = late.begin() + (reduction - lines.begin());
  std::rotate(at, at + 1, at + 7);
  EXPECT_THAT(verdict(late), HasSubstr("error: W414"));
}

TEST_F(FleetProgramsTest, WithoutTheOrderOfEventsAHintNamesIt) {
  const Strategy raw = {"raw", "", Runs::kNot};
  EXPECT_EQ(Verdict(raw, {}), "W401");
  const ProcessResult result = RunProcess(
      {"tools/weft", "verify", File(raw, "main.0.pb"), File(raw, "main.1.pb"), "--short"});
  EXPECT_THAT(result.out, HasSubstr("--order events judges by that"));
}

}  // namespace
}  // namespace weft::testing
