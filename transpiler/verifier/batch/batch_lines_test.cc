#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/batch/batch.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kReduces[] =
    "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0, "
    "use_calc_stream=true}\n";
constexpr char kMean[] = "    Out=[loss] = mean(X=[y]) role=forward|loss\n";

// The lines of layer 7 about a step that trains w.
std::vector<std::string> LinesOf(const std::string& before, const std::string& loss,
                                 const std::string& reduces = kReduces,
                                 const std::string& after = "", const std::string& blocks = "") {
  const Program program = ProgramOf(absl::StrCat(
      "    var x : fp32[-1, 4] need_check_feed\n    var w : fp32[4, 1] parameter persistable\n"
      "    var v : fp32[4, 1] persistable\n"
      "    var state, count : fp32[1] persistable\n"
      "    var m : fp32[1]\n"
      "    var k : bool[1]\n    var n : fp32[1, 1]\n    var mask : uint8[-1, 1]\n"
      "    var scope, scope2 : step_scopes\n"
      "    var loss : fp32[1]\n"
      "    Out=[y] = mul(X=[x], Y=[w])\n",
      before, loss,
      "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, "
      "value=1.0}\n"
      "    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n",
      reduces,
      "    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], "
      "LearningRate=[lr]) role=optimize {mu=0.9}\n",
      after, blocks));
  const Program startup = ProgramOf(
      "    var count : fp32[1] persistable\n"
      "    Out=[count] = fill_constant() {shape=longs[1], dtype=5, value=0.0}\n");
  VerifyOptions options;
  options.setting.nranks = 2;
  options.layers = {Layer::kBatch};
  return testing::AllLines(Verify({{&program, &startup}}, options));
}

TEST(BatchLinesTest, MeansNeedNoLines) { EXPECT_THAT(LinesOf("", kMean), IsEmpty()); }

TEST(BatchLinesTest, ALossThatIsReducedOtherwiseThanItAsksForNamesTheOp) {
  const auto reduced = [](absl::string_view loss, absl::string_view how) {
    return LinesOf("", absl::StrCat("    Out=[loss] = ", loss, "(X=[y]) role=forward|loss ",
                                    "{reduce_all=true, dim=ints[0]}\n    Out=[loss] = c_allreduce_",
                                    how, "(X=[loss]) {ring_id=0, use_calc_stream=true}\n"));
  };
  EXPECT_THAT(reduced("reduce_mean", "avg"), Not(Contains(HasSubstr("W701"))));
  EXPECT_THAT(reduced("reduce_mean", "sum"),
              Contains("warning: W701: loss loss is n times the loss of one device, where n is the "
                       "number of ranks: after op 2 (c_allreduce_sum) it would have to be divided "
                       "by n"));
  EXPECT_THAT(reduced("reduce_sum", "avg"),
              Contains(AllOf(HasSubstr("loss loss is 1/n of the loss of one device"),
                             HasSubstr("after op 2 (c_allreduce_avg) it would have to be "
                                       "multiplied by n"))));
}

TEST(BatchLinesTest, ConditionsWithOneCauseAreOneLine) {
  const std::string branch =
      "    Out=[y], Scope=[scope] = conditional_block(Cond=[k], Input=[y]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  EXPECT_THAT(LinesOf("    Out=[m] = mean(X=[y])\n"
                      "    Out=[k] = greater_than(X=[m], Y=[lr]) {axis=-1}\n" +
                          branch + branch,
                      kMean, kReduces, "", "    block 1:\n    Out=[y] = relu(X=[y])\n"),
              ElementsAre(AllOf(StartsWith("warning: W706: op 3 (conditional_block) runs its block "
                                           "depending on k, a value of the rank's batch"),
                                HasSubstr("as does 1 other op: op 2 (greater_than) makes it of m "
                                          "(a partial mean)"))));
}

// The op that makes a loss no mean may decide a condition, too, whose line says nothing of the
// loss.
TEST(BatchLinesTest, ALossHasALineBesideThatOfACondition) {
  EXPECT_THAT(LinesOf("    Out=[m] = mean(X=[y])\n    Out=[m] = sqrt(X=[m])\n"
                      "    Out=[k] = greater_than(X=[m], Y=[lr]) {axis=-1}\n"
                      "    Out=[n], Scope=[scope] = conditional_block(Cond=[k], Input=[lr]) "
                      "{is_scalar_condition=true, sub_block=block(1)}\n",
                      "    Out=[loss] = scale(X=[m]) role=forward|loss {scale=2.0}\n", kReduces, "",
                      "    block 1:\n    Out=[n] = reshape(X=[lr]) {shape=ints[1, 1]}\n"),
              ElementsAre(StartsWith("warning: W706: op 4 (conditional_block)"),
                          StartsWith("warning: W701: loss loss is no mean and no sum")));
}

// A state that one step leaves with the value that decides the next is no follower of the
// condition.
TEST(BatchLinesTest, AStateHasALineBesideThatOfACondition) {
  EXPECT_THAT(LinesOf("    Out=[k] = greater_than(X=[state], Y=[lr]) {axis=-1}\n"
                      "    Out=[n], Scope=[scope] = conditional_block(Cond=[k], Input=[lr]) "
                      "{is_scalar_condition=true, sub_block=block(1)}\n"
                      "    Out=[m] = mean(X=[y])\n    Out=[state] = sqrt(X=[m])\n",
                      kMean, kReduces, "",
                      "    block 1:\n    Out=[n] = reshape(X=[lr]) {shape=ints[1, 1]}\n"),
              ElementsAre(StartsWith("warning: W706: op 2 (conditional_block)"),
                          StartsWith("warning: W703: state state is")));
}

// A draw that changes the loss is a draw, not another kind of loss.
TEST(BatchLinesTest, DrawsAreOneLine) {
  EXPECT_THAT(LinesOf("    Out=[n] = gaussian_random() {shape=longs[1, 1], dtype=5}\n"
                      "    Out=[y] = elementwise_add(X=[y], Y=[n]) {axis=-1}\n",
                      kMean),
              ElementsAre("note: W705: op 1 (gaussian_random) draws other random numbers for n "
                          "than one device"));
}

// The line shows what the op has read, not what later ops put there.
TEST(BatchLinesTest, RelationsAreThoseThatTheOpFinds) {
  EXPECT_THAT(LinesOf("    Out=[m] = reduce_sum(X=[y]) {reduce_all=true, dim=ints[0], "
                      "keep_dim=false}\n    Out=[state] = sqrt(X=[m])\n"
                      "    Out=[m] = mean(X=[v])\n",
                      kMean),
              ElementsAre("warning: W703: state state is, after the step, unrelated to what one "
                          "device has: op 2 (sqrt) makes it of m (a partial sum); transpile "
                          "option:statistics true makes it the reference value"));
  // Not what the step before has left.
  EXPECT_THAT(LinesOf("    Out=[m] = reduce_sum(X=[y]) {reduce_all=true, dim=ints[0], "
                      "keep_dim=false}\n    Out=[state] = sum(X=[state, m])\n",
                      kMean),
              ElementsAre("warning: W703: state state is, after the step, unrelated to what one "
                          "device has: op 2 (sum) makes it of m (a partial sum); transpile "
                          "option:statistics true makes it the reference value"));
  // In a block.
  EXPECT_THAT(LinesOf("    Out=[k] = greater_than(X=[lr], Y=[lr]) {axis=-1}\n"
                      "    Out=[state], Scope=[scope] = conditional_block(Cond=[k], Input=[y]) "
                      "{is_scalar_condition=true, sub_block=block(1)}\n",
                      kMean, kReduces, "",
                      "    block 1:\n    var in : fp32[1]\n    Out=[in] = mean(X=[y])\n"
                      "    Out=[state] = sqrt(X=[in])\n    Out=[in] = mean(X=[v])\n"),
              ElementsAre(HasSubstr("(sqrt) makes it of in (a partial mean)")));
}

TEST(BatchLinesTest, DrawsOfUnregisteredOpsAreNamed) {
  for (const char* op : {"exponential(X=[v])", "shuffle_batch(X=[v]) {startup_seed=0}"}) {
    EXPECT_THAT(LinesOf(absl::StrCat("    Out=[m] = ", op, "\n"), kMean),
                ElementsAre(AllOf(StartsWith("note: W705: op 1 ("),
                                  HasSubstr("draws other random numbers for m than one device"))))
        << op;
  }
}

TEST(BatchLinesTest, StateThatTheLossReadsIsOneLine) {
  const std::string statistic = "    Out=[m] = mean(X=[y])\n    Out=[state] = sum(X=[state, m])\n";
  EXPECT_THAT(LinesOf(statistic, kMean),
              ElementsAre(StartsWith("note: W707: state state holds the rank's own part")));
  EXPECT_THAT(
      LinesOf("    Out=[y] = elementwise_sub(X=[y], Y=[state]) {axis=-1}\n" + statistic, kMean),
      ElementsAre(AllOf(StartsWith("warning: W703: state state is, after the step, a "
                                   "partial mean: op 3 (sum) writes it"),
                        HasSubstr("; loss loss follows from it"))));
}

// Where they do.
TEST(BatchLinesTest, OptionsThatMendSomethingAreNamed) {
  EXPECT_THAT(
      LinesOf("    Out=[m] = mean(X=[y])\n", "    Out=[loss] = sqrt(X=[m]) role=forward|loss\n"),
      Contains(AllOf(StartsWith("warning: W701: loss loss"),
                     EndsWith("; transpile option:exact_loss makes it the reference value"))));
  EXPECT_THAT(
      LinesOf("    Out=[y] = softmax(X=[y]) {axis=0}\n", kMean),
      Contains(AllOf(StartsWith("warning: W701: loss loss"), Not(HasSubstr("option:exact_loss")))));
  const std::string branch =
      "    Out=[y], Scope=[scope] = conditional_block(Cond=[k], Input=[y]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  const std::string block = "    block 1:\n    Out=[y] = relu(X=[y])\n";
  EXPECT_THAT(LinesOf("    Out=[m] = mean(X=[y])\n"
                      "    Out=[k] = greater_than(X=[m], Y=[lr]) {axis=-1}\n" +
                          branch,
                      kMean, kReduces, "", block),
              ElementsAre(AllOf(StartsWith("warning: W706"), HasSubstr("option:exact_loss"))));
  // What has a gradient is not gathered.
  EXPECT_THAT(LinesOf("    Out=[y] = softmax(X=[y]) {axis=0}\n    Out=[m] = mean(X=[y])\n"
                      "    Out=[k] = greater_than(X=[m], Y=[lr]) {axis=-1}\n" +
                          branch,
                      kMean, kReduces, "", block),
              Contains(AllOf(StartsWith("warning: W706"), Not(HasSubstr("option:exact_loss")))));
}

// Samples are gathered only for a known number of ranks.
TEST(BatchLinesTest, OptionsThatNeedTheNumberOfRanksNameIt) {
  EXPECT_THAT(LinesOf("    Out=[x2] = cumsum(X=[x]) {axis=0}\n"
                      "    Out=[state] = reduce_max(X=[x2]) {reduce_all=true, dim=ints[0]}\n",
                      kMean),
              ElementsAre(AllOf(StartsWith("warning: W703: state state"),
                                EndsWith("; transpile option:statistics true option:nranks 2 "
                                         "makes it the reference value"))));
}

// Where none does, the message says what else the user can do.
TEST(BatchLinesTest, OtherLossesHaveANextStep) {
  const auto advice = [](const std::string& ops, const std::string& loss = kMean) {
    for (const std::string& line : LinesOf(ops, loss)) {
      if (absl::StartsWith(line, "warning: W701")) return line.substr(line.find("; "));
    }
    return std::string("no line");
  };
  EXPECT_EQ(
      advice("    Out=[y] = softmax(X=[y]) {axis=0}\n"),
      "; transpile option:gather_negatives option:nranks 2 gathers the samples of all ranks before "
      "it; if each rank is fed the whole of an input, say so by option:feed_layout");
  EXPECT_EQ(advice("    Out=[y] = of_another_library(X=[y])\n"),
            "; the verifier does not know of_another_library: if it computes each sample alone, "
            "pass option:assume 'of_another_library: per_sample', else write it with ops of "
            "docs/reference/ops.md, or accept the difference");
  EXPECT_EQ(advice("",
                   "    Out=[loss] = reduce_max(X=[y]) role=forward|loss {dim=ints[0, 1], "
                   "keep_dim=false, reduce_all=true}\n"),
            "; take a mean over the samples instead, or accept the difference");
  // Samples less their mean, which has a gradient: each rank would have its own.
  EXPECT_EQ(advice("    Out=[m] = mean(X=[y])\n    Out=[y] = elementwise_sub(X=[y], Y=[m])\n"
                   "    Out=[m@GRAD] = assign(X=[lr])\n"),
            "; let only sums, means and factors follow a mean or sum over the batch, or accept the "
            "difference");
  // Sums that have a gradient.
  const std::string exact = "; transpile option:exact_loss makes it the reference value";
  const std::string sum =
      "    Out=[m] = reduce_sum(X=[y]) {dim=ints[0, 1], keep_dim=false, reduce_all=true}\n"
      "    Out=[m@GRAD] = assign(X=[lr])\n    Out=[q@GRAD] = assign(X=[lr])\n";
  const std::string mean = "    Out=[q] = mean(X=[y])\n", penalty = "    Out=[q] = mean(X=[w])\n";
  for (const std::string& other : {mean, penalty}) {
    EXPECT_EQ(
        advice(sum + other,
               "    Out=[loss] = elementwise_add(X=[m], Y=[q]) role=forward|loss {axis=-1}\n"),
        exact)
        << other;
  }
  EXPECT_EQ(advice(sum + "    Out=[q] = square(X=[m])\n",
                   "    Out=[loss] = scale(X=[q]) role=forward|loss {scale=2.0}\n"),
            exact);
}

// As Paddle 3 broadcasts indices and values to the rows of what they are put into.
TEST(BatchLinesTest, ValuesPutIntoRowsByComputedShapesAreSamples) {
  const std::string put =
      "    var i : int64[-1, 1] need_check_feed\n    var sizes : int64[2]\n"
      "    var rows, columns : int64[1]\n    var both : int64[2]\n"
      "    var places : int64[-1, -1]\n    var values : fp32[-1, -1]\n"
      "    Out=[sizes] = shape(Input=[y])\n"
      "    Out=[rows] = slice(Input=[sizes]) {axes=ints[0], starts=ints[0], ends=ints[1]}\n"
      "    Out=[sizes] = shape(Input=[i])\n"
      "    Out=[columns] = slice(Input=[sizes]) {axes=ints[0], starts=ints[1], ends=ints[2]}\n"
      "    Out=[both] = concat(X=[rows, columns]) {axis=0}\n"
      "    Out=[places] = expand_v2(X=[i], Shape=[both])\n"
      "    Out=[values] = expand_v2(X=[lr], Shape=[both])\n"
      "    Result=[y] = put_along_axis(Input=[y], Index=[places], Value=[values]) ";
  for (const char* reduce : {"assign", "add", "mean"}) {
    EXPECT_THAT(LinesOf(absl::StrCat(put, "{Axis=1, Reduce=\"", reduce, "\"}\n"), kMean),
                Not(Contains(HasSubstr("W701"))))
        << reduce;
  }
  // Into other rows.
  EXPECT_THAT(LinesOf(absl::StrCat(put, "{Axis=0, Reduce=\"add\"}\n"), kMean),
              Contains(StartsWith("warning: W701: loss loss is no mean and no sum")));
}

TEST(BatchLinesTest, AGradientOfACollectiveThatNoOpTakesBackIsAWarning) {
  const auto gathered = [](absl::string_view reader) {
    return LinesOf(
        "    var all, all@GRAD : fp32[-1, 1]\n",
        "    Out=[all] = c_allgather(X=[y]) {ring_id=0, nranks=2, use_calc_stream=true}\n"
        "    Out=[loss] = mean(X=[all]) role=forward|loss\n",
        absl::StrCat("    X@GRAD=[all@GRAD] = mean_grad(X=[all], Out@GRAD=[loss@GRAD]) "
                     "role=backward\n",
                     reader, kReduces));
  };
  EXPECT_THAT(gathered(""),
              Contains(StartsWith("warning: W717: op 1 (c_allgather): the gradient of its output, "
                                  "all@GRAD, is computed, but no op takes it back")));
  EXPECT_THAT(gathered("    Out=[y@GRAD] = c_reducescatter(X=[all@GRAD]) role=backward {ring_id=0, "
                       "nranks=2, use_calc_stream=true}\n"),
              Not(Contains(HasSubstr("W717"))));
}

// What the message advises.
TEST(BatchLinesTest, GatheredSamplesAreThoseOfOneDevice) {
  EXPECT_THAT(
      LinesOf("    var all : fp32[-1, 1]\n    Out=[all] = c_allgather(X=[y]) {ring_id=0, "
              "nranks=2, use_calc_stream=true}\n    Out=[all] = softmax(X=[all]) {axis=0}\n",
              "    Out=[loss] = mean(X=[all]) role=forward|loss\n"),
      Not(Contains(HasSubstr("W701"))));
}

// A mean weighted by labels needs more than its inputs to be explained.
TEST(BatchLinesTest, WeightsOfLabelsAreNamed) {
  const auto loss = [](const std::string& ignored, const std::string& weight) {
    return LinesOf(
        "    var classes : fp32[-1, 3]\n    var label : int64[-1] need_check_feed\n"
        "    var v3 : fp32[3] persistable\n    var total : fp32[]\n"
        "    Out=[classes] = expand_v2(X=[y]) {shape=ints[-1, 3]}\n",
        absl::StrCat("    Out=[loss], Total_weight=[total] = nll_loss(X=[classes], Label=[label]",
                     weight, ") role=forward|loss {reduction=\"mean\", ignore_index=long(", ignored,
                     ")}\n"));
  };
  constexpr char kMeanOfLabels[] =
      "note: W716: op 2 (nll_loss) makes loss a mean over the labels that are not ignored: the "
      "reference value where all ranks have as many of these";
  EXPECT_THAT(loss("-100", ""), AllOf(Contains(kMeanOfLabels), Not(Contains(HasSubstr("W701")))));
  for (const std::string& weighted : {std::string("1"), std::string("-100")}) {
    EXPECT_THAT(loss(weighted, weighted == "1" ? "" : ", Weight=[v3]"),
                Contains(AllOf(StartsWith("warning: W701: loss loss"),
                               HasSubstr("and divides by the weights of the rank's own labels; use "
                                         "reduction=none, "))));
  }
}

// As ranks count the samples of their own batches.
TEST(BatchLinesTest, CountsArePartsOfSums) {
  EXPECT_THAT(LinesOf("    Out=[size] = size(Input=[y])\n"
                      "    Out=[size_f] = cast(X=[size]) {in_dtype=3, out_dtype=5}\n"
                      "    Out=[count] = sum(X=[count, size_f])\n",
                      kMean),
              ElementsAre(StartsWith("note: W707: state count holds the rank's own part")));
}

TEST(BatchLinesTest, FetchedPartsAreOneLine) {
  const std::string declares = "    var fetch : fetch_list persistable\n";
  const auto fetch = [](const char* name) {
    return absl::StrCat("    Out=[fetch] = fetch(X=[", name, "]) {col=0}\n");
  };
  const std::string mean = declares + "    Out=[m] = mean(X=[x])\n";
  EXPECT_THAT(
      LinesOf(mean, kMean, kReduces,
              fetch("loss") + fetch("w") + fetch("w@GRAD") + fetch("m") + fetch("y")),
      ElementsAre("note: W711: fetched values are not the reference values: m (a partial mean), y "
                  "(sharded along axis 0)"));
  EXPECT_THAT(LinesOf(declares + "    Out=[m] = reduce_sum(X=[x]) {reduce_all=true}\n", kMean,
                      kReduces, fetch("m")),
              ElementsAre("note: W711: fetched values are not the reference values: m (a partial "
                          "sum); weft run prints a partial sum added up"));
  // As the op finds it.
  EXPECT_THAT(LinesOf(mean, kMean, kReduces, fetch("m") + "    Out=[m] = mean(X=[v])\n"),
              ElementsAre(HasSubstr("m (a partial mean)")));
  EXPECT_THAT(LinesOf(mean + "    Out=[m] = sqrt(X=[m])\n", kMean, kReduces, fetch("m")),
              ElementsAre("warning: W712: fetched m is unrelated to what one device has: op 2 "
                          "(sqrt) makes it of m (a partial mean)"));
  // Each value that a variable has.
  EXPECT_THAT(
      LinesOf(mean, kMean, kReduces, fetch("m") + "    Out=[m] = sqrt(X=[m])\n" + fetch("m")),
      ElementsAre(StartsWith("warning: W712: fetched m"), StartsWith("note: W711")));
  // States, too, unless they have a line.
  EXPECT_THAT(LinesOf(declares + "    Out=[m] = mean(X=[x])\n    Out=[state] = sqrt(X=[m])\n",
                      kMean, kReduces, fetch("state") + "    Out=[state] = assign(X=[lr])\n"),
              ElementsAre(StartsWith("warning: W712: fetched state is unrelated")));
  EXPECT_THAT(LinesOf(declares + "    Out=[m] = mean(X=[x])\n    Out=[state] = sqrt(X=[m])\n",
                      kMean, kReduces, fetch("state")),
              ElementsAre(StartsWith("warning: W703: state state")));
  // The draw has a line.
  EXPECT_THAT(LinesOf(declares + "    Out=[n] = gaussian_random() {shape=longs[1, 1], dtype=5}\n",
                      kMean, kReduces, fetch("n")),
              ElementsAre(StartsWith("note: W705")));
}

TEST(BatchLinesTest, LocalSgdIsOneLine) {
  const std::string average =
      "    Out=[w] = c_allreduce_avg(X=[w]) role=optimize {ring_id=0, use_calc_stream=true}\n";
  const std::string clip =
      "    Out=[w@GRAD] = clip(X=[w@GRAD]) role=optimize {min=-1.0, max=1.0}\n";
  // The average of linear updates is that of one device.
  EXPECT_THAT(LinesOf("", kMean, "", average),
              ElementsAre(StartsWith("note: W707: state v holds the rank's own part")));
  EXPECT_THAT(
      LinesOf("    var fetch : fetch_list persistable\n", kMean, "",
              "    Out=[fetch] = fetch(X=[w]) {col=0}\n" + average),
      ElementsAre(
          StartsWith("note: W707"),
          StartsWith("note: W711: fetched values are not the reference values: w (a partial")));
  EXPECT_THAT(LinesOf("", kMean, clip, average),
              ElementsAre(AllOf(StartsWith("note: W709: op 6 (momentum) updates w by the rank's"),
                                HasSubstr(", and state v is the rank's own"))));
  // Groups that average leave each rank its part of the mean.
  const std::string in_groups =
      absl::StrReplaceAll(average, {{"ring_id=0", "group_ranks=ints[0, 1], ring_id=1"}});
  EXPECT_THAT(LinesOf("", kMean, "", in_groups), ElementsAre(StartsWith("note: W709")));
  EXPECT_THAT(LinesOf("", kMean, clip, in_groups), ElementsAre(StartsWith("note: W709")));
  // Also through a copy, and a buffer of copies.
  const std::string declares = "    var copy : fp32[4, 1]\n    var buffer : fp32[4]\n";
  for (const char* copy :
       {"    Out=[copy] = assign(X=[w]) role=optimize\n"
        "    Out=[copy] = c_allreduce_avg(X=[copy]) role=optimize {ring_id=0, "
        "use_calc_stream=true}\n",
        "    Output=[copy], FusedOutput=[buffer] = coalesce_tensor(Input=[w]) role=optimize "
        "{copy_data=true, dtype=5, use_align=false}\n"
        "    Out=[buffer] = c_allreduce_avg(X=[buffer]) role=optimize {ring_id=0, "
        "use_calc_stream=true}\n"}) {
    SCOPED_TRACE(copy);
    const std::string back = absl::StrCat(copy, "    Out=[w] = assign(X=[copy]) role=optimize\n");
    EXPECT_THAT(LinesOf(declares, kMean, "", back), ElementsAre(StartsWith("note: W707: state v")));
    EXPECT_THAT(LinesOf(declares, kMean, clip, back), ElementsAre(StartsWith("note: W709")));
  }
  EXPECT_THAT(LinesOf("", kMean, clip,
                      average + "    Out=[v] = c_allreduce_avg(X=[v]) role=optimize {ring_id=0, "
                                "use_calc_stream=true}\n"),
              ElementsAre(AllOf(StartsWith("note: W709"), Not(HasSubstr("state v")))));
  EXPECT_THAT(LinesOf("",
                      "    Out=[loss] = reduce_sum(X=[y]) role=forward|loss {reduce_all=true, "
                      "dim=ints[0], keep_dim=false}\n",
                      "", average),
              ElementsAre(StartsWith("note: W709"),
                          AllOf(StartsWith("warning: W710"), HasSubstr("divides each"))));
}

// The line of an op that draws by a seed says so.
TEST(BatchLinesTest, SeedsHaveALineWhereTheyAreUsedAsValues) {
  constexpr char kSeed[] = "    Out=[seed] = seed() {seed=0}\n";
  const auto dropout = [&](const char* prob) {
    return LinesOf(absl::StrCat(kSeed,
                                "    Mask=[mask], Out=[y] = dropout(Seed=[seed], X=[y]) "
                                "{is_test=false, dropout_prob=",
                                prob, "}\n"),
                   kMean);
  };
  EXPECT_THAT(dropout("0.0"), IsEmpty());
  EXPECT_THAT(dropout("0.5"), Contains(AllOf(StartsWith("note: W705: op 2 (dropout)"),
                                             Not(HasSubstr("other op")))));
  EXPECT_THAT(
      LinesOf(absl::StrCat(kSeed, "    Out=[count] = cast(X=[seed]) {in_dtype=2, out_dtype=5}\n"),
              kMean),
      ElementsAre(StartsWith("note: W705: op 1 (seed) draws")));
}

// A loss has no line for what every loss is.
TEST(BatchLinesTest, CopiesOfLossesInTheOtherMemoryAreLosses) {
  const std::string fetch =
      absl::StrCat("    var fetch : fetch_list persistable\n    var copy : fp32[1]\n",
                   "    Out=[copy] = COPY(X=[loss])\n    Out=[fetch] = fetch(X=[copy]) {col=0}\n");
  const auto lines = [&](const char* type) {
    return LinesOf("", kMean, kReduces, absl::StrReplaceAll(fetch, {{"COPY", type}}));
  };
  EXPECT_THAT(lines("memcpy_d2h"), IsEmpty());
  EXPECT_THAT(lines("sign"), Not(IsEmpty()));
}

}  // namespace
}  // namespace weft::testing
