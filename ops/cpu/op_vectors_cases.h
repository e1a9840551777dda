// Runs kernels of any device on vectors that Paddle 2.6.2 computed on its CPU, and compares.
#ifndef WEFT_OPS_CPU_OP_VECTORS_CASES_H_
#define WEFT_OPS_CPU_OP_VECTORS_CASES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {

// Our tensors by slot. An argument that is no variable has none.
class Variables {
 public:
  explicit Variables(const nlohmann::json& slots) {
    for (const auto& slot : slots.items()) {
      for (const nlohmann::json& tensor : slot.value()) {
        const bool is_variable = !tensor.is_null();
        slots_[slot.key()].push_back(
            {is_variable, is_variable ? TensorFromJson(tensor) : Tensor()});
      }
    }
  }

  SlotPointers Pointers() {
    SlotPointers pointers;
    for (auto& slot : slots_) {
      pointers.emplace_back(slot.first, std::vector<Tensor*>());
      for (Variable& variable : slot.second) {
        pointers.back().second.push_back(variable.exists ? &variable.tensor : nullptr);
      }
    }
    return pointers;
  }

 private:
  struct Variable {
    bool exists;
    Tensor tensor;
  };
  std::map<std::string, std::vector<Variable>> slots_;
};

// Where an output replaces an input.
struct Place {
  std::string output, input;
  size_t i;  // in both slots
};

// Runs the case, on separate inputs in host memory, and EXPECTs its results. Inputs of which only
// the type matters hold other values. `expected_slots` is "outputs", or "paddle_cpu_quirks". Errors
// are those of the kernel.
absl::Status RunCase(const nlohmann::json& c, const std::vector<Place>& in_place,
                     const KernelTable& kernels = CpuKernels(),
                     const std::string& expected_slots = "outputs");

// All pairs of an output and an input of the same type.
std::vector<Place> PossiblePlaces(const nlohmann::json& c);

// Runs the steps of an update op in place, and compares the states after each: with `after` of the
// steps, or with Paddle's.
absl::Status RunOptimizerCase(const nlohmann::json& c, const KernelTable& kernels,
                              bool paddle_cpu_quirks);

// The case with fp64 instead of fp32, except for the distribution that nce draws from.
nlohmann::json InDoublePrecision(nlohmann::json c);

// EXPECTs the tensors of all slots but FusedOutput.
void ExpectCloseSlots(const SlotPointers& found, const SlotPointers& expected);

}  // namespace weft::testing

#endif  // WEFT_OPS_CPU_OP_VECTORS_CASES_H_
