// weft run of programs that the verifier has something to say about.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "executor/files/npz.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/tensor.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A sum over the batch, and a rate that is halved once it falls by no more than 0.5.
constexpr char kMain[] = R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 2] need_check_feed
    var w : fp32[2, 1] parameter persistable
    var lr : fp32[1] persistable {lr_schedule="reduce_on_plateau{learning_rate=0.01,every=1,factor=0.5,patience=0,threshold=0.5,threshold_mode=abs}"}
    var p : fp32[-1, 1]
    var q : fp32[-1, 1]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var q@GRAD : fp32[-1, 1]
    var p@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[2, 1]
    Out=[p] = mul(X=[x], Y=[w]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[q] = square(X=[p]) role=forward
    Out=[loss] = reduce_sum(X=[q]) role=forward|loss {dim=ints[], reduce_all=true, keep_dim=false}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[q@GRAD] = reduce_sum_grad(X=[q], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true, keep_dim=false}
    X@GRAD=[p@GRAD] = square_grad(X=[p], Out@GRAD=[q@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[p@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  }
}
)";
constexpr char kStartup[] = R"(program {
  block 0 parent=-1 {
    var w : fp32[2, 1] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[2, 1], dtype=5, value=1.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.01}
  }
}
)";

class WeftRunChecksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Tensor x;
    x.Resize(DType::kFloat32, {4, 2});
    const float rows[] = {1, 0, 0, 1, 1, 1, 1, -1};
    std::copy(std::begin(rows), std::end(rows), x.data<float>());
    WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter feeds, NpzWriter::Create(Path("feeds.npz")));
    WEFT_ASSERT_OK(feeds.Add("0/x", x));
    WEFT_ASSERT_OK(feeds.Finish());
  }

  static std::string Path(const std::string& name) { return ::testing::TempDir() + "/" + name; }

  static std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }

  static ProcessResult Run(const std::string& main, const std::string& startup, int ranks,
                           std::vector<std::string> more) {
    std::vector<std::string> args = {"tools/weft",      "run",     main,
                                     "--startup",       startup,   "--feeds",
                                     Path("feeds.npz"), "--ranks", absl::StrCat(ranks),
                                     "--steps",         "8"};
    args.insert(args.end(), more.begin(), more.end());
    return RunProcess(args);
  }

  // The step with an op after its backward pass.
  static std::string WithOp(const std::string& op) {
    return absl::StrReplaceAll(kMain, {{"    ParamOut", absl::StrCat(op, "\n    ParamOut")}});
  }

  // "step 3: lr" -> 0.01
  static std::map<std::string, double> ValuesOf(const std::string& out) {
    std::map<std::string, double> values;
    for (absl::string_view line : absl::StrSplit(out, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      double value = 0;
      if (words.size() < 4 || words[0] != "step" || !absl::SimpleAtod(words[3], &value)) continue;
      values[absl::StrCat(words[1], words[2])] = value;
    }
    return values;
  }

  const std::string main_ = Write("main.prog", kMain), startup_ = Write("startup.prog", kStartup);
};

// Parameters that a step makes differ are an error as gradients that are not reduced; parameters
// that begin differently are not, as the run compares them.
TEST_F(WeftRunChecksTest, RanksDoNotDriftApart) {
  const std::string reduced =
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward "
      "{ring_id=0, use_calc_stream=true}";
  const std::string by_batch = absl::StrReplaceAll(
      WithOp(absl::StrCat(reduced, "\n    Out=[rate] = elementwise_mul(X=[lr], Y=[loss])")),
      {{"LearningRate=[lr]", "LearningRate=[rate]"},
       {"    var p :", "    var rate : fp32[1]\n    var p :"}});
  const ProcessResult wrong = Run(Write("by_batch.prog", by_batch), startup_, 2, {});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("W317"), HasSubstr("reads rate")));
  const ProcessResult right = Run(Write("reduced.prog", WithOp(reduced)), startup_, 2, {});
  EXPECT_EQ(right.status, 0) << right.err;
}

// What is printed, stored in metrics, and drives the rate.
TEST_F(WeftRunChecksTest, TheCourseOfASumDoesNotDependOnTheRanks) {
  const std::string rewritten = Path("rewritten.prog"), startup = Path("rewritten_startup.prog");
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--startup_in", startup_,
                        "--startup_out", startup, main_, rewritten})
                .status,
            0);
  const ProcessResult one = Run(main_, startup_, 1, {"--fetch", "loss,lr"});
  const std::map<std::string, double> expected = ValuesOf(one.out);
  ASSERT_EQ(expected.size(), 16) << one.out << one.err;
  EXPECT_EQ(expected.at("1:lr"), 0.01);
  EXPECT_EQ(expected.at("7:lr"), 0.01 / 4);
  for (const int ranks : {2, 4}) {
    const std::string metrics = Path("metrics.jsonl");
    const ProcessResult several =
        Run(rewritten, startup, ranks, {"--fetch", "loss,lr", "--metrics", metrics});
    std::map<std::string, double> found = ValuesOf(several.out);
    EXPECT_THAT(several.out, HasSubstr("(sum of ranks: "));
    for (const auto& [name, value] : expected) {
      EXPECT_NEAR(found[name], value, 1e-5) << ranks << " ranks, step " << name << several.err;
    }
    WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes file, ReadFile(metrics));
    for (absl::string_view line : absl::StrSplit(file.bytes, '\n', absl::SkipEmpty())) {
      const auto json = nlohmann::json::parse(line);
      EXPECT_NEAR(json["fetch"]["loss"][0], expected.at(absl::StrCat(int{json["step"]}, ":loss")),
                  1e-5);
    }
  }
}

TEST_F(WeftRunChecksTest, AProgramThatIsProvedWrongIsRefused) {
  const std::string main =
      Write("apart.prog",
            WithOp("    Out=[loss] = c_allreduce_avg(X=[loss]) {ring_id=0, use_calc_stream=true}"));
  const ProcessResult refused = Run(main, startup_, 2, {});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.out, IsEmpty());
  EXPECT_THAT(refused.err, AllOf(HasSubstr(absl::StrCat("error: ", main, ": W310: op ")),
                                 HasSubstr("--force runs the program nevertheless")));
  const ProcessResult forced = Run(main, startup_, 2, {"--force"});
  EXPECT_EQ(forced.status, 0);
  EXPECT_THAT(forced.err, HasSubstr("warning: W310: op "));
  // On one device nothing is wrong.
  EXPECT_THAT(Run(main, startup_, 1, {}).err, Not(HasSubstr("W310")));
}

// Where only a factor is in question, something else may divide: here the loss.
TEST_F(WeftRunChecksTest, AFactorIsAWarning) {
  const std::string mean = absl::StrReplaceAll(
      kMain, {{"reduce_sum", "reduce_mean"},
              {"    Out=[loss@GRAD]",
               "    Out=[half] = scale(X=[loss]) role=forward|loss "
               "{scale=0.5}\n    Out=[half@GRAD]"},
              {"role=forward|loss {dim", "role=forward {dim"},
              {"    X@GRAD=[q@GRAD]",
               "    Out=[loss@GRAD] = scale(X=[half@GRAD]) role=backward {scale=0.5}\n"
               "    X@GRAD=[q@GRAD]"},
              {"    var p :", "    var half : fp32[]\n    var half@GRAD : fp32[]\n    var p :"},
              {"    ParamOut",
               "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward "
               "{ring_id=0, use_calc_stream=true}\n    ParamOut"}});
  const ProcessResult result = Run(Write("divided.prog", mean), startup_, 2, {});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: W312: op "),
                                HasSubstr("right where the loss (of which the n-th part is then "
                                          "printed)")));
}

// Layer 1 finds that nothing writes what is fed, and other layers run nevertheless.
TEST_F(WeftRunChecksTest, AProgramThatReadsWhatIsFedIsVerifiedInAllLayers) {
  const std::string main = absl::StrReplaceAll(
      WithOp("    Out=[more] = scale(X=[fed]) {scale=2.0}\n"
             "    Out=[loss] = c_allreduce_avg(X=[loss]) {ring_id=0, use_calc_stream=true}"),
      {{"    var lr", "    var fed : fp32[-1, 2]\n    var more : fp32[-1, 2]\n    var lr"}});
  Tensor x;
  x.Resize(DType::kFloat32, {4, 2});
  std::fill_n(x.data<float>(), 8, 1.0f);
  WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter feeds, NpzWriter::Create(Path("both.npz")));
  for (const char* name : {"0/x", "0/fed"}) WEFT_ASSERT_OK(feeds.Add(name, x));
  WEFT_ASSERT_OK(feeds.Finish());
  const ProcessResult refused =
      RunProcess({"tools/weft", "run", Write("fed.prog", main), "--startup", startup_, "--feeds",
                  Path("both.npz"), "--ranks", "2", "--steps", "1"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("W310: op "));
}

TEST_F(WeftRunChecksTest, AnErrorOfTheStartupProgramNamesItsFile) {
  const std::string startup =
      Write("mistyped.prog",
            absl::StrReplaceAll(kStartup, {{"    Out=[lr]",
                                            "    var odd : int64[1]\n    Out=[odd] = "
                                            "fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
                                            "    Out=[lr]"}}));
  const ProcessResult refused = Run(main_, startup, 1, {});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr(absl::StrCat("error: ", startup, ": startup program: W202")));
}

// Paddle's executor makes a collective wait for who wrote its variables, and readers for it.
TEST_F(WeftRunChecksTest, CollectivesThatOnlyVariablesOrderRunInTheirOrder) {
  const std::string main = Write(
      "raw.prog", WithOp("    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {ring_id=0, "
                         "use_calc_stream=false}"));
  const ProcessResult one = Run(main_, startup_, 1, {"--fetch", "loss"});
  const ProcessResult two = Run(main, startup_, 2, {"--fetch", "loss"});
  EXPECT_EQ(two.status, 0);
  EXPECT_THAT(two.err, AllOf(HasSubstr("warning: W401: "),
                             HasSubstr("this run orders ops by variables, as Paddle")));
  std::map<std::string, double> found = ValuesOf(two.out);
  for (const auto& [name, value] : ValuesOf(one.out)) {
    EXPECT_NEAR(found[name], value, 1e-5) << name;
  }
  // As they stand.
  const ProcessResult forced = Run(main, startup_, 2, {"--force"});
  EXPECT_EQ(forced.status, 0);
  EXPECT_THAT(forced.err, AllOf(HasSubstr("warning: W401: "), Not(HasSubstr("this run orders"))));
}

}  // namespace
}  // namespace weft::testing
