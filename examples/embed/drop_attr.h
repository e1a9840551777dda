// The pass of this example.
#ifndef EMBED_DROP_ATTR_H_
#define EMBED_DROP_ATTR_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace embed {

// Removes one attribute from every op of both programs, for instance op_callstack, which contains
// file names of the machine that built the program, and is often the larger part of it:
//
//   Out=[y] = relu(X=[x]) {op_callstack=[...], op_role=0}   becomes   ... {op_role=0}
//
// Changes nothing if no op has the attribute, so a second run changes nothing. O(ops).
// InvalidArgument for op_role and op_role_var, which define training.
class DropAttr : public weft::Pass {
 public:
  static constexpr absl::string_view kName = "drop-attr";
  static constexpr absl::string_view kDescription = "both programs: removes an attribute of ops";
  struct Options {
    std::string attr = "op_callstack";  // name of the attribute
    void Bind(weft::OptionBinder& bind);
  };
  explicit DropAttr(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const weft::PassContext& context,
                           weft::ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace embed

#endif  // EMBED_DROP_ATTR_H_
