// The transpile command as a process: files that cannot be read or written, ranks that contradict
// each other, wrong usage, and the same output every time.
#include "tests/commands/transpile_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "proto/formats/program_file.h"
#include "proto/testing/program_builder.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

class TranspileTest : public testing::TranspileCommandTest {
 protected:
  void SetUp() override {
    TranspileCommandTest::SetUp();
    MakeFile("in.pb", MainBytes());
    MakeFile("startup.pb", StartupBytes());
  }

  // The arguments of a run from in.pb to `out`.
  std::vector<std::string> To(const std::string& out) const {
    return {"--mode", "grad_allreduce", Path("in.pb"), Path(out)};
  }
  std::vector<std::string> To(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> args = To(out);
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

// --- Files --------------------------------------------------------------------------------------

TEST_F(TranspileTest, MissingInputIsRefused) {
  ExpectRefuses("none.pb", "none.pb: cannot open: No such file or directory");
  ExpectRefuses("none/in.pb", "none/in.pb: cannot open: No such file or directory");
  ExpectRefuses("in.pb/x.pb", "in.pb/x.pb: cannot open: Not a directory");
}

TEST_F(TranspileTest, DirectoryAsInputOrOutputIsRefused) {
  ASSERT_EQ(mkdir(Path("d.pb").c_str(), 0777), 0);
  ExpectRefuses("d.pb", "d.pb: is a directory");
  ExpectFails(1, To("d.pb"), "d.pb: is a directory");
}

// They run where all others run.
TEST_F(TranspileTest, OpsOfTheHostInAProgramOnOneDeviceAreNoted) {
  const std::string text = R"(program {
block 0 parent=-1 {
var x : fp32[-1, 4]
var h : fp32[-1, 4]
var y : fp32[-1, 4]
Out=[h] = relu(X=[x]) {op_device="cpu"}
Out=[y] = tanh(X=[h]) {op_device=""}
}
}
)";
  const std::string note = "op_device of 1 ops is \"cpu\", but all ops run on one device";
  MakeFile("host.prog", text);
  MakeFile("all.prog", absl::StrReplaceAll(text, {{"op_device=\"\"", "op_device=\"cpu\""}}));
  const auto errors = [this](std::vector<std::string> args) {
    args.insert(args.begin(), {"--mode", "none"});
    args.push_back(Path("out.prog"));
    const ProcessResult result = Run(args);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(errors({Path("host.prog")}), HasSubstr(note));
  EXPECT_THAT(errors({"--place", "op_device", Path("host.prog")}), Not(HasSubstr(note)));
  EXPECT_THAT(errors({Path("all.prog")}), Not(HasSubstr(note)));
}

// Paddle loads the attribute, and nothing there reads it.
TEST_F(TranspileTest, SchedulesInFilesOfPaddle3AreNoted) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, testing::ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  const std::string plain = files.at("fit_a_line/main.json");
  MakeFile("plain.json", plain);
  MakeFile("main.json",
           absl::StrReplaceAll(
               plain, {{R"("#":"1.sgd_","A":[)",
                        R"("#":"1.sgd_","A":[{"AT":{"#":"0.a_str","D":"learning_rate_0=)"
                        R"(exponential{learning_rate=0.1,gamma=0.9}"},"N":"lr_schedule"},)"}}));
  const auto errors = [this](const std::string& in, const std::string& out) {
    const ProcessResult result =
        Run({"--mode", "grad_allreduce", "--nranks", "2", Path(in), Path(out)});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  const char* const note = "`weft run` follows the schedule of learning_rate_0; in Paddle,";
  EXPECT_THAT(errors("main.json", "out.json"), HasSubstr(note));
  EXPECT_THAT(errors("main.json", "out.pb"), Not(HasSubstr(note)));
  EXPECT_THAT(errors("plain.json", "out.json"), Not(HasSubstr(note)));
}

// Where the result is for Paddle. `weft run` compares the ranks' parameters before the first step.
TEST_F(TranspileTest, MissingStartupProgramsAreNoted) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, testing::ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  MakeFile("main.json", files.at("fit_a_line/main.json"));
  MakeFile("startup.json", files.at("fit_a_line/startup.json"));
  const auto errors = [this](const std::string& mode, std::vector<std::string> args) {
    args.insert(args.begin(), {"--mode", mode});
    const ProcessResult result = Run(args);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  const char* const note =
      "ranks must begin with equal parameters; a startup program (--startup_in)";
  const std::string in = Path("main.json"), out = Path("out.json");
  EXPECT_THAT(errors("grad_allreduce", {"--nranks", "2", in, out}), HasSubstr(note));
  EXPECT_THAT(errors("grad_allreduce", {"--nranks", "2", "--device_kind", "cpu", in, Path("o.pb")}),
              HasSubstr(note));
  EXPECT_THAT(errors("grad_allreduce", {"--nranks", "2", in, Path("out.pb")}),
              Not(HasSubstr(note)));
  EXPECT_THAT(errors("none", {in, out}), Not(HasSubstr(note)));
  EXPECT_THAT(errors("grad_allreduce", {"--nranks", "2", "--startup_in", Path("startup.json"),
                                        "--startup_out", Path("s.json"), in, out}),
              Not(HasSubstr(note)));
}

TEST_F(TranspileTest, UnknownKindOfFileIsRefused) {
  MakeFile("in.txt", "words");
  ExpectRefuses("in.txt", "in.txt: unknown kind of program file; expected .pb");
  ExpectFails(1, To("out.txt"), "out.txt: unknown kind of program file; expected .pb");
}

TEST_F(TranspileTest, BytesTellTheFormatAndNotTheName) {
  pb::ProgramDesc malformed = MainDesc();
  malformed.mutable_blocks(0)->mutable_ops(0)->set_type("\xff");
  ASSERT_EQ(Run({"--mode", "none", Path("in.pb"), Path("main.prog")}).status, 0);
  for (const char* name : {"a.json", "a.txt", "a"}) {
    SCOPED_TRACE(name);
    MakeFile(name, MainBytes());
    EXPECT_EQ(Run({"--mode", "none", Path(name), Path("copy.prog")}).err, "");
    EXPECT_EQ(Read("copy.prog"), Read("main.prog"));
    EXPECT_EQ(Run({"--mode", "grad_allreduce", "--nranks", "2", "--certificate",
                   Path("certificate"), Path(name), Path("out.pb")})
                  .status,
              0);
    MakeFile(name, malformed.SerializePartialAsString());
    EXPECT_EQ(Run({"--mode", "none", Path(name), Path("copy.pb")}).status, 0);
    EXPECT_EQ(Read("copy.pb"), Read(name));
    const ProcessResult other = Run({"--mode", "none", Path(name), Path("copy.prog")});
    EXPECT_EQ(other.status, 1);
    EXPECT_THAT(other.err, HasSubstr("copy.prog: expected the kind of file of "));
  }
}

TEST_F(TranspileTest, FilesWithoutPermissionAreRefused) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read and write every file";
  MakeFile("secret.pb", MainBytes());
  ASSERT_EQ(chmod(Path("secret.pb").c_str(), 0), 0);
  ExpectRefuses("secret.pb", "secret.pb: cannot open: Permission denied");
  MakeFile("fixed.pb", "old");
  ASSERT_EQ(chmod(Path("fixed.pb").c_str(), 0444), 0);
  ExpectFails(1, To("fixed.pb"), "fixed.pb: cannot write: Permission denied");
}

TEST_F(TranspileTest, DirectoryThatCannotBeWrittenIsRefused) {
  ExpectFails(1, To("none/out.pb"), "none/out.pb: cannot");
  ExpectFails(1, To("in.pb/out.pb"), "in.pb/out.pb: cannot");
  ExpectFails(1, To("/proc/out.pb"), "/proc/out.pb: cannot");
  ExpectFails(1, To("out.pb", {"--explain", Path("none/explain.json")}),
              "none/explain.json: cannot");
}

TEST_F(TranspileTest, FullDiskLeavesEveryFileAsItWas) {
  ASSERT_EQ(symlink("/dev/full", Path("full.pb").c_str()), 0);
  const std::string message = "full.pb: cannot write: No space left on device";
  ExpectFails(1, To("full.pb"), message);
  const std::string startup = Path("startup.pb");
  MakeFile("old.pb", "old");
  MakeFile("explain.json", "old");
  ExpectFails(1,
              To("full.pb", {"--startup_in", startup, "--startup_out", Path("old.pb"), "--explain",
                             Path("explain.json")}),
              message);
  ExpectFails(1, To("out.pb", {"--startup_in", startup, "--startup_out", Path("full.pb")}),
              message);
}

TEST_F(TranspileTest, InputIsNeverWritten) {
  const std::string message = "refusing to overwrite the input file ";
  ExpectFails(1, To("in.pb"), message);
  ExpectFails(1, To("./in.pb"), message);
  ASSERT_EQ(symlink("in.pb", Path("link.pb").c_str()), 0);
  ExpectFails(1, To("link.pb"), message);
  ASSERT_EQ(link(Path("in.pb").c_str(), Path("hard.pb").c_str()), 0);
  ExpectFails(1, To("hard.pb"), message);
  ExpectFails(1, To("out.pb", {"--startup_in", Path("startup.pb"), "--startup_out", Path("in.pb")}),
              message);
  ExpectFails(1,
              To("startup.pb", {"--startup_in", Path("startup.pb"), "--startup_out", Path("s.pb")}),
              message);
  ExpectFails(1, To("out.pb", {"--explain", Path("in.pb")}), message);
}

TEST_F(TranspileTest, TwoOutputsNeverGoToOneFile) {
  const std::vector<std::string> startup = {"--startup_in", Path("startup.pb"), "--startup_out"};
  const auto with = [&](const std::string& out, const std::string& startup_out) {
    std::vector<std::string> args = To(out, startup);
    args.push_back(Path(startup_out));
    return args;
  };
  ExpectFails(1, with("out.pb", "out.pb"), "two outputs are written to this file");
  ExpectFails(1, with("new.pb", "new.pb"), "two outputs are written to this file");
  ExpectFails(1, with("new.pb", "./new.pb"), "two outputs are written to this file");
  ASSERT_EQ(symlink("new.pb", Path("link.pb").c_str()), 0);
  ExpectFails(1, with("new.pb", "link.pb"), "two outputs are written to this file");
  ExpectFails(1, with("-", "-"), "two outputs are written to this file");
}

TEST_F(TranspileTest, LinkAsOutputStaysALink) {
  MakeFile("target.pb", "old");
  ASSERT_EQ(symlink("target.pb", Path("out.pb").c_str()), 0);
  EXPECT_EQ(GradAllReduce("in.pb").status, 0);
  struct stat info;
  ASSERT_EQ(lstat(Path("out.pb").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  WEFT_EXPECT_OK(ReadProgram(Path("target.pb")));
}

TEST_F(TranspileTest, ResultThatTheVerifierRefusesGoesNowhere) {
  const std::string in = MakeFile("in.prog", R"(program {
    block 0 parent=-1 {
      var x : fp32[2, 3] persistable
      var w : fp32[5, 7] persistable
      var y : fp32[2, 7]
      Out=[y] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    }
  })");
  for (const char* out : {"out.pb", "new.pb", "-"}) {
    ExpectFails(1, {"--passes", "sync-elimination", in, Path(out)},
                "in.prog: after pass sync-elimination: W201: op 0 (mul) input Y (w): ");
  }
}

// Mode none refuses nothing that it can read.
TEST_F(TranspileTest, CopyOfAWrongProgramIsWrittenWithAWarning) {
  const std::string in = MakeFile("in.prog", R"(program {
    block 0 parent=-1 {
      var x : fp32[2, 3] persistable
      var w : fp32[5, 7] persistable
      var y : fp32[2, 7]
      Out=[y] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    }
  })");
  const ProcessResult result = Run({"--mode", "none", in, Path("new.pb")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("warning: "), HasSubstr("in.prog: W201: op 0 (mul) input Y (w): ")));
  EXPECT_EQ(Run({"--mode", "none", "--verify", "false", in, Path("new.pb")}).err, "");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program read, ReadProgram(in));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program written, ReadProgram(Path("new.pb")));
  EXPECT_EQ(ProgramText(written), ProgramText(read));
}

TEST_F(TranspileTest, FixedBatchIsThatOfARank) {
  pb::ProgramDesc desc = MainDesc();
  for (pb::VarDesc& var : *desc.mutable_blocks(0)->mutable_vars()) {
    if (!var.need_check_feed()) continue;
    var.mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_dims(0, 20);
  }
  MakeFile("fixed.pb", desc.SerializeAsString());
  const std::string text =
      "fixed.pb: the batch is fixed: x, y of 20 is what each rank takes, so a "
      "step takes ";
  EXPECT_THAT(GradAllReduce("fixed.pb", {"--nranks", "2"}).err,
              HasSubstr(text + "40 on 2 ranks; declare -1 to share a batch of 20"));
  EXPECT_THAT(GradAllReduce("fixed.pb").err, HasSubstr(text + "20 times the number of ranks; "));
  EXPECT_THAT(GradAllReduce("in.pb", {"--nranks", "2"}).err, Not(HasSubstr("the batch is fixed")));
}

TEST_F(TranspileTest, HintsNameAModeThatReadsTheirFlag) {
  const std::string in = MakeFile("root.prog", R"(program {
    block 0 parent=-1 {
      var x : fp32[-1, 4] need_check_feed
      var w : fp32[4, 1] parameter persistable
      var y : fp32[-1, 1]
      var m : fp32[1]
      var loss : fp32[1]
      var loss@GRAD : fp32[1]
      var m@GRAD : fp32[1]
      var y@GRAD : fp32[-1, 1]
      var w@GRAD : fp32[4, 1]
      var lr : fp32[1] persistable
      Out=[y] = mul(X=[x], Y=[w])
      Out=[m] = mean(X=[y])
      Out=[loss] = sqrt(X=[m]) role=forward|loss
      Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], value=1.0, dtype=5}
      X@GRAD=[m@GRAD] = sqrt_grad(Out=[loss], Out@GRAD=[loss@GRAD]) role=backward
      X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[m@GRAD]) role=backward
      Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
      ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    }
  })");
  const auto hints = [&](const std::string& mode) {
    return Run({"--mode", mode, in, Path("new.pb")}).err;
  };
  EXPECT_THAT(hints("grad_allreduce"), HasSubstr("; transpile --exact_loss makes it"));
  EXPECT_THAT(hints("singa_plain"),
              HasSubstr("; transpile --mode grad_allreduce --exact_loss makes it"));
}

// Paddle's append_backward writes no op for the gradient of what c_allgather gathers.
TEST_F(TranspileTest, GradientThatNoCollectiveTakesBackIsNamed) {
  const auto warnings = [this](const std::string& reader,
                               std::vector<std::string> args = {"--mode", "none"}) {
    MakeFile("gather.prog", R"(program {
    block 0 parent=-1 {
      var x : fp32[-1, 4] need_check_feed
      var w : fp32[4, 4] parameter persistable
      var a : fp32[-1, 4]
      var g : fp32[-1, 4]
      var loss : fp32[1]
      var loss@GRAD : fp32[1]
      var g@GRAD : fp32[-1, 4]
      var a@GRAD : fp32[-1, 4]
      var w@GRAD : fp32[4, 4]
      var lr : fp32[1] persistable
      Out=[a] = mul(X=[x], Y=[w])
      Out=[g] = c_allgather(X=[a]) {ring_id=0, nranks=2, use_calc_stream=true}
      Out=[loss] = mean(X=[g]) role=forward|loss
      Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], value=1.0, dtype=5}
      X@GRAD=[g@GRAD] = mean_grad(X=[g], Out@GRAD=[loss@GRAD]) role=backward
      )" + reader + R"(
      Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[a@GRAD]) role=backward vars=[w, w@GRAD]
      ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    }
  })");
    for (const char* file : {"gather.prog", "new.pb"}) args.push_back(Path(file));
    return Run(args).err;
  };
  const char kWarning[] =
      "op 1 (c_allgather): the gradient of its output, g@GRAD, is computed, "
      "but no op takes it back";
  EXPECT_THAT(warnings("Out=[a@GRAD] = scale(X=[a]) role=backward {scale=1.0}"),
              HasSubstr(kWarning));
  // The verifier says it, and nobody else.
  const std::string all =
      warnings("Out=[a@GRAD] = scale(X=[a]) role=backward {scale=1.0}",
               {"--mode", "grad_allreduce", "--nranks", "2", "--scale", "none"});
  EXPECT_THAT(all, HasSubstr(absl::StrCat("W717: ", kWarning)));
  EXPECT_EQ(all.find(kWarning), all.rfind(kWarning)) << all;
  EXPECT_THAT(warnings("Out=[a@GRAD] = c_reducescatter(X=[g@GRAD]) role=backward {ring_id=0, "
                       "nranks=2, use_calc_stream=true}"),
              Not(HasSubstr("no op takes it back")));
}

TEST_F(TranspileTest, OnlyTheOutputsRemain) {
  const ProcessResult result =
      GradAllReduce("in.pb", {"--startup_in", Path("startup.pb"), "--startup_out", Path("s.pb"),
                              "--explain", Path("explain.json")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(Names(), ElementsAre("explain.json", "in.pb", "out.pb", "s.pb", "startup.pb"));
}

TEST_F(TranspileTest, StandardInputAndOutputCarryBinaryPrograms) {
  ASSERT_EQ(GradAllReduce("in.pb").status, 0);
  const ProcessResult result = Run({"--mode", "grad_allreduce", "-", "-"}, MainBytes());
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(result.out == Read("out.pb"));
}

TEST_F(TranspileTest, EmptyStandardInputIsRefused) {
  ExpectFails(1, {"--mode", "none", "-", "-"}, "-: the program is empty: no blocks");
}

// --- Ranks and endpoints ------------------------------------------------------------------------

constexpr char kTwo[] = "127.0.0.1:6170,127.0.0.1:6171";

struct BadRanks {
  std::string name;
  std::vector<std::string> flags;
  std::string message;
};

class RefusesRanks : public TranspileTest, public ::testing::WithParamInterface<BadRanks> {};

TEST_P(RefusesRanks, InBothDialects) {
  std::vector<std::string> flags = GetParam().flags;
  ExpectRefuses("in.pb", GetParam().message, flags);
  flags.insert(flags.end(), {"--dialect", "paddle"});
  ExpectRefuses("in.pb", GetParam().message, flags);
}

INSTANTIATE_TEST_SUITE_P(
    TranspileTest, RefusesRanks,
    ::testing::Values(
        BadRanks{"NoRank", {"--nranks", "0"}, "the number of ranks must be at least "},
        BadRanks{"NegativeRanks", {"--nranks", "-2"}, "the number of ranks must be at least "},
        BadRanks{"NegativeRank",
                 {"--endpoints", kTwo, "--rank", "-1"},
                 "the rank must not be negative, found -1"},
        BadRanks{"RankBeyondTheLast",
                 {"--endpoints", kTwo, "--rank", "2"},
                 "rank 2 is out of range: expected at most 1"},
        BadRanks{"RankWithoutEndpoints",
                 {"--nranks", "2", "--rank", "1"},
                 "without the endpoints of all ranks"},
        BadRanks{"CurrentEndpointIsAnother",
                 {"--endpoints", kTwo, "--current_endpoint", "127.0.0.1:9999"},
                 "current endpoint 127.0.0.1:9999 is not among the endpoints"},
        BadRanks{"CurrentEndpointIsEmpty",
                 {"--endpoints", kTwo, "--current_endpoint", ""},
                 "the current endpoint is empty"},
        BadRanks{"CurrentEndpointOfAnotherRank",
                 {"--endpoints", kTwo, "--rank", "1", "--current_endpoint", "127.0.0.1:6170"},
                 "rank 1 has endpoint 127.0.0.1:6171, not the current endpoint 127.0.0.1:6170"},
        BadRanks{"RepeatedEndpoint",
                 {"--endpoints", "127.0.0.1:6170,127.0.0.1:6170"},
                 "endpoint 127.0.0.1:6170 is given twice: for rank 0 and for rank 1"},
        BadRanks{
            "EmptyEndpoint", {"--endpoints", "127.0.0.1:6170,"}, "the endpoint of rank 1 is empty"},
        BadRanks{"EndpointWithoutPort",
                 {"--endpoints", "127.0.0.1:6170,127.0.0.1"},
                 "the endpoint of rank 1: expected host:port, found '127.0.0.1'"},
        BadRanks{"EndpointWithBlank",
                 {"--endpoints", "127.0.0.1:6170, 127.0.0.1:6171"},
                 "the endpoint of rank 1: expected host:port, found ' 127.0.0.1:6171'"},
        BadRanks{"RanksAndEndpointsDisagree",
                 {"--nranks", "3", "--endpoints", kTwo},
                 "the number of ranks is given as 3, but there are 2 endpoints"},
        BadRanks{"NoRing", {"--endpoints", kTwo, "--nrings", "0"}, "nrings"},
        BadRanks{"NegativeRings", {"--endpoints", kTwo, "--nrings", "-1"}, "nrings"}),
    [](const auto& info) { return info.param.name; });

// As Paddle's classes do. In the weft dialect, a program of one rank is as good as any other.
TEST_F(TranspileTest, AllRanksAreWrittenAtOnce) {
  const std::vector<std::string> job = {"--mode",       "grad_allreduce",  "--dialect",
                                        "paddle",       "--endpoints",     kTwo,
                                        "--startup_in", Path("startup.pb")};
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = job;
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  };
  for (const std::string rank : {"0", "1"}) {
    const ProcessResult one = run({"--rank", rank, Path("in.pb"), Path("one" + rank + ".pb"),
                                   "--startup_out", Path("one_startup" + rank + ".pb")});
    ASSERT_EQ(one.status, 0) << one.err;
  }
  const ProcessResult all =
      run({"--rank", "all", Path("in.pb"), Path("all.pb"), "--startup_out",
           Path("all_startup{rank}.pb"), "--explain", Path("why{rank}.json")});
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(Read("all.pb"), Read("one0.pb"));
  EXPECT_EQ(Read("all.pb"), Read("one1.pb"));
  EXPECT_EQ(Read("all_startup0.pb"), Read("one_startup0.pb"));
  EXPECT_EQ(Read("all_startup1.pb"), Read("one_startup1.pb"));
  EXPECT_NE(Read("all_startup0.pb"), Read("all_startup1.pb"));
  EXPECT_EQ(Read("why0.json"), Read("why1.json"));
}

// The startup program joins a ring as rank 0. That is right for rank 0, whose program it may be.
TEST_F(TranspileTest, RanksThatDoNotFitTogetherAreNotWritten) {
  pb::ProgramDesc desc;
  ASSERT_TRUE(desc.ParseFromString(StartupBytes()));
  ProgramBuilder p;
  p.Var("id");
  p.last_var().mutable_type()->set_type(pb::VarType::RAW);
  p.Op("c_gen_nccl_id", {}, {{"Out", {"id"}}});
  p.IntAttr("rank", 0).IntAttr("ring_id", 0);
  auto* endpoint = p.last_op().add_attrs();
  endpoint->set_name("endpoint");
  endpoint->set_type(pb::STRING);
  endpoint->set_s("127.0.0.1:6170");
  auto* others = p.last_op().add_attrs();
  others->set_name("other_endpoints");
  others->set_type(pb::STRINGS);
  others->add_strings("127.0.0.1:6171");
  p.Op("c_comm_init", {{"X", {"id"}}}, {});
  p.IntAttr("rank", 0).IntAttr("ring_id", 0).IntAttr("nranks", 2);
  desc.mutable_blocks(0)->MergeFrom(p.desc().blocks(0));
  MakeFile("rank0.pb", desc.SerializeAsString());
  const auto of_rank = [this](const std::string& rank) -> std::vector<std::string> {
    return {"--passes",      "grad-all-reduce{scale=avg}",
            "--endpoints",   kTwo,
            "--rank",        rank,
            "--startup_in",  Path("rank0.pb"),
            "--startup_out", Path("startup_out.pb"),
            Path("in.pb"),   Path("out.pb")};
  };
  EXPECT_EQ(Run(of_rank("0")).err, "");
  unlink(Path("out.pb").c_str());
  unlink(Path("startup_out.pb").c_str());
  ExpectFails(1, of_rank("all"),
              "ranks together: after pass grad-all-reduce: W507: rank 1: startup program: ");
  EXPECT_EQ(Read("startup_out.pb"), "");
}

TEST_F(TranspileTest, NotesOfAllRanksAreShownOnce) {
  const auto notes = [this](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--endpoints", kTwo, "--rank", "all"};
    flags.insert(flags.end(), more.begin(), more.end());
    const ProcessResult run = GradAllReduce("in.pb", flags);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.err;
  };
  EXPECT_EQ(notes({}), "");
  EXPECT_EQ(notes({"--device_kind", "cpu"}),
            absl::StrCat("note: ", Path("out.pb"),
                         ": ranks must begin with equal parameters; a startup program "
                         "(--startup_in) broadcasts them\n"));
  pb::ProgramDesc desc = MainDesc();
  auto* attr = desc.mutable_blocks(0)->mutable_ops(0)->add_attrs();
  attr->set_name("op_device");
  attr->set_type(pb::STRING);
  attr->set_s("cpu");
  MakeFile("in.pb", desc.SerializeAsString());
  EXPECT_EQ(notes({}), absl::StrCat("note: ", Path("in.pb"),
                                    ": op_device of 1 ops is \"cpu\", but all ops run on one "
                                    "device; --place op_device runs them on the host\n"));
}

TEST_F(TranspileTest, OneFileForProgramsOfRanksThatDifferIsRefused) {
  ExpectRefuses("in.pb",
                "startup_out.pb: the programs of ranks 0 and 1 differ: expected {rank} in the name",
                {"--dialect", "paddle", "--endpoints", kTwo, "--rank", "all", "--startup_in",
                 Path("startup.pb"), "--startup_out", Path("startup_out.pb")});
}

TEST_F(TranspileTest, OneRankIsTooFewForPaddle) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--nranks", "1"}, {"--endpoints", "127.0.0.1:6170"}, {"--endpoints", ""}}) {
    std::vector<std::string> of_paddle = flags;
    of_paddle.insert(of_paddle.end(), {"--dialect", "paddle"});
    ExpectRefuses("in.pb", "the number of ranks must be at least 2, found 1", of_paddle);
  }
  ExpectRefuses("in.pb", "the endpoint of rank 0 is empty", {"--endpoints", ""});
}

// --- Programs that cannot be made parallel ------------------------------------------------------

TEST_F(TranspileTest, ProgramWithoutGradientsIsRefused) {
  ExpectRefuses("startup.pb", "startup.pb: pass grad-all-reduce: the program has no gradients");
  MakeFile("empty.pb", ProgramBuilder().desc().SerializeAsString());
  ExpectRefuses("empty.pb", "the program has no gradients");
  ExpectRefuses("empty.pb", "the program has no gradients",
                {"--dialect", "paddle", "--endpoints", kTwo});
}

TEST_F(TranspileTest, TranspiledProgramIsRefused) {
  ASSERT_EQ(GradAllReduce("in.pb", {"--nranks", "2"}).status, 0);
  MakeFile("once.pb", Read("out.pb"));
  ExpectRefuses("once.pb",
                "once.pb: pass dense-gradients cannot run: gradients-reduced already holds: op 14 "
                "(c_allreduce_sum) takes fused_gradient_0");
  ASSERT_EQ(GradAllReduce("in.pb", {"--dialect", "paddle", "--endpoints", kTwo}).status, 0);
  MakeFile("once.pb", Read("out.pb"));
  ExpectRefuses("once.pb", "gradients-reduced already holds",
                {"--dialect", "paddle", "--endpoints", kTwo});
  ExpectRefuses("once.pb", "gradients-reduced already holds");
}

// Backward starts without a loss gradient that could be divided.
TEST_F(TranspileTest, DefectsOfThePaddleDialectAreWarnings) {
  ProgramBuilder p;
  p.Param("w").Param("lr").Var("y@GRAD").Var("w@GRAD");
  p.Op("assign", {{"X", {"w"}}}, {{"Out", {"y@GRAD"}}}, kRoleBackward);
  p.Op("scale", {{"X", {"y@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"lr"}}},
       {{"ParamOut", {"w"}}}, kRoleOptimize);
  MakeFile("lost.pb", p.desc().SerializeAsString());
  ExpectRefuses("lost.pb", "does not come from a loss gradient", {"--nranks", "2"});
  const auto run = GradAllReduce("lost.pb", {"--dialect", "paddle", "--endpoints", kTwo});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, StartsWith("transpile: warning: " + Path("lost.pb") +
                                  ": pass scale-loss-grad: gradient w@GRAD, completed by op 1 "
                                  "(scale), does not come from a loss gradient"));
  EXPECT_NE(Read("out.pb"), "");
}

TEST_F(TranspileTest, TranspiledStartupProgramIsRefused) {
  const std::vector<std::string> flags = {"--nranks", "2", "--startup_in"};
  std::vector<std::string> first = flags;
  first.insert(first.end(), {Path("startup.pb"), "--startup_out", Path("once.pb")});
  ASSERT_EQ(GradAllReduce("in.pb", first).status, 0);
  std::vector<std::string> second = flags;
  second.insert(second.end(), {Path("once.pb"), "--startup_out", Path("twice.pb")});
  ExpectRefuses("in.pb", "startup program: op 3 (c_comm_init_all) already sets up ring 0", second);
}

// --- Usage --------------------------------------------------------------------------------------

TEST_F(TranspileTest, WrongUsageIsStatus2) {
  ExpectFails(2, {}, "");
  ExpectFails(2, {Path("in.pb"), Path("out.pb")}, "--mode");
  ExpectFails(2, {"--mode", "grad_allreduce", Path("in.pb")}, "expected an input and an output");
  ExpectFails(2, {"--mode", "nonsense", Path("in.pb"), Path("out.pb")},
              "unknown mode nonsense; expected one of: none, grad_allreduce");
  ExpectFails(2, To("out.pb", {"--nonsense"}), "--nonsense");
  ExpectFails(2, To("out.pb", {"--nranks", "two"}), "--nranks: expected an integer, found 'two'");
  ExpectFails(2, To("out.pb", {"--nranks"}), "--nranks");
  ExpectFails(2, To("out.pb", {"--dialect", "french"}), "--dialect");
  ExpectFails(2, To("out.pb", {"--rank", "all"}), "--rank: all: expected the trainers as --endp");
  ExpectFails(2, To("o{rank}.pb", {"--endpoints", kTwo}), "only --rank all replaces it");
  ExpectFails(2, To("out.pb", {"--passes", "comm-init"}), "--passes");
  ExpectFails(2, To("out.pb", {"--startup_in", Path("startup.pb")}), "--startup_out");
  ExpectFails(2, To("out.pb", {"--startup_out", Path("s.pb")}), "--startup_in");
  ExpectFails(2, {"--mode", "none", "--nrings", "2", Path("in.pb"), Path("out.pb")},
              "mode none does not read --nrings");
  for (const std::vector<std::string>& flag : std::vector<std::vector<std::string>>{
           {"--nranks", "2"}, {"--endpoints", "a:1,b:1"}, {"--distributed_params", "w"}}) {
    ExpectFails(2, {"--mode", "none", flag[0], flag[1], Path("in.pb"), Path("out.pb")},
                "mode none does not read " + flag[0]);
  }
  ExpectFails(2, To("out.pb", {Path("third.pb")}), "third.pb");
  ExpectFails(
      2,
      {"--mode", "none", "-", Path("out.pb"), "--startup_in", "-", "--startup_out", Path("s.pb")},
      "the main program already reads standard input");
}

TEST_F(TranspileTest, ParamAttrsSayWhichGradientsTravelTogetherAndWhichDoNotTravel) {
  MakeFile("attrs.json", R"({"fc_0.b_0": {"in_shard": true}})");
  ASSERT_EQ(
      GradAllReduce("in.pb", {"--param_attrs", Path("attrs.json"), "--explain", Path("why.json")})
          .status,
      0);
  EXPECT_THAT(Read("why.json"), HasSubstr("its parameter is distributed"));
  MakeFile("attrs.json", R"({"fc_0.b_0": {"comm_fusion": 0}})");
  ASSERT_EQ(GradAllReduce("in.pb", {"--param_attrs", Path("attrs.json"), "--buckets", "mindspore",
                                    "--explain", Path("why.json")})
                .status,
            0);
  EXPECT_THAT(Read("why.json"), Not(HasSubstr("fused_gradient")));
  MakeFile("attrs.json", R"({"fc_0.b_0": {"group": "g"}, "groups": {"g": [1]}})");
  ASSERT_EQ(
      GradAllReduce("in.pb", {"--param_attrs", Path("attrs.json"), "--explain", Path("why.json")})
          .status,
      0);
  EXPECT_THAT(Read("why.json"), HasSubstr("\"group\": \"g\""));
  MakeFile("attrs.json", R"({"absent": {}})");
  ExpectRefuses("in.pb", "attributes of parameter absent: the program has no such variable",
                {"--param_attrs", Path("attrs.json")});
  MakeFile("attrs.json", "{");
  ExpectRefuses("in.pb", "attrs.json: not a JSON file", {"--param_attrs", Path("attrs.json")});
}

TEST_F(TranspileTest, OptimalBucketsTakeTimesFromFiles) {
  MakeFile("table.json", R"({"latency_s": 0.001, "bytes_per_s": 4e9})");
  MakeFile("profile.json", "{\"ops\": [{\"op\": \"op 0 (mul)\", \"seconds\": 0.001}]}");
  const std::vector<std::string> times = {"--profile", Path("profile.json"), "--comm_table",
                                          Path("table.json")};
  std::vector<std::string> optimal = times;
  optimal.insert(optimal.end(), {"--buckets", "optimal"});
  EXPECT_EQ(GradAllReduce("in.pb", optimal).status, 0);
  MakeFile("profile.json", "{\"ops\": [{\"op\": \"op 0 (conv2d)\", \"seconds\": 0.001}]}");
  ExpectRefuses("in.pb", "profile.json: the program has no op 0 (conv2d)", optimal);
  ExpectFails(2, To("out.pb", times), "--op_times: only --buckets optimal reads it");
}

// The name of a variable is no policy.
TEST_F(TranspileTest, TimesThatNoPassReadsAreRefused) {
  MakeFile("table.json", R"({"latency_s": 0.001, "bytes_per_s": 4e9})");
  const auto passes = [this](const std::string& pass) -> std::vector<std::string> {
    return {"--passes", pass, "--comm_table", Path("table.json"), Path("in.pb"), Path("out.pb")};
  };
  const char* const refused = "--comm_table: only --buckets optimal and --device_memory read it";
  ExpectFails(2, passes("hetero-partition{place=\"name:optimal_*=cpu\"}"), refused);
  ExpectFails(1,
              {"--mode", "auto", "--comm_table", Path("table.json"), Path("in.pb"), Path("out.pb")},
              refused);
  const ProcessResult read = Run(passes("grad-all-reduce{buckets=optimal,scale=avg}"));
  EXPECT_THAT(read.err, Not(HasSubstr("--comm_table")));
  EXPECT_EQ(Run({"--mode", "none", "--device_memory", "1000000", "--comm_table", Path("table.json"),
                 Path("in.pb"), Path("out.pb")})
                .status,
            0);
}

// What `weft stats` predicts that a step takes, besides what a rank keeps and with it.
int64_t PredictedBytes(const std::string& file) {
  const ProcessResult stats = RunProcess({"tools/weft", "stats", file, "--batch", "1"});
  int64_t kept = 0, in_step = 0;
  const size_t at = stats.out.find("values of a rank: ");
  EXPECT_NE(at, std::string::npos) << stats.out << stats.err;
  if (at == std::string::npos) return 0;
  EXPECT_EQ(std::sscanf(stats.out.c_str() + at,
                        "values of a rank: %" SCNd64 " bytes kept between steps, %" SCNd64, &kept,
                        &in_step),
            2)
      << stats.out;
  return kept + in_step;
}

TEST_F(TranspileTest, RankMemoryNamesTheFirstStageThatFits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, testing::ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  const std::string in = MakeFile("main.json", files.at("bert_tiny/main.json"));
  const std::string startup = MakeFile("startup.json", files.at("bert_tiny/startup.json"));
  const std::vector<std::string> both = {"--startup_in", startup, "--startup_out", Path("s.pb")};
  const auto transpile = [&](std::vector<std::string> args, std::vector<std::string> more) {
    args.insert(args.end(), {"--nranks", "4", "--buckets", "bytes{first_bytes=1000,max_bytes=4000}",
                             in, Path("out.pb")});
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult result = Run(args);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  const auto errors = [&](int64_t memory, const std::vector<std::string>& more) {
    return transpile(
        {"--mode", "grad_allreduce", "--rank_memory", absl::StrCat(memory), "--batch", "1"}, more);
  };
  transpile({"--mode", "grad_allreduce"}, both);
  const int64_t of_all = PredictedBytes(Path("out.pb"));
  std::vector<int64_t> of_stage;
  for (const char* stage : {"1", "2", "3"}) {
    transpile({"--mode", "zero", "--stage", stage}, both);
    of_stage.push_back(PredictedBytes(Path("out.pb")));
  }
  ASSERT_LT(of_stage[0], of_all);
  ASSERT_LT(of_stage[1], of_stage[0]);
  ASSERT_LT(of_stage[2], of_stage[1]);

  EXPECT_EQ(errors(of_all, both), "");
  EXPECT_THAT(errors(of_all - 1, both),
              HasSubstr(absl::StrCat("main.json: a step takes ", of_all,
                                     " bytes on a rank (predicted, a batch of 1), and "
                                     "--rank_memory is ",
                                     of_all - 1, "; --mode zero --stage 1 takes ", of_stage[0],
                                     " bytes and sends ")));
  for (const int stage : {1, 2, 3}) {
    EXPECT_THAT(errors(of_stage[stage - 1], both),
                ::testing::ContainsRegex(absl::StrCat("; --mode zero --stage ", stage, " takes ",
                                                      of_stage[stage - 1],
                                                      " bytes and sends [0-9]+ bytes in a step "
                                                      "instead of [0-9]+\n")));
  }
  EXPECT_THAT(errors(of_stage[2] - 1, both),
              HasSubstr(absl::StrCat("; no stage of --mode zero fits: --mode zero --stage 3 takes "
                                     "least, ",
                                     of_stage[2], " bytes and sends ")));
  EXPECT_THAT(errors(1000, {}), HasSubstr("it needs --startup_in"));
  // No bucket is to be cut, so that the advice is of the default ones.
  const ProcessResult of_none =
      Run({"--mode", "grad_allreduce", "--rank_memory", absl::StrCat(of_all / 2), "--batch", "1",
           "--nranks", "4", "--buckets", "none", "--startup_in", startup, "--startup_out",
           Path("s.pb"), in, Path("out.pb")});
  EXPECT_THAT(of_none.err, ::testing::ContainsRegex("--mode zero --stage [123] without --buckets "
                                                    "none takes [a-z0-9, ]+ bytes and sends "));
  ExpectFails(2, {"--mode", "none", "--batch", "8", Path("in.pb"), Path("out.pb")},
              "only --device_memory and --rank_memory read it");
}

TEST_F(TranspileTest, RankMemoryIsEstimatedWhereAnOpHasNoKernel) {
  const std::string in = MakeFile("main.prog", R"(program {
block 0 parent=-1 {
var x : fp32[-1, 64] need_check_feed
var w : fp32[64, 64] parameter persistable
var m : fp32[64, 64] persistable
var lr : fp32[1] persistable
var h : fp32[-1, 64]
var y : fp32[-1, 64]
var loss : fp32[]
var loss@GRAD : fp32[]
var y@GRAD : fp32[-1, 64]
var h@GRAD : fp32[-1, 64]
var w@GRAD : fp32[64, 64]
Out=[h] = mul(X=[x], Y=[w])
Out=[y] = my_op(X=[h])
Out=[loss] = mean(X=[y]) role=forward|loss
Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
X@GRAD=[h@GRAD] = my_op_grad(X=[h], Out@GRAD=[y@GRAD]) role=backward
Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
ParamOut=[w], VelocityOut=[m] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[m], LearningRate=[lr]) role=optimize {mu=0.9}
}
}
)");
  const std::string startup = MakeFile("startup.prog", R"(program {
block 0 parent=-1 {
var w : fp32[64, 64] parameter persistable
var m : fp32[64, 64] persistable
var lr : fp32[1] persistable
Out=[w] = fill_constant() {shape=longs[64, 64], dtype=5, value=0.5}
Out=[m] = fill_constant() {shape=longs[64, 64], dtype=5, value=0.0}
Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
}
}
)");
  const ProcessResult result =
      Run({"--mode", "grad_allreduce", "--nranks", "4", "--assume", "my_op: per_sample", "--batch",
           "1", "--rank_memory", "48000", "--startup_in", startup, "--startup_out", Path("s.pb"),
           in, Path("out.pb")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              ::testing::ContainsRegex("a step takes [0-9]+ bytes on a rank \\(estimated, a batch "
                                       "of 1\\), and --rank_memory is 48000; --mode zero --stage 1 "
                                       "takes [0-9]+ bytes and sends "));
}

TEST_F(TranspileTest, RankMemorySaysWhatItDoesNotCount) {
  const std::string in = MakeFile("main.prog", R"(program {
block 0 parent=-1 {
var ids : int64[-1] need_check_feed
var table : selected_rows<fp32[40, 4]> parameter persistable
var rows : fp32[-1, 4]
var rows@GRAD : fp32[-1, 4]
var loss : fp32[]
var loss@GRAD : fp32[]
var table@GRAD : selected_rows<fp32[40, 4]>
var lr : fp32[1] persistable
Out=[rows] = lookup_table_v2(Ids=[ids], W=[table]) {is_sparse=true}
Out=[loss] = mean(X=[rows]) role=forward|loss
Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
X@GRAD=[rows@GRAD] = mean_grad(X=[rows], Out@GRAD=[loss@GRAD]) role=backward
W@GRAD=[table@GRAD] = lookup_table_v2_grad(Ids=[ids], W=[table], Out@GRAD=[rows@GRAD]) role=backward vars=[table, table@GRAD] {is_sparse=true}
ParamOut=[table] = sgd(Param=[table], Grad=[table@GRAD], LearningRate=[lr]) role=optimize
}
}
)");
  const ProcessResult result = Run({"--mode", "grad_allreduce", "--nranks", "2", "--batch", "1",
                                    "--rank_memory", "1000000", in, Path("out.pb")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              ::testing::ContainsRegex("note: .*a step takes [0-9]+ bytes on a rank \\(predicted, "
                                       "a batch of 1; not counted: [12] variables of unknown size"
                                       "\\), and --rank_memory is 1000000\n"));
}

TEST_F(TranspileTest, ProgramForServersNeedsAFileAndParametersOnServers) {
  const auto parameter_server = [this](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--mode", "parameter_server", Path("in.pb"), Path("out.pb")};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const std::string attrs = MakeFile("attrs.json", R"({"fc_0.w_0": {"parameter_server": true}})");
  const std::string none = MakeFile("none.json", "{}");
  ExpectFails(2, parameter_server({"--param_attrs", attrs}),
              "--server_out: expected a file for the program of the servers");
  ExpectFails(2, To("out.pb", {"--server_out", Path("server.pb")}),
              "--server_out: mode grad_allreduce makes no program for parameter servers");
  for (const char* mode : {"grad_allreduce", "auto", "optimizer_offload"}) {
    ExpectFails(1, {"--mode", mode, "--param_attrs", attrs, Path("in.pb"), Path("out.pb")},
                absl::StrCat(attrs,
                             ": parameter fc_0.w_0, parameter_server: expected mode "
                             "parameter_server, or pass parameter-server, found mode ",
                             mode));
  }
  ExpectFails(1, parameter_server({"--param_attrs", none, "--server_out", Path("server.pb")}),
              "--server_out: no parameter is on servers");
  ExpectFails(1, parameter_server({"--param_attrs", attrs, "--server_out", Path("out.pb")}),
              "out.pb");
  ExpectFails(1, parameter_server({"--param_attrs", attrs, "--server_out", Path("none/server.pb")}),
              "none/server.pb: cannot");
  ExpectFails(1,
              parameter_server({"--param_attrs", MakeFile("other.json", R"({"v": {}})"),
                                "--server_out", Path("server.pb")}),
              "parameter v: the program has no such variable");
  ExpectFails(1,
              parameter_server({"--param_attrs",
                                MakeFile("one.json", R"({"fc_0.w_0": {"parameter_server": 1}})"),
                                "--server_out", Path("server.pb")}),
              "parameter_server: expected");
}

TEST_F(TranspileTest, FlagsOfModesAreCheckedBeforeAnythingIsRead) {
  const auto expect_fails = [this](std::vector<std::string> args, const std::string& message) {
    args.insert(args.end(), {Path("in.pb"), Path("out.pb")});
    ExpectFails(2, args, message);
  };
  const std::vector<std::string> paddle = {"--dialect", "paddle", "--endpoints", kTwo, "--mode"};
  const auto with = [](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  expect_fails({"--mode", "single_process_multi_thread", "--fuse", "2"},
               "--fuse 2 is available in the paddle dialect only");
  expect_fails(with(paddle, {"local_sgd", "--k_steps", "4"}),
               "mode local_sgd does not read --k_steps in the paddle dialect");
  expect_fails(with(paddle, {"local_sgd", "--begin_step", "4"}), "does not read --begin_step");
  expect_fails(with(paddle, {"grad_allreduce", "--devices", "0,1"}), "does not read --devices");
  expect_fails(with(paddle, {"multi_thread", "--fuse", "1"}), "does not read --fuse");
  expect_fails(with(paddle, {"multi_thread", "--loss_scale", "1"}), "does not read --loss_scale");
  expect_fails(with(paddle, {"multi_thread", "--trans_mode", "nonsense"}),
               "--trans_mode must be one of fuse_all_reduce, all_gather");
  expect_fails(with(paddle, {"multi_thread", "--devices", "0,x"}),
               "--devices: expected numbers, separated by commas, found 'x'");
  expect_fails(with(paddle, {"single_process_multi_thread", "--nrings", "2"}),
               "does not read --nrings");
}

TEST_F(TranspileTest, OneTrainerWithSeveralDevicesIsEnoughForModesOfDevices) {
  for (const char* mode : {"single_process_multi_thread", "multi_thread"}) {
    const ProcessResult result =
        Run({"--mode", mode, "--dialect", "paddle", "--endpoints", "127.0.0.1:6170", "--devices",
             "0,1", "--device_kind", "xpu", Path("in.pb"), Path("out.pb"), "--startup_in",
             Path("startup.pb"), "--startup_out", Path("s.pb")});
    EXPECT_EQ(result.status, 0) << mode << result.err;
    EXPECT_THAT(Read("out.pb"), HasSubstr("coalesce_tensor"));
    EXPECT_THAT(Read("s.pb"), HasSubstr("c_comm_init_all"));
  }
}

TEST_F(TranspileTest, OneTrainerIsTooFewForModesOfRanks) {
  ExpectFails(1,
              {"--mode", "local_sgd", "--dialect", "paddle", "--endpoints", "127.0.0.1:6170",
               Path("in.pb"), Path("out.pb")},
              "the number of ranks must be at least 2, found 1");
}

TEST_F(TranspileTest, DevicesMustBeDistinctNumbers) {
  ExpectFails(1,
              {"--mode", "multi_thread", "--dialect", "paddle", "--endpoints", kTwo, "--devices",
               "0,0", Path("in.pb"), Path("out.pb")},
              "device 0 is given twice");
}

TEST_F(TranspileTest, HelpHasAnExample) {
  const ProcessResult result = Run({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("transpile --mode grad_allreduce in.pb out.pb"));
}

TEST_F(TranspileTest, HelpHasTheFlagsThatEverybodyNeedsAndTheModes) {
  const std::string help = Run({"--help"}).out;
  for (const char* part : {"--startup_in", "--nranks", "--remarks", "\n  local_sgd  ", "--help_all",
                           "Modes, common:\n", "Modes, offload and parameter servers:\n"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
  for (const char* flag : {"--k_steps", "--place RULES", "--dump_dir"}) {
    EXPECT_THAT(help, Not(HasSubstr(flag)));
  }
  const std::string all = Run({"--help_all"}).out;
  for (const char* flag : {"--startup_in", "--k_steps", "--place", "--dump_dir"}) {
    EXPECT_THAT(all, HasSubstr(flag));
  }
}

TEST_F(TranspileTest, HelpOfAModeHasTheFlagsThatItReads) {
  const std::string help = Run({"--help", "--mode", "local_sgd"}).out;
  EXPECT_THAT(help, HasSubstr("\nFlags of mode local_sgd:\n"));
  EXPECT_THAT(help, HasSubstr("--k_steps N"));
  EXPECT_THAT(help, HasSubstr("--nranks"));
  EXPECT_THAT(help, Not(HasSubstr("--buckets")));
  EXPECT_THAT(Run({"--help", "--mode", "none"}).out, Not(HasSubstr("--nranks")));
  EXPECT_EQ(Run({"--help", "--mode", "lokal_sgd"}).status, 2);
}

TEST_F(TranspileTest, OldNamesOfFlagsWork) {
  for (const auto& [mode, flag, value] :
       std::vector<std::array<std::string, 3>>{{"singa_half", "--travel_type", "bf16"},
                                               {"singa_half", "--comm_dtype", "bf16"},
                                               {"optimizer_offload", "--params", "*"},
                                               {"optimizer_offload", "--offload_params", "*"},
                                               {"grad_allreduce", "--explain", Path("why.json")},
                                               {"grad_allreduce", "--no_verify", "--no_verify"}}) {
    std::vector<std::string> args = {"--mode", mode, flag};
    if (value != flag) args.push_back(value);
    args.insert(args.end(), {Path("in.pb"), Path("old_names.pb")});
    const ProcessResult result = Run(args);
    EXPECT_EQ(result.status, 0) << flag << ": " << result.err;
  }
}

// --- The same output every time -----------------------------------------------------------------

TEST_F(TranspileTest, TwoProcessesWriteTheSameBytes) {
  for (const char* extension : {".pb", ".pbtxt", ".prog"}) {
    SCOPED_TRACE(extension);
    for (const char* run : {"a", "b"}) {
      const std::vector<std::string> args = To(
          absl::StrCat(run, extension), {"--nranks", "4", "--startup_in", Path("startup.pb"),
                                         "--startup_out", Path(absl::StrCat("s", run, extension)),
                                         "--explain", Path(absl::StrCat(run, extension, ".json"))});
      const ProcessResult result = Run(args);
      ASSERT_EQ(result.status, 0) << result.err;
    }
    EXPECT_FALSE(Read(absl::StrCat("a", extension)).empty());
    EXPECT_TRUE(Read(absl::StrCat("a", extension)) == Read(absl::StrCat("b", extension)));
    EXPECT_TRUE(Read(absl::StrCat("sa", extension)) == Read(absl::StrCat("sb", extension)));
    EXPECT_TRUE(Read(absl::StrCat("a", extension, ".json")) ==
                Read(absl::StrCat("b", extension, ".json")));
  }
}

TEST_F(TranspileTest, ModeNoneCopiesByteForByte) {
  ASSERT_EQ(Run({"--mode", "none", Path("in.pb"), Path("copy.pb")}).status, 0);
  EXPECT_TRUE(Read("copy.pb") == MainBytes());
}

// It keeps the ranks of the program: flags of a job are refused then, too.
TEST_F(TranspileTest, ModeNonePlacesOps) {
  ASSERT_EQ(
      Run({"--mode", "none", "--place", "type:sgd=cpu", Path("in.pb"), Path("out.pb")}).status, 0);
  EXPECT_THAT(Read("out.pb"), HasSubstr("stream_wait"));
  ExpectFails(
      2,
      {"--mode", "none", "--place", "type:sgd=cpu", "--nranks", "2", Path("in.pb"), Path("out.pb")},
      "mode none does not read --nranks");
}

// The file says of which parameters each rank has a part.
TEST_F(TranspileTest, ModeNonePlacesOpsOfProgramsWithDistributedParameters) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, testing::ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  const std::string marked = absl::StrReplaceAll(
      files.at("fit_a_line/main.json"), {{R"([0,1,1,"fc_0.w_0"])", R"([1,1,1,"fc_0.w_0"])"}});
  ASSERT_NE(marked, files.at("fit_a_line/main.json"));
  MakeFile("main.json", marked);
  const ProcessResult ranks =
      Run({"--mode", "grad_allreduce", "--nranks", "2", Path("main.json"), Path("ranks.json")});
  ASSERT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_THAT(ranks.err, HasSubstr("note: parameter fc_0.w_0 is not replicated"));
  const ProcessResult placed =
      Run({"--mode", "none", "--place", "type:sgd=cpu", Path("ranks.json"), Path("placed.prog")});
  EXPECT_EQ(placed.status, 0) << placed.err;
  EXPECT_THAT(placed.err, AllOf(HasSubstr("taken from the file where options say nothing else: "),
                                Not(HasSubstr("is not replicated"))));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program written, ReadProgram(Path("placed.prog")));
  EXPECT_THAT(written.setting(),
              HasSubstr(R"("nranks":2,"distributed_params":["fc_0.w_0"],"feeds":{)"));
}

TEST_F(TranspileTest, PlacementOptionsOfModesThatPlaceAreChecked) {
  for (const char* mode : {"grad_allreduce", "embedding_offload"}) {
    ExpectFails(1,
                {"--mode", mode, "--staging", "bogus", "--place", "type:sgd=cpu", Path("in.pb"),
                 Path("out.pb")},
                "staging");
  }
}

// What the paddle dialect writes has its setting in a file beside it.
TEST_F(TranspileTest, SettingBesideTheFileIsRead) {
  const std::vector<std::string> endpoints = {"--endpoints", "127.0.0.1:6170,127.0.0.1:6171"};
  std::vector<std::string> args = {
      "--dialect", "paddle",      "--mode",     "grad_allreduce", "--distributed_params",
      "fc_0.w_0",  Path("in.pb"), Path("dp.pb")};
  args.insert(args.begin(), endpoints.begin(), endpoints.end());
  ASSERT_EQ(Run(args).status, 0);
  const ProcessResult copy = Run({"--mode", "none", Path("dp.pb"), Path("copy.pb")});
  EXPECT_EQ(copy.status, 0) << copy.err;
  EXPECT_EQ(Read("copy.pb"), Read("dp.pb"));
  EXPECT_EQ(Read("copy.pb.setting.json"), Read("dp.pb.setting.json"));
  EXPECT_THAT(copy.err, HasSubstr("taken from the file where options say nothing else: "));
}

TEST_F(TranspileTest, PaddleDialectKeepsNoSettingOfTheInput) {
  pb::ProgramDesc desc = MainDesc();
  desc.set_weft_setting(R"({"feeds":{"x":"whole"}})");
  MakeFile("said.pb", desc.SerializeAsString());
  ASSERT_EQ(Run({"--dialect", "paddle", "--mode", "grad_allreduce", "--endpoints",
                 "127.0.0.1:6170,127.0.0.1:6171", "--feed_layout", "x=axis:0", Path("said.pb"),
                 Path("bare.pb")})
                .status,
            0);
  WEFT_ASSERT_OK_AND_ASSIGN(const Program bare, ReadProgram(Path("bare.pb")));
  EXPECT_EQ(bare.setting(), "");
  EXPECT_THAT(Read("bare.pb.setting.json"), HasSubstr(R"("x":"axis:0")"));
}

TEST_F(TranspileTest, EveryFormatGivesTheSameProgram) {
  ASSERT_EQ(GradAllReduce("in.pb").status, 0);
  for (const char* text : {"in.prog", "in.pbtxt"}) {
    SCOPED_TRACE(text);
    ASSERT_EQ(Run({"--mode", "none", Path("in.pb"), Path(text)}).status, 0);
    const std::string out = absl::StrCat("of_", text);
    ASSERT_EQ(Run({"--mode", "grad_allreduce", Path(text), Path(out)}).status, 0);
    WEFT_ASSERT_OK_AND_ASSIGN(Program expected, ReadProgram(Path("out.pb")));
    WEFT_ASSERT_OK_AND_ASSIGN(const Program found, ReadProgram(Path(out)));
    if (absl::EndsWith(text, ".pbtxt")) expected.set_setting("");  // it has no place for it
    EXPECT_EQ(found.ToProto().SerializeAsString(), expected.ToProto().SerializeAsString());
  }
}

// Attributes may hold any bytes; only names must be text.
TEST_F(TranspileTest, BytesInAttributesPassThrough) {
  pb::ProgramDesc desc = MainDesc();
  auto* attr = desc.mutable_blocks(0)->mutable_ops(0)->add_attrs();
  attr->set_name("data");
  attr->set_type(pb::STRING);
  attr->set_s("\xff\n\x80");
  MakeFile("bytes.pb", desc.SerializeAsString());
  const ProcessResult result = GradAllReduce("bytes.pb");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(Read("out.pb"), HasSubstr(attr->SerializeAsString()));
  for (const char* text : {"bytes.prog", "bytes.pbtxt"}) {
    EXPECT_EQ(Run({"--mode", "none", Path("bytes.pb"), Path(text)}).err, "");
    EXPECT_EQ(Run({"--mode", "none", Path(text), Path("again.pb")}).err, "");
    EXPECT_TRUE(Read("again.pb") == Read("bytes.pb"));
  }
}

}  // namespace
}  // namespace weft::testing
