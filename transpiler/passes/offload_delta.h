// Updates whose parameter stays on the accelerator.
#ifndef WEFT_TRANSPILER_PASSES_OFFLOAD_DELTA_H_
#define WEFT_TRANSPILER_PASSES_OFFLOAD_DELTA_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/new_variables.h"
#include "transpiler/passes/op_builder.h"

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
class OffloadDelta {
 public:
  // All must outlive this.
  OffloadDelta(const Program& program, UniqueNames* names, Rewriter* rewriter)
      : program_(program), names_(*names), rewriter_(*rewriter) {}

  // `desc` is the message of the op, and becomes what runs on the host; the other ops are inserted
  // next to the op. FailedPrecondition, naming op and parameter: another optimizer; a parameter
  // that is not fp32, or of unknown dimensions; an update of which a part runs on the accelerator,
  // and that may be skipped (SkipUpdate) or leaves rows without gradients alone (lazy_mode); L2
  // regularization of a gradient with rows.
  absl::Status Split(const Op& op, pb::OpDesc* desc);

  // fill_constant of fp32, on the host.
  static pb::OpDesc HostConstant(const std::string& variable, const Dims& dims, float value);

 private:
  // The parameter of an update, and where its change is.
  struct Update {
    const Op& op;
    std::string param, delta, rate;
    Dims dims;
  };

  // Adds L2 regularization to the gradient, and takes it out of the update.
  void RegularizeGradient(const Update& update, const OpAttrs& attrs, pb::OpDesc* desc);
  // For each update, the first one before which its gradients and parameters are what it reads.
  // O(arguments).
  void FindFirstUpdates();
  void Decay(const Update& update, float coeff);
  void Add(const Update& update);
  void AddAdapted(const Update& update, float weight_decay, bool adapts);
  // The variable that holds ‖w‖ / ‖direction‖.
  std::string NormRatio(const Update& update, const std::string& direction);
  std::string Scalar(const Update& update, const std::string& name, DType dtype = DType::kFloat32);
  // Inserts an op after the update, after those inserted so far.
  void Emit(const Update& update, const std::string& type, NewSlots inputs, const std::string& out,
            NewAttrs attrs = {});

  const Program& program_;
  UniqueNames& names_;
  Rewriter& rewriter_;
  absl::flat_hash_map<OpId, OpId> first_updates_;  // once it is known
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_OFFLOAD_DELTA_H_
