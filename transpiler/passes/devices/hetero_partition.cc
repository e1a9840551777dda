#include "transpiler/passes/devices/hetero_partition.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/schema/feed_ops.h"
#include "proto/all_ops.h"
#include "transpiler/passes/devices/device_partition.h"
#include "transpiler/passes/devices/place_spec.h"
#include "transpiler/passes/devices/placement_search.h"
#include "transpiler/passes/support/device_accesses.h"

namespace weft {
namespace {

// Finds where the ops run.
class OpPlacer {
 public:
  OpPlacer(const Program& program, const PlaceSpec& spec)
      : program_(program),
        spec_(spec),
        device_(program.op_id_limit(), DeviceKind::kAccelerator),
        is_fixed_(program.op_id_limit(), false) {}

  absl::Status Run() {
    for (const Op& op : BlockOps(program_, 0)) {
      absl::optional<DeviceKind> device = spec_.Find(op);
      is_fixed_[op.id().value()] =
          device.has_value() || !op.StringAttr(kOpDeviceAttr).value_or("").empty();
      if (!device.has_value()) {
        WEFT_ASSIGN_OR_RETURN(device, spec_.Default(op));
      }
      device_[op.id().value()] = *device;
    }
    for (const Group& group : FindGroups()) {
      WEFT_RETURN_IF_ERROR(FollowRules(group));
      WEFT_RETURN_IF_ERROR(Join(group));
    }
    for (OpId id : program_.block(0).ops()) {
      const auto stays = stays_.find(id);
      WEFT_RETURN_IF_ERROR(
          Place(program_.op(id), device_[id.value()], stays == stays_.end() ? "" : stays->second));
    }
    PlaceBuffers();
    return absl::OkStatus();
  }

  const OpDevices& devices() const { return device_; }
  // By OpId: a rule or its op_device says where the op runs.
  const std::vector<bool>& is_fixed() const { return is_fixed_; }

  // An op that runs with its block where a rule puts an op of it, or of a block of its group.
  struct Followed {
    OpId holder, ruled;
    bool is_own;  // the ruled op is in a block of the holder
  };
  const std::vector<Followed>& followed() const { return followed_; }
  // Ops of blocks that stay where their block has to run, although a rule puts them elsewhere.
  struct Stayed {
    OpId op;
    std::string why;
  };
  const std::vector<Stayed>& stayed() const { return stayed_; }

 private:
  // An op that has blocks, and those that have its gradient blocks, in their order.
  using Group = std::vector<OpId>;

  std::vector<Group> FindGroups() const {
    std::vector<Group> groups;
    constexpr int kNone = -1;
    std::vector<int> group_of_block(program_.num_blocks(), kNone);
    for (OpId id : program_.block(0).ops()) {
      const std::vector<int> blocks = program_.op(id).SubBlocks();
      if (blocks.empty()) continue;
      int group = kNone;
      for (int block : blocks) {
        const int forward = program_.block(block).forward_block_idx();
        const bool is_known = forward >= 0 && forward < program_.num_blocks();
        if (is_known && group == kNone) group = group_of_block[forward];
      }
      if (group == kNone) {
        group = static_cast<int>(groups.size());
        groups.emplace_back();
      }
      groups[group].push_back(id);
      for (int block : blocks) group_of_block[block] = group;
    }
    return groups;
  }

  // The first op of its blocks that a rule puts on the device.
  OpId FindRuled(const Op& op, DeviceKind device) const {
    for (int block : op.SubBlocks()) {
      for (const Op& inner : BlockOps(program_, block)) {
        if (spec_.Find(inner) == device) return inner.id();
        const OpId found = FindRuled(inner, device);
        if (found.valid()) return found;
      }
    }
    return OpId();
  }

  // Ops for which nothing says where they run go where rules put ops of their blocks, unless one of
  // the group cannot run on the host.
  absl::Status FollowRules(const Group& group) {
    const std::string why_stays = WhyGroupNotOnHost(group);
    if (!why_stays.empty()) {
      for (OpId id : group) {
        if (device_[id.value()] == DeviceKind::kAccelerator) stays_.emplace(id, why_stays);
      }
    }
    Group free;
    absl::c_copy_if(group, std::back_inserter(free),
                    [&](OpId id) { return !is_fixed_[id.value()]; });
    if (free.empty()) return absl::OkStatus();
    struct Ruled {
      OpId op, holder;
    };
    const auto find_ruled = [&](DeviceKind device) {
      for (OpId id : free) {
        const OpId found = FindRuled(program_.op(id), device);
        if (found.valid()) return Ruled{found, id};
      }
      return Ruled{};
    };
    const DeviceKind rest = device_[free.front().value()], other = OtherDevice(rest);
    if (other == DeviceKind::kHost && !why_stays.empty()) return absl::OkStatus();
    const Ruled ruled = find_ruled(other);
    if (!ruled.op.valid()) return absl::OkStatus();
    const Ruled against = find_ruled(rest);
    if (against.op.valid()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rules of place put ", program_.op(ruled.op).DebugName(), " on ", DeviceKindName(other),
          " and ", program_.op(against.op).DebugName(), " on ", DeviceKindName(rest),
          ": expected one device for the blocks of ", program_.op(ruled.holder).DebugName(),
          ruled.holder == against.holder
              ? ""
              : absl::StrCat(" and ", program_.op(against.holder).DebugName())));
    }
    for (OpId id : free) {
      device_[id.value()] = other;
      is_fixed_[id.value()] = true;
      const OpId own = FindRuled(program_.op(id), other);
      followed_.push_back({id, own.valid() ? own : ruled.op, own.valid()});
    }
    return absl::OkStatus();
  }

  std::string WhyGroupNotOnHost(const Group& group) const {
    for (OpId id : group) {
      std::string why = WhyNotOnHost(program_.op(id));
      if (!why.empty()) return why;
    }
    return "";
  }

  // A gradient block reads what its forward block leaves, so that both run on one device.
  absl::Status Join(const Group& group) {
    const OpId forward = group.front();
    const DeviceKind device = device_[forward.value()];
    for (OpId id : group) {
      if (device_[id.value()] == device) continue;
      if (!is_fixed_[id.value()]) {
        device_[id.value()] = device;
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          program_.op(id).DebugName(), ": expected to run on ", DeviceKindName(device), " as ",
          program_.op(forward).DebugName(), ", whose values its block reads; found it on ",
          DeviceKindName(device_[id.value()]), "; ", HowToJoin(group, id)));
    }
    return absl::OkStatus();
  }

  // The rule that, before the others, puts both on one device.
  std::string HowToJoin(const Group& group, OpId gradient) const {
    const Op forward = program_.op(group.front());
    const std::string why = WhyGroupNotOnHost(group);
    if (why.empty()) {
      const bool on_host = device_[gradient.value()] == DeviceKind::kHost;
      return absl::StrCat("place both, with a first rule type:", forward.type(), "=",
                          on_host ? std::string(kHostDeviceName) : spec_.accelerator());
    }
    const Op moved =
        device_[gradient.value()] == DeviceKind::kHost ? program_.op(gradient) : forward;
    return absl::StrCat(HowToStay(moved), ": ", why);
  }

  std::string HowToStay(const Op& op) const {
    return absl::StrCat("leave it on the accelerator, with a first rule type:", op.type(), "=",
                        spec_.accelerator());
  }

  // Places the ops of its blocks, too. `why_stays`: why an op of the root block and all that it has
  // cannot follow rules; empty: they can.
  absl::Status Place(const Op& op, DeviceKind device, absl::string_view why_stays) {
    device_[op.id().value()] = device;
    if (device == DeviceKind::kHost) {
      const std::string why = WhyNotOnHost(op);
      if (!why.empty()) {
        return absl::UnimplementedError(absl::StrCat(why, "; ", HowToStay(op)));
      }
    }
    for (int block : op.SubBlocks()) {
      for (const Op& inner : BlockOps(program_, block)) {
        const DeviceKind ruled = spec_.Find(inner).value_or(device);
        if (ruled != device && why_stays.empty()) {
          return absl::InvalidArgumentError(
              absl::StrCat(inner.DebugName(), ": expected to run where its block runs, on ",
                           DeviceKindName(device), " with ", op.DebugName(),
                           "; a rule of place puts it on ", DeviceKindName(ruled)));
        }
        if (ruled != device) stayed_.push_back({inner.id(), std::string(why_stays)});
        WEFT_RETURN_IF_ERROR(Place(inner, device, why_stays));
      }
    }
    return absl::OkStatus();
  }

  // A coalesce_tensor op for which nothing says where it runs is where the ops are that access its
  // buffers, if they are on one device.
  void PlaceBuffers() {
    const DeviceAccesses accesses(program_);
    struct Users {
      bool on_host = false, on_accelerator = false;
    };
    absl::flat_hash_map<OpId, Users> users_of;  // by the op that makes the buffer
    for (OpId id : program_.block(0).ops()) {
      if (IsFetch(program_.op(id).type())) continue;
      for (const DeviceAccess& access : accesses.Of(id)) {
        const SlicedBuffer* const buffer = accesses.FindBuffer(access.var);
        if (buffer == nullptr || absl::c_linear_search(buffer->made_by, id)) continue;
        Users& users = users_of[buffer->made_by.front()];
        (device_[id.value()] == DeviceKind::kHost ? users.on_host : users.on_accelerator) = true;
      }
    }
    for (const auto& [maker, users] : users_of) {
      const bool is_block = !program_.op(maker).SubBlocks().empty();
      if (is_fixed_[maker.value()] || is_block || users.on_host == users.on_accelerator) continue;
      device_[maker.value()] = users.on_host ? DeviceKind::kHost : DeviceKind::kAccelerator;
    }
  }

  const Program& program_;
  const PlaceSpec& spec_;
  OpDevices device_;
  std::vector<bool> is_fixed_;
  std::vector<Followed> followed_;
  absl::flat_hash_map<OpId, std::string> stays_;  // why an op cannot follow rules for its blocks
  std::vector<Stayed> stayed_;
};

std::string StaysText(const Program& program, const OpPlacer::Stayed& stayed) {
  return absl::StrCat("place: ", program.op(stayed.op).DebugName(),
                      " stays on the accelerator with its block: ", stayed.why);
}

// What has become of the rules for ops of blocks.
void ExplainBlocks(const Program& program, const OpPlacer& placer, const PassContext* context) {
  for (const OpPlacer::Followed& one : placer.followed()) {
    context->sink.Explain(
        HeteroPartition::kName, program.op(one.holder).DebugName(),
        placer.devices()[one.holder.value()] == DeviceKind::kHost ? "on the host"
                                                                  : "on the accelerator",
        absl::StrCat(
            "a rule puts ", program.op(one.ruled).DebugName(), " there, and ",
            one.is_own ? "ops of a block run together" : "a block runs with its gradient"));
  }
  for (const OpPlacer::Stayed& one : placer.stayed()) context->sink.Note(StaysText(program, one));
}

// "12 updates, 1 table".
std::string MovedText(const PlacementCandidate& of) {
  std::vector<std::string> parts;
  const auto add = [&](int count, absl::string_view one, absl::string_view many) {
    if (count > 0) parts.push_back(absl::StrCat(count, " ", count == 1 ? one : many));
  };
  add(of.updates, "update", "updates");
  add(of.tables, "table", "tables");
  const bool by_layers = of.by_layers;
  add(of.ops, by_layers ? "op of the first layers" : "op of the least density",
      by_layers ? "ops of the first layers" : "ops of the least density");
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

std::string CostText(const PlacementCandidate& of) {
  return absl::StrFormat("%d bytes and %.6g s a step", of.bytes, of.seconds);
}

absl::string_view WhyMoved(PlacementUnit::Kind kind) {
  switch (kind) {
    case PlacementUnit::Kind::kUpdate:
      return "the state of the optimizer is used once a step";
    case PlacementUnit::Kind::kTable:
      return "a step looks up a part of the table";
    case PlacementUnit::Kind::kLeastDense:
      return "few floating-point operations for a byte";
    case PlacementUnit::Kind::kLayers:
      return "values of the first layers live longest";
  }
  return "";
}

// Remarks about every unit that moves and every placement that was tried; a note in short.
void ExplainChoice(const PlacementRequest& request, const PlacementChoice& choice,
                   const PassContext* context) {
  const std::string batch = absl::StrCat(request.speeds.host.batch);
  context->sink.Note(absl::StrCat(
      "device memory of ", request.memory_bytes, " bytes, batch of ", batch, ": on the host ",
      MovedText(choice.chosen), choice.num_unknown == 0 ? "; at most " : "; about ",
      CostText(choice.chosen),
      choice.moved.empty() ? "" : absl::StrCat(", instead of ", CostText(choice.first)),
      choice.num_unknown == 0
          ? ""
          : absl::StrCat("; and ", choice.num_unknown, " variables of unknown size")));
  if (context->sink.remarks == nullptr) return;
  for (const PlacementUnit& unit : choice.moved) {
    context->sink.Explain(HeteroPartition::kName, unit.subject, "on the host",
                          std::string(WhyMoved(unit.kind)),
                          {{"ops", absl::StrCat(unit.ops.size())}});
  }
  for (const PlacementCandidate& tried : choice.candidates) {
    const bool fits = tried.bytes <= request.memory_bytes;
    context->sink.Explain(HeteroPartition::kName, MovedText(tried), "tried",
                          fits ? "fits into the memory" : "does not fit into the memory",
                          {{"bytes", absl::StrCat(tried.bytes)},
                           {"seconds", absl::StrFormat("%.9g", tried.seconds)}});
  }
}

}  // namespace

void HeteroPartition::Options::Bind(OptionBinder& bind) {
  bind.String(
      "place", &place,
      "which ops run on which device: type:P=D, param:P=D or name:P=D, separated by commas; "
      "P may have *, D is cpu, sim or gpu; or op_device: where that says");
  bind.Choice(
      "order", &order, "op order: start host ops early, or minimize device switches",
      {{"early_start", DeviceOrder::kEarlyStart}, {"few_switches", DeviceOrder::kFewSwitches}});
  bind.Choice("staging", &staging,
              "memory of values on their way to the host: one buffer for each, or two in turns",
              {{"all", Staging::kAll}, {"double", Staging::kDouble}});
  bind.Int64("device_memory", &device_memory,
             "bytes of the accelerator: puts what does not fit on the host; 0: as place says",
             /*min=*/0);
  bind.Int64("batch", &batch, "with device_memory: rows of a rank's batch", /*min=*/1);
  bind.Int64("copy_bandwidth", &copy_bandwidth,
             "with device_memory: bytes per second between the two memories", /*min=*/1);
  bind.Int64("accelerator_speed", &accelerator_speed,
             "with device_memory: how many times as fast as a core of the host", /*min=*/1);
}

void HeteroPartition::Foresee(const ConstProgramPair& programs, const PassContext& context,
                              Forecast* forecast) const {
  const absl::StatusOr<PlaceSpec> spec = PlaceSpec::Parse(options_.place);
  if (options_.place.empty() || !spec.ok()) return;  // Run reports it
  for (std::string& param : spec->UpdatedOnHost(*programs.main)) {
    forecast->updated_on_host.insert(std::move(param));
  }
}

absl::StatusOr<bool> HeteroPartition::Run(const PassContext& context, ProgramPair& programs) const {
  if (context.target.dialect == Dialect::kPaddle) {
    return absl::FailedPreconditionError("Paddle does not have stream_wait; use dialect weft");
  }
  const bool chooses = options_.device_memory > 0;
  if (IsOnTwoDevices(*programs.main)) {
    // Where all ops are where their op_device says, that has been done.
    if (!chooses && (options_.place.empty() || options_.place == kOpDeviceAttr)) return false;
    return absl::FailedPreconditionError(
        absl::StrCat(chooses ? "device_memory" : "place",
                     ": expected a program on one device, found one on two"));
  }
  if (options_.place.empty() && !chooses) return false;
  WEFT_ASSIGN_OR_RETURN(const PlaceSpec spec, PlaceSpec::Parse(options_.place));
  const std::vector<PlaceSpec::UnusedRule> unused = spec.Unused(*programs.main);
  if (!unused.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("place '", unused[0].text,
                     "': expected a rule for an op of the main program, ", unused[0].why));
  }
  OpPlacer placer(*programs.main, spec);
  WEFT_RETURN_IF_ERROR(placer.Run());
  // Rules that place nothing are probably mistakes; with device_memory, it says what goes where.
  if (!chooses && !placer.stayed().empty() &&
      !absl::c_linear_search(placer.devices(), DeviceKind::kHost)) {
    return absl::InvalidArgumentError(StaysText(*programs.main, placer.stayed().front()));
  }
  ExplainBlocks(*programs.main, placer, &context);
  OpDevices devices = placer.devices();
  const PartitionOptions partition_options{spec.accelerator(), options_.order, options_.staging};
  if (chooses) {
    PlacementRequest request;
    request.devices = devices;
    request.is_fixed = placer.is_fixed();
    request.partition = partition_options;
    request.memory_bytes = options_.device_memory;
    request.speeds.host.batch = options_.batch;
    request.speeds.copy_bandwidth = static_cast<double>(options_.copy_bandwidth);
    request.speeds.accelerator_speed = static_cast<double>(options_.accelerator_speed);
    request.feeds = context.setting.feeds;
    request.collective_seconds = [&context](int64_t bytes) {
      return context.target.collective_time.Seconds(bytes);
    };
    WEFT_ASSIGN_OR_RETURN(const PlacementChoice choice, ChoosePlacement(request, programs));
    ExplainChoice(request, choice, &context);
    devices = choice.devices;
  }
  // A program whose ops are all on one device stays as it is.
  if (chooses && !absl::c_linear_search(devices, DeviceKind::kHost)) return false;
  WEFT_ASSIGN_OR_RETURN(const Partition partition,
                        PartitionProgram(devices, partition_options, programs));
  context.sink.Explain(
      kName, spec.accelerator(), "segments", "runs of ops on one device",
      {{"segments", absl::StrCat(partition.segments)}, {"copies", absl::StrCat(partition.copies)}});
  return partition.changed;
}

}  // namespace weft
