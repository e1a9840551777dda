#include "transpiler/verifier/communication/residuals.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kSparsify[] =
    "    Out=[rows], ResidualOut=[rest] = sparsify_topk(Residual=[rest], X=[w@GRAD]) role=backward "
    "{k=long(2)}\n";
constexpr char kReduce[] =
    "    Out=[rows] = c_allreduce_sum(X=[rows]) role=backward {use_calc_stream=true}\n";
constexpr char kDivide[] = "    Out=[rows] = scale(X=[rows]) role=backward {scale=0.5, nranks=2}\n";
constexpr char kDensify[] =
    "    Out=[w@GRAD] = densify(X=[rows]) role=backward {concated_ranks=longs[2], "
    "concated_shapes=longs[4, 1]}\n";

constexpr char kStartup[] = R"(
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var rest : fp32[4, 1] persistable
    var id : raw
    Out=[id] = c_gen_nccl_id() {rank=0, endpoint="a:1", other_endpoints=strings["b:1"]}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
    Out=[w] = fill_constant() {shape=longs[4, 1], dtype=5, value=1.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[rest] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}
)";

std::string Step() { return SgdStepText(absl::StrCat(kSparsify, kReduce, kDivide, kDensify)); }

// With the declarations of what the step adds, and edits of both programs.
std::vector<std::string> Find(const std::string& step, const Edits& edits = {},
                              const Edits& startup_edits = {}) {
  Edits all = {{"    var loss : fp32[]\n",
                "    var loss : fp32[]\n    var rows : selected_rows<fp32[4, 1]>\n    var rest : "
                "fp32[4, 1] persistable\n    var other : fp32[4, 1]\n"}};
  all.insert(all.end(), edits.begin(), edits.end());
  const Program main = ProgramOf(step, all), startup = ProgramOf(kStartup, startup_edits);
  return Errors({{&main, &startup}});
}

TEST(Residuals, SparsifiedGradientsAreReduced) { EXPECT_THAT(Find(Step()), IsEmpty()); }

// The rules for gradients hold for what is sent of them.
TEST(Residuals, MistakesOfTheReductionAreFound) {
  const auto find = [](const std::string& ops) { return Find(SgdStepText(ops)); };
  EXPECT_THAT(find(absl::StrCat(kSparsify, kReduce, kDensify)), Contains(HasSubstr("W312")));
  EXPECT_THAT(find(absl::StrCat(kSparsify, kReduce, kDivide, kDivide, kDensify)),
              Contains(HasSubstr("W314")));
  EXPECT_THAT(find(absl::StrCat(kSparsify, kDivide, kDensify)), Contains(HasSubstr("W310")));
  EXPECT_THAT(find(absl::StrCat(kSparsify, kReduce, kReduce, kDivide, kDensify)),
              Contains(HasSubstr("W312")));
  EXPECT_THAT(find(absl::StrCat(kSparsify, kReduce, kDivide)), Contains(HasSubstr("W310")));
  EXPECT_THAT(find(absl::StrCat(kSparsify,
                                "    Out=[w@GRAD] = clip(X=[w@GRAD]) role=backward {min=-1.0, "
                                "max=1.0}\n    Out=[rows], ResidualOut=[rest] = "
                                "sparsify_topk(Residual=[rest], X=[w@GRAD]) role=backward "
                                "{k=long(2)}\n",
                                kReduce, kDivide, kDensify)),
              Contains(HasSubstr("W313")));
}

TEST(Residuals, ResidualIsKeptFromStepToStep) {
  EXPECT_THAT(
      Find(Step(), {{"var rest : fp32[4, 1] persistable", "var rest : fp32[4, 1]"},
                    {kSparsify, absl::StrCat("    Out=[rest] = fill_constant() "
                                             "role=backward {shape=longs[4, 1], dtype=5, "
                                             "value=0.0}\n",
                                             kSparsify)}}),
      Contains(AllOf(StartsWith("error: W319: "), HasSubstr("residual rest is not persistable"))));
  EXPECT_THAT(Find(Step(), {{"ResidualOut=[rest]", "ResidualOut=[other]"}}),
              Contains(AllOf(StartsWith("error: W319: "),
                             HasSubstr("is not written back: ResidualOut is other"))));
}

TEST(Residuals, ResidualBeginsWithZeros) {
  EXPECT_THAT(
      Find(Step(), {}, {{"value=0.0", "value=0.5"}}),
      ElementsAre(AllOf(StartsWith("error: W319: op 5 (sparsify_topk): residual rest begins with "
                                   "other values than zeros"))));
}

// One process sets up the rings of all ranks.
TEST(Residuals, ResidualBeginsWithZerosInOneProcess) {
  const Edits one_process = {{"    Out=[id] = c_gen_nccl_id() {rank=0, endpoint=\"a:1\", "
                              "other_endpoints=strings[\"b:1\"]}\n",
                              ""},
                             {"    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}\n",
                              "    c_comm_init_all() {ring_id=0}\n"}};
  EXPECT_THAT(Find(Step(), {}, one_process), IsEmpty());
  Edits wrong = one_process;
  wrong.push_back({"value=0.0", "value=0.5"});
  EXPECT_THAT(Find(Step(), {}, wrong), Contains(HasSubstr("begins with other values")));
  Edits absent = one_process;
  absent.push_back(
      {"    Out=[rest] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}\n", ""});
  EXPECT_THAT(Find(Step(), {}, absent), Contains(HasSubstr("has no value when training begins")));
}

TEST(Residuals, NothingIsSentForK0) {
  EXPECT_THAT(Find(Step(), {{"k=long(2)", "k=long(0)"}}),
              Contains(AllOf(StartsWith("error: W320: "), HasSubstr("attribute k: expected at "
                                                                    "least 1, found 0"))));
}

TEST(Residuals, GradientsAreSparsifiedOnce) {
  const std::string twice =
      absl::StrReplaceAll(Step(), {{"sparsify_topk(Residual=[rest], X=[w@GRAD])",
                                    "sparsify_topk(Residual=[rest, other], X=[w@GRAD, w@GRAD])"},
                                   {"ResidualOut=[rest]", "ResidualOut=[rest, other]"}});
  const Edits kept = {{"var other : fp32[4, 1]", "var other : fp32[4, 1] persistable"}};
  EXPECT_THAT(Find(twice, kept),
              Contains(AllOf(StartsWith("error: W320: "), HasSubstr("w@GRAD is there twice"))));
}

TEST(Residuals, ResidualBelongsToOneGradient) {
  const std::string twice = absl::StrCat(kSparsify, kSparsify, kReduce, kDivide, kDensify);
  EXPECT_THAT(
      Find(SgdStepText(twice)),
      ElementsAre(HasSubstr("op 6 (sparsify_topk): residual rest is also a residual of op 5 "
                            "(sparsify_topk): expected one residual per gradient")));
  EXPECT_THAT(
      Find(Step(), {{kDensify, absl::StrCat(kDensify,
                                            "    Out=[rest] = scale(X=[rest]) "
                                            "role=backward {scale=0.0}\n")}}),
      Contains(HasSubstr("op 5 (sparsify_topk): residual rest is also used by op 9 (scale)")));
}

// A state that is no residual may still not be added to a gradient.
TEST(Residuals, OtherStatesOfARankAreNoGradients) {
  EXPECT_THAT(Find(Step(),
                   {{kSparsify, absl::StrCat("    Out=[w@GRAD] = "
                                             "elementwise_add(X=[w@GRAD], Y=[own]) "
                                             "role=backward {axis=-1}\n    Out=[own] = "
                                             "square(X=[w@GRAD]) role=backward\n",
                                             kSparsify)},
                    {"    var other : fp32[4, 1]\n",
                     "    var other : fp32[4, 1]\n    var own : fp32[4, 1] persistable\n"}},
                   {{"    var rest : fp32[4, 1] persistable\n",
                     "    var rest, own : fp32[4, 1] persistable\n "
                     "   Out=[own] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}\n"}}),
              Contains(HasSubstr("W313")));
}

}  // namespace
}  // namespace weft::testing
