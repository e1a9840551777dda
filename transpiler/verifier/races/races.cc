#include "transpiler/verifier/races/races.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/shared_writes.h"
#include "ops/analysis/streams/streams.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/device_ops.h"

namespace weft {
namespace {

const char* RuleOf(Race::Kind kind) {
  if (kind == Race::Kind::kReadAfterWrite) return "W401";
  return kind == Race::Kind::kWriteAfterRead ? "W402" : "W403";
}

class RaceReporter {
 public:
  RaceReporter(const Program& program, const StreamReport& report, ProgramRef ref,
               Findings* findings)
      : program_(program), report_(report), reporter_(ref, findings) {}

  void Check() {
    ReportRaces();
    ReportLimits();
    ReportRedundantSyncs();
  }

 private:
  void ReportRaces() {
    for (const Race& race : report_.races) {
      Add(RuleOf(race.kind), race.second, race.first, race.variable, Describe(race));
    }
    for (const SharedSlice& slice : report_.shared_slices) {
      Add("W404", slice.op, slice.moved_by, slice.member, Describe(slice));
    }
  }

  void ReportLimits() {
    for (OpId op : report_.not_followed) {
      Add("W407", op,
          absl::StrCat(Name(op),
                       ": expected a separate block, found one that another op runs too; its "
                       "accesses there were not analyzed"));
    }
    if (report_.gave_up_at.valid()) {
      Add("W407", report_.gave_up_at,
          absl::StrCat(Name(report_.gave_up_at),
                       ": the program uses buffers with too many slices too often: from here on, "
                       "accesses to them were not analyzed"));
    }
    if (report_.unknown_communication.valid()) {
      Add("W408", report_.unknown_communication,
          absl::StrCat(Name(report_.unknown_communication),
                       ": the op is unregistered, but names a ring: it is assumed to run on the "
                       "compute stream, and may do something else",
                       Advice(report_.unknown_communication)));
    }
    if (report_.unknown_on_compute.valid()) {
      Add("W408", report_.unknown_on_compute,
          absl::StrCat(Name(report_.unknown_on_compute),
                       ": the op is unregistered, but names a ring: what it exchanges with other "
                       "ranks is not known",
                       Advice(report_.unknown_on_compute)));
    }
    if (report_.too_many_streams) {
      Add("W407", OpId(),
          absl::StrCat("expected at most ", kMaxStreams - 1, " rings with a stream, found ",
                       report_.ring_ids.size()));
    }
  }

  std::string Advice(OpId id) const {
    return absl::StrCat("; if it does not communicate, pass option:assume '",
                        program_.op(id).type(), ": no_communication'");
  }

  // Other names are W411.
  bool NamesStreams(const SyncUse& sync) const {
    if (sync.sync != StreamSync::kStreamWaitsForStream) return true;
    const Op op = program_.op(sync.op);
    return FindDeviceStream(op.StringAttr("stream").value_or("")).has_value() &&
           FindDeviceStream(op.StringAttr("awaited").value_or("")).has_value();
  }

  void ReportRedundantSyncs() {
    for (const SyncUse& sync : report_.syncs) {
      if (sync.effect == SyncEffect::kOrdersNothing) {
        Add("W405", sync.op, DescribeRedundant(sync));
      } else if (sync.effect == SyncEffect::kNoStream && NamesStreams(sync)) {
        const bool names_streams = sync.sync == StreamSync::kStreamWaitsForStream;
        Add("W406", sync.op,
            absl::StrCat(Name(sync.op),
                         ": expected a ring with collectives that do not set use_calc_stream, "
                         "found ",
                         names_streams ? "one" : absl::StrCat("ring ", sync.ring_id, ","),
                         names_streams ? " that has none" : " which has none",
                         ": it orders nothing"));
      }
    }
  }

  void Add(const char* rule, OpId op, std::string message) {
    reporter_.Add(rule, op, "", std::move(message));
  }
  void Add(const char* rule, OpId op, OpId other, VarId variable, std::string message) {
    reporter_.Add(rule, op, program_.var(variable).name(), std::move(message), other);
  }

  std::string Name(OpId op) const { return program_.op(op).DebugName(); }
  std::string VarName(VarId var) const { return absl::CEscape(program_.var(var).name()); }

  bool Names(OpId op, VarId var) const {
    const absl::Span<const Symbol> args = program_.op(op).args();
    return std::find(args.begin(), args.end(), program_.var(var).name_symbol()) != args.end();
  }

  // Before the name of the variable, if the op accesses its memory under another name: a buffer, or
  // what share_data has made.
  std::string Through(OpId op, VarId var) const { return Names(op, var) ? "" : "memory of "; }

  std::string Describe(const Race& race) const {
    const std::string variable = VarName(race.variable);
    const std::string waiting = StreamName(report_, race.second_stream);
    const std::string awaited = StreamName(report_, race.first_stream);
    const bool first_reads = race.kind == Race::Kind::kWriteAfterRead;
    const bool second_reads = race.kind == Race::Kind::kReadAfterWrite;
    // The program may wait on some paths.
    const bool in_block = program_.op(race.first).block() != 0 ||
                          (race.second.valid() && program_.op(race.second).block() != 0);
    const std::string first_object = Through(race.first, race.variable) + "it";
    if (!race.second.valid()) {
      return absl::StrCat(Name(race.first), first_reads ? " reads " : " writes ", variable, " on ",
                          awaited, ", and nothing waits for it before the program ends: the main ",
                          "program may use it on ", waiting, " before that; insert ", Remedy(race),
                          " at the end");
    }
    return absl::StrCat(Name(race.second), second_reads ? " reads " : " writes ",
                        Through(race.second, race.variable), variable, " on ", waiting,
                        race.is_after_end ? " in the next step" : "", ", while ", Name(race.first),
                        first_reads ? " reads " : " writes ", first_object, " on ", awaited,
                        ": nothing makes ", waiting, " wait for ", awaited, " in between",
                        in_block ? " on every path" : "", "; insert ", Remedy(race));
  }

  bool IsRingOrCompute(int stream) const {
    return stream <= static_cast<int>(report_.ring_ids.size());
  }

  std::string Remedy(const Race& race) const {
    const auto wait_comm = StreamSyncOpType(StreamSync::kComputeWaitsForRing);
    const auto wait_compute = StreamSyncOpType(StreamSync::kRingWaitsForCompute);
    if (!IsRingOrCompute(race.first_stream) || !IsRingOrCompute(race.second_stream)) {
      return absl::StrCat(StreamSyncOpType(StreamSync::kStreamWaitsForStream), " of ",
                          StreamName(report_, race.second_stream), " for ",
                          StreamName(report_, race.first_stream));
    }
    if (race.second_stream == 0) return std::string(wait_comm);
    if (race.first_stream == 0) return std::string(wait_compute);
    return absl::StrCat(wait_comm, " for ", StreamName(report_, race.first_stream), " and ",
                        wait_compute, " for ", StreamName(report_, race.second_stream));
  }

  std::string Describe(const SharedSlice& slice) const {
    const std::string member = VarName(slice.member), buffer = VarName(slice.buffer);
    if (slice.op == slice.moved_by) {
      return absl::StrCat(Name(slice.op), " output Output: expected variables that differ from ",
                          "each other and from ", kBufferSlot, ", found ", member, " in ", buffer,
                          " twice");
    }
    return absl::StrCat(Name(slice.op), " uses ", buffer, ", but ", Name(slice.moved_by),
                        " has moved its slice ", member, " elsewhere");
  }

  std::string DescribeRedundant(const SyncUse& sync) const {
    const bool is_of_host =
        sync.sync == StreamSync::kAllWaitForCompute || sync.sync == StreamSync::kAllWaitForRing;
    const std::string who = is_of_host
                                ? "the host has already waited"
                                : absl::StrCat(StreamName(report_, sync.waiting), " already waits");
    return absl::StrCat(Name(sync.op), " orders nothing: ", who, " for all that ",
                        StreamName(report_, sync.awaited), " was given");
  }

  const Program& program_;
  const StreamReport& report_;
  Reporter reporter_;
};

// Builds of Paddle 3 for CPUs write startup programs that broadcast and set up no ring. There is
// one stream.
bool IsOfPaddle3ForCpus(const ProgramFacts& startup) {
  return startup.program().version() >= 3'000'000 && !AnyHas(startup, Trait::kRingSetup);
}

}  // namespace

void CheckRaces(const ProgramFacts& facts, ProgramRef ref, Findings* findings) {
  const Program& program = facts.program();
  for (const StaleCopy& copy : FindSharedWrites(program).stale) {
    Reporter(ref, findings)
        .Add("W413", copy.writes, program.name(copy.name), ToString(program, copy), copy.reads);
  }
  if (ref.is_startup && IsOfPaddle3ForCpus(facts)) return;
  StreamOptions options;
  options.end = ref.is_startup ? StepEnd::kOtherProgram : StepEnd::kNextStep;
  const StreamReport report = AnalyzeStreams(facts, options);
  RaceReporter(program, report, ref, findings).Check();
}

}  // namespace weft
