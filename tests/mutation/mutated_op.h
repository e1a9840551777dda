// One op with the tensors that it runs on, and changes of it that a program, its data or its
// writer may hold: most make it wrong, some only unusual.
#ifndef WEFT_TESTS_MUTATION_MUTATED_OP_H_
#define WEFT_TESTS_MUTATION_MUTATED_OP_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ops/tensor.h"
#include "proto/framework.pb.h"

namespace weft::testing {

// An op of a program. Variables that inputs and outputs have in common are in place.
struct OpOnValues {
  using Slots = std::map<std::string, std::vector<std::string>>;  // names of variables

  std::string type;
  Slots inputs, outputs;
  std::map<std::string, paddle::framework::proto::OpDesc::Attr> attrs;
  // What the variables hold before the op: inputs; and outputs, which hold nothing, or no rows
  // where rows are to be written. Each in host memory of its own.
  std::map<std::string, Tensor> values;
};

// The same numbers for a seed on every machine.
class Draws {
 public:
  explicit Draws(std::initializer_list<uint64_t> seed) {
    std::seed_seq words(seed);
    bits_.seed(words);
  }

  // In [0, n); n > 0.
  size_t Below(size_t n) { return bits_() % n; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[Below(values.size())];
  }

 private:
  std::mt19937_64 bits_;
};

// Changes one thing, and tells what, in a line: dimensions, element type or elements of an input,
// rows in place of a tensor, a slot, an attribute, or what is in place of what. Inputs stay below
// 1 MiB. `op.type` must have a schema.
std::string Mutate(OpOnValues* op, Draws* draws);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MUTATION_MUTATED_OP_H_
