// Every mode of the weft dialect, on every real program: verified, or refused with the reason of
// the table below.
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models.h"
#include "transpiler/modes.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::ValuesIn;
using ::weft::testing::Model;
using ::weft::testing::ReadModels;

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

class EveryModeTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryModeTest, IsVerifiedOrRefusedWithItsReason) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Mode* const mode, FindMode(GetParam()));
  for (const auto& [name, model] : Models()) {
    SCOPED_TRACE(name);
    Program main = model.main, startup = model.startup;
    ProgramPair programs{&main, &startup};
    TranspileOptions options;
    options.mode = mode->name;
    options.mode_flags = mode->required;
    options.cluster.nranks = 2;
    const absl::Status status = Transpile(options, programs).status();
    const std::string reason = ReasonOf(mode->name, name);
    if (reason.empty()) {
      WEFT_EXPECT_OK(status);
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
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
}  // namespace weft
