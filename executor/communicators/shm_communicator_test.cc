#include "executor/communicators/shm_communicator.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/world.h"
#include "executor/jobs/forked_job.h"
#include "executor/jobs/job_link.h"
#include "executor/jobs/job_link_testing.h"
#include "ops/memory.h"

namespace weft::testing {
namespace {

// What a rank does; the text is its result.
using RankBody = std::function<std::string(CommunicatorGroup* group, int rank)>;

std::vector<std::string> OnThreads(int first, int count, CommunicatorGroup* group,
                                   const RankBody& body) {
  std::vector<std::string> results(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { results[i] = body(group, first + i); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

class Job : public testing::ForkedJob {
 public:
  Job(int num_processes, const GroupOptions& options, const RankBody& body)
      : ForkedJob(num_processes, options, NewShmGroup,
                  [body](const RankContext& rank) { return body(rank.group, rank.rank); }) {}
};

GroupOptions Options(int nranks, double timeout_s = 60) {
  GroupOptions options;
  options.nranks = nranks;
  options.timeout_s = timeout_s;
  return options;
}

// All kinds, types and sizes; tensors in the memory of the group and elsewhere, in place and not.
// The text has a hash of each result.
std::string RunEverything(CommunicatorGroup* group, int rank, int nranks) {
  constexpr DType kTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                              DType::kBFloat16, DType::kInt32,   DType::kInt64};
  constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduce,
                                       CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
                                       CollectiveKind::kReduceScatter};
  constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kAvg, Reduction::kMax,
                                       Reduction::kMin, Reduction::kProd};
  std::mt19937 random(rank + 1);
  Communicator* const ring = *group->Get(RingKey{}, rank);
  std::string text;
  int number = 0;
  for (const CollectiveKind kind : kKinds) {
    for (const DType dtype : kTypes) {
      for (const int64_t count : {0, 1, 13, 500, 1025, 30001}) {
        for (const bool in_place : {false, true}) {
          CollectiveCall call;
          call.desc.kind = kind;
          call.desc.dtype = dtype;
          call.desc.reduction = kReductions[number % 5];
          call.desc.root = number % nranks;
          const bool scatters = kind == CollectiveKind::kReduceScatter;
          call.desc.count = scatters ? count * nranks : count;
          const size_t bytes = call.desc.count * SizeOf(dtype);
          const size_t out_bytes = kind == CollectiveKind::kAllGather ? bytes * nranks
                                   : scatters                         ? bytes / nranks
                                                                      : bytes;
          const size_t all_bytes = std::max(bytes, out_bytes);
          // Ranks differ in where their buffers are.
          const auto allocate = [&](int kind_of_memory) {
            Memory* const memory = group->host_memory();
            return memory != nullptr && (number / 3 + rank + kind_of_memory) % 3 != 0
                       ? memory->Allocate(all_bytes)
                       : HostMemory()->Allocate(all_bytes);
          };
          const std::shared_ptr<void> in = allocate(0);
          const std::shared_ptr<void> out = in_place ? in : allocate(1);
          std::memset(out.get(), 0, all_bytes);
          char* const in_data = static_cast<char*>(in.get()) +
                                (in_place && kind == CollectiveKind::kAllGather ? rank * bytes : 0);
          // Bytes with small exponents are numbers of any type.
          for (size_t i = 0; i < bytes; ++i) in_data[i] = static_cast<char>(random() % 61);
          const absl::Status status = ring->Run(call, in_data, out.get());
          if (!status.ok()) return absl::StrCat(text, " ", status.ToString());
          const char* const result = static_cast<const char*>(out.get());
          absl::StrAppend(&text, number++, ":",
                          std::hash<std::string>()(std::string(result, out_bytes)), " ");
        }
      }
    }
  }
  return text;
}

TEST(ShmCommunicatorTest, GivesTheBitsOfThreadsForAllKindsTypesAndPlaces) {
  struct Case {
    int processes, ranks;
  };
  for (const Case& one : {Case{2, 2}, Case{3, 3}, Case{2, 4}}) {
    const RankBody body = [&](CommunicatorGroup* group, int rank) {
      return RunEverything(group, rank, one.ranks);
    };
    std::string results;
    for (const std::string& text : Job(one.processes, Options(one.ranks), body).Results()) {
      results += text;
    }
    std::string expected;
    const auto local = NewLocalGroup(Options(one.ranks));
    for (const std::string& text : OnThreads(0, one.ranks, local.get(), body)) {
      expected += text + "\n";
    }
    EXPECT_TRUE(absl::StrContains(expected, "359:")) << expected.substr(0, 300);
    EXPECT_EQ(results, expected) << one.processes << " processes";
  }
}

std::string AllReduce(CommunicatorGroup* group, const RingKey& key, int rank, int64_t count,
                      float value, absl::string_view variable = "g") {
  Memory* const memory = group->host_memory();
  const std::shared_ptr<void> buffer = memory->Allocate(count * sizeof(float));
  auto* const data = static_cast<float*>(buffer.get());
  std::fill_n(data, count, value);
  CollectiveCall call;
  call.desc.count = count;
  call.op = "op 7 (c_allreduce_sum)";
  call.variable = variable;
  call.dims = {count};
  auto ring = group->Get(key, rank);
  if (!ring.ok()) return ring.status().ToString();
  const absl::Status status = (*ring)->Run(call, data, data);
  if (!status.ok()) return status.ToString();
  return std::count(data, data + count, data[0]) == count ? absl::StrCat(data[0]) : "not equal";
}

TEST(ShmCommunicatorTest, RingsOverSomeRanksSumOverTheseOnly) {
  const RingKey low{1, false, {0, 2}}, high{2, false, {1, 3}}, one{3, true, {2}};
  GroupOptions options = Options(4);
  options.rings = {RingKey{}, low, high, one};
  const RankBody body = [&](CommunicatorGroup* group, int rank) {
    const float value = static_cast<float>(rank == 0 ? 1 : rank == 1 ? 10 : rank == 2 ? 100 : 1000);
    std::string text = AllReduce(group, low.Has(rank) ? low : high, rank, 40001, value);
    absl::StrAppend(&text, " ", AllReduce(group, {}, rank, 3, value));
    if (rank == 2) absl::StrAppend(&text, " ", AllReduce(group, one, rank, 5000, value));
    return text;
  };
  EXPECT_THAT(Job(2, options, body).Results(),
              ElementsAre("101 1111\n1010 1111\n", "101 1111 100\n1010 1111\n"));
}

TEST(ShmCommunicatorTest, DifferentCallsAreAnErrorThatNamesBoth) {
  const RankBody body = [](CommunicatorGroup* group, int rank) {
    return AllReduce(group, {}, rank, rank == 0 ? 1 : 5000, 1, rank == 0 ? "w" : "v");
  };
  EXPECT_THAT(Job(2, Options(2), body).Results(),
              Each(HasSubstr("ring 0: ranks call different collectives: rank 0 calls all-reduce #0 "
                             "of w (fp32[1]) in op 7 (c_allreduce_sum), rank 1 calls all-reduce #0 "
                             "of v (fp32[5000]) in op 7 (c_allreduce_sum)")));
}

TEST(ShmCommunicatorTest, RankThatDoesNotArriveIsNamedInAllProcesses) {
  const RankBody body = [](CommunicatorGroup* group, int rank) {
    const std::string first = AllReduce(group, {}, rank, 5000, 1);
    return rank == 1 ? first : AllReduce(group, {}, rank, 5000, 1, "w");
  };
  Job job(3, Options(3, /*timeout_s=*/0.3), body);
  EXPECT_EQ(job.ResultsOf(1), "3\n");
  for (const int process : {0, 2}) {
    EXPECT_THAT(job.ResultsOf(process),
                AllOf(StartsWith("DEADLINE_EXCEEDED"),
                      HasSubstr("all-reduce #1 of w (fp32[5000]): rank 1 has not arrived after 0.3 "
                                "s; waiting: rank 0"),
                      HasSubstr("rank 1 last arrived at all-reduce #0 of g (fp32[5000])")));
  }
}

TEST(ShmCommunicatorTest, AbortOfOneProcessReleasesTheOthers) {
  const RankBody body = [](CommunicatorGroup* group, int rank) -> std::string {
    if (rank == 2) {
      group->Abort(absl::InternalError("rank 2 failed: out of luck"));
      return "";
    }
    return AllReduce(group, {}, rank, 5000, 1);
  };
  Job job(3, Options(3), body);
  for (const int process : {0, 1}) {
    EXPECT_THAT(job.ResultsOf(process),
                AllOf(StartsWith("ABORTED"), HasSubstr("ring 0, all-reduce #0 of g (fp32[5000]): "
                                                       "aborted: rank 2 failed: out of luck")));
  }
}

// 2 s, and a slow machine.
TEST(ShmCommunicatorTest, RankThatFailsAtAnyMomentEndsAllInTime) {
  std::mt19937 random(11);
  for (const testing::Fault fault : testing::kFaults) {
    for (const int victim : {0, 2}) {
      const double after_s = 1e-3 * static_cast<double>(random() % 200);
      SCOPED_TRACE(absl::StrCat(testing::FaultName(fault), " of ", victim, " after ", after_s));
      const testing::FaultOutcome outcome =
          testing::RunWithFault(NewShmGroup, fault, victim, after_s);
      testing::ExpectTold(outcome, fault, victim, /*limit_s=*/4);
    }
  }
}

TEST(ShmCommunicatorTest, ProcessesWithDifferentRingsAreRefused) {
  GroupOptions options = Options(2);
  const auto links = testing::MakeLinks(2);
  std::vector<absl::Status> results(2);
  std::vector<std::thread> threads;
  for (int p = 0; p < 2; ++p) {
    threads.emplace_back([&, p] {
      GroupOptions mine = options;
      mine.link = links[p].get();
      mine.rings = {RingKey{p, false}};
      results[p] = NewShmGroup(mine).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results,
              Each(IsFailedPrecondition(
                  "process 0 has 2 ranks with ring 0, process 1 has 2 ranks with ring 1")));
}

TEST(ShmCommunicatorTest, NeedsALinkOfOneHost) {
  class Distant : public JobLink {
   public:
    int process() const override { return 0; }
    int num_processes() const override { return 2; }
    bool is_one_host() const override { return false; }
    absl::StatusOr<std::vector<std::string>> AllGather(std::string) override {
      return absl::InternalError("not expected");
    }
    absl::StatusOr<std::vector<std::string>> Gather(std::string) override {
      return absl::InternalError("not expected");
    }
    void Send(int, Topic, std::string) override {}
    void Listen(Topic, Handler) override {}
    void Abort(int, const absl::Status&) override {}
    void OnFailure(std::function<void(const absl::Status&)>) override {}
    absl::Status Finish() override { return absl::OkStatus(); }
  };
  GroupOptions options = Options(2);
  EXPECT_THAT(NewShmGroup(options), IsFailedPrecondition("one process"));
  Distant distant;
  options.link = &distant;
  EXPECT_THAT(NewShmGroup(options), IsFailedPrecondition("use the backend gloo or mpi"));
}

}  // namespace
}  // namespace weft::testing
