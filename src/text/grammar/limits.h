// What a grammar may cost. Every limit that is passed is an InputError (while compiling) or a Failure (while matching).
#pragma once

#include <cstddef>

namespace heddle::grammar {

inline constexpr std::size_t kMaxSourceBytes = std::size_t{256} << 10;    // of a schema, an expression, all choices
inline constexpr int kMaxSchemaDepth = 64;                                // of a schema's JSON text
inline constexpr std::size_t kMaxStates = std::size_t{1} << 17;           // of a push-down automaton
inline constexpr std::size_t kMaxCharacterStates = std::size_t{1} << 14;  // of an expression's automaton
inline constexpr std::size_t kMaxCharacterEdges = std::size_t{1} << 18;   // all its states together
inline constexpr std::size_t kMaxAlternatives = 1024;                     // of anyOf, oneOf and allOf at one place
inline constexpr double kMaxCompileSeconds = 2;                           // of the thread's CPU time
inline constexpr double kMaxMaskSeconds = 1;                              // of one mask
inline constexpr int kMaxFrames = 64;  // of nested calls in an answer: 32 objects or 60 lists, one in the other
inline constexpr std::size_t kMaxConfigurations = 4096;               // that are alive together
inline constexpr std::size_t kMaxTableBytes = std::size_t{32} << 20;  // of one table of states; then a new one begins

}  // namespace heddle::grammar
