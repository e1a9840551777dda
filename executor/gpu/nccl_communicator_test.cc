#include "executor/gpu/nccl_communicator.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/communicators/collective_cases.h"
#include "executor/gpu/gpu_api_testing.h"
#include "executor/gpu/nccl_ids.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/streams/cuda_stream.h"
#include "ops/tensor.h"

namespace weft::testing {
namespace {

// --- With a library that writes down its calls ---------------------------------------------------

constexpr char kFakeNccl[] = "executor/gpu/libfake_nccl.so";

template <typename Function>
Function* OfFake(const char* name) {
  void* const library = dlopen(kFakeNccl, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

class FakeNcclTest : public ::testing::Test {
 protected:
  void SetUp() override { OfFake<void()>("FakeNcclReset")(); }

  std::unique_ptr<CommunicatorGroup> NewGroup(int nranks, double timeout_s = 60) {
    GroupOptions options;
    options.nranks = nranks;
    options.timeout_s = timeout_s;
    options.warn_after_s = timeout_s / 2;
    options.warn = [this](const std::string& message) {
      std::lock_guard<std::mutex> lock(mutex_);
      warnings_.push_back(message);
    };
    return *NewNcclGroup(options, {kFakeNccl, "", &gpu_});
  }

  // The calls of NCCL since the last call.
  static std::vector<std::string> Calls() {
    const std::string text = OfFake<const char*()>("FakeNcclCalls")();
    OfFake<void()>("FakeNcclClear")();
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  // Those of Calls, once this one is among them.
  static std::vector<std::string> CallsUntil(const std::string& last) {
    std::vector<std::string> calls = Calls();
    while (std::find(calls.begin(), calls.end(), last) == calls.end()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (const std::string& call : Calls()) calls.push_back(call);
    }
    return calls;
  }

  CollectiveCall Call(CollectiveKind kind, int64_t count, FakeStream* stream) {
    CollectiveCall call;
    call.desc.kind = kind;
    call.desc.count = count;
    call.op = "op 3 (test)";
    call.variable = "w";
    call.dims = {count};
    call.stream = stream;
    return call;
  }

  FakeGpu gpu_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
  FakeStream stream_, other_stream_;
  std::vector<float> in_ = std::vector<float>(16, 1), out_ = std::vector<float>(64);
};

TEST_F(FakeNcclTest, CallsBecomeThoseOfTheLibrary) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  EXPECT_THAT(Calls(), ElementsAre("[0] CommInitRank of 1"));
  for (const auto& [kind, expected] :
       std::vector<std::pair<CollectiveKind, std::vector<std::string>>>{
           {CollectiveKind::kAllReduce, {"[0] AllReduce 4 type 7 op 0"}},
           {CollectiveKind::kReduce, {"[0] Reduce 4 root 0"}},
           {CollectiveKind::kReduceScatter, {"[0] ReduceScatter 4"}},
           {CollectiveKind::kAllGather, {"[0] AllGather 4"}},
           {CollectiveKind::kBroadcast, {"[0] Broadcast 4 root 0"}},
           {CollectiveKind::kAllToAll,
            {"GroupStart", "[0] Send 4 to 0", "[0] Recv 4 from 0", "GroupEnd"}},
           {CollectiveKind::kSend, {}},  // to itself
       }) {
    WEFT_EXPECT_OK(ring->Run(Call(kind, 4, &stream_), in_.data(), out_.data()));
    EXPECT_EQ(Calls(), expected) << CollectiveKindName(kind);
  }
  WEFT_EXPECT_OK(ring->Barrier(&stream_));
  EXPECT_THAT(Calls(), ElementsAre("[0] AllReduce 1 type 7 op 2"));
  CollectiveCall call = Call(CollectiveKind::kAllReduce, 4, &stream_);
  call.desc.dtype = DType::kBFloat16;
  call.desc.reduction = Reduction::kAvg;
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data()));
  EXPECT_THAT(Calls(), ElementsAre("[0] AllReduce 4 type 9 op 4"));
  stream_.Synchronize();
  WEFT_EXPECT_OK(ring->Check());
}

TEST_F(FakeNcclTest, ImpossibleCallsAreErrorsThatDoNotReachTheLibrary) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  Calls();
  CollectiveCall call = Call(CollectiveKind::kBroadcast, 4, &stream_);
  call.desc.root = 1;
  EXPECT_THAT(ring->Run(call, in_.data(), out_.data()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "ring 0, broadcast #0 from rank 1 of w (fp32[4]): root 1: expected 0 to 0"));
  call = Call(CollectiveKind::kSend, 4, &stream_);
  call.desc.peer = 2;
  EXPECT_THAT(ring->Run(call, in_.data(), out_.data()),
              IsInvalidArgument("peer 2: expected 0 to 0"));
  call = Call(CollectiveKind::kAllReduce, 4, &stream_);
  call.desc.dtype = DType::kInt16;
  EXPECT_THAT(ring->Run(call, in_.data(), out_.data()), IsUnimplemented("no element type int16"));
  EXPECT_THAT(Calls(), IsEmpty());
}

TEST_F(FakeNcclTest, GroupIsOneLaunchThatContainsItsCalls) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  Calls();
  const CollectiveCall call = Call(CollectiveKind::kAllReduce, 4, &stream_);
  WEFT_EXPECT_OK(ring->BeginGroup());
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data()));
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data() + 4));
  WEFT_EXPECT_OK(ring->EndGroup());
  EXPECT_THAT(Calls(), ElementsAre("GroupStart", "[0] AllReduce 4 type 7 op 0",
                                   "[0] AllReduce 4 type 7 op 0", "GroupEnd"));
  // The error of a call is that of the group, which ends all the same.
  CollectiveCall wrong = call;
  wrong.desc.dtype = DType::kInt16;
  WEFT_EXPECT_OK(ring->BeginGroup());
  EXPECT_THAT(ring->Run(wrong, in_.data(), out_.data()), Not(IsOk()));
  EXPECT_THAT(ring->EndGroup(), IsUnimplemented("int16"));
  EXPECT_THAT(Calls(), ElementsAre("GroupStart", "GroupEnd"));
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data()));
}

TEST_F(FakeNcclTest, GroupThatDoesNotStartIsNotOpen) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  Calls();
  OfFake<void(int)>("FakeNcclFailGroups")(5);
  EXPECT_THAT(ring->BeginGroup(), Not(IsOk()));
  const CollectiveCall call = Call(CollectiveKind::kAllReduce, 4, &stream_);
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data()));
  WEFT_EXPECT_OK(ring->EndGroup());
  EXPECT_THAT(Calls(), ElementsAre("GroupStart", "[0] AllReduce 4 type 7 op 0"));
}

TEST_F(FakeNcclTest, CallsOfAGroupThatDoesNotStartAreNotMade) {
  auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  Calls();
  OfFake<void(int)>("FakeNcclFailGroups")(5);
  EXPECT_THAT(ring->Run(Call(CollectiveKind::kAllToAll, 4, &stream_), in_.data(), out_.data()),
              IsInternal("ncclGroupStart: some error"));
  EXPECT_THAT(Calls(), ElementsAre("GroupStart"));
  group = nullptr;  // neither finalizes nor waits; then it aborts
  EXPECT_THAT(Calls(), ElementsAre("GroupStart", "GroupStart", "[0] CommAbort"));
  EXPECT_THAT(warnings_, ElementsAre("ncclGroupStart: some error"));
}

TEST_F(FakeNcclTest, UnequalPartsAreGatheredByOneGroupOfBroadcasts) {
  const auto group = NewGroup(2);
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    const auto ring = group->Get(RingKey{}, rank);
    if (!ring.ok()) return ring.status();
    return AllGatherUnequal(
        Call(CollectiveKind::kAllGather, 0, rank == 0 ? &stream_ : &other_stream_), {1, 3},
        in_.data(), out_.data() + 16 * rank, *ring);
  });
  EXPECT_THAT(results, Each(IsOk()));
  std::vector<std::string> calls;
  for (const std::string& call : Calls()) {
    if (!absl::StartsWith(call, "[1]")) calls.push_back(call);
  }
  EXPECT_THAT(calls, UnorderedElementsAre("[0] CommInitRank of 2", "GroupStart", "GroupStart",
                                          "[0] Broadcast 1 root 0", "[0] Broadcast 3 root 1",
                                          "GroupEnd", "GroupEnd"));
}

TEST_F(FakeNcclTest, BufferIsRegisteredOnceUntilItIsUnregistered) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  Calls();
  WEFT_EXPECT_OK(ring->Register(in_.data(), 64));
  WEFT_EXPECT_OK(ring->Register(in_.data(), 64));
  WEFT_EXPECT_OK(ring->Unregister(in_.data()));
  WEFT_EXPECT_OK(ring->Unregister(in_.data()));
  EXPECT_THAT(Calls(), ElementsAre("[0] CommRegister 64", "[0] CommDeregister"));
}

// A rank that allocates memory would wait for the device of one that is ahead of it, which would
// wait for that rank.
TEST_F(FakeNcclTest, NoDeviceBeginsACallBeforeAllRanksOfTheProcessHaveCome) {
  const auto group = NewGroup(2);
  std::vector<std::string> before;
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    const auto ring = group->Get(RingKey{}, rank);
    if (!ring.ok()) return ring.status();
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      before = Calls();
    }
    return (*ring)->Run(Call(CollectiveKind::kAllReduce, 4, rank == 0 ? &stream_ : &other_stream_),
                        in_.data(), out_.data() + 16 * rank);
  });
  EXPECT_THAT(results, Each(IsOk()));
  EXPECT_THAT(before, UnorderedElementsAre("[0] CommInitRank of 2", "[1] CommInitRank of 2"));
  EXPECT_THAT(Calls(),
              UnorderedElementsAre("[0] AllReduce 4 type 7 op 0", "[1] AllReduce 4 type 7 op 0"));
}

// The same, of a rank that is on its device before another one has launched: its next op may
// allocate.
TEST_F(FakeNcclTest, NoRankGoesOnBeforeAllOfTheProcessHaveLaunched) {
  struct SlowGpu : public FakeGpu {
    absl::StatusOr<std::unique_ptr<Mark>> NewMark() override {
      if (*CurrentDevice() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return FakeGpu::NewMark();
    }
    std::shared_ptr<void> Allocate(size_t bytes) override {
      OfFake<void(const char*)>("FakeNcclLog")("allocation");
      return FakeGpu::Allocate(bytes);
    }
  } gpu;
  for (const bool is_group : {false, true}) {
    GroupOptions options;
    options.nranks = 2;
    const auto group = *NewNcclGroup(options, {kFakeNccl, "", &gpu});
    const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
      WEFT_RETURN_IF_ERROR(gpu.SetDevice(rank));
      WEFT_ASSIGN_OR_RETURN(Communicator* const ring, group->Get(RingKey{}, rank));
      // The last one that comes is the first one that launches.
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (is_group) WEFT_RETURN_IF_ERROR(ring->BeginGroup());
      WEFT_RETURN_IF_ERROR(
          ring->Run(Call(CollectiveKind::kAllReduce, 4, rank == 0 ? &stream_ : &other_stream_),
                    in_.data(), out_.data() + 16 * rank));
      if (is_group) WEFT_RETURN_IF_ERROR(ring->EndGroup());
      (void)gpu.Allocate(1);
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk()));
    std::vector<std::string> calls;
    for (const std::string& call : Calls()) {
      if (absl::StrContains(call, "AllReduce") || call == "allocation") calls.push_back(call);
    }
    ASSERT_EQ(calls.size(), 4);
    EXPECT_THAT(std::vector<std::string>(calls.begin() + 2, calls.end()), Each("allocation"));
    stream_.Synchronize();
    other_stream_.Synchronize();
  }
}

// Of two ranks, one fails between the rendezvous and its launch.
TEST_F(FakeNcclTest, RankWhoseLaunchFailsDoesNotHoldTheOthers) {
  const auto group = NewGroup(2);
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Communicator* const ring, group->Get(RingKey{}, rank));
    CollectiveCall call =
        Call(CollectiveKind::kAllReduce, 4, rank == 0 ? &stream_ : &other_stream_);
    if (rank == 1) call.desc.dtype = DType::kInt16;
    return ring->Run(call, in_.data(), out_.data() + 16 * rank);
  });
  EXPECT_THAT(results, ElementsAre(IsOk(), IsUnimplemented("int16")));
}

// NCCL launches in some microseconds; a thread that slept would wake up much later.
TEST_F(FakeNcclTest, LaunchTakesAsLongAsInTheLibrary) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  OfFake<void(int)>("FakeNcclSetLaunchTime")(15);
  std::chrono::nanoseconds least = std::chrono::seconds(1);
  for (int i = 0; i < 500; ++i) {
    const auto start = std::chrono::steady_clock::now();
    WEFT_ASSERT_OK(
        ring->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()));
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - start);
  }
  EXPECT_GE(least, std::chrono::microseconds(15));
  EXPECT_LT(least, std::chrono::microseconds(45));
  stream_.Synchronize();
}

TEST_F(FakeNcclTest, AbortEndsALaunchThatIsInProgress) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  OfFake<void(int)>("FakeNcclSetLaunchTime")(60'000'000);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    group->Abort(absl::InternalError("rank 1 failed"));
  });
  EXPECT_THAT(ring->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()),
              IsAborted("rank 1 failed"));
  other.join();
  (void)CallsUntil("[0] CommAbort");
}

// NCCL's abort may take as long as a rank needs to see the error, and to give up its graphs.
TEST_F(FakeNcclTest, RanksGoOnWhileTheLibraryAborts) {
  const auto group = NewGroup(2);
  std::vector<Communicator*> rings(2);
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(rings[rank], group->Get(RingKey{}, rank));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
  OfFake<void(int)>("FakeNcclHoldAborts")(1);
  group->Abort(absl::InternalError("rank 2 failed"));
  (void)CallsUntil("[0] CommAbort");
  EXPECT_THAT(rings[1]->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()),
              IsAborted("rank 2 failed"));
  WEFT_EXPECT_OK(rings[1]->Check());
  OfFake<void(int)>("FakeNcclHoldAborts")(0);
  EXPECT_THAT(CallsUntil("GroupEnd"), ElementsAre("[1] CommAbort", "GroupEnd"));
}

// Neither the thread that watches calls nor one that aborts them nor one that ends the run may make
// a context on a device of others.
TEST_F(FakeNcclTest, AllThreadsUseTheDevicesOfTheRanks) {
  for (const bool aborts : {false, true}) {
    FakeGpu gpu;
    auto group = *NewNcclGroup({}, {kFakeNccl, "", &gpu});
    std::atomic<bool> may_end{false};
    std::thread([&] {
      WEFT_ASSERT_OK(gpu.SetDevice(3));
      WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
      stream_.Enqueue([&] {
        while (!may_end) std::this_thread::yield();
      });
      WEFT_ASSERT_OK(
          ring->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()));
      // The thread that watches has asked whether the call has begun.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      may_end = true;
      stream_.Synchronize();
    }).join();
    std::thread([&] {
      if (aborts) group->Abort(absl::InternalError("no peer"));
      group = nullptr;
    }).join();
    EXPECT_THAT(gpu.contexts(), ElementsAre(3)) << aborts;
  }
}

// Peers may still receive what this process has sent.
TEST_F(FakeNcclTest, RunWithoutErrorsDestroysItsCommunicators) {
  auto group = NewGroup(2);
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Communicator* const ring, group->Get(RingKey{}, rank));
    return ring->Run(Call(CollectiveKind::kAllReduce, 4, rank == 0 ? &stream_ : &other_stream_),
                     in_.data(), out_.data() + 16 * rank);
  });
  EXPECT_THAT(results, Each(IsOk()));
  stream_.Synchronize();
  other_stream_.Synchronize();
  Calls();
  group = nullptr;
  EXPECT_THAT(Calls(), ElementsAre("GroupStart", "[0] CommFinalize", "[1] CommFinalize", "GroupEnd",
                                   "[0] CommDestroy", "[1] CommDestroy"));
  EXPECT_THAT(warnings_, IsEmpty());
}

// Whose calls are still on the device: it has failed.
TEST_F(FakeNcclTest, RunThatEndsTooEarlyAborts) {
  std::atomic<bool> may_end{false};
  {
    const auto group = NewGroup(1);
    WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
    stream_.Enqueue([&] {
      while (!may_end) std::this_thread::yield();
    });
    WEFT_ASSERT_OK(
        ring->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()));
    Calls();
  }
  EXPECT_THAT(Calls(), ElementsAre("GroupStart", "[0] CommAbort", "GroupEnd"));
  may_end = true;
  stream_.Synchronize();
}

TEST_F(FakeNcclTest, RankOfTheProcessThatDoesNotComeIsNamed) {
  const auto group = NewGroup(2, /*timeout_s=*/0.2);
  const auto results = OnRankThreads(2, [&](int rank) -> absl::Status {
    const auto ring = group->Get(RingKey{}, rank);
    if (!ring.ok() || rank == 1) return ring.status();
    return (*ring)->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data());
  });
  EXPECT_THAT(results[0],
              IsDeadlineExceeded("rank 0: not complete after 0.2 s; not arrived: rank 1"));
}

// Otherwise one device may run the first ring first, another one the second, and both wait.
TEST_F(FakeNcclTest, CallsOfDifferentRingsRunOneAfterTheOther) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const first, group->Get(RingKey{0}, 0));
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const second, group->Get(RingKey{1}, 0));
  std::atomic<bool> may_end{false}, has_run{false};
  stream_.Enqueue([&] {
    while (!may_end) std::this_thread::yield();
  });
  WEFT_EXPECT_OK(
      first->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()));
  WEFT_EXPECT_OK(
      second->Run(Call(CollectiveKind::kAllReduce, 4, &other_stream_), in_.data(), out_.data()));
  other_stream_.Enqueue([&] { has_run = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(has_run);
  may_end = true;
  stream_.Synchronize();
  other_stream_.Synchronize();
  EXPECT_TRUE(has_run);
}

TEST_F(FakeNcclTest, ErrorOfThePeersThatComesLaterAbortsTheRun) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  std::atomic<bool> may_end{false};
  stream_.Enqueue([&] {
    while (!may_end) std::this_thread::yield();
  });
  const CollectiveCall call = Call(CollectiveKind::kAllReduce, 4, &stream_);
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data()));
  WEFT_EXPECT_OK(ring->Check());
  OfFake<void(int)>("FakeNcclFail")(6);
  while (ring->Check().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(ring->Check(),
              StatusIs(absl::StatusCode::kInternal,
                       "ring 0: remote process exited or there was a network error"));
  EXPECT_THAT(ring->Run(call, in_.data(), out_.data()), Not(IsOk()));
  (void)CallsUntil("[0] CommAbort");
  may_end = true;
  stream_.Synchronize();
}

TEST_F(FakeNcclTest, CallThatDoesNotEndIsReportedThenAborted) {
  const auto group = NewGroup(1, /*timeout_s=*/0.2);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  std::atomic<bool> may_end{false};
  CollectiveCall call = Call(CollectiveKind::kReduce, 4, &stream_);
  WEFT_EXPECT_OK(ring->BeginGroup());
  WEFT_EXPECT_OK(ring->Run(call, in_.data(), out_.data()));
  stream_.Enqueue([&] {
    while (!may_end) std::this_thread::yield();
  });
  WEFT_EXPECT_OK(ring->EndGroup());
  while (ring->Check().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(ring->Check(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "op 3 (test): ring 0, reduce #0 to rank 0 of w (fp32[4]), rank 0: not "
                       "complete after 0.2 s"));
  may_end = true;
  stream_.Synchronize();
  std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not complete after 0.1 s")));
}

TEST_F(FakeNcclTest, AbortInAGroupWaitsForItsEnd) {
  const auto group = NewGroup(1);
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator* const ring, group->Get(RingKey{}, 0));
  Calls();
  WEFT_EXPECT_OK(ring->BeginGroup());
  WEFT_EXPECT_OK(ring->Run(Call(CollectiveKind::kAllReduce, 4, &stream_), in_.data(), out_.data()));
  group->Abort(absl::InternalError("rank 1 failed"));
  EXPECT_THAT(ring->EndGroup(), IsAborted("rank 1 failed"));
  std::vector<std::string> calls = CallsUntil("[0] CommAbort");
  calls.resize(5);
  EXPECT_THAT(calls, ElementsAre("GroupStart", "[0] AllReduce 4 type 7 op 0", "GroupEnd",
                                 "GroupStart", "[0] CommAbort"));
}

TEST_F(FakeNcclTest, RankThatDoesNotComeEndsTheSetUp) {
  const auto group = NewGroup(2, /*timeout_s=*/0.2);
  EXPECT_THAT(group->Get(RingKey{}, 0).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "ring 0: set-up of rank 0: not complete after 0.2 s"));
}

TEST_F(FakeNcclTest, ProcessesShareTheIdsOfTheirRings) {
  for (const std::string& file : {std::string(), ::testing::TempDir() + "/nccl_ids"}) {
    // Of a run that has failed.
    if (!file.empty()) {
      WEFT_ASSERT_OK(WriteFile(file, "weft NCCL ids 0123456789abcdef\nold"));
    }
    const auto links = MakeLinks(3);
    const auto results = OnRankThreads(3, [&](int process) -> absl::Status {
      GroupOptions options;
      options.nranks = 3;
      options.link = links[process].get();
      options.rings = {RingKey{0}, RingKey{1, false, {1, 2}}};
      const auto group = NewNcclGroup(options, {kFakeNccl, file, &gpu_});
      if (!group.ok()) return group.status();
      for (const RingKey& ring : options.rings) {
        if (!ring.Has(process)) continue;
        const absl::Status status = (*group)->Get(ring, process).status();
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk()));
    EXPECT_THAT(Calls(), IsSupersetOf({"[0] CommInitRank of 3", "[1] CommInitRank of 3",
                                       "[2] CommInitRank of 3", "[0] CommInitRank of 2",
                                       "[1] CommInitRank of 2"}));
    if (!file.empty()) {
      EXPECT_EQ(ReadFile(file).status().code(), absl::StatusCode::kNotFound);
    }
  }
}

TEST_F(FakeNcclTest, ProcessThatCannotMakeIdsIsNamedByAll) {
  for (const std::string& file : {std::string(), ::testing::TempDir() + "/no/such/directory"}) {
    const auto links = MakeLinks(2);
    const auto results = OnRankThreads(2, [&](int process) {
      GroupOptions options;
      options.nranks = 2;
      options.link = links[process].get();
      options.rings = {RingKey{0}};
      return ShareNcclIds(options, file,
                          []() -> absl::StatusOr<nccl::UniqueId> {
                            return absl::UnavailableError("no NCCL here");
                          })
          .status();
    });
    EXPECT_THAT(results[0], IsUnavailable("no NCCL here"));
    EXPECT_THAT(results[1],
                StatusIs(absl::StatusCode::kFailedPrecondition, "process 0: no NCCL here"));
  }
}

TEST(NcclGroupTest, MissingLibraryIsReportedWhenARingIsSetUp) {
  FakeGpu gpu;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup({}, {"/no/such/file", "", &gpu}));
  EXPECT_THAT(group->Get(RingKey{}, 0).status(), IsUnavailable("ring 0: /no/such/file"));
}

TEST(NcclGroupTest, BuildWithoutCudaSaysSo) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup({}, {kFakeNccl, "", nullptr}));
  EXPECT_THAT(group->Get(RingKey{}, 0).status(),
              StatusIs(absl::StatusCode::kUnavailable, "ring 0: built without CUDA"));
}

// --- On a GPU ------------------------------------------------------------------------------------

// One rank: the result of a reduction is its input.
TEST(NcclCommunicator, ReducesOnOneDevice) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup({}));
  WEFT_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Stream> stream, (*device)->NewStream("ring 0"));
  const absl::StatusOr<Communicator*> made = group->Get({0, false}, 0);
  if (absl::IsUnavailable(made.status())) GTEST_SKIP() << made.status();
  WEFT_ASSERT_OK(made.status());
  Communicator* ring = *made;

  Tensor host;
  host.Resize(DType::kFloat32, {3});
  for (int i = 0; i < 3; ++i) host.data<float>()[i] = 1.5F * i;
  Tensor in((*device)->memory()), out((*device)->memory());
  WEFT_ASSERT_OK(in.CopyFrom(host));
  out.Resize(DType::kFloat32, {3});
  CollectiveCall call;
  call.desc.count = 3;
  call.variable = "w@GRAD";
  call.dims = {3};
  call.stream = stream->native_handle();
  for (const Reduction reduction : {Reduction::kSum, Reduction::kAvg, Reduction::kMax}) {
    call.desc.reduction = reduction;
    stream->Launch([&] { return ring->Run(call, in.raw(), out.raw()); });
    WEFT_ASSERT_OK(stream->Synchronize());
    WEFT_ASSERT_OK(ring->Check());
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensor found, out.ToHost());
    EXPECT_THAT(std::vector<float>(found.data<float>(), found.data<float>() + 3),
                ElementsAre(0, 1.5F, 3));
  }
  call.desc.root = 1;
  EXPECT_THAT(ring->Run(call, in.raw(), out.raw()), IsInvalidArgument("root 1: expected 0 to 0"));
}

// Without NCCL only rings are missing: ranks that never communicate need none.
TEST(NcclCommunicator, GroupIsMadeInAnyBuild) {
  GroupOptions options;
  options.nranks = 3;
  WEFT_EXPECT_OK(NewNcclGroup(options).status());
}

// A single rank of two: reported, then an error.
TEST(NcclCommunicator, RankThatDoesNotComeEndsTheSetUp) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  std::vector<std::string> warnings;
  GroupOptions options;
  options.nranks = 2;
  options.warn_after_s = 0.1;
  options.timeout_s = 0.5;
  options.warn = [&](const std::string& message) { warnings.push_back(message); };
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup(options));
  const absl::Status status = group->Get({0, false}, 0).status();
  if (absl::IsUnavailable(status)) GTEST_SKIP() << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               "ring 0: set-up of rank 0: not complete after 0.5 s"));
  EXPECT_THAT(warnings, ElementsAre("ring 0: set-up of rank 0: not complete after 0.1 s"));
}

TEST(NcclCommunicator, AbortReleasesARankThatWaitsForOthers) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  GroupOptions options;
  options.nranks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup(options));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group->Abort(absl::InternalError("rank 1 failed: no parameters"));
  });
  const absl::Status status = group->Get({0, false}, 0).status();
  other.join();
  if (absl::IsUnavailable(status)) GTEST_SKIP() << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "rank 1 failed: no parameters"));
}

}  // namespace
}  // namespace weft::testing
