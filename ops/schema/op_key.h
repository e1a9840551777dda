// Keys of ops that are alike.
#ifndef WEFT_OPS_SCHEMA_OP_KEY_H_
#define WEFT_OPS_SCHEMA_OP_KEY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// Makes keys for tables of what is known of ops: two ops of a program have one key if they have one
// signature, equal bytes in the attributes that their schema names, and equal numbers. Attributes
// that the schema does not name (op_role_var, op_callstack, ...), and the blocks that ops run,
// differ between otherwise equal ops. A program of a million ops has a few hundred keys. Not
// thread-safe.
class OpKeyBuilder {
 public:
  // The program must outlive it; commits may add ops.
  explicit OpKeyBuilder(const Program& program)
      : program_(program), signatures_(program.num_signatures()) {}

  // Whether the op's type has a schema.
  bool HasSchema(const Op& op) { return InfoOf(op).has_schema; }
  // `numbers`: what else the result depends on, as many for each op of a signature. Valid until the
  // next call. O(numbers + bytes of the op).
  absl::string_view Of(const Op& op, absl::Span<const uint32_t> numbers);

 private:
  // Equal for all ops of a signature.
  struct SignatureInfo {
    bool is_set = false;
    bool has_schema = false;
    std::vector<bool> in_key;  // attributes up to the last one that is part of the key
    // By the bytes of the attributes in the key.
    absl::flat_hash_map<std::string, uint32_t> attr_numbers;
    // Of the last op: its bytes from its first attribute on, the size of that, and the number.
    absl::string_view last_attrs;
    size_t last_first_size = 0;
    uint32_t last_number = 0;
  };
  SignatureInfo& InfoOf(const Op& op);
  // Equal for equal bytes of the attributes in the key.
  uint32_t AttrNumber(const Op& op, SignatureInfo* info);

  const Program& program_;
  std::vector<SignatureInfo> signatures_;
  std::string key_, attrs_;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_KEY_H_
