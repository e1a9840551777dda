#include "transpiler/passes/devices/device_partition.h"

#include <cstdint>
#include <limits>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/block_names.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/startup_buffers.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/weft_attrs.h"
#include "transpiler/passes/devices/device_buckets.h"
#include "transpiler/passes/devices/device_copies.h"
#include "transpiler/passes/devices/device_dependencies.h"
#include "transpiler/passes/support/device_accesses.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/pipeline/pass.h"

namespace weft {
namespace {

bool UsesBoth(const Program& program, const OpDevices& devices) {
  const absl::Span<const OpId> ops = program.block(0).ops();
  return absl::c_any_of(
      ops, [&](OpId id) { return devices[id.value()] != devices[ops.front().value()]; });
}

// Unimplemented: they would have to share memory on two devices.
absl::StatusOr<SharedAtStart> FindSharedAtStart(const ConstProgramPair& programs,
                                                const OpDevices& devices) {
  SharedAtStart shared;
  if (programs.startup == nullptr) return shared;
  const std::vector<StartupBuffer> buffers = FindStartupBuffers(*programs.startup);
  const std::vector<StartupBufferUse> uses = FindStartupBufferUses(*programs.main, buffers);
  const bool uses_both = UsesBoth(*programs.main, devices);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (uses_both && !uses[b].conflict.empty()) {
      return absl::UnimplementedError(absl::StrCat(
          uses[b].conflict,
          "; expected that on one device, where the two share memory, found a placement on two"));
    }
    const VarId whole = programs.main->block(0).FindVar(buffers[b].name);
    for (const StartupBuffer::Part& part : buffers[b].parts) {
      const VarId var = programs.main->block(0).FindVar(part.name);
      if (!whole.valid() || !var.valid()) continue;
      shared[whole].push_back(var);
      shared[var].push_back(whole);
    }
  }
  return shared;
}

// A buffer has slices on one device only, that of the ops that make it.
absl::Status CheckBuffers(const Program& program, const OpDevices& devices,
                          const DeviceAccesses& accesses) {
  for (OpId id : program.block(0).ops()) {
    for (const DeviceAccess& access : accesses.Of(id)) {
      const SlicedBuffer* const buffer = accesses.FindBuffer(access.var);
      if (buffer == nullptr) continue;
      const auto name = [&](VarId var) { return program.var(var).name(); };
      if (!accesses.BuffersOf(access.var).empty()) {
        return absl::UnimplementedError(
            absl::StrCat(program.op(id).DebugName(), ": expected a fused buffer, found ",
                         name(access.var), ", which is also a slice of one"));
      }
      const OpId maker = buffer->made_by.front();
      if (devices[id.value()] == devices[maker.value()]) continue;
      const std::string first_slice =
          buffer->slices.empty() ? "" : absl::StrCat(" (", name(buffer->slices.front()), ", ...)");
      return absl::UnimplementedError(absl::StrCat(
          program.op(id).DebugName(), " accesses fused buffer ", name(access.var), ", whose slices",
          first_slice, " ", program.op(maker).DebugName(), " makes on ",
          DeviceKindName(devices[maker.value()]), ": expected it on the same device, found it on ",
          DeviceKindName(devices[id.value()]),
          "; place all ops that access the buffer on one device, or use option:buckets none"));
    }
  }
  return absl::OkStatus();
}

// Copies are of tensors: arrays, scopes and the like stay on one device.
absl::Status CheckCopied(const Program& program, const OpDevices& devices,
                         const DeviceAccesses& accesses) {
  std::vector<OpId> first(program.var_id_limit());  // that accesses the variable
  for (OpId id : program.block(0).ops()) {
    for (const DeviceAccess& access : accesses.Of(id)) {
      const Var var = program.var(access.var);
      if (IsCopied(var)) continue;
      OpId& other = first[access.var.value()];
      if (!other.valid()) other = id;
      if (devices[other.value()] == devices[id.value()]) continue;
      return absl::UnimplementedError(absl::StrCat(
          program.op(id).DebugName(), " accesses ", var.name(),
          ", which is no tensor and cannot be copied: expected it on ",
          DeviceKindName(devices[other.value()]), " as ", program.op(other).DebugName(),
          ", found it on ", DeviceKindName(devices[id.value()]),
          "; place all ops that access it on one device"));
    }
  }
  return absl::OkStatus();
}

// Fetch ops, which bring values to the host, run there if one of them fetches what the host has.
// Else they stay on the accelerator.
void PlaceFetches(const Program& program, OpDevices* devices) {
  const absl::Span<const OpId> ops = program.block(0).ops();
  const auto is_fetch = [&](OpId id) { return IsFetch(program.op(id).type()); };
  const auto on_host = [&](OpId id) { return (*devices)[id.value()] == DeviceKind::kHost; };
  if (!absl::c_any_of(ops, is_fetch)) return;
  const DeviceAccesses accesses(program);
  // Where the variables are: first, when a step begins.
  std::vector<bool> is_on_host(program.var_id_limit(), false);
  std::vector<bool> is_written(program.var_id_limit(), false);
  const auto write = [&](OpId id, VarId var) {
    is_on_host[var.value()] = on_host(id);
    for (VarId part : accesses.PartsOf(var)) {
      is_on_host[part.value()] = on_host(id);
      is_written[part.value()] = true;
    }
  };
  for (OpId id : ops) {
    for (const DeviceAccess& access : accesses.Of(id)) {
      if (access.writes) {
        write(id, access.var);
      } else if (access.reads && on_host(id) && !is_written[access.var.value()]) {
        is_on_host[access.var.value()] = true;
      }
    }
  }
  bool any_is_on_host = false;
  for (OpId id : ops) {
    for (const DeviceAccess& access : accesses.Of(id)) {
      if (is_fetch(id) && is_on_host[access.var.value()]) any_is_on_host = true;
      if (access.writes) write(id, access.var);
    }
  }
  for (OpId id : ops) {
    if (any_is_on_host && is_fetch(id)) (*devices)[id.value()] = DeviceKind::kHost;
  }
}

class Partitioner {
 public:
  Partitioner(const OpDevices& devices, const PartitionOptions& options, ProgramPair& programs)
      : programs_(programs),
        program_(*programs.main),
        devices_(devices),
        options_(options),
        traits_(program_),
        names_(programs),
        rewriter_(programs.main) {}

  absl::StatusOr<Partition> Run() {
    const DeviceAccesses accesses(program_);
    WEFT_RETURN_IF_ERROR(CheckBuffers(program_, devices_, accesses));
    WEFT_RETURN_IF_ERROR(CheckCopied(program_, devices_, accesses));
    WEFT_ASSIGN_OR_RETURN(const SharedAtStart shared, FindSharedAtStart(programs_, devices_));
    const std::vector<PlacedOp> placed = FindDependencies(program_, devices_, accesses, shared);
    const std::vector<int> sequence = OrderOps(placed, options_.order);
    std::vector<DeviceStep> steps;
    for (int i : sequence) steps.push_back({program_.block(0).ops()[i], placed[i].device});
    const DeviceCopies copies(program_, accesses, steps, options_.accelerator, options_.staging,
                              &names_);
    WEFT_RETURN_IF_ERROR(Write(steps, copies));
    Partition partition;
    partition.segments = NumSegments(placed, sequence);
    partition.copies = copies.num_copies();
    WEFT_ASSIGN_OR_RETURN(partition.changed, CommitEdits(&rewriter_));
    return partition;
  }

 private:
  // Ops of the accelerator stay where they are if they are in order; others stand before the next
  // of these.
  absl::Status Write(const std::vector<DeviceStep>& steps, const DeviceCopies& copies) {
    for (const pb::VarDesc& var : copies.new_vars()) rewriter_.AddVar(0, var);
    std::vector<OpId> anchors(steps.size() + 1);
    uint32_t next = std::numeric_limits<uint32_t>::max();  // the position of the last anchor
    for (size_t i = steps.size(); i-- > 0;) {
      const uint32_t position = program_.op(steps[i].op).position();
      const bool stays = steps[i].device == DeviceKind::kAccelerator && position < next;
      anchors[i] = stays ? steps[i].op : anchors[i + 1];
      if (stays) next = position;
    }
    const auto insert = [&](size_t i, const pb::OpDesc& op) {
      if (anchors[i].valid()) return rewriter_.InsertBefore(anchors[i], op);
      rewriter_.Append(0, op);
    };
    for (size_t i = 0; i <= steps.size(); ++i) {
      for (const pb::OpDesc& op : copies.Before(i)) insert(i, op);
      if (i == steps.size()) break;
      const DeviceStep& step = steps[i];
      const Op op = program_.op(step.op);
      const auto& renamed = copies.Renamed(step.device);
      if (anchors[i] != step.op) {
        rewriter_.Erase(step.op);
        WEFT_ASSIGN_OR_RETURN(const pb::OpDesc desc, Rewritten(op, step.device, renamed));
        insert(i, desc);
      } else {
        WEFT_RETURN_IF_ERROR(ReplaceIfChanged(op, step.device, renamed));
      }
      WEFT_RETURN_IF_ERROR(RewriteBlocks(op, step.device, renamed));
    }
    return absl::OkStatus();
  }

  using Names = absl::flat_hash_map<VarId, std::string>;

  absl::Status RewriteBlocks(const Op& op, DeviceKind device, const Names& renamed) {
    const std::vector<int> blocks = op.SubBlocks();
    if (blocks.empty()) return absl::OkStatus();
    const bool is_gradient = traits_.Has(op, Trait::kBlockGrad);
    if (is_gradient) {
      WEFT_ASSIGN_OR_RETURN(inside_.emplace_back(), BlockGradientNames::Of(op));
    }
    for (int block : blocks) {
      for (OpId id : program_.block(block).ops()) {
        const Op inner = program_.op(id);
        WEFT_RETURN_IF_ERROR(ReplaceIfChanged(inner, device, renamed));
        WEFT_RETURN_IF_ERROR(RewriteBlocks(inner, device, renamed));
      }
    }
    if (is_gradient) inside_.pop_back();
    return absl::OkStatus();
  }

  // The new name; null: it stays. Gradients that a block calls after its op's inputs keep theirs.
  const std::string* NewName(const Block& block, Symbol name, const Names& renamed) const {
    const auto found = renamed.find(block.Resolve(name));
    if (found == renamed.end()) return nullptr;
    const bool is_inside = absl::c_any_of(inside_, [&](const BlockGradientNames& names) {
      return names.IsInside(program_.name(name));
    });
    return is_inside ? nullptr : &found->second;
  }

  absl::Status ReplaceIfChanged(const Op& op, DeviceKind device, const Names& renamed) {
    const Block block = program_.block(op.block());
    const bool names_mirror = absl::c_any_of(
        op.args(), [&](Symbol name) { return NewName(block, name, renamed) != nullptr; });
    const bool says_host = op.StringAttr(kOpDeviceAttr) == kHostDeviceName;
    const bool on_host = device == DeviceKind::kHost;
    if (names_mirror || says_host != on_host) {
      WEFT_ASSIGN_OR_RETURN(const pb::OpDesc desc, Rewritten(op, device, renamed));
      rewriter_.Replace(op.id(), desc);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<pb::OpDesc> Rewritten(const Op& op, DeviceKind device, const Names& renamed) {
    const Block block = program_.block(op.block());
    pb::OpDesc desc = op.ToProto();
    std::map<std::string, std::string> originals;  // of inputs, by new name
    const auto rename = [&](auto* slots, std::map<std::string, std::string>* notes) {
      for (pb::OpDesc::Var& slot : *slots) {
        for (std::string& name : *slot.mutable_arguments()) {
          const std::string* const found = NewName(block, program_.FindSymbol(name), renamed);
          if (found == nullptr) continue;
          if (notes != nullptr) notes->emplace(*found, name);
          name = *found;
        }
      }
    };
    rename(desc.mutable_inputs(), &originals);
    rename(desc.mutable_outputs(), nullptr);
    const bool says_host = op.StringAttr(kOpDeviceAttr) == kHostDeviceName;
    const bool on_host = device == DeviceKind::kHost;
    if (says_host != on_host) {
      SetStringAttr(&desc, kOpDeviceAttr, on_host ? kHostDeviceName : options_.accelerator);
    }
    if (!originals.empty() && traits_.Has(op, Trait::kBlockGrad)) {
      WEFT_ASSIGN_OR_RETURN(const BlockGradientNames names, BlockGradientNames::Of(op));
      NoteOriginals(names, originals, &desc);
    }
    return desc;
  }

  static void NoteOriginals(const BlockGradientNames& names,
                            const std::map<std::string, std::string>& originals, pb::OpDesc* desc) {
    pb::OpDesc::Attr* attr = nullptr;
    for (pb::OpDesc::Attr& known : *desc->mutable_attrs()) {
      if (known.name() == kOriginalNamesAttr) attr = &known;
    }
    if (attr == nullptr) attr = desc->add_attrs();
    attr->set_name(std::string(kOriginalNamesAttr));
    attr->set_type(pb::STRINGS);
    for (const auto& [renamed, original] : originals) {
      attr->add_strings(renamed);
      attr->add_strings(std::string(names.Original(original)));
    }
  }

  const ConstProgramPair programs_;
  const Program& program_;
  const OpDevices& devices_;
  const PartitionOptions& options_;
  OpTraits traits_;
  UniqueNames names_;
  Rewriter rewriter_;
  std::vector<BlockGradientNames> inside_;  // of the ops around that whose blocks are rewritten
};

}  // namespace

absl::StatusOr<Partition> PartitionProgram(const OpDevices& devices,
                                           const PartitionOptions& options, ProgramPair& programs) {
  OpDevices with_buffers = devices;
  PlaceFetches(*programs.main, &with_buffers);
  WEFT_ASSIGN_OR_RETURN(const bool fused, FuseValuesForHost(&with_buffers, programs));
  WEFT_ASSIGN_OR_RETURN(Partition partition, Partitioner(with_buffers, options, programs).Run());
  partition.changed |= fused;
  return partition;
}

}  // namespace weft
