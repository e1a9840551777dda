// Where the values that a run is fed with come from.
#ifndef WEFT_EXECUTOR_FEED_SOURCES_H_
#define WEFT_EXECUTOR_FEED_SOURCES_H_

#include <cstdint>
#include <functional>
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

// A variable whose value the host decides on before every step: a learning rate.
struct HostValue {
  std::string name;
  std::function<double(int64_t step)> at;
};
HostValue SameAtAllSteps(std::string name, double value);

// `source`, and besides it the given variables of the program's root block, each filled with its
// value of the step. InvalidArgument, naming the variable, where it is not declared there, not
// persistable, written by an op or fed already, is no tensor of fixed dimensions and a real element
// type, or where the element type cannot hold the value: that of step 0 here, others when they are
// read.
absl::StatusOr<FeedSource> WithHostValues(FeedSource source, const Program& main,
                                          absl::Span<const HostValue> values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FEED_SOURCES_H_
