// Losses that are no means over the batch: with pass exact-loss, or summed gradients, many ranks
// train as one device does. Without it they do not, and the verifier says so.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "proto/testing/block_text.h"
#include "tests/support/rewrite.h"
#include "tests/support/stream_sanitizer.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr int64_t kBatch = 12, kSteps = 3, kFeatures = 3, kClasses = 4;

// Of a loss over l [-1, 1], the cross entropy of each sample. `forward` ends with an op of role
// loss, `backward` begins with loss@GRAD and ends with l@GRAD.
struct LossCase {
  std::string name;
  std::string forward, backward;
  // Without --exact_loss the ranks train another thing than one device.
  bool is_exact_as_it_is = false;
  std::string attrs = "";  // of softmax_with_cross_entropy
  // Nor do they with it.
  bool is_never_exact = false;
};

std::string ReduceSum(const std::string& x, const std::string& out) {
  return absl::StrCat("    Out=[", out, "] = reduce_sum(X=[", x,
                      "]) {reduce_all=true, dim=ints[0], keep_dim=false}\n");
}
std::string ReduceSumGrad(const std::string& x, const std::string& out) {
  return absl::StrCat("    X@GRAD=[", x, "@GRAD] = reduce_sum_grad(X=[", x, "], Out@GRAD=[", out,
                      "@GRAD]) role=backward {reduce_all=true, dim=ints[0], keep_dim=false}\n");
}
// out = n / d, and the gradient of n.
std::string Divide(const std::string& d, const std::string& out, const std::string& role) {
  return absl::StrCat("    Out=[", out, "] = elementwise_div(X=[n], Y=[", d, "]) role=", role,
                      "\n");
}
std::string DivideGrad(const std::string& d, const std::string& out) {
  return absl::StrCat("    X@GRAD=[n@GRAD] = elementwise_div_grad(X=[n], Y=[", d, "], Out=[", out,
                      "], Out@GRAD=[", out, "@GRAD]) role=backward\n");
}
std::string Constant(const std::string& out, int value) {
  return absl::StrCat("    Out=[", out,
                      "] = fill_constant() {shape=longs[], dtype=5, value=", value,
                      ".0, str_value=\"", value, "\"}\n");
}

const std::vector<LossCase>& LossCases() {
  constexpr char kMask[] =
      "    Out=[zero] = fill_constant() {shape=longs[1], dtype=3, value=0.0, str_value=\"0\"}\n"
      "    Out=[counts] = not_equal(X=[y], Y=[zero])\n"
      "    Out=[mask] = cast(X=[counts]) {in_dtype=0, out_dtype=5}\n";
  static const auto* cases = new std::vector<LossCase>{
      {"mean", "    Out=[loss] = mean(X=[l]) role=forward|loss\n",
       "    X@GRAD=[l@GRAD] = mean_grad(X=[l], Out@GRAD=[loss@GRAD]) role=backward\n", true},

      {"sum",
       "    Out=[loss] = reduce_sum(X=[l]) role=forward|loss {reduce_all=true, dim=ints[0], "
       "keep_dim=false}\n",
       ReduceSumGrad("l", "loss"), true},

      // cross_entropy with ignore_index: a batch in which all labels are ignored is divided by 1.
      {"ignored_labels",
       ReduceSum("l", "n") + kMask + ReduceSum("mask", "d") + Constant("none", 0) +
           "    Out=[is_empty] = equal(X=[d], Y=[none])\n"
           "    Out=[one] = cast(X=[is_empty]) {in_dtype=0, out_dtype=5}\n"
           "    Out=[e] = elementwise_add(X=[d], Y=[one])\n" +
           Divide("e", "loss", "forward|loss"),
       DivideGrad("e", "loss") + ReduceSumGrad("l", "n"), false, ", ignore_index=0"},

      {"weights_of_classes",
       "    Out=[label] = cast(X=[y]) {in_dtype=3, out_dtype=5}\n"
       "    Out=[weight] = scale(X=[label]) {scale=2.0, bias=1.0}\n"
       "    Out=[p] = elementwise_mul(X=[l], Y=[weight])\n" +
           ReduceSum("p", "n") + ReduceSum("weight", "d") + Divide("d", "loss", "forward|loss"),
       DivideGrad("d", "loss") + ReduceSumGrad("p", "n") +
           "    X@GRAD=[l@GRAD] = elementwise_mul_grad(X=[l], Y=[weight], Out@GRAD=[p@GRAD]) "
           "role=backward\n"},

      {"masked_mean_and_decay",
       kMask + std::string("    Out=[p] = elementwise_mul(X=[l], Y=[mask])\n") +
           ReduceSum("p", "n") + ReduceSum("mask", "d") +
           "    Out=[e] = scale(X=[d]) {scale=1.0, bias=0.25}\n" + Divide("e", "q", "forward") +
           "    Out=[norm] = squared_l2_norm(X=[w])\n"
           "    Out=[decay] = mean(X=[norm])\n"
           "    Out=[loss] = elementwise_add(X=[q], Y=[decay]) role=forward|loss\n",
       "    X@GRAD=[q@GRAD], Y@GRAD=[decay@GRAD] = elementwise_add_grad(X=[q], Y=[decay], "
       "Out@GRAD=[loss@GRAD]) role=backward\n" +
           DivideGrad("e", "q") + ReduceSumGrad("p", "n") +
           "    X@GRAD=[l@GRAD] = elementwise_mul_grad(X=[l], Y=[mask], Out@GRAD=[p@GRAD]) "
           "role=backward\n"},

      {"mean_and_sum",
       "    Out=[q] = mean(X=[l])\n" + ReduceSum("l", "n") +
           "    Out=[loss] = elementwise_add(X=[q], Y=[n]) role=forward|loss\n",
       "    X@GRAD=[q@GRAD], Y@GRAD=[n@GRAD] = elementwise_add_grad(X=[q], Y=[n], "
       "Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@0] = mean_grad(X=[l], Out@GRAD=[q@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@1] = reduce_sum_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward "
       "{reduce_all=true, dim=ints[0], keep_dim=false}\n"
       "    Out=[l@GRAD] = sum(X=[l@GRAD@0, l@GRAD@1]) role=backward\n"},

      {"sum_without_mean",
       "    Out=[q] = mean(X=[l])\n" + ReduceSum("l", "n") +
           "    Out=[loss] = elementwise_sub(X=[n], Y=[q]) role=forward|loss\n",
       "    X@GRAD=[n@GRAD], Y@GRAD=[q@GRAD] = elementwise_sub_grad(X=[n], Y=[q], "
       "Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@0] = mean_grad(X=[l], Out@GRAD=[q@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@1] = reduce_sum_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward "
       "{reduce_all=true, dim=ints[0], keep_dim=false}\n"
       "    Out=[l@GRAD] = sum(X=[l@GRAD@0, l@GRAD@1]) role=backward\n"},

      {"sum_and_decay",
       ReduceSum("l", "n") +
           "    Out=[norm] = squared_l2_norm(X=[w])\n"
           "    Out=[decay] = mean(X=[norm])\n"
           "    Out=[loss] = elementwise_add(X=[n], Y=[decay]) role=forward|loss\n",
       "    X@GRAD=[n@GRAD], Y@GRAD=[decay@GRAD] = elementwise_add_grad(X=[n], Y=[decay], "
       "Out@GRAD=[loss@GRAD]) role=backward\n" +
           ReduceSumGrad("l", "n")},

      {"root_of_mean",
       "    Out=[n] = mean(X=[l])\n    Out=[loss] = sqrt(X=[n]) role=forward|loss\n",
       "    X@GRAD=[n@GRAD] = sqrt_grad(Out=[loss], Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD] = mean_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward\n"},

      {"quotient_of_means",
       "    Out=[n] = mean(X=[l])\n    Out=[p] = sqrt(X=[l])\n    Out=[d] = mean(X=[p])\n" +
           Divide("d", "loss", "forward|loss"),
       "    X@GRAD=[n@GRAD], Y@GRAD=[d@GRAD] = elementwise_div_grad(X=[n], Y=[d], Out=[loss], "
       "Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@0] = mean_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward\n"
       "    X@GRAD=[p@GRAD] = mean_grad(X=[p], Out@GRAD=[d@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@1] = sqrt_grad(Out=[p], Out@GRAD=[p@GRAD]) role=backward\n"
       "    Out=[l@GRAD] = sum(X=[l@GRAD@0, l@GRAD@1]) role=backward\n"},

      // sqrt(1 + sum), which no factor takes from a part of the sum to the whole.
      {"function_of_a_sum",
       ReduceSum("l", "n") + "    Out=[e] = scale(X=[n]) {scale=1.0, bias=1.0}\n"
                             "    Out=[loss] = sqrt(X=[e]) role=forward|loss\n",
       "    X@GRAD=[e@GRAD] = sqrt_grad(Out=[loss], Out@GRAD=[loss@GRAD]) role=backward\n"
       "    Out=[n@GRAD] = scale(X=[e@GRAD]) role=backward {scale=1.0}\n" +
           ReduceSumGrad("l", "n")},

      // A factor of each sample, and a term.
      {"functions_of_a_sum",
       ReduceSum("l", "n") + "    Out=[p] = elementwise_mul(X=[l], Y=[n]) {axis=-1}\n"
                             "    Out=[q] = mean(X=[p])\n    Out=[e] = sqrt(X=[n])\n"
                             "    Out=[loss] = elementwise_add(X=[q], Y=[e]) role=forward|loss\n",
       "    X@GRAD=[q@GRAD], Y@GRAD=[e@GRAD] = elementwise_add_grad(X=[q], Y=[e], "
       "Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[p@GRAD] = mean_grad(X=[p], Out@GRAD=[q@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@0], Y@GRAD=[n@GRAD@0] = elementwise_mul_grad(X=[l], Y=[n], "
       "Out@GRAD=[p@GRAD]) role=backward {axis=-1}\n"
       "    X@GRAD=[n@GRAD@1] = sqrt_grad(Out=[e], Out@GRAD=[e@GRAD]) role=backward\n"
       "    Out=[n@GRAD] = sum(X=[n@GRAD@0, n@GRAD@1]) role=backward\n"
       "    X@GRAD=[l@GRAD@1] = reduce_sum_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward "
       "{reduce_all=true, dim=ints[0], keep_dim=false}\n"
       "    Out=[l@GRAD] = sum(X=[l@GRAD@0, l@GRAD@1]) role=backward\n"},

      // A factor of each sample alone.
      {"factor_of_samples",
       ReduceSum("l", "n") + "    Out=[p] = elementwise_mul(X=[l], Y=[n]) {axis=-1}\n"
                             "    Out=[loss] = mean(X=[p]) role=forward|loss\n",
       "    X@GRAD=[p@GRAD] = mean_grad(X=[p], Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@0], Y@GRAD=[n@GRAD] = elementwise_mul_grad(X=[l], Y=[n], "
       "Out@GRAD=[p@GRAD]) role=backward {axis=-1}\n"
       "    X@GRAD=[l@GRAD@1] = reduce_sum_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward "
       "{reduce_all=true, dim=ints[0], keep_dim=false}\n"
       "    Out=[l@GRAD] = sum(X=[l@GRAD@0, l@GRAD@1]) role=backward\n"},

      // Each rank has a gradient of its own of a mean that is a factor of its samples.
      {"functions_of_a_mean",
       "    Out=[n] = mean(X=[l])\n    Out=[p] = elementwise_mul(X=[l], Y=[n]) {axis=-1}\n"
       "    Out=[q] = mean(X=[p])\n    Out=[e] = sqrt(X=[n])\n"
       "    Out=[loss] = elementwise_add(X=[q], Y=[e]) role=forward|loss\n",
       "    X@GRAD=[q@GRAD], Y@GRAD=[e@GRAD] = elementwise_add_grad(X=[q], Y=[e], "
       "Out@GRAD=[loss@GRAD]) role=backward\n"
       "    X@GRAD=[p@GRAD] = mean_grad(X=[p], Out@GRAD=[q@GRAD]) role=backward\n"
       "    X@GRAD=[l@GRAD@0], Y@GRAD=[n@GRAD@0] = elementwise_mul_grad(X=[l], Y=[n], "
       "Out@GRAD=[p@GRAD]) role=backward {axis=-1}\n"
       "    X@GRAD=[n@GRAD@1] = sqrt_grad(Out=[e], Out@GRAD=[e@GRAD]) role=backward\n"
       "    Out=[n@GRAD] = sum(X=[n@GRAD@0, n@GRAD@1]) role=backward\n"
       "    X@GRAD=[l@GRAD@1] = mean_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward\n"
       "    Out=[l@GRAD] = sum(X=[l@GRAD@0, l@GRAD@1]) role=backward\n",
       false, "", true},

      // Twice the loss if the mean of the features is positive.
      {"condition",
       "    Out=[m] = mean(X=[x])\n" + Constant("none", 0) +
           "    Out=[is_positive] = greater_than(X=[m], Y=[none])\n"
           "    Out=[one] = cast(X=[is_positive]) {in_dtype=0, out_dtype=5}\n"
           "    Out=[e] = scale(X=[one]) {scale=1.0, bias=1.0}\n"
           "    Out=[n] = mean(X=[l])\n"
           "    Out=[loss] = elementwise_mul(X=[n], Y=[e]) role=forward|loss\n",
       "    X@GRAD=[n@GRAD] = elementwise_mul_grad(X=[n], Y=[e], Out@GRAD=[loss@GRAD]) "
       "role=backward\n"
       "    X@GRAD=[l@GRAD] = mean_grad(X=[l], Out@GRAD=[n@GRAD]) role=backward\n"},
  };
  return *cases;
}

Program ProgramOf(const LossCase& loss) {
  std::string vars;
  for (const char* name :
       {"loss", "n", "d", "e", "q", "m", "one", "none", "decay", "n@GRAD@0", "n@GRAD@1"}) {
    absl::StrAppend(&vars, "    var ", name, " : fp32[]\n    var ", name, "@GRAD : fp32[]\n");
  }
  for (const char* name : {"l", "p", "mask", "label", "weight", "l@GRAD@0", "l@GRAD@1"}) {
    absl::StrAppend(&vars, "    var ", name, " : fp32[-1, 1]\n    var ", name,
                    "@GRAD : fp32[-1, 1]\n");
  }
  const bool decays = absl::StrContains(loss.forward, "squared_l2_norm");
  return testing::BlockProgram(absl::StrCat(
      vars,
      "    var norm : fp32[1]\n    var norm@GRAD : fp32[1]\n"
      "    var x : fp32[-1, 3] need_check_feed\n    var y : int64[-1, 1] need_check_feed\n"
      "    var w : fp32[3, 4] parameter persistable\n    var lr : fp32[1] persistable\n"
      "    var h : fp32[-1, 4]\n    var h@GRAD : fp32[-1, 4]\n    var softmax : fp32[-1, 4]\n"
      "    var w@GRAD : fp32[3, 4]\n    var w@GRAD@0 : fp32[3, 4]\n    var w@GRAD@1 : fp32[3, 4]\n"
      "    var zero : int64[1]\n    var counts : bool[-1, 1]\n    var is_empty : bool[]\n"
      "    var is_positive : bool[]\n"
      "    Out=[h] = mul(X=[x], Y=[w])\n"
      "    Loss=[l], Softmax=[softmax] = softmax_with_cross_entropy(Logits=[h], Label=[y]) "
      "{axis=-1",
      loss.attrs, "}\n", loss.forward,
      "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, "
      "value=1.0}\n",
      loss.backward,
      "    Logits@GRAD=[h@GRAD] = softmax_with_cross_entropy_grad(Label=[y], Softmax=[softmax], "
      "Loss@GRAD=[l@GRAD]) role=backward {axis=-1",
      loss.attrs, "}\n    Y@GRAD=[", decays ? "w@GRAD@0" : "w@GRAD",
      "] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward",
      decays ? "" : " vars=[w, w@GRAD]", "\n",
      decays ? "    X@GRAD=[norm@GRAD] = mean_grad(X=[norm], Out@GRAD=[decay@GRAD]) role=backward\n"
               "    X@GRAD=[w@GRAD@1] = squared_l2_norm_grad(X=[w], Out@GRAD=[norm@GRAD]) "
               "role=backward\n    Out=[w@GRAD] = sum(X=[w@GRAD@0, w@GRAD@1]) role=backward "
               "vars=[w, w@GRAD]\n"
             : "",
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize "
      "vars=[w, w@GRAD]\n"));
}

// Between 0 and 1, without a pattern that the split over ranks would show.
float Draw(int64_t i) {
  const double value = std::sin(static_cast<double>(i) * 12.9898 + 4.1) * 43758.5453;
  return static_cast<float>(value - std::floor(value));
}

FeedSource Feeds() {
  FeedSource source;
  source.variables = {"x", "y"};
  source.read = [](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    Tensor x, y;
    x.Resize(DType::kFloat32, {kBatch, kFeatures});
    y.Resize(DType::kInt64, {kBatch, 1});
    // Features whose mean is negative, but positive for the first rank.
    for (int64_t i = 0; i < x.size(); ++i) {
      x.data<float>()[i] = Draw(step * 100 + i) - (i < x.size() / 3 ? 0.1F : 0.9F);
    }
    // Labels of which the first are often 0.
    for (int64_t i = 0; i < kBatch; ++i) {
      const float draw = Draw(step * 100 + i + 50);
      y.data<int64_t>()[i] =
          i < kBatch / 3 && draw < 0.7 ? 0 : static_cast<int64_t>(draw * kClasses);
    }
    return std::vector<Tensor>{x, y};
  };
  return source;
}

// The persistable variables after kSteps steps from `state`.
absl::StatusOr<Tensors> Trained(const Program& main, const Tensors& state, int nranks) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  options.steps = kSteps;
  RunInputs inputs;
  inputs.main = &main;
  inputs.params = &state;
  inputs.feeds = Feeds();
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunChecked(inputs, options));
  return std::move(result.persistables);
}

// The largest difference of an element of weight `name`.
double Distance(const Tensors& a, const Tensors& b, const char* name = "w") {
  const Tensor &of_a = a.at(name), &of_b = b.at(name);
  double distance = 0;
  for (int64_t i = 0; i < of_a.size(); ++i) {
    distance = std::max(distance, std::abs(static_cast<double>(of_a.data<float>()[i]) -
                                           static_cast<double>(of_b.data<float>()[i])));
  }
  return distance;
}

class TrainLossesTest : public ::testing::TestWithParam<LossCase> {
 protected:
  // After training; `notes` gets what the verifier says. 1 rank trains the original.
  absl::StatusOr<Tensors> Train(int nranks, bool exact, bool knows_ranks,
                                std::vector<std::string>* notes) {
    Program main = ProgramOf(GetParam());
    if (nranks > 1) {
      TranspileOptions options = InMode("grad_allreduce");
      if (knows_ranks) options.cluster.nranks = nranks;
      if (exact) options.mode_flags["exact_loss"] = "on";
      WEFT_ASSIGN_OR_RETURN(TranspileResult result, Rewrite(options, &main));
      *notes = testing::ResultLines(result.messages);
    }
    Tensors state;
    state["w"].Resize(DType::kFloat32, {kFeatures, kClasses});
    for (int64_t i = 0; i < state["w"].size(); ++i) state["w"].data<float>()[i] = Draw(i + 1000);
    state["lr"].Resize(DType::kFloat32, {1});
    state["lr"].data<float>()[0] = 0.1F;
    return Trained(main, state, nranks);
  }
};

TEST_P(TrainLossesTest, ExactLossesTrainAsOneDevice) {
  std::vector<std::string> notes;
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors one, Train(1, false, false, &notes));
  for (const int nranks : {2, 3}) {
    for (const bool knows_ranks : {true, false}) {
      SCOPED_TRACE(absl::StrCat(nranks, " ranks", knows_ranks ? "" : ", unknown when transpiled"));
      WEFT_ASSERT_OK_AND_ASSIGN(const Tensors many, Train(nranks, true, knows_ranks, &notes));
      if (GetParam().is_never_exact) {
        EXPECT_THAT(notes, ElementsAre(HasSubstr("W701"))) << absl::StrJoin(notes, "\n");
        continue;
      }
      EXPECT_THAT(notes, IsEmpty()) << absl::StrJoin(notes, "\n");
      EXPECT_LT(Distance(one, many), 1e-6);
    }
  }
}

TEST_P(TrainLossesTest, OtherLossesAreReported) {
  std::vector<std::string> notes;
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors one, Train(1, false, false, &notes));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors two, Train(2, false, true, &notes));
  if (GetParam().is_exact_as_it_is) {
    EXPECT_THAT(notes, IsEmpty());
    EXPECT_LT(Distance(one, two), 1e-6);
  } else {
    EXPECT_THAT(notes, Contains(HasSubstr("W701")));
    EXPECT_GT(Distance(one, two), 1e-4);
  }
}

// mean_loss is a mean that trains w and u, sum_loss a sum that trains w and v.
Program TwoLosses() {
  std::string vars =
      "    var x : fp32[-1, 3] need_check_feed\n    var y : int64[-1, 1] need_check_feed\n"
      "    var lr : fp32[1] persistable\n";
  for (const char* name : {"u", "v", "w"}) {
    absl::StrAppend(&vars, "    var ", name, " : fp32[3, 4] parameter persistable\n    var ", name,
                    "@GRAD : fp32[3, 4]\n");
  }
  for (const char* name :
       {"xu", "xv", "xw", "h", "k", "softmax_h", "softmax_k", "xw@GRAD@0", "xw@GRAD@1"}) {
    absl::StrAppend(&vars, "    var ", name, " : fp32[-1, 4]\n    var ", name,
                    "@GRAD : fp32[-1, 4]\n");
  }
  for (const char* name : {"l", "m"}) {
    absl::StrAppend(&vars, "    var ", name, " : fp32[-1, 1]\n    var ", name,
                    "@GRAD : fp32[-1, 1]\n");
  }
  for (const char* name : {"mean_loss", "sum_loss"}) {
    absl::StrAppend(&vars, "    var ", name, " : fp32[]\n    var ", name, "@GRAD : fp32[]\n");
  }
  std::string updates;
  for (const char* name : {"u", "v", "w"}) {
    absl::StrAppend(&updates, "    Y@GRAD=[", name, "@GRAD] = mul_grad(X=[x], Y=[", name,
                    "], Out@GRAD=[x", name, "@GRAD]) role=backward vars=[", name, ", ", name,
                    "@GRAD]\n");
  }
  for (const char* name : {"u", "v", "w"}) {
    absl::StrAppend(&updates, "    ParamOut=[", name, "] = sgd(Param=[", name, "], Grad=[", name,
                    "@GRAD], LearningRate=[lr]) role=optimize vars=[", name, ", ", name,
                    "@GRAD]\n");
  }
  return testing::BlockProgram(absl::StrCat(vars, R"(
    Out=[xu] = mul(X=[x], Y=[u])
    Out=[xv] = mul(X=[x], Y=[v])
    Out=[xw] = mul(X=[x], Y=[w])
    Out=[h] = elementwise_add(X=[xw], Y=[xu])
    Out=[k] = elementwise_add(X=[xw], Y=[xv])
    Loss=[l], Softmax=[softmax_h] = softmax_with_cross_entropy(Logits=[h], Label=[y]) {axis=-1}
    Loss=[m], Softmax=[softmax_k] = softmax_with_cross_entropy(Logits=[k], Label=[y]) {axis=-1}
    Out=[mean_loss] = mean(X=[l]) role=forward|loss
    Out=[sum_loss] = reduce_sum(X=[m]) role=forward|loss {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[mean_loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    Out=[sum_loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[l@GRAD] = mean_grad(X=[l], Out@GRAD=[mean_loss@GRAD]) role=backward
)",
                                            ReduceSumGrad("m", "sum_loss"), R"(
    Logits@GRAD=[h@GRAD] = softmax_with_cross_entropy_grad(Label=[y], Softmax=[softmax_h], Loss@GRAD=[l@GRAD]) role=backward {axis=-1}
    Logits@GRAD=[k@GRAD] = softmax_with_cross_entropy_grad(Label=[y], Softmax=[softmax_k], Loss@GRAD=[m@GRAD]) role=backward {axis=-1}
    X@GRAD=[xw@GRAD@0], Y@GRAD=[xu@GRAD] = elementwise_add_grad(X=[xw], Y=[xu], Out@GRAD=[h@GRAD]) role=backward
    X@GRAD=[xw@GRAD@1], Y@GRAD=[xv@GRAD] = elementwise_add_grad(X=[xw], Y=[xv], Out@GRAD=[k@GRAD]) role=backward
    Out=[xw@GRAD] = sum(X=[xw@GRAD@0, xw@GRAD@1]) role=backward
)",
                                            updates));
}

// What the verifier says of a rewrite by itself.
std::vector<std::string> FindingsIn(const Program& main, const Program& original, int nranks) {
  VerifyOptions verify;
  verify.setting.nranks = nranks;
  verify.original.main = &original;
  const Findings found = Verify({{&main, nullptr}}, verify);
  std::vector<std::string> texts;
  for (const Finding& finding : found.all()) texts.push_back(ToString(finding));
  return texts;
}

// The weights after training TwoLosses, and what the verifier says of the rewrite by itself.
absl::StatusOr<Tensors> TrainTwoLosses(const TranspileOptions& options, int nranks,
                                       std::vector<std::string>* findings) {
  Program main = TwoLosses();
  if (nranks > 1) {
    const Program original = main;
    WEFT_ASSIGN_OR_RETURN(const TranspileResult result, Rewrite(options, &main));
    *findings = testing::ResultLines(result.messages);
    const std::vector<std::string> found = FindingsIn(main, original, nranks);
    findings->insert(findings->end(), found.begin(), found.end());
  }
  Tensors state;
  for (const char* name : {"u", "v", "w"}) {
    state[name].Resize(DType::kFloat32, {kFeatures, kClasses});
    for (int64_t i = 0; i < state[name].size(); ++i) {
      state[name].data<float>()[i] = Draw(i + 1000 + 100 * name[0]);
    }
  }
  state["lr"].Resize(DType::kFloat32, {1});
  state["lr"].data<float>()[0] = 0.02F;
  return Trained(main, state, nranks);
}

TEST(TrainTwoLossesTest, AMeanAndASumTrainAsOnOneDevice) {
  const std::vector<std::pair<const char*, std::map<std::string, std::string>>> modes = {
      {"grad_allreduce", {}},
      {"grad_allreduce", {{"scale", "auto"}, {"buckets", "bytes"}}},
      {"multi_thread", {{"trans_mode", "fuse_all_reduce"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
      {"single_process_multi_thread", {}}};
  std::vector<std::string> findings;
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors one, TrainTwoLosses({}, 1, &findings));
  for (const auto& [mode, flags] : modes) {
    for (const int nranks : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(mode, ", ", nranks, " ranks"));
      TranspileOptions options = InMode(mode, nranks, flags);
      WEFT_ASSERT_OK_AND_ASSIGN(const Tensors many, TrainTwoLosses(options, nranks, &findings));
      EXPECT_THAT(findings, IsEmpty()) << absl::StrJoin(findings, "\n");
      for (const char* name : {"u", "v", "w"}) EXPECT_LT(Distance(one, many, name), 2e-6) << name;
    }
  }
}

TEST(TrainTwoLossesTest, AMeanBesideASumNeedsTheNumberOfRanks) {
  TranspileOptions options = InMode("grad_allreduce");
  std::vector<std::string> findings;
  EXPECT_THAT(TrainTwoLosses(options, 2, &findings).status(),
              IsFailedPrecondition("sum_loss@GRAD is the gradient of a loss that is a sum over the "
                                   "batch, other losses are means"));
}

// One division for all gradients cannot be right.
TEST(TrainTwoLossesTest, OtherScalesAreRefused) {
  for (const char* scale : {"avg", "loss_grad"}) {
    TranspileOptions options = InMode("grad_allreduce", 2, {{"scale", scale}});
    std::vector<std::string> findings;
    EXPECT_THAT(TrainTwoLosses(options, 2, &findings).status(), IsFailedPrecondition("W702"))
        << scale;
  }
}

// A count, a running mean and the histograms of auc: with --statistics true those of one device.
TEST(TrainStatisticsTest, ReducedStatisticsAreThoseOfOneDevice) {
  const auto train = [](int nranks, bool reduce,
                        std::vector<std::string>* notes) -> absl::StatusOr<Tensors> {
    Program main = testing::BlockProgram(R"(
    var x : fp32[-1, 3] need_check_feed
    var y : int64[-1, 1] need_check_feed
    var w : fp32[3, 2] parameter persistable
    var lr : fp32[1] persistable
    var h : fp32[-1, 2]
    var h@GRAD : fp32[-1, 2]
    var softmax : fp32[-1, 2]
    var w@GRAD : fp32[3, 2]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var count : fp32[] persistable
    var running : fp32[] persistable
    var positives : int64[1, 101] persistable
    var negatives : int64[1, 101] persistable
    var auc : fp64[]
    var s : fp32[]
    var m : fp32[]
    var old : fp32[]
    Out=[h] = mul(X=[x], Y=[w])
    Out=[loss] = mean(X=[h]) role=forward|loss
    Out=[softmax] = softmax(X=[h]) {axis=-1}
    AUC=[auc], StatNegOut=[negatives], StatPosOut=[positives] = auc(Label=[y], Predict=[softmax], StatNeg=[negatives], StatPos=[positives]) {num_thresholds=100, slide_steps=0}
    Out=[s] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0], keep_dim=false}
    Out=[count] = elementwise_add(X=[count], Y=[s])
    Out=[m] = sqrt(X=[running])
    Out=[old] = mean(X=[softmax])
    Out=[running] = elementwise_add(X=[m], Y=[old])
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[h@GRAD] = mean_grad(X=[h], Out@GRAD=[loss@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
)");
    if (nranks > 1) {
      WEFT_ASSIGN_OR_RETURN(
          TranspileResult result,
          Rewrite(InMode("grad_allreduce", nranks, {{"statistics", reduce ? "true" : "false"}}),
                  &main));
      *notes = testing::ResultLines(result.messages);
    }
    Tensors state;
    state["w"].Resize(DType::kFloat32, {3, 2});
    for (int64_t i = 0; i < 6; ++i) state["w"].data<float>()[i] = 3 * Draw(i + 1000);
    for (const char* name : {"lr", "count", "running"}) {
      state[name].Resize(DType::kFloat32, name == std::string("lr") ? Dims{1} : Dims{});
      state[name].data<float>()[0] = 0.25F;
    }
    for (const char* name : {"positives", "negatives"}) {
      state[name].Resize(DType::kInt64, {1, 101});
      std::fill_n(state[name].data<int64_t>(), 101, 0);
    }
    return Trained(main, state, nranks);
  };
  const auto histogram = [](const Tensors& state, const char* name) {
    const int64_t* const bins = state.at(name).data<int64_t>();
    return std::vector<int64_t>(bins, bins + 101);
  };
  std::vector<std::string> notes;
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors one, train(1, false, &notes));
  for (const int nranks : {2, 3}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensors many, train(nranks, true, &notes));
    EXPECT_THAT(notes, IsEmpty()) << absl::StrJoin(notes, "\n");
    for (const char* name : {"positives", "negatives"}) {
      EXPECT_EQ(histogram(one, name), histogram(many, name)) << name;
    }
    for (const char* name : {"count", "running"}) {
      EXPECT_NEAR(one.at(name).data<float>()[0], many.at(name).data<float>()[0], 1e-5) << name;
    }
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors apart, train(2, false, &notes));
  EXPECT_THAT(notes, Contains(HasSubstr("W703")));
  EXPECT_NE(histogram(one, "positives"), histogram(apart, "positives"));
}

// --- What one device computes from the whole batch -----------------------------------------------

// A program whose forward pass takes statistics of the batch, or compares its samples, and the
// option that makes it the program of one device.
struct WholeBatchCase {
  std::string name, option, rule, ops;
};

constexpr char kWholeBatchVariables[] = R"(
    var x : fp32[-1, 3] need_check_feed
    var y : int64[-1, 1] need_check_feed
    var w, v : fp32[3, 4] parameter persistable
    var scale, bias : fp32[4] parameter persistable
    var mean, variance : fp32[4] persistable
    var lr : fp32[1] persistable
    var h, k, b, h@GRAD, k@GRAD, b@GRAD : fp32[-1, 4]
    var s, s@GRAD, softmax : fp32[-1, -1]
    var t, t@GRAD : fp32[4, -1]
    var tx : fp32[0, -1, 4]
    var l, l@GRAD : fp32[-1, 1]
    var saved_mean, saved_variance, scale@GRAD, bias@GRAD : fp32[4]
    var w@GRAD, v@GRAD : fp32[3, 4]
    var loss, loss@GRAD : fp32[]
)";

std::string CrossEntropyOf(const std::string& logits) {
  return absl::StrReplaceAll(R"(
    Loss=[l], Softmax=[softmax] = softmax_with_cross_entropy(Logits=[LOGITS], Label=[y]) {axis=-1}
    Out=[loss] = mean(X=[l]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[l@GRAD] = mean_grad(X=[l], Out@GRAD=[loss@GRAD]) role=backward
    Logits@GRAD=[LOGITS@GRAD] = softmax_with_cross_entropy_grad(Label=[y], Softmax=[softmax], Loss@GRAD=[l@GRAD]) role=backward {axis=-1}
)",
                             {{"LOGITS", logits}});
}

std::string Sgd(const std::vector<std::string>& parameters) {
  std::string ops;
  for (const std::string& p : parameters) {
    absl::StrAppend(&ops, "    ParamOut=[", p, "] = sgd(Param=[", p, "], Grad=[", p,
                    "@GRAD], LearningRate=[lr]) role=optimize vars=[", p, ", ", p, "@GRAD]\n");
  }
  return ops;
}

std::string BatchNorm(const std::string& layout) {
  return absl::StrCat(
      "    Out=[h] = mul(X=[x], Y=[w])\n"
      "    MeanOut=[mean], SavedMean=[saved_mean], SavedVariance=[saved_variance], "
      "VarianceOut=[variance], Y=[b] = batch_norm(Bias=[bias], Mean=[mean], Scale=[scale], "
      "Variance=[variance], X=[h]) {data_layout=\"",
      layout, "\"}", CrossEntropyOf("b"),
      "    Bias@GRAD=[bias@GRAD], Scale@GRAD=[scale@GRAD], X@GRAD=[h@GRAD] = "
      "batch_norm_grad(Bias=[bias], SavedMean=[saved_mean], SavedVariance=[saved_variance], "
      "Scale=[scale], X=[h], Y@GRAD=[b@GRAD]) role=backward vars=[bias, bias@GRAD, scale, "
      "scale@GRAD] {data_layout=\"",
      layout,
      "\"}\n    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward "
      "vars=[w, w@GRAD]\n",
      Sgd({"w", "scale", "bias"}));
}

const std::vector<WholeBatchCase>& WholeBatchCases() {
  static const auto* const cases = new std::vector<WholeBatchCase>{
      {"batch_norm", "sync_batch_norm", "W704", BatchNorm("NCHW")},
      {"batch_norm_channels_last", "sync_batch_norm", "W704", BatchNorm("NHWC")},
      {"contrastive", "gather_negatives", "W701",
       absl::StrCat(R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[k] = mul(X=[x], Y=[v])
    Out=[s] = matmul_v2(X=[h], Y=[k]) {trans_x=false, trans_y=true})",
                    CrossEntropyOf("s"), R"(
    X@GRAD=[h@GRAD], Y@GRAD=[k@GRAD] = matmul_v2_grad(Out@GRAD=[s@GRAD], X=[h], Y=[k]) role=backward {trans_x=false, trans_y=true}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[k@GRAD]) role=backward vars=[v, v@GRAD]
)",
                    Sgd({"w", "v"}))},
      // Compares with samples that lie along the other dimension.
      {"contrastive_transposed", "gather_negatives", "W701",
       absl::StrCat(R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[k] = mul(X=[x], Y=[v])
    Out=[t], XShape=[tx] = transpose2(X=[k]) {axis=ints[1, 0]}
    Out=[s] = matmul_v2(X=[h], Y=[t]) {trans_x=false, trans_y=false})",
                    CrossEntropyOf("s"), R"(
    X@GRAD=[h@GRAD], Y@GRAD=[t@GRAD] = matmul_v2_grad(Out@GRAD=[s@GRAD], X=[h], Y=[t]) role=backward {trans_x=false, trans_y=false}
    X@GRAD=[k@GRAD] = transpose2_grad(XShape=[tx], Out@GRAD=[t@GRAD]) role=backward {axis=ints[1, 0]}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[k@GRAD]) role=backward vars=[v, v@GRAD]
)",
                    Sgd({"w", "v"}))},
  };
  return *cases;
}

class TrainWholeBatchTest : public ::testing::TestWithParam<WholeBatchCase> {
 protected:
  // After training; `findings` gets those of the verifier. 1 rank trains the original.
  absl::StatusOr<Tensors> Train(int nranks, bool exact, std::vector<std::string>* findings) {
    Program main = CompactProgram(absl::StrCat(kWholeBatchVariables, GetParam().ops));
    if (nranks > 1) {
      const Program original = main;
      TranspileOptions options = InMode("grad_allreduce", nranks);
      if (exact) options.mode_flags[GetParam().option] = "on";
      WEFT_RETURN_IF_ERROR(Rewrite(options, &main).status());
      const std::vector<std::string> found = FindingsIn(main, original, nranks);
      findings->insert(findings->end(), found.begin(), found.end());
    }
    Tensors state;
    const auto set = [&](const char* name, const Dims& dims, float shift) {
      Tensor& tensor = state[name];
      tensor.Resize(DType::kFloat32, dims);
      for (int64_t i = 0; i < tensor.size(); ++i) {
        tensor.data<float>()[i] = Draw(i + 1000 + 100 * name[0]) + shift;
      }
    };
    for (const char* name : {"w", "v"}) set(name, {kFeatures, kClasses}, 0);
    for (const char* name : {"scale", "bias", "mean"}) set(name, {kClasses}, 0);
    set("variance", {kClasses}, 1);
    set("lr", {1}, 0);
    return Trained(main, state, nranks);
  }
};

TEST_P(TrainWholeBatchTest, TheOptionTrainsAsOneDevice) {
  std::vector<std::string> findings;
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors one, Train(1, false, &findings));
  for (const int nranks : {2, 3, 4}) {
    SCOPED_TRACE(absl::StrCat(nranks, " ranks"));
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensors many, Train(nranks, true, &findings));
    EXPECT_THAT(findings, IsEmpty()) << absl::StrJoin(findings, "\n");
    for (const auto& [name, tensor] : one) {
      EXPECT_LT(Distance(one, many, name.c_str()), 2e-6) << name;
    }
  }
}

TEST_P(TrainWholeBatchTest, WithoutItTheRanksTrainAnotherThing) {
  std::vector<std::string> findings;
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors one, Train(1, false, &findings));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors two, Train(2, false, &findings));
  EXPECT_THAT(findings,
              Contains(AllOf(HasSubstr(GetParam().rule), HasSubstr("option:" + GetParam().option))))
      << absl::StrJoin(findings, "\n");
  EXPECT_GT(Distance(one, two), 1e-4);
}

// The gradient of one of the two is that of neither.
TEST(SyncBatchNormTest, TheGradientOfTheOtherOpIsAnError) {
  const std::string ops = absl::StrCat(kWholeBatchVariables, BatchNorm("NCHW"));
  const Program original = CompactProgram(ops);
  for (const char* type : {" batch_norm(", " batch_norm_grad("}) {
    SCOPED_TRACE(type);
    Program main = CompactProgram(
        absl::StrReplaceAll(ops, {{type, absl::StrCat(" sync_", absl::StripPrefix(type, " "))}}));
    TranspileOptions options = InMode("grad_allreduce", 2);
    options.verification = Verification::kNever;
    WEFT_ASSERT_OK(Rewrite(options, &main).status());
    VerifyOptions verify;
    verify.setting.nranks = 2;
    verify.original.main = &original;
    EXPECT_TRUE(Verify({{&main, nullptr}}, verify).HasErrors());
  }
}

INSTANTIATE_TEST_SUITE_P(WholeBatch, TrainWholeBatchTest, ::testing::ValuesIn(WholeBatchCases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Losses, TrainLossesTest, ::testing::ValuesIn(LossCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
