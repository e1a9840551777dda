// Training with parameter servers gives the bits of an all-reduce, whatever the servers hold and
// however many they are.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/files/params_file.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "tests/training/read_ahead_gate.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr int kWorkers = 2;

struct Programs {
  Program main, startup;
  absl::optional<Program> server;
};

struct Trained {
  std::vector<Tensors> losses;  // by step and worker, in order
  Tensors persistables;
  RowTraffic rows;
};

std::string PathOf(const std::string& model, const std::string& file) {
  return absl::StrCat("tests/data/", model, "/", file);
}

// The parameters of a model.
std::set<std::string> ParamsOf(const Program& main) {
  std::set<std::string> params;
  for (VarId id : main.block(0).vars()) {
    if (main.var(id).is_parameter()) params.insert(std::string(main.var(id).name()));
  }
  return params;
}

// With these parameters on servers; none: all-reduce alone. `optimizer`: options of set-optimizer;
// empty: that of the model.
absl::StatusOr<Programs> Rewrite(const std::string& model, const std::set<std::string>& on_servers,
                                 const std::map<std::string, std::string>& flags = {},
                                 const std::string& place = "", const std::string& optimizer = "") {
  WEFT_ASSIGN_OR_RETURN(Program main, ReadProgram(PathOf(model, "main.pb")));
  WEFT_ASSIGN_OR_RETURN(Program startup, ReadProgram(PathOf(model, "startup.pb")));
  Programs programs{std::move(main), std::move(startup), absl::nullopt};
  TranspileOptions options;
  options.mode = on_servers.empty() ? "grad_allreduce" : "parameter_server";
  options.mode_flags = flags;
  options.mode_flags["sparse"] = "rows";
  options.placement.place = place;
  for (const std::string& param : on_servers) options.param_attrs[param].parameter_server = true;
  ProgramPair pair{&programs.main, &programs.startup};
  if (!optimizer.empty()) {
    TranspileOptions first;
    first.passes = absl::StrCat("set-optimizer", optimizer);
    WEFT_RETURN_IF_ERROR(Transpile(first, pair).status());
  }
  WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, pair));
  programs.server = std::move(result.server);
  // As from a file, without the variables that the passes have erased.
  WEFT_ASSIGN_OR_RETURN(programs.main, Program::Parse(programs.main.Serialize()));
  return programs;
}

struct ServerRun {
  int servers = 0;
  int64_t steps = 4, begin_step = 0;
  const Checkpoint* resume = nullptr;
  Checkpoint* checkpoint = nullptr;  // receives the last one
  bool from_startup = false;         // with the draws of the startup program
  int64_t startup_part_bytes = 16 << 20;
};

absl::StatusOr<Trained> Train(const std::string& model, const Programs& programs,
                              const ServerRun& run) {
  WEFT_ASSIGN_OR_RETURN(const Tensors init, LoadParams(PathOf(model, "init.params"),
                                                       PathOf(model, "persistables.txt")));
  WEFT_ASSIGN_OR_RETURN(const FeedSource feeds, FeedsFromFile(PathOf(model, "feeds.npz")));
  Trained trained;
  testing::ReadAheadGate gate(run.begin_step, run.steps);
  const KernelTable kernels = gate.KernelsThatWait("softmax_with_cross_entropy");
  RunOptions options;
  options.kernels = &kernels;
  options.nranks = kWorkers;
  options.num_servers = run.servers;
  options.steps = run.steps;
  options.begin_step = run.begin_step;
  options.timeout_s = 60;
  options.startup_part_bytes = run.startup_part_bytes;
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.server = programs.server.has_value() ? &*programs.server : nullptr;
  if (!run.from_startup) inputs.params = &init;
  inputs.resume = run.resume;
  inputs.feeds = gate.Watch(feeds);
  inputs.on_result = [&trained](const StepResult& result) -> absl::Status {
    Tensors& losses = trained.losses.emplace_back();
    for (size_t i = 0; i < result.values.size(); ++i) {
      WEFT_RETURN_IF_ERROR(losses[absl::StrCat(i)].CopyFrom(result.values[i]));
    }
    return absl::OkStatus();
  };
  if (run.checkpoint != nullptr) {
    inputs.on_checkpoint = [&run](Checkpoint checkpoint) -> absl::Status {
      // The tensors belong to the ranks.
      const auto keep = [](Tensors* tensors) {
        for (auto& [name, tensor] : *tensors) tensor = tensor.Clone();
      };
      keep(&checkpoint.shared);
      for (Tensors& own : checkpoint.own) keep(&own);
      *run.checkpoint = std::move(checkpoint);
      return absl::OkStatus();
    };
  }
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
  trained.persistables = std::move(result.persistables);
  trained.rows = result.rows;
  return trained;
}

// The names of tensors that differ in a bit, or that only one of the two has.
std::vector<std::string> Differences(const Tensors& a, const Tensors& b) {
  std::vector<std::string> different;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    const bool is_same = other != b.end() && tensor.dims() == other->second.dims() &&
                         tensor.dtype() == other->second.dtype() &&
                         std::memcmp(tensor.raw(), other->second.raw(), tensor.bytes()) == 0;
    if (!is_same) different.push_back(name);
  }
  for (const auto& [name, tensor] : b) {
    if (a.count(name) == 0) different.push_back(name);
  }
  return different;
}

void ExpectSameBits(const Trained& expected, const Trained& found) {
  EXPECT_THAT(Differences(expected.persistables, found.persistables), SizeIs(0));
  ASSERT_EQ(expected.losses.size(), found.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_THAT(Differences(expected.losses[i], found.losses[i]), SizeIs(0)) << "result " << i;
  }
}

class TrainServersTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string Model() { return GetParam(); }
  static std::set<std::string> AllParams() {
    return ParamsOf(*ReadProgram(PathOf(Model(), "main.pb")));
  }
};

TEST_P(TrainServersTest, AllParametersOnServersTrainToTheBitsOfAnAllReduce) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs reduced, Rewrite(Model(), {}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), reduced, {}));
  for (const char* wait : {"per_key", "all_keys"}) {
    SCOPED_TRACE(wait);
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs served,
                              Rewrite(Model(), AllParams(), {{"wait", wait}}));
    for (int servers : {1, 2}) {
      SCOPED_TRACE(servers);
      ServerRun run;
      run.servers = servers;
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), served, run));
      ExpectSameBits(expected, found);
    }
  }
}

TEST_P(TrainServersTest, OtherParametersAreReduced) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs reduced, Rewrite(Model(), {}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), reduced, {}));
  const std::set<std::string> all = AllParams();
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs served, Rewrite(Model(), {*all.begin()}));
  ServerRun run;
  run.servers = 1;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), served, run));
  ExpectSameBits(expected, found);
}

// Gradients on the host, and the rest of the worker on an accelerator.
TEST_P(TrainServersTest, PlacedWorkersTrainToTheSameBits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs reduced, Rewrite(Model(), {}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), reduced, {}));
  std::map<std::string, std::string> flags;
  if (absl::StrContains(Model(), "word2vec")) flags["prefetch_rows"] = "on";
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs placed,
                            Rewrite(Model(), AllParams(), flags, "type:*_grad=cpu"));
  ServerRun run;
  run.servers = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), placed, run));
  ExpectSameBits(expected, found);
  EXPECT_EQ(found.rows.prefetched > 0, !flags.empty());
}

// Each rank draws all values, and keeps its part before it draws the next ones.
TEST_P(TrainServersTest, StartValuesInPartsAreThoseOfTheWhole) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs reduced, Rewrite(Model(), {}));
  ServerRun run;
  run.from_startup = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), reduced, run));
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs served, Rewrite(Model(), AllParams()));
  run.servers = 2;
  for (const int64_t bytes : {1 << 24, 1}) {
    SCOPED_TRACE(bytes);
    run.startup_part_bytes = bytes;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), served, run));
    ExpectSameBits(expected, found);
  }
}

// Servers have velocities and mean squares, and workers send what decays.
TEST_P(TrainServersTest, ScheduledMomentumTrainToTheBitsOfAnAllReduce) {
  for (const char* optimizer :
       {"{type=sgd,lr=0.1,momentum=exp(0.9:2:0.9)}",
        "{type=sgd,lr=0.1,momentum=exp(0.9:2:0.5),nesterov=true,weight_decay=0.01}",
        "{type=rmsprop,lr=0.1,rho=exp(0.9:2:0.5)}", "{type=adagrad,lr=0.1}",
        "{type=adam,lr=0.1,beta_1=exp(0.9:3:0.9)}",
        "{type=adam,lr=0.1,beta_1=exp(0.9:3:0.9),beta_2=exp(0.99:3:0.9)}"}) {
    SCOPED_TRACE(optimizer);
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs reduced, Rewrite(Model(), {}, {}, "", optimizer));
    ServerRun run;
    run.from_startup = true;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), reduced, run));
    const std::set<std::string> all = AllParams();
    for (const auto& on_servers : {all, std::set<std::string>{*all.begin()}}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const Programs served,
                                Rewrite(Model(), on_servers, {}, "", optimizer));
      run.servers = on_servers.size() > 1 ? 2 : 1;
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), served, run));
      ExpectSameBits(expected, found);
    }
  }
}

TEST_P(TrainServersTest, ResumedRunGoesOnWithTheSameBits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs served, Rewrite(Model(), AllParams()));
  ServerRun whole;
  whole.servers = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), served, whole));
  Checkpoint checkpoint;
  ServerRun first = whole;
  first.steps = 2;
  first.checkpoint = &checkpoint;
  WEFT_ASSERT_OK(Train(Model(), served, first).status());
  EXPECT_EQ(checkpoint.num_servers, 2);
  EXPECT_EQ(checkpoint.nranks, kWorkers + 2);
  ServerRun second = whole;
  second.steps = 2;
  second.begin_step = 2;
  second.resume = &checkpoint;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), served, second));
  EXPECT_THAT(Differences(expected.persistables, found.persistables), SizeIs(0));
}

TEST_P(TrainServersTest, AsynchronousUpdatesRunToTheEnd) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs served,
                            Rewrite(Model(), AllParams(), {{"async", "on"}, {"staleness", "1"}}));
  ServerRun run;
  run.servers = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), served, run));
  EXPECT_THAT(found.losses, SizeIs(4 * kWorkers));
}

INSTANTIATE_TEST_SUITE_P(Models, TrainServersTest,
                         ::testing::Values("mlp_momentum", "word2vec_sparse_sgd",
                                           "word2vec_sparse_adam", "wide_deep"));

// --- Rows of the next step -----------------------------------------------------------------------

const std::map<std::string, std::string> kPrefetches = {{"prefetch_rows", "on"}};

// Of models with tables.
class PrefetchedRowsTest : public TrainServersTest {};

TEST_P(PrefetchedRowsTest, PrefetchedRowsTrainToTheSameBits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs pulling, Rewrite(Model(), AllParams()));
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs prefetching, Rewrite(Model(), AllParams(), kPrefetches));
  for (int servers : {1, 2}) {
    SCOPED_TRACE(servers);
    ServerRun run;
    run.servers = servers;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), pulling, run));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), prefetching, run));
    ExpectSameBits(expected, found);
    EXPECT_EQ(expected.rows.prefetched, 0);
    EXPECT_GT(found.rows.prefetched, 0);
    EXPECT_EQ(found.rows.prefetched + found.rows.pulled, expected.rows.pulled);
    EXPECT_LE(found.rows.changed, found.rows.prefetched);
    EXPECT_GT(found.rows.changed, 0);
  }
}

TEST_P(PrefetchedRowsTest, ResumedRunGoesOnWithTheSameBits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs prefetching, Rewrite(Model(), AllParams(), kPrefetches));
  ServerRun whole;
  whole.servers = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(Model(), prefetching, whole));
  Checkpoint checkpoint;
  ServerRun first = whole;
  first.steps = 2;
  first.checkpoint = &checkpoint;
  WEFT_ASSERT_OK(Train(Model(), prefetching, first).status());
  ServerRun second = whole;
  second.steps = 2;
  second.begin_step = 2;
  second.resume = &checkpoint;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), prefetching, second));
  EXPECT_THAT(Differences(expected.persistables, found.persistables), SizeIs(0));
}

TEST_P(PrefetchedRowsTest, AsynchronousUpdatesRunToTheEnd) {
  for (const char* staleness : {"0", "2"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(
        const Programs prefetching,
        Rewrite(Model(), AllParams(),
                {{"async", "on"}, {"staleness", staleness}, {"prefetch_rows", "on"}}));
    ServerRun run;
    run.servers = 2;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(Model(), prefetching, run));
    EXPECT_THAT(found.losses, SizeIs(4 * kWorkers));
    EXPECT_GT(found.rows.prefetched, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PrefetchedRowsTest,
                         ::testing::Values("word2vec_sparse_sgd", "word2vec_sparse_adam"));

// A step of what workers push, by worker, and of what they then pull.
struct Pushed {
  std::vector<float> grads;
  std::vector<float> pulled;
};

// Of MindSpore's rule: the sum of all pushes is divided by the number of workers.
struct MomentumCase {
  float mu;
  std::vector<float> start;
  std::vector<Pushed> steps;
};

const std::vector<MomentumCase>& MomentumCases() {
  static const auto* const cases = new std::vector<MomentumCase>{
      {0.9f,
       {1.616643f, 0.6858892f, -0.06341941f},
       {{{-1.3179318f, -1.661934f, -0.30421734f, -0.06957757f, -1.587964f, -1.3015597f},
         {1.6860185f, 0.8483841f, 0.01686944f}},
        {{-0.0058908765f, -2.182202f, -1.6888851f, -0.016890077f, 0.5960716f, 0.35397193f},
         {1.7495954f, 1.073936f, 0.15587506f}},
        {{1.033588f, 1.6130226f, 0.9331129f, -0.22984917f, 2.1673205f, 1.7217345f},
         {1.7666277f, 1.0879155f, 0.14823774f}},
        {{0.9783827f, -0.7729743f, 0.44185367f, -2.053484f, -0.29137623f, -2.4479194f},
         {1.8357118f, 1.1537147f, 0.24166742f}}}},
      {0.0f,
       {-0.37813076f, 1.0693433f, 0.06269414f},
       {{{1.6612642f, 0.045111623f, 0.14842434f, -0.2549331f, 0.5807154f, 0.015363491f, 1.2521513f,
          1.6643043f, 0.42503768f},
         {-0.46674684f, 0.99300563f, 0.04306662f}},
        {{-1.07245f, 0.6129501f, 1.4101061f, 0.70605797f, 0.34787536f, 0.99736404f, 1.3753638f,
          -2.555943f, 1.5771961f},
         {-0.5003792f, 1.0461762f, -0.089755595f}},
        {{0.8320421f, 0.5396414f, -0.4980361f, 0.28456277f, 0.6663633f, -1.42693f, 0.80762154f,
          0.13022822f, 1.5275612f},
         {-0.56452006f, 1.0016351f, -0.07650877f}}}}};
  return *cases;
}

Tensor FloatTensor(const Dims& dims, const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, dims);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

void ExpectNear(const std::vector<float>& expected, const Tensor& found) {
  ASSERT_EQ(found.size(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found.data<float>()[i], expected[i], 2e-6 * std::abs(expected[i]) + 1e-8) << i;
  }
}

TEST(TrainServers, MomentumOnAServerFollowsTheRule) {
  const Program worker = testing::CompactProgram(R"(
    var g : fp32[-1, 3] need_check_feed
    var w : fp32[3]
    var pulled : fp32[3]
    var lr : fp32[1] persistable
    var grad : fp32[3]
    ps_prefetch() {keys=ints[0]}
    Out=[w] = ps_pull() {server_key=0, shape=longs[3]}
    Out=[pulled] = assign(X=[w])
    Out=[grad] = reduce_sum(X=[g]) {dim=ints[0]}
    ps_push(Grad=[grad], LearningRate=[lr]) role=optimize {server_key=0}
  )");
  for (const MomentumCase& one : MomentumCases()) {
    const Program server = testing::CompactProgram(absl::StrCat(R"(
      var w : fp32[3] parameter persistable
      var v : fp32[3] persistable
      var lr : fp32[1]
      var grad : fp32[3]
      Grad=[grad], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, shape=longs[3]}
      ParamOut=[w], VelocityOut=[v] = momentum(Grad=[grad], LearningRate=[lr], Param=[w], Velocity=[v]) role=optimize {server_key=0, mu=)",
                                                                one.mu == 0 ? "0.0" : "0.9", R"(}
      ps_serve(X=[w]) role=optimize {server_key=0}
    )"));
    const int workers = static_cast<int>(one.steps[0].grads.size()) / 3;
    SCOPED_TRACE(workers);
    Tensors params;
    params["w"] = FloatTensor({3}, one.start);
    params["v"] = FloatTensor({3}, {0, 0, 0});
    params["lr"] = FloatTensor({1}, {0.1f});
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = workers;
    options.num_servers = 1;
    options.steps = static_cast<int64_t>(one.steps.size());
    options.fetch = {"pulled"};
    RunInputs inputs;
    inputs.main = &worker;
    inputs.server = &server;
    inputs.params = &params;
    inputs.feeds = {{"g"}, [&](int64_t step) {
                      return std::vector<Tensor>{FloatTensor({workers, 3}, one.steps[step].grads)};
                    }};
    inputs.on_result = [&](const StepResult& result) {
      ExpectNear(result.step == 0 ? one.start : one.steps[result.step - 1].pulled,
                 result.values[0]);
      return absl::OkStatus();
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(inputs, options));
    ExpectNear(one.steps.back().pulled, result.persistables.at("w"));
  }
}

TEST(TrainServers, ProgramForWorkersNeedsServers) {
  WEFT_ASSERT_OK_AND_ASSIGN(Programs served, Rewrite("mlp_momentum", {"fc_0.w_0"}));
  served.server.reset();
  EXPECT_THAT(Train("mlp_momentum", served, {}),
              IsFailedPrecondition("(ps_prefetch): expected parameter servers"));
}

TEST(TrainServers, MoreServersThanParametersAreRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs served, Rewrite("mlp_momentum", {"fc_0.w_0"}));
  ServerRun run;
  run.servers = 2;
  EXPECT_THAT(Train("mlp_momentum", served, run),
              IsFailedPrecondition("server 1 of 2 would hold nothing"));
}

}  // namespace
}  // namespace weft::testing
