// Bytes that stand in several places, listed as pieces to be concatenated.
#ifndef WEFT_PROTO_BYTE_PIECES_H_
#define WEFT_PROTO_BYTE_PIECES_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// Appends a piece; one that follows the last piece in memory makes that longer. Empty ones are left
// out.
inline void AddPiece(absl::string_view piece, std::vector<absl::string_view>* pieces) {
  if (piece.empty()) return;
  if (!pieces->empty()) {
    absl::string_view& last = pieces->back();
    if (last.data() + last.size() == piece.data()) {
      last = absl::string_view(last.data(), last.size() + piece.size());
      return;
    }
  }
  pieces->push_back(piece);
}

}  // namespace weft

#endif  // WEFT_PROTO_BYTE_PIECES_H_
