#include "fabric/staged/staging_server.h"

#include <chrono>
#include <cstring>
#include <exception>

#include "base/alignment.h"
#include "base/copy.h"
#include "base/error.h"
#include "device/atomics.h"
#include "device/spin.h"
#include "device/wait_watch.h"
#include "fabric/staged/staged_bodies.h"

namespace heddle {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr int kLooksBetweenChecks = 100;

}  // namespace

bool gave_up_itself(const WaitRecord& record) {
  return atomic_load(&record.state) == WaitRecord::complete && record.tag.view() != kLostRank.view();
}

SharedWords::SharedWords(Device device, std::size_t bytes) {
  if (device.kind == DeviceKind::cpu)
    host_ = Buffer(bytes);
  else
    pinned_ = PinnedBuffer(bytes);
}

StagingServer::StagingServer(Fabric& host, Device device, std::span<std::byte> heap, const StagingArea& area,
                             WaitRecord& record, std::uint64_t limit_nanoseconds)
    : host_(host),
      device_(device),
      heap_(heap),
      area_(area),
      record_(record),
      limit_nanoseconds_(limit_nanoseconds),
      answer_(area.piece_bytes()) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void StagingServer::close() {
  thread_ = {};
}

void StagingServer::run(const std::stop_token& stop) try {
  for (int looks = 1; !stop.stop_requested(); ++looks) {
    if (serve()) continue;
    if (looks % kLooksBetweenChecks == 0 && pass_on_failure()) return;
    std::this_thread::sleep_for(kBetweenLooks);
  }
} catch (const std::exception& error) {
  host_.abandon(error.what());
  pass_on_failure();
}

bool StagingServer::serve() {
  bool any = false;
  for (int from = 0; from < host_.size(); ++from)
    for (int lane = 0; lane < StagingArea::kLanes; ++lane) {
      Semaphore& arrived = area_.way(from, lane).arrived;
      if (atomic_load(&arrived.arrived) == arrived.taken) continue;
      any = true;
      const std::byte* const slot = area_.slot(from, lane, arrived.taken);
      StagedRequest request;
      std::memcpy(&request, slot, sizeof request);
      carry_out(from, lane, request, slot + StagingArea::kRequestBytes);
      ++arrived.taken;
      host_.signal_next(messages_, from, &area_.way(host_.rank(), lane).room);
    }
  if (any) host_.synchronize(messages_);
  return any;
}

std::byte* StagingServer::place_of(int from, const StagedRequest& request) const {
  const bool is_flag =
      request.kind == StagedRequest::word || request.kind == StagedRequest::set || request.kind == StagedRequest::add;
  const std::size_t bytes = is_flag ? sizeof(std::uint64_t) : request.bytes;
  const std::size_t offset = request.kind == StagedRequest::tell ? 0 : request.offset;
  if (offset > heap_.size() || bytes > heap_.size() - offset || bytes > area_.piece_bytes() ||
      (is_flag && offset % sizeof(std::uint64_t) != 0))
    throw_error<Failure>("rank {} rejects a request of rank {} for {} bytes at {} of its heap of {}{}", host_.rank(),
                         from, bytes, offset, heap_.size(), is_flag ? "; flags lie at multiples of 8" : "");
  return heap_.data() + offset;
}

void StagingServer::carry_out(int from, int lane, const StagedRequest& request, const std::byte* bytes) {
  std::byte* const place = place_of(from, request);
  auto* const flag = reinterpret_cast<std::uint64_t*>(place);
  switch (request.kind) {
    case StagedRequest::put:
      enqueue_copy(*copies_, place, bytes, request.bytes);
      break;
    case StagedRequest::word:
    case StagedRequest::set:
      staged::enqueue_set(*copies_, flag, request.value);
      break;
    case StagedRequest::add:
      staged::enqueue_add(*copies_, flag, request.value);
      break;
    case StagedRequest::get:
      return answer(from, lane, request);
    case StagedRequest::tell:
      return host_.signal_next(messages_, from, &area_.way(host_.rank(), lane).answered);
    default:
      throw_error<Failure>("rank {} rejects a request of kind {} from rank {}", host_.rank(), request.kind, from);
  }
  (*copies_).synchronize();
}

// A word, for which other ranks may be writing, is read by one load.
void StagingServer::answer(int from, int lane, const StagedRequest& request) {
  const std::byte* const place = place_of(from, request);
  host_.synchronize(messages_);  // the last answer has left
  if (request.bytes == sizeof(std::uint64_t) && is_aligned(place, sizeof(std::uint64_t))) {
    staged::enqueue_copy_word(*copies_, reinterpret_cast<std::uint64_t*>(word_.data()),
                              reinterpret_cast<const std::uint64_t*>(place));
    (*copies_).synchronize();
    std::memcpy(answer_.data(), word_.data(), sizeof(std::uint64_t));
  } else {
    enqueue_copy(*copies_, answer_.data(), place, request.bytes);
    (*copies_).synchronize();
  }
  StagedWay& way = area_.way(host_.rank(), lane);
  host_.put(messages_, from, area_.answer(host_.rank(), lane, request.value), answer_.data(), request.bytes);
  host_.signal_next(messages_, from, &way.answered);
}

bool StagingServer::pass_on_failure() {
  if (gave_up_itself(record_)) {
    host_.abandon(what_gave_up(record_, limit_nanoseconds_));
    return true;
  }
  try {
    host_.synchronize(idle_);
  } catch (const std::exception&) {
    report(record_, {host_.rank(), host_.rank(), kLostRank}, 0, 0);
    return true;
  }
  return false;
}

}  // namespace heddle
