// Which part of its data each rank gets, as far as a program shows it.
#ifndef WEFT_OPS_ANALYSIS_VALUES_LAYOUT_GUESS_H_
#define WEFT_OPS_ANALYSIS_VALUES_LAYOUT_GUESS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/analysis/training/data_variables.h"
#include "proto/feed_layout.h"
#include "proto/program.h"

namespace weft {

// The layouts of the data variables of a program (FindData): those of `given`, and for the others a
// guess. InvalidArgument if `given` names a variable that is no data variable, or an axis that it
// does not have.
//
// The guess follows from the declarations. Dimension 0 is the batch if its size is unknown, or if
// all data variables have fixed sizes, and several elements there. Else it is the only dimension of
// unknown size, if one before it is larger than 1 (time-major data). Any other variable (a learning
// rate, weights of classes) is whole.
//
// In a program with recurrent layers, ops decide where dimension 1 has an unknown size: it is the
// batch of what a layer takes as [time, batch, ...], and of other data with which more values have
// known relations then, such as labels and first states. O(arguments), and a few walks over the
// program (BatchFlow) for each such variable.
absl::StatusOr<FeedLayouts> FeedLayoutsOf(const Program& program, const FeedLayouts& given = {});

// Those of the data of all programs, one per rank, at least one. Where ranks declare a variable
// differently, the first program decides. What a file says (Setting::feeds) counts where `given`
// says nothing, and for data variables only: another tool may have removed some.
absl::StatusOr<FeedLayouts> FeedLayoutsOf(absl::Span<const Program* const> ranks,
                                          const FeedLayouts& given = {},
                                          const FeedLayouts& of_file = {});

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_LAYOUT_GUESS_H_
