// A program of Paddle 3 in its own format (PIR, as JSON), as it stands in the file.
//
// A Document keeps the bytes of the file and an index over them: ops in the order of the file,
// their operands, results, regions. Attributes and types are decoded on demand
// (proto/pir/attributes.h). docs/pir.md describes the format.
#ifndef WEFT_PROTO_PIR_DOCUMENT_H_
#define WEFT_PROTO_PIR_DOCUMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::pir {

// The version of the format that Paddle 3.3.1 writes.
inline constexpr int64_t kFormatVersion = 4;

// Ops of the format itself: they make a list, and take one apart.
inline constexpr absl::string_view kCombineOp = "0.combine", kSplitOp = "0.split";
// They name the variable of their operand.
inline bool IsSink(absl::string_view op) {
  return op == "0.set_parameter" || op == "0.shadow_output";
}

// An index into Document::values().
using ValueIndex = uint32_t;
inline constexpr ValueIndex kNoValue = 0xffffffffu;
inline constexpr uint32_t kNoOp = 0xffffffffu;

// What an op or a block makes, once: SSA form.
struct Value {
  int64_t id;              // of the file; positive, of block arguments negative
  absl::string_view type;  // JSON
  uint32_t op;             // that makes it; kNoOp: an argument of a block
  uint32_t index;          // of the result, or of the argument
};

struct Operand {
  ValueIndex value;  // kNoValue: an optional operand that is left out, id 0
  uint32_t id_size;  // of the id's text, which an edit replaces
  const char* id_text;
};

struct DocumentOp {
  absl::string_view bytes;         // the object, from brace to brace
  absl::string_view name;          // "1.matmul"
  absl::string_view attrs;         // JSON of "A"
  absl::string_view result_attrs;  // JSON of "OA"; empty: there is none
  uint32_t first_operand = 0, num_operands = 0;
  ValueIndex first_result = 0;
  uint32_t num_results = 0;
  uint32_t first_block = 0, num_blocks = 0;  // of its regions
  uint32_t block = 0;                        // where it stands
  uint32_t end = 0;                          // the op behind those of its blocks
};

struct DocumentBlock {
  uint32_t parent = 0;  // of block 0: itself
  std::vector<uint32_t> ops;
  std::vector<ValueIndex> args;
};

class Document {
 public:
  // Reads a file and checks what Paddle's loader does not: the format's version; that every id is
  // made once, before it is used, and in a block around the use. InvalidArgument, naming the byte
  // or the op, otherwise. `owner` keeps the bytes alive, which must not change. O(bytes) time and
  // memory.
  static absl::StatusOr<std::shared_ptr<const Document>> Parse(std::shared_ptr<const void> owner,
                                                               absl::string_view bytes);
  // With a copy of the bytes.
  static absl::StatusOr<std::shared_ptr<const Document>> Parse(std::string bytes);

  absl::string_view bytes() const { return bytes_; }
  // Keeps bytes() alive.
  const std::shared_ptr<const void>& owner() const { return owner_; }
  // False: a model for inference, in which nothing is persistable.
  bool trainable() const { return trainable_; }

  // Ops of all blocks: an op before those of its regions.
  const std::vector<DocumentOp>& ops() const { return ops_; }
  const DocumentOp& op(uint32_t i) const { return ops_[i]; }
  const std::vector<DocumentBlock>& blocks() const { return blocks_; }
  const std::vector<Value>& values() const { return values_; }
  const Value& value(ValueIndex i) const { return values_[i]; }
  absl::Span<const Operand> operands(const DocumentOp& op) const {
    return absl::MakeConstSpan(operands_).subspan(op.first_operand, op.num_operands);
  }
  absl::Span<const Value> results(const DocumentOp& op) const {
    return absl::MakeConstSpan(values_).subspan(op.first_result, op.num_results);
  }
  int64_t max_id() const { return max_id_; }
  // The ops of the op's blocks, and of blocks in these, follow it: up to this one. O(1).
  uint32_t EndOf(uint32_t op) const { return ops_[op].end; }

  // "op 17 (1.matmul)", for messages: the position in its block, and the block unless it is the
  // root. O(1).
  std::string DebugName(uint32_t op) const;

 private:
  friend class DocumentReader;
  friend class OpChecker;
  Document() = default;

  std::shared_ptr<const void> owner_;
  absl::string_view bytes_;
  bool trainable_ = false;
  std::vector<DocumentOp> ops_;
  std::vector<uint32_t> positions_;  // by op
  std::vector<DocumentBlock> blocks_;
  std::vector<Operand> operands_;
  std::vector<Value> values_;
  int64_t max_id_ = 0;
};

// Checks ops that are written into the root block of a file, one after another, as Parse checks
// those of a file that is read. It keeps the ids of values, and neither bytes nor an index.
class OpChecker {
 public:
  // The next op, from brace to brace. InvalidArgument as for Parse. O(bytes).
  absl::Status Check(absl::string_view op);

 private:
  friend class DocumentReader;

  uint32_t num_ops_ = 0;
  absl::flat_hash_set<int64_t> visible_, hidden_;  // ids; hidden: made in blocks of ops
};

// True if the bytes begin like such a file: an object with "base_code" among its first bytes.
bool LooksLikeDocument(absl::string_view bytes);

}  // namespace weft::pir

#endif  // WEFT_PROTO_PIR_DOCUMENT_H_
