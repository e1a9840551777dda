#include "executor/communicators/message_collectives.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/testing/test.h"
#include "executor/communicators/collective_cases.h"
#include "executor/jobs/job_link_testing.h"

namespace weft::testing {
namespace {

// Short messages are copied when they are sent; the sender of a long one waits until it is taken.
constexpr size_t kEagerBytes = 1000;

struct Message {
  const char* data;
  size_t bytes;
  std::string copy;
  bool* is_taken;
};

// The messages of a ring between threads.
struct Wire {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Message>> messages;  // by sender and receiver
  bool is_closed = false;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(Wire* wire, int rank) : wire_(wire), rank_(rank) {}

  void Receive(int from, void* data, size_t bytes) override {
    receives_.push_back({from, static_cast<char*>(data), bytes});
  }

  void Send(int to, const void* data, size_t bytes) override {
    std::lock_guard<std::mutex> lock(wire_->mutex);
    Message message{static_cast<const char*>(data), bytes, "", nullptr};
    if (bytes <= kEagerBytes) {
      if (bytes > 0) message.copy.assign(message.data, bytes);
    } else {
      sends_.push_back({to, false});
      message.is_taken = &sends_.back().is_taken;
    }
    wire_->messages[{rank_, to}].push_back(std::move(message));
    wire_->changed.notify_all();
  }

  absl::Status Wait(Clock::time_point until) override {
    std::unique_lock<std::mutex> lock(wire_->mutex);
    bool is_done = false;
    wire_->changed.wait_until(lock, until, [&] {
      is_done = Progress();
      return is_done || is_interrupted_ || wire_->is_closed;
    });
    if (is_done) return absl::OkStatus();
    if (is_interrupted_) return absl::CancelledError();
    if (wire_->is_closed) return absl::UnavailableError("the wire was cut");
    return absl::DeadlineExceededError("");
  }

  std::vector<int> Pending() const override {
    std::vector<int> ranks;
    for (const Incoming& receive : receives_) ranks.push_back(receive.from);
    if (ranks.empty()) {
      for (const Outgoing& send : sends_) ranks.push_back(send.to);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  void Interrupt() override {
    std::lock_guard<std::mutex> lock(wire_->mutex);
    is_interrupted_ = true;
    wire_->changed.notify_all();
  }

  void Stop() override {
    std::lock_guard<std::mutex> lock(wire_->mutex);
    for (auto& [ranks, messages] : wire_->messages) {
      if (ranks.first == rank_) messages.clear();
    }
  }

 private:
  struct Incoming {
    int from;
    char* data;
    size_t bytes;
  };
  struct Outgoing {
    int to;
    bool is_taken;
  };

  // Takes what has come. True if nothing is left to do.
  bool Progress() {
    for (auto it = receives_.begin(); it != receives_.end();) {
      std::deque<Message>& queue = wire_->messages[{it->from, rank_}];
      if (queue.empty()) {
        ++it;
        continue;
      }
      const Message& message = queue.front();
      EXPECT_LE(message.bytes, it->bytes);
      if (message.is_taken != nullptr) {
        std::memcpy(it->data, message.data, message.bytes);
        *message.is_taken = true;
        wire_->changed.notify_all();
      } else if (message.bytes > 0) {
        std::memcpy(it->data, message.copy.data(), message.bytes);
      }
      queue.pop_front();
      it = receives_.erase(it);
    }
    while (!sends_.empty() && sends_.front().is_taken) sends_.pop_front();
    return receives_.empty() && sends_.empty();
  }

  Wire* const wire_;
  const int rank_;
  std::deque<Incoming> receives_;
  std::deque<Outgoing> sends_;
  bool is_interrupted_ = false;
};

// A group whose ranks are threads, of this test if options.link is null.
struct Net {
  explicit Net(const std::vector<RingKey>& keys) : keys(keys), wires(keys.size()) {}

  std::unique_ptr<CommunicatorGroup> NewGroup(GroupOptions options) {
    options.rings = keys;
    return NewMessageGroup(std::move(options),
                           [this](int ring, int position) {
                             return std::make_unique<ThreadTransport>(&wires[ring], position);
                           })
        .value();
  }

  std::vector<RingKey> keys;
  std::deque<Wire> wires;
};

GroupOptions Options(int nranks, double timeout_s = 60) {
  GroupOptions options;
  options.nranks = nranks;
  options.timeout_s = timeout_s;
  return options;
}

absl::Status AllReduce(CommunicatorGroup* group, int rank, std::vector<float>* buffer,
                       absl::string_view variable = "g", const RingKey& ring = {}) {
  CollectiveCall call;
  call.desc.count = static_cast<int64_t>(buffer->size());
  call.op = "op 7 (c_allreduce_sum)";
  call.variable = variable;
  call.dims = {call.desc.count};
  return (*group->Get(ring, rank))->Run(call, buffer->data(), buffer->data());
}

TEST(MessageCollectivesTest, ResultsAreThoseOfThreadsBitForBit) {
  for (const int nranks : {1, 2, 3, 4}) {
    const std::vector<CollectiveCase> cases = CollectiveCases(nranks);
    const std::vector<std::vector<std::string>> expected = ExpectedResults(cases, nranks);
    Net net({RingKey{}});
    const auto group = net.NewGroup(Options(nranks));
    const auto results = OnRankThreads(nranks, [&](int rank) {
      const auto found = RunCases(cases, *group->Get(RingKey{}, rank));
      if (!found.ok()) return found.status();
      EXPECT_EQ(FirstDifference(cases, *found, expected[rank]), "");
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk())) << nranks;
  }
}

TEST(MessageCollectivesTest, RingsOverSomeRanksSumOverTheseOnly) {
  const RingKey all{0, false}, low{1, false, {0, 2}}, high{2, true, {1, 3}};
  Net net({all, low, high});
  const auto group = net.NewGroup(Options(4));
  std::vector<std::vector<float>> buffers(4), of_all(4);
  const auto results = OnRankThreads(4, [&](int r) {
    buffers[r].assign(40001, static_cast<float>(r == 0 ? 1 : r * 10));
    of_all[r] = buffers[r];
    absl::Status status = AllReduce(group.get(), r, &buffers[r], "g", low.Has(r) ? low : high);
    status.Update(AllReduce(group.get(), r, &of_all[r]));
    return status;
  });
  EXPECT_THAT(results, Each(IsOk()));
  for (int r = 0; r < 4; ++r) {
    EXPECT_THAT(buffers[r], Each(r % 2 == 0 ? 21 : 40)) << r;
    EXPECT_THAT(of_all[r], Each(61)) << r;
  }
  EXPECT_THAT(group->Get(RingKey{4, false}, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "ring 4, rank 0: not set up when the run began: it has ring 0, ring 1 of "
                       "ranks 0, 2, ring 2 of ranks 1, 3 (compute stream), and ranks 0 to 3 here"));
  EXPECT_THAT(group->Get(low, 1), StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
}

// The messages are those of LocalCommunicatorTest.
TEST(MessageCollectivesTest, DifferentCallsAreAnErrorThatNamesBoth) {
  for (const size_t count : {2, 100000}) {
    Net net({RingKey{}});
    const auto group = net.NewGroup(Options(3));
    const auto results = OnRankThreads(3, [&](int rank) {
      std::vector<float> a = {1}, b(count, 1);
      absl::Status status = AllReduce(group.get(), rank, &a);
      return status.ok() ? AllReduce(group.get(), rank, rank == 0 ? &a : &b, rank == 0 ? "w" : "v")
                         : status;
    });
    EXPECT_THAT(
        results,
        Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("ring 0: ranks call different collectives: rank 0 calls "
                                   "all-reduce #1 of w (fp32[1]) in op 7 (c_allreduce_sum), rank "
                                   "1 calls all-reduce #1 of v (fp32[",
                                   count, "]) in op 7 (c_allreduce_sum)"))));
    std::vector<float> a = {1};
    EXPECT_THAT(AllReduce(group.get(), 2, &a),
                StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
  }
}

TEST(MessageCollectivesTest, EachPartOfADescriptorIsCompared) {
  CollectiveDesc desc;
  desc.count = 4;
  std::vector<CollectiveDesc> others(6, desc);
  others[0].kind = CollectiveKind::kReduceScatter;
  others[1].reduction = Reduction::kMax;
  others[2].dtype = DType::kInt32;
  others[3].count = 2;
  others[4].root = 1;
  others[5].rounds_each_addition = true;
  for (size_t i = 0; i < others.size(); ++i) {
    Net net({RingKey{}});
    const auto group = net.NewGroup(Options(2));
    const auto results = OnRankThreads(2, [&](int rank) {
      CollectiveCall call;
      call.desc = rank == 0 ? desc : others[i];
      float x[4] = {};
      return (*group->Get(RingKey{}, rank))->Run(call, x, x);
    });
    EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_))) << i;
  }
}

TEST(MessageCollectivesTest, RefusesImpossibleCollectives) {
  Net net({RingKey{}});
  const auto group = net.NewGroup(Options(2));
  const auto results = OnRankThreads(2, [&](int rank) {
    CollectiveCall call;
    call.desc.kind = CollectiveKind::kBroadcast;
    call.desc.root = 2;
    call.desc.count = 1;
    call.variable = "w";
    call.dims = {1};
    float x = 0;
    return (*group->Get(RingKey{}, rank))->Run(call, &x, &x);
  });
  EXPECT_THAT(results,
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            "ring 0, broadcast #0 from rank 2 of w (fp32[1]): root 2 is none of "
                            "the 2 ranks")));
}

TEST(MessageCollectivesTest, RankThatDoesNotArriveIsNamedOnAllThatWait) {
  Net net({RingKey{}});
  const auto group = net.NewGroup(Options(4, /*timeout_s=*/1));
  std::mutex mutex;
  std::condition_variable changed;
  int num_first = 0;
  const auto results = OnRankThreads(4, [&](int rank) {
    std::vector<float> buffer = {1};
    const absl::Status status = AllReduce(group.get(), rank, &buffer, "b@GRAD");
    {
      // The time of the second call counts from when the others are there, too.
      std::unique_lock<std::mutex> lock(mutex);
      ++num_first;
      changed.notify_all();
      changed.wait(lock, [&] { return num_first == 4; });
    }
    if (!status.ok() || rank == 1) return status;
    return AllReduce(group.get(), rank, &buffer, "w@GRAD");
  });
  WEFT_EXPECT_OK(results[1]);
  for (int rank : {0, 2, 3}) {
    EXPECT_THAT(results[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         "ring 0, all-reduce #1 of w@GRAD (fp32[1]): rank 1 has not arrived after "
                         "1 s; waiting: rank 0, 2, 3; rank 1 last arrived at all-reduce #0 of "
                         "b@GRAD (fp32[1])"));
  }
}

TEST(MessageCollectivesTest, RankThatIsInAnotherCallIsNamedWithIt) {
  const RingKey other{3, false};
  Net net({RingKey{}, other});
  const auto group = net.NewGroup(Options(2, /*timeout_s=*/0.5));
  const auto results = OnRankThreads(2, [&](int rank) {
    std::vector<float> buffer = {1};
    return AllReduce(group.get(), rank, &buffer, rank == 0 ? "w" : "v",
                     rank == 0 ? RingKey{} : other);
  });
  // The first to give up sees the other.
  EXPECT_THAT(results, Each(IsDeadlineExceeded("has never arrived")));
  EXPECT_THAT(
      results,
      Contains(IsDeadlineExceeded(AnyOf(HasSubstr("rank 1 has never arrived and is in ring 3, "
                                                  "all-reduce #0 of v (fp32[1])"),
                                        HasSubstr("rank 0 has never arrived and is in ring 0, "
                                                  "all-reduce #0 of w (fp32[1])")))));
}

TEST(MessageCollectivesTest, WarnsOnceOfARankThatIsLate) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  GroupOptions options = Options(2);
  options.warn_after_s = 0.02;
  options.warn = [&](const std::string& message) {
    std::lock_guard<std::mutex> lock(mutex);
    warnings.push_back(message);
  };
  Net net({RingKey{}});
  const auto group = net.NewGroup(options);
  const auto results = OnRankThreads(2, [&](int rank) {
    // Rank 1 arrives after it was reported.
    while (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::lock_guard<std::mutex> lock(mutex);
      if (!warnings.empty()) break;
    }
    std::vector<float> buffer = {1};
    return AllReduce(group.get(), rank, &buffer);
  });
  EXPECT_THAT(results, Each(IsOk()));
  ASSERT_FALSE(warnings.empty());
  EXPECT_EQ(warnings[0],
            "ring 0, all-reduce #0 of g (fp32[1]): rank 1 has not arrived after 0.02 s; waiting: "
            "rank 0; rank 1 has never arrived");
}

TEST(MessageCollectivesTest, AbortReleasesWaitingRanksAndNamesTheOneThatFailed) {
  Net net({RingKey{}});
  const auto group = net.NewGroup(Options(3));
  const auto results = OnRankThreads(3, [&](int rank) {
    std::vector<float> buffer(rank == 0 ? 1 : 50000, 1);
    if (rank == 2) {
      group->Abort(absl::InternalError("rank 2 failed: op 5 (mul): out of luck"));
      return absl::OkStatus();
    }
    return AllReduce(group.get(), rank, &buffer);
  });
  for (int rank : {0, 1}) {
    EXPECT_THAT(results[rank],
                IsAborted(AllOf(HasSubstr("ring 0, all-reduce #0 of g (fp32["),
                                HasSubstr("]): aborted: rank 2 failed: op 5 (mul): out of luck"))));
  }
  std::vector<float> buffer = {1};
  EXPECT_THAT(AllReduce(group.get(), 2, &buffer),
              StatusIs(absl::StatusCode::kAborted, ::testing::_));
}

TEST(MessageCollectivesTest, ErrorOfTheEngineNamesTheCall) {
  Net net({RingKey{}});
  const auto group = net.NewGroup(Options(2));
  std::thread cut([&] {
    std::lock_guard<std::mutex> lock(net.wires[0].mutex);
    net.wires[0].is_closed = true;
    net.wires[0].changed.notify_all();
  });
  std::vector<float> buffer = {1};
  EXPECT_THAT(AllReduce(group.get(), 0, &buffer),
              StatusIs(absl::StatusCode::kUnavailable,
                       "ring 0, all-reduce #0 of g (fp32[1]): the wire was cut"));
  cut.join();
}

TEST(MessageCollectivesTest, ProcessesCompareTheirRings) {
  const std::vector<std::unique_ptr<JobLink>> links = testing::MakeLinks(2);
  const auto results = OnRankThreads(2, [&](int process) {
    GroupOptions options = Options(2);
    options.link = links[process].get();
    options.rings = {RingKey{}};
    WEFT_EXPECT_OK(CompareRings(options));
    if (process == 1) options.rings.push_back({1, true});
    return CompareRings(options);
  });
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                     "processes have different rings: process 0 ring 0; process 1 "
                                     "ring 0, ring 1 (compute stream)")));
}

// Two processes of two ranks.
// Runs two processes of two ranks each, in which rank 1 comes late. Returns whether a warning has
// said where rank 3 is.
bool ToldWhereTheOthersAre() {
  const RingKey other{3, false, {1, 3}};
  const std::vector<std::unique_ptr<JobLink>> links = testing::MakeLinks(2);
  Net net({RingKey{}, other});
  std::vector<std::unique_ptr<CommunicatorGroup>> groups;
  std::mutex mutex;
  std::vector<std::string> warnings;
  for (int p = 0; p < 2; ++p) {
    GroupOptions options = Options(4);
    options.link = links[p].get();
    options.warn_after_s = 0.02;
    options.warn = [&](const std::string& message) {
      std::lock_guard<std::mutex> lock(mutex);
      warnings.push_back(message);
    };
    groups.push_back(net.NewGroup(options));
  }
  EXPECT_THAT(groups[0]->Get(RingKey{}, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
  const auto found = [&](const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex);
    return absl::c_any_of(warnings, [&](const std::string& w) { return w.find(text) != w.npos; });
  };
  const auto wait_for = [&](const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    while (!found(text) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  // Rank 3 waits for rank 1 on the other ring until ranks 0 and 2 have seen it there.
  const std::string seen = "rank 3 has never arrived and is in ring 3 of ranks 1, 3, all-reduce #0";
  const auto results = OnRankThreads(4, [&](int rank) {
    std::vector<float> x = {1}, y = {static_cast<float>(rank)};
    CommunicatorGroup* const group = groups[rank / 2].get();
    absl::Status status;
    if (rank == 0) wait_for("ring 3 of ranks 1, 3, all-reduce #0 of v (fp32[1]): rank 1");
    if (rank == 1) wait_for(seen);
    if (rank % 2 == 1) status = AllReduce(group, rank, &x, "v", other);
    status.Update(AllReduce(group, rank, &y));
    EXPECT_THAT(x, ElementsAre(rank % 2 == 1 ? 2 : 1));
    EXPECT_THAT(y, ElementsAre(6));
    return status;
  });
  EXPECT_THAT(results, Each(IsOk()));
  return found(seen);
}

// A warning tells what the other processes have answered within a moment, which a busy machine may
// not give them.
TEST(MessageCollectivesTest, ProcessesHaveTheirRanksAndTellWhereTheyAre) {
  bool is_told = false;
  for (int attempt = 0; attempt < 5 && !is_told; ++attempt) is_told = ToldWhereTheOthersAre();
  EXPECT_TRUE(is_told);
}

}  // namespace
}  // namespace weft::testing
