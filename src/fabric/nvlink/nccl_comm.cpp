#include "fabric/nvlink/nccl_comm.h"

#include <algorithm>

#include "base/checked.h"
#include "base/cuda_call.h"
#include "base/log.h"
#include "fabric/nvlink/nccl_window.h"
#include "fabric/nvlink/within_deadline.h"

namespace heddle {
namespace {

// NCCL takes seconds to connect: it inspects the machine, starts threads and loads its kernels.
constexpr std::chrono::seconds kLeast{60};

constexpr std::chrono::seconds kLongestWhenAborting{2};

constexpr std::size_t kGranularity = std::size_t{2} << 20;  // of the GPU's memory mappings

}  // namespace

// The ranks meet before each call in which NCCL would make them wait without a deadline, so that the exchange names a
// missing rank. What remains is a rank that is lost inside the call.
template <class Call>
void NcclComm::run(const char* what, Call call) {
  meet("NCCL call");
  within_deadline(std::max<std::chrono::nanoseconds>(deadline_, kLeast),
                  fmt::format("rank {}: {}", exchange_.rank(), what), [device = device_, call] {
                    check_cuda(cudaSetDevice(device), "cudaSetDevice");
                    call();
                  });
}

NcclComm::NcclComm(HostExchange& exchange, std::span<const int> team, int device, std::chrono::nanoseconds deadline)
    : nccl_(nccl_library()),
      exchange_(exchange),
      team_(team.begin(), team.end()),
      world_rank_(exchange.rank()),
      device_(device),
      deadline_(deadline) {
  require_team(team, exchange.size(), exchange.rank(), "a communicator of NCCL");
  rank_ = static_cast<int>(std::find(team_.begin(), team_.end(), exchange.rank()) - team_.begin());
  ncclUniqueId own{};
  if (rank_ == 0) check_nccl(nccl_, nccl_.get_unique_id(&own), "ncclGetUniqueId");
  const ncclUniqueId id = exchange_.gather(team_, own, "NCCL's id").front();
  auto comm = std::make_shared<ncclComm_t>(nullptr);
  run("ncclCommInitRank", [&nccl = nccl_, comm, id, rank = rank_, size = size()] {
    check_nccl(nccl, nccl.comm_init_rank(comm.get(), size, id, rank), "ncclCommInitRank");
  });
  comm_ = *comm;
}

ncclWindow_t NcclComm::window_of(void* memory, std::size_t bytes) {
  auto handle = std::make_shared<ncclWindow_t>(nullptr);
  run("ncclCommWindowRegister", [&nccl = nccl_, comm = comm_, memory, bytes, handle] {
    check_nccl(nccl, nccl.comm_window_register(comm, memory, bytes, handle.get(), NCCL_WIN_COLL_SYMMETRIC),
               "ncclCommWindowRegister");
  });
  // NCCL may report success without a window, or with an invalid handle: a usable one lies in the GPU's memory.
  cudaPointerAttributes attributes{};
  const bool usable = *handle != nullptr && cudaPointerGetAttributes(&attributes, *handle) == cudaSuccess &&
                      attributes.type == cudaMemoryTypeDevice;
  cudaGetLastError();
  if (!usable)
    throw_error<Failure>(
        "NCCL registered cuda:{}'s memory without a symmetric window: are NCCL_CUMEM_ENABLE=0, NCCL_P2P_DISABLE=1 or "
        "NCCL_WIN_ENABLE=0 set, or GPUs without peer access in use? The fabric's memory cuda_ipc needs no window",
        device_);
  return *handle;
}

void NcclComm::register_window(std::span<std::byte> memory) {
  const CurrentDevice current(device_);
  const std::size_t bytes = round_up(memory.size(), kGranularity);
  windows_.push_back({nullptr, window_of(memory.data(), bytes)});
}

NcclComm::Window NcclComm::allocate_window(std::size_t size_bytes) {
  require(size_bytes > 0, "a window of 0 bytes");
  const std::size_t bytes = round_up(size_bytes, kGranularity);
  const CurrentDevice current(device_);
  Window window{};
  void* memory = nullptr;
  check_nccl(nccl_, nccl_.mem_alloc(&memory, bytes), "ncclMemAlloc");
  window.data = static_cast<std::byte*>(memory);
  windows_.push_back(window);  // the destructor frees it from here on
  check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  window.handle = window_of(memory, bytes);
  windows_.back() = window;
  return window;
}

std::vector<std::byte*> NcclComm::addresses(const Window& window) {
  const CurrentDevice current(device_);
  // The device communicator requests nothing, least of all multicast; it tells how many ranks loads and stores reach.
  auto dev_comm = std::make_shared<ncclDevComm>();
  run("ncclDevCommCreate", [&nccl = nccl_, comm = comm_, dev_comm] {
    const ncclDevCommRequirements requirements{};
    check_nccl(nccl, nccl.dev_comm_create(comm, &requirements, dev_comm.get()), "ncclDevCommCreate");
  });
  dev_comms_.push_back(dev_comm);
  if (dev_comm->lsaSize != size())
    throw_error<Failure>("NCCL joins {} of the {} ranks by loads and stores: GPUs without peer access?",
                         dev_comm->lsaSize, size());
  std::vector<std::byte*> heaps = window_addresses(window.handle, size());
  heaps[static_cast<std::size_t>(rank_)] = window.data;  // the same memory at the address that NCCL has registered
  return heaps;
}

void NcclComm::close() {
  const CurrentDevice current(device_);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const auto& dev_comm : dev_comms_)
    run("ncclDevCommDestroy", [&nccl = nccl_, comm = comm_, dev_comm] {
      check_nccl(nccl, nccl.dev_comm_destroy(comm, dev_comm.get()), "ncclDevCommDestroy");
    });
  dev_comms_.clear();
  for (Window& window : windows_) {
    if (window.handle == nullptr) continue;
    run("ncclCommWindowDeregister", [&nccl = nccl_, comm = comm_, handle = window.handle] {
      check_nccl(nccl, nccl.comm_window_deregister(comm, handle), "ncclCommWindowDeregister");
    });
    window.handle = nullptr;
  }
  run("ncclCommDestroy",
      [&nccl = nccl_, comm = comm_] { check_nccl(nccl, nccl.comm_destroy(comm), "ncclCommDestroy"); });
  comm_ = nullptr;
}

void NcclComm::abort() {
  if (comm_ == nullptr) return;
  // ncclCommAbort leaves the windows' mappings, and with them the GPU's memory (seen with 2.28.9), so they go first. A
  // rank whose peers are gone may wait there, so this has a short deadline.
  for (Window& window : windows_) {
    if (window.handle == nullptr) continue;
    try {
      within_deadline(kLongestWhenAborting, "ncclCommWindowDeregister",
                      [&nccl = nccl_, comm = comm_, device = device_, handle = window.handle] {
                        cudaSetDevice(device);
                        nccl.comm_window_deregister(comm, handle);
                      });
      window.handle = nullptr;
    } catch (const Failure& failure) {
      log_warning("rank {}: {}", world_rank_, failure.what());
      break;
    }
  }
  try {
    within_deadline(kLeast, "ncclCommAbort", [&nccl = nccl_, comm = comm_, device = device_] {
      cudaSetDevice(device);
      nccl.comm_abort(comm);
    });
  } catch (const Failure& failure) {
    log_warning("rank {}: {}", world_rank_, failure.what());
  }
  comm_ = nullptr;
}

NcclComm::~NcclComm() {
  abort();
  int former = 0;
  cudaGetDevice(&former);
  cudaSetDevice(device_);
  for (const Window& window : windows_)
    if (window.data != nullptr) nccl_.mem_free(window.data);
  cudaSetDevice(former);
}

}  // namespace heddle
