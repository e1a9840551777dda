#include "executor/job_link.h"

#include <functional>
#include <thread>

#include "base/status_matchers.h"
#include "executor/job_link_internal.h"
#include "executor/job_link_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::weft::testing::IsOk;
using ::weft::testing::MakeLinks;

using Links = std::vector<std::unique_ptr<JobLink>>;

// Calls body(process) on one thread per process; returns the results by process.
template <typename T>
std::vector<T> OnAll(int n, const std::function<T(int)>& body) {
  std::vector<T> results(n);
  std::vector<std::thread> threads;
  for (int p = 0; p < n; ++p) threads.emplace_back([&, p] { results[p] = body(p); });
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<absl::Status> FinishAll(const Links& links) {
  return OnAll<absl::Status>(links.size(), [&](int p) { return links[p]->Finish(); });
}

TEST(JobLinkTest, GathersTheTextsOfAll) {
  for (int n : {1, 2, 5}) {
    const Links links = MakeLinks(n);
    for (int round = 0; round < 3; ++round) {
      const auto results = OnAll<absl::StatusOr<std::vector<std::string>>>(n, [&](int p) {
        return links[p]->AllGather(std::string(p, 'x') + std::to_string(round));
      });
      for (const auto& texts : results) {
        ASSERT_THAT(texts, IsOk());
        ASSERT_EQ(texts->size(), n);
        for (int p = 0; p < n; ++p) {
          EXPECT_EQ((*texts)[p], std::string(p, 'x') + std::to_string(round));
        }
      }
    }
    EXPECT_THAT(FinishAll(links), Each(IsOk()));
  }
}

}  // namespace
}  // namespace weft
