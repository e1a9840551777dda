// oneDNN's primitives, as kernels use them.
#ifndef WEFT_OPS_CPU_DNNL_PRIMITIVE_H_
#define WEFT_OPS_CPU_DNNL_PRIMITIVE_H_

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/schema/tensor_type.h"

namespace weft {

const dnnl::engine& DnnlCpuEngine();

// An fp32 image [batch, channels, space...] of two or three dimensions of space, as programs have
// it.
dnnl::memory::desc DnnlImage(const Dims& dims, bool channels_last);

// What primitive descriptions are to be made with. Makes 1 the OpenMP thread count of the calling
// thread: a description divides the work among as many threads as there are when it is made.
dnnl::primitive_attr DnnlAttributes();

// A primitive with the arguments that it runs on. Made once for a shape; runs on the calling thread
// alone, whose OpenMP thread count becomes 1. Arguments that the primitive takes in a layout of its
// own are copied to and from that layout. Their memory, and what the primitive needs besides, is
// the calling thread's, and shared by all primitives that run on it.
class DnnlPrimitive {
 public:
  struct Argument {
    int name;                   // DNNL_ARG_SRC, ...
    dnnl::memory::desc caller;  // how it lies in the caller's memory
    dnnl::memory::desc own;     // how the primitive takes it
    // Of an output: false where the caller has no memory for it, but the primitive gives it.
    bool is_wanted = true;
  };

  // `scratchpad`: of the primitive's description, which was made with DnnlAttributes.
  DnnlPrimitive(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
                const std::vector<Argument>& inputs, const std::vector<Argument>& outputs);

  // A primitive with a workspace that another one, `before`, makes: that runs first, on the first
  // input, as DNNL_ARG_SRC; what else it gives is dropped. Arguments are in the caller's layout.
  struct WorkspaceMaker {
    dnnl::primitive primitive;
    dnnl::memory::desc scratchpad, source, destination, workspace;
  };
  DnnlPrimitive(WorkspaceMaker before, dnnl::primitive primitive,
                const dnnl::memory::desc& scratchpad, const std::vector<Argument>& inputs,
                const Argument& output);

  // Arguments in the order of the constructor; inputs of the second one behind that of `before`. No
  // output overlaps an input, unless the primitive works in place and nothing is copied. What
  // stands for an output that is not wanted does not matter.
  void Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs);

 private:
  // One execution, with its place in the thread's memory for what it needs besides arguments.
  struct Step {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> arguments;
    dnnl::memory scratchpad;
    size_t scratchpad_offset = 0;

    void Run(const dnnl::stream& stream, char* memory);
  };
  struct Operand {
    dnnl::memory caller, own;  // the same, unless it is kept
    bool is_kept = false;      // in the thread's memory: copied, or not wanted
    size_t offset = 0;         // in that memory
  };

  // In the thread's memory, from one step to the next.
  const dnnl::memory& Keep(const dnnl::memory::desc& desc);
  Operand MakeOperand(const Argument& argument, bool is_input);
  Step MakeStep(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
                std::unordered_map<int, dnnl::memory> arguments);
  void AddCopy(const dnnl::memory& from, const dnnl::memory& to);
  size_t Reserve(size_t bytes);

  size_t bytes_ = 0;  // of the thread's memory
  std::vector<Operand> operands_;
  std::vector<Operand> kept_;  // of steps before
  std::vector<Step> steps_;
  dnnl::stream stream_;
};

// The primitive for the shape of the last step. Copies share one that was made before, and run once
// at a time.
template <typename Shape>
class DnnlOfShape {
 public:
  // That of make(shape), called where the shape is not that of the last call.
  template <typename Make>
  DnnlPrimitive& operator()(const Shape& shape, Make make) {
    if (made_ == nullptr || made_->shape != shape) {
      made_ = std::make_shared<Made>(Made{shape, make(shape)});
    }
    return made_->primitive;
  }

 private:
  struct Made {
    Shape shape;
    DnnlPrimitive primitive;
  };
  std::shared_ptr<Made> made_;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_DNNL_PRIMITIVE_H_
