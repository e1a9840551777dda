#ifndef WEFT_TRANSPILER_PASSES_DENSE_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_DENSE_GRADIENTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Makes dense tensors of gradients that are SelectedRows (embeddings with is_sparse), where they
// travel in fewer bytes that way: clears attribute is_sparse of the backward ops that make them,
// and changes the type of the gradient, and of the summands that it is made of.
//
// Bytes that a rank receives, of n ranks (2 where the number is unknown):
//   rows   (n - 1) ids (8 + bytes of a row), ids being those that the ops look up in a step
//   dense  2 (n - 1) / n bytes of the parameter
// With option auto, gradients stay rows where the number of ids is unknown (a batch of any size),
// and where the dense gradient would mean something else: to an optimizer with lazy_mode, which
// leaves rows alone that have no gradient; to an op that is not known. O(arguments).
//
// With option dense, FailedPrecondition for those that cannot be made dense.
class DenseGradients : public Pass {
 public:
  static constexpr absl::string_view kName = "dense-gradients";
  static constexpr absl::string_view kDescription =
      "main program: makes sparse gradients dense where that is fewer bytes";
  enum class Sparse { kAuto, kRows, kDense };
  struct Options {
    Sparse sparse = Sparse::kAuto;  // how they travel; rows: nothing changes
    void Bind(OptionBinder& bind);
  };
  explicit DenseGradients(Options options) : options_(options) {}

  absl::string_view name() const override { return kName; }
  Contract contract() const override;
  absl::StatusOr<bool> Run(PassContext& context, ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DENSE_GRADIENTS_H_
