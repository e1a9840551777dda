// The ops by which Paddle's executor feeds and fetches between steps, and by which readers hand out
// batches. They have no schema.
#ifndef WEFT_OPS_SCHEMA_FEED_OPS_H_
#define WEFT_OPS_SCHEMA_FEED_OPS_H_

#include "absl/strings/string_view.h"

namespace weft {

inline bool IsFeed(absl::string_view type) { return type == "feed"; }
// Whether the op's outputs are data of the step.
inline bool HandsOutData(absl::string_view type) { return IsFeed(type) || type == "read"; }
inline bool IsFetch(absl::string_view type) { return type == "fetch" || type == "fetch_v2"; }

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FEED_OPS_H_
