// weft comm_bench: how long collectives take, by size.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/status_macros.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/world.h"
#include "nlohmann/json.hpp"
#include "ops/memory.h"
#include "ops/tensor.h"
#include "tools/cmd/weft_commands.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/job/job_session.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft comm_bench";

struct Options {
  int ranks = 0;        // of this process; 0: not given
  std::string backend;  // empty: that of the job
  int64_t min_bytes = 1024, max_bytes = int64_t{64} << 20;
  int rounds = 20;
};

// One rank: all sizes, `rounds` times each. Rank 0 writes the times by size and round.
absl::Status RunRank(const Options& options, const std::vector<int64_t>& sizes, int rank,
                     CommunicatorGroup* group, std::vector<std::vector<double>>* seconds) {
  WEFT_ASSIGN_OR_RETURN(Communicator * ring, group->Get(RingKey{}, rank));
  Tensor tensor(group->host_memory() == nullptr ? HostMemory() : group->host_memory());
  tensor.Resize(DType::kFloat32, {sizes.back() / static_cast<int64_t>(sizeof(float))});
  float* const buffer = tensor.data<float>();
  std::fill_n(buffer, tensor.size(), 1.0f);
  for (size_t s = 0; s < sizes.size(); ++s) {
    CollectiveCall call;
    call.desc.count = sizes[s] / static_cast<int64_t>(sizeof(float));
    call.op = "comm_bench";
    call.variable = "buffer";
    call.dims = {call.desc.count};
    for (int round = 0; round <= options.rounds; ++round) {
      // All ranks begin together.
      CollectiveCall barrier = call;
      barrier.desc.count = 1;
      barrier.dims = {1};
      float one = 1;
      WEFT_RETURN_IF_ERROR(ring->Run(barrier, &one, &one));
      const auto begin = std::chrono::steady_clock::now();
      WEFT_RETURN_IF_ERROR(ring->Run(call, buffer, buffer));
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      // Sums must not grow beyond bounds, or denormals and infinities change the times.
      std::fill_n(buffer, call.desc.count, 1.0f);
      if (rank == 0 && round > 0) (*seconds)[s].push_back(elapsed.count());
    }
  }
  return absl::OkStatus();
}

// The ranks of this process. Fills the times if rank 0 is among them.
absl::Status RunRanks(const Options& options, const std::vector<int64_t>& sizes, const World& world,
                      CommunicatorGroup* group, std::vector<std::vector<double>>* seconds) {
  std::vector<absl::Status> results(world.count);
  std::vector<std::thread> threads;
  for (int i = 0; i < world.count; ++i) {
    threads.emplace_back([&, i] {
      const int rank = world.first + i;
      results[i] = RunRank(options, sizes, rank, group, seconds);
      if (!results[i].ok()) {
        group->Abort(Annotate(absl::StrCat("rank ", rank, " failed"), results[i]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) WEFT_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status MeasureInJob(const Options& options, const JobSession& session) {
  std::vector<int64_t> sizes;
  constexpr int64_t kElement = sizeof(float);
  for (int64_t bytes = options.min_bytes / kElement * kElement; bytes <= options.max_bytes;
       bytes *= 2) {
    sizes.push_back(bytes);
  }
  WEFT_RETURN_IF_ERROR(CheckFitsMemory(
      "one buffer a rank", static_cast<uint64_t>(options.ranks) * sizes.back(), AvailableMemory()));
  GroupOptions group_options;
  group_options.nranks = options.ranks * session.num_processes();
  group_options.link = session.link();
  group_options.rings = {RingKey{}};
  const World world = WorldOf(group_options.nranks, session.link());
  WEFT_ASSIGN_OR_RETURN(const auto group, session.new_group()(group_options));
  if (session.link() != nullptr) {
    session.link()->OnFailure([&group](const absl::Status& status) { group->Abort(status); });
  }
  std::vector<std::vector<double>> seconds(sizes.size());
  const absl::Status status = RunRanks(options, sizes, world, group.get(), &seconds);
  if (session.link() != nullptr) session.link()->OnFailure(nullptr);
  WEFT_RETURN_IF_ERROR(status);
  if (!session.is_first()) return absl::OkStatus();

  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (size_t s = 0; s < sizes.size(); ++s) {
    const auto middle = seconds[s].begin() + static_cast<ptrdiff_t>(seconds[s].size() / 2);
    std::nth_element(seconds[s].begin(), middle, seconds[s].end());
    points.push_back({{"bytes", sizes[s]}, {"seconds", *middle}});
  }
  const nlohmann::ordered_json table = {{"collective", "all-reduce"},
                                        {"backend", session.backend()},
                                        {"ranks", world.size},
                                        {"points", std::move(points)}};
  std::printf("%s\n", table.dump(1).c_str());
  return absl::OkStatus();
}

// Makes the session, which must outlive the report of an error.
absl::Status Measure(Options options, std::unique_ptr<JobSession>* session) {
  JobSessionOptions job;
  job.backend = options.backend;
  job.local_ranks = std::max(1, options.ranks);
  job.on_note = PrintNote;
  job.command = absl::StrCat("weft comm_bench ", options.min_bytes, " ", options.max_bytes, " ",
                             options.rounds);
  WEFT_ASSIGN_OR_RETURN(*session, JobSession::Join(job, std::getenv));
  if (options.ranks == 0) options.ranks = (*session)->num_processes() == 1 ? 2 : 1;
  return (*session)->Finish(MeasureInJob(options, **session));
}

}  // namespace

Subcommand AddCommBench(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "comm_bench",
      "Measures how long an all-reduce takes, by size; prints JSON for --comm_table.");
  auto options = std::make_shared<Options>();
  AddInteger(*app, "--ranks", options->ranks, 1, 1024,
             "Ranks of this process; default: 2, or 1 of each process that a launcher has started");
  AddOption(*app, "--backend", "NAME", options->backend,
            "What ranks communicate with; default: as in weft run")
      ->check(CLI::IsMember({"local", "shm", "mpi", "gloo"}));
  AddInteger(*app, "--min_bytes", options->min_bytes, 4, int64_t{1} << 40, "The least size")
      ->capture_default_str();
  AddInteger(*app, "--max_bytes", options->max_bytes, 4, int64_t{1} << 40, "The largest size")
      ->capture_default_str();
  AddInteger(*app, "--rounds", options->rounds, 1, 1000000,
             "Times for each size; the median counts")
      ->capture_default_str();
  app->callback([options] {
    // A table needs two sizes.
    Require(options->max_bytes / 2 >= options->min_bytes, "--max_bytes",
            "expected at least twice --min_bytes");
  });
  app->footer(
      "Examples:\n  weft comm_bench --ranks 2 > table.json\n  weft launch -n 2 -- weft comm_bench "
      "--backend gloo");
  return {app, [options] {
            std::unique_ptr<JobSession> session;
            const absl::Status status = Measure(*options, &session);
            return FinishCommand(kCommand, status);
          }};
}

}  // namespace weft
