// Checks a certificate (docs/certificate.md).
#ifndef WEFT_CHECKER_CHECK_H_
#define WEFT_CHECKER_CHECK_H_

#include <functional>
#include <string>
#include <string_view>

namespace checker {

// Files, by content. Without startup programs, the last two are empty.
struct Files {
  std::string_view claim, proof, original, result, original_startup, startup;
};

// The whole claim that follows, of which `claim` has the lines for ranks and gradients. `hash`:
// gives the SHA-256 of a program. Throws Failure, which says what does not follow. O(size of the
// files).
std::string ClaimOf(const Files& files, const std::function<std::string(std::string_view)>& hash);

// Whether a rule may leave out such an op of the original, where states are shared out.
bool MayLeaveOut(std::string_view type, bool is_startup);

// Throws Failure, which says what does not follow, unless the claim is true of the programs. O(size
// of the files).
void Check(const Files& files);

}  // namespace checker

#endif  // WEFT_CHECKER_CHECK_H_
