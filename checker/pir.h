// Programs of Paddle 3 (PIR, as JSON), in the old format (docs/certificate.md).
#ifndef WEFT_CHECKER_PIR_H_
#define WEFT_CHECKER_PIR_H_

#include <string>
#include <string_view>
#include <vector>

#include "checker/check.h"

namespace checker {

// What a certificate of PIR has at the end of its claim.
extern const char* const kPirClaim;

// Files and steps, which are for these files.
struct OldFormat {
  std::string proof, original, result, original_startup, startup;
};

bool IsPir(std::string_view file);
OldFormat FromPir(const Files& files);

// Of each result of an op in place, such as "sgd", the operand whose memory it has, or -; empty: it
// is not known.
std::string_view PirInPlace(std::string_view base);
// The ops of a program that steps count, as they stand.
std::vector<std::string_view> PirOpsOf(std::string_view file);
// The name of an op, and the numbers of its results: "1.add 11".
std::string PirLabelOf(std::string_view op);

}  // namespace checker

#endif  // WEFT_CHECKER_PIR_H_
