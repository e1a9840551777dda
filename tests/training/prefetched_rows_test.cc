// Rows of tables on servers that workers prefetch a step ahead: the same values, while the step
// before runs, in bounded memory.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "tests/training/read_ahead_gate.h"

namespace weft::testing {
namespace {

// Rows that a worker looks up get its value `g` as their gradient. It waits until the next batch is
// read (scale), looks up, and may compute for a while before it pushes.
constexpr char kWorker[] = R"(program {
  block 0 parent=-1 {
    var ids : int64[-1] need_check_feed
    var g : fp32[-1, COLUMNS] need_check_feed
    var slow : bool[-1] need_check_feed
    var big : fp32[256, 256] persistable
    var product : fp32[256, 256]
    var lr : fp32[1] persistable
    var waited : fp32[1]
    var rows : fp32[-1, COLUMNS]
    var table@GRAD : selected_rows<fp32[ROWS, COLUMNS]>
    Out=[waited] = scale(X=[lr])
    Out=[rows] = ps_lookup(Ids=[ids]) {server_key=0, shape=longs[ROWS, COLUMNS], table_op="lookup_table_v2", padding_idx=long(PADDING), prefetch=PREFETCH}
    conditional_block(Cond=[slow], Input=[big]) {is_scalar_condition=true, sub_block=block(1)}
    W@GRAD=[table@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[g]) role=backward {server_key=0, shape=longs[ROWS, COLUMNS], table_op="lookup_table_v2", padding_idx=long(PADDING)}
    ps_push(Grad=[table@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
  }
  block 1 parent=0 {
    Out=[product] = matmul_v2(X=[big], Y=[big])
    Out=[product] = matmul_v2(X=[big], Y=[big])
  }
})";
constexpr char kServer[] = R"(program {
  block 0 parent=-1 {
    var table : fp32[ROWS, COLUMNS] parameter persistable
    var lr : fp32[1]
    var table@GRAD : selected_rows<fp32[ROWS, COLUMNS]>
    Grad=[table@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, is_sparse=true, averages=false, is_async=ASYNC, shape=longs[ROWS, COLUMNS]}
    ParamOut=[table] = sgd(Grad=[table@GRAD], LearningRate=[lr], Param=[table]) role=optimize {server_key=0}
    ps_serve(X=[table]) role=optimize {server_key=0, by_rows=true, is_async=ASYNC, staleness=STALENESS}
  }
})";

// Of one worker in a step; empty ids are not possible.
using Batch = std::vector<int64_t>;

struct Job {
  int64_t rows = 8, columns = 1, padding = -1;
  int workers = 1, servers = 1;
  bool prefetches = true, is_async = false;
  int64_t staleness = 0;
  std::vector<bool> slow = {false};              // by worker
  std::vector<float> gradient = {1};             // by worker
  std::vector<std::vector<Batch>> batches = {};  // by step and worker: equally many in a step
  std::function<void(const StepResult&)> on_result = nullptr;
  std::function<void(const StepTrace&)> on_trace = nullptr;
};

struct Ran {
  std::vector<std::string> rows;  // by step and worker: bits
  Tensor table;
  RowTraffic traffic;  // of worker 0
};

std::vector<Tensor> FeedsOf(const Job& job, int64_t step) {
  std::vector<int64_t> ids;
  std::vector<float> gradients;
  for (int worker = 0; worker < job.workers; ++worker) {
    const Batch& batch = job.batches[step][worker];
    ids.insert(ids.end(), batch.begin(), batch.end());
    gradients.insert(gradients.end(), batch.size() * job.columns, job.gradient[worker]);
  }
  const auto count = static_cast<int64_t>(ids.size());
  return {Int64s({count}, ids), Floats({count, job.columns}, gradients),
          MakeTensor<bool>({job.workers}, job.slow)};
}

absl::StatusOr<Ran> Train(const Job& job) {
  const auto text = [&job](const char* program) {
    const auto flag = [](bool is_on) { return is_on ? "true" : "false"; };
    return absl::StrReplaceAll(program, {{"ROWS", absl::StrCat(job.rows)},
                                         {"COLUMNS", absl::StrCat(job.columns)},
                                         {"PADDING", absl::StrCat(job.padding)},
                                         {"PREFETCH", flag(job.prefetches)},
                                         {"ASYNC", flag(job.is_async)},
                                         {"STALENESS", absl::StrCat(job.staleness)}});
  };
  WEFT_ASSIGN_OR_RETURN(const Program worker, ParseProgramText(text(kWorker)));
  WEFT_ASSIGN_OR_RETURN(const Program server, ParseProgramText(text(kServer)));
  const std::map<std::string, Tensor> params = {
      {"table", Floats({job.rows, job.columns}, std::vector<float>(job.rows * job.columns, 0))},
      {"lr", Floats({1}, {-1})},
      {"big", Floats({256, 256}, std::vector<float>(256 * 256, 0))}};
  const auto steps = static_cast<int64_t>(job.batches.size());
  testing::ReadAheadGate gate(0, steps);
  const KernelTable kernels = gate.KernelsThatWait("scale");
  RunOptions options;
  options.kernels = job.prefetches ? &kernels : &CpuKernels();
  options.nranks = job.workers;
  options.num_servers = job.servers;
  options.steps = steps;
  options.fetch = {"rows"};
  options.timeout_s = 30;
  Ran ran;
  RunInputs inputs;
  inputs.main = &worker;
  inputs.server = &server;
  inputs.params = &params;
  inputs.feeds = gate.Watch(
      {{"ids", "g", "slow"},
       [&job](int64_t step) -> absl::StatusOr<std::vector<Tensor>> { return FeedsOf(job, step); }});
  inputs.on_result = [&](const StepResult& result) {
    if (job.on_result) job.on_result(result);
    const Tensor& rows = result.values[0];
    ran.rows.emplace_back(static_cast<const char*>(rows.raw()), rows.bytes());
    return absl::OkStatus();
  };
  if (job.on_trace) {
    inputs.on_trace = [&job](const StepTrace& trace) {
      job.on_trace(trace);
      return absl::OkStatus();
    };
  }
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  ran.table = result.persistables.at("table").Clone();
  ran.traffic = result.rows;
  return ran;
}

// What the servers of a sequential run would send.
struct Counts {
  int64_t rows = 0;     // that worker 0 looks up, each once in a step
  int64_t changed = 0;  // of these, that the step before has updated
  int64_t first = 0;    // rows of the first step, which pulls
  int64_t last = 0;     // rows of the last one: its batch may be late
};
Counts CountsOf(const Job& job) {
  Counts counts;
  std::set<int64_t> updated;
  for (const std::vector<Batch>& step : job.batches) {
    std::set<int64_t> wanted(step[0].begin(), step[0].end());
    wanted.erase(job.padding);
    counts.rows += static_cast<int64_t>(wanted.size());
    counts.last = static_cast<int64_t>(wanted.size());
    if (&step == &job.batches.front()) counts.first = counts.last;
    for (int64_t row : wanted) counts.changed += updated.count(row);
    updated.clear();
    for (const Batch& batch : step) updated.insert(batch.begin(), batch.end());
    updated.erase(job.padding);
  }
  return counts;
}

// Two workers, and batches of changing sizes, with duplicates and padding.
Job Varied(int64_t steps) {
  Job job;
  job.rows = 40;
  job.columns = 3;
  job.padding = 7;
  job.workers = job.servers = 2;
  job.slow = {false, false};
  job.gradient = {1, 0.125};
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Batch>& of_step = job.batches.emplace_back(2);
    const int64_t size = 1 + (5 * step) % 9;
    for (int64_t worker : {0, 1}) {
      for (int64_t i = 0; i < size; ++i) {
        of_step[worker].push_back((7 * i * i + 3 * step * (1 + i) + 5 * worker) % job.rows);
      }
    }
  }
  return job;
}

TEST(PrefetchedRows, HaveTheBitsOfRowsThatArePulled) {
  Job job = Varied(60);
  const Counts counts = CountsOf(job);
  ASSERT_GT(counts.changed, 20);
  WEFT_ASSERT_OK_AND_ASSIGN(const Ran prefetched, Train(job));
  job.prefetches = false;
  WEFT_ASSERT_OK_AND_ASSIGN(const Ran pulled, Train(job));
  EXPECT_EQ(prefetched.rows, pulled.rows);
  EXPECT_EQ(std::memcmp(prefetched.table.raw(), pulled.table.raw(), pulled.table.bytes()), 0);
  EXPECT_EQ(pulled.traffic.pulled, counts.rows);
  EXPECT_EQ(pulled.traffic.prefetched, 0);
  EXPECT_EQ(pulled.traffic.waited_bytes, counts.rows * job.columns * 4);
  EXPECT_EQ(prefetched.traffic.pulled + prefetched.traffic.prefetched, counts.rows);
  EXPECT_GE(prefetched.traffic.prefetched, counts.rows - counts.first - counts.last);
  EXPECT_LE(prefetched.traffic.changed, prefetched.traffic.prefetched);
  EXPECT_LT(prefetched.traffic.waited_bytes, pulled.traffic.waited_bytes);
}

TEST(PrefetchedRows, ThoseThatTheStepHasUpdatedAloneComeAgain) {
  Job job;
  for (int i = 0; i < 10; ++i) {
    for (const Batch& batch : std::vector<Batch>{{0, 1}, {1, 2, 3}, {4}, {4, 4, 0}}) {
      job.batches.push_back({batch});
    }
  }
  const Counts counts = CountsOf(job);
  WEFT_ASSERT_OK_AND_ASSIGN(const Ran ran, Train(job));
  EXPECT_GE(ran.traffic.prefetched, counts.rows - counts.first - counts.last);
  EXPECT_EQ(counts.last, 2);  // ids 0 and 4, of which the step before has updated 4
  const bool has_last = ran.traffic.prefetched + counts.first == counts.rows;
  EXPECT_EQ(ran.traffic.changed, counts.changed - (has_last ? 0 : 1));
}

TEST(PrefetchedRows, RowThatTheTableLacksIsAnErrorOfItsStep) {
  Job job;
  job.batches = {{{0}}, {{1}}, {{2, 8}}, {{3}}};
  std::vector<int64_t> done;
  job.on_result = [&done](const StepResult& result) { done.push_back(result.step); };
  EXPECT_THAT(Train(job), IsInvalidArgument("step 2, rank 0: op 1 (ps_lookup): input Ids: 8 at "
                                            "position 1 is not in [0, 8), the rows of table"));
  EXPECT_THAT(done, ElementsAre(0, 1));
}

TEST(PrefetchedRows, ComeWhileTheStepBeforeComputes) {
  Job job;
  job.slow = {true};
  job.batches.assign(12, {{1, 2}});
  std::map<int64_t, OpSpan> computed;  // by step: from the end of the lookup to the push
  int64_t prefetches = 0, overlapping = 0;
  job.on_trace = [&](const StepTrace& trace) {
    for (const PrefetchSpan& prefetch : trace.prefetches) {
      ++prefetches;
      EXPECT_EQ(prefetch.table, "table");
      EXPECT_EQ(prefetch.rows, 2);
      EXPECT_EQ(prefetch.changed, 2);
      const OpSpan& before = computed.at(trace.step - 1);
      overlapping +=
          prefetch.begin < before.end && prefetch.end > before.begin && prefetch.end < before.end;
    }
    OpSpan& span = computed[trace.step];
    for (const OpSpan& op : trace.spans[0]) {
      const std::string& type = trace.plan->ops[op.op].type;
      if (type == "ps_lookup") span.begin = op.begin;
      if (type == "ps_push") span.end = op.begin;
    }
  };
  WEFT_ASSERT_OK(Train(job).status());
  EXPECT_GE(prefetches, 10);
  EXPECT_GT(overlapping, 0);
}

// One row that both workers look up: it counts updates, 1 for each of worker 0, and 1024 for each
// of worker 1, which computes for longer.
TEST(PrefetchedRows, AsynchronousWorkersStayWithinTheStaleness) {
  for (const int64_t staleness : {0, 3}) {
    SCOPED_TRACE(staleness);
    Job job;
    job.workers = 2;
    job.is_async = true;
    job.staleness = staleness;
    job.slow = {false, true};
    job.gradient = {1, 1024};
    job.batches.assign(40, {{5}, {5}});
    job.on_result = [&](const StepResult& result) {
      const auto updates = static_cast<int64_t>(*result.values[0].data<float>());
      const int64_t own = result.rank == 0 ? updates % 1024 : updates / 1024;
      const int64_t of_other = result.rank == 0 ? updates / 1024 : updates % 1024;
      const std::string where = absl::StrCat("step ", result.step, ", worker ", result.rank);
      EXPECT_GE(of_other, result.step - staleness) << where;
      EXPECT_LE(own, result.step) << where;
      EXPECT_GE(own, result.step - staleness) << where;
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const Ran ran, Train(job));
    EXPECT_EQ(ran.table.data<float>()[5], 1025 * 40) << "no update is lost";
  }
}

// A worker and a server keep a batch each.
TEST(PrefetchedRows, MemoryDoesNotGrowWithTheSteps) {
  constexpr int64_t kRows = 4000, kBatchBytes = kRows * 64 * 4, kSteps = 40;
  Job job;
  job.rows = kRows;
  job.columns = 64;
  Batch all;
  for (int64_t row = 0; row < kRows; ++row) all.push_back(row);
  job.batches.assign(kSteps, {all});
  std::vector<int64_t> live;
  job.on_result = [&live](const StepResult&) {
    const struct mallinfo2 info = mallinfo2();
    live.push_back(static_cast<int64_t>(info.uordblks + info.hblkhd));
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const Ran ran, Train(job));
  EXPECT_GE(ran.traffic.prefetched, kRows * (kSteps - 2));
  const auto most = [&](int64_t begin, int64_t end) {
    return *std::max_element(live.begin() + begin, live.begin() + end);
  };
  // `ran` has the rows of all steps. A batch that stays would add as much again for each.
  const int64_t of_results = (kSteps - kSteps / 4) * kBatchBytes;
  EXPECT_LT(most(kSteps / 4, kSteps) - most(0, kSteps / 4), of_results + 8 * kBatchBytes);
}

}  // namespace
}  // namespace weft::testing
