// /live: the engine's figures, once or as a stream.
#include "server/api_error.h"
#include "server/service.h"

namespace heddle::server {
namespace {

constexpr int kMostLiveStreams = 16;
constexpr std::chrono::milliseconds kLivePeriod{250};
}  // namespace

std::string Service::live() {
  const LoopSnapshot snapshot = loop_->snapshot();
  LiveInput input{.metrics = metrics_,
                  .snapshot = snapshot,
                  .rates = rates_.update(snapshot, Clock::now()),
                  .model = options_.model_names.front(),
                  .uptime_seconds = std::chrono::duration<double>(Clock::now() - start_).count(),
                  .memory_gbps = options_.memory_gbps,
                  .max_sequences = options_.max_sequences,
                  .max_queue = options_.max_queue,
                  .num_outstanding = num_outstanding()};
  for (const RunningRequest& request : snapshot.requests)
    if (const auto found = generations_.find(request.ticket); found != generations_.end())
      input.request_ids.emplace(request.ticket, found->second->id());
  return live_json(input);
}

void Service::stream_live(const std::shared_ptr<Responder>& responder) {
  if (num_live_ == kMostLiveStreams) {
    ApiError error(429, fmt::format("{} clients watch /live already", kMostLiveStreams));
    error.retry_after = 10;
    throw error;
  }
  ++num_live_;
  const auto open = std::make_shared<bool>(true);
  responder->on_disconnect([this, open, alive = std::weak_ptr(alive_)] {
    if (alive.lock() && std::exchange(*open, false)) --num_live_;
  });
  responder->begin({.content_type = "text/event-stream; charset=utf-8"});
  const auto tick = std::make_shared<std::function<void()>>();
  *tick = [this, open, responder, weak = std::weak_ptr(tick), alive = std::weak_ptr(alive_)] {
    if (!alive.lock() || !*open) return;
    responder->write(sse_event(live()));
    const auto next = weak.lock();
    if (draining_) {
      *open = false;
      --num_live_;
      responder->end();
    } else if (next) {
      threads_.later(kLivePeriod, [next] { (*next)(); });
    }
  };
  (*tick)();
}

}  // namespace heddle::server
