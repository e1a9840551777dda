// Reads files, and single ops (proto/formats/pir/document.h).
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/json_cursor.h"

namespace weft::pir {

// Fills a document.
class DocumentReader {
 public:
  // `earlier`: values that ops before the bytes make.
  DocumentReader(absl::string_view bytes, Document* document, const OpChecker* earlier = nullptr)
      : in_(bytes), document_(*document), earlier_(earlier) {}

  absl::Status Read() {
    Reserve();
    bool has_header = false, has_program = false, has_setting = false;
    in_.ReadObject([&](absl::string_view key) {
      if (key == "base_code") return in_.Once(&has_header) && ReadHeader();
      if (key == "program") return in_.Once(&has_program) && ReadProgram();
      if (key == kSettingKey) return in_.Once(&has_setting) && in_.SkipValue(&document_.setting_);
      return in_.SkipValue();
    });
    in_.ExpectEnd();
    WEFT_RETURN_IF_ERROR(in_.status());
    if (!has_header || !has_program) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected the keys base_code and program, found no ",
                       has_header ? "program" : "base_code"));
    }
    WEFT_RETURN_IF_ERROR(CheckHeader());
    return CheckValues();
  }

  // The bytes are the next op of the root block, after `earlier`.
  absl::Status ReadSingleOp() {
    document_.blocks_.emplace_back();
    ReadOp(0, 0);
    in_.ExpectEnd();
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("op ", earlier_->num_ops_), in_.status()));
    document_.first_position_ = earlier_->num_ops_;
    return CheckValues();
  }

 private:
  // The ops of blocks in blocks nest this deep at most.
  static constexpr int kMaxBlockDepth = 64;

  // What grows step by step is in memory twice at each step. A string has no such key in it: its
  // quotes are escaped. What else has one, in a file that Paddle did not write, costs addresses and
  // no memory, and no more of them than ops of the same bytes.
  void Reserve() {
    constexpr absl::string_view kLeastOp = R"({"#":"","A":0},)", kLeastOperand = R"({"%":0},)",
                                kLeastResult = R"({"%":1,"TT":0},)";
    size_t ops = 0, ids = 0, types = 0;
    const char* const begin = document_.bytes().data();
    const char* const end = begin + document_.bytes().size();
    const auto ends = [begin](const char* colon, absl::string_view key) {
      return colon - begin >= static_cast<ptrdiff_t>(key.size()) &&
             absl::string_view(colon - key.size(), key.size()) == key;
    };
    for (const char* at = begin; at != end; ++at) {
      at = static_cast<const char*>(std::memchr(at, ':', end - at));
      if (at == nullptr) break;
      ops += ends(at, "\"A\"");
      ids += ends(at, "\"%\"");
      types += ends(at, "\"TT\"");
    }
    const auto at_most = [&](size_t count, absl::string_view least) {
      return std::min(count, document_.bytes().size() / least.size());
    };
    const size_t operands = at_most(ids - std::min(ids, types), kLeastOperand);
    ops = at_most(ops, kLeastOp);
    document_.ops_.reserve(ops);
    document_.operands_.reserve(operands);
    document_.values_.reserve(at_most(types, kLeastResult));
    operand_ids_.reserve(operands);
  }

  bool ReadHeader() {
    bool seen_magic = false, seen_version = false, seen_trainable = false;
    return in_.ReadObject([&](absl::string_view key) {
      if (key == "magic") return in_.Once(&seen_magic) && in_.ReadString(&magic_);
      if (key == "version") return in_.Once(&seen_version) && in_.ReadInteger(&version_);
      if (key != "trainable") return in_.SkipValue();
      absl::string_view value;
      if (!in_.Once(&seen_trainable) || !in_.SkipValue(&value)) return false;
      document_.trainable_ = value == "true";
      return document_.trainable_ || value == "false" || in_.Fail("true or false");
    });
  }

  absl::Status CheckHeader() const {
    if (magic_ != "pir") {
      return absl::InvalidArgumentError(absl::StrCat("magic of base_code: expected pir, found '",
                                                     absl::Utf8SafeCHexEscape(magic_), "'"));
    }
    if (version_ >= kFirstFormatVersion && version_ <= kFormatVersion) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "version of base_code: expected ", kFirstFormatVersion, " to ", kFormatVersion,
        ", which Paddle 3.0 to 3.3 write, found ", version_ < 0 ? "none" : absl::StrCat(version_),
        version_ > kFormatVersion
            ? "; build the program in Paddle 3.3 and save it there: newer formats are not read"
            : "; load the file in Paddle 3.3 and save it with core.serialize_pir_program"));
  }

  bool ReadProgram() {
    bool seen_regions = false;
    const auto blocks_before = document_.blocks_.size();
    const bool done = in_.ReadObject([&](absl::string_view key) {
      if (key != "regions") return in_.SkipValue();
      return in_.Once(&seen_regions) && ReadRegions(0);
    });
    if (!done) return false;
    const auto blocks = std::count_if(
        document_.blocks_.begin() + blocks_before, document_.blocks_.end(),
        [&](const DocumentBlock& block) { return &block == &document_.blocks_[block.parent]; });
    return blocks == 1 || in_.Fail("a program of one block", absl::StrCat(blocks), in_.position());
  }

  // Blocks without a parent have themselves.
  bool ReadRegions(int depth, const uint32_t* parent = nullptr) {
    return in_.ReadArray([&] {
      return in_.ReadObject([&](absl::string_view key) {
        if (key != "blocks") return in_.SkipValue();
        return in_.ReadArray([&] { return ReadBlock(depth, parent); });
      });
    });
  }

  bool ReadBlock(int depth, const uint32_t* parent) {
    if (depth > kMaxBlockDepth) {
      return in_.Fail(absl::StrCat("blocks nested at most ", kMaxBlockDepth, " deep"),
                      "deeper ones", in_.position());
    }
    const uint32_t id = document_.blocks_.size();
    document_.blocks_.emplace_back().parent = parent == nullptr ? id : *parent;
    bool seen_args = false, seen_ops = false;
    return in_.ReadObject([&](absl::string_view key) {
      if (key == "args") return in_.Once(&seen_args) && in_.ReadArray([&] { return ReadArg(id); });
      if (key == "ops")
        return in_.Once(&seen_ops) && in_.ReadArray([&] { return ReadOp(depth, id); });
      return in_.SkipValue();
    });
  }

  bool ReadArg(uint32_t block) {
    Value value{0, "", kNoOp, static_cast<uint32_t>(document_.blocks_[block].args.size())};
    bool seen_id = false, seen_type = false;
    const bool done = in_.ReadObject([&](absl::string_view key) {
      if (key == "#") return in_.Once(&seen_id) && in_.ReadInteger(&value.id);
      if (key == "TT") return in_.Once(&seen_type) && in_.SkipValue(&value.type);
      return in_.SkipValue();
    });
    if (!done) return false;
    if (value.id >= 0)
      return in_.Fail("a negative id of a block argument", Text(value.id), in_.position());
    if (!seen_type) return in_.Fail("a type (TT) of a block argument");
    document_.blocks_[block].args.push_back(document_.values_.size());
    AddValue(value);
    return true;
  }

  void AddValue(const Value& value) {
    document_.values_.push_back({value.id, document_.PieceOf(value.type), value.op, value.index});
  }

  bool ReadOp(int depth, uint32_t block) {
    in_.Peek();
    const char* const begin = in_.position();
    const uint32_t id = document_.ops_.size();
    document_.blocks_[block].ops.push_back(id);
    document_.ops_.emplace_back().block = block;
    document_.ops_.back().has_blocks = 0;
    DocumentOp op;
    op.block = block;
    bool seen[6] = {};
    const bool done = in_.ReadObject([&](absl::string_view key) {
      if (key == "#") return in_.Once(&seen[0]) && ReadName(&op.name);
      if (key == "A") return in_.Once(&seen[1]) && in_.SkipValue(&op.attrs);
      if (key == "I") return in_.Once(&seen[2]) && ReadOperands(&op);
      if (key == "O") return in_.Once(&seen[3]) && ReadResults(id, &op);
      if (key == "OA") return in_.Once(&seen[4]) && in_.SkipValue(&op.result_attrs);
      if (key != "regions") return in_.SkipValue();
      if (!in_.Once(&seen[5])) return false;
      op.first_block = document_.blocks_.size();
      if (!ReadRegions(depth + 1, &block)) return false;
      op.num_blocks = document_.blocks_.size() - op.first_block;
      return true;
    });
    if (!done) return false;
    if (!seen[0] || !seen[1]) {
      return in_.Fail("a name (#) and attributes (A) of an op", "neither or one", begin);
    }
    op.bytes = absl::string_view(begin, in_.position() - begin);
    Document::OpRecord& record = document_.ops_[id];
    record.first_operand = op.first_operand;
    record.num_operands = op.num_operands;
    record.first_result = op.first_result;
    record.num_results = op.num_results;
    if (op.num_blocks > 0) {
      record.has_blocks = 1;
      const uint32_t end = document_.ops_.size();
      document_.regions_[id] = {op.first_block, op.num_blocks, end};
    }
    record.bytes = document_.PieceOf(op.bytes);
    record.name = document_.PieceOf(op.name);
    record.attrs = document_.PieceOf(op.attrs);
    record.result_attrs = document_.PieceOf(op.result_attrs);
    return true;
  }

  bool ReadName(absl::string_view* name) {
    return in_.ReadString(name) && (name->find('\\') == absl::string_view::npos ||
                                    in_.Fail("a name without escapes", *name, name->data()));
  }

  bool ReadOperands(DocumentOp* op) {
    op->first_operand = document_.operands_.size();
    return in_.ReadArray([&] {
      int64_t id = 0;
      bool seen = false;
      Operand operand{kNoValue, 0};
      const bool done = in_.ReadObject([&](absl::string_view key) {
        if (key != "%") return in_.SkipValue();
        in_.Peek();
        operand.id_begin = in_.position() - document_.bytes().data();
        return in_.Once(&seen) && in_.ReadInteger(&id);
      });
      if (!done) return false;
      if (!seen) return in_.Fail("an id (%) of an operand", "none", in_.position());
      document_.operands_.push_back(operand);
      operand_ids_.push_back(id);
      ++op->num_operands;
      return true;
    });
  }

  // A list; of a parameter one object.
  bool ReadResults(uint32_t id, DocumentOp* op) {
    op->first_result = document_.values_.size();
    const auto read = [&] {
      Value value{0, "", id, op->num_results};
      bool seen_id = false, seen_type = false;
      const bool done = in_.ReadObject([&](absl::string_view key) {
        if (key == "%") return in_.Once(&seen_id) && in_.ReadInteger(&value.id);
        if (key == "TT") return in_.Once(&seen_type) && in_.SkipValue(&value.type);
        return in_.SkipValue();
      });
      if (!done) return false;
      if (value.id <= 0)
        return in_.Fail("a positive id of a result", Text(value.id), in_.position());
      if (!seen_type) return in_.Fail("a type (TT) of a result", "none", in_.position());
      AddValue(value);
      ++op->num_results;
      return true;
    };
    return in_.Peek() == '{' ? read() : in_.ReadArray(read);
  }

  static std::string Text(int64_t id) { return absl::StrCat(id); }

  // --- Values ------------------------------------------------------------------------------------

  absl::Status Error(uint32_t op, absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(document_.DebugName(op), ": ", message));
  }

  // Makes a value known from here on.
  absl::Status Define(ValueIndex i) {
    const Value value = document_.value(i);
    const auto [found, is_new] = values_by_id_.emplace(value.id, i);
    if (!is_new || WasMade(value.id)) {
      const uint32_t other = is_new ? kNoOp : document_.values_[found->second].op;
      const std::string what = absl::StrCat(
          "expected every value to be made once, found %", value.id, " made twice",
          other == kNoOp ? "" : ", before by ", other == kNoOp ? "" : document_.DebugName(other));
      return value.op == kNoOp ? absl::InvalidArgumentError(what) : Error(value.op, what);
    }
    document_.max_id_ = std::max(document_.max_id_, value.id);
    return absl::OkStatus();
  }

  bool WasMade(int64_t id) const {
    return earlier_ != nullptr &&
           (earlier_->visible_.contains(id) || earlier_->hidden_.contains(id));
  }

  bool IsVisible(ValueIndex i) const {
    const Document::ValueRecord& value = document_.values_[i];
    return value.op == kNoOp ? is_open_[block_of_arg_.at(i)]
                             : is_open_[document_.ops_[value.op].block] != 0;
  }

  absl::Status Use(uint32_t op) {
    const Document::OpRecord& record = document_.ops_[op];
    for (uint32_t k = 0; k < record.num_operands; ++k) {
      const int64_t id = operand_ids_[record.first_operand + k];
      if (id == 0) continue;
      if (earlier_ != nullptr && earlier_->visible_.contains(id)) continue;
      const auto found = values_by_id_.find(id);
      if (found == values_by_id_.end() || !IsVisible(found->second)) {
        return Error(op, absl::StrCat("operand ", k,
                                      ": expected a value that an earlier op of its "
                                      "block or of one around it makes, found %",
                                      id));
      }
      document_.operands_[record.first_operand + k].value = found->second;
    }
    return absl::OkStatus();
  }

  void Open(uint32_t block) {
    is_open_[block] = 1;
    for (const ValueIndex arg : document_.blocks_[block].args) block_of_arg_[arg] = block;
  }

  // Walks ops in execution order. An op's results are known after its regions.
  absl::Status CheckValues() {
    is_open_.assign(document_.blocks_.size(), 0);
    values_by_id_.reserve(document_.values_.size());
    struct Frame {
      uint32_t block;
      size_t next_op = 0;
    };
    std::vector<Frame> frames;
    struct Pending {
      uint32_t op;
      uint32_t next_block;
    };
    std::vector<Pending> pending;  // ops whose blocks are walked, innermost last
    const auto enter = [&](uint32_t block) -> absl::Status {
      Open(block);
      frames.push_back({block});
      for (const ValueIndex arg : document_.blocks_[block].args) WEFT_RETURN_IF_ERROR(Define(arg));
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(enter(0));
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const DocumentBlock& block = document_.blocks_[frame.block];
      if (!pending.empty() && document_.ops_[pending.back().op].block == frame.block) {
        Pending& last = pending.back();
        const DocumentOp op = document_.op(last.op);
        // The next block of the op itself: blocks inside of these have other parents.
        const uint32_t end = op.first_block + op.num_blocks;
        while (last.next_block < end && document_.blocks_[last.next_block].parent != op.block) {
          ++last.next_block;
        }
        if (last.next_block < end) {
          WEFT_RETURN_IF_ERROR(enter(last.next_block++));
          continue;
        }
        WEFT_RETURN_IF_ERROR(DefineResults(op));
        pending.pop_back();
        continue;
      }
      if (frame.next_op == block.ops.size()) {
        is_open_[frame.block] = 0;
        frames.pop_back();
        continue;
      }
      const uint32_t id = block.ops[frame.next_op++];
      WEFT_RETURN_IF_ERROR(Use(id));
      const DocumentOp op = document_.op(id);
      if (op.num_blocks > 0) {
        pending.push_back({id, op.first_block});
      } else {
        WEFT_RETURN_IF_ERROR(DefineResults(op));
      }
    }
    return absl::OkStatus();
  }

  absl::Status DefineResults(const DocumentOp& op) {
    for (uint32_t r = 0; r < op.num_results; ++r) {
      WEFT_RETURN_IF_ERROR(Define(op.first_result + r));
    }
    return absl::OkStatus();
  }

  JsonCursor in_;
  Document& document_;
  const OpChecker* earlier_;
  absl::string_view magic_;
  int64_t version_ = -1;
  std::vector<int64_t> operand_ids_;
  absl::flat_hash_map<int64_t, ValueIndex> values_by_id_;
  absl::flat_hash_map<ValueIndex, uint32_t> block_of_arg_;
  std::vector<char> is_open_;  // by block: the walk is inside
};

absl::StatusOr<std::shared_ptr<const Document>> Document::Parse(FileBytes file) {
  if (file.bytes.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError("expected at most 2 GiB");
  }
  std::shared_ptr<Document> document(new Document);
  document->file_ = std::move(file);
  WEFT_RETURN_IF_ERROR(DocumentReader(document->bytes(), document.get()).Read());
  return document;
}

absl::StatusOr<std::shared_ptr<const Document>> Document::Parse(std::string bytes) {
  auto owned = std::make_shared<const std::string>(std::move(bytes));
  const absl::string_view view = *owned;
  return Parse(FileBytes{std::move(owned), view});
}

absl::Status OpChecker::Check(absl::string_view op) {
  Document document;
  document.file_.bytes = op;
  DocumentReader reader(op, &document, this);
  WEFT_RETURN_IF_ERROR(reader.ReadSingleOp());
  ++num_ops_;
  for (const Document::ValueRecord& value : document.values_) {
    const bool is_visible = value.op == 0;  // the op itself, not one in its blocks
    (is_visible ? visible_ : hidden_).insert(value.id);
  }
  return absl::OkStatus();
}

}  // namespace weft::pir
