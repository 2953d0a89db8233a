#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace heddle {
namespace {

class Recorder : public SpanSink {
 public:
  void begin(std::string_view name, int index, Clock::time_point) override {
    lines.push_back("begin " + std::string(name) + " " + std::to_string(index));
  }
  void end(std::string_view name, int index, Clock::time_point) override {
    lines.push_back("end " + std::string(name) + " " + std::to_string(index));
  }
  std::vector<std::string> lines;
};

TEST(Span, MarksTheWorkEnqueuedDuringItsLife) {
  ThreadPool pool(1);
  Recorder recorder;
  Stream stream(pool);
  stream.set_span_sink(&recorder);
  {
    const Span outer(stream, "layer", 3);
    stream.enqueue([&](ThreadPool&) { recorder.lines.push_back("work"); });
    const Span inner(stream, "norm");
  }
  stream.synchronize();
  EXPECT_THAT(recorder.lines,
              testing::ElementsAre("begin layer 3", "work", "begin norm -1", "end norm -1", "end layer 3"));
}

TEST(Span, EndsAlsoWhereTheWorkFailed) {
  ThreadPool pool(1);
  Recorder recorder;
  Stream stream(pool);
  stream.set_span_sink(&recorder);
  {
    const Span span(stream, "layer");
    stream.enqueue([](ThreadPool&) { throw std::runtime_error("work"); });
  }
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  EXPECT_THAT(recorder.lines, testing::ElementsAre("begin layer -1", "end layer -1"));
}

TEST(Span, KeepsTheSinkItBeganWith) {
  ThreadPool pool(1);
  Recorder recorder;
  Stream stream(pool);
  {
    const Span span(stream, "before the sink");
    stream.set_span_sink(&recorder);
  }
  stream.synchronize();
  EXPECT_TRUE(recorder.lines.empty());
}

}  // namespace
}  // namespace heddle
