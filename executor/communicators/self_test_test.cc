#include "executor/communicators/self_test.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/communicators/collective_cases.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/self_test_testing.h"

namespace weft::testing {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce,     CollectiveKind::kReduce,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
                                     CollectiveKind::kBroadcast,     CollectiveKind::kAllToAll,
                                     CollectiveKind::kSend};

std::unique_ptr<CommunicatorGroup> Threads(int nranks) {
  GroupOptions options;
  options.nranks = nranks;
  return NewLocalGroup(std::move(options));
}

std::vector<absl::Status> TestOnAll(int nranks, const CollectiveKinds& kinds,
                                    CommunicatorGroup* group) {
  return OnRankThreads(nranks, [&](int rank) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Communicator * end, group->Get(SelfTestRingOf({}), rank));
    absl::Status status = TestCollectives(kinds, end);
    if (!status.ok()) group->Abort(status);
    return status;
  });
}

TEST(SelfTest, RightResultsPass) {
  CollectiveKinds kinds;
  for (const CollectiveKind kind : kKinds) {
    const int reductions = Reduces(kind) ? kNumReductions : 1;
    for (int r = 0; r < reductions; ++r) kinds.emplace(kind, static_cast<Reduction>(r));
  }
  for (int nranks = 2; nranks <= 5; ++nranks) {
    EXPECT_THAT(TestOnAll(nranks, kinds, Threads(nranks).get()), Each(IsOk())) << nranks;
  }
}

TEST(SelfTest, WrongResultsOfSmallAndLargeCallsAreNamed) {
  for (const CollectiveKind kind : kKinds) {
    for (const int64_t count : {1, 1000}) {
      WrongGroup group(Threads(3), kind, count);
      // By a rank at least that has a result.
      EXPECT_THAT(TestOnAll(3, {{kind, Reduction::kSum}}, &group),
                  Contains(StatusIs(absl::StatusCode::kInternal,
                                    AllOf(StartsWith("self-test of collectives: "),
                                          HasSubstr(CollectiveKindName(kind)),
                                          HasSubstr(count == 1 ? " of 3 elements: element "
                                                               : " of 8193 elements: element "),
                                          HasSubstr(": expected ")))));
    }
  }
}

}  // namespace
}  // namespace weft::testing
