#include "transpiler/verify/across_ranks.h"

namespace weft {
namespace {

constexpr Rule kRules[] = {
    {"W501", Severity::kError, "ranks make different calls on a ring",
     "The first call that differs hangs, or mixes up data. All ranks of a ring have to make the "
     "same collectives, of the same size, in the same order.",
     nullptr},
    {"W502", Severity::kError, "ranks call collectives of several rings in contradicting orders",
     "Each rank may wait for a collective that another one starts later only: a deadlock that "
     "depends on timing.",
     nullptr},
    {"W503", Severity::kError,
     "a block with collectives runs on a condition that ranks disagree on",
     "Ranks on which the condition holds wait for the others for ever. Conditions have to be "
     "computed from what is the same on all ranks, such as a step counter.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[1] need_check_feed
    var limit : fp32[1] persistable
    var is_large : bool[1]
    var scope : step_scopes
    var w : fp32[1] parameter persistable
    Out=[is_large] = greater_than(X=[x], Y=[limit])
    Out=[w], Scope=[scope] = conditional_block(Cond=[is_large], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})"},
    {"W504", Severity::kWarning, "a loop has collectives",
     "It cannot be shown that the loop runs equally often on all ranks.", R"(program {
  block 0 parent=-1 {
    var more : bool[1] persistable
    var w : fp32[1] parameter persistable
    Out=[w] = while(Condition=[more], X=[w]) {sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})"},
    {"W505", Severity::kError, "ranks exchange different variables",
     "They have the same size, so that nothing hangs: the value of one variable becomes that of "
     "another one. It cannot be shown that they mean the same.",
     nullptr},
    {"W506", Severity::kError,
     "ranks compute the condition of a block with collectives in different ways",
     "Sooner or later, ranks on which it holds wait for the others for ever.", nullptr},
    {"W507", Severity::kError, "two startup programs join a ring as the same rank",
     "The ring is never complete: all wait for ever.", nullptr},
};

}  // namespace

absl::Span<const Rule> AcrossRanksRules() { return kRules; }

}  // namespace weft
