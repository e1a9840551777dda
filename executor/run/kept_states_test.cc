#include "executor/run/kept_states.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/jobs/job_link_testing.h"

namespace weft {

class KeptStatesPeer {
 public:
  static bool HaveKept(const KeptStates& kept, int64_t step) {
    bool all = true;
    for (int rank : {0, 1, 2}) all = all && kept.SeriesOf(rank)->last >= step;
    return all;
  }
  static void Damage(KeptStates* kept, int rank, int64_t step) {
    const KeptStates::Slot& slot = kept->SeriesOf(rank)->SlotOf(step);
    static_cast<char*>(kept->segments_[kept->world_.process()]->data())[slot.offset + 100] ^= 1;
  }
  // A rank gets what another one has kept.
  static void Confuse(KeptStates* kept, int rank, int other, int64_t step) {
    KeptStates::Slot& slot = kept->SeriesOf(rank)->SlotOf(step);
    const KeptStates::Slot& of_other = kept->SeriesOf(other)->SlotOf(step);
    slot.offset = of_other.offset;
    slot.bytes = of_other.bytes;
    slot.hash = of_other.hash;
  }
};

namespace testing {
namespace {

// A state whose values follow from rank and step.
RankState StateOfStep(int rank, int64_t step, int64_t elements = 1000) {
  RankState state;
  state.step = step;
  state.unset = {"never"};
  state.random = step == 0 ? absl::StrCat("random ", rank) : "";
  Tensor& tensor = state.values["w"];
  tensor.Resize(DType::kInt64, {elements});
  for (int64_t i = 0; i < elements; ++i) tensor.data<int64_t>()[i] = rank * 1000000 + step + i;
  return state;
}

bool IsStateOfStep(const RankState& state, int rank, int64_t step) {
  const RankState expected = StateOfStep(rank, step, state.values.at("w").size());
  const Tensor& tensor = state.values.at("w");
  return state.step == step && state.unset == expected.unset && state.random == expected.random &&
         std::equal(tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.size(),
                    expected.values.at("w").data<int64_t>());
}

std::string HostOfStep(int64_t step) { return absl::StrCat("host of ", step); }

constexpr auto kGoesOn = [] { return false; };

TEST(KeptStatesTest, TheLastTwoStepsAreKept) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto kept, KeptStates::Create(World::OfThreads(2), nullptr));
  WEFT_ASSERT_OK_AND_ASSIGN(auto former, KeptStates::Create(World::OfThreads(2), nullptr));
  kept->SetFormer(std::move(former));
  ASSERT_THAT(kept->Deliver(5, HostOfStep(5)), IsOk());
  ASSERT_THAT(kept->Keep(0, StateOfStep(0, 5), kGoesOn), IsOk());
  EXPECT_THAT(kept->Steps(), IsEmpty()) << "rank 1 has kept nothing";
  ASSERT_THAT(kept->Keep(1, StateOfStep(1, 5), kGoesOn), IsOk());
  EXPECT_NE(kept->former(), nullptr);
  EXPECT_THAT(kept->Steps(), ElementsAre(5));
  for (int64_t step = 6; step < 20; ++step) {
    const int64_t elements = 1000 + step % 3;  // sizes may change
    ASSERT_THAT(kept->Keep(0, StateOfStep(0, step, elements), kGoesOn), IsOk());
    EXPECT_THAT(kept->Steps(), ElementsAre(step - 1)) << "rank 1 is behind";
    EXPECT_EQ(kept->former(), nullptr);
    ASSERT_THAT(kept->Keep(1, StateOfStep(1, step), kGoesOn), IsOk());
    EXPECT_THAT(kept->Steps(), ElementsAre(step - 1)) << "results are behind";
    ASSERT_THAT(kept->Deliver(step, HostOfStep(step)), IsOk());
    EXPECT_THAT(kept->Steps(), ElementsAre(step - 1, step));
    for (const int64_t of : kept->Steps()) {
      for (int rank : {0, 1}) {
        WEFT_ASSERT_OK_AND_ASSIGN(const RankState state, kept->Read(rank, of));
        EXPECT_TRUE(IsStateOfStep(state, rank, of)) << rank << " " << of;
      }
      EXPECT_THAT(kept->Host(of), IsOkAndHolds(HostOfStep(of)));
    }
  }
  EXPECT_GE(kept->bytes_of_rank(), 2 * 8000);
}

// Otherwise no step would be whole on all ranks.
TEST(KeptStatesTest, NoRankIsMoreThanAStepAhead) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto kept, KeptStates::Create(World::OfThreads(2), nullptr));
  ASSERT_THAT(kept->Deliver(0, ""), IsOk());
  ASSERT_THAT(kept->Keep(0, StateOfStep(0, 0), kGoesOn), IsOk());
  EXPECT_EQ(kept->Keep(0, StateOfStep(0, 1), [] { return true; }).code(),
            absl::StatusCode::kAborted);
  ASSERT_THAT(kept->Keep(1, StateOfStep(1, 0), kGoesOn), IsOk());
  ASSERT_THAT(kept->Keep(0, StateOfStep(0, 1), kGoesOn), IsOk());
  ASSERT_THAT(kept->Keep(1, StateOfStep(1, 1), kGoesOn), IsOk());
  // The results of step 0 are missing.
  EXPECT_EQ(kept->Keep(1, StateOfStep(1, 2), [] { return true; }).code(),
            absl::StatusCode::kAborted);
  ASSERT_THAT(kept->Deliver(1, ""), IsOk());
  EXPECT_THAT(kept->Keep(1, StateOfStep(1, 2), [] { return true; }), IsOk());
  EXPECT_THAT(kept->Steps(), ElementsAre(1));
  EXPECT_THAT(kept->Keep(1, StateOfStep(1, 7), kGoesOn), Not(IsOk())) << "a step is missing";
}

// A run of four ranks on three hosts, which ends at any moment.
TEST(KeptStatesTest, EachHostHasAWholeStepOfAllRanks) {
  const std::vector<std::string> hosts = {"a", "a", "b", "c"};
  int64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    auto links = MakeLinks(4, {});
    std::vector<std::unique_ptr<KeptStates>> kept(4);
    const auto on_processes = [](const std::function<void(int)>& run) {
      std::vector<std::thread> threads;
      for (int p = 0; p < 4; ++p) threads.emplace_back(run, p);
      for (std::thread& thread : threads) thread.join();
    };
    on_processes([&](int p) {
      auto made = KeptStates::Create(WorldOf(4, links[p].get()), links[p].get(), hosts[p]);
      ASSERT_THAT(made, IsOk());
      kept[p] = *std::move(made);
    });
    ASSERT_THAT(kept[0]->Deliver(0, HostOfStep(0)), IsOk());
    std::atomic<bool> ends = false;
    // Results come to process 0 after the copies that were sent before them.
    std::atomic<int64_t> num_results = 0;
    links[0]->Listen(JobLink::Topic::kResult, [&](int, const std::string&) { ++num_results; });
    on_processes([&](int p) {
      for (int64_t step = 0; !ends; ++step) {
        if (!kept[p]->Keep(p, StateOfStep(p, step), [&] { return ends.load(); }).ok()) return;
        links[p]->Send(0, JobLink::Topic::kResult, "");
        if (p == round % 4 && step == 20 + round) ends = true;
        if (p > 0) continue;
        while (!ends && num_results < 4 * (step + 1)) std::this_thread::yield();
        if (ends) return;
        ASSERT_THAT(kept[0]->Deliver(step + 1, HostOfStep(step + 1)), IsOk());
      }
    });
    for (auto& link : links) link = nullptr;  // what is on its way is lost
    for (int p = 0; p < 4; ++p) {
      const std::set<int64_t> steps = kept[p]->Steps();
      ASSERT_THAT(steps, Not(IsEmpty())) << "process " << p;
      for (const int64_t step : steps) {
        EXPECT_GE(step, 15);
        EXPECT_THAT(kept[p]->Host(step), IsOkAndHolds(HostOfStep(step)));
        for (int rank = 0; rank < 4; ++rank) {
          WEFT_ASSERT_OK_AND_ASSIGN(const RankState state, kept[p]->Read(rank, step));
          EXPECT_TRUE(IsStateOfStep(state, rank, step)) << rank << " " << step;
        }
      }
      last = std::max(last, *steps.rbegin());
    }
  }
  EXPECT_GE(last, 38);
}

TEST(KeptStatesTest, AKilledProcessLeavesWholeStates) {
  for (int round = 0; round < 20; ++round) {
    const auto links = MakeLinks(2, {});
    std::unique_ptr<KeptStates> kept;
    int started[2];
    ASSERT_EQ(pipe(started), 0);
    // Process 0 with 1 rank is this one; process 1 with 2 ranks is forked.
    std::vector<absl::StatusOr<std::unique_ptr<KeptStates>>> both(2);
    std::thread other(
        [&] { both[1] = KeptStates::Create(WorldOf(3, links[1].get()), links[1].get()); });
    both[0] = KeptStates::Create(WorldOf(3, links[0].get()), links[0].get());
    other.join();
    ASSERT_THAT(both[0], IsOk());
    ASSERT_THAT(both[1], IsOk());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // the memory is shared, as between processes that have opened it
      for (int64_t step = 0;; ++step) {
        for (int rank : {1, 2}) {
          if (!both[1].value()->Keep(rank, StateOfStep(rank, step, 20000), kGoesOn).ok()) _exit(1);
        }
        if (step == 2 && write(started[1], "x", 1) != 1) _exit(1);
      }
    }
    std::atomic<bool> ends = false;
    std::thread here([&] {
      KeptStates& mine = *both[0].value();
      ASSERT_THAT(mine.Deliver(0, HostOfStep(0)), IsOk());
      for (int64_t step = 0; !ends; ++step) {
        if (!mine.Keep(0, StateOfStep(0, step), [&] { return ends.load(); }).ok()) return;
        // The other ranks have results of the step, too.
        while (!KeptStatesPeer::HaveKept(mine, step)) {
          if (ends) return;
        }
        ASSERT_THAT(mine.Deliver(step + 1, HostOfStep(step + 1)), IsOk());
      }
    });
    char byte;
    ASSERT_EQ(read(started[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(137 * round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    ends = true;
    here.join();
    close(started[0]);
    close(started[1]);
    const std::set<int64_t> steps = both[0].value()->Steps();
    ASSERT_THAT(steps, Not(IsEmpty()));
    for (const int64_t step : steps) {
      for (int rank : {0, 1, 2}) {
        WEFT_ASSERT_OK_AND_ASSIGN(const RankState state, both[0].value()->Read(rank, step));
        EXPECT_TRUE(IsStateOfStep(state, rank, step)) << rank << " " << step;
      }
    }
  }
}

TEST(KeptStatesTest, DamagedStatesAreNotUsed) {
  const auto links = MakeLinks(2, {});
  std::vector<absl::StatusOr<std::unique_ptr<KeptStates>>> both(2);
  std::thread other(
      [&] { both[1] = KeptStates::Create(WorldOf(2, links[1].get()), links[1].get()); });
  both[0] = KeptStates::Create(WorldOf(2, links[0].get()), links[0].get());
  other.join();
  ASSERT_THAT(both[0], IsOk());
  ASSERT_THAT(both[1], IsOk());
  ASSERT_THAT(both[0].value()->Deliver(3, "x"), IsOk());
  for (int p : {0, 1}) ASSERT_THAT(both[p].value()->Keep(p, StateOfStep(p, 3), kGoesOn), IsOk());
  EXPECT_THAT(both[0].value()->Read(1, 3), IsOk());
  EXPECT_EQ(both[0].value()->Read(1, 4).status().code(), absl::StatusCode::kDataLoss);
  KeptStatesPeer::Damage(both[1]->get(), 1, 3);
  EXPECT_EQ(both[0].value()->Read(1, 3).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(both[0].value()->Read(0, 3), IsOk());
}

TEST(KeptStatesTest, AStateOfAnotherRankIsDamage) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto kept, KeptStates::Create(World::OfThreads(2), nullptr));
  ASSERT_THAT(kept->Deliver(3, "x"), IsOk());
  for (int r : {0, 1}) ASSERT_THAT(kept->Keep(r, StateOfStep(r, 3), kGoesOn), IsOk());
  KeptStatesPeer::Confuse(kept.get(), 0, 1, 3);
  EXPECT_EQ(kept->Read(0, 3).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(kept->Read(1, 3), IsOk());
}

}  // namespace
}  // namespace testing
}  // namespace weft
