// Over real programs: what makes two ranks differ from one device is named, and nothing else is.
//
// Each program trains on one device with the whole batch, and, rewritten, on two ranks. A
// persistable variable that differs by more than rounding must have its cause among the lines of
// the transpiler, layer 7 of the verifier must know that it differs, and the lines must be those of
// the table below.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/kernel.h"
#include "proto/all_ops.h"
#include "proto/formats/program_file.h"
#include "tests/properties/named_causes.h"
#include "tests/support/rounding.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/batch/batch.h"

namespace weft::testing {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSteps = 4;

using Tensors = std::map<std::string, Tensor>;

struct Case {
  const char* name;
  // Of the lines, in their order.
  const char* grad_allreduce;
  const char* local_sgd;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

struct Rewritten {
  Program main, startup;
  std::vector<std::string> notes;
};

class SurveyTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::string Path(const char* file) {
    return absl::StrCat("tests/data/", GetParam().name, "/", file);
  }

  // The values of all persistable variables, by rank and name, after the last step.
  static absl::StatusOr<std::vector<Tensors>> Train(const Program& main, const Program& startup,
                                                    int nranks, const TrainingInputs& from) {
    FeedSource feeds = from.feeds;
    WEFT_ASSIGN_OR_RETURN(feeds.layouts, FeedLayoutsOf(main));
    std::vector<Tensors> values(nranks);
    RunOptions options;
    options.kernels = from.kernels;
    options.nranks = nranks;
    options.steps = std::min(feeds.num_steps, kSteps);
    for (VarId var : main.block(0).vars()) {
      if (main.var(var).persistable() && IsWritten(main, var)) {
        options.fetch.emplace_back(main.var(var).name());
      }
    }
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &startup;
    inputs.feeds = feeds;
    inputs.on_result = [&](const StepResult& result) {
      for (size_t i = 0; i < options.fetch.size(); ++i) {
        values[result.rank][options.fetch[i]] = result.values[i];
      }
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
    return values;
  }

  static bool IsWritten(const Program& main, VarId var) {
    for (const Op& op : AllOps(main)) {
      for (Symbol name : op.output_args()) {
        if (main.block(op.block()).Resolve(name) == var) return true;
      }
    }
    return false;
  }

  static absl::StatusOr<Rewritten> Rewrite(const Program& main, const Program& startup,
                                           const char* mode) {
    Rewritten rewritten{main, startup, {}};
    TranspileOptions options;
    options.mode = mode;
    options.cluster.nranks = kRanks;
    ProgramPair programs{&rewritten.main, &rewritten.startup};
    WEFT_ASSIGN_OR_RETURN(const TranspileResult result, Transpile(options, programs));
    rewritten.notes = ResultLines(result.messages);
    return rewritten;
  }

  // Those that differ from the values of one device on some rank by more than rounding.
  static std::set<std::string> Differing(const RoundingBounds& bounds,
                                         const std::vector<Tensors>& found) {
    std::set<std::string> names;
    for (const auto& [name, tensor] : bounds.results().state) {
      const std::vector<double> expected = AsDoubles(tensor), allowed = bounds.OfState(name);
      for (const Tensors& rank : found) {
        const std::vector<double> values = AsDoubles(rank.at(name));
        for (size_t i = 0; i < expected.size(); ++i) {
          const bool are_nan = std::isnan(values[i]) && std::isnan(expected[i]);
          if (!are_nan && !(std::abs(values[i] - expected[i]) <= allowed[i])) names.insert(name);
        }
      }
    }
    return names;
  }
};

std::string RulesOf(const std::vector<std::string>& lines) {
  std::vector<std::string> rules;
  for (const std::string& line : lines)
    rules.push_back(std::vector<std::string>(absl::StrSplit(line, ": "))[1]);
  return absl::StrJoin(rules, " ");
}

TEST_P(SurveyTest, DifferencesAreNamed) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadProgram(Path("main.pb")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup, ReadProgram(Path("startup.pb")));
  TrainingInputs inputs;
  WEFT_ASSERT_OK_AND_ASSIGN(inputs.feeds, FeedsFromFile(Path("feeds.npz")));
  const auto train = [&](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensors> trained, Train(main, startup, 1, from));
    return TrainingResults{{}, std::move(trained[0])};
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, RoundingBounds::Measure(inputs, train));
  for (const char* mode : {"grad_allreduce", "local_sgd"}) {
    SCOPED_TRACE(mode);
    WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten rewritten, Rewrite(main, startup, mode));
    WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<Tensors> found,
                              Train(rewritten.main, rewritten.startup, kRanks, inputs));
    Setting setting;
    setting.nranks = kRanks;
    BatchFlowOptions options = BatchOptionsOf({&rewritten.main, &rewritten.startup}, setting);
    options.follow_effects = true;
    const BatchFlow flow = BatchFlow::Of(rewritten.main, options);
    const std::set<std::string> named =
        NamedAsDifferent(rewritten.main, flow, rewritten.notes, kSteps);
    for (const std::string& name : Differing(bounds, found)) {
      EXPECT_FALSE(flow.AtEnd(rewritten.main.block(0).FindVar(name)).IsOfOneDevice())
          << name << " differs";
      EXPECT_EQ(named.count(name), 1) << name << " differs, and no line names why:\n"
                                      << absl::StrJoin(rewritten.notes, "\n");
    }
    const bool reduces = mode == std::string("grad_allreduce");
    EXPECT_EQ(RulesOf(rewritten.notes), reduces ? GetParam().grad_allreduce : GetParam().local_sgd)
        << absl::StrJoin(rewritten.notes, "\n");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, SurveyTest,
    ::testing::Values(
        Case{"survey/adversarial", "", ""}, Case{"survey/area_under_curve", "W703", "W703"},
        Case{"survey/attention", "", ""}, Case{"survey/balanced_experts", "W701", "W701 W709"},
        Case{"survey/batch_norm", "W704", "W704"},
        Case{"survey/branch_on_batch", "W706", "W706 W709"}, Case{"survey/branch_on_step", "", ""},
        Case{"survey/centered", "W701", "W701 W709"}, Case{"survey/class_token", "", ""},
        Case{"survey/clipped", "", "W709"}, Case{"survey/codebook", "W703", "W709 W703"},
        Case{"survey/contrastive", "W701", "W701 W709"}, Case{"survey/counts", "W707", "W707"},
        Case{"survey/dropout", "W705", "W705"}, Case{"survey/huber_sum", "", "W709 W710"},
        Case{"survey/ignored_labels", "W701", "W701 W709"},
        Case{"survey/largest_error", "W701", "W701 W709"},
        Case{"survey/masked", "W701", "W701 W709"}, Case{"survey/mean", "", ""},
        Case{"survey/mean_adam", "", "W709"}, Case{"survey/mean_merged", "W707", "W707"},
        Case{"survey/mean_of_losses", "W707", "W707"}, Case{"survey/noise", "W705", "W705"},
        Case{"survey/norm_of_errors", "W701", "W701 W709"},
        Case{"survey/penalty_beside_sum", "W701", "W701 W709"},
        Case{"survey/queue", "W703", "W709 W703"}, Case{"survey/recurrent", "W713", "W713"},
        Case{"survey/reward_normalization", "W703 W703", "W709 W703 W703"},
        Case{"survey/root_of_mean", "W701", "W701 W709"},
        Case{"survey/running_center", "W703", "W709 W703"}, Case{"survey/smoothed", "", ""},
        Case{"survey/sum", "", "W709 W710"}, Case{"survey/sum_by_size", "", ""},
        Case{"survey/sum_merged", "W707", "W709 W710"}, Case{"survey/target_network", "", ""},
        Case{"survey/time_major", "", ""}, Case{"survey/triplet", "", ""},
        Case{"survey/weight_by_hand", "W703", "W709 W703"},
        Case{"survey/weighted", "W701", "W701 W709"}, Case{"flow_birnn", "W713", "W713"},
        Case{"flow_cond", "W706", "W706 W709"},
        Case{"flow_cond_in_while", "W706 W713", "W706 W713 W709"},
        Case{"flow_rnn_custom_cell", "W713", "W713"}, Case{"flow_rnn_gru_lengths", "W713", "W713"},
        Case{"flow_rnn_lstm", "W713", "W713"}, Case{"flow_while_array", "W713", "W713"},
        Case{"flow_while_in_while", "W713", "W713"}, Case{"flow_while_loop", "W713", "W713"},
        Case{"flow_while_until", "W706 W713", "W706 W713 W709"},
        Case{"script_clipped_rows_global_norm", "", "W709"}, Case{"script_critic_conv", "", "W709"},
        Case{"script_ctc", "", ""}, Case{"script_deep_interest", "W703", "W709 W703"},
        Case{"script_deformable", "", ""}, Case{"script_lstm_classifier", "", "W709"},
        Case{"script_recompute", "", "W709"}, Case{"script_seq2seq_attention", "", "W709"},
        Case{"script_swin_block", "", "W707"}, Case{"script_text_cnn", "", "W709"},
        Case{"script_unet", "", "W709"}, Case{"script_word2vec_own_tree", "", ""},
        Case{"script_x_deep_fm", "W703", "W709 W703"}, Case{"script_yolo", "", ""},
        Case{"fit_a_line", "", ""}, Case{"mlp_clip_global_norm", "", "W709"},
        Case{"mlp_dropout", "W705", "W705 W709"}, Case{"mlp_gradient_merge", "W707", "W707"},
        Case{"mlp_lamb", "", "W709"}, Case{"two_losses", "", "W709"}, Case{"wide_deep", "", "W709"},
        Case{"word2vec_sparse_sgd", "", ""}),
    [](const auto& info) {
      return absl::StrReplaceAll(info.param.name, {{"survey/", ""}});
    });

// Copies between the devices hide no cause: merged gradients begin with zeros on both.
TEST(SurveyOfPlacements, MergedGradientsHaveTheSameLines) {
  const std::string path = "tests/data/mlp_gradient_merge/";
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadProgram(path + "main.pb"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup, ReadProgram(path + "startup.pb"));
  const auto lines = [&](const std::string& place, absl::optional<int> nranks) {
    Program to = main, to_startup = startup;
    TranspileOptions options;
    options.mode = "grad_allreduce";
    options.placement.place = place;
    options.cluster.nranks = nranks;
    ProgramPair programs{&to, &to_startup};
    const absl::StatusOr<TranspileResult> result = Transpile(options, programs);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? ResultLines(result->messages) : std::vector<std::string>();
  };
  const std::vector<std::string> unplaced = lines("", kRanks);
  EXPECT_THAT(unplaced, ElementsAre(StartsWith("note: W707: each of 6 states")));
  for (const char* place :
       {"type:momentum=cpu", "type:elementwise_add=cpu", "type:scale=cpu,type:mul=cpu"}) {
    SCOPED_TRACE(place);
    EXPECT_EQ(lines(place, kRanks), unplaced);
    EXPECT_EQ(lines(place, absl::nullopt), unplaced);
  }
}

}  // namespace
}  // namespace weft::testing
