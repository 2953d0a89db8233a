#include "base/ordered_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

// Builds the tree from events that parse_json has been through: nothing is refused here.
class OrderedTreeBuilder {
 public:
  ordered_json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(ordered_json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(ordered_json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(ordered_json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    // The vector below ordered_json's map: its own emplace would search all members for the key each time.
    using Members = std::vector<std::pair<const std::string, ordered_json>>;
    Members& members = open_.back()->get_ref<ordered_json::object_t&>();
    member_ = &members.emplace_back(key, nullptr).second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const ordered_json::exception&) { return false; }

 private:
  ordered_json& put(ordered_json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) {
      auto& elements = open_.back()->get_ref<ordered_json::array_t&>();
      elements.push_back(std::move(value));
      return elements.back();
    }
    return *member_ = std::move(value);
  }
  bool add(ordered_json value) {
    put(std::move(value));
    return true;
  }
  bool open(ordered_json value) {
    open_.push_back(&put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  ordered_json root_;
  std::vector<ordered_json*> open_;  // an open one's parent does not grow
  ordered_json* member_ = nullptr;
};

}  // namespace

ordered_json parse_ordered_json(std::string_view text, std::string_view where, int max_depth) {
  parse_json(text, where, max_depth);  // throws what there is to throw
  OrderedTreeBuilder builder;
  ordered_json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace heddle
