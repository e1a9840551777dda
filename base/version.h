// The version of Weft, as in CHANGELOG.md.
#ifndef WEFT_BASE_VERSION_H_
#define WEFT_BASE_VERSION_H_

namespace weft {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace weft

#endif  // WEFT_BASE_VERSION_H_
