// NCCL, loaded by the first call that needs it: a program with CUDA support starts without the library. Includes NCCL's
// headers; for the sources of this folder.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <string>

namespace heddle {

// NCCL's functions under their own names without the prefix.
struct NcclLibrary {
  std::string path;
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRank) comm_init_rank;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclMemAlloc) mem_alloc;
  decltype(&::ncclMemFree) mem_free;
  decltype(&::ncclCommWindowRegister) comm_window_register;
  decltype(&::ncclCommWindowDeregister) comm_window_deregister;
  decltype(&::ncclDevCommCreate) dev_comm_create;
  decltype(&::ncclDevCommDestroy) dev_comm_destroy;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclBroadcast) broadcast;
};

// Loads the library on the first call, and disables its multicast (NCCL_NVLS_ENABLE=0) unless this was built with
// HEDDLE_MULTICAST. Throws Failure when there is none, or another version than that of the build.
const NcclLibrary& nccl_library();

// Throws Failure with NCCL's error text, unless `result` is success.
void check_nccl(const NcclLibrary& nccl, ncclResult_t result, const char* call);

}  // namespace heddle
