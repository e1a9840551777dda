// The ops by which Paddle's executor feeds and fetches between steps, and by which readers hand out
// batches. They have no schema.
#ifndef WEFT_OPS_SCHEMA_FEED_OPS_H_
#define WEFT_OPS_SCHEMA_FEED_OPS_H_

#include "absl/strings/string_view.h"

namespace weft {

inline bool IsFeed(absl::string_view type) { return type == "feed"; }
// Whether the op's outputs are data of the step.
inline bool HandsOutData(absl::string_view type) { return IsFeed(type) || type == "read"; }
// Whether the op makes the reader of such an op. Weft's executor has none: it feeds by name.
inline bool MakesReader(absl::string_view type) {
  return type == "create_py_reader" || type == "create_double_buffer_reader" ||
         type == "create_ctr_reader" || type == "create_custom_reader";
}
inline bool IsFetch(absl::string_view type) { return type == "fetch" || type == "fetch_v2"; }
// Any of these, which do nothing in a step that is fed.
inline bool IsOfFeeds(absl::string_view type) {
  return HandsOutData(type) || MakesReader(type) || IsFetch(type);
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FEED_OPS_H_
