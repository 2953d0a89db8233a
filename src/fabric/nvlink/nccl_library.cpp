#include "fabric/nvlink/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "base/shared_library.h"
#include "fabric/nvlink/nccl_version.h"

namespace heddle {
namespace {

#if HEDDLE_MULTICAST
constexpr bool kMulticast = true;
#else
constexpr bool kMulticast = false;
#endif

NcclLibrary load() {
  // Before NCCL reads its environment. Multicast puts state into the switches that all GPUs of the machine share.
  if (!kMulticast) setenv("NCCL_NVLS_ENABLE", "0", 1);
  constexpr const char* kName = "libnccl.so.2";
  const SharedLibrary library("NCCL " + nccl_version_text(NCCL_VERSION_CODE), {kName});
  NcclLibrary nccl;
  library.find("ncclGetVersion", nccl.get_version);
  Dl_info where{};
  nccl.path = dladdr(reinterpret_cast<void*>(nccl.get_version), &where) != 0 && where.dli_fname != nullptr
                  ? where.dli_fname
                  : kName;
  int version = 0;
  nccl.get_version(&version);
  // Before the other functions: another version may have them with other parameters.
  if (const std::string mismatch = nccl_mismatch(NCCL_VERSION_CODE, version, nccl.path); !mismatch.empty())
    throw Failure(mismatch);
  library.find("ncclGetErrorString", nccl.get_error_string);
  library.find("ncclGetLastError", nccl.get_last_error);
  library.find("ncclGetUniqueId", nccl.get_unique_id);
  library.find("ncclCommInitRank", nccl.comm_init_rank);
  library.find("ncclCommDestroy", nccl.comm_destroy);
  library.find("ncclCommAbort", nccl.comm_abort);
  library.find("ncclMemAlloc", nccl.mem_alloc);
  library.find("ncclMemFree", nccl.mem_free);
  library.find("ncclCommWindowRegister", nccl.comm_window_register);
  library.find("ncclCommWindowDeregister", nccl.comm_window_deregister);
  library.find("ncclDevCommCreate", nccl.dev_comm_create);
  library.find("ncclDevCommDestroy", nccl.dev_comm_destroy);
  library.find("ncclGroupStart", nccl.group_start);
  library.find("ncclGroupEnd", nccl.group_end);
  library.find("ncclSend", nccl.send);
  library.find("ncclRecv", nccl.recv);
  library.find("ncclAllReduce", nccl.all_reduce);
  library.find("ncclAllGather", nccl.all_gather);
  library.find("ncclReduceScatter", nccl.reduce_scatter);
  library.find("ncclBroadcast", nccl.broadcast);
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();  // loaded again by the next call if this throws
  return library;
}

void check_nccl(const NcclLibrary& nccl, ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw_error<Failure>("NCCL: {}: {} ({})", call, nccl.get_error_string(result), nccl.get_last_error(nullptr));
}

}  // namespace heddle
