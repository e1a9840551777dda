#include "executor/run/state_exchange.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/jobs/job_link_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// A link that counts the bytes of what its process sends.
class CountingLink : public JobLink {
 public:
  explicit CountingLink(JobLink* link) : link_(*link) {}

  int process() const override { return link_.process(); }
  int num_processes() const override { return link_.num_processes(); }
  bool is_one_host() const override { return link_.is_one_host(); }
  absl::StatusOr<std::vector<std::string>> AllGather(std::string text) override {
    return link_.AllGather(std::move(text));
  }
  absl::StatusOr<std::vector<std::string>> Gather(std::string text) override {
    return link_.Gather(std::move(text));
  }
  void Send(int process, Topic topic, std::string message) override {
    sent_bytes_ += message.size();
    link_.Send(process, topic, std::move(message));
  }
  void Listen(Topic topic, Handler handler) override { link_.Listen(topic, std::move(handler)); }
  void Abort(int rank, const absl::Status& status) override { link_.Abort(rank, status); }
  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    link_.OnFailure(std::move(handler));
  }
  absl::Status Finish() override { return link_.Finish(); }

  size_t sent_bytes() const { return sent_bytes_; }

 private:
  JobLink& link_;
  std::atomic<size_t> sent_bytes_{0};
};

class StateExchangeTest : public ::testing::Test {
 protected:
  // All processes give the states of their ranks, two each, at the same time.
  void Exchange(const std::vector<RankState>& states) {
    const int n = static_cast<int>(states.size()) / 2;
    const auto links = MakeLinks(n);
    std::vector<std::unique_ptr<CountingLink>> counting;
    std::vector<std::unique_ptr<StateExchange>> exchanges;
    for (int p = 0; p < n; ++p) {
      counting.push_back(std::make_unique<CountingLink>(links[p].get()));
      exchanges.push_back(std::make_unique<StateExchange>(
          WorldOf(2 * n, links[p].get()), counting[p].get(), [this](std::vector<RankState> all) {
            used_ = std::move(all);
            return use_status_;
          }));
    }
    for (int time = 0; time < 2; ++time) {
      std::vector<absl::Status> results(n);
      std::vector<std::thread> threads;
      for (int p = 0; p < n; ++p) {
        threads.emplace_back([&, p] {
          results[p] = exchanges[p]->Exchange({states[2 * p], states[2 * p + 1]});
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const absl::Status& result : results) EXPECT_EQ(result, use_status_);
    }
    exchanges.clear();
    sent_bytes_.clear();
    for (const auto& link : counting) sent_bytes_.push_back(link->sent_bytes() / 2);
  }

  static RankState State(std::map<std::string, Tensor> values) {
    RankState state;
    state.step = 4;
    state.values = std::move(values);
    return state;
  }

  std::vector<RankState> used_;
  std::vector<size_t> sent_bytes_;  // of a time, by process
  absl::Status use_status_;
};

bool AreEqual(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST_F(StateExchangeTest, SendsWhatDiffersFromRank0) {
  const std::vector<float> big(10000, 1.5F);
  std::vector<float> other = big;
  other[9999] = 1.5000001F;
  std::vector<RankState> states;
  for (int rank = 0; rank < 4; ++rank) {
    states.push_back(State({{"w", Floats({100, 100}, big)},
                            {"own", Floats({1}, {static_cast<float>(rank)})},
                            {"last", Floats({10000}, rank == 3 ? other : big)},
                            // The bits of another variable, or under other dimensions.
                            {"x", rank == 2 ? Floats({10000}, big) : Floats({100, 100}, big)}}));
    states.back().unset = {absl::StrCat("unset ", rank)};
    states.back().random = absl::StrCat("random ", rank);
  }
  Exchange(states);
  ASSERT_EQ(used_.size(), 4);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(used_[rank].step, 4);
    EXPECT_EQ(used_[rank].unset, states[rank].unset);
    EXPECT_EQ(used_[rank].random, states[rank].random);
    EXPECT_THAT(used_[rank].as_rank0, IsEmpty());
    ASSERT_EQ(used_[rank].values.size(), 4);
    for (const auto& [name, value] : states[rank].values) {
      EXPECT_TRUE(AreEqual(used_[rank].values[name], value)) << rank << " " << name;
    }
  }
  // Of eight large values, two are those of rank 3 and rank 2 alone.
  EXPECT_GT(sent_bytes_[1], 2 * 40000);
  EXPECT_LT(sent_bytes_[1], 2 * 40000 + 2000);
}

TEST_F(StateExchangeTest, EqualStatesAreNotSent) {
  const Tensor w = Floats({100, 100}, std::vector<float>(10000, 1.5F));
  Exchange(std::vector<RankState>(6, State({{"w", w}, {"v", w}})));
  for (const size_t bytes : sent_bytes_) EXPECT_LT(bytes, 1000);
  ASSERT_EQ(used_.size(), 6);
  for (RankState& state : used_) EXPECT_TRUE(AreEqual(state.values["v"], w));
}

TEST_F(StateExchangeTest, AllGetTheErrorOfTheUse) {
  use_status_ = absl::ResourceExhaustedError("the disk is full");
  Exchange(std::vector<RankState>(4, State({{"w", Floats({1}, {1})}})));
}

}  // namespace
}  // namespace weft::testing
