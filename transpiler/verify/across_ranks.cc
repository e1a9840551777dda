#include "transpiler/verify/across_ranks.h"

#include "transpiler/verify/example_program.h"

namespace weft {
namespace {

constexpr Rule kRules[] = {
    {"W501", Severity::kError, "ranks make different calls on a ring",
     "The first call that differs hangs, or mixes up data. All ranks of a ring have to make the "
     "same collectives, of the same size, in the same order.",
     WEFT_EXAMPLE_BEGIN
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[lr] = c_broadcast(X=[lr]) {ring_id=0, root=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     /*original=*/nullptr, /*startup=*/nullptr, /*original_startup=*/nullptr,
     WEFT_EXAMPLE_BEGIN
     R"(    Out=[lr] = c_broadcast(X=[lr]) {ring_id=0, root=0, use_calc_stream=true}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W502", Severity::kError, "ranks call collectives of several rings in contradicting orders",
     "Each rank may wait for a collective that another one starts later only: a deadlock that "
     "depends on timing.",
     WEFT_EXAMPLE_BEGIN
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[lr] = c_broadcast(X=[lr]) {ring_id=1, root=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     /*original=*/nullptr, /*startup=*/nullptr, /*original_startup=*/nullptr,
     WEFT_EXAMPLE_BEGIN
     R"(    Out=[lr] = c_broadcast(X=[lr]) {ring_id=1, root=0, use_calc_stream=true}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
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
     R"(program {
  block 0 parent=-1 {
    var a : fp32[16] parameter persistable
    var b : fp32[16, 1] parameter persistable
    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=0, use_calc_stream=true}
    Out=[b] = c_broadcast(X=[b]) {ring_id=0, root=0, use_calc_stream=true}
  }
})",
     /*original=*/nullptr, /*startup=*/nullptr, /*original_startup=*/nullptr,
     R"(program {
  block 0 parent=-1 {
    var a : fp32[16] parameter persistable
    var b : fp32[16, 1] parameter persistable
    Out=[b] = c_broadcast(X=[b]) {ring_id=0, root=0, use_calc_stream=true}
    Out=[a] = c_broadcast(X=[a]) {ring_id=0, root=0, use_calc_stream=true}
  }
})"},
    {"W506", Severity::kError,
     "ranks compute the condition of a block with collectives in different ways",
     "Sooner or later, ranks on which it holds wait for the others for ever.",
     R"(program {
  block 0 parent=-1 {
    var w : fp32[1] parameter persistable
    var step : int64[1] persistable
    var begin : int64[1]
    var due : bool[1]
    var scope : step_scopes
    Out=[begin] = fill_constant() {shape=longs[1], dtype=3, value=10.0}
    Out=[due] = greater_than(X=[step], Y=[begin])
    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[step] = increment(X=[step]) {step=1.0}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})",
     /*original=*/nullptr, /*startup=*/nullptr, /*original_startup=*/nullptr,
     R"(program {
  block 0 parent=-1 {
    var w : fp32[1] parameter persistable
    var step : int64[1] persistable
    var begin : int64[1]
    var due : bool[1]
    var scope : step_scopes
    Out=[begin] = fill_constant() {shape=longs[1], dtype=3, value=20.0}
    Out=[due] = greater_than(X=[step], Y=[begin])
    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[step] = increment(X=[step]) {step=1.0}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})"},
    {"W507", Severity::kError, "two startup programs join a ring as the same rank",
     "The ring is never complete: all wait for ever.",
     WEFT_EXAMPLE_BEGIN
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     /*original=*/nullptr, R"(program {
  block 0 parent=-1 {
    var id : raw
    Out=[id] = c_gen_nccl_id() {endpoint="10.0.0.1:6170", other_endpoints=strings["10.0.0.2:6170"], rank=0}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
  }
})",
     /*original_startup=*/nullptr, /*rank1=*/nullptr, R"(program {
  block 0 parent=-1 {
    var id : raw
    Out=[id] = c_gen_nccl_id() {endpoint="10.0.0.2:6170", other_endpoints=strings["10.0.0.1:6170"], rank=1}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
  }
})"},
};

}  // namespace

absl::Span<const Rule> AcrossRanksRules() { return kRules; }

}  // namespace weft
