#include "fabric/nvlink/nccl_collectives.h"

#include "base/cuda_call.h"
#include "base/log.h"
#include "fabric/nvlink/nccl_comm.h"
#include "fabric/nvlink/nvlink_fabric.h"

namespace heddle {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float16:
      return ncclFloat16;
  }
  throw_error<InvalidArgument>("NCCL: no such dtype");
}

class NcclCollectives final : public VendorCollectives, private Abortable {
 public:
  NcclCollectives(NvlinkFabric& fabric, std::span<const int> team)
      : fabric_(fabric),
        device_(fabric.device()),
        comm_(fabric.exchange(), team, device_.index, fabric.options().fabric.deadline),
        nccl_(comm_.library()) {
    fabric_.add(this);
  }

  ~NcclCollectives() override {
    fabric_.remove(this);
    try {
      if (!fabric_.failed() && std::uncaught_exceptions() == 0) comm_.close();
    } catch (const std::exception& error) {
      log_warning("rank {}: {}", fabric_.rank(), error.what());
    }
  }

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  std::byte* allocate_window(std::size_t size_bytes) override { return comm_.allocate_window(size_bytes).data; }

  void register_heap() override {
    require(fabric_.options().memory == PeerMemoryKind::nccl_windows, "register_heap: the heap's memory is {}",
            name_of(fabric_.options().memory));
    comm_.register_window(fabric_.heap_memory());
  }

  void all_reduce(Stream& stream, void* destination, const void* source, std::size_t count, DType dtype) override {
    enqueue(stream, "ncclAllReduce", [&](cudaStream_t native) {
      return nccl_.all_reduce(source, destination, count, nccl_type(dtype), ncclSum, comm_.get(), native);
    });
  }

  void broadcast(Stream& stream, int root, void* destination, const void* source, std::size_t count,
                 DType dtype) override {
    require(root >= 0 && root < size(), "broadcast: rank {} is not in a team of {}", root, size());
    enqueue(stream, "ncclBroadcast", [&](cudaStream_t native) {
      return nccl_.broadcast(source, destination, count, nccl_type(dtype), root, comm_.get(), native);
    });
  }

  void all_gather(Stream& stream, void* destination, const void* source, std::size_t count_each, DType dtype) override {
    enqueue(stream, "ncclAllGather", [&](cudaStream_t native) {
      return nccl_.all_gather(source, destination, count_each, nccl_type(dtype), comm_.get(), native);
    });
  }

  void reduce_scatter(Stream& stream, void* destination, const void* source, std::size_t count_each,
                      DType dtype) override {
    enqueue(stream, "ncclReduceScatter", [&](cudaStream_t native) {
      return nccl_.reduce_scatter(source, destination, count_each, nccl_type(dtype), ncclSum, comm_.get(), native);
    });
  }

  void all_to_all(Stream& stream, void* destination, const void* source, std::size_t count_each, DType dtype) override {
    require(destination != source || count_each == 0, "NCCL's all_to_all does not work in place");
    const std::size_t bytes_each = count_each * size_of(dtype);
    enqueue(stream, "ncclSend and ncclRecv", [&](cudaStream_t native) {
      check_nccl(nccl_, nccl_.group_start(), "ncclGroupStart");
      ncclResult_t worst = ncclSuccess;
      for (int peer = 0; peer < size(); ++peer) {
        const std::size_t piece = static_cast<std::size_t>(peer) * bytes_each;
        const ncclResult_t sent = nccl_.send(static_cast<const std::byte*>(source) + piece, count_each,
                                             nccl_type(dtype), peer, comm_.get(), native);
        const ncclResult_t received = nccl_.recv(static_cast<std::byte*>(destination) + piece, count_each,
                                                 nccl_type(dtype), peer, comm_.get(), native);
        if (worst == ncclSuccess) worst = sent != ncclSuccess ? sent : received;
      }
      const ncclResult_t ended = nccl_.group_end();  // also after an error: the group must not stay open
      return worst != ncclSuccess ? worst : ended;
    });
  }

 private:
  template <class Call>
  void enqueue(Stream& stream, const char* what, Call call) {
    require(stream.device() == device_, "{}: takes streams of {}, not of {}", what, name_of(device_),
            name_of(stream.device()));
    if (comm_.get() == nullptr) throw_error<Failure>("{}: the team's communicator has been ended by a failure", what);
    const CurrentDevice current(device_.index);
    check_nccl(nccl_, call(static_cast<cudaStream_t>(stream.native())), what);
  }

  void abort() override { comm_.abort(); }

  NvlinkFabric& fabric_;
  Device device_;
  NcclComm comm_;
  const NcclLibrary& nccl_;
};

}  // namespace

bool nccl_available() {
  try {
    nccl_library();
    return true;
  } catch (const Failure&) {
    return false;
  }
}

std::unique_ptr<VendorCollectives> open_nccl(Fabric& fabric, std::span<const int> team) {
  auto* nvlink = dynamic_cast<NvlinkFabric*>(&fabric);
  if (nvlink == nullptr) require_capability(fabric, Capability::vendor_collectives, "NCCL's collectives");
  require(nvlink != nullptr, "NCCL's collectives run on the fabric nvlink, not on {}", fabric.name());
  return std::make_unique<NcclCollectives>(*nvlink, team);
}

}  // namespace heddle
