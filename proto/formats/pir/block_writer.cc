#include "proto/formats/pir/block_writer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/snake_case_slots.h"

namespace weft::pir {
namespace {

constexpr int64_t kPaddle3 = 3003001;
constexpr size_t kMaxTagAndLength = 16;

void AppendTagAndLength(int field_number, size_t length, std::string* out) {
  const auto varint = [out](uint64_t value) {
    for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
    out->push_back(static_cast<char>(value));
  };
  varint(static_cast<uint64_t>(field_number) << 3 | 2);
  varint(length);
}

}  // namespace

void Pieces::Append(int field_number, const std::string& message) {
  constexpr size_t kPiece = size_t{1} << 20;
  const size_t most = message.size() + kMaxTagAndLength;
  if (pieces_.empty() || pieces_.back().size() + most > kPiece) {
    // The first one is small, as most programs are.
    pieces_.emplace_back().reserve(pieces_.size() == 1 ? most : std::max(kPiece, most));
  }
  std::string& piece = pieces_.back();
  size_ -= piece.size();
  AppendTagAndLength(field_number, message.size(), &piece);
  piece += message;
  size_ += piece.size();
}

void Pieces::MoveTo(std::string* out) {
  for (; !pieces_.empty(); pieces_.pop_front()) *out += pieces_.front();
  size_ = 0;
}

BlockWriter::BlockWriter(const Document& document, const Survey& survey) {
  for (size_t b = 0; b < document.blocks().size(); ++b) {
    if (survey.block_number[b] == Survey::kNoBlock) continue;
    blocks_.emplace_back().parent = b == 0 ? -1 : survey.block_number[document.blocks()[b].parent];
  }
}

void BlockWriter::AddOp(int block, const pb::OpDesc& desc, uint32_t op) {
  std::string message;
  if (HasSnakeCaseSlots(desc.type())) {
    pb::OpDesc renamed = desc;
    ToSnakeCaseSlots(&renamed);
    message = renamed.SerializePartialAsString();
  } else {
    message = desc.SerializePartialAsString();
  }
  blocks_[block].ops.Append(pb::BlockDesc::kOpsFieldNumber, message);
  blocks_[block].op_of_op.push_back(op);
}

std::string BlockWriter::Finish(const Variables& vars) {
  // Declarations are made twice, first for their size: half a million of them take many bytes.
  pb::VarDesc desc;
  std::string field;
  const auto declare = [&](VarIndex var) -> const std::string& {
    vars[var].WriteTo(&desc);
    const std::string message = desc.SerializePartialAsString();
    field.clear();
    AppendTagAndLength(pb::BlockDesc::kVarsFieldNumber, message.size(), &field);
    field += message;
    return field;
  };
  std::vector<size_t> sizes;
  std::vector<std::string> heads;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    pb::BlockDesc head;
    head.set_idx(static_cast<int>(b));
    head.set_parent_idx(blocks_[b].parent);
    heads.push_back(head.SerializePartialAsString());
    sizes.push_back(heads[b].size() + blocks_[b].ops.size());
  }
  std::vector<std::vector<VarIndex>> inner(blocks_.size());  // of blocks other than the root
  for (VarIndex var = 0; var < vars.size(); ++var) {
    const int block = vars[var].block;
    sizes[block] += declare(var).size();
    if (block > 0) inner[block].push_back(var);
  }
  pb::ProgramDesc version;
  version.mutable_version()->set_version(kPaddle3);
  const std::string last = version.SerializePartialAsString();
  std::string program;
  program.reserve(
      std::accumulate(sizes.begin(), sizes.end(), last.size() + kMaxTagAndLength * sizes.size()));
  for (size_t b = 0; b < blocks_.size(); ++b) {
    AppendTagAndLength(pb::ProgramDesc::kBlocksFieldNumber, sizes[b], &program);
    program += heads[b];
    for (VarIndex var = 0; b == 0 && var < vars.size(); ++var) {
      if (vars[var].block == 0) program += declare(var);
    }
    for (const VarIndex var : inner[b]) program += declare(var);
    blocks_[b].ops.MoveTo(&program);
  }
  program += last;
  return program;
}

std::vector<uint32_t> BlockWriter::TakeOps() {
  std::vector<uint32_t> all = std::move(blocks_[0].op_of_op);
  for (size_t b = 1; b < blocks_.size(); ++b) {
    all.insert(all.end(), blocks_[b].op_of_op.begin(), blocks_[b].op_of_op.end());
  }
  blocks_.clear();
  return all;
}

}  // namespace weft::pir
