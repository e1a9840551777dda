// Training steps of PyTorch (.pt2) train as PyTorch trained them, on one rank and on two.
// tests/data/pt2/make_steps.py has made the steps and the references.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "tests/support/rounding.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;

// Of the largest element. bf16 has 8 bits, and errors of 5 steps add up.
constexpr double kTolerance = 1e-5, kBf16Tolerance = 0.06;

class TrainPt2Test : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/pt2.tar.xz"));
    for (const char* file : {".pt2", "_feeds.npz", "_reference.npz"}) {
      WEFT_ASSERT_OK(WriteFile(Path(file), files.at(absl::StrCat("pt2/", GetParam(), file))));
    }
  }

  static std::string Path(const std::string& suffix) {
    return absl::StrCat(::testing::TempDir(), "/", GetParam(), suffix);
  }

  static ProcessResult Run(std::vector<std::string> args) {
    args[0] = "tools/" + args[0];
    return RunProcess(args);
  }

  // For two ranks, which take the statistics of both batches.
  static ProcessResult Transpile(const std::string& out) {
    return Run({"transpile", "--mode", "grad_allreduce", "--nranks", "2", "--buckets", "none",
                "--sync_batch_norm", Path(".pt2"), out});
  }

  // The gradient of the bias of keys is zero but for rounding, which Adam makes as large as others.
  static bool IsNoise(const std::string& name) {
    return absl::EndsWith(name, "qkv.bias") || absl::EndsWith(name, "in_proj_bias") ||
           name == "k.bias";
  }

  static double Tolerance() {
    return absl::EndsWith(GetParam(), "bf16") ? kBf16Tolerance : kTolerance;
  }

  // That losses and parameters are those of PyTorch.
  static void ExpectTrains(std::vector<std::string> args) {
    const std::string saved = Path("_saved.npz"), fetched = Path("_fetched.npz");
    args.insert(args.end(), {"--feeds", Path("_feeds.npz"), "--save", saved, "--fetch_npz", fetched,
                             "--fetch", "loss"});
    const ProcessResult result = Run(std::move(args));
    ASSERT_EQ(result.status, 0) << result.err;
    WEFT_ASSERT_OK_AND_ASSIGN(const auto reference, ReadNpz(Path("_reference.npz")));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto found, ReadNpz(saved));
    for (const auto& [name, tensor] : reference) {
      if (name == "losses" || IsNoise(name)) continue;
      ASSERT_EQ(found.count(name), 1u) << name;
      const std::vector<double> expected = AsDoubles(tensor), values = AsDoubles(found.at(name));
      ASSERT_EQ(values.size(), expected.size()) << name;
      double largest = 0;
      for (const double value : expected) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], expected[i], Tolerance() * largest) << name << " " << i;
      }
    }
    const std::vector<double> losses = AsDoubles(reference.at("losses"));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto steps, ReadNpz(fetched));
    for (size_t step = 0; step < losses.size(); ++step) {
      // The mean over the ranks.
      double sum = 0;
      int count = 0;
      for (const auto& [name, tensor] : steps) {
        if (!absl::StartsWith(name, absl::StrCat(step, "/"))) continue;
        for (const double value : AsDoubles(tensor)) sum += value;
        count += static_cast<int>(tensor.size());
      }
      ASSERT_GT(count, 0) << step;
      EXPECT_NEAR(sum / count, losses[step], Tolerance() * losses[step]) << step;
    }
  }
};

TEST_P(TrainPt2Test, OneRankTrainsAsPyTorchFromTheValuesInTheFile) {
  ExpectTrains({"weft", "run", Path(".pt2")});
}

TEST_P(TrainPt2Test, TwoRanksTrainAsPyTorchWithTheWholeBatch) {
  const std::string out = Path("_out.pb");
  const ProcessResult transpiled = Transpile(out);
  ASSERT_EQ(transpiled.status, 0) << transpiled.err;
  const ProcessResult verified =
      Run({"weft", "verify", out, "--original", Path(".pt2"), "--nranks", "2"});
  EXPECT_EQ(verified.status, 0) << verified.err << verified.out;
  EXPECT_THAT(verified.out + verified.err, Not(HasSubstr("warning")));
  ExpectTrains({"weft", "run", out, "--params", Path(".pt2"), "--ranks", "2"});
}

// The rewritten step as an archive of PyTorch again, which tests/interop/ranks_in_pytorch.py runs
// there.
TEST_P(TrainPt2Test, ArchivesThatAreWrittenTrainAlike) {
  const std::string out = Path("_out.pt2");
  const ProcessResult transpiled =
      Run({"transpile", "--mode", "grad_allreduce", "--nranks", "2", Path(".pt2"), out});
  ASSERT_EQ(transpiled.status, 0) << transpiled.err;
  const ProcessResult verified = Run({"weft", "verify", out, "--original", Path(".pt2")});
  EXPECT_EQ(verified.status, 0) << verified.err << verified.out;
  EXPECT_THAT(verified.out, HasSubstr("verified: 2 ranks; layers structure, types, communication, "
                                      "races, across ranks, equivalence, batch"));
  // Batch normalization takes the statistics of each rank's batch.
  if (absl::StrContains(transpiled.out + transpiled.err, "W704")) return;
  ExpectTrains({"weft", "run", out, "--ranks", "2"});
}

class ShardedPt2Test : public TrainPt2Test {};

// The values in the file are the startup program, of which each rank takes its part.
TEST_P(ShardedPt2Test, RanksShareOutWhatTheFileBeginsWith) {
  // Gradients of stage 3 read parameters that are gathered again.
  for (const char* stage : {"2", "3"}) {
    const std::string out = Path("_zero.pb"), startup = Path("_startup.pb");
    const ProcessResult transpiled =
        Run({"transpile", "--mode", "zero", "--stage", stage, "--nranks", "2", "--startup_in",
             Path(".pt2"), "--startup_out", startup, Path(".pt2"), out});
    ASSERT_EQ(transpiled.status, 0) << transpiled.err;
    EXPECT_THAT(transpiled.err, Not(HasSubstr("W708")));
    ExpectTrains({"weft", "run", out, "--startup", startup, "--ranks", "2"});
  }
}

TEST_P(ShardedPt2Test, BytesTellAStepAndNotTheName) {
  const std::string step = Path("_step"), main = Path("_main.pb"), startup = Path("_startup.pb");
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes archive, ReadFile(Path(".pt2")));
  WEFT_ASSERT_OK(WriteFile(step, archive.bytes));
  ExpectTrains({"weft", "run", step});
  ExpectTrains({"weft", "run", step, "--startup", step});
  const ProcessResult copied = Run(
      {"transpile", "--mode", "none", "--startup_in", step, "--startup_out", startup, step, main});
  ASSERT_EQ(copied.status, 0) << copied.err;
  const std::string page = Path("_page.html");
  std::set<std::string> pages;
  for (const std::string& name : {startup, step, Path(".pt2")}) {
    const ProcessResult verified = Run({"weft", "verify", step, "--startup", name, "--original",
                                        Path(".pt2"), "--original_startup", name});
    EXPECT_EQ(verified.status, 0) << verified.err << verified.out;
    const ProcessResult viewed = Run({"weft", "view", main, "--startup", startup, "--original",
                                      step, "--original_startup", name, "--out", page});
    ASSERT_EQ(viewed.status, 0) << viewed.err;
    WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes html, ReadFile(page));
    pages.emplace(html.bytes);
  }
  EXPECT_EQ(pages.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedPt2Test,
                         ::testing::Values("mlp_adamw", "mlp_sgd", "lenet_nesterov"),
                         [](const auto& info) { return std::string(info.param); });

class CountedPt2Test : public TrainPt2Test {};

// The smoothed part of a loss divides by the count of the labels that are not ignored, of each
// rank.
TEST_P(CountedPt2Test, RanksTrainAsPyTorchByTheCountOfAll) {
  ExpectTrains({"weft", "run", Path(".pt2")});
  const std::string out = Path("_exact.pb");
  const ProcessResult transpiled = Run({"transpile", "--mode", "grad_allreduce", "--nranks", "2",
                                        "--exact_loss", Path(".pt2"), out});
  ASSERT_EQ(transpiled.status, 0) << transpiled.err;
  const ProcessResult verified =
      Run({"weft", "verify", out, "--original", Path(".pt2"), "--nranks", "2"});
  EXPECT_EQ(verified.status, 0) << verified.err << verified.out;
  EXPECT_THAT(verified.out + verified.err, Not(HasSubstr("warning")));
  ExpectTrains({"weft", "run", out, "--params", Path(".pt2"), "--ranks", "2"});
}

INSTANTIATE_TEST_SUITE_P(Models, CountedPt2Test, ::testing::Values("mlp_smooth"),
                         [](const auto& info) { return std::string(info.param); });

// A program whose gradient has been scaled after the rewrite.
TEST_P(TrainPt2Test, AFactorIsFound) {
  const std::string out = Path("_out.prog");
  ASSERT_EQ(Transpile(out).status, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes file, ReadFile(out));
  std::vector<std::string> lines = absl::StrSplit(file.bytes, '\n');
  const auto reduces = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return absl::StrContains(line, "= all_reduce(");
  });
  ASSERT_NE(reduces, lines.end());
  const std::string gradient = absl::StrCat(
      std::string(absl::StripAsciiWhitespace(reduces->substr(0, reduces->find(" : ")))).substr(5));
  lines.insert(reduces + 1, absl::StrCat("Out=[", gradient, "] = scale(X=[", gradient,
                                         "]) role=optimize {scale=2.0}"));
  WEFT_ASSERT_OK(WriteFile(out, absl::StrJoin(lines, "\n")));
  const ProcessResult verified =
      Run({"weft", "verify", out, "--original", Path(".pt2"), "--nranks", "2"});
  EXPECT_EQ(verified.status, 1);
  // Of a gradient with decay, the sum of both is divided by the factor of the decay, 0.01; that of
  // two micro-batches has a factor of 0.5.
  EXPECT_THAT(
      verified.out + verified.err,
      AllOf(HasSubstr("W601"), AnyOf(HasSubstr("found 2 *"), HasSubstr(" 200 *"),
                                     AllOf(HasSubstr("expected 0.5 *"), HasSubstr("found sum(")))));
}

// Steps that torch.distributed wrote: tests/data/pt2/make_ranks.py.
class RanksPt2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/pt2_ranks.tar.xz"));
    for (const auto& [name, bytes] : files) {
      if (!absl::EndsWith(name, ".pt2")) continue;
      WEFT_ASSERT_OK(WriteFile(Path(name.substr(name.rfind('/') + 1)), bytes));
    }
  }

  static std::string Path(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/", name);
  }

  // Of four ranks, in the files of two.
  static ProcessResult Verify(const std::string& name) {
    const std::string first = Path(name + "_rank0.pt2"), second = Path(name + "_rank1.pt2");
    return RunProcess(
        {"tools/weft", "verify", first, second, first, second, "--original", Path("step.pt2")});
  }
};

TEST_F(RanksPt2Test, RightStepsOfOtherToolsAreVerified) {
  for (const char* name : {"sum_then_divide", "divide_then_sum", "bucket", "accumulated"}) {
    const ProcessResult verified = Verify(name);
    EXPECT_EQ(verified.status, 0) << name << verified.out << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("verified: 4 ranks")) << name;
  }
}

TEST_F(RanksPt2Test, FactorsAreNamed) {
  for (const auto& [name, text] : {
           std::make_pair("never_divided", "it is 4 times the reference: 4 ranks\n"),
           std::make_pair("divided_twice", "it is 1/4 of the reference: 4 ranks\n"),
           std::make_pair("accumulated_never_divided",
                          "it is 8 times the reference: 4 ranks x 2, as of accumulated steps\n"),
           std::make_pair("never_reduced", "W310"),
       }) {
    const ProcessResult verified = Verify(name);
    EXPECT_EQ(verified.status, 1) << name;
    EXPECT_THAT(verified.out + verified.err, HasSubstr(text)) << name;
  }
}

TEST_F(RanksPt2Test, ShardsAreGatheredAndTheirGradientsScattered) {
  const ProcessResult shown = RunProcess({"tools/weft", "show", Path("sharded_rank1.pt2")});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr(": fp32[8, 6]] = all_gather(x=[w1]) role=forward {nranks=4"),
                    HasSubstr("@sum : fp32[2, 6]] = reduce_scatter(x=[w1@GRAD@RENAME@"),
                    HasSubstr("Out=[w1@GRAD : fp32[2, 6]] = scale(")));
}

TEST_F(RanksPt2Test, RanksThatReduceOtherwiseDoNotAgree) {
  const ProcessResult verified =
      RunProcess({"tools/weft", "verify", Path("bucket_rank0.pt2"),
                  Path("sum_then_divide_rank1.pt2"), "--original", Path("step.pt2")});
  EXPECT_EQ(verified.status, 1);
  EXPECT_THAT(verified.out + verified.err, HasSubstr("W501"));
}

INSTANTIATE_TEST_SUITE_P(Models, TrainPt2Test,
                         ::testing::Values("mlp_sgd", "mlp_momentum", "mlp_adamw", "mlp_rmsprop",
                                           "mlp_adagrad", "mlp_prelu", "mlp_units", "waves",
                                           "mlp_clip", "lenet_nesterov", "lenet_adam", "resnet",
                                           "gpt", "encoder", "lstm", "vit", "unet", "vae",
                                           "mlp_schedule", "mlp_accumulate", "resnet_accumulate",
                                           "lenet_bf16", "resnet_bf16", "gpt_bf16", "excitation",
                                           "bottleneck", "bert", "bert_by_hand", "gpt2", "dlrm",
                                           "scaled", "gan_generator", "gan_discriminator"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::testing
