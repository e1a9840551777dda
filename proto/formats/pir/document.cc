#include "proto/formats/pir/document.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/formats/pir/json_cursor.h"

namespace weft::pir {

std::string Document::DebugName(uint32_t op) const {
  const std::string where = ops_[op].block == 0 ? "" : absl::StrCat("block ", ops_[op].block, " ");
  const std::vector<uint32_t>& ops = blocks_[ops_[op].block].ops;
  const auto position = std::lower_bound(ops.begin(), ops.end(), op) - ops.begin();
  return absl::StrCat(where, "op ", position + (ops_[op].block == 0 ? first_position_ : 0), " (",
                      absl::Utf8SafeCHexEscape(TextOf(ops_[op].name)), ")");
}

absl::string_view Document::IdText(const Operand& operand) const {
  const absl::string_view text = bytes().substr(operand.id_begin);
  size_t size = 0;
  while (size < text.size() && (text[size] == '-' || absl::ascii_isdigit(text[size]))) ++size;
  return text.substr(0, size);
}

size_t Document::IndexBytes() const {
  size_t bytes = ops_.capacity() * sizeof(OpRecord) + regions_.size() * sizeof(Regions) +
                 operands_.capacity() * sizeof(Operand) + values_.capacity() * sizeof(ValueRecord);
  for (const DocumentBlock& block : blocks_) {
    bytes += sizeof(block) + block.ops.capacity() * sizeof(uint32_t) +
             block.args.capacity() * sizeof(ValueIndex);
  }
  return bytes;
}

bool LooksLikeDocument(absl::string_view bytes) {
  JsonCursor in(bytes);
  return in.Peek() == '{' && absl::StrContains(bytes.substr(0, 256), "\"base_code\"");
}

}  // namespace weft::pir
