// weft comm_bench: how long collectives take, by size.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/status_macros.h"
#include "executor/communicator.h"
#include "executor/local_communicator.h"
#include "nlohmann/json.hpp"
#include "tools/weft_commands.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft comm_bench";

struct Options {
  int ranks = 2;
  std::string backend = "local";
  int64_t min_bytes = 1024, max_bytes = int64_t{64} << 20;
  int rounds = 20;
};

// One rank: all sizes, `rounds` times each. Rank 0 writes the times by size and round.
absl::Status RunRank(const Options& options, const std::vector<int64_t>& sizes, int rank,
                     CommunicatorGroup* group, std::vector<std::vector<double>>* seconds) {
  WEFT_ASSIGN_OR_RETURN(Communicator * ring, group->Get(RingKey{}, rank));
  std::vector<float> buffer(sizes.back() / sizeof(float), 1);
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
      WEFT_RETURN_IF_ERROR(ring->Run(call, buffer.data(), buffer.data()));
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      // Sums must not grow beyond bounds, or denormals and infinities change the times.
      std::fill(buffer.begin(), buffer.begin() + call.desc.count, 1.0f);
      if (rank == 0 && round > 0) (*seconds)[s].push_back(elapsed.count());
    }
  }
  return absl::OkStatus();
}

absl::Status Measure(const Options& options) {
  std::vector<int64_t> sizes;
  constexpr int64_t kElement = sizeof(float);
  for (int64_t bytes = options.min_bytes / kElement * kElement; bytes <= options.max_bytes;
       bytes *= 2) {
    sizes.push_back(bytes);
  }
  WEFT_RETURN_IF_ERROR(CheckFitsMemory(
      "one buffer a rank", static_cast<uint64_t>(options.ranks) * sizes.back(), AvailableMemory()));
  GroupOptions group_options;
  group_options.nranks = options.ranks;
  const std::unique_ptr<CommunicatorGroup> group = NewLocalGroup(group_options);
  std::vector<std::vector<double>> seconds(sizes.size());
  std::vector<absl::Status> results(options.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = RunRank(options, sizes, rank, group.get(), &seconds);
      if (!results[rank].ok())
        group->Abort(Annotate(absl::StrCat("rank ", rank, " failed"), results[rank]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) WEFT_RETURN_IF_ERROR(result);

  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (size_t s = 0; s < sizes.size(); ++s) {
    const auto middle = seconds[s].begin() + static_cast<ptrdiff_t>(seconds[s].size() / 2);
    std::nth_element(seconds[s].begin(), middle, seconds[s].end());
    points.push_back({{"bytes", sizes[s]}, {"seconds", *middle}});
  }
  const nlohmann::ordered_json table = {{"collective", "all-reduce"},
                                        {"backend", options.backend},
                                        {"ranks", options.ranks},
                                        {"points", std::move(points)}};
  std::printf("%s\n", table.dump(1).c_str());
  return absl::OkStatus();
}

}  // namespace

Subcommand AddCommBench(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "comm_bench",
      "Measures how long an all-reduce takes, by size; prints JSON for --comm_table.");
  auto options = std::make_shared<Options>();
  AddInteger(*app, "--ranks", options->ranks, 1, 1024, "Ranks of this process")
      ->capture_default_str();
  AddOption(*app, "--backend", "NAME", options->backend, "local: ranks are threads")
      ->check(CLI::IsMember({"local"}))
      ->capture_default_str();
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
  app->footer("Example:\n  weft comm_bench --ranks 2 > table.json");
  return {app, [options] { return FinishCommand(kCommand, Measure(*options)); }};
}

}  // namespace weft
