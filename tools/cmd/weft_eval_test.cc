// weft eval as users run it: totals over batches and ranks, parameters of training.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/formats/program_file.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";
constexpr char kFeeds[] = "tests/data/fit_a_line/feeds.npz";
constexpr char kInit[] = "tests/data/fit_a_line/init.params";
constexpr char kNames[] = "tests/data/fit_a_line/persistables.txt";

// The test program of fit_a_line: its forward pass, with the predictions and the number of samples.
constexpr char kTest[] = R"(program {
  block 0 parent=-1 {
    var fc_0.b_0 : fp32[1] parameter persistable
    var fc_0.w_0 : fp32[13, 1] parameter persistable
    var product : fp32[-1, 1]
    var prediction : fp32[-1, 1]
    var error : fp32[-1, 1]
    var square : fp32[-1, 1]
    var loss : fp32[]
    var sum : fp32[]
    var root : fp32[]
    var x : fp32[-1, 13] need_check_feed
    var y : fp32[-1, 1] need_check_feed
    Out=[product] = mul(X=[x], Y=[fc_0.w_0]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[prediction] = elementwise_add(X=[product], Y=[fc_0.b_0]) role=forward {axis=1}
    Out=[error] = elementwise_sub(X=[prediction], Y=[y]) role=forward {axis=-1}
    Out=[square] = square(X=[error]) role=forward
    Out=[loss] = reduce_mean(X=[square]) role=forward {dim=ints[], keep_dim=false, reduce_all=true}
    Out=[sum] = reduce_sum(X=[square]) role=forward {dim=ints[], keep_dim=false, reduce_all=true}
    Out=[root] = sqrt(X=[loss]) role=forward
  }
}
)";

// The area under the curve of the predictions p.
constexpr char kAuc[] = R"(program {
  block 0 parent=-1 {
    var p : fp32[-1, 2] need_check_feed
    var y : int64[-1, 1] need_check_feed
    var area : fp64[]
    var positives : int64[1, 256] persistable
    var negatives : int64[1, 256] persistable
    AUC=[area], StatNegOut=[negatives], StatPosOut=[positives] = auc(Label=[y], Predict=[p], StatNeg=[negatives], StatPos=[positives]) role=forward {curve="ROC", num_thresholds=255, slide_steps=0}
  }
}
)";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string MakeFile(const std::string& name, const std::string& text) {
  std::ofstream(TestPath(name), std::ios::binary) << text;
  return TestPath(name);
}

ProcessResult Weft(std::vector<std::string> args) {
  args.insert(args.begin(), "tools/weft");
  return RunProcess(args, "");
}

// weft eval of kTest.
ProcessResult Eval(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"eval", MakeFile("test.prog", kTest)};
  args.insert(args.end(), more.begin(), more.end());
  return Weft(args);
}

nlohmann::json MetricsOf(const ProcessResult& result) {
  const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << result.out << result.err;
  return json.is_object() ? json["metrics"] : nlohmann::json();
}

Tensor Floats(const Dims& dims, const std::function<double(int64_t)>& element) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, dims);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data<float>()[i] = static_cast<float>(element(i));
  }
  return tensor;
}

// So many rows of data, from a row on, as a batch.
void AddBatch(int64_t batch, int64_t first, int64_t rows, std::map<std::string, Tensor>* feeds) {
  const auto wave = [](int64_t i) { return static_cast<double>((i * 37) % 101) / 50 - 1; };
  (*feeds)[absl::StrCat(batch, "/x")] =
      Floats({rows, 13}, [&](int64_t i) { return wave(first * 13 + i); });
  (*feeds)[absl::StrCat(batch, "/y")] =
      Floats({rows, 1}, [&](int64_t i) { return wave(7 * (first + i)); });
}

// 47 rows in batches of these sizes.
std::string Rows(const std::string& name, const std::vector<int64_t>& sizes) {
  std::map<std::string, Tensor> feeds;
  int64_t first = 0;
  for (size_t batch = 0; batch < sizes.size(); ++batch) {
    AddBatch(static_cast<int64_t>(batch), first, sizes[batch], &feeds);
    first += sizes[batch];
  }
  EXPECT_TRUE(WriteNpz(TestPath(name), feeds).ok());
  return TestPath(name);
}

TEST(WeftEvalTest, UnevenBatchesGiveTheValuesOfOneBatchOnAnyNumberOfRanks) {
  const std::vector<std::string> params = {"--params", kInit,      "--params_names",
                                           kNames,     "--format", "json"};
  const auto evaluate = [&](const std::string& feeds, const std::string& ranks) {
    std::vector<std::string> args = params;
    args.insert(args.end(), {"--feeds", feeds, "--ranks", ranks, "--fetch", "loss,sum,prediction"});
    return Eval(args);
  };
  const nlohmann::json whole = MetricsOf(evaluate(Rows("whole.npz", {47}), "1"));
  const std::string parts = Rows("parts.npz", {20, 20, 7});
  const ProcessResult first = evaluate(parts, "1");
  for (const char* name : {"loss", "sum", "prediction"}) {
    const double expected = whole[name].get<double>();
    EXPECT_NEAR(MetricsOf(first)[name].get<double>(), expected, 1e-5 * std::abs(expected)) << name;
  }
  for (const char* ranks : {"2", "3", "8"}) {
    EXPECT_EQ(evaluate(parts, ranks).out, first.out) << ranks;
  }
}

TEST(WeftEvalTest, DefaultMetricsAreTheNumbersThatNothingReads) {
  const ProcessResult result = Eval(
      {"--params", kInit, "--params_names", kNames, "--feeds", Rows("default.npz", {20, 20, 7})});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("sum: "), HasSubstr(" (sum over the batches)\nroot: "),
                    HasSubstr(" (mean of the batches)\n3 batches, 47 samples, 1 rank, ")));
  EXPECT_THAT(result.err, HasSubstr("root of all batches together may be another number"));
}

// As Paddle saves them, with ops that feed and fetch.
TEST(WeftEvalTest, WhatAModelForInferenceFetchesIsEvaluated) {
  const std::string model = MakeFile("inference.prog", R"(program {
  block 0 parent=-1 {
    var feed : feed_minibatch persistable
    var fetch : fetch_list persistable
    var fc_0.b_0 : fp32[1] parameter persistable
    var fc_0.w_0 : fp32[13, 1] parameter persistable
    var product : fp32[-1, 1]
    var prediction : fp32[-1, 1]
    var x : fp32[-1, 13] need_check_feed
    Out=[x] = feed(X=[feed]) {col=0}
    Out=[product] = mul(X=[x], Y=[fc_0.w_0]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[prediction] = elementwise_add(X=[product], Y=[fc_0.b_0]) {axis=1}
    Out=[fetch] = fetch(X=[prediction]) {col=0}
  }
}
)");
  const ProcessResult result = RunProcess({"tools/weft", "eval", model, "--params", kInit,
                                           "--params_names", kNames, "--feeds", kFeeds});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("prediction: "));
}

TEST(WeftEvalTest, ArraysOfTrainingAreCountedAndLeft) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, LoadParams(kInit, kNames));
  const std::vector<std::string> feeds = {"--feeds", kFeeds, "--fetch", "loss"};
  params["moment"] = params["fc_0.w_0"];
  WEFT_ASSERT_OK(SaveParams(TestPath("more.npz"), params));
  const ProcessResult result =
      Eval({"--params", TestPath("more.npz"), "--feeds", kFeeds, "--fetch", "loss"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("more.npz: 2 of 4 arrays are no persistable variables of the "
                                    "program (learning_rate_0, moment)"));
  // The loss of the first step of training, at the same parameters.
  EXPECT_THAT(Eval({"--params", TestPath("more.npz"), "--feeds", kFeeds, "--fetch", "loss",
                    "--batches", "1"})
                  .out,
              StartsWith("loss: 10.63908 "));
}

TEST(WeftEvalTest, CheckpointOfTrainingIsEvaluated) {
  const std::string checkpoint = TestPath("eval.ckpt"), saved = TestPath("eval.npz");
  ASSERT_EQ(Weft({"run", kMain, "--startup", kStartup, "--feeds", kFeeds, "--checkpoint",
                  checkpoint, "--save", saved})
                .status,
            0);
  const std::vector<std::string> more = {"--feeds", kFeeds, "--fetch", "loss", "--format", "json"};
  std::vector<std::string> from_checkpoint = {"--checkpoint", checkpoint},
                           from_file = {"--params", saved};
  for (auto* args : {&from_checkpoint, &from_file}) {
    args->insert(args->end(), more.begin(), more.end());
  }
  const ProcessResult result = Eval(from_checkpoint);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, Eval(from_file).out);
}

TEST(WeftEvalTest, AreaUnderTheCurveIsThatOfAllBatchesNotTheMean) {
  // In each batch, all positives are above all negatives; together they are not.
  const std::vector<float> predictions = {0.1F, 0.2F, 0.6F, 0.7F};
  std::map<std::string, Tensor> feeds;
  for (int batch = 0; batch < 2; ++batch) {
    const std::string prefix = absl::StrCat(batch, "/");
    feeds[prefix + "p"] = Floats({2, 2}, [&](int64_t i) {
      const float p = predictions[2 * batch + i / 2];
      return i % 2 == 1 ? p : 1 - p;
    });
    Tensor& labels = feeds[prefix + "y"];
    labels.Resize(DType::kInt64, {2, 1});
    labels.data<int64_t>()[0] = 0;
    labels.data<int64_t>()[1] = 1;
  }
  WEFT_ASSERT_OK(WriteNpz(TestPath("auc_feeds.npz"), feeds));
  // Counts of training, which do not count here.
  std::map<std::string, Tensor> counts;
  for (const char* name : {"positives", "negatives"}) {
    counts[name].Resize(DType::kInt64, {1, 256});
    std::fill_n(counts[name].data<int64_t>(), 256, 1000);
  }
  WEFT_ASSERT_OK(WriteNpz(TestPath("counts.npz"), counts));
  for (const char* ranks : {"1", "2"}) {
    const ProcessResult result =
        Weft({"eval", MakeFile("auc.prog", kAuc), "--params", TestPath("counts.npz"), "--feeds",
              TestPath("auc_feeds.npz"), "--ranks", ranks});
    // Of 4 pairs, the positive 0.2 is below the negative 0.6.
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("area: 0.75 (from the counts of all batches)\n"));
  }
  // In PIR, no count is kept between batches.
  std::string of_each = absl::StrReplaceAll(
      kAuc, {{" persistable", ""},
             {"StatNeg=[negatives], StatPos=[positives]", "StatNeg=[zeros], StatPos=[zeros]"}});
  of_each = absl::StrReplaceAll(
      of_each, {{"    AUC=",
                 "    var zeros : int64[1, 256]\n    Out=[zeros] = fill_constant() "
                 "{shape=longs[1, 256], dtype=3, value=0.0}\n    AUC="}});
  const std::string lines = TestPath("auc.jsonl");
  for (const char* ranks : {"1", "2"}) {
    const ProcessResult result =
        Weft({"eval", MakeFile("auc_of_each.prog", of_each), "--feeds", TestPath("auc_feeds.npz"),
              "--ranks", ranks, "--metrics", lines});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith("area: 0.75 (from the counts of all batches)\n"));
  }
  // Counts are no metrics of their own.
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes written, ReadFile(lines));
  EXPECT_THAT(std::string(written.bytes), Not(HasSubstr("positives")));
}

TEST(WeftEvalTest, BatchesAreWrittenInOrder) {
  const std::string metrics = TestPath("eval.jsonl"), fetched = TestPath("eval_fetched.npz");
  const ProcessResult result =
      Eval({"--params", kInit, "--params_names", kNames, "--feeds", kFeeds, "--ranks", "3",
            "--fetch", "loss", "--metrics", metrics, "--fetch_npz", fetched});
  ASSERT_EQ(result.status, 0) << result.err;
  std::ifstream lines(metrics);
  int64_t batch = 0;
  for (std::string line; std::getline(lines, line); ++batch) {
    EXPECT_EQ(nlohmann::json::parse(line)["step"], batch);
  }
  EXPECT_EQ(batch, 10);
  WEFT_ASSERT_OK_AND_ASSIGN(const auto arrays, ReadNpz(fetched));
  EXPECT_EQ(arrays.size(), 10);
  EXPECT_EQ(arrays.count("9/0/loss"), 1);
}

TEST(WeftEvalTest, WhatIsNoTestProgramIsRefused) {
  const ProcessResult training =
      Weft({"eval", kMain, "--params", kInit, "--params_names", kNames, "--feeds", kFeeds});
  EXPECT_EQ(training.status, 1);
  EXPECT_THAT(training.err, HasSubstr("op 11 (sgd): updates a parameter; expected a test program"));
  EXPECT_THAT(training.err, HasSubstr("in PIR, which cannot, the model built again"));
  const ProcessResult unknown =
      Eval({"--params", kInit, "--params_names", kNames, "--feeds", kFeeds, "--fetch", "nothing"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("fetch nothing: the program has no such variable"));
  const ProcessResult missing = Eval({"--feeds", kFeeds});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("reads variable fc_0.w_0, which nothing has written"));
}

TEST(WeftEvalTest, FileWithoutAParameterIsRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, LoadParams(kInit, kNames));
  params.erase("fc_0.w_0");
  WEFT_ASSERT_OK(SaveParams(TestPath("some.npz"), params));
  const ProcessResult result =
      Eval({"--startup", kStartup, "--params", TestPath("some.npz"), "--feeds", kFeeds});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("some.npz: expected all parameters of the program, found 1 of "
                                    "2; the first that is missing is fc_0.w_0"));
}

// The parameters of one program among those of two, as of the generator of a GAN.
TEST(WeftRunTest, ArraysOfAnotherProgramAreSavedAgain) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, LoadParams(kInit, kNames));
  params["generator.w"] = Floats({2}, [](int64_t i) { return static_cast<double>(i); });
  WEFT_ASSERT_OK(SaveParams(TestPath("both.npz"), params));
  const ProcessResult run = Weft({"run", kMain, "--params", TestPath("both.npz"), "--feeds", kFeeds,
                                  "--save", TestPath("again.npz")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("1 of 4 arrays are no persistable variables of the program "
                                 "(generator.w); --save writes them again"));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto again, LoadParams(TestPath("again.npz"), ""));
  EXPECT_EQ(again.size(), 4);
  EXPECT_EQ(again.at("generator.w").data<float>()[1], 1);
}

TEST(WeftRunTest, ArraysOfAnotherProgramAreSavedAgainAfterAResume) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, LoadParams(kInit, kNames));
  params["generator.w"] = Floats({2}, [](int64_t i) { return static_cast<double>(i); });
  WEFT_ASSERT_OK(SaveParams(TestPath("both.npz"), params));
  const std::string checkpoint = TestPath("both.ckpt"), saved = TestPath("resumed.npz");
  ASSERT_EQ(Weft({"run", kMain, "--params", TestPath("both.npz"), "--feeds", kFeeds, "--steps", "5",
                  "--checkpoint", checkpoint})
                .status,
            0);
  const ProcessResult run =
      Weft({"run", kMain, "--resume", checkpoint, "--params", TestPath("both.npz"), "--feeds",
            kFeeds, "--steps", "5", "--save", saved});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(", 7.878529 at step 9\n"));  // of the run in one piece
  WEFT_ASSERT_OK_AND_ASSIGN(const auto again, LoadParams(saved, ""));
  EXPECT_EQ(again.count("generator.w"), 1);
}

TEST(WeftRunTest, ArraysOfAnotherProgramReturnToTheFileOfPaddleThatTheyCameFrom) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, LoadParams(kInit, kNames));
  std::map<std::string, Tensor> state;
  state.insert(params.extract("learning_rate_0"));
  params["generator.w"] = Floats({2}, [](int64_t) { return 1.0; });
  state["generator.moment"] = Floats({2}, [](int64_t) { return 1.0; });
  WEFT_ASSERT_OK(SaveParams(TestPath("gan.pdparams"), params));
  WEFT_ASSERT_OK(SaveParams(TestPath("gan.pdopt"), state));
  const ProcessResult run = Weft({"run", kMain, "--params", TestPath("gan.pdparams"), "--feeds",
                                  kFeeds, "--save", TestPath("gan2.pdparams")});
  ASSERT_EQ(run.status, 0) << run.err;
  std::set<std::string> of_pdopt;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto all,
                            LoadParams(TestPath("gan2.pdparams"), "", nullptr, &of_pdopt));
  EXPECT_EQ(all.size(), 5);
  EXPECT_THAT(of_pdopt, ::testing::ElementsAre("generator.moment", "learning_rate_0"));
}

TEST(WeftRunTest, FilesOfPaddleAreWrittenAndReadBack) {
  const std::string saved = TestPath("w.pdparams");
  const std::vector<std::string> start = {"run",  kMain,     "--params", kInit, "--params_names",
                                          kNames, "--feeds", kFeeds};
  std::vector<std::string> args = start;
  args.insert(args.end(), {"--steps", "5", "--save", saved});
  ASSERT_EQ(Weft(args).status, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(const auto state, LoadParams(TestPath("w.pdopt"), ""));
  EXPECT_THAT(state, ::testing::ElementsAre(::testing::Key("learning_rate_0")));
  const ProcessResult resumed =
      Weft({"run", kMain, "--params", saved, "--feeds", kFeeds, "--begin_step", "5"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr(", 7.878529 at step 9\n"));  // of the run in one piece
}

TEST(WeftRunTest, StreamTakesItsNamesFromTheProgram) {
  const ProcessResult run = Weft({"run", kMain, "--params", kInit, "--feeds", kFeeds});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("step 0: mean_0.tmp_0 10.63908\n"));
  // It has three tensors, and the test program two variables.
  const ProcessResult other = Eval({"--params", kInit, "--feeds", kFeeds});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("the file holds 3 tensors, but there are 2 names (the 2 "
                                   "persistable variables of the program, or its 2 parameters, "
                                   "sorted); --params_names says which they are"));
}

TEST(WeftRunTest, LastBatchThatDoesNotDivideIsDroppedOnRequest) {
  const std::string feeds = Rows("uneven.npz", {4, 4, 3});
  const std::vector<std::string> start = {"run",     kMain,     "--startup",
                                          kStartup,  "--ranks", "2",
                                          "--feeds", feeds,     "--allow_unsynchronized"};
  const ProcessResult refused = Weft(start);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("step 2: feed x: 3 rows cannot be split equally over 2 ranks; "
                                     "leave such a last batch out (--drop_last)"));
  std::vector<std::string> args = start;
  args.push_back("--drop_last");
  const ProcessResult dropped = Weft(args);
  EXPECT_EQ(dropped.status, 0) << dropped.err;
  EXPECT_THAT(dropped.out, HasSubstr("2 steps on 2 ranks"));
  EXPECT_THAT(dropped.err, HasSubstr("step 2 of the feeds is left out"));
  // The batches before it follow again.
  args.insert(args.end(), {"--steps", "5"});
  EXPECT_THAT(Weft(args).out, HasSubstr("5 steps on 2 ranks"));
  // An uneven batch in the middle stays an error.
  std::vector<std::string> middle = args;
  middle[7] = Rows("middle.npz", {4, 3, 4});
  EXPECT_THAT(Weft(middle).err, HasSubstr("step 1: feed x: 3 rows cannot be split"));
}

TEST(WeftRunTest, ScheduleOfTheProgramIsFollowedUnlessAnotherIsGiven) {
  const std::string schedule = "start_at{step=1},exponential{learning_rate=0.01,gamma=0.5}";
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ReadProgram(kMain));
  pb::ProgramDesc desc = program.ToProto();
  for (pb::VarDesc& var : *desc.mutable_blocks(0)->mutable_vars()) {
    if (var.name() != "learning_rate_0") continue;
    pb::VarDesc::Attr& attr = *var.add_attrs();
    attr.set_name("lr_schedule");
    attr.set_type(pb::STRING);
    attr.set_s(schedule);
  }
  const std::string scheduled = MakeFile("scheduled.pb", desc.SerializeAsString());
  const auto run = [](const std::string& main, const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "run",     main,   "--startup", kStartup,
        "--feeds", kFeeds, "--fetch",   "learning_rate_0,mean_0.tmp_0"};
    args.insert(args.end(), more.begin(), more.end());
    ProcessResult result = Weft(args);
    result.out = result.out.substr(0, result.out.find("learning_rate_0: "));  // without times
    return result;
  };
  const ProcessResult followed = run(scheduled, {});
  EXPECT_THAT(followed.out, StartsWith("step 0: learning_rate_0 0.005\n"));
  EXPECT_THAT(followed.err, StartsWith("note: learning_rate_0 follows the schedule of the program, "
                                       "start_at{step=1},exponential{"));
  EXPECT_EQ(followed.out, run(kMain, {"--lr_schedule", schedule}).out);
  // What the command line says counts.
  const ProcessResult constant = run(scheduled, {"--set", "learning_rate_0=0.25"});
  EXPECT_EQ(constant.out, run(kMain, {"--set", "learning_rate_0=0.25"}).out);
  EXPECT_THAT(constant.err, Not(HasSubstr("learning_rate_0")));
}

TEST(WeftRunTest, RateOfPaddlesModelMayHaveAScheduler) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ReadProgram(kMain));
  const std::string model = MakeFile("model.pdmodel", program.ToProto().SerializeAsString());
  std::vector<std::string> args = {"run", model, "--startup", kStartup, "--feeds", kFeeds};
  EXPECT_THAT(Weft(args).err, StartsWith("note: learning_rate_0 stays constant: Paddle's file does "
                                         "not say whether the script has a scheduler"));
  args.insert(args.end(), {"--set", "learning_rate_0=0.25"});
  EXPECT_THAT(Weft(args).err, Not(HasSubstr("learning_rate_0")));
}

TEST(WeftRunTest, TableThatEndsBeforeTheRunIsRefused) {
  const std::vector<std::string> start = {"run",     kMain,  "--startup",    kStartup,
                                          "--feeds", kFeeds, "--lr_schedule"};
  std::vector<std::string> args = start;
  args.insert(args.end(), {"table{values=0.1:0.2:0.3}", "--steps", "3"});
  EXPECT_EQ(Weft(args).status, 0);
  args.back() = "4";
  EXPECT_THAT(Weft(args).err, HasSubstr("--lr_schedule: it has no rate for step 3, the last one"));
  args = start;
  args.insert(args.end(), {"table{file=" + MakeFile("rates.txt", "0.1\n0.2\n") + "}", "--steps",
                           "2", "--fetch", "learning_rate_0"});
  EXPECT_THAT(Weft(args).out, HasSubstr("step 1: learning_rate_0 0.2\n"));
}

// weft run of kMain on the batches of kFeeds, which validates on the same ones. The rate is much
// too large from step 4 on.
std::vector<std::string> ValidationArgs(const std::vector<std::string>& more) {
  // The loss is a metric, although an op reads it.
  const std::string text = absl::StrReplaceAll(
      kTest, {{"reduce_mean(X=[square]) role=forward", "reduce_mean(X=[square]) role=loss"}});
  std::vector<std::string> args = {
      "run",           kMain,  "--startup",     kStartup,
      "--feeds",       kFeeds, "--valid",       MakeFile("valid.prog", text),
      "--valid_feeds", kFeeds, "--lr_schedule", "piecewise{boundaries=4,values=0.01:2.0}"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

ProcessResult Validate(const std::vector<std::string>& more) { return Weft(ValidationArgs(more)); }

// Of the lines "after N steps: valid loss: V (...": V by N.
std::map<int, double> ValidLosses(const std::string& out) {
  std::map<int, double> losses;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    int step = 0;
    double loss = 0;
    if (std::sscanf(std::string(line).c_str(), "after %d steps: valid loss: %lf (mean", &step,
                    &loss) == 2) {
      losses[step] = loss;
    }
  }
  return losses;
}

double LossOfCheckpoint(const std::string& path) {
  return MetricsOf(Eval(
      {"--checkpoint", path, "--feeds", kFeeds, "--format", "json", "--fetch", "loss"}))["loss"];
}

TEST(WeftRunTest, TheBestCheckpointOfAValidationIsKept) {
  const std::string last = TestPath("valid.weft"), best = last + ".best";
  const std::string metrics = TestPath("valid.jsonl");
  const ProcessResult result =
      Validate({"--valid_every", "2", "--checkpoint", last, "--keep_best", "loss", "--steps", "7",
                "--metrics", metrics, "--ranks", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::map<int, double> losses = ValidLosses(result.out);
  ASSERT_THAT(losses, ::testing::SizeIs(4)) << result.out;
  EXPECT_EQ(losses.rbegin()->first, 7);  // the end
  ASSERT_LT(losses.at(4), losses.at(2));
  ASSERT_LT(losses.at(4), losses.at(7));
  EXPECT_NEAR(LossOfCheckpoint(best), losses.at(4), 1e-6 * losses.at(4));
  EXPECT_NEAR(LossOfCheckpoint(last), losses.at(7), 1e-6 * losses.at(7));
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes lines, ReadFile(metrics));
  EXPECT_THAT(std::string(lines.bytes), HasSubstr("{\"step\":3,\"valid\":{\"loss\":"));

  // A run that goes on knows what was the best.
  const ProcessResult rest = Validate({"--valid_every", "1", "--resume", last, "--checkpoint", last,
                                       "--keep_best", "loss", "--steps", "1"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_NEAR(LossOfCheckpoint(best), losses.at(4), 1e-6 * losses.at(4));
  const ProcessResult largest = Validate(
      {"--valid_every", "2", "--checkpoint", last, "--keep_best", "max:root", "--steps", "7"});
  ASSERT_EQ(largest.status, 0) << largest.err;
  EXPECT_NEAR(LossOfCheckpoint(best), losses.at(7), 1e-6 * losses.at(7));
}

TEST(WeftRunTest, CheckpointsBetweenValidationsKnowTheBest) {
  const std::string last = TestPath("known.weft"), best = last + ".best";
  const ProcessResult result =
      Validate({"--valid_every", "2", "--save_every", "1", "--keep", "9", "--checkpoint", last,
                "--keep_best", "loss", "--steps", "7"});
  ASSERT_EQ(result.status, 0) << result.err;
  const double loss = ValidLosses(result.out).at(4);
  ASSERT_NEAR(LossOfCheckpoint(best), loss, 1e-6 * loss);
  const auto go_on = [&](const std::string& from, const std::string& metric) {
    return Validate(
        {"--resume", from, "--checkpoint", last, "--keep_best", metric, "--steps", "1"});
  };
  // A part without validation passes it on.
  ASSERT_EQ(Weft({"run", kMain, "--feeds", kFeeds, "--resume", last + ".5", "--checkpoint",
                  last + ".part", "--steps", "0"})
                .status,
            0);
  ASSERT_EQ(go_on(last + ".part", "loss").status, 0);
  EXPECT_NEAR(LossOfCheckpoint(best), loss, 1e-6 * loss);
  // From the best one itself.
  const ProcessResult from_best = go_on(best, "loss");
  ASSERT_EQ(from_best.status, 0) << from_best.err;
  EXPECT_NEAR(LossOfCheckpoint(best), loss, 1e-6 * loss);
  EXPECT_THAT(from_best.err, Not(HasSubstr("another metric")));
  const ProcessResult anew = go_on(last, "root");
  ASSERT_EQ(anew.status, 0) << anew.err;
  EXPECT_THAT(anew.err,
              HasSubstr("--keep_best root: the best so far was of another metric, loss="));
  EXPECT_GT(LossOfCheckpoint(best), 2 * loss);
}

TEST(WeftRunTest, AValidationThatFailsLosesNothing) {
  const auto feeds = [](const std::string& name, int64_t columns, double y) {
    const std::string path = TestPath(name);
    EXPECT_TRUE(WriteNpz(path, {{"0/x", Floats({4, columns}, [](int64_t) { return 1; })},
                                {"0/y", Floats({4, 1}, [y](int64_t) { return y; })}})
                    .ok());
    return path;
  };
  const auto validate = [](const std::string& path, std::vector<std::string> more) {
    std::vector<std::string> args = ValidationArgs(more);
    *(std::find(args.begin(), args.end(), "--valid_feeds") + 1) = path;
    return Weft(args);
  };
  const std::string save = TestPath("kept.npz"), last = TestPath("kept.weft");
  const ProcessResult fails =
      validate(feeds("short.npz", 12, 1),
               {"--valid_every", "2", "--steps", "4", "--save", save, "--checkpoint", last});
  EXPECT_EQ(fails.status, 1);
  EXPECT_THAT(fails.err, HasSubstr("; the run goes on without --valid"));
  EXPECT_THAT(fails.out, HasSubstr("step 3: "));
  EXPECT_TRUE(ReadFile(save).ok());
  EXPECT_EQ(Validate({"--resume", last, "--steps", "1"}).status, 0);

  // A loss that is not finite is a result, and never the best.
  const std::string best = MakeFile("kept.weft.best", "of another run");
  const ProcessResult nan =
      validate(feeds("nan.npz", 13, std::nan("")),
               {"--valid_every", "2", "--steps", "4", "--checkpoint", last, "--keep_best", "loss"});
  EXPECT_EQ(nan.status, 0) << nan.err;
  EXPECT_THAT(nan.out, HasSubstr("after 4 steps: valid loss: nan"));
  EXPECT_THAT(nan.err, HasSubstr("no validation has found a number, so there is no " + best));
  EXPECT_FALSE(ReadFile(best).ok());
  EXPECT_THAT(validate(feeds("nan.npz", 13, std::nan("")), {"--steps", "1", "--check_nan"}).err,
              HasSubstr("valid.prog: "));
}

TEST(WeftRunTest, ValidationChangesNothingThatIsTrainedAndRanksValidateTogether) {
  const std::string with = TestPath("with.npz"), without = TestPath("without.npz");
  ASSERT_EQ(Validate({"--ranks", "2", "--allow_unsynchronized", "--valid_every", "1", "--steps",
                      "4", "--save", with})
                .status,
            0);
  ASSERT_EQ(Weft({"run", kMain, "--startup", kStartup, "--feeds", kFeeds, "--ranks", "2",
                  "--allow_unsynchronized", "--lr_schedule",
                  "piecewise{boundaries=4,values=0.01:2.0}", "--steps", "4", "--save", without})
                .status,
            0);
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes a, ReadFile(with));
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes b, ReadFile(without));
  EXPECT_EQ(a.bytes, b.bytes);
}

TEST(WeftRunTest, ProcessesValidateAsRanksDo) {
  const std::vector<std::string> more = {"--allow_unsynchronized", "--valid_every", "2", "--steps",
                                         "4"};
  std::vector<std::string> args = ValidationArgs(more);
  args.insert(args.begin(), {"launch", "-n", "2", "--", "tools/weft"});
  const ProcessResult processes = Weft(args);
  ASSERT_EQ(processes.status, 0) << processes.err;
  args = ValidationArgs(more);
  args.insert(args.end(), {"--ranks", "2"});
  const std::map<int, double> losses =
      ValidLosses(absl::StrReplaceAll(processes.out, {{"[0] ", ""}}));
  EXPECT_THAT(losses, ::testing::SizeIs(2)) << processes.out;
  EXPECT_EQ(losses, ValidLosses(Weft(args).out));
}

TEST(WeftRunTest, ValidationsTakeLayoutsAndQuirksOfTheRun) {
  const std::string checkpoint = TestPath("quirks.weft"), feeds = Rows("quirks.npz", {8, 2});
  // Paddle's kernel forgets a term of what weights multiply.
  const std::string test = MakeFile(
      "quirks.prog",
      absl::StrReplaceAll(
          kTest, {{"    var sum", "    var weights : fp32[-1, 1]\n    var sum"},
                  {"reduce_mean(X=[square]) role=forward", "reduce_mean(X=[square]) role=loss"},
                  {"Out=[square] = square(X=[error]) role=forward",
                   "Out=[weights] = fill_any_like(X=[error]) role=forward {dtype=5, value=3.0}\n"
                   "    Out=[square] = sigmoid_cross_entropy_with_logits(Label=[y], X=[error], "
                   "pos_weight=[weights]) role=forward {ignore_index=-100, normalize=false}"}}));
  std::set<double> losses;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--paddle_cpu_quirks"}, {"--feed_layout", "x=axis:1"}}) {
    std::vector<std::string> run = {
        "run", kMain,     "--startup", kStartup,        "--feeds", kFeeds,         "--steps",
        "2",   "--valid", test,        "--valid_feeds", feeds,     "--checkpoint", checkpoint};
    std::vector<std::string> eval = {"eval",     test,       "--feeds", feeds,     "--checkpoint",
                                     checkpoint, "--format", "json",    "--fetch", "loss"};
    for (std::vector<std::string>* args : {&run, &eval}) {
      args->insert(args->end(), more.begin(), more.end());
    }
    const ProcessResult result = Weft(run);
    ASSERT_EQ(result.status, 0) << result.err;
    const std::map<int, double> found = ValidLosses(result.out);
    ASSERT_THAT(found, ::testing::SizeIs(1)) << result.out;
    const double expected = MetricsOf(Weft(eval))["loss"];
    EXPECT_NEAR(found.at(2), expected, 1e-6 * expected);
    losses.insert(found.at(2));
  }
  EXPECT_THAT(losses, ::testing::SizeIs(3));
}

TEST(WeftRunTest, WrongValidationsAreErrorsBeforeTheRun) {
  EXPECT_THAT(Validate({"--keep_best", "loss"}).err,
              HasSubstr("--keep_best: expected --checkpoint"));
  EXPECT_THAT(Validate({"--checkpoint", TestPath("c"), "--keep_best", "accuracy"}).err,
              HasSubstr("--keep_best accuracy: expected loss, or one of the metrics "));
  EXPECT_THAT(
      Validate({"--checkpoint", TestPath("c"), "--save_every", "2", "--valid_every", "3"}).err,
      HasSubstr("--valid_every: expected a multiple of --save_every"));
  EXPECT_THAT(Validate({"--server", kMain, "--servers", "1"}).err,
              HasSubstr("--valid: expected a run without --server"));
  EXPECT_THAT(Weft({"run", kMain, "--feeds", kFeeds, "--valid", kMain}).err,
              HasSubstr("--valid requires --valid_feeds"));
  // What the program that trains does not have, and has of another type.
  const ProcessResult no_average = Validate({"--valid_ema"});
  EXPECT_EQ(no_average.out, "");
  EXPECT_THAT(no_average.err, HasSubstr("moving averages: expected <parameter>_ema_0"));
  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"fc_0.w_0", "fc_1.w_0"}, {"var fc_0.b_0 : fp32[1]", "var fc_0.b_0 : fp32[2]"}}) {
    std::vector<std::string> args = ValidationArgs({});
    *(std::find(args.begin(), args.end(), "--valid") + 1) =
        MakeFile("other.prog", absl::StrReplaceAll(kTest, {{from, to}}));
    const ProcessResult other = Weft(args);
    EXPECT_EQ(other.status, 1);
    EXPECT_EQ(other.out, "");
    EXPECT_THAT(other.err, HasSubstr("other.prog: "));
  }
  const ProcessResult trains = Weft({"run", kMain, "--startup", kStartup, "--feeds", kFeeds,
                                     "--valid", kMain, "--valid_feeds", kFeeds});
  EXPECT_EQ(trains.status, 1);
  EXPECT_EQ(trains.out, "");
}

TEST(WeftRunTest, LinesOfStepsAreLeftOutAsAsked) {
  const std::vector<std::string> start = {"run",     kMain,  "--startup", kStartup,
                                          "--feeds", kFeeds, "--steps",   "5"};
  std::vector<std::string> args = start;
  args.insert(args.end(), {"--log_every", "2"});
  const ProcessResult some = Weft(args);
  for (const int step : {0, 2, 4})
    EXPECT_THAT(some.out, HasSubstr(absl::StrCat("step ", step, ": ")));
  for (const int step : {1, 3})
    EXPECT_THAT(some.out, Not(HasSubstr(absl::StrCat("step ", step, ": "))));
  args = start;
  args.push_back("--quiet");
  const ProcessResult none = Weft(args);
  EXPECT_THAT(none.out, StartsWith("mean_0.tmp_0: "));
  EXPECT_EQ(none.err, "");
}

TEST(WeftRunTest, MetricsAreCommaSeparatedValuesOrFilesForTensorBoard) {
  const std::string csv = TestPath("metrics.csv"), checkpoint = TestPath("csv.weft");
  const std::string board = TestPath("board");
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",           kMain, "--feeds",      kFeeds,
                                     "--metrics",     csv,   "--checkpoint", checkpoint,
                                     "--tensorboard", board};
    args.insert(args.end(), more.begin(), more.end());
    return Weft(args);
  };
  const auto lines = [&]() -> std::vector<std::string> {
    const absl::StatusOr<FileBytes> file = ReadFile(csv);
    if (!file.ok()) return {};
    return absl::StrSplit(std::string(file->bytes), '\n', absl::SkipEmpty());
  };
  const ProcessResult first = run({"--startup", kStartup, "--steps", "3"});
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_THAT(lines(), ::testing::SizeIs(4));
  EXPECT_EQ(lines()[0], "step,mean_0.tmp_0");
  EXPECT_THAT(first.out, StartsWith("step 0: mean_0.tmp_0 "));
  EXPECT_THAT(lines()[3], StartsWith("2,"));
  EXPECT_TRUE(ReadFile(board + "/events.out.tfevents.0000000000.weft").ok());
  // One header, and each step once.
  const ProcessResult rest = run({"--resume", checkpoint, "--steps", "2"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  ASSERT_THAT(lines(), ::testing::SizeIs(6));
  EXPECT_THAT(lines()[5], StartsWith("4,"));
  EXPECT_TRUE(ReadFile(board + "/events.out.tfevents.0000000003.weft").ok());
  const ProcessResult other = run({"--resume", checkpoint, "--steps", "1", "--fetch", "fc_0.b_0"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("expected the columns step,fc_0.b_0 of this run, found "
                                   "step,mean_0.tmp_0 of an earlier one"));
}

TEST(WeftEvalTest, MetricsAreCommaSeparatedValuesOrFilesForTensorBoard) {
  const std::string csv = TestPath("eval.csv"), board = TestPath("eval_board");
  const std::string checkpoint = TestPath("eval.weft");
  const ProcessResult trained = Weft({"run", kMain, "--startup", kStartup, "--feeds", kFeeds,
                                      "--steps", "3", "--checkpoint", checkpoint});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ProcessResult evaluated =
      Eval({"--checkpoint", checkpoint, "--feeds", kFeeds, "--batches", "2", "--ranks", "2",
            "--format", "json", "--metrics", csv, "--tensorboard", board});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  const absl::StatusOr<FileBytes> written = ReadFile(csv);
  WEFT_ASSERT_OK(written);
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(written->bytes), '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, ::testing::SizeIs(3));
  const absl::StatusOr<FileBytes> events =
      ReadFile(board + "/events.out.tfevents.0000000002.weft_eval");
  WEFT_ASSERT_OK(events);
  const std::vector<std::string> names = absl::StrSplit(lines[0], ',');
  EXPECT_THAT(names, ::testing::ElementsAre("step", "sum", "root"));
  for (const size_t column : {1, 2}) {
    double sum = 0;
    for (const int batch : {0, 1}) {
      const std::vector<std::string> cells = absl::StrSplit(lines[batch + 1], ',');
      ASSERT_THAT(cells, ::testing::SizeIs(names.size()));
      EXPECT_EQ(cells[0], absl::StrCat(batch));
      sum += std::stod(cells[column]);
    }
    const double total = MetricsOf(evaluated)[names[column]];
    // Of both batches: the sum of sums, and the mean of roots.
    const double expected = names[column] == "sum" ? sum : sum / 2;
    EXPECT_NEAR(total, expected, 1e-6 * expected) << names[column];
    const float number = static_cast<float>(total);
    std::string bytes(sizeof number, 0);
    std::memcpy(bytes.data(), &number, sizeof number);
    EXPECT_THAT(std::string(events->bytes),
                AllOf(HasSubstr(absl::StrCat("valid/", names[column])), HasSubstr(bytes)));
  }
}

TEST(WeftEvalTest, MovingAveragesAreCorrectedAsPaddleDoes) {
  const auto value = [](double first) {
    return [first](int64_t i) { return first + 0.01 * static_cast<double>(i); };
  };
  std::map<std::string, Tensor> state = {{"fc_0.w_0", Floats({13, 1}, value(5))},
                                         {"fc_0.b_0", Floats({1}, value(6))},
                                         {"fc_0.w_0_ema_0", Floats({13, 1}, value(0.25))},
                                         {"fc_0.b_0_ema_0", Floats({1}, value(0.5))},
                                         {"scheduled_ema_decay_rate", Floats({1}, value(0.5))}};
  Tensor& steps = state["@EMA_STEP_COUNTER@"];
  steps.Resize(DType::kInt64, {1});
  steps.data<int64_t>()[0] = 2;
  const double correction = 1 - 0.5 * 0.5;
  const std::map<std::string, Tensor> expected = {
      {"fc_0.w_0", Floats({13, 1}, [&](int64_t i) { return value(0.25)(i) / correction; })},
      {"fc_0.b_0", Floats({1}, [&](int64_t i) { return value(0.5)(i) / correction; })}};
  const auto evaluate = [](const std::map<std::string, Tensor>& params, const char* flag) {
    EXPECT_TRUE(WriteNpz(TestPath("ema.npz"), params).ok());
    return Eval({"--params", TestPath("ema.npz"), "--feeds", kFeeds, "--format", "json", "--fetch",
                 "loss", flag});
  };
  const double averaged = MetricsOf(evaluate(state, "--ema"))["loss"];
  const double plain = MetricsOf(evaluate(expected, "--check_nan"))["loss"];
  EXPECT_NEAR(averaged, plain, 1e-6 * plain);
  EXPECT_GT(MetricsOf(evaluate(state, "--check_nan"))["loss"], 2 * averaged);
  // With the name of the ExponentialMovingAverage; beside one of another parameter.
  std::map<std::string, Tensor> named = state;
  for (const char* name : {"fc_0.w_0", "fc_0.b_0"}) {
    named[absl::StrCat("my", name, "_ema_0")] = state[absl::StrCat(name, "_ema_0")];
    named.erase(absl::StrCat(name, "_ema_0"));
  }
  EXPECT_NEAR(MetricsOf(evaluate(named, "--ema"))["loss"], plain, 1e-6 * plain);
  std::map<std::string, Tensor> more = state;
  more["aux_fc_0.w_0"] = Floats({13, 1}, value(1));
  more["aux_fc_0.w_0_ema_0"] = Floats({13, 1}, value(9));
  EXPECT_NEAR(MetricsOf(evaluate(more, "--ema"))["loss"], plain, 1e-6 * plain);
  more.erase("fc_0.w_0_ema_0");  // keeps its value
  more["fc_0.w_0"] = expected.at("fc_0.w_0");
  EXPECT_NEAR(MetricsOf(evaluate(more, "--ema"))["loss"], plain, 1e-6 * plain);
  named["yourfc_0.b_0_ema_0"] = state["fc_0.b_0_ema_0"];
  EXPECT_THAT(evaluate(named, "--ema").err, HasSubstr("with the same prefix for all"));
  // None, two, and none of the numbers.
  EXPECT_THAT(evaluate(expected, "--ema").err,
              HasSubstr("moving averages: expected <parameter>_ema_0"));
  std::map<std::string, Tensor> twice = state;
  twice["fc_0.b_0_ema_1"] = state["fc_0.b_0_ema_0"];
  EXPECT_THAT(evaluate(twice, "--ema").err,
              HasSubstr("parameter fc_0.b_0: expected one moving average"));
  state.erase("@EMA_STEP_COUNTER@");
  EXPECT_THAT(evaluate(state, "--ema").err, HasSubstr("variable @EMA_STEP_COUNTER@: expected"));
}

}  // namespace
}  // namespace weft::testing
