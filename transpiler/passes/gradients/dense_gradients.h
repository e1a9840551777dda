#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_DENSE_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_DENSE_GRADIENTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Makes row-sparse gradients (embeddings with is_sparse) dense where that takes fewer bytes: clears
// attribute is_sparse of the backward ops that compute them, and changes the type of the gradient
// and of its summands.
//
// Bytes that each of n ranks receives (n = 2 if the number is unknown):
//   rows   (n - 1) ids (4 + bytes of a row), 8 + for more than 2^31 rows; ids: the number of ids
//          that the ops look up in a step
//   dense  2 (n - 1) / n bytes of the parameter
// For the CPU, auto and supported mean dense: Paddle's communicator cannot add rows there.
// Elsewhere, supported means rows.
// With option auto, gradients stay row-sparse if the number of ids is unknown (a batch of any
// size), if an optimizer with lazy_mode uses them, which skips rows without a gradient, and if an
// unregistered op uses them. With option dense, FailedPrecondition if a gradient cannot be made
// dense. Clipping follows the gradient: what it makes of rows becomes dense, too, and the ops that
// take rows as a tensor for a squared norm become copies. O(arguments).
class DenseGradients : public Pass {
 public:
  static constexpr absl::string_view kName = "dense-gradients";
  static constexpr absl::string_view kDescription =
      "main program: makes sparse gradients dense where that is fewer bytes";
  enum class Sparse { kAuto, kRows, kSupported, kDense };
  struct Options {
    Sparse sparse = Sparse::kAuto;  // rows: nothing changes
    void Bind(OptionBinder& bind);
  };
  explicit DenseGradients(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  Claims claims(const PassContext& context) const override;
  absl::StatusOr<bool> Run(const PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_DENSE_GRADIENTS_H_
