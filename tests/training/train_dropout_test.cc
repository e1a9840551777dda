// Training with dropout: with the masks that Paddle drew, what Paddle gave; with masks that are
// drawn here, other ones on every rank and in every step, and the same ones in every run.
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "tests/support/rounding.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr int kSteps = 10;
constexpr char kMask[] = "dropout_0.tmp_1";

std::string Path(const std::string& file) { return absl::StrCat("tests/data/mlp_dropout/", file); }

pb::ProgramDesc MainDesc() {
  pb::ProgramDesc desc;
  const absl::StatusOr<FileBytes> file = ReadFile(Path("main.pb"));
  EXPECT_TRUE(file.ok() && desc.ParseFromString(std::string(file->bytes)));
  return desc;
}

// Instead of each dropout of p, which draws Mask:
//   Out = X * Mask / (1 - p), or, downgrade_in_infer, X * Mask,
// in three ops, where Mask is data of the step.
pb::ProgramDesc WithMasksAsData(const pb::ProgramDesc& drawing) {
  pb::ProgramDesc desc = drawing;
  pb::BlockDesc& block = *desc.mutable_blocks(0);
  std::set<std::string> masks;
  block.clear_ops();
  const auto add = [&block](const std::string& type, int role) {
    pb::OpDesc* op = block.add_ops();
    op->set_type(type);
    *op->add_attrs() = MakeAttr("op_role", static_cast<int32_t>(role));
    return op;
  };
  const auto input = [](pb::OpDesc* op, const std::string& slot, const std::string& name) {
    pb::OpDesc::Var* var = op->add_inputs();
    var->set_parameter(slot);
    var->add_arguments(name);
  };
  const auto output = [](pb::OpDesc* op, const std::string& slot, const std::string& name) {
    pb::OpDesc::Var* var = op->add_outputs();
    var->set_parameter(slot);
    var->add_arguments(name);
  };
  for (const pb::OpDesc& op : drawing.blocks(0).ops()) {
    if (op.type() != "dropout") {
      *block.add_ops() = op;
      continue;
    }
    std::string x, out, mask;
    for (const auto& slot : op.inputs()) {
      if (slot.parameter() == "X") x = slot.arguments(0);
    }
    for (const auto& slot : op.outputs())
      (slot.parameter() == "Mask" ? mask : out) = slot.arguments(0);
    float p = 0;
    bool is_scaled = false;
    for (const auto& attr : op.attrs()) {
      if (attr.name() == "dropout_prob") p = attr.f();
      if (attr.name() == "dropout_implementation") is_scaled = attr.s() == "upscale_in_train";
    }
    masks.insert(mask);
    const std::string factor = mask + ".fp32";
    pb::VarDesc* var = block.add_vars();
    for (const pb::VarDesc& other : drawing.blocks(0).vars()) {
      if (other.name() == x) *var = other;
    }
    var->set_name(factor);
    pb::OpDesc* cast = add("cast", kRoleForward);
    input(cast, "X", mask);
    output(cast, "Out", factor);
    *cast->add_attrs() = MakeAttr("in_dtype", static_cast<int32_t>(pb::VarType::UINT8));
    *cast->add_attrs() = MakeAttr("out_dtype", static_cast<int32_t>(pb::VarType::FP32));
    pb::OpDesc* keep = add("elementwise_mul", kRoleForward);
    input(keep, "X", x);
    input(keep, "Y", factor);
    output(keep, "Out", out);
    *keep->add_attrs() = MakeAttr("axis", int32_t{-1});
    pb::OpDesc* scale = add("scale", kRoleForward);
    input(scale, "X", out);
    output(scale, "Out", out);
    *scale->add_attrs() = MakeAttr("scale", is_scaled ? 1 / (1 - p) : 1.0f);
  }
  for (pb::VarDesc& var : *block.mutable_vars()) {
    if (masks.count(var.name()) > 0) var.set_need_check_feed(true);
  }
  return desc;
}

class TrainDropoutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_ASSERT_OK_AND_ASSIGN(state_, LoadParams(Path("init.params"), Path("persistables.txt")));
    WEFT_ASSERT_OK_AND_ASSIGN(feeds_, FeedsFromFile(Path("feeds.npz")));
    WEFT_ASSERT_OK_AND_ASSIGN(reference_, ReadNpz(Path("reference.npz")));
    options_.kernels = &CpuKernels();
    options_.steps = kSteps;
  }

  // The program as it is, data parallel on options_.nranks.
  absl::StatusOr<RunResult> Train(const Tensors& state) {
    WEFT_ASSIGN_OR_RETURN(Program main, Program::FromProto(MainDesc()));
    TranspileOptions options;
    options.mode = options_.nranks == 1 ? "none" : "grad_allreduce";
    if (options_.nranks > 1) options.cluster.nranks = options_.nranks;
    ProgramPair programs{&main, /*startup=*/nullptr};
    WEFT_RETURN_IF_ERROR(Transpile(options, programs).status());
    return Run(main, feeds_, state);
  }

  absl::StatusOr<RunResult> Run(const Program& main, const FeedSource& feeds,
                                const Tensors& state) {
    RunInputs inputs;
    inputs.main = &main;
    inputs.params = &state;
    inputs.feeds = feeds;
    inputs.on_result = [this](const StepResult& result) {
      results_.push_back(result);
      return absl::OkStatus();
    };
    return RunProgram(inputs, options_);
  }

  RunOptions options_;
  Tensors state_, reference_;
  FeedSource feeds_;
  std::vector<StepResult> results_;
};

TEST_F(TrainDropoutTest, WithTheMasksOfPaddleItGivesTheLossesOfPaddle) {
  FeedSource feeds = feeds_;
  const std::vector<std::string> masks = {kMask, "dropout_1.tmp_1"};
  feeds.variables.insert(feeds.variables.end(), masks.begin(), masks.end());
  feeds.types = nullptr;
  feeds.read = [this, masks](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, feeds_.read(step));
    for (const std::string& mask : masks) {
      batch.push_back(reference_.at(absl::StrCat("single/mask/", step, "/", mask)));
    }
    return batch;
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, Program::FromProto(WithMasksAsData(MainDesc())));
  const auto train = [&](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
    results_.clear();
    options_.kernels = from.kernels;
    WEFT_ASSIGN_OR_RETURN(RunResult result, Run(main, from.feeds, from.params));
    TrainingResults results;
    results.losses.resize(1);
    for (const StepResult& step : results_) {
      results.losses[0].push_back(*step.values[0].data<float>());
    }
    results.state = std::move(result.persistables);
    return results;
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            RoundingBounds::Measure({state_, feeds}, train));
  ASSERT_THAT(bounds.results().losses[0], SizeIs(kSteps));
  bounds.ExpectLosses(0, bounds.results().losses[0], AsDoubles(reference_.at("single/loss")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors finals,
                            LoadParams(Path("final_single.params"), Path("persistables.txt")));
  for (const auto& [name, expected] : finals) {
    const Tensor& state = bounds.results().state.at(name);
    ASSERT_EQ(state.dims(), expected.dims()) << name;
    bounds.ExpectState(name, state, expected);
  }
}

TEST_F(TrainDropoutTest, MasksDifferBetweenRanksAndStepsButNotBetweenRuns) {
  options_.nranks = 2;
  options_.steps = 3;
  options_.fetch = {kMask};
  std::vector<std::string> runs[3];
  for (int run = 0; run < 3; ++run) {
    options_.seed = run < 2 ? 5 : 6;
    results_.clear();
    WEFT_ASSERT_OK(Train(state_).status());
    for (const StepResult& result : results_) {
      const Tensor& mask = result.values[0];
      runs[run].emplace_back(static_cast<const char*>(mask.raw()), mask.bytes());
    }
  }
  EXPECT_THAT(std::set<std::string>(runs[0].begin(), runs[0].end()), SizeIs(2 * 3));
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

// On each number of ranks; the generators' states are in no file.
TEST_F(TrainDropoutTest, RunThatIsResumedEndsAsOneThatWentThrough) {
  for (int ranks : {1, 2, 4}) {
    options_.nranks = ranks;
    options_.begin_step = 0;
    options_.steps = kSteps;
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult through, Train(state_));
    options_.steps = 4;
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult first, Train(state_));
    options_.begin_step = 4;
    options_.steps = kSteps - 4;
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult second, Train(first.persistables));
    for (const auto& [name, expected] : through.persistables) {
      const Tensor& found = second.persistables.at(name);
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0)
          << name << " on " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace weft::testing
