#include "text/grammar/frame.h"

#include "base/error.h"

namespace heddle::grammar {
namespace {

constexpr int kMaxSpaces = 4;  // behind a preamble

// Any text up to the first occurrence of `mark`, and the mark: Knuth, Morris and Pratt's automaton, a state for each
// beginning of the mark.
Fragment until(AutomatonBuilder& builder, std::string_view mark) {
  require(!mark.empty(), "grammar: a preamble without an end");
  std::vector<StateId> states;
  for (std::size_t i = 0; i <= mark.size(); ++i) states.push_back(builder.state());
  // The state behind `matched` bytes of the mark and then `byte`.
  const auto next = [&](std::size_t matched, std::uint8_t byte) {
    std::string text(mark.substr(0, matched));
    text += static_cast<char>(byte);
    while (!mark.starts_with(text)) text.erase(0, 1);
    return text.size();
  };
  constexpr int kLastByte = 255;
  for (std::size_t matched = 0; matched < mark.size(); ++matched)
    for (int first = 0; first <= kLastByte;) {
      const std::size_t target = next(matched, static_cast<std::uint8_t>(first));
      int last = first;
      while (last < kLastByte && next(matched, static_cast<std::uint8_t>(last + 1)) == target) ++last;
      builder.bytes(states[matched], static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), states[target]);
      first = last + 1;
    }
  return {states.front(), states.back()};
}

Fragment spaces(AutomatonBuilder& builder) {
  StateId at = builder.state();
  const Fragment all{at, builder.state()};
  builder.empty(at, all.last);
  for (int i = 0; i < kMaxSpaces; ++i) {
    const StateId next = builder.state();
    builder.bytes(at, ' ', ' ', next);
    builder.bytes(at, '\n', '\n', next);
    builder.empty(next, all.last);
    at = next;
  }
  return all;
}

}  // namespace

RuleId framed(AutomatonBuilder& builder, RuleId form, const Frame& frame) {
  if (frame == Frame()) return form;
  const RuleId item =
      builder.rule(builder.sequence({builder.literal(frame.open), builder.call(form), builder.literal(frame.close)}));
  Fragment whole = builder.call(item);
  if (frame.most != 1) {
    const RuleId more = builder.rule(builder.sequence({builder.literal(frame.separator), builder.call(item)}));
    whole = builder.sequence({whole, builder.repeat(more, 0, frame.most == kUnbounded ? kUnbounded : frame.most - 1)});
  }
  if (frame.preamble != Frame::Preamble::none) {
    const bool begun = frame.preamble == Frame::Preamble::begun;
    const Fragment thought = builder.sequence({builder.literal(begun ? std::string() : frame.preamble_open),
                                               until(builder, frame.preamble_close), spaces(builder)});
    whole = builder.sequence({begun ? thought : builder.optional(thought), whole});
  }
  return builder.rule(whole);
}

}  // namespace heddle::grammar
