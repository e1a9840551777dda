#include "transpiler/passes/devices/staging_slots.h"

#include <algorithm>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

// 0: not declared.
int64_t BytesOf(const Var& var) {
  const absl::optional<TensorType> type = DeclaredType(var);
  if (!type.has_value() || type->kind != TensorType::Kind::kDense) return 0;
  return std::max<int64_t>(NumElements(type->dims), 0) * static_cast<int64_t>(SizeOf(type->dtype));
}

class StagingTurns {
 public:
  StagingTurns(const Program& program, const DeviceAccesses& accesses,
               absl::Span<const DeviceStep> steps, std::vector<std::vector<DeviceCopy>>* copies)
      : program_(program), accesses_(accesses), copies_(*copies) {
    num_arrivals_.resize(program.var_id_limit(), 0);
    is_written_.resize(program.var_id_limit(), false);
    for (const DeviceStep& step : steps) {
      if (step.device != DeviceKind::kHost) continue;
      for (const DeviceAccess& access : accesses.Of(step.op)) {
        if (access.writes) is_written_[access.var.value()] = true;
      }
    }
    ForEachArrival([&](const DeviceCopy& copy) {
      for (VarId part : accesses_.PartsOf(copy.var)) ++num_arrivals_[part.value()];
    });
  }

  int Divide() {
    int64_t largest = 0;
    ForEachArrival([&](const DeviceCopy& copy) {
      if (IsInTurn(copy)) largest = std::max(largest, BytesOf(program_.var(copy.var)));
    });
    int turn = 0;
    int64_t bytes = 0;  // of the turn
    ForEachArrival([&](DeviceCopy& copy) {
      if (!IsInTurn(copy)) return;
      bytes += BytesOf(program_.var(copy.var));
      copy.turn = turn;
      copy.ends_turn = 2 * bytes >= largest;
      if (!copy.ends_turn) return;
      ++turn;
      bytes = 0;
    });
    return bytes > 0 ? turn + 1 : turn;
  }

 private:
  template <typename Visit>
  void ForEachArrival(Visit visit) {
    for (std::vector<DeviceCopy>& of_step : copies_) {
      for (DeviceCopy& copy : of_step) {
        if (copy.from == DeviceKind::kAccelerator) visit(copy);
      }
    }
  }

  bool IsInTurn(const DeviceCopy& copy) const {
    return BytesOf(program_.var(copy.var)) > 0 &&
           absl::c_all_of(accesses_.PartsOf(copy.var), [&](VarId part) {
             return num_arrivals_[part.value()] == 1 && !is_written_[part.value()];
           });
  }

  const Program& program_;
  const DeviceAccesses& accesses_;
  std::vector<std::vector<DeviceCopy>>& copies_;
  std::vector<int> num_arrivals_;  // by VarId: copies to the host
  std::vector<bool> is_written_;   // by VarId: on the host
};

}  // namespace

int TakeTurns(const Program& program, const DeviceAccesses& accesses,
              absl::Span<const DeviceStep> steps, std::vector<std::vector<DeviceCopy>>* copies) {
  return StagingTurns(program, accesses, steps, copies).Divide();
}

}  // namespace weft
