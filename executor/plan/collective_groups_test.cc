// Which collectives a step starts together, and which buffers it registers.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/cpu/testing.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

// A ring of one rank that writes down what it is asked to do.
class Spy : public CommunicatorGroup, public Communicator {
 public:
  absl::StatusOr<Communicator*> Get(const RingKey&, int) override { return this; }
  void Abort(const absl::Status&) override {}
  int rank() const override { return 0; }
  int nranks() const override { return 1; }
  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    calls.push_back(std::string(call.variable));
    if (calls.back() == makes_infinity) {
      *static_cast<float*>(out) = std::numeric_limits<float>::infinity();
    }
    return calls.back() == fails_at ? absl::InternalError("no luck") : absl::OkStatus();
  }
  absl::Status BeginGroup() override { return Add("begin"); }
  absl::Status EndGroup() override { return Add("end"); }
  absl::Status Register(void* buffer, size_t bytes) override {
    registered.push_back(buffer);
    return Add(absl::StrCat("register ", bytes, " bytes"));
  }
  absl::Status Unregister(void* buffer) override {
    registered.erase(std::find(registered.begin(), registered.end(), buffer));
    return absl::OkStatus();
  }

  std::vector<std::string> calls;
  std::vector<void*> registered;
  std::string fails_at, makes_infinity;

 private:
  absl::Status Add(std::string call) {
    calls.push_back(std::move(call));
    return absl::OkStatus();
  }
};

class CollectiveGroupsTest : public ::testing::Test {
 protected:
  // Of two steps; x is fed.
  absl::Status RunSteps(const ProgramBuilder& builder, bool check_nan = false) {
    PlanOptions plan_options;
    plan_options.kernels = &CpuKernels();
    const Plan plan = *Plan::Build(builder.Build(), plan_options);
    const auto device = NewHostDevice();
    RandomState random = RandomState::Seeded(0, 0);
    Scope scope;
    PlanExecutorOptions options;
    options.plan = &plan;
    options.scope = &scope;
    options.device = device.get();
    options.group = &spy_;
    options.random = &random;
    options.check_nan = check_nan;
    options.accessed = {plan.FindVariable("x")};
    const auto executor = *PlanExecutor::Create(options);
    *executor->tensor(plan.FindVariable("x")) = Floats({2}, {1, 2});
    absl::Status status = executor->RunStep();
    if (status.ok()) status = executor->RunStep();
    num_registered_ = spy_.registered.size();
    return status;
  }

  // y = 2 x, z = 3 x.
  static ProgramBuilder TwoVariables() {
    ProgramBuilder builder;
    builder.Var("x", {2}).Var("y", {2}).Var("z", {2});
    builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}).FloatAttr("scale", 2);
    builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"z"}}}).FloatAttr("scale", 3);
    return builder;
  }
  static ProgramBuilder Xsum(const std::vector<std::string>& variables) {
    ProgramBuilder builder = TwoVariables();
    builder.Op("c_allreduce_xsum", {{"X", variables}}, {{"Out", variables}})
        .BoolAttr("use_calc_stream", true);  // nothing else orders it after the ops that make them
    return builder;
  }

  Spy spy_;
  size_t num_registered_ = 0;
};

TEST_F(CollectiveGroupsTest, VariablesOfOneOpAreAGroup) {
  WEFT_ASSERT_OK(RunSteps(Xsum({"y", "z"})));
  EXPECT_THAT(spy_.calls, ElementsAre("begin", "y", "z", "end", "begin", "y", "z", "end"));
}

TEST_F(CollectiveGroupsTest, OpsAreNot) {
  ProgramBuilder builder = TwoVariables();
  builder.Op("c_allreduce_sum", {{"X", {"y"}}}, {{"Out", {"y"}}});
  builder.Op("c_allreduce_sum", {{"X", {"z"}}}, {{"Out", {"z"}}});
  WEFT_ASSERT_OK(RunSteps(builder));
  EXPECT_THAT(spy_.calls, ElementsAre("y", "z", "y", "z"));
}

TEST_F(CollectiveGroupsTest, VariableThatComesTwiceIsReducedOneTimeAfterTheOther) {
  WEFT_ASSERT_OK(RunSteps(Xsum({"y", "z", "y"})));
  spy_.calls.resize(5);
  EXPECT_THAT(spy_.calls, ElementsAre("begin", "y", "z", "end", "y"));
}

TEST_F(CollectiveGroupsTest, OutputsAreCheckedWhenTheGroupHasEnded) {
  WEFT_ASSERT_OK(RunSteps(Xsum({"y", "z"}), /*check_nan=*/true));
  EXPECT_THAT(spy_.calls, ElementsAre("begin", "y", "z", "end", "begin", "y", "z", "end"));
  spy_.calls.clear();
  spy_.makes_infinity = "y";
  EXPECT_THAT(RunSteps(Xsum({"y", "z"}), /*check_nan=*/true),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "op 2 (c_allreduce_xsum): makes inf in variable y"));
  EXPECT_THAT(spy_.calls, ElementsAre("begin", "y", "z", "end"));
}

TEST_F(CollectiveGroupsTest, ErrorEndsTheGroup) {
  spy_.fails_at = "y";
  EXPECT_THAT(RunSteps(Xsum({"y", "z"})),
              StatusIs(absl::StatusCode::kInternal, "op 2 (c_allreduce_xsum): no luck"));
  EXPECT_THAT(spy_.calls, ElementsAre("begin", "y", "end"));
}

TEST_F(CollectiveGroupsTest, FusedBufferIsRegisteredWhileItsStepIsBound) {
  ProgramBuilder builder = TwoVariables();
  builder.Var("buffer", {128});
  builder.Op("coalesce_tensor", {{"Input", {"y", "z"}}},
             {{"Output", {"y", "z"}}, {"FusedOutput", {"buffer"}}});
  builder.IntAttr("dtype", 5).IntAttr("align_size", 256);
  builder.LongsAttr("concated_shapes", {2, 2}).LongsAttr("concated_ranks", {1, 1});
  builder.Op("c_allreduce_sum", {{"X", {"buffer"}}}, {{"Out", {"buffer"}}});
  WEFT_ASSERT_OK(RunSteps(builder));
  EXPECT_EQ(num_registered_, 1);
  ASSERT_EQ(spy_.calls.size(), 3);
  EXPECT_EQ(spy_.calls[0], "register 512 bytes");
  EXPECT_THAT(spy_.registered, IsEmpty());
}

}  // namespace
}  // namespace weft::testing
