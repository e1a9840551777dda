// Where the values that a run is fed with come from.
#ifndef WEFT_EXECUTOR_FEED_SOURCES_H_
#define WEFT_EXECUTOR_FEED_SOURCES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/feeder.h"
#include "executor/feeds.h"
#include "proto/program.h"

namespace weft {

// The arrays of a file, step by step; after its last step it starts over.
FeedSource FeedsFrom(std::shared_ptr<const FeedFile> file);

// A variable that has the same value before every step: a learning rate that the host decides on.
struct FixedValue {
  std::string name;
  double value = 0;
};

// `source`, and besides it the given variables of the program's root block, each filled with its
// value. InvalidArgument, naming the variable, where it is not declared there, not persistable,
// written by an op or fed already, is no tensor of fixed dimensions and a real element type, or
// where the element type cannot hold the value.
absl::StatusOr<FeedSource> WithFixedValues(FeedSource source, const Program& main,
                                           absl::Span<const FixedValue> values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FEED_SOURCES_H_
