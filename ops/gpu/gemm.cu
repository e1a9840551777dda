#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/loaded_library.h"
#include "base/status_macros.h"
#include "ops/float16.h"
#include "ops/gpu/cuda_status.h"
#include "ops/gpu/gemm.h"
#include "ops/gpu/launch.h"

namespace weft {
namespace {

constexpr size_t kWorkspaceBytes = 32 << 20;  // for Hopper's algorithms

// The functions of the library, named as there without "cublasLt".
struct CublasLt {
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;

  absl::Status StatusOf(cublasStatus_t error, absl::string_view call) const {
    if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(call, ": ", GetStatusString(error)));
  }
};

// The version whose header declares the functions.
std::string DefaultFile() { return absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR); }

absl::StatusOr<std::unique_ptr<CublasLt>> LoadFile(const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(
      void* const handle,
      LoadLibrary(file, RTLD_LOCAL,
                  "products of matrices need cuBLASLt, sought beside the program, in the CUDA "
                  "toolkit of the build, in LD_LIBRARY_PATH and in the system's directories"));
  auto lt = std::make_unique<CublasLt>();
  std::string missing;
  const auto find = [&](const char* name, auto** function) {
    if (!FindSymbol(handle, name, function) && missing.empty()) missing = name;
  };
  find("cublasLtGetStatusString", &lt->GetStatusString);
  find("cublasLtCreate", &lt->Create);
  find("cublasLtDestroy", &lt->Destroy);
  find("cublasLtMatmul", &lt->Matmul);
  find("cublasLtMatmulDescCreate", &lt->MatmulDescCreate);
  find("cublasLtMatmulDescDestroy", &lt->MatmulDescDestroy);
  find("cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute);
  find("cublasLtMatrixLayoutCreate", &lt->MatrixLayoutCreate);
  find("cublasLtMatrixLayoutDestroy", &lt->MatrixLayoutDestroy);
  find("cublasLtMatrixLayoutSetAttribute", &lt->MatrixLayoutSetAttribute);
  find("cublasLtMatmulPreferenceCreate", &lt->MatmulPreferenceCreate);
  find("cublasLtMatmulPreferenceDestroy", &lt->MatmulPreferenceDestroy);
  find("cublasLtMatmulPreferenceSetAttribute", &lt->MatmulPreferenceSetAttribute);
  find("cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic);
  if (missing.empty()) return lt;
  (void)dlclose(handle);
  return absl::UnavailableError(
      absl::StrCat(file, ": expected cuBLASLt, found a library without ", missing));
}

// Shared by the products on a stream, which run one after the other.
struct Library {
  const CublasLt* lt = nullptr;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;

  Library() = default;
  ~Library() {
    if (workspace != nullptr) (void)cudaFree(workspace);
    if (handle != nullptr) (void)lt->Destroy(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // The library of the current device and the stream, made on first use; lives as long as a product
  // that holds it. Thread-safe.
  static absl::StatusOr<std::shared_ptr<Library>> Of(cudaStream_t stream) {
    static auto* const mutex = new std::mutex();
    static auto* const libraries =
        new std::map<std::pair<int, cudaStream_t>, std::weak_ptr<Library>>();
    int device = 0;
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
    std::lock_guard<std::mutex> lock(*mutex);
    std::weak_ptr<Library>& entry = (*libraries)[{device, stream}];
    std::shared_ptr<Library> library = entry.lock();
    if (library != nullptr) return library;
    library = std::make_shared<Library>();
    WEFT_ASSIGN_OR_RETURN(library->lt, LoadOnce<CublasLt>(DefaultFile(), LoadFile));
    WEFT_RETURN_IF_ERROR(
        library->lt->StatusOf(library->lt->Create(&library->handle), "cublasLtCreate"));
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&library->workspace, kWorkspaceBytes), "cudaMalloc"));
    entry = library;
    return library;
  }
};

// In bytes, up to the largest alignment that cuBLASLt distinguishes.
uint32_t AlignmentOf(const void* pointer) {
  constexpr uintptr_t kLargest = 256;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | kLargest;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

}  // namespace

class GpuGemm::Impl {
 public:
  explicit Impl(bool tf32) : tf32_(tf32) {}
  ~Impl() { Forget(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  template <typename T, typename To>
  absl::Status Run(const KernelContext& ctx, const GpuGemmShape& shape, const T* a, const T* b,
                   To* c) {
    if (shape.m == 0 || shape.n == 0 || shape.batch == 0) return absl::OkStatus();
    if (shape.k == 0) {  // an empty sum
      return Clear(ctx, c, sizeof(To) * shape.batch * shape.m * shape.n);
    }
    const Types types = {CudaType(T()), CudaType(To())};
    if (library_ == nullptr || stream_ != StreamOf(ctx)) {
      WEFT_ASSIGN_OR_RETURN(library_, Library::Of(StreamOf(ctx)));
      stream_ = StreamOf(ctx);
      Forget();
    }
    const Alignments alignments = {AlignmentOf(a), AlignmentOf(b), AlignmentOf(c)};
    if (product_ == nullptr || types != types_ || !(shape == shape_) || alignments != alignments_) {
      const absl::Status planned = Plan(types, shape, alignments);
      if (!planned.ok()) Forget();
      WEFT_RETURN_IF_ERROR(planned);
    }
    // Row-major C is column-major C', and C' = B' A'.
    using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const Sum alpha = static_cast<Sum>(shape.alpha), zero = 0;
    return Lt().StatusOf(
        Lt().Matmul(library_->handle, product_, &alpha, b, b_, a, a_, &zero, c, c_, c, c_,
                    &algorithm_, library_->workspace, kWorkspaceBytes, StreamOf(ctx)),
        "cublasLtMatmul");
  }

 private:
  const CublasLt& Lt() const { return *library_->lt; }

  using Alignments = std::array<uint32_t, 3>;               // of a, b, c
  using Types = std::pair<cudaDataType_t, cudaDataType_t>;  // of the operands, of the result

  static cudaDataType_t CudaType(float) { return CUDA_R_32F; }
  static cudaDataType_t CudaType(double) { return CUDA_R_64F; }
  static cudaDataType_t CudaType(Float16) { return CUDA_R_16F; }
  static cudaDataType_t CudaType(BFloat16) { return CUDA_R_16BF; }

  absl::Status Plan(const Types& types, const GpuGemmShape& s, const Alignments& alignments) {
    Forget();
    const bool is_double = types.first == CUDA_R_64F;
    cublasComputeType_t compute = is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    if (tf32_ && types.first == CUDA_R_32F) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    const cudaDataType_t sum = is_double ? CUDA_R_64F : CUDA_R_32F;
    WEFT_RETURN_IF_ERROR(
        Lt().StatusOf(Lt().MatmulDescCreate(&product_, compute, sum), "cublasLtMatmulDescCreate"));
    // The first operand of cuBLAS is B, the second A.
    WEFT_RETURN_IF_ERROR(SetTranspose(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b));
    WEFT_RETURN_IF_ERROR(SetTranspose(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a));
    // The matrices in memory, column-major.
    const auto layout = [&](cublasLtMatrixLayout_t* to, cudaDataType_t type, int64_t rows,
                            int64_t columns, bool repeats) -> absl::Status {
      WEFT_RETURN_IF_ERROR(Lt().StatusOf(Lt().MatrixLayoutCreate(to, type, rows, columns, rows),
                                         "cublasLtMatrixLayoutCreate"));
      const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
        return Lt().StatusOf(Lt().MatrixLayoutSetAttribute(*to, attribute, &value, sizeof(value)),
                             "cublasLtMatrixLayoutSetAttribute");
      };
      if (s.batch == 1) return absl::OkStatus();
      if (s.batch > std::numeric_limits<int32_t>::max()) {
        return absl::UnimplementedError(absl::StrCat("no product of ", s.batch, " matrices"));
      }
      WEFT_RETURN_IF_ERROR(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(s.batch)));
      return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                 repeats ? int64_t{0} : rows * columns);
    };
    WEFT_RETURN_IF_ERROR(s.transpose_b ? layout(&b_, types.first, s.k, s.n, s.repeats_b)
                                       : layout(&b_, types.first, s.n, s.k, s.repeats_b));
    WEFT_RETURN_IF_ERROR(s.transpose_a ? layout(&a_, types.first, s.m, s.k, s.repeats_a)
                                       : layout(&a_, types.first, s.k, s.m, s.repeats_a));
    WEFT_RETURN_IF_ERROR(layout(&c_, types.second, s.n, s.m, false));
    WEFT_RETURN_IF_ERROR(Choose(alignments));
    types_ = types, shape_ = s;
    alignments_ = alignments;
    return absl::OkStatus();
  }

  absl::Status SetTranspose(cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    return Lt().StatusOf(
        Lt().MatmulDescSetAttribute(product_, attribute, &operation, sizeof(operation)),
        "cublasLtMatmulDescSetAttribute");
  }

  // The first algorithm that cuBLASLt recommends, which sizes, alignments and the device determine.
  // Without hints it assumes pointers aligned to 256 bytes.
  absl::Status Choose(const Alignments& alignments) {
    cublasLtMatmulPreference_t preference = nullptr;
    WEFT_RETURN_IF_ERROR(
        Lt().StatusOf(Lt().MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
    const size_t bytes = kWorkspaceBytes;
    cublasStatus_t error = Lt().MatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    // The first operand of cuBLAS is B.
    const std::pair<cublasLtMatmulPreferenceAttributes_t, uint32_t> hints[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]}};
    for (const auto& [attribute, value] : hints) {
      if (error != CUBLAS_STATUS_SUCCESS) break;
      error = Lt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
    }
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    if (error == CUBLAS_STATUS_SUCCESS) {
      error = Lt().MatmulAlgoGetHeuristic(library_->handle, product_, b_, a_, c_, c_, preference, 1,
                                          &result, &found);
    }
    (void)Lt().MatmulPreferenceDestroy(preference);
    WEFT_RETURN_IF_ERROR(Lt().StatusOf(error, "cublasLtMatmulAlgoGetHeuristic"));
    if (found == 0) return absl::UnimplementedError("cuBLASLt has no algorithm for the product");
    algorithm_ = result.algo;
    return absl::OkStatus();
  }

  void Forget() {
    for (cublasLtMatrixLayout_t* layout : {&a_, &b_, &c_}) {
      if (*layout != nullptr) (void)Lt().MatrixLayoutDestroy(*layout);
      *layout = nullptr;
    }
    if (product_ != nullptr) (void)Lt().MatmulDescDestroy(product_);
    product_ = nullptr;
  }

  const bool tf32_;
  std::shared_ptr<Library> library_;  // of stream_
  cudaStream_t stream_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_;
  // The arguments of the plan.
  Types types_ = {CUDA_R_32F, CUDA_R_32F};
  GpuGemmShape shape_;
  Alignments alignments_ = {};
};

GpuGemm::GpuGemm(bool tf32) : impl_(std::make_unique<Impl>(tf32)) {}
GpuGemm::~GpuGemm() = default;

absl::Status GpuGemm::Load(const std::string& file) {
  return LoadOnce<CublasLt>(file.empty() ? DefaultFile() : file, LoadFile).status();
}

template <typename T, typename To>
absl::Status GpuGemm::Run(const KernelContext& ctx, const GpuGemmShape& shape, const T* a,
                          const T* b, To* c) {
  return impl_->Run(ctx, shape, a, b, c);
}

WEFT_INSTANTIATE_GPU_GEMM

}  // namespace weft
