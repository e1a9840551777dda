// Master weights of updates on the host.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_MASTERS_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_MASTERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Gives master weights to updates of parameters in half precision, or takes them away.
class OffloadMasters {
 public:
  // `edits`, of these programs, must outlive this.
  OffloadMasters(const ProgramPair& programs, ProgramEdits* edits)
      : program_(*programs.main), startup_program_(programs.startup), edits_(*edits) {}

  // Whether Keep, or Drop, would change the update or refuse it.
  static bool WouldKeep(const Op& op) { return LacksMaster(op) || HasHalfState(op); }
  static bool WouldDrop(const Op& op);

  // Makes master weight and state of the update fp32, where they are not. `desc` is the message of
  // the op, for one parameter w of half precision without a master weight:
  //
  //   startup:  Out=[w@MASTER] = cast(X=[w])
  //   main:     ParamOut=[w], MasterParamOut=[w@MASTER] = momentum(Param=[w],
  //                 MasterParam=[w@MASTER], ...) {multi_precision=true}
  //
  // and constants with which the startup program begins half-precision state become fp32.
  // FailedPrecondition: no startup program where one must change; an op without slot MasterParam;
  // state that begins with something else than a constant.
  absl::Status Keep(const Op& op, pb::OpDesc* desc);

  // Removes the master weight, from both programs. FailedPrecondition: no startup program; state
  // that is not fp32.
  absl::Status Drop(const Op& op, pb::OpDesc* desc);

 private:
  // Whether the update has a parameter in half precision and no master weight.
  static bool LacksMaster(const Op& op);
  static bool HasHalfState(const Op& op);
  absl::Status NeedStartup(const Op& op, absl::string_view what) const;
  absl::Status MakeMaster(const Op& op, pb::OpDesc* desc);
  // Calls visit(slot, state) for state in half precision.
  template <typename Visit>
  static absl::Status ForEachHalfState(const Op& op, const Visit& visit);
  absl::Status MakeStateFp32(const Op& op, absl::string_view slot, Symbol state);
  void DropMaster(Symbol master);

  const Program& program_;
  const Program* const startup_program_;
  ProgramEdits& edits_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_MASTERS_H_
