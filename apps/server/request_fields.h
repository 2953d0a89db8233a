// The fields of a request's body: each is read by name, and what nobody reads is an error.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "server/api_error.h"

namespace heddle::server {

class RequestFields {
 public:
  // Throws ApiError 400 unless `body` is an object. It must outlive this.
  explicit RequestFields(const nlohmann::json& body);

  // Calls `take(const JsonField&)` if the field is there and not null. An InputError of it becomes an ApiError 400 with
  // the field's name.
  template <class Take>
  void read(const char* name, Take take) {
    known_.insert(name);
    const auto found = body_.find(name);
    if (found == body_.end() || found->is_null()) return;
    try {
      take(JsonField(*found, name));
    } catch (const InputError& error) {
      throw ApiError(400, error.what(), name);
    }
  }

  // Fields that change nothing here.
  void ignore(std::initializer_list<const char*> names);

  // Throws ApiError 501 that names the field and says why, unless it is absent, null, false, 0 or empty.
  void refuse(const char* name, std::string_view why);

  // The same where `harmless` is what the field says when it asks for nothing.
  void refuse_unless(const char* name, const nlohmann::json& harmless, std::string_view why);

  // Throws ApiError 400 that names a field that was neither read nor ignored.
  void check_all_known() const;

 private:
  const nlohmann::json& body_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace heddle::server
