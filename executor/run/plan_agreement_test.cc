#include "executor/run/plan_agreement.h"

#include <string>
#include <thread>
#include <vector>

#include "base/testing/test.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/run/runner_testing.h"

namespace weft::testing {
namespace {

using Rings = absl::StatusOr<std::vector<RingKey>>;

// What each process gets.
std::vector<Rings> Agree(const std::vector<RunFingerprint>& fingerprints, int ranks_each = 1) {
  const auto n = static_cast<int>(fingerprints.size());
  const auto links = MakeLinks(n);
  std::vector<Rings> results(n, absl::UnknownError(""));
  std::vector<std::thread> threads;
  for (int p = 0; p < n; ++p) {
    threads.emplace_back([&, p] {
      const World world = WorldOf(n * ranks_each, links[p].get());
      results[p] = AgreeOnPlan(fingerprints[p], world, links[p].get());
      EXPECT_THAT(links[p]->Finish(), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

const RingKey kRing = {0, false, {}};

RunFingerprint Calls(const std::vector<std::string>& calls) {
  RunFingerprint fingerprint;
  for (const std::string& call : calls) fingerprint.calls[kRing].push_back({call, "op of w"});
  return fingerprint;
}

TEST(PlanAgreementTest, EqualPlansAgreeOnTheRings) {
  RunFingerprint fingerprint = Calls({"all-reduce", "broadcast"});
  fingerprint.settings["seed"] = "3";
  fingerprint.calls[{1, true, {0, 2}}];
  for (const Rings& rings : Agree({fingerprint, fingerprint, fingerprint})) {
    WEFT_ASSERT_OK(rings.status());
    EXPECT_THAT(*rings, ElementsAre(kRing, RingKey{1, true, {0, 2}}));
  }
}

TEST(PlanAgreementTest, FirstDifferenceIsNamedEverywhere) {
  const auto results = Agree({Calls({"all-reduce of 3", "all-reduce of 4", "broadcast"}),
                              Calls({"all-reduce of 3", "all-reduce of 4", "broadcast"}),
                              Calls({"all-reduce of 3", "all-reduce of 5", "all-gather"})});
  for (const Rings& rings : results) {
    EXPECT_THAT(rings.status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "processes run different plans: ring 0, call #1: process 0 has all-reduce "
                         "of 4 in op of w, process 2 has all-reduce of 5 in op of w"));
  }
}

TEST(PlanAgreementTest, MissingCallsAreNamed) {
  for (const Rings& rings : Agree({Calls({"all-reduce"}), Calls({})})) {
    EXPECT_THAT(rings.status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         "processes run different plans: ring 0, call #0: process "
                                         "0 has all-reduce in op of w, process 1 has 0 calls"));
  }
}

TEST(PlanAgreementTest, WhereACallStandsDoesNotMatter) {
  RunFingerprint other;
  other.calls[kRing] = {{"all-reduce", "another op"}};
  for (const Rings& rings : Agree({Calls({"all-reduce"}), other})) {
    EXPECT_THAT(rings.status(), IsOk());
  }
}

TEST(PlanAgreementTest, ProcessesOutsideOfARingNeedNotKnowItsCalls) {
  RunFingerprint inside, outside;
  const RingKey ring = {0, false, {2, 3}};
  inside.calls[ring] = {{"all-reduce", "op"}};
  for (const Rings& rings : Agree({outside, inside}, /*ranks_each=*/2)) {
    WEFT_ASSERT_OK(rings.status());
    EXPECT_THAT(*rings, ElementsAre(ring));
  }
}

TEST(PlanAgreementTest, SettingsMustBeEqual) {
  RunFingerprint one, two;
  one.settings["steps"] = "3";
  two.settings["steps"] = "4";
  for (const Rings& rings : Agree({one, two})) {
    EXPECT_THAT(rings.status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "processes differ in steps: process 0 has 3, process 1 has 4"));
  }
}

TEST(PlanAgreementTest, CallsOfAPlan) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 2;
  RunFingerprint fingerprint;
  for (const Program& program : {testing::Startup().Build(), testing::Main().Build()}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Build(program, options));
    AddCalls(plan, &fingerprint);
  }
  EXPECT_THAT(fingerprint.settings, IsEmpty());
  ASSERT_EQ(fingerprint.calls.size(), 1u);
  const std::vector<PlannedCall>& calls = fingerprint.calls.at(kRing);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].call, "broadcast, root 0 of fp32, 1 elements");
  EXPECT_EQ(calls[0].where, "op 2 (c_broadcast) of w");
  EXPECT_EQ(calls[1].call, "all-reduce sum of fp32");
  EXPECT_EQ(calls[1].where, "op 3 (c_allreduce_sum) of g");
}

}  // namespace
}  // namespace weft::testing
