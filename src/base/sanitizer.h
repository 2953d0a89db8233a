// Which sanitizer watches what is compiled here. GCC and Clang say it in different ways.
#pragma once

#if defined(__has_feature)
#define HEDDLE_HAS_FEATURE(feature) __has_feature(feature)
#else
#define HEDDLE_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || HEDDLE_HAS_FEATURE(address_sanitizer)
#define HEDDLE_ADDRESS_SANITIZER 1
#else
#define HEDDLE_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || HEDDLE_HAS_FEATURE(thread_sanitizer)
#define HEDDLE_THREAD_SANITIZER 1
#else
#define HEDDLE_THREAD_SANITIZER 0
#endif

namespace heddle {

inline constexpr bool kAddressSanitizer = HEDDLE_ADDRESS_SANITIZER != 0;
inline constexpr bool kThreadSanitizer = HEDDLE_THREAD_SANITIZER != 0;
inline constexpr bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

}  // namespace heddle
