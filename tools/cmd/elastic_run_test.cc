#include "tools/cmd/elastic_run.h"

#include <string>
#include <utility>

#include "base/testing/test.h"
#include "executor/run/run_state.h"

namespace weft {

class ElasticRunPeer {
 public:
  static absl::Status Agree(ElasticRun* run) {
    return run->Agree(World::OfThreads(1), nullptr).status();
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

}  // namespace
}  // namespace testing
}  // namespace weft
