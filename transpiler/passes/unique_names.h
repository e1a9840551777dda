// Names for variables that passes declare.
#ifndef WEFT_TRANSPILER_PASSES_UNIQUE_NAMES_H_
#define WEFT_TRANSPILER_PASSES_UNIQUE_NAMES_H_

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/program.h"

namespace weft {

// key_0, key_1, ...: counted for each key, as Paddle does, without the names that the program
// holds.
class UniqueNames {
 public:
  explicit UniqueNames(const Program& program) : program_(program) {}

  // `name` itself where it is free. For names that the caller asks for once each.
  std::string Of(const std::string& name) {
    return program_.FindSymbol(name).valid() ? Next(name) : name;
  }

  std::string Next(const std::string& key) {
    int& next = next_[key];
    std::string name;
    do {
      name = absl::StrCat(key, "_", next++);
    } while (program_.FindSymbol(name).valid());
    return name;
  }

 private:
  const Program& program_;
  std::map<std::string, int> next_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UNIQUE_NAMES_H_
