// What holds for every program that can be trained, in every mode: random programs
// (tests/support/random_program.h) are rewritten, looked at and trained.
//
// Another seed, or more programs:
//   bazel test --test_env=RC_PARAMS="seed=7 max_success=500"
//   //tests/properties:program_properties_test
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/run/runner.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/text/program_text.h"
#include "rapidcheck/gtest.h"
#include "tests/support/random_program.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/testing/whole_programs.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

// --- What is done to a program -------------------------------------------------------------------

struct Config {
  const char* name;
  const char* mode;
  std::map<std::string, std::string> flags = {};
  bool knows_ranks = true;
  Dialect dialect = Dialect::kWeft;
  const char* place = "";
};

void PrintTo(const Config& config, std::ostream* out) { *out << config.name; }

bool Averages(const Config& config) {
  return config.mode == std::string("local_sgd") || config.mode == std::string("singa_partial");
}

TranspileOptions OptionsFor(const Config& config, int nranks, int rank = 0) {
  TranspileOptions options;
  options.mode = config.mode;
  options.mode_flags = config.flags;
  options.dialect = config.dialect;
  options.placement.place = config.place;
  if (config.dialect == Dialect::kWeft) options.verification = Verification::kAfterEachPass;
  if (config.dialect == Dialect::kPaddle) {
    for (int i = 0; i < nranks; ++i) {
      options.cluster.endpoints.push_back(absl::StrCat("host", i, ":6170"));
    }
    options.cluster.rank = rank;
    if (options.mode != "grad_allreduce" && options.mode != "local_sgd") {
      options.cluster.devices = {{0}};
    }
  } else if (config.knows_ranks) {
    options.cluster.nranks = nranks;
  }
  return options;
}

struct Rewritten {
  Program main;
  Program startup;
  std::vector<std::string> warnings;
};

absl::StatusOr<Rewritten> Rewrite(const TrainingPrograms& programs,
                                  const TranspileOptions& options) {
  Rewritten rewritten = {programs.main, programs.startup, {}};
  ProgramPair pair{&rewritten.main, &rewritten.startup};
  WEFT_ASSIGN_OR_RETURN(const TranspileResult result, Transpile(options, pair));
  rewritten.warnings = testing::DefectLines(result.messages);
  return rewritten;
}

// Empty: the mode takes the program. Otherwise what it says.
std::string WhyRefused(const TrainingSpec& spec, const Config& config) {
  if (config.mode == std::string("embedding_offload") && spec.lookups > 0) {
    // Dense gradients, and updates in blocks.
    if (!spec.sparse || spec.merged_steps > 1) return "cannot stay on the host";
  }
  if (spec.merged_steps == 1) return "";
  if (Averages(config) && config.dialect == Dialect::kPaddle) return "updates a parameter";
  return "";
}

bool HasFp64(const TrainingSpec& spec) {
  const auto is_fp64 = [](const auto& part) { return part.fp64; };
  return is_fp64(spec.head) || std::any_of(spec.layers.begin(), spec.layers.end(), is_fp64) ||
         std::any_of(spec.more_heads.begin(), spec.more_heads.end(), is_fp64);
}

// Whether there are several partitions, of parameters or element types: ranks agree on one of them
// in each step.
bool TakesTurns(const TrainingSpec& spec, const Config& config) {
  return config.flags.count("threshold") > 0 ||
         (config.mode == std::string("singa_partial") && HasFp64(spec));
}

// Paddle's defects by the numbers of docs/paddle_dialect.md; tests/paddle_defects_*_test.cc shows
// them.
bool IsKnownToBeWrong(const TrainingSpec& spec, const Config& config) {
  if (config.dialect == Dialect::kWeft) return false;
  // LocalSGD keeps in the parameter how far it went, which the second loss's backward reads.
  if (Averages(config)) return spec.apart && !spec.more_heads.empty();
  const bool sparse = spec.sparse && spec.lookups > 0;                  // 21
  const bool accumulated = spec.merged_steps > 1;                       // 25
  const bool second_backward = spec.apart && !spec.more_heads.empty();  // 26
  const bool through_fp32 = config.mode == std::string("single_process_multi_thread") &&
                            config.flags.count("fuse") == 0 && HasFp64(spec);  // 14
  return sparse || accumulated || second_backward || through_fp32;
}

// What can be proved of a rewrite without running it; in the default dialect Transpile has done it
// after every pass.
absl::Status VerifyRewrite(const TrainingSpec& spec, const TrainingPrograms& programs,
                           const Config& config, int nranks, const Rewritten& rewritten) {
  for (const Program* program : {&rewritten.main, &rewritten.startup}) {
    WEFT_RETURN_IF_ERROR(Program::Parse(program->Serialize()).status());
  }
  if (IsKnownToBeWrong(spec, config)) return absl::OkStatus();
  VerifyOptions options;
  options.setting.nranks = nranks;
  options.original = {&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(ToStatus(Verify({{&rewritten.main, &rewritten.startup}}, options)));
  // In the short way and in the long one.
  return ToStatus(testing::VerifyWholePrograms({{&rewritten.main, &rewritten.startup}}, options));
}

// The rewrite of a program that the mode takes; checks a refusal and discards the others.
Rewritten RewriteOrDiscard(const TrainingSpec& spec, const TrainingPrograms& programs,
                           const Config& config, int nranks, int rank = 0) {
  absl::StatusOr<Rewritten> rewritten = Rewrite(programs, OptionsFor(config, nranks, rank));
  const std::string why = WhyRefused(spec, config);
  if (why.empty()) {
    if (!rewritten.ok()) RC_FAIL(rewritten.status().ToString());
  } else {
    RC_ASSERT(rewritten.status().code() == absl::StatusCode::kFailedPrecondition);
    RC_ASSERT(absl::StrContains(rewritten.status().message(), why));
    RC_DISCARD("refused");
  }
  return *std::move(rewritten);
}

// --- Training ------------------------------------------------------------------------------------

using Values = std::vector<double>;
constexpr int kSteps = 4;

struct Trained {
  // [step][fetched variable][rank]; what is fetched are the losses, then the parameters.
  std::vector<std::vector<std::vector<Values>>> fetched;
};

Values AsDoubles(const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat64) {
    return {tensor.data<double>(), tensor.data<double>() + tensor.size()};
  }
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

Trained Train(const TrainingPrograms& programs, const Program& main, const Program& startup,
              int ranks, bool strict_host_sync) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  options.steps = kSteps;
  options.fetch = programs.losses;
  options.fetch.insert(options.fetch.end(), programs.parameters.begin(), programs.parameters.end());
  options.strict_host_sync = strict_host_sync;
  options.timeout_s = 20;
  Trained trained;
  trained.fetched.assign(
      kSteps, std::vector<std::vector<Values>>(options.fetch.size(), std::vector<Values>(ranks)));
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.feeds = programs.feeds;
  inputs.on_result = [&trained](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      trained.fetched[result.step][i][result.rank] = AsDoubles(result.values[i]);
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<RunResult> result = RunProgram(inputs, options);
  if (!result.ok()) RC_FAIL(absl::StrCat(result.status().ToString(), "\n", ProgramText(main)));
  return trained;
}

// Relative to 1, about which all values are. Numbers of ranks come in as fp32 in any case.
double Tolerance(const TrainingPrograms& programs) {
  for (VarId id : programs.main.block(0).vars()) {
    const Var var = programs.main.var(id);
    const absl::optional<TensorType> type = DeclaredType(var);
    if (var.is_parameter() && type->dtype == DType::kFloat32) return 2e-5;
  }
  return 1e-6;
}

void ExpectNear(const std::string& what, int step, const Values& found, const Values& expected,
                double tolerance, const Program& main) {
  RC_ASSERT(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::fabs(found[i] - expected[i]) <= tolerance * (1 + std::fabs(expected[i]))) continue;
    RC_FAIL(absl::StrCat("step ", step, ", ", what, "[", i, "]: found ", found[i], ", expected ",
                         expected[i], "\n", ProgramText(main)));
  }
}

Values Mean(const std::vector<Values>& of_ranks) {
  Values mean(of_ranks[0].size(), 0);
  for (const Values& values : of_ranks) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += values[i] / of_ranks.size();
  }
  return mean;
}

// Averaging parameters is averaging gradients where updates are linear in gradients that all ranks
// compute at the same parameters.
bool AveragingIsReducing(const TrainingSpec& spec, const Config& config) {
  const bool every_step = config.flags.count("k_steps") == 0;
  const bool one_update = !spec.apart || spec.more_heads.empty();
  return every_step && one_update && spec.weights_by == OptimizerKind::kSgd &&
         spec.biases_by == OptimizerKind::kSgd && spec.clip == ClipKind::kNone;
}

// --- Properties ----------------------------------------------------------------------------------

class ProgramProperties : public ::testing::TestWithParam<Config> {};

// On N ranks, each with its share of the batch, a program does what it did on one rank with the
// whole batch.
TEST_P(ProgramProperties, TrainsAsOnOneRank) {
  const Config& config = GetParam();
  rc::detail::checkGTest([&](const TrainingSpec& spec) {
    const int nranks = 2 + *rc::gen::inRange(0, 2);
    const TrainingPrograms programs = BuildPrograms(spec);
    const Rewritten rewritten = RewriteOrDiscard(spec, programs, config, nranks);
    const absl::Status verified = VerifyRewrite(spec, programs, config, nranks, rewritten);
    if (!verified.ok()) RC_FAIL(verified.ToString());
    RC_PRE(!IsKnownToBeWrong(spec, config));
    RC_ASSERT(rewritten.warnings == std::vector<std::string>());
    const Trained found = Train(programs, rewritten.main, rewritten.startup, nranks,
                                config.dialect == Dialect::kPaddle);
    const bool compare =
        !TakesTurns(spec, config) && (!Averages(config) || AveragingIsReducing(spec, config));
    const Trained expected = Train(programs, programs.main, programs.startup, 1, false);
    const int k_steps = config.flags.count("k_steps") > 0 ? 2 : 1;
    const double tolerance = Tolerance(programs);
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < found.fetched[step].size(); ++i) {
        const std::vector<Values>& values = found.fetched[step][i];
        const bool is_loss = i < programs.losses.size();
        const std::string& name =
            is_loss ? programs.losses[i] : programs.parameters[i - programs.losses.size()];
        if (!is_loss && (step + 1) % k_steps == 0 && !TakesTurns(spec, config)) {
          for (const Values& of_rank : values) {
            ExpectNear(absl::StrCat(name, " of another rank"), step, of_rank, values[0], 0,
                       rewritten.main);
          }
        }
        if (!compare) continue;
        ExpectNear(name, step, Mean(values), expected.fetched[step][i][0], tolerance,
                   rewritten.main);
      }
    }
  });
}

TEST_P(ProgramProperties, SameInputGivesTheSameBytes) {
  const Config& config = GetParam();
  rc::detail::checkGTest([&](const TrainingSpec& spec) {
    const TrainingPrograms programs = BuildPrograms(spec);
    const Rewritten one = RewriteOrDiscard(spec, programs, config, 2);
    const Rewritten two = RewriteOrDiscard(spec, programs, config, 2);
    RC_ASSERT(one.main.Serialize() == two.main.Serialize());
    RC_ASSERT(one.startup.Serialize() == two.startup.Serialize());
  });
}

TEST_P(ProgramProperties, RewritingAgainIsRefused) {
  const Config& config = GetParam();
  rc::detail::checkGTest([&](const TrainingSpec& spec) {
    const TrainingPrograms programs = BuildPrograms(spec);
    Rewritten rewritten = RewriteOrDiscard(spec, programs, config, 2);
    ProgramPair pair{&rewritten.main, &rewritten.startup};
    const auto again = Transpile(OptionsFor(config, 2), pair);
    RC_ASSERT(again.status().code() == absl::StatusCode::kFailedPrecondition);
    RC_ASSERT(absl::StrContains(again.status().message(), "already holds"));
  });
}

// --- Communication -------------------------------------------------------------------------------

// A collective as all ranks have to agree on it: what, where, how much.
struct Collective {
  std::string text;
  std::string variable;
  TensorType type;
};

// Those of all blocks, in order: an op that runs a block stands for what is in it.
void Collect(const Program& program, int block, std::vector<Collective>* collectives) {
  for (OpId id : program.block(block).ops()) {
    const Op op = program.op(id);
    for (int sub_block : op.SubBlocks()) Collect(program, sub_block, collectives);
    if (!absl::StartsWith(op.type(), "c_all") && !absl::StartsWith(op.type(), "c_broadcast")) {
      continue;
    }
    const Symbol x = op.Input("X")[0];
    const TensorType type = *DeclaredType(program.var(program.block(block).Resolve(x)));
    const auto root = op.FindAttr("root");
    collectives->push_back(
        {absl::StrCat(op.type(), "@", op.FindAttr("ring_id")->i(), "(", program.name(x), " : ",
                      ToString(type), ", root ", root.has_value() ? root->i() : -1, ")"),
         std::string(program.name(x)), type});
  }
}

std::vector<std::string> Texts(const Program& program) {
  std::vector<Collective> collectives;
  Collect(program, 0, &collectives);
  std::vector<std::string> texts;
  for (const Collective& collective : collectives) texts.push_back(collective.text);
  return texts;
}

// Each rank rewrites its programs for itself, knowing its own endpoint.
TEST_P(ProgramProperties, RanksAgreeOnTheSequenceOfCollectives) {
  const Config& config = GetParam();
  rc::detail::checkGTest([&](const TrainingSpec& spec) {
    const int nranks = 2 + *rc::gen::inRange(0, 2);
    const TrainingPrograms programs = BuildPrograms(spec);
    const Rewritten first = RewriteOrDiscard(spec, programs, config, nranks);
    const std::vector<std::string> main = Texts(first.main), startup = Texts(first.startup);
    RC_ASSERT(!main.empty());
    for (int rank = 1; rank < nranks; ++rank) {
      TranspileOptions options = OptionsFor(config, nranks, rank);
      if (config.dialect == Dialect::kWeft && config.knows_ranks) {
        options.cluster.endpoints.clear();
        for (int i = 0; i < nranks; ++i) {
          options.cluster.endpoints.push_back(absl::StrCat("host", i, ":6170"));
        }
        options.cluster.rank = rank;
      }
      const absl::StatusOr<Rewritten> other = Rewrite(programs, options);
      RC_ASSERT(other.ok());
      RC_ASSERT(Texts(other->main) == main);
      RC_ASSERT(Texts(other->startup) == startup);
    }
  });
}

int64_t Bytes(const TensorType& type) {
  return NumElements(type.dims) * static_cast<int64_t>(SizeOf(type.dtype));
}

// The members of each fused buffer.
std::map<std::string, std::vector<int64_t>> BufferMembers(const Program& program) {
  std::map<std::string, std::vector<int64_t>> members;
  for (const Op& op : AllOps(program)) {
    if (op.type() != "coalesce_tensor") continue;
    std::vector<int64_t>& bytes = members[std::string(program.name(op.Output("FusedOutput")[0]))];
    for (Symbol input : op.Input("Input")) {
      bytes.push_back(Bytes(*DeclaredType(program.var(program.block(op.block()).Resolve(input)))));
    }
  }
  return members;
}

// Nothing is communicated but every gradient once, alone or in a bucket that was not full before it
// came, with less than a slice of padding after it.
TEST(CommunicatedBytes, AreThoseOfTheGradients) {
  rc::detail::checkGTest([](const TrainingSpec& spec) {
    const int64_t max_bytes = *rc::gen::element<int64_t>(1, 16, 64, 1024);
    const int64_t first_bytes = *rc::gen::element<int64_t>(1, 32, 2048);
    const std::string buckets =
        absl::StrCat("bytes{first_bytes=", first_bytes, ",max_bytes=", max_bytes, "}");
    const TrainingPrograms programs = BuildPrograms(spec);
    const Config alone = {"", "grad_allreduce", {{"sparse", "dense"}, {"buckets", "none"}}};
    Config fused = alone;
    fused.flags["buckets"] = buckets;
    const Rewritten one_by_one = RewriteOrDiscard(spec, programs, alone, 2);
    const Rewritten in_buckets = RewriteOrDiscard(spec, programs, fused, 2);
    std::vector<Collective> single, bucketed;
    Collect(one_by_one.main, 0, &single);
    Collect(in_buckets.main, 0, &bucketed);

    int64_t gradient_bytes = 0;
    for (const Collective& collective : single) gradient_bytes += Bytes(collective.type);
    const auto members = BufferMembers(in_buckets.main);
    constexpr int64_t kSlice = 256;
    int64_t communicated = 0;
    size_t gradients = 0;
    for (const Collective& collective : bucketed) {
      const auto buffer = members.find(collective.variable);
      if (buffer == members.end()) {
        communicated += Bytes(collective.type);
        ++gradients;
        continue;
      }
      int64_t before_last = 0, in_slices = 0;
      for (size_t i = 0; i < buffer->second.size(); ++i) {
        const int64_t bytes = buffer->second[i];
        if (i + 1 < buffer->second.size()) before_last += bytes;
        in_slices += (bytes + kSlice - 1) / kSlice * kSlice;
        communicated += bytes;
        ++gradients;
      }
      RC_ASSERT(before_last < std::max(max_bytes, first_bytes));
      RC_ASSERT(Bytes(collective.type) == in_slices);
    }
    RC_ASSERT(gradients == single.size());
    RC_ASSERT(communicated == gradient_bytes);
  });
}

const Config kConfigs[] = {
    {"GradAllReduce", "grad_allreduce"},
    {"GradAllReduceOfAnyRanks", "grad_allreduce", {}, false},
    {"GradAllReduceOnTwoRings", "grad_allreduce", {{"nrings", "2"}}},
    {"GradAllReduceThatAverages", "grad_allreduce", {{"scale", "avg"}}},
    {"GradAllReduceDense", "grad_allreduce", {{"sparse", "dense"}}},
    {"Buckets",
     "grad_allreduce",
     {{"buckets", "bytes{first_bytes=32,max_bytes=64}"}, {"nrings", "2"}}},
    {"OneByOne", "grad_allreduce", {{"buckets", "none"}, {"nrings", "2"}}},
    {"OptimalBuckets", "grad_allreduce", {{"buckets", "optimal"}}},
    {"MindSporeBuckets", "grad_allreduce", {{"buckets", "mindspore{split_indices=\"0,2\"}"}}},
    {"SingaBuckets", "grad_allreduce", {{"buckets", "singa{threshold=12,buffer_elements=24}"}}},
    {"BucketsOfTwo", "multi_thread", {{"buckets", "count{count=2}"}}, false},
    {"MultiThread", "multi_thread"},
    {"MultiThreadOneByOne", "multi_thread", {{"trans_mode", "all_reduce"}}},
    {"AllGather", "multi_thread", {{"trans_mode", "all_gather"}, {"nrings", "2"}}},
    {"SingleProcess", "single_process_multi_thread"},
    {"SingleProcessOneByOne", "single_process_multi_thread", {{"fuse", "0"}}},
    {"LocalSgd", "local_sgd"},
    {"LocalSgdOfAnyRanks", "local_sgd", {{"nrings", "2"}}, false},
    {"LocalSgdEverySecondStep", "local_sgd", {{"k_steps", "2"}}},
    {"LocalSgdOfStates",
     "local_sgd",
     {{"k_steps", "2"}, {"state", "average"}, {"statistics", "true"}}},
    {"SingaPartial", "singa_partial"},
    {"SingaPartialInTurn", "singa_partial", {{"threshold", "0"}}},
    {"OptimizerOffload", "optimizer_offload"},
    {"OptimizerOffloadWithFewSwitches", "optimizer_offload", {{"order", "few_switches"}}},
    {"EmbeddingOffload", "embedding_offload"},
    {"EmbeddingOffloadWithFewSwitches", "embedding_offload", {{"order", "few_switches"}}},
    {"BackwardOnTheHost",
     "grad_allreduce",
     {{"buckets", "none"}},
     true,
     Dialect::kWeft,
     "type:*_grad=cpu"},
    {"ProductsOnTheHost", "multi_thread", {}, true, Dialect::kWeft, "type:mul=cpu"},
    {"PaddleGradAllReduce", "grad_allreduce", {}, true, Dialect::kPaddle},
    {"PaddleMultiThread", "multi_thread", {}, true, Dialect::kPaddle},
    {"PaddleMultiThreadOneByOne",
     "multi_thread",
     {{"trans_mode", "all_reduce"}},
     true,
     Dialect::kPaddle},
    {"PaddleSingleProcess", "single_process_multi_thread", {}, true, Dialect::kPaddle},
    {"PaddleSingleProcessOneByOne",
     "single_process_multi_thread",
     {{"fuse", "0"}},
     true,
     Dialect::kPaddle},
    {"PaddleLocalSgd", "local_sgd", {}, true, Dialect::kPaddle},
};

INSTANTIATE_TEST_SUITE_P(Modes, ProgramProperties, ::testing::ValuesIn(kConfigs),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
