#include "transpiler/verify/races.h"

#include <algorithm>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/streams.h"
#include "transpiler/verify/reporter.h"

namespace weft {
namespace {

constexpr Rule kRules[] = {
    {"W401", Severity::kError, "A value is read before it has arrived",
     "The reader runs on another stream than the writer and does not wait for it: it gets the old "
     "value, or a part of the new one, depending on timing. Let its stream wait in between.",
     R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var w@GRAD : fp32[4]
    var lr : fp32[1] persistable
    Out=[w@GRAD] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[w@GRAD] = c_wait_compute(X=[w@GRAD]) {ring_id=0}
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=false}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr])
  }
})"},
    {"W402", Severity::kError, "A value is overwritten while it is being read",
     "The writer runs on another stream than the reader and does not wait for it: the reader gets "
     "the old value, the new one, or a part of each. Let the writer's stream wait in between.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[4]
    var sum : fp32[4]
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[x] = c_wait_compute(X=[x]) {ring_id=0}
    Out=[sum] = c_allreduce_sum(X=[x]) {ring_id=0, use_calc_stream=false}
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=2.0}
    Out=[sum] = c_wait_comm(X=[sum]) {ring_id=0}
  }
})"},
    {"W403", Severity::kError, "Two streams write the same storage",
     "Which of the two values stays depends on timing. Let the second one's stream wait in "
     "between.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[4]
    var sum : fp32[4]
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[x] = c_wait_compute(X=[x]) {ring_id=0}
    Out=[sum] = c_allreduce_sum(X=[x]) {ring_id=0, use_calc_stream=false}
    Out=[sum] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[sum] = c_wait_comm(X=[sum]) {ring_id=0}
  }
})"},
    {"W404", Severity::kError, "A buffer is used without one of its slices",
     "coalesce_tensor has given a variable a place in one buffer and then in another one, or two "
     "places in the same: the first place is no longer that of the variable, and what is done with "
     "the buffer does not reach it. Give every variable one buffer.",
     R"(program {
  block 0 parent=-1 {
    var a : fp32[4]
    var b : fp32[4]
    var one : fp32[8]
    var two : fp32[8]
    Out=[a] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[b] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Output=[a, b], FusedOutput=[one] = coalesce_tensor(Input=[a, b]) {copy_data=true, dtype=5}
    Output=[b], FusedOutput=[two] = coalesce_tensor(Input=[b]) {copy_data=true, dtype=5}
    Out=[one] = scale(X=[one]) {scale=0.5}
  }
})"},
    {"W405", Severity::kNote, "A synchronization orders nothing",
     "Whatever it waits for has been waited for already, or nothing was issued. It can go: pass "
     "sync-elimination removes it. Where it blocks the host, it keeps the host from issuing ops "
     "meanwhile.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[4]
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[x] = c_wait_compute(X=[x]) {ring_id=0}
    Out=[x] = c_wait_compute(X=[x]) {ring_id=0}
    Out=[x] = c_allreduce_sum(X=[x]) {ring_id=0, use_calc_stream=false}
    Out=[x] = c_wait_comm(X=[x]) {ring_id=0}
  }
})"},
    {"W406", Severity::kNote, "A synchronization is for a ring that has no stream",
     "No collective of the program runs on that ring, or all of them set use_calc_stream: then "
     "they "
     "run on the compute stream, in order with everything else. It can go, or names the wrong "
     "ring.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[4]
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[x] = c_allreduce_sum(X=[x]) {ring_id=0, use_calc_stream=true}
    Out=[x] = c_wait_comm(X=[x]) {ring_id=0}
  }
})"},
    {"W407", Severity::kError, "It cannot be told whether there are races",
     "Two ops run the same block, or there are more rings, or more uses of buffers with many "
     "slices, than can be followed. Nothing was found wrong there, and nothing was proved either. "
     "Give every op a block of its own.",
     R"(program {
  block 0 parent=-1 {
    var due : bool[1]
    var x : fp32[4]
    var scope : step_scopes
    Out=[x] = fill_constant() {shape=longs[4], dtype=5, value=1.0}
    Out=[due] = fill_constant() {shape=longs[1], dtype=0, value=1.0}
    Out=[x], Scope=[scope] = conditional_block(Cond=[due], Input=[x]) {is_scalar_condition=true, sub_block=block(1)}
    Out=[x], Scope=[scope] = conditional_block(Cond=[due], Input=[x]) {is_scalar_condition=true, sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[x] = scale(X=[x]) {scale=2.0}
  }
})"},
    {"W408", Severity::kWarning, "An op that is not known names a ring",
     "It may communicate, on a stream of its own, with ranks that wait for it. Nothing was proved "
     "of it.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[4] persistable
    Out=[x] = an_exchange_of_a_fork(X=[x]) {ring_id=0}
  }
})"},
};

const char* RuleOf(Race::Kind kind) {
  switch (kind) {
    case Race::Kind::kReadAfterWrite:
      return "W401";
    case Race::Kind::kWriteAfterRead:
      return "W402";
    case Race::Kind::kWriteAfterWrite:
      return "W403";
  }
  return "W401";
}

class Checker {
 public:
  Checker(const Program& program, const StreamReport& report, ProgramRef ref, Findings* findings)
      : program_(program), report_(report), reporter_(kRules, ref, findings) {}

  void Check() {
    for (const Race& race : report_.races) {
      Add(RuleOf(race.kind), race.second, race.first, race.variable,
          [&] { return Describe(race); });
    }
    for (const SharedSlice& slice : report_.shared_slices) {
      Add("W404", slice.op, slice.moved_by, slice.member, [&] { return Describe(slice); });
    }
    for (OpId op : report_.not_followed) {
      Add("W407", op, OpId(), VarId(), [&] {
        return absl::StrCat(Name(op),
                            ": expected a block of its own, found one that another op runs too; "
                            "what it does there was not followed");
      });
    }
    if (report_.gave_up_at.valid()) {
      Add("W407", report_.gave_up_at, OpId(), VarId(), [&] {
        return absl::StrCat(Name(report_.gave_up_at),
                            ": the program uses buffers with too many slices too often: from here "
                            "on, what it does with them was not followed");
      });
    }
    if (report_.unknown_communication.valid()) {
      Add("W408", report_.unknown_communication, OpId(), VarId(), [&] {
        return absl::StrCat(
            Name(report_.unknown_communication),
            ": not an op that is known, but it names a ring: it is taken to compute "
            "on the compute stream, and may do something else");
      });
    }
    if (report_.too_many_streams) {
      Add("W407", OpId(), OpId(), VarId(), [&] {
        return absl::StrCat("expected at most ", kMaxStreams - 1, " rings with a stream, found ",
                            report_.ring_ids.size());
      });
    }
    for (const SyncUse& sync : report_.syncs) {
      if (sync.effect == SyncEffect::kOrdersNothing) {
        Add("W405", sync.op, OpId(), VarId(), [&] { return DescribeIdle(sync); });
      } else if (sync.effect == SyncEffect::kNoStream) {
        Add("W406", sync.op, OpId(), VarId(), [&] {
          return absl::StrCat(Name(sync.op), ": expected a ring with collectives that do not set ",
                              "use_calc_stream, found ring ", sync.ring_id,
                              ", which has none: it orders nothing");
        });
      }
    }
  }

 private:
  void Add(const char* rule, OpId op, OpId other, VarId variable,
           absl::FunctionRef<std::string()> message) {
    const absl::string_view name =
        variable.valid() ? program_.var(variable).name() : absl::string_view();
    reporter_.Add(rule, op, name, message, other);
  }

  std::string Name(OpId op) const { return program_.op(op).DebugName(); }
  std::string VarName(VarId var) const { return absl::CEscape(program_.var(var).name()); }

  bool Names(OpId op, VarId var) const {
    const absl::Span<const Symbol> args = program_.op(op).args();
    return std::find(args.begin(), args.end(), program_.var(var).name_symbol()) != args.end();
  }

  // What the op accesses: the variable, or the buffer that it is a slice of.
  std::string Through(OpId op, VarId var) const { return Names(op, var) ? "" : "the buffer of "; }

  std::string Describe(const Race& race) const {
    const std::string variable = VarName(race.variable);
    const std::string waiting = StreamName(report_, race.second_stream);
    const std::string awaited = StreamName(report_, race.first_stream);
    const bool first_reads = race.kind == Race::Kind::kWriteAfterRead;
    const bool second_reads = race.kind == Race::Kind::kReadAfterWrite;
    const std::string first_object =
        Names(race.first, race.variable) ? "it" : "the buffer that it is a slice of";
    return absl::StrCat(Name(race.second), second_reads ? " reads " : " writes ",
                        Through(race.second, race.variable), variable, " on ", waiting, ", while ",
                        Name(race.first), first_reads ? " reads " : " writes ", first_object,
                        " on ", awaited, ": nothing makes ", waiting, " wait for ", awaited,
                        " in between", OnEveryPath(race), "; insert ", Remedy(race));
  }

  // Where one of the two stands in a block that may be skipped, a wait may be there all the same.
  std::string OnEveryPath(const Race& race) const {
    const bool in_block =
        program_.op(race.first).block() != 0 || program_.op(race.second).block() != 0;
    return in_block ? ", whichever blocks are skipped" : "";
  }

  std::string Remedy(const Race& race) const {
    if (race.second_stream == 0) return "c_wait_comm";
    if (race.first_stream == 0) return "c_wait_compute";
    return absl::StrCat("c_wait_comm for ", StreamName(report_, race.first_stream),
                        " and c_wait_compute for ", StreamName(report_, race.second_stream));
  }

  std::string Describe(const SharedSlice& slice) const {
    const std::string member = VarName(slice.member), buffer = VarName(slice.buffer);
    if (slice.op == slice.moved_by) {
      return absl::StrCat(Name(slice.op), " output Output: expected variables that differ from ",
                          "each other and from FusedOutput, found ", member, " in ", buffer,
                          " twice");
    }
    return absl::StrCat(Name(slice.op), " uses ", buffer, ", of which ", member,
                        " was a slice, but ", Name(slice.moved_by),
                        " has given that a place elsewhere");
  }

  std::string DescribeIdle(const SyncUse& sync) const {
    const std::string ring = absl::StrCat("ring ", sync.ring_id);
    const std::string name = Name(sync.op);
    switch (sync.sync) {
      case StreamSync::kRingWaitsForCompute:
        return absl::StrCat(name, " orders nothing: ", ring,
                            " waits already for all that the compute stream was given");
      case StreamSync::kComputeWaitsForRing:
        return absl::StrCat(name, " orders nothing: the compute stream waits already for all that ",
                            ring, " was given");
      case StreamSync::kAllWaitForCompute:
        return absl::StrCat(name, " orders nothing: the host has waited already for all that the ",
                            "compute stream was given");
      case StreamSync::kAllWaitForRing:
        return absl::StrCat(name, " orders nothing: the host has waited already for all that ",
                            ring, " was given");
    }
    return name;
  }

  const Program& program_;
  const StreamReport& report_;
  Reporter reporter_;
};

}  // namespace

absl::Span<const Rule> RaceRules() { return kRules; }

void CheckRaces(const Program& program, ProgramRef ref, Findings* findings) {
  const StreamReport report = AnalyzeStreams(program);
  Checker(program, report, ref, findings).Check();
}

}  // namespace weft
