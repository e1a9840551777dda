// Mode optimizer_offload with every value of every flag of its own, on two ranks, with and without
// a startup program: verified.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "proto/text/program_text.h"
#include "tests/support/models.h"
#include "tests/support/rewrite.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

struct Flag {
  const char* name;
  std::vector<std::string> values;
};

std::ostream& operator<<(std::ostream& out, const Flag& flag) { return out << flag.name; }

class OffloadFlags : public ::testing::TestWithParam<Flag> {};

TEST_P(OffloadFlags, EveryValueIsVerified) {
  const std::map<std::string, Model> models = ReadModels();
  for (const char* name :
       {"fit_a_line", "mlp_adam", "mlp_clip_norm", "mlp_lr_decay", "mlp_amp", "mlp_lamb"}) {
    for (const std::string& value : GetParam().values) {
      for (const bool has_startup : {false, true}) {
        SCOPED_TRACE(absl::StrCat(name, " ", value, has_startup ? " with startup" : ""));
        const Model& model = models.at(name);
        Program main = model.main, startup = model.startup;
        ProgramPair programs{&main, has_startup ? &startup : nullptr};
        TranspileOptions options = InMode("optimizer_offload");
        options.mode_flags[GetParam().name] = value;
        options.cluster.nranks = 2;
        const absl::Status status = Transpile(options, programs).status();
        const bool is_adam = std::string(name) == "mlp_adam";
        const bool decays = std::string(name) == "mlp_lamb";
        if (value == "false" && !is_adam) {
          EXPECT_THAT(std::string(status.message()), HasSubstr("expected adam or adamw"));
        } else if (std::string(GetParam().name) == "no_decay" && !decays) {
          EXPECT_THAT(std::string(status.message()),
                      HasSubstr("a parameter that its update decays"));
        } else {
          WEFT_EXPECT_OK(status);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Flags, OffloadFlags,
                         ::testing::Values(Flag{"offload", {"full", "states"}},
                                           Flag{"master_weights", {"fp32", "none"}},
                                           Flag{"offload_params", {"*", "fc_0*"}},
                                           Flag{"no_decay", {"*.w_*"}},
                                           Flag{"bias_correction", {"true", "false"}},
                                           Flag{"staging", {"all", "double"}},
                                           Flag{"order", {"early_start", "few_switches"}}),
                         [](const auto& info) { return std::string(info.param.name); });

// Modes that do not place ops read them with --place and --device_memory.
TEST(PlacementFlags, AreReadByEveryModeThatPlacesOps) {
  const Model model = ReadModels().at("mlp_adam");
  const auto rewritten = [&](const std::string& mode, const std::string& place,
                             std::map<std::string, std::string> flags,
                             std::string* text) -> absl::Status {
    Program main = model.main, startup = model.startup;
    TranspileOptions options = InMode(mode, absl::nullopt, std::move(flags));
    options.placement.place = place;
    if (mode != "none") options.cluster.nranks = 2;
    const absl::Status status = Rewrite(options, &main, &startup).status();
    *text = ProgramText(main);
    return status;
  };
  std::string text, other;
  for (const char* mode : {"none", "grad_allreduce", "local_sgd"}) {
    SCOPED_TRACE(mode);
    WEFT_ASSERT_OK(rewritten(mode, "type:adam=cpu", {}, &text));
    for (const auto& flag :
         std::map<std::string, std::string>{{"order", "few_switches"}, {"staging", "double"}}) {
      WEFT_ASSERT_OK(rewritten(mode, "type:adam=cpu", {flag}, &other));
      if (mode == std::string("none")) {
        EXPECT_NE(other, text) << flag.first;
      }
      EXPECT_THAT(std::string(rewritten(mode, "", {flag}, &other).message()),
                  HasSubstr(absl::StrCat("does not read option:", flag.first)));
    }
  }
}

}  // namespace
}  // namespace weft::testing
