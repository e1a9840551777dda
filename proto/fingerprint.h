// A short name for the exact content of a program.
#ifndef WEFT_PROTO_FINGERPRINT_H_
#define WEFT_PROTO_FINGERPRINT_H_

#include <cstdint>
#include <string>

#include "proto/program.h"

namespace weft {

// XXH3-64 of the serialized program: equal for equal bytes, on every machine. Ranks compare it to
// see that they run the same program; it is no protection against forgery. O(bytes).
uint64_t Fingerprint(const Program& program);

// 16 hexadecimal digits.
std::string FingerprintString(const Program& program);

}  // namespace weft

#endif  // WEFT_PROTO_FINGERPRINT_H_
