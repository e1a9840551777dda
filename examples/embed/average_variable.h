#ifndef EMBED_AVERAGE_VARIABLE_H_
#define EMBED_AVERAGE_VARIABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/option_binder.h"
#include "transpiler/pipeline/pass.h"

namespace embed {

// Averages a variable of the main program over the ranks, after the last op of the root block that
// writes it:
//
//   Out=[s] = reduce_mean(X=[h])
//   Out=[s] = c_wait_compute(X=[s]) {ring_id=0}     the communication stream waits for s
//   Out=[s] = c_allreduce_avg(X=[s]) {ring_id=0}    runs there, while the compute stream goes on
//   Out=[s] = c_wait_comm(X=[s]) {ring_id=0}        the compute stream waits for the mean
//   Out=[state] = elementwise_add(X=[state], Y=[s])
//
// The last one is inserted before the first op that reads or writes s, so that other ops run
// meanwhile. A second run changes nothing. NotFound if no op of the root block writes the variable.
// O(arguments).
class AverageVariable : public weft::Pass {
 public:
  static constexpr absl::string_view kName = "average-variable";
  static constexpr absl::string_view kDescription =
      "main program: averages a variable over the ranks";
  struct Options {
    std::string name;  // of the variable
    void Bind(weft::OptionBinder& bind);
  };
  explicit AverageVariable(Options options) : options_(std::move(options)) {}

  absl::string_view name() const override { return kName; }
  absl::StatusOr<bool> Run(const weft::PassContext& context,
                           weft::ProgramPair& programs) const override;

 private:
  Options options_;
};

}  // namespace embed

#endif  // EMBED_AVERAGE_VARIABLE_H_
