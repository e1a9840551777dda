#include "transpiler/passes/gradients/gradient_writer.h"

#include <set>
#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/op_role.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// Sends a gradient to a variable of its own, from which it comes back.
class Relay : public GradientExchange {
 public:
  const pb::OpDesc& Launch(absl::Span<const std::string> variables, int ring) override {
    const std::string& variable = variables[0];
    send_ = BuildOp({"c_allgather",
                     {{"X", {variable}}},
                     {{"Out", {Result(variable)}}},
                     {{"nranks", 2}, {"ring_id", ring}},
                     kRoleBackward});
    return send_;
  }
  std::string Result(const std::string& variable) override { return variable + "@ALL"; }
  void Finish(const std::string& variable, Insert insert) override {
    insert(
        BuildOp({"assign", {{"X", {Result(variable)}}}, {{"Out", {variable}}}, {}, kRoleBackward}));
  }

 private:
  pb::OpDesc send_;
};

std::string Written(const std::string& text, const std::string& policy, int nrings,
                    std::vector<Remark>* remarks = nullptr) {
  Program program = CompactProgram(text);
  const auto analysis = AnalyzeGradients(program, std::set<std::string>());
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  Rewriter rewriter(&program);
  Relay relay;
  GradientWriter writer(program, *analysis, nrings, &relay, &rewriter);
  const auto filled = FillBuckets(program, *analysis, *BucketPolicy::Parse(policy));
  EXPECT_TRUE(filled.ok()) << filled.status();
  writer.Write(filled->buckets);
  PassContext context;
  context.sink.remarks = remarks;
  writer.Explain("test", "relayed", "c_allgather", filled->buckets, context);
  WEFT_EXPECT_OK(rewriter.Commit());
  std::string canonical = CanonicalText(program.ToProto());
  // Without declarations.
  return canonical.substr(canonical.rfind("\n", canonical.find(" = ")) + 1);
}

constexpr char kTwo[] = R"(
  var a@GRAD@ALL, b@GRAD@ALL : fp32[4, 2]
  var fused_gradient_0@ALL : fp32[8]
  Y@GRAD=[b@GRAD] = mul_grad(Y=[b], Out@GRAD=[g]) role=backward vars=[b, b@GRAD]
  Y@GRAD=[a@GRAD] = mul_grad(Y=[a], Out@GRAD=[g]) role=backward vars=[a, a@GRAD]
  ParamOut=[a] = sgd(Param=[a], Grad=[a@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(GradientWriter, LaunchesAtCompletionAndFinishesBeforeTheFirstUse) {
  EXPECT_EQ(Written(kTwo, "none", 2),
            R"(    Y@GRAD=[b@GRAD] = mul_grad(Out@GRAD=[g], Y=[b]) role=backward vars=[b, b@GRAD]
    Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
    Out=[b@GRAD@ALL] = c_allgather(X=[b@GRAD]) role=backward {nranks=2}
    Y@GRAD=[a@GRAD] = mul_grad(Out@GRAD=[g], Y=[a]) role=backward vars=[a, a@GRAD]
    Out=[a@GRAD] = c_wait_compute(X=[a@GRAD]) role=backward {ring_id=1}
    Out=[a@GRAD@ALL] = c_allgather(X=[a@GRAD]) role=backward {nranks=2, ring_id=1}
    Out=[a@GRAD, a@GRAD@ALL] = c_wait_comm(X=[a@GRAD, a@GRAD@ALL]) role=backward {ring_id=1}
    Out=[a@GRAD] = assign(X=[a@GRAD@ALL]) role=backward
    ParamOut=[a] = sgd(Grad=[a@GRAD], LearningRate=[lr], Param=[a]) role=optimize
    Out=[b@GRAD, b@GRAD@ALL] = c_wait_comm(X=[b@GRAD, b@GRAD@ALL]) role=backward
    Out=[b@GRAD] = assign(X=[b@GRAD@ALL]) role=backward
  }
}
)");
}

TEST(GradientWriter, BucketTravelsAsItsBuffer) {
  const std::string text = Written(kTwo, "count", 1);
  EXPECT_THAT(text, HasSubstr("Out=[fused_gradient_0@ALL] = c_allgather(X=[fused_gradient_0])"));
  EXPECT_THAT(text, HasSubstr("Out=[fused_gradient_0] = assign(X=[fused_gradient_0@ALL])"));
  EXPECT_EQ(text.find("c_allgather(X=[b@GRAD])"), std::string::npos);
}

TEST(GradientWriter, NotesTellOpRingAndPositions) {
  std::vector<Remark> remarks;
  Written(kTwo, "none", 2, &remarks);
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[0].subject, "b@GRAD");
  EXPECT_EQ(remarks[0].what, "relayed");
  EXPECT_EQ(remarks[1].details[1], std::make_pair(std::string("ring"), std::string("1")));
  EXPECT_EQ(remarks[1].details[3],
            std::make_pair(std::string("waited_for_by"), std::string("op 2 (sgd)")));
}

}  // namespace
}  // namespace weft::testing
