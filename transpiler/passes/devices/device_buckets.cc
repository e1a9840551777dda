#include "transpiler/passes/devices/device_buckets.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/passes/support/device_accesses.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/pipeline/pass.h"

namespace weft {
namespace {

constexpr int kNever = -1;

// How a variable that is neither a buffer nor a slice is used. Positions are of the root block.
struct Value {
  VarId slice;  // of which it is made; invalid: of none, or of several
  int first_write = kNever, last_write = kNever;
  int first_read = kNever;  // on the host
  bool stays_alone = false;
};

class ValueFuser {
 public:
  ValueFuser(const Program& program, const OpDevices& devices)
      : program_(program), devices_(devices), accesses_(program), values_(program.var_id_limit()) {}

  // By buffer, those that travel in its place.
  std::map<VarId, std::vector<VarId>> Find() {
    const absl::Span<const OpId> ops = program_.block(0).ops();
    for (int i = 0; i < static_cast<int>(ops.size()); ++i) AddOp(program_.op(ops[i]), i);
    std::map<VarId, std::vector<VarId>> found;
    for (size_t v = 0; v < values_.size(); ++v) {
      if (!CanTravel(VarId(static_cast<uint32_t>(v)))) continue;
      found[accesses_.BuffersOf(values_[v].slice)[0]].push_back(VarId(static_cast<uint32_t>(v)));
    }
    for (auto it = found.begin(); it != found.end();) {
      SortBySlice(it->first, &it->second);
      it = CanTravelTogether(it->second) ? std::next(it) : found.erase(it);
    }
    return found;
  }

  FusedTensors TensorsOf(const std::vector<VarId>& vars) const {
    FusedTensors tensors;
    for (VarId var : vars) {
      const TensorType type = *DeclaredType(program_.var(var));
      tensors.dtype = type.dtype;
      tensors.names.emplace_back(program_.var(var).name());
      tensors.dims.push_back(type.dims);
    }
    return tensors;
  }

  OpId FirstWriter(const std::vector<VarId>& vars) const {
    int first = ValueOf(vars[0]).first_write;
    for (VarId var : vars) first = std::min(first, ValueOf(var).first_write);
    return program_.block(0).ops()[first];
  }

 private:
  const Value& ValueOf(VarId var) const { return values_[var.value()]; }

  void AddOp(const Op& op, int position) {
    const bool on_host = devices_[op.id().value()] == DeviceKind::kHost;
    const bool has_blocks = !op.SubBlocks().empty();
    const std::vector<DeviceAccess>& accesses = accesses_.Of(op.id());
    for (const DeviceAccess& access : accesses) {
      Value& value = values_[access.var.value()];
      value.stays_alone |= has_blocks || (access.writes && on_host);
      if (access.reads && on_host && value.first_read == kNever) value.first_read = position;
      if (!access.writes) continue;
      value.last_write = position;
      if (value.first_write == kNever) value.first_write = position;
      if (!on_host && IsSentTensor(access.var)) value.slice = SliceBehind(access, accesses);
    }
  }

  // The slice of which the op makes a value; invalid: of none, or of several. An op that changes a
  // value in place may read others, as check_finite_and_unscale does.
  VarId SliceBehind(const DeviceAccess& written, const std::vector<DeviceAccess>& accesses) const {
    const VarId known = ValueOf(written.var).slice;
    if (written.reads && known.valid()) return known;
    VarId slice;
    for (const DeviceAccess& access : accesses) {
      if (!access.reads || access.var == written.var) continue;
      const bool is_slice = accesses_.BuffersOf(access.var).size() == 1;
      const VarId behind = is_slice ? access.var : ValueOf(access.var).slice;
      if (!behind.valid() || behind == slice || !HasDimsOf(behind, written.var)) continue;
      if (slice.valid()) return VarId();
      slice = behind;
    }
    return slice;
  }

  bool IsSentTensor(VarId var) const {
    return !program_.var(var).persistable() && accesses_.FindBuffer(var) == nullptr &&
           accesses_.BuffersOf(var).empty();
  }

  bool HasDimsOf(VarId a, VarId b) const {
    const absl::optional<TensorType> x = DeclaredType(program_.var(a));
    const absl::optional<TensorType> y = DeclaredType(program_.var(b));
    return x.has_value() && y.has_value() && x->dims == y->dims;
  }

  bool CanTravel(VarId var) const {
    const Value& value = ValueOf(var);
    if (!value.slice.valid() || value.stays_alone || value.first_read == kNever) return false;
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    return type.has_value() && type->kind == TensorType::Kind::kDense &&
           NumElements(type->dims) > 0;
  }

  void SortBySlice(VarId buffer, std::vector<VarId>* vars) const {
    absl::flat_hash_map<VarId, size_t> index;
    for (VarId slice : accesses_.FindBuffer(buffer)->slices) index.emplace(slice, index.size());
    absl::c_stable_sort(*vars, [&](VarId a, VarId b) {
      return index.at(ValueOf(a).slice) < index.at(ValueOf(b).slice);
    });
  }

  // They are sorted by slice.
  bool CanTravelTogether(const std::vector<VarId>& vars) const {
    if (vars.size() < 2) return false;
    const DType dtype = DeclaredType(program_.var(vars[0]))->dtype;
    int last_write = kNever, first_read = ValueOf(vars[0]).first_read;
    for (size_t i = 0; i < vars.size(); ++i) {
      const Value& value = ValueOf(vars[i]);
      last_write = std::max(last_write, value.last_write);
      first_read = std::min(first_read, value.first_read);
      if (DeclaredType(program_.var(vars[i]))->dtype != dtype) return false;
      if (i > 0 && ValueOf(vars[i - 1]).slice == value.slice) return false;
    }
    return last_write < first_read;
  }

  const Program& program_;
  const OpDevices& devices_;
  const DeviceAccesses accesses_;
  std::vector<Value> values_;  // by VarId
};

}  // namespace

absl::StatusOr<bool> FuseValuesForHost(OpDevices* devices, ProgramPair& programs) {
  const Program& program = *programs.main;
  ValueFuser fuser(program, *devices);
  UniqueNames names(programs);
  Rewriter rewriter(programs.main);
  for (const auto& [buffer, vars] : fuser.Find()) {
    const FusedTensors tensors = fuser.TensorsOf(vars);
    const OpId before = fuser.FirstWriter(vars);
    const std::string name = names.Of(absl::StrCat(program.var(buffer).name(), "@SENT"));
    rewriter.AddVar(0, FusedBuffer(name, tensors));
    rewriter.InsertBefore(
        before, Coalesce(tensors, name, FusedValues::kDiscarded, program.op(before).role()));
  }
  WEFT_ASSIGN_OR_RETURN(const bool changed, CommitEdits(&rewriter));
  devices->resize(program.op_id_limit(), DeviceKind::kAccelerator);
  return changed;
}

}  // namespace weft
