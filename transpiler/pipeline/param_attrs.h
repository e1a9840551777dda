// What a program file cannot say about parameters.
#ifndef WEFT_TRANSPILER_PIPELINE_PARAM_ATTRS_H_
#define WEFT_TRANSPILER_PIPELINE_PARAM_ATTRS_H_

#include <map>
#include <string>

namespace weft {

// MindSpore keeps these in its Parameter objects.
struct ParamAttrs {
  // Gradients of equal numbers may share a bucket under the policy `mindspore`; 0: never fused.
  int comm_fusion = 1;
  // Ranks hold different values of the parameter, or servers hold it: its gradient is not reduced.
  bool layerwise_parallel = false;
  bool in_shard = false;
  bool parameter_server = false;

  bool is_replicated() const { return !layerwise_parallel && !in_shard && !parameter_server; }
};

using ParamAttrsByName = std::map<std::string, ParamAttrs>;

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PARAM_ATTRS_H_
