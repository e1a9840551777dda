// Sources of feeds.
#ifndef WEFT_EXECUTOR_RUN_FEED_SOURCES_H_
#define WEFT_EXECUTOR_RUN_FEED_SOURCES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/run/feeder.h"
#include "proto/program.h"

namespace weft {

// The arrays of an .npz file, named "<step>/<variable>". Steps count from 0, and every step has the
// same variables; the source has them sorted. After the last step of the file, the first follows.
// Arrays are read on demand, so the file may be larger than memory; types come from their headers
// alone. InvalidArgument, naming the file and the array: a malformed name, a step that lacks a
// variable of another step, no arrays at all.
absl::StatusOr<FeedSource> FeedsFromFile(const std::string& path);

// Without the last step, if the parts of its batch would differ in size over so many ranks
// (FeedSource::layouts). The error of the source if types cannot be read. O(1) besides that.
absl::StatusOr<FeedSource> WithoutUnevenLastStep(FeedSource source, int nranks);

// A variable that the host sets before every step, such as a learning rate.
struct HostValue {
  std::string name;
  std::function<double(int64_t step)> at;
};
HostValue SameAtAllSteps(std::string name, double value);

// Adds the given variables of the program's root block to `source`, each filled with its value of
// the step. InvalidArgument, naming the variable, if it is not declared in the root block, not
// persistable, written by an op, already fed, or not a tensor of fixed dimensions and a real
// element type, or if the element type cannot represent the value. The value of step 0 is checked
// here, others when they are read.
absl::StatusOr<FeedSource> WithHostValues(FeedSource source, const Program& main,
                                          absl::Span<const HostValue> values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_FEED_SOURCES_H_
