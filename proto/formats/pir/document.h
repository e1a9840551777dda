// A program of Paddle 3 in its own format (PIR, as JSON), as it stands in the file.
//
// A Document keeps the bytes of the file and an index over them: ops in the order of the file,
// their operands, results, regions. Attributes and types are decoded on demand
// (proto/formats/pir/attributes.h). docs/pir.md describes the format.
#ifndef WEFT_PROTO_FORMATS_PIR_DOCUMENT_H_
#define WEFT_PROTO_FORMATS_PIR_DOCUMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file.h"

namespace weft::pir {

// The versions of the format that are read: what Paddle 3.0, 3.1, 3.2 and 3.3 write. They differ in
// types of a few attributes and in attributes that were added, which have their defaults without.
inline constexpr int64_t kFirstFormatVersion = 1, kFormatVersion = 4;

// Not Paddle's, which skips it: Program::setting.
inline constexpr absl::string_view kSettingKey = "weft_setting";

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

class Document;

// What an op or a block makes, once: SSA form.
struct Value {
  int64_t id;              // of the file; positive, of block arguments negative
  absl::string_view type;  // JSON
  uint32_t op;             // that makes it; kNoOp: an argument of a block
  uint32_t index;          // of the result, or of the argument
};

struct Operand {
  ValueIndex value;   // kNoValue: an optional operand that is left out, id 0
  uint32_t id_begin;  // the place of its id in the bytes of the file
};

struct DocumentOp {
  absl::string_view bytes;         // the object, from brace to brace
  absl::string_view name;          // "1.matmul"
  absl::string_view attrs;         // JSON of "A"
  absl::string_view result_attrs;  // JSON of "OA"; empty: there is none
  uint32_t first_operand = 0, num_operands = 0;
  ValueIndex first_result = 0;
  uint32_t num_results = 0;
  uint32_t block = 0;                        // where it stands
  uint32_t first_block = 0, num_blocks = 0;  // of its regions
};

// A list whose elements are made when they are asked for, by a member function of Document.
template <typename T, T (Document::*get)(uint32_t) const>
class DocumentList {
 public:
  class Iterator {
   public:
    Iterator(const Document* document, uint32_t i) : document_(document), i_(i) {}
    T operator*() const { return (document_->*get)(i_); }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return i_ != other.i_; }

   private:
    const Document* document_;
    uint32_t i_;
  };

  DocumentList(const Document* document, uint32_t first, size_t size)
      : document_(document), first_(first), size_(static_cast<uint32_t>(size)) {}
  size_t size() const { return size_; }
  T operator[](uint32_t i) const { return (document_->*get)(first_ + i); }
  Iterator begin() const { return {document_, first_}; }
  Iterator end() const { return {document_, first_ + size_}; }

 private:
  const Document* document_;
  uint32_t first_, size_;
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
  // or the op, otherwise. The bytes must not change. O(bytes) time and memory.
  static absl::StatusOr<std::shared_ptr<const Document>> Parse(FileBytes file);
  // With a copy of the bytes.
  static absl::StatusOr<std::shared_ptr<const Document>> Parse(std::string bytes);

  absl::string_view bytes() const { return file_.bytes; }
  const FileBytes& file() const { return file_; }
  // False: a model for inference, in which nothing is persistable.
  bool trainable() const { return trainable_; }
  // The value of the key kSettingKey, as it stands in the file; empty: there is none.
  absl::string_view setting() const { return setting_; }

  DocumentOp op(uint32_t i) const {
    const OpRecord& of = ops_[i];
    DocumentOp op{TextOf(of.bytes),        TextOf(of.name),  TextOf(of.attrs),
                  TextOf(of.result_attrs), of.first_operand, of.num_operands,
                  of.first_result,         of.num_results,   of.block};
    if (of.has_blocks) {
      const Regions& regions = regions_.at(i);
      op.first_block = regions.first_block;
      op.num_blocks = regions.num_blocks;
    }
    return op;
  }
  Value value(ValueIndex i) const {
    const ValueRecord& of = values_[i];
    return {of.id, TextOf(of.type), of.op, of.index};
  }
  // Ops of all blocks: an op before those of its regions.
  DocumentList<DocumentOp, &Document::op> ops() const { return {this, 0, ops_.size()}; }
  DocumentList<Value, &Document::value> values() const { return {this, 0, values_.size()}; }
  DocumentList<Value, &Document::value> results(const DocumentOp& op) const {
    return {this, op.first_result, op.num_results};
  }
  absl::Span<const Operand> operands(const DocumentOp& op) const {
    return absl::MakeConstSpan(operands_).subspan(op.first_operand, op.num_operands);
  }
  // The id of an operand, as the file has it.
  absl::string_view IdText(const Operand& operand) const;
  const std::vector<DocumentBlock>& blocks() const { return blocks_; }
  int64_t max_id() const { return max_id_; }
  // The ops of the op's blocks, and of blocks in these, follow it: up to this one. O(1).
  uint32_t EndOf(uint32_t op) const { return ops_[op].has_blocks ? regions_.at(op).end : op + 1; }

  // Of the index: what it takes besides bytes().
  size_t IndexBytes() const;

  // "op 17 (1.matmul)", for messages: the position in its block, and the block unless it is the
  // root. O(log ops).
  std::string DebugName(uint32_t op) const;

 private:
  friend class DocumentReader;
  friend class OpChecker;
  Document() = default;

  // Bytes of the file, in half of what a string_view takes.
  struct Piece {
    uint32_t begin = 0, size = 0;
  };
  struct OpRecord {
    Piece bytes, name, attrs, result_attrs;
    uint32_t first_operand = 0, num_operands = 0;
    ValueIndex first_result = 0;
    uint32_t num_results = 0;
    uint32_t block : 31, has_blocks : 1;
  };
  // Of an op that has blocks.
  struct Regions {
    uint32_t first_block, num_blocks;
    uint32_t end;  // the op after those of the blocks
  };
  struct ValueRecord {
    int64_t id;
    Piece type;
    uint32_t op, index;
  };
  absl::string_view TextOf(Piece piece) const { return bytes().substr(piece.begin, piece.size); }
  Piece PieceOf(absl::string_view text) const {
    if (text.empty()) return {};
    return {static_cast<uint32_t>(text.data() - bytes().data()),
            static_cast<uint32_t>(text.size())};
  }

  FileBytes file_;
  bool trainable_ = false;
  absl::string_view setting_;
  std::vector<OpRecord> ops_;
  absl::flat_hash_map<uint32_t, Regions> regions_;  // by op
  std::vector<DocumentBlock> blocks_;
  std::vector<Operand> operands_;
  std::vector<ValueRecord> values_;
  int64_t max_id_ = 0;
  uint32_t first_position_ = 0;  // of a document of one op, which comes after others
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

#endif  // WEFT_PROTO_FORMATS_PIR_DOCUMENT_H_
