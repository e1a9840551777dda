#include "executor/gpu/nccl_library.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/loaded_library.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr int kOldestVersion = 21400;

absl::Status FindFunctions(void* handle, NcclLibrary* library) {
  std::string missing;
  const auto find = [&](const char* name, auto** function) {
    if (!FindSymbol(handle, name, function) && missing.empty()) missing = name;
  };
  find("ncclGetVersion", &library->GetVersion);
  find("ncclGetErrorString", &library->GetErrorString);
  find("ncclGetUniqueId", &library->GetUniqueId);
  find("ncclCommInitRankConfig", &library->CommInitRankConfig);
  find("ncclCommGetAsyncError", &library->CommGetAsyncError);
  find("ncclCommAbort", &library->CommAbort);
  find("ncclCommFinalize", &library->CommFinalize);
  find("ncclCommDestroy", &library->CommDestroy);
  find("ncclGroupStart", &library->GroupStart);
  find("ncclGroupEnd", &library->GroupEnd);
  find("ncclAllReduce", &library->AllReduce);
  find("ncclReduce", &library->Reduce);
  find("ncclReduceScatter", &library->ReduceScatter);
  find("ncclAllGather", &library->AllGather);
  find("ncclBroadcast", &library->Broadcast);
  find("ncclSend", &library->Send);
  find("ncclRecv", &library->Recv);
  FindSymbol(handle, "ncclCommRegister", &library->CommRegister);
  FindSymbol(handle, "ncclCommDeregister", &library->CommDeregister);
  int version = 0;
  if (library->GetVersion != nullptr) (void)library->GetVersion(&version);
  if (missing.empty() && version >= kOldestVersion) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("expected NCCL 2.14 or later, found version code ",
                                             version, missing.empty() ? "" : " without ", missing));
}

absl::StatusOr<std::unique_ptr<NcclLibrary>> Load(const std::string& file) {
  WEFT_ASSIGN_OR_RETURN(
      void* const handle,
      LoadLibrary(file, RTLD_LOCAL, "install NCCL, or name its directory in LD_LIBRARY_PATH"));
  auto library = std::make_unique<NcclLibrary>();
  const absl::Status status = FindFunctions(handle, library.get());
  if (status.ok()) return library;
  (void)dlclose(handle);
  return absl::UnavailableError(absl::StrCat(file, ": ", status.message()));
}

}  // namespace

absl::Status NcclLibrary::StatusOf(int result, absl::string_view call) const {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", GetErrorString(result)));
}

absl::StatusOr<const NcclLibrary*> LoadNccl(const std::string& file) {
  return LoadOnce<NcclLibrary>(file, Load);
}

}  // namespace weft
