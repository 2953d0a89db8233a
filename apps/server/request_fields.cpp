#include "server/request_fields.h"

#include "base/printable.h"

namespace heddle::server {

RequestFields::RequestFields(const nlohmann::json& body) : body_(body) {
  if (!body.is_object()) throw ApiError(400, "the body is not a JSON object");
}

void RequestFields::ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void RequestFields::refuse(const char* name, std::string_view why) {
  known_.insert(name);
  const auto found = body_.find(name);
  if (found == body_.end() || found->is_null() || *found == false || *found == 0) return;
  if ((found->is_string() || found->is_array() || found->is_object()) && found->empty()) return;
  if (found->is_string() && found->get_ref<const std::string&>().empty()) return;
  throw ApiError(501, fmt::format("{}: {}", name, why), name, "not_implemented");
}

void RequestFields::refuse_unless(const char* name, const nlohmann::json& harmless, std::string_view why) {
  const auto found = body_.find(name);
  if (found != body_.end() && *found == harmless)
    ignore({name});
  else
    refuse(name, why);
}

void RequestFields::check_all_known() const {
  constexpr std::size_t kShown = 64;
  for (const auto& [name, value] : body_.items())
    if (!known_.contains(name))
      throw ApiError(400, fmt::format("unknown field \"{}\"", printable(name, kShown)), printable(name, kShown),
                     "unknown_parameter");
}

}  // namespace heddle::server
