#include "executor/communicators/gloo_communicator.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/communicators/collective_cases.h"
#include "executor/jobs/forked_job.h"
#include "executor/jobs/job_link_testing.h"

namespace weft::testing {
namespace {

constexpr int kWaitSeconds = 60;

absl::Status AllReduce(CommunicatorGroup* group, int rank, int64_t count,
                       absl::string_view variable = "g") {
  std::vector<float> buffer(count, 1);
  CollectiveCall call;
  call.desc.count = count;
  call.op = "op 7 (c_allreduce_sum)";
  call.variable = variable;
  call.dims = {count};
  return (*group->Get(RingKey{}, rank))->Run(call, buffer.data(), buffer.data());
}

// Processes that are threads of this test.
class GlooCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status status = NewGlooGroup({}).status();
    const bool is_missing = absl::StartsWith(status.message(), "libgloo.so");
    if (absl::IsUnimplemented(status) || is_missing) GTEST_SKIP() << status;
  }

  // Calls body(group, process) in each process.
  template <typename Body>
  std::vector<absl::Status> OnProcesses(int num_processes, const GroupOptions& options,
                                        const Body& body) {
    const std::vector<std::unique_ptr<JobLink>> links = testing::MakeLinks(num_processes);
    return OnRankThreads(num_processes, [&](int process) -> absl::Status {
      GroupOptions mine = options;
      mine.link = links[process].get();
      auto group = NewGlooGroup(mine);
      if (!group.ok()) return group.status();
      return body(group->get(), process);
    });
  }

  static GroupOptions Options(int nranks, double timeout_s = kWaitSeconds) {
    GroupOptions options;
    options.nranks = nranks;
    options.timeout_s = timeout_s;
    options.rings = {RingKey{}};
    return options;
  }
};

TEST_F(GlooCommunicatorTest, ResultsAreThoseOfThreadsBitForBit) {
  for (const auto& counts : {std::pair(2, 1), std::pair(3, 1), std::pair(2, 2)}) {
    const int processes = counts.first;
    const int local_ranks = counts.second;
    const int nranks = processes * local_ranks;
    const RingKey all, compute{0, true}, some{1, false, {0, nranks - 1}};
    GroupOptions options = Options(nranks);
    options.rings = {all, compute, some};
    for (const RingKey& ring : options.rings) {
      if (!(ring == all) && local_ranks == 1) continue;
      const int size = SizeOf(ring, nranks);
      const std::vector<CollectiveCase> cases = CollectiveCases(size);
      const std::vector<std::vector<std::string>> expected = ExpectedResults(cases, size);
      const auto results =
          OnProcesses(processes, options, [&](CommunicatorGroup* group, int process) {
            const auto of_ranks = OnRankThreads(local_ranks, [&](int i) {
              const int rank = process * local_ranks + i;
              if (!ring.Has(rank)) return absl::OkStatus();
              const auto found = RunCases(cases, *group->Get(ring, rank));
              if (!found.ok()) return found.status();
              EXPECT_EQ(FirstDifference(cases, *found, expected[PositionOf(ring, rank)]), "");
              return absl::OkStatus();
            });
            absl::Status status;
            for (const absl::Status& s : of_ranks) status.Update(s);
            return status;
          });
      EXPECT_THAT(results, Each(IsOk())) << processes << " processes, " << ToString(ring);
    }
  }
}

TEST_F(GlooCommunicatorTest, DifferentCallsAreAnErrorThatNamesBoth) {
  const auto results = OnProcesses(2, Options(2), [](CommunicatorGroup* group, int rank) {
    return AllReduce(group, rank, rank == 0 ? 1 : 70000, rank == 0 ? "w" : "v");
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            "ring 0: ranks call different collectives: rank 0 calls all-reduce #0 "
                            "of w (fp32[1]) in op 7 (c_allreduce_sum), rank 1 calls all-reduce #0 "
                            "of v (fp32[70000]) in op 7 (c_allreduce_sum)")));
}

TEST_F(GlooCommunicatorTest, RankThatDoesNotArriveIsReportedThenAnError) {
  GroupOptions options = Options(3, /*timeout_s=*/3);
  options.warn_after_s = 0.1;
  std::mutex mutex;
  std::vector<std::string> warnings;
  options.warn = [&](const std::string& message) {
    const std::lock_guard<std::mutex> lock(mutex);
    warnings.push_back(message);
  };
  std::atomic<int> num_waiting{2};
  const auto results = OnProcesses(3, options, [&](CommunicatorGroup* group, int rank) {
    if (rank != 1) {
      const absl::Status status = AllReduce(group, rank, 1);
      --num_waiting;
      return status;
    }
    while (num_waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return absl::OkStatus();
  });
  WEFT_EXPECT_OK(results[1]);
  // The first to give up closes its connections, which ends the wait of the other.
  EXPECT_THAT(
      results,
      Contains(StatusIs(absl::StatusCode::kDeadlineExceeded,
                        "ring 0, all-reduce #0 of g (fp32[1]): rank 1 has not arrived after 3 s; "
                        "waiting: rank 0, 2; rank 1 has never arrived")));
  EXPECT_THAT(results[0], Not(IsOk()));
  EXPECT_THAT(results[2], Not(IsOk()));
  EXPECT_THAT(warnings, Contains(HasSubstr("not arrived after 0.1 s; waiting: rank ")));
}

// The link of a process that fails when the others begin to connect to it: it listens, and never
// answers.
class FailingLink : public JobLink {
 public:
  FailingLink(JobLink* link, const std::atomic<int>* num_left) : link_(*link), left_(*num_left) {}

  int process() const override { return link_.process(); }
  int num_processes() const override { return link_.num_processes(); }
  bool is_one_host() const override { return link_.is_one_host(); }
  absl::StatusOr<std::vector<std::string>> AllGather(std::string text) override {
    const bool has_addresses = absl::StartsWith(text, "0 2 ");  // of ring 0, position 2
    auto texts = link_.AllGather(std::move(text));
    if (!has_addresses) return texts;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    link_.Abort(2, absl::InternalError("no luck"));
    while (left_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return absl::InternalError("no luck");
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string text) override {
    return link_.Gather(std::move(text));
  }
  void Send(int process, Topic topic, std::string message) override {
    link_.Send(process, topic, std::move(message));
  }
  void Listen(Topic topic, Handler handler) override { link_.Listen(topic, std::move(handler)); }
  void Abort(int rank, const absl::Status& status) override { link_.Abort(rank, status); }
  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    link_.OnFailure(std::move(handler));
  }
  absl::Status Finish() override { return link_.Finish(); }

 private:
  JobLink& link_;
  const std::atomic<int>& left_;
};

TEST_F(GlooCommunicatorTest, AFailureWhileProcessesConnectEndsIt) {
  // Which of two ranks connects to the other follows from ports: one that waits for the failed one
  // would wait for long.
  for (int time = 0; time < 6; ++time) {
    const std::vector<std::unique_ptr<JobLink>> links = testing::MakeLinks(3);
    std::atomic<int> num_left{2};
    const auto begin = std::chrono::steady_clock::now();
    const auto results = OnRankThreads(3, [&](int process) -> absl::Status {
      GroupOptions options = Options(3);
      FailingLink failing(links[process].get(), &num_left);
      options.link = process == 2 ? &failing : links[process].get();
      const absl::Status status = NewGlooGroup(options).status();
      if (process != 2) --num_left;
      return status;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    for (int p : {0, 1}) {
      if (results[p].ok()) continue;  // both connect to the failed one
      EXPECT_THAT(results[p],
                  StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 2 failed: no luck")));
    }
  }
}

TEST_F(GlooCommunicatorTest, AbortReleasesARankThatWaits) {
  const auto results = OnProcesses(2, Options(2), [](CommunicatorGroup* group, int rank) {
    if (rank == 1) {
      // Leaves later than rank 0, so that its connections are open.
      const absl::Status status = absl::InternalError("rank 1 failed: no luck");
      group->Abort(status);
      return AllReduce(group, rank, 70000);
    }
    std::thread abort([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group->Abort(absl::InternalError("rank 1 failed: no luck"));
    });
    const absl::Status waited = AllReduce(group, rank, 70000);
    abort.join();
    return waited;
  });
  EXPECT_THAT(results[1], IsAborted("rank 1 failed: no luck"));
  EXPECT_THAT(results[0], IsAborted("rank 1 failed: no luck"));
}

TEST_F(GlooCommunicatorTest, ProcessThatLeavesEndsTheOthers) {
  const auto begun = std::chrono::steady_clock::now();
  const auto results = OnProcesses(3, Options(3), [](CommunicatorGroup* group, int rank) {
    return rank == 1 ? absl::OkStatus() : AllReduce(group, rank, 70000);
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(results[rank], IsUnavailable("ring 0, all-reduce #0 of g (fp32[70000]): Gloo: "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(kWaitSeconds / 2));
}

// 2 s, and a slow machine.
TEST_F(GlooCommunicatorTest, RankThatFailsAtAnyMomentEndsAllInTime) {
  std::mt19937 random(7);
  for (const testing::Fault fault : testing::kFaults) {
    for (const int victim : {0, 2}) {
      const double after_s = 1e-3 * static_cast<double>(random() % 200);
      SCOPED_TRACE(absl::StrCat(testing::FaultName(fault), " of ", victim, " after ", after_s));
      const testing::FaultOutcome outcome =
          testing::RunWithFault(NewGlooGroup, fault, victim, after_s);
      testing::ExpectTold(outcome, fault, victim, /*limit_s=*/4);
    }
  }
}

TEST_F(GlooCommunicatorTest, WithoutALinkRanksAreThreads) {
  const auto group = NewGlooGroup(Options(3));
  WEFT_ASSERT_OK(group.status());
  EXPECT_THAT(OnRankThreads(3, [&](int rank) { return AllReduce(group->get(), rank, 70000); }),
              Each(IsOk()));
}

}  // namespace
}  // namespace weft::testing
