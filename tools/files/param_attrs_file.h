// The file of --param_attrs.
#ifndef WEFT_TOOLS_FILES_PARAM_ATTRS_FILE_H_
#define WEFT_TOOLS_FILES_PARAM_ATTRS_FILE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {

// {"fc_0.w_0": {"comm_fusion": 2, "group": "g0", "layerwise_parallel": true, "in_shard": false,
// "parameter_server": false}, ..., "groups": {"g0": [0, 1]}}; each key may be absent. "groups" is
// no parameter: it names sets of ranks. InvalidArgument with the parameter, the key, what was
// expected and what was found.
absl::StatusOr<ParamAttrsByName> ParseParamAttrs(absl::string_view json);

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_PARAM_ATTRS_FILE_H_
