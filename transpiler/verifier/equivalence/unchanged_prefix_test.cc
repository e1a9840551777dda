#include "transpiler/verifier/equivalence/unchanged_prefix.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

constexpr char kVars[] = R"(
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[-1, 4] need_check_feed
    var loss : fp32[]
    var seen : fp32[4, 1] persistable
)";

constexpr char kOriginal[] = R"(
    Out=[y] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[loss] = reduce_mean(X=[y]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";
constexpr char kMulGrad[] = "    Y@GRAD=[w@GRAD] = mul_grad";
constexpr char kUpdate[] = "    ParamOut=[w] = sgd";
constexpr char kReduce[] =
    "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}\n";
constexpr char kDivide[] =
    "    Out=[w@GRAD] = scale(X=[w@GRAD]) {nranks=4, scale=0.25, bias=0.0}\n";

// The original with text put before other text.
std::string With(const std::string& inserted, const char* before) {
  return absl::StrReplaceAll(kOriginal, {{before, absl::StrCat(inserted, before)}});
}

struct Ends {
  size_t original, program;
};
bool operator==(const Ends& a, const Ends& b) {
  return a.original == b.original && a.program == b.program;
}
void PrintTo(const Ends& ends, std::ostream* os) { *os << ends.original << ", " << ends.program; }

Ends PrefixOf(const std::string& rewritten) {
  const UnchangedPrefix prefix(ProgramOf(absl::StrCat(kVars, kOriginal)),
                               ProgramOf(absl::StrCat(kVars, rewritten)));
  return {prefix.original_ops(), prefix.program_ops()};
}

TEST(UnchangedPrefix, CoversUnchangedOpsAndReducedGradients) {
  EXPECT_EQ(PrefixOf(kOriginal), (Ends{6, 6}));
  EXPECT_EQ(PrefixOf(With(absl::StrCat(kReduce, kDivide), kUpdate)), (Ends{6, 8}));
  // Another constant, another op, one less, one more at the end.
  EXPECT_EQ(PrefixOf(absl::StrReplaceAll(kOriginal, {{"value=1.0", "value=2.0"}})), (Ends{2, 2}));
  EXPECT_EQ(PrefixOf(absl::StrReplaceAll(kOriginal, {{"sgd(", "sgd2("}})), (Ends{5, 5}));
  EXPECT_EQ(PrefixOf(absl::StrCat(kOriginal, "    Out=[seen] = assign(X=[w])\n")), (Ends{6, 6}));
  EXPECT_EQ(PrefixOf(absl::StrCat(kOriginal, "    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0}\n")),
            (Ends{6, 6}));
}

TEST(UnchangedPrefix, EndsWhereAnInsertedOpMayChangeMore) {
  for (const char* inserted :
       {"    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=0.25, bias=1.0}\n",
        "    Out=[seen] = scale(X=[w@GRAD]) {scale=0.25, bias=0.0}\n",
        "    Out=[w@GRAD] = c_allreduce_max(X=[w@GRAD]) {ring_id=0}\n",
        "    Out=[w@GRAD] = c_broadcast(X=[w@GRAD]) {ring_id=0}\n",
        "    Out=[seen] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0}\n",
        "    Output=[w@GRAD], FusedOutput=[seen] = coalesce_tensor(Input=[w@GRAD]) {dtype=5}\n"}) {
    EXPECT_EQ(PrefixOf(With(inserted, kUpdate)), (Ends{5, 5})) << inserted;
  }
}

// Whether the walk over four ranks bears the prefix out.
bool Holds(const std::string& rewritten, const std::string& original = kOriginal) {
  const Program program = ProgramOf(absl::StrCat(kVars, rewritten));
  const UnchangedPrefix prefix(ProgramOf(absl::StrCat(kVars, original)), program);
  EXPECT_EQ(prefix.program_ops(), program.block(0).ops().size());
  RankValuesOptions options;
  options.setting.nranks = 4;
  options.original_ops = &prefix.kept();
  return prefix.IsConfirmedBy(RankValues::Of(program, options));
}

TEST(UnchangedPrefix, HoldsWhereGradientsOfParametersAreReduced) {
  EXPECT_TRUE(Holds(With(absl::StrCat(kReduce, kDivide), kUpdate)));
  // What each rank has of its own samples is no gradient of all of them.
  EXPECT_FALSE(Holds(With("    Out=[y] = c_allreduce_avg(X=[y]) {ring_id=0}\n", kMulGrad)));
  EXPECT_FALSE(
      Holds(With("    Out=[y@GRAD] = c_allreduce_avg(X=[y@GRAD]) {ring_id=0}\n", kMulGrad)));
  // A factor that nobody has summed for.
  EXPECT_FALSE(
      Holds(With("    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=0.5, bias=0.0}\n", kUpdate)));
}

// A factor of the original that is one over the number of ranks by chance is no division.
TEST(UnchangedPrefix, FactorOfTheOriginalIsNotADivision) {
  const std::string quarter = "    Out=[w@GRAD] = scale(X=[w@GRAD]) {scale=0.25, bias=0.0}\n";
  const std::string original = With(quarter, kUpdate);
  const auto rules_for = [&](const std::string& rewritten) {
    const Program before = ProgramOf(absl::StrCat(kVars, original));
    const Program after = ProgramOf(absl::StrCat(kVars, rewritten));
    VerifyOptions options;
    options.setting.nranks = 4;
    options.original.main = &before;
    const Findings findings = Verify({{&after, nullptr}}, options);
    std::vector<std::string> rules;
    for (const Finding& finding : findings.all()) rules.push_back(finding.rule);
    return rules;
  };
  EXPECT_TRUE(Holds(With(absl::StrCat(kReduce, quarter), kUpdate), original));
  EXPECT_THAT(rules_for(With(absl::StrCat(kReduce, quarter), kUpdate)),
              ::testing::ElementsAre("W312", "W601"));
  EXPECT_THAT(rules_for(With(absl::StrCat(kReduce, quarter, kDivide), kUpdate)),
              ::testing::IsEmpty());
}

// Not in proportion to the gradient any more: an op that is linear in gradients only takes a
// parameter while it is divided.
TEST(UnchangedPrefix, DivisionDuringAReadIsSeen) {
  const std::string halved = absl::StrReplaceAll(
      With("    Out=[w] = scale(X=[w]) {nranks=4, scale=0.25, bias=0.0}\n", kMulGrad),
      {{kUpdate, absl::StrCat("    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0, "
                              "use_calc_stream=true}\n",
                              kReduce, kDivide, kUpdate)}});
  const Program before = ProgramOf(absl::StrCat(kVars, kOriginal));
  const Program after = ProgramOf(absl::StrCat(kVars, halved));
  VerifyOptions options;
  options.setting.nranks = 4;
  options.original.main = &before;
  EXPECT_TRUE(Verify({{&after, nullptr}}, options).HasErrors());
}

}  // namespace
}  // namespace weft::testing
