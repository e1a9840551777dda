// Names for variables that passes declare.
#ifndef WEFT_TRANSPILER_PASSES_UNIQUE_NAMES_H_
#define WEFT_TRANSPILER_PASSES_UNIQUE_NAMES_H_

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Names that a program does not have. Counted per key, as Paddle does: key_0, key_1, ...
class UniqueNames {
 public:
  explicit UniqueNames(const Program& program) : main_(program) {}
  // Names that neither program has; there may be no startup program.
  explicit UniqueNames(const ProgramPair& programs)
      : main_(*programs.main), startup_(programs.startup) {}

  // `name` itself where it is free, else Next(name). Knows nothing of names given before, so ask
  // for each name once.
  std::string Of(const std::string& name) { return IsTaken(name) ? Next(name) : name; }

  // The next free name of the key; no name is returned twice.
  std::string Next(const std::string& key) {
    int& next = next_[key];
    std::string name;
    do {
      name = absl::StrCat(key, "_", next++);
    } while (IsTaken(name));
    return name;
  }

 private:
  bool IsTaken(const std::string& name) const {
    return main_.FindSymbol(name).valid() ||
           (startup_ != nullptr && startup_->FindSymbol(name).valid());
  }

  const Program& main_;
  const Program* const startup_ = nullptr;
  std::map<std::string, int> next_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UNIQUE_NAMES_H_
