// Counts the resources that a rendering uses, and stops it at a limit.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "text/chat_template/limits.h"

namespace heddle::jinja {

// An error in a template, without its position: the interpreter adds the line.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Meter {
 public:
  explicit Meter(const TemplateLimits& limits) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  const TemplateLimits& limits() const { return limits_; }

  void step(std::size_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) [[unlikely]]
      fail_steps();
  }
  void step_bytes(std::size_t bytes) { step(1 + bytes / 32); }

  // Call it before building a value of this size.
  void expect(std::size_t bytes) const {
    if (bytes > limits_.max_value_bytes - live_bytes_) [[unlikely]]
      fail_memory();
  }

  // Counts bytes that stay until the end of the rendering.
  void keep(std::size_t bytes) {
    expect(bytes);
    live_bytes_ += bytes;
  }

  void enter() {
    if (++depth_ > limits_.max_depth) [[unlikely]] {
      --depth_;
      fail_depth();
    }
  }
  void leave() { --depth_; }

 private:
  friend class Charge;
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_memory() const;
  [[noreturn]] void fail_depth() const;

  TemplateLimits limits_;
  std::size_t steps_ = 0;
  std::size_t live_bytes_ = 0;
  int depth_ = 0;
};

// Counts the bytes of one value during its life. Without a meter (constants of a parsed template) nothing is counted.
class Charge {
 public:
  Charge(Meter* meter, std::size_t bytes) : meter_(meter), bytes_(bytes) {
    if (!meter_) return;
    meter_->step_bytes(bytes);
    meter_->expect(bytes);
    meter_->live_bytes_ += bytes;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() {
    if (meter_) meter_->live_bytes_ -= bytes_;
  }

 private:
  Meter* meter_;
  std::size_t bytes_;
};

// Counts one level of nesting during its life.
class Level {
 public:
  explicit Level(Meter& meter) : meter_(meter) { meter_.enter(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { meter_.leave(); }

 private:
  Meter& meter_;
};

}  // namespace heddle::jinja
