// How pass hetero-partition brings buckets of gradients to the host.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two buckets of two gradients, which are updated on the host.
constexpr char kBuckets[] = R"(
    var lr : fp32[1] persistable
    var w0, w1, w2, w3 : fp32[4] parameter persistable
    var w0@GRAD, w1@GRAD, w2@GRAD, w3@GRAD : fp32[4]
    FusedOutput=[fused_0], Output=[w0@GRAD, w1@GRAD] = coalesce_tensor(Input=[w0@GRAD, w1@GRAD]) role=backward {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4]}
    Out=[w0@GRAD] = scale(X=[w0]) role=backward vars=[w0, w0@GRAD] {scale=2.0}
    Out=[w1@GRAD] = scale(X=[w1]) role=backward vars=[w1, w1@GRAD] {scale=2.0}
    Out=[fused_0] = c_allreduce_avg(X=[fused_0]) role=backward {ring_id=0, use_calc_stream=true}
    FusedOutput=[fused_1], Output=[w2@GRAD, w3@GRAD] = coalesce_tensor(Input=[w2@GRAD, w3@GRAD]) role=backward {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4]}
    Out=[w2@GRAD] = scale(X=[w2]) role=backward vars=[w2, w2@GRAD] {scale=2.0}
    Out=[w3@GRAD] = scale(X=[w3]) role=backward vars=[w3, w3@GRAD] {scale=2.0}
    Out=[fused_1] = c_allreduce_avg(X=[fused_1]) role=backward {ring_id=0, use_calc_stream=true}
    ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w2] = sgd(Param=[w2], Grad=[w2@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(HeteroBuckets, BucketIsOneCopy) {
  ExpectRewrite("hetero-partition{place=\"type:sgd=cpu\"}", kBuckets, R"(
  + var fused_0@CPU, fused_1@CPU : fp32[128]
  + var w0@SIM, w1@SIM, w2@SIM, w3@SIM, w0@GRAD@CPU, w1@GRAD@CPU, w2@GRAD@CPU, w3@GRAD@CPU : fp32[4]
  + FusedOutput=[fused_0@CPU], Output=[w0@GRAD@CPU, w1@GRAD@CPU] = coalesce_tensor(Input=[w0@GRAD@CPU, w1@GRAD@CPU]) role=backward {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4], op_device="cpu"}
  + FusedOutput=[fused_1@CPU], Output=[w2@GRAD@CPU, w3@GRAD@CPU] = coalesce_tensor(Input=[w2@GRAD@CPU, w3@GRAD@CPU]) role=backward {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4], op_device="cpu"}
  - Out=[w0@GRAD] = scale(X=[w0]) role=backward vars=[w0, w0@GRAD] {scale=2.0}
  - Out=[w1@GRAD] = scale(X=[w1]) role=backward vars=[w1, w1@GRAD] {scale=2.0}
  + Out=[w0@SIM] = memcpy_h2d(X=[w0]) role=backward
  + Out=[w0@SIM] = stream_wait(X=[w0@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w0@GRAD] = scale(X=[w0@SIM]) role=backward vars=[w0, w0@GRAD] {scale=2.0}
  + Out=[w1@SIM] = memcpy_h2d(X=[w1]) role=backward
  + Out=[w1@SIM] = stream_wait(X=[w1@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w1@GRAD] = scale(X=[w1@SIM]) role=backward vars=[w1, w1@GRAD] {scale=2.0}
    Out=[fused_0] = c_allreduce_avg(X=[fused_0]) role=backward {ring_id=0, use_calc_stream=true}
  + Out=[fused_0] = stream_wait(X=[fused_0]) role=optimize {stream="d2h", awaited="compute"}
  + Out=[fused_0@CPU] = stream_wait(X=[fused_0@CPU]) role=optimize {stream="d2h", awaited="cpu"}
  + Out=[fused_0@CPU] = memcpy_d2h(X=[fused_0]) role=optimize
  + Out=[w0@GRAD@CPU] = stream_wait(X=[w0@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
  + ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  + ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  - Out=[w2@GRAD] = scale(X=[w2]) role=backward vars=[w2, w2@GRAD] {scale=2.0}
  - Out=[w3@GRAD] = scale(X=[w3]) role=backward vars=[w3, w3@GRAD] {scale=2.0}
  + Out=[w2@SIM] = memcpy_h2d(X=[w2]) role=backward
  + Out=[w2@SIM] = stream_wait(X=[w2@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w2@GRAD] = scale(X=[w2@SIM]) role=backward vars=[w2, w2@GRAD] {scale=2.0}
  + Out=[w3@SIM] = memcpy_h2d(X=[w3]) role=backward
  + Out=[w3@SIM] = stream_wait(X=[w3@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w3@GRAD] = scale(X=[w3@SIM]) role=backward vars=[w3, w3@GRAD] {scale=2.0}
  - ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD], LearningRate=[lr]) role=optimize
  - ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
  - ParamOut=[w2] = sgd(Param=[w2], Grad=[w2@GRAD], LearningRate=[lr]) role=optimize
  - ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD], LearningRate=[lr]) role=optimize
  + Out=[fused_1] = stream_wait(X=[fused_1]) role=optimize {stream="d2h", awaited="compute"}
  + Out=[fused_1@CPU] = memcpy_d2h(X=[fused_1]) role=optimize
  + Out=[w2@GRAD@CPU] = stream_wait(X=[w2@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
  + ParamOut=[w2] = sgd(Param=[w2], Grad=[w2@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  + ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

// The copy of the second bucket waits for what the host had before that of the first one. Copies of
// a third would wait for the updates by the first.
TEST(HeteroBuckets, BucketsTakeTurnsInTwoBuffers) {
  ExpectRewrite("hetero-partition{place=\"type:sgd=cpu\",staging=double}", kBuckets, R"(
  + var fused_0@CPU, fused_1@CPU : fp32[128]
  + var w0@SIM, w1@SIM, w2@SIM, w3@SIM, w0@GRAD@CPU, w1@GRAD@CPU, w2@GRAD@CPU, w3@GRAD@CPU : fp32[4]
  + FusedOutput=[fused_0@CPU], Output=[w0@GRAD@CPU, w1@GRAD@CPU] = coalesce_tensor(Input=[w0@GRAD@CPU, w1@GRAD@CPU]) role=backward {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4], op_device="cpu"}
  - Out=[w0@GRAD] = scale(X=[w0]) role=backward vars=[w0, w0@GRAD] {scale=2.0}
  - Out=[w1@GRAD] = scale(X=[w1]) role=backward vars=[w1, w1@GRAD] {scale=2.0}
  + Out=[w0@SIM] = memcpy_h2d(X=[w0]) role=backward
  + Out=[w0@SIM] = stream_wait(X=[w0@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w0@GRAD] = scale(X=[w0@SIM]) role=backward vars=[w0, w0@GRAD] {scale=2.0}
  + Out=[w1@SIM] = memcpy_h2d(X=[w1]) role=backward
  + Out=[w1@SIM] = stream_wait(X=[w1@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w1@GRAD] = scale(X=[w1@SIM]) role=backward vars=[w1, w1@GRAD] {scale=2.0}
    Out=[fused_0] = c_allreduce_avg(X=[fused_0]) role=backward {ring_id=0, use_calc_stream=true}
  + Out=[fused_0] = stream_wait(X=[fused_0]) role=optimize {stream="d2h", awaited="compute"}
  + Out=[fused_0@CPU] = stream_wait(X=[fused_0@CPU]) role=optimize {stream="d2h", awaited="cpu"}
  + Out=[fused_0@CPU] = memcpy_d2h(X=[fused_0]) role=optimize
  + FusedOutput=[fused_1@CPU], Output=[w2@GRAD@CPU, w3@GRAD@CPU] = coalesce_tensor(Input=[w2@GRAD@CPU, w3@GRAD@CPU]) role=backward {dtype=5, align_size=256, concated_ranks=longs[1, 1], concated_shapes=longs[4, 4], op_device="cpu"}
  + Out=[fused_1@CPU] = stream_wait(X=[fused_1@CPU]) role=optimize {stream="d2h", awaited="cpu"}
  + Out=[w0@GRAD@CPU] = stream_wait(X=[w0@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
  + ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  + ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  - Out=[w2@GRAD] = scale(X=[w2]) role=backward vars=[w2, w2@GRAD] {scale=2.0}
  - Out=[w3@GRAD] = scale(X=[w3]) role=backward vars=[w3, w3@GRAD] {scale=2.0}
  + Out=[w2@SIM] = memcpy_h2d(X=[w2]) role=backward
  + Out=[w2@SIM] = stream_wait(X=[w2@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w2@GRAD] = scale(X=[w2@SIM]) role=backward vars=[w2, w2@GRAD] {scale=2.0}
  + Out=[w3@SIM] = memcpy_h2d(X=[w3]) role=backward
  + Out=[w3@SIM] = stream_wait(X=[w3@SIM]) role=backward {stream="compute", awaited="h2d"}
  + Out=[w3@GRAD] = scale(X=[w3@SIM]) role=backward vars=[w3, w3@GRAD] {scale=2.0}
  - ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD], LearningRate=[lr]) role=optimize
  - ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize
  - ParamOut=[w2] = sgd(Param=[w2], Grad=[w2@GRAD], LearningRate=[lr]) role=optimize
  - ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD], LearningRate=[lr]) role=optimize
  + Out=[fused_1] = stream_wait(X=[fused_1]) role=optimize {stream="compute", awaited="d2h"}
  + Out=[fused_1] = stream_wait(X=[fused_1]) role=optimize {stream="d2h", awaited="compute"}
  + Out=[fused_1@CPU] = memcpy_d2h(X=[fused_1]) role=optimize
  + Out=[w2@GRAD@CPU] = stream_wait(X=[w2@GRAD@CPU]) role=optimize {stream="cpu", awaited="d2h"}
  + ParamOut=[w2] = sgd(Param=[w2], Grad=[w2@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  + ParamOut=[w3] = sgd(Param=[w3], Grad=[w3@GRAD@CPU], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

// Gradients on their own: a large one and a small one make a turn, and so do small ones together.
TEST(HeteroBuckets, TurnsAreAtLeastHalfOfTheLargestValue) {
  std::string vars = "    var lr : fp32[1] persistable\n", gradients, updates;
  const int sizes[] = {64, 4, 64, 16, 16, 4};
  for (int i = 0; i < 6; ++i) {
    absl::StrAppend(&vars, "    var w", i, " : fp32[", sizes[i], "] parameter persistable\n");
    absl::StrAppend(&vars, "    var g", i, " : fp32[", sizes[i], "]\n");
    absl::StrAppend(&gradients, "    Out=[g", i, "] = scale(X=[w", i, "]) {scale=2.0}\n");
    absl::StrAppend(&updates, "    ParamOut=[w", i, "] = sgd(Param=[w", i, "], Grad=[g", i,
                    "], LearningRate=[lr]) role=optimize\n");
  }
  const Program main = Rewrite("hetero-partition{place=\"type:sgd=cpu\",staging=double}",
                               absl::StrCat(vars, gradients, updates))
                           .main;
  std::vector<std::string> steps;  // copies to the host, and waits for memory
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    const std::string stream = op.StringAttr("stream").value_or("");
    const std::string awaited = op.StringAttr("awaited").value_or("");
    if (op.type() == "memcpy_d2h") steps.emplace_back(main.name(op.input_args()[0]));
    if (stream == "compute" && awaited == "d2h") steps.push_back("freed");
    if (stream == "d2h" && awaited == "cpu") steps.push_back("read");
  }
  // Before the copy that ends a turn, those before it have left the accelerator. After it, the host
  // is done with what it read before. No turn follows the last one.
  EXPECT_THAT(steps,
              ElementsAre("g0", "g1", "freed", "g2", "read", "g3", "freed", "g4", "read", "g5"));
}

// What the host gets, in this order.
std::vector<std::string> CopiedToHost(const std::string& passes, const std::string& ops) {
  const Program main = Rewrite(passes, ops).main;
  std::vector<std::string> copied;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() == "memcpy_d2h") copied.emplace_back(main.name(op.output_args()[0]));
  }
  return copied;
}

// The ops of kBuckets up to the updates, which are by clipped gradients.
std::string ClippedBuckets() {
  std::string vars, clips;
  std::string updates = kBuckets;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&vars, "    var c", i, " : fp32[4]\n");
    absl::StrAppend(&clips, "    Out=[c", i, "] = clip(X=[w", i,
                    "@GRAD]) role=optimize {min=-1.0, max=1.0}\n");
    updates = absl::StrReplaceAll(
        updates, {{absl::StrCat("Grad=[w", i, "@GRAD]"), absl::StrCat("Grad=[c", i, "]")}});
  }
  const size_t first_update = updates.find("    ParamOut=[w0]");
  return absl::StrCat(vars, updates.substr(0, first_update), clips, updates.substr(first_update));
}

constexpr char kUpdateOnHost[] = "hetero-partition{place=\"type:sgd=cpu\"}";

TEST(HeteroBuckets, ValuesMadeOfABucketAreOneCopy) {
  const std::string clipped = ClippedBuckets();
  EXPECT_THAT(CopiedToHost(kUpdateOnHost, clipped),
              ElementsAre("fused_0@SENT@CPU", "fused_1@SENT@CPU"));
  // Those that the host reads.
  EXPECT_THAT(CopiedToHost("hetero-partition{place=\"param:w0=sim,type:sgd=cpu\"}", clipped),
              ElementsAre("c1@CPU", "fused_1@SENT@CPU"));
  // Also after several changes, some of all values together.
  const std::string changed = absl::StrReplaceAll(
      clipped,
      {{"    ParamOut=[w0]",
        "    Out=[c2] = elementwise_add(X=[c2], Y=[w2]) role=optimize\n"
        "    FoundInfinite=[inf], Out=[c0, c1, c2, c3] = check_finite_and_unscale(Scale=[lr], "
        "X=[c0, c1, c2, c3]) role=optimize\n    ParamOut=[w0]"}});
  EXPECT_THAT(CopiedToHost(kUpdateOnHost, changed),
              ElementsAre("fused_0@SENT@CPU", "fused_1@SENT@CPU"));
}

TEST(HeteroBuckets, ValuesThatCannotTravelTogetherAreCopiedOneByOne) {
  const std::string clipped = ClippedBuckets();
  const auto with = [&](const std::string& from, const std::string& to) {
    EXPECT_THAT(clipped, HasSubstr(from));
    return CopiedToHost(kUpdateOnHost, absl::StrReplaceAll(clipped, {{from, to}}));
  };
  // The host reads one before the other is made.
  const std::string clip_1 = "    Out=[c1] = clip(X=[w1@GRAD]) role=optimize {min=-1.0, max=1.0}\n";
  const std::string update_1 = "    ParamOut=[w1]";
  EXPECT_THAT(
      CopiedToHost(
          kUpdateOnHost,
          absl::StrReplaceAll(clipped, {{clip_1, ""}, {update_1, absl::StrCat(clip_1, update_1)}})),
      ElementsAre("c0@CPU", "fused_1@SENT@CPU", "c1@CPU"));
  // One is made of two gradients.
  EXPECT_THAT(with("Out=[c1] = clip(X=[w1@GRAD]) role=optimize {min=-1.0, max=1.0}",
                   "Out=[c1] = elementwise_add(X=[w1@GRAD], Y=[w0@GRAD]) role=optimize"),
              ElementsAre("c0@CPU", "c1@CPU", "fused_1@SENT@CPU"));
  // One is kept to the next step.
  EXPECT_THAT(with("var c1 : fp32[4]", "var c1 : fp32[4] persistable"),
              ElementsAre("c0@CPU", "c1@CPU", "fused_1@SENT@CPU"));
  // The host changes one.
  EXPECT_THAT(
      with(update_1, absl::StrCat("    Out=[c1] = relu(X=[c1]) role=optimize {op_device=\"cpu\"}\n",
                                  update_1)),
      ElementsAre("c0@CPU", "c1", "fused_1@SENT@CPU"));
}

// States on the host, decays on the accelerator.
TEST(HeteroBuckets, RegularizedBucketIsOneCopy) {
  std::string velocities, regularized = kBuckets;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&velocities, "    var v", i, " : fp32[4] persistable\n");
    regularized = absl::StrReplaceAll(
        regularized, {{absl::StrCat("ParamOut=[w", i, "] = sgd(Param=[w", i, "],"),
                       absl::StrCat("ParamOut=[w", i, "], VelocityOut=[v", i,
                                    "] = momentum(Velocity=[v", i, "], Param=[w", i, "],")},
                      {"LearningRate=[lr]) role=optimize\n",
                       "LearningRate=[lr]) role=optimize {mu=0.9, regularization_coeff=0.5, "
                       "regularization_method=\"l2_decay\"}\n"}});
  }
  EXPECT_THAT(CopiedToHost("optimizer-offload{offload=states},hetero-partition{place=op_device}",
                           absl::StrCat(velocities, regularized)),
              ElementsAre("fused_0@SENT@CPU", "fused_1@SENT@CPU"));
}

// A gradient that the host does not read would be copied for nothing.
TEST(HeteroBuckets, SlicesOfABucketThatIsNotReadAsAWholeAreCopiedOneByOne) {
  EXPECT_THAT(
      CopiedToHost("hetero-partition{place=\"param:w0=cpu,param:w2=cpu,param:w3=cpu\"}", kBuckets),
      ElementsAre("w0@GRAD@CPU", "fused_1@CPU"));
}

}  // namespace
}  // namespace weft::testing
