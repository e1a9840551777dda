// Updates whose parameter stays on the accelerator.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_DELTA_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_DELTA_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/devices/offload_branch.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"

namespace weft {

// Splits an update: the host keeps the state and computes, from a parameter of zeros, by what the
// gradients change the parameter; the accelerator does what needs the parameter itself.
//
//   Out=[w@DELTA] = fill_constant() {value=0.0, op_device="cpu"}
//   ParamOut=[w@DELTA] = adam(Param=[w@DELTA], ...) {op_device="cpu"}
//   Out=[w] = elementwise_add(X=[w], Y=[w@DELTA])
//
// sgd, momentum, adam   as above; where momentum has L2 regularization, the accelerator adds it to
//                       the gradient, before that goes to the host:
//                         w@DECAYED = rescale_grad w@GRAD + regularization_coeff w
//                       That comes before the first update, so that a bucket of gradients is
//                       complete before the host updates by one of them.
// adamw                 decays w on the accelerator before it adds w@DELTA:
//                         w = (1 - lr lr_ratio coeff) w
// lamb                  w@DELTA is -u of adam with a learning rate of 1, and on the accelerator
//                         r = weight_decay w - w@DELTA;  w -= lr ‖w‖ / ‖r‖ r
//                       with a ratio of 1 if one of the norms is 0, or if the update does not adapt
//
// The formulas are those of the ops, in another order of operations. L2 regularization adds no
// rounding but that of the products, which an op may fuse with the sum.
//
// The accelerator computes in fp32. Of a parameter in half precision,
//
//   with a master weight      that stays on the accelerator, too; it changes, and is rounded to w
//   decays of adamw, lamb     w is cast to fp32, and what changes is rounded to w
//   otherwise                 w@DELTA is rounded on the host, so that the copy has no more bytes
//                             than w, and the sum is rounded to w
//
// A skipped update (SkipUpdate, or a branch that is not taken) has a w@DELTA of 0, and the learning
// rate that the accelerator multiplies by is 0, too.
class OffloadDelta {
 public:
  // Both must outlive this.
  OffloadDelta(const Program& program, ProgramEdits* edits)
      : program_(program), names_(edits->names), rewriter_(edits->main) {}

  // `desc` is the message of the op, and becomes what runs on the host; the other ops are inserted
  // next to the op, or next to the branch of the root block that has it, and that then takes the
  // change instead of the parameter. FailedPrecondition, naming op and parameter: another
  // optimizer; a parameter of other types, or of unknown dimensions; adamw that decays, and leaves
  // rows without gradients alone (lazy_mode); L2 regularization of a gradient with rows, or in a
  // branch; a branch of which another op uses the parameter, or computes what the accelerator
  // multiplies by.
  absl::Status Split(const Op& op, OffloadBranch* branch, pb::OpDesc* desc);

  // fill_constant of fp32 on the host.
  static pb::OpDesc HostConstant(const std::string& variable, const Dims& dims, float value);

 private:
  // The parameter of an update, and where its change is.
  struct Update {
    const Op& op;
    OpId place;  // the op of the root block that is the update, or has it
    // `value` holds the parameter in fp32: the parameter, its master weight, or a cast of it.
    std::string param, value, delta, rate;
    Dims dims, rate_dims;
    DType dtype;  // of the parameter
  };

  absl::StatusOr<Update> MakeUpdate(const Op& op, const OpAttrs& attrs, const OffloadBranch* branch,
                                    const pb::OpDesc& desc) const;
  // Empty, or why an update of the branch cannot be split.
  std::string WhyNotInBranch(const Update& update, const OffloadBranch& branch,
                             bool needs_rate) const;
  // Makes `desc` compute the change, in fp32.
  void UpdateDelta(const Update& update, OffloadBranch* branch, pb::OpDesc* desc);
  // A learning rate of 1 on the host: the accelerator multiplies by that of the update.
  void SetRateOfOne(const Update& update, OffloadBranch* branch, pb::OpDesc* desc);
  // Adds the rounded change to a parameter in half precision.
  void AddRounded(const Update& update);
  // Makes the learning rate 0 when the update is skipped.
  void ZeroRateIfSkipped(const OffloadBranch* branch, Update* update);
  // Adds L2 regularization to the gradient, and takes it out of the update.
  void RegularizeGradient(const Update& update, const OpAttrs& attrs, pb::OpDesc* desc);
  void Decay(const Update& update, float coeff);
  void Add(const Update& update);
  void AddAdapted(const Update& update, float weight_decay, bool adapts);
  // The variable that holds ‖w‖ / ‖direction‖.
  std::string NormRatio(const Update& update, const std::string& direction);
  std::string Scalar(const Update& update, const std::string& name, DType dtype = DType::kFloat32);
  // A variable of the parameter's dimensions.
  std::string Like(const Update& update, const std::string& name, DType dtype = DType::kFloat32);
  // Inserts an op after the update, after those inserted so far.
  void Emit(const Update& update, const std::string& type, NewSlots inputs, const std::string& out,
            NewAttrs attrs = {});

  const Program& program_;
  UniqueNames& names_;
  Rewriter& rewriter_;
  absl::flat_hash_map<OpId, OpId> first_updates_;  // once it is known
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_DELTA_H_
