// Programs that somebody wrote to fool the verifier, each with the rule that it has to break: wrong
// rewrites that look right, and a few right ones that look wrong.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/program_text.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

struct Case {
  const char* name;  // tests/data/counterexamples/<name>.prog, with what it is compared with beside
  const char* rule;  // "": verified
};

// What each of them does:
constexpr Case kCases[] = {
    // The gradient arrives in the parameter after eight steps, never reduced.
    {"delay8", "W310"},
    // Averages over the ranks the gradient of an activation, whose rows are different samples.
    {"actgrad", "W313"},
    // c - g for g - c, with the slots in the other order.
    {"subslots", "W601"},
    // Scatters, over the ranks, the gradient of rank 0.
    {"bcast_rs", "W311"},
    // Transposes each rank's part, not the whole.
    {"shardtr", "W601"},
    // A collective writes other data into the buffer that the gradient is a member of.
    {"into_fused", "W607"},
    {"into_fused2", "W607"},
    // Averages the parameter, and then puts back what each rank had.
    {"meets_restored", "W604"},
    // LocalSGD on a condition that is never true.
    {"never_avg", "W605"},
    // LocalSGD that sets a state to a constant, or to another variable.
    {"vel_seven", "W602"},
    {"vel_junk", "W602"},
    // Another constant inside a loop; an update inside a loop, by the ranks' own gradients.
    {"loop_attr", "W607"},
    {"loop_update_named", "W604"},
    {"loop_update_noorig", "W310"},
    // Rounds to integers before the mean.
    {"intcast", "W313"},
    {"intcast2", "W313"},
    // Updates without an optimizer: not reduced, and reduced.
    {"manual_add", "W604"},
    {"manual_noorig", "W310"},
    {"manual_add_right", ""},
    // Scales by NaN, where the original scales by 0; something very small, made large again.
    {"nan0", "W601"},
    {"cancel", "W601"},
    // A state that is not kept; two feeds exchanged.
    {"persist_drop", "W603"},
    {"feedcol", "W601"},
    // An accumulated gradient that does not begin with 0, divided.
    {"acc_nonzero", "W602"},
    // Reductions that are no sums.
    {"max_noorig", "W313"},
    {"prod_noorig", "W313"},
    // Gradients that come from ops that nobody knows.
    {"unknown_src", "W310"},
    {"recv", "W310"},
    // Divides on a condition.
    {"cond_divide", "W315"},
    // The gradient of one rank, chosen by a condition.
    {"select_rank", "W601"},
    // Rings: a rank that there is not, a use before they are set up, another size.
    {"rank_out_of_range", "W303"},
    {"use_before_init", "W301"},
    {"ringsize", "W302"},
    // Begins somewhere else.
    {"startup_other_init", "W606"},
    // Each rank updates a part, and the parts are gathered.
    {"zero1", ""},
};

absl::optional<Program> Read(const std::string& name) {
  std::ifstream file(absl::StrCat("tests/data/counterexamples/", name, ".prog"));
  if (!file) return absl::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  absl::StatusOr<Program> program = ParseProgramText(text.str());
  if (!program.ok()) ADD_FAILURE() << name << ": " << program.status();
  return *std::move(program);
}

const Program* Pointer(const absl::optional<Program>& program) {
  return program.has_value() ? &*program : nullptr;
}

TEST(Counterexamples, AreSeenThrough) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    const absl::optional<Program> main = Read(test.name);
    ASSERT_TRUE(main.has_value());
    const auto startup = Read(absl::StrCat(test.name, ".startup"));
    const auto original = Read(absl::StrCat(test.name, ".original"));
    const auto original_startup = Read(absl::StrCat(test.name, ".original_startup"));
    VerifyOptions options;
    options.nranks = 2;
    options.original = {Pointer(original), Pointer(original_startup)};
    const Findings findings = Verify({{Pointer(main), Pointer(startup)}}, options);
    std::vector<std::string> rules;
    for (const Finding& finding : findings.all()) {
      if (finding.severity == Severity::kError) rules.push_back(finding.rule);
    }
    if (*test.rule == '\0') {
      WEFT_EXPECT_OK(ToStatus(findings));
    } else {
      EXPECT_THAT(rules, ::testing::Contains(test.rule));
    }
  }
}

}  // namespace
}  // namespace weft
