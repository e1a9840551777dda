#include "tools/cmd/elastic_run.h"

#include <string>
#include <utility>

#include "base/testing/test.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/run/run_state.h"

namespace weft {

class ElasticRunPeer {
 public:
  static absl::Status Agree(ElasticRun* run) {
    return run->Agree(World::OfThreads(1), nullptr, 60).status();
  }
  static absl::Status Take(JobLink* link, double timeout_s) {
    std::string host;
    return ElasticRun().Take(WorldOf(link->num_processes(), link), 0, link, timeout_s, &host);
  }
  static KeptStates* kept(const ElasticRun& run) { return run.kept_.get(); }
};

namespace testing {
namespace {

// Of one rank, which begins with `step`.
void Begin(int64_t step, ElasticRun* run) {
  RunInputs inputs;
  inputs.on_result = [](const StepResult&) { return absl::OkStatus(); };
  RunOptions options;
  options.begin_step = step;
  WEFT_ASSERT_OK(run->Attach(
      nullptr, [] { return "host"; }, [] { return absl::OkStatus(); }, &inputs, &options));
  EXPECT_EQ(options.kept, ElasticRunPeer::kept(*run));
}

void Keep(int64_t step, ElasticRun* run) {
  RankState state;
  state.step = step;
  WEFT_ASSERT_OK(ElasticRunPeer::kept(*run)->Keep(0, state, [] { return false; }));
}

TEST(ElasticRunTest, AGenerationThatHasKeptAStepNeedsNoneBeforeIt) {
  ElasticRun run;
  EXPECT_EQ(run.LastStep(), 0);
  Begin(5, &run);
  Keep(5, &run);
  Begin(5, &run);
  EXPECT_EQ(run.LastStep(), 0) << "nothing is kept";
  EXPECT_NE(ElasticRunPeer::kept(run)->former(), nullptr);
  // The next one goes on from what the one before has kept.
  WEFT_ASSERT_OK(ElasticRunPeer::Agree(&run));
  EXPECT_EQ(run.LastStep(), 5);
  EXPECT_EQ(ElasticRunPeer::kept(run)->former(), nullptr);
  // However many end in their first step, none but the last is in memory.
  Begin(5, &run);
  Keep(5, &run);
  EXPECT_NE(ElasticRunPeer::kept(run)->former(), nullptr);
  WEFT_ASSERT_OK(ElasticRunPeer::Agree(&run));
  EXPECT_EQ(run.LastStep(), 5);
  EXPECT_EQ(ElasticRunPeer::kept(run)->former(), nullptr);
}

// The link gives them copies for as long as it lives.
TEST(ElasticRunTest, StatesOutliveTheLinkWhateverFails) {
  ElasticRun run;
  Begin(5, &run);
  const KeptStates* const before = ElasticRunPeer::kept(run);
  const KeptStates* then = before;
  RunInputs inputs;
  inputs.on_result = [](const StepResult&) { return absl::OkStatus(); };
  RunOptions options;
  const auto knows = [&] {
    then = ElasticRunPeer::kept(run);
    return "host";
  };
  WEFT_ASSERT_OK(run.Attach(
      nullptr, knows, [] { return absl::OkStatus(); }, &inputs, &options));
  EXPECT_NE(then, before) << "they are of the run before anything can fail";
  EXPECT_EQ(then, ElasticRunPeer::kept(run));
}

TEST(ElasticRunTest, StatesComeInTimeAndFromWhoeverHasThem) {
  const auto links = MakeLinks(3);
  EXPECT_THAT(ElasticRunPeer::Take(links[1].get(), 0.1),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "process 0 has given no states within 0.1 s (--timeout_s)"));
  links[2]->Send(1, JobLink::Topic::kState, "4,host");
  EXPECT_THAT(ElasticRunPeer::Take(links[1].get(), 60),
              IsInternal("expected states from process 0, found some from 2"));
}

}  // namespace
}  // namespace testing
}  // namespace weft
