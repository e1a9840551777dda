// The variables of an imported program, and what they hold as ops run.
#ifndef WEFT_PROTO_FORMATS_PIR_VARIABLES_H_
#define WEFT_PROTO_FORMATS_PIR_VARIABLES_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/survey.h"
#include "proto/formats/pir/training.h"

namespace weft::pir {

using VarIndex = uint32_t;
inline constexpr VarIndex kNoVar = 0xffffffffu;

// A declaration to be written. Takes a tenth of the memory of a VarDesc: those of one type share
// it.
struct Variable {
  std::string name;
  std::shared_ptr<const ValueType> type;           // null: not known yet
  int block = 0;                                   // that declares it
  bool is_scope = false;                           // of a branch: no tensor
  std::shared_ptr<const std::string> lr_schedule;  // null: none
  bool persistable = false, is_parameter = false, stop_gradient = false, need_check_feed = false;

  void WriteTo(pb::VarDesc* desc) const;
};

class Variables {
 public:
  // The arguments must outlive it.
  Variables(const Document& document, const Training& training, const Survey& survey);

  size_t size() const { return vars_.size(); }
  Variable& operator[](VarIndex var) { return vars_[var]; }
  const Variable& operator[](VarIndex var) const { return vars_[var]; }

  // Where new variables are declared.
  int block() const { return block_; }
  void set_block(int block) { block_ = block; }

  // The variable of that name, new or not.
  VarIndex Named(absl::string_view name);
  bool HasName(absl::string_view name) const { return vars_by_name_.contains(name); }
  // A new variable. Its name gets a suffix if it is taken.
  VarIndex New(std::string name);

  // The value is the present content of the variable, whose type it gives. `overwrites`: what the
  // variable held is gone.
  absl::Status Define(ValueIndex value, VarIndex var, bool overwrites);
  // What the variable held is gone.
  void Overwrite(VarIndex var) { ++versions_[var]; }

  // The variable of a value; kNoVar for lists and what has no type.
  VarIndex Of(ValueIndex value) const { return var_of_value_[value]; }
  // The same, of an operand. InvalidArgument if the variable has been overwritten.
  absl::StatusOr<VarIndex> Read(ValueIndex value) const;

  // A name for a value: "fc_0.w_0@GRAD", "matmul_6" (stem matmul).
  std::string NameOf(ValueIndex value, absl::string_view stem) const;
  // Read once for all values whose types have the same text.
  absl::StatusOr<std::shared_ptr<const ValueType>> TypeOf(ValueIndex value) const;

 private:
  const Document& document_;
  const Training& training_;
  const Survey& survey_;
  int block_ = 0;
  std::deque<Variable> vars_;
  mutable absl::flat_hash_map<absl::string_view, std::shared_ptr<const ValueType>> types_;
  absl::flat_hash_map<absl::string_view, VarIndex> vars_by_name_;
  std::vector<uint32_t> versions_;  // by variable
  std::vector<VarIndex> var_of_value_;
  std::vector<uint32_t> version_of_value_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_VARIABLES_H_
