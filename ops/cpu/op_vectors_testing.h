// Reading the vectors that Paddle 2.6.2 computed on its CPU (tests/data/op_vectors).
#ifndef WEFT_OPS_CPU_OP_VECTORS_TESTING_H_
#define WEFT_OPS_CPU_OP_VECTORS_TESTING_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "ops/cpu/testing.h"
#include "ops/tensor.h"

namespace weft::testing {

// The cases of a file of the archive ("ops.jsonl", "optimizers.jsonl"), and of one beside it
// ("programs.jsonl", "random.jsonl", "rnn.jsonl"). Each dies where the file cannot be read.
std::vector<nlohmann::json> ReadArchivedVectors(const std::string& name);
std::vector<nlohmann::json> ReadVectors(const std::string& name);

// {"dtype", "shape", "hex"}: the bytes of every element, most significant first. With "rows" and
// "height": rows of a taller tensor.
Tensor TensorFromJson(const nlohmann::json& json);

// The attributes, of the types that the op's schema gives them.
AttrValues AttrsFromJson(absl::string_view op, const nlohmann::json& json);

}  // namespace weft::testing

#endif  // WEFT_OPS_CPU_OP_VECTORS_TESTING_H_
