// How fast is an all-reduce of fp32 between ranks of one host, beside OpenMPI and Gloo? Times Weft
// with ranks that are threads, Weft with ranks that are processes, and the others, in turn, and
// prints microseconds and ratios to OpenMPI's and Gloo's time.
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:allreduce_benchmark --
//       [--ranks 2] [--rounds 5] [--rewrite] [--python PYTHON]
//
// --rewrite: ranks write their buffers before every call, and the time of that counts. Otherwise
// parts of the buffers stay in the cache of the rank that reduces them, as in usual benchmarks.
// OpenMPI is measured if mpicc and mpirun exist, Gloo if --python names a Python with PyTorch. Each
// program times batches of calls and reports the fastest batch of a size: what a call takes when
// nobody else uses the processors. All reduce in place; OpenMPI also out of place, and the faster
// way counts. Ranks are bound to processors, as mpirun does; those of Gloo, which have several
// threads, are not.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/shared_ring.h"
#include "executor/communicators/shm_communicator.h"
#include "executor/jobs/job_link.h"
#include "executor/jobs/job_token.h"

namespace weft {
namespace {

struct Flags {
  int ranks = 2;
  int rounds = 5;
  bool rewrite = false;
  std::string python;
};

constexpr int64_t kSizes[] = {4 << 10, 256 << 10, 16 << 20};
// Also in mpi_allreduce.c and gloo_allreduce.py. Batches are shorter than what a scheduler gives a
// process at a time.
int CallsOfBatch(int64_t bytes) { return bytes <= 4 << 10 ? 100 : bytes <= 256 << 10 ? 20 : 2; }
int NumBatches(int64_t bytes) { return bytes <= 256 << 10 ? 300 : 20; }

using Times = std::map<int64_t, double>;  // seconds of a call by size

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "allreduce_benchmark: %s\n", std::string(status.message()).c_str());
  std::_Exit(1);
}

// As mpirun does.
void BindToProcessor(int rank, int nranks) {
  if (!HasProcessorForEach(nranks)) return;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(rank, &processors);
  sched_setaffinity(0, sizeof(processors), &processors);
}

// Measures as one rank. All ranks return; the times of rank 0 count.
Times MeasureRank(CommunicatorGroup* group, int rank, const Flags& flags) {
  const int nranks = flags.ranks;
  BindToProcessor(rank, nranks);
  Communicator* const ring = *group->Get(RingKey{}, rank);
  Memory* const memory = group->host_memory() != nullptr ? group->host_memory() : HostMemory();
  Times times;
  for (const int64_t bytes : kSizes) {
    const std::shared_ptr<void> owner = memory->Allocate(bytes);
    float* const data = static_cast<float*>(owner.get());
    CollectiveCall call;
    call.desc.count = bytes / static_cast<int64_t>(sizeof(float));
    call.op = "allreduce_benchmark";
    call.variable = "buffer";
    call.dims = {call.desc.count};
    std::fill_n(data, call.desc.count, static_cast<float>(rank + 1));
    Check(ring->Run(call, data, data));
    const auto expected = static_cast<float>(nranks * (nranks + 1) / 2);
    if (std::count(data, data + call.desc.count, expected) != call.desc.count) {
      Check(absl::InternalError("wrong sum"));
    }
    std::fill_n(data, call.desc.count, 0.0f);  // sums stay in range
    double best = 1e9;
    for (int batch = 0; batch < NumBatches(bytes); ++batch) {
      CollectiveCall barrier = call;
      barrier.desc.count = 1;
      float one = 1;
      Check(ring->Run(barrier, &one, &one));
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < CallsOfBatch(bytes); ++i) {
        if (flags.rewrite) std::memset(data, 0, bytes);
        Check(ring->Run(call, data, data));
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      best = std::min(best, elapsed.count() / CallsOfBatch(bytes));
    }
    times[bytes] = best;
  }
  return times;
}

Times ReadTimes(FILE* file, const char* what) {
  Times times;
  double bytes = 0, seconds = 0;
  while (std::fscanf(file, "%lf %lf", &bytes, &seconds) == 2) {
    double& time = times.try_emplace(static_cast<int64_t>(bytes), seconds).first->second;
    time = std::min(time, seconds);
  }
  if (times.size() != std::size(kSizes)) Check(absl::InternalError(absl::StrCat(what, " failed")));
  return times;
}

void Print(const Times& times, FILE* file) {
  for (const auto& [bytes, seconds] : times) {
    std::fprintf(file, "%lld %.9f\n", static_cast<long long>(bytes), seconds);  // NOLINT: printf
  }
  std::fflush(file);
}

// Runs body(process) in processes of their own. Returns the times that process 0 returns.
Times InProcesses(int num_processes, const std::function<Times(int)>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::vector<pid_t> children;
  for (int p = 0; p < num_processes; ++p) {
    children.push_back(fork());
    if (children.back() == 0) {
      const Times times = body(p);
      if (p == 0) Print(times, fdopen(ends[1], "w"));
      std::_Exit(0);
    }
  }
  close(ends[1]);
  FILE* const file = fdopen(ends[0], "r");
  const Times times = ReadTimes(file, "Weft");
  std::fclose(file);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return times;
}

Times MeasureThreads(const Flags& flags) {
  const int nranks = flags.ranks;
  return InProcesses(1, [&](int) {
    GroupOptions options;
    options.nranks = nranks;
    const auto group = NewLocalGroup(options);
    std::vector<Times> times(nranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < nranks; ++r) {
      threads.emplace_back([&, r] { times[r] = MeasureRank(group.get(), r, flags); });
    }
    for (std::thread& thread : threads) thread.join();
    return times[0];
  });
}

Times MeasureProcesses(const Flags& flags) {
  const int nranks = flags.ranks;
  static int num_jobs = 0;
  JobLinkOptions link_options;
  link_options.num_processes = nranks;
  link_options.token = NewJobToken();
  link_options.address = absl::StrCat("unix:weft-benchmark-", getpid(), "-", num_jobs++);
  return InProcesses(nranks, [&](int process) {
    link_options.process = process;
    auto link = NewJobLink(link_options);
    Check(link.status());
    GroupOptions options;
    options.nranks = nranks;
    options.link = link->get();
    options.rings = {RingKey{}};
    Times times;
    {
      auto group = NewShmGroup(options);
      Check(group.status());
      times = MeasureRank(group->get(), process, flags);
    }
    Check((*link)->Finish());
    return times;
  });
}

Times MeasureCommand(const std::string& command, const char* what) {
  FILE* const file = popen(command.c_str(), "r");
  if (file == nullptr) std::abort();
  const Times times = ReadTimes(file, what);
  pclose(file);
  return times;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Run(const Flags& flags) {
  struct Program {
    const char* name;
    std::function<Times()> measure;
  };
  std::vector<Program> programs = {
      {"threads", [&] { return MeasureThreads(flags); }},
      {"processes", [&] { return MeasureProcesses(flags); }},
  };
  const char* const rewrite = flags.rewrite ? " rewrite" : "";
  char directory[] = "/tmp/allreduce_benchmark_XXXXXX";
  if (mkdtemp(directory) == nullptr) std::abort();
  const std::string mpi_program = absl::StrCat(directory, "/mpi_allreduce");
  const bool has_mpi =
      std::system(
          absl::StrCat("mpicc -O3 tests/benchmarks/mpi_allreduce.c -o ", mpi_program).c_str()) == 0;
  if (has_mpi) {
    const bool crowded = flags.ranks > static_cast<int>(std::thread::hardware_concurrency());
    const std::string command =
        absl::StrCat("mpirun -n ", flags.ranks, " --allow-run-as-root ",
                     crowded ? "--oversubscribe " : "", mpi_program, rewrite);
    programs.push_back({"OpenMPI", [command] { return MeasureCommand(command, "OpenMPI"); }});
  }
  if (!flags.python.empty()) {
    const std::string command = absl::StrCat(flags.python, " tests/benchmarks/gloo_allreduce.py ",
                                             flags.ranks, " 2>/dev/null");
    programs.push_back({"Gloo", [command] { return MeasureCommand(command, "Gloo"); }});
  }

  std::vector<std::map<int64_t, std::vector<double>>> times(programs.size());
  for (int round = 0; round < flags.rounds; ++round) {
    for (size_t i = 0; i < programs.size(); ++i) {
      for (const auto& [bytes, seconds] : programs[i].measure()) {
        times[i][bytes].push_back(seconds);
      }
    }
  }
  std::filesystem::remove_all(directory);

  std::printf("%d ranks%s, %d rounds, microseconds (median), fastest to slowest round\n",
              flags.ranks, rewrite, flags.rounds);
  for (const int64_t bytes : kSizes) {
    std::printf("%lld KiB\n", static_cast<long long>(bytes >> 10));  // NOLINT: printf
    for (size_t i = 0; i < programs.size(); ++i) {
      const std::vector<double>& mine = times[i][bytes];
      std::printf("  %-10s %10.2f   (%.2f to %.2f)", programs[i].name, Median(mine) * 1e6,
                  *std::min_element(mine.begin(), mine.end()) * 1e6,
                  *std::max_element(mine.begin(), mine.end()) * 1e6);
      // Of the same round.
      for (size_t other = 2; i < 2 && other < programs.size(); ++other) {
        std::vector<double> ratios;
        for (int round = 0; round < flags.rounds; ++round) {
          ratios.push_back(times[other][bytes][round] / mine[round]);
        }
        std::printf("   %s / Weft: %.1f", programs[other].name, Median(ratios));
      }
      std::printf("\n");
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Flags flags;
  CLI::App app("Times all-reduces.");
  app.add_option("--ranks", flags.ranks);
  app.add_option("--rounds", flags.rounds);
  app.add_flag("--rewrite", flags.rewrite);
  app.add_option("--python", flags.python);
  CLI11_PARSE(app, argc, argv);
  return weft::Run(flags);
}
