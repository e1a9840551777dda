// Placement works with fused gradient buffers: on every real program, with less and less memory,
// and with ops on the host that write slices of buffers or use them. The result is verified.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/testing/test.h"
#include "tests/support/models.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

const std::map<std::string, Model>& Models() {
  static const auto* const models = new std::map<std::string, Model>(ReadModels());
  return *models;
}

absl::StatusOr<TranspileResult> Rewrite(const std::string& mode, const Model& model,
                                        absl::optional<int64_t> memory, const std::string& place) {
  Program main = model.main, startup = model.startup;
  ProgramPair programs{&main, &startup};
  TranspileOptions options;
  options.mode = mode;
  options.cluster.nranks = 2;
  options.placement.device_memory = memory;
  options.placement.place = place;
  return Transpile(options, programs);
}

// The number after `what`; -1: there is none.
int64_t NumberAfter(absl::string_view text, absl::string_view what) {
  const size_t at = text.find(what);
  if (at == absl::string_view::npos) return -1;
  return std::stoll(std::string(text.substr(at + what.size())));
}

class PlaceBucketsInMode : public ::testing::TestWithParam<const char*> {};

TEST_P(PlaceBucketsInMode, EveryMemorySizeIsVerified) {
  constexpr int kSizes = 2;
  for (const char* name : {"two_losses", "mlp_clip_norm", "mlp_lamb", "mlp_gradient_merge"}) {
    const Model& model = Models().at(name);
    SCOPED_TRACE(name);
    const absl::Status too_little = Rewrite(GetParam(), model, 1, "").status();
    const int64_t least = NumberAfter(too_little.message(), "expected at least ");
    ASSERT_GT(least, 0) << too_little;
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult whole,
                              Rewrite(GetParam(), model, int64_t{1} << 40, ""));
    // With variables of unknown size, it is about so much.
    const std::string notes = absl::StrJoin(testing::ResultLines(whole.messages), "\n");
    const int64_t most = std::max(NumberAfter(notes, "; at most "), NumberAfter(notes, "; about "));
    ASSERT_GT(most, least);
    for (int i = 0; i < kSizes; ++i) {
      const int64_t memory = least + (most - 1 - least) * i / kSizes;
      WEFT_EXPECT_OK(Rewrite(GetParam(), model, memory, "").status()) << memory << " bytes";
    }
  }
}

TEST_P(PlaceBucketsInMode, SlicesMayBeWrittenOnTheHost) {
  for (const auto& [name, model] : Models()) {
    for (const char* rule : {"type:elementwise_add_grad=cpu", "type:*_grad=cpu", "type:sum=cpu"}) {
      SCOPED_TRACE(absl::StrCat(name, " ", rule));
      const absl::Status status = Rewrite(GetParam(), model, absl::nullopt, rule).status();
      if (status.ok()) continue;
      EXPECT_THAT(std::string(status.message()), HasSubstr("found none that matches"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PlaceBucketsInMode,
                         ::testing::Values("grad_allreduce", "local_sgd"),
                         [](const auto& info) { return std::string(info.param); });

// Gradients merged over steps are applied in a branch.
TEST(PlaceBlocks, RuleForTheUpdateOfABranchPlacesTheBranch) {
  Program main = Models().at("mlp_gradient_merge").main;
  Program startup = Models().at("mlp_gradient_merge").startup;
  ProgramPair programs{&main, &startup};
  TranspileOptions options;
  options.mode = "none";
  options.placement.place = "type:momentum=cpu";
  WEFT_ASSERT_OK(Transpile(options, programs).status());
  int num_branches = 0;
  for (OpId id : main.block(0).ops()) {
    if (main.op(id).type() != "conditional_block") continue;
    EXPECT_EQ(main.op(id).StringAttr("op_device"), "cpu");
    ++num_branches;
  }
  EXPECT_EQ(num_branches, 1);
}

TEST(PlaceBuckets, BuffersMayBeOnTheHost) {
  for (const auto& [name, model] : Models()) {
    for (const char* rule : {"type:c_allreduce*=cpu", "type:*_grad=cpu,type:c_allreduce*=cpu"}) {
      SCOPED_TRACE(absl::StrCat(name, " ", rule));
      WEFT_EXPECT_OK(Rewrite("grad_allreduce", model, absl::nullopt, rule).status());
    }
  }
}

}  // namespace
}  // namespace weft::testing
