// Types as numbers. Equal types have equal numbers: they compare and hash in O(1).
#ifndef WEFT_OPS_SCHEMA_TYPE_TABLE_H_
#define WEFT_OPS_SCHEMA_TYPE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// A type of one TypeTable. Dense, counted from 0.
using TypeId = uint32_t;
// Not a tensor, or unknown: absl::nullopt.
inline constexpr TypeId kUnknownType = 0;

// A program has many variables and few types. Not thread-safe.
class TypeTable {
 public:
  TypeTable() : types_(1) {}

  TypeId Intern(const absl::optional<TensorType>& type);
  // The reference is valid until the next Intern.
  const absl::optional<TensorType>& type(TypeId id) const { return types_[id]; }
  size_t size() const { return types_.size(); }

 private:
  struct Hash {
    size_t operator()(const TensorType& type) const;
  };
  std::vector<absl::optional<TensorType>> types_;  // by TypeId
  absl::flat_hash_map<TensorType, TypeId, Hash> ids_;
};

// DeclaredType of every variable, by VarId. Decodes equal type messages once. O(bytes of the
// variables).
std::vector<TypeId> DeclaredTypes(const Program& program, TypeTable* types);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_TYPE_TABLE_H_
