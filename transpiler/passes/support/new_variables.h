// Names and declarations of variables that passes insert.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_NEW_VARIABLES_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_NEW_VARIABLES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Names that are free in a program. Counts per key, as Paddle does: key_0, key_1, ...
class UniqueNames {
 public:
  explicit UniqueNames(const Program& program) : main_(program) {}
  // Names that are free in both programs. The startup program may be null.
  explicit UniqueNames(const ProgramPair& programs)
      : main_(*programs.main), startup_(programs.startup) {}

  // `name` if it is free, else Next(name). Does not remember returned names: ask for each once.
  std::string Of(const std::string& name) { return IsTaken(name) ? Next(name) : name; }

  // The next free name of the key; returns no name twice.
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

inline pb::VarType::TensorDesc TensorOf(pb::VarType::Type dtype, absl::Span<const int64_t> dims) {
  pb::VarType::TensorDesc tensor;
  tensor.set_data_type(dtype);
  for (int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

// A dense tensor that is not persistable.
inline pb::VarDesc TensorVar(const std::string& name, pb::VarType::TensorDesc tensor) {
  pb::VarDesc var;
  var.set_name(name);
  var.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  *var.mutable_type()->mutable_lod_tensor()->mutable_tensor() = std::move(tensor);
  var.set_persistable(false);
  return var;
}
inline pb::VarDesc TensorVar(const std::string& name, DType dtype, absl::Span<const int64_t> dims) {
  return TensorVar(name, TensorOf(static_cast<pb::VarType::Type>(dtype), dims));
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_NEW_VARIABLES_H_
