// Every mode of the weft dialect, on every real program: verified, or refused with the reason of
// the table below.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/core/op_traits.h"
#include "proto/all_ops.h"
#include "tests/support/models.h"
#include "tests/support/rewrite.h"
#include "transpiler/modes.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

// Why a mode refuses a model; empty: it does not.
std::string ReasonOf(const std::string& mode, const std::string& model) {
  const bool is_half = model == "mlp_amp" || model == "mlp_amp_bf16";
  if (mode == "singa_half" && is_half) return "expected fp32, which can travel as fp16";
  if (absl::StartsWith(mode, "singa_sparse") && is_half) {
    return "only fp32 gradients can be sparsified";
  }
  const bool is_dense = absl::StartsWith(model, "bert") || model == "wide_deep";
  if (mode == "embedding_offload" && is_dense) {
    return "the gradient is dense, as large as the table";
  }
  return "";
}

const std::map<std::string, Model>& Models() {
  static const auto* const models = new std::map<std::string, Model>(ReadModels());
  return *models;
}

// The ops by which ranks of Paddle 3 communicate. On the CPU there are no streams, and rings are
// set up outside of programs.
const std::set<std::string> kOfCpus = {"all_gather", "all_reduce", "broadcast"};
const std::set<std::string> kOfCudaDevices = {"all_gather",  "all_reduce",     "all_to_all",
                                              "broadcast",   "comm_init_all",  "c_sync_comm_stream",
                                              "c_wait_comm", "c_wait_compute", "reduce_scatter"};

// The first op for communication that is not one of `known`; empty: none.
std::string OtherThan(const std::set<std::string>& known, const Program& program) {
  OpTraits traits(program);
  for (const Op& op : AllOps(program)) {
    const bool communicates = traits.Has(op, Trait::kCollective) ||
                              traits.Has(op, Trait::kStreamSync) ||
                              traits.Has(op, Trait::kRingSetup);
    if (communicates && known.count(std::string(op.type())) == 0) return op.DebugName();
  }
  return "";
}

class EveryModeTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryModeTest, IsVerifiedOrRefusedWithItsReason) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Mode* const mode, FindMode(GetParam()));
  for (const auto& [name, model] : Models()) {
    SCOPED_TRACE(name);
    Program main = model.main, startup = model.startup;
    const absl::Status status =
        Rewrite(InMode(mode->name, 2, mode->required), &main, &startup).status();
    const std::string reason = ReasonOf(mode->name, name);
    if (reason.empty()) {
      WEFT_EXPECT_OK(status);
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
    }
  }
}

// Why a mode refuses a model of Paddle 3 for the CPU; empty: it does not.
std::string ReasonOnCpu(const std::string& mode, const std::string& model) {
  if (absl::StartsWith(mode, "singa_sparse")) return "expected a dense tensor on the CPU";
  if (mode == "zero") return "Paddle has no reduce-scatter for CPUs";
  // These exchange parameters, which are fp32.
  const bool averages = mode == "local_sgd" || mode == "singa_partial";
  if (mode == "singa_half" || (model == "mlp_amp" && !averages && mode != "mindspore_reducer")) {
    return "expected another element type than half precision on the CPU";
  }
  return "";
}

TEST_P(EveryModeTest, WritesOpsThatPaddle3Registers) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Mode* const mode, FindMode(GetParam()));
  if (mode->runs_in == Mode::RunsIn::kWeft) {
    const auto refused = ExpandMode(*mode, Dialect::kWeft, mode->required, {"device_kind"});
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("does not read option:device_kind"));
    return;
  }
  for (const auto& [name, model] : ReadModels(testing::kPaddle3Models)) {
    for (const TargetDevice kind : {TargetDevice::kCuda, TargetDevice::kCpu}) {
      SCOPED_TRACE(absl::StrCat(name, kind == TargetDevice::kCpu ? " on the CPU" : ""));
      Program main = model.main, startup = model.startup;
      TranspileOptions options = InMode(mode->name, 2, mode->required);
      options.device_kind = kind;
      const absl::Status status = Rewrite(options, &main, &startup).status();
      std::string reason = ReasonOf(mode->name, name);
      if (reason.empty() && kind == TargetDevice::kCpu) reason = ReasonOnCpu(mode->name, name);
      if (!reason.empty()) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
        continue;
      }
      WEFT_EXPECT_OK(status);
      const std::set<std::string>& known = kind == TargetDevice::kCpu ? kOfCpus : kOfCudaDevices;
      EXPECT_EQ(OtherThan(known, main), "");
      EXPECT_EQ(OtherThan(known, startup), "");
    }
  }
}

std::vector<std::string> ModesOfWeft() {
  std::vector<std::string> modes;
  for (const Mode& mode : Modes()) {
    if (!mode.pipelines.empty()) modes.push_back(mode.name);
  }
  return modes;
}

INSTANTIATE_TEST_SUITE_P(All, EveryModeTest, ValuesIn(ModesOfWeft()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
