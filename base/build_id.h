// Which build of the program this is.
#ifndef WEFT_BASE_BUILD_ID_H_
#define WEFT_BASE_BUILD_ID_H_

#include <string>

namespace weft {

// The identifier that the linker gave this program, a hash of its contents, as hexadecimal digits.
// Programs built alike have the same one. Empty: it gave none.
std::string BuildId();

}  // namespace weft

#endif  // WEFT_BASE_BUILD_ID_H_
