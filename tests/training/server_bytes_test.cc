// What `weft stats` predicts of parameter servers from programs alone is what a run counts: the
// bytes that a worker exchanges with each of them, and what they keep.
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/jobs/job_link.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "executor/servers/server_part.h"
#include "executor/servers/server_traffic.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "tools/inspect/server_stats.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int kWorkers = 2;

struct Programs {
  Program main, startup;
  absl::optional<Program> server;
};

// With all parameters on servers.
absl::StatusOr<Programs> Rewrite(const std::string& model,
                                 std::map<std::string, std::string> flags = {}) {
  WEFT_ASSIGN_OR_RETURN(Program main, ReadProgram(absl::StrCat("tests/data/", model, "/main.pb")));
  WEFT_ASSIGN_OR_RETURN(Program startup,
                        ReadProgram(absl::StrCat("tests/data/", model, "/startup.pb")));
  Programs programs{std::move(main), std::move(startup), absl::nullopt};
  TranspileOptions options;
  options.mode = "parameter_server";
  options.mode_flags = std::move(flags);
  for (VarId id : programs.main.block(0).vars()) {
    const Var var = programs.main.var(id);
    if (var.is_parameter()) options.param_attrs[std::string(var.name())].parameter_server = true;
  }
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, pair));
  programs.server = std::move(result.server);
  WEFT_ASSIGN_OR_RETURN(programs.main, Program::Parse(programs.main.Serialize()));
  return programs;
}

absl::StatusOr<RunResult> RunFor(
    const std::string& model, const Programs& programs, int servers, int64_t steps,
    const std::function<void(RunOptions*)>& change = [](RunOptions*) {}) {
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.server = &*programs.server;
  WEFT_ASSIGN_OR_RETURN(inputs.feeds,
                        FeedsFromFile(absl::StrCat("tests/data/", model, "/feeds.npz")));
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = kWorkers;
  options.num_servers = servers;
  options.steps = steps;
  change(&options);
  return RunProgram(inputs, options);
}

// The rows that a worker has for each step.
absl::StatusOr<int64_t> BatchOf(const std::string& model) {
  WEFT_ASSIGN_OR_RETURN(const FeedSource feeds,
                        FeedsFromFile(absl::StrCat("tests/data/", model, "/feeds.npz")));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> batch, feeds.read(0));
  return batch[0].dim(0) / kWorkers;
}

TEST(ServerBytes, ParametersHeldWholeAreExchangedAsPredicted) {
  constexpr char kModel[] = "mlp_momentum";
  constexpr int64_t kSteps = 3;
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewrite(kModel));
  const std::map<int64_t, KeyTraffic> keys = PredictServerTraffic(programs.main, /*batch=*/1);
  for (int servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunFor(kModel, programs, servers, kSteps));
    ASSERT_EQ(result.server_traffic.size(), static_cast<size_t>(servers));
    std::vector<ServerTraffic> expected(servers);
    for (const auto& [key, traffic] : keys) {
      EXPECT_FALSE(traffic.is_table);
      EXPECT_EQ(traffic.unknown, 0);
      ServerTraffic& of_server = expected[ServerOfKey(key, servers)];
      of_server.pushed.messages += kSteps * traffic.pushes;
      of_server.pushed.bytes += kSteps * traffic.pushed_bytes;
      of_server.pulled.messages += kSteps * traffic.pulls;
      of_server.pulled.bytes += kSteps * traffic.pulled_bytes;
    }
    for (int server = 0; server < servers; ++server) {
      const ServerTraffic& found = result.server_traffic[server];
      EXPECT_GT(found.pushed.bytes, 0);
      EXPECT_EQ(found.pushed.messages, expected[server].pushed.messages);
      EXPECT_EQ(found.pushed.bytes, expected[server].pushed.bytes);
      EXPECT_EQ(found.pulled.messages, expected[server].pulled.messages);
      EXPECT_EQ(found.pulled.bytes, expected[server].pulled.bytes);
      EXPECT_EQ(found.asked.messages, found.pulled.messages);
    }
  }
}

TEST(ServerBytes, RowsOfTablesAreExchangedAsPredicted) {
  constexpr char kModel[] = "word2vec_sparse_sgd";
  constexpr int64_t kSteps = 3;
  constexpr int kServers = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewrite(kModel));
  WEFT_ASSERT_OK_AND_ASSIGN(const int64_t batch, BatchOf(kModel));
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunFor(kModel, programs, kServers, kSteps));
  ServerTraffic found;
  for (const ServerTraffic& of_server : result.server_traffic) {
    found.pushed.bytes += of_server.pushed.bytes;
    found.asked.bytes += of_server.asked.bytes;
    found.pulled.bytes += of_server.pulled.bytes;
  }
  std::vector<KeyTraffic> tables;
  for (const auto& [key, traffic] : PredictServerTraffic(programs.main, batch)) {
    EXPECT_EQ(traffic.unknown, 0);
    if (traffic.is_table) tables.push_back(traffic);
    found.pushed.bytes -= kSteps * (traffic.pushed_bytes + kServers * traffic.pushed_to_each_bytes);
    found.pulled.bytes -= kSteps * traffic.pulled_bytes;
  }
  // What is left are rows.
  ASSERT_EQ(tables.size(), 1U);
  EXPECT_GT(result.rows.pulled, 0);
  EXPECT_LE(result.rows.pulled, kSteps * tables[0].most_pulled_rows);
  EXPECT_EQ(found.asked.bytes, result.rows.pulled * tables[0].asked_row_bytes);
  EXPECT_EQ(found.pulled.bytes, result.rows.pulled * tables[0].pulled_row_bytes);
  EXPECT_GT(found.pushed.bytes, 0);
  EXPECT_EQ(found.pushed.bytes % tables[0].pushed_row_bytes, 0);
  EXPECT_LE(found.pushed.bytes, kSteps * tables[0].most_pushed_rows * tables[0].pushed_row_bytes);
}

TEST(ServerBytes, ServersKeepWhatIsPredicted) {
  for (const char* model : {"mlp_momentum", "word2vec_sparse_adam"}) {
    SCOPED_TRACE(model);
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewrite(model));
    for (int servers : {1, 2}) {
      SCOPED_TRACE(servers);
      WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<ServedBytes> expected,
                                PredictServedBytes(*programs.server, servers));
      WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunFor(model, programs, servers, 2));
      ASSERT_EQ(result.server_memory.size(), expected.size());
      for (int server = 0; server < servers; ++server) {
        const ServerMemory& found = result.server_memory[server];
        EXPECT_GT(found.parameters, 0);
        EXPECT_EQ(found.parameters, expected[server].parameters);
        EXPECT_EQ(found.state, expected[server].state);
        EXPECT_GT(found.pushes, 0);
        // No worker is ahead by a push: it needs the update of each.
        if (expected[server].row_tables == 0) {
          EXPECT_LE(found.pushes, kWorkers * expected[server].push);
        }
      }
      for (const auto& [name, value] : result.persistables) EXPECT_NE(name[0], '@') << name;
    }
  }
}

// The bytes that process 1 gets from process 0, where two processes of one worker and one of a
// server train, and the result of process 0.
absl::StatusOr<RunResult> RunProcesses(const std::string& model, const Programs& programs,
                                       bool returns_persistables, int64_t* received_bytes) {
  constexpr int kProcesses = kWorkers + 1;
  JobLinkOptions at;
  at.address = NewTestAddress();
  at.token = kTestToken;
  at.num_processes = kProcesses;
  const LinkRelay relay(at.address);
  std::vector<absl::StatusOr<RunResult>> results(kProcesses);
  std::vector<std::thread> threads;
  for (int p = 0; p < kProcesses; ++p) {
    threads.emplace_back([&, p] {
      JobLinkOptions options = at;
      options.process = p;
      if (p == 1) options.address = relay.address();
      const absl::StatusOr<std::unique_ptr<JobLink>> link = NewJobLink(options);
      if (!link.ok()) {
        results[p] = link.status();
        return;
      }
      results[p] = RunFor(model, programs, 1, 2, [&](RunOptions* run) {
        run->link = link->get();
        run->returns_persistables = returns_persistables;
      });
      EXPECT_EQ((*link)->Finish(), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  *received_bytes = relay.received_bytes();
  for (const auto& result : results) WEFT_RETURN_IF_ERROR(result.status());
  for (int p = 1; p < kProcesses; ++p) EXPECT_TRUE(results[p]->persistables.empty());
  return std::move(results[0]);
}

TEST(ServerBytes, ValuesToSaveGoToProcessZeroAlone) {
  constexpr char kModel[] = "word2vec_sparse_adam";
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewrite(kModel));
  int64_t with_values = 0, without_values = 0;
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result,
                            RunProcesses(kModel, programs, true, &with_values));
  WEFT_ASSERT_OK(RunProcesses(kModel, programs, false, &without_values).status());
  int64_t bytes = 0;
  for (const auto& [name, value] : result.persistables) bytes += value.bytes();
  ASSERT_GT(bytes, 10000);
  EXPECT_LT(with_values - without_values, bytes / 10);
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult expected, RunFor(kModel, programs, 1, 2));
  EXPECT_EQ(result.persistables.size(), expected.persistables.size());
  for (const auto& [name, value] : expected.persistables) {
    const Tensor& found = result.persistables.at(name);
    ASSERT_EQ(found.bytes(), value.bytes()) << name;
    EXPECT_EQ(std::memcmp(found.raw(), value.raw(), value.bytes()), 0) << name;
  }
}

}  // namespace
}  // namespace weft::testing
