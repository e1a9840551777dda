// Programs that somebody wrote to fool the verifier, each with the rule that it has to break: wrong
// rewrites that look right, and a few right ones that look wrong.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/testing/test.h"
#include "proto/text/program_text.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

struct Case {
  const char* name;  // tests/data/counterexamples/<name>.prog, with what it is compared with beside
  const char* rule;  // "": verified
  int k_steps = 0;   // of LocalSGD; 0: nobody says
  bool sums_are_wanted = false;
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
    // Updates by its own gradient, and takes what rank 0 has made of it.
    {"broadcast_result", "W601"},
    {"broadcast_result_noorig", "W311"},
    // Averages the parameter, to which each rank has added what rank 0 has.
    {"broadcast_term", "W601"},
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
    // The gradient of a loop clips the gradient of each rank.
    {"loop_grad_clip", "W312"},
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
    // What adds up over steps, what the host sets before each, and what users see of it.
    {"small_factor", "W601"},
    {"host_schedule", "W602"},
    {"loss_scaled", "W610"},
    // A state that a block declares: counted otherwise, and right.
    {"block_state", "W602"},
    {"block_state_right", ""},
    // A startup program that initializes what it does not keep.
    {"startup_lost", "W108"},
    // Sends what no rank receives.
    {"send_alone", "W508"},
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
    // The original decides on a condition; the rewritten program does not ask.
    {"held", "W601"},
    {"held_const", "W601"},
    {"scalar_cond", "W602"},
    // Divides a parameter while its gradient op reads it, and puts it right again.
    {"nonoperand", "W313"},
    {"nonoperand_div", "W313"},
    // A gradient op without gradients among its inputs is not linear in anything.
    {"dy_slot", "W312"},
    {"grad_of_nothing", "W313"},
    // Declares a variable in a block: what the block writes stays there.
    {"shadow", "W602"},
    {"shadow_v", "W601"},
    // Divides by a number that is nearly the number of ranks, many times; sums more often than
    // anybody counts.
    {"saturate", "W601"},
    // Updated by hand, without a reduction; no parameter by its mark.
    {"manual_nonparam", "W604"},
    // The same, from a start that all ranks share.
    {"by_hand_started", "W604"},
    // Data that is not marked: an update by the gradient of each rank.
    {"unmarked_one_missing", "W310"},
    {"x_unmarked_both", "W310"},
    // Data of the original that is none any more.
    {"x_unmarked", "W608"},
    {"x_persist", "W608"},
    // Averages the gradient of an activation that is kept.
    {"persist_act", "W313"},
    // Moves a parameter, or a state, into a buffer, and leaves its value there.
    {"co_w_nocopy", "W607"},
    {"co_state_nocopy", "W607"},
    {"co_state_nocopy_read", "W607"},
    // Halves an integer, and sums.
    {"int_state", "W602"},
    // Writes a parameter by an op that computes nothing.
    {"fetch_w", "W607"},
    {"genid_lr", "W607"},
    // An accumulator that is subtracted from; a factor that is one over the number of ranks by
    // chance.
    {"acc_minus", ""},
    {"half_right", ""},
    // LocalSGD every fourth step, as it should be.
    {"ls_base", "", 4},
    // Averages in a block within the block, hardly ever.
    {"ls_nested_in", "W601", 4},
    {"ls_nested_never", "W601", 4},
    // Sets the counter back where it averages.
    {"ls_hidden_reset", "W605", 4},
    {"ls_hidden_alias", "W605", 4},
    // A block that the ops of the root do not name sets the condition back.
    {"ls_hidden_condition", "W605", 4},
    // Averages twice or three times, and never again.
    {"ls_stops", "W605", 4},
    {"ls_stops12", "W605", 4},
    {"ls_stops_nok", "W605"},
    // Runs the block in every step.
    {"ls_nonscalar", "W605", 4},
    // Counters that do not count as real numbers do.
    {"ls_intscale", "W605", 4},
    {"ls_halfinc", "W605"},
    {"ls_fp16", "W605", 3000},
    {"ls_uint8", "W605", 200},
    // On two conditions; on one that nobody can follow.
    {"ls_two_conds", "W605", 4},
    {"ls_beyond_wrong", "W605", 3000000},
    // Drops parts of the reduced gradient: the seed counts only if fix_seed says so.
    {"drop_unfixed", "W310"},
    {"drop_fixed", ""},
    // Sums the learning rate, too, where sums of gradients are wanted.
    {"summed_lr", "W601", 0, true},
    // Sum the gradient of a value of the forward pass: of a mean, and of a sum, twice.
    {"mean_grad_summed", "W312"},
    {"sum_grad_summed_twice", "W702"},
    // Multiplies by what is 1/2 in real numbers, and 0 after the roundings of fp32.
    {"rounded_sum", "W601"},
    {"rounded_scale", "W601"},
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
    options.setting.nranks = 2;
    options.setting.reduction =
        test.sums_are_wanted ? Setting::Reduction::kSum : Setting::Reduction::kMean;
    if (test.k_steps > 0) options.setting.averaging = AveragingSchedule{test.k_steps, 1};
    options.original = {Pointer(original), Pointer(original_startup)};
    const Findings findings = Verify({{Pointer(main), Pointer(startup)}}, options);
    std::vector<std::string> rules;
    for (const Finding& finding : findings.all()) {
      if (finding.severity == Severity::kError) rules.push_back(finding.rule);
    }
    if (*test.rule == '\0') {
      WEFT_EXPECT_OK(ToStatus(findings));
    } else {
      EXPECT_THAT(rules, Contains(test.rule));
    }
  }
}

}  // namespace
}  // namespace weft::testing
