#include "transpiler/testing/expect_rewrite.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr char kForward[] = "Out=[y] = relu(X=[x])";
constexpr char kStartup[] = "var w : fp32[2, 2] parameter persistable";

// Appends a relu op that reads `reads`. `again`: what a second run does.
class AppendRelu : public Pass {
 public:
  static constexpr absl::string_view kName = "append-relu";
  static constexpr absl::string_view kDescription = "main program: appends relu";
  struct Options {
    std::string reads = "y";
    std::string again = "nothing";
    void Bind(OptionBinder& bind) {
      bind.String("reads", &reads, "variable that is read");
      bind.String("again", &again, "a second run: nothing, main, startup, wrong, error");
    }
  };
  explicit AppendRelu(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override {
    const Program& program = *programs.main;
    const bool has_run = program.block(0).FindVar("z").valid();
    if (has_run && options_.again == "error") return absl::InternalError("no second run");
    if (has_run && options_.again == "startup") {
      Rewriter rewriter(programs.startup);
      rewriter.AddVar(0, program.var(program.block(0).FindVar("z")).ToProto());
      WEFT_RETURN_IF_ERROR(rewriter.Commit());
      return true;
    }
    if (has_run && options_.again != "main" && options_.again != "wrong") return false;
    const std::string z = has_run ? "zz" : "z";
    pb::OpDesc op;
    op.set_type("relu");
    auto* in = op.add_inputs();
    in->set_parameter("X");
    if (!has_run || options_.again != "wrong") in->add_arguments(options_.reads);
    auto* out = op.add_outputs();
    out->set_parameter("Out");
    out->add_arguments(z);
    auto* role = op.add_attrs();
    role->set_name(std::string(kOpRoleAttr));
    role->set_type(pb::INT);
    role->set_i(kRoleForward);
    Rewriter rewriter(programs.main);
    pb::VarDesc var = program.var(program.block(0).FindVar("y")).ToProto();
    var.set_name(z);
    rewriter.AddVar(0, var);
    rewriter.Append(0, op);
    WEFT_RETURN_IF_ERROR(rewriter.Commit());
    return true;
  }

 private:
  const Options options_;
};

// Replaces the last op by an equal one.
class ReplaceLast : public Pass {
 public:
  static constexpr absl::string_view kName = "replace-last";
  static constexpr absl::string_view kDescription = "main program: replaces an op by its equal";
  struct Options {
    void Bind(OptionBinder&) {}
  };
  explicit ReplaceLast(Options) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const PassContext&, ProgramPair& programs) const override {
    const OpId last = programs.main->block(0).ops().back();
    Rewriter rewriter(programs.main);
    rewriter.Replace(last, programs.main->op(last).ToProto());
    WEFT_RETURN_IF_ERROR(rewriter.Commit());
    return true;
  }
};

constexpr char kOneLoss[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
constexpr char kSummed[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
constexpr char kSummedAfterScale[] = R"(
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[loss@GRAD]) role=backward vars=[w, w@GRAD]
    Out=[w@GRAD] = c_sync_calc_stream(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward
    Out=[w@GRAD] = c_sync_comm_stream(X=[w@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";

RewriteOptions WithAppendRelu() {
  RewriteOptions options;
  options.registry.Add<AppendRelu>();
  return options;
}

TEST(ExpectRewrite, ExpectedProgramPasses) {
  const TranspileResult result = ExpectRewrite(
      "comm-init", {kForward, "var w : fp32[2, 2] parameter persistable"},
      {kForward, "c_comm_init_all() {nranks=2}\nvar w : fp32[2, 2] parameter persistable"},
      OnRanks(2));
  EXPECT_THAT(result.passes, SizeIs(1));
}

TEST(ExpectRewrite, EditsOfAProgramAreItsLinesWithMargins) {
  ExpectRewrite("append-relu", R"(
  + var z : fp32[2, 2]
    Out=[y] = relu(X=[x])
  + Out=[z] = relu(X=[y])
  )",
                WithAppendRelu());
  ExpectRewrite("comm-init", R"(
    Out=[y] = relu(X=[x])
    startup:
    var w : fp32[2, 2] parameter persistable
  + c_comm_init_all() {nranks=2}
  )",
                OnRanks(2));
}

TEST(ExpectRewrite, EditsOfASharedProgramListTheLinesThatChange) {
  ExpectRewrite("append-relu", "Out=[h] = relu(X=[x])\nOut=[y] = relu(X=[h])", R"(
  + var z : fp32[2, 2]
    Out=[y] = relu(X=[h])
  + Out=[z] = relu(X=[y])
  )",
                WithAppendRelu());
  ExpectRewrite(
      "comm-init", {kForward, kStartup},
      "startup:\nvar w : fp32[2, 2] parameter persistable\n+ c_comm_init_all() {nranks=2}",
      OnRanks(2));
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu", kForward, "Out=[q] = relu(X=[x])\n+ x", WithAppendRelu()),
      "expected this line");
}

TEST(ExpectRewrite, OtherProgramFailsWithTheLinesThatDifferAndItsMargins) {
  EXPECT_NONFATAL_FAILURE(ExpectRewrite("append-relu", kForward, kForward, WithAppendRelu()),
                          "+     Out=[z] = relu(X=[y])");
  EXPECT_NONFATAL_FAILURE(ExpectRewrite("append-relu", kForward, kForward, WithAppendRelu()),
                          R"(
    var x : fp32[2, 2] need_check_feed
    var y : fp32[2, 2]
  + var z : fp32[2, 2]
    Out=[y] = relu(X=[x])
  + Out=[z] = relu(X=[y])
)");
}

TEST(ExpectRewrite, NewVariableHasToBeDeclaredInTheTextAfter) {
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu", kForward, "Out=[y] = relu(X=[x])\nOut=[z] = relu(X=[y])",
                    WithAppendRelu()),
      "+     var z : fp32[2, 2]\n");
}

TEST(ExpectRewrite, WhatTheVerifierFindsFails) {
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu{reads=other}", "var other : fp32[5]\nOut=[y] = relu(X=[x])",
                    "var z : fp32[2, 2]\nOut=[y] = relu(X=[x])\nOut=[z] = relu(X=[other])",
                    WithAppendRelu()),
      "W20");
}

TEST(ExpectRewrite, SecondRunThatChangesSomethingFails) {
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu{again=main}", kForward,
                    "var z : fp32[2, 2]\nOut=[y] = relu(X=[x])\nOut=[z] = relu(X=[y])",
                    WithAppendRelu()),
      "a second run changes the result");
}

TEST(ExpectRewrite, SecondRunThatChangesTheStartupProgramFails) {
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu{again=startup}", {kForward, kStartup},
                    {"var z : fp32[2, 2]\nOut=[y] = relu(X=[x])\nOut=[z] = relu(X=[y])", kStartup},
                    WithAppendRelu()),
      "a second run changes the result");
}

// A contract refuses with FailedPrecondition. Anything else is a defect of the pass.
TEST(ExpectRewrite, SecondRunThatFailsFails) {
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu{again=error}", kForward,
                    "var z : fp32[2, 2]\nOut=[y] = relu(X=[x])\nOut=[z] = relu(X=[y])",
                    WithAppendRelu()),
      "no second run");
}

TEST(ExpectRewrite, SecondRunThatTheVerifierRefusesFails) {
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("append-relu{again=wrong}", kForward,
                    "var z : fp32[2, 2]\nOut=[y] = relu(X=[x])\nOut=[z] = relu(X=[y])",
                    WithAppendRelu()),
      "second run: FAILED_PRECONDITION: after pass append-relu: W102");
}

TEST(ExpectRewrite, RulesThatAPaddleRewriteViolatesAreNamed) {
  ExpectRewrite("paddle-grad-all-reduce{nrings=1}", kOneLoss, kSummed,
                Violating({"W312", "W601"}, OnEndpoints(2, Dialect::kPaddle)));
  EXPECT_NONFATAL_FAILURE(ExpectRewrite("paddle-grad-all-reduce{nrings=1}", kOneLoss, kSummed,
                                        OnEndpoints(2, Dialect::kPaddle)),
                          "W312: op 5 (sgd) updates w by w@GRAD, which is summed");
  EXPECT_NONFATAL_FAILURE(
      ExpectRewrite("scale-loss-grad,paddle-grad-all-reduce{nrings=1}", kOneLoss, kSummedAfterScale,
                    Violating({"W312"}, OnEndpoints(2, Dialect::kPaddle))),
      "violated rules");
}

TEST(ExpectRewrite, CollectivesOfTheStartupProgramAreVerified) {
  constexpr char kBroadcast[] = R"(
    Out=[w] = fill_constant() {shape=longs[2, 2]}
    Out=[w] = c_wait_compute(X=[w])
    Out=[w] = c_broadcast(X=[w])
    Out=[w] = c_wait_comm(X=[w])
  )";
  EXPECT_NONFATAL_FAILURE(
      ExpectNoRewrite("sync-elimination", {"", kBroadcast}),
      "W301: startup program: op 1 (c_wait_compute): uses ring 0, which no op of the startup");
  ExpectNoRewrite("sync-elimination", {"", std::string("c_comm_init_all()") + kBroadcast});
}

TEST(ExpectRewrite, WithoutVerificationNothingIsFound) {
  RewriteOptions options = WithAppendRelu();
  options.verification = Verification::kNever;
  ExpectRewrite("append-relu{reads=other}", "var other : fp32[5]\nOut=[y] = relu(X=[x])",
                "var z : fp32[2, 2]\nOut=[y] = relu(X=[x])\nOut=[z] = relu(X=[other])", options);
}

TEST(ExpectNoRewrite, ProgramThatIsReplacedByItsEqualFails) {
  RewriteOptions options;
  options.registry.Add<ReplaceLast>();
  EXPECT_NONFATAL_FAILURE(ExpectNoRewrite("replace-last", kForward, options), "replace-last");
}

TEST(RemarkTexts, NameSubjectReasonAndDetails) {
  TranspileResult result;
  result.remarks = {{"pass", "w@GRAD", "reduced", "it must be", {{"ring", "0"}, {"after", "op 1"}}},
                    {"pass", "ring 1", "set up", "", {}}};
  EXPECT_THAT(RemarkTexts(result),
              ElementsAre("w@GRAD reduced: it must be ring=0 after=op 1", "ring 1 set up"));
}

TEST(RewriteOptions, TrainersDriveTheDevicesThatAreGiven) {
  const RewriteOptions options = OnDevices(2, {0, 1}, Dialect::kPaddle);
  EXPECT_EQ(options.dialect, Dialect::kPaddle);
  EXPECT_THAT(options.cluster.endpoints, ElementsAre("127.0.0.1:6170", "127.0.0.1:6171"));
  EXPECT_THAT(*options.cluster.devices, ElementsAre(0, 1));
}

TEST(ExpectRewrite, TextThatIsNoProgramFails) {
  EXPECT_NONFATAL_FAILURE(ExpectNoRewrite("comm-init", "Out=[y]"), "texts: INVALID_ARGUMENT");
}

TEST(ExpectRewrite, RefusalIsAStatus) {
  EXPECT_THAT(RewriteStatus("grad-all-reduce", kForward), IsFailedPrecondition("has no gradients"));
}

}  // namespace
}  // namespace weft::testing
