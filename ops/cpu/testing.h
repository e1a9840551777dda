// Runs one CPU kernel in a test:
//
//   WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("relu", {{"X", {x}}}, {}, {{"Out", 1}}));
//   EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 2));
#ifndef WEFT_OPS_CPU_TESTING_H_
#define WEFT_OPS_CPU_TESTING_H_

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/bound_kernel.h"
#include "ops/device_fault.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/program.h"

namespace weft::testing {

// A tensor of these elements, row-major.
template <typename T>
Tensor MakeTensor(const Dims& dims, const std::vector<T>& values) {
  assert(NumElements(dims) == static_cast<int64_t>(values.size()));
  Tensor tensor;
  tensor.Resize(DTypeOf<T>::value, dims);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}
inline Tensor Floats(const Dims& dims, const std::vector<float>& values) {
  return MakeTensor<float>(dims, values);
}

inline Tensor Int64s(const Dims& dims, const std::vector<int64_t>& values) {
  return MakeTensor<int64_t>(dims, values);
}

// The rows with these indices, of a tensor of `tall_dims`.
inline Tensor Rows(const Dims& tall_dims, const std::vector<int64_t>& rows,
                   const std::vector<float>& values) {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, tall_dims, static_cast<int64_t>(rows.size()));
  assert(tensor.size() == static_cast<int64_t>(values.size()));
  std::copy(rows.begin(), rows.end(), tensor.mutable_rows().begin());
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return std::vector<T>(tensor.data<T>(), tensor.data<T>() + tensor.size());
}

// Per slot, in the op's order: tensors; tensors of the caller, null for an argument that is no
// variable; the number of outputs.
using SlotTensors = std::vector<std::pair<std::string, std::vector<Tensor>>>;
using SlotPointers = std::vector<std::pair<std::string, std::vector<Tensor*>>>;
using SlotCounts = std::vector<std::pair<std::string, int>>;
using AttrValues = std::vector<std::pair<std::string, AttrValue>>;

// An op with its kernel, bound to tensors of the caller, which may be both input and output.
class OpRunner {
 public:
  // NotFound if the op has no schema or no kernel; otherwise the error of the kernel's factory.
  // Uses the kernel for rows if one of the tensors, or an output, is_rows() now.
  static absl::StatusOr<OpRunner> Make(absl::string_view type, const SlotPointers& inputs,
                                       const AttrValues& attrs, const SlotPointers& outputs,
                                       bool paddle_cpu_quirks = false,
                                       const KernelTable& kernels = CpuKernels());
  // An update that starts from zeros (KernelSpec::starts_from_zero).
  static absl::StatusOr<OpRunner> MakeFromZero(absl::string_view type, const SlotPointers& inputs,
                                               const AttrValues& attrs,
                                               const SlotPointers& outputs);
  // An op of a program, bound to its variables by name. Also NotFound if a variable is missing.
  static absl::StatusOr<OpRunner> Make(const Op& op, std::map<std::string, Tensor>* variables,
                                       bool paddle_cpu_quirks = false);
  absl::Status Run(RandomState* random = nullptr);
  // Fills inputs of which only the type matters (Kernel::unread) with other bytes.
  void OverwriteUnreadInputs();

 private:
  static absl::StatusOr<OpRunner> Make(KernelSpec spec, const SlotPointers& inputs,
                                       const SlotPointers& outputs, const KernelTable& kernels);

  BoundKernel kernel_;
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  std::unique_ptr<DeviceFault> fault_ = std::make_unique<DeviceFault>();
};

// Runs an op once, on tensors of the caller.
absl::Status RunOpOn(absl::string_view type, const SlotPointers& inputs, const AttrValues& attrs,
                     const SlotPointers& outputs, RandomState* random = nullptr);

// Runs an op once and returns its outputs by slot.
absl::StatusOr<std::map<std::string, std::vector<Tensor>>> RunOp(absl::string_view type,
                                                                 const SlotTensors& inputs,
                                                                 const AttrValues& attrs,
                                                                 const SlotCounts& outputs,
                                                                 RandomState* random = nullptr);

}  // namespace weft::testing

#endif  // WEFT_OPS_CPU_TESTING_H_
