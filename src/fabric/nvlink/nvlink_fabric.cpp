#include "fabric/nvlink/nvlink_fabric.h"

#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "base/checked.h"
#include "base/cuda_call.h"
#include "base/log.h"
#include "fabric/call_checks.h"
#include "fabric/nvlink/closing.h"
#include "fabric/nvlink/gpu_name.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/nvlink/nvlink_kernels.h"
#include "fabric/nvlink/transfer_path.h"
#include "fabric/nvlink/within_deadline.h"

namespace heddle {
namespace {

std::size_t words(std::size_t count) {
  return count * sizeof(std::uint64_t);
}

// Bytes that the fabric itself uses, at the beginning of each heap.
std::size_t own_bytes(std::size_t size) {
  return words(TeamTable::kMostTeams * size) + words(TeamTable::kMostTeams) + words(size);
}

// Makes `device` the thread's current one, or throws why that is impossible.
int current_device(int device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();
    throw_error<Failure>("nvlink: no GPU: {}", cudaGetErrorString(error));
  }
  if (device < 0 || device >= count)
    throw_error<Failure>("nvlink: there is no cuda:{}, this process sees {} GPUs; start as many ranks as GPUs", device,
                         count);
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  return device;
}

// Whether CUDA loads all kernels when it starts. A kernel that is loaded at its first launch may wait for those of a
// rank on the same GPU, which wait for it.
bool loads_kernels_at_start() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuModuleGetLoadingMode", &found, 11070, cudaEnableDefault, &result),
             "cudaGetDriverEntryPointByVersion(cuModuleGetLoadingMode)");
  if (result != cudaDriverEntryPointSuccess) return true;  // a driver that cannot load them later
  CUmoduleLoadingMode mode{};
  const auto get = reinterpret_cast<decltype(&cuModuleGetLoadingMode)>(found);
  return get(&mode) == CUDA_SUCCESS && mode == CU_MODULE_EAGER_LOADING;
}

// What ranks that share a GPU need of CUDA, which reads both variables when it starts.
void require_settings_for_sharing(int rank) {
  constexpr int kQueues = 32;
  if (!loads_kernels_at_start())
    throw_error<Failure>(
        "nvlink: rank {}: ranks that share a GPU need CUDA_MODULE_LOADING=EAGER set before CUDA starts; set it for the "
        "whole process",
        rank);
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues == nullptr || std::atoi(queues) < kQueues)
    throw_error<Failure>(
        "nvlink: rank {}: ranks that share a GPU need CUDA_DEVICE_MAX_CONNECTIONS={} set before CUDA starts, found "
        "{}; set it for the whole process",
        rank, kQueues, queues == nullptr ? "none" : queues);
}

bool is(const WaitRecord& record, WaitRecord::State state) {
  return atomic_load(&record.state) == state;
}

}  // namespace

std::string_view name_of(PeerMemoryKind kind) {
  return kind == PeerMemoryKind::nccl_windows ? "nccl_windows" : "cuda_ipc";
}

std::size_t nvlink_host_heap_bytes(int world_size) {
  return HostExchange::heap_bytes(world_size) + TeamTable::kHeapBytes;
}

std::unique_ptr<Fabric> open_nvlink(std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options) {
  return std::make_unique<NvlinkFabric>(std::move(host), device, options);
}

PinnedRecord::PinnedRecord() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(WaitRecord), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  record_ = new (memory) WaitRecord;
}

PinnedRecord::~PinnedRecord() {
  cudaFreeHost(record_);
}

NvlinkFabric::NvlinkFabric(Unopened, std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options)
    : host_(std::move(host)),
      options_(options),
      device_(current_device(device)),
      exchange_(*host_),
      teams_(*host_),
      record_(std::make_unique<PinnedRecord>()),
      allocated_(checked_add(own_bytes(static_cast<std::size_t>(host_->size())) + SymmetricHeap::kAlignment,
                             options.fabric.heap_bytes, "heap_bytes")),
      exceptions_at_start_(std::uncaught_exceptions()) {
  require(options.fabric.deadline.count() > 0, "nvlink: a deadline of {} ns", options.fabric.deadline.count());
}

// If this throws, the destructor runs, because the delegated constructor has ended: memory that others may have mapped
// by then is freed as after any failure.
NvlinkFabric::NvlinkFabric(std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options)
    : NvlinkFabric(Unopened{}, std::move(host), device, options) {
  check_peers();
  nvlink::load_kernels(NvlinkFabric::device());
  recorded_waits_ = std::make_unique<RecordedWaits>(NvlinkFabric::device());
  const PeerMemoryRequest request{&exchange_, device_, allocated_.size_bytes(), options_.fabric.deadline};
  memory_ = options_.memory == PeerMemoryKind::nccl_windows ? nccl_windows(request) : cuda_ipc(request);
  memory_->map();
  const auto ranks = static_cast<std::size_t>(size());
  auto* own = reinterpret_cast<std::uint64_t*>(heap() + allocated_.allocate(own_bytes(ranks)).offset);
  arrived_ = own;
  entered_ = own + TeamTable::kMostTeams * ranks;
  probe();
  exchange_.meet(exchange_.world(), "probes read");  // and the probe's GPU memory is freed
}

// Every rank checks its own pairs. A rank that finds an error ends the others.
void NvlinkFabric::check_peers() {
  struct Hello {
    std::size_t heap_bytes;
    GpuName gpu;
    int sms;
    PeerMemoryKind memory;
  };
  Hello mine{options_.fabric.heap_bytes, gpu_name(device_), 0, options_.memory};
  check_cuda(cudaDeviceGetAttribute(&mine.sms, cudaDevAttrMultiProcessorCount, device_), "cudaDeviceGetAttribute");
  const std::vector<Hello> all = exchange_.gather(exchange_.world(), mine, "GPUs");
  share_.sms = mine.sms;
  for (const Hello& one : all) {
    const auto ranks = static_cast<int>(std::count_if(all.begin(), all.end(), [&](const Hello& other) {
      return std::string_view(other.gpu.text) == std::string_view(one.gpu.text);
    }));
    share_ = {std::max(share_.ranks, ranks), std::min(share_.sms, one.sms / ranks)};
  }
  if (share_.ranks > 1) require_settings_for_sharing(rank());
  for (int peer = 0; peer < size(); ++peer) {
    const Hello& other = all[static_cast<std::size_t>(peer)];
    require(other.heap_bytes == mine.heap_bytes, "nvlink: rank {} asks for a heap of {} bytes, rank {} for {}", rank(),
            mine.heap_bytes, peer, other.heap_bytes);
    require(other.memory == mine.memory, "nvlink: rank {} asks for {}, rank {} for {}", rank(), name_of(mine.memory),
            peer, name_of(other.memory));
    if (peer == rank()) continue;
    const int device = device_named(other.gpu);
    if (device < 0)
      throw_error<Failure>("nvlink: rank {} does not see GPU {} of rank {}: leave all of them in CUDA_VISIBLE_DEVICES",
                           rank(), other.gpu.text, peer);
    if (device == device_) {
      if (options_.memory == PeerMemoryKind::nccl_windows)
        throw_error<Failure>(
            "nvlink: ranks {} and {} share cuda:{}; NCCL's windows need a GPU a rank (cuda_ipc does not)", rank(), peer,
            device_);
      continue;
    }
    int reaches = 0;
    check_cuda(cudaDeviceCanAccessPeer(&reaches, device_, device), "cudaDeviceCanAccessPeer");
    if (reaches == 0)
      throw_error<Failure>("nvlink: cuda:{} ({}) of rank {} has no peer access to cuda:{} ({}) of rank {}", device_,
                           mine.gpu.text, rank(), device, other.gpu.text, peer);
  }
}

// Sends a word through every address in both directions: a mapping may exist and lead elsewhere.
void NvlinkFabric::probe() {
  Stream stream(device());
  const auto ranks = static_cast<std::size_t>(size());
  std::uint64_t* slots = entered_ + TeamTable::kMostTeams;
  constexpr std::uint64_t kNonce = 0x48'65'64'64'6c'65;
  const Peers world = Fabric::peers();
  nvlink::launch_probe_write(stream, world, slots, kNonce);
  drain(stream);
  exchange_.meet(exchange_.world(), "probes written");
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, words(2 * ranks)), "cudaMalloc");
  const std::unique_ptr<void, cudaError_t (*)(void*)> seen_there(memory, &cudaFree);
  nvlink::launch_probe_read(stream, world, slots, static_cast<std::uint64_t*>(memory));
  drain(stream);
  std::vector<std::uint64_t> seen(2 * ranks);
  check_cuda(cudaMemcpy(seen.data(), memory, words(2 * ranks), cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (int peer = 0; peer < size(); ++peer) {
    if (seen[static_cast<std::size_t>(peer)] != nvlink::probe_word(kNonce, rank(), peer))
      throw_error<Failure>("nvlink: rank {} does not read in rank {}'s memory what it has written there ({})", rank(),
                           peer, name_of(options_.memory));
    if (seen[ranks + static_cast<std::size_t>(peer)] != nvlink::probe_word(kNonce, peer, rank()))
      throw_error<Failure>("nvlink: what rank {} writes to rank {} does not arrive ({})", peer, rank(),
                           name_of(options_.memory));
  }
}

NvlinkFabric::~NvlinkFabric() {
  if (memory_ == nullptr) {  // an exception before the own memory was there: the host fabric tells the others
    try {
      static_cast<void>(exchange_.part(std::chrono::nanoseconds(0)));  // who have nothing to wait for
    } catch (const std::exception& error) {
      log_warning("nvlink: rank {}, closing: {}", rank(), error.what());
    }
    return;
  }
  const bool by_exception = std::uncaught_exceptions() > exceptions_at_start_;
  const auto free = [this] {
    recorded_waits_.reset();
    memory_.reset();
    record_.reset();
  };
  if (!by_exception && !failed()) {
    try {
      const auto idle = [this] { wait_until_idle(kLongestWait); };
      const auto let_go = [this] { memory_->close(); };
      close_together(exchange_, {idle, let_go, free});
      return;
    } catch (const std::exception& error) {
      log_warning("nvlink: rank {}, closing: {}", rank(), error.what());
    }
  }
  if (memory_ == nullptr) return;  // only the last meeting has failed: this rank has parted
  const std::chrono::nanoseconds limit = options_.fabric.deadline + std::chrono::seconds(1);
  try {
    if (by_exception) abandon({});
    leave();
    const auto idle = [&] { wait_until_idle(limit); };
    const auto let_go = [this] { memory_->abandon(); };
    if (close_after_failure(exchange_, {idle, let_go, free}, limit)) return;
    log_warning("nvlink: rank {}: not every rank has let go of the heap on cuda:{}; it is freed when this process ends",
                rank(), device_);
  } catch (const std::exception& error) {
    log_warning("nvlink: rank {}: {}; the heap on cuda:{} is freed when this process ends", rank(), error.what(),
                device_);
  }
  static_cast<void>(memory_.release());  // kernels may still use all three
  static_cast<void>(record_.release());
  static_cast<void>(recorded_waits_.release());
}

void NvlinkFabric::wait_until_idle(std::chrono::nanoseconds limit) const {
  within_deadline(limit, "the GPU's last work", [device = device_] {
    cudaSetDevice(device);
    cudaDeviceSynchronize();
  });
}

void NvlinkFabric::abandon(std::string_view) {
  share_failure();
  report(**record_, {named(rank()), named(rank()), "ended"}, 0, 0);  // ends this rank's kernels
  end_vendor_operations();                                           // NCCL's do not look at the record
  exchange_.abandon();
}

void NvlinkFabric::leave() {
  share_failure();
  end_vendor_operations();
}

bool NvlinkFabric::has(Capability capability) const {
  switch (capability) {
    case Capability::peer_addresses:
    case Capability::device_initiated:
      return true;
    case Capability::several_machines:
      return false;
    case Capability::vendor_collectives:
      return share_.ranks == 1 && nccl_available();
  }
  return false;
}

SymmetricSpan NvlinkFabric::allocate(std::size_t size_bytes) {
  require_equal_allocations(exchange_.gather(exchange_.world(), std::uint64_t{size_bytes}, "allocate"));
  const auto [offset, used_before] = allocated_.allocate(size_bytes);
  std::byte* const data = heap() + offset;
  if (size_bytes == 0) return {data, 0};
  if (used_before != 0) clear(data, used_before);  // by now every rank has released it
  require_equal_offsets(exchange_.gather(exchange_.world(), std::uint64_t{offset}, "allocate"));
  return {data, size_bytes};
}

void NvlinkFabric::release(const SymmetricSpan& span) {
  allocated_.release(static_cast<std::size_t>(span.data - heap()), span.size_bytes);
}

void NvlinkFabric::clear(std::byte* place, std::size_t bytes) {
  const CurrentDevice current(device_);
  Stream stream(device());
  check_cuda(cudaMemsetAsync(place, 0, bytes, static_cast<cudaStream_t>(stream.native())), "cudaMemsetAsync");
  drain(stream);
}

std::optional<std::size_t> NvlinkFabric::offset_of(const void* place, std::size_t bytes) const {
  return allocated_.offset_of(heap(), place, bytes);
}

Peers NvlinkFabric::peers(std::span<const int> team) const {
  require_team(team, size(), rank(), "peers");
  Peers world{.rank = rank(), .size = size(), .waits = waits()};
  std::copy(memory_->heaps().begin(), memory_->heaps().end(), world.heaps);
  std::fill_n(world.to_world, size(), static_cast<std::int8_t>(options_.fabric.first_rank));
  return world.of(team);
}

void NvlinkFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "put");
  std::byte* there = at(peer, destination, bytes, "put");
  require_local(source, bytes, "put");
  copy(stream, there, source, bytes);
}

void NvlinkFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "get");
  const std::byte* there = at(peer, source, bytes, "get");
  require_local(destination, bytes, "get");
  copy(stream, destination, there, bytes);
}

void NvlinkFabric::copy(Stream& stream, void* destination, const void* source, std::size_t bytes) {
  if (destination == source) return;
  const CurrentDevice current(device_);
  switch (transfer_path(bytes, reinterpret_cast<std::uintptr_t>(destination), reinterpret_cast<std::uintptr_t>(source),
                        options_.copy_engine_bytes)) {
    case TransferPath::none:
      return;
    case TransferPath::kernel:
      return nvlink::launch_copy(stream, destination, source, bytes, copy_blocks(bytes));
    case TransferPath::copy_engine:
      return check_cuda(
          cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream.native())),
          "cudaMemcpyAsync");
  }
}

void NvlinkFabric::signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal");
  reject_capture(stream, "signal");
  std::uint64_t* there = flag_at(peer, flag, "signal");
  const CurrentDevice current(device_);
  nvlink::launch_signal(stream, there, value, nvlink::SignalKind::store);
}

void NvlinkFabric::signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal_add");
  std::uint64_t* there = flag_at(peer, flag, "signal_add");
  const CurrentDevice current(device_);
  nvlink::launch_signal(stream, there, value, nvlink::SignalKind::add);
}

void NvlinkFabric::wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait");
  reject_capture(stream, "wait");
  require_flag(*this, flag, "wait");
  const CurrentDevice current(device_);
  nvlink::launch_wait(stream, waits(), {named(rank()), named(from), tag}, flag, target);
}

void NvlinkFabric::wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait_next");
  require_semaphore(*this, semaphore, "wait_next");
  const CurrentDevice current(device_);
  nvlink::launch_wait_next(stream, waits(), {named(rank()), named(from), tag}, semaphore);
}

void NvlinkFabric::fence(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "fence");
  const CurrentDevice current(device_);
  nvlink::launch_fence(stream);
}

void NvlinkFabric::barrier(Stream& stream, std::span<const int> team) {
  require_stream_and_peer(*this, stream, rank(), "barrier");
  nvlink::BarrierBody body{};
  body.peers = peers(team);
  const auto number = static_cast<std::size_t>(teams_.number_of(team));
  std::transform(team.begin(), team.end(), body.world_ranks, [](int rank) { return static_cast<std::int16_t>(rank); });
  body.first_rank = options_.fabric.first_rank;
  body.arrived = arrived_ + number * static_cast<std::size_t>(size());
  body.entered = entered_ + number;
  const CurrentDevice current(device_);
  nvlink::launch_barrier(stream, body);
}

void NvlinkFabric::synchronize(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "synchronize");
  drain(stream);
  if (!failed()) return;
  share_failure();
  exchange_.check();  // throws: the same words on every rank
  throw_error<Failure>("rank {}: the fabric has failed", rank());
}

void NvlinkFabric::drain(Stream& stream) {
  using Nanoseconds = std::chrono::nanoseconds;
  const Nanoseconds longest = vendor_open() ? options_.vendor_deadline : Nanoseconds(kLongestWait);
  Deadline deadline = Deadline::after(longest);
  bool ending = false;
  while (true) {
    const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream.native()));
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) throw_cuda_error(fmt::format("rank {}: cuda:{}", rank(), device_), state);
    cudaGetLastError();
    if (deadline.passed()) {
      const std::string what = fmt::format("rank {}: cuda:{}'s stream is not idle after {:.1f} s", rank(), device_,
                                           std::chrono::duration<double>(longest).count());
      if (ending) throw Timeout(what + ", though all its waits have been ended");
      report(exchange_.shared_record(), {named(rank()), named(rank()), "synchronize"}, 0, 0);
    }
    if (failed()) {
      share_failure();  // again and again: a record may just be being written
      if (!ending) {
        ending = true;
        deadline = Deadline::after(options_.fabric.deadline + std::chrono::seconds(1));
        end_vendor_operations();
      }
    }
    std::this_thread::yield();
  }
}

// The GPU's own record is written by its kernels with its own atomics, which those of the host do not exclude; should
// both write at once, what is lost is some words of the error.
void NvlinkFabric::share_failure() {
  WaitRecord& shared = exchange_.shared_record();
  const auto pass_on = [](const WaitRecord& from, WaitRecord& to) {
    if (is(from, WaitRecord::complete)) report(to, {from.rank, from.from, from.tag}, from.expected, from.observed);
  };
  pass_on(**record_, shared);
  pass_on(shared, **record_);
}

void NvlinkFabric::end_vendor_operations() {
  const std::lock_guard lock(vendor_mutex_);
  for (Abortable* operations : vendor_) operations->abort();
}

std::span<std::byte> NvlinkFabric::heap_memory() const {
  return {heap(), allocated_.size_bytes()};
}

bool NvlinkFabric::failed() const {
  return !is(**record_, WaitRecord::empty) || !is(exchange_.shared_record(), WaitRecord::empty);
}

bool NvlinkFabric::vendor_open() {
  const std::lock_guard lock(vendor_mutex_);
  return !vendor_.empty();
}

void NvlinkFabric::add(Abortable* operations) {
  const std::lock_guard lock(vendor_mutex_);
  vendor_.push_back(operations);
}

void NvlinkFabric::remove(Abortable* operations) {
  const std::lock_guard lock(vendor_mutex_);
  std::erase(vendor_, operations);
}

std::byte* NvlinkFabric::at(int peer, const void* place, std::size_t bytes, std::string_view operation) const {
  return memory_->heaps()[static_cast<std::size_t>(peer)] + require_symmetric(*this, place, bytes, operation);
}

std::uint64_t* NvlinkFabric::flag_at(int peer, const std::uint64_t* flag, std::string_view operation) const {
  return reinterpret_cast<std::uint64_t*>(memory_->heaps()[static_cast<std::size_t>(peer)] +
                                          require_flag(*this, flag, operation));
}

WaitLimit NvlinkFabric::waits() const {
  return {.record = record_->get(),
          .nanoseconds = static_cast<std::uint64_t>(options_.fabric.deadline.count()),
          .log = recorded_waits_->log()};
}

void NvlinkFabric::reject_capture(const Stream& stream, std::string_view operation) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &status), "cudaStreamIsCapturing");
  require(status == cudaStreamCaptureStatusNone,
          "{}: a graph that is captured here would repeat the same value on each replay; use {}_next, which counts on "
          "the device",
          operation, operation);
}

}  // namespace heddle
