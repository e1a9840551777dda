// Wrappers of oneDNN's primitives for kernels.
#ifndef WEFT_OPS_CPU_DNNL_PRIMITIVE_H_
#define WEFT_OPS_CPU_DNNL_PRIMITIVE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/schema/tensor_type.h"

namespace weft {

const dnnl::engine& DnnlCpuEngine();

// Whether oneDNN computes products and convolutions of bf16 with instructions for them, which add
// up in fp32 (VectorUnits of ops/cpu/vector_units.h names them). Without, kernels convert bf16 to
// fp32.
bool HasBFloat16Products();

// An image [batch, channels, space...] of two or three spatial dimensions, in the layout of
// programs.
dnnl::memory::desc DnnlImage(const Dims& dims, bool channels_last,
                             dnnl::memory::data_type type = dnnl::memory::data_type::f32);

// The same, fp32, in blocks of 8 channels, which are next to each other. Channels beyond the last
// are padding.
dnnl::memory::desc DnnlImageInBlocks(const Dims& dims);

// Attributes for primitive descriptions. Sets the OpenMP thread count of the calling thread to
// KernelThreads: a description divides the work among the number of threads at its creation. Throws
// std::bad_alloc where a limit of address space leaves less than 16 MiB for the primitive's code.
dnnl::primitive_attr DnnlAttributes();

// A primitive with the arguments that it runs on. Made once per shape. Runs on KernelThreads
// threads (ops/threads.h), the OpenMP thread count of the calling thread. Arguments that the
// primitive needs in another layout are reordered. The memory for reordered arguments and
// workspaces belongs to the calling thread; all primitives that run on it share it. On the thread
// that makes the primitive, it is there from then on.
class DnnlPrimitive {
 public:
  struct Argument {
    int name;                   // DNNL_ARG_SRC, ...
    dnnl::memory::desc caller;  // layout in the caller's memory
    dnnl::memory::desc own;     // layout of the primitive
    // For an output: false if the caller has no memory for it, but the primitive writes it.
    bool is_wanted = true;
  };

  // `scratchpad`: from the primitive's description, which must be made with DnnlAttributes.
  DnnlPrimitive(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
                const std::vector<Argument>& inputs, const std::vector<Argument>& outputs);

  // A primitive that needs the workspace of another one, `before`. That one runs first, on the
  // first input; its other outputs are dropped.
  struct WorkspaceMaker {
    dnnl::primitive primitive;
    dnnl::memory::desc scratchpad;
    Argument source;
    dnnl::memory::desc destination, workspace;
  };
  DnnlPrimitive(WorkspaceMaker before, dnnl::primitive primitive,
                const dnnl::memory::desc& scratchpad, const std::vector<Argument>& inputs,
                const Argument& output);

  // Arguments in the order of the constructor; the inputs of the second one follow those of
  // `before`. No output may overlap an input, unless the primitive works in place and no argument
  // is reordered. The pointer of an unwanted output is ignored.
  void Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs);

 private:
  // Of the C API, which takes them as they are; that of C++ copies a map in every call. They do not
  // own their memory: operands_, kept_ and the scratchpads do.
  using Arguments = std::vector<dnnl_exec_arg_t>;

  // One execution, with its workspace in the thread's memory.
  struct Step {
    dnnl::primitive primitive;
    Arguments arguments;
    dnnl::memory scratchpad;
    size_t scratchpad_offset = 0;

    void Run(const dnnl::stream& stream, char* memory);
  };
  struct Operand {
    dnnl::memory caller, own;  // the same, unless it is kept
    bool is_kept = false;      // in the thread's memory: reordered, or unwanted
    size_t offset = 0;         // in that memory
  };

  // In the thread's memory, from one step to the next.
  const dnnl::memory& Keep(const dnnl::memory::desc& desc);
  void AddOperand(const Argument& argument, bool is_input, Arguments* arguments);
  Step MakeStep(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
                Arguments arguments);
  void AddResult(const Argument& output, const Operand& operand);
  void AddCopy(const dnnl::memory& from, const dnnl::memory& to);
  size_t Reserve(size_t bytes);

  size_t bytes_ = 0;  // of the thread's memory
  std::vector<Operand> operands_;
  std::vector<Operand> kept_;  // of earlier steps
  std::vector<Step> steps_;
  dnnl::stream stream_;
};

// The primitive for the shape of the last step. Copies share an existing one, and must run one at a
// time.
template <typename Shape>
class DnnlOfShape {
 public:
  // Returns make(shape), which is called only if the shape differs from that of the last call.
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
