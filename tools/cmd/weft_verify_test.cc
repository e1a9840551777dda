// weft verify as users run it.
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/job/process.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";

constexpr char kStartupOfProgram[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() role=forward {dtype=5, shape=longs[4, 1], value=1.0}
    Out=[lr] = fill_constant() role=forward {dtype=5, shape=longs[1], value=0.5}
    c_comm_init_all() role=forward {ring_id=0}
  }
})";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// The text with parts replaced, each of which must occur in it.
std::string Edited(std::string text, std::vector<std::pair<std::string, std::string>> edits) {
  for (const auto& [from, to] : edits) {
    EXPECT_GT(absl::StrReplaceAll({{from, to}}, &text), 0) << from;
  }
  return text;
}

std::string MakeFile(const std::string& name, const std::string& text) {
  std::ofstream(TestPath(name), std::ios::binary) << text;
  return TestPath(name);
}

// A step of sgd on two ranks that breaks no rule.
std::string Averaged() { return SgdStepText(absl::StrCat(kWaitCompute, kAllReduce, kWaitComm)); }

std::string Right() { return MakeFile("right.prog", Averaged()); }
std::string Original() { return MakeFile("original.prog", SgdStepText()); }
std::string Racy() {
  return MakeFile("racy.prog", SgdStepText(absl::StrCat(kWaitCompute, kAllReduce)));
}
std::string Summed() {
  return MakeFile("summed.prog", Edited(Averaged(), {{"c_allreduce_avg", "c_allreduce_sum"}}));
}

ProcessResult Verify(std::vector<std::string> args) {
  args.insert(args.begin(), {"tools/weft", "verify"});
  return RunProcess(args);
}

::testing::Matcher<const ProcessResult&> Ends(int status, ::testing::Matcher<std::string> out) {
  return AllOf(Field("status", &ProcessResult::status, status),
               Field("out", &ProcessResult::out, out),
               Field("err", &ProcessResult::err, IsEmpty()));
}

// No finding, and a verdict about `ranks`.
::testing::Matcher<std::string> Clean(const std::string& ranks) {
  return AllOf(HasSubstr("\nverified: " + ranks + "; layers structure, types, "),
               Not(HasSubstr("error: ")), Not(HasSubstr("W")));
}

// One line on stderr, and no more: "<start>...<part>...".
::testing::Matcher<const ProcessResult&> FailsWith(int status, const std::string& start,
                                                   const std::string& part) {
  const auto lines = [](const std::string& err) {
    return std::count(err.begin(), err.end(), '\n');
  };
  return AllOf(Field("status", &ProcessResult::status, status),
               Field("out", &ProcessResult::out, IsEmpty()),
               Field("err", &ProcessResult::err,
                     AllOf(StartsWith(start), HasSubstr(part), EndsWith("\n"),
                           ::testing::ResultOf(lines, 1))));
}

// It may write whatever it reads. A user may look at the program, and copy it.
TEST(WeftVerifyTest, UnknownOpsInPlaceAreNotJudged) {
  const std::string file =
      MakeFile("in_place.prog", Edited(SgdStepText(), {{"= sgd(", "= pd_op.sgd_("}}));
  const ProcessResult verified = Verify({file});
  EXPECT_EQ(verified.status, 1);
  EXPECT_THAT(verified.err, AllOf(HasSubstr("in_place.prog: op "),
                                  HasSubstr("(pd_op.sgd_): writes operands in place, and which "
                                            "ones is not known")));
  for (const char* const command : {"show", "stats", "diff"}) {
    std::vector<std::string> args = {"tools/weft", command, file};
    if (std::string(command) == "diff") args.push_back(file);
    const ProcessResult result = RunProcess(args);
    EXPECT_EQ(result.status, 0) << command << ": " << result.err;
  }
  const ProcessResult copied =
      RunProcess({"tools/transpile", "--mode", "none", file, TestPath("in_place_copy.prog")});
  EXPECT_EQ(copied.status, 0) << copied.err;
}

TEST(WeftVerifyTest, ProgramThatIsRightIsVerified) {
  EXPECT_THAT(Verify({Right()}), Ends(0, Clean("any number of ranks")));
  EXPECT_THAT(Verify({Right(), "--nranks", "4"}), Ends(0, Clean("4 ranks")));
  EXPECT_THAT(Verify({kMain, "--startup", kStartup}), Ends(0, HasSubstr("verified: one device; ")));
}

TEST(WeftVerifyTest, ParamAttrsSayWhichRanksShareAParameter) {
  const std::string group = MakeFile(
      "group.prog",
      SgdStepText("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=1, "
                  "group_ranks=ints[0, 2], use_calc_stream=true}\n"));
  EXPECT_THAT(Verify({group, "--nranks", "4"}),
              Ends(1, HasSubstr("which is not reduced over all ranks: op 5 (c_allreduce_avg) "
                                "reduces it, or what it is made from, over ranks 0, 2")));
  const auto with = [&](const std::string& attrs) {
    return Verify({group, "--nranks", "4", "--original", Original(), "--param_attrs",
                   MakeFile("attrs.json", attrs)});
  };
  EXPECT_THAT(with(R"({"w": {"group": "g"}, "groups": {"g": [2, 0]}})"),
              Ends(0, AllOf(Clean("4 ranks"),
                            HasSubstr("note: assumed: ranks share parameters in groups, w among "
                                      "ranks 0, 2: "))));
  EXPECT_THAT(with(R"({"w": {"group": "g"}, "groups": {"g": [1, 2]}})"),
              Ends(1, HasSubstr("W310: for ranks 1, 2: ")));
  EXPECT_THAT(with(R"({"w": {"in_shard": true}})"), Ends(0, HasSubstr("verified: 4 ranks")));
  EXPECT_THAT(with(R"({"w": {"group": "g"}, "groups": {"g": [0, 4]}})"),
              FailsWith(1, "weft verify: ",
                        "parameter w, group 'g': expected ranks of 0 or more "
                        "and below 4, found 0, 4"));
  EXPECT_THAT(with(R"({"absent": {}})"),
              FailsWith(1, "weft verify: ", "parameter absent: the program has no such variable"));
}

// They change what is computed: it is compared with the program that has them.
TEST(WeftVerifyTest, OptionsOfUpdatesAreThoseOfTheOriginal) {
  const std::string attrs = MakeFile("options.json", R"({"w": {"lr_ratio": 0.5}})");
  EXPECT_THAT(Verify({Right(), "--nranks", "4", "--original", Original(), "--param_attrs", attrs}),
              FailsWith(1, "weft verify: ",
                        "parameter w, lr_ratio, weight_decay: expected as --original the program "
                        "that pass param-options wrote"));
  EXPECT_THAT(Verify({Right(), "--nranks", "4", "--param_attrs", attrs}),
              Ends(0, HasSubstr("verified: 4 ranks")));
}

// A function of the samples, and one of the gradient.
TEST(WeftVerifyTest, UsersSayWhatUnregisteredOpsAre) {
  const std::string text = R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var h : fp32[-1, 1]
    var a : fp32[-1, 1]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var a@GRAD : fp32[-1, 1]
    var h@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[4, 1]
    Out=[h] = mul(X=[x], Y=[w])
    Out=[a] = my_layer(X=[h])
    Out=[loss] = mean(X=[a]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[a@GRAD] = mean_grad(X=[a], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[h@GRAD] = my_layer_grad(X=[h], Out@GRAD=[a@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = my_filter(X=[w@GRAD]) role=backward
REDUCE    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  }
})";
  const std::string original = MakeFile("unregistered.prog", Edited(text, {{"REDUCE", ""}}));
  const std::string reduced = MakeFile(
      "unregistered_reduced.prog",
      Edited(text, {{"REDUCE",
                     "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0, "
                     "use_calc_stream=true}\n"}}));
  const auto verify = [&](const std::string& assume) {
    std::vector<std::string> args = {reduced, "--nranks", "2", "--original", original, "--short"};
    if (!assume.empty()) args.insert(args.end(), {"--assume", assume});
    return Verify(args);
  };
  EXPECT_THAT(verify(""),
              Ends(1, AllOf(HasSubstr("which is unregistered and may not be linear in it"),
                            HasSubstr("; if my_filter is linear, pass --assume 'my_filter: "
                                      "linear'"),
                            HasSubstr("pass --assume 'my_layer: per_sample'"))));
  EXPECT_THAT(verify("my_filter: linear"),
              Ends(0, AllOf(HasSubstr("note: assumed: of op type my_filter: linear (--assume)\n"),
                            HasSubstr("note: assumed: ops of unregistered types my_layer, "
                                      "my_layer_grad exchange nothing with other ranks\n"),
                            HasSubstr("W701"))));
  EXPECT_THAT(verify("my_filter: linear, my_layer: per_sample"),
              Ends(0, AllOf(Not(HasSubstr("warning")),
                            HasSubstr("note: assumed: of op type my_layer: per_sample"))));
  EXPECT_THAT(verify("my_filter: pure"), FailsWith(1, "weft verify: ", "--assume: my_filter: "));
  EXPECT_THAT(verify("relu: linear"),
              FailsWith(1, "weft verify: ", "--assume: relu: expected an op without a schema"));
  EXPECT_THAT(verify("my_other_op: linear"),
              FailsWith(1, "weft verify: ", "has no op of that type"));
  // The file keeps what transpile was told.
  const std::string out = TestPath("unregistered_out.pb");
  const ProcessResult refused =
      RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--nranks", "2", original, out});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("--assume 'my_filter: no_communication'"));
  const ProcessResult written =
      RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--nranks", "2", "--assume",
                  "my_filter: linear, my_layer: per_sample", original, out});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_THAT(written.err, HasSubstr("assumed: of op type my_filter: linear (--assume)"));
  EXPECT_THAT(Verify({out, "--original", original, "--short"}),
              Ends(0, AllOf(Not(HasSubstr("warning")),
                            HasSubstr("note: assumed: of op type my_filter: linear (setting of the "
                                      "file)\n"))));
}

TEST(WeftVerifyTest, VerdictSaysWhatItIsAboutAndWhatIsAssumed) {
  EXPECT_THAT(Verify({Right(), "--nranks", "2"}),
              Ends(0,
                   "note: assumed: each rank gets a part of x along axis 0 (--feed_layout)\n"
                   "note: assumed: rings are set up, and ranks begin with equal values "
                   "(--startup checks it)\n"
                   "verified: 2 ranks; layers structure, types, communication, races, across "
                   "ranks, batch\n"));
  EXPECT_THAT(Verify({Right(), "--nranks", "2", "--original", Original()}),
              Ends(0, HasSubstr("across ranks, equivalence, batch\n")));
  EXPECT_THAT(
      Verify({Right(), "--nranks", "2", "--feed_layout", "x=whole"}),
      Ends(0, StartsWith("note: assumed: each rank gets the whole of x (--feed_layout)\n")));
  const std::string backward = MakeFile(
      "backward.prog",
      absl::StrCat(R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var y@GRAD : fp32[-1, 1] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var w@GRAD : fp32[4, 1]
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w]) role=backward
)",
                   "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0, "
                   "use_calc_stream=true}",
                   R"(
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  }
})"));
  EXPECT_THAT(Verify({backward, "--nranks", "2"}),
              Ends(0, HasSubstr("note: assumed: op 0 (mul_grad) gets gradients of values that the "
                                "program does not compute, and these are right\n")));
  EXPECT_THAT(Verify({Right(), "--feed_layout", "x=axis:7"}),
              FailsWith(1, "weft verify: error: ", "expected an axis below"));
  EXPECT_THAT(Verify({Right(), "--feed_layout", "x"}),
              FailsWith(1, "weft verify: error: ", "expected VARIABLE=whole or VARIABLE=axis:N"));
}

TEST(WeftVerifyTest, OutputOfTranspileIsVerified) {
  const std::string out = TestPath("out.pb"), startup = TestPath("out_startup.pb");
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--startup_in", kStartup,
                        "--startup_out", startup, kMain, out})
                .status,
            0);
  constexpr char kAssumed[] = "states begin as in the original (--original_startup checks it)\n";
  EXPECT_THAT(Verify({out, "--startup", startup, "--original", kMain}),
              Ends(0, AllOf(Clean("any number of ranks"), HasSubstr(kAssumed))));
  EXPECT_THAT(
      Verify({out, "--startup", startup, "--original", kMain, "--original_startup", kStartup}),
      Ends(0, AllOf(Clean("any number of ranks"), Not(HasSubstr(kAssumed)))));
}

int Transpile(std::vector<std::string> args) {
  args.insert(args.begin(), "tools/transpile");
  return RunProcess(args).status;
}

constexpr char kRounded[] =
    "note: assumed: gradients may be rounded to half precision and back (setting of the file)\n";

TEST(WeftVerifyTest, FilesSayWhatTheirProgramsAreFor) {
  const std::string original = Original(), out = TestPath("for.prog");
  ASSERT_EQ(Transpile({"--mode", "singa_half", "--nranks", "2", original, out}), 0);
  EXPECT_THAT(Verify({out, "--original", original}),
              Ends(0, AllOf(HasSubstr(kRounded), Clean("2 ranks"))));
  const std::string averaged = TestPath("averaged.pb"), startup = TestPath("averaged_startup.pb");
  ASSERT_EQ(Transpile({"--mode", "local_sgd", "--k_steps", "4", "--startup_in", kStartup,
                       "--startup_out", startup, kMain, averaged}),
            0);
  EXPECT_THAT(Verify({averaged, "--startup", startup, "--original", kMain, "--short"}),
              Ends(0, AllOf(HasSubstr("note: assumed: parameters are averaged every 4 steps "
                                      "(setting of the file)\n"),
                            HasSubstr("verified: any number of ranks"))));
  ASSERT_EQ(
      Transpile({"--mode", "local_sgd", "--k_steps", "4", "--outer", "nesterov", "--fragments", "2",
                 "--startup_in", kStartup, "--startup_out", startup, kMain, averaged}),
      0);
  EXPECT_THAT(Verify({averaged, "--startup", startup, "--original", kMain, "--short"}),
              Ends(0, AllOf(HasSubstr("note: assumed: parameters are synchronized every 4 steps, "
                                      "in 2 fragments in turn, by nesterov{lr=0.7,momentum=0.9}: "
                                      "after its turn, a fragment is equal on all ranks"),
                            HasSubstr("verified: any number of ranks"))));
  ASSERT_EQ(Transpile({"--mode", "grad_allreduce", "--feed_layout", "x=whole",
                       "--distributed_params", "fc_0.w_0", kMain, out}),
            0);
  EXPECT_THAT(
      Verify({out, "--original", kMain, "--short"}),
      Field("out", &ProcessResult::out,
            AllOf(HasSubstr("the whole of x (setting of the file)\n"),
                  HasSubstr("assumed: fc_0.w_0: is not replicated (setting of the file)\n"))));
}

TEST(WeftVerifyTest, FlagsReplaceWhatTheFileSays) {
  const std::string original = Original(), out = TestPath("replaced.prog");
  ASSERT_EQ(
      Transpile({"--mode", "grad_allreduce", "--scale", "none", "--nranks", "2", original, out}),
      0);
  EXPECT_THAT(Verify({out, "--original", original}),
              Ends(0, AllOf(HasSubstr("note: assumed: gradients are summed over the ranks, "
                                      "whatever losses are (setting of the file)\n"),
                            Clean("2 ranks"))));
  EXPECT_THAT(Verify({out, "--original", original, "--summed_gradients=false"}),
              Ends(1, AllOf(HasSubstr("error: W312: "), Not(HasSubstr("are summed")))));
  EXPECT_THAT(Verify({out, "--feed_layout", "x=whole", "--short"}),
              Field("out", &ProcessResult::out,
                    HasSubstr("each rank gets the whole of x (--feed_layout)\n")));
  EXPECT_THAT(Verify({out, "--nranks", "4"}),
              FailsWith(1,
                        "weft verify: error: --nranks: expected 2, for which the program was "
                        "rewritten (setting of the file), found 4",
                        ""));
  EXPECT_THAT(Verify({out, out, out}),
              FailsWith(1, "weft verify: error: programs: expected 2, ", "found 3"));
}

// A tool that does not know the field drops it.
TEST(WeftVerifyTest, WithoutASettingFlagsAreNeeded) {
  const std::string original = Original(), out = TestPath("dropped.pbtxt");
  ASSERT_EQ(Transpile({"--mode", "singa_half", "--nranks", "2", original, out}), 0);
  EXPECT_THAT(Verify({out, "--original", original}), Ends(0, Clean("2 ranks")))
      << "protobuf text has it in a file beside it";
  ASSERT_EQ(std::remove((out + ".setting.json").c_str()), 0);
  EXPECT_THAT(Verify({out, "--original", original, "--nranks", "2"}),
              Ends(1, HasSubstr("found cast[fp32](cast[fp16](mul_grad")));
  EXPECT_THAT(Verify({out, "--original", original, "--nranks", "2", "--rounded_gradients"}),
              Ends(0, Clean("2 ranks")));
}

// The program with a setting, which may be damaged.
std::string WithSetting(const std::string& name, const std::string& program,
                        const std::string& setting) {
  return MakeFile(name, Edited(program, {{"\n  }\n}", "\n  }\n  setting " + setting + "\n}"}}));
}

// Also where nothing communicates.
TEST(WeftVerifyTest, ClaimsOfFilesAreNeverSilent) {
  const auto out = [](const std::string& program, const std::string& setting) {
    return Verify({WithSetting("claims.prog", program, setting), "--short"}).out;
  };
  EXPECT_THAT(out(SgdStepText(), R"({"nranks":4,"distributed_params":["w"]})"),
              HasSubstr("assumed: w: is not replicated (setting of the file)\n"));
  EXPECT_THAT(out(SgdStepText(), R"({"rounded_gradients":true})"), HasSubstr(kRounded));
  EXPECT_THAT(out(Averaged(), R"({"nranks":2,"rank":1})"),
              HasSubstr("assumed: the program is rank 1's: "));
  EXPECT_THAT(out(Averaged(), R"({"reduction":"mean","averaging":"in_turn"})"),
              AllOf(HasSubstr("gradients are averaged over the ranks, whatever losses are"),
                    HasSubstr("parameters are averaged in turn")));
}

TEST(WeftVerifyTest, FeedsOfTheFileAreShownForSeveralRanks) {
  const auto out = [](const std::string& setting, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {WithSetting("feeds.prog", SgdStepText(), setting), "--short"});
    return Verify(flags).out;
  };
  constexpr char kWhole[] = "assumed: each rank gets the whole of x (setting of the file)\n";
  EXPECT_THAT(out(R"({"nranks":2,"feeds":{"x":"whole"}})", {}), HasSubstr(kWhole));
  EXPECT_THAT(out(R"({"feeds":{"x":"whole"}})", {"--nranks", "2"}), HasSubstr(kWhole));
  EXPECT_THAT(out(R"({"feeds":{"x":"whole"}})", {}), Not(HasSubstr(kWhole))) << "one device";
}

TEST(WeftVerifyTest, AveragingPartlyOfTheFileIsShown) {
  const std::string out = TestPath("begin.pb"), startup = TestPath("begin_startup.pb");
  ASSERT_EQ(Transpile({"--mode", "local_sgd", "--k_steps", "4", "--startup_in", kStartup,
                       "--startup_out", startup, kMain, out}),
            0);
  EXPECT_THAT(Verify({out, "--original", kMain, "--begin_step", "4", "--short"}).out,
              AllOf(HasSubstr("note: assumed: parameters are averaged"),
                    HasSubstr("(setting of the file)\n")));
}

// Another tool has removed the variable, and kept the field.
TEST(WeftVerifyTest, SettingOfARemovedVariableDoesNotCount) {
  EXPECT_THAT(Verify({WithSetting("gone.prog", Averaged(), R"({"feeds":{"gone":"whole"}})")}),
              Ends(0, Clean("any number of ranks")));
}

TEST(WeftVerifyTest, RanksOfTheFileFitTheNumberOfRanks) {
  EXPECT_THAT(Verify({WithSetting("rank3.prog", Averaged(), R"({"rank":3})"), "--nranks", "2"}),
              FailsWith(1, "weft verify: error: ",
                        "setting of the file: rank: expected less than nranks, 2, found 3"));
}

TEST(WeftVerifyTest, FileOfARankMayHaveLostItsSetting) {
  const std::string whole =
      WithSetting("kept.prog", Averaged(), R"({"nranks":2,"feeds":{"x":"whole"}})");
  EXPECT_THAT(Verify({Right(), whole}), Ends(0, HasSubstr("verified: 2 ranks")));
  const std::string split =
      WithSetting("split.prog", Averaged(), R"({"nranks":2,"feeds":{"x":"axis:0"}})");
  EXPECT_THAT(Verify({whole, split}),
              FailsWith(1, "weft verify: error: ", "split.prog: expected the setting {"));
  EXPECT_THAT(Verify({whole, split, "--feed_layout", "x=axis:0"}),
              Ends(0, HasSubstr("verified: 2 ranks")));
}

TEST(WeftVerifyTest, FilesOfRanksMustAgree) {
  const std::string rank0 =
      WithSetting("rank0.prog", Averaged(), R"({"nranks":2,"rank":0,"groups":{"w":[0]}})");
  const std::string rank1 =
      WithSetting("rank1.prog", Averaged(), R"({"nranks":2,"rank":1,"groups":{"w":[0,1]}})");
  EXPECT_THAT(Verify({rank0, rank1}),
              FailsWith(1, "weft verify: error: ",
                        "rank1.prog: group of w: expected rank 0, as other ranks have, found "
                        "ranks 0, 1"));
  EXPECT_THAT(Verify({rank1, rank0}),
              FailsWith(1, "weft verify: error: ",
                        "rank1.prog: expected the program of rank 0, found the program of rank 1"));
}

TEST(WeftVerifyTest, SettingsThatCannotBeReadAreErrors) {
  const auto with = [](const std::string& setting) {
    return WithSetting("bad_setting.prog", Averaged(), setting);
  };
  EXPECT_THAT(Verify({with(R"({"nranks":2})")}), Ends(0, Clean("2 ranks")));
  EXPECT_THAT(Verify({with(R"({"lucky":true})")}),
              FailsWith(1, "weft verify: error: ",
                        "bad_setting.prog: setting of the file: key 'lucky' is unknown"));
  EXPECT_THAT(Verify({with("{]}")}), FailsWith(1, "weft verify: error: ", "setting of the file"));
}

// Its bytes are Paddle's alone, so that the setting is beside the file.
TEST(WeftVerifyTest, PaddleDialectHasItsSettingInAnotherFile) {
  const std::string out = TestPath("paddle.pb"), startup = TestPath("paddle_startup.pb");
  const std::string sidecar = out + ".setting.json";
  const auto transpile = [&](const std::string& mode) {
    return Transpile({"--dialect", "paddle", "--mode", mode, "--endpoints",
                      "127.0.0.1:6170,127.0.0.1:6171", "--startup_in", kStartup, "--startup_out",
                      startup, kMain, out});
  };
  ASSERT_EQ(transpile("grad_allreduce"), 0);
  EXPECT_THAT(RunProcess({"tools/weft", "show", out}).out, Not(HasSubstr("setting")));
  std::ifstream file(sidecar);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("\"setting\":{\"feeds\":{\"x\":\"axis:0\",\"y\":\"axis:0\"}}}"));
  EXPECT_THAT(Verify({out, "--startup", startup, "--short"}).out,
              HasSubstr("each rank gets a part of x along axis 0, y along axis 0 (setting of the "
                        "file)\n"));
  // It is of no use to another program under the same name.
  ASSERT_EQ(Transpile({"--mode", "none", kMain, out}), 0);
  EXPECT_THAT(Verify({out, "--short"}), Ends(0, Not(HasSubstr("setting of the file"))));
  ASSERT_EQ(transpile("grad_allreduce"), 0);
  std::ofstream(sidecar) << "{";
  EXPECT_THAT(Verify({out}), FailsWith(1, "weft verify: error: " + sidecar, ": not a JSON file"));
}

TEST(WeftVerifyTest, UpdatesThatChangeOnPurposeAreComparedWithTheChangedOriginal) {
  const std::string out = TestPath("states.pb"), startup = TestPath("states_startup.pb");
  const std::string changed = TestPath("changed.pb");
  const auto transpile = [](std::vector<std::string> args) {
    args.insert(args.begin(), "tools/transpile");
    return RunProcess(args);
  };
  const ProcessResult result =
      transpile({"--mode", "optimizer_offload", "--offload", "states", "--nranks", "2",
                 "--startup_in", kStartup, "--startup_out", startup, kMain, out});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("--passes 'optimizer-offload{offload=states}'"));
  EXPECT_THAT(
      Verify({out, "--startup", startup, "--original", kMain}),
      Ends(1, HasSubstr("--original must have the same change, or be left out: docs/offload.md")));
  ASSERT_EQ(transpile({"--passes", "optimizer-offload{offload=states}", kMain, changed}).status, 0);
  EXPECT_THAT(Verify({out, "--startup", startup, "--original", changed}),
              Ends(0, Clean("2 ranks")));
}

TEST(WeftVerifyTest, SparseModesChangeUpdatesOnPurpose) {
  const std::string out = TestPath("sparse.pb");
  const ProcessResult written =
      RunProcess({"tools/transpile", "--mode", "singa_sparse_topk", "--nranks", "2", "--startup_in",
                  kStartup, "--startup_out", TestPath("sparse_startup.pb"), kMain, out});
  ASSERT_EQ(written.status, 0) << written.err;
  const ProcessResult compared = Verify({out, "--original", kMain});
  EXPECT_EQ(compared.status, 1);
  EXPECT_THAT(compared.out,
              HasSubstr("note: if transpile noted that it changed updates on purpose"));
  EXPECT_THAT(Verify({out}).out, Not(HasSubstr("on purpose")));
}

TEST(WeftVerifyTest, FindingShowsRuleMessageBothOpsAndWhereToRead) {
  EXPECT_THAT(
      Verify({Racy()}),
      Ends(1, EndsWith(
                  "error: W401: op 7 (sgd) reads w@GRAD on the compute stream, while op 6 "
                  "(c_allreduce_avg) writes it on ring 0: nothing makes the compute stream wait "
                  "for ring "
                  "0 in between; insert c_wait_comm\n"
                  "    op 6: Out=[w@GRAD : fp32[4, 1]] = c_allreduce_avg(X=[w@GRAD]) role=backward "
                  "{ring_id=0, use_calc_stream=false}\n"
                  "    op 7: ParamOut=[w : fp32[4, 1]] = sgd(Grad=[w@GRAD], LearningRate=[lr], "
                  "Param=[w]) role=optimize vars=[w, w@GRAD]\n"
                  "    see weft verify --explain W401\n"
                  "note: Paddle's executor orders ops by the variables that they name since 2.5; "
                  "--order events judges by that\n"
                  "wrong: 1 error\n")));
}

TEST(WeftVerifyTest, ShortIsOneLineAFinding) {
  EXPECT_THAT(
      Verify({Racy(), "--short"}),
      Ends(1, ::testing::ContainsRegex(
                  "error: W401: [^\n]*\nnote: Paddle's executor [^\n]*\nwrong: 1 error\n$")));
}

TEST(WeftVerifyTest, FindingsBeyondTheFirstAreCounted) {
  std::string text = "program version=2006002 {\n  block 0 parent=-1 {\n";
  absl::StrAppend(&text, "    var x : fp32[4] need_check_feed\n");
  for (int i = 0; i < 25; ++i) absl::StrAppend(&text, "    Out=[y", i, "] = relu(X=[x])\n");
  const std::string path = MakeFile("many.prog", text + "  }\n}\n");
  EXPECT_THAT(Verify({path, "--short"}), Ends(1, AllOf(HasSubstr("W101: 5 more like these\n"),
                                                       EndsWith("wrong: 25 errors\n"))));
}

TEST(WeftVerifyTest, SumInsteadOfMeanIsFoundUnlessItIsWanted) {
  EXPECT_THAT(Verify({Summed(), "--nranks", "2"}), Ends(1, HasSubstr("error: W312: op 8 (sgd)")));
  EXPECT_THAT(Verify({Summed(), "--nranks", "2", "--summed_gradients"}), Ends(0, Clean("2 ranks")));
}

// fp16 leaves not all of a gradient, but fp32 all of a half.
TEST(WeftVerifyTest, RoundedGradientsAreFoundUnlessTheyAreWanted) {
  const std::string original = MakeFile("halved.prog", SgdStepText());
  const std::string out = TestPath("halved_out.prog");
  const auto transpile = [&](const std::vector<std::string>& mode) {
    std::vector<std::string> command = {"tools/transpile", "--nranks", "2"};
    command.insert(command.end(), mode.begin(), mode.end());
    command.insert(command.end(), {original, out});
    return RunProcess(command).status;
  };
  ASSERT_EQ(transpile({"--mode", "singa_half"}), 0);
  EXPECT_THAT(Verify({out, "--original", original, "--rounded_gradients=false"}),
              Ends(1, HasSubstr("found cast[fp32](cast[fp16](mul_grad")));
  EXPECT_THAT(Verify({out, "--original", original, "--rounded_gradients"}),
              Ends(0, Clean("2 ranks")));
}

// Nobody divides the gradients of a sum: one device adds those of all samples.
TEST(WeftVerifyTest, SumOfLossesIsRewrittenWithoutDivision) {
  const std::string sum =
      MakeFile("sum.prog", Edited(SgdStepText(), {{"reduce_mean", "reduce_sum"}}));
  const std::string out = TestPath("sum_out.prog");
  const auto transpile = [&](const std::string& scale) {
    return RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--nranks", "2", "--scale",
                       scale, sum, out});
  };
  ASSERT_EQ(transpile("auto").status, 0);
  EXPECT_THAT(Verify({out, "--nranks", "2", "--original", sum, "--numeric"}),
              Ends(0, AllOf(HasSubstr("1 variable equal bit by bit\n"), Clean("2 ranks"))));
  EXPECT_THAT(transpile("avg").err, HasSubstr("W702: op "));
  EXPECT_THAT(transpile("loss_grad").err, HasSubstr("W702: op "));
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "multi_thread", "--trans_mode", "all_gather",
                        "--nranks", "2", sum, out})
                .status,
            0);
  EXPECT_THAT(Verify({out, "--nranks", "2", "--original", sum}), Ends(0, Clean("2 ranks")));
  // Averaged parameters are averages nevertheless.
  ASSERT_EQ(
      RunProcess({"tools/transpile", "--mode", "local_sgd", "--nranks", "2", sum, out}).status, 0);
  EXPECT_THAT(Verify({out, "--nranks", "2", "--original", sum, "--short"}),
              Ends(0, AllOf(HasSubstr("note: W709: "), HasSubstr("warning: W710: "))));
}

TEST(WeftVerifyTest, AveragesAreExpectedInTurn) {
  const std::string sgd = MakeFile("sgd.prog", SgdStepText());
  const std::string out = TestPath("partial.prog");
  ASSERT_EQ(
      RunProcess({"tools/transpile", "--mode", "singa_partial", "--nranks", "2", sgd, out}).status,
      0);
  EXPECT_THAT(Verify({out, "--nranks", "2", "--original", sgd, "--in_turn", "--short"}),
              Ends(0, HasSubstr("verified: 2 ranks")));
  const std::string every_other = MakeFile("every_other.prog", std::string(kEveryOtherStep));
  const std::string one_device = MakeFile("one_device.prog", R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
  }
})");
  EXPECT_THAT(Verify({every_other, "--nranks", "2", "--original", one_device, "--short"}),
              Ends(0, HasSubstr("verified: 2 ranks")));
  EXPECT_THAT(
      Verify({every_other, "--nranks", "2", "--original", one_device, "--short", "--in_turn"}),
      Ends(1, AllOf(HasSubstr("error: W605: variable w"), HasSubstr("cannot be followed"))));
  EXPECT_EQ(Verify({out, "--nranks", "2", "--original", sgd, "--in_turn", "--k_steps", "2"}).status,
            2);
}

TEST(WeftVerifyTest, LossThatIsNoMeanIsNamed) {
  const std::string root = MakeFile(
      "root.prog",
      Edited(SgdStepText(),
             {{"Out=[loss] = reduce_mean(X=[y]) role=forward|loss",
               "Out=[m] = reduce_mean(X=[y]) role=forward"},
              {"    Out=[loss@GRAD] = fill",
               "    Out=[loss] = sqrt(X=[m]) role=forward|loss\n    Out=[loss@GRAD] = fill"},
              {"    X@GRAD=[y@GRAD] = reduce_mean_grad(Out@GRAD=[loss@GRAD]",
               "    X@GRAD=[m@GRAD] = sqrt_grad(Out=[loss], Out@GRAD=[loss@GRAD]) role=backward\n"
               "    X@GRAD=[y@GRAD] = reduce_mean_grad(Out@GRAD=[m@GRAD]"},
              {"    var loss : fp32[]\n",
               "    var loss : fp32[]\n    var m : fp32[]\n    var m@GRAD : fp32[]\n"}}));
  const std::string out = TestPath("root_out.prog");
  const ProcessResult transpiled =
      RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--nranks", "2", root, out});
  EXPECT_EQ(transpiled.status, 0);
  const std::string warning =
      "warning: W701: loss loss is no mean and no sum over the batch: op 2 (sqrt) makes it of m (a "
      "partial mean); transpile --exact_loss makes it the reference value\n";
  EXPECT_EQ(transpiled.err, warning);
  EXPECT_THAT(Verify({out, "--nranks", "2", "--original", root, "--short"}),
              Ends(0, AllOf(HasSubstr(warning), EndsWith("; 1 warning\n"))));
  // Numbers do not contradict it.
  EXPECT_THAT(Verify({out, "--nranks", "2", "--original", root, "--short", "--numeric"}),
              Ends(0, AllOf(HasSubstr("different, as notes and warnings say\n  parameter w, "),
                            EndsWith("; 1 warning\n"))));
}

// A difference that no line names is wrong: the gradient of y reads an x that the step has changed.
TEST(WeftVerifyTest, GradientOpThatReadsWhatHasChangedIsNamed) {
  const std::vector<std::pair<std::string, std::string>> changes_x = {
      {"    Out=[loss@GRAD] = fill",
       "    Out=[m] = reduce_mean(X=[x]) {dim=ints[0], keep_dim=false, reduce_all=true}\n"
       "    Out=[x] = elementwise_div(X=[x], Y=[m])\n    Out=[loss@GRAD] = fill"},
      {"    var loss : fp32[]\n", "    var loss : fp32[]\n    var m : fp32[]\n"}};
  const std::string original =
      MakeFile("changed_x.prog", Edited(testing::SgdStepText(), changes_x));
  const std::string path = MakeFile("changed_x_2.prog", Edited(Averaged(), changes_x));
  EXPECT_THAT(Verify({path, "--nranks", "2", "--original", original, "--short", "--numeric"}),
              Ends(0, HasSubstr("warning: W708: op 10 (sgd): gradient w@GRAD is unrelated to what "
                                "one device has: op 3 (elementwise_div) makes it")));
}

// Of a loop that multiplies by 2, with a gradient that multiplies by a mean over the batch: it is
// assumed to be right.
TEST(WeftVerifyTest, OnlyLinesExplainNumbers) {
  const std::vector<std::pair<std::string, std::string>> loops = {
      {"    var loss : fp32[]\n",
       "    var loss : fp32[]\n    var i : int64[1]\n    var n : int64[1]\n"
       "    var more : bool[1]\n    var rounds : step_scopes\n"},
      {"    Out=[loss] =",
       "    Out=[i] = fill_constant() {shape=longs[1], dtype=3, value=0.0}\n"
       "    Out=[n] = fill_constant() {shape=longs[1], dtype=3, value=2.0}\n"
       "    Out=[more] = less_than(X=[i], Y=[n])\n"
       "    Out=[y, i, more], StepScopes=[rounds] = while(X=[y, i, n], Condition=[more]) "
       "{sub_block=block(1)}\n"
       "    Out=[loss] ="},
      {"    Y@GRAD=[w@GRAD] = mul_grad",
       "    X@GRAD=[y@GRAD] = while_grad(X=[y], Out=[y], Out@GRAD=[y@GRAD], StepScopes=[rounds]) "
       "role=backward {original_output_grad=strings[\"y@GRAD\"], sub_block=block(2)}\n"
       "    Y@GRAD=[w@GRAD] = mul_grad"},
      {"  }\n}", R"(  }
  block 1 parent=0 {
    Out=[y] = scale(X=[y]) {scale=2.0}
    Out=[i] = increment(X=[i]) {step=1.0}
    Out=[more] = less_than(X=[i], Y=[n])
  }
  block 2 parent=0 forward=1 {
    var m : fp32[]
    Out=[m] = mean(X=[y]) role=backward
    Out=[y@GRAD] = elementwise_mul(X=[y@GRAD], Y=[m]) role=backward {axis=-1}
  }
})"}};
  const std::string original = MakeFile("loop.prog", Edited(testing::SgdStepText(), loops));
  const std::string path = MakeFile("loop_2.prog", Edited(Averaged(), loops));
  EXPECT_THAT(Verify({path, "--nranks", "2", "--original", original, "--short"}),
              Ends(0, HasSubstr("note: W713: op 8 (while_grad) is assumed to compute")));
  EXPECT_THAT(Verify({path, "--nranks", "2", "--original", original, "--short", "--numeric"}),
              Ends(1, HasSubstr("the result differs from the original")));
}

// A mean of the ranks' sums by a rank's number of samples, half of which the program itself takes:
// on two ranks, that is no division by their number, in the proof and in its comparison with
// numbers.
TEST(WeftVerifyTest, FactorsOfTheOriginalAreNoDivisions) {
  const auto step = [](const std::string& text, const std::string& reduce) {
    return Edited(
        text,
        {{"    var loss : fp32[]\n",
          "    var loss : fp32[]\n    var n : int64[]\n    var f : fp32[]\n    var s : fp32[]\n"
          "    var h : fp32[]\n    var half : fp32[] persistable\n"},
         {"    ParamOut=[w]",
          absl::StrCat("    Out=[n] = size(Input=[x])\n"
                       "    Out=[f] = cast(X=[n]) {in_dtype=3, out_dtype=5}\n"
                       "    Out=[s] = reduce_sum(X=[y]) {reduce_all=true, dim=ints[0]}\n",
                       reduce, "    Out=[h] = elementwise_div(X=[s], Y=[f])\n",
                       "    Out=[half] = scale(X=[h]) {scale=0.5}\n    ParamOut=[w]")}});
  };
  const std::string original = MakeFile("half.prog", step(SgdStepText(), ""));
  const std::string path = MakeFile(
      "half_2.prog",
      step(Averaged(), "    Out=[s] = c_allreduce_sum(X=[s]) {ring_id=0, use_calc_stream=true}\n"));
  EXPECT_THAT(
      Verify({path, "--nranks", "2", "--original", original, "--short", "--numeric"}),
      Ends(0, AllOf(HasSubstr("warning: W703: state half is, after the step, replicated, n"),
                    HasSubstr("different, as notes and warnings say"))));
}

// LocalSGD resets the velocity, so that parameters differ from those of one device, too. A reset
// that no line names is not explained by one.
TEST(WeftVerifyTest, ResetStatesExplainNumbers) {
  const std::string original =
      Edited(SgdStepText(), {{"    var lr ", "    var v : fp32[4, 1] persistable\n    var lr "},
                             {"ParamOut=[w] = sgd(", "ParamOut=[w], VelocityOut=[v] = momentum("},
                             {"Param=[w])", "Param=[w], Velocity=[v])"},
                             {"role=optimize vars=[w, w@GRAD]", "role=optimize {mu=0.9}"}});
  const std::string startup = Edited(
      kStartupOfProgram,
      {{"    var lr ", "    var v : fp32[4, 1] persistable\n    var lr "},
       {"    Out=[lr]",
        "    Out=[v] = fill_constant() {dtype=5, shape=longs[4, 1], value=0.0}\n    Out=[lr]"}});
  const std::string average =
      "    Out=[w] = c_allreduce_avg(X=[w]) role=optimize {ring_id=0, use_calc_stream=true}\n";
  const auto verify = [&](const std::string& name, const std::string& reset) {
    std::string text = original;
    text.insert(text.rfind("  }\n}"), average + reset);
    return Verify(
        {MakeFile(name, text), "--nranks", "2", "--startup",
         MakeFile("momentum_startup.prog", startup), "--original",
         MakeFile("momentum.prog", original), "--original_startup",
         MakeFile("momentum_start.prog",
                  Edited(startup, {{"    c_comm_init_all() role=forward {ring_id=0}\n", ""}})),
         "--short", "--numeric", "--steps", "3"});
  };
  EXPECT_THAT(verify("reset.prog",
                     "    Out=[v] = fill_constant() role=optimize {shape=longs[4, 1], dtype=5, "
                     "value=0.0}\n"),
              Ends(0, AllOf(HasSubstr("warning: W609: "),
                            HasSubstr("different, as notes and warnings say"))));
  EXPECT_THAT(verify("keep.prog", "    Out=[w] = scale(X=[w]) role=optimize {scale=0.5}\n"),
              Ends(1, HasSubstr("the result differs from the original")));
}

TEST(WeftVerifyTest, ParameterThatIsNotReducedIsFoundUnlessItIsDistributed) {
  const std::string path =
      MakeFile("two.prog",
               Edited(Averaged(),
                      {{"    var lr", "    var v : fp32[4, 1] parameter persistable\n    var lr"},
                       {kWaitCompute, absl::StrCat("    ParamOut=[v] = sgd(Grad=[w@GRAD], "
                                                   "LearningRate=[lr], Param=[v]) role=optimize\n",
                                                   kWaitCompute)}}));
  EXPECT_THAT(Verify({path}), Ends(1, HasSubstr("error: W310: op 5 (sgd) updates v by w@GRAD")));
  EXPECT_THAT(Verify({path, "--distributed_params", "v"}), Ends(0, Clean("any number of ranks")));
}

TEST(WeftVerifyTest, DifferenceToTheOriginalIsShown) {
  EXPECT_THAT(Verify({Right(), "--original", Original()}), Ends(0, Clean("any number of ranks")));
  const ProcessResult result =
      Verify({MakeFile("double.prog", Edited(Averaged(), {{"value=1.0", "value=2.0"}})),
              "--original", Original()});
  EXPECT_THAT(result,
              Ends(1, AllOf(HasSubstr("error: W601: variable w, last written by op 8 (sgd)"),
                            HasSubstr("    op 8: ParamOut=[w"),
                            HasSubstr("see weft verify --explain W601\n"))));
}

TEST(WeftVerifyTest, OneProgramPerRank) {
  const std::string startup = MakeFile("startup.prog", kStartupOfProgram);
  EXPECT_THAT(Verify({Right(), Right()}), Ends(0, Clean("2 ranks")));
  EXPECT_THAT(Verify({Right(), Right(), "--startup", startup}), Ends(0, Clean("2 ranks")));
  EXPECT_THAT(Verify({Right(), Right(), "--startup", startup, "--startup", startup}),
              Ends(0, Clean("2 ranks")));
}

TEST(WeftVerifyTest, RanksThatDoNotMakeTheSameCallsAreFound) {
  const ProcessResult result = Verify({Right(), Summed(), "--summed_gradients"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("error: W501: rank 1: ring 0, call 0: rank 1 makes "),
                    HasSubstr("    op 6: Out=[w@GRAD : fp32[4, 1]] = c_allreduce_sum(X=[w@GRAD])"),
                    HasSubstr("    see weft verify --explain W501\n")));
}

TEST(WeftVerifyTest, FindingsOfAStartupProgramAndOfARankSaySo) {
  const std::string right = MakeFile("startup.prog", kStartupOfProgram);
  const std::string wrong =
      MakeFile("bad_startup.prog", Edited(kStartupOfProgram, {{"value=0.5", "value=\"0.5\""}}));
  EXPECT_THAT(Verify({Right(), "--startup", wrong}),
              Ends(1, HasSubstr("error: W105: startup program: op 1 (fill_constant)")));
  EXPECT_THAT(Verify({Right(), Right(), "--startup", right, "--startup", wrong}),
              Ends(1, HasSubstr("error: W105: rank 1: startup program: op 1 (fill_constant)")));
}

TEST(WeftVerifyTest, RingThatTheStartupProgramDoesNotSetUpIsFound) {
  const std::string startup =
      MakeFile("no_ring.prog", Edited(kStartupOfProgram, {{"ring_id=0", "ring_id=1"}}));
  EXPECT_THAT(Verify({Right(), "--startup", startup}), Ends(1, HasSubstr("error: W301: op ")));
}

TEST(WeftVerifyTest, JsonHasTheFindingsAsData) {
  const ProcessResult result = Verify({Racy(), "--format", "json"});
  EXPECT_EQ(result.status, 1);
  const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded()) << result.out;
  EXPECT_EQ(json["verified"], false);
  EXPECT_EQ(json["omitted"], nlohmann::json::object());
  EXPECT_FALSE(json.contains("numeric"));
  ASSERT_THAT(json["findings"], SizeIs(1));
  nlohmann::json finding = json["findings"][0];
  EXPECT_THAT(finding["message"].get<std::string>(), StartsWith("op 7 (sgd) reads w@GRAD"));
  finding.erase("message");
  EXPECT_EQ(finding, nlohmann::json::parse(R"({
    "rule": "W401", "severity": "error", "rank": null, "startup": false, "variable": "w@GRAD",
    "more_variables": [], "op": {"block": 0, "index": 7, "type": "sgd"},
    "other": {"block": 0, "index": 6, "type": "c_allreduce_avg"}})"));
}

TEST(WeftVerifyTest, JsonOfSeveralRanksSaysWhichAndOfNoFindingsIsEmpty) {
  const auto parse = [](const ProcessResult& result) {
    return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  };
  const auto wrong = parse(Verify({Right(), Racy(), "--format=json"}));
  EXPECT_EQ(wrong["findings"][0]["rank"], 1);
  const auto right = parse(Verify({Right(), "--format=json"}));
  constexpr char kExpected[] = R"json({
    "verified": true, "findings": [], "omitted": {}, "ranks": "any number of ranks",
    "layers": ["structure", "types", "communication", "races", "across ranks", "batch"],
    "assumed": ["each rank gets a part of x along axis 0 (--feed_layout)",
                "rings are set up, and ranks begin with equal values (--startup checks it)"]
  })json";
  EXPECT_EQ(right, nlohmann::json::parse(kExpected));
}

TEST(WeftVerifyTest, NumericRunsBothPrograms) {
  EXPECT_THAT(
      Verify({Right(), "--original", Original(), "--numeric"}),
      Ends(0, HasSubstr("numeric: 2 steps on 2 ranks, batch 8: 1 variable equal bit by bit\n"
                        "verified: ")));
  EXPECT_THAT(Verify({Right(), "--original", Original(), "--numeric", "--nranks", "4", "--steps",
                      "1", "--short"}),
              Ends(0, HasSubstr("numeric: 1 step on 4 ranks, batch 16: ")));
}

TEST(WeftVerifyTest, NumericShowsWhatDiffers) {
  const ProcessResult text =
      Verify({Summed(), "--nranks", "2", "--original", Original(), "--numeric"});
  EXPECT_THAT(text, Ends(1, AllOf(HasSubstr("numeric: 2 steps on 2 ranks, batch 8: different\n"
                                            "  parameter w, rank 0, after step 0: expected "),
                                  EndsWith("the result differs from the original\n"))));
  const ProcessResult result = Verify(
      {Summed(), "--nranks", "2", "--original", Original(), "--numeric", "--format", "json"});
  const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["verified"], false);
  EXPECT_EQ(json["numeric"]["verdict"], "different");
  EXPECT_EQ(json["numeric"]["differences"][0]["variable"], "w");
}

TEST(WeftVerifyTest, NumericTakesStartupPrograms) {
  const std::string startup = MakeFile("startup.prog", kStartupOfProgram);
  EXPECT_THAT(Verify({Right(), "--startup", startup, "--original", Original(), "--original_startup",
                      startup, "--numeric"}),
              Ends(0, HasSubstr("equal bit by bit\nverified: ")));
}

TEST(WeftVerifyTest, StartupProgramsAreComparedToo) {
  const std::string startup = MakeFile("startup.prog", kStartupOfProgram);
  const std::string other =
      MakeFile("other_startup.prog", Edited(kStartupOfProgram, {{"value=", "value=7"}}));
  EXPECT_THAT(Verify({Right(), "--startup", startup, "--original", Original(), "--original_startup",
                      startup}),
              Ends(0, HasSubstr("verified: ")));
  EXPECT_THAT(Verify({Right(), "--startup", other, "--original", Original(), "--original_startup",
                      startup}),
              Ends(1, HasSubstr("error: W606: startup program: variable ")));
}

TEST(WeftVerifyTest, NumericSaysWhichOpHasNoKernel) {
  const std::string unknown =
      MakeFile("unknown.prog", Edited(Averaged(), {{"= mul(", "= nobody_knows("}}));
  EXPECT_THAT(Verify({unknown, "--original", unknown, "--numeric", "--short"}).err,
              HasSubstr("--numeric: original program: "));
  EXPECT_THAT(Verify({unknown, "--original", unknown, "--numeric", "--short"}).err,
              HasSubstr("nobody_knows"));
}

TEST(WeftVerifyTest, WrongUsageIsStatus2) {
  const std::string start = "weft verify: error: ";
  EXPECT_THAT(Verify({}), FailsWith(2, start, "mains: expected programs to verify, or --explain"));
  EXPECT_THAT(Verify({Right(), "--nranks", "0"}), FailsWith(2, start + "--nranks: ", "found 0"));
  EXPECT_THAT(Verify({Right(), Right(), "--nranks", "3"}),
              FailsWith(2, start + "--nranks: ", "expected 2, the number of programs, found 3"));
  EXPECT_THAT(Verify({Right(), Right(), Right(), "--startup", kStartup, "--startup", kStartup}),
              FailsWith(2, start + "--startup: ", "expected one, or 3, one per program, found 2"));
  EXPECT_THAT(Verify({Right(), "--format", "xml"}), FailsWith(2, start + "--format: ", "xml"));
  EXPECT_THAT(Verify({Right(), "--format", "json", "--short"}),
              FailsWith(2, start + "--short: ", "text only"));
  EXPECT_THAT(Verify({"-", "--original", "-"}),
              FailsWith(2, start + "--original: ", "MAIN already reads standard input"));
  EXPECT_THAT(Verify({Right(), "--numeric"}), FailsWith(2, start, "--original"));
  EXPECT_THAT(Verify({Right(), "--original_startup", kStartup}), FailsWith(2, start, "--original"));
  EXPECT_THAT(Verify({Right(), "--original", Original(), "--original_startup", kStartup}),
              FailsWith(2, start + "--original_startup: ", "--startup, with which it is compared"));
  EXPECT_THAT(Verify({Right(), Right(), "--original", Original(), "--numeric"}),
              FailsWith(2, start + "--numeric: ", "one program"));
  EXPECT_THAT(Verify({Right(), "--original", Original(), "--numeric", "--summed_gradients"}),
              FailsWith(2, start + "--numeric: ", "averaged"));
}

TEST(WeftVerifyTest, FileThatCannotBeReadIsStatus1) {
  EXPECT_THAT(Verify({"nowhere.pb"}),
              FailsWith(1, "weft verify: error: nowhere.pb: ", "No such file"));
  EXPECT_THAT(Verify({Right(), "--startup", "nowhere.pb"}),
              FailsWith(1, "weft verify: error: nowhere.pb: ", "No such file"));
  EXPECT_THAT(Verify({Right(), "--original", "nowhere.pb"}),
              FailsWith(1, "weft verify: error: nowhere.pb: ", "No such file"));
  const std::string garbage = MakeFile("garbage.pb", "no program");
  EXPECT_THAT(Verify({garbage}), FailsWith(1, "weft verify: error: " + garbage + ": ", ""));
}

TEST(WeftVerifyTest, ExplainsARule) {
  const ProcessResult page = Verify({"--explain", "W312"});
  EXPECT_EQ(page.status, 0);
  EXPECT_THAT(page.out, StartsWith("W312 error: gradient summed over the ranks"));
  EXPECT_THAT(Verify({"--explain", "W999"}),
              FailsWith(2, "weft verify: error: --explain: ", "found W999"));
  EXPECT_THAT(Verify({"--explain", "W312", Right()}),
              FailsWith(2, "weft verify: error: mains: ", "or --explain"));
  EXPECT_THAT(Verify({}), FailsWith(2, "weft verify: error: mains: ", "or --explain"));
}

TEST(WeftVerifyTest, HelpHasExamples) {
  const ProcessResult help = Verify({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("  weft verify out.pb --startup out_startup.pb"));
}

}  // namespace
}  // namespace weft::testing
