// Programs of Paddle 3 in its own format: read, rewritten, written, read again, and trained as
// Paddle trained them. The same models in ProgramDesc have the feeds, parameters and references.
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/program_file.h"
#include "proto/setting.h"
#include "proto/testing/find_op.h"
#include "tests/support/rewrite.h"
#include "tests/support/rounding.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::Combine;
using ::testing::Values;

using Tensors = std::map<std::string, Tensor>;
using Flags = std::map<std::string, std::string>;

// By "MODEL/main.json".
using Files = std::map<std::string, std::string>;
const Files& ModelFiles() {
  static const auto* const files = new Files(ReadTarXz("tests/data/paddle3_pir.tar.xz").value());
  return *files;
}
const Files& MoreOpsFiles() {
  static const auto* const files =
      new Files(ReadTarXz("tests/data/paddle3_pir_more_ops.tar.xz").value());
  return *files;
}

std::string TempPath(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", name);
}

// Writes the bytes to a file, which is read as users' files are.
absl::StatusOr<Program> ReadBytes(const std::string& bytes) {
  const std::string path = TempPath("read.json");
  WEFT_RETURN_IF_ERROR(WriteFile(path, bytes));
  return ReadProgram(path);
}

absl::StatusOr<std::string> BytesOf(const Program& program) {
  const std::string path = TempPath("written.json");
  WEFT_RETURN_IF_ERROR(WriteProgram(program, path));
  WEFT_ASSIGN_OR_RETURN(const FileBytes written, ReadFile(path));
  return std::string(written.bytes);
}

// Written to two files that belong together, and read again.
absl::Status WriteAndRead(Program* main, Program* startup) {
  const std::string main_path = TempPath("out.json"), startup_path = TempPath("out_startup.json");
  WEFT_RETURN_IF_ERROR(WritePrograms({{main, main_path}, {startup, startup_path}}));
  WEFT_ASSIGN_OR_RETURN(*main, ReadProgram(main_path));
  WEFT_ASSIGN_OR_RETURN(*startup, ReadProgram(startup_path));
  return absl::OkStatus();
}

TranspileOptions OnTwoCpus(const std::string& mode, const Flags& flags = {}) {
  TranspileOptions options = InMode(mode, 2, flags);
  options.device_kind = TargetDevice::kCpu;
  return options;
}

// Why the program is not rewritten; "" if it is.
std::string Refusal(const TranspileOptions& options, Program main, Program* startup = nullptr) {
  return std::string(Rewrite(options, &main, startup).status().message());
}

struct Case {
  const char* name;
  int ranks;
  const char* mode = "";
  Flags flags = {};
  const char* reference = "dp2";  // that of data-parallel ranks
};

class TrainPirTest : public ::testing::TestWithParam<std::tuple<const char*, Case>> {
 protected:
  static std::string Model() { return std::get<0>(GetParam()); }
  static const Case& TheCase() { return std::get<1>(GetParam()); }
  static std::string Path(const std::string& file) {
    return absl::StrCat("tests/data/paddle3_", Model(), "/", file);
  }

  static absl::StatusOr<Program> Read(const std::string& file) {
    return ReadBytes(ModelFiles().at(absl::StrCat(Model(), "/", file)));
  }

  static absl::StatusOr<TrainingInputs> Inputs() {
    TrainingInputs from;
    WEFT_ASSIGN_OR_RETURN(from.params, LoadParams(Path("init.params"), Path("persistables.txt")));
    WEFT_ASSIGN_OR_RETURN(from.feeds, FeedsFromFile(Path("feeds.npz")));
    return from;
  }
};

// The first loss of each rank.
absl::StatusOr<TrainingResults> Train(const Program& main, const Program& startup, int ranks,
                                      const TrainingInputs& from) {
  RunInputs inputs;
  inputs.feeds = from.feeds;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.params = &from.params;
  RunOptions options;
  options.kernels = from.kernels;
  options.nranks = ranks;
  options.steps = from.feeds.num_steps;
  options.warn = [](const std::string& warning) {
    EXPECT_THAT(warning, Not(HasSubstr("begins with another value")));
  };
  TrainingResults results;
  results.losses.resize(ranks);
  inputs.on_result = [&results](const StepResult& result) {
    results.losses[result.rank].push_back(*result.values[0].data<float>());
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  return results;
}

absl::StatusOr<RoundingBounds> Measure(const Program& main, const Program& startup, int ranks,
                                       const TrainingInputs& inputs) {
  return RoundingBounds::Measure(
      inputs, [&](const TrainingInputs& from) { return Train(main, startup, ranks, from); });
}

TEST_P(TrainPirTest, LossesAreThoseOfPaddle) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, Read("main.json"));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, Read("startup.json"));
  VerifyOptions options;
  options.setting.nranks = TheCase().ranks;
  const Program main_before = main, startup_before = startup;
  if (TheCase().ranks > 1) {
    TranspileOptions transpile = OnTwoCpus(TheCase().mode, TheCase().flags);
    transpile.cluster.nranks = TheCase().ranks;
    WEFT_ASSERT_OK(Rewrite(transpile, &main, &startup));
    WEFT_ASSERT_OK(WriteAndRead(&main, &startup));
    options.original = {&main_before, &startup_before};
    options.setting.ordered_by_data = true;
  }
  const Findings findings = Verify({{&main, &startup}}, options);
  EXPECT_FALSE(findings.HasErrors()) << findings.all()[0].message;
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingInputs inputs, Inputs());
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            Measure(main, startup, TheCase().ranks, inputs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors reference, ReadNpz(Path("reference.npz")));
  for (int rank = 0; rank < TheCase().ranks; ++rank) {
    const std::string name = TheCase().ranks == 1
                                 ? "single/loss"
                                 : absl::StrCat(TheCase().reference, "/loss_rank", rank);
    SCOPED_TRACE(name);
    bounds.ExpectLosses(rank, bounds.results().losses[rank], AsDoubles(reference.at(name)));
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<const char*, Case>>& info) {
  return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(
    Pir, TrainPirTest,
    Combine(Values("fit_a_line", "mlp_adam", "mlp_momentum", "mlp_sgd", "two_losses", "wide_deep",
                   "word2vec_sparse_sgd"),
            Values(Case{"OneRank", 1}, Case{"OneByOne", 2, "grad_allreduce", {{"buckets", "none"}}},
                   Case{"Fused", 2, "grad_allreduce", {{"buckets", "count{count=3}"}}},
                   Case{"Gathered", 2, "multi_thread", {{"trans_mode", "all_gather"}}})),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Modes, TrainPirTest,
    Combine(Values("mlp_adam", "two_losses", "wide_deep"),
            Values(Case{"MultiThread", 2, "multi_thread"},
                   Case{"SingleProcess", 2, "single_process_multi_thread"},
                   Case{"Plain", 2, "singa_plain"},
                   Case{"Reducer", 2, "mindspore_reducer", {{"reduce_method", "mean"}}},
                   Case{"MegEngine", 2, "megengine", {{"reduce_method", "mean"}}},
                   Case{"MegEngineBroadcasts",
                        2,
                        "megengine",
                        {{"reduce_method", "mean"}, {"bcast_period", "1"}}},
                   Case{"LocalSgd", 2, "local_sgd", {}, "localsgd2"},
                   Case{"Partial", 2, "singa_partial", {}, "localsgd2"})),
    NameOf);

// What has no form in PIR is refused before anything is written.
TEST(PirModesTest, RefusalsSayWhatHasNoForm) {
  const std::string out = TempPath("refused_out.json");
  const std::pair<const char*, const char*> all[] = {
      {"singa_sparse_topk", "(sparsify_topk): a pass has inserted this op"},
      {"singa_sparse_threshold", "(sparsify_threshold): a pass has inserted this op"},
      {"optimizer_offload", "(memcpy_h2d): a pass has inserted this op"},
  };
  for (const auto& [mode, why] : all) {
    SCOPED_TRACE(mode);
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(ModelFiles().at("mlp_sgd/main.json")));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadBytes(ModelFiles().at("mlp_sgd/startup.json")));
    WEFT_ASSERT_OK(Rewrite(InMode(mode, 2), &main, &startup));
    EXPECT_THAT(std::string(WriteProgram(main, out).message()), HasSubstr(why));
    EXPECT_FALSE(ReadFile(out).ok());
  }
}

// What is written shows that gradients are reduced, in buffers and gathered, too.
TEST(PirModesTest, WrittenFilesAreNotRewrittenAgain) {
  const std::pair<const char*, Flags> first[] = {
      {"grad_allreduce", {{"buckets", "none"}}},
      {"grad_allreduce", {{"buckets", "count{count=3}"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
  };
  for (const char* model : {"mlp_momentum", "wide_deep"}) {
    for (const auto& [mode, flags] : first) {
      SCOPED_TRACE(absl::StrCat(model, " ", mode, " ", flags.begin()->second));
      WEFT_ASSERT_OK_AND_ASSIGN(Program main,
                                ReadBytes(ModelFiles().at(absl::StrCat(model, "/main.json"))));
      WEFT_ASSERT_OK(Rewrite(OnTwoCpus(mode, flags), &main));
      WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, BytesOf(main));
      WEFT_ASSERT_OK_AND_ASSIGN(const Program written, ReadBytes(bytes));
      for (const char* again : {"grad_allreduce", "local_sgd"}) {
        EXPECT_THAT(Refusal(OnTwoCpus(again), written),
                    HasSubstr("gradients-reduced already holds"));
      }
    }
  }
}

// The first loss of five steps on each of two ranks.
absl::StatusOr<std::vector<std::vector<double>>> TrainTwoRanks(absl::string_view model,
                                                               const Program& main,
                                                               const Program& startup) {
  const std::string folder = absl::StrCat("tests/data/paddle3_", model, "/");
  TrainingInputs from;
  WEFT_ASSIGN_OR_RETURN(from.params,
                        LoadParams(folder + "init.params", folder + "persistables.txt"));
  WEFT_ASSIGN_OR_RETURN(from.feeds, FeedsFromFile(folder + "feeds.npz"));
  from.feeds.num_steps = 5;
  WEFT_ASSIGN_OR_RETURN(TrainingResults results, Train(main, startup, 2, from));
  return std::move(results.losses);
}

// Whose order a written file keeps.
TEST(PirOpsTest, CollectivesOfTheSchemaAreCollectivesOfPir) {
  int count = 0;
  for (const OpSchema* schema : AllOpSchemas()) {
    const absl::string_view type = schema->type();
    if (!schema->Has(Trait::kCollective) && !FindMessageOp(type).has_value()) continue;
    EXPECT_TRUE(pir::IsCollective(absl::StrCat("1.", type))) << type;
    EXPECT_TRUE(pir::IsCollective(absl::StrCat("1.", type, "_"))) << type;
    ++count;
  }
  EXPECT_GT(count, 10);
  EXPECT_TRUE(pir::IsCollective("1.sync_batch_norm_"));
  EXPECT_TRUE(pir::IsCollective("1.send_v2"));
  EXPECT_FALSE(pir::IsCollective("1.concat"));
  EXPECT_FALSE(pir::IsCollective("1.p_norm"));
}

// Modes that do something on some steps only: a counter and blocks.
TEST(PirModesTest, PeriodsAreInWrittenFiles) {
  struct Period {
    const char* mode;
    Flags flags;
    int blocks;
    const char* model = "mlp_momentum";
  };
  const Period all[] = {
      {"local_sgd", {{"k_steps", "2"}}, 1},
      {"local_sgd", {{"k_steps", "2"}, {"begin_step", "3"}, {"state", "reset"}}, 1},
      {"local_sgd", {{"k_steps", "2"}, {"outer", "nesterov"}}, 1},
      {"local_sgd", {{"k_steps", "2"}, {"outer", "slowmo"}}, 1},
      {"local_sgd", {{"k_steps", "2"}, {"outer", "sgd{lr=0.5}"}, {"fragments", "2"}}, 2},
      {"local_sgd", {{"k_steps", "2"}, {"outer", "slowmo"}, {"delay", "1"}, {"mix", "0.5"}}, 2},
      {"singa_partial", {{"threshold", "1000"}}, 3},
      {"megengine", {{"reduce_method", "mean"}, {"bcast_period", "2"}}, 1},
      // Two optimizers: the gradients of the second come after the update of the first.
      {"megengine", {{"reduce_method", "mean"}, {"bcast_period", "2"}}, 1, "two_losses"},
  };
  for (const Period& period : all) {
    SCOPED_TRACE(absl::StrCat(period.mode, " of ", period.model));
    const std::string model = period.model;
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(ModelFiles().at(model + "/main.json")));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadBytes(ModelFiles().at(model + "/startup.json")));
    const Program main_before = main, startup_before = startup;
    WEFT_ASSERT_OK(Rewrite(OnTwoCpus(period.mode, period.flags), &main, &startup));
    Program written = main, written_startup = startup;
    WEFT_ASSERT_OK(WriteAndRead(&written, &written_startup));
    EXPECT_EQ(written.num_blocks(), 1 + period.blocks);
    if (absl::string_view(period.mode) == "megengine") {
      // All parameters: the losses would not show that one is not broadcast.
      const auto params = absl::c_count_if(
          written.block(0).vars(), [&](VarId id) { return written.var(id).is_parameter(); });
      EXPECT_GT(params, 0);
      EXPECT_EQ(absl::c_count_if(written.block(1).ops(),
                                 [&](OpId id) { return written.op(id).type() == "broadcast"; }),
                params);
    }
    VerifyOptions verify;
    verify.setting.nranks = 2;
    WEFT_ASSERT_OK_AND_ASSIGN(const Setting claimed, SettingOf(written));
    verify.setting.averaging = claimed.averaging;
    verify.original = {&main_before, &startup_before};
    const Findings findings = Verify({{&written, &written_startup}}, verify);
    EXPECT_FALSE(findings.HasErrors()) << ToStatus(findings);
    WEFT_ASSERT_OK_AND_ASSIGN(const auto losses, TrainTwoRanks(model, written, written_startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto expected, TrainTwoRanks(model, main, startup));
    EXPECT_EQ(losses, expected);
  }
}

// Gradients travel in fp16, which Paddle's library for CPUs cannot add: the file is for GPUs.
TEST(PirModesTest, HalvedGradientsAreInWrittenFiles) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(ModelFiles().at("mlp_momentum/main.json")));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup,
                            ReadBytes(ModelFiles().at("mlp_momentum/startup.json")));
  const Program main_before = main, startup_before = startup;
  TranspileOptions options = InMode("singa_half", 2);
  options.device_kind = TargetDevice::kCuda;
  WEFT_ASSERT_OK(Rewrite(options, &main, &startup));
  Program written = main, written_startup = startup;
  WEFT_ASSERT_OK(WriteAndRead(&written, &written_startup));
  VerifyOptions verify;
  verify.setting.nranks = 2;
  verify.setting.gradients_are_rounded = true;
  verify.original = {&main_before, &startup_before};
  const Findings findings = Verify({{&written, &written_startup}}, verify);
  EXPECT_FALSE(findings.HasErrors()) << findings.all()[0].message;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto losses,
                            TrainTwoRanks("mlp_momentum", written, written_startup));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto expected, TrainTwoRanks("mlp_momentum", main, startup));
  EXPECT_EQ(losses, expected);
}

// Parameters become shares, updates work on them. Paddle has no reduce-scatter for CPUs: the files
// are for GPUs.
TEST(PirModesTest, SharesAreInWrittenFiles) {
  for (const char* const model : {"mlp_adam", "mlp_momentum", "two_losses", "wide_deep"}) {
    for (const auto& [stage, buckets] :
         {std::make_pair("1", "bytes{first_bytes=9000,max_bytes=9000}"),
          std::make_pair("3", "count{count=1}")}) {
      SCOPED_TRACE(absl::StrCat(model, " stage ", stage));
      const auto read = [&](absl::string_view file) {
        return ReadBytes(ModelFiles().at(absl::StrCat(model, "/", file)));
      };
      WEFT_ASSERT_OK_AND_ASSIGN(Program main, read("main.json"));
      WEFT_ASSERT_OK_AND_ASSIGN(Program startup, read("startup.json"));
      const Program main_before = main, startup_before = startup;
      Program reduced = main, reduced_startup = startup;
      WEFT_ASSERT_OK(Rewrite(InMode("grad_allreduce", 2), &reduced, &reduced_startup));
      WEFT_ASSERT_OK(
          Rewrite(InMode("zero", 2, {{"stage", stage}, {"buckets", buckets}}), &main, &startup));
      WEFT_ASSERT_OK(WriteAndRead(&main, &startup));
      WEFT_ASSERT_OK_AND_ASSIGN(const Setting claimed, SettingOf(main));
      ASSERT_FALSE(claimed.shares.empty());
      EXPECT_FALSE(
          main.block(0).FindVar(claimed.shares.begin()->second[0].name).valid() &&
          main.var(main.block(0).FindVar(claimed.shares.begin()->second[0].name)).persistable());
      VerifyOptions verify;
      verify.setting = claimed;
      verify.setting.nranks = 2;
      verify.setting.ordered_by_data = true;
      verify.original = {&main_before, &startup_before};
      const Findings findings = Verify({{&main, &startup}}, verify);
      EXPECT_FALSE(findings.HasErrors()) << ToStatus(findings);
      WEFT_ASSERT_OK_AND_ASSIGN(const auto losses, TrainTwoRanks(model, main, startup));
      WEFT_ASSERT_OK_AND_ASSIGN(const auto expected,
                                TrainTwoRanks(model, reduced, reduced_startup));
      EXPECT_EQ(losses, expected);
    }
  }
}

void SetInts(const std::string& name, const std::vector<int>& values, pb::OpDesc* op) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() != name) continue;
    attr.clear_ints();
    attr.clear_longs();
    attr.set_type(pb::INTS);
    for (int value : values) attr.add_ints(value);
  }
}

// Without buffers, the order of parts is that of a concat and a split.
// Its clipping adds up squares in a stack, here of each rank's own gradients.
TEST(PirModesTest, RoundedOuterGradientsOfClippedOnesAreProved) {
  const auto read = [](absl::string_view file) {
    return ReadBytes(ModelFiles().at(absl::StrCat("bert_tiny/", file)));
  };
  for (const char* const type : {"bf16", "fp16"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, read("main.json"));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, read("startup.json"));
    const Flags flags = {{"k_steps", "2"}, {"outer", "nesterov"}, {"comm_dtype", type}};
    EXPECT_EQ(Refusal(InMode("local_sgd", 2, flags), main, &startup), "") << type;
  }
}

TEST(PirModesTest, VerifierFindsMistakesInWrittenShares) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(ModelFiles().at("mlp_adam/main.json")));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadBytes(ModelFiles().at("mlp_adam/startup.json")));
  const Program main_before = main, startup_before = startup;
  WEFT_ASSERT_OK(Rewrite(InMode("zero", 2), &main, &startup));
  WEFT_ASSERT_OK(WriteAndRead(&main, &startup));
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting claimed, SettingOf(main));
  using Desc = pb::ProgramDesc;
  using Change = std::function<void(Desc*)>;
  const auto has_errors = [&](const Change& in_main, const Change& in_startup) {
    Desc changed = main.ToProto(), changed_startup = startup.ToProto();
    if (in_main) in_main(&changed);
    if (in_startup) in_startup(&changed_startup);
    const absl::StatusOr<Program> a = Program::FromProto(changed),
                                  b = Program::FromProto(changed_startup);
    VerifyOptions verify;
    verify.setting = claimed;
    verify.setting.nranks = 2;
    verify.setting.ordered_by_data = true;
    verify.original = {&main_before, &startup_before};
    return Verify({{&*a, &*b}}, verify).HasErrors();
  };
  EXPECT_FALSE(has_errors(nullptr, nullptr));
  const auto swap_args = [](pb::OpDesc::Var* slot, int a, int b) {
    slot->mutable_arguments()->SwapElements(a, b);
  };
  const auto reorder = [&](Desc* program) {
    swap_args(FindOp(program, "concat")->mutable_inputs(0), 1, 3);
  };
  EXPECT_TRUE(has_errors(reorder, nullptr));
  EXPECT_TRUE(has_errors(nullptr, reorder));
  const auto take_others = [&](Desc* program) {
    swap_args(FindOp(program, "split")->mutable_outputs(0), 1, 3);
  };
  EXPECT_TRUE(has_errors(take_others, nullptr));
  // Elements of other parameters.
  const auto cut_elsewhere = [](Desc* program) {
    SetInts("sections", {480, 10, 48, 3072, 64, 6144}, FindOp(program, "split"));
  };
  EXPECT_TRUE(has_errors(cut_elsewhere, nullptr));
  EXPECT_TRUE(has_errors(
      [](Desc* program) {
        SetInts("shape", {10, 48}, FindOp(program, "reshape2"));
      },
      nullptr));
  EXPECT_TRUE(has_errors(
      [](Desc* program) { FindOp(program, "reduce_scatter")->set_type("all_to_all"); }, nullptr));
  EXPECT_TRUE(has_errors(nullptr, [](Desc* program) {
    SetInts("starts", {4909}, FindOp(program, "slice"));
    SetInts("ends", {9818}, FindOp(program, "slice"));
  }));
  EXPECT_TRUE(has_errors(nullptr, [](Desc* program) {
    pb::OpDesc* const op = FindOp(program, "all_to_all");
    op->set_type("assign");
    op->mutable_inputs(0)->set_parameter("X");
    op->mutable_outputs(0)->set_parameter("Out");
  }));
  const auto insert = [](Desc* program, int at, const std::string& type, const std::string& from,
                         const std::string& to, float factor = 0) {
    auto* const ops = program->mutable_blocks(0)->mutable_ops();
    pb::OpDesc* const op = ops->Add();
    op->set_type(type);
    op->add_inputs()->set_parameter("X");
    op->mutable_inputs(0)->add_arguments(from);
    op->add_outputs()->set_parameter("Out");
    op->mutable_outputs(0)->add_arguments(to);
    if (factor != 0) *op->add_attrs() = MakeAttr("scale", factor);
    for (int i = ops->size() - 1; i > at; --i) ops->SwapElements(i, i - 1);
  };
  const auto position = [](const Desc& program, const std::string& type) {
    int at = 0;
    while (program.blocks(0).ops(at).type() != type) ++at;
    return at;
  };
  // A second op writes what is scattered.
  EXPECT_TRUE(has_errors(
      [&](Desc* program) {
        const int at = position(*program, "concat");
        const std::string whole = program->blocks(0).ops(at).outputs(0).arguments(0);
        insert(program, at + 1, "scale", whole, whole, 2);
      },
      nullptr));
  // Ranks divide their gradients after the concat, under names that share the memory.
  const auto divide_late = [&](Desc* program) {
    for (pb::OpDesc::Attr& attr : *FindOp(program, "scale")->mutable_attrs()) {
      if (attr.name() == "scale") attr.set_f(1);
    }
    int at = position(*program, "concat");
    const pb::OpDesc concat = program->blocks(0).ops(at);
    for (const std::string& part : concat.inputs(0).arguments()) {
      pb::VarDesc alias;
      for (const pb::VarDesc& var : program->blocks(0).vars()) {
        if (var.name() == part) alias = var;
      }
      alias.set_name(part + "_alias");
      *program->mutable_blocks(0)->add_vars() = alias;
      insert(program, at++, "share_data", part, alias.name());
      insert(program, at + 1, "scale", alias.name(), alias.name(), 0.5f);
    }
  };
  EXPECT_TRUE(has_errors(divide_late, nullptr));
  // Another name of the whole buffer multiplies it before it is scattered.
  const auto multiply_whole = [&](Desc* program) {
    const int at = position(*program, "concat") + 1;
    const std::string whole = program->blocks(0).ops(at - 1).outputs(0).arguments(0);
    pb::VarDesc alias;
    for (const pb::VarDesc& var : program->blocks(0).vars()) {
      if (var.name() == whole) alias = var;
    }
    alias.set_name("alias_of_whole");
    *program->mutable_blocks(0)->add_vars() = alias;
    insert(program, at, "share_data", whole, alias.name());
    insert(program, at + 1, "scale", alias.name(), alias.name(), 3);
  };
  EXPECT_TRUE(has_errors(multiply_whole, nullptr));
  EXPECT_TRUE(has_errors(nullptr, multiply_whole));
  // A parameter that lasts from step to step is taken out of the buffer after its use, or before
  // it is there.
  const auto make_last = [&](Desc* main_program, Desc* startup_program) {
    const std::string name = FindOp(main_program, "reshape2", 2)->outputs(0).arguments(0);
    for (pb::VarDesc& var : *main_program->mutable_blocks(0)->mutable_vars()) {
      if (var.name() != name) continue;
      var.set_persistable(true);
      *startup_program->mutable_blocks(0)->add_vars() = var;
    }
    const std::string drawn = FindOp(startup_program, "broadcast")->outputs(0).arguments(0);
    insert(startup_program, startup_program->blocks(0).ops_size(), "assign", drawn, name);
  };
  for (const int move : {1, -1}) {
    Desc changed = main.ToProto(), changed_startup = startup.ToProto();
    make_last(&changed, &changed_startup);
    auto* const ops = changed.mutable_blocks(0)->mutable_ops();
    int at = position(changed, "matmul_v2") - 1;  // the last reshape
    ASSERT_EQ(ops->Get(at).type(), "reshape2");
    const int end = move > 0 ? at + 1 : position(changed, "split");
    for (; at != end; at += move) ops->SwapElements(at, at + move);
    EXPECT_TRUE(has_errors([&](Desc* program) { *program = changed; },
                           [&](Desc* program) { *program = changed_startup; }))
        << move;
  }
}

// Ops that the table lacks, on the way to a gradient: one that reads a parameter, one that does not
// look like a gradient op.
TEST(PirModesTest, RefusalsSayWhatToDoAboutOpsOutsideTheTable) {
  for (const char* const replaced : {"1.matmul", "1.square_grad"}) {
    SCOPED_TRACE(replaced);
    WEFT_ASSERT_OK_AND_ASSIGN(const Program main,
                              ReadBytes(absl::StrReplaceAll(ModelFiles().at("fit_a_line/main.json"),
                                                            {{replaced, "1.cube"}})));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup,
                              ReadBytes(ModelFiles().at("fit_a_line/startup.json")));
    const std::string error = Refusal(InMode("grad_allreduce", 2), main, &startup);
    EXPECT_THAT(error, HasSubstr("W313"));
    EXPECT_THAT(error, HasSubstr(", which is unregistered and may not be linear in it"));
    EXPECT_THAT(error, ::testing::ContainsRegex(
                           "; pd_op.cube(_grad)? is not in docs/reference/pir_ops.md; if Paddle "
                           "still builds the program in its old format"));
  }
}

// Not known to be an update, and not to be left out by a mode that reduces gradients.
TEST(PirModesTest, UnknownOpsInPlaceAreCopiedAndNotRewritten) {
  const std::string bytes =
      absl::StrReplaceAll(ModelFiles().at("fit_a_line/main.json"), {{"1.sgd_", "1.new_"}});
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(bytes));
  WEFT_ASSERT_OK(Rewrite(InMode("none"), &main));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string copy, BytesOf(main));
  EXPECT_TRUE(copy == bytes);
  for (const char* const mode : {"grad_allreduce", "local_sgd"}) {
    EXPECT_THAT(Refusal(InMode(mode, 2), main),
                HasSubstr("op 11 (pd_op.new_): writes operands in place, and which ones is not "
                          "known"));
  }
}

// Paddle 3.3.1 wrote the program, whose condition is the mean of the batch, and trained what
// transpile makes of it, with two processes: the means of their losses. With conditions of all
// ranks, they are also those of one device; without, ranks take different branches in the last
// step.
TEST(PirModesTest, RanksChooseBranchesByTheirOwnBatch) {
  const std::string folder = "tests/data/branches/";
  for (const bool exact : {false, true}) {
    SCOPED_TRACE(exact);
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadProgram(folder + "main.json"));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadProgram(folder + "startup.json"));
    WEFT_ASSERT_OK_AND_ASSIGN(
        const TranspileResult result,
        Rewrite(OnTwoCpus("grad_allreduce", exact ? Flags{{"exact_loss", "on"}} : Flags{}), &main,
                &startup));
    EXPECT_EQ(absl::c_any_of(ResultLines(result.messages),
                             [](const std::string& note) {
                               return absl::StrContains(note, "W706") &&
                                      absl::StrContains(note,
                                                        "; transpile option:exact_loss makes it");
                             }),
              !exact);
    TrainingInputs inputs;
    WEFT_ASSERT_OK_AND_ASSIGN(inputs.params, ReadNpz(folder + "params.npz"));
    WEFT_ASSERT_OK_AND_ASSIGN(inputs.feeds, FeedsFromFile(folder + "feeds.npz"));
    WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, Measure(main, startup, 2, inputs));
    const std::vector<std::vector<double>>& losses = bounds.results().losses;
    const std::vector<double> expected = {1.1321445, 8.9621592, 8.0670910, 5.3809881,
                                          exact ? 1.2446342 : 3.90502};
    ASSERT_EQ(losses[0].size(), expected.size());
    for (size_t step = 0; step < expected.size(); ++step) {
      const double mean = (losses[0][step] + losses[1][step]) / 2;
      const double allowed = (bounds.OfLoss(0, step) + bounds.OfLoss(1, step)) / 2;
      EXPECT_NEAR(mean, expected[step], allowed) << "step " << step;
    }
  }
}

// What ranks reduce in the forward pass counts as what one device has, if they update parts of it.
TEST(PirModesTest, RanksWithPartsChooseBranchesTogether) {
  for (const char* stage : {"1", "3"}) {
    const std::string folder = "tests/data/branches/";
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadProgram(folder + "main.json"));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadProgram(folder + "startup.json"));
    const Flags flags = {{"exact_loss", "on"}, {"stage", stage}};
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result,
                              Rewrite(InMode("zero", 2, flags), &main, &startup));
    EXPECT_FALSE(result.setting.shares.empty());
    EXPECT_THAT(ResultLines(result.messages), Not(Contains(HasSubstr("W7"))));
  }
}

// What no pass changes, an unknown op may read, with its blocks: the file is written with it as it
// is.
TEST(PirModesTest, UnknownOpsWithBlocksStayWhereTheyAccessNoParameter) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup_before,
                            ReadBytes(ModelFiles().at("cond_mlp/startup.json")));
  const auto transpile = [&](const std::string& bytes) -> absl::StatusOr<std::string> {
    WEFT_ASSIGN_OR_RETURN(Program main, ReadBytes(bytes));
    Program startup = startup_before;
    WEFT_RETURN_IF_ERROR(Rewrite(OnTwoCpus("grad_allreduce"), &main, &startup).status());
    return BytesOf(main);
  };
  const std::string bytes =
      absl::StrReplaceAll(ModelFiles().at("cond_mlp/main.json"), {{"1.if", "1.other"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string written, transpile(bytes));
  const size_t begin = bytes.find("{\"#\":\"1.other\"");
  const size_t end = bytes.find("{\"#\":\"1.matmul\"", begin);
  ASSERT_NE(end, std::string::npos);
  EXPECT_THAT(written, HasSubstr(bytes.substr(begin, end - begin)));
  EXPECT_THAT(written, HasSubstr("1.all_reduce_"));
  EXPECT_THAT(
      std::string(transpile(absl::StrReplaceAll(bytes, {{R"("#":"1.tanh","A":[],"I":[{"%":6}])",
                                                         R"("#":"1.tanh","A":[],"I":[{"%":2}])"}}))
                      .status()
                      .message()),
      AllOf(HasSubstr("op 3 (pd_op.other): its blocks access gradients, parameters or state"),
            HasSubstr("mode none")));
}

// Its gradients are summed, and stay so: mode none claims nothing.
TEST(PirModesTest, RewrittenProgramsOfSumsAreCopied) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main,
                            ReadBytes(absl::StrReplaceAll(ModelFiles().at("fit_a_line/main.json"),
                                                          {{"1.mean", "1.sum"}})));
  WEFT_ASSERT_OK(Rewrite(InMode("grad_allreduce", 2), &main));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, BytesOf(main));
  WEFT_ASSERT_OK_AND_ASSIGN(main, ReadBytes(bytes));
  WEFT_EXPECT_OK(Rewrite(InMode("none"), &main));
}

// As if it were given: --distributed_params.
TEST(PirModesTest, DistributedParametersAreThoseOfTheFile) {
  const std::string& unmarked = ModelFiles().at("fit_a_line/main.json");
  const std::string marked =
      absl::StrReplaceAll(unmarked, {{R"([0,1,1,"fc_0.w_0"])", R"([1,1,1,"fc_0.w_0"])"}});
  ASSERT_NE(marked, unmarked);
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(marked));
  const Program original = main;
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result,
                            Rewrite(InMode("grad_allreduce", 2, {{"buckets", "none"}}), &main));
  EXPECT_THAT(ResultLines(result.messages),
              Contains(HasSubstr("parameter fc_0.w_0 is not replicated")));
  std::vector<std::string> reduced;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() == "c_allreduce_avg" || op.type() == "all_reduce") {
      reduced.emplace_back(main.name(op.output_args()[0]));
    }
  }
  EXPECT_EQ(reduced, std::vector<std::string>{"fc_0.b_0@GRAD"});
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, BytesOf(main));
  WEFT_ASSERT_OK_AND_ASSIGN(Program written, ReadBytes(bytes));
  VerifyOptions verify;
  verify.setting.nranks = 2;
  verify.original = {&original, nullptr};
  EXPECT_FALSE(Verify({{&written, nullptr}}, verify).HasErrors());
  WEFT_EXPECT_OK(Rewrite(InMode("none"), &written));
}

// Ranks that draw other numbers update a parameter by them.
TEST(PirModesTest, RandomOpsLetRanksDriftInTheTableOrNot) {
  const std::string type =
      R"({"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[13,1],"NCHW",[],0]}}],"OA":[]},)";
  const std::string update = R"("I":[{"%":3},{"%":1},{"%":21},{"%":0}])";
  for (const char* const draw : {"1.bernoulli", "1.standard_gamma", "1.cube"}) {
    SCOPED_TRACE(draw);
    std::string bytes = ModelFiles().at("fit_a_line/main.json");
    const std::string noise =
        absl::StrCat(R"({"#":")", draw, R"(","A":[],"I":[{"%":3}],"O":[{"%":110,"TT":)", type,
                     R"({"#":"1.add","A":[],"I":[{"%":21},{"%":110}],"O":[{"%":111,"TT":)", type);
    bytes.insert(bytes.find(R"({"#":"1.sgd_")"), noise);
    ASSERT_NE(bytes.find(update), std::string::npos);
    bytes = absl::StrReplaceAll(bytes, {{update, R"("I":[{"%":3},{"%":1},{"%":111},{"%":0}])"}});
    WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadBytes(bytes));
    const std::string error = Refusal(InMode("grad_allreduce", 2), main);
    if (std::string(draw) == "1.cube") {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_THAT(error, HasSubstr("W310"));
    }
  }
}

TEST(PirModesTest, FormatsOfPaddle2AreRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadBytes(ModelFiles().at("fit_a_line/main.json")));
  TranspileOptions options = InMode("grad_allreduce", 2);
  options.paddle_version = 2;
  EXPECT_THAT(Refusal(options, main), HasSubstr("paddle_version 2: found a program in Paddle 3's"));
  options.paddle_version = 3;
  EXPECT_EQ(Refusal(options, main), "");
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadBytes(ModelFiles().at("fit_a_line/startup.json")));
  const std::string old = TempPath("formats.pb");
  WEFT_ASSERT_OK(WriteProgram(startup, old));
  WEFT_ASSERT_OK_AND_ASSIGN(startup, ReadProgram(old));
  EXPECT_THAT(Refusal(options, main, &startup),
              HasSubstr("(PIR), and the startup program in the old one (ProgramDesc)"));
}

// It can be copied, and no mode averages what it does not find.
TEST(PirModesTest, AccumulatedGradientsAreNoGradients) {
  const std::string bytes = absl::StrReplaceAll(ModelFiles().at("fit_a_line/main.json"),
                                                {{R"({"%":1},{"%":19},)", R"({"%":1},{"%":2},)"},
                                                 {R"({"%":1},{"%":21},)", R"({"%":1},{"%":3},)"}});
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadBytes(bytes));
  EXPECT_EQ(Refusal(InMode("none"), main), "");
  EXPECT_THAT(
      Refusal(InMode("grad_allreduce", 2), main),
      HasSubstr("the program has no gradients: ops update fc_0.b_0, fc_0.w_0, and none of"));
}

TEST(PirModesTest, ProgramsThatUpdateNothingAreNamedSo) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup,
                            ReadBytes(ModelFiles().at("fit_a_line/startup.json")));
  const std::string error = Refusal(InMode("grad_allreduce", 2), startup);
  EXPECT_THAT(error, HasSubstr("no op updates a parameter; was it saved before minimize(), after "
                               "append_backward() alone"));
  EXPECT_THAT(error, HasSubstr("export_program.py writes the program that trains"));
}

// There is no op_role_var to speak of.
TEST(PirModesTest, RefusalsSayWhatALossIs) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main,
                            ReadBytes(absl::StrReplaceAll(ModelFiles().at("fit_a_line/main.json"),
                                                          {{"1.full_like", "1.other_like"}})));
  const std::string error = Refusal(InMode("grad_allreduce", 2), main);
  EXPECT_THAT(error, HasSubstr("ops update fc_0.b_0, fc_0.w_0, and none of them reads a gradient"));
  EXPECT_THAT(error, HasSubstr("its gradient: 1.full_like of one element with 1.0"));
  EXPECT_THAT(error, Not(HasSubstr("op_role_var")));
}

// Ops of the file divide by what all ranks count: a loss that is no mean over the batch is that of
// one device.
TEST(PirModesTest, ExactLossesAreWritten) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(MoreOpsFiles().at("weighted/main.json")));
  const Program original = main;
  WEFT_ASSERT_OK(Rewrite(InMode("grad_allreduce", 2, {{"exact_loss", "on"}}), &main));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, BytesOf(main));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program written, ReadBytes(bytes));
  VerifyOptions verify;
  verify.setting.nranks = 2;
  verify.original = {&original, nullptr};
  const Findings found = Verify({{&written, nullptr}}, verify);
  for (const Finding& finding : found.all()) {
    EXPECT_EQ(finding.severity, Severity::kNote) << finding.message;
  }
}

// Of an output of an op that only reports, and of the norm of a parameter, which weight_norm
// copies.
TEST(PirModesTest, GradientsOfZerosRaiseNoWarning) {
  for (const std::string model : {"topk_indices", "weight_norm"}) {
    SCOPED_TRACE(model);
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadBytes(MoreOpsFiles().at(model + "/main.json")));
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result,
                              Rewrite(InMode("grad_allreduce", 2), &main));
    EXPECT_THAT(ResultLines(result.messages), Not(Contains(HasSubstr("W708"))));
  }
}

}  // namespace
}  // namespace weft::testing
