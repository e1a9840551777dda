#include "proto/fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace weft {

uint64_t Fingerprint(const Program& program) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (absl::string_view piece : program.SerializeToPieces().pieces) {
    XXH3_64bits_update(&state, piece.data(), piece.size());
  }
  return XXH3_64bits_digest(&state);
}

std::string FingerprintString(const Program& program) {
  return absl::StrCat(absl::Hex(Fingerprint(program), absl::kZeroPad16));
}

}  // namespace weft
