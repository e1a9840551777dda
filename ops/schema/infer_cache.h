// Inference of a program that infers each combination of op, attributes and input types once.
#ifndef WEFT_OPS_SCHEMA_INFER_CACHE_H_
#define WEFT_OPS_SCHEMA_INFER_CACHE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/op_key.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/type_table.h"
#include "proto/program.h"

namespace weft {

// Caches InferOutputs by all that it depends on: an OpKey with the types of the op's inputs. Keys
// are compared, not just hashed. A lookup costs some 150 ns, inference some 3 us. Memory: at most
// as much as the program.
//
// Serves one program, which must outlive it, also after commits that add ops. Not thread-safe.
class InferCache {
 public:
  // `types` must outlive the cache.
  InferCache(const Program& program, TypeTable* types);

  // The types of the op's outputs, one per Op::output_args(), from those of its inputs, one per
  // Op::input_args(). None if InferOutputs fails: Error says why. Valid until the next call.
  absl::optional<absl::Span<const TypeId>> Infer(const Op& op, absl::Span<const TypeId> inputs);

  // The error of InferOutputs, which names the op and its variables. Not cached.
  absl::Status Error(const Op& op, absl::Span<const TypeId> inputs) const;

  // Combinations so far.
  size_t size() const { return results_.size(); }

 private:
  struct Result {
    bool fits = false;
    size_t first_output = 0;  // into outputs_
  };

  Result InferNow(const Op& op, absl::Span<const TypeId> inputs);

  TypeTable* const types_;
  const Symbol empty_;  // kEmptyVarName
  OpKeyBuilder keys_;
  absl::flat_hash_map<std::string, Result> results_;
  std::vector<TypeId> outputs_;
  std::vector<TypeId> unknown_;    // for the outputs of unregistered ops
  std::vector<uint32_t> numbers_;  // of the key of the current op
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_CACHE_H_
