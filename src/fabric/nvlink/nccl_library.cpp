#include "fabric/nvlink/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "fabric/nvlink/nccl_version.h"

namespace heddle {
namespace {

#if HEDDLE_MULTICAST
constexpr bool kMulticast = true;
#else
constexpr bool kMulticast = false;
#endif

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw_error<Failure>("NCCL: the library has no {}", name);
}

NcclLibrary load() {
  // Before NCCL reads its environment. Multicast puts state into the switches that all GPUs of the machine share.
  if (!kMulticast) setenv("NCCL_NVLS_ENABLE", "0", 1);
  constexpr const char* kName = "libnccl.so.2";
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw_error<Failure>("NCCL {} is needed and was not found ({}): put its folder into LD_LIBRARY_PATH",
                         nccl_version_text(NCCL_VERSION_CODE), dlerror());
  NcclLibrary nccl;
  find(library, "ncclGetVersion", nccl.get_version);
  Dl_info where{};
  nccl.path = dladdr(reinterpret_cast<void*>(nccl.get_version), &where) != 0 && where.dli_fname != nullptr
                  ? where.dli_fname
                  : kName;
  int version = 0;
  nccl.get_version(&version);
  // First of all: another version may well have the functions, and other ideas of what they take.
  if (const std::string mismatch = nccl_mismatch(NCCL_VERSION_CODE, version, nccl.path); !mismatch.empty())
    throw Failure(mismatch);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  find(library, "ncclGetLastError", nccl.get_last_error);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRank", nccl.comm_init_rank);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclMemAlloc", nccl.mem_alloc);
  find(library, "ncclMemFree", nccl.mem_free);
  find(library, "ncclCommWindowRegister", nccl.comm_window_register);
  find(library, "ncclCommWindowDeregister", nccl.comm_window_deregister);
  find(library, "ncclDevCommCreate", nccl.dev_comm_create);
  find(library, "ncclDevCommDestroy", nccl.dev_comm_destroy);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.recv);
  find(library, "ncclAllReduce", nccl.all_reduce);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, "ncclBroadcast", nccl.broadcast);
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();  // tried again by the next call when it throws
  return library;
}

void check_nccl(const NcclLibrary& nccl, ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw_error<Failure>("NCCL: {}: {} ({})", call, nccl.get_error_string(result), nccl.get_last_error(nullptr));
}

}  // namespace heddle
