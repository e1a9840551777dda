// Training gives what Paddle's own kernels gave: losses of every step, and parameters and state
// after the last one, on one rank and, rewritten by the transpiler, on 2 and 4.
//
// reference.npz of a model holds
//   <run>/loss                          one rank, whole batch: run = single
//   <run>/loss_rank<r>                  rank r of 2 or 4: run = dp2, dp4
//   <run>[_rank0]/final_head/<variable> the first 16 elements after the last step, where the whole
//                                       values are in no final_<run>[_rank0].params
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "executor/feed_sources.h"
#include "executor/feeds.h"
#include "executor/npz.h"
#include "executor/params_file.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "proto/program_file.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using ::testing::Combine;
using ::testing::Values;

constexpr double kTolerance = 1e-5;

using Tensors = std::map<std::string, Tensor>;

// How the program is made ready for its ranks.
enum class Rewrite {
  kNone,        // one rank
  kKnownRanks,  // the loss's gradient is divided by the number of ranks
  kAnyRanks,    // the all-reduce takes the mean
  kTwoRings,    // gradients take turns on two rings
};

struct Case {
  int ranks;
  Rewrite rewrite;
  const char* name;
};

struct Trained {
  std::vector<std::vector<float>> losses;  // by rank, by step
  Tensors persistables;
};

class TrainReferencesTest : public ::testing::TestWithParam<std::tuple<const char*, Case>> {
 protected:
  static std::string Path(const std::string& file) {
    return absl::StrCat("tests/data/", std::get<0>(GetParam()), "/", file);
  }
  static const Case& TheCase() { return std::get<1>(GetParam()); }
  static std::string RunName() {
    return TheCase().ranks == 1 ? "single" : absl::StrCat("dp", TheCase().ranks);
  }
  static std::string LossName(int rank) {
    return TheCase().ranks == 1 ? "single/loss" : absl::StrCat(RunName(), "/loss_rank", rank);
  }
  static std::string FinalName() {
    return TheCase().ranks == 1 ? "single" : absl::StrCat(RunName(), "_rank0");
  }

  static absl::Status MakeReady(ProgramPair programs) {
    if (TheCase().rewrite == Rewrite::kNone) return absl::OkStatus();
    TranspileOptions options;
    options.mode = "grad_allreduce";
    if (TheCase().rewrite != Rewrite::kAnyRanks) options.participants.nranks = TheCase().ranks;
    if (TheCase().rewrite == Rewrite::kTwoRings) options.mode_flags["nrings"] = "2";
    return Transpile(options, programs).status();
  }

  static absl::StatusOr<Trained> Train() {
    WEFT_ASSIGN_OR_RETURN(Program main, ReadProgram(Path("main.pb")));
    WEFT_ASSIGN_OR_RETURN(Program startup, ReadProgram(Path("startup.pb")));
    WEFT_RETURN_IF_ERROR(MakeReady({&main, &startup}));
    WEFT_ASSIGN_OR_RETURN(const Tensors init,
                          LoadParams(Path("init.params"), Path("persistables.txt")));
    WEFT_ASSIGN_OR_RETURN(FeedFile feeds, FeedFile::Open(Path("feeds.npz")));

    Trained trained;
    trained.losses.resize(TheCase().ranks);
    RunOptions options;
    options.kernels = &CpuKernels();
    options.ranks = TheCase().ranks;
    options.steps = feeds.num_steps();
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &startup;
    inputs.params = &init;
    inputs.feeds = FeedsFrom(std::make_shared<FeedFile>(std::move(feeds)));
    inputs.on_result = [&trained](const StepResult& result) {
      trained.losses[result.rank].push_back(*result.values[0].data<float>());
      return absl::OkStatus();
    };
    WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
    trained.persistables = std::move(result.persistables);
    return trained;
  }
};

double LargestMagnitude(const Tensor& tensor) {
  double largest = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(tensor.data<float>()[i]));
  }
  return largest;
}

// The first elements of `found`, as many as `expected` has.
void ExpectNear(const std::string& name, const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.dtype(), DType::kFloat32) << name;
  ASSERT_GE(found.size(), expected.size()) << name;
  const double tolerance = kTolerance * LargestMagnitude(found);
  for (int64_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(found.data<float>()[i], expected.data<float>()[i], tolerance)
        << name << ", element " << i;
  }
}

TEST_P(TrainReferencesTest, LossesAndFinalValuesAreThoseOfPaddle) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train());
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors reference, ReadNpz(Path("reference.npz")));

  for (int rank = 0; rank < TheCase().ranks; ++rank) {
    const Tensor& losses = reference.at(LossName(rank));
    ASSERT_EQ(static_cast<int64_t>(trained.losses[rank].size()), losses.size());
    for (int64_t step = 0; step < losses.size(); ++step) {
      const float expected = losses.data<float>()[step];
      EXPECT_NEAR(trained.losses[rank][step], expected, kTolerance * std::fabs(expected))
          << "rank " << rank << ", step " << step;
    }
  }

  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names,
                            ReadNameList(Path("persistables.txt")));
  const std::string final_file = Path(absl::StrCat("final_", FinalName(), ".params"));
  absl::optional<Tensors> finals;
  if (ReadFile(final_file).ok()) {
    WEFT_ASSERT_OK_AND_ASSIGN(finals, ReadSaveCombine(final_file, names));
  }
  for (const std::string& name : names) {
    ASSERT_EQ(trained.persistables.count(name), 1u) << name;
    const Tensor& found = trained.persistables.at(name);
    if (finals.has_value()) {
      ASSERT_EQ(found.dims(), finals->at(name).dims()) << name;
      ExpectNear(name, found, finals->at(name));
    } else {
      ExpectNear(name, found, reference.at(absl::StrCat(FinalName(), "/final_head/", name)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TrainReferencesTest,
                         Combine(Values("fit_a_line", "mlp_sgd", "mlp_momentum", "mlp_adam"),
                                 Values(Case{1, Rewrite::kNone, "OneRank"},
                                        Case{2, Rewrite::kKnownRanks, "TwoRanks"},
                                        Case{2, Rewrite::kAnyRanks, "TwoOfAnyRanks"},
                                        Case{2, Rewrite::kTwoRings, "TwoRanksTwoRings"},
                                        Case{4, Rewrite::kKnownRanks, "FourRanks"},
                                        Case{4, Rewrite::kAnyRanks, "FourOfAnyRanks"})),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param).name);
                         });

}  // namespace
}  // namespace weft
