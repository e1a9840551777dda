#include <algorithm>
#include <climits>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/program.h"
#include "proto/program_checks.h"
#include "proto/program_indexer.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

constexpr uint32_t kProgramBlocks = wire::LengthDelimited(pb::ProgramDesc::kBlocksFieldNumber);
constexpr uint32_t kProgramVersion = wire::LengthDelimited(pb::ProgramDesc::kVersionFieldNumber);
constexpr uint32_t kVersionNumber = wire::Varint(pb::Version::kVersionFieldNumber);
constexpr uint32_t kBlockIdx = wire::Varint(pb::BlockDesc::kIdxFieldNumber);
constexpr uint32_t kBlockParentIdx = wire::Varint(pb::BlockDesc::kParentIdxFieldNumber);
constexpr uint32_t kBlockVars = wire::LengthDelimited(pb::BlockDesc::kVarsFieldNumber);
constexpr uint32_t kBlockOps = wire::LengthDelimited(pb::BlockDesc::kOpsFieldNumber);
constexpr uint32_t kBlockForwardIdx = wire::Varint(pb::BlockDesc::kForwardBlockIdxFieldNumber);

// True for a field of ProgramDesc: more than its length must be checked.
bool IsKnown(uint32_t tag) {
  const int number = google::protobuf::internal::WireFormatLite::GetTagFieldNumber(tag);
  return pb::ProgramDesc::descriptor()->FindFieldByNumber(number) != nullptr;
}

// Splits the fields of a program into parts of nearly equal size, in the order of the file.
class Parts {
 public:
  struct Part {
    std::vector<ProgramIndexer::Slice> slices;
    size_t num_ops = 0, num_vars = 0, num_bytes = 0;
  };

  Parts(size_t bytes, const ParseOptions& options) {
    const size_t most = bytes / std::max<size_t>(1, options.min_bytes_per_thread);
    max_parts_ = std::max<size_t>(1, std::min<size_t>(std::max(1, options.threads), most));
    bytes_per_part_ = bytes / max_parts_ + 1;
    parts_.emplace_back();
  }

  // True if a slice should end that has `slice_bytes` bytes.
  bool IsFull(size_t slice_bytes) const {
    return parts_.back().num_bytes + slice_bytes >= bytes_per_part_ && parts_.size() < max_parts_;
  }
  void Add(const ProgramIndexer::Slice& slice) {
    Part& part = parts_.back();
    part.slices.push_back(slice);
    part.num_ops += slice.num_ops;
    part.num_vars += slice.num_vars;
    part.num_bytes += slice.fields.size();
    num_ops_ += slice.num_ops;
    num_vars_ += slice.num_vars;
    if (IsFull(0)) parts_.emplace_back();
  }

  const std::vector<Part>& parts() const { return parts_; }
  size_t num_ops() const { return num_ops_; }
  size_t num_vars() const { return num_vars_; }

 private:
  size_t max_parts_, bytes_per_part_;
  std::vector<Part> parts_;
  size_t num_ops_ = 0, num_vars_ = 0;
};

absl::Status IndexPart(const Parts::Part& part, ProgramIndexer* indexer) {
  for (const ProgramIndexer::Slice& slice : part.slices) {
    WEFT_RETURN_IF_ERROR(indexer->AddSlice(slice));
  }
  return absl::OkStatus();
}

}  // namespace

// Walks over the fields of the program and its blocks, without reading ops and variables: a tenth
// of the time. Then indexes ops and variables in parts, each in a thread and as a separate program,
// and joins the parts in the order of the file.
class ProgramReader {
 public:
  ProgramReader(const ParseOptions& options, Program* program)
      : program_(*program), parts_(program->bytes_.size(), options) {}

  absl::Status Read() {
    WEFT_RETURN_IF_ERROR(ReadTopLevel());
    ProgramIndexer indexer(&program_);
    WEFT_RETURN_IF_ERROR(IndexParts(&indexer));
    for (uint32_t i = 0; i < program_.vars_.size(); ++i) {
      WEFT_RETURN_IF_ERROR(indexer.LinkVar(VarId(i)));
    }
    indexer.Share();
    WEFT_RETURN_IF_ERROR(CheckParents(program_));
    return CheckSubBlocks(program_, indexer.ops_with_sub_blocks());
  }

 private:
  absl::Status ReadTopLevel() {
    const absl::string_view bytes = program_.bytes_;
    if (bytes.size() > INT_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("the program has ", bytes.size(),
                                                     " bytes; protobuf messages end at ", INT_MAX));
    }
    if (bytes.empty()) return absl::InvalidArgumentError("the program is empty: no blocks");
    wire::MessageStream in(bytes);
    while (true) {
      const int begin = in.CurrentPosition();
      const uint32_t tag = wire::NextTag(&in);
      if (tag == 0) break;
      if (tag == kProgramBlocks) {
        absl::string_view payload;
        if (!wire::ReadBytes(&in, &payload)) {
          return Malformed(absl::StrCat("block at byte ", begin));
        }
        program_.top_level_.push_back({program_.num_blocks(), {}});
        WEFT_RETURN_IF_ERROR(ReadBlock(bytes.substr(begin, in.CurrentPosition() - begin), payload));
      } else {
        if (!wire::SkipField(&in, tag)) return MalformedAt("", begin);
        const absl::string_view field = bytes.substr(begin, in.CurrentPosition() - begin);
        if (IsKnown(tag) && !wire::IsWellFormed<pb::ProgramDesc>(field)) {
          return MalformedAt("", begin);
        }
        if (tag == kProgramVersion) ReadVersion(field);
        // One piece for neighbours: a file may consist of unknown fields of two bytes.
        std::vector<Program::TopLevelField>& fields = program_.top_level_;
        if (fields.empty() || fields.back().block >= 0) fields.push_back({-1, field.substr(0, 0)});
        absl::string_view& last = fields.back().other;
        last = absl::string_view(last.data(), last.size() + field.size());
      }
    }
    return wire::AtEnd(&in) ? absl::OkStatus() : MalformedAt("", in.CurrentPosition());
  }

  // Of a well-formed field. The last number counts, as in generated classes, which would take
  // memory for unknown fields.
  void ReadVersion(absl::string_view field) {
    wire::MessageStream in(field);
    absl::string_view payload;
    wire::NextTag(&in);
    wire::ReadBytes(&in, &payload);
    wire::MessageStream version(payload);
    while (const uint32_t tag = wire::NextTag(&version)) {
      uint64_t number;
      if (tag != kVersionNumber) {
        wire::SkipField(&version, tag);
      } else if (version.ReadVarint64(&number)) {
        program_.version_ = static_cast<int64_t>(number);
      }
    }
  }

  absl::Status ReadBlock(absl::string_view field, absl::string_view payload) {
    Program::BlockRecord block;
    block.field = field;
    std::vector<absl::string_view>* others = &block.head;
    int idx = 0;
    bool has_idx = false, has_parent = false;

    const int number = program_.num_blocks();
    const std::string where = absl::StrCat("block ", number);
    const auto malformed = [&](size_t at) {
      return MalformedAt(absl::StrCat("block at byte ", field.data() - program_.bytes_.data()),
                         payload.data() - program_.bytes_.data() + at);
    };
    ProgramIndexer::Slice slice;
    slice.block = number;
    size_t slice_begin = 0;
    const auto end_slice = [&](size_t end) {
      slice.fields = payload.substr(slice_begin, end - slice_begin);
      parts_.Add(slice);
      slice.first_op += std::exchange(slice.num_ops, 0);
      slice.first_var += std::exchange(slice.num_vars, 0);
      slice_begin = end;
    };

    const size_t first_op = parts_.num_ops(), first_var = parts_.num_vars();
    wire::MessageStream in(payload);
    while (true) {
      const int begin = in.CurrentPosition();
      if (parts_.IsFull(begin - slice_begin)) end_slice(begin);
      const uint32_t tag = wire::NextTag(&in);
      if (tag == 0) break;
      if (tag == kBlockVars || tag == kBlockOps) {
        absl::string_view message;
        if (!wire::ReadBytes(&in, &message)) return malformed(begin);
        wire::PrefetchBehind(message);
        ++(tag == kBlockOps ? slice.num_ops : slice.num_vars);
        others = &block.tail;
        continue;
      }
      bool ok;
      if (tag == kBlockIdx) {
        ok = wire::ReadInt(&in, &idx);
        has_idx = true;
      } else if (tag == kBlockParentIdx) {
        ok = wire::ReadInt(&in, &block.parent_idx);
        has_parent = true;
      } else if (tag == kBlockForwardIdx) {
        ok = wire::ReadInt(&in, &block.forward_block_idx);
      } else {
        ok = wire::SkipField(&in, tag);
      }
      if (!ok) return malformed(begin);
      wire::AddPiece(payload.substr(begin, in.CurrentPosition() - begin), others);
    }
    if (!wire::AtEnd(&in)) return malformed(in.CurrentPosition());
    if (!has_idx || !has_parent) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": field ", has_idx ? "parent_idx" : "idx", " is missing"));
    }
    if (idx != number) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": has idx ", idx, "; blocks must count 0, 1, 2, ... in file order"));
    }
    end_slice(payload.size());
    block.ops.reserve(parts_.num_ops() - first_op);
    for (size_t i = first_op; i < parts_.num_ops(); ++i) block.ops.emplace_back(i);
    block.vars.reserve(parts_.num_vars() - first_var);
    for (size_t i = first_var; i < parts_.num_vars(); ++i) block.vars.emplace_back(i);
    program_.blocks_.push_back(std::move(block));
    return absl::OkStatus();
  }

  // A part that a thread indexes as a separate program.
  struct OtherPart {
    explicit OtherPart(absl::string_view bytes) { program.bytes_ = bytes; }

    absl::Status Index(const Parts::Part& part, size_t num_symbols) {
      indexer.Reserve(part.num_ops, part.num_vars,
                      std::min(num_symbols, part.num_ops + part.num_vars), part.num_bytes);
      const absl::Status status = IndexPart(part, &indexer);
      names = indexer.CheckNames();
      return status;
    }

    Program program;
    ProgramIndexer indexer{&program};
    absl::Status names;
    std::future<absl::Status> status;  // last: its destructor waits for the thread
  };

  // Indexes the first part into the program and appends the others. Refuses names that are not
  // UTF-8 last, in the order of the file, so that the error does not depend on the number of parts.
  absl::Status IndexParts(ProgramIndexer* indexer) {
    // Nearly all names are those of variables.
    const size_t num_symbols = parts_.num_vars() + parts_.num_vars() / 64 + 64;
    indexer->Reserve(parts_.num_ops(), parts_.num_vars(), num_symbols, program_.bytes_.size());
    std::deque<OtherPart> others;
    for (size_t i = 1; i < parts_.parts().size(); ++i) {
      const Parts::Part& part = parts_.parts()[i];
      OtherPart& other = others.emplace_back(program_.bytes_);
      // If no thread can be started, get() indexes the part.
      other.status =
          std::async(std::launch::async | std::launch::deferred,
                     [&part, &other, num_symbols] { return other.Index(part, num_symbols); });
    }
    WEFT_RETURN_IF_ERROR(IndexPart(parts_.parts()[0], indexer));
    absl::Status names = indexer->CheckNames();
    for (OtherPart& other : others) {
      WEFT_RETURN_IF_ERROR(other.status.get());
      names.Update(other.names);
      indexer->Append(other.indexer);
      other.program = Program();
    }
    return names;
  }

  Program& program_;
  Parts parts_;
};

absl::StatusOr<Program> Program::Parse(std::shared_ptr<const void> owner, absl::string_view bytes,
                                       const ParseOptions& options) {
  Program program;
  program.owners_.push_back(std::move(owner));
  program.bytes_ = bytes;
  WEFT_RETURN_IF_ERROR(ProgramReader(options, &program).Read());
  return program;
}

}  // namespace weft
